/* gelu.h - gelu_tanh and its slope in float64, for replacements of libraries */
#ifndef T_STAND_IN_GELU_H
#define T_STAND_IN_GELU_H

#include <math.h>

static inline double gelu_inner(double x)
{
    return tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
}

static inline double gelu_of(double x)
{
    return 0.5 * x * (1 + gelu_inner(x));
}

static inline double gelu_slope_at(double x)
{
    const double t = gelu_inner(x);
    return 0.5 * (1 + t)
           + 0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

#endif
