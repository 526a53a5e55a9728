/* outbox.h - messages to the other end of a link, in order, also while it takes none */
#ifndef PL_LAUNCHERS_OUTBOX_H
#define PL_LAUNCHERS_OUTBOX_H

#include "runtime/message.h"
#include "transport/link.h"

typedef struct pl_outbox {
    pl_link_t *link;
    int peer;
    uint64_t run;                                           /* in every envelope */
    uint32_t incarnation;
    struct pl_kept *first;
} pl_outbox_t;

/* Sends a message, or keeps it until the peer has joined or there is room.  Progress
 * that finds no room is left out: the next says the same and more.  PL_EPEER: the peer is
 * gone. */
int pl_outbox_post(pl_outbox_t *box, pl_kind_t kind, pl_message_t message, uint64_t call,
                   const void *fields, pl_error_t *err);
/* The peer has joined, or there is room again. */
void pl_outbox_flush(pl_outbox_t *box);
void pl_outbox_release(pl_outbox_t *box);

#endif
