/* metric.c - how a built-in callback reads the newest metrics, and keeps its state */
#include "actors/connectors/callbacks/metric.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"

enum { NAMES = 240 };

/* "train_loss, val_loss"; what is too long is cut. */
static void names_of(json_t *metrics, char text[NAMES])
{
    const char *name;
    json_t *value;
    size_t length = 0;
    snprintf(text, NAMES, "none yet");
    json_object_foreach(metrics, name, value) {
        int added = snprintf(text + length, NAMES - length, "%s%s", length ? ", " : "",
                             name);
        if (added < 0 || (size_t)added >= NAMES - length)
            break;
        length += (size_t)added;
    }
}

int pl_metric_find(const pl_hook_event_t *event, const char *name, double *value,
                   pl_error_t *err)
{
    char names[NAMES];
    json_t *metrics = pl_json_read(event->metrics, strlen(event->metrics), "metrics",
                                   err);
    if (!metrics)
        return PL_ENOMEM;
    const json_t *metric = json_object_get(metrics, name);
    names_of(metrics, names);
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
