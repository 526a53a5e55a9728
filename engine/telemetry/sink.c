/* sink.c - a file that a tap writes without waiting for the disk
 *
 * A mistyped path must not destroy a file, and a second run must not overwrite the file
 * of the first.  So an existing file is checked first, and the file is locked while it is
 * written; the lock ends with the process. */
#include "telemetry/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/reactor.h"

enum {
    BUFFERS = 4,
    BUFFER_BYTES = 1 << 20,
    TURN_MS = 100,
    END_SECONDS = 2,
    LOOKS = 8,
    BEGIN_MAX = 16,
};

typedef struct sink_buffer {
    pl_sink_t *sink;
    size_t length;
    bool is_leaving;                                       /* atomic: the writer has it */
    char bytes[BUFFER_BYTES];
} sink_buffer_t;

struct pl_sink {
    char *path;
    const pl_sink_kind_t *kind;
    pl_reactor_t *writer;
    int fd;
    bool is_file;                              /* no pipe, no device */
    off_t size;                                /* written so far; writer's thread */
    int64_t until;                             /* atomic: limit for the rest  [0: none] */
    bool has_failed;                           /* atomic */
    bool is_last;                              /* the writer's thread has ended */
    sink_buffer_t *buffers;                    /* [BUFFERS] */
    sink_buffer_t *filling;                    /* [all are leaving] */
};

/* ---- the writer's thread ---- */

static void tell_failure(pl_sink_t *sink, const char *why)
{
    __atomic_store_n(&sink->has_failed, true, __ATOMIC_RELEASE);
    pl_log_line(PL_LOG_WARNING, -1, "",
                "the %s %s ends here: %s; the run continues without it", sink->kind->name,
                sink->path, why);
}

static void buffer_write(void *argument)
{
    sink_buffer_t *buffer = argument;
    pl_sink_t *sink = buffer->sink;
    struct pollfd pipe = {.fd = sink->fd, .events = POLLOUT};
    size_t at = 0;
    while (at < buffer->length && !sink->has_failed) {
        const ssize_t written = write(sink->fd, buffer->bytes + at, buffer->length - at);
        const int64_t until = __atomic_load_n(&sink->until, __ATOMIC_ACQUIRE);
        if (written > 0)
            at += (size_t)written;
        else if (written < 0 && errno == EAGAIN && poll(&pipe, 1, TURN_MS) == 0 && until
                 && pl_now() >= until)          /* a slow reader does not delay the end */
            tell_failure(sink, "no process reads it any more");
        else if (written == 0 || (errno != EINTR && errno != EAGAIN))
            tell_failure(sink, written ? strerror(errno) : "it accepts no more data");
    }
    /* The part of a piece that was written is of no use. */
    if (at < buffer->length && at > 0 && sink->is_file
        && ftruncate(sink->fd, sink->size + (off_t)sink->kind->whole(buffer->bytes, at))
               != 0)
        pl_log_line(PL_LOG_WARNING, -1, "", "the %s %s ends within a record: %s",
                    sink->kind->name, sink->path, strerror(errno));
    sink->size += (off_t)at;
    buffer->length = 0;
    __atomic_store_n(&buffer->is_leaving, false, __ATOMIC_RELEASE);
}

/* ---- the tap's thread ---- */

void pl_sink_push(pl_sink_t *sink)
{
    sink_buffer_t *buffer = sink->filling;
    if (!buffer || !buffer->length)
        return;
    if (sink->is_last) {
        buffer_write(buffer);
        return;
    }
    __atomic_store_n(&buffer->is_leaving, true, __ATOMIC_RELAXED);
    if (pl_reactor_post(sink->writer, buffer_write, buffer, NULL) == PL_OK)
        sink->filling = NULL;
    else
        __atomic_store_n(&buffer->is_leaving, false, __ATOMIC_RELAXED);
}

bool pl_sink_put(pl_sink_t *sink, const void *data, size_t size)
{
    if (__atomic_load_n(&sink->has_failed, __ATOMIC_ACQUIRE))
        return false;
    if (sink->filling && size > BUFFER_BYTES - sink->filling->length)
        pl_sink_push(sink);
    for (int k = 0; k < BUFFERS && !sink->filling; k++)
        if (!__atomic_load_n(&sink->buffers[k].is_leaving, __ATOMIC_ACQUIRE))
            sink->filling = &sink->buffers[k];
    if (!sink->filling || size > BUFFER_BYTES - sink->filling->length)
        return false;
    memcpy(sink->filling->bytes + sink->filling->length, data, size);
    sink->filling->length += size;
    return true;
}

/* ---- the existing file ---- */

static void file_leave(int *fd)
{
    flock(*fd, LOCK_UN);                        /* a child may have it still, if forked */
    close(*fd);
    *fd = -1;
}

/* Locks the file, so that no other process writes it; *fd -1: it is not at the path any
 * more.  A file system without locks, as some network file systems are, is accepted. */
static int file_lock(const pl_sink_t *sink, const char *path, int *fd, pl_error_t *err)
{
    struct stat here, there;
    const bool is_busy = flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_busy && fstat(*fd, &here) == 0 && lstat(path, &there) == 0
        && here.st_dev == there.st_dev && here.st_ino == there.st_ino)
        return PL_OK;
    file_leave(fd);
    return is_busy ? pl_fail(err, PL_EBUSY,
                             "%s %s: another run is writing to it: choose another file, "
                             "or end that run first",
                             sink->kind->name, path)
                   : PL_OK;
}

/* Opens and locks a file that may be replaced: an empty one, or one of an earlier run.
 * *fd -1: there is no file.  A run that was killed at once left only the begin of one. */
static int file_find(const pl_sink_t *sink, const char *path, int *fd, off_t *size,
                     pl_error_t *err)
{
    struct stat there = {0};
    char bytes[BEGIN_MAX];
    const size_t max = strlen(sink->kind->begin);
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (*fd < 0 && errno == ENOENT)
        return PL_OK;
    if (*fd < 0)
        return pl_fail(err, PL_EIO, "%s %s: cannot open the existing file: %s",
                       sink->kind->name, path, strerror(errno));
    const int code = file_lock(sink, path, fd, err);
    if (code != PL_OK || *fd < 0)
        return code;
    const bool is_plain = fstat(*fd, &there) == 0 && S_ISREG(there.st_mode);
    const ssize_t got = is_plain ? pread(*fd, bytes, max, 0) : -1;
    const bool is_ours = got > 0 && memcmp(bytes, sink->kind->begin, (size_t)got) == 0
                         && ((size_t)got == max
                             || sink->kind->whole(bytes, (size_t)got) == (size_t)got);
    *size = there.st_size;
    if (is_plain && (!*size || is_ours))
        return PL_OK;
    file_leave(fd);
    return pl_fail(
        err, PL_EINVAL,
        "%s %s: the existing file is not a %s and is left unchanged: choose another "
        "file, or move that one away first",
        sink->kind->name, path, sink->kind->name);
}

static int cannot_write(const pl_sink_t *sink, pl_error_t *err)
{
    return pl_fail(err, PL_EIO, "%s %s: cannot write: %s", sink->kind->name, sink->path,
                   errno == ENXIO ? "no process reads it" : strerror(errno));
}

static int file_create(pl_sink_t *sink, pl_error_t *err)
{
    sink->fd = open(sink->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (sink->fd < 0)
        return errno == EEXIST ? PL_OK : cannot_write(sink, err);
    return file_lock(sink, sink->path, &sink->fd, err);
}

static int file_take(pl_sink_t *sink, pl_error_t *err)
{
    int there;
    off_t size;
    int code = file_find(sink, sink->path, &there, &size, err);
    if (code != PL_OK || there < 0)
        return code;
    if (!size) {
        sink->fd = there;
        return PL_OK;
    }
    /* The file of an earlier run is renamed: this process may be its restart, and that
     * file has the reason. */
    int older = -1;
    char *old = pl_text("%s.old", sink->path);
    code = old ? file_find(sink, old, &older, &size, err) : pl_no_memory(err);
    if (code == PL_OK && rename(sink->path, old) != 0)
        code = pl_fail(err, PL_EIO, "%s %s: cannot rename the existing file: %s",
                       sink->kind->name, sink->path, strerror(errno));
    if (older >= 0)
        file_leave(&older);
    pl_text_free(old);
    if (code == PL_OK)
        code = file_create(sink, err);
    file_leave(&there);
    return code;
}

/* A path that changes between two checks is checked again. */
static int file_open(pl_sink_t *sink, pl_error_t *err)
{
    struct stat there;
    for (int k = 0; k < LOOKS; k++) {
        const bool is_there = lstat(sink->path, &there) == 0;
        if (is_there && (S_ISCHR(there.st_mode) || S_ISFIFO(there.st_mode))) {
            sink->fd = open(sink->path,
                            O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
            return sink->fd >= 0 ? PL_OK : cannot_write(sink, err);
        }
        if (is_there && !S_ISREG(there.st_mode))
            return pl_fail(err, PL_EINVAL, "%s %s: it is not a regular file",
                           sink->kind->name, sink->path);
        sink->is_file = true;
        const int code = is_there ? file_take(sink, err) : file_create(sink, err);
        if (code != PL_OK || sink->fd >= 0)
            return code;
    }
    return pl_fail(err, PL_EBUSY,
                   "%s %s: other processes keep replacing the file: choose another file",
                   sink->kind->name, sink->path);
}

/* ---- life ---- */

pl_sink_t *pl_sink_new(pl_runtime_t *runtime, const char *path,
                       const pl_sink_kind_t *kind, pl_error_t *err)
{
    pl_sink_t *sink = pl_alloc(sizeof *sink);
    if (!sink) {
        pl_no_memory(err);
        return NULL;
    }
    sink->fd = -1;
    sink->kind = kind;
    sink->path = pl_strdup(path);
    sink->buffers = pl_alloc(BUFFERS * sizeof *sink->buffers);
    int code = sink->path && sink->buffers ? PL_OK : pl_no_memory(err);
    for (int k = 0; k < BUFFERS && code == PL_OK; k++)
        sink->buffers[k].sink = sink;
    if (code == PL_OK)
        code = file_open(sink, err);
    if (code == PL_OK && (sink->writer = pl_reactor_new(runtime, -1, err))
        && pl_reactor_start(sink->writer, kind->name, err) == PL_OK)
        return sink;
    pl_sink_close(sink);
    return NULL;
}

/* The writer's thread writes what it has before it ends. */
void pl_sink_last(pl_sink_t *sink)
{
    if (!sink->is_last)
        __atomic_store_n(&sink->until, pl_now() + END_SECONDS * PL_SECOND,
                         __ATOMIC_RELEASE);
    if (sink->writer)
        pl_reactor_join(sink->writer);
    sink->is_last = true;
}

void pl_sink_close(pl_sink_t *sink)
{
    pl_sink_last(sink);
    pl_sink_push(sink);
    pl_reactor_free(sink->writer);
    if (sink->is_file && sink->fd >= 0)
        flock(sink->fd, LOCK_UN);
    if (sink->fd >= 0 && close(sink->fd) != 0 && !sink->has_failed)
        tell_failure(sink, strerror(errno));
    pl_free(sink->buffers);
    pl_free(sink->path);
    pl_free(sink);
}
