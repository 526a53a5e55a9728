/* replica_parts.h - what the files of a replica share among themselves */
#ifndef PL_STRATEGIES_REPLICA_PARTS_H
#define PL_STRATEGIES_REPLICA_PARTS_H

#include "strategies/replica.h"

enum { PL_FIGURES_MOST = 64 };

/* The plan for a batch, or NULL with an error. */
const pl_replica_plan_t *pl_replica_plan(const pl_replica_t *r, pl_stage_t stage,
                                         int64_t count, bool accumulate, pl_error_t *err);

/* The plan of a kind that there is one of, or NULL. */
const pl_replica_plan_t *pl_replica_plan_of(const pl_replica_t *r, pl_plan_kind_t kind);

/* Whether there is state that steps change, and so a copy of it in PL_REGION_KEPT. */
bool pl_replica_keeps_state(const pl_replica_t *r);

/* Before the first step, and at the end. */
struct pl_rounds *pl_rounds_new(pl_error_t *err);
void pl_rounds_free(struct pl_rounds *rounds);

#endif
