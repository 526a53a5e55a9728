/* two_sides.h - the graph of a module with two objectives, for tests: the second side
 * reads the first */
#ifndef T_TWO_SIDES_H
#define T_TWO_SIDES_H

#include "paceline.h"

/* Options of a module: every so many steps the second objective has one. */
typedef struct two_sides {
    int64_t every;
} two_sides_t;
extern const pl_option_t two_sides_options[];
int64_t two_sides_every(const void *self);

/* Logits of rig.h's classes; parameters a.fc.*, and a.fc.* and b.fc.*. */
pl_node_t two_sides_first(pl_graph_t *g);
pl_node_t two_sides_second(pl_graph_t *g);

/* The cross entropy of each side, and of the second as the step of a module. */
void two_sides_first_objective(pl_graph_t *g, const void *self);
void two_sides_second_objective(pl_graph_t *g, const void *self);
void two_sides_step(pl_graph_t *g, const void *self, pl_stage_t stage);

#endif
