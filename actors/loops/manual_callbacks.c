/* manual_callbacks.c - callbacks of a manual loop: they act after optimizer steps
 *
 * There are no epochs and no validations, so only three hooks come: of the start, after a
 * step, and of the end.  Nothing is sent behind a step at which callbacks act, until they
 * have: what they see and save is the state after that step.  With several ranks one has
 * callbacks, and all get their answer. */
#include <stdio.h>

#include "actors/loops/manual.h"
#include "base/alloc.h"
#include "base/error.h"

static void hook_run(pl_manual_t *o, pl_hook_t point, pl_on_answer_t then)
{
    const int64_t max = o->options->max_steps;
    pl_run_hook_t msg = {.point = point,
                         .global_step = o->global_step,
                         .total_steps = max > 0 ? (uint64_t)max : 0,
                         .samples = o->samples,
                         .error = ""};
    pl_error_t err = {0};
    if (!pl_hooks_run(o, &o->hooks, &msg, o->newest, (pl_how_t){.on_answer = then}, &err))
        pl_manual_fail(o, &err);
}

/* Before everything that waits, because nothing was sent behind the step. */
static int checkpoint_add(pl_manual_t *o, const pl_run_hook_reply_t *request,
                          pl_error_t *err)
{
    if (!*request->save)
        return PL_OK;
    if (!o->enable_checkpointing)
        return pl_fail(err, PL_ESTATE,
                       "a callback saves a checkpoint, and this loop has no run "
                       "directory: open it with `enable_checkpointing` set");
    pl_manual_item_t *item = pl_alloc(sizeof *item);
    char *name = pl_strdup(request->save), *drop = pl_strdup(request->drop);
    if (item && name && drop) {
        *item = (pl_manual_item_t){.next = o->waiting.first, .name = name, .drop = drop};
        if (!item->next)
            o->waiting.last = &item->next;
        o->waiting.first = item;
        return PL_OK;
    }
    pl_free(item);
    pl_free(name);
    pl_free(drop);
    return pl_no_memory(err);
}

/* Whether the answer has come and what it requests is done. */
static bool request_apply(pl_manual_t *o, const pl_answer_t *answer)
{
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_ERROR)
        pl_manual_fail(o, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || !o->run)
        return false;
    const pl_run_hook_reply_t *request = &answer->body->run_hook_reply;
    const pl_run_hook_t msg = {.global_step = o->global_step};
    o->lr_factor *= request->lr_factor;
    if (request->stop && !*o->stop_reason)
        snprintf(o->stop_reason, sizeof o->stop_reason, "%s", request->reason);
    if (pl_hooks_log(o, &o->hooks, &msg, request, o->newest, &err) != PL_OK
        || pl_hooks_freeze(o, o->strategy, request, &err) != PL_OK
        || checkpoint_add(o, request, &err) != PL_OK)
        pl_manual_fail(o, &err);
    return o->run;
}

static void started(void *self, const pl_answer_t *answer)
{
    if (request_apply(self, answer))
        pl_manual_ready(self);
}

static void hooks_known(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_manual_fail(o, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || !o->run)
        return;
    const pl_callback_hooks_reply_t *reply = &answer->body->callback_hooks_reply;
    o->hooks.points = reply->points;
    pl_intervals_read(&o->halts, reply->halts);
    pl_intervals_read(&o->looks, reply->looks);
    hook_run(o, PL_HOOK_FIT_START, started);
}

void pl_manual_begin_callbacks(pl_manual_t *o)
{
    const pl_how_t how = {.on_answer = hooks_known};
    pl_error_t err = {0};
    if (!pl_hooks_query(o, &o->hooks, how, &err))
        pl_manual_fail(o, &err);
}

bool pl_manual_holds(const pl_manual_t *o, uint64_t step)
{
    return pl_intervals_match(&o->halts, step) || pl_intervals_match(&o->looks, step);
}

static void step_seen(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    if (!request_apply(o, answer))
        return;
    o->held = false;
    pl_manual_idle(o);
}

void pl_manual_call_back(pl_manual_t *o)
{
    o->busy = true;
    hook_run(o, PL_HOOK_TRAIN_BATCH_END, step_seen);
}

void pl_manual_end_callbacks(pl_manual_t *o, pl_on_answer_t then)
{
    if (o->has_callbacks)
        hook_run(o, PL_HOOK_FIT_END, then);
    else
        then(o, NULL);
}
