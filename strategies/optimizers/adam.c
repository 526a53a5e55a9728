/* adam.c - Adam and AdamW: steps along the gradient's mean over the root of its square's
 * mean
 *
 * torch.optim.Adam, torch.optim.AdamW; Kingma and Ba, "Adam: a method for stochastic
 * optimization", 2015, algorithm 1. The corrections of the moments' bias change with
 * the step, so they come as scalars: 1/(1 - beta1^t) and 1/sqrt(1 - beta2^t).
 * AMSGrad: Reddi, Kale and Kumar, "On the convergence of Adam and beyond", 2018,
 * algorithm 2. AdamW, which keeps weight decay apart from the gradient: Loshchilov
 * and Hutter, "Decoupled weight decay regularization", 2019, algorithm 2. */
#include <math.h>

#include "strategies/optimizers/optimizer.h"

/* The options of both; the arguments are the rest of weight_decay. */
#define ADAM_OPTIONS(...) \
    PL_FLOAT(adam_t, lr, "0.001", "0..", "learning rate"), \
        PL_FLOAT(adam_t, beta1, "0.9", "[0..1)", "decay of the gradient's mean"), \
        PL_FLOAT(adam_t, beta2, "0.999", "[0..1)", \
                 "decay of the squared gradient's mean"), \
        PL_FLOAT(adam_t, eps, "1e-8", "0..", \
                 "added to the root, against division by zero"), \
        PL_FLOAT(adam_t, weight_decay, __VA_ARGS__), \
        PL_BOOL(adam_t, amsgrad, "false", "divide by the largest mean square so far"), \
        PL_OPTIONS_END

/* The rest of both tables. */
#define ADAM_TABLE(of, update_) \
    .size = sizeof(adam_t), .options = of, .slots = pl_adam_slots, .update = update_, \
    .scalars = pl_adam_scalars, .momentum = "beta1", .weight_decay = "weight_decay"

int pl_adam_slots(const void *self)
{
    const adam_t *adam = self;
    return adam->amsgrad ? 3 : 2;
}

void pl_adam_scalars(const void *self, uint64_t step, double scalar[PL_SCALARS])
{
    const adam_t *adam = self;
    scalar[0] = 1 / (1 - pow(adam->beta1, (double)step));
    scalar[1] = 1 / sqrt(1 - pow(adam->beta2, (double)step));
}

pl_adam_means_t pl_adam_means(pl_graph_t *g, const pl_update_t *u, double beta1,
                              double beta2, pl_node_t grad)
{
    pl_node_t mean = pl_add(g, pl_times_momentum(g, u, u->slot[0], beta1),
                            pl_times_rest(g, u, grad, beta1));
    pl_node_t square = pl_add(g, pl_scale(g, u->slot[1], beta2),
                              pl_scale(g, pl_mul(g, grad, grad), 1 - beta2));
    return (pl_adam_means_t){mean, square};
}

void pl_adam_step(pl_graph_t *g, const adam_t *adam, const pl_update_t *u, pl_node_t from,
                  pl_node_t grad)
{
    const pl_adam_means_t m = pl_adam_means(g, u, adam->beta1, adam->beta2, grad);
    pl_node_t max_square = m.square;
    if (adam->amsgrad) {
        max_square = pl_neg(g, pl_minimum(g, pl_neg(g, u->slot[2]), pl_neg(g, m.square)));
        pl_assign(g, u->slot[2], max_square);
    }
    pl_node_t root = pl_add(g, pl_mul(g, pl_sqrt(g, max_square), u->scalar[1]),
                            pl_scalar(g, adam->eps));
    pl_node_t rate = pl_mul(g, u->lr, u->scalar[0]);
    pl_assign(g, u->param, pl_sub(g, from, pl_div(g, pl_mul(g, m.mean, rate), root)));
    pl_assign(g, u->slot[0], m.mean);
    pl_assign(g, u->slot[1], m.square);
}

static void adam_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const adam_t *adam = self;
    pl_adam_step(g, adam, u, u->param, pl_decayed_gradient(g, u, adam->weight_decay));
}

static const pl_option_t adam_options[] = {
    ADAM_OPTIONS("0", "0..", "share of the parameter added to its gradient")};

const pl_optimizer_ops_t pl_adam_optimizer = {
    .name = "adam",
    .help = "Adam; weight decay, if any, goes through the moments",
    ADAM_TABLE(adam_options, adam_update),
};

static void adamw_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const adam_t *adam = self;
    pl_adam_step(g, adam, u, pl_decayed_param(g, u, adam->weight_decay), u->grad);
}

static const pl_option_t adamw_options[] = {
    ADAM_OPTIONS("0.01", "0..", "each step reduces a parameter by this share times lr")};

const pl_optimizer_ops_t pl_adamw_optimizer = {
    .name = "adamw",
    .help = "Adam with decoupled weight decay",
    ADAM_TABLE(adamw_options, adamw_update),
};
