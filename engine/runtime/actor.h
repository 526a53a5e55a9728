/* actor.h - actors: a mailbox, a state and handlers, for authors of strategies,
 * accelerators, launchers
 *
 * An actor lives on one thread, in its reactor.  Its handlers never interrupt each
 * other and must not block.  It may call actors of a lower level; the answer is any
 * number of progress messages and exactly one reply or error.  A callee can only
 * answer.  The life of an actor is a call too: `start` stays open until the actor
 * ends.
 *
 * `self` is the actor's own struct: ops->size bytes, zeroed; the runtime allocates and
 * frees it. */
#ifndef PL_RUNTIME_ACTOR_H
#define PL_RUNTIME_ACTOR_H

#include "base/bytes.h"
#include "base/counted.h"
#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Levels ---- */

typedef enum pl_level {
#define PL_LEVEL(name, height, what) PL_LEVEL_##name = height,
#include "messages/levels.def"
} pl_level_t;

/* ---- Addresses ---- */

/* Where an actor is.  All zero: no actor. */
typedef struct pl_address {
    uint32_t thread;                         /* of its reactor */
    uint32_t actor;                          /* unique in the process, never used again */
    uint32_t kind;                           /* gives name and level */
} pl_address_t;

#define PL_PEERS_MAX 12

/* Addresses by role, which an actor receives in `start`. */
typedef struct pl_peers {
    uint32_t count;
    struct {
        char role[20];                                      /* "strategy" */
        pl_address_t at;
    } peer[PL_PEERS_MAX];
} pl_peers_t;

PL_API void pl_peers_add(pl_peers_t *peers, const char *role, pl_address_t at);

/* ---- Messages: enums from enums.def, structs from messages.def ---- */

#define PL_ENUM_BEGIN(type, help) \
    typedef enum pl_##type \
    {
#define PL_ENUM_VALUE(constant, name, help) PL_##constant,
#define PL_ENUM_END(type) \
    } \
    pl_##type##_t;
#include "messages/enums.def"

/* The name of each value, up to a NULL; the value of a name, -1: none. */
#define PL_ENUM_END(type) PL_API extern const char *const pl_##type##_names[];
#include "messages/enums.def"
PL_API int pl_enum_find(const char *const *names, const char *name);

#define PL_U32(name, help) uint32_t name;
#define PL_U64(name, help) uint64_t name;
#define PL_F64(name, help) double name;
#define PL_FLAG(name, help) uint32_t name;
#define PL_ENUM(type, name, help) pl_##type##_t name;
#define PL_STRING(name, help) const char *name;
#define PL_DATA(name, help) pl_bytes_t name;
#define PL_MESSAGES(name, help) pl_bytes_t name;
#define PL_HANDLE(name, help) pl_object_t *name;
#define PL_PEERS(name, help) pl_peers_t name;
#define PL_NONE() uint32_t none;
#define PL_CALL(name, number, from, to, help) typedef struct pl_##name {
#define PL_PROGRESS(name) \
    } \
    pl_##name##_t; \
    typedef struct pl_##name##_progress {
#define PL_REPLY(name) \
    } \
    pl_##name##_progress_t; \
    typedef struct pl_##name##_reply {
#define PL_END(name) \
    } \
    pl_##name##_reply_t;
#include "messages/messages.def"

typedef enum pl_message {
#define PL_CALL(name, number, from, to, help) PL_MESSAGE_##name = number,
#include "messages/messages.def"
} pl_message_t;

/* The fields of any message, after decoding.  Texts, bytes and handles are borrowed from
 * the message. */
typedef union pl_body {
#define PL_CALL(name, number, from, to, help) \
    pl_##name##_t name; \
    pl_##name##_progress_t name##_progress; \
    pl_##name##_reply_t name##_reply;
#include "messages/messages.def"
} pl_body_t;

/* ---- Messages within a message: fields of type MESSAGES ---- */

/* Calls and replies, one behind the other.  All zero: none. */
typedef struct pl_messages {
    unsigned char *data;
    size_t size, capacity;
} pl_messages_t;

/* Appends a call or a reply; fields is its struct.  It may have no objects and no peers:
 * they mean nothing in another process. */
PL_API int pl_messages_add(pl_messages_t *messages, pl_message_t message, bool is_reply,
                           const void *fields, pl_error_t *err);
PL_API void pl_messages_release(pl_messages_t *messages);
/* As the value of a field. */
PL_API pl_bytes_t pl_messages_bytes(const pl_messages_t *messages);

/* Takes the first message off a list; the body points into its bytes.  PL_EPROTOCOL: it
 * is none of these, or malformed. */
PL_API int pl_messages_take(pl_bytes_t *list, pl_message_t *message, bool *is_reply,
                            pl_body_t *body, pl_error_t *err);

/* ---- The table of an actor ---- */

/* A received call that has not ended. */
typedef struct pl_call pl_call_t;

typedef struct pl_handler {
    uint32_t message;
    /* Answers the call, or keeps it and returns PL_OK, to answer later.  A returned error
     * fails the call.  body is valid during the handler; its texts, bytes and objects are
     * valid until the call ends. */
    int (*on_call)(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
} pl_handler_t;

#define PL_ON(name, function) \
    { \
        PL_MESSAGE_##name, function \
    }
#define PL_HANDLERS_END \
    { \
        0, NULL \
    }

typedef struct pl_actor_ops {
    PL_COMPONENT;                  /* the table must outlive its actors */
    const char *role;              /* the stream has role.name: "strategy.single"
                                      [the name alone] */
    int level;                     /* pl_level_t: what the actor may call and accept;
                                      messages.def lists it for each message */
    const pl_handler_t *handlers;  /* up to PL_HANDLERS_END; `start` among them */
    int credit;                    /* limit of open calls; further calls fail with
                                      PL_EBUSY, except `stop`  [64] */
    int devices_max;               /* of a strategy or launcher: limit of devices on a
                                      node  [no limit] */
    bool elastic;                  /* of a strategy: the result of a run does not
                                      depend on the number of ranks */
    bool independent_steps;        /* of a strategy: ranks take steps by themselves */
    bool global_batch_semantics;   /* of a strategy: a step equals a step of one
                                      process with all samples, so runs of such strategies
                                      resume from each other's checkpoints  [only from
                                      its own] */
    bool remote_ranks;             /* of a launcher: ranks are processes that do not run
                                      the program: they find components by name only */
    bool in_process;               /* of a launcher: one of its ranks is a thread of
                                      the program that requested the run */
    bool externally_started;       /* of a launcher: another program starts the ranks
                                      and sets their number */
    /* The table whose handlers take the messages that these do not, and whose release()
     * follows this one's; its struct is the first member of this one's  [no table] */
    const struct pl_actor_ops *base;
    /* The caller has cancelled an open call: end it soon.  If the call is `start`, the
     * actor ends: call pl_actor_end() when it is ready  [other calls: they end by
     * themselves; start: pl_actor_end()] */
    void (*on_cancel)(void *self, pl_call_t *call);
    void (*release)(void *self);                     /* before self is freed  [nothing] */
} pl_actor_ops_t;

/* A copy of the table `like` with the name of a component, which the registry owns.  The
 * same arguments return the same table.  It is never freed, because a stuck actor may
 * outlive everything else.  NULL: PL_EBUSY. */
PL_API const pl_actor_ops_t *pl_actor_kind(const pl_actor_ops_t *like, const char *name,
                                           pl_error_t *err);

/* The message of a call, for an actor that forwards calls of several messages. */
pl_message_t pl_call_message(const pl_call_t *call);

/* ---- Answering ---- */

/* Use the typed functions below.  A reply and an error end the call and free it. */
PL_API int pl_progress(pl_call_t *call, const void *fields);
PL_API int pl_reply(pl_call_t *call, const void *fields);
PL_API void pl_call_fail(pl_call_t *call, const pl_error_t *error);

/* ---- Calling ---- */

typedef enum pl_answer_kind {
    PL_ANSWER_PROGRESS,
    PL_ANSWER_REPLY,
    PL_ANSWER_ERROR,
    PL_ANSWER_LATE
} pl_answer_kind_t;

/* LATE: a limit has passed and the runtime has sent a cancel to the callee; the call is
 * still open.  REPLY and ERROR end the call. */
typedef struct pl_answer {
    pl_answer_kind_t kind;
    uint64_t call;
    void *context;                                          /* as given with the call */
    const pl_body_t *body;                                  /* PROGRESS, REPLY */
    const pl_error_t *error;                                /* ERROR, LATE */
} pl_answer_t;

typedef void (*pl_on_answer_t)(void *self, const pl_answer_t *answer);

/* How a call is made. */
typedef struct pl_how {
    pl_on_answer_t on_answer;                           /* [nothing; errors are logged] */
    void *context;
    int total_ms;                           /* limit from now to the end [the limit of the
                                               call being handled] */
    int silence_ms;                         /* limit between signs of life  [none] */
} pl_how_t;

/* Calls `to` for the actor `self`; -> the number of the call, or 0 with an error and
 * without an answer.  PL_EHIERARCHY: `to` is not of a lower level, or the message is
 * not for calls from this level. */
PL_API uint64_t pl_call(void *self, pl_address_t to, pl_message_t message,
                        const void *fields, pl_how_t how, pl_error_t *err);

/* Sets the cause of all calls that the actor makes from here on in this handler, and
 * their limit, to an open call that it has received.  For actors with several open
 * calls; by default the cause is the handled call, or the cause of the call whose
 * answer is handled. */
PL_API void pl_actor_does(void *self, const pl_call_t *call);

/* Asks the callee to end a call soon; answers still come.  An unknown number is
 * ignored. */
PL_API void pl_cancel(void *self, uint64_t call);

/* Abandons an open call: its answer is dropped and counted.  For callees that are
 * known to be dead or fenced. */
PL_API void pl_abandon(void *self, uint64_t call);

/* Gives the context of an open call to the call: pl_free() frees it when the call has
 * ended, behind its answer or without one, because an actor or the engine ends. */
PL_API void pl_give_context(void *self, uint64_t call);

#define PL_CALL(name, number, from, to, help) \
    static inline uint64_t pl_call_##name(void *self, pl_address_t at, \
                                          const pl_##name##_t *fields, pl_how_t how, \
                                          pl_error_t *err) \
    { \
        return pl_call(self, at, PL_MESSAGE_##name, fields, how, err); \
    } \
    static inline int pl_progress_##name(pl_call_t *call, \
                                         const pl_##name##_progress_t *fields) \
    { \
        return pl_progress(call, fields); \
    } \
    static inline int pl_reply_##name(pl_call_t *call, \
                                      const pl_##name##_reply_t *fields) \
    { \
        return pl_reply(call, fields); \
    }
#include "messages/messages.def"

/* ---- Life ---- */

/* Where a child runs. */
typedef enum pl_where {
    PL_SAME_THREAD = -2,
    PL_OWN_THREAD = -1,
    PL_AS_RANK_0 = 0                     /* on its own, as rank 0; pl_as_rank(): others */
} pl_where_t;

static inline pl_where_t pl_as_rank(int rank)
{
    return (pl_where_t)(PL_AS_RANK_0 + rank);
}

/* Creates an actor of a lower level and calls its `start`; -> the number of that call;
 * sets *at to the child's address.  The end of the call is the end of the child. */
PL_API uint64_t pl_spawn(void *self, const pl_actor_ops_t *ops, pl_where_t where,
                         const pl_start_t *start, pl_how_t how, pl_address_t *at,
                         pl_error_t *err);

/* Reports that the actor is ready, which one without a handler of `start` is at once. */
PL_API void pl_actor_ready(void *self);
/* The same, with the address that actors of other ranks need for `join`. */
PL_API void pl_actor_ready_at(void *self, const char *address);

/* Whether a call is this actor's own `start`; for on_cancel(). */
PL_API bool pl_is_life(void *self, const pl_call_t *call);
/* Whether a cancelled call was cancelled because a limit has passed, of this call or one
 * above it; otherwise its answer is no longer needed. */
bool pl_is_late(const pl_call_t *call);

/* Ends this actor in order: refuses new calls, ends its children (the newest first),
 * fails its open calls, then answers its `start`: with the error  [NULL: with a
 * reply]. Asynchronous; a second call has no effect. */
PL_API void pl_actor_end(void *self, const pl_error_t *error);

/* The address that this actor received for a role; all zero: none. */
PL_API pl_address_t pl_peer(void *self, const char *role);
/* Suspects actors on other threads that have not answered a call of this thread for that
 * time: when they have to end, they get only a short grace period. */
PL_API void pl_actor_suspect(void *self, int milliseconds);
/* Whether a thread of this engine was abandoned as stuck: its memory is kept, and new
 * work must be refused. */
PL_API bool pl_actor_sees_stuck(void *self);
PL_API bool pl_is_nobody(pl_address_t at);
PL_API const char *pl_actor_name(void *self);
PL_API int pl_actor_rank(void *self);                       /* -1 on the control thread */
/* The data that all threads of its engine share: runtime/runtime.h. */
PL_API struct pl_runtime *pl_actor_runtime(void *self);

/* Calls then() once, after a time, on the actor's thread, unless the actor has ended.  An
 * actor has one timer for each function: a second call moves it. */
PL_API int pl_after(void *self, int milliseconds, void (*then)(void *self),
                    pl_error_t *err);

/* pl_now() when this thread's timers fired in time again after the process was stopped or
 * the machine slept: waiting times count from then.  0: they were never late. */
PL_API int64_t pl_actor_awake_since(void *self);

/* Calls then() on the actor's thread whenever fd can be read, until the actor has
 * ended; fd must stay open until its release(). */
PL_API int pl_watch(void *self, int fd, void (*then)(void *self), pl_error_t *err);

/* The loop of the actor's thread, for other things on it, such as links and processes.
 * They must be freed before release() returns.  Their callbacks count as timers of the
 * actor. */
struct pl_sockets;
PL_API struct pl_sockets *pl_actor_loop(void *self);

/* Keeps this actor's thread, and threads that it starts from now on, on the share of this
 * rank of the processors, for `ranks` ranks on this machine.  With fewer processors than
 * ranks it changes nothing. */
PL_API void pl_actor_take_share(void *self, int ranks);

/* This actor's thread computes: threads that pass messages avoid its processor. */
PL_API void pl_actor_computes(void *self);

#ifdef __cplusplus
}
#endif

#endif
