/* cpu_trainer.c - a training case on a CPU device, step by step */
#include "cpu_trainer.h"

pl_error_t cpu_error;

void cpu_on_done(pl_replay_t *replay, const pl_error_t *err)
{
    (void)replay;
    cpu_error = err ? *err : (pl_error_t){0};
}

static device_rig_t device_of(cpu_trainer_t *r)
{
    return (device_rig_t){.ops = &pl_cpu_accelerator, .self = &r->rig.cpu};
}

int cpu_trainer_open_with(cpu_trainer_t *r, const training_case_t *c,
                          const char *instructions, int threads)
{
    pl_error_t *err = &r->rig.err;
    *r = (cpu_trainer_t){0};
    if (!cpu_rig_open(&r->rig, instructions, threads))
        return err->code;
    int code = training_init(&r->t, c, err);
    if (code != PL_OK)
        return code;
    device_rig_t device = device_of(r);
    device_training_t plans = {NULL, NULL};
    code = device_training_open(&device, &r->t, &plans);
    r->step = plans.step;
    r->update = plans.update;
    if (code != PL_OK)
        *err = device.err;
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

bool cpu_train(cpu_trainer_t *r, int step, double metrics[2][2])
{
    device_rig_t device = device_of(r);
    const bool done = device_training_step(&device, &r->t,
                                           &(device_training_t){r->step, r->update}, step,
                                           metrics);
    cpu_error = device.err;
    return done;
}

device_training_off_t cpu_train_all(cpu_trainer_t *r, const json_t *want)
{
    device_rig_t device = device_of(r);
    return device_training_run(&device, &r->t, &(device_training_t){r->step, r->update},
                               want);
}
