/* explain.c - what a journal says of its runs: which there are, why one ended, who was
 * doing what, where the time went
 *
 * The file is read twice.  First the runs in it are told apart, one of them is measured,
 * and the errors of its calls are kept; then it is read up to the moment in question, to
 * see which calls were open.  A call is of the run that the call it was made for is of;
 * those of other processes, which know of no such call, are of the newest one. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/random.h"
#include "telemetry/explain_parts.h"

json_t *explain_seconds(int64_t time)
{
    return json_real((double)time * 1e-9);
}

/* The run and its epochs end while somebody waits for them, so they count. */
bool explain_is_whole_life(uint32_t message)
{
    return message == PL_MESSAGE_start || message == PL_MESSAGE_watch;
}

/* ---- which calls are of which run ---- */

static uint64_t note_key(uint32_t process_id, uint64_t call)
{
    return pl_mix(call, process_id) | 1;
}

call_note_t *explain_note(const explain_t *x, uint32_t process_id, uint64_t call)
{
    return call ? pl_map_get(&x->notes, note_key(process_id, call)) : NULL;
}

int64_t explain_received(const explain_t *x, uint32_t process_id)
{
    return (intptr_t)pl_map_get(&x->received, (uint64_t)process_id + 1);
}

static void notes_forget(explain_t *x)
{
    uint64_t key;
    while (pl_map_any(&x->notes, &key))
        pl_free(pl_map_take(&x->notes, key));
    pl_map_release(&x->notes);
    pl_map_release(&x->received);
}

static void details_forget(explain_t *x)
{
    x->fault_count = x->pause_count = 0;
    x->trouble = INT64_MAX;
    x->incarnation = 0;
    json_array_clear(x->events);
    json_array_clear(x->commands);
    explain_forget_times(x);
    for (size_t k = 0; k < x->notes.capacity; k++)
        if (x->notes.key[k]) {
            call_note_t *note = x->notes.value[k];
            note->actor = note->wait = NULL;
        }
}

static void run_begins(explain_t *x, const pl_tap_record_t *record)
{
    run_t *run = pl_alloc(sizeof *run);
    if (!run)
        return;
    *run = (run_t){.before = x->newest, .number = ++x->runs, .began = record->stamp.time};
    x->newest = run;
    if (!x->wanted || x->wanted == run->number) {
        details_forget(x);
        x->chosen = run;
    }
}

static run_t *run_of_number(const explain_t *x, uint64_t number)
{
    run_t *run = x->newest;
    while (run && run->number != number)
        run = run->before;
    return run;
}

static bool begins_run(const pl_tap_record_t *record)
{
    const pl_envelope_t *e = &record->envelope;
    return !record->process_id && e->kind == PL_KIND_CALL && e->message == PL_MESSAGE_run
           && pl_kind_level(e->to_kind) == PL_LEVEL_TRAINER;
}

static void note_begins(explain_t *x, const pl_open_t *open, bool begins, run_t *newest)
{
    call_note_t *note = explain_note(x, open->process_id, open->call), *parent;
    if (!note && (note = pl_alloc(sizeof *note))
        && pl_map_put(&x->notes, note_key(open->process_id, open->call), note) != PL_OK) {
        pl_free(note);
        note = NULL;
    }
    if (!note)
        return;
    parent = explain_note(x, open->process_id, open->cause);
    *note = (call_note_t){.run = parent && !begins ? parent->run : newest,
                          .over = parent ? open->cause : 0,
                          .over_process = open->process_id};
}

static void note_take(explain_t *x, const pl_open_t *open)
{
    pl_free(pl_map_take(&x->notes, note_key(open->process_id, open->call)));
}

/* ---- the end of the run ---- */

static void keep(char to[REASON_MAX], const char *text)
{
    if (*text)
        snprintf(to, REASON_MAX, "%s", text);
}

/* Ranks that were started again go on: what came before has done no lasting harm. */
static void trouble_passes(explain_t *x)
{
    size_t k;
    json_t *event;
    json_array_foreach(x->events, k, event)
        json_object_set_new(event, "recovered", json_true());
    x->trouble = INT64_MAX;
}

/* What has become of a rank.  One that was silent is killed for it, and may be heard of
 * as it is woken to die; others that are heard of again were no trouble. */
static void look_at_watch(explain_t *x, const pl_tap_record_t *record,
                          const pl_watch_progress_t *w)
{
    const bool is_bad = w->event == PL_RANK_EVENT_DIED || w->event == PL_RANK_EVENT_SILENT
                        || w->event == PL_RANK_EVENT_GONE;
    if (record->process_id || pl_kind_level(record->envelope.to_kind) != PL_LEVEL_TRAINER)
        return;
    if (x->trouble == INT64_MAX && is_bad) {
        x->trouble = record->stamp.time;
        x->trouble_incarnation = x->incarnation;
    }
    if (json_array_size(x->events) < EVENTS_MAX)
        json_array_append_new(x->events,
                              json_pack("{s:o, s:I, s:s, s:s, s:s, s:I, s:I, s:b}",
                                        "time", explain_seconds(record->stamp.time),
                                        "rank", (json_int_t)w->rank, "event",
                                        pl_rank_event_names[w->event], "cause", w->cause,
                                        "host", w->host, "process",
                                        (json_int_t)w->process, "global_step",
                                        (json_int_t)w->global_step, "recovered", 0));
}

static void command_add(explain_t *x, int64_t time, uint64_t call, const char *command,
                        const pl_control_t *c, const char *text)
{
    if (json_array_size(x->commands) < COMMANDS_MAX)
        json_array_append_new(
            x->commands,
            json_pack("{s:I, s:o, s:s, s:f, s:b, s:s, s:n, s:I, s:s, s:s}", "call",
                      (json_int_t)call, "asked", explain_seconds(time), "command",
                      command, "value", c ? c->value : 0, "is_factor",
                      c ? c->is_factor != 0 : 0, "text", text, "done", "global_step",
                      (json_int_t)x->chosen->step, "checkpoint", "", "error", ""));
}

static json_t *command_of(const explain_t *x, uint64_t call)
{
    size_t k;
    json_t *entry;
    json_array_foreach(x->commands, k, entry)
        if (json_is_null(json_object_get(entry, "done"))
            && (uint64_t)json_integer_value(json_object_get(entry, "call")) == call)
            return entry;
    return NULL;
}

/* From the program, which is told when it has been carried out. */
static void look_at_command(explain_t *x, const pl_tap_record_t *record,
                            const pl_body_t *body, const pl_error_t *error)
{
    const pl_envelope_t *e = &record->envelope;
    const bool is_call = e->kind == PL_KIND_CALL, is_stop = e->message == PL_MESSAGE_stop;
    if (record->process_id || (!is_stop && e->message != PL_MESSAGE_control)
        || pl_kind_level(is_call ? e->from_kind : e->to_kind) != PL_LEVEL_HOST)
        return;
    const char *word = !is_call  ? ""
                       : is_stop ? "stop"
                                 : pl_run_command_names[body->control.command];
    if (is_stop || !strcmp(word, "continue"))
        explain_go_on(x, record->stamp.time);
    if (is_call) {
        command_add(x, record->stamp.time, e->call, word, is_stop ? NULL : &body->control,
                    is_stop ? body->stop.reason : body->control.optimizer);
        return;
    }
    json_t *entry = command_of(x, e->call);
    if (!entry || (e->kind != PL_KIND_REPLY && e->kind != PL_KIND_ERROR))
        return;
    json_object_set_new(entry, "done", explain_seconds(record->stamp.time));
    if (e->kind == PL_KIND_ERROR) {
        json_object_set_new(entry, "error", json_string(error->text));
        return;
    }
    if (is_stop)
        return;                                  /* the run's end tells how far it came */
    json_object_set_new(entry, "global_step",
                        json_integer((json_int_t)body->control_reply.global_step));
    json_object_set_new(entry, "checkpoint", json_string(body->control_reply.checkpoint));
    if (!strcmp(json_string_value(json_object_get(entry, "command")), "pause"))
        explain_pause(x, record->stamp.time);
}

/* How far it is; signs of life and texts say nothing of that. */
static void look_at_report(run_t *run, const pl_run_progress_t *report)
{
    switch (report->event) {
    case PL_RUN_EVENT_TRAIN:
    case PL_RUN_EVENT_VALIDATE:
    case PL_RUN_EVENT_VALIDATED:
    case PL_RUN_EVENT_EPOCH:
    case PL_RUN_EVENT_ROLLBACK: run->step = report->global_step; return;
    default: return;
    }
}

/* Steps that no report has told yet; those that try something out count for nothing. */
static void look_at_batch(run_t *run, call_note_t *note, const pl_tap_record_t *record,
                          const pl_body_t *body)
{
    const pl_envelope_t *e = &record->envelope;
    if (!note || e->message != PL_MESSAGE_train_batch)
        return;
    if (e->kind == PL_KIND_CALL && pl_kind_level(e->from_kind) != PL_LEVEL_TUNER)
        note->step = body->train_batch.step_due ? body->train_batch.global_step : 0;
    if (e->kind == PL_KIND_REPLY && note->step > run->step)
        run->step = note->step;
}

static void look_at_body(explain_t *x, run_t *run, const pl_tap_record_t *record,
                         const pl_body_t *body)
{
    const uint32_t message = record->envelope.message;
    if (record->envelope.kind == PL_KIND_CALL) {
        if (message == PL_MESSAGE_stop)
            keep(run->reason, body->stop.reason);
    } else if (record->envelope.kind == PL_KIND_PROGRESS) {
        if (message == PL_MESSAGE_watch && run == x->chosen)
            look_at_watch(x, record, &body->watch_progress);
        if (message == PL_MESSAGE_run)
            look_at_report(run, &body->run_progress);
    } else if (record->envelope.kind == PL_KIND_REPLY) {
        if (message == PL_MESSAGE_train_epoch) {
            run->step = body->train_epoch_reply.global_step;
            keep(run->reason, body->train_epoch_reply.reason);
        }
        if (message == PL_MESSAGE_describe_plans && record->stamp.rank <= 0) {
            json_decref(run->plans);
            run->plans = json_loads(body->describe_plans_reply.plans, 0, NULL);
        }
        if (message == PL_MESSAGE_run_hook && body->run_hook_reply.stop)
            keep(run->reason, body->run_hook_reply.reason);
    }
}

static void look_at_end(run_t *run, const pl_open_t *open, const pl_tap_record_t *record,
                        const pl_body_t *body, const pl_error_t *error)
{
    if (record->process_id || open->message != PL_MESSAGE_run
        || pl_kind_level(open->to->kind) != PL_LEVEL_TRAINER)
        return;
    run->has_ended = true;
    run->has_failed = record->envelope.kind == PL_KIND_ERROR
                      || !strcmp(body->run_reply.status, "failed");
    run->was_stopped = !run->has_failed && !strcmp(body->run_reply.status, "stopped");
    run->ended = record->stamp.time;
    if (record->envelope.kind == PL_KIND_REPLY && body->run_reply.global_step)
        run->step = body->run_reply.global_step;
    keep(run->error, error->text);
}

/* ---- the first pass ---- */

/* What was cancelled has failed for something else, unless it was the run. */
static bool is_fault(const pl_tap_record_t *record, const pl_error_t *error)
{
    return record->envelope.kind == PL_KIND_ERROR
           && (error->code != PL_ECANCELLED
               || (!record->process_id && record->envelope.message == PL_MESSAGE_run));
}

static void first_pass_body(explain_t *x, run_t *run, const pl_open_t *open,
                            call_note_t *note, const pl_tap_record_t *record)
{
    pl_body_t body;
    pl_error_t error = {0};
    if (pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK)
        return;
    look_at_body(x, run, record, &body);
    look_at_batch(run, note, record, &body);
    if (run == x->chosen) {
        look_at_command(x, record, &body, &error);
        if (is_fault(record, &error))
            explain_fault(x, open, record, &error);
    }
    if (open && pl_ends_call(record))
        look_at_end(run, open, record, &body, &error);
}

/* Called before the call is freed. */
static void first_pass_lost(void *user, pl_open_t *open)
{
    explain_t *x = user;
    const call_note_t *note = explain_note(x, open->process_id, open->call);
    if (note && note->run == x->chosen)
        explain_time_lost(x, open, note, explain_received(x, open->process_id));
    note_take(x, open);
}

static void look_at_incarnation(explain_t *x, const pl_tap_record_t *record)
{
    if (!record->process_id || record->envelope.incarnation <= x->incarnation)
        return;
    x->incarnation = record->envelope.incarnation;
    pl_rank_times_again(&x->ranks);
    if (x->trouble != INT64_MAX && x->incarnation > x->trouble_incarnation)
        trouble_passes(x);
}

static void first_pass_record(explain_t *x, const pl_tap_record_t *record)
{
    const int64_t time = record->stamp.time;
    pl_open_t *open = pl_call_graph_take(&x->graph, record);
    x->messages++;
    x->last = time > x->last ? time : x->last;
    pl_map_put(&x->received, (uint64_t)record->process_id + 1, (void *)(intptr_t)time);
    if (begins_run(record))
        run_begins(x, record);
    if (open && record->envelope.kind == PL_KIND_CALL)
        note_begins(x, open, begins_run(record), x->newest);
    call_note_t *note = explain_note(x, record->process_id, record->envelope.call);
    run_t *run = note ? note->run : x->newest;
    if (!run)
        goto done;
    run->last = time > run->last ? time : run->last;
    if (run == x->chosen)
        look_at_incarnation(x, record);
    if (note && open && record->envelope.kind == PL_KIND_CALL && run == x->chosen)
        explain_time_begins(x, open, note, record);
    first_pass_body(x, run, open, note, record);
    if (note && open && pl_ends_call(record) && run == x->chosen)
        explain_time_ends(x, open, note, record);
done:
    if (!open || !pl_ends_call(record))
        return;
    note_take(x, open);
    pl_call_graph_drop(&x->graph, open);
}

/* ---- what is told of runs ---- */

static const char *how_ended(const run_t *run)
{
    return !run               ? "none"
           : !run->has_ended  ? "cut off"
           : run->has_failed  ? "failed"
           : run->was_stopped ? "stopped"
                              : "ok";
}

/* Who wanted it to stop; one that was cut off may have been about to. */
static const char *reason_of(const run_t *run)
{
    return run->was_stopped || !run->has_ended ? run->reason : "";
}

static int64_t end_of(const explain_t *x, const run_t *run)
{
    return run && run->has_ended ? run->ended : x->last;
}

static json_t *list_json(const explain_t *x)
{
    json_t *list = json_array();
    for (const run_t *run = x->newest; run; run = run->before)
        json_array_insert_new(list, 0,
                              json_pack("{s:I, s:o, s:o, s:s, s:I, s:s}", "run",
                                        (json_int_t)run->number, "began",
                                        explain_seconds(run->began), "time",
                                        explain_seconds(end_of(x, run)), "status",
                                        how_ended(run), "global_step",
                                        (json_int_t)run->step, "reason",
                                        run->has_failed ? run->error : reason_of(run)));
    return list;
}

/* They are told as done at the step at which the run ended. */
static void place_stops(explain_t *x, const run_t *run)
{
    size_t k;
    json_t *entry;
    json_array_foreach(x->commands, k, entry) {
        const char *command = json_string_value(json_object_get(entry, "command")),
                   *error = json_string_value(json_object_get(entry, "error"));
        if (!strcmp(command, "stop") && !*error
            && !json_is_null(json_object_get(entry, "done")))
            json_object_set_new(entry, "global_step",
                                json_integer((json_int_t)run->step));
    }
}

static json_t *end_json(explain_t *x)
{
    const run_t *run = x->chosen;
    if (run && run->was_stopped)
        place_stops(x, run);
    json_t *chain = explain_chain(x);
    const json_t *root = json_array_get(chain, json_array_size(chain) - 1);
    const char *text = json_string_value(json_object_get(root, "text"));
    const char *why = text ? text : run ? reason_of(run) : "";
    return json_pack("{s:s, s:s, s:o, s:I, s:o, s:O, s:O}", "status", how_ended(run),
                     "reason", why, "time", explain_seconds(end_of(x, run)),
                     "global_step", (json_int_t)(run ? run->step : 0), "chain", chain,
                     "events", x->events, "commands", x->commands);
}

/* When to look at what was under way: as what it failed of began, else at its end. */
static int64_t moment_of(const explain_t *x)
{
    const run_t *run = x->chosen;
    return run && run->has_failed && x->trouble != INT64_MAX ? x->trouble
                                                             : end_of(x, run) + 1;
}

/* ---- reading ---- */

static void take_gap(explain_t *x, const pl_journal_item_t *gap)
{
    x->missing += gap->gap_count;
    size_t k = 0;
    while (k < json_array_size(x->unsure)
           && json_integer_value(json_array_get(x->unsure, k)) != gap->gap_rank)
        k++;
    if (!gap->lost && !gap->gap_count && k == json_array_size(x->unsure))
        json_array_append_new(x->unsure, json_integer(gap->gap_rank));
}

/* What comes before a moment; what is wrong with the file goes to *damage. */
static int read_pass(const char *path, explain_t *x, int64_t until,
                     void (*take)(explain_t *, const pl_tap_record_t *),
                     pl_error_t *damage, pl_error_t *err)
{
    pl_journal_item_t item;
    pl_journal_t *journal = pl_journal_open(path, err);
    if (!journal)
        return err->code;
    x->missing = 0;
    json_array_clear(x->unsure);
    while (pl_journal_read(journal, &item, damage)) {
        if (item.is_gap)
            take_gap(x, &item);
        else if (item.record.stamp.time < until)
            take(x, &item.record);
    }
    x->strange = pl_journal_strange(journal);
    pl_journal_close(journal);
    return PL_OK;
}

static void second_pass_lost(void *user, pl_open_t *open)
{
    note_take(user, open);
}

static void second_pass_record(explain_t *x, const pl_tap_record_t *record)
{
    pl_open_t *open = pl_call_graph_take(&x->graph, record);
    x->begun += begins_run(record);
    if (open && record->envelope.kind == PL_KIND_CALL)
        note_begins(x, open, begins_run(record), run_of_number(x, x->begun));
    if (!open || !pl_ends_call(record))
        return;
    note_take(x, open);
    pl_call_graph_drop(&x->graph, open);
}

static int second_pass(explain_t *x, const char *path, pl_error_t *err)
{
    pl_error_t unused = {0};
    pl_call_graph_release(&x->graph);
    notes_forget(x);
    x->graph = (pl_call_graph_t){.lost = second_pass_lost, .user = x};
    return read_pass(path, x, moment_of(x), second_pass_record, &unused, err);
}

static int explain(explain_t *x, const char *path, json_t **answer, pl_error_t *err)
{
    pl_error_t damage = {0};
    x->graph = (pl_call_graph_t){.lost = first_pass_lost, .user = x};
    int code = read_pass(path, x, INT64_MAX, first_pass_record, &damage, err);
    if (code != PL_OK)
        return code;
    if (x->wanted > x->runs)
        return pl_fail(err, PL_EINVAL, "%s has %llu run%s: there is no run %llu", path,
                       (unsigned long long)x->runs, x->runs == 1 ? "" : "s",
                       (unsigned long long)x->wanted);
    json_t *times = explain_times_json(x), *end = end_json(x);
    const run_t *run = x->chosen;
    const int64_t moment = moment_of(x);
    code = second_pass(x, path, err);
    *answer = json_pack(
        "{s:b, s:s, s:I, s:I, s:O, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:O?}",
        "whole", damage.code == PL_OK, "damage", damage.text, "messages",
        (json_int_t)x->messages, "missing", (json_int_t)x->missing, "unsure", x->unsure,
        "passed_over", (json_int_t)x->strange, "runs", (json_int_t)x->runs, "run",
        (json_int_t)(run ? run->number : 0), "list", list_json(x), "seconds",
        explain_seconds(run ? end_of(x, run) - run->began : 0), "end", end, "then",
        explain_open_json(x, moment <= x->last ? moment : end_of(x, run)), "times", times,
        "plans", run ? run->plans : NULL);
    return code;
}

static void explain_free(explain_t *x)
{
    for (run_t *run = x->newest, *before; run; run = before) {
        before = run->before;
        json_decref(run->plans);
        pl_free(run);
    }
    explain_forget_times(x);
    notes_forget(x);
    json_decref(x->unsure);
    json_decref(x->events);
    json_decref(x->commands);
    pl_call_graph_release(&x->graph);
    pl_free(x);
}

char *pl_journal_explain_run(const char *path, uint64_t run, pl_error_t *err)
{
    pl_error_t own;
    json_t *answer = NULL;
    char *text = NULL;
    if (!err)
        err = &own;
    if (pl_require(path, "a path", err) != PL_OK)
        return NULL;
    explain_t *x = pl_alloc(sizeof *x);
    if (!x) {
        pl_no_memory(err);
        return NULL;
    }
    x->unsure = json_array();
    x->events = json_array();
    x->commands = json_array();
    x->trouble = INT64_MAX;
    x->wanted = run;
    if (explain(x, path, &answer, err) == PL_OK) {
        text = answer ? pl_json_write(answer, PL_JSON_COMPACT) : NULL;
        if (!text)
            pl_no_memory(err);
    }
    json_decref(answer);
    explain_free(x);
    return text;
}

char *pl_journal_explain(const char *path, pl_error_t *err)
{
    return pl_journal_explain_run(path, 0, err);
}
