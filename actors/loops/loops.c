/* loops.c - what all loops share: their open call, and progress in checkpoints */
#include "actors/loops/loops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pl_loop_fail(pl_call_t **call_p, const pl_error_t *error)
{
    pl_call_t *call = *call_p;
    *call_p = NULL;
    if (call)
        pl_call_fail(call, error);
}

bool pl_loop_no_reply(pl_call_t **call_p, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR)
        pl_loop_fail(call_p, answer->error);
    return answer->kind != PL_ANSWER_REPLY || !*call_p;
}

void pl_loop_ignore(void *self, const pl_answer_t *answer)
{
    (void)self, (void)answer;
}

uint64_t pl_loop_agree(void *self, pl_address_t coordinator, const pl_decide_t *msg,
                       pl_how_t how, pl_error_t *err)
{
    if (!pl_is_nobody(coordinator))
        return pl_call_decide(self, coordinator, msg, how, err);
    const pl_body_t reply = {
        .decide_reply = {.messages = msg->messages, .objected = msg->objects}};
    how.on_answer(self, &(pl_answer_t){.kind = PL_ANSWER_REPLY,
                                       .context = how.context,
                                       .body = &reply});
    return 1;
}

uint64_t pl_loop_decide(void *self, pl_address_t coordinator,
                        const pl_decision_t *decision, pl_how_t how, pl_error_t *err)
{
    pl_messages_t messages = {0};
    uint64_t call = 0;
    if (!decision->fields
        || pl_messages_add(&messages, decision->message, decision->is_reply,
                           decision->fields, err)
               == PL_OK)
        call = pl_loop_agree(self, coordinator,
                             &(pl_decide_t){.messages = pl_messages_bytes(&messages),
                                            .announced = decision->announced},
                             how, err);
    pl_messages_release(&messages);
    return call;
}

int pl_loop_decided(const pl_decide_reply_t *reply, pl_message_t message, bool is_reply,
                    pl_body_t *body, pl_error_t *err)
{
    pl_bytes_t list = reply->messages;
    pl_message_t sent;
    bool sent_reply;
    if (pl_messages_take(&list, &sent, &sent_reply, body, err) != PL_OK)
        return err->code;
    if (sent != message || sent_reply != is_reply || list.size)
        return pl_fail(err, PL_EPROTOCOL, "rank 0 has decided something else");
    return PL_OK;
}

json_t *pl_tracker_save(const pl_tracker_t *counts)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "ready", (json_int_t)counts->ready,
                     "started", (json_int_t)counts->started, "processed",
                     (json_int_t)counts->processed, "completed",
                     (json_int_t)counts->completed);
}

void pl_tracker_load(pl_tracker_t *counts, const json_t *kept)
{
    const uint64_t completed =
        (uint64_t)json_integer_value(json_object_get(kept, "completed"));
    *counts = (pl_tracker_t){completed, completed, completed, completed};
}

json_t *pl_number_save(double value)
{
    uint64_t bits;
    char text[17];
    memcpy(&bits, &value, sizeof bits);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)bits);
    return json_string(text);
}

double pl_number_load(const json_t *kept)
{
    const char *text = json_string_value(kept);
    uint64_t bits = text ? strtoull(text, NULL, 16) : 0;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
