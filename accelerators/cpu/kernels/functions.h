/* functions.h - the functions of functions.k, for loops that the compiler turns into
 * vector code */
#ifndef PL_CPU_FUNCTIONS_H
#define PL_CPU_FUNCTIONS_H

#include <math.h>
#include <stdint.h>

#include "base/half.h"

#define PL_INLINE static inline __attribute__((always_inline))
#define FN PL_INLINE
#include "accelerators/gpu/kernels/functions.k"
#undef FN

#endif
