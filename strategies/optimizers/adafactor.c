/* adafactor.c - Adafactor: mean squares of rows and columns in place of those of elements
 *
 * torch.optim.Adafactor; Shazeer and Stern, "Adafactor: adaptive learning rates with
 * sublinear memory cost", 2018, algorithms 4 and 5. Each tensor is updated alone: the
 * size of its step depends on all its elements. Means of rows and then of columns are at
 * the beginning of the tensor's slot, of which the rest is not used. If the matrices have
 * one row or one column, there is nothing to save: the slot has the mean squares of all
 * elements, of which the means of rows and columns are means. */
#include <math.h>

#include "strategies/optimizers/optimizer.h"
#include "tensor/graph.h"

typedef struct adafactor {
    double lr, beta2_decay, eps1, eps2, d, weight_decay;
} adafactor_t;

static const pl_option_t adafactor_options[] = {
    PL_FLOAT(adafactor_t, lr, "0.01", "0..",
             "largest learning rate, relative to the size of a parameter"),
    PL_FLOAT(adafactor_t, beta2_decay, "-0.8", "..0",
             "the newest square counts with the step to the power of this"),
    PL_FLOAT(adafactor_t, eps1, "1.1920928955078125e-07", "(0..",
             "smallest mean square of all rows; its square is the smallest of elements"),
    PL_FLOAT(adafactor_t, eps2, "0.001", "0..",
             "smallest size of a parameter that counts"),
    PL_FLOAT(adafactor_t, d, "1", "[1..", "largest root mean square of a step"),
    PL_FLOAT(adafactor_t, weight_decay, "0", "0..",
             "each step reduces a parameter by this share times lr"),
    PL_OPTIONS_END,
};

static int adafactor_slots(const void *self)
{
    (void)self;
    return 1;
}

static bool adafactor_alone(const void *self, pl_shape_t shape)
{
    (void)self, (void)shape;
    return true;
}

/* The share of the newest square, and the limit of the rate. */
static void adafactor_scalars(const void *self, uint64_t step, double scalar[PL_SCALARS])
{
    const adafactor_t *adafactor = self;
    scalar[0] = pow((double)step, adafactor->beta2_decay);
    scalar[1] = 1 / sqrt((double)step);
}

/* old + (new - old) share, with the step's share of the new; kept in a slot. */
static pl_node_t moved(pl_graph_t *g, const pl_update_t *u, pl_node_t old, pl_node_t new)
{
    pl_node_t value = pl_add(g, old, pl_mul(g, pl_sub(g, new, old), u->scalar[0]));
    pl_assign(g, old, value);
    return value;
}

static pl_node_t mean_along(pl_graph_t *g, pl_node_t x, int axis)
{
    return pl_mean(g, x, &axis, 1, true);
}

/* The mean squares of the elements of [..., M, N], of the means of rows [..., M, 1] and
 * of columns [..., 1, N]. */
static pl_node_t squares_of_matrices(pl_graph_t *g, const adafactor_t *adafactor,
                                     const pl_update_t *u)
{
    pl_node_t square = pl_mul(g, u->grad, u->grad), row, column;
    if (pl_dim(g, square, -1) == 1 || pl_dim(g, square, -2) == 1) {
        pl_node_t mean = moved(g, u, u->slot[0], square);
        row = mean_along(g, mean, -1);
        column = mean_along(g, mean, -2);
    } else {
        const pl_value_t slot = g->value[u->slot[0].id];
        pl_node_t rows = mean_along(g, square, -1), columns = mean_along(g, square, -2);
        const pl_shape_t of_rows = pl_shape_of(g, rows);
        row = moved(g, u,
                    pl_region_view(g, (pl_region_t)slot.index, slot.offset, of_rows),
                    rows);
        column = moved(g, u,
                       pl_region_view(g, (pl_region_t)slot.index,
                                      slot.offset + pl_elements(of_rows),
                                      pl_shape_of(g, columns)),
                       columns);
    }
    pl_node_t least = pl_scalar(g, adafactor->eps1);
    return pl_mul(g, row,
                  pl_div(g, column, pl_maximum(g, mean_along(g, row, -2), least)));
}

static pl_node_t root_mean_square(pl_graph_t *g, pl_node_t x)
{
    return pl_sqrt(g, pl_mean(g, pl_mul(g, x, x), NULL, 0, false));
}

static void adafactor_update(pl_graph_t *g, const void *self, const pl_update_t *u)
{
    const adafactor_t *adafactor = self;
    const double least = adafactor->eps1 * adafactor->eps1;
    pl_node_t square = pl_shape_of(g, u->grad).rank > 1
                           ? squares_of_matrices(g, adafactor, u)
                           : moved(g, u, u->slot[0], pl_mul(g, u->grad, u->grad));
    pl_node_t root = pl_sqrt(g, pl_maximum(g, square, pl_scalar(g, least)));
    pl_node_t step = pl_div(g, u->grad, root);
    pl_node_t size = pl_maximum(g, root_mean_square(g, u->param),
                                pl_scalar(g, adafactor->eps2));
    pl_node_t excess = pl_scale(g, root_mean_square(g, step), 1 / adafactor->d);
    pl_node_t rate = pl_div(g, pl_mul(g, size, pl_minimum(g, u->lr, u->scalar[1])),
                            pl_maximum(g, excess, pl_scalar(g, 1)));
    pl_node_t from = pl_decayed_param(g, u, adafactor->weight_decay);
    pl_assign(g, u->param, pl_sub(g, from, pl_mul(g, step, rate)));
}

const pl_optimizer_ops_t pl_adafactor_optimizer = {
    .name = "adafactor",
    .help = "mean squares of rows and columns, steps relative to the parameter",
    .size = sizeof(adafactor_t),
    .options = adafactor_options,
    .slots = adafactor_slots,
    .update = adafactor_update,
    .scalars = adafactor_scalars,
    .alone = adafactor_alone,
    .weight_decay = "weight_decay",
};
