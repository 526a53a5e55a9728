/* passed.h - calls that were passed on to another process and wait for their answers */
#ifndef PL_LAUNCHERS_PASSED_H
#define PL_LAUNCHERS_PASSED_H

#include "actors/launchers/outbox.h"
#include "runtime/actor.h"

typedef struct pl_passed {
    struct passed *first;
    uint64_t count;                           /* of all there were: the newest's number */
} pl_passed_t;

/* Passes a call on as it came. */
int pl_passed_on(pl_passed_t *passed, pl_outbox_t *outbox, pl_call_t *call,
                 pl_message_t message, const pl_body_t *body, pl_error_t *err);
/* An answer has come: ends the call that it is for, if there is one. */
void pl_passed_end(pl_passed_t *passed, const pl_envelope_t *envelope,
                   const pl_body_t *body, const pl_error_t *error);
/* Nobody answers any more. */
void pl_passed_release(pl_passed_t *passed);

#endif
