/* restarts.c - runs that start again when a process has died, as often as is allowed */
#include "actors/launchers/restarts.h"

#include "base/error.h"
#include "base/log.h"

/* What dies again as soon as it was started again will go on to do so. */
static bool leaves_out(pl_tries_t *tries, pl_ranks_t *ranks)
{
    if (ranks->count <= ranks->least || ranks->failed < 0
        || !pl_tries_is_same(tries, ranks->failed))
        return false;
    ranks->count--;
    tries->count = 0;
    pl_log_line(PL_LOG_WARNING, -1, pl_actor_name(ranks),
                "rank %d has died again: the run goes on with %d ranks", ranks->failed,
                ranks->count);
    return true;
}

/* What a process dies of may not come again; what its program says of itself does. */
bool pl_restarts_may(pl_tries_t *tries, pl_ranks_t *ranks, const pl_wires_t *wires,
                     int64_t most, void (*then)(void *launcher))
{
    const int code = ranks->error.code;
    if ((code != PL_EDIED && code != PL_ESTUCK) || !pl_wires_were_all_there(wires))
        return false;
    const int who = leaves_out(tries, ranks) ? -1 : ranks->failed;
    tries->most = most;
    const int wait = pl_tries_add(tries, ranks->global_step, who);
    if (wait < 0)
        pl_tries_tell(tries, &ranks->global_step, &ranks->error);
    if (wait < 0 || pl_after(ranks, wait, then, NULL) != PL_OK)
        return false;
    ranks->global_step = 0;
    pl_log_line(PL_LOG_WARNING, -1, pl_actor_name(ranks),
                "%s; all ranks are started again, from the newest checkpoint (%d of %d)",
                ranks->error.text, tries->count, (int)most);
    return true;
}

void pl_restarts_begin(pl_ranks_t *ranks, pl_wires_t *wires)
{
    pl_error_t err = {0};
    if (ranks->stops) {
        pl_ranks_answer(ranks);
        return;
    }
    pl_job_t *job = pl_job_again(ranks->job, pl_wires_run_dir(wires), ranks->count, 1,
                                 &err);
    if (!job || pl_wires_renew(wires, ranks->count, &err) != PL_OK
        || pl_ranks_begin(ranks, job, &err) != PL_OK) {
        ranks->error = err;
        pl_ranks_answer(ranks);
    }
    pl_object_unref(job);
}
