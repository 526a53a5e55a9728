/* text.c - a text as tokens, to predict the next one
 *
 * A sample is a window of the text and, one place later, its targets.  Training draws
 * windows anywhere; all other stages lay them side by side over their share, so that each
 * target counts exactly once.  The share is cut here, because a split of windows would
 * let training see what validation is asked. */
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "actors/connectors/datasets/datasets.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/random.h"
#include "formats/array.h"
#include "formats/convert.h"
#include "formats/vocabulary.h"

#define NOTHING (-1)                                    /* label where no token follows */
#define PIECE 4096                                      /* bytes encoded at once */

typedef struct text {
    const char *path, *vocabulary, *windows;
    int64_t context;
    pl_dtype_t dtype;                  /* of a token in memory: u8 when that is enough, or
                                          i32 */
    uint8_t *token;                    /* [total] of dtype */
    int64_t begin, count;              /* tokens of the share */
    int64_t samples;
    bool random;
} text_t;

static const pl_option_t text_options[] = {
    PL_TEXT(text_t, path, NULL, NULL, "the file, plain or gzip"),
    PL_INT(text_t, context, "64", "1..", "tokens of a sample"),
    PL_TEXT(text_t, vocabulary, "\"char\"", "char|byte", "what a token is"),
    PL_TEXT(text_t, windows, "\"random\"", "random|consecutive",
            "where training takes its samples"),
    PL_OPTIONS_END,
};

/* Encodes all of a valid text; -> tokens. */
static int64_t text_encode(text_t *text, const pl_vocabulary_t *vocabulary,
                           const pl_file_bytes_t *bytes)
{
    int32_t piece[PIECE];
    int64_t total = 0;
    size_t count = 0;
    for (size_t at = 0, size; at < bytes->size; at += size) {
        size = bytes->size - at < PIECE ? bytes->size - at : PIECE;
        while (at + size < bytes->size && (bytes->data[at + size] & 0xC0) == 0x80
               && size > PIECE - 4)
            size--;                                  /* not in the midst of a character */
        pl_vocabulary_encode(vocabulary, bytes->data + at, size, piece, &count, NULL);
        for (size_t i = 0; i < count; i++, total++)
            if (text->dtype == PL_U8)
                text->token[total] = (uint8_t)piece[i];
            else
                ((int32_t *)text->token)[total] = piece[i];
    }
    return total;
}

/* {"vocabulary_size": n, "vocabulary": "…", "context": n} */
static char *text_facts(const text_t *text, const pl_vocabulary_t *vocabulary)
{
    json_t *facts = json_pack("{s:i, s:s, s:I}", "vocabulary_size",
                              pl_vocabulary_size(vocabulary), "vocabulary",
                              pl_vocabulary_characters(vocabulary), "context",
                              (json_int_t)text->context);
    char *written = facts ? pl_json_write(facts, PL_JSON_COMPACT) : NULL;
    json_decref(facts);
    return written;
}

/* Loads the tokens of the whole file and says what is known of them. */
static int text_load(text_t *text, const pl_file_bytes_t *bytes, int64_t *total,
                     char **facts, pl_error_t *err)
{
    pl_vocabulary_t *vocabulary = NULL;
    pl_error_t why = {0};
    if (!strcmp(text->vocabulary, "byte"))
        vocabulary = pl_vocabulary_new("", &why);
    else
        vocabulary = pl_vocabulary_of(bytes->data, bytes->size, text->path, &why);
    if (!vocabulary)
        return pl_fail(err, why.code, "%s", why.text);
    text->dtype = pl_vocabulary_size(vocabulary) <= 256 ? PL_U8 : PL_I32;
    text->token = pl_alloc_array(bytes->size, pl_array_width(text->dtype));
    *facts = text->token ? text_facts(text, vocabulary) : NULL;
    if (*facts)
        *total = text_encode(text, vocabulary, bytes);
    pl_vocabulary_free(vocabulary);
    return *facts ? PL_OK : pl_no_memory(err);
}

/* Cuts the share; the same rounding at both ends, so that neighbours neither overlap nor
 * leave a gap. */
static int text_share(text_t *text, const pl_data_request_t *request, int64_t total,
                      pl_error_t *err)
{
    if (!(request->from >= 0 && request->from < request->to && request->to <= 1))
        return pl_fail(err, PL_EINVAL,
                       "%s: the share of the text, %g to %g, must lie in 0 to 1",
                       text->path, request->from, request->to);
    text->begin = llround(request->from * (double)total);
    text->count = llround(request->to * (double)total) - text->begin;
    if (text->count < 2)
        return pl_fail(err, PL_EFORMAT,
                       "%s: the share %g to %g of it has %lld tokens; 2 are the least",
                       text->path, request->from, request->to, (long long)text->count);
    text->random = request->stage == PL_TRAIN && !strcmp(text->windows, "random");
    int64_t whole = text->count / text->context;
    int64_t targets = text->count - 1;
    if (!text->random)
        text->samples = (targets - 1) / text->context + 1;
    else
        text->samples = whole > 1 ? whole : 1;
    return PL_OK;
}

static int text_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                     pl_error_t *err)
{
    text_t *text = self;
    pl_file_bytes_t bytes;
    char *facts = NULL;
    int64_t total = 0;
    int code = pl_file_read(text->path, pl_file_limit(), &bytes, err);
    if (code)
        return code;
    code = text_load(text, &bytes, &total, &facts, err);
    pl_file_bytes_release(&bytes);
    if (!code)
        code = text_share(text, request, total, err);
    if (code) {
        pl_text_free(facts);
        return code;
    }
    pl_data_info_t found = {.samples = text->samples, .ordered = true, .facts = facts};
    pl_dataset_field(&found, "x", PL_I64, PL_SHAPE(text->context));
    pl_dataset_field(&found, "y", PL_I64, PL_SHAPE(text->context));
    *info = found;
    return PL_OK;
}

/* Where a sample begins in the share: for training a pure function of (seed, epoch,
 * index). */
static int64_t text_window(const text_t *text, const pl_read_request_t *request,
                           int64_t index)
{
    if (!text->random)
        return index * text->context;
    if (text->count <= text->context)
        return 0;
    uint64_t key = pl_mix(pl_mix(request->seed, request->epoch), pl_hash("text.window"));
    return (int64_t)(pl_random_u64(key, (uint64_t)index)
                     % (uint64_t)(text->count - text->context));
}

/* Up to `context` tokens from `at` of the share on, and `filler` for those that are not
 * there. */
static void text_copy(const text_t *text, int64_t at, int64_t filler, int64_t *out)
{
    int64_t there = text->count - at < text->context ? text->count - at : text->context;
    const uint8_t *token = text->token
                           + (size_t)(text->begin + at) * pl_array_width(text->dtype);
    pl_convert(text->dtype, token, PL_I64, out, (size_t)there);
    for (int64_t i = there; i < text->context; i++)
        out[i] = filler;
}

static int text_read(const void *self, const pl_read_request_t *request,
                     void *const field[], pl_error_t *err)
{
    const text_t *text = self;
    int64_t *x = field[0], *y = field[1];
    int code = pl_dataset_check(text->path, request, text->samples, err);
    if (code)
        return code;
    for (int i = 0; i < request->count; i++, x += text->context, y += text->context) {
        int64_t at = text_window(text, request, request->index[i]);
        text_copy(text, at, 0, x);
        text_copy(text, at + 1, NOTHING, y);
    }
    return PL_OK;
}

static void text_close(void *self)
{
    text_t *text = self;
    pl_free(text->token);
    text->token = NULL;
}

const pl_dataset_ops_t pl_text_dataset = {
    .name = "text",
    .help = "a text, to predict each next character or byte",
    .size = sizeof(text_t),
    .options = text_options,
    .open = text_open,
    .read = text_read,
    .close = text_close,
};
