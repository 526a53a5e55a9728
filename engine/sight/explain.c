/* explain.c - what a journal says of its run: why it ended, who was doing what, where the
 * time went
 *
 * The file is read twice.  First the last run in it is measured, and the errors of its
 * calls kept; the error of the run goes back to the one that came first, call by call.
 * Then it is read up to that moment, to see which calls were open. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "sight/explain_parts.h"

/* ---- the end of the run ---- */

static json_t *seconds(int64_t time)
{
    return json_real((double)time * 1e-9);
}

static void fault_add(explain_t *x, const pl_open_t *open, const pl_tap_record_t *record,
                      const pl_error_t *error)
{
    if (x->fault_count == FAULTS) {
        memmove(x->faults + FAULTS / 2, x->faults + FAULTS / 2 + 1,
                (FAULTS / 2 - 1) * sizeof *x->faults);      /* the first ones are kept */
        x->fault_count--;
    }
    x->faults[x->fault_count++] = (fault_t){.call = record->envelope.call,
                                            .cause = open ? open->cause : 0,
                                            .origin = record->origin,
                                            .message = record->envelope.message,
                                            .rank = record->stamp.rank,
                                            .time = record->stamp.time,
                                            .from_kind = record->envelope.to_kind,
                                            .to_kind = record->envelope.from_kind,
                                            .error = *error};
}

static void run_begins(explain_t *x, const pl_tap_record_t *record)
{
    x->began = record->stamp.time;
    x->runs++;
    x->fault_count = 0;
    x->has_ended = x->has_failed = false;
    x->reason[0] = x->status[0] = '\0';
    x->trouble = INT64_MAX;
    json_array_clear(x->events);
    explain_forget_times(x);
}

static void keep(char room[REASON_MOST], const char *text)
{
    if (*text)
        snprintf(room, REASON_MOST, "%s", text);
}

/* What has become of a rank. */
static void look_at_watch(explain_t *x, const pl_tap_record_t *record,
                          const pl_watch_progress_t *w)
{
    if (record->origin || json_array_size(x->events) >= EVENTS_MOST
        || pl_kind_level(record->envelope.to_kind) != PL_LEVEL_TRAINER)
        return;
    json_array_append_new(x->events,
                          json_pack("{s:o, s:I, s:s, s:s, s:s, s:I, s:I}", "time",
                                    seconds(record->stamp.time), "rank",
                                    (json_int_t)w->rank, "event", w->event, "cause",
                                    w->cause, "host", w->host, "process",
                                    (json_int_t)w->process, "global_step",
                                    (json_int_t)w->global_step));
    if (x->trouble == INT64_MAX
        && (!strcmp(w->event, "died") || !strcmp(w->event, "silent")
            || !strcmp(w->event, "gone")))
        x->trouble = record->stamp.time;
}

static void look_at_body(explain_t *x, const pl_tap_record_t *record,
                         const pl_body_t *body)
{
    const uint32_t message = record->envelope.message;
    if (record->envelope.kind == PL_KIND_CALL) {
        if (message == PL_MESSAGE_stop)
            keep(x->reason, body->stop.reason);
        if (message == PL_MESSAGE_end_log)
            keep(x->status, body->end_log.status);
    } else if (record->envelope.kind == PL_KIND_PROGRESS) {
        if (message == PL_MESSAGE_watch)
            look_at_watch(x, record, &body->watch_progress);
        if (message == PL_MESSAGE_run)
            x->step = body->run_progress.global_step;
    } else if (record->envelope.kind == PL_KIND_REPLY) {
        if (message == PL_MESSAGE_train_epoch)
            keep(x->reason, body->train_epoch_reply.reason);
        if (message == PL_MESSAGE_ask_callbacks && body->ask_callbacks_reply.stop)
            keep(x->reason, body->ask_callbacks_reply.reason);
    }
}

static bool is_of_run(const pl_tap_record_t *record)
{
    return !record->origin && record->envelope.message == PL_MESSAGE_run;
}

static void look_at_end(explain_t *x, const pl_open_t *open,
                        const pl_tap_record_t *record)
{
    if (!is_of_run(record) || !open || pl_kind_level(open->to->kind) != PL_LEVEL_TRAINER)
        return;
    x->has_ended = true;
    x->has_failed = record->envelope.kind == PL_KIND_ERROR;
    x->ended = record->stamp.time;
}

static void first_pass_record(explain_t *x, const pl_tap_record_t *record)
{
    pl_body_t body;
    pl_error_t error = {0};
    pl_open_t *open = pl_scene_take(&x->scene, record);
    x->messages++;
    x->last = record->stamp.time > x->last ? record->stamp.time : x->last;
    if (open && record->envelope.kind == PL_KIND_CALL && is_of_run(record)
        && pl_kind_level(record->envelope.to_kind) == PL_LEVEL_TRAINER)
        run_begins(x, record);
    if (pl_frame_decode_record(record->frame, &body, &error, NULL) == PL_OK) {
        look_at_body(x, record, &body);
        if (record->envelope.kind == PL_KIND_ERROR && error.code != PL_ECANCELLED)
            fault_add(x, open, record, &error);
    }
    if (!open || !pl_ends_call(record))
        return;
    look_at_end(x, open, record);
    explain_time_call(x, open, record);
    pl_scene_drop(&x->scene, open);
}

/* ---- the chain of causes ---- */

/* The call that one failed for: one that was made while that was handled and failed just
 * before. */
static const fault_t *fault_under(const explain_t *x, const fault_t *fault)
{
    for (int k = x->fault_count - 1; k >= 0; k--) {
        const fault_t *other = &x->faults[k];
        if (other != fault && other->origin == fault->origin
            && other->cause == fault->call && other->time <= fault->time)
            return other;
    }
    return NULL;
}

/* Calls to ranks in other processes go over links that the stream does not show. */
static const fault_t *fault_elsewhere(const explain_t *x, const fault_t *fault)
{
    for (int k = 0; k < x->fault_count; k++) {
        const fault_t *other = &x->faults[k];
        if (!fault->origin && other->origin && other->error.code == fault->error.code
            && other->time <= fault->time
            && pl_kind_level(other->to_kind) < PL_LEVEL_LAUNCHER)
            return other;
    }
    return NULL;
}

static json_t *fault_json(const fault_t *f)
{
    return json_pack("{s:o, s:i, s:s, s:s, s:s, s:s, s:s, s:s}", "time", seconds(f->time),
                     "rank", f->rank, "actor", pl_kind_name(f->to_kind), "asked_by",
                     pl_kind_name(f->from_kind), "call",
                     pl_message_info(f->message)->name, "code",
                     pl_code_name(f->error.code), "where", f->error.where, "text",
                     f->error.text);
}

static const fault_t *fault_of_run(const explain_t *x)
{
    for (int k = x->fault_count - 1; k >= 0; k--)
        if (!x->faults[k].origin && x->faults[k].message == PL_MESSAGE_run
            && pl_kind_level(x->faults[k].to_kind) == PL_LEVEL_TRAINER)
            return &x->faults[k];
    return NULL;
}

static json_t *chain_json(explain_t *x)
{
    json_t *chain = json_array();
    const fault_t *fault = x->has_failed ? fault_of_run(x) : NULL, *under;
    for (int steps = 0; fault && steps < FAULTS; steps++) {
        json_array_append_new(chain, fault_json(fault));
        if (x->trouble == INT64_MAX || fault->time < x->trouble)
            x->trouble = fault->time;
        under = fault_under(x, fault);
        fault = under ? under : fault_elsewhere(x, fault);
    }
    return chain;
}

static json_t *end_json(explain_t *x)
{
    json_t *chain = chain_json(x);
    const bool was_stopped = !strcmp(x->status, "stopped") || (!*x->status && *x->reason);
    const char *how = !x->runs        ? "none"
                      : !x->has_ended ? "cut off"
                      : x->has_failed ? "failed"
                      : was_stopped   ? "stopped"
                                      : "ok";
    const json_t *root = json_array_get(chain, json_array_size(chain) - 1);
    const char *text = json_string_value(json_object_get(root, "text"));
    const char *why = text ? text : was_stopped ? x->reason : "";
    return json_pack("{s:s, s:s, s:o, s:I, s:o, s:O}", "status", how, "reason", why,
                     "time", seconds(x->has_ended ? x->ended : x->last), "global_step",
                     (json_int_t)x->step, "chain", chain, "events", x->events);
}

/* ---- reading ---- */

/* Up to what comes before a moment; what is wrong with the file goes to *damage. */
static int read_pass(const char *path, explain_t *x, int64_t until,
                     void (*take)(explain_t *, const pl_tap_record_t *),
                     pl_error_t *damage, pl_error_t *err)
{
    pl_journal_item_t item;
    pl_journal_t *journal = pl_journal_open(path, err);
    if (!journal)
        return err->code;
    while (pl_journal_read(journal, &item, damage)) {
        if (item.is_gap)
            x->missing += item.gap_count;
        else if (item.record.stamp.time >= until)
            break;
        else
            take(x, &item.record);
    }
    x->strange = pl_journal_strange(journal);
    pl_journal_close(journal);
    return PL_OK;
}

static void second_pass_record(explain_t *x, const pl_tap_record_t *record)
{
    pl_open_t *open = pl_scene_take(&x->scene, record);
    if (open && pl_ends_call(record))
        pl_scene_drop(&x->scene, open);
}

static int explain(explain_t *x, const char *path, json_t **answer, pl_error_t *err)
{
    pl_error_t damage = {0}, unused = {0};
    int code = read_pass(path, x, INT64_MAX, first_pass_record, &damage, err);
    if (code != PL_OK)
        return code;
    const uint64_t missing = x->missing;
    json_t *end = end_json(x), *times = explain_times_json(x);
    const int64_t ended = x->has_ended ? x->ended : x->last;
    const int64_t moment = x->trouble != INT64_MAX ? x->trouble
                           : x->has_ended          ? INT64_MAX
                                                   : x->last + 1;
    pl_scene_release(&x->scene);
    x->scene = (pl_scene_t){0};
    code = read_pass(path, x, moment, second_pass_record, &unused, err);
    *answer = json_pack("{s:b, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "whole",
                        damage.code == PL_OK, "damage", damage.text, "messages",
                        (json_int_t)x->messages, "missing", (json_int_t)missing,
                        "passed_over", (json_int_t)x->strange, "runs",
                        (json_int_t)x->runs, "seconds",
                        seconds(x->runs ? ended - x->began : 0), "end", end, "then",
                        explain_open_json(x, moment < x->last ? moment : x->last),
                        "times", times);
    return code;
}

char *pl_journal_explain(const char *path, pl_error_t *err)
{
    pl_error_t own;
    json_t *answer = NULL;
    char *text = NULL;
    if (!err)
        err = &own;
    if (pl_given(path, "a path", err) != PL_OK)
        return NULL;
    explain_t *x = pl_alloc(sizeof *x);
    if (!x) {
        pl_no_memory(err);
        return NULL;
    }
    x->events = json_array();
    x->trouble = INT64_MAX;
    if (explain(x, path, &answer, err) == PL_OK) {
        text = answer ? pl_json_write(answer, PL_JSON_COMPACT) : NULL;
        if (!text)
            pl_no_memory(err);
    }
    json_decref(answer);
    json_decref(x->events);
    explain_forget_times(x);
    pl_scene_release(&x->scene);
    pl_free(x);
    return text;
}
