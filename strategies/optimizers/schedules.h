/* schedules.h - what schedules share: the warm-up, and the part of a run after it
 *
 * The warm-up rises from 1/(warmup_steps + 1) in equal optimizer steps (nanoGPT's
 * get_lr, torch's LinearLR with that start factor). A schedule that counts steps
 * counts from the end of the warm-up, as torch's SequentialLR does; one that counts
 * epochs counts all of them. */
#ifndef PL_SCHEDULES_H
#define PL_SCHEDULES_H

#include "base/option.h"
#include "paceline.h"

/* Words for the curve of a change. */
#define PL_DECAY_CURVES "linear|cosine|sqrt"
#define PL_RAMP_CURVES "linear|cosine"
typedef enum pl_curve { PL_CURVE_LINEAR, PL_CURVE_COSINE, PL_CURVE_SQRT } pl_curve_t;
#define PL_ANNEAL_CURVES "cos|linear"
typedef enum pl_anneal { PL_ANNEAL_COS, PL_ANNEAL_LINEAR } pl_anneal_t;

/* The options of all schedules; each schedule's table names its own. */
typedef struct schedule {
    int64_t warmup_steps;
    pl_unit_t interval;
    double min_lr_ratio, gamma, power, start_factor, end_factor;
    int64_t step_size, t_0, t_mult;
    pl_ints_t milestones;
    pl_amount_t decay_steps, length;
    pl_curve_t decay_shape, shape;
} schedule_t;

#define PL_WARMUP(component) \
    PL_INT(component, warmup_steps, "0", "0..", \
           "optimizer steps in which the learning rate rises")
#define PL_FLOOR(component, fallback) \
    PL_FLOAT(component, min_lr_ratio, fallback, "0..1", \
             "smallest learning rate as a share of lr")
#define PL_INTERVAL(component, fallback) \
    PL_WORD(component, interval, fallback, PL_STEP_OR_EPOCH, \
            "unit of the schedule: optimizer steps after the warm-up, or epochs")

/* The factor of the warm-up: 1 when it is over. */
double pl_warming(int64_t warmup_steps, const pl_moment_t *when);
/* Optimizer steps since the warm-up, 0 during it. */
uint64_t pl_since_warmup(int64_t warmup_steps, const pl_moment_t *when);
/* From 1 at the top to min_lr_ratio: `height` is 1 to 0. */
double pl_above_floor(double min_lr_ratio, double height);
/* Half a cosine from 1 at 0 to 0 at 1. */
double pl_half_cosine(double progress);

#endif
