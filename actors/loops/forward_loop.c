/* forward_loop.c - forward passes over all batches of a stage, without gradients */
#include "actors/loops/forward_loop.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/option.h"

static const int64_t REPORT_EVERY = PL_SECOND / 10;

static void forward_names(pl_batch_iter_t *iter, const char *names)
{
    pl_forward_loop_t *w = (pl_forward_loop_t *)iter;
    if (w->sums)
        pl_metrics_name(w->sums, pl_stages[iter->stage].prefix, names);
}

/* An evaluation of no batch has no metrics: that is no error, and no warning if the user
 * asked for no batch.  A prediction of no batch is an error. */
static uint32_t forward_begun(pl_batch_iter_t *iter, uint32_t there)
{
    static const char *const stages[] = {"train", "val", "test", "predict"};
    pl_forward_loop_t *w = (pl_forward_loop_t *)iter;
    const uint32_t allowed = pl_amount_of(w->limit, there);
    const bool warns = !allowed && !w->warned;
    if (allowed == 0 && iter->stage == PL_PREDICT)
        pl_fail(&iter->failure, PL_EINVAL,
                "trainer.limit_predict_batches excludes every batch of %u: raise it",
                there);
    else if (warns && !there)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(w), pl_actor_name(w),
                    "source %u of data.%s has no samples, so it has no metrics",
                    iter->loader, stages[iter->stage]);
    else if (warns && (w->limit.is_share || w->limit.value > 0))
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(w), pl_actor_name(w),
                    "trainer.limit_%s_batches excludes every batch of %u, so %s has no "
                    "metrics",
                    stages[iter->stage], there, w->what);
    w->warned |= allowed == 0;
    return allowed < w->max ? allowed : w->max;
}

static void forward_what(const pl_batch_iter_t *iter, char text[160])
{
    snprintf(text, 160, "batch %u of %s", iter->done,
             ((const pl_forward_loop_t *)iter)->what);
}

static void forward_batch_done(void *self, const pl_answer_t *answer)
{
    pl_forward_loop_t *w = self;
    pl_batch_iter_t *iter = &w->iter;
    const int64_t now = pl_now();
    if (answer->kind == PL_ANSWER_ERROR && iter->failure.code == PL_OK) {
        iter->failure = *answer->error;
        pl_error_prefix(&iter->failure, "%s, batch %u", w->what, iter->done);
    }
    if (pl_batch_iter_no_reply(iter, answer))
        return;
    const pl_evaluate_batch_reply_t *reply = &answer->body->evaluate_batch_reply;
    if (iter->failure.code == PL_OK && w->sums)
        pl_metrics_add(w->sums, reply->metrics);
    if (iter->failure.code == PL_OK && w->ops->on_batch)
        w->ops->on_batch(w, reply);
    pl_batch_iter_batch_done(iter, reply->halt);
    iter->counts.completed++;
    if (iter->call && now - w->reported >= REPORT_EVERY) {
        w->reported = now;
        w->ops->report(w);
    }
    pl_batch_iter_continue(iter);
}

static uint64_t forward_send(pl_batch_iter_t *iter, const pl_fetch_batch_reply_t *batch)
{
    const pl_evaluate_batch_t msg = {.stage = iter->stage, .batch = batch->batch};
    const pl_how_t how = {.on_answer = forward_batch_done};
    return pl_call_evaluate_batch(iter, iter->strategy, &msg, how, &iter->failure);
}

static int forward_cancelled(pl_forward_loop_t *w)
{
    return pl_fail(&w->iter.failure, PL_ECANCELLED, "%s was cancelled", w->what);
}

static void forward_rest(pl_batch_iter_t *iter)
{
    pl_forward_loop_t *w = (pl_forward_loop_t *)iter;
    pl_call_t *call = pl_batch_iter_take_call(iter);
    if (!pl_batch_iter_is_sync_point(iter)) {
        w->ops->end(w, call);
    } else if (w->ops->ends_early) {
        iter->stopping = true;
        w->ops->end(w, call);
    } else {
        forward_cancelled(w);
        pl_call_fail(call, &iter->failure);
    }
}

int pl_forward_loop_start(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    static const pl_batch_iter_ops_t ops = {.on_names = forward_names,
                                            .on_begun = forward_begun,
                                            .send = forward_send,
                                            .rest = forward_rest,
                                            .what = forward_what};
    (void)call, (void)err;
    pl_forward_loop_t *w = self;
    pl_batch_iter_init(&w->iter, &ops, body);
    pl_actor_ready(self);
    return PL_OK;
}

void pl_forward_loop_cancel(pl_forward_loop_t *w)
{
    if (w->iter.failure.code != PL_OK)
        return;
    if (pl_is_nobody(w->iter.coordinator)) {
        forward_cancelled(w);
        pl_batch_iter_continue(&w->iter);
    } else {
        pl_batch_iter_request_sync(&w->iter);
    }
}

void pl_forward_loop_begin(pl_forward_loop_t *w, pl_call_t *call)
{
    w->reported = 0;
    pl_batch_iter_begin(&w->iter, call);
}
