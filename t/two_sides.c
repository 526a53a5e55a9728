/* two_sides.c - the graph of a module with two objectives, for tests */
#include "two_sides.h"

#include "rig.h"

const pl_option_t two_sides_options[] = {
    PL_INT(two_sides_t, every, "1", NULL, "of the second objective"),
    PL_OPTIONS_END,
};

int64_t two_sides_every(const void *self)
{
    return ((const two_sides_t *)self)->every;
}

pl_node_t two_sides_first(pl_graph_t *g)
{
    return pl_linear(g, "a.fc", pl_flatten(g, pl_input(g, "x"), 1), RIG_CLASSES);
}

pl_node_t two_sides_second(pl_graph_t *g)
{
    return pl_linear(g, "b.fc", pl_tanh(g, two_sides_first(g)), RIG_CLASSES);
}

void two_sides_first_objective(pl_graph_t *g, const void *self)
{
    (void)self;
    pl_loss(g, pl_cross_entropy(g, two_sides_first(g), pl_input(g, "y"), NULL));
}

void two_sides_second_objective(pl_graph_t *g, const void *self)
{
    (void)self;
    pl_loss(g, pl_cross_entropy(g, two_sides_second(g), pl_input(g, "y"), NULL));
}

void two_sides_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)stage;
    two_sides_second_objective(g, self);
}
