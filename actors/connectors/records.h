/* records.h - metrics on their way from the logger connector to the loggers
 *
 * Counted objects, because each logger takes its own time: a record is shared by all
 * loggers it is for, and not changed once made. */
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

/* A copy; record->metrics may go. */
pl_logged_t *pl_logged_new(const pl_record_t *record, pl_error_t *err);

/* Those that a logger gets next, oldest first. */
typedef struct pl_records {
    pl_object_t object;
    pl_logged_t **logged;                                   /* [count], counted */
    int count, capacity;
    size_t size;                                            /* of all texts, bytes */
} pl_records_t;

pl_records_t *pl_records_new(pl_error_t *err);
int pl_records_add(pl_records_t *records, pl_logged_t *logged, pl_error_t *err);

/* A logger of the run: shared by the connector, which may interrupt it, and the recorder,
 * whose thread alone does all else with it. */
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
