/* json_path.h - JSON values by path, their positions in a text, and how values are made
 *
 * A path is "trainer.devices" or "callbacks.0.name". */
#ifndef PL_BASE_JSON_PATH_H
#define PL_BASE_JSON_PATH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "paceline.h"

/* The value at a path or NULL.  A text is short for an object with that "name".
 * Borrowed. */
const json_t *pl_json_get_path(const json_t *root, const char *path);

/* Sets the value at a path (consumed, also on failure).  Missing values on the way become
 * objects, or a list where the next step is a number; a text on the way becomes {"name":
 * text}.  After an error root may have changed. */
int pl_json_set_path(json_t *root, const char *path, json_t *value, pl_error_t *err);

/* A deep copy, or NULL without memory: jansson's own then loses keys silently. */
json_t *pl_json_copy(const json_t *value);

/* Appends value (consumed) and returns the list; without memory frees it and returns
 * NULL.  So a loop may grow a list, and the caller checks it once, behind the loop. */
json_t *pl_json_append(json_t *list, json_t *value);
/* Sets a key of an object likewise. */
json_t *pl_json_with(json_t *object, const char *key, json_t *value);

/* An integer of an object or of a list; 0: it is absent. */
json_int_t pl_json_integer_of(const json_t *object, const char *key);
json_int_t pl_json_integer_at(const json_t *list, size_t index);
/* A text of an object; "": it is absent. */
const char *pl_json_text_of(const json_t *object, const char *key);

/* A number; null if it is not finite.  NULL without memory, as of the next. */
json_t *pl_json_number(double value);
/* A list of integers, such as a shape. */
json_t *pl_json_integers(const int64_t *values, int count);

/* ---- Positions ----
 *
 * jansson forgets positions once a text is parsed.  Errors need them rarely, so nothing
 * is recorded: the text is read again up to the path.  It has been parsed before, so it
 * need not be checked. */

/* One step from a value to a value in it.  Paths grow on the stack of the function that
 * descends.  [NULL: the whole text] */
typedef struct pl_json_path {
    const struct pl_json_path *up;
    const char *key;                       /* of an object [NULL: the element `index` of a
                                              list] */
    size_t index;
} pl_json_path_t;

typedef struct pl_json_position {
    int line, column;                               /* from 1; columns count characters */
} pl_json_position_t;

typedef enum pl_json_field { PL_JSON_KEY, PL_JSON_VALUE } pl_json_field_t;

/* The position of the value at a path, or of its key; false if the text has none. */
bool pl_json_position_find(const char *text, size_t length, const pl_json_path_t *path,
                           pl_json_field_t field, pl_json_position_t *position);

/* The line and the column of an offset. */
pl_json_position_t pl_json_position_at(const char *text, size_t offset);

/* The start of the token that holds the byte before `end`.  The text may be invalid. */
size_t pl_json_token_start(const char *text, size_t length, size_t end);

/* The path as text, "callbacks.0.name", cut to size; returns text. */
char *pl_json_path_text(const pl_json_path_t *path, char *text, size_t size);

#endif
