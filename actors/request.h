/* request.h - what a run asks for, held against what there is, before anything starts */
#ifndef PL_REQUEST_H
#define PL_REQUEST_H

#include "runtime/payload.h"

/* PL_OK when the job's parts are all named and go together; else the error names the key
 * and says what would work.  Looks at the disk. */
int pl_request_check(const pl_job_t *job, pl_error_t *err);

/* Whether it has a directory of its own, unless nothing is to be kept: training, and
 * what measures and logs. */
bool pl_request_writes(const pl_job_t *job);
/* Beneath which it is made, the one of trainings or of what was done, from pl_text(); and
 * under which name  ["" the next number]: that of a run is its training's. */
char *pl_request_root(const pl_job_t *job, pl_error_t *err);
const char *pl_request_name(const pl_job_t *job);

/* How many ranks there are in all: as the run says, or who has started them; text is
 * written on from a prompt by one. */
int pl_request_ranks(const pl_job_t *job);

/* The parts that start ranks and that let them work together. */
const pl_actor_ops_t *pl_request_launcher(const pl_job_t *job, pl_error_t *err);
const pl_actor_ops_t *pl_request_strategy(const pl_job_t *job, pl_error_t *err);

/* The options in the run of the part at a path, as `start` takes them; NULL: out of
 * memory. */
char *pl_request_options(const pl_job_t *job, const char *path, pl_error_t *err);

#endif
