/* epoch_decide.c - what follows a batch of an epoch: a log line, a callback's turn, a
 * validation
 *
 * Nothing else is under way meanwhile.  One thing is sent, its answer leads to the next;
 * what is not due, or wanted by nobody, is passed over. */
#include <stdio.h>

#include "actors/loops/epoch_parts.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

static void decision_go_on(pl_epoch_t *e);

static void decision_next(pl_epoch_t *e)
{
    e->decision++;
    decision_go_on(e);
}

static void decision_end(pl_epoch_t *e)
{
    int64_t most = e->pass.options->max_steps;
    e->pass.halted = e->validates_now = e->heard.validate = false;
    e->pass.halts_at = 0;
    if (*e->wish)
        pl_epoch_wish_stop(e, e->wish);
    e->decided = e->pass.done;
    pl_epoch_complete(e);
    e->ended = most > 0 && e->global_step >= (uint64_t)most;
    pl_pace_paused(&e->pass.pace);
    pl_patience_renew(&e->pass.patience);
    pl_epoch_hear_halt(e);
    pl_pass_go_on(&e->pass);
}

/* Of what has nothing to say. */
static void acknowledged(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (pl_pass_no_reply(&e->pass, answer))
        return;
    e->pass.pending--;
    decision_next(e);
}

/* ---- what rank zero has heard ---- */

static void heard(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (pl_pass_no_reply(&e->pass, answer))
        return;
    e->pass.pending--;
    pl_epoch_agreed(e, answer->body->decide_reply.text);
    decision_next(e);
}

static bool decide_agree(pl_epoch_t *e)
{
    return !pl_is_nobody(e->pass.agreement) && pl_epoch_agree(e, heard, &e->pass.failure);
}

/* ---- ranks come together ---- */

static void weights_synchronized(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (pl_pass_no_reply(&e->pass, answer))
        return;
    e->pass.pending--;
    pl_epoch_synchronized(e, &answer->body->synchronize_reply);
    decision_next(e);
}

/* Before the weights are measured, and the epoch's figures told. */
static bool decide_settle(pl_epoch_t *e)
{
    return (e->pass.done == e->due.end || e->validates_now
            || pl_due_validation(&e->due, e->pass.done - 1))
           && pl_epoch_synchronize(e, weights_synchronized);
}

/* ---- log lines ---- */

static bool decide_log(pl_epoch_t *e)
{
    return (e->pass.done == e->due.end || pl_due_log(&e->due, e->pass.done - 1))
           && pl_epoch_log(e, acknowledged);
}

/* A validation at the end of the run alone. */
static bool is_extra(const pl_epoch_t *e)
{
    return e->pass.done > 0 && pl_due_extra_validation(&e->due, e->pass.done - 1)
           && !e->validates_now;
}

/* ---- hooks ---- */

/* What is left of the epoch's batches is passed over: it ends here. */
static void epoch_cut(pl_epoch_t *e)
{
    if (e->pass.done == e->due.end)
        return;
    e->due.batches = e->due.end = e->pass.batches = e->pass.done;
    e->cut = true;
    pl_epoch_log(e, NULL);
}

/* One that is kept takes the place of one that is not. */
static void stop_wish(pl_epoch_t *e, const pl_ask_callbacks_reply_t *wish)
{
    const bool first = !*e->wish || (e->out_of_time && !wish->by_clock);
    if (first && !e->stopping) {
        e->out_of_time = wish->by_clock;
        *e->wish = '\0';
    }
    pl_epoch_wish_stop(e, wish->reason);
}

static void epoch_wish(pl_epoch_t *e, pl_hook_t point, uint64_t global_step,
                       const pl_ask_callbacks_reply_t *wish)
{
    const pl_ask_callbacks_t msg = {.epoch = e->pass.epoch, .global_step = global_step};
    pl_ask_log(e, &e->asking, &msg, wish, e->newest, &e->pass.failure);
    pl_ask_freeze(e, e->pass.strategy, wish, &e->pass.failure);
    e->lr_factor *= wish->lr_factor;
    pl_wanted_add(&e->wanted, wish->save, wish->drop, &e->pass.failure);
    if (wish->skip && point == PL_HOOK_VALIDATION_START)
        e->unwanted = true;
    else if (wish->skip)
        epoch_cut(e);
    if (wish->stop)
        stop_wish(e, wish);
}

static void hooked(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (pl_pass_no_reply(&e->pass, answer))
        return;
    e->pass.pending--;
    epoch_wish(e, (pl_hook_t)(intptr_t)answer->context, e->global_step,
               &answer->body->ask_callbacks_reply);
    decision_next(e);
}

static bool send_hook(pl_epoch_t *e, pl_hook_t point, pl_how_t how)
{
    json_t *now = json_copy(e->newest);
    pl_ask_callbacks_t msg = {.point = point,
                              .epoch = e->pass.epoch,
                              .global_step = e->global_step,
                              .total_steps = e->total_steps,
                              .batch = e->pass.done,
                              .batches = e->due.end,
                              .samples = e->samples,
                              .extra = point == PL_HOOK_VALIDATION_END && is_extra(e)};
    bool sent = now && pl_epoch_newest(e, now, &e->pass.failure) == PL_OK
                && pl_ask(e, &e->asking, &msg, now, how, &e->pass.failure);
    json_decref(now);
    return now ? sent : (pl_no_memory(&e->pass.failure), false);
}

static bool decide_hook(pl_epoch_t *e, pl_hook_t point)
{
    const pl_how_t how = {.on_answer = hooked, .context = (void *)(intptr_t)point};
    return send_hook(e, point, how);
}

/* Where all halts anyway, those who look on look on then. */
static bool decide_batch_end(pl_epoch_t *e)
{
    const uint32_t batch = e->pass.done - 1;
    return (pl_due_callback(&e->due, batch)
            || (pl_due_look(&e->due, batch) && pl_due_decision(&e->due, batch)))
           && decide_hook(e, PL_HOOK_TRAIN_BATCH_END);
}

/* They were asked after that step: the run may have come further. */
static void looked(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_epoch_log_goes_on(e);
    if (pl_pass_no_reply(&e->pass, answer))
        return;
    e->pass.pending--;
    epoch_wish(e, PL_HOOK_TRAIN_BATCH_END, (uint64_t)(uintptr_t)answer->context,
               &answer->body->ask_callbacks_reply);
    pl_epoch_log_goes_on(e);
    pl_pass_go_on(&e->pass);
}

void pl_epoch_look(pl_epoch_t *e)
{
    const pl_how_t how = {.on_answer = looked,
                          .context = (void *)(uintptr_t)e->global_step};
    pl_epoch_log_waits(e);
    if (send_hook(e, PL_HOOK_TRAIN_BATCH_END, how))
        e->pass.pending++;
    else
        pl_epoch_log_goes_on(e);
}

/* ---- validation ---- */

/* Within an optimizer step there is no checkpoint to go on from. */
bool pl_epoch_puts_off(const pl_epoch_t *e)
{
    return e->told && e->pass.done && pl_due_step(&e->due, e->pass.done - 1);
}

/* Whether one is to be made here; one that is due where it cannot be is owed. */
static bool take_validation(pl_epoch_t *e)
{
    const bool due = !e->unwanted
                     && (e->owes || e->validates_now
                         || pl_due_validation(&e->due, e->pass.done - 1));
    e->owes = due && pl_epoch_puts_off(e);
    return due && !e->owes;
}

static bool decide_validation_start(pl_epoch_t *e)
{
    if (e->asked || !take_validation(e))
        return false;
    e->asked = true;
    return (e->asking.points & PL_AT(VALIDATION_START))
           && decide_hook(e, PL_HOOK_VALIDATION_START);
}

static void validation_reported(pl_epoch_t *e, const pl_evaluate_progress_t *p)
{
    pl_progress_train_epoch(e->pass.call,
                            &(pl_train_epoch_progress_t){.event = p->event,
                                                         .global_step = p->global_step,
                                                         .total_steps = e->total_steps,
                                                         .epoch = p->epoch,
                                                         .batch = p->batch,
                                                         .batches = p->batches,
                                                         .metrics = ""});
}

static void validation_keep(pl_epoch_t *e, const char *metrics)
{
    e->validated = true;
    e->validated_at = pl_now();
    pl_metrics_merge(e->newest, metrics, &e->pass.failure);
    pl_log_metrics_t log = {.epoch = e->pass.epoch,
                            .global_step = e->global_step,
                            .metrics = metrics};
    if (!pl_is_nobody(e->asking.logger))
        pl_call_log_metrics(e, e->asking.logger, &log, (pl_how_t){0}, &e->pass.failure);
    if (e->pass.call)
        pl_epoch_report(e, "validated");
}

static void validated(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    bool broken_off = answer->kind == PL_ANSWER_ERROR
                      && (pl_epoch_puts_off(e) || !pl_is_nobody(e->pass.agreement))
                      && answer->error->code == PL_ECANCELLED;
    if (answer->kind == PL_ANSWER_PROGRESS)
        validation_reported(e, &answer->body->evaluate_progress);
    if (!broken_off && pl_pass_no_reply(&e->pass, answer))
        return;
    e->pass.pending--;
    e->owes = broken_off;
    if (!broken_off)
        validation_keep(e, answer->body->evaluate_reply.metrics);
    decision_next(e);
}

static bool decide_validate(pl_epoch_t *e)
{
    pl_evaluate_t msg = {.stage = PL_VALIDATE,
                         .epoch = e->pass.epoch,
                         .global_step = e->global_step};
    pl_how_t how = {.on_answer = validated};
    if (!take_validation(e))
        return false;
    e->evaluating = pl_call_evaluate(e, e->evaluate, &msg, how, &e->pass.failure);
    return e->evaluating != 0;
}

/* For schedules that go by figures, those of callbacks too: after a validation or, where
 * there is none, an epoch. */
static bool decide_observe(pl_epoch_t *e)
{
    const bool news = e->due.validates ? e->validated && !is_extra(e)
                                       : e->pass.done == e->due.batches;
    char *text = news ? pl_metrics_text(e->newest, &e->pass.failure) : NULL;
    const pl_observe_metrics_t msg = {.metrics = text};
    const pl_how_t how = {.on_answer = acknowledged};
    bool sent =
        text && pl_call_observe_metrics(e, e->pass.strategy, &msg, how, &e->pass.failure);
    pl_free(text);
    return sent;
}

static bool decide_validation_end(pl_epoch_t *e)
{
    return e->validated && (e->asking.points & PL_AT(VALIDATION_END))
           && decide_hook(e, PL_HOOK_VALIDATION_END);
}

/* ---- one after the other ---- */

/* Each sends what it is about, where that is due and somebody wants it: then its answer
 * calls decision_next(). */
enum { VALIDATION = 4 };
static bool (*const decisions[])(pl_epoch_t *e) = {
    decide_agree,
    decide_settle,
    decide_log,
    decide_batch_end,
    [VALIDATION] = decide_validation_start,
    decide_validate,
    decide_validation_end,
    decide_observe,
    decide_agree,
};
enum { DECISIONS = sizeof decisions / sizeof *decisions };

static void decision_go_on(pl_epoch_t *e)
{
    bool sent = false;
    while (e->pass.failure.code == PL_OK && e->decision < DECISIONS
           && !(sent = decisions[e->decision](e)))
        e->decision++;
    if (sent)
        e->pass.pending++;
    else
        decision_end(e);
}

/* What came before a validation that is owed was done before the stop. */
void pl_epoch_decide(pl_epoch_t *e)
{
    e->pass.halted = true;
    e->decision = e->owes ? VALIDATION : 0;
    e->asked &= e->owes;
    e->validated = e->unwanted = false;
    decision_go_on(e);
}
