/* early_stopping.c - stops a run whose metric no longer improves, is good enough, or
 * diverges
 *
 * The decision depends on the metrics alone, so a resumed run stops at the same step as
 * an uninterrupted run. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "base/option.h"
#include "base/error.h"
#include "base/log.h"

typedef struct early_stopping {
    const char *monitor;
    pl_mode_t mode;
    double min_delta, stopping_threshold, divergence_threshold;  /* NaN: none */
    int64_t patience;
    bool check_finite, strict, check_on_train_epoch_end, verbose;

    double best;                                            /* NaN: none so far */
    int64_t waited;                                         /* checks since `best` */
    bool warned;
} early_stopping_t;

static const pl_option_t early_stopping_options[] = {
    PL_TEXT(early_stopping_t, monitor, "\"val_loss\"", NULL, "metric to monitor"),
    PL_WORD(early_stopping_t, mode, "\"min\"", PL_MIN_OR_MAX,
            "whether a lower or a higher value is better"),
    PL_FLOAT(early_stopping_t, min_delta, "0", "0..",
             "a smaller change is no improvement"),
    PL_INT(early_stopping_t, patience, "3", "0..",
           "number of checks without improvement before the run stops"),
    PL_FLOAT(early_stopping_t, stopping_threshold, "null", NULL,
             "stops when the metric is better than this"),
    PL_FLOAT(early_stopping_t, divergence_threshold, "null", NULL,
             "stops when the metric is worse than this"),
    PL_BOOL(early_stopping_t, check_finite, "true",
            "stop when the metric is not finite; false: count that as no improvement"),
    PL_BOOL(early_stopping_t, strict, "true",
            "a missing metric fails the run; false: warn"),
    PL_BOOL(early_stopping_t, check_on_train_epoch_end, "false",
            "check after epochs instead of validations; always so for train_ metrics"),
    PL_BOOL(early_stopping_t, verbose, "false", "log each improvement"),
    PL_OPTIONS_END,
};

static int early_stopping_start(void *self, pl_error_t *err)
{
    early_stopping_t *e = self;
    e->best = NAN;
    return *e->monitor
               ? PL_OK
               : pl_fail(err, PL_EINVAL, "set \"monitor\" to the name of a metric");
}

static bool is_better(const early_stopping_t *e, double value, double than)
{
    return e->mode == PL_MODE_MIN ? value < than : value > than;
}

static void stop_because(pl_callback_request_t *request, const char *format, ...)
    PL_PRINTF(2, 3);

static void stop_because(pl_callback_request_t *request, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(request->reason, sizeof request->reason, format, args);
    va_end(args);
    request->stop = true;
}

/* A missing metric will hardly come later. */
static int metric_missing(early_stopping_t *e, const pl_hook_event_t *event,
                          const pl_error_t *why, pl_error_t *err)
{
    if (e->strict || why->code != PL_ENOTFOUND)
        return pl_fail(err, why->code, "%s", why->text);
    if (!e->warned)
        pl_log_line(PL_LOG_WARNING, event->rank, "early_stopping", "%s", why->text);
    e->warned = true;
    return PL_OK;
}

static int early_stopping_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                             pl_callback_request_t *request, pl_error_t *err)
{
    early_stopping_t *e = self;
    const bool after_epochs = e->check_on_train_epoch_end
                              || !strncmp(e->monitor, "train_", 6);
    pl_error_t why = {0};
    double value;
    if (point == PL_HOOK_FIT_START) {
        if (event->validates || (after_epochs && strncmp(e->monitor, "val_", 4) != 0))
            return PL_OK;
        pl_fail(&why, PL_ENOTFOUND,
                "\"%s\" is checked after validations, but the run has none: set "
                "data.val_split, or set \"monitor\" to a metric of training, such as "
                "\"train_loss\"",
                e->monitor);
        return metric_missing(e, event, &why, err);
    }
    if (after_epochs != (point == PL_HOOK_TRAIN_EPOCH_END) || event->extra)
        return PL_OK;
    if (pl_metric_find(event, e->monitor, &value, &why) != PL_OK)
        return metric_missing(e, event, &why, err);
    if (!isfinite(value) && e->check_finite) {
        stop_because(request, "%s is not finite; the best was %.6g", e->monitor, e->best);
        return PL_OK;
    }
    if (is_better(e, value, e->stopping_threshold))
        stop_because(request, "%s %.6g is better than the threshold %.6g (mode \"%s\")",
                     e->monitor, value, e->stopping_threshold, pl_mode_names[e->mode]);
    else if (is_better(e, e->divergence_threshold, value))
        stop_because(request, "%s %.6g is worse than the threshold %.6g (mode \"%s\")",
                     e->monitor, value, e->divergence_threshold, pl_mode_names[e->mode]);
    const double delta = e->mode == PL_MODE_MIN ? -e->min_delta : e->min_delta;
    if (!isnan(value) && (isnan(e->best) || is_better(e, value, e->best + delta))) {
        e->best = value;
        e->waited = 0;
        if (e->verbose)
            pl_log_line(PL_LOG_INFO, event->rank, "early_stopping", "%s improved to %.6g",
                        e->monitor, value);
    } else if (++e->waited >= e->patience && !request->stop) {
        stop_because(request,
                     "%s has not improved in the last %lld check%s; the best is "
                     "%.6g (mode \"%s\")",
                     e->monitor, (long long)e->waited, pl_plural(e->waited), e->best,
                     pl_mode_names[e->mode]);
    }
    return PL_OK;
}

static char *early_stopping_state(const void *self, pl_error_t *err)
{
    const early_stopping_t *e = self;
    return pl_state_write(json_pack("{s:I, s:o}", "waited", (json_int_t)e->waited, "best",
                                    isnan(e->best) ? json_null() : json_real(e->best)),
                          err);
}

static int early_stopping_restore(void *self, const char *state, pl_error_t *err)
{
    early_stopping_t *e = self;
    json_t *kept = pl_state_read(state, err);
    if (!kept)
        return err->code;
    const json_t *best = json_object_get(kept, "best");
    e->waited = json_integer_value(json_object_get(kept, "waited"));
    e->best = json_is_number(best) ? json_number_value(best) : NAN;
    json_decref(kept);
    return PL_OK;
}

const pl_callback_ops_t pl_early_stopping_callback = {
    .name = "early_stopping",
    .help = "stops when a metric no longer improves",
    .size = sizeof(early_stopping_t),
    .options = early_stopping_options,
    .points = PL_AT(FIT_START) | PL_AT(VALIDATION_END) | PL_AT(TRAIN_EPOCH_END),
    .start = early_stopping_start,
    .on = early_stopping_on,
    .state = early_stopping_state,
    .restore = early_stopping_restore,
};
