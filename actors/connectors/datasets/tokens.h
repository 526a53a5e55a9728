/* tokens.h - reads a text, or a file of tokens, into memory, for data sets */
#ifndef PL_DATASETS_TOKENS_H
#define PL_DATASETS_TOKENS_H

#include "paceline.h"

/* What a token is: the words of the option "vocabulary". */
#define PL_TOKEN_KINDS "char|byte|numbers"
typedef enum pl_token_kind {
    PL_TOKEN_CHAR,
    PL_TOKEN_BYTE,
    PL_TOKEN_NUMBERS,             /* a file of tokens: 2 bytes each, little-endian, as
                                     nanoGPT writes them; or with a header */
} pl_token_kind_t;

typedef struct pl_tokens {
    pl_dtype_t dtype;                      /* in memory: u8 if that is enough, else i32 */
    void *data;                            /* [count] of dtype */
    int64_t count;
    int64_t newline;                 /* the token that ends a line  [-1: there is none] */
} pl_tokens_t;

typedef struct pl_tokens_request {
    const char *path;
    pl_token_kind_t vocabulary;
    int64_t context;                   /* tokens of a sample at most, for the data info */
    int64_t size;                      /* of the vocabulary, if tokens are numbers  [0: of
                                          the training data, or the largest + 1] */
    const char *data_info;             /* of the training data; its vocabulary is used
                                          [none] */
} pl_tokens_request_t;

/* Loads the whole file.  *data_info becomes {"vocabulary_size": n, "vocabulary": "…",
 * "context": n}, without "vocabulary" if tokens are numbers; to be freed by
 * pl_text_free().  An error names the file. */
int pl_tokens_load(pl_tokens_t *tokens, const pl_tokens_request_t *request,
                   char **data_info, pl_error_t *err);
void pl_tokens_release(pl_tokens_t *tokens);

/* Tokens [from, from + count) as int64. */
void pl_tokens_copy(const pl_tokens_t *tokens, int64_t from, int64_t count, int64_t *out);

/* The token at a place. */
int64_t pl_tokens_at(const pl_tokens_t *tokens, int64_t at);

#endif
