/* fuzz_csv.c - any bytes as a table; the first two choose what is given of its format, or
 * JSON Lines */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/date.h"
#include "formats/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char delimiters[] = {PL_CSV_FIND, ',', ' ', '\t', ';', PL_CSV_FIND};
    static const char points[] = {PL_CSV_FIND, '.', ','};
    pl_table_t csv;
    pl_error_t err;
    if (size < 2)
        return 0;
    const pl_csv_format_t format = {.header = (pl_csv_header_t)(data[0] % 3),
                                    .delimiter = delimiters[data[0] / 3 % 6],
                                    .decimal = points[data[0] / 18 % 3],
                                    .comment = data[1] % 2 ? PL_CSV_FIND : '\0',
                                    .skip = data[1] / 2 % 4 - 1};
    if (data[0] == 0xff) {
        if (pl_jsonl_read(data + 1, size - 1, "fuzz", 1 << 24, &csv, &err) == PL_OK)
            pl_table_release(&csv);
        return 0;
    }
    if (pl_csv_read(data + 2, size - 2, "fuzz", &format, &csv, &err))
        return 0;
    for (int64_t row = 0; row < csv.rows; row++)
        for (int column = 0; column < csv.columns; column++) {
            char place[PL_PLACE_TEXT];
            double number = 0;
            const char *cell = pl_table_cell(&csv, row, column);
            if (cell < csv.text || cell + strlen(cell) > csv.text + size - 2)
                abort();
            for (int order = 0; order < 3; order++)
                pl_date(cell, (pl_date_order_t)order, &number);
            pl_table_number(&csv, row, column, &number);
            if (!isfinite(number))
                abort();
            pl_table_place(&csv, row, column, place);
        }
    pl_table_release(&csv);
    return 0;
}
