/* self_exec.h - starts this program once more, as a child */
#ifndef PL_LAUNCHERS_SELF_EXEC_H
#define PL_LAUNCHERS_SELF_EXEC_H

#include "runtime/process.h"

/* Keeps the arguments that started this program, before the program changes them. */
void pl_self_exec_init(void);
/* Starts the program that runs, whatever lies at its path by now, with the same words;
 * the rest as the spec says. */
pl_process_t *pl_self_exec_start(const pl_process_spec_t *spec, struct event_base *loop,
                                 pl_error_t *err);

#endif
