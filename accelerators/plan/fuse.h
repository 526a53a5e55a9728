/* fuse.h - groups operations into units that run together
 *
 * Element-wise operations over the same number of elements that share values run as one
 * unit, in one pass over memory.  Any other operation is a unit by itself, or the core of
 * one on devices that support cores.  A reshape does not run. */
#ifndef PL_PLAN_FUSE_H
#define PL_PLAN_FUSE_H

#include "tensor/graph.h"

typedef struct pl_fusion {
    int *unit;                            /* [operations] its unit; in ascending order */
    bool *inside;                         /* [values] read only within the unit that makes
                                             them */
    int32_t *root;                        /* [values] the value that a reshape shows, or
                                             itself */
    int units;
} pl_fusion_t;

/* Limits of a device for one unit. */
typedef struct pl_unit_limits {
    int operands;                            /* values read or made, counted once for each
                                                way of repeating them */
    int lines;                               /* operations */
    int dropouts, totals;                    /* operations of these kinds */
    bool cores;                              /* see pl_unit_core() */
    const struct pl_view *view;              /* views of a lowered graph; then a concat of
                                                an attention's gradients alone joins their
                                                unit  [none does] */
    /* The result of the product whose unit operation `op` may join, because it reads the
     * result or runs next to the product; -1: none  [none joins a product]. */
    int32_t (*front)(const pl_graph_t *g, int op, void *user);
    void *user;
} pl_unit_limits_t;

/* Groups the operations of a graph and sorts them by unit. */
int pl_fuse(pl_fusion_t *fusion, pl_graph_t *g, const pl_unit_limits_t *limits,
            pl_error_t *err);
void pl_fusion_release(pl_fusion_t *fusion);

/* True for a sum or a norm of all elements, which a program can compute. */
bool pl_is_total(const pl_graph_t *g, const pl_op_t *op);
/* True for operations that run element by element, including assigns and totals. */
bool pl_is_elementwise(const pl_graph_t *g, const pl_op_t *op);
/* Number of elements over which an element-wise operation runs. */
int64_t pl_op_elements(const pl_graph_t *g, const pl_op_t *op);
/* True if the result of an element-wise operation may overwrite an input of its unit:
 * element i is read before it is written.  For pl_memory_plan_rules_t.in_place. */
bool pl_unit_in_place(const pl_fusion_t *fusion, const pl_graph_t *g, int op,
                      int32_t input);
/* The core of a unit, its first operation that is not element-wise; -1: no core.  With
 * limits.cores, element-wise operations before the core make its first input, and those
 * after it read its first output.  A concat of only the core's outputs may follow it, the
 * gradient of a cross-entropy the cross-entropy, and sums a product.  Only an assign that
 * adds it follows a gradient. */
int pl_unit_core(const pl_graph_t *g, int from, int to);
/* The place of input k within the result of a concat, in the shape of the input's value;
 * `view` has the views of its inputs.  False: strides cannot express it. */
bool pl_concat_place(const pl_graph_t *g, const pl_op_t *concat,
                     const struct pl_view *view, int k, struct pl_view *place);
/* True if operations [from, to) need no call: reshapes, and assigns that are done. */
bool pl_unit_is_nothing(const pl_graph_t *g, const bool *done, int from, int to);
/* The first of them that is not a reshape: the first unit may begin with reshapes of
 * values that exist from the start. */
int pl_unit_first(const pl_graph_t *g, int from, int to);
/* True if two values of a region have elements in common. */
bool pl_values_overlap(const pl_value_t *a, const pl_value_t *b);

#endif
