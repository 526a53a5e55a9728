/* message_json.c - a frame as a line of the stream, for people and clients
 *
 * It uses no JSON library: it runs for every message while a viewer is connected, and
 * the object is flat.  It walks the same field list as the codec and does not trust
 * the bytes. A member that does not fit is left out, so a line is valid JSON for every
 * capacity; only texts are cut. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "runtime/message.h"
#include "runtime/wire.h"

const char *const pl_message_kinds[PL_KINDS] = {"call", "progress", "reply", "error",
                                                "cancel"};

typedef struct json_line {
    char *text;
    size_t length, capacity;
    bool full;                                            /* the last piece did not fit */
} json_line_t;

static const char CUT[] = "\xe2\x80\xa6";                   /* "…" */
static const char CLOSE[] = "}}";

static void add(json_line_t *l, const char *text, size_t length)
{
    if (l->full || length >= l->capacity - l->length) {
        l->full = true;
        return;
    }
    memcpy(l->text + l->length, text, length);
    l->length += length;
    l->text[l->length] = '\0';
}

static void add_plain(json_line_t *l, const char *text)
{
    add(l, text, strlen(text));
}

/* The digits of a number, with leading zeros up to `min` digits.  Much faster than
 * snprintf(), and a line has ten of them. */
static void add_digits(json_line_t *l, uint64_t value, unsigned base, size_t min)
{
    char text[24], *first = text + sizeof text;
    do {
        *--first = "0123456789abcdef"[value % base];
        value /= base;
    } while (value);
    while (text + sizeof text - first < (ptrdiff_t)min)
        *--first = '0';
    add(l, first, (size_t)(text + sizeof text - first));
}

static void add_signed(json_line_t *l, int64_t value)
{
    if (value < 0)
        add(l, "-", 1);
    add_digits(l, value < 0 ? -(uint64_t)value : (uint64_t)value, 10, 1);
}

/* Writes one character as JSON; returns the number of bytes that it had in the text. */
static size_t escape(const char *text, size_t left, char escaped[static 8])
{
    const unsigned char *s = (const unsigned char *)text;
    uint32_t code;
    size_t n = (size_t)pl_utf8_get(s, left, &code);
    if (n == 0)
        strcpy(escaped, "\\ufffd");
    else if (*s == '"' || *s == '\\')
        snprintf(escaped, 8, "\\%c", *s);
    else if (*s < 0x20)
        snprintf(escaped, 8, "\\u%04x", *s);
    else
        snprintf(escaped, 8, "%.*s", (int)n, text);
    return n ? n : 1;
}

static void add_text(json_line_t *l, const char *text)
{
    const size_t end = sizeof CUT - 1 + 2;          /* for the mark, a quote and a zero */
    size_t left = strlen(text);
    char escaped[8] = "";
    add(l, "\"", 1);
    while (left && !l->full) {
        size_t fits = l->capacity - l->length > end ? l->capacity - l->length - end : 0;
        size_t run = 0;                                     /* bytes without an escape */
        while (run < left && run < fits && text[run] >= 0x20 && text[run] < 0x7f
               && text[run] != '"' && text[run] != '\\')
            run++;
        size_t taken = run < left ? escape(text + run, left - run, escaped) : 0,
               length = taken ? strlen(escaped) : 0;
        add(l, text, run);
        if (run + length > fits) {
            add(l, CUT, sizeof CUT - 1);
            break;
        }
        add(l, escaped, length);
        text += run + taken;
        left -= run + taken;
    }
    add(l, "\"", 1);
}

/* The locale of the program may have another decimal point; JSON has not. */
static void add_number(json_line_t *l, double value)
{
    char text[40], plain[40];
    if (!isfinite(value)) {
        add_plain(l, isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"");
        return;
    }
    size_t length = 0;
    /* With 15 digits the largest numbers would be rounded up to infinity. */
    snprintf(text, sizeof text, "%.*g", fabs(value) < 1e308 ? 15 : 17, value);
    for (const char *c = text; *c; c++) {
        if (strchr("0123456789+-e", *c))
            plain[length++] = *c;
        else if (length && plain[length - 1] != '.')
            plain[length++] = '.';
    }
    add(l, plain, length);
}

/* As a JSON integer if it fits into 63 bits: most readers have no more. */
static void add_count(json_line_t *l, uint64_t value)
{
    if (value <= INT64_MAX)
        add_digits(l, value, 10, 1);
    else
        add_number(l, (double)value);
}

static void add_members(json_line_t *l, unsigned message, pl_kind_t kind, pl_reader_t *r);

/* [{"name": …, "kind": …, "fields": {…}}, …]: as the keys of a line are called. */
static bool add_messages(json_line_t *l, pl_bytes_t bytes)
{
    static const char close[] = "}}]";
    pl_reader_t list = pl_reader(bytes), fields;
    pl_message_head_t head;
    add_plain(l, "[");
    l->capacity -= sizeof close - 1;              /* what has been opened can be closed */
    while (list.at < list.end && !l->full) {
        const char *before = list.at == list.start ? "" : ", ";
        if (!pl_read_message(&list, &head, &fields))
            break;
        add_plain(l, before);
        add_plain(l, "{\"name\": ");
        add_text(l, pl_message_info(head.message)->name);
        add_plain(l, ", \"kind\": ");
        add_text(l, pl_message_kinds[head.kind]);
        add_plain(l, ", \"fields\": {");
        if (!l->full)
            add_members(l, head.message, head.kind, &fields);
        l->capacity += 2;
        add_plain(l, "}}");
        l->capacity -= 2;
    }
    l->capacity += sizeof close - 1;
    add_plain(l, "]");
    return list.at == list.end || l->full;
}

/* One value; false when the bytes are not one. */
static bool add_value(json_line_t *l, const pl_field_info_t *info, pl_reader_t *r)
{
    uint32_t u32;
    uint64_t u64;
    double number;
    const char *text;
    pl_bytes_t bytes;
    pl_peers_t peers;
    switch (info->type) {
    case PL_TYPE_ENUM:
    case PL_TYPE_U32:
    case PL_TYPE_FLAG:
        if (!pl_read(r, &u32, sizeof u32) || (info->values && u32 >= info->values->count))
            return false;
        if (info->values)
            add_text(l, info->values->names[u32]);
        else if (info->type == PL_TYPE_U32)
            add_count(l, u32);
        else
            add_plain(l, u32 ? "true" : "false");
        return true;
    case PL_TYPE_U64:
    case PL_TYPE_HANDLE:
        if (!pl_read(r, &u64, sizeof u64))
            return false;
        if (info->type == PL_TYPE_U64)
            add_count(l, u64);
        else
            add_plain(l, u64 ? "true" : "null");
        return true;
    case PL_TYPE_F64:
        if (!pl_read(r, &number, sizeof number))
            return false;
        add_number(l, number);
        return true;
    case PL_TYPE_STRING:
        if (!pl_read_text(r, &text))
            return false;
        add_text(l, text);
        return true;
    case PL_TYPE_DATA:
        if (!pl_read_data(r, &bytes))
            return false;
        add_digits(l, bytes.size, 10, 1);
        return true;
    case PL_TYPE_MESSAGES: return pl_read_data(r, &bytes) && add_messages(l, bytes);
    case PL_TYPE_PEERS:
        if (!pl_read_peers(r, &peers))
            return false;
        add_plain(l, "{");
        for (uint32_t k = 0; k < peers.count; k++) {
            add_plain(l, k ? ", " : "");
            add_text(l, peers.peer[k].role);
            add_plain(l, ": ");
            add_text(l, pl_kind_name(peers.peer[k].at.kind));
        }
        add_plain(l, "}");
        return true;
    }
    return false;
}

/* Adds nothing if the member does not fit; false if the bytes are malformed. */
static bool add_member(json_line_t *l, const pl_field_info_t *info, pl_reader_t *r)
{
    size_t before = l->length;
    add_plain(l, l->text[before - 1] == '{' ? "\"" : ", \"");
    add_plain(l, info->name);
    add_plain(l, "\": ");
    bool good = add_value(l, info, r);
    if (!good || l->full) {
        l->length = before;
        l->full = false;
    }
    return good;
}

static void add_members(json_line_t *l, unsigned message, pl_kind_t kind, pl_reader_t *r)
{
    const pl_field_info_t *f = pl_message_info(message)->fields[pl_section_of_kind(kind)];
    while (f->name && add_member(l, f, r))
        f++;
}

static void add_fields(json_line_t *l, const pl_envelope_t *e, pl_reader_t *r)
{
    static const pl_field_info_t where = {.name = "where", .type = PL_TYPE_STRING},
                                 text = {.name = "text", .type = PL_TYPE_STRING};
    int32_t code;
    if (e->kind == PL_KIND_ERROR && pl_read(r, &code, sizeof code)) {
        add_plain(l, "\"code\": \"");
        add_plain(l, pl_code_name(code));
        add_plain(l, "\"");
        if (add_member(l, &where, r))
            add_member(l, &text, r);
    }
    if (pl_section_of_kind(e->kind) >= 0)
        add_members(l, e->message, e->kind, r);
}

static void add_actor(json_line_t *l, const char *role, const char *level, uint32_t kind)
{
    add_plain(l, role);
    add_text(l, pl_kind_name(kind));
    add_plain(l, level);
    add_signed(l, pl_kind_level(kind));
}

size_t pl_message_json(pl_bytes_t frame, const pl_stamp_t *stamp, uint32_t process_id,
                       char *text, size_t capacity)
{
    pl_envelope_t e;
    if (capacity < PL_LINE_MIN || pl_envelope_read(frame, &e, NULL) != PL_OK)
        return 0;
    json_line_t l = {.text = text, .capacity = capacity - (sizeof CLOSE - 1)};
    pl_reader_t r = pl_reader(frame);
    r.at += sizeof e;
    add_plain(&l, "{\"version\": ");
    add_digits(&l, PL_STREAM_VERSION, 10, 1);
    add_plain(&l, ", \"seq\": ");
    add_digits(&l, stamp->seq, 10, 1);
    add_plain(&l, ", \"time\": ");
    add_signed(&l, stamp->time / 1000000000);
    add_plain(&l, ".");
    add_digits(&l, (uint64_t)(stamp->time % 1000000000 / 1000), 10, 6);
    add_plain(&l, ", \"run\": \"");
    add_digits(&l, e.run, 16, 16);
    add_plain(&l, "\", \"incarnation\": ");
    add_digits(&l, e.incarnation, 10, 1);
    add_plain(&l, ", \"rank\": ");
    add_signed(&l, stamp->rank);
    add_actor(&l, ", \"from\": ", ", \"from_level\": ", e.from_kind);
    add_actor(&l, ", \"to\": ", ", \"to_level\": ", e.to_kind);
    add_plain(&l, ", \"kind\": \"");
    add_plain(&l, pl_message_kinds[e.kind]);
    add_plain(&l, "\", \"name\": ");
    add_text(&l, pl_message_info(e.message)->name);
    add_plain(&l, ", \"process_id\": ");
    add_digits(&l, process_id, 10, 1);
    add_plain(&l, ", \"call\": ");
    add_count(&l, e.call);
    add_plain(&l, ", \"cause\": ");
    add_count(&l, e.cause);
    add_plain(&l, ", \"fields\": {");
    add_fields(&l, &e, &r);
    l.capacity = capacity;
    add_plain(&l, CLOSE);
    return l.length;
}
