/* averaging.c - averages of the weights: an exponential one, and an equal one over the
 * end of a run
 *
 * Until an average begins it is the weights themselves, so that it can be read at any
 * time. Batch norm's running statistics are not weights: those of the training go with
 * the average. */
#include <math.h>
#include <string.h>

#include "strategies/optimizers/optimizer.h"
#include "strategies/optimizers/schedules.h"

typedef struct ema {
    double decay;
    int64_t start_step, every_n_steps;
    bool warmup;
} ema_t;

static const pl_option_t ema_options[] = {
    PL_FLOAT(ema_t, decay, "0.999", "[0..1)", "share of the old average in the new one"),
    PL_BOOL(ema_t, warmup, "false",
            "begin with a smaller decay: (1 + n)/(10 + n) at update n"),
    PL_INT(ema_t, start_step, "0", "0..", "optimizer step after which averaging begins"),
    PL_INT(ema_t, every_n_steps, "1", "1..",
           "optimizer steps between two updates of the average"),
    PL_OPTIONS_END,
};

/* torch.optim.swa_utils.AveragedModel, whose first update copies; TensorFlow's
 * ExponentialMovingAverage has the same warm-up. */
static double ema_share(const void *self, const pl_moment_t *when)
{
    const ema_t *ema = self;
    const uint64_t start = (uint64_t)ema->start_step,
                   every = (uint64_t)ema->every_n_steps;
    if (when->step <= start)
        return 1;
    if ((when->step - start) % every)
        return 0;
    const double n = (double)((when->step - start) / every);
    return 1 - (ema->warmup ? fmin(ema->decay, (1 + n) / (10 + n)) : ema->decay);
}

const pl_averaging_ops_t pl_ema_averaging = {
    .name = "ema",
    .help = "exponential moving average",
    .size = sizeof(ema_t),
    .options = ema_options,
    .share = ema_share,
};

typedef struct swa {
    pl_amount_t start;
    pl_unit_t interval;
    pl_anneal_t annealing_strategy;
    int64_t every, annealing_epochs;
    double swa_lrs;
} swa_t;

static const pl_option_t swa_options[] = {
    PL_AMOUNT(swa_t, start, "0.8",
              "share of the run, or number of epochs or steps, before averaging begins"),
    PL_WORD(swa_t, interval, "\"epoch\"", PL_STEP_OR_EPOCH,
            "whether start, every and annealing_epochs count optimizer steps or epochs"),
    PL_INT(swa_t, every, "1", "1..",
           "epochs or steps between two updates of the average"),
    PL_FLOAT(swa_t, swa_lrs, "null", "0..",
             "learning rate after averaging has begun, in place of the schedule's"),
    PL_INT(swa_t, annealing_epochs, "10", "0..",
           "epochs or steps in which the rate changes to swa_lrs"),
    PL_WORD(swa_t, annealing_strategy, "\"cos\"", PL_ANNEAL_CURVES,
            "curve of that change"),
    PL_OPTIONS_END,
};

/* The epoch or step at which it begins; false: not known yet. */
static bool swa_start(const swa_t *swa, const pl_moment_t *when, uint64_t *start)
{
    const uint64_t total = swa->interval == PL_UNIT_EPOCH ? when->total_epochs
                                                          : when->total_steps;
    const double wanted = swa->start.is_share ? swa->start.value * (double)total
                                              : swa->start.value;
    *start = (uint64_t)wanted;
    return total > 0 || !swa->start.is_share;
}

/* Izmailov et al., "Averaging weights leads to wider optima and better generalization",
 * 2018, algorithm 1: the weights at the end of each epoch count alike. Torch's
 * AveragedModel without a function of its own. */
static double swa_share(const void *self, const pl_moment_t *when)
{
    const swa_t *swa = self;
    const bool epochs = swa->interval == PL_UNIT_EPOCH;
    const uint64_t at = epochs ? when->epoch : when->step, every = (uint64_t)swa->every;
    uint64_t start;
    if (!swa_start(swa, when, &start) || at <= start)
        return 1;                 /* up to the end of the first epoch it is the weights */
    if ((epochs && !when->epoch_ends) || (at - start) % every)
        return 0;
    return 1 / ((double)((at - start) / every) + 1);
}

/* torch.optim.swa_utils.SWALR in the place of the schedule, as Lightning has it. */
static double swa_anneal(const void *self, const pl_moment_t *when, pl_moment_t *from,
                         double *lr)
{
    const swa_t *swa = self;
    const bool epochs = swa->interval == PL_UNIT_EPOCH;
    const uint64_t at = epochs ? when->epoch : when->step;
    const double length = (double)swa->annealing_epochs;
    uint64_t start;
    if (isnan(swa->swa_lrs) || !swa_start(swa, when, &start) || at < start)
        return 0;
    from->epoch = epochs ? start : when->epoch_steps ? start / when->epoch_steps : 0;
    from->step = epochs ? start * when->epoch_steps : start;
    *lr = swa->swa_lrs;
    const double way = length > 0 ? fmin((double)(at - start) / length, 1) : 1;
    return swa->annealing_strategy == PL_ANNEAL_COS ? 1 - pl_half_cosine(way) : way;
}

const pl_averaging_ops_t pl_swa_averaging = {
    .name = "swa",
    .help = "equal average of the weights at the ends of the last epochs",
    .size = sizeof(swa_t),
    .options = swa_options,
    .share = swa_share,
    .anneal = swa_anneal,
};
