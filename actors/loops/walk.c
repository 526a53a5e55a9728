/* walk.c - over all batches of a stage, each forwarded without gradients */
#include "actors/loops/walk.h"

#include <stdio.h>

#include "actors/loops/figures.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/option.h"

static const int64_t REPORT_EVERY = PL_SECOND / 10;

static void walk_names(pl_pass_t *pass, const char *names)
{
    pl_walk_t *w = (pl_walk_t *)pass;
    if (w->ops->on_names)
        w->ops->on_names(w, names);
}

/* A measurement of nothing has no figures, which is no fault, and no warning where no
 * batches were asked for; a prediction of nothing is hardly what was meant. */
static void walk_of_none(pl_walk_t *w, uint32_t there)
{
    static const char *const stages[] = {"train", "val", "test", "predict"};
    if (w->pass.stage == PL_PREDICT)
        pl_fail(&w->pass.failure, PL_EINVAL,
                "trainer.limit_predict_batches excludes every batch of %u: raise it",
                there);
    else if (!w->told && !there)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(w), pl_actor_name(w),
                    "source %u of data.%s has no samples, so it has no metrics",
                    w->pass.loader, stages[w->pass.stage]);
    else if (!w->told && (w->limit.is_share || w->limit.value > 0))
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(w), pl_actor_name(w),
                    "trainer.limit_%s_batches excludes every batch of %u, so %s has no "
                    "metrics",
                    stages[w->pass.stage], there, w->what);
    w->told = true;
}

static uint32_t walk_begun(pl_pass_t *pass, uint32_t there)
{
    pl_walk_t *w = (pl_walk_t *)pass;
    uint32_t allowed = pl_amount_of(w->limit, there);
    if (allowed == 0)
        walk_of_none(w, there);
    return allowed < w->most ? allowed : w->most;
}

static bool walk_may_fetch(const pl_pass_t *pass)
{
    return !((const pl_walk_t *)pass)->stopping && !pl_pass_halts(pass);
}

static void walk_what(const pl_pass_t *pass, char text[160])
{
    snprintf(text, 160, "batch %u of %s", pass->done, ((const pl_walk_t *)pass)->what);
}

static void walk_report(pl_walk_t *w)
{
    int64_t now = pl_now();
    if (!w->pass.call || now - w->reported < REPORT_EVERY)
        return;
    w->reported = now;
    w->ops->report(w);
}

static void walk_batch_done(void *self, const pl_answer_t *answer)
{
    pl_walk_t *w = self;
    pl_pass_t *pass = &w->pass;
    if (answer->kind == PL_ANSWER_ERROR && pass->failure.code == PL_OK) {
        pass->failure = *answer->error;
        pl_pass(&pass->failure, "%s, batch %u", w->what, pass->done);
    }
    if (pl_pass_no_reply(pass, answer))
        return;
    if (pass->failure.code == PL_OK)
        w->ops->on_batch(w, &answer->body->evaluate_batch_reply);
    pl_pass_batch_done(pass, answer->body->evaluate_batch_reply.halt);
    pass->counts.completed++;
    walk_report(w);
    pl_pass_go_on(pass);
}

static uint64_t walk_send(pl_pass_t *pass, const pl_fetch_batch_reply_t *batch)
{
    pl_evaluate_batch_t msg = {.stage = pass->stage, .batch = batch->batch};
    pl_how_t how = {.on_answer = walk_batch_done};
    return pl_call_evaluate_batch(pass, pass->strategy, &msg, how, &pass->failure);
}

static int walk_cancelled(pl_walk_t *w)
{
    return pl_fail(&w->pass.failure, PL_ECANCELLED, "%s was cancelled", w->what);
}

static void walk_rest(pl_pass_t *pass)
{
    pl_walk_t *w = (pl_walk_t *)pass;
    if (!pl_pass_halts(pass))
        w->ops->end(w, pl_pass_call(pass));
    else if (w->ops->halt)
        w->ops->halt(w, pl_pass_call(pass));
    else {
        walk_cancelled(w);
        pass->ops->fail(pass);
    }
}

static void walk_fail(pl_pass_t *pass)
{
    pl_call_fail(pl_pass_call(pass), &pass->failure);
}

int pl_walk_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    static const pl_pass_ops_t ops = {.on_names = walk_names,
                                      .on_begun = walk_begun,
                                      .may_fetch = walk_may_fetch,
                                      .send = walk_send,
                                      .rest = walk_rest,
                                      .fail = walk_fail,
                                      .what = walk_what};
    (void)call, (void)err;
    pl_walk_t *w = self;
    pl_pass_init(&w->pass, &ops, body);
    pl_actor_ready(self);
    return PL_OK;
}

void pl_walk_cancel(pl_walk_t *w)
{
    if (w->pass.failure.code != PL_OK)
        return;
    if (pl_is_nobody(w->pass.agreement)) {
        walk_cancelled(w);
        pl_pass_go_on(&w->pass);
    } else {
        pl_pass_announce(&w->pass);
    }
}

void pl_walk_begin(pl_walk_t *w, pl_call_t *call)
{
    w->reported = 0;
    pl_pass_begin(&w->pass, call);
}
