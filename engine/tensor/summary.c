/* summary.c - the layers of a module and the FLOPs of a forward pass, from a graph */
#include "tensor/summary.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_path.h"
#include "tensor/operators.h"

/* ---- FLOPs ---- */

static double op_flops(const pl_graph_t *g, const pl_op_t *op)
{
    if (!op->output_count || op->input_count < 2)
        return 0;
    const pl_shape_t a = pl_input_shape(g, op, 0), b = pl_input_shape(g, op, 1);
    const double outputs = (double)pl_elements(g->value[op->output[0]].shape);
    switch (op->code) {
    case PL_OP_matmul:                                    /* [..., m, k] by [..., k, n] */
        return 2 * outputs * (double)a.dim[a.rank - (op->attr.transpose_a ? 2 : 1)];
    case PL_OP_linear: /* x [rows, k], w [n, k] */ return 2 * outputs * (double)b.dim[1];
    case PL_OP_conv2d:           /* w [out, in, k, k]: an output is a product of in k k */
        return 2 * outputs * (double)(b.dim[1] * b.dim[2] * b.dim[3]);
    case PL_OP_attention:       /* q, k, v [B, H, T, d]: scores and sum, without a mask */
        return 4 * (double)pl_elements(a) * (double)b.dim[2];
    default: return 0;
    }
}

double pl_graph_flops(const pl_graph_t *g)
{
    double sum = 0;
    for (int k = 0; k < g->op_count; k++)
        sum += op_flops(g, &g->op[k]);
    return sum;
}

/* ---- Layers ---- */

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

/* Tensors are in order of first use: the search continues where the last one ended. */
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

/* A layer without its parameters, from the operation that uses its first tensor first. */
static json_t *layer_new(const pl_graph_t *g, const char *name,
                         const pl_tensor_info_t *tensor, int *from)
{
    const pl_op_t *op = first_use(g, tensor, from);
    pl_shape_t in = {0}, out = {0};
    if (op) {
        int k = 0;                           /* the first input that is not a parameter */
        while (k + 1 < op->input_count && g->value[op->input[k]].source == PL_FROM_REGION)
            k++;
        in = pl_input_shape(g, op, k);
        out = g->value[op->output[0]].shape;
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:I}", "name", name, "type",
                     op ? pl_op_name(op) : "", "in", pl_json_integers(in.dim, in.rank),
                     "out", pl_json_integers(out.dim, out.rank), "parameters",
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
    char name[64];                 /* "fc1" of "fc1.weight"; a whole name without a dot */
    const char *dot = strrchr(tensor->name, '.');
    snprintf(name, sizeof name, "%.*s", dot ? (int)(dot - tensor->name) : 63,
             tensor->name);
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
