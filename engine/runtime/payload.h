/* payload.h - the objects that messages hand over: what each HANDLE of messages.def
 * points to
 *
 * They are counted (pl_object_ref, pl_object_unref) and shared by threads.  An object
 * does not change after it is handed over, except for fields whose comment names the
 * writer. */
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

/* The progress of a job's devices in this process: the launches that were put on them,
 * the launches that have ended, and pl_now() when the last one ended  [0: none].  It
 * is the sign of life of a slow device.  Any thread. */
typedef struct pl_pulse pl_pulse_t;

/* The description of a run: from the host down to the strategy. */
typedef struct pl_job {
    pl_object_t object;
    pl_options_t *options;                        /* checked; its own copy */
    const struct pl_trainer_options *trainer;     /* "trainer", and the general options of
                                                     "data" and "module": base/run.h */
    const struct pl_data_options *data;
    const struct pl_module_options *module;
    pl_stage_t stage;                           /* PL_TRAIN: fit, with validation; other
                                                   stages: only that stage */
    pl_tuning_t tuning;                         /* num_training 0: the run is no search */
    bool compiles;                              /* ends when its plans are compiled */
    char *checkpoint;                           /* weights to start from  [NULL: new
                                                   ones] */
    bool resumes;                               /* continues an interrupted run: */
    char *resume;                               /* its checkpoint or run directory  [NULL:
                                                   the newest] */
    char *again;                                /* run directory of this run, which was
                                                   interrupted: it continues from the
                                                   newest checkpoint there, or as above
                                                   ["": unknown; NULL: not interrupted] */
    char *rollback;                             /* pl_outcome_t.rollback, from whose
                                                   checkpoint the run continues  [NULL] */
    struct pl_batch_signature *manual_signature;  /* counted: of batches that the program
                                                     sends  [NULL: the run has data sets]
                                                     */
    char *manual_data_info;                     /* JSON object: data info of them */
    bool enable_checkpointing;                  /* a manual loop has a run directory */
    char *prompt;                               /* text to continue  [NULL: predict the
                                                   data] */
    int64_t tokens;                             /* to generate after the prompt */
    double temperature;                         /* 0: always the most likely token */
    int64_t top_k;                              /* choose among the k most likely; 0:
                                                   all */
    bool no_cache;                              /* of keys and values, for the text */
    bool is_probed;                             /* a rank of this process has tried the
                                                   device that "auto" selects */
    /* Set by a launcher, in each process, before it starts a rank there: */
    char *host;                                    /* address of this machine for other
                                                      ranks  [all ranks are here] */
    unsigned char *key;                            /* [PL_KEY_BYTES] of encryption between
                                                      ranks  [none] */
    pl_pulse_t *pulse;
} pl_job_t;

void pl_pulse_beat(pl_pulse_t *pulse, uint64_t put, uint64_t ended, int64_t at);
int64_t pl_pulse_last(const pl_pulse_t *pulse, uint64_t *put, uint64_t *ended);

/* Whether the job is a training that can be resumed: no search, no rollback. */
PL_API bool pl_job_is_training(const pl_job_t *job);
/* The same run for `devices` ranks on each of `nodes` nodes.  run_dir: the run
 * directory of the interrupted run, which the job continues  ["": unknown; NULL: the
 * run was not interrupted]. */
PL_API pl_job_t *pl_job_again(const pl_job_t *job, const char *run_dir, int devices,
                              int nodes, pl_error_t *err);

PL_API pl_job_t *pl_job_new(const pl_options_t *options, pl_stage_t stage,
                            pl_error_t *err);

/* How a run ended: from the loop up to the host. */
typedef struct pl_outcome {
    pl_object_t object;
    bool stopped;                             /* by a stop, before its limit */
    pl_stop_kind_t stop_kind;                 /* what the stop was for */
    char reason[160];                         /* of a fit: why it was stopped  [""] */
    pl_error_t error;                         /* after the last step, such as of a save */
    uint64_t global_step;
    uint32_t epoch;                      /* epochs done */
    double seconds;                      /* of the loop */
    char *metrics;                       /* JSON object: the newest metric of each name */
    char *run_dir;                       /* [NULL: none] */
    char *callbacks;                     /* JSON array of {name, state} of each callback
                                            [NULL] */
    char *best;                          /* path of the best checkpoint  [NULL] */
    struct pl_weights *weights;          /* [NULL] */
    struct pl_outputs *outputs;          /* predictions, all samples in order  [NULL] */
    char *text;                          /* generated after a prompt  [NULL] */
    char *rollback;                      /* JSON object: the run continues from its newest
                                            checkpoint, with this in the loop's state
                                            [NULL: it has ended] */
} pl_outcome_t;

PL_API pl_outcome_t *pl_outcome_new(pl_error_t *err);
pl_run_status_t pl_outcome_status(const pl_outcome_t *outcome);

/* The parts of a rank's time in training: it waits for a batch, … */
typedef enum pl_timing {
    PL_TIMING_DATA,
    PL_TIMING_FORWARD,
    PL_TIMING_BACKWARD,                    /* includes forward if the accelerator does not
                                              separate them */
    PL_TIMING_COLLECTIVE,
    PL_TIMING_OPTIMIZER,
    PL_TIMING_ABSENT,                        /* it does not run: it is stopped, or gets no
                                                processor */
    PL_TIMINGS
} pl_timing_t;

extern const char *const pl_timing_names[PL_TIMINGS];

/* Whether the field is as long as the sample. */
static inline bool pl_varies(const pl_field_t *field)
{
    return field->shape.rank > 0 && field->shape.dim[0] == PL_VARIES;
}

/* Batches of one size share a plan. */
typedef struct pl_batch_size {
    int64_t count;                               /* samples */
    int64_t length;                              /* of fields that vary; 0: none varies */
} pl_batch_size_t;

#define PL_SIZES_MAX 16
/* Maximum number of metrics of a pass over data. */
#define PL_METRICS_MAX 64

/* Fields and batch sizes of each stage, as plans are compiled for them. */
typedef struct pl_batch_signature {
    pl_object_t object;
    struct {
        bool present;
        int64_t samples;
        int field_count;
        pl_field_t field[PL_FIELDS];
        int64_t batch_size;                            /* of all batches, or micro-shards,
                                                          except the last */
        int size_count;
        pl_batch_size_t size[PL_SIZES_MAX];                 /* the largest first */
    } stage[PL_PREDICT + 1];
    bool accumulates;        /* a program adds up gradients of several batches */
    int64_t context;         /* tokens whose keys and values graphs keep, to continue with
                                a batch of one  [0: none] */
} pl_batch_signature_t;

PL_API pl_batch_signature_t *pl_batch_signature_new(pl_error_t *err);

/* An open data set: shared by the data connector and its readers. */
typedef struct pl_dataset {
    pl_object_t object;
    pl_instance_t component;                         /* pl_dataset_ops_t and its struct */
    pl_data_request_t request;
    char *data_info;                         /* of the request  [none] */
    pl_data_info_t info;                     /* written by the reader that opens it */
    int64_t *length;                         /* [samples]  [no field varies] */
    int64_t longest;                         /* largest length; 0: no field varies */
    bool opened;                             /* open() was called, so close() is due */
    bool is_drawn;                           /* a sampler would use the classes */
    int64_t *target;                         /* [samples] classes, for a stratified split
                                                and a sampler; by a reader  [none] */
    bool sums;                               /* crc32c is requested */
    bool summed;                             /* crc32c is set: the samples are in files */
    uint32_t crc32c;                         /* of the parts that reader.c reads */
} pl_dataset_t;

/* Consumes the component, also on failure, and copies the request.  The last reference
 * closes the data set. */
PL_API pl_dataset_t *pl_dataset_new(pl_instance_t *component,
                                    const pl_data_request_t *request, pl_error_t *err);

/* Whole pages of host memory, which a device may register for its copies. */
typedef struct pl_pages {
    pl_object_t object;
    void *data;                                             /* [bytes], zeroed */
    size_t bytes;
    void *memory;
} pl_pages_t;

pl_pages_t *pl_pages_new(size_t bytes, pl_error_t *err);

/* Samples in host memory; the last reference returns the batch to its pool. */
typedef struct pl_batch {
    pl_object_t object;
    struct pl_batch_pool *pool;
    struct pl_batch *next;                                  /* in the pool's list */
    pl_dataset_t *dataset;                                  /* counted */
    pl_stage_t stage;
    uint32_t loader;                                /* data loader of the stage, from 0 */
    uint64_t seed, epoch;
    int64_t count;                             /* samples; up to the pool's batch size */
    int64_t length;                            /* of fields that vary; 0: none varies */
    int64_t *index;                            /* [count], in the data set */
    uint32_t batch_idx;                        /* within the pass */
    int64_t took;                              /* reading time, ns; written by a reader */
    int field_count;
    void *field[PL_FIELDS];       /* [count, …], 64-byte aligned; written by a reader */
    pl_pages_t *pages;            /* memory of the fields  [NULL: they are small] */
} pl_batch_t;

/* Named tensors in host memory, float32. */
typedef struct pl_output {
    char name[64];
    pl_shape_t shape;
    pl_dtype_t dtype;                        /* in files; in memory, halves are float32 */
    union {
        float *data;                                        /* [shape] */
        double *wide;                                       /* [shape] of PL_F64 */
    };
    pl_region_t region;                                     /* of weights */
    bool borrowed;                                          /* data is in a block */
} pl_output_t;

/* Results of a forward pass besides metrics; the accelerator writes their data. */
typedef struct pl_outputs {
    pl_object_t object;
    int count;
    pl_output_t output[PL_FIELDS];
} pl_outputs_t;

PL_API pl_outputs_t *pl_outputs_new(pl_error_t *err);
/* Adds a tensor, zeroed. */
PL_API int pl_outputs_add(pl_outputs_t *outputs, const char *name, pl_shape_t shape,
                          pl_error_t *err);

/* The elements of a region: float64 for PL_F64, float32 for all other types. */
typedef struct pl_floats {
    pl_object_t object;
    size_t count;
    pl_dtype_t dtype;                                       /* of the region */
    void *memory;                                           /* allocation of data */
    union {
        float *data;                                        /* [count] */
        double *wide;                                       /* [count] of PL_F64 */
    };
} pl_floats_t;

/* The bytes of an element in memory. */
PL_API size_t pl_element_bytes(pl_dtype_t dtype);
/* Zeros. */
PL_API pl_floats_t *pl_floats_new(pl_dtype_t dtype, size_t count, pl_error_t *err);
/* Copies the elements of a tensor of any type to the elements from an offset on. */
PL_API void pl_floats_fill(pl_floats_t *floats, int64_t offset, const pl_output_t *from);

/* The tensors of a module by region and name, with the data that their next use needs.  A
 * whole export also has the optimizer's tensors, under the names of their parameters. */
typedef struct pl_weights {
    pl_object_t object;
    int count, capacity;
    pl_output_t *tensor;             /* names as in the module */
    char *module;                    /* JSON object: the module's section of the run */
    char *data_info;                 /* JSON object: data info of the run */
    char *state;                     /* JSON: state of the strategy, in a whole export
                                        [NULL] */
    uint64_t global_step;            /* optimizer steps done; and */
    uint32_t epoch;                  /* epochs done; 0: unknown, and in an export until
                                        its caller sets it */
    pl_floats_t *block[PL_REGIONS];  /* counted: the memory of borrowed tensors  [NULL] */
} pl_weights_t;

PL_API pl_weights_t *pl_weights_new(pl_error_t *err);
/* Adds a parameter with a copy of data, in the format of pl_output_t  [NULL: zeros]. */
PL_API int pl_weights_add(pl_weights_t *weights, const char *name, pl_shape_t shape,
                          pl_dtype_t dtype, const void *data, pl_error_t *err);
/* Adds a tensor in the region's block, at an offset in elements: a multiple of
 * PL_REGION_ALIGN.  Zeros follow it up to the next multiple. */
PL_API int pl_weights_borrow(pl_weights_t *weights, pl_region_t region, const char *name,
                             pl_shape_t shape, int64_t offset, pl_error_t *err);
/* The tensor of that name among parameters and state, or in a slot of the optimizer, or
 * NULL; the search starts at index `near`. */
PL_API const pl_output_t *pl_weights_find(const pl_weights_t *weights, pl_region_t region,
                                          const char *name, int near);

/* Sets view [count] to the tensors as programs see them: PL_F64 is copied to float32.
 * False: out of memory; some tensors have no data.  pl_tensors_release() releases a
 * view. */
PL_API bool pl_tensors_view(const pl_output_t *tensor, int count,
                            pl_result_tensor_t *view);
PL_API void pl_tensors_release(const pl_output_t *tensor, int count,
                               const pl_result_tensor_t *view);

/* A graph in a message, to be compiled. */
typedef struct pl_graph_holder {
    pl_object_t object;
    pl_graph_t *graph;                                      /* owned */
} pl_graph_holder_t;

/* Consumes the graph, also on failure. */
PL_API pl_graph_holder_t *pl_graph_hold(pl_graph_t **graph_p, pl_error_t *err);

/* How a collective combines the elements of ranks. */
typedef enum pl_reduction {
    PL_REDUCE_SUM,
    PL_REDUCE_MAX,
} pl_reduction_t;

#define PL_ADDRESS_TEXT 256

#ifdef __cplusplus
}
#endif

#endif
