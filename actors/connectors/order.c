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

/* ---- how samples are dealt out ---- */

static int64_t between(int64_t least, int64_t value, int64_t most)
{
    return value < least ? least : value < most ? value : most;
}

/* Of those that are dealt out one by one. */
static int64_t share(const pl_deal_t *deal, uint32_t part, int64_t count)
{
    const int64_t more = part < count % deal->parts && !deal->even;
    return count / deal->parts + more;
}

/* The first shard of a part. */
static int64_t shard_of(const pl_deal_t *deal, uint32_t part)
{
    return (int64_t)deal->shards * part / deal->parts;
}

int64_t pl_deal_full(const pl_deal_t *deal, int64_t count, int64_t batch_size)
{
    return between(1, deal->shards ? count : share(deal, 0, count), batch_size);
}

int64_t pl_deal_rows(const pl_deal_t *deal, int64_t count, int64_t batch_size)
{
    const int64_t full = pl_deal_full(deal, count, batch_size),
                  shards = shard_of(deal, deal->part + 1) - shard_of(deal, deal->part);
    return deal->shards ? between(1, shards * full, count) : full;
}

int64_t pl_deal_batches(const pl_deal_t *deal, int64_t count, int64_t batch_size)
{
    const int64_t most = deal->shards ? count : share(deal, 0, count),
                  all = deal->shards ? deal->shards * batch_size : batch_size;
    return most / all + (most % all && !(deal->shards && deal->even));
}

int64_t pl_deal_count(const pl_deal_t *deal, int64_t count, int64_t batch_size,
                      int64_t batch)
{
    if (!deal->shards)
        return between(0, share(deal, deal->part, count) - batch * batch_size,
                       batch_size);
    const int64_t from = shard_of(deal, deal->part) * batch_size,
                  to = shard_of(deal, deal->part + 1) * batch_size;
    return between(0, count - batch * deal->shards * batch_size - from, to - from);
}

int64_t pl_deal_place(const pl_deal_t *deal, int64_t batch_size, int64_t batch, int64_t i)
{
    if (!deal->shards)
        return deal->part + (batch * batch_size + i) * deal->parts;
    return (batch * deal->shards + shard_of(deal, deal->part)) * batch_size + i;
}

/* Of shards the same for all parts. */
void pl_deal_sizes(const pl_deal_t *deal, int64_t count, int64_t batch_size,
                   int64_t size[2])
{
    const int64_t own = deal->shards ? count : share(deal, deal->part, count);
    size[0] = pl_deal_full(deal, count, batch_size);
    size[1] = deal->shards && deal->even ? 0 : own % size[0];
}

/* ---- the order ---- */

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
