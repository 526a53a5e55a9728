/* epoch_report.c - what an epoch tells: progress to whoever called it, lines to the
 * loggers */
#include <string.h>

#include "actors/loops/epoch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/log.h"

void pl_epoch_progress(const pl_epoch_t *e, pl_run_event_t event, const char *metrics)
{
    pl_progress_train_epoch(e->iter.call,
                            &(pl_train_epoch_progress_t){.event = event,
                                                         .global_step = e->global_step,
                                                         .total_steps = e->total_steps,
                                                         .epoch = e->iter.epoch,
                                                         .batch = e->iter.done,
                                                         .batches = e->schedule.end,
                                                         .metrics = metrics});
}

/* The steps that the loss scale skipped are a metric of the strategy; this loop adds
 * those that nan_policy skipped. */
static int add_skipped(const pl_epoch_t *e, json_t *into, pl_error_t *err)
{
    const json_t *scaling = json_object_get(into, "skipped_steps");
    return e->skipped
               ? pl_metric_put(into, "skipped_steps",
                               json_number_value(scaling) + (double)e->skipped, err)
               : PL_OK;
}

int pl_epoch_newest(const pl_epoch_t *e, json_t *into, pl_error_t *err)
{
    if (e->skipped)
        json_object_del(into, "skipped_steps");             /* it has both counts */
    int code = pl_metrics_put(&e->since_log, PL_METRICS_OF_STEPS, into, err);
    return code == PL_OK ? add_skipped(e, into, err) : code;
}

/* A report after no step repeats the means of the one before.  e->newest itself changes
 * at decisions only, not by the clock: callbacks and log lines depend on it. */
static json_t *metrics_now(pl_epoch_t *e)
{
    json_t *now = json_copy(e->newest);
    int code = now ? pl_metrics_put(&e->since_report, PL_METRICS_OF_STEPS, e->reported,
                                    NULL)
                   : PL_ENOMEM;
    pl_metrics_clear(&e->since_report);
    if (code == PL_OK && e->skipped)
        json_object_del(now, "skipped_steps");
    if (code == PL_OK && json_object_update(now, e->reported) == 0
        && add_skipped(e, now, NULL) == PL_OK)
        return now;
    json_decref(now);
    return NULL;
}

void pl_epoch_report(pl_epoch_t *e, pl_run_event_t event)
{
    json_t *now = metrics_now(e), *ranks = pl_stragglers_report(&e->stragglers, pl_now());
    if (ranks && event == PL_RUN_EVENT_TRAIN)
        now = pl_json_with(now, "ranks", json_incref(ranks));
    char *text = now ? pl_metrics_text(now, NULL) : NULL;
    e->reported_at = pl_now();
    pl_epoch_progress(e, event, text ? text : "");
    pl_free(text);
    json_decref(now);
}

static bool record_send(pl_epoch_t *e, const pl_log_metrics_t *msg, pl_on_answer_t then)
{
    return pl_call_log_metrics(e, e->hooks.logger, msg, (pl_how_t){.on_answer = then},
                               &e->iter.failure);
}

bool pl_epoch_log_record(pl_epoch_t *e, const pl_log_metrics_t *msg, pl_on_answer_t then)
{
    if (then || !json_array_size(e->held))
        return record_send(e, msg, then);
    json_t *record = json_pack("{s:I, s:I, s:s}", "epoch", (json_int_t)msg->epoch,
                               "global_step", (json_int_t)msg->global_step, "metrics",
                               msg->metrics);
    return json_array_append_new(e->held, record) == 0
           || (pl_no_memory(&e->iter.failure), false);
}

void pl_epoch_log_hold(pl_epoch_t *e)
{
    if (!e->held)
        e->held = json_array();
    if (json_array_append_new(e->held, json_null()) != 0)
        pl_no_memory(&e->iter.failure);
}

void pl_epoch_log_release(pl_epoch_t *e)
{
    for (json_array_remove(e->held, 0); json_is_object(json_array_get(e->held, 0));
         json_array_remove(e->held, 0)) {
        const json_t *record = json_array_get(e->held, 0);
        const json_int_t step =
                             json_integer_value(json_object_get(record, "global_step")),
                         epoch = json_integer_value(json_object_get(record, "epoch"));
        const pl_log_metrics_t msg = {.epoch = (uint32_t)epoch,
                                      .global_step = (uint64_t)step,
                                      .metrics = json_string_value(
                                          json_object_get(record, "metrics"))};
        record_send(e, &msg, NULL);
    }
}

/* A loss of no weight is no metric, so nothing else shows that nothing was learned. */
static void warn_of_no_target(const pl_epoch_t *e)
{
    const pl_metrics_t *sums = &e->sums;
    const pl_logged_metric_t *loss = sums->metric;
    if (pl_actor_rank((void *)e) <= 0 && sums->count && sums->sum && !e->skipped
        && loss->from + 1 < sums->size && sums->sum[loss->from + 1] == 0)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank((void *)e), pl_actor_name((void *)e),
                    "epoch %u changes no weight: the weight of its loss is 0, because "
                    "all targets are ignored or all samples have weight 0; check the "
                    "data and the module's ignore_index",
                    e->iter.epoch + 1);
}

/* A line of what came since the newest to the loggers, at its end with what the epoch
 * comes to; `then` hears that they have it  [nobody]. */
bool pl_epoch_log(pl_epoch_t *e, pl_on_answer_t then)
{
    json_t *line = json_object();
    char *text = NULL;
    bool last = e->iter.done == e->schedule.end;
    if (last)
        warn_of_no_target(e);
    if (!line)
        pl_no_memory(&e->iter.failure);
    else if (pl_epoch_newest(e, line, &e->iter.failure) == PL_OK
             && (!last
                 || pl_metrics_put(&e->sums, PL_METRICS_OF_EPOCH, line, &e->iter.failure)
                        == PL_OK))
        text = json_object_update(e->newest, line) == 0
                   ? pl_metrics_text(line, &e->iter.failure)
                   : NULL;
    if (!text && e->iter.failure.code == PL_OK)
        pl_no_memory(&e->iter.failure);
    json_decref(line);
    pl_log_metrics_t msg = {.epoch = e->iter.epoch,
                            .global_step = e->global_step,
                            .metrics = text};
    bool sent = text && !pl_is_nobody(e->hooks.logger)
                && pl_epoch_log_record(e, &msg, then);
    pl_free(text);
    pl_metrics_clear(&e->since_log);
    return sent;
}
