/* timing.c - the time of a rank's step, by its stages
 *
 * While a rank waits for others it may itself be stopped, and then the others soon
 * wait for it. No clock tells which rank waited for which. But a rank that runs can
 * note that every few milliseconds: a gap between two notes that is too long does not
 * count as waiting. */
#include <string.h>

#include "base/clock.h"
#include "strategies/replica/train.h"

enum { LOOK_MS = 10 };

void pl_train_spending(pl_replica_t *r)
{
    r->pipeline->since = pl_now();
}

/* Seconds since `since`, which becomes now. */
static double passed(pl_replica_t *r)
{
    const int64_t since = r->pipeline->since;
    pl_train_spending(r);
    return (double)(r->pipeline->since - since) / 1e9;
}

void pl_train_add_timing(pl_replica_t *r, pl_timing_t kind, double forward,
                         double seconds)
{
    pl_pipeline_t *pipeline = r->pipeline;
    const double here = passed(r);
    seconds = seconds > 0 ? seconds : here;
    forward = forward < seconds ? forward : seconds;
    pipeline->passed += here;
    pipeline->ran[PL_TIMING_FORWARD] += forward;
    pipeline->ran[kind] += seconds - forward;
}

/* The times of answers do not tell how long each replay ran: one may wait for the
 * next. The time between replays is divided among all, by their share. */
void pl_train_share(pl_replica_t *r)
{
    pl_pipeline_t *pipeline = r->pipeline;
    double all = 0;
    for (int k = 0; k < PL_TIMINGS; k++)
        all += pipeline->ran[k];
    for (int k = 0; k < PL_TIMINGS && all > 0; k++)
        r->timings[k] += pipeline->passed * pipeline->ran[k] / all;
    pipeline->passed = 0;
    memset(pipeline->ran, 0, sizeof pipeline->ran);
}

/* ---- while the ranks synchronize ---- */

static void presence_check(void *self);

static void presence_check_later(pl_replica_t *r)
{
    r->pipeline->checks_presence = r->pipeline->checks_presence
                                   || pl_after(r, LOOK_MS, presence_check, NULL) == PL_OK;
}

/* Timers may be a bit late. */
static void absence_count(pl_pipeline_t *pipeline)
{
    const int64_t now = pl_now(),
                  late = now - pipeline->last_present - LOOK_MS * PL_MILLISECOND;
    if (late > LOOK_MS * PL_MILLISECOND)
        pipeline->absent += late;
    pipeline->last_present = now;
}

static void presence_check(void *self)
{
    pl_replica_t *r = self;
    r->pipeline->checks_presence = false;
    if (!r->pipeline->is_syncing)
        return;
    absence_count(r->pipeline);
    presence_check_later(r);
}

static void presence_begin(pl_replica_t *r)
{
    r->pipeline->is_syncing = true;
    r->pipeline->last_present = pl_now();
    presence_check_later(r);
}

/* Seconds that it was absent. */
static double presence_end(pl_replica_t *r)
{
    if (r->pipeline->is_syncing)
        absence_count(r->pipeline);
    const double absent = (double)r->pipeline->absent / 1e9;
    r->pipeline->is_syncing = false;
    r->pipeline->absent = 0;
    r->timings[PL_TIMING_ABSENT] += absent;
    return absent;
}

void pl_train_sync_begin(pl_replica_t *r)
{
    if (!r->sync_hooks)
        return;
    pl_train_share(r);
    pl_train_spending(r);
    presence_begin(r);
}

void pl_train_sync_end(pl_replica_t *r)
{
    const double absent = presence_end(r);
    if (r->sync_hooks)
        r->timings[PL_TIMING_COLLECTIVE] += passed(r) - absent;
}

void pl_replica_waits(pl_replica_t *r)
{
    if (r->pipeline && r->sync_hooks && !r->pipeline->is_syncing)
        presence_begin(r);
}

void pl_replica_waited(pl_replica_t *r)
{
    if (r->pipeline && !pl_train_owing(r, PL_STAGES_OF_RANKS))
        presence_end(r);
}
