/* restart_policy.c - how often something may be started again, and how soon */
#include "actors/launchers/restart_policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

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

bool pl_restart_policy_is_same(pl_restart_policy_t *r, int rank)
{
    old_forget(r);
    return r->count && r->one[r->count - 1].rank == rank;
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
