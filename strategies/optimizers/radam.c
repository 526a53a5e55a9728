/* radam.c - RAdam: Adam whose first steps do without the mean of squares, until it is
 * known well enough
 *
 * torch.optim.RAdam; Liu et al., "On the variance of the adaptive learning rate and
 * beyond", 2020, algorithm 2. The step decides which of two updates applies, so each
 * comes with a scalar that is 0 where the other applies. */
#include <math.h>

#include "strategies/optimizers/optimizer.h"

typedef struct radam {
    double lr, beta1, beta2, eps, weight_decay;
    bool decoupled_weight_decay;
} radam_t;

static const pl_option_t radam_options[] = {
    PL_FLOAT(radam_t, lr, "0.001", "0..", "learning rate"),
    PL_FLOAT(radam_t, beta1, "0.9", "[0..1)", "decay of the gradient's mean"),
    PL_FLOAT(radam_t, beta2, "0.999", "[0..1)", "decay of the squared gradient's mean"),
    PL_FLOAT(radam_t, eps, "1e-8", "0..", "added to the root, against division by zero"),
    PL_FLOAT(radam_t, weight_decay, "0", "0..",
             "share of the parameter added to its gradient"),
    PL_BOOL(radam_t, decoupled_weight_decay, "false",
            "weight_decay reduces the parameter by this share times lr, as in AdamW"),
    PL_OPTIONS_END,
};

static int radam_slots(const void *self)
{
    (void)self;
    return 2;
}

/* 1/(1 - beta1^t); the factor of the adaptive step; the factor of the plain step. */
static void radam_scalars(const void *self, uint64_t step, double scalar[PL_SCALARS])
{
    const radam_t *radam = self;
    const double t = (double)step, power = pow(radam->beta2, t),
                 max = 2 / (1 - radam->beta2) - 1,
                 length = max - 2 * t * power / (1 - power);
    const bool adapts = length > 5;
    scalar[0] = 1 / (1 - pow(radam->beta1, t));
    scalar[1] = adapts ? sqrt((length - 4) * (length - 2) * max
                              / ((max - 4) * (max - 2) * length) * (1 - power))
                       : 0;
    scalar[2] = !adapts;
}

static void radam_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const radam_t *radam = self;
    const double decay = radam->weight_decay;
    const bool decoupled = radam->decoupled_weight_decay;
    pl_node_t from = decoupled ? pl_decayed_param(g, u, decay) : u->param,
              grad = decoupled ? u->grad : pl_decayed_gradient(g, u, decay);
    const pl_adam_means_t m = pl_adam_means(g, u, radam->beta1, radam->beta2, grad);
    pl_node_t root = pl_add(g, pl_sqrt(g, m.square), pl_scalar(g, radam->eps));
    pl_node_t factor = pl_add(g, pl_div(g, u->scalar[1], root), u->scalar[2]);
    pl_node_t rate = pl_mul(g, u->lr, u->scalar[0]);
    pl_assign(g, u->param, pl_sub(g, from, pl_mul(g, pl_mul(g, m.mean, rate), factor)));
    pl_assign(g, u->slot[0], m.mean);
    pl_assign(g, u->slot[1], m.square);
}

const pl_optimizer_ops_t pl_radam_optimizer = {
    .name = "radam",
    .help = "Adam with a rectified start: no warm-up is needed",
    .size = sizeof(radam_t),
    .options = radam_options,
    .slots = radam_slots,
    .update = radam_update,
    .scalars = radam_scalars,
    .momentum = "beta1",
    .weight_decay = "weight_decay",
};
