/* rank_client.c - a rank's end of the links with its launcher
 *
 * A result goes when all its bytes have come; the links stay until the other side has
 * everything that was said.  If the processes requested the run by themselves, each
 * receives the result as the reply of `serve`. */
#include "actors/launchers/rank_client.h"

#include <stdio.h>

#include "actors/launchers/job_serialization.h"
#include "actors/launchers/rendezvous.h"
#include "actors/result.h"
#include "actors/worker.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/monitor.h"

enum { ENDPOINT = 300 };

/* ---- answers go up ---- */

static void client_fail(pl_rank_client_t *m, pl_message_t message, uint64_t number,
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
        client_fail(m, PL_MESSAGE_start, 0, error);
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

static void outcome_send(pl_rank_client_t *m, const pl_outcome_t *outcome)
{
    pl_error_t err = {0};
    pl_blob_t *blob = pl_outcome_pack(outcome, &err);
    if (blob)
        m->outcome = pl_bulk_send(m->bulk, PL_LINK_HOST, blob, &err);
    pl_object_unref(blob);
    if (!m->outcome)
        client_fail(m, PL_MESSAGE_serve, 0, &err);
}

static void outcome_sent(void *user, int peer, uint64_t transfer, const pl_error_t *error)
{
    pl_rank_client_t *m = user;
    (void)peer;
    if (transfer != m->outcome)
        return;
    if (error)
        client_fail(m, PL_MESSAGE_serve, 0, error);
    else
        pl_outbox_post(&m->outbox, PL_KIND_REPLY, PL_MESSAGE_serve, 0,
                       &(pl_serve_reply_t){.outcome = transfer}, NULL);
}

static void progress_note(pl_rank_client_t *m, const pl_run_progress_t *report)
{
    if (report->global_step > m->global_step)
        m->global_step = report->global_step;
    m->begun |= pl_report_has_begun(report);
}

static void run_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    pl_rank_client_t *m = answer->context;
    switch (answer->kind) {
    case PL_ANSWER_PROGRESS:
        progress_note(m, &answer->body->run_progress);
        pl_outbox_post(&m->outbox, PL_KIND_PROGRESS, PL_MESSAGE_run, 0,
                       &answer->body->run_progress, NULL);
        return;
    case PL_ANSWER_ERROR: client_fail(m, PL_MESSAGE_serve, 0, answer->error); return;
    case PL_ANSWER_REPLY:
        outcome_send(m, (const pl_outcome_t *)answer->body->run_reply.outcome);
        return;
    case PL_ANSWER_LATE: return;
    }
}

void pl_rank_client_request_stop(pl_rank_client_t *m, const char *why)
{
    pl_outbox_post(&m->outbox, PL_KIND_PROGRESS, PL_MESSAGE_run, 0,
                   &(pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE,
                                        .metrics = "",
                                        .stop_request = why},
                   NULL);
}

/* ---- calls come down ---- */

static pl_job_t *job_take(pl_rank_client_t *m, uint64_t transfer, pl_error_t *err)
{
    pl_blob_t *blob = m->bulk ? pl_bulk_take(m->bulk, PL_LINK_HOST, transfer) : NULL;
    if (!blob || m->life || m->has_ended) {
        pl_object_unref(blob);
        pl_fail(err, PL_EPROTOCOL, "the message has no job, or a job already runs");
        return NULL;
    }
    pl_job_t *job = pl_job_unpack(blob, err);
    pl_object_unref(blob);
    if (!job || !m->ops->on_job || m->ops->on_job(m->self, job, err) == PL_OK)
        return job;
    pl_object_unref(job);
    return NULL;
}

static int job_begin(pl_rank_client_t *m, uint64_t transfer, pl_error_t *err)
{
    pl_job_t *job = job_take(m, transfer, err);
    const pl_start_t start = {.options = "",
                              .ranks = (uint32_t)m->spec.sharers,
                              .local_rank = (uint32_t)m->spec.local_rank};
    const pl_how_t life = {.on_answer = worker_ended, .context = m},
                   how = {.on_answer = run_answered, .context = m};
    if (!job)
        return err->code;
    m->life = pl_spawn(m->self, &pl_worker, pl_as_rank(m->spec.rank), &start, life,
                       &m->worker, err);
    bool begun = m->life
                 && pl_call_run(m->self, m->worker, &(pl_run_t){.job = &job->object}, how,
                                err);
    pl_object_unref(job);
    return begun ? PL_OK : err->code;
}

/* A call that was forwarded; its number there is the context here. */
typedef struct asked {
    pl_rank_client_t *client;
    uint64_t number;
    pl_message_t message;
} asked_t;

static void forwarded_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    asked_t *asked = answer->context;
    pl_rank_client_t *m = asked->client;
    if (answer->kind == PL_ANSWER_ERROR)
        client_fail(m, asked->message, asked->number, answer->error);
    else if (answer->kind == PL_ANSWER_REPLY)
        pl_outbox_post(&m->outbox, PL_KIND_REPLY, asked->message, asked->number,
                       answer->body, NULL);
    if (answer->kind == PL_ANSWER_ERROR || answer->kind == PL_ANSWER_REPLY)
        pl_free(asked);
}

static int pass_on(pl_rank_client_t *m, const pl_envelope_t *envelope,
                   const pl_body_t *body, pl_error_t *err)
{
    asked_t *asked = pl_alloc(sizeof *asked);
    if (!asked)
        return pl_no_memory(err);
    *asked = (asked_t){m, envelope->call, (pl_message_t)envelope->message};
    const pl_how_t how = {.on_answer = forwarded_answered, .context = asked};
    if (pl_call(m->self, m->worker, asked->message, body, how, err))
        return PL_OK;
    pl_free(asked);
    return err->code;
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

static int call_came(pl_rank_client_t *m, const pl_envelope_t *envelope,
                     const pl_body_t *body, pl_error_t *err)
{
    switch (envelope->message) {
    case PL_MESSAGE_serve: return job_begin(m, body->serve.job, err);
    case PL_MESSAGE_bring_stream: stream_begin(m, &body->bring_stream); return PL_OK;
    case PL_MESSAGE_join:
    case PL_MESSAGE_control:
    case PL_MESSAGE_stop: return pass_on(m, envelope, body, err);
    default: return pl_fail(err, PL_EPROTOCOL, "a rank does not accept this call");
    }
}

void pl_rank_client_end(pl_rank_client_t *m)
{
    if (m->life)
        pl_cancel(m->self, m->life);
    else
        client_ended(m, NULL);
}

/* ---- the run is over ---- */

static void result_receive(pl_rank_client_t *m, uint64_t transfer)
{
    pl_error_t err = {0};
    pl_blob_t *blob = m->bulk ? pl_bulk_take(m->bulk, PL_LINK_HOST, transfer) : NULL;
    if (!blob)
        pl_fail(&err, PL_EPROTOCOL, "rank 0 has sent no outcome");
    pl_outcome_t *outcome = blob ? pl_outcome_unpack(blob, &err) : NULL;
    pl_object_unref(blob);
    m->ops->on_result(m->self, outcome, outcome ? NULL : &err);
    pl_object_unref(outcome);
}

static void message_came(void *user, int peer, pl_frame_t *message)
{
    pl_rank_client_t *m = user;
    pl_envelope_t envelope;
    pl_body_t body;
    pl_error_t error = {0}, err = {0};
    const pl_bytes_t bytes = pl_frame_bytes(message);
    (void)peer;
    if (pl_envelope_read(bytes, &envelope, NULL) != PL_OK
        || pl_frame_decode_foreign(bytes, &body, &error, NULL) != PL_OK)
        return;
    const bool is_serve = envelope.message == PL_MESSAGE_serve && m->ops->on_result;
    if (envelope.kind == PL_KIND_CANCEL && envelope.message == PL_MESSAGE_start)
        pl_rank_client_end(m);
    else if (envelope.kind == PL_KIND_PROGRESS && envelope.message == PL_MESSAGE_run)
        progress_note(m, &body.run_progress);
    else if (envelope.kind == PL_KIND_REPLY && is_serve)
        result_receive(m, body.serve_reply.outcome);
    else if (envelope.kind == PL_KIND_ERROR && is_serve)
        m->ops->on_result(m->self, NULL, &error);
    else if (envelope.kind == PL_KIND_CALL
             && call_came(m, &envelope, &body, &err) != PL_OK)
        client_fail(m, (pl_message_t)envelope.message, envelope.call, &err);
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

void pl_rank_client_leave(pl_rank_client_t *m)
{
    if (m->leaves)
        return;
    m->leaves = true;
    pl_link_leave(m->link, NULL);
    if (m->bulk)
        pl_link_leave(pl_bulk_link(m->bulk), NULL);
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
                                 .on_sent = outcome_sent,
                                 .on_event = event_came,
                                 .user = m};
    m->bulk = pl_bulk_connect(&bulk, pl_actor_loop(m->self), err);
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
    pl_outbox_flush(&m->outbox);
}

static void event_came(void *user, int peer, pl_link_event_t event, const char *text)
{
    pl_rank_client_t *m = user;
    (void)peer;
    if (event == PL_LINK_GONE)
        client_lost(m, text);
    if (event == PL_LINK_WRITABLE)
        pl_outbox_flush(&m->outbox);
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
                                  .watches = spec->times.lease > 0,
                                  .times = spec->times,
                                  .on_message = message_came,
                                  .on_event = calls_event_came,
                                  .user = m};
    *m = (pl_rank_client_t){.self = self, .ops = ops, .spec = *spec};
    m->link = pl_link_connect(&calls, pl_actor_loop(self), err);
    if (!m->link)
        return err->code;
    m->outbox = (pl_outbox_t){m->link, PL_LINK_HOST, spec->run, spec->incarnation, NULL};
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
