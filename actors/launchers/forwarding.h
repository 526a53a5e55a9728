/* forwarding.h - calls and answers between a launcher and the process of a rank, or
 * between two nodes of paceline launch
 *
 * Each side of their links has an outbox, and reads what the other side posts.  An
 * object, such as a job, travels as bulk data, and the message that has it follows
 * when all of the object has arrived. */
#ifndef PL_LAUNCHERS_FORWARDING_H
#define PL_LAUNCHERS_FORWARDING_H

#include "runtime/message.h"
#include "runtime/payload.h"
#include "transport/bulk.h"

typedef struct pl_outbox {
    pl_link_t *link;
    int peer;                                        /* PL_LINK_HOST: of a rank or node */
    bool is_of_node;                                 /* [of a rank] */
    uint64_t run;                                    /* in every envelope */
    uint32_t incarnation;
    pl_bulk_t *bulk;                                        /* [no message has objects] */
    struct pl_kept_frame *first;                            /* waits  [none] */
} pl_outbox_t;

/* Sends a message of a call of that number, or keeps it: until the peer has joined, there
 * is room, and its object and the messages before it have arrived.  A message that no
 * answer belongs to (number 0) overtakes messages that wait.  Progress that finds no room
 * is left out: the next one replaces it.  PL_EPEER: the peer is gone. */
int pl_outbox_post(pl_outbox_t *box, pl_kind_t kind, pl_message_t message, uint64_t call,
                   const void *fields, pl_error_t *err);
/* The same with its object packed before, for several peers. */
int pl_outbox_post_packed(pl_outbox_t *box, pl_kind_t kind, pl_message_t message,
                          uint64_t call, const void *fields, pl_blob_t *object,
                          pl_error_t *err);
/* on_sent of the bulk data. */
void pl_outbox_sent(pl_outbox_t *box, uint64_t transfer, const pl_error_t *error);
/* The peer has joined, or there is room again. */
void pl_outbox_flush(pl_outbox_t *box);
void pl_outbox_release(pl_outbox_t *box);

/* A message from the other side; its texts lie in the frame. */
typedef struct pl_incoming {
    pl_envelope_t envelope;
    pl_body_t body;
    pl_error_t error;                  /* of an error; or why the message lacks its object
                                          [code 0] */
    pl_object_t *object;               /* counted; the one in the body  [none] */
} pl_incoming_t;

/* Reads a message for the side that the outbox belongs to.  PL_EPROTOCOL: it is
 * malformed, or that side accepts no such message.  To be released in any case. */
int pl_incoming_read(pl_incoming_t *message, const pl_outbox_t *box, pl_bytes_t frame,
                     pl_error_t *err);
void pl_incoming_release(pl_incoming_t *message);

/* ---- Jobs and outcomes as bytes: job_serialization.c ----
 *
 * All of a pl_job_t or a pl_outcome_t travels, except components that are known only by a
 * pointer: pl_request_check() refuses them before.  Bytes from another process are not
 * believed. */

/* A job has the names of plug-ins' files and of their components: the other side loads
 * them, and must find the same. */
pl_blob_t *pl_job_pack(const pl_job_t *job, pl_error_t *err);
pl_job_t *pl_job_unpack(const pl_blob_t *blob, pl_error_t *err);

pl_blob_t *pl_outcome_pack(const pl_outcome_t *outcome, pl_error_t *err);
pl_outcome_t *pl_outcome_unpack(const pl_blob_t *blob, pl_error_t *err);

#endif
