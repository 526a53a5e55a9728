/* bench.c - what the benchmarks share: medians, intervals, a folder, and ending on an
 * error */
#include "t/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "t/tap.h"

void bench_must(int code, const pl_error_t *err)
{
    if (code == PL_OK)
        return;
    fprintf(stderr, "bench: %s\n", err ? err->text : pl_code_text(code));
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double bench_median(double *value, int count)
{
    qsort(value, (size_t)count, sizeof *value, by_value);
    return count % 2 ? value[count / 2] : (value[count / 2 - 1] + value[count / 2]) / 2;
}

void bench_interval(double *value, int count, double *low, double *high)
{
    qsort(value, (size_t)count, sizeof *value, by_value);
    int reach = (int)(0.98 * sqrt(count)) + 1, from = count / 2 - reach,
        to = count / 2 + reach;
    *low = value[from < 0 ? 0 : from];
    *high = value[to < count ? to : count - 1];
}

const char *bench_folder(void)
{
    return tap_folder();
}
