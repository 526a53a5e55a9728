/* shapes.c - reference kernels that reduce, repeat or move elements */
#include <math.h>
#include <string.h>

#include "accelerators/reference/kernels.h"
#include "base/compensated_sum.h"
#include "tensor/operators.h"

/* The shape [outer, size, inner] of a tensor around one axis. */
typedef struct around {
    int64_t outer, size, inner;
} around_t;

static around_t around(pl_shape_t shape, int axis)
{
    around_t a = {1, shape.dim[axis], 1};
    for (int i = 0; i < axis; i++)
        a.outer *= shape.dim[i];
    for (int i = axis + 1; i < shape.rank; i++)
        a.inner *= shape.dim[i];
    return a;
}

static void compute_sum(pl_reference_call_t *c)
{
    pl_shape_t x = c->in_shape[0], kept = x;
    for (int i = 0; i < x.rank; i++)
        if (c->attr->axes >> i & 1)
            kept.dim[i] = 1;
    for (int64_t e = 0; e < pl_elements(x); e++)
        c->out[0][pl_reference_source(x, e, kept)] += c->in[0][e];
}

static void compute_norm(pl_reference_call_t *c)
{
    double sum = 0;
    for (int64_t e = 0; e < pl_elements(c->in_shape[0]); e++)
        sum += c->in[0][e] * c->in[0][e];
    c->out[0][0] = c->attr->a * sqrt(sum);
}

static void compute_block_norms(pl_reference_call_t *c)
{
    const int64_t lacks = c->attr->from, n = pl_elements(c->in_shape[0]);
    for (int64_t e = 0; e < n; e++)
        c->out[0][(lacks + e) / c->attr->to] += c->in[0][e] * c->in[0][e];
    for (int64_t k = 0; k * c->attr->to < lacks + n; k++)
        c->out[0][k] = c->attr->a * sqrt(c->out[0][k]);
}

static int64_t first_largest(const double *x, around_t a, int64_t o, int64_t i)
{
    int64_t best = 0;
    for (int64_t k = 1; k < a.size; k++)
        if (pl_reference_larger(x[(o * a.size + k) * a.inner + i],
                                x[(o * a.size + best) * a.inner + i]))
            best = k;
    return best;
}

static void compute_power_sums(pl_reference_call_t *c)
{
    pl_compensated_sum_t sum[2] = {{0}};
    for (int64_t e = 0; e < pl_elements(c->in_shape[0]); e++) {
        pl_compensated_add(&sum[0], c->in[0][e]);
        pl_compensated_add_product(&sum[1], c->in[0][e], c->in[0][e]);
    }
    for (int k = 0; k < 2; k++) {
        float part[PL_COMPENSATED_PARTS];
        pl_compensated_split(sum[k], part);
        for (int i = 0; i < PL_COMPENSATED_PARTS; i++)
            c->out[0][k * PL_COMPENSATED_PARTS + i] = (double)part[i];
    }
}

static void compute_max(pl_reference_call_t *c)
{
    const around_t a = around(c->in_shape[0], c->attr->axis);
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t i = 0; i < a.inner; i++) {
            int64_t k = first_largest(c->in[0], a, o, i);
            c->out[0][o * a.inner + i] = c->op->code == PL_OP_argmax
                                             ? (double)k
                                             : c->in[0][(o * a.size + k) * a.inner + i];
        }
}

static void compute_max_grad(pl_reference_call_t *c)
{
    const around_t a = around(c->in_shape[1], c->attr->axis);
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t i = 0; i < a.inner; i++)
            c->out[0][(o * a.size + first_largest(c->in[1], a, o, i)) * a.inner + i] =
                c->in[0][o * a.inner + i];
}

static void compute_broadcast(pl_reference_call_t *c)
{
    const pl_shape_t shape = c->out_shape[0];
    for (int64_t e = 0; e < pl_elements(shape); e++)
        c->out[0][e] = c->in[0][pl_reference_source(shape, e, c->in_shape[0])];
}

static void compute_permute(pl_reference_call_t *c)
{
    const pl_shape_t x = c->in_shape[0], y = c->out_shape[0];
    int64_t stride[PL_DIMS];
    for (int i = x.rank - 1; i >= 0; i--)
        stride[i] = i == x.rank - 1 ? 1 : stride[i + 1] * x.dim[i + 1];
    for (int64_t e = 0; e < pl_elements(y); e++) {
        int64_t from = 0, rest = e;
        for (int i = y.rank - 1; i >= 0; i--) {
            from += rest % y.dim[i] * stride[c->attr->order[i]];
            rest /= y.dim[i];
        }
        c->out[0][e] = c->in[0][from];
    }
}

/* Where element e of the part lies in the whole: at + i step along each axis. */
static int64_t place_in(pl_shape_t whole, pl_shape_t part, int64_t e, const int64_t *at,
                        const int64_t *step)
{
    int64_t place = 0, stride = 1;
    for (int i = whole.rank - 1; i >= 0; i--) {
        place += (at[i] + e % part.dim[i] * step[i]) * stride;
        e /= part.dim[i];
        stride *= whole.dim[i];
    }
    return place;
}

static void compute_slice(pl_reference_call_t *c)
{
    int64_t at[PL_DIMS] = {0}, step[PL_DIMS];
    for (int i = 0; i < PL_DIMS; i++)
        step[i] = i == c->attr->axis ? c->attr->step[i] : 1;
    at[c->attr->axis] = c->attr->from;
    for (int64_t e = 0; e < pl_elements(c->out_shape[0]); e++)
        c->out[0][e] = c->in[0][place_in(c->in_shape[0], c->out_shape[0], e, at, step)];
}

static void compute_pad(pl_reference_call_t *c)
{
    for (int64_t e = 0; e < pl_elements(c->out_shape[0]); e++)
        c->out[0][e] = c->attr->a;
    for (int64_t e = 0; e < pl_elements(c->in_shape[0]); e++)
        c->out[0][place_in(c->out_shape[0], c->in_shape[0], e, c->attr->at,
                           c->attr->step)] = c->in[0][e];
}

/* Both directions go through the elements of the axis in its new size. */
static void compute_interpolate(pl_reference_call_t *c)
{
    const bool back = c->op->code == PL_OP_interpolate_grad;
    const around_t x = around(c->in_shape[0], c->attr->axis),
                   y = around(c->out_shape[0], c->attr->axis);
    const int64_t old = back ? y.size : x.size, new = back ? x.size : y.size;
    for (int64_t e = 0; e < x.outer * new *x.inner; e++) {
        const int64_t j = e / x.inner % new, inner = e % x.inner,
                      start = e / x.inner / new *old;
        const pl_interpolate_source_t of = pl_interpolate_source(c->attr->linear, old,
                                                                 new, j);
        const double weight[] = {1 - of.share, of.share};   /* one of 0 has no term */
        const int64_t place[] = {(start + of.low) * x.inner + inner,
                                 (start + of.high) * x.inner + inner};
        for (int k = 0; k < 2; k++) {
            const int64_t from = back ? e : place[k], to = back ? place[k] : e;
            if (weight[k] != 0)
                c->out[0][to] += weight[k] * c->in[0][from];
        }
    }
}

static void compute_concat(pl_reference_call_t *c)
{
    const around_t whole = around(c->out_shape[0], c->attr->axis);
    int64_t from = 0;
    for (int k = 0; k < c->op->input_count; k++) {
        const around_t part = around(c->in_shape[k], c->attr->axis);
        const int64_t run = part.size * part.inner;
        for (int64_t o = 0; o < whole.outer; o++)
            memcpy(c->out[0] + (o * whole.size + from) * whole.inner, c->in[k] + o * run,
                   (size_t)run * sizeof(double));
        from += part.size;
    }
}

static void compute_range(pl_reference_call_t *c)
{
    const bool counts = c->attr->dtype == PL_I32;
    for (int64_t e = 0; e < pl_elements(c->out_shape[0]); e++)
        c->out[0][e] = counts ? (double)e : c->attr->a + c->attr->b * (double)e;
}

const pl_reference_kernel_t pl_reference_shapes[PL_OPCODES] = {
    [PL_OP_norm] = compute_norm,
    [PL_OP_block_norms] = compute_block_norms,
    [PL_OP_sum] = compute_sum,
    [PL_OP_max] = compute_max,
    [PL_OP_max_grad] = compute_max_grad,
    [PL_OP_argmax] = compute_max,
    [PL_OP_power_sums] = compute_power_sums,
    [PL_OP_broadcast] = compute_broadcast,
    [PL_OP_permute] = compute_permute,
    [PL_OP_slice] = compute_slice,
    [PL_OP_pad] = compute_pad,
    [PL_OP_concat] = compute_concat,
    [PL_OP_range] = compute_range,
    [PL_OP_interpolate] = compute_interpolate,
    [PL_OP_interpolate_grad] = compute_interpolate,
};
