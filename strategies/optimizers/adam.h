/* adam.h - what Adam, AdamW and Muon share: the options and the step along the two
 * moments */
#ifndef PL_ADAM_H
#define PL_ADAM_H

#include "paceline.h"

typedef struct adam {
    double lr, beta1, beta2, eps, weight_decay;
    bool amsgrad;
} adam_t;

int pl_adam_slots(const void *self);
void pl_adam_scalars(const void *self, uint64_t step, double scalar[PL_SCALARS]);

/* Updates the moments by grad and assigns `from` - lr times the bias-corrected step
 * to the parameter. */
void pl_adam_step(pl_graph_t *g, const adam_t *adam, const pl_update_t *u, pl_node_t from,
                  pl_node_t grad);

#endif
