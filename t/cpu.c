/* cpu.c - tests of what the CPU accelerator computes, on every instruction set there is
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu_rig.h"
#include "tap.h"

/* ---- Every case, every set, one and two threads ---- */

static void each_set(void (*check)(cpu_rig_t *rig), int most_threads)
{
    for (int k = 0; k < CPU_SETS; k++)
        for (int threads = 1; threads <= most_threads; threads++) {
            cpu_rig_t rig;
            tap_diag("%s, %d threads", cpu_sets[k], threads);
            if (cpu_rig_open(&rig, cpu_sets[k], threads))
                check(&rig);
            else
                tap_skip("%s", rig.err.text);
            cpu_rig_close(&rig);
        }
}

static void check_case(cpu_rig_t *rig, const operator_case_t *c, double tolerance,
                       const char *title)
{
    operator_run_t run;
    cpu_results_t got = {0};
    pl_error_t err = {0};
    if (!ok(operator_run_init(&run, c, &err) == PL_OK, "%s can be described", title)) {
        tap_diag("%s", err.text);
        return;
    }
    int code = cpu_run(rig, &run, &got);
    double worst = code == PL_OK ? cpu_difference(&run, &got) : INFINITY;
    if (!ok(worst < tolerance, "%s is what the reference computes", title))
        tap_diag("off by %g: %s", worst, rig->err.text);
    cpu_results_release(&got);
    operator_run_release(&run);
}

static void check_all(cpu_rig_t *rig)
{
    for (int i = 0; i < operator_case_count; i++)
        check_case(rig, &operator_cases[i], 1e-5, operator_cases[i].name);
}

static void every_operator_is_what_the_reference_computes(void)
{
    each_set(check_all, 2);
}

/* ---- Odd sizes: ends of vectors, of blocks and of what threads share ---- */

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

static void check_sizes(cpu_rig_t *rig)
{
    static const int64_t sizes[] = {1, 3, 17, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_rows(rig, sizes[i]);
        check_elements(rig, sizes[i]);
    }
    check_elements(rig, 12345);             /* several blocks for each of two threads */
    check_attention(rig, "attention, causal", 17, 17);
    check_attention(rig, "attention, causal", 70, 16);
    check_attention(rig, "attention", 33, 64);
    check_attention(rig, "attention, dropout", 61, 3);
    check_pictures(rig, 1, 17);
    check_pictures(rig, 17, 3);
    check_pictures(rig, 32, 16);
}

static void odd_sizes_are_computed_to_their_ends(void)
{
    each_set(check_sizes, 2);
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

static double worst_ulps(const function_t *f, const float *x, const float *y, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        const double want = f->exact((double)x[i]);
        const float size = fabsf((float)want);
        const double ulp = fmax((double)(nextafterf(size, INFINITY) - size), 0x1p-149);
        worst = fmax(worst, fabs((double)y[i] - want) / ulp);
    }
    return worst;
}

static void check_functions(cpu_rig_t *rig)
{
    static const function_t functions[] = {
        {"exp", exp, -103, 88.7, 2},      {"exp", exp, -1, 1, 2},
        {"log", log, 1e-40, 1e-37, 2},    {"log", log, 0.5, 2, 2},
        {"log", log, 1, 1e30, 2},         {"tanh", tanh, -1, 1, 3},
        {"tanh", tanh, -12, 12, 3},       {"sigmoid", sigmoid, -80, 20, 4},
        {"sqrt", sqrt, 1e-40, 1e30, 0.51},
    };
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        const function_t *f = &functions[k];
        operator_case_t c = cpu_case(f->name);
        c.shape[0] = PL_SHAPE(20011);
        c.low = f->low;
        c.high = f->high;
        operator_run_t run;
        cpu_results_t got = {0};
        bool done = operator_run_init(&run, &c, NULL) == PL_OK &&
                    cpu_run(rig, &run, &got) == PL_OK;
        double worst = done ? worst_ulps(f, got.region[PL_REGION_PARAMS], got.output,
                                         20011)
                            : INFINITY;
        ok(worst < f->ulps, "%s from %g to %g is within %.2f ulp", f->name, f->low,
           f->high, worst);
        cpu_results_release(&got);
        operator_run_release(&run);
    }
}

static void functions_are_accurate_to_a_few_ulp(void)
{
    each_set(check_functions, 1);
}

/* ---- NaN, infinities, zeros and denormals, as PyTorch has them ---- */

#define SPECIALS 8
static const float specials[SPECIALS] = {NAN,   INFINITY, -INFINITY,      0.0f,
                                         -0.0f, 1e-40f,   -FLT_MAX, FLT_MAX};

static void check_special(cpu_rig_t *rig, const char *name, const float want[SPECIALS])
{
    operator_case_t c = cpu_case(name);
    c.shape[0] = PL_SHAPE(3, SPECIALS);     /* more than one vector of each set */
    c.forward_only = true;
    operator_run_t run;
    cpu_results_t got = {0};
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
    cpu_results_release(&got);
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
    cpu_results_t got = {0};
    bool done = operator_run_init(&run, &c, NULL) == PL_OK;
    for (int64_t i = 0; i < pl_elements(shape) && done; i++)
        run.region[PL_REGION_PARAMS][i] = (double)x[i];
    done = done && cpu_run(rig, &run, &got) == PL_OK;
    if (done)
        memcpy(y, got.output, got.output_bytes);
    cpu_results_release(&got);
    operator_run_release(&run);
    return done;
}

static void check_nan_in_rows(cpu_rig_t *rig)
{
    const float x[2][4] = {{1, NAN, 3, 2}, {1, INFINITY, 3, -INFINITY}};
    float y[2][4], most[2];
    int32_t index[2];
    ok(output_of(rig, "softmax", PL_SHAPE(2, 4), x[0], y[0]) && isnan(y[0][0]) &&
           isnan(y[0][3]),
       "a row with a NaN has a softmax of NaN");
    ok(output_of(rig, "max, last axis", PL_SHAPE(2, 4), x[0], most) && isnan(most[0]) &&
           most[1] == INFINITY,
       "the largest of a row with a NaN is NaN");
    ok(output_of(rig, "argmax", PL_SHAPE(2, 4), x[0], (float *)index) && index[0] == 1 &&
           index[1] == 1,
       "and it is at the NaN");
}

static void check_nan_in_windows(cpu_rig_t *rig)
{
    const float x[16] = {1, NAN, 5, 6, 2, 3, 7, 8, -INFINITY, -INFINITY, 0, -1,
                         -INFINITY, -INFINITY, -2, -3};
    float y[4];
    ok(output_of(rig, "max_pool2d", PL_SHAPE(1, 1, 4, 4), x, y) && isnan(y[0]) &&
           y[1] == 8 && y[2] == -INFINITY && y[3] == 0,
       "a pool of NaN is NaN, of negative infinities is one");
}

static void check_specials(cpu_rig_t *rig)
{
    check_special(rig, "relu",
                  (float[]){NAN, INFINITY, 0, 0, 0, 1e-40f, 0, FLT_MAX});
    check_special(rig, "exp", (float[]){NAN, INFINITY, 0, 1, 1, 1, 0, INFINITY});
    check_special(rig, "log",
                  (float[]){NAN, INFINITY, NAN, -INFINITY, -INFINITY, -92.1034037f, NAN,
                            88.7228391f});
    check_special(rig, "sqrt",
                  (float[]){NAN, INFINITY, NAN, 0, 0, 9.99997e-21f, NAN, 1.84467435e19f});
    check_special(rig, "tanh", (float[]){NAN, 1, -1, 0, 0, 1e-40f, -1, 1});
    check_special(rig, "sigmoid", (float[]){NAN, 1, 0, 0.5f, 0.5f, 0.5f, 0, 1});
    check_special(rig, "gelu",
                  (float[]){NAN, INFINITY, NAN, 0, 0, 5e-41f, 0, FLT_MAX});
    check_special(rig, "gelu_tanh",
                  (float[]){NAN, INFINITY, NAN, 0, 0, 5e-41f, 0, FLT_MAX});
    check_nan_in_rows(rig);
    check_nan_in_windows(rig);
}

static void nan_and_infinity_pass_as_in_torch(void)
{
    each_set(check_specials, 1);
}

int main(void)
{
    run(every_operator_is_what_the_reference_computes);
    run(odd_sizes_are_computed_to_their_ends);
    run(functions_are_accurate_to_a_few_ulp);
    run(nan_and_infinity_pass_as_in_torch);
    return tap_done();
}
