/* jsonl.c - metrics.jsonl: a JSON object a line, for people and programs to follow */
#include <jansson.h>
#include <string.h>

#include "actors/connectors/loggers/loggers.h"
#include "base/error.h"
#include "base/json_text.h"

/* {"global_step": …, "epoch": …, "time": …, and the figures}; NULL: out of memory. */
static char *line_of(const pl_record_t *record, const json_t *metrics)
{
    const char *name;
    json_t *value, *line = json_object();
    double time = (double)(int64_t)(record->time * 1e3) / 1e3;
    bool failed = json_object_set_new(line, "global_step",
                                      json_integer((json_int_t)record->global_step))
                  || json_object_set_new(line, "epoch", json_integer(record->epoch))
                  || json_object_set_new(line, "time", json_real(time));
    json_object_foreach((json_t *)metrics, name,
                        value) if (!failed && !json_object_get(line, name))
        failed = json_object_set(line, name, value) != 0;
    char *json = failed ? NULL : pl_json_write(line, PL_JSON_COMPACT);
    char *text = json ? pl_text("%s\n", json) : NULL;
    pl_text_free(json);
    json_decref(line);
    return text;
}

static char *jsonl_lines(void *self, const pl_record_t *record, pl_error_t *err)
{
    (void)self;
    json_t *metrics = pl_json_read(record->metrics, strlen(record->metrics), "metrics",
                                   err);
    if (!metrics)
        return NULL;
    char *text = line_of(record, metrics);
    json_decref(metrics);
    if (!text)
        pl_no_memory(err);
    return text;
}

const pl_logger_ops_t pl_jsonl_logger = {.name = "jsonl",
                                         .help = "metrics.jsonl: a JSON object a line",
                                         .size = 1,
                                         .file = "metrics.jsonl",
                                         .lines = jsonl_lines};
