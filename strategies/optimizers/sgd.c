/* sgd.c - stochastic gradient descent with momentum
 *
 * torch.optim.SGD; Sutskever et al., "On the importance of initialization and momentum
 * in deep learning", 2013. */
#include "strategies/optimizers/optimizer.h"

typedef struct sgd {
    double lr, momentum, dampening, weight_decay;
    bool nesterov;
} sgd_t;

static const pl_option_t sgd_options[] = {
    PL_FLOAT(sgd_t, lr, "0.01", "0..", "learning rate"),
    PL_FLOAT(sgd_t, momentum, "0", "[0..1)", "share of the last step in the next one"),
    PL_FLOAT(sgd_t, dampening, "0", "[0..1]",
             "share of the gradient that is left out of the momentum"),
    PL_BOOL(sgd_t, nesterov, "false", "look ahead by one momentum step"),
    PL_FLOAT(sgd_t, weight_decay, "0", "0..",
             "share of the parameter added to its gradient"),
    PL_OPTIONS_END,
};

static int sgd_slots(const void *self)
{
    const sgd_t *sgd = self;
    return sgd->momentum > 0 ? 1 : 0;
}

/* The first gradient is the first momentum, whole. */
static void sgd_scalars(const void *self, uint64_t step, double scalar[PL_SCALARS])
{
    const sgd_t *sgd = self;
    scalar[0] = step > 1 ? 1 - sgd->dampening : 1;
}

static void sgd_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const sgd_t *sgd = self;
    pl_node_t grad = pl_decayed_gradient(g, u, sgd->weight_decay);
    if (sgd->nesterov && (sgd->momentum == 0 || sgd->dampening > 0)) {
        pl_graph_fail(g, PL_EINVAL,
                      "nesterov needs a momentum above 0 and a dampening of 0");
        return;
    }
    if (sgd->momentum > 0) {
        pl_node_t taken = sgd->dampening > 0 ? pl_mul(g, grad, u->scalar[0]) : grad;
        pl_node_t velocity = pl_add(g, pl_times_momentum(g, u, u->slot[0], sgd->momentum),
                                    taken);
        pl_assign(g, u->slot[0], velocity);
        grad = sgd->nesterov
                   ? pl_add(g, grad, pl_times_momentum(g, u, velocity, sgd->momentum))
                   : velocity;
    }
    pl_assign(g, u->param, pl_sub(g, u->param, pl_mul(g, grad, u->lr)));
}

const pl_optimizer_ops_t pl_sgd_optimizer = {
    .name = "sgd",
    .help = "stochastic gradient descent with momentum",
    .size = sizeof(sgd_t),
    .options = sgd_options,
    .slots = sgd_slots,
    .update = sgd_update,
    .scalars = sgd_scalars,
    .momentum = "momentum",
    .weight_decay = "weight_decay",
};
