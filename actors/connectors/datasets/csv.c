/* csv.c - a table of numbers: one column is the target, the others are features
 *
 * Columns may be separate fields, by name: a sample's weight, a second input.  Targets
 * that are whole numbers are classes, others are values to predict.  Features are scaled
 * to mean 0 and deviation 1, column by column, unless that is switched off.
 *
 * The names and uses of columns, the type of the target and the moments come from the
 * training data alone: if each file decided for itself, the same row could mean different
 * samples.  The data info carries them to all other sources. */
#include "actors/connectors/datasets/csv_parts.h"

#include <math.h>
#include <string.h>

#include "actors/connectors/sampler.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"

static const pl_option_t csv_options[] = {
    PL_TEXT(csv_dataset_t, path, NULL, NULL, "the file, plain or gzip"),
    PL_WORD(csv_dataset_t, header, "\"auto\"", "auto|yes|no",
            "whether the first line has column names; auto: if none of its fields is a "
            "number"),
    PL_INT(csv_dataset_t, label, "-1", "-1..",
           "column of the target, from 0; -1: the last"),
    PL_WORD(
        csv_dataset_t, target, "\"auto\"", "auto|class|value|none",
        "type of the target; auto: as in the training data, where whole numbers from 0 "
        "are classes if there are at most 10, or at most 1000 with two rows for each; "
        "none: every column is a feature"),
    PL_INT(csv_dataset_t, ignore_index, "-100", PL_LABELS, PL_IGNORE_HELP),
    {"fields", PL_OPTION_TEXTS, offsetof(csv_dataset_t, others), "{}", NULL,
     "columns that are separate fields, by name or number: {\"weight\": \"w\", "
     "\"place\": \"3,4\"}; \"y\" names the column of the target"},
    PL_BOOL(csv_dataset_t, standardize, "true",
            "scale each feature to mean 0 and deviation 1"),
    PL_OPTIONS_END,
};

/* ---- Moments ---- */

/* The moments that scale a column to mean 0 and deviation 1, a constant one to 0.  Only
 * rows to train on count: moments must not depend on the held rows of a split. */
static pl_moments_t csv_measure(const csv_dataset_t *csv, const pl_data_split_t *split,
                                int column)
{
    const double rows = (double)(csv->rows - split->held_count);
    double first = NAN, mean = 0, squares = 0;
    /* Relative to the first value: so rounding makes no deviation in a constant
     * column. */
    for (int64_t row = 0; row < csv->rows; row++) {
        if (pl_data_split_holds(split, row))
            continue;
        first = isnan(first) ? csv_at(csv, row, column) : first;
        mean += csv_at(csv, row, column) - first;
    }
    mean /= rows;
    for (int64_t row = 0; row < csv->rows; row++) {
        const double distance = csv_at(csv, row, column) - first - mean;
        squares += pl_data_split_holds(split, row) ? 0 : distance * distance / rows;
    }
    return (pl_moments_t){first + mean, squares > 0 ? 1 / sqrt(squares) : 1};
}

/* The split that the run will make of these rows.  If it is impossible, the run reports
 * that. */
static int csv_find_split(const csv_dataset_t *csv, const pl_data_request_t *request,
                          pl_data_split_t *split, pl_error_t *err)
{
    pl_error_t why = {0};
    pl_data_split_spec_t spec = {.seed = request->seed,
                                 .total = csv->rows,
                                 .share = request->val_split};
    int64_t *target = NULL;
    if (!(request->val_split > 0))
        return PL_OK;
    if (request->stratify && csv->kind == TARGET_CLASS) {
        spec.target = target = pl_alloc_array((size_t)csv->rows, sizeof *target);
        if (!target)
            return pl_no_memory(err);
        for (int64_t row = 0; row < csv->rows; row++)
            target[row] = (int64_t)csv_at(csv, row, csv->column);
    }
    const int code = pl_data_split_make(split, &spec, &why);
    pl_free(target);
    return code == PL_ENOMEM ? pl_no_memory(err) : PL_OK;
}

static int csv_find_moments(csv_dataset_t *csv, const pl_data_request_t *request,
                            const json_t *data_info, pl_error_t *err)
{
    csv->moments = pl_alloc_array((size_t)csv->features, sizeof *csv->moments);
    if (!csv->moments)
        return pl_no_memory(err);
    for (int k = 0; k < csv->features; k++)
        csv->moments[k] = (pl_moments_t){0, 1};
    if (!csv->standardize)
        return PL_OK;
    if (data_info) {
        const json_t *known = json_object_get(data_info, PL_MOMENTS);
        if (!known)
            return pl_fail(err, PL_EINVAL,
                           "%s: the training data was not standardized: set "
                           "\"standardize\": false",
                           csv->path);
        if (json_array_size(known) != (size_t)csv->features)
            return pl_fail(err, PL_EINVAL,
                           "%s: %d feature%s, but the training data had %zu: check the "
                           "options target and label",
                           csv->path, csv->features, pl_plural(csv->features),
                           json_array_size(known));
        const int bad = pl_moments_read(known, csv->moments);
        return bad < 0
                   ? PL_OK
                   : pl_fail(err, PL_EFORMAT,
                             "%s: the training data has no mean and factor for feature "
                             "%d",
                             csv->path, bad);
    }
    pl_data_split_t split = {0};
    int code = csv_find_split(csv, request, &split, err);
    for (int k = 0; k < csv->features && !code; k++)
        csv->moments[k] = csv_measure(csv, &split, csv->from[k]);
    pl_data_split_release(&split);
    return code;
}

/* ---- Loading ---- */

static int csv_too_large(const csv_dataset_t *csv, int64_t row, int column,
                         pl_error_t *err)
{
    return pl_fail(err, PL_EFORMAT, "%s:%lld: field %d is %g, too large for float32",
                   csv->path, (long long)csv->table.line[row], column + 1,
                   csv_at(csv, row, column));
}

/* [rows, columns]; NULL: too many, or out of memory. */
static float *csv_alloc(const csv_dataset_t *csv, int columns)
{
    size_t values;
    return __builtin_mul_overflow((size_t)csv->rows + 1, (size_t)columns, &values)
               ? NULL
               : pl_alloc_array(values, sizeof(float));
}

/* Fills y, x and the further fields from the table. */
static int csv_convert(csv_dataset_t *csv, pl_error_t *err)
{
    const bool has_target = csv->column >= 0;
    csv->x = csv_alloc(csv, csv->features);
    csv->other = csv_alloc(csv, csv->other_columns);
    csv->y = has_target ? pl_alloc_array((size_t)csv->rows + 1, sizeof *csv->y) : NULL;
    if (!csv->x || !csv->other || (has_target && !csv->y))
        return pl_no_memory(err);
    for (int64_t row = 0; has_target && row < csv->rows; row++) {
        csv->y[row] = csv_at(csv, row, csv->column);
        if (!isfinite((float)csv->y[row]))
            return csv_too_large(csv, row, csv->column, err);
    }
    for (int k = 0; k < csv->features; k++)
        for (int64_t row = 0; row < csv->rows; row++) {
            const double value = csv_at(csv, row, csv->from[k]);
            const float x = pl_moments_apply(&csv->moments[k], value);
            if (!isfinite((float)value) || !isfinite(x))
                return csv_too_large(csv, row, csv->from[k], err);
            csv->x[row * csv->features + k] = x;
        }
    for (int column = 0; column < csv->table.columns; column++)
        for (int64_t row = 0; csv->use[column] >= 0 && row < csv->rows; row++) {
            const float value = (float)csv_at(csv, row, column);
            if (!isfinite(value))
                return csv_too_large(csv, row, column, err);
            csv->other[row * csv->other_columns + csv->use[column]] = value;
        }
    return PL_OK;
}

/* ---- The data set ---- */

static int csv_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                    pl_error_t *err)
{
    csv_dataset_t *csv = self;
    const char *text = request->data_info;
    json_t *data_info = text ? pl_json_read(text, strlen(text), "facts", err) : NULL;
    if (text && !data_info)
        return err ? err->code : PL_EFORMAT;
    csv->rank = request->rank;
    const bool may_be_empty = data_info && pl_may_be_empty(request->stage);
    int code = pl_csv_load(csv->path, pl_file_limit(), csv->header, &csv->table, err);
    csv->rows = csv->table.rows;
    if (!code && csv->rows == 0 && !may_be_empty)
        code = pl_fail(err, PL_EFORMAT, "%s: there is nothing below the header",
                       csv->path);
    if (!code)
        code = csv_find_uses(csv, data_info, request->stage, err);
    if (!code)
        code = csv_find_target(csv, data_info, err);
    if (!code)
        code = csv_find_moments(csv, request, data_info, err);
    if (!code && data_info)
        csv->names = json_incref(json_object_get(data_info, COLUMNS));
    else if (!code)
        code = csv_names(csv, &csv->names, err);
    if (!code)
        code = csv_convert(csv, err);
    if (!code)
        code = csv_count_classes(csv, request, data_info, err);
    pl_csv_release(&csv->table);
    json_decref(csv->places);
    csv->places = NULL;
    json_decref(data_info);
    if (code)
        return code;
    pl_shape_t shape = PL_SHAPE(csv->features);
    pl_data_info_t found = {.same_samples = true, .samples = csv->rows};
    char *made = pl_dataset_data_info(csv->classes, &shape);
    if (csv->names) {
        char *names = pl_json_write(csv->names, PL_JSON_COMPACT);
        made = pl_data_info_add(&made, COLUMNS, &names);
    }
    found.data_info = csv->standardize
                          ? pl_moments_add(&made, csv->moments, csv->features)
                          : made;
    if (!found.data_info)
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

static int csv_read(const void *self, const pl_read_request_t *request,
                    void *const field[], pl_error_t *err)
{
    const csv_dataset_t *csv = self;
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
    void *const *others = field + 1 + (csv->kind != TARGET_NONE);
    for (int k = 0, at = 0; k < csv->others.count; at += csv->width[k++])
        for (int i = 0; i < request->count; i++)
            memcpy((float *)others[k] + (size_t)i * (size_t)csv->width[k],
                   csv->other + request->index[i] * csv->other_columns + at,
                   (size_t)csv->width[k] * sizeof(float));
    return PL_OK;
}

static void csv_close(void *self)
{
    csv_dataset_t *csv = self;
    pl_free(csv->moments);
    pl_free(csv->use);
    pl_free(csv->from);
    json_decref(csv->names);
    pl_free(csv->other);
    pl_free(csv->x);
    pl_free(csv->y);
    csv->moments = NULL;
    csv->use = csv->from = NULL;
    csv->names = NULL;
    csv->other = NULL;
    csv->x = NULL;
    csv->y = NULL;
}

const pl_dataset_ops_t pl_csv_dataset = {
    .name = "csv",
    .help = "a table of numbers with one column as the target",
    .size = sizeof(csv_dataset_t),
    .options = csv_options,
    .open = csv_open,
    .read = csv_read,
    .close = csv_close,
};
