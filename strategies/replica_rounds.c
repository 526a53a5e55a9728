/* replica_rounds.c - training steps under way: their list, and what each is answered
 *
 * They are answered in the order of their calls: where one fails, those behind it were
 * not run. */
#include "strategies/replica_rounds.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "strategies/optimizers/optimizer.h"
#include "tensor/model.h"

/* ---- the list ---- */

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

pl_round_t *pl_round_take(const pl_replica_t *r, pl_error_t *err)
{
    pl_round_t *round = r->rounds->spare;
    if (round)
        r->rounds->spare = round->next;
    else if (!(round = round_new(r)))
        pl_no_memory(err);
    return round;
}

void pl_round_give(pl_rounds_t *rounds)
{
    pl_round_t *round = rounds->first;
    rounds->first = round->next;
    if (!rounds->first)
        rounds->last = &rounds->first;
    round->next = rounds->spare;
    rounds->spare = round;
}

/* ---- answers ---- */

static void figure_put(pl_round_t *round, size_t *at, double value, bool is_there)
{
    round->figures[(*at)++] = value;
    round->figures[(*at)++] = is_there;
}

/* Then the next counts from nothing. */
void pl_rounds_reply(pl_replica_t *r, const pl_train_batch_reply_t *what)
{
    const size_t of_one = PL_SPENT_KINDS * sizeof(double),
                 of_all = r->spent_by ? (size_t)r->ranks * of_one : 0;
    double *spent = r->meets ? r->spent_by : r->spent;
    pl_train_batch_reply_t reply = *what;
    if (!r->meets)
        pl_rounds_share(r);
    reply.timings = (pl_bytes_t){spent, r->meets ? of_all : of_one};
    pl_reply_train_batch(r->rounds->first->call, &reply);
    if (reply.timings.size)
        memset(spent, 0, reply.timings.size);
}

/* Rates, norms and the loss's factor come last, in the order of their names, a pair
 * (it, 1) each where there was an optimizer step.  A step that was not taken says
 * nothing, nor does a loss that is not finite, of a step that scaling has skipped. */
static void round_reply(pl_replica_t *r, pl_round_t *round)
{
    size_t at = pl_figures_before(r, r->steps);
    const pl_part_of_round_t *newest = NULL;
    for (int k = 0; k < r->steps; k++) {
        const pl_part_of_round_t *part = &round->part[k];
        const size_t from = pl_figures_before(r, k), to = pl_figures_before(r, k + 1);
        const bool stepped = round->step_due && pl_part_is_due(r, part);
        if (!pl_part_is_due(r, part) || !isfinite(part->loss))
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
                                    .metrics = {round->figures,
                                                at * sizeof *round->figures}};
    if (!round->step_due && r->meets)
        reply.metrics.size = 0;
    if (round->step_due)
        pl_rounds_reply(r, &reply);
    else
        pl_reply_train_batch(round->call, &reply);
}

int pl_rounds_fail_behind(const pl_rounds_t *rounds, uint64_t number, pl_error_t *err)
{
    return pl_fail(err, PL_ECANCELLED, "step %llu was not run, because step %llu failed",
                   (unsigned long long)number, (unsigned long long)rounds->ended_by);
}

void pl_rounds_settle(pl_replica_t *r)
{
    pl_rounds_t *rounds = r->rounds;
    for (pl_round_t *round;
         (round = rounds->first) && !round->pending && !rounds->looking && !rounds->held
         && (round->begun || rounds->ended_by || round->failure.code != PL_OK);
         pl_round_give(rounds)) {
        if (rounds->ended_by && round->failure.code == PL_OK)
            pl_rounds_fail_behind(rounds, round->number, &round->failure);
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
}
