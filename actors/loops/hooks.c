/* hooks.c - how a loop runs the hooks of callbacks, and only those that callbacks use */
#include "actors/loops/hooks.h"

#include "actors/loops/callback_text.h"
#include "actors/loops/metrics.h"
#include "base/alloc.h"
#include "base/error.h"

/* A question under way among several ranks, until all have the answer. */
typedef struct pl_hook_call {
    struct pl_hook_call *next;
    pl_hooks_t *hooks;
    pl_how_t how;                                           /* who asked */
    bool interest;
} asked_t;

void pl_hooks_init(pl_hooks_t *hooks, void *self)
{
    hooks->callback = pl_peer(self, "callback");
    hooks->logger = pl_peer(self, "logger");
    hooks->coordinator = pl_peer(self, "coordinator");
}

static void asked_free(asked_t *asked)
{
    asked_t **from = &asked->hooks->asked;
    while (*from != asked)
        from = &(*from)->next;
    *from = asked->next;
    pl_free(asked);
}

void pl_hooks_release(pl_hooks_t *hooks)
{
    while (hooks->asked)
        asked_free(hooks->asked);
}

static void asked_answer(void *self, asked_t *asked, pl_answer_t answer)
{
    const pl_how_t how = asked->how;
    asked_free(asked);
    answer.context = how.context;
    how.on_answer(self, &answer);
}

static void asked_fail(void *self, asked_t *asked, const pl_error_t *error)
{
    asked_answer(self, asked, (pl_answer_t){.kind = PL_ANSWER_ERROR, .error = error});
}

/* ---- all get the answer ---- */

static void agreed(void *self, const pl_answer_t *answer)
{
    asked_t *asked = answer->context;
    pl_error_t err = {0};
    pl_body_t body;
    json_t *kept = NULL;
    uint64_t numbers[2 * PL_HOOK_INTERVALS];
    if (answer->kind == PL_ANSWER_ERROR)
        asked_fail(self, asked, answer->error);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    const char *text = answer->body->decide_reply.text;
    int code = asked->interest
                   ? pl_callback_hooks_read(text, &body.callback_hooks_reply, numbers,
                                            &err)
                   : pl_hook_reply_read(text, &body.run_hook_reply, &kept, &err);
    if (code == PL_OK)
        asked_answer(self, asked, (pl_answer_t){.kind = PL_ANSWER_REPLY, .body = &body});
    else
        asked_fail(self, asked, &err);
    json_decref(kept);
}

static uint64_t agree(void *self, asked_t *asked, const char *text, pl_error_t *err)
{
    return pl_call_decide(self, asked->hooks->coordinator, &(pl_decide_t){.text = text},
                          (pl_how_t){.on_answer = agreed, .context = asked}, err);
}

/* The rank that has callbacks tells what they said. */
static void callbacks_said(void *self, const pl_answer_t *answer)
{
    asked_t *asked = answer->context;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_ERROR)
        asked_fail(self, asked, answer->error);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    char *text = asked->interest
                     ? pl_callback_hooks_text(&answer->body->callback_hooks_reply, &err)
                     : pl_hook_reply_text(&answer->body->run_hook_reply, &err);
    if (!text || !agree(self, asked, text, &err))
        asked_fail(self, asked, &err);
    pl_free(text);
}

/* Makes the call of the callbacks, or waits for who does. */
static uint64_t ask_together(void *self, pl_hooks_t *hooks, pl_message_t message,
                             const void *msg, pl_how_t how, pl_error_t *err)
{
    asked_t *asked = pl_alloc(sizeof *asked);
    if (!asked)
        return pl_no_memory(err), 0;
    *asked = (asked_t){.next = hooks->asked,
                       .hooks = hooks,
                       .how = how,
                       .interest = message == PL_MESSAGE_callback_hooks};
    hooks->asked = asked;
    how.on_answer = callbacks_said;
    how.context = asked;
    uint64_t call = pl_is_nobody(hooks->callback)
                        ? agree(self, asked, "", err)
                        : pl_call(self, hooks->callback, message, msg, how, err);
    if (!call)
        asked_free(asked);
    return call;
}

static uint64_t ask(void *self, pl_hooks_t *hooks, pl_message_t message, const void *msg,
                    pl_how_t how, pl_error_t *err)
{
    if (!pl_is_nobody(hooks->coordinator))
        return ask_together(self, hooks, message, msg, how, err);
    return pl_call(self, hooks->callback, message, msg, how, err);
}

/* ---- for the loops ---- */

uint64_t pl_hooks_query(void *self, pl_hooks_t *hooks, pl_how_t how, pl_error_t *err)
{
    return ask(self, hooks, PL_MESSAGE_callback_hooks, &(pl_callback_hooks_t){0}, how,
               err);
}

uint64_t pl_hooks_run(void *self, pl_hooks_t *hooks, pl_run_hook_t *msg,
                      const json_t *metrics, pl_how_t how, pl_error_t *err)
{
    static const pl_body_t nothing = {.run_hook_reply = {.lr_factor = 1,
                                                         .metrics = "",
                                                         .freeze = "",
                                                         .unfreeze = "",
                                                         .save = "",
                                                         .drop = "",
                                                         .reason = ""}};
    /* A rank that fails meets nobody any more. */
    const bool alone = msg->point == PL_HOOK_EXCEPTION;
    if (!(hooks->points & 1u << msg->point) || (alone && pl_is_nobody(hooks->callback))) {
        how.on_answer(self, &(pl_answer_t){.kind = PL_ANSWER_REPLY,
                                           .context = how.context,
                                           .body = &nothing});
        return 1;
    }
    char *text = pl_metrics_text(metrics, err);
    if (!text)
        return 0;
    msg->metrics = text;
    uint64_t call = alone ? pl_call_run_hook(self, hooks->callback, msg, how, err)
                          : ask(self, hooks, PL_MESSAGE_run_hook, msg, how, err);
    pl_free(text);
    msg->metrics = "";
    return call;
}

int pl_hooks_log(void *self, const pl_hooks_t *hooks, const pl_run_hook_t *msg,
                 const pl_run_hook_reply_t *request, json_t *newest, pl_error_t *err)
{
    const pl_log_metrics_t log = {.epoch = msg->epoch,
                                  .global_step = msg->global_step,
                                  .metrics = request->metrics};
    if (!*request->metrics)
        return PL_OK;
    int code = pl_metrics_merge(newest, request->metrics, err);
    if (code == PL_OK && !pl_is_nobody(hooks->logger)
        && !pl_call_log_metrics(self, hooks->logger, &log, (pl_how_t){0}, err))
        code = err->code;
    return code;
}

int pl_hooks_freeze(void *self, pl_address_t strategy, const pl_run_hook_reply_t *request,
                    pl_error_t *err)
{
    const pl_freeze_t msg = {.freeze = request->freeze, .unfreeze = request->unfreeze};
    if (!*request->freeze && !*request->unfreeze)
        return PL_OK;
    return pl_call_freeze(self, strategy, &msg, (pl_how_t){0}, err) ? PL_OK : err->code;
}
