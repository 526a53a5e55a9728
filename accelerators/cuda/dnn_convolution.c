/* dnn_convolution.c - convolution and its gradients as graphs of cuDNN's operations
 *
 * Pictures lie in memory with their channels last, as cuDNN's fast engines have them, and
 * filters [filters, channels, kernel, kernel]: cuDNN turns those around in its workspace.
 * Its dimensions are [batches, channels, height, width] whatever the order in memory. */
#include "accelerators/cuda/dnn.h"

static dnn_shape_t pictures(int64_t batches, int64_t channels, int64_t height,
                            int64_t width)
{
    return (dnn_shape_t){{batches, channels, height, width},
                         {channels * height * width, 1, channels * width, channels}};
}

static cudnnBackendDescriptor_t windows(dnn_graph_t *g, const pl_layer_t *layer)
{
    const int64_t axes = 2, one[] = {1, 1},
                  padding[] = {layer->convolution.padding, layer->convolution.padding},
                  stride[] = {layer->convolution.stride, layer->convolution.stride};
    const cu_choice_t precision = DNN_F32, mode = DNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t how = dnn_descriptor(g, DNN_CONVOLUTION);
    dnn_set(g, how, DNN_CONVOLUTION_DIMS, DNN_TYPE_INT64, 1, &axes);
    dnn_set(g, how, DNN_CONVOLUTION_PRECISION, DNN_TYPE_DATA, 1, &precision);
    dnn_set(g, how, DNN_CONVOLUTION_MODE, DNN_TYPE_CONVOLUTION, 1, &mode);
    dnn_set(g, how, DNN_CONVOLUTION_BEFORE, DNN_TYPE_INT64, 2, padding);
    dnn_set(g, how, DNN_CONVOLUTION_BEHIND, DNN_TYPE_INT64, 2, padding);
    dnn_set(g, how, DNN_CONVOLUTION_STRIDES, DNN_TYPE_INT64, 2, stride);
    dnn_set(g, how, DNN_CONVOLUTION_DILATIONS, DNN_TYPE_INT64, 2, one);
    dnn_finalize(g, how);
    return how;
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
    const int64_t k = c->kernel;
    const dnn_shape_t x_shape = pictures(c->batches, c->channels, c->height, c->width),
                      y_shape = pictures(c->batches, c->filters, c->down, c->across),
                      bias_shape = pictures(1, c->filters, 1, 1),
                      w_shape = {{c->filters, c->channels, k, k},
                                 {c->channels * k * k, k * k, k, 1}};
    const cu_choice_t type = dnn_type(layer->dtype);
    cudnnBackendDescriptor_t x = dnn_operand(g, PL_CONVOLUTION_X + 1, type, &x_shape),
                             w = dnn_operand(g, PL_CONVOLUTION_W + 1, type, &w_shape),
                             y = dnn_operand(g, PL_CONVOLUTION_Y + 1, type, &y_shape),
                             sum = c->has_bias ? dnn_between(g, DNN_F32, &y_shape) : y;
    cudnnBackendDescriptor_t how = windows(g, layer),
                             op = dnn_descriptor(g, names[layer->kind].op);
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
