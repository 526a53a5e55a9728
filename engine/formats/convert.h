/* convert.h - elements of one type into another, fast enough to be done for each batch */
#ifndef PL_FORMATS_CONVERT_H
#define PL_FORMATS_CONVERT_H

#include "paceline.h"

/* out[i] = in[i] * scale + shift for i in [0, n). */
void pl_convert_u8_f32(const uint8_t *in, size_t n, float scale, float shift, float *out);

/* n elements of one type into another that holds them (f64 may become f32): any type into
 * itself, u8 and f64 into f32, u8 and i32 into i64.  in and out do not overlap; both are
 * aligned to their elements. */
void pl_convert(pl_dtype_t from, const void *in, pl_dtype_t to, void *out, size_t n);

#endif
