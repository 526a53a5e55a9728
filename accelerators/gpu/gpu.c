/* gpu.c - the table of an accelerator that is a GPU, but for what its machine does */
#include "accelerators/gpu/gpu.h"

#include "accelerators/gpu/memory.h"
#include "accelerators/gpu/plan.h"

int pl_gpu_open(void *self, const pl_machine_ops_t *machine, pl_device_info_t *info,
                pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    gpu->machine = machine;
    int code = machine->open(self, info, err);
    return code == PL_OK ? gpu_memory_open(gpu, err) : code;
}

void pl_gpu_close(void *self)
{
    pl_gpu_t *gpu = self;
    if (!gpu->machine)
        return;
    while (gpu->plans)
        gpu_plan_free(gpu, gpu->plans);
    gpu_memory_close(gpu);
    gpu->machine->close(self);
    gpu->machine = NULL;
}

int pl_gpu_compile(void *self, const pl_graph_t *g, pl_plan_t **plan, pl_error_t *err)
{
    return gpu_plan_new(self, g, plan, err);
}

void pl_gpu_discard(void *self, pl_plan_t *plan)
{
    gpu_plan_free(self, plan);
}

int pl_gpu_replay(void *self, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    pl_error_t failure = {0};
    int code = PL_OK;
    (void)err;
    gpu->halted &= !replay->resumes;
    replay->guarded = replay->halts && gpu->halted;
    if (!replay->guarded)
        code = gpu_plan_run(gpu, plan, replay, &failure);
    if (replay->halts && (code != PL_OK || replay->guarded))
        gpu->halted = true;
    replay->done(replay, code == PL_OK ? NULL : &failure);
    return PL_OK;
}
