/* search_result.c - how a search ends: its suggestion, and the trials behind it */
#include "actors/loops/search_result.h"

#include <math.h>

#include "actors/loops/metrics.h"
#include "base/clock.h"
#include "base/error.h"

static char *text_of(const json_t *object, pl_error_t *err)
{
    if (object)
        return pl_metrics_text(object, err);
    pl_no_memory(err);
    return NULL;
}

void pl_search_end(pl_call_t *run, pl_outcome_t *outcome, const pl_search_result_t *found)
{
    pl_error_t err = {0};
    json_t *why = found->trials ? json_pack("{s:o}", "trials", found->trials) : NULL;
    outcome->stopped = found->stopped;
    outcome->seconds = (double)(pl_now() - found->began) / 1e9;
    outcome->metrics = text_of(found->metrics, &err);
    outcome->text = outcome->metrics ? text_of(why, &err) : NULL;
    json_decref(found->metrics);
    json_decref(why);
    if (outcome->text)
        pl_reply_run(run, &(pl_run_reply_t){.outcome = &outcome->object});
    else
        pl_call_fail(run, &err);
}

/* ---- which batch size ---- */

/* Shares of a rate: below the first sizes are not told apart, and one timing that went
 * astray says nothing of the others. */
static const double NOISE_MIN = 0.05, NOISE_MAX = 0.1;
static const double GAIN = 0.1;           /* for which a larger batch is worth its size */

static bool is_as_quick(const pl_size_trial_t *trial, const pl_size_trial_t *quickest)
{
    const double noise = fmax(fmax(trial->noise, quickest->noise), NOISE_MIN);
    return trial->rate >= quickest->rate * (1 - fmin(noise, NOISE_MAX));
}

const pl_size_trial_t *pl_size_fastest(const pl_size_trial_t *trial, int64_t count)
{
    const pl_size_trial_t *best = NULL, *smallest = NULL;
    for (int64_t k = 0; k < count; k++)
        if (trial[k].fits && (!best || trial[k].rate > best->rate))
            best = &trial[k];
    for (int64_t k = 0; k < count; k++)
        if (trial[k].fits && (!smallest || trial[k].size < smallest->size)
            && is_as_quick(&trial[k], best))
            smallest = &trial[k];
    return smallest;
}

/* Generalisation needs steps: at least 50 an epoch, unless the batches would be smaller
 * than the usual ones of 32 samples, and of those at least 4. */
static int64_t size_max(int64_t samples)
{
    enum { STEPS = 50, STEPS_MIN = 4, USUAL = 32 };
    const int64_t few = samples / STEPS_MIN < USUAL ? samples / STEPS_MIN : USUAL;
    if (!samples)
        return INT64_MAX;
    return samples / STEPS > few ? samples / STEPS : few;
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

const pl_size_trial_t *pl_size_suggested(const pl_size_trial_t *trial, int64_t count,
                                         int64_t samples)
{
    const int64_t max = size_max(samples);
    double best = 0;
    for (int64_t k = 0; k < count; k++)
        if (trial[k].fits && trial[k].size <= max)
            best = fmax(best, trial[k].rate);
    const pl_size_trial_t *found = smallest_of(trial, count, max, best * (1 - GAIN));
    return found ? found : smallest_of(trial, count, INT64_MAX, 0);
}
