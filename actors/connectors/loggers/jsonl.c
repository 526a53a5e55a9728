/* jsonl.c - metrics.jsonl: one JSON object a line */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "actors/connectors/loggers/loggers.h"
#include "base/error.h"
#include "base/json_text.h"
#include "formats/append.h"

typedef struct jsonl {
    pl_append_t file;
} jsonl_t;

static int jsonl_open(void *self, const pl_log_run_t *run, pl_error_t *err)
{
    jsonl_t *jsonl = self;
    char *path = pl_text("%s/metrics.jsonl", run->run_dir);
    if (!path)
        return pl_no_memory(err);
    long long keep = run->has_position ? 0 : -1;
    unsigned sum;
    uint64_t behind = run->behind;
    if (sscanf(run->position, "%lld %x", &keep, &sum) == 2
        && pl_is_another_file(path, (uint64_t)keep, sum))
        keep = pl_put_log_aside(path) ? 0 : -1;
    else if (keep >= 0)
        keep = pl_append_lines_behind(path, keep, &behind);
    int code = pl_append_open(&jsonl->file, path, keep, err);
    if (code == PL_OK && (jsonl->file.lacks || behind))
        pl_warn_lost_lines(path);
    pl_text_free(path);
    return code;
}

static int jsonl_log(void *self, const pl_record_t *record, pl_error_t *err)
{
    jsonl_t *jsonl = self;
    const char *name;
    json_t *value,
        *metrics = pl_json_read(record->metrics, strlen(record->metrics), "metrics", err);
    if (!metrics)
        return PL_EFORMAT;
    json_t *line = json_object();
    const double time = (double)(int64_t)(record->time * 1e3) / 1e3;
    bool failed = json_object_set_new(line, "global_step",
                                      json_integer((json_int_t)record->global_step))
                  || json_object_set_new(line, "epoch", json_integer(record->epoch))
                  || json_object_set_new(line, "time", json_real(time));
    json_object_foreach(metrics, name, value)
        if (!failed && !json_object_get(line, name))
            failed = json_object_set(line, name, value) != 0;
    char *json = failed ? NULL : pl_json_write(line, PL_JSON_COMPACT);
    char *text = json ? pl_text("%s\n", json) : NULL;
    pl_text_free(json);
    json_decref(line);
    json_decref(metrics);
    int code = text ? pl_append_add(&jsonl->file, text, strlen(text), err)
                    : pl_no_memory(err);
    pl_text_free(text);
    return code;
}

static int jsonl_flush(void *self, pl_error_t *err)
{
    return pl_append_flush(&((jsonl_t *)self)->file, err);
}

static int jsonl_sync(void *self, pl_error_t *err)
{
    return pl_append_sync(&((jsonl_t *)self)->file, err);
}

/* "BYTES CRC32C" of the file. */
static char *jsonl_position(const void *self)
{
    const jsonl_t *jsonl = self;
    return pl_text("%llu %08x", (unsigned long long)jsonl->file.size, jsonl->file.sum);
}

static void jsonl_close(void *self, const char *status)
{
    (void)status;
    pl_append_release(&((jsonl_t *)self)->file);
}

const pl_logger_ops_t pl_jsonl_logger = {.name = "jsonl",
                                         .help = "writes metrics.jsonl: a JSON object "
                                                 "for each record",
                                         .size = sizeof(jsonl_t),
                                         .open = jsonl_open,
                                         .log = jsonl_log,
                                         .flush = jsonl_flush,
                                         .sync = jsonl_sync,
                                         .position = jsonl_position,
                                         .close = jsonl_close};
