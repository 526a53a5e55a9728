/* manual_loop_requests.c - batches and saves that a program sends to a manual loop
 *
 * What is asked for has its notification made beforehand, so that it is told exactly
 * once, whatever happens. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/api/manual_loop.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "tensor/graph.h"

/* ---- what the program is told ---- */

static double metric(const pl_loop_result_t *result, const char *prefix, const char *name)
{
    char key[32];
    double value;
    snprintf(key, sizeof key, "%s%s", prefix, name);
    return pl_loop_metric(result, key, &value) ? value : NAN;
}

static void request_free(pl_loop_request_t *request)
{
    pl_object_unref(request->batch);
    pl_object_unref(request->outputs);
    pl_free(request->name);
    pl_free(request->metrics);
    pl_free(request->skipped);
    pl_free(request);
}

static void request_tell(const pl_loop_request_t *request)
{
    pl_result_tensor_t view[PL_FIELDS];
    const int outputs = request->outputs ? request->outputs->count : 0;
    pl_loop_result_t result = {.error = request->error,
                               .global_step = request->global_step,
                               .skipped = request->skipped,
                               .metrics = request->metrics ? request->metrics : "{}",
                               .output_count = outputs,
                               .output = view};
    result.loss = metric(&result, pl_stages[request->stage].prefix, "loss");
    result.grad_norm = metric(&result, "", "grad_norm");
    if (outputs && !pl_tensors_view(request->outputs->output, outputs, view)
        && result.error.code == PL_OK)
        pl_no_memory(&result.error);
    pl_loop_tell(request->loop, request->then, request->user, &result);
    if (outputs)
        pl_tensors_release(request->outputs->output, outputs, view);
}

static void request_reported(pl_notification_t *notification, bool wanted)
{
    pl_loop_request_t *request = (pl_loop_request_t *)notification;
    request->loop->under_way--;                      /* another may be sent from inside */
    if (wanted)
        request_tell(request);
    request_free(request);
}

/* ---- the control thread ---- */

static void request_end(pl_loop_request_t *request, const pl_error_t *error)
{
    if (error)
        request->error = *error;
    *request->pprev = request->next;
    if (request->next)
        request->next->pprev = request->pprev;
    pl_notifications_push(request->loop->inside.notifications, &request->notification);
}

/* A text that is missing because memory is out is an error of the request. */
static void request_keep(pl_loop_request_t *request, char **into, const char *text)
{
    *into = pl_strdup(text);
    if (!*into)
        pl_no_memory(&request->error);
}

static void request_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    pl_loop_request_t *request = answer->context;
    if (answer->kind == PL_ANSWER_ERROR)
        request_end(request, answer->error);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    if (request->name) {
        request->global_step = answer->body->save_loop_reply.global_step;
    } else {
        const pl_take_batch_reply_t *reply = &answer->body->take_batch_reply;
        request->global_step = reply->global_step;
        request->outputs = pl_object_ref(reply->outputs);
        request_keep(request, &request->metrics, reply->metrics);
        request_keep(request, &request->skipped, reply->skipped);
    }
    request_end(request, NULL);
}

static void request_begin(void *argument)
{
    pl_loop_request_t *request = argument;
    pl_loop_t *loop = request->loop;
    const pl_how_t how = {.on_answer = request_answered, .context = request};
    pl_error_t err = {0};
    request->next = loop->requests;
    request->pprev = &loop->requests;
    if (loop->requests)
        loop->requests->pprev = &request->next;
    loop->requests = request;
    if (pl_is_nobody(loop->at))
        pl_fail(&err, PL_ESTATE, "the loop has ended");
    else if (request->name)
        request->call = pl_call_save_loop(loop->inside.host, loop->at,
                                          &(pl_save_loop_t){.name = request->name}, how,
                                          &err);
    else
        request->call =
            pl_call_take_batch(loop->inside.host, loop->at,
                               &(pl_take_batch_t){.stage = request->stage,
                                                  .lr_factor = request->lr_factor,
                                                  .batch = &request->batch->object},
                               how, &err);
    if (!request->call)
        request_end(request, &err);
}

/* Who is stuck is not waited for. */
void pl_loop_requests_end(pl_loop_t *loop, const pl_error_t *error)
{
    while (loop->requests) {
        if (loop->requests->call)
            pl_abandon(loop->inside.host, loop->requests->call);
        request_end(loop->requests, error);
    }
}

/* ---- batches ---- */

static int loop_is_ready(const pl_loop_t *loop, pl_error_t *err)
{
    if (pl_require(loop, "a loop", err) != PL_OK)
        return PL_EINVAL;
    if (pl_engine_is_open(loop->inside.engine, err) != PL_OK)
        return PL_ESTATE;
    if (loop->closing)
        return pl_fail(err, PL_ESTATE, "the loop is closing");
    if (loop->state == PL_LOOP_OPENS)
        return pl_fail(err, PL_ESTATE, "the loop is not open yet: wait for on_ready");
    if (loop->state == PL_LOOP_OVER)
        return pl_fail(err, PL_ESTATE, "the loop has ended: %s", loop->failure.text);
    if (loop->under_way == loop->depth)
        return pl_fail(err, PL_EBUSY,
                       "%d requests are already in flight: wait for the result of one, "
                       "or open the loop with a larger depth",
                       loop->under_way);
    return PL_OK;
}

static int same_field(const pl_field_t *field, const pl_field_t *given, pl_error_t *err)
{
    if (given->dtype != field->dtype)
        return pl_fail(err, PL_EINVAL,
                       "field \"%s\" has another type than in the spec of the loop",
                       field->name);
    char there[64], here[64];
    if (pl_same_shape(given->shape, field->shape))
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "field \"%s\" of a sample has shape %s, but the spec of the loop has "
                   "%s",
                   field->name, pl_shape_text(given->shape, here),
                   pl_shape_text(field->shape, there));
}

static int field_copy(const pl_loop_t *loop, const pl_arrays_t *samples, int which,
                      void *to, pl_error_t *err)
{
    const pl_field_t *field = &loop->field[which];
    int k = 0;
    while (k < samples->field_count && strcmp(samples->field[k].name, field->name))
        k++;
    if (k == samples->field_count || !samples->data[k])
        return pl_fail(err, PL_EINVAL, "the samples have no field \"%s\"", field->name);
    int code = same_field(field, &samples->field[k], err);
    if (code == PL_OK)
        memcpy(to, samples->data[k],
               (size_t)(samples->samples * pl_elements(field->shape))
                   * pl_dtype_size(field->dtype));
    return code;
}

static int batch_fill(const pl_loop_t *loop, pl_stage_t stage, const pl_arrays_t *samples,
                      pl_batch_t *batch, pl_error_t *err)
{
    const int fields = loop->field_count - (stage == PL_PREDICT ? loop->targets : 0);
    int code = PL_OK;
    batch->stage = stage;
    batch->count = samples->samples;
    batch->length = 0;
    batch->field_count = fields;
    for (int k = 0; k < fields && code == PL_OK; k++)
        code = field_copy(loop, samples, k, batch->field[k], err);
    return code;
}

/* Takes what is asked for over, also on failure. */
static int request_post(pl_loop_t *loop, pl_loop_request_t *request, pl_error_t *err)
{
    int code = pl_reactor_post(loop->inside.reactor, request_begin, request, err);
    if (code == PL_OK) {
        loop->under_way++;
        loop->trainer->engine->calls++;
    } else {
        request_free(request);
    }
    return code;
}

static pl_loop_request_t *request_new(pl_loop_t *loop, pl_on_loop_t then, void *user,
                                      pl_error_t *err)
{
    pl_loop_request_t *request = pl_alloc(sizeof *request);
    if (!request) {
        pl_no_memory(err);
        return NULL;
    }
    *request = (pl_loop_request_t){.notification = {.kind = PL_NOTIFICATION_CALLBACK,
                                                    .trainer = loop->trainer,
                                                    .tell = request_reported},
                                   .loop = loop,
                                   .lr_factor = loop->lr_factor,
                                   .then = then,
                                   .user = user};
    return request;
}

static int batch_send(pl_loop_t *loop, pl_stage_t stage, const pl_arrays_t *samples,
                      pl_on_loop_t then, void *user, pl_error_t *err)
{
    int code = loop_is_ready(loop, err);
    if (code == PL_OK)
        code = pl_require(samples, "a batch", err);
    if (code == PL_OK
        && (samples->samples < 1 || samples->samples > loop->rows
            || samples->field_count < 1 || samples->field_count > PL_FIELDS))
        code = pl_fail(err, PL_EINVAL,
                       "the batch has %lld samples of %d fields: give 1 to %lld samples "
                       "(\"data.batch_size\") of 1 to %d fields",
                       (long long)samples->samples, samples->field_count,
                       (long long)loop->rows, PL_FIELDS);
    if (code != PL_OK)
        return code;
    pl_loop_request_t *request = request_new(loop, then, user, err);
    if (!request)
        return PL_ENOMEM;
    request->stage = stage;
    request->batch = pl_batch_pool_take(loop->pool, err);
    code = request->batch ? batch_fill(loop, stage, samples, request->batch, err)
                          : PL_ENOMEM;
    if (code == PL_OK)
        return request_post(loop, request, err);
    request_free(request);
    return code;
}

int pl_loop_train(pl_loop_t *loop, const pl_arrays_t *samples, pl_on_loop_t then,
                  void *user, pl_error_t *err)
{
    return batch_send(loop, PL_TRAIN, samples, then, user, err);
}

int pl_loop_evaluate(pl_loop_t *loop, const pl_arrays_t *samples, pl_on_loop_t then,
                     void *user, pl_error_t *err)
{
    return batch_send(loop, PL_VALIDATE, samples, then, user, err);
}

int pl_loop_predict(pl_loop_t *loop, const pl_arrays_t *samples, pl_on_loop_t then,
                    void *user, pl_error_t *err)
{
    return batch_send(loop, PL_PREDICT, samples, then, user, err);
}

/* ---- saves ---- */

static bool is_a_name(const char *name)
{
    return *name && *name != '.' && !strpbrk(name, "/\n") && strlen(name) < 128;
}

int pl_loop_save(pl_loop_t *loop, const char *name, pl_on_loop_t then, void *user,
                 pl_error_t *err)
{
    int code = loop_is_ready(loop, err);
    if (code == PL_OK)
        code = pl_require(name, "a name", err);
    if (code == PL_OK && !is_a_name(name))
        code = pl_fail(err, PL_EINVAL,
                       "\"%.64s\" cannot be the name of a checkpoint: it must have no "
                       "'/' and no '.' at its start",
                       name);
    if (code == PL_OK && !loop->run_dir)
        code = pl_fail(
            err, PL_ESTATE,
            "this loop has no run directory: open it with `enable_checkpointing` set");
    if (code != PL_OK)
        return code;
    pl_loop_request_t *request = request_new(loop, then, user, err);
    if (!request)
        return PL_ENOMEM;
    request->name = pl_strdup(name);
    if (request->name)
        return request_post(loop, request, err);
    request_free(request);
    return pl_no_memory(err);
}
