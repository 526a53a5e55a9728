/* model_inputs.h - samples in memory as the module was trained to take them */
#ifndef PL_MODEL_INPUTS_H
#define PL_MODEL_INPUTS_H

#include "actors/connectors/datasets/moments.h"
#include "paceline.h"

/* What the data set of the training did to "x". */
typedef struct pl_model_inputs {
    pl_moments_t *moments;                         /* [count], of each number or of all */
    int count;                                     /* [0: nothing] */
} pl_model_inputs_t;

/* From the data info that the weights brought along  [NULL: none]. */
int pl_model_inputs_init(pl_model_inputs_t *inputs, const char *data_info,
                         pl_error_t *err);
void pl_model_inputs_release(pl_model_inputs_t *inputs);

/* What the module gets of a field as it is given: bytes and doubles become float32.
 * PL_EINVAL: "x" has other numbers than in training. */
int pl_model_inputs_field(const pl_model_inputs_t *inputs, const pl_field_t *given,
                          pl_field_t *field, pl_error_t *err);

/* Writes so many samples of the given field, from `at` on, as that. */
void pl_model_inputs_fill(const pl_model_inputs_t *inputs, const pl_field_t *given,
                          const void *data, int64_t at, int64_t samples, void *out);

#endif
