/* sources.h - which data sets a run needs, and what each stage takes from them */
#ifndef PL_CONNECTORS_SOURCES_H
#define PL_CONNECTORS_SOURCES_H

#include "actors/connectors/feed.h"
#include "base/run.h"

#define PL_STAGES (PL_PREDICT + 1)
/* The first source of each stage, then the others of the stage that has several. */
#define PL_SOURCES (PL_STAGES + PL_LOADERS_MOST - 1)

/* The data sets of a run, opened one after the other. */
typedef struct pl_sources {
    const pl_job_t *job;                     /* borrowed */
    int notice;                              /* for the pools: batch_pool.h */
    pl_stage_t wanted;                       /* train: and validate; others: that alone */
    int64_t batch_size;                      /* 0: the job's */
    pl_deal_t deal;                          /* of the samples of each; even: of those to
                                                train on */
    bool sums;                               /* checksums of the samples are asked for */
    pl_data_split_t split;
    pl_dataset_t *dataset[PL_SOURCES];                      /* counted  [no such data] */
} pl_sources_t;

/* Drops the data sets; the job stays. */
void pl_sources_drop(pl_sources_t *sources);

/* Whose data set is opened first: to validate on a share of the training data those are
 * needed. */
pl_stage_t pl_sources_first(const pl_sources_t *sources);

/* Makes the data set of a stage, yet to be opened; once the training data is open, the
 * others are told its facts, till then those given (copied; "": none). */
int pl_sources_prepare(pl_sources_t *sources, pl_stage_t stage, uint32_t loader,
                       const char *facts, pl_error_t *err);

/* Where the source of a stage and its feed are. */
int pl_source_place(pl_stage_t stage, uint32_t loader);
/* How many a stage has. */
uint32_t pl_sources_loaders(const pl_sources_t *sources, pl_stage_t stage);

/* The error of a data set that could not be opened: where a file cannot be read, with the
 * key that names it and that key's place in the run file. */
int pl_sources_blame(const pl_sources_t *sources, const pl_dataset_t *dataset,
                     const pl_error_t *error, pl_error_t *err);

/* Whether validation needs a data set of its own; once the training data is open. */
bool pl_sources_validation_is_apart(const pl_sources_t *sources);

/* Whether a test reads what the run's training does, all of it; once it is open. */
bool pl_sources_tests_training(const pl_sources_t *sources);

/* Makes the feeds [PL_SOURCES] of all data sets, and *layout_p and *facts_p (borrowed)
 * for the reply. */
int pl_sources_feeds(pl_sources_t *sources, pl_feed_t *feed, pl_layout_t **layout_p,
                     const char **facts_p, pl_error_t *err);

/* What a checkpoint keeps of all that are open: JSON, to be freed by pl_text_free();
 * NULL: out of memory. */
char *pl_sources_content(const pl_sources_t *sources, pl_error_t *err);

/* Whether a module made for one layout and the facts that came with it can go on with
 * another: PL_EINVAL says what has changed. */
int pl_sources_same(const pl_layout_t *was, const char *facts_were, const pl_layout_t *is,
                    const char *facts_are, pl_error_t *err);

#endif
