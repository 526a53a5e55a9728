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
    PL_TYPE_MESSAGES,
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

/* The message of a number, or NULL; the k-th message in the order of numbers, or NULL. */
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

/* Decodes the body of any bytes, or an error into *error.  The body points into the
 * bytes. */
int pl_frame_decode(pl_bytes_t frame, pl_body_t *body, pl_error_t *error,
                    pl_error_t *err);

/* The same for bytes of another process.  Addresses are invalid there: PL_EPROTOCOL.
 * The body has no object; *transfer is the number of the transfer of the message's
 * object  [0: none].  PL_EPROTOCOL: a second object  [NULL: any object]. */
int pl_frame_decode_foreign(pl_bytes_t frame, pl_body_t *body, pl_error_t *error,
                            uint64_t *transfer, pl_error_t *err);

/* The same for kept bytes, whose objects may no longer exist: all objects are NULL. */
int pl_frame_decode_record(pl_bytes_t frame, pl_body_t *body, pl_error_t *error,
                           pl_error_t *err);

/* ---- Objects in flight: a frame has their numbers, so a forged or damaged frame
 * finds no object. ---- */

/* Puts a new reference of object into the table; -> its number, 0 for NULL or when memory
 * is out (*err says so). */
uint64_t pl_flight_enter(pl_object_t *object, pl_error_t *err);
/* The object of a number, borrowed from the table; NULL when there is none. */
pl_object_t *pl_flight_find(uint64_t number);
/* Takes the object out of the table and drops the table's reference. */
void pl_flight_leave(uint64_t number);
/* The number of objects in the table, for tests of leaks. */
int pl_flight_count(void);

/* The head of each message in a field of type MESSAGES; its fields follow, and as many
 * zeros as lead to a multiple of 8. */
typedef struct pl_message_head {
    uint16_t message;
    uint8_t kind, unused;                                   /* CALL or REPLY */
    uint32_t size;                                          /* of its fields */
} pl_message_head_t;

/* Visits the kind numbers of actors in a frame whose envelope was read: those of its
 * two actors and of addresses.  The visitor may change them, in bytes that the caller
 * owns. */
void pl_frame_kinds(pl_bytes_t frame, void (*visit)(void *user, uint32_t *number),
                    void *user);

/* The position of a message in the stream. */
typedef struct pl_stamp {
    uint64_t seq;                                         /* of the rank */
    int64_t time;                                         /* ns since the runtime began */
    int rank;
} pl_stamp_t;

#define PL_STREAM_VERSION \
    2                                     /* of those lines: grows when a key that is
                                             there changes, not when one is added */
#define PL_LINE_MIN 1024                  /* bytes of a line before its fields, at most */

/* The line of the stream (doc/messages.md) for a frame, without a newline; its length,
 * 0 if the bytes are no frame.  process_id: the process that numbered the call.  The
 * line is always valid JSON: a text that does not fit ends in "…", and a field that
 * does not fit or is malformed is left out. */
size_t pl_message_json(pl_bytes_t frame, const pl_stamp_t *stamp, uint32_t process_id,
                       char *text, size_t capacity);

/* The first object of a message in the struct of its kind  [NULL: it has none]. */
pl_object_t **pl_message_object(const pl_envelope_t *envelope, void *fields);

/* The offset of the next field of a type in its struct; moves *offset behind the
 * field. */
size_t pl_field_place(pl_field_type_t type, size_t *offset);
/* The section (call, progress, reply) of a kind; -1 for errors and cancels. */
int pl_section_of_kind(pl_kind_t kind);

/* Kinds of actors: a name and a level, with a number in the process.  The same pair
 * has the same number. */
uint32_t pl_kind_enter(const char *name, int level, pl_error_t *err);
const char *pl_kind_name(uint32_t kind);                    /* "?" when unknown */
int pl_kind_level(uint32_t kind);                           /* 0 when unknown */

#endif
