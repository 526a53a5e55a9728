/* actor_rig.h - actors for tests of the runtime: bees that follow orders, bosses
 * with bees, a queen to act through */
#ifndef T_ACTOR_RIG_H
#define T_ACTOR_RIG_H

#include "runtime/actor.h"
#include "runtime/reactor.h"

/* A bee (connector) does at `save` what global_step says. */
enum {
    DO_REPLY = 0,
    DO_FAIL = 1,                                        /* "no honey" */
    DO_KEEP = 2,                                        /* answers when it is cancelled */
    DO_STICK = 3,                                       /* until rig_unstick() */
    DO_END = 4,                                         /* ends itself: "stung" */
    DO_PROGRESS = 5,                                    /* three times, then replies */
    DO_REPLY_AND_FAIL = 6,
    DO_END_AND_REPLY = 7,
    DO_LINGER = 8,                    /* 12 ms, until the replies before are counted, then
                                         replies */
    DO_FLOOD = 1000,                  /* so many less 1000 of progress, then replies */
};

typedef struct bee {
    pl_call_t *kept;
    bool hard;
    int asked;                                              /* times */
} bee_t;

/* Options of `start`: "fail", "hard" (fails to end in order: "sour honey"). */
extern const pl_actor_ops_t bee_ops, other_bee_ops;         /* named "a" and "b" */

/* A boss (evaluation loop) has a bee of each name, on its thread or, with the option
 * "own", on threads of theirs; they get its options.  At `evaluate` it makes one more
 * bee on a thread of its own, keeps the call, and tells the bee to do what global_step
 * says. */
extern const pl_actor_ops_t boss_ops;

/* A fit loop; counts the answers that it gets. */
typedef struct queen {
    int progress, replies, errors, late;
    int code;
    char text[PL_ERROR_TEXT], where[PL_ERROR_WHERE];      /* of the last error */
    int leave_at;                                         /* ends and lates to wait for */
} queen_t;

extern const pl_actor_ops_t queen_ops;

typedef struct rig {
    pl_runtime_t *runtime;
    pl_reactor_t *reactor;                                  /* the test's thread */
    queen_t *queen;
    char ended[64];                            /* names of bees in the order they ended */
} rig_t;

extern rig_t rig;
extern const pl_how_t rig_how;                        /* reports to the queen */
extern const pl_where_t rig_wheres[2];                /* on the same thread, on its own */
extern const char *const rig_where_names[2];

void rig_open(void);
void rig_open_launcher(void);                  /* its queen is a launcher */
void rig_close(void);                          /* ends the stream, too, if there is one */
uint64_t rig_spawn(const pl_actor_ops_t *ops, pl_where_t where, const char *options,
                   pl_address_t *at);
uint64_t rig_ask(pl_address_t at, uint64_t what);           /* `save` on a bee */
uint64_t rig_order(pl_address_t at, uint64_t what);         /* `evaluate` on a boss */
/* Runs until so many calls have ended or are late. */
void rig_wait(int answers);
/* Runs what is due now, without waiting. */
void rig_turn(void);
/* Lets stuck bees continue; no call waits for them any more. */
void rig_unstick(void);

#endif
