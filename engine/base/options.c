/* options.c - a run: read from a file or a text, changed, printed, and bound by actors
 *
 * A pipe is read once, and the wait for its next bytes is limited.  A change is made in a
 * copy, checked, and replaces the original only then: a failed one leaves no trace. */
#include "base/options.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/suggestion.h"
#include "base/option.h"
#include "base/run_check.h"
#include "base/run_defaults.h"
#include "base/resume_keys.h"
#include "base/utf8.h"

#define SHOWN 240

int pl_run_file_wait_ms = 30000;

/* ---- New runs ---- */

pl_options_t *pl_options_new(pl_error_t *err)
{
    pl_options_t *o = pl_alloc(sizeof *o);
    if (o) {
        o->root = json_object();
        o->set = json_object();
    }
    if (o && o->root && o->set)
        return o;
    pl_options_free(o);
    pl_no_memory(err);
    return NULL;
}

void pl_options_free(pl_options_t *o)
{
    if (!o)
        return;
    json_decref(o->root);
    json_decref(o->set);
    pl_free(o->name);
    pl_free(o->text);
    pl_free(o);
}

static pl_options_t *options_take(char *text, size_t length, const char *name,
                                  bool is_unchecked, pl_error_t *err)
{
    pl_options_t *o = pl_options_new(err);
    if (!o) {
        pl_free(text);
        return NULL;
    }
    o->text = text;
    o->name = pl_strdup(name);
    int rc = o->name ? PL_OK : pl_no_memory(err);
    o->length = length = pl_json_strip_comments(text, length);
    json_t *root = rc == PL_OK ? pl_json_read(text, length, name, err) : NULL;
    if (root) {
        json_decref(o->root);
        o->root = root;
        o->is_unchecked = is_unchecked;
        rc = is_unchecked ? PL_OK : pl_run_check(o, PL_CHECK_SHALLOW, err);
    }
    if (root && rc == PL_OK)
        return o;
    pl_options_free(o);
    return NULL;
}

pl_options_t *pl_options_take(char *text, size_t length, const char *name,
                              pl_error_t *err)
{
    return options_take(text, length, name, false, err);
}

pl_options_t *pl_options_parse(const char *text, const char *name, pl_error_t *err)
{
    if (pl_require(text, "a text", err) != PL_OK
        || pl_require(name, "a name", err) != PL_OK)
        return NULL;
    char *copy = pl_strdup(text);
    if (copy)
        return pl_options_take(copy, strlen(copy), name, err);
    pl_no_memory(err);
    return NULL;
}

pl_options_t *pl_options_clone(const pl_options_t *o, pl_error_t *err)
{
    if (pl_require(o, "a run", err) != PL_OK)
        return NULL;
    pl_options_t *clone = pl_alloc(sizeof *clone);
    if (clone) {
        clone->root = pl_json_copy(o->root);
        clone->set = pl_json_copy(o->set);
        clone->name = o->name ? pl_strdup(o->name) : NULL;
        clone->text = o->text ? pl_strdup(o->text) : NULL;
        clone->length = o->length;
        clone->is_unchecked = o->is_unchecked;
    }
    if (clone && clone->root && clone->set && !clone->name == !o->name
        && !clone->text == !o->text)
        return clone;
    pl_options_free(clone);
    pl_no_memory(err);
    return NULL;
}

/* ---- Files ---- */

/* All bytes of fd and a NUL; at most PL_RUN_FILE_MAX + 1, by which the caller sees that
 * there are more. */
static int read_all(int fd, char **text_p, size_t *length_p, pl_error_t *err)
{
    struct pollfd input = {.fd = fd, .events = POLLIN};
    size_t length = 0, capacity = 0;
    char *text = NULL;
    int rc = PL_OK;
    for (ssize_t got = 1; rc == PL_OK && got > 0 && length <= PL_RUN_FILE_MAX;) {
        if (length + 1 >= capacity) {
            capacity = 2 * capacity + 4096;
            char *larger = pl_resize(text, capacity);
            if (!larger) {
                rc = pl_no_memory(err);
                break;
            }
            text = larger;
        }
        int ready;
        do
            ready = poll(&input, 1, pl_run_file_wait_ms);
        while (ready < 0 && errno == EINTR);
        if (!ready) {
            rc = pl_fail(err, PL_EIO,
                         "no data for %g s: does a program write to this "
                         "pipe?",
                         pl_run_file_wait_ms / 1e3);
            break;
        }
        do
            got = read(fd, text + length, capacity - length - 1);
        while (got < 0 && errno == EINTR);
        if (got < 0)
            rc = pl_fail(err, PL_EIO, "%s", strerror(errno));
        else
            length += (size_t)got;
    }
    if (rc != PL_OK) {
        pl_free(text);
        return rc;
    }
    text[length] = '\0';
    *text_p = text;
    *length_p = length;
    return PL_OK;
}

static int read_file(const char *path, char **text_p, size_t *length_p, pl_error_t *err)
{
    struct stat status;
    const bool is_input = !strcmp(path, "-") || !strcmp(path, "/dev/stdin");
    int fd = is_input ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                      : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  /* a pipe, too */
    if (fd < 0)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "%s",
                       strerror(errno));
    const bool is_file = fstat(fd, &status) == 0 && !S_ISDIR(status.st_mode)
                         && !S_ISBLK(status.st_mode);
    int rc = is_file ? read_all(fd, text_p, length_p, err)
                     : pl_fail(err, PL_EIO, "not a file");
    close(fd);
    if (rc == PL_OK && *length_p > PL_RUN_FILE_MAX) {
        pl_free(*text_p);
        return pl_fail(err, PL_EFORMAT, "larger than 16 MiB: this is not a run file");
    }
    return rc;
}

static pl_options_t *options_load(const char *path, bool is_unchecked, pl_error_t *err)
{
    char *text = NULL, shown[SHOWN];
    size_t length = 0;
    pl_error_t why = {0};
    if (pl_require(path, "a path", err) != PL_OK)
        return NULL;
    int rc = read_file(path, &text, &length, &why);
    const char *name = strcmp(path, "-") ? path : "/dev/stdin";
    if (rc == PL_OK)
        return options_take(text, length, name, is_unchecked, err);
    pl_fail(err, rc, "cannot read %s: %s", pl_utf8_show(path, shown, sizeof shown),
            why.text);
    return NULL;
}

pl_options_t *pl_options_load(const char *path, pl_error_t *err)
{
    return options_load(path, false, err);
}

pl_options_t *pl_options_read(const char *path, pl_error_t *err)
{
    return options_load(path, true, err);
}

/* ---- Changes ---- */

int pl_options_set(pl_options_t *o, const char *key, const char *value, pl_error_t *err)
{
    if (pl_require(o, "a run", err) != PL_OK || pl_require(key, "a key", err) != PL_OK
        || pl_require(value, "a value", err) != PL_OK)
        return PL_EINVAL;
    if (!pl_utf8_ok(key, strlen(key)))
        return pl_fail(err, PL_EINVAL, "the key is not UTF-8");
    json_t *parsed = pl_json_parse_lenient(value, err);
    if (!parsed)
        return err ? err->code : PL_EINVAL;
    pl_options_t copy = *o, old = *o;
    copy.root = pl_json_copy(o->root);
    copy.set = pl_json_with(pl_json_copy(o->set), key, json_string(value));
    int rc = PL_OK;
    if (copy.root && copy.set)
        rc = pl_json_set_path(copy.root, key, json_incref(parsed), err);
    else
        rc = pl_no_memory(err);
    json_decref(parsed);
    if (rc == PL_OK && !o->is_unchecked)
        rc = pl_run_check(&copy, PL_CHECK_SHALLOW, err);
    if (rc == PL_OK)
        *o = copy;
    json_decref(rc == PL_OK ? old.root : copy.root);
    json_decref(rc == PL_OK ? old.set : copy.set);
    return rc;
}

/* ---- The whole run ---- */

int pl_options_check(const pl_options_t *o, pl_error_t *err)
{
    int code = pl_require(o, "a run", err);
    if (code == PL_OK)
        code = pl_run_check(o, PL_CHECK_DEEP, err);
    return code == PL_OK ? pl_trainer_check(o, err) : code;
}

int pl_options_check_all(const pl_options_t *o, pl_on_mistake_t on_mistake, void *user,
                         pl_error_t *err)
{
    if (pl_require(o, "a run", err) != PL_OK
        || pl_require((const void *)on_mistake, "a function", err) != PL_OK)
        return PL_EINVAL;
    pl_mistakes_t *all = pl_alloc(sizeof *all);
    if (!all)
        return pl_no_memory(err);
    pl_error_t why = {0};
    int code = pl_run_check_all(o, all, &why);
    if (code == PL_OK && all->count == 0)
        code = pl_trainer_check(o, &why);
    if (all->count == 0 && code != PL_OK)
        all->mistake[all->count++].error = why;
    for (int k = 0; k < all->count; k++)
        on_mistake(user, &all->mistake[k].error);
    code = all->count ? pl_fail(err, all->mistake[0].error.code, "%s",
                                all->mistake[0].error.text)
                      : PL_OK;
    pl_free(all);
    return code;
}

static char *write_text(const json_t *value, pl_json_layout_t layout, pl_error_t *err)
{
    char *text = pl_json_write(value, layout);
    if (!text)
        pl_no_memory(err);
    return text;
}

char *pl_options_print(const pl_options_t *o, pl_error_t *err)
{
    if (pl_options_check(o, err) != PL_OK)
        return NULL;
    json_t *filled = pl_run_with_defaults(o->root, err);
    char *text = filled ? write_text(filled, PL_JSON_INDENTED, err) : NULL;
    json_decref(filled);
    return text;
}

char *pl_options_text(const pl_options_t *o, pl_error_t *err)
{
    return write_text(o->root, PL_JSON_COMPACT, err);
}

/* ---- Values ---- */

const json_t *pl_options_value(const pl_options_t *o, const char *path)
{
    const json_t *value = pl_json_get_path(o->root, path);
    return json_is_null(value) ? NULL : value;
}

char *pl_options_get(const pl_options_t *o, const char *key)
{
    if (!o || !key)
        return NULL;
    const json_t *value = pl_options_value(o, key);
    json_t *filled = value ? NULL : pl_run_with_defaults(o->root, NULL);
    if (!value)
        value = pl_json_get_path(filled, key);
    char *text = NULL;
    if (json_is_string(value))
        text = pl_strdup(json_string_value(value));
    else if (value)
        text = pl_json_write(value, PL_JSON_COMPACT);
    json_decref(filled);
    return text;
}

char *pl_options_key(const char *word)
{
    char buffer[PL_RUN_KEY];
    const char *key = word ? pl_run_key(word, buffer) : NULL;
    return key ? pl_text("%s", key) : NULL;
}

char *pl_options_hint(const char *word)
{
    const char *hint = word ? pl_compat_advice(word) : NULL;
    return hint ? pl_text("%s", hint) : NULL;
}

int pl_options_count(const pl_options_t *o, const char *list)
{
    return (int)json_array_size(json_object_get(o->root, list));
}

const char *pl_options_component_name(const pl_options_t *o, const char *path)
{
    const json_t *value = pl_options_value(o, path);
    if (value)
        return pl_component_name(value);
    const char *key = strncmp(path, "trainer.", 8) ? NULL : path + 8;
    const pl_option_t *option = key ? pl_option_find(pl_trainer_table, key) : NULL;
    return option && option->type == PL_OPTION_COMPONENT ? "auto" : NULL;
}

const char *pl_options_choice(const pl_options_t *o, const char *path,
                              const char *automatic)
{
    const char *name = pl_options_component_name(o, path);
    return name && strcmp(name, "auto") ? name : automatic;
}

/* ---- Parts that actors bind ---- */

int pl_options_trainer(const pl_options_t *o, pl_trainer_options_t *trainer,
                       pl_binding_t **binding_p, pl_error_t *err)
{
    const json_t *object = json_object_get(o->root, "trainer"),
                 *devices = json_object_get(object, "devices"),
                 *nodes = json_object_get(object, "num_nodes");
    json_t *auto_values = json_object();
    int rc = json_object_set_new(auto_values, "devices", json_integer(1));
    if (rc == 0)
        rc = json_object_set_new(auto_values, "num_nodes", json_integer(1));
    if (rc == 0)
        rc = json_object_set_new(auto_values, "max_epochs",
                                 json_integer(pl_default_epochs(object)));
    rc = rc == 0 ? pl_bind(pl_trainer_table, object, auto_values, trainer, binding_p, err)
                 : pl_no_memory(err);
    trainer->micro_shards = pl_run_micro_shards(object);
    if (rc == PL_OK && (!devices || pl_is_auto(devices)))
        trainer->devices = (pl_span_t){0};
    if (rc == PL_OK && (!nodes || pl_is_auto(nodes)))
        trainer->num_nodes = 0;
    json_decref(auto_values);
    return rc;
}

int pl_options_device(const pl_options_t *o, int local_rank)
{
    const json_t *devices = pl_options_value(o, "trainer.devices"),
                 *number = json_array_get(devices, (size_t)local_rank);
    return json_is_integer(number) ? (int)json_integer_value(number) : -1;
}

int pl_options_general(const pl_options_t *o, const char *path, const pl_option_t *table,
                       void *into, pl_binding_t **binding_p, pl_error_t *err)
{
    const json_t *section = pl_options_value(o, path);
    json_t *general = json_object();                        /* copies: ranks share o */
    for (const pl_option_t *option = table; option->name; option++) {
        json_t *value = json_object_get(section, option->name);
        if (value)
            general = pl_json_with(general, option->name, pl_json_copy(value));
    }
    int rc = general ? pl_bind(table, general, NULL, into, binding_p, err)
                     : pl_no_memory(err);
    json_decref(general);
    return rc;
}

/* An error about a missing key: it has no line, so the text names only the file. */
static PL_PRINTF(3, 4) int fail_missing(const pl_options_t *o, pl_error_t *err,
                                        const char *format, ...)
{
    char text[PL_ERROR_TEXT], shown[PL_JSON_PREFIX];
    va_list args;
    va_start(args, format);
    pl_text_print(text, sizeof text, format, args);
    va_end(args);
    if (!o->name)
        return pl_fail(err, PL_ENOTFOUND, "%s", text);
    return pl_fail(err, PL_ENOTFOUND, "%s: %s",
                   pl_utf8_show(o->name, shown, sizeof shown), text);
}

int pl_options_needs(const pl_options_t *o, const char *role, const char *path,
                     pl_error_t *err)
{
    if (pl_options_value(o, path))
        return PL_OK;
    return fail_missing(o, err, "the run has no %s: set \"%s\"", role, path);
}

int pl_options_component(const pl_options_t *o, const pl_component_request_t *request,
                         pl_instance_t *instance, pl_error_t *err)
{
    pl_instance_request_t wanted = {request->role, pl_options_value(o, request->path),
                                    request->automatic, NULL};
    if (!wanted.automatic
        && pl_options_needs(o, request->role, request->path, err) != PL_OK)
        return PL_ENOTFOUND;
    json_t *auto_values = request->data_info
                              ? pl_json_value(request->data_info,
                                              strlen(request->data_info), err)
                              : NULL;
    if (request->data_info && !auto_values)
        return err ? err->code : PL_EFORMAT;
    wanted.auto_values = auto_values;
    int rc = pl_instance_make(instance, &wanted, err);
    json_decref(auto_values);
    return rc;
}

bool pl_options_has_sources(const pl_options_t *o)
{
    return pl_data_has_sources(json_object_get(o->root, "data"));
}

/* The value of a stage in "data" with several sources, or NULL. */
static const json_t *source_of(const json_t *data, pl_stage_t stage)
{
    const json_t *source = json_object_get(data, pl_stages[stage].source);
    if ((!source || json_is_null(source)) && stage == PL_PREDICT)
        return source_of(data, PL_TEST);
    return json_is_null(source) ? NULL : source;
}

uint32_t pl_options_loaders(const pl_options_t *o, pl_stage_t stage)
{
    const json_t *data = pl_options_value(o, "data");
    size_t listed = json_array_size(source_of(data, stage));
    return listed ? (uint32_t)listed : 1;
}

int pl_options_needs_source(const pl_options_t *o, pl_stage_t stage, pl_error_t *err)
{
    const json_t *data = pl_options_value(o, "data");
    if (!data)
        return fail_missing(o, err, "the run has no data: set \"data\"");
    const bool splits = pl_data_splits(data);
    if (stage == PL_VALIDATE && splits && !source_of(data, PL_VALIDATE))
        return pl_options_needs_source(o, PL_TRAIN, err);
    if (stage == PL_VALIDATE && !pl_data_has_sources(data))
        return fail_missing(o, err,
                            "the run has no validation data: set "
                            "\"data.val_split\" or a source \"data.val\"");
    if (stage == PL_PREDICT && json_is_array(source_of(data, stage)))
        return pl_options_fail(err, PL_EINVAL, o, "data.test",
                               "\"data.test\" is a list: set the one to predict as "
                               "\"data.predict\"");
    if (!pl_data_has_sources(data) && json_is_object(data)
        && !json_object_get(data, "name"))
        return pl_options_fail(err, PL_ENOTFOUND, o, "data",
                               "\"data\" names no data set: set \"data.name\"");
    if (pl_data_has_sources(data) && !source_of(data, stage))
        return fail_missing(o, err,
                            "the run has no data set for this stage: set \"data.%s\"",
                            pl_stages[stage].source);
    return PL_OK;
}

int pl_options_source(const pl_options_t *o, pl_stage_t stage, uint32_t loader,
                      pl_instance_t *instance, pl_error_t *err)
{
    const json_t *data = pl_options_value(o, "data");
    int rc = pl_options_needs_source(o, stage, err);
    if (rc != PL_OK)
        return rc;
    json_t *component = NULL;
    const json_t *source = source_of(data, stage);
    if (json_is_array(source))
        source = json_array_get(source, loader);
    if (!pl_data_has_sources(data)) {
        component = pl_component_without(data, pl_data_table, err);
        if (!component)
            return PL_ENOMEM;
        source = component;
    }
    pl_instance_request_t request = {.role = "dataset", .value = source};
    rc = pl_instance_make(instance, &request, err);
    json_decref(component);
    return rc;
}
