/* log_writer.c - writes the output of rank processes to files, on a thread of its own
 *
 * Files may be slow, and nobody waits for these. */
#include "actors/launchers/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

typedef struct log_writer {
    char nothing;
} log_writer_t;

static int log_writer_start(void *self, pl_call_t *call, const pl_body_t *body,
                            pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    pl_actor_ready(self);
    return PL_OK;
}

/* The error's number, or 0. */
static int append(const char *path, pl_bytes_t text)
{
    const char *at = text.data;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666), failed = 0;
    if (fd < 0)
        return errno;
    while (text.size && !failed) {
        ssize_t size = write(fd, at, text.size);
        if (size > 0) {
            at += size;
            text.size -= (size_t)size;
        } else if (errno != EINTR) {
            failed = errno;
        }
    }
    return close(fd) == 0 || failed ? failed : errno;
}

static int log_writer_append_log(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    (void)self;
    int failed = append(body->append_log.path, body->append_log.text);
    if (failed)
        return pl_fail(err, PL_EIO, "%s: %s", body->append_log.path, strerror(failed));
    return pl_reply_append_log(call, &(pl_append_log_reply_t){0});
}

static const pl_handler_t log_writer_handlers[] = {
    PL_ON(start, log_writer_start),
    PL_ON(append_log, log_writer_append_log),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_log_writer = {
    .name = "log_writer",
    .help = "writes the output of rank processes to files",
    .size = sizeof(log_writer_t),
    .level = PL_LEVEL_IO,
    .handlers = log_writer_handlers,
};
