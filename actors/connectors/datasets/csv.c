/* csv.c - a table: one column is the target, the others are features
 *
 * Columns may be separate fields, by name: a sample's weight, a second input.  Targets
 * that are texts or whole numbers are classes, others are values to predict.  Numbers,
 * categories and dates become features, column by column.
 *
 * The names and uses of columns, the classes, the recipes of features and the moments
 * come from the training data alone: if each file decided for itself, the same row could
 * mean different samples.  The data info carries them to all other sources. */
#include "actors/connectors/datasets/csv_parts.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/run.h"

_Static_assert(offsetof(csv_dataset_t, options) == 0, "they are read into its begin");

static const pl_option_t csv_options[] = {
    PL_TEXT(csv_options_t, path, NULL, NULL,
            "the file, plain, gzip or Zstandard (.jsonl, .ndjson: JSON Lines); a SQLite "
            "database; a folder of JSON Lines, or one with a folder of texts for each "
            "class"),
    PL_TEXT(csv_options_t, query, "\"\"", NULL,
            "of a SQLite database: the SELECT whose rows are the table"),
    {"table", PL_OPTION_TEXT, offsetof(csv_options_t, from_table), "\"\"", NULL,
     "of a SQLite database: its table; \"\": the only one"},
    PL_WORD(csv_options_t, header, "\"auto\"", "auto|yes|no",
            "whether the first line has column names; auto: if none of its fields is a "
            "number, or most columns have numbers below it"),
    PL_TEXT(csv_options_t, delimiter, "\"\"", NULL,
            "character between fields, \"tab\" or \"blanks\"; \"\": the one of , ; | tab "
            "and blanks that gives most lines the same number of fields"),
    PL_WORD(csv_options_t, decimal, "\"auto\"", "auto|point|comma",
            "character before the fraction of a number; auto: as most numbers have it"),
    PL_TEXT(csv_options_t, comment, "\"\"", NULL,
            "first character of lines to leave out, or \"none\"; \"\": # or %, if the "
            "file begins with it"),
    PL_INT(csv_options_t, skip_lines, "-1", "-1..",
           "lines before the table; -1: those at the beginning with another number of "
           "fields than all others"),
    PL_INT(csv_options_t, label, "-1", "-1..",
           "column of the target, from 0; -1: the last"),
    PL_TEXT(
        csv_options_t, target, "\"\"", NULL,
        "column of the target, by name; or the type of the target: auto, class, value "
        "or none. \"\" is auto: as in the training data, where texts are classes, and "
        "whole numbers from 0 if there are at most 10, or at most 1000 with two rows "
        "for each; none: every column is a feature"),
    PL_INT(csv_options_t, ignore_index, "-100", PL_LABELS, PL_IGNORE_HELP),
    {"fields", PL_OPTION_TEXTS, offsetof(csv_options_t, fields), "{}", NULL,
     "columns that are separate fields, by name or number: {\"weight\": \"w\", "
     "\"place\": \"3,4\"}; \"y\" names the column of the target, or several: they are "
     "labels if all cells are 0 or 1, yes or no, else values"},
    {"features", PL_OPTION_TEXT, offsetof(csv_options_t, used), "\"\"", NULL,
     "columns that are features, by name or number: \"age,2\"; \"\": all that have no "
     "other use"},
    {"ignore", PL_OPTION_TEXT, offsetof(csv_options_t, ignored), "\"\"", NULL,
     "columns that are not used, by name or number: \"id,name\""},
    PL_TEXT(csv_options_t, groups, "\"\"", NULL,
            "column that says what belongs together, by name or number, such as a "
            "patient: rows with the same text there are all in training or all in "
            "validation; it is no feature"),
    PL_WORD(csv_options_t, missing, "\"error\"",
            "error|mean|median|most_frequent|drop|category",
            "empty cells of features: an error; filled with what the training data has "
            "in that column; or their row is left out. category: the mean, and a further "
            "feature is 1 there. In a column of categories they are a category of their "
            "own, except with error, most_frequent and drop"),
    PL_TEXT(csv_options_t, missing_values, "\"" CSV_MISSING_VALUES "\"", NULL,
            "texts of cells that are as good as empty"),
    PL_WORD(csv_options_t, categories, "\"one_hot\"", "one_hot|index",
            "columns of texts: a feature for each value, or a whole number in the field "
            "\"c\", for a module with embeddings such as mlp"),
    PL_INT(csv_options_t, rare, "2", "1..",
           "values of a category that occur fewer times in the training data are one "
           "value, as are unknown ones later; words in fewer rows are left out"),
    PL_WORD(csv_options_t, texts, "\"ignore\"", "ignore|words",
            "columns of free texts: not used, or by their words and pairs of words, each "
            "a feature that is larger the more often it occurs there and the fewer other "
            "rows have it (tf-idf)"),
    PL_INT(csv_options_t, terms, "1000", "1..100000",
           "most words and pairs of words that are features, for each column of texts"),
    PL_INT(csv_options_t, window, "0", "0..100000",
           "of a time series: rows of a sample, to predict the rows behind them; 0: each "
           "row is a sample"),
    PL_INT(csv_options_t, horizon, "1", "1..100000",
           "rows behind a window whose targets are predicted, all at once"),
    PL_INT(csv_options_t, stride, "1", "1..", "rows from one window to the next"),
    PL_TEXT(csv_options_t, covariates, "\"\"", NULL,
            "columns that are known in advance, by name or number, such as holidays: a "
            "window has them up to the last row that is predicted"),
    PL_TEXT(csv_options_t, time, "\"\"", NULL,
            "column of numbers or dates that must rise from row to row of a time series, "
            "or fall; or several, such as \"year,month\". It is no feature"),
    PL_BOOL(
        csv_options_t, overlap, "false",
        "windows of the validation part may begin in the training part, but what they "
        "predict may not"),
    PL_BOOL(csv_options_t, standardize, "true",
            "scale each number to mean 0 and deviation 1"),
    {"stream", PL_OPTION_BOOL, offsetof(csv_options_t, streams), "false", NULL,
     "leave the rows in the file, which is larger than memory, and read them from there; "
     "for training set data.shuffle_window too"},
    PL_OPTIONS_END,
};

/* Leaves out rows without a target, and with empty cells if that is requested.  Each row
 * to predict stays: its answer has its place. */
static void csv_drop_rows(csv_dataset_t *csv)
{
    pl_table_t *table = &csv->table;
    const int columns = table->columns;
    int64_t kept = 0;
    for (int64_t row = 0; row < table->rows; row++) {
        bool lacks = csv->options.missing != MISSING_ERROR && csv->columns.target >= 0
                     && !*pl_table_cell(table, row, csv->columns.target);
        for (int k = 0;
             csv->options.missing == MISSING_DROP && k < csv->columns.sources && !lacks;
             k++)
            lacks = csv->learnt.recipe[k].kind != KIND_TEXT
                    && !*pl_table_cell(table, row, csv->columns.from[k]);
        if (lacks && csv->source.stage != PL_PREDICT)
            continue;
        if (kept < row) {
            memcpy(table->cell + kept * columns, table->cell + row * columns,
                   (size_t)columns * sizeof *table->cell);
            table->line[kept] = table->line[row];
            table->start[kept] = table->start[row];
        }
        kept++;
    }
    if (kept < table->rows)
        csv_log(csv, PL_LOG_INFO, "%lld of %lld rows are left out: cells are missing",
                (long long)(table->rows - kept), (long long)table->rows);
    csv->rows = table->rows = kept;
}

/* The split that the run will make of these rows.  If it is impossible, the run reports
 * that, except where groups are the reason: their column is known here. */
static int csv_find_split(const csv_dataset_t *csv, const pl_data_request_t *request,
                          pl_data_split_t *split, pl_error_t *err)
{
    pl_error_t why = {0};
    pl_data_split_spec_t spec = {.seed = request->seed,
                                 .total = csv->rows,
                                 .share = request->val_split,
                                 .folds = request->folds,
                                 .fold = request->fold,
                                 .group = csv->samples.group};
    int64_t *target = NULL;
    if (!(request->val_split > 0))
        return PL_OK;
    if (request->stratify && csv->learnt.kind == TARGET_CLASS) {
        spec.target = target = pl_alloc_array((size_t)csv->rows, sizeof *target);
        if (!target)
            return pl_no_memory(err);
        for (int64_t row = 0; row < csv->rows; row++)
            target[row] = (int64_t)csv->samples.y[row];
    }
    const int code = pl_data_split_make(split, &spec, &why);
    pl_free(target);
    if (code == PL_EINVAL && csv->samples.group) {
        char text[80];
        return pl_fail(err, code, "%s: groups by field %s: %s", csv->options.path,
                       csv_column_text(&csv->table, csv->columns.group, text), why.text);
    }
    return code == PL_ENOMEM ? pl_no_memory(err) : PL_OK;
}

/* Fills the further fields, which are numbers as they are. */
static int csv_read_others(csv_dataset_t *csv, pl_error_t *err)
{
    const size_t columns = (size_t)csv->columns.other_columns;
    csv->samples.other = pl_alloc_array((size_t)csv->rows * columns + 1,
                                        sizeof *csv->samples.other);
    if (!csv->samples.other)
        return pl_no_memory(err);
    for (int column = 0; column < csv->table.columns; column++)
        for (int64_t row = 0; csv->columns.use[column] >= 0 && row < csv->rows; row++) {
            double value;
            if (!csv_answer(csv, row, column, &value) || !isfinite((float)value))
                return csv_wrong_cell(csv, row, column, "a finite number", err);
            csv->samples.other[row * csv->columns.other_columns
                               + csv->columns.use[column]] = (float)value;
        }
    for (int64_t row = 0;
         csv->learnt.kind == TARGET_VALUE && !csv->options.window && row < csv->rows;
         row++)
        if (!isfinite((float)csv->samples.y[row]))
            return csv_wrong_cell(csv, row, csv->columns.target, "a float32", err);
    return PL_OK;
}

/* The scale of values to predict: measured in the rows to train on, or read. */
static int csv_find_scale(csv_dataset_t *csv, const pl_data_split_t *split,
                          const json_t *data_info, pl_error_t *err)
{
    const bool learns = !data_info && csv->options.standardize
                        && csv->learnt.kind == TARGET_VALUE;
    if (!learns)
        pl_scales_read(data_info, csv->learnt.scales, csv->columns.targets);
    if (learns && csv->columns.targets > 1)
        return csv_windows_scale(csv, split, err);
    if (learns)
        csv->learnt.scales[0] = csv_measure(csv, split, csv->samples.y, 0);
    return PL_OK;
}

/* ---- The data set ---- */

/* {"classes": 3, "shape": [4], "columns": {…}, …} */
char *csv_data_info(const csv_dataset_t *csv, pl_error_t *err)
{
    const pl_shape_t shape = csv->options.window
                                 ? PL_SHAPE(csv->options.window, csv->learnt.features)
                                 : PL_SHAPE(csv->learnt.features);
    char *made = pl_dataset_data_info(csv->learnt.classes, &shape), *text;
    json_t *recipes = NULL;
    if (csv_recipes(csv, &recipes, err) != PL_OK) {
        pl_text_free(made);
        return NULL;
    }
    const struct {
        const char *key;
        json_t *value;
    } more[] = {{COLUMNS, csv->columns.names},
                {RECIPES, recipes},
                {CLASS_NAMES, csv->learnt.class_names}};
    for (size_t k = 0; k < sizeof more / sizeof *more; k++) {
        if (!more[k].value)
            continue;
        text = pl_json_write(more[k].value, PL_JSON_COMPACT);
        made = pl_data_info_add(&made, more[k].key, &text);
    }
    json_decref(recipes);
    if (csv->options.window && csv->source.stage == PL_PREDICT) {
        text = csv_time_names(csv);
        made = pl_data_info_add(&made,
                                csv->columns.time.columns ? PL_DATA_TIMES : PL_DATA_ROWS,
                                &text);
    }
    if (csv->learnt.class_share > 0) {
        text = pl_text("%.4f", csv->learnt.class_share);
        made = pl_data_info_add(&made, CLASS_SHARE, &text);
    }
    if (csv->learnt.repeated_mae > 0) {
        text = pl_text("%.9g", csv->learnt.repeated_mae);
        made = pl_data_info_add(&made, REPEATED_MAE, &text);
    }
    if (csv->learnt.indexes) {
        text = pl_text("%lld", (long long)csv->learnt.index_values);
        made = pl_data_info_add(&made, CATEGORY_VALUES, &text);
    }
    if (csv->learnt.scales[0].factor > 0)
        made = pl_scales_add(&made, csv->learnt.scales,
                             csv->columns.targets > 1 ? csv->columns.targets : 1);
    if (csv->learnt.labels) {
        text = pl_text("%d", csv->learnt.labels);
        made = pl_data_info_add(&made, LABELS, &text);
    }
    if (csv->options.standardize)
        made = pl_moments_add(&made, csv->learnt.moments,
                              csv->learnt.features
                                  * (int)(csv->options.window ? csv->options.window : 1));
    if (!made)
        pl_no_memory(err);
    return made;
}

/* The fields of a sample, in the order in which csv_read() fills them. */
static void csv_describe(const csv_dataset_t *csv, pl_data_info_t *found)
{
    found->samples = csv->options.window ? csv->samples.windows : csv->rows;
    found->group = csv->samples.group;
    found->ordered = csv->options.window > 0;
    pl_dataset_field(found, "x", PL_F32,
                     csv->options.window
                         ? PL_SHAPE(csv->options.window, csv->learnt.features)
                         : PL_SHAPE(csv->learnt.features));
    if (csv->options.window && csv->learnt.kind == TARGET_VALUE
        && csv_windows_outputs(csv) > 1)
        pl_dataset_field(found, "y", PL_F32, PL_SHAPE(csv_windows_outputs(csv)));
    else if (csv->learnt.kind != TARGET_NONE)
        pl_dataset_field(found, "y", csv->learnt.kind == TARGET_CLASS ? PL_I64 : PL_F32,
                         (pl_shape_t){0});
    if (csv->learnt.indexes)
        pl_dataset_field(found, "c", PL_I64, PL_SHAPE(csv->learnt.indexes));
    for (int k = 0; k < csv->columns.others.count; k++)
        pl_dataset_field(found, csv->columns.others.name[k], PL_F32,
                         csv->columns.width[k] > 1 ? PL_SHAPE(csv->columns.width[k])
                                                   : (pl_shape_t){0});
}

int csv_begin(csv_dataset_t *csv, const pl_data_request_t *request, pl_error_t *err)
{
    static const char *const words[] = {"auto", "class", "value", "none"};
    const csv_options_t *options = &csv->options;
    csv->source.rank = request->rank;
    csv->source.stage = request->stage;
    csv->columns.label = options->label;
    csv->columns.others = options->fields;
    csv->columns.wanted = TARGET_AUTO;
    for (int k = 0; k <= TARGET_NONE; k++)
        if (!*options->target || !strcmp(options->target, words[k])) {
            csv->columns.wanted = (csv_target_t)k;
            return PL_OK;
        }
    pl_texts_t *fields = &csv->columns.others;
    for (int k = 0; k < fields->count; k++)
        if (!strcmp(fields->name[k], "y"))
            return pl_fail(err, PL_EINVAL,
                           "%s: \"target\" names the column \"%.40s\" to predict, and "
                           "\"fields\" \"%.40s\" as \"y\": remove one of them",
                           options->path, options->target, fields->text[k]);
    if (options->label >= 0 || fields->count == sizeof fields->name / sizeof(char *))
        return pl_fail(err, PL_EINVAL,
                       options->label >= 0
                           ? "%s: \"target\" names the column \"%.40s\" to predict, and "
                             "\"label\" is given too: remove one of them"
                           : "%s: \"target\" names a column, \"%.40s\", which is one "
                             "field too many: remove one of \"fields\"",
                       options->path, options->target);
    fields->name[fields->count] = "y";
    fields->text[fields->count++] = options->target;
    return PL_OK;
}

int csv_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
             pl_error_t *err)
{
    csv_dataset_t *csv = self;
    const char *text = request->data_info;
    if (csv->options.streams)
        return csv_stream_open(csv, request, info, err);
    json_t *data_info = text ? pl_json_read(text, strlen(text), "data_info", err) : NULL;
    if (text && !data_info)
        return err ? err->code : PL_EFORMAT;
    pl_data_split_t split = {0};
    pl_data_info_t found = {.same_samples = true};
    const bool may_be_empty = data_info && pl_may_be_empty(request->stage);
    int code = csv_begin(csv, request, err);
    if (!code)
        code = csv_load(csv, err);
    if (!code && csv->table.rows == 0 && !may_be_empty)
        code = pl_fail(err, PL_EFORMAT, "%s: there is nothing below the header",
                       csv->options.path);
    if (!code && csv->options.window)
        code = csv_windows_begin(csv, err);
    if (!code)
        code = csv_find_uses(csv, data_info, request->stage, err);
    if (!code)
        code = csv_find_recipes(csv, data_info, err);
    csv->rows = csv->table.rows;
    if (!code && !csv->options.window)
        csv_drop_rows(csv);
    if (!code && csv->rows == 0 && !may_be_empty)
        code = pl_fail(err, PL_EFORMAT,
                       "%s: each row has missing cells: set \"missing\" "
                       "to another treatment, such as \"median\"",
                       csv->options.path);
    if (!code)
        code = csv_find_target(csv, data_info, err);
    if (!code && *csv->options.groups && request->val_split > 0)
        code = csv_number_groups(csv, err);
    if (!code && csv->options.window)
        code = csv_windows_split(csv, request, &split, err);
    else if (!code && !data_info)
        code = csv_find_split(csv, request, &split, err);
    if (!code)
        code = csv_find_scale(csv, &split, data_info, err);
    if (!code)
        code = csv_prepare(csv, &split, data_info, err);
    if (!code && csv->options.window)
        code = csv_windows_shift(csv, err);
    if (!code && data_info)
        csv->columns.names = json_incref(json_object_get(data_info, COLUMNS));
    else if (!code)
        code = csv_names(csv, &csv->columns.names, err);
    if (!code)
        code = csv_read_others(csv, err);
    if (!code && csv->columns.are_several)
        code = csv_several_decide(csv, &split, data_info, err);
    if (!code)
        code = csv_count_classes(csv, request, data_info, err);
    if (!code && !(found.data_info = csv_data_info(csv, err)))
        code = PL_ENOMEM;
    pl_data_split_release(&split);
    pl_table_release(&csv->table);
    json_decref(csv->columns.places);
    csv->columns.places = NULL;
    json_decref(data_info);
    if (code)
        return code;
    csv_describe(csv, &found);
    *info = found;
    return PL_OK;
}

/* Copies [count, width] elements of the requested samples. */
static void copy_rows(const pl_read_request_t *request, void *to, const void *from,
                      int stride, int width, size_t size)
{
    for (int i = 0; i < request->count; i++)
        memcpy((char *)to + (size_t)i * (size_t)width * size,
               (const char *)from + (size_t)(request->index[i] * stride) * size,
               (size_t)width * size);
}

int csv_read(const void *self, const pl_read_request_t *request, void *const field[],
             pl_error_t *err)
{
    const csv_dataset_t *csv = self;
    if (csv->stream)
        return csv_stream_read(csv, request, field, err);
    if (csv->options.window) {
        csv_windows_read(csv, request, field);
        return PL_OK;
    }
    copy_rows(request, *field++, csv->samples.x, csv->learnt.features,
              csv->learnt.features, sizeof *csv->samples.x);
    for (int i = 0; i < request->count && csv->learnt.kind == TARGET_CLASS; i++)
        ((int64_t *)*field)[i] = (int64_t)csv->samples.y[request->index[i]];
    for (int i = 0; i < request->count && csv->learnt.kind == TARGET_VALUE; i++)
        ((float *)*field)[i] = (float)csv->samples.y[request->index[i]];
    field += csv->learnt.kind != TARGET_NONE;
    if (csv->learnt.indexes)
        copy_rows(request, *field++, csv->samples.index, csv->learnt.indexes,
                  csv->learnt.indexes, sizeof *csv->samples.index);
    for (int k = 0, at = 0; k < csv->columns.others.count; at += csv->columns.width[k++])
        copy_rows(request, *field++, csv->samples.other + at, csv->columns.other_columns,
                  csv->columns.width[k], sizeof *csv->samples.other);
    return PL_OK;
}

void csv_close(void *self)
{
    csv_dataset_t *csv = self;
    csv_stream_close(csv->stream);
    csv->stream = NULL;
    for (int k = 0; csv->learnt.recipe && k < csv->columns.sources; k++) {
        json_decref(csv->learnt.recipe[k].values);
        json_decref(csv->learnt.recipe[k].weights);
    }
    pl_free(csv->learnt.recipe);
    pl_free(csv->learnt.moments);
    pl_free(csv->columns.use);
    pl_free(csv->columns.from);
    json_decref(csv->columns.names);
    json_decref(csv->learnt.class_names);
    pl_free(csv->samples.other);
    pl_free(csv->samples.group);
    pl_free(csv->samples.index);
    pl_free(csv->samples.x);
    pl_free(csv->samples.y);
    csv->learnt.recipe = NULL;
    csv->learnt.moments = NULL;
    csv->columns.use = csv->columns.from = NULL;
    csv->columns.names = csv->learnt.class_names = NULL;
    csv->samples.other = NULL;
    csv->samples.group = NULL;
    csv->samples.index = NULL;
    csv->samples.x = NULL;
    csv->samples.y = NULL;
}

const pl_dataset_ops_t pl_csv_dataset = {
    .name = "csv",
    .help = "a table with one column as the target: numbers, categories and dates",
    .size = sizeof(csv_dataset_t),
    .options = csv_options,
    .open = csv_open,
    .read = csv_read,
    .close = csv_close,
};
