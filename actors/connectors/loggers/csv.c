/* csv.c - metrics.csv: a row for each record, a column for each name, as in Lightning
 *
 * The names of metrics are known only when they come: validation has others than
 * training.  A new name becomes the last column; the file is then written again, with
 * empty cells in the older rows.  That happens a few times in a run. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "actors/connectors/loggers/loggers.h"
#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_text.h"
#include "formats/append.h"
#include "formats/durable.h"

enum { FIXED = 2 };                                         /* epoch, step */

typedef struct csv_logger {
    pl_append_t file;
    char **name;                                          /* [columns] as in the header */
    int columns, capacity;
    int written;                                            /* columns of the file */
    uint64_t rows;                                          /* of the file */
    uint32_t sum;                                           /* CRC-32C of the rows */
    json_t *records;                                        /* not yet in the file */
} csv_logger_t;

/* ---- Columns ---- */

/* The cell for a name, by RFC 4180; control characters, which could end the row, become
 * spaces. */
static char *cell_of(const char *name)
{
    char *cell = pl_alloc(2 * strlen(name) + 3), *to = cell;
    const bool quoted = name[strcspn(name, ",\"")] != '\0';
    if (!cell)
        return NULL;
    if (quoted)
        *to++ = '"';
    for (; *name; name++) {
        if (*name == '"')
            *to++ = '"';
        *to++ = (unsigned char)*name < ' ' ? ' ' : *name;
    }
    if (quoted)
        *to++ = '"';
    return cell;
}

static int column_add(csv_logger_t *csv, const char *cell, size_t length, pl_error_t *err)
{
    if (PL_GROW(csv->name, csv->columns, csv->capacity) != PL_OK)
        return pl_no_memory(err);
    char *copy = pl_text("%.*s", (int)length, cell);
    if (!copy)
        return pl_no_memory(err);
    csv->name[csv->columns++] = copy;
    return PL_OK;
}

/* ---- The file of a resumed run ---- */

/* Reads a file line by line. */
typedef struct line_reader {
    FILE *file;
    char *text;                                             /* [length] of this line */
    size_t length, capacity;
    int64_t end;                                            /* of the line in the file */
    bool failed;                                            /* no memory */
} line_reader_t;

static void lines_close(line_reader_t *lines)
{
    pl_free(lines->text);
    if (lines->file)
        fclose(lines->file);
}

/* Reads the next whole line, without its end; false if there is none. */
static bool line_next(line_reader_t *lines)
{
    int c = EOF;
    lines->length = 0;
    while (lines->file && (c = getc_unlocked(lines->file)) != EOF && c != '\n') {
        if (lines->length == lines->capacity) {
            char *larger = pl_resize(lines->text, 2 * lines->capacity + 256);
            lines->failed = !larger;
            if (!larger)
                return false;
            lines->text = larger;
            lines->capacity = 2 * lines->capacity + 256;
        }
        lines->text[lines->length++] = (char)c;
    }
    lines->end += c == '\n' ? (int64_t)lines->length + 1 : 0;
    return c == '\n';
}

/* Adds a row to the CRC-32C of the rows before, without the empty cells at its end: new
 * columns add such cells to older rows. */
static uint32_t sum_with(uint32_t sum, const char *row, size_t length)
{
    while (length && (row[length - 1] == ',' || row[length - 1] == '\n'))
        length--;
    return pl_crc32c(pl_crc32c(sum, row, length), "\n", 1);
}

/* Reads the header, and finds the end of the first `keep` rows. */
static int file_scan(csv_logger_t *csv, const char *path, uint64_t keep, int64_t *end,
                     pl_error_t *err)
{
    line_reader_t lines = {.file = fopen(path, "re")};
    *end = 0;
    csv->rows = csv->sum = 0;
    if (!lines.file)
        return errno == ENOENT ? PL_OK : pl_fail(err, PL_EIO, "%s: %m", path);
    int code = PL_OK;
    bool quoted = false;
    size_t from = 0;
    if (line_next(&lines)) {                             /* the cells keep their quotes */
        for (size_t k = 0; k <= lines.length && code == PL_OK; k++) {
            quoted ^= k < lines.length && lines.text[k] == '"';
            if (k < lines.length && (quoted || lines.text[k] != ','))
                continue;
            code = column_add(csv, lines.text + from, k - from, err);
            from = k + 1;
        }
        csv->written = csv->columns;
    }
    while (code == PL_OK && csv->rows < keep && line_next(&lines)) {
        csv->sum = sum_with(csv->sum, lines.text, lines.length);
        csv->rows++;
    }
    *end = lines.end;
    if (lines.failed)
        code = pl_no_memory(err);
    lines_close(&lines);
    return code;
}

static void columns_forget(csv_logger_t *csv)
{
    for (int k = 0; k < csv->columns; k++)
        pl_free(csv->name[k]);
    csv->columns = csv->written = 0;
}

static void csv_close(void *self, const char *status)
{
    csv_logger_t *csv = self;
    (void)status;
    columns_forget(csv);
    pl_free(csv->name);
    json_decref(csv->records);
    pl_append_release(&csv->file);
    *csv = (csv_logger_t){0};
}

/* Of an older run the file has the rows up to the position "ROWS CRC32C"; "": all rows.
 * A file with other rows is put aside. */
static int csv_open(void *self, const pl_log_run_t *run, pl_error_t *err)
{
    csv_logger_t *csv = self;
    int64_t end = -1;
    char *path = pl_text("%s/metrics.csv", run->run_dir);
    csv->records = path ? json_array() : NULL;
    unsigned long long keep = run->has_position ? 0 : UINT64_MAX;
    unsigned sum = 0;
    const int parts = sscanf(run->position, "%llu %x", &keep, &sum);
    int code = csv->records ? file_scan(csv, path, keep, &end, err) : pl_no_memory(err);
    if (code == PL_OK && parts == 2 && csv->rows == keep && csv->sum != sum) {
        columns_forget(csv);
        keep = pl_put_log_aside(path) ? 0 : UINT64_MAX;
        code = file_scan(csv, path, keep, &end, err);
    } else if (code == PL_OK && run->behind) {
        columns_forget(csv);
        keep += run->behind;
        code = file_scan(csv, path, keep, &end, err);
    }
    if (code == PL_OK && csv->rows < keep && keep != UINT64_MAX)
        pl_warn_lost_lines(path);
    if (code == PL_OK)
        code = pl_append_open(&csv->file, path, end, err);
    if (code == PL_OK && csv->columns == 0) {
        code = column_add(csv, "epoch", strlen("epoch"), err);
        if (code == PL_OK)
            code = column_add(csv, "step", strlen("step"), err);
    }
    pl_text_free(path);
    if (code != PL_OK)
        csv_close(csv, "");
    return code;
}

/* ---- Rows ---- */

/* Makes a column for each new metric, and keeps the values under the names of the
 * columns. */
static int csv_log(void *self, const pl_record_t *record, pl_error_t *err)
{
    csv_logger_t *csv = self;
    json_t *metrics = pl_json_read(record->metrics, strlen(record->metrics), "metrics",
                                   err);
    if (!metrics)
        return PL_EFORMAT;
    json_t *cells = json_object();
    const char *name;
    json_t *value;
    int code = cells ? PL_OK : pl_no_memory(err);
    json_object_foreach(metrics, name, value) {
        char *cell = code == PL_OK ? cell_of(name) : NULL;
        if (code == PL_OK && (!cell || json_object_set(cells, cell, value) != 0))
            code = pl_no_memory(err);
        int k = 0;
        while (code == PL_OK && k < csv->columns && strcmp(csv->name[k], cell))
            k++;
        if (code == PL_OK && k == csv->columns)
            code = column_add(csv, cell, strlen(cell), err);
        pl_free(cell);
    }
    json_decref(metrics);
    json_t *kept = json_pack("{s:I,s:I,s:o}", "epoch", (json_int_t)record->epoch, "step",
                             (json_int_t)record->global_step, "cells", cells);
    if (code == PL_OK && json_array_append(csv->records, kept) != 0)
        code = pl_no_memory(err);
    json_decref(kept);
    return code;
}

static int add_text(csv_logger_t *csv, const char *text, pl_error_t *err)
{
    return pl_append_add(&csv->file, text, strlen(text), err);
}

/* ---- New columns ---- */

/* Writes the file with all columns: the new header, then the rows with an empty cell for
 * each new column. */
static int file_rewrite(csv_logger_t *csv, pl_error_t *err)
{
    pl_durable_t file;
    const size_t count = (size_t)(csv->columns - csv->written);
    char *end = pl_alloc(count + 2);
    int code = end ? pl_durable_open(&file, csv->file.path, err) : pl_no_memory(err);
    if (code != PL_OK) {
        pl_free(end);
        return code;
    }
    memset(end, ',', count);
    end[count] = '\n';
    for (int k = 0; k < csv->columns && code == PL_OK; k++) {
        code = pl_durable_write(&file, csv->name[k], strlen(csv->name[k]), err);
        if (code == PL_OK)
            code = pl_durable_write(&file, k + 1 < csv->columns ? "," : "\n", 1, err);
    }
    if (code == PL_OK) {
        line_reader_t lines = {.file = fopen(csv->file.path, "re")};
        bool there = line_next(&lines);
        for (uint64_t row = 0; row < csv->rows && code == PL_OK; row++) {
            there = there && line_next(&lines);
            if (there)
                code = pl_durable_write(&file, lines.text, lines.length, err);
            else
                code = pl_fail(err, PL_EIO, "%s: row %llu is missing", csv->file.path,
                               (unsigned long long)row + 1);
            if (code == PL_OK)
                code = pl_durable_write(&file, end, strlen(end), err);
        }
        if (lines.failed)
            code = pl_no_memory(err);
        lines_close(&lines);
    }
    pl_free(end);
    if (code == PL_OK)
        code = pl_durable_commit(&file, err);
    else
        pl_durable_abandon(&file);
    if (code == PL_OK)
        csv->written = csv->columns;
    return code;
}

static int csv_flush(void *self, pl_error_t *err)
{
    csv_logger_t *csv = self;
    size_t count = json_array_size(csv->records);
    int code = count && csv->columns > csv->written ? file_rewrite(csv, err) : PL_OK;
    uint32_t sum = csv->sum;
    for (size_t k = 0; k < count && code == PL_OK; k++) {
        size_t from = csv->file.length;
        const json_t *record = json_array_get(csv->records, k),
                     *epoch = json_object_get(record, "epoch"),
                     *step = json_object_get(record, "step"),
                     *cells = json_object_get(record, "cells");
        char *start = pl_text("%lld,%lld", (long long)json_integer_value(epoch),
                              (long long)json_integer_value(step));
        code = start ? add_text(csv, start, err) : pl_no_memory(err);
        for (int column = FIXED; column < csv->columns && code == PL_OK; column++) {
            const json_t *value = json_object_get(cells, csv->name[column]);
            char *text = json_is_number(value)
                             ? pl_json_write(value, PL_JSON_COMPACT)
                             : pl_text(json_is_null(value) ? "nan" : "");
            code = text ? add_text(csv, ",", err) : pl_no_memory(err);
            if (code == PL_OK)
                code = add_text(csv, text, err);
            pl_text_free(text);
        }
        pl_text_free(start);
        if (code == PL_OK)
            code = add_text(csv, "\n", err);
        sum = sum_with(sum, csv->file.gathered + from, csv->file.length - from);
    }
    json_array_clear(csv->records);
    if (code == PL_OK)
        code = pl_append_flush(&csv->file, err);
    else
        csv->file.length = 0;
    if (code == PL_OK) {
        csv->rows += count;
        csv->sum = sum;
    }
    return code;
}

static int csv_sync(void *self, pl_error_t *err)
{
    return pl_append_sync(&((csv_logger_t *)self)->file, err);
}

static char *csv_position(const void *self)
{
    const csv_logger_t *csv = self;
    return pl_text("%llu %08x", (unsigned long long)csv->rows, csv->sum);
}

const pl_logger_ops_t pl_csv_logger = {
    .name = "csv",
    .help = "writes metrics.csv: a row for each record, a column for each metric",
    .size = sizeof(csv_logger_t),
    .open = csv_open,
    .log = csv_log,
    .flush = csv_flush,
    .sync = csv_sync,
    .position = csv_position,
    .close = csv_close,
};
