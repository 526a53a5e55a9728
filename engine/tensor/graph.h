/* graph.h - what a graph is made of: values and the operations between them
 *
 * A module's step, an optimizer's update and a norm are all graphs: lists of values and
 * of operations in an order in which they can run.  Accelerators read this and compile
 * it; nothing here knows a device.  Values live in a batch field, in a flat region, in
 * the block of what changes from step to step, or are computed. */
#ifndef PL_TENSOR_GRAPH_H
#define PL_TENSOR_GRAPH_H

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
    PL_REGION_MASTER,                      /* [parameters] that the optimizer updates when
                                              parameters are of a narrower type */
    PL_REGION_STATE_BACKUP,                /* [state elements] as the newest optimizer
                                              step left them: a step that is skipped
                                              goes back to them */
    PL_REGION_STRATEGY0,                   /* PL_STRATEGY_REGIONS of them, which are the
                                              strategy's own */
    PL_REGION_SCALING = PL_REGION_STRATEGY0 + PL_STRATEGY_REGIONS,
    /* [pl_scaling_t] of a precision that scales */
    PL_REGION_COLLECTIVE,                   /* of in-graph collectives, in the middle of a
                                               step */
    PL_REGIONS,
} pl_region_t;

/* Elements: each tensor of a region begins at a multiple of so many, a cache line of
 * float32, with zeros between it and the one before it. */
#define PL_REGION_ALIGN 16

/* What PL_REGION_SCALING holds, float32 each. */
typedef enum pl_scaling {
    PL_SCALING_FACTOR,                               /* of the loss, in backward */
    PL_SCALING_GOOD,                                 /* steps in a row that were finite */
    PL_SCALING_SKIPPED,                              /* steps of the run that were not */
    PL_SCALING_COUNT,
} pl_scaling_t;

/* What a piece of PL_REGION_COLLECTIVE becomes in the collective. */
typedef enum pl_graph_collective {
    PL_GRAPH_COLLECTIVE_SUM,                /* the sum over ranks */
    PL_GRAPH_COLLECTIVE_MOMENTS,            /* means of so many channels, their variances
                                               and, in the first of PL_REGION_ALIGN
                                               elements, how many values each is of: those
                                               of the values of all ranks together */
} pl_graph_collective_t;

typedef enum pl_opcode {
#define PL_OPERATOR(name, inputs, outputs, precision, kind, meaning) PL_OP_##name,
#include "tensor/operators.def"
#undef PL_OPERATOR
    PL_OPCODES,
} pl_opcode_t;

typedef enum pl_op_kind {
    PL_KIND_unary,
    PL_KIND_binary,
    PL_KIND_reduce,
    PL_KIND_shape,
    PL_KIND_product,
    PL_KIND_row,
    PL_KIND_user,
    PL_KIND_effect,
} pl_op_kind_t;

#define PL_OP_INPUTS PL_OPERATOR_INPUTS
#define PL_OP_OUTPUTS 3
#define PL_OPS_MAX 1000000                /* of a graph: to compile more takes too long */

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
} pl_source_t;

typedef struct pl_value {
    pl_source_t source;
    pl_dtype_t dtype;
    pl_shape_t shape;                           /* always contiguous, last axis fastest */
    int op;                                     /* PL_FROM_OP: which operation */
    int index;
    int64_t offset;
    double constant;
    bool grad;                                              /* depends on a parameter */
} pl_value_t;

/* Running statistics that follow moments. */
typedef struct pl_running {
    int64_t mean, var;                                      /* in PL_REGION_STATE */
    int64_t channels;
    double momentum;                                        /* share of what is new */
} pl_running_t;

typedef struct pl_attr {
    double a, b;
    int axis;
    unsigned axes;                                          /* bit mask */
    bool keep, transpose_a, transpose_b, causal, has_ignore, accumulate, empty;
    int order[PL_DIMS];
    pl_shape_t shape;                  /* the output's, where inputs do not tell: reshape,
                                          broadcast, range, and gradients of moves and
                                          products */
    int64_t from, to;
    int64_t kernel, stride, padding;
    pl_dtype_t dtype;                     /* of cast */
    uint64_t stream;                      /* random stream: hash of the operator's path */
    pl_running_t running;                 /* of a collective of moments */
    const char *watches;                  /* guard: of any shape, on a result of an
                                             operator of this name; what is not finite
                                             is an error  [NULL: a scalar] */
    bool backward;                        /* where that is */
    const pl_operator_ops_t *table;       /* of apply, and the values it was given */
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
    const char *gradient_of;                /* part of the gradient of an operator of this
                                               name  [NULL: it is forward] */
} pl_op_t;

/* What a replay hands back to the host. */
typedef struct pl_fetch {
    char name[48];                                    /* "loss", "acc", "logits" */
    enum { PL_FETCH_METRIC, PL_FETCH_OUTPUT } kind;   /* a (sum, weight) pair; a tensor */
    int32_t value, weight;                            /* value numbers; weight of
                                                         metrics only */
    pl_metric_kind_t metric;                          /* metrics only, as the next */
    pl_average_t average;
    int64_t sums;                                         /* numbers; a pair has 2 */
    int64_t columns;                                      /* of their shape's last axis */
    int when;                                             /* pl_log_when_t bits, metrics
                                                             only */
} pl_fetch_t;

/* Sums of all metrics of a step. */
#define PL_SUMS_MAX 65536

struct pl_model;

/* Ranges of gradients, or parameters, that are reported as soon as they are ready. */
enum { PL_GRAD_BUCKETS_MAX = 64 };

struct pl_graph {
    int64_t collective_elements;           /* elements of PL_REGION_COLLECTIVE it uses, */
    int collectives;                       /* in so many pieces */
    pl_value_t *value;
    int value_count, value_capacity;
    pl_op_t *op;
    int op_count, op_capacity;
    pl_fetch_t *fetch;                       /* the loss, when there is one, is fetch 0 */
    int fetch_count, fetch_capacity;

    struct pl_map *places;             /* of values that are PL_FROM_REGION, number + 1 */

    struct pl_model *model;            /* parameters and state by path; counted  [none] */
    pl_stage_t stage;
    int objective;                    /* training: which of the module's objectives it is,
                                         from 0 */
    int64_t batch_size;               /* of this graph's inputs */
    int field_count;
    pl_field_t field[PL_FIELDS];                            /* what pl_input() finds */
    char scope[64];                                         /* "h.3." */
    int scope_mark[8], scope_depth;
    unsigned random_count;                  /* nameless random operators so far, for their
                                               streams */
    int64_t bucket[PL_GRAD_BUCKETS_MAX + 1];  /* elements of the region,
                                                 falling: bucket k is
                                                 [bucket[k + 1], bucket[k]) */
    int bucket_count;                       /* 0: nobody wants to be told */
    bool bucket_params;                     /* they are of parameters, which it updates */
    pl_error_t error;                       /* the first; code 0 when none */
};

/* A graph for a stage of a module: inputs are `fields` with a leading axis of
 * batch_size.  The model is borrowed and may grow (see model.h).  NULL for no model
 * (optimizers). */
PL_API pl_graph_t *pl_graph_new(struct pl_model *model, pl_stage_t stage,
                                const pl_field_t *fields, int field_count,
                                int64_t batch_size, pl_error_t *err);
PL_API void pl_graph_free(pl_graph_t *g);

/* PL_OK, or the error that stuck. */
PL_API int pl_graph_check(const pl_graph_t *g, pl_error_t *err);

/* n elements of a region from offset on, in a shape; slot k of the step block. */
PL_API pl_node_t pl_region_view(pl_graph_t *g, pl_region_t region, int64_t offset,
                                pl_shape_t shape);
PL_API pl_node_t pl_step_scalar(pl_graph_t *g, int slot);

/* The input of an in-graph collective is assigned to a piece of PL_REGION_COLLECTIVE,
 * which is taken for it; behind the collective it holds what came of it: sums, or
 * moments where there is something that follows them.  operators_effects.c */
PL_API int64_t pl_graph_collective_reserve(pl_graph_t *g, int64_t count);
PL_API void pl_graph_collective(pl_graph_t *g, int64_t from, int64_t count,
                                const pl_running_t *running);
/* They do, behind the collective of the moments that lie from an element on.  layers.c */
PL_API void pl_running_follow(pl_graph_t *g, int64_t from, const pl_running_t *running);

/* Whether an operation writes to its input k, a piece of a region. */
static inline bool pl_op_writes(const pl_op_t *op, int k)
{
    return k == 0 && (op->code == PL_OP_assign || op->code == PL_OP_collective);
}

/* Adds an operation after checking shapes by the operator's rule; -> its first output.
 * The way each pl_relu() goes; `extra` receives the other outputs  [not wanted]. */
PL_API pl_node_t pl_emit(pl_graph_t *g, pl_opcode_t code, const pl_node_t *inputs,
                         int input_count, const pl_attr_t *attr, pl_node_t *extra);

/* Ends the description of a training step: appends backward and the assignments of
 * each parameter's gradient, with d(loss sum) = 1/nominal, of the loss sum and of its
 * weight into PL_REGION_GRADS (added to what is there when accumulate).  Only
 * parameters that the model says the graph's objective trains have gradients; those of
 * them that the loss does not reach get zeros.  Freezes the model, for its offsets are
 * in the graph now: describe every stage first.  gradients.c */
PL_API int pl_graph_gradients(pl_graph_t *g, double nominal, bool accumulate,
                              pl_error_t *err);

/* Parameters are read from their average instead: for graphs that only look. */
PL_API void pl_graph_take_average(pl_graph_t *g);

/* A number for what it computes, on from that of what came before  [0].
 * graph_hash.c */
PL_API uint32_t pl_graph_hash(uint32_t hash, const pl_graph_t *g);

/* A graph whose outputs nobody wants: they are no fetches any more. */
PL_API void pl_graph_drop_outputs(pl_graph_t *g);
/* Drops operations whose results nobody reads and that have no effect. */
PL_API void pl_graph_prune(pl_graph_t *g);

/* Watches every result of a graph that is otherwise done: anomaly.c. */
PL_API int pl_graph_detect_anomaly(pl_graph_t *g, pl_error_t *err);
/* PL_ENAN of a guard that watches; step 0: none. */
PL_API int pl_guard_fail(const pl_op_t *guard, uint64_t step, pl_error_t *err);

/* PL_EINVAL of an operation that got an index outside [0, below). */
PL_API int pl_index_fail(const pl_op_t *op, int64_t index, int64_t below,
                         pl_error_t *err);

/* "matmul"; of a user's operator its own name. */
PL_API const char *pl_op_name(const pl_op_t *op);
/* "h.0.fc1: matmul", or the name alone outside all scopes; returns text. */
PL_API const char *pl_op_where(const pl_op_t *op, char text[128]);
/* The kernel that a user's operator brings along for a kind of accelerator, or NULL:
 * PL_EUNSUPPORTED. */
PL_API const pl_kernel_t *pl_op_kernel(const pl_op_t *op, const char *accelerator,
                                       pl_error_t *err);

/* Whether a field of samples in memory has a name, a type of data and a shape that can
 * be. */
bool pl_field_is_whole(const pl_field_t *field);

PL_API int64_t pl_elements(pl_shape_t shape);
PL_API size_t pl_dtype_size(pl_dtype_t dtype);
PL_API bool pl_is_float(pl_dtype_t dtype);
PL_API bool pl_same_shape(pl_shape_t a, pl_shape_t b);
/* "[64, 784]" into text, which it returns. */
PL_API char *pl_shape_text(pl_shape_t shape, char text[64]);

#ifdef __cplusplus
}
#endif

#endif
