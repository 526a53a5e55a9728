/* adagrad.c - Adagrad: steps divided by the root of all squared gradients so far
 *
 * torch.optim.Adagrad; Duchi, Hazan and Singer, "Adaptive subgradient methods for online
 * learning and stochastic optimization", 2011, section 1.2. Slots start at zero, so the
 * accumulator's start is added where it is read. */
#include "strategies/optimizers/optimizer.h"

typedef struct adagrad {
    double lr, lr_decay, weight_decay, initial_accumulator_value, eps;
} adagrad_t;

static const pl_option_t adagrad_options[] = {
    PL_FLOAT(adagrad_t, lr, "0.01", "0..", "learning rate"),
    PL_FLOAT(adagrad_t, lr_decay, "0", "0..",
             "the rate of step t is lr / (1 + (t - 1) lr_decay)"),
    PL_FLOAT(adagrad_t, weight_decay, "0", "0..",
             "share of the parameter added to its gradient"),
    PL_FLOAT(adagrad_t, initial_accumulator_value, "0", "0..",
             "initial value of the sum of squares"),
    PL_FLOAT(adagrad_t, eps, "1e-10", "0..",
             "added to the root, against division by zero"),
    PL_OPTIONS_END,
};

static int adagrad_slots(const void *self)
{
    (void)self;
    return 1;
}

static void adagrad_scalars(const void *self, uint64_t step, double scalar[PL_SCALARS])
{
    const adagrad_t *adagrad = self;
    scalar[0] = 1 / (1 + (double)(step - 1) * adagrad->lr_decay);
}

static void adagrad_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const adagrad_t *adagrad = self;
    pl_node_t grad = pl_decayed_gradient(g, u, adagrad->weight_decay);
    pl_node_t sum = pl_add(g, u->slot[0], pl_mul(g, grad, grad));
    pl_node_t start = pl_scalar(g, adagrad->initial_accumulator_value);
    pl_node_t root = pl_add(g, pl_sqrt(g, pl_add(g, sum, start)),
                            pl_scalar(g, adagrad->eps));
    pl_node_t rate = pl_mul(g, u->lr, u->scalar[0]);
    pl_assign(g, u->param, pl_sub(g, u->param, pl_div(g, pl_mul(g, grad, rate), root)));
    pl_assign(g, u->slot[0], sum);
}

const pl_optimizer_ops_t pl_adagrad_optimizer = {
    .name = "adagrad",
    .help = "steps shrink with the sum of squared gradients",
    .size = sizeof(adagrad_t),
    .options = adagrad_options,
    .slots = adagrad_slots,
    .update = adagrad_update,
    .scalars = adagrad_scalars,
    .weight_decay = "weight_decay",
};
