/* one_cycle.c - one rise to the largest learning rate and one fall far below the first
 *
 * torch's OneCycleLR; Smith and Topin, "Super-convergence", 2018. The optimizer's lr
 * is the largest. Momentum falls while the rate rises. If the length of the run is
 * not known both keep their first value. */
#include <math.h>
#include <string.h>

#include "strategies/optimizers/optimizer.h"
#include "strategies/optimizers/schedules.h"

typedef struct one_cycle {
    double pct_start, div_factor, final_div_factor, base_momentum, max_momentum;
    pl_anneal_t anneal_strategy;
    bool three_phase, cycle_momentum;
} one_cycle_t;

static const pl_option_t one_cycle_options[] = {
    PL_FLOAT(one_cycle_t, pct_start, "0.3", "(0..1)",
             "share of the run in which the rate rises"),
    PL_WORD(one_cycle_t, anneal_strategy, "\"cos\"", PL_ANNEAL_CURVES,
            "curve of the rise and of the fall"),
    PL_FLOAT(one_cycle_t, div_factor, "25", "[1..",
             "the first rate is lr divided by this"),
    PL_FLOAT(one_cycle_t, final_div_factor, "1e4", "[1..",
             "the last rate is the first rate divided by this"),
    PL_BOOL(one_cycle_t, three_phase, "false",
            "fall to the first rate as fast as the rise, and then to the last rate"),
    PL_BOOL(one_cycle_t, cycle_momentum, "true",
            "the optimizer's momentum, or Adam's beta1, falls while the rate rises"),
    PL_FLOAT(one_cycle_t, base_momentum, "0.85", "[0..1)",
             "momentum at the largest rate"),
    PL_FLOAT(one_cycle_t, max_momentum, "0.95", "[0..1)",
             "momentum at the first rate and the last"),
    PL_OPTIONS_END,
};

/* The position of a moment in the cycle. */
typedef struct cycle_position {
    bool rises, ends;                          /* it is in the first phase, in the last */
    double progress;                           /* of the phase, 0 to 1 */
} cycle_position_t;

static cycle_position_t place_of(const one_cycle_t *c, const pl_moment_t *when)
{
    const double total = (double)when->total_steps, rise = c->pct_start * total;
    const double end = fmax(total - 1, 0), at = fmin((double)when->step, end);
    const double two[] = {rise - 1, end}, three[] = {rise - 1, 2 * rise - 2, end};
    const double *until = c->three_phase ? three : two;
    double start = 0;
    int phase = 0;
    if (total == 0)
        return (cycle_position_t){.rises = true};
    while (at > until[phase] && until[phase] < end)
        start = until[phase++];
    return (cycle_position_t){.rises = phase == 0,
                              .ends = phase == 1 + c->three_phase,
                              .progress = until[phase] > start
                                              ? (at - start) / (until[phase] - start)
                                              : 1};
}

static double anneal(const one_cycle_t *c, double from, double to, double progress)
{
    if (c->anneal_strategy == PL_ANNEAL_LINEAR)
        return from + (to - from) * progress;
    return to + (from - to) * pl_half_cosine(progress);
}

static double one_cycle_factor(const void *self, const pl_moment_t *when)
{
    const one_cycle_t *c = self;
    const double first = 1 / c->div_factor, last = first / c->final_div_factor;
    const cycle_position_t at = place_of(c, when);
    if (at.rises)
        return anneal(c, first, 1, at.progress);
    return anneal(c, at.ends && c->three_phase ? first : 1, at.ends ? last : first,
                  at.progress);
}

static double one_cycle_momentum(const void *self, const pl_moment_t *when)
{
    const one_cycle_t *c = self;
    const cycle_position_t at = place_of(c, when);
    if (!c->cycle_momentum)
        return NAN;
    if (at.rises)
        return anneal(c, c->max_momentum, c->base_momentum, at.progress);
    if (at.ends && c->three_phase)
        return c->max_momentum;
    return anneal(c, c->base_momentum, c->max_momentum, at.progress);
}

const pl_scheduler_ops_t pl_one_cycle_scheduler = {
    .name = "one_cycle",
    .help = "rises to lr, then falls far below the first rate",
    .size = sizeof(one_cycle_t),
    .options = one_cycle_options,
    .factor = one_cycle_factor,
    .momentum = one_cycle_momentum,
};
