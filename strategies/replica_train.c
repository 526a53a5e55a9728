/* replica_train.c - a training step of a replica, from its batch to its reply
 *
 * A step is two replays: forward_backward, and optimizer_step when one is due.  Both are
 * sent at once; the accelerator takes them in order.  One that is not finite is guarded
 * there: it changes nothing, and what was sent behind it does not run.  Its gradients
 * stay where they are, so the first bad tensor can be looked up and named; then the step
 * fails, or is told as skipped and those behind it are sent once more. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica_parts.h"
#include "tensor/model.h"

/* One micro-batch under way, and the optimizer step behind it. */
typedef struct round {
    struct round *next;                                     /* behind it; or spare */
    pl_call_t *call;
    pl_batch_t *batch;                          /* kept by the call */
    uint64_t number;                            /* the optimizer step it is for, from 1 */
    uint32_t shard;
    bool step_due, may_skip;
    int pending;                                            /* replays not yet ended */
    bool guarded;
    double lr_factor, lr, average_share, grad_norm, loss, loss_scale;
    uint64_t skipped_steps;
    size_t figures_size, figures_room;                      /* bytes */
    double *figures;
    pl_error_t failure;
} round_t;

typedef struct pl_rounds {
    round_t *first, **last;                              /* in the order of their calls */
    round_t *spare;
    uint64_t ended_by;                  /* the first step that failed  [0: none] */
    int looking;                        /* calls under way that look into a guarded one */
    bool resumes;                       /* with the next replay */
    char bad[128];                      /* what was not finite in it */
} pl_rounds_t;

pl_rounds_t *pl_rounds_new(pl_error_t *err)
{
    pl_rounds_t *rounds = pl_alloc(sizeof *rounds);
    if (rounds)
        rounds->last = &rounds->first;
    else
        pl_no_memory(err);
    return rounds;
}

static void list_free(round_t *round)
{
    while (round) {
        round_t *next = round->next;
        pl_free(round->figures);
        pl_free(round);
        round = next;
    }
}

void pl_rounds_free(pl_rounds_t *rounds)
{
    if (!rounds)
        return;
    list_free(rounds->first);
    list_free(rounds->spare);
    pl_free(rounds);
}

/* From a list of spare ones, so that a step allocates nothing. */
static round_t *round_take(pl_rounds_t *rounds, pl_error_t *err)
{
    round_t *round = rounds->spare;
    if (round)
        rounds->spare = round->next;
    else if (!(round = pl_alloc(sizeof *round)))
        pl_no_memory(err);
    return round;
}

/* The oldest has been answered. */
static void round_give(pl_rounds_t *rounds)
{
    round_t *round = rounds->first;
    rounds->first = round->next;
    if (!rounds->first)
        rounds->last = &rounds->first;
    round->next = rounds->spare;
    rounds->spare = round;
}

static void rounds_settle(pl_replica_t *r);

/* ---- replays ---- */

static void round_answered(pl_replica_t *r, round_t *round, const pl_answer_t *answer)
{
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    if (answer->kind == PL_ANSWER_ERROR && round->failure.code == PL_OK)
        round->failure = *answer->error;
    if (--round->pending == 0)
        rounds_settle(r);
}

/* Into memory of its own, which grows once. */
static void figures_keep(round_t *round, pl_bytes_t figures)
{
    if (figures.size > round->figures_room) {
        pl_free(round->figures);
        round->figures = pl_alloc(figures.size);
        round->figures_room = round->figures ? figures.size : 0;
    }
    round->figures_size = figures.size <= round->figures_room ? figures.size : 0;
    if (round->figures_size != figures.size)
        pl_no_memory(&round->failure);
    if (round->figures_size)
        memcpy(round->figures, figures.data, round->figures_size);
}

static void forward_backward_answered(void *self, const pl_answer_t *answer)
{
    round_t *round = answer->context;
    if (answer->kind == PL_ANSWER_REPLY)
        figures_keep(round, answer->body->replay_plan_reply.figures);
    round_answered(self, round, answer);
}

static void optimizer_answered(void *self, const pl_answer_t *answer)
{
    round_t *round = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_replay_plan_reply_t *reply = &answer->body->replay_plan_reply;
        double figures[8] = {0};                         /* four pairs: see optimizer.h */
        memcpy(figures, reply->figures.data,
               reply->figures.size < sizeof figures ? reply->figures.size
                                                    : sizeof figures);
        round->loss = figures[0];
        round->grad_norm = figures[2];
        round->loss_scale = figures[4];
        round->skipped_steps = (uint64_t)figures[6];
        round->guarded = reply->guarded;
    }
    round_answered(self, round, answer);
}

static int send_forward_backward(pl_replica_t *r, round_t *round, pl_error_t *err)
{
    const pl_replica_plan_t *plan = pl_replica_plan(r, PL_TRAIN, round->batch,
                                                    round->shard > 0, err);
    if (!plan)
        return err->code;
    const pl_replay_plan_t msg = {.plan = plan->number,
                                  .what = "forward_backward",
                                  .seed = (uint64_t)r->job->trainer->seed,
                                  .step = round->number,
                                  .shard = round->shard,
                                  .halts = true,
                                  .resumes = r->rounds->resumes,
                                  .batch = &round->batch->object};
    const pl_how_t how = {.on_answer = forward_backward_answered, .context = round};
    if (!pl_call_replay_plan(r, r->accelerator, &msg, how, err))
        return err->code;
    r->rounds->resumes = false;
    round->pending++;
    return PL_OK;
}

static void send_optimizer_step(pl_replica_t *r, round_t *round)
{
    float scalars[PL_STEP_SCALARS] = {0};
    pl_optimizer_scalars(r->optimizer, round->lr_factor, round->number, scalars);
    scalars[PL_SCALAR_AVERAGE] = (float)round->average_share;
    const pl_replay_plan_t msg = {.plan =
                                      pl_replica_plan_of(r, PL_PLAN_OPTIMIZER)->number,
                                  .what = "optimizer_step",
                                  .seed = (uint64_t)r->job->trainer->seed,
                                  .step = round->number,
                                  .halts = true,
                                  .scalars = {scalars, sizeof scalars}};
    const pl_how_t how = {.on_answer = optimizer_answered, .context = round};
    if (pl_call_replay_plan(r, r->accelerator, &msg, how, &round->failure))
        round->pending++;
}

static int round_send(pl_replica_t *r, round_t *round, pl_error_t *err)
{
    round->guarded = false;
    int code = send_forward_backward(r, round, err);
    if (code == PL_OK && round->step_due)
        send_optimizer_step(r, round);
    return code;
}

/* ---- a step that was not finite ---- */

static const char *first_bad(const pl_replica_t *r, const pl_floats_t *grads)
{
    for (int k = 0; k < r->model->count; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (t->region == PL_REGION_PARAMS)
            for (int64_t i = t->offset; i < t->offset + t->count; i++)
                if (!isfinite(grads->data[i]))
                    return t->name;
    }
    return NULL;
}

static void bad_describe(pl_rounds_t *rounds, const char *name)
{
    snprintf(rounds->bad, sizeof rounds->bad, "the %s is not finite%s%s%s",
             isfinite(rounds->first->loss) ? "gradient" : "loss",
             name ? ", the first bad gradient is that of \"" : "", name ? name : "",
             name ? "\"" : "");
}

static void bad_tell(pl_rounds_t *rounds)
{
    round_t *round = rounds->first;
    if (round->may_skip && round->failure.code == PL_OK) {
        pl_reply_train_batch(round->call, &(pl_train_batch_reply_t){.lr = round->lr,
                                                                    .skipped = true,
                                                                    .bad = rounds->bad});
    } else {
        pl_fail(&round->failure, PL_ENAN,
                "step %llu: %s; it changed no weight: lower the learning rate, set "
                "trainer.gradient_clip_val or look at the data",
                (unsigned long long)round->number, rounds->bad);
        pl_call_fail(round->call, &round->failure);
        rounds->ended_by = round->number;
    }
    round_give(rounds);
}

/* The accelerator answers in order: what was sent behind the bad step is back as well,
 * and has not run. */
static void look_end(pl_replica_t *r)
{
    pl_rounds_t *rounds = r->rounds;
    bad_tell(rounds);
    rounds->resumes = true;
    for (round_t *round = rounds->first; round && !rounds->ended_by; round = round->next)
        round_send(r, round, &round->failure);
    rounds_settle(r);
}

static void looked(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    round_t *round = r->rounds->first;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    if (answer->kind == PL_ANSWER_ERROR)
        round->failure = *answer->error;
    else if (answer->context)
        bad_describe(r->rounds,
                     first_bad(r, (pl_floats_t *)answer->body->read_region_reply.floats));
    if (--r->rounds->looking == 0)
        look_end(r);
}

/* Which gradient is bad, and the state of before, which forward may have changed. */
static void look(pl_replica_t *r)
{
    pl_rounds_t *rounds = r->rounds;
    round_t *round = rounds->first;
    pl_read_region_t read = {.region = PL_REGION_GRADS,
                             .count = (uint64_t)r->model->params};
    pl_replay_plan_t restore = {.what = "restore"};
    bad_describe(rounds, NULL);
    rounds->looking +=
        pl_call_read_region(r, r->accelerator, &read,
                            (pl_how_t){.on_answer = looked, .context = round},
                            &round->failure)
        != 0;
    const pl_replica_plan_t *plan = pl_replica_plan_of(r, PL_PLAN_RESTORE);
    if (plan) {
        restore.plan = plan->number;
        rounds->looking += pl_call_replay_plan(r, r->accelerator, &restore,
                                               (pl_how_t){.on_answer = looked},
                                               &round->failure)
                           != 0;
    }
    if (!rounds->looking)
        look_end(r);
}

/* ---- answers ---- */

/* A loss that is not finite, of a step that scaling has skipped, says nothing. */
static void round_reply(round_t *round)
{
    if (!isfinite(round->loss))
        round->figures_size = 0;
    pl_reply_train_batch(round->call,
                         &(pl_train_batch_reply_t){.lr = round->lr,
                                                   .grad_norm = round->grad_norm,
                                                   .loss_scale = round->loss_scale,
                                                   .skipped_steps = round->skipped_steps,
                                                   .bad = "",
                                                   .figures = {round->figures,
                                                               round->figures_size}});
}

static int fail_behind(const pl_rounds_t *rounds, uint64_t number, pl_error_t *err)
{
    return pl_fail(err, PL_ECANCELLED, "step %llu was not run, because step %llu failed",
                   (unsigned long long)number, (unsigned long long)rounds->ended_by);
}

/* The oldest ends first. */
static void rounds_settle(pl_replica_t *r)
{
    pl_rounds_t *rounds = r->rounds;
    for (round_t *round; (round = rounds->first) && !round->pending && !rounds->looking;
         round_give(rounds)) {
        if (rounds->ended_by && round->failure.code == PL_OK && round->guarded)
            fail_behind(rounds, round->number, &round->failure);
        else if (round->failure.code == PL_OK && round->guarded) {
            look(r);
            return;
        }
        if (round->failure.code == PL_OK) {
            round_reply(round);
            continue;
        }
        pl_call_fail(round->call, &round->failure);
        if (!rounds->ended_by)
            rounds->ended_by = round->number;
    }
}

int pl_replica_train(pl_replica_t *r, pl_call_t *call, const pl_train_batch_t *msg,
                     pl_error_t *err)
{
    pl_rounds_t *rounds = r->rounds;
    if (rounds->ended_by)
        return fail_behind(rounds, msg->global_step, err);
    round_t *round = round_take(rounds, err);
    if (!round)
        return PL_ENOMEM;
    *round = (round_t){.figures = round->figures,
                       .figures_room = round->figures_room,
                       .call = call,
                       .batch = (pl_batch_t *)msg->batch,
                       .number = msg->global_step,
                       .shard = msg->shard,
                       .step_due = msg->step_due,
                       .may_skip = msg->may_skip,
                       .lr_factor = pl_replica_lr_factor(r, msg),
                       .average_share = pl_replica_average_share(r, msg)};
    round->lr = msg->step_due ? pl_optimizer_lr(r->optimizer) * round->lr_factor : 0;
    *rounds->last = round;
    rounds->last = &round->next;
    if (!rounds->looking && round_send(r, round, &round->failure) != PL_OK)
        rounds_settle(r);
    return PL_OK;
}
