/* replica_parts.h - what the files of a replica share among themselves */
#ifndef PL_STRATEGIES_REPLICA_PARTS_H
#define PL_STRATEGIES_REPLICA_PARTS_H

#include <jansson.h>

#include "strategies/replica.h"

/* The plan for a batch, or NULL with an error. */
const pl_replica_plan_t *pl_replica_plan(const pl_replica_t *r, pl_stage_t stage,
                                         const pl_batch_t *batch, bool accumulate,
                                         pl_error_t *err);

/* The plan of a kind that there is one of, or NULL. */
const pl_replica_plan_t *pl_replica_plan_of(const pl_replica_t *r, pl_plan_kind_t kind);

/* Whether there is state that steps change, and so a copy of it in PL_REGION_KEPT. */
bool pl_replica_keeps_state(const pl_replica_t *r);

/* How the model is kept and computed with, from trainer.precision. */
int pl_replica_bind_precision(pl_replica_t *r, pl_error_t *err);
/* The factor of the loss, of a precision that scales it: first values of its region; into
 * the object of what a whole export keeps, and from it.  Calls of replica_calls.h. */
int pl_replica_begin_scaling(pl_replica_t *r, pl_on_answer_t on_answer, pl_error_t *err);
int pl_replica_keep_scaling(const pl_floats_t *floats, json_t *into, pl_error_t *err);
int pl_replica_restore_scaling(pl_replica_t *r, const json_t *from,
                               pl_on_answer_t on_answer, pl_error_t *err);

/* What the learning rate of a step is, as a share of the optimizer's. */
double pl_replica_lr_factor(const pl_replica_t *r, const pl_train_batch_t *msg);

/* What the schedule has kept, in the same way. */
int pl_replica_keep_schedule(const pl_replica_t *r, json_t *into, pl_error_t *err);
int pl_replica_restore_schedule(pl_replica_t *r, const json_t *from, pl_error_t *err);

/* How much of the weights after a step their average takes up. */
double pl_replica_average_share(const pl_replica_t *r, const pl_train_batch_t *msg);

/* The region of the device that holds what an export calls by another: those who use the
 * weights get the average, where there is one. */
pl_region_t pl_replica_region_of(const pl_replica_t *r, int region);

/* Before the first step, and at the end. */
struct pl_rounds *pl_rounds_new(pl_error_t *err);
void pl_rounds_free(struct pl_rounds *rounds);

#endif
