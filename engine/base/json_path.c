/* json_path.c - JSON values by path, and copies of them */
#include "base/json_path.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/utf8.h"

#define STEP_MAX 128                                        /* bytes of one step */
#define STEPS_MAX 16
#define SHOWN 160

/* The step at *path, and *path behind it and its dot; false: none, or none that any key
 * could match. */
static bool next_step(const char **path, char step[STEP_MAX])
{
    size_t length = strcspn(*path, ".");
    if (length == 0 || length >= STEP_MAX)
        return false;
    memcpy(step, *path, length);
    step[length] = '\0';
    *path += length;
    if (**path == '.' && (*path)[1] != '\0')
        (*path)++;
    return true;
}

static bool is_index(const char *step)
{
    size_t digits = strspn(step, "0123456789");
    return digits > 0 && digits < 9 && step[digits] == '\0';
}

static json_t *child(const json_t *value, const char *step)
{
    if (json_is_array(value))
        return is_index(step) ? json_array_get(value, (size_t)atoi(step)) : NULL;
    if (json_is_string(value))
        return strcmp(step, "name") ? NULL : (json_t *)value;
    return json_object_get(value, step);
}

const json_t *pl_json_get_path(const json_t *root, const char *path)
{
    char step[STEP_MAX];
    const json_t *value = root;
    do {
        if (!next_step(&path, step))
            return NULL;
        value = child(value, step);
    } while (value && *path);
    return value;
}

/* ---- Putting ---- */

static int put_child(json_t *holder, const char *step, json_t *value, pl_error_t *err)
{
    if (json_is_object(holder))
        return json_object_set_new(holder, step, value) == 0 ? PL_OK : pl_no_memory(err);
    size_t count = json_array_size(holder);
    size_t index = is_index(step) ? (size_t)atoi(step) : count + 1;
    if (index > count) {
        json_decref(value);
        return pl_fail(err, PL_EINVAL,
                       "\"%s\" is not an index of a list of %zu: "
                       "indices start at 0, and %zu appends",
                       step, count, count);
    }
    int rc = index < count ? json_array_set_new(holder, index, value)
                           : json_array_append_new(holder, value);
    return rc == 0 ? PL_OK : pl_no_memory(err);
}

/* What stands in the way to `next` below holder's step, or takes its place there:
 * something that can hold keys. */
static int make_way(json_t *holder, const char *step, const char *next, json_t **way_p,
                    pl_error_t *err)
{
    char shown[PL_JSON_SHOWN], index[STEP_MAX];
    json_t *there = child(holder, step);
    if (json_is_object(there) || json_is_array(there)) {
        *way_p = there;
        return PL_OK;
    }
    if (there && !json_is_string(there) && !json_is_null(there))
        return pl_fail(err, PL_EINVAL, "\"%s\" is %s, which has no keys", step,
                       pl_json_show(there, shown));
    bool of_list = !json_is_string(there) && next_step(&next, index) && is_index(index);
    json_t *way = of_list ? json_array() : json_object();
    if (way && json_is_string(there) && json_object_set(way, "name", there) != 0) {
        json_decref(way);
        way = NULL;
    }
    *way_p = way;
    return put_child(holder, step, way, err);
}

static int put_at(json_t *root, const char *path, json_t *value, pl_error_t *err)
{
    char step[STEP_MAX];
    json_t *holder = root;
    for (int steps = 0; steps < STEPS_MAX && next_step(&path, step); steps++) {
        if (*path == '\0')
            return put_child(holder, step, json_incref(value), err);
        int rc = make_way(holder, step, path, &holder, err);
        if (rc != PL_OK)
            return rc;
    }
    return pl_fail(err, PL_EINVAL,
                   "a key is names separated by dots, such as trainer.devices");
}

int pl_json_set_path(json_t *root, const char *path, json_t *value, pl_error_t *err)
{
    char shown[SHOWN];
    pl_error_t why = {0};
    int rc = put_at(root, path, value, &why);
    json_decref(value);
    if (rc == PL_OK || rc == PL_ENOMEM)
        return rc == PL_OK ? rc : pl_no_memory(err);
    return pl_fail(err, rc, "cannot set \"%s\": %s",
                   pl_utf8_show(path, shown, sizeof shown), why.text);
}

/* ---- Copies ---- */

static bool copy_entries(json_t *copy, const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
        if (json_object_set_new(copy, key, pl_json_copy(value)) != 0)
            return false;
    return true;
}

static bool copy_elements(json_t *copy, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_array_append_new(copy, pl_json_copy(json_array_get(list, i))) != 0)
            return false;
    return true;
}

json_t *pl_json_copy(const json_t *value)
{
    if (!json_is_object(value) && !json_is_array(value))
        return json_deep_copy(value);
    json_t *copy = json_is_object(value) ? json_object() : json_array();
    bool whole = json_is_object(value) ? copy_entries(copy, value)
                                       : copy_elements(copy, value);
    if (copy && whole)
        return copy;
    json_decref(copy);
    return NULL;
}

json_t *pl_json_append(json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) == 0)
        return list;
    json_decref(list);
    return NULL;
}

json_t *pl_json_with(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) == 0)
        return object;
    json_decref(object);
    return NULL;
}
