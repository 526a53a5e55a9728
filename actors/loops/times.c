/* times.c - what the steps of each of several ranks take, and which rank is slow
 *
 * All wait for the slowest in each step, so what a rank does alone is what counts: how
 * long it waits for the others says how quick it is. */
#include "actors/loops/times.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json_walk.h"
#include "runtime/cargo.h"

enum { OWN = PL_SPENT_KINDS, ROWS };

static const int64_t TELL_EVERY = PL_SECOND;

void pl_times_add(pl_times_t *times, pl_bytes_t spent, int64_t now)
{
    const size_t count = spent.size / sizeof(double);
    const double *seconds = spent.data;
    if (count <= PL_SPENT_KINDS)
        return;
    if (times->capacity < count) {
        pl_free(times->sum);
        times->sum = pl_alloc_array(count, sizeof *times->sum);
        times->capacity = times->sum ? count : 0;
        times->steps = 0;
    }
    if (!times->capacity)
        return;                                    /* out of memory: it is told nothing */
    if (!times->steps++)
        times->since = now;
    for (size_t k = 0; k < count; k++)
        times->sum[k] += seconds[k];
}

/* Milliseconds a step. */
static double value_of(const pl_times_t *times, size_t rank, int row)
{
    const double *sum = times->sum + rank * PL_SPENT_KINDS;
    double seconds = row == OWN ? -sum[PL_SPENT_COLLECTIVE] : sum[row];
    for (int k = 0; row == OWN && k < PL_SPENT_KINDS; k++)
        seconds += sum[k];
    return seconds * 1e3 / (double)times->steps;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct row {
    double min, median, max;
    size_t slowest;
} row_t;

static row_t row_of(const pl_times_t *times, int which, double *value, size_t ranks)
{
    row_t row = {0};
    for (size_t rank = 0; rank < ranks; rank++) {
        value[rank] = value_of(times, rank, which);
        if (value[rank] > value_of(times, row.slowest, which))
            row.slowest = rank;
    }
    qsort(value, ranks, sizeof *value, by_value);
    row.min = value[0];
    row.max = value[ranks - 1];
    row.median = (value[(ranks - 1) / 2] + value[ranks / 2]) / 2;
    return row;
}

static json_t *rows_told(const pl_times_t *times, double *value, size_t ranks)
{
    json_t *all = json_pack("{s:I}", "steps", (json_int_t)times->steps);
    row_t row = {0};
    for (int k = 0; k < ROWS; k++) {
        row = row_of(times, k, value, ranks);
        all = pl_json_with(all, k == OWN ? "own" : pl_spent_names[k],
                           json_pack("{s:f, s:f, s:f, s:I}", "min", row.min, "median",
                                     row.median, "max", row.max, "slowest",
                                     (json_int_t)row.slowest));
    }
    const double spread = row.median > 0 ? (row.max - row.min) / row.median : 0;
    all = pl_json_with(all, "spread", json_real(spread));
    return pl_json_with(all, "slowest", json_integer((json_int_t)row.slowest));
}

json_t *pl_times_tell(pl_times_t *times, int64_t now)
{
    const size_t ranks = times->capacity / PL_SPENT_KINDS;
    double *value;
    if (!times->steps || now - times->since < TELL_EVERY
        || !(value = pl_alloc_array(ranks, sizeof *value)))
        return times->told;
    json_decref(times->told);
    times->told = rows_told(times, value, ranks);
    memset(times->sum, 0, times->capacity * sizeof *times->sum);
    times->steps = 0;
    pl_free(value);
    return times->told;
}

void pl_times_release(pl_times_t *times)
{
    pl_free(times->sum);
    json_decref(times->told);
}
