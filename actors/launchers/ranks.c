/* ranks.c - the ranks of a run as a launcher sees them: started, collected, one result
 *
 * The run's result and its progress are rank zero's; the first error of any rank is the
 * run's, and the others end then.  One that comes of another rank's end is
 * not the cause: an error of a rank's own takes its place while all are collected.  All
 * have ended when the run is answered, so that the next finds everything free. */
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

/* ---- the watch call ---- */

static void ranks_tell(const pl_ranks_t *ranks, const pl_watch_progress_t *what)
{
    if (ranks->watch)
        pl_progress_watch(ranks->watch, what);
}

static void rank_watched(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_PROGRESS)
        ranks_tell(self, &answer->body->watch_progress);
}

/* A proxy reports the silence of its rank itself; a stuck thread cannot. */
static void silence_tell(const pl_rank_t *rank, const char *cause)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    if (!rank->can_end)
        ranks_tell(rank->ranks,
                   &(pl_watch_progress_t){
                       .event = PL_RANK_EVENT_SILENT,
                       .rank = (uint32_t)rank->number,
                       .host = host,
                       .process = (uint32_t)getpid(),
                       .cause = cause,
                       .seconds = (double)(pl_now() - rank->received_at) / PL_SECOND,
                       .global_step = rank->global_step});
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

/* ---- errors ---- */

/* Where ranks do not do the same, one may know why. */
static bool follows_another(const pl_error_t *error)
{
    return error->code == PL_EPEER || error->code == PL_ECANCELLED
           || error->code == PL_EPROTOCOL;
}

/* Each rank that waited reports that nothing happened. */
static void add_text(pl_error_t *to, const pl_error_t *from)
{
    size_t length = strlen(to->text);
    if (strstr(to->text, from->text))
        return;
    snprintf(to->text + length, sizeof to->text - length, ": %s", from->text);
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

/* Errors of ranks that were ended by a stop are not its cause. */
static bool was_stopped_early(const pl_ranks_t *ranks)
{
    return ranks->stops && ranks->failed < 0 && ranks->error.code == PL_ECANCELLED;
}

static void ranks_failed(pl_ranks_t *ranks, int rank, const pl_error_t *error)
{
    pl_error_t *first = &ranks->error;
    const bool was_stopped = ranks->stops && first->code == PL_ECANCELLED;
    if ((first->code == PL_ESTUCK || was_stopped) && error->code == PL_ESTUCK) {
        add_text(first, error);
    } else if (first->code == PL_OK
               || (follows_another(first) && !follows_another(error)
                   && !was_stopped_early(ranks))) {
        *first = *error;
        ranks->failed = rank;
        pl_after(ranks, PL_FAILURE_REPORT_MS, failure_tell, NULL);
    }
    if (ranks->links && ranks->starts && (!follows_another(first) || ranks->stops))
        ranks->links->is_hurried = true;
}

/* ---- the end ---- */

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

/* An outcome that lacks something because of another rank's end is none. */
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
    return ranks->pauses && ranks->outcome && ranks->outcome->stopped
           && !strcmp(ranks->outcome->reason, PL_OTHER_RANKS);
}

static void ranks_end(pl_ranks_t *ranks)
{
    if (!ranks->run || ranks->broadcasts || ranks->ended < ranks->started)
        return;
    const bool may = !ranks->stops && ranks->ops->again
                     && (!pl_ranks_outcome(ranks) || pl_ranks_have_paused(ranks));
    if (may && ranks->ops->again(ranks))
        return;
    ranks->broadcasts = true;
    if (ranks->ops->broadcast_result)
        ranks->ops->broadcast_result(ranks);
    else
        pl_ranks_answer(ranks);
}

/* Its part of the run is over, or cannot be any more.  No rank ends before all are done,
 * because the others may still need it. */
static void rank_over(pl_rank_t *rank, const pl_error_t *error)
{
    pl_ranks_t *ranks = rank->ranks;
    if (error && error->code == PL_ESTUCK && !rank->answered)
        silence_tell(rank, error->text);
    ranks->answered += !rank->answered;
    rank->answered = true;
    if (error)
        ranks_failed(ranks, rank->number, error);
    if (error || ranks->answered == ranks->started)
        ranks_cancel(ranks);
    ranks_end(ranks);
}

/* Which rank the others waited for shows when all are to end. */
static void rank_is_stuck(const pl_rank_t *rank, const pl_error_t *error)
{
    pl_error_t *first = &rank->ranks->error;
    if (error->code == PL_ESTUCK && first->code == PL_ESTUCK && *error->where)
        memcpy(first->where, error->where, sizeof first->where);
}

static void rank_ended(void *self, const pl_answer_t *answer)
{
    (void)self;
    pl_rank_t *rank = answer->context;
    pl_error_t early;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    pl_fail(&early, PL_EPEER, "rank %d ended before the run ended", rank->number);
    if (answer->kind == PL_ANSWER_ERROR)
        rank_is_stuck(rank, answer->error);
    rank_has_ended(rank);
    rank_over(rank, answer->kind == PL_ANSWER_ERROR                      ? answer->error
                    : rank->answered || rank->ranks->error.code != PL_OK ? NULL
                                                                         : &early);
}

static void rank_stuck(pl_rank_t *rank)
{
    pl_ranks_t *ranks = rank->ranks;
    pl_error_t err;
    pl_fail(&err, PL_ESTUCK,
            "rank %d has given no sign of life for %g s (trainer.step_timeout)%s",
            rank->number, ranks->silence_ms / 1e3, rank->stuck);
    snprintf(err.where, sizeof err.where, "rank %d", rank->number);
    if (!rank->can_end) {
        pl_abandon(ranks, rank->life);
        rank_has_ended(rank);
    }
    rank_over(rank, &err);
}

/* ---- the ranks meet ---- */

static void ranks_abort(pl_ranks_t *ranks, const pl_error_t *error)
{
    ranks_failed(ranks, -1, error);
    ranks_cancel(ranks);
}

static char *all_addresses(const pl_ranks_t *ranks)
{
    size_t capacity = 1;
    for (int k = 0; k < ranks->count; k++)
        capacity += strlen(ranks->rank[k].address) + 1;
    char *text = pl_alloc(capacity), *end = text;
    for (int k = 0; k < ranks->count && text; k++) {
        end = stpcpy(end, ranks->rank[k].address);
        *end++ = '\n';
    }
    return text;
}

static void rank_joined(void *self, const pl_answer_t *answer)
{
    pl_ranks_t *ranks = self;
    if (answer->kind == PL_ANSWER_ERROR && ranks->run)
        ranks_abort(ranks, answer->error);
}

static void ranks_join(pl_ranks_t *ranks)
{
    pl_error_t err = {0};
    char *addresses = all_addresses(ranks);
    bool sent = addresses;
    if (!sent)
        pl_no_memory(&err);
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

/* Addresses rise one by one, and go down as a table. */
static void rank_address(pl_rank_t *rank, const char *address)
{
    pl_ranks_t *ranks = rank->ranks;
    pl_error_t err;
    if (rank->address)
        return;
    rank->address = pl_strdup(address);
    if (!rank->address) {
        pl_no_memory(&err);
        ranks_abort(ranks, &err);
        return;
    }
    if (++ranks->reported == ranks->count && !ranks->ended)
        ranks_join(ranks);
}

/* Each rank needs a device of its own, as far as devices can be told apart. */
static void rank_device(pl_rank_t *rank, const char *identity)
{
    pl_ranks_t *ranks = rank->ranks;
    pl_error_t err = {0};
    for (int k = 0; k < ranks->count; k++) {
        const char *other = k == rank->number ? NULL : ranks->rank[k].device;
        if (other && !strcmp(other, identity))
            pl_fail(&err, PL_EINVAL,
                    "rank %d and rank %d use the same card: each rank needs one of its "
                    "own; see trainer.devices and CUDA_VISIBLE_DEVICES",
                    k < rank->number ? k : rank->number,
                    k < rank->number ? rank->number : k);
    }
    pl_free(rank->device);
    rank->device = pl_strdup(identity);
    if (!rank->device)
        pl_no_memory(&err);
    if (err.code != PL_OK)
        ranks_abort(ranks, &err);
}

/* ---- the run ---- */

/* There is nothing to save yet, and missing ranks would be waited for. */
static int stop_at_once(pl_ranks_t *ranks, const char *reason)
{
    pl_error_t early;
    pl_fail(&early, PL_ECANCELLED, "stopped before all ranks had joined (%s)", reason);
    ranks_failed(ranks, -1, &early);
    ranks_cancel(ranks);
    return PL_OK;
}

/* What the others do follows from what rank zero does. */
static int first_stop(pl_ranks_t *ranks, const char *reason, pl_error_t *err)
{
    const pl_stop_t msg = {.reason = reason};
    if (ranks->started && !ranks->rank[0].ended && ranks->error.code == PL_OK
        && !pl_call_stop(ranks, ranks->rank[0].worker, &msg, (pl_how_t){0}, err))
        return err->code;
    return PL_OK;
}

/* A run that was about to begin again ends because it was asked to. */
static void stop_reason_keep(pl_ranks_t *ranks)
{
    pl_outcome_t *outcome = ranks->outcome;
    if (ranks->stops && pl_ranks_have_paused(ranks))
        snprintf(outcome->reason, sizeof outcome->reason, "%s", ranks->stop_reason);
}

static int ranks_stop(pl_ranks_t *ranks, const char *reason, pl_error_t *err)
{
    ranks->stops = true;
    snprintf(ranks->stop_reason, sizeof ranks->stop_reason, "%s", reason);
    stop_reason_keep(ranks);
    if (ranks->run && !ranks->broadcasts && ranks->ended == ranks->started
        && ranks->ops->now) {
        ranks->ops->now(ranks);
        return PL_OK;
    }
    if (ranks->run && ranks->links && ranks->links->joined < ranks->links->count)
        return stop_at_once(ranks, reason);
    return first_stop(ranks, reason, err);
}

void pl_ranks_pause(pl_ranks_t *ranks)
{
    pl_error_t err;
    ranks->pauses = first_stop(ranks, PL_OTHER_RANKS, &err) == PL_OK;
}

static void rank_reported(pl_rank_t *rank, const pl_run_progress_t *report)
{
    pl_error_t err;
    if (*report->stop_request
        && ranks_stop(rank->ranks, report->stop_request, &err) != PL_OK)
        pl_log_line(PL_LOG_WARNING, rank->number, pl_actor_name(rank->ranks), "%s",
                    err.text);
    if (*report->address)
        rank_address(rank, report->address);
    if (*report->device)
        rank_device(rank, report->device);
    rank->received_at = pl_now();
    if (report->global_step > rank->global_step)
        rank->global_step = report->global_step;
    if (*report->run_dir && rank->ranks->ops->run_dir)
        rank->ranks->ops->run_dir(rank->ranks, report->run_dir);
    if (report->global_step > rank->ranks->global_step)
        rank->ranks->global_step = report->global_step;
    rank->ranks->begun |= pl_report_has_begun(report);
    rank->ranks->starts &= !pl_report_has_begun(report);
    if (rank->ranks->run && rank->number == 0)
        pl_progress_run(rank->ranks->run, report);
}

/* A failure after the last step ends the others too, which may wait for this rank; the
 * weights it has are those of all. */
static void rank_replied(pl_rank_t *rank, pl_outcome_t *outcome)
{
    pl_ranks_t *ranks = rank->ranks;
    const bool failed = outcome->error.code != PL_OK && !outcome->rollback;
    if (rank->number == 0 || (failed && !ranks->outcome)) {
        pl_object_unref(ranks->outcome);
        ranks->outcome = pl_object_ref(outcome);
        stop_reason_keep(ranks);
    }
    rank_over(rank, failed ? &outcome->error : NULL);
}

static void rank_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    pl_rank_t *rank = answer->context;
    if (rank->ended)
        return;
    switch (answer->kind) {
    case PL_ANSWER_PROGRESS: rank_reported(rank, &answer->body->run_progress); return;
    case PL_ANSWER_LATE: rank_stuck(rank); return;
    case PL_ANSWER_ERROR: rank_over(rank, answer->error); return;
    case PL_ANSWER_REPLY:
        rank_replied(rank, (pl_outcome_t *)answer->body->run_reply.outcome);
    }
}

static int rank_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_error_t *err)
{
    const pl_how_t life = {.on_answer = rank_ended, .context = rank},
                   how = {.on_answer = rank_answered,
                          .context = rank,
                          .silence_ms = ranks->silence_ms};
    rank->life = ranks->ops->start(ranks, rank, life, err);
    if (!rank->life)
        return err->code;
    ranks->started++;
    rank->received_at = pl_now();
    const pl_run_t msg = {.job = &ranks->job->object};
    if (rank->can_end
        && !pl_call_watch(ranks, rank->worker, &(pl_watch_t){0},
                          (pl_how_t){.on_answer = rank_watched}, err))
        return err->code;
    return pl_call_run(ranks, rank->worker, &msg, how, err) ? PL_OK : err->code;
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
    ranks->error.code = PL_OK;
    ranks->failed = -1;
    ranks->pauses = false;
    ranks->starts = true;
}

int pl_ranks_begin(pl_ranks_t *ranks, pl_job_t *job, pl_error_t *err)
{
    int code = PL_OK;
    ranks_clear(ranks);
    if (job) {
        pl_object_unref(ranks->job);
        ranks->job = pl_object_ref(job);
    }
    for (int k = 0; k < ranks->count && code == PL_OK; k++) {
        ranks->rank[k] = (pl_rank_t){.ranks = ranks, .number = k};
        code = rank_start(ranks, &ranks->rank[k], err);
    }
    if (code == PL_OK && ranks->stops)
        code = first_stop(ranks, ranks->stop_reason, err);
    if (code == PL_OK)
        return PL_OK;
    ranks_failed(ranks, -1, err);
    ranks_cancel(ranks);
    return ranks->started ? PL_OK : code;
}

/* Of a range of numbers it says which one it is. */
static pl_job_t *job_of(const pl_ranks_t *ranks, const pl_job_t *asked, pl_error_t *err)
{
    return ranks->min < ranks->max ? pl_job_again(asked, NULL, ranks->count, 1, err)
                                   : pl_object_ref((pl_job_t *)asked);
}

int pl_ranks_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_ranks_t *ranks = self;
    if (ranks->job)
        return pl_fail(err, PL_ESTATE, "a launcher runs once");
    ranks->rank = pl_alloc_array((size_t)ranks->count, sizeof *ranks->rank);
    if (!ranks->rank)
        return pl_no_memory(err);
    pl_job_t *job = job_of(ranks, (const pl_job_t *)body->run.job, err);
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

/* ---- commands ---- */

/* They are for rank zero, which tells the others. */
int pl_ranks_control(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_ranks_t *ranks = self;
    if (!ranks->run || !ranks->started || ranks->rank[0].ended || ranks->answered
        || ranks->broadcasts)
        return pl_fail(err, PL_ESTATE,
                       "no rank accepts commands now: the run is ending or starting "
                       "again");
    return pl_command_pass(self, call, ranks->rank[0].worker, &body->control, err);
}

void pl_ranks_release(pl_ranks_t *ranks)
{
    ranks_clear(ranks);
    pl_free(ranks->rank);
    pl_object_unref(ranks->job);
}
