/* csv_stream.c - tables that stay on the disk
 *
 * The file is cut into blocks of whole rows.  One pass counts the rows and learns the
 * kinds of columns; a second one, once it is known which rows are kept for validation,
 * learns their recipes.  Then a block is a small table of its own, which is read like
 * another file with the data info of the training data.  So a row becomes the same
 * numbers as in memory.  Blocks that were read last are kept, for all data threads: rows
 * that are near each other in the file are read at little cost. */
#include "actors/connectors/datasets/csv_parts.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "formats/array.h"
#include "tensor/graph.h"

enum {
    BEGIN = 1 << 20,                                      /* bytes that show the format */
    KEPT_BYTES = 48 << 20,                                /* of rows as numbers */
    KEPT_MIN = 16,
    KEPT_MAX = 4096
};

typedef struct block {
    uint64_t at;                                            /* byte of the file */
    int64_t row, line;
} block_t;

typedef struct kept_block {
    int64_t number;                                         /* -1: none */
    bool is_ready;                                          /* false: it is being read */
    int users;
    uint64_t used;                                          /* when, in reads */
    csv_dataset_t rows;
} kept_block_t;

struct csv_stream {
    csv_dataset_t fresh;                                    /* options alone */
    int fd;
    bool is_json;
    pl_table_t head;                                        /* without rows */
    char *data_info;
    uint64_t from, bytes;                          /* where the rows begin; of the file */
    int64_t line, rows;
    block_t *block;                                         /* [blocks + 1] */
    int blocks, capacity;
    size_t size[PL_FIELDS];                                 /* of a sample, bytes */
    int fields;
    pthread_mutex_t lock;                                   /* of all below */
    pthread_cond_t changed;
    kept_block_t *kept;
    int kept_count;
    int *place;                                            /* [blocks] of a block that is
                                                              kept, + 1  [0: it is not] */
    uint64_t reads;
};

/* ---- Passes over the file ---- */

typedef int (*visit_t)(csv_dataset_t *part, void *context, pl_error_t *err);

/* Reads all parts one after the other, and visits them; the first time it makes the list
 * of blocks.  purpose: of this pass, for the log. */
static int stream_pass(csv_dataset_t *csv, const char *purpose, visit_t visit,
                       void *context, pl_error_t *err)
{
    csv_stream_t *stream = csv->stream;
    table_scan_t scan = {.path = csv->options.path,
                         .fd = stream->fd,
                         .is_json = stream->is_json,
                         .head = &stream->head,
                         .at = stream->from,
                         .line = stream->line};
    const bool lists = !stream->block;
    csv_part_t part = {.size = 1};
    int64_t row = 0;
    int code = PL_OK;
    while (!code && part.size) {
        csv_dataset_t one = *csv;
        code = csv_scan_next(&scan, &part, err);
        if (pl_dataset_progress())
            csv_log(csv, PL_LOG_INFO, "%.2f of %.2f GB read to %s",
                    (double)(scan.at + scan.from) / 1e9, (double)stream->bytes / 1e9,
                    purpose);
        if (!code && lists
            && PL_GROW(stream->block, stream->blocks, stream->capacity) != PL_OK)
            code = pl_no_memory(err);
        if (!code && lists)
            stream->block[stream->blocks++] = (block_t){scan.at + scan.from - part.size,
                                                        row, part.line};
        if (code || !part.size)
            break;
        one.source.part = &part;
        one.table = (pl_table_t){0};
        one.samples.y = NULL;
        one.source.base = row;
        code = csv_part_load(&one, err);
        one.rows = one.table.rows;
        row += one.rows;
        if (!code && visit)
            code = visit(&one, context, err);
        pl_free(one.samples.y);
        if (!code && one.table.columns > stream->head.columns) {
            pl_table_release(&stream->head);    /* JSON: further fields are new columns */
            stream->head = one.table;
            stream->head.rows = 0;
            csv->table = stream->head;
        } else {
            pl_table_release(&one.table);
        }
    }
    if (lists)
        stream->blocks -= stream->blocks > 0;               /* the last one is the end */
    stream->rows = row;
    pl_free(scan.text);
    return code;
}

/* ---- Learning ---- */

typedef struct learning {
    csv_kinds_t *kinds;                                     /* [sources] */
    csv_numbers_t *numbers, scale;                          /* [sources]; of the target */
    json_t **counts;                                        /* [sources] of categories */
    csv_labels_t labels;
    pl_data_split_t split;
} learning_t;

static int visit_kinds(csv_dataset_t *part, void *context, pl_error_t *err)
{
    learning_t *l = context;
    for (int k = 0; k < part->columns.sources; k++)
        if (csv_kinds_count(part, part->columns.from[k], &l->kinds[k]))
            return pl_no_memory(err);
    return part->columns.target >= 0 ? csv_labels_count(part, &l->labels, err) : PL_OK;
}

static int visit_recipes(csv_dataset_t *part, void *context, pl_error_t *err)
{
    learning_t *l = context;
    csv_labels_t again = {0};
    double *value = pl_alloc_array((size_t)part->rows + 1, sizeof *value);
    int code = value ? PL_OK : pl_no_memory(err);
    for (int k = 0; k < part->columns.sources && !code; k++) {
        const csv_kind_t kind = part->learnt.recipe[k].kind;
        if (part->options.missing == MISSING_ERROR)
            code = csv_refuse_empty(part, k, err);
        if (code)
            break;
        if (kind == KIND_CATEGORY)
            code = csv_count_values(part, &l->split, k, l->counts[k], err);
        else if (kind != KIND_TEXT && !(code = csv_read_numbers(part, k, value, err)))
            csv_numbers_add(&l->numbers[k], part, &l->split, value);
    }
    if (!code && part->learnt.kind == TARGET_VALUE
        && !(code = csv_labels_count(part, &again, err)))
        csv_numbers_add(&l->scale, part, &l->split, part->samples.y);
    pl_free(value);
    return code;
}

static int recipes_decide(csv_dataset_t *csv, learning_t *l, pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < csv->columns.sources && !code; k++) {
        csv_recipe_t *recipe = &csv->learnt.recipe[k];
        if (recipe->kind == KIND_CATEGORY)
            code = csv_values_decide(csv, k, l->counts[k], err);
        else if (recipe->kind != KIND_TEXT)
            csv_numbers_decide(&csv->options, &l->numbers[k], recipe);
    }
    csv->rows = 0;                                          /* no memory for rows */
    if (!code)
        code = csv_layout(csv, err);
    csv->rows = csv->stream->rows;
    for (int k = 0, at = 0; k < csv->columns.sources && !code;
         at += csv->learnt.recipe[k++].width) {
        const csv_recipe_t *recipe = &csv->learnt.recipe[k];
        const bool is_number = recipe->kind == KIND_NUMBER || recipe->kind == KIND_DATE;
        if (is_number && csv->options.standardize)
            csv->learnt.moments[at] = csv_numbers_moments(&l->numbers[k], recipe->fill);
        if (recipe->is_index)
            csv->learnt.index_values += (int64_t)json_object_size(recipe->values) + 1;
    }
    if (csv->learnt.kind == TARGET_VALUE && csv->options.standardize)
        csv->learnt.scales[0] = csv_numbers_moments(&l->scale, NAN);
    return code;
}

/* Learns from the rows to train on, into the data info. */
static int stream_learn(csv_dataset_t *csv, const pl_data_request_t *request,
                        pl_error_t *err)
{
    csv_stream_t *stream = csv->stream;
    learning_t l = {.labels = {.gathers = true}};
    int code = stream->is_json ? stream_pass(csv, "find its fields", NULL, NULL, err)
                               : PL_OK;
    if (!code)
        code = csv_find_uses(csv, NULL, request->stage, err);
    const size_t sources = code ? 0 : (size_t)csv->columns.sources;
    l.kinds = pl_alloc_array(sources + 1, sizeof *l.kinds);
    l.numbers = pl_alloc_array(sources + 1, sizeof *l.numbers);
    l.counts = pl_alloc_array(sources + 1, sizeof(json_t *));
    if (!code && (!l.kinds || !l.numbers || !l.counts))
        code = pl_no_memory(err);
    for (size_t k = 0; k < sources && !code; k++)
        code = (l.counts[k] = json_object()) ? PL_OK : pl_no_memory(err);
    if (!code)
        code = stream_pass(csv, "find the kinds of its columns", visit_kinds, &l, err);
    csv->rows = stream->rows;
    csv->source.kinds = l.kinds;
    if (!code)
        code = csv_find_recipes(csv, NULL, err);
    csv->learnt.kind = TARGET_NONE;
    if (!code && csv->columns.target >= 0)
        code = csv_labels_decide(csv, &l.labels, NULL, err);
    const pl_data_split_spec_t spec = {.seed = request->seed,
                                       .total = csv->rows,
                                       .share = request->val_split,
                                       .folds = request->folds,
                                       .fold = request->fold};
    /* An impossible split is reported by the run. */
    if (!code && request->val_split > 0
        && pl_data_split_make(&l.split, &spec, NULL) == PL_ENOMEM)
        code = pl_no_memory(err);
    if (!code)
        code = stream_pass(csv, "learn its means and categories", visit_recipes, &l, err);
    if (!code)
        code = recipes_decide(csv, &l, err);
    if (!code)
        code = csv_names(csv, &csv->columns.names, err);
    if (!code && csv->learnt.kind == TARGET_CLASS)
        csv_labels_classes(csv, &l.labels, request);
    if (!code && !(stream->data_info = csv_data_info(csv, err)))
        code = PL_ENOMEM;
    for (size_t k = 0; k < sources && l.kinds && l.counts; k++) {
        csv_kinds_release(&l.kinds[k]);
        json_decref(l.counts[k]);
    }
    csv->source.kinds = NULL;
    json_decref(l.labels.names);
    pl_data_split_release(&l.split);
    pl_free(l.kinds);
    pl_free(l.numbers);
    pl_free(l.counts);
    return code;
}

/* ---- Blocks ---- */

/* Reads a block as numbers, and keeps nothing else of it. */
static int block_read(const csv_stream_t *stream, int64_t number, csv_dataset_t *rows,
                      pl_data_info_t *info, pl_error_t *err)
{
    const block_t *block = &stream->block[number];
    const size_t size = (size_t)(block[1].at - block->at);
    const int64_t expected = block[1].row - block->row;
    const pl_data_request_t request = {.stage = stream->fresh.source.stage,
                                       .to = 1,
                                       .data_info = stream->data_info,
                                       .rank = 1};          /* which logs nothing */
    char *text = pl_alloc(size + 1);
    if (!text)
        return pl_no_memory(err);
    const csv_part_t part = {text, size, &stream->head, stream->is_json, block->line};
    csv_dataset_t open = stream->fresh;
    open.source.part = &part;
    int code = pl_file_read_at(stream->fd, open.options.path, block->at, size, text, err);
    if (!code)
        code = csv_open(&open, &request, info, err);
    if (!code && open.rows != expected)
        code =
            pl_fail(err, PL_EFORMAT,
                    "%s:%lld: of the %lld rows from here on, %lld can be used: each "
                    "row of a table that is streamed needs a target, and the file must "
                    "not change",
                    open.options.path, (long long)block->line, (long long)expected,
                    (long long)open.rows);
    pl_free(text);
    *rows = open;
    rows->source.part = NULL;
    rows->learnt.recipe = NULL;
    rows->learnt.moments = NULL;
    rows->columns.use = rows->columns.from = NULL;
    rows->columns.names = rows->learnt.class_names = NULL;
    open.samples.x = open.samples.other = NULL;
    open.samples.y = NULL;
    open.samples.index = NULL;
    csv_close(&open);
    if (code)
        csv_close(rows);
    return code;
}

/* Takes a block that is kept, or reads it in the place of the one that was not used for
 * the longest time. */
static int block_take(csv_stream_t *stream, int64_t number, kept_block_t **block_p,
                      pl_error_t *err)
{
    kept_block_t *free_one, *found;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        const int place = stream->place[number];
        found = place ? &stream->kept[place - 1] : NULL;
        free_one = NULL;
        for (kept_block_t *one = stream->kept;
             !found && one < stream->kept + stream->kept_count; one++)
            if (!one->users && (!free_one || one->used < free_one->used))
                free_one = one;
        if (found ? found->is_ready : free_one != NULL)
            break;
        pthread_cond_wait(&stream->changed, &stream->lock);
    }
    kept_block_t *block = found ? found : free_one;
    block->users++;
    block->used = ++stream->reads;
    int code = PL_OK;
    if (!found) {
        pl_data_info_t info = {0};
        if (block->number >= 0) {
            stream->place[block->number] = 0;
            csv_close(&block->rows);
        }
        block->number = number;
        stream->place[number] = (int)(block - stream->kept) + 1;
        block->is_ready = false;
        pthread_mutex_unlock(&stream->lock);
        csv_dataset_t rows;
        code = block_read(stream, number, &rows, &info, err);
        pl_text_free(info.data_info);
        pthread_mutex_lock(&stream->lock);
        block->rows = rows;
        block->is_ready = true;
        if (code) {
            stream->place[number] = 0;
            block->number = -1;
            block->users--;
        }
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    *block_p = block;
    return code;
}

int csv_stream_read(const csv_dataset_t *csv, const pl_read_request_t *request,
                    void *const field[], pl_error_t *err)
{
    csv_stream_t *stream = csv->stream;
    int code = PL_OK;
    for (int i = 0; i < request->count && !code; i++) {
        int64_t low = 0, high = stream->blocks - 1, sample = request->index[i];
        void *at[PL_FIELDS];
        kept_block_t *block;
        while (low < high) {                          /* the last that begins before it */
            const int64_t middle = low + (high - low + 1) / 2;
            if (stream->block[middle].row <= sample)
                low = middle;
            else
                high = middle - 1;
        }
        code = block_take(stream, low, &block, err);
        if (code)
            break;
        sample -= stream->block[low].row;
        pl_read_request_t one = *request;
        one.index = &sample;
        one.count = 1;
        for (int k = 0; k < stream->fields; k++)
            at[k] = (char *)field[k] + (size_t)i * stream->size[k];
        code = csv_read(&block->rows, &one, at, err);
        pthread_mutex_lock(&stream->lock);
        if (!--block->users)
            pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
    }
    return code;
}

/* ---- Opening ---- */

static int stream_refuse(const csv_dataset_t *csv, const pl_data_request_t *request,
                         pl_error_t *err)
{
    const char *what = csv->options.window    ? "\"window\""
                       : *csv->options.groups ? "\"groups\""
                       : csv->options.texts   ? "\"texts\": \"words\""
                       : csv->options.missing == MISSING_MEDIAN
                           ? "\"missing\": \"median\""
                       : csv->options.missing == MISSING_MOST_FREQUENT
                           ? "\"missing\": \"most_frequent\""
                       : csv->options.missing == MISSING_DROP ? "\"missing\": \"drop\""
                       : request->stratify                    ? "data.stratify"
                                                              : NULL;
    if (what)
        return pl_fail(err, PL_EINVAL,
                       "%s: \"stream\" is true, but %s needs all rows in memory: remove "
                       "one of them",
                       csv->options.path, what);
    return PL_OK;
}

int csv_load_begin(csv_dataset_t *csv, const char *text, size_t all, size_t most,
                   pl_error_t *err)
{
    size_t size = all < most ? all : most;
    int code = PL_OK;
    for (bool again = true; again;) {
        while (size < all && size > 0 && text[size - 1] != '\n')
            size--;                                         /* a row that is cut off */
        const csv_part_t part = {.text = text, .size = size};
        csv->source.part = &part;
        code = csv_load(csv, err);
        csv->source.part = NULL;
        /* A line end in quotes ends no row: perhaps one further before does. */
        again = code == PL_EFORMAT && size < all && size > most / 2;
        size -= again ? most / 16 : 0;
    }
    return code;
}

/* Finds how the table is written, from its beginning. */
static int stream_begin(csv_dataset_t *csv, pl_error_t *err)
{
    csv_stream_t *stream = csv->stream;
    pl_file_map_t map;
    int code = pl_file_map(csv->options.path, 0, &map, err);
    if (code)
        return code;
    if (!map.data || pl_is_sqlite(csv->options.path)) {
        pl_file_unmap(&map, NULL);
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: \"stream\" is true, but only a plain text can be read in "
                       "parts: decompress it, or export the database",
                       csv->options.path);
    }
    stream->bytes = map.size;
    stream->is_json = csv_is_json_lines(csv->options.path);
    stream->line = 1;
    csv_dataset_t begin = stream->fresh;
    if (stream->is_json) {
        const bool has_mark = map.size >= 3 && !memcmp(map.data, "\xEF\xBB\xBF", 3);
        stream->from = has_mark ? 3 : 0;
        stream->head.format = PL_CSV_ANY;
    } else {
        code = csv_load_begin(&begin, (const char *)map.data, map.size, BEGIN, err);
    }
    if (!code && !stream->is_json && begin.table.rows) {
        stream->from = (uint64_t)(begin.table.start[0] - begin.table.text);
        stream->line = begin.table.line[0];
    } else if (!code && !stream->is_json) {
        code = pl_fail(err, PL_EFORMAT, "%s: there is nothing below the header",
                       csv->options.path);
    }
    if (!code && !stream->is_json && begin.table.columns < 2)
        code = pl_fail(err, PL_EUNSUPPORTED,
                       "%s: a table of one column cannot be streamed", csv->options.path);
    if (!stream->is_json)
        stream->head = begin.table;
    stream->head.rows = 0;
    csv->table = stream->head;
    pl_file_unmap(&map, &stream->fd);
    return code;
}

/* Describes the samples by those of the first block, and takes memory for blocks. */
static int stream_describe(csv_stream_t *stream, pl_data_info_t *info, pl_error_t *err)
{
    csv_dataset_t rows;
    pl_data_info_t found = {0};
    size_t sample = 0;
    const int code = block_read(stream, 0, &rows, &found, err);
    if (code) {
        pl_text_free(found.data_info);
        return code;
    }
    csv_close(&rows);
    stream->fields = found.field_count;
    for (int k = 0; k < found.field_count; k++) {
        const pl_field_t *field = &found.field[k];
        stream->size[k] = pl_array_width(field->dtype)
                          * (size_t)pl_elements(field->shape);
        sample += stream->size[k];
    }
    const size_t block = sample * (size_t)(stream->block[1].row + 1),
                 fit = KEPT_BYTES / block;
    stream->kept_count = fit < KEPT_MIN ? KEPT_MIN : fit < KEPT_MAX ? (int)fit : KEPT_MAX;
    stream->kept = pl_alloc_array((size_t)stream->kept_count, sizeof *stream->kept);
    stream->place = pl_alloc_array((size_t)stream->blocks, sizeof *stream->place);
    if (!stream->kept || !stream->place) {
        pl_text_free(found.data_info);
        return pl_no_memory(err);
    }
    memset(stream->place, 0, (size_t)stream->blocks * sizeof *stream->place);
    for (int k = 0; k < stream->kept_count; k++)
        stream->kept[k].number = -1;
    found.samples = stream->rows;
    *info = found;
    return PL_OK;
}

int csv_stream_open(csv_dataset_t *csv, const pl_data_request_t *request,
                    pl_data_info_t *info, pl_error_t *err)
{
    int code = csv_begin(csv, request, err);
    if (!code)
        code = stream_refuse(csv, request, err);
    csv_stream_t *stream = code ? NULL : pl_alloc(sizeof *stream);
    if (!stream)
        return code ? code : pl_no_memory(err);
    *stream = (csv_stream_t){.fresh = *csv, .fd = -1};
    stream->fresh.options.streams = false;
    stream->fresh.source.rank = 1;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    csv->stream = stream;
    code = stream_begin(csv, err);
    /* Rows to predict need no target, and all of them have the same fields. */
    if (!code && request->stage == PL_PREDICT && stream->head.name)
        stream->fresh.options.target = "none";
    if (!code && request->data_info) {
        stream->data_info = pl_text("%s", request->data_info);
        code = stream->data_info ? stream_pass(csv, "find its rows", NULL, NULL, err)
                                 : pl_no_memory(err);
    } else if (!code) {
        code = stream_learn(csv, request, err);
    }
    if (!code && stream->rows == 0)
        code = pl_fail(err, PL_EFORMAT, "%s: there are no rows", csv->options.path);
    csv->table = (pl_table_t){0};                           /* the head is the stream's */
    json_decref(csv->columns.places);
    csv->columns.places = NULL;
    return code ? code : stream_describe(stream, info, err);
}

void csv_stream_close(csv_stream_t *stream)
{
    if (!stream)
        return;
    for (int k = 0; stream->kept && stream->place && k < stream->kept_count; k++)
        if (stream->kept[k].number >= 0)
            csv_close(&stream->kept[k].rows);
    pl_free(stream->kept);
    pl_free(stream->place);
    pl_table_release(&stream->head);
    if (stream->fd >= 0)
        close(stream->fd);
    pl_text_free(stream->data_info);
    pl_free(stream->block);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    pl_free(stream);
}
