/* fuzz_idx.c - any bytes as an IDX file */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_array_t array;
    pl_error_t err;
    uint8_t last = 0,
            *copy = malloc(size ? size
                                : 1);     /* the reader brings words into order where they
                                             lie */
    if (size)
        memcpy(copy, data, size);
    if (!pl_idx_read(copy, size, "fuzz", &array, &err))
        for (size_t i = 0; i < (size_t)array.count * pl_array_width(array.dtype); i++)
            last ^= ((const volatile uint8_t *)array.data)[i];
    free(copy);
    return last * 0;
}
