/* walk.c - over all batches of a stage: how the data are split, a pass, and each batch
 * forwarded without gradients */
#include "actors/loops/walk.h"

#include "actors/loops/figures.h"
#include "base/clock.h"
#include "base/error.h"

static const int64_t REPORT_EVERY = PL_SECOND / 10;

static void walk_fetched(void *self, const pl_answer_t *answer);

int pl_walk_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call, (void)err;
    pl_walk_t *w = self;
    w->options = ((const pl_job_t *)body->start.context)->trainer;
    w->data = pl_peer(self, "data");
    w->strategy = pl_peer(self, "strategy");
    pl_actor_ready(self);
    return PL_OK;
}

/* ---- going on, and the end ---- */

static pl_call_t *call_take(pl_walk_t *w)
{
    pl_call_t *call = w->call;
    w->call = NULL;
    return call;
}

static void walk_look(void *self)
{
    pl_walk_t *w = self;
    pl_error_t err;
    if (w->call
        && pl_patience_is_over(&w->patience, w, &err, "batch %u of %s", w->done, w->what))
        pl_call_fail(call_take(w), &err);
}

/* After a failure nothing new is sent; what is under way comes back first. */
static void walk_go_on(pl_walk_t *w)
{
    pl_fetch_batch_t msg = {.stage = w->stage};
    pl_how_t how = {.on_answer = walk_fetched};
    if (!w->call)
        return;
    while (w->failure.code == PL_OK && !w->stopping && w->pending < w->pace.depth
           && w->fetched < w->batches)
        if (pl_call_fetch_batch(w, w->data, &msg, how, &w->failure)) {
            w->fetched++;
            w->pending++;
        }
    if (w->pending > 0)
        return;
    if (w->failure.code != PL_OK)
        pl_call_fail(call_take(w), &w->failure);
    else
        w->ops->end(w, call_take(w));
}

void pl_walk_cancel(pl_walk_t *w)
{
    if (w->failure.code != PL_OK)
        return;
    pl_fail(&w->failure, PL_ECANCELLED, "%s was cancelled", w->what);
    walk_go_on(w);
}

/* True unless it is a reply, after which the next call may be made in its place. */
static bool walk_failed(pl_walk_t *w, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY)
        return false;
    if (answer->kind == PL_ANSWER_ERROR) {
        w->pending--;
        if (w->failure.code == PL_OK)
            w->failure = *answer->error;
        walk_go_on(w);
    }
    return true;
}

/* The call that was to be made in the place of the one that was answered: 0 when it was
 * not. */
static void walk_sent(pl_walk_t *w, uint64_t call)
{
    if (call)
        return;
    w->pending--;
    walk_go_on(w);
}

/* ---- batches ---- */

static void walk_report(pl_walk_t *w)
{
    int64_t now = pl_now();
    if (!w->call || now - w->reported < REPORT_EVERY)
        return;
    w->reported = now;
    w->ops->report(w);
}

static void walk_batch_done(void *self, const pl_answer_t *answer)
{
    pl_walk_t *w = self;
    if (answer->kind == PL_ANSWER_ERROR && w->failure.code == PL_OK) {
        w->failure = *answer->error;
        pl_pass(&w->failure, "%s, batch %u", w->what, w->done);
    }
    if (walk_failed(w, answer))
        return;
    if (w->failure.code == PL_OK)
        w->ops->on_batch(w, &answer->body->evaluate_batch_reply,
                         (intptr_t)answer->context);
    w->pending--;
    w->done++;
    pl_pace_ended(&w->pace);
    pl_patience_renew(&w->patience);
    walk_report(w);
    walk_go_on(w);
}

static void walk_fetched(void *self, const pl_answer_t *answer)
{
    pl_walk_t *w = self;
    uint64_t sent = 0;
    if (walk_failed(w, answer))
        return;
    const pl_fetch_batch_reply_t *reply = &answer->body->fetch_batch_reply;
    pl_evaluate_batch_t msg = {.stage = w->stage, .batch = reply->batch};
    pl_how_t how = {.on_answer = walk_batch_done,
                    .context = (void *)(intptr_t)reply->samples};
    if (!reply->batch && w->failure.code == PL_OK)
        pl_fail(&w->failure, PL_EBUG, "the data ended after %u of %u batches", w->done,
                w->batches);
    else if (w->failure.code == PL_OK)
        sent = pl_call_evaluate_batch(w, w->strategy, &msg, how, &w->failure);
    walk_sent(w, sent);
}

/* ---- the beginning: how the data are split, what the figures are called, a pass ---- */

static void walk_begun(void *self, const pl_answer_t *answer)
{
    pl_walk_t *w = self;
    if (walk_failed(w, answer))
        return;
    w->batches = pl_amount_of(w->limit, answer->body->begin_reply.batches);
    w->pending--;
    walk_go_on(w);
}

static void call_begin(pl_walk_t *w)
{
    pl_begin_t msg = {.stage = w->stage,
                      .epoch = w->epoch,
                      .part = w->part,
                      .parts = w->parts};
    walk_sent(w, pl_call_begin(w, w->data, &msg, (pl_how_t){.on_answer = walk_begun},
                               &w->failure));
}

static void walk_named(void *self, const pl_answer_t *answer)
{
    pl_walk_t *w = self;
    if (walk_failed(w, answer))
        return;
    w->ops->on_names(w, answer->body->figure_names_reply.names);
    call_begin(w);
}

static void walk_split(void *self, const pl_answer_t *answer)
{
    pl_walk_t *w = self;
    if (walk_failed(w, answer))
        return;
    w->part = answer->body->process_dataloader_reply.part;
    w->parts = answer->body->process_dataloader_reply.parts;
    pl_figure_names_t msg = {.stage = w->stage};
    if (w->ops->on_names)
        walk_sent(w,
                  pl_call_figure_names(w, w->strategy, &msg,
                                       (pl_how_t){.on_answer = walk_named}, &w->failure));
    else
        call_begin(w);
}

int pl_walk_begin(pl_walk_t *w, pl_call_t *call, pl_error_t *err)
{
    pl_process_dataloader_t msg = {.stage = w->stage};
    if (w->call || w->pending)
        return pl_fail(err, PL_EBUSY, "%s is under way", w->what);
    w->batches = w->fetched = w->done = 0;
    w->failure.code = PL_OK;
    w->reported = 0;
    if (!pl_call_process_dataloader(w, w->strategy, &msg,
                                    (pl_how_t){.on_answer = walk_split}, err))
        return err->code;
    w->pending = 1;
    w->call = call;
    pl_pace_begin(&w->pace, w->options->depth);
    pl_patience_begin(&w->patience, w, w->options->step_timeout, walk_look);
    return PL_OK;
}
