/* keys.c - paceline list --keys: what --set can say, for shells that complete it
 *
 * A line is KEY=, or KEY=VALUE for each value that is a word.  Parts are those that this
 * process knows, so plug-ins in their folders are among them. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"

enum {
    DEPTH = 3
};                                         /* of parts within parts: collective.slots of a
                                              strategy */

/* Where parts stand in a run file; lists by their first entry. */
static const struct {
    const char *key, *role;
} places[] = {
    {"module", "module"},       {"data", "dataset"},        {"optimizer", "optimizer"},
    {"scheduler", "scheduler"}, {"averaging", "averaging"}, {"callbacks.0", "callback"},
    {"loggers.0", "logger"},
};

static void show_options(const char *prefix, const pl_option_t *options, int depth);

/* A part's name as the value, and its options below the key. */
static void show_components(const char *key, const char *role, int depth)
{
    const pl_component_t *component;
    for (int k = 0; (component = pl_component_at(role, k)); k++) {
        cli_print("%s=%s\n", key, component->name);
        show_options(key, component->options, depth + 1);
    }
}

/* "norm|value" */
static void show_words(const char *key, const char *words)
{
    for (; *words; words += *words == '|') {
        int length = (int)strcspn(words, "|");
        cli_print("%s=%.*s\n", key, length, words);
        words += length;
    }
}

static void show_key(const char *key, const pl_option_t *option, int depth)
{
    bool is_component = option->type == PL_OPTION_COMPONENT
                        || option->type == PL_OPTION_COMPONENTS;
    bool has_words = option->type == PL_OPTION_TEXT && option->range
                     && strchr(option->range, '|');
    if (is_component && option->range)
        show_components(key, option->range, depth);
    else if (has_words)
        show_words(key, option->range);
    else if (option->type == PL_OPTION_BOOL)
        show_words(key, "false|true");
    else
        cli_print("%s=\n", key);
}

static void show_options(const char *prefix, const pl_option_t *options, int depth)
{
    char key[128];
    for (; depth < DEPTH && options && options->name; options++) {
        snprintf(key, sizeof key, "%s.%s", prefix, options->name);
        show_key(key, options, depth);
    }
}

void cli_show_keys(void)
{
    for (const cli_section_t *section = cli_sections; section->name; section++)
        if (!strchr(section->title, '.'))
            show_options(section->title, pl_options_of(section->name), 0);
    for (size_t k = 0; k < sizeof places / sizeof *places; k++)
        show_components(places[k].key, places[k].role, 0);
}
