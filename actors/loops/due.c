/* due.c - what is due after which batch of an epoch
 *
 * Options may be as large as numbers go: everything is counted in 64 bits, and what is
 * more than that is no limit. */
#include "actors/loops/due.h"

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
uint64_t pl_due_begin(pl_due_t *due, uint32_t epoch, uint32_t first, uint64_t global_step,
                      uint32_t batches)
{
    const uint64_t max_steps = limit_of(due->options->max_steps),
                   max_epochs = limit_of(due->options->max_epochs),
                   per_epoch = (batches + due->accumulate - 1) / due->accumulate;
    const uint64_t epochs = until(max_epochs, epoch);       /* this one and those after */
    uint64_t total;
    due->epoch = epoch;
    due->first_step = global_step - (first + due->accumulate - 1) / due->accumulate;
    due->batches = batches;
    const uint64_t steps = epochs ? until(max_steps, due->first_step) : 0;
    due->end = steps < per_epoch ? (uint32_t)(steps * due->accumulate) : batches;
    if (due->end < first)
        due->end = first;
    if (max_epochs == UINT64_MAX || __builtin_mul_overflow(epochs, per_epoch, &total)
        || __builtin_add_overflow(total, due->first_step, &total) || total > max_steps)
        total = max_steps;
    if (total < global_step)
        total = global_step;
    return total == UINT64_MAX ? 0 : total;
}

uint64_t pl_due_epoch_steps(const pl_due_t *due)
{
    return (due->batches + due->accumulate - 1) / due->accumulate;
}

uint64_t pl_due_epochs(const pl_due_t *due, uint64_t total_steps)
{
    const uint64_t per_epoch = pl_due_epoch_steps(due);
    return (total_steps + per_epoch - 1) / per_epoch;
}

bool pl_due_step(const pl_due_t *due, uint32_t batch)
{
    return (batch + UINT64_C(1)) % due->accumulate == 0
           || batch + UINT64_C(1) == due->end;
}

uint64_t pl_due_steps(const pl_due_t *due, uint32_t batch)
{
    return due->first_step + (batch + due->accumulate) / due->accumulate
           - !pl_due_step(due, batch);
}

uint32_t pl_due_shard(const pl_due_t *due, uint32_t batch)
{
    return (uint32_t)(batch % due->accumulate);
}

static bool multiple(uint64_t step, uint64_t every)
{
    return every && step % every == 0;
}

bool pl_due_log(const pl_due_t *due, uint32_t batch)
{
    return pl_due_step(due, batch)
           && multiple(pl_due_steps(due, batch),
                       (uint64_t)due->options->log_every_n_steps);
}

bool pl_due_callback(const pl_due_t *due, uint32_t batch)
{
    return pl_due_step(due, batch)
           && pl_intervals_meet(&due->halts, pl_due_steps(due, batch));
}

bool pl_due_look(const pl_due_t *due, uint32_t batch)
{
    return pl_due_step(due, batch)
           && pl_intervals_meet(&due->looks, pl_due_steps(due, batch));
}

static bool run_ends(const pl_due_t *due, uint32_t batch)
{
    int64_t epochs = due->options->max_epochs, steps = due->options->max_steps;
    return batch + 1 == due->end
           && ((epochs > 0 && due->epoch + UINT64_C(1) >= (uint64_t)epochs)
               || (steps > 0 && pl_due_steps(due, batch) >= (uint64_t)steps));
}

bool pl_due_validates_now(const pl_due_t *due)
{
    uint64_t every = (uint64_t)due->options->check_val_every_n_epoch;
    return due->validates && (every == 0 || multiple(due->epoch + UINT64_C(1), every));
}

/* By the counts alone. */
static bool interval_ends(const pl_due_t *due, uint32_t batch)
{
    pl_amount_t every = due->options->val_check_interval;
    uint64_t before = due->options->check_val_every_n_epoch
                          ? 0
                          : (uint64_t)due->epoch * due->batches;
    if (!pl_due_validates_now(due) || every.is_time)
        return false;
    if (every.is_share) {
        uint32_t batches = (uint32_t)(every.value * due->batches);
        return (batch + 1) % (batches ? batches : 1) == 0;
    }
    return multiple(before + batch + 1, (uint64_t)every.value);
}

bool pl_due_validation(const pl_due_t *due, uint32_t batch)
{
    return interval_ends(due, batch) || pl_due_extra_validation(due, batch);
}

bool pl_due_extra_validation(const pl_due_t *due, uint32_t batch)
{
    return due->validates && run_ends(due, batch) && !interval_ends(due, batch);
}

bool pl_due_may_stop(const pl_due_t *due, uint32_t batch)
{
    uint64_t epochs = due->epoch + (uint64_t)(batch + 1 == due->batches);
    return epochs >= (uint64_t)due->options->min_epochs
           && pl_due_steps(due, batch) >= (uint64_t)due->options->min_steps;
}

/* Where the least that is to be trained is reached within an epoch. */
static bool least_is_reached(const pl_due_t *due, uint32_t batch)
{
    return due->options->min_steps > 0 && pl_due_step(due, batch)
           && pl_due_steps(due, batch) == (uint64_t)due->options->min_steps;
}

bool pl_due_decision(const pl_due_t *due, uint32_t batch)
{
    return batch + 1 == due->end || pl_due_validation(due, batch)
           || pl_due_callback(due, batch) || least_is_reached(due, batch);
}
