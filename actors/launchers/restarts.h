/* restarts.h - runs that start again when a process has died, as often as is allowed */
#ifndef PL_LAUNCHERS_RESTARTS_H
#define PL_LAUNCHERS_RESTARTS_H

#include "actors/launchers/ranks.h"
#include "actors/launchers/wires.h"

enum { PL_RESTARTS_MOST = 100 };

#define PL_RESTARTS_OPTION(type) \
    PL_INT(type, max_restarts, "3", "0..100", \
           "how often the run is started again within 10 minutes when a rank dies")

typedef struct pl_restarts {
    int count;
    struct {
        int64_t when;
        uint64_t global_step;                               /* that it came to before */
    } one[PL_RESTARTS_MOST];                                /* the newest last */
} pl_restarts_t;

/* For `again` of pl_ranks_ops_t: true when the run is to begin once more, by `then`,
 * which is called after a while.  False: it has failed, and its error says how often it
 * was tried. */
bool pl_restarts_may(pl_restarts_t *restarts, pl_ranks_t *ranks, const pl_wires_t *wires,
                     int64_t most, void (*then)(void *launcher));
/* Begins it, from the newest checkpoint there is, or answers it. */
void pl_restarts_begin(pl_ranks_t *ranks, pl_wires_t *wires);

#endif
