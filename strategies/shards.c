/* shards.c - how the sums of micro-shards are made by any number of ranks */
#include "strategies/shards.h"

#include <stdbool.h>

#include "strategies/collectives/tree.h"

int pl_micro_shard_first(int micro_shards, int ranks, int rank)
{
    return (int)((int64_t)micro_shards * rank / ranks);
}

static int end_of(pl_part_of_shards_t part)
{
    return part.first + part.count;
}

/* Whether the two are the sides of one node of the tree. */
static bool are_sides(int micro_shards, pl_part_of_shards_t a, pl_part_of_shards_t b)
{
    pl_part_of_shards_t node = {0, micro_shards};
    while (node.count > 1) {
        const int left = pl_tree_left(node.count), middle = node.first + left;
        if (a.first == node.first && end_of(a) == middle && b.first == middle
            && end_of(b) == end_of(node))
            return true;
        if (end_of(b) <= middle)
            node.count = left;
        else if (a.first >= middle)
            node = (pl_part_of_shards_t){middle, node.count - left};
        else
            return false;
    }
    return false;
}

pl_fold_t pl_stack_fold(pl_stack_t *stack, int micro_shards, int micro_shard)
{
    pl_fold_t fold = {.there = stack->count};
    pl_part_of_shards_t part = {micro_shard, 1};
    while (stack->count && are_sides(micro_shards, stack->part[stack->count - 1], part)) {
        const pl_part_of_shards_t left = stack->part[--stack->count];
        part = (pl_part_of_shards_t){left.first, left.count + part.count};
        fold.added++;
    }
    stack->part[stack->count++] = part;
    return fold;
}

void pl_parts_of(pl_stack_t *stack, int micro_shards, int ranks, int rank)
{
    const int end = pl_micro_shard_first(micro_shards, ranks, rank + 1);
    stack->count = 0;
    for (int micro_shard = pl_micro_shard_first(micro_shards, ranks, rank);
         micro_shard < end; micro_shard++)
        pl_stack_fold(stack, micro_shards, micro_shard);
}

int pl_parts_most(int micro_shards, int ranks)
{
    int most = 0;
    for (int rank = 0; rank < ranks; rank++) {
        pl_stack_t stack;
        pl_parts_of(&stack, micro_shards, ranks, rank);
        most = stack.count > most ? stack.count : most;
    }
    return most;
}
