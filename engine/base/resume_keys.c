/* resume_keys.c - the keys of a run that change its arithmetic or its order
 *
 * All options of a component may do so; of the trainer's and the data's options, those in
 * the tables below.  The length of a run is not among them: many resume to train
 * longer. */
#include "base/resume_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/run.h"
#include "base/run_defaults.h"

static const char *const whole_sections[] = {
    "module",    "optimizer", "scheduler", "momentum_scheduler", "weight_decay_scheduler",
    "averaging", "data",      NULL};
static const char *const data_free[] = {"package", "prefetch",  "workers",
                                        "stream",  "memory_mb", NULL};
static const char *const trainer_bound[] = {"accelerator",
                                            "devices",
                                            "num_nodes",
                                            "strategy",
                                            "precision",
                                            "overfit_batches",
                                            "deterministic",
                                            "sync_batchnorm",
                                            "freeze",
                                            "nan_policy",
                                            "nan_limit",
                                            "accumulate_grad_batches",
                                            "gradient_clip_val",
                                            "limit_train_batches",
                                            "gradient_clip_algorithm",
                                            "seed",
                                            NULL};

static bool is_among(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name))
        names++;
    return *names != NULL;
}

/* Adds the keys of a section that a resumed run must not change. */
static json_t *section_add(json_t *keys, const char *section, json_t *value)
{
    const bool is_trainer = !strcmp(section, "trainer"),
               is_data = !strcmp(section, "data");
    const char *key;
    json_t *member;
    if (!json_is_object(value))
        return value ? pl_json_with(keys, section, json_incref(value)) : keys;
    json_object_foreach(value, key, member) {
        if (is_trainer ? !is_among(trainer_bound, key)
                       : is_data && is_among(data_free, key))
            continue;
        char *path = pl_text("%s%s%s", section, *key ? "." : "", key);
        keys = pl_json_with(keys, path, json_incref(member));
        pl_text_free(path);
    }
    return keys;
}

json_t *pl_resume_keys(const json_t *run)
{
    json_t *keys = section_add(json_object(), "trainer", json_object_get(run, "trainer"));
    for (int k = 0; whole_sections[k]; k++)
        keys = section_add(keys, whole_sections[k],
                           json_object_get(run, whole_sections[k]));
    return keys;
}

json_t *pl_resume_keys_hash(const json_t *keys)
{
    char *text = pl_json_write(keys, PL_JSON_COMPACT);
    char hex[9];
    if (!text)
        return NULL;
    snprintf(hex, sizeof hex, "%08x", pl_crc32c(0, text, strlen(text)));
    pl_text_free(text);
    return json_string(hex);
}

enum { SHOWN = 3 };

/* "trainer.seed" was 42 and is 43, …: the first few, as far as they fit into the text of
 * an error behind the path of a checkpoint. */
typedef struct differences {
    char text[220];
    int shown, omitted;
} differences_t;

static void difference_add(differences_t *found, const char *key, const json_t *then,
                           const json_t *now)
{
    char was[PL_JSON_SHOWN], is[PL_JSON_SHOWN];
    const size_t used = strlen(found->text), capacity = sizeof found->text - used;
    const int length = snprintf(found->text + used, capacity, "%s\"%s\" was %s and is %s",
                                used ? ", " : "", key,
                                then ? pl_json_show(then, was) : "not given",
                                now ? pl_json_show(now, is) : "not given");
    const bool fits = length >= 0 && (size_t)length < capacity;
    if (fits && !found->omitted && found->shown < SHOWN) {
        found->shown++;
        return;
    }
    found->text[used] = '\0';
    found->omitted++;
}

int64_t pl_run_micro_shards(const json_t *trainer)
{
    const json_int_t own = json_integer_value(
        json_object_get(json_object_get(trainer, "strategy"), "micro_shards"));
    return own > 0 ? own : PL_MICRO_SHARDS_DEFAULT;
}

static bool is_elastic(const json_t *trainer)
{
    const json_t *strategy = json_object_get(trainer, "strategy");
    const char *kind = json_string_value(json_object_get(trainer, "deterministic")),
               *name = json_string_value(json_is_object(strategy)
                                             ? json_object_get(strategy, "name")
                                             : strategy);
    return (kind && !strcmp(kind, "elastic")) || (name && !strcmp(name, "elastic"));
}

int64_t pl_run_batch(const json_t *run)
{
    const json_t *trainer = json_object_get(run, "trainer"),
                 *strategy = json_object_get(trainer, "strategy"),
                 *devices = json_object_get(trainer, "devices");
    const json_int_t batch = json_integer_value(
                         json_object_get(json_object_get(run, "data"), "batch_size")),
                     all = json_integer_value(
                         json_object_get(trainer, "global_batch_size")),
                     nodes = json_integer_value(json_object_get(trainer, "num_nodes")),
                     ranks = json_is_array(devices) ? (json_int_t)json_array_size(devices)
                                                    : json_integer_value(devices);
    if (is_elastic(trainer))                     /* the number of ranks changes nothing */
        return all ? all : pl_run_micro_shards(trainer) * batch;
    if (json_is_false(json_object_get(strategy, "replace_sampler")))
        return batch;
    return (ranks > 1 ? ranks : 1) * (nodes > 1 ? nodes : 1) * batch;
}

bool pl_run_reads_files(const char *dataset)
{
    static const char *const names[] = {"csv", "idx", "lines", "npy", "text", NULL};
    return is_among(names, dataset);
}

/* A text becomes true: a file is given, with any name. */
static int name_forget(json_t *object, const char *key)
{
    const char *name = json_string_value(json_object_get(object, key));
    return name && *name ? json_object_set_new(object, key, json_true()) : 0;
}

static int names_forget(json_t *source)
{
    static const char *const keys[] = {"path", "x", "y", "offsets"},
                             *const of_idx[] = {"prefix", "images", "labels"};
    const char *name = json_string_value(json_object_get(source, "name")), *key;
    json_t *fields = json_object_get(source, "fields"), *value;
    int failed = 0;
    if (!name || !pl_run_reads_files(name))
        return 0;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        failed |= name_forget(source, keys[k]);
    json_object_foreach(fields, key, value)
        failed |= name_forget(fields, key);
    /* Without these keys "idx" finds the files itself. */
    for (size_t k = 0; k < sizeof of_idx / sizeof *of_idx; k++)
        json_object_del(source, of_idx[k]);
    return failed;
}

/* Removes the names of the files of its data from a run. */
static int run_forget_names(json_t *run)
{
    json_t *data = json_object_get(run, "data"), *value, *source;
    const char *key;
    size_t at;
    int failed = names_forget(data);
    json_object_foreach(data, key, value) {
        failed |= names_forget(value);
        json_array_foreach(value, at, source)
            failed |= names_forget(source);
    }
    return failed;
}

/* Removes the places in a program from calls, ["relu", {"x": 0}, "net.py:3"]. */
static void places_forget(json_t *calls)
{
    const char *key;
    json_t *value;
    size_t at;
    json_object_foreach(calls, key, value)                  /* a list for each stage */
        places_forget(value);
    json_array_foreach(calls, at, value)
        json_array_remove(value, 2);
}

/* The places of a module "graph" change no result. */
static void module_forget_places(json_t *module)
{
    const char *name = json_string_value(json_object_get(module, "name"));
    if (name && !strcmp(name, "graph"))
        places_forget(json_object_get(module, "calls"));
}

/* "auto" and "" are the same target of a table: the word was the default once. */
static void target_unify(json_t *data)
{
    const char *target = json_string_value(json_object_get(data, "target"));
    if (target && !strcmp(target, "auto"))
        json_object_set_new(data, "target", json_string(""));
}

/* The keys without those that depend on the number of ranks. */
static json_t *keys_of_any_ranks(const json_t *run, bool same_batch)
{
    json_t *keys = pl_resume_keys(run), *trainer = json_object_get(run, "trainer");
    if (is_elastic(trainer)) {
        json_object_set_new(keys, "trainer.deterministic", json_string("elastic"));
        json_object_set_new(keys, "trainer.strategy.micro_shards",
                            json_integer(pl_run_micro_shards(trainer)));
    }
    json_object_del(keys, "trainer.devices");
    json_object_del(keys, "trainer.num_nodes");
    json_object_del(keys, "trainer.strategy");
    if (same_batch)
        json_object_del(keys, "data.batch_size");
    /* The checkpoint has other weights than the first ones. */
    json_object_del(keys, "module.init_from");
    json_object_del(keys, "module.init_strict");
    return keys;
}

static int run_compare(const json_t *then, const json_t *now, pl_error_t *err)
{
    const bool same_batch = pl_run_batch(then) == pl_run_batch(now);
    json_t *a = keys_of_any_ranks(then, same_batch),
           *b = keys_of_any_ranks(now, same_batch);
    json_t *value;
    differences_t found = {.omitted = 0};
    char more[64] = "";
    const char *key;
    int code = a && b ? PL_OK : pl_no_memory(err);
    json_object_foreach(a, key, value) {
        if (!json_equal(value, json_object_get(b, key)))
            difference_add(&found, key, value, json_object_get(b, key));
    }
    json_object_foreach(b, key, value) {
        if (a && !json_object_get(a, key))
            difference_add(&found, key, NULL, value);
    }
    if (found.omitted)
        snprintf(more, sizeof more, "%s%d more (its manifest.json has all)",
                 *found.text ? ", and " : "", found.omitted);
    if (code == PL_OK && (*found.text || found.omitted))
        code = pl_fail(err, PL_EINVAL,
                       "cannot resume with other options that change the result: %s%s; "
                       "change them back, or start a new run from these weights with "
                       "module.init_from",
                       found.text, more);
    json_decref(a);
    json_decref(b);
    return code;
}

int pl_resume_check(const json_t *then, const json_t *now, bool by_content,
                    pl_error_t *err)
{
    /* A checkpoint lacks options that are newer: they had their defaults. */
    json_t *a = pl_run_with_defaults(then, err),
           *b = a ? pl_run_with_defaults(now, err) : NULL;
    int code = a && b ? PL_OK : PL_ENOMEM;
    if (!code && by_content && (run_forget_names(a) || run_forget_names(b)))
        code = pl_no_memory(err);
    target_unify(json_object_get(a, "data"));
    target_unify(json_object_get(b, "data"));
    module_forget_places(json_object_get(a, "module"));
    module_forget_places(json_object_get(b, "module"));
    if (!code)
        code = run_compare(a, b, err);
    json_decref(a);
    json_decref(b);
    return code;
}
