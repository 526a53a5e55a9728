/* checkpoint.c - a checkpoint on disk: written, and removed */
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

static atomic_uint folders;                /* begun by this process: makes names differ */

static const char *const file_names[] = {PL_CHECKPOINT_MANIFEST, PL_CHECKPOINT_MODEL,
                                         PL_CHECKPOINT_OPTIMIZER, NULL};

/* ---- the folder ---- */

static int folder_make(const char *path, pl_error_t *err)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return PL_OK;
    return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO,
                   "%s: this directory cannot be created: %m", path);
}

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

/* The folder around a path, "." for none; from pl_text(). */
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
    int code = checkpoint->path && checkpoint->temporary ? folder_make(around, err)
                                                         : pl_no_memory(err);
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

/* What a write that was cut short has left under another name. */
static bool is_part(const char *name)
{
    size_t length = strlen(name);
    return name[0] == '.' && length > 5 && !strcmp(name + length - 5, ".part");
}

static void parts_remove(const char *folder)
{
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        if (is_part(entry->d_name))
            file_remove(folder, entry->d_name, NULL);
    if (entries)
        closedir(entries);
}

static int folder_remove(const char *path, pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; file_names[k] && code == PL_OK; k++)
        code = file_remove(path, file_names[k], err);
    parts_remove(path);
    if (code == PL_OK && rmdir(path) != 0 && errno != ENOENT)
        code = pl_fail(err, PL_EIO, "%s: cannot be removed: %m", path);
    return code;
}

/* Under another name first: what is left of it after a kill is no checkpoint, and cleared
 * away with the next. */
int pl_checkpoint_remove(const char *path, pl_error_t *err)
{
    const char *slash = strrchr(path, '/');
    char *around = folder_around(path), *hidden = NULL;
    if (around)
        hidden = pl_text("%s/.%s.%ld-%u.part", around, slash ? slash + 1 : path,
                         (long)getpid(), atomic_fetch_add(&folders, 1));
    int code = hidden ? PL_OK : pl_no_memory(err);
    bool renamed = hidden && rename(path, hidden) == 0;
    if (code == PL_OK)
        code = folder_remove(renamed ? hidden : path, err);
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

static json_t *sums_list(const pl_checksums_t *sums)
{
    json_t *blocks = json_array();
    char hex[9];
    for (int k = 0; k < sums->count && blocks; k++) {
        snprintf(hex, sizeof hex, "%08x", sums->block[k]);
        if (json_array_append_new(blocks, json_string(hex)) != 0) {
            json_decref(blocks);
            blocks = NULL;
        }
    }
    return blocks;
}

int pl_checkpoint_add_file(json_t *manifest, const char *name, const pl_checksums_t *sums,
                           pl_error_t *err)
{
    json_t *files = json_object_get(manifest, "files"), *blocks = sums_list(sums);
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

/* {…} with a last member that is the checksum of all bytes before it. */
static char *manifest_text(const json_t *manifest, pl_error_t *err)
{
    char *text = pl_json_write(manifest, PL_JSON_INDENTED), *whole = NULL;
    char *brace = text ? strrchr(text, '}') : NULL;
    while (brace && brace > text && (brace[-1] == '\n' || brace[-1] == ' '))
        brace--;
    if (brace) {
        *brace = '\0';
        whole = pl_text("%s,\n  \"crc32c\": \"%08x\"\n}\n", text,
                        pl_crc32c(0, text, (size_t)(brace - text)));
    }
    pl_text_free(text);
    if (!whole)
        pl_no_memory(err);
    return whole;
}

static int manifest_write(const pl_checkpoint_t *checkpoint, const json_t *manifest,
                          pl_error_t *err)
{
    pl_durable_t file;
    char *text = manifest_text(manifest, err), *path = NULL;
    if (text)
        path = pl_checkpoint_file(checkpoint, PL_CHECKPOINT_MANIFEST, err);
    int code = path ? pl_durable_open(&file, path, err) : PL_ENOMEM;
    if (code == PL_OK) {
        code = pl_durable_write(&file, text, strlen(text), err);
        if (code == PL_OK)
            code = pl_durable_commit(&file, err);
        else
            pl_durable_abandon(&file);
    }
    pl_text_free(text);
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

/* In its place; what was there under that name has the other one then. */
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

/* What cannot be exchanged again stays where it is: both are whole. */
void pl_checkpoint_rollback(pl_checkpoint_t *checkpoint)
{
    if (!checkpoint->replaced)
        pl_checkpoint_remove(checkpoint->path, NULL);
    else if (folders_exchange(checkpoint))
        pl_checkpoint_remove(checkpoint->temporary, NULL);
    checkpoint_release(checkpoint);
}
