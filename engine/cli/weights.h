/* weights.h - files in a run directory, as values */
#ifndef CLI_WEIGHTS_H
#define CLI_WEIGHTS_H

#include <jansson.h>
#include <paceline.h>

#define CLI_WEIGHTS "model.safetensors"

/* {"tensors": …, "metadata": …} of a file of weights, to be decref'd; NULL with an
 * error. */
json_t *cli_weights_read(const char *path, pl_error_t *err);

/* What its data knew of itself: stored beside the weights of a file or run directory.
 * To be decref'd; NULL: nothing. */
json_t *cli_weights_facts(const char *checkpoint);

#endif
