/* epoch_report.c - what the epoch loop reports and keeps: progress for its caller, lines
 * for the loggers, step times of the ranks, the state for a checkpoint */
#include <stdio.h>
#include <string.h>

#include "actors/loops/epoch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/median.h"

/* ---- progress ---- */

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

/* A report after no step repeats the means of the previous one.  e->newest itself changes
 * at batch ends only, not by the clock: callbacks and log lines depend on it. */
void pl_epoch_report(pl_epoch_t *e, pl_run_event_t event)
{
    json_t *now = json_copy(e->newest),
           *ranks = pl_stragglers_report(&e->stragglers, pl_now());
    int code = now ? pl_metrics_put(&e->since_report, PL_METRICS_OF_STEPS, e->reported,
                                    NULL)
                   : PL_ENOMEM;
    pl_metrics_clear(&e->since_report);
    if (code == PL_OK && e->skipped)
        json_object_del(now, "skipped_steps");
    if (code != PL_OK || json_object_update(now, e->reported) != 0
        || add_skipped(e, now, NULL) != PL_OK) {
        json_decref(now);
        now = NULL;
    }
    if (ranks && event == PL_RUN_EVENT_TRAIN)
        now = pl_json_with(now, "ranks", json_incref(ranks));
    char *text = pl_json_to_text(now, NULL);
    e->reported_at = pl_now();
    pl_epoch_progress(e, event, text ? text : "");
    pl_text_free(text);
}

/* ---- log lines ---- */

bool pl_epoch_log_record(pl_epoch_t *e, const pl_log_metrics_t *msg, pl_on_answer_t then)
{
    if (then || !json_array_size(e->held))
        return pl_call_log_metrics(e, e->hooks.logger, msg, (pl_how_t){.on_answer = then},
                                   &e->iter.failure);
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
        pl_call_log_metrics(e, e->hooks.logger, &msg, (pl_how_t){0}, &e->iter.failure);
    }
}

/* At the end of an epoch a loss of weight 0 is a warning: it is not reported as a metric,
 * so nothing else shows that nothing was learned. */
bool pl_epoch_log(pl_epoch_t *e, pl_on_answer_t then)
{
    pl_error_t *err = &e->iter.failure;
    json_t *line = json_object();
    char *text = NULL;
    const bool is_last = e->iter.done == e->schedule.end;
    const pl_metrics_t *sums = &e->sums;
    const size_t weight = sums->metric->from + 1;
    if (is_last && pl_actor_rank(e) <= 0 && sums->count && sums->sum && !e->skipped
        && weight < sums->size && sums->sum[weight] == 0)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(e), pl_actor_name(e),
                    "epoch %u changes no weight: the weight of its loss is 0, because "
                    "all targets are ignored or all samples have weight 0; check the "
                    "data and the module's ignore_index",
                    e->iter.epoch + 1);
    if (line && pl_epoch_newest(e, line, err) == PL_OK
        && (!is_last || pl_metrics_put(&e->sums, PL_METRICS_OF_EPOCH, line, err) == PL_OK)
        && json_object_update(e->newest, line) == 0)
        text = pl_metrics_text(line, err);
    if (!text && err->code == PL_OK)
        pl_no_memory(err);
    json_decref(line);
    const pl_log_metrics_t msg = {.epoch = e->iter.epoch,
                                  .global_step = e->global_step,
                                  .metrics = text};
    const bool sent = text && !pl_is_nobody(e->hooks.logger)
                      && pl_epoch_log_record(e, &msg, then);
    pl_free(text);
    pl_metrics_clear(&e->since_log);
    return sent;
}

/* ---- step times of all ranks, and which rank is the slowest ----
 *
 * All ranks wait for the slowest in each step, so the time that a rank works alone shows
 * how fast it is. */

enum { OWN = PL_TIMINGS, ROWS };

static const int64_t STRAGGLERS_EVERY = PL_SECOND;

void pl_stragglers_add(pl_stragglers_t *stragglers, pl_bytes_t timings, int64_t now)
{
    const size_t count = timings.size / sizeof(double);
    const double *seconds = timings.data;
    if (count <= PL_TIMINGS)
        return;
    if (stragglers->capacity < count) {
        pl_free(stragglers->sum);
        stragglers->sum = pl_alloc_array(count, sizeof *stragglers->sum);
        stragglers->capacity = stragglers->sum ? count : 0;
        stragglers->steps = 0;
    }
    if (!stragglers->capacity)
        return;                                             /* out of memory */
    if (!stragglers->steps++)
        stragglers->since = now;
    for (size_t k = 0; k < count; k++)
        stragglers->sum[k] += seconds[k];
}

/* Milliseconds per step. */
static double row_value(const pl_stragglers_t *stragglers, size_t rank, int row)
{
    const double *sum = stragglers->sum + rank * PL_TIMINGS;
    double seconds = row == OWN ? -sum[PL_TIMING_COLLECTIVE] : sum[row];
    for (int k = 0; row == OWN && k < PL_TIMINGS; k++)
        seconds += sum[k];
    return seconds * 1e3 / (double)stragglers->steps;
}

json_t *pl_stragglers_report(pl_stragglers_t *stragglers, int64_t now)
{
    const size_t ranks = stragglers->capacity / PL_TIMINGS;
    double *value;
    if (!stragglers->steps || now - stragglers->since < STRAGGLERS_EVERY
        || !(value = pl_alloc_array(ranks, sizeof *value)))
        return stragglers->reported;
    json_decref(stragglers->reported);
    /* value is space for a number of each rank.  The last row is the ranks' own time; the
     * whole depends on its spread. */
    json_t *all = json_pack("{s:I}", "steps", (json_int_t)stragglers->steps);
    double spread = 0;
    size_t slowest = 0;
    for (int row = 0; row < ROWS; row++) {
        slowest = 0;
        for (size_t rank = 0; rank < ranks; rank++) {
            value[rank] = row_value(stragglers, rank, row);
            if (value[rank] > row_value(stragglers, slowest, row))
                slowest = rank;
        }
        const double median = pl_median(value, ranks), min = value[0],
                     max = value[ranks - 1];
        spread = median > 0 ? (max - min) / median : 0;
        all = pl_json_with(all, row == OWN ? "own" : pl_timing_names[row],
                           json_pack("{s:f, s:f, s:f, s:I}", "min", min, "median", median,
                                     "max", max, "slowest", (json_int_t)slowest));
    }
    all = pl_json_with(all, "spread", json_real(spread));
    stragglers->reported = pl_json_with(all, "slowest",
                                        json_integer((json_int_t)slowest));
    memset(stragglers->sum, 0, stragglers->capacity * sizeof *stragglers->sum);
    stragglers->steps = 0;
    pl_free(value);
    return stragglers->reported;
}

void pl_stragglers_release(pl_stragglers_t *stragglers)
{
    pl_free(stragglers->sum);
    json_decref(stragglers->reported);
}

/* ---- the state for a checkpoint: progress, and the sums of log lines and the epoch ----
 */

static json_t *sums_save(const pl_metrics_t *metrics)
{
    json_t *all = json_object();
    for (int k = 0; k < metrics->count && metrics->sum; k++) {
        const pl_logged_metric_t *f = &metrics->metric[k];
        json_t *sums = json_array();
        for (size_t i = 0; i < f->count; i++)
            sums = pl_json_append(sums, pl_number_save(metrics->sum[f->from + i]));
        all = pl_json_with(all, f->name, sums);
    }
    return all;
}

static void sums_restore(pl_metrics_t *metrics, const json_t *kept)
{
    if (!json_object_size(kept) || !pl_metrics_begin(metrics))
        return;
    for (int k = 0; k < metrics->count; k++) {
        const pl_logged_metric_t *f = &metrics->metric[k];
        const json_t *sums = json_object_get(kept, f->name);
        for (size_t i = 0; i < f->count; i++)
            metrics->sum[f->from + i] = pl_number_load(json_array_get(sums, i));
    }
}

void pl_epoch_sums_restore(pl_epoch_t *e)
{
    if (e->kept) {
        sums_restore(&e->sums, json_object_get(e->kept, "sums"));
        sums_restore(&e->since_log, json_object_get(e->kept, "since_log"));
    }
    json_decref(e->kept);
    e->kept = NULL;
}

const char *pl_epoch_stop_request(const pl_epoch_t *e)
{
    return e->out_of_time ? "" : e->stop_request;
}

/* Batches count up to the newest end of an optimizer step: gradients after it are lost.
 */
char *pl_epoch_state(const pl_epoch_t *e)
{
    static const char form[] = "{s:I, s:I, s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:o, "
                               "s:s, s:s, s:{s:o, s:o}, s:o, s:o, s:O}";
    const bool keeps_stop = e->stopping && !e->stop_received && !e->out_of_time;
    uint32_t done = e->iter.done;
    while (done && e->schedule.options
           && !pl_batch_schedule_after(&e->schedule, done - 1).step)
        done--;
    return pl_json_to_text(
        json_pack(form, "epoch", (json_int_t)e->iter.epoch, "batch", (json_int_t)done,
                  "whole", done && done == e->schedule.batches, "cut", e->is_cut_short,
                  "owes", e->owes_validation, "asked",
                  e->validation_announced, "global_step", (json_int_t)e->global_step,
                  "samples", (json_int_t)e->samples, "skipped", (json_int_t)e->skipped,
                  "in_row", (json_int_t)e->in_row, "lr_factor",
                  pl_number_save(e->lr_factor), "stop", keeps_stop ? e->reason : "",
                  "stop_request", pl_epoch_stop_request(e), "counts", "batches",
                  pl_tracker_save(&e->iter.counts), "steps", pl_tracker_save(&e->steps),
                  "sums", sums_save(&e->sums), "since_log", sums_save(&e->since_log),
                  "newest", e->newest),
        NULL);
}

int pl_epoch_get_state(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)body;
    char *text = pl_epoch_state(self);
    if (!text)
        return pl_no_memory(err);
    int code = pl_reply_get_state(call, &(pl_get_state_reply_t){.state = text});
    pl_text_free(text);
    return code;
}

int pl_epoch_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    pl_epoch_t *e = self;
    const char *text = body->set_state.state;
    json_t *kept = pl_json_read(text, strlen(text), "the epoch loop's state", err);
    if (!kept)
        return err->code;
    const char *stop = json_string_value(json_object_get(kept, "stop"));
    const json_t *counts = json_object_get(kept, "counts");
    json_t *newest = json_object_get(kept, "newest");
    e->samples = (uint64_t)json_integer_value(json_object_get(kept, "samples"));
    e->is_cut_short = json_is_true(json_object_get(kept, "cut"));
    e->owes_validation = json_is_true(json_object_get(kept, "owes"));
    e->validation_announced = json_is_true(json_object_get(kept, "asked"));
    e->skipped = (uint64_t)json_integer_value(json_object_get(kept, "skipped"));
    e->in_row = (uint64_t)json_integer_value(json_object_get(kept, "in_row"));
    snprintf(e->stop_request, sizeof e->stop_request, "%s",
             pl_json_text_of(kept, "stop_request"));
    pl_tracker_load(&e->iter.counts, json_object_get(counts, "batches"));
    pl_tracker_load(&e->steps, json_object_get(counts, "steps"));
    e->lr_factor = pl_number_load(json_object_get(kept, "lr_factor"));
    if (stop && *stop) {
        e->stopping = true;
        snprintf(e->reason, sizeof e->reason, "%s", stop);
    }
    int failed = newest ? json_object_update(e->newest, newest) : 0;
    json_decref(e->kept);
    e->kept = kept;
    return failed ? pl_no_memory(err)
                  : pl_reply_set_state(call, &(pl_set_state_reply_t){0});
}
