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

/* The element of x that element `of` of the window at `at` meets, or -1: padding. */
static int64_t element_met(const pl_window_t *w, place_t at, place_t of,
                           const int64_t size[PL_SPACE])
{
    int64_t element = 0;
    for (int k = 0; k < PL_SPACE; k++) {
        const int64_t x = at.at[k] * w->stride[k] + of.at[k] * w->dilation[k]
                          - w->before[k];
        if (x < 0 || x >= size[k])
            return -1;
        element = element * size[k] + x;
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
    int64_t in[PL_SPACE], out[PL_SPACE];
    const int64_t *kernel = c->attr->window.kernel;
    pl_space_of(x, 2, in);
    pl_space_of(y, 2, out);
    for (int64_t e = 0; e < pl_elements(y); e++) {
        const place_t at = place_of(e, out);
        const int64_t o = e / count(out) % y.dim[1], b = e / count(out) / y.dim[1],
                      group = o / (y.dim[1] / c->attr->groups);
        for (int64_t f = 0; f < w.dim[1] * count(kernel); f++) {
            const int64_t met = element_met(&c->attr->window, at, place_of(f, kernel),
                                            in),
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
    const int64_t *kernel = c->attr->window.kernel;
    int64_t in[PL_SPACE], out[PL_SPACE];
    pl_space_of(x, 2, in);
    pl_space_of(y, 2, out);
    for (int64_t e = 0; e < pl_elements(y); e++) {
        const int64_t plane = e / count(out) * count(in);
        int64_t best = -1;
        for (int64_t k = 0; k < count(kernel); k++) {
            const int64_t met = element_met(&c->attr->window, place_of(e, out),
                                            place_of(k, kernel), in);
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

const pl_reference_kernel_t pl_reference_space[PL_OPCODES] = {
    [PL_OP_conv] = compute_convolution,
    [PL_OP_conv_grad_x] = compute_convolution,
    [PL_OP_conv_grad_w] = compute_convolution,
    [PL_OP_max_pool] = compute_max_pool,
    [PL_OP_max_pool_grad] = compute_max_pool_grad,
};
