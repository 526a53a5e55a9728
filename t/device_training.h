/* device_training.h - a training case on any accelerator, step by step */
#ifndef T_DEVICE_TRAINING_H
#define T_DEVICE_TRAINING_H

#include "device_rig.h"
#include "training_cases.h"

/* What the device computes. */
typedef struct device_training {
    pl_plan_t *step, *update;
} device_training_t;

/* Fills the device's regions with the training's first values, and compiles. */
int device_training_open(device_rig_t *rig, const training_t *t, device_training_t *d);

/* One step, from 0.  Metrics are the loss (sum, weight) and the norm before clipping.
 * False: it failed, or a guard stopped its update. */
bool device_training_step(device_rig_t *rig, training_t *t, const device_training_t *d,
                          int step, double metrics[2][2]);

/* By how large a share a training is off what PyTorch has computed: losses and norms of
 * all steps, gradients of the first.  Infinite: it failed, or PyTorch's are missing. */
typedef struct device_training_off {
    double loss, norm, gradients;
} device_training_off_t;

device_training_off_t device_training_run(device_rig_t *rig, training_t *t,
                                          const device_training_t *d, const json_t *want);

/* t/data/NAME.json; NULL when it cannot be read. */
json_t *device_training_data(const char *name);

#endif
