/* propose_columns.c - the columns of a table: what each contains, which is the target,
 * and which are of no use
 *
 * A run as it is proposed must not fail.  So what csv would refuse is found here: cells
 * that are no numbers among numbers count as missing, and texts must be UTF-8. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "actors/connectors/datasets/propose_parts.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/utf8.h"

/* Different values of a column are counted up to here. */
#define DISTINCT_MAX 1001

/* Blanks in a text of some words; fewer are in names and addresses, whose words say
 * little. */
#define SENTENCE 5

/* ---- Columns ---- */

static int look_at(proposal_t *p, int column, pl_error_t *err)
{
    const pl_table_t *table = &p->csv.table;
    csv_recipe_t recipe = {0};
    table_column_t *c = &p->column[column];
    double number = NAN, last = NAN, step = 0;
    json_t *seen = json_object();
    int code = csv_find_kind(&p->csv, column, &recipe, err);
    if (code || !seen) {
        json_decref(seen);
        return code ? code : pl_no_memory(err);
    }
    *c = (table_column_t){.kind = recipe.kind,
                          .order = recipe.order,
                          .whole = true,
                          .counts = true,
                          .rises = true,
                          .steps = true,
                          .unused = c->unused,
                          .odd = c->odd};
    for (int64_t row = 0; row < table->rows; row++) {
        const char *cell = pl_table_cell(table, row, column);
        const bool is_number = pl_table_number(table, row, column, &number);
        c->whole = c->whole && (!*cell || (is_number && number == floor(number)));
        c->counts = c->counts && is_number && (row == 0 || number == last + 1);
        const bool is_time = is_number
                             || (recipe.kind == KIND_DATE
                                 && pl_date(cell, recipe.order, &number));
        c->rises = c->rises && is_time && (row == 0 || number > last);
        c->first = row == 0 ? number : c->first;
        step = row == 1 ? number - last : step;
        c->steps = c->rises && c->steps
                   && (row < 2 || fabs(number - last - step) <= 1e-6 * fabs(step));
        last = number;
        c->filled += *cell != '\0';
        for (const char *at = strchr(cell, ' '); at; at = strchr(at + 1, ' '))
            c->blanks++;
        if (*cell && json_object_size(seen) < DISTINCT_MAX)
            json_object_set_new_nocheck(seen, cell, json_true());
    }
    c->distinct = (int64_t)json_object_size(seen);
    c->counts = c->counts && table->rows > 2;
    json_decref(seen);
    return PL_OK;
}

/* ---- Cells that are no numbers in a column of numbers ---- */

/* So many different ones may stand for missing cells in all; the column of more is left
 * out. */
#define ODD_MAX 40
#define ODD_LENGTH 30

/* A number is too large if float32 does not have it. */
static bool is_odd(const pl_table_t *table, const table_column_t *c, int64_t row,
                   int column)
{
    const char *cell = pl_table_cell(table, row, column);
    double number;
    if (!*cell || (c->kind != KIND_NUMBER && c->kind != KIND_DATE))
        return false;
    return c->kind == KIND_DATE
               ? !pl_date(cell, c->order, &number)
               : !pl_table_number(table, row, column, &number) || fabs(number) > FLT_MAX;
}

/* Finds cells that are no numbers, or no dates, among those that are: they become texts
 * of missing cells.  *found: there are some. */
static int find_odd(proposal_t *p, bool *found, pl_error_t *err)
{
    const pl_table_t *table = &p->csv.table;
    *found = false;
    for (int k = 0; k < table->columns; k++) {
        table_column_t *c = &p->column[k];
        const char *first = NULL;
        int64_t line = 0, count = 0;
        char text[24], place[PL_PLACE_TEXT];
        for (int64_t row = 0; row < table->rows && !c->unused; row++) {
            const char *cell = pl_table_cell(table, row, k);
            if (!is_odd(table, c, row, k))
                continue;
            line = count++ ? line : table->line[row];
            first = first ? first : cell;
            c->unused = strchr(cell, ',') || strlen(cell) > ODD_LENGTH
                        || (!json_object_get(p->odd, cell)
                            && json_object_size(p->odd) == ODD_MAX);
            if (!c->unused && json_object_set_new(p->odd, cell, json_true()))
                return pl_no_memory(err);
        }
        if (!count)
            continue;
        *found = true;
        c->odd = true;
        pl_table_line(table, line, place);
        propose_reason(p, c->unused ? "data.ignore" : "data.missing_values",
                       "\"%.100s\" has %s, such as \"%.30s\" in line %s: %s.",
                       propose_name(p, k, text),
                       c->kind == KIND_DATE ? "cells that are no dates"
                                            : "cells that are no numbers of float32",
                       first, place,
                       c->unused ? "it is left out" : "such cells count as missing");
    }
    return PL_OK;
}

/* The texts of missing cells, with those that were found. */
static int missing_extend(proposal_t *p, pl_error_t *err)
{
    char *text = pl_text("%s", CSV_MISSING_VALUES), *more;
    const char *cell;
    json_t *value;
    json_object_foreach(p->odd, cell, value) {
        more = text ? pl_text("%s,%s", text, cell) : NULL;
        pl_text_free(text);
        text = more;
    }
    if (!text)
        return pl_no_memory(err);
    pl_text_free(p->missing);
    p->csv.options.missing_values = p->missing = text;
    csv_empty_cells(&p->csv);
    propose_set(p, "data.missing_values", json_string(text));
    return PL_OK;
}

/* Names and classes are texts of the run file and of the weights, which are UTF-8. */
static int check_texts(const proposal_t *p, pl_error_t *err)
{
    const pl_table_t *table = &p->csv.table;
    for (int k = 0; k < table->columns && table->name; k++)
        if (!pl_utf8_ok(table->name[k], strlen(table->name[k])))
            return pl_fail(err, PL_EFORMAT,
                           "%s: the name of column %d is not UTF-8: " CSV_CONVERT,
                           p->csv.options.path, k + 1);
    for (int64_t row = 0; row < table->rows; row++)
        for (int k = 0; k < table->columns; k++) {
            const char *cell = pl_table_cell(table, row, k);
            if (!pl_utf8_ok(cell, strlen(cell)))
                return csv_wrong_cell(&p->csv, row, k, "UTF-8", err);
        }
    return PL_OK;
}

int propose_columns(proposal_t *p, pl_error_t *err)
{
    const pl_table_t *table = &p->csv.table;
    bool again = true;
    int code = check_texts(p, err);
    p->column = code ? NULL : pl_alloc_array((size_t)table->columns, sizeof *p->column);
    p->odd = json_object();
    if (!code && (!p->column || !p->odd))
        return pl_no_memory(err);
    for (int k = 0; k < table->columns && !code; k++)
        p->column[k] = (table_column_t){0};
    /* Without these cells a column may be of another kind. */
    while (!code && again) {
        for (int k = 0; k < table->columns && !code; k++)
            code = look_at(p, k, err);
        if (!code)
            code = find_odd(p, &again, err);
        if (!code && again && json_object_size(p->odd))
            code = missing_extend(p, err);
    }
    return code;
}

/* ---- The target ---- */

static bool can_be_target(const proposal_t *p, int column)
{
    const table_column_t *c = &p->column[column];
    return !c->unused && c->kind != KIND_TEXT && c->kind != KIND_DATE && c->distinct > 1
           && !c->counts;
}

int propose_find_target(proposal_t *p, const char *wanted, pl_error_t *err)
{
    static const char *const usual[] = {"target",        "label",
                                        "class",         "y",
                                        "survived",      "outcome",
                                        "species",       "diagnosis",
                                        "churn",         "quality",
                                        "income",        "price",
                                        "medhousevalue", "median_house_value",
                                        "medhouseval",   "medv",
                                        "mpg",           "type",
                                        "category",      "spam"};
    const pl_table_t *table = &p->csv.table;
    const char *key = table->name ? "data.fields" : "data.label";
    char text[24];
    for (int k = 0; wanted && k < table->columns; k++) {
        snprintf(text, sizeof text, "%d", k);
        if (strcmp(wanted, text) && (!table->name || strcmp(wanted, table->name[k])))
            continue;
        p->target = k;
        const table_column_t *c = &p->column[k];
        const char *why = c->unused              ? "cells that are no numbers"
                          : c->distinct < 1      ? "no values"
                          : c->distinct < 2      ? "one value"
                          : c->kind == KIND_DATE ? "dates"
                          : c->kind == KIND_TEXT ? "too many different texts for classes"
                                                 : NULL;
        if (why)
            return pl_fail(err, PL_EINVAL,
                           "%s: the column \"%s\" cannot be the target: it has %s",
                           p->csv.options.path, wanted, why);
        propose_reason(p, key, "The target is \"%.100s\", as requested.", wanted);
        return PL_OK;
    }
    if (wanted)
        return pl_fail(err, PL_ENOTFOUND, "%s: there is no column \"%.100s\"",
                       p->csv.options.path, wanted);
    for (size_t i = 0; table->name && i < sizeof usual / sizeof *usual; i++)
        for (int k = 0; k < table->columns; k++)
            if (!strcasecmp(table->name[k], usual[i]) && can_be_target(p, k)) {
                p->target = k;
                propose_reason(p, key,
                               "The target is \"%.100s\", a usual name for one; "
                               "--target NAME chooses another column.",
                               table->name[k]);
                return PL_OK;
            }
    for (p->target = table->columns - 1; p->target >= 0; p->target--)
        if (can_be_target(p, p->target))
            break;
    if (p->target < 0)
        return pl_fail(err, PL_EFORMAT,
                       "%s: no column can be the target: each has dates, free texts or "
                       "one value, or numbers the rows; --target NAME chooses one",
                       p->csv.options.path);
    propose_reason(p, key,
                   "The target is the last column that can be one, \"%.100s\"; --target "
                   "NAME chooses another.",
                   propose_name(p, p->target, text));
    return PL_OK;
}

/* Each value of a column stands beside one value of a target of classes: the column is
 * the target in other words. */
static bool tells_target(const proposal_t *p, int column)
{
    const pl_table_t *table = &p->csv.table;
    const table_column_t *c = &p->column[column], *target = &p->column[p->target];
    json_t *beside = c->distinct == target->distinct && table->rows >= 50 ? json_object()
                                                                          : NULL;
    bool tells = beside;
    for (int64_t row = 0; row < table->rows && tells; row++) {
        const char *cell = pl_table_cell(table, row, column);
        const json_t *known = json_object_get(beside, cell);
        const char *value = pl_table_cell(table, row, p->target);
        if (known)
            tells = !strcmp(json_string_value(known), value);
        else
            tells = json_object_set_new_nocheck(beside, cell, json_string_nocheck(value))
                    == 0;
    }
    json_decref(beside);
    return tells;
}

static bool has_sentences(const table_column_t *c)
{
    return c->kind == KIND_TEXT && c->blanks >= SENTENCE * c->filled;
}

/* Besides the target there are only free texts, so they are what there is to learn
 * from. */
static bool has_texts_alone(const proposal_t *p)
{
    bool alone = true;
    for (int k = 0; k < p->csv.table.columns; k++)
        alone &= k == p->target || p->column[k].kind == KIND_TEXT;
    return alone;
}

bool propose_is_id(const char *name)
{
    const char *dash = strrchr(name, '_');
    const size_t length = strlen(name);
    return !strcasecmp(name, "id") || !strcasecmp(name, "index")
           || (dash && !strcasecmp(dash, "_id"))
           || (length > 2 && !strcmp(name + length - 2, "Id"));
}

int propose_find_unused(proposal_t *p, bool classes, pl_error_t *err)
{
    const pl_table_t *table = &p->csv.table;
    const bool texts_alone = has_texts_alone(p);
    char list[1000] = "", text[24], why_first[160] = "there is no other column";
    int features = 0;
    for (int k = 0; k < table->columns; k++) {
        table_column_t *c = &p->column[k];
        const char *name = propose_name(p, k, text);
        const size_t length = strlen(name);
        const bool is_id = c->kind == KIND_NUMBER && c->whole && c->distinct > 20
                           && (c->distinct == c->filled || c->distinct == DISTINCT_MAX)
                           && propose_is_id(name);
        if (k == p->target)
            continue;
        const char *why = c->unused            ? "has cells that are no numbers"
                          : c->distinct < 1    ? "has no values"
                          : c->distinct < 2    ? "has one value"
                          : c->counts || is_id ? "numbers the rows"
                          : c->kind == KIND_TEXT && p->larger > 0
                              ? "has texts, whose words need all rows in memory"
                          : c->kind == KIND_TEXT && !has_sentences(c) && !texts_alone
                              ? "has free texts of few words"
                          : classes && tells_target(p, k) ? "is the target in other words"
                                                          : NULL;
        features += !why;
        if (why && !strncmp(why_first, "there", 5))
            snprintf(why_first, sizeof why_first, "\"%.100s\" %s", name, why);
        if (!why || strlen(list) + length + 2 > sizeof list)
            continue;
        const bool is_known = c->unused;
        c->unused = true;
        sprintf(list + strlen(list), "%s%s", *list ? "," : "", name);
        if (!is_known)
            propose_reason(p, "data.ignore", "\"%.100s\" is left out: it %s.", name, why);
    }
    const bool may_be_series = !classes && table->rows < PROPOSE_SERIES_ROWS;
    if (!features)
        return pl_fail(err, PL_EFORMAT,
                       "%s: no column is left from which \"%.100s\" could be predicted: "
                       "%s%s; --target NAME chooses another target",
                       p->csv.options.path, propose_name(p, p->target, text), why_first,
                       may_be_series ? ", and a time series has at least 40 rows" : "");
    if (*list)
        propose_set(p, "data.ignore", json_string(list));
    return PL_OK;
}
