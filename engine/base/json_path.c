/* json_path.c - JSON values by path, their positions in a text, and how values are
 * made */
#include "base/json_path.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/utf8.h"

#define STEP_MAX 128                                        /* bytes of one step */
#define STEPS_MAX 16
#define SHOWN 160

/* Copies the first step of *path and moves *path behind it and its dot.  False: there is
 * no step, or no key could match it. */
static bool next_step(const char **path, char step[STEP_MAX])
{
    size_t length = strcspn(*path, ".");
    if (length == 0 || length >= STEP_MAX)
        return false;
    memcpy(step, *path, length);
    step[length] = '\0';
    *path += length;
    if (**path == '.' && (*path)[1] != '\0')
        (*path)++;
    return true;
}

static bool is_index(const char *step)
{
    size_t digits = strspn(step, "0123456789");
    return digits > 0 && digits < 9 && step[digits] == '\0';
}

static json_t *child(const json_t *value, const char *step)
{
    if (json_is_array(value))
        return is_index(step) ? json_array_get(value, (size_t)atoi(step)) : NULL;
    if (json_is_string(value))
        return strcmp(step, "name") ? NULL : (json_t *)value;
    return json_object_get(value, step);
}

const json_t *pl_json_get_path(const json_t *root, const char *path)
{
    char step[STEP_MAX];
    const json_t *value = root;
    do {
        if (!next_step(&path, step))
            return NULL;
        value = child(value, step);
    } while (value && *path);
    return value;
}

/* ---- Setting ---- */

static int put_child(json_t *holder, const char *step, json_t *value, pl_error_t *err)
{
    if (json_is_object(holder))
        return json_object_set_new(holder, step, value) == 0 ? PL_OK : pl_no_memory(err);
    size_t count = json_array_size(holder);
    size_t index = is_index(step) ? (size_t)atoi(step) : count + 1;
    if (index > count) {
        json_decref(value);
        return pl_fail(err, PL_EINVAL,
                       "\"%s\" is not an index of a list of %zu: "
                       "indices start at 0, and %zu appends",
                       step, count, count);
    }
    int rc = index < count ? json_array_set_new(holder, index, value)
                           : json_array_append_new(holder, value);
    return rc == 0 ? PL_OK : pl_no_memory(err);
}

/* Makes the value below holder's step one that can hold keys, with `next` under it: a
 * text becomes its "name", and a missing value becomes an object or a list. */
static int make_way(json_t *holder, const char *step, const char *next, json_t **way_p,
                    pl_error_t *err)
{
    char shown[PL_JSON_SHOWN], index[STEP_MAX];
    json_t *there = child(holder, step);
    if (json_is_object(there) || json_is_array(there)) {
        *way_p = there;
        return PL_OK;
    }
    if (there && !json_is_string(there) && !json_is_null(there))
        return pl_fail(err, PL_EINVAL, "\"%s\" is %s, which has no keys", step,
                       pl_json_show(there, shown));
    bool of_list = !json_is_string(there) && next_step(&next, index) && is_index(index);
    json_t *way = of_list ? json_array() : json_object();
    if (way && json_is_string(there) && json_object_set(way, "name", there) != 0) {
        json_decref(way);
        way = NULL;
    }
    *way_p = way;
    return put_child(holder, step, way, err);
}

static int put_at(json_t *root, const char *path, json_t *value, pl_error_t *err)
{
    char step[STEP_MAX];
    json_t *holder = root;
    for (int steps = 0; steps < STEPS_MAX && next_step(&path, step); steps++) {
        if (*path == '\0')
            return put_child(holder, step, json_incref(value), err);
        int rc = make_way(holder, step, path, &holder, err);
        if (rc != PL_OK)
            return rc;
    }
    return pl_fail(err, PL_EINVAL,
                   "a key is names separated by dots, such as trainer.devices");
}

int pl_json_set_path(json_t *root, const char *path, json_t *value, pl_error_t *err)
{
    char shown[SHOWN];
    pl_error_t why = {0};
    int rc = put_at(root, path, value, &why);
    json_decref(value);
    if (rc == PL_OK || rc == PL_ENOMEM)
        return rc == PL_OK ? rc : pl_no_memory(err);
    return pl_fail(err, rc, "cannot set \"%s\": %s",
                   pl_utf8_show(path, shown, sizeof shown), why.text);
}

/* ---- Making values ---- */

json_t *pl_json_copy(const json_t *value)
{
    const char *key;
    json_t *member, *copy;
    size_t k;
    if (json_is_object(value)) {
        copy = json_object();
        json_object_foreach((json_t *)value, key, member)
            copy = pl_json_with(copy, key, pl_json_copy(member));
        return copy;
    }
    if (!json_is_array(value))
        return json_deep_copy(value);
    copy = json_array();
    json_array_foreach(value, k, member)
        copy = pl_json_append(copy, pl_json_copy(member));
    return copy;
}

json_t *pl_json_append(json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) == 0)
        return list;
    json_decref(list);
    return NULL;
}

json_t *pl_json_with(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) == 0)
        return object;
    json_decref(object);
    return NULL;
}

json_int_t pl_json_integer_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

json_int_t pl_json_integer_at(const json_t *list, size_t index)
{
    return json_integer_value(json_array_get(list, index));
}

const char *pl_json_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

json_t *pl_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *pl_json_integers(const int64_t *values, int count)
{
    json_t *list = json_array();
    for (int k = 0; k < count; k++)
        list = pl_json_append(list, json_integer(values[k]));
    return list;
}

/* ---- Positions ---- */

typedef struct cursor {
    const char *at, *end;
} cursor_t;

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Skips white space and the separators ',' and ':'. */
static void skip_gap(cursor_t *c)
{
    while (c->at < c->end && (is_space(*c->at) || *c->at == ',' || *c->at == ':'))
        c->at++;
}

static void skip_string(cursor_t *c)
{
    for (c->at++; c->at < c->end && *c->at != '"'; c->at++)
        if (*c->at == '\\' && c->at + 1 < c->end)
            c->at++;
    if (c->at < c->end)
        c->at++;
}

static void skip_token(cursor_t *c)
{
    if (*c->at == '"') {
        skip_string(c);
        return;
    }
    const char *start = c->at;
    while (c->at < c->end && !is_space(*c->at)
           && !strchr(",:[]{}\"", *c->at)) /* strchr() finds the NUL too */
        c->at++;
    if (c->at == start)
        c->at++;
}

/* Moves from the start of a value behind it, without recursion for deep nesting. */
static void skip_value(cursor_t *c)
{
    size_t depth = 0;
    do {
        skip_gap(c);
        if (c->at >= c->end)
            return;
        if (*c->at == '{' || *c->at == '[')
            depth++;
        else if (*c->at == '}' || *c->at == ']')
            depth--;
        skip_token(c);
    } while (depth > 0);
}

/* Whether the string token [from, to), quotes included, means `key`. */
static bool is_key(const char *from, const char *to, const char *key)
{
    size_t length = (size_t)(to - from);
    if (!memchr(from, '\\', length))
        return length == strlen(key) + 2 && !memcmp(from + 1, key, length - 2);
    json_t *text = json_loadb(from, length, JSON_DECODE_ANY, NULL);
    bool same = text && !strcmp(json_string_value(text), key);
    json_decref(text);
    return same;
}

/* Moves the cursor to the value at a path, and *key_at to its key or to the element.
 * Paths lead from the value up; the text is read from the root down. */
static bool enter(cursor_t *c, const pl_json_path_t *path, const char **key_at)
{
    if (!path) {
        skip_gap(c);
        *key_at = c->at;
        return c->at < c->end;
    }
    if (!enter(c, path->up, key_at) || *c->at != (path->key ? '{' : '['))
        return false;
    size_t index = path->index;
    for (c->at++;; skip_value(c)) {
        skip_gap(c);
        if (c->at >= c->end || (path->key ? *c->at != '"' : *c->at == ']'))
            return false;
        *key_at = c->at;
        if (!path->key && index-- == 0)
            return true;
        if (!path->key)
            continue;
        skip_string(c);
        bool is_found = is_key(*key_at, c->at, path->key);
        skip_gap(c);
        if (is_found)
            return true;
    }
}

bool pl_json_position_find(const char *text, size_t length, const pl_json_path_t *path,
                           pl_json_field_t field, pl_json_position_t *position)
{
    cursor_t c = {text, text + length};
    const char *key_at = text;
    if (!enter(&c, path, &key_at) || c.at >= c.end)
        return false;
    const char *at = field == PL_JSON_KEY ? key_at : c.at;
    *position = pl_json_position_at(text, (size_t)(at - text));
    return true;
}

pl_json_position_t pl_json_position_at(const char *text, size_t offset)
{
    pl_json_position_t position = {1, 1};
    for (size_t i = 0; i < offset; i++) {
        bool starts_character = ((unsigned char)text[i] & 0xC0) != 0x80;
        position.column += starts_character;
        if (text[i] == '\n')
            position = (pl_json_position_t){position.line + 1, 1};
    }
    return position;
}

size_t pl_json_token_start(const char *text, size_t length, size_t end)
{
    cursor_t c = {text, text + length};
    const char *start = text;
    while (c.at < c.end && (size_t)(c.at - text) < end) {
        start = c.at;
        if (is_space(*c.at))
            c.at++;
        else
            skip_token(&c);
    }
    return (size_t)(start - text);
}

char *pl_json_path_text(const pl_json_path_t *path, char *text, size_t size)
{
    if (!path) {
        text[0] = '\0';
        return text;
    }
    size_t used = strlen(pl_json_path_text(path->up, text, size));
    const char *dot = used ? "." : "";
    if (path->key)
        snprintf(text + used, size - used, "%s%s", dot, path->key);
    else
        snprintf(text + used, size - used, "%s%zu", dot, path->index);
    return text;
}
