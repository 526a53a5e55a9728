/* fuse.h - which operations run together
 *
 * Element-wise operations over the same number of elements that share values run as one
 * unit, one pass over memory.  Any other operation is a unit of its own, or the core of
 * one for devices that can do that.  A reshape is not run at all. */
#ifndef PL_PLAN_FUSE_H
#define PL_PLAN_FUSE_H

#include "tensor/graph.h"

typedef struct pl_fusion {
    int *unit;                            /* [operations] which runs in which unit; never
                                             falling */
    bool *inside;                         /* [values] read only within the unit that makes
                                             them */
    int32_t *root;                        /* [values] reshapes traced to what they show */
    int units;
} pl_fusion_t;

/* How much a device can run as one unit. */
typedef struct pl_unit_limits {
    int operands;                            /* values that it reads or makes, each way of
                                                repeating one by itself */
    int lines;                               /* operations */
    int dropouts, totals;                    /* of which so many draw, and add up */
    bool cores;                              /* see pl_unit_core() */
    const struct pl_view *view;              /* of a lowered graph: with cores */
    /* The result of the product that operation `op`, which reads it or stands beside it,
     * may follow as one of its unit; -1  [none follows a product]. */
    int32_t (*front)(const pl_graph_t *g, int op, void *user);
    void *user;
} pl_unit_limits_t;

/* Groups the operations of a graph and puts them into an order in which those of a unit
 * are neighbours. */
int pl_fuse(pl_fusion_t *fusion, pl_graph_t *g, const pl_unit_limits_t *limits,
            pl_error_t *err);
void pl_fusion_release(pl_fusion_t *fusion);

/* Whether it is a sum of all elements, which a program can take along. */
bool pl_is_total(const pl_graph_t *g, const pl_op_t *op);
/* Whether it works element by element; an assign and a total do. */
bool pl_is_elementwise(const pl_graph_t *g, const pl_op_t *op);
/* The elements that an element-wise operation runs over. */
int64_t pl_op_elements(const pl_graph_t *g, const pl_op_t *op);
/* Whether the result of an element-wise operation may take the place of an input of its
 * unit: element i is read before it is written.  For pl_memory_plan_rules_t.in_place. */
bool pl_unit_in_place(const pl_fusion_t *fusion, const pl_graph_t *g, int op,
                      int32_t input);
/* The operation of a unit that is no element-wise one: its core; -1: they all are.  With
 * limits.cores those before it make the core's first input, element by element, and those
 * behind it continue with its first output; or a concat follows, of the core's outputs
 * alone; or the gradient of a cross-entropy follows it; or sums follow a product.
 * Gradients are followed only by the assign that adds them. */
int pl_unit_core(const pl_graph_t *g, int from, int to);
/* Whether operations [from, to) come to nothing: reshapes, and assigns that are done. */
bool pl_unit_is_nothing(const pl_graph_t *g, const bool *done, int from, int to);
/* The first of them that is no reshape: reshapes of values that are there from the start
 * come first in the first unit. */
int pl_unit_first(const pl_graph_t *g, int from, int to);
/* Whether two values of a region have elements in common. */
bool pl_values_overlap(const pl_value_t *a, const pl_value_t *b);

#endif
