/* run_check.c - a run held against the tables
 *
 * The walk follows the tables, never the file: what a table does not name is an error
 * where it stands.  Paths grow on the stack, and only an error turns its path into
 * file:line:column. */
#include "base/run_check.h"

#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/suggestion.h"
#include "base/option.h"
#include "base/registry.h"
#include "base/run_check_internal.h"
#include "base/run_defaults.h"

/* What the keys of one object may be. */
typedef struct schema {
    const pl_option_t *table[2];
    const char *any_of;             /* or an option of any component of this role  [no] */
    bool named;                     /* "name" is a key */
    bool open;                      /* other keys are judged later */
    bool some;                      /* of the first table none must be given */
} schema_t;

/* ---- Errors ---- */

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
    return run_fail_meant(c, path, &nearest);
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
        return run_fail_at(c, path, PL_JSON_VALUE, PL_EINVAL,
                           "\"%s\" takes at most %d components, not %zu",
                           run_show_path(path, shown), MAX, json_array_size(list));
    for (size_t i = 0; i < json_array_size(list) && rc == PL_OK; i++) {
        path_t at = {.up = path, .index = i};
        rc = check_component(c, &at, role, false, json_array_get(list, i));
    }
    return rc;
}

/* What pl_options_set() was given for the value at a path, if that is the value there. */
static const char *set_text(const checker_t *c, const path_t *path, const json_t *value)
{
    char whole[PATH_TEXT];
    const char *raw = json_string_value(
        json_object_get(c->o->set, pl_json_path_text(path, whole, sizeof whole)));
    json_t *parsed = raw ? pl_json_parse_lenient(raw, NULL) : NULL;
    const bool same = parsed && json_equal(parsed, value);
    json_decref(parsed);
    return same ? raw : NULL;
}

/* Text that looks like JSON, such as run_name=2024: the option's table alone can tell, so
 * it becomes text only here. */
static int make_text(const checker_t *c, const path_t *path, const json_t **value)
{
    char whole[PATH_TEXT];
    const char *raw = c->trial || json_is_string(*value) ? NULL
                                                         : set_text(c, path, *value);
    json_t *text = raw ? json_string(raw) : NULL;
    if (!raw)
        return PL_OK;
    *value = text;
    return !text ? pl_no_memory(c->err)
                 : pl_json_set_path(c->o->root,
                                    pl_json_path_text(path, whole, sizeof whole), text,
                                    c->err);
}

static int make_texts(const checker_t *c, const path_t *path, const pl_option_t *option,
                      const json_t **value)
{
    int rc = PL_OK;
    const char *key;
    json_t *entry;
    pl_field_value_t field;
    if (option->type == PL_OPTION_TEXT
        && pl_option_read(option, *value, &field, NULL) != PL_OK)
        return make_text(c, path, value);
    if (option->type != PL_OPTION_TEXTS)
        return PL_OK;
    json_object_foreach((json_t *)*value, key, entry) {
        const path_t at = {.up = path, .key = key};
        const json_t *text = entry;
        rc = rc == PL_OK ? make_text(c, &at, &text) : rc;
    }
    return rc;
}

static int check_option(const checker_t *c, const path_t *path, const pl_option_t *option,
                        const json_t *value)
{
    pl_error_t why = {0};
    if (make_texts(c, path, option, &value) != PL_OK)
        return PL_ENOMEM;
    pl_field_value_t field;
    if (option->type != PL_OPTION_COMPONENT && pl_option_is_automatic(option)
        && pl_is_auto(value))
        return PL_OK;
    if (pl_option_read(option, value, &field, &why) != PL_OK)
        return run_fail_value(c, path, &why);
    bool is_list = option->type == PL_OPTION_COMPONENTS && json_is_array(value);
    bool is_component = option->type == PL_OPTION_COMPONENT
                        || option->type == PL_OPTION_COMPONENTS;
    if (is_list)
        return check_components(c, path, option->range, value);
    if (!is_component || json_is_null(value))
        return PL_OK;
    return check_component(c, path, option->range, pl_option_is_automatic(option), value);
}

/* Of an option that several components have, the value must suit one of them. */
static int check_any_of(const checker_t *c, const path_t *path, const schema_t *schema,
                        const json_t *value)
{
    const pl_component_t *component;
    pl_error_t why = {0};
    checker_t trial = *c;
    trial.trial = true;
    trial.err = &why;
    for (int k = 0; (component = pl_component_at(schema->any_of, k)); k++) {
        const pl_option_t *option = pl_option_find(component->options, path->key);
        if (option && check_option(&trial, path, option, value) == PL_OK)
            return PL_OK;
    }
    return why.code == PL_OK ? fail_unknown(c, path, schema)
                             : pl_fail(c->err, why.code, "%s", why.text);
}

static int check_object(const checker_t *c, const path_t *path, const schema_t *schema,
                        const json_t *object);

/* Each has options of the component that they stand in. */
static int check_groups(const checker_t *c, const path_t *path, const schema_t *of,
                        const json_t *groups)
{
    const schema_t schema = {.table = {of->table[0], pl_group_table},
                             .open = of->open,
                             .some = true};
    int rc = PL_OK;
    for (size_t i = 0; i < json_array_size(groups) && rc == PL_OK; i++) {
        path_t at = {.up = path, .index = i};
        rc = check_object(c, &at, &schema, json_array_get(groups, i));
    }
    return rc;
}

static int check_key(const checker_t *c, const path_t *path, const schema_t *schema,
                     const json_t *value)
{
    const pl_option_t *option = pl_option_find(schema->table[0], path->key);
    if (!option)
        option = pl_option_find(schema->table[1], path->key);
    if (option) {
        int rc = check_option(c, path, option, value);
        return rc == PL_OK && option->type == PL_OPTION_GROUPS
                   ? check_groups(c, path, schema, value)
                   : rc;
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
    for (; table && table->name; table++)
        if (!table->fallback && !json_object_get(object, table->name))
            return run_fail_at(c, path, PL_JSON_VALUE, PL_EINVAL,
                               "\"%s\" needs \"%s\": %s", run_show_path(path, shown),
                               table->name,
                               table->help ? table->help : "it has no default");
    return PL_OK;
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
    int rc = schema->some ? PL_OK : check_missing(c, path, schema->table[0], object);
    return rc == PL_OK ? check_missing(c, path, schema->table[1], object) : rc;
}

/* ---- Components ---- */

/* The path to the name in a component: its own, or that of the text which is the name. */
static const path_t *name_path(const path_t *path, const json_t *value, path_t *storage)
{
    *storage = (path_t){.up = path, .key = "name"};
    return json_object_get(value, "name") ? storage : path;
}

static int find_component(const checker_t *c, const path_t *path, const char *role,
                          const json_t *value, const pl_component_t **component)
{
    char shown[PATH_TEXT];
    pl_error_t why = {0};
    path_t storage;
    const path_t *at = name_path(path, value, &storage);
    if (json_is_object(value) && at == path)
        return run_fail_at(c, path, PL_JSON_VALUE, PL_EINVAL,
                           "\"%s\" needs \"name\": the name of the %s",
                           run_show_path(path, shown), role);
    *component = pl_component_find(role, pl_component_name(value), &why);
    if (*component && !c->elsewhere)
        return PL_OK;
    if (*component
        && pl_component_check_elsewhere(role, (*component)->name, &why) == PL_OK)
        return PL_OK;
    return run_fail_at(c, at, PL_JSON_VALUE, why.code, "\"%s\": %s",
                       run_show_path(at, shown), why.text);
}

/* What is left to the data is not known yet. */
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
    const path_t at = {.up = path, .key = key};
    return run_fail_at(c, json_object_get(value, key) ? &at : path, PL_JSON_VALUE,
                       why.code, "\"%s\": %s", run_show_path(&at, shown), why.text);
}

/* `general` is a table of further keys in the same object  [none]. */
static int check_named(const checker_t *c, const path_t *path, const char *role,
                       const json_t *value, const pl_option_t *general)
{
    const pl_component_t *component = NULL;
    schema_t schema = {.table = {NULL, general}, .named = true, .open = !c->deep};
    if (c->deep) {
        int rc = find_component(c, path, role, value, &component);
        if (rc != PL_OK)
            return rc;
        schema.table[0] = component->options;
    }
    int rc = check_object(c, path, &schema, json_is_object(value) ? value : NULL);
    return rc == PL_OK && component ? check_together(c, path, role, component, value)
                                    : rc;
}

static int check_component(const checker_t *c, const path_t *path, const char *role,
                           bool may_be_auto, const json_t *value)
{
    const char *name = pl_component_name(value);
    if (!name)
        return run_fail_form(c, path, "a name or an object with a \"name\"", value);
    if (!may_be_auto || strcmp(name, "auto"))
        return check_named(c, path, role, value, pl_general_options(role));
    schema_t schema = {.any_of = role, .named = true, .open = !c->deep};
    return check_object(c, path, &schema, json_is_object(value) ? value : NULL);
}

/* ---- Sections ---- */

static int check_sources(const checker_t *c, const path_t *path, const json_t *data)
{
    const schema_t schema = {.table = {pl_source_table, pl_data_table}};
    path_t name = {.up = path, .key = "name"}, split = {.up = path, .key = "val_split"};
    if (json_object_get(data, "name"))
        return run_fail_at(c, &name, PL_JSON_KEY, PL_EINVAL,
                           "\"data\" is one source with a \"name\", or has \"train\", "
                           "\"val\", \"test\", \"predict\": not both");
    int rc = check_object(c, path, &schema, data);
    const json_t *val = json_object_get(data, "val");
    bool has_val = val && !json_is_null(val);
    if (rc == PL_OK && has_val
        && json_number_value(json_object_get(data, "val_split")) > 0)
        return run_fail_at(
            c, &split, PL_JSON_KEY, PL_EINVAL,
            "\"data.val_split\" and \"data.val\" contradict each other: remove one");
    return rc;
}

/* The objectives of the run's module, or NULL when it has one only, or nobody knows
 * it. */
static const pl_module_objective_t *module_objectives(const checker_t *c)
{
    const json_t *module = json_object_get(c->o->root, "module");
    const char *name = module ? pl_component_name(module) : NULL;
    const pl_module_ops_t *ops = name ? pl_component_find("module", name, NULL) : NULL;
    return ops ? ops->objectives : NULL;
}

static int check_objective_name(const checker_t *c, const path_t *path,
                                const pl_module_objective_t *objective)
{
    char shown[PATH_TEXT], text[PL_SUGGESTION_TEXT];
    pl_suggestion_t nearest;
    pl_suggestion_init(&nearest, path->key);
    for (; objective->name; objective++) {
        if (!strcmp(objective->name, path->key))
            return PL_OK;
        pl_suggestion_offer(&nearest, objective->name);
    }
    return run_fail_at(c, path, PL_JSON_KEY, PL_EINVAL,
                       "unknown key \"%s\": the module has no such objective: %s",
                       run_show_path(path, shown), pl_suggestion_text(&nearest, text));
}

/* A component for each objective of the module; the learning rate of one without a
 * scheduler stays as it is. */
static int check_each_objective(const checker_t *c, const path_t *path,
                                const pl_section_t *section, const json_t *object,
                                const pl_module_objective_t *objectives)
{
    const char *key;
    char shown[PATH_TEXT];
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        const path_t at = {.up = path, .key = key};
        int rc = check_objective_name(c, &at, objectives);
        if (rc == PL_OK)
            rc = check_component(c, &at, section->role, false, value);
        if (rc != PL_OK)
            return rc;
    }
    for (const pl_module_objective_t *objective = objectives;
         !strcmp(section->role, "optimizer") && objective->name; objective++)
        if (!json_object_get(object, objective->name))
            return run_fail_at(
                c, path, PL_JSON_VALUE, PL_EINVAL,
                "\"%s\" needs \"%s\": the %s of that objective of the module",
                run_show_path(path, shown), objective->name, section->role);
    return PL_OK;
}

static int check_objectives(const checker_t *c, const path_t *path,
                            const pl_section_t *section, const json_t *value)
{
    const bool one = !pl_is_by_objective(value);
    const pl_module_objective_t *objectives = one || !c->deep ? NULL
                                                              : module_objectives(c);
    if (objectives)
        return check_each_objective(c, path, section, value, objectives);
    return one || c->deep ? check_component(c, path, section->role, false, value) : PL_OK;
}

/* Options of the data alone are enough for a loop whose batches the program sends; a
 * stage that reads a data set asks for one (pl_options_needs_source()). */
static bool has_data_options_only(const json_t *data)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)data, key, value)
        if (!pl_option_find(pl_data_table, key))
            return false;
    return json_object_size(data) > 0;
}

static int check_stratify(const checker_t *c, const path_t *path, const json_t *data)
{
    const path_t at = {.up = path, .key = "stratify"};
    if (!json_is_true(json_object_get(data, "stratify"))
        || json_number_value(json_object_get(data, "val_split")) > 0)
        return PL_OK;
    return run_fail_at(
        c, &at, PL_JSON_VALUE, PL_EINVAL,
        "\"data.stratify\" needs \"data.val_split\": the share for validation");
}

static int check_data(const checker_t *c, const path_t *path, const json_t *data)
{
    if (c->deep && check_stratify(c, path, data) != PL_OK)
        return PL_EINVAL;
    const schema_t options = {.table = {pl_data_table}};
    if (pl_data_has_sources(data))
        return check_sources(c, path, data);
    if (has_data_options_only(data))
        return check_object(c, path, &options, data);
    if (!pl_component_name(data))
        return run_fail_form(
            c, path,
            "a name, an object with a \"name\", or one with \"train\", \"val\", …", data);
    return check_named(c, path, "dataset", data, pl_data_table);
}

static int check_run_name(const checker_t *c, const path_t *path, const json_t *trainer)
{
    const json_t *value = json_object_get(trainer, "run_name");
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    path_t at = {.up = path, .key = "run_name"};
    if (!strchr(name, '/') && name[0] != '.' && strcmp(name, "latest"))
        return PL_OK;
    return run_fail_form(c, &at,
                         "the name of a directory: other than \"latest\", not beginning "
                         "with '.' and without '/'",
                         value);
}

static int check_trainer(const checker_t *c, const path_t *path, const json_t *trainer)
{
    const schema_t schema = {.table = {pl_trainer_table, NULL}};
    if (!json_is_object(trainer))
        return run_fail_form(c, path, "an object", trainer);
    int rc = check_object(c, path, &schema, trainer);
    return rc == PL_OK ? check_run_name(c, path, trainer) : rc;
}

static int check_file(const checker_t *c, const path_t *path, const json_t *file)
{
    pl_error_t why = {0};
    if (!json_is_string(file) || !*json_string_value(file))
        return run_fail_form(c, path, "the name of a shared object", file);
    if (!c->deep || pl_plugin_load(json_string_value(file), &why) == PL_OK)
        return PL_OK;
    return run_fail_at(c, path, PL_JSON_VALUE, why.code, "%s", why.text);
}

static int check_list(const checker_t *c, const path_t *path, const pl_section_t *section,
                      const json_t *list)
{
    bool of_files = section->kind == PL_SECTION_FILES;
    int rc = PL_OK;
    if (!json_is_array(list))
        return run_fail_form(c, path,
                             of_files ? "a list of file names" : "a list of components",
                             list);
    if (!of_files)
        return check_components(c, path, section->role, list);
    for (size_t i = 0; i < json_array_size(list) && rc == PL_OK; i++) {
        path_t at = {.up = path, .index = i};
        rc = check_file(c, &at, json_array_get(list, i));
    }
    return rc;
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
    case PL_SECTION_FILES: return check_list(c, &path, section, value);
    }
    return PL_OK;
}

static const pl_section_t *section_find(const char *name)
{
    for (const pl_section_t *section = pl_sections; section->name; section++)
        if (!strcmp(section->name, name))
            return section;
    return NULL;
}

static int check_section_names(const checker_t *c)
{
    const char *key;
    json_t *value;
    json_object_foreach(c->o->root, key, value) {
        if (section_find(key))
            continue;
        const path_t path = {.key = key};
        pl_suggestion_t nearest;
        pl_suggestion_init(&nearest, key);
        for (const pl_section_t *section = pl_sections; section->name; section++)
            pl_suggestion_offer(&nearest, section->name);
        return run_fail_meant(c, &path, &nearest);
    }
    return PL_OK;
}

int pl_run_check(const pl_options_t *o, pl_check_depth_t depth, pl_error_t *err)
{
    const checker_t c = {.o = o,
                         .deep = depth >= PL_CHECK_DEEP,
                         .elsewhere = depth == PL_CHECK_ELSEWHERE,
                         .err = err};
    int rc = check_section_names(&c);
    if (rc == PL_OK)                     /* the components in them are needed for all that
                                            follows */
        rc = check_section(&c, section_find("plugins"),
                           json_object_get(o->root, "plugins"));
    for (const pl_section_t *section = pl_sections; rc == PL_OK && section->name;
         section++)
        if (section->kind != PL_SECTION_FILES)
            rc = check_section(&c, section, json_object_get(o->root, section->name));
    return rc;
}
