/* memory.c - the device's memory: regions in their own width, and what all plans share */
#include "accelerators/gpu/memory.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/half.h"

/* ---- Blocks ---- */

int gpu_reserve(pl_gpu_t *gpu, gpu_block_t *block, size_t bytes, const char *what,
                pl_error_t *err)
{
    pl_address_t fresh;
    if (bytes <= block->bytes)
        return PL_OK;
    int code = gpu->machine->memory_new(gpu, bytes, &fresh, err);
    if (code != PL_OK)
        return pl_pass(err, "%s", what);
    if (block->bytes)
        gpu->machine->memory_free(gpu, block->address);
    *block = (gpu_block_t){fresh, bytes};
    gpu->memory->generation++;
    return PL_OK;
}

static void block_free(pl_gpu_t *gpu, gpu_block_t *block)
{
    if (block->bytes)
        gpu->machine->memory_free(gpu, block->address);
    *block = (gpu_block_t){0};
}

void *gpu_staging(pl_gpu_t *gpu, size_t bytes, pl_error_t *err)
{
    pl_gpu_memory_t *m = gpu->memory;
    if (bytes <= m->staging_bytes)
        return m->staging;
    void *fresh = pl_alloc(bytes);
    if (!fresh) {
        pl_no_memory(err);
        return NULL;
    }
    pl_free(m->staging);
    m->staging = fresh;
    m->staging_bytes = bytes;
    return fresh;
}

int gpu_memory_open(pl_gpu_t *gpu, pl_error_t *err)
{
    gpu->memory = pl_alloc(sizeof *gpu->memory);
    if (!gpu->memory)
        return pl_no_memory(err);
    gpu->memory->generation = 1;
    int code = gpu_reserve(gpu, &gpu->memory->step, sizeof(gpu_step_t), "step block",
                           err);
    if (code == PL_OK)
        code = gpu_reserve(gpu, &gpu->memory->control, sizeof(gpu_control_t),
                           "control block", err);
    return code;
}

void gpu_memory_close(pl_gpu_t *gpu)
{
    pl_gpu_memory_t *m = gpu->memory;
    if (!m)
        return;
    for (int r = 0; r < PL_REGIONS; r++)
        block_free(gpu, &m->region[r]);
    for (int k = 0; k < PL_FIELDS; k++)
        block_free(gpu, &m->input[k]);
    block_free(gpu, &m->arena);
    block_free(gpu, &m->scratch);
    block_free(gpu, &m->results);
    block_free(gpu, &m->step);
    block_free(gpu, &m->control);
    pl_free(m->staging);
    pl_free(m);
    gpu->memory = NULL;
}

pl_address_t gpu_address(const pl_gpu_t *gpu, const gpu_spot_t *spot)
{
    const pl_gpu_memory_t *m = gpu->memory;
    switch (spot->at) {
    case GPU_AT_ARENA: return m->arena.address + spot->offset;
    case GPU_AT_REGION: return m->region[spot->index].address + spot->offset;
    case GPU_AT_INPUT: return m->input[spot->index].address + spot->offset;
    case GPU_AT_STEP: return m->step.address;
    case GPU_AT_CONTROL: return m->control.address;
    case GPU_AT_RESULTS: return m->results.address + spot->offset;
    default: return m->scratch.address + spot->offset;
    }
}

/* ---- Regions ---- */

int pl_gpu_region(void *self, pl_region_t region, pl_dtype_t dtype, size_t n,
                  pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    pl_gpu_memory_t *m = gpu->memory;
    const size_t width = pl_dtype_size(dtype);
    gpu_block_t fresh = {0};
    char what[32];
    if (n > SIZE_MAX / width)
        return pl_no_memory(err);
    snprintf(what, sizeof what, "region %d", (int)region);
    int code = gpu_reserve(gpu, &fresh, n * width, what, err);
    if (code == PL_OK && n)
        code = gpu->machine->zero(gpu, PL_STREAM_MAIN, fresh.address, n * width, err);
    if (code != PL_OK) {
        block_free(gpu, &fresh);
        return code;
    }
    block_free(gpu, &m->region[region]);
    m->region[region] = fresh;
    m->count[region] = n;
    m->dtype[region] = dtype;
    m->generation++;
    return PL_OK;
}

static int check_range(const pl_gpu_memory_t *m, pl_region_t region, size_t offset,
                       size_t n, pl_error_t *err)
{
    if (offset <= m->count[region] && n <= m->count[region] - offset)
        return PL_OK;
    return pl_fail(
        err, PL_EINVAL,
        "region %d has %zu elements, so it does not have %zu from element %zu on",
        (int)region, m->count[region], n, offset);
}

static bool is_half(pl_dtype_t dtype)
{
    return dtype == PL_BF16 || dtype == PL_F16;
}

int pl_gpu_write(void *self, pl_region_t region, size_t offset, const void *host,
                 size_t n, pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    const pl_gpu_memory_t *m = gpu->memory;
    const pl_dtype_t dtype = m->dtype[region];
    const size_t width = pl_dtype_size(dtype);
    int code = check_range(m, region, offset, n, err);
    if (code != PL_OK || !n)
        return code;
    if (is_half(dtype)) {
        uint16_t *bits = gpu_staging(gpu, n * width, err);
        const float *from = host;
        if (!bits)
            return PL_ENOMEM;
        for (size_t i = 0; i < n; i++)
            bits[i] = dtype == PL_BF16 ? pl_bf16_bits(from[i]) : pl_f16_bits(from[i]);
        host = bits;
    }
    code = gpu->machine->copy_in(gpu, PL_STREAM_MAIN,
                                 m->region[region].address + offset * width, host,
                                 n * width, err);
    return code == PL_OK ? gpu->machine->finish(gpu, PL_STREAM_MAIN, err) : code;
}

int pl_gpu_read(void *self, pl_region_t region, size_t offset, void *host, size_t n,
                pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    const pl_gpu_memory_t *m = gpu->memory;
    const pl_dtype_t dtype = m->dtype[region];
    const size_t width = pl_dtype_size(dtype);
    int code = check_range(m, region, offset, n, err);
    if (code != PL_OK || !n)
        return code;
    void *to = is_half(dtype) ? gpu_staging(gpu, n * width, err) : host;
    if (!to)
        return PL_ENOMEM;
    code = gpu->machine->copy_out(gpu, PL_STREAM_MAIN, to,
                                  m->region[region].address + offset * width, n * width,
                                  err);
    if (code == PL_OK)
        code = gpu->machine->finish(gpu, PL_STREAM_MAIN, err);
    const uint16_t *bits = to;
    float *floats = host;
    for (size_t i = 0; i < n && code == PL_OK && is_half(dtype); i++)
        floats[i] = dtype == PL_BF16 ? pl_bf16_float(bits[i]) : pl_f16_float(bits[i]);
    return code;
}
