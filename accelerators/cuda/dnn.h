/* dnn.h - layers as graphs of operations for cuDNN, and its plans for them
 *
 * dnn_graph.c describes operations and finds an engine, dnn_layers.c describes
 * attention and convolution as operations, dnn.c keeps the plans of a device and runs
 * them.  A device is a descriptor, so that plans can be made for a card that is not
 * there. */
#ifndef PL_CUDA_DNN_H
#define PL_CUDA_DNN_H

#include "accelerators/cuda/load.h"
#include "accelerators/gpu/backend.h"

enum { DNN_DESCRIPTORS = 128, DNN_OPERATIONS = 32, DNN_DIMS = 4, DNN_OPERANDS = 14 };

/* Numbers of values that a graph reads from the host's memory when it runs, and of rows
 * and sums of an attention in the workspace.  An operand of a layer has its number of
 * backend.h, plus 1. */
enum {
    DNN_ID_SCALE = 50,
    DNN_ID_MIN,
    DNN_ID_ONE,
    DNN_ID_ROWS,
    DNN_ID_SUMS,
    DNN_ID_OTHERS = 100,
};

/* What an engine may do: round float32 to TF32; add up in any order. */
typedef struct dnn_rules {
    bool tf32, any_order;
} dnn_rules_t;

typedef struct dnn_graph {
    const cuda_dnn_t *call;
    cu_result_t status;           /* the first other than DNN_OK; then nothing is added */
    cudnnBackendDescriptor_t made[DNN_DESCRIPTORS], operation[DNN_OPERATIONS];
    int count, operations;
    int64_t next;                                  /* number of the next virtual tensor */
} dnn_graph_t;

typedef struct dnn_shape {
    int64_t dim[DNN_DIMS], stride[DNN_DIMS];
} dnn_shape_t;

/* All zero but `call` to begin with. */
void dnn_graph_release(dnn_graph_t *graph);

/* A new descriptor of the graph; its attributes; its end. */
cudnnBackendDescriptor_t dnn_descriptor(dnn_graph_t *graph, cu_choice_t type);
void dnn_set(dnn_graph_t *graph, cudnnBackendDescriptor_t of, cu_choice_t attribute,
             cu_choice_t type, int64_t count, const void *values);
void dnn_set_one(dnn_graph_t *graph, cudnnBackendDescriptor_t of, cu_choice_t attribute,
                 cudnnBackendDescriptor_t value);
void dnn_finalize(dnn_graph_t *graph, cudnnBackendDescriptor_t descriptor);

/* An operand in memory; a virtual tensor between operations; a number from the host. */
cudnnBackendDescriptor_t dnn_operand(dnn_graph_t *graph, int64_t id, cu_choice_t type,
                                     const dnn_shape_t *shape);
cudnnBackendDescriptor_t dnn_between(dnn_graph_t *graph, cu_choice_t type,
                                     const dnn_shape_t *shape);
cudnnBackendDescriptor_t dnn_number(dnn_graph_t *graph, int64_t id);

/* y = a b; y = mode(x, b, t), b and t may be NULL; the index of each element along an
 * axis; the sum of x, or its largest element, along the axes on which y has one
 * element; y has the elements of x in another order. */
void dnn_matmul(dnn_graph_t *graph, cudnnBackendDescriptor_t a,
                cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y);
void dnn_pointwise(dnn_graph_t *graph, cu_choice_t mode, cudnnBackendDescriptor_t x,
                   cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t t,
                   cudnnBackendDescriptor_t y);
void dnn_index(dnn_graph_t *graph, cudnnBackendDescriptor_t x, int64_t axis,
               cudnnBackendDescriptor_t y);
void dnn_reduce(dnn_graph_t *graph, cu_choice_t mode, cudnnBackendDescriptor_t x,
                cudnnBackendDescriptor_t y);
void dnn_reshape(dnn_graph_t *graph, cudnnBackendDescriptor_t x,
                 cudnnBackendDescriptor_t y);
void dnn_add_operation(dnn_graph_t *graph, cudnnBackendDescriptor_t operation);

cu_choice_t dnn_type(pl_dtype_t dtype);

/* Adds the operations of a layer.  any_order: queries' gradients are added up in memory,
 * float32 zeros of that number. */
void dnn_attention(dnn_graph_t *graph, const pl_layer_t *layer);
void dnn_attention_grad(dnn_graph_t *graph, const pl_layer_t *layer, bool any_order);
void dnn_convolution(dnn_graph_t *graph, const pl_layer_t *layer);

/* A layer or a part of one, ready to run. */
typedef struct dnn_plan {
    dnn_graph_t graph;
    cudnnBackendDescriptor_t plan;              /* [NULL: not made yet] */
    int64_t workspace;                          /* bytes */
    int64_t rows, sums;                         /* bytes at its begin, for rows; for sums,
                                                   which are zeros when it runs */
    int64_t engine;                             /* its number  [-1: unknown] */
} dnn_plan_t;

/* A descriptor of a device, by a description in JSON or by a handle.  NULL: see
 * *status. */
cudnnBackendDescriptor_t dnn_device_new(const cuda_dnn_t *call, cudnnHandle_t handle,
                                        const char *json, cu_result_t *status);
/* Describes a layer and finds an engine that computes it with equal bits each time, and
 * in float32 without TF32, unless the rules allow it.  An unsupported status: there is
 * none; another: cuDNN failed.  *text, for dnn_plan_load(), is from pl_alloc()  [NULL
 * after a failure]. */
cu_result_t dnn_plan_make(dnn_plan_t *plan, const cuda_dnn_t *call,
                          cudnnBackendDescriptor_t device, const pl_layer_t *layer,
                          dnn_rules_t rules, char **text, size_t *bytes);
cu_result_t dnn_plan_load(dnn_plan_t *plan, const cuda_dnn_t *call,
                          cudnnBackendDescriptor_t device, const pl_layer_t *layer,
                          dnn_rules_t rules, const char *text, size_t bytes);
/* For addresses as backend.h has them. */
cu_result_t dnn_plan_run(const dnn_plan_t *plan, cudnnHandle_t handle,
                         const pl_layer_t *layer,
                         const pl_device_ptr_t address[PL_LAYER_ADDRESSES]);
void dnn_plan_release(dnn_plan_t *plan);

/* Whether a status is no failure: an engine does not compute the layer. */
static inline bool dnn_is_unsupported(cu_result_t status)
{
    return status / 1000 == DNN_NOT_SUPPORTED / 1000;
}

/* Whether cuDNN may compute a layer. */
bool dnn_fits(const pl_layer_t *layer);
/* The part of a layer that is computed at a time, and the number of parts.  dnn_part_max:
 * bytes of workspace of a part of a gradient of attention, if it can be that small. */
extern int64_t dnn_part_max;
pl_layer_t dnn_part(const pl_layer_t *layer, dnn_rules_t rules, int64_t *batches,
                    int64_t *heads);
enum { DNN_TEXT = 640 };
/* A description of a layer, with everything that its plan depends on. */
void dnn_text(const pl_layer_t *layer, char text[DNN_TEXT]);

#endif
