/* weights_match.h - whether weights fit a module, and in what they do not */
#ifndef PL_STRATEGIES_WEIGHTS_MATCH_H
#define PL_STRATEGIES_WEIGHTS_MATCH_H

#include "base/bind.h"
#include "runtime/payload.h"
#include "tensor/model.h"

/* Every parameter and state tensor of the model is among the weights with its shape, and
 * no other parameter or state tensor is, but for those of the module's objectives that
 * the model has nothing of: it was described for a stage that takes one side alone.
 * PL_EFORMAT lists what is missing, what is too much and what has another shape, with the
 * first items of each and how many more there are.  file: the weights before
 * pl_weights_import(), whose shapes are those that the error has  [weights]. */
int pl_weights_match(const pl_model_t *model, const pl_instance_t *module,
                     const pl_weights_t *weights, const pl_weights_t *file,
                     pl_error_t *err);

/* Whether a tensor of a model is among the weights, with its shape. */
bool pl_weights_fit(const pl_weights_t *weights, const pl_tensor_info_t *tensor);

/* The weights under the names that a module's import_tensor() gives them: for files of
 * other programs.  A new counted object; those of a module without import_tensor(),
 * and those of our own files, as they are, counted once more.  NULL: PL_ENOMEM,
 * PL_EFORMAT. */
pl_weights_t *pl_weights_import(const pl_instance_t *module, pl_weights_t *weights,
                                pl_error_t *err);

#endif
