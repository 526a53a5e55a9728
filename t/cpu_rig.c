/* cpu_rig.c - a CPU device opened for a test, and operator cases run on it */
#include "cpu_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const cpu_sets[CPU_SETS] = {"portable", "avx2", "avx512"};

bool cpu_rig_open(cpu_rig_t *rig, const char *instructions, int threads)
{
    *rig = (cpu_rig_t){.cpu = {.threads = threads, .instructions = instructions}};
    return pl_cpu_accelerator.open(&rig->cpu, &rig->info, &rig->err) == PL_OK;
}

void cpu_rig_close(cpu_rig_t *rig)
{
    pl_cpu_accelerator.close(&rig->cpu);
}

static device_rig_t device_of(cpu_rig_t *rig)
{
    return (device_rig_t){.ops = &pl_cpu_accelerator, .self = &rig->cpu};
}

static int keep(cpu_rig_t *rig, const device_rig_t *device, int code)
{
    rig->err = device->err;
    return code;
}

int cpu_load(cpu_rig_t *rig, const operator_run_t *run)
{
    device_rig_t device = device_of(rig);
    return keep(rig, &device, device_load(&device, run));
}

int cpu_replay(cpu_rig_t *rig, const operator_run_t *run, pl_plan_t *plan,
               device_results_t *to)
{
    device_rig_t device = device_of(rig);
    return keep(rig, &device, device_replay(&device, run, plan, to));
}

int cpu_run(cpu_rig_t *rig, const operator_run_t *run, device_results_t *to)
{
    device_rig_t device = device_of(rig);
    return keep(rig, &device, device_run(&device, run, to));
}

operator_case_t cpu_case(const char *name)
{
    for (int i = 0; i < operator_case_count; i++)
        if (strcmp(operator_cases[i].name, name) == 0)
            return operator_cases[i];
    fprintf(stderr, "no operator case is called %s\n", name);
    abort();
}
