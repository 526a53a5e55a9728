/* fuzz_safetensors.c - any bytes as a safetensors file */
#include <stdint.h>
#include <stdlib.h>

#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_safetensors_t file;
    pl_error_t err;
    if (pl_safetensors_read(data, size, "fuzz", &file, &err))
        return 0;
    for (int i = 0; i < file.count; i++) {
        const pl_safetensors_tensor_t *tensor = &file.tensor[i];
        if (tensor->size > size)
            abort();
        void *out = malloc(tensor->size ? (size_t)tensor->size : 1);
        pl_safetensors_load(&file, tensor, out, &err);
        free(out);
    }
    pl_safetensors_metadata(&file, "format");
    pl_safetensors_close(&file);
    return 0;
}
