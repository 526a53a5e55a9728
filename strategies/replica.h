/* replica.h - a whole copy of the module on one device: its graphs, plans and weights
 *
 * What every strategy that keeps the whole model on each rank shares: it describes the module's steps, has them
 * compiled, starts, reads and replaces the weights.  A pl_replica_t is the first member of the strategy's own struct, so
 * that it makes calls in the strategy's name. */
#ifndef PL_STRATEGIES_REPLICA_H
#define PL_STRATEGIES_REPLICA_H

#include "runtime/cargo.h"
#include "strategies/optimizers/optimizer.h"
#include "tensor/model.h"

/* Batches come in two sizes, full and the ragged last; gradients are set or, from the second micro-batch of a step on,
 * added to. */
enum { PL_SIZES = 2, PL_PLANS_MOST = 8 };

typedef struct pl_replica_plan {
    pl_stage_t stage;
    int64_t batch_size;
    bool accumulate;
    bool optimizer;
    uint32_t number;                                        /* the accelerator's */
    pl_fetch_t *fetch;                                      /* [fetch_count] */
    int fetch_count;
    pl_shape_t output_shape[PL_FIELDS];                     /* of output fetches, in order */
    bool output_is_int[PL_FIELDS];                          /* int32; else float32 */
} pl_replica_plan_t;

typedef struct pl_replica {
    pl_job_t *job;                                          /* counted */
    pl_layout_t *layout;                                    /* counted */
    char *facts;
    pl_address_t accelerator;
    pl_instance_t module, optimizer, scheduler;
    pl_model_t *model;
    pl_replica_plan_t plan[PL_PLANS_MOST];
    int plan_count;

    /* Calls under way that together answer one call of the strategy's. */
    pl_call_t *waiting;
    int pending;
    pl_error_t failure;
    pl_floats_t *read[2];                                   /* parameters, state: being exported */
} pl_replica_t;

/* Describes and compiles all that the job's stage needs and writes the first weights; answers `call` (setup) when all
 * is there. */
int pl_replica_setup(pl_replica_t *r, pl_call_t *call, const pl_setup_t *setup, pl_error_t *err);
int pl_replica_export(pl_replica_t *r, pl_call_t *call, pl_error_t *err);
int pl_replica_import(pl_replica_t *r, pl_call_t *call, const pl_weights_t *weights, pl_error_t *err);
void pl_replica_release(pl_replica_t *r);

/* The plan for a batch, or NULL with an error. */
const pl_replica_plan_t *pl_replica_plan(const pl_replica_t *r, pl_stage_t stage, int64_t count, bool accumulate,
                                         pl_error_t *err);
const pl_replica_plan_t *pl_replica_optimizer_plan(const pl_replica_t *r);

/* The learning rate of a step, from 1. */
double pl_replica_lr(const pl_replica_t *r, uint64_t step, uint64_t total_steps, double factor);

/* Memory for a plan's outputs, or NULL when it has none; *failed tells that from no memory. */
pl_outputs_t *pl_replica_outputs(const pl_replica_plan_t *plan, bool *failed, pl_error_t *err);
/* The accelerator has filled them: integers become float32, as all outputs are.  NULL is fine. */
void pl_replica_outputs_filled(const pl_replica_plan_t *plan, pl_outputs_t *outputs);

/* Names of a stage's figures, one a line, those wanted at steps with a '*' behind; pl_free() frees it. */
char *pl_replica_figure_names(const pl_replica_t *r, pl_stage_t stage, pl_error_t *err);

/* The first tensor with an element that is not finite in a copy of the gradients, or NULL. */
const pl_tensor_info_t *pl_replica_first_bad(const pl_replica_t *r, const pl_floats_t *grads);

#endif
