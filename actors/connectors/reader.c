/* reader.c - opens data sets and reads samples, on a thread of its own
 *
 * A read may block, in the kernel or in the user's own function.  Faults of data sets are
 * reported here: an error always names the data set and, when a single record is at
 * fault, the record. */
#include "actors/connectors/connectors.h"

#include <math.h>
#include <string.h>

#include "actors/connectors/data_loaders.h"
#include "actors/connectors/datasets/datasets.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/resume_keys.h"
#include "formats/array.h"
#include "runtime/payload.h"

/* Progress is reported, and logged, at most so often. */
static const int64_t TELL = 50 * PL_MILLISECOND, LOG = 10 * PL_SECOND;

/* The opening on this thread, for pl_dataset_progress(). */
static _Thread_local struct {
    pl_call_t *call;                                        /* [none] */
    int64_t told, logged;                                   /* pl_now() */
} opening;

typedef struct opened_datasets {
    pl_dataset_t **opened;                                  /* counted; closed here */
    int opened_count, opened_capacity;
} opened_datasets_t;

static const char *dataset_name(const pl_dataset_t *dataset)
{
    return ((const pl_component_t *)dataset->component.ops)->name;
}

/* The error code for a failed function of a data set; its error gets a text. */
static int dataset_fault(int code, pl_error_t *why)
{
    if (!why->text[0])
        pl_fail(why, PL_EUSER, "it failed without an error text");
    return code < 0 ? code : PL_EUSER;
}

/* ---- Opening ---- */

bool pl_dataset_progress(void)
{
    const int64_t now = opening.call ? pl_now() : 0;
    if (!opening.call || now - opening.told < TELL)
        return false;
    opening.told = now;
    pl_progress_open_dataset(opening.call, &(pl_open_dataset_progress_t){0});
    const bool logs = now - opening.logged >= LOG;
    opening.logged = logs ? now : opening.logged;
    return logs;
}

static int info_check(const pl_data_info_t *info, bool may_be_empty, pl_error_t *err)
{
    if (info->samples < (may_be_empty ? 0 : 1))
        return pl_fail(err, PL_EFORMAT, "it has no samples");
    if (info->field_count < 1 || info->field_count > PL_FIELDS)
        return pl_fail(err, PL_EUSER, "it has %d fields; 1 to %d are possible",
                       info->field_count, PL_FIELDS);
    for (int k = 0; k < info->field_count; k++) {
        const pl_field_t *field = &info->field[k];
        if (!field->name[0] || !memchr(field->name, '\0', sizeof field->name))
            return pl_fail(err, PL_EUSER, "a field has no name, or one that is too long");
        if (field->dtype < PL_F32 || field->dtype > PL_U8)
            return pl_fail(err, PL_EUSER, "field \"%s\" has an unknown type",
                           field->name);
        if (field->shape.rank < 0 || field->shape.rank >= PL_DIMS)
            return pl_fail(err, PL_EUSER,
                           "field \"%s\" has %d axes; 0 to %d are possible", field->name,
                           field->shape.rank, PL_DIMS - 1);
        for (int axis = pl_varies(field); axis < field->shape.rank; axis++)
            if (field->shape.dim[axis] < 1)
                return pl_fail(err, PL_EUSER, "axis %d of field \"%s\" is empty", axis,
                               field->name);
    }
    return PL_OK;
}

/* ---- Samples of different length ---- */

/* Marks the samples' own positions in a batch; every such data set gets this field. */
#define MASK "mask"

/* If a field varies, adds the mask and reads the lengths of all samples. */
static int lengths_read(pl_dataset_t *dataset, pl_error_t *err)
{
    const pl_dataset_ops_t *ops = dataset->component.ops;
    pl_data_info_t *info = &dataset->info;
    bool varies = false;
    for (int k = 0; k < info->field_count; k++)
        varies = varies || pl_varies(&info->field[k]);
    if (!varies)
        return PL_OK;
    if (!ops->length)
        return pl_fail(err, PL_EUSER, "a field varies, but its table lacks length");
    for (int k = 0; k < info->field_count; k++)
        if (!strcmp(info->field[k].name, MASK))
            return pl_fail(err, PL_EUSER,
                           "it has a field \"" MASK "\", a name that is reserved where "
                           "samples vary in length");
    if (info->field_count == PL_FIELDS)
        return pl_fail(err, PL_EUSER,
                       "it has %d fields: with samples of different length one fewer is "
                       "possible",
                       PL_FIELDS);
    info->field[info->field_count++] =
        (pl_field_t){.name = MASK, .dtype = PL_F32, .shape = PL_SHAPE(PL_VARIES)};
    dataset->length = pl_alloc_array((size_t)info->samples, sizeof *dataset->length);
    if (!dataset->length)
        return pl_no_memory(err);
    for (int64_t i = 0; i < info->samples; i++) {
        int64_t length = ops->length(dataset->component.self, i);
        if (length < 1)
            return pl_fail(err, PL_EFORMAT,
                           "sample %lld has length %lld: the length must be at least 1",
                           (long long)i, (long long)length);
        dataset->length[i] = length;
        dataset->longest = length > dataset->longest ? length : dataset->longest;
    }
    return PL_OK;
}

/* "outputs" of the data info: the numbers of a target of values, for a module that
 * predicts without targets. */
static int outputs_add(pl_data_info_t *info, pl_error_t *err)
{
    int64_t outputs = 1;
    int y = 0;
    while (y < info->field_count && strcmp(info->field[y].name, "y"))
        y++;
    if (y == info->field_count || info->field[y].dtype != PL_F32
        || info->field[y].shape.rank == 0 || pl_varies(&info->field[y]))
        return PL_OK;
    for (int axis = 0; axis < info->field[y].shape.rank; axis++)
        outputs *= info->field[y].shape.dim[axis];
    const char *text = info->data_info ? info->data_info : "{}";
    json_t *known = pl_json_value(text, strlen(text), NULL);
    if (!json_is_object(known) || json_object_get(known, "outputs")) {
        json_decref(known);                     /* no object: reported where it is read */
        return PL_OK;
    }
    json_object_set_new(known, "outputs", json_integer(outputs));
    char *more = pl_json_to_text(known, err);
    if (!more)
        return PL_ENOMEM;
    pl_text_free(info->data_info);
    info->data_info = more;
    return PL_OK;
}

static int64_t elements_of(const pl_field_t *field, int64_t length)
{
    int64_t elements = pl_varies(field) ? length : 1;
    for (int axis = pl_varies(field); axis < field->shape.rank; axis++)
        elements *= field->shape.dim[axis];
    return elements;
}

static void fill(pl_dtype_t dtype, double value, int64_t count, void *at)
{
    for (int64_t i = 0; i < count; i++)
        switch (dtype) {
        case PL_F32: ((float *)at)[i] = (float)value; break;
        case PL_F64: ((double *)at)[i] = value; break;
        case PL_I32: ((int32_t *)at)[i] = (int32_t)value; break;
        case PL_I64: ((int64_t *)at)[i] = (int64_t)value; break;
        case PL_U8: ((uint8_t *)at)[i] = (uint8_t)value; break;
        default: break;                                /* data sets have no other types */
        }
}

/* ---- Targets, for a split that keeps the proportions of classes ---- */

#define TARGETS_AT_ONCE 256

/* The field "y" of one whole number for each sample; field_count: there is none. */
static int classes_field(const pl_data_info_t *info)
{
    int y = 0;
    while (y < info->field_count && strcmp(info->field[y].name, "y"))
        y++;
    const pl_dtype_t type = y < info->field_count ? info->field[y].dtype : PL_F32;
    return pl_is_integer(type) && !info->ordered && info->field[y].shape.rank == 0
               ? y
               : info->field_count;
}

static int targets_read(pl_dataset_t *dataset, pl_error_t *err)
{
    const pl_dataset_ops_t *ops = dataset->component.ops;
    const pl_data_info_t *info = &dataset->info;
    void *field[PL_FIELDS] = {0};
    const int y = classes_field(info);
    if (y == info->field_count)
        return pl_fail(err, PL_EINVAL,
                       "data.stratify needs classes: a field \"y\" of one whole number "
                       "for each sample; remove it, or make the targets classes");
    dataset->target = pl_alloc_array((size_t)info->samples, sizeof *dataset->target);
    int code = dataset->target ? PL_OK : pl_no_memory(err);
    const int64_t *labels = pl_dataset_labels(ops, dataset->component.self);
    if (code == PL_OK && labels) {
        memcpy(dataset->target, labels, (size_t)info->samples * sizeof *labels);
        return PL_OK;
    }
    for (int k = 0; k < info->field_count && code == PL_OK; k++) {
        const int64_t elements = elements_of(&info->field[k], dataset->longest);
        field[k] = pl_alloc_array(TARGETS_AT_ONCE * (size_t)elements, sizeof(int64_t));
        code = field[k] ? PL_OK : pl_no_memory(err);
    }
    for (int64_t from = 0; from < info->samples && code == PL_OK;
         from += TARGETS_AT_ONCE) {
        int64_t index[TARGETS_AT_ONCE];
        const int64_t left = info->samples - from;
        const int count = left < TARGETS_AT_ONCE ? (int)left : TARGETS_AT_ONCE;
        for (int i = 0; i < count; i++)
            index[i] = from + i;
        const pl_read_request_t request = {.index = index,
                                           .count = count,
                                           .seed = dataset->request.seed,
                                           .stage = dataset->request.stage,
                                           .length = dataset->longest};
        code = ops->read(dataset->component.self, &request, field, err);
        if (pl_dataset_progress())
            pl_log_line(PL_LOG_INFO, (int)dataset->request.rank, dataset_name(dataset),
                        "the classes of %lld of %lld samples are read", (long long)from,
                        (long long)info->samples);
        if (code != PL_OK)
            code = dataset_fault(code, err);
        for (int i = 0; i < count && code == PL_OK; i++)
            switch (info->field[y].dtype) {
            case PL_I64:
                dataset->target[from + i] = ((const int64_t *)field[y])[i];
                break;
            case PL_I32:
                dataset->target[from + i] = ((const int32_t *)field[y])[i];
                break;
            default: dataset->target[from + i] = ((const uint8_t *)field[y])[i]; break;
            }
    }
    for (int k = 0; k < info->field_count; k++)
        pl_free(field[k]);
    return code;
}

/* ---- A checksum of the samples ---- */

/* The sum covers samples as they are read, in order: so another file, format or
 * compression of the same samples is the same data.  It covers up to SUM_MAX bytes: of
 * larger data, blocks at even distances, with the first and the last samples among them.
 * So a start does not wait for a large file, and rows that were added, sorted or shuffled
 * change the sum. */
enum { SUM_MAX = 16 << 20, SUM_BLOCK = 64 };

/* The place of each field in memory for a block of samples, and the size of the block. */
static size_t block_layout(const pl_dataset_t *dataset, int count,
                           size_t at[PL_FIELDS + 1])
{
    const int64_t length = dataset->longest ? dataset->longest : 1;
    at[0] = 0;
    for (int k = 0; k < dataset->info.field_count; k++) {
        const pl_field_t *field = &dataset->info.field[k];
        const size_t bytes = (size_t)(count * elements_of(field, length))
                             * pl_dtype_size(field->dtype);
        at[k + 1] = at[k] + (bytes + 15) / 16 * 16;
    }
    return at[dataset->info.field_count];
}

/* A sample that cannot be read leaves no sum; training reports the error. */
static void dataset_sum(pl_dataset_t *dataset)
{
    const pl_dataset_ops_t *ops = dataset->component.ops;
    int64_t index[SUM_BLOCK];
    void *field[PL_FIELDS];
    size_t at[PL_FIELDS + 1];
    const size_t sample = block_layout(dataset, 1, at) + 1;
    const int64_t samples = dataset->info.samples;
    const int per_block = sample > SUM_MAX / SUM_BLOCK ? 1 : SUM_BLOCK;
    const int64_t all = (samples + per_block - 1) / per_block,
                  max = SUM_MAX / (int64_t)sample / per_block + 2,
                  blocks = all < max ? all : max;
    char *memory = samples ? pl_alloc(block_layout(dataset, per_block, at)) : NULL;
    bool whole = memory;
    for (int64_t k = 0; whole && k < blocks; k++) {
        pl_dataset_progress();
        const int64_t block = blocks == all ? k : k * (all - 1) / (blocks - 1),
                      first = block * per_block, left = samples - first;
        const int count = left < per_block ? (int)left : per_block;
        const size_t size = block_layout(dataset, count, at);
        const pl_read_request_t request = {.index = index,
                                           .count = count,
                                           .seed = dataset->request.seed,
                                           .stage = dataset->request.stage,
                                           .length = dataset->longest ? dataset->longest
                                                                      : 1};
        pl_error_t why = {0};
        for (int i = 0; i < count; i++)
            index[i] = first + i;
        for (int i = 0; i < dataset->info.field_count; i++)
            field[i] = memory + at[i];
        memset(memory, 0, size);
        whole = ops->read(dataset->component.self, &request, field, &why) == PL_OK;
        dataset->crc32c = pl_crc32c(dataset->crc32c, memory, size);
    }
    dataset->summed = whole;
    pl_free(memory);
}

int pl_dataset_open(pl_dataset_t *dataset, pl_error_t *err)
{
    const pl_dataset_ops_t *ops = dataset->component.ops;
    pl_error_t why = {0};
    int code = ops->open && ops->read
                   ? PL_OK
                   : pl_fail(&why, PL_EUSER, "its table lacks open or read");
    if (code == PL_OK) {
        dataset->opened = true;
        code = ops->open(dataset->component.self, &dataset->request, &dataset->info,
                         &why);
        code = code == PL_OK ? info_check(&dataset->info,
                                          pl_may_be_empty(dataset->request.stage), &why)
                             : dataset_fault(code, &why);
    }
    if (code == PL_OK)
        code = lengths_read(dataset, &why);
    if (code == PL_OK)
        code = outputs_add(&dataset->info, &why);
    if (code == PL_OK && dataset->request.val_split > 0 && dataset->request.stratify)
        code = targets_read(dataset, &why);
    else if (code == PL_OK && dataset->is_drawn
             && classes_field(&dataset->info) < dataset->info.field_count)
        code = targets_read(dataset, &why);
    return code == PL_OK ? PL_OK
                         : pl_fail(err, code, "data set \"%s\": %s",
                                   dataset_name(dataset), why.text);
}

static int reader_on_open(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    opened_datasets_t *reader = self;
    pl_dataset_t *dataset = (pl_dataset_t *)body->open_dataset.dataset;
    int kept = 0;                               /* data sets that have other references */
    for (int k = 0; k < reader->opened_count; k++)
        if (pl_object_is_ours(reader->opened[k]))
            pl_object_unref(reader->opened[k]);
        else
            reader->opened[kept++] = reader->opened[k];
    reader->opened_count = kept;
    if (PL_GROW(reader->opened, reader->opened_count, reader->opened_capacity) != PL_OK)
        return pl_no_memory(err);
    reader->opened[reader->opened_count++] = pl_object_ref(dataset);
    opening.call = call;
    opening.told = opening.logged = pl_now();
    const int code = pl_dataset_open(dataset, err);
    if (code == PL_OK && dataset->sums && pl_run_reads_files(dataset_name(dataset)))
        dataset_sum(dataset);
    opening.call = NULL;
    if (code != PL_OK)
        return code;
    return pl_reply_open_dataset(call, &(pl_open_dataset_reply_t){0});
}

/* ---- Reading ---- */

/* The sampler has checked the indices. */
static int samples_read(const pl_batch_t *batch, int first, int count, pl_error_t *err)
{
    const pl_dataset_ops_t *ops = batch->dataset->component.ops;
    const pl_read_request_t request = {batch->index + first, count,        batch->seed,
                                       batch->epoch,         batch->stage, batch->length};
    return ops->read(batch->dataset->component.self, &request, batch->field, err);
}

/* A loss with negative weights has no minimum, and one of NaN is NaN. */
static int weights_check(const pl_batch_t *batch, pl_error_t *err)
{
    const pl_data_info_t *info = &batch->dataset->info;
    for (int k = 0; k < info->field_count; k++) {
        const pl_field_t *field = &info->field[k];
        const float *weight = batch->field[k];
        if (strcmp(field->name, "weight") || field->dtype != PL_F32 || field->shape.rank)
            continue;
        for (int64_t i = 0; i < batch->count; i++)
            if (!(weight[i] >= 0 && isfinite(weight[i])))
                return pl_fail(
                    err, PL_EFORMAT,
                    "data set \"%s\", record %lld (from 0): field \"weight\" is "
                    "%g; the weight of a sample must be a number from 0",
                    dataset_name(batch->dataset), (long long)batch->index[i],
                    (double)weight[i]);
    }
    return PL_OK;
}

static int reader_on_read(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    (void)self;
    pl_batch_t *batch = (pl_batch_t *)body->read_batch.batch;
    pl_error_t why = {0};
    const int64_t began = pl_now();
    if (batch->dataset->length) {                /* padding; the mask is the last field */
        const pl_data_info_t *info = &batch->dataset->info;
        float *mask = batch->field[info->field_count - 1];
        for (int k = 0; k < info->field_count; k++)
            if (pl_varies(&info->field[k]))
                fill(info->field[k].dtype, info->padding[k],
                     batch->count * elements_of(&info->field[k], batch->length),
                     batch->field[k]);
        for (int64_t i = 0; i < batch->count; i++)
            for (int64_t t = 0; t < batch->dataset->length[batch->index[i]]; t++)
                mask[i * batch->length + t] = 1;
    }
    int code = samples_read(batch, 0, (int)batch->count, &why);
    batch->took = pl_now() - began;
    if (code == PL_ENOMEM)
        return pl_no_memory(err);
    if (code != PL_OK) {     /* one sample after the other, to find the record at fault */
        const char *name = dataset_name(batch->dataset);
        code = dataset_fault(code, &why);
        for (int k = 0; k < batch->count; k++) {
            pl_error_t alone = {0};
            const int fault = samples_read(batch, k, 1, &alone);
            if (fault == PL_OK)
                continue;
            dataset_fault(fault, &alone);
            return pl_fail(err, code, "data set \"%s\", record %lld: %s", name,
                           (long long)batch->index[k], alone.text);
        }
        return pl_fail(err, code, "data set \"%s\", batch %u: %s", name, batch->batch_idx,
                       why.text);
    }
    if (weights_check(batch, err) != PL_OK)
        return err->code;
    return pl_reply_read_batch(call, &(pl_read_batch_reply_t){0});
}

/* ---- The end ---- */

static void reader_release(void *self)
{
    opened_datasets_t *reader = self;
    for (int k = 0; k < reader->opened_count; k++)
        pl_object_unref(reader->opened[k]);
    pl_free(reader->opened);
    *reader = (opened_datasets_t){0};
}

static void reader_on_cancel(void *self, pl_call_t *call)
{
    if (!pl_is_life(self, call))
        return;
    reader_release(self);                    /* here, to close data sets on this thread */
    pl_actor_end(self, NULL);
}

static const pl_handler_t reader_handlers[] = {
    PL_ON(open_dataset, reader_on_open),
    PL_ON(read_batch, reader_on_read),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_io_reader = {
    .name = "io.reader",
    .help = "opens data sets and reads samples",
    .size = sizeof(opened_datasets_t),
    .level = PL_LEVEL_IO,
    .handlers = reader_handlers,
    .on_cancel = reader_on_cancel,
    .release = reader_release,
};
