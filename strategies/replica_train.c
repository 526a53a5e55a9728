/* replica_train.c - a training step of a replica, from its batch to its reply
 *
 * A step is two replays: forward_backward, and optimizer_step when one is due; so is
 * each of several steps of a module, one after the other.  All are sent at once, the
 * two in one call; the accelerator takes them in order.  Of several ranks each waits
 * between the two until all have added up what they have.  One that is not finite is
 * guarded there: it changes nothing, and what was sent behind it does not run.  Its
 * gradients stay where they are, so the first bad tensor can be looked up and named;
 * then the step fails, or is told as skipped and those behind it are sent once more. */
#include <math.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "base/error.h"
#include "base/run.h"
#include "strategies/replica_rounds.h"
#include "tensor/model.h"

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

/* Unless the optimizer step has been sent behind it already. */
static void part_computed(pl_part_of_round_t *part)
{
    if (part->phase == PL_PART_COMPUTES)
        part->phase = PL_PART_COMPUTED;
}

static void batch_told(const pl_replica_t *r, const pl_part_of_round_t *part,
                       pl_bytes_t figures)
{
    if (figures.size)
        memcpy(part->round->figures + pl_figures_before(r, part->step), figures.data,
               figures.size);
}

static void forward_backward_answered(void *self, const pl_answer_t *answer)
{
    pl_part_of_round_t *part = answer->context;
    if (answer->kind == PL_ANSWER_PROGRESS) {
        buckets_ready(self, part, (int)answer->body->replay_plan_progress.buckets);
    } else if (answer->kind == PL_ANSWER_REPLY) {
        const pl_replay_plan_reply_t *reply = &answer->body->replay_plan_reply;
        pl_rounds_spent(self, PL_SPENT_BACKWARD, reply->forward, reply->seconds);
        if (reply->collective) {
            part_exchange(self, part, (int)reply->collective);
            return;
        }
        batch_told(self, part, reply->metrics);
        if (!reply->skipped)
            part_computed(part);
        rounds_go_on(self);
    } else if (answer->kind == PL_ANSWER_ERROR) {
        rounds_hold_back(self);
    }
    round_answered(self, part->round, answer);
}

void pl_replica_computed(pl_replica_t *r, pl_part_of_round_t *of, bool guarded,
                         double forward, double seconds, const pl_error_t *failure)
{
    if (!guarded && !failure)
        part_computed(of);
    pl_rounds_spent(r, PL_SPENT_BACKWARD, forward, seconds);
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

static void optimizer_told(pl_replica_t *r, pl_part_of_round_t *part, bool guarded,
                           pl_bytes_t bytes)
{
    double figures[8] = {0};                             /* four pairs: see optimizer.h */
    if (bytes.size)
        memcpy(figures, bytes.data,
               bytes.size < sizeof figures ? bytes.size : sizeof figures);
    part->loss = figures[0];
    part->norm = figures[2];
    part->scaling[0] = figures[4];
    part->scaling[1] = figures[6];
    part->guarded = guarded;
    r->step[part->step].made += !guarded;
}

static void optimizer_answered(void *self, const pl_answer_t *answer)
{
    pl_part_of_round_t *part = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_replay_plan_reply_t *reply = &answer->body->replay_plan_reply;
        pl_rounds_spent(self, PL_SPENT_OPTIMIZER, 0, reply->seconds);
        optimizer_told(self, part, reply->skipped, reply->metrics);
        if (part->guarded)
            rounds_hold_back(self);
        else if (pl_rounds_follow(self))
            part_follow(self, part);
    } else if (answer->kind == PL_ANSWER_ERROR) {
        rounds_hold_back(self);
    }
    round_answered(self, part->round, answer);
}

/* Both replays: the batch's figures, then the optimizer's. */
static void step_answered(void *self, const pl_answer_t *answer)
{
    pl_part_of_round_t *part = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_replay_plan_reply_t *reply = &answer->body->replay_plan_reply;
        pl_bytes_t batch = reply->metrics, optimizer = {0};
        const size_t count = pl_figures_before(self, part->step + 1)
                             - pl_figures_before(self, part->step);
        if (batch.size > count * sizeof(double)) {
            batch.size = count * sizeof(double);
            optimizer = (pl_bytes_t){(const char *)reply->metrics.data + batch.size,
                                     reply->metrics.size - batch.size};
        }
        batch_told(self, part, batch);
        optimizer_told(self, part, reply->skipped, optimizer);
        pl_rounds_spent(self, PL_SPENT_BACKWARD, reply->forward, reply->seconds);
        pl_rounds_spent(self, PL_SPENT_OPTIMIZER, 0, reply->then);
    }
    if (answer->kind == PL_ANSWER_ERROR
        || (answer->kind == PL_ANSWER_REPLY && part->guarded))
        rounds_hold_back(self);
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

/* An optimizer counts the steps that it made: none of another objective, and none that
 * was skipped.  Zeros at the end are not sent: they are most of the scalars. */
static int optimizer_fill(pl_replica_t *r, const pl_part_of_round_t *part,
                          double scalars[static PL_STEP_SCALARS], pl_bytes_t *told,
                          pl_error_t *err)
{
    size_t count = PL_STEP_SCALARS;
    pl_optimizer_t *optimizer = r->step[part->step].optimizer;
    memset(scalars, 0, PL_STEP_SCALARS * sizeof *scalars);
    if (!isnan(part->momentum) && pl_optimizer_cycle(optimizer, part->momentum, err) < 0)
        return err->code;
    pl_optimizer_scalars(optimizer, part->lr_factor, ++r->step[part->step].sent, scalars);
    scalars[PL_SCALAR_AVERAGE] = part->round->average_share;
    while (count && scalars[count - 1] == 0)
        count--;
    *told = (pl_bytes_t){scalars, count * sizeof *scalars};
    return PL_OK;
}

static uint32_t optimizer_plan(const pl_replica_t *r, const pl_part_of_round_t *part)
{
    return pl_replica_plan_of(r, PL_PLAN_OPTIMIZER, part->step)->number;
}

/* Nothing comes between its two replays: they are one call. */
static bool part_is_whole(const pl_replica_t *r, const pl_part_of_round_t *part)
{
    return !r->meets && part->round->step_due;
}

/* All of it, up to the first exchange; or what is behind the newest. */
static int batch_replay(pl_replica_t *r, pl_part_of_round_t *part, pl_error_t *err)
{
    const pl_round_t *round = part->round;
    const bool whole = part_is_whole(r, part);
    const pl_how_t how = {.on_answer = whole ? step_answered : forward_backward_answered,
                          .context = part};
    double scalars[PL_STEP_SCALARS];
    pl_actor_does(r, round->call);
    pl_replay_plan_t msg = {.what = whole ? "training_step" : "forward_backward",
                            .seed = (uint64_t)r->job->trainer->seed,
                            .step = round->number,
                            .micro_batch = round->shard,
                            .fail_fast = true,
                            .restart = r->rounds->resumes,
                            .continues = part->exchanged > 0,
                            .batch = &round->batch->object};
    if (r->meets && r->meets->compute)
        return r->meets->compute(r, &msg, part, err);
    const pl_replica_plan_t *plan = plan_of(r, part, err);
    if (!plan)
        return err->code;
    if (whole) {
        if (optimizer_fill(r, part, scalars, &msg.scalars, err) != PL_OK)
            return err->code;
        msg.then = optimizer_plan(r, part) + 1;
    }
    msg.plan = plan->number;
    msg.micro_batch = msg.micro_batch * (r->ranks ? r->ranks : 1) + r->rank;
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
    pl_rounds_met(r);
    if (failure || batch_replay(r, part, &err) != PL_OK)
        exchange_failed(r, part, &err);
}

static int send_forward_backward(pl_replica_t *r, pl_part_of_round_t *part,
                                 pl_error_t *err)
{
    const pl_round_t *round = part->round;
    if (!round->batch->count && round->shard > 0 && !pl_rounds_each(r)
        && !r->step[part->step].exchanges) {
        part_computed(part);
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

static int send_optimizer_step(pl_replica_t *r, pl_part_of_round_t *part, pl_error_t *err)
{
    double scalars[PL_STEP_SCALARS];
    pl_bytes_t told;
    if (optimizer_fill(r, part, scalars, &told, err) != PL_OK)
        return err->code;
    const pl_replay_plan_t msg = {.plan = optimizer_plan(r, part),
                                  .what = "optimizer_step",
                                  .seed = (uint64_t)r->job->trainer->seed,
                                  .step = part->round->number,
                                  .fail_fast = true,
                                  .scalars = told};
    const pl_how_t how = {.on_answer = optimizer_answered, .context = part};
    pl_actor_does(r, part->round->call);
    if (!pl_call_replay_plan(r, r->accelerator, &msg, how, err))
        return err->code;
    part->round->pending++;
    if (!r->rounds->out++)
        pl_rounds_spending(r);
    return PL_OK;
}

/* ---- sending ---- */

enum { WAITS = 1 };                         /* besides PL_OK: something is to end first */

static int part_compute(pl_replica_t *r, pl_part_of_round_t *part, pl_error_t *err)
{
    part->phase = PL_PART_COMPUTES;
    part->guarded = false;
    if (r->meets && pl_rounds_carry(r, err) != PL_OK)
        return err->code;
    if (send_forward_backward(r, part, err) != PL_OK)
        return err->code;
    if (part_is_whole(r, part))
        part->phase = PL_PART_STEPS;
    return PL_OK;
}

static int part_meet(pl_replica_t *r, pl_part_of_round_t *part, pl_error_t *err)
{
    part->phase = PL_PART_MEETS;
    if (!pl_rounds_each(r))
        pl_part_carry(r, part);
    if (!pl_rounds_each(r) && !part->round->step_due)
        return PL_OK;
    pl_rounds_meeting(r);
    return pl_part_meet(r, part, err) == PL_OK ? WAITS : err->code;
}

static int part_step(pl_replica_t *r, pl_part_of_round_t *part, pl_error_t *err)
{
    part->phase = PL_PART_STEPS;
    if (!part->round->step_due)
        return PL_OK;
    if (send_optimizer_step(r, part, err) != PL_OK)
        return err->code;
    return pl_rounds_follow(r) ? WAITS : PL_OK;
}

/* One of the module's steps, as far as it can be; PL_OK: the whole of it. */
static int part_send(pl_replica_t *r, pl_part_of_round_t *part, pl_error_t *err)
{
    if (part->phase == PL_PART_UNSENT && part_compute(r, part, err) != PL_OK)
        return err->code;
    switch (part->phase) {
    case PL_PART_COMPUTES: return r->meets ? WAITS : part_step(r, part, err);
    case PL_PART_COMPUTED:
        return r->meets ? part_meet(r, part, err) : part_step(r, part, err);
    case PL_PART_MET: return part_step(r, part, err);
    case PL_PART_STEPS: return r->meets ? WAITS : PL_OK;
    case PL_PART_FOLLOWED: return PL_OK;
    default: return WAITS;
    }
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
        if (pl_part_is_due(r, part))
            code = part_send(r, part, &round->failure);
        if (code == WAITS)
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

/* What the ranks have met for: the sums, or what follows the optimizer step. */
static void part_met(pl_replica_t *r, pl_part_of_round_t *part)
{
    if (part->phase == PL_PART_STEPS) {
        part->phase = PL_PART_FOLLOWED;
        return;
    }
    part->phase = PL_PART_MET;
    if (pl_rounds_each(r))
        pl_part_carry(r, part);
}

void pl_replica_reduced(pl_replica_t *r, const pl_error_t *failure, bool halt)
{
    pl_rounds_t *rounds = r->rounds;
    pl_round_t *round = rounds->sending;
    rounds->reducing = false;
    pl_rounds_met(r);
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
    else
        part_met(r, &round->part[rounds->part]);
    rounds_go_on(r);
    pl_rounds_settle(r);
}

void pl_rounds_again(pl_replica_t *r, int objective)
{
    pl_rounds_t *rounds = r->rounds;
    int from = objective;
    for (int k = 0; k < r->steps; k++)
        r->step[k].sent = r->step[k].made;
    for (pl_round_t *round = rounds->first; round; round = round->next) {
        round->begun = from > 0;
        round->pending = from > 0;
        for (; from < r->steps; from++) {
            round->part[from].phase = PL_PART_UNSENT;
            round->part[from].guarded = false;
        }
        from = 0;
    }
    rounds->sending = rounds->first;
    rounds->part = objective;
    rounds->held_back = false;
    rounds_go_on(r);
}

/* ---- a batch ---- */

int pl_replica_train(pl_replica_t *r, pl_call_t *call, const pl_train_batch_t *msg,
                     pl_error_t *err)
{
    pl_rounds_t *rounds = r->rounds;
    if (rounds->failure.code != PL_OK)
        return pl_fail(err, rounds->failure.code, "%s", rounds->failure.text);
    if (rounds->ended_by)
        return pl_rounds_fail_behind(rounds, msg->global_step, err);
    pl_round_t *round = pl_round_take(r, err);
    if (!round)
        return PL_ENOMEM;
    r->spent[PL_SPENT_DATA] += msg->waited;
    if (!rounds->was_asked)
        pl_replica_check_average(r, msg);
    rounds->was_asked = true;
    *round = (pl_round_t){.figures = round->figures,
                          .call = call,
                          .batch = (pl_batch_t *)msg->batch,
                          .number = msg->global_step,
                          .shard = msg->micro_batch,
                          .step_due = msg->step_due,
                          .may_skip = msg->may_skip,
                          .average_share = pl_replica_average_share(r, msg)};
    for (int k = 0; k < r->steps && r->step[k].made == PL_STEPS_UNKNOWN; k++)
        r->step[k].made = r->step[k].sent = (msg->global_step - 1)
                                            / (uint64_t)r->step[k].every;
    for (int k = 0; k < r->steps; k++)
        round->part[k] = (pl_part_of_round_t){.round = round,
                                              .step = k,
                                              .lr_factor = pl_replica_rate(r, k, msg),
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
        r->rounds->sending = NULL;
        r->rounds->part = 0;
        r->rounds->held_back = false;
        r->rounds->resumes = true;
        r->failure.code = PL_OK;
        for (int k = 0; k < r->steps; k++)
            r->step[k].sent = r->step[k].made;
    }
    if (!r->rounds->first)
        r->rounds->ended_by = 0;
}

int pl_rounds_hold(pl_replica_t *r, pl_error_t *err)
{
    if (r->rounds->first)
        return pl_fail(err, PL_EBUSY,
                       "parameters can be frozen only between two steps, and some steps "
                       "are running");
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
        pl_rounds_again(r, 0);
    pl_rounds_settle(r);
}
