/* run_check.c - the check of a run against the tables of options
 *
 * The check follows the tables, not the file: a key that no table names is an error at
 * its position.  Paths grow on the stack, and only an error turns its path into
 * file:line:column. */
#include "base/run_check.h"

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
#include "base/run_defaults.h"
#include "base/utf8.h"

#define PATH_TEXT PL_MISTAKE_PATH
#define HINT (PL_JSON_SHOWN + 80)

typedef pl_json_path_t path_t;

typedef struct checker {
    const pl_options_t *o;
    bool deep, elsewhere;
    bool is_trial;                          /* do not change the run */
    pl_mistakes_t *all;                     /* receives all  [the first ends the check] */
    pl_error_t *err;
} checker_t;

/* What the keys of one object may be. */
typedef struct schema {
    const pl_option_t *table[2];
    const char *any_of;           /* or an option of any component of this role  [none] */
    bool named;                   /* "name" is a key */
    bool open;                    /* other keys are checked later */
    bool partial;                 /* no option of the first table is required */
} schema_t;

/* ---- Errors ---- */

/* Whether no mistake was found since there were `before`. */
static bool is_clean(const checker_t *c, int before)
{
    return !c->all || c->all->count == before;
}

static int mistakes_of(const checker_t *c)
{
    return c->all ? c->all->count : 0;
}

/* The error of a value or key: the text (printf) behind "run.json:3:18: ". It is kept
 * and the check continues, or it ends the check. */
static PL_PRINTF(5, 6) int fail_at(const checker_t *c, const path_t *path,
                                   pl_json_field_t field, int code, const char *format,
                                   ...)
{
    char text[PL_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    pl_text_print(text, sizeof text, format, args);
    va_end(args);
    const struct pl_mistake mistake = pl_mistake_at(c->o, path, field, code, text);
    return c->all ? pl_mistakes_add(c->all, &mistake)
                  : pl_fail(c->err, code, "%s", mistake.error.text);
}

/* The path for an error text, in the quotes of the caller. */
static char *show_path(const path_t *path, char shown[PATH_TEXT])
{
    char text[2 * PATH_TEXT];
    return pl_utf8_show(pl_json_path_text(path, text, sizeof text), shown, PATH_TEXT);
}

/* `"trainer.devices" takes an integer (1..), not 0`, and what to do instead if a value of
 * "data" shows what was meant. */
static int fail_value(const checker_t *c, const path_t *path, const pl_error_t *why)
{
    char name[PATH_TEXT], whole[PATH_TEXT], shown[PL_JSON_SHOWN], hint[HINT] = "";
    if (why->code == PL_ENOMEM)
        return pl_no_memory(c->err);
    const json_t *value = pl_json_get_path(c->o->root,
                                           pl_json_path_text(path, whole, sizeof whole));
    const char *key = path->key ? path->key : "";
    if (strchr(why->text, '?') || strncmp(whole, "data.", strlen("data.")) != 0)
        hint[0] = '\0';
    else if (json_is_array(value) && !strcmp(key, "path"))
        snprintf(hint, HINT, ": a data source is one file: join several with cat");
    else if (json_is_string(value) && !strcmp(key, "label"))
        snprintf(hint, HINT, ": to name a column, set \"target\" to %s",
                 pl_json_show(value, shown));
    return fail_at(c, path, PL_JSON_VALUE, why->code, "\"%s\" %s%s",
                   show_path(path, name), why->text, hint);
}

static int fail_form(const checker_t *c, const path_t *path, const char *wanted,
                     const json_t *value)
{
    char shown[PATH_TEXT], shown_value[PL_JSON_SHOWN];
    return fail_at(c, path, PL_JSON_VALUE, PL_EINVAL, "\"%s\" takes %s, not %s",
                   show_path(path, shown), wanted, pl_json_show(value, shown_value));
}

/* The error of an unknown key: a key of this object that is written alike, or else the
 * key of another one that the word means. */
static int fail_meant(const checker_t *c, const path_t *path,
                      const pl_suggestion_t *nearest)
{
    char shown[PATH_TEXT], text[PL_SUGGESTION_TEXT], buffer[PL_RUN_KEY];
    const bool is_deep = path->up && path->up->up;
    const char *meant = is_deep ? pl_compat_key(path->key)
                                : pl_run_key(path->key, buffer);
    show_path(path, shown);
    const char *const dot = strrchr(shown, '.');
    const size_t section = dot ? (size_t)(dot - shown) : 0;
    const bool is_beside = section && meant && !strncmp(meant, shown, section + 1)
                           && nearest->name && strcmp(meant + section + 1, nearest->name);
    if ((pl_suggestion_is_sure(nearest) && !is_beside) || !meant || !strcmp(meant, shown))
        return fail_at(c, path, PL_JSON_KEY, PL_EINVAL, "unknown key \"%s\": %s", shown,
                       pl_suggestion_text(nearest, text));
    return fail_at(c, path, PL_JSON_KEY, PL_EINVAL,
                   "unknown key \"%s\": did you mean \"%s\"?", shown, meant);
}

static void offer_table(pl_suggestion_t *nearest, const pl_option_t *table)
{
    for (; table && table->name; table++)
        pl_suggestion_offer(nearest, table->name);
}

static int fail_unknown(const checker_t *c, const path_t *path, const schema_t *schema)
{
    const pl_component_t *component;
    pl_suggestion_t nearest;
    pl_suggestion_init(&nearest, path->key);
    if (schema->named)
        pl_suggestion_offer(&nearest, "name");
    offer_table(&nearest, schema->table[0]);
    offer_table(&nearest, schema->table[1]);
    for (int k = 0; schema->any_of && (component = pl_component_at(schema->any_of, k));
         k++)
        offer_table(&nearest, component->options);
    return fail_meant(c, path, &nearest);
}

/* ---- Objects ---- */

static int check_component(const checker_t *c, const path_t *path, const char *role,
                           bool may_be_auto, const json_t *value);

static int check_components(const checker_t *c, const path_t *path, const char *role,
                            const json_t *list)
{
    enum { MAX = 100 };
    char shown[PATH_TEXT];
    int rc = PL_OK;
    if (json_array_size(list) > MAX)
        return fail_at(c, path, PL_JSON_VALUE, PL_EINVAL,
                       "\"%s\" takes at most %d components, not %zu",
                       show_path(path, shown), MAX, json_array_size(list));
    for (size_t i = 0; i < json_array_size(list) && rc == PL_OK; i++) {
        path_t at = {.up = path, .index = i};
        rc = check_component(c, &at, role, false, json_array_get(list, i));
    }
    return rc;
}

/* Text that looks like JSON, such as run_name=2024, was set as JSON: only the option's
 * table tells that it is a text.  Replaces *value by the text that was set. */
static int make_text(const checker_t *c, const path_t *path, const json_t **value)
{
    char whole[PATH_TEXT];
    if (c->is_trial || json_is_string(*value))
        return PL_OK;
    const char *raw = json_string_value(
        json_object_get(c->o->set, pl_json_path_text(path, whole, sizeof whole)));
    json_t *parsed = raw ? pl_json_parse_lenient(raw, NULL) : NULL;
    const bool is_as_set = parsed && json_equal(parsed, *value);
    json_decref(parsed);
    if (!is_as_set)
        return PL_OK;
    json_t *text = json_string(raw);
    *value = text;
    return text ? pl_json_set_path(c->o->root, whole, text, c->err)
                : pl_no_memory(c->err);
}

static int check_option(const checker_t *c, const path_t *path, const pl_option_t *option,
                        const json_t *value)
{
    pl_error_t why = {0};
    pl_field_value_t field;
    const char *key;
    json_t *entry;
    if ((option->type == PL_OPTION_TEXT || option->type == PL_OPTION_WORD)
        && pl_option_read(option, value, &field, NULL) != PL_OK
        && make_text(c, path, &value) != PL_OK)
        return PL_ENOMEM;
    const bool has_texts = option->type == PL_OPTION_TEXTS;
    json_object_foreach(has_texts ? (json_t *)value : NULL, key, entry) {
        const path_t at = {.up = path, .key = key};
        const json_t *text = entry;
        if (make_text(c, &at, &text) != PL_OK)
            return PL_ENOMEM;
    }
    if (option->type != PL_OPTION_COMPONENT && pl_option_is_automatic(option)
        && pl_is_auto(value))
        return PL_OK;
    if (pl_option_read(option, value, &field, &why) != PL_OK)
        return fail_value(c, path, &why);
    bool is_list = option->type == PL_OPTION_COMPONENTS && json_is_array(value);
    bool is_component = option->type == PL_OPTION_COMPONENT
                        || option->type == PL_OPTION_COMPONENTS;
    if (is_list)
        return check_components(c, path, option->range, value);
    if (!is_component || json_is_null(value))
        return PL_OK;
    return check_component(c, path, option->range, pl_option_is_automatic(option), value);
}

/* An option that several components have: the value must suit one of them. */
static int check_any_of(const checker_t *c, const path_t *path, const schema_t *schema,
                        const json_t *value)
{
    const pl_component_t *component;
    pl_error_t why = {0};
    checker_t trial = *c;
    trial.is_trial = true;
    trial.all = NULL;
    trial.err = &why;
    for (int k = 0; (component = pl_component_at(schema->any_of, k)); k++) {
        const pl_option_t *option = pl_option_find(component->options, path->key);
        if (option && check_option(&trial, path, option, value) == PL_OK)
            return PL_OK;
    }
    return why.code == PL_OK ? fail_unknown(c, path, schema)
           : c->all          ? pl_mistakes_add(c->all, &(struct pl_mistake){.error = why})
                             : pl_fail(c->err, why.code, "%s", why.text);
}

static int check_object(const checker_t *c, const path_t *path, const schema_t *schema,
                        const json_t *object);

static int check_key(const checker_t *c, const path_t *path, const schema_t *schema,
                     const json_t *value)
{
    const pl_option_t *option = pl_option_find(schema->table[0], path->key);
    if (!option)
        option = pl_option_find(schema->table[1], path->key);
    if (option) {
        const schema_t group = {.table = {schema->table[0], pl_group_table},
                                .open = schema->open,
                                .partial = true};
        const size_t groups = option->type == PL_OPTION_GROUPS ? json_array_size(value)
                                                               : 0;
        const int before = mistakes_of(c);
        int rc = check_option(c, path, option, value);
        for (size_t i = 0; i < groups && rc == PL_OK && is_clean(c, before); i++) {
            const path_t at = {.up = path, .index = i};
            rc = check_object(c, &at, &group, json_array_get(value, i));
        }
        return rc;
    }
    if (schema->open || (schema->named && !strcmp(path->key, "name")))
        return PL_OK;
    return schema->any_of ? check_any_of(c, path, schema, value)
                          : fail_unknown(c, path, schema);
}

static int check_missing(const checker_t *c, const path_t *path, const pl_option_t *table,
                         const json_t *object)
{
    char shown[PATH_TEXT];
    int rc = PL_OK;
    for (; table && table->name && rc == PL_OK; table++)
        if (!table->fallback && !json_object_get(object, table->name))
            rc = fail_at(c, path, PL_JSON_VALUE, PL_EINVAL, "\"%s\" needs \"%s\": %s",
                         show_path(path, shown), table->name,
                         table->help ? table->help : "it has no default");
    return rc;
}

static int check_object(const checker_t *c, const path_t *path, const schema_t *schema,
                        const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        path_t at = {.up = path, .key = key};
        int rc = check_key(c, &at, schema, value);
        if (rc != PL_OK)
            return rc;
    }
    int rc = schema->partial ? PL_OK : check_missing(c, path, schema->table[0], object);
    return rc == PL_OK ? check_missing(c, path, schema->table[1], object) : rc;
}

/* ---- Components ---- */

static int find_component(const checker_t *c, const path_t *path, const char *role,
                          const json_t *value, const pl_component_t **component)
{
    char shown[PATH_TEXT];
    pl_error_t why = {0};
    const path_t name = {.up = path, .key = "name"},
                 *at = json_object_get(value, "name") ? &name : path;
    if (json_is_object(value) && at == path)
        return fail_at(c, path, PL_JSON_VALUE, PL_EINVAL,
                       "\"%s\" needs \"name\": the name of the %s",
                       show_path(path, shown), role);
    *component = pl_component_find(role, pl_component_name(value), &why);
    if (*component && !c->elsewhere)
        return PL_OK;
    if (*component
        && pl_component_check_elsewhere(role, (*component)->name, &why) == PL_OK)
        return PL_OK;
    return fail_at(c, at, PL_JSON_VALUE, why.code, "\"%s\": %s", show_path(at, shown),
                   why.text);
}

/* The component's own check of its options; not while an option is left to the data. */
static int check_together(const checker_t *c, const path_t *path, const char *role,
                          const pl_component_t *component, const json_t *value)
{
    char shown[PATH_TEXT];
    pl_error_t why = {0};
    pl_instance_t instance = {0};
    const pl_instance_request_t request = {.role = role, .value = value};
    if (!component->check || pl_instance_make(&instance, &request, &why) != PL_OK)
        return why.code == PL_ENOMEM ? pl_no_memory(c->err) : PL_OK;
    const char *key = component->check(instance.self, &why);
    pl_instance_release(&instance);
    if (!key)
        return PL_OK;
    enum { DEEPEST = 24 };
    char words[PATH_TEXT], *rest = words;
    path_t paths[DEEPEST];                             /* "layers.3": a place in a list */
    const path_t *at = path;
    snprintf(words, sizeof words, "%s", key);
    for (int k = 0; k < DEEPEST && rest; k++) {
        const char *word = strsep(&rest, ".");
        const bool is_index = at != path && *word >= '0' && *word <= '9';
        paths[k] = (path_t){.up = at,
                            .key = is_index ? NULL : word,
                            .index = is_index ? strtoull(word, NULL, 10) : 0};
        at = &paths[k];
    }
    return fail_at(c, pl_json_get_path(value, key) ? at : path, PL_JSON_VALUE, why.code,
                   "\"%s\": %s", show_path(at, shown), why.text);
}

/* `general` is a table of further keys in the same object  [none]. */
static int check_named(const checker_t *c, const path_t *path, const char *role,
                       const json_t *value, const pl_option_t *general)
{
    const pl_component_t *component = NULL;
    schema_t schema = {.table = {NULL, general}, .named = true, .open = !c->deep};
    if (c->deep) {
        int rc = find_component(c, path, role, value, &component);
        if (rc != PL_OK || !component)
            return rc;
        schema.table[0] = component->options;
    }
    const int before = mistakes_of(c);
    int rc = check_object(c, path, &schema, json_is_object(value) ? value : NULL);
    return rc == PL_OK && component && is_clean(c, before)
               ? check_together(c, path, role, component, value)
               : rc;
}

static int check_component(const checker_t *c, const path_t *path, const char *role,
                           bool may_be_auto, const json_t *value)
{
    const char *name = pl_component_name(value);
    if (!name)
        return fail_form(c, path, "a name or an object with a \"name\"", value);
    if (!may_be_auto || strcmp(name, "auto"))
        return check_named(c, path, role, value, pl_general_options(role));
    schema_t schema = {.any_of = role, .named = true, .open = !c->deep};
    return check_object(c, path, &schema, json_is_object(value) ? value : NULL);
}

/* ---- Sections ---- */

/* A component, or one for each objective of the module.  The learning rate of an
 * objective without a scheduler is constant. */
static int check_objectives(const checker_t *c, const path_t *path,
                            const pl_section_t *section, const json_t *object)
{
    char shown[PATH_TEXT], text[PL_SUGGESTION_TEXT];
    const char *key;
    json_t *value;
    if (pl_is_by_objective(object) && !c->deep)
        return PL_OK;
    const json_t *module = json_object_get(c->o->root, "module");
    const char *name = module ? pl_component_name(module) : NULL;
    const pl_module_ops_t *ops = name && pl_is_by_objective(object)
                                     ? pl_component_find("module", name, NULL)
                                     : NULL;
    if (!ops || !ops->objectives)
        return check_component(c, path, section->role, false, object);
    json_object_foreach((json_t *)object, key, value) {
        const path_t at = {.up = path, .key = key};
        const pl_module_objective_t *objective = ops->objectives;
        pl_suggestion_t nearest;
        pl_suggestion_init(&nearest, key);
        for (; objective->name && strcmp(objective->name, key); objective++)
            pl_suggestion_offer(&nearest, objective->name);
        int rc = objective->name
                     ? check_component(c, &at, section->role, false, value)
                     : fail_at(c, &at, PL_JSON_KEY, PL_EINVAL,
                               "unknown key \"%s\": the module has no such objective: %s",
                               show_path(&at, shown), pl_suggestion_text(&nearest, text));
        if (rc != PL_OK)
            return rc;
    }
    int rc = PL_OK;
    for (const pl_module_objective_t *objective = ops->objectives;
         !strcmp(section->role, "optimizer") && objective->name && rc == PL_OK;
         objective++)
        if (!json_object_get(object, objective->name))
            rc = fail_at(c, path, PL_JSON_VALUE, PL_EINVAL,
                         "\"%s\" needs \"%s\": the %s of that objective of the module",
                         show_path(path, shown), objective->name, section->role);
    return rc;
}

/* A loop whose batches the program sends needs no data set, only options of the data; a
 * stage that reads a data set requires one (pl_options_needs_source()). */
static bool has_data_options_only(const json_t *data)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)data, key, value)
        if (!pl_option_find(pl_data_table, key))
            return false;
    return json_object_size(data) > 0;
}

static int check_data(const checker_t *c, const path_t *path, const json_t *data)
{
    const schema_t options = {.table = {pl_data_table}};
    const path_t stratify = {.up = path, .key = "stratify"},
                 folds = {.up = path, .key = "folds"}, fold = {.up = path, .key = "fold"};
    const json_int_t parts = json_integer_value(json_object_get(data, "folds")),
                     part = json_integer_value(json_object_get(data, "fold"));
    int rc = PL_OK;
    if (c->deep && json_is_true(json_object_get(data, "stratify"))
        && !pl_data_splits(data))
        rc = fail_at(c, &stratify, PL_JSON_VALUE, PL_EINVAL,
                     "\"data.stratify\" needs \"data.val_split\", the share for "
                     "validation, or \"data.folds\"");
    if (rc == PL_OK && parts == 1)
        rc = fail_at(c, &folds, PL_JSON_VALUE, PL_EINVAL,
                     "\"data.folds\" is 1, but one part leaves nothing to train on: set "
                     "2 or more, or 0 for none");
    if (rc == PL_OK && c->deep && json_object_get(data, "fold") && part >= 0
        && part >= parts)
        rc = fail_at(c, &fold, PL_JSON_VALUE, PL_EINVAL,
                     "\"data.fold\" is %lld, but \"data.folds\" makes %lld parts, which "
                     "count from 0",
                     (long long)part, (long long)parts);
    if (rc != PL_OK)
        return rc;
    if (pl_data_has_sources(data)) {
        const schema_t schema = {.table = {pl_source_table, pl_data_table}};
        path_t name = {.up = path, .key = "name"},
               split = {.up = path, .key = parts > 0 ? "folds" : "val_split"};
        if (json_object_get(data, "name"))
            return fail_at(c, &name, PL_JSON_KEY, PL_EINVAL,
                           "\"data\" is one source with a \"name\", or has \"train\", "
                           "\"val\", \"test\", \"predict\": not both");
        rc = check_object(c, path, &schema, data);
        const json_t *val = json_object_get(data, "val");
        bool has_val = val && !json_is_null(val);
        if (rc == PL_OK && has_val && pl_data_splits(data))
            return fail_at(
                c, &split, PL_JSON_KEY, PL_EINVAL,
                "\"data.%s\" and \"data.val\" contradict each other: remove one",
                split.key);
        return rc;
    }
    if (has_data_options_only(data))
        return check_object(c, path, &options, data);
    if (!pl_component_name(data))
        return fail_form(
            c, path,
            "a name, an object with a \"name\", or one with \"train\", \"val\", …", data);
    return check_named(c, path, "dataset", data, pl_data_table);
}

static int check_trainer(const checker_t *c, const path_t *path, const json_t *trainer)
{
    const schema_t schema = {.table = {pl_trainer_table, NULL}};
    if (!json_is_object(trainer))
        return fail_form(c, path, "an object", trainer);
    int rc = check_object(c, path, &schema, trainer);
    if (rc != PL_OK)
        return rc;
    const json_t *value = json_object_get(trainer, "run_name");
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    const path_t at = {.up = path, .key = "run_name"};
    if (!strchr(name, '/') && name[0] != '.' && strcmp(name, "latest"))
        return PL_OK;
    return fail_form(c, &at,
                     "the name of the run's directory in trainer.default_root_dir, "
                     "without '/', not beginning with '.' and other than \"latest\"",
                     value);
}

static int check_section(const checker_t *c, const pl_section_t *section,
                         const json_t *value)
{
    path_t path = {.key = section->name};
    if (!value)
        return PL_OK;
    switch (section->kind) {
    case PL_SECTION_COMPONENT:
        return json_is_null(value)
                   ? PL_OK
                   : check_component(c, &path, section->role, false, value);
    case PL_SECTION_OBJECTIVES:
        return json_is_null(value) ? PL_OK : check_objectives(c, &path, section, value);
    case PL_SECTION_DATA:
        return json_is_null(value) ? PL_OK : check_data(c, &path, value);
    case PL_SECTION_TRAINER: return check_trainer(c, &path, value);
    case PL_SECTION_COMPONENTS:
        return json_is_array(value) ? check_components(c, &path, section->role, value)
                                    : fail_form(c, &path, "a list of components", value);
    case PL_SECTION_FILES:
        if (!json_is_array(value))
            return fail_form(c, &path, "a list of file names", value);
        for (size_t i = 0; i < json_array_size(value); i++) {
            const path_t at = {.up = &path, .index = i};
            const json_t *file = json_array_get(value, i);
            pl_error_t why = {0};
            if (!json_is_string(file) || !*json_string_value(file))
                return fail_form(c, &at, "the name of a shared object", file);
            if (c->deep && pl_plugin_load(json_string_value(file), &why) != PL_OK)
                return fail_at(c, &at, PL_JSON_VALUE, why.code, "%s", why.text);
        }
        return PL_OK;
    }
    return PL_OK;
}

static int run_check(const checker_t *c)
{
    const char *key;
    json_t *value;
    int rc = PL_OK;
    json_object_foreach(c->o->root, key, value) {
        const path_t path = {.key = key};
        const pl_section_t *section = pl_sections;
        pl_suggestion_t nearest;
        pl_suggestion_init(&nearest, key);
        for (; section->name && strcmp(section->name, key); section++)
            pl_suggestion_offer(&nearest, section->name);
        if (!section->name && (rc = fail_meant(c, &path, &nearest)) != PL_OK)
            return rc;
    }
    /* Plug-ins first: the other sections need their components. */
    const int before = mistakes_of(c);
    for (int others = 0; others < 2 && is_clean(c, before); others++)
        for (const pl_section_t *section = pl_sections; rc == PL_OK && section->name;
             section++)
            if (others == (section->kind != PL_SECTION_FILES))
                rc = check_section(c, section,
                                   json_object_get(c->o->root, section->name));
    return rc;
}

int pl_run_check(const pl_options_t *o, pl_check_depth_t depth, pl_error_t *err)
{
    return run_check(&(checker_t){.o = o,
                                  .deep = depth >= PL_CHECK_DEEP,
                                  .elsewhere = depth == PL_CHECK_ELSEWHERE,
                                  .err = err});
}

int pl_run_check_all(const pl_options_t *o, pl_mistakes_t *all, pl_error_t *err)
{
    all->count = 0;
    const int code =
        run_check(&(checker_t){.o = o, .deep = true, .all = all, .err = err});
    return code == PL_ENOMEM || !all->count ? code : PL_OK;
}
