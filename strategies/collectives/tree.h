/* tree.h - the canonical tree: in which order the ranks' elements are added
 *
 * Ranks first to first + n are halved: the left side is as large a power of two as is
 * smaller than n, the right side the rest; each side is reduced for itself, then left and
 * right.
 *
 *     3 ranks   (0 + 1) + 2
 *     6 ranks   ((0 + 1) + (2 + 3)) + (4 + 5)
 *
 * So 2^k ranks from a multiple of 2^k on are always a subtree of their own, however many
 * ranks there are: they can be reduced first, on the node they share, and the bits stay
 * the same. (The hash trees of RFC 6962, section 2.1, have the same shape.) */
#ifndef PL_COLLECTIVES_TREE_H
#define PL_COLLECTIVES_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paceline.h"

/* The number of ranks on the left of n > 1 ranks. */
PL_API int pl_tree_left(int n);

/* Whether elements of this type can be reduced in this way. */
bool pl_tree_can(uint32_t dtype, uint32_t reduction);

/* The largest subtree around a rank whose ranks all are on one machine. */
void pl_tree_unit(const int *machine, int ranks, int rank, int *first, int *count);

/* out[0..n) = the elements of `ranks` inputs, reduced in the order of the tree. `out`
 * may be one of the inputs. An input may be NULL: the nearest input before it that is
 * not NULL already holds the sum of a whole subtree that includes that rank. A
 * maximum with a NaN is a NaN. */
void pl_tree_reduce(void *out, const void **in, int ranks, size_t n, uint32_t dtype,
                    uint32_t reduction);

#endif
