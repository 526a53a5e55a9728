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

#include <inttypes.h>
#include <stdio.h>

#include "actors/launchers/job_serialization.h"
#include "actors/launchers/proxy_internal.h"
#include "actors/launchers/bootstrap.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/socket.h"
#include "base/timeouts.h"

/* ---- Forwarded calls ---- */

struct forwarded {
    forwarded_t *next;
    uint64_t number;
    pl_call_t *call;
};

static int call_forward(proxy_t *r, pl_call_t *call, pl_message_t message,
                        const pl_body_t *body, pl_error_t *err)
{
    forwarded_t *forwarded = pl_alloc(sizeof *forwarded);
    if (!forwarded)
        return pl_no_memory(err);
    *forwarded = (forwarded_t){r->forwarded, ++r->forwarded_count, call};
    const int code = pl_outbox_post(&r->outbox, PL_KIND_CALL, message, forwarded->number,
                                    body, err);
    if (code == PL_OK)
        r->forwarded = forwarded;
    else
        pl_free(forwarded);
    return code;
}

/* An answer has arrived: it ends the call that has this number, if there is one. */
static void forwarded_end(proxy_t *r, const pl_envelope_t *e, const pl_body_t *body,
                          const pl_error_t *error)
{
    forwarded_t **at = &r->forwarded, *forwarded;
    while (*at && (*at)->number != e->call)
        at = &(*at)->next;
    forwarded = *at;
    if (!forwarded)
        return;
    *at = forwarded->next;
    if (e->kind == PL_KIND_ERROR)
        pl_call_fail(forwarded->call, error);
    else
        pl_reply(forwarded->call, body);
    pl_free(forwarded);
}

/* ---- what the process says ---- */

static void process_line(void *self, const char *line)
{
    proxy_t *r = self;
    const pl_log_level_t level = r->end == PROXY_KILLED ? PL_LOG_DEBUG : PL_LOG_WARNING;
    pl_log_line(level, (int)r->rank, "stderr", "%s", line);
    pl_rank_log_append(&r->log, line);
}

/* ---- the watch call ---- */

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

/* ---- the stream ---- */

/* The stream may start at any time; each message of the rank is a moment to look. */
static void stream_tell(proxy_t *r)
{
    pl_bring_stream_t msg;
    if (!r->is_streamed && pl_rank_links_stream(r->links, r->is_foreign || r->pool, &msg))
        r->is_streamed = pl_outbox_post(&r->outbox, PL_KIND_CALL, PL_MESSAGE_bring_stream,
                                        0, &msg, NULL)
                         == PL_OK;
}

/* ---- what comes ---- */

static void run_fail(proxy_t *r, const pl_error_t *error)
{
    pl_call_t *run = r->run;
    r->run = NULL;
    if (run)
        pl_call_fail(run, error);
}

static void run_replied(proxy_t *r, uint64_t transfer)
{
    pl_error_t err = {0};
    pl_blob_t *blob = pl_bulk_take(pl_rank_links_bulk(r->links), (int)r->rank, transfer);
    if (!blob)
        pl_fail(&err, PL_EPROTOCOL, "rank %d has sent no outcome %" PRIu64, (int)r->rank,
                transfer);
    pl_outcome_t *outcome = blob ? pl_outcome_unpack(blob, &err) : NULL;
    pl_call_t *run = r->run;
    pl_object_unref(blob);
    if (!outcome) {
        run_fail(r, &err);
    } else if (run) {
        r->run = NULL;
        pl_reply_run(run, &(pl_run_reply_t){.outcome = &outcome->object});
    }
    pl_object_unref(outcome);
}

static void report_came(proxy_t *r, const pl_run_progress_t *report)
{
    r->received_at = pl_now();
    if (report->global_step > r->global_step)
        r->global_step = report->global_step;
    if (*report->run_dir)
        pl_rank_links_tell_run_dir(r->links, report->run_dir);
    pl_run_progress_t forwarded = *report;
    forwarded.peers.count = 0;                    /* addresses of its process mean nothing
                                                     here */
    if (r->run)
        pl_progress_run(r->run, &forwarded);
}

static void log_came(const proxy_t *r, const pl_serve_progress_t *line)
{
    if (line->level <= PL_LOG_DEBUG)
        pl_log_line((pl_log_level_t)line->level, (int)r->rank, line->actor, "%s",
                    line->text);
}

static void answer_came(proxy_t *r, const pl_envelope_t *e, const pl_body_t *body,
                        const pl_error_t *error)
{
    const bool failed = e->kind == PL_KIND_ERROR;
    switch (e->message) {
    case PL_MESSAGE_run: report_came(r, &body->run_progress); return;
    case PL_MESSAGE_serve:
        if (failed && error->code == PL_ESTUCK)
            proxy_tell(r, PL_RANK_EVENT_SILENT, error->text);
        if (failed)
            run_fail(r, error);
        else if (e->kind == PL_KIND_REPLY)
            run_replied(r, body->serve_reply.outcome);
        else
            log_came(r, &body->serve_progress);
        return;
    case PL_MESSAGE_start:
        if (failed && r->error.code == PL_OK)
            r->error = *error;
        if (r->life == PROXY_LIVES && r->end != PROXY_KILLED
            && (r->is_foreign || r->pool))
            r->life = PROXY_FREE;
        proxy_finish(r);
        return;
    default: forwarded_end(r, e, body, error);
    }
}

/* Of what a rank may say, and nothing else. */
static bool is_answer(const pl_envelope_t *e)
{
    switch (e->message) {
    case PL_MESSAGE_run: return e->kind == PL_KIND_PROGRESS;
    case PL_MESSAGE_serve:
        return e->kind == PL_KIND_PROGRESS || e->kind == PL_KIND_REPLY
               || e->kind == PL_KIND_ERROR;
    case PL_MESSAGE_start:
    case PL_MESSAGE_join:
    case PL_MESSAGE_control:
    case PL_MESSAGE_stop: return e->kind == PL_KIND_REPLY || e->kind == PL_KIND_ERROR;
    default: return false;
    }
}

static void proxy_message(void *self, pl_frame_t *message)
{
    proxy_t *r = self;
    pl_envelope_t e;
    pl_body_t body;
    pl_error_t error = {0}, err = {0};
    const pl_bytes_t bytes = pl_frame_bytes(message);
    if (r->life == PROXY_DONE)
        return;
    stream_tell(r);
    if (pl_envelope_read(bytes, &e, &err) != PL_OK
        || pl_frame_decode_foreign(bytes, &body, &error, &err) != PL_OK || !is_answer(&e))
        pl_log_line(PL_LOG_WARNING, (int)r->rank, pl_actor_name(r),
                    "dropped an invalid message from the rank's process: %s",
                    err.code ? err.text : "it answers no call to a rank");
    else
        answer_came(r, &e, &body, &error);
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
        pl_outbox_flush(&r->outbox);
        return;
    case PL_LINK_WRITABLE: pl_outbox_flush(&r->outbox); return;
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
        if (r->end == PROXY_ENDS && event == PL_LINK_SILENT)
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

/* ---- the run ---- */

static int control_pass(void *self, pl_call_t *call, const pl_control_t *what,
                        pl_error_t *err)
{
    proxy_t *r = self;
    const pl_body_t body = {.control = *what};
    return call_forward(r, call, PL_MESSAGE_control, &body, err);
}

static int proxy_control(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    proxy_t *r = self;
    return r->job == PROXY_SERVED ? control_pass(r, call, &body->control, err)
                                  : pl_held_add(&r->held, call, &body->control, err);
}

/* The rank has the job: it may be told to begin. */
static void job_sent(void *self, const pl_error_t *error)
{
    proxy_t *r = self;
    pl_error_t err = {0};
    if (error || r->job == PROXY_SERVED || !r->run
        || r->end != PROXY_STAYS)                  /* a lost rank is reported elsewhere */
        return;
    r->job = PROXY_SERVED;
    const pl_serve_t msg = {.job = 1};
    const pl_stop_t stop = {.reason = r->stop_reason};
    if (pl_outbox_post(&r->outbox, PL_KIND_CALL, PL_MESSAGE_serve, 0, &msg, &err) != PL_OK
        || (*r->stop_reason
            && pl_outbox_post(&r->outbox, PL_KIND_CALL, PL_MESSAGE_stop, 0, &stop, &err)
                   != PL_OK))
        run_fail(r, &err);
    pl_held_pass(&r->held, r, control_pass);
}

/* The rank says later itself that it is alive; it has a bound of its own to join. */
static void proxy_beat(void *self)
{
    proxy_t *r = self;
    if (!r->run || r->job == PROXY_SERVED)
        return;
    pl_progress_run(r->run,
                    &(pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE, .metrics = ""});
    pl_after(r, PL_STEPS_BEAT_MS, proxy_beat, NULL);
}

static int proxy_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    proxy_t *r = self;
    if (r->job != PROXY_UNASKED)
        return pl_fail(err, PL_ESTATE, "a worker runs once");
    pl_blob_t *blob = pl_job_pack((const pl_job_t *)body->run.job, err);
    uint64_t transfer =
        blob ? pl_bulk_send(pl_rank_links_bulk(r->links), (int)r->rank, blob, err) : 0;
    pl_object_unref(blob);
    if (!transfer)
        return err->code;
    r->job = PROXY_ASKED;
    r->run = call;
    proxy_beat(r);
    return PL_OK;
}

static int proxy_join(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    proxy_t *r = self;
    return call_forward(r, call, PL_MESSAGE_join, body, err);
}

static int proxy_stop(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    proxy_t *r = self;
    const bool is_first = !r->was_stopped;
    r->was_stopped = true;
    if (r->job == PROXY_SERVED && is_first)
        return call_forward(r, call, PL_MESSAGE_stop, body, err);
    if (r->job != PROXY_SERVED)
        snprintf(r->stop_reason, sizeof r->stop_reason, "%s", body->stop.reason);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

/* ---- the process ---- */

static int process_start(proxy_t *r, pl_error_t *err)
{
    char bootstrap[PL_BOOTSTRAP_TEXT];
    pl_rank_links_bootstrap(r->links, (int)r->rank, bootstrap);
    const pl_process_spec_t spec = {.environment = (const char *[]){bootstrap, NULL},
                                    .on_line = process_line,
                                    .on_death = proxy_died,
                                    .user = r};
    r->process = r->pool ? pl_worker_pool_acquire(r->pool, (int)r->rank, &spec, err)
                         : pl_supervisor_start(&spec, pl_actor_loop(r)->base, err);
    return r->process ? PL_OK : err->code;
}

static int proxy_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    proxy_t *r = self;
    (void)call;
    r->links = pl_object_ref(body->start.context);
    r->pool = pl_rank_links_worker_pool(r->links);
    r->outbox = pl_rank_links_outbox(r->links, (int)r->rank);
    r->log = (pl_rank_log_t){.self = r, .links = r->links, .rank = (int)r->rank};
    static const pl_wire_ops_t ops = {.on_message = proxy_message,
                                      .on_event = proxy_event,
                                      .on_sent = job_sent};
    pl_rank_links_attach(r->links, (int)r->rank, &ops, r);
    int code = r->is_foreign ? PL_OK : process_start(r, err);
    if (code != PL_OK)
        return pl_error_prefix(err, "rank %d", (int)r->rank);
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
    pl_rank_log_release(&r->log);
    for (forwarded_t *forwarded; (forwarded = r->forwarded);) {
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
    PL_ON(start, proxy_start), PL_ON(run, proxy_run),         PL_ON(join, proxy_join),
    PL_ON(stop, proxy_stop),   PL_ON(control, proxy_control), PL_ON(watch, proxy_watch),
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

uint64_t pl_proxy_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_rank_links_t *links,
                        bool is_foreign, pl_how_t life, pl_error_t *err)
{
    char options[64];
    snprintf(options, sizeof options, "{\"rank\": %d, \"is_foreign\": %s}", rank->number,
             is_foreign ? "true" : "false");
    rank->stuck = is_foreign ? "; it is disconnected" : "; its process is killed";
    rank->can_end = true;
    const pl_start_t start = {.options = options, .context = (pl_object_t *)links};
    return pl_spawn(ranks, &pl_proxy, PL_SAME_THREAD, &start, life, &rank->worker, err);
}
