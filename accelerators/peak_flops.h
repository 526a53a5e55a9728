/* peak_flops.h - how fast a device multiplies matrices: what a run's speed is a share
 * of */
#ifndef PL_ACCELERATORS_PEAK_FLOPS_H
#define PL_ACCELERATORS_PEAK_FLOPS_H

#include "accelerators/accelerator.h"

/* Measures it with matrices of that type, in operations a second, and calls then(user)
 * once, inside or later.  Uses PL_REGION_PARAMS, so before anybody else does.  The
 * accelerator's thread. */
int pl_device_measure_peak_flops(const pl_accelerator_ops_t *ops, void *device,
                                 pl_dtype_t dtype,
                                 void (*then)(void *user, double flops,
                                              const pl_error_t *err),
                                 void *user, pl_error_t *err);

#endif
