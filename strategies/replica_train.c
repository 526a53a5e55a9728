/* replica_train.c - a training step of a replica, from its batch to its reply
 *
 * A step is two replays: forward_backward, and optimizer_step when one is due; so is each
 * of several steps of a module, one after the other.  All are sent at once; the
 * accelerator takes them in order.  Of several ranks each waits between the two until all
 * have added up what they have.  One that is not finite is guarded there: it changes
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
#include "strategies/replica_rounds.h"
#include "tensor/model.h"

pl_rounds_t *pl_rounds_new(pl_error_t *err)
{
    pl_rounds_t *rounds = pl_alloc(sizeof *rounds);
    if (rounds)
        rounds->last = &rounds->first;
    else
        pl_no_memory(err);
    return rounds;
}

static void list_free(pl_round_t *round)
{
    while (round) {
        pl_round_t *next = round->next;
        pl_free(round->figures);
        pl_free(round);
        round = next;
    }
}

void pl_rounds_free(pl_rounds_t *rounds)
{
    if (!rounds)
        return;
    pl_free(rounds->carried);
    list_free(rounds->first);
    list_free(rounds->spare);
    pl_free(rounds);
}

static pl_round_t *round_new(const pl_replica_t *r)
{
    pl_round_t *round = pl_alloc(sizeof *round);
    if (round)
        round->figures = pl_alloc_array(pl_figures_count(r), sizeof *round->figures);
    if (!round || round->figures)
        return round;
    pl_free(round);
    return NULL;
}

/* From a list of spare ones, so that a step allocates nothing. */
static pl_round_t *round_take(const pl_replica_t *r, pl_error_t *err)
{
    pl_round_t *round = r->rounds->spare;
    if (round)
        r->rounds->spare = round->next;
    else if (!(round = round_new(r)))
        pl_no_memory(err);
    return round;
}

/* The oldest has been answered. */
void pl_round_give(pl_rounds_t *rounds)
{
    pl_round_t *round = rounds->first;
    rounds->first = round->next;
    if (!rounds->first)
        rounds->last = &rounds->first;
    round->next = rounds->spare;
    rounds->spare = round;
}

static void rounds_go_on(pl_replica_t *r);
static void part_exchange(pl_replica_t *r, pl_part_of_round_t *part, int number);

/* ---- replays ---- */

static void replay_ended(pl_replica_t *r, pl_round_t *round, const pl_error_t *failure)
{
    if (failure && round->failure.code == PL_OK)
        round->failure = *failure;
    r->rounds->out--;
    if (--round->pending == 0)
        pl_rounds_settle(r);
    if (r->rounds->out == 0 && r->rounds->awaits) {
        r->rounds->awaits = false;
        pl_rounds_looked(r);
    }
}

static void round_answered(pl_replica_t *r, pl_round_t *round, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY || answer->kind == PL_ANSWER_ERROR)
        replay_ended(r, round, answer->kind == PL_ANSWER_ERROR ? answer->error : NULL);
}

/* After a failure, and until it is clear what was not finite. */
static void rounds_hold_back(pl_replica_t *r)
{
    if (r->rounds->sending && r->rounds->sending->begun)
        r->rounds->sending->pending--;
    r->rounds->sending = NULL;
    r->rounds->part = 0;
    r->rounds->held_back = true;
}

static void buckets_ready(pl_replica_t *r, const pl_part_of_round_t *part, int buckets)
{
    if (part->round->step_due && r->meets && r->meets->ready)
        r->meets->ready(r, pl_part_buckets(r, part, buckets));
}

static void forward_backward_answered(void *self, const pl_answer_t *answer)
{
    pl_part_of_round_t *part = answer->context;
    if (answer->kind == PL_ANSWER_PROGRESS) {
        buckets_ready(self, part, (int)answer->body->replay_plan_progress.buckets);
    } else if (answer->kind == PL_ANSWER_REPLY) {
        const pl_replay_plan_reply_t *reply = &answer->body->replay_plan_reply;
        pl_rounds_spent(self, PL_SPENT_BACKWARD, reply->forward);
        if (reply->exchange) {
            part_exchange(self, part, (int)reply->exchange);
            return;
        }
        if (reply->figures.size)
            memcpy(part->round->figures + pl_figures_before(self, part->step),
                   reply->figures.data, reply->figures.size);
        part->back = !reply->guarded;
        rounds_go_on(self);
    } else if (answer->kind == PL_ANSWER_ERROR) {
        rounds_hold_back(self);
    }
    round_answered(self, part->round, answer);
}

void pl_replica_computed(pl_replica_t *r, pl_part_of_round_t *of, bool guarded,
                         double forward, const pl_error_t *failure)
{
    of->back = !guarded && !failure;
    pl_rounds_spent(r, PL_SPENT_BACKWARD, forward);
    if (failure)
        rounds_hold_back(r);
    else
        rounds_go_on(r);
    replay_ended(r, of->round, failure);
}

/* Figures of the part that are batches'. */
static void part_follow(pl_replica_t *r, pl_part_of_round_t *part)
{
    const size_t from = pl_figures_before(r, part->step);
    pl_part_follow(r, part, part->round->figures + from,
                   pl_figures_before(r, part->step + 1) - from);
}

static void optimizer_answered(void *self, const pl_answer_t *answer)
{
    pl_part_of_round_t *part = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_replay_plan_reply_t *reply = &answer->body->replay_plan_reply;
        pl_rounds_spent(self, PL_SPENT_OPTIMIZER, 0);
        double figures[8] = {0};                         /* four pairs: see optimizer.h */
        memcpy(figures, reply->figures.data,
               reply->figures.size < sizeof figures ? reply->figures.size
                                                    : sizeof figures);
        part->loss = figures[0];
        part->norm = figures[2];
        part->scaling[0] = figures[4];
        part->scaling[1] = figures[6];
        part->guarded = reply->guarded;
        if (part->guarded)
            rounds_hold_back(self);
        else if (pl_rounds_follow(self))
            part_follow(self, part);
    } else if (answer->kind == PL_ANSWER_ERROR) {
        rounds_hold_back(self);
    }
    round_answered(self, part->round, answer);
}

/* Of an empty batch the gradients are zeros, which need not be added to others. */
static const pl_replica_plan_t *plan_of(const pl_replica_t *r,
                                        const pl_part_of_round_t *part, pl_error_t *err)
{
    const pl_round_t *round = part->round;
    const pl_replica_plan_t like = {.stage = PL_TRAIN,
                                    .step = part->step,
                                    .size = {round->batch->count, round->batch->length},
                                    .accumulate = round->shard > 0};
    if (r->meets && !round->batch->count)
        return pl_part_empty_plan(r, part);
    return pl_replica_plan(r, &like, err);
}

/* All of it, up to the first exchange; or what is behind the newest. */
static int batch_replay(pl_replica_t *r, pl_part_of_round_t *part, pl_error_t *err)
{
    const pl_round_t *round = part->round;
    const pl_how_t how = {.on_answer = forward_backward_answered, .context = part};
    pl_replay_plan_t msg = {.what = "forward_backward",
                            .seed = (uint64_t)r->job->trainer->seed,
                            .step = round->number,
                            .shard = round->shard,
                            .halts = true,
                            .resumes = r->rounds->resumes,
                            .continues = part->exchanged > 0,
                            .batch = &round->batch->object};
    if (r->meets && r->meets->compute)
        return r->meets->compute(r, &msg, part, err);
    const pl_replica_plan_t *plan = plan_of(r, part, err);
    if (!plan)
        return err->code;
    msg.plan = plan->number;
    msg.shard = msg.shard * (r->ranks ? r->ranks : 1) + r->rank;
    return pl_call_replay_plan(r, r->accelerator, &msg, how, err) ? PL_OK : err->code;
}

/* The replay that waits is not to go on. */
static void exchange_failed(pl_replica_t *r, pl_part_of_round_t *part,
                            const pl_error_t *failure)
{
    rounds_hold_back(r);
    replay_ended(r, part->round, failure);
}

static void part_exchange(pl_replica_t *r, pl_part_of_round_t *part, int number)
{
    pl_error_t err = {0};
    if (pl_part_exchange(r, part, number, &err) != PL_OK)
        exchange_failed(r, part, &err);
}

void pl_replica_exchanged(pl_replica_t *r, const pl_error_t *failure)
{
    pl_error_t err = failure ? *failure : (pl_error_t){0};
    pl_part_of_round_t *part = r->rounds->exchanging;
    pl_rounds_spent(r, PL_SPENT_COLLECTIVE, 0);
    if (failure || batch_replay(r, part, &err) != PL_OK)
        exchange_failed(r, part, &err);
}

static int send_forward_backward(pl_replica_t *r, pl_part_of_round_t *part,
                                 pl_error_t *err)
{
    const pl_round_t *round = part->round;
    if (!round->batch->count && round->shard > 0 && !pl_rounds_each(r)
        && !r->step[part->step].exchanges) {
        part->back = true;
        return PL_OK;
    }
    part->exchanged = 0;
    if (batch_replay(r, part, err) != PL_OK)
        return err->code;
    part->round->pending++;
    if (!r->rounds->out++)
        pl_rounds_spending(r);
    r->rounds->resumes = false;
    return PL_OK;
}

/* An optimizer counts its own steps, not the run's. */
static int send_optimizer_step(pl_replica_t *r, pl_part_of_round_t *part, pl_error_t *err)
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
    if (!pl_call_replay_plan(r, r->accelerator, &msg, how, err))
        return err->code;
    part->round->pending++;
    if (!r->rounds->out++)
        pl_rounds_spending(r);
    return PL_OK;
}

static bool is_due(const pl_replica_t *r, const pl_part_of_round_t *part)
{
    return part->round->number % (uint64_t)r->step[part->step].every == 0;
}

/* ---- sending ---- */

/* One of the module's steps; false: what it waits for goes on. */
static bool part_send(pl_replica_t *r, pl_part_of_round_t *part, int *code,
                      pl_error_t *err)
{
    const bool met = !r->meets || part->reduced;
    if (!part->sent) {
        part->sent = true;
        part->guarded = false;
        *code = r->meets ? pl_rounds_carry(r, err) : PL_OK;
        if (*code == PL_OK)
            *code = send_forward_backward(r, part, err);
        if (*code != PL_OK)
            return true;
    }
    if (r->meets && !part->back)
        return false;
    if (!met && !pl_rounds_each(r))
        pl_part_carry(r, part);
    if (!met && (part->round->step_due || pl_rounds_each(r))) {
        pl_rounds_spending(r);
        *code = pl_part_meet(r, part, err);
        return *code != PL_OK;
    }
    if (!part->round->step_due)
        return true;
    if (!part->asked) {
        part->asked = true;
        *code = send_optimizer_step(r, part, err);
        return *code != PL_OK || !pl_rounds_follow(r);
    }
    return part->followed;
}

/* What could not be sent fails the round, once all that was sent has come back. */
static bool round_go_on(pl_replica_t *r, pl_round_t *round)
{
    int code = PL_OK;
    if (!round->begun) {
        round->begun = true;
        round->pending++;
    }
    for (; r->rounds->part < r->steps && code == PL_OK; r->rounds->part++) {
        pl_part_of_round_t *part = &round->part[r->rounds->part];
        if (is_due(r, part) && !part_send(r, part, &code, &round->failure))
            return false;
    }
    if (code != PL_OK) {
        rounds_hold_back(r);
        return false;
    }
    r->rounds->part = 0;
    round->pending--;
    return true;
}

static void rounds_go_on(pl_replica_t *r)
{
    pl_rounds_t *rounds = r->rounds;
    while (rounds->sending && !rounds->reducing && !rounds->looking && !rounds->held
           && !rounds->ended_by && round_go_on(r, rounds->sending))
        rounds->sending = rounds->sending->next;
}

static void part_reduced(pl_replica_t *r, pl_part_of_round_t *part)
{
    part->reduced = true;
    if (pl_rounds_each(r))
        pl_part_carry(r, part);
}

void pl_replica_reduced(pl_replica_t *r, const pl_error_t *failure, bool halt)
{
    pl_rounds_t *rounds = r->rounds;
    pl_round_t *round = rounds->sending;
    rounds->reducing = false;
    pl_rounds_spent(r, PL_SPENT_COLLECTIVE, 0);
    if (rounds->looking) {
        pl_rounds_followed(r, failure, halt);
        return;
    }
    if (!round)
        return;
    round->halt |= halt;
    if (failure && round->failure.code == PL_OK)
        round->failure = *failure;
    if (failure)
        rounds_hold_back(r);
    else if (round->part[rounds->part].asked)
        round->part[rounds->part].followed = true;
    else
        part_reduced(r, &round->part[rounds->part]);
    rounds_go_on(r);
    pl_rounds_settle(r);
}

/* Those that came meanwhile, or that did not run, are sent. */
void pl_rounds_again(pl_replica_t *r)
{
    pl_rounds_t *rounds = r->rounds;
    for (pl_round_t *round = rounds->first; round; round = round->next) {
        round->begun = false;
        round->pending = 0;
        for (pl_part_of_round_t *p = round->part; p < round->part + r->steps; p++)
            p->sent = p->back = p->reduced = p->guarded = p->asked = p->followed = false;
    }
    rounds->sending = rounds->first;
    rounds->part = 0;
    rounds->held_back = false;
    rounds_go_on(r);
}

/* ---- answers ---- */

static void figure_put(pl_round_t *round, size_t *at, double value, bool is_there)
{
    round->figures[(*at)++] = value;
    round->figures[(*at)++] = is_there;
}

/* Rates, norms and the loss's factor come last, in the order of their names, a pair
 * (it, 1) each where there was an optimizer step.  A step that was not taken says
 * nothing, nor does a loss that is not finite, of a step that scaling has skipped. */
static void round_reply(const pl_replica_t *r, pl_round_t *round)
{
    size_t at = pl_figures_before(r, r->steps);
    const pl_part_of_round_t *newest = NULL;
    for (int k = 0; k < r->steps; k++) {
        const pl_part_of_round_t *part = &round->part[k];
        const size_t from = pl_figures_before(r, k), to = pl_figures_before(r, k + 1);
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
                                    .halt = round->halt,
                                    .figures = {round->figures,
                                                at * sizeof *round->figures}};
    const size_t times = r->spent_by ? (size_t)r->ranks * PL_SPENT_KINDS : 0;
    if (r->meets && !round->step_due)
        reply.figures.size = 0;
    else
        reply.spent = (pl_bytes_t){r->spent_by, times * sizeof *r->spent_by};
    pl_reply_train_batch(round->call, &reply);
    if (reply.spent.size)
        memset(r->spent_by, 0, reply.spent.size);
}

static int fail_behind(const pl_rounds_t *rounds, uint64_t number, pl_error_t *err)
{
    return pl_fail(err, PL_ECANCELLED, "step %llu was not run, because step %llu failed",
                   (unsigned long long)number, (unsigned long long)rounds->ended_by);
}

/* The oldest ends first. */
void pl_rounds_settle(pl_replica_t *r)
{
    pl_rounds_t *rounds = r->rounds;
    for (pl_round_t *round;
         (round = rounds->first) && !round->pending && !rounds->looking && !rounds->held
         && (round->begun || rounds->ended_by || round->failure.code != PL_OK);
         pl_round_give(rounds)) {
        if (rounds->ended_by && round->failure.code == PL_OK)
            fail_behind(rounds, round->number, &round->failure);
        else if (round->failure.code == PL_OK && pl_round_guarded(round)) {
            pl_rounds_look(r);
            return;
        }
        if (round->failure.code == PL_OK) {
            round_reply(r, round);
            continue;
        }
        pl_call_fail(round->call, &round->failure);
        if (rounds->ended_by)
            continue;
        r->failure = round->failure;
        rounds->ended_by = round->number;
    }
    pl_rounds_idle_begins(r);
}

int pl_replica_train(pl_replica_t *r, pl_call_t *call, const pl_train_batch_t *msg,
                     pl_error_t *err)
{
    pl_rounds_t *rounds = r->rounds;
    if (rounds->failure.code != PL_OK)
        return pl_fail(err, rounds->failure.code, "%s", rounds->failure.text);
    if (rounds->ended_by)
        return fail_behind(rounds, msg->global_step, err);
    pl_round_t *round = round_take(r, err);
    if (!round)
        return PL_ENOMEM;
    pl_rounds_idle_ends(r);
    if (!rounds->was_asked)
        pl_replica_check_average(r, msg);
    rounds->was_asked = true;
    *round = (pl_round_t){.figures = round->figures,
                          .call = call,
                          .batch = (pl_batch_t *)msg->batch,
                          .number = msg->global_step,
                          .shard = msg->shard,
                          .step_due = msg->step_due,
                          .may_skip = msg->may_skip,
                          .average_share = pl_replica_average_share(r, msg)};
    for (int k = 0; k < r->steps; k++)
        round->part[k] =
            (pl_part_of_round_t){.round = round,
                                 .step = k,
                                 .lr_factor = pl_replica_lr_factor(r, k, msg),
                                 .momentum = pl_replica_momentum(r, k, msg)};
    if (r->steps > 1)                                       /* not all are due */
        memset(round->figures, 0, pl_figures_count(r) * sizeof *round->figures);
    *rounds->last = round;
    rounds->last = &round->next;
    if (!rounds->sending && !rounds->held_back)
        rounds->sending = round;
    rounds_go_on(r);
    pl_rounds_settle(r);
    return PL_OK;
}

/* ---- between two steps ---- */

void pl_rounds_begin_anew(pl_replica_t *r)
{
    if (r->rounds->ended_by && !r->rounds->first) {
        r->rounds->resumes = true;
        r->failure.code = PL_OK;
    }
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
    for (pl_round_t *round = rounds->first; round && failure; round = round->next)
        round->failure = *failure;
    if (!failure)
        pl_rounds_again(r);
    pl_rounds_settle(r);
}
