/* accelerator.h - the role of an accelerator: one device, its memory and its compiled
 * plans
 *
 * The table below is all a new device has to fill in.  accelerators/actor.c is the actor
 * that owns a device and turns messages into calls of this table; nothing above ever
 * touches device memory.  Every function runs on the accelerator's own thread. */
#ifndef PL_ACCELERATOR_H
#define PL_ACCELERATOR_H

#include "paceline.h"
#include "runtime/fence.h"
#include "tensor/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a device compiled from a graph; its own struct.  Borrows nothing from the
 * graph. */
typedef struct pl_plan pl_plan_t;

/* A graph that is compiled in the background.  Owned by the actor, alive until done. */
typedef struct pl_compiling {
    pl_plan_t *plan;                                        /* out */
    /* Reports how many of its pieces are compiled. Called on the accelerator's thread; a
     * device need not call it  [NULL: not reported]. */
    void (*progress)(struct pl_compiling *c, int done, int all);
    /* To be called once, on the accelerator's thread, from collect(); err NULL when it
     * went well. */
    void (*done)(struct pl_compiling *c, const pl_error_t *err);
} pl_compiling_t;

/* A kernel or a copy of a replay, by the device's clock. */
typedef struct pl_device_span {
    const char *what;               /* kind of launch: "layer_norm" */
    const char *path;               /* of what it computes: "h.0.ln_1"  [""] */
    int stream;                     /* 0: it computes, 1: to the device, 2: to the host */
    double begin, end;              /* s since the replay began */
} pl_device_span_t;

#define PL_STEP_SCALARS 67

/* One replay: what changes from step to step, and what comes back.  Owned by the actor,
 * alive until done. */
typedef struct pl_replay {
    double scalar[PL_STEP_SCALARS];  /* read by PL_FROM_SCALAR values */
    uint64_t seed, step;            /* random numbers are pure functions of seed, step,
                                       micro_batch, */
    uint64_t micro_batch;           /* an operator's stream and the element */
    const void *input[PL_FIELDS];   /* host memory, [batch, …] each; read before done */
    double *metrics;                /* the sums of all metrics, in order of fetch: of a
                                       pair its value and weight, else the value's
                                       elements  [not wanted] */
    void *output[PL_FIELDS];        /* host memory for output fetches, in their order
                                       [not wanted] */
    bool fail_fast;                 /* does not run and ends skipped after an earlier
                                       fail_fast replay was skipped or failed: so what
                                       was sent behind that changes nothing */
    bool restart;                   /* ends that: it and later replays run again */
    bool continues;                 /* the plan's last replay waits at a collective, and
                                       this one is the rest of it; nothing was replayed
                                       in between */
    int collective;                 /* out: it waits at that one of the graph's, from 1:
                                       nothing is handed out yet  [0: it is over] */
    bool skipped;                   /* out: a guard was not finite, the rest did not
                                       happen */
    double forward;                 /* out: s of it until the first step of backward
                                       [left at 0] */
    /* To be called as soon as the first so many of the graph's buckets are there, to
     * stay as they are: they are reduced meanwhile.  From inside replay() or later, on
     * the accelerator's thread  [not reported; need not be called].  Where gradients
     * are registered they are there behind the fence, which is borrowed, whether the
     * replay runs or is stopped  [NULL: they are there]. */
    void (*ready)(struct pl_replay *replay, int buckets, pl_fence_t *fence);
    /* Of a device that has registered a region: to be called from inside replay(),
     * once all of it is enqueued.  The fence, which is borrowed, stands for it and for
     * all before it [not wanted]. */
    void (*ordered)(struct pl_replay *replay, pl_fence_t *fence);
    /* To be called before done() with all that took time on the device, valid during the
     * call; a replay that is measured may take longer  [not wanted; need not be
     * called]. */
    void (*measured)(struct pl_replay *replay, const pl_device_span_t *span, int count);
    /* To be called once, on the accelerator's thread, from inside replay() or later; err
     * NULL when it went well. */
    void (*done)(struct pl_replay *replay, const pl_error_t *err);
} pl_replay_t;

/* Elements of a region on their way to the host.  Owned by the actor, alive until
 * done. */
typedef struct pl_transfer {
    pl_region_t region;
    size_t offset, count;
    void *host;
    /* To be called once, on the accelerator's thread, from inside read_later() or
     * collect(). */
    void (*done)(struct pl_transfer *t, const pl_error_t *err);
} pl_transfer_t;

/* What a plan consists of, for people. */
enum { PL_PLAN_KINDS = 64 };
typedef struct pl_plan_facts {
    struct {
        char name[24];                             /* of a kind of launch: "layer_norm" */
        int launches;                              /* of each replay */
        double bytes;                              /* that they read and write, at most */
    } kind[PL_PLAN_KINDS];
    int kinds;
    size_t arena;                                   /* bytes for the values of a replay */
    int pieces;                                     /* that were compiled */
    int from_cache;                                 /* of them: found there */
    int stored;                                     /* of them: there for later runs */
    double seconds;                                 /* that threads compiled them */
} pl_plan_facts_t;

typedef struct pl_device_info {
    int ranks;                                    /* in: that share this machine's
                                                     processors */
    char model[64];                               /* "AMD EPYC, avx512" */
    int devices;                                  /* how many there are on this machine */
    int threads;                                  /* in: that compute unless its options
                                                     say otherwise  [0: its choice]; out:
                                                     that do */
    size_t memory;                                /* bytes, 0 when unknown */
    char library[64];                             /* "oneDNN 2.6.3" */
    unsigned emulated;                            /* number formats that it only imitates:
                                                     1 << pl_dtype_t each */
    bool computes;                                /* in: this thread will compute with
                                                     it; false: it only asks what it is */
    bool compiles;                                /* in: plans are compiled, and none is
                                                     replayed */
    int local_rank;                               /* in: this rank's among those of this
                                                     machine */
    int device;                                   /* in: the number of the device in
                                                     trainer.devices  [-1: no list was
                                                     given, local_rank selects it]; out:
                                                     the number of the one that it opened
                                                     [-1: its devices have no numbers] */
    size_t memory_free;                           /* bytes, 0 when unknown */
    unsigned char uuid[16];                       /* of the device, which no other rank
                                                     may have opened  [zeros: unknown, or
                                                     any may] */
} pl_device_info_t;

typedef struct pl_accelerator_ops {
    PL_COMPONENT;
    int (*open)(void *self, pl_device_info_t *info, pl_error_t *err);
    void (*close)(void *self);         /* frees regions and plans too; also after a failed
                                          open */
    /* (Re)allocates a region of n elements of a floating-point type, zeroed. */
    int (*region)(void *self, pl_region_t region, pl_dtype_t dtype, size_t n,
                  pl_error_t *err);
    /* The same in the host's memory, 64-byte aligned, its elements as read() gives them:
     * it has what a replay left when that is done, and a replay finds there what the host
     * has written before it was started.  It stays until the region is another or
     * close().  [it cannot be one of several ranks] */
    int (*borrow)(void *self, pl_region_t region, pl_dtype_t dtype, size_t n, void *host,
                  pl_error_t *err);
    /* Kind of the device's memory, such as "cuda", of a device that registers it
     * [NULL: it does not] */
    const char *memory_kind;
    /* The memory of a region that is there, in its own type, counted: others read and
     * write it too, in an order that fences give.  It is the region's, and there as long
     * as that  [where memory_kind is] */
    int (*register_region)(void *self, pl_region_t region, pl_reg_buffer_t **buffer,
                           pl_error_t *err);
    /* What is called from now on finds what the fence stands for done  [where memory_kind
     * is] */
    int (*join)(void *self, pl_fence_t *fence, pl_error_t *err);
    /* The region lies in the host's memory from now on, as after borrow(), but with the n
     * elements that are there, which are as write() takes them.  false: it stays where it
     * is, because it is not n elements or the device wants them elsewhere, and write()
     * follows.  [it always does] */
    bool (*take_ownership)(void *self, pl_region_t region, size_t n, void *host);
    /* The host's elements are float64 where the region's are, else float32; they are
     * rounded to what the region can hold. */
    int (*write)(void *self, pl_region_t region, size_t offset, const void *host,
                 size_t n, pl_error_t *err);
    int (*read)(void *self, pl_region_t region, size_t offset, void *host, size_t n,
                pl_error_t *err);
    /* read() where it takes long. The elements are those that earlier replays leave;
     * later replays run at the same time. On failure done is not called  [NULL:
     * read()]. */
    int (*read_later)(void *self, pl_transfer_t *t, pl_error_t *err);
    /* Host memory that is read to again and again, until unpin()  [both NULL: it need not
     * be known]. */
    int (*pin)(void *self, void *host, size_t bytes, pl_error_t *err);
    void (*unpin)(void *self, void *host);
    /* Regions the graph refers to must exist and stay.  PL_EUNSUPPORTED names the
     * operator and its path. */
    int (*compile)(void *self, const pl_graph_t *g, pl_plan_t **plan, pl_error_t *err);
    /* compile() where it takes long. done() is called later; replays of other plans run
     * at the same time. The graph is valid only during the call. On failure done is not
     * called  [NULL: compile()]. */
    int (*compile_later)(void *self, const pl_graph_t *g, pl_compiling_t *c,
                         pl_error_t *err);
    /* Ends all that compile_later() began: what has not begun never does, what runs ends
     * as soon as its compiler lets it, and each done() is called with an error, from
     * collect().  Nothing is compiled any more  [close() waits for it]. */
    void (*compile_stop)(void *self);
    void (*discard)(void *self, pl_plan_t *plan);
    /* Sets what is known of a plan; the rest is zero already  [nothing is known]. */
    void (*describe)(const void *self, const pl_plan_t *plan, pl_plan_facts_t *facts);
    /* The folder in which compiled kernels are kept for later runs, valid until close();
     * NULL: they are not kept  [they never are]. */
    const char *(*cache)(const void *self);
    /* Starts a replay; on failure done is not called. Replays run in the order they were
     * started, and what reads or writes regions after them finds them run. */
    int (*replay)(void *self, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err);
    /* Of an open device whose replays are done later: a descriptor, there until close(),
     * that can be read when some are, or plans; then collect() is called and calls their
     * done().  [both NULL: done from inside replay()] */
    int (*descriptor)(const void *self);
    void (*collect)(void *self);
    /* Launches that were put on the open device, and those of them that have ended.
     * Called now and then while replays run, so that one that takes long shows that the
     * device computes  [a replay is over soon, or the device is stuck] */
    void (*launches)(void *self, uint64_t *put, uint64_t *ended);
    /* How many devices of this kind the machine has that can be used; 0: why says what is
     * missing.  Asked when "auto" selects the accelerator; on any thread, and without a
     * device  ["auto" does not select it] */
    int (*count)(pl_error_t *why);
    /* Whether the device of that number can be opened now and has memory: PL_OK, or why
     * not.  The same.  [it can] */
    int (*probe)(int device, pl_error_t *why);
    /* Sets what is known of the open device; the rest is NaN already.  Called once a
     * second, between replays: it has to return soon  [nothing is known] */
    void (*stats)(void *self, pl_device_stats_t *stats);
    /* Bytes of the device's own memory that are allocated here  [its memory is the
     * host's] */
    size_t (*held)(const void *self);
    /* Reports devices, drivers and libraries of this machine, and what to install; on any
     * thread, and without a device  [nothing] */
    void (*report)(pl_fact_t tell, void *user);
} pl_accelerator_ops_t;

#ifdef __cplusplus
}
#endif

#endif
