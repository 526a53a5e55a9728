/* summary.c - the layers of a module, the FLOPs of a forward pass and the memory of a
 * training step, from a graph */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_path.h"
#include "tensor/memory_plan.h"
#include "tensor/model.h"
#include "tensor/operators.h"
#include "tensor/precision.h"

double pl_graph_flops(const pl_graph_t *g)
{
    double sum = 0;
    for (int k = 0; k < g->op_count; k++) {
        const pl_op_t *op = &g->op[k];
        if (!op->output_count || op->input_count < 2)
            continue;
        const pl_shape_t a = pl_input_shape(g, op, 0), b = pl_input_shape(g, op, 1);
        const double outputs = (double)pl_elements(g->value[op->output[0]].shape);
        switch (op->code) {
        case PL_OP_matmul:                                /* [..., m, k] by [..., k, n] */
            sum += 2 * outputs * (double)a.dim[a.rank - (op->attr.transpose_a ? 2 : 1)];
            break;
        case PL_OP_linear:                                  /* x [rows, k], w [n, k] */
            sum += 2 * outputs * (double)b.dim[1];
            break;
        case PL_OP_conv:           /* each output is a product with one of w [out, ...] */
            sum += 2 * outputs * (double)(pl_elements(b) / b.dim[0]);
            break;
        case PL_OP_conv_grad_x:                       /* forward: as each of its inputs */
            if (!op->gradient_of)
                sum += 2 * (double)pl_elements(a) * (double)(pl_elements(b) / b.dim[0]);
            break;
        case PL_OP_lstm:                  /* a product with the weight in each step */
        case PL_OP_gru: sum += 2 * (double)pl_elements(a) * (double)b.dim[1]; break;
        case PL_OP_attention:   /* q, k, v [B, H, T, d]: scores and sum, without a mask */
            sum += 4 * (double)pl_elements(a) * (double)b.dim[2];
            break;
        default: break;
        }
    }
    return sum;
}

int pl_graph_step_bytes(pl_graph_t *g, const pl_precision_ops_t *precision, double *bytes,
                        pl_error_t *err)
{
    pl_memory_plan_t plan;
    int code = pl_graph_gradients(g, 1, false, err);
    if (code == PL_OK && precision)
        code = pl_graph_cast(g, precision, err);
    if (code != PL_OK)
        return code;
    pl_graph_prune(g);
    code = pl_memory_plan_build(&plan, g, NULL, err);
    if (code != PL_OK)
        return code;
    *bytes = (double)plan.arena;
    pl_memory_plan_release(&plan);
    return PL_OK;
}

/* The first operation that uses a tensor, from operation *from on, which moves there.
 * Tensors are in order of first use, so a search continues where the last one ended. */
static const pl_op_t *reader_find(const pl_graph_t *g, const pl_tensor_info_t *tensor,
                                  int *from)
{
    const int start = *from;
    for (int n = 0; n < g->op_count; n++) {
        const pl_op_t *op = &g->op[(start + n) % g->op_count];
        for (int k = 0; k < op->input_count; k++) {
            const pl_value_t *value = &g->value[op->input[k]];
            if (value->source != PL_FROM_REGION || value->index != (int)tensor->region
                || value->offset != tensor->offset)
                continue;
            *from = (int)(op - g->op);
            return op;
        }
    }
    return NULL;
}

/* A layer without its parameters, from the operation that uses its first one. */
static json_t *layer_new(const pl_graph_t *g, const char *name, const pl_op_t *op)
{
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

/* An LSTM or a GRU begins with a product, so its layer is known by the recurrent weight:
 * gates [B, T, ...] and states [..., B, T + 1, H].  `back`: the other direction of its
 * layer, too. */
static int recurrent_set(json_t *layer, const pl_graph_t *g, const pl_op_t *op, bool back)
{
    const pl_shape_t x = pl_input_shape(g, op, 0), h = g->value[op->output[0]].shape;
    json_t *in = json_object_get(layer, "in");
    const bool is_first = json_array_size(in) == 2;
    int failed = json_object_set_new(layer, "type", json_string(pl_op_name(op)));
    if (is_first) {
        const int64_t sizes[] = {
            x.dim[0], x.dim[1], json_integer_value(json_array_get(in, 1))};
        failed |= json_object_set_new(layer, "in", pl_json_integers(sizes, 3));
    }
    const int64_t sizes[] = {x.dim[0], x.dim[1], h.dim[3] * (back ? 2 : 1)};
    failed |= json_object_set_new(layer, "out", pl_json_integers(sizes, 3));
    return failed;
}

static int tensor_add(json_t *layers, const pl_graph_t *g, const pl_tensor_info_t *tensor,
                      int *from, pl_error_t *err)
{
    char name[64];                 /* "fc1" of "fc1.weight"; a whole name without a dot */
    const char *dot = strrchr(tensor->name, '.');
    snprintf(name, sizeof name, "%.*s", dot ? (int)(dot - tensor->name) : 63,
             tensor->name);
    json_t *layer = NULL, *other;
    size_t k;
    json_array_foreach(layers, k, other) {
        if (!strcmp(json_string_value(json_object_get(other, "name")), name))
            layer = other;
    }
    const pl_op_t *op = reader_find(g, tensor, from);
    if (!layer) {
        layer = layer_new(g, name, op);
        if (!layer || json_array_append_new(layers, layer) != 0)
            return pl_no_memory(err);
    }
    if (op && (op->code == PL_OP_lstm || op->code == PL_OP_gru)
        && recurrent_set(layer, g, op, strstr(tensor->name, "_reverse")) != 0)
        return pl_no_memory(err);
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
