/* csv_target.c - the target of a table: classes with names, or values
 *
 * Classes are numbered from 0.  Texts, and whole numbers that do not begin at 0, are
 * numbered in their order; the data info has them as names of the classes, and so the
 * same text is the same class in every file. */
#include "actors/connectors/datasets/csv_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/utf8.h"

/* The most classes that "auto" accepts; more than PL_CLASSES_FEW need two rows each. */
#define CLASSES_MAX 1000

static bool is_ignored(const csv_dataset_t *csv, double label)
{
    return label == (double)csv->ignore_index;
}

static bool is_whole(double value)
{
    return isfinite(value) && value == floor(value);
}

/* ---- Names of classes ---- */

static int compare_names(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    double first, second;
    if (pl_number(x, strlen(x), '.', &first) && pl_number(y, strlen(y), '.', &second)
        && first != second)
        return first < second ? -1 : 1;
    return strcmp(x, y);
}

/* "2" for 2 and for 2.0: numbers have one name however they are written. */
static const char *name_of(const csv_dataset_t *csv, int64_t row, char text[static 40])
{
    double number;
    if (!pl_csv_number(&csv->table, row, csv->column, &number))
        return pl_csv_cell(&csv->table, row, csv->column);
    snprintf(text, 40, "%.17g", number);
    return text;
}

/* Numbers the classes by the names that the cells have, or that are known. */
static int csv_number_classes(csv_dataset_t *csv, const json_t *known, pl_error_t *err)
{
    json_t *places = json_object();
    const char **name = NULL, *key;
    json_t *place;
    char text[40];
    int count = 0, failed = !places, code = PL_OK;
    for (int64_t row = 0; row < csv->rows && !failed && !known && !code; row++) {
        const char *cell = name_of(csv, row, text);
        if (!pl_utf8_ok(cell, strlen(cell)))
            code = csv_wrong_cell(csv, row, csv->column, "UTF-8", err);
        else if (cell != text || !is_ignored(csv, csv->y[row]))
            failed = json_object_set_new(places, cell, json_integer(0));
    }
    size_t names = known ? json_array_size(known) : json_object_size(places);
    name = pl_alloc_array(names + 1, sizeof *name);
    failed = failed || !name;
    json_object_foreach(failed ? NULL : places, key, place)
        name[count++] = key;
    for (; known && !failed && count < (int)names; count++) {
        name[count] = json_string_value(json_array_get(known, (size_t)count));
        name[count] = name[count] ? name[count] : "";
    }
    if (!known && !failed)
        qsort(name, names, sizeof *name, compare_names);
    csv->class_names = json_array();
    for (int k = 0; k < count && !failed; k++) {
        failed = json_array_append_new(csv->class_names, json_string(name[k]))
                 || json_object_set_new(places, name[k], json_integer(k));
    }
    for (int64_t row = 0; row < csv->rows && !failed && !code; row++) {
        const char *cell = name_of(csv, row, text);
        place = json_object_get(places, cell);
        if (place)
            csv->y[row] = (double)json_integer_value(place);
        else if (cell != text || !is_ignored(csv, csv->y[row]))
            code = csv_wrong_cell(csv, row, csv->column, "a class of the training data",
                                  err);
    }
    pl_free(name);
    json_decref(places);
    return failed ? pl_no_memory(err) : code;
}

/* ---- The type of the target ---- */

/* What the numbers of a target are. */
typedef struct labels {
    int64_t odd_row;                    /* first that is neither a whole number from 0 nor
                                           ignored  [-1] */
    bool whole;                         /* all are whole */
    double smallest, largest;           /* of those that are not ignored */
    int kinds;                          /* different ones, up to 3 */
} labels_t;

static labels_t labels_of(const csv_dataset_t *csv)
{
    labels_t found = {.odd_row = -1, .whole = true, .smallest = INFINITY, .largest = -1};
    double seen[3];
    for (int64_t row = 0; row < csv->rows; row++) {
        const double label = csv->y[row];
        int k = 0;
        if (is_ignored(csv, label))
            continue;
        if ((label < 0 || !is_whole(label)) && found.odd_row < 0)
            found.odd_row = row;
        found.whole = found.whole && is_whole(label);
        found.smallest = fmin(found.smallest, label);
        found.largest = fmax(found.largest, label);
        while (k < found.kinds && seen[k] != label)
            k++;
        if (k == found.kinds && found.kinds < 3)
            seen[found.kinds++] = label;
    }
    return found;
}

/* "auto" in the training data: whole numbers that are many for the number of rows are
 * rather a value. */
static csv_target_t csv_decide_target(const csv_dataset_t *csv, const labels_t *labels)
{
    char column[80];
    if (csv->table.name)
        snprintf(column, sizeof column, "\"%.60s\"", csv->table.name[csv->column]);
    else
        snprintf(column, sizeof column, "%d", csv->column);
    if (labels->odd_row >= 0 && labels->whole && labels->kinds == 2) {
        csv_log(csv, PL_LOG_INFO,
                "the target, column %s, is one of 2 classes, %.0f and %.0f; \"target\": "
                "\"value\" makes it a value",
                column, labels->smallest, labels->largest);
        return TARGET_CLASS;
    }
    if (labels->odd_row >= 0) {
        csv_log(csv, PL_LOG_INFO,
                "the target, column %s, is a value: not all values are whole numbers "
                "from 0",
                column);
        return TARGET_VALUE;
    }
    const double classes = labels->largest + 1;
    if (classes > PL_LABEL_MAX + 1.0) {
        csv_log(csv, PL_LOG_INFO,
                "the target, column %s, is a value: %.0f is more than %d, the largest "
                "possible label",
                column, classes - 1, PL_LABEL_MAX);
        return TARGET_VALUE;
    }
    const bool many = classes > PL_CLASSES_FEW
                      && (classes > CLASSES_MAX || 2 * classes > (double)csv->rows);
    if (labels->smallest >= 1 && !many) {
        csv_log(csv, PL_LOG_INFO,
                "the target, column %s, is a class, %.0f to %.0f; \"target\": \"value\" "
                "makes it a value",
                column, labels->smallest, labels->largest);
        return TARGET_CLASS;
    }
    csv_log(csv, PL_LOG_INFO,
            many ? "the target, column %s, is a value: its whole numbers would be %.0f "
                   "classes in %lld row%s; \"target\": \"class\" makes them classes"
            : classes == 1
                ? "the target, column %s, has only %.0f class in %lld row%s; "
                  "\"target\": \"value\" makes it a value"
                : "the target, column %s, is one of %.0f classes in %lld row%s; "
                  "\"target\": \"value\" makes it a value",
            column, classes, (long long)csv->rows, pl_plural(csv->rows));
    return many ? TARGET_VALUE : TARGET_CLASS;
}

/* Reads y; *words_p: cells that are no numbers.  Without targets a file can only be
 * predicted. */
static int csv_read_target(csv_dataset_t *csv, int64_t *words_p, int64_t *word_p,
                           pl_error_t *err)
{
    char place[48], text[80];
    csv->y = pl_alloc_array((size_t)csv->rows + 1, sizeof *csv->y);
    if (!csv->y)
        return pl_no_memory(err);
    for (int64_t row = 0; row < csv->rows; row++) {
        csv->y[row] = NAN;
        if (!*pl_csv_cell(&csv->table, row, csv->column)) {
            if (csv->stage == PL_PREDICT) {
                csv->column = -1;
                return PL_OK;
            }
            pl_csv_place(&csv->table, row, csv->column, place);
            return pl_fail(err, PL_EFORMAT,
                           "%s:%s: field %s of %d is missing: it is the target; "
                           "\"missing\": \"drop\" leaves such rows out",
                           csv->path, place, csv_column_text(csv, csv->column, text),
                           csv->table.columns);
        }
        if (pl_csv_number(&csv->table, row, csv->column, &csv->y[row]))
            continue;
        if (!(*words_p)++)
            *word_p = row;
    }
    return PL_OK;
}

/* Texts: classes, unless most cells are numbers. */
static int csv_find_text_classes(csv_dataset_t *csv, int64_t words, int64_t word,
                                 pl_error_t *err)
{
    char text[80];
    if (csv->target == TARGET_VALUE || 2 * words <= csv->rows)
        return csv_wrong_cell(csv, word, csv->column, "a finite number", err);
    int code = csv_number_classes(csv, NULL, err);
    const int64_t classes = (int64_t)json_array_size(csv->class_names);
    if (!code && classes > PL_CLASSES_FEW && 2 * classes > csv->rows)
        return pl_fail(err, PL_EFORMAT,
                       "%s: field %s is the target and has %lld texts in %lld rows: they "
                       "are no classes; name another column: \"fields\": {\"y\": "
                       "\"NAME\"}",
                       csv->path, csv_column_text(csv, csv->column, text),
                       (long long)classes, (long long)csv->rows);
    csv->kind = TARGET_CLASS;
    return code;
}

int csv_find_target(csv_dataset_t *csv, const json_t *data_info, pl_error_t *err)
{
    const json_t *known = json_object_get(data_info, CLASS_NAMES);
    int64_t words = 0, word = 0;
    csv->kind = TARGET_NONE;
    if (csv->column < 0)
        return PL_OK;
    int code = csv_read_target(csv, &words, &word, err);
    if (code || csv->column < 0)
        return code;
    if (known && csv->target != TARGET_VALUE) {
        csv->kind = TARGET_CLASS;
        return csv_number_classes(csv, known, err);
    }
    if (words && !data_info)
        return csv_find_text_classes(csv, words, word, err);
    if (words)
        return csv_wrong_cell(csv, word, csv->column, "a finite number", err);
    const labels_t labels = labels_of(csv);
    if (csv->target != TARGET_AUTO)
        csv->kind = csv->target;
    else if (data_info)
        csv->kind = json_object_get(data_info, "classes") ? TARGET_CLASS : TARGET_VALUE;
    else
        csv->kind = csv_decide_target(csv, &labels);
    if (csv->kind != TARGET_CLASS)
        return PL_OK;
    const bool counts_from_0 = labels.odd_row < 0 && labels.smallest < 1;
    if (!data_info && labels.whole && labels.kinds && !counts_from_0
        && (labels.odd_row < 0 || labels.kinds == 2))
        return csv_number_classes(csv, NULL, err);
    if (labels.odd_row < 0)
        return PL_OK;
    const double label = csv->y[labels.odd_row];
    char shown[400];
    snprintf(shown, sizeof shown, is_whole(label) ? "%.0f" : "%g", label);
    return pl_fail(err, PL_EFORMAT,
                   "%s:%lld: the label is %s; classes are whole numbers from 0%s; the "
                   "label %lld is ignored (ignore_index)",
                   csv->path, (long long)csv->table.line[labels.odd_row], shown,
                   csv->target == TARGET_AUTO
                       ? ", and the training data has classes: to predict "
                         "a value, train with \"target\": \"value\""
                       : ": set \"target\": \"value\" for other numbers",
                   (long long)csv->ignore_index);
}

static int csv_measure_classes(csv_dataset_t *csv, pl_error_t *err)
{
    int64_t largest = 0;
    int64_t *count = pl_alloc_array((size_t)csv->classes + 1, sizeof *count);
    if (!count)
        return pl_no_memory(err);
    for (int64_t row = 0; row < csv->rows; row++)
        if (!is_ignored(csv, csv->y[row])) {
            const int64_t times = ++count[(int64_t)csv->y[row]];
            largest = times > largest ? times : largest;
        }
    csv->class_share = csv->rows ? (double)largest / (double)csv->rows : 0;
    pl_free(count);
    return PL_OK;
}

/* The number of classes here or in the training data, whichever is larger. */
int csv_count_classes(csv_dataset_t *csv, const pl_data_request_t *request,
                      const json_t *data_info, pl_error_t *err)
{
    if (csv->kind != TARGET_CLASS)
        return PL_OK;
    const labels_t labels = labels_of(csv);
    for (int64_t row = 0; row < csv->rows && labels.largest > PL_LABEL_MAX; row++)
        if (csv->y[row] > PL_LABEL_MAX && !is_ignored(csv, csv->y[row]))
            return pl_fail(err, PL_EFORMAT,
                           "%s:%lld: the label is %.0f, but the largest possible label "
                           "is %d: number the classes from 0, or set \"target\": "
                           "\"value\"",
                           csv->path, (long long)csv->table.line[row], csv->y[row],
                           PL_LABEL_MAX);
    const int64_t largest = (int64_t)labels.largest;
    if (!data_info && csv->rows)
        pl_dataset_warn_of_labels(request, csv->path, csv->rows,
                                  largest < 0 ? -1 : (int64_t)labels.smallest, largest);
    int64_t known = json_integer_value(json_object_get(data_info, "classes"));
    csv->classes = known > largest + 1 ? known : largest + 1;
    csv->class_share = json_number_value(json_object_get(data_info, CLASS_SHARE));
    return data_info ? PL_OK : csv_measure_classes(csv, err);
}
