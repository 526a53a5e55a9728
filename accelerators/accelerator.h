/* accelerator.h - the role of an accelerator: one device, its memory and its compiled
 * plans
 *
 * A new device fills in the table below.  accelerators/actor.c is the actor that owns
 * a device and turns messages into calls of this table; nothing above it touches
 * device memory.  Every function runs on the accelerator's own thread, except count(),
 * probe() and report().  A device is also opened and closed on another thread, without
 * `computes`, to describe it.  A slot whose comment has no [brackets] is required;
 * brackets say what NULL means. */
#ifndef PL_ACCELERATOR_H
#define PL_ACCELERATOR_H

#include "paceline.h"
#include "runtime/fence.h"
#include "tensor/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled graph; each device has its own struct.  Borrows nothing from the graph. */
typedef struct pl_plan pl_plan_t;

/* A compilation in the background.  Owned by the actor, valid until done(). */
typedef struct pl_compiling {
    pl_plan_t *plan;                                        /* out */
    /* The device may call it, on the accelerator's thread, to report how many of the
     * plan's pieces are compiled  [NULL: not reported]. */
    void (*progress)(struct pl_compiling *c, int done, int all);
    /* The device calls it once, on the accelerator's thread, from collect(); err is NULL
     * on success. */
    void (*done)(struct pl_compiling *c, const pl_error_t *err);
} pl_compiling_t;

/* Time of a kernel or a copy of a replay, by the device's clock. */
typedef struct pl_device_span {
    const char *what;                 /* kind of launch: "layer_norm" */
    const char *path;                 /* of the operator: "h.0.ln_1"  [""] */
    int stream;                       /* 0: kernels, 1: copies to the device, 2: copies to
                                         the host */
    double begin, end;                /* s since the replay began */
} pl_device_span_t;

#define PL_STEP_SCALARS 113

/* One replay: the values that change from step to step, and the results.  Owned by the
 * actor, valid until done(). */
typedef struct pl_replay {
    double scalar[PL_STEP_SCALARS];  /* read by PL_FROM_SCALAR values */
    uint64_t seed, step;           /* random numbers are pure functions of seed, step, */
    uint64_t micro_batch;          /* micro_batch, an operator's stream and the element */
    const void *input[PL_FIELDS];  /* host memory, [batch, …] each; read before done */
    double *metrics;               /* the sums of all metrics, in order of fetch: value
                                      and weight of a pair, else the value's elements
                                      [not fetched] */
    void *output[PL_FIELDS];       /* host memory for output fetches, in their order
                                      [not fetched] */
    bool fail_fast;                /* this replay is skipped if an earlier fail_fast
                                      replay was skipped or failed: the replays of a
                                      step after a failed one change nothing */
    bool restart;                  /* ends the skipping: this and later replays run */
    bool continues;                /* the plan's last replay waits at a collective, and
                                      this one is the rest of it; nothing was replayed
                                      in between */
    const struct pl_replay *next;  /* the replay that is started after this one, with no
                                      other call between.  Its numbers are read with those
                                      of this one, and the device may report the end of
                                      this one with that one's  [NULL: unknown] */
    int collective;                /* out: the graph's collective at which the replay
                                      waits, from 1; no result is stored yet
                                      [0: the replay is complete] */
    bool skipped;                  /* out: a guard was not finite; the operators after
                                      it did not run */
    double seconds;                /* out: s that it took, by the device's clock  [left at
                                      0: the actor measures the time until done()] */
    double forward;                /* out: s from the start to the first operator of
                                      backward  [left at 0] */
    /* The device may call it when the first `buckets` buckets of the graph are final, so
     * that they are reduced while the replay runs; from inside replay() or later, on the
     * accelerator's thread  [not reported].  Registered gradients are final behind the
     * borrowed fence, whether the replay runs or is stopped  [NULL: they are final]. */
    void (*ready)(struct pl_replay *replay, int buckets, pl_fence_t *fence);
    /* A device that has registered a region calls it from inside replay(), when the
     * whole replay is enqueued.  The borrowed fence is behind this replay and
     * everything before it [not reported]. */
    void (*ordered)(struct pl_replay *replay, pl_fence_t *fence);
    /* The device may call it before done() with all kernels and copies, valid during the
     * call; a measured replay may take longer  [not measured]. */
    void (*measured)(struct pl_replay *replay, const pl_device_span_t *span, int count);
    /* The device calls it once, on the accelerator's thread, from inside replay() or
     * later; err is NULL on success. */
    void (*done)(struct pl_replay *replay, const pl_error_t *err);
} pl_replay_t;

/* A copy of elements of a region to the host.  Owned by the actor, valid until done(). */
typedef struct pl_transfer {
    pl_region_t region;
    size_t offset, count;
    void *host;
    /* The device calls it once, on the accelerator's thread, from inside read_later() or
     * collect(). */
    void (*done)(struct pl_transfer *t, const pl_error_t *err);
} pl_transfer_t;

/* Description of a plan for reports. */
enum { PL_PLAN_KINDS = 64 };
typedef struct pl_plan_facts {
    struct {
        char name[24];                             /* of a kind of launch: "layer_norm" */
        int launches;                              /* of each replay */
        double bytes;                              /* read and written, at most */
    } kind[PL_PLAN_KINDS];
    int kinds;
    size_t arena;                                   /* bytes for the values of a replay */
    int pieces;                                     /* compiled separately */
    int from_cache;                                 /* pieces found in the cache */
    int stored;                                     /* pieces stored in the cache */
    double seconds;                                 /* compile time, sum over threads */
} pl_plan_facts_t;

typedef struct pl_device_info {
    int ranks;                                   /* in: ranks that share this machine's
                                                    processors */
    char model[64];                              /* "AMD EPYC, avx512" */
    int devices;                                 /* number of devices of this machine */
    int threads;                                 /* in: compute threads unless options of
                                                    the device name a number  [0: the
                                                    device's choice]; out: those in use */
    size_t memory;                               /* bytes, 0 when unknown */
    char library[64];                            /* "oneDNN 2.6.3" */
    unsigned emulated;                           /* emulated number formats:
                                                    1 << pl_dtype_t each */
    bool computes;                               /* in: this thread computes with the
                                                    device; false: only the description
                                                    is needed */
    bool compiles;                               /* in: plans are compiled, and none is
                                                    replayed */
    bool deterministic;                          /* in: options that make the bits of runs
                                                    differ are refused */
    int local_rank;                              /* in: number of this rank on this
                                                    machine */
    int device;                                  /* in: the number of the device in
                                                    trainer.devices  [-1: no list was
                                                    given, local_rank selects it]; out:
                                                    the number of the opened device
                                                    [-1: its devices have no numbers] */
    size_t memory_free;                          /* bytes, 0 when unknown */
    unsigned char uuid[16];                      /* of a device that only one rank may
                                                    open  [zeros: unknown, or several
                                                    may] */
} pl_device_info_t;

typedef struct pl_accelerator_ops {
    PL_COMPONENT;
    int (*open)(void *self, pl_device_info_t *info, pl_error_t *err);
    void (*close)(void *self);          /* also frees regions and plans; also called after
                                           a failed open */
    /* (Re)allocates a region of n elements of a floating-point type, zeroed. */
    int (*region)(void *self, pl_region_t region, pl_dtype_t dtype, size_t n,
                  pl_error_t *err);
    /* The same in the host's memory, 64-byte aligned; elements have the layout of read().
     * When a replay is done, the memory holds its results; a replay reads what the host
     * wrote before it was started.  The region uses the memory until it is allocated
     * again or close().  [the device cannot be one of several ranks] */
    int (*borrow)(void *self, pl_region_t region, pl_dtype_t dtype, size_t n, void *host,
                  pl_error_t *err);
    /* Kind of the memory that the device registers, such as "cuda"  [NULL: it registers
     * none] */
    const char *memory_kind;
    /* The memory of an allocated region, in its own type, counted.  Others read and write
     * it too, in an order that fences give.  It is valid as long as the region  [set
     * where memory_kind is] */
    int (*register_region)(void *self, pl_region_t region, pl_reg_buffer_t **buffer,
                           pl_error_t *err);
    /* Later calls run after the work of the fence  [set where memory_kind is] */
    int (*join)(void *self, pl_fence_t *fence, pl_error_t *err);
    /* The region uses the host's memory from now on, as after borrow(), and keeps the n
     * elements in it, which have the layout of write().  false: the region does not have
     * n elements or the device needs another place; the region stays, and the caller
     * calls write().  [as false] */
    bool (*take_ownership)(void *self, pl_region_t region, size_t n, void *host);
    /* The host's elements are float64 if the region's are, else float32; they are rounded
     * to the type of the region. */
    int (*write)(void *self, pl_region_t region, size_t offset, const void *host,
                 size_t n, pl_error_t *err);
    int (*read)(void *self, pl_region_t region, size_t offset, void *host, size_t n,
                pl_error_t *err);
    /* read() that ends later. The elements are those that earlier replays leave; later
     * replays run at the same time. On failure done is not called  [NULL: read()]. */
    int (*read_later)(void *self, pl_transfer_t *t, pl_error_t *err);
    /* Registers host memory to which regions are read repeatedly, until unpin()  [both
     * NULL: not needed]. */
    int (*pin)(void *self, void *host, size_t bytes, pl_error_t *err);
    void (*unpin)(void *self, void *host);
    /* The regions of the graph must be allocated and stay so.  PL_EUNSUPPORTED names the
     * operator and its path. */
    int (*compile)(void *self, const pl_graph_t *g, pl_plan_t **plan, pl_error_t *err);
    /* compile() that ends later, with done(); replays of other plans run at the same
     * time. The graph is valid only during the call. On failure done is not called
     * [NULL: compile()]. */
    int (*compile_later)(void *self, const pl_graph_t *g, pl_compiling_t *c,
                         pl_error_t *err);
    /* Stops the compilations of compile_later(): those not begun do not begin, running
     * ones end as soon as the compiler permits, and collect() calls each done() with an
     * error.  No compilation is accepted afterwards  [close() waits for all of them]. */
    void (*compile_stop)(void *self);
    void (*discard)(void *self, pl_plan_t *plan);          /* frees a plan of compile() */
    /* Sets the known fields of a zeroed description of a plan  [none is known]. */
    void (*describe)(const void *self, const pl_plan_t *plan, pl_plan_facts_t *facts);
    /* The folder in which compiled kernels are kept for later runs, valid until close();
     * NULL: they are not kept  [as NULL]. */
    const char *(*cache)(const void *self);
    /* Starts a replay; on failure done is not called. Replays run in the order of their
     * starts, and later reads and writes of regions come after them. */
    int (*replay)(void *self, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err);
    /* A descriptor of an open device, valid until close(), that is readable when replays,
     * reads or compilations have ended; then collect() is called and calls their done().
     * [both NULL: done is called from inside replay()] */
    int (*descriptor)(const void *self);
    void (*collect)(void *self);
    /* Counts launches that were put on the open device, and those that have ended.
     * Called periodically while replays run, so that a long replay shows that the device
     * computes  [replays are short: a long one means that the device is stuck] */
    void (*launches)(void *self, uint64_t *put, uint64_t *ended);
    /* Number of usable devices of this kind in the machine; 0: why says what is missing.
     * Called when "auto" selects the accelerator; on any thread, and without a device
     * ["auto" does not select it] */
    int (*count)(pl_error_t *why);
    /* Checks that the device of that number can be opened now and has free memory: PL_OK,
     * or why not.  On any thread, and without a device  [as PL_OK] */
    int (*probe)(int device, pl_error_t *why);
    /* Sets the known fields of the open device; the others are NaN already.  Called once
     * a second, between replays: it must return soon  [none is known] */
    void (*stats)(void *self, pl_device_stats_t *stats);
    /* Bytes of the device's own memory that are allocated by this engine  [its memory is
     * the host's] */
    size_t (*held)(const void *self);
    /* Reports devices, drivers and libraries of this machine, and what to install; on any
     * thread, and without a device  [nothing is reported] */
    void (*report)(pl_fact_t tell, void *user);
} pl_accelerator_ops_t;

#ifdef __cplusplus
}
#endif

#endif
