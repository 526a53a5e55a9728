/* run_errors.c - errors of a run file: where the fault stands, and which key was meant */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/suggestion.h"
#include "base/option.h"
#include "base/registry.h"
#include "base/run_check.h"
#include "base/run_check_internal.h"
#include "base/utf8.h"

/* ---- Where it stands ---- */

/* Whether the key or one above it was set after the file was read: then the file has no
 * place for it. */
static bool was_set(const checker_t *c, const char *path)
{
    const char *key;
    json_t *value;
    json_object_foreach(c->o->set, key, value) {
        size_t length = strlen(key);
        if (!strncmp(path, key, length) && (path[length] == '\0' || path[length] == '.'))
            return true;
    }
    return false;
}

enum { HINT = PL_JSON_SHOWN + 80 };                         /* bytes */

int run_fail_at(const checker_t *c, const path_t *path, pl_json_field_t component,
                int code, const char *format, ...)
{
    char text[PL_ERROR_TEXT], prefix[PL_JSON_PREFIX] = "", whole[PATH_TEXT];
    va_list args;
    va_start(args, format);
    pl_text_print(text, sizeof text, format, args);
    va_end(args);
    pl_json_position_t position;
    if (c->o->text && !was_set(c, pl_json_path_text(path, whole, sizeof whole))
        && pl_json_position_find(c->o->text, c->o->length, path, component, &position))
        pl_json_prefix(c->o->name, position.line, position.column, prefix);
    return pl_fail(c->err, code, "%s%s", prefix, text);
}

int pl_options_fail(pl_error_t *err, int code, const pl_options_t *o, const char *key,
                    const char *format, ...)
{
    enum { DEEPEST = 8 };
    char text[PL_ERROR_TEXT], words[PATH_TEXT], *rest = words;
    path_t paths[DEEPEST];
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
        paths[deep] = (path_t){.up = deep ? &paths[deep - 1] : NULL,
                               .key = listed ? NULL : word,
                               .index = index};
        deep++;
    }
    const checker_t c = {.o = o, .err = err};
    return run_fail_at(&c, &paths[deep - 1], PL_JSON_VALUE, code, "%s", text);
}

char *run_show_path(const path_t *path, char shown[PATH_TEXT])
{
    char text[2 * PATH_TEXT];
    return pl_utf8_show(pl_json_path_text(path, text, sizeof text), shown, PATH_TEXT);
}

/* What to do instead where a value of data shows what was meant, or "". */
static const char *value_hint(const checker_t *c, const path_t *path, char hint[HINT])
{
    char whole[PATH_TEXT], shown[PL_JSON_SHOWN];
    const json_t *value = pl_json_get_path(c->o->root,
                                           pl_json_path_text(path, whole, sizeof whole));
    const bool is_target =
        path->key && (!strcmp(path->key, "label") || !strcmp(path->key, "target"));
    hint[0] = '\0';
    if (strncmp(whole, "data.", strlen("data.")) != 0)
        return hint;
    if (json_is_array(value) && path->key && !strcmp(path->key, "path"))
        snprintf(hint, HINT, ": a data source is one file: join several with cat");
    if (json_is_string(value) && is_target)
        snprintf(hint, HINT, ": to name a column, set \"fields\" to {\"y\": %s}",
                 pl_json_show(value, shown));
    return hint;
}

int run_fail_value(const checker_t *c, const path_t *path, const pl_error_t *why)
{
    char shown[PATH_TEXT], hint[HINT];
    if (why->code == PL_ENOMEM)
        return pl_no_memory(c->err);
    return run_fail_at(c, path, PL_JSON_VALUE, why->code, "\"%s\" %s%s",
                       run_show_path(path, shown), why->text,
                       strchr(why->text, '?') ? "" : value_hint(c, path, hint));
}

int run_fail_form(const checker_t *c, const path_t *path, const char *wanted,
                  const json_t *value)
{
    char shown[PATH_TEXT], shown_value[PL_JSON_SHOWN];
    return run_fail_at(c, path, PL_JSON_VALUE, PL_EINVAL, "\"%s\" takes %s, not %s",
                       run_show_path(path, shown), wanted,
                       pl_json_show(value, shown_value));
}

/* ---- Which key was meant ---- */

static bool has_option(const pl_option_t *table, const char *key)
{
    return pl_option_find(table, key) != NULL;
}

/* Whether a component of that role has such an option: "lr" of an optimizer. */
static bool has_component_option(const char *role, const char *key)
{
    const pl_component_t *component;
    for (int k = 0; role && (component = pl_component_at(role, k)); k++)
        if (has_option(component->options, key))
            return true;
    return false;
}

/* A section that has such a key itself comes before one whose components have it. */
static const char *section_with(const char *key)
{
    for (const pl_section_t *section = pl_sections; section->name; section++)
        if (has_option(pl_options_of(section->name), key))
            return section->name;
    for (const pl_section_t *section = pl_sections; section->name; section++)
        if (section->kind < PL_SECTION_COMPONENTS
            && has_component_option(section->role, key))
            return section->name;
    return NULL;
}

const char *pl_run_key(const char *word, char key[PL_RUN_KEY])
{
    const char *synonym = pl_compat_key(word), *section;
    if (synonym)
        return synonym;
    for (const pl_section_t *s = pl_sections; s->name; s++)
        if (!strcmp(s->name, word))
            return s->name;
    const size_t length = strlen(word);
    section = length > 1 && length < PL_RUN_KEY / 2 ? section_with(word) : NULL;
    if (!section)
        return NULL;
    snprintf(key, PL_RUN_KEY, "%s.%s", section, word);
    return key;
}

int run_fail_meant(const checker_t *c, const path_t *path, const pl_suggestion_t *nearest)
{
    char shown[PATH_TEXT], text[PL_SUGGESTION_TEXT], buffer[PL_RUN_KEY];
    const bool is_deep = path->up && path->up->up;
    const char *meant = is_deep ? pl_compat_key(path->key)
                                : pl_run_key(path->key, buffer);
    run_show_path(path, shown);
    const char *const dot = strrchr(shown, '.');
    const size_t section = dot ? (size_t)(dot - shown) : 0;
    const bool is_beside = section && meant && !strncmp(meant, shown, section + 1)
                           && nearest->name && strcmp(meant + section + 1, nearest->name);
    if ((pl_suggestion_is_sure(nearest) && !is_beside) || !meant || !strcmp(meant, shown))
        return run_fail_at(c, path, PL_JSON_KEY, PL_EINVAL, "unknown key \"%s\": %s",
                           shown, pl_suggestion_text(nearest, text));
    return run_fail_at(c, path, PL_JSON_KEY, PL_EINVAL,
                       "unknown key \"%s\": did you mean \"%s\"?", shown, meant);
}
