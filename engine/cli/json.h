/* json.h - members of JSON objects, with a default where there is none */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <jansson.h>

/* The text at a key, or "". */
static inline const char *cli_get_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* The text at a key, or "?". */
static inline const char *cli_get_word(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "?";
}

static inline double cli_get_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static inline long long cli_get_count(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

#endif
