/* recorder.c - hands metrics to one logger, on a thread of its own
 *
 * A logger may wait for a disk or a server; here nobody else waits with it.  What it
 * cannot keep is counted, and the next metrics are tried again. */
#include "actors/connectors/connectors.h"

#include <string.h>

#include "actors/connectors/records.h"
#include "base/alloc.h"
#include "base/error.h"
#include "runtime/payload.h"

typedef struct recorder {
    pl_log_component_t *component;                          /* counted */
    bool opened;
} recorder_t;

static const pl_logger_ops_t *ops_of(const recorder_t *recorder)
{
    return recorder->component->component.ops;
}

static int recorder_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    (void)call, (void)err;
    recorder_t *recorder = self;
    recorder->component = pl_object_ref(body->start.context);
    pl_actor_ready(self);
    return PL_OK;
}

static int logger_open(recorder_t *recorder, const pl_write_records_t *msg,
                       pl_error_t *err)
{
    const pl_log_run_t run = {.run_dir = recorder->component->run_dir,
                              .run = recorder->component->run,
                              .position = msg->position,
                              .global_step = msg->global_step,
                              .has_position = msg->is_resume,
                              .behind = msg->behind};
    if (!recorder->opened && ops_of(recorder)->open
        && ops_of(recorder)->open(recorder->component->component.self, &run, err)
               != PL_OK)
        return PL_EUSER;
    recorder->opened = true;
    return PL_OK;
}

/* The module's own tensors, without the optimizer's. */
static int weights_write(recorder_t *recorder, const pl_logged_t *logged, pl_error_t *err)
{
    const pl_weights_t *weights = logged->weights;
    pl_result_tensor_t *tensor = pl_alloc_array((size_t)weights->count, sizeof *tensor);
    if (!tensor)
        return pl_no_memory(err);
    int count = 0;                                          /* the module's come first */
    while (count < weights->count && weights->tensor[count].region <= PL_REGION_STATE)
        count++;
    int code = pl_tensors_view(weights->tensor, count, tensor)
                   ? ops_of(recorder)->tensors(recorder->component->component.self,
                                               &logged->record, tensor, count, err)
                   : pl_no_memory(err);
    pl_tensors_release(weights->tensor, count, tensor);
    pl_free(tensor);
    return code;
}

static int logged_write(recorder_t *recorder, const pl_logged_t *logged, pl_error_t *err)
{
    if (logged->weights)
        return weights_write(recorder, logged, err);
    return ops_of(recorder)->log(recorder->component->component.self, &logged->record,
                                 err);
}

/* How many of the records are lost; *why is the first reason. */
static int records_write(recorder_t *recorder, const pl_records_t *records,
                         pl_error_t *why)
{
    const pl_logger_ops_t *ops = ops_of(recorder);
    void *logger = recorder->component->component.self;
    pl_error_t err = {0};
    int lost = 0;
    for (int k = 0; k < records->count; k++)
        if (logged_write(recorder, records->logged[k], lost ? &err : why) != PL_OK)
            lost++;
    if (ops->flush && ops->flush(logger, lost ? &err : why) != PL_OK)
        lost = records->count;
    return lost;
}

static void logger_close(recorder_t *recorder, const char *status)
{
    if (recorder->opened && ops_of(recorder)->close)
        ops_of(recorder)->close(recorder->component->component.self, status);
    recorder->opened = false;
}

/* What a checkpoint may say: what is on the disk.  From pl_text(), or NULL. */
static char *position_tell(recorder_t *recorder, const pl_write_records_t *msg,
                           pl_error_t *why)
{
    const pl_logger_ops_t *ops = ops_of(recorder);
    void *logger = recorder->component->component.self;
    if (!msg->sync || !recorder->opened || !ops->position
        || (ops->sync && ops->sync(logger, why) != PL_OK))
        return pl_text("%s", msg->position);
    return ops->position(logger);
}

static int recorder_on_write(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    recorder_t *recorder = self;
    const pl_write_records_t *msg = &body->write_records;
    const pl_records_t *records = (const pl_records_t *)msg->records;
    pl_error_t why = {0}, unsynced = {0};
    int lost = records->count;
    if (logger_open(recorder, msg, &why) == PL_OK)
        lost = records_write(recorder, records, &why);
    char *position = position_tell(recorder, msg, &unsynced);
    if (!position)
        return pl_no_memory(err);
    if (*msg->status)
        logger_close(recorder, msg->status);
    if (lost && !why.text[0])
        pl_fail(&why, PL_EUSER, "it failed without an error text");
    int code = pl_reply_write_records(
        call, &(pl_write_records_reply_t){.lost = (uint32_t)lost,
                                          .why = lost ? why.text : unsynced.text,
                                          .position = position});
    pl_text_free(position);
    return code;
}

static void recorder_release(void *self)
{
    recorder_t *recorder = self;
    if (recorder->component)
        logger_close(recorder, "");
    pl_object_unref(recorder->component);
    recorder->component = NULL;
}

static void recorder_on_cancel(void *self, pl_call_t *call)
{
    if (!pl_is_life(self, call))
        return;
    recorder_release(self);                                 /* on this thread, for sure */
    pl_actor_end(self, NULL);
}

static const pl_handler_t recorder_handlers[] = {
    PL_ON(start, recorder_on_start),
    PL_ON(write_records, recorder_on_write),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_io_recorder = {
    .name = "io.recorder",
    .help = "calls a logger on a thread of its own",
    .size = sizeof(recorder_t),
    .level = PL_LEVEL_IO,
    .handlers = recorder_handlers,
    .on_cancel = recorder_on_cancel,
    .release = recorder_release,
};
