/* csv_columns.c - the uses of the columns of a table */
#include "actors/connectors/datasets/csv_parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/log.h"
#include "base/utf8.h"

void csv_log(const csv_dataset_t *csv, pl_log_level_t level, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (csv->source.rank == 0)
        pl_log_line(level, 0, "data set csv", "%s: %s", csv->options.path, text);
}

const char *csv_column_text(const pl_table_t *table, int column, char text[static 80])
{
    if (table->name)
        snprintf(text, 80, "%d (%.48s)", column + 1, table->name[column]);
    else
        snprintf(text, 80, "%d", column + 1);
    return text;
}

int csv_wrong_cell(const csv_dataset_t *csv, int64_t row, int column, const char *what,
                   pl_error_t *err)
{
    char place[PL_PLACE_TEXT], text[80];
    const char *cell = pl_table_cell(&csv->table, row, column);
    pl_table_place(&csv->table, row, column, place);
    return pl_fail(err, PL_EFORMAT, "%s:%s: field %s: \"%.32s\" is not %s%s",
                   csv->options.path, place, csv_column_text(&csv->table, column, text),
                   cell, what,
                   !pl_utf8_ok(cell, strlen(cell)) ? ": " CSV_CONVERT
                   : row > 0 || csv->table.name
                       ? "; if it means a missing cell, add it to \"missing_values\""
                       : "; if this line holds names, set \"header\": \"yes\"");
}

/* ---- Uses of columns, by position ---- */

int csv_column(const pl_table_t *table, const char *text, size_t length)
{
    char *end;
    for (; length > 0 && *text == ' '; text++)
        length--;
    while (length > 0 && text[length - 1] == ' ')
        length--;
    for (int k = 0; table->name && k < table->columns; k++)
        if (strlen(table->name[k]) == length && !memcmp(table->name[k], text, length))
            return k;
    long number = strtol(text, &end, 10);
    bool whole = length > 0 && end == text + length;
    return whole && number >= 0 && number < table->columns ? (int)number : -1;
}

/* Gives the columns "a,b" to further field k. */
static int csv_claim(csv_dataset_t *csv, int k, pl_error_t *err)
{
    const char *name = csv->columns.others.name[k], *text = csv->columns.others.text[k];
    if (!*name || strlen(name) >= sizeof(((pl_field_t *)0)->name) || !strcmp(name, "x")
        || (!strcmp(name, "y") && !csv->columns.are_several))
        return pl_fail(
            err, PL_EINVAL,
            "%s: a field cannot be called \"%.40s\": x are the features, y the "
            "target, and a name has 1 to %zu bytes",
            csv->options.path, name, sizeof(((pl_field_t *)0)->name) - 1);
    for (size_t length;; text += length + 1) {
        length = strcspn(text, ",");
        const int column = csv_column(&csv->table, text, length);
        if (column < 0
            || (csv->columns.use[column] != FOR_FEATURE
                && csv->columns.use[column] != FOR_NOTHING))
            return pl_fail(err, PL_EINVAL, "%s: field \"%s\": %s column \"%.*s\"%s",
                           csv->options.path, name, column < 0 ? "there is no" : "the",
                           (int)(length < 40 ? length : 40), text,
                           column < 0 ? "" : " already has another use");
        csv->columns.use[column] = csv->columns.other_columns++;
        csv->columns.width[k]++;
        if (!text[length])
            return PL_OK;
    }
}

static void other_remove(pl_texts_t *others, int k)
{
    for (others->count--; k < others->count; k++) {
        others->name[k] = others->name[k + 1];
        others->text[k] = others->text[k + 1];
    }
}

/* A stage that predicts has no loss, so it needs no column for the field "weight". */
static void csv_spare_weight(csv_dataset_t *csv, const json_t *known)
{
    pl_texts_t *others = &csv->columns.others;
    const json_t *names = json_object_get(known, "weight");
    for (int k = others->count - 1; k >= 0; k--) {
        const char *name = names ? json_string_value(json_array_get(names, 0))
                                 : others->text[k];
        if (!strcmp(others->name[k], "weight") && name
            && csv_column(&csv->table, name, strlen(name)) < 0)
            other_remove(others, k);
    }
}

/* If the fields name "y", it replaces `label` as the target and is no further field.  The
 * column must exist unless the training data determines it, or the stage predicts. */
static int csv_name_target(csv_dataset_t *csv, bool is_known, pl_stage_t stage,
                           pl_error_t *err)
{
    pl_texts_t *others = &csv->columns.others;
    int k = 0;
    while (k < others->count && strcmp(others->name[k], "y"))
        k++;
    if (k == others->count)
        return PL_OK;
    bool are_several;
    const int code = csv_several_targets(csv, k, stage, &are_several, err);
    if (code || are_several)
        return code;
    csv->columns.label = csv_column(&csv->table, others->text[k],
                                    strlen(others->text[k]));
    if (csv->columns.label < 0 && !is_known && stage == PL_PREDICT)
        csv->columns.wanted = TARGET_NONE;
    else if (csv->columns.label < 0 && !is_known)
        return csv_refuse_target(csv, others->text[k], strlen(others->text[k]), err);
    other_remove(others, k);
    return PL_OK;
}

/* Calls `use` for each column of the text "a,b". */
static int csv_mark(csv_dataset_t *csv, const char *option, const char *text, int use,
                    pl_error_t *err)
{
    for (size_t length; *text; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        const int column = csv_column(&csv->table, text, length);
        if (column < 0)
            return pl_fail(err, PL_EINVAL, "%s: \"%s\": there is no column \"%.*s\"",
                           csv->options.path, option, (int)(length < 40 ? length : 40),
                           text);
        if (column != csv->columns.target)
            csv->columns.use[column] = use;
    }
    return PL_OK;
}

/* A column without a name and without cells is behind a delimiter at the end of each
 * line. */
static bool is_void(const pl_table_t *table, int column)
{
    bool is_empty = table->name && !*table->name[column];
    for (int64_t row = 0; row < table->rows && is_empty; row++)
        is_empty = !*pl_table_cell(table, row, column);
    return is_empty;
}

/* Columns other than the target, the further fields and the ignored ones are features,
 * unless the option "features" lists them. */
static int csv_use_by_position(csv_dataset_t *csv, pl_error_t *err)
{
    const pl_table_t *table = &csv->table;
    int last = table->columns - 1;
    while (last > 0 && is_void(table, last))
        last--;
    csv->columns.target = csv->columns.wanted == TARGET_NONE ? -1
                          : csv->columns.label < 0           ? last
                                                             : (int)csv->columns.label;
    if (csv->columns.label >= table->columns)
        return pl_fail(err, PL_EINVAL,
                       "%s: \"label\" is %lld, but the columns are 0 to %d",
                       csv->options.path, (long long)csv->columns.label,
                       table->columns - 1);
    for (int k = 0; k < table->columns; k++)
        csv->columns.use[k] = k == csv->columns.target         ? FOR_TARGET
                              : *csv->options.used || k > last ? FOR_NOTHING
                                                               : FOR_FEATURE;
    int code = csv_mark(csv, "groups", csv->options.groups, FOR_NOTHING, err);
    if (!code && csv->options.window)
        code = csv_mark(csv, "time", csv->options.time, FOR_NOTHING, err);
    if (!code)
        code = csv_mark(csv, "features", csv->options.used, FOR_FEATURE, err);
    if (!code)
        code = csv_mark(csv, "ignore", csv->options.ignored, FOR_NOTHING, err);
    for (int k = 0; k < csv->columns.others.count && !code; k++)
        code = csv_claim(csv, k, err);
    csv->columns.sources = 0;
    for (int k = 0; k < table->columns && !code; k++)
        if (csv->columns.use[k] == FOR_FEATURE)
            csv->columns.from[csv->columns.sources++] = k;
    if (!code && csv->columns.sources == 0)
        code = pl_fail(err, PL_EFORMAT, "%s: %s: there are no features",
                       csv->options.path,
                       csv->columns.other_columns || *csv->options.ignored
                           ? "every column is the label, a field or ignored"
                           : "the only column is the label");
    return code;
}

/* ---- Uses of columns, by the names in the training data ---- */

#define TWICE (-1)

/* Gives the column of a name a use. */
static int csv_use_name(csv_dataset_t *csv, const json_t *name, int use, int *column,
                        pl_error_t *err)
{
    const char *text = json_string_value(name);
    const json_t *place = text ? json_object_get(csv->columns.places, text) : NULL;
    if (!place)
        return pl_fail(err, PL_ENOTFOUND,
                       "%s: there is no column \"%.60s\", which the training data has",
                       csv->options.path, text ? text : "");
    *column = (int)json_integer_value(place);
    if (*column == TWICE)
        return pl_fail(err, PL_EFORMAT,
                       "%s: two columns are called \"%.60s\", so it is not clear which "
                       "one the training data has",
                       csv->options.path, text);
    if (csv->columns.use[*column] != FOR_NOTHING)
        return pl_fail(err, PL_EINVAL, "%s: the column \"%.60s\" already has another use",
                       csv->options.path, text);
    csv->columns.use[*column] = use;
    return PL_OK;
}

/* Numbers such as "3,4" count the columns of the training data. */
static int csv_use_other(csv_dataset_t *csv, const json_t *known, int k, pl_error_t *err)
{
    const json_t *names = json_object_get(known, csv->columns.others.name[k]);
    const char *text = csv->columns.others.text[k];
    if (!names || !*text || text[strspn(text, "0123456789,")])
        return csv_claim(csv, k, err);
    int code = PL_OK, column;
    for (size_t i = 0; i < json_array_size(names) && !code; i++, csv->columns.width[k]++)
        code = csv_use_name(csv, json_array_get(names, i), csv->columns.other_columns++,
                            &column, err);
    return code;
}

/* A list of columns, "a,b", has this one. */
static bool lists_column(const csv_dataset_t *csv, const char *text, int column)
{
    bool lists = false;
    for (size_t length; *text && !lists; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        lists = csv_column(&csv->table, text, length) == column;
    }
    return lists;
}

/* The run file says that a column is no feature. */
static bool is_left_out(const csv_dataset_t *csv, int column)
{
    return lists_column(csv, csv->options.ignored, column)
           || lists_column(csv, csv->options.groups, column)
           || lists_column(csv, csv->options.time, column);
}

static int csv_use_by_name(csv_dataset_t *csv, const json_t *known, pl_stage_t stage,
                           pl_error_t *err)
{
    const json_t *x = json_object_get(known, "x"),
                 *y = json_array_get(json_object_get(known, "y"), 0);
    pl_error_t why = {0};
    int code = PL_OK;
    for (int k = 0; k < csv->table.columns; k++)
        csv->columns.use[k] = FOR_NOTHING;
    csv->columns.target = -1;
    if (csv->columns.wanted != TARGET_NONE && y)
        code = csv_use_name(csv, y, FOR_TARGET, &csv->columns.target, &why);
    if (code) {
        csv->columns.target = -1;
        if (code != PL_ENOTFOUND || stage != PL_PREDICT)
            return pl_fail(err, code, "%s", why.text);
        code = PL_OK;                         /* a stage that predicts needs no targets */
    }
    for (; (size_t)csv->columns.sources < json_array_size(x) && !code;
         csv->columns.sources++) {
        if (csv->columns.sources == csv->table.columns)
            return pl_fail(err, PL_ENOTFOUND,
                           "%s: %d column%s, but the training data has %zu features",
                           csv->options.path, csv->table.columns,
                           pl_plural(csv->table.columns), json_array_size(x));
        code = csv_use_name(csv, json_array_get(x, (size_t)csv->columns.sources),
                            FOR_FEATURE, &csv->columns.from[csv->columns.sources], err);
    }
    for (int k = 0; k < csv->columns.others.count && !code; k++)
        code = csv_use_other(csv, known, k, err);
    if (!code) {
        char names[200] = "";
        int count = 0, length = 0;
        for (int k = 0; k < csv->table.columns; k++) {
            if (csv->columns.use[k] != FOR_NOTHING || is_left_out(csv, k))
                continue;
            if (length < (int)sizeof names - 60)
                length += snprintf(names + length, sizeof names - (size_t)length,
                                   "%s\"%.40s\"", count ? ", " : "", csv->table.name[k]);
            count++;
        }
        if (count)
            csv_log(csv,
                    stage == PL_TEST || stage == PL_PREDICT ? PL_LOG_WARNING
                                                            : PL_LOG_INFO,
                    "%d column%s not used, which the training data did not use: %s%s",
                    count, count > 1 ? "s are" : " is", names,
                    length < (int)sizeof names - 60 ? "" : ", …");
    }
    return code;
}

int csv_find_uses(csv_dataset_t *csv, const json_t *data_info, pl_stage_t stage,
                  pl_error_t *err)
{
    const json_t *known = json_object_get(data_info, COLUMNS);
    if (stage == PL_PREDICT && csv->table.name)
        csv_spare_weight(csv, known);
    if (csv_name_target(csv, known && csv->table.name, stage, err) != PL_OK)
        return PL_EINVAL;
    if (csv->columns.others.count > PL_FIELDS - 2)
        return pl_fail(err, PL_EINVAL, "%s: at most %d further fields", csv->options.path,
                       PL_FIELDS - 2);
    csv->columns.use = pl_alloc_array((size_t)csv->table.columns,
                                      sizeof *csv->columns.use);
    csv->columns.from = pl_alloc_array((size_t)csv->table.columns,
                                       sizeof *csv->columns.from);
    if (!csv->columns.use || !csv->columns.from)
        return pl_no_memory(err);
    csv->columns.places = csv->table.name ? json_object() : NULL;
    for (int k = 0; csv->table.name && k < csv->table.columns; k++) {
        const char *name = csv->table.name[k];
        const bool again = json_object_get(csv->columns.places, name);
        if (json_object_set_new_nocheck(csv->columns.places, name,
                                        json_integer(again ? TWICE : k))
            != 0)
            return pl_no_memory(err);
    }
    if (known && csv->table.name)
        return csv_use_by_name(csv, known, stage, err);
    if (known || (data_info && csv->table.name))
        csv_log(csv, PL_LOG_WARNING, "columns are matched by position: %s",
                known ? "the file has no header, but the training data has one"
                      : "the names of the training data's columns are not known");
    const json_t *shape = json_object_get(data_info, "shape");
    const int64_t features = json_integer_value(json_array_get(shape, 0));
    const int code = csv_use_by_position(csv, err);
    if (code || stage == PL_TRAIN || json_array_size(shape) != 1
        || json_object_get(data_info, RECIPES) || csv->columns.sources == features)
        return code;
    return pl_fail(err, PL_EINVAL,
                   "%s: %d feature%s, but the training data had %lld: check the options "
                   "target and label",
                   csv->options.path, csv->columns.sources,
                   pl_plural(csv->columns.sources), (long long)features);
}

int csv_number_groups(csv_dataset_t *csv, pl_error_t *err)
{
    const int column = csv_column(&csv->table, csv->options.groups,
                                  strlen(csv->options.groups));
    json_t *numbers = json_object();
    char place[PL_PLACE_TEXT], text[80];
    int code = PL_OK, failed = !numbers;
    if (column < 0) {
        json_decref(numbers);
        return pl_fail(err, PL_EINVAL, "%s: \"groups\": there is no column \"%.40s\"",
                       csv->options.path, csv->options.groups);
    }
    if (column == csv->columns.target) {
        json_decref(numbers);
        return pl_fail(err, PL_EINVAL,
                       "%s: \"groups\" is the target \"%.40s\", so that a part would "
                       "have targets that the other lacks: name another column, such as "
                       "a person or a day",
                       csv->options.path, csv->options.groups);
    }
    csv->columns.group = column;
    csv->samples.group = pl_alloc_array((size_t)csv->rows + 1,
                                        sizeof *csv->samples.group);
    failed = failed || !csv->samples.group;
    for (int64_t row = 0; row < csv->rows && !failed && !code; row++) {
        const char *cell = pl_table_cell(&csv->table, row, column);
        const json_t *known = json_object_get(numbers, cell);
        const json_int_t next = (json_int_t)json_object_size(numbers);
        csv->samples.group[row] = known ? json_integer_value(known) : next;
        if (!known)
            failed = json_object_set_new_nocheck(numbers, cell, json_integer(next));
        pl_table_place(&csv->table, row, column, place);
        if (!*cell)
            code = pl_fail(err, PL_EFORMAT,
                           "%s:%s: field %s is empty, but \"groups\" names it: each row "
                           "needs a group",
                           csv->options.path, place,
                           csv_column_text(&csv->table, column, text));
    }
    json_decref(numbers);
    return failed ? pl_no_memory(err) : code;
}

int csv_names(const csv_dataset_t *csv, json_t **names_p, pl_error_t *err)
{
    char **name = csv->table.name;
    for (int k = 0; name && k < csv->table.columns; k++) {
        if (json_integer_value(json_object_get(csv->columns.places, name[k])) != TWICE
            && pl_utf8_ok(name[k], strlen(name[k])))
            continue;
        csv_log(csv, PL_LOG_WARNING,
                "columns of other files are matched by position, because the name "
                "\"%.40s\" occurs twice or is not UTF-8",
                name[k]);
        return PL_OK;
    }
    if (!name)
        return PL_OK;
    json_t *names = json_object(), *list = json_array();
    for (int k = 0; k < csv->columns.sources; k++)
        list = pl_json_append(list, json_string(name[csv->columns.from[k]]));
    names = pl_json_with(names, "x", list);
    if (csv->columns.target >= 0) {
        list = pl_json_append(json_array(), json_string(name[csv->columns.target]));
        names = pl_json_with(names, "y", list);
    }
    for (int k = 0, at = 0; k < csv->columns.others.count;
         at += csv->columns.width[k++]) {
        const int columns = csv->table.columns;
        list = json_array();
        for (int i = 0; i < csv->columns.width[k] * columns; i++)
            if (csv->columns.use[i % columns] == at + i / columns)
                list = pl_json_append(list, json_string(name[i % columns]));
        names = pl_json_with(names, csv->columns.others.name[k], list);
    }
    *names_p = names;
    return names ? PL_OK : pl_no_memory(err);
}
