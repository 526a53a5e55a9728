/* parallel.c - tests of accelerators/cpu/parallel.c: loops and products that threads
 * share */
#include "accelerators/cpu/parallel.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "accelerators/cpu/library.h"
#include "base/alloc.h"
#include "tap.h"

/* ---- Loops ---- */

#define ITEMS 1000

typedef struct loop {
    int seen[ITEMS];                     /* how often each item was worked on */
    int parts[64];                       /* items of each piece */
    bool slow;                           /* the working thread lets the others go first */
} loop_t;

static void count_items(void *user, int64_t from, int64_t to, int part)
{
    loop_t *loop = user;
    for (int64_t k = from; k < to; k++)
        loop->seen[k]++;
    loop->parts[part] = (int)(to - from);
    if (loop->slow)
        sched_yield();
}

static bool all_once(const loop_t *loop, int n)
{
    for (int k = 0; k < ITEMS; k++)
        if (loop->seen[k] != (k < n))
            return false;
    return true;
}

static void each_item_is_worked_on_once(void)
{
    for (int threads = 1; threads <= 9; threads += 2) {
        pl_error_t err;
        pl_pool_t *pool = pl_pool_new(threads, &err);
        int wrong = 0;
        for (int n = 1; n <= ITEMS; n += 37)
            for (int grain = 1; grain <= 64; grain *= 8) {
                loop_t loop = {.slow = n % 2};
                pl_parallel_for(pool, threads, n, grain, count_items, &loop);
                wrong += !all_once(&loop, n);
            }
        is_int(wrong, 0, "by %d threads", threads);
        pl_pool_free(pool);
    }
}

static void pieces_depend_on_size_and_threads_alone(void)
{
    pl_error_t err;
    pl_pool_t *pool = pl_pool_new(4, &err);
    int wrong = 0;
    for (int k = 0; k < 200; k++) {
        loop_t loop = {.slow = k % 2};
        pl_parallel_for(pool, 4, 100, 8, count_items, &loop);
        const int want[] = {32, 32, 32, 4, 0};
        wrong += memcmp(loop.parts, want, sizeof want) != 0;
    }
    is_int(wrong, 0, "100 items in grains of 8: 32, 32, 32 and 4");
    pl_pool_free(pool);
}

/* Loops with more and with fewer pieces follow each other: a helper that comes late to
 * one finds the next. */
static void loops_follow_each_other_closely(void)
{
    pl_error_t err;
    pl_pool_t *pool = pl_pool_new(5, &err);
    int wrong = 0;
    for (int k = 0; k < 20000; k++) {
        loop_t loop = {0};
        const int threads = 1 + k % 5;
        pl_parallel_for(pool, threads, 40, 1, count_items, &loop);
        wrong += !all_once(&loop, 40);
    }
    is_int(wrong, 0, "20 000 of them");
    pl_pool_free(pool);
}

static void pools_come_and_go(void)
{
    pl_error_t err;
    int wrong = 0;
    for (int k = 0; k < 50; k++) {
        loop_t loop = {0};
        pl_pool_t *pool = pl_pool_new(3, &err), *other = pl_pool_new(3, &err);
        if (k % 2)
            pl_parallel_for(pool, 3, 10, 1, count_items, &loop);
        else
            pl_parallel_for(other, 3, 10, 1, count_items, &loop);
        wrong += !all_once(&loop, 10);
        pl_pool_free(pool);
        pl_pool_free(other);
    }
    is_int(wrong, 0, "also when no loop ever ran");
}

/* ---- Slices ---- */

#define ELEMENTS 400000

static float data[3][ELEMENTS], result[2][ELEMENTS];

static void fill(void)
{
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < ELEMENTS; i++)
            data[k][i] = (float)sin(i * 0.37 + k);
}

typedef pl_slices_t *make_t(pl_library_t *library, const pl_kernels_t *kernels,
                            int threads, const void *what, pl_error_t *err);

/* Adds what `make` makes for so many threads to a result; false if it fails. */
static bool slices_run(make_t *make, const void *what, int threads, bool has_bias,
                       float *to)
{
    pl_error_t err = {0};
    pl_library_t *library = pl_library_new(&err);
    pl_pool_t *pool = pl_pool_new(threads, &err);
    pl_slices_t *s = make(library, &pl_kernels_portable, threads, what, &err);
    char *scratch = s ? aligned_alloc(64, (pl_slices_scratch(s) + 127) / 64 * 64) : NULL;
    void *const argument[] = {data[0], data[1], has_bias ? data[2] : NULL, to};
    const bool ran = s && pl_slices_run(s, pool, argument, scratch, &err) == PL_OK;
    free(scratch);
    pl_slices_free(s);
    pl_pool_free(pool);
    pl_library_free(library);
    return ran;
}

/* Of the first result from the second, as a part of the largest element. */
static double difference(void)
{
    double worst = 0, size = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        worst = tap_larger(worst, fabs((double)result[0][i] - (double)result[1][i]));
        size = fmax(size, fabs((double)result[0][i]));
    }
    return size > 0 ? worst / size : INFINITY;
}

/* Whether one thread and `threads` of them have the same result. */
static bool threads_agree(make_t *make, const void *what, int threads, bool has_bias)
{
    memset(result, 0, sizeof result);
    return slices_run(make, what, 1, has_bias, result[0])
           && slices_run(make, what, threads, has_bias, result[1]) && difference() < 1e-5;
}

static pl_slices_t *make_matmul(pl_library_t *library, const pl_kernels_t *kernels,
                                int threads, const void *what, pl_error_t *err)
{
    return pl_slices_matmul(library, kernels, threads, what, err);
}

static pl_slices_t *make_convolution(pl_library_t *library, const pl_kernels_t *kernels,
                                     int threads, const void *what, pl_error_t *err)
{
    (void)kernels;
    return pl_slices_convolution(library, threads, what, err);
}

static pl_matmul_t plain(int64_t m, int64_t k, int64_t n)
{
    return (pl_matmul_t){.rank = 2,
                         .a = {{m, k}, {k, 1}},
                         .b = {{k, n}, {n, 1}},
                         .c = {{m, n}, {n, 1}}};
}

static void a_product_of_matrices_is_the_same_from_slices(void)
{
    pl_matmul_t cases[] = {plain(200, 70, 90), plain(90, 70, 200),  plain(8, 300, 1000),
                           plain(90, 70, 200), plain(100, 64, 100), plain(100, 64, 100)};
    static const char *const names[] = {"rows",
                                        "rows with a bias",
                                        "columns, for there are many",
                                        "read transposed",
                                        "a batch",
                                        "a batch with one right side"};
    cases[1].has_bias = cases[2].has_bias = true;
    cases[3].a = (pl_matrix_t){{90, 70}, {1, 90}};
    cases[4] = (pl_matmul_t){.rank = 3,
                             .a = {{7, 40, 50}, {2000, 50, 1}},
                             .b = {{7, 50, 60}, {3000, 60, 1}},
                             .c = {{7, 40, 60}, {2400, 60, 1}}};
    cases[5] = cases[4];
    cases[5].b = (pl_matrix_t){{1, 50, 60}, {3000, 60, 1}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int threads = 2; threads <= 5; threads++)
            ok(threads_agree(make_matmul, &cases[k], threads, cases[k].has_bias),
               "%s, %d threads", names[k], threads);
}

/* The sum of products in float64, for a result that holds `before`. */
static void multiply(const pl_matmul_t *m, float before, float *to)
{
    const int64_t *a = m->a.stride, *b = m->b.stride, *c = m->c.stride;
    for (int64_t i = 0; i < m->c.dim[0]; i++)
        for (int64_t j = 0; j < m->c.dim[1]; j++) {
            double sum = (double)before + (m->has_bias ? (double)data[2][j] : 0);
            for (int64_t k = 0; k < m->a.dim[1]; k++)
                sum += (double)data[0][i * a[0] + k * a[1]]
                       * (double)data[1][k * b[0] + j * b[1]];
            to[i * c[0] + j * c[1]] = (float)sum;
        }
}

static void a_factor_on_its_side_is_turned_by_blocks(void)
{
    static const struct {
        int64_t m, k, n;
        bool has_bias, accumulate;
    } cases[] = {{70, 512, 192, 0, 0},
                 {70, 1000, 200, 1, 0},
                 {600, 600, 200, 0, 1},
                 {530, 700, 193, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 3; threads++) {
            pl_matmul_t m = plain(cases[i].m, cases[i].k, cases[i].n);
            m.a = (pl_matrix_t){{cases[i].m, cases[i].k}, {1, cases[i].m}};
            m.has_bias = cases[i].has_bias, m.accumulate = cases[i].accumulate;
            memset(result, 0, sizeof result);
            for (int64_t k = 0; m.accumulate && k < cases[i].m * cases[i].n; k++)
                result[0][k] = 7;
            ok(slices_run(make_matmul, &m, threads, m.has_bias, result[0]),
               "%d x %d of depth %d, %d threads", (int)cases[i].m, (int)cases[i].n,
               (int)cases[i].k, threads);
            multiply(&m, m.accumulate ? 7 : 0, result[1]);
            ok(difference() < 1e-5, "as in float64");
        }
}

static void a_convolution_is_the_same_from_slices(void)
{
    static const char *const names[] = {"forward", "gradient of x", "gradient of w"};
    for (int kind = 0; kind < 3; kind++)
        for (int threads = 2; threads <= 8; threads += 2) {
            pl_convolution_t c = {
                .batch = 7,
                .channels = 16,
                .filters = 32,
                .groups = 1,
                .in = {1, 14, 13},
                .out = {1, 14, 13},
                .window = {{1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}}};
            c.kind = kind, c.has_bias = kind == PL_CONVOLVE;
            ok(threads_agree(make_convolution, &c, threads, c.has_bias),
               "%s, 7 pictures, %d threads", names[kind], threads);
        }
}

int main(void)
{
    run(each_item_is_worked_on_once);
    run(pieces_depend_on_size_and_threads_alone);
    run(loops_follow_each_other_closely);
    run(pools_come_and_go);
    fill();
    run(a_product_of_matrices_is_the_same_from_slices);
    run(a_factor_on_its_side_is_turned_by_blocks);
    run(a_convolution_is_the_same_from_slices);
    return tap_done();
}
