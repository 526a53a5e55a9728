/* order.c - which sample comes when: splits and shuffles
 *
 * Only what is held back is stored.  The others are found by counting: held[k] - k of
 * them come before the k-th held one. */
#include "actors/connectors/order.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

static int compare_samples(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int pl_split_make(pl_split_t *split, uint64_t seed, int64_t total, double share,
                  pl_error_t *err)
{
    int64_t count = llround(share * (double)total);
    if (count < 1 || count >= total)
        return pl_fail(err, PL_EINVAL,
                       "data.val_split %g of %lld samples leaves %s: choose another, or "
                       "none",
                       share, (long long)total,
                       count < 1 ? "nothing to validate on" : "nothing to train on");
    int64_t *held = pl_alloc_array((size_t)count, sizeof *held);
    if (!held)
        return pl_no_memory(err);
    uint64_t key = pl_mix(seed, pl_hash("data.val_split"));
    for (int64_t k = 0; k < count; k++)
        held[k] = pl_permute_index(key, total, k);
    qsort(held, (size_t)count, sizeof *held, compare_samples);
    *split = (pl_split_t){total, count, held};
    return PL_OK;
}

void pl_split_release(pl_split_t *split)
{
    pl_free(split->held);
    *split = (pl_split_t){0};
}

/* The k-th sample, rising, of those that are not held back. */
static int64_t split_rest(const pl_split_t *split, int64_t k)
{
    int64_t low = 0, high = split->held_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (split->held[middle] - middle <= k)
            low = middle + 1;
        else
            high = middle;
    }
    return k + low;
}

int64_t pl_share(int64_t count, const pl_deal_t *deal)
{
    const int64_t more = deal->part < count % deal->parts && !deal->even;
    return count / deal->parts + more;
}

int64_t pl_share_most(int64_t count, const pl_deal_t *deal)
{
    const pl_deal_t first = {.parts = deal->parts, .even = deal->even};
    return pl_share(count, &first);
}

int64_t pl_order_at(const pl_order_t *order, uint64_t epoch, int64_t place)
{
    if (order->shuffle) {
        uint64_t key = pl_mix(pl_mix(order->seed, pl_hash("data.shuffle")), epoch);
        place = pl_permute_index(key, order->count, place);
    }
    switch (order->part) {
    case PL_REST: return split_rest(order->split, place);
    case PL_HELD: return order->split->held[place];
    case PL_WHOLE: break;
    }
    return place;
}
