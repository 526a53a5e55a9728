/* layers.c - attentions and convolutions that the backend's library computes
 *
 * Each layer is described to the backend (backend.h) with the layout of its operands in
 * memory: a library reads queries, keys and values where one product has made them, and
 * writes their gradients side by side, in place of a concat.  An attention and its
 * gradient belong together, because a library keeps other sums than the core's kernels.
 *
 * A library computes its results also after the replay was stopped, so they are allocated
 * like those of products (products.c).  If a library may not use the operands of a
 * product, a kernel of the core computes it.  That is not possible for a layer, because
 * its gradient reads the library's sums: it is an error (PL_EBUG). */
#include "accelerators/gpu/layers.h"

#include "accelerators/gpu/products.h"
#include "base/alloc.h"
#include "base/error.h"
#include "tensor/windows.h"

/* The operands of an operation, by their number in backend.h  [-1: none]. */
typedef struct layer_operands {
    int32_t value[PL_LAYER_WORKSPACE];
    bool writes[PL_LAYER_WORKSPACE];
} layer_operands_t;

static const int inputs_of[][6] = {
    [PL_LAYER_ATTENTION] = {PL_ATTENTION_Q, PL_ATTENTION_K, PL_ATTENTION_V},
    [PL_LAYER_ATTENTION_GRAD] = {PL_ATTENTION_DY, PL_ATTENTION_Q, PL_ATTENTION_K,
                                 PL_ATTENTION_V, PL_ATTENTION_Y, PL_ATTENTION_SUMS},
    [PL_LAYER_CONVOLUTION] = {PL_CONVOLUTION_X, PL_CONVOLUTION_W, PL_CONVOLUTION_BIAS},
    [PL_LAYER_CONVOLUTION_GRAD_X] = {PL_CONVOLUTION_Y, PL_CONVOLUTION_W},
    [PL_LAYER_CONVOLUTION_GRAD_W] = {PL_CONVOLUTION_Y, PL_CONVOLUTION_X},
};

static const int outputs_of[][3] = {
    [PL_LAYER_ATTENTION] = {PL_ATTENTION_Y, PL_ATTENTION_SUMS},
    [PL_LAYER_ATTENTION_GRAD] = {PL_ATTENTION_DQ, PL_ATTENTION_DK, PL_ATTENTION_DV},
    [PL_LAYER_CONVOLUTION] = {PL_CONVOLUTION_Y},
    [PL_LAYER_CONVOLUTION_GRAD_X] = {PL_CONVOLUTION_X},
    [PL_LAYER_CONVOLUTION_GRAD_W] = {PL_CONVOLUTION_W},
};

static bool kind_of(const pl_op_t *op, pl_layer_kind_t *kind)
{
    switch (op->code) {
    case PL_OP_attention: *kind = PL_LAYER_ATTENTION; return true;
    case PL_OP_attention_grad: *kind = PL_LAYER_ATTENTION_GRAD; return true;
    case PL_OP_conv: *kind = PL_LAYER_CONVOLUTION; return true;
    case PL_OP_conv_grad_x: *kind = PL_LAYER_CONVOLUTION_GRAD_X; return true;
    case PL_OP_conv_grad_w: *kind = PL_LAYER_CONVOLUTION_GRAD_W; return true;
    default: return false;
    }
}

static bool is_attention(pl_layer_kind_t kind)
{
    return kind == PL_LAYER_ATTENTION || kind == PL_LAYER_ATTENTION_GRAD;
}

static bool is_read(const pl_graph_t *g, int32_t value)
{
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count; k++)
            if (g->op[i].input[k] == value)
                return true;
    for (int i = 0; i < g->fetch_count; i++)
        if (g->fetch[i].value == value || g->fetch[i].weight == value)
            return true;
    return false;
}

/* An attention without a gradient has no sums. */
static layer_operands_t operands_of(const pl_graph_t *g, const pl_op_t *op,
                                    pl_layer_kind_t kind)
{
    layer_operands_t o;
    for (int k = 0; k < PL_LAYER_WORKSPACE; k++)
        o.value[k] = -1, o.writes[k] = false;
    for (int k = 0; k < op->input_count && k < 6; k++)
        o.value[inputs_of[kind][k]] = op->input[k];
    for (int k = 0; k < op->output_count; k++) {
        o.value[outputs_of[kind][k]] = op->output[k];
        o.writes[outputs_of[kind][k]] = true;
    }
    if (kind == PL_LAYER_ATTENTION && !is_read(g, op->output[1]))
        o.value[PL_ATTENTION_SUMS] = -1;
    return o;
}

/* ---- Layout of operands ---- */

/* The concat in the unit of an operation that has its output as an input, and the number
 * of that input; NULL: none. */
static const pl_op_t *concat_of(const gpu_codegen_t *t, const pl_op_t *op, int32_t value,
                                int *input)
{
    for (int i = 0; i < t->g->op_count; i++) {
        const pl_op_t *other = &t->g->op[i];
        if (other->code != PL_OP_concat
            || t->fusion->unit[i] != t->fusion->unit[t->g->value[op->output[0]].op])
            continue;
        for (int k = 0; k < other->input_count; k++)
            if (other->input[k] == value) {
                *input = k;
                return other;
            }
    }
    return NULL;
}

/* An operand of attention as [batches, heads, tokens, width]; false: not possible with
 * strides. */
static bool view_of(const gpu_codegen_t *t, const pl_op_t *op, const layer_operands_t *o,
                    int k, pl_view_t *view)
{
    static const int swap[] = {0, 2, 1, 3};
    const int32_t value = o->value[k];
    const bool grad = op->code == PL_OP_attention_grad;
    for (int i = 0; i < op->input_count && !o->writes[k]; i++)
        if (inputs_of[grad ? PL_LAYER_ATTENTION_GRAD : PL_LAYER_ATTENTION][i] == k) {
            *view = t->view[op->attr.from + i];
            return true;
        }
    int input = 0;
    const pl_op_t *concat = concat_of(t, op, value, &input);
    const pl_shape_t shape = t->g->value[value].shape;      /* [B, T, heads, d] */
    pl_view_t own = pl_view_whole(value, shape);
    if (concat) {
        const pl_view_t part = gpu_concat_part(t, concat, input);
        if (!pl_view_reshape(&part, shape, &own))
            return false;
    }
    *view = pl_view_permute(&own, swap);
    return true;
}

static bool is_aligned(int64_t elements, pl_dtype_t dtype)
{
    return elements * (int64_t)pl_dtype_size(dtype) % PL_PRODUCT_ALIGNMENT == 0;
}

bool gpu_layer_may_lie(const pl_value_t *target)
{
    return is_aligned(target->offset, target->dtype);
}

bool gpu_is_by_layer(const gpu_codegen_t *t, const pl_plan_t *plan, int op)
{
    const int *unit = t->fusion->unit;
    int i = op;
    while (i > 0 && unit[i - 1] == unit[op])
        i--;
    for (; plan->layer && i < t->g->op_count && unit[i] == unit[op]; i++)
        if (plan->layer[i])
            return true;
    return false;
}

/* ---- Descriptions ---- */

static bool describe_attention(const gpu_codegen_t *t, const pl_op_t *op,
                               const layer_operands_t *o, pl_layer_t *layer)
{
    const bool grad = layer->kind == PL_LAYER_ATTENTION_GRAD;
    const pl_shape_t q = t->view[op->attr.from + grad].shape,
                     keys = t->view[op->attr.from + grad + 1].shape;
    if (op->attr.b > 0 || op->input_count > (grad ? 6 : 3) || op->attr.to
        || !pl_same_shape(q, keys))
        return false;        /* only the core has this dropout, masks and other lengths */
    layer->attention.batches = q.dim[0];
    layer->attention.heads = q.dim[1];
    layer->attention.tokens = q.dim[2];
    layer->attention.width = q.dim[3];
    layer->attention.scale = op->attr.a;
    layer->attention.causal = op->attr.causal;
    for (int k = 0; k < PL_LAYER_WORKSPACE; k++) {
        int64_t *stride = layer->attention.stride[k];
        pl_view_t view;
        if (o->value[k] < 0)
            continue;
        if (k == PL_ATTENTION_SUMS) {
            stride[0] = q.dim[1] * q.dim[2];
            stride[1] = q.dim[2];
            stride[2] = 1;
            continue;
        }
        if (!view_of(t, op, o, k, &view) || !is_aligned(view.offset, layer->dtype)
            || (view.stride[3] != 1 && q.dim[3] > 1))
            return false;
        for (int i = 0; i < 3; i++)
            stride[i] = view.stride[i];
    }
    return true;
}

/* Volumes, and windows that leave out elements at the end of x, are for the core. */
static bool describe_convolution(const pl_op_t *op, pl_shape_t x, pl_shape_t y,
                                 bool has_bias, pl_layer_t *layer)
{
    const pl_window_t *w = &op->attr.window;
    int64_t in[PL_SPACE], out[PL_SPACE];
    pl_space_of(x, 1, in);
    pl_space_of(y, 1, out);
    layer->convolution.batches = x.dim[0];
    layer->convolution.height = in[1];
    layer->convolution.width = in[2];
    layer->convolution.channels = x.dim[x.rank - 1];
    layer->convolution.down = out[1];
    layer->convolution.across = out[2];
    layer->convolution.filters = y.dim[y.rank - 1];
    layer->convolution.groups = op->attr.groups;
    layer->convolution.has_bias = has_bias;
    for (int k = 0; k < 2; k++) {
        layer->convolution.kernel[k] = w->kernel[1 + k];
        layer->convolution.stride[k] = w->stride[1 + k];
        layer->convolution.dilation[k] = w->dilation[1 + k];
        layer->convolution.before[k] = w->before[1 + k];
        layer->convolution.behind[k] = w->behind[1 + k];
        if (w->behind[1 + k] < 0)
            return false;
    }
    return x.rank < 5;
}

/* False: it is no layer, or one that a library does not compute as the core does. */
static bool describe(const gpu_codegen_t *t, const pl_op_t *op, pl_layer_t *layer)
{
    *layer = (pl_layer_t){0};
    if (!kind_of(op, &layer->kind))
        return false;
    const layer_operands_t o = operands_of(t->g, op, layer->kind);
    layer->dtype = t->g->value[op->input[0]].dtype;
    if (layer->dtype == PL_F64)
        return false;
    for (int k = 0; k < PL_LAYER_WORKSPACE; k++) {
        if (o.value[k] < 0 || (is_attention(layer->kind) && k == PL_ATTENTION_SUMS))
            continue;
        const pl_value_t *value = &t->g->value[o.value[k]],
                         *root = &t->g->value[t->fusion->root[o.value[k]]];
        if (root->source == PL_FROM_CONSTANT || root->source == PL_FROM_SCALAR
            || root->dtype != layer->dtype || value->dtype != layer->dtype
            || (root->source == PL_FROM_REGION && !is_aligned(root->offset, root->dtype))
            || (o.writes[k] && !is_read(t->g, o.value[k])))
            return false;
    }
    if (is_attention(layer->kind))
        return describe_attention(t, op, &o, layer);
    const pl_shape_t x = t->g->value[o.value[PL_CONVOLUTION_X]].shape,
                     y = t->g->value[o.value[PL_CONVOLUTION_Y]].shape;
    return describe_convolution(op, x, y, o.value[PL_CONVOLUTION_BIAS] >= 0, layer);
}

/* ---- Choice of layers ---- */

static void layer_drop(pl_gpu_t *gpu, pl_plan_t *plan, int i)
{
    if (plan->layer[i] && gpu->backend->layer_free)
        gpu->backend->layer_free(gpu, plan->layer[i]);
    plan->layer[i] = NULL;
}

/* An attention is a layer only together with all its gradients, which read its sums. */
static void sums_match(pl_gpu_t *gpu, pl_graph_t *g, pl_plan_t *plan, int i)
{
    enum { SUMS = 5 };                                   /* of the inputs of a gradient */
    const int32_t sums = g->op[i].output[1];
    bool whole = plan->layer[i];
    for (int k = 0; k < g->op_count; k++)
        for (int n = 0; n < g->op[k].input_count; n++)
            if (g->op[k].input[n] == sums)
                whole &= g->op[k].code == PL_OP_attention_grad && plan->layer[k];
    if (whole)
        g->value[sums].dtype = PL_F32;
    else
        layer_drop(gpu, plan, i);
    for (int k = 0; k < g->op_count && !whole; k++)
        if (g->op[k].code == PL_OP_attention_grad && g->op[k].input[SUMS] == sums)
            layer_drop(gpu, plan, k);
}

int gpu_layers_find(pl_gpu_t *gpu, const gpu_codegen_t *t, pl_graph_t *g, pl_plan_t *plan,
                    pl_error_t *err)
{
    const size_t count = (size_t)g->op_count;
    int code = PL_OK;
    if (!gpu->backend->layer_new)
        return PL_OK;
    plan->layer = pl_alloc_array(count, sizeof(pl_layer_plan_t *));
    plan->built = pl_alloc_array(count, sizeof(pl_layer_plan_t *));
    if (!plan->layer || !plan->built)
        return pl_no_memory(err);
    plan->layers = g->op_count;
    for (int i = 0; i < g->op_count && code == PL_OK; i++) {
        pl_layer_t layer;
        if (!describe(t, &g->op[i], &layer))
            continue;
        code = gpu->backend->layer_new(gpu, &layer, &plan->layer[i], err);
        if (code != PL_EUNSUPPORTED)
            continue;
        plan->layer[i] = NULL;
        code = PL_OK;
    }
    for (int i = 0; i < g->op_count && code == PL_OK; i++)
        if (g->op[i].code == PL_OP_attention)
            sums_match(gpu, g, plan, i);
    for (int i = 0; i < g->op_count && code == PL_OK; i++) {
        int k = 0;
        while (k < plan->builts && plan->built[k] != plan->layer[i])
            k++;
        if (plan->layer[i] && k == plan->builts)
            plan->built[plan->builts++] = plan->layer[i];
    }
    return code;
}

/* ---- Launches ---- */

static gpu_buffer_t buffer_of(const gpu_codegen_t *t, const pl_op_t *op,
                              const layer_operands_t *o, pl_layer_kind_t kind, int k)
{
    const int32_t value = o->value[k];
    int input;
    const pl_op_t *concat = concat_of(t, op, value, &input);
    pl_view_t view;
    gpu_buffer_t buffer = gpu_buffer_of(t, concat ? concat->output[0] : value);
    if (is_attention(kind) && k == PL_ATTENTION_SUMS) {     /* half of the size for
                                                               kernels */
        buffer.bytes /= 2, buffer.reach /= 2, buffer.count /= 2;
    } else if (is_attention(kind) && view_of(t, op, o, k, &view)) {
        const size_t width = buffer.reach / (buffer.count ? buffer.count : 1),
                     before = (size_t)view.offset * width;
        const size_t bytes = (size_t)pl_elements(view.shape) * width;
        buffer.offset += before;
        buffer.reach -= before;
        buffer.count -= (size_t)view.offset;
        buffer.bytes = bytes;
    }
    buffer.reads = !o->writes[k];
    buffer.writes = o->writes[k];
    buffer.made = buffer.writes ? buffer.value : 0;
    return buffer;
}

bool gpu_layer_put(gpu_codegen_t *t, const pl_plan_t *plan, int i)
{
    static const char *const names[] = {"attention", "attention_grad", "conv", "conv_dx",
                                        "conv_dw"};
    pl_layer_plan_t *layer = plan->layer ? plan->layer[i] : NULL;
    const pl_op_t *op = &t->g->op[i];
    pl_layer_kind_t kind;
    gpu_buffer_t buffer[PL_LAYER_ADDRESSES];
    char where[128];
    if (!layer || !kind_of(op, &kind))
        return false;
    const layer_operands_t o = operands_of(t->g, op, kind);
    for (int k = 0; k < PL_LAYER_ADDRESSES; k++)
        buffer[k] = k < PL_LAYER_WORKSPACE && o.value[k] >= 0
                        ? buffer_of(t, op, &o, kind, k)
                        : (gpu_buffer_t){.at = GPU_IN_SCRATCH};
    gpu_parts_close(t);
    if (t->error.code == PL_OK && !gpu_library_may_use(plan, buffer, PL_LAYER_ADDRESSES))
        pl_fail(&t->error, PL_EBUG,
                "%s: the library of the backend may not use its operands",
                pl_op_where(op, where));
    gpu_kernel_t *kernel = gpu_library_kernel(t, names[kind], buffer, PL_LAYER_ADDRESSES);
    if (kernel)
        kernel->layer = layer;
    return true;
}

void gpu_layers_free(pl_gpu_t *gpu, pl_plan_t *plan)
{
    for (int k = 0; k < plan->layers; k++)
        layer_drop(gpu, plan, k);
    pl_free(plan->layer);
    pl_free(plan->built);
}
