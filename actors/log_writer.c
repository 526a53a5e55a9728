/* log_writer.c - an actor that appends texts to files, on a thread of its own
 *
 * Files may be slow; no other actor waits for them. */
#include "actors/log_writer.h"

#include <string.h>

#include "base/error.h"
#include "formats/append.h"

static int log_writer_append_log(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    (void)self;
    const pl_append_log_t *log = &body->append_log;
    const int failed = pl_append_once(log->path, 0666, log->text.data, log->text.size);
    if (failed)
        return pl_fail(err, PL_EIO, "%s: %s", log->path, strerror(failed));
    return pl_reply_append_log(call, &(pl_append_log_reply_t){0});
}

static const pl_handler_t log_writer_handlers[] = {
    PL_ON(append_log, log_writer_append_log),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_log_writer = {
    .name = "log_writer",
    .help = "appends texts to files",
    .size = 1,                                              /* it has no state */
    .level = PL_LEVEL_IO,
    .handlers = log_writer_handlers,
};
