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

/* The last words of a process, behind an error's text: whole lines, as there is room; of
 * one whose lines are shown as they come the last alone. */
void pl_words_add(pl_process_t *process, bool is_shown, pl_error_t *error);

#endif
