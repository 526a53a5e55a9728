/* replica.h - a whole copy of the module on one device: its graphs, plans and weights
 *
 * What every strategy that keeps the whole model on each rank shares: it describes the
 * module's steps, has them compiled, starts, reads and replaces the weights.  A
 * pl_replica_t is the first member of the strategy's own struct, so that it makes calls
 * in the strategy's name. */
#ifndef PL_STRATEGIES_REPLICA_H
#define PL_STRATEGIES_REPLICA_H

#include "runtime/cargo.h"
#include "tensor/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Batches come in two sizes, full and the ragged last; gradients are set or, from the
 * second micro-batch of a step on, added to. */
enum { PL_SIZES = 2, PL_PLANS_MOST = 8 };

typedef struct pl_replica_plan {
    pl_stage_t stage;
    int64_t batch_size;
    bool accumulate;
    bool optimizer;
    uint32_t number;                                        /* the accelerator's */
    pl_fetch_t *fetch;                                      /* [fetch_count] */
    int fetch_count;
    pl_shape_t output_shape[PL_FIELDS];                  /* of output fetches, in order */
    bool output_is_int[PL_FIELDS];                       /* int32; else float32 */
} pl_replica_plan_t;

typedef struct pl_replica {
    pl_job_t *job;                                          /* counted */
    pl_layout_t *layout;                                    /* counted */
    char *facts;
    pl_address_t accelerator;
    pl_instance_t module, optimizer, scheduler;
    bool does_io;
    struct pl_model *model;
    pl_replica_plan_t plan[PL_PLANS_MOST];
    int plan_count;

    /* Calls under way that together answer one call of the strategy's. */
    pl_call_t *waiting;
    int pending;
    pl_error_t failure;
    pl_floats_t *read[PL_REGIONS];                          /* being exported */
} pl_replica_t;

/* Describes and compiles all that the job's stage needs and writes the first weights;
 * answers `call` (setup) when all is there.  does_io: whether this rank writes files, as
 * the strategy has it. */
PL_API int pl_replica_setup(pl_replica_t *r, pl_call_t *call, const pl_setup_t *setup,
                            bool does_io, pl_error_t *err);
/* Answer export_weights and import_weights; whole: with the optimizer's tensors. */
PL_API int pl_replica_export(pl_replica_t *r, pl_call_t *call, bool whole,
                             pl_error_t *err);
PL_API int pl_replica_import(pl_replica_t *r, pl_call_t *call,
                             const pl_weights_t *weights, bool whole, pl_error_t *err);
PL_API void pl_replica_release(pl_replica_t *r);

/* The plan for a batch, or NULL with an error. */
PL_API const pl_replica_plan_t *pl_replica_plan(const pl_replica_t *r, pl_stage_t stage,
                                                int64_t count, bool accumulate,
                                                pl_error_t *err);

/* The learning rate of a step, from 1. */
PL_API double pl_replica_lr(const pl_replica_t *r, uint64_t step, uint64_t total_steps,
                            double factor);

/* ---- Calls of the accelerator, in the strategy's name: as pl_call() ---- */

typedef struct pl_replica_step {
    pl_batch_t *batch;
    uint64_t number;                      /* the optimizer step it is for, from 1 */
    uint32_t shard;                       /* micro-batch within the step, from 0 */
    bool accumulate;                      /* gradients are added to what is there */
    bool again;                           /* only to look: also after a guard, which stops
                                             all else */
} pl_replica_step_t;

/* Answers: replay_plan; figures in the order of the figure names. */
PL_API uint64_t pl_replica_forward_backward(pl_replica_t *r,
                                            const pl_replica_step_t *step, pl_how_t how,
                                            pl_error_t *err);
/* Answers: replay_plan; figures are the loss and its weight, the gradient's norm before
 * clipping and 1. */
PL_API uint64_t pl_replica_optimizer_step(pl_replica_t *r, uint64_t number, double lr,
                                          pl_how_t how, pl_error_t *err);
/* Answers: replay_plan; outputs are filled, unless they are NULL. */
PL_API uint64_t pl_replica_forward(pl_replica_t *r, const pl_replica_plan_t *plan,
                                   pl_batch_t *batch, pl_outputs_t *outputs, pl_how_t how,
                                   pl_error_t *err);
/* Answers: read_region. */
PL_API uint64_t pl_replica_read_gradients(pl_replica_t *r, pl_how_t how, pl_error_t *err);

/* ---- What comes of them ---- */

/* Memory for a plan's outputs, or NULL when it has none; *failed tells that from no
 * memory. */
PL_API pl_outputs_t *pl_replica_outputs(const pl_replica_plan_t *plan, bool *failed,
                                        pl_error_t *err);
/* The accelerator has filled them: integers become float32, as all outputs are.  NULL is
 * fine. */
PL_API void pl_replica_outputs_filled(const pl_replica_plan_t *plan,
                                      pl_outputs_t *outputs);

/* Names of a stage's figures, one a line, those wanted at steps with a '*' behind;
 * pl_text_free() frees it. */
PL_API char *pl_replica_figure_names(const pl_replica_t *r, pl_stage_t stage,
                                     pl_error_t *err);

/* The name of the first tensor with an element that is not finite in a copy of the
 * gradients, or NULL. */
PL_API const char *pl_replica_first_bad(const pl_replica_t *r, const pl_floats_t *grads);

#ifdef __cplusplus
}
#endif

#endif
