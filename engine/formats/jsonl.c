/* jsonl.c - JSON Lines as a table: each line is an object, each field a column
 *
 * Lists and objects in a field become columns of their own, "place.city" and "pixel.0".
 * The lines are parsed twice, for the names and for the cells: so memory holds the cells
 * alone, and not all values of JSON at once. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "formats/table.h"

enum { DEPTH_MAX = 4, NAME_MAX_ = 200, COLUMNS_MAX = 100000, REAL_MAX = 32 };

typedef struct json_source {
    const char *name, *text;                                /* name: for errors */
    size_t size;
} json_source_t;

typedef struct json_lines {
    const json_source_t *source;                            /* [sources], one table */
    int64_t sources;
    const char *name;                                       /* of all */
    pl_jsonl_t place;
    int64_t before;                                         /* lines before the first */
    json_t *columns;                                        /* name: place */
    int64_t rows, scalars;
    pl_table_t *table;                             /* whose cells are filled  [not yet] */
    char *text;                                    /* the next cell */
    pl_error_t *err;
} json_lines_t;

int pl_jsonl_next(pl_jsonl_t *lines, json_t **object, pl_error_t *err)
{
    json_error_t why;
    *object = NULL;
    while (lines->at < lines->end && !*object) {
        const char *line = lines->at,
                   *newline = memchr(line, '\n', (size_t)(lines->end - line));
        const size_t length = (size_t)((newline ? newline : lines->end) - line);
        size_t blanks = 0;
        while (blanks < length && memchr(" \t\r", line[blanks], 3))
            blanks++;
        lines->at = newline ? newline + 1 : lines->end;
        lines->line++;
        if (blanks == length)
            continue;
        *object = json_loadb(line, length, JSON_REJECT_DUPLICATES, &why);
        if (!*object)
            return pl_fail(err, PL_EFORMAT, "%s:%lld:%d: %s", lines->name,
                           (long long)lines->line, why.column, why.text);
        if (!json_is_object(*object)) {
            json_decref(*object);
            return pl_fail(err, PL_EFORMAT,
                           "%s:%lld: a line is an object, such as {\"a\": 1, \"b\": "
                           "\"text\"}",
                           lines->name, (long long)lines->line);
        }
    }
    return PL_OK;
}

/* Writes a scalar as a cell. */
static void put_cell(json_lines_t *j, const json_t *value, int64_t column)
{
    char *cell = j->text;
    if (json_is_string(value)) {
        memcpy(cell, json_string_value(value), json_string_length(value) + 1);
        j->text += json_string_length(value) + 1;
    } else if (!json_is_null(value)) {
        const size_t size = json_dumpb(value, cell, REAL_MAX, JSON_ENCODE_ANY);
        cell[size] = '\0';
        j->text += size + 1;
    } else {
        *j->text++ = '\0';
    }
    j->table->cell[j->rows * j->table->columns + column] = cell;
}

/* Visits a value and all in it: adds names of columns, or fills the cells of a row. */
static int visit(json_lines_t *j, const json_t *value, const char *name, int depth)
{
    char inner[NAME_MAX_];
    const char *key;
    json_t *part;
    size_t k;
    int code = PL_OK;
    if (depth > DEPTH_MAX || strlen(name) + 24 > sizeof inner)
        return pl_fail(j->err, PL_EFORMAT, "%s:%lld: \"%.60s\" is nested too deep",
                       j->place.name, (long long)j->place.line, name);
    if (json_is_object(value))
        json_object_foreach((json_t *)value, key, part) {
            const int length = snprintf(inner, sizeof inner, "%s%s%s", name,
                                        *name ? "." : "", key);
            if (!code && length >= NAME_MAX_)
                code = pl_fail(j->err, PL_EFORMAT, "%s:%lld: \"%.60s\" is too long",
                               j->place.name, (long long)j->place.line, key);
            code = code ? code : visit(j, part, inner, depth + 1);
        }
    json_array_foreach(json_is_array(value) ? value : NULL, k, part) {
        snprintf(inner, sizeof inner, "%s.%zu", name, k);
        code = code ? code : visit(j, part, inner, depth + 1);
    }
    if (json_is_object(value) || json_is_array(value))
        return code;
    json_t *place = json_object_get(j->columns, name);
    if (j->table) {
        put_cell(j, value, json_integer_value(place));
        return PL_OK;
    }
    j->scalars++;
    const size_t next = json_object_size(j->columns);
    if (!place && next >= COLUMNS_MAX)
        return pl_fail(j->err, PL_EFORMAT, "%s: there are more than %d fields",
                       j->place.name, COLUMNS_MAX);
    if (!place
        && json_object_set_new(j->columns, name, json_integer((json_int_t)next)) != 0)
        return pl_no_memory(j->err);
    return PL_OK;
}

/* Visits all lines. */
static int visit_lines(json_lines_t *j)
{
    json_t *object;
    int code = PL_OK;
    int64_t before = 0;
    j->rows = 0;
    for (int64_t k = 0; k < j->sources && !code; k++) {
        const json_source_t *s = &j->source[k];
        j->place = (pl_jsonl_t){.name = s->name,
                                .at = s->text,
                                .end = s->text + s->size,
                                .line = k ? 0 : j->before};
        if (j->table && j->table->file)
            j->table->file[k].before = before;
        while ((code = pl_jsonl_next(&j->place, &object, j->err)) == PL_OK && object) {
            if (j->table)
                j->table->line[j->rows] = before + j->place.line;
            code = visit(j, object, "", 0);
            json_decref(object);
            if (code)
                break;
            j->rows++;
        }
        before += j->place.line;
    }
    return code;
}

/* The name of a file in its folder. */
static const char *name_within(const json_lines_t *j, int64_t k)
{
    const char *name = j->source[k].name;
    const size_t folder = strlen(j->name);
    return strncmp(name, j->name, folder) == 0 && name[folder] == '/' ? name + folder + 1
                                                                      : name;
}

/* Reserves the table, with empty cells and the names of columns and files. */
static int reserve(json_lines_t *j, size_t limit, pl_table_t *table)
{
    const size_t columns = json_object_size(j->columns), rows = (size_t)j->rows,
                 files = j->sources > 1 ? (size_t)j->sources : 0;
    size_t names = 0, size = 0;
    const char *key;
    json_t *place;
    json_object_foreach(j->columns, key, place)
        names += strlen(key) + 1;
    for (int64_t k = 0; k < j->sources; k++) {
        names += files ? strlen(name_within(j, k)) + 1 : 0;
        size += j->source[k].size;
    }
    table->format = PL_CSV_ANY;
    table->format.delimiter = ',';
    table->format.decimal = '.';
    table->rows = j->rows;
    table->columns = (int)columns;
    if (rows > limit / sizeof *table->cell / columns)
        return pl_fail(j->err, PL_EFORMAT,
                       "%s: %zu lines with %zu different fields are a table of more than "
                       "%zu bytes: give all lines the same few fields",
                       j->name, rows, columns, limit);
    table->cell = pl_alloc_array(rows * columns + 1, sizeof *table->cell);
    table->line = pl_alloc_array(rows + 1, sizeof *table->line);
    table->start = pl_alloc_array(rows + 1, sizeof *table->start);
    table->name = pl_alloc_array(columns + 1, sizeof *table->name);
    table->text = pl_alloc(1 + names + size + (size_t)j->scalars * (REAL_MAX + 1));
    table->file = files ? pl_alloc_array(files, sizeof *table->file) : NULL;
    if (!table->cell || !table->line || !table->start || !table->name || !table->text
        || (files && !table->file))
        return pl_no_memory(j->err);
    char *text = table->text + 1;                         /* the first is an empty cell */
    json_object_foreach(j->columns, key, place) {
        table->name[json_integer_value(place)] = strcpy(text, key);
        text += strlen(key) + 1;
    }
    for (table->files = 0; table->files < (int64_t)files; table->files++) {
        table->file[table->files].name = strcpy(text, name_within(j, table->files));
        text += strlen(text) + 1;
    }
    for (size_t k = 0; k < rows * columns; k++)
        table->cell[k] = table->text;
    j->table = table;
    j->text = text;
    return PL_OK;
}

/* Reads lines with the columns of a table first  [NULL: none]. */
static int jsonl_read(json_lines_t j, const pl_table_t *columns, size_t limit,
                      pl_table_t *result)
{
    pl_table_t table = {0};
    pl_error_t *err = j.err;
    j.columns = json_object();
    int failed = !j.columns;
    for (int k = 0; columns && k < columns->columns && !failed; k++)
        failed = json_object_set_new(j.columns, columns->name[k], json_integer(k));
    int code = failed ? pl_no_memory(err) : visit_lines(&j);
    if (!code && (columns ? json_object_size(j.columns) == 0 : j.scalars == 0))
        code = pl_fail(err, PL_EFORMAT, "%s: there are no lines with fields", j.name);
    if (!code)
        code = reserve(&j, limit, &table);
    if (!code)
        code = visit_lines(&j);
    json_decref(j.columns);
    if (code)
        pl_table_release(&table);
    else
        *result = table;
    return code;
}

int pl_jsonl_read_part(const void *data, size_t size, const char *name, int64_t line,
                       const pl_table_t *columns, pl_table_t *table, pl_error_t *err)
{
    const json_source_t part = {name, data, size};
    const json_lines_t j = {
        .source = &part, .sources = 1, .name = name, .before = line - 1, .err = err};
    return jsonl_read(j, columns, SIZE_MAX, table);
}

/* Without a mark of the order of bytes. */
static json_source_t source_of(const char *name, const void *data, size_t size)
{
    const bool marked = size >= 3 && !memcmp(data, "\xEF\xBB\xBF", 3);
    return (json_source_t){name, (const char *)data + (marked ? 3 : 0),
                           size - (marked ? 3 : 0)};
}

int pl_jsonl_read(const void *data, size_t size, const char *name, size_t limit,
                  pl_table_t *table, pl_error_t *err)
{
    const json_source_t source = source_of(name, data, size);
    const json_lines_t j = {.source = &source, .sources = 1, .name = name, .err = err};
    return jsonl_read(j, NULL, limit, table);
}

int pl_jsonl_load(const char *name, char *const *path, int64_t files, size_t limit,
                  pl_table_t *table, pl_error_t *err)
{
    pl_file_bytes_t *bytes = pl_alloc_array((size_t)files + 1, sizeof *bytes);
    json_source_t *source = pl_alloc_array((size_t)files + 1, sizeof *source);
    size_t left = limit;
    int code = bytes && source ? PL_OK : pl_no_memory(err);
    int64_t read = 0;
    for (; read < files && !code; read++) {
        code = pl_file_read(path[read], left, &bytes[read], err);
        if (code)
            break;
        left -= bytes[read].size;
        source[read] = source_of(path[read], bytes[read].data, bytes[read].size);
    }
    if (!code)
        code = jsonl_read(
            (json_lines_t){.source = source, .sources = files, .name = name, .err = err},
            NULL, limit, table);
    for (int64_t k = 0; k < read; k++)
        pl_file_bytes_release(&bytes[k]);
    pl_free(bytes);
    pl_free(source);
    return code;
}
