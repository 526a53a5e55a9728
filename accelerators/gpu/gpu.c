/* gpu.c - the accelerator of a GPU: opening, closing, and the description of plans */
#include "accelerators/gpu/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "accelerators/gpu/build.h"
#include "accelerators/gpu/fence.h"
#include "accelerators/gpu/memory.h"
#include "accelerators/gpu/plan.h"
#include "accelerators/gpu/replay.h"
#include "accelerators/gpu/transfer.h"
#include "base/alloc.h"

int pl_gpu_open(void *self, const pl_gpu_backend_ops_t *backend, pl_device_info_t *info,
                pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    gpu->backend = backend;
    gpu->logs = info->local_rank == 0;
    int code = backend->open(self, info, err);
    gpu->ordinal = info->device;
    if (code == PL_OK)
        code = gpu_memory_open(gpu, err);
    if (code == PL_OK)
        code = gpu_replays_open(gpu, err);
    return code == PL_OK ? gpu_builder_open(gpu, info, err) : code;
}

void pl_gpu_close(void *self)
{
    pl_gpu_t *gpu = self;
    if (!gpu->backend)
        return;
    gpu_builder_close(gpu);
    gpu_drain(gpu, NULL);
    while (gpu->plans)
        pl_gpu_discard(gpu, gpu->plans);
    gpu_transfers_close(gpu);
    pl_free(gpu->pin);
    gpu->pin = NULL;
    gpu->pins = gpu->pin_capacity = 0;
    gpu_replays_close(gpu);
    gpu_fences_close(gpu);
    gpu_memory_close(gpu);
    gpu->backend->close(self);
    gpu->backend = NULL;
}

int pl_gpu_compile(void *self, const pl_graph_t *g, pl_plan_t **plan, pl_error_t *err)
{
    return gpu_plan_new(self, g, plan, NULL, err);
}

int pl_gpu_compile_later(void *self, const pl_graph_t *g, pl_compiling_t *c,
                         pl_error_t *err)
{
    return gpu_plan_new(self, g, NULL, c, err);
}

void pl_gpu_describe(const void *self, const pl_plan_t *plan, pl_plan_facts_t *facts)
{
    (void)self;
    for (int k = 0; k < plan->kernels; k++) {
        const gpu_kernel_t *kernel = &plan->kernel[k];
        int i = 0;
        while (i < facts->kinds && strcmp(facts->kind[i].name, kernel->kind) != 0)
            i++;
        if (i == facts->kinds && i < PL_PLAN_KINDS)
            snprintf(facts->kind[facts->kinds++].name, 24, "%s", kernel->kind);
        i = i < PL_PLAN_KINDS ? i : PL_PLAN_KINDS - 1;
        facts->kind[i].launches++;
        for (int a = 0; a < kernel->launch[0].count; a++)
            facts->kind[i].bytes +=
                (double)kernel->buffer[a].bytes
                * (kernel->buffer[a].reads + kernel->buffer[a].writes);
    }
    facts->arena = plan->arena;
    facts->pieces = plan->codes;
    facts->from_cache = plan->cached_codes;
    facts->stored = plan->stored_codes;
    facts->seconds = plan->seconds;
}

const char *pl_gpu_cache(const void *self)
{
    const pl_gpu_t *gpu = self;
    return gpu->backend->cache ? gpu->backend->cache(self) : NULL;
}

int pl_gpu_descriptor(const void *self)
{
    const pl_gpu_t *gpu = self;
    return gpu->backend->descriptor(self);
}

void pl_gpu_collect(void *self)
{
    pl_gpu_t *gpu = self;
    uint64_t count;
    while (read(gpu->backend->descriptor(gpu), &count, sizeof count) < 0
           && errno == EINTR)
        ;
    gpu_replays_collect(gpu);
    gpu_transfers_collect(gpu);
    gpu_build_collect(gpu);
}
