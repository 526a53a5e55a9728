/* nadam.c - NAdam: Adam that looks ahead by one momentum step, as Nesterov's does
 *
 * torch.optim.NAdam; Dozat, "Incorporating Nesterov momentum into Adam", 2016, algorithm
 * 2. Its momentum has a schedule of its own, of which each step needs the product so far,
 * so that a schedule of the run cannot cycle it. */
#include <math.h>

#include "strategies/optimizers/optimizer.h"

typedef struct nadam {
    double lr, beta1, beta2, eps, weight_decay, momentum_decay;
    bool decoupled_weight_decay;
} nadam_t;

static const pl_option_t nadam_options[] = {
    PL_FLOAT(nadam_t, lr, "0.002", "0..", "learning rate"),
    PL_FLOAT(nadam_t, beta1, "0.9", "[0..1)", "decay of the gradient's mean"),
    PL_FLOAT(nadam_t, beta2, "0.999", "[0..1)", "decay of the squared gradient's mean"),
    PL_FLOAT(nadam_t, eps, "1e-8", "0..", "added to the root, against division by zero"),
    PL_FLOAT(nadam_t, weight_decay, "0", "0..",
             "share of the parameter added to its gradient"),
    PL_FLOAT(nadam_t, momentum_decay, "0.004", "0..",
             "how fast the momentum rises from half of beta1"),
    PL_BOOL(nadam_t, decoupled_weight_decay, "false",
            "weight_decay reduces the parameter by this share times lr, as in AdamW"),
    PL_OPTIONS_END,
};

static int nadam_slots(const void *self)
{
    (void)self;
    return 2;
}

/* The factors of the gradient and of its mean; 1/sqrt(1 - beta2^t). A product below
 * NOTHING no longer changes 1 minus it, so a long run does not count its steps. */
#define NOTHING 0x1p-60
static void nadam_scalars(const void *self, uint64_t step, double scalar[PL_SCALARS])
{
    const nadam_t *nadam = self;
    const double shrink = pow(0.96, nadam->momentum_decay);
    double product = 1, power = shrink;
    for (uint64_t k = 0; k < step && product > NOTHING; k++, power *= shrink)
        product *= nadam->beta1 * (1 - power / 2);
    const double t = (double)step, now = nadam->beta1 * (1 - pow(shrink, t) / 2),
                 next = nadam->beta1 * (1 - pow(shrink, t + 1) / 2);
    scalar[0] = (1 - now) / (1 - product);
    scalar[1] = next / (1 - product * next);
    scalar[2] = 1 / sqrt(1 - pow(nadam->beta2, t));
}

static void nadam_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const nadam_t *nadam = self;
    const double decay = nadam->weight_decay;
    const bool decoupled = nadam->decoupled_weight_decay;
    pl_node_t from = decoupled ? pl_decayed_param(g, u, decay) : u->param,
              grad = decoupled ? u->grad : pl_decayed_gradient(g, u, decay);
    const pl_adam_means_t m = pl_adam_means(g, u, nadam->beta1, nadam->beta2, grad);
    pl_node_t root = pl_add(g, pl_mul(g, pl_sqrt(g, m.square), u->scalar[2]),
                            pl_scalar(g, nadam->eps));
    pl_node_t ahead = pl_add(g, pl_mul(g, grad, u->scalar[0]),
                             pl_mul(g, m.mean, u->scalar[1]));
    pl_assign(g, u->param, pl_sub(g, from, pl_div(g, pl_mul(g, ahead, u->lr), root)));
    pl_assign(g, u->slot[0], m.mean);
    pl_assign(g, u->slot[1], m.square);
}

const pl_optimizer_ops_t pl_nadam_optimizer = {
    .name = "nadam",
    .help = "Adam with Nesterov's momentum",
    .size = sizeof(nadam_t),
    .options = nadam_options,
    .slots = nadam_slots,
    .update = nadam_update,
    .scalars = nadam_scalars,
    .weight_decay = "weight_decay",
};
