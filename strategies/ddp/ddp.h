/* ddp.h - what the files of data parallel training share, and the base of strategies
 * whose ranks sum something else
 *
 * The struct of such a strategy begins with a pl_ddp_t, and its table names
 * pl_ddp_strategy as its base. Its own `start` sets `reduce_hooks`, or
 * `replica.sync_hooks` instead of pl_ddp_sync_hooks, and calls pl_ddp_start(). The
 * hooks replace the sums of a step's gradients; everything else stays. */
#ifndef PL_STRATEGIES_DDP_H
#define PL_STRATEGIES_DDP_H

#include "strategies/replica/replica.h"
#include "strategies/strategies.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A point at which ranks synchronize: all ranks reach the same ones in the same order. */
struct pl_ddp;

typedef struct pl_sync_point {
    struct pl_sync_point *next;
    /* Makes the collective's calls, with pl_ddp_call_…(); when all of them have ended,
     * end() processes their results.  [there are none] */
    int (*begin)(struct pl_ddp *ddp, struct pl_sync_point *point, pl_error_t *err);
    void (*end)(struct pl_ddp *ddp, struct pl_sync_point *point,
                const pl_error_t *failure);
    bool is_next;           /* insert it before sync points that some ranks may not have
                               reached: an equal one has just ended, on all ranks alike */
    bool is_within;         /* insert it before the first that is not ready: a batch that
                               is evaluated, which waits for it on all ranks alike */
    bool ready;             /* the data of this rank is there */
    bool on_device;         /* gradients of the step are summed
                               on the device; */
    bool is_computed;       /* so are the metrics */
    bool is_normed;         /* norms of blocks are on the way */
    pl_replica_sums_t sums;  /* of a step */
    pl_forward_t *forward;  /* of a batch */
    const pl_replica_collective_t *collective;  /* within a step */
    pl_call_t *call;        /* of a decision, an exchange */
    pl_exchange_t exchange;
    pl_messages_t messages;
    bool polls, objects;
    bool compares;                /* its message has names of metrics, which must be those
                                     of rank zero */
} pl_sync_point_t;

/* What a strategy built on this one does with a step. All run on the rank's thread:
 * leave long work to the accelerator. */
typedef struct pl_ddp_reduce_hooks {
    /* This rank's gradients are there. Has the collective move them, with
     * pl_ddp_sum_step() or pl_ddp_all_…_region() and, in the host's memory,
     * pl_ddp_sum_tail().  [pl_ddp_sum_step()] */
    int (*give)(struct pl_ddp *ddp, const pl_replica_sums_t *sums, pl_error_t *err);
    /* Has one of its own plans replayed behind the operations of give(), before
     * anything else runs; `how` takes the answers.  [none] */
    int (*combine)(struct pl_ddp *ddp, const pl_replica_sums_t *sums, pl_how_t how,
                   pl_error_t *err);
    /* The metrics of the step are there. Has the collective sum them in its way, and
     * takes the sums.  [they are in the tail] */
    int (*give_metrics)(struct pl_ddp *ddp, const pl_replica_sums_t *sums,
                        pl_error_t *err);
    void (*take_metrics)(struct pl_ddp *ddp, const pl_replica_sums_t *sums);
    /* Regions that ranks reduce besides gradients and state.  [none] */
    bool (*shares)(const struct pl_ddp *ddp, pl_region_t region);
    /* The regions have memory of their own, not next to the control buffer.  [one
     * operation sums gradients and tail, as far as that is possible] */
    bool separates;
    /* Gradients, and the regions that it shares, may stay in the memory of devices:
     * the host does not read or write them.  [they are in the host's] */
    bool gradients_stay;
    /* give() and combine() also handle the state that ranks agree on */
    bool keeps_state;
    /* All operations are over, or have failed; ends, now or later, with
     * pl_replica_reduced(). [at once, or pl_replica_reported() where gradients stay on
     * devices] */
    void (*take)(struct pl_ddp *ddp, const pl_replica_sums_t *sums,
                 const pl_error_t *failure, bool halt);
} pl_ddp_reduce_hooks_t;

/* Places in the control buffer, in bytes: data that the host writes, has summed, and
 * reads. The regions that ranks move are the replica's `bulk`. */
typedef struct pl_ddp_places {
    size_t tail, moments, metrics, outputs, end;
    /* Memory for parameters, where gradients stay on devices and each rank has a
     * partition. */
    size_t scratch;
} pl_ddp_places_t;

/* The fences of the first `count` buckets, counted. */
typedef struct pl_ddp_fences {
    pl_fence_t *fence[PL_GRAD_BUCKETS_MAX];
    int count;
} pl_ddp_fences_t;

/* Neighbouring parameters of one of the module's objectives: a rank gets the sums of
 * its chunk of their gradients only. */
typedef struct pl_ddp_range {
    int64_t first, end;
    int objective;
} pl_ddp_range_t;

typedef struct pl_ddp {
    pl_replica_t replica;                                   /* first: see replica.h */
    pl_choice_t collective;                                 /* option: PL_DDP_OPTIONS */
    const pl_ddp_reduce_hooks_t *reduce_hooks;              /* [its own] */
    pl_address_t collective_actor;
    pl_call_t *joining,
        *asked;           /* the call of join; a call of role that waits for it  [NULL] */
    bool joined;
    int join_ms;                                    /* time limit for the ranks to join */
    pl_reg_buffer_t *decided;                       /* counted */
    pl_reg_buffer_t *exchanged;                     /* counted  [not allocated yet] */
    pl_sync_point_t exchange;                       /* waits for that buffer */
    pl_reg_buffer_t *control;                       /* counted  [not allocated yet] */
    pl_ddp_places_t at;
    size_t bulk_bytes;              /* of the regions, if they have memory of their own */
    pl_dtype_t dtype;               /* of gradients and tail */
    pl_sync_point_t *first, **last, *spare;
    pl_sync_point_t *under_way;
    pl_replica_sums_t ended;                 /* the step of the newest synchronization, */
    bool halts;                              /* and its halt */
    double bucket_mb;                        /* options */
    bool drop_last, replace_sampler;
    /* Kind of memory that the collective moves besides the host's  [NULL] */
    const char *device_kind;
    bool on_device;                               /* gradients stay there: ddp/device.c */
    bool agrees;                                  /* there is state that ranks agree on */
    /* zero1.c: these ranges, or one for each bucket */
    pl_ddp_range_t scatter[PL_GRAD_BUCKETS_MAX];
    int scatters;                     /* [0: each rank gets all sums] */
    bool shares;                      /* their memory is registered with the collective */
    pl_ddp_fences_t computed,
        updated;    /* gradients of the coming step; parameters of the update under way */
    pl_fence_t *after;  /* the next operand is there behind this fence */
    pl_sync_point_t *ordering;  /* its operations are not in order yet; */
    int enqueuing;
    bool state_given, norms_given;  /* its replays of that kind are in order */
    int called;              /* buckets of the coming step that are being summed */
    int pending;             /* calls to the collective for `under_way`; for `ordering` */
    bool announced;          /* rank zero has an announcement */
    pl_error_t failure;      /* of a sync point: no more follow  [code 0] */
} pl_ddp_t;

/* ---- ddp.c: for strategies that are built upon it ---- */

/* Options of every such strategy, for the table of a struct that begins with a
 * pl_ddp_t. */
#define PL_DDP_OPTIONS \
    PL_CHOICE(pl_ddp_t, collective, "\"auto\"", "collective", \
              "collective that moves data among the ranks"), \
        PL_BOOL(pl_ddp_t, drop_last, "false", \
                "training leaves out samples at the end of an epoch that not all ranks " \
                "have"), \
        PL_BOOL(pl_ddp_t, replace_sampler, "true", \
                "each rank reads its partition of the samples; false: all samples of " \
                "its own data set")

/* Options of those that sum gradients as ddp does. */
#define PL_DDP_BUCKETS \
    PL_FLOAT(pl_ddp_t, bucket_mb, "25", "(0..", \
             "size of a bucket in MiB; gradients are summed bucket by bucket, as soon " \
             "as backward has computed them")

PL_API int pl_ddp_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err);

/* ---- ddp/sync_points.c: sync points, one after the other ---- */

/* Adds a sync point like this one to the queue; NULL: PL_ENOMEM, or the error of an
 * earlier one. */
pl_sync_point_t *pl_ddp_sync_point_new(pl_ddp_t *ddp, const pl_sync_point_t *like,
                                       pl_error_t *err);
/* Begins the first sync point if it is ready. */
void pl_ddp_advance(pl_ddp_t *ddp);
/* Adds a sync point like this one, which is ready. */
int pl_ddp_sync(pl_ddp_t *ddp, const pl_sync_point_t *like, pl_error_t *err);
/* Have the collective sum elements of the host's memory, or gather them in chunks that
 * begin at multiples of `step` elements  [PL_CHUNK_STEP]. */
PL_API int pl_ddp_call_sum(pl_ddp_t *ddp, pl_reg_ptr_t at, size_t count, pl_dtype_t dtype,
                           pl_error_t *err);
PL_API int pl_ddp_call_gather(pl_ddp_t *ddp, pl_reg_ptr_t at, size_t count, int64_t step,
                              pl_dtype_t dtype, pl_error_t *err);
/* Has the collective broadcast bytes of a rank. */
int pl_ddp_call_broadcast(pl_ddp_t *ddp, pl_reg_ptr_t at, size_t bytes, uint32_t root,
                          pl_error_t *err);
void pl_ddp_sync_points_release(pl_ddp_t *ddp);

/* ---- ddp/exchange.c ---- */

/* The handler of exchange. */
int pl_ddp_exchange(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);

/* ---- ddp/memory.c: the control buffer, and regions of the device ---- */

int pl_ddp_prepare(pl_replica_t *r, pl_error_t *err);
void pl_ddp_described(pl_replica_t *r);
/* A place in the control buffer; an element of a region of `bulk`. */
PL_API pl_reg_ptr_t pl_ddp_control_buffer(const pl_ddp_t *ddp, size_t place);
PL_API pl_reg_ptr_t pl_ddp_region(const pl_ddp_t *ddp, pl_region_t region,
                                  size_t element);

/* Element k, of ddp->dtype. */
double pl_ddp_element(const pl_ddp_t *ddp, pl_reg_ptr_t at, size_t k);
void pl_ddp_element_set(const pl_ddp_t *ddp, pl_reg_ptr_t at, size_t k, double value);

/* For a prediction's batch: rows of all ranks; elements of a row of an output; number
 * of outputs, 0 for other plans. */
size_t pl_ddp_rows_max(const pl_ddp_t *ddp);
size_t pl_ddp_output_row_elements(const pl_replica_plan_t *plan, int k);
int pl_ddp_output_count(const pl_replica_plan_t *plan);

/* ---- ddp/sums.c: steps and batches ---- */

/* Elements of a step's tail. */
size_t pl_ddp_tail_end(const pl_ddp_t *ddp);

extern const pl_sync_hooks_t pl_ddp_sync_hooks;

/* The gradients' region, of ddp->dtype: all parameters, then loss and weight of each
 * objective. */
PL_API void *pl_ddp_gradients(const pl_ddp_t *ddp);
/* Memory for the metrics of a batch, for each micro-shard if it is split. */
double *pl_ddp_metrics(const pl_ddp_t *ddp);
/* Have the collective sum or gather neighbouring elements of a region, wherever it
 * lies. */
PL_API int pl_ddp_all_reduce_region(pl_ddp_t *ddp, pl_region_t region, size_t from,
                                    size_t count, pl_error_t *err);
PL_API int pl_ddp_all_gather_region(pl_ddp_t *ddp, pl_region_t region, size_t count,
                                    pl_error_t *err);
/* Sums a step: its gradients, its loss and the tail; or only the last two. */
PL_API int pl_ddp_sum_step(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_error_t *err);
PL_API int pl_ddp_sum_tail(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_error_t *err);
/* Appends a sync point for a step, which is not ready. NULL: PL_ENOMEM, or the error
 * of an earlier sync point. */
pl_sync_point_t *pl_ddp_step_sync_point(pl_ddp_t *ddp, const pl_replica_sums_t *sums,
                                        pl_error_t *err);
int pl_ddp_gather(pl_replica_t *r, pl_forward_t *forward, pl_error_t *err);

/* ---- ddp/device.c: gradients that stay in the memory of devices ---- */

/* Decides whether gradients can stay on devices, and the elements of a block of norms,
 * whether they stay there or pass through the host; 0: gradients are the host's. */
void pl_ddp_device_choose(pl_ddp_t *ddp);
bool pl_ddp_device_compile(pl_replica_t *r, pl_region_t registered, pl_how_t how,
                           pl_error_t *err);
extern const pl_sync_hooks_t pl_ddp_device_sync_hooks;
/* The same, with state that ranks agree on. */
extern const pl_sync_hooks_t pl_ddp_state_sync_hooks;

/* Reduces a step whose metrics are there, wherever its gradients lie. */
int pl_ddp_reduce(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err);
/* Sum or gather neighbouring elements of a region, behind ddp->after; chunks begin at
 * multiples of `step` elements  [PL_CHUNK_STEP]. */
int pl_ddp_device_sum(pl_ddp_t *ddp, pl_region_t region, size_t from, size_t count,
                      pl_error_t *err);
int pl_ddp_device_gather(pl_ddp_t *ddp, pl_region_t region, size_t from, size_t count,
                         int64_t step, pl_error_t *err);
/* Sums a range in the same way, so that this rank gets its chunk, if the range has
 * trained parameters. */
int pl_ddp_device_scatter(pl_ddp_t *ddp, const pl_ddp_range_t *range, pl_error_t *err);
/* An operation is in order, or has failed; after the last one the replica continues. */
void pl_ddp_device_enqueued(pl_ddp_t *ddp, const pl_error_t *failure);
/* Takes answers of a replay that the host does not wait for: a failure ends what
 * follows. */
void pl_ddp_device_replayed(void *self, const pl_answer_t *answer);
/* Gathers the parameters of an objective behind their update: for updated() and
 * stepped(). */
void pl_ddp_device_updated(pl_replica_t *r, int buckets, pl_fence_t *fence);
int pl_ddp_device_gather_params(pl_ddp_t *ddp, int objective, pl_error_t *err);
void pl_ddp_device_release(pl_ddp_t *ddp);

/* ---- ddp/state.c: what ranks agree on, there ---- */

enum { PL_DDP_STATE_GRAPHS = 2 };
/* For graphs of a strategy with its own give(): how many ranks had samples; the
 * summand of this rank for a tensor; the result. They begin at a step scalar: whether
 * this rank has samples, whether it is the first. */
enum { PL_DDP_STATE_SCALARS = 2 };
void pl_ddp_state_give_present(pl_graph_t *g, int scalar);
struct pl_tensor_info;
pl_node_t pl_ddp_state_share(const struct pl_tensor_info *t, int scalar, pl_graph_t *g);
pl_node_t pl_ddp_state_mean(const struct pl_tensor_info *t, pl_graph_t *g);
/* Sums both, as pl_ddp_device_sum() does. */
int pl_ddp_state_sum(pl_ddp_t *ddp, pl_error_t *err);
/* The graphs of norms follow these, or are the only ones: one for each of the module's
 * objectives. */
pl_graph_t *pl_ddp_state_describe(pl_replica_t *r, int k, pl_error_t *err);
int64_t pl_ddp_state_region(const pl_replica_t *r, int k);
/* Has this rank's state summed, which counts in `enqueuing`; then divides the sums. */
int pl_ddp_state_give(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_error_t *err);
int pl_ddp_state_take(pl_ddp_t *ddp, pl_error_t *err);
/* Puts the norms of this rank's blocks of a step's gradients among those of all ranks;
 * counts in `enqueuing`. */
int pl_ddp_norms_give(pl_ddp_t *ddp, int objective, pl_error_t *err);

/* ---- ddp/graph_collectives.c: within a step ---- */

/* Bytes of the moments of all ranks, at most. */
size_t pl_ddp_moments(const pl_ddp_t *ddp);
int pl_ddp_collective(pl_replica_t *r, const pl_replica_collective_t *collective,
                      pl_error_t *err);

/* ---- ddp/decide.c: messages of rank zero ---- */

enum { PL_DDP_DECIDED = 1 << 18 };                          /* bytes */

/* Answers a call with the messages of rank 0; with `compares`, a call for the names of
 * metrics, which must be the same on all ranks and are the reply among the messages. */
int pl_ddp_decide(pl_ddp_t *ddp, pl_call_t *call, const pl_decide_t *msg, bool compares,
                  pl_error_t *err);

#ifdef __cplusplus
}
#endif

#endif
