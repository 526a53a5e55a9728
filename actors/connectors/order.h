/* order.h - which sample comes when: splits and shuffles
 *
 * Pure functions of a key and a place: neither how many threads read nor how far ahead
 * changes what comes, and a shuffle of any length takes no memory. */
#ifndef PL_CONNECTORS_ORDER_H
#define PL_CONNECTORS_ORDER_H

#include "paceline.h"

/* A data set cut in two at random.  All zero: not cut. */
typedef struct pl_split {
    int64_t total;                                          /* samples */
    int64_t held_count;                                     /* of them, for validation */
    int64_t *held;                                          /* [held_count], rising */
} pl_split_t;

/* Holds back that share of total samples.  PL_EINVAL: nothing is left on either side. */
int pl_split_make(pl_split_t *split, uint64_t seed, int64_t total, double share,
                  pl_error_t *err);
void pl_split_release(pl_split_t *split);

/* How samples are dealt out, one by one. */
typedef struct pl_deal {
    uint32_t part, parts;
    bool even;                                  /* those that not all parts would have are
                                                   left out */
} pl_deal_t;

/* Of `count` samples those of this part, and of the first, which has the most. */
int64_t pl_share(int64_t count, const pl_deal_t *deal);
int64_t pl_share_most(int64_t count, const pl_deal_t *deal);

/* The samples of a stage in order. */
typedef enum pl_part_of { PL_WHOLE, PL_REST, PL_HELD } pl_part_of_t;

typedef struct pl_order {
    const pl_split_t *split;                                /* borrowed  [PL_WHOLE] */
    pl_part_of_t part;
    int64_t count;                                          /* samples */
    bool shuffle;
    uint64_t seed;
} pl_order_t;

/* The sample at a place of an epoch, for place in [0, count). */
int64_t pl_order_at(const pl_order_t *order, uint64_t epoch, int64_t place);

#endif
