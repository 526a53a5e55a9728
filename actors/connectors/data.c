/* data.c - the data connector: batches for the loops
 *
 * Readers open and read on threads of their own; here is decided what they read, and in
 * which order it is handed out.  Each reader is given little at a time, a millisecond's
 * work or two batches, so that a dropped pass or the end of the run waits for little. */
#include "actors/connectors/data.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/connectors/reader.h"
#include "actors/connectors/sources.h"
#include "actors/request.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run.h"
#include "base/stages.h"

#define READER_AHEAD 8
#define READER_LEAST 2                                      /* one is read, one waits */
#define WAITING_MOST 64                                     /* fetches */

typedef struct reader {
    pl_address_t at;
    int most, with;                        /* batches: to be with it, that are */
    bool is_fed;                           /* it had as many: no more till half is read */
    pl_batch_t *batch[READER_AHEAD];       /* with it; counted */
} reader_t;

/* Fetches that wait for their batch, in order. */
typedef struct queue {
    pl_call_t *call[WAITING_MOST];
    int count;
} queue_t;

typedef struct data {
    pl_job_t *job;                                          /* counted */
    pl_sources_t sources;
    bool has_notice;                              /* sources.notice is a descriptor */
    pl_call_t *opening;                           /* open_data, reload_data  [not now] */
    const char *facts;                            /* of that call */
    bool reloads;                                 /* it is the latter */
    char *known;                                  /* facts of the first opening  [none] */
    pl_layout_t *layout;                          /* of it, counted  [none] */
    pl_feed_t feed[PL_SOURCES];
    queue_t waiting[PL_SOURCES];
    reader_t *reader;
    int reader_count;
} data_t;

/* ---- The end ---- */

static void queue_fail(queue_t *queue, const pl_error_t *error)
{
    for (int k = 0; k < queue->count; k++)
        pl_call_fail(queue->call[k], error);
    queue->count = 0;
}

static void feeds_close(data_t *data)
{
    for (int stage = 0; stage < PL_SOURCES; stage++)
        pl_feed_close(&data->feed[stage]);
}

/* Drops all that refers to a data set: the readers, which end next, are to have the last
 * reference, so that it is closed on their thread. */
static void data_drop(data_t *data)
{
    feeds_close(data);
    pl_sources_drop(&data->sources);
    for (int k = 0; k < data->reader_count; k++) {
        data->reader[k].with = 0;
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
    for (int stage = 0; stage < PL_SOURCES; stage++)
        queue_fail(&data->waiting[stage], error ? error : &gone);
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
        close(data->sources.notice);
    pl_free(data->reader);
    pl_free(data->known);
    pl_object_unref(data->layout);
    pl_object_unref(data->job);
}

/* ---- The start ---- */

static void data_go_on(data_t *data);

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

/* Whoever kept all batches has dropped one. */
static void data_on_notice(void *self)
{
    data_t *data = self;
    eventfd_t times;
    eventfd_read(data->sources.notice, &times);
    data_go_on(data);
}

static int notice_open(data_t *data, pl_error_t *err)
{
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0)
        return pl_fail(err, PL_EIO,
                       "no descriptor is left: %s; raise the limit of open files "
                       "(ulimit -n)",
                       strerror(errno));
    data->sources.notice = fd;
    data->has_notice = true;
    return pl_watch(data, fd, data_on_notice, err);
}

static int data_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    (void)call;
    data_t *data = self;
    const pl_how_t how = {.on_answer = data_on_reader_end};
    const pl_start_t start = {.options = ""};
    data->job = pl_object_ref(body->start.context);
    data->sources.job = data->job;
    if (notice_open(data, err) != PL_OK)
        return err->code;
    int64_t workers = data->job->data->workers;
    data->reader = pl_alloc_array((size_t)workers, sizeof *data->reader);
    if (!data->reader)
        return pl_no_memory(err);
    for (; data->reader_count < workers; data->reader_count++) {
        data->reader[data->reader_count].most = READER_LEAST;
        if (!pl_spawn(self, &pl_io_reader, PL_OWN_THREAD, &start, how,
                      &data->reader[data->reader_count].at, err))
            return err->code;
    }
    pl_actor_ready(self);
    return PL_OK;
}

/* ---- Opening ---- */

static int source_open(data_t *data, pl_stage_t stage, uint32_t loader, const char *facts,
                       pl_error_t *err);

static void open_fail(data_t *data, const pl_error_t *error)
{
    pl_call_t *call = data->opening;
    data->opening = NULL;
    pl_sources_drop(&data->sources);
    pl_call_fail(call, error);
}

/* What the first opening gave holds for all that follow. */
static int open_keep(data_t *data, pl_layout_t *layout, const char *facts,
                     pl_error_t *err)
{
    if (data->reloads)
        return pl_sources_same(data->layout, data->known, layout, facts, err);
    data->layout = pl_object_ref(layout);
    data->known = pl_strdup(facts);
    return data->known ? PL_OK : pl_no_memory(err);
}

/* Every step takes all samples then, which is seldom meant. */
static void batch_size_warn(data_t *data)
{
    const pl_feed_t *feed = &data->feed[PL_TRAIN];
    const pl_deal_t *deal = &data->sources.deal;
    const int64_t ranks = deal->micro_shards ? deal->micro_shards : deal->partitions,
                  size = data->job->data->batch_size;
    if (!feed->dataset || deal->partition || data->job->tuning.num_training
        || feed->order.count / ranks >= size)
        return;
    char each[64] = "";
    if (ranks > 1)
        snprintf(each, sizeof each, " for each of %lld %s", (long long)ranks,
                 deal->micro_shards ? "micro-shards" : "ranks");
    pl_log_line(PL_LOG_WARNING, pl_actor_rank(data), pl_actor_name(data),
                "data.batch_size is %lld%s, more than the %lld training sample%s: an "
                "epoch is one step; lower it",
                (long long)size, each, (long long)feed->order.count,
                pl_plural(feed->order.count));
}

static void open_done(data_t *data)
{
    pl_layout_t *layout = NULL;
    const char *facts = NULL;
    pl_error_t err = {0};
    pl_call_t *call = data->opening;
    int code = pl_sources_feeds(&data->sources, data->feed, &layout, &facts, &err);
    if (code == PL_OK)
        code = open_keep(data, layout, facts, &err);
    char *content = code == PL_OK && data->sources.sums
                        ? pl_sources_content(&data->sources, &err)
                        : NULL;
    if (code == PL_OK && data->sources.sums && !content)
        code = err.code;
    if (code != PL_OK) {
        pl_object_unref(layout);
        feeds_close(data);
        open_fail(data, &err);
        return;
    }
    if (!data->reloads && pl_sources_tests_training(&data->sources))
        pl_log_line(
            PL_LOG_WARNING, pl_actor_rank(data), pl_actor_name(data),
            "the test uses all samples of the source that this run trains%s on, so its "
            "metrics say little about other data: set data.test",
            data->job->data->val_split > 0 ? " and validates" : "");
    if (!data->reloads)
        batch_size_warn(data);
    data->opening = NULL;
    if (data->reloads)
        pl_reply_reload_data(call, &(pl_reload_data_reply_t){.layout = &layout->object});
    else
        pl_reply_open_data(call,
                           &(pl_open_data_reply_t){.facts = facts,
                                                   .content = content ? content : "",
                                                   .layout = &layout->object});
    pl_text_free(content);
    pl_object_unref(layout);
}

static void data_on_source(void *self, const pl_answer_t *answer)
{
    data_t *data = self;
    pl_error_t err = {0};
    const pl_dataset_t *opened = answer->context;
    if (answer->kind == PL_ANSWER_ERROR) {
        pl_sources_blame(&data->sources, opened, answer->error, &err);
        open_fail(data, &err);
    }
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    pl_stage_t stage = opened->request.stage;
    uint32_t loader = 0;
    if (stage == PL_TRAIN && pl_sources_validation_is_apart(&data->sources))
        stage = PL_VALIDATE;
    else
        while (data->sources.dataset[pl_source_place(stage, loader)])
            loader++;
    if (stage == PL_TRAIN || loader == pl_sources_loaders(&data->sources, stage))
        open_done(data);
    else if (source_open(data, stage, loader, data->facts, &err) != PL_OK)
        open_fail(data, &err);
}

static int source_open(data_t *data, pl_stage_t stage, uint32_t loader, const char *facts,
                       pl_error_t *err)
{
    int code = pl_sources_prepare(&data->sources, stage, loader, facts, err);
    if (code != PL_OK)
        return code;
    pl_dataset_t *dataset = data->sources.dataset[pl_source_place(stage, loader)];
    const pl_open_source_t fields = {.dataset = &dataset->object};
    const pl_how_t how = {.on_answer = data_on_source, .context = dataset};
    return pl_call_open_source(data, data->reader[0].at, &fields, how, err) ? PL_OK
                                                                            : err->code;
}

static bool data_is_open(const data_t *data)
{
    bool open = data->opening;
    for (int stage = 0; stage < PL_SOURCES; stage++)
        open = open || data->sources.dataset[stage];
    return open;
}

static int data_on_open(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    data_t *data = self;
    if (data_is_open(data))
        return pl_fail(err, PL_ESTATE, "the data is already open");
    if (body->open_data.stage >= PL_STAGES)
        return pl_fail(err, PL_EINVAL, "there is no stage %u", body->open_data.stage);
    if (body->open_data.partition >= body->open_data.partitions)
        return pl_fail(err, PL_EINVAL, "there is no part %u of %u",
                       body->open_data.partition, body->open_data.partitions);
    data->sources.wanted = (pl_stage_t)body->open_data.stage;
    data->sources.deal = (pl_deal_t){body->open_data.partition,
                                     body->open_data.partitions, body->open_data.even,
                                     body->open_data.micro_shards};
    data->facts = body->open_data.facts;
    data->sources.sums = data->sources.wanted == PL_TRAIN && pl_actor_rank(data) <= 0
                         && pl_request_writes(data->job);
    int code = source_open(data, pl_sources_first(&data->sources), 0, data->facts, err);
    if (code == PL_OK)
        data->opening = call;
    else
        pl_sources_drop(&data->sources);
    return code;
}

/* Batches that are still being read are dropped with their pass. */
static int data_on_reload(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    data_t *data = self;
    if (data->opening || !data->known)
        return pl_fail(err, PL_ESTATE, "the data is not open");
    feeds_close(data);
    pl_sources_drop(&data->sources);
    data->sources.batch_size = (int64_t)body->reload_data.batch_size;
    data->reloads = true;
    data->sources.sums = false;
    data->facts = data->known;
    int code = source_open(data, pl_sources_first(&data->sources), 0, data->facts, err);
    if (code == PL_OK)
        data->opening = call;
    else
        pl_sources_drop(&data->sources);
    return code;
}

/* ---- Reading and handing out ---- */

static pl_feed_t *feed_of_batch(data_t *data, const pl_batch_t *batch)
{
    return &data->feed[pl_source_place(batch->stage, batch->loader)];
}

/* As many as it reads in a millisecond, by the last. */
static int reader_most(const pl_batch_t *read)
{
    const int64_t many = PL_MILLISECOND / (read->took + 1);
    return many < READER_LEAST   ? READER_LEAST
           : many > READER_AHEAD ? READER_AHEAD
                                 : (int)many;
}

static void reader_done(data_t *data, const pl_batch_t *batch)
{
    for (int k = 0; k < data->reader_count; k++)
        for (int slot = 0; slot < READER_AHEAD; slot++)
            if (data->reader[k].batch[slot] == batch) {
                reader_t *reader = &data->reader[k];
                reader->batch[slot] = NULL;
                reader->with--;
                reader->most = reader_most(batch);
                reader->is_fed &= 2 * reader->with > reader->most;
            }
}

/* The one with the least to do of those that may have more, or NULL.  Batches go to a
 * reader in company, because each that goes alone wakes a thread here and there. */
static reader_t *reader_free(data_t *data)
{
    reader_t *least = NULL;
    for (int k = 0; k < data->reader_count; k++) {
        reader_t *reader = &data->reader[k];
        if (!reader->is_fed && reader->with < reader->most
            && (!least || reader->with < least->with))
            least = reader;
    }
    return least;
}

static void reader_given(reader_t *reader, pl_batch_t *batch)
{
    int slot = 0;
    while (reader->batch[slot])
        slot++;
    reader->batch[slot] = batch;
    reader->with++;
    reader->is_fed = reader->with >= reader->most;
}

static void data_on_batch(void *self, const pl_answer_t *answer)
{
    data_t *data = self;
    pl_batch_t *batch = answer->context;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    bool failed = answer->kind == PL_ANSWER_ERROR;
    reader_done(data, batch);
    pl_feed_read(feed_of_batch(data, batch), batch, failed ? answer->error : NULL);
    pl_object_unref(batch);
    data_go_on(data);
}

/* Has a batch read; a failure comes out in the batch's place. */
static void batch_read(data_t *data, reader_t *reader, pl_batch_t *batch)
{
    pl_error_t err = {0};
    const pl_read_batch_t fields = {.batch = &batch->object};
    const pl_how_t how = {.on_answer = data_on_batch, .context = batch};
    if (pl_call_read_batch(data, reader->at, &fields, how, &err)) {
        reader_given(reader, batch);
        return;
    }
    pl_feed_read(feed_of_batch(data, batch), batch, &err);
    pl_object_unref(batch);
}

/* Gives the readers what they can take. */
static void feed_read_on(data_t *data, pl_feed_t *feed, int waiting)
{
    for (reader_t *reader; (reader = reader_free(data));) {
        pl_batch_t *batch = pl_feed_next(feed, (uint32_t)waiting);
        if (!batch)
            return;
        batch_read(data, reader, batch);
    }
}

static void feed_hand_out(pl_feed_t *feed, queue_t *queue)
{
    while (queue->count && pl_feed_ready(feed)) {
        pl_error_t err = {0};
        pl_batch_t *batch;
        pl_call_t *call = queue->call[0];
        queue->count--;
        for (int k = 0; k < queue->count; k++)
            queue->call[k] = queue->call[k + 1];
        if (pl_feed_take(feed, &batch, &err) != PL_OK) {
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

/* Later stages first: who validates does not train meanwhile. */
static void data_go_on(data_t *data)
{
    for (int stage = PL_SOURCES - 1; stage >= 0; stage--) {
        bool more = true;
        pl_feed_t *feed = &data->feed[stage];
        while (more) {                                      /* what is taken makes room */
            uint32_t taken = feed->to_take;
            feed_read_on(data, feed, data->waiting[stage].count);
            feed_hand_out(feed, &data->waiting[stage]);
            more = feed->to_take != taken;
        }
    }
}

/* ---- Passes ---- */

/* The feed of a stage that has data. */
static pl_feed_t *feed_of(data_t *data, uint32_t stage, uint32_t loader, pl_error_t *err)
{
    if (stage >= PL_STAGES || loader >= PL_LOADERS_MOST) {
        pl_fail(err, PL_EINVAL, "there is no stage %u with a source %u", stage, loader);
        return NULL;
    }
    pl_feed_t *feed = &data->feed[pl_source_place((pl_stage_t)stage, loader)];
    if (feed->dataset && feed->stage == (pl_stage_t)stage)
        return feed;
    pl_fail(err, PL_ESTATE, "there is no %s data open", pl_stages[stage].data);
    return NULL;
}

static int data_on_begin(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    data_t *data = self;
    const pl_begin_t *begin = &body->begin;
    pl_error_t dropped;
    pl_feed_t *feed = feed_of(data, begin->stage, begin->loader, err);
    if (!feed)
        return err->code;
    pl_fail(&dropped, PL_ECANCELLED, "the %s data is read from its start again",
            pl_stages[begin->stage].data);
    queue_fail(&data->waiting[feed - data->feed], &dropped);
    pl_feed_begin(feed, &(pl_feed_pass_t){.epoch = begin->epoch,
                                          .first = begin->first,
                                          .again = begin->again});
    const pl_begin_reply_t reply = {.batches = feed->batches,
                                    .loaders = pl_sources_loaders(&data->sources,
                                                                  feed->stage)};
    return pl_reply_begin(call, &reply);
}

static int data_on_fetch(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    data_t *data = self;
    uint32_t stage = body->fetch_batch.stage;
    pl_feed_t *feed = feed_of(data, stage, body->fetch_batch.loader, err);
    if (!feed)
        return err->code;
    if (!feed->begun)
        return pl_fail(err, PL_ESTATE, "reading of the %s data has not begun",
                       pl_stages[stage].data);
    queue_t *queue = &data->waiting[feed - data->feed];
    if (queue->count == WAITING_MOST)
        return pl_fail(err, PL_EBUSY, "%d fetches are already waiting", WAITING_MOST);
    queue->call[queue->count++] = call;
    pl_feed_want(feed, body->fetch_batch.until);
    data_go_on(data);
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
    for (int stage = 0; stage < PL_SOURCES; stage++) {
        queue_t *queue = &data->waiting[stage];
        int kept = 0;
        for (int k = 0; k < queue->count; k++)
            if (queue->call[k] != call)
                queue->call[kept++] = queue->call[k];
        if (kept < queue->count)
            pl_call_fail(call, &cancelled);
        queue->count = kept;
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
