/* callback.c - the callback connector: asks the run's callbacks
 *
 * Hooks are calls: the loop asks, what the callbacks wish comes back as the answer, and
 * the loop does it.  Callbacks are asked in the order of the run file. */
#include "actors/connectors/callback.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "runtime/cargo.h"

typedef struct hosted {
    pl_instance_t part;                                     /* pl_callback_ops_t */
    bool started;                                           /* or tried to */
    int64_t every_n_steps;
} hosted_t;

typedef struct callbacks {
    hosted_t *hosted;
    int count;
} callbacks_t;

static const char *const hook_names[] = {
#define PL_X(name, text, when) [PL_HOOK_##name] = text,
    PL_HOOKS(PL_X)
#undef PL_X
};

static const pl_callback_ops_t *ops_of(const hosted_t *hosted)
{
    return hosted->part.ops;
}

/* ---- The start ---- */

/* The error that a failed function of a callback stands for. */
static int callback_fail(const hosted_t *hosted, const char *where, const pl_error_t *why,
                         pl_error_t *err)
{
    return pl_fail(err, PL_EUSER, "callback \"%s\", %s: %s", ops_of(hosted)->name, where,
                   why->text[0] ? why->text : "it failed without saying why");
}

static int64_t steps_of(const hosted_t *hosted)
{
    const pl_callback_ops_t *ops = ops_of(hosted);
    int64_t steps = ops->every_n_steps ? ops->every_n_steps(hosted->part.self) : 1;
    return steps < 1 ? 1 : steps;
}

static int hosted_start(hosted_t *hosted, pl_error_t *err)
{
    const pl_callback_ops_t *ops = ops_of(hosted);
    pl_error_t why = {0};
    if (!ops->on)
        return pl_fail(err, PL_EUSER, "callback \"%s\": its table lacks on", ops->name);
    hosted->started = true;
    if (ops->start && ops->start(hosted->part.self, &why) != PL_OK)
        return callback_fail(hosted, "at its start", &why, err);
    hosted->every_n_steps = steps_of(hosted);
    return PL_OK;
}

static int callbacks_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    (void)call;
    callbacks_t *callbacks = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    int listed = pl_options_count(job->options, "callbacks");
    callbacks->hosted = pl_alloc_array((size_t)listed, sizeof *callbacks->hosted);
    if (!callbacks->hosted)
        return pl_no_memory(err);
    for (; callbacks->count < listed; callbacks->count++) {
        char path[32];
        snprintf(path, sizeof path, "callbacks.%d", callbacks->count);
        const pl_part_request_t request = {.role = "callback", .path = path};
        hosted_t *hosted = &callbacks->hosted[callbacks->count];
        int code = pl_options_part(job->options, &request, &hosted->part, err);
        if (code != PL_OK)
            return code;
    }
    for (int k = 0; k < callbacks->count; k++)
        if (hosted_start(&callbacks->hosted[k], err) != PL_OK)
            return err->code;
    pl_actor_ready(self);
    return PL_OK;
}

static void callbacks_release(void *self)
{
    callbacks_t *callbacks = self;
    for (int k = callbacks->count - 1; k >= 0; k--) {
        hosted_t *hosted = &callbacks->hosted[k];
        if (hosted->started && ops_of(hosted)->stop)
            ops_of(hosted)->stop(hosted->part.self);
        pl_instance_release(&hosted->part);
    }
    pl_free(callbacks->hosted);
}

/* ---- Interest ---- */

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* Steps at which at least every callback's own are met. */
static int callbacks_on_interest(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    (void)body, (void)err;
    const callbacks_t *callbacks = self;
    pl_interest_reply_t reply = {0};
    for (int k = 0; k < callbacks->count; k++) {
        const hosted_t *hosted = &callbacks->hosted[k];
        reply.points |= ops_of(hosted)->points;
        if (ops_of(hosted)->points & PL_AT(TRAIN_BATCH_END))
            reply.every_n_steps = common_divisor((uint64_t)hosted->every_n_steps,
                                                 reply.every_n_steps);
    }
    return pl_reply_interest(call, &reply);
}

/* ---- Hooks ---- */

static bool is_wanted(const hosted_t *hosted, const pl_hook_t point, uint64_t global_step)
{
    return (ops_of(hosted)->points & 1u << point)
           && (point != PL_HOOK_TRAIN_BATCH_END
               || global_step % (uint64_t)hosted->every_n_steps == 0);
}

/* What all callbacks together wish. */
typedef struct wishes {
    bool stop;
    double lr_factor;
    char reason[sizeof((pl_wish_t *)0)->reason + 64];
} wishes_t;

/* Adds what one callback wishes to what those before it did. */
static int wish_add(const hosted_t *hosted, const char *where, const pl_wish_t *wish,
                    wishes_t *all, pl_error_t *err)
{
    pl_error_t why;
    if (!isfinite(wish->lr_factor) || wish->lr_factor < 0) {
        pl_fail(&why, PL_EUSER,
                "it wants the learning rate times %g; 0 and more is "
                "possible",
                wish->lr_factor);
        return callback_fail(hosted, where, &why, err);
    }
    all->lr_factor *= wish->lr_factor;
    if (wish->stop && !all->stop)
        snprintf(all->reason, sizeof all->reason, "%.60s%s%.*s", ops_of(hosted)->name,
                 wish->reason[0] ? ": " : "", (int)sizeof wish->reason - 1, wish->reason);
    all->stop = all->stop || wish->stop;
    return PL_OK;
}

static int callbacks_on_hook(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    callbacks_t *callbacks = self;
    const pl_hook_t point = body->ask_callbacks.point;
    wishes_t all = {.lr_factor = 1};
    if (body->ask_callbacks.point >= PL_HOOK_COUNT)
        return pl_fail(err, PL_EINVAL, "there is no hook %u", body->ask_callbacks.point);
    const pl_ask_callbacks_t *asked = &body->ask_callbacks;
    const pl_hook_event_t event = {pl_actor_rank(self), asked->epoch, asked->global_step,
                                   asked->metrics};
    for (int k = 0; k < callbacks->count; k++) {
        hosted_t *hosted = &callbacks->hosted[k];
        pl_wish_t wish = {.lr_factor = 1};
        pl_error_t why = {0};
        if (!is_wanted(hosted, point, event.global_step))
            continue;
        if (ops_of(hosted)->on(hosted->part.self, point, &event, &wish, &why) != PL_OK)
            return callback_fail(hosted, hook_names[point], &why, err);
        int code = wish_add(hosted, hook_names[point], &wish, &all, err);
        if (code != PL_OK)
            return code;
    }
    const pl_ask_callbacks_reply_t reply = {all.stop, all.lr_factor, all.reason};
    return pl_reply_ask_callbacks(call, &reply);
}

static const pl_handler_t callbacks_handlers[] = {
    PL_ON(start, callbacks_on_start),
    PL_ON(interest, callbacks_on_interest),
    PL_ON(ask_callbacks, callbacks_on_hook),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_callback_connector = {
    .name = "connector.callback",
    .help = "asks the run's callbacks",
    .size = sizeof(callbacks_t),
    .level = PL_LEVEL_CONNECTOR,
    .handlers = callbacks_handlers,
    .release = callbacks_release,
};
