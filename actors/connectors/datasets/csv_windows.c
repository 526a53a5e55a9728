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
    pl_texts_t *others = &csv->columns.others;
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
                       csv->options.path, others->name[0]);
    const int last = csv->table.columns - 1;
    snprintf(number, sizeof number, "%lld",
             csv->columns.label < 0 ? (long long)last : (long long)csv->columns.label);
    text = text ? text : number;
    for (size_t length; *text; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        const int column = csv_column(&csv->table, text, length);
        if (column < 0)
            return csv_refuse_target(csv, text, length, err);
        if (csv->columns.targets == CSV_TARGETS)
            return pl_fail(err, PL_EINVAL, "%s: field \"y\": at most %d columns",
                           csv->options.path, CSV_TARGETS);
        csv->columns.target_column[csv->columns.targets++] = column;
    }
    return PL_OK;
}

int csv_windows_begin(csv_dataset_t *csv, pl_error_t *err)
{
    if (csv->columns.wanted == TARGET_CLASS)
        return pl_fail(err, PL_EINVAL,
                       "%s: \"target\" is class, but windows predict values: remove it, "
                       "or \"window\"",
                       csv->options.path);
    if (*csv->options.groups)
        return pl_fail(err, PL_EINVAL,
                       "%s: \"groups\" is given, but a table with \"window\" is one "
                       "series: make a file of each group",
                       csv->options.path);
    if (csv->options.categories == 1 || csv->options.missing == MISSING_DROP)
        return pl_fail(err, PL_EINVAL,
                       csv->options.categories == 1
                           ? "%s: with \"window\", \"categories\" is \"one_hot\""
                           : "%s: \"missing\" is drop, which would leave gaps in the "
                             "windows: set \"median\" or \"mean\"",
                       csv->options.path);
    if (*csv->options.covariates && csv->options.horizon > csv->options.window)
        return pl_fail(err, PL_EINVAL,
                       "%s: \"horizon\" is %lld, longer than \"window\", %lld: with "
                       "\"covariates\" it must not be",
                       csv->options.path, (long long)csv->options.horizon,
                       (long long)csv->options.window);
    int code = csv->columns.wanted == TARGET_NONE ? PL_OK : targets_find(csv, err);
    csv->columns.wanted = TARGET_NONE;                   /* all columns may be features */
    if (!code && *csv->options.time)
        code = csv_time_sort(csv, err);
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
    const int width = csv->columns.targets;
    const bool fills = csv->options.missing != MISSING_ERROR;
    char place[PL_PLACE_TEXT], text[80];
    int code = PL_OK;
    double *value = pl_alloc_array((size_t)csv->rows + 1, sizeof *value);
    csv->samples.y = pl_alloc_array((size_t)csv->rows + 1,
                                    (size_t)width * sizeof *csv->samples.y);
    if (!csv->samples.y || !value)
        code = pl_no_memory(err);
    for (int k = 0; k < width && !code; k++) {
        const int column = csv->columns.target_column[k];
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
                           csv->options.path, place,
                           csv_column_text(&csv->table, column, text), cell,
                           *cell ? ""
                                 : ": \"missing\": \"median\" fills gaps along a line");
        }
        if (!code)
            csv_fill_gaps(value, csv->rows);
        for (int64_t row = 0; row < csv->rows && !code; row++)
            csv->samples.y[row * width + k] = value[row];
    }
    pl_free(value);
    return code;
}

/* The error of forecasts that repeat the last value, in the rows behind those to train
 * on: what a forecast has to be better than. */
static double repeated_mae(const csv_dataset_t *csv, int64_t to)
{
    const csv_options_t *o = &csv->options;
    const int64_t width = csv->columns.targets, first = !o->overlap      ? to + o->window
                                                        : to > o->window ? to
                                                                         : o->window;
    const double *y = csv->samples.y;
    double sum = 0, count = 0;
    for (int64_t row = first; row + o->horizon <= csv->rows; row += o->stride)
        for (int64_t k = 0; k < o->horizon * width; k++, count++)
            sum += fabs(y[row * width + k] - y[(row - 1) * width + k % width]);
    return count > 0 ? sum / count : 0;
}

int csv_windows_split(csv_dataset_t *csv, const pl_data_request_t *request,
                      pl_data_split_t *split, pl_error_t *err)
{
    const int64_t from = llround(request->from * (double)csv->rows),
                  to = llround(request->to * (double)csv->rows);
    const bool needs_future = csv->source.stage != PL_PREDICT || *csv->options.covariates;
    const int64_t span = csv->options.window + (needs_future ? csv->options.horizon : 0);
    csv->samples.first = csv->options.overlap && from > csv->options.window
                             ? from - csv->options.window
                         : csv->options.overlap ? 0
                                                : from;
    csv->samples.windows = to - csv->samples.first < span
                               ? 0
                               : (to - csv->samples.first - span) / csv->options.stride
                                     + 1;
    if (!csv->samples.windows && csv->source.stage > PL_VALIDATE)
        return pl_fail(err, PL_EFORMAT,
                       "%s: the file has %lld row%s, but at least %lld are needed: put "
                       "the last %lld rows of the older file, the \"window\", in front "
                       "of the new ones",
                       csv->options.path, (long long)csv->rows, pl_plural(csv->rows),
                       (long long)span, (long long)csv->options.window);
    if (!csv->samples.windows)
        return pl_fail(err, PL_EFORMAT,
                       "%s: the %s part has %lld rows, too few for \"window\" %lld and "
                       "\"horizon\" %lld: make them shorter%s",
                       csv->options.path, pl_stages[csv->source.stage].data,
                       (long long)(to - csv->samples.first),
                       (long long)csv->options.window, (long long)csv->options.horizon,
                       request->from > 0 ? ", or \"val_split\" larger" : "");
    if (csv->source.stage != PL_PREDICT && targets_read(csv, err) != PL_OK)
        return err->code;
    csv->learnt.kind = csv->source.stage == PL_PREDICT ? TARGET_NONE : TARGET_VALUE;
    if (csv->source.stage == PL_TRAIN)
        csv->learnt.repeated_mae = repeated_mae(csv, to);
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
    for (int k = 0; k < csv->columns.targets; k++) {
        for (int64_t row = 0; row < csv->rows; row++)
            value[row] = csv->samples.y[row * csv->columns.targets + k];
        csv->learnt.scales[k] = csv_measure(csv, split, value, 0);
    }
    pl_free(value);
    return PL_OK;
}

/* Moves the features of covariates `horizon` rows up; the last rows have none. */
int csv_windows_shift(csv_dataset_t *csv, pl_error_t *err)
{
    const char *text = csv->options.covariates;
    for (size_t length; *text; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        const int column = csv_column(&csv->table, text, length);
        int source = 0, at = 0;
        while (source < csv->columns.sources && csv->columns.from[source] != column)
            at += csv->learnt.recipe[source++].width;
        bool is_target = false;
        for (int k = 0; k < csv->columns.targets; k++)
            is_target |= csv->columns.target_column[k] == column;
        if (source == csv->columns.sources || is_target)
            return pl_fail(err, PL_EINVAL, "%s: \"covariates\": \"%.*s\" is %s",
                           csv->options.path, (int)(length < 40 ? length : 40), text,
                           is_target ? "to be predicted, so it is not known in advance"
                                     : "no column that is a feature");
        const int width = csv->learnt.recipe[source].width;
        for (int64_t row = 0; row < csv->rows; row++)
            for (int i = at; i < at + width; i++) {
                const int64_t later = row + csv->options.horizon;
                csv->samples.x[row * csv->learnt.features + i] =
                    later < csv->rows ? csv->samples.x[later * csv->learnt.features + i]
                                      : 0;
            }
    }
    return PL_OK;
}

/* ---- Reading ---- */

int64_t csv_windows_outputs(const csv_dataset_t *csv)
{
    return csv->options.horizon * csv->columns.targets;
}

void csv_windows_read(const csv_dataset_t *csv, const pl_read_request_t *request,
                      void *const field[])
{
    const int64_t numbers = csv->options.window * csv->learnt.features,
                  outputs = csv_windows_outputs(csv);
    float *x = field[0];
    for (int i = 0; i < request->count; i++) {
        const int64_t row = csv->samples.first + request->index[i] * csv->options.stride;
        memcpy(x + i * numbers, csv->samples.x + row * csv->learnt.features,
               (size_t)numbers * sizeof *x);
        for (int64_t k = 0; k < outputs && csv->learnt.kind == TARGET_VALUE; k++)
            ((float *)field[1])[i * outputs + k] =
                (float)csv->samples
                    .y[(row + csv->options.window) * csv->columns.targets + k];
    }
}
