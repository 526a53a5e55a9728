/* hooks.h - how a loop runs the hooks of callbacks, and only those that callbacks use
 *
 * What they request comes back as the answer and is for the loop to do.  Where there are
 * several ranks only one has callbacks, and all get its answer. */
#ifndef PL_LOOPS_HOOKS_H
#define PL_LOOPS_HOOKS_H

#include <jansson.h>

#include "runtime/actor.h"

typedef struct pl_hooks {
    pl_address_t callback, logger;                /* logger: nobody in runs without */
    pl_address_t coordinator;                     /* whom ranks agree through  [nobody] */
    unsigned points;                              /* where they want to be asked */
    struct pl_hook_call *asked;                   /* questions under way */
} pl_hooks_t;

/* For the handlers of `start` and for release(). */
void pl_hooks_init(pl_hooks_t *hooks, void *self);
void pl_hooks_release(pl_hooks_t *hooks);

/* Asks where they want to be asked: the message `interest`. */
uint64_t pl_hooks_query(void *self, pl_hooks_t *hooks, pl_how_t how, pl_error_t *err);

/* Asks at msg->point with these metrics; -> the call's number, 0 with an error.  Where
 * nobody wants to be asked on_answer comes at once, with a request for nothing: 1. */
uint64_t pl_hooks_run(void *self, pl_hooks_t *hooks, pl_run_hook_t *msg,
                      const json_t *metrics, pl_how_t how, pl_error_t *err);

/* Logs the metrics that an answer requests, and puts them into the newest ones. */
int pl_hooks_log(void *self, const pl_hooks_t *hooks, const pl_run_hook_t *msg,
                 const pl_run_hook_reply_t *request, json_t *newest, pl_error_t *err);

/* Tells the strategy which parameters an answer requests to be trained no longer, or
 * again. */
int pl_hooks_freeze(void *self, pl_address_t strategy, const pl_run_hook_reply_t *request,
                    pl_error_t *err);

#endif
