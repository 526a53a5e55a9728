/* pace.c - how many batches a loop keeps under way
 *
 * The accelerator should never wait for messages, and as few batches as possible should
 * wait in memory for the accelerator.  So: as many as last for some milliseconds, and two
 * where one lasts longer.  This follows the clock and may, because what is computed does
 * not depend on how many are under way. */
#include "actors/loops/pace.h"

#include "base/clock.h"

enum { DEPTH_LEAST = 2, DEPTH_MOST = 32 };
static const int64_t AHEAD = 16 * PL_MILLISECOND, LOOK_EVERY = 2 * PL_MILLISECOND;

void pl_pace_begin(pl_pace_t *pace, int64_t depth)
{
    *pace = (pl_pace_t){.is_fixed = depth > 0,
                        .depth = depth > 0 ? (int)depth : DEPTH_LEAST,
                        .since = pl_now()};
}

void pl_pace_ended(pl_pace_t *pace)
{
    if (pace->is_fixed)
        return;
    int64_t taken = pl_now() - pace->since;
    pace->ended++;
    if (taken < LOOK_EVERY)
        return;
    int64_t depth = AHEAD * pace->ended / taken + 1;
    pace->depth = depth < DEPTH_LEAST  ? DEPTH_LEAST
                  : depth > DEPTH_MOST ? DEPTH_MOST
                                       : (int)depth;
    pl_pace_paused(pace);
}

void pl_pace_paused(pl_pace_t *pace)
{
    pace->since = pl_now();
    pace->ended = 0;
}
