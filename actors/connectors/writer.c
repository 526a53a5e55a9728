/* writer.c - writes and reads a run's files, on a thread of its own
 *
 * A disk may be slow; no other actor waits for it. */
#include "actors/connectors/weights.h"
#include "actors/connectors/writer.h"
#include "actors/log_writer.h"

#include "base/alloc.h"
#include "base/error.h"
#include "runtime/payload.h"

typedef struct run_writer {
    int held;                                    /* descriptor of the run's folder  [0] */
} run_writer_t;

/* ---- Weights and run directories ---- */

static int writer_on_write(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    (void)self;
    const pl_write_weights_t *wanted = &body->write_weights;
    const pl_weights_t *weights = (const pl_weights_t *)wanted->weights;
    int code = pl_weights_write(wanted->path, weights, wanted->global_step, err);
    if (code == PL_ENOTFOUND
        && (code = pl_run_dir_make_again(wanted->path, err)) == PL_OK)
        code = pl_weights_write(wanted->path, weights, wanted->global_step, err);
    return code == PL_OK ? pl_reply_write_weights(call, &(pl_write_weights_reply_t){0})
                         : code;
}

static int writer_on_read(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    (void)self;
    pl_weights_t *weights = pl_weights_read(body->read_weights.path, err);
    if (!weights)
        return err->code;
    pl_reply_read_weights(call, &(pl_read_weights_reply_t){.weights = &weights->object});
    pl_object_unref(weights);
    return PL_OK;
}

/* The lock is held while this actor lives: no other process writes there. */
static int writer_on_run_dir(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    run_writer_t *writer = self;
    const pl_make_run_dir_t *wanted = &body->make_run_dir;
    char *path = NULL;
    int code = wanted->aside ? pl_run_dir_put_aside(wanted->root, wanted->name, err)
                             : PL_OK;
    if (code == PL_OK)
        path = *wanted->there
                   ? pl_text("%s", wanted->there)
                   : pl_run_dir_make(wanted->root, wanted->name, wanted->run, err);
    if (code == PL_OK)
        code = path        ? pl_run_dir_hold(path, &writer->held, err)
               : err->code ? err->code
                           : pl_no_memory(err);
    if (code == PL_OK && *wanted->there)
        code = pl_run_dir_is_writable(path, err);
    if (code == PL_OK)
        code = pl_reply_make_run_dir(call, &(pl_make_run_dir_reply_t){.path = path});
    pl_text_free(path);
    return code;
}

static int writer_on_begun(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    (void)self;
    int code = pl_run_dir_point(body->run_begun.path, err);
    return code == PL_OK ? pl_reply_run_begun(call, &(pl_run_begun_reply_t){0}) : code;
}

static void writer_release(void *self)
{
    pl_run_dir_let(((run_writer_t *)self)->held);
}

static const pl_handler_t writer_handlers[] = {
    PL_ON(write_weights, writer_on_write),
    PL_ON(read_weights, writer_on_read),
    PL_ON(make_run_dir, writer_on_run_dir),
    PL_ON(run_begun, writer_on_begun),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_io_writer = {
    .name = "io.writer",
    .help = "writes and reads a run's files",
    .size = sizeof(run_writer_t),
    .level = PL_LEVEL_IO,
    .handlers = writer_handlers,
    .base = &pl_log_writer,
    .release = writer_release,
};
