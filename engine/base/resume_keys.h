/* resume_keys.h - the keys of a run that change its arithmetic or its order: a run
 * that goes on from a checkpoint must agree in them */
#ifndef PL_BASE_RESUME_KEYS_H
#define PL_BASE_RESUME_KEYS_H

#include <jansson.h>

#include "paceline.h"

/* Those keys of an effective run, {"trainer.seed": 42, …}; NULL: out of memory. */
json_t *pl_resume_keys(const json_t *run);

/* Their hash, a text; NULL: out of memory. */
json_t *pl_resume_keys_hash(const json_t *keys);

/* How many micro-shards strategy "elastic" makes of a batch: its option, or the older
 * trainer.micro_shards. */
int64_t pl_run_micro_shards(const json_t *trainer);

/* How many samples of the data set all ranks take at once. */
int64_t pl_run_batch(const json_t *run);

/* Whether a data set of that name reads the files that its options name, and nothing
 * else: then its samples are compared by content. */
bool pl_run_reads_files(const char *dataset);

/* PL_OK when two effective runs agree; PL_EINVAL names each key that differs.  How many
 * ranks there are may differ, and so how many samples each of them takes, where all take
 * as many.  by_content: the names of data files may differ, their samples are
 * compared. */
int pl_resume_check(const json_t *then, const json_t *now, bool by_content,
                    pl_error_t *err);

#endif
