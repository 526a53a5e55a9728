/* device_rig.c - operator cases run on any accelerator, and held to the reference */
#include "device_rig.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerators/reference/reference.h"
#include "base/alloc.h"
#include "tap.h"
#include "tensor/precision.h"

void device_results_release(device_results_t *results)
{
    for (int r = 0; r < PL_REGIONS; r++) {
        pl_free(results->region[r]);
        pl_free(results->wide[r]);
    }
    pl_free(results->output);
    *results = (device_results_t){0};
}

bool device_results_same(const device_results_t *a, const device_results_t *b)
{
    for (int r = 0; r < PL_REGIONS; r++)
        if (a->wide[r]
                ? memcmp(a->wide[r], b->wide[r], a->size[r] * sizeof(double)) != 0
                : memcmp(a->region[r], b->region[r], a->size[r] * sizeof(float)) != 0)
            return false;
    return a->skipped == b->skipped
           && memcmp(a->metrics, b->metrics, sizeof a->metrics) == 0
           && memcmp(a->output, b->output, a->output_bytes) == 0;
}

static bool is_wide(const operator_run_t *run, int region)
{
    return pl_region_dtype(run->model->precision, (pl_region_t)region) == PL_F64;
}

int device_load(device_rig_t *rig, const operator_run_t *run)
{
    int code = PL_OK;
    for (int r = 0; r < PL_REGIONS && code == PL_OK; r++) {
        const size_t n = run->size[r];
        float *data = pl_alloc((n + 1) * sizeof *data);
        for (size_t i = 0; i < n && data; i++)
            data[i] = (float)run->region[r][i];
        code = data ? rig->ops->region(rig->self, (pl_region_t)r,
                                       pl_region_dtype(run->model->precision,
                                                       (pl_region_t)r),
                                       n, &rig->err)
                    : PL_ENOMEM;
        if (code == PL_OK)
            code = rig->ops->write(rig->self, (pl_region_t)r, 0,
                                   is_wide(run, r) ? (void *)run->region[r] : data, n,
                                   &rig->err);
        pl_free(data);
    }
    return code;
}

static const pl_value_t *output_value(const pl_graph_t *g)
{
    int k = 0;
    while (g->fetch[k].kind != PL_FETCH_OUTPUT)
        k++;
    return &g->value[g->fetch[k].value];
}

typedef struct reported {                                   /* by done() */
    pl_replay_t replay;
    pl_error_t *err;
    int times;
} reported_t;

static void on_done(pl_replay_t *replay, const pl_error_t *err)
{
    reported_t *reported = (reported_t *)replay;
    reported->times++;
    *reported->err = err ? *err : (pl_error_t){0};
}

static void results_init(device_results_t *to, const operator_run_t *run)
{
    const pl_value_t *y = output_value(run->graph);
    *to = (device_results_t){.output_bytes = (size_t)pl_elements(y->shape)
                                             * pl_dtype_size(y->dtype)};
    to->output = pl_alloc(to->output_bytes);
    for (int k = 0; k < PL_FIELDS; k++)
        to->metrics[k][0] = to->metrics[k][1] = NAN;
    for (int r = 0; r < PL_REGIONS; r++) {
        to->size[r] = run->size[r];
        if (is_wide(run, r))
            to->wide[r] = pl_alloc((run->size[r] + 1) * sizeof(double));
        else
            to->region[r] = pl_alloc((run->size[r] + 1) * sizeof(float));
    }
}

/* Waits until its end is reported; an earlier replay is collected. */
static int replay_through(device_rig_t *rig, pl_plan_t *plan, reported_t *reported)
{
    reported->times = 0;
    int code = rig->ops->replay(rig->self, plan, &reported->replay, &rig->err);
    while (code == PL_OK && !reported->times && rig->ops->collect) {
        struct pollfd end = {.fd = rig->ops->descriptor(rig->self), .events = POLLIN};
        if (poll(&end, 1, 60000) != 1)
            return pl_fail(&rig->err, PL_EBUG, "the replay does not end");
        rig->ops->collect(rig->self);
    }
    return code;
}

int device_replay_alone(device_rig_t *rig, pl_plan_t *plan, pl_replay_t *replay)
{
    reported_t reported = {.replay = *replay, .err = &rig->err};
    reported.replay.done = on_done;
    rig->err = (pl_error_t){0};
    int code = replay_through(rig, plan, &reported);
    if (code == PL_OK)
        code = reported.times == 1 ? rig->err.code : PL_EBUG;
    *replay = reported.replay;
    return code;
}

int device_replay(device_rig_t *rig, const operator_run_t *run, pl_plan_t *plan,
                  device_results_t *to)
{
    results_init(to, run);
    reported_t reported = {.replay = {.seed = run->seed,
                                      .step = run->step,
                                      .micro_batch = run->micro_batch,
                                      .input = {run->index},
                                      .metrics = to->metrics[0],
                                      .output = {to->output},
                                      .fail_fast = rig->fail_fast,
                                      .done = on_done},
                           .err = &rig->err};
    int code = replay_through(rig, plan, &reported);
    while (code == PL_OK && reported.times == 1 && reported.replay.collective) {
        reported.replay.continues = true;
        reported.replay.collective = 0;
        code = replay_through(rig, plan, &reported);
    }
    if (code == PL_OK)
        code = reported.times == 1 ? rig->err.code : PL_EBUG;
    to->skipped = reported.replay.skipped;
    for (int r = 0; r < PL_REGIONS; r++)
        rig->ops->read(rig->self, (pl_region_t)r, 0,
                       is_wide(run, r) ? (void *)to->wide[r] : to->region[r],
                       run->size[r], NULL);
    return code;
}

int device_run(device_rig_t *rig, const operator_run_t *run, device_results_t *to)
{
    pl_plan_t *plan = NULL;
    *to = (device_results_t){0};
    int code = device_load(rig, run);
    if (code == PL_OK)
        code = rig->ops->compile(rig->self, run->graph, &plan, &rig->err);
    if (code == PL_OK)
        code = device_replay(rig, run, plan, to);
    if (plan)
        rig->ops->discard(rig->self, plan);
    return code;
}

/* ---- Against the reference ---- */

static double difference(double got, double want)
{
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want) ? 0 : INFINITY;
    if (isinf(got) || isinf(want))
        return got == want ? 0 : INFINITY;
    return fabs(got - want) / fmax(1, fabs(want));
}

static double output_difference(const pl_graph_t *g, const device_results_t *got,
                                const double *want)
{
    const pl_value_t *v = output_value(g);
    const int64_t n = pl_elements(v->shape);
    double *y = pl_alloc_array((size_t)n, sizeof *y), worst = 0;
    pl_reference_load(v->dtype, got->output, n, y);
    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, difference(y[i], v->dtype == PL_F32 ? (double)(float)want[i]
                                                                : want[i]));
    pl_free(y);
    return worst;
}

static double regions_difference(const operator_run_t *run, const device_results_t *got)
{
    double worst = 0;
    for (int r = 0; r < PL_REGIONS; r++)
        for (size_t i = 0; i < run->size[r]; i++)
            worst = fmax(worst, difference(got->wide[r] ? got->wide[r][i]
                                                        : (double)got->region[r][i],
                                           run->region[r][i]));
    return worst;
}

double device_difference(operator_run_t *run, const device_results_t *got)
{
    const size_t n = (size_t)pl_elements(output_value(run->graph)->shape);
    double metrics[PL_FIELDS][2], *y = pl_alloc_array(n, sizeof *y);
    for (int k = 0; k < PL_FIELDS; k++)
        metrics[k][0] = metrics[k][1] = NAN;
    pl_reference_replay_t replay = {.input = {run->index},
                                    .seed = run->seed,
                                    .step = run->step,
                                    .micro_batch = run->micro_batch,
                                    .metrics = metrics,
                                    .output = {y}};
    memcpy(replay.region, run->region, sizeof replay.region);
    bool done = pl_reference_replay(run->graph, &replay, NULL) == PL_OK;
    double worst = done && replay.skipped == got->skipped ? regions_difference(run, got)
                                                          : INFINITY;
    for (int k = 0; k < PL_FIELDS; k++)
        for (int i = 0; i < 2; i++)
            worst = fmax(worst, difference(got->metrics[k][i], metrics[k][i]));
    if (!replay.skipped)
        worst = fmax(worst, output_difference(run->graph, got, y));
    pl_free(y);
    return worst;
}

double device_case_off(device_rig_t *rig, const operator_case_t *of,
                       const char *precision)
{
    operator_case_t c = *of;
    operator_run_t run;
    device_results_t got = {0};
    rig->err = (pl_error_t){0};
    c.precision = device_precision(precision);
    c.accumulate = c.accumulate || rig->accumulates;
    c.forward_only = c.forward_only || rig->evaluates;
    if (operator_run_init(&run, &c, &rig->err) != PL_OK)
        return INFINITY;
    pl_reference_round(c.precision->params, run.region[PL_REGION_PARAMS],
                       (int64_t)run.size[PL_REGION_PARAMS]);
    const int code = device_run(rig, &run, &got);
    const double off = code == PL_OK ? device_difference(&run, &got) : INFINITY;
    device_results_release(&got);
    operator_run_release(&run);
    return off;
}

void *device_stand_in(const char *file, const char *symbol)
{
    char path[PATH_MAX];
    const char *top = getenv("top_builddir");
    snprintf(path, sizeof path, "%s/t/stand_in/.libs/%s", top ? top : ".", file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        tap_diag("%s", dlerror());
    return library ? dlsym(library, symbol) : NULL;
}

const pl_precision_ops_t *device_precision(const char *name)
{
    for (const pl_registration_t *r = pl_precision_components; r->role; r++)
        if (!strcmp(((const pl_component_t *)r->table)->name, name))
            return r->table;
    return NULL;
}

bool device_is_right(device_rig_t *rig, const operator_case_t *of, const char *precision,
                     double tolerance)
{
    const double off = device_case_off(rig, of, precision);
    if (off < tolerance)
        return true;
    tap_diag("%s, %s: off by %g: %s", of->name, precision, off, rig->err.text);
    return false;
}

void device_check(device_rig_t *rig, const char *precision, double tolerance,
                  const char *word, int every)
{
    const char *only = getenv("CASE");
    int found = 0, checked = 0, wrong = 0;
    for (int i = 0; i < operator_case_count; i++)
        if ((!only || strstr(operator_cases[i].name, only))
            && (!word || strstr(operator_cases[i].name, word)) && found++ % every == 0) {
            checked++;
            wrong += !device_is_right(rig, &operator_cases[i], precision, tolerance);
        }
    ok((checked > 0 || only) && wrong == 0, "%s%s%s in %s: of %d cases %d are wrong",
       word ? word : "operators",
       rig->accumulates ? ", of several batches"
       : rig->evaluates ? ", without gradients"
                        : "",
       every > 1 ? ", some" : "", precision, checked, wrong);
}
