/* job_serialization.h - jobs and outcomes as bytes, for another process
 *
 * Whatever a pl_job_t or a pl_outcome_t has goes along, but what is known by its pointer
 * alone: such parts are refused before (pl_request_check()).  What comes from another
 * process is not believed. */
#ifndef PL_LAUNCHERS_JOB_SERIALIZATION_H
#define PL_LAUNCHERS_JOB_SERIALIZATION_H

#include "transport/bulk.h"
#include "runtime/payload.h"

/* Plug-ins are told by their files, and what was in them: the other side must find the
 * same there, and loads them. */
pl_blob_t *pl_job_pack(const pl_job_t *job, pl_error_t *err);
pl_job_t *pl_job_unpack(const pl_blob_t *blob, pl_error_t *err);

pl_blob_t *pl_outcome_pack(const pl_outcome_t *outcome, pl_error_t *err);
pl_outcome_t *pl_outcome_unpack(const pl_blob_t *blob, pl_error_t *err);

#endif
