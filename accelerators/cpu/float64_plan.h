/* float64_plan.h - plans in float64, for 64-true: by the reference's plain loops */
#ifndef PL_CPU_WIDE_H
#define PL_CPU_WIDE_H

#include "accelerators/cpu/device.h"

typedef struct pl_float64_plan pl_float64_plan_t;

/* NULL with an error: PL_ENOMEM; PL_EUNSUPPORTED names an operator; PL_ESTATE names a
 * region that is too small or of another type. */
pl_float64_plan_t *pl_float64_plan_new(const pl_cpu_t *cpu, const pl_graph_t *g,
                                       pl_error_t *err);
void pl_float64_plan_free(pl_float64_plan_t *wide);
int pl_float64_plan_run(const pl_cpu_t *cpu, pl_float64_plan_t *wide, pl_replay_t *replay,
                        pl_error_t *err);

#endif
