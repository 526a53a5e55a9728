/* participant.c - a process that has asked for a run by itself and takes part in it as
 * a rank
 *
 * It may come to a run before the one that coordinates does, and tries again then. */
#include "actors/launchers/participant.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/launchers/rank_links.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/timeouts.h"
#include "runtime/monitor.h"

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
                    &(pl_run_progress_t){.event = "alive",
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

/* Of a worker that shall do no more: nobody is there who would hear of it. */
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

/* Who coordinates may not have ended the run before. */
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

int pl_participant_control(const pl_participant_t *participant, const char *who,
                           pl_error_t *err)
{
    return pl_fail(err, PL_ESTATE,
                   "this process is rank %d of the run and accepts no commands: give "
                   "them to %s",
                   participant->spec.rank, who);
}

void pl_participant_release(pl_participant_t *participant)
{
    if (takes_part(participant))              /* its messages were that run's until now */
        pl_monitor_bring_no_more(pl_actor_runtime(participant));
    pl_rank_client_release(&participant->client);
    pl_ranks_release(&participant->ranks);
    pl_object_unref(participant->outcome);
}
