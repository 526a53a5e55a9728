/* memory_plan.h - liveness of the values of a graph, and an allocation for each
 *
 * Memory planning that any accelerator can use.  Values that are computed share one
 * arena: two of them may share bytes when their live ranges do not overlap.  A value
 * may be overwritten only after its last reader.  Time is the number of the operation,
 * or of the fused kernel it runs in.  An operation reads a region, or a view of
 * one, at the time when it runs. */
#ifndef PL_TENSOR_MEMORY_PLAN_H
#define PL_TENSOR_MEMORY_PLAN_H

#include "tensor/graph.h"

#define PL_ARENA_ALIGN 64

/* Properties of the accelerator.  All zero: each operation runs by itself, only a reshape
 * is a view, and no operation works in place. */
typedef struct pl_memory_plan_rules {
    const int *time;                    /* [operations] when each runs, never falling; one
                                           fused kernel has one time  [the operation's
                                           number] */
    const bool *inside;                 /* [values] never stored: read only within their
                                           fused kernel  [none] */
    /* Whether the operation's first output is only a view of its first input
     * [reshape]. */
    bool (*is_view)(const pl_graph_t *g, int op, void *user);
    /* Whether the first output of `op` may take the place of `input`, which is read at
     * the same time for the last time and has at least as many bytes: true only if
     * element i is written after its last read  [never]. */
    bool (*in_place)(const pl_graph_t *g, int op, int32_t input, void *user);
    /* Whether the first output of `op` must be in the arena, although it could be
     * computed in `target`, to which it is assigned  [never]. */
    bool (*must_stay)(const pl_graph_t *g, int op, const pl_value_t *target, void *user);
    /* The bytes of a stored value  [elements times size]. */
    size_t (*bytes)(const pl_graph_t *g, int32_t value, void *user);
    void *user;
} pl_memory_plan_rules_t;

typedef enum pl_allocation_kind {
    PL_ALLOCATION_NONE,                 /* not read, or inside a fused kernel */
    PL_ALLOCATION_EXTERNAL,             /* batch field, region, step scalar, constant: see
                                           root */
    PL_ALLOCATION_ARENA,                /* `offset` bytes into the arena */
    PL_ALLOCATION_TARGET,               /* computed in the target of its assignment:
                                           `region`, from element `offset` on */
} pl_allocation_kind_t;

typedef struct pl_allocation {
    pl_allocation_kind_t kind;
    int32_t root;                        /* the owner of the memory: the value itself, the
                                            value of which it is a view, or whose place it
                                            took */
    pl_region_t region;                  /* PL_ALLOCATION_TARGET */
    int64_t offset;
    int first_use, last_use;              /* time when it is written and last read, views
                                             included; a fetched value dies after the last
                                             operation */
} pl_allocation_t;

typedef struct pl_memory_plan {
    pl_allocation_t *allocation;       /* [values] */
    bool *done;                        /* [operations] assignments whose value is computed
                                          in the target */
    size_t arena;                      /* bytes of the whole arena */
} pl_memory_plan_t;

/* Plans a graph (after pl_graph_prune); rules may be NULL.  The plan refers to values
 * and operations by number. */
int pl_memory_plan_build(pl_memory_plan_t *plan, const pl_graph_t *g,
                         const pl_memory_plan_rules_t *rules, pl_error_t *err);
void pl_memory_plan_release(pl_memory_plan_t *plan);

#endif
