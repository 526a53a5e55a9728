/* cudnn.c - a replacement of cuDNN, libcudnn.so.9: an interpreter of graphs of operations
 * on the streams of the replacement of the driver
 *
 * It is stricter than cuDNN: an attribute that a descriptor does not have, or of another
 * type, one that is missing, a descriptor that is used before it is finalized or changed
 * after it, shapes that do not fit, a tensor that is read before it is made, an operand
 * that is aligned less than declared or lies beyond an allocation, are errors.  The
 * workspace is filled with NaN.  The first engine that it finds adds up in no order, and
 * to what is in memory where another operation reads the sums.  The second rounds float32
 * to TF32, the third makes no plan, and the fourth computes.  A plan as text has all
 * operations in it.
 *
 * STAND_IN has: "no_cudnn" (it cannot be opened), "old_cudnn" (version 9.5),
 * "any_order" (its first engine may run),
 * "dnn_new=3", "dnn_set=3", "dnn_finalize=3" and "dnn_execute=3" (the third call
 * fails; "dnn_new=3:4003": with that status; "dnn_new=3:700": because the card breaks
 * with that error). Counts begin when it is opened. */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "t/stand_in/cuda.h"

#define DNN(member, symbol, result, parameters) API result symbol parameters;
#include "accelerators/cuda/names.def"

enum { DIMS = 4, TENSORS = 64, OPERATIONS = 32, ATTRIBUTES = 12, IDS = 16, ENGINES = 4 };
enum { WORKSPACE = 2048, IN_NO_ORDER = 0, BY_TENSOR_CORES, NONE, PLAIN };

/* Executions that were put on a stream or recorded, plans that were made, and loaded, and
 * what was made and not freed: for tests. */
API int stand_in_executed, stand_in_planned, stand_in_loaded, stand_in_dnn_left;

/* ---- Plans ---- */

typedef struct tensor {
    int64_t id, alignment, dim[DIMS], stride[DIMS];
    uint32_t type;
    bool is_virtual, by_value;
} tensor_t;

typedef struct operation {
    uint32_t kind, mode;
    int64_t axis;                                           /* of an index */
    int64_t padding[2], step[2], dilation[2];               /* of windows */
    int in[3], out;                                         /* tensors  [-1] */
} operation_t;

typedef struct program {
    tensor_t tensor[TENSORS];
    operation_t operation[OPERATIONS];
    int tensors, operations, engine;
} program_t;

typedef struct attribute {
    uint32_t name, type;
    int64_t count;
    void *values;
} attribute_t;

typedef struct descriptor {
    uint32_t type;
    bool is_final;
    attribute_t attribute[ATTRIBUTES];
    int attributes, engine;                         /* of a configuration and an engine */
    struct descriptor *graph;
    program_t *program;                                     /* of a graph and a plan */
} descriptor_t;

struct cudnnContext {
    CUstream stream;
};

/* ---- The driver, which must be the stand-in ---- */

static int (*fact)(const char *word, int without, int *more);
static __typeof__(stand_in_put) *put;
static __typeof__(stand_in_memory) *memory;
static __typeof__(stand_in_break) *breaks;
static int calls[4];
static __thread char last_error[128];

static bool driver_find(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver && !memory) {
        *(void **)&fact = dlsym(driver, "stand_in_fact");
        *(void **)&put = dlsym(driver, "stand_in_put");
        *(void **)&memory = dlsym(driver, "stand_in_memory");
        *(void **)&breaks = dlsym(driver, "stand_in_break");
    }
    return driver && fact && put && memory && breaks;
}

enum { NEW, SET, FINALIZE, EXECUTE };

/* The status of a call before it does anything. */
static cu_result_t fault_of(int what)
{
    static const char *const words[] = {"dnn_new", "dnn_set", "dnn_finalize",
                                        "dnn_execute"};
    const cu_result_t usual = what == EXECUTE ? DNN_EXECUTION_FAILED : DNN_INTERNAL_ERROR;
    int status = 0;
    const int number = __atomic_add_fetch(&calls[what], 1, __ATOMIC_RELAXED);
    if (!fact || number != fact(words[what], 0, &status))
        return DNN_OK;
    snprintf(last_error, sizeof last_error, "call %d of %s fails", number, words[what]);
    if (status && status < DNN_BAD_PARAM) {
        breaks((cu_result_t)status);
        return DNN_EXECUTION_FAILED;
    }
    return status ? (cu_result_t)status : usual;
}

static cu_result_t refused(const char *why)
{
    fprintf(stderr, "stand-in: a graph is refused: %s\n", why);
    snprintf(last_error, sizeof last_error, "%s", why);
    return DNN_BAD_PARAM;
}

API size_t cudnnGetVersion(void)
{
    return driver_find() && fact("old_cudnn", 0, NULL) ? 90500 : 99900;
}

API size_t cudnnGetCudartVersion(void)
{
    return 13000;
}

API const char *cudnnGetErrorString(cu_result_t status)
{
    return status == DNN_OK                 ? "CUDNN_STATUS_SUCCESS"
           : status == DNN_NOT_SUPPORTED    ? "CUDNN_STATUS_NOT_SUPPORTED"
           : status == DNN_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
           : status == DNN_INTERNAL_ERROR   ? "CUDNN_STATUS_INTERNAL_ERROR"
           : status == DNN_NO_MEMORY
               ? "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"
               : "CUDNN_STATUS_BAD_PARAM";
}

API void cudnnGetLastErrorString(char *text, size_t capacity)
{
    snprintf(text, capacity, "%s", last_error);
    last_error[0] = '\0';
}

API cu_result_t cudnnCreate(cudnnHandle_t *handle)
{
    memset(calls, 0, sizeof calls);
    if (!driver_find() || fact("no_cudnn", 0, NULL))
        return DNN_INTERNAL_ERROR;
    __atomic_add_fetch(&stand_in_dnn_left, 1, __ATOMIC_RELAXED);
    *handle = calloc(1, sizeof **handle);
    return DNN_OK;
}

API cu_result_t cudnnDestroy(cudnnHandle_t handle)
{
    __atomic_sub_fetch(&stand_in_dnn_left, 1, __ATOMIC_RELAXED);
    free(handle);
    return DNN_OK;
}

API cu_result_t cudnnSetStream(cudnnHandle_t handle, CUstream stream)
{
    handle->stream = stream;
    return DNN_OK;
}

/* ---- Attributes ---- */

typedef struct rule {
    uint32_t of, name, type;
    int64_t count;
    bool is_needed;
} rule_t;

static const rule_t rules[] = {
    {DNN_TENSOR, DNN_TENSOR_TYPE, DNN_TYPE_DATA, 1, true},
    {DNN_TENSOR, DNN_TENSOR_DIMS, DNN_TYPE_INT64, DIMS, true},
    {DNN_TENSOR, DNN_TENSOR_STRIDES, DNN_TYPE_INT64, DIMS, true},
    {DNN_TENSOR, DNN_TENSOR_ID, DNN_TYPE_INT64, 1, true},
    {DNN_TENSOR, DNN_TENSOR_ALIGNMENT, DNN_TYPE_INT64, 1, true},
    {DNN_TENSOR, DNN_TENSOR_VIRTUAL, DNN_TYPE_BOOL, 1, false},
    {DNN_TENSOR, DNN_TENSOR_BY_VALUE, DNN_TYPE_BOOL, 1, false},
    {DNN_MATMUL, DNN_MATMUL_PRECISION, DNN_TYPE_DATA, 1, true},
    {DNN_OP_MATMUL, DNN_OP_MATMUL_A, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_MATMUL, DNN_OP_MATMUL_B, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_MATMUL, DNN_OP_MATMUL_C, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_MATMUL, DNN_OP_MATMUL_DESC, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_POINTWISE, DNN_POINTWISE_MODE, DNN_TYPE_POINTWISE, 1, true},
    {DNN_POINTWISE, DNN_POINTWISE_PRECISION, DNN_TYPE_DATA, 1, true},
    {DNN_POINTWISE, DNN_POINTWISE_AXIS, DNN_TYPE_INT64, 1, false},
    {DNN_OP_POINTWISE, DNN_OP_POINTWISE_DESC, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_POINTWISE, DNN_OP_POINTWISE_X, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_POINTWISE, DNN_OP_POINTWISE_B, DNN_TYPE_DESCRIPTOR, 1, false},
    {DNN_OP_POINTWISE, DNN_OP_POINTWISE_T, DNN_TYPE_DESCRIPTOR, 1, false},
    {DNN_OP_POINTWISE, DNN_OP_POINTWISE_Y, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_REDUCTION, DNN_REDUCTION_MODE, DNN_TYPE_REDUCTION, 1, true},
    {DNN_REDUCTION, DNN_REDUCTION_PRECISION, DNN_TYPE_DATA, 1, true},
    {DNN_OP_REDUCTION, DNN_OP_REDUCTION_X, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_REDUCTION, DNN_OP_REDUCTION_Y, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_REDUCTION, DNN_OP_REDUCTION_DESC, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_RESHAPE, DNN_OP_RESHAPE_X, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_RESHAPE, DNN_OP_RESHAPE_Y, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_DIMS, DNN_TYPE_INT64, 1, true},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_PRECISION, DNN_TYPE_DATA, 1, true},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_MODE, DNN_TYPE_CONVOLUTION, 1, true},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_BEFORE, DNN_TYPE_INT64, 2, true},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_BEHIND, DNN_TYPE_INT64, 2, true},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_STRIDES, DNN_TYPE_INT64, 2, true},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_DILATIONS, DNN_TYPE_INT64, 2, true},
    {DNN_OP_CONVOLUTION, DNN_FORWARD_DESC, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_CONVOLUTION, DNN_FORWARD_X, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_CONVOLUTION, DNN_FORWARD_W, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_CONVOLUTION, DNN_FORWARD_Y, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_DATA_GRADIENT, DNN_DATA_DESC, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_DATA_GRADIENT, DNN_DATA_DX, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_DATA_GRADIENT, DNN_DATA_W, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_DATA_GRADIENT, DNN_DATA_DY, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_FILTER_GRADIENT, DNN_FILTER_DESC, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_FILTER_GRADIENT, DNN_FILTER_X, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_FILTER_GRADIENT, DNN_FILTER_DW, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_OP_FILTER_GRADIENT, DNN_FILTER_DY, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_GRAPH, DNN_GRAPH_OPS, DNN_TYPE_DESCRIPTOR, OPERATIONS, true},
    {DNN_SEARCH, DNN_SEARCH_GRAPH, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_SEARCH, DNN_SEARCH_MODE, DNN_TYPE_SEARCH, 1, true},
    {DNN_SEARCH, DNN_SEARCH_DEVICE, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_PLAN, DNN_PLAN_CONFIGURATION, DNN_TYPE_DESCRIPTOR, 1, false},
    {DNN_PLAN, DNN_PLAN_JSON, DNN_TYPE_CHAR, 1 << 20, false},
    {DNN_PLAN, DNN_PLAN_DEVICE, DNN_TYPE_DESCRIPTOR, 1, true},
    {DNN_PACK, DNN_PACK_IDS, DNN_TYPE_INT64, IDS, true},
    {DNN_PACK, DNN_PACK_POINTERS, DNN_TYPE_POINTER, IDS, true},
    {DNN_PACK, DNN_PACK_WORKSPACE, DNN_TYPE_POINTER, 1, true},
    {DNN_DEVICE, DNN_DEVICE_HANDLE, DNN_TYPE_HANDLE, 1, true},
};
enum { RULES = sizeof rules / sizeof *rules };

static size_t width_of(uint32_t type)
{
    switch (type) {
    case DNN_TYPE_BOOL:
    case DNN_TYPE_CHAR: return 1;
    case DNN_TYPE_INT64:
    case DNN_TYPE_HANDLE:
    case DNN_TYPE_POINTER:
    case DNN_TYPE_DESCRIPTOR: return 8;
    default: return 4;
    }
}

static const attribute_t *find(const descriptor_t *d, uint32_t name)
{
    for (int k = 0; k < d->attributes; k++)
        if (d->attribute[k].name == name)
            return &d->attribute[k];
    return NULL;
}

static int64_t number(const descriptor_t *d, uint32_t name, int64_t without)
{
    const attribute_t *a = find(d, name);
    if (!a)
        return without;
    return width_of(a->type) == 8   ? *(int64_t *)a->values
           : width_of(a->type) == 4 ? *(int32_t *)a->values
                                    : *(char *)a->values;
}

static descriptor_t *other(const descriptor_t *d, uint32_t name)
{
    const attribute_t *a = find(d, name);
    return a ? *(descriptor_t **)a->values : NULL;
}

API cu_result_t cudnnBackendCreateDescriptor(cu_choice_t type,
                                             cudnnBackendDescriptor_t *descriptor)
{
    const cu_result_t fault = fault_of(NEW);
    descriptor_t *d = fault == DNN_OK ? calloc(1, sizeof *d) : NULL;
    if (!d)
        return fault == DNN_OK ? DNN_NO_MEMORY : fault;
    d->type = type;
    *descriptor = d;
    __atomic_add_fetch(&stand_in_dnn_left, 1, __ATOMIC_RELAXED);
    return DNN_OK;
}

API cu_result_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    descriptor_t *d = descriptor;
    for (int k = 0; k < d->attributes; k++)
        free(d->attribute[k].values);
    free(d->program);
    memset(d, 0xff, sizeof *d);
    free(d);
    __atomic_sub_fetch(&stand_in_dnn_left, 1, __ATOMIC_RELAXED);
    return DNN_OK;
}

API cu_result_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                         cu_choice_t name, cu_choice_t type,
                                         int64_t count, const void *values)
{
    descriptor_t *d = descriptor;
    const cu_result_t fault = fault_of(SET);
    int k = 0;
    if (fault != DNN_OK)
        return fault;
    while (k < RULES && (rules[k].of != d->type || rules[k].name != name))
        k++;
    if (d->is_final || k == RULES || rules[k].type != type || count < 1
        || count > rules[k].count || !values || find(d, name))
        return refused("an attribute is not one of its descriptor, or is set twice");
    if ((type == DNN_TYPE_INT64 || type == DNN_TYPE_DATA) && d->type != DNN_PACK
        && count != rules[k].count)
        return refused("an attribute has not so many values");
    for (int64_t i = 0; i < count && type == DNN_TYPE_DESCRIPTOR; i++)
        if (!((descriptor_t *const *)values)[i]->is_final)
            return DNN_NOT_FINALIZED;
    attribute_t *a = &d->attribute[d->attributes++];
    *a = (attribute_t){name, type, count, malloc((size_t)count * width_of(type))};
    memcpy(a->values, values, (size_t)count * width_of(type));
    return DNN_OK;
}

/* ---- Graphs ---- */

static tensor_t tensor_read(const descriptor_t *d)
{
    tensor_t t = {.id = number(d, DNN_TENSOR_ID, 0),
                  .alignment = number(d, DNN_TENSOR_ALIGNMENT, 0),
                  .type = (uint32_t)number(d, DNN_TENSOR_TYPE, 0),
                  .is_virtual = number(d, DNN_TENSOR_VIRTUAL, 0),
                  .by_value = number(d, DNN_TENSOR_BY_VALUE, 0)};
    memcpy(t.dim, find(d, DNN_TENSOR_DIMS)->values, sizeof t.dim);
    memcpy(t.stride, find(d, DNN_TENSOR_STRIDES)->values, sizeof t.stride);
    return t;
}

/* The number of a tensor in a program; -1: another one has its id. */
static int tensor_add(program_t *p, const descriptor_t *d)
{
    if (!d)
        return -1;
    const tensor_t t = tensor_read(d);
    for (int k = 0; k < p->tensors; k++)
        if (p->tensor[k].id == t.id)
            return memcmp(&p->tensor[k], &t, sizeof t) == 0 ? k : -2;
    if (p->tensors == TENSORS)
        return -2;
    p->tensor[p->tensors] = t;
    return p->tensors++;
}

/* An operand is as large as the result along an axis, or 1 there. */
static bool repeats(const tensor_t *x, const tensor_t *y)
{
    for (int k = 0; k < DIMS; k++)
        if (x->dim[k] != y->dim[k] && x->dim[k] != 1)
            return false;
    return true;
}

static bool shapes_fit(const program_t *p, const operation_t *o)
{
    const tensor_t *y = &p->tensor[o->out], *x = &p->tensor[o->in[0]],
                   *b = o->in[1] < 0 ? NULL : &p->tensor[o->in[1]];
    switch (o->kind) {
    case DNN_OP_MATMUL:
        return x->dim[3] == b->dim[2] && x->dim[2] == y->dim[2] && b->dim[3] == y->dim[3]
               && x->dim[0] == y->dim[0] && b->dim[1] == y->dim[1];
    case DNN_OP_POINTWISE:
        for (int k = 0; k < 3; k++)
            if (o->in[k] >= 0 && !repeats(&p->tensor[o->in[k]], y))
                return false;
        return (o->mode == DNN_SELECT) == (o->in[2] >= 0);
    case DNN_OP_REDUCTION: return repeats(y, x);
    case DNN_OP_RESHAPE:
        return x->dim[0] * x->dim[1] * x->dim[2] * x->dim[3]
               == y->dim[0] * y->dim[1] * y->dim[2] * y->dim[3];
    default: return true;
    }
}

static void windows_read(operation_t *o, const descriptor_t *how)
{
    memcpy(o->padding, find(how, DNN_CONVOLUTION_BEFORE)->values, sizeof o->padding);
    memcpy(o->step, find(how, DNN_CONVOLUTION_STRIDES)->values, sizeof o->step);
    memcpy(o->dilation, find(how, DNN_CONVOLUTION_DILATIONS)->values, sizeof o->dilation);
}

/* Inputs, the result, and the descriptor of how, by kind. */
static const uint32_t names[][6] = {
    {DNN_OP_MATMUL, DNN_OP_MATMUL_A, DNN_OP_MATMUL_B, 0, DNN_OP_MATMUL_C,
     DNN_OP_MATMUL_DESC},
    {DNN_OP_POINTWISE, DNN_OP_POINTWISE_X, DNN_OP_POINTWISE_B, DNN_OP_POINTWISE_T,
     DNN_OP_POINTWISE_Y, DNN_OP_POINTWISE_DESC},
    {DNN_OP_REDUCTION, DNN_OP_REDUCTION_X, 0, 0, DNN_OP_REDUCTION_Y,
     DNN_OP_REDUCTION_DESC},
    {DNN_OP_RESHAPE, DNN_OP_RESHAPE_X, 0, 0, DNN_OP_RESHAPE_Y, 0},
    {DNN_OP_CONVOLUTION, DNN_FORWARD_X, DNN_FORWARD_W, 0, DNN_FORWARD_Y,
     DNN_FORWARD_DESC},
    {DNN_OP_DATA_GRADIENT, DNN_DATA_DY, DNN_DATA_W, 0, DNN_DATA_DX, DNN_DATA_DESC},
    {DNN_OP_FILTER_GRADIENT, DNN_FILTER_DY, DNN_FILTER_X, 0, DNN_FILTER_DW,
     DNN_FILTER_DESC},
};

static bool operation_add(program_t *p, const descriptor_t *d)
{
    operation_t *o = &p->operation[p->operations++];
    int n = 0;
    while (names[n][0] != d->type)
        n++;
    const descriptor_t *how = names[n][5] ? other(d, names[n][5]) : NULL;
    *o = (operation_t){.kind = d->type, .out = tensor_add(p, other(d, names[n][4]))};
    for (int k = 0; k < 3; k++)
        o->in[k] = names[n][1 + k] ? tensor_add(p, other(d, names[n][1 + k])) : -1;
    if (d->type == DNN_OP_POINTWISE) {
        o->mode = (uint32_t)number(how, DNN_POINTWISE_MODE, 0);
        o->axis = number(how, DNN_POINTWISE_AXIS, -1);
    } else if (d->type == DNN_OP_REDUCTION) {
        o->mode = (uint32_t)number(how, DNN_REDUCTION_MODE, 0);
    } else if (how && how->type == DNN_CONVOLUTION) {
        windows_read(o, how);
    }
    return o->out >= 0 && o->in[0] >= 0 && o->in[1] > -2 && o->in[2] > -2
           && shapes_fit(p, o);
}

static cu_result_t graph_finalize(descriptor_t *d)
{
    const attribute_t *ops = find(d, DNN_GRAPH_OPS);
    bool made[TENSORS] = {false};
    program_t *p = d->program = calloc(1, sizeof *p);
    for (int64_t k = 0; k < ops->count; k++)
        if (!operation_add(p, ((descriptor_t **)ops->values)[k]))
            return refused("the operands of an operation do not fit");
    for (int k = 0; k < p->operations; k++) {
        const operation_t *o = &p->operation[k];
        for (int i = 0; i < 3; i++)
            if (o->in[i] >= 0 && p->tensor[o->in[i]].is_virtual && !made[o->in[i]])
                return refused("a tensor is read before it is made");
        if (made[o->out] || p->tensor[o->out].by_value)
            return refused("a tensor is made twice");
        made[o->out] = true;
    }
    return DNN_OK;
}

/* ---- Plans ---- */

static uint64_t hash_of(const program_t *p)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t k = 0; k < sizeof *p; k++)
        hash = (hash ^ ((const unsigned char *)p)[k]) * 0x100000001b3u;
    return hash;
}

static cu_result_t plan_load(descriptor_t *d, const attribute_t *json)
{
    const char *text = json->values;
    program_t *p = d->program = calloc(1, sizeof *p);
    if (json->count != 16 + 2 * (int64_t)sizeof *p)
        return DNN_BAD_PARAM;
    for (size_t k = 0; k < sizeof *p; k++) {
        unsigned byte = 0;
        sscanf(text + 16 + 2 * k, "%2x", &byte);
        ((unsigned char *)p)[k] = (unsigned char)byte;
    }
    char sum[17];
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)hash_of(p));
    __atomic_add_fetch(&stand_in_loaded, 1, __ATOMIC_RELAXED);
    return memcmp(sum, text, 16) == 0 ? DNN_OK : DNN_BAD_PARAM;
}

static cu_result_t plan_finalize(descriptor_t *d)
{
    const attribute_t *json = find(d, DNN_PLAN_JSON);
    const descriptor_t *choice = other(d, DNN_PLAN_CONFIGURATION);
    if (!json == !choice)
        return refused("a plan is made of a configuration, or of a text");
    if (json)
        return plan_load(d, json);
    if (choice->engine == NONE)
        return DNN_NOT_SUPPORTED;
    d->program = malloc(sizeof *d->program);
    *d->program = *choice->graph->program;
    d->program->engine = choice->engine;
    __atomic_add_fetch(&stand_in_planned, 1, __ATOMIC_RELAXED);
    return DNN_OK;
}

API cu_result_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    descriptor_t *d = descriptor;
    cu_result_t status = fault_of(FINALIZE);
    if (status != DNN_OK)
        return status;
    if (d->is_final)
        return refused("a descriptor is finalized twice");
    for (int k = 0; k < RULES; k++)
        if (rules[k].of == d->type && rules[k].is_needed && !find(d, rules[k].name))
            return refused("an attribute is missing");
    if (d->type == DNN_GRAPH)
        status = graph_finalize(d);
    else if (d->type == DNN_PLAN)
        status = plan_finalize(d);
    else if (d->type == DNN_PACK
             && find(d, DNN_PACK_IDS)->count != find(d, DNN_PACK_POINTERS)->count)
        status = refused("not every tensor has an address");
    d->is_final = status == DNN_OK;
    return status;
}

static cu_result_t give(const void *from, size_t bytes, int64_t capacity, int64_t *count,
                        void *values)
{
    if (capacity < 1)
        return DNN_BAD_PARAM;
    *count = 1;
    memcpy(values, from, bytes);
    return DNN_OK;
}

static cu_result_t give_text(const program_t *p, int64_t capacity, int64_t *count,
                             char *values)
{
    *count = 16 + 2 * (int64_t)sizeof *p;
    if (capacity < *count)
        return capacity ? DNN_BAD_PARAM : DNN_OK;
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)hash_of(p));
    memcpy(values, hash, 16);
    for (size_t k = 0; k < sizeof *p; k++) {
        char byte[3];
        snprintf(byte, sizeof byte, "%02x", ((const unsigned char *)p)[k]);
        memcpy(values + 16 + 2 * k, byte, 2);
    }
    return DNN_OK;
}

API cu_result_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                         cu_choice_t name, cu_choice_t type,
                                         int64_t capacity, int64_t *count, void *values)
{
    descriptor_t *d = descriptor;
    static const int64_t workspace = WORKSPACE;
    const int64_t engine = d->engine;
    const uint32_t no_order = DNN_NOTE_NO_ORDER, cores = DNN_NOTE_TENSOR_CORE;
    if (!d->is_final)
        return DNN_NOT_FINALIZED;
    if (d->type == DNN_SEARCH && name == DNN_SEARCH_RESULTS && type == DNN_TYPE_DESCRIPTOR
        && capacity >= ENGINES) {
        for (int k = 0; k < ENGINES; k++) {
            descriptor_t *choice = ((descriptor_t **)values)[k];
            choice->engine = k;
            choice->graph = other(d, DNN_SEARCH_GRAPH);
            choice->is_final = true;
        }
        *count = ENGINES;
        return DNN_OK;
    }
    if (d->type == DNN_CONFIGURATION && name == DNN_CONFIGURATION_ENGINE) {
        descriptor_t *e = *(descriptor_t **)values;
        e->engine = d->engine;
        e->is_final = true;
        *count = 1;
        return DNN_OK;
    }
    if (d->type == DNN_ENGINE && name == DNN_ENGINE_NUMBER)
        return give(&engine, sizeof engine, capacity, count, values);
    if (d->type == DNN_ENGINE && name == DNN_ENGINE_NOTES) {
        *count = 0;
        return engine == PLAIN || engine == NONE
                   ? DNN_OK
                   : give(engine == IN_NO_ORDER ? &no_order : &cores, sizeof cores,
                          capacity, count, values);
    }
    if (d->type == DNN_PLAN && name == DNN_PLAN_WORKSPACE)
        return give(&workspace, sizeof workspace, capacity, count, values);
    if (d->type == DNN_PLAN && name == DNN_PLAN_JSON && type == DNN_TYPE_CHAR)
        return give_text(d->program, capacity, count, values);
    return refused("there is no such attribute");
}

/* ---- Runs ---- */

typedef struct work {
    program_t program;
    char *at[TENSORS];                                      /* in device memory */
    float value[TENSORS];
    void *workspace;
} work_t;

static double load(const char *from, uint32_t type, int64_t i)
{
    switch (type) {
    case DNN_F32: return (double)((const float *)from)[i];
    case DNN_BF16: return (double)pl_bf16_float(((const uint16_t *)from)[i]);
    default: return (double)pl_f16_float(((const uint16_t *)from)[i]);
    }
}

static double rounded(double x, uint32_t type)
{
    return type == DNN_F32    ? (double)(float)x
           : type == DNN_BF16 ? (double)pl_bf16_float(pl_bf16_bits((float)x))
           : type == DNN_F16  ? (double)pl_f16_float(pl_f16_bits((float)x))
                              : x;
}

static void store(char *to, uint32_t type, int64_t i, double x)
{
    switch (type) {
    case DNN_F32: ((float *)to)[i] = (float)x; break;
    case DNN_BF16: ((uint16_t *)to)[i] = pl_bf16_bits((float)x); break;
    default: ((uint16_t *)to)[i] = pl_f16_bits((float)x); break;
    }
}

/* Bytes from its first element to the end of its last one. */
static int64_t extent(const tensor_t *t)
{
    int64_t last = 0;
    for (int k = 0; k < DIMS; k++)
        last += (t->dim[k] - 1) * t->stride[k];
    return last + 1;
}

typedef struct run {
    const work_t *work;
    double *passed[TENSORS];         /* what operations pass on, as if it lay in memory */
} run_t;

static int64_t place(const tensor_t *t, const int64_t at[DIMS])
{
    int64_t place = 0;
    for (int k = 0; k < DIMS; k++)
        place += (t->dim[k] == 1 ? 0 : at[k]) * t->stride[k];
    return place;
}

static double get(const run_t *r, int tensor, const int64_t at[DIMS])
{
    const tensor_t *t = &r->work->program.tensor[tensor];
    const int64_t i = place(t, at);
    return t->by_value     ? (double)r->work->value[tensor]
           : t->is_virtual ? r->passed[tensor][i]
                           : load(r->work->at[tensor], t->type, i);
}

static void keep(const run_t *r, int tensor, int64_t i, double x)
{
    const tensor_t *t = &r->work->program.tensor[tensor];
    if (t->is_virtual)
        r->passed[tensor][i] = rounded(x, t->type);
    else
        store(r->work->at[tensor], t->type, i, x);
}

/* The next place in a shape; false: it was the last. */
static bool next(int64_t at[DIMS], const int64_t dim[DIMS])
{
    int k = DIMS - 1;
    while (k >= 0 && ++at[k] == dim[k])
        at[k--] = 0;
    return k >= 0;
}

static double pointwise(const run_t *r, const operation_t *o, const int64_t at[DIMS])
{
    const double x = get(r, o->in[0], at), b = o->in[1] < 0 ? 0 : get(r, o->in[1], at);
    switch (o->mode) {
    case DNN_ADD: return x + b;
    case DNN_SUB: return x - b;
    case DNN_MUL: return x * b;
    case DNN_DIV: return x / b;
    case DNN_EXP: return exp(x);
    case DNN_LOG: return log(x);
    case DNN_SAME: return x;
    case DNN_INDEX: return (double)at[o->axis];
    case DNN_AT_LEAST: return x >= b;
    case DNN_SELECT: return get(r, o->in[2], at) != 0 ? x : b;
    default: abort();
    }
}

/* Whether the engine adds up in the memory of a result. */
static bool adds_in_memory(const program_t *p, const operation_t *o)
{
    bool is_read = false;
    for (int k = 0; k < p->operations; k++)
        is_read |= p->operation[k].in[0] == o->out;
    return p->engine == IN_NO_ORDER && is_read && !p->tensor[o->out].is_virtual;
}

static double product(const run_t *r, const operation_t *o, const int64_t at[DIMS])
{
    const int64_t inner = r->work->program.tensor[o->in[0]].dim[3];
    double sum = adds_in_memory(&r->work->program, o) ? get(r, o->out, at) : 0;
    for (int64_t k = 0; k < inner; k++)
        sum += get(r, o->in[0], (int64_t[]){at[0], at[1], at[2], k})
               * get(r, o->in[1], (int64_t[]){at[0], at[1], k, at[3]});
    return sum;
}

static double reduced(const run_t *r, const operation_t *o, const int64_t at[DIMS])
{
    const tensor_t *x = &r->work->program.tensor[o->in[0]],
                   *y = &r->work->program.tensor[o->out];
    int64_t dim[DIMS], in[DIMS] = {0}, from[DIMS];
    double result = o->mode == DNN_MAX ? -INFINITY : 0;
    for (int k = 0; k < DIMS; k++)
        dim[k] = y->dim[k] == 1 ? x->dim[k] : 1;
    do {
        for (int k = 0; k < DIMS; k++)
            from[k] = at[k] + in[k];
        const double v = get(r, o->in[0], from);
        result = o->mode == DNN_MAX ? fmax(result, v) : result + v;
    } while (next(in, dim));
    return result;
}

/* Where x lies, y does too. */
static void reshape(const run_t *r, const operation_t *o)
{
    const tensor_t *x = &r->work->program.tensor[o->in[0]];
    int64_t at[DIMS] = {0};
    do
        keep(r, o->out, place(x, at), get(r, o->in[0], at));
    while (next(at, x->dim));
}

/* TF32 has 10 bits of mantissa. */
static double narrowed(const run_t *r, int tensor, const int64_t at[DIMS])
{
    const double x = get(r, tensor, at);
    if (r->work->program.engine != BY_TENSOR_CORES
        || r->work->program.tensor[tensor].type != DNN_F32)
        return x;
    const float single = (float)x;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    bits = (bits + 0x1000) & ~0x1fffu;
    float rounded_to;
    memcpy(&rounded_to, &bits, sizeof rounded_to);
    return (double)rounded_to;
}

/* Every window and filter that meet add to the result. */
static void convolve(const run_t *r, const operation_t *o)
{
    const program_t *p = &r->work->program;
    const int x = o->kind == DNN_OP_CONVOLUTION     ? o->in[0]
                  : o->kind == DNN_OP_DATA_GRADIENT ? o->out
                                                    : o->in[1],
              w = o->kind == DNN_OP_FILTER_GRADIENT ? o->out : o->in[1],
              y = o->kind == DNN_OP_CONVOLUTION ? o->out : o->in[0];
    const tensor_t *made = &p->tensor[o->out];
    const int64_t groups = p->tensor[x].dim[1] / p->tensor[w].dim[1];
    double *sum = calloc((size_t)extent(made), sizeof *sum);
    int64_t to[DIMS] = {0}, f[DIMS], of[DIMS] = {0};
    do {
        memset(f, 0, sizeof f);
        do {
            const int64_t group = to[1] / (p->tensor[w].dim[0] / groups),
                          from[DIMS] = {to[0], group * p->tensor[w].dim[1] + f[1],
                                        to[2] * o->step[0] - o->padding[0]
                                            + f[2] * o->dilation[0],
                                        to[3] * o->step[1] - o->padding[1]
                                            + f[3] * o->dilation[1]};
            f[0] = to[1];
            if (from[2] >= 0 && from[2] < p->tensor[x].dim[2] && from[3] >= 0
                && from[3] < p->tensor[x].dim[3]) {
                const int64_t *place_of = o->out == x ? from : o->out == w ? f : to;
                sum[place(made, place_of)] += (o->out == x ? 1 : narrowed(r, x, from))
                                              * (o->out == w ? 1 : narrowed(r, w, f))
                                              * (o->out == y ? 1 : narrowed(r, y, to));
            }
            f[0] = 0;
        } while (next(f, (int64_t[]){1, p->tensor[w].dim[1], p->tensor[w].dim[2],
                                     p->tensor[w].dim[3]}));
    } while (next(to, p->tensor[y].dim));
    do
        keep(r, o->out, place(made, of), sum[place(made, of)]);
    while (next(of, made->dim));
    free(sum);
}

static void operation_run(const run_t *r, const operation_t *o)
{
    const tensor_t *y = &r->work->program.tensor[o->out];
    int64_t at[DIMS] = {0};
    if (o->kind == DNN_OP_RESHAPE) {
        reshape(r, o);
    } else if (o->kind == DNN_OP_CONVOLUTION || o->kind == DNN_OP_DATA_GRADIENT
               || o->kind == DNN_OP_FILTER_GRADIENT) {
        convolve(r, o);
    } else {
        do
            keep(r, o->out, place(y, at),
                 o->kind == DNN_OP_MATMUL      ? product(r, o, at)
                 : o->kind == DNN_OP_REDUCTION ? reduced(r, o, at)
                                               : pointwise(r, o, at));
        while (next(at, y->dim));
    }
}

static int work_run(void *data)
{
    run_t r = {.work = data};
    const program_t *p = &r.work->program;
    memset(r.work->workspace, 0xff, WORKSPACE);
    for (int k = 0; k < p->tensors; k++)
        if (p->tensor[k].is_virtual)
            r.passed[k] = calloc((size_t)extent(&p->tensor[k]), sizeof(double));
    for (int k = 0; k < p->operations; k++)
        operation_run(&r, &p->operation[k]);
    for (int k = 0; k < p->tensors; k++)
        free(r.passed[k]);
    return 0;
}

static size_t type_bytes(uint32_t type)
{
    return type == DNN_BF16 || type == DNN_F16 ? 2 : 4;
}

/* Where each tensor of a pack lies; NULL, or why it cannot. */
static const char *pack_read(work_t *w, const descriptor_t *pack)
{
    const attribute_t *ids = find(pack, DNN_PACK_IDS),
                      *pointers = find(pack, DNN_PACK_POINTERS);
    int64_t used = 0;
    for (int k = 0; k < w->program.tensors; k++) {
        const tensor_t *t = &w->program.tensor[k];
        int64_t i = 0;
        while (i < ids->count && ((int64_t *)ids->values)[i] != t->id)
            i++;
        if (t->is_virtual)
            continue;
        if (i == ids->count)
            return "a tensor has no address";
        void *at = ((void **)pointers->values)[i];
        used++;
        if ((uintptr_t)at % (uintptr_t)t->alignment)
            return "an operand is not aligned";
        if (t->by_value)
            w->value[k] = *(float *)at;
        else if (!(w->at[k] = memory((CUdeviceptr)(uintptr_t)at,
                                     (size_t)extent(t) * type_bytes(t->type))))
            return "an operand is not in device memory";
    }
    return used == ids->count ? NULL : "an address belongs to no tensor";
}

API cu_result_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                    cudnnBackendDescriptor_t pack)
{
    const descriptor_t *p = plan, *of = pack;
    const cu_result_t fault = fault_of(EXECUTE);
    if (fault != DNN_OK)
        return fault;
    if (!p->is_final || !of->is_final)
        return DNN_NOT_FINALIZED;
    work_t *work = calloc(1, sizeof *work);
    void *workspace = *(void **)find(of, DNN_PACK_WORKSPACE)->values;
    work->program = *p->program;
    work->workspace = memory((CUdeviceptr)(uintptr_t)workspace, WORKSPACE);
    const char *why = pack_read(work, of);
    if (!work->workspace || (uintptr_t)workspace % 256)
        why = "the workspace is too small, or not aligned";
    if (work->program.engine != BY_TENSOR_CORES && work->program.engine != PLAIN
        && !fact("any_order", 0, NULL))
        why = "the engine adds up in no order";
    cu_result_t status = why ? refused(why) : DNN_OK;
    /* cuDNN 9.19 on an H100: a plan that no text was loaded into computes nothing. */
    const bool computes = find(p, DNN_PLAN_JSON) != NULL;
    if (!why && computes && put(handle->stream, work_run, work, sizeof *work) != CU_OK)
        status = DNN_EXECUTION_FAILED;
    if (status == DNN_OK)
        __atomic_add_fetch(&stand_in_executed, 1, __ATOMIC_RELAXED);
    free(work);
    return status;
}
