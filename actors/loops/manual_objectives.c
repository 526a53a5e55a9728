/* manual_objectives.c - steps of a manual loop: which batch belongs to which
 *
 * A whole step trains every objective that is due, as a step of a fit does.  A program
 * that takes the steps itself sends batches of one objective, whose gradients add up, and
 * then its optimizer step.
 *
 * A step of a fit has one number for all objectives.  So has it here: an objective that
 * has no step of the newest number takes that number, and one that has begins the next.
 * If a program trains the objectives in turn, dropout, schedules and checkpoints are
 * those of a fit. */
#include "actors/loops/manual.h"
#include "base/error.h"

static bool is_step(const pl_manual_item_t *item)
{
    return item->objective && !item->batch->count;
}

/* ---- the place of a batch ---- */

static int whole_place(const pl_manual_t *o, pl_manual_item_t *item,
                       pl_train_batch_t *msg, pl_error_t *err)
{
    for (int k = 0; k < PL_OBJECTIVES; k++)
        if (o->objective[k].sent.batches)
            return pl_fail(err, PL_ESTATE,
                           "gradients of objective %d of the module wait for their "
                           "step, and training on a batch would replace them: call "
                           "pl_loop_step() first",
                           k);
    item->step_due = o->micro_batch + 1 == (uint32_t)o->options->accumulate_grad_batches;
    msg->global_step = o->sent_steps + 1;
    msg->micro_batch = o->micro_batch;
    msg->step_due = item->step_due;
    return PL_OK;
}

int pl_manual_place(const pl_manual_t *o, pl_manual_item_t *item, pl_train_batch_t *msg,
                    pl_error_t *err)
{
    if (*o->stop_reason)
        return pl_fail(err, PL_ESTATE, "the loop trains no more: %s", o->stop_reason);
    if (!item->objective)
        return whole_place(o, item, msg, err);
    const pl_manual_objective_t *of = &o->objective[item->objective - 1];
    if (o->micro_batch)
        return pl_fail(err, PL_ESTATE,
                       "%u of %lld batches of a step are trained on "
                       "(trainer.accumulate_grad_batches): send the others before "
                       "gradients of one objective",
                       o->micro_batch, (long long)o->options->accumulate_grad_batches);
    if (is_step(item) && !of->sent.batches)
        return pl_fail(err, PL_ESTATE,
                       "the objective has no gradients for a step: call "
                       "pl_loop_backward() first");
    item->step_due = is_step(item);
    msg->global_step = of->sent.batches                ? of->number
                       : of->sent.step < o->sent_steps ? o->sent_steps
                                                       : o->sent_steps + 1;
    msg->micro_batch = of->sent.batches;
    msg->step_due = item->step_due;
    msg->objectives = 1u << (item->objective - 1);
    item->step = msg->global_step;
    return PL_OK;
}

void pl_manual_placed(pl_manual_t *o, const pl_manual_item_t *item)
{
    if (!item->objective) {
        o->sent_steps += item->step_due;
        o->micro_batch = item->step_due ? 0 : o->micro_batch + 1;
        for (int k = 0; k < PL_OBJECTIVES && item->step_due; k++)
            o->objective[k].sent.step = o->sent_steps;
        return;
    }
    pl_manual_objective_t *of = &o->objective[item->objective - 1];
    of->number = item->step;
    of->sent.batches++;
    if (!item->step_due)
        return;
    of->sent.batches = 0;
    of->sent.step = item->step;
    if (o->sent_steps < item->step)
        o->sent_steps = item->step;
}

void pl_manual_trained(pl_manual_t *o, const pl_manual_item_t *item, bool failed)
{
    if (!item->objective) {
        o->global_step += item->step_due && !failed;
        for (int k = 0; k < PL_OBJECTIVES && item->step_due && !failed; k++)
            o->objective[k].done.step = o->global_step;
        return;
    }
    pl_manual_objective_t *of = &o->objective[item->objective - 1];
    of->done.batches = failed || item->step_due ? 0 : of->done.batches + 1;
    if (failed || !item->step_due)
        return;
    of->done.step = item->step;
    if (o->global_step < item->step)
        o->global_step = item->step;
}

void pl_manual_rewind(pl_manual_t *o)
{
    o->held = false;
    o->micro_batch = 0;
    o->sent_steps = o->global_step;
    for (int k = 0; k < PL_OBJECTIVES; k++)
        o->objective[k].sent = o->objective[k].done;
}

bool pl_manual_accumulates(const pl_manual_t *o, const pl_manual_item_t *item)
{
    return item->objective && !is_step(item)
           && o->objective[item->objective - 1].sent.batches > 0;
}

/* ---- gradients to the program, and back ---- */

static void gradients_answered(void *self, const pl_answer_t *answer)
{
    pl_manual_item_t *item = answer->context;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    if (item->call && answer->kind == PL_ANSWER_REPLY)
        pl_reply_gradients(item->call, &answer->body->gradients_reply);
    else if (item->call)
        pl_call_fail(item->call, answer->error);
    pl_manual_over(self, item);
}

void pl_manual_see(pl_manual_t *o, pl_manual_item_t *item)
{
    const pl_gradients_t msg = {.objective = (uint32_t)(item->objective - 1),
                                .weights = item->gradients};
    const pl_how_t how = {.on_answer = gradients_answered, .context = item};
    pl_error_t err = {0};
    o->busy = true;
    if (!o->objective[item->objective - 1].sent.batches)
        pl_fail(&err, PL_ESTATE,
                "the objective has no gradients: they are there from pl_loop_backward() "
                "to pl_loop_step()");
    else if (pl_call_gradients(o, o->strategy, &msg, how, &err))
        return;
    pl_call_fail(item->call, &err);
    pl_manual_over(o, item);
}
