/* restarts.c - how often something may be started again, and a run that is
 *
 * The cause of a death may not occur again, so the run is started again; but only so many
 * times within a window, each after a longer wait. */
#include "actors/launchers/restarts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/launchers/rank_links.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run.h"

/* ---- How often a process may be started again ---- */

enum { FIRST_WAIT_MS = 100, LATER_WAITS = 4, WAIT_MAX_MS = 30000, WINDOW_MINUTES = 10 };

static void old_forget(pl_restart_policy_t *r)
{
    int old = 0;
    while (old < r->count
           && pl_now() - r->one[old].when > WINDOW_MINUTES * 60 * PL_SECOND)
        old++;
    r->count -= old;
    memmove(r->one, r->one + old, (size_t)r->count * sizeof *r->one);
}

int pl_restart_policy_add(pl_restart_policy_t *r, uint64_t global_step, int rank)
{
    int wait = FIRST_WAIT_MS;
    old_forget(r);
    if (r->count >= r->max || r->count >= PL_TRIES_MAX)
        return -1;
    for (int k = 0; k < r->count && wait < WAIT_MAX_MS; k++)
        wait *= LATER_WAITS;
    r->one[r->count++] = (pl_restart_t){pl_now(), global_step, rank};
    return wait < WAIT_MAX_MS ? wait : WAIT_MAX_MS;
}

void pl_restart_policy_report(const pl_restart_policy_t *r, const uint64_t *global_step,
                              pl_error_t *error)
{
    char steps[160] = "";
    size_t length = 0;
    for (int k = 0; global_step && k < r->count && length < sizeof steps - 48; k++)
        length += (size_t)snprintf(steps + length, sizeof steps - length, "%" PRIu64 ", ",
                                   r->one[k].global_step);
    if (global_step)
        snprintf(steps + length, sizeof steps - length, "%" PRIu64, *global_step);
    if (r->count)
        pl_error_prefix(error, "started again %d time%s within %d minutes%s%s", r->count,
                        r->count == 1 ? "" : "s", WINDOW_MINUTES,
                        global_step ? ", and failed after steps " : "", steps);
}

/* ---- A run that is started again ---- */

enum { LOOK_MS = 200 };                      /* between looks at whether the run trains */

/* Pauses the run, if it trains, for the ranks that were left out.  A rank may die
 * before the run has paused: so the looks continue until all ranks are back. */
static void restarts_look(void *launcher)
{
    pl_ranks_t *ranks = launcher;
    if (!ranks->run || ranks->broadcasts || ranks->stop_requested
        || ranks->count == ranks->max)
        return;
    if (ranks->global_step && !ranks->halts_to_restart && !ranks->answered
        && !ranks->ended && ranks->error.code == PL_OK)
        pl_ranks_pause(ranks);
    pl_after(ranks, LOOK_MS, restarts_look, NULL);
}

/* A rank that dies again as soon as it was started again is likely to do so for a while.
 * It returns if the run can pause: searches are short, and without checkpoints a pause
 * would lose steps. */
static bool rank_leave_out(pl_ranks_t *ranks)
{
    pl_restarts_t *r = ranks->restarts;
    const pl_job_t *job = ranks->job;
    old_forget(&r->policy);
    if (ranks->count <= ranks->min || ranks->failed < 0 || !r->policy.count
        || r->policy.one[r->policy.count - 1].rank != ranks->failed)
        return false;
    ranks->count--;
    r->policy.count = 0;
    r->left_out = ranks->failed;
    if (r->return_after > 0 && pl_job_is_training(job)
        && job->trainer->enable_checkpointing
        && pl_after(ranks, pl_milliseconds(r->return_after), restarts_look, NULL)
               == PL_OK)
        r->return_after *= 2;
    return true;
}

/* wait: ms  [below 0: no restart] */
static bool begin_after(pl_ranks_t *ranks, int wait)
{
    pl_restarts_t *r = ranks->restarts;
    void (*begin)(void *) = r->begin ? r->begin : pl_restarts_begin;
    r->waits = wait >= 0 && pl_after(ranks, wait, begin, NULL) == PL_OK;
    if (r->waits)
        ranks->global_step = 0;
    return r->waits;
}

/* A process died after all ranks were there, or was killed: that may not occur again.  An
 * error that the program reports would, and so would the end of a process that could not
 * even join.  The step is the one that the error names: others may have come
 * further.  With fewer ranks, restarts are counted from 0. */
bool pl_restarts_try(pl_ranks_t *ranks)
{
    pl_restarts_t *r = ranks->restarts;
    const int code = ranks->error.code;
    const uint64_t step = ranks->failed < 0 ? ranks->global_step
                                            : ranks->rank[ranks->failed].global_step;
    char with[48] = "";
    r->policy.max = r->max;
    if (pl_ranks_have_paused(ranks)) {
        r->policy.count = 0;          /* the rank left out counts as the last that died */
        const uint64_t paused = ranks->global_step;
        if (!begin_after(ranks, pl_restart_policy_add(&r->policy, paused, r->left_out)))
            return false;
        pl_log_line(PL_LOG_INFO, -1, pl_actor_name(ranks),
                    "rank %d is started again: the run is saved and continues with %d "
                    "ranks",
                    r->left_out, ranks->max);
        ranks->count = ranks->max;
        return true;
    }
    const bool may_pass = (code == PL_EDIED || code == PL_ESTUCK)
                          && (ranks->links->were_all_there || ranks->links->was_killed);
    const bool leaves = may_pass && rank_leave_out(ranks);
    const int wait = may_pass ? pl_restart_policy_add(&r->policy, step,
                                                      leaves ? -1 : ranks->failed)
                              : -1;
    if (wait < 0 && code != PL_OK)
        pl_restart_policy_report(&r->policy, &step, &ranks->error);
    if (!begin_after(ranks, wait))
        return false;
    const char *plural = ranks->count == 1 ? "" : "s";
    if (ranks->count < ranks->max)
        snprintf(with, sizeof with, " with %d rank%s", ranks->count, plural);
    pl_log_line(PL_LOG_WARNING, -1, pl_actor_name(ranks),
                "%s; all ranks are started again, from the newest checkpoint "
                "(%d of %d%s)",
                ranks->error.text, r->policy.count, (int)r->max, with);
    if (leaves)
        pl_log_line(PL_LOG_WARNING, -1, pl_actor_name(ranks),
                    "rank %d has died again: the run continues with %d rank%s",
                    r->left_out, ranks->count, plural);
    return true;
}

void pl_restarts_begin(void *launcher)
{
    pl_ranks_t *ranks = launcher;
    pl_restarts_t *r = ranks->restarts;
    pl_error_t err = {0};
    if (!r->waits)
        return;
    r->waits = false;
    if (ranks->stop_requested && pl_ranks_outcome(ranks)) {  /* it has paused */
        pl_ranks_answer(ranks);
        return;
    }
    pl_job_t *job = pl_job_again(ranks->job, pl_rank_links_run_dir(ranks->links),
                                 ranks->count, 1, &err);
    if (!job || pl_rank_links_renew(ranks->links, ranks->count, &err) != PL_OK
        || pl_ranks_begin(ranks, job, &err) != PL_OK) {
        pl_object_unref(ranks->outcome);                    /* of a pause: not the end */
        ranks->outcome = NULL;
        ranks->error = err;
        pl_ranks_answer(ranks);
    }
    pl_object_unref(job);
}
