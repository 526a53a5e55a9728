/* micro_shards.h - how the sums of micro-shards are made by any number of ranks
 *
 * All is pure functions of how many micro-shards and ranks there are.  A rank's
 * micro-shards are neighbours; what it can add up by itself in the canonical tree over
 * all micro-shards are the largest subtrees within them, its micro-shard sums. */
#ifndef PL_STRATEGIES_MICRO_SHARDS_H
#define PL_STRATEGIES_MICRO_SHARDS_H

#include <stdint.h>

enum { PL_MICRO_SUMS_MAX = 8, PL_FOLDS_MAX = 24 };

/* Shards first to first + count. */
typedef struct pl_micro_range {
    int first, count;
} pl_micro_range_t;

/* What is done with a micro-shard's gradients: so many sums lie there already, of
 * which the last so many are added up with them. */
typedef struct pl_fold {
    int there, added;
} pl_fold_t;

/* The sums that a rank has at hand. */
typedef struct pl_micro_sums {
    pl_micro_range_t range[PL_MICRO_SUMS_MAX];
    int count;
} pl_micro_sums_t;

int pl_micro_shard_first(int micro_shards, int ranks, int rank);

/* The next micro-shard of a rank comes to what there is. */
pl_fold_t pl_micro_sums_fold(pl_micro_sums_t *sums, int micro_shards, int micro_shard);

/* What a rank has once all its micro-shards have come. */
void pl_micro_sums_of(pl_micro_sums_t *sums, int micro_shards, int ranks, int rank);

/* The most that one of the ranks has. */
int pl_micro_sums_max(int micro_shards, int ranks);

#endif
