/* optimizer.h - one optimizer step as a graph: norm, guard, clipping, and an
 * optimizer's update of every parameter
 *
 * Step scalar 0 is the learning rate, 1 and following are what the optimizer's
 * scalars() writes.  The graph's fetches are "loss" (sum, weight) and "grad_norm"
 * (norm of the mean loss's gradient before clipping, 1), and those of scaling.h.  Its
 * guards stop the step when the loss or the norm is not finite.  With a weight of 0, when
 * nobody had a sample or all targets were ignored, nothing is updated, and that is no
 * fault.  State is kept in PL_REGION_KEPT by each step that does update. */
#ifndef PL_OPTIMIZER_H
#define PL_OPTIMIZER_H

#include "paceline.h"
#include "tensor/model.h"

extern const pl_optimizer_ops_t pl_adagrad_optimizer, pl_adam_optimizer,
    pl_adamw_optimizer, pl_lion_optimizer, pl_muon_optimizer, pl_rmsprop_optimizer,
    pl_sgd_optimizer;
extern const pl_scheduler_ops_t pl_constant_scheduler, pl_linear_scheduler,
    pl_cosine_scheduler;

/* All of them, for pl_register(). */
extern const pl_registration_t pl_optimizer_parts[];

typedef struct pl_optimizer {
    const pl_optimizer_ops_t *ops;
    const void *self;                                  /* its struct, options filled in */
} pl_optimizer_t;

/* The graph of one step over the regions of a model.  PL_REGION_GRADS holds sums as
 * pl_graph_gradients() left them with `nominal`, added up over ranks; clip is the
 * largest norm [0: no clipping]. */
pl_graph_t *pl_optimizer_graph(pl_optimizer_t optimizer, const pl_model_t *model,
                               double nominal, double clip, pl_error_t *err);

/* The option "lr", and how many slots of PL_REGION_SLOT0 and following it needs. */
double pl_optimizer_lr(pl_optimizer_t optimizer);
int pl_optimizer_slots(pl_optimizer_t optimizer);

/* The step scalars of `step`, counted from 1, at a learning rate: scalar
 * [PL_STEP_SCALARS]. */
void pl_optimizer_scalars(pl_optimizer_t optimizer, double lr, uint64_t step,
                          float *scalar);

/* For updates: the gradient with a share of the parameter added to it, and the parameter
 * less lr times a share of it; both as they are where nothing decays. */
pl_node_t pl_decayed_gradient(pl_graph_t *g, const pl_update_t *u, double weight_decay);
pl_node_t pl_decayed_param(pl_graph_t *g, const pl_update_t *u, double weight_decay);

#endif
