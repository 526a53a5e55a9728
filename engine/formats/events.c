/* events.c - TensorBoard's event files */
#include "formats/events.h"

#include <math.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "formats/protobuf.h"

enum { BINS = 64 };

/* Field numbers of event.proto, summary.proto, tensor.proto. */
enum {
    EVENT_TIME = 1,
    EVENT_STEP = 2,
    EVENT_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7
};
enum { SESSION_STATUS = 1, SESSION_START = 1 };
enum {
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_HISTOGRAM = 5,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9
};
enum { METADATA_PLUGIN = 1 };
enum { PLUGIN_NAME = 1, PLUGIN_CONTENT = 2 };
/* Of plugin_data.proto of tensorboard/plugins/hparams, and of struct.proto. */
enum { HPARAMS_START = 3, HPARAMS_END = 4 };
enum { START_HPARAMS = 1, START_TIME = 5, ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { END_STATUS = 1, END_TIME = 2, STATUS_SUCCESS = 1, STATUS_FAILURE = 2 };
enum { ANY_NUMBER = 2, ANY_TEXT = 3, ANY_TRUTH = 4 };
enum {
    TENSOR_TYPE = 1,
    TENSOR_SHAPE = 2,
    TENSOR_TEXT = 8,
    TYPE_FLOAT = 1,
    TYPE_TEXT = 7,
    SHAPE_DIM = 2,
    DIM_SIZE = 1
};
enum {
    HISTOGRAM_MIN = 1,
    HISTOGRAM_MAX = 2,
    HISTOGRAM_COUNT = 3,
    HISTOGRAM_SUM = 4,
    HISTOGRAM_SQUARES = 5,
    HISTOGRAM_LIMITS = 6,
    HISTOGRAM_BINS = 7
};

/* ---- Records ---- */

static uint32_t masked_crc(const void *data, size_t size)
{
    uint32_t crc = pl_crc32c(0, data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static void put_number(uint8_t *to, uint64_t value, size_t size)
{
    for (size_t k = 0; k < size; k++)
        to[k] = (uint8_t)(value >> 8 * k);
}

/* Frames an event, which is released. */
static int record_add(pl_append_t *file, pl_proto_t *event, pl_error_t *err)
{
    uint8_t head[12], tail[4];
    int code = event->failed ? pl_no_memory(err) : PL_OK;
    put_number(head, event->size, 8);
    put_number(head + 8, masked_crc(head, 8), 4);
    put_number(tail, masked_crc(event->data, event->size), 4);
    size_t before = file->length;
    if (code == PL_OK)
        code = pl_append_add(file, head, sizeof head, err);
    if (code == PL_OK)
        code = pl_append_add(file, event->data, event->size, err);
    if (code == PL_OK)
        code = pl_append_add(file, tail, sizeof tail, err);
    if (code != PL_OK)
        file->length = before;
    pl_proto_release(event);
    return code;
}

static pl_proto_t event_of(const pl_event_t *event)
{
    pl_proto_t message = {0};
    pl_proto_double(&message, EVENT_TIME, event->time);
    if (event->step)
        pl_proto_int(&message, EVENT_STEP, (uint64_t)event->step);
    return message;
}

int pl_events_begin(pl_append_t *file, const pl_event_t *event, pl_error_t *err)
{
    pl_proto_t message = event_of(event);
    pl_proto_text(&message, EVENT_VERSION, "brain.Event:2");
    return record_add(file, &message, err);
}

int pl_events_restart(pl_append_t *file, const pl_event_t *event, pl_error_t *err)
{
    pl_proto_t message = event_of(event), session = {0};
    pl_proto_int(&session, SESSION_STATUS, SESSION_START);
    pl_proto_message(&message, EVENT_SESSION, &session);
    return record_add(file, &message, err);
}

/* ---- Summaries ---- */

static int summary_add(pl_append_t *file, const pl_event_t *event, pl_proto_t *summary,
                       pl_error_t *err)
{
    pl_proto_t message = event_of(event);
    pl_proto_message(&message, EVENT_SUMMARY, summary);
    return record_add(file, &message, err);
}

int pl_events_scalars(pl_append_t *file, const pl_event_t *event,
                      const pl_event_scalar_t *scalar, int count, pl_error_t *err)
{
    pl_proto_t summary = {0};
    for (int k = 0; k < count; k++) {
        pl_proto_t value = {0};
        pl_proto_text(&value, VALUE_TAG, scalar[k].tag);
        pl_proto_float(&value, VALUE_SIMPLE, (float)scalar[k].value);
        pl_proto_message(&summary, SUMMARY_VALUE, &value);
    }
    return summary_add(file, event, &summary, err);
}

/* A vector of one text  [NULL: an empty one, where the metadata say all]. */
static pl_proto_t tensor_of(const char *text)
{
    pl_proto_t tensor = {0}, shape = {0}, dim = {0};
    if (text)
        pl_proto_int(&dim, DIM_SIZE, 1);
    pl_proto_message(&shape, SHAPE_DIM, &dim);
    pl_proto_int(&tensor, TENSOR_TYPE, text ? TYPE_TEXT : TYPE_FLOAT);
    pl_proto_message(&tensor, TENSOR_SHAPE, &shape);
    if (text)
        pl_proto_text(&tensor, TENSOR_TEXT, text);
    return tensor;
}

int pl_events_text(pl_append_t *file, const pl_event_t *event, const char *tag,
                   const char *text, pl_error_t *err)
{
    pl_proto_t summary = {0}, value = {0}, plugin = {0}, metadata = {0},
               tensor = tensor_of(text);
    pl_proto_text(&plugin, PLUGIN_NAME, "text");
    pl_proto_message(&metadata, METADATA_PLUGIN, &plugin);
    pl_proto_text(&value, VALUE_TAG, tag);
    pl_proto_message(&value, VALUE_TENSOR, &tensor);
    pl_proto_message(&value, VALUE_METADATA, &metadata);
    pl_proto_message(&summary, SUMMARY_VALUE, &value);
    return summary_add(file, event, &summary, err);
}

/* ---- Hyperparameters ---- */

/* The content of a record of the plug-in "hparams", which is released. */
static int hparams_add(pl_append_t *file, const pl_event_t *event, const char *tag,
                       pl_proto_t *content, pl_error_t *err)
{
    pl_proto_t summary = {0}, value = {0}, plugin = {0}, metadata = {0},
               tensor = tensor_of(NULL);
    pl_proto_text(&plugin, PLUGIN_NAME, "hparams");
    pl_proto_message(&plugin, PLUGIN_CONTENT, content);
    pl_proto_message(&metadata, METADATA_PLUGIN, &plugin);
    pl_proto_text(&value, VALUE_TAG, tag);
    pl_proto_message(&value, VALUE_TENSOR, &tensor);
    pl_proto_message(&value, VALUE_METADATA, &metadata);
    pl_proto_message(&summary, SUMMARY_VALUE, &value);
    return summary_add(file, event, &summary, err);
}

static void hparam_put(pl_proto_t *start, const pl_event_hparam_t *hparam)
{
    pl_proto_t entry = {0}, value = {0};
    if (hparam->text)
        pl_proto_text(&value, ANY_TEXT, hparam->text);
    else if (hparam->is_truth)
        pl_proto_int(&value, ANY_TRUTH, hparam->number != 0);
    else
        pl_proto_double(&value, ANY_NUMBER, hparam->number);
    pl_proto_text(&entry, ENTRY_KEY, hparam->name);
    pl_proto_message(&entry, ENTRY_VALUE, &value);
    pl_proto_message(start, START_HPARAMS, &entry);
}

int pl_events_session(pl_append_t *file, const pl_event_t *event,
                      const pl_event_hparam_t *hparam, int count, pl_error_t *err)
{
    pl_proto_t content = {0}, start = {0};
    for (int k = 0; k < count; k++)
        hparam_put(&start, &hparam[k]);
    pl_proto_double(&start, START_TIME, event->time);
    pl_proto_message(&content, HPARAMS_START, &start);
    return hparams_add(file, event, "_hparams_/session_start_info", &content, err);
}

int pl_events_session_end(pl_append_t *file, const pl_event_t *event, bool failed,
                          pl_error_t *err)
{
    pl_proto_t content = {0}, end = {0};
    pl_proto_int(&end, END_STATUS, failed ? STATUS_FAILURE : STATUS_SUCCESS);
    pl_proto_double(&end, END_TIME, event->time);
    pl_proto_message(&content, HPARAMS_END, &end);
    return hparams_add(file, event, "_hparams_/session_end_info", &content, err);
}

/* ---- Histograms ---- */

typedef struct histogram {
    double min, max, count, sum, squares;
    double limit[BINS], bin[BINS];
} histogram_t;

static void histogram_measure(histogram_t *h, const float *value, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        double x = value[k];
        if (!isfinite(x))
            continue;
        h->min = h->count == 0 || x < h->min ? x : h->min;
        h->max = h->count == 0 || x > h->max ? x : h->max;
        h->count++;
        h->sum += x;
        h->squares += x * x;
    }
}

static void histogram_fill(histogram_t *h, const float *value, size_t count)
{
    double width = (h->max - h->min) / BINS;
    for (int k = 0; k < BINS; k++)
        h->limit[k] = k + 1 < BINS ? h->min + width * (k + 1) : h->max;
    for (size_t k = 0; k < count; k++) {
        double at = width > 0 ? (value[k] - h->min) / width : 0;
        if (isfinite(value[k]))
            h->bin[at < BINS ? (int)at : BINS - 1]++;
    }
}

/* A number that is not written is 0. */
static void double_put(pl_proto_t *message, int field, double value)
{
    if (value != 0)
        pl_proto_double(message, field, value);
}

int pl_events_histogram(pl_append_t *file, const pl_event_t *event, const char *tag,
                        const float *value, size_t count, pl_error_t *err)
{
    pl_proto_t summary = {0}, made = {0}, inner = {0};
    histogram_t h = {0};
    histogram_measure(&h, value, count);
    histogram_fill(&h, value, count);
    double_put(&inner, HISTOGRAM_MIN, h.min);
    double_put(&inner, HISTOGRAM_MAX, h.max);
    double_put(&inner, HISTOGRAM_COUNT, h.count);
    double_put(&inner, HISTOGRAM_SUM, h.sum);
    double_put(&inner, HISTOGRAM_SQUARES, h.squares);
    pl_proto_doubles(&inner, HISTOGRAM_LIMITS, h.limit, BINS);
    pl_proto_doubles(&inner, HISTOGRAM_BINS, h.bin, BINS);
    pl_proto_text(&made, VALUE_TAG, tag);
    pl_proto_message(&made, VALUE_HISTOGRAM, &inner);
    pl_proto_message(&summary, SUMMARY_VALUE, &made);
    return summary_add(file, event, &summary, err);
}
