/* csv_load.c - the cells of a table, from what it is stored in
 *
 * Text, JSON Lines, a database, a folder of text files or of JSON Lines: behind this file
 * they are all rows and columns of texts. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "actors/connectors/datasets/class_files.h"
#include "actors/connectors/datasets/csv_parts.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"

int csv_character(const char *path, const char *option, const char *text, char *found,
                  pl_error_t *err)
{
    *found = !*text                    ? PL_CSV_FIND
             : !strcmp(text, "none")   ? '\0'
             : !strcmp(text, "tab")    ? '\t'
             : !strcmp(text, "blanks") ? ' '
                                       : *text;
    if (*text && text[1] && *found == *text)
        return pl_fail(err, PL_EINVAL,
                       "%s: \"%s\" is \"%.20s\", but it is one character, %s", path,
                       option, text,
                       !strcmp(option, "comment") ? "\"none\" or \"\""
                                                  : "\"tab\", \"blanks\" or \"\"");
    if (*found == '"' || *found == '\n' || *found == '\r'
        || (!*found && strcmp(option, "comment")))
        return pl_fail(err, PL_EINVAL,
                       "%s: \"%s\" is a character that a table has for "
                       "another purpose",
                       path, option);
    return PL_OK;
}

void csv_empty_cells(csv_dataset_t *csv)
{
    const size_t cells = (size_t)csv->table.rows * (size_t)csv->table.columns;
    size_t longest = 0, length;
    bool begins[256] = {false};                   /* a word begins with this character */
    for (const char *word = csv->options.missing_values; *word;
         word += length + (word[length] != 0)) {
        length = strcspn(word, ",");
        longest = length > longest ? length : longest;
        begins[(unsigned char)*word] = length > 0;
    }
    for (size_t k = 0; k < cells; k++) {
        char *cell = csv->table.cell[k];
        const size_t size = begins[(unsigned char)*cell] ? strnlen(cell, longest + 1) : 0;
        if (size == 0 || size > longest)
            continue;
        for (const char *word = csv->options.missing_values; *word;
             word += length + (word[length] != 0)) {
            length = strcspn(word, ",");
            if (length == size && !memcmp(word, cell, size)) {
                *cell = '\0';
                break;
            }
        }
    }
}

bool csv_is_json_lines(const char *path)
{
    static const char *const endings[] = {".jsonl", ".ndjson"};
    for (size_t k = 0; k < sizeof endings / sizeof *endings; k++) {
        const char *found = strstr(path, endings[k]);
        const size_t length = strlen(endings[k]);
        if (found
            && (!found[length] || !strcmp(found + length, ".gz")
                || !strcmp(found + length, ".zst")))
            return true;
    }
    return false;
}

int csv_find_texts(const char *folder, pl_file_list_t *list, const char **json,
                   const char **other, pl_error_t *err)
{
    const pl_file_source_t source = {.kind = &pl_text_files,
                                     .path = folder,
                                     .without_classes = true,
                                     .links = true};
    const int code = pl_files_find(&source, list, err);
    *json = *other = NULL;
    for (int64_t k = list->count; k-- > 0;)
        *(csv_is_json_lines(list->path[k]) ? json : other) = list->path[k];
    return code;
}

int csv_refuse_mixture(const char *folder, const char *json, const char *other,
                       pl_error_t *err)
{
    return pl_fail(err, PL_EFORMAT,
                   "%s has JSON Lines, such as %s, and other texts, such as %s: keep one "
                   "kind in the folder",
                   folder, json, other);
}

/* Whether a text of the first line, which was taken as names, occurs again below it, in a
 * table without columns of numbers: then it is a row. */
static bool names_recur(const pl_table_t *table)
{
    enum { LOOKED_AT = 1000 };
    const int64_t looked = table->rows < LOOKED_AT ? table->rows : LOOKED_AT;
    bool recurs = false;
    for (int k = 0; k < table->columns; k++) {
        int64_t numbers = 0, filled = 0;
        double number;
        for (int64_t row = 0; row < looked; row++) {
            numbers += pl_table_number(table, row, k, &number);
            filled += *pl_table_cell(table, row, k) != '\0';
        }
        if (numbers && 2 * numbers >= filled)
            return false;
        for (int64_t row = 0; row < table->rows && !recurs; row++)
            recurs = !strcmp(pl_table_cell(table, row, k), table->name[k]);
    }
    return recurs;
}

/* Reads a table as text: the file, or the beginning of one that is streamed. */
static int csv_read_text(csv_dataset_t *csv, const pl_csv_format_t *format,
                         pl_error_t *err)
{
    const csv_part_t *part = csv->source.part;
    return part ? pl_csv_read(part->text, part->size, csv->options.path, format,
                              &csv->table, err)
                : pl_csv_load(csv->options.path, pl_file_limit(), format, &csv->table,
                              err);
}

/* A row of numbers that are years, each later than the one before by the same. */
static bool is_years(const pl_table_t *table, int64_t row)
{
    double year, last = 0, step = 0;
    int years = 0;
    for (int k = 0; k < table->columns; k++) {
        if (!pl_table_number(table, row, k, &year))
            continue;
        if (year != floor(year) || year < 1000 || year > 2999 || (years && year <= last)
            || (years++ > 1 && year - last != step))
            return false;
        step = year - last;
        last = year;
    }
    return years > 1;
}

/* The first row has the names of columns: years, as no other row has. */
static bool has_years_as_names(const pl_table_t *table)
{
    bool has = table->rows > 1 && is_years(table, 0);
    for (int64_t row = 1; row < table->rows && has; row++)
        has = !is_years(table, row);
    return has;
}

/* Adds a text, ended by a zero, behind others.  Zeros in it become blanks, and bytes that
 * are not UTF-8 characters of Latin-1, as old mails have them.  -> its offset, or an
 * error code. */
static int64_t text_add(pl_file_bytes_t *all, size_t *capacity, const void *text,
                        size_t size, pl_error_t *err)
{
    const uint8_t *byte = text;
    const size_t at = all->size, needed = at + 2 * size + 1;
    if (needed > pl_file_limit())
        return pl_fail(err, PL_EFORMAT, "the texts have more than %zu bytes together",
                       pl_file_limit());
    if (needed > *capacity) {
        const size_t more = needed > 2 * *capacity ? needed : 2 * *capacity;
        uint8_t *data = pl_resize(all->data, more);
        if (!data)
            return pl_no_memory(err);
        all->data = data;
        *capacity = more;
    }
    char *to = (char *)all->data + at;
    int taken;
    for (size_t k = 0; k < size; k += (size_t)taken) {
        uint32_t code;
        taken = pl_utf8_get(byte + k, size - k, &code);
        if (taken == 0) {
            taken = 1;
            code = byte[k];
        }
        to += pl_utf8_put(code ? code : ' ', to);
    }
    *to++ = '\0';
    all->size = (size_t)(to - (char *)all->data);
    return (int64_t)at;
}

/* Reads the files of a folder of classes: a row for each, with its text and its class, or
 * with its text alone where classes have no meaning. */
static int texts_load(csv_dataset_t *csv, pl_error_t *err)
{
    const pl_data_request_t request = {.stage = csv->source.stage,
                                       .rank = csv->source.rank};
    pl_class_files_t files = {.path = csv->options.path,
                              .file = "",
                              .label = "",
                              .links = true};
    int code = pl_class_files_open(&files, &pl_text_files, &request, err);
    const int64_t rows = files.list.count, classes = files.classes;
    const int columns = files.has_target ? 2 : 1;
    const bool opened = !code;
    pl_file_bytes_t all = {0}, bytes;
    size_t capacity = 0;
    int64_t *at = opened ? pl_alloc_array((size_t)(rows + classes) + 1, sizeof *at)
                         : NULL;
    pl_table_t table = {.rows = rows, .columns = columns, .format = PL_CSV_ANY};
    if (opened) {
        const size_t cells = (size_t)rows * (size_t)columns + 1;
        table.cell = pl_alloc_array(cells, sizeof *table.cell);
        table.line = pl_alloc_array((size_t)rows + 1, sizeof *table.line);
        table.start = pl_alloc_array((size_t)rows + 1, sizeof *table.start);
        table.name = pl_alloc_array(2, sizeof *table.name);
        if (!at || !table.cell || !table.line || !table.start || !table.name)
            code = pl_no_memory(err);
    }
    if (!code
        && (text_add(&all, &capacity, "text", 4, err) < 0
            || text_add(&all, &capacity, "class", 5, err) < 0))
        code = PL_ENOMEM;
    for (int64_t k = 0; k < rows + classes && !code; k++) {
        const char *name = k < rows
                               ? NULL
                               : json_string_value(json_array_get(files.list.class_names,
                                                                  (size_t)(k - rows)));
        code = name ? PL_OK
                    : pl_file_read(files.list.path[k], pl_file_limit(), &bytes, err);
        if (code)
            break;
        at[k] = text_add(&all, &capacity, name ? name : (char *)bytes.data,
                         name ? strlen(name) : bytes.size, err);
        if (at[k] < 0)
            code = pl_error_prefix(err, "%s", csv->options.path);
        if (!name)
            pl_file_bytes_release(&bytes);
    }
    table.text = (char *)all.data;
    for (int64_t row = 0; row < rows && !code; row++) {
        table.cell[row * columns] = table.start[row] = table.text + at[row];
        if (columns == 2)
            table.cell[row * 2 + 1] = table.text + at[rows + files.list.label[row]];
        table.line[row] = row + 1;
    }
    if (!code) {
        table.name[0] = table.text;
        table.name[1] = table.text + sizeof "text";
        csv->table = table;
    } else {
        pl_table_release(&table);
    }
    pl_class_files_close(&files);
    pl_free(at);
    return code;
}

/* A folder of JSON Lines alone is one table of all its files. */
static int folder_load(csv_dataset_t *csv, pl_error_t *err)
{
    char *folder = pl_stage_folder(csv->options.path, csv->source.stage);
    pl_file_list_t list = {0};
    const char *json = NULL, *other = NULL;
    int code = folder ? csv_find_texts(folder, &list, &json, &other, err)
                      : pl_no_memory(err);
    const bool is_table = json && !other;
    if (!code && is_table && list.others)
        csv_log(csv, PL_LOG_INFO, "%lld file%s left out of the table, such as %s",
                (long long)list.others, pl_plural(list.others), list.other);
    if (!code)
        code = is_table ? pl_jsonl_load(csv->options.path, list.path, list.count,
                                        pl_file_limit(), &csv->table, err)
                        : texts_load(csv, err);
    if (code == PL_EFORMAT && json && other)
        csv_refuse_mixture(folder, json, other, err);
    pl_files_release(&list);
    pl_text_free(folder);
    return code;
}

int csv_load(csv_dataset_t *csv, pl_error_t *err)
{
    if (csv->source.part && csv->source.part->head)
        return csv_part_load(csv, err);
    static const char points[] = {PL_CSV_FIND, '.', ','};
    pl_csv_format_t format = {.header = csv->options.header,
                              .decimal = points[csv->options.decimal],
                              .skip = csv->options.skip_lines};
    int code = csv_character(csv->options.path, "delimiter", csv->options.delimiter,
                             &format.delimiter, err);
    if (!code)
        code = csv_character(csv->options.path, "comment", csv->options.comment,
                             &format.comment, err);
    struct stat status;
    if (!code && stat(csv->options.path, &status) == 0 && S_ISDIR(status.st_mode))
        code = folder_load(csv, err);
    else if (!code && pl_is_sqlite(csv->options.path))
        code = pl_sqlite_load(csv->options.path, csv->options.from_table,
                              csv->options.query, pl_file_limit(), &csv->table, err);
    else if (!code && (*csv->options.from_table || *csv->options.query))
        code = pl_fail(err, PL_EINVAL,
                       "%s is no SQLite database: remove \"table\" and \"query\"",
                       csv->options.path);
    else if (!code && csv_is_json_lines(csv->options.path))
        code = pl_jsonl_load(csv->options.path, &(char *){(char *)csv->options.path}, 1,
                             pl_file_limit(), &csv->table, err);
    else if (!code)
        code = csv_read_text(csv, &format, err);
    const bool may_differ = !code && csv->table.start
                            && csv->options.header == PL_CSV_AUTO,
               recurs = may_differ && csv->table.name && names_recur(&csv->table);
    if (recurs || (may_differ && !csv->table.name && has_years_as_names(&csv->table))) {
        csv_log(csv, PL_LOG_INFO,
                recurs ? "the first line is a row, because a text of it occurs again "
                         "below; \"header\": \"yes\" makes it the names of the columns"
                       : "the first line has the names of the columns, because its "
                         "numbers are years; \"header\": \"no\" makes it a row");
        pl_table_release(&csv->table);
        format.header = recurs ? PL_CSV_NO : PL_CSV_YES;
        code = csv_read_text(csv, &format, err);
    }
    if (code)
        return code;
    const pl_table_t *table = &csv->table;
    if (table->skipped && csv->options.skip_lines < 0)
        csv_log(
            csv, PL_LOG_INFO,
            table->skipped == 1
                ? "the first line is not part of the table; \"skip_lines\": 0 reads it, "
                  "too"
                : "the first %lld lines are not part of the table; \"skip_lines\": 0 "
                  "reads them, too",
            (long long)table->skipped);
    csv_empty_cells(csv);
    return PL_OK;
}
