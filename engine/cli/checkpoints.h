/* checkpoints.h - what inspect says of checkpoints */
#ifndef CLI_CHECKPOINTS_H
#define CLI_CHECKPOINTS_H

#include <jansson.h>
#include <paceline.h>
#include <stdbool.h>

bool cli_is_checkpoint(const char *folder);

/* The manifest, with "verified" when every block was read; to be decref'd; NULL with an
 * error. */
json_t *cli_checkpoint_read(const char *path, bool verify, pl_error_t *err);
void cli_checkpoint_show(const json_t *manifest);

/* Those of a run directory by name: {"step": …, "epoch": …, "bytes": …} or {"refused":
 * "why"}; to be decref'd. */
json_t *cli_checkpoints_list(const char *run_dir, bool verify);
void cli_checkpoints_show(json_t *list);

#endif
