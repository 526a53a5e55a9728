/* batch_schedule.h - what follows which batch of an epoch
 *
 * Known from options and counts alone, before the batch is fetched: timing decides
 * nothing. */
#ifndef PL_LOOPS_BATCH_SCHEDULE_H
#define PL_LOOPS_BATCH_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/intervals.h"
#include "base/run.h"

typedef struct pl_batch_schedule {
    const pl_trainer_options_t *options;
    uint64_t accumulate;               /* batches behind one step; set it before an
                                          epoch begins */
    bool validates;                    /* there is validation data */
    pl_intervals_t halts, looks;       /* of callbacks: that the loop halts for, and that
                                          look on */
    uint32_t epoch;                    /* of which this is */
    uint32_t batches, end;             /* of a whole epoch; of this one: max_steps may cut
                                          it */
    uint64_t first_step;               /* optimizer steps done before it */
} pl_batch_schedule_t;

/* An epoch of so many batches, at its batch `first`, after `global_step` steps of the run
 * -> the steps of the run, 0 when nothing limits them. */
uint64_t pl_batch_schedule_begin(pl_batch_schedule_t *schedule, uint32_t epoch,
                                 uint32_t first, uint64_t global_step, uint32_t batches);

/* Optimizer steps of a whole epoch, and the epochs of a run of so many steps. */
uint64_t pl_batch_schedule_epoch_steps(const pl_batch_schedule_t *schedule);
uint64_t pl_batch_schedule_epochs(const pl_batch_schedule_t *schedule,
                                  uint64_t total_steps);

/* `batch` counts from 0 within the epoch. */
bool pl_batch_schedule_is_step(const pl_batch_schedule_t *schedule, uint32_t batch);
/* Steps done once `batch` and all before it are. */
uint64_t pl_batch_schedule_steps(const pl_batch_schedule_t *schedule, uint32_t batch);
/* Which batch of its step it is, from 0. */
uint32_t pl_batch_schedule_micro_batch(const pl_batch_schedule_t *schedule,
                                       uint32_t batch);
bool pl_batch_schedule_is_log(const pl_batch_schedule_t *schedule, uint32_t batch);
bool pl_batch_schedule_is_hook(const pl_batch_schedule_t *schedule, uint32_t batch);
bool pl_batch_schedule_is_observer_hook(const pl_batch_schedule_t *schedule,
                                        uint32_t batch);
/* Also at the end of the run, so that its result speaks of the final weights. */
bool pl_batch_schedule_is_validation(const pl_batch_schedule_t *schedule, uint32_t batch);
/* That one, where its interval had not ended: nothing may go by it that a longer run
 * would not have seen. */
bool pl_batch_schedule_is_extra_validation(const pl_batch_schedule_t *schedule,
                                           uint32_t batch);
/* Whether the clock may ask for a validation in this epoch. */
bool pl_batch_schedule_allows_timed_validation(const pl_batch_schedule_t *schedule);
/* Once that batch is done a stop request need no longer wait: min_steps, min_epochs. */
bool pl_batch_schedule_may_stop(const pl_batch_schedule_t *schedule, uint32_t batch);
/* Something that the loop halts for. */
bool pl_batch_schedule_is_halt(const pl_batch_schedule_t *schedule, uint32_t batch);

#endif
