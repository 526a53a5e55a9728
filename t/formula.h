/* formula.h - numbers by formula and digests of tensors, as t/data/formula.py makes
 * them */
#ifndef T_FORMULA_H
#define T_FORMULA_H

#include <stdint.h>

/* count numbers between low and high that look random; float32 holds them exactly. */
void formula_wave(int64_t count, double seed, double low, double high, double *to);

/* A tensor in three numbers: its norm and two projections. */
typedef struct digest {
    double norm, sine, cosine;
} digest_t;

digest_t digest_of(const double *values, int64_t count);

/* The largest difference of two digests, as a share of the norm (but at least of
 * `floor`). */
double digest_distance(digest_t a, digest_t b, double floor);

#endif
