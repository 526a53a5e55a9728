/* vocabulary.c - text to tokens and back
 *
 * ASCII, the most frequent characters, is looked up in a table; the rest by bisection. */
#include "formats/vocabulary.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"

#define BYTES 256
#define CODES 0x110000                                      /* code points of Unicode */

struct pl_vocabulary {
    int size;
    bool is_bytes;
    int32_t ascii[128];                                 /* token of a code point, or -1 */
    uint32_t *code;                                     /* [size], rising  [bytes] */
    char *characters;
};

/* Code points in rising order. */
static pl_vocabulary_t *vocabulary_from_codes(const uint32_t *code, int count,
                                              pl_error_t *err)
{
    pl_vocabulary_t *v = pl_alloc(sizeof *v);
    if (v) {
        v->code = pl_alloc_array((size_t)count, sizeof *code);
        v->characters = pl_alloc((size_t)count * 4 + 1);
    }
    if (!v || !v->code || !v->characters) {
        pl_vocabulary_free(v);
        pl_no_memory(err);
        return NULL;
    }
    char *out = v->characters;
    for (int i = 0; i < count; i++) {
        v->code[i] = code[i];
        out += pl_utf8_put(code[i], out);
    }
    v->size = count;
    memset(v->ascii, -1, sizeof v->ascii);
    for (int token = 0; token < v->size && v->code[token] < 128; token++)
        v->ascii[v->code[token]] = token;
    return v;
}

pl_vocabulary_t *pl_vocabulary_new(const char *characters, pl_error_t *err)
{
    size_t size = strlen(characters);
    pl_vocabulary_t *v = NULL;
    if (size == 0) {
        v = pl_alloc(sizeof *v);
        if (v)
            v->characters = pl_alloc(1);
        if (!v || !v->characters) {
            pl_vocabulary_free(v);
            pl_no_memory(err);
            return NULL;
        }
        v->size = BYTES;
        v->is_bytes = true;
        return v;
    }
    uint32_t *code = pl_alloc_array(size, sizeof *code);
    if (!code) {
        pl_no_memory(err);
        return NULL;
    }
    int count = 0, bytes;
    size_t at = 0;
    for (; at < size; at += (size_t)bytes, count++) {
        bytes = pl_utf8_get(characters + at, size - at, &code[count]);
        if (bytes == 0 || (count > 0 && code[count] <= code[count - 1]))
            break;
    }
    if (at < size)
        pl_fail(err, PL_EINVAL,
                "vocabulary: byte %zu: characters must be UTF-8, distinct and in rising "
                "order",
                at);
    else
        v = vocabulary_from_codes(code, count, err);
    pl_free(code);
    return v;
}

/* Marks each code point of a text in seen, one bit each  [only checks]. */
static int vocabulary_mark(const uint8_t *text, size_t size, const char *name,
                           uint8_t *seen, pl_error_t *err)
{
    uint32_t code;
    int bytes;
    for (size_t at = 0; at < size; at += (size_t)bytes) {
        bytes = pl_utf8_get(text + at, size - at, &code);
        if (bytes == 0 || code == 0)
            return pl_fail(err, PL_EFORMAT,
                           "%s: byte %zu: %s; use the vocabulary \"byte\"", name, at,
                           bytes ? "a zero" : "this is not UTF-8");
        if (seen)
            seen[code >> 3] |= (uint8_t)(1u << (code & 7));
    }
    return PL_OK;
}

int pl_vocabulary_check(const void *text, size_t size, const char *name, pl_error_t *err)
{
    return vocabulary_mark(text, size, name, NULL, err);
}

/* The marked code points, in order; -> how many. */
static int vocabulary_collect(const uint8_t *seen, uint32_t *out)
{
    int count = 0;
    for (uint32_t at = 0; at < CODES / 8; at++)
        for (uint32_t bits = seen[at]; bits; bits &= bits - 1, count++)
            if (out)
                out[count] = 8 * at + (uint32_t)__builtin_ctz(bits);
    return count;
}

pl_vocabulary_t *pl_vocabulary_of(const void *text, size_t size, const char *name,
                                  pl_error_t *err)
{
    pl_vocabulary_t *v = NULL;
    uint32_t *code = NULL;
    uint8_t *seen = pl_alloc(CODES / 8);
    if (!seen) {
        pl_no_memory(err);
        return NULL;
    }
    if (size == 0)
        pl_fail(err, PL_EFORMAT, "%s: the file is empty", name);
    if (size == 0 || vocabulary_mark(text, size, name, seen, err))
        goto done;
    code = pl_alloc_array((size_t)vocabulary_collect(seen, NULL), sizeof *code);
    if (code)
        v = vocabulary_from_codes(code, vocabulary_collect(seen, code), err);
    else
        pl_no_memory(err);
done:
    pl_free(code);
    pl_free(seen);
    return v;
}

void pl_vocabulary_free(pl_vocabulary_t *v)
{
    if (!v)
        return;
    pl_free(v->code);
    pl_free(v->characters);
    pl_free(v);
}

int pl_vocabulary_size(const pl_vocabulary_t *v)
{
    return v->size;
}

const char *pl_vocabulary_characters(const pl_vocabulary_t *v)
{
    return v->characters;
}

/* The token of a code point, or -1. */
static int32_t vocabulary_find(const pl_vocabulary_t *v, uint32_t code)
{
    if (code < 128)
        return v->ascii[code];
    int low = 0, high = v->size;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (v->code[middle] < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < v->size && v->code[low] == code ? low : -1;
}

int pl_vocabulary_encode(const pl_vocabulary_t *v, const void *text, size_t size,
                         int32_t *token, size_t *count, pl_error_t *err)
{
    const uint8_t *p = text;
    size_t made = 0, at = 0;
    if (v->is_bytes)
        for (; at < size; at++)
            token[made++] = p[at];
    while (at < size) {
        uint32_t code;
        int bytes = pl_utf8_get(p + at, size - at, &code);
        if (bytes == 0)
            return pl_fail(err, PL_EINVAL, "text: byte %zu: this is not UTF-8", at);
        token[made] = vocabulary_find(v, code);
        if (token[made++] < 0)
            return pl_fail(
                err, PL_EINVAL,
                "text: byte %zu: the character '%.*s' (U+%04X) is not in the vocabulary",
                at, code < 0x20 ? 0 : bytes, (const char *)p + at, (unsigned)code);
        at += (size_t)bytes;
    }
    *count = made;
    return PL_OK;
}

char *pl_vocabulary_decode(const pl_vocabulary_t *v, const int32_t *token, size_t count,
                           size_t *size, pl_error_t *err)
{
    char *text = count > (SIZE_MAX - 1) / 4 ? NULL : pl_alloc(count * 4 + 1);
    if (!text) {
        pl_no_memory(err);
        return NULL;
    }
    char *out = text;
    for (size_t i = 0; i < count; i++) {
        if (token[i] < 0 || token[i] >= v->size) {
            pl_free(text);
            pl_fail(err, PL_EINVAL, "token %zu is %d; the vocabulary has 0 to %d", i,
                    (int)token[i], v->size - 1);
            return NULL;
        }
        if (v->is_bytes)
            *out++ = (char)token[i];
        else
            out += pl_utf8_put(v->code[token[i]], out);
    }
    *out = '\0';
    if (size)
        *size = (size_t)(out - text);
    return text;
}
