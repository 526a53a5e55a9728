/* actor.h - actors: a mailbox, a state and handlers, for authors of strategies,
 * accelerators, launchers
 *
 * An actor lives on one thread, in its reactor; its handlers are never interrupted by
 * each other and must not block. It may call actors of a lower level; the answer is any
 * number of progress messages and exactly one reply or error. A callee can only answer.
 * An actor's life is a call too: `start` stays open until the actor ends.
 *
 * `self` is the actor's own struct: ops->size bytes, zeroed, made and freed by the
 * runtime. */
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

/* Where an actor is.  All zero: nobody. */
typedef struct pl_address {
    uint32_t thread;                         /* whose reactor */
    uint32_t actor;                          /* unique in the process, never used again */
    uint32_t kind;                           /* gives name and level */
} pl_address_t;

#define PL_PEERS_MAX 12

/* Addresses by role: what an actor is told in `start`. */
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

/* ---- The table of an actor ---- */

/* A call that an actor has received and not yet ended. */
typedef struct pl_call pl_call_t;

typedef struct pl_handler {
    uint32_t message;
    /* Answer now, or later: keep `call` and return PL_OK.  An error returned fails the
     * call.  body is gone when the handler returns, but what its texts, bytes and handles
     * point to stays until the call ends. */
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
    PL_COMPONENT;                      /* the table must stay while such an actor lives */
    const char *role;                  /* in the stream role.name: "strategy.single" [the
                                          name alone] */
    int level;                         /* pl_level_t: what the actor may call and accept;
                                          messages.def lists it for each message */
    const pl_handler_t *handlers;      /* up to PL_HANDLERS_END; `start` among them */
    int credit;                        /* calls open at once; more are refused, PL_EBUSY,
                                          stops excepted  [64] */
    int devices_max;                   /* of a strategy or launcher: as many on a node
                                          [any number] */
    bool elastic;                      /* of a strategy: what a run comes to does not
                                          depend on how many ranks it has */
    bool independent_steps;            /* of a strategy: ranks take steps by themselves */
    bool global_batch_semantics;       /* of a strategy: a step is that of one process
                                          with all samples, and so runs of such ones go on
                                          from each other's checkpoints  [from its own] */
    bool remote_ranks;                 /* of a launcher: ranks are other processes, which
                                          know parts by name alone */
    bool in_process;                   /* of a launcher: a rank of it is a thread of the
                                          program that asked for the run */
    bool externally_started;           /* of a launcher: somebody else has started them,
                                          and says how many there are */
    /* Whose handlers take what these do not, and whose release() comes after this one's;
     * its struct is the first member of this one's  [nobody's] */
    const struct pl_actor_ops *base;
    /* The caller of an open call no longer wants it; end it soon, in your own way.  Of
     * `start`: the actor is to end; pl_actor_end() when ready  [other calls: let it end
     * by itself; start: pl_actor_end()] */
    void (*on_cancel)(void *self, pl_call_t *call);
    void (*release)(void *self);               /* before self is freed  [nothing to do] */
} pl_actor_ops_t;

/* A table that is `like` this one under the name of a part, which is the registry's; the
 * same for the same two, and there for ever: an actor that is stuck may outlive all that
 * knew it. NULL: PL_EBUSY. */
PL_API const pl_actor_ops_t *pl_actor_kind(const pl_actor_ops_t *like, const char *name,
                                           pl_error_t *err);

/* Which message a call is: for an actor that forwards calls of several. */
pl_message_t pl_call_message(const pl_call_t *call);

/* ---- Answering: what a callee can do ---- */

PL_API int pl_progress(pl_call_t *call, const void *fields);  /* use the typed ones
                                                                 below */
PL_API int pl_reply(pl_call_t *call, const void *fields);   /* the call is over and
                                                               `call` gone */
PL_API void pl_call_fail(pl_call_t *call, const pl_error_t *error);  /* the same */

/* ---- Calling ---- */

typedef enum pl_answer_kind {
    PL_ANSWER_PROGRESS,
    PL_ANSWER_REPLY,
    PL_ANSWER_ERROR,
    PL_ANSWER_LATE
} pl_answer_kind_t;

/* What comes back.  LATE: a limit has passed and the callee was sent a cancel; the call
 * is still open.  REPLY and ERROR are the last. */
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
    pl_on_answer_t on_answer;                       /* [nobody asks; errors are logged] */
    void *context;
    int total_ms;                           /* limit from now to the end [the limit of the
                                               call being handled] */
    int silence_ms;                         /* limit between signs of life  [none] */
} pl_how_t;

/* Calls `to` for the actor `self`; -> the call's number, or 0 with an error and no answer
 * to come. PL_EHIERARCHY: `to` is not of a lower level. */
PL_API uint64_t pl_call(void *self, pl_address_t to, pl_message_t message,
                        const void *fields, pl_how_t how, pl_error_t *err);

/* What the actor does from here on in this handler is for that call, an open one of its
 * own: calls have it as their cause, and its limit.  For who has several open; else it is
 * the call that is handled, or that another was made for whose answer is. */
PL_API void pl_actor_does(void *self, const pl_call_t *call);

/* Asks the callee to end a call soon; answers still come.  An unknown number is
 * ignored. */
PL_API void pl_cancel(void *self, uint64_t call);

/* Gives an open call up: its answer, should it come, is dropped and counted.  For callees
 * that are proven dead or fenced. */
PL_API void pl_abandon(void *self, uint64_t call);

/* The context of a call that this actor has made and that is still open, of those whose
 * answers go to that function: the k-th, the newest first  [NULL: there are fewer]. */
PL_API void *pl_open_call(void *self, pl_on_answer_t on_answer, int k);

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
    PL_AS_RANK_0 = 0                         /* on its own, as that rank; so are others */
} pl_where_t;

static inline pl_where_t pl_as_rank(int rank)
{
    return (pl_where_t)(PL_AS_RANK_0 + rank);
}

/* Makes an actor of a lower level and calls its `start`; -> the call's number; *at is its
 * address from now on. The call's end is the child's end. */
PL_API uint64_t pl_spawn(void *self, const pl_actor_ops_t *ops, pl_where_t where,
                         const pl_start_t *start, pl_how_t how, pl_address_t *at,
                         pl_error_t *err);

/* Says that `start` went well: sends its progress "ready". */
PL_API void pl_actor_ready(void *self);
/* The same of one that joins those of other ranks: what they must be told in join. */
PL_API void pl_actor_ready_at(void *self, const char *address);

/* Whether a call is this actor's own `start`: what on_cancel() asks first. */
PL_API bool pl_is_life(void *self, const pl_call_t *call);
/* Of a call that is cancelled: a limit has passed, here or further up; else nobody wants
 * its answer any more. */
bool pl_is_late(const pl_call_t *call);

/* Ends this actor in order: refuses new calls, ends its children (last made first), fails
 * the calls still open here, then answers its `start`: with a reply, or with the error
 * unless that is NULL.  Asynchronous; calling it twice is fine. */
PL_API void pl_actor_end(void *self, const pl_error_t *error);

/* The address this actor was told for a role; nobody when it was not. */
PL_API pl_address_t pl_peer(void *self, const char *role);
/* Nothing has gone on for so long: actors on other threads that have owed somebody on
 * this one an answer for that time are taken for stuck; when they are asked to end,
 * little more is waited for them. */
PL_API void pl_actor_suspect(void *self, int milliseconds);
/* Whether a thread of this engine was given up as stuck: what it holds is kept, and new
 * work is to be refused. */
PL_API bool pl_actor_sees_stuck(void *self);
PL_API bool pl_is_nobody(pl_address_t at);
PL_API const char *pl_actor_name(void *self);
PL_API int pl_actor_rank(void *self);                       /* -1 on the control thread */
/* What all threads of its engine share: runtime/runtime.h. */
PL_API struct pl_runtime *pl_actor_runtime(void *self);

/* Calls back once, after a time, on the actor's thread, unless the actor ended.  One per
 * function and actor: asking again moves it. */
PL_API int pl_after(void *self, int milliseconds, void (*then)(void *self),
                    pl_error_t *err);

/* pl_now() of when this thread's timers came in time again: the process was stopped
 * before, or the machine slept, and who waits for somebody counts from then.  0: they
 * always did. */
PL_API int64_t pl_actor_awake_since(void *self);

/* Calls back on the actor's thread whenever fd can be read, until the actor has ended; fd
 * stays open until its release(). */
PL_API int pl_watch(void *self, int fd, void (*then)(void *self), pl_error_t *err);

/* The loop of the actor's thread, for what else is to live there, such as links and
 * processes: they must be gone when release() returns, and what they tell is handled as
 * if a timer had fired. */
struct pl_sockets;
PL_API struct pl_sockets *pl_actor_loop(void *self);

/* This actor's thread, and those that are started from it from now on, stay on this
 * rank's part of the processors that it may use, of so many ranks on this machine; where
 * there are fewer processors than ranks nothing changes. */
PL_API void pl_actor_take_share(void *self, int ranks);

/* This actor's thread computes: threads that pass messages keep off its processor. */
PL_API void pl_actor_computes(void *self);

#ifdef __cplusplus
}
#endif

#endif
