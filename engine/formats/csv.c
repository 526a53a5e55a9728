/* csv.c - tables as text: comma-separated values (RFC 4180) and their relatives
 *
 * A scanner takes one field after the other. It first reads the beginning of the file
 * without changing it, to find what the caller leaves open; then it reads everything and
 * ends each cell with a zero byte in place. So a cell costs a pointer and no copy. */
#include "formats/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#define COLUMNS_MAX (1 << 24)

/* ---- fields ---- */

#define BLANKS " \t"

/* A field as it is in the file: between its delimiters or quotes, with doubled quotes. */
typedef struct csv_field {
    char *text;
    size_t length;
    bool quoted, last;                                      /* last of its record */
    int64_t line, column;                                   /* where it starts, from 1 */
} csv_field_t;

typedef struct csv_scan {
    const char *name;
    char *at, *end;
    char *line_start;
    int64_t line;
    pl_table_t table;
    int64_t capacity;                                  /* rows that there is memory for */
    pl_error_t *err;
} csv_scan_t;

#define PLACE "%s:%lld:%lld: "
#define PLACE_OF(s, field) (s)->name, (long long)(field)->line, (long long)(field)->column

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void csv_new_line(csv_scan_t *s)
{
    s->line++;
    s->line_start = s->at;
}

static bool csv_is_delimiter(const csv_scan_t *s, char c)
{
    const char delimiter = s->table.format.delimiter;
    return c == delimiter || (delimiter == ' ' && c == '\t');
}

/* Passes blanks that are no delimiters; runs of blanks are one delimiter. */
static void csv_pass_blanks(csv_scan_t *s)
{
    while (s->at < s->end && is_blank(*s->at)
           && (s->table.format.delimiter == ' ' || !csv_is_delimiter(s, *s->at)))
        s->at++;
}

/* Takes the rest of a quoted field after its first quote, up to one that is not
 * doubled. */
static int csv_take_quoted(csv_scan_t *s, csv_field_t *field)
{
    field->quoted = true;
    field->text = s->at;
    for (; s->at < s->end; s->at++) {
        if (*s->at == '\n') {
            s->at++;
            csv_new_line(s);
            s->at--;
        }
        if (*s->at != '"')
            continue;
        if (s->at + 1 == s->end || s->at[1] != '"')
            break;
        s->at++;
    }
    if (s->at == s->end)
        return pl_fail(s->err, PL_EFORMAT,
                       PLACE "the quote that begins here does not end",
                       PLACE_OF(s, field));
    field->length = (size_t)(s->at++ - field->text);
    csv_pass_blanks(s);
    return PL_OK;
}

static int csv_take_end(csv_scan_t *s, csv_field_t *field)
{
    const bool in_blanks = s->table.format.delimiter == ' ' && s->at > field->text
                           && is_blank(s->at[-1]);
    if (s->at < s->end && (csv_is_delimiter(s, *s->at) || in_blanks) && *s->at != '\n'
        && *s->at != '\r') {
        s->at += !in_blanks;
        csv_pass_blanks(s);
        if (s->table.format.delimiter != ' '
            || (s->at < s->end && *s->at != '\n' && *s->at != '\r'))
            return PL_OK;                         /* blanks at the end of a line end it */
    }
    field->last = true;
    if (s->at == s->end)
        return PL_OK;
    if (*s->at == '\r' && s->at + 1 < s->end && s->at[1] == '\n')
        s->at++;
    if (*s->at != '\n')
        return pl_fail(s->err, PL_EFORMAT,
                       PLACE "a '%c' or the line's end must follow the field",
                       PLACE_OF(s, field), s->table.format.delimiter);
    s->at++;
    csv_new_line(s);
    return PL_OK;
}

static int csv_take_field(csv_scan_t *s, csv_field_t *field)
{
    *field = (csv_field_t){.line = s->line, .column = s->at - s->line_start + 1};
    csv_pass_blanks(s);
    if (s->at < s->end && *s->at == '"') {
        s->at++;
        int code = csv_take_quoted(s, field);
        return code ? code : csv_take_end(s, field);
    }
    field->text = s->at;
    while (s->at < s->end && !csv_is_delimiter(s, *s->at) && *s->at != '\n')
        s->at++;
    field->length = (size_t)(s->at - field->text);
    field->length -= s->at < s->end && *s->at == '\n' && field->length > 0
                     && s->at[-1] == '\r';
    if (memchr(field->text, '\r', field->length))
        return pl_fail(s->err, PL_EFORMAT,
                       PLACE "a carriage return without a line feed: end lines with one "
                             "or both (tr '\\r' '\\n' converts old files)",
                       PLACE_OF(s, field));
    while (field->length > 0 && is_blank(field->text[field->length - 1]))
        field->length--;
    return csv_take_end(s, field);
}

static bool csv_number(const csv_scan_t *s, const csv_field_t *field, double *number)
{
    return pl_number_in_groups(field->text, field->length, s->table.format.decimal,
                               number);
}

/* Passes comments, and empty lines where a record has several fields; false: there is
 * nothing left. */
static bool csv_find_record(csv_scan_t *s)
{
    while (s->at < s->end) {
        char *line = s->at + strspn(s->at, BLANKS);
        const char comment = s->table.format.comment;
        const bool is_empty = line >= s->end || *line == '\n'
                              || (*line == '\r' && line[1] == '\n');
        if (!(comment && *s->at == comment) && !(is_empty && s->table.columns != 1))
            return true;
        char *end = memchr(s->at, '\n', (size_t)(s->end - s->at));
        s->at = end ? end + 1 : s->end;
        csv_new_line(s);
    }
    return false;
}

/* ---- what the beginning of a file shows ---- */

#define SAMPLE 100                                          /* records */
#define LEAD_MAX 20                                         /* lines before a table */

/* The beginning of a file, read with one delimiter. */
typedef struct csv_sample {
    int records, columns;                      /* columns: of most records */
    int agree, lead;                           /* records with that many; others before */
    int first;                                 /* fields of the first record */
    int64_t lead_lines;
    int points, commas;                           /* numbers with a point; with a comma */
    int cells, numbers;                           /* numbers: with either */
} csv_sample_t;

/* Reads the first records and changes nothing. */
static csv_sample_t csv_sample(const csv_scan_t *s, char delimiter)
{
    csv_scan_t ahead = *s;
    csv_sample_t found = {0};
    int count[SAMPLE];
    int64_t line[SAMPLE];
    ahead.err = NULL;
    ahead.table.format.delimiter = delimiter;
    for (bool good = true; good && found.records < SAMPLE && csv_find_record(&ahead);) {
        csv_field_t field = {0};
        int fields = 0;
        line[found.records] = ahead.line;
        for (; good && !field.last; fields += good) {
            double number;
            good = csv_take_field(&ahead, &field) == PL_OK && fields < COLUMNS_MAX;
            if (!good)
                break;
            /* The last of both marks is the decimal one, unless that is no number. */
            const char *comma = memrchr(field.text, ',', field.length),
                       *dot = memrchr(field.text, '.', field.length);
            char point = comma > dot ? ',' : '.';
            bool is_number = pl_number_in_groups(field.text, field.length, point,
                                                 &number);
            if (!is_number && (comma || dot)) {
                point = point == '.' ? ',' : '.';
                is_number = pl_number_in_groups(field.text, field.length, point, &number);
            }
            found.cells++;
            found.numbers += is_number;
            found.commas += is_number && (comma || dot) && point == ',';
            found.points += is_number && (comma || dot) && point == '.';
        }
        if (good)
            count[found.records++] = fields;
    }
    found.first = found.records ? count[0] : 0;
    for (int k = 0; k < found.records; k++) {
        int agree = 0;
        for (int i = 0; i < found.records; i++)
            agree += count[i] == count[k];
        if (agree <= found.agree)
            continue;
        found.agree = agree;
        found.columns = count[k];
        found.lead = k;
        found.lead_lines = line[k] - s->line;
    }
    return found;
}

/* Finds the delimiter with which most records have the same number of fields, the first
 * ones too, then the one with which most cells are numbers. */
static csv_sample_t csv_find_delimiter(csv_scan_t *s)
{
    csv_sample_t best = {0};
    double best_share = 0, best_numbers = -1;
    s->table.format.delimiter = ',';
    for (const char *delimiter = "\t;|, "; *delimiter; delimiter++) {
        const csv_sample_t found = csv_sample(s, *delimiter);
        const double share = found.agree / fmax(1, found.records - found.lead);
        const double numbers = found.numbers / fmax(1, found.cells);
        if (found.columns < 2 || share < best_share || (*delimiter == ' ' && share < 1)
            || (share == best_share
                && (found.agree < best.agree
                    || (found.agree == best.agree && numbers <= best_numbers))))
            continue;
        best = found;
        best_share = share;
        best_numbers = numbers;
        s->table.format.delimiter = *delimiter;
    }
    return best.columns ? best : csv_sample(s, s->table.format.delimiter);
}

static void csv_skip_lines(csv_scan_t *s, int64_t lines)
{
    for (; lines > 0 && s->at < s->end; lines--) {
        char *end = memchr(s->at, '\n', (size_t)(s->end - s->at));
        s->at = end ? end + 1 : s->end;
        csv_new_line(s);
        s->table.skipped++;
    }
}

/* Removes the delimiter behind the last name of a header whose rows have none: a blank
 * beside a field is no part of it. */
static bool csv_drop_delimiter(csv_scan_t *s, const csv_sample_t *found)
{
    char *end = memchr(s->at, '\n', (size_t)(s->end - s->at));
    while (end && end > s->at && (end[-1] == '\r' || is_blank(end[-1])))
        end--;
    if (!end || found->lead != 1 || found->first != found->columns + 1
        || end[-1] != s->table.format.delimiter)
        return false;
    end[-1] = ' ';
    return true;
}

/* Finds what the format leaves open. */
static void csv_find_format(csv_scan_t *s)
{
    pl_csv_format_t *format = &s->table.format;
    csv_sample_t found;
    csv_skip_lines(s, format->skip);
    if (format->comment == PL_CSV_FIND) {
        const char *first = s->at + strspn(s->at, BLANKS "\r\n");
        format->comment = first < s->end && (*first == '#' || *first == '%') ? *first : 0;
    }
    if (s->table.columns)
        return;                                        /* a part, whose format is known */
    if (format->delimiter == PL_CSV_FIND)
        found = csv_find_delimiter(s);
    else
        found = csv_sample(s, format->delimiter);
    if (!csv_drop_delimiter(s, &found) && format->skip < 0 && found.lead
        && found.lead <= LEAD_MAX && found.agree == found.records - found.lead
        && found.agree > 1)
        csv_skip_lines(s, found.lead_lines);
    if (format->decimal == PL_CSV_FIND)
        format->decimal = format->delimiter != ',' && found.commas > found.points ? ','
                                                                                  : '.';
}

/* Counts the columns of the first record and finds whether it has names: a field is not
 * empty and none is a number, or most columns have numbers below another first field.  A
 * bad number among good ones is an error in the data.  Takes nothing. */
static int csv_look_at_first(csv_scan_t *s, bool *names)
{
    csv_scan_t ahead = *s;
    csv_field_t field = {0};
    bool something = false, numbers = false;
    double number;
    do {
        int code = csv_take_field(&ahead, &field);
        if (code)
            return code;
        if (++s->table.columns > COLUMNS_MAX)
            return pl_fail(s->err, PL_EFORMAT, PLACE "more than %d fields",
                           PLACE_OF(s, &field), COLUMNS_MAX);
        something = something || field.length > 0;
        numbers = numbers || csv_number(s, &field, &number);
    } while (!field.last);
    *names = something && !numbers;
    char *kind = numbers ? pl_alloc((size_t)s->table.columns) : NULL;
    if (!kind)
        return numbers ? pl_no_memory(s->err) : PL_OK;
    enum { OTHER, WORD, ABOVE_NUMBERS };
    int above = 0;
    ahead = *s;
    for (int row = 0; row < SAMPLE && csv_find_record(&ahead); row++) {
        field = (csv_field_t){0};
        for (int k = 0; !field.last && k < s->table.columns; k++) {
            if (csv_take_field(&ahead, &field))
                break;
            const bool is_number = csv_number(s, &field, &number);
            if (row == 0)
                kind[k] = field.length > 0 && !is_number ? WORD : OTHER;
            else if (kind[k] != OTHER && field.length > 0)
                kind[k] = is_number ? ABOVE_NUMBERS : OTHER;
        }
        if (!field.last)
            break;
    }
    for (int k = 0; k < s->table.columns; k++)
        above += kind[k] == ABOVE_NUMBERS;
    pl_free(kind);
    *names = 2 * above > s->table.columns;
    return PL_OK;
}

/* ---- records ---- */

/* Ends a field with a zero byte and undoubles its quotes, in place. */
static char *csv_cell(const csv_field_t *field)
{
    char *out = field->text;
    for (size_t i = 0; i < field->length; i++) {
        *out++ = field->text[i];
        i += field->quoted && field->text[i] == '"';   /* the second of a doubled quote */
    }
    *out = '\0';
    return field->text;
}

/* Makes room for one more row, at least doubling. */
static int csv_grow(csv_scan_t *s)
{
    if (s->table.rows < s->capacity)
        return PL_OK;
    int64_t capacity = s->capacity ? 2 * s->capacity : 16;
    size_t cells, bytes;
    if (__builtin_mul_overflow((size_t)capacity, (size_t)s->table.columns, &cells)
        || __builtin_mul_overflow(cells, sizeof(char *), &bytes))
        return pl_no_memory(s->err);
    char **cell = pl_resize(s->table.cell, bytes);
    s->table.cell = cell ? cell : s->table.cell;
    int64_t *line = pl_resize(s->table.line, (size_t)capacity * sizeof *line);
    s->table.line = line ? line : s->table.line;
    char **start = pl_resize(s->table.start, (size_t)capacity * sizeof *start);
    s->table.start = start ? start : s->table.start;
    if (!cell || !line || !start)
        return pl_fail(s->err, PL_ENOMEM, "%s: out of memory at line %lld", s->name,
                       (long long)s->line);
    s->capacity = capacity;
    return PL_OK;
}

/* Takes the cells of a record, [columns]. */
static int csv_take_record(csv_scan_t *s, char **cell)
{
    const int columns = s->table.columns;
    csv_field_t field = {0};
    for (int column = 0; column < columns; column++) {
        int code = csv_take_field(s, &field);
        if (code)
            return code;
        if (field.last && column + 1 < columns)
            return pl_fail(s->err, PL_EFORMAT,
                           PLACE "field %d%s%.48s%s of %d is missing: the line ends "
                                 "before it",
                           s->name, (long long)field.line,
                           (long long)(field.column + (int64_t)field.length), column + 2,
                           s->table.name ? " (" : "",
                           s->table.name ? s->table.name[column + 1] : "",
                           s->table.name ? ")" : "", columns);
        if (!field.last && column + 1 == columns)
            return pl_fail(s->err, PL_EFORMAT,
                           PLACE "more fields than the %d of the first line", s->name,
                           (long long)s->line, (long long)(s->at - s->line_start),
                           columns);
        cell[column] = csv_cell(&field);
    }
    return PL_OK;
}

static int csv_take_all(csv_scan_t *s)
{
    bool names = false;
    if (s->end - s->at >= 3 && !memcmp(s->at, "\xEF\xBB\xBF", 3))
        s->line_start = s->at += 3;         /* the mark that Windows programs put first */
    if (s->end - s->at >= 2
        && (!memcmp(s->at, "\xFF\xFE", 2) || !memcmp(s->at, "\xFE\xFF", 2)))
        return pl_fail(s->err, PL_EFORMAT, "%s: the text is UTF-16: save it as UTF-8",
                       s->name);
    *s->end = '\0';
    if (s->line == 1
        && pl_foreign_refuse(s->at, (size_t)(s->end - s->at), s->name, s->err) != PL_OK)
        return PL_EFORMAT;
    const char *zero = memchr(s->at, '\0', (size_t)(s->end - s->at));
    if (zero)
        return pl_fail(s->err, PL_EFORMAT,
                       "%s: byte %lld is zero: the file is not a table as text", s->name,
                       (long long)(zero - s->table.text));
    while (s->end > s->at && (s->end[-1] == '\n' || s->end[-1] == '\r'))
        s->end--;                                 /* empty lines at the end, no records */
    *s->end = '\0';
    csv_find_format(s);
    if (!csv_find_record(s) && !s->table.columns)
        return pl_fail(s->err, PL_EFORMAT, "%s: the file is empty", s->name);
    const pl_csv_header_t header = s->table.format.header;
    int code = s->table.columns ? PL_OK : csv_look_at_first(s, &names);
    if (!code && (header == PL_CSV_YES || (header == PL_CSV_AUTO && names))) {
        char **name = pl_alloc_array((size_t)s->table.columns, sizeof *name);
        code = name ? csv_take_record(s, name) : pl_no_memory(s->err);
        s->table.name = name;
    }
    while (!code && csv_find_record(s)) {
        if ((code = csv_grow(s)))
            return code;
        s->table.line[s->table.rows] = s->line;
        s->table.start[s->table.rows] = s->at;
        code = csv_take_record(s, s->table.cell + s->table.rows * s->table.columns);
        s->table.rows += !code;
    }
    return code;
}

/* Reads text[0..size), which is the table's from now on; a zero byte follows it. */
static int csv_read_owned(char *text, size_t size, const char *name,
                          const pl_csv_format_t *format, pl_table_t *table,
                          pl_error_t *err)
{
    csv_scan_t s = {.name = name,
                    .at = text,
                    .end = text + size,
                    .line_start = text,
                    .line = format->line ? format->line : 1,
                    .table = {.text = text,
                              .format = *format,
                              .columns = format->columns},
                    .err = err};
    int code = csv_take_all(&s);
    if (code)
        pl_table_release(&s.table);
    else
        *table = s.table;
    return code;
}

int pl_csv_read(const void *data, size_t size, const char *name,
                const pl_csv_format_t *format, pl_table_t *table, pl_error_t *err)
{
    char *text = pl_alloc(size + 1);
    if (!text)
        return pl_no_memory(err);
    memcpy(text, data, size);
    text[size] = '\0';
    return csv_read_owned(text, size, name, format, table, err);
}

int pl_csv_load(const char *path, size_t limit, const pl_csv_format_t *format,
                pl_table_t *table, pl_error_t *err)
{
    pl_file_bytes_t bytes;
    int code = pl_file_read(path, limit, &bytes, err);
    return code
               ? code
               : csv_read_owned((char *)bytes.data, bytes.size, path, format, table, err);
}

bool pl_table_number(const pl_table_t *table, int64_t row, int column, double *number)
{
    const char *cell = pl_table_cell(table, row, column);
    int64_t whole = 0;                             /* as most cells are, so it is quick */
    int digits = 0;
    for (; digits < 15 && cell[digits] >= '0' && cell[digits] <= '9'; digits++)
        whole = whole * 10 + (cell[digits] - '0');
    if (digits && !cell[digits]) {
        *number = (double)whole;
        return true;
    }
    size_t length = strlen(cell);
    for (; is_blank(*cell); cell++)                         /* they may be in quotes */
        length--;
    while (length > 0 && is_blank(cell[length - 1]))
        length--;
    return pl_number_in_groups(cell, length, table->format.decimal, number);
}

void pl_table_line(const pl_table_t *table, int64_t line,
                   char place[static PL_PLACE_TEXT])
{
    int64_t k = table->files;
    while (k > 0 && table->file[k - 1].before >= line)
        k--;
    const pl_table_file_t *file = k ? &table->file[k - 1] : NULL;
    snprintf(place, PL_PLACE_TEXT, "%.80s%s%lld", file ? file->name : "", file ? ":" : "",
             (long long)(line - (file ? file->before : 0)));
}

void pl_table_place(const pl_table_t *table, int64_t row, int column,
                    char place[static PL_PLACE_TEXT])
{
    const char *at = table->start[row], *cell = pl_table_cell(table, row, column);
    const char *line_start = at;
    int64_t line = table->line[row];
    if (!at)
        at = line_start = cell;
    for (; at < cell; at++)
        if (*at == '\n') {
            line++;
            line_start = at + 1;
        }
    pl_table_line(table, line, place);
    const size_t length = strlen(place);
    snprintf(place + length, PL_PLACE_TEXT - length, ":%lld",
             (long long)(cell - line_start + 1));
}

void pl_table_release(pl_table_t *table)
{
    pl_free(table->name);
    pl_free(table->line);
    pl_free(table->start);
    pl_free(table->cell);
    pl_free(table->text);
    pl_free(table->file);
    *table = (pl_table_t){0};
}
