/* rank_client.c - a rank's side of the links with its launcher
 *
 * The links stay until the other side has everything that was posted.
 *
 * A participant is such a side in a process that requested the run by itself.  One of
 * these processes coordinates; a participant connects to it, gets its work by message,
 * and receives the end of the whole run as the answer to its own. */
#include "actors/launchers/rank_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/launchers/bootstrap.h"
#include "actors/result.h"
#include "actors/worker.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/timeouts.h"
#include "runtime/monitor.h"

enum { ENDPOINT = 300 };

/* ---- Answers go to the launcher ---- */

static void error_post(pl_rank_client_t *m, pl_message_t message, uint64_t number,
                       const pl_error_t *error)
{
    pl_outbox_post(&m->outbox, PL_KIND_ERROR, message, number, error, NULL);
}

/* error  [NULL: the worker has ended in order, or there was none] */
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

/* A call of the launcher, made here; belongs to that call. */
typedef struct client_call {
    pl_rank_client_t *client;
    uint64_t number;                                        /* there */
    pl_message_t message;
} client_call_t;

static void forwarded_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    client_call_t *f = answer->context;
    pl_rank_client_t *m = f->client;
    pl_error_t err = {0};
    switch (answer->kind) {
    case PL_ANSWER_LATE: break;
    case PL_ANSWER_PROGRESS:
        if (f->message == PL_MESSAGE_run)
            progress_note(m, &answer->body->run_progress);
        if (f->message == PL_MESSAGE_run && m->ops->on_ready
            && answer->body->run_progress.event == PL_RUN_EVENT_READY)
            m->ops->on_ready(m->self, &answer->body->run_progress);
        pl_outbox_post(&m->outbox, PL_KIND_PROGRESS, f->message, f->number, answer->body,
                       NULL);
        break;
    case PL_ANSWER_REPLY:
        if (pl_outbox_post(&m->outbox, PL_KIND_REPLY, f->message, f->number, answer->body,
                           &err)
            != PL_OK)
            error_post(m, f->message, f->number, &err);
        break;
    case PL_ANSWER_ERROR: error_post(m, f->message, f->number, answer->error); break;
    }
}

/* ---- Calls come from the launcher ---- */

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
    const pl_start_t start = {.options = "",
                              .ranks = (uint32_t)m->spec.sharers,
                              .local_rank = (uint32_t)m->spec.local_rank};
    const pl_how_t life = {.on_answer = worker_ended, .context = m};
    if (in->error.code != PL_OK) {
        *err = in->error;
        return err->code;
    }
    if (is_run && (m->life || m->has_ended))
        return pl_fail(err, PL_EPROTOCOL, "this rank already runs a job, or has ended");
    if (is_run && m->spec.on_job
        && m->spec.on_job(m->self, (pl_job_t *)in->object, err) != PL_OK)
        return err->code;
    if (is_run
        && !(m->life = pl_spawn(m->self, &pl_worker, pl_as_rank(m->spec.rank), &start,
                                life, &m->worker, err)))
        return err->code;
    client_call_t *f = pl_alloc(sizeof *f);
    if (!f)
        return pl_no_memory(err);
    *f = (client_call_t){m, in->envelope.call, (pl_message_t)in->envelope.message};
    const pl_how_t how = {.on_answer = forwarded_answered, .context = f};
    const uint64_t call = pl_call(m->self, m->worker, f->message, &in->body, how, err);
    if (!call) {
        pl_free(f);
        return err->code;
    }
    pl_give_context(m->self, call);
    if (is_run) {
        m->run = in->envelope.call;
        stop_tell(m);
    }
    return PL_OK;
}

/* An address of the other side, on the host that the link has found: no name server is
 * asked again, which might not answer. */
static void place_find(const pl_rank_client_t *m, const char *place, char at[ENDPOINT])
{
    char calls[ENDPOINT];
    const bool is_known = pl_link_endpoint(m->link, calls, sizeof calls, NULL) == PL_OK;
    pl_rendezvous_find(is_known ? calls : m->spec.calls, place, at, ENDPOINT);
}

static void stream_begin(const pl_rank_client_t *m, const pl_bring_stream_t *msg)
{
    char endpoint[ENDPOINT];
    pl_error_t err = {0};
    place_find(m, msg->endpoint, endpoint);
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

/* ---- The links ---- */

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
    m->outbox.bulk = m->bulk = pl_bulk_open(&bulk, false, pl_actor_loop(m->self), err);
    return m->bulk ? PL_OK : err->code;
}

static void event_came(void *user, int peer, pl_link_event_t event, const char *text)
{
    pl_rank_client_t *m = user;
    (void)peer;
    if (event == PL_LINK_GONE)
        client_lost(m, text);
    if (event == PL_LINK_WRITABLE)
        client_flush(m);
    if ((event != PL_LINK_LEFT && event != PL_LINK_GONE) || !m->leaves || m->has_left
        || pl_link_state(m->link, PL_LINK_HOST) < PL_LINK_HAS_LEFT
        || (m->bulk
            && pl_link_state(pl_bulk_link(m->bulk), PL_LINK_HOST) < PL_LINK_HAS_LEFT))
        return;
    m->has_left = true;
    m->ops->on_left(m->self);
}

static void calls_event_came(void *user, int peer, pl_link_event_t event,
                             const char *text)
{
    pl_rank_client_t *m = user;
    char endpoint[ENDPOINT];
    pl_error_t err = {0};
    if (event == PL_LINK_GONE && m->bulk)
        pl_link_died(pl_bulk_link(m->bulk), PL_LINK_HOST);
    if (event != PL_LINK_JOINED) {
        event_came(user, peer, event, text);
        return;
    }
    m->has_joined = true;
    m->spec.run = m->outbox.run = pl_link_run(m->link);
    place_find(m, text, endpoint);
    if (!m->bulk && bulk_connect(m, endpoint, &err) != PL_OK)
        client_lost(m, err.text);
    else
        client_flush(m);
}

/* ---- Life ---- */

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

/* ---- Participants: ranks whose process requested the run by itself ---- */

enum { AGAIN_MS = 100 };

static void participant_answer(void *self)
{
    pl_participant_t *p = self;
    pl_call_t *run = p->run;
    p->run = NULL;
    if (!run)
        return;
    if (p->outcome) {
        pl_reply_run(run, &(pl_run_reply_t){.outcome = &p->outcome->object});
        return;
    }
    pl_progress_run(run, &(pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE,
                                              .metrics = "",
                                              .global_step = p->client.global_step,
                                              .batch = p->client.begun});
    pl_call_fail(run, &p->error);
}

static void participant_result(void *self, pl_outcome_t *outcome, const pl_error_t *error)
{
    pl_participant_t *p = self;
    if (p->has_result || p->is_lost)
        return;
    p->has_result = true;
    p->outcome = pl_object_ref(outcome);
    if (error)
        p->error = *error;
    if (pl_after(p, PL_LEAVE_MS, participant_answer, NULL) != PL_OK)
        participant_answer(p);
    pl_rank_client_leave(&p->client);
}

/* The batches of a manual loop come from this process. */
static void participant_ready(void *self, const pl_run_progress_t *report)
{
    const pl_participant_t *p = self;
    if (p->run)
        pl_progress_run(p->run, report);
}

/* The worker that was ended because the coordinator was lost. */
static void participant_ended(void *self)
{
    if (((pl_participant_t *)self)->is_lost)
        participant_answer(self);
}

void pl_participant_lose(pl_participant_t *p, pl_code_t code, const char *why)
{
    char when[48] = "";
    p->is_lost = true;
    if (p->client.global_step && !strstr(why, "after step"))
        snprintf(when, sizeof when, ", after step %" PRIu64, p->client.global_step);
    pl_fail(&p->error, code, "%s%s", why, when);
    snprintf(p->error.where, sizeof p->error.where, "rank %d", p->spec.rank);
    if (p->client.has_ended)
        participant_answer(p);
    else
        pl_rank_client_end(&p->client);
}

static int participant_connect(pl_participant_t *p, pl_error_t *err);

static void participant_again(void *self)
{
    pl_participant_t *p = self;
    pl_error_t err = {0};
    if (p->is_lost)
        return;
    pl_rank_client_release(&p->client);
    if (participant_connect(p, &err) == PL_OK)
        return;
    p->is_lost = true;
    p->error = err;
    participant_answer(p);
}

/* The coordinator may not have ended its run before this one yet: then this process is
 * ahead, and connects again. */
static void participant_gone(void *self, const char *why)
{
    pl_participant_t *p = self;
    const bool is_ahead = p->spec.incarnation > 1 && !p->client.has_joined
                          && pl_now() < p->until;
    if (!p->has_result && !p->is_lost
        && !(is_ahead && pl_after(p, AGAIN_MS, participant_again, NULL) == PL_OK))
        pl_participant_lose(p, PL_EPEER, why);
}

static int participant_connect(pl_participant_t *p, pl_error_t *err)
{
    static const pl_rank_client_ops_t ops = {.on_end = participant_ended,
                                             .on_result = participant_result,
                                             .on_ready = participant_ready,
                                             .on_lost = participant_gone,
                                             .on_left = participant_answer};
    const int64_t left = (p->until - pl_now()) / PL_MILLISECOND;
    p->spec.times.join = left > 1 ? (int)left : 1;
    return pl_rank_client_open(&p->client, p, &ops, &p->spec, err);
}

int pl_participant_open(pl_participant_t *p, const pl_rank_client_spec_t *spec,
                        int64_t until, pl_error_t *err)
{
    p->spec = *spec;
    p->until = until;
    return participant_connect(p, err);
}

bool pl_participant_waits(const pl_participant_t *p)
{
    return !p->client.has_joined && !p->has_result && !p->is_lost;
}

/* spec.calls is NULL if the result was known from the start. */
int pl_participant_run(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    pl_participant_t *p = self;
    if (!p->coordinator)
        return pl_ranks_run(self, call, body, err);
    p->run = call;
    if (p->is_lost || !p->spec.calls)
        participant_answer(p);
    return PL_OK;
}

int pl_participant_stop(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    pl_participant_t *p = self;
    char why[160];
    if (!p->coordinator)
        return pl_ranks_stop(self, call, body, err);
    snprintf(why, sizeof why, "rank %d: %s", p->spec.rank, body->stop.reason);
    if (pl_participant_waits(p))
        pl_participant_lose(p, PL_ECANCELLED, "stopped before it joined the other ranks");
    else if (p->spec.calls)
        pl_rank_client_request_stop(&p->client, why);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

int pl_participant_control(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    const pl_participant_t *p = self;
    return p->coordinator
               ? pl_fail(err, PL_ESTATE,
                         "this process is rank %d of the run and accepts no commands: "
                         "give them to %s",
                         p->spec.rank, p->coordinator)
               : pl_ranks_control(self, call, body, err);
}

int pl_participant_watch(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    return ((pl_participant_t *)self)->coordinator
               ? pl_reply_watch(call, &(pl_watch_reply_t){0})
               : pl_ranks_watch(self, call, body, err);
}

/* The messages of this process were part of that run's stream until now. */
void pl_participant_release(pl_participant_t *p)
{
    if (p->spec.calls)
        pl_monitor_bring_no_more(pl_actor_runtime(p));
    pl_rank_client_release(&p->client);
    pl_ranks_release(&p->ranks);
    pl_object_unref(p->outcome);
}
