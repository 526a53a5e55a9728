/* cpu_step.c - one training step of a described model on the CPU */
#include "cpu_step.h"

#include "base/alloc.h"
#include "base/random.h"
#include "tap.h"
#include "tensor/precision.h"

static const pl_field_t fields[] = {{"x", PL_F32, {1, {CPU_STEP_WIDTH}}}};

pl_graph_t *cpu_step_graph(pl_model_t *model, void (*describe)(pl_graph_t *g),
                           const pl_precision_ops_t *precision, pl_error_t *err)
{
    pl_graph_t *g = pl_graph_new(model, PL_TRAIN, fields, 1, CPU_STEP_BATCH, err);
    describe(g);
    int code = pl_graph_gradients(g, CPU_STEP_BATCH, false, err);
    if (code == PL_OK)
        code = pl_graph_cast(g, precision, err);
    pl_graph_drop_outputs(g);
    pl_graph_prune(g);
    return g;
}

static int region_fill(cpu_rig_t *rig, const pl_model_t *model, pl_region_t region,
                       size_t count)
{
    float *data = pl_alloc_array(count, sizeof *data);
    if (region != PL_REGION_GRADS)
        pl_model_init(model, region, 7, PL_F32, data);
    int code = pl_cpu_accelerator.region(&rig->cpu, region, PL_F32, count, &rig->err);
    if (code == PL_OK)
        code = pl_cpu_accelerator.write(&rig->cpu, region, 0, data, count, &rig->err);
    pl_free(data);
    return code;
}

static int compute(cpu_rig_t *rig, const pl_model_t *model, const pl_graph_t *g,
                   cpu_step_t *to)
{
    pl_plan_t *plan = NULL;
    float x[CPU_STEP_BATCH * CPU_STEP_WIDTH];
    for (int i = 0; i < CPU_STEP_BATCH * CPU_STEP_WIDTH; i++)
        x[i] = (float)(pl_mix(3, (uint64_t)i) % 2001) / 1000 - 1;
    to->params = model->params + 2;
    to->states = model->state;
    int code = region_fill(rig, model, PL_REGION_PARAMS, (size_t)model->params);
    if (code == PL_OK)
        code = region_fill(rig, model, PL_REGION_GRADS, (size_t)to->params);
    if (code == PL_OK && to->states)
        code = region_fill(rig, model, PL_REGION_STATE, (size_t)to->states);
    if (code == PL_OK)
        code = pl_cpu_accelerator.compile(&rig->cpu, g, &plan, &rig->err);
    if (code != PL_OK)
        return code;
    device_rig_t device = {.ops = &pl_cpu_accelerator, .self = &rig->cpu};
    pl_replay_t replay = {.seed = 11, .step = 5, .input = {x}, .metrics = to->metrics};
    to->arena = rig->cpu.arena.bytes;
    code = device_replay_alone(&device, plan, &replay);
    to->grads = pl_alloc_array((size_t)to->params, sizeof *to->grads);
    to->state = pl_alloc_array((size_t)to->states + 1, sizeof *to->state);
    if (code == PL_OK)
        code = pl_cpu_accelerator.read(&rig->cpu, PL_REGION_GRADS, 0, to->grads,
                                       (size_t)to->params, &rig->err);
    if (code == PL_OK && to->states)
        code = pl_cpu_accelerator.read(&rig->cpu, PL_REGION_STATE, 0, to->state,
                                       (size_t)to->states, &rig->err);
    return code;
}

bool cpu_step_run(void (*describe)(pl_graph_t *g), const pl_precision_ops_t *precision,
                  cpu_step_t *to)
{
    cpu_rig_t rig;
    pl_model_t *model = pl_model_new(NULL);
    *to = (cpu_step_t){.grads = NULL};
    bool done = cpu_rig_open(&rig, "auto", 1);
    pl_graph_t *g = cpu_step_graph(model, describe, precision, &rig.err);
    done = done && !rig.err.code && compute(&rig, model, g, to) == PL_OK;
    if (!done)
        tap_diag("%s", rig.err.text);
    pl_graph_free(g);
    pl_model_free(model);
    cpu_rig_close(&rig);
    return done;
}

void cpu_step_release(cpu_step_t *step)
{
    pl_free(step->grads);
    pl_free(step->state);
}
