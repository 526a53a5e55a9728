/* memory.c - the device's memory: regions in their own width, blocks that all plans
 * share, and two sets of blocks that replays use in turn */
#include "accelerators/gpu/memory.h"

#include <stdio.h>
#include <string.h>

#include "accelerators/gpu/transfer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/half.h"

/* ---- Blocks ---- */

int gpu_drain(pl_gpu_t *gpu, pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < PL_STREAMS && code == PL_OK; k++)
        code = gpu->backend->finish(gpu, (pl_stream_t)k, err);
    return code;
}

/* Launches get new addresses before the next replay. */
static void block_free(pl_gpu_t *gpu, gpu_block_t *block)
{
    if (!block->bytes)
        return;
    gpu->backend->memory_free(gpu, block->address);
    gpu->memory->generation++;
    gpu->memory->held -= block->bytes;
    *block = (gpu_block_t){0};
}

static int block_new(pl_gpu_t *gpu, gpu_block_t *block, size_t bytes, bool zeroed,
                     pl_error_t *err)
{
    pl_device_ptr_t fresh;
    int code = gpu->backend->memory_new(gpu, bytes, &fresh, err);
    if (code == PL_ENOMEM && gpu_transfers_drop(gpu))
        code = gpu->backend->memory_new(gpu, bytes, &fresh, err);
    if (code != PL_OK)
        return code;
    gpu->memory->held += bytes;
    *block = (gpu_block_t){fresh, bytes};
    return zeroed ? gpu->backend->zero(gpu, PL_STREAM_MAIN, fresh, bytes, err) : PL_OK;
}

/* ---- Too little memory ---- */

typedef struct user {
    const char *what;
    size_t bytes;
} user_t;

static const char *const region_names[GPU_REGIONS] = {
    [PL_REGION_PARAMS] = "parameters",
    [PL_REGION_GRADS] = "gradients",
    [PL_REGION_STATE] = "state of the model",
    [PL_REGION_AVERAGE] = "averaged parameters",
    [PL_REGION_MASTER] = "parameters of the optimizer",
    [PL_REGION_STATE_BACKUP] = "backup of the model's state",
    [PL_REGION_COLLECTIVE] = "in-graph collectives",
    [PL_REGION_CACHE] = "keys and values of a text",
    [GPU_REGION_LOW] = "parameters as halves",
};

static const char *region_name(int region)
{
    if (region >= PL_REGION_SLOT0 && region < PL_REGION_SLOT0 + PL_SLOTS)
        return "state of the optimizer";
    return region_names[region] ? region_names[region] : "memory of the strategy";
}

static void user_add(user_t *list, int *count, const char *what, size_t bytes)
{
    for (int k = 0; k < *count; k++)
        if (list[k].what == what || !strcmp(list[k].what, what)) {
            list[k].bytes += bytes;
            return;
        }
    if (bytes)
        list[(*count)++] = (user_t){what, bytes};
}

/* Adds to the backend's error: the purpose, the largest users, and what to change. */
static int fail_memory(const pl_gpu_t *gpu, const char *what, pl_error_t *err)
{
    const pl_gpu_memory_t *m = gpu->memory;
    user_t list[GPU_REGIONS + 4];
    int count = 0;
    user_add(list, &count, "values of a step", m->arena.bytes);
    user_add(list, &count, "kernels' scratch", m->scratch.bytes);
    for (int k = 0; k < m->tensors; k++)
        user_add(list, &count, "constants", m->tensor[k].block.bytes);
    for (int set = 0; set < GPU_SETS; set++)
        user_add(list, &count, "batches", m->set[set].batch.bytes);
    for (int r = 0; r < GPU_REGIONS; r++)
        user_add(list, &count, region_name(r), m->region[r].block.bytes);
    char text[256] = "";
    for (int n = 0; n < 3 && n < count; n++) {
        user_t *largest = list;
        for (int k = 1; k < count; k++)
            if (list[k].bytes > largest->bytes)
                largest = &list[k];
        if (!largest->bytes)
            break;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s %.1f MiB %s",
                 n ? "," : "; it holds", (double)largest->bytes / (1 << 20),
                 largest->what);
        largest->bytes = 0;
    }
    pl_error_t said = err ? *err : (pl_error_t){.text = ""};
    return pl_fail(
        err, PL_ENOMEM,
        "%s, for %s%s: use a smaller batch_size (and accumulate_grad_batches), "
        "a precision of 16 bits, or a smaller model",
        said.text, what, text);
}

/* Frees the old block first, so that a plan fits or not whatever ran before it.  Without
 * memory for the new block, earlier plans get one of the old size again. */
int gpu_reserve(pl_gpu_t *gpu, gpu_block_t *block, size_t bytes, bool zeroed,
                const char *what, pl_error_t *err)
{
    const size_t before = block->bytes;
    if (bytes <= before)
        return PL_OK;
    int code = before ? gpu_drain(gpu, err) : PL_OK;
    if (code != PL_OK)
        return code;
    block_free(gpu, block);
    code = block_new(gpu, block, bytes, zeroed, err);
    if (code == PL_ENOMEM && before)
        block_new(gpu, block, before, zeroed, NULL);
    if (code == PL_ENOMEM)
        return fail_memory(gpu, what, err);
    return code == PL_OK ? PL_OK : pl_error_prefix(err, "%s", what);
}

/* Host memory of at least so many bytes; NULL: out of memory. */
static void *staging_of(pl_gpu_t *gpu, size_t bytes, pl_error_t *err)
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
    pl_gpu_memory_t *m = gpu->memory;
    m->generation = 1;
    int code = gpu_reserve(gpu, &m->control, sizeof(gpu_control_t), true, "control block",
                           err);
    for (int k = 0; k < GPU_SETS && code == PL_OK; k++) {
        gpu_set_t *set = &m->set[k];
        code = gpu_reserve(gpu, &set->steps, 2 * sizeof(gpu_step_t), false, "step blocks",
                           err);
        if (code == PL_OK)
            code = gpu->backend->event_new(gpu, &set->filled, err);
    }
    return code;
}

static void region_close(pl_gpu_t *gpu, gpu_region_t *region)
{
    block_free(gpu, &region->floats);
    block_free(gpu, &region->block);
    *region = (gpu_region_t){0};
}

/* The blocks that plans reserve. */
static void plans_memory_free(pl_gpu_t *gpu)
{
    pl_gpu_memory_t *m = gpu->memory;
    block_free(gpu, &m->arena);
    block_free(gpu, &m->scratch);
    block_free(gpu, &m->counters);
    block_free(gpu, &m->grads_backup);
    for (int set = 0; set < GPU_SETS; set++) {
        block_free(gpu, &m->set[set].records);
        block_free(gpu, &m->set[set].batch);
    }
    for (int k = 0; k < m->tensors; k++) {
        block_free(gpu, &m->tensor[k].block);
        pl_object_unref(m->tensor[k].of);
    }
    pl_free(m->tensor);
    m->tensor = NULL;
    m->tensors = m->tensor_capacity = 0;
}

void gpu_memory_shrink(pl_gpu_t *gpu)
{
    if (gpu_drain(gpu, NULL) == PL_OK)
        plans_memory_free(gpu);
}

void gpu_memory_close(pl_gpu_t *gpu)
{
    pl_gpu_memory_t *m = gpu->memory;
    if (!m)
        return;
    for (int r = 0; r < GPU_REGIONS; r++)
        region_close(gpu, &m->region[r]);
    plans_memory_free(gpu);
    for (int k = 0; k < GPU_SETS; k++) {
        block_free(gpu, &m->set[k].steps);
        if (m->set[k].filled)
            gpu->backend->event_free(gpu, m->set[k].filled);
    }
    block_free(gpu, &m->control);
    pl_free(m->staging);
    pl_free(m);
    gpu->memory = NULL;
}

size_t gpu_aligned(size_t bytes)
{
    enum { ALIGNMENT = 64 };
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t pl_gpu_held(const void *self)
{
    const pl_gpu_memory_t *m = ((const pl_gpu_t *)self)->memory;
    return m ? m->held : 0;
}

pl_device_ptr_t gpu_address(const pl_gpu_t *gpu, const gpu_buffer_t *buffer, int slot)
{
    const pl_gpu_memory_t *m = gpu->memory;
    const gpu_set_t *set = &m->set[slot % GPU_SETS];
    const size_t half = (size_t)(slot / GPU_SETS);
    switch (buffer->at) {
    case GPU_IN_ARENA: return m->arena.address + buffer->offset;
    case GPU_IN_REGION: return m->region[buffer->index].block.address + buffer->offset;
    case GPU_IN_FLOATS: return m->region[buffer->index].floats.address + buffer->offset;
    case GPU_IN_BATCH: return set->batch.address + buffer->offset;
    case GPU_IN_TENSOR: return m->tensor[buffer->index].block.address + buffer->offset;
    case GPU_IN_STEP: return set->steps.address + half * set->steps.bytes / 2;
    case GPU_IN_GRADS_BACKUP: return m->grads_backup.address;
    case GPU_IN_COUNTER: return m->counters.address;
    case GPU_IN_CONTROL: return m->control.address;
    case GPU_IN_RECORD:
        return set->records.address + half * set->records.bytes / 2 + buffer->offset;
    default: return m->scratch.address + buffer->offset;
    }
}

/* ---- Constant tensors ---- */

int gpu_tensors_put(pl_gpu_t *gpu, pl_graph_t *g, pl_error_t *err)
{
    pl_gpu_memory_t *m = gpu->memory;
    int code = PL_OK;
    for (int i = 0; i < g->value_count && code == PL_OK; i++) {
        pl_constant_tensor_t *of = g->value[i].tensor;
        int k = 0;
        while (k < m->tensors && m->tensor[k].of != of)
            k++;
        g->value[i].index = of ? k : g->value[i].index;
        if (!of || k < m->tensors)
            continue;
        if (PL_GROW(m->tensor, m->tensors, m->tensor_capacity) != PL_OK)
            return pl_no_memory(err);
        m->tensor[k] = (gpu_tensor_t){.of = pl_object_ref(of)};
        m->tensors++;
        code = gpu_reserve(gpu, &m->tensor[k].block, of->bytes, false, "constants", err);
        if (code == PL_OK)
            code = gpu->backend->copy_in(gpu, PL_STREAM_MAIN, m->tensor[k].block.address,
                                         of->data, of->bytes, err);
        if (code == PL_OK)
            code = gpu->backend->finish(gpu, PL_STREAM_MAIN, err);
        if (code != PL_OK) {
            block_free(gpu, &m->tensor[k].block);
            pl_object_unref(m->tensor[k].of);
            m->tensors--;
        }
    }
    return code;
}

/* ---- Regions ---- */

bool gpu_is_half(pl_dtype_t dtype)
{
    return dtype == PL_BF16 || dtype == PL_F16;
}

/* Bytes of an element of a region on the host, which has halves as float32. */
static size_t host_width(pl_dtype_t dtype)
{
    return dtype == PL_F64 ? sizeof(double) : sizeof(float);
}

/* After a failure the region has no elements. */
static int region_set(pl_gpu_t *gpu, int number, gpu_region_t fresh, pl_error_t *err)
{
    gpu_region_t *region = &gpu->memory->region[number];
    int code = gpu_drain(gpu, err);
    if (code != PL_OK)
        return code;
    region_close(gpu, region);
    if (number == PL_REGION_PARAMS)
        region_close(gpu, &gpu->memory->region[GPU_REGION_LOW]);
    *region = fresh;
    const size_t width = pl_dtype_size(fresh.dtype), n = fresh.count;
    const char *what = region_name(number);
    code = n > SIZE_MAX / sizeof(double)
               ? pl_no_memory(err)
               : gpu_reserve(gpu, &region->block, n * width, true, what, err);
    if (code == PL_OK && region->mirror && gpu_is_half(region->dtype))
        code = gpu_reserve(gpu, &region->floats, n * sizeof(float), false, what, err);
    if (code != PL_OK)
        region_close(gpu, region);
    return code;
}

int gpu_reserve_low(pl_gpu_t *gpu, pl_dtype_t dtype, pl_error_t *err)
{
    gpu_region_t *low = &gpu->memory->region[GPU_REGION_LOW];
    const size_t n = gpu->memory->region[PL_REGION_PARAMS].count;
    if (low->count == n && low->dtype == dtype)
        return PL_OK;
    gpu->memory->low_is_fresh = false;
    return region_set(gpu, GPU_REGION_LOW, (gpu_region_t){.count = n, .dtype = dtype},
                      err);
}

int pl_gpu_region(void *self, pl_region_t region, pl_dtype_t dtype, size_t n,
                  pl_error_t *err)
{
    return region_set(self, region, (gpu_region_t){.count = n, .dtype = dtype}, err);
}

int pl_gpu_borrow(void *self, pl_region_t region, pl_dtype_t dtype, size_t n, void *host,
                  pl_error_t *err)
{
    memset(host, 0, n * host_width(dtype));
    return region_set(self, region,
                      (gpu_region_t){.count = n, .dtype = dtype, .mirror = host}, err);
}

static int check_range(const gpu_region_t *r, pl_region_t region, size_t offset, size_t n,
                       pl_error_t *err)
{
    if (offset <= r->count && n <= r->count - offset)
        return PL_OK;
    return pl_fail(
        err, PL_EINVAL,
        "region %d has %zu elements, so it does not have %zu from element %zu on",
        (int)region, r->count, n, offset);
}

void gpu_to_floats(void *floats, const void *halves, size_t n, pl_dtype_t dtype)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, (const char *)halves + i * sizeof bits, sizeof bits);
        const float x = dtype == PL_BF16 ? pl_bf16_float(bits) : pl_f16_float(bits);
        memcpy((char *)floats + i * sizeof x, &x, sizeof x);
    }
}

int pl_gpu_write(void *self, pl_region_t region, size_t offset, const void *host,
                 size_t n, pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    const gpu_region_t *r = &gpu->memory->region[region];
    const size_t width = pl_dtype_size(r->dtype);
    uint16_t *bits = NULL;
    int code = check_range(r, region, offset, n, err);
    if (code == PL_OK && n)
        code = gpu_drain(gpu, err);
    if (code != PL_OK || !n)
        return code;
    gpu->memory->low_is_fresh &= region != PL_REGION_PARAMS;
    if (r->mirror) {
        char *to = (char *)r->mirror + offset * host_width(r->dtype);
        memcpy(to, host, n * host_width(r->dtype));
        for (size_t i = 0; i < n && gpu_is_half(r->dtype); i++) {
            float *x = (float *)to + i;
            *x = r->dtype == PL_BF16 ? pl_round_bf16(*x) : pl_round_f16(*x);
        }
        return PL_OK;
    }
    if (gpu_is_half(r->dtype)) {
        const float *x = host;
        if (!(bits = staging_of(gpu, n * width, err)))
            return PL_ENOMEM;
        for (size_t i = 0; i < n; i++)
            bits[i] = r->dtype == PL_BF16 ? pl_bf16_bits(x[i]) : pl_f16_bits(x[i]);
    }
    code = gpu->backend->copy_in(gpu, PL_STREAM_MAIN, r->block.address + offset * width,
                                 bits ? bits : host, n * width, err);
    return code == PL_OK ? gpu->backend->finish(gpu, PL_STREAM_MAIN, err) : code;
}

int pl_gpu_read(void *self, pl_region_t region, size_t offset, void *host, size_t n,
                pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    const gpu_region_t *r = &gpu->memory->region[region];
    const size_t width = pl_dtype_size(r->dtype);
    int code = check_range(r, region, offset, n, err);
    if (code == PL_OK && n)
        code = gpu_drain(gpu, err);
    if (code != PL_OK || !n)
        return code;
    if (r->mirror) {
        memcpy(host, (const char *)r->mirror + offset * host_width(r->dtype),
               n * host_width(r->dtype));
        return PL_OK;
    }
    uint16_t *bits = gpu_is_half(r->dtype) ? staging_of(gpu, n * width, err) : NULL;
    if (gpu_is_half(r->dtype) && !bits)
        return PL_ENOMEM;
    code = gpu->backend->copy_out(gpu, PL_STREAM_MAIN, bits ? (void *)bits : host,
                                  r->block.address + offset * width, n * width, err);
    if (code == PL_OK)
        code = gpu->backend->finish(gpu, PL_STREAM_MAIN, err);
    if (code == PL_OK && bits)
        gpu_to_floats(host, bits, n, r->dtype);
    return code;
}
