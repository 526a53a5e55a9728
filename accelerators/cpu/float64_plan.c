/* float64_plan.c - plans in float64, for 64-true, which the reference's plain loops run
 *
 * A plan in float64 is accurate, not fast: one thread runs operation after operation, and
 * each value has its own memory.  Its regions are float64, too. */
#include "accelerators/cpu/device.h"

#include <string.h>

#include "accelerators/plan/rewrite.h"
#include "accelerators/reference/reference.h"
#include "base/alloc.h"
#include "base/error.h"

struct pl_float64_plan {
    pl_graph_t graph;                     /* a copy */
    pl_reference_run_t *run;              /* a replay that waits at a collective [none] */
};

static int check_regions(const pl_cpu_t *cpu, const pl_graph_t *g, pl_error_t *err)
{
    for (int32_t i = 0; i < g->value_count; i++) {
        const pl_value_t *v = &g->value[i];
        if (v->source != PL_FROM_REGION)
            continue;
        if (cpu->region_dtype[v->index] != PL_F64
            || (size_t)(v->offset + pl_elements(v->shape)) > cpu->region_count[v->index])
            return pl_fail(err, PL_ESTATE,
                           "the graph needs %lld elements of float64 in region %d: "
                           "allocate them before compiling",
                           (long long)(v->offset + pl_elements(v->shape)), v->index);
    }
    return PL_OK;
}

pl_float64_plan_t *pl_float64_plan_new(const pl_cpu_t *cpu, const pl_graph_t *g,
                                       pl_error_t *err)
{
    pl_float64_plan_t *wide = pl_alloc(sizeof *wide);
    if (!wide) {
        pl_no_memory(err);
        return NULL;
    }
    int code = pl_graph_copy(&wide->graph, g, err);
    if (code == PL_OK)
        code = check_regions(cpu, g, err);
    if (code == PL_OK)
        code = pl_reference_check(g, err);
    if (code == PL_OK)
        return wide;
    pl_float64_plan_free(wide);
    return NULL;
}

void pl_float64_plan_free(pl_float64_plan_t *wide)
{
    if (wide) {
        pl_reference_drop(wide->run);
        pl_graph_copy_release(&wide->graph);
    }
    pl_free(wide);
}

int pl_float64_plan_run(const pl_cpu_t *cpu, pl_float64_plan_t *wide, pl_replay_t *replay,
                        pl_error_t *err)
{
    const pl_graph_t *g = &wide->graph;
    const pl_value_t *output[PL_FIELDS];    /* fetched tensors, which the host receives in
                                               their own types */
    int outputs = 0;
    pl_reference_replay_t run = {.seed = replay->seed,
                                 .step = replay->step,
                                 .micro_batch = replay->micro_batch,
                                 .metrics = (double(*)[2])replay->metrics};
    int code = check_regions(cpu, g, err);
    if (code != PL_OK)
        return code;
    for (int i = 0; i < g->fetch_count; i++)
        if (g->fetch[i].kind == PL_FETCH_OUTPUT)
            output[outputs++] = &g->value[g->fetch[i].value];
    for (int r = 0; r < PL_REGIONS; r++)
        run.region[r] = (double *)(void *)cpu->region[r].data;
    memcpy(run.scalar, replay->scalar, sizeof run.scalar);
    memcpy(run.input, replay->input, sizeof run.input);
    for (int k = 0; k < outputs && code == PL_OK; k++) {
        const size_t n = (size_t)pl_elements(output[k]->shape);
        if (replay->output[k] && !(run.output[k] = pl_alloc_array(n, sizeof(double))))
            code = pl_no_memory(err);
    }
    if (code == PL_OK && !replay->continues) {
        pl_reference_drop(wide->run);
        wide->run = NULL;
    }
    if (code == PL_OK)
        code = pl_reference_replay_part(g, &run, &wide->run, err);
    replay->collective = run.collective;
    replay->skipped = run.skipped;
    for (int k = 0; k < outputs && code == PL_OK && !run.collective; k++)
        if (run.output[k])
            pl_reference_store(output[k]->dtype, run.output[k],
                               pl_elements(output[k]->shape), replay->output[k]);
    for (int k = 0; k < PL_FIELDS; k++)
        pl_free(run.output[k]);
    return code;
}
