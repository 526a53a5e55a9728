/* replica_meet.c - figures of a step's batches, and what a rank brings to a meeting of
 * all, before its optimizer's step and behind it
 *
 * A step of several batches is told as a whole: their figures are added up until it
 * ends. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/replica_rounds.h"

size_t pl_figures_before(const pl_replica_t *r, int step)
{
    size_t before = 0;
    for (int k = 0; k < step; k++)
        before += pl_replica_figures(pl_replica_plan_of(r, PL_PLAN_BATCH, k));
    return before;
}

size_t pl_figures_count(const pl_replica_t *r)
{
    return pl_figures_before(r, r->steps) + 2 * (size_t)pl_replica_other_figures(r);
}

int pl_rounds_carry(pl_replica_t *r, pl_error_t *err)
{
    if (!r->rounds->carried)
        r->rounds->carried = pl_alloc_array(pl_figures_count(r), sizeof(double));
    return r->rounds->carried ? PL_OK : pl_no_memory(err);
}

/* Where ranks have met over the batch already, its figures are those of all. */
void pl_part_carry(pl_replica_t *r, const pl_part_of_round_t *part)
{
    pl_rounds_t *rounds = r->rounds;
    double *figures = part->round->figures;
    const size_t from = pl_figures_before(r, part->step),
                 to = pl_figures_before(r, part->step + 1);
    if (!part->round->shard)
        rounds->has_samples[part->step] = false;
    rounds->has_samples[part->step] |= part->round->batch->count > 0;
    if (!part->round->batch->count && !pl_rounds_each(r))
        memset(figures + from, 0, (to - from) * sizeof *figures);
    for (size_t k = from; k < to; k++) {
        figures[k] += part->round->shard ? rounds->carried[k] : 0;
        rounds->carried[k] = figures[k];
    }
}

int pl_part_meet(pl_replica_t *r, pl_part_of_round_t *part, pl_error_t *err)
{
    const size_t from = pl_figures_before(r, part->step),
                 to = pl_figures_before(r, part->step + 1);
    const pl_replica_sums_t sums = {.step = part->step,
                                    .number = part->round->number,
                                    .batch = part->round->shard,
                                    .is_last = part->round->step_due,
                                    .has_samples = r->rounds->has_samples[part->step],
                                    .figures = part->round->figures + from,
                                    .figure_count = to - from};
    r->rounds->reducing = true;
    pl_actor_does(r, part->round->call);
    int code = r->meets->reduce(r, &sums, err);
    r->rounds->reducing &= code == PL_OK;
    return code;
}

/* Ranks may have things in common only behind an optimizer step: then nothing else
 * begins before that is over. */
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
    pl_actor_does(r, part->round->call);
    pl_rounds_meeting(r);
    if (r->meets->stepped(r, &sums, &err) != PL_OK)
        pl_replica_reduced(r, &err, false);
}
