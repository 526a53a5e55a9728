/* emulated_layers.c - attention and convolution by loops: the emulated library's */
#include "t/emulated_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

static void *pointer(pl_device_ptr_t address)
{
    return (void *)(uintptr_t)address;
}

double emulated_element(pl_device_ptr_t at, pl_dtype_t dtype, int64_t i)
{
    switch (dtype) {
    case PL_F64: return ((const double *)pointer(at))[i];
    case PL_F32: return (double)((const float *)pointer(at))[i];
    case PL_BF16: return (double)pl_bf16_float(((const uint16_t *)pointer(at))[i]);
    default: return (double)pl_f16_float(((const uint16_t *)pointer(at))[i]);
    }
}

void emulated_set(pl_device_ptr_t at, pl_dtype_t dtype, int64_t i, double x)
{
    switch (dtype) {
    case PL_F64: ((double *)pointer(at))[i] = x; break;
    case PL_F32: ((float *)pointer(at))[i] = (float)x; break;
    case PL_BF16: ((uint16_t *)pointer(at))[i] = pl_bf16_bits((float)x); break;
    default: ((uint16_t *)pointer(at))[i] = pl_f16_bits((float)x); break;
    }
}

/* ---- Attention ---- */

typedef struct attending {
    const pl_layer_t *is;
    const pl_device_ptr_t *at;
    int64_t batch, head;
} attending_t;

static int64_t place(const attending_t *a, int operand, int64_t token)
{
    const int64_t *stride = a->is->attention.stride[operand];
    return a->batch * stride[0] + a->head * stride[1] + token * stride[2];
}

static double get(const attending_t *a, int operand, int64_t token, int64_t e)
{
    return emulated_element(a->at[operand], a->is->dtype, place(a, operand, token) + e);
}

static void put(const attending_t *a, int operand, int64_t token, int64_t e, double x)
{
    emulated_set(a->at[operand], a->is->dtype, place(a, operand, token) + e, x);
}

static double inner(const attending_t *a, int left, int64_t i, int right, int64_t j)
{
    double sum = 0;
    for (int64_t e = 0; e < a->is->attention.width; e++)
        sum += get(a, left, i, e) * get(a, right, j, e);
    return sum;
}

static bool sees(const attending_t *a, int64_t i, int64_t j)
{
    return !a->is->attention.causal || j <= i;
}

/* ln sum_j e^(scale q_i k_j). */
static double sum_of(const attending_t *a, int64_t i)
{
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->is->attention.tokens; j++)
        if (sees(a, i, j))
            max = fmax(max, a->is->attention.scale
                                * inner(a, PL_ATTENTION_Q, i, PL_ATTENTION_K, j));
    for (int64_t j = 0; j < a->is->attention.tokens; j++)
        if (sees(a, i, j))
            sum += exp(a->is->attention.scale
                           * inner(a, PL_ATTENTION_Q, i, PL_ATTENTION_K, j)
                       - max);
    return max + log(sum);
}

static double weight(const attending_t *a, int64_t i, int64_t j, double sum)
{
    return sees(a, i, j) ? exp(a->is->attention.scale
                                   * inner(a, PL_ATTENTION_Q, i, PL_ATTENTION_K, j)
                               - sum)
                         : 0;
}

static void attend(const attending_t *a)
{
    for (int64_t i = 0; i < a->is->attention.tokens; i++) {
        const double sum = sum_of(a, i);
        for (int64_t e = 0; e < a->is->attention.width; e++) {
            double y = 0;
            for (int64_t j = 0; j < a->is->attention.tokens; j++)
                y += weight(a, i, j, sum) * get(a, PL_ATTENTION_V, j, e);
            put(a, PL_ATTENTION_Y, i, e, y);
        }
        if (a->is->attention.stride[PL_ATTENTION_SUMS][2])
            emulated_set(a->at[PL_ATTENTION_SUMS], PL_F32, place(a, PL_ATTENTION_SUMS, i),
                         sum);
    }
}

static double sum_kept(const attending_t *a, int64_t i)
{
    return emulated_element(a->at[PL_ATTENTION_SUMS], PL_F32,
                            place(a, PL_ATTENTION_SUMS, i));
}

/* Of the score of query i and key j. */
static double slope(const attending_t *a, int64_t i, int64_t j)
{
    return weight(a, i, j, sum_kept(a, i))
           * (inner(a, PL_ATTENTION_DY, i, PL_ATTENTION_V, j)
              - inner(a, PL_ATTENTION_DY, i, PL_ATTENTION_Y, i))
           * a->is->attention.scale;
}

static void attend_back(const attending_t *a)
{
    const int64_t tokens = a->is->attention.tokens, width = a->is->attention.width;
    double *rows = calloc((size_t)(tokens * width * 3), sizeof *rows);
    double *dq = rows, *dk = rows + tokens * width, *dv = rows + 2 * tokens * width;
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t j = 0; j < tokens; j++) {
            const double s = slope(a, i, j), p = weight(a, i, j, sum_kept(a, i));
            for (int64_t e = 0; e < width; e++) {
                dq[i * width + e] += s * get(a, PL_ATTENTION_K, j, e);
                dk[j * width + e] += s * get(a, PL_ATTENTION_Q, i, e);
                dv[j * width + e] += p * get(a, PL_ATTENTION_DY, i, e);
            }
        }
    for (int64_t i = 0; i < tokens * width; i++) {
        put(a, PL_ATTENTION_DQ, i / width, i % width, dq[i]);
        put(a, PL_ATTENTION_DK, i / width, i % width, dk[i]);
        put(a, PL_ATTENTION_DV, i / width, i % width, dv[i]);
    }
    free(rows);
}

/* ---- Convolution: X[b][y][x][c] W[o][c][v][u] to Y[b][y'][x'][o] ---- */

static void convolve(const pl_layer_t *is, const pl_device_ptr_t *at)
{
    const __typeof__(is->convolution) *c = &is->convolution;
    const int64_t high = c->kernel[0], wide = c->kernel[1],
                  channels = c->channels / c->groups,
                  xs = c->batches * c->height * c->width * c->channels,
                  ys = c->batches * c->down * c->across * c->filters,
                  ws = c->filters * channels * high * wide;
    const int made = is->kind == PL_LAYER_CONVOLUTION          ? PL_CONVOLUTION_Y
                     : is->kind == PL_LAYER_CONVOLUTION_GRAD_X ? PL_CONVOLUTION_X
                                                               : PL_CONVOLUTION_W;
    const int64_t count = made == PL_CONVOLUTION_Y   ? ys
                          : made == PL_CONVOLUTION_X ? xs
                                                     : ws;
    double *sum = calloc((size_t)count, sizeof *sum);
    for (int64_t i = 0; i < ys; i++) {
        const int64_t o = i % c->filters, x0 = i / c->filters % c->across,
                      y0 = i / c->filters / c->across % c->down,
                      b = i / c->filters / c->across / c->down;
        for (int64_t f = 0; f < channels * high * wide; f++) {
            const int64_t channel = o / (c->filters / c->groups) * channels
                                    + f / (high * wide),
                          y = y0 * c->stride[0] - c->before[0]
                              + f / wide % high * c->dilation[0],
                          x = x0 * c->stride[1] - c->before[1]
                              + f % wide * c->dilation[1],
                          w = o * channels * high * wide + f,
                          p = ((b * c->height + y) * c->width + x) * c->channels
                              + channel;
            if (y < 0 || y >= c->height || x < 0 || x >= c->width)
                continue;
            if (made == PL_CONVOLUTION_Y)
                sum[i] += emulated_element(at[PL_CONVOLUTION_X], is->dtype, p)
                          * emulated_element(at[PL_CONVOLUTION_W], is->dtype, w);
            else if (made == PL_CONVOLUTION_X)
                sum[p] += emulated_element(at[PL_CONVOLUTION_Y], is->dtype, i)
                          * emulated_element(at[PL_CONVOLUTION_W], is->dtype, w);
            else
                sum[w] += emulated_element(at[PL_CONVOLUTION_Y], is->dtype, i)
                          * emulated_element(at[PL_CONVOLUTION_X], is->dtype, p);
        }
        if (c->has_bias)
            sum[i] += emulated_element(at[PL_CONVOLUTION_BIAS], is->dtype, o);
    }
    for (int64_t i = 0; i < count; i++)
        emulated_set(at[made], is->dtype, i, sum[i]);
    free(sum);
}

void emulated_layer_compute(const pl_layer_t *layer,
                            const pl_device_ptr_t at[PL_LAYER_ADDRESSES])
{
    attending_t a = {layer, at, 0, 0};
    memset(pointer(at[PL_LAYER_WORKSPACE]), 0xff, EMULATED_LAYER_WORKSPACE);
    for (; a.batch < layer->attention.batches; a.batch++)
        for (a.head = 0; a.head < layer->attention.heads; a.head++)
            if (layer->kind == PL_LAYER_ATTENTION)
                attend(&a);
            else
                attend_back(&a);
    if (layer->kind >= PL_LAYER_CONVOLUTION)
        convolve(layer, at);
}
