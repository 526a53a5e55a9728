/* operators.h - the rules of every operator: its shape and its gradient
 *
 * To add an element-wise operator: one line in elementwise.def.  To add another operator
 * NAME: one line in operators.def; its shape rule, gradient and
 * function next to each other in the operators_*.c of its kind, named in the table at the
 * end of that file; its kernel in accelerators/reference/ and in each accelerator; a
 * case in t/operator_cases.c (t/operators.c fails until there is one).  One that is
 * registered by name, pl_operator_ops_t, is an operation `apply` that carries its
 * table. */
#ifndef PL_TENSOR_OPERATORS_H
#define PL_TENSOR_OPERATORS_H

#include "tensor/graph.h"

#define PL_NO_NODE ((pl_node_t){-1})

typedef struct pl_rules {
    /* Checks the inputs and sets shape and dtype of out[output_count], which are
     * initialized as float32 with the first input's shape.  Calls pl_op_fail() on
     * failure. */
    int (*shape)(pl_graph_t *g, const pl_op_t *op, pl_value_t *out);
    /* Emits the computation of dx[k] = d(loss)/d(input k) from dy = d(loss)/d(first
     * output), for the inputs that pl_wants() names; the others stay PL_NO_NODE.  op
     * is a copy and lasts.  [it has no gradient] */
    void (*gradient)(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx);
    bool is_constant;                     /* the gradient is zero wherever there is one */
} pl_rules_t;

/* One table for each file operators_*.c, by opcode; empty for the operators of other
 * kinds. */
extern const pl_rules_t pl_elementwise_rules[PL_OPCODES];
extern const pl_rules_t pl_reduce_rules[PL_OPCODES];
extern const pl_rules_t pl_shapes_rules[PL_OPCODES];
extern const pl_rules_t pl_product_rules[PL_OPCODES];
extern const pl_rules_t pl_space_rules[PL_OPCODES];
extern const pl_rules_t pl_rows_rules[PL_OPCODES];
extern const pl_rules_t pl_axis_rules[PL_OPCODES];
extern const pl_rules_t pl_steps_rules[PL_OPCODES];
extern const pl_rules_t pl_types_rules[PL_OPCODES];
extern const pl_rules_t pl_user_rules[PL_OPCODES];
extern const pl_rules_t pl_ranks_rules[PL_OPCODES];
extern const pl_rules_t pl_effects_rules[PL_OPCODES];

const pl_rules_t *pl_rules_of(pl_opcode_t code);

/* For shape rules. */
const pl_value_t *pl_input_of(const pl_graph_t *g, const pl_op_t *op,
                              int k);                       /* until the next pl_emit() */
pl_shape_t pl_input_shape(const pl_graph_t *g, const pl_op_t *op, int k);
/* "h.0: add takes …" into the graph's error; returns PL_EINVAL. */
int pl_op_fail(pl_graph_t *g, const char *format, ...) PL_PRINTF(2, 3);
/* PL_OK if inputs 0 to count-1 are float32. */
int pl_want_float(pl_graph_t *g, const pl_op_t *op, int count);
/* The product of all sizes but those of the last `inner` axes. */
int64_t pl_rows(pl_shape_t shape, int inner);
/* Indices or lengths as int32 or int64: bytes are converted. */
pl_node_t pl_as_indices(pl_graph_t *g, pl_node_t x);
/* The shape as text, for the rest of the block. */
#define PL_TEXT_OF(shape) pl_shape_text(shape, (char[64]){0})
const char *pl_dtype_name(pl_dtype_t dtype);

/* Compares rows of x [..., C] with targets [...] by an operator of [rows, C], [rows] and
 * weights [none]: its sum and weight, or its only tensor as both. */
pl_metric_t pl_against_targets(pl_graph_t *g, pl_opcode_t code, pl_node_t logits,
                               pl_node_t targets, pl_attr_t attr,
                               const pl_node_t weights[2]);

/* x - target, which have one shape, and a node for the number of elements.  `name` is the
 * loss or metric in an error. */
pl_node_t pl_difference(pl_graph_t *g, const char *name, pl_node_t x, pl_node_t target,
                        pl_node_t *count);
pl_metric_t pl_squares(pl_graph_t *g, const char *name, pl_node_t x, pl_node_t target);
/* The Huber loss of each element. */
pl_node_t pl_huber_each(pl_graph_t *g, pl_node_t x, pl_node_t target, double delta);
/* The mean of losses [B, ...], each sample with its weight [B]. */
pl_loss_t pl_weighted_loss(pl_graph_t *g, const char *name, pl_node_t loss,
                           pl_node_t weights);

/* Whole numbers are cast to float32; floating-point numbers stay. */
pl_node_t pl_as_float(pl_graph_t *g, pl_node_t x);
/* A float64 field of the data is cast, too: only a run in float64 computes with it. */
pl_node_t pl_cast_field(pl_graph_t *g, pl_node_t x);
/* A comparison or a logical operator of two operands of any type. */
pl_node_t pl_compare(pl_graph_t *g, pl_opcode_t code, pl_node_t x, pl_node_t y);

/* The shape rule of a gradient whose shape is in attr.shape: a move or a product. */
int pl_shape_of_attr(pl_graph_t *g, const pl_op_t *op, pl_value_t *out);
/* The shape rule of gradients of all inputs, which follow dy as inputs. */
int pl_shape_of_inputs(pl_graph_t *g, const pl_op_t *op, pl_value_t *out);

/* Turns the queries and keys of attentions by operators of their own.  Libraries of
 * devices compute attention in halves and turn nothing.  operators_product.c */
void pl_graph_turn_apart(pl_graph_t *g);

/* For gradients. */
bool pl_wants(const pl_graph_t *g, const pl_op_t *op, int k);
pl_node_t pl_node_of(int32_t value);
pl_node_t pl_emit1(pl_graph_t *g, pl_opcode_t code, pl_node_t x);
pl_node_t pl_emit2(pl_graph_t *g, pl_opcode_t code, pl_node_t a, pl_node_t b);
/* dy summed over the axes along which `shape` was broadcast to the shape of dy. */
pl_node_t pl_sum_to(pl_graph_t *g, pl_node_t dy, pl_shape_t shape);
pl_node_t pl_broadcast_to(pl_graph_t *g, pl_node_t x, pl_shape_t shape);

/* A value that is a piece of a region; the same piece twice is the same value. */
pl_node_t pl_region_value(pl_graph_t *g, pl_region_t region, int64_t offset,
                          pl_shape_t shape, bool grad);
pl_node_t pl_value_add(pl_graph_t *g, const pl_value_t *value);

/* The axis counted from the front; -1: the graph has failed, with the operator's name. */
int pl_axis_of(pl_graph_t *g, const char *name, pl_node_t x, int axis);

/* The axes as a bit mask; all of them when none is named.  False when the graph has
 * failed. */
bool pl_axes_mask(pl_graph_t *g, const char *name, pl_node_t x, const int *axes,
                  int count, unsigned *mask);

/* Element j of an axis of `size` elements that is resized to `count`: x[low] + share
 * (x[high] - x[low]).  The middles of the elements are evenly spaced over both, and the
 * arithmetic is exact, so that all devices choose the same elements. */
typedef struct pl_interpolate_source {
    int64_t low, high;
    double share;                                           /* of x[high]; nearest: 0 */
} pl_interpolate_source_t;

/* Maximum size of a resized axis, before and after. */
#define PL_INTERPOLATE_MAX (1 << 20)

static inline pl_interpolate_source_t pl_interpolate_source(bool linear, int64_t size,
                                                            int64_t count, int64_t j)
{
    const int64_t nearest = j * size / count, twice = (2 * j + 1) * size - count,
                  at = twice > 0 ? twice : 0, low = at / (2 * count);
    if (!linear)
        return (pl_interpolate_source_t){nearest, nearest, 0};
    return (pl_interpolate_source_t){low, low + 1 < size ? low + 1 : low,
                                     (double)(at % (2 * count)) / (double)(2 * count)};
}

/* "h.3.attn", the scope without its dot, with which messages and streams begin. */
const char *pl_path(const pl_graph_t *g, char path[static 64]);

#endif
