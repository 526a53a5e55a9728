/* passed.c - calls that were passed on to another process and wait for their answers */
#include "actors/launchers/passed.h"

#include "base/alloc.h"
#include "base/error.h"

typedef struct passed {
    struct passed *next;
    uint64_t number;
    pl_call_t *call;
} passed_t;

int pl_passed_on(pl_passed_t *p, pl_outbox_t *outbox, pl_call_t *call,
                 pl_message_t message, const pl_body_t *body, pl_error_t *err)
{
    passed_t *passed = pl_alloc(sizeof *passed);
    if (!passed)
        return pl_no_memory(err);
    *passed = (passed_t){p->first, ++p->count, call};
    int code = pl_outbox_post(outbox, PL_KIND_CALL, message, passed->number, body, err);
    if (code == PL_OK)
        p->first = passed;
    else
        pl_free(passed);
    return code;
}

static passed_t *passed_take(pl_passed_t *p, uint64_t number)
{
    passed_t **at = &p->first, *found;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = found->next;
    return found;
}

void pl_passed_end(pl_passed_t *p, const pl_envelope_t *e, const pl_body_t *body,
                   const pl_error_t *error)
{
    passed_t *passed = passed_take(p, e->call);
    if (!passed)
        return;
    if (e->kind == PL_KIND_ERROR)
        pl_call_fail(passed->call, error);
    else
        pl_reply(passed->call, body);
    pl_free(passed);
}

void pl_passed_release(pl_passed_t *p)
{
    for (passed_t *passed; (passed = p->first);) {
        p->first = passed->next;
        pl_free(passed);
    }
}
