/* job_serialization.h - jobs and outcomes as bytes, for another process
 *
 * All of a pl_job_t or a pl_outcome_t travels, except components that are known only by a
 * pointer: pl_request_check() refuses them before.  Bytes from another process are not
 * believed. */
#ifndef PL_LAUNCHERS_JOB_SERIALIZATION_H
#define PL_LAUNCHERS_JOB_SERIALIZATION_H

#include "transport/bulk.h"
#include "runtime/payload.h"

/* A job has the names of plug-ins' files and of their components: the other side loads
 * them, and must find the same. */
pl_blob_t *pl_job_pack(const pl_job_t *job, pl_error_t *err);
pl_job_t *pl_job_unpack(const pl_blob_t *blob, pl_error_t *err);

pl_blob_t *pl_outcome_pack(const pl_outcome_t *outcome, pl_error_t *err);
pl_outcome_t *pl_outcome_unpack(const pl_blob_t *blob, pl_error_t *err);

#endif
