/* lion.c - Lion: steps of one length, along the signs of a blend of momentum and gradient
 *
 * Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2. */
#include "strategies/optimizers/optimizer.h"

typedef struct lion {
    double lr, beta1, beta2, weight_decay;
} lion_t;

static const pl_option_t lion_options[] = {
    PL_FLOAT(lion_t, lr, "0.0001", "0..", "learning rate; a tenth to a third of AdamW's"),
    PL_FLOAT(lion_t, beta1, "0.9", "[0..1)", "share of the momentum in a step's sign"),
    PL_FLOAT(lion_t, beta2, "0.99", "[0..1)", "decay of the momentum"),
    PL_FLOAT(lion_t, weight_decay, "0", "0..",
             "each step reduces a parameter by this share times lr"),
    PL_OPTIONS_END,
};

static int lion_slots(const void *self)
{
    (void)self;
    return 1;
}

static void lion_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const lion_t *lion = self;
    pl_node_t sign = pl_sign(g,
                             pl_add(g, pl_times_momentum(g, u, u->slot[0], lion->beta1),
                                    pl_times_rest(g, u, u->grad, lion->beta1)));
    pl_node_t from = pl_decayed_param(g, u, lion->weight_decay);
    pl_assign(g, u->param, pl_sub(g, from, pl_mul(g, sign, u->lr)));
    pl_assign(g, u->slot[0],
              pl_add(g, pl_scale(g, u->slot[0], lion->beta2),
                     pl_scale(g, u->grad, 1 - lion->beta2)));
}

const pl_optimizer_ops_t pl_lion_optimizer = {
    .name = "lion",
    .help = "signs of the momentum; decoupled weight decay",
    .size = sizeof(lion_t),
    .options = lion_options,
    .slots = lion_slots,
    .update = lion_update,
    .momentum = "beta1",
    .weight_decay = "weight_decay",
};
