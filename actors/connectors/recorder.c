/* recorder.c - gives records to one logger, on a thread of its own
 *
 * A logger may wait for a disk or a server, and no other actor waits with it.  Records
 * that it cannot write are counted; the logger gets the next ones. */
#include <string.h>

#include "actors/connectors/connectors.h"
#include "actors/connectors/records.h"
#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"
#include "runtime/payload.h"

/* ---- records.h ---- */

static void logged_release(pl_object_t *object)
{
    pl_object_unref(((pl_logged_t *)object)->weights);
    pl_free(object);
}

pl_logged_t *pl_logged_new(const pl_record_t *record, pl_error_t *err)
{
    size_t size = strlen(record->metrics);
    pl_logged_t *logged = pl_alloc(sizeof *logged + size + 1);
    if (!logged) {
        pl_no_memory(err);
        return NULL;
    }
    pl_object_init(&logged->object, logged_release);
    memcpy(logged->metrics, record->metrics, size);
    logged->record = *record;
    logged->record.metrics = logged->metrics;
    logged->size = size;
    return logged;
}

static void records_release(pl_object_t *object)
{
    pl_records_t *records = (pl_records_t *)object;
    for (int k = 0; k < records->count; k++)
        pl_object_unref(records->logged[k]);
    pl_free(records->logged);
    pl_free(records);
}

pl_records_t *pl_records_new(pl_error_t *err)
{
    pl_records_t *records = pl_alloc(sizeof *records);
    if (records)
        pl_object_init(&records->object, records_release);
    else
        pl_no_memory(err);
    return records;
}

int pl_records_add(pl_records_t *records, pl_logged_t *logged, pl_error_t *err)
{
    if (PL_GROW(records->logged, records->count, records->capacity) != PL_OK)
        return pl_no_memory(err);
    records->logged[records->count++] = pl_object_ref(logged);
    records->size += logged->size;
    return PL_OK;
}

static void log_component_release(pl_object_t *object)
{
    pl_log_component_t *component = (pl_log_component_t *)object;
    pl_instance_release(&component->component);
    pl_free(component->run_dir);
    pl_free(component->run);
    pl_free(component);
}

pl_log_component_t *pl_log_component_new(pl_instance_t *component, const char *run_dir,
                                         const char *run, pl_error_t *err)
{
    pl_log_component_t *made = pl_alloc(sizeof *made);
    if (made) {
        pl_object_init(&made->object, log_component_release);
        made->component = *component;
        made->run_dir = pl_strdup(run_dir);
        made->run = pl_strdup(run);
    } else {
        pl_instance_release(component);
    }
    *component = (pl_instance_t){0};
    if (made && made->run_dir && made->run)
        return made;
    pl_object_unref(made);
    pl_no_memory(err);
    return NULL;
}

/* ---- The actor ---- */

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

static void logger_close(recorder_t *recorder, pl_run_status_t status)
{
    if (recorder->opened && ops_of(recorder)->close)
        ops_of(recorder)->close(recorder->component->component.self,
                                pl_run_status_names[status]);
    recorder->opened = false;
}

static int recorder_on_write(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    recorder_t *recorder = self;
    const pl_write_records_t *msg = &body->write_records;
    const pl_records_t *records = (const pl_records_t *)msg->records;
    const pl_logger_ops_t *ops = ops_of(recorder);
    void *logger = recorder->component->component.self;
    const pl_log_run_t run = {.run_dir = recorder->component->run_dir,
                              .run = recorder->component->run,
                              .position = msg->position,
                              .global_step = msg->global_step,
                              .has_position = msg->is_resume,
                              .behind = msg->behind};
    pl_error_t why = {0}, further = {0}, unsynced = {0};    /* why: the first reason */
    if (!recorder->opened)
        recorder->opened = !ops->open || ops->open(logger, &run, &why) == PL_OK;
    int lost = recorder->opened ? 0 : records->count;
    for (int k = 0; recorder->opened && k < records->count; k++) {
        const pl_logged_t *logged = records->logged[k];
        pl_error_t *into = lost ? &further : &why;
        const int code = logged->weights ? weights_write(recorder, logged, into)
                                         : ops->log(logger, &logged->record, into);
        lost += code != PL_OK;
    }
    if (recorder->opened && ops->flush
        && ops->flush(logger, lost ? &further : &why) != PL_OK)
        lost = records->count;
    /* The position for a checkpoint: up to there all records are on the disk. */
    const bool synced = msg->sync && recorder->opened && ops->position
                        && (!ops->sync || ops->sync(logger, &unsynced) == PL_OK);
    char *position = synced ? ops->position(logger) : pl_text("%s", msg->position);
    if (!position)
        return pl_no_memory(err);
    if (msg->status)
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
        logger_close(recorder, PL_RUN_STATUS_NONE);
    pl_object_unref(recorder->component);
    recorder->component = NULL;
}

static void recorder_on_cancel(void *self, pl_call_t *call)
{
    if (!pl_is_life(self, call))
        return;
    recorder_release(self);                         /* here, to close it on this thread */
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
