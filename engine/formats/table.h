/* table.h - tables of cells, from comma-separated values (csv.c), JSON Lines (jsonl.c)
 * and SQLite (sqlite.c) */
#ifndef PL_FORMATS_TABLE_H
#define PL_FORMATS_TABLE_H

#include <jansson.h>

#include "formats/stream.h"
#include "paceline.h"

typedef enum pl_csv_header {
    PL_CSV_AUTO,                            /* the first record is a header if none of its
                                               fields is a number, or if most columns have
                                               numbers below it */
    PL_CSV_YES,
    PL_CSV_NO,
} pl_csv_header_t;

#define PL_CSV_FIND '\1'

/* How comma-separated values (RFC 4180) and their relatives are written.  Fields may be
 * quoted, and lines end with LF or CRLF. */
typedef struct pl_csv_format {
    pl_csv_header_t header;
    char delimiter;                       /* ' ': one or several blanks or tabs
                                             [PL_CSV_FIND: , ; | tab or blanks] */
    char decimal;                         /* '.' or ','  [PL_CSV_FIND] */
    char comment;                         /* first character of lines to leave out; 0:
                                             none  [PL_CSV_FIND: # or % if the file
                                             begins with it] */
    int64_t skip;                         /* lines before the table  [-1: lines at the
                                             beginning with another number of fields] */
    int columns;                          /* of each record  [as many as the first has] */
    int64_t line;                         /* of the file, where the text begins  [1] */
} pl_csv_format_t;

#define PL_CSV_ANY \
    ((pl_csv_format_t){PL_CSV_AUTO, PL_CSV_FIND, PL_CSV_FIND, PL_CSV_FIND, -1, 0, 0})

/* One of several files that are a table together. */
typedef struct pl_table_file {
    const char *name;
    int64_t before;                                         /* lines of those before it */
} pl_table_file_t;

typedef struct pl_table {
    int64_t rows;
    int columns;
    char **cell;                     /* [rows, columns] without quotes, and without blanks
                                        around what is not quoted; "": empty */
    int64_t *line;                   /* [rows] of the file, from 1; of several files they
                                        are counted on */
    char **start;                    /* [rows] where they begin  [NULL: cells are not in
                                        the order of the file] */
    char **name;                     /* [columns]  [no header] */
    pl_csv_format_t format;          /* with what was found */
    int64_t skipped;                 /* lines before the table */
    char *text;                      /* cells and names are there */
    pl_table_file_t *file;           /* [files] in the order of the lines  [one file] */
    int64_t files;
} pl_table_t;

void pl_table_release(pl_table_t *table);

static inline const char *pl_table_cell(const pl_table_t *table, int64_t row, int column)
{
    return table->cell[row * table->columns + column];
}

/* The finite number in a cell, by pl_number_in_groups(); false if it is none. */
bool pl_table_number(const pl_table_t *table, int64_t row, int column, double *number);

enum { PL_PLACE_TEXT = 112 };

/* "LINE" of a line, of several files "FILE:LINE", for errors. */
void pl_table_line(const pl_table_t *table, int64_t line,
                   char place[static PL_PLACE_TEXT]);

/* The same of a cell, with ":COLUMN". */
void pl_table_place(const pl_table_t *table, int64_t row, int column,
                    char place[static PL_PLACE_TEXT]);

/* ---- Comma-separated values ---- */

/* Reads a table in memory; errors begin with name:line:column, column counting bytes from
 * 1. */
int pl_csv_read(const void *data, size_t size, const char *name,
                const pl_csv_format_t *format, pl_table_t *table, pl_error_t *err);

/* The same of a file, plain or compressed. */
int pl_csv_load(const char *path, size_t limit, const pl_csv_format_t *format,
                pl_table_t *table, pl_error_t *err);

/* Refuses data of a known format that is no table: foreign.c.  data: bytes and a zero
 * behind them; name: of the file.  PL_EFORMAT names the format and what to do. */
int pl_foreign_refuse(const char *data, size_t size, const char *name, pl_error_t *err);

/* ---- JSON Lines ---- */

/* A place in JSON Lines: the caller sets name, at and end. */
typedef struct pl_jsonl {
    const char *name;                                       /* for errors */
    const char *at, *end;
    int64_t line;                                         /* of the last object, from 1 */
} pl_jsonl_t;

/* The object of the next line that is not empty, a new reference; NULL with PL_OK: the
 * end.  PL_EFORMAT names file and line. */
int pl_jsonl_next(pl_jsonl_t *lines, json_t **object, pl_error_t *err);

/* Reads an object for each row; the columns are all fields, in the order in which they
 * come.  A field that a line lacks, and null, are empty cells, and all cells together
 * have at most `limit` bytes.  Errors begin with name:line. */
int pl_jsonl_read(const void *data, size_t size, const char *name, size_t limit,
                  pl_table_t *table, pl_error_t *err);

/* The same with the columns of another table first, at whose place they stay; lines count
 * from `line`. */
int pl_jsonl_read_part(const void *data, size_t size, const char *name, int64_t line,
                       const pl_table_t *columns, pl_table_t *table, pl_error_t *err);

/* The same of files, plain or compressed, which are one table in their order; `name`: of
 * the only one, or of the folder that they are in. */
int pl_jsonl_load(const char *name, char *const *path, int64_t files, size_t limit,
                  pl_table_t *table, pl_error_t *err);

/* ---- SQLite ---- */

/* The file is a SQLite database, by its first bytes. */
bool pl_is_sqlite(const char *path);

/* Reads a table or the rows of a query  ["" and "": its only table]; lines are rows from
 * 1.  PL_ENOTFOUND: libsqlite3 is not installed; PL_EINVAL: a query that is not one
 * SELECT, or several tables; PL_EFORMAT: more than `limit` bytes, damage, no such table
 * or column. */
int pl_sqlite_load(const char *path, const char *table, const char *query, size_t limit,
                   pl_table_t *cells, pl_error_t *err);

/* ---- Numbers: number.c ---- */

/* The finite number that text[0..length) is, correctly rounded, under every locale, with
 * `point` between its whole and its fraction; false if it is none: empty, other
 * characters, too large, nan, inf, hexadecimal, or more than 400 characters. *number is
 * then unchanged. */
bool pl_number(const char *text, size_t length, char point, double *number);

/* The same, or digits in groups of three before the point: 1,234,567.8 or, with a decimal
 * comma, 1.234.567,8.  The first group does not begin with 0. */
bool pl_number_in_groups(const char *text, size_t length, char point, double *number);

#endif
