/* unfolded.c - the gradient of a convolution's weights as matrix products
 *
 * The values that each window covers become a row (im2col: Chellapilla, Puri and Simard,
 * "High performance convolutional neural networks for document processing", 2006), some
 * images at a time; the gradient of the results, turned, times these rows is the gradient
 * of the weights, with the channels last.  Measured with AVX2, the library's own
 * primitive takes 1.6 times as long, and 7 times for images of 2 x 2; with AVX-512 only
 * these are slower, 2.7 times. */
#include "accelerators/cpu/library.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { ROWS_MIN = 256 };          /* of a product: fewer do not pay for adding to sums */

struct pl_unfolded {
    pl_convolution_t of;
    int64_t images, windows, taps;        /* images at a time; windows of an image; values
                                             of a window */
    pl_cpu_product_t *product, *rest;     /* of so many images, and of the last ones */
    size_t rows, sums;                    /* offsets in the scratch, behind a product's */
};

static int64_t product_of(const int64_t size[PL_SPACE])
{
    return size[0] * size[1] * size[2];
}

/* sums [filters, taps] += dy [rows, filters] turned, times windows [rows, taps] */
static pl_cpu_product_t *rows_product(const pl_unfolded_t *u, pl_library_t *library,
                                      int64_t images, pl_error_t *err)
{
    const int64_t rows = images * u->windows, filters = u->of.filters;
    const pl_matmul_t m = {.rank = 2,
                           .a = {{filters, rows}, {1, filters}},
                           .b = {{rows, u->taps}, {u->taps, 1}},
                           .c = {{filters, u->taps}, {u->taps, 1}},
                           .accumulate = true};
    return pl_cpu_product_matmul(library, &m, err);
}

bool pl_unfolded_pays(const pl_convolution_t *c)
{
    bool is_dense = c->groups == 1 && c->channels >= 16;
    for (int k = 0; k < PL_SPACE; k++)
        is_dense &= c->window.dilation[k] == 1;
    return is_dense && c->kind == PL_CONVOLVE_GRAD_W && product_of(c->window.kernel) > 1;
}

pl_unfolded_t *pl_unfolded_new(pl_library_t *library, const pl_convolution_t *c,
                               pl_error_t *err)
{
    pl_unfolded_t *u = pl_alloc(sizeof *u);
    if (!u) {
        pl_no_memory(err);
        return NULL;
    }
    u->of = *c;
    u->windows = product_of(c->out);
    u->taps = product_of(c->window.kernel) * c->channels;
    u->images = (ROWS_MIN + u->windows - 1) / u->windows;
    if (u->images > c->batch)
        u->images = c->batch;
    const int64_t rest = c->batch % u->images;
    u->product = rows_product(u, library, u->images, err);
    if (u->product && rest)
        u->rest = rows_product(u, library, rest, err);
    if (!u->product || (rest && !u->rest)) {
        pl_unfolded_free(u);
        return NULL;
    }
    u->rows = pl_cpu_product_scratch(u->product);
    if (u->rest && pl_cpu_product_scratch(u->rest) > u->rows)
        u->rows = pl_cpu_product_scratch(u->rest);
    u->sums = u->rows + (size_t)(u->images * u->windows * u->taps) * sizeof(float);
    u->sums = (u->sums + 63) / 64 * 64;
    return u;
}

void pl_unfolded_free(pl_unfolded_t *u)
{
    if (!u)
        return;
    pl_cpu_product_free(u->product);
    pl_cpu_product_free(u->rest);
    pl_free(u);
}

size_t pl_unfolded_scratch(const pl_unfolded_t *u)
{
    return u->sums + (size_t)(u->of.filters * u->taps) * sizeof(float);
}

/* The values below a line of the kernel, [kernel, channels], of x [in, channels] from
 * place `first` on; zeros outside. */
static void line_unfold(const float *x, int64_t first, int64_t kernel, int64_t in,
                        int64_t channels, float *to)
{
    const int64_t before = first < 0 ? -first < kernel ? -first : kernel : 0,
                  end = in - first < kernel ? in - first > before ? in - first : before
                                            : kernel;
    memset(to, 0, (size_t)(before * channels) * sizeof *to);
    if (end > before)
        memcpy(to + before * channels, x + (first + before) * channels,
               (size_t)((end - before) * channels) * sizeof *to);
    memset(to + end * channels, 0, (size_t)((kernel - end) * channels) * sizeof *to);
}

/* All windows of an image x [in..., channels], a row each. */
static void image_unfold(const pl_convolution_t *c, const float *x, float *to)
{
    const int64_t *in = c->in, *out = c->out, *kernel = c->window.kernel,
                  *stride = c->window.stride, *before = c->window.before,
                  line = kernel[2] * c->channels;
    for (int64_t window = 0; window < product_of(out); window++) {
        const int64_t deep = window / (out[1] * out[2]) * stride[0] - before[0],
                      high = window / out[2] % out[1] * stride[1] - before[1],
                      wide = window % out[2] * stride[2] - before[2];
        for (int64_t d = deep; d < deep + kernel[0]; d++)
            for (int64_t h = high; h < high + kernel[1]; h++, to += line) {
                if (d < 0 || d >= in[0] || h < 0 || h >= in[1])
                    memset(to, 0, (size_t)line * sizeof *to);
                else
                    line_unfold(x + (d * in[1] + h) * in[2] * c->channels, wide,
                                kernel[2], in[2], c->channels, to);
            }
    }
}

/* dw [filters, channels, kernel...] from sums with the channels last. */
static void sums_turn(const pl_unfolded_t *u, const float *sums, float *dw)
{
    const int64_t channels = u->of.channels, kernel = u->taps / channels;
    for (int64_t f = 0; f < u->of.filters; f++, sums += u->taps, dw += u->taps)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t k = 0; k < kernel; k++)
                dw[c * kernel + k] = sums[k * channels + c];
}

int pl_unfolded_run(pl_unfolded_t *u, void *const argument[4], void *scratch,
                    pl_error_t *err)
{
    const pl_convolution_t *c = &u->of;
    const int64_t size = product_of(c->in) * c->channels;
    float *rows = (float *)((char *)scratch + u->rows),
          *sums = (float *)((char *)scratch + u->sums);
    int code = PL_OK;
    memset(sums, 0, (size_t)(c->filters * u->taps) * sizeof *sums);
    for (int64_t from = 0; from < c->batch && code == PL_OK; from += u->images) {
        const int64_t count = c->batch - from < u->images ? c->batch - from : u->images;
        for (int64_t k = 0; k < count; k++)
            image_unfold(c, (const float *)argument[1] + (from + k) * size,
                         rows + k * u->windows * u->taps);
        void *const own[4] = {(float *)argument[0] + from * u->windows * c->filters, rows,
                              NULL, sums};
        code = pl_cpu_product_run(count == u->images ? u->product : u->rest, own, scratch,
                                  err);
    }
    sums_turn(u, sums, argument[3]);
    return code;
}
