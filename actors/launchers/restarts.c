/* restarts.c - runs that start again when a process has died, as often as is allowed */
#include "actors/launchers/restarts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

enum { FIRST_WAIT_MS = 100, LATER_WAITS = 4, WAIT_MOST_MS = 30000 };
static const int64_t WINDOW = 600 * PL_SECOND;

static void old_forget(pl_restarts_t *r)
{
    int old = 0;
    while (old < r->count && pl_now() - r->one[old].when > WINDOW)
        old++;
    r->count -= old;
    memmove(r->one, r->one + old, (size_t)r->count * sizeof *r->one);
}

/* Says how often it was tried, and how far each time. */
static void all_tell(const pl_restarts_t *r, pl_ranks_t *ranks)
{
    char steps[160] = "";
    size_t length = 0;
    for (int k = 0; k < r->count && length < sizeof steps - 24; k++)
        length += (size_t)snprintf(steps + length, sizeof steps - length, "%" PRIu64 ", ",
                                   r->one[k].global_step);
    if (r->count)
        pl_pass(
            &ranks->error,
            "started again %d times within %d minutes, and failed after steps %s%" PRIu64,
            r->count, (int)(WINDOW / PL_SECOND / 60), steps, ranks->global_step);
}

/* What a process dies of may not come again; what its program says of itself does. */
bool pl_restarts_may(pl_restarts_t *r, pl_ranks_t *ranks, const pl_wires_t *wires,
                     int64_t most, void (*then)(void *launcher))
{
    const int code = ranks->error.code;
    int wait = FIRST_WAIT_MS;
    if ((code != PL_EDIED && code != PL_ESTUCK) || !pl_wires_were_all_there(wires))
        return false;
    old_forget(r);
    if (r->count >= most) {
        all_tell(r, ranks);
        return false;
    }
    for (int k = 0; k < r->count && wait < WAIT_MOST_MS; k++)
        wait *= LATER_WAITS;
    if (pl_after(ranks, wait, then, NULL) != PL_OK)
        return false;
    r->one[r->count].when = pl_now();
    r->one[r->count++].global_step = ranks->global_step;
    ranks->global_step = 0;
    pl_log_line(PL_LOG_WARNING, -1, pl_actor_name(ranks),
                "%s; all ranks are started again, from the newest checkpoint (%d of %d)",
                ranks->error.text, r->count, (int)most);
    return true;
}

void pl_restarts_begin(pl_ranks_t *ranks, pl_wires_t *wires)
{
    pl_error_t err = {0};
    if (ranks->stops) {
        pl_ranks_answer(ranks);
        return;
    }
    pl_job_t *job = pl_job_again(ranks->job, pl_wires_run_dir(wires), &err);
    if (!job || pl_wires_renew(wires, &err) != PL_OK
        || pl_ranks_begin(ranks, job, &err) != PL_OK) {
        ranks->error = err;
        pl_ranks_answer(ranks);
    }
    pl_object_unref(job);
}
