/* csv_recipe.c - how the columns of a table become numbers
 *
 * Each column of "x" has a recipe: numbers, with a number for empty cells; categories, as
 * one feature for each value or as an index for an embedding; dates as days, with sines
 * and cosines of the time of the year, the week and the day.  Recipes are learnt from the
 * rows to train on (csv_learn.c) and are in the data info, so every other file is
 * prepared alike. */
#include "actors/connectors/datasets/csv_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/utf8.h"

static const char *const kind_words[] = {"number", "category", "date", "text", "words"};
static const char *const order_words[] = {"year first", "day first", "month first"};

/* ---- Recipes in the data info ---- */

static json_t *recipe_write(const csv_recipe_t *recipe)
{
    json_t *json = json_pack("{s:s}", "kind", kind_words[recipe->kind]);
    if (!isnan(recipe->fill))
        json = pl_json_with(json, "fill", json_real(recipe->fill));
    if (recipe->indicator)
        json = pl_json_with(json, "indicator", json_true());
    if (recipe->kind == KIND_DATE) {
        json = pl_json_with(json, "order", json_string(order_words[recipe->order]));
        json = pl_json_with(json, "parts", json_integer(recipe->parts));
    }
    if (recipe->kind != KIND_CATEGORY && recipe->kind != KIND_WORDS)
        return json;
    json_t *list = json_array();
    const char *value;
    json_t *place;
    json_object_foreach(recipe->values, value, place)
        list = pl_json_append(list, json_string(value));
    json = pl_json_with(json, "values", list);
    if (recipe->kind == KIND_WORDS)
        return pl_json_with(json, "weights", json_incref(recipe->weights));
    json = pl_json_with(json, "other", json_boolean(recipe->other));
    json = pl_json_with(json, "index", json_boolean(recipe->is_index));
    return pl_json_with(json, "frequent", json_integer(recipe->frequent));
}

int csv_recipes(const csv_dataset_t *csv, json_t **recipes_p, pl_error_t *err)
{
    bool plain = true;
    json_t *list = json_array();
    for (int k = 0; k < csv->columns.sources; k++) {
        const csv_recipe_t *recipe = &csv->learnt.recipe[k];
        plain = plain && recipe->kind == KIND_NUMBER && isnan(recipe->fill);
        list = pl_json_append(list, recipe_write(recipe));
    }
    if (!list)
        return pl_no_memory(err);
    if (plain)
        json_decref(list);
    *recipes_p = plain ? NULL : list;
    return PL_OK;
}

static int word_of(const json_t *json, const char *key, const char *const *words,
                   int count)
{
    const char *text = json_string_value(json_object_get(json, key));
    for (int k = 0; text && k < count; k++)
        if (!strcmp(text, words[k]))
            return k;
    return -1;
}

/* Counts features: a category has one for each value, a date its days and its parts. */
static void recipe_measure(csv_recipe_t *recipe)
{
    const int values = (int)json_object_size(recipe->values);
    recipe->width = recipe->kind == KIND_TEXT       ? 0
                    : recipe->kind == KIND_WORDS    ? values
                    : recipe->kind != KIND_CATEGORY ? 1 + recipe->indicator
                    : recipe->is_index              ? 0
                                                    : values + recipe->other;
    for (int bit = DATE_YEAR; bit <= DATE_DAY; bit *= 2)
        recipe->width += recipe->parts & bit ? 2 : 0;
}

/* PL_EFORMAT: not what recipe_write() writes. */
static int recipe_read(csv_recipe_t *recipe, const json_t *json, pl_error_t *err)
{
    const json_t *fill = json_object_get(json, "fill"), *frequent;
    const int kind = word_of(json, "kind", kind_words, 5);
    *recipe =
        (csv_recipe_t){.kind = (csv_kind_t)kind,
                       .fill = fill ? json_number_value(fill) : NAN,
                       .indicator = json_is_true(json_object_get(json, "indicator")),
                       .frequent = -1};
    if (kind < 0)
        return PL_EFORMAT;
    if (kind == KIND_DATE) {
        const int order = word_of(json, "order", order_words, 3);
        recipe->order = (pl_date_order_t)order;
        recipe->parts = (int)json_integer_value(json_object_get(json, "parts"));
        if (order < 0 || recipe->parts < 0 || recipe->parts > 7)
            return PL_EFORMAT;
    }
    if (kind == KIND_CATEGORY || kind == KIND_WORDS) {
        size_t k;
        json_t *value;
        recipe->values = json_object();
        json_array_foreach(json_object_get(json, "values"), k, value)
            recipe->values = json_is_string(value)
                                 ? pl_json_with(recipe->values, json_string_value(value),
                                                json_integer((json_int_t)k))
                                 : recipe->values;
        if (!recipe->values)
            return pl_no_memory(err);
        frequent = json_object_get(json, "frequent");
        recipe->other = json_is_true(json_object_get(json, "other"));
        recipe->is_index = json_is_true(json_object_get(json, "index"));
        recipe->frequent = frequent ? (int)json_integer_value(frequent) : -1;
        if (recipe->frequent >= (int)json_object_size(recipe->values)
            || json_object_size(recipe->values)
                   != json_array_size(json_object_get(json, "values")))
            return PL_EFORMAT;
    }
    if (kind == KIND_WORDS) {
        size_t k;
        json_t *weight;
        recipe->weights = json_incref(json_object_get(json, "weights"));
        if (json_array_size(recipe->weights) != json_object_size(recipe->values))
            return PL_EFORMAT;
        json_array_foreach(recipe->weights, k, weight)
            if (!json_is_number(weight))
                return PL_EFORMAT;
    }
    recipe_measure(recipe);
    return PL_OK;
}

int csv_find_recipes(csv_dataset_t *csv, const json_t *data_info, pl_error_t *err)
{
    const json_t *known = json_object_get(data_info, RECIPES);
    int kept = 0;
    csv->learnt.recipe = pl_alloc_array((size_t)csv->columns.sources + 1,
                                        sizeof *csv->learnt.recipe);
    if (!csv->learnt.recipe)
        return pl_no_memory(err);
    if (known && json_array_size(known) != (size_t)csv->columns.sources)
        return pl_fail(err, PL_EINVAL,
                       "%s: %d feature%s, but the training data had %zu: check the "
                       "options target and label",
                       csv->options.path, csv->columns.sources,
                       pl_plural(csv->columns.sources), json_array_size(known));
    for (int k = 0; k < csv->columns.sources; k++) {
        csv_recipe_t *recipe = &csv->learnt.recipe[kept];
        int code = PL_OK;
        if (known)
            code = recipe_read(recipe, json_array_get(known, (size_t)k), err);
        else if (data_info)
            *recipe = (csv_recipe_t){.fill = NAN, .frequent = -1, .width = 1};
        else if (csv->source.kinds)
            csv_kinds_decide(&csv->source.kinds[k], recipe);
        else
            code = csv_find_kind(csv, csv->columns.from[k], recipe, err);
        if (!data_info && recipe->kind == KIND_TEXT && csv->options.texts == 1)
            recipe->kind = KIND_WORDS;
        if (code)
            return code == PL_EFORMAT ? pl_fail(err, code,
                                                "%s: the training data has no recipe for "
                                                "feature %d",
                                                csv->options.path, k)
                                      : code;
        char text[80];
        if (recipe->kind == KIND_TEXT && !data_info)
            csv_log(csv, PL_LOG_INFO,
                    "field %s is not used: its texts are neither numbers nor dates, and "
                    "too many for categories; \"texts\": \"words\" uses their words",
                    csv_column_text(&csv->table, csv->columns.from[k], text));
        /* Files without names are matched by position, so the column stays. */
        if (recipe->kind == KIND_TEXT && csv->table.name)
            csv->columns.use[csv->columns.from[k]] = FOR_NOTHING;
        else
            csv->columns.from[kept++] = csv->columns.from[k];
    }
    csv->columns.sources = kept;
    return PL_OK;
}

/* ---- Preparing ---- */

/* Fills the features of a number or a date that begin at `at`; value [rows] has the
 * numbers, with NAN for empty cells. */
static int fill_numbers(csv_dataset_t *csv, int k, int at, double *value, pl_error_t *err)
{
    static const double period[] = {365.2425, 7, 1};
    const csv_recipe_t *recipe = &csv->learnt.recipe[k];
    for (int64_t row = 0; row < csv->rows; row++) {
        float *x = csv->samples.x + row * csv->learnt.features + at;
        const bool is_empty = isnan(value[row]);
        const double number = is_empty ? recipe->fill : value[row];
        *x = pl_moments_apply(&csv->learnt.moments[at], number);
        if (!isfinite((float)number) || !isfinite(*x)) {
            char place[PL_PLACE_TEXT];
            pl_table_line(&csv->table, csv->table.line[row], place);
            return pl_fail(err, PL_EFORMAT,
                           "%s:%s: field %d is %g, too large for float32",
                           csv->options.path, place, csv->columns.from[k] + 1, number);
        }
        x++;
        if (recipe->indicator)
            *x++ = is_empty;
        for (int bit = 0; bit < 3; bit++) {
            if (!(recipe->parts & (1 << bit)))
                continue;
            const double angle = 2 * M_PI * fmod(number, period[bit]) / period[bit];
            *x++ = (float)sin(angle);
            *x++ = (float)cos(angle);
        }
    }
    return PL_OK;
}

/* Fills one feature for each value, or the index, which counts from `base`: 0 is a rare
 * or unknown value. */
static void fill_category(csv_dataset_t *csv, int k, int at, int index, int64_t base)
{
    const csv_recipe_t *recipe = &csv->learnt.recipe[k];
    const int values = (int)json_object_size(recipe->values);
    int64_t unknown = 0;
    for (int64_t row = 0; row < csv->rows; row++) {
        const char *cell = pl_table_cell(&csv->table, row, csv->columns.from[k]);
        const json_t *known = json_object_get(recipe->values, cell);
        const int place = !*cell && recipe->frequent >= 0 ? recipe->frequent
                          : known                         ? (int)json_integer_value(known)
                          : recipe->other                 ? values
                                                          : -1;
        unknown += !known && *cell;
        if (recipe->is_index)
            csv->samples.index[row * csv->learnt.indexes + index] =
                base + (place < values ? place + 1 : 0);
        else if (place >= 0)
            csv->samples.x[row * csv->learnt.features + at + place] = 1;
    }
    char text[80];
    if (unknown && csv->source.stage != PL_TRAIN)
        csv_log(csv, csv->source.stage == PL_VALIDATE ? PL_LOG_INFO : PL_LOG_WARNING,
                "field %s: %lld cell%s with a value that is rare or unknown in the "
                "training data",
                csv_column_text(&csv->table, csv->columns.from[k], text),
                (long long)unknown, pl_plural(unknown));
}

int csv_refuse_empty(const csv_dataset_t *csv, int k, pl_error_t *err)
{
    const csv_recipe_t *recipe = &csv->learnt.recipe[k];
    const bool is_category = recipe->kind == KIND_CATEGORY;
    if (recipe->kind == KIND_TEXT || recipe->kind == KIND_WORDS
        || (is_category && (recipe->frequent >= 0 || json_object_get(recipe->values, "")))
        || (is_category && csv->options.missing != MISSING_ERROR)
        || (!is_category && !isnan(recipe->fill)))
        return PL_OK;
    for (int64_t row = 0; row < csv->rows; row++) {
        char place[PL_PLACE_TEXT], text[80];
        if (*pl_table_cell(&csv->table, row, csv->columns.from[k]))
            continue;
        pl_table_place(&csv->table, row, csv->columns.from[k], place);
        return pl_fail(err, PL_EFORMAT, "%s:%s: field %s of %d is missing%s",
                       csv->options.path, place,
                       csv_column_text(&csv->table, csv->columns.from[k], text),
                       csv->table.columns,
                       csv->source.stage == PL_TRAIN
                           ? ": set \"missing\" to a treatment, such as \"median\""
                           : ", and the training data has no treatment for missing "
                             "cells: train with \"missing\": \"median\"");
    }
    return PL_OK;
}

int csv_layout(csv_dataset_t *csv, pl_error_t *err)
{
    size_t values;
    csv->learnt.features = csv->learnt.indexes = 0;
    for (int k = 0; k < csv->columns.sources; k++) {
        recipe_measure(&csv->learnt.recipe[k]);
        csv->learnt.features += csv->learnt.recipe[k].width;
        csv->learnt.indexes += csv->learnt.recipe[k].is_index;
    }
    if (!csv->learnt.features && !csv->learnt.indexes)
        return pl_fail(err, PL_EFORMAT,
                       "%s: there are no features that are numbers, "
                       "categories or dates",
                       csv->options.path);
    csv->learnt.features +=
        !csv->learnt.features;                   /* "x" has a zero beside indexes alone */
    if (__builtin_mul_overflow((size_t)csv->rows + 1, (size_t)csv->learnt.features,
                               &values))
        return pl_no_memory(err);
    csv->samples.x = pl_alloc_array(values, sizeof *csv->samples.x);
    csv->samples.index =
        pl_alloc_array(((size_t)csv->rows + 1) * (size_t)csv->learnt.indexes + 1,
                       sizeof *csv->samples.index);
    const int windows = csv->options.window ? (int)csv->options.window : 1;
    csv->learnt.moments = pl_alloc_array((size_t)csv->learnt.features,
                                         (size_t)windows * sizeof *csv->learnt.moments);
    if (!csv->samples.x || !csv->samples.index || !csv->learnt.moments)
        return pl_no_memory(err);
    memset(csv->samples.x, 0, values * sizeof *csv->samples.x);
    for (int k = 0; k < csv->learnt.features; k++)
        csv->learnt.moments[k] = (pl_moments_t){0, 1};
    return PL_OK;
}

static int read_moments(csv_dataset_t *csv, const json_t *data_info, pl_error_t *err)
{
    const json_t *known = json_object_get(data_info, PL_MOMENTS);
    if (!known)
        return pl_fail(err, PL_EINVAL,
                       "%s: the training data was not standardized: set "
                       "\"standardize\": false",
                       csv->options.path);
    const size_t rows = csv->options.window ? (size_t)csv->options.window : 1;
    if (json_array_size(known) != (size_t)csv->learnt.features * rows)
        return pl_fail(err, PL_EINVAL,
                       "%s: %zu feature%s, but the training data had %zu: check the "
                       "options target, label and window",
                       csv->options.path, (size_t)csv->learnt.features * rows,
                       pl_plural(csv->learnt.features * (int64_t)rows),
                       json_array_size(known));
    const int bad = pl_moments_read(known, csv->learnt.moments);
    return bad < 0 ? PL_OK
                   : pl_fail(err, PL_EFORMAT,
                             "%s: the training data has no mean and factor for feature "
                             "%d",
                             csv->options.path, bad);
}

int csv_prepare(csv_dataset_t *csv, const pl_data_split_t *split, const json_t *data_info,
                pl_error_t *err)
{
    double *value = pl_alloc_array((size_t)csv->rows + 1, sizeof *value);
    csv_numbers_t *numbers = pl_alloc_array((size_t)csv->columns.sources + 1,
                                            sizeof *numbers);
    int code = value && numbers ? PL_OK : pl_no_memory(err);
    if (!code && !data_info)
        code = csv_learn(csv, split, value, numbers, err);
    for (int k = 0; k < csv->columns.sources && !code; k++)
        code = csv_refuse_empty(csv, k, err);
    if (!code)
        code = csv_layout(csv, err);
    if (!code && data_info && csv->options.standardize)
        code = read_moments(csv, data_info, err);
    for (int k = 0, at = 0, index = 0; k < csv->columns.sources && !code; k++) {
        const csv_recipe_t *recipe = &csv->learnt.recipe[k];
        if (recipe->kind == KIND_CATEGORY) {
            fill_category(csv, k, at, index, csv->learnt.index_values);
            index += recipe->is_index;
            csv->learnt.index_values +=
                recipe->is_index ? (int64_t)json_object_size(recipe->values) + 1 : 0;
        } else if (recipe->kind == KIND_WORDS) {
            code = csv_fill_words(csv, k, at, err);
        } else if (recipe->kind != KIND_TEXT
                   && !(code = csv_read_numbers(csv, k, value, err))) {
            if (!data_info && csv->options.standardize)
                csv->learnt.moments[at] = csv_numbers_moments(&numbers[k], recipe->fill);
            code = fill_numbers(csv, k, at, value, err);
        }
        at += recipe->width;
    }
    for (int64_t k = csv->learnt.features;
         !code && k < csv->learnt.features * csv->options.window; k++)
        csv->learnt.moments[k] =
            csv->learnt.moments[k % csv->learnt.features];  /* each row of a window */
    pl_free(value);
    pl_free(numbers);
    return code;
}
