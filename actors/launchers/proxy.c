/* proxy.c - the worker of a rank that runs in another process
 *
 * The proxy owns the process and forwards over the link whatever call it receives; what
 * comes back answers those calls.  So nothing above knows where a rank runs.
 *
 * A rank has ended when its process is dead and all that the process sent has arrived.
 * So a result that was sent counts, whatever happens after that.  A death without a
 * result is an error with the last words of the process.  A rank that another program has
 * started has no process here.  It ends when its worker has ended, or when its link is
 * silent for too long; instead of a kill it is disconnected.  A proxy whose process
 * belongs to a worker pool ends with its worker, or with the process.
 *
 *     PROXY_RUNNING --worker ended (foreign, pool)--> PROXY_WORKER_ENDED --+
 *         |                                                      +--> PROXY_FINISHED
 *         +-------process dead, or link lost------> PROXY_PROCESS_DEAD --+
 *
 * A rank that is to end gets a request and a time limit.  One that does not answer gets
 * SIGABRT, for the backtraces of its threads, and then SIGKILL. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/launchers/forwarding.h"
#include "actors/launchers/rank_links.h"
#include "actors/launchers/ranks.h"
#include "actors/launchers/supervisor.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/timeouts.h"
#include "runtime/monitor.h"
#include "transport/socket.h"

typedef struct proxy_call {                                 /* waits for its answer */
    struct proxy_call *next;
    uint64_t number;
    pl_message_t message;
    pl_call_t *call;
} proxy_call_t;

typedef enum proxy_end { PROXY_NOT_ENDED, PROXY_ASKED_TO_END, PROXY_KILLED } proxy_end_t;
typedef enum proxy_life {
    PROXY_RUNNING,
    PROXY_WORKER_ENDED,                   /* its worker has ended, its process may live */
    PROXY_PROCESS_DEAD,                   /* its process is dead; a foreign one is gone */
    PROXY_FINISHED                        /* and all that it sent has arrived */
} proxy_life_t;

typedef struct proxy {
    int rank;
    bool is_foreign;                      /* another program has started its process */
    pl_rank_links_t *links;               /* counted */
    pl_worker_pool_t *pool;               /* owns the process  [the proxy does] */
    pl_supervisor_t *process;             /* [it is foreign] */
    char about[128];                      /* from a foreign process, as it joined  [""] */
    pl_outbox_t outbox;
    proxy_call_t *forwarded;               /* newest first  [none] */
    uint64_t forwarded_count;              /* so far: number of the newest */
    pl_call_t *run;                        /* one of them  [not requested, or answered] */
    bool was_stopped;                      /* a stop was forwarded: one is enough */
    pl_call_t *watch;                      /* [no call] */
    uint64_t global_step;                  /* of its newest report */
    int64_t received_at;                   /* pl_now() of its newest report */
    char *output;                          /* that is not written yet  [NULL] */
    size_t output_size;
    bool is_writing;                                        /* other output */
    bool has_joined;
    proxy_end_t end;                                        /* how it is to end */
    proxy_life_t life;
    pl_death_t death;
    bool died_early;                /* before the watch call */
    pl_error_t error;               /* why it was killed; of its worker's end  [code 0] */
} proxy_t;

/* ---- The output of the process: a file in the run directory ----
 *
 * A limited amount of output waits for a run directory, and for what is being written. */

enum { LOG_MAX = 64 << 10 };

/* written: the answer about what was written before  [nothing was] */
static void log_flush(void *self, const pl_answer_t *written)
{
    proxy_t *r = self;
    const char *run_dir = pl_rank_links_run_dir(r->links);
    if (written && written->kind == PL_ANSWER_ERROR)
        pl_log_line(PL_LOG_WARNING, r->rank, pl_actor_name(r), "%s",
                    written->error->text);
    r->is_writing &= !written;
    if (r->is_writing || !r->output_size || !*run_dir)
        return;
    char *path = pl_text("%s/rank-%d.stderr", run_dir, r->rank);
    const pl_append_log_t msg = {.path = path, .text = {r->output, r->output_size}};
    r->is_writing = path
                    && pl_call_append_log(r, r->links->log_writer, &msg,
                                          (pl_how_t){.on_answer = log_flush}, NULL);
    pl_text_free(path);
    if (r->is_writing)
        r->output_size = 0;
}

static void process_line(void *self, const char *line)
{
    proxy_t *r = self;
    const pl_log_level_t level = r->end == PROXY_KILLED ? PL_LOG_DEBUG : PL_LOG_WARNING;
    const size_t length = strlen(line), size = r->output_size + length + 1;
    char *longer = size <= LOG_MAX ? pl_resize(r->output, size) : NULL;
    pl_log_line(level, r->rank, "stderr", "%s", line);
    if (longer) {
        r->output = longer;
        memcpy(longer + r->output_size, line, length);
        longer[size - 1] = '\n';
        r->output_size = size;
    }
    log_flush(r, NULL);
}

/* ---- The watch call ---- */

/* A foreign process has sent "HOST process NUMBER" when it joined. */
static void proxy_tell(const proxy_t *r, pl_rank_event_t event, const char *cause)
{
    char host[64] = "";
    unsigned process = r->process ? (unsigned)pl_supervisor_process_id(r->process) : 0;
    if (!r->watch)
        return;
    if (r->is_foreign)
        sscanf(r->about, "%63s process %u", host, &process);
    else
        gethostname(host, sizeof host - 1);
    const int64_t since = r->received_at ? r->received_at : pl_now();
    pl_progress_watch(r->watch,
                      &(pl_watch_progress_t){.event = event,
                                             .rank = (uint32_t)r->rank,
                                             .host = host,
                                             .process = process,
                                             .cause = cause,
                                             .seconds = (double)(pl_now() - since)
                                                        / PL_SECOND,
                                             .global_step = r->global_step});
}

/* ---- The end ---- */

/* Only steps of this incarnation count. */
static const char *when_text(const proxy_t *r, char text[static 48])
{
    snprintf(text, 48, r->global_step ? "after step %" PRIu64 : "before its first step",
             r->global_step);
    return text;
}

static void gone_fail(const proxy_t *r, const char *why, pl_error_t *error)
{
    pl_fail(error, PL_EDIED, "rank %d (%s) is gone %s: %s", r->rank, r->about,
            when_text(r, (char[48]){""}), why);
}

static bool exited_cleanly(const proxy_t *r)
{
    if (r->is_foreign || r->life == PROXY_WORKER_ENDED)
        return !r->run;
    return r->end == PROXY_ASKED_TO_END && (!r->death.is_known || r->death.status == 0);
}

/* Adds how it ended to what is known already.  The death of a foreign process is not
 * observed. */
static void end_tell(proxy_t *r, pl_error_t *error)
{
    const bool is_observed = !r->is_foreign && r->life != PROXY_WORKER_ENDED;
    const char *run_dir = pl_rank_links_run_dir(r->links);
    char host[64] = "?", when[48] = "before it joined", death[PL_DEATH_TEXT];
    if (r->has_joined || !is_observed)
        when_text(r, when);
    if (!is_observed) {
        if (error->code == PL_OK)
            pl_fail(error, PL_EDIED, "rank %d (%s) ended %s", r->rank, r->about, when);
    } else if (r->end == PROXY_KILLED && r->has_joined && *run_dir) {
        pl_fail(error, r->error.code,
                "%s; %s/rank-%d.stderr has the backtraces of its threads", r->error.text,
                run_dir, r->rank);
    } else {
        gethostname(host, sizeof host - 1);
        if (error->code == PL_OK)
            pl_fail(error, PL_EDIED, "the process of rank %d (%d on %s) %s %s", r->rank,
                    pl_supervisor_process_id(r->process), host,
                    pl_death_text(&r->death, death), when);
        pl_supervisor_last_words(r->process, false, error);
    }
    snprintf(error->where, sizeof error->where, "rank %d", r->rank);
}

/* Ends the actor if nothing from the rank can arrive any more. */
static void proxy_finish(proxy_t *r)
{
    if (r->life == PROXY_RUNNING || r->life == PROXY_FINISHED
        || (r->life == PROXY_PROCESS_DEAD && !r->is_foreign
            && !pl_rank_links_is_over(r->links, r->rank)))
        return;
    r->is_writing = false;              /* the rest is written after what is on its way */
    log_flush(r, NULL);
    const bool is_clean = exited_cleanly(r);
    pl_error_t error = r->error;
    if (!is_clean && r->links->stream[0])
        pl_monitor_lost(r->links->runtime, r->links->stream, r->rank);
    if (!is_clean || (r->run && error.code == PL_OK))
        end_tell(r, &error);
    r->life = PROXY_FINISHED;
    pl_call_t *run = r->run, *watch = r->watch;
    r->run = r->watch = NULL;
    if (watch)
        pl_reply_watch(watch, &(pl_watch_reply_t){0});
    if (run)
        pl_call_fail(run, &error);
    pl_actor_end(r, error.code && !run ? &error : NULL);    /* reported once */
}

static void proxy_gone(proxy_t *r)
{
    if (r->life == PROXY_RUNNING)
        r->life = PROXY_PROCESS_DEAD;
    proxy_finish(r);
}

static void proxy_left(proxy_t *r, const char *why)
{
    if (r->life == PROXY_RUNNING && !r->is_foreign) {
        pl_supervisor_kill(r->process, PL_EXIT_MS);
    } else if (r->life == PROXY_RUNNING) {
        r->life = PROXY_PROCESS_DEAD;
        proxy_tell(r, PL_RANK_EVENT_GONE, why);
        if (r->error.code == PL_OK && r->has_joined)
            gone_fail(r, why, &r->error);
        else if (r->error.code == PL_OK)
            pl_fail(&r->error, PL_ESTATE, "%s", why);       /* a restart would not help */
    }
    proxy_finish(r);
}

/* A process may die as soon as it is started: its death is reported when the watch call
 * has arrived. */
static void proxy_died(void *self, const pl_death_t *death)
{
    proxy_t *r = self;
    char text[PL_DEATH_TEXT];
    r->death = *death;
    r->links->was_killed |= death->signal == SIGKILL && r->end == PROXY_NOT_ENDED;
    r->died_early = r->life == PROXY_RUNNING && r->end == PROXY_NOT_ENDED && !r->watch;
    if (r->died_early)
        return;
    if (r->life == PROXY_RUNNING)
        r->life = PROXY_PROCESS_DEAD;
    if (!exited_cleanly(r) && r->error.code != PL_ECANCELLED)
        proxy_tell(r, PL_RANK_EVENT_DIED, pl_death_text(death, text));
    pl_link_died(r->links->calls, r->rank);
    pl_link_died(pl_bulk_link(r->links->bulk), r->rank);
    proxy_finish(r);
}

/* ---- The rank is to end ---- */

/* The rank receives the reason if its link works, and ends itself. */
static void proxy_cut_off(proxy_t *r)
{
    const char *why = r->error.code ? r->error.text : "the run has ended";
    pl_link_dismiss(r->links->calls, r->rank, why);
    pl_link_dismiss(pl_bulk_link(r->links->bulk), r->rank, why);
    proxy_gone(r);
}

static void proxy_kill(proxy_t *r, const pl_error_t *why)
{
    if (r->end == PROXY_KILLED || r->life != PROXY_RUNNING)
        return;
    r->end = PROXY_KILLED;
    r->error = *why;
    if (r->died_early)
        proxy_died(r, &r->death);
    else if (r->is_foreign)
        proxy_cut_off(r);
    else
        pl_supervisor_abort(r->process);
}

static void end_late(void *self)
{
    proxy_t *r = self;
    pl_error_t err;
    pl_fail(&err, PL_ESTUCK, "rank %d did not end within %g s and was %s", r->rank,
            PL_RANK_END_MS / 1e3, r->is_foreign ? "disconnected" : "killed");
    proxy_kill(r, &err);
}

static void start_cancel(proxy_t *r, const char *when)
{
    pl_fail(&r->error, PL_ECANCELLED, "rank %d was stopped %s, because the run failed",
            r->rank, when);
    r->end = PROXY_KILLED;
    pl_supervisor_kill(r->process, 0);
}

/* A rank that starts has nothing to save, and would delay the end of the run, as by a
 * file that does not open or a long compilation. */
static void end_look(void *self)
{
    proxy_t *r = self;
    if (r->life != PROXY_RUNNING || r->end != PROXY_ASKED_TO_END)
        return;
    if (r->links->is_hurried)
        start_cancel(r, "during its start-up");
    else
        pl_after(r, PL_START_END_MS, end_look, NULL);
}

/* The launcher ends the rank, or has waited too long for its run. */
static void proxy_cancel(void *self, pl_call_t *call)
{
    proxy_t *r = self;
    pl_error_t err;
    if (call == r->run) {
        const char *when = when_text(r, (char[48]){""});
        proxy_tell(r, PL_RANK_EVENT_SILENT, "no progress of its steps");
        if (r->is_foreign)
            pl_fail(&err, PL_ESTUCK, "rank %d (%s) was disconnected %s", r->rank,
                    r->about, when);
        else
            pl_fail(&err, PL_ESTUCK, "the process of rank %d (%d) was killed %s", r->rank,
                    pl_supervisor_process_id(r->process), when);
        proxy_kill(r, &err);
    }
    if (!pl_is_life(self, call) || r->end != PROXY_NOT_ENDED)
        return;
    r->end = PROXY_ASKED_TO_END;
    if (r->died_early) {
        proxy_died(r, &r->death);
    } else if (r->is_foreign && !r->has_joined) {
        proxy_gone(r);                                     /* it may receive the result */
    } else if (!r->has_joined) {
        start_cancel(r, "before it joined");
    } else if (pl_outbox_post(&r->outbox, PL_KIND_CANCEL, PL_MESSAGE_start, 0, NULL, NULL)
               == PL_OK) {
        pl_after(r, PL_RANK_END_MS, end_late, NULL);
        if (!r->is_foreign && !r->pool)
            pl_after(r, PL_START_END_MS, end_look, NULL);
    } else if (r->is_foreign) {
        proxy_cut_off(r);
    } else {
        pl_supervisor_kill(r->process, 0);
    }
}

/* ---- Calls go to the rank ---- */

static int proxy_forward(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    proxy_t *r = self;
    proxy_call_t *forwarded = pl_alloc(sizeof *forwarded);
    if (!forwarded)
        return pl_no_memory(err);
    *forwarded = (proxy_call_t){r->forwarded, ++r->forwarded_count, pl_call_message(call),
                                call};
    const int code = pl_outbox_post(&r->outbox, PL_KIND_CALL, forwarded->message,
                                    forwarded->number, body, err);
    if (code == PL_OK)
        r->forwarded = forwarded;
    else
        pl_free(forwarded);
    return code;
}

/* A rank that has not joined by both links has a limit for that; then it gives signs of
 * life itself. */
static void proxy_beat(void *self)
{
    proxy_t *r = self;
    if (!r->run
        || (r->has_joined
            && pl_link_state(pl_bulk_link(r->links->bulk), r->rank) != PL_LINK_AWAITED))
        return;
    pl_progress_run(r->run,
                    &(pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE, .metrics = ""});
    pl_after(r, PL_STEPS_BEAT_MS, proxy_beat, NULL);
}

static int proxy_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    proxy_t *r = self;
    if (r->run)
        return pl_fail(err, PL_ESTATE, "a worker runs once");
    if (proxy_forward(r, call, body, err) != PL_OK)
        return err->code;
    r->run = call;
    proxy_beat(r);
    return PL_OK;
}

static int proxy_stop(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    proxy_t *r = self;
    if (r->was_stopped)
        return pl_reply_stop(call, &(pl_stop_reply_t){0});
    r->was_stopped = true;
    return proxy_forward(r, call, body, err);
}

static int proxy_watch(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    proxy_t *r = self;
    (void)body, (void)err;
    r->watch = call;
    if (r->died_early)
        proxy_died(r, &r->death);
    return PL_OK;
}

/* ---- Answers come from the rank ---- */

/* An answer to no call that waits for one is dropped. */
static void answer_came(proxy_t *r, const pl_incoming_t *m)
{
    proxy_call_t **at = &r->forwarded, *forwarded;
    for (; (forwarded = *at); at = &forwarded->next)
        if (forwarded->number == m->envelope.call
            && forwarded->message == m->envelope.message)
            break;
    if (!forwarded)
        return;
    if (m->envelope.kind == PL_KIND_PROGRESS) {
        pl_progress(forwarded->call, &m->body);
        return;
    }
    *at = forwarded->next;
    if (forwarded->call == r->run) {
        if (m->error.code == PL_ESTUCK)
            proxy_tell(r, PL_RANK_EVENT_SILENT, m->error.text);
        r->run = NULL;
    }
    if (m->error.code != PL_OK)
        pl_call_fail(forwarded->call, &m->error);
    else
        pl_reply(forwarded->call, &m->body);
    pl_free(forwarded);
}

static void proxy_message(void *self, pl_frame_t *frame)
{
    proxy_t *r = self;
    pl_incoming_t m;
    pl_error_t err = {0};
    if (r->life == PROXY_FINISHED)
        return;
    const int code = pl_incoming_read(&m, &r->outbox, pl_frame_bytes(frame), &err);
    const pl_follow_log_progress_t *line = &m.body.follow_log_progress;
    const pl_run_progress_t *report = &m.body.run_progress;
    if (code != PL_OK) {
        pl_log_line(PL_LOG_WARNING, r->rank, pl_actor_name(r),
                    "dropped an invalid message from the rank's process: %s", err.text);
    } else if (m.envelope.message == PL_MESSAGE_follow_log) {
        if (line->level <= PL_LOG_DEBUG)
            pl_log_line((pl_log_level_t)line->level, r->rank, line->actor, "%s",
                        line->text);
    } else if (m.envelope.message == PL_MESSAGE_start) {    /* its worker has ended */
        if (m.error.code != PL_OK && r->error.code == PL_OK)
            r->error = m.error;
        if (r->life == PROXY_RUNNING && r->end != PROXY_KILLED
            && (r->is_foreign || r->pool))
            r->life = PROXY_WORKER_ENDED;
        proxy_finish(r);
    } else {
        if (m.envelope.message == PL_MESSAGE_run && m.envelope.kind == PL_KIND_PROGRESS) {
            r->received_at = pl_now();
            if (report->global_step > r->global_step)
                r->global_step = report->global_step;
            pl_rank_links_tell_run_dir(r->links, report->run_dir);
        }
        answer_came(r, &m);
    }
    pl_incoming_release(&m);
}

static void proxy_event(void *self, pl_link_event_t event, const char *text)
{
    proxy_t *r = self;
    pl_error_t err;
    switch (event) {
    case PL_LINK_JOINED:
        r->has_joined = true;
        snprintf(r->about, sizeof r->about, "%s", text);
        r->received_at = pl_now();
        return;
    case PL_LINK_MISSING:
        pl_fail(&err, PL_ETIMEOUT, "%s", text);
        proxy_kill(r, &err);
        return;
    case PL_LINK_SILENT:
    case PL_LINK_CUT:
        if (!r->is_foreign && event == PL_LINK_CUT)
            return;                                         /* the process says more */
        proxy_tell(r, event == PL_LINK_CUT ? PL_RANK_EVENT_CUT : PL_RANK_EVENT_MUTE,
                   text);
        pl_log_line(PL_LOG_WARNING, r->rank, pl_actor_name(r), "%s: %s", r->about, text);
        if (r->end == PROXY_ASKED_TO_END && event == PL_LINK_SILENT) {
            gone_fail(r, text, &err);
            proxy_kill(r, &err);
        }
        return;
    case PL_LINK_BACK:
    case PL_LINK_RECEIVED:
        if (r->end != PROXY_KILLED)                         /* it was woken to die */
            proxy_tell(r,
                       event == PL_LINK_BACK ? PL_RANK_EVENT_BACK : PL_RANK_EVENT_HEARD,
                       text);
        return;
    case PL_LINK_LEFT:
    case PL_LINK_GONE: proxy_left(r, text); return;
    default: return;
    }
}

/* ---- The process ---- */

static int proxy_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    static const pl_rank_receiver_ops_t ops = {.on_message = proxy_message,
                                               .on_event = proxy_event};
    proxy_t *r = self;
    char bootstrap[PL_BOOTSTRAP_TEXT];
    (void)call;
    sscanf(body->start.options, "%d", &r->rank);
    r->links = pl_object_ref(body->start.context);
    r->is_foreign = !r->links->folder[0];
    r->pool = r->links->pool;
    pl_rank_links_attach(r->links, r->rank, &ops, r, &r->outbox);
    if (!r->is_foreign) {
        pl_rank_links_bootstrap(r->links, r->rank, bootstrap);
        const pl_process_spec_t spec = {.environment = (const char *[]){bootstrap, NULL},
                                        .on_line = process_line,
                                        .on_death = proxy_died,
                                        .user = r};
        r->process = r->pool ? pl_worker_pool_acquire(r->pool, r->rank, &spec, err)
                             : pl_supervisor_start(&spec, pl_actor_loop(r)->base, err);
        if (!r->process)
            return pl_error_prefix(err, "rank %d", r->rank);
    }
    pl_actor_ready(self);
    return PL_OK;
}

static void proxy_release(void *self)
{
    proxy_t *r = self;
    if (r->pool)
        pl_worker_pool_return(r->pool, r->rank, r);
    else
        pl_supervisor_free(r->process);
    if (r->links)
        pl_rank_links_detach(r->links, r->rank, r);
    pl_outbox_release(&r->outbox);
    pl_free(r->output);
    for (proxy_call_t *forwarded; (forwarded = r->forwarded);) {
        r->forwarded = forwarded->next;
        pl_free(forwarded);
    }
    pl_object_unref(r->links);
}

static const pl_handler_t proxy_handlers[] = {
    PL_ON(start, proxy_start), PL_ON(run, proxy_run),         PL_ON(join, proxy_forward),
    PL_ON(stop, proxy_stop),   PL_ON(control, proxy_forward), PL_ON(watch, proxy_watch),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_proxy = {
    .name = "proxy",
    .help = "one rank's actors, in another process",
    .size = sizeof(proxy_t),
    .level = PL_LEVEL_WORKER,
    .handlers = proxy_handlers,
    .on_cancel = proxy_cancel,
    .release = proxy_release,
};

uint64_t pl_proxy_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life,
                        pl_error_t *err)
{
    char number[16];
    snprintf(number, sizeof number, "%d", rank->number);
    rank->stuck_text = ranks->links->folder[0] ? "; its process is killed"
                                          : "; it is disconnected";
    rank->can_end = true;
    const pl_start_t start = {.options = number, .context = &ranks->links->object};
    return pl_spawn(ranks, &pl_proxy, PL_SAME_THREAD, &start, life, &rank->worker, err);
}
