/* list.c - paceline list: the components that run files can name, with their options */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"

enum { INDENT_MIN = 22 };                                   /* columns */

/* ---- one option ---- */

static const char *range_of(const pl_option_t *option, char words[64])
{
    return option->range ? cli_range_words(option->range, words)
                         : cli_option_type(option);
}

/* Where help stands: behind the longest name. */
static int indent_of(const pl_option_t *options)
{
    int indent = INDENT_MIN;
    for (; options && options->name; options++)
        if ((int)strlen(options->name) + 4 > indent)
            indent = (int)strlen(options->name) + 4;
    return indent;
}

static void show_option(const pl_option_t *option, int indent)
{
    char what[160], range[64];
    snprintf(what, sizeof what, "(%s%s%s%s)", range_of(option, range),
             option->fallback ? "" : ", required", option->fallback ? ", default " : "",
             option->fallback ? option->fallback : "");
    cli_print("  %-*s", indent - 3, option->name);
    cli_wrap(option->help, indent - 1, indent);
    cli_wrap(what, 0, indent);
}

static json_t *option_json(const pl_option_t *option)
{
    json_t *json = json_pack("{s:s, s:s, s:s}", "name", option->name, "type",
                             cli_option_type(option), "help",
                             option->help ? option->help : "");
    json_t *fallback = option->fallback
                           ? json_loads(option->fallback, JSON_DECODE_ANY, NULL)
                           : NULL;
    if (fallback)
        json_object_set_new(json, "default", fallback);
    if (option->range)
        json_object_set_new(json, "range", json_string(option->range));
    return json;
}

static json_t *options_json(const pl_option_t *options)
{
    json_t *list = json_array();
    for (const pl_option_t *option = options; option && option->name; option++)
        json_array_append_new(list, option_json(option));
    return list;
}

/* ---- components ---- */

static void show_component(const pl_component_t *component, const char *role)
{
    cli_print("%s - %s\n", component->name, component->help ? component->help : role);
    int indent = indent_of(component->options);
    for (const pl_option_t *option = component->options; option && option->name; option++)
        show_option(option, indent);
}

static void print_component_json(const char *role, const pl_component_t *component)
{
    cli_print_json(json_pack("{s:s, s:s, s:s, s:o}", "role", role, "name",
                             component->name, "help",
                             component->help ? component->help : "", "options",
                             options_json(component->options)));
}

static void list_section(const cli_section_t *section, bool json)
{
    const pl_option_t *options = pl_options_of(section->name);
    if (json)
        cli_print_json(json_pack("{s:s, s:o}", "section", section->name, "options",
                                 options_json(options)));
    else
        show_component(&(pl_component_t){section->title, section->what, 0, options}, "");
}

/* The keys of a section itself and of the lists in it. */
static void list_sections(const char *name, bool json)
{
    size_t length = strlen(name);
    for (const cli_section_t *section = cli_sections; section->name; section++)
        if (!strncmp(section->name, name, length)
            && (!section->name[length] || section->name[length] == '.'))
            list_section(section, json);
}

/* What an accelerator or a collective finds on this machine. */
static void show_fact(void *user, const char *name, const char *text)
{
    const bool *json = user;
    if (*json && name)
        cli_print_json(json_pack("{s:s, s:s}", "fact", name, "text", text));
    else if (*json)
        cli_print_json(json_pack("{s:s}", "warning", text));
    else
        cli_print_fact(name ? name : "warning", text, 4);
}

static void list_role(const char *role, bool json)
{
    const pl_component_t *component;
    int count = 0;
    for (; (component = pl_component_at(role, count)); count++) {
        if (json)
            print_component_json(role, component);
        else
            show_component(component, role);
        if (!strcmp(role, "accelerator"))
            pl_accelerator_report(component->name, show_fact, &json, NULL);
        if (!strcmp(role, "collective"))
            pl_collective_report(component->name, show_fact, &json, NULL);
    }
    if (!count && !json)
        cli_print("there is no %s\n", role);
    list_sections(role, json);
}

/* "strategies" */
static const char *plural(const char *role, char text[32])
{
    size_t length = strlen(role);
    bool ies = length && role[length - 1] == 'y';
    snprintf(text, 32, "%.*s%s", (int)(length - ies), role, ies ? "ies" : "s");
    return text;
}

static void list_names(void)
{
    const char *role;
    for (int k = 0; (role = pl_role_at(k)); k++) {
        const pl_component_t *component;
        char title[32];
        cli_print("%-14s", plural(role, title));
        for (int i = 0; (component = pl_component_at(role, i)); i++)
            cli_print("%s%s", i ? ", " : "", component->name);
        cli_print("%s\n", pl_component_at(role, 0) ? "" : "none");
    }
}

static void list_all(bool json)
{
    const char *role;
    if (!json)
        list_names();
    else
        for (int k = 0; (role = pl_role_at(k)); k++)
            list_role(role, true);
}

/* ---- what is asked for ---- */

/* "modules" and "module" are the same. */
static const char *role_of(const char *word)
{
    char text[32];
    const char *role;
    for (int k = 0; (role = pl_role_at(k)); k++)
        if (!strcmp(word, role) || !strcmp(word, plural(role, text)))
            return role;
    return NULL;
}

static int fail_role(const char *word, pl_error_t *err)
{
    char known[400], text[32];
    const char *role;
    size_t at = 0;
    for (int k = 0; (role = pl_role_at(k)) && at < sizeof known; k++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s, ", plural(role, text));
    return pl_fail(err, PL_ENOTFOUND,
                   "no role is called \"%.64s\": the roles are %strainer, data", word,
                   known);
}

static int load_plugins(const cli_texts_t *plugins, pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; code == PL_OK && k < plugins->count; k++)
        code = pl_plugin_load(plugins->text[k], err);
    return code;
}

int cli_list(const cli_list_t *arguments)
{
    pl_error_t err = {0};
    const char *word = arguments->role, *role = word ? role_of(word) : NULL;
    bool is_section = word && pl_options_of(word);
    int code = load_plugins(&arguments->plugin, &err);
    if (code == PL_OK && word && !role && !is_section)
        code = fail_role(word, &err);
    if (code != PL_OK) {
        cli_failure(&err, arguments->json);
        return CLI_WRONG;
    }
    if (arguments->keys)
        cli_show_keys();
    else if (role)
        list_role(role, arguments->json);
    else if (is_section)
        list_sections(word, arguments->json);
    else
        list_all(arguments->json);
    return CLI_DONE;
}
