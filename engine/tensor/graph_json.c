/* graph_json.c - a described graph as JSON, for a look at a module
 *
 * Values have names: a field, a tensor, a number, or "%3" for the result of operator 3
 * ("%3.1" for its second result). */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_path.h"
#include "tensor/model.h"
#include "tensor/operators.h"

enum { NAME = 128 };

/* The tensor of which a value is the whole  [NULL: of none]. */
static const pl_tensor_info_t *tensor_of(const pl_model_t *model, const pl_value_t *value)
{
    for (int k = 0; k < model->count && value->source == PL_FROM_REGION; k++)
        if (value->index == (int)model->tensor[k].region
            && value->offset == model->tensor[k].offset)
            return &model->tensor[k];
    return NULL;
}

static json_t *value_name(const pl_graph_t *g, const pl_model_t *model, int32_t number)
{
    char text[NAME];
    const pl_value_t *value = &g->value[number];
    const pl_tensor_info_t *tensor = tensor_of(model, value);
    switch (value->source) {
    case PL_FROM_OP:
        snprintf(text, sizeof text, value->index ? "%%%d.%d" : "%%%d", value->op,
                 value->index);
        break;
    case PL_FROM_INPUT:
        snprintf(text, sizeof text, "%s", g->field[value->index].name);
        break;
    case PL_FROM_CONSTANT: snprintf(text, sizeof text, "%.6g", value->constant); break;
    case PL_FROM_TENSOR: snprintf(text, sizeof text, "a constant tensor"); break;
    case PL_FROM_SCALAR: snprintf(text, sizeof text, "a number of the step"); break;
    case PL_FROM_REGION:
        snprintf(text, sizeof text, "%s", tensor ? tensor->name : "memory of the step");
        break;
    }
    return json_string(text);
}

static json_t *typed(const char *name, pl_dtype_t dtype, pl_shape_t shape)
{
    json_t *object = pl_json_with(json_object(), "name", json_string(name));
    object = pl_json_with(object, "dtype", json_string(pl_dtype_name(dtype)));
    return pl_json_with(object, "shape", pl_json_integers(shape.dim, shape.rank));
}

static json_t *fields_json(const pl_graph_t *g)
{
    json_t *list = json_array();
    for (int k = 0; k < g->field_count; k++) {
        const pl_field_t *field = &g->field[k];
        pl_shape_t shape = {.rank = field->shape.rank + 1, .dim = {g->batch_size}};
        memcpy(shape.dim + 1, field->shape.dim,
               (size_t)field->shape.rank * sizeof *shape.dim);
        list = pl_json_append(list, typed(field->name, field->dtype, shape));
    }
    return list;
}

static json_t *tensors_json(const pl_model_t *model)
{
    json_t *list = json_array();
    for (int k = 0; k < model->count; k++) {
        const pl_tensor_info_t *tensor = &model->tensor[k];
        json_t *one = typed(tensor->name, PL_F32, tensor->shape);
        one = pl_json_with(one, "elements", json_integer(pl_elements(tensor->shape)));
        list = pl_json_append(list, pl_json_with(one, "trained",
                                                 json_boolean(tensor->region
                                                              == PL_REGION_PARAMS)));
    }
    return list;
}

/* Effects, such as running statistics, have no result and no shape. */
static json_t *operators_json(const pl_graph_t *g, const pl_model_t *model)
{
    json_t *list = json_array();
    for (int i = 0; i < g->op_count; i++) {
        const pl_op_t *op = &g->op[i];
        json_t *inputs = json_array(), *one = pl_json_with(json_object(), "operator",
                                                           json_string(pl_op_name(op)));
        for (int k = 0; k < op->input_count; k++)
            inputs = pl_json_append(inputs, value_name(g, model, op->input[k]));
        one = pl_json_with(one, "layer", json_string(op->path));
        one = pl_json_with(one, "inputs", inputs);
        if (op->output_count) {
            const pl_value_t *value = &g->value[op->output[0]];
            one = pl_json_with(one, "dtype", json_string(pl_dtype_name(value->dtype)));
            one = pl_json_with(one, "shape",
                               pl_json_integers(value->shape.dim, value->shape.rank));
        }
        list = pl_json_append(list, one);
    }
    return list;
}

static json_t *results_json(const pl_graph_t *g, const pl_model_t *model)
{
    json_t *list = json_array();
    for (int k = 0; k < g->fetch_count; k++) {
        const pl_fetch_t *fetch = &g->fetch[k];
        json_t *one = pl_json_with(json_object(), "name", json_string(fetch->name));
        one = pl_json_with(one, "kind",
                           json_string(fetch->kind == PL_FETCH_OUTPUT ? "output"
                                                                      : "metric"));
        list = pl_json_append(list, pl_json_with(one, "value",
                                                 value_name(g, model, fetch->value)));
    }
    return list;
}

json_t *pl_graph_json(const pl_graph_t *g, const pl_model_t *model, pl_error_t *err)
{
    json_t *graph = pl_json_with(json_object(), "fields", fields_json(g));
    graph = pl_json_with(graph, "tensors", tensors_json(model));
    graph = pl_json_with(graph, "operators", operators_json(g, model));
    graph = pl_json_with(graph, "results", results_json(g, model));
    if (!graph)
        pl_no_memory(err);
    return graph;
}
