/* logger.c - the logger connector: metrics for the run's loggers
 *
 * Each logger has a thread of its own (recorder.c) and a queue here, so a slow or failing
 * logger delays neither the run nor another logger.  Records gather for a moment, because
 * waking a thread costs more than its work then does.  While a logger works, records
 * gather until it is ready; those that do not fit into the queue are lost.  At the end a
 * logger has a grace period for its queue.
 *
 * A checkpoint contains the position of each logger.  For that, each logger syncs the
 * records from before the request and reports its position; newer records wait behind.  A
 * slow logger is not waited for: its newest known position counts, with the number of
 * records behind it. */
#include <stdio.h>
#include <string.h>

#include "actors/connectors/connectors.h"
#include "actors/connectors/records.h"
#include "actors/connectors/writer.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/options.h"
#include "runtime/payload.h"

#define WAITING_MAX ((size_t)1 << 20)                       /* bytes of metrics */
#define GATHERED_ENOUGH (WAITING_MAX / 4)                   /* bytes to send at once */
enum { GATHER_MS = 100, LAST_MS = 2000, INTERRUPTED_MS = 1000, POSITIONS_MS = 1000 };

/* A logger and its queue. */
typedef struct sink {
    pl_log_component_t *component;                          /* counted */
    pl_address_t recorder;
    pl_records_t *waiting, *writing;      /* counted  [none] */
    int64_t since, took;                  /* of `writing`: pl_now(); the one before: ns */
    uint64_t taken, lost;                 /* records of the run */
    bool reported_lost, reported_unsynced;  /* once in a run */

    /* Its position. */
    char *position;                        /* the newest synced one  [NULL: ""] */
    bool is_resume;                        /* the checkpoint of the run has this logger */
    uint64_t resumed;                      /* records behind the checkpoint's position */
    uint64_t written;                      /* records, with the resumed ones */
    uint64_t synced;                       /* of them, at `position` */
    bool syncing;                          /* after `waiting`, for a checkpoint */
    bool awaited;                          /* the checkpoint waits for it */
    pl_records_t *behind;                  /* newer than the request; counted  [none] */
    uint64_t requested_at;                 /* records at the request */
    char *reported;                        /* position for the checkpoint  [NULL: ""] */
    uint64_t lacking;                      /* records behind `reported` */
} sink_t;

typedef struct logger {
    sink_t *sink;
    int count, ready;
    bool gathering;                         /* a timer is set */
    pl_call_t *request;                     /* get_state  [not now] */
    uint64_t global_step, resumed_step;     /* of the newest metrics; of the checkpoint */
    pl_run_status_t status;                 /* of the run  [NONE: it has not ended] */
    bool ending, interrupted;
} logger_t;

static const pl_logger_ops_t *ops_of(const sink_t *sink)
{
    return sink->component->component.ops;
}

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

static void logger_on_recorder(void *self, const pl_answer_t *answer)
{
    logger_t *logger = self;
    if (answer->kind == PL_ANSWER_PROGRESS && ++logger->ready == logger->count)
        pl_actor_ready(logger);
    if (answer->kind == PL_ANSWER_ERROR)
        pl_actor_end(logger, answer->error);
}

static int logger_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    (void)call;
    logger_t *logger = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    const pl_how_t how = {.on_answer = logger_on_recorder};
    const bool listed = pl_options_value(job->options, "loggers") != NULL;
    const int count = listed ? pl_options_count(job->options, "loggers") : 1;
    char *run_dir = NULL, *run = NULL;
    int code = pl_run_options(body->start.options, &run_dir, NULL, err);
    if (code == PL_OK && !run_dir)
        code = pl_fail(err, PL_EINVAL, "the logger needs {\"run_dir\": …}");
    if (code == PL_OK
        && !(logger->sink = pl_alloc_array((size_t)count, sizeof *logger->sink)))
        code = pl_no_memory(err);
    if (code == PL_OK && !(run = pl_options_print(job->options, err)))
        code = err->code;
    while (code == PL_OK && logger->count < count) {
        int k = logger->count++;
        code = sink_open(&logger->sink[k], job->options, k, run_dir, run, err);
    }
    pl_text_free(run);
    pl_free(run_dir);
    for (int k = 0; code == PL_OK && k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        const pl_start_t start = {.options = "", .context = &sink->component->object};
        if (!pl_spawn(logger, &pl_io_recorder, PL_OWN_THREAD, &start, how,
                      &sink->recorder, err))
            code = err->code;
    }
    if (code == PL_OK && logger->count == 0)
        pl_actor_ready(logger);
    return code;
}

/* ---- Lost records ---- */

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

static void records_drop(pl_records_t **records)
{
    pl_object_unref(*records);
    *records = NULL;
}

/* ---- Positions ---- */

/* Keeps the older one if there is no new one, or no memory for it. */
static void sink_set_position(sink_t *sink, const char *position)
{
    const char *old = sink->position ? sink->position : "";
    char *copy = position && strcmp(position, old) ? pl_strdup(position) : NULL;
    if (!copy)
        return;
    pl_free(sink->position);
    sink->position = copy;
    sink->synced = sink->written;
}

static void sink_report_position(sink_t *sink)
{
    pl_free(sink->reported);
    sink->reported = sink->position ? pl_strdup(sink->position) : NULL;
    sink->lacking = sink->requested_at > sink->synced ? sink->requested_at - sink->synced
                                                      : 0;
    sink->awaited = false;
}

/* Answers the request when no logger is awaited. */
static void request_answer(logger_t *logger)
{
    pl_call_t *call = logger->request;
    for (int k = 0; k < logger->count; k++)
        if (logger->sink[k].awaited)
            return;
    if (!call)
        return;
    logger->request = NULL;
    pl_error_t err;
    json_t *list = json_array();
    for (int k = 0; k < logger->count; k++) {
        const sink_t *sink = &logger->sink[k];
        list = pl_json_append(list,
                              json_pack("{s:s, s:s, s:I}", "name", ops_of(sink)->name,
                                        "position", sink->reported ? sink->reported : "",
                                        "behind", (json_int_t)sink->lacking));
    }
    json_t *all = json_pack("{s:I, s:o}", "global_step", (json_int_t)logger->global_step,
                            "loggers", list);
    char *text = all ? pl_json_write(all, PL_JSON_COMPACT) : NULL;
    pl_no_memory(&err);
    if (text)
        pl_reply_get_state(call, &(pl_get_state_reply_t){.state = text});
    else
        pl_call_fail(call, &err);
    pl_text_free(text);
    json_decref(all);
}

/* All records from before the request are written. */
static void sink_synced(logger_t *logger, sink_t *sink)
{
    if (sink->awaited)
        sink_report_position(sink);
    sink->syncing = false;
    sink->waiting = sink->behind;
    sink->behind = NULL;
    request_answer(logger);
}

/* ---- Sending records ---- */

static void sink_send(logger_t *logger, sink_t *sink);

static bool has_enough(const sink_t *sink)
{
    return sink->waiting && sink->waiting->size >= GATHERED_ENOUGH;
}

static void end_if_all_is_written(logger_t *logger)
{
    bool done = logger->ending;
    for (int k = 0; k < logger->count; k++) {
        const sink_t *sink = &logger->sink[k];
        done = done && !sink->writing && !sink->waiting && !sink->behind;
    }
    if (done)
        pl_actor_end(logger, NULL);
}

static void logger_on_written(void *self, const pl_answer_t *answer)
{
    logger_t *logger = self;
    sink_t *sink = answer->context;
    if (answer->kind == PL_ANSWER_ERROR) {
        sink_lose(logger, sink, (uint64_t)sink->writing->count, answer->error->text);
    } else if (answer->kind == PL_ANSWER_REPLY) {
        const pl_write_records_reply_t *reply = &answer->body->write_records_reply;
        sink->written += (uint64_t)sink->writing->count - reply->lost;
        sink_set_position(sink, reply->position);
        if (reply->lost)
            sink_lose(logger, sink, reply->lost, reply->why);
        else if (*reply->why)
            sink_warn(logger, sink, &sink->reported_unsynced,
                      "checkpoints keep an older position of its file", reply->why);
    } else {
        return;
    }
    records_drop(&sink->writing);
    sink->took = pl_now() - sink->since;
    if (sink->syncing && !sink->waiting)
        sink_synced(logger, sink);
    if (logger->ending || logger->status || sink->syncing || has_enough(sink))
        sink_send(logger, sink);
    end_if_all_is_written(logger);
}

/* Sends the waiting records to a logger that is ready. */
static void sink_send(logger_t *logger, sink_t *sink)
{
    pl_error_t err = {0};
    if (!sink->waiting || sink->writing)
        return;
    const pl_write_records_t fields = {.records = &sink->waiting->object,
                                       .position = sink->position ? sink->position : "",
                                       .global_step = logger->resumed_step,
                                       .is_resume = sink->is_resume,
                                       .behind = sink->resumed,
                                       .status = logger->status,
                                       .sync = sink->syncing};
    const pl_how_t how = {.on_answer = logger_on_written, .context = sink};
    sink->writing = sink->waiting;
    sink->waiting = NULL;
    sink->since = pl_now();
    if (pl_call_write_records(logger, sink->recorder, &fields, how, &err))
        return;
    sink_lose(logger, sink, (uint64_t)sink->writing->count, err.text);
    records_drop(&sink->writing);
    if (sink->syncing)
        sink_synced(logger, sink);
}

static void gathered(void *self)
{
    logger_t *logger = self;
    logger->gathering = false;
    for (int k = 0; k < logger->count; k++)
        sink_send(logger, &logger->sink[k]);
}

/* ---- Metrics ---- */

/* Adds a record of metrics for all loggers, or of tensors [NULL] for those that take
 * them. */
static int record_add(logger_t *logger, const pl_record_t *record, pl_weights_t *weights,
                      pl_error_t *err)
{
    pl_error_t why = {0};
    if (logger->ending)
        return pl_fail(err, PL_ESTATE, "the logger is ending");
    if (!weights)
        logger->global_step = record->global_step;
    pl_logged_t *logged = pl_logged_new(record, &why);
    if (logged)
        logged->weights = pl_object_ref(weights);
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        if (weights && !ops_of(sink)->tensors)
            continue;
        pl_records_t **into = sink->syncing ? &sink->behind : &sink->waiting;
        int code = logged && (*into || (*into = pl_records_new(&why))) ? PL_OK
                                                                       : PL_ENOMEM;
        if (code == PL_OK && (*into)->size + logged->size > WAITING_MAX)
            code = pl_fail(&why, PL_EBUSY,
                           "the logger is too slow for the number of records");
        if (code == PL_OK)
            code = pl_records_add(*into, logged, &why);
        sink->taken++;
        if (code != PL_OK)
            sink_lose(logger, sink, 1, why.text);
        if (has_enough(sink))
            sink_send(logger, sink);
    }
    pl_object_unref(logged);
    if (!logger->gathering)
        logger->gathering = pl_after(logger, GATHER_MS, gathered, NULL) == PL_OK;
    if (!logger->gathering)
        gathered(logger);
    return PL_OK;
}

static int logger_on_metrics(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    const pl_log_metrics_t *msg = &body->log_metrics;
    const pl_record_t record = {msg->epoch, msg->global_step, pl_wall_clock(),
                                msg->metrics};
    if (record_add(self, &record, NULL, err) != PL_OK)
        return err->code;
    return pl_reply_log_metrics(call, &(pl_log_metrics_reply_t){0});
}

static int logger_on_weights(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    const pl_log_weights_t *msg = &body->log_weights;
    const pl_record_t record = {msg->epoch, msg->global_step, pl_wall_clock(), "{}"};
    if (record_add(self, &record, (pl_weights_t *)msg->weights, err) != PL_OK)
        return err->code;
    return pl_reply_log_weights(call, &(pl_log_weights_reply_t){0});
}

/* ---- State: the positions, for checkpoints ---- */

/* Slow loggers do not delay the checkpoint.  A run that resumes from it lacks the records
 * that they do not write by the end of this run. */
static void positions_expired(void *self)
{
    logger_t *logger = self;
    for (int k = 0; k < logger->count; k++)
        if (logger->sink[k].awaited)
            sink_report_position(&logger->sink[k]);
    request_answer(logger);
}

static int logger_on_get_state(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    logger_t *logger = self;
    (void)body;
    if (logger->request || logger->ending)
        return pl_fail(err, PL_EBUSY,
                       "the loggers already report their state, or are ending");
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        if (!sink->waiting && !(sink->waiting = pl_records_new(err)))
            return PL_ENOMEM;
    }
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        sink->requested_at = sink->resumed + sink->taken - sink->lost;
        sink_report_position(sink);
        const int64_t now = sink->writing ? pl_now() - sink->since : 0,
                      slowest = now > sink->took ? now : sink->took;
        if (!sink->syncing && slowest < POSITIONS_MS * PL_MILLISECOND)
            sink->syncing = sink->awaited = true;
    }
    logger->request = call;
    for (int k = 0; k < logger->count; k++)
        sink_send(logger, &logger->sink[k]);
    request_answer(logger);
    if (logger->request
        && pl_after(logger, POSITIONS_MS, positions_expired, NULL) != PL_OK)
        positions_expired(logger);
    return PL_OK;
}

/* Called before the first metrics. */
/* The n-th logger of a name gets the state of the n-th one of that name. */
static int logger_on_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    logger_t *logger = self;
    const char *text = body->set_state.state;
    json_t *kept = *text ? pl_json_read(text, strlen(text), "the loggers' state", err)
                         : NULL;
    if (*text && !kept)
        return err->code;
    logger->global_step =
        (uint64_t)json_integer_value(json_object_get(kept, "global_step"));
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        const json_t *state = NULL;
        size_t at;
        json_t *entry;
        int before = 0;
        for (int i = 0; i < k; i++)
            before += !strcmp(ops_of(&logger->sink[i])->name, ops_of(sink)->name);
        json_array_foreach(json_object_get(kept, "loggers"), at, entry) {
            const char *of = json_string_value(json_object_get(entry, "name"));
            if (of && !strcmp(of, ops_of(sink)->name) && before-- == 0)
                state = entry;
        }
        sink_set_position(sink, json_string_value(json_object_get(state, "position")));
        sink->is_resume = state != NULL;
        sink->written = sink->resumed =
            (uint64_t)json_integer_value(json_object_get(state, "behind"));
    }
    logger->resumed_step = logger->global_step;
    json_decref(kept);
    return pl_reply_set_state(call, &(pl_set_state_reply_t){0});
}

/* ---- The end ---- */

/* An empty list of records still carries the status to a logger. */
static int logger_on_end_log(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    logger_t *logger = self;
    logger->status = body->end_log.status;
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        if (!sink->waiting && !(sink->waiting = pl_records_new(err)))
            return PL_ENOMEM;
        sink_send(logger, sink);
    }
    return pl_reply_end_log(call, &(pl_end_log_reply_t){0});
}

/* Ends without the recorders; the runtime reports a thread that is stuck. */
static void logger_abandon(logger_t *logger)
{
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        if (sink->writing)
            sink_lose(logger, sink, (uint64_t)sink->writing->count,
                      "the logger does not end");
    }
    pl_actor_end(logger, NULL);
}

/* First interrupts the loggers and drops their queues, then abandons them. */
static void drain_expired(void *self)
{
    logger_t *logger = self;
    if (logger->interrupted) {
        logger_abandon(logger);
        return;
    }
    logger->interrupted = true;
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        if (sink->writing && ops_of(sink)->interrupt)
            ops_of(sink)->interrupt(sink->component->component.self);
        if (sink->waiting && sink->waiting->count)
            sink_lose(logger, sink, (uint64_t)sink->waiting->count,
                      "the logger is too slow, and the run has ended");
        records_drop(&sink->waiting);
        records_drop(&sink->behind);
    }
    end_if_all_is_written(logger);
    if (pl_after(logger, INTERRUPTED_MS, drain_expired, NULL) != PL_OK)
        logger_abandon(logger);
}

/* The queues are written first, for a grace period. */
static void logger_on_cancel(void *self, pl_call_t *call)
{
    logger_t *logger = self;
    if (!pl_is_life(self, call))
        return;
    logger->ending = true;
    gathered(logger);
    end_if_all_is_written(logger);
    if (pl_after(logger, LAST_MS, drain_expired, NULL) != PL_OK)
        drain_expired(logger);
}

static void logger_release(void *self)
{
    logger_t *logger = self;
    for (int k = 0; k < logger->count; k++) {
        sink_t *sink = &logger->sink[k];
        if (sink->component && sink->lost)
            pl_log_line(PL_LOG_WARNING, pl_actor_rank(logger), pl_actor_name(logger),
                        "logger \"%s\": %llu of %llu records of the run are lost",
                        ops_of(sink)->name, (unsigned long long)sink->lost,
                        (unsigned long long)sink->taken);
        pl_object_unref(sink->waiting);
        pl_object_unref(sink->writing);
        pl_object_unref(sink->behind);
        pl_object_unref(sink->component);
        pl_free(sink->position);
        pl_free(sink->reported);
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
