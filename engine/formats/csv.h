/* csv.h - tables of numbers as comma-separated values (RFC 4180)
 *
 * Fields may be quoted, lines end with LF or CRLF, the first record may hold names. Every
 * field is a finite number. A missing one is an error that names its place, because a
 * guess would be trained on. */
#ifndef PL_FORMATS_CSV_H
#define PL_FORMATS_CSV_H

#include "formats/stream.h"
#include "paceline.h"

typedef enum pl_csv_header {
    PL_CSV_AUTO,                            /* the first record is a header if none of its
                                               fields is a number */
    PL_CSV_YES,
    PL_CSV_NO,
} pl_csv_header_t;

typedef struct pl_csv {
    int64_t rows;
    int columns;
    double *value;                                        /* [rows, columns] */
    int64_t *line;                                        /* [rows] of the file, from 1 */
    char **name;                                          /* [columns]  [no header] */
} pl_csv_t;

/* Reads a table in memory; errors begin with name:line:column, column counting bytes from
 * 1. */
int pl_csv_read(const void *data, size_t size, const char *name, pl_csv_header_t header,
                pl_csv_t *csv, pl_error_t *err);

/* The same of a file, plain or gzip. */
int pl_csv_load(const char *path, size_t limit, pl_csv_header_t header, pl_csv_t *csv,
                pl_error_t *err);

void pl_csv_release(pl_csv_t *csv);

/* The finite number that text[0..length) is, correctly rounded, under every locale; false
 * if it is none: empty, other characters, too large, nan, inf, hexadecimal, or more than
 * 400 characters. *number is then unchanged. */
bool pl_number(const char *text, size_t length, double *number);

#endif
