/* alias_index.h - index of the operations that access a piece of a region
 *
 * For passes that move operations or their results. */
#ifndef PL_TENSOR_ALIAS_INDEX_H
#define PL_TENSOR_ALIAS_INDEX_H

#include "tensor/graph.h"

/* Input `input` of operation `op` is elements [from, to) of a region, or a view of some
 * of them. */
typedef struct pl_alias {
    int region, op, input;
    int64_t from, to;
    int64_t reach;                      /* the largest `to` of this and all entries before
                                           it in the region */
} pl_alias_t;

typedef struct pl_alias_index {
    pl_alias_t *alias;                                      /* by region, then from */
    int count;
} pl_alias_index_t;

/* Builds the index; root[value] is the owner of a value's memory.  The target of an
 * assignment counts as an input. */
int pl_alias_index_build(pl_alias_index_t *aliases, const pl_graph_t *g,
                         const int32_t *root, pl_error_t *err);
void pl_alias_index_release(pl_alias_index_t *aliases);

/* The last entry that overlaps a value, a piece of a region, and the entry before one;
 * NULL: no more. */
const pl_alias_t *pl_alias_last(const pl_alias_index_t *aliases, const pl_value_t *v);
const pl_alias_t *pl_alias_before(const pl_alias_index_t *aliases, const pl_value_t *v,
                                  const pl_alias_t *alias);

#endif
