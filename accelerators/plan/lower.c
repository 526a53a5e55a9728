/* lower.c - converts a graph to the operations and layouts that devices compute
 *
 * Operations are converted one by one.  Each value has a view of its elements in memory.
 * A permute or slice becomes a copy; an operation that supports strides reads through the
 * view instead of the copy, and pruning removes copies that are not read.  Channels last
 * needs no other mechanism: the image that a convolution makes is a permute of its
 * channels-last result. */
#include "accelerators/plan/lower.h"

#include <string.h>

#include "accelerators/plan/view.h"
#include "base/alloc.h"
#include "base/error.h"

/* The orders of axes for [B, ..., C] of [B, C, ...] and back, by the number of axes. */
static const int to_last[][PL_DIMS] = {[3] = {0, 2, 1}, {0, 2, 3, 1}, {0, 2, 3, 4, 1}},
                 from_last[][PL_DIMS] = {[3] = {0, 2, 1}, {0, 3, 1, 2}, {0, 4, 1, 2, 3}};

typedef struct lowering {
    const pl_graph_t *from;
    pl_lowered_t *to;
    int32_t *plain;                          /* [values of from] the same value of `to` */
    pl_view_t *view;                         /* [values of to] */
    int view_capacity;
    bool failed;                              /* out of memory: the rest is not lowered */
} lowering_t;

/* ---- Adding to the new graph ---- */

static int32_t add_value(lowering_t *l, const pl_value_t *value)
{
    pl_graph_t *g = &l->to->graph;
    l->failed = l->failed || PL_GROW(l->view, g->value_count, l->view_capacity) != PL_OK
                || PL_GROW(g->value, g->value_count, g->value_capacity) != PL_OK;
    if (l->failed)
        return 0;
    g->value[g->value_count] = *value;
    l->view[g->value_count] = pl_view_whole(g->value_count, value->shape);
    return g->value_count++;
}

/* Adds an operation whose code, inputs, attributes and path are set, with outputs of the
 * shapes and types of `outputs`. */
static int32_t add_op(lowering_t *l, const pl_op_t *op, const pl_value_t *outputs)
{
    pl_graph_t *g = &l->to->graph;
    pl_op_t own = *op;
    for (int k = 0; k < op->output_count; k++)
        own.output[k] = add_value(l, &(pl_value_t){.source = PL_FROM_OP,
                                                   .dtype = outputs[k].dtype,
                                                   .shape = outputs[k].shape,
                                                   .op = g->op_count,
                                                   .index = k});
    l->failed = l->failed || PL_GROW(g->op, g->op_count, g->op_capacity) != PL_OK;
    if (l->failed)
        return 0;
    g->op[g->op_count++] = own;
    return own.output[0];
}

static int64_t add_view(lowering_t *l, const pl_view_t *view)
{
    pl_lowered_t *to = l->to;
    l->failed = l->failed || PL_GROW(to->view, to->views, to->view_capacity) != PL_OK;
    if (l->failed)
        return 0;
    to->view[to->views] = *view;
    return to->views++;
}

static pl_shape_t shape_in(const lowering_t *l, int32_t value)
{
    return l->failed ? (pl_shape_t){0} : l->to->graph.value[value].shape;
}

static pl_view_t view_in(const lowering_t *l, int32_t value)
{
    return l->failed ? (pl_view_t){0} : l->view[value];
}

/* ---- Moves ---- */

/* A value that is read through a view must not change before the read, as regions do:
 * those are copied. */

static int32_t add_reshape(lowering_t *l, const pl_op_t *for_op, int32_t value,
                           pl_shape_t shape)
{
    if (l->failed || pl_same_shape(shape_in(l, value), shape))
        return value;
    pl_op_t op = {.code = PL_OP_reshape,
                  .input_count = 1,
                  .output_count = 1,
                  .input = {value}};
    memcpy(op.path, for_op->path, sizeof op.path);
    op.is_repeated = for_op->is_repeated;
    pl_value_t out = {.dtype = l->to->graph.value[value].dtype, .shape = shape};
    int32_t result = add_op(l, &op, &out);
    pl_view_t whole = view_in(l, value), view;
    if (!l->failed && l->to->graph.value[whole.root].source != PL_FROM_REGION
        && pl_view_reshape(&whole, shape, &view))
        l->view[result] = view;
    return result;
}

/* A value with the elements of the view: the root in another shape, or a copy. */
static int32_t add_move(lowering_t *l, const pl_op_t *for_op, const pl_view_t *view)
{
    if (l->failed)
        return 0;
    const bool whole = view->offset == 0
                       && pl_elements(view->shape)
                              == pl_elements(shape_in(l, view->root));
    if (whole && pl_view_is_dense(view))
        return add_reshape(l, for_op, view->root, view->shape);
    pl_op_t op = {.code = PL_OP_permute,
                  .input_count = 1,
                  .output_count = 1,
                  .input = {view->root}};
    memcpy(op.path, for_op->path, sizeof op.path);
    op.is_repeated = for_op->is_repeated;
    op.attr.from = add_view(l, view);
    pl_value_t out = {.dtype = l->failed ? PL_F32 : l->to->graph.value[view->root].dtype,
                      .shape = view->shape};
    int32_t result = add_op(l, &op, &out);
    if (!l->failed && l->to->graph.value[view->root].source != PL_FROM_REGION)
        l->view[result] = *view;
    return result;
}

/* Inputs are read through their views. */
static void lower_concat(lowering_t *l, const pl_op_t *op)
{
    pl_op_t own = *op;
    own.attr.from = l->to->views;
    for (int k = 0; k < op->input_count; k++) {
        pl_view_t view = view_in(l, l->plain[op->input[k]]);
        own.input[k] = view.root;
        add_view(l, &view);
    }
    l->plain[op->output[0]] = add_op(l, &own, &l->from->value[op->output[0]]);
}

/* A value with the axes of another in the given order. */
static int32_t add_permuted(lowering_t *l, const pl_op_t *for_op, int32_t value,
                            const int *order)
{
    pl_view_t view = view_in(l, value);
    view = pl_view_permute(&view, order);
    return add_move(l, for_op, &view);
}

/* ---- Channels last: [B, ..., C] of [B, C, ...] with one to three axes of space ---- */

static bool has_space(pl_shape_t s)
{
    return s.rank >= 3 && s.rank <= 2 + PL_SPACE;
}

static bool is_last(const lowering_t *l, int32_t value)
{
    pl_view_t view = view_in(l, value);
    if (!has_space(view.shape) || pl_view_is_dense(&view))
        return false;
    view = pl_view_permute(&view, to_last[view.shape.rank]);
    return pl_view_is_dense(&view);
}

static pl_shape_t shape_to_last(pl_shape_t s)
{
    pl_shape_t last = {.rank = s.rank};
    for (int k = 0; k < s.rank; k++)
        last.dim[k] = s.dim[to_last[s.rank][k]];
    return last;
}

static int32_t add_to_last(lowering_t *l, const pl_op_t *for_op, int32_t value)
{
    return l->failed ? value
                     : add_permuted(l, for_op, value, to_last[shape_in(l, value).rank]);
}

static int32_t add_from_last(lowering_t *l, const pl_op_t *for_op, int32_t value)
{
    return l->failed ? value
                     : add_permuted(l, for_op, value, from_last[shape_in(l, value).rank]);
}

/* Convolutions and pools; `images` is a mask of the inputs that are images. All outputs
 * are images except weights. */
static void lower_images(lowering_t *l, const pl_op_t *op, unsigned images)
{
    pl_op_t own = *op;
    pl_value_t out[PL_OP_OUTPUTS];
    const bool weights = op->code == PL_OP_conv_grad_w;
    for (int k = 0; k < op->input_count; k++)
        own.input[k] = images >> k & 1 ? add_to_last(l, op, l->plain[op->input[k]])
                                       : l->plain[op->input[k]];
    for (int k = 0; k < op->output_count; k++) {
        out[k] = l->from->value[op->output[k]];
        if (!weights)
            out[k].shape = shape_to_last(out[k].shape);
    }
    int32_t first = add_op(l, &own, out);
    for (int k = 0; k < op->output_count && !l->failed; k++)
        l->plain[op->output[k]] = weights ? first + k : add_from_last(l, op, first + k);
}

static bool any_is_last(const lowering_t *l, const pl_op_t *op)
{
    for (int k = 0; k < op->input_count; k++)
        if (is_last(l, l->plain[op->input[k]]))
            return true;
    return false;
}

/* Converts an operation without change. */
static void lower_unchanged(lowering_t *l, const pl_op_t *op)
{
    pl_op_t own = *op;
    pl_value_t out[PL_OP_OUTPUTS];
    for (int k = 0; k < op->input_count; k++)
        own.input[k] = l->plain[op->input[k]];
    for (int k = 0; k < op->output_count; k++)
        out[k] = l->from->value[op->output[k]];
    int32_t first = add_op(l, &own, out);
    for (int k = 0; k < op->output_count; k++)
        l->plain[op->output[k]] = first + k;
}

/* Element-wise operations keep channels last, except dropout, whose mask depends on the
 * index of the element.  Repeated operands get all axes before the new order of axes. */
static void lower_elementwise(lowering_t *l, const pl_op_t *op)
{
    pl_value_t out = l->from->value[op->output[0]];
    const int rank = out.shape.rank;
    if (!has_space(out.shape) || op->code == PL_OP_dropout || !any_is_last(l, op)) {
        lower_unchanged(l, op);
        return;
    }
    pl_op_t own = *op;
    for (int k = 0; k < op->input_count; k++) {
        own.input[k] = l->plain[op->input[k]];
        pl_shape_t shape = shape_in(l, own.input[k]), full = {.rank = rank};
        for (int i = 0; i < rank; i++)
            full.dim[i] = i < rank - shape.rank ? 1 : shape.dim[i - (rank - shape.rank)];
        if (pl_elements(shape) != 1)
            own.input[k] = add_to_last(l, op, add_reshape(l, op, own.input[k], full));
    }
    out.shape = shape_to_last(out.shape);
    l->plain[op->output[0]] = add_from_last(l, op, add_op(l, &own, &out));
}

/* Pads and resizes keep channels last. */
static void lower_pad(lowering_t *l, const pl_op_t *op)
{
    if (!is_last(l, l->plain[op->input[0]])) {
        lower_unchanged(l, op);
        return;
    }
    const int rank = l->from->value[op->input[0]].shape.rank;
    pl_op_t own = *op;
    pl_value_t out = l->from->value[op->output[0]];
    own.input[0] = add_to_last(l, op, l->plain[op->input[0]]);
    own.attr.axis = from_last[rank][op->attr.axis];
    for (int i = 0; i < rank; i++) {
        own.attr.at[i] = op->attr.at[to_last[rank][i]];
        own.attr.step[i] = op->attr.step[to_last[rank][i]];
    }
    out.shape = shape_to_last(out.shape);
    l->plain[op->output[0]] = add_from_last(l, op, add_op(l, &own, &out));
}

/* A sum over the channels or over all axes of space has the same result in both
 * layouts. */
static void lower_sum(lowering_t *l, const pl_op_t *op)
{
    const pl_shape_t x = l->from->value[op->input[0]].shape;
    const unsigned axes = op->attr.axes, all = (1u << x.rank) - 1, space = all & ~3u;
    if (!is_last(l, l->plain[op->input[0]]) || (!(axes & 2) && (axes & space) != space)) {
        lower_unchanged(l, op);
        return;
    }
    pl_op_t own = *op;
    pl_value_t out = l->from->value[op->output[0]];
    const pl_shape_t shape = out.shape;
    own.input[0] = add_to_last(l, op, l->plain[op->input[0]]);
    own.attr.axes = 0;
    own.attr.keep = false;
    out.shape.rank = 0;
    for (int k = 0; k < x.rank; k++)
        if (axes >> to_last[x.rank][k] & 1)
            own.attr.axes |= 1u << k;
        else
            out.shape.dim[out.shape.rank++] = x.dim[to_last[x.rank][k]];
    l->plain[op->output[0]] = add_reshape(l, op, add_op(l, &own, &out), shape);
}

/* Batch norm of images is batch norm of [B H W, C]; `images` is a mask of the inputs that
 * are images. */
static void lower_batch_norm(lowering_t *l, const pl_op_t *op, unsigned images)
{
    const pl_shape_t shape = l->from->value[op->input[0]].shape;
    if (!has_space(shape) || !any_is_last(l, op)) {
        lower_unchanged(l, op);
        return;
    }
    pl_op_t own = *op;
    pl_value_t out[PL_OP_OUTPUTS];
    const pl_shape_t rows = PL_SHAPE(pl_elements(shape) / shape.dim[1], shape.dim[1]);
    for (int k = 0; k < op->input_count; k++) {
        own.input[k] = l->plain[op->input[k]];
        if (images >> k & 1)
            own.input[k] = add_reshape(l, op, add_to_last(l, op, own.input[k]), rows);
    }
    for (int k = 0; k < op->output_count; k++)
        out[k] = l->from->value[op->output[k]];
    out[0].shape = rows;
    int32_t first = add_op(l, &own, out);
    for (int k = 1; k < op->output_count; k++)
        l->plain[op->output[k]] = first + k;
    l->plain[op->output[0]] =
        add_from_last(l, op, add_reshape(l, op, first, shape_to_last(shape)));
}

/* ---- Attention ---- */

/* Inputs and outputs have views.  Results have the layout [B, T, heads, d], so that the
 * permute that joins the heads again needs no copy. */
static void lower_attention(lowering_t *l, const pl_op_t *op)
{
    static const int swap[] = {0, 2, 1, 3};
    pl_op_t own = *op;
    pl_value_t out[PL_OP_OUTPUTS];
    own.attr.from = l->to->views;
    for (int k = 0; k < op->input_count; k++) {
        pl_view_t view = view_in(l, l->plain[op->input[k]]);
        bool fits = view.shape.rank == 4 && view.stride[3] == 1;
        for (int i = 0; i < view.shape.rank; i++)
            fits = fits && view.stride[i] >= 0;
        if (!fits)
            view = pl_view_whole(l->plain[op->input[k]], view.shape);
        own.input[k] = view.root;
        add_view(l, &view);
    }
    for (int k = 0; k < op->output_count; k++) {
        out[k] = l->from->value[op->output[k]];
        pl_shape_t s = out[k].shape;
        if (s.rank == 4)
            out[k].shape = PL_SHAPE(s.dim[0], s.dim[2], s.dim[1], s.dim[3]);
    }
    int32_t first = add_op(l, &own, out);
    for (int k = 0; k < op->output_count && !l->failed; k++) {
        pl_view_t view = view_in(l, first + k);
        view = view.shape.rank == 4 ? pl_view_permute(&view, swap) : view;
        l->plain[op->output[k]] = add_move(l, op, &view);
    }
}

/* ---- The whole graph ---- */

static void lower_op(lowering_t *l, const pl_op_t *op)
{
    const pl_op_kind_t kind = pl_operators[op->code].kind;
    pl_view_t view;
    switch (op->code) {
    case PL_OP_permute:
        l->plain[op->output[0]] = add_permuted(l, op, l->plain[op->input[0]],
                                               op->attr.order);
        break;
    case PL_OP_slice:
        view = view_in(l, l->plain[op->input[0]]);
        view = pl_view_slice(&view, op->attr.axis, op->attr.from,
                             l->from->value[op->output[0]].shape.dim[op->attr.axis],
                             op->attr.step[op->attr.axis]);
        l->plain[op->output[0]] = add_move(l, op, &view);
        break;
    case PL_OP_across: l->plain[op->output[0]] = l->plain[op->input[0]]; break;
    case PL_OP_reshape:
        l->plain[op->output[0]] = add_reshape(l, op, l->plain[op->input[0]],
                                              l->from->value[op->output[0]].shape);
        break;
    case PL_OP_concat: lower_concat(l, op); break;
    case PL_OP_conv: lower_images(l, op, 1); break;
    case PL_OP_conv_grad_x: lower_images(l, op, 1); break;
    case PL_OP_conv_grad_w: lower_images(l, op, 3); break;
    case PL_OP_avg_pool: lower_images(l, op, 1); break;
    case PL_OP_avg_pool_grad: lower_images(l, op, 1); break;
    case PL_OP_max_pool: lower_images(l, op, 1); break;
    case PL_OP_max_pool_grad: lower_images(l, op, 3); break;
    case PL_OP_batch_norm: lower_batch_norm(l, op, 1); break;
    case PL_OP_batch_norm_with: lower_batch_norm(l, op, 1); break;
    case PL_OP_batch_norm_grad: lower_batch_norm(l, op, 3); break;
    case PL_OP_attention:
    case PL_OP_attention_grad: lower_attention(l, op); break;
    case PL_OP_sum: lower_sum(l, op); break;
    case PL_OP_pad:
    case PL_OP_interpolate:
    case PL_OP_interpolate_grad: lower_pad(l, op); break;
    default:
        if (kind == PL_KIND_element)
            lower_elementwise(l, op);
        else
            lower_unchanged(l, op);
    }
}

int pl_lower(pl_lowered_t *lowered, const pl_graph_t *g, pl_error_t *err)
{
    *lowered = (pl_lowered_t){.graph = {.stage = g->stage, .batch_size = g->batch_size}};
    lowering_t l = {.from = g, .to = lowered};
    l.plain = pl_alloc_array((size_t)g->value_count, sizeof *l.plain);
    l.failed = !l.plain;
    for (int32_t v = 0; v < g->value_count && !l.failed; v++)
        if (g->value[v].source != PL_FROM_OP)
            l.plain[v] = add_value(&l, &g->value[v]);
    for (int i = 0; i < g->op_count && !l.failed; i++)
        lower_op(&l, &g->op[i]);
    pl_graph_t *to = &lowered->graph;
    if (!l.failed)
        to->fetch = pl_alloc_array((size_t)g->fetch_count, sizeof *to->fetch);
    l.failed = l.failed || !to->fetch;
    for (int i = 0; i < g->fetch_count && !l.failed; i++) {
        pl_fetch_t *fetch = &to->fetch[to->fetch_count++];
        *fetch = g->fetch[i];
        fetch->value = l.plain[fetch->value];
        if (fetch->kind == PL_FETCH_METRIC)
            fetch->weight = l.plain[fetch->weight];
    }
    pl_free(l.plain);
    pl_free(l.view);
    if (l.failed)
        return pl_no_memory(err);
    pl_graph_prune(to);
    return PL_OK;
}

void pl_lowered_release(pl_lowered_t *lowered)
{
    pl_free(lowered->graph.value);
    pl_free(lowered->graph.op);
    pl_free(lowered->graph.fetch);
    pl_free(lowered->view);
    *lowered = (pl_lowered_t){0};
}
