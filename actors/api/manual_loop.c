/* manual_loop.c - a manual loop: the program sends batches one by one
 *
 * Behind it is a trainer whose run has no data. The run's loop on the rank's thread
 * reports its address, and from then on the control thread calls it for each request.
 * Each request has its notification made beforehand, so that it is answered exactly once,
 * whatever happens. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/api/host.h"
#include "actors/api/manual_loop.h"
#include "actors/connectors/data_loaders.h"
#include "actors/request.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "base/run.h"
#include "tensor/graph.h"
#include "tensor/operators.h"

typedef enum loop_state { OPENS, READY, OVER } loop_state_t;

/* A batch, a save or an exchange, until it is answered. */
typedef struct request {
    pl_notification_t notification;                         /* first: deliver() gets it */
    pl_loop_t *loop;
    struct request *next, **pprev;           /* control thread: list of those under way */
    uint64_t call;
    pl_stage_t stage;
    double lr_factor;
    pl_batch_t *batch;                                      /* counted  [a save] */
    char *name;                                             /* of the save */
    int objective;                /* 1 + index  [0: a whole step] */
    bool sees_gradients;          /* of it, */
    pl_weights_t *gradients;      /* counted, to set; then as read */
    pl_loop_exchange_t *exchange;                           /* [none] */
    pl_on_loop_t then;
    void *user;
    /* The answer. */
    pl_error_t error;
    uint64_t global_step;
    char *metrics, *skipped;
    pl_outputs_t *outputs;                                  /* counted  [none] */
} request_t;

struct pl_loop {
    pl_attached_t attached;                                 /* first: the trainer's */
    pl_trainer_t *trainer;
    loop_state_t state;
    bool closing, enable_checkpointing;
    pl_error_t failure;                                     /* why it is over */
    int depth, ranks;
    double lr_factor;
    int field_count, targets;
    pl_field_t field[PL_FIELDS];
    int64_t rows;                                           /* of a batch at most */
    bool has_micro_shards;                                  /* of which it is made */
    const pl_module_objective_t *objectives;                /* [the module has one] */
    pl_batch_pool_t *pool;
    pl_notification_t ready, closed;
    pl_on_loop_t on_ready, on_closed;
    void *ready_user, *closed_user;
    /* Control thread. */
    char *run_dir;                          /* program's thread from `ready` on  [none] */
    uint64_t first_step;                    /* from which it continues; as run_dir */
    pl_address_t at;                        /* of the run's loop  [it cannot be called] */
    request_t *requests;
};

/* ---- Notifications, on the program's thread ---- */

/* Answers one call of the program. NULL in the result stands for an empty text. */
static void call_answer(pl_loop_t *loop, pl_on_loop_t then, void *user,
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

static void ready_deliver(pl_notification_t *notification, bool is_wanted)
{
    pl_loop_t *loop = (pl_loop_t *)((char *)notification - offsetof(pl_loop_t, ready));
    if (loop->state == OPENS)
        loop->state = READY;
    if (is_wanted)
        call_answer(loop, loop->on_ready, loop->ready_user,
                    &(pl_loop_result_t){.global_step = loop->first_step});
}

/* Also frees the loop, with its trainer. */
static void close_answer(pl_loop_t *loop, const pl_result_t *result)
{
    pl_trainer_t *trainer = loop->trainer;
    call_answer(loop, loop->on_closed, loop->closed_user,
                &(pl_loop_result_t){.error = loop->failure,
                                    .global_step = result ? result->global_step : 0,
                                    .metrics = result ? result->metrics : NULL,
                                    .output_count = result ? result->weight_count : 0,
                                    .output = result ? result->weight : NULL});
    pl_trainer_free(trainer);
}

static void closed_deliver(pl_notification_t *notification, bool is_wanted)
{
    if (is_wanted)
        close_answer((pl_loop_t *)((char *)notification - offsetof(pl_loop_t, closed)),
                     NULL);
}

/* The run behind the loop has ended, as requested or by itself. */
static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    pl_loop_t *loop = user;
    const bool was_ready = loop->state == READY;
    loop->state = OVER;
    loop->failure = result->error;
    if (!was_ready) {
        if (loop->failure.code == PL_OK)
            pl_fail(&loop->failure, PL_ECANCELLED,
                    "the loop was closed before it was open");
        call_answer(loop, loop->on_ready, loop->ready_user,
                    &(pl_loop_result_t){.error = loop->failure});
    }
    if (loop->closing)
        close_answer(loop, result);
}

static void request_free(request_t *request)
{
    pl_object_unref(request->batch);
    pl_object_unref(request->outputs);
    pl_object_unref(request->gradients);
    pl_loop_exchange_free(request->exchange);
    pl_free(request->name);
    pl_free(request->metrics);
    pl_free(request->skipped);
    pl_free(request);
}

/* The metrics of a step, or of an objective that the program steps by itself. */
static void loss_find(const request_t *request, pl_loop_result_t *result)
{
    const pl_module_objective_t *all = request->loop->objectives;
    const char *of = request->objective && all ? all[request->objective - 1].name : "";
    char loss[96], norm[96];
    snprintf(loss, sizeof loss, "%s%s%sloss", pl_stages[request->stage].prefix, of,
             *of ? "_" : "");
    snprintf(norm, sizeof norm, "grad_norm%s%s", *of ? "-" : "", of);
    if (!pl_loop_metric(result, loss, &result->loss))
        result->loss = NAN;
    if (!pl_loop_metric(result, norm, &result->grad_norm))
        result->grad_norm = NAN;
}

static void request_deliver(pl_notification_t *notification, bool is_wanted)
{
    request_t *request = (request_t *)notification;
    const int outputs = request->error.code != PL_OK ? 0
                        : request->outputs           ? request->outputs->count
                        : request->gradients         ? request->gradients->count
                                                     : 0;
    const pl_output_t *tensor = request->outputs     ? request->outputs->output
                                : request->gradients ? request->gradients->tensor
                                                     : NULL;
    pl_result_tensor_t *view = outputs ? pl_alloc_array((size_t)outputs, sizeof *view)
                                       : NULL;
    pl_loop_result_t result = {.error = request->error,
                               .global_step = request->global_step,
                               .skipped = request->skipped,
                               .metrics = request->metrics ? request->metrics : "{}",
                               .output_count = outputs,
                               .output = view};
    if (request->exchange && request->error.code == PL_OK)
        pl_loop_exchange_finish(request->exchange, request->loop->ranks, &result);
    request->loop->attached.requests--;                  /* then() may send another one */
    if (is_wanted) {
        loss_find(request, &result);
        const bool seen = view && pl_tensors_view(tensor, outputs, view);
        if (outputs && !seen && result.error.code == PL_OK)
            pl_no_memory(&result.error);
        call_answer(request->loop, request->then, request->user, &result);
        if (view)
            pl_tensors_release(tensor, outputs, view);
    }
    pl_free(view);
    request_free(request);
}

/* ---- The control thread ---- */

static void request_end(request_t *request, const pl_error_t *error)
{
    if (error)
        request->error = *error;
    *request->pprev = request->next;
    if (request->next)
        request->next->pprev = request->pprev;
    pl_notifications_push(&request->loop->trainer->engine->notifications,
                          &request->notification);
}

static void request_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    request_t *request = answer->context;
    if (answer->kind == PL_ANSWER_ERROR
        && (answer->error->code == PL_ECANCELLED || answer->error->code == PL_EPEER))
        request->call = 0;           /* the run ends, or has ended, and has the reason */
    else if (answer->kind == PL_ANSWER_ERROR)
        request_end(request, answer->error);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    if (request->name) {
        request->global_step = answer->body->save_loop_reply.global_step;
    } else if (request->exchange) {
        pl_loop_exchange_receive(request->exchange, answer->body->exchange_reply.data,
                                 &request->error);
    } else if (request->sees_gradients) {
        pl_object_unref(request->gradients);
        request->gradients = pl_object_ref(answer->body->gradients_reply.weights);
    } else {
        const pl_take_batch_reply_t *reply = &answer->body->take_batch_reply;
        request->global_step = reply->global_step;
        request->outputs = pl_object_ref(reply->outputs);
        request->metrics = pl_strdup(reply->metrics);
        request->skipped = pl_strdup(reply->skipped);
        if (!request->metrics || !request->skipped)
            pl_no_memory(&request->error);
    }
    request_end(request, NULL);
}

static void request_begin(void *argument)
{
    request_t *request = argument;
    pl_loop_t *loop = request->loop;
    void *host = loop->trainer->engine->host;
    const pl_how_t how = {.on_answer = request_answered, .context = request};
    const pl_save_loop_t save = {.name = request->name};
    pl_error_t err = {0};
    request->next = loop->requests;
    request->pprev = &loop->requests;
    if (loop->requests)
        loop->requests->pprev = &request->next;
    loop->requests = request;
    if (pl_is_nobody(loop->at)) {
        pl_fail(&err, PL_ESTATE, "the loop has ended");
    } else if (request->name) {
        request->call = pl_call_save_loop(host, loop->at, &save, how, &err);
    } else if (request->exchange) {
        request->call = pl_call_exchange(host, loop->at, &request->exchange->msg, how,
                                         &err);
    } else if (request->sees_gradients) {
        const pl_gradients_t gradients = {.objective = (uint32_t)(request->objective - 1),
                                          .weights = request->gradients
                                                         ? &request->gradients->object
                                                         : NULL};
        request->call = pl_call_gradients(host, loop->at, &gradients, how, &err);
    } else {
        const pl_take_batch_t batch = {.stage = request->stage,
                                       .objective = (uint32_t)request->objective,
                                       .lr_factor = request->lr_factor,
                                       .batch = &request->batch->object};
        request->call = pl_call_take_batch(host, loop->at, &batch, how, &err);
    }
    if (!request->call)
        request_end(request, &err);
}

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
        pl_notifications_push(&loop->trainer->engine->notifications, &loop->ready);
    }
}

/* Requests that the run has not answered end with its error. */
static void run_ended(pl_attached_t *self, const pl_error_t *error)
{
    pl_loop_t *loop = (pl_loop_t *)self;
    pl_error_t over;
    pl_fail(&over, PL_ESTATE, "the loop has ended");
    loop->at = (pl_address_t){0};
    while (loop->requests) {
        if (loop->requests->call)
            pl_abandon(loop->trainer->engine->host, loop->requests->call);
        request_end(loop->requests, error ? error : &over);
    }
}

/* ---- Opening ---- */

static void loop_release(pl_attached_t *self)
{
    pl_loop_t *loop = (pl_loop_t *)self;
    pl_batch_pool_close(loop->pool);
    pl_free(loop->run_dir);
    pl_free(loop);
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
        .attached = {run_reported, run_ended, loop_release},
        .depth = spec->depth ? spec->depth : PL_LOOP_DEPTH,
        .lr_factor = 1,
        .field_count = spec->field_count,
        .targets = spec->targets,
        .enable_checkpointing = spec->enable_checkpointing,
        .rows = rows,
        .ready = {.kind = PL_NOTIFICATION_LOOP, .deliver = ready_deliver},
        .closed = {.kind = PL_NOTIFICATION_LOOP, .deliver = closed_deliver},
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
    if (pl_require(spec, "a loop's spec", err) != PL_OK
        || pl_loop_spec_check(spec, err) != PL_OK)
        return NULL;
    pl_trainer_t *trainer = pl_trainer_new(engine, options, err);
    pl_job_t *job = trainer ? pl_loop_job(options, spec, err) : NULL;
    pl_loop_t *loop = job ? loop_new(spec, pl_loop_rows(job), err) : NULL;
    if (!loop) {
        pl_object_unref(job);
        pl_trainer_free(trainer);
        return NULL;
    }
    loop->trainer = loop->ready.trainer = loop->closed.trainer = trainer;
    loop->ranks = pl_request_ranks(job);
    loop->has_micro_shards = pl_trainer_is_elastic(job->trainer);
    const pl_module_ops_t *module =
        pl_component_find("module", pl_options_choice(options, "module", ""), NULL);
    loop->objectives = module ? module->objectives : NULL;
    loop->on_ready = on_ready;
    loop->ready_user = user;
    trainer->attached = &loop->attached;
    if (pl_trainer_begin(trainer, job, on_done, loop, err) == PL_OK) {
        engine->calls++;
        return loop;
    }
    pl_trainer_free(trainer);
    return NULL;
}

/* ---- Requests ---- */

int pl_loop_is_ready(const pl_loop_t *loop, pl_error_t *err)
{
    if (pl_require(loop, "a loop", err) != PL_OK)
        return PL_EINVAL;
    if (pl_engine_is_open(loop->trainer->engine, err) != PL_OK)
        return PL_ESTATE;
    if (loop->closing)
        return pl_fail(err, PL_ESTATE, "the loop is closing");
    if (loop->state == OPENS)
        return pl_fail(err, PL_ESTATE, "the loop is not open yet: wait for on_ready");
    if (loop->state == OVER)
        return pl_fail(err, PL_ESTATE, "the loop has ended: %s", loop->failure.text);
    if (loop->attached.requests == loop->depth)
        return pl_fail(err, PL_EBUSY,
                       "%d requests are already in flight: wait for the result of one, "
                       "or open the loop with a larger depth",
                       loop->attached.requests);
    return PL_OK;
}

static request_t *request_new(pl_loop_t *loop, pl_on_loop_t then, void *user,
                              pl_error_t *err)
{
    request_t *request = pl_alloc(sizeof *request);
    if (!request) {
        pl_no_memory(err);
        return NULL;
    }
    *request = (request_t){.notification = {.kind = PL_NOTIFICATION_LOOP,
                                            .trainer = loop->trainer,
                                            .deliver = request_deliver},
                           .loop = loop,
                           .lr_factor = loop->lr_factor,
                           .then = then,
                           .user = user};
    return request;
}

/* Consumes the request, also on failure. */
static int request_post(pl_loop_t *loop, request_t *request, pl_error_t *err)
{
    pl_engine_t *engine = loop->trainer->engine;
    int code = pl_reactor_post(engine->reactor, request_begin, request, err);
    if (code == PL_OK) {
        loop->attached.requests++;
        engine->calls++;
    } else {
        request_free(request);
    }
    return code;
}

const pl_module_objective_t *pl_loop_objectives(const pl_loop_t *loop)
{
    return loop->objectives;
}

int pl_loop_send_batch(pl_loop_t *loop, pl_stage_t stage, int objective,
                       const pl_arrays_t *samples, pl_on_loop_t then, void *user,
                       pl_error_t *err)
{
    int code = pl_loop_is_ready(loop, err);
    const bool steps = objective && !samples, shares = loop && loop->has_micro_shards,
               may_lack = shares && loop->ranks > 1 && stage != PL_PREDICT;
    if (code == PL_OK && !steps)
        code = pl_require(samples, "a batch", err);
    if (code == PL_OK && !steps
        && (samples->samples < !may_lack || samples->samples > loop->rows
            || samples->field_count < 1 || samples->field_count > PL_FIELDS))
        code = pl_fail(err, PL_EINVAL,
                       "the batch has %lld samples of %d fields: give %d to %lld samples "
                       "(\"data.batch_size\"%s) of 1 to %d fields",
                       (long long)samples->samples, samples->field_count, !may_lack,
                       (long long)loop->rows, shares ? " in each piece" : "", PL_FIELDS);
    if (code != PL_OK)
        return code;
    request_t *request = request_new(loop, then, user, err);
    if (!request)
        return PL_ENOMEM;
    request->stage = stage;
    request->objective = objective;
    request->batch = pl_batch_pool_take(loop->pool, err);
    code = request->batch ? PL_OK : PL_ENOMEM;
    if (request->batch) {
        request->batch->stage = stage;
        request->batch->count = request->batch->length = 0;
    }
    if (code == PL_OK && !steps)
        code = pl_loop_batch_fill(loop->field,
                                  loop->field_count
                                      - (stage == PL_PREDICT ? loop->targets : 0),
                                  samples, request->batch, err);
    if (code == PL_OK)
        return request_post(loop, request, err);
    request_free(request);
    return code;
}

int pl_loop_train(pl_loop_t *loop, const pl_arrays_t *samples, pl_on_loop_t then,
                  void *user, pl_error_t *err)
{
    return pl_loop_send_batch(loop, PL_TRAIN, 0, samples, then, user, err);
}

int pl_loop_evaluate(pl_loop_t *loop, const pl_arrays_t *samples, pl_on_loop_t then,
                     void *user, pl_error_t *err)
{
    return pl_loop_send_batch(loop, PL_VALIDATE, 0, samples, then, user, err);
}

int pl_loop_predict(pl_loop_t *loop, const pl_arrays_t *samples, pl_on_loop_t then,
                    void *user, pl_error_t *err)
{
    return pl_loop_send_batch(loop, PL_PREDICT, 0, samples, then, user, err);
}

int pl_loop_save(pl_loop_t *loop, const char *name, pl_on_loop_t then, void *user,
                 pl_error_t *err)
{
    int code = pl_loop_is_ready(loop, err);
    if (code == PL_OK)
        code = pl_require(name, "a name", err);
    if (code == PL_OK
        && (!*name || *name == '.' || strpbrk(name, "/\n") || strlen(name) >= 128))
        code = pl_fail(err, PL_EINVAL,
                       "\"%.64s\" cannot be the name of a checkpoint: it must have no "
                       "'/' and no '.' at its start",
                       name);
    if (code == PL_OK && !loop->enable_checkpointing)
        code = pl_fail(
            err, PL_ESTATE,
            "this loop has no run directory: open it with `enable_checkpointing` set");
    if (code != PL_OK)
        return code;
    request_t *request = request_new(loop, then, user, err);
    if (!request)
        return PL_ENOMEM;
    request->name = pl_strdup(name);
    if (request->name)
        return request_post(loop, request, err);
    request_free(request);
    return pl_no_memory(err);
}

int pl_loop_send_gradients(pl_loop_t *loop, int objective, pl_weights_t *set,
                           pl_on_loop_t then, void *user, pl_error_t *err)
{
    request_t *request = request_new(loop, then, user, err);
    if (!request) {
        pl_object_unref(set);
        return PL_ENOMEM;
    }
    request->objective = objective;
    request->sees_gradients = true;
    request->gradients = set;
    return request_post(loop, request, err);
}

int pl_loop_send_exchange(pl_loop_t *loop, pl_loop_exchange_t *x, pl_on_loop_t then,
                          void *user, pl_error_t *err)
{
    int code = pl_loop_is_ready(loop, err);
    if (code == PL_OK && x->msg.root >= (uint32_t)loop->ranks)
        code = pl_fail(err, PL_EINVAL, "there is no rank %d: ranks are 0 to %d",
                       (int)x->msg.root, loop->ranks - 1);
    request_t *request = code == PL_OK ? request_new(loop, then, user, err) : NULL;
    if (!request) {
        pl_loop_exchange_free(x);
        return code == PL_OK ? PL_ENOMEM : code;
    }
    request->exchange = x;
    return request_post(loop, request, err);
}

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

/* Ends the run behind the loop when all is done: with several ranks, what each of them
 * has sent. */
static void end_send(void *argument)
{
    pl_loop_t *loop = argument;
    if (!pl_is_nobody(loop->at))
        pl_call_end_loop(loop->trainer->engine->host, loop->at, &(pl_end_loop_t){0},
                         (pl_how_t){0}, NULL);
}

void pl_loop_close(pl_loop_t *loop, pl_on_loop_t on_closed, void *user)
{
    if (!loop || loop->closing)
        return;
    pl_engine_t *engine = loop->trainer->engine;
    loop->closing = true;
    engine->calls++;
    loop->on_closed = on_closed;
    loop->closed_user = user;
    if (loop->state == OVER)
        pl_notifications_push(&engine->notifications, &loop->closed);
    else if (loop->state != READY
             || pl_reactor_post(engine->reactor, end_send, loop, NULL) != PL_OK)
        while (pl_trainer_stop(loop->trainer, "the program closes the loop", NULL)
               == PL_ENOMEM)
            usleep(1000);                             /* memory may be out for a moment */
}
