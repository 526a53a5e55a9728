/* median.h - the median of numbers */
#ifndef PL_MEDIAN_H
#define PL_MEDIAN_H

#include <stddef.h>
#include <stdlib.h>

static inline int pl_compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values, none of them NaN, and returns their median  [0: there are none]. */
static inline double pl_median(double *value, size_t count)
{
    if (!count)
        return 0;
    qsort(value, count, sizeof *value, pl_compare_numbers);
    return (value[(count - 1) / 2] + value[count / 2]) / 2;
}

#endif
