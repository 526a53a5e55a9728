/* logger.c - the logger connector: figures into RUN_DIR/metrics.jsonl
 *
 * One line of JSON for each call, in order, for people and programs to follow.  Nobody
 * waits for the disk: while the writer appends, further lines gather and go out together.
 * A disk that fails costs lines, never the run. */
#include "actors/connectors/logger.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "actors/connectors/run_options.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"

#define GATHERED_MOST ((size_t)1 << 20)                     /* bytes */

typedef struct logger {
    char *path;                                             /* of metrics.jsonl */
    char *lines;                                            /* not yet with the writer */
    size_t length, room;
    bool appending, failing, ending;
} logger_t;

static int logger_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    (void)call;
    logger_t *logger = self;
    char *run_dir = NULL;
    int code = pl_run_options(body->start.options, &run_dir, err);
    if (code != PL_OK)
        return code;
    if (!run_dir)
        return pl_fail(err, PL_EINVAL, "the logger needs {\"run_dir\": …}");
    logger->path = pl_text("%s/metrics.jsonl", run_dir);
    pl_free(run_dir);
    if (!logger->path)
        return pl_no_memory(err);
    pl_actor_ready(self);
    return PL_OK;
}

/* ---- Appending ---- */

/* Once, until it works again: the run goes on. */
static void complain(logger_t *logger, const pl_error_t *error)
{
    if (!logger->failing)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(logger), pl_actor_name(logger),
                    "figures are lost, the run goes on: %s", error->text);
    logger->failing = true;
}

static void logger_go_on(logger_t *logger);

static void logger_on_append(void *self, const pl_answer_t *answer)
{
    logger_t *logger = self;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    logger->appending = false;
    if (answer->kind == PL_ANSWER_REPLY)
        logger->failing = false;
    else
        complain(logger, answer->error);
    logger_go_on(logger);
}

static void logger_go_on(logger_t *logger)
{
    pl_error_t err = {0};
    if (logger->length && !logger->appending) {
        const pl_append_t fields = {.path = logger->path,
                                    .bytes = {logger->lines, logger->length}};
        const pl_how_t how = {.on_answer = logger_on_append};
        const pl_address_t writer = pl_peer(logger, "writer");
        logger->appending = pl_call_append(logger, writer, &fields, how, &err) != 0;
        logger->length = 0;                                 /* in the message, or lost */
        if (!logger->appending)
            complain(logger, &err);
    }
    if (logger->ending && !logger->appending)
        pl_actor_end(logger, NULL);
}

/* ---- Lines ---- */

static int lines_add(logger_t *logger, const char *line, pl_error_t *err)
{
    size_t length = strlen(line), needed = logger->length + length + 1;
    if (needed > GATHERED_MOST)
        return pl_fail(err, PL_EBUSY, "%s: the disk is too slow for that many figures",
                       logger->path);
    if (needed > logger->room) {
        char *larger = pl_resize(logger->lines, 2 * needed);
        if (!larger)
            return pl_no_memory(err);
        logger->lines = larger;
        logger->room = 2 * needed;
    }
    memcpy(logger->lines + logger->length, line, length);
    logger->lines[needed - 1] = '\n';
    logger->length = needed;
    return PL_OK;
}

/* {"global_step": …, "epoch": …, "time": …, and the figures}; NULL: out of memory. */
static char *line_of(const pl_log_metrics_t *msg, const json_t *metrics)
{
    const char *name;
    json_t *value, *line = json_object();
    double time = (double)(int64_t)(pl_wall_clock() * 1e3) / 1e3;
    bool failed = json_object_set_new(line, "global_step",
                                      json_integer((json_int_t)msg->global_step))
                  || json_object_set_new(line, "epoch", json_integer(msg->epoch))
                  || json_object_set_new(line, "time", json_real(time));
    json_object_foreach((json_t *)metrics, name, value)
        if (!failed && !json_object_get(line, name))
            failed = json_object_set(line, name, value) != 0;
    char *text = failed ? NULL : pl_json_write(line, PL_JSON_COMPACT);
    json_decref(line);
    return text;
}

static int logger_on_metrics(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    logger_t *logger = self;
    const char *text = body->log_metrics.metrics;
    pl_error_t lost = {0};
    if (logger->ending)
        return pl_fail(err, PL_ESTATE, "the logger is ending");
    json_t *metrics = pl_json_read(text, strlen(text), "metrics", err);
    if (!metrics)
        return err->code;
    char *line = line_of(&body->log_metrics, metrics);
    json_decref(metrics);
    int code = line ? lines_add(logger, line, &lost) : pl_no_memory(&lost);
    pl_text_free(line);
    if (code != PL_OK)
        complain(logger, &lost);
    logger_go_on(logger);
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
    logger_go_on(logger);
}

static void logger_release(void *self)
{
    logger_t *logger = self;
    pl_free(logger->path);
    pl_free(logger->lines);
}

static const pl_handler_t logger_handlers[] = {
    PL_ON(start, logger_on_start),
    PL_ON(log_metrics, logger_on_metrics),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_logger_connector = {
    .name = "connector.logger",
    .help = "figures into metrics.jsonl",
    .size = sizeof(logger_t),
    .level = PL_LEVEL_CONNECTOR,
    .handlers = logger_handlers,
    .on_cancel = logger_on_cancel,
    .release = logger_release,
};
