/* weights.h - weights in safetensors files, checkpoints and run directories
 *
 * The weights of a run directory are the weights of its best checkpoint, if a
 * model_checkpoint monitors a metric. Otherwise they are the last weights: the newest
 * checkpoint, or the weights at the end of the run. */
#ifndef PL_CONNECTORS_WEIGHTS_H
#define PL_CONNECTORS_WEIGHTS_H

#include "paceline.h"

struct pl_checksums;
struct pl_safetensors;
struct pl_weights;

/* The file of the weights in a run directory. */
#define PL_WEIGHTS_FILE "model.safetensors"

typedef enum pl_weights_part {
    PL_WEIGHTS_MODULE,
    PL_WEIGHTS_OPTIMIZER
} pl_weights_part_t;

/* Writes the tensors of the module or the optimizer after global_step steps to a
 * safetensors file, durably, and sets the file's checksums  [sums NULL: not needed];
 * errors of pl_safetensors_write(). */
int pl_weights_write_part(const char *path, const struct pl_weights *weights,
                          pl_weights_part_t part, uint64_t global_step,
                          struct pl_checksums *sums, pl_error_t *err);
/* The module's tensors. */
int pl_weights_write(const char *path, const struct pl_weights *weights,
                     uint64_t global_step, pl_error_t *err);

/* Copies module and data info from the file's metadata, unless they are set. */
int pl_weights_read_metadata(struct pl_weights *weights,
                             const struct pl_safetensors *file, pl_error_t *err);

/* The weights of a file, a checkpoint, or a run directory.  PL_ENOTFOUND, PL_EIO,
 * PL_EFORMAT, PL_EUNSUPPORTED name file and tensor.  NULL after an error. */
struct pl_weights *pl_weights_read(const char *path, pl_error_t *err);

/* The path of the best checkpoint according to the states of the callbacks, a JSON array
 * of {name, state}; to be freed  [NULL: no callback monitors a metric, or its checkpoint
 * does not exist]. *restores: its callback has restore_best. */
int pl_run_weights_best(const char *run_dir, const char *callbacks, char **path_p,
                        bool *restores, pl_error_t *err);
/* Makes a checkpoint the end of a run: its model file, of these weights, becomes the one
 * of the run directory, and its values of "train_" and "val_" metrics replace those in
 * *metrics_p, JSON from pl_alloc(). */
int pl_run_weights_restore(const char *run_dir, const char *checkpoint,
                           const struct pl_weights *weights, char **metrics_p,
                           pl_error_t *err);

#endif
