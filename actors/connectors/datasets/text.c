/* text.c - a text as tokens, to predict the next one
 *
 * A sample is a window of the text; its targets are the window one token later.
 * Training draws windows anywhere.  All other stages place them side by side over
 * their share of the text, so each target counts exactly once.  The share is cut here,
 * because a split of windows would put targets of validation into training windows. */
#include <math.h>
#include <string.h>

#include "actors/connectors/datasets/datasets.h"
#include "actors/connectors/datasets/tokens.h"
#include "base/error.h"
#include "base/random.h"

#define NOTHING (-1)                                    /* target behind the last token */

typedef enum windows { WINDOWS_RANDOM, WINDOWS_CONSECUTIVE } windows_t;

typedef struct text_dataset {
    const char *path, *field, *separator;
    pl_token_kind_t vocabulary;
    windows_t windows;
    int64_t context, vocabulary_size, memory_mb;
    pl_tokens_t tokens;
    int64_t begin, count;                                   /* tokens of the share */
    int64_t samples;
    bool random;
} text_dataset_t;

static const pl_option_t text_options[] = {
    PL_TEXT(text_dataset_t, path, NULL, NULL,
            "the file, plain, gzip or Zstandard; JSON Lines if it ends with .jsonl or "
            ".ndjson; or a folder of such files, with the folders in it"),
    PL_TEXT(text_dataset_t, field, "\"text\"", NULL,
            "of JSON Lines: the field with the text of a document, such as \"text\" or "
            "\"message.content\"; \"\": lines are plain text"),
    PL_TEXT(text_dataset_t, separator, "\"\\u0003\"", NULL,
            "what stands between two documents of a folder or of JSON Lines, a token of "
            "its own; it is left out where the vocabulary of the training data lacks it"),
    PL_INT(text_dataset_t, context, "64", "1..", "tokens of a sample"),
    PL_WORD(text_dataset_t, vocabulary, "\"char\"", PL_TOKEN_KINDS,
            "what a token is; numbers: the file has tokens, as nanoGPT and llm.c write "
            "them (.bin)"),
    PL_INT(text_dataset_t, vocabulary_size, "0", "0..",
           "tokens of the vocabulary, if they are numbers, such as 50257 for GPT-2; 0: "
           "the largest + 1"),
    PL_WORD(text_dataset_t, windows, "\"random\"", "random|consecutive",
            "positions of the training samples in the text"),
    PL_INT(text_dataset_t, memory_mb, "128", "0..1048576",
           "a plain file of tokens (numbers) of more MiB stays on the disk, and samples "
           "are read from there"),
    PL_OPTIONS_END,
};

/* Both ends of the share are rounded in the same way, so neighbouring shares neither
 * overlap nor leave a gap. */
static int text_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                     pl_error_t *err)
{
    text_dataset_t *text = self;
    const pl_tokens_request_t file = {.path = text->path,
                                      .field = text->field,
                                      .separator = text->separator,
                                      .vocabulary = text->vocabulary,
                                      .context = text->context,
                                      .size = text->vocabulary_size,
                                      .memory = pl_memory_bytes(text->memory_mb),
                                      .data_info = request->data_info};
    char *data_info = NULL;
    int code = pl_tokens_load(&text->tokens, &file, &data_info, err);
    const double total = (double)text->tokens.count, from = request->from,
                 to = request->to;
    const bool is_share = from >= 0 && from < to && to <= 1;
    text->begin = is_share ? llround(from * total) : 0;
    text->count = is_share ? llround(to * total) - text->begin : 0;
    if (code == PL_OK && !is_share)
        code = pl_fail(err, PL_EINVAL,
                       "%s: the share of the text, %g to %g, must lie in 0 to 1",
                       text->path, from, to);
    else if (code == PL_OK && text->count < 2)
        code = pl_fail(err, PL_EFORMAT,
                       "%s: the share %g to %g of the text has %lld tokens, but 2 are "
                       "needed",
                       text->path, from, to, (long long)text->count);
    if (code != PL_OK) {
        pl_text_free(data_info);
        return code;
    }
    const int64_t whole = text->count / text->context, targets = text->count - 1;
    text->random = request->stage == PL_TRAIN && text->windows == WINDOWS_RANDOM;
    text->samples = !text->random ? (targets - 1) / text->context + 1
                    : whole > 1   ? whole
                                  : 1;
    pl_data_info_t found = {.same_samples = true,
                            .samples = text->samples,
                            .ordered = true,
                            .data_info = data_info};
    pl_dataset_field(&found, "x", PL_I64, PL_SHAPE(text->context));
    pl_dataset_field(&found, "y", PL_I64, PL_SHAPE(text->context));
    *info = found;
    return PL_OK;
}

/* `context` tokens from `at` of the share on, with `filler` behind its end. */
static int text_copy(const text_dataset_t *text, int64_t at, int64_t filler, int64_t *out,
                     pl_error_t *err)
{
    int64_t there = text->count - at < text->context ? text->count - at : text->context;
    for (int64_t i = there; i < text->context; i++)
        out[i] = filler;
    return pl_tokens_copy(&text->tokens, text->begin + at, there, out, err);
}

static int text_read(const void *self, const pl_read_request_t *request,
                     void *const field[], pl_error_t *err)
{
    const text_dataset_t *text = self;
    int64_t *x = field[0], *y = field[1];
    int code = PL_OK;
    /* The begin of a training sample is a pure function of seed, epoch and index. */
    const uint64_t key = pl_mix(pl_mix(request->seed, request->epoch),
                                pl_hash_text("text.window")),
                   begins = text->count > text->context
                                ? (uint64_t)(text->count - text->context)
                                : 1;
    for (int i = 0; i < request->count && code == PL_OK;
         i++, x += text->context, y += text->context) {
        const int64_t index = request->index[i],
                      at = text->random
                               ? (int64_t)(pl_random_u64(key, (uint64_t)index) % begins)
                               : index * text->context;
        code = text_copy(text, at, 0, x, err);
        if (code == PL_OK)
            code = text_copy(text, at + 1, NOTHING, y, err);
    }
    return code;
}

static void text_close(void *self)
{
    text_dataset_t *text = self;
    pl_tokens_release(&text->tokens);
}

const pl_dataset_ops_t pl_text_dataset = {
    .name = "text",
    .help = "a text, to predict each next character or byte",
    .size = sizeof(text_dataset_t),
    .options = text_options,
    .open = text_open,
    .read = text_read,
    .close = text_close,
};
