/* message.h - messages on the wire: an envelope and the fields that messages.def lists
 *
 * One frame is an envelope of fixed size and a body, little-endian.  A frame that is
 * short, long, of another version or with a text that does not end is refused whole;
 * nothing in it is trusted before that. */
#ifndef PL_RUNTIME_MESSAGE_H
#define PL_RUNTIME_MESSAGE_H

#include "runtime/actor.h"
#include "transport/frame.h"

#define PL_PROTOCOL_VERSION 2
#define PL_HANDLES_MAX 4                                    /* of one message */

typedef enum pl_kind {
    PL_KIND_CALL,
    PL_KIND_PROGRESS,
    PL_KIND_REPLY,
    PL_KIND_ERROR,
    PL_KIND_CANCEL,
    PL_KINDS
} pl_kind_t;

extern const char *const pl_message_kinds[PL_KINDS];        /* "call", "progress", … */

typedef struct pl_envelope {
    uint8_t version, kind;
    uint16_t message;
    uint32_t incarnation;                                 /* of the run's ranks, from 0 */
    uint64_t run;
    uint64_t call, cause;              /* cause: the call that the caller was handling; 0:
                                          none */
    int64_t remaining;                 /* ns; -1: no limit */
    uint32_t from_thread, from_actor, from_kind;
    uint32_t to_thread, to_actor, to_kind;
} pl_envelope_t;

typedef enum pl_field_type {
    PL_TYPE_U32,
    PL_TYPE_U64,
    PL_TYPE_F64,
    PL_TYPE_FLAG,
    PL_TYPE_STRING,
    PL_TYPE_DATA,
    PL_TYPE_HANDLE,
    PL_TYPE_PEERS,
    PL_TYPE_ENUM,
} pl_field_type_t;

/* A type of enums.def. */
typedef struct pl_enum_info {
    const char *name, *help;                                /* "run_event" */
    uint32_t count;
    const char *const *names, *const *meanings;             /* [count] */
} pl_enum_info_t;

typedef struct pl_field_info {
    const char *name;
    pl_field_type_t type;
    const char *help;
    const pl_enum_info_t *values;                           /* of ENUM  [another type] */
} pl_field_info_t;

/* The three parts of a message: fields of the call, of its progress, of its reply. */
typedef struct pl_message_info {
    const char *name, *help;
    const char *from, *to;                            /* levels: "WORKER | LOOP" */
    int from_levels, to_levels;                       /* the same, for pl_level_is_in() */
    const pl_field_info_t *fields[3];                 /* each up to a NULL name */
} pl_message_info_t;

/* What is known of a message by number, or NULL.  The k-th in order of number, or
 * NULL. */
const pl_message_info_t *pl_message_info(unsigned number);
const pl_message_info_t *pl_message_at(int k, unsigned *number);

/* The k-th type of enums.def, or NULL. */
const pl_enum_info_t *pl_enum_at(int k);

/* Whether a set of levels contains the level of that height. */
bool pl_level_is_in(int levels, int height);

/* Encodes; fields is the struct of that message and kind (a pl_error_t for errors, NULL
 * for cancel).  Nothing to release after an error. */
int pl_frame_make(pl_frame_t *frame, const pl_envelope_t *envelope, const void *fields,
                  pl_error_t *err);
/* The same for another process: in place of an object the frame has the number of the
 * bulk transfer that carries it  [0: no object]. */
int pl_frame_make_foreign(pl_frame_t *frame, const pl_envelope_t *envelope,
                          const void *fields, uint64_t transfer, pl_error_t *err);
pl_envelope_t pl_frame_envelope(const pl_frame_t *frame);   /* of one that was made or
                                                               checked */

/* Reads the envelope of any bytes.  PL_EPROTOCOL: they are no frame. */
int pl_envelope_read(pl_bytes_t frame, pl_envelope_t *envelope, pl_error_t *err);

/* Decodes the body of any bytes; what it points to lives as long as they.  An error's
 * into *error. */
int pl_frame_decode(pl_bytes_t frame, pl_body_t *body, pl_error_t *error,
                    pl_error_t *err);

/* The same of bytes from another process, whose addresses mean nothing here: PL_EPROTOCOL
 * when there are any.  No object is in the body; *transfer is the number of the one that
 * the message has  [0: none], and a second one is PL_EPROTOCOL  [NULL: so is the
 * first]. */
int pl_frame_decode_foreign(pl_bytes_t frame, pl_body_t *body, pl_error_t *error,
                            uint64_t *transfer, pl_error_t *err);

/* The same of bytes that were kept, whose objects may be gone: none of them is there. */
int pl_frame_decode_record(pl_bytes_t frame, pl_body_t *body, pl_error_t *error,
                           pl_error_t *err);

/* Calls each with every number of a kind of actor in a frame whose envelope was read: of
 * its two ends and of addresses; it may change them, in bytes that are the caller's. */
void pl_frame_kinds(pl_bytes_t frame, void (*visit)(void *user, uint32_t *number),
                    void *user);

/* Where a message stands in the stream. */
typedef struct pl_stamp {
    uint64_t seq;                                         /* of the rank */
    int64_t time;                                         /* ns since the runtime began */
    int rank;
} pl_stamp_t;

#define PL_STREAM_VERSION \
    2                                       /* of those lines: grows when a key that is
                                               there changes, not when one is added */
#define PL_LINE_MIN 1024                    /* room that a line needs before its fields */

/* One line of the stream (doc/messages.md) for a frame, without a newline; its length, 0
 * for what is no frame.  process_id: of the process whose numbers its calls have.  Always
 * valid JSON: a text that does not fit ends in "…", a field that does not fit or is
 * malformed is left out. */
size_t pl_message_json(pl_bytes_t frame, const pl_stamp_t *stamp, uint32_t process_id,
                       char *text, size_t capacity);

/* The first object of a message in the struct of its kind  [NULL: it has none]. */
pl_object_t **pl_message_object(const pl_envelope_t *envelope, void *fields);

/* Where the next field of a type stands in its struct; *offset moves behind it. */
size_t pl_field_place(pl_field_type_t type, size_t *offset);
/* Which of the three parts a kind carries; -1 for errors and cancels. */
int pl_section_of_kind(pl_kind_t kind);

/* Kinds: names and levels of actors, known to the whole process by number. */
/* the same pair gives the same number */
uint32_t pl_kind_enter(const char *name, int level, pl_error_t *err);
const char *pl_kind_name(uint32_t kind);                    /* "?" when unknown */
int pl_kind_level(uint32_t kind);                           /* 0 when unknown */

#endif
