/* gpu_kernels.c - tests of the dialect of kernels on the emulator: small kernels against
 * plain loops in float64, and against the functions of the processor's own kernels
 *
 * Built by t/gpu_kernels.t again, with sanitizers and with faults; then it prints nothing
 * and its status tells. */
#include "t/emulator.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/half.h"
#include "base/random.h"

#include "t/gpu_kernels.k"

#ifdef ALONE
#define ok(truth, ...) (void)((truth) || (exit(1), 0))
#define run(test) test()
#define tap_done() 0
#else
#include "t/tap.h"
#endif

enum { SEEDS = 3 };

/* In (-1, 1), and always the same. */
static float value(int64_t i)
{
    return (float)(((uint64_t)i * 2654435761u + 12345) % 65536) / 32768.0f - 1.0f;
}

static float *floats(int64_t n, float factor)
{
    float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++)
        x[i] = value(i) * factor;
    return x;
}

static bool is_close(double got, double want, double tolerance)
{
    const double off = fabs(got - want);
    return off <= tolerance * (1 + fabs(want));
}

/* ---- each thread by itself ---- */

typedef struct scale_add_call {
    float *x, *y;
    uint16_t *low;
    int64_t n;
} scale_add_call_t;

static void scale_add_thread(void *user)
{
    const scale_add_call_t *c = user;
    scale_add(c->x, c->y, c->low, 0.5f, c->n);
}

static void four_elements_at_once_are_those_of_one_at_a_time(void)
{
    enum { N = 4 * 1111 };
    float *x = floats(N, 3), *y = floats(N, 1);
    uint16_t *low = aligned_alloc(64, (N * sizeof *low + 63) / 64 * 64);
    emulator_run(scale_add_thread, &(scale_add_call_t){x, y, low, N}, 3, 256, 1);
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        const float want = value(i) + 0.5f * (value(i) * 3);
        wrong += !is_close(y[i], want, 1e-6) || low[i] != (pl_bf16_bits)(y[i]);
    }
    ok(wrong == 0, "float32 and bfloat16, %d of %d are wrong", wrong, N);
    free(x), free(y), free(low);
}

typedef struct keep_call {
    float *y;
    const pl_dropout_t *dropout;
    int64_t n;
} keep_call_t;

static void keep_thread(void *user)
{
    const keep_call_t *c = user;
    const pl_dropout_t *d = c->dropout;
    keep(c->y, d->step, d->micro_batch, d->key[0], d->key[1], (float)d->p, c->n);
}

static void dropout_keeps_the_same_elements_as_the_processor(void)
{
    enum { N = 4 * 500 };
    float *y = floats(N, 1);
    const pl_dropout_t d = pl_dropout_init(7, 11, 3, 5, 0.25);
    emulator_run(keep_thread, &(keep_call_t){y, &d, N}, 2, 256, 1);
    int wrong = 0;
    for (int i = 0; i < N; i++)
        wrong += (y[i] != 0) != pl_dropout_keep(&d, (uint64_t)i);
    ok(wrong == 0, "%d of %d are others", wrong, N);
    free(y);
}

typedef struct functions_call {
    float *x, *y;
    int64_t n;
} functions_call_t;

static void functions_thread(void *user)
{
    const functions_call_t *c = user;
    functions(c->x, c->y, c->n);
}

static double gelu_slope(double x)
{
    return 0.5 * (1 + erf(x * sqrt(0.5))) + x * 0.3989422804014327 * exp(-0.5 * x * x);
}

static void functions_equal_those_of_c(void)
{
    enum { N = 1000 };
    float *x = floats(N, 8), *y = floats(6 * N, 0);
    emulator_run(functions_thread, &(functions_call_t){x, y, N}, 4, 256, 1);
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        const double v = (double)x[i],
                     u = 0.7978845608028654 * (v + 0.044715 * v * v * v);
        wrong += !is_close(y[i], exp(v), 4e-7);
        wrong += v > 0 ? !is_close(y[N + i], log(v), 4e-7)
                       : v < 0 && y[N + i] == y[N + i];
        wrong += !is_close(y[2 * N + i], tanh(v), 4e-7);
        wrong += !is_close(y[3 * N + i], erf(v), 4e-7);
        wrong += !is_close(y[4 * N + i], 0.5 * v * (1 + tanh(u)), 1e-6);
        wrong += !is_close(y[5 * N + i], gelu_slope(v), 1e-6);
    }
    ok(wrong == 0, "six functions, %d of %d are wrong", wrong, 6 * N);
    free(x), free(y);
}

/* ---- threads of a group together ---- */

typedef struct normalize_call {
    uint16_t *x;
    float *y;
    int64_t rows;
} normalize_call_t;

static void normalize_thread(void *user)
{
    const normalize_call_t *c = user;
    normalize(c->x, c->y, c->rows);
}

static void rows_are_normalized_alike_in_every_order(void)
{
    enum { ROWS = 5 };
    uint16_t *x = aligned_alloc(64, sizeof *x * ROWS * WIDTH);
    float *y[SEEDS];
    int wrong = 0;
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (pl_bf16_bits)(value(i) * 3 + 1);
    for (int k = 0; k < SEEDS; k++) {
        y[k] = floats(ROWS * WIDTH, 0);
        emulator_run(normalize_thread, &(normalize_call_t){x, y[k], ROWS}, 2, 256,
                     (uint64_t)k);
        wrong += memcmp(y[k], y[0], sizeof **y * ROWS * WIDTH) != 0;
    }
    ok(wrong == 0, "the same bits whatever thread is first");
    for (int row = 0; row < ROWS; row++) {
        double mean = 0, squares = 0;
        for (int i = 0; i < WIDTH; i++)
            mean += (double)bf16_float(x[row * WIDTH + i]) / WIDTH;
        for (int i = 0; i < WIDTH; i++)
            squares += pow((double)bf16_float(x[row * WIDTH + i]) - mean, 2) / WIDTH;
        for (int i = 0; i < WIDTH; i++)
            wrong += !is_close(y[0][row * WIDTH + i],
                               ((double)bf16_float(x[row * WIDTH + i]) - mean)
                                   / sqrt(squares + 1e-5),
                               1e-6);
    }
    ok(wrong == 0, "and those of float64, but %d", wrong);
    for (int k = 0; k < SEEDS; k++)
        free(y[k]);
    free(x);
}

typedef struct cross_entropy_call {
    float *logits, *loss;
    int32_t *target;
    int classes;
    int64_t rows;
} cross_entropy_call_t;

static void cross_entropy_thread(void *user)
{
    const cross_entropy_call_t *c = user;
    cross_entropy(c->logits, c->target, c->loss, c->classes, c->rows);
}

static void a_gradient_takes_the_place_of_its_logits(void)
{
    enum { ROWS = 3, CLASSES = 1003 };
    float *x = floats(ROWS * CLASSES, 9), *loss = floats(ROWS, 0);
    int32_t target[ROWS] = {0, 500, CLASSES - 1};
    emulator_run(cross_entropy_thread,
                 &(cross_entropy_call_t){x, loss, target, CLASSES, ROWS}, ROWS, 256, 2);
    int wrong = 0;
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int i = 0; i < CLASSES; i++)
            sum += exp((double)value(row * CLASSES + i) * 9);
        wrong += !is_close(loss[row],
                           log(sum) - (double)value(row * CLASSES + target[row]) * 9,
                           1e-5);
        for (int i = 0; i < CLASSES; i++)
            wrong += !is_close(x[row * CLASSES + i],
                               exp((double)value(row * CLASSES + i) * 9) / sum
                                   - (i == target[row]),
                               1e-5);
    }
    ok(wrong == 0, "%d of %d are wrong", wrong, ROWS * (CLASSES + 1));
    free(x), free(loss);
}

typedef struct transpose_call {
    float *x, *y;
    int rows, columns;
} transpose_call_t;

static void transpose_thread(void *user)
{
    const transpose_call_t *c = user;
    transpose(c->x, c->y, c->rows, c->columns);
}

static void tiles_of_local_memory_are_transposed(void)
{
    enum { ROWS = 70, COLUMNS = 45 };
    float *x = floats(ROWS * COLUMNS, 1), *y = floats(ROWS * COLUMNS, 0);
    emulator_run(transpose_thread, &(transpose_call_t){x, y, ROWS, COLUMNS},
                 (ROWS + 31) / 32 * ((COLUMNS + 31) / 32), 256, 3);
    int wrong = 0;
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLUMNS; k++)
            wrong += y[k * ROWS + i] != x[i * COLUMNS + k];
    ok(wrong == 0, "%d of %d are elsewhere", wrong, ROWS * COLUMNS);
    free(x), free(y);
}

int main(void)
{
    run(four_elements_at_once_are_those_of_one_at_a_time);
    run(dropout_keeps_the_same_elements_as_the_processor);
    run(functions_equal_those_of_c);
    run(rows_are_normalized_alike_in_every_order);
    run(a_gradient_takes_the_place_of_its_logits);
    run(tiles_of_local_memory_are_transposed);
    return tap_done();
}
