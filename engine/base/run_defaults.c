/* run_defaults.c - a run with every default
 *
 * The result, read again, gives the same result: keys are in the order of the tables, and
 * values that depend on the data or the machine stay "auto". */
#include "base/run_defaults.h"

#include <string.h>

#include "base/bind.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/option.h"
#include "base/run.h"

/* err is never NULL in the static functions. */
static int put(json_t *object, const char *key, json_t *value, pl_error_t *err)
{
    return json_object_set_new(object, key, value) == 0 ? PL_OK : pl_no_memory(err);
}

static json_t *fill_component(const char *role, const json_t *value, pl_error_t *err);

/* The components of a list, each with its defaults. */
static json_t *fill_components(const char *role, const json_t *list, pl_error_t *err)
{
    json_t *filled = json_array();
    for (size_t i = 0; i < json_array_size(list); i++)
        filled = pl_json_append(filled,
                                fill_component(role, json_array_get(list, i), err));
    if (!filled)
        pl_no_memory(err);
    return filled;
}

static json_t *fill_option(const pl_option_t *option, const json_t *given,
                           pl_error_t *err)
{
    json_t *value = given ? pl_json_copy(given) : pl_option_fallback(option, err),
           *filled;
    if (!value && given)
        pl_no_memory(err);
    if (option->type == PL_OPTION_COMPONENTS && json_is_array(value))
        filled = fill_components(option->range, value, err);
    else if ((option->type == PL_OPTION_COMPONENT || option->type == PL_OPTION_COMPONENTS)
             && value && pl_component_name(value))
        filled = fill_component(option->range, value, err);
    else
        return value;
    json_decref(value);
    return filled;
}

/* Every option of the table, from object or by default, except those that are null. */
static int fill_table(json_t *filled, const pl_option_t *table, const json_t *object,
                      pl_error_t *err)
{
    for (; table && table->name; table++) {
        json_t *value = fill_option(table, json_object_get(object, table->name), err);
        if (!value)
            return err->code;
        int rc = json_is_null(value) ? PL_OK
                                     : put(filled, table->name, json_incref(value), err);
        json_decref(value);
        if (rc != PL_OK)
            return rc;
    }
    return PL_OK;
}

/* Copies the keys that no table names. */
static int keep_rest(json_t *filled, const json_t *object, pl_error_t *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
        if (!json_object_get(filled, key) && !json_is_null(value))
            if (json_object_set_new(filled, key, pl_json_copy(value)) != 0)
                return pl_no_memory(err);
    return PL_OK;
}

static json_t *finish(json_t *filled, int rc)
{
    if (rc == PL_OK)
        return filled;
    json_decref(filled);
    return NULL;
}

static json_t *fill_named(const char *role, const char *name, const json_t *value,
                          pl_error_t *err)
{
    const pl_component_t *component = name ? pl_component_find(role, name, NULL) : NULL;
    json_t *filled = json_object();
    int rc = filled ? PL_OK : pl_no_memory(err);
    if (rc == PL_OK && name)
        rc = put(filled, "name", json_string(name), err);
    if (rc == PL_OK)
        rc = fill_table(filled, component ? component->options : NULL, value, err);
    if (rc == PL_OK)
        rc = fill_table(filled, pl_general_options(role), value, err);
    if (rc == PL_OK)
        rc = keep_rest(filled, value, err);
    return finish(filled, rc);
}

/* "auto" stays a word unless it has options; a known component becomes an object. */
static json_t *fill_component(const char *role, const json_t *value, pl_error_t *err)
{
    const char *name = pl_component_name(value);
    size_t names = json_object_get(value, "name") ? 1 : 0;
    if (!name || strcmp(name, "auto") || json_object_size(value) > names)
        return fill_named(role, name, value, err);
    json_t *word = json_string(name);
    if (!word)
        pl_no_memory(err);
    return word;
}

bool pl_data_has_sources(const json_t *data)
{
    for (const pl_option_t *source = pl_source_table; source->name; source++)
        if (json_object_get(data, source->name))
            return true;
    return false;
}

bool pl_data_splits(const json_t *data)
{
    return json_number_value(json_object_get(data, "val_split")) > 0
           || json_integer_value(json_object_get(data, "folds")) > 0;
}

json_t *pl_component_without(const json_t *value, const pl_option_t *general,
                             pl_error_t *err)
{
    json_t *component = json_is_object(value) ? pl_json_copy(value) : json_object();
    int rc = component ? PL_OK : pl_no_memory(err);
    if (rc == PL_OK && json_is_string(value))
        rc = put(component, "name", pl_json_copy(value), err);
    for (; rc == PL_OK && general && general->name; general++)
        json_object_del(component, general->name);
    return finish(component, rc);
}

/* A data section has sources for the stages, or is one data set. */
static json_t *fill_data(const json_t *data, pl_error_t *err)
{
    json_t *filled = NULL, *component;
    int rc = PL_ENOMEM;
    if (pl_data_has_sources(data)) {
        filled = json_object();
        rc = fill_table(filled, pl_source_table, data, err);
    } else if ((component = pl_component_without(data, pl_data_table, err))) {
        filled = fill_named("dataset",
                            json_string_value(json_object_get(component, "name")),
                            component, err);
        rc = filled ? PL_OK : err->code;
        json_decref(component);
    }
    if (rc == PL_OK)
        rc = fill_table(filled, pl_data_table, data, err);
    return finish(filled, rc);
}

int64_t pl_default_epochs(const json_t *trainer)
{
    const json_t *steps = json_object_get(trainer, "max_steps");
    const char *time = json_string_value(json_object_get(trainer, "max_time"));
    return (steps && json_integer_value(steps) != -1) || (time && *time) ? -1 : 1000;
}

static json_t *fill_trainer(const json_t *trainer, pl_error_t *err)
{
    json_t *filled = json_object();
    int rc = fill_table(filled, pl_trainer_table, trainer, err);
    if (rc == PL_OK && pl_is_auto(json_object_get(filled, "max_epochs")))
        rc = put(filled, "max_epochs", json_integer(pl_default_epochs(trainer)), err);
    if (rc == PL_OK)
        rc = keep_rest(filled, trainer, err);
    return finish(filled, rc);
}

/* A component, or one for each objective of the module. */
static json_t *fill_objectives(const pl_section_t *section, const json_t *value,
                               pl_error_t *err)
{
    if (!pl_is_by_objective(value))
        return fill_component(section->role, value, err);
    json_t *filled = json_object(), *component;
    int rc = filled ? PL_OK : pl_no_memory(err);
    const char *key;
    json_object_foreach((json_t *)value, key, component) {
        if (rc != PL_OK)
            break;
        json_t *entry = pl_component_name(component)
                            ? fill_component(section->role, component, err)
                            : pl_json_copy(component);
        rc = put(filled, key, entry, err);
    }
    return finish(filled, rc);
}

static json_t *fill_section(const pl_section_t *section, const json_t *value,
                            pl_error_t *err)
{
    json_t *filled;
    switch (section->kind) {
    case PL_SECTION_COMPONENT: return fill_component(section->role, value, err);
    case PL_SECTION_OBJECTIVES: return fill_objectives(section, value, err);
    case PL_SECTION_DATA: return fill_data(value, err);
    case PL_SECTION_TRAINER: return fill_trainer(value, err);
    case PL_SECTION_COMPONENTS:
        if (value || !section->usual)
            return fill_components(section->role, value, err);
        filled = pl_json_append(json_array(),
                                fill_named(section->role, section->usual, NULL, err));
        if (!filled)
            pl_no_memory(err);
        return filled;
    case PL_SECTION_FILES:
        filled = json_is_array(value) ? pl_json_copy(value) : json_array();
        if (!filled)
            pl_no_memory(err);
        return filled;
    }
    return NULL;
}

json_t *pl_run_with_defaults(const json_t *root, pl_error_t *err)
{
    pl_error_t why = {0};
    json_t *filled = json_object();
    int rc = filled ? PL_OK : pl_no_memory(&why);
    for (const pl_section_t *section = pl_sections; rc == PL_OK && section->name;
         section++) {
        const json_t *value = json_object_get(root, section->name);
        bool has_defaults = section->kind != PL_SECTION_COMPONENT
                            && section->kind != PL_SECTION_OBJECTIVES
                            && section->kind != PL_SECTION_DATA;
        if (!has_defaults && (!value || json_is_null(value)))
            continue;
        json_t *section_filled = fill_section(section, value, &why);
        rc = section_filled ? put(filled, section->name, section_filled, &why) : why.code;
    }
    return rc == PL_OK ? filled : (pl_fail(err, rc, "%s", why.text), finish(filled, rc));
}
