/* optimizer.c - one optimizer step as a graph: norm, guard, clipping, and an
 * optimizer's update of every parameter
 *
 * Neighbouring tensors that are treated alike are one range, with the zeros between
 * them: an optimizer sees a few long vectors and never a tensor.  Zeros stay zeros,
 * for their gradient is zero. */
#include "strategies/optimizers/optimizer.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "strategies/optimizers/scaling.h"
#include "tensor/graph.h"
#include "tensor/precision.h"

const pl_registration_t pl_optimizer_parts[] = {
    {"optimizer", &pl_adagrad_optimizer},
    {"optimizer", &pl_adam_optimizer},
    {"optimizer", &pl_adamw_optimizer},
    {"optimizer", &pl_lion_optimizer},
    {"optimizer", &pl_muon_optimizer},
    {"optimizer", &pl_rmsprop_optimizer},
    {"optimizer", &pl_sgd_optimizer},
    {"scheduler", &pl_constant_scheduler},
    {"scheduler", &pl_linear_scheduler},
    {"scheduler", &pl_cosine_scheduler},
    PL_REGISTRATIONS_END,
};

double pl_optimizer_lr(pl_optimizer_t optimizer)
{
    const pl_option_t *lr = optimizer.ops->options;
    assert(lr && lr->type == PL_OPTION_FLOAT && !strcmp(lr->name, "lr"));
    return *(const double *)((const char *)optimizer.self + lr->offset);
}

int pl_optimizer_slots(pl_optimizer_t optimizer)
{
    return optimizer.ops->slots(optimizer.self);
}

void pl_optimizer_scalars(pl_optimizer_t optimizer, double lr, uint64_t step,
                          float *scalar)
{
    scalar[0] = (float)lr;
    if (optimizer.ops->scalars)
        optimizer.ops->scalars(optimizer.self, step, scalar + 1);
}

pl_node_t pl_decayed_gradient(pl_graph_t *g, const pl_update_t *u, double weight_decay)
{
    if (weight_decay == 0 || !u->decay)
        return u->grad;
    return pl_add(g, u->grad, pl_scale(g, u->param, weight_decay));
}

pl_node_t pl_decayed_param(pl_graph_t *g, const pl_update_t *u, double weight_decay)
{
    if (weight_decay == 0 || !u->decay)
        return u->param;
    pl_node_t kept = pl_sub(g, pl_scalar(g, 1), pl_scale(g, u->lr, weight_decay));
    return pl_mul(g, u->param, kept);
}

/* The option of that name, for optimizers that have it: whether tensors of fewer than
 * two axes decay too. */
static bool decays_vectors(pl_optimizer_t optimizer)
{
    for (const pl_option_t *o = optimizer.ops->options; o->type != PL_OPTION_END; o++)
        if (o->type == PL_OPTION_BOOL && !strcmp(o->name, "decay_vectors"))
            return *(const bool *)((const char *)optimizer.self + o->offset);
    return true;
}

/* ---- The step ---- */

typedef struct step {
    pl_graph_t *g;
    pl_optimizer_t optimizer;
    pl_update_t common;                                     /* what all ranges share */
    pl_node_t factor;                                       /* of every gradient */
} step_t;

static void figure(pl_graph_t *g, const char *name, pl_node_t sum, pl_node_t weight)
{
    pl_log(g, name, (pl_loss_t){sum, weight}, PL_ON_STEP);
}

/* For a step that is guarded to go back to. */
static void keep_state(pl_graph_t *g, const pl_model_t *model)
{
    const pl_shape_t shape = PL_SHAPE(model->state);
    if (model->state)
        pl_assign(g, pl_region_view(g, PL_REGION_KEPT, 0, shape),
                  pl_region_view(g, PL_REGION_STATE, 0, shape));
}

/* From the gradient of sum/nominal to that of sum/weight, clipped. */
static pl_node_t gradient_factor(pl_graph_t *g, const pl_model_t *model, double nominal,
                                 double clip)
{
    pl_node_t loss = pl_region_view(g, PL_REGION_GRADS, model->params, pl_shape(0));
    pl_node_t weight = pl_region_view(g, PL_REGION_GRADS, model->params + 1, pl_shape(0));
    pl_node_t grads = pl_region_view(g, PL_REGION_GRADS, 0, PL_SHAPE(model->params));
    pl_emit(g, PL_OP_guard, &weight, 1, &(pl_attr_t){.empty = true}, NULL);
    pl_node_t factor = pl_div(g, pl_scalar(g, nominal), weight);
    if (model->scaling)
        factor = pl_div(g, factor, pl_scaling_factor(g));
    pl_node_t norm =
        pl_mul(g, pl_sqrt(g, pl_sum(g, pl_mul(g, grads, grads), NULL, 0, false)), factor);
    figure(g, "loss", loss, weight);
    figure(g, "grad_norm", norm, pl_scalar(g, 1));
    if (model->scaling) {
        pl_scaling_step(g, model, loss, norm);
    } else {
        pl_emit(g, PL_OP_guard, &loss, 1, NULL, NULL);
        pl_emit(g, PL_OP_guard, &norm, 1, NULL, NULL);
    }
    keep_state(g, model);
    if (clip <= 0)
        return factor;
    /* torch.nn.utils.clip_grad_norm_ */
    pl_node_t share = pl_div(g, pl_scalar(g, clip), pl_add(g, norm, pl_scalar(g, 1e-6)));
    return pl_mul(g, factor, pl_minimum(g, share, pl_scalar(g, 1)));
}

static void update_range(step_t *s, int64_t from, pl_shape_t shape, bool decay)
{
    pl_graph_t *g = s->g;
    pl_update_t u = s->common;
    u.param = pl_region_view(g, PL_REGION_PARAMS, from, shape);
    u.grad = pl_mul(g, pl_region_view(g, PL_REGION_GRADS, from, shape), s->factor);
    for (int k = 0; k < pl_optimizer_slots(s->optimizer); k++)
        u.slot[k] = pl_region_view(g, (pl_region_t)(PL_REGION_SLOT0 + k), from, shape);
    u.decay = decay;
    s->optimizer.ops->update(g, s->optimizer.self, &u);
}

static bool is_alone(pl_optimizer_t optimizer, pl_shape_t shape)
{
    return optimizer.ops->alone && optimizer.ops->alone(optimizer.self, shape);
}

static void update_all(step_t *s, const pl_model_t *model)
{
    const bool vectors = decays_vectors(s->optimizer);
    int64_t from = 0;
    bool decay = true;
    for (int i = 0; i < model->count; i++) {
        const pl_tensor_info_t *t = &model->tensor[i];
        const bool wanted = vectors || t->shape.rank >= 2;
        const bool alone = is_alone(s->optimizer, t->shape);
        if (t->region != PL_REGION_PARAMS)
            continue;
        if ((alone || wanted != decay) && t->offset > from) {
            update_range(s, from, PL_SHAPE(t->offset - from), decay);
            from = t->offset;
        }
        decay = wanted;
        if (alone) {
            update_range(s, from, t->shape, decay);
            from = t->offset + t->count;
        }
    }
    if (model->params > from)
        update_range(s, from, PL_SHAPE(model->params - from), decay);
}

pl_graph_t *pl_optimizer_graph(pl_optimizer_t optimizer, const pl_model_t *model,
                               double nominal, double clip, pl_error_t *err)
{
    if (model->params == 0) {
        pl_fail(err, PL_EINVAL, "the module has no parameters to optimize");
        return NULL;
    }
    step_t s = {.g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err),
                .optimizer = optimizer};
    if (!s.g)
        return NULL;
    pl_scope(s.g, "%s", optimizer.ops->name);
    s.factor = gradient_factor(s.g, model, nominal, clip);
    s.common.lr = pl_step_scalar(s.g, 0);
    for (int k = 0; k < PL_SCALARS; k++)
        s.common.scalar[k] = pl_step_scalar(s.g, 1 + k);
    update_all(&s, model);
    pl_scope_end(s.g);
    if (pl_graph_cast(s.g, model->precision, err) != PL_OK) {
        pl_graph_free(s.g);
        return NULL;
    }
    pl_graph_prune(s.g);
    return s.g;
}
