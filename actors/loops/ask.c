/* ask.c - how a loop asks the callbacks: only where one of them wants to be asked */
#include "actors/loops/ask.h"

#include "actors/loops/agreed.h"
#include "actors/loops/figures.h"
#include "base/alloc.h"
#include "base/error.h"

/* A question under way among several ranks, until all have the answer. */
typedef struct pl_asked {
    struct pl_asked *next;
    pl_asking_t *asking;
    pl_how_t how;                                           /* who asked */
    bool interest;
} asked_t;

void pl_asking_init(pl_asking_t *asking, void *self)
{
    asking->callback = pl_peer(self, "callback");
    asking->logger = pl_peer(self, "logger");
    asking->agreement = pl_peer(self, "agreement");
}

static void asked_free(asked_t *asked)
{
    asked_t **from = &asked->asking->asked;
    while (*from != asked)
        from = &(*from)->next;
    *from = asked->next;
    pl_free(asked);
}

void pl_asking_release(pl_asking_t *asking)
{
    while (asking->asked)
        asked_free(asking->asked);
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
    uint64_t numbers[2 * PL_AGREED_NUMBERS];
    if (answer->kind == PL_ANSWER_ERROR)
        asked_fail(self, asked, answer->error);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    const char *text = answer->body->decide_reply.text;
    int code = asked->interest
                   ? pl_agreed_read_interest(text, &body.interest_reply, numbers, &err)
                   : pl_agreed_read_wish(text, &body.ask_callbacks_reply, &kept, &err);
    if (code == PL_OK)
        asked_answer(self, asked, (pl_answer_t){.kind = PL_ANSWER_REPLY, .body = &body});
    else
        asked_fail(self, asked, &err);
    json_decref(kept);
}

static uint64_t agree(void *self, asked_t *asked, const char *text, pl_error_t *err)
{
    return pl_call_decide(self, asked->asking->agreement, &(pl_decide_t){.text = text},
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
                     ? pl_agreed_interest(&answer->body->interest_reply, &err)
                     : pl_agreed_wish(&answer->body->ask_callbacks_reply, &err);
    if (!text || !agree(self, asked, text, &err))
        asked_fail(self, asked, &err);
    pl_free(text);
}

/* Makes the call of the callbacks, or waits for who does. */
static uint64_t ask_together(void *self, pl_asking_t *asking, pl_message_t message,
                             const void *msg, pl_how_t how, pl_error_t *err)
{
    asked_t *asked = pl_alloc(sizeof *asked);
    if (!asked)
        return pl_no_memory(err), 0;
    *asked = (asked_t){.next = asking->asked,
                       .asking = asking,
                       .how = how,
                       .interest = message == PL_MESSAGE_interest};
    asking->asked = asked;
    how.on_answer = callbacks_said;
    how.context = asked;
    uint64_t call = pl_is_nobody(asking->callback)
                        ? agree(self, asked, "", err)
                        : pl_call(self, asking->callback, message, msg, how, err);
    if (!call)
        asked_free(asked);
    return call;
}

static uint64_t ask(void *self, pl_asking_t *asking, pl_message_t message,
                    const void *msg, pl_how_t how, pl_error_t *err)
{
    if (!pl_is_nobody(asking->agreement))
        return ask_together(self, asking, message, msg, how, err);
    return pl_call(self, asking->callback, message, msg, how, err);
}

/* ---- for the loops ---- */

uint64_t pl_ask_interest(void *self, pl_asking_t *asking, pl_on_answer_t then,
                         pl_error_t *err)
{
    return ask(self, asking, PL_MESSAGE_interest, &(pl_interest_t){0},
               (pl_how_t){.on_answer = then}, err);
}

uint64_t pl_ask(void *self, pl_asking_t *asking, pl_ask_callbacks_t *msg,
                const json_t *metrics, pl_how_t how, pl_error_t *err)
{
    static const pl_body_t nothing = {.ask_callbacks_reply = {.lr_factor = 1,
                                                              .metrics = "",
                                                              .freeze = "",
                                                              .unfreeze = "",
                                                              .save = "",
                                                              .drop = "",
                                                              .reason = ""}};
    /* A rank that fails meets nobody any more. */
    const bool alone = msg->point == PL_HOOK_EXCEPTION;
    if (!(asking->points & 1u << msg->point)
        || (alone && pl_is_nobody(asking->callback))) {
        how.on_answer(self, &(pl_answer_t){.kind = PL_ANSWER_REPLY,
                                           .context = how.context,
                                           .body = &nothing});
        return 1;
    }
    char *text = pl_metrics_text(metrics, err);
    if (!text)
        return 0;
    msg->metrics = text;
    uint64_t call = alone ? pl_call_ask_callbacks(self, asking->callback, msg, how, err)
                          : ask(self, asking, PL_MESSAGE_ask_callbacks, msg, how, err);
    pl_free(text);
    msg->metrics = "";
    return call;
}

int pl_ask_log(void *self, const pl_asking_t *asking, const pl_ask_callbacks_t *msg,
               const pl_ask_callbacks_reply_t *wish, json_t *newest, pl_error_t *err)
{
    const pl_log_metrics_t log = {.epoch = msg->epoch,
                                  .global_step = msg->global_step,
                                  .metrics = wish->metrics};
    if (!*wish->metrics)
        return PL_OK;
    int code = pl_metrics_merge(newest, wish->metrics, err);
    if (code == PL_OK && !pl_is_nobody(asking->logger)
        && !pl_call_log_metrics(self, asking->logger, &log, (pl_how_t){0}, err))
        code = err->code;
    return code;
}

int pl_ask_freeze(void *self, pl_address_t strategy, const pl_ask_callbacks_reply_t *wish,
                  pl_error_t *err)
{
    const pl_freeze_t msg = {.freeze = wish->freeze, .unfreeze = wish->unfreeze};
    if (!*wish->freeze && !*wish->unfreeze)
        return PL_OK;
    return pl_call_freeze(self, strategy, &msg, (pl_how_t){0}, err) ? PL_OK : err->code;
}
