/* run_options.h - what connectors that write are told in `start` */
#ifndef PL_CONNECTORS_RUN_OPTIONS_H
#define PL_CONNECTORS_RUN_OPTIONS_H

#include "paceline.h"

/* The run directory out of {"run_dir": …}, to be freed by pl_free(); *run_dir_p stays
 * NULL when there is none. */
int pl_run_options(const char *options, char **run_dir_p, pl_error_t *err);

/* The other way; pl_text_free() frees it. */
char *pl_run_options_text(const char *run_dir, pl_error_t *err);

#endif
