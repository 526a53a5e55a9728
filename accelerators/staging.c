/* staging.c - host memory for copies of a device: buffers for reads of regions, which are
 * reused, and the pages of batches, which are pinned */
#include "accelerators/actor_internal.h"

#include <signal.h>
#include <sys/mman.h>

#include "base/alloc.h"

#define PIECE ((size_t)16 << 20)                            /* bytes, touched at a time */

static bool fits(const pl_floats_t *buffer, pl_dtype_t dtype, size_t count)
{
    return buffer && buffer->dtype == dtype && buffer->count == count;
}

static size_t bytes_of(const pl_floats_t *buffer)
{
    return buffer->count * pl_element_bytes(buffer->dtype);
}

/* ---- touching ---- */

static void touch_end(pl_staging_t *staging)
{
    atomic_store(&staging->ending, true);
    if (staging->touches)
        pthread_join(staging->toucher, NULL);
    staging->touches = false;
}

/* The kernel touches the pages, so data that is read into them at the same time stays.  A
 * kernel that lacks the call leaves them untouched. */
static void *toucher_main(void *user)
{
    const pl_staging_t *staging = user;
    for (int k = 0; k < PL_STAGING_BUFFERS * PL_REGIONS; k++) {
        const pl_floats_t *buffer = staging->buffer[k / PL_REGIONS][k % PL_REGIONS];
        const size_t bytes = buffer ? bytes_of(buffer) : 0;
        for (size_t at = 0;
             bytes >= PIECE && at < bytes && !atomic_load(&staging->ending); at += PIECE)
            madvise((char *)buffer->data + at, bytes - at < PIECE ? bytes - at : PIECE,
                    MADV_POPULATE_WRITE);
    }
    return NULL;
}

/* ---- buffers for reads of regions ---- */

static void buffer_drop(const pl_staging_t *staging, pl_floats_t *buffer)
{
    if (buffer && buffer->count && staging->ops && staging->ops->unpin)
        staging->ops->unpin(staging->device, buffer->data);
    pl_object_unref(buffer);
}

static int buffer_make(pl_staging_t *staging, int k, pl_region_t region, pl_dtype_t dtype,
                       size_t count, pl_error_t *err)
{
    pl_floats_t *fresh = pl_floats_new(dtype, count, err);
    if (!fresh)
        return PL_ENOMEM;
    touch_end(staging);
    buffer_drop(staging, staging->buffer[k][region]);
    staging->buffer[k][region] = fresh;
    if (staging->ops && staging->ops->pin && count)      /* if it fails, reads are slow */
        staging->ops->pin(staging->device, fresh->data, bytes_of(fresh), NULL);
    return PL_OK;
}

pl_floats_t *pl_staging_take(pl_staging_t *staging, pl_region_t region, pl_dtype_t dtype,
                             size_t count, pl_error_t *err)
{
    int k = 0;
    while (k < PL_STAGING_BUFFERS && staging->buffer[k][region]
           && !pl_object_is_ours(staging->buffer[k][region]))
        k++;
    if (k == PL_STAGING_BUFFERS)
        return pl_floats_new(dtype, count, err);
    if (!fits(staging->buffer[k][region], dtype, count)
        && buffer_make(staging, k, region, dtype, count, err) != PL_OK)
        return NULL;
    return pl_object_ref(staging->buffer[k][region]);
}

int pl_staging_prepare(pl_staging_t *staging, const pl_dtype_t dtype[PL_REGIONS],
                       const uint64_t count[PL_REGIONS], pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < PL_STAGING_BUFFERS * PL_REGIONS && code == PL_OK; k++) {
        const int region = k % PL_REGIONS;
        if (count[region]
            && !fits(staging->buffer[k / PL_REGIONS][region], dtype[region],
                     count[region]))
            code = buffer_make(staging, k / PL_REGIONS, region, dtype[region],
                               count[region], err);
    }
    touch_end(staging);
    bool any_is_large = false;   /* the first use of small buffers touches them in time */
    for (int k = 0; k < PL_STAGING_BUFFERS * PL_REGIONS; k++) {
        const pl_floats_t *buffer = staging->buffer[k / PL_REGIONS][k % PL_REGIONS];
        any_is_large |= buffer && bytes_of(buffer) >= PIECE;
    }
    if (code != PL_OK || !any_is_large)
        return code;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);   /* the host's threads handle signals */
    atomic_store(&staging->ending, false);
    staging->touches = pthread_create(&staging->toucher, NULL, toucher_main, staging)
                       == 0;                 /* without a thread, the first use touches */
    if (staging->touches)
        pthread_setname_np(staging->toucher, "staging");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return PL_OK;
}

/* ---- pages of batches ---- */

static void pinned_drop(pl_staging_t *staging, int k)
{
    pl_pinned_t *pinned = &staging->pinned[k];
    if (pinned->is_pinned && staging->ops->unpin)
        staging->ops->unpin(staging->device, pinned->pages->data);
    pl_object_unref(pinned->pages);
    *pinned = staging->pinned[--staging->pinned_count];
}

void pl_staging_pin(pl_staging_t *staging, pl_pages_t *pages)
{
    for (int k = 0; k < staging->pinned_count; k++)
        if (staging->pinned[k].pages == pages)
            return;
    for (int k = staging->pinned_count - 1; k >= 0; k--)    /* no batch uses them */
        if (pl_object_is_ours(staging->pinned[k].pages))
            pinned_drop(staging, k);
    if (PL_GROW(staging->pinned, staging->pinned_count, staging->pinned_capacity)
        != PL_OK)
        return;
    const bool is_pinned =
        staging->ops->pin(staging->device, pages->data, pages->bytes, NULL) == PL_OK;
    staging->pinned[staging->pinned_count++] = (pl_pinned_t){pl_object_ref(pages),
                                                             is_pinned};
}

void pl_staging_release(pl_staging_t *staging)
{
    touch_end(staging);
    while (staging->pinned_count)
        pinned_drop(staging, staging->pinned_count - 1);
    pl_free(staging->pinned);
    for (int k = 0; k < PL_STAGING_BUFFERS * PL_REGIONS; k++)
        buffer_drop(staging, staging->buffer[k / PL_REGIONS][k % PL_REGIONS]);
    *staging = (pl_staging_t){0};
}
