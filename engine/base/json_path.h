/* json_path.h - JSON values by path: "trainer.devices", "callbacks.0.name"; and copies of
 * them */
#ifndef PL_BASE_JSON_PATH_H
#define PL_BASE_JSON_PATH_H

#include <jansson.h>

#include "paceline.h"

/* The value there or NULL.  A text is short for an object with that "name".  Borrowed. */
const json_t *pl_json_get_path(const json_t *root, const char *path);

/* Puts value there (consumed, also on failure) and makes what is missing on the way:
 * objects, or a list where the next step is a number; a text on the way becomes {"name":
 * text}.  After an error root may have changed. */
int pl_json_set_path(json_t *root, const char *path, json_t *value, pl_error_t *err);

/* A deep copy, or NULL without memory: jansson's own loses keys then and says nothing. */
json_t *pl_json_copy(const json_t *value);

/* The list with value (consumed) behind it; NULL without memory, and then the list is
 * gone as well.  So one may grow in a loop and be looked at behind it. */
json_t *pl_json_append(json_t *list, json_t *value);
/* The same of an object, by key. */
json_t *pl_json_with(json_t *object, const char *key, json_t *value);

#endif
