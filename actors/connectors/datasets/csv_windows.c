/* csv_windows.c - samples that are windows over the rows of a table, to predict later
 * rows
 *
 * A sample has the features of `window` rows that follow each other, and as targets the
 * values of one or several columns in the `horizon` rows behind them.  The split is by
 * time: the rows of training come before those of validation, and no sample has rows of
 * both.  Of columns that are known in advance the sample has the rows up to the last one
 * to predict, that is, rows that are `horizon` later. */
#include "actors/connectors/datasets/csv_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/run.h"

/* ---- Columns ---- */

static int targets_find(csv_dataset_t *csv, pl_error_t *err)
{
    pl_texts_t *others = &csv->others;
    const char *text = NULL;
    char number[24];
    for (int k = 0; k < others->count && !text; k++) {
        if (strcmp(others->name[k], "y") != 0)
            continue;
        text = others->text[k];
        for (others->count--; k < others->count; k++) {
            others->name[k] = others->name[k + 1];
            others->text[k] = others->text[k + 1];
        }
    }
    if (others->count)
        return pl_fail(err, PL_EINVAL,
                       "%s: \"fields\" has \"%.40s\", but with \"window\" there is only "
                       "\"y\", the columns to predict",
                       csv->path, others->name[0]);
    const int last = csv->table.columns - 1;
    snprintf(number, sizeof number, "%lld",
             csv->label < 0 ? (long long)last : (long long)csv->label);
    text = text ? text : number;
    for (size_t length; *text; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        const int column = csv_column(&csv->table, text, length);
        if (column < 0)
            return pl_fail(err, PL_EINVAL, "%s: field \"y\": there is no column \"%.*s\"",
                           csv->path, (int)(length < 40 ? length : 40), text);
        if (csv->targets == CSV_TARGETS)
            return pl_fail(err, PL_EINVAL, "%s: field \"y\": at most %d columns",
                           csv->path, CSV_TARGETS);
        csv->target_column[csv->targets++] = column;
    }
    return PL_OK;
}

int csv_windows_begin(csv_dataset_t *csv, pl_error_t *err)
{
    if (csv->target == TARGET_CLASS)
        return pl_fail(err, PL_EINVAL,
                       "%s: \"target\" is class, but windows predict values: remove it, "
                       "or \"window\"",
                       csv->path);
    if (*csv->groups)
        return pl_fail(err, PL_EINVAL,
                       "%s: \"groups\" is given, but a table with \"window\" is one "
                       "series: make a file of each group",
                       csv->path);
    if (csv->categories == 1 || csv->missing == MISSING_DROP)
        return pl_fail(err, PL_EINVAL,
                       csv->categories == 1
                           ? "%s: with \"window\", \"categories\" is \"one_hot\""
                           : "%s: \"missing\" is drop, which would leave gaps in the "
                             "windows: set \"median\" or \"mean\"",
                       csv->path);
    if (*csv->covariates && csv->horizon > csv->window)
        return pl_fail(err, PL_EINVAL,
                       "%s: \"horizon\" is %lld, longer than \"window\", %lld: with "
                       "\"covariates\" it must not be",
                       csv->path, (long long)csv->horizon, (long long)csv->window);
    const int code = csv->target == TARGET_NONE ? PL_OK : targets_find(csv, err);
    csv->target = TARGET_NONE;                           /* all columns may be features */
    return code;
}

/* Rows are in the order of time, so the numbers or dates of the column rise. */
static int time_check(const csv_dataset_t *csv, pl_error_t *err)
{
    csv_recipe_t recipe;
    char place[48], text[80];
    double last = -INFINITY, time;
    const int column = csv_column(&csv->table, csv->time, strlen(csv->time));
    if (column < 0)
        return pl_fail(err, PL_EINVAL, "%s: \"time\": there is no column \"%.40s\"",
                       csv->path, csv->time);
    const int code = csv_find_kind(csv, column, &recipe, err);
    for (int64_t row = 0; row < csv->rows && !code; row++) {
        const char *cell = pl_table_cell(&csv->table, row, column);
        const bool is_time = recipe.kind == KIND_DATE
                                 ? pl_date(cell, recipe.order, &time)
                                 : pl_table_number(&csv->table, row, column, &time);
        pl_table_place(&csv->table, row, column, place);
        if (!is_time || time <= last)
            return pl_fail(err, PL_EFORMAT,
                           "%s:%s: field %s: \"%.32s\" is %s: windows need rows in the "
                           "order of \"time\"",
                           csv->path, place, csv_column_text(csv, column, text), cell,
                           is_time ? "not later than the row above"
                                   : "neither a number nor a date like the others");
        last = time;
    }
    return code;
}

/* ---- Rows and samples ---- */

void csv_fill_gaps(double *value, int64_t count)
{
    int64_t last = -1;
    for (int64_t k = 0; k < count; k++) {
        if (isnan(value[k]))
            continue;
        for (int64_t i = last + 1; i < k; i++)
            value[i] = last < 0 ? value[k]
                                : value[last]
                                      + (value[k] - value[last]) * (double)(i - last)
                                            / (double)(k - last);
        last = k;
    }
    for (int64_t i = last + 1; last >= 0 && i < count; i++)
        value[i] = value[last];
}

/* The targets [rows, targets]. */
static int targets_read(csv_dataset_t *csv, pl_error_t *err)
{
    const int width = csv->targets;
    const bool fills = csv->missing != MISSING_ERROR;
    char place[48], text[80];
    int code = PL_OK;
    double *value = pl_alloc_array((size_t)csv->rows + 1, sizeof *value);
    csv->y = pl_alloc_array((size_t)csv->rows + 1, (size_t)width * sizeof *csv->y);
    if (!csv->y || !value)
        code = pl_no_memory(err);
    for (int k = 0; k < width && !code; k++) {
        const int column = csv->target_column[k];
        for (int64_t row = 0; row < csv->rows && !code; row++) {
            const char *cell = pl_table_cell(&csv->table, row, column);
            value[row] = NAN;
            if ((pl_table_number(&csv->table, row, column, &value[row])
                 && isfinite((float)value[row]))
                || (!*cell && fills))
                continue;
            pl_table_place(&csv->table, row, column, place);
            code = pl_fail(err, PL_EFORMAT,
                           "%s:%s: field %s: \"%.32s\" is not a finite number, but it is "
                           "to be predicted%s",
                           csv->path, place, csv_column_text(csv, column, text), cell,
                           *cell ? ""
                                 : ": \"missing\": \"median\" fills gaps along a line");
        }
        if (!code)
            csv_fill_gaps(value, csv->rows);
        for (int64_t row = 0; row < csv->rows && !code; row++)
            csv->y[row * width + k] = value[row];
    }
    pl_free(value);
    return code;
}

int csv_windows_split(csv_dataset_t *csv, const pl_data_request_t *request,
                      pl_data_split_t *split, pl_error_t *err)
{
    const int64_t from = llround(request->from * (double)csv->rows),
                  to = llround(request->to * (double)csv->rows);
    const bool needs_future = csv->stage != PL_PREDICT || *csv->covariates;
    const int64_t span = csv->window + (needs_future ? csv->horizon : 0);
    csv->first = csv->overlap && from > csv->window ? from - csv->window
                 : csv->overlap                     ? 0
                                                    : from;
    csv->samples = to - csv->first < span ? 0
                                          : (to - csv->first - span) / csv->stride + 1;
    if (*csv->time && time_check(csv, err) != PL_OK)
        return err->code;
    if (!csv->samples)
        return pl_fail(err, PL_EFORMAT,
                       "%s: the %s part has %lld rows, too few for \"window\" %lld and "
                       "\"horizon\" %lld: make them shorter%s",
                       csv->path, pl_stages[csv->stage].data,
                       (long long)(to - csv->first), (long long)csv->window,
                       (long long)csv->horizon,
                       request->from > 0 ? ", or \"val_split\" larger" : "");
    if (csv->stage != PL_PREDICT && targets_read(csv, err) != PL_OK)
        return err->code;
    csv->kind = csv->stage == PL_PREDICT ? TARGET_NONE : TARGET_VALUE;
    *split = (pl_data_split_t){.total = csv->rows, .held_count = csv->rows - to};
    split->held = pl_alloc_array((size_t)split->held_count + 1, sizeof *split->held);
    for (int64_t k = 0; split->held && k < split->held_count; k++)
        split->held[k] = to + k;
    return split->held ? PL_OK : pl_no_memory(err);
}

int csv_windows_scale(csv_dataset_t *csv, const pl_data_split_t *split, pl_error_t *err)
{
    double *value = pl_alloc_array((size_t)csv->rows + 1, sizeof *value);
    if (!value)
        return pl_no_memory(err);
    for (int k = 0; k < csv->targets; k++) {
        for (int64_t row = 0; row < csv->rows; row++)
            value[row] = csv->y[row * csv->targets + k];
        csv->scales[k] = csv_measure(csv, split, value, 0);
    }
    pl_free(value);
    return PL_OK;
}

/* Moves the features of covariates `horizon` rows up; the last rows have none. */
int csv_windows_shift(csv_dataset_t *csv, pl_error_t *err)
{
    const char *text = csv->covariates;
    for (size_t length; *text; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        const int column = csv_column(&csv->table, text, length);
        int source = 0, at = 0;
        while (source < csv->sources && csv->from[source] != column)
            at += csv->recipe[source++].width;
        bool is_target = false;
        for (int k = 0; k < csv->targets; k++)
            is_target |= csv->target_column[k] == column;
        if (source == csv->sources || is_target)
            return pl_fail(err, PL_EINVAL, "%s: \"covariates\": \"%.*s\" is %s",
                           csv->path, (int)(length < 40 ? length : 40), text,
                           is_target ? "to be predicted, so it is not known in advance"
                                     : "no column that is a feature");
        const int width = csv->recipe[source].width;
        for (int64_t row = 0; row < csv->rows; row++)
            for (int i = at; i < at + width; i++) {
                const int64_t later = row + csv->horizon;
                csv->x[row * csv->features + i] = later < csv->rows
                                                      ? csv->x[later * csv->features + i]
                                                      : 0;
            }
    }
    return PL_OK;
}

/* ---- Reading ---- */

int64_t csv_windows_outputs(const csv_dataset_t *csv)
{
    return csv->horizon * csv->targets;
}

void csv_windows_read(const csv_dataset_t *csv, const pl_read_request_t *request,
                      void *const field[])
{
    const int64_t numbers = csv->window * csv->features,
                  outputs = csv_windows_outputs(csv);
    float *x = field[0];
    for (int i = 0; i < request->count; i++) {
        const int64_t row = csv->first + request->index[i] * csv->stride;
        memcpy(x + i * numbers, csv->x + row * csv->features,
               (size_t)numbers * sizeof *x);
        for (int64_t k = 0; k < outputs && csv->kind == TARGET_VALUE; k++)
            ((float *)field[1])[i * outputs + k] =
                (float)csv->y[(row + csv->window) * csv->targets + k];
    }
}
