/* rmsprop.c - RMSprop: steps divided by the root of the squared gradient's running mean
 *
 * torch.optim.RMSprop; Hinton, "Neural networks for machine learning", lecture 6, 2012;
 * centered: Graves, "Generating sequences with recurrent neural networks", 2013, section
 * 4.2. Slots: the mean of squares, then the velocity and the mean where they are
 * wanted. */
#include "strategies/optimizers/optimizer.h"

typedef struct rmsprop {
    double lr, alpha, eps, momentum, weight_decay;
    bool centered;
} rmsprop_t;

static const pl_option_t rmsprop_options[] = {
    PL_FLOAT(rmsprop_t, lr, "0.01", "0..", "learning rate"),
    PL_FLOAT(rmsprop_t, alpha, "0.99", "[0..1)", "decay of the squared gradient's mean"),
    PL_FLOAT(rmsprop_t, eps, "1e-8", "0..",
             "added to the root, against division by zero"),
    PL_FLOAT(rmsprop_t, momentum, "0", "[0..1)",
             "momentum: share of the last step in the next one"),
    PL_BOOL(rmsprop_t, centered, "false",
            "divide by the standard deviation: subtract the squared mean"),
    PL_FLOAT(rmsprop_t, weight_decay, "0", "0..",
             "share of the parameter added to its gradient"),
    PL_OPTIONS_END,
};

static int rmsprop_slots(const void *self)
{
    const rmsprop_t *rmsprop = self;
    return 1 + (rmsprop->momentum > 0) + rmsprop->centered;
}

/* Decay old + (1 - decay) new. */
static pl_node_t running_mean(pl_graph_t *g, pl_node_t old, pl_node_t new, double decay)
{
    return pl_add(g, pl_scale(g, old, decay), pl_scale(g, new, 1 - decay));
}

static void rmsprop_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const rmsprop_t *rmsprop = self;
    pl_node_t grad = pl_decayed_gradient(g, u, rmsprop->weight_decay);
    pl_node_t square = running_mean(g, u->slot[0], pl_mul(g, grad, grad), rmsprop->alpha);
    pl_node_t spread = square;
    pl_assign(g, u->slot[0], square);
    if (rmsprop->centered) {
        const pl_node_t slot = u->slot[rmsprop->momentum > 0 ? 2 : 1];
        pl_node_t mean = running_mean(g, slot, grad, rmsprop->alpha);
        spread = pl_relu(g,
                         pl_sub(g, square,
                                pl_mul(g, mean,
                                       mean)));   /* rounding must not make it negative */
        pl_assign(g, slot, mean);
    }
    pl_node_t root = pl_add(g, pl_sqrt(g, spread), pl_scalar(g, rmsprop->eps));
    pl_node_t step = pl_div(g, grad, root);
    if (rmsprop->momentum > 0) {
        step = pl_add(g, pl_times_momentum(g, u, u->slot[1], rmsprop->momentum), step);
        pl_assign(g, u->slot[1], step);
    }
    pl_assign(g, u->param, pl_sub(g, u->param, pl_mul(g, step, u->lr)));
}

const pl_optimizer_ops_t pl_rmsprop_optimizer = {
    .name = "rmsprop",
    .help = "steps divided by the root of the mean squared gradient",
    .size = sizeof(rmsprop_t),
    .options = rmsprop_options,
    .slots = rmsprop_slots,
    .update = rmsprop_update,
    .momentum = "momentum",
    .weight_decay = "weight_decay",
};
