/* registry.c - every component by its role and name
 *
 * Built-in components, those of the program and those of plug-ins are in one list, sorted
 * by role and name, without a difference.  Components are never removed: a pointer to one
 * stays valid. */
#include "base/registry.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/suggestion.h"
#include "base/option.h"
#include "base/plugin.h"
#include "base/run.h"
#include "base/utf8.h"

#define SHOWN 80

typedef struct registry_entry {
    const char *role;
    const pl_component_t *component;
    const char *home;           /* plug-in where other processes find it  [they do not] */
} registry_entry_t;

const char *const pl_roles[] = {"module",     "dataset",  "optimizer", "scheduler",
                                "averaging",  "sampler",  "metric",    "callback",
                                "logger",     "operator", "precision", "accelerator",
                                "strategy",   "collective", "launcher",  NULL};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static registry_entry_t *entries;
static int entry_count, entry_capacity;

/* ---- Entries, under the lock ---- */

static int compare(const registry_entry_t *entry, const char *role, const char *name)
{
    int order = strcmp(entry->role, role);
    return order ? order : strcmp(entry->component->name, name);
}

/* The index of the entry, or where it belongs. */
static int position(const char *role, const char *name)
{
    int low = 0, high = entry_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (compare(&entries[middle], role, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static registry_entry_t *entry_find(const char *role, const char *name)
{
    int at = position(role, name);
    bool there = at < entry_count && compare(&entries[at], role, name) == 0;
    return there ? &entries[at] : NULL;
}

static const pl_component_t *lookup(const char *role, const char *name)
{
    const registry_entry_t *entry = entry_find(role, name);
    return entry ? entry->component : NULL;
}

/* ---- Registration ---- */

/* A component's options must not have the names of keys that its section has itself. */
static int general_check(const char *role, const pl_component_t *component,
                         pl_error_t *err)
{
    bool has_sources = !strcmp(role, "dataset");
    const pl_option_t *general = has_sources ? pl_data_table : pl_general_options(role);
    for (const pl_option_t *option = component->options; option && option->name; option++)
        if ((general && pl_option_find(general, option->name))
            || (has_sources && pl_option_find(pl_source_table, option->name)))
            return pl_fail(err, PL_EINVAL,
                           "option \"%s\" of %s \"%s\" has the name of a key of every "
                           "%s section",
                           option->name, role, component->name,
                           has_sources ? "data" : role);
    return PL_OK;
}

/* The properties on which readers of a graph rely. */
static int operator_check(const pl_operator_ops_t *table, pl_error_t *err)
{
    if (table->inputs < 1 || table->inputs > PL_OPERATOR_INPUTS)
        return pl_fail(err, PL_EINVAL,
                       "operator \"%s\" takes %d inputs: 1 to %d are supported",
                       table->name, table->inputs, PL_OPERATOR_INPUTS);
    if (table->size > PL_OPERATOR_SELF)
        return pl_fail(err, PL_EINVAL,
                       "the struct of operator \"%s\" has %zu bytes: up to "
                       "%d are supported",
                       table->name, table->size, PL_OPERATOR_SELF);
    if (table->options)
        return pl_fail(err, PL_EINVAL,
                       "operator \"%s\" has options: options belong to the "
                       "module, which passes their values to pl_apply()",
                       table->name);
    for (const pl_kernel_t *k = table->kernels; k && k->accelerator; k++) {
        const bool is_text = !strcmp(k->accelerator, "gpu");
        if (is_text != (k->text != NULL) || is_text != !k->run)
            return pl_fail(err, PL_EINVAL,
                           "the kernel of operator \"%s\" for \"%s\" must be a %s alone",
                           table->name, k->accelerator, is_text ? "text" : "function");
    }
    return PL_OK;
}

static int component_check(const pl_registration_t *entry, pl_error_t *err)
{
    const pl_component_t *component = entry->table;
    char text[PL_SUGGESTION_TEXT];
    const char *const *role = pl_roles;
    pl_suggestion_t nearest;
    pl_suggestion_init(&nearest, entry->role);
    for (; *role && strcmp(*role, entry->role); role++)
        pl_suggestion_offer(&nearest, *role);
    if (!*role)
        return pl_fail(err, PL_EINVAL, "unknown role \"%s\" of a component: %s",
                       entry->role, pl_suggestion_text(&nearest, text));
    if (!component || !component->name || !*component->name
        || !strcmp(component->name, "auto"))
        return pl_fail(err, PL_EINVAL, "a %s has no name, or \"auto\" for its name",
                       entry->role);
    int rc = pl_option_table_check(entry->role, component, err);
    if (rc == PL_OK)
        rc = general_check(entry->role, component, err);
    if (rc == PL_OK && !strcmp(entry->role, "operator"))
        rc = operator_check(entry->table, err);
    return rc;
}

/* All components or none.  A component that is registered already may become known to
 * other processes. */
static int insert_all(const char *home, const pl_registration_t *registrations, int count,
                      pl_error_t *err)
{
    for (int i = 0; i < count; i++) {
        const pl_registration_t *r = &registrations[i], *same = registrations;
        const char *name = ((const pl_component_t *)r->table)->name;
        while (same < r
               && (strcmp(same->role, r->role)
                   || strcmp(((const pl_component_t *)same->table)->name, name)))
            same++;
        const void *other = same < r ? same->table : lookup(r->role, name);
        if (other && other != r->table)
            return pl_fail(err, PL_EEXIST, "another %s \"%s\" already exists: rename one",
                           r->role, name);
    }
    if (entry_count + count > entry_capacity) {
        int capacity = 2 * (entry_count + count);
        registry_entry_t *larger = pl_resize(entries, (size_t)capacity * sizeof *entries);
        if (!larger)
            return pl_no_memory(err);
        entries = larger;
        entry_capacity = capacity;
    }
    for (int i = 0; i < count; i++) {
        const pl_component_t *component = registrations[i].table;
        registry_entry_t *there = entry_find(registrations[i].role, component->name);
        if (there) {
            there->home = there->home ? there->home : home;
            continue;
        }
        int at = position(registrations[i].role, component->name);
        memmove(&entries[at + 1], &entries[at],
                (size_t)(entry_count - at) * sizeof *entries);
        entries[at] = (registry_entry_t){registrations[i].role, component, home};
        entry_count++;
    }
    return PL_OK;
}

int pl_register(const pl_registration_t *registrations, pl_error_t *err)
{
    return pl_register_at(NULL, registrations, err);
}

int pl_register_at(const char *home, const pl_registration_t *registrations,
                   pl_error_t *err)
{
    int count = 0;
    for (; registrations && registrations[count].role; count++) {
        int rc = component_check(&registrations[count], err);
        if (rc != PL_OK)
            return rc;
    }
    pthread_mutex_lock(&lock);
    int rc = insert_all(home, registrations, count, err);
    pthread_mutex_unlock(&lock);
    return rc;
}

/* ---- Finding ---- */

const char *pl_role_at(int k)
{
    int count = 0;
    while (pl_roles[count])
        count++;
    return k >= 0 && k < count ? pl_roles[k] : NULL;
}

static const pl_component_t *known(const char *role, const char *name)
{
    pthread_mutex_lock(&lock);
    const pl_component_t *component = lookup(role, name);
    pthread_mutex_unlock(&lock);
    return component;
}

const void *pl_component_offered(const char *role, const char *name)
{
    const pl_component_t *component = known(role, name);
    if (!component && pl_plugin_load_named(name, NULL) == PL_OK)
        component = known(role, name);
    return component;
}

const void *pl_component_find(const char *role, const char *name, pl_error_t *err)
{
    if (pl_require(role, "a role", err) != PL_OK
        || pl_require(name, "a name", err) != PL_OK)
        return NULL;
    const pl_component_t *component = known(role, name);
    if (component)
        return component;
    if (pl_plugin_load_named(name, err) != PL_OK)
        return NULL;
    component = known(role, name);
    if (!component) {
        pl_plugins_search(role, name);                /* its file may have another name */
        component = known(role, name);
    }
    if (!component) {
        pl_plugins_search(role, NULL);
        component = known(role,
                          name);      /* a plug-in may make its names when it is loaded */
    }
    if (!component) {
        char text[PL_SUGGESTION_TEXT], shown[SHOWN], search_path[PL_PLUGIN_SEARCH_PATH];
        pl_suggestion_t nearest;
        pl_suggestion_init(&nearest, pl_compat_component(name));
        pthread_mutex_lock(&lock);
        for (int i = position(role, "");
             i < entry_count && !strcmp(entries[i].role, role); i++)
            pl_suggestion_offer(&nearest, entries[i].component->name);
        pthread_mutex_unlock(&lock);
        pl_utf8_show(name, shown, sizeof shown);
        pl_suggestion_text(&nearest, text);
        if (nearest.length && nearest.distance && !strcmp(role, "accelerator"))
            pl_fail(err, PL_ENOTFOUND, "there is no %s \"%s\": known are %s", role, shown,
                    nearest.known);
        else if (nearest.length)
            pl_fail(err, PL_ENOTFOUND, "there is no %s \"%s\": %s", role, shown, text);
        else
            pl_fail(err, PL_ENOTFOUND, "there is no %s \"%s\": %s, nor found in %s", role,
                    shown, text, pl_plugin_search_path(search_path));
    }
    return component;
}

int pl_component_check_elsewhere(const char *role, const char *name, pl_error_t *err)
{
    pthread_mutex_lock(&lock);
    const registry_entry_t *entry = entry_find(role, name);
    bool elsewhere = entry && entry->home;
    pthread_mutex_unlock(&lock);
    if (elsewhere)
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "%s \"%s\" exists only in this process, and the launcher starts "
                   "others: pass its table to pl_init(), load it as a plug-in, or use "
                   "the launcher \"inline\"",
                   role, name);
}

const pl_component_t *pl_component_at(const char *role, int k)
{
    const pl_component_t *component = NULL;
    if (!role)
        return NULL;
    pl_plugins_load_all();
    pthread_mutex_lock(&lock);
    int at = position(role, "");
    if (k >= 0 && k < entry_count - at && !strcmp(entries[at + k].role, role))
        component = entries[at + k].component;
    pthread_mutex_unlock(&lock);
    return component;
}
