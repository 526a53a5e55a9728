/* strategy.c - a strategy as users write one, against installed headers: single once
 * more, with a factor on the rate */
#include <stdlib.h>
#include <string.h>
#include <strategies/replica.h>

/* One batch under way. */
typedef struct step {
    pl_call_t *call;
    int pending;                        /* calls of the accelerator that have not ended */
    double lr, norm;
    size_t size;
    double figures[128];
    const pl_replica_plan_t *plan;                /* of a forward pass, and its outputs */
    pl_outputs_t *outputs;
    pl_error_t failure;
} step_t;

typedef struct plain {
    pl_replica_t replica;                                   /* first: see replica.h */
    double factor;
} plain_t;

static const pl_option_t plain_options[] = {
    PL_FLOAT(plain_t, factor, "1", "(0..", "on the learning rate"),
    PL_OPTIONS_END,
};

static int plain_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    pl_actor_ready(self);
    return PL_OK;
}

static int plain_setup(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    return pl_replica_setup(self, call, &body->setup, true, err);
}

static int plain_split(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)self, (void)body, (void)err;
    return pl_reply_process_dataloader(call,
                                       &(pl_process_dataloader_reply_t){.part = 0,
                                                                        .parts = 1});
}

static int plain_names(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    char *names = pl_replica_figure_names(self, body->figure_names.stage, err);
    if (!names)
        return PL_ENOMEM;
    int code = pl_reply_figure_names(call, &(pl_figure_names_reply_t){.names = names});
    pl_text_free(names);
    return code;
}

/* ---- steps ---- */

static step_t *step_new(pl_call_t *call, pl_error_t *err)
{
    step_t *step = calloc(1, sizeof *step);
    if (step)
        step->call = call;
    else
        pl_fail(err, PL_ENOMEM, "out of memory");
    return step;
}

static void step_free(step_t *step)
{
    pl_object_unref(step->outputs);
    free(step);
}

/* True when the last of its calls has ended well. */
static bool step_ended(step_t *step, const pl_answer_t *answer)
{
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return false;
    if (answer->kind == PL_ANSWER_ERROR && !step->failure.code)
        step->failure = *answer->error;
    if (--step->pending)
        return false;
    if (!step->failure.code)
        return true;
    pl_call_fail(step->call, &step->failure);
    step_free(step);
    return false;
}

static void step_reply(step_t *step)
{
    pl_reply_train_batch(step->call, &(pl_train_batch_reply_t){.lr = step->lr,
                                                               .grad_norm = step->norm,
                                                               .figures = {step->figures,
                                                                           step->size}});
    step_free(step);
}

static void computed(void *self, const pl_answer_t *answer)
{
    (void)self;
    step_t *step = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        step->size = answer->body->replay_plan_reply.figures.size;
        memcpy(step->figures, answer->body->replay_plan_reply.figures.data, step->size);
    }
    if (step_ended(step, answer))
        step_reply(step);
}

static void updated(void *self, const pl_answer_t *answer)
{
    (void)self;
    step_t *step = answer->context;
    if (answer->kind == PL_ANSWER_REPLY)
        step->norm = ((const double *)answer->body->replay_plan_reply.figures.data)[2];
    if (step_ended(step, answer))
        step_reply(step);
}

static int plain_train(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    plain_t *plain = self;
    const pl_train_batch_t *msg = &body->train_batch;
    step_t *step = step_new(call, err);
    if (!step)
        return PL_ENOMEM;
    const pl_replica_step_t what = {.batch = (pl_batch_t *)msg->batch,
                                    .number = msg->global_step,
                                    .shard = msg->shard,
                                    .accumulate = msg->shard > 0};
    pl_how_t how = {.on_answer = computed, .context = step},
             then = {.on_answer = updated, .context = step};
    if (!pl_replica_forward_backward(self, &what, how, err)) {
        step_free(step);
        return err->code;
    }
    step->pending = 1;
    if (!msg->step_due)
        return PL_OK;
    step->lr = plain->factor
               * pl_replica_lr(self, msg->global_step, msg->total_steps, msg->lr_factor);
    if (pl_replica_optimizer_step(self, msg->global_step, step->lr, then, &step->failure))
        step->pending++;
    return PL_OK;
}

static void forwarded(void *self, const pl_answer_t *answer)
{
    (void)self;
    step_t *step = answer->context;
    if (!step_ended(step, answer))
        return;
    pl_replica_outputs_filled(step->plan, step->outputs);
    pl_evaluate_batch_reply_t reply = {.figures = answer->body->replay_plan_reply.figures,
                                       .outputs = step->outputs ? &step->outputs->object
                                                                : NULL};
    pl_reply_evaluate_batch(step->call, &reply);
    step_free(step);
}

static int plain_evaluate(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    pl_batch_t *batch = (pl_batch_t *)body->evaluate_batch.batch;
    bool failed = false;
    step_t *step = step_new(call, err);
    if (!step)
        return PL_ENOMEM;
    step->pending = 1;
    step->plan = pl_replica_plan(self, body->evaluate_batch.stage, batch->count, false,
                                 err);
    if (step->plan && body->evaluate_batch.stage == PL_PREDICT)
        step->outputs = pl_replica_outputs(step->plan, &failed, err);
    pl_how_t how = {.on_answer = forwarded, .context = step};
    if (step->plan && !failed
        && pl_replica_forward(self, step->plan, batch, step->outputs, how, err))
        return PL_OK;
    step_free(step);
    return err->code;
}

static int plain_export(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    return pl_replica_export(self, call, body->export_weights.whole, err);
}

static int plain_import(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    return pl_replica_import(self, call,
                             (const pl_weights_t *)body->import_weights.weights,
                             body->import_weights.whole, err);
}

static void plain_release(void *self)
{
    pl_replica_release(self);
}

static const pl_handler_t plain_handlers[] = {
    PL_ON(start, plain_start),
    PL_ON(setup, plain_setup),
    PL_ON(process_dataloader, plain_split),
    PL_ON(figure_names, plain_names),
    PL_ON(train_batch, plain_train),
    PL_ON(evaluate_batch, plain_evaluate),
    PL_ON(export_weights, plain_export),
    PL_ON(import_weights, plain_import),
    PL_HANDLERS_END,
};

static const pl_actor_ops_t plain_strategy = {
    .name = "plain",
    .help = "from a plug-in",
    .size = sizeof(plain_t),
    .options = plain_options,
    .role = "strategy",
    .level = PL_LEVEL_STRATEGY,
    .handlers = plain_handlers,
    .release = plain_release,
};

PL_PLUGIN({"strategy", &plain_strategy})
