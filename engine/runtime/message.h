/* message.h - messages on the wire: an envelope and the fields that messages.def lists
 *
 * One frame is an envelope of fixed size and a body, little-endian.  A frame that is short, long, of another version or
 * with a text that does not end is refused whole; nothing in it is trusted before that. */
#ifndef PL_RUNTIME_MESSAGE_H
#define PL_RUNTIME_MESSAGE_H

#include "runtime/actor.h"

#define PL_PROTOCOL_VERSION 1
#define PL_MESSAGE_MOST (16 << 20)                          /* bytes of a frame */
#define PL_HANDLES_MOST 4                                   /* of one message */

typedef enum pl_kind { PL_KIND_CALL, PL_KIND_PROGRESS, PL_KIND_REPLY, PL_KIND_ERROR, PL_KIND_CANCEL, PL_KINDS } pl_kind_t;

typedef struct pl_envelope {
    uint8_t version, kind;
    uint16_t message;
    uint32_t epoch;                                         /* incarnation of the run's ranks */
    uint64_t run;
    uint64_t call, cause;                                   /* cause: the call that the caller was handling; 0: none */
    int64_t remaining;                                      /* ns; -1: no limit */
    uint32_t from_thread, from_actor, from_kind;
    uint32_t to_thread, to_actor, to_kind;
} pl_envelope_t;

typedef enum pl_field_type {
    PL_TYPE_U32, PL_TYPE_U64, PL_TYPE_F64, PL_TYPE_FLAG, PL_TYPE_STRING, PL_TYPE_DATA, PL_TYPE_HANDLE, PL_TYPE_PEERS,
} pl_field_type_t;

typedef struct pl_field_info {
    const char *name;
    pl_field_type_t type;
    const char *help;
} pl_field_info_t;

/* The three parts of a message: fields of the call, of its progress, of its reply. */
typedef struct pl_message_info {
    const char *name, *help;
    const char *from, *to;                                  /* level names, or "ANY" */
    int from_level, to_level;                               /* PL_LEVEL_ANY or a height */
    const pl_field_info_t *fields[3];                       /* each up to a NULL name */
} pl_message_info_t;

/* What is known of a message by number, or NULL.  The k-th in order of number, or NULL. */
const pl_message_info_t *pl_message_info(unsigned number);
const pl_message_info_t *pl_message_at(int k, unsigned *number);

/* A message being sent or received: bytes in a ZeroMQ message, with the objects it carries kept alive. */
typedef struct pl_frame pl_frame_t;

/* Encodes; fields is the struct of that message and kind (a pl_error_t for errors, NULL for cancel). */
pl_frame_t *pl_frame_new(const pl_envelope_t *envelope, const void *fields, pl_error_t *err);
/* Takes over received bytes (a zmq_msg_t, left empty), after checking the envelope. */
pl_frame_t *pl_frame_receive(void *zmq_message, pl_error_t *err);
void pl_frame_free(pl_frame_t *frame);
pl_envelope_t pl_frame_envelope(const pl_frame_t *frame);
pl_bytes_t pl_frame_bytes(const pl_frame_t *frame);
/* The zmq_msg_t inside, for the socket wrapper; the link to the next one, for queues. */
void *pl_frame_zmq(pl_frame_t *frame);
pl_frame_t **pl_frame_next(pl_frame_t *frame);

/* The bytes of a zmq_msg_t that was received. */
pl_bytes_t pl_message_bytes(void *zmq_message);

/* Decodes the body; what it points to lives as long as the frame.  For errors into *error. */
int pl_frame_decode(const pl_frame_t *frame, pl_body_t *body, pl_error_t *error, pl_error_t *err);

/* One line of the stream (interface.md) for a frame's bytes, without a newline; the length, cut at room.  Any bytes may
 * be given: what is malformed is left out. */
size_t pl_message_json(pl_bytes_t frame, uint64_t seq, double time, int rank, char *text, size_t room);

/* The struct size of a message's part, for tests. */
size_t pl_fields_size(unsigned message, pl_kind_t kind);

/* Kinds: names and levels of actors, known to the whole process by number. */
uint32_t pl_kind_enter(const char *name, int level, pl_error_t *err);       /* the same pair gives the same number */
const char *pl_kind_name(uint32_t kind);                    /* "?" when unknown */
int pl_kind_level(uint32_t kind);                           /* 0 when unknown */

#endif
