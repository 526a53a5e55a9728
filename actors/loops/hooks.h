/* hooks.h - how a loop runs the hooks of callbacks, and only those that callbacks use
 *
 * The answer has the requests of the callbacks; the loop carries them out.  With several
 * ranks only one has callbacks, and all ranks get its answer. */
#ifndef PL_LOOPS_HOOKS_H
#define PL_LOOPS_HOOKS_H

#include <jansson.h>

#include "actors/intervals.h"
#include "runtime/actor.h"

typedef struct pl_hooks {
    pl_address_t callback, logger;                      /* logger: [none] */
    pl_address_t coordinator;                           /* of the ranks  [one rank] */
    unsigned points;                                    /* the hooks that callbacks use */
    struct pl_hook_call *calls;                         /* in flight, of several ranks */
} pl_hooks_t;

/* For the handlers of `start` and for release(). */
void pl_hooks_init(pl_hooks_t *hooks, void *self);
void pl_hooks_release(pl_hooks_t *hooks);

/* Asks which hooks the callbacks use: the message `callback_hooks`. */
uint64_t pl_hooks_query(void *self, pl_hooks_t *hooks, pl_how_t how, pl_error_t *err);

/* Runs the hook msg->point with these metrics; returns the call's number, 0 with an
 * error.  If no callback uses the hook, on_answer is called at once with an empty
 * request, and the result is 1. */
uint64_t pl_hooks_run(void *self, pl_hooks_t *hooks, pl_run_hook_t *msg,
                      const json_t *metrics, pl_how_t how, pl_error_t *err);

/* Logs the metrics of an answer, and puts them into the newest ones. */
int pl_hooks_log(void *self, const pl_hooks_t *hooks, const pl_run_hook_t *msg,
                 const pl_run_hook_reply_t *request, json_t *newest, pl_error_t *err);

/* Sends the parameters that an answer freezes or unfreezes to the strategy. */
int pl_hooks_freeze(void *self, pl_address_t strategy, const pl_run_hook_reply_t *request,
                    pl_error_t *err);

#endif
