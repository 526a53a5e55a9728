/* lr_monitor.c - logs the learning rates at an interval of its own
 *
 * The run logs them with its metrics too; this callback is for plots with a point for
 * every step, or for each epoch. */
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "base/option.h"
#include "base/json_text.h"

typedef struct lr_monitor {
    pl_unit_t logging_interval;
    int64_t every_n_steps;
} lr_monitor_t;

static const pl_option_t lr_monitor_options[] = {
    PL_WORD(lr_monitor_t, logging_interval, "\"step\"", PL_STEP_OR_EPOCH,
            "log the rates after steps or after epochs"),
    PL_INT(lr_monitor_t, every_n_steps, "50", "1..",
           "optimizer steps between two records"),
    PL_OPTIONS_END,
};

static int64_t lr_monitor_every(const void *self)
{
    const lr_monitor_t *m = self;
    return m->logging_interval == PL_UNIT_EPOCH ? 0 : m->every_n_steps;
}

static int lr_monitor_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                         pl_callback_request_t *request, pl_error_t *err)
{
    const lr_monitor_t *m = self;
    const char *name;
    json_t *value;
    int code = PL_OK;
    if (point == PL_HOOK_TRAIN_EPOCH_END && m->logging_interval != PL_UNIT_EPOCH)
        return PL_OK;
    json_t *metrics = pl_json_read(event->metrics, strlen(event->metrics), "metrics",
                                   err);
    if (!metrics)
        return err->code;
    json_object_foreach(metrics, name, value) {
        if (code == PL_OK && !strncmp(name, "lr-", 3))
            code = pl_callback_log(request, name, json_number_value(value), err);
    }
    json_decref(metrics);
    return code;
}

const pl_callback_ops_t pl_lr_monitor_callback = {
    .name = "lr_monitor",
    .help = "logs the learning rates",
    .size = sizeof(lr_monitor_t),
    .options = lr_monitor_options,
    .points = PL_AT(TRAIN_BATCH_END) | PL_AT(TRAIN_EPOCH_END),
    .requests = PL_LOOKS_ON,
    .every_n_steps = lr_monitor_every,
    .on = lr_monitor_on,
};
