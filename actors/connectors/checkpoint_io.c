/* checkpoint_io.c - writes, finds and removes checkpoints, on a thread of its own
 *
 * Training continues during a write, because the weights were copied before.  Older
 * checkpoints are removed only after the new one was read back.  Finding changes
 * nothing. */
#include "actors/connectors/checkpoint_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/connectors/weights.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/log.h"
#include "formats/checkpoint.h"
#include "runtime/payload.h"

typedef struct io {
    bool cleaned;                             /* from temporary files of killed writers */
} io_t;

/* ---- writing ---- */

static int file_write(const pl_checkpoint_t *checkpoint, const pl_weights_t *weights,
                      pl_weights_part_t part, json_t *manifest, pl_error_t *err)
{
    const char *name = part == PL_WEIGHTS_MODULE ? PL_CHECKPOINT_MODEL
                                                 : PL_CHECKPOINT_OPTIMIZER;
    const json_int_t step = json_integer_value(json_object_get(manifest, "global_step"));
    pl_checksums_t sums = {0};
    char *path = pl_checkpoint_file(checkpoint, name, err);
    int code = path ? pl_weights_write_part(path, weights, part, (uint64_t)step, &sums,
                                            err)
                    : PL_ENOMEM;
    if (code == PL_OK)
        code = pl_checkpoint_add_file(manifest, name, &sums, err);
    pl_checksums_release(&sums);
    pl_free(path);
    return code;
}

/* A checkpoint under a second name has the files of the first. */
static int file_link(const pl_checkpoint_t *checkpoint, const char *from,
                     const char *name, pl_error_t *err)
{
    char *there = pl_text("%s/%s", from, name);
    char *here = pl_checkpoint_file(checkpoint, name, err);
    int code = there && here ? PL_OK : pl_no_memory(err);
    if (code == PL_OK && link(there, here) != 0)
        code = pl_fail(err, PL_EIO, "%s: cannot be linked to %s: %m", there, here);
    pl_free(there);
    pl_free(here);
    return code;
}

/* The caller finishes it or rolls it back. */
static int one_write(pl_checkpoint_t *checkpoint, const char *path, const char *same_as,
                     const pl_weights_t *weights, json_t *manifest, pl_error_t *err)
{
    int code = pl_checkpoint_begin(checkpoint, path, err);
    if (code != PL_OK)
        return code;
    if (same_as) {
        code = file_link(checkpoint, same_as, PL_CHECKPOINT_MODEL, err);
        if (code == PL_OK)
            code = file_link(checkpoint, same_as, PL_CHECKPOINT_OPTIMIZER, err);
    } else {
        code = file_write(checkpoint, weights, PL_WEIGHTS_MODULE, manifest, err);
        if (code == PL_OK)
            code = file_write(checkpoint, weights, PL_WEIGHTS_OPTIMIZER, manifest, err);
    }
    if (code == PL_OK)
        return pl_checkpoint_commit(checkpoint, manifest, err);
    pl_checkpoint_abandon(checkpoint);
    return code;
}

/* "FOLDER/NAME" for the first name of a list, one a line; the list then begins with the
 * next name.  NULL at its end, or with an error: PL_EFORMAT for a path outside FOLDER. */
static char *path_next(const char *folder, const char **names, pl_error_t *err)
{
    size_t length = strcspn(*names, "\n");
    if (!length)
        return NULL;
    if (**names == '.' || memchr(*names, '/', length)) {
        pl_fail(err, PL_EFORMAT, "%s: \"%.*s\" cannot be the name of a checkpoint",
                folder, (int)length, *names);
        return NULL;
    }
    char *path = pl_text("%s/%.*s", folder, (int)length, *names);
    *names += length + ((*names)[length] == '\n');
    if (!path)
        pl_no_memory(err);
    return path;
}

/* The checkpoints of one call, in the order of their names. */
typedef struct written {
    pl_checkpoint_t *at;
    int count, capacity;
} written_t;

/* A checkpoint that cannot be removed only takes space; false: there is one. */
static bool older_remove(void *self, const char *folder, const char *names)
{
    char *path;
    pl_error_t err = {0}, one;
    while ((path = path_next(folder, &names, &err))) {
        if (pl_checkpoint_remove(path, &one) != PL_OK)
            err = one;
        pl_free(path);
    }
    if (err.code)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(self), pl_actor_name(self),
                    "older checkpoints could not be removed: %s", err.text);
    return !err.code;
}

/* The new checkpoint is read back before a checkpoint that it replaces is removed. */
static int io_on_write(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    const pl_write_checkpoint_t *wanted = &body->write_checkpoint;
    io_t *io = self;
    written_t all = {0};
    bool replaces = *wanted->drop;
    if (!io->cleaned)
        pl_checkpoint_clean(wanted->folder);
    io->cleaned = true;
    const char *names = wanted->names, *text = wanted->manifest;
    pl_error_t failure = {0};
    json_t *manifest = pl_json_read(text, strlen(text), "manifest", err);
    int code = manifest ? PL_OK : err->code;
    char *path;
    while (code == PL_OK && (path = path_next(wanted->folder, &names, &failure))) {
        if (PL_GROW(all.at, all.count, all.capacity) != PL_OK)
            code = pl_no_memory(err);
        else
            code = one_write(&all.at[all.count], path, all.count ? all.at[0].path : NULL,
                             (const pl_weights_t *)wanted->weights, manifest, err);
        all.count += code == PL_OK;
        pl_free(path);
    }
    json_decref(manifest);
    if (code == PL_OK && failure.code)
        code = pl_fail(err, failure.code, "%s", failure.text);
    for (int k = 0; k < all.count; k++)
        replaces |= all.at[k].replaced;
    if (code == PL_OK && replaces)
        code = pl_checkpoint_verify(all.at[0].path, err);
    if (code == PL_OK)
        pl_progress_write_checkpoint(call, &(pl_write_checkpoint_progress_t){
                                               .path = all.at[0].path});
    for (int k = 0; k < all.count; k++)
        (code == PL_OK ? pl_checkpoint_finish : pl_checkpoint_rollback)(&all.at[k]);
    pl_free(all.at);
    if (code != PL_OK)
        return code;
    const bool gone = older_remove(self, wanted->folder, wanted->drop);
    return pl_reply_write_checkpoint(call, &(pl_write_checkpoint_reply_t){
                                               .removed = gone ? wanted->drop : ""});
}

/* ---- finishing the save of a killed run ---- */

/* Makes the checkpoint's other names, if it is the newest, and removes what it replaces.
 * Afterwards the files agree with the state of the callbacks in the checkpoint. */
static int io_on_finish(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    const pl_finish_checkpoint_t *wanted = &body->finish_checkpoint;
    char *folder = pl_text("%s/" PL_CHECKPOINTS_FOLDER, wanted->run_dir);
    json_t *manifest = folder ? pl_checkpoint_manifest(wanted->path, err) : NULL;
    pl_candidates_t all;
    int code = manifest ? PL_OK : folder ? err->code : pl_no_memory(err);
    bool is_newest = false;
    if (code == PL_OK && pl_candidates_list(&all, wanted->run_dir, err) == PL_OK) {
        is_newest = true;
        for (int k = 0; k < all.count && is_newest; k++)
            is_newest = !all.at[k].manifest
                        || all.at[k].serial <= pl_json_integer_of(manifest, "serial");
        pl_candidates_release(&all);
    }
    if (is_newest) {
        const json_int_t serial = pl_json_integer_of(manifest, "serial");
        const char *names = pl_json_text_of(manifest, "names");
        pl_checkpoint_t other;
        char *path;
        while (code == PL_OK && (path = path_next(folder, &names, err))) {
            json_t *there = pl_checkpoint_manifest(path, NULL);
            const bool is_same = there && pl_json_integer_of(there, "serial") == serial;
            json_decref(there);
            if (!is_same)
                code = one_write(&other, path, wanted->path, NULL, manifest, err);
            if (!is_same && code == PL_OK)
                pl_checkpoint_finish(&other);
            pl_free(path);
        }
        if (code == PL_OK)
            code = err->code;
        if (code == PL_OK)
            older_remove(self, folder, pl_json_text_of(manifest, "drop"));
    }
    json_decref(manifest);
    pl_free(folder);
    if (code == PL_OK && err->code)
        code = err->code;
    return code == PL_OK
               ? pl_reply_finish_checkpoint(call, &(pl_finish_checkpoint_reply_t){0})
               : code;
}

/* ---- finding ---- */

static int io_on_find(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    const pl_find_checkpoint_t *wanted = &body->find_checkpoint;
    const char *from = *wanted->from ? wanted->from : NULL;
    pl_found_t found = {0};
    (void)self;
    int code = PL_OK;
    if (*wanted->first)
        code = pl_checkpoint_find_first(wanted->first, &found, err);
    if (code == PL_OK && !found.path && !wanted->only_first) {
        pl_found_release(&found);
        code =
            wanted->rollback_serial
                ? pl_checkpoint_find_rollback(from, wanted->rollback_serial, &found, err)
                : pl_checkpoint_find(wanted->root, wanted->run_name, from, &found, err);
    }
    if (code != PL_OK) {
        pl_found_release(&found);
        return code;
    }
    code = pl_reply_find_checkpoint(
        call,
        &(pl_find_checkpoint_reply_t){.path = found.path ? found.path : "",
                                      .run_dir = found.run_dir ? found.run_dir : "",
                                      .manifest = found.manifest ? found.manifest : "",
                                      .rejected = found.rejected ? found.rejected : "",
                                      .weights = found.weights ? &found.weights->object
                                                               : NULL});
    pl_found_release(&found);
    return code;
}

static const pl_handler_t io_handlers[] = {
    PL_ON(write_checkpoint, io_on_write),
    PL_ON(find_checkpoint, io_on_find),
    PL_ON(finish_checkpoint, io_on_finish),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_io_checkpoint = {
    .name = "io.checkpoint",
    .help = "writes, finds and removes checkpoints",
    .size = sizeof(io_t),
    .level = PL_LEVEL_IO,
    .handlers = io_handlers,
};
