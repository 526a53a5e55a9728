/* run_options.h - what connectors that write are told in `start` */
#ifndef PL_CONNECTORS_RUN_OPTIONS_H
#define PL_CONNECTORS_RUN_OPTIONS_H

#include <jansson.h>

#include "paceline.h"

/* The run directory out of {"run_dir": …, "data": …}, to be freed by pl_free(), and the
 * content of the data, counted  [data_p NULL: not wanted]; what is not there stays NULL.
 */
int pl_run_options(const char *options, char **run_dir_p, json_t **data_p,
                   pl_error_t *err);

/* The other way, data being JSON  [NULL or "": not known]; pl_text_free() frees it. */
char *pl_run_options_text(const char *run_dir, const char *data, pl_error_t *err);

#endif
