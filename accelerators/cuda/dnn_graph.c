/* dnn_graph.c - graphs of cuDNN's operations, and engines for them
 *
 * cuDNN describes its engines by numerical notes.  Unless options allow it, only engines
 * are used that add up in a fixed order, so that equal operands give equal bits, and that
 * do not round float32 to TF32. */
#include <string.h>

#include "accelerators/cuda/dnn.h"
#include "base/alloc.h"

enum { FOUND_MAX = 64, TRIED_MAX = 8 };
static const int64_t workspace_max = (int64_t)256 << 20;    /* of a convolution */

/* ---- Descriptors ---- */

void dnn_graph_release(dnn_graph_t *graph)
{
    for (int k = graph->count - 1; k >= 0; k--)
        graph->call->descriptor_free(graph->made[k]);
    graph->count = graph->operations = 0;
}

cudnnBackendDescriptor_t dnn_descriptor(dnn_graph_t *graph, cu_choice_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (graph->status == DNN_OK && graph->count == DNN_DESCRIPTORS)
        graph->status = DNN_INTERNAL_ERROR;
    if (graph->status == DNN_OK)
        graph->status = graph->call->descriptor_new(type, &made);
    if (graph->status != DNN_OK)
        return NULL;
    return graph->made[graph->count++] = made;
}

void dnn_set(dnn_graph_t *graph, cudnnBackendDescriptor_t of, cu_choice_t attribute,
             cu_choice_t type, int64_t count, const void *values)
{
    if (graph->status == DNN_OK)
        graph->status = graph->call->set(of, attribute, type, count, values);
}

void dnn_set_one(dnn_graph_t *graph, cudnnBackendDescriptor_t of, cu_choice_t attribute,
                 cudnnBackendDescriptor_t value)
{
    dnn_set(graph, of, attribute, DNN_TYPE_DESCRIPTOR, 1, &value);
}

void dnn_finalize(dnn_graph_t *graph, cudnnBackendDescriptor_t descriptor)
{
    if (graph->status == DNN_OK)
        graph->status = graph->call->finalize(descriptor);
}

/* ---- Tensors ---- */

static cudnnBackendDescriptor_t tensor(dnn_graph_t *graph, int64_t id, cu_choice_t type,
                                       const dnn_shape_t *shape, int64_t alignment,
                                       cu_choice_t flag)
{
    const bool yes = true;
    cudnnBackendDescriptor_t t = dnn_descriptor(graph, DNN_TENSOR);
    dnn_set(graph, t, DNN_TENSOR_TYPE, DNN_TYPE_DATA, 1, &type);
    dnn_set(graph, t, DNN_TENSOR_DIMS, DNN_TYPE_INT64, DNN_DIMS, shape->dim);
    dnn_set(graph, t, DNN_TENSOR_STRIDES, DNN_TYPE_INT64, DNN_DIMS, shape->stride);
    dnn_set(graph, t, DNN_TENSOR_ID, DNN_TYPE_INT64, 1, &id);
    dnn_set(graph, t, DNN_TENSOR_ALIGNMENT, DNN_TYPE_INT64, 1, &alignment);
    if (flag)
        dnn_set(graph, t, flag, DNN_TYPE_BOOL, 1, &yes);
    dnn_finalize(graph, t);
    return t;
}

cudnnBackendDescriptor_t dnn_operand(dnn_graph_t *graph, int64_t id, cu_choice_t type,
                                     const dnn_shape_t *shape)
{
    /* rows of an attention that is computed in parts begin at any float */
    const bool is_row = type == DNN_F32 && shape->dim[3] == 1 && shape->stride[2] == 1;
    return tensor(graph, id, type, shape,
                  is_row ? (int64_t)sizeof(float) : PL_PRODUCT_ALIGNMENT, 0);
}

cudnnBackendDescriptor_t dnn_between(dnn_graph_t *graph, cu_choice_t type,
                                     const dnn_shape_t *shape)
{
    return tensor(graph, DNN_ID_OTHERS + graph->next++, type, shape, PL_PRODUCT_ALIGNMENT,
                  DNN_TENSOR_VIRTUAL);
}

cudnnBackendDescriptor_t dnn_number(dnn_graph_t *graph, int64_t id)
{
    const dnn_shape_t one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    return tensor(graph, id, DNN_F32, &one, sizeof(float), DNN_TENSOR_BY_VALUE);
}

/* ---- Operations ---- */

void dnn_add_operation(dnn_graph_t *graph, cudnnBackendDescriptor_t operation)
{
    dnn_finalize(graph, operation);
    if (graph->status == DNN_OK && graph->operations == DNN_OPERATIONS)
        graph->status = DNN_INTERNAL_ERROR;
    if (graph->status == DNN_OK)
        graph->operation[graph->operations++] = operation;
}

void dnn_matmul(dnn_graph_t *graph, cudnnBackendDescriptor_t a,
                cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y)
{
    const cu_choice_t precision = DNN_F32;
    cudnnBackendDescriptor_t how = dnn_descriptor(graph, DNN_MATMUL);
    dnn_set(graph, how, DNN_MATMUL_PRECISION, DNN_TYPE_DATA, 1, &precision);
    dnn_finalize(graph, how);
    cudnnBackendDescriptor_t op = dnn_descriptor(graph, DNN_OP_MATMUL);
    dnn_set_one(graph, op, DNN_OP_MATMUL_A, a);
    dnn_set_one(graph, op, DNN_OP_MATMUL_B, b);
    dnn_set_one(graph, op, DNN_OP_MATMUL_C, y);
    dnn_set_one(graph, op, DNN_OP_MATMUL_DESC, how);
    dnn_add_operation(graph, op);
}

static void pointwise(dnn_graph_t *graph, cu_choice_t mode, cu_choice_t precision,
                      int64_t axis, cudnnBackendDescriptor_t x,
                      cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t t,
                      cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t how = dnn_descriptor(graph, DNN_POINTWISE);
    dnn_set(graph, how, DNN_POINTWISE_MODE, DNN_TYPE_POINTWISE, 1, &mode);
    dnn_set(graph, how, DNN_POINTWISE_PRECISION, DNN_TYPE_DATA, 1, &precision);
    if (mode == DNN_INDEX)
        dnn_set(graph, how, DNN_POINTWISE_AXIS, DNN_TYPE_INT64, 1, &axis);
    dnn_finalize(graph, how);
    cudnnBackendDescriptor_t op = dnn_descriptor(graph, DNN_OP_POINTWISE);
    dnn_set_one(graph, op, DNN_OP_POINTWISE_DESC, how);
    dnn_set_one(graph, op, DNN_OP_POINTWISE_X, x);
    if (b)
        dnn_set_one(graph, op, DNN_OP_POINTWISE_B, b);
    if (t)
        dnn_set_one(graph, op, DNN_OP_POINTWISE_T, t);
    dnn_set_one(graph, op, DNN_OP_POINTWISE_Y, y);
    dnn_add_operation(graph, op);
}

void dnn_pointwise(dnn_graph_t *graph, cu_choice_t mode, cudnnBackendDescriptor_t x,
                   cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t t,
                   cudnnBackendDescriptor_t y)
{
    pointwise(graph, mode, mode == DNN_AT_LEAST ? DNN_BOOL : DNN_F32, 0, x, b, t, y);
}

void dnn_index(dnn_graph_t *graph, cudnnBackendDescriptor_t x, int64_t axis,
               cudnnBackendDescriptor_t y)
{
    pointwise(graph, DNN_INDEX, DNN_I32, axis, x, NULL, NULL, y);
}

void dnn_reduce(dnn_graph_t *graph, cu_choice_t mode, cudnnBackendDescriptor_t x,
                cudnnBackendDescriptor_t y)
{
    const cu_choice_t precision = DNN_F32;
    cudnnBackendDescriptor_t how = dnn_descriptor(graph, DNN_REDUCTION);
    dnn_set(graph, how, DNN_REDUCTION_MODE, DNN_TYPE_REDUCTION, 1, &mode);
    dnn_set(graph, how, DNN_REDUCTION_PRECISION, DNN_TYPE_DATA, 1, &precision);
    dnn_finalize(graph, how);
    cudnnBackendDescriptor_t op = dnn_descriptor(graph, DNN_OP_REDUCTION);
    dnn_set_one(graph, op, DNN_OP_REDUCTION_X, x);
    dnn_set_one(graph, op, DNN_OP_REDUCTION_Y, y);
    dnn_set_one(graph, op, DNN_OP_REDUCTION_DESC, how);
    dnn_add_operation(graph, op);
}

void dnn_reshape(dnn_graph_t *graph, cudnnBackendDescriptor_t x,
                 cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t op = dnn_descriptor(graph, DNN_OP_RESHAPE);
    dnn_set_one(graph, op, DNN_OP_RESHAPE_X, x);
    dnn_set_one(graph, op, DNN_OP_RESHAPE_Y, y);
    dnn_add_operation(graph, op);
}

cu_choice_t dnn_type(pl_dtype_t dtype)
{
    return dtype == PL_BF16 ? DNN_BF16 : dtype == PL_F16 ? DNN_F16 : DNN_F32;
}

/* ---- Engines ---- */

cudnnBackendDescriptor_t dnn_device_new(const cuda_dnn_t *call, cudnnHandle_t handle,
                                        const char *json, cu_result_t *status)
{
    cudnnBackendDescriptor_t device = NULL;
    *status = call->descriptor_new(DNN_DEVICE, &device);
    if (*status == DNN_OK && json)
        *status = call->set(device, DNN_DEVICE_JSON, DNN_TYPE_CHAR, (int64_t)strlen(json),
                            json);
    else if (*status == DNN_OK)
        *status = call->set(device, DNN_DEVICE_HANDLE, DNN_TYPE_HANDLE, 1, &handle);
    if (*status == DNN_OK)
        *status = call->finalize(device);
    if (*status == DNN_OK)
        return device;
    if (device)
        call->descriptor_free(device);
    return NULL;
}

/* DNN_OK: the engine may be used, and *number is set; DNN_NOT_SUPPORTED: it may not. */
static cu_result_t engine_check(const cuda_dnn_t *call, cudnnBackendDescriptor_t choice,
                                const pl_layer_t *layer, dnn_rules_t rules,
                                int64_t *number)
{
    cudnnBackendDescriptor_t engine = NULL;
    cu_choice_t note[2 * DNN_NOTES] = {0};
    int64_t count = 0, notes = 0;
    cu_result_t status = call->descriptor_new(DNN_ENGINE, &engine);
    if (status != DNN_OK)
        return status;
    status = call->get(choice, DNN_CONFIGURATION_ENGINE, DNN_TYPE_DESCRIPTOR, 1, &count,
                       &engine);
    if (status == DNN_OK)
        status = call->get(engine, DNN_ENGINE_NUMBER, DNN_TYPE_INT64, 1, &count, number);
    if (status == DNN_OK)
        status = call->get(engine, DNN_ENGINE_NOTES, DNN_TYPE_NOTE, 2 * DNN_NOTES, &notes,
                           note);
    for (int64_t k = 0; k < notes && k < 2 * DNN_NOTES && status == DNN_OK; k++)
        if (note[k] != DNN_NOTE_STRICT_NAN
            && !(note[k] == DNN_NOTE_TENSOR_CORE
                 && (layer->dtype != PL_F32 || rules.tf32))
            && !(note[k] == DNN_NOTE_NO_ORDER && rules.any_order))
            status = DNN_NOT_SUPPORTED;
    call->descriptor_free(engine);
    return status;
}

/* DNN_OK: sets plan->plan to a plan by that choice. */
static cu_result_t plan_try(dnn_plan_t *plan, cudnnBackendDescriptor_t device,
                            cudnnBackendDescriptor_t choice, bool convolves)
{
    const cuda_dnn_t *call = plan->graph.call;
    int64_t count = 0;
    cudnnBackendDescriptor_t made = NULL;
    cu_result_t status = call->descriptor_new(DNN_PLAN, &made);
    if (status == DNN_OK)
        status = call->set(made, DNN_PLAN_CONFIGURATION, DNN_TYPE_DESCRIPTOR, 1, &choice);
    if (status == DNN_OK)
        status = call->set(made, DNN_PLAN_DEVICE, DNN_TYPE_DESCRIPTOR, 1, &device);
    if (status == DNN_OK)
        status = call->finalize(made);
    if (status == DNN_OK)
        status = call->get(made, DNN_PLAN_WORKSPACE, DNN_TYPE_INT64, 1, &count,
                           &plan->workspace);
    if (status == DNN_OK && convolves && plan->workspace > workspace_max)
        status = DNN_NOT_SUPPORTED;
    if (status == DNN_OK)
        plan->plan = made;
    else if (made)
        call->descriptor_free(made);
    return status;
}

/* The status of two attempts: a failure counts more than that an engine does not compute
 * the layer. */
static cu_result_t either(cu_result_t first, cu_result_t second)
{
    return second == DNN_OK || dnn_is_unsupported(first) ? second : first;
}

static bool may_try_more(cu_result_t status)
{
    return status != DNN_OK && status != DNN_NO_MEMORY;
}

/* Tries the engines of a search; cuDNN lists the fastest first. */
static cu_result_t search(dnn_plan_t *plan, cudnnBackendDescriptor_t device,
                          cudnnBackendDescriptor_t operations, cu_choice_t mode,
                          const pl_layer_t *layer, dnn_rules_t rules)
{
    dnn_graph_t found = {.call = plan->graph.call};
    cudnnBackendDescriptor_t choice[FOUND_MAX] = {0};
    int64_t count = 0;
    cudnnBackendDescriptor_t search = dnn_descriptor(&found, DNN_SEARCH);
    dnn_set_one(&found, search, DNN_SEARCH_GRAPH, operations);
    dnn_set(&found, search, DNN_SEARCH_MODE, DNN_TYPE_SEARCH, 1, &mode);
    dnn_set_one(&found, search, DNN_SEARCH_DEVICE, device);
    dnn_finalize(&found, search);
    for (int k = 0; k < FOUND_MAX; k++)
        choice[k] = dnn_descriptor(&found, DNN_CONFIGURATION);
    if (found.status == DNN_OK)
        found.status = found.call->get(search, DNN_SEARCH_RESULTS, DNN_TYPE_DESCRIPTOR,
                                       FOUND_MAX, &count, choice);
    cu_result_t status = found.status == DNN_OK ? DNN_NOT_SUPPORTED : found.status;
    for (int64_t k = 0, tried = 0;
         k < count && k < FOUND_MAX && tried < TRIED_MAX && may_try_more(status); k++) {
        cu_result_t made = engine_check(found.call, choice[k], layer, rules,
                                        &plan->engine);
        tried += made == DNN_OK;
        if (made == DNN_OK)
            made = plan_try(plan, device, choice[k], layer->kind >= PL_LAYER_CONVOLUTION);
        status = either(status, made);
    }
    dnn_graph_release(&found);
    return status;
}

void dnn_plan_release(dnn_plan_t *plan)
{
    if (plan->plan)
        plan->graph.call->descriptor_free(plan->plan);
    plan->plan = NULL;
    dnn_graph_release(&plan->graph);
}

/* ---- Plans as text ---- */

/* Bytes of so many, aligned. */
static int64_t floats(int64_t count)
{
    enum { ALIGNMENT = 256 };
    return (count * (int64_t)sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

cu_result_t dnn_plan_load(dnn_plan_t *plan, const cuda_dnn_t *call,
                          cudnnBackendDescriptor_t device, const pl_layer_t *layer,
                          dnn_rules_t rules, const char *text, size_t bytes)
{
    int64_t count = 0;
    *plan = (dnn_plan_t){.graph = {.call = call}, .engine = -1};
    cu_result_t status = call->descriptor_new(DNN_PLAN, &plan->plan);
    if (status != DNN_OK)
        plan->plan = NULL;
    if (status == DNN_OK)
        status = call->set(plan->plan, DNN_PLAN_JSON, DNN_TYPE_CHAR, (int64_t)bytes,
                           text);
    if (status == DNN_OK)
        status = call->set(plan->plan, DNN_PLAN_DEVICE, DNN_TYPE_DESCRIPTOR, 1, &device);
    if (status == DNN_OK)
        status = call->finalize(plan->plan);
    if (status == DNN_OK)
        status = call->get(plan->plan, DNN_PLAN_WORKSPACE, DNN_TYPE_INT64, 1, &count,
                           &plan->workspace);
    if (status != DNN_OK) {
        dnn_plan_release(plan);
        return status;
    }
    const __typeof__(layer->attention) *a = &layer->attention;
    const bool has_rows = layer->kind == PL_LAYER_ATTENTION_GRAD
                          || (layer->kind == PL_LAYER_ATTENTION
                              && !a->stride[PL_ATTENTION_SUMS][2]);
    const int64_t rows = has_rows ? a->batches * a->heads * a->tokens : 0;
    plan->rows = floats(rows);
    if (rules.any_order && layer->kind == PL_LAYER_ATTENTION_GRAD)
        plan->sums = floats(rows * a->width);
    plan->workspace += plan->rows + plan->sums;
    return DNN_OK;
}

/* ---- Making ---- */

/* A plan that is made for a description of a device computes nothing with some engines of
 * cuDNN 9.19, and reports no error.  A plan that is loaded from its text computes. */
static cu_result_t plan_renew(dnn_plan_t *plan, cudnnBackendDescriptor_t device,
                              const pl_layer_t *layer, dnn_rules_t rules, char **text,
                              size_t *bytes)
{
    const cuda_dnn_t *call = plan->graph.call;
    dnn_plan_t loaded;
    int64_t count = 0;
    cu_result_t status = call->get(plan->plan, DNN_PLAN_JSON, DNN_TYPE_CHAR, 0, &count,
                                   NULL);
    if (status != DNN_OK || count < 1)
        return status != DNN_OK ? status : DNN_NOT_SUPPORTED;
    char *made = pl_alloc((size_t)count + 1);
    status = made ? call->get(plan->plan, DNN_PLAN_JSON, DNN_TYPE_CHAR, count, &count,
                              made)
                  : DNN_NO_MEMORY;
    if (status == DNN_OK)
        status = dnn_plan_load(&loaded, call, device, layer, rules, made, (size_t)count);
    if (status != DNN_OK) {
        pl_free(made);
        return status;
    }
    *text = made;
    *bytes = (size_t)count;
    loaded.engine = plan->engine;
    dnn_plan_release(plan);
    *plan = loaded;
    return DNN_OK;
}

cu_result_t dnn_plan_make(dnn_plan_t *plan, const cuda_dnn_t *call,
                          cudnnBackendDescriptor_t device, const pl_layer_t *layer,
                          dnn_rules_t rules, char **text, size_t *bytes)
{
    *text = NULL;
    *plan = (dnn_plan_t){.graph = {.call = call}, .engine = -1};
    dnn_graph_t *graph = &plan->graph;
    if (layer->kind == PL_LAYER_ATTENTION)
        dnn_attention(graph, layer);
    else if (layer->kind == PL_LAYER_ATTENTION_GRAD)
        dnn_attention_grad(graph, layer, rules.any_order);
    else
        dnn_convolution(graph, layer);
    cudnnBackendDescriptor_t all = dnn_descriptor(graph, DNN_GRAPH);
    dnn_set(graph, all, DNN_GRAPH_OPS, DNN_TYPE_DESCRIPTOR, graph->operations,
            graph->operation);
    dnn_finalize(graph, all);
    cu_result_t status = graph->status;
    if (status == DNN_OK)
        status = search(plan, device, all, DNN_BY_MODEL, layer, rules);
    if (graph->status == DNN_OK && may_try_more(status))
        status = either(status, search(plan, device, all, DNN_BY_FALLBACK, layer, rules));
    if (status == DNN_OK)
        status = plan_renew(plan, device, layer, rules, text, bytes);
    if (status != DNN_OK)
        dnn_plan_release(plan);
    return status;
}
