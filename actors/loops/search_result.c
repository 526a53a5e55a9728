/* search_result.c - how a search ends: its suggestion, and the trials behind it */
#include "actors/loops/search_result.h"

#include <math.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"

void pl_search_end(pl_call_t *run, pl_outcome_t *outcome, const pl_search_result_t *found)
{
    pl_error_t err = {0};
    outcome->stopped = found->stopped;
    outcome->seconds = (double)(pl_now() - found->began) / 1e9;
    outcome->metrics = pl_json_to_text(found->metrics, &err);
    outcome->text = pl_json_to_text(
        found->trials ? json_pack("{s:o}", "trials", found->trials) : NULL, &err);
    if (outcome->metrics && outcome->text)
        pl_reply_run(run, &(pl_run_reply_t){.outcome = &outcome->object});
    else
        pl_call_fail(run, &err);
}

/* ---- which batch size ---- */

/* Shares of a rate.  Sizes whose rates differ by less than the first are equally fast.  A
 * single wrong timing does not raise the noise above the second. */
static const double NOISE_MIN = 0.05, NOISE_MAX = 0.1;
static const double GAIN = 0.1;           /* for which a larger batch is worth its size */

const pl_size_trial_t *pl_size_fastest(const pl_size_trial_t *trial, int64_t count)
{
    const pl_size_trial_t *best = NULL, *smallest = NULL;
    for (int64_t k = 0; k < count; k++)
        if (trial[k].fits && (!best || trial[k].rate > best->rate))
            best = &trial[k];
    for (int64_t k = 0; k < count; k++) {
        if (!trial[k].fits || (smallest && trial[k].size >= smallest->size))
            continue;
        const double noise = fmax(fmax(trial[k].noise, best->noise), NOISE_MIN);
        if (trial[k].rate >= best->rate * (1 - fmin(noise, NOISE_MAX)))
            smallest = &trial[k];
    }
    return smallest;
}

static const pl_size_trial_t *smallest_of(const pl_size_trial_t *trial, int64_t count,
                                          int64_t max, double rate)
{
    const pl_size_trial_t *smallest = NULL;
    for (int64_t k = 0; k < count; k++)
        if (trial[k].fits && trial[k].size <= max && trial[k].rate >= rate
            && (!smallest || trial[k].size < smallest->size))
            smallest = &trial[k];
    return smallest;
}

/* Generalization needs steps: at least 50 per epoch, unless batches would then be smaller
 * than the usual 32 samples; of those at least 4. */
const pl_size_trial_t *pl_size_suggested(const pl_size_trial_t *trial, int64_t count,
                                         int64_t samples)
{
    enum { STEPS = 50, STEPS_MIN = 4, USUAL = 32 };
    const int64_t few = samples / STEPS_MIN < USUAL ? samples / STEPS_MIN : USUAL,
                  max = !samples                ? INT64_MAX
                        : samples / STEPS > few ? samples / STEPS
                                                : few;
    double best = 0;
    for (int64_t k = 0; k < count; k++)
        if (trial[k].fits && trial[k].size <= max)
            best = fmax(best, trial[k].rate);
    const pl_size_trial_t *found = smallest_of(trial, count, max, best * (1 - GAIN));
    return found ? found : smallest_of(trial, count, INT64_MAX, 0);
}
