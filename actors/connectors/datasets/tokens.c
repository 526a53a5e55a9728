/* tokens.c - a text, or a file of tokens, for data sets: in memory, or in the file */
#include "actors/connectors/datasets/tokens.h"

#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "formats/array.h"
#include "formats/vocabulary.h"

#define PIECE 4096                                          /* bytes encoded at once */

static int tokens_encode(pl_tokens_t *tokens, const pl_vocabulary_t *vocabulary,
                         const pl_tokens_request_t *request, const pl_file_bytes_t *bytes,
                         pl_error_t *err)
{
    int32_t piece[PIECE];
    size_t count = 0;
    for (size_t at = 0, size; at < bytes->size; at += size) {
        size = bytes->size - at < PIECE ? bytes->size - at : PIECE;
        while (at + size < bytes->size && (bytes->data[at + size] & 0xC0) == 0x80
               && size > PIECE - 4)
            size--;                                         /* not within a character */
        if (pl_vocabulary_encode(vocabulary, bytes->data + at, size, piece, &count, err))
            return pl_error_prefix(err, "%s: from byte %zu on", request->path, at);
        for (size_t i = 0; i < count; i++, tokens->count++)
            if (tokens->dtype == PL_U8)
                ((uint8_t *)tokens->data)[tokens->count] = (uint8_t)piece[i];
            else
                ((int32_t *)tokens->data)[tokens->count] = piece[i];
    }
    tokens->newline = -1;
    if (pl_vocabulary_encode(vocabulary, "\n", 1, piece, &count, NULL) == PL_OK)
        tokens->newline = piece[0];
    return PL_OK;
}

/* The vocabulary of the training data, if it is known, or bytes.  NULL with PL_OK: the
 * text decides. */
static int known_vocabulary(const pl_tokens_request_t *request,
                            pl_vocabulary_t **vocabulary, pl_error_t *err)
{
    const char *info = request->data_info;
    json_t *given = info ? pl_json_value(info, strlen(info), NULL) : NULL;
    const json_t *known = json_object_get(given, "vocabulary");
    const char *text = json_is_string(known)                  ? json_string_value(known)
                       : request->vocabulary == PL_TOKEN_BYTE ? ""
                                                              : NULL;
    pl_error_t why = {0};
    *vocabulary = text ? pl_vocabulary_new(text, &why) : NULL;
    json_decref(given);
    return text && !*vocabulary ? pl_fail(err, why.code, "%s", why.text) : PL_OK;
}

/* Makes tokens of a text; consumes the vocabulary  [of this text]. */
static int tokens_take(pl_tokens_t *tokens, const pl_tokens_request_t *request,
                       pl_vocabulary_t *vocabulary, const pl_file_bytes_t *bytes,
                       char **data_info, pl_error_t *err)
{
    if (!vocabulary)
        vocabulary = pl_vocabulary_of(bytes->data, bytes->size, request->path, err);
    if (!vocabulary)
        return err->code;
    tokens->dtype = pl_vocabulary_size(vocabulary) <= 256 ? PL_U8 : PL_I32;
    tokens->data = pl_alloc_array(bytes->size, pl_array_width(tokens->dtype));
    json_t *object = json_pack("{s:i, s:s, s:I}", "vocabulary_size",
                               pl_vocabulary_size(vocabulary), "vocabulary",
                               pl_vocabulary_characters(vocabulary), "context",
                               (json_int_t)request->context);
    char *made = tokens->data && object ? pl_json_write(object, PL_JSON_COMPACT) : NULL;
    json_decref(object);
    int code = made ? tokens_encode(tokens, vocabulary, request, bytes, err)
                    : pl_no_memory(err);
    pl_vocabulary_free(vocabulary);
    if (code == PL_OK)
        *data_info = made;
    else
        pl_text_free(made);
    return code;
}

/* Where the tokens begin, and the bytes of each.  Files of Karpathy's training in C have
 * 256 words of 4 bytes first: a magic number, the version, the number of tokens. */
static int numbers_layout(const pl_tokens_request_t *request, const uint8_t *bytes,
                          size_t size, size_t *from, size_t *width, pl_error_t *err)
{
    enum { HEADER = 1024, GPT2 = 20240520, LLAMA3 = 20240801 };
    uint32_t word[3] = {0};
    *from = 0;
    *width = 2;
    for (size_t k = 0; k < 12 && size >= HEADER; k++)
        word[k / 4] |= (uint32_t)bytes[k] << 8 * (k % 4);
    if (word[0] == GPT2 || word[0] == LLAMA3) {
        *from = HEADER;
        *width = word[0] == GPT2 ? 2 : 4;
        if (word[2] != (size - HEADER) / *width)
            return pl_fail(err, PL_EFORMAT,
                           "%s: its header says %u tokens, but the file has %zu",
                           request->path, word[2], (size - HEADER) / *width);
    }
    if ((size - *from) % *width || size == *from)
        return pl_fail(err, PL_EFORMAT, "%s: %zu bytes are no tokens of %zu bytes each",
                       request->path, size - *from, *width);
    return PL_OK;
}

static int token_check(const pl_tokens_t *tokens, int64_t at, int64_t token,
                       pl_error_t *err)
{
    const int64_t size = tokens->vocabulary_size;
    if (token <= INT32_MAX && (!size || token < size))
        return PL_OK;
    return pl_fail(err, PL_EFORMAT,
                   "%s: token %lld is %lld, but the vocabulary has %lld tokens",
                   tokens->path, (long long)at, (long long)token,
                   (long long)(size ? size : INT32_MAX));
}

/* Opens a file of tokens: loads the numbers, or leaves them in a large file.  If it has
 * to, it then looks at them once to find the largest. */
static int tokens_take_numbers(pl_tokens_t *tokens, const pl_tokens_request_t *request,
                               char **data_info, pl_error_t *err)
{
    enum { AT_ONCE = 1024 };
    const char *info = request->data_info;
    json_t *given = info ? pl_json_value(info, strlen(info), NULL) : NULL;
    const json_int_t known =
        json_integer_value(json_object_get(given, "vocabulary_size"));
    pl_file_bytes_t bytes = {0};
    pl_file_map_t map;
    size_t from, width;
    int64_t piece[AT_ONCE], largest = 0;
    json_decref(given);
    int code = pl_file_map(request->path, request->memory, &map, err);
    if (code == PL_OK && !map.data)
        code = pl_file_read(request->path, pl_file_limit(), &bytes, err);
    const uint8_t *data = map.data ? map.data : bytes.data;
    const size_t size = map.data ? map.size : bytes.size;
    if (code == PL_OK)
        code = numbers_layout(request, data, size, &from, &width, err);
    if (code != PL_OK) {
        pl_file_unmap(&map, NULL);
        pl_file_bytes_release(&bytes);
        return code;
    }
    *tokens = (pl_tokens_t){.dtype = PL_I32,
                            .count = (int64_t)((size - from) / width),
                            .newline = -1,
                            .path = request->path,
                            .vocabulary_size = request->size ? request->size : known};
    tokens->file = (pl_array_t){.dtype = width == 2 ? PL_I32 : PL_I64,
                                .count = tokens->count,
                                .data = map.data ? data + from : NULL,
                                .in_file = map.data != NULL,
                                .raw = {.kind = 'u', .width = width}};
    pl_array_leave(&tokens->file, &map, PL_OK);
    if (bytes.data) {
        tokens->data = pl_alloc_array((size_t)tokens->count, sizeof(int32_t));
        code = tokens->data ? PL_OK : pl_no_memory(err);
    }
    const bool looks = bytes.data || !tokens->vocabulary_size;
    for (int64_t k = 0; code == PL_OK && looks && k < tokens->count; k++) {
        const int64_t left = tokens->count - k;
        if (bytes.data) {
            const uint8_t *byte = data + from + (size_t)k * width;
            piece[k % AT_ONCE] = byte[0] | byte[1] << 8;
            if (width == 4)
                piece[k % AT_ONCE] |= (int64_t)byte[2] << 16 | (int64_t)byte[3] << 24;
        } else if (k % AT_ONCE == 0) {
            code = pl_tokens_copy(tokens, k, left < AT_ONCE ? left : AT_ONCE, piece, err);
        }
        if (code != PL_OK)
            break;
        const int64_t token = piece[k % AT_ONCE];
        code = token_check(tokens, k, token, err);
        largest = token > largest ? token : largest;
        if (bytes.data)
            ((int32_t *)tokens->data)[k] = (int32_t)token;
    }
    pl_file_bytes_release(&bytes);
    if (!tokens->vocabulary_size)
        tokens->vocabulary_size = largest + 1;
    if (code == PL_OK)
        *data_info = pl_text("{\"vocabulary_size\": %lld, \"context\": %lld}",
                             (long long)tokens->vocabulary_size,
                             (long long)request->context);
    return code == PL_OK && !*data_info ? pl_no_memory(err) : code;
}

int pl_tokens_load(pl_tokens_t *tokens, const pl_tokens_request_t *request,
                   char **data_info, pl_error_t *err)
{
    pl_file_bytes_t bytes;
    pl_tokens_t made = {0};
    pl_error_t why = {0};
    int code = PL_OK;
    if (request->vocabulary == PL_TOKEN_NUMBERS) {
        code = tokens_take_numbers(&made, request, data_info, err);
        if (code == PL_OK)
            *tokens = made;
        else
            pl_tokens_release(&made);
        return code;
    }
    pl_vocabulary_t *vocabulary;
    const char *separator = request->separator ? request->separator : "";
    code = known_vocabulary(request, &vocabulary, err);
    if (code != PL_OK)
        return code;
    int32_t *token = pl_alloc_array(strlen(separator) + 1, sizeof *token);
    size_t count;
    if (!token
        || (vocabulary
            && pl_vocabulary_encode(vocabulary, separator, strlen(separator), token,
                                    &count, NULL)
                   != PL_OK))
        separator = "";
    const pl_documents_t documents = {.path = request->path,
                                      .field = request->field ? request->field : "",
                                      .separator = separator,
                                      .characters = request->vocabulary == PL_TOKEN_CHAR};
    code = token ? pl_documents_read(&documents, &bytes, err) : pl_no_memory(err);
    pl_free(token);
    if (code != PL_OK) {
        pl_vocabulary_free(vocabulary);
        return code;
    }
    code = tokens_take(&made, request, vocabulary, &bytes, data_info, &why);
    pl_file_bytes_release(&bytes);
    if (code == PL_OK) {
        *tokens = made;
        return PL_OK;
    }
    pl_tokens_release(&made);
    return pl_fail(err, code, "%s", why.text);
}

void pl_tokens_release(pl_tokens_t *tokens)
{
    pl_free(tokens->data);
    tokens->data = NULL;
    pl_array_release(&tokens->file);
}

int pl_tokens_copy(const pl_tokens_t *tokens, int64_t from, int64_t count, int64_t *out,
                   pl_error_t *err)
{
    const char *data = tokens->data;
    if (!tokens->file.in_file) {
        pl_convert(tokens->dtype, data + (size_t)from * pl_array_width(tokens->dtype),
                   PL_I64, out, (size_t)count);
        return PL_OK;
    }
    int code = pl_array_read(&tokens->file, tokens->path, from, (size_t)count, PL_I64,
                             out, err);
    for (int64_t k = 0; k < count && code == PL_OK; k++)
        code = token_check(tokens, from + k, out[k], err);
    return code;
}

int64_t pl_tokens_at(const pl_tokens_t *tokens, int64_t at)
{
    return tokens->dtype == PL_U8 ? ((const uint8_t *)tokens->data)[at]
                                  : ((const int32_t *)tokens->data)[at];
}
