/* schedules_counting.c - learning rates that change every so many steps or epochs: step,
 * multi-step, exponential, cosine with restarts
 *
 * They do not depend on how long the run is.  PyTorch's users step them once an epoch,
 * so that is what they count unless told otherwise. */
#include <math.h>
#include <string.h>

#include "strategies/optimizers/optimizer.h"
#include "strategies/optimizers/schedules.h"

static const pl_option_t step_options[] = {
    PL_WARMUP(schedule_t),
    PL_INTERVAL(schedule_t, "\"epoch\""),
    PL_INT(schedule_t, step_size, NULL, "1..", "epochs or steps between two changes"),
    PL_FLOAT(schedule_t, gamma, "0.1", "(0..", "factor of each change"),
    PL_OPTIONS_END,
};

static const pl_option_t multi_step_options[] = {
    PL_WARMUP(schedule_t),
    PL_INTERVAL(schedule_t, "\"epoch\""),
    PL_INTS(schedule_t, milestones, NULL, "0..",
            "epochs or steps at which the rate changes"),
    PL_FLOAT(schedule_t, gamma, "0.1", "(0..", "factor of each change"),
    PL_OPTIONS_END,
};

static const pl_option_t exponential_options[] = {
    PL_WARMUP(schedule_t),
    PL_INTERVAL(schedule_t, "\"epoch\""),
    PL_FLOAT(schedule_t, gamma, NULL, "(0..", "factor of each epoch or step"),
    PL_OPTIONS_END,
};

static const pl_option_t cosine_restarts_options[] = {
    PL_WARMUP(schedule_t),
    PL_INTERVAL(schedule_t, "\"epoch\""),
    PL_FLOOR(schedule_t, "0"),
    PL_INT(schedule_t, t_0, NULL, "1..", "epochs or steps of the first fall"),
    PL_INT(schedule_t, t_mult, "1", "1..",
           "length of each fall as a multiple of the fall before it"),
    PL_OPTIONS_END,
};

/* Epochs, or steps after the warm-up. */
static uint64_t counted(const schedule_t *s, const pl_moment_t *when)
{
    return !strcmp(s->interval, "epoch") ? when->epoch
                                         : pl_since_warmup(s->warmup_steps, when);
}

/* torch's StepLR. */
static double step_factor(const void *self, const pl_moment_t *when)
{
    const schedule_t *s = self;
    const uint64_t changes = counted(s, when) / (uint64_t)s->step_size;
    return pl_warming(s->warmup_steps, when) * pow(s->gamma, (double)changes);
}

/* torch's MultiStepLR. */
static double multi_step_factor(const void *self, const pl_moment_t *when)
{
    const schedule_t *s = self;
    const uint64_t at = counted(s, when);
    int changes = 0;
    for (int k = 0; k < s->milestones.count; k++)
        changes += at >= (uint64_t)s->milestones.value[k];
    return pl_warming(s->warmup_steps, when) * pow(s->gamma, changes);
}

/* torch's ExponentialLR. */
static double exponential_factor(const void *self, const pl_moment_t *when)
{
    const schedule_t *s = self;
    return pl_warming(s->warmup_steps, when) * pow(s->gamma, (double)counted(s, when));
}

/* Loshchilov and Hutter, "SGDR", 2017, equation 5: torch's
 * CosineAnnealingWarmRestarts. */
static double cosine_restarts_factor(const void *self, const pl_moment_t *when)
{
    const schedule_t *s = self;
    uint64_t at = counted(s, when), length = (uint64_t)s->t_0;
    if (s->t_mult == 1)
        at %= length;
    while (at >= length) {
        at -= length;
        if (__builtin_mul_overflow(length, (uint64_t)s->t_mult, &length))
            length = UINT64_MAX;
    }
    return pl_warming(s->warmup_steps, when)
           * pl_above_floor(s->min_lr_ratio, pl_half_cosine((double)at / (double)length));
}

const pl_scheduler_ops_t pl_step_scheduler = {
    .name = "step",
    .help = "multiplies by a factor every step_size epochs",
    .size = sizeof(schedule_t),
    .options = step_options,
    .factor = step_factor,
};

const pl_scheduler_ops_t pl_multi_step_scheduler = {
    .name = "multi_step",
    .help = "multiplies by a factor at given epochs",
    .size = sizeof(schedule_t),
    .options = multi_step_options,
    .factor = multi_step_factor,
};

const pl_scheduler_ops_t pl_exponential_scheduler = {
    .name = "exponential",
    .help = "multiplies by a factor every epoch",
    .size = sizeof(schedule_t),
    .options = exponential_options,
    .factor = exponential_factor,
};

const pl_scheduler_ops_t pl_cosine_restarts_scheduler = {
    .name = "cosine_restarts",
    .help = "falls along half a cosine, again and again",
    .size = sizeof(schedule_t),
    .options = cosine_restarts_options,
    .factor = cosine_restarts_factor,
};
