/* last_words.h - what a process said before it died, behind the error that tells of it */
#ifndef PL_LAUNCHERS_LAST_WORDS_H
#define PL_LAUNCHERS_LAST_WORDS_H

#include "runtime/process.h"

/* Whole lines, as there is room; of one whose lines are shown as they come the last
 * alone. */
void pl_last_words(pl_process_t *process, bool is_shown, pl_error_t *error);

#endif
