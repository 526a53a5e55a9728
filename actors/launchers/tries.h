/* tries.h - how often something may be started again, and how soon
 *
 * What a process dies of may not come again; what comes again and again is not to be
 * tried for ever.  So many times within a window, each after a longer wait. */
#ifndef PL_LAUNCHERS_TRIES_H
#define PL_LAUNCHERS_TRIES_H

#include "paceline.h"

#define PL_TRIES_MOST 100

typedef struct pl_try {
    int64_t when;
    uint64_t global_step;                        /* that it had come to  [0: not known] */
    int rank;                                    /* that failed  [-1: none alone] */
} pl_try_t;

typedef struct pl_tries {
    int64_t most;                                      /* within the window, PL_TRIES_MOST
                                                          at most */
    int count;
    pl_try_t one[PL_TRIES_MOST];                  /* within the window, the newest last */
} pl_tries_t;

/* Another one: how long to wait before it, in ms; -1: there were as many as may be. */
int pl_tries_add(pl_tries_t *tries, uint64_t global_step, int rank);
/* Whether that rank was the one that failed the last time, too. */
bool pl_tries_is_same(pl_tries_t *tries, int rank);
/* It failed once more, and that was the last: adds to the error how often it was tried
 * and, where steps are known, after which step it failed each time. */
void pl_tries_tell(const pl_tries_t *tries, const uint64_t *global_step,
                   pl_error_t *error);

#endif
