/* epoch_schedule.c - what follows which batch of an epoch
 *
 * Options may be as large as numbers go: everything is counted in 64 bits, and a result
 * that does not fit is no limit. */
#include "actors/loops/epoch.h"

static bool is_multiple(uint64_t step, uint64_t every)
{
    return every && step % every == 0;
}

/* A resumed run may be past its limits: then nothing of the epoch is left. */
uint64_t pl_batch_schedule_begin(pl_batch_schedule_t *schedule, uint32_t epoch,
                                 uint32_t first, uint64_t global_step, uint32_t batches)
{
    const pl_trainer_options_t *o = schedule->options;
    const uint64_t max_steps = o->max_steps < 0 ? UINT64_MAX : (uint64_t)o->max_steps,
                   max_epochs = o->max_epochs < 0 ? UINT64_MAX : (uint64_t)o->max_epochs,
                   per_epoch = (batches + schedule->accumulate - 1)
                               / schedule->accumulate;
    /* This epoch and those after it. */
    const uint64_t epochs = max_epochs > epoch ? max_epochs - epoch : 0,
                   val_every = (uint64_t)o->check_val_every_n_epoch;
    uint64_t total;
    schedule->epoch = epoch;
    schedule->epoch_validates = schedule->validates
                                && (val_every == 0
                                    || is_multiple(epoch + UINT64_C(1), val_every));
    schedule->first_step = global_step
                           - (first + schedule->accumulate - 1) / schedule->accumulate;
    schedule->batches = batches;
    schedule->epoch_steps = per_epoch;
    const uint64_t steps = epochs && max_steps > schedule->first_step
                               ? max_steps - schedule->first_step
                               : 0;
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

/* Whether val_check_interval ends with the batch, by counts alone. */
static bool interval_ends(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    const pl_amount_t every = schedule->options->val_check_interval;
    const uint64_t before = schedule->options->check_val_every_n_epoch
                                ? 0
                                : (uint64_t)schedule->epoch * schedule->batches;
    if (!schedule->epoch_validates || every.is_time)
        return false;
    if (every.is_share) {
        const uint32_t batches = (uint32_t)(every.value * schedule->batches);
        return (batch + 1) % (batches ? batches : 1) == 0;
    }
    return is_multiple(before + batch + 1, (uint64_t)every.value);
}

pl_batch_end_t pl_batch_schedule_after(const pl_batch_schedule_t *schedule,
                                       uint32_t batch)
{
    const pl_trainer_options_t *o = schedule->options;
    const uint64_t accumulate = schedule->accumulate,
                   epochs = schedule->epoch + (uint64_t)(batch + 1 == schedule->batches);
    const bool is_last = batch + 1 == schedule->end,
               val_interval_ends = interval_ends(schedule, batch);
    pl_batch_end_t end = {0};
    end.step = is_last || (batch + UINT64_C(1)) % accumulate == 0;
    end.steps = schedule->first_step + (batch + accumulate) / accumulate - !end.step;
    end.log = end.step && is_multiple(end.steps, (uint64_t)o->log_every_n_steps);
    end.hook = end.step && pl_intervals_match(&schedule->halts, end.steps);
    end.observer_hook = end.step && pl_intervals_match(&schedule->looks, end.steps);
    const bool run_ends =
        is_last
        && ((o->max_epochs > 0
             && schedule->epoch + UINT64_C(1) >= (uint64_t)o->max_epochs)
            || (o->max_steps > 0 && end.steps >= (uint64_t)o->max_steps));
    end.extra_validation = schedule->validates && run_ends && !val_interval_ends;
    end.validation = val_interval_ends || end.extra_validation;
    end.may_stop = epochs >= (uint64_t)o->min_epochs
                   && end.steps >= (uint64_t)o->min_steps;
    const bool min_is_reached = o->min_steps > 0 && end.step
                                && end.steps == (uint64_t)o->min_steps;
    end.halt = is_last || end.validation || end.hook || min_is_reached;
    return end;
}
