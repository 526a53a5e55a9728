/* csv.c - tables of numbers as comma-separated values (RFC 4180)
 *
 * A scanner takes one field after the other; the functions above it decide whether a
 * record is names or numbers. Memory grows with the fields that are there.
 *
 * Numbers are the same under every locale. Up to 15 digits and a power of ten up to 22
 * are both exact in a double, so one multiplication or division rounds correctly
 * (Clinger, "How to read floating point numbers accurately", 1990, the fast path).
 * Nearly all numbers of tables are of this kind; strtod() with a locale of its own
 * reads the rest. */
#include "formats/csv.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#define COLUMNS_MAX (1 << 24)
#define LONGEST 400                                         /* characters of a number */

/* ---- numbers ---- */

static const double ten_to[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

typedef struct decimal {
    bool negative, exact;                          /* exact: `digits` holds all of them */
    uint64_t digits;
    int count;                                     /* of significant digits in `digits` */
    int power;                                     /* of ten */
} decimal_t;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *take_digits(const char *p, const char *end, decimal_t *d,
                               int power_step)
{
    for (; p < end && is_digit(*p); p++) {
        if (d->count >= 15) {
            d->exact = false;
            continue;
        }
        d->digits = d->digits * 10 + (uint64_t)(*p - '0');
        d->count += d->digits > 0;
        d->power += power_step;
    }
    return p;
}

/* Splits a number by its grammar: [+-] digits [. digits] [e [+-] digits], with a digit
 * before or after the point. */
static bool take_decimal(const char *p, const char *end, decimal_t *d)
{
    d->negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    const char *start = p;
    p = take_digits(p, end, d, 0);
    size_t seen = (size_t)(p - start);
    if (p < end && *p == '.') {
        start = ++p;
        p = take_digits(p, end, d, -1);
        seen += (size_t)(p - start);
    }
    if (!seen || p == end || (*p != 'e' && *p != 'E'))
        return seen > 0 && p == end;
    bool negative = ++p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (p == end || !is_digit(*p))
        return false;
    int power = 0;
    for (; p < end && is_digit(*p); p++)
        power = power < 100000 ? power * 10 + (*p - '0') : power;
    d->power += negative ? -power : power;
    return p == end;
}

bool pl_number(const char *text, size_t length, double *number)
{
    char copy[LONGEST + 1];
    decimal_t d = {.exact = true};
    if (length > LONGEST || !take_decimal(text, text + length, &d))
        return false;
    if (d.exact && d.power >= -22 && d.power <= 22) {
        double value = (double)d.digits;
        value = d.power < 0 ? value / ten_to[-d.power] : value * ten_to[d.power];
        *number = d.negative ? -value : value;
        return true;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!plain)
        return false;
    double value = strtod_l(copy, NULL, plain);
    freelocale(plain);
    if (!isfinite(value))
        return false;
    *number = value;
    return true;
}

/* ---- fields ---- */

/* A field as it is in the file: between its commas or quotes, with doubled quotes. */
typedef struct csv_field {
    const char *text;
    size_t length;
    bool quoted, last;                                      /* last of its record */
    int64_t line, column;                                   /* where it starts, from 1 */
} csv_field_t;

typedef struct csv_scan {
    const char *name;
    const char *at, *end;
    const char *line_start;
    int64_t line;
    pl_csv_t csv;
    int64_t capacity;                                  /* rows that there is memory for */
    pl_error_t *err;
} csv_scan_t;

#define PLACE "%s:%lld:%lld: "
#define PLACE_OF(s, field) (s)->name, (long long)(field)->line, (long long)(field)->column

static void csv_new_line(csv_scan_t *s)
{
    s->line++;
    s->line_start = s->at;
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
    return PL_OK;
}

static int csv_take_end(csv_scan_t *s, csv_field_t *field)
{
    if (s->at < s->end && *s->at == ',') {
        s->at++;
        return PL_OK;
    }
    field->last = true;
    if (s->at == s->end)
        return PL_OK;
    if (*s->at == '\r' && s->at + 1 < s->end && s->at[1] == '\n')
        s->at++;
    if (*s->at != '\n')
        return pl_fail(s->err, PL_EFORMAT,
                       PLACE "a ',' or the line's end must follow the field",
                       PLACE_OF(s, field));
    s->at++;
    csv_new_line(s);
    return PL_OK;
}

static int csv_take_field(csv_scan_t *s, csv_field_t *field)
{
    *field = (csv_field_t){.line = s->line, .column = s->at - s->line_start + 1};
    if (s->at < s->end && *s->at == '"') {
        s->at++;
        int code = csv_take_quoted(s, field);
        return code ? code : csv_take_end(s, field);
    }
    field->text = s->at;
    while (s->at < s->end && *s->at != ',' && *s->at != '\n')
        s->at++;
    field->length = (size_t)(s->at - field->text);
    bool crlf = s->at < s->end && *s->at == '\n' && field->length > 0
                && s->at[-1] == '\r';
    field->length -= crlf;
    if (memchr(field->text, '\r', field->length))
        return pl_fail(s->err, PL_EFORMAT,
                       PLACE "a carriage return without a line feed: end lines with one "
                             "or both (tr '\\r' '\\n' converts old files)",
                       PLACE_OF(s, field));
    return csv_take_end(s, field);
}

/* Without the spaces around a number or a name without quotes. */
static csv_field_t csv_trim(csv_field_t field)
{
    for (; field.length > 0 && (*field.text == ' ' || *field.text == '\t'); field.text++)
        field.length--;
    while (
        field.length > 0
        && (field.text[field.length - 1] == ' ' || field.text[field.length - 1] == '\t'))
        field.length--;
    return field;
}

static bool csv_number(const csv_field_t *field, double *number)
{
    const csv_field_t bare = csv_trim(*field);
    return pl_number(bare.text, bare.length, number);
}

/* "field 3 (petal_width)" */
static const char *csv_field_text(const csv_scan_t *s, int column, char text[static 80])
{
    if (s->csv.name)
        snprintf(text, 80, "field %d (%.48s)", column + 1, s->csv.name[column]);
    else
        snprintf(text, 80, "field %d", column + 1);
    return text;
}

/* ---- records ---- */

/* Makes room for one more row, at least doubling. */
static int csv_grow(csv_scan_t *s)
{
    if (s->csv.rows < s->capacity)
        return PL_OK;
    int64_t capacity = s->capacity ? 2 * s->capacity : 16;
    size_t values, bytes;
    if (__builtin_mul_overflow((size_t)capacity, (size_t)s->csv.columns, &values)
        || __builtin_mul_overflow(values, sizeof(double), &bytes))
        return pl_no_memory(s->err);
    double *value = pl_resize(s->csv.value, bytes);
    s->csv.value = value ? value : s->csv.value;
    int64_t *line = pl_resize(s->csv.line, (size_t)capacity * sizeof *line);
    s->csv.line = line ? line : s->csv.line;
    if (!value || !line)
        return pl_fail(s->err, PL_ENOMEM, "%s: out of memory at line %lld", s->name,
                       (long long)s->line);
    s->capacity = capacity;
    return PL_OK;
}

/* One field of a row; `column` from 0. */
static int csv_take_value(csv_scan_t *s, int column, double *value)
{
    csv_field_t field;
    char text[80];
    int code = csv_take_field(s, &field);
    if (code)
        return code;
    if (csv_trim(field).length == 0)
        return pl_fail(s->err, PL_EFORMAT, PLACE "%s of %d is missing",
                       PLACE_OF(s, &field), csv_field_text(s, column, text),
                       s->csv.columns);
    if (!csv_number(&field, value))
        return pl_fail(s->err, PL_EFORMAT, PLACE "%s: \"%.*s\" is not a finite number%s",
                       PLACE_OF(s, &field), csv_field_text(s, column, text),
                       (int)(field.length < 32 ? field.length : 32), field.text,
                       s->csv.rows || s->csv.name
                           ? ""
                           : "; if this line holds names, set \"header\": \"yes\"");
    if (field.last && column + 1 < s->csv.columns)
        return pl_fail(s->err, PL_EFORMAT,
                       PLACE "%s of %d is missing: the line ends before it", s->name,
                       (long long)field.line,
                       (long long)(field.column + (int64_t)field.length),
                       csv_field_text(s, column + 1, text), s->csv.columns);
    if (!field.last && column + 1 == s->csv.columns)
        return pl_fail(s->err, PL_EFORMAT,
                       PLACE "more fields than the %d of the first line", s->name,
                       (long long)s->line, (long long)(s->at - s->line_start),
                       s->csv.columns);
    return PL_OK;
}

/* Counts the columns of the first record and finds whether it can hold names: a field is
 * not empty and none is a number. A bad number among good ones is an error in the data.
 * Takes nothing. */
static int csv_look_at_first(csv_scan_t *s, bool *names)
{
    csv_scan_t ahead = *s;
    csv_field_t field;
    bool something = false, numbers = false;
    do {
        double number;
        int code = csv_take_field(&ahead, &field);
        if (code)
            return code;
        if (++s->csv.columns > COLUMNS_MAX)
            return pl_fail(s->err, PL_EFORMAT, PLACE "more than %d fields",
                           PLACE_OF(s, &field), COLUMNS_MAX);
        something = something || csv_trim(field).length > 0;
        numbers = numbers || csv_number(&field, &number);
    } while (!field.last);
    *names = something && !numbers;
    return PL_OK;
}

static int csv_take_names(csv_scan_t *s)
{
    s->csv.name = pl_alloc_array((size_t)s->csv.columns, sizeof *s->csv.name);
    if (!s->csv.name)
        return pl_no_memory(s->err);
    for (int column = 0; column < s->csv.columns; column++) {
        csv_field_t field;
        int code = csv_take_field(s, &field);
        if (code)
            return code;
        field = field.quoted ? field : csv_trim(field);
        char *out = s->csv.name[column] = pl_alloc(field.length + 1);
        if (!out)
            return pl_no_memory(s->err);
        for (size_t i = 0; i < field.length; i++) {
            *out++ = field.text[i];
            i += field.quoted && field.text[i] == '"';      /* the second of a doubled
                                                               quote */
        }
    }
    return PL_OK;
}

static int csv_take_all(csv_scan_t *s, pl_csv_header_t header)
{
    bool names = false;
    if (s->end - s->at >= 3 && !memcmp(s->at, "\xEF\xBB\xBF", 3))
        s->line_start = s->at += 3;         /* the mark that Windows programs put first */
    if (s->end - s->at >= 2
        && (!memcmp(s->at, "\xFF\xFE", 2) || !memcmp(s->at, "\xFE\xFF", 2)))
        return pl_fail(s->err, PL_EFORMAT, "%s: the text is UTF-16: save it as UTF-8",
                       s->name);
    while (s->end > s->at && (s->end[-1] == '\n' || s->end[-1] == '\r'))
        s->end--;                                 /* empty lines at the end, no records */
    if (s->at == s->end)
        return pl_fail(s->err, PL_EFORMAT, "%s: the file is empty", s->name);
    int code = csv_look_at_first(s, &names);
    if (!code && (header == PL_CSV_YES || (header == PL_CSV_AUTO && names)))
        code = csv_take_names(s);
    while (!code && s->at < s->end) {
        if ((code = csv_grow(s)))
            return code;
        double *row = s->csv.value + s->csv.rows * s->csv.columns;
        s->csv.line[s->csv.rows] = s->line;
        for (int column = 0; column < s->csv.columns && !code; column++)
            code = csv_take_value(s, column, &row[column]);
        s->csv.rows += !code;
    }
    return code;
}

int pl_csv_read(const void *data, size_t size, const char *name, pl_csv_header_t header,
                pl_csv_t *csv, pl_error_t *err)
{
    const char *text = data;
    csv_scan_t s = {.name = name,
                    .at = text,
                    .end = text + size,
                    .line_start = text,
                    .line = 1,
                    .err = err};
    int code = csv_take_all(&s, header);
    if (code)
        pl_csv_release(&s.csv);
    else
        *csv = s.csv;
    return code;
}

int pl_csv_load(const char *path, size_t limit, pl_csv_header_t header, pl_csv_t *csv,
                pl_error_t *err)
{
    pl_file_bytes_t bytes;
    int code = pl_file_read(path, limit, &bytes, err);
    if (code)
        return code;
    code = pl_csv_read(bytes.data, bytes.size, path, header, csv, err);
    pl_file_bytes_release(&bytes);
    return code;
}

void pl_csv_release(pl_csv_t *csv)
{
    for (int column = 0; csv->name && column < csv->columns; column++)
        pl_free(csv->name[column]);
    pl_free(csv->name);
    pl_free(csv->line);
    pl_free(csv->value);
    *csv = (pl_csv_t){0};
}
