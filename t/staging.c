/* staging.c - tests of the memory that regions are read to */
#include "accelerators/actor_internal.h"
#include "tap.h"

static const pl_dtype_t dtypes[PL_REGIONS];

static pl_floats_t *take(pl_staging_t *staging, size_t count)
{
    return pl_staging_take(staging, PL_REGION_PARAMS, PL_F32, count, NULL);
}

static void memory_is_used_again_once_it_is_free(void)
{
    pl_staging_t staging = {0};
    pl_floats_t *first = take(&staging, 100), *second = take(&staging, 100),
                *third = take(&staging, 100);
    ok(first != second && second != third && first != third, "not while it is held");
    const void *was = first;
    pl_object_unref(first);
    pl_object_unref(third);
    first = take(&staging, 100);
    ok(first == was, "then it is");
    pl_object_unref(first);
    first = take(&staging, 200);
    is_int(first->count, 200, "unless other memory is needed");
    pl_object_unref(first);
    pl_staging_release(&staging);
    is_int(second->count, 100, "what is held stays");
    pl_object_unref(second);
}

static void memory_that_is_prepared_is_what_is_taken(void)
{
    enum { MANY = 20 << 20 };
    pl_staging_t staging = {0};
    const uint64_t counts[PL_REGIONS] = {
        [PL_REGION_PARAMS] = MANY, [PL_REGION_SLOT0] = 5};
    is_int(pl_staging_prepare(&staging, dtypes, counts, NULL), PL_OK, "it is made ready");
    pl_floats_t *first = take(&staging, MANY), *second = take(&staging, MANY);
    ok(first == staging.buffer[0][PL_REGION_PARAMS], "the first");
    ok(second == staging.buffer[1][PL_REGION_PARAMS], "the second");
    ok(staging.buffer[1][PL_REGION_SLOT0] && !staging.buffer[0][PL_REGION_STATE],
       "of the counted batches, and of nothing else");
    first->data[MANY - 1] = 3;
    pl_object_unref(second);
    pl_staging_release(&staging);
    ok(first->data[MANY - 1] == 3 && first->data[0] == 0,
       "and it may be written to while it is touched");
    pl_object_unref(first);
}

static int pinned, pins;

static int pin(void *self, void *host, size_t bytes, pl_error_t *err)
{
    (void)self, (void)err;
    pinned += (uintptr_t)host % 4096 == 0 && bytes % 4096 == 0;
    pins++;
    return PL_OK;
}

static void unpin(void *self, void *host)
{
    (void)self, (void)host;
    pinned--;
}

static void pages_of_batches_are_pinned_once_and_as_long_as_there_are_batches(void)
{
    static const pl_accelerator_ops_t ops = {.pin = pin, .unpin = unpin};
    pl_staging_t staging = {.ops = &ops};
    pl_pages_t *page[3];
    for (int k = 0; k < 3; k++)
        page[k] = pl_pages_new(5000, NULL);
    for (int k = 0; k < 6; k++)
        pl_staging_pin(&staging, page[k % 2]);
    ok(pinned == 2 && pins == 2, "whole pages, each once");
    pl_object_unref(page[0]);
    pl_staging_pin(&staging, page[2]);
    ok(pinned == 2 && pins == 3, "those of a batch that is gone no longer");
    pl_staging_release(&staging);
    is_int(pinned, 0, "none in the end");
    pl_object_unref(page[1]);
    pl_object_unref(page[2]);
}

static int refuse(void *self, void *host, size_t bytes, pl_error_t *err)
{
    (void)self, (void)host, (void)bytes, (void)err;
    pins++;
    return PL_EIO;
}

static void memory_that_cannot_be_pinned_is_tried_once(void)
{
    static const pl_accelerator_ops_t ops = {.pin = refuse, .unpin = unpin};
    pl_staging_t staging = {.ops = &ops};
    pl_pages_t *page = pl_pages_new(5000, NULL);
    pins = pinned = 0;
    for (int k = 0; k < 3; k++)
        pl_staging_pin(&staging, page);
    is_int(pins, 1, "once for three batches in the same memory");
    pl_staging_release(&staging);
    is_int(pinned, 0, "and what is not pinned is not unpinned");
    pl_object_unref(page);
}

int main(void)
{
    run(pages_of_batches_are_pinned_once_and_as_long_as_there_are_batches);
    run(memory_is_used_again_once_it_is_free);
    run(memory_that_is_prepared_is_what_is_taken);
    run(memory_that_cannot_be_pinned_is_tried_once);
    return tap_done();
}
