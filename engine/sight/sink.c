/* sink.c - a file that a tap writes without waiting for the disk */
#include "sight/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/reactor.h"

enum { BUFFERS = 4, BUFFER_BYTES = 1 << 20, TURN_MS = 100, END_SECONDS = 2 };

typedef struct buffer {
    pl_sink_t *sink;
    size_t length;
    bool is_leaving;                                        /* atomic: the writer's */
    char bytes[BUFFER_BYTES];
} buffer_t;

struct pl_sink {
    char *path;
    const char *what;
    pl_reactor_t *writer;
    int fd;
    int64_t until;                        /* atomic: the rest is to be gone by then [0] */
    bool has_failed;                                        /* atomic */
    bool is_last;                                           /* the writer has left */
    buffer_t *buffers;                                      /* [BUFFERS] */
    buffer_t *filling;                                      /* [all are leaving] */
};

/* ---- the writer's side ---- */

static void tell_failure(pl_sink_t *sink, const char *why)
{
    __atomic_store_n(&sink->has_failed, true, __ATOMIC_RELEASE);
    pl_log_line(PL_LOG_WARNING, -1, "",
                "the %s %s ends here: %s; the run goes on without it", sink->what,
                sink->path, why);
}

/* Who reads a pipe may take its time, but does not hold up the end. */
static bool waits(const pl_sink_t *sink)
{
    struct pollfd pipe = {.fd = sink->fd, .events = POLLOUT};
    const int64_t until = __atomic_load_n(&sink->until, __ATOMIC_ACQUIRE);
    return poll(&pipe, 1, TURN_MS) != 0 || !until || pl_now() < until;
}

static void buffer_write(void *argument)
{
    buffer_t *buffer = argument;
    pl_sink_t *sink = buffer->sink;
    size_t at = 0;
    while (at < buffer->length && !sink->has_failed) {
        const ssize_t written = write(sink->fd, buffer->bytes + at, buffer->length - at);
        if (written > 0)
            at += (size_t)written;
        else if (written < 0 && errno == EAGAIN && !waits(sink))
            tell_failure(sink, "nobody takes the rest");
        else if (written == 0 || (errno != EINTR && errno != EAGAIN))
            tell_failure(sink, written ? strerror(errno) : "it takes nothing more");
    }
    buffer->length = 0;
    __atomic_store_n(&buffer->is_leaving, false, __ATOMIC_RELEASE);
}

/* ---- the tap's side ---- */

static buffer_t *free_buffer(pl_sink_t *sink)
{
    for (int k = 0; k < BUFFERS; k++)
        if (!__atomic_load_n(&sink->buffers[k].is_leaving, __ATOMIC_ACQUIRE))
            return &sink->buffers[k];
    return NULL;
}

void pl_sink_push(pl_sink_t *sink)
{
    buffer_t *buffer = sink->filling;
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
    if (!sink->filling)
        sink->filling = free_buffer(sink);
    if (!sink->filling || size > BUFFER_BYTES - sink->filling->length)
        return false;
    memcpy(sink->filling->bytes + sink->filling->length, data, size);
    sink->filling->length += size;
    return true;
}

/* ---- life ---- */

/* What lies there is kept: the process may be one that was started again, and that file
 * tells why. */
static int set_aside(const char *path, const char *what, pl_error_t *err)
{
    struct stat there;
    if (lstat(path, &there) != 0)
        return PL_OK;                                       /* open() tells the rest */
    if (S_ISCHR(there.st_mode) || S_ISFIFO(there.st_mode) || there.st_size == 0)
        return PL_OK;
    if (!S_ISREG(there.st_mode))
        return pl_fail(err, PL_EINVAL, "%s %s: something else than a file is there", what,
                       path);
    char *old = pl_text("%s.old", path);
    if (!old)
        return pl_no_memory(err);
    const int code = rename(path, old) == 0
                         ? PL_OK
                         : pl_fail(err, PL_EIO, "%s %s: cannot rename what is there: %s",
                                   what, path, strerror(errno));
    pl_text_free(old);
    return code;
}

static int sink_open(pl_sink_t *sink, pl_runtime_t *runtime, const char *path,
                     pl_error_t *err)
{
    sink->path = pl_strdup(path);
    sink->buffers = pl_alloc(BUFFERS * sizeof *sink->buffers);
    if (!sink->path || !sink->buffers)
        return pl_no_memory(err);
    for (int k = 0; k < BUFFERS; k++)
        sink->buffers[k].sink = sink;
    const int code = set_aside(path, sink->what, err);
    if (code != PL_OK)
        return code;
    sink->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0600);
    if (sink->fd < 0)
        return pl_fail(err, PL_EIO, "%s %s: cannot write there: %s", sink->what, path,
                       errno == ENXIO ? "nobody reads it" : strerror(errno));
    sink->writer = pl_reactor_new(runtime, -1, err);
    return sink->writer ? pl_reactor_start(sink->writer, sink->what, err) : PL_EBUSY;
}

pl_sink_t *pl_sink_new(pl_runtime_t *runtime, const char *path, const char *what,
                       pl_error_t *err)
{
    pl_sink_t *sink = pl_alloc(sizeof *sink);
    if (!sink) {
        pl_no_memory(err);
        return NULL;
    }
    sink->fd = -1;
    sink->what = what;
    if (sink_open(sink, runtime, path, err) == PL_OK)
        return sink;
    pl_sink_close(sink);
    return NULL;
}

/* What is posted is run before the thread leaves. */
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
    if (sink->fd >= 0 && close(sink->fd) != 0 && !sink->has_failed)
        tell_failure(sink, strerror(errno));
    pl_free(sink->buffers);
    pl_free(sink->path);
    pl_free(sink);
}
