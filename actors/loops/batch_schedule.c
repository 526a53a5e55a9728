/* batch_schedule.c - what follows which batch of an epoch
 *
 * Options may be as large as numbers go: everything is counted in 64 bits, and what is
 * more than that is no limit. */
#include "actors/loops/batch_schedule.h"

/* [negative: none] */
static uint64_t limit_of(int64_t option)
{
    return option < 0 ? UINT64_MAX : (uint64_t)option;
}

static uint64_t until(uint64_t limit, uint64_t from)
{
    return limit > from ? limit - from : 0;
}

/* A resumed run may have passed its limits: nothing of the epoch is left then. */
uint64_t pl_batch_schedule_begin(pl_batch_schedule_t *schedule, uint32_t epoch,
                                 uint32_t first, uint64_t global_step, uint32_t batches)
{
    const uint64_t max_steps = limit_of(schedule->options->max_steps),
                   max_epochs = limit_of(schedule->options->max_epochs),
                   per_epoch = (batches + schedule->accumulate - 1)
                               / schedule->accumulate;
    const uint64_t epochs = until(max_epochs, epoch);       /* this one and those after */
    uint64_t total;
    schedule->epoch = epoch;
    schedule->first_step = global_step
                           - (first + schedule->accumulate - 1) / schedule->accumulate;
    schedule->batches = batches;
    const uint64_t steps = epochs ? until(max_steps, schedule->first_step) : 0;
    schedule->end = steps < per_epoch ? (uint32_t)(steps * schedule->accumulate)
                                      : batches;
    if (schedule->end < first)
        schedule->end = first;
    if (max_epochs == UINT64_MAX || __builtin_mul_overflow(epochs, per_epoch, &total)
        || __builtin_add_overflow(total, schedule->first_step, &total)
        || total > max_steps)
        total = max_steps;
    if (total < global_step)
        total = global_step;
    return total == UINT64_MAX ? 0 : total;
}

uint64_t pl_batch_schedule_epoch_steps(const pl_batch_schedule_t *schedule)
{
    return (schedule->batches + schedule->accumulate - 1) / schedule->accumulate;
}

uint64_t pl_batch_schedule_epochs(const pl_batch_schedule_t *schedule,
                                  uint64_t total_steps)
{
    const uint64_t per_epoch = pl_batch_schedule_epoch_steps(schedule);
    return (total_steps + per_epoch - 1) / per_epoch;
}

bool pl_batch_schedule_is_step(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    return (batch + UINT64_C(1)) % schedule->accumulate == 0
           || batch + UINT64_C(1) == schedule->end;
}

uint64_t pl_batch_schedule_steps(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    return schedule->first_step + (batch + schedule->accumulate) / schedule->accumulate
           - !pl_batch_schedule_is_step(schedule, batch);
}

uint32_t pl_batch_schedule_micro_batch(const pl_batch_schedule_t *schedule,
                                       uint32_t batch)
{
    return (uint32_t)(batch % schedule->accumulate);
}

static bool multiple(uint64_t step, uint64_t every)
{
    return every && step % every == 0;
}

bool pl_batch_schedule_is_log(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    return pl_batch_schedule_is_step(schedule, batch)
           && multiple(pl_batch_schedule_steps(schedule, batch),
                       (uint64_t)schedule->options->log_every_n_steps);
}

bool pl_batch_schedule_is_hook(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    return pl_batch_schedule_is_step(schedule, batch)
           && pl_intervals_match(&schedule->halts,
                                 pl_batch_schedule_steps(schedule, batch));
}

bool pl_batch_schedule_is_observer_hook(const pl_batch_schedule_t *schedule,
                                        uint32_t batch)
{
    return pl_batch_schedule_is_step(schedule, batch)
           && pl_intervals_match(&schedule->looks,
                                 pl_batch_schedule_steps(schedule, batch));
}

static bool run_ends(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    int64_t epochs = schedule->options->max_epochs, steps = schedule->options->max_steps;
    return batch + 1 == schedule->end
           && ((epochs > 0 && schedule->epoch + UINT64_C(1) >= (uint64_t)epochs)
               || (steps > 0
                   && pl_batch_schedule_steps(schedule, batch) >= (uint64_t)steps));
}

bool pl_batch_schedule_allows_timed_validation(const pl_batch_schedule_t *schedule)
{
    uint64_t every = (uint64_t)schedule->options->check_val_every_n_epoch;
    return schedule->validates
           && (every == 0 || multiple(schedule->epoch + UINT64_C(1), every));
}

/* By the counts alone. */
static bool interval_ends(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    pl_amount_t every = schedule->options->val_check_interval;
    uint64_t before = schedule->options->check_val_every_n_epoch
                          ? 0
                          : (uint64_t)schedule->epoch * schedule->batches;
    if (!pl_batch_schedule_allows_timed_validation(schedule) || every.is_time)
        return false;
    if (every.is_share) {
        uint32_t batches = (uint32_t)(every.value * schedule->batches);
        return (batch + 1) % (batches ? batches : 1) == 0;
    }
    return multiple(before + batch + 1, (uint64_t)every.value);
}

bool pl_batch_schedule_is_validation(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    return interval_ends(schedule, batch)
           || pl_batch_schedule_is_extra_validation(schedule, batch);
}

bool pl_batch_schedule_is_extra_validation(const pl_batch_schedule_t *schedule,
                                           uint32_t batch)
{
    return schedule->validates && run_ends(schedule, batch)
           && !interval_ends(schedule, batch);
}

bool pl_batch_schedule_may_stop(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    uint64_t epochs = schedule->epoch + (uint64_t)(batch + 1 == schedule->batches);
    return epochs >= (uint64_t)schedule->options->min_epochs
           && pl_batch_schedule_steps(schedule, batch)
                  >= (uint64_t)schedule->options->min_steps;
}

/* Where the least that is to be trained is reached within an epoch. */
static bool min_is_reached(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    return schedule->options->min_steps > 0 && pl_batch_schedule_is_step(schedule, batch)
           && pl_batch_schedule_steps(schedule, batch)
                  == (uint64_t)schedule->options->min_steps;
}

bool pl_batch_schedule_is_halt(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    return batch + 1 == schedule->end || pl_batch_schedule_is_validation(schedule, batch)
           || pl_batch_schedule_is_hook(schedule, batch)
           || min_is_reached(schedule, batch);
}
