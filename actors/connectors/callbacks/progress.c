/* progress.c - logs a line with all metrics after each epoch and validation */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "base/json_text.h"
#include "base/log.h"

#define LINE 900                                         /* bytes; a longer line is cut */

typedef struct metrics_line {
    char text[LINE];
    size_t length;
} metrics_line_t;

static void line_add(metrics_line_t *line, const char *format, ...) PL_PRINTF(2, 3);

static void line_add(metrics_line_t *line, const char *format, ...)
{
    va_list args;
    size_t capacity = sizeof line->text - line->length;
    va_start(args, format);
    int length = vsnprintf(line->text + line->length, capacity, format, args);
    va_end(args);
    if (length > 0)
        line->length += (size_t)length < capacity ? (size_t)length : capacity - 1;
}

static int progress_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                       pl_callback_request_t *request, pl_error_t *err)
{
    const char *name;
    json_t *value;
    metrics_line_t line = {.length = 0};
    (void)self, (void)request;
    const char *text = event->metrics;
    json_t *metrics = pl_json_read(text, strlen(text), "metrics", err);
    if (!metrics)
        return err->code;
    line_add(&line, "%s %llu, step %llu",
             point == PL_HOOK_VALIDATION_END ? "validation in epoch" : "epoch",
             event->epoch + 1ULL, (unsigned long long)event->global_step);
    json_object_foreach(metrics, name, value)
        if (json_is_number(value))
            line_add(&line, ", %s %.4g", name, json_number_value(value));
    json_decref(metrics);
    pl_log_line(PL_LOG_INFO, event->rank, "progress", "%s", line.text);
    return PL_OK;
}

const pl_callback_ops_t pl_progress_callback = {
    .name = "progress",
    .help = "logs a line after each epoch and validation",
    .points = PL_AT(TRAIN_EPOCH_END) | PL_AT(VALIDATION_END),
    .on = progress_on,
};
