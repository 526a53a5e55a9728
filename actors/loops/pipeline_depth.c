/* pipeline_depth.c - how many batches a loop keeps in flight
 *
 * The accelerator should never wait for messages, and as few batches as possible should
 * wait in memory for the accelerator.  So: as many as last for some milliseconds, and two
 * where one lasts longer.  This follows the clock and may, because what is computed does
 * not depend on how many are under way. */
#include "actors/loops/pipeline_depth.h"

#include "base/clock.h"

enum { DEPTH_MIN = 2, DEPTH_MAX = 32 };
static const int64_t AHEAD = 16 * PL_MILLISECOND, LOOK_EVERY = 2 * PL_MILLISECOND;

void pl_pipeline_depth_begin(pl_pipeline_depth_t *depth, int64_t fixed)
{
    *depth = (pl_pipeline_depth_t){.is_fixed = fixed > 0,
                                   .batches = fixed > 0 ? (int)fixed : DEPTH_MIN,
                                   .since = pl_now()};
}

void pl_pipeline_depth_batch_done(pl_pipeline_depth_t *depth)
{
    if (depth->is_fixed)
        return;
    int64_t taken = pl_now() - depth->since;
    depth->ended++;
    if (taken < LOOK_EVERY)
        return;
    int64_t batches = AHEAD * depth->ended / taken + 1;
    depth->batches = batches < DEPTH_MIN   ? DEPTH_MIN
                     : batches > DEPTH_MAX ? DEPTH_MAX
                                           : (int)batches;
    pl_pipeline_depth_pause(depth);
}

void pl_pipeline_depth_pause(pl_pipeline_depth_t *depth)
{
    depth->since = pl_now();
    depth->ended = 0;
}
