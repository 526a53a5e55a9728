/* vocabulary.h - text to tokens and back
 *
 * A token is the place of a character in the vocabulary, or a byte. A vocabulary is named
 * by a text: its characters in order, or "" for bytes. The text is part of the data info
 * and of the metadata of weights. */
#ifndef PL_FORMATS_VOCABULARY_H
#define PL_FORMATS_VOCABULARY_H

#include "paceline.h"

typedef struct pl_vocabulary pl_vocabulary_t;

/* From its characters, distinct and in rising order; "" for bytes.  NULL: PL_EINVAL,
 * PL_ENOMEM. */
pl_vocabulary_t *pl_vocabulary_new(const char *characters, pl_error_t *err);

/* The distinct characters of a text, sorted; `name` is for messages.  NULL: PL_EFORMAT
 * names the byte where the text is not UTF-8 or has a zero; PL_ENOMEM. */
pl_vocabulary_t *pl_vocabulary_of(const void *text, size_t size, const char *name,
                                  pl_error_t *err);

/* Checks that a text is UTF-8 without zeros: errors as above, or PL_OK. */
int pl_vocabulary_check(const void *text, size_t size, const char *name, pl_error_t *err);

void pl_vocabulary_free(pl_vocabulary_t *vocabulary);

/* The number of tokens. */
int pl_vocabulary_size(const pl_vocabulary_t *vocabulary);

/* Its characters, as for pl_vocabulary_new(); owned by the vocabulary. */
const char *pl_vocabulary_characters(const pl_vocabulary_t *vocabulary);

/* Turns text into tokens, at most one for each byte: token [size].  *count says how
 * many.  PL_EINVAL names the first character that is not in the vocabulary, or the
 * byte that is not UTF-8; token is then undefined. */
int pl_vocabulary_encode(const pl_vocabulary_t *vocabulary, const void *text, size_t size,
                         int32_t *token, size_t *count, pl_error_t *err);

/* Turns tokens [count] into text, ended by a zero; *size, when wanted, says how many
 * bytes come before it.  To be freed by pl_text_free().  NULL: PL_EINVAL for a token that
 * is none, PL_ENOMEM. */
char *pl_vocabulary_decode(const pl_vocabulary_t *vocabulary, const int32_t *token,
                           size_t count, size_t *size, pl_error_t *err);

#endif
