/* cpu_trainer.c - a training case on a CPU device, step by step */
#include "cpu_trainer.h"

#include <string.h>

#include "base/alloc.h"

pl_error_t cpu_told;

void cpu_on_done(pl_replay_t *replay, const pl_error_t *err)
{
    (void)replay;
    cpu_told = err ? *err : (pl_error_t){0};
}

static int fill_regions(cpu_trainer_t *r)
{
    const pl_model_t *model = r->t.model;
    const size_t n = (size_t)(model->params + model->state) + 2;
    double *from = pl_alloc_array(n, sizeof *from);
    float *to = pl_alloc_array(n, sizeof *to);
    int code = PL_OK;
    for (int k = 0; k < PL_REGIONS && code == PL_OK; k++) {
        memset(from, 0, n * sizeof *from);
        training_fill(&r->t, (pl_region_t)k, from);
        for (size_t i = 0; i < n; i++)
            to[i] = (float)from[i];
        if (k == PL_REGION_SCALING && r->t.of->scaling)
            to[PL_SCALING_FACTOR] = (float)r->t.of->scaling->init_scale;
        code = pl_cpu_accelerator.region(&r->rig.cpu, (pl_region_t)k, n, &r->rig.err);
        if (code == PL_OK)
            code = pl_cpu_accelerator.write(&r->rig.cpu, (pl_region_t)k, 0, to, n,
                                            &r->rig.err);
    }
    pl_free(from);
    pl_free(to);
    return code;
}

int cpu_trainer_open(cpu_trainer_t *r, const training_case_t *c, int threads)
{
    pl_error_t *err = &r->rig.err;
    *r = (cpu_trainer_t){0};
    if (!cpu_rig_open(&r->rig, "auto", threads))
        return err->code;
    int code = training_init(&r->t, c, err);
    if (code == PL_OK)
        code = fill_regions(r);
    if (code == PL_OK)
        code = pl_cpu_accelerator.compile(&r->rig.cpu, r->t.step, &r->step, err);
    if (code == PL_OK)
        code = pl_cpu_accelerator.compile(&r->rig.cpu, r->t.update, &r->update, err);
    return code;
}

void cpu_trainer_close(cpu_trainer_t *r)
{
    cpu_rig_close(&r->rig);
    training_release(&r->t);
}

bool cpu_train(cpu_trainer_t *r, int step, double figures[2][2])
{
    pl_replay_t forward = {.seed = 1, .step = (uint64_t)step + 1, .done = cpu_on_done};
    pl_replay_t update = {.figures = figures[0], .done = cpu_on_done};
    training_batch(&r->t, step, forward.input);
    training_scalars(&r->t, step, update.scalar);
    pl_cpu_accelerator.replay(&r->rig.cpu, r->step, &forward, &cpu_told);
    if (cpu_told.code == PL_OK)
        pl_cpu_accelerator.replay(&r->rig.cpu, r->update, &update, &cpu_told);
    return cpu_told.code == PL_OK && !update.guarded;
}
