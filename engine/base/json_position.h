/* json_position.h - where in a JSON text something stands
 *
 * jansson forgets positions once a text is parsed.  Errors need them rarely, so nothing
 * is recorded: the text is walked again to the path in question.  It has been parsed
 * before, so the walk need not check it. */
#ifndef PL_BASE_JSON_POSITION_H
#define PL_BASE_JSON_POSITION_H

#include <stdbool.h>
#include <stddef.h>

/* One step from a value to a value in it; paths grow on the stack of whoever descends.
 * NULL is the whole text. */
typedef struct pl_json_path {
    const struct pl_json_path *up;
    const char *key;                       /* of an object [NULL: the element `index` of a
                                              list] */
    size_t index;
} pl_json_path_t;

typedef struct pl_json_position {
    int line, column;                               /* from 1; columns count characters */
} pl_json_position_t;

typedef enum pl_json_part { PL_JSON_KEY, PL_JSON_VALUE } pl_json_part_t;

/* Where the value at path stands, or its key; false when the text has none there. */
bool pl_json_position_find(const char *text, size_t length, const pl_json_path_t *path,
                           pl_json_part_t part, pl_json_position_t *position);

/* Line and column of an offset. */
pl_json_position_t pl_json_position_at(const char *text, size_t offset);

/* Where the token starts that holds the byte before `end`; the text may be broken. */
size_t pl_json_token_start(const char *text, size_t length, size_t end);

/* "trainer.devices", "callbacks.0.name"; cut when longer. */
char *pl_json_path_text(const pl_json_path_t *path, char *text, size_t size);

#endif
