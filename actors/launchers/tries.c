/* tries.c - how often something may be started again, and how soon */
#include "actors/launchers/tries.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

enum { FIRST_WAIT_MS = 100, LATER_WAITS = 4, WAIT_MOST_MS = 30000, WINDOW_MINUTES = 10 };

static void old_forget(pl_tries_t *r)
{
    int old = 0;
    while (old < r->count
           && pl_now() - r->one[old].when > WINDOW_MINUTES * 60 * PL_SECOND)
        old++;
    r->count -= old;
    memmove(r->one, r->one + old, (size_t)r->count * sizeof *r->one);
}

int pl_tries_add(pl_tries_t *r, uint64_t global_step, int rank)
{
    int wait = FIRST_WAIT_MS;
    old_forget(r);
    if (r->count >= r->most || r->count >= PL_TRIES_MOST)
        return -1;
    for (int k = 0; k < r->count && wait < WAIT_MOST_MS; k++)
        wait *= LATER_WAITS;
    r->one[r->count++] = (pl_try_t){pl_now(), global_step, rank};
    return wait < WAIT_MOST_MS ? wait : WAIT_MOST_MS;
}

bool pl_tries_is_same(pl_tries_t *r, int rank)
{
    old_forget(r);
    return r->count && r->one[r->count - 1].rank == rank;
}

void pl_tries_tell(const pl_tries_t *r, const uint64_t *global_step, pl_error_t *error)
{
    char steps[160] = "";
    size_t length = 0;
    for (int k = 0; global_step && k < r->count && length < sizeof steps - 48; k++)
        length += (size_t)snprintf(steps + length, sizeof steps - length, "%" PRIu64 ", ",
                                   r->one[k].global_step);
    if (global_step)
        snprintf(steps + length, sizeof steps - length, "%" PRIu64, *global_step);
    if (r->count)
        pl_pass(error, "started again %d time%s within %d minutes%s%s", r->count,
                r->count == 1 ? "" : "s", WINDOW_MINUTES,
                global_step ? ", and failed after steps " : "", steps);
}
