/* run_view.c - what the stream has said by now, in bounded memory: what the page and the
 * metrics are made of
 *
 * The hub's thread brings every message, so little is done for each: it is counted, and
 * the few that tell something of a run are decoded.  Which run a message is of is known
 * by its cause: a call belongs to the run of the call that caused it, up to the program's
 * own.  What another process says is part of the call that had it started.  In a stream
 * with gaps that chain may have no end here; then it is taken for the newest run's. */
#include "telemetry/run_view_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

const char *const run_view_ended[3] = {"ok", "stopped", "failed"};
const char *const run_view_own_columns[COLUMNS_OWN] = {
    [COLUMN_SAMPLES_RATE] = "samples_per_second",
    [COLUMN_STEP_RATE] = "steps_per_second",
    [COLUMN_STEP_P50] = "step_seconds_p50",
    [COLUMN_STEP_P95] = "step_seconds_p95"};

static const int64_t KIND_PERIOD = PL_SECOND / 4;

/* What is remembered of an open call, as the value of a map. */
typedef struct opened {
    unsigned run;                                           /* NO_RUN: of none */
    uint32_t to;                                            /* kind of the callee */
    bool ends_step, pauses, goes_on;
} opened_t;

static void *opened_pack(opened_t o)
{
    return (void *)((uintptr_t)1 | (uintptr_t)o.ends_step << 1 | (uintptr_t)o.pauses << 2
                    | (uintptr_t)o.goes_on << 3 | (uintptr_t)o.run << 4
                    | (uintptr_t)o.to << 16);
}

static opened_t opened_unpack(const void *value)
{
    const uintptr_t v = (uintptr_t)value;
    return (opened_t){.run = v ? v >> 4 & 0xfff : NO_RUN,
                      .to = (uint32_t)(v >> 16),
                      .ends_step = v >> 1 & 1,
                      .pauses = v >> 2 & 1,
                      .goes_on = v >> 3 & 1};
}

/* Calls of different processes may have the same number. */
static uint64_t key_of(const pl_tap_record_t *r, uint64_t call)
{
    const uint64_t key = r->process_id ? pl_mix(call, r->process_id) : call;
    return key ? key : 1;
}

static bool is_lasting(unsigned message)
{
    return message == PL_MESSAGE_start || message == PL_MESSAGE_run
           || message == PL_MESSAGE_watch || message == PL_MESSAGE_train_epoch;
}

double run_view_now(const pl_run_view_t *view)
{
    return (double)(view->was_kept ? view->last : pl_now() - view->began) * 1e-9;
}

const char *run_view_run_name(const run_t *run)
{
    const char *slash = strrchr(run->dir, '/');
    return slash ? slash + 1 : run->dir;
}

/* ---- which run ---- */

static unsigned newest_living(const pl_run_view_t *b)
{
    unsigned newest = NO_RUN;
    for (unsigned k = 0; k < RUNS_MAX; k++)
        if (b->run[k].call && !b->run[k].ended
            && (newest == NO_RUN || b->run[k].number > b->run[newest].number))
            newest = k;
    return newest;
}

/* A free place, or that of the run that ended first; those that go on keep theirs. */
static unsigned place_for_run(const pl_run_view_t *b)
{
    unsigned place = NO_RUN;
    for (unsigned k = 0; k < RUNS_MAX; k++) {
        if (!b->run[k].call)
            return k;
        if (b->run[k].ended
            && (place == NO_RUN || b->run[k].number < b->run[place].number))
            place = k;
    }
    return place;
}

static unsigned run_enter(pl_run_view_t *b, const pl_tap_record_t *r)
{
    const unsigned place = place_for_run(b);
    b->runs++;
    if (place != NO_RUN)
        run_begin(&b->run[place], r->envelope.call, b->runs,
                  (double)r->stamp.time * 1e-9);
    return place;
}

static unsigned run_of_call(pl_run_view_t *b, const pl_tap_record_t *r)
{
    const pl_envelope_t *e = &r->envelope;
    const void *known = pl_map_get(&b->lasting, key_of(r, e->call));
    if (e->message == PL_MESSAGE_run && pl_kind_level(e->from_kind) == PL_LEVEL_HOST)
        return known ? opened_unpack(known).run : run_enter(b, r);
    const uint64_t cause = key_of(r, e->cause);
    const void *by = pl_map_get(&b->lasting, cause);
    if (!by)
        by = pl_map_get(&b->open, cause);
    if (!by)
        by = pl_map_get(&b->lasting, r->under);
    if (by)
        return opened_unpack(by).run;
    return r->under && !b->guesses ? NO_RUN : newest_living(b);
}

/* ---- open calls ---- */

static void calls_forget(pl_run_view_t *b, pl_map_t *calls)
{
    pl_map_release(calls);
    if (calls == &b->open)
        for (int k = 0; k < KINDS_MAX; k++)
            b->kinds[k].open = 0;
}

/* Without memory a call is not remembered. */
static void call_opens(pl_run_view_t *b, const pl_tap_record_t *r, opened_t opened)
{
    pl_map_t *calls = is_lasting(r->envelope.message) ? &b->lasting : &b->open;
    if (calls->count >= CALLS_MAX)
        calls_forget(b, calls);
    if (pl_map_put(calls, key_of(r, r->envelope.call), opened_pack(opened)) == PL_OK
        && calls == &b->open && opened.to < KINDS_MAX)
        b->kinds[opened.to].open++;
}

static opened_t call_ends(pl_run_view_t *b, const pl_tap_record_t *r)
{
    const uint64_t key = key_of(r, r->envelope.call);
    void *value = pl_map_take(is_lasting(r->envelope.message) ? &b->lasting : &b->open,
                              key);
    const opened_t opened = opened_unpack(value);
    if (value && !is_lasting(r->envelope.message) && opened.to < KINDS_MAX)
        b->kinds[opened.to].open--;
    return opened;
}

/* A run that was begun before the run view was there is told by what it reports. */
static opened_t call_goes_on(pl_run_view_t *b, const pl_tap_record_t *r)
{
    const pl_envelope_t *e = &r->envelope;
    const void *value = pl_map_get(is_lasting(e->message) ? &b->lasting : &b->open,
                                   key_of(r, e->call));
    const bool is_new = !value && e->message == PL_MESSAGE_run
                        && e->kind == PL_KIND_PROGRESS
                        && pl_kind_level(e->to_kind) == PL_LEVEL_HOST;
    if (!value && e->message == PL_MESSAGE_watch)
        return (opened_t){.run = run_of_call(b, r), .to = e->from_kind};
    if (!is_new)
        return opened_unpack(value);
    const opened_t opened = {.run = run_enter(b, r), .to = e->from_kind};
    b->guesses = true;
    call_opens(b, r, opened);
    return opened;
}

static double time_of(const pl_run_view_t *b, int64_t time)
{
    return (double)(time - b->began) * 1e-9;
}

static void run_recall(void *self, const pl_registered_run_t *registered)
{
    pl_run_view_t *b = self;
    pthread_mutex_lock(&b->lock);
    const unsigned place = place_for_run(b);
    if (place != NO_RUN
        && pl_map_put(&b->lasting, registered->call,
                      opened_pack((opened_t){.run = place}))
               == PL_OK) {
        run_t *run = &b->run[place];
        run_begin(run, registered->call, registered->number,
                  time_of(b, registered->began));
        run_report(b, run, &registered->report, run_view_now(b));
        if (registered->report.batches)           /* of an epoch, not the program's own */
            run->moved = registered->reported_at - b->began;
        run->paused = (double)registered->paused * 1e-9;
        run->is_paused = registered->paused_at != 0;
        run->paused_at = time_of(b, registered->paused_at);
        b->guesses = true;
    }
    pthread_mutex_unlock(&b->lock);
}

/* Numbers of later runs go on behind those that there have been. */
void pl_run_view_recall(pl_run_view_t *b, pl_run_registry_t *registry)
{
    const uint64_t begun = pl_run_registry_each(registry, run_recall, b);
    pthread_mutex_lock(&b->lock);
    if (b->runs < begun)
        b->runs = begun;
    pthread_mutex_unlock(&b->lock);
}

/* ---- what a message says ---- */

static void count_end(pl_run_view_t *b, const char *status)
{
    for (int k = 0; k < 3; k++)
        b->ended[k] += !strcmp(status, run_view_ended[k]);
}

/* error: [NULL] */
static void run_has_ended(pl_run_view_t *b, run_t *run, const pl_tap_record_t *r,
                          const char *status, const pl_error_t *error)
{
    run_end(b, run);
    run->ended = true;
    run->ended_at = (double)r->stamp.time * 1e-9;
    snprintf(run->doing, sizeof run->doing, "%s", status);
    if (error)
        snprintf(run->error, sizeof run->error, "%s%s%s", error->where,
                 *error->where ? ": " : "", error->text);
    count_end(b, status);
}

/* The newest report may be of a step before the last; the metrics of a run that trained
 * nothing are of its weights. */
static void run_has_replied(pl_run_view_t *b, run_t *run, const pl_tap_record_t *r,
                            const pl_run_reply_t *reply)
{
    pl_error_t error = {.code = PL_OK};
    const bool failed = !strcmp(reply->status, "failed");
    if (run->has_trained) {
        run->step = reply->global_step;
        run->epochs = reply->epochs;
    }
    snprintf(failed ? error.text : run->reason,
             failed ? sizeof error.text : sizeof run->reason, "%s", reply->reason);
    run_has_ended(b, run, r, reply->status, failed ? &error : NULL);
}

static void take_call(run_t *run, const pl_tap_record_t *r)
{
    const bool trains = r->envelope.message == PL_MESSAGE_train_epoch;
    if (!trains && r->envelope.message != PL_MESSAGE_evaluate)
        return;
    if (!trains || r->stamp.rank == 0)
        run_steps_begin(run, trains ? r->stamp.time : 0);
    if (r->stamp.rank == 0)
        run->moved = r->stamp.time;
    if (trains && r->stamp.rank == 0)
        run_gathers(run);
}

static void take_progress(pl_run_view_t *b, run_t *run, const pl_tap_record_t *r,
                          const pl_body_t *body)
{
    if (r->envelope.message == PL_MESSAGE_run
        && pl_kind_level(r->envelope.to_kind) == PL_LEVEL_HOST)
        run_report(b, run, &body->run_progress, (double)r->stamp.time * 1e-9);
    else if (r->envelope.message == PL_MESSAGE_write_checkpoint)
        run_save(b, run, body->write_checkpoint_progress.path, false);
    else if (r->envelope.message == PL_MESSAGE_watch)
        run_watched(run, &body->watch_progress, (double)r->stamp.time * 1e-9);
}

/* Batches that the program sends by itself come when they come: they are of no epoch. */
static void take_move(run_t *run, const pl_tap_record_t *r)
{
    const unsigned message = r->envelope.message;
    const bool is_of_0 = r->stamp.rank == 0;
    const bool is_step = message == PL_MESSAGE_train_batch
                         && pl_kind_level(r->envelope.to_kind) == PL_LEVEL_EPOCH_LOOP;
    if (is_of_0 && (message == PL_MESSAGE_train_epoch || message == PL_MESSAGE_evaluate))
        run->moved = 0;
    else if ((is_of_0 && is_step) || run->moved)
        run->moved = r->stamp.time;
}

static void take_reply(pl_run_view_t *b, run_t *run, const pl_tap_record_t *r,
                       const pl_body_t *body, const opened_t *opened)
{
    switch (r->envelope.message) {
    case PL_MESSAGE_train_batch:
        if (r->stamp.rank == 0)
            run_timings(b, run, body->train_batch_reply.timings, r->stamp.time);
        if (r->stamp.rank == 0)
            run_trained(run);
        if (r->stamp.rank == 0 && opened->ends_step)
            run_step(run, r->stamp.time);
        break;
    case PL_MESSAGE_fetch_batch:
        if (pl_kind_level(r->envelope.to_kind) == PL_LEVEL_EPOCH_LOOP)
            run_fetched(run, r->stamp.rank == 0, body->fetch_batch_reply.samples);
        break;
    case PL_MESSAGE_control:
        if (pl_kind_level(r->envelope.to_kind) != PL_LEVEL_HOST)
            break;
        if (opened->pauses || opened->goes_on)
            run_pause(run, opened->pauses, (double)r->stamp.time * 1e-9);
        if (run->step < body->control_reply.global_step)
            run->step = body->control_reply.global_step;
        break;
    case PL_MESSAGE_measure_device:
        run_device(run, r->stamp.rank, &body->measure_device_reply);
        break;
    case PL_MESSAGE_write_checkpoint:
        run_removed(b, run, body->write_checkpoint_reply.removed);
        break;
    case PL_MESSAGE_run:
        if (pl_kind_level(r->envelope.to_kind) == PL_LEVEL_HOST)
            run_has_replied(b, run, r, &body->run_reply);
        break;
    default: break;
    }
}

static void take_error(pl_run_view_t *b, run_t *run, const pl_tap_record_t *r,
                       const pl_error_t *error)
{
    if (r->envelope.message == PL_MESSAGE_write_checkpoint)
        run_save(b, run, error->text, true);
    else if (r->envelope.message == PL_MESSAGE_run
             && pl_kind_level(r->envelope.to_kind) == PL_LEVEL_HOST)
        run_has_ended(b, run, r, "failed", error);
}

/* Whether some of its kinds has to be looked into: most need not. */
static bool tells_something(unsigned message)
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
    case PL_MESSAGE_write_checkpoint: return true;
    default: return false;
    }
}

static opened_t opened_by(pl_run_view_t *b, const pl_tap_record_t *r,
                          const pl_body_t *body)
{
    opened_t opened = {.run = run_of_call(b, r), .to = r->envelope.to_kind};
    if (body && r->envelope.message == PL_MESSAGE_train_batch)
        opened.ends_step = body->train_batch.step_due;
    if (body && r->envelope.message == PL_MESSAGE_control) {
        opened.pauses = body->control.command == PL_RUN_COMMAND_PAUSE;
        opened.goes_on = body->control.command == PL_RUN_COMMAND_CONTINUE;
    }
    return opened;
}

static void take_end_of_unshown(pl_run_view_t *b, const pl_tap_record_t *r,
                                const pl_body_t *body)
{
    const pl_envelope_t *e = &r->envelope;
    if (e->message != PL_MESSAGE_run || pl_kind_level(e->to_kind) != PL_LEVEL_HOST)
        return;
    if (e->kind == PL_KIND_ERROR)
        count_end(b, "failed");
    else if (e->kind == PL_KIND_REPLY)
        count_end(b, body->run_reply.status);
}

static void take(pl_run_view_t *b, const pl_tap_record_t *r)
{
    const pl_envelope_t *e = &r->envelope;
    pl_body_t body;
    pl_error_t error = {0};
    opened_t opened;
    const bool is_decoded = tells_something(e->message)
                            && pl_frame_decode_record(r->frame, &body, &error, NULL)
                                   == PL_OK;
    if (e->kind == PL_KIND_CALL)
        opened = opened_by(b, r, is_decoded ? &body : NULL);
    else if (e->kind == PL_KIND_REPLY || e->kind == PL_KIND_ERROR)
        opened = call_ends(b, r);
    else
        opened = call_goes_on(b, r);
    if (e->kind == PL_KIND_CALL)
        call_opens(b, r, opened);
    run_t *run = opened.run < NO_RUN ? &b->run[opened.run] : NULL;
    if (is_decoded && opened.run == NO_RUN)
        take_end_of_unshown(b, r, &body);
    if (!is_decoded || !run || run->ended)
        return;
    if (e->kind == PL_KIND_REPLY || e->kind == PL_KIND_ERROR)
        take_move(run, r);
    switch (e->kind) {
    case PL_KIND_CALL: take_call(run, r); break;
    case PL_KIND_PROGRESS: take_progress(b, run, r, &body); break;
    case PL_KIND_REPLY: take_reply(b, run, r, &body, &opened); break;
    case PL_KIND_ERROR: take_error(b, run, r, &error); break;
    default: break;
    }
}

/* ---- who gets how many ---- */

/* Slots between the newest that has been counted in and this one were silent. */
static void kinds_turn(pl_run_view_t *b, int64_t slot)
{
    if (slot - b->kind_slot > KIND_SLOTS)
        b->kind_slot = slot - KIND_SLOTS;
    while (b->kind_slot < slot) {
        b->kind_slot++;
        for (int k = 0; k < KINDS_MAX; k++)
            b->kinds[k].slot[b->kind_slot % KIND_SLOTS] = 0;
    }
}

static void count(pl_run_view_t *b, const pl_tap_record_t *r)
{
    const pl_envelope_t *e = &r->envelope;
    const int64_t slot = r->stamp.time / KIND_PERIOD;
    b->messages[e->kind]++;
    b->last = r->stamp.time;
    b->was_kept = r->was_kept;
    b->newest[b->newest_count++ % NEWEST_MAX] = (newest_t){.time = r->stamp.time,
                                                           .rank = r->stamp.rank,
                                                           .message = e->message,
                                                           .kind = e->kind,
                                                           .from = e->from_kind,
                                                           .to = e->to_kind};
    if (slot > b->kind_slot)
        kinds_turn(b, slot);
    if (e->to_kind >= KINDS_MAX)
        return;
    b->kinds[e->to_kind].messages++;
    if (slot >= 0 && slot > b->kind_slot - KIND_SLOTS)
        b->kinds[e->to_kind].slot[slot % KIND_SLOTS]++;
}

void pl_run_view_record(pl_run_view_t *view, const pl_tap_record_t *record)
{
    pthread_mutex_lock(&view->lock);
    count(view, record);
    take(view, record);
    pthread_mutex_unlock(&view->lock);
}

/* Answers may have been among what is missing: calls that seem open may not be. */
void pl_run_view_gap(pl_run_view_t *view, uint64_t missing)
{
    if (!missing)                                 /* behind a rank's death, which shows */
        return;
    pthread_mutex_lock(&view->lock);
    view->missing += missing;
    view->guesses = true;
    calls_forget(view, &view->open);
    for (int k = 0; k < RUNS_MAX; k++)
        view->run[k].steps_began = 0;
    pthread_mutex_unlock(&view->lock);
}

void pl_run_view_log(pl_run_view_t *view, pl_log_level_t level, int rank,
                     const char *actor, const char *text)
{
    pthread_mutex_lock(&view->lock);
    log_entry_t *entry = &view->log[view->logs++ % LOG_MAX];
    view->log_levels[level]++;
    *entry = (log_entry_t){.item = ++view->item,
                           .time = run_view_now(view),
                           .level = (int)level,
                           .rank = rank};
    snprintf(entry->actor, sizeof entry->actor, "%s", actor);
    snprintf(entry->text, sizeof entry->text, "%s", text);
    pthread_mutex_unlock(&view->lock);
}

/* ---- life ---- */

int pl_run_view_living(pl_run_view_t *view)
{
    int living = 0;
    pthread_mutex_lock(&view->lock);
    for (int k = 0; k < RUNS_MAX; k++)
        living += view->run[k].call && !view->run[k].ended;
    pthread_mutex_unlock(&view->lock);
    return living;
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
    return view;
}

void pl_run_view_free(pl_run_view_t *view)
{
    if (!view)
        return;
    for (int k = 0; k < RUNS_MAX; k++)
        run_release(&view->run[k]);
    pl_map_release(&view->open);
    pl_map_release(&view->lasting);
    pthread_mutex_destroy(&view->lock);
    pl_free(view);
}
