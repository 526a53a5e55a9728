/* replica_follow.c - what follows an optimizer step where ranks meet behind it
 *
 * Ranks may have things in common only after it: then nothing else begins before that is
 * over. */
#include "strategies/replica_rounds.h"

void pl_part_follow(pl_replica_t *r, pl_part_of_round_t *part, double *figures,
                    size_t count)
{
    pl_error_t err = {0};
    const pl_replica_sums_t sums = {.step = part->step,
                                    .number = part->round->number,
                                    .has_samples = r->rounds->has_samples[part->step],
                                    .figures = figures,
                                    .figure_count = count};
    r->rounds->reducing = true;
    pl_rounds_meeting(r);
    if (r->meets->stepped(r, &sums, &err) != PL_OK)
        pl_replica_reduced(r, &err, false);
}
