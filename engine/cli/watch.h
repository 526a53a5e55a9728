/* watch.h - clock and signals of commands that observe a run */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

/* Seconds of the monotonic clock. */
double cli_now(void);

/* From now on SIGINT and SIGTERM are only noted. */
void cli_watch_signals(void);
/* The signal that came; 0: none. */
int cli_signalled(void);
/* The exit status after it: CLI_DONE after SIGTERM, CLI_INTERRUPTED after Ctrl-C. */
int cli_signal_status(void);

#endif
