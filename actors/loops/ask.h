/* ask.h - how a loop asks the callbacks: only where one of them wants to be asked
 *
 * What they wish comes back as the answer and is for the loop to do.  Where there are
 * several ranks only one has callbacks, and all get its answer. */
#ifndef PL_LOOPS_ASK_H
#define PL_LOOPS_ASK_H

#include <jansson.h>

#include "runtime/actor.h"

typedef struct pl_asking {
    pl_address_t callback, logger;                /* logger: nobody in runs without */
    pl_address_t agreement;                       /* whom ranks agree through  [nobody] */
    unsigned points;                              /* where they want to be asked */
    struct pl_asked *asked;                       /* questions under way */
} pl_asking_t;

/* For the handlers of `start` and for release(). */
void pl_asking_init(pl_asking_t *asking, void *self);
void pl_asking_release(pl_asking_t *asking);

/* Asks where they want to be asked: the message `interest`. */
uint64_t pl_ask_interest(void *self, pl_asking_t *asking, pl_on_answer_t then,
                         pl_error_t *err);

/* Asks at msg->point with these figures; -> the call's number, 0 with an error.  Where
 * nobody wants to be asked on_answer comes at once, with a wish for nothing: 1. */
uint64_t pl_ask(void *self, pl_asking_t *asking, pl_ask_callbacks_t *msg,
                const json_t *metrics, pl_how_t how, pl_error_t *err);

/* Logs the figures that an answer wishes for, and puts them into the newest ones. */
int pl_ask_log(void *self, const pl_asking_t *asking, const pl_ask_callbacks_t *msg,
               const pl_ask_callbacks_reply_t *wish, json_t *newest, pl_error_t *err);

/* Tells the strategy which parameters an answer wishes to be trained no longer, or
 * again. */
int pl_ask_freeze(void *self, pl_address_t strategy, const pl_ask_callbacks_reply_t *wish,
                  pl_error_t *err);

#endif
