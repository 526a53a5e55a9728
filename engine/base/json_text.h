/* json_text.h - JSON text to values and back, beyond what jansson does
 *
 * Reading: every error says file:line:column of the token at fault.  Writing: numbers as
 * short as they can be (0.1, not 0.10000000000000001) and short lists on one line, for
 * people; the memory is Paceline's own. */
#ifndef PL_BASE_JSON_TEXT_H
#define PL_BASE_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

#include "paceline.h"

#define PL_JSON_SHOWN 64

/* The object in a text; errors use `name`.  A key that occurs twice is an error. */
json_t *pl_json_read(const char *text, size_t length, const char *name, pl_error_t *err);

/* Any one value, such as a default or the VALUE of --set. */
json_t *pl_json_value(const char *text, size_t length, pl_error_t *err);

/* A value as people write it: a text that is not JSON, such as a component's name without
 * quotes, is a string.  NULL: PL_EINVAL, not UTF-8; PL_ENOMEM. */
json_t *pl_json_parse_lenient(const char *text, pl_error_t *err);

/* "run.json:3:18: ", for the start of an error. */
#define PL_JSON_PREFIX 160
char *pl_json_prefix(const char *name, int line, int column, char prefix[PL_JSON_PREFIX]);

typedef enum pl_json_layout { PL_JSON_COMPACT, PL_JSON_INDENTED } pl_json_layout_t;

/* Makes strict JSON of a text that may have comments (behind two slashes, or between
 * slash-star and star-slash) and a comma after the last element of a list or an
 * object.  A space replaces each of their characters, so that lines and columns stay.
 * text[length] becomes NUL; returns the new length, which is not larger. */
size_t pl_json_strip_comments(char *text, size_t length);

/* The value as text, which pl_text_free() frees; NULL: out of memory. */
char *pl_json_write(const json_t *value, pl_json_layout_t layout);
/* The value (consumed; NULL: its maker had no memory) as compact text, for
 * pl_text_free(); NULL with PL_ENOMEM.  The end of a chain of pl_json_with(). */
char *pl_json_to_text(json_t *value, pl_error_t *err);

/* The value for an error text: compact, cut if it is long. */
const char *pl_json_show(const json_t *value, char shown[PL_JSON_SHOWN]);

#endif
