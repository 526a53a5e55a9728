/* plan.c - plans: compilation, memory, addresses and release */
#include "accelerators/gpu/plan.h"

#include "accelerators/gpu/build.h"
#include "accelerators/gpu/layers.h"
#include "accelerators/gpu/products.h"
#include "accelerators/gpu/replay.h"
#include "accelerators/plan/rewrite.h"
#include "base/alloc.h"
#include "base/error.h"

size_t gpu_record_bytes(const pl_plan_t *plan)
{
    return GPU_RECORD_SUMS + (size_t)plan->sums * sizeof(double);
}

static int reserve(pl_gpu_t *gpu, const pl_plan_t *p, pl_error_t *err)
{
    pl_gpu_memory_t *m = gpu->memory;
    int code = gpu_reserve(gpu, &m->arena, p->arena, false, "values of a step", err);
    if (code == PL_OK)
        code = gpu_reserve(gpu, &m->scratch, p->scratch, false, "kernels' scratch", err);
    if (code == PL_OK)
        code = gpu_reserve(gpu, &m->counters, p->counters, true, "counters", err);
    if (code == PL_OK)
        code = gpu_reserve(gpu, &m->grads_backup, p->grads_backup, false,
                           "copy of gradients", err);
    for (int set = 0; set < GPU_SETS && code == PL_OK; set++) {
        code = gpu_reserve(gpu, &m->set[set].records, 2 * gpu_record_bytes(p), false,
                           "records", err);
        if (code == PL_OK)
            code = gpu_reserve(gpu, &m->set[set].batch, p->batch, false, "batches", err);
    }
    return code;
}

int gpu_plan_finish(pl_gpu_t *gpu, pl_plan_t *plan, pl_error_t *err)
{
    int code = PL_OK;
    if (gpu->checks) {
        plan->reach = pl_alloc_array((size_t)plan->kernels * PL_LAUNCH_ADDRESSES,
                                     sizeof *plan->reach);
        if (!plan->reach)
            return pl_no_memory(err);
    }
    for (int k = 0; k < plan->kernels; k++) {
        gpu_kernel_t *kernel = &plan->kernel[k];
        if (!kernel->library && !kernel->layer
            && !(kernel->launch[0].entry = gpu->backend->code_entry(
                     gpu, plan->code[kernel->text], kernel->name, err)))
            return PL_EBUG;
        for (int i = 0; i < kernel->launch[0].count && plan->reach; i++) {
            size_t *reach = plan->reach + (size_t)k * PL_LAUNCH_ADDRESSES;
            reach[i] = kernel->buffer[i].reach;
            kernel->launch[0].bytes = reach;
        }
        for (int slot = 1; slot < GPU_SLOTS; slot++)
            kernel->launch[slot] = kernel->launch[0];
    }
    for (int k = 0; k < plan->hosts && code == PL_OK; k++)
        code = gpu_host_open(&plan->host[k], gpu, err);
    if (code == PL_OK && gpu->checks)
        code = gpu_check(plan, err);
    /* Memory must not move while a replay waits at a collective: then the plan's first
     * replay reserves. */
    return code == PL_OK && !gpu_replay_waits(gpu) ? reserve(gpu, plan, err) : code;
}

int gpu_plan_new(pl_gpu_t *gpu, const pl_graph_t *g, pl_plan_t **plan,
                 pl_compiling_t *caller, pl_error_t *err)
{
    gpu_string_t *text = NULL;
    int texts = 0, code = pl_graph_check(g, err);
    pl_plan_t *p = code == PL_OK ? pl_alloc(sizeof *p) : NULL;
    if (!p)
        return code == PL_OK ? pl_no_memory(err) : code;
    p->next = gpu->plans;
    gpu->plans = p;
    code = gpu_compile(gpu, p, g, &text, &texts, err);
    if (code == PL_OK && p->builts)
        code = pl_graph_copy(&p->source, g, err);
    if (code != PL_OK) {
        for (int k = 0; k < texts; k++)
            pl_free(text[k].text);
        pl_free(text);
        pl_gpu_discard(gpu, p);
        return code;
    }
    return gpu_build(gpu, p, text, texts, plan, caller, err);
}

static void recordings_free(pl_gpu_t *gpu, pl_plan_t *plan)
{
    for (int k = -1; k < plan->pieces; k++)
        for (int slot = 0; slot < GPU_SLOTS; slot++) {
            gpu_piece_t *piece = k < 0 ? &plan->joined : &plan->piece[k];
            if (piece->recording[slot])
                gpu->backend->recording_free(gpu, piece->recording[slot]);
            piece->recording[slot] = NULL;
            piece->runs[slot] = 0;
        }
}

void pl_gpu_discard(void *self, pl_plan_t *plan)
{
    pl_gpu_t *gpu = self;
    if (!plan)
        return;
    pl_plan_t **next = &gpu->plans;
    while (*next != plan)
        next = &(*next)->next;
    *next = plan->next;
    gpu_replays_forget(gpu, plan);
    recordings_free(gpu, plan);
    if (!gpu->plans) {
        gpu_replays_shrink(gpu);
        gpu_memory_shrink(gpu);
    }
    for (int k = 0; k < plan->codes && plan->code; k++)
        if (plan->code[k])
            gpu->backend->code_free(gpu, plan->code[k]);
    pl_free(plan->code);
    gpu_products_free(gpu, plan);
    gpu_layers_free(gpu, plan);
    pl_graph_copy_release(&plan->source);
    pl_free(plan->kernel);
    pl_free(plan->reach);
    for (int k = 0; k < plan->hosts; k++)
        gpu_host_close(&plan->host[k], gpu);
    pl_free(plan->host);
    pl_free(plan->piece);
    pl_free(plan->out);
    pl_free(plan->check);
    pl_free(plan->metric);
    pl_free(plan);
}

int gpu_plan_resolve(pl_gpu_t *gpu, pl_plan_t *plan, pl_error_t *err)
{
    const pl_gpu_memory_t *m = gpu->memory;
    if (plan->generation == m->generation)
        return PL_OK;
    for (int r = 0; r < GPU_REGIONS; r++)
        if (plan->needs[r] > m->region[r].count)
            return pl_fail(err, PL_ESTATE,
                           "region %d has %zu elements, and the plan needs %zu: allocate "
                           "it before compiling",
                           r, m->region[r].count, plan->needs[r]);
    const int code = reserve(gpu, plan, err);
    if (code != PL_OK)
        return code;
    recordings_free(gpu, plan);
    for (int k = 0; k < plan->kernels; k++)
        for (int slot = 0; slot < GPU_SLOTS; slot++) {
            pl_kernel_launch_t *launch = &plan->kernel[k].launch[slot];
            for (int i = 0; i < launch->count; i++)
                launch->address[i] = gpu_address(gpu, &plan->kernel[k].buffer[i], slot);
        }
    plan->generation = m->generation;
    return PL_OK;
}
