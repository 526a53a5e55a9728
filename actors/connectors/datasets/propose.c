/* propose.c - a run for data without a description: data set, target, task, model
 *
 * Each decision has a reason in plain words, and each can be changed in the run file that
 * comes of it.  The sizes are those with which a network of two layers learns most tables
 * well in about 8000 steps. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "actors/connectors/datasets/propose_parts.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "formats/array.h"

#define STEPS 8000

/* A larger table stays on the disk, and some pieces of it show what it is like. */
enum { LARGE = 512 << 20, PIECE = 1 << 20, PIECES = 8 };

/* Of fewer samples none are kept for validation. */
#define SPLIT_MIN 10

void propose_reason(proposal_t *p, const char *key, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->reasons = pl_json_append(p->reasons,
                                json_pack("{s:s, s:s}", "key", key, "text", text));
}

void propose_set(proposal_t *p, const char *path, json_t *value)
{
    if (p->run && pl_json_set_path(p->run, path, value, NULL) == PL_OK)
        return;
    json_decref(p->run);
    p->run = NULL;
}

const char *propose_name(const proposal_t *p, int column, char text[static 24])
{
    const char *name = p->csv.table.name ? p->csv.table.name[column] : "";
    snprintf(text, 24, "%d", column);
    return *name && !strchr(name, ',') ? name : text;
}

/* ---- A table ---- */

/* The number of rows sets the size of batches and epochs. */
void propose_training(proposal_t *p, int64_t samples, double lr)
{
    const bool splits = samples >= SPLIT_MIN;
    const double share = !splits ? 0 : p->larger > 0 ? 0.02 : 0.2;
    const int64_t train = samples - (int64_t)((double)samples * share);
    const int batch = train < 32      ? (int)train
                      : train < 2000  ? 32
                      : train < 20000 ? 128
                                      : 512;
    const int64_t steps = (train + batch - 1) / batch;
    int64_t epochs = STEPS / (steps ? steps : 1);
    const int64_t least = p->larger > 0 ? 1 : 5;
    epochs = epochs > 100 ? 100 : epochs < least ? least : epochs;
    if (splits)
        propose_set(p, "data.val_split", json_real(share));
    propose_set(p, "data.batch_size", json_integer(batch));
    propose_set(p, "optimizer",
                json_pack("{s:s, s:f, s:f}", "name", "adamw", "lr", lr, "weight_decay",
                          0.01));
    propose_set(p, "scheduler", json_pack("{s:s}", "name", "cosine"));
    propose_set(p, "trainer.max_epochs", json_integer(epochs));
    if (splits)
        propose_reason(p, "data.val_split", "%s of the %lld rows is for validation.",
                       p->larger > 0 ? "A fiftieth" : "A fifth", (long long)samples);
    else
        propose_reason(p, "data.batch_size",
                       "%lld rows are too few to keep some for validation.",
                       (long long)samples);
    propose_reason(p, "trainer.max_epochs", "%lld step%s of %d rows %s an epoch.",
                   (long long)steps, pl_plural(steps), batch, steps == 1 ? "is" : "are");
    if (!splits)
        return;
    const int patience = epochs > 20 ? 20 : 5;
    propose_set(p, "callbacks",
                json_pack("[{s:s, s:s, s:i}, {s:s, s:s, s:b, s:b}]", "name",
                          "early_stopping", "monitor", "val_loss", "patience", patience,
                          "name", "model_checkpoint", "monitor", "val_loss",
                          "restore_best", true, "verbose", false));
    if (epochs > patience)
        propose_reason(p, "trainer.max_epochs",
                       "Training ends after %d epochs without a better val_loss.",
                       patience);
    propose_reason(p, "trainer.max_epochs",
                   "The weights and metrics of the run are those of the best epoch.");
}

static void propose_target(proposal_t *p, bool classes)
{
    const pl_table_t *table = &p->csv.table;
    const table_column_t *target = &p->column[p->target];
    char text[24];
    if (table->name)
        propose_set(p, "data.fields",
                    json_pack("{s:s}", "y", propose_name(p, p->target, text)));
    else
        propose_set(p, "data.label", json_integer(p->target));
    propose_set(p, "data.target", json_string(classes ? "class" : "value"));
    if (classes)
        propose_reason(p, "data.target", "It has %lld different %s, so they are classes.",
                       (long long)target->distinct,
                       target->kind == KIND_NUMBER ? "whole numbers" : "texts");
    else
        propose_reason(p, "data.target",
                       "It has many different numbers, so they are values.");
    if (classes && target->filled >= SPLIT_MIN && target->filled > target->distinct
        && !(p->larger > 0))
        propose_set(p, "data.stratify", json_true());
}

/* Rows of the whole table, of which so many were looked at. */
static int64_t rows_of(const proposal_t *p, int64_t looked_at)
{
    return p->larger > 0 ? (int64_t)((double)looked_at * p->larger) : looked_at;
}

/* How the file has rows, and whether names are above them. */
static void propose_format(proposal_t *p)
{
    const pl_table_t *table = &p->csv.table;
    const char delimiter[] = {table->format.delimiter, '\0'},
               *about = p->larger > 0 ? "about " : "";
    const int64_t rows = rows_of(p, table->rows);
    propose_set(p, "data.name", json_string("csv"));
    propose_set(p, "data.path", json_string(p->csv.options.path));
    if (*p->csv.options.from_table)
        propose_set(p, "data.table", json_string(p->csv.options.from_table));
    if (table->files)
        propose_reason(p, "data.name",
                       "JSON Lines in %lld files: %lld objects with %d fields.",
                       (long long)table->files, (long long)table->rows, table->columns);
    else if (ends_with(p->csv.options.path, ".jsonl")
             || ends_with(p->csv.options.path, ".ndjson"))
        propose_reason(p, "data.name", "JSON Lines: %lld objects with %d fields.",
                       (long long)table->rows, table->columns);
    else if (pl_is_sqlite(p->csv.options.path))
        propose_reason(p, "data.name", "A SQLite table of %lld rows and %d column%s.",
                       (long long)table->rows, table->columns, pl_plural(table->columns));
    else
        propose_reason(
            p, "data.name",
            "A table of %s%lld rows and %d column%s with %s between fields, %s header.",
            about, (long long)rows, table->columns, pl_plural(table->columns),
            *delimiter == '\t'  ? "tabs"
            : *delimiter == ' ' ? "blanks"
                                : delimiter,
            table->name ? "with a" : "without a");
    bool has_numbers = false;
    for (int k = 0; k < table->columns; k++)
        has_numbers |= p->column[k].kind == KIND_NUMBER;
    if (!table->name) {
        propose_set(p, "data.header", json_string("no"));
        propose_reason(
            p, "data.header",
            "The first line is a row as the others; \"header\": \"yes\" makes it the "
            "names of the columns.");
    } else if (!has_numbers && table->start) {
        propose_set(p, "data.header", json_string("yes"));
        propose_reason(
            p, "data.header",
            "There are only texts, and those of the first line do not occur "
            "again: they are the names of the columns. \"header\": \"no\" makes them a "
            "row.");
    }
}

/* Cells without a value, and columns of texts. */
static void propose_cells(proposal_t *p)
{
    const pl_table_t *table = &p->csv.table;
    int64_t empty = 0;
    int with_empty = 0, categories = 0, texts = 0;
    char first[100] = "", text[24];
    for (int k = 0; k < table->columns; k++) {
        const table_column_t *c = &p->column[k];
        categories += !c->unused && k != p->target && c->kind == KIND_CATEGORY;
        texts += !c->unused && c->kind == KIND_TEXT;
        if (c->unused || c->kind == KIND_TEXT || c->filled == table->rows)
            continue;
        if (!with_empty++)
            snprintf(first, sizeof first, "%.90s", propose_name(p, k, text));
        empty += table->rows - c->filled;
    }
    const char *fill = p->larger > 0 ? "mean" : "median";
    propose_set(p, "data.missing", json_string(with_empty ? "category" : fill));
    if (with_empty)
        propose_reason(p, "data.missing",
                       "%lld cell%s of %d column%s %s empty, such as in \"%s\": the mean "
                       "stands there, and a further feature says so.",
                       (long long)empty, pl_plural(empty), with_empty,
                       pl_plural(with_empty), empty == 1 ? "is" : "are", first);
    else
        propose_reason(p, "data.missing",
                       "No cell is empty; in other files the %s stands for such cells.",
                       fill);
    if (categories)
        propose_reason(p, "data.name",
                       "%d column%s of texts: each value is a feature of its own.",
                       categories, pl_plural(categories));
    if (texts) {
        propose_set(p, "data.texts", json_string("words"));
        propose_reason(p, "data.texts",
                       "%d column%s of sentences: the most frequent words and pairs of "
                       "words are features.",
                       texts, pl_plural(texts));
    }
}

/* The beginning of a file and rows from all over it, as the text of a table; -> its
 * size, 0: no memory. */
static size_t pieces_take(const pl_file_map_t *map, char **text_p)
{
    char *text = *text_p = pl_alloc(PIECES * PIECE);
    size_t size = 0;
    for (size_t k = 0; k < PIECES && text; k++) {
        const char *from = (const char *)map->data
                           + (map->size - PIECE) / (PIECES - 1) * k,
                   *end;
        size_t length = PIECE;
        if (k) {                                            /* behind a row's end */
            const char *first = memchr(from, '\n', length);
            length -= first ? (size_t)(first + 1 - from) : length;
            from = first ? first + 1 : from;
        }
        end = memrchr(from, '\n', length);
        length = end ? (size_t)(end + 1 - from) : 0;
        memcpy(text + size, from, length);
        size += length;
    }
    return size;
}

/* Reads the table, or pieces of one that stays on the disk.  If a row has line ends,
 * which pieces may cut, its beginning is read alone. */
static int table_read(proposal_t *p, pl_error_t *err)
{
    const char *path = p->csv.options.path;
    struct stat status;
    pl_file_map_t map = {.data = NULL};
    char *text = NULL;
    if (stat(path, &status) == 0 && S_ISREG(status.st_mode) && !pl_is_sqlite(path)
        && !csv_is_json_lines(path) && pl_file_map(path, LARGE, &map, err) != PL_OK)
        return err->code;
    if (!map.data)
        return csv_load(&p->csv, err);
    size_t size = pieces_take(&map, &text);
    int code = text ? csv_load_begin(&p->csv, text, size, size, err) : pl_no_memory(err);
    if (code == PL_EFORMAT) {
        size = PIECES * PIECE;
        code = csv_load_begin(&p->csv, (const char *)map.data, map.size, size, err);
    }
    pl_free(text);
    if (!code && p->csv.table.columns > 1 && p->csv.table.rows > 1) {
        p->larger = (double)map.size / (double)size;
        propose_set(p, "data.stream", json_true());
        propose_set(p, "data.shuffle_window", json_integer(10000));
        propose_reason(
            p, "data.stream",
            "%.1f GB stay on the disk and are read in parts, in windows of 10000 rows "
            "that are shuffled. What is said of columns is of %lld rows from all over "
            "it.",
            (double)map.size / 1e9, (long long)p->csv.table.rows);
    } else if (!code) {
        pl_table_release(&p->csv.table);
        code = csv_load(&p->csv, err);
    }
    pl_file_unmap(&map, NULL);
    return code;
}

int propose_table(proposal_t *p, const char *path, const char *target, pl_error_t *err)
{
    const pl_table_t *table = &p->csv.table;
    p->csv.options.path = path;
    int code = table_read(p, err);
    if (!code && table->rows < 2)
        code = pl_fail(err, PL_EFORMAT,
                       "%s: %lld row%s too few to learn from: at least 2 are needed",
                       p->csv.options.path, (long long)table->rows,
                       table->rows == 1 ? " is" : "s are");
    if (!code)
        code = propose_columns(p, err);
    if (code)
        return code;
    propose_format(p);
    code = propose_find_target(p, target, err);
    if (code)
        return code;
    const table_column_t *y = &p->column[p->target];
    const bool classes = y->kind == KIND_CATEGORY || (y->whole && y->distinct <= 10);
    if (!(p->larger > 0) && propose_find_series(p, classes)) {
        propose_series(p);
        return PL_OK;
    }
    code = propose_find_unused(p, classes, err);
    if (code)
        return code;
    propose_target(p, classes);
    propose_cells(p);
    const int64_t rows = rows_of(p, table->rows);
    propose_reason(p, "module.name", "A network of two hidden layers predicts %s.",
                   classes ? "the class" : "the value");
    propose_set(p, "module",
                json_pack("{s:s, s:[i,i], s:f}", "name", "mlp", "hidden",
                          rows < 1000 ? 64 : 128, rows < 1000 ? 32 : 64, "dropout",
                          rows < 20000 ? 0.1 : 0.0));
    propose_training(p, rows_of(p, y->filled), PROPOSE_LR);
    return PL_OK;
}

/* ---- Arrays ---- */

/* Whether the file has several arrays, by their names. */
static bool is_archive(const char *path)
{
    return ends_with(path, ".npz") || ends_with(path, ".h5") || ends_with(path, ".hdf5");
}

/* Loads an array by one of its usual names, or as the caller names it; *path becomes what
 * the run file says, from pl_text(). */
static int find_array(const char *data, const char *given, const char *const usual[],
                      char **path, pl_array_t *array, pl_error_t *err)
{
    const char *slash = strrchr(data, '/');
    const int folder = slash ? (int)(slash - data) + 1 : 0;
    int code = PL_ENOTFOUND;
    for (int k = 0; code == PL_ENOTFOUND && (given ? k == 0 : usual[k] != NULL); k++) {
        const char *name = given ? given : usual[k];
        pl_text_free(*path);
        if (ends_with(data, ".npz")) {
            *path = pl_text("%s:%s", data, name);
            code = pl_npz_load(data, name, pl_file_limit(), array, err);
        } else if (ends_with(data, ".h5") || ends_with(data, ".hdf5")) {
            *path = pl_text("%s:%s", data, name);
            code = pl_hdf5_open(data, name, 1 << 27, array, err);
        } else {
            *path = pl_text("%.*s%s%s", *name == '/' ? 0 : folder, data, name,
                            ends_with(name, ".npy") ? "" : ".npy");
            code = *path ? pl_npy_load(*path, pl_file_limit(), array, err) : PL_ENOMEM;
        }
    }
    if (!*path && !code)
        pl_array_release(array);
    return *path ? code : pl_no_memory(err);
}

/* Arrays of NumPy: x and the target y, in an archive or in two files. part: the name of x
 * in an archive  [a usual name]. */
static int propose_arrays(proposal_t *p, const char *path, const char *part,
                          const char *target, pl_error_t *err)
{
    static const char *const xs[] = {"x", "X", "x_train", "images", "data", NULL},
                             *const ys[] = {"y",      "Y",      "y_train",
                                            "labels", "target", NULL};
    pl_array_t x = {0}, y = {0};
    char *x_path = NULL, *y_path = NULL;
    const bool has_names = is_archive(path);
    const char *slash = strrchr(path, '/');
    int code = find_array(path,
                          has_names ? part
                          : slash   ? slash + 1
                                    : path,
                          xs, &x_path, &x, err);
    if (!code)
        code = find_array(path, target, ys, &y_path, &y, err);
    if (!code
        && (x.shape.rank < 1 || y.shape.rank < 1 || x.shape.dim[0] != y.shape.dim[0]
            || x.shape.dim[0] < 2))
        code = pl_fail(err, PL_EFORMAT,
                       "%s and %s do not have the same number of samples, at least 2, on "
                       "their first axis: name the target by --target",
                       x_path, y_path);
    if (code == PL_ENOTFOUND && has_names && err) {
        const pl_error_t why = *err;
        pl_fail(err, code,
                "%s; init and fit take the samples as FILE:NAME, the target by "
                "--target NAME",
                why.text);
    }
    const bool whole = pl_is_integer(y.dtype);
    if (!code) {
        const long long samples = (long long)x.shape.dim[0];
        propose_set(p, "data",
                    json_pack("{s:s, s:s, s:s}", "name", "npy", "x", x_path, "y",
                              y_path));
        propose_reason(p, "data.name", "%s with %lld samples.",
                       ends_with(path, "5") ? "Data sets of HDF5" : "Arrays of NumPy",
                       samples);
        propose_reason(p, "data.y",
                       whole
                           ? "The target has whole numbers, so they are classes; floats "
                             "would be values."
                           : "The target has floats, so they are values.");
        propose_reason(p, "module.name", "A network of two hidden layers predicts %s.",
                       whole ? "the class" : "the value");
        propose_reason(
            p, "module.norm",
            "Arrays come as they are, so layers are normalised within a sample.");
        propose_set(p, "module",
                    json_pack("{s:s, s:[i,i], s:s}", "name", "mlp", "hidden",
                              samples < 1000 ? 64 : 128, samples < 1000 ? 32 : 64, "norm",
                              "layer"));
        propose_training(p, samples, PROPOSE_LR);
    }
    pl_array_release(&x);
    pl_array_release(&y);
    pl_text_free(x_path);
    pl_text_free(y_path);
    return code;
}

/* ---- Other data ---- */

/* The file of "FILE:NAME" where no file has that whole name, or the path; from pl_text().
 * *part: NAME  [NULL]. */
static char *file_of(const char *path, const char **part)
{
    struct stat status;
    const char *colon = strrchr(path, ':');
    if (!colon || stat(path, &status) == 0)
        return pl_text("%s", path);
    *part = colon + 1;
    return pl_text("%.*s", (int)(colon - path), path);
}

char *pl_data_propose(const char *path, const char *target, pl_error_t *err)
{
    proposal_t p = {.run = json_object(),
                    .reasons = json_array(),
                    .target = -1,
                    .csv.options = {.path = path,
                                    .delimiter = "",
                                    .comment = "",
                                    .from_table = "",
                                    .query = "",
                                    .groups = "",
                                    .covariates = "",
                                    .time = "",
                                    .missing_values = CSV_MISSING_VALUES,
                                    .skip_lines = -1}};
    struct stat status;
    int code = PL_OK;
    const char *part = NULL;
    char *text = NULL, *file = NULL, field[64];
    if (pl_require(path, "a path of data", err) != PL_OK)
        code = PL_EINVAL;
    else if (!(file = file_of(path, &part)))
        code = pl_no_memory(err);
    else if (stat(path = file, &status) != 0)
        code = pl_fail(err, PL_ENOTFOUND, "%s: %m", path);
    else if (part && !is_archive(path) && !pl_is_sqlite(path))
        code = pl_fail(err, PL_EINVAL,
                       "%s:%s: only a SQLite database (a table) and an archive of arrays "
                       "(NumPy, HDF5) take a name behind the file",
                       path, part);
    else if (S_ISDIR(status.st_mode))
        code = propose_folder(&p, path, target, err);
    else if ((ends_with(path, ".txt") || ends_with(path, ".bin")) && !target)
        propose_text(&p, path, NULL);
    else if (!target && propose_prose_field(path, field, sizeof field))
        propose_text(&p, path, field);
    else if (ends_with(path, ".npy") || is_archive(path))
        code = propose_arrays(&p, path, part, target, err);
    else {
        p.csv.options.from_table = part ? part : "";
        code = propose_table(&p, path, target, err);
    }
    pl_table_release(&p.csv.table);
    pl_free(p.column);
    pl_text_free(p.missing);
    pl_text_free(file);
    json_decref(p.odd);
    json_t *all = code ? NULL : pl_json_with(json_object(), "run", json_incref(p.run));
    all = code ? NULL : pl_json_with(all, "reasons", json_incref(p.reasons));
    if (all && p.run && p.reasons)
        text = pl_json_write(all, PL_JSON_COMPACT);
    if (!code && !text)
        pl_no_memory(err);
    json_decref(all);
    json_decref(p.run);
    json_decref(p.reasons);
    return text;
}
