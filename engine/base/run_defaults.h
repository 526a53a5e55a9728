/* run_defaults.h - a run with every default in it */
#ifndef PL_BASE_RUN_DEFAULTS_H
#define PL_BASE_RUN_DEFAULTS_H

#include <jansson.h>
#include <stdbool.h>

#include "paceline.h"

/* A new run in the order of the tables; of components that nobody knows only what is
 * given. */
json_t *pl_run_with_defaults(const json_t *root, pl_error_t *err);

/* Whether a data section names sources apart. */
bool pl_data_has_sources(const json_t *data);

/* A new object: what a section says to its component, without keys of the table; to be
 * decref'd. */
json_t *pl_component_without(const json_t *value, const pl_option_t *general,
                             pl_error_t *err);

/* The same of a data section and its data set. */
json_t *pl_data_source_component(const json_t *data, pl_error_t *err);

/* What max_epochs is when it is not given: without a limit of steps there must be one of
 * epochs. */
int64_t pl_default_epochs(const json_t *trainer);

#endif
