/* callbacks.c - the built-in callbacks by name, and functions that several of them use */
#include "actors/connectors/callbacks/callbacks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"

const pl_registration_t pl_callback_components[] = {
    {"callback", &pl_device_stats_monitor_callback},
    {"callback", &pl_early_stopping_callback},
    {"callback", &pl_finetuning_callback},
    {"callback", &pl_gradient_accumulation_scheduler_callback},
    {"callback", &pl_lr_monitor_callback},
    {"callback", &pl_model_checkpoint_callback},
    {"callback", &pl_model_summary_callback},
    {"callback", &pl_on_exception_checkpoint_callback},
    {"callback", &pl_prediction_writer_callback},
    {"callback", &pl_progress_callback},
    {"callback", &pl_throughput_monitor_callback},
    {"callback", &pl_timer_callback},
    PL_REGISTRATIONS_END,
};

int pl_metric_find(const pl_hook_event_t *event, const char *name, double *value,
                   pl_error_t *err)
{
    char names[240] = "none yet";                           /* the rest is cut */
    const char *key;
    json_t *each;
    size_t length = 0;
    json_t *metrics = pl_json_read(event->metrics, strlen(event->metrics), "metrics",
                                   err);
    if (!metrics)
        return PL_ENOMEM;
    const json_t *metric = json_object_get(metrics, name);
    json_object_foreach(metrics, key, each) {
        const size_t left = sizeof names - length;
        int added = snprintf(names + length, left, "%s%s", length ? ", " : "", key);
        if (added < 0 || (size_t)added >= left)
            break;
        length += (size_t)added;
    }
    int code = metric ? PL_OK
                      : pl_fail(err, PL_ENOTFOUND,
                                "there is no metric \"%s\" to monitor; the metrics are: "
                                "%s",
                                name, names);
    if (metric)
        *value = json_is_number(metric) ? json_number_value(metric) : NAN;
    json_decref(metrics);
    return code;
}

char *pl_state_write(json_t *object, pl_error_t *err)
{
    char *text = object ? pl_json_write(object, PL_JSON_COMPACT) : NULL;
    json_decref(object);
    if (!text)
        pl_no_memory(err);
    return text;
}

json_t *pl_state_read(const char *state, pl_error_t *err)
{
    return pl_json_read(state, strlen(state), "state", err);
}

int pl_epochs_check(const pl_ints_t *epochs, const char *other, int other_count,
                    pl_error_t *err)
{
    if (epochs->count != other_count)
        return pl_fail(err, PL_EINVAL,
                       "\"epochs\" has %d entries, but \"%s\" has %d: give one for each "
                       "epoch",
                       epochs->count, other, other_count);
    for (int k = 1; k < epochs->count; k++)
        if (epochs->value[k] <= epochs->value[k - 1])
            return pl_fail(err, PL_EINVAL,
                           "\"epochs\" must ascend, but %lld follows %lld",
                           (long long)epochs->value[k], (long long)epochs->value[k - 1]);
    return PL_OK;
}
