/* compensated_sum.h - sums of float64 that keep their rounding errors
 *
 * Differences of large sums, such as of squares, keep their digits: a second number has
 * the errors of the additions (Neumaier, "Rundungsfehleranalyse einiger Verfahren zur
 * Summation endlicher Summen", 1974) and, by fma, those of products. */
#ifndef PL_BASE_COMPENSATED_SUM_H
#define PL_BASE_COMPENSATED_SUM_H

#include <math.h>

#include "base/half.h"

typedef struct pl_compensated_sum {
    double sum, rest;                              /* the value is sum + rest; {0} is 0 */
} pl_compensated_sum_t;

static inline void pl_compensated_add(pl_compensated_sum_t *s, double x)
{
    const double sum = s->sum + x, added = sum - s->sum;
    s->rest += (s->sum - (sum - added)) + (x - added);
    s->sum = sum;
}

/* volatile: a compiler that fuses the product with the addition would lose the rounding
 * that fma accounts for. */
static inline void pl_compensated_add_product(pl_compensated_sum_t *s, double a, double b)
{
    const volatile double product = a * b;
    pl_compensated_add(s, product);
    pl_compensated_add(s, fma(a, b, -product));
}

static inline double pl_compensated_value(pl_compensated_sum_t s)
{
    return s.sum + s.rest;
}

/* Splits a sum into float32 numbers of 12 bits that add up to it, largest first.  Parts
 * of many sums may be added one by one, also in float32, as ranks add the metrics of a
 * step: 12 bits are left for the additions. */
enum { PL_COMPENSATED_PARTS = 8 };
static inline void pl_compensated_split(pl_compensated_sum_t s,
                                        float part[PL_COMPENSATED_PARTS])
{
    for (int k = 0; k < PL_COMPENSATED_PARTS; k++) {
        part[k] = pl_round_mantissa((float)pl_compensated_value(s), 12);
        pl_compensated_add(&s, -(double)part[k]);
    }
}

#endif
