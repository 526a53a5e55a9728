/* proxy.c - the worker of a rank that runs in another process
 *
 * The proxy owns the process and forwards over the link whatever call it receives;
 * what comes back over the link answers those calls.  So nothing above knows where a
 * rank runs. proxy_end.c says when and how the rank has ended.
 *
 * A rank that another program has started has no process here.  It ends when its worker
 * has ended, or when its link is silent for too long; instead of a kill it is
 * disconnected.  A proxy whose process belongs to a worker pool ends with its worker, or
 * with the process. */
#include "actors/launchers/proxy.h"

#include <stdio.h>
#include <string.h>

#include "actors/launchers/bootstrap.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/timeouts.h"
#include "transport/socket.h"

/* ---- Calls go to the rank ---- */

struct proxy_call {
    proxy_call_t *next;
    uint64_t number;
    pl_message_t message;
    pl_call_t *call;
};

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
            && pl_link_state(pl_bulk_link(r->links->bulk), (int)r->rank)
                   != PL_LINK_AWAITED))
        return;
    pl_progress_run(r->run,
                    &(pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE, .metrics = ""});
    pl_after(r, PL_STEPS_BEAT_MS, proxy_beat, NULL);
}

static int proxy_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    proxy_t *r = self;
    if (r->was_run)
        return pl_fail(err, PL_ESTATE, "a worker runs once");
    if (proxy_forward(r, call, body, err) != PL_OK)
        return err->code;
    r->was_run = true;
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

/* ---- The output of the process: a file in the run directory ----
 *
 * Output waits until there is a run directory, and while the file is being written; only
 * a limited amount. */

enum { LOG_MAX = 64 << 10 };

static void log_written(void *self, const pl_answer_t *answer)
{
    proxy_t *r = self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_log_line(PL_LOG_WARNING, (int)r->rank, pl_actor_name(r), "%s",
                    answer->error->text);
    r->log.is_writing = false;
    proxy_log_flush(r);
}

void proxy_log_flush(proxy_t *r)
{
    const char *run_dir = pl_rank_links_run_dir(r->links);
    if (r->log.is_writing || !r->log.size || !*run_dir)
        return;
    char *path = pl_text("%s/rank-%d.stderr", run_dir, (int)r->rank);
    const pl_append_log_t msg = {.path = path, .text = {r->log.text, r->log.size}};
    r->log.is_writing = path
                        && pl_call_append_log(r, r->links->log_writer, &msg,
                                              (pl_how_t){.on_answer = log_written}, NULL);
    pl_text_free(path);
    if (r->log.is_writing)
        r->log.size = 0;
}

static void process_line(void *self, const char *line)
{
    proxy_t *r = self;
    const pl_log_level_t level = r->end == PROXY_KILLED ? PL_LOG_DEBUG : PL_LOG_WARNING;
    const size_t length = strlen(line), size = r->log.size + length + 1;
    char *longer = size <= LOG_MAX ? pl_resize(r->log.text, size) : NULL;
    pl_log_line(level, (int)r->rank, "stderr", "%s", line);
    if (longer) {
        r->log.text = longer;
        memcpy(longer + r->log.size, line, length);
        longer[size - 1] = '\n';
        r->log.size = size;
    }
    proxy_log_flush(r);
}

/* ---- The watch call, the stream ---- */

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

/* The stream may start at any time, so this is called with each message of the rank. */
static void stream_tell(proxy_t *r)
{
    pl_bring_stream_t msg;
    if (!r->is_streamed && pl_rank_links_stream(r->links, r->is_foreign || r->pool, &msg))
        r->is_streamed = pl_outbox_post(&r->outbox, PL_KIND_CALL, PL_MESSAGE_bring_stream,
                                        0, &msg, NULL)
                         == PL_OK;
}

/* ---- Answers come from the rank ---- */

/* An answer to no call that waits for one is dropped. */
static void answer_came(proxy_t *r, const pl_incoming_t *m)
{
    proxy_call_t **at = &r->forwarded, *forwarded;
    while (
        *at
        && ((*at)->number != m->envelope.call || (*at)->message != m->envelope.message))
        at = &(*at)->next;
    forwarded = *at;
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
    stream_tell(r);
    const int code = pl_incoming_read(&m, &r->outbox, pl_frame_bytes(frame), &err);
    const pl_follow_log_progress_t *line = &m.body.follow_log_progress;
    const pl_run_progress_t *report = &m.body.run_progress;
    if (code != PL_OK) {
        pl_log_line(PL_LOG_WARNING, (int)r->rank, pl_actor_name(r),
                    "dropped an invalid message from the rank's process: %s", err.text);
    } else if (m.envelope.message == PL_MESSAGE_follow_log) {
        if (line->level <= PL_LOG_DEBUG)
            pl_log_line((pl_log_level_t)line->level, (int)r->rank, line->actor, "%s",
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
            if (*report->run_dir)
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
        stream_tell(r);
        return;
    case PL_LINK_MISSING:
        pl_fail(&err, PL_ETIMEOUT, "%s", text);
        proxy_kill(r, &err);
        return;
    case PL_LINK_SILENT:
    case PL_LINK_CUT:
        if (r->is_foreign || event == PL_LINK_SILENT)
            proxy_tell(r, event == PL_LINK_CUT ? PL_RANK_EVENT_CUT : PL_RANK_EVENT_MUTE,
                       text);
        if (r->is_foreign || event == PL_LINK_SILENT)
            pl_log_line(PL_LOG_WARNING, (int)r->rank, pl_actor_name(r), "%s: %s",
                        r->about, text);
        if (r->end == PROXY_ASKED_TO_END && event == PL_LINK_SILENT)
            proxy_end_silent(r, text);
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
    const int rank = (int)r->rank;
    char bootstrap[PL_BOOTSTRAP_TEXT];
    (void)call;
    r->links = pl_object_ref(body->start.context);
    r->pool = r->links->pool;
    pl_rank_links_attach(r->links, rank, &ops, r, &r->outbox);
    if (!r->is_foreign) {
        pl_rank_links_bootstrap(r->links, rank, bootstrap);
        const pl_process_spec_t spec = {.environment = (const char *[]){bootstrap, NULL},
                                        .on_line = process_line,
                                        .on_death = proxy_died,
                                        .user = r};
        r->process = r->pool ? pl_worker_pool_acquire(r->pool, rank, &spec, err)
                             : pl_supervisor_start(&spec, pl_actor_loop(r)->base, err);
        if (!r->process)
            return pl_error_prefix(err, "rank %d", rank);
    }
    pl_actor_ready(self);
    return PL_OK;
}

static void proxy_release(void *self)
{
    proxy_t *r = self;
    if (r->pool)
        pl_worker_pool_return(r->pool, (int)r->rank, r);
    else
        pl_supervisor_free(r->process);
    if (r->links)
        pl_rank_links_detach(r->links, (int)r->rank, r);
    pl_outbox_release(&r->outbox);
    pl_free(r->log.text);
    for (proxy_call_t *forwarded; (forwarded = r->forwarded);) {
        r->forwarded = forwarded->next;
        pl_free(forwarded);
    }
    pl_object_unref(r->links);
}

static const pl_option_t proxy_options[] = {
    PL_INT(proxy_t, rank, "0", "0..", "rank that the proxy represents"),
    PL_BOOL(proxy_t, is_foreign, "false", "another program has started its process"),
    PL_OPTIONS_END,
};

static const pl_handler_t proxy_handlers[] = {
    PL_ON(start, proxy_start), PL_ON(run, proxy_run),         PL_ON(join, proxy_forward),
    PL_ON(stop, proxy_stop),   PL_ON(control, proxy_forward), PL_ON(watch, proxy_watch),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_proxy = {
    .name = "proxy",
    .help = "one rank's actors, in another process",
    .size = sizeof(proxy_t),
    .options = proxy_options,
    .level = PL_LEVEL_WORKER,
    .handlers = proxy_handlers,
    .on_cancel = proxy_cancel,
    .release = proxy_release,
};

uint64_t pl_proxy_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life,
                        pl_error_t *err)
{
    const bool is_foreign = !ranks->links->folder[0];
    char options[64];
    snprintf(options, sizeof options, "{\"rank\": %d, \"is_foreign\": %s}", rank->number,
             is_foreign ? "true" : "false");
    rank->stuck = is_foreign ? "; it is disconnected" : "; its process is killed";
    rank->can_end = true;
    const pl_start_t start = {.options = options, .context = &ranks->links->object};
    return pl_spawn(ranks, &pl_proxy, PL_SAME_THREAD, &start, life, &rank->worker, err);
}
