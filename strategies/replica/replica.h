/* replica.h - a whole copy of the module on one device: its graphs, plans, weights and
 * steps
 *
 * What every strategy that keeps the whole model on each rank shares: it describes the
 * module's objectives, has them compiled, starts, trains, reads and replaces the
 * weights. A pl_replica_t is the first member of the strategy's own struct, so that
 * it makes calls in the strategy's name. */
#ifndef PL_STRATEGIES_REPLICA_H
#define PL_STRATEGIES_REPLICA_H

#include "runtime/payload.h"
#include "tensor/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A plan for each size of batches; gradients are set or, from the second micro-batch
 * of a step on, added. */
enum {
    PL_MANUAL_PLANS = 32,
    PL_PLANS_MAX = (2 * PL_OBJECTIVES + 1) * PL_SIZES_MAX + 3 * PL_OBJECTIVES + 1
                   + PL_PREDICT + PL_MANUAL_PLANS
};

typedef enum pl_plan_kind {
    PL_PLAN_BATCH,
    PL_PLAN_OPTIMIZER,
    PL_PLAN_RESTORE,                 /* restores the state of the newest optimizer step */
    /* What a batch without samples gives: zeros; nothing where gradients are added. */
    PL_PLAN_EMPTY,
    PL_PLAN_OWN,                                /* of the strategy, see pl_sync_hooks_t */
} pl_plan_kind_t;

typedef struct pl_replica_plan {
    pl_plan_kind_t kind;
    pl_stage_t stage;
    /* Objective of the module, in training; number of a strategy's own plan. */
    int objective;
    pl_batch_size_t size;
    bool accumulate;
    bool compiled;
    uint32_t number;                                       /* that the accelerator gave */
    uint32_t hash;                                         /* of its graph */
    pl_fetch_t *fetch;                                     /* [fetch_count] */
    pl_custom_metric_t *custom;                            /* by fetch->custom */
    int fetch_count;
    pl_shape_t output_shape[PL_FIELDS];                  /* of output fetches, in order */
    bool output_is_int[PL_FIELDS];                       /* int32; else float32 */
} pl_replica_plan_t;

/* A piece of PL_REGION_COLLECTIVE on which ranks synchronize in the middle of forward
 * and backward. */
typedef struct pl_replica_collective {
    pl_graph_collective_t how;
    pl_running_t running;          /* of moments */
    int64_t from, count;           /* elements */
    int buckets;                   /* buckets of the gradients that are there before it */
    bool evaluates, is_backward;
} pl_replica_collective_t;

/* Those of an objective, or of a stage that evaluates, in the order of all ranks. */
typedef struct pl_replica_collectives {
    pl_replica_collective_t *of;                            /* [count] */
    int count;
    bool is_found;                                          /* in some plan */
} pl_replica_collectives_t;

/* The user's override of the learning rate: a factor, and a rate that the factor is
 * computed from. */
typedef struct pl_replica_rate {
    double factor, aim;
    bool aims;
} pl_replica_rate_t;

/* Weights of an older version have no count. */
#define PL_STEPS_UNKNOWN UINT64_MAX

/* What schedules set: the sections of a run, in their order. */
typedef enum pl_schedule_kind {
    PL_SCHEDULE_RATE,
    PL_SCHEDULE_MOMENTUM,
    PL_SCHEDULE_DECAY,
    PL_SCHEDULES
} pl_schedule_kind_t;

/* One objective of the module. */
typedef struct pl_replica_objective {
    const pl_module_objective_t *table;       /* [the module's only one] */
    int64_t every;                            /* optimizer steps between two of its own */
    /* Optimizer steps that were made, without skipped ones; the same with steps in
     * flight  [PL_STEPS_UNKNOWN: as many as the run's] */
    uint64_t made, sent;
    struct pl_optimizer *optimizer;
    pl_instance_t schedule[PL_SCHEDULES];                   /* [the option is constant] */
    pl_replica_rate_t rate;
    pl_replica_collectives_t collectives;
} pl_replica_objective_t;

/* A place in a registered buffer: what a request of the collective reduces. */
typedef struct pl_reg_ptr {
    pl_reg_buffer_t *memory;
    uint64_t offset;                                        /* bytes */
} pl_reg_ptr_t;

/* Calls to the accelerator that together answer one call of the strategy. */
typedef struct pl_replica_calls {
    pl_call_t *waiting;
    int pending;
    pl_error_t failure;
} pl_replica_calls_t;

typedef struct pl_replica pl_replica_t;
struct pl_objective_state;

/* A strategy may split each batch into micro-shards, which are shared among the ranks:
 * each is replayed by itself, so that nothing depends on which rank has it. */
typedef struct pl_micro_sharding {
    uint32_t micro_shards;                                  /* [0: batches are whole] */
    uint32_t first, end;                                    /* this rank's */
} pl_micro_sharding_t;

/* A batch that is being evaluated. */
typedef struct pl_forward {
    struct pl_forward *next, **from;                        /* the pointer to it */
    pl_call_t *call;
    const pl_replica_plan_t *plan;
    const pl_batch_t *batch;                       /* kept by the call */
    int sent, back;                                /* replays: one for each micro-shard */
    int64_t samples;
    bool gathers;                                         /* ranks gather their results */
    bool waits;                      /* for its turn: it has in-graph collectives */
    int collectives_begun;           /* of them */
    bool done;                                            /* the following are there: */
    /* [metric_count]; with several ranks and micro-shards, for each micro-shard until
     * they are gathered */
    double *metrics;
    size_t metric_count;
    pl_outputs_t *outputs;                                  /* counted  [none] */
    pl_error_t failure;                                     /* instead of the results */
} pl_forward_t;

/* A rank's data of an optimizer step of one of the module's objectives. */
typedef struct pl_replica_sums {
    int objective;                                        /* of the module's objectives */
    uint64_t number;                                      /* of the optimizer step */
    uint32_t batch;                                       /* of its batches, from 0, */
    bool is_last;                                         /* it is the last */
    bool has_samples;
    double *metrics;                          /* [metric_count]  [the step was skipped] */
    size_t metric_count;
} pl_replica_sums_t;

/* What a strategy of several ranks does at their sync points. All ranks reach the
 * same sync points in the same order. */
typedef struct pl_sync_hooks {
    /* The model is described, but not the optimizer's graphs and the strategy's own:
     * sets r->registered, and may replace r->sync_hooks.  [no region is registered] */
    void (*described)(pl_replica_t *r);
    /* The graphs are described. Sets r->bulk and r->bucket, then calls
     * pl_replica_prepared(). */
    int (*prepare)(pl_replica_t *r, pl_error_t *err);
    /* When plans are compiled ahead: makes a call that compiles the sums of a
     * registered region; `how` takes its answers. */
    bool (*compile)(pl_replica_t *r, pl_region_t registered, pl_how_t how,
                    pl_error_t *err);
    /* The gradients of the first `buckets` buckets of the next step to reduce are
     * there; of a device whose gradients are registered, behind the fence, which is
     * borrowed.  0: a step begins.  [reduce() does all of them] */
    void (*ready)(pl_replica_t *r, int buckets, pl_fence_t *fence);
    /* The gradients of a step are there, in r->bulk: sums gradients and metrics over
     * all ranks, in place, then calls pl_replica_reduced(). Nothing else runs on the
     * replica until then. */
    int (*reduce)(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err);
    /* For a device that orders work on its own: reduce() comes as soon as forward and
     * backward are sent, and computed() when the metrics of that batch are on the
     * host, without metrics if it failed or did not run; reduce() is reported after
     * it.  [reduce() comes when gradients and metrics are there] */
    void (*computed)(pl_replica_t *r, const pl_replica_sums_t *sums);
    /* Gradients are registered, and each step is summed there: reduce() comes when
     * they are enqueued, with r->computed, and after the update before, so that it
     * comes on all ranks or on none. */
    bool gradients_stay;
    /* Forward and backward wait until this collective of all ranks is done, in the
     * order of these calls and those of ready(), or before the next gather() of a batch;
     * ends with pl_replica_collective_done().  [there are none] */
    int (*collective)(pl_replica_t *r, const pl_replica_collective_t *collective,
                      pl_error_t *err);
    /* reduce() comes after each batch of a step, with the metrics of that batch */
    bool per_batch;
    /* Forward and backward of a batch. `msg` is the message of a plain replay without
     * the plan. Ends with pl_replica_computed(); where gradients are registered,
     * pl_replica_enqueued() comes before that.  [a plain replay] */
    int (*compute)(pl_replica_t *r, const pl_replay_plan_t *msg,
                   struct pl_objective_state *of, pl_error_t *err);
    /* Evaluates a batch: called when that begins, and again when it is done. Gathers
     * in the order of the first calls, then calls pl_replica_gathered(). */
    int (*gather)(pl_replica_t *r, pl_forward_t *forward, pl_error_t *err);
    /* The optimizer step is done, or was skipped: does what follows it before anything
     * else runs, then calls pl_replica_reduced() once more. Where each step's
     * gradients stay on the device it comes when the update is enqueued, with
     * r->updated.  [nothing follows] */
    int (*stepped)(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err);
    /* Whether stepped() comes for the optimizer step of this number; if not, the next
     * work may run behind the update.  [for each] */
    bool (*follows)(const pl_replica_t *r, uint64_t number);
    /* Where parameters are registered and gradients have buckets: the parameters of
     * the first `buckets` buckets are updated behind the fence, which is borrowed;
     * stepped() comes later. [stepped() comes for all] */
    void (*updated)(pl_replica_t *r, int buckets, pl_fence_t *fence);
    /* Number of its own graphs, PL_MANUAL_PLANS at most, which pl_replica_replay()
     * runs; the model is complete when they are described.  [none] */
    int graphs;
    pl_graph_t *(*describe)(pl_replica_t *r, int k, pl_error_t *err);
    /* Regions of its own, for these graphs: the elements of PL_REGION_STRATEGY0 + k. 
     * They are not exported.  [none] */
    int64_t (*region)(const pl_replica_t *r, int k);
    /* Slots of its own, behind those of the optimizers: every whole export has them. */
    int slots;
    /* Piece k of the parameters that this rank updates and whose slots it has, in the
     * order of the slots; PL_GRAD_BUCKETS_MAX at most; false: there are no more.
     * [all] */
    bool (*partition)(const pl_replica_t *r, int k, int64_t *first, int64_t *count);
    /* With a partition: elements of PL_REGION_NORMS, the norms of blocks of the
     * gradients of all ranks before an update, at most. Then it has a graph of its
     * own for each of the module's objectives, pl_optimizer_norms(), and its graphs
     * are made again when parameters are frozen.  [0: gradients are whole] */
    int64_t norms;
    /* With a partition: slot k of all ranks, counted, which the strategy has gathered
     * for an export; NULL: it has not. */
    pl_floats_t *(*take_slot)(pl_replica_t *r, int k);
} pl_sync_hooks_t;

struct pl_replica {
    pl_job_t *job;                              /* counted */
    pl_batch_signature_t *signature;            /* counted */
    int64_t cache;                              /* elements of keys and values */
    double nominal;                             /* samples that gradients are scaled by */
    char *data_info;
    pl_address_t accelerator;
    const pl_sync_hooks_t *sync_hooks;                      /* [there is one rank] */
    uint32_t rank, ranks;                                   /* ranks 0: there is one */
    /* Name of the collective that sums, if that has its own order  [the canonical
     * tree] */
    const char *order;
    pl_micro_sharding_t micro;
    /* Regions that ranks move: their memory, counted  [none] */
    pl_reg_ptr_t bulk[PL_REGIONS];
    bool registered[PL_REGIONS];    /* the device registers it: its memory is in `bulk` */
    /* counted: of the newest forward and backward, and of the newest update that ranks
     * synchronize behind  [NULL] */
    pl_fence_t *computed, *updated;
    /* counted: of the newest operation of the ranks on the device, behind which later
     * work runs  [NULL] */
    pl_fence_t *reduced;
    /* Of a step, on this rank only: it does not synchronize any more  [code 0] */
    pl_error_t failure;
    double timings[PL_TIMINGS];          /* of this rank, since they were last reported */
    /* [ranks][PL_TIMINGS], since the last reply  [there is one rank, or nothing
     * reports them] */
    double *timings_by_rank;
    /* The begin of each bucket of the graphs that train: graph.h. */
    int64_t bucket[PL_GRAD_BUCKETS_MAX + 1];
    int bucket_count;                                     /* 0: no buckets are reported */
    /* Elements of a block for the norm of the gradients: pl_optimizer_t  [none] */
    int64_t norm_block;
    char blamed[96];      /* the rank with a value that is not finite: "rank 1: "  [""] */
    struct pl_graph **graph;  /* [PL_PLANS_MAX], until compiled */
    uint64_t first_hash;  /* of the first values */
    pl_instance_t precision, module;
    pl_instance_t averaging;                                /* [none] */
    pl_replica_objective_t objective[PL_OBJECTIVES];
    int objectives;                                         /* 0 if it does not train */
    bool accumulates, imports, validates_average;
    struct pl_model *model;
    char *reported;                  /* model info, in the reply to setup: messages.def */
    pl_replica_plan_t plan[PL_PLANS_MAX];
    int plan_count;

    struct pl_pipeline *pipeline;         /* training steps in flight: replica/train.h */
    pl_forward_t *forward;                /* batches being evaluated: replica/forward.c */
    pl_forward_t *turn;                   /* the one whose plan ranks wait in  [none] */
    pl_replica_collectives_t evaluated[PL_PREDICT + 1];     /* of stages */
    int64_t collective_elements;          /* of PL_REGION_COLLECTIVE, once allocated */

    pl_replica_calls_t calls;                       /* of setup, an export or an import */
    pl_replica_calls_t freezing;
    bool exports_whole;             /* the export under way has the optimizer's tensors */
    bool freezes_again;             /* freezes again when that is done */
    pl_floats_t *read[PL_REGIONS];  /* being exported */
    int gradients_of;               /* an objective: a program reads its gradients, or */
    const pl_weights_t *gradients;  /* sets them; kept by the call  [NULL: it reads] */
};

/* The base of such strategies: it takes all calls of the level except start, role and
 * process_dataloader. */
extern PL_API const pl_actor_ops_t pl_replica_strategy;

/* ---- for strategies that take some of its calls themselves: each answers the call,
 * later or now ---- */

/* setup: describes and compiles everything that the job's stage needs and writes the
 * first weights. */
PL_API int pl_replica_setup(void *self, pl_call_t *call, const pl_body_t *body,
                            pl_error_t *err);
/* export_weights and import_weights; whole: with the optimizer's tensors. An import that
 * gives lets the device keep the tensors' memory. */
PL_API int pl_replica_export(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err);
PL_API int pl_replica_import(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err);

/* train_batch: trains on a micro-batch and, when one is due, takes the optimizer step.
 * A step that is not finite changes nothing, and steps sent behind it wait for the
 * decision: it is reported as skipped and they run, or it fails, and they fail with
 * it. */
PL_API int pl_replica_train(void *self, pl_call_t *call, const pl_body_t *body,
                            pl_error_t *err);

/* ---- How sync points end ---- */

PL_API void pl_replica_prepared(pl_replica_t *r, const pl_error_t *failure);
/* Like the progress of an enqueued replay: the fence is behind all of it. */
PL_API void pl_replica_enqueued(pl_replica_t *r, struct pl_objective_state *of,
                                pl_object_t *fence);
/* Like the reply to a replay; skipped: it did not run; forward, and all of it:
 * seconds. */
PL_API void pl_replica_computed(pl_replica_t *r, struct pl_objective_state *of,
                                bool skipped, double forward, double seconds,
                                const pl_error_t *failure);
PL_API void pl_replica_collective_done(pl_replica_t *r, const pl_error_t *failure);
/* For the oldest step that waits for reduce() or stepped(). Ordered: later replays
 * run behind it, so the replica sends them. Reported: it is over, and its results are
 * on the host; halt: as in the reply to train_batch. Reduced: both at once. */
PL_API void pl_replica_ordered(pl_replica_t *r);
PL_API void pl_replica_reported(pl_replica_t *r, const pl_error_t *failure, bool halt);
PL_API void pl_replica_reduced(pl_replica_t *r, const pl_error_t *failure, bool halt);
PL_API void pl_replica_gathered(pl_replica_t *r, pl_forward_t *forward,
                                const pl_error_t *failure, bool halt);

/* Runs one of the strategy's own plans, of describe() in pl_sync_hooks_t. */
PL_API int pl_replica_replay(pl_replica_t *r, int k, const char *what, pl_how_t how,
                             pl_error_t *err);

/* Elements of the gradients' region; its type; the largest number of metrics of a
 * step, or of a stage that only evaluates. */
PL_API int64_t pl_replica_gradients(const pl_replica_t *r, pl_dtype_t *dtype);
PL_API size_t pl_replica_max_metrics(const pl_replica_t *r);
/* Piece k of the parameters that this rank updates and whose slots it keeps; *piece has
 * the one before. False: there are no more. */
struct pl_piece;
PL_API bool pl_replica_own_piece(const pl_replica_t *r, int k, struct pl_piece *piece);
/* Number of elements of all these pieces. */
PL_API int64_t pl_replica_partition(const pl_replica_t *r);
/* Neighbouring gradients of one of the module's objectives, from element *to on;
 * false: there are no more. */
PL_API bool pl_replica_range(const pl_replica_t *r, int objective, int64_t *from,
                             int64_t *to);

/* Samples of a batch in one plan, from `micro_shard` of this rank on; all of a batch
 * that is not split. */
PL_API int64_t pl_replica_piece(const pl_replica_t *r, const pl_batch_t *batch,
                                int micro_shard);
/* Sums metrics [micro-shards][count] of a split batch, where those of other ranks are
 * zeros, into the first. */
PL_API void pl_replica_fold(const pl_replica_t *r, double *metrics, size_t count);

/* Names of the metrics of a stage, as in the reply of metric_names; for pl_free(). */
char *pl_replica_names(const pl_replica_t *r, pl_stage_t stage, pl_error_t *err);

/* The ranks synchronize from here on: counts the time that this rank does not run
 * until they have. */
PL_API void pl_replica_waits(pl_replica_t *r);
PL_API void pl_replica_waited(pl_replica_t *r);

#ifdef __cplusplus
}
#endif

#endif
