/* graph_collectives.c - in-graph collectives: in the middle of a step, for batch norms
 * over all ranks
 *
 * The collective sums in place. Moments are gathered, and each rank combines them in
 * the order of ranks: so only bytes travel, and the bits do not depend on how they are
 * moved. */
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
        for (int k = 0; k < r->objective[objective].collectives; k++) {
            const pl_replica_collective_t *collective =
                &r->objective[objective].collective[k];
            if (collective->how == PL_GRAPH_COLLECTIVE_MOMENTS && collective->count > max)
                max = collective->count;
        }
    return (size_t)max * r->ranks * (size_t)pl_element_bytes(ddp->dtype);
}

static pl_reg_ptr_t collective_place(const pl_ddp_t *ddp,
                                     const pl_replica_collective_t *collective)
{
    return pl_ddp_region(ddp, PL_REGION_COLLECTIVE, (size_t)collective->from);
}

/* ---- moments ---- */

/* Positions of channels, and of their counts of values, in a rank's moments. */
typedef struct rank_moments {
    pl_reg_ptr_t place;                                     /* of rank 0 */
    size_t per_rank, channels;                              /* elements of a rank */
    double n;                                               /* values of all ranks */
} rank_moments_t;

static double moment(const pl_ddp_t *ddp, const rank_moments_t *m, uint32_t rank,
                     size_t k)
{
    return pl_ddp_element(ddp, m->place, rank * m->per_rank + k);
}

static double values(const pl_ddp_t *ddp, const rank_moments_t *m, uint32_t rank)
{
    return moment(ddp, m, rank, 2 * m->channels);
}

/* Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
 * sample variances", 1979: counts weigh the differences of means, however large the
 * means are. */
static void channel_combine(const pl_ddp_t *ddp, const rank_moments_t *m, size_t channel,
                            double *mean_p, double *var_p)
{
    const uint32_t ranks = ddp->replica.ranks;
    double mean = 0, squares = 0;
    for (uint32_t k = 0; k < ranks; k++)
        mean += values(ddp, m, k) * moment(ddp, m, k, channel);
    mean /= m->n;
    for (uint32_t k = 0; k < ranks; k++) {
        const double apart = moment(ddp, m, k, channel) - mean;
        squares += values(ddp, m, k)
                   * (moment(ddp, m, k, m->channels + channel) + apart * apart);
    }
    *mean_p = mean;
    *var_p = squares / m->n;
}

static int moments_combine(const pl_ddp_t *ddp, const pl_replica_collective_t *collective,
                           pl_error_t *err)
{
    const pl_reg_ptr_t to = collective_place(ddp, collective);
    rank_moments_t m = {.place = pl_ddp_control_buffer(ddp, ddp->at.moments),
                        .per_rank = (size_t)collective->count,
                        .channels = (size_t)(collective->count - PL_REGION_ALIGN) / 2};
    for (uint32_t k = 0; k < ddp->replica.ranks; k++)
        m.n += values(ddp, &m, k);
    if (m.n < 2)
        return pl_fail(
            err, PL_EINVAL,
            "batch_norm needs more than one value for each channel to train on, and all "
            "ranks together have %.0f: make data.batch_size larger, or set "
            "data.drop_last to leave out a last batch that is not full",
            m.n);
    for (size_t k = 0; k < m.channels; k++) {
        double mean, var;
        channel_combine(ddp, &m, k, &mean, &var);
        pl_ddp_element_set(ddp, to, k, mean);
        pl_ddp_element_set(ddp, to, m.channels + k, var);
    }
    pl_ddp_element_set(ddp, to, 2 * m.channels, m.n);
    return PL_OK;
}

/* ---- the ranks synchronize ---- */

static int collective_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    const pl_replica_collective_t *collective = point->collective;
    if (collective->how == PL_GRAPH_COLLECTIVE_MOMENTS) {
        const pl_replica_t *r = &ddp->replica;
        const pl_reg_ptr_t own = collective_place(ddp, collective);
        const size_t bytes = (size_t)collective->count
                             * (size_t)pl_element_bytes(ddp->dtype);
        memcpy((char *)ddp->control->data + ddp->at.moments + r->rank * bytes,
               (const char *)own.memory->data + own.offset, bytes);
        return pl_ddp_call_gather(ddp, pl_ddp_control_buffer(ddp, ddp->at.moments),
                                  (size_t)collective->count * r->ranks, ddp->dtype, err);
    }
    return pl_ddp_call_sum(ddp, collective_place(ddp, collective),
                           (size_t)collective->count, ddp->dtype, err);
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
                                   .collective = collective};
    return pl_ddp_sync((pl_ddp_t *)r, &point, err);
}
