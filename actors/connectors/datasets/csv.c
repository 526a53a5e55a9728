/* csv.c - a table of numbers: one column is the target, the others are features
 *
 * Whole-number targets are classes, others a value to predict.  Features are brought to
 * mean 0 and deviation 1, column by column, unless that is switched off. */
#include "formats/csv.h"

#include <math.h>
#include <string.h>

#include "actors/connectors/datasets/datasets.h"
#include "base/alloc.h"
#include "base/error.h"

typedef enum csv_target { TARGET_NONE, TARGET_CLASS, TARGET_VALUE } csv_target_t;

typedef struct csv {
    const char *path, *header, *target;
    int64_t label;
    bool standardize;
    pl_csv_t table;                                         /* while it is opened */
    int64_t rows;
    csv_target_t kind;
    int column;                                             /* of the target; -1: none */
    int features;
    float *x;                                               /* [rows, features] */
    double *y;                                              /* [rows]  [no target] */
} csv_t;

static const pl_option_t csv_options[] = {
    PL_TEXT(csv_t, path, NULL, NULL, "the file, plain or gzip"),
    PL_TEXT(csv_t, header, "\"auto\"", "auto|yes|no",
            "whether the first line holds names; auto: when it is not all numbers"),
    PL_INT(csv_t, label, "-1", "-1..", "column of the target, from 0; -1 for the last"),
    PL_TEXT(
        csv_t, target, "\"auto\"", "auto|class|value|none",
        "what the target is; auto: class when all are whole numbers from 0; none: every "
        "column is a feature"),
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

/* Finds the target's column and what it holds. */
static int csv_find_target(csv_t *csv, pl_error_t *err)
{
    const pl_csv_t *table = &csv->table;
    csv->column = !strcmp(csv->target, "none") ? -1
                  : csv->label < 0             ? table->columns - 1
                                               : (int)csv->label;
    csv->features = table->columns - (csv->column >= 0);
    if (csv->label >= table->columns)
        return pl_fail(err, PL_EINVAL, "%s: label is %lld, but the columns are 0 to %d",
                       csv->path, (long long)csv->label, table->columns - 1);
    if (csv->features == 0)
        return pl_fail(err, PL_EFORMAT,
                       "%s: the only column is the label: there are no features",
                       csv->path);
    csv->kind = csv->column < 0                 ? TARGET_NONE
                : !strcmp(csv->target, "value") ? TARGET_VALUE
                                                : TARGET_CLASS;
    for (int64_t row = 0; row < csv->rows && csv->kind == TARGET_CLASS; row++) {
        double value = csv_at(csv, row, csv->column);
        if (is_class(value))
            continue;
        if (!strcmp(csv->target, "class"))
            return pl_fail(err, PL_EFORMAT,
                           "%s:%lld: the label is %g; classes are whole numbers from 0",
                           csv->path, (long long)table->line[row], value);
        csv->kind = TARGET_VALUE;
    }
    return PL_OK;
}

/* x = (value - *mean) * *factor brings a column to mean 0 and deviation 1; a constant one
 * to 0. */
static void csv_moments(const csv_t *csv, int column, double *mean, double *factor)
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
    *mean = constant ? csv_at(csv, 0, column) : sum;
    *factor = squares > 0 ? 1 / sqrt(squares) : 1;
}

static int csv_too_large(const csv_t *csv, int64_t row, int column, pl_error_t *err)
{
    return pl_fail(err, PL_EFORMAT, "%s:%lld: field %d is %g, too large for float32",
                   csv->path, (long long)csv->table.line[row], column + 1,
                   csv_at(csv, row, column));
}

static int csv_make_feature(csv_t *csv, int column, int feature, pl_error_t *err)
{
    double mean = 0, factor = 1;
    if (csv->standardize)
        csv_moments(csv, column, &mean, &factor);
    for (int64_t row = 0; row < csv->rows; row++) {
        double value = csv_at(csv, row, column);
        if (!isfinite((float)value))
            return csv_too_large(csv, row, column, err);
        csv->x[row * csv->features + feature] = (float)((value - mean) * factor);
    }
    return PL_OK;
}

static int csv_make_target(csv_t *csv, pl_error_t *err)
{
    csv->y = pl_alloc_array((size_t)csv->rows, sizeof *csv->y);
    if (!csv->y)
        return pl_no_memory(err);
    for (int64_t row = 0; row < csv->rows; row++) {
        csv->y[row] = csv_at(csv, row, csv->column);
        if (!isfinite((float)csv->y[row]))
            return csv_too_large(csv, row, csv->column, err);
    }
    return PL_OK;
}

static int csv_make_all(csv_t *csv, pl_error_t *err)
{
    size_t values;
    if (!__builtin_mul_overflow((size_t)csv->rows, (size_t)csv->features, &values))
        csv->x = pl_alloc_array(values, sizeof *csv->x);
    if (!csv->x)
        return pl_no_memory(err);
    int code = csv->column >= 0 ? csv_make_target(csv, err) : PL_OK;
    for (int column = 0, feature = 0; column < csv->table.columns && !code; column++)
        if (column != csv->column)
            code = csv_make_feature(csv, column, feature++, err);
    return code;
}

static int csv_load(csv_t *csv, pl_error_t *err)
{
    pl_csv_header_t header = !strcmp(csv->header, "yes")  ? PL_CSV_YES
                             : !strcmp(csv->header, "no") ? PL_CSV_NO
                                                          : PL_CSV_AUTO;
    int code = pl_csv_load(csv->path, pl_file_limit(), header, &csv->table, err);
    csv->rows = csv->table.rows;
    if (!code && csv->rows == 0)
        code = pl_fail(err, PL_EFORMAT, "%s: there is nothing below the header",
                       csv->path);
    if (!code)
        code = csv_find_target(csv, err);
    if (!code)
        code = csv_make_all(csv, err);
    pl_csv_release(&csv->table);
    return code;
}

static int64_t csv_classes(const csv_t *csv)
{
    double largest = -1;
    for (int64_t row = 0; row < csv->rows && csv->kind == TARGET_CLASS; row++)
        largest = fmax(largest, csv->y[row]);
    return (int64_t)largest + 1;
}

static int csv_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                    pl_error_t *err)
{
    csv_t *csv = self;
    (void)request;
    int code = csv_load(csv, err);
    if (code)
        return code;
    pl_shape_t shape = PL_SHAPE(csv->features);
    pl_data_info_t found = {.samples = csv->rows,
                            .facts = pl_dataset_facts(csv_classes(csv), &shape)};
    if (!found.facts)
        return pl_no_memory(err);
    pl_dataset_field(&found, "x", PL_F32, shape);
    if (csv->kind != TARGET_NONE)
        pl_dataset_field(&found, "y", csv->kind == TARGET_CLASS ? PL_I64 : PL_F32,
                         (pl_shape_t){0});
    *info = found;
    return PL_OK;
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
    return PL_OK;
}

static void csv_close(void *self)
{
    csv_t *csv = self;
    pl_free(csv->x);
    pl_free(csv->y);
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
