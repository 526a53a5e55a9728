/* weights.c - weights in safetensors files, checkpoints and run directories
 *
 * The metadata of a file contains the module and the data info, so a file is enough to
 * predict with.  Files of other programs are read too if their tensors fit. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/connectors/weights.h"
#include "actors/connectors/checkpoint_io.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"
#include "formats/durable.h"
#include "runtime/payload.h"
#include "tensor/graph.h"

/* ---- Writing ---- */

int pl_weights_write_part(const char *path, const pl_weights_t *weights,
                          pl_weights_part_t part, uint64_t global_step,
                          pl_checksums_t *sums, pl_error_t *err)
{
    char step[24], epoch[16];
    snprintf(step, sizeof step, "%llu", (unsigned long long)global_step);
    snprintf(epoch, sizeof epoch, "%u", weights->epoch);
    const pl_metadata_t metadata[] = {
        {"format", "paceline"},
        {"global_step", step},
        {"epoch", epoch},
        {"module", weights->module ? weights->module : "{}"},
        {"data_info", weights->data_info ? weights->data_info : "{}"},
    };
    int count = 0, code = PL_OK;
    pl_safetensors_source_t *source = pl_alloc_array((size_t)weights->count,
                                                     sizeof *source);
    if (!source)
        return pl_no_memory(err);
    for (int k = 0; k < weights->count && code == PL_OK; k++) {
        const pl_output_t *tensor = &weights->tensor[k];
        if ((tensor->region < PL_REGION_SLOT0) != (part == PL_WEIGHTS_MODULE))
            continue;
        /* "fc1.weight", or "slot1/fc1.weight" for the optimizer. */
        char *name = part == PL_WEIGHTS_MODULE
                         ? pl_text("%s", tensor->name)
                         : pl_text("slot%d/%s", (int)tensor->region - PL_REGION_SLOT0,
                                   tensor->name);
        source[count] = (pl_safetensors_source_t){name, tensor->dtype, tensor->shape,
                                                  tensor->data};
        code = source[count].name ? PL_OK : pl_no_memory(err);
        count += code == PL_OK;
    }
    const pl_safetensors_content_t content = {source, count, metadata,
                                              sizeof metadata / sizeof *metadata, sums};
    if (code == PL_OK)
        code = pl_safetensors_write(path, &content, err);
    for (int k = 0; k < count; k++)
        pl_text_free((char *)source[k].name);
    pl_free(source);
    return code;
}

int pl_weights_write(const char *path, const pl_weights_t *weights, uint64_t global_step,
                     pl_error_t *err)
{
    return pl_weights_write_part(path, weights, PL_WEIGHTS_MODULE, global_step, NULL,
                                 err);
}

/* ---- Reading a file ---- */

int pl_weights_read_metadata(pl_weights_t *weights, const pl_safetensors_t *file,
                             pl_error_t *err)
{
    const char *module = pl_safetensors_metadata(file, "module"),
               *data_info = pl_safetensors_metadata(file, "data_info");
    if (!data_info)                                         /* the former name */
        data_info = pl_safetensors_metadata(file, "facts");
    if (module && !weights->module && !(weights->module = pl_strdup(module)))
        return pl_no_memory(err);
    if (data_info && !weights->data_info && !(weights->data_info = pl_strdup(data_info)))
        return pl_no_memory(err);
    return PL_OK;
}

static pl_weights_t *weights_of_file(const char *path, pl_error_t *err)
{
    pl_safetensors_t file;
    if (pl_safetensors_open(path, &file, err) != PL_OK)
        return NULL;
    pl_weights_t *weights = pl_weights_new(err);
    int code = weights ? pl_weights_read_metadata(weights, &file, err) : PL_ENOMEM;
    for (int k = 0; k < file.count && code == PL_OK; k++) {
        const pl_safetensors_tensor_t *t = &file.tensor[k];
        if (!t->loadable || !pl_is_float(t->dtype))
            code = pl_fail(err, PL_EUNSUPPORTED,
                           "%s: tensor \"%s\" is %s; weights are F32, F64, BF16 or F16",
                           file.name, t->name, t->type);
        else if (strlen(t->name) >= sizeof weights->tensor->name)
            code = pl_fail(err, PL_EUNSUPPORTED,
                           "%s: the name of tensor \"%.80s\" is too "
                           "long; %zu bytes are possible",
                           file.name, t->name, sizeof weights->tensor->name - 1);
        else
            code = pl_weights_add(weights, t->name, t->shape, t->dtype, NULL, err);
        if (code == PL_OK)
            code = pl_safetensors_load(&file, t, weights->tensor[weights->count - 1].data,
                                       err);
    }
    if (code == PL_OK) {
        const char *step = pl_safetensors_metadata(&file, "global_step"),
                   *epoch = pl_safetensors_metadata(&file, "epoch");
        weights->global_step = step ? strtoull(step, NULL, 10) : 0;
        weights->epoch = epoch ? (uint32_t)strtoull(epoch, NULL, 10) : 0;
    } else {
        pl_object_unref(weights);
        weights = NULL;
    }
    pl_safetensors_close(&file);
    return weights;
}

/* ---- Run directories ---- */

/* A candidate of a run directory. */
typedef struct weights_candidate {
    char *path;                                            /* of a checkpoint or file */
    const char *which;                                     /* "best", "newest", "final" */
    char *monitor;                                         /* of the best  [NULL] */
    bool is_file;
} weights_candidate_t;

/* In the order in which they are tried. */
typedef struct choices {
    weights_candidate_t *at;
    int count, capacity;
} choices_t;

static int choice_add(choices_t *all, const char *path, const char *which,
                      pl_error_t *err)
{
    char *copy = pl_strdup(path);
    if (!copy || PL_GROW(all->at, all->count, all->capacity) != PL_OK) {
        pl_free(copy);
        return pl_no_memory(err);
    }
    all->at[all->count++] = (weights_candidate_t){.path = copy,
                                                  .which = which,
                                                  .is_file = !strcmp(which, "final")};
    return PL_OK;
}

static void choices_release(choices_t *all)
{
    for (int k = 0; k < all->count; k++) {
        pl_free(all->at[k].path);
        pl_free(all->at[k].monitor);
    }
    pl_free(all->at);
    *all = (choices_t){0};
}

/* The state of a callback that is a model_checkpoint with a monitor, or NULL. */
static json_t *model_checkpoint_state(const json_t *callback)
{
    const char *name = json_string_value(json_object_get(callback, "name")),
               *text = json_string_value(json_object_get(callback, "state"));
    json_t *state = name && text && !strcmp(name, "model_checkpoint")
                        ? pl_json_value(text, strlen(text), NULL)
                        : NULL;
    const char *monitor = json_string_value(json_object_get(state, "monitor"));
    if (monitor && *monitor)
        return state;
    json_decref(state);
    return NULL;
}

static const char *best_name(const json_t *state)
{
    const json_t *best = json_array_get(json_object_get(state, "kept"), 0);
    return json_string_value(json_object_get(best, "name"));
}

/* Adds the best checkpoint according to a callback's state, if it exists. */
static int best_add(choices_t *all, const pl_candidates_t *found, const json_t *state,
                    pl_error_t *err)
{
    const char *name = best_name(state);
    int code = PL_OK;
    for (int k = 0; name && k < found->count && code == PL_OK; k++) {
        const char *path = found->at[k].path, *slash = strrchr(path, '/');
        if (found->at[k].manifest && !strcmp(slash ? slash + 1 : path, name))
            code = choice_add(all, path, "best", err);
    }
    if (code != PL_OK || !all->count)
        return code;
    all->at[0].monitor = pl_strdup(json_string_value(json_object_get(state, "monitor")));
    return all->at[0].monitor ? PL_OK : pl_no_memory(err);
}

/* At least one choice: the best checkpoint, then the readable ones, newest first.  The
 * final weights come before those that are no newer, because they may be from a later
 * step: their files of older versions have no step and count as the last, unreadable
 * files as the first.  PL_ENOTFOUND: there is none; PL_EFORMAT names one that is
 * unreadable. */
static int choices_list(choices_t *all, const char *run_dir, pl_error_t *err)
{
    pl_candidates_t found;
    json_t *callback, *state;
    size_t i;
    int newest = 0, code = pl_candidates_list(&found, run_dir, err);
    *all = (choices_t){0};
    if (code != PL_OK)
        return code;
    char *final = pl_text("%s/" PL_WEIGHTS_FILE, run_dir);
    code = final ? PL_OK : pl_no_memory(err);
    while (newest < found.count && !found.at[newest].manifest)
        newest++;
    /* The newest manifest has the states of the callbacks; the first with a monitor
     * counts. */
    const json_t *manifest = newest < found.count ? found.at[newest].manifest : NULL;
    json_array_foreach(json_object_get(manifest, "callbacks"), i, callback) {
        if (all->count || code != PL_OK || !(state = model_checkpoint_state(callback)))
            continue;
        code = best_add(all, &found, state, err);
        json_decref(state);
    }
    if (code == PL_OK) {
        json_int_t last = -1;
        bool added = access(final, F_OK) != 0;
        pl_safetensors_t file;
        if (!added && pl_safetensors_open(final, &file, NULL) == PL_OK) {
            const char *text = pl_safetensors_metadata(&file, "global_step");
            last = text ? strtoll(text, NULL, 10) : INT64_MAX;
            pl_safetensors_close(&file);
        }
        for (int k = 0; k < found.count && code == PL_OK; k++) {
            const json_t *step = json_object_get(found.at[k].manifest, "global_step");
            if (!found.at[k].manifest)
                continue;
            if (!added && json_integer_value(step) <= last) {
                added = true;
                code = choice_add(all, final, "final", err);
            }
            if (code == PL_OK)
                code = choice_add(all, found.at[k].path, "newest", err);
        }
        if (code == PL_OK && !added)
            code = choice_add(all, final, "final", err);
    }
    if (code == PL_OK && !all->count && found.count)
        code = pl_fail(err, PL_EFORMAT, "%s", found.at[0].why.text);
    else if (code == PL_OK && !all->count)
        code = pl_fail(err, PL_ENOTFOUND,
                       "%s: there are no weights (" PL_WEIGHTS_FILE ") and no "
                       "checkpoints in this directory",
                       run_dir);
    if (code != PL_OK)
        choices_release(all);
    pl_candidates_release(&found);
    pl_free(final);
    return code;
}

int pl_run_weights_best(const char *run_dir, const char *callbacks, char **path_p,
                        bool *restores, pl_error_t *err)
{
    json_t *all = pl_json_value(callbacks, strlen(callbacks), NULL), *callback, *state;
    size_t k;
    int code = all ? PL_OK : pl_no_memory(err);
    *path_p = NULL;
    *restores = false;
    json_array_foreach(all, k, callback) {
        if (*path_p || code != PL_OK || !(state = model_checkpoint_state(callback)))
            continue;
        const char *name = best_name(state);
        char *path = name ? pl_text("%s/" PL_CHECKPOINTS_FOLDER "/%s", run_dir, name)
                          : NULL;
        if (name && !path)
            code = pl_no_memory(err);
        if (path && access(path, F_OK) == 0) {
            *path_p = path;
            *restores = json_is_true(json_object_get(state, "restore_best"));
        } else {
            pl_free(path);
        }
        json_decref(state);
    }
    json_decref(all);
    return code;
}

/* The two files may be one on the disk: neither is changed in place. */
static int file_replace(const char *run_dir, const char *checkpoint,
                        const pl_weights_t *weights, pl_error_t *err)
{
    char *from = pl_text("%s/" PL_CHECKPOINT_MODEL, checkpoint),
         *to = pl_text("%s/" PL_WEIGHTS_FILE, run_dir),
         *link_path = pl_text("%s/." PL_WEIGHTS_FILE ".best", run_dir);
    int code = from && to && link_path ? PL_OK : pl_no_memory(err);
    if (code == PL_OK) {
        unlink(link_path);
        if (link(from, link_path) != 0 || rename(link_path, to) != 0)
            code = pl_weights_write(to, weights, weights->global_step, err);
        unlink(link_path);                       /* which stays if both were one before */
    }
    pl_text_free(from);
    pl_text_free(to);
    pl_text_free(link_path);
    return code;
}

int pl_run_weights_restore(const char *run_dir, const char *checkpoint,
                           const pl_weights_t *weights, char **metrics_p, pl_error_t *err)
{
    const char *given = *metrics_p;
    json_t *manifest = pl_checkpoint_manifest(checkpoint, err), *value;
    json_t *metrics = manifest ? pl_json_value(given, strlen(given), err) : NULL;
    const char *name;
    int failed = 0, code = metrics ? PL_OK : err->code;
    json_object_foreach(json_object_get(manifest, "metrics"), name, value)
        if (metrics && (!strncmp(name, "val_", 4) || !strncmp(name, "train_", 6)))
            failed |= json_object_set(metrics, name, value);
    char *text = metrics && !failed ? pl_json_write(metrics, PL_JSON_COMPACT) : NULL;
    char *copy = text ? pl_strdup(text) : NULL;
    if (code == PL_OK && !copy)
        code = pl_no_memory(err);
    if (code == PL_OK)
        code = file_replace(run_dir, checkpoint, weights, err);
    if (code == PL_OK) {
        pl_free(*metrics_p);
        *metrics_p = copy;
    } else {
        pl_free(copy);
    }
    pl_text_free(text);
    json_decref(metrics);
    json_decref(manifest);
    return code;
}

char *pl_run_describe(const char *run_dir, pl_error_t *err)
{
    pl_error_t local;
    choices_t all;
    if (!err)
        err = &local;
    if (pl_require(run_dir, "a run directory", err) != PL_OK)
        return NULL;
    char *whole = pl_run_path(run_dir);
    const int code = whole ? choices_list(&all, whole, err) : pl_no_memory(err);
    pl_text_free(whole);
    if (code != PL_OK)
        return NULL;
    const int newest = all.count > 1 && all.at[0].monitor;
    json_t *object = json_pack("{s:s, s:s, s:s*, s:s}", "path", all.at[0].path, "which",
                               all.at[0].which, "monitor", all.at[0].monitor, "newest",
                               all.at[newest].path);
    char *text = object ? pl_json_write(object, PL_JSON_COMPACT) : NULL;
    if (!text)
        pl_no_memory(err);
    json_decref(object);
    choices_release(&all);
    return text;
}

pl_weights_t *pl_weights_read(const char *path, pl_error_t *err)
{
    struct stat what;
    pl_weights_t *weights = NULL;
    char *whole = pl_run_path(path),
         *manifest = whole ? pl_text("%s/" PL_CHECKPOINT_MANIFEST, whole) : NULL;
    if (!manifest) {
        pl_no_memory(err);
    } else if (stat(whole, &what) != 0 || !S_ISDIR(what.st_mode)) {
        weights = weights_of_file(whole, err);
    } else if (access(manifest, F_OK) == 0) {
        weights = pl_checkpoint_weights(whole, false, err);
    } else {                 /* damaged weights are skipped as long as there are others */
        choices_t all;
        pl_error_t first = {0}, why;
        int code = choices_list(&all, whole, err);
        for (int k = 0; code == PL_OK && k < all.count && !weights; k++) {
            weights = all.at[k].is_file
                          ? weights_of_file(all.at[k].path, &why)
                          : pl_checkpoint_weights(all.at[k].path, false, &why);
            if (!weights && first.code == PL_OK)
                first = why;
        }
        if (!weights && code == PL_OK)
            pl_fail(err, first.code, "%s", first.text);
        if (code == PL_OK)
            choices_release(&all);
    }
    pl_text_free(manifest);
    pl_text_free(whole);
    return weights;
}
