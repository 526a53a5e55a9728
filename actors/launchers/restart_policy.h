/* restart_policy.h - how often something may be started again, and how soon
 *
 * What a process dies of may not come again; what comes again and again is not to be
 * tried for ever.  So many times within a window, each after a longer wait. */
#ifndef PL_LAUNCHERS_RESTART_POLICY_H
#define PL_LAUNCHERS_RESTART_POLICY_H

#include "paceline.h"

#define PL_TRIES_MAX 100

typedef struct pl_restart {
    int64_t when;
    uint64_t global_step;                        /* that it had come to  [0: not known] */
    int rank;                                    /* that failed  [-1: none alone] */
} pl_restart_t;

typedef struct pl_restart_policy {
    int64_t max;                                        /* within the window, PL_TRIES_MAX
                                                           at most */
    int count;
    pl_restart_t one[PL_TRIES_MAX];               /* within the window, the newest last */
} pl_restart_policy_t;

/* Counts a restart: how long to wait before it, in ms; -1: the limit is reached. */
int pl_restart_policy_add(pl_restart_policy_t *policy, uint64_t global_step, int rank);
/* Whether that rank was the one that failed the last time, too. */
bool pl_restart_policy_is_same(pl_restart_policy_t *policy, int rank);
/* No more restarts: adds to the error how often the job was started again
 * and, where steps are known, after which step it failed each time. */
void pl_restart_policy_report(const pl_restart_policy_t *policy,
                              const uint64_t *global_step, pl_error_t *error);

#endif
