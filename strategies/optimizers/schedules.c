/* schedules.c - the learning-rate schedules that depend on steps and epochs alone */
#include "strategies/optimizers/schedules.h"

#include <math.h>
#include <string.h>

#include "strategies/optimizers/optimizer.h"

/* ---- what schedules share ---- */

double pl_warming(int64_t warmup_steps, const pl_moment_t *when)
{
    if (when->step >= (uint64_t)warmup_steps)
        return 1;
    return (double)(when->step + 1) / ((double)warmup_steps + 1);
}

uint64_t pl_since_warmup(int64_t warmup_steps, const pl_moment_t *when)
{
    const uint64_t warmup = (uint64_t)warmup_steps;
    return when->step > warmup ? when->step - warmup : 0;
}

double pl_above_floor(double min_lr_ratio, double height)
{
    return min_lr_ratio + (1 - min_lr_ratio) * height;
}

double pl_half_cosine(double progress)
{
    return (1 + cos(3.14159265358979323846 * progress)) / 2;
}

/* ---- rates that fall over the whole run ----
 *
 * They end at min_lr_ratio at the last step and stay there. While the number of steps is
 * not known they do not fall. */

static const pl_option_t constant_options[] = {PL_WARMUP(schedule_t), PL_OPTIONS_END};

static const pl_option_t falling_options[] = {
    PL_WARMUP(schedule_t),
    PL_FLOOR(schedule_t, "0"),
    PL_INTERVAL(schedule_t, "\"step\""),
    PL_OPTIONS_END,
};

static const pl_option_t polynomial_options[] = {
    PL_WARMUP(schedule_t),
    PL_FLOOR(schedule_t, "0"),
    PL_INTERVAL(schedule_t, "\"step\""),
    PL_FLOAT(schedule_t, power, "1", "(0..",
             "exponent of the remaining share of the run"),
    PL_OPTIONS_END,
};

static const pl_option_t warmup_stable_decay_options[] = {
    PL_WARMUP(schedule_t),
    PL_FLOOR(schedule_t, "0"),
    PL_AMOUNT(schedule_t, decay_steps, "0.2",
              "share of the run, or optimizer steps, of the fall at the end"),
    PL_WORD(schedule_t, decay_shape, "\"linear\"", PL_DECAY_CURVES,
            "curve of the fall; sqrt: 1 minus the root of the completed share"),
    PL_OPTIONS_END,
};

/* The completed share of the steps after the warm-up: 0 to 1. */
static double progress(const schedule_t *s, const pl_moment_t *when)
{
    const bool epochs = s->interval == PL_UNIT_EPOCH;
    const uint64_t warmup = (uint64_t)s->warmup_steps;
    const uint64_t at = epochs ? when->epoch : when->step;
    const uint64_t from = epochs ? 0 : warmup;
    const uint64_t total = epochs ? when->total_epochs : when->total_steps;
    if (total == 0 || at <= from)
        return 0;
    return at >= total ? 1 : (double)(at - from) / (double)(total - from);
}

static double constant_factor(const void *self, const pl_moment_t *when)
{
    const schedule_t *s = self;
    return pl_warming(s->warmup_steps, when);
}

/* torch's LinearLR from 1 to min_lr_ratio. */
static double linear_factor(const void *self, const pl_moment_t *when)
{
    const schedule_t *s = self;
    return pl_warming(s->warmup_steps, when)
           * pl_above_floor(s->min_lr_ratio, 1 - progress(s, when));
}

/* Loshchilov and Hutter, "SGDR", 2017, equation 5, without restarts: torch's
 * CosineAnnealingLR. */
static double cosine_factor(const void *self, const pl_moment_t *when)
{
    const schedule_t *s = self;
    return pl_warming(s->warmup_steps, when)
           * pl_above_floor(s->min_lr_ratio, pl_half_cosine(progress(s, when)));
}

/* torch's PolynomialLR. */
static double polynomial_factor(const void *self, const pl_moment_t *when)
{
    const schedule_t *s = self;
    return pl_warming(s->warmup_steps, when)
           * pl_above_floor(s->min_lr_ratio, pow(1 - progress(s, when), s->power));
}

/* Hu et al., "MiniCPM", 2024, section 4; shapes: Hägele et al., "Scaling laws and
 * compute-optimal training beyond fixed training durations", 2024, section 3. */
static double warmup_stable_decay_factor(const void *self, const pl_moment_t *when)
{
    const schedule_t *s = self;
    const double total = (double)when->total_steps, at = (double)when->step;
    const double fall = s->decay_steps.is_share ? s->decay_steps.value * total
                                                : s->decay_steps.value;
    double way = total > 0 ? fmin(1, (at - (total - fall)) / fall) : 0, height = 1;
    if (way > 0 && s->decay_shape == PL_CURVE_LINEAR)
        height = 1 - way;
    else if (way > 0)
        height = s->decay_shape == PL_CURVE_SQRT ? 1 - sqrt(way) : pl_half_cosine(way);
    return pl_warming(s->warmup_steps, when) * pl_above_floor(s->min_lr_ratio, height);
}

const pl_scheduler_ops_t pl_constant_scheduler = {
    .name = "constant",
    .help = "the same learning rate after the warm-up",
    .size = sizeof(schedule_t),
    .options = constant_options,
    .factor = constant_factor,
};

const pl_scheduler_ops_t pl_linear_scheduler = {
    .name = "linear",
    .help = "falls in a straight line after the warm-up",
    .size = sizeof(schedule_t),
    .options = falling_options,
    .factor = linear_factor,
};

const pl_scheduler_ops_t pl_cosine_scheduler = {
    .name = "cosine",
    .help = "falls along half a cosine after the warm-up",
    .size = sizeof(schedule_t),
    .options = falling_options,
    .factor = cosine_factor,
};

const pl_scheduler_ops_t pl_polynomial_scheduler = {
    .name = "polynomial",
    .help = "falls with a power of the remaining share of the run",
    .size = sizeof(schedule_t),
    .options = polynomial_options,
    .factor = polynomial_factor,
};

const pl_scheduler_ops_t pl_warmup_stable_decay_scheduler = {
    .name = "warmup_stable_decay",
    .help = "rises, stays, and falls at the end of the run",
    .size = sizeof(schedule_t),
    .options = warmup_stable_decay_options,
    .factor = warmup_stable_decay_factor,
};

/* ---- from one factor to another ---- */

static const pl_option_t ramp_options[] = {
    PL_FLOAT(schedule_t, start_factor, "0.1", "0..", "factor of the first step"),
    PL_FLOAT(schedule_t, end_factor, "1", "0..", "factor at the end, and behind it"),
    PL_AMOUNT(schedule_t, length, "1.0",
              "share of the run, or steps or epochs, from the first factor to the last"),
    PL_WORD(schedule_t, shape, "\"linear\"", PL_RAMP_CURVES, "curve between the two"),
    PL_WORD(schedule_t, interval, "\"step\"", PL_STEP_OR_EPOCH,
            "unit of the length: optimizer steps, or epochs"),
    PL_OPTIONS_END,
};

/* torch's LinearLR and, with equal factors, ConstantLR; total_iters is the length. */
static double ramp_factor(const void *self, const pl_moment_t *when)
{
    const schedule_t *s = self;
    const bool epochs = s->interval == PL_UNIT_EPOCH;
    const double at = (double)(epochs ? when->epoch : when->step),
                 total = (double)(epochs ? when->total_epochs : when->total_steps),
                 length = s->length.is_share ? s->length.value * total : s->length.value;
    double way = at >= length ? 1 : at / length;
    if (s->length.is_share && total == 0)
        way = 0;
    if (s->shape == PL_CURVE_COSINE)
        way = 1 - pl_half_cosine(way);
    return s->start_factor + (s->end_factor - s->start_factor) * way;
}

const pl_scheduler_ops_t pl_ramp_scheduler = {
    .name = "ramp",
    .help = "from one factor to another, up or down",
    .size = sizeof(schedule_t),
    .options = ramp_options,
    .factor = ramp_factor,
};

/* ---- rates that change every so many steps or epochs ----
 *
 * They do not depend on how long the run is. Users of PyTorch step them once an
 * epoch, so they count epochs unless `interval` says otherwise. */

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
    return s->interval == PL_UNIT_EPOCH ? when->epoch
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
