/* restarts.c - runs that start again when a process has died */
#include "actors/launchers/restarts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run.h"

enum { LOOK_MS = 200 };                      /* between looks at whether the run trains */

/* ---- a rank that is left out, and returns ---- */

/* What is measured is short, and what saves nothing cannot pause. */
static bool may_return(const pl_restarts_t *r)
{
    const pl_job_t *job = r->ranks->job;
    return r->return_after > 0 && pl_job_is_training(job)
           && job->trainer->enable_checkpointing;
}

/* A rank that dies again as soon as it was started again is likely to do so for a
 * while. */
static bool leaves_out(pl_restarts_t *r)
{
    pl_ranks_t *ranks = r->ranks;
    if (ranks->count <= ranks->min || ranks->failed < 0
        || !pl_restart_policy_is_same(&r->policy, ranks->failed))
        return false;
    ranks->count--;
    r->policy.count = 0;
    r->left_out = ranks->failed;
    if (may_return(r)
        && pl_after(ranks, pl_milliseconds(r->return_after), r->look, NULL) == PL_OK)
        r->return_after *= 2;
    return true;
}

/* One may die before the run has paused: so it is looked at until all are back. */
void pl_restarts_look(pl_restarts_t *r)
{
    pl_ranks_t *ranks = r->ranks;
    if (!ranks->run || ranks->broadcasts || ranks->stops || ranks->count == ranks->max)
        return;
    if (ranks->global_step && !ranks->pauses && !ranks->answered && !ranks->ended
        && ranks->error.code == PL_OK)
        pl_ranks_pause(ranks);
    pl_after(ranks, LOOK_MS, r->look, NULL);
}

/* ms; below 0: it may not. */
static bool begins_in(pl_restarts_t *r, int wait)
{
    r->waits = wait >= 0 && pl_after(r->ranks, wait, r->begin, NULL) == PL_OK;
    return r->waits;
}

/* The rank that was left out counts as the last that died. */
static bool takes_back(pl_restarts_t *r)
{
    pl_ranks_t *ranks = r->ranks;
    r->policy.count = 0;
    const int wait = pl_restart_policy_add(&r->policy, ranks->global_step, r->left_out);
    if (!begins_in(r, wait))
        return false;
    pl_log_line(PL_LOG_INFO, -1, pl_actor_name(ranks),
                "rank %d is started again: the run is saved and continues with %d ranks",
                r->left_out, ranks->max);
    ranks->count = ranks->max;
    ranks->global_step = 0;
    return true;
}

/* ---- once more ---- */

/* The cause comes before its effects; restarts are counted from 0 for fewer ranks. */
static void again_tell(const pl_restarts_t *r, bool leaves)
{
    pl_ranks_t *ranks = r->ranks;
    const char *plural = ranks->count == 1 ? "" : "s";
    char with[48] = "";
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
}

/* The step that its error names: others may have come further. */
static uint64_t failed_after(const pl_ranks_t *ranks)
{
    return ranks->failed < 0 ? ranks->global_step
                             : ranks->rank[ranks->failed].global_step;
}

/* What a process dies of may not come again; what its program says of itself does. */
bool pl_restarts_try(pl_restarts_t *r)
{
    pl_ranks_t *ranks = r->ranks;
    const int code = ranks->error.code;
    const uint64_t step = failed_after(ranks);
    r->policy.max = r->max;
    if (pl_ranks_have_paused(ranks))
        return takes_back(r);
    const bool passes = (code == PL_EDIED || code == PL_ESTUCK)
                        && pl_rank_links_were_all_there(ranks->links);
    const bool leaves = passes && leaves_out(r);
    const int failed = leaves ? -1 : ranks->failed;
    const int wait = passes ? pl_restart_policy_add(&r->policy, step, failed) : -1;
    if (wait < 0 && code != PL_OK)
        pl_restart_policy_report(&r->policy, &step, &ranks->error);
    if (!begins_in(r, wait))
        return false;
    ranks->global_step = 0;
    again_tell(r, leaves);
    return true;
}

void pl_restarts_begin(pl_restarts_t *r)
{
    pl_ranks_t *ranks = r->ranks;
    pl_error_t err = {0};
    if (!r->waits)
        return;
    r->waits = false;
    if (ranks->stops && pl_ranks_outcome(ranks)) {          /* it had paused */
        pl_ranks_answer(ranks);
        return;
    }
    pl_job_t *job = pl_job_again(ranks->job, pl_rank_links_run_dir(ranks->links),
                                 ranks->count, 1, &err);
    if (!job || pl_rank_links_renew(ranks->links, ranks->count, &err) != PL_OK
        || pl_ranks_begin(ranks, job, &err) != PL_OK) {
        pl_object_unref(ranks->outcome);             /* of a pause: the run is not over */
        ranks->outcome = NULL;
        ranks->error = err;
        pl_ranks_answer(ranks);
    }
    pl_object_unref(job);
}
