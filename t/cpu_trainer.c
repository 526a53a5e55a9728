/* cpu_trainer.c - a training case on a CPU device, step by step */
#include "cpu_trainer.h"

#include <string.h>

#include "base/alloc.h"
#include "tensor/precision.h"

pl_error_t cpu_told;

void cpu_on_done(pl_replay_t *replay, const pl_error_t *err)
{
    (void)replay;
    cpu_told = err ? *err : (pl_error_t){0};
}

static int fill_region(cpu_trainer_t *r, pl_region_t region, double *wide, float *data,
                       size_t n)
{
    const pl_dtype_t dtype = pl_region_dtype(r->t.model->precision, region);
    memset(wide, 0, n * sizeof *wide);
    training_fill(&r->t, region == PL_REGION_MASTER ? PL_REGION_PARAMS : region, wide);
    if (region == PL_REGION_SCALING && r->t.of->scaling)
        wide[PL_SCALING_FACTOR] = r->t.of->scaling->init_scale;
    for (size_t i = 0; i < n; i++)
        data[i] = (float)wide[i];
    int code = pl_cpu_accelerator.region(&r->rig.cpu, region, dtype, n, &r->rig.err);
    if (code != PL_OK)
        return code;
    return pl_cpu_accelerator.write(&r->rig.cpu, region, 0,
                                    dtype == PL_F64 ? (const void *)wide : data, n,
                                    &r->rig.err);
}

static int fill_regions(cpu_trainer_t *r)
{
    const pl_model_t *model = r->t.model;
    const size_t n = (size_t)(model->params + model->state) + PL_SCALING_COUNT;
    double *wide = pl_alloc_array(n, sizeof *wide);
    float *data = pl_alloc_array(n, sizeof *data);
    int code = wide && data ? PL_OK : PL_ENOMEM;
    for (int k = 0; k < PL_REGIONS && code == PL_OK; k++)
        code = fill_region(r, (pl_region_t)k, wide, data, n);
    pl_free(wide);
    pl_free(data);
    return code;
}

int cpu_trainer_open_with(cpu_trainer_t *r, const training_case_t *c,
                          const char *instructions, int threads)
{
    pl_error_t *err = &r->rig.err;
    *r = (cpu_trainer_t){0};
    if (!cpu_rig_open(&r->rig, instructions, threads))
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

int cpu_trainer_open(cpu_trainer_t *r, const training_case_t *c, int threads)
{
    return cpu_trainer_open_with(r, c, "auto", threads);
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
