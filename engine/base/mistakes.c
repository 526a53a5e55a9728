/* mistakes.c - the mistakes of a run file, with their places in it */
#include "base/mistakes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"
#include "base/utf8.h"

/* A key that was set after the file was read, or that is under such a key, has no
 * position. */
struct pl_mistake pl_mistake_at(const pl_options_t *o, const pl_json_path_t *path,
                                pl_json_field_t field, int code, const char *text)
{
    char prefix[PL_JSON_PREFIX] = "", whole[PL_MISTAKE_PATH];
    const char *key;
    json_t *value;
    bool was_set = false;
    pl_json_path_text(path, whole, sizeof whole);
    json_object_foreach(o->set, key, value) {
        const size_t length = strlen(key);
        was_set |= !strncmp(whole, key, length) && strchr(".", whole[length]);
    }
    pl_json_position_t at = {0};
    if (o->text && !was_set
        && pl_json_position_find(o->text, o->length, path, field, &at))
        pl_json_prefix(o->name, at.line, at.column, prefix);
    struct pl_mistake mistake = {.line = at.line, .column = at.column};
    pl_fail(&mistake.error, code, "%s%s", prefix, text);
    return mistake;
}

static bool is_behind(const struct pl_mistake *mistake, const struct pl_mistake *other)
{
    return other->line
           && (!mistake->line || mistake->line > other->line
               || (mistake->line == other->line && mistake->column > other->column));
}

int pl_mistakes_add(pl_mistakes_t *all, const struct pl_mistake *added)
{
    int k = all->count;
    if (k == PL_MISTAKES_MAX)
        return added->error.code;
    for (; k > 0 && is_behind(&all->mistake[k - 1], added); k--)
        all->mistake[k] = all->mistake[k - 1];
    all->mistake[k] = *added;
    return ++all->count < PL_MISTAKES_MAX ? PL_OK : added->error.code;
}

int pl_options_fail(pl_error_t *err, int code, const pl_options_t *o, const char *key,
                    const char *format, ...)
{
    enum { DEEPEST = 24 };                         /* lists in lists of layers */
    char text[PL_ERROR_TEXT], words[PL_MISTAKE_PATH], *rest = words;
    pl_json_path_t paths[DEEPEST];
    int deep = 0;
    va_list args;
    va_start(args, format);
    pl_text_print(text, sizeof text, format, args);
    va_end(args);
    snprintf(words, sizeof words, "%s", key);
    const json_t *value = o->root;
    for (const char *word; deep < DEEPEST && (word = strsep(&rest, "."));) {
        const bool listed = json_is_array(value);
        const size_t index = listed ? strtoull(word, NULL, 10) : 0;
        value = listed ? json_array_get(value, index) : json_object_get(value, word);
        if (!value && deep)
            break;
        paths[deep] = (pl_json_path_t){.up = deep ? &paths[deep - 1] : NULL,
                                       .key = listed ? NULL : word,
                                       .index = index};
        deep++;
    }
    const struct pl_mistake mistake = pl_mistake_at(o, &paths[deep - 1], PL_JSON_VALUE,
                                                    code, text);
    return pl_fail(err, code, "%s", mistake.error.text);
}
