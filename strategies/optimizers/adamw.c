/* adamw.c - AdamW: Adam with weight decay apart from the gradient
 *
 * torch.optim.AdamW; Loshchilov and Hutter, "Decoupled weight decay regularization",
 * 2019, algorithm 2. */
#include "strategies/optimizers/adam.h"
#include "strategies/optimizers/optimizer.h"

static const pl_option_t adamw_options[] = {
    PL_FLOAT(adam_t, lr, "0.001", "0..", "learning rate"),
    PL_FLOAT(adam_t, beta1, "0.9", "[0..1)", "decay of the gradient's mean"),
    PL_FLOAT(adam_t, beta2, "0.999", "[0..1)", "decay of the squared gradient's mean"),
    PL_FLOAT(adam_t, eps, "1e-8", "0..", "added to the root, against division by zero"),
    PL_FLOAT(adam_t, weight_decay, "0.01", "0..",
             "each step reduces a parameter by this share times lr"),
    PL_BOOL(adam_t, amsgrad, "false", "divide by the largest mean square so far"),
    PL_OPTIONS_END,
};

static void adamw_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const adam_t *adam = self;
    pl_adam_step(g, adam, u, pl_decayed_param(g, u, adam->weight_decay), u->grad);
}

const pl_optimizer_ops_t pl_adamw_optimizer = {
    .name = "adamw",
    .help = "Adam with decoupled weight decay",
    .size = sizeof(adam_t),
    .options = adamw_options,
    .slots = pl_adam_slots,
    .update = adamw_update,
    .scalars = pl_adam_scalars,
    .momentum = "beta1",
};
