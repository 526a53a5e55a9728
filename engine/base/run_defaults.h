/* run_defaults.h - a run with every default */
#ifndef PL_BASE_RUN_DEFAULTS_H
#define PL_BASE_RUN_DEFAULTS_H

#include <jansson.h>
#include <stdbool.h>

#include "paceline.h"

/* A new run in the order of the tables.  A component that is not registered has only its
 * given options. */
json_t *pl_run_with_defaults(const json_t *root, pl_error_t *err);

/* Whether a data section has sources for the stages. */
bool pl_data_has_sources(const json_t *data);
/* A part of the training data is for validation. */
bool pl_data_splits(const json_t *data);

/* The options of a section's component, such as the data set of a data section, without
 * the keys of the table: a new reference. */
json_t *pl_component_without(const json_t *value, const pl_option_t *general,
                             pl_error_t *err);

/* The default of max_epochs: without a limit of steps or time, epochs need one. */
int64_t pl_default_epochs(const json_t *trainer);

#endif
