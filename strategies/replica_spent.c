/* replica_spent.c - what a rank's step takes, where ranks tell each other */
#include "base/clock.h"
#include "strategies/replica_rounds.h"

void pl_rounds_spending(pl_replica_t *r)
{
    if (r->meets)
        r->rounds->since = pl_now();
}

void pl_rounds_spent(pl_replica_t *r, pl_spent_t kind, double forward)
{
    const int64_t since = r->rounds->since;
    pl_rounds_spending(r);
    const double seconds = (double)(r->rounds->since - since) / 1e9;
    forward = forward < seconds ? forward : seconds;
    r->spent[PL_SPENT_FORWARD] += forward;
    r->spent[kind] += seconds - forward;
}

void pl_rounds_idle_begins(const pl_replica_t *r)
{
    if (r->meets && !r->rounds->first && !r->rounds->idle_since)
        r->rounds->idle_since = pl_now();
}

void pl_rounds_idle_ends(pl_replica_t *r)
{
    const int64_t since = r->rounds->idle_since;
    r->rounds->idle_since = 0;
    if (since)
        r->spent[PL_SPENT_DATA] += (double)(pl_now() - since) / 1e9;
}

void pl_replica_pauses(pl_replica_t *r)
{
    if (r->rounds)
        r->rounds->idle_since = 0;
}
