/* operators_rows.c - operators along rows: softmax, normalisation, embedding, cross
 * entropy, connectionist temporal classification
 *
 * layers.c makes the parameters of those that have some. */
#include "tensor/operators.h"

/* PL_OK when input k holds indices of the given shape. */
static int want_indices(pl_graph_t *g, const pl_op_t *op, int k, pl_shape_t shape)
{
    const pl_value_t *v = pl_input_of(g, op, k);
    if ((v->dtype == PL_I32 || v->dtype == PL_I64) && pl_same_shape(v->shape, shape))
        return PL_OK;
    return pl_op_fail(g, "%s takes indices int32 or int64 %s, got %s %s",
                      pl_operators[op->code].name, PL_TEXT_OF(shape),
                      pl_dtype_name(v->dtype), PL_TEXT_OF(v->shape));
}

/* PL_OK when inputs from k to 4 are [channels]. */
static int want_channels(pl_graph_t *g, const pl_op_t *op, int k, int64_t channels)
{
    for (; k < op->input_count && k < 5; k++)
        if (!pl_same_shape(pl_input_shape(g, op, k), PL_SHAPE(channels)))
            return pl_op_fail(g, "%s takes weight and bias [%lld], got %s",
                              pl_operators[op->code].name, (long long)channels,
                              PL_TEXT_OF(pl_input_shape(g, op, k)));
    return PL_OK;
}

/* ---- softmax ---- */

static int shape_softmax(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    if (out->shape.rank < 1)
        return pl_op_fail(g, "softmax takes at least one axis, got a scalar");
    return pl_want_float(g, op, op->input_count);
}

pl_node_t pl_softmax(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_softmax, x);
}

static void gradient_softmax(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                             pl_node_t *dx)
{
    dx[0] = pl_emit2(g, PL_OP_softmax_grad, dy, pl_node_of(op->output[0]));
}

/* ---- layer_norm ---- */

static int shape_layer_norm(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_shape_t x = out->shape, w = pl_input_shape(g, op, 1),
                     b = pl_input_shape(g, op, 2);
    if (pl_want_float(g, op, 3) != PL_OK)
        return PL_EINVAL;
    if (x.rank < 1)
        return pl_op_fail(g, "layer_norm takes at least one axis, got a scalar");
    const int64_t rows = pl_rows(x, 1), width = x.dim[x.rank - 1],
                  groups = op->attr.to ? op->attr.to : 1,
                  weights = w.rank == 1 ? w.dim[0] : groups;
    if (groups < 1 || rows % groups || weights % groups || width % (weights / groups)
        || w.rank > 1 || (b.rank && !pl_same_shape(b, w)))
        return pl_op_fail(
            g, "layer_norm of %s in %lld groups takes weight and bias [%lld], got %s, %s",
            PL_TEXT_OF(x), (long long)groups, (long long)width, PL_TEXT_OF(w),
            PL_TEXT_OF(b));
    out[1].shape = out[2].shape = PL_SHAPE(rows);
    return PL_OK;
}

/* dx, dw, db of the shapes of x, w and b, which are inputs 1, 2 and (as w) 2. */
static int shape_norm_grad(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    out[1].shape = out[2].shape = pl_input_shape(g, op, 2);
    return pl_want_float(g, op, 5);
}

static void gradient_norm(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    const bool is_layer = op->code == PL_OP_layer_norm;
    pl_node_t inputs[] = {dy, pl_node_of(op->input[0]), pl_node_of(op->input[1]),
                          pl_node_of(op->output[1]), pl_node_of(op->output[2])};
    dx[0] = pl_emit(g, is_layer ? PL_OP_layer_norm_grad : PL_OP_batch_norm_grad, inputs,
                    5, &op->attr, dx + 1);
}

/* ---- batch_norm ---- */

/* Of batch_norm, which has its statistics as outputs, and of batch_norm_with. */
static int shape_batch_norm(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    pl_shape_t x = out->shape;
    if (pl_want_float(g, op, op->input_count) != PL_OK)
        return PL_EINVAL;
    if (x.rank < 2)
        return pl_op_fail(g, "batch_norm takes x [B, C, ...], got %s", PL_TEXT_OF(x));
    for (int k = 1; k < op->output_count; k++)
        out[k].shape = pl_input_shape(g, op, 1);
    return want_channels(g, op, 1, x.dim[1]);
}

/* The two sums that dx needs are over all ranks; dw and db are those of this rank,
 * because gradients are summed over ranks later. */
static void gradient_batch_norm_with(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                                     pl_node_t *dx)
{
    if (op->input_count < 6) {
        pl_op_fail(g, "batch_norm_with has no gradient: its statistics are given");
        return;
    }
    pl_node_t inputs[8] = {dy, pl_node_of(op->input[0]), pl_node_of(op->input[1]),
                           pl_node_of(op->input[3]), pl_node_of(op->input[4])};
    pl_emit(g, PL_OP_batch_norm_grad, inputs, 5, &op->attr, dx + 1);
    if (!pl_wants(g, op, 0))
        return;
    const pl_shape_t shape = pl_input_shape(g, op, 1);
    const int64_t from = pl_graph_collective_reserve(g, shape.dim[0]),
                  to = pl_graph_collective_reserve(g, shape.dim[0]);
    inputs[5] = pl_region_view(g, PL_REGION_COLLECTIVE, from, shape);
    inputs[6] = pl_region_view(g, PL_REGION_COLLECTIVE, to, shape);
    inputs[7] = pl_node_of(op->input[5]);
    pl_assign(g, inputs[5], dx[1]);
    pl_assign(g, inputs[6], dx[2]);
    pl_graph_collective(g, PL_GRAPH_COLLECTIVE_SUM, from, g->collective_elements - from,
                        NULL);
    dx[0] = pl_emit(g, PL_OP_batch_norm_grad, inputs, 8, &op->attr, NULL);
}

/* ---- embedding ---- */

static int shape_embedding(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    pl_shape_t indices = out->shape, w = pl_input_shape(g, op, 1);
    if (want_indices(g, op, 0, indices) != PL_OK)
        return PL_EINVAL;
    if (w.rank != 2 || pl_input_of(g, op, 1)->dtype != PL_F32 || indices.rank == PL_DIMS)
        return pl_op_fail(
            g,
            "embedding takes a weight [rows, width] and indices of up to %d "
            "axes, got %s and %s",
            PL_DIMS - 1, PL_TEXT_OF(w), PL_TEXT_OF(indices));
    out->shape.dim[out->shape.rank++] = w.dim[1];
    return PL_OK;
}

static int shape_embedding_grad(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    (void)g;
    out->shape = op->attr.shape;
    return PL_OK;
}

static void gradient_embedding(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                               pl_node_t *dx)
{
    pl_attr_t attr = {.shape = pl_input_shape(g, op, 1)};
    dx[1] = pl_emit(g, PL_OP_embedding_grad, (pl_node_t[]){pl_node_of(op->input[0]), dy},
                    2, &attr, NULL);
}

/* ---- cross_entropy, correct, confusion, score_bins: [rows, C] against [rows] ---- */

/* PL_OK when input k, if it is there, holds n weights or one for all. */
static int want_weights(pl_graph_t *g, const pl_op_t *op, int k, int64_t n)
{
    if (k >= op->input_count)
        return PL_OK;
    const pl_value_t *v = pl_input_of(g, op, k);
    if (v->dtype == PL_F32 && (!v->shape.rank || pl_same_shape(v->shape, PL_SHAPE(n))))
        return PL_OK;
    return pl_op_fail(g, "cross_entropy takes float32 weights [%lld], got %s %s",
                      (long long)n, pl_dtype_name(v->dtype), PL_TEXT_OF(v->shape));
}

static int shape_cross_entropy(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    pl_shape_t logits = out->shape;
    if (pl_want_float(g, op, 1) != PL_OK)
        return PL_EINVAL;
    if (logits.rank != 2)
        return pl_op_fail(g, "%s takes logits [rows, C], got %s",
                          pl_operators[op->code].name, PL_TEXT_OF(logits));
    if (want_weights(g, op, 2, logits.dim[1]) != PL_OK
        || want_weights(g, op, 3, logits.dim[0]) != PL_OK)
        return PL_EINVAL;
    out[0].shape = out[1].shape = (pl_shape_t){0};
    if (op->output_count == 3)
        out[2].shape = PL_SHAPE(2, logits.dim[0]);
    return want_indices(g, op, 1, PL_SHAPE(logits.dim[0]));
}

pl_metric_t pl_against_targets(pl_graph_t *g, pl_opcode_t code, pl_node_t logits,
                               pl_node_t targets, pl_attr_t attr,
                               const pl_node_t weights[2])
{
    pl_shape_t x = pl_shape_of(g, logits), y = pl_shape_of(g, targets), rows = x;
    rows.rank = x.rank > 0 ? x.rank - 1 : 0;
    if (!g->error.code && (x.rank < 1 || !pl_same_shape(rows, y)))
        pl_op_fail(g, "%s takes logits [..., C] and targets [...], got %s and %s",
                   pl_operators[code].name, PL_TEXT_OF(x), PL_TEXT_OF(y));
    pl_node_t extra[2] = {PL_NO_NODE, PL_NO_NODE};
    pl_node_t inputs[4] = {pl_reshape(g, logits, PL_SHAPE(-1, pl_dim(g, logits, -1))),
                           pl_reshape(g, targets, PL_SHAPE(-1))};
    for (int k = 0; weights && k < 2; k++)
        inputs[2 + k] = weights[k];
    pl_node_t sum = pl_emit(g, code, inputs, weights ? 4 : 2, &attr, extra);
    return (pl_metric_t){.sum = sum,
                         .weight = code == PL_OP_correct || code == PL_OP_cross_entropy
                                       ? extra[0]
                                       : sum};
}

static int shape_confusion(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    int code = shape_cross_entropy(g, op, out);
    int64_t classes = pl_input_shape(g, op, 0).dim[1];
    out->shape = op->code == PL_OP_confusion ? PL_SHAPE(classes, classes)
                                             : PL_SHAPE(classes, 2, op->attr.to);
    return code;
}

static pl_loss_t cross_entropy(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                               const pl_cross_entropy_options_t *options, bool of_logs)
{
    const pl_cross_entropy_options_t none = {0}, *o = options ? options : &none;
    const pl_attr_t attr = {.a = o->label_smoothing,
                            .has_ignore = o->has_ignore,
                            .from = o->ignore_index,
                            .of_logs = of_logs};
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1))
        pl_op_fail(g, "%s takes a label_smoothing from 0 up to 1, got %g",
                   of_logs ? "nll" : "cross_entropy", o->label_smoothing);
    if (!o->class_weights && !o->weights)
        return pl_against_targets(g, PL_OP_cross_entropy, logits, targets, attr, NULL);
    const pl_node_t weights[2] = {o->class_weights ? *o->class_weights : pl_scalar(g, 1),
                                  o->weights ? pl_reshape(g, *o->weights, PL_SHAPE(-1))
                                             : pl_scalar(g, 1)};
    return pl_against_targets(g, PL_OP_cross_entropy, logits, targets, attr, weights);
}

pl_loss_t pl_cross_entropy(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                           const pl_cross_entropy_options_t *options)
{
    return cross_entropy(g, logits, targets, options, false);
}

pl_loss_t pl_nll(pl_graph_t *g, pl_node_t log_probabilities, pl_node_t targets,
                 const pl_cross_entropy_options_t *options)
{
    return cross_entropy(g, log_probabilities, targets, options, true);
}

static void gradient_cross_entropy(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                                   pl_node_t *dx)
{
    pl_node_t inputs[] = {dy,
                          pl_node_of(op->input[0]),
                          pl_node_of(op->input[1]),
                          pl_node_of(op->output[2]),
                          pl_node_of(op->input[2]),
                          pl_node_of(op->input[3])};
    dx[0] = pl_emit(g, PL_OP_cross_entropy_grad, inputs, op->input_count + 2, &op->attr,
                    NULL);
}

/* ---- ctc ---- */

static int shape_ctc(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_shape_t x = out->shape, targets = pl_input_shape(g, op, 1);
    if (pl_want_float(g, op, 1) != PL_OK)
        return PL_EINVAL;
    if (x.rank != 3 || targets.rank != 2 || targets.dim[0] != x.dim[0])
        return pl_op_fail(g,
                          "ctc takes log probabilities [B, T, C] and targets [B, S], got "
                          "%s and %s",
                          PL_TEXT_OF(x), PL_TEXT_OF(targets));
    if (op->attr.from < 0 || op->attr.from >= x.dim[2])
        return pl_op_fail(g, "ctc takes a blank from 0 to %lld, got %lld",
                          (long long)x.dim[2] - 1, (long long)op->attr.from);
    for (int k = 1; k < 4; k++)
        if (want_indices(g, op, k, k == 1 ? targets : PL_SHAPE(x.dim[0])) != PL_OK)
            return PL_EINVAL;
    out[0].shape = PL_SHAPE(x.dim[0]);
    out[1].shape = PL_SHAPE(x.dim[0], x.dim[1], 2 * targets.dim[1] + 1);
    return PL_OK;
}

static int shape_ctc_grad(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    out->shape = pl_input_shape(g, op, 1);
    return pl_want_float(g, op, 2);
}

static void gradient_ctc(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    pl_node_t inputs[6] = {dy};
    for (int k = 0; k < 4; k++)
        inputs[1 + k] = pl_node_of(op->input[k]);
    inputs[5] = pl_node_of(op->output[1]);
    dx[0] = pl_emit(g, PL_OP_ctc_grad, inputs, 6, &op->attr, NULL);
}

/* Kernels take int32. */
static pl_node_t as_int32(pl_graph_t *g, pl_node_t x)
{
    const pl_dtype_t dtype = pl_dtype_of(g, x);
    return dtype == PL_I64 || dtype == PL_U8 ? pl_cast(g, x, PL_I32) : x;
}

pl_loss_t pl_ctc(pl_graph_t *g, pl_node_t log_probabilities, pl_node_t targets,
                 pl_node_t input_lengths, pl_node_t target_lengths,
                 const pl_ctc_options_t *options)
{
    const pl_ctc_options_t o = options ? *options : (pl_ctc_options_t){0};
    const pl_node_t labels = as_int32(g, target_lengths),
                    inputs[] = {log_probabilities, as_int32(g, targets),
                                as_int32(g, input_lengths), labels};
    pl_node_t losses = pl_emit(g, PL_OP_ctc, inputs, 4,
                               &(pl_attr_t){.from = o.blank, .keep = o.zero_infinity},
                               NULL);
    if (!o.sum)
        losses = pl_div(g, losses,
                        pl_maximum(g, pl_cast(g, labels, PL_F32), pl_scalar(g, 1)));
    const double count = g->error.code ? 1 : (double)pl_elements(pl_shape_of(g, losses));
    return pl_pair(pl_sum(g, losses, NULL, 0, false), pl_scalar(g, o.sum ? 1 : count));
}

const pl_rules_t pl_rows_rules[PL_OPCODES] = {
    [PL_OP_softmax] = {shape_softmax, gradient_softmax},
    [PL_OP_softmax_grad] = {shape_softmax, NULL},
    [PL_OP_layer_norm] = {shape_layer_norm, gradient_norm},
    [PL_OP_layer_norm_grad] = {shape_norm_grad, NULL},
    [PL_OP_batch_norm] = {shape_batch_norm, gradient_norm},
    [PL_OP_batch_norm_with] = {shape_batch_norm, gradient_batch_norm_with},
    [PL_OP_batch_norm_grad] = {shape_norm_grad, NULL},
    [PL_OP_embedding] = {shape_embedding, gradient_embedding},
    [PL_OP_embedding_grad] = {shape_embedding_grad, NULL},
    [PL_OP_cross_entropy] = {shape_cross_entropy, gradient_cross_entropy},
    [PL_OP_cross_entropy_grad] = {pl_shape_of_inputs, NULL},
    [PL_OP_correct] = {shape_cross_entropy, NULL},
    [PL_OP_ctc] = {shape_ctc, gradient_ctc},
    [PL_OP_ctc_grad] = {shape_ctc_grad, NULL},
    [PL_OP_confusion] = {shape_confusion, NULL},
    [PL_OP_score_bins] = {shape_confusion, NULL},
};
