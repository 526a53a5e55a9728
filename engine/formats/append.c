/* append.c - a file that grows by whole pieces */
#include "formats/append.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "formats/direct_io.h"

/* Opening a pipe would otherwise wait for a process at its other end. */
#define NEVER_WAITS (O_CLOEXEC | O_NONBLOCK)

/* The end of the last whole line among the first `size` bytes. */
static int64_t lines_end(int fd, int64_t size)
{
    char piece[4096];
    while (size > 0) {
        int64_t from = size > (int64_t)sizeof piece ? size - (int64_t)sizeof piece : 0;
        ssize_t n = pread(fd, piece, (size_t)(size - from), from);
        const char *end = n > 0 ? memrchr(piece, '\n', (size_t)n) : NULL;
        if (n <= 0 || end)
            return end ? from + (end - piece) + 1 : 0;
        size = from;
    }
    return 0;
}

/* Cuts the file to whole lines of its first `keep` bytes; -> their bytes. */
static int64_t cut_to(const char *path, int64_t keep, pl_error_t *err)
{
    struct stat now = {0};
    int fd = open(path, O_RDWR | NEVER_WAITS);
    bool is_there = fd >= 0 && fstat(fd, &now) == 0;
    int64_t left = is_there ? lines_end(fd, now.st_size < keep ? now.st_size : keep) : 0;
    if (!is_there && errno != ENOENT)
        left = pl_fail(err, PL_EIO, "%s: %m", path);
    else if (now.st_size > left && ftruncate(fd, left) != 0)
        left = pl_fail(err, PL_EIO, "%s: cannot be cut back to the checkpoint: %m", path);
    if (fd >= 0)
        close(fd);
    return left;
}

int64_t pl_append_lines_behind(const char *path, int64_t bytes, uint64_t *lines)
{
    char piece[4096];
    int fd = open(path, O_RDONLY | NEVER_WAITS);
    int64_t at = bytes, end = bytes;
    ssize_t n = fd < 0 ? 0 : 1;
    while (*lines && n > 0) {
        n = pread(fd, piece, sizeof piece, at);
        for (ssize_t k = 0; k < n && *lines; k++)
            if (piece[k] == '\n') {
                end = at + k + 1;
                --*lines;
            }
        at += n > 0 ? n : 0;
    }
    if (fd >= 0)
        close(fd);
    return end;
}

/* ---- sums ---- */

int pl_append_sum(const char *path, uint64_t size, uint32_t *sum, pl_error_t *err)
{
    char piece[16384];
    uint32_t all = 0;
    uint64_t at = 0;
    int fd = open(path, O_RDONLY | NEVER_WAITS), code = PL_OK;
    if (fd < 0)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "%s: %m", path);
    while (at < size && code == PL_OK) {
        size_t left = size - at < sizeof piece ? (size_t)(size - at) : sizeof piece;
        ssize_t n = pread(fd, piece, left, (off_t)at);
        if (n < 0 && errno != EINTR)
            code = pl_fail(err, PL_EIO, "%s: cannot be read: %m", path);
        if (n == 0)
            code = pl_fail(err, PL_EFORMAT, "%s: has only %llu bytes", path,
                           (unsigned long long)at);
        if (n > 0)
            all = pl_crc32c(all, piece, (size_t)n);
        at += n > 0 ? (uint64_t)n : 0;
    }
    close(fd);
    if (code == PL_OK)
        *sum = all;
    return code;
}

/* ---- the file ---- */

int pl_append_open(pl_append_t *file, const char *path, int64_t keep, pl_error_t *err)
{
    int64_t left = keep < 0 ? 0 : cut_to(path, keep, err);
    uint32_t sum = 0;
    int code = left < 0 ? (int)left : PL_OK;
    if (left > 0)
        code = pl_append_sum(path, (uint64_t)left, &sum, err);
    char *copy = code == PL_OK ? pl_strdup(path) : NULL;
    if (!copy)
        return code == PL_OK ? pl_no_memory(err) : code;
    *file = (pl_append_t){.path = copy,
                          .size = (uint64_t)left,
                          .sum = sum,
                          .lacks = keep > left,
                          .unsynced = left > 0,
                          .unnamed = true};
    return PL_OK;
}

int pl_append_add(pl_append_t *file, const void *data, size_t size, pl_error_t *err)
{
    size_t needed = file->length + size;
    if (needed > file->capacity) {
        char *larger = pl_resize(file->gathered, 2 * needed);
        if (!larger)
            return pl_no_memory(err);
        file->gathered = larger;
        file->capacity = 2 * needed;
    }
    if (size)
        memcpy(file->gathered + file->length, data, size);
    file->length = needed;
    return PL_OK;
}

/* Appends everything or, as far as the disk allows, nothing. Another process may have
 * written to the file or replaced it. */
static int append_to(int fd, pl_append_t *file, size_t length, pl_error_t *err)
{
    struct stat before;
    uint64_t written = 0;
    if (fstat(fd, &before) != 0)
        return pl_fail(err, PL_EIO, "%s: %m", file->path);
    const uint64_t now = (uint64_t)before.st_size;
    if (S_ISREG(before.st_mode) && now != file->size) {
        file->unnamed = true;
        if (pl_append_sum(file->path, now, &file->sum, err) != PL_OK)
            return PL_EIO;
        file->size = now;
    }
    if (pl_write_all(fd, file->gathered, length, &written) == 0) {
        file->size += length;
        file->sum = pl_crc32c(file->sum, file->gathered, length);
        file->unsynced = true;
        return PL_OK;
    }
    int reason = errno;
    bool cut = ftruncate(fd, before.st_size) == 0;
    errno = reason;
    return pl_fail(err, PL_EIO, "%s: cannot be appended to: %m%s", file->path,
                   cut ? "" : "; its last record is incomplete");
}

int pl_append_flush(pl_append_t *file, pl_error_t *err)
{
    size_t length = file->length;
    file->length = 0;
    if (!length)
        return PL_OK;
    int fd = open(file->path, O_WRONLY | O_APPEND | O_CREAT | NEVER_WAITS, 0666);
    if (fd < 0)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO,
                       "%s: cannot be opened: %m", file->path);
    int code = append_to(fd, file, length, err);
    if (close(fd) != 0 && errno != EINTR && code == PL_OK)
        code = pl_fail(err, PL_EIO, "%s: cannot be appended to: %m", file->path);
    return code;
}

/* EINVAL: this is not a file on a disk, so there is nothing to sync. */
static int fd_sync(int fd)
{
    int failed = fsync(fd) != 0 && errno != EINVAL, reason = errno;
    close(fd);
    errno = reason;
    return failed;
}

int pl_append_sync(pl_append_t *file, pl_error_t *err)
{
    if (file->untrusted)
        return pl_fail(err, PL_EIO, "%s: an earlier sync to the disk failed", file->path);
    if (!file->unsynced)
        return PL_OK;
    int fd = open(file->path, O_WRONLY | NEVER_WAITS);
    if (fd < 0)
        return pl_fail(err, PL_EIO, "%s: cannot be synced: %m", file->path);
    file->untrusted = fd_sync(fd);
    if (!file->untrusted && file->unnamed) {
        const char *slash = strrchr(file->path, '/');
        char *folder = slash ? pl_text("%.*s", (int)(slash - file->path) + 1, file->path)
                             : pl_text(".");
        fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        pl_text_free(folder);
        file->untrusted = fd < 0 || fd_sync(fd);
    }
    if (file->untrusted)
        return pl_fail(err, PL_EIO, "%s: cannot be synced to the disk: %m", file->path);
    file->unsynced = file->unnamed = false;
    return PL_OK;
}

int pl_append_once(const char *path, unsigned mode, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, mode);
    uint64_t written = 0;
    if (fd < 0)
        return errno;
    int failed = pl_write_all(fd, data, size, &written) == 0 ? 0 : errno;
    return close(fd) == 0 || failed ? failed : errno;
}

void pl_append_release(pl_append_t *file)
{
    pl_free(file->path);
    pl_free(file->gathered);
    *file = (pl_append_t){0};
}
