/* weights.h - what is stored in a file of weights and beside it */
#ifndef CLI_WEIGHTS_H
#define CLI_WEIGHTS_H

#include <jansson.h>
#include <limits.h>
#include <paceline.h>

#define CLI_WEIGHTS "model.safetensors"
#define CLI_CHECKPOINTS "checkpoints"
#define CLI_MANIFEST "manifest.json"

/* {"tensors": …, "metadata": …} of a file of weights, to be decref'd; NULL with an
 * error. */
json_t *cli_weights_read(const char *path, pl_error_t *err);

/* pl_run_describe() of a run directory, to be decref'd; NULL with an error. */
json_t *cli_run_weights(const char *run_dir, pl_error_t *err);

/* The file of weights that a path stands for: of a checkpoint its model, of a run what
 * cli_run_weights() says; "" when there is none. */
void cli_weights_file(const char *checkpoint, char file[PATH_MAX]);

/* What its data knew of itself: stored beside the weights of a file or run directory.
 * To be decref'd; NULL: nothing. */
json_t *cli_weights_data_info(const char *checkpoint);

/* Refuses a directory without weights, as a run that was aborted leaves it behind
 * runs/latest, and names the newest run beside it that has them. */
int cli_weights_check(const char *checkpoint, pl_error_t *err);

#endif
