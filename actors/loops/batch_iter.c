/* batch_iter.c - batch iteration over the data of a stage: fetches batches and sends
 * them on
 *
 * Several batches are in flight, so that the accelerator never waits for messages.  The
 * call that uses a batch takes the place of the call that fetched it. */
#include "actors/loops/batch_iter.h"

#include "base/clock.h"
#include "base/error.h"

enum { AGREED_DEPTH = 4 };                /* with several ranks: they halt at one batch */
enum { DEPTH_MIN = 2, DEPTH_MAX = 32 };
static const int64_t AHEAD = 16 * PL_MILLISECOND, LOOK_EVERY = 2 * PL_MILLISECOND;

void pl_batch_iter_init(pl_batch_iter_t *iter, const pl_batch_iter_ops_t *ops,
                        const pl_body_t *start)
{
    const pl_job_t *job = (const pl_job_t *)start->start.context;
    iter->ops = ops;
    iter->options = job->trainer;
    iter->watchdog.pulse = job->pulse;
    iter->data = pl_peer(iter, "data");
    iter->strategy = pl_peer(iter, "strategy");
    iter->coordinator = pl_peer(iter, "coordinator");
}

/* ---- continuing, and the end ---- */

pl_call_t *pl_batch_iter_take_call(pl_batch_iter_t *iter)
{
    pl_call_t *call = iter->call;
    iter->call = NULL;
    return call;
}

static void iter_fail(pl_batch_iter_t *iter)
{
    if (iter->ops->fail)
        iter->ops->fail(iter);
    else
        pl_call_fail(pl_batch_iter_take_call(iter), &iter->failure);
}

/* During a halt, the calls that it waits for have time limits of their own. */
static void iter_check(void *self)
{
    pl_batch_iter_t *iter = self;
    pl_error_t err;
    char what[160];
    if (!iter->call)
        return;
    if (iter->halted || iter->pending == 0)
        pl_watchdog_reset(&iter->watchdog);
    iter->ops->what(iter, what);
    if (!pl_watchdog_has_expired(&iter->watchdog, iter, &err, "%s", what))
        return;
    iter->failure = err;
    iter_fail(iter);
}

/* Waiting begins when batches are being fetched and no other call is in flight. */
static void iter_waits(pl_batch_iter_t *iter)
{
    if (iter->fetching && !iter->sent && !iter->waits_since)
        iter->waits_since = pl_now();
}

static void iter_fetched(void *self, const pl_answer_t *answer);

void pl_batch_iter_continue(pl_batch_iter_t *iter)
{
    const pl_fetch_batch_t msg = {.stage = iter->stage,
                                  .loader = iter->loader,
                                  .until = iter->batches};
    const pl_how_t how = {.on_answer = iter_fetched};
    if (!iter->call)
        return;
    while (iter->failure.code == PL_OK && !iter->halted && iter->fetched < iter->batches
           && iter->pending < iter->depth.batches
           && (iter->ops->may_fetch
                   ? iter->ops->may_fetch(iter)
                   : !iter->stopping && !pl_batch_iter_is_sync_point(iter)))
        if (pl_call_fetch_batch(iter, iter->data, &msg, how, &iter->failure)) {
            iter->fetched++;
            iter->fetching++;
            iter->pending++;
        }
    iter_waits(iter);
    if (iter->pending > 0)
        return;
    if (iter->failure.code != PL_OK)
        iter_fail(iter);
    else if (!iter->halted)
        iter->ops->rest(iter);
}

bool pl_batch_iter_no_reply(pl_batch_iter_t *iter, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY)
        return false;
    if (answer->kind == PL_ANSWER_ERROR) {
        iter->pending--;
        if (iter->failure.code == PL_OK)
            iter->failure = *answer->error;
        pl_batch_iter_continue(iter);
    }
    return true;
}

/* The number of the call that takes the place of an answered one; 0: none was made. */
static void iter_sent(pl_batch_iter_t *iter, uint64_t call)
{
    if (call)
        return;
    iter->pending--;
    pl_batch_iter_continue(iter);
}

/* ---- batches ---- */

void pl_batch_iter_end_pause(pl_batch_iter_t *iter)
{
    pl_watchdog_reset(&iter->watchdog);
    iter->depth.since = pl_now();
    iter->depth.ended = 0;
    pl_batch_iter_continue(iter);
}

/* No rank has more than depth.batches in flight, so none is past the batch of the halt.
 */
void pl_batch_iter_batch_done(pl_batch_iter_t *iter, bool halt)
{
    pl_pipeline_depth_t *depth = &iter->depth;
    if (halt && !iter->halts_at)
        iter->halts_at = iter->done + (uint32_t)depth->batches;
    iter->done++;
    iter->counts.processed++;
    iter->sent--;
    iter->pending--;
    iter_waits(iter);
    pl_watchdog_reset(&iter->watchdog);
    if (depth->is_fixed)
        return;
    const int64_t taken = pl_now() - depth->since;
    depth->ended++;
    if (taken < LOOK_EVERY)
        return;
    const int64_t batches = AHEAD * depth->ended / taken + 1;
    depth->batches = batches < DEPTH_MIN   ? DEPTH_MIN
                     : batches > DEPTH_MAX ? DEPTH_MAX
                                           : (int)batches;
    depth->since = pl_now();
    depth->ended = 0;
}

bool pl_batch_iter_is_sync_point(const pl_batch_iter_t *iter)
{
    return iter->halts_at && iter->fetched >= iter->halts_at;
}

void pl_batch_iter_request_sync(pl_batch_iter_t *iter)
{
    if (!pl_is_nobody(iter->coordinator))
        pl_call_request_sync(iter, iter->coordinator, &(pl_request_sync_t){0},
                             (pl_how_t){0}, NULL);
}

int pl_batch_iter_stop(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)body, (void)err;
    pl_batch_iter_t *iter = self;
    if (pl_is_nobody(iter->coordinator))
        iter->stopping = true;
    else
        pl_batch_iter_request_sync(iter);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void iter_fetched(void *self, const pl_answer_t *answer)
{
    pl_batch_iter_t *iter = self;
    uint64_t sent = 0;
    iter->fetching -= answer->kind != PL_ANSWER_PROGRESS;
    iter->waited = iter->waits_since ? pl_now() - iter->waits_since : 0;
    iter->waits_since = 0;
    if (pl_batch_iter_no_reply(iter, answer))
        return;
    const pl_fetch_batch_reply_t *reply = &answer->body->fetch_batch_reply;
    if (!reply->batch && iter->failure.code == PL_OK) {
        pl_fail(&iter->failure, PL_EBUG, "the data ended after %u of %u batches",
                iter->done, iter->batches);
    } else if (iter->failure.code == PL_OK) {
        iter->counts.ready++;
        sent = iter->ops->send(iter, reply);
        iter->counts.started += sent != 0;
        iter->sent += sent != 0;
    }
    iter_sent(iter, sent);
}

/* ---- the beginning: names of metrics, then the data, then batches ---- */

static void iter_begun(void *self, const pl_answer_t *answer)
{
    pl_batch_iter_t *iter = self;
    if (pl_batch_iter_no_reply(iter, answer))
        return;
    iter->loaders = answer->body->begin_reply.loaders;
    iter->batches = answer->body->begin_reply.batches;
    if (iter->ops->on_begun)
        iter->batches = iter->ops->on_begun(iter, iter->batches);
    iter->pending--;
    pl_batch_iter_end_pause(iter);
}

static void call_begin(pl_batch_iter_t *iter)
{
    const pl_begin_t msg = {.stage = iter->stage,
                            .loader = iter->loader,
                            .epoch = iter->epoch,
                            .first = iter->first,
                            .again = iter->again};
    iter_sent(iter, pl_call_begin(iter, iter->data, &msg,
                                  (pl_how_t){.on_answer = iter_begun}, &iter->failure));
}

static void iter_named(void *self, const pl_answer_t *answer)
{
    pl_batch_iter_t *iter = self;
    if (pl_batch_iter_no_reply(iter, answer))
        return;
    if (iter->ops->on_names)
        iter->ops->on_names(iter, answer->body->metric_names_reply.names);
    iter->known = true;
    call_begin(iter);
}

int pl_batch_iter_is_idle(const pl_batch_iter_t *iter, pl_error_t *err)
{
    if (iter->call || iter->pending)
        return pl_fail(err, PL_EBUSY, "the loop is already reading batches");
    return PL_OK;
}

void pl_batch_iter_begin(pl_batch_iter_t *iter, pl_call_t *call)
{
    const pl_metric_names_t msg = {.stage = iter->stage};
    const pl_how_t how = {.on_answer = iter_named};
    const int64_t fixed = iter->options->depth || pl_is_nobody(iter->coordinator)
                              ? iter->options->depth
                              : AGREED_DEPTH;
    iter->call = call;
    iter->batches = 0;
    iter->halted = false;
    iter->halts_at = 0;
    iter->failure.code = PL_OK;
    iter->fetching = iter->sent = 0;
    iter->waits_since = 0;
    iter->fetched = iter->done = iter->first;
    if (!iter->depth.batches)
        iter->depth = (pl_pipeline_depth_t){.is_fixed = fixed > 0,
                                            .batches = fixed > 0 ? (int)fixed : DEPTH_MIN,
                                            .since = pl_now()};
    pl_watchdog_begin(&iter->watchdog, iter, iter->options->step_timeout, iter_check);
    iter->pending++;
    if (iter->known)
        call_begin(iter);
    else
        iter_sent(iter,
                  pl_call_metric_names(iter, iter->strategy, &msg, how, &iter->failure));
}

void pl_batch_iter_resume(pl_batch_iter_t *iter, pl_call_t *call)
{
    iter->call = call;
    pl_watchdog_begin(&iter->watchdog, iter, iter->options->step_timeout, iter_check);
    pl_batch_iter_end_pause(iter);
}
