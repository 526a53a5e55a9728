/* schedules.c - how the learning rate moves over a run: constant, linear, cosine, each
 * after a warm-up
 *
 * The warm-up rises from 1/(warmup_steps + 1) in equal steps (nanoGPT's get_lr,
 * torch's LinearLR with that start factor).  What comes after falls to min_lr_ratio at
 * the last step and stays there; while the number of steps is not known it does not
 * fall. */
#include <math.h>

#include "strategies/optimizers/optimizer.h"

typedef struct schedule {
    int64_t warmup_steps;
    double min_lr_ratio;
} schedule_t;

#define WARMUP \
    PL_INT(schedule_t, warmup_steps, "0", "0..", \
           "optimizer steps of rising learning rate")
#define FLOOR \
    PL_FLOAT(schedule_t, min_lr_ratio, "0", "0..1", "last learning rate as a share of lr")

static const pl_option_t constant_options[] = {WARMUP, PL_OPTIONS_END};
static const pl_option_t falling_options[] = {WARMUP, FLOOR, PL_OPTIONS_END};

static bool is_warming(const schedule_t *s, uint64_t step)
{
    return step < (uint64_t)s->warmup_steps;
}

static double warming(const schedule_t *s, uint64_t step)
{
    return (double)(step + 1) / ((double)s->warmup_steps + 1);
}

/* How much of the way after the warm-up is behind `step`: 0 to 1. */
static double progress(const schedule_t *s, uint64_t step, uint64_t total)
{
    const uint64_t warmup = (uint64_t)s->warmup_steps;
    if (total == 0)
        return 0;
    if (total <= warmup || step >= total)
        return 1;
    return (double)(step - warmup) / (double)(total - warmup);
}

static double constant_factor(const void *self, uint64_t step, uint64_t total)
{
    (void)total;
    return is_warming(self, step) ? warming(self, step) : 1;
}

/* torch's LinearLR from 1 to min_lr_ratio. */
static double linear_factor(const void *self, uint64_t step, uint64_t total)
{
    const schedule_t *s = self;
    if (is_warming(s, step))
        return warming(s, step);
    return 1 - (1 - s->min_lr_ratio) * progress(s, step, total);
}

/* Loshchilov and Hutter, "SGDR", 2017, equation 5, without restarts: torch's
 * CosineAnnealingLR. */
static double cosine_factor(const void *self, uint64_t step, uint64_t total)
{
    const schedule_t *s = self;
    if (is_warming(s, step))
        return warming(s, step);
    const double pi = 3.14159265358979323846;
    return s->min_lr_ratio
           + (1 - s->min_lr_ratio) * (1 + cos(pi * progress(s, step, total))) / 2;
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
