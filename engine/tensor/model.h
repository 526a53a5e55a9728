/* model.h - the named tensors of a module and where each lies in its flat region
 *
 * Parameters and state arise at first use while the first graph is described; after
 * pl_model_freeze() a graph can only use what is there.  Offsets are multiples of
 * PL_REGION_ALIGN, in order of first use. */
#ifndef PL_TENSOR_MODEL_H
#define PL_TENSOR_MODEL_H

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
    int objective;                     /* of a parameter: which of the module's objectives
                                          trains it, from 0 */
    bool frozen;                       /* no objective does, until it is unfrozen */
    int same_hash;                     /* number + 1 of another to look at  [0: none] */
} pl_tensor_info_t;

typedef struct pl_model {
    int references;                            /* atomic: its owner's, and each graph's */
    pl_tensor_info_t *tensor;
    int count, capacity;
    pl_map_t names;                        /* hash of a name to number + 1 */
    int64_t params, state;                 /* elements of each region, padding included */
    const pl_precision_ops_t *precision;   /* how they are kept and computed with */
    const pl_loss_scaling_t *scaling;      /* of the loss  [none] */
    int micro_batches;                     /* to an optimizer step, for the scaling
                                              [0: 1] */
    bool together;                         /* a batch norm's batch is that of all ranks */
    bool frozen;
} pl_model_t;

/* At which factor, or below, what is not finite is not the factor's fault: min_scale, as
 * halving, say, comes to it. */
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
/* Graphs of it may outlive it: the last of them frees it.  NULL is fine. */
void pl_model_free(pl_model_t *model);
pl_model_t *pl_model_ref(pl_model_t *model);                /* NULL stays NULL */
void pl_model_freeze(pl_model_t *model);

/* Adds a tensor (its offset and count are filled in): what pl_param() and pl_state() do
 * at first use.  PL_ENOTFOUND once the model is frozen.  What is returned lasts until the
 * next one is added. */
const pl_tensor_info_t *pl_model_add(pl_model_t *model, const pl_tensor_info_t *tensor,
                                     pl_error_t *err);

/* The tensor of that name, or NULL. */
const pl_tensor_info_t *pl_model_find(const pl_model_t *model, const char *name);

/* First values of parameters or state, a pure function of (seed, name, element): data
 * [params] or [state], doubles for PL_F64, else float32. */
void pl_model_init(const pl_model_t *model, pl_region_t region, uint64_t seed,
                   pl_dtype_t dtype, void *data);

#endif
