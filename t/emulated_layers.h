/* emulated_layers.h - attention and convolution by loops: the emulated library's */
#ifndef T_EMULATED_LAYERS_H
#define T_EMULATED_LAYERS_H

#include "accelerators/gpu/backend.h"

enum { EMULATED_LAYER_WORKSPACE = 4096 };

double emulated_element(pl_device_ptr_t at, pl_dtype_t dtype, int64_t i);
void emulated_set(pl_device_ptr_t at, pl_dtype_t dtype, int64_t i, double x);
/* In float64; afterwards the workspace has only NaN. */
void emulated_layer_compute(const pl_layer_t *layer,
                            const pl_device_ptr_t at[PL_LAYER_ADDRESSES]);

#endif
