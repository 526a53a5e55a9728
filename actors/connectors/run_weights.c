/* run_weights.c - which weights a run directory stands for */
#include "actors/connectors/run_weights.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/connectors/checkpoint_io.h"
#include "actors/connectors/writer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"

static int choice_add(pl_run_weights_t *all, const char *path, const char *which,
                      pl_error_t *err)
{
    char *copy = pl_strdup(path);
    if (!copy || PL_GROW(all->at, all->count, all->capacity) != PL_OK) {
        pl_free(copy);
        return pl_no_memory(err);
    }
    all->at[all->count++] = (pl_run_choice_t){.path = copy, .which = which};
    return PL_OK;
}

/* ---- the best ---- */

/* What a callback kept of itself, if it is a model_checkpoint with a monitor. */
static json_t *keeper_state(const json_t *callback)
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

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *best_name(const json_t *state)
{
    const json_t *best = json_array_get(json_object_get(state, "kept"), 0);
    return json_string_value(json_object_get(best, "name"));
}

static int best_add(pl_run_weights_t *all, const pl_candidates_t *found,
                    const json_t *state, pl_error_t *err)
{
    const char *name = best_name(state);
    int code = PL_OK;
    for (int k = 0; name && k < found->count && code == PL_OK; k++)
        if (found->at[k].manifest && !strcmp(last_name(found->at[k].path), name))
            code = choice_add(all, found->at[k].path, "best", err);
    if (code != PL_OK || !all->count)
        return code;
    all->at[0].monitor = pl_strdup(json_string_value(json_object_get(state, "monitor")));
    return all->at[0].monitor ? PL_OK : pl_no_memory(err);
}

/* The newest manifest knows; of several such callbacks the first counts. */
static int add_best(pl_run_weights_t *all, const pl_candidates_t *found, int newest,
                    pl_error_t *err)
{
    const json_t *manifest = newest < found->count ? found->at[newest].manifest : NULL;
    json_t *callback, *state;
    size_t k;
    int code = PL_OK;
    json_array_foreach(json_object_get(manifest, "callbacks"), k, callback) {
        if (all->count || code != PL_OK || !(state = keeper_state(callback)))
            continue;
        code = best_add(all, found, state, err);
        json_decref(state);
    }
    return code;
}

static int path_of_best(const char *run_dir, const json_t *state, char **path_p)
{
    const char *name = best_name(state);
    char *path = name ? pl_text("%s/" PL_CHECKPOINTS_FOLDER "/%s", run_dir, name) : NULL;
    if (path && access(path, F_OK) == 0)
        *path_p = path;
    else
        pl_free(path);
    return name && !path ? PL_ENOMEM : PL_OK;
}

int pl_run_weights_best(const char *run_dir, const char *callbacks, char **path_p,
                        pl_error_t *err)
{
    json_t *all = pl_json_value(callbacks, strlen(callbacks), NULL), *callback, *state;
    size_t k;
    int code = all ? PL_OK : PL_ENOMEM;
    *path_p = NULL;
    json_array_foreach(all, k, callback) {
        if (*path_p || code != PL_OK || !(state = keeper_state(callback)))
            continue;
        code = path_of_best(run_dir, state, path_p);
        json_decref(state);
    }
    json_decref(all);
    return code == PL_OK ? PL_OK : pl_no_memory(err);
}

/* ---- the newest ---- */

/* Files of before say no step: they count as what the run ended with. */
static json_int_t step_of_file(const char *path)
{
    pl_safetensors_t file;
    if (pl_safetensors_open(path, &file, NULL) != PL_OK)
        return -1;
    const char *text = pl_safetensors_metadata(&file, "global_step");
    json_int_t step = text ? strtoll(text, NULL, 10) : INT64_MAX;
    pl_safetensors_close(&file);
    return step;
}

static int add_final(pl_run_weights_t *all, const char *path, pl_error_t *err)
{
    int code = choice_add(all, path, "final", err);
    if (code == PL_OK)
        all->at[all->count - 1].is_file = true;
    return code;
}

/* What the run ended with goes before the checkpoints that are no newer: it may be more
 * than the last of them has. */
static int add_newest(pl_run_weights_t *all, const pl_candidates_t *found,
                      const char *final, pl_error_t *err)
{
    const json_int_t last = access(final, F_OK) == 0 ? step_of_file(final) : -2;
    bool added = last == -2;
    int code = PL_OK;
    for (int k = 0; k < found->count && code == PL_OK; k++) {
        const json_t *step = json_object_get(found->at[k].manifest, "global_step");
        if (!found->at[k].manifest)
            continue;
        if (!added && json_integer_value(step) <= last) {
            added = true;
            code = add_final(all, final, err);
        }
        if (code == PL_OK)
            code = choice_add(all, found->at[k].path, "newest", err);
    }
    return code == PL_OK && !added ? add_final(all, final, err) : code;
}

/* ---- all ---- */

static int refuse(const pl_candidates_t *found, const char *run_dir, pl_error_t *err)
{
    if (found->count)
        return pl_fail(err, PL_EFORMAT, "%s", found->at[0].why.text);
    return pl_fail(err, PL_ENOTFOUND,
                   "%s: there are no weights (" PL_WEIGHTS_FILE ") and no checkpoints in "
                   "this directory",
                   run_dir);
}

int pl_run_weights_list(const char *run_dir, pl_run_weights_t *all, pl_error_t *err)
{
    pl_candidates_t found;
    int newest = 0, code = pl_candidates_list(&found, run_dir, err);
    *all = (pl_run_weights_t){0};
    if (code != PL_OK)
        return code;
    char *final = pl_text("%s/" PL_WEIGHTS_FILE, run_dir);
    while (newest < found.count && !found.at[newest].manifest)
        newest++;
    code = final ? add_best(all, &found, newest, err) : pl_no_memory(err);
    if (code == PL_OK)
        code = add_newest(all, &found, final, err);
    if (code == PL_OK && !all->count)
        code = refuse(&found, run_dir, err);
    if (code != PL_OK)
        pl_run_weights_release(all);
    pl_candidates_release(&found);
    pl_free(final);
    return code;
}

void pl_run_weights_release(pl_run_weights_t *all)
{
    for (int k = 0; k < all->count; k++) {
        pl_free(all->at[k].path);
        pl_free(all->at[k].monitor);
    }
    pl_free(all->at);
    *all = (pl_run_weights_t){0};
}

char *pl_run_describe(const char *run_dir, pl_error_t *err)
{
    pl_error_t local;
    pl_run_weights_t all;
    if (!err)
        err = &local;
    if (pl_require(run_dir, "a run directory", err) != PL_OK)
        return NULL;
    char *whole = pl_run_path(run_dir);
    const int code = whole ? pl_run_weights_list(whole, &all, err) : pl_no_memory(err);
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
    pl_run_weights_release(&all);
    return text;
}
