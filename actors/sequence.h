/* sequence.h - calls that an actor makes one after the other, as one table
 *
 * The table shows the whole order. A step either makes a call and waits for its reply, or
 * does its work at once, or does not apply. */
#ifndef PL_SEQUENCE_H
#define PL_SEQUENCE_H

#include "runtime/actor.h"

typedef struct pl_sequence_step {
    const char *what;            /* the actor waits for, in errors [as the step before] */
    /* Makes the call with `how` and returns its number. 0 without an error: there is
     * nothing to wait for. */
    uint64_t (*send)(void *self, pl_how_t how, pl_error_t *err);
    /* Uses the reply; an error ends the sequence  [nothing to do]. */
    int (*on_reply)(void *self, const pl_body_t *reply, pl_error_t *err);
    /* True: the sequence continues without the reply. Otherwise *error, which it may
     * change, ends the sequence  [it ends it]. */
    bool (*on_error)(void *self, pl_error_t *error);
    bool all_ranks;                         /* waits for the other ranks, */
    bool unlimited;                         /* each of which limits itself what it does */
    const void *argument;                   /* of send(), which several steps may share */
} pl_sequence_step_t;

typedef struct pl_sequence_ops {
    const pl_sequence_step_t *steps;                        /* up to one without send() */
    void (*begin_step)(void *self, const pl_sequence_step_t *step);  /* [nothing] */
    void (*on_progress)(void *self);                        /* of its call  [nothing] */
    void (*on_late)(void *self);                            /* a limit of its call has
                                                               passed; it stays open
                                                               [nothing] */
    void (*done)(void *self);
    void (*fail)(void *self, const pl_error_t *error);
} pl_sequence_ops_t;

/* Part of the actor; all zero: none runs. */
typedef struct pl_sequence {
    const pl_sequence_ops_t *ops;
    const pl_sequence_step_t *step;                         /* the current one  [none] */
    uint64_t call;                                          /* that it waits for */
} pl_sequence_t;

void pl_sequence_begin(pl_sequence_t *sequence, void *self, const pl_sequence_ops_t *ops);
/* Later answers are ignored; neither done() nor fail() is called. Also from send() and
 * on_reply(). */
void pl_sequence_end(pl_sequence_t *sequence);

#endif
