/* rank_client.c - a rank's end of the links with its launcher
 *
 * The links stay until the other side has everything that was posted.  If the processes
 * requested the run by themselves, each receives the end of the whole run as the answer
 * to it. */
#include "actors/launchers/rank_client.h"

#include <stdio.h>

#include "actors/launchers/rendezvous.h"
#include "actors/result.h"
#include "actors/worker.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/monitor.h"

enum { ENDPOINT = 300 };

/* ---- Answers go to the launcher ---- */

static void error_post(pl_rank_client_t *m, pl_message_t message, uint64_t number,
                       const pl_error_t *error)
{
    pl_outbox_post(&m->outbox, PL_KIND_ERROR, message, number, error, NULL);
}

static void client_ended(pl_rank_client_t *m, const pl_error_t *error)
{
    if (m->has_ended)
        return;
    m->has_ended = true;
    if (error)
        error_post(m, PL_MESSAGE_start, 0, error);
    else
        pl_outbox_post(&m->outbox, PL_KIND_REPLY, PL_MESSAGE_start, 0,
                       &(pl_start_reply_t){0}, NULL);
    m->ops->on_end(m->self);
}

static void worker_ended(void *self, const pl_answer_t *answer)
{
    (void)self;
    pl_rank_client_t *m = answer->context;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    m->life = 0;
    client_ended(m, answer->kind == PL_ANSWER_ERROR ? answer->error : NULL);
}

static void progress_note(pl_rank_client_t *m, const pl_run_progress_t *report)
{
    if (report->global_step > m->global_step)
        m->global_step = report->global_step;
    m->begun |= pl_report_has_begun(report);
}

/* A call of the launcher, made here. */
typedef struct forwarded {
    pl_rank_client_t *client;
    uint64_t number;                                        /* there */
    pl_message_t message;
} forwarded_t;

static void forwarded_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    forwarded_t *f = answer->context;
    pl_rank_client_t *m = f->client;
    pl_error_t err = {0};
    switch (answer->kind) {
    case PL_ANSWER_LATE: return;
    case PL_ANSWER_PROGRESS:
        if (f->message == PL_MESSAGE_run)
            progress_note(m, &answer->body->run_progress);
        pl_outbox_post(&m->outbox, PL_KIND_PROGRESS, f->message, f->number, answer->body,
                       NULL);
        return;
    case PL_ANSWER_REPLY:
        if (pl_outbox_post(&m->outbox, PL_KIND_REPLY, f->message, f->number, answer->body,
                           &err)
            != PL_OK)
            error_post(m, f->message, f->number, &err);
        break;
    case PL_ANSWER_ERROR: error_post(m, f->message, f->number, answer->error); break;
    }
    pl_free(f);
}

/* ---- Calls come from the launcher ---- */

static int worker_start(pl_rank_client_t *m, pl_job_t *job, pl_error_t *err)
{
    const pl_start_t start = {.options = "",
                              .ranks = (uint32_t)m->spec.sharers,
                              .local_rank = (uint32_t)m->spec.local_rank};
    const pl_how_t life = {.on_answer = worker_ended, .context = m};
    if (m->life || m->has_ended)
        return pl_fail(err, PL_EPROTOCOL, "this rank already runs a job, or has ended");
    if (m->ops->on_job && m->ops->on_job(m->self, job, err) != PL_OK)
        return err->code;
    m->life = pl_spawn(m->self, &pl_worker, pl_as_rank(m->spec.rank), &start, life,
                       &m->worker, err);
    return m->life ? PL_OK : err->code;
}

static void stop_tell(pl_rank_client_t *m)
{
    const pl_run_progress_t report = {.event = PL_RUN_EVENT_ALIVE,
                                      .metrics = "",
                                      .stop_request = m->stop_request};
    if (m->run && *m->stop_request)
        pl_outbox_post(&m->outbox, PL_KIND_PROGRESS, PL_MESSAGE_run, m->run, &report,
                       NULL);
}

void pl_rank_client_request_stop(pl_rank_client_t *m, const char *why)
{
    snprintf(m->stop_request, sizeof m->stop_request, "%s", why);
    stop_tell(m);
}

/* The run starts the worker, which takes all other calls. */
static int call_forward(pl_rank_client_t *m, const pl_incoming_t *in, pl_error_t *err)
{
    const bool is_run = in->envelope.message == PL_MESSAGE_run;
    if (in->error.code != PL_OK) {
        *err = in->error;
        return err->code;
    }
    if (is_run && worker_start(m, (pl_job_t *)in->object, err) != PL_OK)
        return err->code;
    forwarded_t *f = pl_alloc(sizeof *f);
    if (!f)
        return pl_no_memory(err);
    *f = (forwarded_t){m, in->envelope.call, (pl_message_t)in->envelope.message};
    const pl_how_t how = {.on_answer = forwarded_answered, .context = f};
    if (!pl_call(m->self, m->worker, f->message, &in->body, how, err)) {
        pl_free(f);
        return err->code;
    }
    if (is_run) {
        m->run = in->envelope.call;
        stop_tell(m);
    }
    return PL_OK;
}

static void stream_begin(const pl_rank_client_t *m, const pl_bring_stream_t *msg)
{
    char endpoint[ENDPOINT];
    pl_error_t err = {0};
    pl_rendezvous_find(m->spec.calls, msg->endpoint, endpoint, sizeof endpoint);
    const pl_monitor_bring_t how = {.endpoint = endpoint,
                                    .keys = m->spec.keys,
                                    .run = msg->run,
                                    .time = (int64_t)msg->time,
                                    .is_awaited = msg->watched,
                                    .lossless = msg->lossless};
    if (pl_monitor_bring(pl_actor_runtime(m->self), &how, &err) != PL_OK)
        pl_log_line(PL_LOG_WARNING, m->spec.rank, pl_actor_name(m->self),
                    "the stream has no messages of this process: %s", err.text);
}

void pl_rank_client_end(pl_rank_client_t *m)
{
    if (m->life)
        pl_cancel(m->self, m->life);
    else
        client_ended(m, NULL);
}

/* Progress and the end of a run come from the coordinator: they are those of all
 * ranks. */
static void message_came(void *user, int peer, pl_frame_t *frame)
{
    pl_rank_client_t *m = user;
    pl_incoming_t in;
    pl_error_t err = {0};
    (void)peer;
    if (pl_incoming_read(&in, &m->outbox, pl_frame_bytes(frame), &err) != PL_OK) {
        pl_log_line(PL_LOG_WARNING, m->spec.rank, pl_actor_name(m->self),
                    "dropped an invalid message from %s: %s",
                    m->spec.host ? m->spec.host : "the launcher", err.text);
    } else if (in.envelope.kind == PL_KIND_CANCEL) {
        pl_rank_client_end(m);
    } else if (in.envelope.kind == PL_KIND_PROGRESS) {
        progress_note(m, &in.body.run_progress);
    } else if (in.envelope.kind != PL_KIND_CALL) {
        if (in.envelope.message == PL_MESSAGE_run && m->ops->on_result)
            m->ops->on_result(m->self, (pl_outcome_t *)in.object,
                              in.error.code ? &in.error : NULL);
    } else if (in.envelope.message == PL_MESSAGE_bring_stream) {
        stream_begin(m, &in.body.bring_stream);
    } else if (call_forward(m, &in, &err) != PL_OK) {
        error_post(m, (pl_message_t)in.envelope.message, in.envelope.call, &err);
    }
    pl_incoming_release(&in);
}

/* ---- the links ---- */

static bool is_over(pl_link_t *link)
{
    return !link || pl_link_state(link, PL_LINK_HOST) >= PL_LINK_HAS_LEFT;
}

static void both_over(pl_rank_client_t *m)
{
    if (!m->leaves || m->has_left || !is_over(m->link)
        || !is_over(m->bulk ? pl_bulk_link(m->bulk) : NULL))
        return;
    m->has_left = true;
    m->ops->on_left(m->self);
}

/* Once everything is sent, the other side may know that nothing follows. */
static void client_flush(pl_rank_client_t *m)
{
    pl_outbox_flush(&m->outbox);
    if (!m->leaves || m->has_sent_all || m->outbox.first)
        return;
    m->has_sent_all = true;
    pl_link_leave(m->link, NULL);
    if (m->bulk)
        pl_link_leave(pl_bulk_link(m->bulk), NULL);
}

void pl_rank_client_leave(pl_rank_client_t *m)
{
    m->leaves = true;
    client_flush(m);
}

static void object_sent(void *user, int peer, uint64_t transfer, const pl_error_t *error)
{
    pl_rank_client_t *m = user;
    (void)peer;
    pl_outbox_sent(&m->outbox, transfer, error);
    client_flush(m);
}

static void client_lost(pl_rank_client_t *m, const char *why)
{
    if (m->leaves || m->is_lost)
        return;
    m->is_lost = true;
    m->ops->on_lost(m->self, why);
}

static void event_came(void *user, int peer, pl_link_event_t event, const char *text);

static int bulk_connect(pl_rank_client_t *m, const char *endpoint, pl_error_t *err)
{
    const pl_bulk_spec_t bulk = {.link = {.endpoint = endpoint,
                                          .keys = m->spec.keys,
                                          .run = m->spec.run,
                                          .incarnation = m->spec.incarnation,
                                          .world_size = m->spec.world_size,
                                          .rank = m->spec.rank,
                                          .host = m->spec.host,
                                          .times = m->spec.times},
                                 .max = SIZE_MAX / 2,
                                 .on_sent = object_sent,
                                 .on_event = event_came,
                                 .user = m};
    m->outbox.bulk = m->bulk = pl_bulk_connect(&bulk, pl_actor_loop(m->self), err);
    return m->bulk ? PL_OK : err->code;
}

/* Of the link of calls. */
static void client_joined(pl_rank_client_t *m, const char *bulk)
{
    char endpoint[ENDPOINT];
    pl_error_t err = {0};
    m->has_joined = true;
    m->spec.run = m->outbox.run = pl_link_run(m->link);
    if (!m->bulk) {
        pl_rendezvous_find(m->spec.calls, bulk, endpoint, sizeof endpoint);
        if (bulk_connect(m, endpoint, &err) != PL_OK) {
            client_lost(m, err.text);
            return;
        }
    }
    client_flush(m);
}

static void event_came(void *user, int peer, pl_link_event_t event, const char *text)
{
    pl_rank_client_t *m = user;
    (void)peer;
    if (event == PL_LINK_GONE)
        client_lost(m, text);
    if (event == PL_LINK_WRITABLE)
        client_flush(m);
    if (event == PL_LINK_LEFT || event == PL_LINK_GONE)
        both_over(m);
}

static void calls_event_came(void *user, int peer, pl_link_event_t event,
                             const char *text)
{
    const pl_rank_client_t *m = user;
    if (event == PL_LINK_GONE && m->bulk)
        pl_link_died(pl_bulk_link(m->bulk), PL_LINK_HOST);
    if (event == PL_LINK_JOINED)
        client_joined(user, text);
    else
        event_came(user, peer, event, text);
}

/* ---- life ---- */

int pl_rank_client_open(pl_rank_client_t *m, void *self, const pl_rank_client_ops_t *ops,
                        const pl_rank_client_spec_t *spec, pl_error_t *err)
{
    const pl_link_spec_t calls = {.endpoint = spec->calls,
                                  .keys = spec->keys,
                                  .run = spec->run,
                                  .incarnation = spec->incarnation,
                                  .world_size = spec->world_size,
                                  .rank = spec->rank,
                                  .traits = spec->traits,
                                  .host = spec->host,
                                  .watches = spec->times.has_lease,
                                  .times = spec->times,
                                  .on_message = message_came,
                                  .on_event = calls_event_came,
                                  .user = m};
    *m = (pl_rank_client_t){.self = self, .ops = ops, .spec = *spec};
    m->link = pl_link_connect(&calls, pl_actor_loop(self), err);
    if (!m->link)
        return err->code;
    m->outbox = (pl_outbox_t){.link = m->link,
                              .peer = PL_LINK_HOST,
                              .run = spec->run,
                              .incarnation = spec->incarnation};
    return spec->bulk ? bulk_connect(m, spec->bulk, err) : PL_OK;
}

void pl_rank_client_release(pl_rank_client_t *m)
{
    pl_bulk_free(m->bulk);
    pl_link_free(m->link);
    pl_outbox_release(&m->outbox);
    m->bulk = NULL;
    m->link = NULL;
}
