/* cpu.c - tests of the results of the CPU accelerator, on every instruction set */
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "cpu_rig.h"
#include "files.h"
#include "tap.h"

/* ---- Every case, every set, one and two threads ---- */

static void for_each_set(void (*check)(cpu_rig_t *rig), int max_threads)
{
    for (int k = 0; k < CPU_SETS; k++)
        for (int threads = 1; threads <= max_threads; threads++) {
            cpu_rig_t rig;
            tap_diag("%s, %d threads", cpu_sets[k], threads);
            if (cpu_rig_open(&rig, cpu_sets[k], threads))
                check(&rig);
            else
                tap_skip("%s", rig.err.text);
            cpu_rig_close(&rig);
        }
}

/* A sum of many numbers is as far off as its order of additions, which a compiler
 * chooses. */
static void check_case(cpu_rig_t *rig, const operator_case_t *c, double tolerance,
                       const char *title)
{
    const bool is_large = pl_elements(c->shape[0]) > 10000;
    const double bound = is_large ? 5 * tolerance : 2 * tolerance;
    operator_run_t run;
    device_results_t got = {0};
    pl_error_t err = {0};
    if (!ok(operator_run_init(&run, c, &err) == PL_OK, "%s can be described", title)) {
        tap_diag("%s", err.text);
        return;
    }
    int code = cpu_run(rig, &run, &got);
    double worst = code == PL_OK ? device_difference(&run, &got) : INFINITY;
    if (!ok(worst < bound, "%s is what the reference computes", title))
        tap_diag("off by %g: %s", worst, rig->err.text);
    device_results_release(&got);
    operator_run_release(&run);
}

static void check_all(cpu_rig_t *rig)
{
    for (int i = 0; i < operator_case_count; i++)
        check_case(rig, &operator_cases[i], 1e-5, operator_cases[i].name);
}

/* What a gradient would read has no memory then. */
static void check_forward(cpu_rig_t *rig)
{
    for (int i = 0; i < operator_case_count; i++) {
        operator_case_t c = operator_cases[i];
        c.forward_only = true;
        check_case(rig, &c, 1e-5, c.name);
    }
}

static void every_operator_equals_the_reference(void)
{
    for_each_set(check_all, 2);
}

static void operators_without_gradients_equal_the_reference(void)
{
    for_each_set(check_forward, 1);
}

/* ---- Odd sizes: ends of vectors, of blocks and of threads' shares ---- */

static void check_size(cpu_rig_t *rig, const char *name, pl_shape_t a, pl_shape_t b,
                       pl_shape_t c)
{
    char title[96], text[64];
    operator_case_t changed = cpu_case(name);
    changed.shape[0] = a;
    changed.shape[1] = b;
    changed.shape[2] = c;
    snprintf(title, sizeof title, "%s of %s", name, pl_shape_text(a, text));
    check_case(rig, &changed, 1e-4, title);
}

static void check_cross_entropy(cpu_rig_t *rig, int64_t rows, int64_t classes)
{
    char title[96];
    operator_case_t c = cpu_case("cross_entropy");
    c.shape[0] = PL_SHAPE(rows, classes);
    c.index = PL_SHAPE(rows);
    c.classes = classes;
    snprintf(title, sizeof title, "cross_entropy of %lld rows of %lld", (long long)rows,
             (long long)classes);
    check_case(rig, &c, 1e-4, title);
}

static const pl_shape_t none = {0};

static void check_rows(cpu_rig_t *rig, int64_t n)
{
    check_size(rig, "softmax", PL_SHAPE(5, n), none, none);
    check_size(rig, "layer_norm", PL_SHAPE(7, n), PL_SHAPE(n), PL_SHAPE(n));
    check_size(rig, "sum, the first axis", PL_SHAPE(n, 3), none, none);
    check_size(rig, "sum, the last axis kept", PL_SHAPE(3, n), none, none);
    check_size(rig, "sum, two outer axes", PL_SHAPE(3, n, 5), none, none);
    check_size(rig, "max, first axis kept", PL_SHAPE(n, 4), none, none);
    check_size(rig, "permute, transposed", PL_SHAPE(n, 33), none, none);
    check_size(rig, "linear", PL_SHAPE(5, n), PL_SHAPE(3, n), PL_SHAPE(3));
    check_size(rig, "linear", PL_SHAPE(5, 3), PL_SHAPE(n, 3), PL_SHAPE(n));
    check_cross_entropy(rig, 5, n);
    check_cross_entropy(rig, n, 5);
}

static void check_elements(cpu_rig_t *rig, int64_t n)
{
    check_size(rig, "a chain", PL_SHAPE(3, n), PL_SHAPE(n), none);
    check_size(rig, "add, a column and a row", PL_SHAPE(5, 1), PL_SHAPE(1, n), none);
    check_size(rig, "mul", PL_SHAPE(n), PL_SHAPE(n), none);
    check_size(rig, "dropout", PL_SHAPE(3, n), none, none);
    check_size(rig, "sum, all", PL_SHAPE(n), none, none);
    check_size(rig, "mse", PL_SHAPE(3, n), PL_SHAPE(3, n), none);
}

static void check_attention(cpu_rig_t *rig, const char *name, int64_t tokens,
                            int64_t width)
{
    const pl_shape_t q = PL_SHAPE(2, 2, tokens, width);
    check_size(rig, name, q, q, q);
}

static void check_pictures(cpu_rig_t *rig, int64_t channels, int64_t filters)
{
    check_size(rig, "conv2d, padding", PL_SHAPE(3, channels, 9, 7),
               PL_SHAPE(filters, channels, 3, 3), PL_SHAPE(filters));
    check_size(rig, "max_pool2d, overlapping, padding", PL_SHAPE(3, channels, 9, 7), none,
               none);
    check_size(rig, "batch_norm, images", PL_SHAPE(3, channels, 9, 7), none, none);
}

/* Kernels of 3 x 3 with many channels are computed in tiles of 2 x 2 results. */
static void check_tiles(cpu_rig_t *rig, int64_t high, int64_t wide)
{
    static const struct {
        int64_t batch, channels, filters;
    } sizes[] = {{7, 32, 40}, {5, 48, 32}};
    for (int64_t padding = 0; padding < 3; padding++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            operator_case_t c = cpu_case("conv2d, padding");
            char title[96];
            c.windows = (pl_windows_t){.padding = {padding, wide % 2 ? padding : 2}};
            c.shape[0] = PL_SHAPE(sizes[k].batch, sizes[k].channels, high, wide);
            c.shape[1] = PL_SHAPE(sizes[k].filters, sizes[k].channels, 3, 3);
            c.shape[2] = PL_SHAPE(sizes[k].filters);
            snprintf(title, sizeof title, "tiles of %d x %d, padding %d, %d channels",
                     (int)high, (int)wide, (int)padding, (int)sizes[k].channels);
            check_case(rig, &c, 1e-4, title);
        }
}

static void check_sizes(cpu_rig_t *rig)
{
    static const int64_t sizes[] = {1, 3, 17, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_rows(rig, sizes[i]);
        check_elements(rig, sizes[i]);
    }
    check_elements(rig, 12345);               /* several blocks for each of two threads */
    check_attention(rig, "attention, causal", 17, 17);
    check_attention(rig, "attention, causal", 70, 16);
    check_attention(rig, "attention", 33, 64);
    check_attention(rig, "attention, dropout", 61, 3);
    check_pictures(rig, 1, 17);
    check_pictures(rig, 17, 3);
    check_pictures(rig, 32, 16);
    check_size(rig, "conv2d, padding", PL_SHAPE(3, 16, 13, 11), PL_SHAPE(4, 16, 3, 3),
               PL_SHAPE(4));               /* windows of two images at a time, then one */
    check_tiles(rig, 9, 11);
    check_tiles(rig, 10, 8);
    check_size(rig, "conv2d, stride", PL_SHAPE(3, 19, 11, 8), PL_SHAPE(5, 19, 3, 3),
               PL_SHAPE(5));
    check_size(rig, "conv2d, rectangles", PL_SHAPE(2, 16, 7, 6), PL_SHAPE(4, 16, 2, 5),
               PL_SHAPE(4));
    check_size(rig, "conv3d", PL_SHAPE(2, 16, 4, 5, 3), PL_SHAPE(3, 16, 2, 3, 2),
               PL_SHAPE(3));
}

static void odd_sizes_are_computed_to_their_ends(void)
{
    for_each_set(check_sizes, 2);
}

/* ---- Chains by chance: what is fused, assigned and overwritten in every order ---- */

typedef struct chance {
    pl_graph_t *g;
    uint64_t key, drawn;
    pl_node_t known[64];
    int count;
} chance_t;

static uint64_t draw(chance_t *c, uint64_t below)
{
    return pl_random_u64(c->key, c->drawn++) % below;
}

static pl_node_t any(chance_t *c)
{
    return c->known[draw(c, (uint64_t)c->count)];
}

/* One of the newer values, so that chains grow long. */
static pl_node_t recent(chance_t *c)
{
    const uint64_t last = c->count < 6 ? (uint64_t)c->count : 6;
    return c->known[(uint64_t)c->count - 1 - draw(c, last)];
}

/* One that is not a parameter. */
static pl_node_t made(chance_t *c)
{
    return c->known[3 + draw(c, (uint64_t)c->count - 3)];
}

static pl_node_t binary(chance_t *c)
{
    switch (draw(c, 4)) {
    case 0: return pl_add(c->g, recent(c), any(c));
    case 1: return pl_sub(c->g, any(c), recent(c));
    case 2: return pl_scale(c->g, pl_mul(c->g, recent(c), any(c)), 0.5);
    default:
        return pl_emit(c->g, PL_OP_minimum, (pl_node_t[]){any(c), any(c)}, 2, NULL, NULL);
    }
}

static pl_node_t unary(chance_t *c)
{
    switch (draw(c, 6)) {
    case 0: return pl_neg(c->g, any(c));
    case 1: return pl_relu(c->g, recent(c));
    case 2: return pl_tanh(c->g, recent(c));
    case 3: return pl_dropout(c->g, recent(c), 0.25);
    case 4: return pl_softmax(c->g, recent(c));             /* ends a chain */
    default: return pl_tanh(c->g, pl_sum(c->g, recent(c), NULL, 0, false));
    }
}

/* Values have the shape of the parameters, or are scalars; now and then one is assigned
 * to a parameter that others read before or after. */
static pl_node_t build_by_chance(pl_graph_t *g, const operator_case_t *of)
{
    static const char *const names[] = {"a", "b", "c"};
    chance_t c = {.g = g, .key = (uint64_t)of->arg[0]};
    pl_node_t param[3];
    for (int k = 0; k < 3; k++)
        c.known[c.count++] = param[k] = pl_param(g, names[k], of->shape[k], pl_zeros());
    for (int i = 0; i < 40; i++) {
        const uint64_t kind = draw(&c, 8);
        pl_node_t y = kind < 5 ? binary(&c) : unary(&c);
        if (pl_shape_of(g, y).rank == 0)
            y = pl_mul(g, y, any(&c));
        if (!pl_same_shape(pl_shape_of(g, y), of->shape[0]))
            continue;
        c.known[c.count++] = y;
        if (draw(&c, 6) == 0)
            pl_emit(g, PL_OP_assign, (pl_node_t[]){param[draw(&c, 2)], made(&c)}, 2,
                    &(pl_attr_t){.accumulate = draw(&c, 3) == 0}, NULL);
    }
    return recent(&c);
}

static void check_chance(cpu_rig_t *rig)
{
    static const int64_t widths[] = {7, 300, 1500};
    for (int64_t seed = 1; seed <= 150; seed++) {
        char title[64];
        const int64_t n = widths[seed % 3];
        const operator_case_t c = {.name = "chance",
                                   .build = build_by_chance,
                                   .params = 3,
                                   .shape = {PL_SHAPE(3, n), PL_SHAPE(3, n), PL_SHAPE(n)},
                                   .arg = {seed},
                                   .forward_only = true};
        snprintf(title, sizeof title, "chain %lld", (long long)seed);
        check_case(rig, &c, 1e-3, title);
    }
}

static void random_chains_equal_the_reference(void)
{
    for_each_set(check_chance, 2);
}

/* ---- Functions of one number ---- */

typedef struct function {
    const char *name;
    double (*exact)(double x);
    double low, high;
    double ulps;
} function_t;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double softplus(double x)
{
    return log1p(exp(x));
}

static double mish(double x)
{
    return x * tanh(softplus(x));
}

static double worst_ulps(const function_t *f, const float *x, const float *y, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        const double want = f->exact((double)x[i]);
        const float size = fabsf((float)want);
        const double ulp = fmax((double)(nextafterf(size, INFINITY) - size), 0x1p-149);
        worst = tap_larger(worst, fabs((double)y[i] - want) / ulp);
    }
    return worst;
}

static void check_functions(cpu_rig_t *rig)
{
    static const function_t functions[] = {
        {"exp", exp, -103, 88.7, 2},        {"exp", exp, -1, 1, 2},
        {"log", log, 1e-40, 1e-37, 2},      {"log", log, 0.5, 2, 2},
        {"log", log, 1, 1e30, 2},           {"tanh", tanh, -1, 1, 3},
        {"tanh", tanh, -12, 12, 3},         {"sigmoid", sigmoid, -80, 20, 4},
        {"sqrt", sqrt, 1e-40, 1e30, 0.51},  {"sin", sin, -1e5, 1e5, 3},
        {"cos", cos, -10, 10, 3},           {"erf", erf, -4, 4, 4},
        {"log1p", log1p, -0.9, 1, 3},       {"log1p", log1p, 1e-30, 1e-3, 2},
        {"expm1", expm1, -10, 80, 4},       {"expm1", expm1, -1e-3, 1e-3, 2},
        {"softplus", softplus, -80, 80, 4}, {"mish", mish, -20, 80, 6},
        {"floor", floor, -1e6, 1e6, 0.01},  {"round", rint, -1e7, 1e7, 0.01},
    };
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        const function_t *f = &functions[k];
        operator_case_t c = cpu_case(f->name);
        c.shape[0] = PL_SHAPE(20011);
        c.low = f->low;
        c.high = f->high;
        operator_run_t run;
        device_results_t got = {0};
        bool done = operator_run_init(&run, &c, NULL) == PL_OK
                    && cpu_run(rig, &run, &got) == PL_OK;
        double worst = done ? worst_ulps(f, got.region[PL_REGION_PARAMS], got.output,
                                         20011)
                            : INFINITY;
        ok(worst < f->ulps, "%s from %g to %g is within %.2f ulp", f->name, f->low,
           f->high, worst);
        device_results_release(&got);
        operator_run_release(&run);
    }
}

static void functions_are_accurate_to_a_few_ulp(void)
{
    for_each_set(check_functions, 1);
}

/* ---- NaN, infinities, zeros and denormals, as PyTorch has them ---- */

#define SPECIALS 8
static const float specials[SPECIALS] = {NAN,   INFINITY, -INFINITY, 0.0f,
                                         -0.0f, 1e-40f,   -FLT_MAX,  FLT_MAX};

static void check_special(cpu_rig_t *rig, const char *name, const float want[SPECIALS])
{
    operator_case_t c = cpu_case(name);
    c.shape[0] = PL_SHAPE(3, SPECIALS);             /* more than one vector of each set */
    c.forward_only = true;
    operator_run_t run;
    device_results_t got = {0};
    bool same = operator_run_init(&run, &c, NULL) == PL_OK;
    for (int i = 0; i < 3 * SPECIALS && same; i++)
        run.region[PL_REGION_PARAMS][i] = (double)specials[i % SPECIALS];
    same = same && cpu_run(rig, &run, &got) == PL_OK;
    for (int i = 0; i < 3 * SPECIALS && same; i++) {
        const float x = ((const float *)got.output)[i], y = want[i % SPECIALS];
        if (!(x == y || (isnan(x) && isnan(y)) || fabsf(x - y) < 1e-6f * fabsf(y))) {
            tap_diag("of %g it is %g, not %g", (double)specials[i % SPECIALS], (double)x,
                     (double)y);
            same = false;
        }
    }
    ok(same, "%s of NaN, infinities, zeros, denormals and the largest numbers", name);
    device_results_release(&got);
    operator_run_release(&run);
}

/* y of a case with these values in its first parameter. */
static bool output_of(cpu_rig_t *rig, const char *name, pl_shape_t shape, const float *x,
                      float *y)
{
    operator_case_t c = cpu_case(name);
    c.shape[0] = shape;
    c.forward_only = true;
    operator_run_t run;
    device_results_t got = {0};
    bool done = operator_run_init(&run, &c, NULL) == PL_OK;
    for (int64_t i = 0; i < pl_elements(shape) && done; i++)
        run.region[PL_REGION_PARAMS][i] = (double)x[i];
    done = done && cpu_run(rig, &run, &got) == PL_OK;
    if (done)
        memcpy(y, got.output, got.output_bytes);
    device_results_release(&got);
    operator_run_release(&run);
    return done;
}

static void check_nan_in_rows(cpu_rig_t *rig)
{
    const float x[2][4] = {{1, NAN, 3, 2}, {1, INFINITY, 3, -INFINITY}};
    float y[2][4], max[2];
    int32_t index[2];
    ok(output_of(rig, "softmax", PL_SHAPE(2, 4), x[0], y[0]) && isnan(y[0][0])
           && isnan(y[0][3]),
       "a row with a NaN has a softmax of NaN");
    ok(output_of(rig, "max, last axis", PL_SHAPE(2, 4), x[0], max) && isnan(max[0])
           && max[1] == INFINITY,
       "the largest of a row with a NaN is NaN");
    ok(output_of(rig, "argmax", PL_SHAPE(2, 4), x[0], (float *)index) && index[0] == 1
           && index[1] == 1,
       "and it is at the NaN");
}

static void check_nan_in_windows(cpu_rig_t *rig)
{
    const float x[16] = {1,         NAN,       5, 6,  2,         3,         7,  8,
                         -INFINITY, -INFINITY, 0, -1, -INFINITY, -INFINITY, -2, -3};
    float y[4];
    ok(output_of(rig, "max_pool2d", PL_SHAPE(1, 1, 4, 4), x, y) && isnan(y[0])
           && y[1] == 8 && y[2] == -INFINITY && y[3] == 0,
       "a pool of NaN is NaN, of negative infinities is one");
}

static void check_specials(cpu_rig_t *rig)
{
    check_special(rig, "sign", (float[]){NAN, 1, -1, 0, 0, 1, -1, 1});
    check_special(rig, "relu", (float[]){NAN, INFINITY, 0, 0, 0, 1e-40f, 0, FLT_MAX});
    check_special(rig, "exp", (float[]){NAN, INFINITY, 0, 1, 1, 1, 0, INFINITY});
    check_special(rig, "log",
                  (float[]){NAN, INFINITY, NAN, -INFINITY, -INFINITY, -92.1034037f, NAN,
                            88.7228391f});
    check_special(rig, "sqrt",
                  (float[]){NAN, INFINITY, NAN, 0, 0, 9.99997e-21f, NAN, 1.84467435e19f});
    check_special(rig, "tanh", (float[]){NAN, 1, -1, 0, 0, 1e-40f, -1, 1});
    check_special(rig, "sigmoid", (float[]){NAN, 1, 0, 0.5f, 0.5f, 0.5f, 0, 1});
    check_special(rig, "gelu", (float[]){NAN, INFINITY, NAN, 0, 0, 5e-41f, 0, FLT_MAX});
    check_special(rig, "gelu_tanh",
                  (float[]){NAN, INFINITY, NAN, 0, 0, 5e-41f, 0, FLT_MAX});
    check_nan_in_rows(rig);
    check_nan_in_windows(rig);
}

static void nan_and_infinity_pass_as_in_torch(void)
{
    for_each_set(check_specials, 1);
}

static void check_powers(cpu_rig_t *rig)
{
    static const float number[] = {NAN,   INFINITY, -INFINITY, 0,   1,      -1,
                                   2,     -2,       3,         -3,  0.5f,   -0.5f,
                                   1.5f,  -2.5f,    1e-40f,    100, 149,    -149.5f,
                                   1e38f, -1e38f,   16777215,  -7,  1e-30f, 8388609};
    enum { N = sizeof number / sizeof *number };
    operator_case_t c = cpu_case("pow");
    c.shape[0] = PL_SHAPE(N, 1);
    c.shape[1] = PL_SHAPE(N);
    c.forward_only = true;
    operator_run_t run;
    device_results_t got = {0};
    bool same = operator_run_init(&run, &c, NULL) == PL_OK;
    for (int k = 0; k < 2 && same; k++)
        for (int i = 0; i < N; i++)
            run.region[PL_REGION_PARAMS][run.model->tensor[k].offset + i] =
                (double)number[i];
    same = same && cpu_run(rig, &run, &got) == PL_OK;
    for (int i = 0; i < N * N && same; i++) {
        const float y = ((const float *)got.output)[i],
                    want = powf(number[i / N], number[i % N]);
        if (!(y == want || (isnan(y) && isnan(want))
              || fabsf(y - want) <= 2e-7f * fabsf(want) + 2e-45f)) {
            tap_diag("%g to the power of %g is %g, not %g", (double)number[i / N],
                     (double)number[i % N], (double)y, (double)want);
            same = false;
        }
    }
    ok(same, "powers of %d numbers, special ones too, are those of C", N);
    device_results_release(&got);
    operator_run_release(&run);
}

static void powers_equal_those_of_c(void)
{
    for_each_set(check_powers, 1);
}

/* Of a case with a NaN among its first parameter: where the device and the reference have
 * no NaN alike.  Products with a weight or padding of 0 tell: 0 times NaN is NaN on the
 * device, and the reference leaves such products out. */
static bool multiplies_zeros(const operator_case_t *c)
{
    return strstr(c->name, "attention")
           || (strstr(c->name, "conv_transpose") && c->windows.padding[0]);
}

static void check_nan_in_case(cpu_rig_t *rig, const operator_case_t *c)
{
    operator_run_t run;
    device_results_t got = {0};
    if (multiplies_zeros(c) || operator_run_init(&run, c, NULL) != PL_OK)
        return;
    const int64_t n = pl_elements(c->shape[0]);
    run.region[PL_REGION_PARAMS][n / 2] = NAN;
    const bool done = cpu_run(rig, &run, &got) == PL_OK;
    ok(done && device_difference(&run, &got) < 1e-4,
       "%s: a NaN comes through as in the reference", c->name);
    device_results_release(&got);
    operator_run_release(&run);
}

static void check_nan_in_cases(cpu_rig_t *rig)
{
    for (int i = 0; i < operator_case_count; i++)
        check_nan_in_case(rig, &operator_cases[i]);
}

static void a_nan_passes_every_operator(void)
{
    for_each_set(check_nan_in_cases, 1);
}

/* ---- t/data/numerics.json: numbers that cost float32 its digits ---- */

static const pl_tensor_info_t *tensor_of(const operator_run_t *run, const char *name)
{
    for (int i = 0; i < run->model->count; i++)
        if (!strcmp(run->model->tensor[i].name, name))
            return &run->model->tensor[i];
    return NULL;
}

/* Of the largest difference of n numbers, the share of the largest number or of 1. */
static double distance(const json_t *want, const double *wide, const float *narrow)
{
    double worst = 0, largest = 1;
    for (size_t i = 0; i < json_array_size(want); i++) {
        const double w = json_number_value(json_array_get(want, i)),
                     x = wide ? wide[i] : (double)narrow[i];
        largest = fmax(largest, fabs(w));
        worst = tap_larger(worst, fabs(x - w));
    }
    return worst / largest;
}

static double distance_in(const operator_run_t *run, pl_region_t region,
                          const json_t *want, const device_results_t *got)
{
    const char *name;
    json_t *values;
    double worst = 0;
    json_object_foreach((json_t *)want, name, values) {
        const pl_tensor_info_t *t = tensor_of(run, name);
        const double off = !t ? NAN
                           : got
                               ? distance(values, NULL, got->region[region] + t->offset)
                               : distance(values, run->region[region] + t->offset, NULL);
        worst = tap_larger(worst, off);
    }
    return worst;
}

static operator_case_t case_of(const json_t *data)
{
    operator_case_t c = cpu_case(json_string_value(json_object_get(data, "case")));
    const json_t *shapes = json_object_get(data, "shapes"),
                 *index = json_object_get(data, "index");
    for (int k = 0; k < c.params; k++) {
        const json_t *shape = json_array_get(shapes, (size_t)k);
        c.shape[k] = (pl_shape_t){.rank = (int)json_array_size(shape)};
        for (int i = 0; i < c.shape[k].rank; i++)
            c.shape[k].dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
    }
    if (index) {
        c.index = PL_SHAPE((int64_t)json_array_size(index));
        c.classes = c.shape[0].dim[1];
    }
    return c;
}

static bool values_fill(operator_run_t *run, const json_t *data)
{
    const char *name;
    json_t *values, *one;
    size_t i;
    json_object_foreach(json_object_get(data, "values"), name, values) {
        const pl_tensor_info_t *t = tensor_of(run, name);
        if (!t || t->count != (int64_t)json_array_size(values))
            return false;
        json_array_foreach(values, i, one)
            run->region[t->region][t->offset + (int64_t)i] = json_number_value(one);
    }
    json_array_foreach(json_object_get(data, "index"), i, one)
        ((int64_t *)run->index)[i] = json_integer_value(one);
    return true;
}

/* device_difference() leaves in the run what the reference computes. */
static void check_numbers(cpu_rig_t *rig, const char *title, const json_t *data)
{
    const operator_case_t c = case_of(data);
    const json_t *grads = json_object_get(data, "gradients"),
                 *state = json_object_get(data, "state");
    const double max = json_number_value(json_object_get(data, "tolerance"));
    operator_run_t run;
    device_results_t got = {0};
    double off = NAN, off_reference = NAN;
    if (operator_run_init(&run, &c, NULL) == PL_OK && values_fill(&run, data)
        && cpu_run(rig, &run, &got) == PL_OK) {
        off = distance(json_object_get(data, "y"), NULL, got.output);
        off = tap_larger(off, distance_in(&run, PL_REGION_GRADS, grads, &got));
        off = tap_larger(off, distance_in(&run, PL_REGION_STATE, state, &got));
        device_difference(&run, &got);
        off_reference = tap_larger(distance_in(&run, PL_REGION_GRADS, grads, NULL),
                                   distance_in(&run, PL_REGION_STATE, state, NULL));
    }
    ok(off <= max, "%s: as PyTorch within %g, %g", title, off, max);
    ok(off_reference <= 1e-7, "%s: the reference too, within %g", title, off_reference);
    device_results_release(&got);
    operator_run_release(&run);
}

static void check_numerics(cpu_rig_t *rig)
{
    json_t *all = json_load_file(file_of_tests("data/numerics.json"), 0, NULL), *data;
    const char *title;
    ok(json_object_size(all) > 0, "t/data/numerics.json can be read");
    json_object_foreach(all, title, data)
        check_numbers(rig, title, data);
    json_decref(all);
}

static void extreme_numbers_give_the_results_of_torch(void)
{
    for_each_set(check_numerics, 2);
}

/* ---- memory of the host ---- */

static void check_borrowed(cpu_rig_t *rig)
{
    enum { N = 1000 };
    static _Alignas(64) float host[N];
    float data[N], back[N];
    const pl_accelerator_ops_t *cpu = &pl_cpu_accelerator;
    for (int k = 0; k < N; k++)
        data[k] = (float)k, host[k] = 7;
    is_int(cpu->borrow(&rig->cpu, PL_REGION_GRADS, PL_F32, N, host, &rig->err), PL_OK,
           "a region can be the host's memory");
    ok(host[0] == 0 && host[N - 1] == 0, "zeroed");
    cpu->write(&rig->cpu, PL_REGION_GRADS, 0, data, N, &rig->err);
    ok(!memcmp(host, data, sizeof host), "what is written lies there");
    for (int k = 0; k < N; k++)
        host[k] = (float)(N - k);
    cpu->read(&rig->cpu, PL_REGION_GRADS, 0, back, N, &rig->err);
    ok(!memcmp(host, back, sizeof host),
       "and what lies there is read: nothing is copied");
    cpu->region(&rig->cpu, PL_REGION_GRADS, PL_F32, N, &rig->err);
    ok(host[0] == N, "it is the host's when the region is another");
}

static void check_owned(cpu_rig_t *rig)
{
    enum { N = 1000 };
    static _Alignas(64) float host[N + 16];
    float back[N];
    const pl_accelerator_ops_t *cpu = &pl_cpu_accelerator;
    const pl_region_t region = PL_REGION_SLOT0;
    for (int k = 0; k < N; k++)
        host[k] = (float)k;
    cpu->region(&rig->cpu, region, PL_F32, N, &rig->err);
    ok(!cpu->take_ownership(&rig->cpu, region, N - 1, host),
       "memory of another size stays apart");
    ok(!cpu->take_ownership(&rig->cpu, region, N, host + 1), "and what is not aligned");
    ok(cpu->take_ownership(&rig->cpu, region, N, host), "what fits is the region's");
    cpu->write(&rig->cpu, region, 1, host + 7, 1, &rig->err);
    is_int((long)host[1], 7, "what is written lies there");
    cpu->read(&rig->cpu, region, 0, back, N, &rig->err);
    ok(!memcmp(host, back, sizeof back), "beside what was there");
    cpu->region(&rig->cpu, region, PL_F16, N, &rig->err);
    ok(!cpu->take_ownership(&rig->cpu, region, N, host), "halves are to be rounded");
}

static void a_region_may_lie_in_memory_of_the_host(void)
{
    for_each_set(check_borrowed, 1);
    for_each_set(check_owned, 1);
}

int main(void)
{
    run(every_operator_equals_the_reference);
    run(operators_without_gradients_equal_the_reference);
    run(odd_sizes_are_computed_to_their_ends);
    run(random_chains_equal_the_reference);
    run(functions_are_accurate_to_a_few_ulp);
    run(nan_and_infinity_pass_as_in_torch);
    run(powers_equal_those_of_c);
    run(a_nan_passes_every_operator);
    run(extreme_numbers_give_the_results_of_torch);
    run(a_region_may_lie_in_memory_of_the_host);
    return tap_done();
}
