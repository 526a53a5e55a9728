/* pass.c - a pass over a stage's data: what the figures are called, its batches, fetched
 * and sent on
 *
 * Several batches are under way at once, so that the accelerator never waits for
 * messages; a batch's step takes the place of its fetch. */
#include "actors/loops/pass.h"

#include "base/clock.h"
#include "base/error.h"

enum { AGREED_DEPTH = 4 };

static void pass_fetched(void *self, const pl_answer_t *answer);

void pl_pass_init(pl_pass_t *pass, const pl_pass_ops_t *ops, const pl_body_t *start)
{
    const pl_job_t *job = (const pl_job_t *)start->start.context;
    pass->ops = ops;
    pass->options = job->trainer;
    pass->patience.pulse = job->pulse;
    pass->data = pl_peer(pass, "data");
    pass->strategy = pl_peer(pass, "strategy");
    pass->agreement = pl_peer(pass, "agreement");
}

/* ---- going on, and the end ---- */

pl_call_t *pl_pass_call(pl_pass_t *pass)
{
    pl_call_t *call = pass->call;
    pass->call = NULL;
    return call;
}

/* What a halt waits for is looked after by whom the loop calls. */
static void pass_look(void *self)
{
    pl_pass_t *pass = self;
    pl_error_t err;
    char what[160];
    if (!pass->call)
        return;
    if (pass->halted || pass->pending == 0)
        pl_patience_renew(&pass->patience);
    pass->ops->what(pass, what);
    if (!pl_patience_is_over(&pass->patience, pass, &err, "%s", what))
        return;
    pass->failure = err;
    pass->ops->fail(pass);
}

static bool may_fetch(const pl_pass_t *pass)
{
    return pass->failure.code == PL_OK && !pass->halted && pass->fetched < pass->batches
           && pass->pending < pass->pace.depth
           && (!pass->ops->may_fetch || pass->ops->may_fetch(pass));
}

/* Batches are fetched, and there is nothing else to be waited for. */
static void pass_waits(pl_pass_t *pass)
{
    if (pass->fetching && !pass->sent && !pass->waits_since)
        pass->waits_since = pl_now();
}

void pl_pass_go_on(pl_pass_t *pass)
{
    pl_fetch_batch_t msg = {.stage = pass->stage,
                            .loader = pass->loader,
                            .until = pass->batches};
    pl_how_t how = {.on_answer = pass_fetched};
    if (!pass->call)
        return;
    while (may_fetch(pass))
        if (pl_call_fetch_batch(pass, pass->data, &msg, how, &pass->failure)) {
            pass->fetched++;
            pass->fetching++;
            pass->pending++;
        }
    pass_waits(pass);
    if (pass->pending > 0)
        return;
    if (pass->failure.code != PL_OK)
        pass->ops->fail(pass);
    else if (!pass->halted)
        pass->ops->rest(pass);
}

bool pl_pass_no_reply(pl_pass_t *pass, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY)
        return false;
    if (answer->kind == PL_ANSWER_ERROR) {
        pass->pending--;
        if (pass->failure.code == PL_OK)
            pass->failure = *answer->error;
        pl_pass_go_on(pass);
    }
    return true;
}

/* The call that was to be made in the place of one that was answered: 0 when it was
 * not. */
static void pass_sent(pl_pass_t *pass, uint64_t call)
{
    if (call)
        return;
    pass->pending--;
    pl_pass_go_on(pass);
}

/* ---- batches ---- */

/* No rank has more under way than pace.depth, so none is past that batch. */
void pl_pass_batch_done(pl_pass_t *pass, bool halt)
{
    if (halt && !pass->halts_at)
        pass->halts_at = pass->done + (uint32_t)pass->pace.depth;
    pass->done++;
    pass->counts.processed++;
    pass->sent--;
    pass->pending--;
    pass_waits(pass);
    pl_pace_ended(&pass->pace);
    pl_patience_renew(&pass->patience);
}

bool pl_pass_halts(const pl_pass_t *pass)
{
    return pass->halts_at && pass->fetched >= pass->halts_at;
}

void pl_pass_announce(pl_pass_t *pass)
{
    if (!pl_is_nobody(pass->agreement))
        pl_call_announce(pass, pass->agreement, &(pl_announce_t){0}, (pl_how_t){0}, NULL);
}

static void pass_fetched(void *self, const pl_answer_t *answer)
{
    pl_pass_t *pass = self;
    uint64_t sent = 0;
    pass->fetching -= answer->kind != PL_ANSWER_PROGRESS;
    pass->waited = pass->waits_since ? pl_now() - pass->waits_since : 0;
    pass->waits_since = 0;
    if (pl_pass_no_reply(pass, answer))
        return;
    const pl_fetch_batch_reply_t *reply = &answer->body->fetch_batch_reply;
    if (!reply->batch && pass->failure.code == PL_OK) {
        pl_fail(&pass->failure, PL_EBUG, "the data ended after %u of %u batches",
                pass->done, pass->batches);
    } else if (pass->failure.code == PL_OK) {
        pass->counts.ready++;
        sent = pass->ops->send(pass, reply);
        pass->counts.started += sent != 0;
        pass->sent += sent != 0;
    }
    pass_sent(pass, sent);
}

/* ---- the beginning ---- */

static void pass_begun(void *self, const pl_answer_t *answer)
{
    pl_pass_t *pass = self;
    if (pl_pass_no_reply(pass, answer))
        return;
    pass->loaders = answer->body->begin_reply.loaders;
    pass->batches = pass->ops->on_begun(pass, answer->body->begin_reply.batches);
    pass->pending--;
    pl_patience_renew(&pass->patience);
    pl_pace_paused(&pass->pace);
    pl_pass_go_on(pass);
}

static void call_begin(pl_pass_t *pass)
{
    pl_begin_t msg = {.stage = pass->stage,
                      .loader = pass->loader,
                      .epoch = pass->epoch,
                      .first = pass->first,
                      .again = pass->again};
    pass_sent(pass, pl_call_begin(pass, pass->data, &msg,
                                  (pl_how_t){.on_answer = pass_begun}, &pass->failure));
}

static void pass_named(void *self, const pl_answer_t *answer)
{
    pl_pass_t *pass = self;
    if (pl_pass_no_reply(pass, answer))
        return;
    pass->ops->on_names(pass, answer->body->metric_names_reply.names);
    pass->known = true;
    call_begin(pass);
}

int pl_pass_is_idle(const pl_pass_t *pass, pl_error_t *err)
{
    if (pass->call || pass->pending)
        return pl_fail(err, PL_EBUSY, "the loop is already reading batches");
    return PL_OK;
}

/* Of several ranks the same for all, so that they can halt together. */
static int64_t depth_of(const pl_pass_t *pass)
{
    const int64_t depth = pass->options->depth;
    return depth || pl_is_nobody(pass->agreement) ? depth : AGREED_DEPTH;
}

void pl_pass_begin(pl_pass_t *pass, pl_call_t *call)
{
    pl_metric_names_t msg = {.stage = pass->stage};
    pl_how_t how = {.on_answer = pass_named};
    pass->call = call;
    pass->batches = 0;
    pass->halted = false;
    pass->halts_at = 0;
    pass->failure.code = PL_OK;
    pass->fetching = pass->sent = 0;
    pass->waits_since = 0;
    pass->fetched = pass->done = pass->first;
    if (!pass->pace.depth)
        pl_pace_begin(&pass->pace, depth_of(pass));
    pl_patience_begin(&pass->patience, pass, pass->options->step_timeout, pass_look);
    pass->pending++;
    if (pass->known)
        call_begin(pass);
    else
        pass_sent(pass,
                  pl_call_metric_names(pass, pass->strategy, &msg, how, &pass->failure));
}

void pl_pass_resume(pl_pass_t *pass, pl_call_t *call)
{
    pass->call = call;
    pl_patience_begin(&pass->patience, pass, pass->options->step_timeout, pass_look);
    pl_pace_paused(&pass->pace);
    pl_pass_go_on(pass);
}
