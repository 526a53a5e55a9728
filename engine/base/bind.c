/* bind.c - binds a component: fills its struct from a run and keeps the texts
 *
 * The binding is the JSON values themselves, one for each option: the texts of the struct
 * point into them. */
#include "base/bind.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/suggestion.h"
#include "base/option.h"
#include "base/run.h"
#include "base/utf8.h"

#define SHOWN 80

struct pl_binding {
    json_t *values;             /* option's name -> value */
    pl_instances_t *parts;      /* [part_count] of options that are lists of components */
    int part_count;
};

/* The option's value, a new reference: the given one, the data's, or the default. */
static json_t *choose(const pl_option_t *option, const json_t *object,
                      const json_t *auto_values, pl_error_t *err)
{
    json_t *given = json_object_get(object, option->name), *value = NULL;
    bool automatic = pl_option_is_automatic(option) && (!given || pl_is_auto(given));
    if (automatic && option->type != PL_OPTION_COMPONENT) {
        value = json_object_get(auto_values, option->name);
        const bool is_number = option->type == PL_OPTION_INT
                               || option->type == PL_OPTION_FLOAT;
        if (!value && is_number && pl_option_may_be_zero(option))
            return json_integer(0);
        if (!value && option->type == PL_OPTION_REALS)
            return json_array();
        if (!value) {
            pl_fail(err, PL_EINVAL,
                    "needs \"%s\", which the data does not provide (%s): "
                    "set \"%s\" if the data suits",
                    option->name, option->help ? option->help : "", option->name);
            return NULL;
        }
    } else if (given) {
        value = given;
    } else if (option->fallback) {
        return pl_option_fallback(option, err);
    } else {
        pl_fail(err, PL_EINVAL, "needs \"%s\": %s", option->name,
                option->help ? option->help : "it has no default");
        return NULL;
    }
    value = pl_json_copy(value);
    if (!value)
        pl_no_memory(err);
    return value;
}

const char *pl_component_name(const json_t *value)
{
    const json_t *name = json_is_object(value) ? json_object_get(value, "name") : value;
    if (json_is_object(value) && !name)
        return "auto";
    return json_string_value(name);
}

bool pl_is_by_objective(const json_t *value)
{
    return json_is_object(value) && !json_object_get(value, "name");
}

/* The JSON text of a value (consumed) as a JSON string. */
static json_t *text_as_json(json_t *value)
{
    char *text = value ? pl_json_write(value, PL_JSON_COMPACT) : NULL;
    json_t *string = text ? json_string(text) : NULL;
    pl_free(text);
    json_decref(value);
    return string;
}

/* {"name": …, "options": "…"} replaces the value that was read. */
static int bind_choice(json_t *values, const pl_option_t *option, const json_t *value,
                       pl_choice_t *choice)
{
    *choice = (pl_choice_t){NULL, "{}"};
    if (json_is_null(value))
        return PL_OK;
    json_t *options = json_is_object(value) ? pl_json_copy(value) : json_object();
    json_object_del(options, "name");
    json_t *texts = json_object();
    texts = pl_json_with(texts, "name", json_string(pl_component_name(value)));
    texts = pl_json_with(texts, "options", text_as_json(options));
    choice->name = json_string_value(json_object_get(texts, "name"));
    choice->options = json_string_value(json_object_get(texts, "options"));
    return json_object_set_new(values, option->name, texts) == 0 ? PL_OK : PL_ENOMEM;
}

/* Makes the components of a list, or the only one. */
static int bind_parts(pl_binding_t *binding, const pl_option_t *option,
                      const json_t *value, pl_instances_t *parts, pl_error_t *err)
{
    const bool is_list = json_is_array(value);
    const size_t count = is_list ? json_array_size(value) : !json_is_null(value);
    pl_instances_t *all = pl_resize(binding->parts,
                                    ((size_t)binding->part_count + 1) * sizeof *all);
    if (!all)
        return PL_ENOMEM;
    binding->parts = all;
    pl_instances_t *made = &all[binding->part_count++];
    *made = (pl_instances_t){0};
    for (size_t k = 0; k < count; k++) {
        const pl_instance_request_t request = {.role = option->range,
                                               .value = is_list ? json_array_get(value, k)
                                                                : value};
        pl_error_t why = {0};
        const int rc = pl_instance_make(&made->value[k], &request, &why);
        if (rc != PL_OK)
            return pl_fail(err, rc, "\"%s.%zu\": %s", option->name, k, why.text);
        made->count++;
    }
    *parts = *made;
    return PL_OK;
}

static int bind_option(pl_binding_t *binding, const pl_option_t *option,
                       const json_t *object, const json_t *auto_values, char *component,
                       pl_error_t *err)
{
    json_t *values = binding->values;
    json_t *value = choose(option, object, auto_values, err);
    if (!value)
        return err->code;
    void *field = component + option->offset;
    int rc = pl_option_read(option, value, field, err);
    if (rc != PL_OK)
        rc = pl_fail(err, rc, "\"%s\" %s", option->name, err->text);
    else if (option->type == PL_OPTION_COMPONENT)
        rc = bind_choice(values, option, value, field);
    else if (option->type == PL_OPTION_COMPONENTS)
        rc = bind_parts(binding, option, value, field, err);
    else if (option->type == PL_OPTION_GROUPS || option->type == PL_OPTION_JSON) {
        json_t *text = text_as_json(json_incref(value));
        *(const char **)field = json_string_value(text);
        rc = json_object_set_new(values, option->name, text) == 0 ? PL_OK : PL_ENOMEM;
    } else
        rc = json_object_set(values, option->name, value) == 0 ? PL_OK : PL_ENOMEM;
    json_decref(value);
    return rc;
}

int pl_bind(const pl_option_t *table, const json_t *object, const json_t *auto_values,
            void *component, pl_binding_t **binding_p, pl_error_t *err)
{
    pl_error_t why = {0};
    char text[PL_SUGGESTION_TEXT], shown[SHOWN];
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (!strcmp(key, "name") || pl_option_find(table, key))
            continue;
        pl_suggestion_t nearest;
        pl_suggestion_init(&nearest, key);
        for (const pl_option_t *option = table; option && option->name; option++)
            pl_suggestion_offer(&nearest, option->name);
        return pl_fail(err, PL_EINVAL, "has no option \"%s\": %s",
                       pl_utf8_show(key, shown, sizeof shown),
                       pl_suggestion_text(&nearest, text));
    }
    pl_binding_t *binding = pl_alloc(sizeof *binding);
    if (binding)
        binding->values = json_object();
    int rc = binding && binding->values ? PL_OK : PL_ENOMEM;
    for (; rc == PL_OK && table && table->name; table++)
        rc = bind_option(binding, table, object, auto_values, component, &why);
    if (rc == PL_OK) {
        *binding_p = binding;
        return PL_OK;
    }
    pl_binding_free(binding);
    return rc == PL_ENOMEM ? pl_no_memory(err) : pl_fail(err, rc, "%s", why.text);
}

void pl_binding_free(pl_binding_t *binding)
{
    if (!binding)
        return;
    json_decref(binding->values);
    for (int k = 0; k < binding->part_count; k++)
        for (int i = 0; i < binding->parts[k].count; i++)
            pl_instance_release(&binding->parts[k].value[i]);
    pl_free(binding->parts);
    pl_free(binding);
}

/* ---- Instances ---- */

int pl_instance_make(pl_instance_t *instance, const pl_instance_request_t *request,
                     pl_error_t *err)
{
    const char *name = request->value ? pl_component_name(request->value) : "auto";
    if (!name)
        return pl_fail(err, PL_EINVAL, "the %s has no name", request->role);
    if (!strcmp(name, "auto") && request->automatic)
        name = request->automatic;
    pl_instance_t made = {.ops = pl_component_find(request->role, name, err)};
    if (!made.ops)
        return err ? err->code : PL_ENOTFOUND;
    const pl_component_t *component = made.ops;
    pl_error_t why = {0};
    json_t *own = json_is_object(request->value) ? pl_json_copy(request->value)
                                                 : json_object();
    for (const pl_option_t *general = pl_general_options(request->role);
         own && general && general->name; general++)
        json_object_del(own, general->name);             /* other code reads these keys */
    made.self = pl_alloc(component->size);
    int rc = own && made.self ? pl_bind(component->options, own, request->auto_values,
                                        made.self, &made.binding, &why)
                              : PL_ENOMEM;
    json_decref(own);
    if (rc == PL_OK) {
        *instance = made;
        return PL_OK;
    }
    pl_instance_release(&made);
    return rc == PL_ENOMEM ? pl_no_memory(err)
                           : pl_fail(err, rc, "%s \"%s\" %s", request->role,
                                     component->name, why.text);
}

void pl_instance_release(pl_instance_t *instance)
{
    pl_binding_free(instance->binding);
    pl_free(instance->self);
    *instance = (pl_instance_t){0};
}

int pl_instance_of_choice(pl_instance_t *instance, const char *role,
                          const pl_choice_t *choice, const char *automatic,
                          pl_error_t *err)
{
    if (!choice->name)
        return pl_fail(err, PL_EINVAL, "the %s has no name", role);
    json_t *value = pl_json_value(choice->options, strlen(choice->options), err);
    if (!value)
        return err ? err->code : PL_ENOMEM;
    value = pl_json_with(value, "name", json_string(choice->name));
    const pl_instance_request_t request = {.role = role,
                                           .value = value,
                                           .automatic = automatic};
    int rc = value ? pl_instance_make(instance, &request, err) : pl_no_memory(err);
    json_decref(value);
    return rc;
}
