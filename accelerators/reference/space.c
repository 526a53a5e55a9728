/* space.c - reference kernels of convolutions and pools */
#include "accelerators/reference/kernels.h"
#include "tensor/windows.h"

typedef struct place {
    int64_t at[PL_SPACE];
} place_t;

/* The place of element e of axes of space with those sizes. */
static place_t place_of(int64_t e, const int64_t size[PL_SPACE])
{
    place_t p;
    for (int k = PL_SPACE - 1; k >= 0; k--) {
        p.at[k] = e % size[k];
        e /= size[k];
    }
    return p;
}

static int64_t count(const int64_t size[PL_SPACE])
{
    return size[0] * size[1] * size[2];
}

typedef struct met_windows {
    const pl_attr_t *attr;
    int64_t in[PL_SPACE], out[PL_SPACE];                    /* sizes of x and of y */
} met_windows_t;

static met_windows_t windows_of(const pl_reference_call_t *c, pl_shape_t x, pl_shape_t y)
{
    met_windows_t w = {.attr = c->attr};
    pl_space_of(x, 2, w.in);
    pl_space_of(y, 2, w.out);
    return w;
}

static int64_t start_of(const met_windows_t *w, int axis, int64_t i)
{
    return w->attr->adaptive
               ? i * w->in[axis] / w->out[axis]
               : i * w->attr->window.stride[axis] - w->attr->window.before[axis];
}

/* The element behind the last one of an adaptive window. */
static int64_t end_of(const met_windows_t *w, int axis, int64_t i)
{
    return ((i + 1) * w->in[axis] + w->out[axis] - 1) / w->out[axis];
}

/* The element of x that element `of` of the window at `at` meets, or -1: padding. */
static int64_t element_met(const met_windows_t *w, place_t at, place_t of)
{
    int64_t element = 0;
    for (int k = 0; k < PL_SPACE; k++) {
        const int64_t x = start_of(w, k, at.at[k])
                          + of.at[k] * w->attr->window.dilation[k];
        if (x < 0 || x >= w->in[k] || (w->attr->adaptive && x >= end_of(w, k, at.at[k])))
            return -1;
        element = element * w->in[k] + x;
    }
    return element;
}

/* ---- conv and its gradients: every pair of an output and a weight element once ---- */

static void compute_convolution(pl_reference_call_t *c)
{
    const bool grad_x = c->op->code == PL_OP_conv_grad_x,
               grad_w = c->op->code == PL_OP_conv_grad_w;
    const pl_shape_t x = grad_x   ? c->out_shape[0]
                         : grad_w ? c->in_shape[1]
                                  : c->in_shape[0],
                     w = grad_w ? c->out_shape[0] : c->in_shape[1],
                     y = grad_x || grad_w ? c->in_shape[0] : c->out_shape[0];
    const met_windows_t windows = windows_of(c, x, y);
    const int64_t *kernel = c->attr->window.kernel, *in = windows.in, *out = windows.out;
    for (int64_t e = 0; e < pl_elements(y); e++) {
        const place_t at = place_of(e, out);
        const int64_t o = e / count(out) % y.dim[1], b = e / count(out) / y.dim[1],
                      group = o / (y.dim[1] / c->attr->groups);
        for (int64_t f = 0; f < w.dim[1] * count(kernel); f++) {
            const int64_t met = element_met(&windows, at, place_of(f, kernel)),
                          channel = group * w.dim[1] + f / count(kernel),
                          at_x = (b * x.dim[1] + channel) * count(in) + met,
                          at_w = o * w.dim[1] * count(kernel) + f;
            if (met < 0)
                continue;
            if (grad_x)
                c->out[0][at_x] += c->in[0][e] * c->in[1][at_w];
            else if (grad_w)
                c->out[0][at_w] += c->in[0][e] * c->in[1][at_x];
            else
                c->out[0][e] += c->in[0][at_x] * c->in[1][at_w];
        }
        if (c->op->code == PL_OP_conv && c->op->input_count == 3)
            c->out[0][e] += c->in[2][o];
    }
}

/* ---- max_pool: the second output is the index of the largest element of x ---- */

static void compute_max_pool(pl_reference_call_t *c)
{
    const pl_shape_t x = c->in_shape[0], y = c->out_shape[0];
    const met_windows_t windows = windows_of(c, x, y);
    const int64_t *kernel = c->attr->window.kernel, *in = windows.in, *out = windows.out;
    for (int64_t e = 0; e < pl_elements(y); e++) {
        const int64_t plane = e / count(out) * count(in);
        int64_t best = -1;
        for (int64_t k = 0; k < count(kernel); k++) {
            const int64_t met = element_met(&windows, place_of(e, out),
                                            place_of(k, kernel));
            if (met >= 0
                && (best < 0
                    || pl_reference_larger(c->in[0][plane + met], c->in[0][best])))
                best = plane + met;
        }
        c->out[0][e] = c->in[0][best];
        c->out[1][e] = (double)best;
    }
}

static void compute_max_pool_grad(pl_reference_call_t *c)
{
    for (int64_t e = 0; e < pl_elements(c->in_shape[0]); e++)
        c->out[0][(int64_t)c->in[1][e]] += c->in[0][e];
}

/* ---- avg_pool and its gradient ---- */

/* Elements of a window, padding included if it counts, but none beyond the padding. */
static int64_t elements_counted(const met_windows_t *w, place_t at)
{
    int64_t all = 1;
    for (int k = 0; k < PL_SPACE; k++) {
        const int64_t padding = w->attr->counts_padding ? w->attr->window.before[k] : 0,
                      start = start_of(w, k, at.at[k]),
                      end = w->attr->adaptive ? end_of(w, k, at.at[k])
                                              : start + w->attr->window.kernel[k],
                      limit = w->in[k] + padding;
        all *= (end < limit ? end : limit) - (start > -padding ? start : -padding);
    }
    return all;
}

static void compute_avg_pool(pl_reference_call_t *c)
{
    const bool grad = c->op->code == PL_OP_avg_pool_grad;
    const pl_shape_t x = grad ? c->out_shape[0] : c->in_shape[0],
                     y = grad ? c->in_shape[0] : c->out_shape[0];
    const met_windows_t windows = windows_of(c, x, y);
    const int64_t *kernel = c->attr->window.kernel;
    for (int64_t e = 0; e < pl_elements(y); e++) {
        const int64_t plane = e / count(windows.out) * count(windows.in);
        const place_t at = place_of(e, windows.out);
        const double all = (double)elements_counted(&windows, at);
        double sum = 0;
        for (int64_t k = 0; k < count(kernel); k++) {
            const int64_t met = element_met(&windows, at, place_of(k, kernel));
            if (met >= 0 && grad)
                c->out[0][plane + met] += c->in[0][e] / all;
            else if (met >= 0)
                sum += c->in[0][plane + met];
        }
        if (!grad)
            c->out[0][e] = sum / all;
    }
}

const pl_reference_kernel_t pl_reference_space[PL_OPCODES] = {
    [PL_OP_conv] = compute_convolution,
    [PL_OP_conv_grad_x] = compute_convolution,
    [PL_OP_conv_grad_w] = compute_convolution,
    [PL_OP_avg_pool] = compute_avg_pool,
    [PL_OP_avg_pool_grad] = compute_avg_pool,
    [PL_OP_max_pool] = compute_max_pool,
    [PL_OP_max_pool_grad] = compute_max_pool_grad,
};
