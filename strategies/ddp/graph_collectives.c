/* graph_collectives.c - in-graph collectives: in the middle of a step, for values of all
 * ranks
 *
 * The collective sums and gathers in place. Moments are gathered, and each rank combines
 * them in the order of ranks: so only bytes travel, and the bits do not depend on how
 * they are moved. */
#include <string.h>

#include "base/error.h"
#include "strategies/ddp/ddp.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"

size_t pl_ddp_moments(const pl_ddp_t *ddp)
{
    const pl_replica_t *r = &ddp->replica;
    int64_t max = 0;
    for (int objective = 0; objective < r->objectives; objective++)
        for (int k = 0; k < r->objective[objective].collectives.count; k++) {
            const pl_replica_collective_t *collective =
                &r->objective[objective].collectives.of[k];
            if (collective->how == PL_GRAPH_COLLECTIVE_MOMENTS && collective->count > max)
                max = collective->count;
        }
    return (size_t)max * r->ranks * (size_t)pl_element_bytes(ddp->dtype);
}

/* ---- moments ---- */

/* Element k of a rank's moments, of which there are `count`: means of channels, their
 * variances, and the number of values. */
static double moment(const pl_ddp_t *ddp, size_t count, uint32_t rank, size_t k)
{
    return pl_ddp_element(ddp, pl_ddp_control_buffer(ddp, ddp->at.moments),
                          rank * count + k);
}

/* Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
 * sample variances", 1979: counts weigh the differences of means, however large the
 * means are. */
static int moments_combine(const pl_ddp_t *ddp, const pl_replica_collective_t *collective,
                           pl_error_t *err)
{
    const pl_reg_ptr_t to = pl_ddp_region(ddp, PL_REGION_COLLECTIVE,
                                          (size_t)collective->from);
    const uint32_t ranks = ddp->replica.ranks;
    const size_t count = (size_t)collective->count,
                 channels = (count - PL_REGION_ALIGN) / 2;
    double n = 0;                                           /* values of all ranks */
    for (uint32_t k = 0; k < ranks; k++)
        n += moment(ddp, count, k, 2 * channels);
    if (n < 2)
        return pl_fail(
            err, PL_EINVAL,
            "batch_norm needs more than one value for each channel to train on, and all "
            "ranks together have %.0f: make data.batch_size larger, or set "
            "data.drop_last to leave out a last batch that is not full",
            n);
    for (size_t c = 0; c < channels; c++) {
        double mean = 0, squares = 0;
        for (uint32_t k = 0; k < ranks; k++)
            mean += moment(ddp, count, k, 2 * channels) * moment(ddp, count, k, c);
        mean /= n;
        for (uint32_t k = 0; k < ranks; k++) {
            const double apart = moment(ddp, count, k, c) - mean;
            squares += moment(ddp, count, k, 2 * channels)
                       * (moment(ddp, count, k, channels + c) + apart * apart);
        }
        pl_ddp_element_set(ddp, to, c, mean);
        pl_ddp_element_set(ddp, to, channels + c, squares / n);
    }
    pl_ddp_element_set(ddp, to, 2 * channels, n);
    return PL_OK;
}

/* ---- the ranks synchronize ---- */

static int collective_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    const pl_replica_t *r = &ddp->replica;
    const size_t count = (size_t)point->collective->count;
    const pl_reg_ptr_t own = pl_ddp_region(ddp, PL_REGION_COLLECTIVE,
                                           (size_t)point->collective->from);
    if (point->collective->how == PL_GRAPH_COLLECTIVE_GATHER)
        return pl_ddp_call_gather(ddp, own, count, 0, ddp->dtype, err);
    if (point->collective->how == PL_GRAPH_COLLECTIVE_SUM)
        return pl_ddp_call_sum(ddp, own, count, ddp->dtype, err);
    const size_t bytes = count * (size_t)pl_element_bytes(ddp->dtype);
    memcpy((char *)ddp->control->data + ddp->at.moments + r->rank * bytes,
           (const char *)own.memory->data + own.offset, bytes);
    return pl_ddp_call_gather(ddp, pl_ddp_control_buffer(ddp, ddp->at.moments),
                              count * r->ranks, 0, ddp->dtype, err);
}

static void collective_end(pl_ddp_t *ddp, pl_sync_point_t *point,
                           const pl_error_t *failure)
{
    pl_error_t err = failure ? *failure : (pl_error_t){0};
    if (!failure && point->collective->how == PL_GRAPH_COLLECTIVE_MOMENTS)
        moments_combine(ddp, point->collective, &err);
    pl_replica_collective_done(&ddp->replica, err.code == PL_OK ? NULL : &err);
}

int pl_ddp_collective(pl_replica_t *r, const pl_replica_collective_t *collective,
                      pl_error_t *err)
{
    const pl_sync_point_t point = {.begin = collective_begin,
                                   .end = collective_end,
                                   .is_within = collective->evaluates,
                                   .collective = collective};
    return pl_ddp_sync((pl_ddp_t *)r, &point, err);
}
