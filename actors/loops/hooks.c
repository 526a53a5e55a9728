/* hooks.c - how a loop runs the hooks of callbacks, and only those that callbacks use */
#include "actors/loops/hooks.h"

#include "actors/loops/loops.h"
#include "actors/loops/metrics.h"
#include "base/alloc.h"
#include "base/error.h"

/* A call to the callbacks of one rank, until all ranks have the answer. */
typedef struct pl_hook_call {
    struct pl_hook_call *next;
    pl_hooks_t *hooks;
    pl_how_t how;                                           /* of the loop */
    pl_message_t message;
} hook_call_t;

void pl_hooks_init(pl_hooks_t *hooks, void *self)
{
    hooks->callback = pl_peer(self, "callback");
    hooks->logger = pl_peer(self, "logger");
    hooks->coordinator = pl_peer(self, "coordinator");
}

static void call_free(hook_call_t *call)
{
    hook_call_t **from = &call->hooks->calls;
    while (*from != call)
        from = &(*from)->next;
    *from = call->next;
    pl_free(call);
}

void pl_hooks_release(pl_hooks_t *hooks)
{
    while (hooks->calls)
        call_free(hooks->calls);
}

/* ---- calls ---- */

/* Answers the loop; consumes the call.  The answer has no number, because the loop
 * knows only the number of the first call. */
static void call_answer(void *self, hook_call_t *call, pl_answer_t answer)
{
    const pl_how_t how = call->how;
    call_free(call);
    answer.context = how.context;
    answer.call = 0;
    how.on_answer(self, &answer);
}

static void call_agreed(void *self, const pl_answer_t *answer)
{
    hook_call_t *call = answer->context;
    pl_error_t err = {0};
    pl_body_t body;
    if (answer->kind == PL_ANSWER_ERROR)
        call_answer(self, call, *answer);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    const int code = pl_loop_decided(&answer->body->decide_reply, call->message, true,
                                     &body, &err);
    call_answer(self, call,
                code == PL_OK ? (pl_answer_t){.kind = PL_ANSWER_REPLY, .body = &body}
                              : (pl_answer_t){.kind = PL_ANSWER_ERROR, .error = &err});
}

/* reply  [NULL: this rank has no callbacks] */
static uint64_t call_agree(void *self, hook_call_t *call, const pl_body_t *reply,
                           pl_error_t *err)
{
    const pl_decision_t decision = {.message = call->message,
                                    .is_reply = true,
                                    .fields = reply};
    return pl_loop_decide(self, call->hooks->coordinator, &decision,
                          (pl_how_t){.on_answer = call_agreed, .context = call}, err);
}

/* The rank that has callbacks sends their answer to the others. */
static void callbacks_answered(void *self, const pl_answer_t *answer)
{
    hook_call_t *call = answer->context;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_ERROR)
        call_answer(self, call, *answer);
    if (answer->kind == PL_ANSWER_REPLY && !call_agree(self, call, answer->body, &err))
        call_answer(self, call, (pl_answer_t){.kind = PL_ANSWER_ERROR, .error = &err});
}

/* Calls the callbacks; a rank without callbacks waits for the answer of another. */
static uint64_t hooks_call(void *self, pl_hooks_t *hooks, pl_message_t message,
                           const void *msg, pl_how_t how, pl_error_t *err)
{
    if (pl_is_nobody(hooks->coordinator))
        return pl_call(self, hooks->callback, message, msg, how, err);
    hook_call_t *call = pl_alloc(sizeof *call);
    if (!call)
        return pl_no_memory(err), 0;
    *call = (hook_call_t){hooks->calls, hooks, how, message};
    hooks->calls = call;
    how.on_answer = callbacks_answered;
    how.context = call;
    const uint64_t number = pl_is_nobody(hooks->callback)
                                ? call_agree(self, call, NULL, err)
                                : pl_call(self, hooks->callback, message, msg, how, err);
    if (!number)
        call_free(call);
    return number;
}

/* ---- for the loops ---- */

uint64_t pl_hooks_query(void *self, pl_hooks_t *hooks, pl_how_t how, pl_error_t *err)
{
    return hooks_call(self, hooks, PL_MESSAGE_callback_hooks, &(pl_callback_hooks_t){0},
                      how, err);
}

/* A rank that fails coordinates no more with the others. */
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
    const uint64_t call = alone ? pl_call_run_hook(self, hooks->callback, msg, how, err)
                                : hooks_call(self, hooks, PL_MESSAGE_run_hook, msg, how,
                                             err);
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
