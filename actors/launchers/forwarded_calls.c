/* forwarded_calls.c - calls that were forwarded to another process and wait for their
 * answers */
#include "actors/launchers/forwarded_calls.h"

#include "base/alloc.h"
#include "base/error.h"

typedef struct forwarded {
    struct forwarded *next;
    uint64_t number;
    pl_call_t *call;
} forwarded_t;

int pl_forwarded_calls_send(pl_forwarded_calls_t *p, pl_outbox_t *outbox, pl_call_t *call,
                            pl_message_t message, const pl_body_t *body, pl_error_t *err)
{
    forwarded_t *forwarded = pl_alloc(sizeof *forwarded);
    if (!forwarded)
        return pl_no_memory(err);
    *forwarded = (forwarded_t){p->first, ++p->count, call};
    int code = pl_outbox_post(outbox, PL_KIND_CALL, message, forwarded->number, body,
                              err);
    if (code == PL_OK)
        p->first = forwarded;
    else
        pl_free(forwarded);
    return code;
}

static forwarded_t *forwarded_take(pl_forwarded_calls_t *p, uint64_t number)
{
    forwarded_t **at = &p->first, *found;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = found->next;
    return found;
}

void pl_forwarded_calls_end(pl_forwarded_calls_t *p, const pl_envelope_t *e,
                            const pl_body_t *body, const pl_error_t *error)
{
    forwarded_t *forwarded = forwarded_take(p, e->call);
    if (!forwarded)
        return;
    if (e->kind == PL_KIND_ERROR)
        pl_call_fail(forwarded->call, error);
    else
        pl_reply(forwarded->call, body);
    pl_free(forwarded);
}

void pl_forwarded_calls_release(pl_forwarded_calls_t *p)
{
    for (forwarded_t *forwarded; (forwarded = p->first);) {
        p->first = forwarded->next;
        pl_free(forwarded);
    }
}
