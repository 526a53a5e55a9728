/* json_text.c - JSON text to values and back, beyond what jansson does */
#include "base/json_text.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/utf8.h"

/* ---- Reading ---- */

char *pl_json_prefix(const char *name, int line, int column, char prefix[PL_JSON_PREFIX])
{
    char shown[PL_JSON_PREFIX - 32];
    size_t length = strlen(name);
    bool cut = length >= sizeof shown;    /* the end of a path says more than its start */
    pl_utf8_show(cut ? name + length - sizeof shown / 2 : name, shown, sizeof shown);
    snprintf(prefix, PL_JSON_PREFIX, "%s%s:%d:%d: ", cut ? "…" : "", shown, line, column);
    return prefix;
}

/* Not all places in jansson that run out of memory say so. */
static bool is_no_memory(const json_error_t *error)
{
    return json_error_code(error) == json_error_out_of_memory || error->text[0] == '\0';
}

/* jansson's position is behind the invalid token, except for a byte that it cannot
 * decode. */
static size_t fault_offset(const char *text, size_t length, const json_error_t *error)
{
    size_t at = error->position > 0 ? (size_t)error->position : 0;
    enum json_error_code code = json_error_code(error);
    if (at > length)
        return length;
    if (code == json_error_invalid_utf8 || code == json_error_premature_end_of_input)
        return at;
    return pl_json_token_start(text, length, at);
}

/* The description of an error, without names of jansson's flags. */
static const char *words_of(const json_error_t *error, char shown[JSON_ERROR_TEXT_LENGTH])
{
    enum json_error_code code = json_error_code(error);
    if (code == json_error_null_character || code == json_error_null_byte_in_key)
        return "\\u0000 is not allowed in a text";
    return pl_utf8_show(error->text, shown, JSON_ERROR_TEXT_LENGTH);
}

static int fail_syntax(const char *text, size_t length, const char *name,
                       const json_error_t *error, pl_error_t *err)
{
    if (is_no_memory(error))
        return pl_no_memory(err);
    char prefix[PL_JSON_PREFIX], shown[JSON_ERROR_TEXT_LENGTH];
    size_t start = fault_offset(text, length, error);
    pl_json_position_t position = pl_json_position_at(text, start);
    pl_json_prefix(name, position.line, position.column, prefix);
    if (json_error_code(error) == json_error_duplicate_key) {
        char key[PL_JSON_SHOWN];
        snprintf(key, sizeof key, "%.*s", error->position - (int)start, text + start);
        return pl_fail(err, PL_EFORMAT, "%skey %s occurs twice: remove one", prefix,
                       pl_utf8_show(key, shown, sizeof key));
    }
    return pl_fail(err, PL_EFORMAT, "%snot JSON: %s", prefix, words_of(error, shown));
}

/* The end of the comment at text[at]; at: there is none, or it does not end. */
static size_t comment_end(const char *text, size_t length, size_t at)
{
    if (at + 1 >= length || text[at] != '/')
        return at;
    if (text[at + 1] == '/') {
        const char *line = memchr(text + at, '\n', length - at);
        return line ? (size_t)(line - text) : length;
    }
    for (size_t end = at + 3; text[at + 1] == '*' && end < length; end++)
        if (text[end - 1] == '*' && text[end] == '/')
            return end + 1;
    return at;
}

size_t pl_json_strip_comments(char *text, size_t length)
{
    size_t to = 0, comma = 0;
    char last = '[';                          /* the newest character that is not a gap */
    bool ends_list = false;                   /* last is a comma behind an element */
    for (size_t from = 0; from < length;) {
        const size_t behind = comment_end(text, length, from);
        if (behind > from) {
            for (; from < behind; from++)
                if (text[from] == '\n')
                    text[to++] = '\n';
                else if (((unsigned char)text[from] & 0xC0) != 0x80)
                    text[to++] = ' ';
            continue;
        }
        const char c = text[from];
        size_t end = from + 1;
        if (c == '"') {
            while (end < length && text[end] != '"' && text[end] != '\n')
                end += text[end] == '\\' && end + 1 < length ? 2 : 1;
            end += end < length;
        }
        const bool is_gap = c == ' ' || c == '\t' || c == '\n' || c == '\r';
        if ((c == ']' || c == '}') && ends_list)
            text[comma] = ' ';
        if (!is_gap) {
            ends_list = c == ',' && !strchr("[{,:", last);
            comma = to;
            last = c ? c : ' ';
        }
        memmove(text + to, text + from, end - from);
        to += end - from;
        from = end;
    }
    text[to] = '\0';
    return to;
}

json_t *pl_json_read(const char *text, size_t length, const char *name, pl_error_t *err)
{
    json_error_t error;
    char prefix[PL_JSON_PREFIX];
    if (length == 0) {
        pl_fail(err, PL_EFORMAT, "%sempty: an object such as {\"module\": …} is expected",
                pl_json_prefix(name, 1, 1, prefix));
        return NULL;
    }
    if (length >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) {
        pl_fail(err, PL_EFORMAT,
                "%sstarts with a byte order mark: save the file as UTF-8 without one",
                pl_json_prefix(name, 1, 1, prefix));
        return NULL;
    }
    json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!value) {
        fail_syntax(text, length, name, &error, err);
        return NULL;
    }
    if (json_is_object(value))
        return value;
    json_decref(value);
    pl_fail(err, PL_EFORMAT, "%sa list: an object such as {\"module\": …} is expected",
            pl_json_prefix(name, 1, 1, prefix));
    return NULL;
}

json_t *pl_json_value(const char *text, size_t length, pl_error_t *err)
{
    json_error_t error;
    char shown[JSON_ERROR_TEXT_LENGTH];
    json_t *value = json_loadb(text, length, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES,
                               &error);
    if (!value && is_no_memory(&error))
        pl_no_memory(err);
    else if (!value)
        pl_fail(err, PL_EFORMAT, "not JSON: %s", words_of(&error, shown));
    return value;
}

json_t *pl_json_parse_lenient(const char *text, pl_error_t *err)
{
    pl_error_t why = {0};
    size_t length = strlen(text);
    json_t *value = pl_json_value(text, length, &why);
    if (!value && why.code != PL_ENOMEM && !pl_utf8_ok(text, length)) {
        pl_fail(err, PL_EINVAL, "the value is not UTF-8");
        return NULL;
    }
    if (!value && why.code != PL_ENOMEM)
        value = json_string(text);
    if (!value)
        pl_no_memory(err);
    return value;
}

/* ---- Writing ---- */

typedef struct json_writer {
    char *text;
    size_t length, capacity;
    pl_json_layout_t layout;
    bool failed;
} json_writer_t;

static void put(json_writer_t *w, const char *bytes, size_t count)
{
    if (w->failed)
        return;
    if (count >= w->capacity - w->length) {
        size_t capacity = 2 * w->capacity + count + 256;
        char *larger = pl_resize(w->text, capacity);
        if (!larger) {
            w->failed = true;
            return;
        }
        w->text = larger;
        w->capacity = capacity;
    }
    memcpy(w->text + w->length, bytes, count);
    w->length += count;
    w->text[w->length] = '\0';
}

static void put_text(json_writer_t *w, const char *text)
{
    put(w, text, strlen(text));
}

static void put_string(json_writer_t *w, const char *text)
{
    put(w, "\"", 1);
    for (const char *p = text; *p; p++) {
        char escape[8];
        if (*p == '"' || *p == '\\')
            put(w, (char[]){'\\', *p}, 2);
        else if (*p == '\n')
            put(w, "\\n", 2);
        else if ((unsigned char)*p < 0x20)
            put(w, escape,
                (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*p));
        else
            put(w, p, 1);
    }
    put(w, "\"", 1);
}

/* The fewest digits that read back as the same number; by jansson, because printf() obeys
 * the host's locale. */
static void put_real(json_writer_t *w, const json_t *value)
{
    char text[64];
    for (size_t digits = 15; digits <= 17; digits++) {
        size_t length = json_dumpb(value, text, sizeof text,
                                   JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        json_t *again = NULL;
        if (length > 0 && length < sizeof text)
            again = json_loadb(text, length, JSON_DECODE_ANY, NULL);
        bool same = again && json_real_value(again) == json_real_value(value);
        json_decref(again);
        if (same) {
            put(w, text, length);
            return;
        }
    }
    w->failed = true;
}

static void put_break(json_writer_t *w, int depth)
{
    if (w->layout == PL_JSON_COMPACT)
        return;
    put(w, "\n", 1);
    for (int i = 0; i < depth; i++)
        put(w, "  ", 2);
}

static void put_value(json_writer_t *w, const json_t *value, int depth);

static void put_object(json_writer_t *w, const json_t *object, int depth)
{
    const char *key;
    json_t *value;
    bool first = true;
    put(w, "{", 1);
    json_object_foreach((json_t *)object, key, value) {
        put(w, ",", first ? 0 : 1);
        first = false;
        put_break(w, depth + 1);
        put_string(w, key);
        put(w, ": ", w->layout == PL_JSON_COMPACT ? 1 : 2);
        put_value(w, value, depth + 1);
    }
    if (!first)
        put_break(w, depth);
    put(w, "}", 1);
}

static void put_list(json_writer_t *w, const json_t *list, int depth)
{
    bool on_one_line = true;                                /* a list of plain values */
    for (size_t i = 0; i < json_array_size(list) && on_one_line; i++) {
        const json_t *value = json_array_get(list, i);
        on_one_line = !json_is_object(value) && !json_is_array(value);
    }
    put(w, "[", 1);
    for (size_t i = 0; i < json_array_size(list); i++) {
        put(w, ",", i ? 1 : 0);
        if (!on_one_line)
            put_break(w, depth + 1);
        else if (i && w->layout == PL_JSON_INDENTED)
            put(w, " ", 1);
        put_value(w, json_array_get(list, i), depth + 1);
    }
    if (!on_one_line)
        put_break(w, depth);
    put(w, "]", 1);
}

static void put_value(json_writer_t *w, const json_t *value, int depth)
{
    char text[32];
    switch (json_typeof(value)) {
    case JSON_OBJECT: put_object(w, value, depth); break;
    case JSON_ARRAY: put_list(w, value, depth); break;
    case JSON_STRING: put_string(w, json_string_value(value)); break;
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        put_text(w, text);
        break;
    case JSON_REAL: put_real(w, value); break;
    case JSON_TRUE: put_text(w, "true"); break;
    case JSON_FALSE: put_text(w, "false"); break;
    case JSON_NULL: put_text(w, "null"); break;
    }
}

char *pl_json_write(const json_t *value, pl_json_layout_t layout)
{
    json_writer_t w = {.layout = layout};
    put_value(&w, value, 0);
    if (w.failed) {
        pl_free(w.text);
        return NULL;
    }
    return w.text;
}

char *pl_json_to_text(json_t *value, pl_error_t *err)
{
    char *text = value ? pl_json_write(value, PL_JSON_COMPACT) : NULL;
    json_decref(value);
    if (!text)
        pl_fail(err, PL_ENOMEM, "out of memory");
    return text;
}

const char *pl_json_show(const json_t *value, char shown[PL_JSON_SHOWN])
{
    char *text = pl_json_write(value, PL_JSON_COMPACT);
    pl_utf8_show(text ? text : "…", shown, PL_JSON_SHOWN);
    pl_free(text);
    return shown;
}
