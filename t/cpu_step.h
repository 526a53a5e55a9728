/* cpu_step.h - one training step of a described model on the CPU, for tests that compare
 * ways to compute it */
#ifndef T_CPU_STEP_H
#define T_CPU_STEP_H

#include "cpu_rig.h"

enum { CPU_STEP_BATCH = 16, CPU_STEP_WIDTH = 64 };

typedef struct cpu_step {
    float *grads, *state;
    int64_t params, states;                              /* elements, the loss included */
    double metrics[4];
    size_t arena;                                           /* bytes */
} cpu_step_t;

/* The graph of the step with its gradients; its input "x" is float32 [BATCH, WIDTH]. */
pl_graph_t *cpu_step_graph(pl_model_t *model, void (*describe)(pl_graph_t *g),
                           const pl_precision_ops_t *precision, pl_error_t *err);

/* Computes the step; the same model has the same parameters and samples each time. */
bool cpu_step_run(void (*describe)(pl_graph_t *g), const pl_precision_ops_t *precision,
                  cpu_step_t *to);
void cpu_step_release(cpu_step_t *step);

#endif
