/* list.c - paceline list: the components that run files can name, with their options
 *
 * With --keys it prints what --set can say, for the completion of shells: KEY=, or
 * KEY=VALUE for each value that is a word. Plug-ins in the plug-in folders are
 * included. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"

enum {
    INDENT_MIN = 22,                               /* columns */
    DEPTH = 3,                                     /* of components in components, such as
                                                      collective.slots of a strategy */
};

/* ---- options ---- */

static void show_component(const pl_component_t *component, const char *role)
{
    const pl_option_t *const options = component->options;
    int indent = INDENT_MIN;                         /* of help: after the longest name */
    for (const pl_option_t *o = options; o && o->name; o++)
        if ((int)strlen(o->name) + 4 > indent)
            indent = (int)strlen(o->name) + 4;
    cli_print("%s - %s\n", component->name, component->help ? component->help : role);
    for (const pl_option_t *o = options; o && o->name; o++) {
        char what[160], range[64];
        snprintf(what, sizeof what, "(%s%s%s%s)",
                 o->range ? cli_range_words(o->range, range) : cli_option_type(o),
                 o->fallback ? "" : ", required", o->fallback ? ", default " : "",
                 o->fallback ? o->fallback : "");
        cli_print("  %-*s", indent - 3, o->name);
        cli_wrap(o->help, indent - 1, indent);
        cli_wrap(what, 0, indent);
    }
}

static json_t *options_json(const pl_option_t *options)
{
    json_t *list = json_array();
    for (const pl_option_t *o = options; o && o->name; o++) {
        json_t *json = json_pack("{s:s, s:s, s:s}", "name", o->name, "type",
                                 cli_option_type(o), "help", o->help ? o->help : "");
        json_t *fallback = o->fallback ? json_loads(o->fallback, JSON_DECODE_ANY, NULL)
                                       : NULL;
        if (fallback)
            json_object_set_new(json, "default", fallback);
        if (o->range)
            json_object_set_new(json, "range", json_string(o->range));
        json_array_append_new(list, json);
    }
    return list;
}

/* ---- components ---- */

/* Lists the keys of a section and of the lists in it. */
static void list_sections(const char *name, bool json)
{
    size_t length = strlen(name);
    for (const cli_section_t *section = cli_sections; section->name; section++) {
        if (strncmp(section->name, name, length)
            || (section->name[length] && section->name[length] != '.'))
            continue;
        const pl_option_t *options = pl_options_of(section->name);
        if (json)
            cli_print_json(json_pack("{s:s, s:o}", "section", section->name, "options",
                                     options_json(options)));
        else
            show_component(&(pl_component_t){section->title, section->what, 0, options},
                           "");
    }
}

/* A fact that an accelerator or a collective reports about this machine. */
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

/* What graphs consist of: names that are no components, but stand in lists of layers or
 * are functions of modules. */
static const struct {
    const char *role;
    bool (*at)(int k, pl_form_t *form);
} forms[] = {{"layer", pl_layer_at}, {"loss", pl_loss_at}, {"operator", pl_operator_at}};

static void list_forms(const char *role, bool json)
{
    pl_form_t form;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int k = 0; !strcmp(role, forms[i].role) && forms[i].at(k, &form); k++)
            if (json)
                cli_print_json(json_pack("{s:s, s:s, s:s, s:s}", "role", role, "name",
                                         form.name, "form", form.form, "help",
                                         form.help));
            else
                cli_print("%s - %s\n", form.form, form.help);
}

static void list_role(const char *role, bool json)
{
    const pl_component_t *component;
    int count = 0;
    for (; (component = pl_component_at(role, count)); count++) {
        if (json)
            cli_print_json(json_pack("{s:s, s:s, s:s, s:o}", "role", role, "name",
                                     component->name, "help",
                                     component->help ? component->help : "", "options",
                                     options_json(component->options)));
        else
            show_component(component, role);
        if (!strcmp(role, "accelerator"))
            pl_accelerator_report(component->name, show_fact, &json, NULL);
        if (!strcmp(role, "collective"))
            pl_collective_report(component->name, show_fact, &json, NULL);
    }
    if (!count && !json && strcmp(role, "layer") != 0 && strcmp(role, "loss") != 0)
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

static void list_all(bool json)
{
    const char *role;
    for (int k = 0; (role = pl_role_at(k)); k++) {
        const pl_component_t *component;
        char title[32];
        if (json) {
            list_role(role, true);
            continue;
        }
        cli_print("%-14s", plural(role, title));
        for (int i = 0; (component = pl_component_at(role, i)); i++)
            cli_print("%s%s", i ? ", " : "", component->name);
        cli_print("%s\n", pl_component_at(role, 0) ? "" : "none");
    }
    pl_form_t form;
    for (int k = 0; !json && pl_layer_at(k, &form); k++)
        cli_print("%s%s", k ? ", " : "layers        ", form.name);
    for (int k = 0; !json && pl_loss_at(k, &form); k++)
        cli_print("%s%s", k ? ", " : "\nlosses        ", form.name);
    if (!json)
        cli_print("\n");
}

/* ---- keys ---- */

static void show_options(const char *prefix, const pl_option_t *options, int depth);

/* Prints each component as a value of the key, and its options below the key. */
static void show_components(const char *key, const char *role, int depth)
{
    const pl_component_t *component;
    for (int k = 0; (component = pl_component_at(role, k)); k++) {
        cli_print("%s=%s\n", key, component->name);
        show_options(key, component->options, depth + 1);
    }
}

static void show_options(const char *prefix, const pl_option_t *options, int depth)
{
    char key[128];
    for (; depth < DEPTH && options && options->name; options++) {
        const bool is_component = options->type == PL_OPTION_COMPONENT
                                  || options->type == PL_OPTION_COMPONENTS;
        const bool is_text = options->type == PL_OPTION_TEXT
                             || options->type == PL_OPTION_WORD,
                   has_words = is_text && options->range && strchr(options->range, '|');
        snprintf(key, sizeof key, "%s.%s", prefix, options->name);
        if (is_component && options->range)
            show_components(key, options->range, depth);
        else if (has_words)
            for (const char *word = options->range; *word; word += *word == '|') {
                const int length = (int)strcspn(word, "|");
                cli_print("%s=%.*s\n", key, length, word);
                word += length;
            }
        else if (options->type == PL_OPTION_BOOL)
            cli_print("%s=false\n%s=true\n", key, key);
        else
            cli_print("%s=\n", key);
    }
}

static void list_keys(void)
{
    /* The places of components in a run file; lists by their first entry. */
    static const struct {
        const char *key, *role;
    } places[] = {
        {"module", "module"},       {"data", "dataset"},
        {"optimizer", "optimizer"}, {"scheduler", "scheduler"},
        {"averaging", "averaging"}, {"callbacks.0", "callback"},
        {"loggers.0", "logger"},    {"data.sampler", "sampler"},
    };
    for (const cli_section_t *section = cli_sections; section->name; section++)
        if (!strchr(section->title, '.'))
            show_options(section->title, pl_options_of(section->name), 0);
    for (size_t k = 0; k < sizeof places / sizeof *places; k++)
        show_components(places[k].key, places[k].role, 0);
}

/* ---- the command ---- */

/* "modules" and "module" are the same. */
static const char *role_of(const char *word)
{
    char text[32];
    const char *role;
    for (int k = 0; (role = pl_role_at(k)); k++)
        if (!strcmp(word, role) || !strcmp(word, plural(role, text)))
            return role;
    if (!strcmp(word, "loss") || !strcmp(word, "losses"))
        return "loss";
    return !strcmp(word, "layer") || !strcmp(word, "layers") ? "layer" : NULL;
}

static int fail_role(const char *word, pl_error_t *err)
{
    char known[400], text[32];
    const char *role;
    size_t at = 0;
    for (int k = 0; (role = pl_role_at(k)) && at < sizeof known; k++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s, ", plural(role, text));
    return pl_fail(
        err, PL_ENOTFOUND,
        "no role is called \"%.64s\": the roles are %slayers, losses, trainer, data",
        word, known);
}

int cli_list(const cli_list_t *arguments)
{
    pl_error_t err = {0};
    const cli_texts_t *plugins = &arguments->plugin;
    const char *word = arguments->role, *role = word ? role_of(word) : NULL;
    bool is_section = word && pl_options_of(word);
    int code = PL_OK;
    for (int k = 0; code == PL_OK && k < plugins->count; k++)
        code = pl_plugin_load(plugins->text[k], &err);
    if (code == PL_OK && word && !role && !is_section)
        code = fail_role(word, &err);
    if (code != PL_OK) {
        cli_failure(&err, arguments->json);
        return CLI_WRONG;
    }
    if (arguments->keys)
        list_keys();
    else if (role) {
        list_forms(role, arguments->json);
        list_role(role, arguments->json);
    } else if (is_section)
        list_sections(word, arguments->json);
    else
        list_all(arguments->json);
    return CLI_DONE;
}
