/* memory_plan.h - liveness of the values of a graph, and an allocation for each
 *
 * Memory planning that any accelerator can use.  Values that are computed share one
 * arena: two of them may share bytes when their live ranges do not overlap.  A value
 * may be overwritten only after its last reader.  Time is the number of the operation,
 * or of the fused kernel it runs in.  Reading a region (or a view of one) means: as it
 * is when the operation runs. */
#ifndef PL_TENSOR_MEMORY_PLAN_H
#define PL_TENSOR_MEMORY_PLAN_H

#include "tensor/graph.h"

#define PL_ARENA_ALIGN 64

/* What an accelerator does that a graph does not say.  All zero: each operation runs
 * by itself, only a reshape is a view, nothing happens in place. */
typedef struct pl_memory_plan_rules {
    const int *time;                    /* [operations] when each runs, never falling;
                                           those of one fused kernel share a time [its own
                                           number] */
    const bool *inside;                 /* [values] never stored: read only within their
                                           fused kernel [none] */
    /* Whether the operation's first output is only a view of its first input
     * [reshape]. */
    bool (*is_view)(const pl_graph_t *g, int op, void *user);
    /* Whether the first output of `op` may take the very place of `input`, which is
     * read at the same time and never again and has at least as many bytes: true only
     * where element i is written after its last read at that time  [never]. */
    bool (*in_place)(const pl_graph_t *g, int op, int32_t input, void *user);
    /* Whether the first output of `op` lies in the arena even where the assign to
     * `target` could be spared  [never]. */
    bool (*must_stay)(const pl_graph_t *g, int op, const pl_value_t *target, void *user);
    /* To store a value  [elements times size]. */
    size_t (*bytes)(const pl_graph_t *g, int32_t value, void *user);
    void *user;
} pl_memory_plan_rules_t;

typedef enum pl_allocation_kind {
    PL_ALLOCATION_NONE,           /* nobody reads it, or it stays inside a fused kernel */
    PL_ALLOCATION_EXTERNAL,       /* batch field, region, step scalar, constant: see
                                     root */
    PL_ALLOCATION_ARENA,          /* `offset` bytes into the arena */
    PL_ALLOCATION_TARGET,         /* computed where its assign would put it:
                                     `region`, from element `offset` on */
} pl_allocation_kind_t;

typedef struct pl_allocation {
    pl_allocation_kind_t kind;
    int32_t root;                       /* whose memory it is: its own, that of the value
                                           it is a view of, or of the value whose place it
                                           took */
    pl_region_t region;                 /* PL_ALLOCATION_TARGET */
    int64_t offset;
    int first_use, last_use;           /* time when it is written and last read, views
                                          included; what a fetch reads dies after the last
                                          operation */
} pl_allocation_t;

typedef struct pl_memory_plan {
    pl_allocation_t *allocation;       /* [values] */
    bool *done;                        /* [operations] assigns that have nothing left to
                                          do, for their value is a PL_ALLOCATION_TARGET */
    size_t arena;                      /* bytes of the whole arena */
} pl_memory_plan_t;

/* Plans a graph (after pl_graph_prune); rules may be NULL.  The plan refers to values
 * and operations by number. */
int pl_memory_plan_build(pl_memory_plan_t *plan, const pl_graph_t *g,
                         const pl_memory_plan_rules_t *rules, pl_error_t *err);
void pl_memory_plan_release(pl_memory_plan_t *plan);

#endif
