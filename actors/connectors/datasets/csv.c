/* csv.c - a table of numbers: one column is the target, the others are features
 *
 * Columns may be fields of their own, by name: a sample's weight, a second input.
 * Whole-number targets are classes, others a value to predict.  Features are brought to
 * mean 0 and deviation 1, column by column, unless that is switched off.  The moments
 * behind that are the training data's, always: a model would take the same row for
 * another if each file had its own.  So they are among the facts that other data is
 * opened with. */
#include "formats/csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/connectors/datasets/datasets.h"
#include "actors/connectors/datasets/moments.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"

typedef enum csv_target { TARGET_NONE, TARGET_CLASS, TARGET_VALUE } csv_target_t;

/* What a column is for; from 0 on: its place among those of further fields. */
enum { FOR_FEATURE = -1, FOR_TARGET = -2 };

typedef struct csv {
    const char *path, *header, *target;
    pl_texts_t others;                                     /* "weight": "column,column" */
    int64_t label;
    bool standardize;
    pl_csv_t table;                                         /* while it is opened */
    int64_t rows;
    csv_target_t kind;
    int column;                                             /* of the target; -1: none */
    int *use;                                               /* [columns] */
    int features, other_columns;
    int width[PL_FIELDS];                                /* columns of each other field */
    float *other;                                        /* [rows, other_columns] */
    int64_t classes;                                     /* 0: no classes */
    pl_moments_t *moments;                               /* [features] */
    float *x;                                            /* [rows, features] */
    double *y;                                           /* [rows]  [no target] */
} csv_t;

static const pl_option_t csv_options[] = {
    PL_TEXT(csv_t, path, NULL, NULL, "the file, plain or gzip"),
    PL_TEXT(csv_t, header, "\"auto\"", "auto|yes|no",
            "whether the first line holds names; auto: when no field of it is a number"),
    PL_INT(csv_t, label, "-1", "-1..", "column of the target, from 0; -1 for the last"),
    PL_TEXT(
        csv_t, target, "\"auto\"", "auto|class|value|none",
        "what the target is; auto: class when all are whole numbers from 0; none: every "
        "column is a feature"),
    {"fields", PL_OPTION_TEXTS, offsetof(csv_t, others), "{}", NULL,
     "columns that are fields of their own, by name or number: {\"weight\": \"w\", "
     "\"place\": \"3,4\"}; \"y\" names the target's, as label does by number"},
    PL_BOOL(csv_t, standardize, "true", "bring each feature to mean 0 and deviation 1"),
    PL_OPTIONS_END,
};

static double csv_at(const csv_t *csv, int64_t row, int column)
{
    return csv->table.value[row * csv->table.columns + column];
}

static bool is_class(double value)
{
    return value >= 0 && value < INT32_MAX && value == floor(value);
}

/* ---- What columns are for ---- */

/* By its name, or its number from 0; -1: there is none. */
static int csv_column(const csv_t *csv, const char *text, size_t length)
{
    char *end;
    for (int k = 0; csv->table.name && k < csv->table.columns; k++)
        if (strlen(csv->table.name[k]) == length
            && !memcmp(csv->table.name[k], text, length))
            return k;
    long number = strtol(text, &end, 10);
    bool whole = length > 0 && end == text + length;
    return whole && number >= 0 && number < csv->table.columns ? (int)number : -1;
}

/* "a,b": the columns of further field k. */
static int csv_claim(csv_t *csv, int k, pl_error_t *err)
{
    const char *name = csv->others.name[k], *text = csv->others.text[k];
    if (!*name || strlen(name) >= sizeof(((pl_field_t *)0)->name) || !strcmp(name, "x")
        || !strcmp(name, "y"))
        return pl_fail(
            err, PL_EINVAL,
            "%s: a field cannot be called \"%.40s\": x are the features, y the "
            "target, and a name has 1 to %zu bytes",
            csv->path, name, sizeof(((pl_field_t *)0)->name) - 1);
    for (size_t length;; text += length + 1) {
        length = strcspn(text, ",");
        int column = csv_column(csv, text, length);
        if (column < 0 || csv->use[column] != FOR_FEATURE)
            return pl_fail(err, PL_EINVAL, "%s: field \"%s\": %s column \"%.*s\"%s",
                           csv->path, name, column < 0 ? "there is no" : "the",
                           (int)(length < 40 ? length : 40), text,
                           column < 0 ? "" : " is for something else already");
        csv->use[column] = csv->other_columns++;
        csv->features--;
        csv->width[k]++;
        if (!text[length])
            return PL_OK;
    }
}

/* "y" among the fields is the target: it is no further field, and `label` has no say. */
static int csv_name_target(csv_t *csv, pl_error_t *err)
{
    pl_texts_t *others = &csv->others;
    int k = 0;
    while (k < others->count && strcmp(others->name[k], "y"))
        k++;
    if (k == others->count)
        return PL_OK;
    csv->label = csv_column(csv, others->text[k], strlen(others->text[k]));
    if (csv->label < 0)
        return pl_fail(err, PL_EINVAL, "%s: field \"y\": there is no column \"%.40s\"",
                       csv->path, others->text[k]);
    for (others->count--; k < others->count; k++) {
        others->name[k] = others->name[k + 1];
        others->text[k] = others->text[k + 1];
    }
    return PL_OK;
}

static int csv_find_uses(csv_t *csv, pl_error_t *err)
{
    const pl_csv_t *table = &csv->table;
    if (csv_name_target(csv, err) != PL_OK)
        return PL_EINVAL;
    csv->column = !strcmp(csv->target, "none") ? -1
                  : csv->label < 0             ? table->columns - 1
                                               : (int)csv->label;
    if (csv->label >= table->columns)
        return pl_fail(err, PL_EINVAL, "%s: label is %lld, but the columns are 0 to %d",
                       csv->path, (long long)csv->label, table->columns - 1);
    csv->use = pl_alloc_array((size_t)table->columns, sizeof *csv->use);
    if (!csv->use)
        return pl_no_memory(err);
    for (int k = 0; k < table->columns; k++)
        csv->use[k] = k == csv->column ? FOR_TARGET : FOR_FEATURE;
    csv->features = table->columns - (csv->column >= 0);
    int code = PL_OK;
    if (csv->others.count > PL_FIELDS - 2)
        return pl_fail(err, PL_EINVAL, "%s: at most %d further fields", csv->path,
                       PL_FIELDS - 2);
    for (int k = 0; k < csv->others.count && !code; k++)
        code = csv_claim(csv, k, err);
    if (!code && csv->features == 0)
        code = pl_fail(err, PL_EFORMAT, "%s: %s: there are no features", csv->path,
                       csv->other_columns ? "every column is the label or a field"
                                          : "the only column is the label");
    return code;
}

/* What the target's column holds. */
static int csv_find_target(csv_t *csv, const json_t *facts, pl_error_t *err)
{
    const bool values = csv->rows == 0 && !json_object_get(facts, "classes");
    csv->kind = csv->column < 0                           ? TARGET_NONE
                : values || !strcmp(csv->target, "value") ? TARGET_VALUE
                                                          : TARGET_CLASS;
    for (int64_t row = 0; row < csv->rows && csv->kind == TARGET_CLASS; row++) {
        double value = csv_at(csv, row, csv->column);
        if (is_class(value))
            continue;
        if (!strcmp(csv->target, "class"))
            return pl_fail(err, PL_EFORMAT,
                           "%s:%lld: the label is %g; classes are whole numbers from 0",
                           csv->path, (long long)csv->table.line[row], value);
        csv->kind = TARGET_VALUE;
    }
    return PL_OK;
}

/* ---- Moments ---- */

/* Those that bring a column to mean 0 and deviation 1; a constant one to 0. */
static pl_moments_t csv_measure(const csv_t *csv, int column)
{
    double rows = (double)csv->rows, sum = 0, squares = 0;
    bool constant = true;
    for (int64_t row = 0; row < csv->rows; row++) {
        sum += csv_at(csv, row, column) / rows;
        constant = constant && csv_at(csv, row, column) == csv_at(csv, 0, column);
    }
    for (int64_t row = 0; row < csv->rows; row++) {
        double distance = csv_at(csv, row, column) - sum;
        squares += distance * distance / rows;
    }
    return (pl_moments_t){constant ? csv_at(csv, 0, column) : sum,
                          squares > 0 ? 1 / sqrt(squares) : 1};
}

static void csv_measure_all(csv_t *csv)
{
    for (int column = 0, feature = 0; column < csv->table.columns; column++)
        if (csv->use[column] == FOR_FEATURE)
            csv->moments[feature++] = csv_measure(csv, column);
}

/* Those of the training data: [[mean, factor], ...]. */
static int csv_recall(csv_t *csv, const json_t *facts, pl_error_t *err)
{
    const json_t *known = json_object_get(facts, PL_MOMENTS);
    if (!known)
        return pl_fail(err, PL_EINVAL,
                       "%s: the training data was not standardized by "
                       "columns, as this is to be: give \"standardize\": false",
                       csv->path);
    if (json_array_size(known) != (size_t)csv->features)
        return pl_fail(err, PL_EINVAL,
                       "%s: %d features, but the training data had %zu: "
                       "is target or label another?",
                       csv->path, csv->features, json_array_size(known));
    const int bad = pl_moments_read(known, csv->moments);
    return bad < 0 ? PL_OK
                   : pl_fail(err, PL_EFORMAT,
                             "%s: the facts of the training data have no mean and factor "
                             "of feature %d",
                             csv->path, bad);
}

static int csv_find_moments(csv_t *csv, const json_t *facts, pl_error_t *err)
{
    csv->moments = pl_alloc_array((size_t)csv->features, sizeof *csv->moments);
    if (!csv->moments)
        return pl_no_memory(err);
    for (int k = 0; k < csv->features; k++)
        csv->moments[k] = (pl_moments_t){0, 1};
    if (!csv->standardize)
        return PL_OK;
    if (facts)
        return csv_recall(csv, facts, err);
    csv_measure_all(csv);
    return PL_OK;
}

/* What all data sets tell, and the moments; NULL: out of memory. */
static char *csv_facts(const csv_t *csv, const pl_shape_t *shape)
{
    char *facts = pl_dataset_facts(csv->classes, shape);
    return csv->standardize ? pl_moments_tell(&facts, csv->moments, csv->features)
                            : facts;
}

/* ---- Loading ---- */

static int csv_too_large(const csv_t *csv, int64_t row, int column, pl_error_t *err)
{
    return pl_fail(err, PL_EFORMAT, "%s:%lld: field %d is %g, too large for float32",
                   csv->path, (long long)csv->table.line[row], column + 1,
                   csv_at(csv, row, column));
}

static int csv_make_feature(csv_t *csv, int column, int feature, pl_error_t *err)
{
    const pl_moments_t *moments = &csv->moments[feature];
    for (int64_t row = 0; row < csv->rows; row++) {
        double value = csv_at(csv, row, column);
        float x = pl_moments_apply(moments, value);
        if (!isfinite((float)value) || !isfinite(x))
            return csv_too_large(csv, row, column, err);
        csv->x[row * csv->features + feature] = x;
    }
    return PL_OK;
}

static int csv_make_target(csv_t *csv, pl_error_t *err)
{
    csv->y = pl_alloc_array((size_t)csv->rows + 1, sizeof *csv->y);
    if (!csv->y)
        return pl_no_memory(err);
    for (int64_t row = 0; row < csv->rows; row++) {
        csv->y[row] = csv_at(csv, row, csv->column);
        if (!isfinite((float)csv->y[row]))
            return csv_too_large(csv, row, csv->column, err);
    }
    return PL_OK;
}

static int csv_make_other(csv_t *csv, int column, pl_error_t *err)
{
    for (int64_t row = 0; row < csv->rows; row++) {
        float value = (float)csv_at(csv, row, column);
        if (!isfinite(value))
            return csv_too_large(csv, row, column, err);
        csv->other[row * csv->other_columns + csv->use[column]] = value;
    }
    return PL_OK;
}

/* [rows, columns]; NULL: too many, or out of memory. */
static float *csv_room(const csv_t *csv, int columns)
{
    size_t values;
    return __builtin_mul_overflow((size_t)csv->rows + 1, (size_t)columns, &values)
               ? NULL
               : pl_alloc_array(values, sizeof(float));
}

static int csv_make_all(csv_t *csv, pl_error_t *err)
{
    csv->x = csv_room(csv, csv->features);
    csv->other = csv_room(csv, csv->other_columns);
    if (!csv->x || !csv->other)
        return pl_no_memory(err);
    int code = csv->column >= 0 ? csv_make_target(csv, err) : PL_OK;
    for (int column = 0, feature = 0; column < csv->table.columns && !code; column++)
        if (csv->use[column] == FOR_FEATURE)
            code = csv_make_feature(csv, column, feature++, err);
        else if (csv->use[column] != FOR_TARGET)
            code = csv_make_other(csv, column, err);
    return code;
}

/* What is there, or was in the training data. */
static void csv_count_classes(csv_t *csv, const json_t *facts)
{
    double largest = -1;
    if (csv->kind != TARGET_CLASS)
        return;
    for (int64_t row = 0; row < csv->rows; row++)
        largest = fmax(largest, csv->y[row]);
    int64_t known = json_integer_value(json_object_get(facts, "classes"));
    csv->classes = known > (int64_t)largest + 1 ? known : (int64_t)largest + 1;
}

static int csv_load(csv_t *csv, const json_t *facts, bool may_be_empty, pl_error_t *err)
{
    pl_csv_header_t header = !strcmp(csv->header, "yes")  ? PL_CSV_YES
                             : !strcmp(csv->header, "no") ? PL_CSV_NO
                                                          : PL_CSV_AUTO;
    int code = pl_csv_load(csv->path, pl_file_limit(), header, &csv->table, err);
    csv->rows = csv->table.rows;
    if (!code && csv->rows == 0 && !may_be_empty)
        code = pl_fail(err, PL_EFORMAT, "%s: there is nothing below the header",
                       csv->path);
    if (!code)
        code = csv_find_uses(csv, err);
    if (!code)
        code = csv_find_target(csv, facts, err);
    if (!code)
        code = csv_find_moments(csv, facts, err);
    if (!code)
        code = csv_make_all(csv, err);
    if (!code)
        csv_count_classes(csv, facts);
    pl_csv_release(&csv->table);
    return code;
}

/* ---- The data set ---- */

static int csv_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                    pl_error_t *err)
{
    csv_t *csv = self;
    const char *text = request->facts;
    json_t *facts = text ? pl_json_read(text, strlen(text), "facts", err) : NULL;
    if (text && !facts)
        return err ? err->code : PL_EFORMAT;
    int code = csv_load(csv, facts, facts && pl_may_be_empty(request->stage), err);
    json_decref(facts);
    if (code)
        return code;
    pl_shape_t shape = PL_SHAPE(csv->features);
    pl_data_info_t found = {.same_samples = true,
                            .samples = csv->rows,
                            .facts = csv_facts(csv, &shape)};
    if (!found.facts)
        return pl_no_memory(err);
    pl_dataset_field(&found, "x", PL_F32, shape);
    if (csv->kind != TARGET_NONE)
        pl_dataset_field(&found, "y", csv->kind == TARGET_CLASS ? PL_I64 : PL_F32,
                         (pl_shape_t){0});
    for (int k = 0; k < csv->others.count; k++)
        pl_dataset_field(&found, csv->others.name[k], PL_F32,
                         csv->width[k] > 1 ? PL_SHAPE(csv->width[k]) : (pl_shape_t){0});
    *info = found;
    return PL_OK;
}

/* The columns of all further fields lie side by side. */
static void csv_read_others(const csv_t *csv, const pl_read_request_t *request,
                            void *const field[])
{
    for (int k = 0, at = 0; k < csv->others.count; at += csv->width[k++])
        for (int i = 0; i < request->count; i++)
            memcpy((float *)field[k] + (size_t)i * (size_t)csv->width[k],
                   csv->other + request->index[i] * csv->other_columns + at,
                   (size_t)csv->width[k] * sizeof(float));
}

static int csv_read(const void *self, const pl_read_request_t *request,
                    void *const field[], pl_error_t *err)
{
    const csv_t *csv = self;
    int code = pl_dataset_check(csv->path, request, csv->rows, err);
    if (code)
        return code;
    float *x = field[0];
    for (int i = 0; i < request->count; i++, x += csv->features)
        memcpy(x, csv->x + request->index[i] * csv->features,
               (size_t)csv->features * sizeof *x);
    for (int i = 0; i < request->count && csv->kind == TARGET_CLASS; i++)
        ((int64_t *)field[1])[i] = (int64_t)csv->y[request->index[i]];
    for (int i = 0; i < request->count && csv->kind == TARGET_VALUE; i++)
        ((float *)field[1])[i] = (float)csv->y[request->index[i]];
    csv_read_others(csv, request, field + 1 + (csv->kind != TARGET_NONE));
    return PL_OK;
}

static void csv_close(void *self)
{
    csv_t *csv = self;
    pl_free(csv->moments);
    pl_free(csv->use);
    pl_free(csv->other);
    pl_free(csv->x);
    pl_free(csv->y);
    csv->moments = NULL;
    csv->use = NULL;
    csv->other = NULL;
    csv->x = NULL;
    csv->y = NULL;
}

const pl_dataset_ops_t pl_csv_dataset = {
    .name = "csv",
    .help = "a table of numbers, one column of which is the target",
    .size = sizeof(csv_t),
    .options = csv_options,
    .open = csv_open,
    .read = csv_read,
    .close = csv_close,
};
