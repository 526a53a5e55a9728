/* data_loaders.h - the data sets of a run, and the queues of batches that are read from
 * them */
#ifndef PL_CONNECTORS_DATA_LOADERS_H
#define PL_CONNECTORS_DATA_LOADERS_H

#include "actors/connectors/sampler.h"
#include "base/run.h"
#include "runtime/payload.h"

#define PL_STAGES (PL_PREDICT + 1)
/* The first source of each stage, then the further sources of the stage that has any. */
#define PL_DATA_LOADERS (PL_STAGES + PL_LOADERS_MAX - 1)

/* ---- prefetch_queue.c: a pool of batches ----
 *
 * Memory for batches is allocated once.  A batch returns to the pool when its last
 * reference is dropped, on any thread, also after the pool's owner has ended. */

typedef struct pl_batch_pool pl_batch_pool_t;

/* A pool of at most `max` batches of up to `rows` samples. */
typedef struct pl_batch_spec {
    int64_t rows;
    int max;
    int field_count;
    const pl_field_t *field;             /* [field_count] */
    int notice;                          /* an eventfd, written when a batch has come back
                                            after there was none to take; open until the
                                            pool is closed */
} pl_batch_spec_t;

pl_batch_pool_t *pl_batch_pool_new(const pl_batch_spec_t *spec, pl_error_t *err);

/* Ends the pool; batches that are out stay valid.  NULL is allowed. */
void pl_batch_pool_close(pl_batch_pool_t *pool);

/* A batch with one reference and field_count, index and field set; on the owner's thread.
 * NULL: PL_EBUSY when all are out, PL_ENOMEM. */
pl_batch_t *pl_batch_pool_take(pl_batch_pool_t *pool, pl_error_t *err);

/* ---- prefetch_queue.c: batches of one source, read ahead and handed out in order ----
 *
 * A queue decides order and memory; its caller has the batches read.  Reads may finish in
 * any order. */

typedef struct pl_prefetch_slot pl_prefetch_slot_t;

/* All zero: a stage without data. */
typedef struct pl_prefetch {
    pl_dataset_t *dataset;                                  /* counted  [no data] */
    pl_stage_t stage;
    uint32_t loader;                                        /* source of the stage */
    pl_sampler_t sampler;
    pl_sampler_partition_t partition;              /* this rank's samples */
    pl_buckets_t buckets;                          /* all zero: samples have one length */
    int64_t batch_size;                            /* of a rank, or of a micro-shard */
    pl_batch_pool_t *pool;
    pl_prefetch_slot_t *slot;                /* batch k: k % slot_count */
    uint32_t prefetch, slot_count;           /* batches read ahead; all that may be out */
    bool without_last;                       /* an epoch ends before its last batch */
    int64_t length[PL_BUCKETS_MAX];          /* that drawn batches are padded to, the
                                                longest first */
    int lengths;                             /* [0: no sampler, or one length] */

    /* The iteration. */
    bool begun;
    uint64_t epoch;
    uint32_t batches, to_read, to_take;      /* all; the next to be read, and taken */
    uint32_t requested;                      /* batches before this one may be read */
    bool again;                              /* the next epoch is likely to follow */
    bool ahead;                              /* this is the next epoch: read, not begun */
} pl_prefetch_t;

typedef struct pl_prefetch_spec {
    pl_dataset_t *dataset;
    pl_stage_t stage;
    uint32_t loader;
    pl_sampler_t sampler;
    pl_sampler_partition_t partition;
    int64_t batch_size, prefetch;
    int64_t buckets;                        /* at most, for samples of different length */
    pl_amount_t limit;                      /* batches of an epoch  [0: all] */
    int notice;                             /* of pl_batch_spec_t */
} pl_prefetch_spec_t;

/* Makes a queue of an opened data set; *queue is zeroed.  PL_EINVAL, PL_ENOMEM. */
int pl_prefetch_open(pl_prefetch_t *queue, const pl_prefetch_spec_t *spec,
                     pl_error_t *err);
void pl_prefetch_close(pl_prefetch_t *queue);

/* The sizes of the queue's batches, and their number.  First comes the size of most
 * batches over all partitions, even if this partition has none of it.  Every partition
 * has as many batches as the largest one; batches behind its samples are empty. */
int pl_prefetch_sizes(const pl_prefetch_t *queue, pl_batch_size_t size[PL_SIZES_MAX]);

/* Drops the iteration and begins one; batches read ahead for the same one are kept. */
typedef struct pl_prefetch_iter {
    uint64_t epoch;
    uint32_t first;                                         /* batch to begin with */
    bool again;                                             /* after its last batch, read
                                                               batches of the next epoch,
                                                               which is likely to begin
                                                               next */
} pl_prefetch_iter_t;
void pl_prefetch_begin(pl_prefetch_t *queue, const pl_prefetch_iter_t *iter);

/* Allows batches before `until` to be read  [0: all].  An iteration alone reads nothing,
 * because its caller may take no batch. */
void pl_prefetch_request(pl_prefetch_t *queue, uint32_t until);

/* The next batch to be read, with a reference for the caller; NULL: `waiting` fetches and
 * data.prefetch are served, or all requested batches are, or others hold all batches of
 * the pool until the notice.  pl_prefetch_take() reports a lack of memory in the batch's
 * place. */
pl_batch_t *pl_prefetch_next(pl_prefetch_t *queue, uint32_t waiting);

/* The batch was read, or failed with `error`; one of a dropped iteration is ignored. */
void pl_prefetch_batch_read(pl_prefetch_t *queue, pl_batch_t *batch,
                            const pl_error_t *error);

/* The next batch in order, or the end, can be taken. */
bool pl_prefetch_is_ready(const pl_prefetch_t *queue);

/* Takes it, with its reference; NULL with PL_OK: the end of the iteration. */
int pl_prefetch_take(pl_prefetch_t *queue, pl_batch_t **batch_p, pl_error_t *err);

/* ---- data_loaders.c: the data sets ---- */

/* The data sets of a run, opened one after the other. */
typedef struct pl_data_loaders {
    const pl_job_t *job;                      /* borrowed */
    int notice;                               /* for the pools */
    pl_stage_t stage;                         /* train opens validation data too */
    int64_t batch_size;                       /* 0: the job's */
    pl_sampler_partition_t partition;         /* `even` holds for training alone */
    bool sums;                                /* checksums of the samples are requested */
    const pl_loader_options_t *loader;        /* borrowed: of the training data */
    pl_data_split_t split;
    pl_sample_order_t order;
    pl_dataset_t *dataset[PL_DATA_LOADERS];                 /* counted  [no such data] */
} pl_data_loaders_t;

/* The options of how the run loads training data, as JSON for a strategy; to be freed by
 * pl_text_free()  [NULL: out of memory]. */
char *pl_loader_text(const pl_job_t *job, pl_error_t *err);
/* The same, with the options that a strategy has set instead, "" or a JSON object.  The
 * binding owns their texts. */
int pl_loader_bind(const pl_job_t *job, const char *changes, pl_loader_options_t *loader,
                   pl_binding_t **binding, pl_error_t *err);

/* Drops the data sets; the job stays. */
void pl_data_loaders_release(pl_data_loaders_t *loaders);

/* The stage whose data set opens first: validation on a share of the training data needs
 * the training data. */
pl_stage_t pl_data_loaders_first(const pl_data_loaders_t *loaders);

/* Makes the data set of a stage, not yet opened.  It receives the data info of the
 * training data once that is open, until then `data_info` (copied; "": none). */
int pl_data_loaders_prepare(pl_data_loaders_t *loaders, pl_stage_t stage, uint32_t loader,
                            const char *data_info, pl_error_t *err);

/* Opens it on this thread and completes its info: the lengths and a mask where samples
 * vary, and the width of the target.  The error names the data set.  reader.c */
int pl_dataset_open(pl_dataset_t *dataset, pl_error_t *err);

/* Index of a stage's source and its queue. */
int pl_data_loader_index(pl_stage_t stage, uint32_t loader);
/* Number of sources of a stage. */
uint32_t pl_data_loaders_count(const pl_data_loaders_t *loaders, pl_stage_t stage);

/* The error of a data set that could not be opened.  For a file that cannot be read it
 * contains the option that names the file, and its line in the run file. */
int pl_data_loaders_error(const pl_data_loaders_t *loaders, const pl_dataset_t *dataset,
                          const pl_error_t *error, pl_error_t *err);

/* Validation has a data set of its own; needs open training data. */
bool pl_data_loaders_validation_is_separate(const pl_data_loaders_t *loaders);

/* The test reads all samples of the run's training data; needs open test data. */
bool pl_data_loaders_tests_training(const pl_data_loaders_t *loaders);

/* Makes the queues [PL_DATA_LOADERS] of all data sets, and *signature_p and
 * *data_info_p (borrowed) for the reply. */
int pl_data_loaders_open_queues(pl_data_loaders_t *loaders, pl_prefetch_t *queue,
                                pl_batch_signature_t **signature_p,
                                const char **data_info_p, pl_error_t *err);

/* What a checkpoint records about the open data sets: JSON, to be freed by
 * pl_text_free(); NULL: out of memory. */
char *pl_data_loaders_content(const pl_data_loaders_t *loaders, pl_error_t *err);

/* PL_EINVAL names what differs if a module made for one signature and its data info does
 * not fit another. */
int pl_data_loaders_check_same(const pl_batch_signature_t *was, const char *old_data_info,
                               const pl_batch_signature_t *is, const char *new_data_info,
                               pl_error_t *err);

#endif
