/* intervals.c - the intervals, in steps, at which callbacks are called */
#include "actors/intervals.h"

#include <string.h>

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

void pl_intervals_add(pl_intervals_t *intervals, uint64_t steps)
{
    uint64_t *last = &intervals->steps[PL_INTERVALS_MAX - 1];
    for (int k = 0; k < intervals->count; k++)
        if (intervals->steps[k] == steps)
            return;
    if (!steps)
        return;
    if (intervals->count < PL_INTERVALS_MAX)
        intervals->steps[intervals->count++] = steps;
    else
        *last = common_divisor(*last, steps);
}

bool pl_intervals_match(const pl_intervals_t *intervals, uint64_t step)
{
    for (int k = 0; k < intervals->count; k++)
        if (step % intervals->steps[k] == 0)
            return true;
    return false;
}

pl_bytes_t pl_intervals_bytes(const pl_intervals_t *intervals)
{
    return (pl_bytes_t){intervals->steps,
                        (size_t)intervals->count * sizeof *intervals->steps};
}

void pl_intervals_read(pl_intervals_t *intervals, pl_bytes_t bytes)
{
    const char *from = bytes.data;
    *intervals = (pl_intervals_t){0};
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size; at += sizeof(uint64_t)) {
        uint64_t steps;
        memcpy(&steps, from + at, sizeof steps);
        pl_intervals_add(intervals, steps);
    }
}
