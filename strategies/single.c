/* single.c - one rank, one device: nothing to agree with anybody about
 *
 * A step is two replays on the accelerator: forward_backward, and optimizer_step when one
 * is due.  Both are sent at once; the accelerator takes them in order. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/replica.h"
#include "strategies/strategies.h"

enum { STEPS_MOST = 32, FIGURES_MOST = 64 };

/* One batch under way: train_batch or evaluate_batch. */
typedef struct step {
    pl_call_t *call;                            /* NULL: a free place */
    pl_batch_t *batch;                          /* kept by the call */
    uint64_t number;                            /* the optimizer step it is for, from 1 */
    uint32_t shard;
    int pending;                                            /* replays not yet ended */
    bool guarded, waits;
    double lr, grad_norm, loss;
    size_t figures_size;
    double figures[2 * FIGURES_MOST];
    const pl_replica_plan_t *plan;                          /* of a forward pass */
    pl_outputs_t *outputs;                                  /* counted */
    pl_error_t failure;
} step_t;

typedef struct single {
    pl_replica_t replica;                 /* first: see replica.h */
    step_t step[STEPS_MOST];              /* as many as credit allows */
    uint64_t ended_by;                    /* the first step that failed or was guarded [0:
                                             none] */
    bool looking;                         /* for what was not finite in it */
    struct {
        uint64_t step;
        uint32_t shard;
        pl_batch_t *batch;           /* counted  [none] */
    } suspect;                       /* the newest step's first loss that is not finite */
} single_t;

static int single_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)call, (void)body;
    if (pl_is_nobody(pl_peer(self, "accelerator")))
        return pl_fail(err, PL_EINVAL, "the strategy was given no accelerator");
    pl_actor_ready(self);
    return PL_OK;
}

static int single_setup(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    single_t *single = self;
    return pl_replica_setup(&single->replica, call, &body->setup, true, err);
}

static int single_process_dataloader(void *self, pl_call_t *call, const pl_body_t *body,
                                     pl_error_t *err)
{
    (void)self, (void)body, (void)err;
    return pl_reply_process_dataloader(call,
                                       &(pl_process_dataloader_reply_t){.part = 0,
                                                                        .parts = 1});
}

static int single_figure_names(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    single_t *single = self;
    char *names = pl_replica_figure_names(&single->replica, body->figure_names.stage,
                                          err);
    if (!names)
        return PL_ENOMEM;
    int code = pl_reply_figure_names(call, &(pl_figure_names_reply_t){.names = names});
    pl_free(names);
    return code;
}

/* ---- a training step ---- */

static step_t *step_take(single_t *single, pl_call_t *call)
{
    step_t *step = single->step;
    while (step->call)
        step++;                        /* the mailbox lets no more calls in than there are
                                          places */
    *step = (step_t){.call = call};
    return step;
}

static void step_give(step_t *step)
{
    pl_object_unref(step->outputs);
    step->outputs = NULL;
    step->call = NULL;
}

static void step_fail(step_t *step)
{
    pl_call_fail(step->call, &step->failure);
    step_give(step);
}

/* Answers a step that was looked into, and those behind it. */
static void looked(single_t *single, step_t *step)
{
    single->looking = false;
    step_fail(step);
    for (int k = 0; k < STEPS_MOST; k++)
        if (single->step[k].call && single->step[k].waits)
            step_fail(&single->step[k]);
}

/* The gradients of the batch once more are here: say which tensor was the first that is
 * not finite. */
static void bad_read(void *self, const pl_answer_t *answer)
{
    single_t *single = self;
    step_t *step = answer->context;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    const char *bad = NULL;
    if (answer->kind == PL_ANSWER_REPLY)
        bad = pl_replica_first_bad(&single->replica,
                                   (pl_floats_t *)answer->body->read_region_reply.floats);
    pl_fail(&step->failure, PL_ENAN,
            "step %llu: the %s is not finite%s%s%s; it changed no weight: lower the "
            "learning rate, set "
            "trainer.gradient_clip_val or look at the data",
            (unsigned long long)step->number, isfinite(step->loss) ? "gradient" : "loss",
            bad ? ", the first bad gradient is that of \"" : "", bad ? bad : "",
            bad ? "\"" : "");
    looked(single, step);
}

static void bad_replayed(void *self, const pl_answer_t *answer)
{
    (void)self, (void)answer;           /* what matters is what the read after it finds */
}

static uint64_t forward_backward(single_t *single, const step_t *step, bool again,
                                 pl_on_answer_t on_answer, pl_error_t *err)
{
    const pl_replica_step_t what = {.batch = step->batch,
                                    .number = step->number,
                                    .shard = step->shard,
                                    .accumulate = step->shard > 0 && !again,
                                    .again = again};
    pl_how_t how = {.on_answer = on_answer, .context = (void *)step};
    return pl_replica_forward_backward(&single->replica, &what, how, err);
}

/* Of a step in several batches any may be the one. */
static void suspect_keep(single_t *single, const step_t *step)
{
    if (isfinite(step->loss) || single->suspect.step == step->number)
        return;
    pl_object_unref(single->suspect.batch);
    single->suspect.step = step->number;
    single->suspect.shard = step->shard;
    single->suspect.batch = pl_object_ref(step->batch);
}

/* A guard keeps the weights as they were at the bad step, so the same batch gives the
 * same gradients again. */
static void find_bad(single_t *single, step_t *step)
{
    pl_how_t how = {.on_answer = bad_read, .context = step};
    if (single->suspect.step == step->number) {
        step->loss = NAN;
        step->batch = single->suspect.batch;
        step->shard = single->suspect.shard;
    }
    forward_backward(single, step, true, bad_replayed, NULL);
    single->looking = true;
    if (!pl_replica_read_gradients(&single->replica, how, &step->failure))
        looked(single, step);
}

static void step_end(single_t *single, step_t *step)
{
    uint64_t before = single->ended_by;
    if (!before && (step->guarded || step->failure.code != PL_OK))
        single->ended_by = step->number;
    if (step->failure.code == PL_OK && step->guarded && before)
        pl_fail(&step->failure, PL_ECANCELLED,
                "step %llu was not run, because step %llu failed",
                (unsigned long long)step->number, (unsigned long long)before);
    if (step->failure.code != PL_OK && single->looking) {
        step->waits = true;                                 /* answers come in order */
        return;
    }
    if (step->failure.code != PL_OK) {
        step_fail(step);
        return;
    }
    if (step->guarded) {
        find_bad(single, step);
        return;
    }
    pl_train_batch_reply_t reply = {.lr = step->lr,
                                    .grad_norm = step->grad_norm,
                                    .figures = {step->figures, step->figures_size}};
    pl_reply_train_batch(step->call, &reply);
    step_give(step);
}

static void figures_keep(step_t *step, pl_bytes_t figures)
{
    step->figures_size = figures.size < sizeof step->figures ? figures.size
                                                             : sizeof step->figures;
    memcpy(step->figures, figures.data, step->figures_size);
    step->loss = step->figures_size ? step->figures[0] : 0;
}

static void step_answered(single_t *single, step_t *step, const pl_answer_t *answer)
{
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    if (answer->kind == PL_ANSWER_ERROR && step->failure.code == PL_OK)
        step->failure = *answer->error;
    if (--step->pending == 0)
        step_end(single, step);
}

static void forward_backward_answered(void *self, const pl_answer_t *answer)
{
    step_t *step = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        figures_keep(step, answer->body->replay_plan_reply.figures);
        suspect_keep(self, step);
    }
    step_answered(self, step, answer);
}

static void optimizer_answered(void *self, const pl_answer_t *answer)
{
    step_t *step = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_replay_plan_reply_t *reply = &answer->body->replay_plan_reply;
        double figures[4] = {0};      /* loss and its weight, the norm and 1: replica.h */
        memcpy(figures, reply->figures.data,
               reply->figures.size < sizeof figures ? reply->figures.size
                                                    : sizeof figures);
        step->grad_norm = figures[2];
        step->guarded = reply->guarded;
    }
    step_answered(self, step, answer);
}

static int single_train_batch(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    single_t *single = self;
    const pl_train_batch_t *msg = &body->train_batch;
    step_t *step = step_take(single, call);
    step->batch = (pl_batch_t *)msg->batch;
    step->number = msg->global_step;
    step->shard = msg->shard;
    if (msg->step_due)
        step->lr = pl_replica_lr(&single->replica, msg->global_step, msg->total_steps,
                                 msg->lr_factor);
    if (!forward_backward(single, step, false, forward_backward_answered, err)) {
        step_give(step);
        return err->code;
    }
    step->pending = 1;
    pl_how_t how = {.on_answer = optimizer_answered, .context = step};
    if (msg->step_due
        && pl_replica_optimizer_step(&single->replica, step->number, step->lr, how,
                                     &step->failure))
        step->pending++;
    return PL_OK;
}

/* ---- forward only ---- */

static void forward_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    step_t *step = answer->context;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_call_fail(step->call, answer->error);
    if (answer->kind == PL_ANSWER_REPLY) {
        pl_replica_outputs_filled(step->plan, step->outputs);
        pl_reply_evaluate_batch(step->call,
                                &(pl_evaluate_batch_reply_t){
                                    .figures = answer->body->replay_plan_reply.figures,
                                    .outputs = step->outputs ? &step->outputs->object
                                                             : NULL});
    }
    if (answer->kind == PL_ANSWER_ERROR || answer->kind == PL_ANSWER_REPLY)
        step_give(step);
}

static int single_evaluate_batch(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    single_t *single = self;
    pl_replica_t *r = &single->replica;
    pl_batch_t *batch = (pl_batch_t *)body->evaluate_batch.batch;
    bool failed = false;
    const pl_replica_plan_t *plan = pl_replica_plan(r, body->evaluate_batch.stage,
                                                    batch->count, false, err);
    if (!plan)
        return err->code;
    step_t *step = step_take(single, call);
    step->plan = plan;
    if (body->evaluate_batch.stage == PL_PREDICT)
        step->outputs = pl_replica_outputs(plan, &failed, err);
    pl_how_t how = {.on_answer = forward_answered, .context = step};
    if (!failed && pl_replica_forward(r, plan, batch, step->outputs, how, err))
        return PL_OK;
    step_give(step);
    return err->code;
}

static int single_export_weights(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    single_t *single = self;
    return pl_replica_export(&single->replica, call, body->export_weights.whole, err);
}

static int single_import_weights(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    single_t *single = self;
    return pl_replica_import(&single->replica, call,
                             (pl_weights_t *)body->import_weights.weights,
                             body->import_weights.whole, err);
}

static void single_release(void *self)
{
    single_t *single = self;
    for (int k = 0; k < STEPS_MOST; k++)
        pl_object_unref(single->step[k].outputs);
    pl_object_unref(single->suspect.batch);
    pl_replica_release(&single->replica);
}

static const pl_handler_t single_handlers[] = {
    PL_ON(start, single_start),
    PL_ON(setup, single_setup),
    PL_ON(process_dataloader, single_process_dataloader),
    PL_ON(figure_names, single_figure_names),
    PL_ON(train_batch, single_train_batch),
    PL_ON(evaluate_batch, single_evaluate_batch),
    PL_ON(export_weights, single_export_weights),
    PL_ON(import_weights, single_import_weights),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_single_strategy = {
    .name = "single",
    .help = "one rank on one device",
    .size = sizeof(single_t),
    .role = "strategy",
    .devices_most = 1,
    .level = PL_LEVEL_STRATEGY,
    .handlers = single_handlers,
    .credit = STEPS_MOST,
    .release = single_release,
};
