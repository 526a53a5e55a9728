/* check.h - the proof that a plan reads what was written for it */
#ifndef PL_GPU_CHECK_H
#define PL_GPU_CHECK_H

#include "accelerators/gpu/plan.h"

/* PL_EBUG names two kernels and the value that one of them takes from the other. */
int gpu_check(const pl_plan_t *plan, pl_error_t *err);

#endif
