/* transfer.c - reads of regions during training, and pinned memory of the host
 *
 * A region is copied within the device first, which is fast, and then from that snapshot
 * to the host by stream SAVE, in pieces between which results of steps get through, while
 * stream MAIN computes.  If the device has no memory for
 * a snapshot, MAIN waits for the copy to the host instead.  Regions with a mirror are
 * read at once.  Halves, which the host needs as float32, arrive at the end of the host's
 * buffer; each time the accelerator collects, it converts some of them in place. */
#include "accelerators/gpu/transfer.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

enum {
    CHUNK = 1 << 19,          /* elements converted at once, which takes less than 1 ms */
    PIECE = 16 << 20,         /* bytes of a copy, likewise */
};

typedef struct region_read {
    struct region_read *next;
    pl_transfer_t *transfer;
    gpu_block_t snapshot;                                   /* [none] */
    pl_dtype_t dtype;                                       /* of the region */
    size_t converted;                                       /* elements, of halves */
    pl_event_t *taken, *over;
} region_read_t;

typedef struct pl_gpu_transfers {
    region_read_t *first, **last;                           /* under way, in order */
    region_read_t *spare;                                   /* with their snapshots */
} transfers_t;

static void snapshot_free(pl_gpu_t *gpu, region_read_t *g)
{
    if (g->snapshot.bytes)
        gpu->backend->memory_free(gpu, g->snapshot.address);
    gpu->memory->held -= g->snapshot.bytes;
    g->snapshot = (gpu_block_t){0};
}

static region_read_t *pending_free(pl_gpu_t *gpu, region_read_t *g)
{
    region_read_t *next = g->next;
    snapshot_free(gpu, g);
    if (g->taken)
        gpu->backend->event_free(gpu, g->taken);
    if (g->over)
        gpu->backend->event_free(gpu, g->over);
    pl_free(g);
    return next;
}

void gpu_transfers_close(pl_gpu_t *gpu)
{
    transfers_t *t = gpu->transfers;
    if (!t)
        return;
    while (t->first)
        t->first = pending_free(gpu, t->first);
    while (t->spare)
        t->spare = pending_free(gpu, t->spare);
    pl_free(t);
    gpu->transfers = NULL;
}

bool gpu_transfers_drop(pl_gpu_t *gpu)
{
    transfers_t *t = gpu->transfers;
    const bool any = t && t->spare;
    while (t && t->spare)
        t->spare = pending_free(gpu, t->spare);
    return any;
}

/* A spare read, if possible with a snapshot that is large enough, or a new one. */
static int pending_take(pl_gpu_t *gpu, size_t bytes, region_read_t **taken,
                        pl_error_t *err)
{
    transfers_t *t = gpu->transfers;
    region_read_t **next = &t->spare;
    while (*next && (*next)->snapshot.bytes < bytes)
        next = &(*next)->next;
    if (!*next)
        next = &t->spare;
    region_read_t *g = *next;
    if (g)
        *next = g->next;
    else if (!(g = pl_alloc(sizeof *g)))
        return pl_no_memory(err);
    int code = g->taken ? PL_OK : gpu->backend->event_new(gpu, &g->taken, err);
    if (code == PL_OK && !g->over)
        code = gpu->backend->event_new(gpu, &g->over, err);
    if (code == PL_OK)
        *taken = g;
    else
        pending_free(gpu, g);
    return code;
}

/* The host memory that receives the region's elements. */
static char *arrival_of(const region_read_t *g)
{
    const pl_transfer_t *t = g->transfer;
    return (char *)t->host
           + (gpu_is_half(g->dtype) ? t->count * pl_dtype_size(g->dtype) : 0);
}

/* The copies come after the work that is on MAIN so far.  Without memory for a snapshot,
 * later work on MAIN comes after them. */
static int put(pl_gpu_t *gpu, region_read_t *g, pl_device_ptr_t from, size_t bytes,
               pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    if (g->snapshot.bytes < bytes) {
        snapshot_free(gpu, g);
        if (backend->memory_new(gpu, bytes, &g->snapshot.address, NULL) == PL_OK)
            gpu->memory->held += g->snapshot.bytes = bytes;
    }
    const bool is_kept = g->snapshot.bytes >= bytes;
    int code = is_kept ? backend->copy(gpu, PL_STREAM_MAIN, g->snapshot.address, from,
                                       bytes, err)
                       : PL_OK;
    if (code == PL_OK)
        code = backend->event_record(gpu, g->taken, PL_STREAM_MAIN, err);
    if (code == PL_OK)
        code = backend->event_wait(gpu, g->taken, PL_STREAM_SAVE, err);
    for (size_t at = 0; at < bytes && code == PL_OK; at += PIECE)
        code = backend->copy_out(gpu, PL_STREAM_SAVE, arrival_of(g) + at,
                                 (is_kept ? g->snapshot.address : from) + at,
                                 bytes - at < PIECE ? bytes - at : PIECE, err);
    if (code == PL_OK)
        code = backend->event_record(gpu, g->over, PL_STREAM_SAVE, err);
    if (code == PL_OK && !is_kept)
        code = backend->event_wait(gpu, g->over, PL_STREAM_MAIN, err);
    return code == PL_OK ? backend->notify(gpu, g->over, PL_STREAM_SAVE, true, err)
                         : code;
}

int pl_gpu_read_later(void *self, pl_transfer_t *t, pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    const gpu_region_t *r = &gpu->memory->region[t->region];
    const size_t width = pl_dtype_size(r->dtype), bytes = t->count * width;
    if (t->offset > r->count || t->count > r->count - t->offset || r->mirror
        || !t->count) {
        const int code = pl_gpu_read(gpu, t->region, t->offset, t->host, t->count, err);
        if (code == PL_OK)
            t->done(t, NULL);
        return code;
    }
    if (!gpu->transfers) {
        gpu->transfers = pl_alloc(sizeof *gpu->transfers);
        if (!gpu->transfers)
            return pl_no_memory(err);
        gpu->transfers->last = &gpu->transfers->first;
    }
    region_read_t *g = NULL;
    int code = pending_take(gpu, bytes, &g, err);
    if (code != PL_OK)
        return code;
    g->transfer = t;
    g->next = NULL;
    g->dtype = r->dtype;
    g->converted = 0;
    code = put(gpu, g, r->block.address + t->offset * width, bytes, err);
    if (code != PL_OK) {
        gpu_drain(gpu, NULL);
        pending_free(gpu, g);
        return code;
    }
    *gpu->transfers->last = g;
    gpu->transfers->last = &g->next;
    return PL_OK;
}

/* Converts a chunk of the halves that have arrived; false: there are more, and the
 * descriptor is written to, so that the accelerator collects again. */
static bool convert(pl_gpu_t *gpu, region_read_t *g)
{
    const pl_transfer_t *t = g->transfer;
    const uint64_t one = 1;
    while (gpu_is_half(g->dtype) && g->converted < t->count) {
        const size_t left = t->count - g->converted, chunk = left < CHUNK ? left : CHUNK;
        gpu_to_floats((char *)t->host + g->converted * sizeof(float),
                      arrival_of(g) + g->converted * pl_dtype_size(g->dtype), chunk,
                      g->dtype);
        g->converted += chunk;
        if (g->converted < t->count
            && write(gpu->backend->descriptor(gpu), &one, sizeof one) == sizeof one)
            return false;
    }
    return true;
}

void gpu_transfers_collect(pl_gpu_t *gpu)
{
    transfers_t *t = gpu->transfers;
    pl_error_t err = {0};
    while (t && t->first) {
        region_read_t *g = t->first;
        bool over = false;
        const int code = gpu->backend->event_passed(gpu, g->over, &over, &err);
        if (code == PL_OK && (!over || !convert(gpu, g)))
            return;
        t->first = g->next;
        if (!t->first)
            t->last = &t->first;
        g->next = t->spare;
        t->spare = g;
        g->transfer->done(g->transfer, code == PL_OK ? NULL : &err);
    }
}

/* ---- Memory of the host ---- */

int pl_gpu_pin(void *self, void *host, size_t bytes, pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    if (!gpu->backend->host_pin)
        return PL_OK;
    if (PL_GROW(gpu->pin, gpu->pins, gpu->pin_capacity) != PL_OK)
        return pl_no_memory(err);
    const int code = gpu->backend->host_pin(gpu, host, bytes, err);
    if (code == PL_OK)
        gpu->pin[gpu->pins++] = (gpu_pin_t){host, bytes};
    return code;
}

void pl_gpu_unpin(void *self, void *host)
{
    pl_gpu_t *gpu = self;
    int k = 0;
    while (k < gpu->pins && gpu->pin[k].host != host)
        k++;
    if (k == gpu->pins)
        return;
    gpu->pin[k] = gpu->pin[--gpu->pins];
    gpu->backend->host_unpin(gpu, host);
}

void *gpu_pinned_new(pl_gpu_t *gpu, size_t bytes, pl_error_t *err)
{
    if (gpu->backend->host_new)
        return gpu->backend->host_new(gpu, bytes, err);
    void *host = pl_alloc(bytes);
    if (!host)
        pl_no_memory(err);
    return host;
}

void gpu_pinned_free(pl_gpu_t *gpu, void *host)
{
    if (gpu->backend->host_free)
        gpu->backend->host_free(gpu, host);
    else
        pl_free(host);
}

bool gpu_is_pinned(const pl_gpu_t *gpu, const void *host, size_t bytes)
{
    const char *at = host;
    for (int k = 0; k < gpu->pins; k++)
        if (at >= gpu->pin[k].host && at + bytes <= gpu->pin[k].host + gpu->pin[k].bytes)
            return true;
    return false;
}
