/* sample_operator.h - an operator as users write them, for tests: y = factor x w over
 * rows x [..., C] with one w [C] */
#ifndef T_SAMPLE_OPERATOR_H
#define T_SAMPLE_OPERATOR_H

#include "paceline.h"

typedef struct sample_gate {
    double factor;
} sample_gate_t;

/* "gate"; its kernels are for "cpu", in float64 for "reference", and a text for GPUs. */
extern const pl_operator_ops_t sample_gate;
/* "hosted gate": the same without a text; its gradient is made of the other. */
extern const pl_operator_ops_t sample_hosted_gate;

#endif
