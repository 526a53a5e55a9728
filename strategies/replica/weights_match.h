/* weights_match.h - whether weights fit a module, and where they do not */
#ifndef PL_STRATEGIES_WEIGHTS_MATCH_H
#define PL_STRATEGIES_WEIGHTS_MATCH_H

#include "base/bind.h"
#include "runtime/payload.h"
#include "tensor/model.h"

/* Whether the weights have every parameter and state tensor of the model with its
 * shape, and no others, except those of objectives that the model has nothing of: it
 * was described for a stage that needs one side only. allows_more: more tensors are no
 * mistake, as a prediction needs only those of its outputs. PL_EFORMAT lists missing and
 * additional tensors and those of another shape: the first items of each and how many
 * more there are. file: the weights before pl_weights_import(), whose shapes the
 * error shows  [weights]. */
int pl_weights_match(const pl_model_t *model, const pl_instance_t *module,
                     const pl_weights_t *weights, const pl_weights_t *file,
                     bool allows_more, pl_error_t *err);

/* Whether the weights have a tensor of a model, with its shape. */
bool pl_weights_fit(const pl_weights_t *weights, const pl_tensor_info_t *tensor);

/* The weights under the names that a module's import_tensor() gives them: for files of
 * other programs. A new counted object; those of a module without import_tensor(),
 * and those of our own files, with one more reference. NULL: PL_ENOMEM, PL_EFORMAT. */
pl_weights_t *pl_weights_import(const pl_instance_t *module, pl_weights_t *weights,
                                pl_error_t *err);

#endif
