/* logger.c - the logger connector: figures into files of the run directory
 *
 * What a file looks like is its logger's business; here it grows.  Nobody waits for the
 * disk: while the writer appends, further lines gather and go out together.  A disk that
 * fails costs lines, never the run. */
#include "actors/connectors/logger.h"

#include <stdio.h>
#include <string.h>

#include "actors/connectors/run_options.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "runtime/cargo.h"

#define GATHERED_MOST ((size_t)1 << 20)                     /* bytes */

/* One logger of the run and its file. */
typedef struct sink {
    pl_instance_t part;                                     /* pl_logger_ops_t */
    char *path;
    char *lines;                                            /* not yet with the writer */
    size_t length, room;
    bool appending, failing;
} sink_t;

typedef struct logger {
    sink_t *sink;
    int count;
    bool ending;
} logger_t;

static const pl_logger_ops_t *ops_of(const sink_t *sink)
{
    return sink->part.ops;
}

/* ---- The start ---- */

static int sink_open(sink_t *sink, const pl_options_t *options, int k,
                     const char *run_dir, pl_error_t *err)
{
    char path[32];
    snprintf(path, sizeof path, "loggers.%d", k);
    const pl_part_request_t request = {.role = "logger",
                                       .path = path,
                                       .automatic = pl_options_value(options, "loggers")
                                                        ? NULL
                                                        : pl_usual_logger};
    int code = pl_options_part(options, &request, &sink->part, err);
    if (code != PL_OK)
        return code;
    if (!ops_of(sink)->file || !ops_of(sink)->lines)
        return pl_fail(err, PL_EUSER, "logger \"%s\": its table lacks file or lines",
                       ops_of(sink)->name);
    sink->path = pl_text("%s/%s", run_dir, ops_of(sink)->file);
    return sink->path ? PL_OK : pl_no_memory(err);
}

static int sinks_open(logger_t *logger, const pl_options_t *options, const char *run_dir,
                      pl_error_t *err)
{
    bool listed = pl_options_value(options, "loggers") != NULL;
    int count = listed ? pl_options_count(options, "loggers") : 1, code = PL_OK;
    logger->sink = pl_alloc_array((size_t)count, sizeof *logger->sink);
    if (!logger->sink)
        return pl_no_memory(err);
    while (code == PL_OK && logger->count < count) {
        int k = logger->count++;
        code = sink_open(&logger->sink[k], options, k, run_dir, err);
    }
    return code;
}

static int logger_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    (void)call;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    char *run_dir = NULL;
    int code = pl_run_options(body->start.options, &run_dir, err);
    if (code == PL_OK && !run_dir)
        code = pl_fail(err, PL_EINVAL, "the logger needs {\"run_dir\": …}");
    if (code == PL_OK)
        code = sinks_open(self, job->options, run_dir, err);
    pl_free(run_dir);
    if (code == PL_OK)
        pl_actor_ready(self);
    return code;
}

/* ---- Appending ---- */

/* Once, until it works again: the run goes on. */
static void complain(logger_t *logger, sink_t *sink, const pl_error_t *error)
{
    if (!sink->failing)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(logger), pl_actor_name(logger),
                    "figures are lost, the run goes on: %s", error->text);
    sink->failing = true;
}

static void sink_go_on(logger_t *logger, sink_t *sink);

static void end_when_all_is_written(logger_t *logger)
{
    bool busy = false;
    for (int k = 0; k < logger->count; k++)
        busy = busy || logger->sink[k].appending;
    if (logger->ending && !busy)
        pl_actor_end(logger, NULL);
}

static void sink_on_append(void *self, const pl_answer_t *answer)
{
    sink_t *sink = answer->context;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    sink->appending = false;
    if (answer->kind == PL_ANSWER_REPLY)
        sink->failing = false;
    else
        complain(self, sink, answer->error);
    sink_go_on(self, sink);
    end_when_all_is_written(self);
}

static void sink_go_on(logger_t *logger, sink_t *sink)
{
    pl_error_t err = {0};
    if (!sink->length || sink->appending)
        return;
    const pl_append_t fields = {.path = sink->path, .bytes = {sink->lines, sink->length}};
    const pl_how_t how = {.on_answer = sink_on_append, .context = sink};
    const pl_address_t writer = pl_peer(logger, "writer");
    sink->appending = pl_call_append(logger, writer, &fields, how, &err) != 0;
    sink->length = 0;                                       /* in the message, or lost */
    if (!sink->appending)
        complain(logger, sink, &err);
}

/* ---- Lines ---- */

static int lines_add(sink_t *sink, const char *lines, pl_error_t *err)
{
    size_t length = strlen(lines), needed = sink->length + length;
    if (needed > GATHERED_MOST)
        return pl_fail(err, PL_EBUSY, "%s: the disk is too slow for that many figures",
                       sink->path);
    if (needed > sink->room) {
        char *larger = pl_resize(sink->lines, 2 * needed);
        if (!larger)
            return pl_no_memory(err);
        sink->lines = larger;
        sink->room = 2 * needed;
    }
    memcpy(sink->lines + sink->length, lines, length);
    sink->length = needed;
    return PL_OK;
}

static void sink_record(logger_t *logger, sink_t *sink, const pl_record_t *record)
{
    pl_error_t lost = {0};
    char *lines = ops_of(sink)->lines(sink->part.self, record, &lost);
    if (!lines || lines_add(sink, lines, &lost) != PL_OK)
        complain(logger, sink, &lost);
    pl_text_free(lines);
    sink_go_on(logger, sink);
}

static int logger_on_metrics(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    logger_t *logger = self;
    const pl_log_metrics_t *msg = &body->log_metrics;
    if (logger->ending)
        return pl_fail(err, PL_ESTATE, "the logger is ending");
    const pl_record_t record = {msg->epoch, msg->global_step, pl_wall_clock(),
                                msg->metrics};
    for (int k = 0; k < logger->count; k++)
        sink_record(logger, &logger->sink[k], &record);
    return pl_reply_log_metrics(call, &(pl_log_metrics_reply_t){0});
}

/* ---- The end ---- */

/* What was handed over is written first. */
static void logger_on_cancel(void *self, pl_call_t *call)
{
    logger_t *logger = self;
    if (!pl_is_life(self, call))
        return;
    logger->ending = true;
    end_when_all_is_written(logger);
}

static void logger_release(void *self)
{
    logger_t *logger = self;
    for (int k = 0; k < logger->count; k++) {
        pl_free(logger->sink[k].path);
        pl_free(logger->sink[k].lines);
        pl_instance_release(&logger->sink[k].part);
    }
    pl_free(logger->sink);
}

static const pl_handler_t logger_handlers[] = {
    PL_ON(start, logger_on_start),
    PL_ON(log_metrics, logger_on_metrics),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_logger_connector = {
    .name = "connector.logger",
    .help = "figures into files",
    .size = sizeof(logger_t),
    .level = PL_LEVEL_CONNECTOR,
    .handlers = logger_handlers,
    .on_cancel = logger_on_cancel,
    .release = logger_release,
};
