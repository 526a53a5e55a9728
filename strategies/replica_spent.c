/* replica_spent.c - what a rank's step takes, by its stages
 *
 * While a rank waits for others it may be stopped itself, and they soon wait for it.  No
 * clock tells who waited for whom, but a rank that runs can say so every few
 * milliseconds: what lies between two such signs, and is too long, is no time that it
 * waited. */
#include <string.h>

#include "base/clock.h"
#include "strategies/replica_rounds.h"

enum { LOOK_MS = 10 };

void pl_rounds_spending(pl_replica_t *r)
{
    r->rounds->since = pl_now();
}

/* Seconds since that, or since the last time. */
static double passed(pl_replica_t *r)
{
    const int64_t since = r->rounds->since;
    pl_rounds_spending(r);
    return (double)(r->rounds->since - since) / 1e9;
}

void pl_rounds_spent(pl_replica_t *r, pl_spent_t kind, double forward, double seconds)
{
    pl_rounds_t *rounds = r->rounds;
    const double here = passed(r);
    seconds = seconds > 0 ? seconds : here;
    forward = forward < seconds ? forward : seconds;
    rounds->passed += here;
    rounds->ran[PL_SPENT_FORWARD] += forward;
    rounds->ran[kind] += seconds - forward;
}

/* When answers come tells nothing of what each ran: one may wait for the next.  What lies
 * between replays is of all, by their share. */
void pl_rounds_share(pl_replica_t *r)
{
    pl_rounds_t *rounds = r->rounds;
    double all = 0;
    for (int k = 0; k < PL_SPENT_KINDS; k++)
        all += rounds->ran[k];
    for (int k = 0; k < PL_SPENT_KINDS && all > 0; k++)
        r->spent[k] += rounds->passed * rounds->ran[k] / all;
    rounds->passed = 0;
    memset(rounds->ran, 0, sizeof rounds->ran);
}

/* ---- while the ranks meet ---- */

static void look(void *self);

static void look_later(pl_replica_t *r)
{
    r->rounds->looks = r->rounds->looks || pl_after(r, LOOK_MS, look, NULL) == PL_OK;
}

/* Timers may be a bit late. */
static void absence_count(pl_rounds_t *rounds)
{
    const int64_t now = pl_now(), late = now - rounds->looked - LOOK_MS * PL_MILLISECOND;
    if (late > LOOK_MS * PL_MILLISECOND)
        rounds->absent += late;
    rounds->looked = now;
}

static void look(void *self)
{
    pl_replica_t *r = self;
    r->rounds->looks = false;
    if (!r->rounds->meeting)
        return;
    absence_count(r->rounds);
    look_later(r);
}

static void looks_begin(pl_replica_t *r)
{
    r->rounds->meeting = true;
    r->rounds->looked = pl_now();
    look_later(r);
}

/* What it was absent since. */
static double looks_end(pl_replica_t *r)
{
    if (r->rounds->meeting)
        absence_count(r->rounds);
    const double absent = (double)r->rounds->absent / 1e9;
    r->rounds->meeting = false;
    r->rounds->absent = 0;
    r->spent[PL_SPENT_ABSENT] += absent;
    return absent;
}

void pl_rounds_meeting(pl_replica_t *r)
{
    if (!r->meets)
        return;
    pl_rounds_share(r);
    pl_rounds_spending(r);
    looks_begin(r);
}

void pl_rounds_met(pl_replica_t *r)
{
    const double absent = looks_end(r);
    if (r->meets)
        r->spent[PL_SPENT_COLLECTIVE] += passed(r) - absent;
}

void pl_replica_waits(pl_replica_t *r)
{
    if (r->rounds && r->meets && !r->rounds->meeting)
        looks_begin(r);
}

void pl_replica_waited(pl_replica_t *r)
{
    if (r->rounds && !r->rounds->reducing)
        looks_end(r);
}
