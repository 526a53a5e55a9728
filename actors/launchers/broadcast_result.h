/* broadcast_result.h - the end of a run, told to every rank whose process waits for it */
#ifndef PL_LAUNCHERS_BROADCAST_RESULT_H
#define PL_LAUNCHERS_BROADCAST_RESULT_H

#include "actors/launchers/ranks.h"
#include "actors/launchers/rank_links.h"

typedef struct pl_result_broadcast pl_result_broadcast_t;

/* For a launcher's ranks when all have ended: tells the outcome, or the error, to those
 * that are there, from the first whose process waits for it on, and answers the
 * launcher's run when all have it and have left, or are gone.  To be freed with the
 * launcher  [NULL: out of memory; it is answered]. */
pl_result_broadcast_t *pl_result_broadcast(pl_ranks_t *ranks, pl_rank_links_t *links,
                                           int first);
/* What is told: the outcome, packed, or, NULL, the error. */
const pl_blob_t *pl_result_broadcast_outcome(const pl_result_broadcast_t *broadcast,
                                             const pl_error_t **error);
void pl_result_broadcast_free(pl_result_broadcast_t *broadcast);

#endif
