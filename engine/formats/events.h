/* events.h - TensorBoard's event files
 *
 * A file is a sequence of records, framed as TensorFlow's TFRecord: length, its checksum,
 * bytes, their checksum, each a masked CRC32C. A record is an Event of
 * tensorflow/core/util/event.proto with a Summary of core/framework/summary.proto. */
#ifndef PL_FORMATS_EVENTS_H
#define PL_FORMATS_EVENTS_H

#include "formats/append.h"
#include "paceline.h"

/* Time and step of a record. */
typedef struct pl_event_time {
    double time;                                            /* s since 1970 */
    int64_t step;
} pl_event_time_t;

typedef struct pl_event_scalar {
    const char *tag;
    double value;                                           /* stored as float32 */
} pl_event_scalar_t;

/* A hyperparameter: a text, or else a number. */
typedef struct pl_event_hparam {
    const char *name;
    const char *text;                                       /* [a number] */
    double number;
    bool is_truth;                                          /* number is false or true */
} pl_event_hparam_t;

/* Each adds a record to the next flush of the file. */

/* The first record of a file, or, if a run was resumed, one with which readers drop
 * records of event->step and later. */
int pl_events_begin(pl_append_t *file, const pl_event_time_t *event, bool resumes,
                    pl_error_t *err);
int pl_events_scalars(pl_append_t *file, const pl_event_time_t *event,
                      const pl_event_scalar_t *scalar, int count, pl_error_t *err);
/* A text in Markdown. */
int pl_events_text(pl_append_t *file, const pl_event_time_t *event, const char *tag,
                   const char *text, pl_error_t *err);
/* For the page of hyperparameters: the values at the start of a run, and, after the
 * scalars that compare runs, its end. */
int pl_events_session(pl_append_t *file, const pl_event_time_t *event,
                      const pl_event_hparam_t *hparam, int count, pl_error_t *err);
int pl_events_session_end(pl_append_t *file, const pl_event_time_t *event, bool failed,
                          pl_error_t *err);
/* The finite ones of `count` numbers, in equal bins from the least to the greatest. */
int pl_events_histogram(pl_append_t *file, const pl_event_time_t *event, const char *tag,
                        const float *value, size_t count, pl_error_t *err);

#endif
