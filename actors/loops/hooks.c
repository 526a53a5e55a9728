/* hooks.c - how a loop runs the hooks of callbacks, and only those that callbacks use */
#include "actors/loops/hooks.h"

#include <string.h>

#include "actors/loops/metrics.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"

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

/* ---- replies as text ----
 *
 * The numbers are this library's own, between ranks of one version. */

static json_t *numbers_write(pl_bytes_t bytes)
{
    json_t *list = json_array();
    for (size_t k = 0; k < bytes.size / sizeof(uint64_t); k++) {
        uint64_t number;
        memcpy(&number, (const char *)bytes.data + k * sizeof number, sizeof number);
        list = pl_json_append(list, json_integer((json_int_t)number));
    }
    return list;
}

char *pl_hooks_reply_text(pl_message_t message, const pl_body_t *reply, pl_error_t *err)
{
    const pl_run_hook_reply_t *request = &reply->run_hook_reply;
    const pl_callback_hooks_reply_t *used = &reply->callback_hooks_reply;
    if (message == PL_MESSAGE_callback_hooks)
        return pl_json_to_text(json_pack("{s:I, s:I, s:o, s:o}", "points",
                                         (json_int_t)used->points, "requests",
                                         (json_int_t)used->requests, "halts",
                                         numbers_write(used->halts), "looks",
                                         numbers_write(used->looks)),
                               err);
    return pl_json_to_text(
        json_pack("{s:b, s:b, s:b, s:f, s:I, s:s, s:s, s:s, s:s, s:s, s:s}", "stop",
                  (int)request->stop, "by_clock", (int)request->by_clock, "skip",
                  (int)request->skip, "lr_factor", request->lr_factor, "accumulate",
                  (json_int_t)request->accumulate, "metrics", request->metrics, "freeze",
                  request->freeze, "unfreeze", request->unfreeze, "save", request->save,
                  "drop", request->drop, "reason", request->reason),
        err);
}

/* Texts of the reply are borrowed from *kept_p. */
static int request_read(const char *text, pl_run_hook_reply_t *request, json_t **kept_p,
                        pl_error_t *err)
{
    int stop = 0, by_clock = 0, skip = 0;
    json_int_t accumulate = 0;
    *kept_p = pl_json_read(text, strlen(text), "the requests of the callbacks", err);
    if (!*kept_p)
        return err->code;
    if (json_unpack(*kept_p, "{s:b, s:b, s:b, s:F, s:I, s:s, s:s, s:s, s:s, s:s, s:s}",
                    "stop", &stop, "by_clock", &by_clock, "skip", &skip, "lr_factor",
                    &request->lr_factor, "accumulate", &accumulate, "metrics",
                    &request->metrics, "freeze", &request->freeze, "unfreeze",
                    &request->unfreeze, "save", &request->save, "drop", &request->drop,
                    "reason", &request->reason)
        != 0)
        return pl_fail(err, PL_EPROTOCOL, "rank 0 sent no requests of callbacks");
    request->stop = stop, request->by_clock = by_clock, request->skip = skip;
    request->accumulate = (uint64_t)accumulate;
    return PL_OK;
}

static pl_bytes_t numbers_read(const json_t *list, uint64_t number[PL_INTERVALS_MAX])
{
    size_t count = json_array_size(list);
    if (count > PL_INTERVALS_MAX)
        count = PL_INTERVALS_MAX;
    for (size_t k = 0; k < count; k++)
        number[k] = (uint64_t)json_integer_value(json_array_get(list, k));
    return (pl_bytes_t){number, count * sizeof *number};
}

static int hooks_read(const char *text, pl_callback_hooks_reply_t *used, json_t **kept_p,
                      uint64_t numbers[2][PL_INTERVALS_MAX], pl_error_t *err)
{
    json_int_t points = 0, requests = 0;
    *kept_p = pl_json_read(text, strlen(text), "the hooks of the callbacks", err);
    if (!*kept_p)
        return err->code;
    if (json_unpack(*kept_p, "{s:I, s:I}", "points", &points, "requests", &requests) != 0)
        return pl_fail(err, PL_EPROTOCOL, "rank 0 sent no hooks of callbacks");
    used->points = (uint32_t)points;
    used->requests = (uint32_t)requests;
    used->halts = numbers_read(json_object_get(*kept_p, "halts"), numbers[0]);
    used->looks = numbers_read(json_object_get(*kept_p, "looks"), numbers[1]);
    return PL_OK;
}

/* ---- calls ---- */

/* Answers the loop; consumes the call.  The answer has no number, because the loop knows
 * only that of the first call. */
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
    json_t *kept = NULL;
    uint64_t numbers[2][PL_INTERVALS_MAX];
    if (answer->kind == PL_ANSWER_ERROR)
        call_answer(self, call, *answer);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    const char *text = answer->body->decide_reply.text;
    const int code = call->message == PL_MESSAGE_callback_hooks
                         ? hooks_read(text, &body.callback_hooks_reply, &kept, numbers,
                                      &err)
                         : request_read(text, &body.run_hook_reply, &kept, &err);
    call_answer(self, call,
                code == PL_OK ? (pl_answer_t){.kind = PL_ANSWER_REPLY, .body = &body}
                              : (pl_answer_t){.kind = PL_ANSWER_ERROR, .error = &err});
    json_decref(kept);
}

static uint64_t call_agree(void *self, hook_call_t *call, const char *text,
                           pl_error_t *err)
{
    return pl_call_decide(self, call->hooks->coordinator, &(pl_decide_t){.text = text},
                          (pl_how_t){.on_answer = call_agreed, .context = call}, err);
}

/* The rank that has callbacks sends their answer to the others. */
static void callbacks_answered(void *self, const pl_answer_t *answer)
{
    hook_call_t *call = answer->context;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_ERROR)
        call_answer(self, call, *answer);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    char *text = pl_hooks_reply_text(call->message, answer->body, &err);
    if (!text || !call_agree(self, call, text, &err))
        call_answer(self, call, (pl_answer_t){.kind = PL_ANSWER_ERROR, .error = &err});
    pl_text_free(text);
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
                                ? call_agree(self, call, "", err)
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
