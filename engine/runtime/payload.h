/* payload.h - the objects that messages hand over: what each HANDLE of messages.def
 * points to
 *
 * Counted (pl_object_ref, pl_object_unref), shared by threads, and not changed once
 * handed over unless a comment says who may. */
#ifndef PL_RUNTIME_PAYLOAD_H
#define PL_RUNTIME_PAYLOAD_H

#include "base/limits.h"
#include "paceline.h"
#include "runtime/actor.h"
#include "runtime/fence.h"
#include "tensor/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a run is to do: from the host down to the strategy. */
/* How far the devices of a job have come in this process: launches that were put on them,
 * those of them that have ended, and pl_now() when one ended last  [0: none].  A slow
 * device gives signs of life by it.  Any thread. */
typedef struct pl_pulse pl_pulse_t;

typedef struct pl_job {
    pl_object_t object;
    pl_options_t *options;                      /* checked; its own copy */
    const struct pl_trainer_options *trainer;   /* "trainer", and what "data" and "module"
                                                   have beside their parts' options, bound
                                                   once for all: base/run.h */
    const struct pl_data_options *data;
    const struct pl_module_options *module;
    pl_stage_t stage;                           /* PL_TRAIN: fit, to validate as well;
                                                   others: that alone */
    pl_tuning_t tuning;                         /* num_training 0: the run is no search */
    bool compiles;                              /* ends when its plans are compiled */
    char *checkpoint;                           /* weights to start from  [NULL: fresh] */
    bool resumes;                               /* goes on where a run was cut off: */
    char *resume;                               /* a checkpoint or run directory [NULL:
                                                   the newest] */
    char *again;                                /* run directory of this run, which was
                                                   cut off: it goes on from the newest
                                                   checkpoint there, or as is said above
                                                   ["": not known; NULL: it was not] */
    char *rollback;                             /* it goes back there, with what the loop
                                                   said in pl_outcome_t  [NULL: no] */
    struct pl_batch_signature *manual_signature;  /* counted: of batches that the program
                                                     sends itself  [NULL: the run has data
                                                     of its own] */
    char *manual_data_info;                     /* JSON object: what is known of them */
    bool enable_checkpointing;                  /* what comes of them has a run directory
                                                   */
    char *prompt;                               /* text to go on from [NULL: predict
                                                   the data] */
    int64_t tokens;                             /* to write after the prompt */
    double temperature;                         /* 0: always the likeliest */
    int64_t top_k;                              /* choose among the k likeliest; 0: all */
    bool is_probed;                             /* a rank of this process has tried what
                                                   "auto" stands for: its device */
    /* Filled in by a launcher, in each process, before it has a rank there: */
    char *host;                                   /* address of this machine, as the ranks
                                                     reach it [all are on this machine] */
    unsigned char *key;                           /* [PL_KEY_BYTES] for what goes over
                                                     wires  [none] */
    pl_pulse_t *pulse;
} pl_job_t;

void pl_pulse_beat(pl_pulse_t *pulse, uint64_t put, uint64_t ended, int64_t at);
int64_t pl_pulse_last(const pl_pulse_t *pulse, uint64_t *put, uint64_t *ended);

/* A training of its own, which can go on from where it has come to: no search, and none
 * that goes back. */
PL_API bool pl_job_is_training(const pl_job_t *job);
/* The same run for so many ranks on each of so many nodes; with a run_dir, which a run
 * that was cut off had come to, on from there  ["": it is not known that it had come to
 * one; NULL: it was not cut off]. */
PL_API pl_job_t *pl_job_again(const pl_job_t *job, const char *run_dir, int devices,
                              int nodes, pl_error_t *err);

PL_API pl_job_t *pl_job_new(const pl_options_t *options, pl_stage_t stage,
                            pl_error_t *err);

/* How a run ended: from the loop up to the host. */
typedef struct pl_outcome {
    pl_object_t object;
    bool stopped;                          /* by a stop, before its limit */
    char reason[160];                      /* of a fit: who wanted it and why  [""] */
    pl_error_t error;                      /* what went wrong after the last step, such as
                                              saving */
    uint64_t global_step;
    uint32_t epoch;                      /* epochs done */
    double seconds;                      /* of the loop */
    char *metrics;                       /* JSON object: the newest metric of each name */
    char *run_dir;                       /* [NULL: none was made] */
    char *callbacks;                     /* JSON array of {name, state}: what each has
                                            kept of itself  [NULL] */
    char *best;                          /* path of the best checkpoint  [NULL] */
    struct pl_weights *weights;          /* [NULL] */
    struct pl_outputs *outputs;          /* predictions, all samples in order  [NULL] */
    char *text;                          /* written after a prompt  [NULL] */
    char *rollback;                      /* JSON object: the run is to go on from its
                                            newest checkpoint, with this in the loop's
                                            state  [NULL: it has ended] */
} pl_outcome_t;

PL_API pl_outcome_t *pl_outcome_new(pl_error_t *err);
/* ok, stopped or failed. */
const char *pl_outcome_status(const pl_outcome_t *outcome);

/* What a rank's training takes its time: a batch is not there yet, … */
typedef enum pl_timing {
    PL_TIMING_DATA,
    PL_TIMING_FORWARD,
    PL_TIMING_BACKWARD,                /* with forward where the accelerator does not tell
                                          them apart */
    PL_TIMING_COLLECTIVE,
    PL_TIMING_OPTIMIZER,
    PL_TIMING_ABSENT,                    /* it waits, and would not notice: it is stopped,
                                            or gets no processor */
    PL_TIMINGS
} pl_timing_t;

extern const char *const pl_timing_names[PL_TIMINGS];

/* Whether it is as long as the sample. */
static inline bool pl_varies(const pl_field_t *field)
{
    return field->shape.rank > 0 && field->shape.dim[0] == PL_VARIES;
}

/* Batches of one size share a plan. */
typedef struct pl_batch_size {
    int64_t count;                                 /* samples */
    int64_t length;                                /* of fields that vary; 0: none does */
} pl_batch_size_t;

#define PL_SIZES_MAX 16
/* Metrics of a pass that loops tell apart. */
#define PL_METRICS_MAX 64

/* Fields and batch sizes of each stage, as plans are compiled for them. */
typedef struct pl_batch_signature {
    pl_object_t object;
    struct {
        bool present;
        int64_t samples;
        int field_count;
        pl_field_t field[PL_FIELDS];
        int64_t batch_size;                        /* of all batches, or micro-shards, but
                                                      the last */
        int size_count;
        pl_batch_size_t size[PL_SIZES_MAX];                 /* the largest first */
    } stage[PL_PREDICT + 1];
} pl_batch_signature_t;

PL_API pl_batch_signature_t *pl_batch_signature_new(pl_error_t *err);

/* An open data set: shared by the data connector and its readers. */
typedef struct pl_dataset {
    pl_object_t object;
    pl_instance_t component;                         /* pl_dataset_ops_t and its struct */
    pl_data_request_t request;
    char *data_info;                       /* those of the request  [none] */
    pl_data_info_t info;                   /* filled in by the reader that opens it */
    int64_t *length;                       /* [samples]  [no field varies] */
    int64_t longest;                       /* of them; 0: no field varies */
    bool opened;                           /* or tried to: it is to be closed */
    int64_t *target;                       /* [samples] of a stratified split, until then;
                                              written by a reader  [none] */
    bool sums;                             /* crc32c is asked for */
    bool summed;                           /* and there: its samples come from files */
    uint32_t crc32c;                       /* of what reader.c reads of them */
} pl_dataset_t;

/* Takes the part over, also on failure, and copies the request.  The last reference
 * closes it. */
PL_API pl_dataset_t *pl_dataset_new(pl_instance_t *component,
                                    const pl_data_request_t *request, pl_error_t *err);

/* Whole pages of host memory, which a device may register to copy from them itself. */
typedef struct pl_pages {
    pl_object_t object;
    void *data;                                             /* [bytes], zeroed */
    size_t bytes;
    void *memory;
} pl_pages_t;

pl_pages_t *pl_pages_new(size_t bytes, pl_error_t *err);

/* Samples in host memory; from a pool, to which it goes back by itself. */
typedef struct pl_batch {
    pl_object_t object;
    struct pl_batch_pool *pool;
    struct pl_batch *next;                                  /* in the pool's list */
    pl_dataset_t *dataset;                                  /* counted */
    pl_stage_t stage;
    uint32_t loader;                            /* which of the stage's sources, from 0 */
    uint64_t seed, epoch;
    int64_t count;                              /* samples; up to the pool's batch size */
    int64_t length;                             /* of fields that vary; 0: none does */
    int64_t *index;                             /* [count], in the source */
    uint32_t batch_idx;                         /* within the pass */
    int64_t took;                               /* to read, ns; written by a reader */
    int field_count;
    void *field[PL_FIELDS];       /* [count, …], 64-byte aligned; written by a reader */
    pl_pages_t *pages;            /* what the fields lie in  [NULL: it is small] */
} pl_batch_t;

/* Named tensors in host memory, float32. */
typedef struct pl_output {
    char name[64];
    pl_shape_t shape;
    pl_dtype_t dtype;                    /* in files; in memory halves are float32, too */
    union {
        float *data;                                        /* [shape] */
        double *wide;                                       /* the same of PL_F64 */
    };
    pl_region_t region;                                     /* of weights: its kind */
    bool borrowed;                                          /* data is another's */
} pl_output_t;

/* What a forward pass gives besides metrics; data is written by the accelerator. */
typedef struct pl_outputs {
    pl_object_t object;
    int count;
    pl_output_t output[PL_FIELDS];
} pl_outputs_t;

PL_API pl_outputs_t *pl_outputs_new(pl_error_t *err);
/* Adds a tensor, zeroed. */
PL_API int pl_outputs_add(pl_outputs_t *outputs, const char *name, pl_shape_t shape,
                          pl_error_t *err);

/* A region's elements: float64 of a region of PL_F64, float32 of all others. */
typedef struct pl_floats {
    pl_object_t object;
    size_t count;
    pl_dtype_t dtype;                                       /* of the region */
    void *memory;                                           /* that data lies in */
    union {
        float *data;                                        /* [count] */
        double *wide;                                       /* the same of PL_F64 */
    };
} pl_floats_t;

/* Of an element in memory. */
PL_API size_t pl_element_bytes(pl_dtype_t dtype);
/* Zeroed. */
PL_API pl_floats_t *pl_floats_new(pl_dtype_t dtype, size_t count, pl_error_t *err);
/* Elements from an offset on become those of a tensor, of whatever type. */
PL_API void pl_floats_fill(pl_floats_t *floats, int64_t offset, const pl_output_t *from);

/* The tensors of a module by region and name, with what is needed to use them again.  A
 * whole export has the optimizer's too, under the names of the parameters they go
 * with. */
typedef struct pl_weights {
    pl_object_t object;
    int count, capacity;
    pl_output_t *tensor;             /* names as in the module */
    char *module;                    /* JSON object: the module's section of the run */
    char *data_info;                 /* JSON object: what the data knew */
    char *state;                     /* JSON, the strategy's: what a whole export has
                                        besides tensors  [NULL] */
    uint64_t global_step;            /* optimizer steps and .. */
    uint32_t epoch;                  /* .. epochs that made them; 0: unknown, and in an
                                        export until who asked for it knows */
    pl_floats_t *block[PL_REGIONS];  /* counted: what tensors are borrowed from  [NULL] */
} pl_weights_t;

PL_API pl_weights_t *pl_weights_new(pl_error_t *err);
/* Adds a parameter of that type with a copy of data, as pl_output_t has it  [NULL:
 * zeros]. */
PL_API int pl_weights_add(pl_weights_t *weights, const char *name, pl_shape_t shape,
                          pl_dtype_t dtype, const void *data, pl_error_t *err);
/* Adds a tensor that lies in the region's block, at an offset in elements: a multiple of
 * PL_REGION_ALIGN, up to the next of which zeros follow it. */
PL_API int pl_weights_borrow(pl_weights_t *weights, pl_region_t region, const char *name,
                             pl_shape_t shape, int64_t offset, pl_error_t *err);
/* The tensor of that name among the module's (parameters, state) or in a slot of the
 * optimizer, or NULL; `near` is looked at first. */
PL_API const pl_output_t *pl_weights_find(const pl_weights_t *weights, pl_region_t region,
                                          const char *name, int near);

/* Tensors as those outside see them, in view [count]; those of PL_F64 are copied to
 * float32, and what could not be, for want of memory, has no data: then false.  A view is
 * to be released. */
PL_API bool pl_tensors_view(const pl_output_t *tensor, int count,
                            pl_result_tensor_t *view);
PL_API void pl_tensors_release(const pl_output_t *tensor, int count,
                               const pl_result_tensor_t *view);

/* A graph on its way to be compiled. */
typedef struct pl_graph_holder {
    pl_object_t object;
    pl_graph_t *graph;                                      /* owned */
} pl_graph_holder_t;

/* Takes the graph over, also on failure. */
PL_API pl_graph_holder_t *pl_graph_hold(pl_graph_t **graph_p, pl_error_t *err);

/* How elements of several ranks become one. */
typedef enum pl_reduction {
    PL_REDUCE_SUM,
    PL_REDUCE_MAX,
} pl_reduction_t;

#define PL_ADDRESS_TEXT 256

#ifdef __cplusplus
}
#endif

#endif
