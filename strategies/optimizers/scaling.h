/* scaling.h - the factor of the loss: used, checked and moved by the optimizer's step */
#ifndef PL_SCALING_H
#define PL_SCALING_H

#include "tensor/model.h"

/* Moves the factor of the next step; what is described after it happens only when loss
 * and norm are finite.  Otherwise the step is skipped, state goes back to what it was,
 * and the factor falls; at its lowest nothing of this happens.  Logs "loss_scale", the
 * next factor, 0 for a step that is not finite at the lowest, and "skipped_steps", those
 * of the run. */
void pl_scaling_step(pl_graph_t *g, const pl_model_t *model, pl_node_t loss,
                     pl_node_t norm);

#endif
