/* one_cycle.c - one rise to the largest learning rate and one fall far below the first
 *
 * torch's OneCycleLR with cycle_momentum=False; Smith and Topin, "Super-convergence",
 * 2018.  The optimizer's lr is the largest.  Where the length of the run is not known it
 * stays at the first. */
#include <math.h>
#include <string.h>

#include "strategies/optimizers/optimizer.h"
#include "strategies/optimizers/schedules.h"

typedef struct one_cycle {
    double pct_start, div_factor, final_div_factor;
    const char *anneal_strategy;
    bool three_phase;
} one_cycle_t;

static const pl_option_t one_cycle_options[] = {
    PL_FLOAT(one_cycle_t, pct_start, "0.3", "(0..1)",
             "share of the run in which it rises"),
    PL_TEXT(one_cycle_t, anneal_strategy, "\"cos\"", "cos|linear", "along which curve"),
    PL_FLOAT(one_cycle_t, div_factor, "25", "[1..", "lr divided by this is the first"),
    PL_FLOAT(one_cycle_t, final_div_factor, "1e4", "[1..",
             "the first divided by this is the last"),
    PL_BOOL(one_cycle_t, three_phase, "false",
            "fall to the first as fast as it rose, and then to the last"),
    PL_OPTIONS_END,
};

typedef struct phase {
    double end;                                             /* step at which it is over */
    double from, to;                                        /* factors */
} phase_t;

static double anneal(const one_cycle_t *c, const phase_t *phase, double progress)
{
    if (!strcmp(c->anneal_strategy, "linear"))
        return phase->from + (phase->to - phase->from) * progress;
    return phase->to + (phase->from - phase->to) * pl_half_cosine(progress);
}

static double one_cycle_factor(const void *self, const pl_moment_t *when)
{
    const one_cycle_t *c = self;
    const double first = 1 / c->div_factor, last = first / c->final_div_factor;
    const double total = (double)when->total_steps, rise = c->pct_start * total;
    const double end = fmax(total - 1, 0), at = fmin((double)when->step, end);
    const phase_t two[] = {{rise - 1, first, 1}, {end, 1, last}};
    const phase_t three[] = {{rise - 1, first, 1},
                             {2 * rise - 2, 1, first},
                             {end, first, last}};
    const phase_t *phase = c->three_phase ? three : two;
    double start = 0;
    if (total == 0)
        return first;
    while (at > phase->end && phase->end < end)
        start = (phase++)->end;
    return anneal(c, phase, phase->end > start ? (at - start) / (phase->end - start) : 1);
}

const pl_scheduler_ops_t pl_one_cycle_scheduler = {
    .name = "one_cycle",
    .help = "rises to lr and falls far below where it began",
    .size = sizeof(one_cycle_t),
    .options = one_cycle_options,
    .factor = one_cycle_factor,
};
