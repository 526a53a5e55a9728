/* dnn_layers.c - attention, convolution and their gradients as graphs of cuDNN's
 * operations
 *
 * Not every version of cuDNN has an operation "attention".  Instead it recognizes the
 * graph of an attention, and computes it by one kernel that keeps no scores.  So the
 * order and the types of the operations matter; t/cuda_dnn.c gives each graph to cuDNN
 * itself if it is installed.
 *
 *   forward   s = scale q k^T, -inf where a query does not see a key
 *             sums = max(s) + ln(sum(e^(s - max(s)))),  y = e^(s - max(s)) / sum(...) v
 *   backward  p = e^(s - sums),  dv = p^T dy,  ds = scale p (dy v^T - sum(dy y))
 *             dq = ds k,  dk = ds^T q
 *
 * The gradient of the queries is the result of a product.  If any order is allowed, it is
 * added up in memory, which is faster and needs less workspace.  sum(dy y) is in memory,
 * and in forward the sums: in workspace, if they are not requested.
 *
 * Pictures lie in memory with their channels last, as cuDNN's fast engines need them,
 * and filters are [filters, channels / groups, kernel]: cuDNN turns those around in its
 * workspace, and finds the groups from the channels of both.  Its dimensions are
 * [batches, channels, height, width], whatever the order in memory. */
#include "accelerators/cuda/dnn.h"

/* ---- Attention ---- */

typedef struct attention {
    dnn_graph_t *graph;
    const pl_layer_t *layer;
    cu_choice_t type;
    int64_t batches, heads, tokens, width;
    dnn_shape_t scores, turned, row;    /* [tokens, tokens], its transpose, [tokens, 1] */
} attention_t;

static attention_t begin(dnn_graph_t *graph, const pl_layer_t *layer)
{
    const int64_t b = layer->attention.batches, h = layer->attention.heads,
                  t = layer->attention.tokens;
    return (attention_t){.graph = graph,
                         .layer = layer,
                         .type = dnn_type(layer->dtype),
                         .batches = b,
                         .heads = h,
                         .tokens = t,
                         .width = layer->attention.width,
                         .scores = {{b, h, t, t}, {h * t * t, t * t, t, 1}},
                         .turned = {{b, h, t, t}, {h * t * t, t * t, 1, t}},
                         .row = {{b, h, t, 1}, {h * t, t, 1, 1}}};
}

static dnn_shape_t shape_of(const attention_t *a, int operand)
{
    const int64_t *stride = a->layer->attention.stride[operand];
    return (dnn_shape_t){{a->batches, a->heads, a->tokens, a->width},
                         {stride[0], stride[1], stride[2], 1}};
}

static cudnnBackendDescriptor_t operand(const attention_t *a, int which)
{
    const dnn_shape_t shape = shape_of(a, which);
    return dnn_operand(a->graph, which + 1, a->type, &shape);
}

static cudnnBackendDescriptor_t operand_transposed(const attention_t *a, int which)
{
    const dnn_shape_t of = shape_of(a, which),
                      shape = {{of.dim[0], of.dim[1], of.dim[3], of.dim[2]},
                               {of.stride[0], of.stride[1], of.stride[3], of.stride[2]}};
    return dnn_operand(a->graph, which + 1, a->type, &shape);
}

static cudnnBackendDescriptor_t sums(const attention_t *a)
{
    const bool has = a->layer->attention.stride[PL_ATTENTION_SUMS][2];
    return dnn_operand(a->graph, has ? PL_ATTENTION_SUMS + 1 : DNN_ID_ROWS, DNN_F32,
                       &a->row);
}

static cudnnBackendDescriptor_t scores(const attention_t *a)
{
    return dnn_between(a->graph, DNN_F32, &a->scores);
}

static cudnnBackendDescriptor_t row(const attention_t *a)
{
    return dnn_between(a->graph, DNN_F32, &a->row);
}

/* -inf in place of the scores that a causal query does not see. */
static cudnnBackendDescriptor_t masked(const attention_t *a, cudnnBackendDescriptor_t s)
{
    dnn_graph_t *g = a->graph;
    if (!a->layer->attention.causal)
        return s;
    cudnnBackendDescriptor_t query = dnn_between(g, DNN_I32, &a->scores),
                             key = dnn_between(g, DNN_I32, &a->scores),
                             sees = dnn_between(g, DNN_BOOL, &a->scores),
                             kept = scores(a);
    dnn_index(g, s, 2, query);
    dnn_index(g, s, 3, key);
    dnn_pointwise(g, DNN_AT_LEAST, query, key, NULL, sees);
    dnn_pointwise(g, DNN_SELECT, s, dnn_number(g, DNN_ID_MIN), sees, kept);
    return kept;
}

void dnn_attention(dnn_graph_t *g, const pl_layer_t *layer)
{
    const attention_t a = begin(g, layer);
    cudnnBackendDescriptor_t q = operand(&a, PL_ATTENTION_Q),
                             k = operand_transposed(&a, PL_ATTENTION_K),
                             v = operand(&a, PL_ATTENTION_V),
                             y = operand(&a, PL_ATTENTION_Y), product = scores(&a),
                             scaled = scores(&a), row_max = row(&a), less = scores(&a),
                             e = scores(&a), sum = row(&a), logarithm = row(&a),
                             p = dnn_between(g, a.type, &a.scores);
    dnn_matmul(g, q, k, product);
    dnn_pointwise(g, DNN_MUL, product, dnn_number(g, DNN_ID_SCALE), NULL, scaled);
    scaled = masked(&a, scaled);
    dnn_reduce(g, DNN_MAX, scaled, row_max);
    dnn_pointwise(g, DNN_SUB, scaled, row_max, NULL, less);
    dnn_pointwise(g, DNN_EXP, less, NULL, NULL, e);
    dnn_reduce(g, DNN_SUM, e, sum);
    dnn_pointwise(g, DNN_LOG, sum, NULL, NULL, logarithm);
    dnn_pointwise(g, DNN_ADD, row_max, logarithm, NULL, sums(&a));
    dnn_pointwise(g, DNN_DIV, e, sum, NULL, p);
    dnn_matmul(g, p, v, y);
}

void dnn_attention_grad(dnn_graph_t *g, const pl_layer_t *layer, bool any_order)
{
    const attention_t a = begin(g, layer);
    const dnn_shape_t y_shape = shape_of(&a, PL_ATTENTION_Y),
                      k_shape = shape_of(&a, PL_ATTENTION_K);
    cudnnBackendDescriptor_t q = operand(&a, PL_ATTENTION_Q),
                             k = operand_transposed(&a, PL_ATTENTION_K),
                             v = operand_transposed(&a, PL_ATTENTION_V),
                             y = operand(&a, PL_ATTENTION_Y),
                             dy = operand(&a, PL_ATTENTION_DY), kept = sums(&a),
                             dq = operand(&a, PL_ATTENTION_DQ),
                             dk = operand(&a, PL_ATTENTION_DK),
                             dv = operand(&a, PL_ATTENTION_DV),
                             scale = dnn_number(g, DNN_ID_SCALE);
    /* sum(dy y), which is no product of matrices */
    cudnnBackendDescriptor_t products = dnn_between(g, DNN_F32, &y_shape),
                             added = row(&a),
                             inner = dnn_operand(g, DNN_ID_ROWS, DNN_F32, &a.row);
    dnn_pointwise(g, DNN_MUL, dy, y, NULL, products);
    dnn_reduce(g, DNN_SUM, products, added);
    dnn_pointwise(g, DNN_MUL, added, dnn_number(g, DNN_ID_ONE), NULL, inner);
    /* p */
    cudnnBackendDescriptor_t product = scores(&a), scaled = scores(&a), less = scores(&a),
                             p = scores(&a);
    dnn_matmul(g, q, k, product);
    dnn_pointwise(g, DNN_MUL, product, scale, NULL, scaled);
    dnn_pointwise(g, DNN_SUB, scaled, kept, NULL, less);
    less = masked(&a, less);
    dnn_pointwise(g, DNN_EXP, less, NULL, NULL, p);
    cudnnBackendDescriptor_t p_turned = dnn_between(g, a.type, &a.turned);
    dnn_reshape(g, p, p_turned);
    dnn_matmul(g, p_turned, dy, dv);
    /* ds */
    cudnnBackendDescriptor_t dp = scores(&a), apart = scores(&a), slope = scores(&a),
                             ds = dnn_between(g, a.type, &a.scores);
    dnn_matmul(g, dy, v, dp);
    dnn_pointwise(g, DNN_SUB, dp, inner, NULL, apart);
    dnn_pointwise(g, DNN_MUL, apart, p, NULL, slope);
    dnn_pointwise(g, DNN_MUL, slope, scale, NULL, ds);
    cudnnBackendDescriptor_t ds_turned = dnn_between(g, a.type, &a.turned),
                             k_again = dnn_between(g, a.type, &k_shape);
    dnn_reshape(g, ds, ds_turned);
    dnn_matmul(g, ds_turned, q, dk);
    dnn_reshape(g, k, k_again);
    const dnn_shape_t sums_shape = {{a.batches, a.heads, a.tokens, a.width},
                                    {a.heads * a.tokens * a.width, a.tokens * a.width,
                                     a.width, 1}};
    cudnnBackendDescriptor_t added_up =
        any_order ? dnn_operand(g, DNN_ID_SUMS, DNN_F32, &sums_shape) : dq;
    dnn_matmul(g, ds, k_again, added_up);
    if (any_order)
        dnn_pointwise(g, DNN_SAME, added_up, NULL, NULL, dq);
}

/* ---- Convolution ---- */

static dnn_shape_t pictures(int64_t batches, int64_t channels, int64_t height,
                            int64_t width)
{
    return (dnn_shape_t){{batches, channels, height, width},
                         {channels * height * width, 1, channels * width, channels}};
}

void dnn_convolution(dnn_graph_t *g, const pl_layer_t *layer)
{
    static const struct {
        cu_choice_t op, desc, x, w, y;
    } names[] = {
        [PL_LAYER_CONVOLUTION] = {DNN_OP_CONVOLUTION, DNN_FORWARD_DESC, DNN_FORWARD_X,
                                  DNN_FORWARD_W, DNN_FORWARD_Y},
        [PL_LAYER_CONVOLUTION_GRAD_X] = {DNN_OP_DATA_GRADIENT, DNN_DATA_DESC, DNN_DATA_DX,
                                         DNN_DATA_W, DNN_DATA_DY},
        [PL_LAYER_CONVOLUTION_GRAD_W] = {DNN_OP_FILTER_GRADIENT, DNN_FILTER_DESC,
                                         DNN_FILTER_X, DNN_FILTER_DW, DNN_FILTER_DY},
    };
    const __typeof__(layer->convolution) *c = &layer->convolution;
    const int64_t axes = 2, channels = c->channels / c->groups,
                  places = c->kernel[0] * c->kernel[1];
    const cu_choice_t precision = DNN_F32, mode = DNN_CROSS_CORRELATION;
    const dnn_shape_t x_shape = pictures(c->batches, c->channels, c->height, c->width),
                      y_shape = pictures(c->batches, c->filters, c->down, c->across),
                      bias_shape = pictures(1, c->filters, 1, 1),
                      w_shape = {{c->filters, channels, c->kernel[0], c->kernel[1]},
                                 {channels * places, places, c->kernel[1], 1}};
    const cu_choice_t type = dnn_type(layer->dtype);
    cudnnBackendDescriptor_t x = dnn_operand(g, PL_CONVOLUTION_X + 1, type, &x_shape),
                             w = dnn_operand(g, PL_CONVOLUTION_W + 1, type, &w_shape),
                             y = dnn_operand(g, PL_CONVOLUTION_Y + 1, type, &y_shape),
                             sum = c->has_bias ? dnn_between(g, DNN_F32, &y_shape) : y;
    cudnnBackendDescriptor_t how = dnn_descriptor(g, DNN_CONVOLUTION);
    dnn_set(g, how, DNN_CONVOLUTION_DIMS, DNN_TYPE_INT64, 1, &axes);
    dnn_set(g, how, DNN_CONVOLUTION_PRECISION, DNN_TYPE_DATA, 1, &precision);
    dnn_set(g, how, DNN_CONVOLUTION_MODE, DNN_TYPE_CONVOLUTION, 1, &mode);
    dnn_set(g, how, DNN_CONVOLUTION_BEFORE, DNN_TYPE_INT64, 2, c->before);
    dnn_set(g, how, DNN_CONVOLUTION_BEHIND, DNN_TYPE_INT64, 2, c->behind);
    dnn_set(g, how, DNN_CONVOLUTION_STRIDES, DNN_TYPE_INT64, 2, c->stride);
    dnn_set(g, how, DNN_CONVOLUTION_DILATIONS, DNN_TYPE_INT64, 2, c->dilation);
    dnn_finalize(g, how);
    cudnnBackendDescriptor_t op = dnn_descriptor(g, names[layer->kind].op);
    dnn_set_one(g, op, names[layer->kind].desc, how);
    dnn_set_one(g, op, names[layer->kind].x, x);
    dnn_set_one(g, op, names[layer->kind].w, w);
    dnn_set_one(g, op, names[layer->kind].y, sum);
    dnn_add_operation(g, op);
    if (c->has_bias)
        dnn_pointwise(g, DNN_ADD, sum,
                      dnn_operand(g, PL_CONVOLUTION_BIAS + 1, type, &bias_shape), NULL,
                      y);
}
