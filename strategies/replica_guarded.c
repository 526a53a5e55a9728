/* replica_guarded.c - a training step that was not finite: which tensor, and what then
 *
 * The device has not let it change anything, and its gradients stay where they are until
 * the first bad tensor is named. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica_rounds.h"
#include "tensor/model.h"

const pl_part_of_round_t *pl_round_guarded(const pl_round_t *round)
{
    for (int k = 0; k < PL_STEPS; k++)
        if (round->part[k].guarded)
            return &round->part[k];
    return NULL;
}

static const char *first_bad(const pl_replica_t *r, const pl_floats_t *grads)
{
    const int step = pl_round_guarded(r->rounds->first)->step;
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
    const pl_part_of_round_t *part = pl_round_guarded(rounds->first);
    const pl_module_step_t *step = r->step[part->step].table;
    snprintf(rounds->bad, sizeof rounds->bad, "%s%s%sthe %s is not finite%s%s%s",
             r->blamed, step ? step->name : "", step ? ": " : "",
             isfinite(part->loss) ? "gradient" : "loss",
             name ? ", the first bad gradient belongs to \"" : "", name ? name : "",
             name ? "\"" : "");
}

static void bad_tell(pl_replica_t *r)
{
    pl_rounds_t *rounds = r->rounds;
    pl_round_t *round = rounds->first;
    if (round->may_skip && round->failure.code == PL_OK) {
        pl_rounds_reply(r, &(pl_train_batch_reply_t){.skipped = true,
                                                     .halt = round->halt,
                                                     .bad = rounds->bad});
    } else {
        pl_fail(&round->failure, PL_ENAN,
                "step %llu: %s%s; it changed no weight: trainer.detect_anomaly names the "
                "first operator with such a result; check the data, lower the learning "
                "rate, or let trainer.nan_policy skip such steps",
                (unsigned long long)round->number, rounds->bad,
                r->model->scaling
                    ? ", and the loss scaling has reached trainer.precision.min_scale"
                    : "");
        pl_call_fail(round->call, &round->failure);
        rounds->ended_by = round->number;
    }
    pl_round_give(rounds);
}

/* What follows an optimizer step comes after one that is passed over, too: the other
 * ranks may not have passed it over. */
static bool look_follows(pl_replica_t *r)
{
    pl_round_t *round = r->rounds->first;
    pl_part_of_round_t *part = (pl_part_of_round_t *)pl_round_guarded(round);
    if (!pl_rounds_follow(r) || !round->may_skip || part->phase == PL_PART_FOLLOWED
        || round->failure.code != PL_OK)
        return false;
    part->phase = PL_PART_FOLLOWED;
    r->rounds->looking++;
    pl_part_follow(r, part, NULL, 0);
    return true;
}

/* The device has lowered the factor, and there is nothing to be named: see scaling.h. */
static bool scaling_skipped(const pl_replica_t *r, const pl_part_of_round_t *part)
{
    return r->model->scaling && part->scaling[0] > 0;
}

/* What was sent behind the bad step is back as well, and has not run. */
static void look_end(pl_replica_t *r)
{
    pl_rounds_t *rounds = r->rounds;
    pl_round_t *round = rounds->first;
    pl_part_of_round_t *part = (pl_part_of_round_t *)pl_round_guarded(round);
    if (look_follows(r))
        return;
    rounds->resumes = true;
    if (round->failure.code == PL_OK && scaling_skipped(r, part)) {
        part->guarded = false;
        pl_rounds_again(r, part->step + 1);
    } else {
        bad_tell(r);
        pl_rounds_again(r, 0);
    }
    pl_rounds_settle(r);
}

void pl_rounds_looked(pl_replica_t *r)
{
    if (--r->rounds->looking == 0)
        look_end(r);
}

void pl_rounds_followed(pl_replica_t *r, const pl_error_t *failure, bool halt)
{
    pl_round_t *round = r->rounds->first;
    round->halt |= halt;
    if (failure && round->failure.code == PL_OK)
        round->failure = *failure;
    pl_rounds_looked(r);
}

static void looked(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_round_t *round = r->rounds->first;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    if (answer->kind == PL_ANSWER_ERROR)
        round->failure = *answer->error;
    else if (answer->context)
        bad_describe(r,
                     first_bad(r, (pl_floats_t *)answer->body->read_region_reply.floats));
    pl_rounds_looked(r);
}

/* Which gradient is bad, and the state of before, which forward may have changed. */
void pl_rounds_look(pl_replica_t *r)
{
    pl_rounds_t *rounds = r->rounds;
    pl_round_t *round = rounds->first;
    pl_read_region_t read = {.region = PL_REGION_GRADS,
                             .count = (uint64_t)r->model->params};
    pl_replay_plan_t restore = {.what = "restore"};
    rounds->awaits = rounds->out > 0;
    rounds->looking += rounds->awaits;
    if (scaling_skipped(r, pl_round_guarded(round))) {
        if (!rounds->looking)
            look_end(r);
        return;
    }
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
