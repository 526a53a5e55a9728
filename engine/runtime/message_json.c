/* message_json.c - a frame as a line of the stream, for people and clients
 *
 * Written by hand and not through a JSON library: it runs for every message while somebody watches, and all it writes
 * is flat.  It walks the same field list as the codec and trusts nothing that the bytes say. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/message.h"

typedef struct line {
    char *text;
    size_t length, room;
} line_t;

static void add(line_t *l, const char *format, ...) PL_PRINTF(2, 3);

static void add(line_t *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(l->text + l->length, l->room - l->length, format, args);
    va_end(args);
    if (length > 0)
        l->length = l->length + (size_t)length < l->room ? l->length + (size_t)length : l->room - 1;
}

static void add_char(line_t *l, char c)
{
    if (l->length + 1 < l->room)
        l->text[l->length++] = c;
    l->text[l->length] = '\0';
}

/* The number of bytes of the UTF-8 character at s, or 0 when it is none. */
static int utf8_length(const unsigned char *s, size_t left)
{
    int n = *s < 0x80 ? 1 : *s >= 0xC2 && *s < 0xE0 ? 2 : *s >= 0xE0 && *s < 0xF0 ? 3 : *s >= 0xF0 && *s < 0xF5 ? 4 : 0;
    if (n == 0 || (size_t)n > left)
        return 0;
    for (int k = 1; k < n; k++)
        if ((s[k] & 0xC0) != 0x80)
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] >= 0xA0) || (s[0] == 0xF0 && s[1] < 0x90)
        || (s[0] == 0xF4 && s[1] >= 0x90))
        return 0;
    return n;
}

static void add_text(line_t *l, const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;
    add_char(l, '"');
    for (size_t k = 0; k < length;) {
        int n = utf8_length(s + k, length - k);
        if (n == 0)
            add(l, "\\ufffd");
        else if (s[k] == '"' || s[k] == '\\')
            add(l, "\\%c", s[k]);
        else if (s[k] < 0x20)
            add(l, "\\u%04x", s[k]);
        else
            for (int i = 0; i < n; i++)
                add_char(l, text[k + (size_t)i]);
        k += n ? (size_t)n : 1;
    }
    add_char(l, '"');
}

static void add_number(line_t *l, double value)
{
    if (isfinite(value))
        add(l, "%.9g", value);
    else
        add(l, isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"");
}

typedef struct cursor {
    const char *at;
    size_t left;
} cursor_t;

static bool take(cursor_t *c, void *data, size_t size)
{
    if (size > c->left)
        return false;
    memcpy(data, c->at, size);
    c->at += size;
    c->left -= size;
    return true;
}

static bool take_bytes(cursor_t *c, const char **bytes, uint32_t *size)
{
    if (!take(c, size, sizeof *size) || *size > c->left)
        return false;
    *bytes = c->at;
    c->at += *size;
    c->left -= *size;
    return true;
}

static bool add_peers(line_t *l, cursor_t *c)
{
    pl_peers_t peers;
    if (!take(c, &peers, sizeof peers) || peers.count > PL_PEERS_MOST)
        return false;
    add_char(l, '{');
    for (uint32_t k = 0; k < peers.count; k++) {
        if (k)
            add(l, ", ");
        add_text(l, peers.peer[k].role, strnlen(peers.peer[k].role, sizeof peers.peer[k].role));
        add(l, ": ");
        const char *name = pl_kind_name(peers.peer[k].at.kind);
        add_text(l, name, strlen(name));
    }
    add_char(l, '}');
    return true;
}

/* One value; false, with nothing of use added, when the bytes end too soon. */
static bool add_value(line_t *l, pl_field_type_t type, cursor_t *c)
{
    uint32_t u32 = 0;
    uint64_t u64 = 0;
    double f64 = 0;
    const char *bytes;
    switch (type) {
    case PL_TYPE_U32:
        if (!take(c, &u32, sizeof u32))
            return false;
        add(l, "%" PRIu32, u32);
        return true;
    case PL_TYPE_FLAG:
        if (!take(c, &u32, sizeof u32))
            return false;
        add(l, u32 ? "true" : "false");
        return true;
    case PL_TYPE_U64:
        if (!take(c, &u64, sizeof u64))
            return false;
        add(l, "%" PRIu64, u64);
        return true;
    case PL_TYPE_F64:
        if (!take(c, &f64, sizeof f64))
            return false;
        add_number(l, f64);
        return true;
    case PL_TYPE_HANDLE:
        if (!take(c, &u64, sizeof u64))
            return false;
        add(l, u64 ? "true" : "null");
        return true;
    case PL_TYPE_STRING:
        if (!take_bytes(c, &bytes, &u32) || !u32)
            return false;
        add_text(l, bytes, u32 - 1);
        return true;
    case PL_TYPE_DATA:
        if (!take_bytes(c, &bytes, &u32))
            return false;
        add(l, "%" PRIu32, u32);
        return true;
    case PL_TYPE_PEERS:
        return add_peers(l, c);
    }
    return false;
}

static void add_member(line_t *l, const char *name, pl_field_type_t type, cursor_t *c, bool *first)
{
    size_t before = l->length;
    add(l, "%s\"%s\": ", *first ? "" : ", ", name);
    if (add_value(l, type, c)) {
        *first = false;
        return;
    }
    l->length = before;
    l->text[before] = '\0';
    c->left = 0;
}

static void add_error(line_t *l, cursor_t *c)
{
    int32_t code;
    bool first = false;
    if (!take(c, &code, sizeof code))
        return;
    add(l, "\"code\": \"%s\"", pl_code_name(code));
    add_member(l, "where", PL_TYPE_STRING, c, &first);
    add_member(l, "text", PL_TYPE_STRING, c, &first);
}

static void add_fields(line_t *l, const pl_envelope_t *e, cursor_t *c)
{
    static const int parts[PL_KINDS] = {0, 1, 2, -1, -1};
    const pl_message_info_t *info = pl_message_info(e->message);
    bool first = true;
    if (e->kind == PL_KIND_ERROR)
        add_error(l, c);
    else if (info && parts[e->kind] >= 0)
        for (const pl_field_info_t *f = info->fields[parts[e->kind]]; f->name; f++)
            add_member(l, f->name, f->type, c, &first);
}

size_t pl_message_json(pl_bytes_t frame, uint64_t seq, double time, int rank, char *text, size_t room)
{
    static const char *const kinds[PL_KINDS] = {"call", "progress", "reply", "error", "cancel"};
    line_t l = {text, 0, room - 3};                         /* what closes the line always fits */
    cursor_t c = {frame.data, frame.size};
    pl_envelope_t e;
    if (!take(&c, &e, sizeof e) || e.kind >= PL_KINDS)
        return 0;
    const pl_message_info_t *info = pl_message_info(e.message);
    add(&l, "{\"seq\": %" PRIu64 ", \"time\": %.6f, \"run\": \"%016" PRIx64 "\", \"epoch\": %" PRIu32 ", \"rank\": %d, ",
        seq, time, e.run, e.epoch, rank);
    add(&l, "\"from\": \"%s\", \"from_level\": %d, \"to\": \"%s\", \"to_level\": %d, ", pl_kind_name(e.from_kind),
        pl_kind_level(e.from_kind), pl_kind_name(e.to_kind), pl_kind_level(e.to_kind));
    add(&l, "\"kind\": \"%s\", \"name\": \"%s\", \"call\": %" PRIu64 ", \"cause\": %" PRIu64 ", \"fields\": {",
        kinds[e.kind], info ? info->name : "?", e.call, e.cause);
    add_fields(&l, &e, &c);
    l.room = room;
    add(&l, "}}");
    return l.length;
}
