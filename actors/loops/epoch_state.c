/* epoch_state.c - what a checkpoint keeps of the epoch loop: how far it was, and the sums
 * that log lines and the epoch's metrics come from */
#include <stdio.h>
#include <string.h>

#include "actors/loops/epoch.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"

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

/* ---- the loop ---- */

/* Batches up to the newest end of an optimizer step: what came after it is gone with the
 * gradients. */
static uint32_t batches_saved(const pl_epoch_t *e)
{
    uint32_t done = e->iter.done;
    while (done && e->schedule.options
           && !pl_batch_schedule_is_step(&e->schedule, done - 1))
        done--;
    return done;
}

static json_t *trackers_save(const pl_epoch_t *e)
{
    return json_pack("{s:o, s:o}", "batches", pl_tracker_save(&e->iter.counts), "steps",
                     pl_tracker_save(&e->steps));
}

static void trackers_load(pl_epoch_t *e, const json_t *kept)
{
    pl_tracker_load(&e->iter.counts, json_object_get(kept, "batches"));
    pl_tracker_load(&e->steps, json_object_get(kept, "steps"));
}

const char *pl_epoch_stop_request(const pl_epoch_t *e)
{
    return e->out_of_time ? "" : e->stop_request;
}

static json_t *epoch_save(const pl_epoch_t *e)
{
    static const char form[] = "{s:I, s:I, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:o, s:s, "
                               "s:s, s:o, s:o, s:o, s:O}";
    return json_pack(form, "epoch", (json_int_t)e->iter.epoch, "batch",
                     (json_int_t)batches_saved(e), "cut", e->cut, "owes", e->owes,
                     "asked", e->asked, "global_step", (json_int_t)e->global_step,
                     "samples", (json_int_t)e->samples, "skipped", (json_int_t)e->skipped,
                     "in_row", (json_int_t)e->in_row, "lr_factor",
                     pl_number_save(e->lr_factor), "stop",
                     e->stopping && !e->told && !e->out_of_time ? e->reason : "",
                     "stop_request", pl_epoch_stop_request(e), "counts", trackers_save(e),
                     "sums", sums_save(&e->sums), "since_log", sums_save(&e->since_log),
                     "newest", e->newest);
}

char *pl_epoch_state(const pl_epoch_t *e)
{
    json_t *kept = epoch_save(e);
    char *text = kept ? pl_json_write(kept, PL_JSON_COMPACT) : NULL;
    json_decref(kept);
    return text;
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
    json_t *newest = json_object_get(kept, "newest");
    e->samples = (uint64_t)json_integer_value(json_object_get(kept, "samples"));
    e->cut = json_is_true(json_object_get(kept, "cut"));
    e->owes = json_is_true(json_object_get(kept, "owes"));
    e->asked = json_is_true(json_object_get(kept, "asked"));
    e->skipped = (uint64_t)json_integer_value(json_object_get(kept, "skipped"));
    e->in_row = (uint64_t)json_integer_value(json_object_get(kept, "in_row"));
    const char *request = pl_stop_request_load(kept);
    snprintf(e->stop_request, sizeof e->stop_request, "%s", request);
    trackers_load(e, json_object_get(kept, "counts"));
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

void pl_epoch_sums_restore(pl_epoch_t *e)
{
    if (e->kept) {
        sums_restore(&e->sums, json_object_get(e->kept, "sums"));
        sums_restore(&e->since_log, json_object_get(e->kept, "since_log"));
    }
    json_decref(e->kept);
    e->kept = NULL;
}
