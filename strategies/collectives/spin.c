/* spin.c - how long to look for another rank before sleeping */
#include "strategies/collectives/spin.h"

#include <sched.h>

#include "base/clock.h"
#include "runtime/share.h"

enum { PART_MIN = 16, RANG = 4 };

void pl_spin_init(pl_spin_t *p, int64_t max_us, int ranks)
{
    cpu_set_t mine;
    CPU_ZERO(&mine);
    *p = (pl_spin_t){0};
    if (sched_getaffinity(0, sizeof mine, &mine) == 0
        && (CPU_COUNT(&mine) >= ranks || pl_share_is_taken()))
        p->max = p->now = max_us * 1000;
}

int64_t pl_spin_until(const pl_spin_t *p)
{
    if (!p->max)
        return 0;
    const int64_t until = pl_now() + p->now, rang = p->rang + RANG * p->max;
    return until > rang ? until : rang;
}

void pl_spin_ends(pl_spin_t *p)
{
    if (!p->since)
        p->since = pl_now();
}

void pl_spin_learns(pl_spin_t *p)
{
    const int64_t min = p->max / PART_MIN;
    if (!p->since)
        return;
    if (pl_now() - p->since < 2 * p->max)
        p->now = p->max;
    else
        p->now = p->now / 2 > min ? p->now / 2 : min;
    p->since = 0;
}
