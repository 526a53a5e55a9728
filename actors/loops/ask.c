/* ask.c - how a loop asks the callbacks: only where one of them wants to be asked */
#include "actors/loops/ask.h"

#include "actors/loops/figures.h"
#include "base/alloc.h"

uint64_t pl_ask(void *self, const pl_asking_t *asking, pl_ask_callbacks_t *msg,
                const json_t *metrics, pl_how_t how, pl_error_t *err)
{
    static const pl_body_t nothing = {
        .ask_callbacks_reply = {
            .lr_factor = 1, .figures = "", .save = "", .drop = "", .reason = ""}};
    if (!(asking->points & 1u << msg->point)) {
        how.on_answer(self, &(pl_answer_t){.kind = PL_ANSWER_REPLY,
                                           .context = how.context,
                                           .body = &nothing});
        return 1;
    }
    char *text = pl_metrics_text(metrics, err);
    if (!text)
        return 0;
    msg->metrics = text;
    uint64_t call = pl_call_ask_callbacks(self, asking->callback, msg, how, err);
    pl_free(text);
    msg->metrics = "";
    return call;
}

int pl_ask_log(void *self, const pl_asking_t *asking, const pl_ask_callbacks_t *msg,
               const pl_ask_callbacks_reply_t *wish, json_t *newest, pl_error_t *err)
{
    const pl_log_metrics_t log = {.epoch = msg->epoch,
                                  .global_step = msg->global_step,
                                  .metrics = wish->figures};
    if (!*wish->figures)
        return PL_OK;
    int code = pl_metrics_merge(newest, wish->figures, err);
    if (code == PL_OK
        && !pl_call_log_metrics(self, asking->logger, &log, (pl_how_t){0}, err))
        code = err->code;
    return code;
}
