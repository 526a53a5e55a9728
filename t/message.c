/* message.c - tests of engine/runtime/message.c and message_json.c: the codec, and lines
 * of the stream */
#include "runtime/message.h"

#include <jansson.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/wire.h"
#include "tap.h"

/* ---- values for every field of every message ---- */

static int objects;

static void object_release(pl_object_t *object)
{
    objects--;
    pl_free(object);
}

static pl_object_t *object_new(void)
{
    pl_object_t *object = pl_alloc(sizeof *object);
    pl_object_init(object, object_release);
    objects++;
    return object;
}

static const char *const roles[PL_PEERS_MAX] = {"a", "b", "c", "d", "e", "f",
                                                "g", "h", "i", "j", "k", "strategy"};
static const char *const texts[] = {"", "x", "a longer text, of more than a few bytes",
                                    "ünïcödé \"quoted\" \\ \n"};
static const char bytes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

/* What rank 0 decides: a call and a reply. */
static pl_messages_t inner;

static void inner_init(void)
{
    static const uint64_t halts[] = {4, 6, 15};
    const pl_stop_t stop = {.reason = "a \"reason\"", .kind = PL_STOP_KIND_RESTART};
    const pl_callback_hooks_reply_t hooks = {.points = 3, .halts = {halts, sizeof halts}};
    pl_messages_add(&inner, PL_MESSAGE_stop, false, &stop, NULL);
    pl_messages_add(&inner, PL_MESSAGE_callback_hooks, true, &hooks, NULL);
}

static void fill(const pl_field_info_t *info, void *field, int salt)
{
    pl_peers_t peers = {0};
    switch (info->type) {
    case PL_TYPE_ENUM: *(uint32_t *)field = (uint32_t)salt % info->values->count; break;
    case PL_TYPE_U32:
    case PL_TYPE_FLAG: *(uint32_t *)field = (uint32_t)salt * 2654435761u; break;
    case PL_TYPE_U64:
        *(uint64_t *)field = (uint64_t)salt * UINT64_C(0x9E3779B97F4A7C15);
        break;
    case PL_TYPE_F64: *(double *)field = salt / 7.0; break;
    case PL_TYPE_STRING: *(const char **)field = texts[salt % 4]; break;
    case PL_TYPE_DATA:
        *(pl_bytes_t *)field = (pl_bytes_t){bytes, (size_t)salt % sizeof bytes};
        break;
    case PL_TYPE_MESSAGES:
        *(pl_bytes_t *)field = salt % 2 ? pl_messages_bytes(&inner) : (pl_bytes_t){0};
        break;
    case PL_TYPE_HANDLE: *(pl_object_t **)field = salt % 3 ? object_new() : NULL; break;
    case PL_TYPE_PEERS:
        for (int k = 0; k < salt % (PL_PEERS_MAX + 1); k++)
            pl_peers_add(&peers, roles[k],
                         (pl_address_t){1, (uint32_t)k, (uint32_t)salt});
        *(pl_peers_t *)field = peers;
    }
}

static bool same(pl_field_type_t type, const void *a, const void *b)
{
    const pl_bytes_t *x = a, *y = b;
    switch (type) {
    case PL_TYPE_U32:
    case PL_TYPE_ENUM:
    case PL_TYPE_FLAG: return *(const uint32_t *)a == *(const uint32_t *)b;
    case PL_TYPE_U64: return *(const uint64_t *)a == *(const uint64_t *)b;
    case PL_TYPE_F64: return *(const double *)a == *(const double *)b;
    case PL_TYPE_STRING: return !strcmp(*(char *const *)a, *(char *const *)b);
    case PL_TYPE_DATA:
    case PL_TYPE_MESSAGES:
        return x->size == y->size && (!x->size || !memcmp(x->data, y->data, x->size));
    case PL_TYPE_HANDLE: return *(pl_object_t *const *)a == *(pl_object_t *const *)b;
    case PL_TYPE_PEERS: return !memcmp(a, b, sizeof(pl_peers_t));
    }
    return false;
}

/* One message of one kind. */
typedef struct sample {
    const pl_message_info_t *info;
    const pl_field_info_t *fields;
    pl_envelope_t e;
    pl_body_t body;
} sample_t;

static void sample_init(sample_t *s, unsigned message, pl_kind_t kind, int salt)
{
    memset(s, 0, sizeof *s);
    s->info = pl_message_info(message);
    s->fields = s->info->fields[pl_section_of_kind(kind)];
    s->e = (pl_envelope_t){.version = PL_PROTOCOL_VERSION,
                           .kind = (uint8_t)kind,
                           .message = (uint16_t)message,
                           .incarnation = 3,
                           .run = 5,
                           .call = 7,
                           .cause = 6,
                           .remaining = -1};
    size_t offset = 0;
    for (const pl_field_info_t *f = s->fields; f->name; f++)
        fill(f, (char *)&s->body + pl_field_place(f->type, &offset), salt++);
}

static void sample_release(sample_t *s)
{
    size_t offset = 0;
    for (const pl_field_info_t *f = s->fields; f->name; f++) {
        void *field = (char *)&s->body + pl_field_place(f->type, &offset);
        if (f->type == PL_TYPE_HANDLE)
            pl_object_unref(*(pl_object_t **)field);
    }
}

static bool same_fields(const sample_t *s, const pl_body_t *other)
{
    size_t a = 0, b = 0;
    for (const pl_field_info_t *f = s->fields; f->name; f++)
        if (!same(f->type, (const char *)&s->body + pl_field_place(f->type, &a),
                  (const char *)other + pl_field_place(f->type, &b)))
            return false;
    return true;
}

/* Calls work for every message and each kind with fields, with several sets of values. */
static void each_sample(void (*work)(sample_t *))
{
    unsigned message;
    for (int k = 0; pl_message_at(k, &message); k++)
        for (pl_kind_t kind = PL_KIND_CALL; kind <= PL_KIND_REPLY; kind++)
            for (int salt = 0; salt < 12; salt++) {
                sample_t s;
                sample_init(&s, message, kind, salt);
                work(&s);
                sample_release(&s);
            }
}

/* ---- the codec ---- */

static int messages, wrong;

static void round_trip(sample_t *s)
{
    pl_frame_t frame;
    pl_body_t body;
    pl_error_t err = {0};
    messages++;
    if (pl_frame_make(&frame, &s->e, &s->body, &err)) {
        tap_diag("%s: %s", s->info->name, err.text);
        wrong++;
        return;
    }
    pl_envelope_t e = pl_frame_envelope(&frame);
    if (memcmp(&e, &s->e, sizeof e)
        || pl_frame_decode(pl_frame_bytes(&frame), &body, &err, &err)
        || !same_fields(s, &body)) {
        tap_diag("%s: %s", s->info->name, err.text);
        wrong++;
    }
    pl_frame_release(&frame);
}

/* The object itself stays; its number comes. */
static void foreign_trip(sample_t *s)
{
    pl_frame_t frame;
    pl_body_t body = {0};
    pl_error_t err = {0};
    uint64_t transfer;
    int handles = 0, peers = 0;
    for (const pl_field_info_t *f = s->fields; f->name; f++) {
        handles += f->type == PL_TYPE_HANDLE;
        peers += f->type == PL_TYPE_PEERS;
    }
    pl_object_t **object = pl_message_object(&s->e, &s->body),
                **came = pl_message_object(&s->e, &body);
    wrong += !object != !handles;
    if (handles > 1 || peers)
        return;
    messages++;
    pl_frame_make_foreign(&frame, &s->e, &s->body, 9, &err);
    const pl_bytes_t bytes_of = pl_frame_bytes(&frame);
    if (pl_frame_decode_foreign(bytes_of, &body, &err, &transfer, &err)
        || transfer != (handles ? 9 : 0)
        || (pl_frame_decode_foreign(bytes_of, &body, &err, NULL, &err) != PL_OK)
               != (handles > 0)
        || (came && *came)) {
        tap_diag("%s: %s", s->info->name, err.text);
        wrong++;
    }
    if (came)
        *came = *object;
    wrong += !same_fields(s, &body);
    pl_frame_release(&frame);
}

static void an_object_goes_to_another_process_as_a_number(void)
{
    messages = wrong = 0;
    each_sample(foreign_trip);
    ok(messages > 500, "%d samples", messages);
    is_int(wrong, 0, "each has the number of its object, and the other fields");
    is_int(pl_flight_count(), 0, "none is in flight");
}

static void every_message_comes_back_as_it_went(void)
{
    messages = wrong = 0;
    each_sample(round_trip);
    ok(messages > 500, "%d samples", messages);
    is_int(wrong, 0, "envelope and fields are the same");
    is_int(objects, 0, "no object is left");
    is_int(pl_flight_count(), 0, "none in flight");
}

/* Copies bytes to memory of exactly that size, so that a sanitizer sees one too many. */
static int decode_copy(const void *data, size_t size)
{
    unsigned char *copy = malloc(size ? size : 1);
    pl_body_t body;
    pl_error_t error;
    memcpy(copy, data, size);
    int code = pl_frame_decode((pl_bytes_t){copy, size}, &body, &error, NULL);
    free(copy);
    return code;
}

static void cut_everywhere(sample_t *s)
{
    pl_frame_t frame;
    pl_frame_make(&frame, &s->e, &s->body, NULL);
    pl_bytes_t all = pl_frame_bytes(&frame);
    for (size_t size = 0; size < all.size; size++)
        wrong += decode_copy(all.data, size) != PL_EPROTOCOL;
    unsigned char *longer = malloc(all.size + 1);
    memcpy(longer, all.data, all.size);
    longer[all.size] = 0;
    wrong += decode_copy(longer, all.size + 1) != PL_EPROTOCOL;
    free(longer);
    pl_frame_release(&frame);
}

static void a_frame_too_short_or_long_is_refused(void)
{
    wrong = 0;
    each_sample(cut_everywhere);
    is_int(wrong, 0, "whatever is cut off, or added");
    is_int(pl_flight_count(), 0, "nothing in flight");
}

/* What the compiler makes of a message's three structs. */
static const size_t struct_sizes[][3] = {
#define PL_CALL(name, number, from, to, help) \
    [number] = {sizeof(pl_##name##_t), sizeof(pl_##name##_progress_t), \
                sizeof(pl_##name##_reply_t)},
#include "messages/messages.def"
};

static void structs_are_laid_out_as_the_codec_walks(void)
{
    unsigned message;
    int bad = 0, crowded = 0;
    for (int k = 0; pl_message_at(k, &message); k++)
        for (pl_kind_t kind = PL_KIND_CALL; kind <= PL_KIND_REPLY; kind++) {
            size_t end = 0, widest = 1;
            int handles = 0;
            for (const pl_field_info_t *f =
                     pl_message_info(message)->fields[pl_section_of_kind(kind)];
                 f->name; f++) {
                size_t at = pl_field_place(f->type, &end), size = end - at;
                widest = size % 8 == 0 && f->type != PL_TYPE_PEERS ? 8
                         : widest < 4                              ? 4
                                                                   : widest;
                handles += f->type == PL_TYPE_HANDLE;
            }
            size_t size = end ? (end + widest - 1) / widest * widest : sizeof(uint32_t);
            bad += size != struct_sizes[message][pl_section_of_kind(kind)];
            crowded += handles > PL_HANDLES_MAX;
        }
    is_int(bad, 0, "every struct's size is where the walk ends");
    is_int(crowded, 0, "none carries more objects than a payload holds");
}

static void messages_within_a_message_come_back_typed(void)
{
    pl_bytes_t left = pl_messages_bytes(&inner);
    pl_message_t message;
    pl_body_t body;
    bool is_reply;
    is_int(pl_messages_take(&left, &message, &is_reply, &body, NULL), PL_OK, "the first");
    ok(message == PL_MESSAGE_stop && !is_reply, "is a call");
    ok(!strcmp(body.stop.reason, "a \"reason\""), "with its text");
    is_int(body.stop.kind, PL_STOP_KIND_RESTART, "and its enum");
    is_int(pl_messages_take(&left, &message, &is_reply, &body, NULL), PL_OK,
           "the second");
    ok(message == PL_MESSAGE_callback_hooks && is_reply, "is a reply");
    const pl_bytes_t halts = body.callback_hooks_reply.halts;
    ok(halts.size == 24 && ((const uint64_t *)halts.data)[2] == 15,
       "whose numbers can be read in place");
    is_int((intmax_t)left.size, 0, "no more follow");
}

static void damaged_messages_within_a_message_are_refused(void)
{
    unsigned char *copy = malloc(inner.size);
    pl_message_t message;
    pl_body_t body;
    bool is_reply;
    int taken = 0;
    for (size_t size = 1; size < inner.size; size++) {
        pl_bytes_t left = {copy, size};
        memcpy(copy, inner.data, size);
        while (left.size
               && pl_messages_take(&left, &message, &is_reply, &body, NULL) == PL_OK)
            taken++;
    }
    const size_t first = sizeof(pl_message_head_t)
                         + ((pl_message_head_t *)(void *)inner.data)->size;
    is_int(taken, (intmax_t)(inner.size - (first + 7) / 8 * 8),
           "only a whole message is taken");
    memcpy(copy, inner.data, inner.size);
    for (int k = 0; k < 3; k++) {
        pl_bytes_t left = {copy, inner.size};
        pl_message_head_t *head = (pl_message_head_t *)(void *)copy;
        memcpy(copy, inner.data, inner.size);
        if (k == 0)
            head->message = 255;
        else if (k == 1)
            head->kind = PL_KIND_ERROR;
        else
            head->size++;
        is_int(pl_messages_take(&left, &message, &is_reply, &body, NULL), PL_EPROTOCOL,
               "not %s",
               k == 0   ? "an unknown message"
               : k == 1 ? "an error"
                        : "a wrong size");
    }
    free(copy);
}

static void the_stream_shows_messages_within_a_message(void)
{
    char text[4096];
    pl_frame_t frame;
    const pl_decide_t decide = {.messages = pl_messages_bytes(&inner)};
    const pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                             .kind = PL_KIND_CALL,
                             .message = PL_MESSAGE_decide};
    pl_frame_make(&frame, &e, &decide, NULL);
    pl_message_json(pl_frame_bytes(&frame), &(pl_stamp_t){0}, 0, text, sizeof text);
    like(text,
         "\"fields\": \\{\"messages\": \\[\\{\"name\": \"stop\", \"kind\": \"call\", "
         "\"fields\": \\{\"reason\": \"a \\\\\"reason\\\\\"\", \"kind\": "
         "\"restart\"\\}\\}, "
         "\\{\"name\": \"callback_hooks\", \"kind\": \"reply\", ",
         "by name, kind and fields");
    pl_frame_release(&frame);
}

static void bytes_can_be_read_in_place_as_floats(void)
{
    pl_train_batch_reply_t reply = {.bad = "", .metrics = {bytes, 16}};
    pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                       .kind = PL_KIND_REPLY,
                       .message = PL_MESSAGE_train_batch};
    pl_frame_t frame;
    pl_body_t body;
    pl_frame_make(&frame, &e, &reply, NULL);
    pl_frame_decode(pl_frame_bytes(&frame), &body, NULL, NULL);
    is_int((uintptr_t)body.train_batch_reply.metrics.data % 8, 0,
           "after a flag and a text");
    pl_frame_release(&frame);

    pl_replay_plan_t call = {.what = "x", .scalars = {bytes, 4}};
    e.kind = PL_KIND_CALL, e.message = PL_MESSAGE_replay_plan;
    pl_frame_make(&frame, &e, &call, NULL);
    pl_frame_decode(pl_frame_bytes(&frame), &body, NULL, NULL);
    is_int((uintptr_t)body.replay_plan.scalars.data % 8, 0,
           "after a text of two bytes, in a frame with objects");
    pl_frame_release(&frame);
}

static int decode_changed(const pl_frame_t *frame, size_t at, const void *bytes_,
                          size_t size)
{
    pl_bytes_t all = pl_frame_bytes(frame);
    unsigned char *copy = malloc(all.size);
    memcpy(copy, all.data, all.size);
    memcpy(copy + at, bytes_, size);
    int code = decode_copy(copy, all.size);
    free(copy);
    return code;
}

static void bytes_that_are_no_frame_are_refused(void)
{
    pl_stop_t stop = {.reason = "why not"};
    pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                       .kind = PL_KIND_CALL,
                       .message = PL_MESSAGE_stop};
    pl_frame_t frame;
    pl_frame_make(&frame, &e, &stop, NULL);
    is_int(decode_changed(&frame, 0, "\x02", 1), PL_OK, "a frame");
    is_int(decode_changed(&frame, offsetof(pl_envelope_t, version), "\x01", 1),
           PL_EPROTOCOL, "another version");
    is_int(decode_changed(&frame, offsetof(pl_envelope_t, kind), "\x05", 1), PL_EPROTOCOL,
           "an unknown kind");
    is_int(decode_changed(&frame, offsetof(pl_envelope_t, message), "\xff", 1),
           PL_EPROTOCOL, "an unknown message");
    is_int(decode_changed(&frame, sizeof e, "\x00", 1), PL_EPROTOCOL,
           "a text without its zero");
    is_int(decode_changed(&frame, sizeof e, "\x09", 1), PL_EPROTOCOL,
           "a text longer than the frame");
    is_int(decode_changed(&frame, sizeof e + 3, "\x80", 1), PL_EPROTOCOL, "much longer");
    is_int(decode_changed(&frame, sizeof e + 6, "", 1), PL_EPROTOCOL,
           "a text that ends early");
    is_int(decode_changed(&frame, sizeof e + 11, "!", 1), PL_EPROTOCOL, "or never");
    pl_frame_release(&frame);
}

static void an_enum_takes_only_the_numbers_of_its_values(void)
{
    const uint32_t beyond = PL_RANK_EVENT_GONE + 1, largest = UINT32_MAX;
    pl_watch_progress_t report = {.event = PL_RANK_EVENT_GONE, .rank = 3};
    pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                       .kind = PL_KIND_PROGRESS,
                       .message = PL_MESSAGE_watch};
    char text[2048];
    pl_frame_t frame;
    pl_body_t body;
    pl_frame_make(&frame, &e, &report, NULL);
    is_int(decode_changed(&frame, sizeof e, &beyond, 4), PL_EPROTOCOL,
           "one more than the last is refused");
    is_int(decode_changed(&frame, sizeof e, &largest, 4), PL_EPROTOCOL,
           "the largest is refused");
    is_int(pl_frame_decode(pl_frame_bytes(&frame), &body, NULL, NULL), PL_OK,
           "the last is decoded");
    is_int(body.watch_progress.event, PL_RANK_EVENT_GONE, "as what it was");
    const pl_stamp_t stamp = {0};
    pl_message_json(pl_frame_bytes(&frame), &stamp, 0, text, sizeof text);
    like(text, "\"event\": \"gone\", \"rank\": 3", "a line has the name");
    memcpy((char *)pl_frame_bytes(&frame).data + sizeof e, &beyond, sizeof beyond);
    is_int(pl_frame_decode_foreign(pl_frame_bytes(&frame), &body, NULL, NULL, NULL),
           PL_EPROTOCOL, "a number without a name is refused from another process");
    is_int(pl_frame_decode_record(pl_frame_bytes(&frame), &body, NULL, NULL),
           PL_EPROTOCOL, "and in a journal");
    const size_t length = pl_message_json(pl_frame_bytes(&frame), &stamp, 0, text,
                                          sizeof text);
    json_t *line = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    ok(line && !json_object_get(json_object_get(line, "fields"), "event"),
       "a line without the field is JSON");
    json_decref(line);
    pl_frame_release(&frame);
}

static void an_object_that_is_not_in_flight_is_refused(void)
{
    pl_save_t save = {.weights = object_new()};
    pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                       .kind = PL_KIND_CALL,
                       .message = PL_MESSAGE_save};
    pl_frame_t frame;
    pl_body_t body;
    pl_frame_make(&frame, &e, &save, NULL);
    is_int(decode_changed(&frame, sizeof e, "\xee", 1), PL_EPROTOCOL, "another number");
    is_int(pl_frame_decode(pl_frame_bytes(&frame), &body, NULL, NULL), PL_OK,
           "its own is found");
    ok(body.save.weights == (void *)save.weights, "as the same object");
    pl_object_unref(save.weights);
    is_int(objects, 1, "which the frame keeps alive");
    pl_frame_release(&frame);
    is_int(objects, 0, "until it goes");
}

static void an_error_comes_back_as_it_went(void)
{
    pl_error_t went = {.code = PL_EIO, .where = "rank 0 a", .text = "no \"flowers\""},
               came = {0};
    pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                       .kind = PL_KIND_ERROR,
                       .message = PL_MESSAGE_save};
    pl_frame_t frame;
    pl_body_t body;
    memset(went.text, 'x', sizeof went.text - 1);
    pl_frame_make(&frame, &e, &went, NULL);
    is_int(pl_frame_decode(pl_frame_bytes(&frame), &body, &came, NULL), PL_OK, "decoded");
    ok(!memcmp(&went, &came, sizeof went), "code, where and text");
    is_int(decode_changed(&frame, sizeof e, "\0\0\0\0", 4), PL_EPROTOCOL,
           "an error that is none is refused");
    pl_frame_release(&frame);
}

static void a_message_has_a_limit(void)
{
    static char much[PL_MESSAGE_MAX];
    pl_error_t err = {0};
    pl_frame_t frame;
    pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                       .kind = PL_KIND_CALL,
                       .message = PL_MESSAGE_replay_plan};
    memset(much, 'x', sizeof much - 1);
    pl_replay_plan_t too_long = {.what = much, .scalars = {bytes, 1}},
                     too_much = {.what = "", .scalars = {much, sizeof much + 1}};
    is_int(pl_frame_make(&frame, &e, &too_long, &err), PL_EPROTOCOL,
           "a frame is refused when it would be larger");
    like(err.text, "^a message of 16777[0-9]+ bytes; the limit is 16777216",
         "with both sizes");
    is_int(pl_frame_make(&frame, &e, &too_much, &err), PL_EPROTOCOL, "and a field");
    is_int(pl_frame_make(&frame, &e, &too_much, NULL), PL_EPROTOCOL,
           "also without an error");
}

/* ---- lines ---- */

static char line[4096];

static json_t *line_of(const pl_envelope_t *e, const void *fields, size_t capacity)
{
    pl_frame_t frame;
    pl_stamp_t stamp = {.seq = 71, .time = INT64_C(12000451999), .rank = 0};
    pl_frame_make(&frame, e, fields, NULL);
    char *exact = malloc(capacity);
    size_t length = pl_message_json(pl_frame_bytes(&frame), &stamp, 3, exact, capacity);
    memcpy(line, exact, length);
    line[length] = '\0';
    wrong += length != strlen(line) || length >= capacity;
    free(exact);
    pl_frame_release(&frame);
    return json_loads(line, JSON_REJECT_DUPLICATES, NULL);
}

static void to_json(sample_t *s)
{
    json_t *json = line_of(&s->e, &s->body, sizeof line),
           *fields = json_object_get(json, "fields");
    size_t count = 0;
    for (const pl_field_info_t *f = s->fields; f->name; f++, count++)
        wrong += !json_object_get(fields, f->name);
    if (json_object_size(fields) != count && !wrong++)
        tap_diag("%s", line);
    json_decref(json);
}

static void every_message_makes_a_line(void)
{
    wrong = 0;
    each_sample(to_json);
    is_int(wrong, 0, "of JSON, with all of its fields");
}

static const pl_envelope_t callbacks_reply = {.version = PL_PROTOCOL_VERSION,
                                              .kind = PL_KIND_REPLY,
                                              .message = PL_MESSAGE_run_hook,
                                              .run = 0xabc,
                                              .call = 17,
                                              .cause = 12};

static void a_line_is_written_as_documented(void)
{
    pl_run_hook_reply_t reply = {.stop = 1,
                                 .lr_factor = 0.1,
                                 .reason = "a \"good\"\none \x01"};
    json_decref(line_of(&callbacks_reply, &reply, sizeof line));
    is_text(
        line,
        "{\"version\": 2, \"seq\": 71, \"time\": 12.000451, \"run\": "
        "\"0000000000000abc\", \"incarnation\": 0, "
        "\"rank\": 0, "
        "\"from\": \"?\", \"from_level\": 0, \"to\": \"?\", \"to_level\": 0, \"kind\": "
        "\"reply\", \"name\": \"run_hook\", "
        "\"process_id\": 3, \"call\": 17, \"cause\": 12, "
        "\"fields\": {\"stop\": true, \"by_clock\": false, "
        "\"skip\": false, "
        "\"lr_factor\": 0.1, \"accumulate\": 0, \"metrics\": \"\", "
        "\"freeze\": \"\", \"unfreeze\": \"\", \"save\": \"\", "
        "\"drop\": \"\", \"reason\": \"a \\\"good\\\"\\u000aone \\u0001\"}}",
        "key by key");
}

static void odd_values_are_still_json(void)
{
    static const double odd[] = {
        1.7976931348623157e308, 1e300, -1e-300, 5e-324, 0.0 / 0.0, 1 / 0.0, -1 / 0.0,
        1763690000.25};
    wrong = 0;
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        pl_run_hook_reply_t reply = {
            .lr_factor = odd[k],
            .reason = "\xff\xc3\xc3\xa4\xed\xa0\x80\xf4\x90\x80\x80 \x7f"};
        json_t *json = line_of(&callbacks_reply, &reply, sizeof line);
        wrong += !json;
        json_decref(json);
    }
    is_int(wrong, 0, "whatever the number, and bytes that are no text");
    like(line, "\"lr_factor\": 1763690000.25,", "numbers keep 15 digits");
    pl_replay_plan_t call = {.what = "", .seed = UINT64_MAX};
    pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                       .kind = PL_KIND_CALL,
                       .message = PL_MESSAGE_replay_plan};
    json_t *json = line_of(&e, &call, sizeof line);
    ok(json_is_real(json_object_get(json_object_get(json, "fields"), "seed")),
       "an integer that readers have no room for");
    json_decref(json);
}

static void the_locale_does_not_matter(void)
{
    static const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE",
                                         "nl_NL.UTF-8"};
    const char *found = NULL;
    for (size_t k = 0; k < sizeof commas / sizeof *commas && !found; k++)
        found = setlocale(LC_NUMERIC, commas[k]);
    if (!found) {
        tap_skip("no locale with a decimal comma");
        return;
    }
    json_decref(line_of(&callbacks_reply,
                        &(pl_run_hook_reply_t){.lr_factor = 0.5, .reason = ""},
                        sizeof line));
    setlocale(LC_NUMERIC, "C");
    like(line, "\"lr_factor\": 0\\.5,", "a point is a point under %s", found);
}

static void a_line_that_is_cut_is_still_json(void)
{
    char text[1200];
    int cut = 0, whole = 0;
    wrong = 0;
    for (size_t k = 0; k + 4 < sizeof text; k += 4)
        memcpy(text + k, k % 3 ? "\xe2\x82\xac\"" : "\x01 \xffx", 4);
    text[sizeof text - 4] = '\0';
    for (size_t capacity = PL_LINE_MIN; capacity < sizeof line; capacity++) {
        pl_log_metrics_t call = {.epoch = 1, .metrics = text};
        pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                           .kind = PL_KIND_CALL,
                           .message = PL_MESSAGE_log_metrics};
        json_t *json = line_of(&e, &call, capacity),
               *fields = json_object_get(json, "fields");
        const char *metrics = json_string_value(json_object_get(fields, "metrics"));
        size_t length = metrics ? strlen(metrics) : 0;
        wrong += !json || !json_object_get(fields, "epoch") || length < 100;
        if (length > 3 && !strcmp(metrics + length - 3, "\xe2\x80\xa6"))
            cut++;
        else
            whole++;
        json_decref(json);
    }
    is_int(wrong, 0, "at every length");
    ok(cut > 500 && whole > 500,
       "a text that is cut, %d times, ends in an ellipsis, one that is not, %d times, "
       "does not",
       cut, whole);
    pl_stamp_t stamp = {0};
    is_int(pl_message_json((pl_bytes_t){text, 10}, &stamp, 0, line, sizeof line), 0,
           "what is no frame makes no line");
}

static void a_frame_that_is_cut_makes_a_line_of_its_rest(void)
{
    pl_frame_t frame;
    pl_stamp_t stamp = {0};
    pl_run_hook_reply_t reply = {.stop = 1, .lr_factor = 0.5, .reason = "a good one"};
    wrong = 0;
    pl_frame_make(&frame, &callbacks_reply, &reply, NULL);
    pl_bytes_t all = pl_frame_bytes(&frame);
    size_t before = 0;
    int fields = 0;
    while (pl_message_info(PL_MESSAGE_run_hook)->fields[2][fields].name)
        fields++;
    for (size_t size = sizeof(pl_envelope_t); size <= all.size; size++) {
        char *copy = malloc(size);
        memcpy(copy, all.data, size);
        pl_message_json((pl_bytes_t){copy, size}, &stamp, 0, line, sizeof line);
        free(copy);
        json_t *json = json_loads(line, 0, NULL);
        size_t count = json_object_size(json_object_get(json, "fields"));
        wrong += !json || count < before;
        before = count;
        json_decref(json);
    }
    is_int(before, fields, "all fields at last");
    is_int(wrong, 0, "and never less than before");
    pl_frame_release(&frame);
}

int main(void)
{
    inner_init();
    run(every_message_comes_back_as_it_went);
    run(an_object_goes_to_another_process_as_a_number);
    run(a_frame_too_short_or_long_is_refused);
    run(structs_are_laid_out_as_the_codec_walks);
    run(messages_within_a_message_come_back_typed);
    run(damaged_messages_within_a_message_are_refused);
    run(the_stream_shows_messages_within_a_message);
    run(bytes_can_be_read_in_place_as_floats);
    run(bytes_that_are_no_frame_are_refused);
    run(an_enum_takes_only_the_numbers_of_its_values);
    run(an_object_that_is_not_in_flight_is_refused);
    run(an_error_comes_back_as_it_went);
    run(a_message_has_a_limit);
    run(every_message_makes_a_line);
    run(a_line_is_written_as_documented);
    run(odd_values_are_still_json);
    run(the_locale_does_not_matter);
    run(a_line_that_is_cut_is_still_json);
    run(a_frame_that_is_cut_makes_a_line_of_its_rest);
    pl_messages_release(&inner);
    return tap_done();
}
