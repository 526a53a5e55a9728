/* model_summary.c - a table of the model's layers when a fit begins
 *
 * Layers whose names have the same beginning are one line: with a depth of two,
 * "h.0.attn.qkv" belongs to "h.0". */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"

typedef struct model_summary {
    int64_t max_depth;
} model_summary_t;

static const pl_option_t model_summary_options[] = {
    PL_INT(model_summary_t, max_depth, "2", "-1..",
           "names of a layer's path that have a line of their own; -1: all, 0: totals "
           "only"),
    PL_OPTIONS_END,
};

enum { NAME, TYPE, COUNT, IN, OUT, COLUMNS };
enum { CELL = 64 };
static const char *const titles[COLUMNS] = {"name", "type", "parameters", "in", "out"};

typedef struct summary_row {
    char cell[COLUMNS][CELL];
    int layers;
    int64_t parameters;
} summary_row_t;

/* ---- Texts ---- */

/* "784", "101.8 K", "1.2 MB" */
static void count_text(double count, const char *of, char text[CELL])
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    int unit = 0;
    for (; count >= 1000 && unit < 4; unit++)
        count /= 1000;
    snprintf(text, CELL, "%.*f%s%s%s", unit ? 1 : 0, count, unit || *of ? " " : "",
             units[unit], of);
}

static void shape_text(const json_t *shape, char text[CELL])
{
    size_t length = 1, k;
    json_t *axis;
    snprintf(text, CELL, "[");
    json_array_foreach(shape, k, axis) {
        if (length < CELL - 24)
            length += (size_t)snprintf(text + length, CELL - length, "%s%lld",
                                       k ? ", " : "",
                                       (long long)json_integer_value(axis));
    }
    snprintf(text + length, CELL - length, "]");
}

/* ---- Rows ---- */

/* Adds a layer to the row of the first `depth` names of its path  [negative: all]. */
static void layer_add(const json_t *layer, int64_t depth, summary_row_t *rows, int *count)
{
    const char *name = json_string_value(json_object_get(layer, "name"));
    int length = 0, k = 0;
    while (name[length] && (name[length] != '.' || --depth != 0))
        length++;
    while (k < *count
           && (strncmp(rows[k].cell[NAME], name, (size_t)length)
               || rows[k].cell[NAME][length]))
        k++;
    summary_row_t *row = &rows[k];
    if (k == *count) {
        ++*count;
        snprintf(row->cell[NAME], CELL, "%.*s", length, name);
        snprintf(row->cell[TYPE], CELL, "%s",
                 json_string_value(json_object_get(layer, "type")));
        shape_text(json_object_get(layer, "in"), row->cell[IN]);
    } else {
        snprintf(row->cell[TYPE], CELL, "%d layers", row->layers + 1);
    }
    row->layers++;
    row->parameters += json_integer_value(json_object_get(layer, "parameters"));
    count_text((double)row->parameters, "", row->cell[COUNT]);
    shape_text(json_object_get(layer, "out"), row->cell[OUT]);
}

static void rows_log(int rank, const summary_row_t *rows, int count)
{
    int width[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        width[c] = (int)strlen(titles[c]);
        for (int k = 0; k < count; k++)
            if ((int)strlen(rows[k].cell[c]) > width[c])
                width[c] = (int)strlen(rows[k].cell[c]);
    }
    for (int k = count ? -1 : 0; k < count; k++) {          /* -1: the titles */
        const char *cell[COLUMNS];
        for (int c = 0; c < COLUMNS; c++)
            cell[c] = k < 0 ? titles[c] : rows[k].cell[c];
        pl_log_line(PL_LOG_INFO, rank, "", "  %-*s  %-*s  %*s  %-*s  %s", width[NAME],
                    cell[NAME], width[TYPE], cell[TYPE], width[COUNT], cell[COUNT],
                    width[IN], cell[IN], cell[OUT]);
    }
}

/* ---- The callback ---- */

static int model_summary_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                            pl_callback_request_t *request, pl_error_t *err)
{
    (void)point, (void)request;
    const model_summary_t *m = self;
    json_t *model = pl_json_read(event->model, strlen(event->model), "model", err),
           *layer;
    if (!model)
        return err->code;
    const json_t *layers = json_object_get(model, "layers");
    summary_row_t *rows = pl_alloc_array(json_array_size(layers), sizeof *rows);
    int count = 0;
    size_t k;
    if (rows) {
        json_array_foreach(layers, k, layer) {
            if (m->max_depth)
                layer_add(layer, m->max_depth, rows, &count);
        }
        rows_log(event->rank, rows, count);
        char parameters[CELL], state[CELL], flops[CELL], memory[CELL], trained[CELL],
            not_trained[CELL], kept[CELL];
        const double elements = json_number_value(json_object_get(model, "parameters")),
                     frozen = json_number_value(json_object_get(model, "frozen"));
        count_text(elements, "", parameters);
        count_text(4 * elements, "B", memory);
        count_text(json_number_value(json_object_get(model, "state")), "", state);
        count_text(json_number_value(json_object_get(model, "train_flops")), "FLOP",
                   flops);
        pl_log_line(PL_LOG_INFO, event->rank, "",
                    "  %s parameters (%s in float32), %s elements of state, %s to train "
                    "on a sample",
                    parameters, memory, state, flops);
        const double bytes = json_number_value(json_object_get(model, "step_bytes"));
        count_text(bytes, "B", memory);
        count_text(json_number_value(json_object_get(model, "step_bytes_kept")), "B",
                   kept);
        if (bytes > 0)
            pl_log_line(PL_LOG_INFO, event->rank, "",
                        "  %s for the values of a training step, %s without checkpoints",
                        memory, kept);
        count_text(elements - frozen, "", trained);
        count_text(frozen, "", not_trained);
        if (frozen > 0)
            pl_log_line(PL_LOG_INFO, event->rank, "",
                        "  %s of them are trained, %s are frozen", trained, not_trained);
    }
    pl_free(rows);
    json_decref(model);
    return rows ? PL_OK : pl_no_memory(err);
}

const pl_callback_ops_t pl_model_summary_callback = {
    .name = "model_summary",
    .help = "prints a table of the layers at the start",
    .size = sizeof(model_summary_t),
    .options = model_summary_options,
    .points = PL_AT(FIT_START),
    .on = model_summary_on,
};
