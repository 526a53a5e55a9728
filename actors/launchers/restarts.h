/* restarts.h - runs that start again when a process has died
 *
 * In a range of ranks, one that dies again as soon as it was started again is left out,
 * and tried again later: the run pauses for that, so that nothing is trained twice. */
#ifndef PL_LAUNCHERS_RESTARTS_H
#define PL_LAUNCHERS_RESTARTS_H

#include "actors/launchers/rank_links.h"
#include "actors/launchers/ranks.h"
#include "actors/launchers/supervisor.h"

#define PL_RESTARTS_OPTION(type) \
    PL_INT(type, max_restarts, "3", "0..100", \
           "restarts of the run within 10 minutes after ranks died")

/* The launcher's, for one run. */
typedef struct pl_restarts {
    pl_ranks_t *ranks;
    int64_t max;
    void (*begin)(void *launcher);              /* called when it is time to; in the end
                                                   it calls pl_restarts_begin() */
    void (*look)(void *launcher);               /* calls pl_restarts_look() */
    double return_after;                        /* s; look and return_after: for a range
                                                   of ranks  [0: a rank stays left out] */
    pl_restart_policy_t policy;
    int left_out;                                           /* the last rank that was */
    bool waits;                                             /* until it begins */
} pl_restarts_t;

/* For `again` of pl_ranks_ops_t: true when the run is to begin once more, by `begin`,
 * which is called after a while; without a rank that has died again, or with all after a
 * pause.  False: it is over, and if it has failed its error says how often it was
 * tried.  A failure that is tried again counts. */
bool pl_restarts_try(pl_restarts_t *restarts);
/* Begins it, from the newest checkpoint there is, or answers it; the first time it is
 * called after that.  A run that was asked to stop in between stops as soon as it
 * trains. */
void pl_restarts_begin(pl_restarts_t *restarts);
/* Has the run pause, if it trains, for those that were left out. */
void pl_restarts_look(pl_restarts_t *restarts);

#endif
