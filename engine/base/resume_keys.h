/* resume_keys.h - the keys of a run that change its arithmetic or its order, in which a
 * resumed run must agree with its checkpoint */
#ifndef PL_BASE_RESUME_KEYS_H
#define PL_BASE_RESUME_KEYS_H

#include <jansson.h>

#include "paceline.h"

/* Those keys of an effective run, {"trainer.seed": 42, …}; NULL: out of memory. */
json_t *pl_resume_keys(const json_t *run);

/* The hash of those keys, a text; NULL: out of memory. */
json_t *pl_resume_keys_hash(const json_t *keys);

/* The number of micro-shards of a batch with strategy "elastic": its option, or the older
 * trainer.micro_shards. */
int64_t pl_run_micro_shards(const json_t *trainer);

/* The number of samples that all ranks together take at once. */
int64_t pl_run_batch(const json_t *run);

/* Whether a data set of that name reads only the files that its options name: then its
 * samples are compared by content. */
bool pl_run_reads_files(const char *dataset);

/* PL_OK if two effective runs agree; PL_EINVAL names the first keys that differ.
 * The number of ranks may differ, and the samples of each, if all ranks together take as
 * many. by_content: the names of data files may differ, because their samples are
 * compared. */
int pl_resume_check(const json_t *then, const json_t *now, bool by_content,
                    pl_error_t *err);

#endif
