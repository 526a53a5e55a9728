/* micro_shards.c - how the sums of micro-shards are made by any number of ranks */
#include "strategies/collectives/tree.h"
#include "strategies/elastic/elastic.h"

int pl_micro_shard_first(int micro_shards, int ranks, int rank)
{
    return (int)((int64_t)micro_shards * rank / ranks);
}

/* Whether the two are the children of one node of the tree. */
static bool are_sides(int micro_shards, pl_micro_range_t a, pl_micro_range_t b)
{
    pl_micro_range_t node = {0, micro_shards};
    while (node.count > 1) {
        const int left = pl_tree_left(node.count), middle = node.first + left;
        if (a.first == node.first && a.first + a.count == middle && b.first == middle
            && b.count == node.count - left)
            return true;
        if (b.first + b.count <= middle)
            node.count = left;
        else if (a.first >= middle)
            node = (pl_micro_range_t){middle, node.count - left};
        else
            return false;
    }
    return false;
}

pl_fold_t pl_micro_sums_fold(pl_micro_sums_t *sums, int micro_shards, int micro_shard)
{
    pl_fold_t fold = {.there = sums->count};
    pl_micro_range_t range = {micro_shard, 1};
    while (sums->count && are_sides(micro_shards, sums->range[sums->count - 1], range)) {
        const pl_micro_range_t left = sums->range[--sums->count];
        range = (pl_micro_range_t){left.first, left.count + range.count};
        fold.added++;
    }
    sums->range[sums->count++] = range;
    return fold;
}

void pl_micro_sums_of(pl_micro_sums_t *sums, int micro_shards, int ranks, int rank)
{
    const int end = pl_micro_shard_first(micro_shards, ranks, rank + 1);
    sums->count = 0;
    for (int micro_shard = pl_micro_shard_first(micro_shards, ranks, rank);
         micro_shard < end; micro_shard++)
        pl_micro_sums_fold(sums, micro_shards, micro_shard);
}

int pl_micro_sums_max(int micro_shards, int ranks)
{
    int max = 0;
    for (int rank = 0; rank < ranks; rank++) {
        pl_micro_sums_t sums;
        pl_micro_sums_of(&sums, micro_shards, ranks, rank);
        max = sums.count > max ? sums.count : max;
    }
    return max;
}
