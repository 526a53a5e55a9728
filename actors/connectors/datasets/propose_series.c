/* propose_series.c - a run for a time series: windows over the rows, to predict the next
 * one
 *
 * A table is a series if a column of times rises from row to row, or falls, and the
 * others are a few columns of numbers.  The time may stand in several columns, such as a
 * year and a month.  A column that only looks like a time is named, because shuffled rows
 * of a series have a score that no forecast reaches. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "actors/connectors/datasets/propose_parts.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "formats/date.h"

/* Columns of a series besides its time. */
#define VALUES_MAX 16

/* A series of as many rows has the network of other tables. */
#define ROWS_MANY 1000

/* ---- The time ---- */

static const char *const time_words[] = {"year", "date", "time",    "month", "day",
                                         "week", "hour", "quarter", "period"};
enum { TIME_WORDS = sizeof time_words / sizeof *time_words };

/* A number of each row rises by steps, too; its name or its first number tells a time. */
static bool tells_time(const char *name, const table_column_t *c)
{
    bool says = c->kind == KIND_DATE
                || (c->kind == KIND_NUMBER && c->steps && c->first != 0 && c->first != 1
                    && !propose_is_id(name));
    for (int k = 0; k < TIME_WORDS; k++)
        says = says || (c->kind == KIND_NUMBER && strcasestr(name, time_words[k]));
    return says;
}

/* A column that has a time although the rows are not in a strict order: years of age are
 * sorted often. */
static bool looks_like_time(const char *name, const table_column_t *c, int order)
{
    bool looks = c->kind == KIND_DATE;
    for (int k = 0; k < TIME_WORDS; k++)
        looks = looks || (order == CSV_TIME_REPEATS && !strcasecmp(name, time_words[k]));
    return looks && c->distinct > 2;
}

/* The order of the rows by columns; CSV_TIME_NONE: they are no times. */
static int order_of(const proposal_t *p, const char *columns)
{
    csv_time_t time;
    return csv_time_find(&p->csv, columns, &time, NULL) == PL_OK
               ? csv_time_order(&p->csv, &time)
               : CSV_TIME_NONE;
}

/* Whether a column is in a list of columns. */
static bool is_listed(const proposal_t *p, const char *columns, int column)
{
    bool is = false;
    for (size_t length; *columns && !is; columns += length + (columns[length] == ',')) {
        length = strcspn(columns, ",");
        is = csv_column(&p->csv.table, columns, length) == column;
    }
    return is;
}

/* Finds columns of a calendar, from the year down, that rise together and not alone;
 * false: there are none. */
static bool find_calendar(const proposal_t *p, char *columns, size_t size, int *order)
{
    static const char *const names[][4] = {
        {"year", "yr", "yyyy"}, {"quarter", "qtr"}, {"month", "mon", "mnth", "mm"},
        {"week", "wk"},         {"day", "dd"},      {"hour", "hr", "hh"}};
    const pl_table_t *table = &p->csv.table;
    int found = 0;
    *columns = '\0';
    for (size_t unit = 0; table->name && unit < sizeof names / sizeof *names; unit++)
        for (int column = 0; column < table->columns; column++) {
            const char *name = table->name[column];
            bool is = false;
            for (int k = 0; k < 4 && names[unit][k]; k++)
                is = is || !strcasecmp(name, names[unit][k]);
            if (!is || column == p->target || strlen(columns) + strlen(name) + 2 > size)
                continue;
            if (unit && !found)
                return false;
            strcat(strcat(columns, found++ ? "," : ""), name);
            *order = order_of(p, columns);
            if (found > 1 && (*order == CSV_TIME_RISES || *order == CSV_TIME_FALLS))
                return true;
            break;
        }
    return false;
}

/* Finds what is a time, or the first column that looks like one; "": there is none. */
static int find_order(const proposal_t *p, char *columns, size_t size)
{
    char text[24], like[100] = "";
    int order, order_like = CSV_TIME_NONE;
    for (int k = 0; k < p->csv.table.columns; k++) {
        const char *name = propose_name(p, k, text);
        if (k == p->target || strlen(name) >= sizeof like
            || !tells_time(name, &p->column[k]))
            continue;
        order = order_of(p, name);
        if (order == CSV_TIME_RISES || order == CSV_TIME_FALLS) {
            snprintf(columns, size, "%s", name);
            return order;
        }
        if (!*like && looks_like_time(name, &p->column[k], order)) {
            snprintf(like, sizeof like, "%s", name);
            order_like = order;
        }
    }
    if (find_calendar(p, columns, size, &order))
        return order;
    snprintf(columns, size, "%s", like);
    return order_like;
}

/* A column that is neither the time nor of one value, nor numbers the rows. */
static bool is_value(const proposal_t *p, int column)
{
    const table_column_t *c = &p->column[column];
    return !is_listed(p, p->time, column) && c->distinct > 1 && !c->unused
           && (!c->counts || column == p->target);
}

/* Why the rows are no series, although they have a time  [NULL: they are one]. */
static const char *find_obstacle(const proposal_t *p, bool classes, int order,
                                 char text[static 200])
{
    const pl_table_t *table = &p->csv.table;
    int values = 0, odd = -1, months = 0, month;
    for (int k = 0; k < table->columns; k++) {
        months += table->name && pl_date_part(table->name[k], &month);
        values += is_value(p, k);
        if (is_value(p, k) && p->column[k].kind != KIND_NUMBER && odd < 0)
            odd = k;
    }
    if (classes)
        return "the target has classes, and a series has numbers: rows are shuffled";
    if (order == CSV_TIME_REPEATS)
        return "its times repeat: rows are shuffled; for a series, keep one row of each "
               "time";
    if (order == CSV_TIME_NONE)
        return "some rows have none: rows are shuffled; for a series, fill its cells";
    if (order != CSV_TIME_RISES && order != CSV_TIME_FALLS)
        return "the rows are not in its order: they are shuffled; for a series, sort the "
               "file by it, and put each of several series into a file of its own";
    if (months > 2)
        return "other columns are its months or quarters: rows are shuffled; for a "
               "series, write a row for each of them";
    if (table->rows < PROPOSE_SERIES_ROWS)
        snprintf(
            text, 200,
            "%lld rows are few: they are shuffled; a series is proposed from %d rows "
            "on, or set \"time\" and a small \"window\"",
            (long long)table->rows, PROPOSE_SERIES_ROWS);
    else if (odd >= 0)
        snprintf(text, 200,
                 "\"%.60s\" is no column of numbers: rows are shuffled; for a series, "
                 "remove such columns",
                 table->name ? table->name[odd] : "another one");
    else if (values > VALUES_MAX)
        snprintf(text, 200,
                 "%d other columns are many: rows are shuffled; for a series, set "
                 "\"time\" and \"window\", or keep at most %d",
                 values, VALUES_MAX);
    else
        return NULL;
    return text;
}

/* Beside the target there are only numbers of the rows and columns of one value; *time:
 * the first that numbers the rows  [-1]. */
static bool is_alone(const proposal_t *p, int *time)
{
    bool alone = p->column[p->target].kind == KIND_NUMBER;
    *time = -1;
    for (int k = 0; k < p->csv.table.columns && alone; k++) {
        if (k == p->target || p->column[k].unused || p->column[k].distinct < 2)
            continue;
        alone = p->column[k].counts && *time < 0;
        *time = k;
    }
    return alone;
}

/* A column of other texts that has the name of a time is named, too. */
static void tell_unread(proposal_t *p)
{
    const pl_table_t *table = &p->csv.table;
    for (int k = 0; table->name && k < table->columns; k++) {
        const table_column_t *c = &p->column[k];
        bool is_named = false;
        for (int i = 0; i < TIME_WORDS; i++)
            is_named = is_named || strcasestr(table->name[k], time_words[i]);
        if (!is_named || k == p->target || c->kind == KIND_NUMBER || c->kind == KIND_DATE
            || table->rows < 3 || c->distinct < c->filled)
            continue;
        propose_reason(
            p, "data.name",
            "\"%.100s\" has the name of a time, but cells such as \"%.40s\" are "
            "no dates that are known: write 2010-01-31 or 2010-01. Rows are "
            "shuffled.",
            table->name[k], pl_table_cell(table, 0, k));
        return;
    }
}

static void propose_missing_rows(proposal_t *p)
{
    csv_time_t time;
    char lacks[CSV_TIME_TEXT];
    if (csv_time_find(&p->csv, p->time, &time, NULL) == PL_OK
        && csv_time_lacks_rows(&p->csv, &time, lacks))
        propose_reason(p, "data.time", "%s", lacks);
}

bool propose_find_series(proposal_t *p, bool classes)
{
    char why_text[200], text[24];
    const int order = find_order(p, p->time, sizeof p->time);
    const char *why = *p->time ? find_obstacle(p, classes, order, why_text) : NULL;
    int time;
    if (why) {
        propose_reason(p, "data.name", "\"%.100s\" looks like a time, but %s.", p->time,
                       why);
        *p->time = '\0';
        return false;
    }
    if (*p->time) {
        propose_reason(
            p, "data.time",
            "\"%.100s\" %s from row to row, and the other columns are "
            "numbers: this is a time series.%s",
            p->time, order == CSV_TIME_RISES ? "rises" : "falls",
            order == CSV_TIME_RISES
                ? ""
                : " Rows are read from the last one up, in the order of time.");
        propose_missing_rows(p);
        return true;
    }
    if (classes || p->csv.table.rows < PROPOSE_SERIES_ROWS || !is_alone(p, &time)) {
        tell_unread(p);
        return false;
    }
    if (time >= 0)
        snprintf(p->time, sizeof p->time, "%s", propose_name(p, time, text));
    propose_reason(p, time >= 0 ? "data.time" : "data.window",
                   "There is one column of numbers%s%s%s: it is taken as a time series, "
                   "in the order of the file.",
                   time >= 0 ? ", and \"" : "", p->time,
                   time >= 0 ? "\" numbers the rows" : "");
    return true;
}

/* ---- The run ---- */

/* The columns that are left out, and the only feature if there are few rows for several;
 * -> their number, *place: of the target among them. */
static int propose_features(proposal_t *p, int64_t window, int *place)
{
    const pl_table_t *table = &p->csv.table;
    char text[24], list[1000] = "";
    int features = 0;
    for (int k = 0; k < table->columns; k++) {
        const char *name = propose_name(p, k, text);
        *place = k == p->target ? features : *place;
        features += is_value(p, k);
        if (is_listed(p, p->time, k) || is_value(p, k)
            || strlen(list) + strlen(name) + 2 > sizeof list)
            continue;
        strcat(strcat(list, *list ? "," : ""), name);
        if (!p->column[k].unused)
            propose_reason(p, "data.ignore", "\"%.100s\" is left out: it %s.", name,
                           p->column[k].counts ? "numbers the rows" : "has one value");
    }
    if (*list)
        propose_set(p, "data.ignore", json_string(list));
    if (features == 1 || 2 * features * window <= table->rows)
        return features;
    propose_set(p, "data.features", json_string(propose_name(p, p->target, text)));
    propose_reason(p, "data.features",
                   "%lld rows are few for windows of %d columns, so the forecast is from "
                   "the past of the target alone. To use all columns, remove "
                   "\"features\", and put \"slice 2 %d %d\" behind \"use last\".",
                   (long long)table->rows, features, *place, *place + 1);
    *place = 0;
    return 1;
}

/* The last row, plus what a linear layer and a network make of the rows as they differ
 * from it.  Series that drift need no values from beyond those that were learnt. */
static void propose_network(proposal_t *p, int features, int place)
{
    const bool many = p->csv.table.rows >= ROWS_MANY;
    const int first = many ? 128 : 32, second = many ? 64 : 16;
    const char *dropout = many ? "dropout 0.1" : "dropout 0.3";
    char wide[24], narrow[24], own[40];
    snprintf(wide, sizeof wide, "linear %d", first);
    snprintf(narrow, sizeof narrow, "linear %d", second);
    snprintf(own, sizeof own, "slice 2 %d %d", place, place + 1);
    json_t *layers =
        json_pack("[s, s, s, s, s, s, s, {s:[[s], [s, s, s, s, s, s, s]], s:s}, s, s]",
                  "keep rows", "flip 1", "slice 1 0 1", "keep last", "use rows",
                  "sub last", "flatten", "branches", "linear auto", wide, "relu", dropout,
                  narrow, "relu", dropout, "linear auto", "join", "add", "keep change",
                  "use last");
    if (features > 1)
        layers = pl_json_append(layers, json_string(own));
    layers = pl_json_append(layers, json_string("reshape 1"));
    layers = pl_json_append(layers, json_string("add change"));
    propose_set(p, "module",
                json_pack("{s:s, s:o, s:[s,s]}", "name", "layers", "layers", layers,
                          "metrics", "mae", "r2"));
    propose_reason(p, "module.name",
                   "The forecast is the last value, plus what a linear layer and a "
                   "network of two hidden layers predict from the rows as they differ "
                   "from the last one. paceline predict prints a value for each window, "
                   "in its unit; the last is of the row behind the file.");
}

void propose_series(proposal_t *p)
{
    const pl_table_t *table = &p->csv.table;
    const int64_t part = table->rows / 12, window = part < 4 ? 4 : part > 48 ? 48 : part;
    const bool lacks = p->column[p->target].filled < table->rows;
    const char *name;
    char text[24];
    int place = 0;
    name = propose_name(p, p->target, text);
    if (table->name)
        propose_set(p, "data.fields", json_pack("{s:s}", "y", name));
    else
        propose_set(p, "data.label", json_integer(p->target));
    if (*p->time)
        propose_set(p, "data.time", json_string(p->time));
    propose_set(p, "data.window", json_integer(window));
    propose_set(p, "data.horizon", json_integer(1));
    propose_reason(p, "data.window",
                   "A sample is %lld rows, from which the next value of the target is "
                   "predicted; more horizon predicts several rows at once.",
                   (long long)window);
    const int features = propose_features(p, window, &place);
    propose_set(p, "data.missing", json_string("median"));
    propose_reason(
        p, "data.missing",
        "%s In a series, \"median\" and all treatments but \"error\" fill gaps "
        "along a line.",
        lacks ? "Values are missing." : "No value is missing.");
    propose_set(p, "data.overlap", json_true());
    propose_reason(
        p, "data.overlap",
        "Each row for validation is predicted, the first ones from rows of the "
        "training.");
    propose_reason(p, "data.val_split",
                   "The split is by time: the last rows are for validation.");
    propose_network(p, features, place);
    propose_training(p, table->rows, table->rows < ROWS_MANY ? 0.01 : PROPOSE_LR);
}
