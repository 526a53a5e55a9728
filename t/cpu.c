/* cpu.c - tests of the CPU accelerator: every operator case against the reference interpreter */
#include <math.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "accelerators/cpu/device.h"
#include "base/alloc.h"
#include "operator_cases.h"
#include "reference.h"
#include "tap.h"

/* ---- A rig: one device, opened as a test wants it ---- */

typedef struct rig {
    pl_cpu_t cpu;
    pl_device_info_t info;
    pl_error_t err;
} rig_t;

static const char *const all_sets[] = {"portable", "avx2", "avx512"};

static bool rig_open(rig_t *rig, const char *instructions, int threads)
{
    *rig = (rig_t){.cpu = {.threads = threads, .instructions = instructions}};
    return pl_cpu_accelerator.open(&rig->cpu, &rig->info, &rig->err) == PL_OK;
}

static void rig_close(rig_t *rig)
{
    pl_cpu_accelerator.close(&rig->cpu);
}

static pl_error_t last_error;
static int times_done;

static void on_done(pl_replay_t *replay, const pl_error_t *err)
{
    (void)replay;
    times_done++;
    last_error = err ? *err : (pl_error_t){0};
}

/* ---- An operator case on the device ---- */

typedef struct results {
    float *region[PL_REGIONS];
    double figures[PL_FIELDS][2];
    void *output;                                           /* y, in its own type */
    bool guarded;
} results_t;

static void results_release(results_t *r)
{
    for (int k = 0; k < PL_REGIONS; k++)
        pl_free(r->region[k]);
    pl_free(r->output);
}

static int load_regions(rig_t *rig, const operator_run_t *run)
{
    int code = PL_OK;
    for (int r = 0; r < PL_REGIONS && code == PL_OK; r++) {
        float *data = pl_alloc((run->size[r] + 1) * sizeof *data);
        for (size_t i = 0; i < run->size[r]; i++)
            data[i] = (float)run->region[r][i];
        code = pl_cpu_accelerator.region(&rig->cpu, (pl_region_t)r, run->size[r], &rig->err);
        if (code == PL_OK)
            code = pl_cpu_accelerator.write(&rig->cpu, (pl_region_t)r, 0, data, run->size[r], &rig->err);
        pl_free(data);
    }
    return code;
}

static int32_t output_value(const pl_graph_t *g)
{
    for (int i = 0; i < g->fetch_count; i++)
        if (g->fetch[i].kind == PL_FETCH_OUTPUT)
            return g->fetch[i].value;
    return -1;
}

static size_t output_bytes(const pl_graph_t *g)
{
    const pl_value_t *v = &g->value[output_value(g)];
    return (size_t)pl_elements(v->shape) * pl_dtype_size(v->dtype);
}

static int replay_case(rig_t *rig, const operator_run_t *run, pl_plan_t *plan, results_t *to)
{
    *to = (results_t){.output = pl_alloc(output_bytes(run->graph))};
    for (int k = 0; k < PL_FIELDS; k++)
        to->figures[k][0] = to->figures[k][1] = NAN;
    pl_replay_t replay = {.seed = run->seed, .step = run->step, .shard = run->shard, .input = {run->index},
                          .figures = to->figures[0], .output = {to->output}, .done = on_done};
    int code = pl_cpu_accelerator.replay(&rig->cpu, plan, &replay, &rig->err);
    if (code == PL_OK && last_error.code)
        code = last_error.code;
    to->guarded = replay.guarded;
    for (int r = 0; r < PL_REGIONS; r++) {
        to->region[r] = pl_alloc((run->size[r] + 1) * sizeof(float));
        pl_cpu_accelerator.read(&rig->cpu, (pl_region_t)r, 0, to->region[r], run->size[r], NULL);
    }
    return code;
}

/* Compiles, replays, discards. */
static int run_case(rig_t *rig, const operator_run_t *run, results_t *to)
{
    pl_plan_t *plan = NULL;
    *to = (results_t){0};
    int code = load_regions(rig, run);
    if (code == PL_OK)
        code = pl_cpu_accelerator.compile(&rig->cpu, run->graph, &plan, &rig->err);
    if (code == PL_OK)
        code = replay_case(rig, run, plan, to);
    if (plan)
        pl_cpu_accelerator.discard(&rig->cpu, plan);
    return code;
}

/* ---- Against the reference ---- */

static double difference(double got, double want)
{
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want) ? 0 : INFINITY;
    return fabs(got - want) / fmax(1, fabs(want));
}

static double worst_of(const float *got, const double *want, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, difference((double)got[i], want[i]));
    return worst;
}

static double compare_output(const pl_graph_t *g, const results_t *got, const double *want)
{
    const pl_value_t *v = &g->value[output_value(g)];
    const int64_t n = pl_elements(v->shape);
    double *y = pl_alloc_array((size_t)n, sizeof *y), worst = 0;
    reference_load(v->dtype, got->output, n, y);
    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, difference(y[i], want[i]));
    pl_free(y);
    return worst;
}

/* Runs the reference on the same start values, which it changes, and compares everything. */
static double compare(operator_run_t *run, const results_t *got)
{
    double figures[PL_FIELDS][2], worst = 0;
    double *y = pl_alloc_array((size_t)pl_elements(run->graph->value[output_value(run->graph)].shape), sizeof *y);
    for (int k = 0; k < PL_FIELDS; k++)
        figures[k][0] = figures[k][1] = NAN;
    reference_replay_t replay = {.input = {run->index}, .seed = run->seed, .step = run->step, .shard = run->shard,
                                 .figures = figures, .output = {y}};
    memcpy(replay.region, run->region, sizeof replay.region);
    if (reference_replay(run->graph, &replay, NULL) != PL_OK || replay.guarded != got->guarded)
        worst = INFINITY;
    for (int r = 0; r < PL_REGIONS; r++)
        worst = fmax(worst, worst_of(got->region[r], run->region[r], run->size[r]));
    for (int k = 0; k < PL_FIELDS; k++)
        for (int i = 0; i < 2; i++)
            worst = fmax(worst, difference(got->figures[k][i], figures[k][i]));
    if (!replay.guarded)
        worst = fmax(worst, compare_output(run->graph, got, y));
    pl_free(y);
    return worst;
}

static void check_case(rig_t *rig, const operator_case_t *c)
{
    operator_run_t run;
    results_t got;
    pl_error_t err = {0};
    if (operator_run_init(&run, c, &err) != PL_OK) {
        ok(false, "%s can be described: %s", c->name, err.text);
        return;
    }
    int code = run_case(rig, &run, &got);
    if (ok(code == PL_OK, "%s runs", c->name)) {
        double worst = compare(&run, &got);
        if (!ok(worst < 2e-5, "%s is what the reference computes", c->name))
            tap_diag("differs by %g (%s, %d threads)", worst, rig->cpu.kernels->name, rig->cpu.thread_count);
    } else {
        tap_diag("%s", last_error.code ? last_error.text : rig->err.text);
    }
    results_release(&got);
    operator_run_release(&run);
}

static void every_operator_is_what_the_reference_computes(void)
{
    for (size_t k = 0; k < sizeof all_sets / sizeof *all_sets; k++)
        for (int threads = 1; threads <= 2; threads++) {
            rig_t rig;
            if (!rig_open(&rig, all_sets[k], threads)) {
                tap_skip("%s: %s", all_sets[k], rig.err.text);
                rig_close(&rig);
                continue;
            }
            tap_diag("%s, %d threads", all_sets[k], threads);
            for (int i = 0; i < operator_case_count; i++)
                check_case(&rig, &operator_cases[i]);
            rig_close(&rig);
        }
}

int main(void)
{
    run(every_operator_is_what_the_reference_computes);
    return tap_done();
}
