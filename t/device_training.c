/* device_training.c - a training case on any accelerator, step by step */
#include "device_training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tap.h"
#include "tensor/precision.h"

static pl_dtype_t dtype_of(const training_t *t, pl_region_t region)
{
    return pl_region_dtype(t->model->precision, region);
}

static int fill_region(device_rig_t *rig, const training_t *t, pl_region_t region,
                       double *wide, float *data, size_t n)
{
    const pl_dtype_t dtype = dtype_of(t, region);
    memset(wide, 0, n * sizeof *wide);
    training_fill(t, region == PL_REGION_MASTER ? PL_REGION_PARAMS : region, wide);
    if (region == PL_REGION_SCALING && t->of->scaling)
        wide[PL_SCALING_FACTOR] = t->of->scaling->init_scale;
    for (size_t i = 0; i < n; i++)
        data[i] = (float)wide[i];
    int code = rig->ops->region(rig->self, region, dtype, n, &rig->err);
    if (code != PL_OK)
        return code;
    return rig->ops->write(rig->self, region, 0,
                           dtype == PL_F64 ? (const void *)wide : data, n, &rig->err);
}

int device_training_open(device_rig_t *rig, const training_t *t, device_training_t *d)
{
    const pl_model_t *model = t->model;
    const size_t n = (size_t)(model->params + model->state) + PL_SCALING_COUNT;
    double *wide = pl_alloc_array(n, sizeof *wide);
    float *data = pl_alloc_array(n, sizeof *data);
    int code = wide && data ? PL_OK : PL_ENOMEM;
    for (int k = 0; k < PL_REGIONS && code == PL_OK; k++)
        code = fill_region(rig, t, (pl_region_t)k, wide, data, n);
    pl_free(wide);
    pl_free(data);
    if (code == PL_OK)
        code = rig->ops->compile(rig->self, t->step, &d->step, &rig->err);
    if (code == PL_OK)
        code = rig->ops->compile(rig->self, t->update, &d->update, &rig->err);
    return code;
}

bool device_training_step(device_rig_t *rig, training_t *t, const device_training_t *d,
                          int step, double metrics[2][2])
{
    pl_replay_t forward = {.seed = 1, .step = (uint64_t)step + 1},
                update = {.metrics = metrics[0]};
    training_batch(t, step, forward.input);
    training_scalars(t, step, update.scalar);
    return device_replay_alone(rig, d->step, &forward) == PL_OK
           && device_replay_alone(rig, d->update, &update) == PL_OK && !update.skipped;
}

static double gradients_off(device_rig_t *rig, const training_t *t, double weight,
                            const json_t *want)
{
    const size_t n = (size_t)t->model->params;
    const bool wide = dtype_of(t, PL_REGION_GRADS) == PL_F64;
    float *narrow = pl_alloc_array(n, sizeof *narrow);
    double *grads = pl_alloc_array(n, sizeof *grads);
    rig->ops->read(rig->self, PL_REGION_GRADS, 0, wide ? (void *)grads : narrow, n, NULL);
    for (size_t i = 0; i < n && !wide; i++)
        grads[i] = narrow[i];
    const double off = training_distance(t, PL_REGION_PARAMS, grads, t->nominal / weight,
                                         want);
    pl_free(narrow);
    pl_free(grads);
    return off;
}

static double number(const json_t *want, const char *list, int step)
{
    const json_t *numbers = json_object_get(want, list);
    return numbers ? json_number_value(json_array_get(numbers, (size_t)step)) : NAN;
}

device_training_off_t device_training_run(device_rig_t *rig, training_t *t,
                                          const device_training_t *d, const json_t *want)
{
    device_training_off_t off = {0, 0, INFINITY};
    double metrics[2][2] = {{0}};
    for (int step = 0; step < TRAINING_STEPS; step++) {
        if (!device_training_step(rig, t, d, step, metrics))
            return (device_training_off_t){INFINITY, INFINITY, INFINITY};
        const double loss = number(want, "losses", step),
                     norm = number(want, "norms", step);
        off.loss = tap_larger(off.loss,
                              fabs(metrics[0][0] / metrics[0][1] - loss) / loss);
        off.norm = tap_larger(off.norm, fabs(metrics[1][0] - norm) / norm);
        if (step == 0)
            off.gradients = gradients_off(rig, t, metrics[0][1],
                                          json_object_get(want, "gradients"));
    }
    return off;
}

json_t *device_training_data(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/t/data/%s.json",
             getenv("top_srcdir") ? getenv("top_srcdir") : "..", name);
    return json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
}
