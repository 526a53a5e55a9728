/* cpu_rig.h - a CPU device opened for a test, and operator cases run on it */
#ifndef T_CPU_RIG_H
#define T_CPU_RIG_H

#include "accelerators/accelerator.h"
#include "accelerators/cpu/device.h"
#include "device_rig.h"

typedef struct cpu_rig {
    pl_cpu_t cpu;
    pl_device_info_t info;
    pl_error_t err;                                     /* of the call that failed last */
} cpu_rig_t;

#define CPU_SETS 3
extern const char *const cpu_sets[CPU_SETS];

/* False when this machine has no such instructions; close it all the same. */
bool cpu_rig_open(cpu_rig_t *rig, const char *instructions, int threads);
void cpu_rig_close(cpu_rig_t *rig);

/* As device_rig.h has it. */
int cpu_load(cpu_rig_t *rig, const operator_run_t *run);
int cpu_replay(cpu_rig_t *rig, const operator_run_t *run, pl_plan_t *plan,
               device_results_t *to);
int cpu_run(cpu_rig_t *rig, const operator_run_t *run, device_results_t *to);

/* The case of that name, to be changed at will. */
operator_case_t cpu_case(const char *name);

#endif
