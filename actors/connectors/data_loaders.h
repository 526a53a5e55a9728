/* data_loaders.h - the data sets of a run, and which samples each stage takes from
 * them */
#ifndef PL_CONNECTORS_DATA_LOADERS_H
#define PL_CONNECTORS_DATA_LOADERS_H

#include "actors/connectors/prefetch_queue.h"
#include "base/run.h"

#define PL_STAGES (PL_PREDICT + 1)
/* The first source of each stage, then the others of the stage that has several. */
#define PL_DATA_LOADERS (PL_STAGES + PL_LOADERS_MAX - 1)

/* The data sets of a run, opened one after the other. */
typedef struct pl_data_loaders {
    const pl_job_t *job;                     /* borrowed */
    int notice;                              /* for the pools: batch_pool.h */
    pl_stage_t stage;                        /* train: and validate; others: that alone */
    int64_t batch_size;                      /* 0: the job's */
    pl_sampler_partition_t partition;        /* of the samples of each; even: of those to
                                                train on */
    bool sums;                               /* checksums of the samples are asked for */
    pl_data_split_t split;
    pl_dataset_t *dataset[PL_DATA_LOADERS];                 /* counted  [no such data] */
} pl_data_loaders_t;

/* Drops the data sets; the job stays. */
void pl_data_loaders_release(pl_data_loaders_t *loaders);

/* Whose data set is opened first: to validate on a share of the training data those are
 * needed. */
pl_stage_t pl_data_loaders_first(const pl_data_loaders_t *loaders);

/* Makes the data set of a stage, yet to be opened; once the training data is open, the
 * others receive its data info, till then those given (copied; "": none). */
int pl_data_loaders_prepare(pl_data_loaders_t *loaders, pl_stage_t stage, uint32_t loader,
                            const char *data_info, pl_error_t *err);

/* Where the source of a stage and its queue are. */
int pl_data_loader_index(pl_stage_t stage, uint32_t loader);
/* How many a stage has. */
uint32_t pl_data_loaders_count(const pl_data_loaders_t *loaders, pl_stage_t stage);

/* The error of a data set that could not be opened: where a file cannot be read, with the
 * key that names it and that key's place in the run file. */
int pl_data_loaders_error(const pl_data_loaders_t *loaders, const pl_dataset_t *dataset,
                          const pl_error_t *error, pl_error_t *err);

/* Whether validation needs a data set of its own; once the training data is open. */
bool pl_data_loaders_validation_is_separate(const pl_data_loaders_t *loaders);

/* Whether a test reads what the run's training does, all of it; once it is open. */
bool pl_data_loaders_tests_training(const pl_data_loaders_t *loaders);

/* Makes the queues [PL_DATA_LOADERS] of all data sets, and *signature_p and
 * *data_info_p (borrowed) for the reply. */
int pl_data_loaders_open_queues(pl_data_loaders_t *loaders, pl_prefetch_t *queue,
                                pl_batch_signature_t **signature_p,
                                const char **data_info_p, pl_error_t *err);

/* What a checkpoint keeps of all that are open: JSON, to be freed by pl_text_free();
 * NULL: out of memory. */
char *pl_data_loaders_content(const pl_data_loaders_t *loaders, pl_error_t *err);

/* Whether a module made for one signature and the data info that came with it can go
 * on with another: PL_EINVAL says what has changed. */
int pl_data_loaders_check_same(const pl_batch_signature_t *was, const char *old_data_info,
                               const pl_batch_signature_t *is, const char *new_data_info,
                               pl_error_t *err);

#endif
