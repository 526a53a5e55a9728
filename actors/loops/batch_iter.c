/* batch_iter.c - batch iteration over the data of a stage: fetches batches and sends
 * them on
 *
 * Several batches are under way at once, so that the accelerator never waits for
 * messages; a batch's step takes the place of its fetch. */
#include "actors/loops/batch_iter.h"

#include "base/clock.h"
#include "base/error.h"

enum { AGREED_DEPTH = 4 };

static void iter_fetched(void *self, const pl_answer_t *answer);

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

/* ---- going on, and the end ---- */

pl_call_t *pl_batch_iter_take_call(pl_batch_iter_t *iter)
{
    pl_call_t *call = iter->call;
    iter->call = NULL;
    return call;
}

/* The callees have the time limits of what a halt waits for. */
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
    iter->ops->fail(iter);
}

static bool may_fetch(const pl_batch_iter_t *iter)
{
    return iter->failure.code == PL_OK && !iter->halted && iter->fetched < iter->batches
           && iter->pending < iter->depth.batches
           && (!iter->ops->may_fetch || iter->ops->may_fetch(iter));
}

/* Batches are fetched, and there is nothing else to be waited for. */
static void iter_waits(pl_batch_iter_t *iter)
{
    if (iter->fetching && !iter->sent && !iter->waits_since)
        iter->waits_since = pl_now();
}

void pl_batch_iter_continue(pl_batch_iter_t *iter)
{
    pl_fetch_batch_t msg = {.stage = iter->stage,
                            .loader = iter->loader,
                            .until = iter->batches};
    pl_how_t how = {.on_answer = iter_fetched};
    if (!iter->call)
        return;
    while (may_fetch(iter))
        if (pl_call_fetch_batch(iter, iter->data, &msg, how, &iter->failure)) {
            iter->fetched++;
            iter->fetching++;
            iter->pending++;
        }
    iter_waits(iter);
    if (iter->pending > 0)
        return;
    if (iter->failure.code != PL_OK)
        iter->ops->fail(iter);
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

/* The call that was to be made in the place of one that was answered: 0 when it was
 * not. */
static void iter_sent(pl_batch_iter_t *iter, uint64_t call)
{
    if (call)
        return;
    iter->pending--;
    pl_batch_iter_continue(iter);
}

/* ---- batches ---- */

/* No rank has more under way than depth.batches, so none is past that batch. */
void pl_batch_iter_batch_done(pl_batch_iter_t *iter, bool halt)
{
    if (halt && !iter->halts_at)
        iter->halts_at = iter->done + (uint32_t)iter->depth.batches;
    iter->done++;
    iter->counts.processed++;
    iter->sent--;
    iter->pending--;
    iter_waits(iter);
    pl_pipeline_depth_batch_done(&iter->depth);
    pl_watchdog_reset(&iter->watchdog);
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

/* ---- the beginning ---- */

static void iter_begun(void *self, const pl_answer_t *answer)
{
    pl_batch_iter_t *iter = self;
    if (pl_batch_iter_no_reply(iter, answer))
        return;
    iter->loaders = answer->body->begin_reply.loaders;
    iter->batches = iter->ops->on_begun(iter, answer->body->begin_reply.batches);
    iter->pending--;
    pl_watchdog_reset(&iter->watchdog);
    pl_pipeline_depth_pause(&iter->depth);
    pl_batch_iter_continue(iter);
}

static void call_begin(pl_batch_iter_t *iter)
{
    pl_begin_t msg = {.stage = iter->stage,
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

/* Of several ranks the same for all, so that they can halt together. */
static int64_t depth_of(const pl_batch_iter_t *iter)
{
    const int64_t depth = iter->options->depth;
    return depth || pl_is_nobody(iter->coordinator) ? depth : AGREED_DEPTH;
}

void pl_batch_iter_begin(pl_batch_iter_t *iter, pl_call_t *call)
{
    pl_metric_names_t msg = {.stage = iter->stage};
    pl_how_t how = {.on_answer = iter_named};
    iter->call = call;
    iter->batches = 0;
    iter->halted = false;
    iter->halts_at = 0;
    iter->failure.code = PL_OK;
    iter->fetching = iter->sent = 0;
    iter->waits_since = 0;
    iter->fetched = iter->done = iter->first;
    if (!iter->depth.batches)
        pl_pipeline_depth_begin(&iter->depth, depth_of(iter));
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
    pl_pipeline_depth_pause(&iter->depth);
    pl_batch_iter_continue(iter);
}
