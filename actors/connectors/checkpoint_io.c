/* checkpoint_io.c - writes, finds and removes checkpoints, on a thread of its own
 *
 * Training goes on meanwhile: what is written was copied before.  Older ones are removed
 * only once the new one was read back. */
#include "actors/connectors/checkpoint_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/connectors/writer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "formats/checkpoint.h"
#include "runtime/cargo.h"

typedef struct io {
    bool cleaned;                                           /* what others have left */
} io_t;

static int io_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    pl_actor_ready(self);
    return PL_OK;
}

/* ---- writing ---- */

static int file_write(const pl_checkpoint_t *checkpoint, const pl_weights_t *weights,
                      pl_weights_part_t part, json_t *manifest, pl_error_t *err)
{
    const char *name = part == PL_WEIGHTS_MODULE ? PL_CHECKPOINT_MODEL
                                                 : PL_CHECKPOINT_OPTIMIZER;
    const json_int_t step = json_integer_value(json_object_get(manifest, "global_step"));
    pl_sums_t sums = {0};
    char *path = pl_checkpoint_file(checkpoint, name, err);
    int code = path ? pl_weights_write_part(path, weights, part, (uint64_t)step, &sums,
                                            err)
                    : PL_ENOMEM;
    if (code == PL_OK)
        code = pl_checkpoint_note(manifest, name, &sums, err);
    pl_sums_release(&sums);
    pl_free(path);
    return code;
}

/* The first is written; what it holds is the same under other names. */
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

static int one_write(const char *path, const char *same_as, const pl_weights_t *weights,
                     json_t *manifest, pl_error_t *err)
{
    pl_checkpoint_t checkpoint;
    int code = pl_checkpoint_begin(&checkpoint, path, err);
    if (code != PL_OK)
        return code;
    if (same_as) {
        code = file_link(&checkpoint, same_as, PL_CHECKPOINT_MODEL, err);
        if (code == PL_OK)
            code = file_link(&checkpoint, same_as, PL_CHECKPOINT_OPTIMIZER, err);
    } else {
        code = file_write(&checkpoint, weights, PL_WEIGHTS_MODULE, manifest, err);
        if (code == PL_OK)
            code = file_write(&checkpoint, weights, PL_WEIGHTS_OPTIMIZER, manifest, err);
    }
    if (code == PL_OK)
        return pl_checkpoint_commit(&checkpoint, manifest, err);
    pl_checkpoint_abandon(&checkpoint);
    return code;
}

/* "FOLDER/NAME" of the first name of a list, one a line, which then begins with the
 * next; NULL at its end, or with an error. */
static char *path_next(const char *folder, const char **names, pl_error_t *err)
{
    size_t length = strcspn(*names, "\n");
    if (!length)
        return NULL;
    char *path = pl_text("%s/%.*s", folder, (int)length, *names);
    *names += length + ((*names)[length] == '\n');
    if (!path)
        pl_no_memory(err);
    return path;
}

static int all_write(const pl_write_checkpoint_t *wanted, char **first_p, pl_error_t *err)
{
    const char *names = wanted->names, *text = wanted->manifest;
    json_t *manifest = pl_json_read(text, strlen(text), "manifest", err);
    int code = manifest ? PL_OK : err->code;
    char *path;
    while (code == PL_OK && (path = path_next(wanted->folder, &names, err))) {
        code = one_write(path, *first_p, (const pl_weights_t *)wanted->weights, manifest,
                         err);
        if (code != PL_OK || *first_p)
            pl_free(path);
        else
            *first_p = path;
    }
    json_decref(manifest);
    return code;
}

/* What cannot be removed takes room, no more. */
static void older_remove(void *self, const pl_write_checkpoint_t *wanted,
                         const char *first)
{
    const char *names = wanted->drop;
    char *path;
    pl_error_t err = {0};
    if (!*names)
        return;
    if (pl_checkpoint_verify(first, &err) != PL_OK) {
        pl_log_line(PL_LOG_ERROR, pl_actor_rank(self), pl_actor_name(self),
                    "a checkpoint cannot be read back, so that older ones are kept: %s",
                    err.text);
        return;
    }
    while ((path = path_next(wanted->folder, &names, &err))) {
        if (pl_checkpoint_remove(path, &err) != PL_OK)
            pl_log_line(PL_LOG_WARNING, pl_actor_rank(self), pl_actor_name(self), "%s",
                        err.text);
        pl_free(path);
    }
}

static int io_on_write(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    const pl_write_checkpoint_t *wanted = &body->write_checkpoint;
    io_t *io = self;
    char *first = NULL;
    if (!io->cleaned)
        pl_checkpoint_clean(wanted->folder);
    io->cleaned = true;
    int code = all_write(wanted, &first, err);
    if (code == PL_OK) {
        pl_progress_write_checkpoint(call,
                                     &(pl_write_checkpoint_progress_t){.path = first});
        older_remove(self, wanted, first);
        code = pl_reply_write_checkpoint(call, &(pl_write_checkpoint_reply_t){0});
    }
    pl_free(first);
    return code;
}

/* ---- finding ---- */

static bool has_serial(const char *path, json_int_t serial)
{
    json_t *manifest = pl_checkpoint_manifest(path, NULL);
    bool same = manifest
                && json_integer_value(json_object_get(manifest, "serial")) == serial;
    json_decref(manifest);
    return same;
}

static int names_complete(const char *folder, const char *found, json_t *manifest,
                          pl_error_t *err)
{
    json_int_t serial = json_integer_value(json_object_get(manifest, "serial"));
    const char *names = json_string_value(json_object_get(manifest, "names"));
    int code = PL_OK;
    char *path;
    while (names && code == PL_OK && (path = path_next(folder, &names, err))) {
        if (!has_serial(path, serial))
            code = one_write(path, found, NULL, manifest, err);
        pl_free(path);
    }
    return code;
}

/* A run that was killed while it saved: what it had begun is done, so that the state that
 * the callbacks kept in it holds.  The checkpoint was just read and is whole. */
static int found_complete(const pl_found_t *found, pl_error_t *err)
{
    char *folder = pl_text("%s/" PL_CHECKPOINTS_FOLDER, found->run_dir), *path;
    json_t *manifest = pl_json_read(found->manifest, strlen(found->manifest), "manifest",
                                    err);
    int code = folder && manifest ? PL_OK : pl_no_memory(err);
    if (code == PL_OK)
        code = names_complete(folder, found->path, manifest, err);
    const char *drop = json_string_value(json_object_get(manifest, "drop"));
    while (drop && code == PL_OK && (path = path_next(folder, &drop, err))) {
        pl_checkpoint_remove(path, NULL);
        pl_free(path);
    }
    json_decref(manifest);
    pl_free(folder);
    return code;
}

static int io_on_find(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    const pl_find_checkpoint_t *wanted = &body->find_checkpoint;
    pl_found_t found;
    (void)self;
    int code = pl_checkpoint_find(wanted->root, wanted->run_name,
                                  *wanted->from ? wanted->from : NULL, &found, err);
    if (code == PL_OK && found.path && found.run_dir)
        code = found_complete(&found, err);
    if (code != PL_OK) {
        pl_found_release(&found);
        return code;
    }
    code = pl_reply_find_checkpoint(
        call,
        &(pl_find_checkpoint_reply_t){.path = found.path ? found.path : "",
                                      .run_dir = found.run_dir ? found.run_dir : "",
                                      .manifest = found.manifest ? found.manifest : "",
                                      .refused = found.refused ? found.refused : "",
                                      .weights = found.weights ? &found.weights->object
                                                               : NULL});
    pl_found_release(&found);
    return code;
}

static const pl_handler_t io_handlers[] = {
    PL_ON(start, io_on_start),
    PL_ON(write_checkpoint, io_on_write),
    PL_ON(find_checkpoint, io_on_find),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_io_checkpoint = {
    .name = "io.checkpoint",
    .help = "writes, finds and removes checkpoints",
    .size = sizeof(io_t),
    .level = PL_LEVEL_IO,
    .handlers = io_handlers,
};
