/* forwarded_calls.h - calls that were forwarded to another process and wait for their
 * answers */
#ifndef PL_LAUNCHERS_FORWARDED_CALLS_H
#define PL_LAUNCHERS_FORWARDED_CALLS_H

#include "actors/launchers/outbox.h"
#include "runtime/actor.h"

typedef struct pl_forwarded_calls {
    struct forwarded *first;
    uint64_t count;                           /* of all there were: the newest's number */
} pl_forwarded_calls_t;

/* Forwards a call as it came. */
int pl_forwarded_calls_send(pl_forwarded_calls_t *forwarded, pl_outbox_t *outbox,
                            pl_call_t *call, pl_message_t message, const pl_body_t *body,
                            pl_error_t *err);
/* An answer has come: ends the call that it is for, if there is one. */
void pl_forwarded_calls_end(pl_forwarded_calls_t *forwarded,
                            const pl_envelope_t *envelope, const pl_body_t *body,
                            const pl_error_t *error);
/* No answer comes any more. */
void pl_forwarded_calls_release(pl_forwarded_calls_t *forwarded);

#endif
