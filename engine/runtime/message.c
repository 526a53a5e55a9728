/* message.c - messages on the wire: an envelope and the fields that messages.def lists
 *
 * A struct has its fields in the order of messages.def, each aligned by its own type, so
 * a walk over the field list computes every offset.  wire.h describes the encoding.  A
 * handle is encoded as a number of the table of objects in flight. */
#include "runtime/message.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "runtime/wire.h"
#include "transport/tsan_annotations.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little-endian");

/* ---- the tables of messages.def ---- */

#define PL_ENUM_BEGIN(type, help) const char *const pl_##type##_names[] = {
#define PL_ENUM_VALUE(constant, name, help) name,
#define PL_ENUM_END(type) \
    NULL \
    } \
    ;
#include "messages/enums.def"

#define PL_ENUM_BEGIN(type, help) static const char *const type##_meanings[] = {
#define PL_ENUM_VALUE(constant, name, help) help,
#define PL_ENUM_END(type) \
    } \
    ; \
    _Static_assert(sizeof(pl_##type##_t) == sizeof(uint32_t), "it travels as 32 bits");
#include "messages/enums.def"

typedef enum enum_number {
#define PL_ENUM_BEGIN(type, help) ENUM_##type,
#include "messages/enums.def"
    ENUMS
} enum_number_t;

static const pl_enum_info_t enums[ENUMS] = {
#define PL_ENUM_BEGIN(type, help) \
    [ENUM_##type] = {#type, help, \
                     sizeof pl_##type##_names / sizeof *pl_##type##_names - 1, \
                     pl_##type##_names, type##_meanings},
#include "messages/enums.def"
};

int pl_enum_find(const char *const *names, const char *name)
{
    for (int k = 0; names[k]; k++)
        if (!strcmp(names[k], name))
            return k;
    return -1;
}

const pl_enum_info_t *pl_enum_at(int k)
{
    return k >= 0 && k < ENUMS ? &enums[k] : NULL;
}

#define PL_FIELD(kind, field, text) {#field, PL_TYPE_##kind, text, NULL},
#define PL_ENUM(kind, field, text) {#field, PL_TYPE_ENUM, text, &enums[ENUM_##kind]},
#define PL_U32(name, help) PL_FIELD(U32, name, help)
#define PL_U64(name, help) PL_FIELD(U64, name, help)
#define PL_F64(name, help) PL_FIELD(F64, name, help)
#define PL_FLAG(name, help) PL_FIELD(FLAG, name, help)
#define PL_STRING(name, help) PL_FIELD(STRING, name, help)
#define PL_DATA(name, help) PL_FIELD(DATA, name, help)
#define PL_MESSAGES(name, help) PL_FIELD(MESSAGES, name, help)
#define PL_HANDLE(name, help) PL_FIELD(HANDLE, name, help)
#define PL_PEERS(name, help) PL_FIELD(PEERS, name, help)
#define PL_CALL(name, number, from, to, help) \
    static const pl_field_info_t name##_fields[] = {
#define PL_PROGRESS(name) \
    FIELDS_END \
    } \
    ; \
    static const pl_field_info_t name##_progress_fields[] = {
#define PL_REPLY(name) \
    FIELDS_END \
    } \
    ; \
    static const pl_field_info_t name##_reply_fields[] = {
#define PL_END(name) \
    FIELDS_END \
    } \
    ;
#define FIELDS_END \
    { \
        NULL, PL_TYPE_U32, NULL, NULL \
    }
#include "messages/messages.def"

/* Sets of levels have one bit for each level, so that `from` and `to` of messages.def are
 * expressions. */
enum {
#define PL_LEVEL(name, height, what) BIT_OF_##name,
#include "messages/levels.def"
};
enum {
#define PL_LEVEL(name, height, what) name = 1 << BIT_OF_##name,
#define PL_LEVEL_SET(name, levels) name = levels,
#include "messages/levels.def"
};

bool pl_level_is_in(int levels, int height)
{
    static const int set[] = {
#define PL_LEVEL(name, height, what) [height] = name,
#include "messages/levels.def"
    };
    const bool is_known = height >= 0 && (size_t)height < sizeof set / sizeof *set;
    return levels == ANY || (is_known && (levels & set[height]));
}

enum { MESSAGE_NUMBERS = 256 };

static const pl_message_info_t messages[MESSAGE_NUMBERS] = {
#define PL_CALL(label, number, from, to, help) \
    [number] = {#label, \
                help, \
                #from, \
                #to, \
                from, \
                to, \
                {label##_fields, label##_progress_fields, label##_reply_fields}},
#include "messages/messages.def"
};

const pl_message_info_t *pl_message_info(unsigned number)
{
    return number < MESSAGE_NUMBERS && messages[number].name ? &messages[number] : NULL;
}

const pl_message_info_t *pl_message_at(int k, unsigned *number)
{
    for (unsigned n = 0; n < MESSAGE_NUMBERS; n++)
        if (messages[n].name && k-- == 0) {
            *number = n;
            return &messages[n];
        }
    return NULL;
}

int pl_section_of_kind(pl_kind_t kind)
{
    return kind == PL_KIND_CALL       ? 0
           : kind == PL_KIND_PROGRESS ? 1
           : kind == PL_KIND_REPLY    ? 2
                                      : -1;
}

static const struct {
    size_t size, align;
} layout[] = {
    [PL_TYPE_U32] = {sizeof(uint32_t), alignof(uint32_t)},
    [PL_TYPE_U64] = {sizeof(uint64_t), alignof(uint64_t)},
    [PL_TYPE_F64] = {sizeof(double), alignof(double)},
    [PL_TYPE_FLAG] = {sizeof(uint32_t), alignof(uint32_t)},
    [PL_TYPE_ENUM] = {sizeof(uint32_t), alignof(uint32_t)},
    [PL_TYPE_STRING] = {sizeof(char *), alignof(char *)},
    [PL_TYPE_DATA] = {sizeof(pl_bytes_t), alignof(pl_bytes_t)},
    [PL_TYPE_MESSAGES] = {sizeof(pl_bytes_t), alignof(pl_bytes_t)},
    [PL_TYPE_HANDLE] = {sizeof(pl_object_t *), alignof(pl_object_t *)},
    [PL_TYPE_PEERS] = {sizeof(pl_peers_t), alignof(pl_peers_t)},
};

size_t pl_field_place(pl_field_type_t type, size_t *offset)
{
    const size_t align = layout[type].align,               /* a power of two */
                 at = (*offset + align - 1) & ~(align - 1);
    *offset = at + layout[type].size;
    return at;
}

pl_object_t **pl_message_object(const pl_envelope_t *envelope, void *fields)
{
    const int section = pl_section_of_kind(envelope->kind);
    size_t offset = 0;
    if (section < 0)
        return NULL;
    for (const pl_field_info_t *f = messages[envelope->message].fields[section]; f->name;
         f++) {
        char *at = (char *)fields + pl_field_place(f->type, &offset);
        if (f->type == PL_TYPE_HANDLE)
            return (pl_object_t **)(void *)at;
    }
    return NULL;
}

/* ---- frames ---- */

/* The memory of a frame with objects; payload_release() frees it, on whichever thread
 * ZeroMQ drops the frame. */
typedef struct payload {
    int handle_count;
    uint64_t handle[PL_HANDLES_MAX];
    unsigned char bytes[];
} payload_t;

/* Any thread. */
static void payload_release(void *bytes, void *hint)
{
    (void)bytes;
    payload_t *payload = hint;
    PL_TSAN_ACQUIRE();
    for (int k = 0; k < payload->handle_count; k++)
        pl_flight_leave(payload->handle[k]);
    pl_free(payload);
}

/* Measures, and writes as far as there is room. */
typedef struct frame_writer {
    unsigned char *at;
    size_t size, room;
    payload_t *payload;                                     /* while measuring: NULL */
    int handle_count;
    bool is_foreign;                            /* has `transfer` in place of an object */
    uint64_t transfer;
    pl_error_t *err;
    bool failed;
} frame_writer_t;

static void put(frame_writer_t *w, const void *data, size_t size)
{
    if (size && w->size + size <= w->room)
        memcpy(w->at + w->size, data, size);
    w->size += size;
}

static void put_length(frame_writer_t *w, size_t size)
{
    uint32_t length = (uint32_t)size;
    if (size > PL_MESSAGE_MAX && !w->failed) {
        pl_fail(w->err, PL_EPROTOCOL, "a message field of %zu bytes; the limit is %d",
                size, PL_MESSAGE_MAX);
        w->failed = true;
    }
    put(w, &length, sizeof length);
}

static void put_text(frame_writer_t *w, const char *text)
{
    size_t size = text ? strlen(text) + 1 : 1;
    put_length(w, size);
    put(w, text ? text : "", size);
}

static void put_field(frame_writer_t *w, pl_field_type_t type, const void *field)
{
    static const char zeros[8];
    const pl_bytes_t *bytes = field;
    pl_object_t *object = type == PL_TYPE_HANDLE ? *(pl_object_t *const *)field : NULL;
    uint64_t number = w->transfer;
    switch (type) {
    case PL_TYPE_STRING: put_text(w, *(const char *const *)field); break;
    case PL_TYPE_DATA:
    case PL_TYPE_MESSAGES:
        put_length(w, bytes->size);
        put(w, zeros, pl_padding(w->size));
        put(w, bytes->data, bytes->size);
        break;
    case PL_TYPE_HANDLE:
        w->handle_count += !w->is_foreign;
        if (w->payload && object) {
            number = pl_flight_enter(object, w->err);
            w->failed |= !number;
            if (number)
                w->payload->handle[w->payload->handle_count++] = number;
        }
        put(w, &number, sizeof number);
        break;
    default: put(w, field, layout[type].size); break;
    }
}

static void put_fields(frame_writer_t *w, unsigned message, int section,
                       const void *fields)
{
    size_t offset = 0;
    for (const pl_field_info_t *f = messages[message].fields[section]; f->name; f++)
        put_field(w, f->type, (const char *)fields + pl_field_place(f->type, &offset));
}

static void put_frame(frame_writer_t *w, const pl_envelope_t *envelope,
                      const void *fields)
{
    put(w, envelope, sizeof *envelope);
    int section = pl_section_of_kind(envelope->kind);
    if (envelope->kind == PL_KIND_ERROR) {
        const pl_error_t *error = fields;
        const int32_t code = error->code;
        put(w, &code, sizeof code);
        put_text(w, error->where);
        put_text(w, error->text);
    }
    if (section >= 0)
        put_fields(w, envelope->message, section, fields);
}

/* Plain memory holds a frame without objects, a payload one with objects.  A small frame
 * without objects is complete when it is measured. */
static int frame_make(frame_writer_t w, pl_frame_t *frame, const pl_envelope_t *envelope,
                      const void *fields, pl_error_t *err)
{
    pl_error_t own;
    unsigned char small[256];
    w.err = err ? err : &own;
    w.at = small;
    w.room = sizeof small;
    put_frame(&w, envelope, fields);
    const size_t size = w.size;
    if (!w.failed && size > PL_MESSAGE_MAX)
        return pl_fail(err, PL_EPROTOCOL, "a message of %zu bytes; the limit is %d", size,
                       PL_MESSAGE_MAX);
    if (w.failed)
        return w.err->code;
    if (w.handle_count) {
        w.payload = pl_alloc(sizeof *w.payload + size);
        if (!w.payload)
            return pl_no_memory(w.err);
        if (pl_frame_wrap(frame, w.payload->bytes, size, payload_release, w.payload,
                          w.err)
            != PL_OK) {
            pl_free(w.payload);
            return PL_ENOMEM;
        }
    }
    w.at = w.payload ? w.payload->bytes : pl_frame_new(frame, size, w.err);
    if (!w.at)
        return PL_ENOMEM;
    if (!w.payload && size <= sizeof small) {
        memcpy(w.at, small, size);
        return PL_OK;
    }
    w.size = 0;
    w.room = size;
    w.handle_count = 0;
    put_frame(&w, envelope, fields);
    if (!w.failed)
        return PL_OK;
    pl_frame_release(frame);
    return w.err->code;
}

int pl_frame_make(pl_frame_t *frame, const pl_envelope_t *envelope, const void *fields,
                  pl_error_t *err)
{
    return frame_make((frame_writer_t){0}, frame, envelope, fields, err);
}

int pl_frame_make_foreign(pl_frame_t *frame, const pl_envelope_t *envelope,
                          const void *fields, uint64_t transfer, pl_error_t *err)
{
    return frame_make((frame_writer_t){.is_foreign = true, .transfer = transfer}, frame,
                      envelope, fields, err);
}

pl_envelope_t pl_frame_envelope(const pl_frame_t *frame)
{
    pl_envelope_t e;
    memcpy(&e, pl_frame_bytes(frame).data, sizeof e);
    return e;
}

/* ---- decoding ---- */

int pl_envelope_read(pl_bytes_t frame, pl_envelope_t *e, pl_error_t *err)
{
    pl_reader_t r = pl_reader(frame);
    if (!pl_read(&r, e, sizeof *e))
        return pl_fail(err, PL_EPROTOCOL, "a frame of %zu bytes", frame.size);
    if (e->version != PL_PROTOCOL_VERSION)
        return pl_fail(err, PL_EPROTOCOL,
                       "protocol version %u; this process has version %d", e->version,
                       PL_PROTOCOL_VERSION);
    if (e->kind >= PL_KINDS)
        return pl_fail(err, PL_EPROTOCOL, "unknown kind of message: %u", e->kind);
    if (!pl_message_info(e->message))
        return pl_fail(err, PL_EPROTOCOL, "unknown message: %u", e->message);
    return PL_OK;
}

static bool get_field(pl_reader_t *r, const pl_field_info_t *info, void *field)
{
    uint32_t *choice = field;
    switch (info->type) {
    case PL_TYPE_ENUM:
        return pl_read(r, choice, sizeof *choice) && *choice < info->values->count;
    case PL_TYPE_STRING: return pl_read_text(r, field);
    case PL_TYPE_DATA:
    case PL_TYPE_MESSAGES: return pl_read_data(r, field);
    case PL_TYPE_HANDLE: {
        pl_object_t **object = field;
        uint64_t number;
        if (!pl_read(r, &number, sizeof number))
            return false;
        if (r->is_foreign) {
            *object = NULL;
            if (number && (!r->transfer || *r->transfer))
                return false;
            if (number)
                *r->transfer = number;
            return true;
        }
        *object = number && !r->is_record ? pl_flight_find(number) : NULL;
        return *object || !number || r->is_record;
    }
    case PL_TYPE_PEERS: return pl_read_peers(r, field);
    default: return pl_read(r, field, layout[info->type].size);
    }
}

static bool get_fields(pl_reader_t *r, unsigned message, int section, pl_body_t *body)
{
    size_t offset = 0;
    for (const pl_field_info_t *f = messages[message].fields[section]; f->name; f++)
        if (!get_field(r, f, (char *)body + pl_field_place(f->type, &offset)))
            return false;
    return true;
}

static bool get_body(pl_reader_t *r, const pl_envelope_t *e, pl_body_t *body,
                     pl_error_t *error)
{
    const int section = pl_section_of_kind(e->kind);
    if (e->kind == PL_KIND_ERROR) {
        int32_t code;
        const char *where, *text;
        if (!pl_read(r, &code, sizeof code) || code >= 0 || !pl_read_text(r, &where)
            || !pl_read_text(r, &text))
            return false;
        error->code = code;
        snprintf(error->where, sizeof error->where, "%s", where);
        snprintf(error->text, sizeof error->text, "%s", text);
        return true;
    }
    return section < 0 || get_fields(r, e->message, section, body);
}

static int frame_decode(pl_reader_t r, pl_body_t *body, pl_error_t *error,
                        pl_error_t *err)
{
    pl_envelope_t e;
    int code = pl_envelope_read((pl_bytes_t){r.start, (size_t)(r.end - r.start)}, &e,
                                err);
    if (code != PL_OK)
        return code;
    r.at += sizeof e;
    if (get_body(&r, &e, body, error) && r.at == r.end)
        return PL_OK;
    return pl_fail(err, PL_EPROTOCOL, "a malformed %s message", messages[e.message].name);
}

int pl_frame_decode(pl_bytes_t frame, pl_body_t *body, pl_error_t *error, pl_error_t *err)
{
    return frame_decode(pl_reader(frame), body, error, err);
}

int pl_frame_decode_foreign(pl_bytes_t frame, pl_body_t *body, pl_error_t *error,
                            uint64_t *transfer, pl_error_t *err)
{
    pl_reader_t r = pl_reader(frame);
    r.is_foreign = true;
    r.transfer = transfer;
    if (transfer)
        *transfer = 0;
    return frame_decode(r, body, error, err);
}

int pl_frame_decode_record(pl_bytes_t frame, pl_body_t *body, pl_error_t *error,
                           pl_error_t *err)
{
    pl_reader_t r = pl_reader(frame);
    r.is_record = true;
    return frame_decode(r, body, error, err);
}

/* ---- messages within a message ---- */

int pl_messages_add(pl_messages_t *list, pl_message_t message, bool is_reply,
                    const void *fields, pl_error_t *err)
{
    static const char zeros[8];
    const pl_kind_t kind = is_reply ? PL_KIND_REPLY : PL_KIND_CALL;
    const int section = pl_section_of_kind(kind);
    pl_error_t own;
    frame_writer_t w = {.is_foreign = true, .err = err ? err : &own};
    put_fields(&w, message, section, fields);
    if (w.failed)
        return w.err->code;
    const pl_message_head_t head = {(uint16_t)message, (uint8_t)kind, 0,
                                    (uint32_t)w.size};
    const size_t size = sizeof head + w.size + pl_padding(w.size);
    if (list->capacity - list->size < size) {
        const size_t capacity = 2 * list->capacity + size;
        unsigned char *data = pl_resize(list->data, capacity);
        if (!data)
            return pl_no_memory(err);
        list->data = data;
        list->capacity = capacity;
    }
    unsigned char *at = list->data + list->size;
    memcpy(at, &head, sizeof head);
    w.at = at + sizeof head;
    w.size = 0;
    w.room = size - sizeof head;
    put_fields(&w, message, section, fields);
    put(&w, zeros, pl_padding(w.size));
    list->size += size;
    return PL_OK;
}

void pl_messages_release(pl_messages_t *list)
{
    pl_free(list->data);
    *list = (pl_messages_t){0};
}

pl_bytes_t pl_messages_bytes(const pl_messages_t *list)
{
    return (pl_bytes_t){list->data, list->size};
}

int pl_messages_take(pl_bytes_t *list, pl_message_t *message, bool *is_reply,
                     pl_body_t *body, pl_error_t *err)
{
    pl_reader_t r = pl_reader(*list), fields;
    pl_message_head_t head;
    if (!pl_read_message(&r, &head, &fields)
        || !get_fields(&fields, head.message, pl_section_of_kind(head.kind), body)
        || fields.at != fields.end)
        return pl_fail(err, PL_EPROTOCOL, "a malformed message within a message");
    *message = (pl_message_t)head.message;
    *is_reply = head.kind == PL_KIND_REPLY;
    *list = (pl_bytes_t){r.at, (size_t)(r.end - r.at)};
    return PL_OK;
}

/* ---- kinds of actors in a frame ---- */

typedef void (*kind_visitor_t)(void *user, uint32_t *number);

/* The number may be at any address. */
static void kind_visit(unsigned char *at, kind_visitor_t visit, void *user)
{
    uint32_t before, number;
    memcpy(&before, at, sizeof before);
    number = before;
    visit(user, &number);
    if (number != before)
        memcpy(at, &number, sizeof number);
}

void pl_frame_kinds(pl_bytes_t frame, kind_visitor_t visit, void *user)
{
    unsigned char *bytes = (unsigned char *)frame.data;
    pl_envelope_t e;
    union {
        pl_body_t body;
        pl_peers_t peers;
    } field;
    memcpy(&e, bytes, sizeof e);
    kind_visit(bytes + offsetof(pl_envelope_t, from_kind), visit, user);
    kind_visit(bytes + offsetof(pl_envelope_t, to_kind), visit, user);
    const int section = pl_section_of_kind(e.kind);
    if (section < 0)
        return;
    const pl_field_info_t *f = messages[e.message].fields[section];
    while (f->name && f->type != PL_TYPE_PEERS)
        f++;
    if (!f->name)
        return;                                     /* most messages: nothing to decode */
    pl_reader_t r = pl_reader(frame);
    r.is_record = true;
    r.at += sizeof e;
    for (f = messages[e.message].fields[section]; f->name; f++) {
        unsigned char *at = bytes + (r.at - r.start);
        if (!get_field(&r, f, &field))
            return;
        for (uint32_t k = 0; f->type == PL_TYPE_PEERS && k < field.peers.count; k++) {
            const char *kind = (const char *)&field.peers.peer[k].at.kind;
            kind_visit(at + (kind - (const char *)&field.peers), visit, user);
        }
    }
}
