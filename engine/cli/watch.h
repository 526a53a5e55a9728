/* watch.h - what commands that look on go by: the clock, and that they are to end */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

/* Seconds of a clock that nobody sets. */
double cli_now(void);

/* From now on Ctrl-C and SIGTERM are only noted. */
void cli_watch_signals(void);
/* The one that has come; 0: none. */
int cli_signalled(void);
/* The exit status after that: what was asked for has been done, or Ctrl-C cut it
 * short. */
int cli_signal_status(void);

#endif
