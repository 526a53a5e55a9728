/* checkpoint_find.c - finds and reads the newest valid checkpoint
 *
 * The newest checkpoint is the one saved last, by the serial number in its manifest, not
 * by a clock. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/connectors/checkpoint_io.h"
#include "actors/connectors/weights.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"
#include "runtime/payload.h"

/* ---- tensors ---- */

enum { HOLES_MAX = 1 << 16 };                    /* elements of a block between tensors */

static size_t aligned(size_t elements)
{
    return (elements + PL_REGION_ALIGN - 1) / PL_REGION_ALIGN * PL_REGION_ALIGN;
}

/* A float32 tensor borrows its place in the block, behind `end`; tensors_take() moves the
 * data there.  Other tensors are converted, so copied, and so are those that do not fit
 * into the block. */
static int tensor_take(pl_weights_t *weights, const pl_safetensors_t *file,
                       const pl_safetensors_tensor_t *tensor, pl_floats_t *block,
                       size_t *end, pl_error_t *err)
{
    const size_t from = tensor->offset / sizeof(float),
                 count = tensor->size / sizeof(float),
                 at = aligned(*end > from ? *end : from);
    int slot = -1, after = 0;
    bool of_slot = sscanf(tensor->name, "slot%d/%n", &slot, &after) == 1 && after;
    const char *name = of_slot ? tensor->name + after : tensor->name;
    if (!tensor->loadable || !pl_is_float(tensor->dtype)
        || (of_slot && (slot < 0 || slot > PL_REGION_MASTER - PL_REGION_SLOT0))
        || strlen(name) >= sizeof weights->tensor->name)
        return pl_fail(err, PL_EFORMAT,
                       "%s: tensor \"%.80s\" does not belong into a checkpoint",
                       file->name, tensor->name);
    pl_region_t region = of_slot ? PL_REGION_SLOT0 + slot : PL_REGION_PARAMS;
    if (tensor->dtype != PL_F32 || tensor->offset % sizeof(float)
        || aligned(at + count) > block->count) {
        if (pl_weights_add(weights, name, tensor->shape, tensor->dtype, NULL, err)
            != PL_OK)
            return err->code;
        pl_output_t *to = &weights->tensor[weights->count - 1];
        to->region = region;
        return pl_safetensors_load(file, tensor, to->data, err);
    }
    if (!weights->block[region])
        weights->block[region] = pl_object_ref(block);
    *end = at + count;
    return pl_weights_borrow(weights, region, name, tensor->shape, (int64_t)at, err);
}

/* A file has no holes between tensors, a region has.  The last tensor is moved first: its
 * old place has space for the one before it. */
static int tensors_take(pl_weights_t *weights, const pl_safetensors_t *file,
                        pl_floats_t *block, pl_error_t *err)
{
    int code = PL_OK;
    size_t end = 0;
    for (int k = 0; k < file->count && code == PL_OK; k++)
        code = tensor_take(weights, file, &file->tensor[k], block, &end, err);
    if (code != PL_OK)
        return code;
    const pl_output_t *taken = weights->tensor + weights->count - file->count;
    for (int k = file->count - 1; k >= 0; k--) {
        const size_t count = file->tensor[k].size / sizeof(float);
        const uint8_t *from = file->memory + file->tensor[k].offset;
        if (!taken[k].borrowed)
            continue;
        if (from != (const uint8_t *)taken[k].data)
            memmove(taken[k].data, from, count * sizeof(float));
        memset(taken[k].data + count, 0, (aligned(count) - count) * sizeof(float));
    }
    return PL_OK;
}

/* Tensors borrow their data from the block into which the file is read. */
static int file_take(pl_weights_t *weights, const char *path, const json_t *manifest,
                     const char *name, pl_error_t *err)
{
    size_t size = 0;
    pl_safetensors_t file;
    int code = pl_checkpoint_measure(path, manifest, name, &size, err);
    if (code != PL_OK)
        return code;
    char *whole = pl_text("%s/%s", path, name);
    /* The hole behind a tensor has at most 60 bytes, less than twice the size of the
     * tensor's entry in the file. */
    const size_t holes = size / 2 < HOLES_MAX ? size / 2 : HOLES_MAX;
    pl_floats_t *block = whole ? pl_floats_new(PL_F32, size / sizeof(float) + holes, err)
                               : NULL;
    code = block ? pl_checkpoint_read(path, manifest, name, block->data, err)
                 : pl_fail(err, PL_ENOMEM, "%s/%s: not enough memory for its %zu bytes",
                           path, name, size);
    if (code == PL_OK)
        code = pl_safetensors_read(block->data, size, whole, &file, err);
    if (code == PL_OK) {
        code = pl_weights_read_metadata(weights, &file, err);
        if (code == PL_OK)
            code = tensors_take(weights, &file, block, err);
        pl_safetensors_close(&file);
    }
    pl_object_unref(block);
    pl_free(whole);
    return code;
}

static pl_weights_t *weights_take(const char *path, const json_t *manifest, bool whole,
                                  pl_error_t *err)
{
    pl_weights_t *weights = pl_weights_new(err);
    int code = weights ? file_take(weights, path, manifest, PL_CHECKPOINT_MODEL, err)
                       : PL_ENOMEM;
    if (code == PL_OK && whole)
        code = file_take(weights, path, manifest, PL_CHECKPOINT_OPTIMIZER, err);
    const json_t *state = json_object_get(manifest, "strategy");
    if (code == PL_OK && whole && state && !json_is_null(state)) {
        weights->state = pl_json_write(state, PL_JSON_COMPACT);
        code = weights->state ? PL_OK : pl_no_memory(err);
    }
    if (code == PL_OK) {
        weights->global_step = (uint64_t)pl_json_integer_of(manifest, "global_step");
        weights->epoch = (uint32_t)pl_json_integer_of(manifest, "epoch");
        return weights;
    }
    pl_object_unref(weights);
    return NULL;
}

pl_weights_t *pl_checkpoint_weights(const char *path, bool whole, pl_error_t *err)
{
    json_t *manifest = pl_checkpoint_manifest(path, err);
    pl_weights_t *weights = manifest ? weights_take(path, manifest, whole, err) : NULL;
    json_decref(manifest);
    return weights;
}

/* ---- candidates ---- */

static int newer_first(const void *a, const void *b)
{
    const pl_candidate_t *x = a, *y = b;
    if (x->serial != y->serial)
        return x->serial < y->serial ? 1 : -1;
    return strcmp(x->path, y->path);
}

void pl_candidates_release(pl_candidates_t *all)
{
    for (int k = 0; k < all->count; k++) {
        pl_free(all->at[k].path);
        json_decref(all->at[k].manifest);
    }
    pl_free(all->at);
    *all = (pl_candidates_t){0};
}

int pl_candidates_list(pl_candidates_t *all, const char *run_dir, pl_error_t *err)
{
    *all = (pl_candidates_t){0};
    char *folder = pl_text("%s/" PL_CHECKPOINTS_FOLDER, run_dir);
    DIR *entries = folder ? opendir(folder) : NULL;
    int code = folder ? PL_OK : pl_no_memory(err);
    for (const struct dirent *entry;
         code == PL_OK && entries && (entry = readdir(entries));) {
        if (entry->d_name[0] == '.')
            continue;
        pl_candidate_t one = {.path = pl_text("%s/%s", folder, entry->d_name)};
        if (!one.path || PL_GROW(all->at, all->count, all->capacity) != PL_OK) {
            pl_free(one.path);
            code = pl_no_memory(err);
            break;
        }
        one.manifest = pl_checkpoint_manifest(one.path, &one.why);
        one.serial = one.manifest ? pl_json_integer_of(one.manifest, "serial")
                                  : INT64_MAX;         /* so that its error is reported */
        all->at[all->count++] = one;
    }
    if (entries)
        closedir(entries);
    if (all->count)
        qsort(all->at, (size_t)all->count, sizeof *all->at, newer_first);
    if (code != PL_OK)
        pl_candidates_release(all);
    pl_free(folder);
    return code;
}

/* ---- taking one ---- */

static int checkpoint_skip(pl_found_t *found, const char *why, pl_error_t *err)
{
    char *longer = pl_text("%s%s%s", found->rejected ? found->rejected : "",
                           found->rejected ? "\n" : "", why);
    if (!longer)
        return pl_no_memory(err);
    pl_free(found->rejected);
    found->rejected = longer;
    return PL_OK;
}

/* The rejected ones in one line, for an error. */
static const char *refused_text(const pl_found_t *found, char refused[PL_ERROR_TEXT])
{
    *refused = '\0';
    for (const char *line = found->rejected; line && *line;) {
        const size_t length = strcspn(line, "\n"), at = strlen(refused);
        snprintf(refused + at, PL_ERROR_TEXT - at, "; %s%.*s",
                 at ? "" : "refused: ", (int)length, line);
        line += length + (line[length] == '\n');
    }
    return refused;
}

static int none_fail(const pl_found_t *found, const char *run_dir, const char *where,
                     pl_error_t *err)
{
    char refused[PL_ERROR_TEXT];
    return pl_fail(err, PL_ENOTFOUND, "%s: there is no checkpoint to %s%s", run_dir,
                   where, refused_text(found, refused));
}

/* PL_OK also when it is rejected. */
static int candidate_take(pl_found_t *found, const pl_candidate_t *one, pl_error_t *err)
{
    pl_error_t why = one->why;
    if (one->manifest)
        found->weights = weights_take(one->path, one->manifest, true, &why);
    if (!found->weights)
        return why.code == PL_ENOMEM ? pl_fail(err, PL_ENOMEM, "%s", why.text)
                                     : checkpoint_skip(found, why.text, err);
    found->path = pl_strdup(one->path);
    found->manifest = pl_json_write(one->manifest, PL_JSON_COMPACT);
    return found->path && found->manifest ? PL_OK : pl_no_memory(err);
}

static int newest_take(pl_found_t *found, const char *run_dir, pl_error_t *err)
{
    pl_candidates_t all;
    int code = pl_candidates_list(&all, run_dir, err);
    if (code != PL_OK)
        return code;
    for (int k = 0; k < all.count && !found->path && code == PL_OK; k++)
        code = candidate_take(found, &all.at[k], err);
    pl_candidates_release(&all);
    return code;
}

int pl_checkpoint_find_rollback(const char *run_dir, uint64_t serial, pl_found_t *found,
                                pl_error_t *err)
{
    pl_candidates_t all;
    *found = (pl_found_t){.run_dir = pl_strdup(run_dir)};
    int code = found->run_dir ? pl_candidates_list(&all, run_dir, err)
                              : pl_no_memory(err);
    if (code != PL_OK)
        return code;
    for (int aside = 0; aside < 2; aside++)
        for (int k = 0; k < all.count && !found->path && code == PL_OK; k++) {
            const pl_candidate_t *one = &all.at[k];
            const bool is_later = one->manifest && one->serial > (json_int_t)serial,
                       is_aside = json_is_true(json_object_get(one->manifest, "aside"));
            if (!is_later && is_aside == aside)
                code = candidate_take(found, one, err);
        }
    pl_candidates_release(&all);
    if (code == PL_OK && !found->path)
        code = none_fail(found, run_dir, "return to", err);
    return code;
}

static bool is_there(const char *folder, const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length < (int)sizeof path && access(path, F_OK) == 0;
}

/* RUN_DIR of RUN_DIR/checkpoints/NAME; NULL: the checkpoint is in no run directory. */
static char *run_dir_of(const char *checkpoint)
{
    char whole[PATH_MAX];
    char *slash = realpath(checkpoint, whole) ? strrchr(whole, '/') : NULL;
    if (!slash)
        return NULL;
    *slash = '\0';
    slash = strrchr(whole, '/');
    if (!slash || strcmp(slash + 1, PL_CHECKPOINTS_FOLDER))
        return NULL;
    *slash = '\0';
    return is_there(whole, "run.json") ? pl_strdup(whole) : NULL;
}

/* ---- the run ---- */

typedef struct run_folder {
    char *path;
    struct timespec begun;                             /* when its run file was written */
} run_folder_t;

typedef struct runs {
    run_folder_t *at;
    int count, capacity;
} runs_t;

static int begun_last_first(const void *a, const void *b)
{
    const run_folder_t *x = a, *y = b;
    if (x->begun.tv_sec != y->begun.tv_sec)
        return x->begun.tv_sec < y->begun.tv_sec ? 1 : -1;
    if (x->begun.tv_nsec != y->begun.tv_nsec)
        return x->begun.tv_nsec < y->begun.tv_nsec ? 1 : -1;
    return -strverscmp(x->path, y->path);
}

/* Skips a run without a valid checkpoint, which began after one that has some.  Only a
 * start that failed is skipped: if the newest run trained, no older run is resumed
 * instead.  A run that has made a step is `latest`; its log may have no record yet. */
static int run_skip(pl_found_t *found, const char *root, const char *run_dir,
                    pl_error_t *err)
{
    char refused[PL_ERROR_TEXT], steps[48] = "", piece[256];
    unsigned long long step = 0;                       /* of the last record of its log */
    char *name = pl_text("%s/metrics.jsonl", run_dir);
    FILE *log = name ? fopen(name, "re") : NULL;
    while (log && fgets(piece, sizeof piece, log))
        sscanf(piece, "{\"global_step\":%llu", &step);
    if (log)
        fclose(log);
    pl_free(name);
    char *latest = pl_text("%s/latest", root),
         *path = latest ? pl_run_path(latest) : NULL;
    const bool is_latest = path && !strcmp(path, run_dir);
    pl_text_free(path);
    pl_free(latest);
    if (!step && !is_latest) {
        char *why = pl_text("%s has no checkpoint to resume from", run_dir);
        int code = why ? checkpoint_skip(found, why, err) : pl_no_memory(err);
        pl_free(why);
        return code;
    }
    if (step)
        snprintf(steps, sizeof steps, " %llu step%s", step, step == 1 ? "" : "s");
    return pl_fail(err, PL_ENOTFOUND,
                   "%s trained%s but has no checkpoint: start it again, or name another "
                   "run with --resume%s",
                   run_dir, steps, refused_text(found, refused));
}

/* The newest checkpoint of the newest run that has one.  A run is a folder with a run
 * file; a link is a second name of another folder. */
static int last_take(pl_found_t *found, const char *root, pl_error_t *err)
{
    runs_t runs = {0};
    DIR *entries = opendir(root);
    int code = PL_OK, k = 0;
    for (const struct dirent *entry;
         code == PL_OK && entries && (entry = readdir(entries));)
        if (entry->d_name[0] != '.') {
            struct stat what = {0};
            char *path = pl_text("%s/%s", root, entry->d_name),
                 *file = pl_text("%s/%s/run.json", root, entry->d_name);
            const bool is_run = path && file && lstat(path, &what) == 0
                                && S_ISDIR(what.st_mode) && stat(file, &what) == 0;
            code = path && file ? PL_OK : pl_no_memory(err);
            if (is_run && PL_GROW(runs.at, runs.count, runs.capacity) != PL_OK)
                code = pl_no_memory(err);
            else if (is_run)
                runs.at[runs.count++] = (run_folder_t){path, what.st_mtim};
            if (!is_run || code != PL_OK)
                pl_free(path);
            pl_free(file);
        }
    if (entries)
        closedir(entries);
    if (runs.count)
        qsort(runs.at, (size_t)runs.count, sizeof *runs.at, begun_last_first);
    for (; k < runs.count && !found->path && code == PL_OK; k++)
        code = newest_take(found, runs.at[k].path, err);
    if (code == PL_OK
        && !(found->run_dir = pl_strdup(found->path ? runs.at[k - 1].path : root)))
        code = pl_no_memory(err);
    for (int i = 0; i < k - 1 && found->path && code == PL_OK; i++)
        code = run_skip(found, root, runs.at[i].path, err);
    for (int i = 0; i < runs.count; i++)
        pl_free(runs.at[i].path);
    pl_free(runs.at);
    return code;
}

int pl_checkpoint_find(const char *root, const char *run_name, const char *from,
                       pl_found_t *found, pl_error_t *err)
{
    struct stat what;
    pl_error_t why = {0};
    int code = PL_OK;
    *found = (pl_found_t){0};
    root = *root ? root : ".";
    if (from && stat(from, &what) != 0) {
        code = pl_fail(err, PL_ENOTFOUND, "no checkpoint or run is at %s: %m", from);
    } else if (from && is_there(from, PL_CHECKPOINT_MANIFEST)) {
        char *path = pl_strdup(from);
        json_t *manifest = path ? pl_checkpoint_manifest(from, &why) : NULL;
        found->weights = manifest ? weights_take(from, manifest, true, &why) : NULL;
        found->path = path;
        found->manifest = manifest ? pl_json_write(manifest, PL_JSON_COMPACT) : NULL;
        json_decref(manifest);
        if (!path || (found->weights && !found->manifest))
            code = pl_no_memory(err);
        else if (!found->weights)
            code = pl_fail(err, why.code, "%s", why.text);
        else
            found->run_dir = run_dir_of(from);
    } else if (!from && !*run_name) {
        code = last_take(found, root, err);
    } else {
        found->run_dir = from ? pl_strdup(from) : pl_text("%s/%s", root, run_name);
        code = found->run_dir ? newest_take(found, found->run_dir, err)
                              : pl_no_memory(err);
        if (code == PL_OK && !found->path && from)
            code = none_fail(found, from, "resume from", err);
    }
    if (code != PL_OK)
        pl_found_release(found);
    return code;
}

int pl_checkpoint_find_first(const char *run_dir, pl_found_t *found, pl_error_t *err)
{
    *found = (pl_found_t){.run_dir = pl_strdup(run_dir)};
    return found->run_dir ? newest_take(found, run_dir, err) : pl_no_memory(err);
}

void pl_found_release(pl_found_t *found)
{
    pl_free(found->path);
    pl_free(found->run_dir);
    pl_free(found->manifest);
    pl_free(found->rejected);
    pl_object_unref(found->weights);
    *found = (pl_found_t){0};
}
