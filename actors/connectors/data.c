/* data.c - the data connector: batches for the loops
 *
 * Readers open and read on threads of their own; this actor decides what they read and
 * the order in which batches are handed out.  Each reader receives little at a time, a
 * millisecond's work or two batches, so that a dropped iteration or the end of the run
 * waits for little. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/connectors/connectors.h"
#include "actors/connectors/data_loaders.h"
#include "actors/request.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run.h"

#define READER_AHEAD 8
#define READER_MIN 2                                        /* one is read, one waits */
#define WAITING_MAX 64                                      /* fetches */

typedef struct data_reader {
    pl_address_t at;
    pl_batch_t *batch[READER_AHEAD];      /* that it has to read; counted  [none] */
    int count, max;                       /* of them: now, and allowed */
    bool is_fed;                          /* it had max: it gets more when half is read */
} data_reader_t;

/* Fetches that wait for their batch, in order. */
typedef struct fetches {
    pl_call_t *call[WAITING_MAX];
    int count;
} fetches_t;

typedef struct data {
    pl_job_t *job;                                          /* counted */
    pl_data_loaders_t loaders;
    bool has_notice;                         /* loaders.notice is a descriptor */
    pl_call_t *opening;                      /* open_data, reload_data  [not now] */
    bool reloads;                            /* it is reload_data */
    const char *data_info;                   /* of that call */
    char *first_data_info;                   /* from the first opening  [none] */
    pl_loader_options_t loader;              /* with what the strategy has set; */
    pl_binding_t *binding;                   /* its texts */
    pl_batch_signature_t *signature;         /* from the first opening, counted  [none] */
    pl_prefetch_t queue[PL_DATA_LOADERS];
    fetches_t waiting[PL_DATA_LOADERS];
    data_reader_t *reader;
    int reader_count;
} data_t;

/* ---- The end ---- */

static void fetches_fail(fetches_t *fetches, const pl_error_t *error)
{
    for (int k = 0; k < fetches->count; k++)
        pl_call_fail(fetches->call[k], error);
    fetches->count = 0;
}

static void queues_close(data_t *data)
{
    for (int k = 0; k < PL_DATA_LOADERS; k++)
        pl_prefetch_close(&data->queue[k]);
}

/* Drops all references to data sets.  The readers, which end next, then have the last
 * ones and close the data sets on their threads. */
static void data_drop(data_t *data)
{
    queues_close(data);
    pl_data_loaders_release(&data->loaders);
    for (int k = 0; k < data->reader_count; k++) {
        data->reader[k].count = 0;
        data->reader[k].is_fed = false;
        for (int slot = 0; slot < READER_AHEAD; slot++) {
            pl_object_unref(data->reader[k].batch[slot]);
            data->reader[k].batch[slot] = NULL;
        }
    }
}

static void data_end(data_t *data, const pl_error_t *error)
{
    pl_error_t gone;
    pl_fail(&gone, PL_ECANCELLED, "the data connector ends");
    for (int k = 0; k < PL_DATA_LOADERS; k++)
        fetches_fail(&data->waiting[k], error ? error : &gone);
    if (data->opening)
        pl_call_fail(data->opening, error ? error : &gone);
    data_drop(data);
    pl_actor_end(data, error);
}

static void data_release(void *self)
{
    data_t *data = self;
    data_drop(data);
    if (data->has_notice)
        close(data->loaders.notice);
    pl_free(data->reader);
    pl_free(data->first_data_info);
    pl_binding_free(data->binding);
    pl_object_unref(data->signature);
    pl_object_unref(data->job);
}

/* ---- The start ---- */

static void data_advance(data_t *data);

/* A reader lives as long as this actor does. */
static void data_on_reader_end(void *self, const pl_answer_t *answer)
{
    pl_error_t gone;
    pl_fail(&gone, PL_EPEER, "a data reader ended unexpectedly");
    if (answer->kind == PL_ANSWER_ERROR)
        data_end(self, answer->error);
    else if (answer->kind == PL_ANSWER_REPLY)
        data_end(self, &gone);
}

/* A batch has come back to a pool that had none left. */
static void data_on_notice(void *self)
{
    data_t *data = self;
    eventfd_t times;
    eventfd_read(data->loaders.notice, &times);
    data_advance(data);
}

static int data_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    (void)call;
    data_t *data = self;
    const pl_how_t how = {.on_answer = data_on_reader_end};
    const pl_start_t start = {.options = ""};
    data->job = pl_object_ref(body->start.context);
    data->loaders.job = data->job;
    const int notice = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (notice < 0)
        return pl_fail(err, PL_EIO,
                       "no descriptor is left: %s; raise the limit of open files "
                       "(ulimit -n)",
                       strerror(errno));
    data->loaders.notice = notice;
    data->has_notice = true;
    if (pl_watch(data, notice, data_on_notice, err) != PL_OK)
        return err->code;
    int64_t workers = data->job->data->workers;
    data->reader = pl_alloc_array((size_t)workers, sizeof *data->reader);
    if (!data->reader)
        return pl_no_memory(err);
    for (; data->reader_count < workers; data->reader_count++) {
        data->reader[data->reader_count].max = READER_MIN;
        if (!pl_spawn(self, &pl_io_reader, PL_OWN_THREAD, &start, how,
                      &data->reader[data->reader_count].at, err))
            return err->code;
    }
    pl_actor_ready(self);
    return PL_OK;
}

/* ---- Opening ---- */

static int source_open(data_t *data, pl_stage_t stage, uint32_t loader, pl_error_t *err);

static void open_fail(data_t *data, const pl_error_t *error)
{
    pl_call_t *call = data->opening;
    data->opening = NULL;
    pl_data_loaders_release(&data->loaders);
    pl_call_fail(call, error);
}

/* Warns that every step takes all samples, which is seldom intended. */
static void batch_size_warn(data_t *data)
{
    const pl_prefetch_t *queue = &data->queue[PL_TRAIN];
    const pl_sampler_partition_t *partition = &data->loaders.partition;
    const int64_t ranks = partition->micro_shards ? partition->micro_shards
                                                  : partition->partitions,
                  size = data->job->data->batch_size;
    if (!queue->dataset || partition->partition || data->job->tuning.num_training
        || queue->sampler.count / ranks >= size)
        return;
    char per_rank[64] = "";
    if (ranks > 1)
        snprintf(per_rank, sizeof per_rank, " for each of %lld %s", (long long)ranks,
                 partition->micro_shards ? "micro-shards" : "ranks");
    pl_log_line(PL_LOG_WARNING, pl_actor_rank(data), pl_actor_name(data),
                "data.batch_size is %lld%s, more than the %lld training sample%s: an "
                "epoch is one step; lower it",
                (long long)size, per_rank, (long long)queue->sampler.count,
                pl_plural(queue->sampler.count));
}

/* All data sets are open: makes their queues and replies. */
static void open_done(data_t *data)
{
    pl_batch_signature_t *signature = NULL;
    const char *data_info = NULL;
    char *content = NULL;
    pl_error_t err = {0};
    pl_call_t *call = data->opening;
    int code = pl_data_loaders_open_queues(&data->loaders, data->queue, &signature,
                                           &data_info, &err);
    if (code == PL_OK && data->reloads)
        code = pl_data_loaders_check_same(data->signature, data->first_data_info,
                                          signature, data_info, &err);
    if (code == PL_OK && !data->reloads) {
        data->signature = pl_object_ref(signature);
        data->first_data_info = pl_strdup(data_info);
        code = data->first_data_info ? PL_OK : pl_no_memory(&err);
    }
    if (code == PL_OK && data->loaders.sums) {
        content = pl_data_loaders_content(&data->loaders, &err);
        code = content ? PL_OK : err.code;
    }
    if (code != PL_OK) {
        pl_object_unref(signature);
        queues_close(data);
        open_fail(data, &err);
        return;
    }
    data->opening = NULL;
    if (data->reloads) {
        pl_reply_reload_data(call,
                             &(pl_reload_data_reply_t){.signature = &signature->object});
    } else {
        if (pl_data_loaders_tests_training(&data->loaders))
            pl_log_line(PL_LOG_WARNING, pl_actor_rank(data), pl_actor_name(data),
                        "the test uses all samples of the source for training%s: if "
                        "these weights were trained on it, the metrics say little about "
                        "other data; data.test names another source",
                        data->job->data->val_split > 0 ? " and validation" : "");
        batch_size_warn(data);
        pl_reply_open_data(call,
                           &(pl_open_data_reply_t){.data_info = data_info,
                                                   .content = content ? content : "",
                                                   .signature = &signature->object});
    }
    pl_text_free(content);
    pl_object_unref(signature);
}

static void data_on_source(void *self, const pl_answer_t *answer)
{
    data_t *data = self;
    pl_error_t err = {0};
    const pl_dataset_t *opened = answer->context;
    if (answer->kind == PL_ANSWER_ERROR) {
        pl_data_loaders_error(&data->loaders, opened, answer->error, &err);
        open_fail(data, &err);
    }
    if (answer->kind == PL_ANSWER_PROGRESS && data->opening && data->reloads)
        pl_progress_reload_data(data->opening, &(pl_reload_data_progress_t){0});
    else if (answer->kind == PL_ANSWER_PROGRESS && data->opening)
        pl_progress_open_data(data->opening, &(pl_open_data_progress_t){0});
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    pl_stage_t stage = opened->request.stage;
    uint32_t loader = 0;
    if (stage == PL_TRAIN && pl_data_loaders_validation_is_separate(&data->loaders))
        stage = PL_VALIDATE;
    else
        while (data->loaders.dataset[pl_data_loader_index(stage, loader)])
            loader++;
    if (stage == PL_TRAIN || loader == pl_data_loaders_count(&data->loaders, stage))
        open_done(data);
    else if (source_open(data, stage, loader, &err) != PL_OK)
        open_fail(data, &err);
}

static int source_open(data_t *data, pl_stage_t stage, uint32_t loader, pl_error_t *err)
{
    if (pl_data_loaders_prepare(&data->loaders, stage, loader, data->data_info, err)
        != PL_OK)
        return err->code;
    pl_dataset_t *dataset = data->loaders.dataset[pl_data_loader_index(stage, loader)];
    const pl_open_dataset_t fields = {.dataset = &dataset->object};
    const pl_how_t how = {.on_answer = data_on_source, .context = dataset};
    return pl_call_open_dataset(data, data->reader[0].at, &fields, how, err) ? PL_OK
                                                                             : err->code;
}

/* Opens the data sets, one after the other; the last one ends the call. */
static int sources_open(data_t *data, pl_call_t *call, const char *data_info,
                        pl_error_t *err)
{
    data->data_info = data_info;
    int code = source_open(data, pl_data_loaders_first(&data->loaders), 0, err);
    if (code == PL_OK)
        data->opening = call;
    else
        pl_data_loaders_release(&data->loaders);
    return code;
}

static int data_on_open(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    data_t *data = self;
    const pl_open_data_t *open = &body->open_data;
    bool is_open = data->opening;
    for (int k = 0; k < PL_DATA_LOADERS; k++)
        is_open = is_open || data->loaders.dataset[k];
    if (is_open)
        return pl_fail(err, PL_ESTATE, "the data is already open");
    if (open->stage >= PL_STAGES)
        return pl_fail(err, PL_EINVAL, "there is no stage %u", open->stage);
    if (open->partition >= open->partitions)
        return pl_fail(err, PL_EINVAL, "there is no partition %u of %u", open->partition,
                       open->partitions);
    data->loaders.stage = (pl_stage_t)open->stage;
    data->loaders.partition = (pl_sampler_partition_t){open->partition, open->partitions,
                                                       open->even, open->micro_shards};
    data->loaders.sums = data->loaders.stage == PL_TRAIN && pl_actor_rank(data) <= 0
                         && pl_request_writes(data->job);
    pl_binding_free(data->binding);
    data->binding = NULL;
    data->loaders.loader = &data->loader;
    return pl_loader_bind(data->job, open->loader, &data->loader, &data->binding, err)
                   == PL_OK
               ? sources_open(data, call, open->data_info, err)
               : err->code;
}

/* Batches that are still being read are dropped with their iteration. */
static int data_on_reload(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    data_t *data = self;
    if (data->opening || !data->first_data_info)
        return pl_fail(err, PL_ESTATE, "the data is not open");
    queues_close(data);
    pl_data_loaders_release(&data->loaders);
    data->loaders.batch_size = (int64_t)body->reload_data.batch_size;
    data->loaders.sums = false;
    data->reloads = true;
    return sources_open(data, call, data->first_data_info, err);
}

/* ---- Reading and handing out ---- */

static void data_on_batch(void *self, const pl_answer_t *answer)
{
    data_t *data = self;
    pl_batch_t *batch = answer->context;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    /* The number of batches that the reader reads in a millisecond, by the time of the
     * last one. */
    const int64_t many = PL_MILLISECOND / (batch->took + 1);
    const int max = many < READER_MIN     ? READER_MIN
                    : many > READER_AHEAD ? READER_AHEAD
                                          : (int)many;
    for (data_reader_t *reader = data->reader; reader < data->reader + data->reader_count;
         reader++)
        for (int slot = 0; slot < READER_AHEAD; slot++)
            if (reader->batch[slot] == batch) {
                reader->batch[slot] = NULL;
                reader->count--;
                reader->max = max;
                reader->is_fed &= 2 * reader->count > max;
            }
    pl_prefetch_batch_read(
        &data->queue[pl_data_loader_index(batch->stage, batch->loader)], batch,
        answer->kind == PL_ANSWER_ERROR ? answer->error : NULL);
    pl_object_unref(batch);
    data_advance(data);
}

/* Sends batches to the readers: to the one with the fewest of those that may get more.  A
 * reader gets batches in groups, because each batch that is sent alone wakes a thread
 * twice.  A batch that cannot be sent fails in its place. */
static void queue_read_ahead(data_t *data, pl_prefetch_t *queue, int waiting)
{
    for (;;) {
        data_reader_t *reader = NULL;
        for (data_reader_t *r = data->reader; r < data->reader + data->reader_count; r++)
            if (!r->is_fed && r->count < r->max && (!reader || r->count < reader->count))
                reader = r;
        pl_error_t err = {0};
        pl_batch_t *batch = reader ? pl_prefetch_next(queue, (uint32_t)waiting) : NULL;
        if (!batch)
            return;
        const pl_read_batch_t fields = {.batch = &batch->object};
        const pl_how_t how = {.on_answer = data_on_batch, .context = batch};
        if (!pl_call_read_batch(data, reader->at, &fields, how, &err)) {
            pl_prefetch_batch_read(queue, batch, &err);
            pl_object_unref(batch);
            continue;
        }
        int slot = 0;
        while (reader->batch[slot])
            slot++;
        reader->batch[slot] = batch;
        reader->count++;
        reader->is_fed = reader->count >= reader->max;
    }
}

static void queue_hand_out(pl_prefetch_t *queue, fetches_t *fetches)
{
    while (fetches->count && pl_prefetch_is_ready(queue)) {
        pl_error_t err = {0};
        pl_batch_t *batch;
        pl_call_t *call = fetches->call[0];
        fetches->count--;
        for (int k = 0; k < fetches->count; k++)
            fetches->call[k] = fetches->call[k + 1];
        if (pl_prefetch_take(queue, &batch, &err) != PL_OK) {
            pl_call_fail(call, &err);
            continue;
        }
        pl_fetch_batch_reply_t reply = {0};
        if (batch)
            reply = (pl_fetch_batch_reply_t){&batch->object, batch->batch_idx,
                                             (uint32_t)batch->count};
        pl_reply_fetch_batch(call, &reply);
        pl_object_unref(batch);
    }
}

/* Reads ahead and hands out batches that are ready.  Later stages come first: while a run
 * validates, it does not train. */
static void data_advance(data_t *data)
{
    for (int k = PL_DATA_LOADERS - 1; k >= 0; k--) {
        bool more = true;
        pl_prefetch_t *queue = &data->queue[k];
        while (more) {                          /* a batch that is taken frees its slot */
            uint32_t taken = queue->to_take;
            queue_read_ahead(data, queue, data->waiting[k].count);
            queue_hand_out(queue, &data->waiting[k]);
            more = queue->to_take != taken;
        }
    }
}

/* ---- Iterations ---- */

/* The queue of a stage that has data. */
static pl_prefetch_t *queue_of(data_t *data, uint32_t stage, uint32_t loader,
                               pl_error_t *err)
{
    if (stage >= PL_STAGES || loader >= PL_LOADERS_MAX) {
        pl_fail(err, PL_EINVAL, "there is no stage %u with a source %u", stage, loader);
        return NULL;
    }
    pl_prefetch_t *queue = &data->queue[pl_data_loader_index((pl_stage_t)stage, loader)];
    if (queue->dataset && queue->stage == (pl_stage_t)stage)
        return queue;
    pl_fail(err, PL_ESTATE, "there is no %s data open", pl_stages[stage].data);
    return NULL;
}

static int data_on_begin(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    data_t *data = self;
    const pl_begin_t *begin = &body->begin;
    pl_error_t dropped;
    pl_prefetch_t *queue = queue_of(data, begin->stage, begin->loader, err);
    if (!queue)
        return err->code;
    pl_fail(&dropped, PL_ECANCELLED, "the %s data is read from its start again",
            pl_stages[begin->stage].data);
    fetches_fail(&data->waiting[queue - data->queue], &dropped);
    pl_prefetch_begin(queue, &(pl_prefetch_iter_t){.epoch = begin->epoch,
                                                   .first = begin->first,
                                                   .again = begin->again});
    const pl_begin_reply_t reply = {.batches = queue->batches,
                                    .loaders = pl_data_loaders_count(&data->loaders,
                                                                     queue->stage)};
    return pl_reply_begin(call, &reply);
}

static int data_on_fetch(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    data_t *data = self;
    uint32_t stage = body->fetch_batch.stage;
    pl_prefetch_t *queue = queue_of(data, stage, body->fetch_batch.loader, err);
    if (!queue)
        return err->code;
    if (!queue->begun)
        return pl_fail(err, PL_ESTATE, "reading of the %s data has not begun",
                       pl_stages[stage].data);
    fetches_t *fetches = &data->waiting[queue - data->queue];
    if (fetches->count == WAITING_MAX)
        return pl_fail(err, PL_EBUSY, "%d fetches are already waiting", WAITING_MAX);
    fetches->call[fetches->count++] = call;
    pl_prefetch_request(queue, body->fetch_batch.until);
    data_advance(data);
    return PL_OK;
}

static void data_on_cancel(void *self, pl_call_t *call)
{
    data_t *data = self;
    pl_error_t cancelled;
    if (pl_is_life(self, call)) {
        data_end(data, NULL);
        return;
    }
    pl_fail(&cancelled, PL_ECANCELLED, "the fetch was cancelled; its batch comes next");
    for (int stage = 0; stage < PL_DATA_LOADERS; stage++) {
        fetches_t *fetches = &data->waiting[stage];
        int kept = 0;
        for (int k = 0; k < fetches->count; k++)
            if (fetches->call[k] != call)
                fetches->call[kept++] = fetches->call[k];
        if (kept < fetches->count)
            pl_call_fail(call, &cancelled);
        fetches->count = kept;
    }
}

static const pl_handler_t data_handlers[] = {
    PL_ON(start, data_on_start),        PL_ON(open_data, data_on_open),
    PL_ON(reload_data, data_on_reload), PL_ON(begin, data_on_begin),
    PL_ON(fetch_batch, data_on_fetch),  PL_HANDLERS_END,
};

const pl_actor_ops_t pl_data_connector = {
    .name = "connector.data",
    .help = "reads batches ahead for the loops",
    .size = sizeof(data_t),
    .level = PL_LEVEL_CONNECTOR,
    .handlers = data_handlers,
    .on_cancel = data_on_cancel,
    .release = data_release,
};
