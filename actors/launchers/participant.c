/* participant.c - processes that request a run by themselves: one coordinates, the others
 * take part as ranks
 *
 * A participant connects to the coordinator, gets its work by message, and receives the
 * result at the end.  The coordinator sends the result to every participant that is
 * connected, and waits a limited time until each has it. */
#include "actors/launchers/participant.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/launchers/job_serialization.h"
#include "actors/launchers/rank_links.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/actor.h"
#include "runtime/monitor.h"
#include "base/timeouts.h"

enum { AGAIN_MS = 100 };

static void participant_answer(void *self)
{
    pl_participant_t *participant = self;
    pl_call_t *asked = participant->asked;
    participant->asked = NULL;
    if (!asked)
        return;
    if (participant->outcome) {
        pl_reply_run(asked, &(pl_run_reply_t){.outcome = &participant->outcome->object});
        return;
    }
    pl_progress_run(asked,
                    &(pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE,
                                         .metrics = "",
                                         .global_step = participant->client.global_step,
                                         .batch = participant->client.begun});
    pl_call_fail(asked, &participant->error);
}

static int job_came(void *self, pl_job_t *job, pl_error_t *err)
{
    const pl_participant_t *participant = self;
    return participant->on_job ? participant->on_job(self, job, err) : PL_OK;
}

static void client_result(void *self, pl_outcome_t *outcome, const pl_error_t *error)
{
    pl_participant_t *participant = self;
    if (participant->has_result || participant->is_lost)
        return;
    participant->has_result = true;
    participant->outcome = pl_object_ref(outcome);
    if (error)
        participant->error = *error;
    if (pl_after(participant, PL_LEAVE_MS, participant_answer, NULL) != PL_OK)
        participant_answer(participant);
    pl_rank_client_leave(&participant->client);
}

/* Of a worker that is to end after the coordinator was lost. */
static void client_ended(void *self)
{
    if (((pl_participant_t *)self)->is_lost)
        participant_answer(self);
}

static int client_open(pl_participant_t *participant, pl_error_t *err);

static void client_again(void *self)
{
    pl_participant_t *participant = self;
    pl_error_t err = {0};
    if (participant->is_lost)
        return;
    pl_rank_client_release(&participant->client);
    if (client_open(participant, &err) == PL_OK)
        return;
    participant->is_lost = true;
    participant->error = err;
    participant_answer(participant);
}

/* The coordinator may not have ended the run before. */
static bool is_ahead(const pl_participant_t *participant)
{
    return participant->spec.incarnation > 1 && !participant->client.has_joined
           && pl_now() < participant->until;
}

static void participant_lose(pl_participant_t *participant, pl_code_t code,
                             const char *why)
{
    char when[48] = "";
    participant->is_lost = true;
    if (participant->client.global_step && !strstr(why, "after step"))
        snprintf(when, sizeof when, ", after step %" PRIu64,
                 participant->client.global_step);
    pl_fail(&participant->error, code, "%s%s", why, when);
    snprintf(participant->error.where, sizeof participant->error.where, "rank %d",
             participant->spec.rank);
    if (participant->client.has_ended)
        participant_answer(participant);
    else
        pl_rank_client_end(&participant->client);
}

static void client_lost(void *self, const char *why)
{
    pl_participant_t *participant = self;
    if (!participant->has_result && !participant->is_lost
        && !(is_ahead(participant)
             && pl_after(participant, AGAIN_MS, client_again, NULL) == PL_OK))
        participant_lose(participant, PL_EPEER, why);
}

bool pl_participant_waits(const pl_participant_t *participant)
{
    return !participant->client.has_joined && !participant->has_result
           && !participant->is_lost;
}

void pl_participant_abort(pl_participant_t *participant, const char *why)
{
    participant_lose(participant, PL_ESTATE, why);
}

static int client_open(pl_participant_t *participant, pl_error_t *err)
{
    static const pl_rank_client_ops_t ops = {.on_job = job_came,
                                             .on_end = client_ended,
                                             .on_result = client_result,
                                             .on_lost = client_lost,
                                             .on_left = participant_answer};
    const int64_t left = (participant->until - pl_now()) / PL_MILLISECOND;
    participant->spec.times.join = left > 1 ? (int)left : 1;
    return pl_rank_client_open(&participant->client, participant, &ops,
                               &participant->spec, err);
}

int pl_participant_open(pl_participant_t *participant, const pl_rank_client_spec_t *spec,
                        int64_t until,
                        int (*on_job)(void *self, pl_job_t *job, pl_error_t *err),
                        pl_error_t *err)
{
    participant->spec = *spec;
    participant->until = until;
    participant->on_job = on_job;
    return client_open(participant, err);
}

void pl_participant_know(pl_participant_t *participant, pl_outcome_t *outcome,
                         const pl_error_t *error)
{
    participant->has_result = true;
    participant->outcome = outcome;
    participant->error = *error;
}

static bool takes_part(const pl_participant_t *participant)
{
    return participant->spec.calls != NULL;
}

void pl_participant_run(pl_participant_t *participant, pl_call_t *call)
{
    participant->asked = call;
    if (participant->is_lost || !takes_part(participant))
        participant_answer(participant);
}

int pl_participant_stop(pl_participant_t *participant, pl_call_t *call,
                        const char *reason)
{
    char why[160];
    snprintf(why, sizeof why, "rank %d: %s", participant->spec.rank, reason);
    if (pl_participant_waits(participant))
        participant_lose(participant, PL_ECANCELLED,
                         "stopped before it joined the other ranks");
    else if (takes_part(participant))
        pl_rank_client_request_stop(&participant->client, why);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

int pl_participant_control(const pl_participant_t *participant, const char *coordinator,
                           pl_error_t *err)
{
    return pl_fail(err, PL_ESTATE,
                   "this process is rank %d of the run and accepts no commands: give "
                   "them to %s",
                   participant->spec.rank, coordinator);
}

void pl_participant_release(pl_participant_t *participant)
{
    if (takes_part(participant))              /* its messages were that run's until now */
        pl_monitor_bring_no_more(pl_actor_runtime(participant));
    pl_rank_client_release(&participant->client);
    pl_ranks_release(&participant->ranks);
    pl_object_unref(participant->outcome);
}

/* ---- The coordinator sends the result ---- */

typedef struct waiting {
    pl_result_broadcast_t *broadcast;
    int rank;
    pl_outbox_t outbox;
    bool is_over;
} waiting_t;

struct pl_result_broadcast {
    pl_rank_links_t *links;
    pl_blob_t *blob;                                        /* NULL: the run has failed */
    pl_error_t error;
    pl_ranks_t *ranks;                                      /* the launcher */
    bool waits;
    int first, count;
    waiting_t waiting[];                                    /* [count], by rank */
};

static void broadcast_look(pl_result_broadcast_t *s)
{
    for (int k = s->first; k < s->count; k++)
        if (!s->waiting[k].is_over)
            return;
    if (s->waits)
        pl_ranks_answer(s->ranks);
}

static void waiting_over(waiting_t *w, const char *why)
{
    if (!w->is_over && why)
        pl_log_line(PL_LOG_WARNING, w->rank, pl_actor_name(w->broadcast->ranks),
                    "the rank did not receive the end of the run: %s", why);
    w->is_over = true;
    broadcast_look(w->broadcast);
}

/* An error says nothing of how far the run came. */
static void error_tell(waiting_t *w, const pl_error_t *failed)
{
    pl_error_t err = {0};
    const pl_run_progress_t far = {.event = PL_RUN_EVENT_ALIVE,
                                   .metrics = "",
                                   .global_step = w->broadcast->ranks->global_step,
                                   .batch = w->broadcast->ranks->begun};
    pl_outbox_post(&w->outbox, PL_KIND_PROGRESS, PL_MESSAGE_run, 0, &far, NULL);
    if (pl_outbox_post(&w->outbox, PL_KIND_ERROR, PL_MESSAGE_run, 0, failed, &err)
        != PL_OK)
        waiting_over(w, err.text);
}

static void outcome_sent(void *self, uint64_t transfer, const pl_error_t *error)
{
    pl_outbox_sent(&((waiting_t *)self)->outbox, transfer, error);
}

static void event_came(void *self, pl_link_event_t event, const char *text)
{
    waiting_t *w = self;
    if (event == PL_LINK_JOINED || event == PL_LINK_WRITABLE)
        pl_outbox_flush(&w->outbox);
    if (event == PL_LINK_GONE)
        waiting_over(w, text);
    if (event == PL_LINK_LEFT && pl_rank_links_is_over(w->broadcast->links, w->rank))
        waiting_over(w, NULL);
}

/* What it still says is of a run that is over. */
static void message_came(void *self, pl_frame_t *message)
{
    (void)self, (void)message;
}

static void waiting_begin(waiting_t *w)
{
    static const pl_rank_end_ops_t ops = {.on_message = message_came,
                                          .on_event = event_came,
                                          .on_sent = outcome_sent};
    pl_result_broadcast_t *s = w->broadcast;
    pl_error_t err = {0};
    pl_link_state_t state = pl_link_state(pl_rank_links_calls(s->links), w->rank);
    if (state != PL_LINK_IS_THERE && state != PL_LINK_IS_CUT) {
        w->is_over = true;
        return;
    }
    w->outbox = pl_rank_links_outbox(s->links, w->rank);
    pl_rank_links_attach(s->links, w->rank, &ops, w);
    if (!s->blob)
        error_tell(w, &s->error);
    else if (pl_outbox_post_packed(&w->outbox, PL_KIND_REPLY, PL_MESSAGE_run, 0,
                                   &(pl_run_reply_t){0}, s->blob, &err)
             != PL_OK)
        error_tell(w, &err);
}

static void broadcast_late(void *self)
{
    pl_ranks_answer(self);
}

pl_result_broadcast_t *pl_result_broadcast(pl_ranks_t *ranks, pl_rank_links_t *links,
                                           int first)
{
    const int count = ranks->count;
    pl_result_broadcast_t *s = pl_alloc(sizeof *s + (size_t)count * sizeof *s->waiting);
    if (!s || pl_after(ranks, PL_BROADCAST_RESULT_MS, broadcast_late, NULL) != PL_OK) {
        pl_free(s);
        broadcast_late(ranks);
        return NULL;
    }
    s->ranks = ranks;
    s->links = links;
    s->first = first;
    s->count = count;
    s->error = ranks->error;
    const pl_outcome_t *outcome = pl_ranks_outcome(ranks);
    s->blob = outcome ? pl_outcome_pack(outcome, &s->error) : NULL;
    for (int k = first; k < count; k++) {
        s->waiting[k] = (waiting_t){.broadcast = s, .rank = k};
        waiting_begin(&s->waiting[k]);
    }
    s->waits = true;
    broadcast_look(s);
    return s;
}

const pl_blob_t *pl_result_broadcast_outcome(const pl_result_broadcast_t *s,
                                             const pl_error_t **error)
{
    *error = &s->error;
    return s->blob;
}

void pl_result_broadcast_free(pl_result_broadcast_t *s)
{
    if (!s)
        return;
    for (int k = s->first; k < s->count; k++) {
        pl_rank_links_detach(s->links, k, &s->waiting[k]);
        pl_outbox_release(&s->waiting[k].outbox);
    }
    pl_object_unref(s->blob);
    pl_free(s);
}
