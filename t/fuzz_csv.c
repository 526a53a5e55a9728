/* fuzz_csv.c - any bytes as a table */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "formats/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (pl_csv_header_t header = PL_CSV_AUTO; header <= PL_CSV_NO; header++) {
        pl_csv_t csv;
        pl_error_t err;
        if (pl_csv_read(data, size, "fuzz", header, &csv, &err))
            continue;
        for (int64_t i = 0; i < csv.rows * csv.columns; i++)
            if (!isfinite(csv.value[i]))
                abort();
        pl_csv_release(&csv);
    }
    return 0;
}
