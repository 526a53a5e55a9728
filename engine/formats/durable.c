/* durable.c - a file that appears complete or not at all */
#include "formats/durable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "formats/direct_io.h"

#define ATTEMPTS 100
#define PIECE ((size_t)1 << 20)         /* bytes: still in the cache after its checksum */
#define LARGE ((uint64_t)4 << 20)

static atomic_uint files;                        /* of this process: makes names differ */

/* ---- checksums ---- */

int pl_checksums_add(pl_checksums_t *sums, const void *data, size_t size, pl_error_t *err)
{
    const char *at = data;
    while (size > 0) {
        size_t into = sums->bytes % PL_SUMS_BLOCK, capacity = PL_SUMS_BLOCK - into;
        size_t piece = size < capacity ? size : capacity;
        if (into == 0) {
            if (PL_GROW(sums->block, sums->count, sums->capacity) != PL_OK)
                return pl_no_memory(err);
            sums->block[sums->count++] = 0;
        }
        uint32_t *crc = &sums->block[sums->count - 1];
        *crc = pl_crc32c(*crc, at, piece);
        sums->bytes += piece;
        at += piece;
        size -= piece;
    }
    return PL_OK;
}

void pl_checksums_release(pl_checksums_t *sums)
{
    pl_free(sums->block);
    *sums = (pl_checksums_t){0};
}

/* ---- the file ---- */

static void durable_release(pl_durable_t *file)
{
    pl_direct_io_free(file->direct);
    if (file->fd >= 0)
        close(file->fd);
    if (file->directory >= 0)
        close(file->directory);
    pl_free(file->temporary);
    *file = (pl_durable_t){.fd = -1, .directory = -1};
}

static int durable_open_directory(pl_durable_t *file, pl_error_t *err)
{
    const char *slash = strrchr(file->path, '/');
    file->base = slash ? slash + 1 : file->path;
    if (!*file->base)
        return pl_fail(err, PL_EINVAL, "%s: a file name is needed after the last '/'",
                       file->path);
    char *folder = slash ? pl_text("%.*s", (int)(slash - file->path) + 1, file->path)
                         : pl_text(".");
    if (!folder)
        return pl_no_memory(err);
    file->directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = PL_OK;
    if (file->directory < 0)
        code = pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "%s: %m", folder);
    pl_free(folder);
    return code;
}

static int durable_create(pl_durable_t *file, pl_error_t *err)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        pl_free(file->temporary);
        file->temporary = pl_text(".%s.%ld-%u.part", file->base, (long)getpid(),
                                  atomic_fetch_add(&files, 1));
        if (!file->temporary)
            return pl_no_memory(err);
        file->fd = openat(file->directory, file->temporary,
                          O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd >= 0)
            return PL_OK;
        if (errno != EEXIST && errno != EINTR)
            return pl_fail(err, PL_EIO, "%s: cannot create %s beside it: %m", file->path,
                           file->temporary);
    }
    return pl_fail(err, PL_EIO, "%s: cannot find a free name beside it", file->path);
}

/* Whether the path is a device, a pipe or a descriptor of the process. Such a thing is
 * written to; a file in its place would be a loss for the whole machine. */
static bool is_stream(const char *path)
{
    struct stat at;
    return strncmp(path, "/dev/std", 8) == 0 || strncmp(path, "/dev/fd/", 8) == 0
           || (stat(path, &at) == 0 && !S_ISREG(at.st_mode) && !S_ISDIR(at.st_mode));
}

int pl_durable_open(pl_durable_t *file, const char *path, pl_error_t *err)
{
    pl_durable_t made = {.path = path, .fd = -1, .directory = -1};
    if (is_stream(path)) {
        /* behind what a redirected output has already; a pipe without a reader would
         * block the thread */
        made.fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        if (made.fd < 0)
            return pl_fail(err, PL_EIO,
                           errno == ENXIO ? "%s: the pipe has no reader" : "%s: %m",
                           path);
        fcntl(made.fd, F_SETFL, O_WRONLY | O_APPEND);
        made.is_stream = true;
        *file = made;
        return PL_OK;
    }
    int code = durable_open_directory(&made, err);
    if (!code)
        code = durable_create(&made, err);
    if (code)
        durable_release(&made);
    else
        *file = made;
    return code;
}

void pl_durable_expect(pl_durable_t *file, uint64_t bytes)
{
    if (bytes >= LARGE && !file->is_stream)
        file->direct = pl_direct_io_new(file->fd);
}

/* The end of an error text, if an old file of that name exists. */
static const char *old_file(const pl_durable_t *file)
{
    const int why = errno;
    const bool is_there = !file->is_stream
                          && faccessat(file->directory, file->base, F_OK, 0) == 0;
    errno = why;
    return is_there ? "; the old file is unchanged" : "";
}

static int fail_write(const pl_durable_t *file, pl_error_t *err)
{
    return pl_fail(err, PL_EIO, "%s: byte %llu cannot be written: %m%s", file->path,
                   (unsigned long long)(file->direct ? pl_direct_io_written(file->direct)
                                                     : file->written),
                   old_file(file));
}

int pl_durable_write(pl_durable_t *file, const void *data, size_t size, pl_error_t *err)
{
    const char *rest = data;
    while (size > 0) {
        int code = PL_OK;
        size_t piece = size < PIECE ? size : PIECE;
        if (file->sums)
            code = pl_checksums_add(file->sums, rest, piece, err);
        if (code != PL_OK)
            return code;
        if (file->direct ? pl_direct_io_add(file->direct, rest, piece)
                         : pl_write_all(file->fd, rest, piece, &file->written))
            return fail_write(file, err);
        if (!file->direct)                                  /* direct counts its blocks */
            pl_disk_progress_add();
        rest += piece;
        size -= piece;
    }
    return PL_OK;
}

static int durable_place(pl_durable_t *file, pl_error_t *err)
{
    if (file->is_stream)
        return PL_OK;
    if (file->direct && pl_direct_io_end(file->direct))
        return fail_write(file, err);
    if (fsync(file->fd))
        return pl_fail(err, PL_EIO, "%s: cannot be synced to the disk: %m%s", file->path,
                       old_file(file));
    pl_disk_progress_add();
    int fd = file->fd;
    file->fd = -1;
    if (close(fd) && errno != EINTR)
        return pl_fail(err, PL_EIO, "%s: cannot be synced to the disk: %m%s", file->path,
                       old_file(file));
    if (renameat(file->directory, file->temporary, file->directory, file->base))
        return pl_fail(err, PL_EIO, "%s: cannot be renamed into place: %m%s", file->path,
                       old_file(file));
    return PL_OK;
}

int pl_durable_commit(pl_durable_t *file, pl_error_t *err)
{
    int code = durable_place(file, err);
    pl_disk_progress_add();
    if (code) {
        pl_durable_abandon(file);
        return code;
    }
    if (!file->is_stream && fsync(file->directory))
        code = pl_fail(
            err, PL_EIO,
            "%s is in place, but its directory could not be synced: %m; a power failure "
            "may undo that",
            file->path);
    pl_disk_progress_add();
    durable_release(file);
    return code;
}

void pl_durable_abandon(pl_durable_t *file)
{
    if (file->temporary)
        unlinkat(file->directory, file->temporary, 0);
    durable_release(file);
}

/* Whether a name is ".NAME.PID-NUMBER.part" of a process that has ended. */
static bool is_left(const char *name)
{
    long pid = 0;
    unsigned number;
    int end = 0;
    const char *dot = NULL;
    for (const char *at = name; (at = strchr(at, '.')); at++)
        if (sscanf(at, ".%ld-%u.part%n", &pid, &number, &end) == 2 && end && !at[end]) {
            dot = at;
            break;
        }
    return name[0] == '.' && dot > name && pid > 0 && pid != (long)getpid()
           && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

void pl_durable_clear(const char *folder)
{
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        if (is_left(entry->d_name))
            unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        closedir(entries);
}
