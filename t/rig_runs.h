/* rig_runs.h - runs that several tests make */
#ifndef T_RIG_RUNS_H
#define T_RIG_RUNS_H

#include "rig.h"

/* What a run of so many ranks that are threads comes to, with batches of that size on
 * each, which logs every step; trainer: further members; .data too. */
#define rig_ranks(ranks, batch, trainer, ...) \
    rig_ranks_train(ranks, batch, trainer, &(rig_spec_t){__VA_ARGS__})
rig_result_t *rig_ranks_train(int ranks, int batch, const char *trainer,
                              const rig_spec_t *given);

/* Largest difference of any step's; infinite when there are not as many. */
double rig_losses_differ(const rig_result_t *a, const rig_result_t *b);

/* A search for a batch size which is stopped at the second step. */
rig_t *rig_search_stopped(const char *trainer, const rig_result_t **result);

#endif
