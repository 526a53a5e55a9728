/* replica_train.c - a training step of a replica, from its batch to its reply
 *
 * A step is two replays: forward_backward, and optimizer_step when one is due; so is each
 * of several steps of a module, one after the other.  All are sent at once; the
 * accelerator takes them in order.  One that is not finite is guarded there: it changes
 * nothing, and what was sent behind it does not run.  Its gradients stay where they are,
 * so the first bad tensor can be looked up and named; then the step fails, or is told as
 * skipped and those behind it are sent once more. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "strategies/replica_parts.h"
#include "tensor/model.h"

struct round;

/* What one of the module's steps does in a round. */
typedef struct part {
    struct round *round;
    int step;
    bool guarded;
    double lr_factor, momentum, norm, loss;
    double scaling[2];                      /* the loss's factor, steps that it skipped */
} part_t;

/* One micro-batch under way, and the optimizer step behind it. */
typedef struct round {
    struct round *next;                                     /* behind it; or spare */
    pl_call_t *call;
    pl_batch_t *batch;                          /* kept by the call */
    uint64_t number;                            /* the optimizer step it is for, from 1 */
    uint32_t shard;
    bool step_due, may_skip;
    int pending;                                            /* replays not yet ended */
    double average_share;
    part_t part[PL_STEPS];
    double *figures;                             /* numbers in the order of their names */
    pl_error_t failure;
} round_t;

typedef struct pl_rounds {
    round_t *first, **last;                              /* in the order of their calls */
    round_t *spare;
    uint64_t ended_by;                  /* the first step that failed  [0: none] */
    bool begun;                         /* a step was asked for */
    bool held;                          /* nothing is sent: plans are made anew */
    pl_error_t failure;                 /* that no step can go on after  [code 0: none] */
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

/* Where the figures of a step lie among all; of the step behind the last those that its
 * optimizers give begin. */
static size_t figures_before(const pl_replica_t *r, int step)
{
    size_t before = 0;
    for (int k = 0; k < step; k++)
        before += pl_replica_figures(pl_replica_plan_of(r, PL_PLAN_BATCH, k));
    return before;
}

/* With two numbers more for each that is not of a batch plan. */
static size_t figures_count(const pl_replica_t *r)
{
    return figures_before(r, r->steps) + 2 * (size_t)pl_replica_other_figures(r);
}

static round_t *round_new(const pl_replica_t *r)
{
    round_t *round = pl_alloc(sizeof *round);
    if (round)
        round->figures = pl_alloc_array(figures_count(r), sizeof *round->figures);
    if (!round || round->figures)
        return round;
    pl_free(round);
    return NULL;
}

/* From a list of spare ones, so that a step allocates nothing. */
static round_t *round_take(const pl_replica_t *r, pl_error_t *err)
{
    round_t *round = r->rounds->spare;
    if (round)
        r->rounds->spare = round->next;
    else if (!(round = round_new(r)))
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

static void forward_backward_answered(void *self, const pl_answer_t *answer)
{
    part_t *part = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_bytes_t figures = answer->body->replay_plan_reply.figures;
        if (figures.size)
            memcpy(part->round->figures + figures_before(self, part->step), figures.data,
                   figures.size);
    }
    round_answered(self, part->round, answer);
}

static void optimizer_answered(void *self, const pl_answer_t *answer)
{
    part_t *part = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_replay_plan_reply_t *reply = &answer->body->replay_plan_reply;
        double figures[8] = {0};                         /* four pairs: see optimizer.h */
        memcpy(figures, reply->figures.data,
               reply->figures.size < sizeof figures ? reply->figures.size
                                                    : sizeof figures);
        part->loss = figures[0];
        part->norm = figures[2];
        part->scaling[0] = figures[4];
        part->scaling[1] = figures[6];
        part->guarded = reply->guarded;
    }
    round_answered(self, part->round, answer);
}

static int send_forward_backward(pl_replica_t *r, part_t *part, pl_error_t *err)
{
    const round_t *round = part->round;
    const pl_replica_plan_t like = {.stage = PL_TRAIN,
                                    .step = part->step,
                                    .size = {round->batch->count, round->batch->length},
                                    .accumulate = round->shard > 0};
    const pl_replica_plan_t *plan = pl_replica_plan(r, &like, err);
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
    const pl_how_t how = {.on_answer = forward_backward_answered, .context = part};
    if (!pl_call_replay_plan(r, r->accelerator, &msg, how, err))
        return err->code;
    r->rounds->resumes = false;
    return PL_OK;
}

/* An optimizer counts its own steps, not the run's. */
static int send_optimizer_step(pl_replica_t *r, part_t *part, pl_error_t *err)
{
    double scalars[PL_STEP_SCALARS] = {0};
    pl_optimizer_t *optimizer = r->step[part->step].optimizer;
    const uint64_t every = (uint64_t)r->step[part->step].every;
    if (!isnan(part->momentum) && pl_optimizer_cycle(optimizer, part->momentum, err) < 0)
        return err->code;
    pl_optimizer_scalars(optimizer, part->lr_factor, part->round->number / every,
                         scalars);
    scalars[PL_SCALAR_AVERAGE] = part->round->average_share;
    const pl_replica_plan_t *plan = pl_replica_plan_of(r, PL_PLAN_OPTIMIZER, part->step);
    const pl_replay_plan_t msg = {.plan = plan->number,
                                  .what = "optimizer_step",
                                  .seed = (uint64_t)r->job->trainer->seed,
                                  .step = part->round->number,
                                  .halts = true,
                                  .scalars = {scalars, sizeof scalars}};
    const pl_how_t how = {.on_answer = optimizer_answered, .context = part};
    return pl_call_replay_plan(r, r->accelerator, &msg, how, err) ? PL_OK : err->code;
}

static bool is_due(const pl_replica_t *r, const part_t *part)
{
    return part->round->number % (uint64_t)r->step[part->step].every == 0;
}

/* What could not be sent fails the round, once all that was sent has come back. */
static void round_send(pl_replica_t *r, round_t *round)
{
    int code = PL_OK;
    for (int k = 0; k < r->steps && code == PL_OK; k++) {
        part_t *part = &round->part[k];
        part->guarded = false;
        if (!is_due(r, part))
            continue;
        code = send_forward_backward(r, part, &round->failure);
        round->pending += code == PL_OK;
        if (code != PL_OK || !round->step_due)
            continue;
        code = send_optimizer_step(r, part, &round->failure);
        round->pending += code == PL_OK;
    }
}

/* ---- a step that was not finite ---- */

static const part_t *guarded_part(const round_t *round)
{
    for (int k = 0; k < PL_STEPS; k++)
        if (round->part[k].guarded)
            return &round->part[k];
    return NULL;
}

static const char *first_bad(const pl_replica_t *r, const pl_floats_t *grads)
{
    const int step = guarded_part(r->rounds->first)->step;
    for (int k = 0; k < r->model->count; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (pl_is_trained(t, step))
            for (int64_t i = t->offset; i < t->offset + t->count; i++)
                if (!isfinite(grads->dtype == PL_F64 ? grads->wide[i]
                                                     : (double)grads->data[i]))
                    return t->name;
    }
    return NULL;
}

/* "generator: the loss is not finite", or without a name of the only step. */
static void bad_describe(const pl_replica_t *r, const char *name)
{
    pl_rounds_t *rounds = r->rounds;
    const part_t *part = guarded_part(rounds->first);
    const pl_module_step_t *step = r->step[part->step].table;
    snprintf(rounds->bad, sizeof rounds->bad, "%s%sthe %s is not finite%s%s%s",
             step ? step->name : "", step ? ": " : "",
             isfinite(part->loss) ? "gradient" : "loss",
             name ? ", the first bad gradient is that of \"" : "", name ? name : "",
             name ? "\"" : "");
}

static void bad_tell(pl_rounds_t *rounds)
{
    round_t *round = rounds->first;
    if (round->may_skip && round->failure.code == PL_OK) {
        pl_reply_train_batch(round->call, &(pl_train_batch_reply_t){.skipped = true,
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
        round_send(r, round);
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
        bad_describe(r,
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
    bad_describe(r, NULL);
    rounds->looking +=
        pl_call_read_region(r, r->accelerator, &read,
                            (pl_how_t){.on_answer = looked, .context = round},
                            &round->failure)
        != 0;
    const pl_replica_plan_t *plan = pl_replica_plan_of(r, PL_PLAN_RESTORE, 0);
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

static void figure_put(round_t *round, size_t *at, double value, bool is_there)
{
    round->figures[(*at)++] = value;
    round->figures[(*at)++] = is_there;
}

/* Rates, norms and the loss's factor come last, in the order of their names, a pair
 * (it, 1) each where there was an optimizer step.  A step that was not taken says
 * nothing, nor does a loss that is not finite, of a step that scaling has skipped. */
static void round_reply(const pl_replica_t *r, round_t *round)
{
    size_t at = figures_before(r, r->steps);
    const part_t *newest = NULL;
    for (int k = 0; k < r->steps; k++) {
        const part_t *part = &round->part[k];
        const size_t from = figures_before(r, k), to = figures_before(r, k + 1);
        const bool stepped = round->step_due && is_due(r, part);
        if (!is_due(r, part) || !isfinite(part->loss))
            memset(round->figures + from, 0, (to - from) * sizeof *round->figures);
        const pl_optimizer_t *optimizer = r->step[k].optimizer;
        const int groups = optimizer->group_count;
        for (int i = 0; i <= groups; i++)
            figure_put(round, &at,
                       pl_optimizer_lr(optimizer, i ? i - 1 : groups) * part->lr_factor,
                       stepped);
        figure_put(round, &at, part->norm, stepped);
        newest = stepped ? part : newest;
    }
    for (int k = 0; k < 2 && r->model->scaling; k++)
        figure_put(round, &at, newest ? newest->scaling[k] : 0, newest != NULL);
    pl_train_batch_reply_t reply = {.bad = "",
                                    .figures = {round->figures,
                                                at * sizeof *round->figures}};
    pl_reply_train_batch(round->call, &reply);
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
    for (round_t *round;
         (round = rounds->first) && !round->pending && !rounds->looking && !rounds->held;
         round_give(rounds)) {
        if (rounds->ended_by && round->failure.code == PL_OK)
            fail_behind(rounds, round->number, &round->failure);
        else if (round->failure.code == PL_OK && guarded_part(round)) {
            look(r);
            return;
        }
        if (round->failure.code == PL_OK) {
            round_reply(r, round);
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
    if (rounds->failure.code != PL_OK)
        return pl_fail(err, rounds->failure.code, "%s", rounds->failure.text);
    if (rounds->ended_by)
        return fail_behind(rounds, msg->global_step, err);
    round_t *round = round_take(r, err);
    if (!round)
        return PL_ENOMEM;
    if (!rounds->begun)
        pl_replica_check_average(r, msg);
    rounds->begun = true;
    *round = (round_t){.figures = round->figures,
                       .call = call,
                       .batch = (pl_batch_t *)msg->batch,
                       .number = msg->global_step,
                       .shard = msg->shard,
                       .step_due = msg->step_due,
                       .may_skip = msg->may_skip,
                       .average_share = pl_replica_average_share(r, msg)};
    for (int k = 0; k < r->steps; k++)
        round->part[k] = (part_t){.round = round,
                                  .step = k,
                                  .lr_factor = pl_replica_lr_factor(r, k, msg),
                                  .momentum = pl_replica_momentum(r, k, msg)};
    *rounds->last = round;
    rounds->last = &round->next;
    if (!rounds->looking && !rounds->held) {
        round_send(r, round);
        rounds_settle(r);
    }
    return PL_OK;
}

/* ---- between two steps ---- */

void pl_rounds_begin_anew(pl_replica_t *r)
{
    if (r->rounds->ended_by && !r->rounds->first)
        r->rounds->resumes = true;
    if (!r->rounds->first)
        r->rounds->ended_by = 0;
}

int pl_rounds_hold(pl_replica_t *r, pl_error_t *err)
{
    if (r->rounds->first)
        return pl_fail(err, PL_EBUSY,
                       "parameters are frozen between two steps; some are under way");
    r->rounds->held = true;
    return PL_OK;
}

void pl_rounds_release(pl_replica_t *r, const pl_error_t *failure)
{
    pl_rounds_t *rounds = r->rounds;
    rounds->held = false;
    if (failure)
        rounds->failure = *failure;
    for (round_t *round = rounds->first; round; round = round->next)
        if (failure)
            round->failure = *failure;
        else
            round_send(r, round);
    rounds_settle(r);
}
