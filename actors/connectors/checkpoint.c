/* checkpoint.c - the checkpoint connector: keeps the weights of a run
 *
 * A save that has begun is waited for, also at the end: it is what the run was for. */
#include "actors/connectors/checkpoint.h"

#include "actors/connectors/run_options.h"
#include "actors/connectors/writer.h"
#include "base/alloc.h"
#include "base/error.h"

typedef struct checkpoint {
    char *path;                                             /* of the weights  [none] */
    int open;                                               /* calls to the writer */
    bool ending;
} checkpoint_t;

static int checkpoint_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    (void)call;
    checkpoint_t *checkpoint = self;
    char *run_dir = NULL;
    int code = pl_run_options(body->start.options, &run_dir, err);
    if (code != PL_OK)
        return code;
    if (run_dir)
        checkpoint->path = pl_text("%s/" PL_WEIGHTS_FILE, run_dir);
    bool failed = run_dir && !checkpoint->path;
    pl_free(run_dir);
    if (failed)
        return pl_no_memory(err);
    pl_actor_ready(self);
    return PL_OK;
}

static void end_when_idle(checkpoint_t *checkpoint)
{
    if (checkpoint->ending && checkpoint->open == 0)
        pl_actor_end(checkpoint, NULL);
}

static void checkpoint_on_written(void *self, const pl_answer_t *answer)
{
    checkpoint_t *checkpoint = self;
    if (answer->kind == PL_ANSWER_REPLY)
        pl_reply_save(answer->context, &(pl_save_reply_t){.path = checkpoint->path});
    else if (answer->kind == PL_ANSWER_ERROR)
        pl_call_fail(answer->context, answer->error);
    else
        return;
    checkpoint->open--;
    end_when_idle(checkpoint);
}

static int checkpoint_on_save(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    checkpoint_t *checkpoint = self;
    if (!checkpoint->path)
        return pl_fail(err, PL_ESTATE, "this run has no directory to save to");
    const pl_write_weights_t fields = {.path = checkpoint->path,
                                       .weights = body->save.weights};
    const pl_how_t how = {.on_answer = checkpoint_on_written, .context = call};
    if (!pl_call_write_weights(self, pl_peer(self, "writer"), &fields, how, err))
        return err->code;
    checkpoint->open++;
    return PL_OK;
}

static void checkpoint_on_cancel(void *self, pl_call_t *call)
{
    checkpoint_t *checkpoint = self;
    if (!pl_is_life(self, call))
        return;
    checkpoint->ending = true;
    end_when_idle(checkpoint);
}

static void checkpoint_release(void *self)
{
    checkpoint_t *checkpoint = self;
    pl_free(checkpoint->path);
}

static const pl_handler_t checkpoint_handlers[] = {
    PL_ON(start, checkpoint_on_start),
    PL_ON(save, checkpoint_on_save),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_checkpoint_connector = {
    .name = "connector.checkpoint",
    .help = "keeps the weights of a run",
    .size = sizeof(checkpoint_t),
    .level = PL_LEVEL_CONNECTOR,
    .handlers = checkpoint_handlers,
    .on_cancel = checkpoint_on_cancel,
    .release = checkpoint_release,
};
