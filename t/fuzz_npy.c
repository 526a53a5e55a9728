/* fuzz_npy.c - any bytes as an .npy file, or as an .npz archive */
#include <stdint.h>

#include "formats/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_array_t array = {0};
    pl_error_t err;
    const bool is_archive = size > 1 && data[0] == 'P' && data[1] == 'K';
    if (is_archive ? pl_npz_read(data, size, "fuzz", "x", 1 << 20, &array, &err)
                   : pl_npy_read(data, size, "fuzz", &array, &err))
        return 0;
    uint8_t last = 0;
    size_t bytes = (size_t)array.count * pl_array_width(array.dtype);
    for (size_t i = 0; i < bytes; i++)
        last ^= ((const volatile uint8_t *)
                     array.data)[i];         /* every element that is promised is there */
    pl_array_release(&array);
    return last * 0;
}
