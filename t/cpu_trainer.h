/* cpu_trainer.h - a training case on a CPU device, step by step */
#ifndef T_CPU_TRAINER_H
#define T_CPU_TRAINER_H

#include "cpu_rig.h"
#include "device_training.h"

typedef struct cpu_trainer {
    training_t t;
    cpu_rig_t rig;
    pl_plan_t *step, *update;
} cpu_trainer_t;

/* Close it also after a failure; rig.err says what went wrong. */
int cpu_trainer_open(cpu_trainer_t *r, const training_case_t *c, int threads);
int cpu_trainer_open_with(cpu_trainer_t *r, const training_case_t *c,
                          const char *instructions, int threads);
void cpu_trainer_close(cpu_trainer_t *r);

/* One step, from 0.  Metrics are the loss (sum, weight) and the norm before clipping. */
bool cpu_train(cpu_trainer_t *r, int step, double metrics[2][2]);
/* All steps; how far they are off PyTorch's. */
device_training_off_t cpu_train_all(cpu_trainer_t *r, const json_t *want);

/* done() of a replay that a test makes itself: what it said stays in cpu_error. */
extern pl_error_t cpu_error;
void cpu_on_done(pl_replay_t *replay, const pl_error_t *err);

#endif
