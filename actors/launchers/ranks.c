/* ranks.c - the ranks of a run as a launcher sees them: started, collected, one result
 *
 * The result of the run and its progress are rank zero's.  The first error of any rank
 * is the error of the run, and the other ranks end then.  An error that follows from
 * the end of another rank is not the cause: an error of a rank's own takes its place
 * while all are collected.  All have ended when the run is answered, so that the next
 * run finds everything free. */
#include "actors/launchers/ranks.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/commands.h"
#include "actors/launchers/rank_links.h"
#include "actors/request.h"
#include "actors/result.h"
#include "actors/worker.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run.h"
#include "base/timeouts.h"

void pl_ranks_init(pl_ranks_t *ranks, const pl_ranks_ops_t *ops, const pl_body_t *start)
{
    const pl_job_t *job = (const pl_job_t *)start->start.context;
    ranks->ops = ops;
    ranks->silence_ms = pl_milliseconds(job->trainer->step_timeout);
    ranks->count = ranks->max = pl_request_ranks(job);
    const int64_t min = job->trainer->devices.min;
    ranks->min = min && min < ranks->count ? (int)min : ranks->count;
}

/* ---- The watch call ---- */

static void rank_watched(void *self, const pl_answer_t *answer)
{
    const pl_ranks_t *ranks = self;
    if (answer->kind == PL_ANSWER_PROGRESS && ranks->watch)
        pl_progress_watch(ranks->watch, &answer->body->watch_progress);
}

int pl_ranks_watch(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_ranks_t *ranks = self;
    (void)body;
    if (ranks->watch)
        return pl_fail(err, PL_ESTATE, "the ranks are already watched");
    ranks->watch = call;
    return PL_OK;
}

/* ---- Errors ---- */

/* PL_EPROTOCOL: ranks do not do the same, and another may know why. */
static bool follows_another(const pl_error_t *error)
{
    return error->code == PL_EPEER || error->code == PL_ECANCELLED
           || error->code == PL_EPROTOCOL;
}

/* Reports the failure before the other ranks have ended, which may take long. */
static void failure_tell(void *self)
{
    pl_ranks_t *ranks = self;
    if (ranks->run && ranks->started > 1 && ranks->ended < ranks->started
        && ranks->error.code != PL_OK)
        pl_log_line(PL_LOG_ERROR, ranks->failed, pl_actor_name(ranks),
                    "%s; the other ranks are being stopped", ranks->error.text);
}

/* Each rank that waited reports that nothing happened.  Errors of ranks that a stop has
 * ended early are not its cause. */
static void ranks_failed(pl_ranks_t *ranks, int rank, const pl_error_t *error)
{
    pl_error_t *first = &ranks->error;
    const size_t length = strlen(first->text);
    const bool was_stopped = ranks->stop_requested && first->code == PL_ECANCELLED,
               was_stopped_early = was_stopped && ranks->failed < 0;
    if ((first->code == PL_ESTUCK || was_stopped) && error->code == PL_ESTUCK) {
        if (!strstr(first->text, error->text))
            snprintf(first->text + length, sizeof first->text - length, ": %s",
                     error->text);
    } else if (first->code == PL_OK
               || (follows_another(first) && !follows_another(error)
                   && !was_stopped_early)) {
        *first = *error;
        ranks->failed = rank;
        pl_after(ranks, PL_FAILURE_REPORT_MS, failure_tell, NULL);
    }
    if (ranks->links && ranks->awaits_first_batch
        && (!follows_another(first) || ranks->stop_requested))
        ranks->links->is_hurried = true;
}

/* ---- The end ---- */

static void ranks_cancel(pl_ranks_t *ranks)
{
    for (int k = 0; k < ranks->started; k++)
        if (!ranks->rank[k].ended)
            pl_cancel(ranks, ranks->rank[k].life);
}

static void rank_has_ended(pl_rank_t *rank)
{
    rank->ranks->ended += !rank->ended;
    rank->ended = true;
}

/* An outcome that is incomplete because another rank ended does not count. */
pl_outcome_t *pl_ranks_outcome(const pl_ranks_t *ranks)
{
    const bool lacks = ranks->outcome && follows_another(&ranks->outcome->error)
                       && ranks->error.code != PL_OK && !follows_another(&ranks->error);
    return lacks ? NULL : ranks->outcome;
}

/* Logs each rank that fails after the end of its run, but not for the outcome's error. */
void pl_ranks_answer(pl_ranks_t *ranks)
{
    pl_call_t *call = ranks->run, *watch = ranks->watch;
    ranks->run = ranks->watch = NULL;
    if (!call)
        return;
    if (watch)
        pl_reply_watch(watch, &(pl_watch_reply_t){0});
    if (!pl_ranks_outcome(ranks)) {
        pl_call_fail(call, &ranks->error);
        return;
    }
    if (ranks->error.code != PL_OK
        && strcmp(ranks->error.text, ranks->outcome->error.text) != 0)
        pl_log_line(PL_LOG_ERROR, 0, pl_actor_name(ranks), "%s", ranks->error.text);
    pl_reply_run(call, &(pl_run_reply_t){.outcome = &ranks->outcome->object});
}

bool pl_ranks_have_paused(const pl_ranks_t *ranks)
{
    return ranks->halts_to_restart && ranks->outcome && ranks->outcome->stopped
           && ranks->outcome->stop_kind == PL_STOP_KIND_RESTART;
}

/* The rank's part of the run is over, or cannot be any more.  No rank ends before all are
 * done, because the others may still need it.  A proxy reports the silence of its rank
 * itself; a stuck thread cannot. */
static void rank_over(pl_rank_t *rank, const pl_error_t *error)
{
    pl_ranks_t *ranks = rank->ranks;
    char host[64] = "";
    if (ranks->watch && error && error->code == PL_ESTUCK && !rank->answered
        && !rank->can_end) {
        gethostname(host, sizeof host - 1);
        const pl_watch_progress_t silent = {.event = PL_RANK_EVENT_SILENT,
                                            .rank = (uint32_t)rank->number,
                                            .host = host,
                                            .process = (uint32_t)getpid(),
                                            .cause = error->text,
                                            .seconds =
                                                (double)(pl_now() - rank->received_at)
                                                / PL_SECOND,
                                            .global_step = rank->global_step};
        pl_progress_watch(ranks->watch, &silent);
    }
    ranks->answered += !rank->answered;
    rank->answered = true;
    if (error)
        ranks_failed(ranks, rank->number, error);
    if (error || ranks->answered == ranks->started)
        ranks_cancel(ranks);
    if (!ranks->run || ranks->broadcasts || ranks->ended < ranks->started)
        return;
    const bool may_begin = !ranks->stop_requested && ranks->ops->again
                           && (!pl_ranks_outcome(ranks) || pl_ranks_have_paused(ranks));
    if (may_begin && ranks->ops->again(ranks))
        return;
    ranks->broadcasts = true;
    if (ranks->ops->broadcast_result)
        ranks->ops->broadcast_result(ranks);
    else
        pl_ranks_answer(ranks);
}

/* At the end of all ranks it shows which rank the others waited for. */
static void rank_ended(void *self, const pl_answer_t *answer)
{
    (void)self;
    pl_rank_t *rank = answer->context;
    pl_error_t early, *first = &rank->ranks->error;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    pl_fail(&early, PL_EPEER, "rank %d ended before the run ended", rank->number);
    if (answer->kind == PL_ANSWER_ERROR && answer->error->code == PL_ESTUCK
        && first->code == PL_ESTUCK && *answer->error->where)
        memcpy(first->where, answer->error->where, sizeof first->where);
    rank_has_ended(rank);
    rank_over(rank, answer->kind == PL_ANSWER_ERROR                      ? answer->error
                    : rank->answered || rank->ranks->error.code != PL_OK ? NULL
                                                                         : &early);
}

/* ---- The ranks connect ---- */

static void ranks_abort(pl_ranks_t *ranks, const pl_error_t *error)
{
    ranks_failed(ranks, -1, error);
    ranks_cancel(ranks);
}

static void rank_joined(void *self, const pl_answer_t *answer)
{
    pl_ranks_t *ranks = self;
    if (answer->kind == PL_ANSWER_ERROR && ranks->run)
        ranks_abort(ranks, answer->error);
}

/* A rank reports its address; when all have, each rank receives the list of all. */
static void rank_address(pl_rank_t *rank, const char *address)
{
    pl_ranks_t *ranks = rank->ranks;
    size_t capacity = 1;
    pl_error_t err = {0};
    if (rank->address)
        return;
    rank->address = pl_strdup(address);
    if (!rank->address) {
        pl_no_memory(&err);
        ranks_abort(ranks, &err);
        return;
    }
    if (++ranks->reported < ranks->count || ranks->ended)
        return;
    for (int k = 0; k < ranks->count; k++)
        capacity += strlen(ranks->rank[k].address) + 1;
    char *addresses = pl_alloc(capacity), *end = addresses;
    for (int k = 0; k < ranks->count && addresses; k++) {
        end = stpcpy(end, ranks->rank[k].address);
        *end++ = '\n';
    }
    bool sent = addresses || pl_no_memory(&err) == PL_OK;
    for (int k = 0; k < ranks->count && sent; k++) {
        const pl_join_t msg = {.rank = (uint32_t)k,
                               .world_size = (uint32_t)ranks->count,
                               .addresses = addresses};
        sent = pl_call_join(ranks, ranks->rank[k].worker, &msg,
                            (pl_how_t){.on_answer = rank_joined}, &err);
    }
    pl_free(addresses);
    if (!sent)
        ranks_abort(ranks, &err);
}

/* ---- The run ---- */

/* A rank that has reported its address waits for those of all others.  Honest ranks
 * report within trainer.step_timeout; a strategy whose ranks do not connect has no
 * addresses.  Time in which this thread did not run does not count. */
static void addresses_check(pl_ranks_t *ranks)
{
    const bool are_there = !ranks->links || ranks->links->joined >= ranks->links->count;
    const int64_t now = pl_now(), passed = now - ranks->looked,
                  limit = ranks->silence_ms * PL_MILLISECOND * 5 / 4;
    pl_error_t err;
    ranks->looked = now;
    if (!ranks->reported || !are_there)
        ranks->waited = 0;
    else if (passed < PL_SECOND)
        ranks->waited += passed;
    if (!ranks->reported || ranks->reported >= ranks->count || !ranks->run
        || ranks->error.code != PL_OK || (!ranks->answered && ranks->waited <= limit))
        return;
    for (int k = 0; k < ranks->count; k++) {
        pl_rank_t *rank = &ranks->rank[k];
        if (rank->address || (!rank->answered && ranks->waited <= limit))
            continue;
        if (rank->answered)
            pl_fail(&err, PL_EPROTOCOL,
                    "rank %d ended its run before it reported an address to the other "
                    "ranks",
                    k);
        else
            pl_fail(&err, PL_ETIMEOUT,
                    "rank %d has not reported an address to the other ranks for %g s "
                    "(1.25 times trainer.step_timeout)",
                    k, (double)limit / PL_SECOND);
        snprintf(err.where, sizeof err.where, "rank %d", k);
        rank_over(rank, &err);
        return;
    }
}

/* The other ranks stop when rank zero does. */
static int first_stop(pl_ranks_t *ranks, pl_stop_kind_t kind, const char *reason,
                      pl_error_t *err)
{
    const pl_stop_t msg = {.reason = reason, .kind = kind};
    if (ranks->started && !ranks->rank[0].ended && ranks->error.code == PL_OK
        && !pl_call_stop(ranks, ranks->rank[0].worker, &msg, (pl_how_t){0}, err))
        return err->code;
    return PL_OK;
}

/* A run that paused, to begin again, ends because of the stop. */
static void stop_reason_keep(pl_ranks_t *ranks)
{
    pl_outcome_t *outcome = ranks->outcome;
    if (!ranks->stop_requested || !pl_ranks_have_paused(ranks))
        return;
    snprintf(outcome->reason, sizeof outcome->reason, "%s", ranks->stop_reason);
    outcome->stop_kind = PL_STOP_KIND_END;
}

static int ranks_stop(pl_ranks_t *ranks, const char *reason, pl_error_t *err)
{
    pl_error_t early;
    ranks->stop_requested = true;
    snprintf(ranks->stop_reason, sizeof ranks->stop_reason, "%s", reason);
    stop_reason_keep(ranks);
    if (ranks->run && !ranks->broadcasts && ranks->ended == ranks->started
        && ranks->ops->now) {
        ranks->ops->now(ranks);
        return PL_OK;
    }
    if (ranks->run && ranks->links && ranks->links->joined < ranks->links->count) {
        pl_fail(&early, PL_ECANCELLED, "stopped before all ranks had joined (%s)",
                reason);                                /* there is nothing to save yet */
        ranks_abort(ranks, &early);
        return PL_OK;
    }
    return first_stop(ranks, PL_STOP_KIND_END, reason, err);
}

void pl_ranks_pause(pl_ranks_t *ranks)
{
    pl_error_t err;
    ranks->halts_to_restart = first_stop(ranks, PL_STOP_KIND_RESTART,
                                         "the run continues with other ranks", &err)
                              == PL_OK;
}

/* Each rank needs a device of its own, if devices have identities. */
static void rank_reported(pl_rank_t *rank, const pl_run_progress_t *report)
{
    pl_ranks_t *ranks = rank->ranks;
    const int number = rank->number;
    pl_error_t err = {0};
    if (*report->stop_request && ranks_stop(ranks, report->stop_request, &err) != PL_OK)
        pl_log_line(PL_LOG_WARNING, number, pl_actor_name(ranks), "%s", err.text);
    if (*report->address)
        rank_address(rank, report->address);
    if (*report->device) {
        pl_free(rank->device);
        rank->device = pl_strdup(report->device);
        int code = rank->device ? PL_OK : pl_no_memory(&err);
        for (int k = 0; k < ranks->count && code == PL_OK; k++) {
            const char *other = k == number ? NULL : ranks->rank[k].device;
            if (other && !strcmp(other, report->device))
                code = pl_fail(&err, PL_EINVAL,
                               "rank %d and rank %d use the same card: each rank needs "
                               "one of its own; see trainer.devices and "
                               "CUDA_VISIBLE_DEVICES",
                               k < number ? k : number, k < number ? number : k);
        }
        if (code != PL_OK)
            ranks_abort(ranks, &err);
    }
    rank->received_at = pl_now();
    if (report->global_step > rank->global_step)
        rank->global_step = report->global_step;
    if (*report->run_dir && ranks->ops->run_dir)
        ranks->ops->run_dir(ranks, report->run_dir);
    if (report->global_step > ranks->global_step)
        ranks->global_step = report->global_step;
    ranks->had_a_batch |= pl_report_has_begun(report);
    ranks->awaits_first_batch &= !pl_report_has_begun(report);
    if (ranks->run && number == 0)
        pl_progress_run(ranks->run, report);
    addresses_check(ranks);
}

/* A failure after the last step ends the other ranks too, which may wait for this
 * rank; its weights are those of all. */
static void rank_answered(void *self, const pl_answer_t *answer)
{
    pl_ranks_t *ranks = self;
    pl_rank_t *rank = answer->context;
    pl_error_t err;
    if (rank->ended)
        return;
    switch (answer->kind) {
    case PL_ANSWER_PROGRESS: rank_reported(rank, &answer->body->run_progress); return;
    case PL_ANSWER_ERROR: rank_over(rank, answer->error); return;
    case PL_ANSWER_LATE:
        pl_fail(&err, PL_ESTUCK,
                "rank %d has given no sign of life for %g s (trainer.step_timeout)%s",
                rank->number, ranks->silence_ms / 1e3, rank->stuck_text);
        snprintf(err.where, sizeof err.where, "rank %d", rank->number);
        if (!rank->can_end) {
            pl_abandon(ranks, rank->life);
            rank_has_ended(rank);
        }
        rank_over(rank, &err);
        return;
    case PL_ANSWER_REPLY:;
        pl_outcome_t *outcome = (pl_outcome_t *)answer->body->run_reply.outcome;
        const bool failed = outcome->error.code != PL_OK && !outcome->rollback;
        if (rank->number == 0 || (failed && !ranks->outcome)) {
            pl_object_unref(ranks->outcome);
            ranks->outcome = pl_object_ref(outcome);
            stop_reason_keep(ranks);
        }
        rank_over(rank, failed ? &outcome->error : NULL);
        addresses_check(ranks);
    }
}

static void ranks_clear(pl_ranks_t *ranks)
{
    for (int k = 0; k < ranks->started; k++) {
        pl_free(ranks->rank[k].address);
        pl_free(ranks->rank[k].device);
        ranks->rank[k].address = ranks->rank[k].device = NULL;
    }
    pl_object_unref(ranks->outcome);
    ranks->outcome = NULL;
    ranks->started = ranks->reported = ranks->answered = ranks->ended = 0;
    ranks->waited = 0;
    ranks->error.code = PL_OK;
    ranks->failed = -1;
    ranks->halts_to_restart = false;
    ranks->awaits_first_batch = true;
}

int pl_ranks_begin(pl_ranks_t *ranks, pl_job_t *job, pl_error_t *err)
{
    int code = PL_OK;
    ranks_clear(ranks);
    if (job) {
        pl_object_unref(ranks->job);
        ranks->job = pl_object_ref(job);
    }
    const pl_run_t msg = {.job = &ranks->job->object};
    for (int k = 0; k < ranks->count && code == PL_OK; k++) {
        pl_rank_t *rank = &ranks->rank[k];
        const pl_how_t life = {.on_answer = rank_ended, .context = rank},
                       watch = {.on_answer = rank_watched},
                       run = {.on_answer = rank_answered,
                              .context = rank,
                              .silence_ms = ranks->silence_ms};
        *rank = (pl_rank_t){.ranks = ranks, .number = k};
        rank->life = ranks->ops->start(ranks, rank, life, err);
        rank->received_at = pl_now();
        ranks->started += rank->life != 0;
        if (!rank->life
            || (rank->can_end
                && !pl_call_watch(ranks, rank->worker, &(pl_watch_t){0}, watch, err))
            || !pl_call_run(ranks, rank->worker, &msg, run, err))
            code = err->code;
    }
    if (code == PL_OK && ranks->stop_requested)
        code = first_stop(ranks, PL_STOP_KIND_END, ranks->stop_reason, err);
    if (code == PL_OK)
        return PL_OK;
    ranks_abort(ranks, err);
    return ranks->started ? PL_OK : code;
}

int pl_ranks_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_ranks_t *ranks = self;
    if (ranks->job)
        return pl_fail(err, PL_ESTATE, "a launcher runs once");
    ranks->rank = pl_alloc_array((size_t)ranks->count, sizeof *ranks->rank);
    if (!ranks->rank)
        return pl_no_memory(err);
    pl_job_t *given = (pl_job_t *)body->run.job,       /* one number instead of a range */
        *job = ranks->min < ranks->max ? pl_job_again(given, NULL, ranks->count, 1, err)
                                       : pl_object_ref(given);
    int code = job ? pl_ranks_begin(ranks, job, err) : err->code;
    if (code == PL_OK)
        ranks->run = call;
    pl_object_unref(job);
    return code;
}

int pl_ranks_stop(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    int code = ranks_stop(self, body->stop.reason, err);
    return code == PL_OK ? pl_reply_stop(call, &(pl_stop_reply_t){0}) : code;
}

/* Commands go to rank zero, which informs the others. */
int pl_ranks_control(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_ranks_t *ranks = self;
    if (!ranks->run || !ranks->started || ranks->rank[0].ended || ranks->answered
        || ranks->broadcasts)
        return pl_fail(err, PL_ESTATE,
                       "no rank accepts commands now: the run is ending or starting "
                       "again");
    return pl_forward(self, call, ranks->rank[0].worker, PL_MESSAGE_control, body, err);
}

void pl_ranks_release(void *self)
{
    pl_ranks_t *ranks = self;
    ranks_clear(ranks);
    pl_free(ranks->rank);
    pl_object_unref(ranks->job);
    pl_object_unref(ranks->links);
}
