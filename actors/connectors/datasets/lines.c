/* lines.c - lines of texts as samples of different length, to predict the next token
 *
 * A sample begins with the newline before its line, and its last target is the newline
 * behind it: so a model learns where lines end, and can write a line after a newline.
 * Padding has no target. */
#include <string.h>

#include "actors/connectors/datasets/datasets.h"
#include "actors/connectors/datasets/tokens.h"
#include "base/alloc.h"
#include "base/error.h"

#define NOTHING (-1)                                        /* label of padding */

typedef struct lines_dataset {
    const char *path, *field;
    pl_token_kind_t vocabulary;
    int64_t context;
    pl_tokens_t tokens;
    int64_t *begin;                              /* [samples], first token of each line */
    int64_t samples;
} lines_dataset_t;

static const pl_option_t lines_options[] = {
    PL_TEXT(lines_dataset_t, path, NULL, NULL,
            "the file, plain, gzip or Zstandard; JSON Lines if it ends with .jsonl or "
            ".ndjson; or a folder of such files, with the folders in it"),
    PL_TEXT(
        lines_dataset_t, field, "\"text\"", NULL,
        "of JSON Lines: the field with the text, each of whose lines is a sample, such "
        "as \"text\" or \"message.content\"; \"\": lines are plain text"),
    PL_INT(lines_dataset_t, context, "64", "2..",
           "maximum number of tokens of a sample; the rest of a line is ignored"),
    PL_WORD(lines_dataset_t, vocabulary, "\"char\"", "char|byte", "what a token is"),
    PL_OPTIONS_END,
};

/* Number of tokens from `begin` to the newline, the end of the text, or `context`. */
static int64_t line_size(const lines_dataset_t *lines, int64_t begin)
{
    int64_t at = begin;
    while (at < lines->tokens.count && at - begin < lines->context
           && pl_tokens_at(&lines->tokens, at) != lines->tokens.newline)
        at++;
    return at - begin;
}

/* Counts lines that are not empty, and writes where they begin  [NULL]. */
static int64_t lines_list(const pl_tokens_t *tokens, int64_t *begin)
{
    int64_t count = 0, from = 0;
    for (int64_t at = 0; at <= tokens->count; at++) {
        if (at < tokens->count && pl_tokens_at(tokens, at) != tokens->newline)
            continue;
        if (at > from && begin)
            begin[count] = from;
        count += at > from;
        from = at + 1;
    }
    return count;
}

static int lines_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                      pl_error_t *err)
{
    lines_dataset_t *lines = self;
    const pl_tokens_request_t file = {.path = lines->path,
                                      .field = lines->field,
                                      .separator = "\n",
                                      .vocabulary = lines->vocabulary,
                                      .context = lines->context,
                                      .data_info = request->data_info};
    pl_data_info_t found = {.same_samples = true, .padding = {0, NOTHING}};
    int code = pl_tokens_load(&lines->tokens, &file, &found.data_info, err);
    if (code == PL_OK && lines->tokens.newline < 0)
        code = pl_fail(err, PL_EFORMAT,
                       "%s: there is no line end: use data set \"text\" for a text "
                       "without lines",
                       lines->path);
    if (code == PL_OK && (lines->samples = lines_list(&lines->tokens, NULL)) == 0)
        code = pl_fail(err, PL_EFORMAT, "%s: all lines are empty", lines->path);
    if (code == PL_OK
        && !(lines->begin = pl_alloc_array((size_t)lines->samples, sizeof *lines->begin)))
        code = pl_no_memory(err);
    if (code != PL_OK) {
        pl_text_free(found.data_info);
        return code;
    }
    lines_list(&lines->tokens, lines->begin);
    found.samples = lines->samples;
    pl_dataset_field(&found, "x", PL_I64, PL_SHAPE(PL_VARIES));
    pl_dataset_field(&found, "y", PL_I64, PL_SHAPE(PL_VARIES));
    *info = found;
    return PL_OK;
}

/* Counts the newline before the line too. */
static int64_t lines_length(const void *self, int64_t index)
{
    const lines_dataset_t *lines = self;
    const int64_t size = line_size(lines, lines->begin[index]);
    return size < lines->context ? size + 1 : size;
}

static int lines_read(const void *self, const pl_read_request_t *request,
                      void *const field[], pl_error_t *err)
{
    const lines_dataset_t *lines = self;
    int64_t *x = field[0], *y = field[1];
    for (int i = 0; i < request->count; i++, x += request->length, y += request->length) {
        const int64_t begin = lines->begin[request->index[i]];
        const int64_t length = lines_length(lines, request->index[i]);
        const int64_t size = line_size(lines, begin);
        pl_tokens_copy(&lines->tokens, begin, size, y, err);
        if (length > size)
            y[size] = lines->tokens.newline;
        x[0] = lines->tokens.newline;
        memcpy(x + 1, y, (size_t)(length - 1) * sizeof *x);
    }
    return PL_OK;
}

static void lines_close(void *self)
{
    lines_dataset_t *lines = self;
    pl_tokens_release(&lines->tokens);
    pl_free(lines->begin);
    lines->begin = NULL;
}

const pl_dataset_ops_t pl_lines_dataset = {
    .name = "lines",
    .help = "lines of a text, each as long as it is, to predict each next character or "
            "byte",
    .size = sizeof(lines_dataset_t),
    .options = lines_options,
    .open = lines_open,
    .read = lines_read,
    .close = lines_close,
    .length = lines_length,
};
