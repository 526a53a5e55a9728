/* sweep.c - several runs from one request: --set KEY=a,b
 *
 * A comma separates values unless it stands in brackets, braces, parentheses or quotes,
 * so a list or a name with a comma is one value, and so are a query and a list of the
 * names of columns. Several such keys
 * give every combination; the last key changes fastest. All runs are checked before the
 * first one starts: a sweep should not end after hours at a slip of the pen. */
#include "cli/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { RUNS_MAX = 1000, COLUMNS_MAX = 6, CELL = 40 };

/* ---- values ---- */

/* Length of the value up to the comma that ends it. */
static size_t value_length(const char *text)
{
    int depth = 0;
    char quote = '\0';
    size_t at = 0;
    if (!strncasecmp(text, "select ", strlen("select ")))
        return strlen(text);                                /* a query of data.query */
    for (; text[at] && (depth > 0 || quote || text[at] != ','); at++) {
        const char c = text[at];
        if (quote == '"' && c == '\\' && text[at + 1])
            at++;
        else if (c == quote)
            quote = '\0';
        else if (!quote && (c == '"' || (c == '\'' && strchr(text + at + 1, c))))
            quote = c;
        else if (!quote)
            depth += (c == '[' || c == '{' || c == '(')
                     - (c == ']' || c == '}' || c == ')');
    }
    return at;
}

static size_t key_length(const char *word)
{
    return strcspn(word, "=");
}

static int axis_read(cli_axis_t *axis, const char *word, pl_error_t *err)
{
    const char *value = word + key_length(word) + 1;
    for (bool more = true; more;) {
        const size_t length = value_length(value);
        if (!length)
            return pl_fail(
                err, PL_EINVAL,
                "--set %s: a value between commas is empty; put a value that contains "
                "commas in quotes: '%.*s=\"a,b\"'",
                word, (int)key_length(word), word);
        char **grown = realloc(axis->value, (size_t)(axis->count + 1) * sizeof *grown);
        if (!grown)
            return pl_fail(err, PL_ENOMEM, "out of memory");
        axis->value = grown;
        grown[axis->count] = strndup(value, length);
        if (!grown[axis->count])
            return pl_fail(err, PL_ENOMEM, "out of memory");
        axis->count++;
        more = value[length] == ',';
        value += length + more;
    }
    return PL_OK;
}

/* Whether the option of a key is a list of names with commas between them. */
static bool takes_names(const char *word)
{
    static const char *const names[] = {"covariates", "features", "ignore",
                                        "missing_values"};
    const int length = (int)key_length(word);
    int begin = length;
    bool found = false;
    while (begin > 0 && word[begin - 1] != '.')
        begin--;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        found |= (int)strlen(names[k]) == length - begin
                 && !strncmp(word + begin, names[k], strlen(names[k]));
    found |= begin > 7 && !strncmp(word + begin - 8, ".fields.", 8);
    return found && !strncmp(word, "data.", 5);
}

/* Finds the keys with several values. A second --set of such a key is refused: it would
 * replace all its values by one. */
static int find_axes(cli_sweep_t *sweep, pl_error_t *err)
{
    const cli_texts_t *set = &sweep->run.set;
    int code = PL_OK;
    for (int k = 0; k < set->count && code == PL_OK; k++) {
        const char *word = set->text[k];
        const size_t length = key_length(word);
        if (!word[length] || takes_names(word)
            || word[length + 1 + value_length(word + length + 1)] != ',')
            continue;
        if (sweep->axes == CLI_SWEPT)
            return pl_fail(err, PL_EINVAL,
                           "--set: at most %d keys can have several values", CLI_SWEPT);
        cli_axis_t *axis = &sweep->axis[sweep->axes++];
        axis->word = k;
        code = axis_read(axis, word, err);
        for (int i = 0; i < set->count && code == PL_OK; i++)
            if (i != k && key_length(set->text[i]) == length
                && !strncmp(set->text[i], word, length))
                code = pl_fail(err, PL_EINVAL,
                               "--set: %.*s has several values and is set twice: give "
                               "all values in one --set",
                               (int)length, word);
        sweep->runs *= axis->count;
        if (code == PL_OK && sweep->runs > RUNS_MAX)
            code = pl_fail(err, PL_EINVAL,
                           "--set: %d or more runs; at most %d are possible", sweep->runs,
                           RUNS_MAX);
    }
    return code;
}

/* ---- runs ---- */

/* The value of an axis in a run. */
static const char *value_of(const cli_sweep_t *sweep, int axis, int run)
{
    for (int k = sweep->axes - 1; k > axis; k--)
        run /= sweep->axis[k].count;
    return sweep->axis[axis].value[run % sweep->axis[axis].count];
}

/* Each run needs a directory of its own, so its number is added to a name of a run. */
static int name_run(const cli_sweep_t *sweep, pl_options_t *options, int run,
                    pl_error_t *err)
{
    char *name = pl_options_get(options, "trainer.run_name");
    bool swept = false;
    for (int k = 0; k < sweep->axes; k++)
        swept = swept
                || !strncmp(sweep->run.set.text[sweep->axis[k].word],
                            "trainer.run_name=", strlen("trainer.run_name="));
    json_t *text = json_sprintf("%s-%d", name ? name : "", run + 1);
    char *value = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    int code = PL_OK;
    if (name && *name && !swept && sweep->runs > 1)
        code = value ? pl_options_set(options, "trainer.run_name", value, err)
                     : pl_fail(err, PL_ENOMEM, "out of memory");
    free(value);
    json_decref(text);
    pl_text_free(name);
    return code;
}

static pl_options_t *options_of(const cli_sweep_t *sweep, int run, pl_error_t *err)
{
    cli_run_t one = sweep->run;
    char *word[CLI_SWEPT] = {NULL};
    const char **text = calloc((size_t)one.set.count + 1, sizeof *text);
    pl_options_t *options = NULL;
    bool whole = text;
    for (int k = 0; whole && k < one.set.count; k++)
        text[k] = one.set.text[k];
    for (int k = 0; whole && k < sweep->axes; k++) {
        const char *set = sweep->run.set.text[sweep->axis[k].word];
        word[k] = pl_text("%.*s=%s", (int)key_length(set), set, value_of(sweep, k, run));
        text[sweep->axis[k].word] = word[k];
        whole = word[k];
    }
    one.set.text = text;
    if (whole)
        options = cli_run_load(&one, err);
    else
        pl_fail(err, PL_ENOMEM, "out of memory");
    if (options && name_run(sweep, options, run, err) != PL_OK) {
        pl_options_free(options);
        options = NULL;
    }
    for (int k = 0; k < sweep->axes; k++)
        pl_text_free(word[k]);
    free(text);
    return options;
}

/* A run file with folds stands for a run with each of them: the key that changes
 * fastest. */
static int find_folds(cli_sweep_t *sweep, pl_error_t *err)
{
    pl_options_t *options = options_of(sweep, 0, err);
    if (!options)
        return err->code;
    char *folds = pl_options_get(options, "data.folds"),
         *fold = pl_options_get(options, "data.fold");
    const int count = folds && fold && atoi(fold) < 0 ? atoi(folds) : 0;
    cli_texts_t *set = &sweep->run.set;
    pl_text_free(folds);
    pl_text_free(fold);
    pl_options_free(options);
    for (int k = 0; count > 1 && k < sweep->axes; k++)
        if (!strncmp(set->text[sweep->axis[k].word], "data.folds=", 11))
            return pl_fail(err, PL_EINVAL,
                           "--set data.folds: give one number of folds; each stands for "
                           "that many runs");
    if (count < 2)
        return PL_OK;
    if (sweep->axes == CLI_SWEPT || sweep->runs * count > RUNS_MAX)
        return pl_fail(err, PL_EINVAL,
                       "data.folds: %d or more runs; at most %d of %d keys are possible",
                       sweep->runs * count, RUNS_MAX, CLI_SWEPT);
    sweep->words = calloc((size_t)set->count + 1, sizeof *sweep->words);
    if (!sweep->words)
        return pl_fail(err, PL_ENOMEM, "out of memory");
    for (int k = 0; k < set->count; k++)
        sweep->words[k] = set->text[k];
    cli_axis_t *axis = &sweep->axis[sweep->axes];
    axis->word = set->count;
    axis->value = calloc((size_t)count, sizeof *axis->value);
    sweep->axes += axis->value != NULL;
    for (int k = 0; axis->value && k < count; k++) {
        char number[16];
        snprintf(number, sizeof number, "%d", k);
        axis->value[k] = strdup(number);
        axis->count += axis->value[k] != NULL;
    }
    if (axis->count < count)
        return pl_fail(err, PL_ENOMEM, "out of memory");
    sweep->words[set->count] = "data.fold=0";
    *set = (cli_texts_t){set->count + 1, sweep->words};
    sweep->folds = count;
    sweep->runs *= count;
    return PL_OK;
}

int cli_sweep_open(cli_sweep_t *sweep, const cli_run_t *run, pl_error_t *err)
{
    *sweep = (cli_sweep_t){.run = *run, .runs = 1, .rows = json_array()};
    int code = sweep->rows ? find_axes(sweep, err)
                           : pl_fail(err, PL_ENOMEM, "out of memory");
    if (code == PL_OK)
        code = find_folds(sweep, err);
    for (int k = 0; code == PL_OK && sweep->runs > 1 && k < sweep->runs; k++) {
        pl_options_t *options = options_of(sweep, k, err);
        code = options ? PL_OK : err->code;
        pl_options_free(options);
    }
    return code;
}

void cli_sweep_close(cli_sweep_t *sweep)
{
    for (int k = 0; k < sweep->axes; k++) {
        for (int i = 0; i < sweep->axis[k].count; i++)
            free(sweep->axis[k].value[i]);
        free(sweep->axis[k].value);
    }
    free(sweep->words);
    json_decref(sweep->rows);
}

pl_options_t *cli_sweep_next(cli_sweep_t *sweep, pl_error_t *err)
{
    return sweep->next < sweep->runs ? options_of(sweep, sweep->next++, err) : NULL;
}

void cli_sweep_explain(const cli_sweep_t *sweep)
{
    const cli_axis_t *axis = sweep->axis;
    const int own = sweep->axes - (sweep->folds > 0);
    if (!own)
        return;
    const char *word = sweep->run.set.text[axis->word];
    const int length = (int)key_length(word);
    cli_note("%d runs: a comma in --set %.*s separates values; one value with a comma is "
             "quoted: --set '%.*s=\"%s,%s\"'",
             sweep->runs, length, word, length, word, axis->value[0], axis->value[1]);
}

/* ---- the values of a run ---- */

json_t *cli_sweep_set(const cli_sweep_t *sweep)
{
    json_t *set = json_object();
    for (int k = 0; k < sweep->axes; k++) {
        const char *word = sweep->run.set.text[sweep->axis[k].word];
        const char *text = value_of(sweep, k, sweep->next - 1);
        json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
        char *key = strndup(word, key_length(word));
        if (key)
            json_object_set_new(set, key, value ? value : json_string(text));
        else
            json_decref(value);
        free(key);
    }
    return set;
}

static void value_words(const json_t *value, char *text, size_t capacity)
{
    char *json = json_is_string(value)
                     ? NULL
                     : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    snprintf(text, capacity, "%s", json ? json : json_string_value(value));
    free(json);
}

void cli_sweep_words(const json_t *set, char *text, size_t capacity)
{
    const char *key;
    json_t *value;
    size_t at = 0;
    text[0] = '\0';
    json_object_foreach((json_t *)set, key, value) {
        char words[CELL];
        value_words(value, words, sizeof words);
        if (at < capacity)
            at += (size_t)snprintf(text + at, capacity - at, "%s%s=%s", at ? " " : "",
                                   key, words);
    }
}

/* ---- the end ---- */

void cli_sweep_keep(cli_sweep_t *sweep, json_t *result)
{
    json_t *row = json_pack("{s:i, s:o}", "run", sweep->next, "set",
                            cli_sweep_set(sweep));
    json_object_del(result, "event");
    json_object_update(row, result);
    json_array_append_new(sweep->rows, row);
    json_decref(result);
}

/* Adds rows for the runs that a signal kept from beginning. */
static void keep_others(cli_sweep_t *sweep)
{
    while (sweep->next < sweep->runs) {
        sweep->next++;
        cli_sweep_keep(sweep, json_pack("{s:s}", "status", "not run"));
    }
}

/* Of the folds that were trained, from run `first` on: the mean of each metric over those
 * that have it, or its standard deviation from `mean`  [NULL: the mean]. */
static json_t *folds_measure(const cli_sweep_t *sweep, int first, const json_t *mean,
                             int *count_p)
{
    json_t *sums = json_object(), *counts = json_object(), *value;
    const char *name;
    *count_p = 0;
    for (int k = first; k < first + sweep->folds; k++) {
        const json_t *row = json_array_get(sweep->rows, (size_t)k);
        const char *status = json_string_value(json_object_get(row, "status"));
        json_t *metrics = status && !strcmp(status, "failed")
                              ? NULL
                              : json_object_get(row, "metrics");
        *count_p += json_is_object(metrics);
        json_object_foreach(metrics, name, value) {
            const double x = json_number_value(value)
                             - json_number_value(json_object_get(mean, name)),
                         sum = json_number_value(json_object_get(sums, name));
            const json_int_t had = json_integer_value(json_object_get(counts, name));
            json_object_set_new(sums, name, json_real(sum + (mean ? x * x : x)));
            json_object_set_new(counts, name, json_integer(had + 1));
        }
    }
    json_object_foreach(sums, name, value) {
        const double sum = json_real_value(value),
                     count = json_number_value(json_object_get(counts, name));
        json_real_set(value, !mean       ? sum / count
                             : count > 1 ? sqrt(sum / (count - 1))
                                         : 0);
    }
    json_decref(counts);
    for (int k = first; k < first + sweep->folds; k++)
        json_object_foreach(json_object_get(json_array_get(sweep->rows, (size_t)k),
                                            "metrics"),
                            name, value)
            if (!json_is_number(value))                     /* it is not finite */
                json_object_del(sums, name);
    return sums;
}

/* For each combination of the other keys: [{"set": {…}, "folds": 5, "metrics":
 * {"val_loss": 0.4, …}, "deviations": {"val_loss": 0.02, …}}, …]. */
static json_t *folds_json(const cli_sweep_t *sweep)
{
    json_t *all = json_array();
    for (int first = 0; sweep->folds && first < sweep->runs; first += sweep->folds) {
        const json_t *row = json_array_get(sweep->rows, (size_t)first);
        json_t *set = json_copy(json_object_get(row, "set"));
        int count;
        json_t *mean = folds_measure(sweep, first, NULL, &count),
               *deviation = folds_measure(sweep, first, mean, &count);
        json_object_del(set, "data.fold");
        json_array_append_new(all,
                              json_pack("{s:o, s:i, s:o, s:o}", "set", set, "folds",
                                        count, "metrics", mean, "deviations", deviation));
    }
    return all;
}

json_t *cli_sweep_json(cli_sweep_t *sweep)
{
    keep_others(sweep);
    json_t *json = json_pack("{s:s, s:O}", "event", "sweep", "runs", sweep->rows);
    if (sweep->folds)
        json_object_set_new(json, "folds", folds_json(sweep));
    return json;
}

/* Names of the metrics that begin with `beginning`; -> how many. */
static int columns_of(const json_t *rows, const char *beginning, const char **names)
{
    size_t k;
    json_t *row, *value;
    const char *name;
    int count = 0;
    json_array_foreach((json_t *)rows, k, row) {
        json_object_foreach(json_object_get(row, "metrics"), name, value) {
            bool known = strncmp(name, beginning, strlen(beginning)) != 0;
            for (int i = 0; i < count; i++)
                known = known || !strcmp(names[i], name);
            if (!known && count < COLUMNS_MAX)
                names[count++] = name;
        }
    }
    return count;
}

/* A cell of the table, `column` from 0; row NULL: its heading. */
static const char *cell_text(const json_t *row, int column, const char *const *metrics,
                             const json_t *set, char text[CELL])
{
    static const char *const ends[] = {"status", "steps", "seconds", "run_dir"};
    void *key = json_object_iter((json_t *)set);
    int keys = (int)json_object_size(set), count = 0;
    for (int k = 0; k < column && key; k++)
        key = json_object_iter_next((json_t *)set, key);
    while (metrics[count])
        count++;
    const char *name = column < keys               ? json_object_iter_key(key)
                       : column < keys + count     ? metrics[column - keys]
                       : column < keys + count + 4 ? ends[column - keys - count]
                                                   : NULL;
    if (!name)
        return NULL;
    const bool is_metric = column >= keys && column < keys + count;
    const json_t *value =
        json_object_get(is_metric ? json_object_get(row, "metrics") : row,
                        !is_metric && !strcmp(name, "steps") ? "global_step" : name);
    char number[24];
    if (!row)
        snprintf(text, CELL, "%s", name);
    else if (column < keys)
        value_words(json_object_get(json_object_get(row, "set"), name), text, CELL);
    else if (is_metric && json_is_number(value))
        snprintf(text, CELL, "%s", cli_number(json_number_value(value), 4, number));
    else if (is_metric)
        snprintf(text, CELL, "%s",
                 !value                ? "-"
                 : json_is_null(value) ? "not finite"
                                       : "no number");
    else if (json_is_real(value))
        snprintf(text, CELL, "%.1f", json_real_value(value));
    else if (value)
        value_words(value, text, CELL);
    else
        snprintf(text, CELL, "-");
    return text;
}

static int column_width(const json_t *rows, int column, const char *const *metrics,
                        const json_t *set)
{
    char text[CELL];
    size_t k;
    json_t *row;
    if (!cell_text(NULL, column, metrics, set, text))
        return 0;
    int width = (int)strlen(text);
    json_array_foreach((json_t *)rows, k, row) {
        int length = (int)strlen(cell_text(row, column, metrics, set, text));
        width = length > width ? length : width;
    }
    return width;
}

static void show_row(const json_t *rows, const json_t *row, const char *const *metrics,
                     const json_t *set)
{
    char text[CELL];
    int space = 0;                                          /* after the cell before */
    for (int column = 0; cell_text(row, column, metrics, set, text); column++) {
        cli_print("%*s%s", space, "", text);
        space = column_width(rows, column, metrics, set) + 2 - (int)strlen(text);
    }
    cli_print("\n");
}

static void show_best(const json_t *rows, const char *metric)
{
    const json_t *best = NULL;
    double min = 0;
    size_t k;
    json_t *row;
    char words[256];
    json_array_foreach((json_t *)rows, k, row) {
        const json_t *value = json_object_get(json_object_get(row, "metrics"), metric);
        if (!json_is_number(value) || (best && json_number_value(value) >= min))
            continue;
        best = row;
        min = json_number_value(value);
    }
    if (!best)
        return;
    cli_sweep_words(json_object_get(best, "set"), words, sizeof words);
    cli_print("lowest %s: %s\n", metric, words);
}

/* Means over the folds, with their standard deviations. */
static void show_folds(const json_t *folds, int wanted, const char *const *metrics)
{
    size_t k;
    json_t *row;
    char words[256], mean[24], deviation[24];
    json_array_foreach((json_t *)folds, k, row) {
        cli_sweep_words(json_object_get(row, "set"), words, sizeof words);
        const int count = (int)json_integer_value(json_object_get(row, "folds"));
        if (count == 0)
            continue;
        cli_print("\nmean of %d ", count);
        if (count < wanted)
            cli_print("of %d ", wanted);
        cli_print("folds%s%s\n", *words ? ", " : "", words);
        for (int i = 0; metrics[i]; i++) {
            const json_t *value = json_object_get(json_object_get(row, "metrics"),
                                                  metrics[i]),
                         *spread = json_object_get(json_object_get(row, "deviations"),
                                                   metrics[i]);
            if (value)
                cli_print("%-12s %s ± %s\n", metrics[i],
                          cli_number(json_number_value(value), 4, mean),
                          cli_number(json_number_value(spread), 4, deviation));
        }
    }
}

void cli_sweep_show(cli_sweep_t *sweep)
{
    const char *metrics[COLUMNS_MAX + 1] = {NULL};
    keep_others(sweep);
    const json_t *rows = sweep->rows;
    const json_t *set = json_object_get(json_array_get(rows, 0), "set");
    bool validated = columns_of(rows, "val_", metrics) > 0;
    if (!validated)
        columns_of(rows, "train_", metrics);
    size_t k;
    json_t *row;
    show_row(rows, NULL, metrics, set);
    json_array_foreach((json_t *)rows, k, row)
        show_row(rows, row, metrics, set);
    json_t *folds = folds_json(sweep);
    if (sweep->folds)
        show_folds(folds, sweep->folds, metrics);
    if (!sweep->folds || sweep->runs > sweep->folds)
        show_best(sweep->folds ? folds : rows, validated ? "val_loss" : "train_loss");
    json_decref(folds);
}
