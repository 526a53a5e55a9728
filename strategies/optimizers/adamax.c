/* adamax.c - Adamax: Adam that divides by the largest gradient of late, not by a root
 *
 * torch.optim.Adamax; Kingma and Ba, "Adam: a method for stochastic optimization", 2015,
 * algorithm 2. */
#include <math.h>

#include "strategies/optimizers/optimizer.h"

typedef struct adamax {
    double lr, beta1, beta2, eps, weight_decay;
} adamax_t;

static const pl_option_t adamax_options[] = {
    PL_FLOAT(adamax_t, lr, "0.002", "0..", "learning rate"),
    PL_FLOAT(adamax_t, beta1, "0.9", "[0..1)", "decay of the gradient's mean"),
    PL_FLOAT(adamax_t, beta2, "0.999", "[0..1)", "decay of the largest gradient"),
    PL_FLOAT(adamax_t, eps, "1e-8", "0..",
             "added to the size of the gradient, against division by zero"),
    PL_FLOAT(adamax_t, weight_decay, "0", "0..",
             "share of the parameter added to its gradient"),
    PL_OPTIONS_END,
};

static int adamax_slots(const void *self)
{
    (void)self;
    return 2;
}

static void adamax_scalars(const void *self, uint64_t step, double scalar[PL_SCALARS])
{
    const adamax_t *adamax = self;
    scalar[0] = 1 / (1 - pow(adamax->beta1, (double)step));
}

static void adamax_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const adamax_t *adamax = self;
    pl_node_t grad = pl_decayed_gradient(g, u, adamax->weight_decay);
    pl_node_t mean = pl_add(g, pl_times_momentum(g, u, u->slot[0], adamax->beta1),
                            pl_times_rest(g, u, grad, adamax->beta1));
    pl_node_t size = pl_add(g, pl_abs(g, grad), pl_scalar(g, adamax->eps));
    pl_node_t max = pl_maximum(g, pl_scale(g, u->slot[1], adamax->beta2), size);
    pl_node_t rate = pl_mul(g, u->lr, u->scalar[0]);
    pl_assign(g, u->param, pl_sub(g, u->param, pl_div(g, pl_mul(g, mean, rate), max)));
    pl_assign(g, u->slot[0], mean);
    pl_assign(g, u->slot[1], max);
}

const pl_optimizer_ops_t pl_adamax_optimizer = {
    .name = "adamax",
    .help = "Adam by the largest gradient in place of the root of squares",
    .size = sizeof(adamax_t),
    .options = adamax_options,
    .slots = adamax_slots,
    .update = adamax_update,
    .scalars = adamax_scalars,
    .momentum = "beta1",
    .weight_decay = "weight_decay",
};
