/* reader.c - opens data sets and reads samples, on a thread of its own
 *
 * A read may block, in the kernel or in the user's own function.  Whatever a data set
 * gets wrong is said here: an error always names the data set and, when one of them alone
 * is at fault, the record. */
#include "actors/connectors/reader.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "runtime/cargo.h"

typedef struct reader {
    pl_dataset_t **opened;                                  /* counted; closed here */
    int opened_count, opened_room;
} reader_t;

static int reader_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    pl_actor_ready(self);
    return PL_OK;
}

static const char *dataset_name(const pl_dataset_t *dataset)
{
    return ((const pl_part_t *)dataset->part.ops)->name;
}

/* The code that a failed function of a data set stands for, with some text. */
static int dataset_fault(int code, pl_error_t *why)
{
    if (!why->text[0])
        pl_fail(why, PL_EUSER, "it failed without saying why");
    return code < 0 ? code : PL_EUSER;
}

/* ---- Opening ---- */

static int field_check(const pl_field_t *field, pl_error_t *err)
{
    if (!field->name[0] || !memchr(field->name, '\0', sizeof field->name))
        return pl_fail(err, PL_EUSER, "a field has no name, or one that is too long");
    if (field->dtype < PL_F32 || field->dtype > PL_U8)
        return pl_fail(err, PL_EUSER, "field \"%s\" has an unknown type", field->name);
    if (field->shape.rank < 0 || field->shape.rank >= PL_DIMS)
        return pl_fail(err, PL_EUSER, "field \"%s\" has %d axes; 0 to %d are possible",
                       field->name, field->shape.rank, PL_DIMS - 1);
    for (int axis = 0; axis < field->shape.rank; axis++)
        if (field->shape.dim[axis] < 1)
            return pl_fail(err, PL_EUSER, "axis %d of field \"%s\" is empty", axis,
                           field->name);
    return PL_OK;
}

static int info_check(const pl_data_info_t *info, pl_error_t *err)
{
    if (info->samples < 1)
        return pl_fail(err, PL_EFORMAT, "there are no samples in it");
    if (info->field_count < 1 || info->field_count > PL_FIELDS)
        return pl_fail(err, PL_EUSER, "it has %d fields; 1 to %d are possible",
                       info->field_count, PL_FIELDS);
    int code = PL_OK;
    for (int k = 0; k < info->field_count && code == PL_OK; k++)
        code = field_check(&info->field[k], err);
    return code;
}

static int dataset_open(pl_dataset_t *dataset, pl_error_t *err)
{
    const pl_dataset_ops_t *ops = dataset->part.ops;
    if (!ops->open || !ops->read)
        return pl_fail(err, PL_EUSER, "its table lacks open or read");
    dataset->opened = true;
    int code = ops->open(dataset->part.self, &dataset->request, &dataset->info, err);
    if (code != PL_OK)
        code = dataset_fault(code, err);
    else
        code = info_check(&dataset->info, err);
    return code;
}

static int reader_on_open(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    reader_t *reader = self;
    pl_dataset_t *dataset = (pl_dataset_t *)body->open_source.dataset;
    pl_error_t why = {0};
    if (PL_GROW(reader->opened, reader->opened_count, reader->opened_room) != PL_OK)
        return pl_no_memory(err);
    reader->opened[reader->opened_count++] = pl_object_ref(dataset);
    int code = dataset_open(dataset, &why);
    if (code != PL_OK)
        return pl_fail(err, code, "data set \"%s\": %s", dataset_name(dataset), why.text);
    return pl_reply_open_source(call, &(pl_open_source_reply_t){0});
}

/* ---- Reading ---- */

static int samples_read(const pl_batch_t *batch, int first, int count, pl_error_t *err)
{
    const pl_dataset_ops_t *ops = batch->dataset->part.ops;
    const pl_read_request_t request = {batch->index + first, count, batch->seed,
                                       batch->epoch, batch->stage};
    return ops->read(batch->dataset->part.self, &request, batch->field, err);
}

/* Reads one sample after the other to find the one at fault; -> its place or -1. */
static int fault_find(const pl_batch_t *batch, pl_error_t *why)
{
    for (int k = 0; k < batch->count; k++) {
        pl_error_t alone = {0};
        int code = samples_read(batch, k, 1, &alone);
        if (code == PL_OK)
            continue;
        dataset_fault(code, &alone);
        *why = alone;
        return k;
    }
    return -1;
}

static int batch_fail(const pl_batch_t *batch, int code, pl_error_t *why, pl_error_t *err)
{
    if (code == PL_ENOMEM)
        return pl_no_memory(err);
    const char *name = dataset_name(batch->dataset);
    code = dataset_fault(code, why);
    int k = fault_find(batch, why);
    if (k < 0)
        return pl_fail(err, code, "data set \"%s\", batch %u: %s", name, batch->batch_idx,
                       why->text);
    return pl_fail(err, code, "data set \"%s\", record %lld: %s", name,
                   (long long)batch->index[k], why->text);
}

static int reader_on_read(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    (void)self;
    const pl_batch_t *batch = (const pl_batch_t *)body->read_batch.batch;
    pl_error_t why = {0};
    int code = samples_read(batch, 0, (int)batch->count, &why);
    if (code != PL_OK)
        return batch_fail(batch, code, &why, err);
    return pl_reply_read_batch(call, &(pl_read_batch_reply_t){0});
}

/* ---- The end ---- */

static void reader_release(void *self)
{
    reader_t *reader = self;
    for (int k = 0; k < reader->opened_count; k++)
        pl_object_unref(reader->opened[k]);
    pl_free(reader->opened);
    *reader = (reader_t){0};
}

static void reader_on_cancel(void *self, pl_call_t *call)
{
    if (!pl_is_life(self, call))
        return;
    reader_release(self);                                   /* on this thread, for sure */
    pl_actor_end(self, NULL);
}

static const pl_handler_t reader_handlers[] = {
    PL_ON(start, reader_on_start),
    PL_ON(open_source, reader_on_open),
    PL_ON(read_batch, reader_on_read),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_io_reader = {
    .name = "io.reader",
    .help = "opens data sets and reads samples",
    .size = sizeof(reader_t),
    .level = PL_LEVEL_IO,
    .handlers = reader_handlers,
    .on_cancel = reader_on_cancel,
    .release = reader_release,
};
