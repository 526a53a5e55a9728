/* manual_job.c - the job of a manual loop, from what the program says of its batches */
#include <string.h>

#include "actors/api/manual_loop.h"
#include "actors/request.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "runtime/payload.h"
#include "tensor/graph.h"
#include "tensor/operators.h"

int pl_loop_spec_check(const pl_loop_spec_t *spec, pl_error_t *err)
{
    if (spec->field_count < 1 || spec->field_count > PL_FIELDS || spec->targets < 0
        || spec->targets >= spec->field_count)
        return pl_fail(err, PL_EINVAL,
                       "%d fields, of which %d are targets: give 1 to %d fields, of "
                       "which at least one is no target",
                       spec->field_count, spec->targets, PL_FIELDS);
    if (pl_require(spec->field, "a loop's list of fields", err) != PL_OK)
        return PL_EINVAL;
    if (spec->depth < 0 || spec->depth > PL_LOOP_DEPTH_MAX)
        return pl_fail(err, PL_EINVAL, "depth is %d: set it from 1 to %d, or to 0 for %d",
                       spec->depth, PL_LOOP_DEPTH_MAX, PL_LOOP_DEPTH);
    for (int k = 0; k < spec->field_count; k++)
        if (!pl_field_is_whole(&spec->field[k]))
            return pl_fail(
                err, PL_EINVAL,
                "field \"%.31s\" of a loop's batches needs a name, one of the types of "
                "data and at most %d sizes, each 1 or more",
                spec->field[k].name, PL_DIMS - 1);
    return PL_OK;
}

int64_t pl_loop_rows(const pl_job_t *job)
{
    const int64_t ranks = pl_request_ranks(job), rank = ranks > 1 ? pl_rank() : 0,
                  all = job->trainer->micro_shards;
    return pl_trainer_is_elastic(job->trainer)
               ? job->data->batch_size * (all * (rank + 1) / ranks - all * rank / ranks)
               : job->data->batch_size;
}

/* A stage that is not present in the signature is compiled for its first batch. */
pl_job_t *pl_loop_job(const pl_options_t *options, const pl_loop_spec_t *spec,
                      pl_error_t *err)
{
    pl_job_t *job = pl_job_new(options, PL_TRAIN, err);
    if (!job)
        return NULL;
    const int64_t rows = job->data->batch_size;
    pl_batch_signature_t *signature = pl_batch_signature_new(err);
    for (int k = PL_TRAIN; signature && k <= PL_PREDICT; k++) {
        signature->stage[k].batch_size = rows;
        signature->stage[k].field_count = spec->field_count
                                          - (k == PL_PREDICT ? spec->targets : 0);
        memcpy(signature->stage[k].field, spec->field,
               (size_t)spec->field_count * sizeof *spec->field);
    }
    if (signature) {
        signature->stage[PL_TRAIN].present = true;
        signature->stage[PL_TRAIN].size_count = 1;
        signature->stage[PL_TRAIN].size[0].count = rows;
        /* Ranks agree at the start on memory for metrics of evaluating. */
        if (pl_request_ranks(job) > 1)
            signature->stage[PL_VALIDATE] = signature->stage[PL_TRAIN];
    }
    job->enable_checkpointing = spec->enable_checkpointing;
    job->resumes = spec->resume != NULL;
    job->resume = spec->resume ? pl_run_path(spec->resume) : NULL;
    job->manual_data_info = pl_strdup(spec->data_info ? spec->data_info : "{}");
    job->manual_signature = signature;
    if (signature && job->manual_data_info && (!spec->resume || job->resume))
        return job;
    if (signature)
        pl_no_memory(err);
    pl_object_unref(job);
    return NULL;
}

int pl_loop_batch_fill(const pl_field_t *fields, int count, const pl_arrays_t *samples,
                       pl_batch_t *batch, pl_error_t *err)
{
    batch->count = samples->samples;
    batch->field_count = count;
    for (int k = 0; k < batch->field_count; k++) {
        const pl_field_t *field = &fields[k];
        int from = 0;
        while (from < samples->field_count
               && strcmp(samples->field[from].name, field->name))
            from++;
        if (from == samples->field_count || (!samples->data[from] && samples->samples))
            return pl_fail(err, PL_EINVAL, "the samples have no field \"%s\"",
                           field->name);
        const pl_field_t *given = &samples->field[from];
        if (given->dtype != field->dtype)
            return pl_fail(err, PL_EINVAL,
                           "field \"%s\" has another type than in the spec of the loop",
                           field->name);
        if (!pl_same_shape(given->shape, field->shape))
            return pl_fail(err, PL_EINVAL,
                           "field \"%s\" of a sample has shape %s, but the spec of the "
                           "loop has %s",
                           field->name, PL_TEXT_OF(given->shape),
                           PL_TEXT_OF(field->shape));
        if (samples->samples)
            memcpy(batch->field[k], samples->data[from],
                   (size_t)(samples->samples * pl_elements(field->shape))
                       * pl_dtype_size(field->dtype));
    }
    return PL_OK;
}
