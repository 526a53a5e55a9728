/* bind.c - a component as a run describes it: its struct filled in, its texts kept
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
    json_t *values;                                         /* option's name -> value */
};

static int fail_unknown(const pl_option_t *table, const char *key, pl_error_t *err)
{
    char text[PL_SUGGESTION_TEXT], shown[SHOWN];
    pl_suggestion_t nearest;
    pl_suggestion_init(&nearest, key);
    for (; table && table->name; table++)
        pl_suggestion_offer(&nearest, table->name);
    return pl_fail(err, PL_EINVAL, "has no option \"%s\": %s",
                   pl_utf8_show(key, shown, sizeof shown),
                   pl_suggestion_text(&nearest, text));
}

/* An object without the keys that somebody else reads; a new reference. */
static json_t *own_keys(const char *role, const json_t *object)
{
    const pl_option_t *general = pl_general_options(role);
    json_t *own = object ? pl_json_copy(object) : json_object();
    for (; own && general && general->name; general++)
        json_object_del(own, general->name);
    return own;
}

static int check_keys(const pl_option_t *table, const json_t *object, pl_error_t *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
        if (strcmp(key, "name") && !pl_option_find(table, key))
            return fail_unknown(table, key, err);
    return PL_OK;
}

/* A new reference to the option's value: given, known to the data, or the default. */
static json_t *choose(const pl_option_t *option, const json_t *object,
                      const json_t *auto_values, pl_error_t *err)
{
    json_t *given = json_object_get(object, option->name), *value = NULL;
    bool automatic = pl_option_is_automatic(option) && (!given || pl_is_auto(given));
    if (automatic && option->type != PL_OPTION_COMPONENT) {
        value = json_object_get(auto_values, option->name);
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

/* The options of a value that names a component, without the name, as a JSON string. */
static json_t *options_as_text(const json_t *value)
{
    json_t *options = json_is_object(value) ? pl_json_copy(value) : json_object();
    json_object_del(options, "name");
    char *text = options ? pl_json_write(options, PL_JSON_COMPACT) : NULL;
    json_t *string = text ? json_string(text) : NULL;
    pl_free(text);
    json_decref(options);
    return string;
}

/* {"name": …, "options": "…"} takes the place of the value that was read. */
static int bind_choice(json_t *values, const pl_option_t *option, const json_t *value,
                       pl_choice_t *choice)
{
    *choice = (pl_choice_t){NULL, "{}"};
    if (json_is_null(value))
        return PL_OK;
    json_t *texts = json_object();
    int rc = json_object_set_new(texts, "name", json_string(pl_component_name(value)));
    if (rc == 0)
        rc = json_object_set_new(texts, "options", options_as_text(value));
    if (rc == 0) {
        choice->name = json_string_value(json_object_get(texts, "name"));
        choice->options = json_string_value(json_object_get(texts, "options"));
        rc = json_object_set(values, option->name, texts);
    }
    json_decref(texts);
    return rc == 0 ? PL_OK : PL_ENOMEM;
}

/* Their text takes the place of the value that was read. */
static int bind_groups(json_t *values, const pl_option_t *option, const json_t *value,
                       const char **groups)
{
    char *text = pl_json_write(value, PL_JSON_COMPACT);
    json_t *string = text ? json_string(text) : NULL;
    pl_free(text);
    *groups = json_string_value(string);
    return json_object_set_new(values, option->name, string) == 0 ? PL_OK : PL_ENOMEM;
}

static int bind_option(json_t *values, const pl_option_t *option, const json_t *object,
                       const json_t *auto_values, char *component, pl_error_t *err)
{
    json_t *value = choose(option, object, auto_values, err);
    if (!value)
        return err->code;
    void *field = component + option->offset;
    int rc = pl_option_read(option, value, field, err);
    if (rc != PL_OK)
        rc = pl_fail(err, rc, "\"%s\" %s", option->name, err->text);
    else if (option->type == PL_OPTION_COMPONENT)
        rc = bind_choice(values, option, value, field);
    else if (option->type == PL_OPTION_GROUPS)
        rc = bind_groups(values, option, value, field);
    else
        rc = json_object_set(values, option->name, value) == 0 ? PL_OK : PL_ENOMEM;
    json_decref(value);
    return rc;
}

int pl_bind(const pl_option_t *table, const json_t *object, const json_t *auto_values,
            void *component, pl_binding_t **binding_p, pl_error_t *err)
{
    pl_error_t why = {0};
    int rc = check_keys(table, object, err);
    if (rc != PL_OK)
        return rc;
    pl_binding_t *binding = pl_alloc(sizeof *binding);
    if (binding)
        binding->values = json_object();
    if (!binding || !binding->values)
        rc = PL_ENOMEM;
    for (; rc == PL_OK && table && table->name; table++)
        rc = bind_option(binding->values, table, object, auto_values, component, &why);
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
    pl_free(binding);
}

/* ---- Instances ---- */

static int instance_bind(pl_instance_t *made, const pl_instance_request_t *request,
                         pl_error_t *err)
{
    const pl_component_t *component = made->ops;
    json_t *object = own_keys(request->role,
                              json_is_object(request->value) ? request->value : NULL);
    pl_error_t why = {0};
    made->self = pl_alloc(component->size);
    int rc = object && made->self
                 ? pl_bind(component->options, object, request->auto_values, made->self,
                           &made->binding, &why)
                 : PL_ENOMEM;
    json_decref(object);
    if (rc == PL_OK || rc == PL_ENOMEM)
        return rc == PL_OK ? rc : pl_no_memory(err);
    return pl_fail(err, rc, "%s \"%s\" %s", request->role, component->name, why.text);
}

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
    int rc = instance_bind(&made, request, err);
    if (rc == PL_OK)
        *instance = made;
    else
        pl_instance_release(&made);
    return rc;
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
    int rc = PL_ENOMEM;
    if (json_object_set_new(value, "name", json_string(choice->name)) == 0) {
        pl_instance_request_t request = {.role = role,
                                         .value = value,
                                         .automatic = automatic};
        rc = pl_instance_make(instance, &request, err);
    } else {
        pl_no_memory(err);
    }
    json_decref(value);
    return rc;
}
