/* csv_time.c - the order of the rows of a time series, by the columns of "time", and
 * rows that are missing between them
 *
 * A time may stand in several columns, such as a year and a month: rows that are equal in
 * the first one are in the order of the next.  A file whose newest row is the first is
 * read from its last row up. */
#include "actors/connectors/datasets/csv_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/median.h"

int csv_time_find(const csv_dataset_t *csv, const char *columns, csv_time_t *time,
                  pl_error_t *err)
{
    *time = (csv_time_t){0};
    const bool is_one = csv_column(&csv->table, columns, strlen(columns)) >= 0;
    for (size_t length; *columns; columns += length + (columns[length] == ',')) {
        csv_recipe_t recipe;
        length = is_one ? strlen(columns) : strcspn(columns, ",");
        const int column = csv_column(&csv->table, columns, length);
        if (column < 0)
            return pl_fail(err, PL_EINVAL, "%s: \"time\": there is no column \"%.*s\"",
                           csv->options.path, (int)(length < 40 ? length : 40), columns);
        if (time->columns == CSV_TIMES)
            return pl_fail(err, PL_EINVAL, "%s: \"time\": at most %d columns",
                           csv->options.path, CSV_TIMES);
        if (csv_find_kind(csv, column, &recipe, err) != PL_OK)
            return PL_ENOMEM;
        time->column[time->columns] = column;
        time->is_date[time->columns] = recipe.kind == KIND_DATE;
        time->order[time->columns++] = recipe.order;
    }
    return PL_OK;
}

/* The time of a row; -> the column that has none, or -1. */
static int time_read(const csv_dataset_t *csv, const csv_time_t *time, int64_t row,
                     double value[CSV_TIMES])
{
    for (int k = 0; k < time->columns; k++) {
        const char *cell = pl_table_cell(&csv->table, row, time->column[k]);
        int part;
        if (time->is_date[k]
                ? pl_date(cell, time->order[k], &value[k])
                : pl_table_number(&csv->table, row, time->column[k], &value[k]))
            continue;
        if (!pl_date_part(cell, &part))
            return time->column[k];
        value[k] = part;
    }
    return -1;
}

/* Below 0: a is before b; 0: they are equal. */
static int time_compare(const csv_time_t *time, const double *a, const double *b)
{
    for (int k = 0; k < time->columns; k++)
        if (a[k] != b[k])
            return a[k] < b[k] ? -1 : 1;
    return 0;
}

int csv_time_order(const csv_dataset_t *csv, const csv_time_t *time)
{
    double last[CSV_TIMES], now[CSV_TIMES];
    bool rises = true, falls = true, repeats = false;
    for (int64_t row = 0; row < csv->table.rows && (rises || falls); row++) {
        if (time_read(csv, time, row, now) >= 0)
            return CSV_TIME_NONE;
        const int order = row ? time_compare(time, last, now) : 0;
        rises = rises && order <= 0;
        falls = falls && order >= 0;
        repeats = repeats || (row && !order);
        memcpy(last, now, sizeof last);
    }
    return !rises && !falls ? CSV_TIME_MIXED
           : repeats        ? CSV_TIME_REPEATS
           : rises          ? CSV_TIME_RISES
                            : CSV_TIME_FALLS;
}

/* ---- Rows that are missing ---- */

/* The time of each row in units of the last column, from pl_alloc_array().  NULL: no
 * memory, or columns whose units differ in length, such as the days of months. */
static double *times_of(const csv_dataset_t *csv, const csv_time_t *time)
{
    const int64_t rows = csv->table.rows;
    double value[CSV_TIMES], units = 1;
    for (int64_t row = 0; row < rows && time->columns == 2; row++)
        if (time_read(csv, time, row, value) < 0 && value[1] > units)
            units = value[1];
    const bool is_even = time->columns == 1
                         || (time->columns == 2 && (units == 4 || units == 12));
    double *at = is_even ? pl_alloc_array((size_t)rows, sizeof *at) : NULL;
    for (int64_t row = 0; row < rows && at; row++) {
        time_read(csv, time, row, value);
        at[row] = time->columns == 2 ? value[0] * units + value[1] : value[0];
    }
    return at;
}

bool csv_time_lacks_rows(const csv_dataset_t *csv, const csv_time_t *time,
                         char text[static CSV_TIME_TEXT])
{
    const int64_t rows = csv->table.rows;
    double *at = rows > 2 ? times_of(csv, time) : NULL,
           *step = at ? pl_alloc_array((size_t)rows, sizeof *step) : NULL, usual = 0;
    int64_t places = 0, first = 0;
    for (int64_t row = 1; row < rows && step; row++)
        step[row - 1] = fabs(at[row] - at[row - 1]);
    if (step)
        usual = pl_median(step, (size_t)rows - 1);
    for (int64_t row = rows - 1; row > 0 && step; row--)
        if (fabs(at[row] - at[row - 1]) > 1.5 * usual) {
            places++;
            first = row;
        }
    pl_free(at);
    pl_free(step);
    if (!places || places * 20 > rows)
        return false;
    char line[PL_PLACE_TEXT];
    pl_table_line(&csv->table, csv->table.line[first], line);
    snprintf(
        text, CSV_TIME_TEXT,
        "Rows are missing in %lld place%s, the first above line %s: windows take the "
        "rows around them as neighbours. Add them with empty cells, which are "
        "filled along a line.",
        (long long)places, places == 1 ? "" : "s", line);
    return true;
}

/* ---- The order that a run needs ---- */

/* PL_EFORMAT names the first row that has no time, or is not later than the one before
 * it. */
static int time_refuse(const csv_dataset_t *csv, const csv_time_t *time, bool falls,
                       pl_error_t *err)
{
    char place[PL_PLACE_TEXT], text[80];
    double last[CSV_TIMES] = {0}, now[CSV_TIMES];
    int64_t row = 0;
    int bad = -1;
    for (; row < csv->table.rows; row++) {
        bad = time_read(csv, time, row, now);
        const int order = row && bad < 0 ? time_compare(time, last, now) : -1;
        if (bad >= 0 || (row && (falls ? order <= 0 : order >= 0)))
            break;
        memcpy(last, now, sizeof last);
    }
    const int column = bad >= 0 ? bad : time->column[time->columns - 1];
    pl_table_place(&csv->table, row, column, place);
    return pl_fail(err, PL_EFORMAT,
                   "%s:%s: field %s: \"%.32s\" is %s: windows need rows in the order of "
                   "\"time\", %s",
                   csv->options.path, place, csv_column_text(&csv->table, column, text),
                   pl_table_cell(&csv->table, row, column),
                   bad >= 0 ? "neither a number nor a date like the others"
                   : falls  ? "not earlier than the row above"
                            : "not later than the row above",
                   bad >= 0 ? "one in each row" : "each time once: sort the file");
}

static void rows_reverse(pl_table_t *table)
{
    const size_t columns = (size_t)table->columns;
    for (int64_t a = 0, b = table->rows - 1; a < b; a++, b--) {
        const int64_t line = table->line[a];
        table->line[a] = table->line[b];
        table->line[b] = line;
        for (size_t k = 0; k < columns; k++) {
            char **first = &table->cell[(size_t)a * columns + k],
                 **last = &table->cell[(size_t)b * columns + k], *cell = *first;
            *first = *last;
            *last = cell;
        }
        if (!table->start)
            continue;
        char *start = table->start[a];
        table->start[a] = table->start[b];
        table->start[b] = start;
    }
}

int csv_time_sort(csv_dataset_t *csv, pl_error_t *err)
{
    csv_time_t *time = &csv->columns.time;
    double first[CSV_TIMES], last[CSV_TIMES];
    const int64_t rows = csv->table.rows;
    const int code = csv_time_find(csv, csv->options.time, time, err);
    if (code)
        return code;
    const int order = csv_time_order(csv, time);
    const bool says = csv->source.stage != PL_VALIDATE;     /* training has said it */
    char lacks[CSV_TIME_TEXT];
    if (says && (order == CSV_TIME_RISES || order == CSV_TIME_FALLS)
        && csv_time_lacks_rows(csv, time, lacks))
        csv_log(csv, PL_LOG_WARNING, "%s", lacks);
    if (order == CSV_TIME_FALLS && rows > 1) {
        if (says)
            csv_log(csv, PL_LOG_INFO,
                    "the newest row is the first: rows are read from the last one up");
        rows_reverse(&csv->table);
        return PL_OK;
    }
    if (order == CSV_TIME_RISES || rows == 0)
        return PL_OK;
    const bool falls = time_read(csv, time, 0, first) < 0
                       && time_read(csv, time, rows - 1, last) < 0
                       && time_compare(time, first, last) > 0;
    return time_refuse(csv, time, falls, err);
}

char *csv_time_names(const csv_dataset_t *csv)
{
    const csv_time_t *time = &csv->columns.time;
    json_t *list = json_array();
    for (int64_t k = 0; k < csv->samples.windows; k++) {
        const int64_t row = csv->samples.first + k * csv->options.stride
                            + csv->options.window;
        char text[200] = "";
        size_t length = 0;
        for (int i = 0; i < time->columns && row < csv->rows && length < sizeof text; i++)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                       i ? " " : "",
                                       pl_table_cell(&csv->table, row, time->column[i]));
        if (!time->columns)
            snprintf(text, sizeof text, "%lld", (long long)row);
        list = pl_json_append(list, json_string(text));
    }
    char *text = list ? pl_json_write(list, PL_JSON_COMPACT) : NULL;
    json_decref(list);
    return text;
}
