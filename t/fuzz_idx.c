/* fuzz_idx.c - any bytes as an IDX file */
#include <stdint.h>

#include "formats/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_array_t array = {0};
    pl_error_t err;
    uint8_t last = 0;
    if (!pl_idx_read(data, size, "fuzz", &array, &err))
        for (size_t i = 0; i < (size_t)array.count * pl_array_width(array.dtype); i++)
            last ^= ((const volatile uint8_t *)array.data)[i];
    pl_array_release(&array);
    return last * 0;
}
