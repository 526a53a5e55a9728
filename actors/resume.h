/* resume.h - a checkpoint that a run goes on from, as the worker hands it out */
#ifndef PL_RESUME_H
#define PL_RESUME_H

#include <jansson.h>

#include "runtime/payload.h"

/* All zero: the run begins afresh. */
typedef struct pl_resume {
    json_t *manifest;
    char *path;                                /* of the checkpoint */
    char *run_dir;                             /* that it goes on in  [one of its own] */
    bool elsewhere;                            /* its own, because the user asks for it */
} pl_resume_t;

/* What is to be looked for: what the ranks agreed on, or what the job says  [NULL]. */
int pl_resume_is_requested(const pl_job_t *job, const char *agreed,
                           pl_find_checkpoint_t *wanted, pl_error_t *err);

/* Says what was found and what was refused; the run must agree with the one that was
 * saved in all that changes arithmetic or order: PL_EINVAL names what does not. */
int pl_resume_take(pl_resume_t *resume, const pl_job_t *job, void *worker,
                   const pl_find_checkpoint_reply_t *found, pl_error_t *err);

/* The run must read the samples that the one that was saved has read; content is that of
 * open_data.  PL_EINVAL says which source differs, and how. */
int pl_resume_data(const pl_resume_t *resume, const pl_job_t *job, const char *content,
                   pl_error_t *err);

/* What a part of the run had kept, "" for nothing; from pl_text(). */
char *pl_resume_state(const pl_resume_t *resume, const char *component, pl_error_t *err);

void pl_resume_release(pl_resume_t *resume);

#endif
