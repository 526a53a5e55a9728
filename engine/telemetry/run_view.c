/* run_view.c - the runs of an engine: what the page, /metrics and the topic "state" show
 *
 * The hub's thread brings every message, so each costs little: it is counted, and only
 * those that say something of a run are decoded.  A call belongs to the run of the call
 * that caused it, up to the program's own.  A call of another process belongs to the run
 * of the call that had the process started.  In a stream with gaps the cause may be
 * missing; then the call counts for the newest active run. */
#include "telemetry/run_view_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

const char *const run_view_own_columns[COLUMNS_OWN] = {
    [COLUMN_SAMPLES_RATE] = "samples_per_second",
    [COLUMN_STEP_RATE] = "steps_per_second",
    [COLUMN_STEP_P50] = "step_seconds_p50",
    [COLUMN_STEP_P95] = "step_seconds_p95"};

static const int64_t KIND_PERIOD = PL_SECOND / 4;

double run_view_now(const pl_run_view_t *view)
{
    return (double)(view->was_kept ? view->last : pl_now() - view->began) * 1e-9;
}

/* ---- runs ---- */

static viewed_run_t *run_by_call(const pl_run_view_t *view, uint64_t call)
{
    for (int k = 0; k < RUNS_MAX && call; k++)
        if (view->run[k] && view->run[k]->call == call)
            return view->run[k];
    return NULL;
}

static viewed_run_t *run_by_number(const pl_run_view_t *view, uint64_t number)
{
    for (int k = 0; k < RUNS_MAX; k++)
        if (view->run[k] && view->run[k]->number == number)
            return view->run[k];
    return NULL;
}

static viewed_run_t *newest_living(const pl_run_view_t *view)
{
    viewed_run_t *newest = NULL;
    for (int k = 0; k < RUNS_MAX; k++)
        if (view->run[k] && !view->run[k]->ended
            && (!newest || view->run[k]->number > newest->number))
            newest = view->run[k];
    return newest;
}

/* A free place, or the place of the oldest run that has ended; active runs keep
 * theirs. */
static viewed_run_t **place_for_run(pl_run_view_t *view)
{
    viewed_run_t **place = NULL;
    for (int k = 0; k < RUNS_MAX; k++) {
        viewed_run_t *run = view->run[k];
        if (!run)
            return &view->run[k];
        if (run->ended && (!place || run->number < (*place)->number))
            place = &view->run[k];
    }
    return place;
}

/* NULL: there is no place for it. */
static viewed_run_t *run_enter(pl_run_view_t *view, uint64_t call, double now)
{
    viewed_run_t **place = place_for_run(view), *run;
    view->runs++;
    if (!place || !(run = run_new(call, view->runs, now)))
        return NULL;
    run_free(*place);
    return *place = run;
}

/* ---- what the engine reports ---- */

void pl_run_view_begin(pl_run_view_t *view, uint64_t call)
{
    pthread_mutex_lock(&view->lock);
    if (!run_by_call(view, call))               /* the stream may have shown it already */
        run_enter(view, call, run_view_now(view));
    pthread_mutex_unlock(&view->lock);
}

void pl_run_view_report(pl_run_view_t *view, uint64_t call,
                        const pl_run_progress_t *report)
{
    if (__atomic_load_n(&view->shown, __ATOMIC_RELAXED))    /* the stream has it too */
        return;
    pthread_mutex_lock(&view->lock);
    viewed_run_t *run = run_by_call(view, call);
    if (run)
        run_report(view, run, report, run_view_now(view), false);
    pthread_mutex_unlock(&view->lock);
}

void pl_run_view_pause(pl_run_view_t *view, uint64_t call, bool pauses,
                       uint64_t global_step)
{
    if (__atomic_load_n(&view->shown, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&view->lock);
    viewed_run_t *run = run_by_call(view, call);
    if (run)
        run_pause(run, pauses, run_view_now(view));
    if (run && run->step < global_step)
        run->step = global_step;
    pthread_mutex_unlock(&view->lock);
}

void pl_run_view_end(pl_run_view_t *view, uint64_t call)
{
    pthread_mutex_lock(&view->lock);
    for (int k = 0; k < RUNS_MAX && call; k++) {
        viewed_run_t *run = view->run[k];
        if (!run || run->call != call)
            continue;
        run->is_over = true;
        if (view->shown)                                    /* the stream says how */
            continue;
        run_free(run);
        view->run[k] = NULL;
    }
    pthread_mutex_unlock(&view->lock);
}

void pl_run_view_open(pl_run_view_t *view)
{
    pthread_mutex_lock(&view->lock);
    if (!view->shown)
        view->guesses = newest_living(view) != NULL;
    for (int k = 0; !view->shown && k < RUNS_MAX; k++)
        if (view->run[k])
            run_read(view, view->run[k]);
    __atomic_add_fetch(&view->shown, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&view->lock);
}

/* What only the stream says is out of date from now on. */
void pl_run_view_close(pl_run_view_t *view)
{
    pthread_mutex_lock(&view->lock);
    if (__atomic_sub_fetch(&view->shown, 1, __ATOMIC_RELAXED) == 0) {
        for (int k = 0; k < RUNS_MAX; k++) {
            viewed_run_t *run = view->run[k];
            if (run && !run->ended && !run->is_over) {
                run_forget(run);
                continue;
            }
            run_free(run);
            view->run[k] = NULL;
        }
        pl_call_graph_release(&view->graph);
        pl_map_release_values(&view->ranks);
        memset(view->kinds, 0, sizeof view->kinds);
        memset(view->messages, 0, sizeof view->messages);
        memset(view->ended, 0, sizeof view->ended);
        view->missing = view->newest_count = 0;
        view->was_kept = false;
    }
    pthread_mutex_unlock(&view->lock);
}

/* ---- open calls ---- */

/* Calls that last as long as an actor, a run or an epoch are no calls that wait. */
static bool is_lasting(unsigned message)
{
    return message == PL_MESSAGE_start || message == PL_MESSAGE_run
           || message == PL_MESSAGE_watch || message == PL_MESSAGE_train_epoch;
}

static void count_open(pl_run_view_t *view, const pl_open_t *open, int by)
{
    if (!is_lasting(open->message) && open->to->kind < KINDS_MAX)
        view->kinds[open->to->kind].open += by;
}

static void call_lost(void *user, pl_open_t *open)
{
    count_open(user, open, -1);
}

static void calls_forget(pl_run_view_t *view)
{
    for (pl_open_t *open = view->graph.open, *next; open; open = next) {
        next = open->next;
        if (is_lasting(open->message))
            continue;
        count_open(view, open, -1);
        pl_call_graph_drop(&view->graph, open);
    }
}

/* ---- the run of a message ---- */

static uint64_t actor_key(uint32_t thread, uint32_t actor)
{
    return (uint64_t)thread << 32 | actor;
}

/* The program's own call of a run.  A run that began before the view was there appears
 * with its next report. */
static viewed_run_t *run_of_program(pl_run_view_t *view, const pl_tap_record_t *r,
                                    pl_open_t *open)
{
    const pl_envelope_t *e = &r->envelope;
    const bool is_call = e->kind == PL_KIND_CALL;
    viewed_run_t *run = run_by_call(view, e->call);
    if (!run && open && open->run)                          /* there was no place */
        return run_by_number(view, open->run);
    if (!run && (is_call || (e->kind == PL_KIND_PROGRESS && place_for_run(view)))) {
        run = run_enter(view, e->call, (double)r->stamp.time * 1e-9);
        view->guesses |= !is_call;
        if (open)
            open->run = view->runs;
    }
    if (!run)
        return NULL;
    if (open)
        open->run = run->number;
    run->trainer = is_call ? actor_key(e->to_thread, e->to_actor)
                           : actor_key(e->from_thread, e->from_actor);
    return run;
}

static viewed_run_t *run_of(pl_run_view_t *view, const pl_tap_record_t *r,
                            pl_open_t *open)
{
    const pl_envelope_t *e = &r->envelope;
    const bool goes_down = e->kind == PL_KIND_CALL || e->kind == PL_KIND_CANCEL;
    const bool is_programs = pl_kind_level(goes_down ? e->from_kind : e->to_kind)
                             == PL_LEVEL_HOST;
    if (is_programs && e->message == PL_MESSAGE_run)
        return run_of_program(view, r, open);
    if (e->kind != PL_KIND_CALL && (open || e->message != PL_MESSAGE_watch))
        return open ? run_by_number(view, open->run) : NULL;
    const pl_open_t *cause =
        open ? open : pl_call_graph_find(&view->graph, r->process_id, e->cause);
    if (cause && cause->run)
        return run_by_number(view, cause->run);
    /* A call whose cause the graph does not have: a command of the program to a
     * trainer, a call for a run that began before, or one whose cause is missing. */
    viewed_run_t *run = run_by_call(view, r->process_id ? r->under : e->cause);
    for (int k = 0; k < RUNS_MAX && !run && !r->process_id; k++)
        if (view->run[k] && !view->run[k]->ended && view->run[k]->trainer
            && view->run[k]->trainer == actor_key(e->to_thread, e->to_actor))
            run = view->run[k];
    if (!run && (!r->under || view->guesses))
        run = newest_living(view);
    if (run && open)
        open->run = run->number;
    return run;
}

/* ---- what a message says of its run ---- */

static void run_has_ended(pl_run_view_t *view, viewed_run_t *run, int64_t time,
                          pl_run_status_t status, const pl_error_t *error)
{
    run_end(view, run);
    run->ended = true;
    run->ended_at = (double)time * 1e-9;
    snprintf(run->doing, sizeof run->doing, "%s", pl_run_status_names[status]);
    if (error->code != PL_OK || *error->text)
        snprintf(run->error, sizeof run->error, "%s%s%s", error->where,
                 *error->where ? ": " : "", error->text);
    view->ended[status]++;
}

static void take_call(pl_run_view_t *view, viewed_run_t *run, const pl_tap_record_t *r,
                      const pl_open_t *open)
{
    const unsigned message = r->envelope.message;
    const bool is_of_0 = r->stamp.rank == 0, trains = message == PL_MESSAGE_train_epoch;
    const bool continues = message == PL_MESSAGE_stop
                           || (open && open->is_command
                               && open->command == PL_RUN_COMMAND_CONTINUE);
    if (continues && run->held_since
        && pl_kind_level(r->envelope.from_kind) == PL_LEVEL_HOST) {
        pl_rank_times_pause(&view->ranks, run->held_since, r->stamp.time);
        run->held_since = 0;
    }
    if (!trains && message != PL_MESSAGE_evaluate)
        return;
    if (!trains || is_of_0)
        run_steps_begin(run, trains ? r->stamp.time : 0);
    if (is_of_0)
        run->moved = r->stamp.time;
    if (trains && is_of_0)
        run_gathers(run);
}

static void take_reply(pl_run_view_t *view, viewed_run_t *run, const pl_tap_record_t *r,
                       const pl_body_t *body, const pl_open_t *open)
{
    const bool is_of_0 = r->stamp.rank == 0;
    const int caller = pl_kind_level(r->envelope.to_kind);
    switch (r->envelope.message) {
    case PL_MESSAGE_train_batch:
        if (!is_of_0)
            break;
        run_timings(view, run, body->train_batch_reply.timings, r->stamp.time);
        if (run->trained < run->fetched)
            run->samples_trained += run->batch_size[run->trained++ % BATCHES_AHEAD];
        if (open && open->ends_step)
            run_step(run, r->stamp.time);
        break;
    case PL_MESSAGE_fetch_batch:
        if (caller == PL_LEVEL_EPOCH_LOOP)
            run_fetched(run, is_of_0, body->fetch_batch_reply.samples);
        break;
    case PL_MESSAGE_control:
        if (caller != PL_LEVEL_HOST)
            break;
        if (open && open->is_command && open->command == PL_RUN_COMMAND_PAUSE) {
            run->held_since = run->held_since ? run->held_since : r->stamp.time;
            run_pause(run, true, (double)r->stamp.time * 1e-9);
        }
        if (open && open->is_command && open->command == PL_RUN_COMMAND_CONTINUE)
            run_pause(run, false, (double)r->stamp.time * 1e-9);
        if (run->step < body->control_reply.global_step)
            run->step = body->control_reply.global_step;
        break;
    case PL_MESSAGE_open_data:
        if (is_of_0)
            run_data_info(view, run, body->open_data_reply.data_info);
        break;
    case PL_MESSAGE_measure_device:
        run_device(run, r->stamp.rank, &body->measure_device_reply);
        break;
    case PL_MESSAGE_write_checkpoint:
        run_removed(view, run, body->write_checkpoint_reply.removed);
        break;
    case PL_MESSAGE_run:
        if (caller == PL_LEVEL_HOST) {
            /* The newest report may be of a step before the last. The metrics of a run
             * that did not train are those of its weights. */
            pl_error_t error = {.code = PL_OK};
            const bool failed = body->run_reply.status == PL_RUN_STATUS_FAILED;
            if (run->has_trained) {
                run->step = body->run_reply.global_step;
                run->epochs = body->run_reply.epochs;
            }
            snprintf(failed ? error.text : run->reason,
                     failed ? sizeof error.text : sizeof run->reason, "%s",
                     body->run_reply.reason);
            run_has_ended(view, run, r->stamp.time, body->run_reply.status, &error);
        }
        break;
    default: break;
    }
}

/* Whether an answer to it says something of a run: most answers do not. */
static bool is_telling(unsigned message)
{
    switch (message) {
    case PL_MESSAGE_control:
    case PL_MESSAGE_run:
    case PL_MESSAGE_watch:
    case PL_MESSAGE_evaluate:
    case PL_MESSAGE_evaluate_batch:
    case PL_MESSAGE_train_epoch:
    case PL_MESSAGE_train_batch:
    case PL_MESSAGE_fetch_batch:
    case PL_MESSAGE_measure_device:
    case PL_MESSAGE_open_data:
    case PL_MESSAGE_write_checkpoint: return true;
    default: return false;
    }
}

/* run: [it is not shown, or unknown] */
static void take_answer(pl_run_view_t *view, viewed_run_t *run, const pl_tap_record_t *r,
                        const pl_open_t *open)
{
    const pl_envelope_t *e = &r->envelope;
    const bool is_run = e->message == PL_MESSAGE_run
                        && pl_kind_level(e->to_kind) == PL_LEVEL_HOST;
    pl_body_t body;
    pl_error_t error = {0};
    if (!is_telling(e->message) || (run && run->ended) || (!run && !is_run)
        || pl_frame_decode_record(r->frame, &body, &error, NULL) != PL_OK)
        return;
    /* An active epoch of rank 0 progresses with any answer.  Batches that the program
     * sends belong to no epoch: they come at any time. */
    const bool is_of_0 = r->stamp.rank == 0,
               is_pass = e->message == PL_MESSAGE_train_epoch
                         || e->message == PL_MESSAGE_evaluate,
               is_step = e->message == PL_MESSAGE_train_batch
                         && pl_kind_level(e->to_kind) == PL_LEVEL_EPOCH_LOOP;
    if (run && pl_ends_call(r) && is_of_0 && is_pass)
        run->moved = 0;
    else if (run && pl_ends_call(r) && ((is_of_0 && is_step) || run->moved))
        run->moved = r->stamp.time;
    if (!run && pl_ends_call(r))
        view->ended[e->kind == PL_KIND_ERROR ? PL_RUN_STATUS_FAILED
                                             : body.run_reply.status]++;
    else if (run && e->kind == PL_KIND_PROGRESS) {
        const double now = (double)r->stamp.time * 1e-9;
        if (r->envelope.message == PL_MESSAGE_run
            && pl_kind_level(r->envelope.to_kind) == PL_LEVEL_HOST)
            run_report(view, run, &body.run_progress, now, true);
        else if (r->envelope.message == PL_MESSAGE_write_checkpoint)
            run_save(view, run, body.write_checkpoint_progress.path, false);
        else if (r->envelope.message == PL_MESSAGE_watch)
            run_watched(run, &body.watch_progress, now);
    } else if (run && e->kind == PL_KIND_REPLY)
        take_reply(view, run, r, &body, open);
    else if (run && e->kind == PL_KIND_ERROR && is_run)
        run_has_ended(view, run, r->stamp.time, PL_RUN_STATUS_FAILED, &error);
    else if (run && e->kind == PL_KIND_ERROR && e->message == PL_MESSAGE_write_checkpoint)
        run_save(view, run, error.text, true);
}

/* ---- every message ---- */

/* Counts it for the kind of its receiver, and among the newest. */
static void count(pl_run_view_t *view, const pl_tap_record_t *r)
{
    const pl_envelope_t *e = &r->envelope;
    const int64_t slot = r->stamp.time / KIND_PERIOD;
    view->messages[e->kind]++;
    view->last = r->stamp.time;
    view->was_kept = r->was_kept;
    view->newest[view->newest_count++ % NEWEST_MAX] = (newest_t){.time = r->stamp.time,
                                                                 .rank = r->stamp.rank,
                                                                 .message = e->message,
                                                                 .kind = e->kind,
                                                                 .from = e->from_kind,
                                                                 .to = e->to_kind};
    if (slot - view->kind_slot > KIND_SLOTS)
        view->kind_slot = slot - KIND_SLOTS;
    while (view->kind_slot < slot) {                        /* slots without messages */
        view->kind_slot++;
        for (int k = 0; k < KINDS_MAX; k++)
            view->kinds[k].slot[view->kind_slot % KIND_SLOTS] = 0;
    }
    if (e->to_kind >= KINDS_MAX)
        return;
    view->kinds[e->to_kind].messages++;
    if (slot >= 0 && slot > view->kind_slot - KIND_SLOTS)
        view->kinds[e->to_kind].slot[slot % KIND_SLOTS]++;
}

void pl_run_view_record(pl_run_view_t *view, const pl_tap_record_t *r)
{
    pthread_mutex_lock(&view->lock);
    count(view, r);
    if (view->graph.calls.count >= CALLS_MAX)
        calls_forget(view);
    pl_open_t *open = pl_call_graph_take(&view->graph, r);
    viewed_run_t *run = run_of(view, r, open);
    if (r->envelope.kind == PL_KIND_CALL) {
        if (open)
            count_open(view, open, 1);
        if (run && !run->ended)
            take_call(view, run, r, open);
    } else {
        take_answer(view, run, r, open);
    }
    if (open && pl_ends_call(r)) {
        pl_rank_times_take(&view->ranks, open, r);
        count_open(view, open, -1);
        pl_call_graph_drop(&view->graph, open);
    }
    pthread_mutex_unlock(&view->lock);
}

/* Answers may be missing: a call that seems open may have ended.  An unknown number is
 * missing after the death of a rank, which shows by itself. */
void pl_run_view_gap(pl_run_view_t *view, uint64_t missing)
{
    if (!missing)
        return;
    pthread_mutex_lock(&view->lock);
    view->missing += missing;
    view->guesses = true;
    calls_forget(view);
    for (int k = 0; k < RUNS_MAX; k++)
        if (view->run[k])
            view->run[k]->steps_began = 0;
    pthread_mutex_unlock(&view->lock);
}

void pl_run_view_log(pl_run_view_t *view, pl_log_level_t level, int rank,
                     const char *actor, const char *text)
{
    pthread_mutex_lock(&view->lock);
    view->log_levels[level]++;
    if (!view->log)
        view->log = pl_alloc_array(LOG_MAX, sizeof *view->log);
    if (view->log) {
        log_entry_t *entry = &view->log[view->logs++ % LOG_MAX];
        *entry = (log_entry_t){.item = ++view->item,
                               .time = run_view_now(view),
                               .level = (int)level,
                               .rank = rank};
        snprintf(entry->actor, sizeof entry->actor, "%s", actor);
        snprintf(entry->text, sizeof entry->text, "%s", text);
    }
    pthread_mutex_unlock(&view->lock);
}

int pl_run_view_living(pl_run_view_t *view)
{
    int living = 0;
    pthread_mutex_lock(&view->lock);
    for (int k = 0; k < RUNS_MAX; k++)
        living += view->run[k] && !view->run[k]->ended;
    pthread_mutex_unlock(&view->lock);
    return living;
}

bool pl_run_view_is_fed(const pl_run_view_t *view)
{
    return view->is_fed;
}

pl_run_view_t *pl_run_view_new(int64_t began, pl_error_t *err)
{
    pl_run_view_t *view = pl_alloc(sizeof *view);
    if (!view) {
        pl_no_memory(err);
        return NULL;
    }
    pthread_mutex_init(&view->lock, NULL);
    view->began = began;
    view->wall = pl_wall_clock() - run_view_now(view);
    view->graph.lost = call_lost;
    view->graph.user = view;
    return view;
}

void pl_run_view_free(pl_run_view_t *view)
{
    if (!view)
        return;
    for (int k = 0; k < RUNS_MAX; k++)
        run_free(view->run[k]);
    pl_call_graph_release(&view->graph);
    pl_map_release_values(&view->ranks);
    pl_free(view->log);
    pthread_mutex_destroy(&view->lock);
    pl_free(view);
}
