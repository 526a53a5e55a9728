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
#include <strings.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/utf8.h"

/* The most classes that "auto" accepts; more than PL_CLASSES_FEW need two rows each. */
#define CLASSES_MAX 1000

static bool is_ignored(const csv_dataset_t *csv, double label)
{
    return label == (double)csv->options.ignore_index;
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
    if (!pl_table_number(&csv->table, row, csv->columns.target, &number))
        return pl_table_cell(&csv->table, row, csv->columns.target);
    snprintf(text, 40, "%.17g", number);
    return text;
}

/* Names of classes that a table in parts may have. */
#define NAMES_MAX 10000

/* Counts the names of the classes in the rows; of a part, up to NAMES_MAX different
 * ones. */
static int names_count(csv_dataset_t *csv, json_t *names, pl_error_t *err)
{
    char text[40];
    for (int64_t row = 0; row < csv->table.rows
                          && !(csv->source.part && json_object_size(names) > NAMES_MAX);
         row++) {
        const char *cell = name_of(csv, row, text);
        if (!pl_utf8_ok(cell, strlen(cell)))
            return csv_wrong_cell(csv, row, csv->columns.target, "UTF-8", err);
        if ((cell != text || !is_ignored(csv, csv->samples.y[row]))
            && csv_count_text(names, cell))
            return pl_no_memory(err);
    }
    return PL_OK;
}

/* Numbers the classes by names that are known, or [NULL] in the order of `found`. */
static int csv_number_classes(csv_dataset_t *csv, const json_t *known,
                              const json_t *found, pl_error_t *err)
{
    json_t *places = json_object(), *place;
    const char **name = NULL, *key;
    char text[40];
    int count = 0, code = PL_OK;
    size_t names = known ? json_array_size(known) : json_object_size(found);
    name = pl_alloc_array(names + 1, sizeof *name);
    int failed = !places || !name;
    json_object_foreach(failed || known ? NULL : (json_t *)found, key, place)
        name[count++] = key;
    for (; known && !failed && count < (int)names; count++) {
        name[count] = json_string_value(json_array_get(known, (size_t)count));
        name[count] = name[count] ? name[count] : "";
    }
    if (!known && !failed)
        qsort(name, names, sizeof *name, compare_names);
    csv->learnt.class_names = json_array();
    for (int k = 0; k < count && !failed; k++) {
        failed = json_array_append_new(csv->learnt.class_names, json_string(name[k]))
                 || json_object_set_new(places, name[k], json_integer(k));
    }
    for (int64_t row = 0; row < csv->table.rows && !failed && !code; row++) {
        const char *cell = name_of(csv, row, text);
        place = json_object_get(places, cell);
        if (place)
            csv->samples.y[row] = (double)json_integer_value(place);
        else if (cell != text || !is_ignored(csv, csv->samples.y[row]))
            code = csv_wrong_cell(csv, row, csv->columns.target,
                                  "a class of the training data", err);
    }
    pl_free(name);
    json_decref(places);
    return failed ? pl_no_memory(err) : code;
}

/* The same by the names that the cells have, which were counted or are counted here. */
static int csv_find_names(csv_dataset_t *csv, const csv_labels_t *labels, pl_error_t *err)
{
    json_t *names = labels->gathers ? json_incref(labels->names) : json_object();
    int code = names ? PL_OK : pl_no_memory(err);
    if (!code && !labels->gathers)
        code = names_count(csv, names, err);
    if (!code && labels->gathers && json_object_size(names) > NAMES_MAX)
        code = pl_fail(err, PL_EFORMAT, "%s: the target has more than %d classes",
                       csv->options.path, NAMES_MAX);
    if (!code)
        code = csv_number_classes(csv, NULL, names, err);
    json_decref(names);
    return code;
}

/* ---- The type of the target ---- */

/* Counts numbers of a target; -> whether a row is the first that is odd. */
static bool label_count(const csv_dataset_t *csv, csv_labels_t *labels, double label)
{
    int k = 0;
    if (!labels->rows++) {
        labels->whole = true;
        labels->smallest = INFINITY;
        labels->largest = -1;
    }
    if (is_ignored(csv, label))
        return false;
    const bool is_odd = label < 0 || !is_whole(label);
    labels->whole = labels->whole && is_whole(label);
    labels->smallest = fmin(labels->smallest, label);
    labels->largest = fmax(labels->largest, label);
    while (k < labels->kinds && labels->seen[k] != label)
        k++;
    if (k == labels->kinds && labels->kinds < 3)
        labels->seen[labels->kinds++] = label;
    return is_odd && !labels->odd_line;
}

/* "auto" in the training data: whole numbers that are many for the number of rows are
 * rather a value. */
static csv_target_t csv_decide_target(const csv_dataset_t *csv,
                                      const csv_labels_t *labels)
{
    char column[80];
    if (csv->table.name)
        snprintf(column, sizeof column, "\"%.60s\"",
                 csv->table.name[csv->columns.target]);
    else
        snprintf(column, sizeof column, "%d", csv->columns.target);
    if (labels->odd_line && labels->whole && labels->kinds == 2) {
        csv_log(csv, PL_LOG_INFO,
                "the target, column %s, is one of 2 classes, %.0f and %.0f; \"target\": "
                "\"value\" makes it a value",
                column, labels->smallest, labels->largest);
        return TARGET_CLASS;
    }
    if (labels->odd_line) {
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

int csv_labels_count(csv_dataset_t *csv, csv_labels_t *labels, pl_error_t *err)
{
    char place[PL_PLACE_TEXT], text[80];
    csv->samples.y = pl_alloc_array((size_t)csv->table.rows + 1, sizeof *csv->samples.y);
    if (!csv->samples.y)
        return pl_no_memory(err);
    for (int64_t row = 0; row < csv->table.rows; row++) {
        csv->samples.y[row] = NAN;
        if (!*pl_table_cell(&csv->table, row, csv->columns.target)) {
            if (csv->source.stage == PL_PREDICT) {
                labels->is_empty = true;
                return PL_OK;
            }
            pl_table_place(&csv->table, row, csv->columns.target, place);
            return pl_fail(err, PL_EFORMAT,
                           "%s:%s: field %s of %d is missing: it is the target%s",
                           csv->options.path, place,
                           csv_column_text(&csv->table, csv->columns.target, text),
                           csv->table.columns,
                           csv->source.part
                               ? "; remove such rows from a table that is streamed"
                               : "; \"missing\": \"drop\" leaves such rows out");
        }
        if (!pl_table_number(&csv->table, row, csv->columns.target, &csv->samples.y[row])
            && !labels->words++)
            csv_wrong_cell(csv, row, csv->columns.target, "a finite number",
                           &labels->word);
        if (label_count(csv, labels, csv->samples.y[row])) {
            labels->odd_line = csv->table.line[row];
            labels->odd = csv->samples.y[row];
        }
    }
    if (labels->gathers && !labels->names && !(labels->names = json_object()))
        return pl_no_memory(err);
    return labels->gathers ? names_count(csv, labels->names, err) : PL_OK;
}

/* Texts: classes, unless most cells are numbers. */
static int csv_find_text_classes(csv_dataset_t *csv, const csv_labels_t *labels,
                                 pl_error_t *err)
{
    char text[80];
    if (csv->columns.wanted == TARGET_VALUE || 2 * labels->words <= csv->rows)
        return pl_fail(err, labels->word.code, "%s", labels->word.text);
    int code = csv_find_names(csv, labels, err);
    const int64_t classes = (int64_t)json_array_size(csv->learnt.class_names);
    if (!code && classes > PL_CLASSES_FEW && 2 * classes > csv->rows)
        return pl_fail(err, PL_EFORMAT,
                       "%s: field %s is the target and has %lld texts in %lld rows: they "
                       "are no classes; name another column: \"target\": "
                       "\"NAME\"",
                       csv->options.path,
                       csv_column_text(&csv->table, csv->columns.target, text),
                       (long long)classes, (long long)csv->rows);
    csv->learnt.kind = TARGET_CLASS;
    return code;
}

int csv_labels_decide(csv_dataset_t *csv, const csv_labels_t *labels,
                      const json_t *data_info, pl_error_t *err)
{
    const json_t *known = json_object_get(data_info, CLASS_NAMES);
    if (known && csv->columns.wanted != TARGET_VALUE) {
        csv->learnt.kind = TARGET_CLASS;
        return csv_number_classes(csv, known, NULL, err);
    }
    if (labels->words && !data_info)
        return csv_find_text_classes(csv, labels, err);
    if (labels->words)
        return pl_fail(err, labels->word.code, "%s", labels->word.text);
    if (csv->columns.wanted != TARGET_AUTO)
        csv->learnt.kind = csv->columns.wanted;
    else if (data_info)
        csv->learnt.kind = json_object_get(data_info, "classes") ? TARGET_CLASS
                                                                 : TARGET_VALUE;
    else
        csv->learnt.kind = csv_decide_target(csv, labels);
    if (csv->learnt.kind != TARGET_CLASS)
        return PL_OK;
    const bool counts_from_0 = !labels->odd_line && labels->smallest < 1;
    if (!data_info && labels->whole && labels->kinds && !counts_from_0
        && (!labels->odd_line || labels->kinds == 2))
        return csv_find_names(csv, labels, err);
    if (!labels->odd_line)
        return PL_OK;
    char shown[400], place[PL_PLACE_TEXT];
    snprintf(shown, sizeof shown, is_whole(labels->odd) ? "%.0f" : "%g", labels->odd);
    pl_table_line(&csv->table, labels->odd_line, place);
    return pl_fail(err, PL_EFORMAT,
                   "%s:%s: the label is %s; classes are whole numbers from 0%s; the "
                   "label %lld is ignored (ignore_index)",
                   csv->options.path, place, shown,
                   csv->columns.wanted == TARGET_AUTO
                       ? ", and the training data has classes: to predict "
                         "a value, train with \"target\": \"value\""
                       : ": set \"target\": \"value\" for other numbers",
                   (long long)csv->options.ignore_index);
}

int csv_find_target(csv_dataset_t *csv, const json_t *data_info, pl_error_t *err)
{
    csv_labels_t labels = {.whole = true, .smallest = INFINITY, .largest = -1};
    csv->learnt.kind = TARGET_NONE;
    if (csv->columns.target < 0)
        return PL_OK;
    const int code = csv_labels_count(csv, &labels, err);
    if (labels.is_empty)
        csv->columns.target = -1;
    return code || labels.is_empty ? code
                                   : csv_labels_decide(csv, &labels, data_info, err);
}

static int csv_measure_classes(csv_dataset_t *csv, pl_error_t *err)
{
    int64_t largest = 0;
    int64_t *count = pl_alloc_array((size_t)csv->learnt.classes + 1, sizeof *count);
    if (!count)
        return pl_no_memory(err);
    for (int64_t row = 0; row < csv->rows; row++)
        if (!is_ignored(csv, csv->samples.y[row])) {
            const int64_t times = ++count[(int64_t)csv->samples.y[row]];
            largest = times > largest ? times : largest;
        }
    csv->learnt.class_share = csv->rows ? (double)largest / (double)csv->rows : 0;
    pl_free(count);
    return PL_OK;
}

/* The number of classes here or in the training data, whichever is larger. */
int csv_count_classes(csv_dataset_t *csv, const pl_data_request_t *request,
                      const json_t *data_info, pl_error_t *err)
{
    if (csv->learnt.kind != TARGET_CLASS)
        return PL_OK;
    csv_labels_t labels = {.smallest = INFINITY, .largest = -1};
    char place[PL_PLACE_TEXT];
    for (int64_t row = 0; row < csv->rows; row++)
        label_count(csv, &labels, csv->samples.y[row]);
    for (int64_t row = 0; row < csv->rows && labels.largest > PL_LABEL_MAX; row++)
        if (csv->samples.y[row] > PL_LABEL_MAX && !is_ignored(csv, csv->samples.y[row])) {
            pl_table_line(&csv->table, csv->table.line[row], place);
            return pl_fail(err, PL_EFORMAT,
                           "%s:%s: the label is %.0f, but the largest possible label "
                           "is %d: number the classes from 0, or set \"target\": "
                           "\"value\"",
                           csv->options.path, place, csv->samples.y[row], PL_LABEL_MAX);
        }
    const int64_t largest = (int64_t)labels.largest;
    if (!data_info && csv->rows)
        pl_dataset_warn_of_labels(request, csv->options.path, csv->rows,
                                  largest < 0 ? -1 : (int64_t)labels.smallest, largest);
    int64_t known = json_integer_value(json_object_get(data_info, "classes"));
    csv->learnt.classes = known > largest + 1 ? known : largest + 1;
    csv->learnt.class_share = json_number_value(json_object_get(data_info, CLASS_SHARE));
    return data_info ? PL_OK : csv_measure_classes(csv, err);
}

void csv_labels_classes(csv_dataset_t *csv, const csv_labels_t *labels,
                        const pl_data_request_t *request)
{
    const int64_t named = (int64_t)json_array_size(csv->learnt.class_names),
                  largest = named ? named - 1 : (int64_t)labels->largest;
    const char *name;
    json_t *times;
    int64_t most = 0;
    pl_dataset_warn_of_labels(request, csv->options.path, csv->rows,
                              largest < 0 ? -1
                              : named     ? 0
                                          : (int64_t)labels->smallest,
                              largest);
    csv->learnt.classes = largest + 1;
    json_object_foreach(labels->names, name, times)
        most = json_integer_value(times) > most ? json_integer_value(times) : most;
    csv->learnt.class_share = csv->rows ? (double)most / (double)csv->rows : 0;
}

/* ---- Several targets ----
 *
 * They are a further field, "y", of float32. */

int csv_refuse_target(const csv_dataset_t *csv, const char *text, size_t length,
                      pl_error_t *err)
{
    const bool is_option = csv->columns.wanted == TARGET_AUTO && *csv->options.target
                           && strcmp(csv->options.target, "auto") != 0;
    return pl_fail(err, PL_EINVAL,
                   is_option ? "%s: \"target\" is \"%.*s\", but there is no such column, "
                               "and the types of targets are auto, class, value and none"
                             : "%s: field \"y\": there is no column \"%.*s\"",
                   csv->options.path, (int)(length < 40 ? length : 40), text);
}

int csv_several_targets(csv_dataset_t *csv, int k, pl_stage_t stage, bool *are_several,
                        pl_error_t *err)
{
    pl_texts_t *others = &csv->columns.others;
    const char *text = others->text[k];
    bool lacks = false;
    int targets = 0;
    *are_several = strchr(text, ',') && csv_column(&csv->table, text, strlen(text)) < 0;
    if (!*are_several)
        return PL_OK;
    for (size_t length; *text; text += length + (text[length] == ','), targets++) {
        length = strcspn(text, ",");
        lacks |= csv_column(&csv->table, text, length) < 0;
    }
    if (csv->options.streams || csv->columns.wanted == TARGET_CLASS)
        return pl_fail(err, PL_EINVAL, "%s: field \"y\" has %d columns, which %s",
                       csv->options.path, targets,
                       csv->options.streams
                           ? "a table that is streamed cannot have: name one"
                           : "cannot be a class together: name one, or leave "
                             "out \"target\"");
    csv->learnt.labels = csv->columns.wanted == TARGET_VALUE ? 0 : targets;
    csv->columns.wanted = TARGET_NONE;
    csv->columns.targets = targets <= CSV_TARGETS ? targets : 0;
    csv->columns.are_several = !lacks || stage != PL_PREDICT;
    if (csv->columns.are_several)
        return PL_OK;
    for (others->count--; k < others->count; k++) {
        others->name[k] = others->name[k + 1];
        others->text[k] = others->text[k + 1];
    }
    return PL_OK;
}

bool csv_answer(const csv_dataset_t *csv, int64_t row, int column, double *value)
{
    static const char *const words[] = {"no", "yes", "false", "true"};
    const char *cell = pl_table_cell(&csv->table, row, column);
    for (int k = 0; csv->columns.are_several && k < 4; k++)
        if (!strcasecmp(cell, words[k])) {
            *value = k % 2;
            return true;
        }
    return pl_table_number(&csv->table, row, column, value);
}

int csv_several_decide(csv_dataset_t *csv, const pl_data_split_t *split,
                       const json_t *data_info, pl_error_t *err)
{
    int at = 0, y = 0;
    for (; strcmp(csv->columns.others.name[y], "y"); y++)
        at += csv->columns.width[y];
    if (data_info) {
        csv->learnt.labels = (int)json_integer_value(json_object_get(data_info, LABELS));
        return PL_OK;
    }
    const float *cell = csv->samples.other + at;
    for (int64_t row = 0; row < csv->rows; row++, cell += csv->columns.other_columns)
        for (int k = 0; k < csv->columns.width[y]; k++)
            if (cell[k] != 0 && cell[k] != 1)
                csv->learnt.labels = 0;
    if (csv->learnt.labels || !csv->options.standardize)
        return PL_OK;
    if (!csv->columns.targets)
        return pl_fail(err, PL_EINVAL,
                       "%s: field \"y\" has %d columns of values, but at most %d are "
                       "scaled: set \"standardize\": false",
                       csv->options.path, csv->columns.width[y], CSV_TARGETS);
    double *value = pl_alloc_array((size_t)csv->rows + 1, sizeof *value);
    if (!value)
        return pl_no_memory(err);
    for (int k = 0; k < csv->columns.targets; k++) {
        for (int64_t row = 0; row < csv->rows; row++)
            value[row] = csv->samples.other[row * csv->columns.other_columns + at + k];
        csv->learnt.scales[k] = csv_measure(csv, split, value, 0);
    }
    pl_free(value);
    return PL_OK;
}
