/* restarts.h - runs that start again when a process has died, as often as is allowed */
#ifndef PL_LAUNCHERS_RESTARTS_H
#define PL_LAUNCHERS_RESTARTS_H

#include "actors/launchers/ranks.h"
#include "actors/launchers/tries.h"
#include "actors/launchers/wires.h"

#define PL_RESTARTS_OPTION(type) \
    PL_INT(type, max_restarts, "3", "0..100", \
           "how often the run is started again within 10 minutes when a rank dies")

/* For `again` of pl_ranks_ops_t: true when the run is to begin once more, by `then`,
 * which is called after a while, of a range of ranks without one that has died again.
 * False: it has failed, and its error says how often it was tried. */
bool pl_restarts_may(pl_tries_t *tries, pl_ranks_t *ranks, const pl_wires_t *wires,
                     int64_t most, void (*then)(void *launcher));
/* Begins it, from the newest checkpoint there is, or answers it. */
void pl_restarts_begin(pl_ranks_t *ranks, pl_wires_t *wires);

#endif
