/* tokens.h - a text, or a file of tokens, for data sets: in memory, or in the file */
#ifndef PL_DATASETS_TOKENS_H
#define PL_DATASETS_TOKENS_H

#include "formats/array.h"
#include "formats/stream.h"
#include "paceline.h"

/* What a token is: the words of the option "vocabulary". */
#define PL_TOKEN_KINDS "char|byte|numbers"
typedef enum pl_token_kind {
    PL_TOKEN_CHAR,
    PL_TOKEN_BYTE,
    PL_TOKEN_NUMBERS,                 /* a file of tokens: 2 bytes each, little-endian, as
                                         nanoGPT writes them; or with a header */
} pl_token_kind_t;

typedef struct pl_tokens {
    pl_dtype_t dtype;                      /* in memory: u8 if that is enough, else i32 */
    void *data;                            /* [count] of dtype  [in the file] */
    int64_t count;
    pl_array_t file;                 /* numbers that stay there  [not in_file] */
    const char *path;                /* of the request */
    int64_t vocabulary_size;         /* which tokens of the file have to be below */
    int64_t newline;                 /* the token that ends a line  [-1: there is none] */
} pl_tokens_t;

typedef struct pl_tokens_request {
    const char *path;
    const char *field;                  /* of JSON Lines, with the texts  [lines as they
                                           are] */
    const char *separator;              /* between documents, where the vocabulary has its
                                           characters  [none] */
    pl_token_kind_t vocabulary;
    int64_t context;                   /* tokens of a sample at most, for the data info */
    int64_t size;                      /* of the vocabulary, if tokens are numbers  [0: of
                                          the training data, or the largest + 1] */
    size_t memory;                     /* a plain file of tokens of more bytes stays on
                                          the disk */
    const char *data_info;             /* of the training data; its vocabulary is used
                                          [none] */
} pl_tokens_request_t;

/* Loads the file, or opens it; `path` of the request has to stay.  *data_info becomes
 * {"vocabulary_size": n, "vocabulary": "…", "context": n}, without "vocabulary" if tokens
 * are numbers; to be freed by pl_text_free().  An error names the file. */
int pl_tokens_load(pl_tokens_t *tokens, const pl_tokens_request_t *request,
                   char **data_info, pl_error_t *err);
void pl_tokens_release(pl_tokens_t *tokens);

/* Tokens [from, from + count) as int64.  PL_EIO, PL_EFORMAT: tokens in the file that
 * cannot be read, or are not of the vocabulary. */
int pl_tokens_copy(const pl_tokens_t *tokens, int64_t from, int64_t count, int64_t *out,
                   pl_error_t *err);

/* The token at a place of tokens in memory. */
int64_t pl_tokens_at(const pl_tokens_t *tokens, int64_t at);

/* ---- documents.c ---- */

typedef struct pl_documents {
    const char *path;                   /* a file, or a folder of files of any depth */
    const char *field;                  /* of JSON Lines, "message.content"; "": all files
                                           are plain texts */
    const char *separator;              /* behind each document but the last */
    bool characters;                    /* texts have to be UTF-8 */
} pl_documents_t;

/* Reads all documents as one text, without byte order marks and the CR of line ends.  The
 * caller releases *bytes.  PL_EFORMAT, PL_EIO, PL_ENOTFOUND name the file, and the line
 * of JSON Lines. */
int pl_documents_read(const pl_documents_t *documents, pl_file_bytes_t *bytes,
                      pl_error_t *err);

#endif
