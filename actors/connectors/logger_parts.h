/* logger_parts.h - what logger.c (metrics on their way to the loggers) and
 * logger_positions.c (how far those have come) share */
#ifndef PL_CONNECTORS_LOGGER_PARTS_H
#define PL_CONNECTORS_LOGGER_PARTS_H

#include "actors/connectors/connectors.h"
#include "actors/connectors/records.h"
#include "runtime/actor.h"

typedef struct sink {
    pl_log_component_t *component;                          /* counted */
    pl_address_t recorder;
    bool started;
    pl_records_t *waiting, *under_way;  /* counted  [none] */
    char *position;           /* the newest that it has synced  [NULL: ""] */
    bool asked;               /* for its position behind what waits: what comes then is */
    pl_records_t *behind;     /* counted  [none] */
    bool awaited;             /* by who asked */
    char *kept;               /* that position, or the newest; until all have theirs */
    bool is_resume;           /* the checkpoint of the run knows this logger */
    uint64_t resumed;         /* records behind the position that belong to it, there */
    uint64_t written;         /* records since that position, those included */
    uint64_t at, asked_at;    /* of them, when it synced the newest; when it was asked */
    uint64_t lacking;         /* with `kept`: records that are behind it */
    int64_t since, took;      /* pl_now() when it was given work; ns, the newest */
    uint64_t taken, lost;     /* records of the run */
    bool reported_lost, reported_unsynced;  /* each is said once in a run */
} sink_t;

typedef struct logger {
    sink_t *sink;
    int count, ready;
    bool gathering;                          /* a timer is set */
    pl_call_t *asking;                       /* get_state  [not now] */
    uint64_t global_step, resumed_step;      /* of the newest metrics; where it went on */
    char status[16];                         /* of the run  [it goes on] */
    bool ending, interrupted;
} logger_t;

static inline const pl_logger_ops_t *ops_of(const sink_t *sink)
{
    return sink->component->component.ops;
}

/* logger.c: gives a logger that is ready what waits for it. */
void sink_go_on(logger_t *logger, sink_t *sink);

/* logger_positions.c: */
/* What it has synced  [NULL: it does not say]. */
void sink_keep_position(sink_t *sink, const char *position);
/* All that came before it was asked is where it belongs. */
void sink_tell(logger_t *logger, sink_t *sink);
/* Handlers of get_state and set_state. */
int logger_on_get_state(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err);
int logger_on_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err);

#endif
