/* model.h - the named tensors of a module and their positions in flat regions
 *
 * Parameters and state are created at first use, while the first graph is described;
 * after pl_model_freeze() a graph can only use existing ones.  Offsets are multiples
 * of PL_REGION_ALIGN, in order of first use. */
#ifndef PL_TENSOR_MODEL_H
#define PL_TENSOR_MODEL_H

#include <jansson.h>

#include "base/map.h"
#include "paceline.h"
#include "tensor/graph.h"

typedef struct pl_tensor_info {
    char name[64];                                          /* "h.0.attn.weight" */
    pl_shape_t shape;
    pl_region_t region;                          /* PL_REGION_PARAMS or PL_REGION_STATE */
    int64_t offset, count;                       /* elements */
    pl_init_rule_t init;
    pl_agree_t agree;
    int objective;                  /* of a parameter: the index of the objective that
                                       trains it */
    bool frozen;                    /* no objective trains it until it is unfrozen */
    int same_hash;                  /* number + 1 of the next with this hash  [0: none] */
} pl_tensor_info_t;

typedef struct pl_model {
    int references;                            /* atomic: its owner's, and each graph's */
    pl_tensor_info_t *tensor;
    int count, capacity;
    pl_map_t names;                      /* hash of a name to number + 1 */
    int64_t params, state;               /* elements of each region, padding included */
    const pl_precision_ops_t *precision;  /* number formats of tensors and computation */
    const pl_loss_scaling_t *scaling;    /* of the loss  [none] */
    int micro_batches;                   /* per optimizer step, for the scaling  [0: 1] */
    bool together;                       /* batch norms use the batches of all ranks */
    bool frozen;
} pl_model_t;

/* The factor from which on a value that is not finite is no fault of the factor:
 * min_scale with the rounding of repeated halving. */
static inline double pl_scaling_lowest(const pl_loss_scaling_t *scaling)
{
    return scaling->min_scale * (1 + 1e-6);
}

/* Whether an objective trains the tensor. */
static inline bool pl_is_trained(const pl_tensor_info_t *tensor, int objective)
{
    return tensor->region == PL_REGION_PARAMS && tensor->objective == objective
           && !tensor->frozen;
}

pl_model_t *pl_model_new(pl_error_t *err);
/* Drops a reference; the last owner or graph frees the model. */
void pl_model_free(pl_model_t *model);
pl_model_t *pl_model_ref(pl_model_t *model);                /* NULL stays NULL */
void pl_model_freeze(pl_model_t *model);

/* Adds a tensor and sets its offset and count; pl_param() and pl_state() call it at first
 * use.  PL_ENOTFOUND: the model is frozen.  The result is valid until the next one is
 * added. */
const pl_tensor_info_t *pl_model_add(pl_model_t *model, const pl_tensor_info_t *tensor,
                                     pl_error_t *err);

/* The tensor of that name, or NULL. */
const pl_tensor_info_t *pl_model_find(const pl_model_t *model, const char *name);

/* First values of parameters or state, a pure function of (seed, name, element): data
 * [params] or [state], doubles for PL_F64, else float32. */
void pl_model_init(const pl_model_t *model, pl_region_t region, uint64_t seed,
                   pl_dtype_t dtype, void *data);

/* ---- The summary of a module: summary.c ---- */

/* Floating-point operations of the products of a forward pass over the whole batch: two
 * for each multiplication and addition of a product, convolution or attention; other
 * operators count as nothing.  Training takes three times as many, as usually counted
 * (Chowdhery et al., PaLM, appendix B): a repeated computation does not count. */
double pl_graph_flops(const pl_graph_t *g);

/* Bytes for the values of a training step and its gradients, without batch, parameters
 * and other regions, on a device that stores every result: one that fuses operations
 * needs less.  Completes the described graph, as pl_graph_gradients() would; precision:
 * the formats of values  [NULL: float32]. */
int pl_graph_step_bytes(pl_graph_t *g, const pl_precision_ops_t *precision, double *bytes,
                        pl_error_t *err);

/* The layers of a described graph in order of first use: a list of {"name": "fc1",
 * "type": "linear", "in": [64, 784], "out": [64, 128], "parameters": 100480}.  Shapes are
 * those of the operation that uses the layer's parameters first. */
json_t *pl_graph_layers(const pl_graph_t *g, const pl_model_t *model, pl_error_t *err);

/* A described graph as one of the graphs of pl_run_graph().  graph_json.c */
json_t *pl_graph_json(const pl_graph_t *g, const pl_model_t *model, pl_error_t *err);

#endif
