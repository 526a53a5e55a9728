/* backtrace.h - where all threads of a rank's process are, when it is asked to abort */
#ifndef PL_LAUNCHERS_BACKTRACE_H
#define PL_LAUNCHERS_BACKTRACE_H

/* From now on SIGABRT has every thread that does not block it write its backtrace to
 * standard error before the process ends.  For a process that is a rank's. */
void pl_backtrace_on_abort(void);

#endif
