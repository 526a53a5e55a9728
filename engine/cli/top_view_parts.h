/* top_view_parts.h - what top_view.c (all that is shown) and top_tables.c share */
#ifndef CLI_TOP_VIEW_PARTS_H
#define CLI_TOP_VIEW_PARTS_H

#include <jansson.h>

#include "cli/top_view.h"

enum { CELL = 40 };                                      /* bytes of a number or a cell */

static inline double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static inline const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* top_view.c */
/* "12", "1.2k", "34M". */
const char *view_number(double value, char text[CELL]);
/* How many a second; with one state there is none. */
const char *view_rate(double count, double seconds, char text[CELL]);
const char *view_duration(double seconds, char text[CELL]);

/* top_tables.c: `steps` and `seconds` lie between the two states. */
void view_ranks(cli_view_t *view, const json_t *before, const json_t *now, double steps);
void view_actors(cli_view_t *view, const json_t *before, const json_t *now,
                 double seconds);

#endif
