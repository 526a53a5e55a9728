/* csv_learn.c - what the rows of a table say about its columns: kinds and recipes
 *
 * What is learnt is counted row by row and decided at the end.  So a table that is read
 * in parts gives the same recipes as one in memory, to the last bit: the sums are made in
 * the same order. */
#include "actors/connectors/datasets/csv_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/median.h"
#include "base/utf8.h"

/* The most values of a category; a text column has more, or values that are rarely
 * repeated. */
#define CATEGORIES_MAX 1000
#define CATEGORIES_FEW 10

/* ---- Kinds ---- */

int csv_count_text(json_t *counts, const char *text)
{
    json_t *known = json_object_get(counts, text);
    return known ? json_integer_set(known, json_integer_value(known) + 1)
                 : json_object_set_new_nocheck(counts, text, json_integer(1));
}

int csv_kinds_count(const csv_dataset_t *csv, int column, csv_kinds_t *kinds)
{
    kinds->counts = kinds->counts ? kinds->counts : json_object();
    kinds->words = kinds->words ? kinds->words : json_object();
    int failed = !kinds->counts || !kinds->words;
    const char *counted[64] = {0};                /* the last ones, which often recur */
    for (int64_t row = 0; row < csv->table.rows && !failed; row++) {
        const char *cell = pl_table_cell(&csv->table, row, column);
        double number;
        const bool is_number = pl_table_number(&csv->table, row, column, &number);
        kinds->filled += *cell != '\0';
        kinds->numbers += is_number;
        if (!*cell)
            continue;
        for (int k = 0; k < 3 && !is_number; k++)
            kinds->dates[k] += pl_date(cell, (pl_date_order_t)k, &number);
        const char **like = &counted[(5 * (unsigned)cell[0] + (unsigned)cell[1]) % 64];
        if ((!*like || strcmp(cell, *like) != 0)
            && json_object_size(kinds->counts) <= CATEGORIES_MAX) {
            *like = cell;
            if (!json_object_get(kinds->counts, cell))
                failed = json_object_set_new_nocheck(kinds->counts, cell, json_true());
        }
        if (!is_number && !failed && json_object_size(kinds->words) < 3)
            failed = csv_count_text(kinds->words, cell);
    }
    return failed;
}

/* Numbers with a few other words are numbers: the words are mistakes, or stand for
 * missing cells. */
void csv_kinds_decide(const csv_kinds_t *kinds, csv_recipe_t *recipe)
{
    const int64_t filled = kinds->filled, numbers = kinds->numbers, *dates = kinds->dates,
                  distinct = (int64_t)json_object_size(kinds->counts);
    const bool few_words = json_object_size(kinds->words) < 3
                           || 20 * (filled - numbers) <= filled;
    *recipe = (csv_recipe_t){.fill = NAN, .frequent = -1, .width = 1};
    for (int k = 1; k < 3; k++)
        recipe->order = dates[k] > dates[recipe->order] ? (pl_date_order_t)k
                                                        : recipe->order;
    /* 1/2/2024 has the month first, unless other dates of the column say otherwise. */
    if (dates[PL_DATE_MDY] > dates[PL_DATE_YMD]
        && dates[PL_DATE_MDY] == dates[recipe->order])
        recipe->order = PL_DATE_MDY;
    if (2 * numbers >= filled && few_words)
        recipe->kind = KIND_NUMBER;
    else if (20 * dates[recipe->order] >= 19 * filled)
        recipe->kind = KIND_DATE;
    else if (distinct <= CATEGORIES_FEW
             || (2 * distinct <= filled && distinct <= CATEGORIES_MAX))
        recipe->kind = KIND_CATEGORY;
    else
        recipe->kind = KIND_TEXT;
}

void csv_kinds_release(csv_kinds_t *kinds)
{
    json_decref(kinds->counts);
    json_decref(kinds->words);
    *kinds = (csv_kinds_t){0};
}

int csv_find_kind(const csv_dataset_t *csv, int column, csv_recipe_t *recipe,
                  pl_error_t *err)
{
    csv_kinds_t kinds = {0};
    const int failed = csv_kinds_count(csv, column, &kinds);
    if (!failed)
        csv_kinds_decide(&kinds, recipe);
    csv_kinds_release(&kinds);
    return failed ? pl_no_memory(err) : PL_OK;
}

/* ---- Numbers ---- */

int csv_read_numbers(const csv_dataset_t *csv, int k, double *value, pl_error_t *err)
{
    const csv_recipe_t *recipe = &csv->learnt.recipe[k];
    const int column = csv->columns.from[k];
    for (int64_t row = 0; row < csv->rows; row++) {
        const char *cell = pl_table_cell(&csv->table, row, column);
        value[row] = NAN;
        if (*cell && recipe->kind == KIND_DATE
            && !pl_date(cell, recipe->order, &value[row]))
            return csv_wrong_cell(csv, row, column, "a date like the others", err);
        if (*cell && recipe->kind == KIND_NUMBER
            && !pl_table_number(&csv->table, row, column, &value[row]))
            return csv_wrong_cell(csv, row, column, "a finite number", err);
    }
    if (csv->options.window && csv->options.missing != MISSING_ERROR)
        csv_fill_gaps(value, csv->rows);
    return PL_OK;
}

/* B. P. Welford, "Note on a method for calculating corrected sums of squares and
 * products", Technometrics 4 (1962): one pass, and no deviation in a constant column. */
void csv_numbers_add(csv_numbers_t *numbers, const csv_dataset_t *csv,
                     const pl_data_split_t *split, const double *value)
{
    for (int64_t row = 0; row < csv->rows; row++) {
        const double number = value[row];
        if (!isnan(number)) {
            const double whole = floor(number);
            if (!numbers->any) {
                numbers->first = whole;
                numbers->smallest = numbers->largest = number;
                numbers->any = true;
            }
            if (number < numbers->smallest)
                numbers->smallest = number;
            if (number > numbers->largest)
                numbers->largest = number;
            numbers->parts |= number != whole ? DATE_DAY : 0;
            if (!(numbers->parts & DATE_WEEK) && fmod(whole - numbers->first, 7) != 0)
                numbers->parts |= DATE_WEEK;
        }
        if (pl_data_split_holds(split, csv->source.base + row))
            continue;
        if (isnan(number)) {
            numbers->empty++;
            continue;
        }
        const double distance = number - numbers->mean;
        numbers->mean += distance / (double)++numbers->count;
        numbers->squares += distance * (number - numbers->mean);
    }
}

/* Constant numbers are scaled to 0. */
pl_moments_t csv_numbers_moments(const csv_numbers_t *numbers, double fill)
{
    const double count = (double)numbers->count,
                 empty = isnan(fill) ? 0 : (double)numbers->empty, all = count + empty,
                 distance = empty > 0 ? fill - numbers->mean : 0,
                 squares = all > 0 ? (numbers->squares
                                      + distance * distance * count * empty / all)
                                         / all
                                   : 0;
    return (pl_moments_t){all > 0 ? numbers->mean + distance * empty / all : 0,
                          squares > 0 ? 1 / sqrt(squares) : 1};
}

pl_moments_t csv_measure(const csv_dataset_t *csv, const pl_data_split_t *split,
                         const double *value, double fill)
{
    csv_numbers_t numbers = {0};
    csv_numbers_add(&numbers, csv, split, value);
    return csv_numbers_moments(&numbers, fill);
}

void csv_numbers_decide(const csv_options_t *options, const csv_numbers_t *numbers,
                        csv_recipe_t *recipe)
{
    const bool by_mean = options->missing == MISSING_MEAN
                         || options->missing == MISSING_CATEGORY;
    recipe->fill = by_mean ? numbers->mean : NAN;
    recipe->indicator = options->missing == MISSING_CATEGORY && numbers->empty > 0
                        && recipe->kind == KIND_NUMBER;
    if (recipe->kind != KIND_DATE)
        return;
    recipe->parts = numbers->parts;
    recipe->parts |= numbers->largest - numbers->smallest > 60 ? DATE_YEAR : 0;
}

/* The median, or the most frequent number, for empty cells, from the rows to train on;
 * value [rows]. */
static int learn_fill(const csv_dataset_t *csv, const pl_data_split_t *split,
                      const double *value, csv_recipe_t *recipe, pl_error_t *err)
{
    int64_t count = 0, longest = 0, run = 0;
    double frequent = 0;
    double *sorted = pl_alloc_array((size_t)csv->rows + 1, sizeof *sorted);
    if (!sorted)
        return pl_no_memory(err);
    for (int64_t row = 0; row < csv->rows; row++)
        if (!pl_data_split_holds(split, row) && !isnan(value[row]))
            sorted[count++] = value[row];
    const double median = pl_median(sorted, (size_t)count);
    for (int64_t k = 0; k < count; k++) {
        run = k > 0 && sorted[k] == sorted[k - 1] ? run + 1 : 1;
        if (run > longest) {
            longest = run;
            frequent = sorted[k];
        }
    }
    pl_free(sorted);
    recipe->fill = csv->options.missing == MISSING_MOST_FREQUENT ? frequent : median;
    return PL_OK;
}

/* ---- Categories ---- */

/* An empty cell is no value of its own. */
static bool empty_is_none(const csv_dataset_t *csv)
{
    return csv->options.missing == MISSING_MOST_FREQUENT
           || csv->options.missing == MISSING_DROP
           || csv->options.missing == MISSING_ERROR;
}

int csv_count_values(const csv_dataset_t *csv, const pl_data_split_t *split, int k,
                     json_t *counts, pl_error_t *err)
{
    for (int64_t row = 0; row < csv->rows; row++) {
        const char *cell = pl_table_cell(&csv->table, row, csv->columns.from[k]);
        if (pl_data_split_holds(split, csv->source.base + row)
            || (!*cell && empty_is_none(csv)))
            continue;
        if (!pl_utf8_ok(cell, strlen(cell)))
            return csv_wrong_cell(csv, row, csv->columns.from[k], "UTF-8", err);
        if (csv_count_text(counts, cell))
            return pl_no_memory(err);
    }
    return PL_OK;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int csv_values_decide(const csv_dataset_t *csv, int k, json_t *counts, pl_error_t *err)
{
    csv_recipe_t *recipe = &csv->learnt.recipe[k];
    const bool fills = csv->options.missing == MISSING_MOST_FREQUENT
                       || csv->options.missing == MISSING_DROP;
    const char **value = pl_alloc_array(json_object_size(counts) + 1, sizeof *value),
               *key;
    json_t *count;
    int64_t most = 0;
    int kept = 0;
    recipe->values = json_object();
    recipe->is_index = csv->options.categories == 1;
    int failed = !value || !recipe->values;
    json_object_foreach(failed ? NULL : counts, key, count) {
        if (json_integer_value(count) >= csv->options.rare)
            value[kept++] = key;
        else
            recipe->other = true;
    }
    if (!failed)
        qsort(value, (size_t)kept, sizeof *value, compare_texts);
    for (int i = 0; i < kept && !failed; i++) {
        const int64_t times = json_integer_value(json_object_get(counts, value[i]));
        failed = json_object_set_new(recipe->values, value[i], json_integer(i));
        if (fills && times > most) {
            most = times;
            recipe->frequent = i;
        }
    }
    pl_free(value);
    if (!failed && !kept && recipe->other) {
        char text[80];
        csv_log(csv, PL_LOG_WARNING,
                "field %s tells nothing: each of its texts is in fewer than \"rare\", "
                "%lld, rows; if they are numbers with a sign or a unit, write the "
                "numbers alone",
                csv_column_text(&csv->table, csv->columns.from[k], text),
                (long long)csv->options.rare);
    }
    return failed ? pl_no_memory(err) : PL_OK;
}

/* ---- A table in memory ---- */

int csv_learn(csv_dataset_t *csv, const pl_data_split_t *split, double *value,
              csv_numbers_t *numbers, pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < csv->columns.sources && !code; k++) {
        csv_recipe_t *recipe = &csv->learnt.recipe[k];
        if (recipe->kind == KIND_NUMBER || recipe->kind == KIND_DATE) {
            code = csv_read_numbers(csv, k, value, err);
            if (code)
                break;
            csv_numbers_add(&numbers[k], csv, split, value);
            csv_numbers_decide(&csv->options, &numbers[k], recipe);
            if (csv->options.missing != MISSING_ERROR && isnan(recipe->fill))
                code = learn_fill(csv, split, value, recipe, err);
        }
        if (recipe->kind == KIND_CATEGORY) {
            json_t *counts = json_object();
            code = counts ? csv_count_values(csv, split, k, counts, err)
                          : pl_no_memory(err);
            if (!code)
                code = csv_values_decide(csv, k, counts, err);
            json_decref(counts);
        }
        if (recipe->kind == KIND_WORDS)
            code = csv_learn_words(csv, split, k, err);
    }
    return code;
}
