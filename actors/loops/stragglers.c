/* stragglers.c - step times of all ranks, and which rank is the slowest
 *
 * All wait for the slowest in each step, so what a rank does alone is what counts: how
 * long it waits for the others says how quick it is. */
#include "actors/loops/stragglers.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json_path.h"
#include "runtime/payload.h"

enum { OWN = PL_TIMINGS, ROWS };

static const int64_t TELL_EVERY = PL_SECOND;

void pl_stragglers_add(pl_stragglers_t *stragglers, pl_bytes_t timings, int64_t now)
{
    const size_t count = timings.size / sizeof(double);
    const double *seconds = timings.data;
    if (count <= PL_TIMINGS)
        return;
    if (stragglers->capacity < count) {
        pl_free(stragglers->sum);
        stragglers->sum = pl_alloc_array(count, sizeof *stragglers->sum);
        stragglers->capacity = stragglers->sum ? count : 0;
        stragglers->steps = 0;
    }
    if (!stragglers->capacity)
        return;                                    /* out of memory: it is told nothing */
    if (!stragglers->steps++)
        stragglers->since = now;
    for (size_t k = 0; k < count; k++)
        stragglers->sum[k] += seconds[k];
}

/* Milliseconds a step. */
static double value_of(const pl_stragglers_t *stragglers, size_t rank, int row)
{
    const double *sum = stragglers->sum + rank * PL_TIMINGS;
    double seconds = row == OWN ? -sum[PL_TIMING_COLLECTIVE] : sum[row];
    for (int k = 0; row == OWN && k < PL_TIMINGS; k++)
        seconds += sum[k];
    return seconds * 1e3 / (double)stragglers->steps;
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

static row_t row_of(const pl_stragglers_t *stragglers, int which, double *value,
                    size_t ranks)
{
    row_t row = {0};
    for (size_t rank = 0; rank < ranks; rank++) {
        value[rank] = value_of(stragglers, rank, which);
        if (value[rank] > value_of(stragglers, row.slowest, which))
            row.slowest = rank;
    }
    qsort(value, ranks, sizeof *value, by_value);
    row.min = value[0];
    row.max = value[ranks - 1];
    row.median = (value[(ranks - 1) / 2] + value[ranks / 2]) / 2;
    return row;
}

static json_t *rows_reported(const pl_stragglers_t *stragglers, double *value,
                             size_t ranks)
{
    json_t *all = json_pack("{s:I}", "steps", (json_int_t)stragglers->steps);
    row_t row = {0};
    for (int k = 0; k < ROWS; k++) {
        row = row_of(stragglers, k, value, ranks);
        all = pl_json_with(all, k == OWN ? "own" : pl_timing_names[k],
                           json_pack("{s:f, s:f, s:f, s:I}", "min", row.min, "median",
                                     row.median, "max", row.max, "slowest",
                                     (json_int_t)row.slowest));
    }
    const double spread = row.median > 0 ? (row.max - row.min) / row.median : 0;
    all = pl_json_with(all, "spread", json_real(spread));
    return pl_json_with(all, "slowest", json_integer((json_int_t)row.slowest));
}

json_t *pl_stragglers_report(pl_stragglers_t *stragglers, int64_t now)
{
    const size_t ranks = stragglers->capacity / PL_TIMINGS;
    double *value;
    if (!stragglers->steps || now - stragglers->since < TELL_EVERY
        || !(value = pl_alloc_array(ranks, sizeof *value)))
        return stragglers->reported;
    json_decref(stragglers->reported);
    stragglers->reported = rows_reported(stragglers, value, ranks);
    memset(stragglers->sum, 0, stragglers->capacity * sizeof *stragglers->sum);
    stragglers->steps = 0;
    pl_free(value);
    return stragglers->reported;
}

void pl_stragglers_release(pl_stragglers_t *stragglers)
{
    pl_free(stragglers->sum);
    json_decref(stragglers->reported);
}
