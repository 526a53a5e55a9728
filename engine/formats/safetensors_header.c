/* safetensors_header.c - the parser of the header
 *
 * A header is JSON of a fixed shape, so it is read without a tree: memory stays in
 * proportion to what is kept, and errors name the byte. */
#include "formats/safetensors.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"

/* Every type of the format; of those that are not loadable only the size is used. */
static const struct {
    char name[8];
    bool loadable;
    pl_dtype_t dtype;
    int64_t bytes;                                          /* of an element */
} types[] = {
    {"F32", true, PL_F32, 4}, {"F64", true, PL_F64, 8},     {"I32", true, PL_I32, 4},
    {"I64", true, PL_I64, 8}, {"U8", true, PL_U8, 1},       {"BF16", true, PL_BF16, 2},
    {"F16", true, PL_F16, 2}, {"BOOL", false, PL_U8, 1},    {"I8", false, PL_U8, 1},
    {"I16", false, PL_U8, 2}, {"U16", false, PL_U8, 2},     {"U32", false, PL_U8, 4},
    {"U64", false, PL_U8, 8}, {"F8_E4M3", false, PL_U8, 1}, {"F8_E5M2", false, PL_U8, 1},
};
#define TYPES (sizeof types / sizeof *types)

typedef struct scan {
    pl_safetensors_t *file;
    int tensor_capacity, metadata_capacity;
    const char *start, *at, *end;
    bool metadata_seen;
    pl_error_t *err;
} scan_t;

static int scan_bad(const scan_t *s, const char *what)
{
    return pl_fail(s->err, PL_EFORMAT, "%s: byte %zu: %s", s->file->name,
                   PL_SAFETENSORS_PREFIX + (size_t)(s->at - s->start), what);
}

static void scan_space(scan_t *s)
{
    while (s->at < s->end
           && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
}

static bool scan_take(scan_t *s, char c)
{
    scan_space(s);
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

/* Takes ',' and sets *more, or takes `close`. */
static int scan_next(scan_t *s, char close, bool *more)
{
    *more = scan_take(s, ',');
    if (*more || scan_take(s, close))
        return PL_OK;
    return scan_bad(s, close == '}' ? "',' or '}' is missing" : "',' or ']' is missing");
}

/* The four digits after \u. */
static bool scan_hex(scan_t *s, uint32_t *code)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    *code = 0;
    for (int i = 0; i < 4; i++) {
        const char *digit = s->at < s->end && *s->at ? strchr(digits, *s->at) : NULL;
        if (!digit)
            return false;
        *code = *code << 4 | (uint32_t)((digit - digits) & 15);
        s->at++;
    }
    return true;
}

/* What follows a backslash. */
static bool scan_escape(scan_t *s, uint32_t *code)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    uint32_t low;
    if (s->at == s->end || !*s->at)
        return false;
    char c = *s->at++;
    const char *found = strchr(names, c);
    if (found) {
        *code = (uint8_t)values[found - names];
        return true;
    }
    if (c != 'u' || !scan_hex(s, code) || *code == 0)
        return false;
    if (*code < 0xD800 || *code > 0xDFFF)
        return true;
    if (*code > 0xDBFF || s->end - s->at < 6 || s->at[0] != '\\' || s->at[1] != 'u')
        return false;
    s->at += 2;
    if (!scan_hex(s, &low) || low < 0xDC00 || low > 0xDFFF)
        return false;
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

/* Reads a text after its first quote into out, which has room for the raw text; -> its
 * end there, or NULL. */
static char *scan_characters(scan_t *s, char *out)
{
    for (;;) {
        uint32_t code;
        int bytes = pl_utf8_get(s->at, (size_t)(s->end - s->at), &code);
        if (bytes == 0 || code < 0x20)
            return NULL;
        s->at += bytes;
        if (code == '"')
            return out;
        if (code == '\\' && !scan_escape(s, &code))
            return NULL;
        out += pl_utf8_put(code, out);
    }
}

/* Bytes up to the quote that ends a text, from after its first quote. */
static size_t scan_raw_length(const scan_t *s)
{
    const char *p = s->at;
    while (p < s->end && *p != '"')
        p += p + 1 < s->end && *p == '\\' ? 2 : 1;
    return (size_t)(p - s->at);
}

static int scan_text(scan_t *s, char **text)
{
    if (!scan_take(s, '"'))
        return scan_bad(s, "a text in quotes is missing");
    char *made =
        pl_alloc(scan_raw_length(s) + 4);     /* pl_utf8_put() needs four bytes of room */
    if (!made)
        return pl_no_memory(s->err);
    char *end = scan_characters(s, made);
    if (!end) {
        pl_free(made);
        return scan_bad(s,
                        "not allowed in a text (a text is UTF-8 and ends with a quote)");
    }
    *end = '\0';
    *text = made;
    return PL_OK;
}

/* A short text without escapes: keys and types. */
static int scan_word(scan_t *s, char word[static 16])
{
    if (!scan_take(s, '"'))
        return scan_bad(s, "a text in quotes is missing");
    size_t length = scan_raw_length(s);
    if (length > 15 || memchr(s->at, '\\', length) || s->at + length == s->end)
        return scan_bad(s, "unknown here");
    memcpy(word, s->at, length);
    word[length] = '\0';
    s->at += length + 1;
    return PL_OK;
}

static int scan_number(scan_t *s, int64_t *number)
{
    int64_t n = 0;
    scan_space(s);
    const char *start = s->at;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (__builtin_mul_overflow(n, 10, &n)
            || __builtin_add_overflow(n, *s->at - '0', &n))
            return scan_bad(s, "the number is past 2^63 - 1");
    if (s->at == start || (*start == '0' && s->at > start + 1))
        return scan_bad(s, "a whole number, 0 or more, is missing");
    *number = n;
    return PL_OK;
}

static int scan_numbers(scan_t *s, int64_t *number, int max, int *count)
{
    bool more;
    *count = 0;
    if (!scan_take(s, '['))
        return scan_bad(s, "'[' is missing");
    if (scan_take(s, ']'))
        return PL_OK;
    do {
        if (*count == max)
            return scan_bad(s, "too many numbers (a shape has at most 6 axes, "
                               "data_offsets has two numbers)");
        int code = scan_number(s, &number[(*count)++]);
        if (!code)
            code = scan_next(s, ']', &more);
        if (code)
            return code;
    } while (more);
    return PL_OK;
}

static int scan_type(scan_t *s, pl_safetensors_tensor_t *tensor, int64_t *element)
{
    char word[16];
    int code = scan_word(s, word);
    if (code)
        return code;
    for (size_t i = 0; i < TYPES; i++)
        if (!strcmp(word, types[i].name)) {
            memcpy(tensor->type, types[i].name, sizeof tensor->type);
            tensor->loadable = types[i].loadable;
            tensor->dtype = types[i].dtype;
            *element = types[i].bytes;
            return PL_OK;
        }
    return scan_bad(s, "the type before this is unknown");
}

/* {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, each key once, in any
 * order. */
static int scan_tensor(scan_t *s, pl_safetensors_tensor_t *tensor)
{
    enum { TYPE = 1, SHAPE = 2, EXTENT = 4, ALL = 7 };
    int seen = 0, count;
    int64_t element = 1, ends[2] = {0};
    bool more = true;
    if (!scan_take(s, '{'))
        return scan_bad(s, "'{' is missing");
    while (more) {
        char key[16];
        int code = scan_word(s, key);
        if (code)
            return code;
        int which = !strcmp(key, "dtype")          ? TYPE
                    : !strcmp(key, "shape")        ? SHAPE
                    : !strcmp(key, "data_offsets") ? EXTENT
                                                   : 0;
        if (!which || seen & which)
            return scan_bad(s, "the key before this is unknown or repeated");
        seen |= which;
        if (!scan_take(s, ':'))
            return scan_bad(s, "':' is missing");
        if (which == TYPE)
            code = scan_type(s, tensor, &element);
        else if (which == SHAPE)
            code = scan_numbers(s, tensor->shape.dim, PL_DIMS, &tensor->shape.rank);
        else
            code = scan_numbers(s, ends, 2, &count);
        if (!code && which == EXTENT && (count != 2 || ends[0] > ends[1]))
            code =
                scan_bad(s,
                         "data_offsets must be a begin and an end that is not smaller");
        if (!code)
            code = scan_next(s, '}', &more);
        if (code)
            return code;
    }
    if (seen != ALL)
        return scan_bad(s, "dtype, shape or data_offsets is missing before this");
    tensor->offset = (uint64_t)ends[0];
    tensor->size = (uint64_t)(ends[1] - ends[0]);
    int64_t elements = 1;
    for (int i = 0; i < tensor->shape.rank; i++)
        if (__builtin_mul_overflow(elements, tensor->shape.dim[i], &elements))
            return scan_bad(s, "the shape before this has too many elements");
    if (__builtin_mul_overflow(elements, element, &elements)
        || (uint64_t)elements != tensor->size)
        return pl_fail(s->err, PL_EFORMAT,
                       "%s: byte %zu: tensor '%.64s' has %llu bytes, which does not "
                       "match its shape and type",
                       s->file->name, PL_SAFETENSORS_PREFIX + (size_t)(s->at - s->start),
                       tensor->name, (unsigned long long)tensor->size);
    return PL_OK;
}

static int scan_metadata(scan_t *s)
{
    pl_safetensors_t *file = s->file;
    bool more = true;
    if (s->metadata_seen)
        return scan_bad(s, "__metadata__ appears twice");
    s->metadata_seen = true;
    if (!scan_take(s, '{'))
        return scan_bad(s, "'{' is missing");
    if (scan_take(s, '}'))
        return PL_OK;
    while (more) {
        char *key, *value;
        if (PL_GROW(file->metadata, file->metadata_count, s->metadata_capacity))
            return pl_no_memory(s->err);
        int code = scan_text(s, &key);
        if (code)
            return code;
        file->metadata[file->metadata_count++] = (pl_metadata_t){.key = key};
        if (!scan_take(s, ':'))
            return scan_bad(s, "':' is missing");
        code = scan_text(s, &value);
        if (code)
            return code;
        file->metadata[file->metadata_count - 1].value = value;
        code = scan_next(s, '}', &more);
        if (code)
            return code;
    }
    return PL_OK;
}

static int scan_entry(scan_t *s)
{
    pl_safetensors_t *file = s->file;
    char *name;
    int code = scan_text(s, &name);
    if (code)
        return code;
    bool is_metadata = !strcmp(name, "__metadata__");
    if (is_metadata || PL_GROW(file->tensor, file->count, s->tensor_capacity)) {
        pl_free(name);
        if (!is_metadata)
            return pl_no_memory(s->err);
    } else {
        file->tensor[file->count++] = (pl_safetensors_tensor_t){.name = name};
    }
    if (!scan_take(s, ':'))
        return scan_bad(s, "':' is missing");
    if (is_metadata)
        return scan_metadata(s);
    return scan_tensor(s, &file->tensor[file->count - 1]);
}

int pl_safetensors_parse(pl_safetensors_t *file, const char *header, size_t size,
                         pl_error_t *err)
{
    scan_t s = {
        .file = file, .start = header, .at = header, .end = header + size, .err = err};
    if (size == 0 || *header != '{')
        return scan_bad(
            &s, "the header does not begin with '{': this is not a safetensors file");
    s.at++;
    bool more = !scan_take(&s, '}');
    while (more) {
        int code = scan_entry(&s);
        if (!code)
            code = scan_next(&s, '}', &more);
        if (code)
            return code;
    }
    scan_space(&s);
    if (s.at < s.end)
        return scan_bad(&s, "unexpected text after the end of the header");
    return PL_OK;
}
