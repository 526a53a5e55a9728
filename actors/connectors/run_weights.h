/* run_weights.h - which weights a run directory stands for
 *
 * The best, where a model_checkpoint has a metric to go by; else what was made last: the
 * newest checkpoint, or what the run ended with. */
#ifndef PL_CONNECTORS_RUN_WEIGHTS_H
#define PL_CONNECTORS_RUN_WEIGHTS_H

#include <stdbool.h>

#include "paceline.h"

typedef struct pl_run_choice {
    char *path;                                            /* of a checkpoint or file */
    const char *which;                                     /* "best", "newest", "final" */
    char *monitor;                                         /* of the best  [NULL] */
    bool is_file;
} pl_run_choice_t;

/* In the order in which they are to be taken. */
typedef struct pl_run_weights {
    pl_run_choice_t *at;
    int count, capacity;
} pl_run_weights_t;

/* At least one.  PL_ENOTFOUND: there is none; PL_EFORMAT: none that could be read, by its
 * name. */
int pl_run_weights_list(const char *run_dir, pl_run_weights_t *all, pl_error_t *err);
void pl_run_weights_release(pl_run_weights_t *all);

/* The path of the best checkpoint by what callbacks have kept of themselves, a JSON array
 * of {name, state}; to be freed  [NULL: none of them has a metric to go by, or what it
 * kept is not there]. */
int pl_run_weights_best(const char *run_dir, const char *callbacks, char **path_p,
                        pl_error_t *err);

#endif
