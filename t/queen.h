/* queen.h - what tests of connectors share: an actor that asks, a data set that
 * obeys */
#ifndef T_QUEEN_H
#define T_QUEEN_H

#include "runtime/actor.h"
#include "runtime/payload.h"

/* A call that was made, and its end. */
typedef struct asked {
    uint32_t message;
    uint64_t number;
    bool ended;
    pl_error_t error;                                       /* code 0: a reply came */
    pl_body_t body;                                         /* its fields; numbers only */
    char text[2048];                                        /* its first text */
    pl_object_t *object;                                    /* its object, counted */
} asked_t;

/* A reactor of the test's own thread, with two actors that make calls: a worker, and a
 * loop for the messages that workers do not send. */
void queen_open(void);
/* Ends the actors that are left, last made first, and frees the rest. */
void queen_close(void);
/* How many objects are on their way; counted after queen_close() too. */
int queen_in_flight(void);

/* Starts an actor; it lives until queen_end() or queen_close().  *life takes its end. */
pl_address_t queen_spawn(const pl_actor_ops_t *ops, const pl_start_t *start,
                         asked_t *life);
/* Asks it to end, and waits. */
void queen_end(asked_t *life);

/* Calls; *asked must stay until it has ended.  queen_cancel() asks the callee to end
 * it. */
void queen_ask(asked_t *asked, pl_address_t at, pl_message_t message, const void *fields);
void queen_cancel(const asked_t *asked);
/* Runs until a call has ended. */
void queen_wait(const asked_t *asked);
/* Both; what it gives lives until the next call of this function. */
asked_t *queen_call(pl_address_t at, pl_message_t message, const void *fields);
/* Runs for a moment, as long as something happens at once. */
void queen_turn(void);

/* A scene with the first, second, … request for memory failing, until none does.  It
 * opens the queen, calls scarce_fail(nth), makes its calls, calls scarce_stop(), closes
 * all, and says whether the calls went well.  Reports that there were more than `least`
 * requests, that no call fails without one, and that nothing stays behind. */
void queen_lacks_memory(bool (*scene)(int nth), int min);

/* ---- A data set that follows orders ---- */

/* {"name": "numbers", "samples": N, …}: x of sample k is k, noise what it drew. */
extern const pl_dataset_ops_t numbers_dataset;

typedef struct numbers_state {
    int opened, closed;                     /* atomic */
    int closed_elsewhere;                   /* on the test's own thread */
    int reads;                              /* samples asked for */
    int batches;                            /* calls of read() */
    char reported[PL_PREDICT + 1][256];     /* data info in the request, by stage  [""] */
} numbers_state_t;
extern numbers_state_t numbers_state;

/* Makes reads wait until so many may continue; -1: all. */
void numbers_allow(int reads);

/* A job for a run file's text; its stage is PL_TRAIN. */
pl_job_t *queen_job(const char *format, ...) PL_PRINTF(1, 2);

#endif
