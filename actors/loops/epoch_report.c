/* epoch_report.c - what an epoch tells: progress to whoever called it, lines to the
 * loggers */
#include <string.h>

#include "actors/loops/epoch_parts.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_walk.h"

void pl_epoch_tell(const pl_epoch_t *e, const char *event, const char *metrics)
{
    pl_progress_train_epoch(e->pass.call,
                            &(pl_train_epoch_progress_t){.event = event,
                                                         .global_step = e->global_step,
                                                         .total_steps = e->total_steps,
                                                         .epoch = e->pass.epoch,
                                                         .batch = e->pass.done,
                                                         .batches = e->due.end,
                                                         .metrics = metrics});
}

int pl_epoch_newest(const pl_epoch_t *e, json_t *into, pl_error_t *err)
{
    if (e->skipped)
        json_object_del(into, "skipped_steps");             /* a sum: see below */
    int code = pl_figures_put(&e->since_log, PL_FIGURES_OF_STEPS, into, err);
    const json_t *scaling = json_object_get(into, "skipped_steps");
    if (code == PL_OK && e->skipped)
        code = pl_metric_put(into, "skipped_steps",
                             json_number_value(scaling) + (double)e->skipped, err);
    return code;
}

void pl_epoch_report(pl_epoch_t *e, const char *event, const json_t *metrics)
{
    char *text = pl_metrics_text(metrics, NULL);
    e->reported = pl_now();
    pl_epoch_tell(e, event, text ? text : "");
    pl_free(text);
}

/* With what no log line has said yet.  e->newest itself changes at decisions only, not by
 * the clock. */
void pl_epoch_report_now(pl_epoch_t *e, const char *event)
{
    json_t *now = json_copy(e->newest), *ranks = pl_times_tell(&e->times, pl_now());
    if (ranks && !strcmp(event, "train"))
        now = pl_json_with(now, "ranks", json_incref(ranks));
    if (now && pl_epoch_newest(e, now, NULL) == PL_OK)
        pl_epoch_report(e, event, now);
    json_decref(now);
}

/* A line of what came since the newest to the loggers, at its end with what the epoch
 * comes to; `then` hears that they have it  [nobody]. */
bool pl_epoch_log(pl_epoch_t *e, pl_on_answer_t then)
{
    json_t *line = json_object();
    char *text = NULL;
    bool last = e->pass.done == e->due.end;
    if (!line)
        pl_no_memory(&e->pass.failure);
    else if (pl_epoch_newest(e, line, &e->pass.failure) == PL_OK
             && (!last
                 || pl_figures_put(&e->sums, PL_FIGURES_OF_EPOCH, line, &e->pass.failure)
                        == PL_OK))
        text = json_object_update(e->newest, line) == 0
                   ? pl_metrics_text(line, &e->pass.failure)
                   : NULL;
    if (!text && e->pass.failure.code == PL_OK)
        pl_no_memory(&e->pass.failure);
    json_decref(line);
    pl_log_metrics_t msg = {.epoch = e->pass.epoch,
                            .global_step = e->global_step,
                            .metrics = text};
    bool sent = text && !pl_is_nobody(e->asking.logger)
                && pl_call_log_metrics(e, e->asking.logger, &msg,
                                       (pl_how_t){.on_answer = then}, &e->pass.failure);
    pl_free(text);
    pl_figures_clear(&e->since_log);
    return sent;
}
