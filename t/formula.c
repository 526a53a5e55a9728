/* formula.c - numbers by formula and digests of tensors, as t/data/formula.py makes
 * them */
#include "formula.h"

#include <math.h>

void formula_wave(int64_t count, double seed, double low, double high, double *to)
{
    for (int64_t k = 0; k < count; k++) {
        double i = (double)k;
        to[k] =
            (float)(low + (high - low) * (sin(0.37 * i * i + 1.7 * i + seed) + 1) / 2);
    }
}

digest_t digest_of(const double *values, int64_t count)
{
    digest_t d = {0};
    for (int64_t k = 0; k < count; k++) {
        double i = (double)k;
        d.norm += values[k] * values[k];
        d.sine += values[k] * sin(0.9 * i + 0.2);
        d.cosine += values[k] * cos(1.7 * i);
    }
    d.norm = sqrt(d.norm);
    return d;
}

double digest_distance(digest_t a, digest_t b, double floor)
{
    double largest = fmax(fabs(a.norm - b.norm),
                          fmax(fabs(a.sine - b.sine), fabs(a.cosine - b.cosine)));
    return largest / fmax(b.norm, floor);
}
