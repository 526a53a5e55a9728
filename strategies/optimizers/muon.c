/* muon.c - Muon: momentum made orthogonal for matrices, AdamW for the rest
 *
 * Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024, and its
 * reference implementation, class MuonWithAuxAdam of github.com/KellerJordan/Muon, in
 * float32 instead of bfloat16. A kernel of four axes counts as the matrix of its
 * filters; of three axes the first counts matrices. Embeddings and the last layer do
 * better with AdamW: a group with "orthogonal": false. */
#include <float.h>
#include <math.h>

#include "strategies/optimizers/optimizer.h"

typedef struct muon {
    double lr, momentum, weight_decay, adam_lr, beta1, beta2, eps;
    int64_t ns_steps;
    bool nesterov, orthogonal;
} muon_t;

static const pl_option_t muon_options[] = {
    PL_FLOAT(muon_t, lr, "0.02", "(0..", "learning rate of matrices"),
    PL_FLOAT(muon_t, momentum, "0.95", "[0..1)", "decay of the gradient's mean"),
    PL_BOOL(muon_t, nesterov, "true", "look ahead by one momentum step"),
    PL_INT(muon_t, ns_steps, "5", "1..20", "iterations that make a step orthogonal"),
    PL_FLOAT(muon_t, weight_decay, "0", "0..",
             "each step reduces a parameter by this share times its learning rate"),
    PL_BOOL(muon_t, orthogonal, "true", "false: AdamW for matrices too"),
    PL_FLOAT(muon_t, adam_lr, "0.0003", "0..", "learning rate of AdamW"),
    PL_FLOAT(muon_t, beta1, "0.9", "[0..1)", "AdamW: decay of the gradient's mean"),
    PL_FLOAT(muon_t, beta2, "0.95", "[0..1)",
             "AdamW: decay of the squared gradient's mean"),
    PL_FLOAT(muon_t, eps, "1e-10", "0..", "AdamW: added to the root"),
    PL_OPTIONS_END,
};

static adam_t adam_of(const muon_t *muon)
{
    return (adam_t){.beta1 = muon->beta1, .beta2 = muon->beta2, .eps = muon->eps};
}

static int muon_slots(const void *self)
{
    (void)self;
    return 2;
}

static void muon_scalars(const void *self, uint64_t step, double scalar[PL_SCALARS])
{
    const adam_t adam = adam_of(self);
    pl_adam_scalars(&adam, step, scalar);
}

static bool muon_alone(const void *self, pl_shape_t shape)
{
    const muon_t *muon = self;
    return muon->orthogonal && shape.rank >= 2;
}

static pl_node_t transpose(pl_graph_t *g, pl_node_t x)
{
    static const int order[2][3] = {{1, 0}, {0, 2, 1}};
    return pl_permute(g, x, order[pl_shape_of(g, x).rank - 2]);
}

/* x of [..., M, N], with M <= N or transposed so, to nearly U V^T of its singular value
 * decomposition (Newton and Schulz): each iteration moves the singular values towards 1
 * by a polynomial of odd powers. */
static pl_node_t orthogonal(pl_graph_t *g, pl_node_t x, int64_t steps)
{
    static const double a = 3.4445, b = -4.7750, c = 2.0315;
    const pl_shape_t shape = pl_shape_of(g, x);
    if (shape.rank > 3)
        x = pl_flatten(g, x, 1);
    const bool tall = pl_dim(g, x, -2) > pl_dim(g, x, -1);
    if (tall)
        x = transpose(g, x);
    /* Each matrix of x by its norm; squares of numbers above 1.8e19 overflow float32:
     * if the sum of squares does, the norm is computed from numbers 2^80 times
     * smaller. */
    static const int matrix[] = {-2, -1};
    const double scale = 0x1p-80;
    pl_node_t small = pl_scale(g, x, scale), one = pl_scalar(g, 1),
              max = pl_scalar(g, FLT_MAX),
              squares = pl_sum(g, pl_mul(g, x, x), matrix, 2, true),
              overflows = pl_sign(g, pl_relu(g, pl_sub(g, squares, max))),
              fits = pl_sub(g, one, overflows),
              scales = pl_add(g, fits, pl_scale(g, overflows, scale)),
              norm = pl_mul(g, pl_sqrt(g, pl_minimum(g, squares, max)), fits),
              small_norm = pl_sqrt(g,
                                   pl_sum(g, pl_mul(g, small, small), matrix, 2, true));
    norm = pl_add(g, norm, pl_mul(g, small_norm, overflows));
    x = pl_div(g, pl_mul(g, x, scales), pl_add(g, norm, pl_scale(g, scales, 1e-7)));
    for (int64_t k = 0; k < steps; k++) {
        pl_node_t square = pl_matmul(g, x, x, false, true);
        pl_node_t fourth = pl_matmul(g, square, square, false, false);
        pl_node_t both = pl_add(g, pl_scale(g, square, b), pl_scale(g, fourth, c));
        x = pl_add(g, pl_scale(g, x, a), pl_matmul(g, both, x, false, false));
    }
    return pl_reshape(g, tall ? transpose(g, x) : x, shape);
}

static pl_node_t mean_of(pl_graph_t *g, const pl_update_t *u, pl_node_t mean,
                         double decay)
{
    return pl_add(g, pl_times_momentum(g, u, mean, decay),
                  pl_times_rest(g, u, u->grad, decay));
}

static void muon_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const muon_t *muon = self;
    const adam_t adam = adam_of(muon);
    pl_update_t other = *u;
    if (pl_shape_of(g, u->param).rank >= 2) {
        pl_node_t mean = mean_of(g, u, u->slot[0], muon->momentum);
        pl_node_t ahead = muon->nesterov ? mean_of(g, u, mean, muon->momentum) : mean;
        pl_node_t step = orthogonal(g, ahead, muon->ns_steps);
        const double ratio = (double)pl_dim(g, u->grad, -2)
                             / (double)pl_dim(g, u->grad, -1);
        pl_node_t rate = pl_scale(g, u->lr, sqrt(ratio > 1 ? ratio : 1));
        pl_node_t from = pl_decayed_param(g, u, muon->weight_decay);
        pl_assign(g, u->param, pl_sub(g, from, pl_mul(g, step, rate)));
        pl_assign(g, u->slot[0], mean);
        return;
    }
    other.cycles = false;
    other.lr = pl_scale(g, u->lr, muon->adam_lr / muon->lr);
    pl_adam_step(g, &adam, &other, pl_decayed_param(g, &other, muon->weight_decay),
                 u->grad);
}

const pl_optimizer_ops_t pl_muon_optimizer = {
    .name = "muon",
    .help = "orthogonal steps for matrices, AdamW for other parameters",
    .size = sizeof(muon_t),
    .options = muon_options,
    .slots = muon_slots,
    .update = muon_update,
    .scalars = muon_scalars,
    .alone = muon_alone,
    .momentum = "momentum",
    .weight_decay = "weight_decay",
};
