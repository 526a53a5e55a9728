/* events.c - TensorBoard's event files */
#include "formats/events.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"

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
/* Those of plugin_data.proto of tensorboard/plugins/hparams, and of struct.proto. */
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

/* ---- Protocol Buffers ----
 *
 * The wire format alone (https://protobuf.dev/programming-guides/encoding/), without a
 * library for it. After a lack of memory further fields do nothing; record_add() looks at
 * `failed` once. */

typedef struct proto {
    uint8_t *data;                                          /* [size] */
    size_t size, capacity;
    bool failed;                                            /* no memory */
} proto_t;

enum { VARINT = 0, FIXED_64 = 1, LENGTH = 2, FIXED_32 = 5 };

static void put(proto_t *message, const void *data, size_t size)
{
    size_t needed = message->size + size;
    if (message->failed || !size)
        return;
    if (needed > message->capacity) {
        uint8_t *larger = pl_resize(message->data, 2 * needed);
        if (!larger) {
            message->failed = true;
            return;
        }
        message->data = larger;
        message->capacity = 2 * needed;
    }
    memcpy(message->data + message->size, data, size);
    message->size = needed;
}

static void put_varint(proto_t *message, uint64_t value)
{
    uint8_t bytes[10];
    size_t count = 0;
    do {
        bytes[count] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
        count++;
    } while (value);
    put(message, bytes, count);
}

static void put_key(proto_t *message, int field, unsigned wire)
{
    put_varint(message, (uint64_t)field << 3 | wire);
}

static void put_fixed(proto_t *message, uint64_t bits, size_t size)
{
    uint8_t bytes[8];
    for (size_t k = 0; k < size; k++)
        bytes[k] = (uint8_t)(bits >> 8 * k);
    put(message, bytes, size);
}

static void proto_int(proto_t *message, int field, uint64_t value)
{
    put_key(message, field, VARINT);
    put_varint(message, value);
}

static void proto_double(proto_t *message, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(message, field, FIXED_64);
    put_fixed(message, bits, sizeof bits);
}

static void proto_bytes(proto_t *message, int field, const void *data, size_t size)
{
    put_key(message, field, LENGTH);
    put_varint(message, size);
    put(message, data, size);
}

static void proto_text(proto_t *message, int field, const char *text)
{
    proto_bytes(message, field, text, strlen(text));
}

/* A packed field of numbers. */
static void proto_doubles(proto_t *message, int field, const double *value, size_t count)
{
    put_key(message, field, LENGTH);
    put_varint(message, count * sizeof *value);
    for (size_t k = 0; k < count; k++) {
        uint64_t bits;
        memcpy(&bits, &value[k], sizeof bits);
        put_fixed(message, bits, sizeof bits);
    }
}

static void proto_release(proto_t *message)
{
    pl_free(message->data);
    *message = (proto_t){.failed = message->failed};
}

/* Adds a message inside another, and releases the inner one. */
static void proto_message(proto_t *message, int field, proto_t *inner)
{
    message->failed |= inner->failed;
    proto_bytes(message, field, inner->data, inner->size);
    proto_release(inner);
}

/* ---- records ---- */

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

/* Adds an event as a record, and releases it. */
static int record_add(pl_append_t *file, proto_t *event, pl_error_t *err)
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
    proto_release(event);
    return code;
}

static proto_t event_of(const pl_event_time_t *event)
{
    proto_t message = {0};
    proto_double(&message, EVENT_TIME, event->time);
    if (event->step)
        proto_int(&message, EVENT_STEP, (uint64_t)event->step);
    return message;
}

int pl_events_begin(pl_append_t *file, const pl_event_time_t *event, bool resumes,
                    pl_error_t *err)
{
    proto_t message = event_of(event), session = {0};
    if (resumes) {
        proto_int(&session, SESSION_STATUS, SESSION_START);
        proto_message(&message, EVENT_SESSION, &session);
    } else {
        proto_text(&message, EVENT_VERSION, "brain.Event:2");
    }
    return record_add(file, &message, err);
}

/* ---- summaries ---- */

static int summary_add(pl_append_t *file, const pl_event_time_t *event, proto_t *summary,
                       pl_error_t *err)
{
    proto_t message = event_of(event);
    proto_message(&message, EVENT_SUMMARY, summary);
    return record_add(file, &message, err);
}

int pl_events_scalars(pl_append_t *file, const pl_event_time_t *event,
                      const pl_event_scalar_t *scalar, int count, pl_error_t *err)
{
    proto_t summary = {0};
    for (int k = 0; k < count; k++) {
        const float number = (float)scalar[k].value;
        uint32_t bits;
        proto_t value = {0};
        memcpy(&bits, &number, sizeof bits);
        proto_text(&value, VALUE_TAG, scalar[k].tag);
        put_key(&value, VALUE_SIMPLE, FIXED_32);
        put_fixed(&value, bits, sizeof bits);
        proto_message(&summary, SUMMARY_VALUE, &value);
    }
    return summary_add(file, event, &summary, err);
}

/* A vector of one text  [an empty vector, if the metadata contain everything]. */
static proto_t tensor_of(const char *text)
{
    proto_t tensor = {0}, shape = {0}, dim = {0};
    if (text)
        proto_int(&dim, DIM_SIZE, 1);
    proto_message(&shape, SHAPE_DIM, &dim);
    proto_int(&tensor, TENSOR_TYPE, text ? TYPE_TEXT : TYPE_FLOAT);
    proto_message(&tensor, TENSOR_SHAPE, &shape);
    if (text)
        proto_text(&tensor, TENSOR_TEXT, text);
    return tensor;
}

/* Adds a summary of a plug-in of TensorBoard; releases content  [none] and tensor. */
static int plugin_add(pl_append_t *file, const pl_event_time_t *event, const char *tag,
                      const char *name, proto_t *content, proto_t *tensor,
                      pl_error_t *err)
{
    proto_t summary = {0}, value = {0}, plugin = {0}, metadata = {0};
    proto_text(&plugin, PLUGIN_NAME, name);
    if (content)
        proto_message(&plugin, PLUGIN_CONTENT, content);
    proto_message(&metadata, METADATA_PLUGIN, &plugin);
    proto_text(&value, VALUE_TAG, tag);
    proto_message(&value, VALUE_TENSOR, tensor);
    proto_message(&value, VALUE_METADATA, &metadata);
    proto_message(&summary, SUMMARY_VALUE, &value);
    return summary_add(file, event, &summary, err);
}

int pl_events_text(pl_append_t *file, const pl_event_time_t *event, const char *tag,
                   const char *text, pl_error_t *err)
{
    proto_t tensor = tensor_of(text);
    return plugin_add(file, event, tag, "text", NULL, &tensor, err);
}

/* ---- hyperparameters ---- */

int pl_events_session(pl_append_t *file, const pl_event_time_t *event,
                      const pl_event_hparam_t *hparam, int count, pl_error_t *err)
{
    proto_t content = {0}, start = {0}, tensor = tensor_of(NULL);
    for (const pl_event_hparam_t *h = hparam; h < hparam + count; h++) {
        proto_t entry = {0}, value = {0};
        if (h->text)
            proto_text(&value, ANY_TEXT, h->text);
        else if (h->is_truth)
            proto_int(&value, ANY_TRUTH, h->number != 0);
        else
            proto_double(&value, ANY_NUMBER, h->number);
        proto_text(&entry, ENTRY_KEY, h->name);
        proto_message(&entry, ENTRY_VALUE, &value);
        proto_message(&start, START_HPARAMS, &entry);
    }
    proto_double(&start, START_TIME, event->time);
    proto_message(&content, HPARAMS_START, &start);
    return plugin_add(file, event, "_hparams_/session_start_info", "hparams", &content,
                      &tensor, err);
}

int pl_events_session_end(pl_append_t *file, const pl_event_time_t *event, bool failed,
                          pl_error_t *err)
{
    proto_t content = {0}, end = {0}, tensor = tensor_of(NULL);
    proto_int(&end, END_STATUS, failed ? STATUS_FAILURE : STATUS_SUCCESS);
    proto_double(&end, END_TIME, event->time);
    proto_message(&content, HPARAMS_END, &end);
    return plugin_add(file, event, "_hparams_/session_end_info", "hparams", &content,
                      &tensor, err);
}

/* ---- histograms ---- */

typedef struct histogram {
    double min, max, count, sum, squares;
    double limit[BINS], bin[BINS];
} histogram_t;

/* Readers take a missing number as 0. */
static void double_put(proto_t *message, int field, double value)
{
    if (value != 0)
        proto_double(message, field, value);
}

int pl_events_histogram(pl_append_t *file, const pl_event_time_t *event, const char *tag,
                        const float *value, size_t count, pl_error_t *err)
{
    proto_t summary = {0}, made = {0}, inner = {0};
    histogram_t h = {0};
    for (size_t k = 0; k < count; k++) {
        double x = value[k];
        if (!isfinite(x))
            continue;
        h.min = h.count == 0 || x < h.min ? x : h.min;
        h.max = h.count == 0 || x > h.max ? x : h.max;
        h.count++;
        h.sum += x;
        h.squares += x * x;
    }
    double width = (h.max - h.min) / BINS;
    for (int k = 0; k < BINS; k++)
        h.limit[k] = k + 1 < BINS ? h.min + width * (k + 1) : h.max;
    for (size_t k = 0; k < count; k++) {
        double at = width > 0 ? (value[k] - h.min) / width : 0;
        if (isfinite(value[k]))
            h.bin[at < BINS ? (int)at : BINS - 1]++;
    }
    double_put(&inner, HISTOGRAM_MIN, h.min);
    double_put(&inner, HISTOGRAM_MAX, h.max);
    double_put(&inner, HISTOGRAM_COUNT, h.count);
    double_put(&inner, HISTOGRAM_SUM, h.sum);
    double_put(&inner, HISTOGRAM_SQUARES, h.squares);
    proto_doubles(&inner, HISTOGRAM_LIMITS, h.limit, BINS);
    proto_doubles(&inner, HISTOGRAM_BINS, h.bin, BINS);
    proto_text(&made, VALUE_TAG, tag);
    proto_message(&made, VALUE_HISTOGRAM, &inner);
    proto_message(&summary, SUMMARY_VALUE, &made);
    return summary_add(file, event, &summary, err);
}
