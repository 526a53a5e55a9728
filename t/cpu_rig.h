/* cpu_rig.h - a CPU device opened as a test wants it, and operator cases run on it */
#ifndef T_CPU_RIG_H
#define T_CPU_RIG_H

#include "accelerators/accelerator.h"
#include "accelerators/cpu/device.h"
#include "operator_cases.h"

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

/* What a replay left behind; all memory is the case's own. */
typedef struct cpu_results {
    float *region[PL_REGIONS];
    size_t size[PL_REGIONS];
    double figures[PL_FIELDS][2];                   /* NaN where nothing was handed out */
    void *output;                                   /* y, in its own type */
    size_t output_bytes;
    bool guarded;
} cpu_results_t;

void cpu_results_release(cpu_results_t *results);
/* Bit for bit. */
bool cpu_results_same(const cpu_results_t *a, const cpu_results_t *b);

/* Fills the device's regions with the case's start values. */
int cpu_load(cpu_rig_t *rig, const operator_run_t *run);
/* One replay of a plan; an error told by done() is returned like one of replay(). */
int cpu_replay(cpu_rig_t *rig, const operator_run_t *run, pl_plan_t *plan,
               cpu_results_t *to);
/* Loads, compiles, replays, discards. */
int cpu_run(cpu_rig_t *rig, const operator_run_t *run, cpu_results_t *to);

/* Runs the reference on the case's start values, which it changes; -> the largest
 * difference, as a share of what is wanted but at least of 1, infinite when NaN is not
 * where it should be. */
double cpu_difference(operator_run_t *run, const cpu_results_t *got);

/* The case of that name, to be changed at will. */
operator_case_t cpu_case(const char *name);

#endif
