/* records.h - metrics on the way from the logger connector to the loggers
 *
 * Records are counted objects that do not change: all loggers share them, and each takes
 * its own time. */
#ifndef PL_CONNECTORS_RECORDS_H
#define PL_CONNECTORS_RECORDS_H

#include "runtime/actor.h"

/* Metrics at one point of the run. */
typedef struct pl_logged {
    pl_object_t object;
    pl_record_t record;                                     /* its text is the object's */
    size_t size;                                            /* of the text, bytes */
    struct pl_weights *weights;                             /* counted  [metrics] */
    char metrics[];
} pl_logged_t;

/* Copies record->metrics. */
pl_logged_t *pl_logged_new(const pl_record_t *record, pl_error_t *err);

/* The next records for a logger, oldest first. */
typedef struct pl_records {
    pl_object_t object;
    pl_logged_t **logged;                                   /* [count], counted */
    int count, capacity;
    size_t size;                                            /* of all texts, bytes */
} pl_records_t;

pl_records_t *pl_records_new(pl_error_t *err);
int pl_records_add(pl_records_t *records, pl_logged_t *logged, pl_error_t *err);

/* A logger of the run.  The connector may interrupt it; all other functions are called on
 * the recorder's thread. */
typedef struct pl_log_component {
    pl_object_t object;
    pl_instance_t component;                                /* pl_logger_ops_t */
    char *run_dir;
    char *run;                                              /* the effective run file */
} pl_log_component_t;

/* Takes the component over, also on failure. */
pl_log_component_t *pl_log_component_new(pl_instance_t *component, const char *run_dir,
                                         const char *run, pl_error_t *err);

#endif
