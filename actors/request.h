/* request.h - checks a run against what exists, before anything starts */
#ifndef PL_REQUEST_H
#define PL_REQUEST_H

#include "runtime/payload.h"

/* Checks that all components of the job exist and go together.  The error names the key
 * and says what would work.  Reads the disk. */
int pl_request_check(const pl_job_t *job, pl_error_t *err);

/* Whether the run has a directory: a training, or an evaluation that logs, unless the
 * options say otherwise. */
bool pl_request_writes(const pl_job_t *job);
/* The folder of that directory, from pl_text(): one for trainings, and one for each other
 * stage; and its name ["": the next number], which the training has, too. */
char *pl_request_root(const pl_job_t *job, pl_error_t *err);
const char *pl_request_name(const pl_job_t *job);

/* Fields of samples for people, "x float32 [784], y int64 []"; free it with
 * pl_text_free()  [NULL: no memory]. */
char *pl_request_fields(const pl_field_t *field, int count);

/* The number of ranks of the run: as its options say, or as another program has started
 * them; one for generated text. */
int pl_request_ranks(const pl_job_t *job);

/* The components that start the ranks and combine their work. */
const pl_actor_ops_t *pl_request_launcher(const pl_job_t *job, pl_error_t *err);
const pl_actor_ops_t *pl_request_strategy(const pl_job_t *job, pl_error_t *err);

/* The options of the component at a path in the run, as `start` takes them; NULL: out of
 * memory. */
char *pl_request_options(const pl_job_t *job, const char *path, pl_error_t *err);

#endif
