/* weights.h - files of weights, checkpoints and the runs they belong to
 *
 * JSON values that are returned belong to the caller. */
#ifndef CLI_WEIGHTS_H
#define CLI_WEIGHTS_H

#include <dirent.h>
#include <jansson.h>
#include <limits.h>
#include <paceline.h>
#include <stdbool.h>

#define CLI_WEIGHTS "model.safetensors"
#define CLI_CHECKPOINTS "checkpoints"
#define CLI_MANIFEST "manifest.json"

/* {"tensors": …, "metadata": …} of a file of weights; NULL with an error. */
json_t *cli_weights_read(const char *path, pl_error_t *err);

/* pl_run_describe() of a run directory; NULL with an error. */
json_t *cli_run_weights(const char *run_dir, pl_error_t *err);

/* The manifest of a checkpoint. With `verify` every block is read, and the manifest gets
 * "verified". NULL with an error. */
json_t *cli_checkpoint_read(const char *path, bool verify, pl_error_t *err);
bool cli_is_checkpoint(const char *folder);

/* For scandir(): files whose names do not begin with a dot. */
int cli_is_visible(const struct dirent *entry);

/* The file of weights of a path: of a checkpoint its model, of a run the one that
 * cli_run_weights() chooses  ["": none]. */
void cli_weights_file(const char *checkpoint, char file[PATH_MAX]);

/* The data info stored in the weights of a file or run directory  [NULL: none]. */
json_t *cli_weights_data_info(const char *checkpoint);

/* Options of the run's module that are "auto", such as the task, get the value that the
 * weights were trained with, if they are of this module. */
int cli_weights_module(pl_options_t *options, const char *checkpoint, pl_error_t *err);

/* Refuses a directory without weights, such as an aborted run behind runs/latest,
 * and names the newest run beside it that has weights. */
int cli_weights_check(const char *checkpoint, pl_error_t *err);

#endif
