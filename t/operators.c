/* operators.c - tests of the operators: every case against finite differences and
 * against PyTorch */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "formula.h"
#include "operator_cases.h"
#include "accelerators/reference/reference.h"
#include "tap.h"

/* The loss of a case's step with the parameters as they are in the run. */
static double loss_of(operator_run_t *run)
{
    double metrics[PL_FIELDS][2] = {{NAN}};
    pl_reference_replay_t replay = {.input = {run->index},
                                    .seed = run->seed,
                                    .step = run->step,
                                    .micro_batch = run->micro_batch,
                                    .metrics = metrics};
    memcpy(replay.region, run->region, sizeof replay.region);
    pl_error_t err;
    if (pl_reference_replay(run->graph, &replay, &err) != PL_OK) {
        tap_diag("%s", err.text);
        return NAN;
    }
    return metrics[0][0];
}

/* Of up to a hundred parameters, spread over all of them. */
static double worst_difference(operator_run_t *run, const double *grads)
{
    double worst = 0;
    const size_t size = run->size[PL_REGION_PARAMS], every = size / 100 + 1;
    for (size_t i = 0; i < size; i += every) {
        double *x = &run->region[PL_REGION_PARAMS][i], keep = *x, h = 1e-5;
        *x = keep + h;
        double above = loss_of(run);
        *x = keep - h;
        double below = loss_of(run), slope = (above - below) / (2 * h);
        *x = keep;
        worst = tap_larger(worst, fabs(slope - grads[i]) / fmax(1, fabs(slope)));
    }
    return worst;
}

static void check_differences(const operator_case_t *c)
{
    operator_run_t run;
    pl_error_t err = {0};
    if (!ok(operator_run_init(&run, c, &err) == PL_OK, "%s can be described", c->name)) {
        tap_diag("%s", err.text);
        return;
    }
    size_t bytes = run.size[PL_REGION_GRADS] * sizeof(double);
    double *grads = pl_alloc(bytes), largest = 0;
    loss_of(&run);
    memcpy(grads, run.region[PL_REGION_GRADS], bytes);
    for (size_t i = 0; i < run.size[PL_REGION_PARAMS]; i++)
        largest = tap_larger(largest, fabs(grads[i]));
    double worst = worst_difference(&run, grads);
    if (!ok(worst < 1e-6 && largest > 1e-3 && isfinite(largest),
            "%s has the gradient that differences show", c->name))
        tap_diag("off by %g, the largest gradient is %g", worst, largest);
    pl_free(grads);
    operator_run_release(&run);
}

static void every_gradient_equals_finite_differences(void)
{
    for (int i = 0; i < operator_case_count; i++)
        if (!operator_cases[i].forward_only && !operator_cases[i].ties)
            check_differences(&operator_cases[i]);
}

static void every_operator_has_a_case(void)
{
    bool seen[PL_OPCODES] = {false};
    for (int i = 0; i < operator_case_count; i++) {
        operator_run_t run;
        if (operator_run_init(&run, &operator_cases[i], NULL) != PL_OK)
            continue;
        for (int k = 0; k < run.graph->op_count; k++)
            seen[run.graph->op[k].code] = true;
        operator_run_release(&run);
    }
    for (int code = 0; code < PL_OPCODES; code++)
        ok(seen[code], "there is a case with %s in t/operator_cases.c",
           pl_operators[code].name);
}

/* ---- t/data/operators.json ---- */

static bool is_digest(const double *values, int64_t count, const json_t *want)
{
    const digest_t w = {json_number_value(json_array_get(want, 0)),
                        json_number_value(json_array_get(want, 1)),
                        json_number_value(json_array_get(want, 2))};
    return json_array_size(want) == 3
           && digest_distance(digest_of(values, count), w, 1e-3) < 1e-6;
}

/* The tensors of a region against a list of digests, in their order. */
static bool are_digests(const operator_run_t *run, pl_region_t of, const double *region,
                        const json_t *want)
{
    size_t k = 0;
    for (int i = 0; i < run->model->count && k < json_array_size(want); i++) {
        const pl_tensor_info_t *t = &run->model->tensor[i];
        if (t->region == of
            && !is_digest(region + t->offset, t->count, json_array_get(want, k++))) {
            tap_diag("%s is different", t->name);
            return false;
        }
    }
    return k == json_array_size(want);
}

static void check_against_torch(const operator_case_t *c, const json_t *want)
{
    operator_run_t run;
    if (!ok(operator_run_init(&run, c, NULL) == PL_OK, "%s can be described", c->name))
        return;
    const pl_fetch_t *fetch = &run.graph->fetch[run.graph->fetch_count - 1];
    const int64_t count = pl_elements(run.graph->value[fetch->value].shape);
    double *y = pl_alloc_array((size_t)count, sizeof *y);
    pl_reference_replay_t replay = {.input = {run.index}, .output = {y}};
    memcpy(replay.region, run.region, sizeof replay.region);
    bool same = pl_reference_replay(run.graph, &replay, NULL) == PL_OK
                && is_digest(y, count, json_object_get(want, "y"))
                && are_digests(&run, PL_REGION_PARAMS, run.region[PL_REGION_GRADS],
                               json_object_get(want, "gradients"));
    if (json_object_get(want, "state"))
        same = same
               && are_digests(&run, PL_REGION_STATE, run.region[PL_REGION_STATE],
                              json_object_get(want, "state"));
    ok(same, "%s gives what PyTorch gives", c->name);
    pl_free(y);
    operator_run_release(&run);
}

/* Cases that t/data/operators.json need not have. */
static const char *const without_result[] = {
    /* random numbers: PyTorch draws others */
    "dropout",
    "rand and randn",
    "attention, dropout",
    "attention, mask, causal, dropout",
    /* whose gradient it is where values tie is ours to say; no value is new */
    "relu, zeros",
    "max, ties",
    /* constants and metrics; t/metrics.c holds metrics to scikit-learn's */
    "softmax, one class",
    "argmax",
    "argmax, ties",
    "accuracy",
    "accuracy, ties, some ignored",
    "accuracy of the first three",
    "accuracy of the first two, ties",
    "confusion",
    "confusion, ties, some ignored",
    "score_bins",
    "score_bins, two classes, out of range",
    "r2",
    "mae",
    /* other stages: whole runs show them */
    "dropout, when validating",
    "layer_norm, when validating",
    "batch_norm, when validating",
    /* parts of optimizer steps and of precisions: t/optimizers.c and t/precision.c hold
       those to PyTorch */
    "norm",
    "norm, blocks",
    "norm, large",
    "cast, bfloat16",
    "cast, float16",
    "assign",
    "assign, added",
    "guard, finite",
    "guard, not finite",
    /* PyTorch has no such operator */
    "a user's operator",
    "a user's operator, three axes",
    "a user's operator, long",
    /* put together of operators that have one */
    "linear, gelu_tanh",
    "linear, gelu_tanh, ragged",
    "linear, tanh",
    "linear, gelu_tanh, linear",
    "linear, relu, linear",
    "embedding, linear of its table",
    /* PyTorch has no operation for it */
    "lstm, rows without steps",
    "gru, rows without steps",
    "block_norms",
    "block_norms, wide",
    "block_norms, of one block",
    /* of another size than a case that has one */
    "attention, width 8, heads cut out",
    "attention, four batches of four heads",
    "attention, width 16",
    "attention, width 24",
    "embedding, many positions",
};

static bool needs_result(const char *name)
{
    for (size_t i = 0; i < sizeof without_result / sizeof *without_result; i++)
        if (!strcmp(without_result[i], name))
            return false;
    return true;
}

static void results_equal_torch(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/t/data/operators.json",
             getenv("top_srcdir") ? getenv("top_srcdir") : "..");
    json_error_t why;
    json_t *data = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!ok(data != NULL, "t/data/operators.json can be read"))
        return;
    size_t found = 0, excused = 0;
    for (int i = 0; i < operator_case_count; i++) {
        const char *name = operator_cases[i].name;
        const json_t *want = json_object_get(data, name);
        if (want)
            check_against_torch(&operator_cases[i], want);
        if (!want == needs_result(name))
            ok(false, "%s has %s result of PyTorch", name, want ? "no" : "a");
        found += want != NULL;
        excused += !needs_result(name);
    }
    is_int(found, json_object_size(data), "every result of PyTorch has its case");
    is_int(found + excused, operator_case_count, "and every case a result, but %zu",
           excused);
    is_int(excused, sizeof without_result / sizeof *without_result,
           "each of which there is");
    json_decref(data);
}

int main(void)
{
    run(every_operator_has_a_case);
    run(every_gradient_equals_finite_differences);
    run(results_equal_torch);
    return tap_done();
}
