/* summary.c - what a graph of a module is made of, for the summary and for FLOP counts */
#include "tensor/summary.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tensor/operators.h"

/* ---- What it costs ---- */

static double output_elements(const pl_graph_t *g, const pl_op_t *op)
{
    return (double)pl_elements(g->value[op->output[0]].shape);
}

/* [..., m, k] by [..., k, n] */
static double flops_matmul(const pl_graph_t *g, const pl_op_t *op)
{
    pl_shape_t a = pl_input_shape(g, op, 0);
    return 2 * output_elements(g, op)
           * (double)a.dim[a.rank - (op->attr.transpose_a ? 2 : 1)];
}

/* x [rows, k], w [n, k] */
static double flops_linear(const pl_graph_t *g, const pl_op_t *op)
{
    return 2 * output_elements(g, op) * (double)pl_input_shape(g, op, 1).dim[1];
}

/* w [out, in, k, k]: each output is a product of in k k elements. */
static double flops_conv2d(const pl_graph_t *g, const pl_op_t *op)
{
    pl_shape_t w = pl_input_shape(g, op, 1);
    return 2 * output_elements(g, op) * (double)(w.dim[1] * w.dim[2] * w.dim[3]);
}

/* q, k, v [B, H, T, d]: scores and weighted sum, as if nothing were masked. */
static double flops_attention(const pl_graph_t *g, const pl_op_t *op)
{
    pl_shape_t q = pl_input_shape(g, op, 0), k = pl_input_shape(g, op, 1);
    return 4 * (double)pl_elements(q) * (double)k.dim[2];
}

double pl_graph_flops(const pl_graph_t *g)
{
    static double (*const flops[PL_OPCODES])(const pl_graph_t *, const pl_op_t *) = {
        [PL_OP_matmul] = flops_matmul,
        [PL_OP_linear] = flops_linear,
        [PL_OP_conv2d] = flops_conv2d,
        [PL_OP_attention] = flops_attention,
    };
    double sum = 0;
    for (int k = 0; k < g->op_count; k++)
        if (flops[g->op[k].code])
            sum += flops[g->op[k].code](g, &g->op[k]);
    return sum;
}

/* ---- Its layers ---- */

/* "fc1" of "fc1.weight"; a name without a dot is a layer of its own. */
static void layer_name(const pl_tensor_info_t *tensor, char name[64])
{
    const char *dot = strrchr(tensor->name, '.');
    snprintf(name, 64, "%.*s", dot ? (int)(dot - tensor->name) : 63, tensor->name);
}

static bool uses(const pl_graph_t *g, const pl_op_t *op, const pl_tensor_info_t *tensor)
{
    for (int k = 0; k < op->input_count; k++) {
        const pl_value_t *value = &g->value[op->input[k]];
        if (value->source == PL_FROM_REGION && value->index == (int)tensor->region
            && value->offset == tensor->offset)
            return true;
    }
    return false;
}

/* Tensors are in order of first use: the search goes on where the one before ended. */
static const pl_op_t *first_use(const pl_graph_t *g, const pl_tensor_info_t *tensor,
                                int *from)
{
    for (int n = 0; n < g->op_count; n++) {
        int k = (*from + n) % g->op_count;
        if (uses(g, &g->op[k], tensor)) {
            *from = k;
            return &g->op[k];
        }
    }
    return NULL;
}

static json_t *shape_json(pl_shape_t shape)
{
    json_t *list = json_array();
    for (int k = 0; k < shape.rank; k++)
        if (json_array_append_new(list, json_integer(shape.dim[k])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* The first input that is computed or given, not a parameter. */
static pl_shape_t shape_in(const pl_graph_t *g, const pl_op_t *op)
{
    int k = 0;
    while (k + 1 < op->input_count && g->value[op->input[k]].source == PL_FROM_REGION)
        k++;
    return pl_input_shape(g, op, k);
}

static json_t *layer_new(const pl_graph_t *g, const char *name,
                         const pl_tensor_info_t *tensor, int *from)
{
    const pl_op_t *op = first_use(g, tensor, from);
    pl_shape_t none = {0};
    return json_pack("{s:s, s:s, s:o, s:o, s:I}", "name", name, "type",
                     op ? pl_op_name(op) : "", "in",
                     shape_json(op ? shape_in(g, op) : none), "out",
                     shape_json(op ? g->value[op->output[0]].shape : none), "parameters",
                     (json_int_t)0);
}

static json_t *layer_find(const json_t *layers, const char *name)
{
    size_t k;
    json_t *layer;
    json_array_foreach(layers, k, layer) {
        if (!strcmp(json_string_value(json_object_get(layer, "name")), name))
            return layer;
    }
    return NULL;
}

static int tensor_add(json_t *layers, const pl_graph_t *g, const pl_tensor_info_t *tensor,
                      int *from, pl_error_t *err)
{
    char name[64];
    layer_name(tensor, name);
    json_t *layer = layer_find(layers, name);
    if (!layer) {
        layer = layer_new(g, name, tensor, from);
        if (!layer || json_array_append_new(layers, layer) != 0)
            return pl_no_memory(err);
    }
    json_t *count = json_object_get(layer, "parameters");
    json_integer_set(count, json_integer_value(count) + tensor->count);
    return PL_OK;
}

json_t *pl_graph_layers(const pl_graph_t *g, const pl_model_t *model, pl_error_t *err)
{
    json_t *layers = json_array();
    int code = layers ? PL_OK : pl_no_memory(err), from = 0;
    for (int k = 0; k < model->count && code == PL_OK; k++)
        if (model->tensor[k].region == PL_REGION_PARAMS)
            code = tensor_add(layers, g, &model->tensor[k], &from, err);
    if (code == PL_OK)
        return layers;
    json_decref(layers);
    return NULL;
}
