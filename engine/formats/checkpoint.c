/* checkpoint.c - writes and removes checkpoints on disk */
#include "formats/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_text.h"
#include "formats/direct_io.h"

static atomic_uint folders;                      /* of this process: makes names differ */

static const char *const file_names[] = {PL_CHECKPOINT_MANIFEST, PL_CHECKPOINT_MODEL,
                                         PL_CHECKPOINT_OPTIMIZER, NULL};

/* ---- the folder ---- */

static int folder_sync(const char *path, pl_error_t *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed = fd < 0 || fsync(fd);
    int code = failed ? pl_fail(err, PL_EIO, "%s: cannot be synced to the disk: %m", path)
                      : PL_OK;
    pl_disk_progress_add();
    if (fd >= 0)
        close(fd);
    return code;
}

/* The folder of a path, "." without a slash; from pl_text(). */
static char *folder_around(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? pl_text("%.*s", (int)(slash - path), path) : pl_text(".");
}

static void checkpoint_release(pl_checkpoint_t *checkpoint)
{
    pl_free(checkpoint->path);
    pl_free(checkpoint->temporary);
    *checkpoint = (pl_checkpoint_t){0};
}

int pl_checkpoint_begin(pl_checkpoint_t *checkpoint, const char *path, pl_error_t *err)
{
    char *around = folder_around(path);
    const char *slash = strrchr(path, '/');
    *checkpoint = (pl_checkpoint_t){.path = pl_strdup(path)};
    if (around)
        checkpoint->temporary = pl_text("%s/.%s.%ld-%u.part", around,
                                        slash ? slash + 1 : path, (long)getpid(),
                                        atomic_fetch_add(&folders, 1));
    int code = checkpoint->path && checkpoint->temporary ? PL_OK : pl_no_memory(err);
    if (code == PL_OK && mkdir(around, 0777) != 0 && errno != EEXIST)
        code = pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO,
                       "%s: this directory cannot be created: %m", around);
    if (code == PL_OK && mkdir(checkpoint->temporary, 0777) != 0)
        code = pl_fail(err, PL_EIO, "%s: this directory cannot be created: %m", path);
    pl_free(around);
    if (code != PL_OK)
        checkpoint_release(checkpoint);
    return code;
}

char *pl_checkpoint_file(const pl_checkpoint_t *checkpoint, const char *name,
                         pl_error_t *err)
{
    char *path = pl_text("%s/%s", checkpoint->temporary, name);
    if (!path)
        pl_no_memory(err);
    return path;
}

/* ---- removing ---- */

static int file_remove(const char *folder, const char *name, pl_error_t *err)
{
    char *path = pl_text("%s/%s", folder, name);
    if (!path)
        return pl_no_memory(err);
    int code = unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR
                   ? PL_OK
                   : pl_fail(err, PL_EIO, "%s: cannot be removed: %m", path);
    pl_free(path);
    return code;
}

/* Whether an unfinished file or checkpoint has this name. */
static bool is_part(const char *name)
{
    size_t length = strlen(name);
    return name[0] == '.' && length > 5 && !strcmp(name + length - 5, ".part");
}

/* The folder is renamed first: after a kill its rest is not a checkpoint, and
 * pl_checkpoint_clean() removes it. */
int pl_checkpoint_remove(const char *path, pl_error_t *err)
{
    const char *slash = strrchr(path, '/');
    char *around = folder_around(path), *hidden = NULL;
    if (around)
        hidden = pl_text("%s/.%s.%ld-%u.part", around, slash ? slash + 1 : path,
                         (long)getpid(), atomic_fetch_add(&folders, 1));
    int code = hidden ? PL_OK : pl_no_memory(err);
    const char *folder = hidden && rename(path, hidden) == 0 ? hidden : path;
    for (int k = 0; file_names[k] && code == PL_OK; k++)
        code = file_remove(folder, file_names[k], err);
    DIR *entries = hidden ? opendir(folder) : NULL;
    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        if (is_part(entry->d_name))
            file_remove(folder, entry->d_name, NULL);
    if (entries)
        closedir(entries);
    if (code == PL_OK && rmdir(folder) != 0 && errno != ENOENT)
        code = pl_fail(err, PL_EIO, "%s: cannot be removed: %m", folder);
    pl_free(around);
    pl_free(hidden);
    return code;
}

void pl_checkpoint_clean(const char *folder)
{
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        char *path = is_part(entry->d_name) ? pl_text("%s/%s", folder, entry->d_name)
                                            : NULL;
        if (path)
            pl_checkpoint_remove(path, NULL);
        pl_free(path);
    }
    if (entries)
        closedir(entries);
}

void pl_checkpoint_abandon(pl_checkpoint_t *checkpoint)
{
    if (checkpoint->temporary)
        pl_checkpoint_remove(checkpoint->temporary, NULL);
    checkpoint_release(checkpoint);
}

/* ---- the manifest ---- */

int pl_checkpoint_add_file(json_t *manifest, const char *name, const pl_checksums_t *sums,
                           pl_error_t *err)
{
    char hex[9];
    json_t *files = json_object_get(manifest, "files"), *blocks = json_array();
    for (int k = 0; k < sums->count && blocks; k++) {
        snprintf(hex, sizeof hex, "%08x", sums->block[k]);
        if (json_array_append_new(blocks, json_string(hex)) != 0) {
            json_decref(blocks);
            blocks = NULL;
        }
    }
    if (!files && json_object_set_new(manifest, "files", json_object()) == 0)
        files = json_object_get(manifest, "files");
    json_t *entry = blocks
                        ? json_pack("{s:I, s:i, s:o}", "bytes", (json_int_t)sums->bytes,
                                    "block", PL_SUMS_BLOCK, "crc32c", blocks)
                        : NULL;
    if (files && json_object_set_new(files, name, entry) == 0)
        return PL_OK;
    if (!files)
        json_decref(entry);
    return pl_no_memory(err);
}

static int manifest_write(const pl_checkpoint_t *checkpoint, const json_t *manifest,
                          pl_error_t *err)
{
    pl_durable_t file;
    char *text = pl_json_write(manifest, PL_JSON_INDENTED), *whole = NULL, *path = NULL;
    char *brace = text ? strrchr(text, '}') : NULL;
    /* The last member is the checksum of all bytes before it. */
    while (brace && brace > text && (brace[-1] == '\n' || brace[-1] == ' '))
        brace--;
    if (brace) {
        *brace = '\0';
        whole = pl_text("%s,\n  \"crc32c\": \"%08x\"\n}\n", text,
                        pl_crc32c(0, text, (size_t)(brace - text)));
    }
    pl_text_free(text);
    if (whole)
        path = pl_checkpoint_file(checkpoint, PL_CHECKPOINT_MANIFEST, err);
    else
        pl_no_memory(err);
    int code = path ? pl_durable_open(&file, path, err) : PL_ENOMEM;
    if (code == PL_OK) {
        code = pl_durable_write(&file, whole, strlen(whole), err);
        if (code == PL_OK)
            code = pl_durable_commit(&file, err);
        else
            pl_durable_abandon(&file);
    }
    pl_text_free(whole);
    pl_free(path);
    return code;
}

/* ---- the end ---- */

static bool folders_exchange(const pl_checkpoint_t *checkpoint)
{
    return renameat2(AT_FDCWD, checkpoint->temporary, AT_FDCWD, checkpoint->path,
                     RENAME_EXCHANGE)
           == 0;
}

/* Renames the folder into place; an old checkpoint gets its temporary name. */
static int folder_place(pl_checkpoint_t *checkpoint, pl_error_t *err)
{
    if (rename(checkpoint->temporary, checkpoint->path) == 0)
        return PL_OK;
    const bool is_there = errno == ENOTEMPTY || errno == EEXIST;
    if (is_there)
        checkpoint->replaced = folders_exchange(checkpoint);
    return checkpoint->replaced
               ? PL_OK
               : pl_fail(err, PL_EIO, "%s: cannot be renamed into place: %m%s",
                         checkpoint->path,
                         is_there ? "; the old checkpoint is unchanged" : "");
}

int pl_checkpoint_commit(pl_checkpoint_t *checkpoint, json_t *manifest, pl_error_t *err)
{
    char *around = folder_around(checkpoint->path);
    int code = around ? manifest_write(checkpoint, manifest, err) : pl_no_memory(err);
    if (code == PL_OK)
        code = folder_sync(checkpoint->temporary, err);
    if (code == PL_OK)
        code = folder_place(checkpoint, err);
    const bool placed = code == PL_OK;
    if (placed)
        code = folder_sync(around, err);
    pl_free(around);
    if (placed && code != PL_OK)
        pl_checkpoint_rollback(checkpoint);
    else if (!placed)
        pl_checkpoint_abandon(checkpoint);
    return code;
}

void pl_checkpoint_finish(pl_checkpoint_t *checkpoint)
{
    if (checkpoint->replaced)
        pl_checkpoint_remove(checkpoint->temporary, NULL);
    checkpoint_release(checkpoint);
}

/* If the exchange fails both stay where they are: both are whole. */
void pl_checkpoint_rollback(pl_checkpoint_t *checkpoint)
{
    if (!checkpoint->replaced)
        pl_checkpoint_remove(checkpoint->path, NULL);
    else if (folders_exchange(checkpoint))
        pl_checkpoint_remove(checkpoint->temporary, NULL);
    checkpoint_release(checkpoint);
}
