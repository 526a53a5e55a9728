/* graph.h - graphs: values and the operations between them
 *
 * A module's step, an optimizer's update and a norm are all graphs: lists of values
 * and of operations in an order in which they can run.  Accelerators read and compile
 * them; graphs do not depend on a device.  A value is in a batch field, in a flat
 * region, in the block of scalars that change with the step, or is computed. */
#ifndef PL_TENSOR_GRAPH_H
#define PL_TENSOR_GRAPH_H

#include "base/counted.h"
#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_STRATEGY_REGIONS 3

/* The flat regions of a model on a device, float32 unless a plan says otherwise. */
typedef enum pl_region {
    PL_REGION_PARAMS,                    /* [parameters] */
    PL_REGION_GRADS,                     /* [parameters + 2 objectives]: the last are loss
                                            sum and weight of each objective */
    PL_REGION_STATE,                     /* [state elements] */
    PL_REGION_SLOT0,                     /* PL_SLOTS of them, [parameters] each */
    PL_REGION_AVERAGE = PL_REGION_SLOT0 + PL_SLOTS,
    /* [parameters] over steps */
    PL_REGION_MASTER,                       /* [parameters] that the optimizer updates if
                                               parameters have a narrower type */
    PL_REGION_STATE_BACKUP,                 /* [state elements] after the newest optimizer
                                               step; a skipped step restores them */
    PL_REGION_STRATEGY0,                    /* PL_STRATEGY_REGIONS of them, for the
                                               strategy */
    PL_REGION_SCALING = PL_REGION_STRATEGY0 + PL_STRATEGY_REGIONS,
    /* [pl_scaling_t] of a precision that scales */
    PL_REGION_COLLECTIVE,                   /* of in-graph collectives, in the middle of a
                                               step */
    PL_REGION_CACHE,                        /* keys and values while text is generated */
    PL_REGIONS,
} pl_region_t;

/* The alignment of each tensor in a region, in elements: a cache line of float32.  Zeros
 * fill the gaps. */
#define PL_REGION_ALIGN 16

/* The elements of PL_REGION_SCALING, float32. */
typedef enum pl_scaling {
    PL_SCALING_FACTOR,                         /* of the loss, in backward */
    PL_SCALING_GOOD,                           /* finite steps in a row */
    PL_SCALING_SKIPPED,                        /* steps of the run that were not finite */
    PL_SCALING_COUNT,
} pl_scaling_t;

/* The result of an in-graph collective on its piece of PL_REGION_COLLECTIVE. */
typedef enum pl_graph_collective {
    PL_GRAPH_COLLECTIVE_SUM,                 /* the sum over ranks */
    PL_GRAPH_COLLECTIVE_GATHER,              /* equal parts, one of each rank, each a
                                                multiple of PL_REGION_ALIGN elements */
    PL_GRAPH_COLLECTIVE_MOMENTS,             /* the moments of the values of all ranks:
                                                means of the channels, variances and, in
                                                the first of PL_REGION_ALIGN elements, the
                                                number of values of a channel */
} pl_graph_collective_t;

typedef enum pl_opcode {
#define PL_OPERATOR(name, inputs, outputs, precision, kind, meaning) PL_OP_##name,
#include "tensor/operators.def"
#undef PL_OPERATOR
    PL_OPCODES,
} pl_opcode_t;

typedef enum pl_op_kind {
    PL_KIND_element,
    PL_KIND_reduce,
    PL_KIND_shape,
    PL_KIND_product,
    PL_KIND_space,
    PL_KIND_row,
    PL_KIND_axis,
    PL_KIND_steps,
    PL_KIND_type,
    PL_KIND_user,
    PL_KIND_ranks,
    PL_KIND_effect,
} pl_op_kind_t;

#define PL_OP_INPUTS 32
#define PL_OP_OUTPUTS 3
#define PL_OPS_MAX 1000000                 /* of a graph: more take too long to compile */

typedef struct pl_operator {
    const char *name;
    int inputs, outputs;
    pl_precision_class_t precision;
    pl_op_kind_t kind;
} pl_operator_t;

PL_API extern const pl_operator_t pl_operators[PL_OPCODES];

/* Where a value comes from. */
typedef enum pl_source {
    PL_FROM_OP,                               /* output `index` of operation `op` */
    PL_FROM_INPUT,                            /* batch field `index` */
    PL_FROM_REGION,                           /* region `index`, from element `offset` on,
                                                 contiguous */
    PL_FROM_SCALAR,                           /* slot `index` of the step block */
    PL_FROM_CONSTANT,                         /* `constant`, a float32 scalar */
    PL_FROM_TENSOR,                           /* `tensor`, a constant */
} pl_source_t;

/* The elements of a constant tensor.  constants.c */
typedef struct pl_constant_tensor {
    pl_object_t object;
    uint32_t hash;                                          /* of the elements */
    size_t bytes;
    void *data;                                             /* behind it */
} pl_constant_tensor_t;

typedef struct pl_value {
    pl_source_t source;
    pl_dtype_t dtype;
    pl_shape_t shape;                           /* always contiguous, last axis fastest */
    int op;                                     /* PL_FROM_OP: the operation */
    int index;
    int64_t offset;
    double constant;
    pl_constant_tensor_t *tensor;               /* counted by the graph that was described
                                                   and by each pl_graph_copy() */
    bool grad;                                  /* depends on a parameter */
} pl_value_t;

/* Running statistics that follow moments. */
typedef struct pl_running {
    int64_t mean, var;                                      /* in PL_REGION_STATE */
    int64_t channels;
    double momentum;                                        /* share of the new value */
} pl_running_t;

/* Windows over the axes of space, with three numbers each: an x with fewer such axes uses
 * the last ones, and the first are 1, of padding 0. */
typedef struct pl_window {
    int64_t kernel[PL_SPACE], stride[PL_SPACE], dilation[PL_SPACE];
    int64_t before[PL_SPACE], behind[PL_SPACE];             /* padding */
} pl_window_t;

typedef struct pl_attr {
    double a, b;
    int axis;
    unsigned axes;                                          /* bit mask */
    bool keep, transpose_a, transpose_b, causal, has_ignore, accumulate, empty, is_rms,
        of_logs;
    bool adaptive, counts_padding;                          /* of pools */
    int order[PL_DIMS];
    pl_shape_t shape;                  /* of the output, where the inputs do not determine
                                          it: reshape, broadcast, range, and gradients of
                                          moves and products */
    int64_t from, to;
    pl_window_t window;                 /* of convolutions and pools */
    int64_t groups;                     /* of convolutions */
    int64_t at[PL_DIMS], step[PL_DIMS];  /* of pad: along each axis element i of the input
                                            is element at + i step of the output; of
                                            slice: step along attr.axis */
    bool linear;                        /* interpolate: between neighbours  [nearest] */
    pl_dtype_t dtype;                   /* of cast, convert and range; on CPUs, of the
                                           factors of a product */
    uint64_t stream;                    /* random stream: hash of the operator's path */
    pl_running_t running;               /* of a collective of moments */
    const char *watches;                /* guard: the operator whose result, of any shape,
                                           it watches; a value that is not finite is an
                                           error  [NULL: it guards a scalar] */
    bool backward;                      /* guard: in backward */
    const pl_operator_ops_t *table;     /* of apply, with the values passed to it */
    union {
        max_align_t align;
        char byte[PL_OPERATOR_SELF];
    } self;
} pl_attr_t;

typedef struct pl_op {
    pl_opcode_t code;
    int input_count, output_count;
    int32_t input[PL_OP_INPUTS];                            /* value numbers */
    int32_t output[PL_OP_OUTPUTS];
    pl_attr_t attr;
    char path[64];                          /* "h.0.fc1": for messages */
    int checkpoint;                         /* number of its outermost pl_checkpoint()
                                               [0: none] */
    bool is_repeated;                       /* computed again for backward: it must stay
                                               behind what comes before it */
    const char *gradient_of;                /* the operator whose gradient this is part of
                                               [NULL: forward] */
} pl_op_t;

/* Where the values of a state lie among the sums of its metric: [rows, columns], or slots
 * of 1 + rows columns numbers. */
typedef struct pl_state_layout {
    pl_combine_t combine;
    int64_t rows, columns;
} pl_state_layout_t;

typedef struct pl_custom_metric {
    char name[32];
    const pl_metric_ops_t *ops;
    double parameter;
    int slots, states;
    bool only_sums;
    pl_state_layout_t state[PL_METRIC_STATES];
} pl_custom_metric_t;

/* Maximum number of custom metrics of a step. */
enum { PL_CUSTOM_METRICS = 16 };
/* The step scalar of graphs that evaluate: the slot of this replay. */
enum { PL_SCALAR_SLOT = 0 };

/* A result of a replay for the host. */
typedef struct pl_fetch {
    char name[48];                                    /* "loss", "acc", "logits" */
    enum { PL_FETCH_METRIC, PL_FETCH_OUTPUT } kind;   /* a (sum, weight) pair; a tensor */
    int32_t value, weight;                            /* value numbers; weight of
                                                         metrics only */
    pl_metric_kind_t metric;                          /* metrics only, as average */
    pl_average_t average;
    double parameter;                                     /* of the kind: beta */
    int custom;                                           /* of that kind: its number */
    int64_t sums;                                         /* numbers; a pair has 2 */
    int64_t columns;                                      /* of their shape's last axis */
    int when;                                             /* pl_log_when_t bits, metrics
                                                             only */
} pl_fetch_t;

/* Maximum number of sums of all metrics of a step. */
#define PL_SUMS_MAX 65536

struct pl_model;

/* Maximum number of ranges of gradients, or parameters, that are reported when ready. */
enum { PL_GRAD_BUCKETS_MAX = 64 };

struct pl_graph {
    int64_t collective_elements;            /* elements of PL_REGION_COLLECTIVE in use, */
    int collectives;                        /* in this number of pieces */
    pl_value_t *value;
    int value_count, value_capacity;
    pl_op_t *op;
    int op_count, op_capacity;
    pl_fetch_t *fetch;                          /* fetch 0 is the loss, if there is one */
    int fetch_count, fetch_capacity;

    struct pl_map *places;                      /* of PL_FROM_REGION values: number + 1 */

    struct pl_model *model;            /* parameters and state by path; counted  [none] */
    pl_custom_metric_t custom[PL_CUSTOM_METRICS];
    int customs;
    int64_t *gathered;                           /* rows of each pl_all_gather() so far */
    int gathers, gather_capacity;
    const struct pl_graph *largest;           /* of the largest batch, while this one is
                                                 described  [NULL: this one is it] */
    int slots;                                /* for values that are gathered  [0: one] */
    pl_stage_t stage;
    int objective;                     /* training: the index of the module's objective */
    int64_t batch_size;                /* of this graph's inputs */
    int rank, ranks;                   /* that have a part of each batch  [1]; ranks 0:
                                          the strategy cannot wait within a step */
    int field_count;
    pl_field_t field[PL_FIELDS];                           /* the inputs for pl_input() */
    char scope[64];                                        /* "h.3." */
    int scope_mark[8], scope_depth;
    int checkpoints, checkpoint_depth;        /* outermost pl_checkpoint() so far; open */
    char checkpoint_path[64];                 /* where the open one began */
    bool ignores_checkpoints;                 /* gradients keep all values, to compare */
    struct {
        int64_t context;                  /* tokens whose keys and values are kept  [0] */
        bool continues;                   /* with one token, at input "position" */
        int64_t elements;                 /* of PL_REGION_CACHE in use */
    } cache;
    unsigned random_count;                  /* random operators without a name so far, for
                                               their streams */
    int64_t bucket[PL_GRAD_BUCKETS_MAX + 1];  /* elements of the region,
                                                 falling: bucket k is
                                                 [bucket[k + 1], bucket[k]) */
    int bucket_count;                       /* 0: no reports */
    bool bucket_params;                     /* of parameters, which the graph updates */
    pl_error_t error;                       /* the first; code 0: none */
};

/* A graph for a stage of a module: its inputs are `fields` with a leading axis of
 * batch_size.  It holds a reference to the model, which may grow (see model.h)  [NULL: no
 * model, for optimizers]. */
PL_API pl_graph_t *pl_graph_new(struct pl_model *model, pl_stage_t stage,
                                const pl_field_t *fields, int field_count,
                                int64_t batch_size, pl_error_t *err);
PL_API void pl_graph_free(pl_graph_t *g);

/* PL_OK, or the first error of the graph. */
PL_API int pl_graph_check(const pl_graph_t *g, pl_error_t *err);

/* Elements of a region from offset on, in a shape; a slot of the step block. */
PL_API pl_node_t pl_region_view(pl_graph_t *g, pl_region_t region, int64_t offset,
                                pl_shape_t shape);
PL_API pl_node_t pl_step_scalar(pl_graph_t *g, int slot);

/* An in-graph collective: reserve a piece of PL_REGION_COLLECTIVE and assign the input to
 * it; after the collective the piece has the result. running: of moments  [NULL: of
 * others].  operators_effects.c */
PL_API int64_t pl_graph_collective_reserve(pl_graph_t *g, int64_t count);
PL_API void pl_graph_collective(pl_graph_t *g, pl_graph_collective_t how, int64_t from,
                                int64_t count, const pl_running_t *running);
/* Updates running statistics with the moments from an element on, after their
 * collective.  layers.c */
PL_API void pl_running_follow(pl_graph_t *g, int64_t from, const pl_running_t *running);

/* ---- Keys and values that a graph keeps while text is generated: cache.c ---- */

/* The positions of n tokens, int32 [n], if they do not begin at 0; otherwise
 * PL_NO_NODE. */
pl_node_t pl_cache_positions(pl_graph_t *g, int64_t n);
/* The rows of a table [context, C] for this graph's tokens. */
pl_node_t pl_cache_rows(pl_graph_t *g, pl_node_t rows);
/* The number of tokens that a module is for, of which a graph may have one. */
int64_t pl_cache_tokens(const pl_graph_t *g, int64_t tokens);
/* Keeps keys and values [1, heads, T, d] of causal attention.  In the graph of one token
 * it replaces them by those of all tokens, and sets *mask to those it may attend to.
 * Keys that rotary embedding turns are kept turned. */
void pl_cache_attend(pl_graph_t *g, pl_node_t *q, pl_node_t *k, pl_node_t *v,
                     pl_attention_options_t *options, pl_node_t *mask);
/* Turns queries and keys by operators of their own, so that attention need not.
 * operators_product.c */
void pl_attention_turn(pl_graph_t *g, pl_attention_options_t *options, pl_node_t *q,
                       pl_node_t *k);

/* Whether an operation writes to its input k, a piece of a region. */
static inline bool pl_op_writes(const pl_op_t *op, int k)
{
    return k == 0 && (op->code == PL_OP_assign || op->code == PL_OP_collective);
}

/* Checks shapes by the operator's rule and adds an operation; returns its first output.
 * Every operator function uses it.  `extra` receives the other outputs  [dropped]. */
PL_API pl_node_t pl_emit(pl_graph_t *g, pl_opcode_t code, const pl_node_t *inputs,
                         int input_count, const pl_attr_t *attr, pl_node_t *extra);

/* Ends the description of a training step: appends backward with d(loss sum) =
 * 1/nominal, and the assignments of each parameter's gradient, of the loss sum and of
 * its weight to PL_REGION_GRADS; accumulate: they are added to the values there.  Only
 * parameters that the graph's objective trains have gradients; zeros, if the loss does
 * not depend on them. Freezes the model, because the graph has its offsets: describe
 * every stage before. gradients.c */
PL_API int pl_graph_gradients(pl_graph_t *g, double nominal, bool accumulate,
                              pl_error_t *err);

/* Replaces parameters by their average, for graphs that do not train. */
PL_API void pl_graph_take_average(pl_graph_t *g);

/* Continues a hash [0] with the computation of a graph.  graph_hash.c */
PL_API uint32_t pl_graph_hash(uint32_t hash, const pl_graph_t *g);

/* Removes the outputs from the fetches. */
PL_API void pl_graph_drop_outputs(pl_graph_t *g);
/* Removes operations without an effect whose results are not read. */
PL_API void pl_graph_prune(pl_graph_t *g);

/* Adds guards on every result of a finished graph.  anomaly.c */
PL_API int pl_graph_detect_anomaly(pl_graph_t *g, pl_error_t *err);
/* The error PL_ENAN of such a guard; step 0: no step. */
PL_API int pl_guard_fail(const pl_op_t *guard, uint64_t step, pl_error_t *err);

/* The error PL_EINVAL of an operation with an index outside [0, below). */
PL_API int pl_index_fail(const pl_op_t *op, int64_t index, int64_t below,
                         pl_error_t *err);

/* "matmul"; of a user operator its own name. */
PL_API const char *pl_op_name(const pl_op_t *op);
/* "h.0.fc1: matmul", or the name alone outside all scopes; returns text. */
PL_API const char *pl_op_where(const pl_op_t *op, char text[128]);
/* The kernel of a user operator for a kind of accelerator; NULL: PL_EUNSUPPORTED. */
PL_API const pl_kernel_t *pl_op_kernel(const pl_op_t *op, const char *accelerator,
                                       pl_error_t *err);

/* Whether the name, the type and the shape of a field of samples in memory are valid. */
bool pl_field_is_whole(const pl_field_t *field);

PL_API int64_t pl_elements(pl_shape_t shape);
PL_API size_t pl_dtype_size(pl_dtype_t dtype);
PL_API bool pl_is_float(pl_dtype_t dtype);
PL_API bool pl_same_shape(pl_shape_t a, pl_shape_t b);
/* Writes "[64, 784]" into text and returns it. */
PL_API char *pl_shape_text(pl_shape_t shape, char text[64]);

#ifdef __cplusplus
}
#endif

#endif
