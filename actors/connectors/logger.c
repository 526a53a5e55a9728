/* logger.c - the logger connector: metrics to the run's loggers
 *
 * Each logger has a thread of its own (recorder.c) and a queue here, so that a slow or
 * failing one delays neither the run nor another logger.  Metrics gather for a moment,
 * because waking a thread costs more than what it then does; while a logger is at work
 * they gather until it is ready, and those for which there is no room are dropped.  What
 * a logger does not take at the end within a grace is given up.  How far each has come
 * is for logger_positions.c. */
#include "actors/connectors/connectors.h"

#include <stdio.h>

#include "actors/connectors/logger_parts.h"
#include "actors/connectors/run_options.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "runtime/payload.h"

#define WAITING_MAX ((size_t)1 << 20)                       /* bytes of metrics */
#define GATHERED_ENOUGH (WAITING_MAX / 4)                   /* not to wait for more */
enum { GATHER_MS = 100, LAST_MS = 2000, INTERRUPTED_MS = 1000 };

/* ---- The start ---- */

static int sink_open(sink_t *sink, const pl_options_t *options, int k,
                     const char *run_dir, const char *run, pl_error_t *err)
{
    char path[32];
    snprintf(path, sizeof path, "loggers.%d", k);
    const pl_component_request_t request = {
        .role = "logger",
        .path = path,
        .automatic = pl_options_value(options, "loggers") ? NULL : pl_default_logger};
    pl_instance_t component = {0};
    int code = pl_options_component(options, &request, &component, err);
    if (code != PL_OK)
        return code;
    sink->component = pl_log_component_new(&component, run_dir, run, err);
    if (!sink->component)
        return PL_ENOMEM;
    return ops_of(sink)->log
               ? PL_OK
               : pl_fail(err, PL_EUSER, "logger \"%s\": its table lacks log",
                         ops_of(sink)->name);
}

static int sinks_open(logger_t *logger, const pl_options_t *options, const char *run_dir,
                      pl_error_t *err)
{
    bool listed = pl_options_value(options, "loggers") != NULL;
    int count = listed ? pl_options_count(options, "loggers") : 1, code = PL_OK;
    logger->sink = pl_alloc_array((size_t)count, sizeof *logger->sink);
    if (!logger->sink)
        return pl_no_memory(err);
    char *run = pl_options_print(options, err);
    if (!run)
        return err->code;
    while (code == PL_OK && logger->count < count) {
        int k = logger->count++;
        code = sink_open(&logger->sink[k], options, k, run_dir, run, err);
    }
    pl_text_free(run);
    return code;
}

static void recorder_reported(void *self, const pl_answer_t *answer)
{
    logger_t *logger = self;
    if (answer->kind == PL_ANSWER_PROGRESS && ++logger->ready == logger->count)
        pl_actor_ready(logger);
    if (answer->kind == PL_ANSWER_ERROR)
        pl_actor_end(logger, answer->error);
}

static int recorders_start(logger_t *logger, pl_error_t *err)
{
    const pl_how_t how = {.on_answer = recorder_reported};
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        const pl_start_t start = {.options = "", .context = &sink->component->object};
        if (!pl_spawn(logger, &pl_io_recorder, PL_OWN_THREAD, &start, how,
                      &sink->recorder, err))
            return err->code;
        sink->started = true;
    }
    if (logger->count == 0)
        pl_actor_ready(logger);
    return PL_OK;
}

static int logger_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    (void)call;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    char *run_dir = NULL;
    int code = pl_run_options(body->start.options, &run_dir, NULL, err);
    if (code == PL_OK && !run_dir)
        code = pl_fail(err, PL_EINVAL, "the logger needs {\"run_dir\": …}");
    if (code == PL_OK)
        code = sinks_open(self, job->options, run_dir, err);
    pl_free(run_dir);
    return code == PL_OK ? recorders_start(self, err) : code;
}

/* ---- What is lost ---- */

static void sink_warn(logger_t *logger, const sink_t *sink, bool *reported,
                      const char *what, const char *why)
{
    if (!*reported)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(logger), pl_actor_name(logger),
                    "logger \"%s\": %s: %s", ops_of(sink)->name, what, why);
    *reported = true;
}

static void sink_lose(logger_t *logger, sink_t *sink, uint64_t count, const char *why)
{
    sink->lost += count;
    sink_warn(logger, sink, &sink->reported_lost,
              "metrics are lost, the run continues and counts them at its end", why);
}

static void sink_sum_up(const logger_t *logger, const sink_t *sink)
{
    if (sink->lost)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank((void *)logger),
                    pl_actor_name((void *)logger),
                    "logger \"%s\": %llu of %llu records of the run are lost",
                    ops_of(sink)->name, (unsigned long long)sink->lost,
                    (unsigned long long)sink->taken);
}

/* ---- Handing over ---- */

static bool has_enough(const sink_t *sink)
{
    return sink->waiting && sink->waiting->size >= GATHERED_ENOUGH;
}

static bool sink_is_done(const sink_t *sink)
{
    return !sink->under_way && !sink->waiting && !sink->behind;
}

static void end_when_all_is_written(logger_t *logger)
{
    bool done = true;
    for (int k = 0; k < logger->count; k++)
        done = done && sink_is_done(&logger->sink[k]);
    if (logger->ending && done)
        pl_actor_end(logger, NULL);
}

static void records_drop(pl_records_t **records)
{
    pl_object_unref(*records);
    *records = NULL;
}

static void sink_answered(void *self, const pl_answer_t *answer)
{
    logger_t *logger = self;
    sink_t *sink = answer->context;
    if (answer->kind == PL_ANSWER_ERROR) {
        sink_lose(logger, sink, (uint64_t)sink->under_way->count, answer->error->text);
    } else if (answer->kind == PL_ANSWER_REPLY) {
        const pl_write_records_reply_t *reply = &answer->body->write_records_reply;
        sink->written += (uint64_t)sink->under_way->count - reply->lost;
        sink_keep_position(sink, reply->position);
        if (reply->lost)
            sink_lose(logger, sink, reply->lost, reply->why);
        else if (*reply->why)
            sink_warn(logger, sink, &sink->reported_unsynced,
                      "checkpoints keep an older position of its file", reply->why);
    } else {
        return;
    }
    records_drop(&sink->under_way);
    sink->took = pl_now() - sink->since;
    if (sink->asked && !sink->waiting)
        sink_tell(logger, sink);
    if (logger->ending || logger->status[0] || sink->asked || has_enough(sink))
        sink_go_on(logger, sink);
    end_when_all_is_written(logger);
}

void sink_go_on(logger_t *logger, sink_t *sink)
{
    pl_error_t err = {0};
    if (!sink->waiting || sink->under_way)
        return;
    const pl_write_records_t fields = {.records = &sink->waiting->object,
                                       .position = sink->position ? sink->position : "",
                                       .global_step = logger->resumed_step,
                                       .is_resume = sink->is_resume,
                                       .behind = sink->resumed,
                                       .status = logger->status,
                                       .sync = sink->asked};
    const pl_how_t how = {.on_answer = sink_answered, .context = sink};
    sink->under_way = sink->waiting;
    sink->waiting = NULL;
    sink->since = pl_now();
    if (pl_call_write_records(logger, sink->recorder, &fields, how, &err))
        return;
    sink_lose(logger, sink, (uint64_t)sink->under_way->count, err.text);
    records_drop(&sink->under_way);
    if (sink->asked)
        sink_tell(logger, sink);
}

static void gathered(void *self)
{
    logger_t *logger = self;
    logger->gathering = false;
    for (int k = 0; k < logger->count; k++)
        sink_go_on(logger, &logger->sink[k]);
}

static void gather(logger_t *logger)
{
    if (!logger->gathering)
        logger->gathering = pl_after(logger, GATHER_MS, gathered, NULL) == PL_OK;
    if (!logger->gathering)
        gathered(logger);
}

/* ---- Metrics ---- */

static int sink_add(sink_t *sink, pl_logged_t *logged, pl_error_t *err)
{
    pl_records_t **into = sink->asked ? &sink->behind : &sink->waiting;
    if (!*into && !(*into = pl_records_new(err)))
        return PL_ENOMEM;
    if ((*into)->size + logged->size > WAITING_MAX)
        return pl_fail(err, PL_EBUSY, "the logger is too slow for the number of records");
    return pl_records_add(*into, logged, err);
}

/* For the loggers that take such a record: metrics, or tensors  [NULL]. */
static void record_add(logger_t *logger, const pl_record_t *record, pl_weights_t *weights)
{
    pl_error_t err = {0};
    pl_logged_t *logged = pl_logged_new(record, &err);
    if (logged)
        logged->weights = pl_object_ref(weights);
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        if (weights && !ops_of(sink)->tensors)
            continue;
        sink->taken++;
        if (!logged || sink_add(sink, logged, &err) != PL_OK)
            sink_lose(logger, sink, 1, err.text);
        if (has_enough(sink))
            sink_go_on(logger, sink);
    }
    pl_object_unref(logged);
    gather(logger);
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
    logger->global_step = msg->global_step;
    record_add(logger, &record, NULL);
    return pl_reply_log_metrics(call, &(pl_log_metrics_reply_t){0});
}

static int logger_on_weights(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    logger_t *logger = self;
    const pl_log_weights_t *msg = &body->log_weights;
    if (logger->ending)
        return pl_fail(err, PL_ESTATE, "the logger is ending");
    const pl_record_t record = {msg->epoch, msg->global_step, pl_wall_clock(), "{}"};
    record_add(logger, &record, (pl_weights_t *)msg->weights);
    return pl_reply_log_weights(call, &(pl_log_weights_reply_t){0});
}

/* ---- The end ---- */

/* Without records there is still the status to be told. */
static int logger_on_end_log(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    logger_t *logger = self;
    snprintf(logger->status, sizeof logger->status, "%s", body->end_log.status);
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        if (!sink->waiting && !(sink->waiting = pl_records_new(err)))
            return PL_ENOMEM;
        sink_go_on(logger, sink);
    }
    return pl_reply_end_log(call, &(pl_end_log_reply_t){0});
}

static void sink_interrupt(logger_t *logger, sink_t *sink)
{
    if (sink->under_way && ops_of(sink)->interrupt)
        ops_of(sink)->interrupt(sink->component->component.self);
    if (sink->waiting && sink->waiting->count)
        sink_lose(logger, sink, (uint64_t)sink->waiting->count,
                  "the logger is too slow, and the run has ended");
    records_drop(&sink->waiting);
    records_drop(&sink->behind);
}

/* Nothing is waited for any more: should it be stuck, the runtime says so. */
static void logger_disable(logger_t *logger)
{
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        if (sink->under_way)
            sink_lose(logger, sink, (uint64_t)sink->under_way->count,
                      "the logger does not end");
    }
    pl_actor_end(logger, NULL);
}

/* Who has not taken its metrics by now does not get them. */
static void drain_expired(void *self)
{
    logger_t *logger = self;
    if (logger->interrupted) {
        logger_disable(logger);
        return;
    }
    logger->interrupted = true;
    for (int k = 0; k < logger->count; k++)
        sink_interrupt(logger, &logger->sink[k]);
    end_when_all_is_written(logger);
    if (pl_after(logger, INTERRUPTED_MS, drain_expired, NULL) != PL_OK)
        logger_disable(logger);
}

/* What was handed over is written first, for a while. */
static void logger_on_cancel(void *self, pl_call_t *call)
{
    logger_t *logger = self;
    if (!pl_is_life(self, call))
        return;
    logger->ending = true;
    gathered(logger);
    end_when_all_is_written(logger);
    if (pl_after(logger, LAST_MS, drain_expired, NULL) != PL_OK)
        drain_expired(logger);
}

static void logger_release(void *self)
{
    logger_t *logger = self;
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        if (sink->component)
            sink_sum_up(logger, sink);
        pl_object_unref(sink->waiting);
        pl_object_unref(sink->under_way);
        pl_object_unref(sink->component);
        pl_free(sink->position);
        pl_free(sink->kept);
        pl_object_unref(sink->behind);
    }
    pl_free(logger->sink);
}

static const pl_handler_t logger_handlers[] = {
    PL_ON(start, logger_on_start),
    PL_ON(log_metrics, logger_on_metrics),
    PL_ON(log_weights, logger_on_weights),
    PL_ON(get_state, logger_on_get_state),
    PL_ON(set_state, logger_on_set_state),
    PL_ON(end_log, logger_on_end_log),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_logger_connector = {
    .name = "connector.logger",
    .help = "passes metrics to the run's loggers",
    .size = sizeof(logger_t),
    .level = PL_LEVEL_CONNECTOR,
    .handlers = logger_handlers,
    .on_cancel = logger_on_cancel,
    .release = logger_release,
};
