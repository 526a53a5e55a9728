/* ctc.c - connectionist temporal classification, a call some samples
 *
 * Graves et al., "Connectionist temporal classification", 2006.  States are the labels of
 * a target with a blank before, between and behind them.  Everything is a logarithm of a
 * probability; what cannot be is PL_CTC_NONE, which is finite. */
#include <math.h>
#include <string.h>

#include "accelerators/cpu/kernels/functions.h"
#include "accelerators/cpu/kernels/kernels.h"

static int64_t label_at(const pl_ctc_job_t *job, int64_t sample, int64_t state)
{
    return state % 2 ? job->targets[sample * job->labels + state / 2] : job->blank;
}

/* A label follows the one before it without a blank if they differ. */
static bool may_skip(const pl_ctc_job_t *job, int64_t sample, int64_t state)
{
    return state % 2 && state > 1
           && label_at(job, sample, state) != label_at(job, sample, state - 2);
}

static float at_least(float x)
{
    return x < PL_CTC_NONE ? PL_CTC_NONE : x;               /* NaN stays */
}

/* The logarithm of the probability of a target. */
static float total_of(const pl_ctc_job_t *job, int64_t sample)
{
    const int64_t steps = job->lengths[0][sample], labels = job->lengths[1][sample],
                  width = 2 * job->labels + 1;
    const float *last = job->alphas + (sample * job->steps + steps - 1) * width
                        + 2 * labels;
    if (steps == 0)
        return labels ? PL_CTC_NONE : 0;
    return pl_log_sumf(last[0], labels ? last[-1] : PL_CTC_NONE, PL_CTC_NONE);
}

void KERNEL(ctc)(const void *of, int64_t from, int64_t to)
{
    const pl_ctc_job_t *job = of;
    const int64_t width = 2 * job->labels + 1;
    for (int64_t b = from; b < to; b++) {
        const int64_t steps = job->lengths[0][b], states = 2 * job->lengths[1][b] + 1;
        for (int64_t t = 0; t < job->steps; t++) {
            const float *x = job->x + (b * job->steps + t) * job->classes;
            float *now = job->alphas + (b * job->steps + t) * width;
            const float *past = now - width;
            for (int64_t s = 0; s < width; s++) {
                float sum = PL_CTC_NONE;
                if (t < steps && s < states && t == 0)
                    sum = s < 2 ? 0 : PL_CTC_NONE;
                else if (t < steps && s < states)
                    sum = pl_log_sumf(past[s], s > 0 ? past[s - 1] : PL_CTC_NONE,
                                      may_skip(job, b, s) ? past[s - 2] : PL_CTC_NONE);
                now[s] = t < steps && s < states
                             ? at_least(sum + x[label_at(job, b, s)])
                             : sum;
            }
        }
        const float total = total_of(job, b);
        job->losses[b] = total > PL_CTC_NONE / 2 || total != total ? -total
                         : job->zero_infinity                      ? 0
                                                                   : INFINITY;
    }
}

/* Adds to dx of a step what its states have; betas: what follows each of them. */
static void step_grad(const pl_ctc_job_t *job, int64_t b, int64_t t, const float *betas,
                      float total)
{
    const int64_t states = 2 * job->lengths[1][b] + 1, width = 2 * job->labels + 1;
    const float *alphas = job->alphas + (b * job->steps + t) * width;
    float *dx = job->dx + (b * job->steps + t) * job->classes;
    for (int64_t s = 0; s < states; s++)
        dx[label_at(job, b, s)] -= job->dy[b] * pl_expf(alphas[s] + betas[s] - total);
}

void KERNEL(ctc_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_ctc_job_t *job = of;
    const int64_t width = 2 * job->labels + 1, all = job->steps * job->classes;
    for (int64_t b = from; b < to; b++) {
        const int64_t steps = job->lengths[0][b], states = 2 * job->lengths[1][b] + 1;
        const float total = total_of(job, b);
        float *betas = job->scratch + b * 2 * width, *after = betas + width;
        memset(job->dx + b * all, 0, (size_t)all * sizeof *job->dx);
        if (total <= PL_CTC_NONE / 2)
            continue;
        for (int64_t t = steps - 1; t >= 0; t--) {
            const float *x = job->x + (b * job->steps + t) * job->classes;
            for (int64_t s = 0; s < states; s++) {
                if (t == steps - 1)
                    betas[s] = s + 2 < states ? PL_CTC_NONE : 0;
                else
                    betas[s] = pl_log_sumf(
                        after[s], s + 1 < states ? after[s + 1] : PL_CTC_NONE,
                        s + 2 < states && may_skip(job, b, s + 2) ? after[s + 2]
                                                                  : PL_CTC_NONE);
            }
            step_grad(job, b, t, betas, total);
            for (int64_t s = 0; s < states; s++)
                after[s] = at_least(betas[s] + x[label_at(job, b, s)]);
        }
    }
}
