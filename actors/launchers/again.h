/* again.h - this program once more, as a child */
#ifndef PL_LAUNCHERS_AGAIN_H
#define PL_LAUNCHERS_AGAIN_H

#include "runtime/process.h"

/* Notes the words that have started this program; before anybody changes them. */
void pl_again_note(void);
/* Starts the program that runs, whatever lies at its path by now, with the same words;
 * the rest as the spec says. */
pl_process_t *pl_again_start(const pl_process_spec_t *spec, struct event_base *loop,
                             pl_error_t *err);

#endif
