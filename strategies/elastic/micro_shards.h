/* micro_shards.h - how the sums of micro-shards are made by any number of ranks
 *
 * Pure functions of the numbers of micro-shards and ranks.  A rank's micro-shards are
 * neighbours.  In the canonical tree over all micro-shards a rank can add up the
 * largest subtrees within them by itself: its micro-shard sums. */
#ifndef PL_STRATEGIES_MICRO_SHARDS_H
#define PL_STRATEGIES_MICRO_SHARDS_H

#include <stdint.h>

enum { PL_MICRO_SUMS_MAX = 8, PL_FOLDS_MAX = 24 };

/* Micro-shards first to first + count. */
typedef struct pl_micro_range {
    int first, count;
} pl_micro_range_t;

/* What is done with a micro-shard's gradients: `there` sums lie there already, and the
 * last `added` of them are added to it. */
typedef struct pl_fold {
    int there, added;
} pl_fold_t;

/* The sums that a rank has. */
typedef struct pl_micro_sums {
    pl_micro_range_t range[PL_MICRO_SUMS_MAX];
    int count;
} pl_micro_sums_t;

int pl_micro_shard_first(int micro_shards, int ranks, int rank);

/* Adds the next micro-shard of a rank to its sums. */
pl_fold_t pl_micro_sums_fold(pl_micro_sums_t *sums, int micro_shards, int micro_shard);

/* The sums of a rank after all its micro-shards. */
void pl_micro_sums_of(pl_micro_sums_t *sums, int micro_shards, int ranks, int rank);

/* The largest number of sums of any rank. */
int pl_micro_sums_max(int micro_shards, int ranks);

#endif
