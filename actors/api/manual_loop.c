/* manual_loop.c - a manual loop, as the program sees it
 *
 * Behind it is a trainer whose run has no data: its loop on the rank's thread tells where
 * it is, and from then on the control thread calls it for whatever the program asks. */
#include <float.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/api/manual_loop.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "tensor/graph.h"

enum { DEPTH = 8, DEPTH_MAX = 60 };

/* ---- what the program is told ---- */

void pl_loop_tell(pl_loop_t *loop, pl_on_loop_t then, void *user,
                  const pl_loop_result_t *result)
{
    pl_loop_result_t whole = *result;
    loop->trainer->engine->calls--;
    if (!whole.metrics)
        whole.metrics = "{}";
    if (!whole.skipped)
        whole.skipped = "";
    whole.run_dir = loop->run_dir ? loop->run_dir : "";
    if (then)
        then(loop, &whole, user);
}

static void ready_reported(pl_notification_t *notification, bool wanted)
{
    pl_loop_t *loop = (pl_loop_t *)((char *)notification - offsetof(pl_loop_t, ready));
    if (loop->state == PL_LOOP_OPENS)
        loop->state = PL_LOOP_READY;
    if (wanted)
        pl_loop_tell(loop, loop->on_ready, loop->ready_user,
                     &(pl_loop_result_t){.global_step = loop->first_step});
}

static void closed_tell(pl_loop_t *loop, const pl_result_t *result)
{
    pl_trainer_t *trainer = loop->trainer;
    pl_loop_tell(loop, loop->on_closed, loop->closed_user,
                 &(pl_loop_result_t){.error = loop->failure,
                                     .global_step = result ? result->global_step : 0,
                                     .metrics = result ? result->metrics : NULL,
                                     .output_count = result ? result->weight_count : 0,
                                     .output = result ? result->weight : NULL});
    pl_trainer_free(trainer);                               /* and the loop */
}

static void closed_reported(pl_notification_t *notification, bool wanted)
{
    if (wanted)
        closed_tell((pl_loop_t *)((char *)notification - offsetof(pl_loop_t, closed)),
                    NULL);
}

/* The run behind it has ended: as was asked for, or not. */
static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    pl_loop_t *loop = user;
    const bool opened = loop->state == PL_LOOP_READY;
    loop->state = PL_LOOP_OVER;
    loop->failure = result->error;
    if (!opened) {
        if (loop->failure.code == PL_OK)
            pl_fail(&loop->failure, PL_ECANCELLED,
                    "the loop was closed before it was open");
        pl_loop_tell(loop, loop->on_ready, loop->ready_user,
                     &(pl_loop_result_t){.error = loop->failure});
    }
    if (loop->closing)
        closed_tell(loop, result);
}

/* ---- the control thread ---- */

static void run_reported(pl_attached_t *self, const pl_run_progress_t *report)
{
    pl_loop_t *loop = (pl_loop_t *)self;
    if (*report->run_dir && !loop->run_dir)
        loop->run_dir = pl_strdup(report->run_dir);
    for (uint32_t k = 0; k < report->peers.count; k++) {
        if (strcmp(report->peers.peer[k].role, "loop") || !pl_is_nobody(loop->at))
            continue;
        loop->at = report->peers.peer[k].at;
        loop->first_step = report->global_step;
        pl_notifications_push(loop->inside.notifications, &loop->ready);
    }
}

static void run_ended(pl_attached_t *self, const pl_error_t *error)
{
    pl_loop_t *loop = (pl_loop_t *)self;
    pl_error_t over;
    pl_fail(&over, PL_ESTATE, "the loop has ended");
    loop->at = (pl_address_t){0};
    pl_loop_requests_end(loop, error ? error : &over);
}

/* A batch may have been sent as the run ended. */
static bool loop_waits(const pl_attached_t *self)
{
    return ((const pl_loop_t *)self)->under_way > 0;
}

/* ---- opening ---- */

static void loop_release(pl_attached_t *self)
{
    pl_loop_t *loop = (pl_loop_t *)self;
    pl_batch_pool_close(loop->pool);
    pl_free(loop->run_dir);
    pl_free(loop);
}

static int field_check(const pl_field_t *field, pl_error_t *err)
{
    if (pl_field_is_whole(field))
        return PL_OK;
    return pl_fail(
        err, PL_EINVAL,
        "field \"%.31s\" of a loop's batches needs a name, one of the types of "
        "data and at most %d sizes, each 1 or more",
        field->name, PL_DIMS - 1);
}

static int spec_check(const pl_loop_spec_t *spec, pl_error_t *err)
{
    int code = PL_OK;
    if (spec->field_count < 1 || spec->field_count > PL_FIELDS || spec->targets < 0
        || spec->targets >= spec->field_count)
        return pl_fail(err, PL_EINVAL,
                       "%d fields, of which %d are targets: give 1 to %d fields, of "
                       "which at least one is no target",
                       spec->field_count, spec->targets, PL_FIELDS);
    if (pl_require(spec->field, "a loop's list of fields", err) != PL_OK)
        return PL_EINVAL;
    if (spec->depth < 0 || spec->depth > DEPTH_MAX)
        return pl_fail(err, PL_EINVAL, "depth is %d: set it from 1 to %d, or to 0 for %d",
                       spec->depth, DEPTH_MAX, DEPTH);
    for (int k = 0; k < spec->field_count && code == PL_OK; k++)
        code = field_check(&spec->field[k], err);
    return code;
}

/* What is not present yet comes with the first batch that needs it. */
static pl_batch_signature_t *layout_of(const pl_loop_spec_t *spec, int64_t rows,
                                       pl_error_t *err)
{
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
    }
    return signature;
}

static pl_job_t *job_of(const pl_options_t *options, const pl_loop_spec_t *spec,
                        pl_error_t *err)
{
    pl_job_t *job = pl_job_new(options, PL_TRAIN, err);
    if (!job)
        return NULL;
    job->enable_checkpointing = spec->enable_checkpointing;
    job->resumes = spec->resume != NULL;
    job->resume = spec->resume ? pl_run_path(spec->resume) : NULL;
    job->manual_data_info = pl_strdup(spec->data_info ? spec->data_info : "{}");
    job->manual_signature = layout_of(spec, job->data->batch_size, err);
    if (job->manual_signature && job->manual_data_info && (!spec->resume || job->resume))
        return job;
    if (job->manual_signature)
        pl_no_memory(err);
    pl_object_unref(job);
    return NULL;
}

static pl_loop_t *loop_new(const pl_loop_spec_t *spec, int64_t rows, pl_error_t *err)
{
    const pl_batch_spec_t batches = {.rows = rows,
                                     .max = INT32_MAX,
                                     .field_count = spec->field_count,
                                     .field = spec->field,
                                     .notice = -1};
    pl_loop_t *loop = pl_alloc(sizeof *loop);
    if (!loop) {
        pl_no_memory(err);
        return NULL;
    }
    *loop = (pl_loop_t){
        .attached = {run_reported, run_ended, loop_waits, loop_release},
        .depth = spec->depth ? spec->depth : DEPTH,
        .lr_factor = 1,
        .field_count = spec->field_count,
        .targets = spec->targets,
        .rows = rows,
        .ready = {.kind = PL_NOTIFICATION_CALLBACK, .tell = ready_reported},
        .closed = {.kind = PL_NOTIFICATION_CALLBACK, .tell = closed_reported},
    };
    memcpy(loop->field, spec->field, (size_t)spec->field_count * sizeof *spec->field);
    loop->pool = pl_batch_pool_new(&batches, err);
    if (loop->pool)
        return loop;
    pl_free(loop);
    return NULL;
}

pl_loop_t *pl_loop_open(pl_engine_t *engine, const pl_options_t *options,
                        const pl_loop_spec_t *spec, pl_on_loop_t on_ready, void *user,
                        pl_error_t *err)
{
    pl_error_t local;
    if (!err)
        err = &local;
    if (pl_require(spec, "a loop's spec", err) != PL_OK || spec_check(spec, err) != PL_OK)
        return NULL;
    pl_trainer_t *trainer = pl_trainer_new(engine, options, err);
    pl_job_t *job = trainer ? job_of(options, spec, err) : NULL;
    pl_loop_t *loop = job ? loop_new(spec, job->data->batch_size, err) : NULL;
    if (!loop) {
        pl_object_unref(job);
        pl_trainer_free(trainer);
        return NULL;
    }
    loop->trainer = loop->ready.trainer = loop->closed.trainer = trainer;
    loop->on_ready = on_ready;
    loop->ready_user = user;
    loop->inside = pl_trainer_attach(trainer, &loop->attached);
    if (pl_trainer_begin(trainer, job, on_done, loop, err) == PL_OK) {
        engine->calls++;
        return loop;
    }
    pl_trainer_free(trainer);
    return NULL;
}

/* ---- the rest ---- */

int pl_loop_scale_lr(pl_loop_t *loop, double factor, pl_error_t *err)
{
    if (pl_require(loop, "a loop", err) != PL_OK)
        return PL_EINVAL;
    if (!(factor >= 0 && factor <= FLT_MAX))
        return pl_fail(err, PL_EINVAL,
                       "the learning-rate factor %g is not possible: give a number of "
                       "at least 0 that fits a float32",
                       factor);
    loop->lr_factor = factor;
    return PL_OK;
}

void pl_loop_close(pl_loop_t *loop, pl_on_loop_t on_closed, void *user)
{
    if (!loop || loop->closing)
        return;
    loop->closing = true;
    loop->trainer->engine->calls++;
    loop->on_closed = on_closed;
    loop->closed_user = user;
    if (loop->state == PL_LOOP_OVER)
        pl_notifications_push(loop->inside.notifications, &loop->closed);
    else
        while (pl_trainer_stop(loop->trainer, "the program closes the loop", NULL)
               == PL_ENOMEM)
            usleep(1000);                             /* memory may be out for a moment */
}
