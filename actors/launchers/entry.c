/* entry.c - the process of a rank: what pl_init() enters when a launcher has started this
 * program
 *
 * An actor in the launcher's place: it makes the calls here that the launcher's stand-in
 * was asked for there, and sends the answers back.  A result goes when all its bytes have
 * come; and the process stays until the other side has everything that it has said.
 *
 * The process is Paceline's own from here on, so it may set up what in a host would be
 * the host's: signals, environment, its exit. */
#include "actors/launchers/entry.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "actors/launchers/backtrace.h"
#include "actors/launchers/outbox.h"
#include "actors/launchers/parcel.h"
#include "actors/launchers/wires.h"
#include "actors/worker.h"
#include "base/alloc.h"
#include "base/error.h"
#include "runtime/monitor.h"
#include "runtime/process.h"
#include "runtime/reactor.h"

enum { LEAVE_MS = 3000, LOST = 3 };                         /* LOST: exit status */

typedef struct line {
    struct line *next;
    pl_serve_progress_t says;
    char text[];                                            /* actor, text */
} line_t;

typedef struct entry {
    pl_reactor_t *reactor;
    pl_link_t *link;
    pl_bulk_t *bulk;
    pl_outbox_t outbox;
    uint32_t ranks;                                         /* on this machine */
    int rank;
    pl_address_t worker;
    uint64_t life;                              /* its start  [0: none] */
    uint64_t outcome;                           /* transfer of it, under way  [0: none] */
    int signals;                                /* descriptor */
    bool leaves;
} entry_t;

/* ---- lines for the log ---- */

static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
static line_t *lines, **lines_end = &lines;

static line_t *lines_take(void)
{
    pthread_mutex_lock(&lines_lock);
    line_t *first = lines;
    lines = NULL;
    lines_end = &lines;
    pthread_mutex_unlock(&lines_lock);
    return first;
}

static void lines_send(entry_t *e)
{
    for (line_t *line = lines_take(), *next; line; line = next) {
        next = line->next;
        if (e)
            pl_outbox_post(&e->outbox, PL_KIND_PROGRESS, PL_MESSAGE_serve, 0, &line->says,
                           NULL);
        pl_free(line);
    }
}

static void lines_posted(void *argument)
{
    lines_send(argument);
}

/* Any thread. */
static void line_say(pl_log_level_t level, int rank, const char *actor, const char *text,
                     void *user)
{
    entry_t *e = user;
    const size_t first = strlen(actor) + 1, second = strlen(text) + 1;
    line_t *line = pl_alloc(sizeof *line + first + second);
    (void)rank;
    if (!line)
        return;
    memcpy(line->text, actor, first);
    memcpy(line->text + first, text, second);
    line->says = (pl_serve_progress_t){(uint32_t)level, line->text, line->text + first};
    pthread_mutex_lock(&lines_lock);
    *lines_end = line;
    lines_end = &line->next;
    pthread_mutex_unlock(&lines_lock);
    pl_reactor_post(e->reactor, lines_posted, e, NULL);
}

/* ---- answers go up ---- */

static void entry_fail(entry_t *e, pl_message_t message, uint64_t number,
                       const pl_error_t *error)
{
    pl_outbox_post(&e->outbox, PL_KIND_ERROR, message, number, error, NULL);
}

/* All is said: the other side may know that nothing follows. */
static void entry_leave(entry_t *e)
{
    if (e->leaves)
        return;
    e->leaves = true;
    lines_send(e);
    pl_link_leave(e->link, NULL);
    pl_link_leave(pl_bulk_link(e->bulk), NULL);
}

static void entry_gone(void *self)
{
    pl_reactor_leave(((entry_t *)self)->reactor);
}

static void worker_ended(void *self, const pl_answer_t *answer)
{
    entry_t *e = self;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    e->life = 0;
    if (answer->kind == PL_ANSWER_ERROR)
        entry_fail(e, PL_MESSAGE_start, 0, answer->error);
    else
        pl_outbox_post(&e->outbox, PL_KIND_REPLY, PL_MESSAGE_start, 0,
                       &(pl_start_reply_t){0}, NULL);
    if (pl_after(e, LEAVE_MS, entry_gone, NULL) != PL_OK)
        entry_gone(e);
    entry_leave(e);
}

static void outcome_send(entry_t *e, const pl_outcome_t *outcome)
{
    pl_error_t err = {0};
    pl_blob_t *blob = pl_outcome_pack(outcome, &err);
    if (blob)
        e->outcome = pl_bulk_send(e->bulk, PL_LINK_HOST, blob, &err);
    pl_object_unref(blob);
    if (!e->outcome)
        entry_fail(e, PL_MESSAGE_serve, 0, &err);
}

static void outcome_sent(void *user, int peer, uint64_t transfer, const pl_error_t *error)
{
    entry_t *e = user;
    (void)peer;
    if (transfer != e->outcome)
        return;
    if (error)
        entry_fail(e, PL_MESSAGE_serve, 0, error);
    else
        pl_outbox_post(&e->outbox, PL_KIND_REPLY, PL_MESSAGE_serve, 0,
                       &(pl_serve_reply_t){.outcome = transfer}, NULL);
}

static void run_answered(void *self, const pl_answer_t *answer)
{
    entry_t *e = self;
    switch (answer->kind) {
    case PL_ANSWER_PROGRESS:
        pl_outbox_post(&e->outbox, PL_KIND_PROGRESS, PL_MESSAGE_run, 0,
                       &answer->body->run_progress, NULL);
        return;
    case PL_ANSWER_ERROR: entry_fail(e, PL_MESSAGE_serve, 0, answer->error); return;
    case PL_ANSWER_REPLY:
        outcome_send(e, (const pl_outcome_t *)answer->body->run_reply.outcome);
        return;
    case PL_ANSWER_LATE: return;
    }
}

/* ---- calls come down ---- */

static int job_begin(entry_t *e, uint64_t transfer, pl_error_t *err)
{
    pl_blob_t *blob = pl_bulk_take(e->bulk, PL_LINK_HOST, transfer);
    if (!blob || e->life) {
        pl_object_unref(blob);
        return pl_fail(err, PL_EPROTOCOL, "no job, or a second one");
    }
    pl_job_t *job = pl_job_unpack(blob, err);
    pl_object_unref(blob);
    const pl_start_t start = {.options = "", .ranks = e->ranks};
    if (job)
        e->life = pl_spawn(e, &pl_worker, pl_as_rank(e->rank), &start,
                           (pl_how_t){.on_answer = worker_ended}, &e->worker, err);
    bool begun = e->life
                 && pl_call_run(e, e->worker, &(pl_run_t){.job = &job->object},
                                (pl_how_t){.on_answer = run_answered}, err);
    pl_object_unref(job);
    return begun ? PL_OK : err->code;
}

/* A call that was passed on; its number there is the context here. */
typedef struct asked {
    uint64_t number;
    pl_message_t message;
} asked_t;

static void passed_answered(void *self, const pl_answer_t *answer)
{
    entry_t *e = self;
    asked_t *asked = answer->context;
    if (answer->kind == PL_ANSWER_ERROR)
        entry_fail(e, asked->message, asked->number, answer->error);
    else if (answer->kind == PL_ANSWER_REPLY)
        pl_outbox_post(&e->outbox, PL_KIND_REPLY, asked->message, asked->number,
                       answer->body, NULL);
    if (answer->kind == PL_ANSWER_ERROR || answer->kind == PL_ANSWER_REPLY)
        pl_free(asked);
}

static int pass_on(entry_t *e, const pl_envelope_t *envelope, const pl_body_t *body,
                   pl_error_t *err)
{
    asked_t *asked = pl_alloc(sizeof *asked);
    if (!asked)
        return pl_no_memory(err);
    *asked = (asked_t){envelope->call, (pl_message_t)envelope->message};
    const pl_how_t how = {.on_answer = passed_answered, .context = asked};
    if (pl_call(e, e->worker, asked->message, body, how, err))
        return PL_OK;
    pl_free(asked);
    return err->code;
}

static void entry_end(entry_t *e)
{
    if (e->life)
        pl_cancel(e, e->life);
    else
        entry_leave(e);
}

static int call_came(entry_t *e, const pl_envelope_t *envelope, const pl_body_t *body,
                     pl_error_t *err)
{
    switch (envelope->message) {
    case PL_MESSAGE_serve: return job_begin(e, body->serve.job, err);
    case PL_MESSAGE_join:
    case PL_MESSAGE_stop: return pass_on(e, envelope, body, err);
    default: return pl_fail(err, PL_EPROTOCOL, "a rank does not take this call");
    }
}

static void message_came(void *user, int peer, pl_frame_t *message)
{
    entry_t *e = user;
    pl_envelope_t envelope;
    pl_body_t body;
    pl_error_t error, err = {0};
    const pl_bytes_t bytes = pl_frame_bytes(message);
    (void)peer;
    if (pl_envelope_read(bytes, &envelope, NULL) != PL_OK
        || pl_frame_decode_foreign(bytes, &body, &error, NULL) != PL_OK)
        return;
    if (envelope.kind == PL_KIND_CANCEL && envelope.message == PL_MESSAGE_start)
        entry_end(e);
    else if (envelope.kind == PL_KIND_CALL
             && call_came(e, &envelope, &body, &err) != PL_OK)
        entry_fail(e, (pl_message_t)envelope.message, envelope.call, &err);
}

static void both_over(entry_t *e)
{
    if (pl_link_state(e->link, PL_LINK_HOST) >= PL_LINK_HAS_LEFT
        && pl_link_state(pl_bulk_link(e->bulk), PL_LINK_HOST) >= PL_LINK_HAS_LEFT)
        entry_gone(e);
}

static void event_came(void *user, int peer, pl_link_event_t event, const char *text)
{
    entry_t *e = user;
    (void)peer, (void)text;
    if (event == PL_LINK_GONE && !e->leaves)
        _exit(LOST);                                       /* nobody wants what it does */
    if (event == PL_LINK_ROOM || event == PL_LINK_JOINED)
        pl_outbox_flush(&e->outbox);
    if (event == PL_LINK_LEFT || event == PL_LINK_GONE)
        both_over(e);
}

/* ---- signals ---- */

static sigset_t signals_to_end(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return set;
}

/* Whoever wants this rank to end wants the run to: ranks go together. */
static void signal_came(void *self)
{
    const entry_t *e = self;
    struct signalfd_siginfo info;
    char wish[80];
    if (read(e->signals, &info, sizeof info) != sizeof info)
        return;
    snprintf(wish, sizeof wish, "rank %d got SIG%s", e->rank,
             sigabbrev_np((int)info.ssi_signo));
    pl_outbox_post(&((entry_t *)self)->outbox, PL_KIND_PROGRESS, PL_MESSAGE_run, 0,
                   &(pl_run_progress_t){.event = "alive", .metrics = "", .wish = wish},
                   NULL);
}

/* Before any other thread is there, so that all inherit it. */
static int signals_open(entry_t *e, pl_error_t *err)
{
    const sigset_t set = signals_to_end();
    e->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (e->signals < 0 || pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
        return pl_fail(err, PL_EBUSY, "no descriptor for signals");
    return pl_watch(e, e->signals, signal_came, err);
}

/* ---- the process ---- */

static const pl_actor_ops_t entry_ops = {.name = "entry",
                                         .help = "the launcher, as a rank's process "
                                                 "sees it",
                                         .size = sizeof(entry_t),
                                         .level = PL_LEVEL_LAUNCHER,
                                         .handlers = (pl_handler_t[]){PL_HANDLERS_END}};

static int entry_connect(entry_t *e, const pl_place_t *place, pl_error_t *err)
{
    char door[PL_DOOR_TEXT];
    pl_link_spec_t spec = {.endpoint = pl_place_door(place->folder, PL_DOOR_CALLS, door),
                           .run = place->run,
                           .epoch = place->epoch,
                           .world_size = place->world_size,
                           .rank = place->rank,
                           .on_message = message_came,
                           .on_event = event_came,
                           .user = e};
    e->link = pl_link_connect(&spec, &e->reactor->loop, err);
    if (!e->link)
        return err->code;
    e->outbox = (pl_outbox_t){e->link, PL_LINK_HOST, place->run, place->epoch, NULL};
    const pl_bulk_spec_t bulk = {.link = spec,
                                 .most = SIZE_MAX / 2,
                                 .on_sent = outcome_sent,
                                 .on_event = event_came,
                                 .user = e};
    pl_place_door(place->folder, PL_DOOR_BULK, door);
    e->bulk = pl_bulk_connect(&bulk, &e->reactor->loop, err);
    return e->bulk ? PL_OK : err->code;
}

/* On this thread, until the rank has ended. */
static int rank_live(pl_runtime_t *runtime, const pl_place_t *place, pl_error_t *err)
{
    pl_reactor_t *reactor = pl_reactor_new(runtime, place->rank, err);
    void *self = NULL;
    if (!reactor)
        return err->code;
    int code = pl_actor_root(reactor, &entry_ops, &self, err);
    entry_t *e = self;
    if (code == PL_OK) {
        e->reactor = reactor;
        e->rank = place->rank;
        e->ranks = (uint32_t)place->world_size;
        code = signals_open(e, err);
    }
    if (code == PL_OK)
        code = entry_connect(e, place, err);
    if (code == PL_OK) {
        if (place->log_level >= 0)
            pl_log_hook(line_say, (pl_log_level_t)place->log_level, e);
        pl_reactor_run(reactor);
        pl_log_hook(NULL, PL_LOG_ERROR, NULL);
    }
    if (e) {
        pl_bulk_free(e->bulk);
        pl_link_free(e->link);
        pl_outbox_release(&e->outbox);
    }
    pl_reactor_free(reactor);
    lines_send(NULL);
    return code;
}

static int rank_main(const pl_place_t *place)
{
    pl_runtime_t runtime;
    pl_error_t err = {0};
    char name[16], door[PL_DOOR_TEXT];
    snprintf(name, sizeof name, "rank %d", place->rank);
    prctl(PR_SET_NAME, name);
    if (pl_process_follow_parent(&err) != PL_OK
        || pl_runtime_init(&runtime, &err) != PL_OK)
        return LOST;
    runtime.run = place->run;
    runtime.epoch = place->epoch;
    runtime.began = place->began;
    runtime.grace_ms = place->grace_ms;
    runtime.open_signal = SIGABRT;
    pl_backtrace_on_abort();
    int code = PL_OK;
    if (place->stream)
        code = pl_monitor_bring(&runtime,
                                pl_place_door(place->folder, PL_DOOR_STREAM, door),
                                place->stream > 1, &err);
    if (code == PL_OK)
        code = rank_live(&runtime, place, &err);
    pl_monitor_stop(&runtime);
    if (runtime.stuck)
        _exit(LOST);                         /* a thread that does not end holds it all */
    pl_runtime_release(&runtime);
    if (code != PL_OK)
        fprintf(stderr, "rank %d: %s\n", place->rank, err.text);
    return code == PL_OK ? EXIT_SUCCESS : LOST;
}

/* What this process starts is no rank. */
void pl_entry_if_rank(void)
{
    pl_place_t place;
    if (!pl_place_read(getenv(PL_PLACE), &place))
        return;
    unsetenv(PL_PLACE);
    exit(rank_main(&place));
}
