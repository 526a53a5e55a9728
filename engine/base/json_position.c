/* json_position.c - where in a JSON text something stands */
#include "base/json_position.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct cursor {
    const char *at, *end;
} cursor_t;

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* What separates tokens is of no interest either: ',' and ':'. */
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

static bool is_word(char c)
{
    return !is_space(c) && !strchr(",:[]{}\"", c); /* strchr() finds the NUL too */
}

static void skip_token(cursor_t *c)
{
    if (*c->at == '"') {
        skip_string(c);
        return;
    }
    const char *start = c->at;
    while (c->at < c->end && is_word(*c->at))
        c->at++;
    if (c->at == start)
        c->at++;
}

/* From the start of a value to behind it; deep nesting needs no stack. */
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

/* From the '{' to the value of that key; *key_at is where the key starts. */
static bool enter_object(cursor_t *c, const char *key, const char **key_at)
{
    for (c->at++;; skip_value(c)) {
        skip_gap(c);
        if (c->at >= c->end || *c->at != '"')
            return false;
        *key_at = c->at;
        skip_string(c);
        bool found = is_key(*key_at, c->at, key);
        skip_gap(c);
        if (found)
            return true;
    }
}

static bool enter_list(cursor_t *c, size_t index, const char **key_at)
{
    for (c->at++;; skip_value(c)) {
        skip_gap(c);
        if (c->at >= c->end || *c->at == ']')
            return false;
        *key_at = c->at;
        if (index-- == 0)
            return true;
    }
}

/* Paths come from the value up and are walked from the text down. */
static bool enter(cursor_t *c, const pl_json_path_t *path, const char **key_at)
{
    if (!path) {
        skip_gap(c);
        *key_at = c->at;
        return c->at < c->end;
    }
    if (!enter(c, path->up, key_at))
        return false;
    char expected = path->key ? '{' : '[';
    if (*c->at != expected)
        return false;
    return path->key ? enter_object(c, path->key, key_at)
                     : enter_list(c, path->index, key_at);
}

bool pl_json_position_find(const char *text, size_t length, const pl_json_path_t *path,
                           pl_json_part_t part, pl_json_position_t *position)
{
    cursor_t c = {text, text + length};
    const char *key_at = text;
    if (!enter(&c, path, &key_at) || c.at >= c.end)
        return false;
    const char *at = part == PL_JSON_KEY ? key_at : c.at;
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
