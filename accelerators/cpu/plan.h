/* plan.h - a graph compiled into a flat list of kernel calls, and its replay */
#ifndef PL_CPU_PLAN_H
#define PL_CPU_PLAN_H

#include "accelerators/cpu/device.h"

/* Compiles a graph for a device, which keeps the plan in its list.  PL_EUNSUPPORTED names
 * an operator and its path. */
int pl_plan_new(pl_cpu_t *cpu, const pl_graph_t *g, pl_plan_t **plan, pl_error_t *err);
/* Takes the plan out of the device's list, too. */
void pl_plan_free(pl_cpu_t *cpu, pl_plan_t *plan);

/* Runs all calls; fills in what the replay asks for.  Allocates nothing. */
int pl_plan_run(pl_cpu_t *cpu, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err);

#endif
