/* axis.c - reference kernels along one axis: gather, scatter, sort, cumulative sums */
#include <math.h>

#include "accelerators/reference/kernels.h"

/* Moves elements between x [A, N, B] and rows of a table [A, R, B]. */
static void compute_gather(pl_reference_call_t *c)
{
    const bool scatters = c->op->code == PL_OP_scatter;
    const pl_shape_t table = scatters ? c->out_shape[0] : c->in_shape[0],
                     indices = c->in_shape[!scatters],
                     given = PL_SHAPE(table.dim[0], indices.dim[1], table.dim[2]);
    for (int64_t e = 0; e < pl_elements(given); e++) {
        const double index = c->in[!scatters][pl_reference_source(given, e, indices)];
        if (!pl_reference_index_is_good(c, index, table.dim[1]))
            return;
        const int64_t a = e / (given.dim[1] * given.dim[2]), b = e % given.dim[2],
                      at = (a * table.dim[1] + (int64_t)index) * table.dim[2] + b;
        if (scatters)
            c->out[0][at] += c->in[1][e];
        else
            c->out[0][e] = c->in[0][at];
    }
}

/* The rank of a number is how many come before it. */
static void compute_sort(pl_reference_call_t *c)
{
    const pl_shape_t x = c->in_shape[0];
    const int64_t n = x.dim[1], inner = x.dim[2], count = c->attr->to;
    const bool falls = c->attr->keep;
    for (int64_t e = 0; e < pl_elements(x); e++) {
        const int64_t k = e / inner % n, first = e - k * inner;
        const double own = c->in[0][e];
        int64_t rank = 0;
        for (int64_t i = 0; i < n; i++) {
            const double other = c->in[0][first + i * inner];
            const bool above = pl_reference_larger(other, own),
                       below = pl_reference_larger(own, other);
            rank += (falls ? above : below) || (!above && !below && i < k);
        }
        if (rank < count)
            c->out[0][(e / inner / n * count + rank) * inner + e % inner] = (double)k;
    }
}

static void compute_cumsum(pl_reference_call_t *c)
{
    const pl_shape_t x = c->in_shape[0];
    const int64_t n = x.dim[1], inner = x.dim[2];
    for (int64_t e = 0; e < pl_elements(x); e++) {
        const int64_t k = e / inner % n, first = e - k * inner;
        for (int64_t i = c->attr->keep ? k : 0; i < (c->attr->keep ? n : k + 1); i++)
            c->out[0][e] += c->in[0][first + i * inner];
    }
}

const pl_reference_kernel_t pl_reference_axis[PL_OPCODES] = {
    [PL_OP_cumsum] = compute_cumsum,
    [PL_OP_gather] = compute_gather,
    [PL_OP_scatter] = compute_gather,
    [PL_OP_sort] = compute_sort,
};
