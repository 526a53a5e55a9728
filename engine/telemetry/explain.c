/* explain.c - the runs of a journal: why one ended, what was open then, where the time
 * went
 *
 * The file is read twice.  The first pass finds the runs, measures one of them and keeps
 * the errors of its calls.  The second pass reads up to a moment, to see which calls were
 * open then.  A call belongs to the run of the call that caused it; one without a cause,
 * as in another process, belongs to the newest run.
 *
 * A chain of errors explains a failure.  Within a process a call has its cause.  Between
 * processes nothing in the stream connects calls: there the chain takes the likeliest
 * one and says so. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "telemetry/explain_parts.h"

json_t *explain_seconds(int64_t time)
{
    return json_real((double)time * 1e-9);
}

/* Those of runs and epochs count: a call waits for their end. */
bool explain_is_whole_life(uint32_t message)
{
    return message == PL_MESSAGE_start || message == PL_MESSAGE_watch;
}

int64_t explain_received(const explain_t *x, uint32_t process_id)
{
    return (intptr_t)pl_map_get(&x->received, (uint64_t)process_id + 1);
}

/* ---- runs ---- */

static void graph_release(explain_t *x)
{
    for (pl_open_t *open = x->graph.open; open; open = open->next)
        pl_free(open->own);
    pl_call_graph_release(&x->graph);
    pl_map_release(&x->received);
}

/* The run is the chosen one if it is wanted: what was measured of others is dropped. */
static void run_begins(explain_t *x, const pl_tap_record_t *record)
{
    journal_run_t *run = pl_alloc(sizeof *run);
    if (!run)
        return;
    *run = (journal_run_t){.before = x->newest,
                           .number = ++x->runs,
                           .began = record->stamp.time};
    x->newest = run;
    if (x->wanted && x->wanted != run->number)
        return;
    x->chosen = run;
    x->fault_count = x->pause_count = 0;
    x->trouble = INT64_MAX;
    x->incarnation = 0;
    json_array_clear(x->events);
    json_array_clear(x->commands);
    explain_forget_times(x);
    for (pl_open_t *open = x->graph.open; open; open = open->next)
        if (open->own)
            ((call_note_t *)open->own)->actor = ((call_note_t *)open->own)->wait = NULL;
}

static bool begins_run(const pl_tap_record_t *record)
{
    const pl_envelope_t *e = &record->envelope;
    return !record->process_id && e->kind == PL_KIND_CALL && e->message == PL_MESSAGE_run
           && pl_kind_level(e->to_kind) == PL_LEVEL_TRAINER;
}

/* Takes a message into the graph; a new call gets its run. */
static pl_open_t *graph_take(explain_t *x, const pl_tap_record_t *record, uint64_t newest)
{
    pl_open_t *open = pl_call_graph_take(&x->graph, record);
    if (!open || record->envelope.kind != PL_KIND_CALL)
        return open;
    const pl_open_t *cause = pl_call_graph_find(&x->graph, open->process_id, open->cause);
    call_note_t *note = open->own = pl_alloc(sizeof *note);
    if (begins_run(record) || !cause)
        open->run = newest;
    if (note)
        *note = (call_note_t){.over = cause ? open->cause : 0,
                              .over_process = open->process_id};
    return open;
}

/* ---- the end of the run ---- */

static void keep(char to[REASON_MAX], const char *text)
{
    if (*text)
        snprintf(to, REASON_MAX, "%s", text);
}

/* An event of a rank.  A silent rank is killed, and may send data when it is woken to
 * die; a mute rank whose data arrives again was no trouble. */
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

/* A command of the program; its answer says that it was carried out. */
static void look_at_command(explain_t *x, const pl_tap_record_t *record,
                            const pl_body_t *body, const pl_error_t *error)
{
    const pl_envelope_t *e = &record->envelope;
    const bool is_call = e->kind == PL_KIND_CALL, is_stop = e->message == PL_MESSAGE_stop;
    const pl_control_t *c = is_call && !is_stop ? &body->control : NULL;
    json_t *entry, *found = NULL;
    size_t k;
    if (record->process_id || (!is_stop && e->message != PL_MESSAGE_control)
        || pl_kind_level(is_call ? e->from_kind : e->to_kind) != PL_LEVEL_HOST)
        return;
    if (is_stop || (c && c->command == PL_RUN_COMMAND_CONTINUE))
        explain_continue(x, record->stamp.time);
    if (is_call && json_array_size(x->commands) < COMMANDS_MAX)
        json_array_append_new(
            x->commands,
            json_pack("{s:I, s:o, s:s, s:f, s:b, s:s, s:n, s:I, s:s, s:s}", "call",
                      (json_int_t)e->call, "asked", explain_seconds(record->stamp.time),
                      "command", c ? pl_run_command_names[c->command] : "stop", "value",
                      c ? c->value : 0, "is_factor", c ? c->is_factor != 0 : 0, "text",
                      c ? c->optimizer : body->stop.reason, "done", "global_step",
                      (json_int_t)x->chosen->step, "checkpoint", "", "error", ""));
    json_array_foreach(x->commands, k, entry)
        if (json_is_null(json_object_get(entry, "done"))
            && (uint64_t)json_integer_value(json_object_get(entry, "call")) == e->call)
            found = entry;
    if (!found || !pl_ends_call(record))
        return;
    json_object_set_new(found, "done", explain_seconds(record->stamp.time));
    if (e->kind == PL_KIND_ERROR) {
        json_object_set_new(found, "error", json_string(error->text));
        return;
    }
    if (is_stop)                                     /* the end of the run has its step */
        return;
    json_object_set_new(found, "global_step",
                        json_integer((json_int_t)body->control_reply.global_step));
    json_object_set_new(found, "checkpoint", json_string(body->control_reply.checkpoint));
    if (!strcmp(json_string_value(json_object_get(found, "command")),
                pl_run_command_names[PL_RUN_COMMAND_PAUSE]))
        explain_pause(x, record->stamp.time);
}

static void look_at_body(explain_t *x, journal_run_t *run, const pl_tap_record_t *record,
                         const pl_body_t *body)
{
    const uint32_t message = record->envelope.message;
    if (record->envelope.kind == PL_KIND_CALL) {
        if (message == PL_MESSAGE_stop)
            keep(run->reason, body->stop.reason);
    } else if (record->envelope.kind == PL_KIND_PROGRESS) {
        if (message == PL_MESSAGE_watch && run == x->chosen)
            look_at_watch(x, record, &body->watch_progress);
        const pl_run_progress_t *report = &body->run_progress;
        if (message == PL_MESSAGE_run && report->event != PL_RUN_EVENT_ALIVE
            && report->event != PL_RUN_EVENT_TEXT)          /* those have no step */
            run->step = report->global_step;
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

/* ---- the chain of errors ---- */

/* The fault that caused one: of a call that it caused and that failed before; one whose
 * text the error contains, else the newest that was not cancelled. */
static const fault_t *fault_under(const explain_t *x, const fault_t *fault)
{
    const fault_t *newest = NULL;
    for (int k = x->fault_count - 1; k >= 0; k--) {
        const fault_t *other = &x->faults[k];
        if (other == fault || other->process_id != fault->process_id
            || other->incarnation != fault->incarnation || other->cause != fault->call
            || other->time > fault->time)
            continue;
        if (strstr(fault->error.text, other->error.text))
            return other;
        if (!newest && other->error.code != PL_ECANCELLED)
            newest = other;
    }
    return newest;
}

/* The likeliest cause in another process, as the stream does not show links: of the
 * newest ranks the first fault with that code; better one whose text the error
 * contains. */
static const fault_t *fault_elsewhere(const explain_t *x, const fault_t *fault)
{
    const fault_t *best = NULL;
    for (int k = 0; k < x->fault_count && !fault->process_id; k++) {
        const fault_t *other = &x->faults[k];
        if (!other->process_id || other->error.code != fault->error.code
            || other->time > fault->time
            || pl_kind_level(other->to_kind) >= PL_LEVEL_LAUNCHER)
            continue;
        if (!best || other->incarnation > best->incarnation
            || (other->incarnation == best->incarnation
                && strstr(fault->error.text, other->error.text)
                && !strstr(fault->error.text, best->error.text)))
            best = other;
    }
    return best;
}

/* ---- the first pass ---- */

/* `body` is of a message of the run; open: its call  [NULL: unknown]. */
static void first_pass_body(explain_t *x, journal_run_t *run, const pl_open_t *open,
                            const pl_tap_record_t *record)
{
    const pl_envelope_t *e = &record->envelope;
    pl_body_t body;
    pl_error_t error = {0};
    if (pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK)
        return;
    look_at_body(x, run, record, &body);
    /* Steps that no report has yet; those of a tuner do not count. */
    if (open && open->own && e->message == PL_MESSAGE_train_batch
        && e->kind == PL_KIND_REPLY && pl_kind_level(open->from->kind) != PL_LEVEL_TUNER
        && open->step > run->step)
        run->step = open->step;
    const bool is_of_trainer = !record->process_id && e->message == PL_MESSAGE_run;
    if (run == x->chosen) {
        look_at_command(x, record, &body, &error);
        /* A cancelled call failed for another reason, unless it is the run. */
        if (e->kind == PL_KIND_ERROR && (error.code != PL_ECANCELLED || is_of_trainer)) {
            if (x->fault_count == FAULTS) {
                memmove(x->faults + FAULTS / 2, x->faults + FAULTS / 2 + 1,
                        (FAULTS / 2 - 1)
                            * sizeof *x->faults);           /* the first ones are kept */
                x->fault_count--;
            }
            x->faults[x->fault_count++] =
                (fault_t){.call = record->envelope.call,
                          .cause = open ? open->cause : 0,
                          .process_id = record->process_id,
                          .incarnation = record->envelope.incarnation,
                          .message = record->envelope.message,
                          .rank = record->stamp.rank,
                          .time = record->stamp.time,
                          .from_kind = record->envelope.to_kind,
                          .to_kind = record->envelope.from_kind,
                          .error = error};
        }
    }
    if (!open || !pl_ends_call(record) || !is_of_trainer
        || pl_kind_level(open->to->kind) != PL_LEVEL_TRAINER)
        return;
    const bool is_reply = e->kind == PL_KIND_REPLY;
    run->has_ended = true;
    run->has_failed = !is_reply || body.run_reply.status == PL_RUN_STATUS_FAILED;
    run->was_stopped = !run->has_failed && body.run_reply.status == PL_RUN_STATUS_STOPPED;
    run->ended = record->stamp.time;
    if (is_reply && body.run_reply.global_step)
        run->step = body.run_reply.global_step;
    keep(run->error, error.text);
}

static void first_pass_lost(void *user, pl_open_t *open)
{
    explain_t *x = user;
    if (explain_is_of_chosen(x, open))
        explain_time_lost(x, open, explain_received(x, open->process_id));
    pl_free(open->own);
}

/* Ranks that restart continue: earlier events of ranks did not end the run. */
static void ranks_restart(explain_t *x, uint32_t incarnation)
{
    size_t k;
    json_t *event;
    x->incarnation = incarnation;
    /* The time up to the next computation of a rank counts for no stage. */
    for (k = 0; k < x->ranks.capacity; k++)
        if (x->ranks.key[k])
            ((pl_rank_times_t *)x->ranks.value[k])->busy_until[PL_TRACK_COMPUTE] = 0;
    if (x->trouble == INT64_MAX || incarnation <= x->trouble_incarnation)
        return;
    json_array_foreach(x->events, k, event)
        json_object_set_new(event, "recovered", json_true());
    x->trouble = INT64_MAX;
}

static void first_pass_record(explain_t *x, const pl_tap_record_t *record)
{
    const int64_t time = record->stamp.time;
    const bool is_call = record->envelope.kind == PL_KIND_CALL;
    x->messages++;
    x->last = time > x->last ? time : x->last;
    if (begins_run(record))
        run_begins(x, record);
    pl_open_t *open = graph_take(x, record, x->newest ? x->newest->number : 0);
    pl_map_put(&x->received, (uint64_t)record->process_id + 1, (void *)(intptr_t)time);
    journal_run_t *run = x->newest;
    while (run && open && open->own && run->number != open->run)
        run = run->before;
    if (run) {
        run->last = time > run->last ? time : run->last;
        if (run == x->chosen && record->process_id
            && record->envelope.incarnation > x->incarnation)
            ranks_restart(x, record->envelope.incarnation);
        if (open && open->own && is_call && run == x->chosen)
            explain_time_begins(x, open, record);
        first_pass_body(x, run, open, record);
        if (open && open->own && pl_ends_call(record) && run == x->chosen)
            explain_time_ends(x, open, record);
    }
    if (open && pl_ends_call(record)) {
        pl_free(open->own);
        pl_call_graph_drop(&x->graph, open);
    }
}

/* ---- the answer ---- */

static const char *how_ended(const journal_run_t *run)
{
    return !run               ? "none"
           : !run->has_ended  ? "cut off"
           : run->has_failed  ? "failed"
           : run->was_stopped ? "stopped"
                              : "ok";
}

/* The reason of its stop; a run that was cut off may have been about to stop. */
static const char *reason_of(const journal_run_t *run)
{
    return run->was_stopped || !run->has_ended ? run->reason : "";
}

static int64_t end_of(const explain_t *x, const journal_run_t *run)
{
    return run && run->has_ended ? run->ended : x->last;
}

static json_t *end_json(explain_t *x)
{
    const journal_run_t *run = x->chosen;
    size_t k;
    json_t *entry;
    json_array_foreach(x->commands, k, entry)        /* a stop is done at the run's end */
        if (run && run->was_stopped
            && !strcmp(json_string_value(json_object_get(entry, "command")), "stop")
            && !*json_string_value(json_object_get(entry, "error"))
            && !json_is_null(json_object_get(entry, "done")))
            json_object_set_new(entry, "global_step",
                                json_integer((json_int_t)run->step));
    json_t *chain = json_array();
    const fault_t *fault = NULL;
    bool is_certain = true;
    for (int i = 0; i < x->fault_count && run && run->has_failed; i++)
        if (!x->faults[i].process_id && x->faults[i].message == PL_MESSAGE_run
            && pl_kind_level(x->faults[i].to_kind) == PL_LEVEL_TRAINER)
            fault = &x->faults[i];
    for (int steps = 0; fault && steps < FAULTS; steps++) {
        json_array_append_new(
            chain, json_pack("{s:o, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:b}", "time",
                             explain_seconds(fault->time), "rank", fault->rank, "actor",
                             pl_kind_name(fault->to_kind), "asked_by",
                             pl_kind_name(fault->from_kind), "call",
                             pl_message_info(fault->message)->name, "code",
                             pl_code_name(fault->error.code), "where", fault->error.where,
                             "text", fault->error.text, "certain", is_certain));
        if (x->trouble == INT64_MAX || fault->time < x->trouble)
            x->trouble = fault->time;
        const fault_t *under = fault_under(x, fault);
        is_certain = under != NULL;
        fault = under ? under : fault_elsewhere(x, fault);
    }
    const json_t *root = json_array_get(chain, json_array_size(chain) - 1);
    const char *text = json_string_value(json_object_get(root, "text"));
    const char *why = text ? text : run ? reason_of(run) : "";
    return json_pack("{s:s, s:s, s:o, s:I, s:o, s:O, s:O}", "status", how_ended(run),
                     "reason", why, "time", explain_seconds(end_of(x, run)),
                     "global_step", (json_int_t)(run ? run->step : 0), "chain", chain,
                     "events", x->events, "commands", x->commands);
}

/* ---- reading ---- */

/* Reads the records before a moment; *damage gets what is wrong with the file. */
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
        if (!item.is_gap && item.record.stamp.time < until)
            take(x, &item.record);
        if (!item.is_gap)
            continue;
        x->missing += item.gap_count;
        size_t k = 0;
        while (k < json_array_size(x->unsure)
               && json_integer_value(json_array_get(x->unsure, k)) != item.gap_rank)
            k++;
        if (!item.lost && !item.gap_count && k == json_array_size(x->unsure))
            json_array_append_new(x->unsure, json_integer(item.gap_rank));
    }
    x->strange = pl_journal_strange(journal);
    pl_journal_close(journal);
    return PL_OK;
}

static void second_pass_lost(void *user, pl_open_t *open)
{
    (void)user;
    pl_free(open->own);
}

static void second_pass_record(explain_t *x, const pl_tap_record_t *record)
{
    x->begun += begins_run(record);
    pl_open_t *open = graph_take(x, record, x->begun);
    if (open && pl_ends_call(record)) {
        pl_free(open->own);
        pl_call_graph_drop(&x->graph, open);
    }
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
    const journal_run_t *run = x->chosen;
    /* Open calls are listed as the trouble begins, else at the end. */
    const int64_t moment = run && run->has_failed && x->trouble != INT64_MAX
                               ? x->trouble
                               : end_of(x, run) + 1;
    graph_release(x);
    x->graph = (pl_call_graph_t){.lost = second_pass_lost};
    code = read_pass(path, x, moment, second_pass_record, &(pl_error_t){0}, err);
    json_t *list = json_array();
    for (const journal_run_t *r = x->newest; r; r = r->before)
        json_array_insert_new(list, 0,
                              json_pack("{s:I, s:o, s:o, s:s, s:I, s:s}", "run",
                                        (json_int_t)r->number, "began",
                                        explain_seconds(r->began), "time",
                                        explain_seconds(end_of(x, r)), "status",
                                        how_ended(r), "global_step", (json_int_t)r->step,
                                        "reason",
                                        r->has_failed ? r->error : reason_of(r)));
    *answer = json_pack(
        "{s:b, s:s, s:I, s:I, s:O, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:O?}",
        "whole", damage.code == PL_OK, "damage", damage.text, "messages",
        (json_int_t)x->messages, "missing", (json_int_t)x->missing, "unsure", x->unsure,
        "passed_over", (json_int_t)x->strange, "runs", (json_int_t)x->runs, "run",
        (json_int_t)(run ? run->number : 0), "list", list, "seconds",
        explain_seconds(run ? end_of(x, run) - run->began : 0), "end", end, "then",
        explain_open_json(x, moment <= x->last ? moment : end_of(x, run)), "times", times,
        "plans", run ? run->plans : NULL);
    return code;
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
    for (journal_run_t *r = x->newest, *before; r; r = before) {
        before = r->before;
        json_decref(r->plans);
        pl_free(r);
    }
    explain_forget_times(x);
    graph_release(x);
    json_decref(x->unsure);
    json_decref(x->events);
    json_decref(x->commands);
    pl_free(x);
    return text;
}

char *pl_journal_explain(const char *path, pl_error_t *err)
{
    return pl_journal_explain_run(path, 0, err);
}
