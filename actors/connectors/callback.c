/* callback.c - the callback connector: asks the run's callbacks
 *
 * Hooks are calls: the loop asks, what the callbacks wish comes back as the answer, and
 * the loop does it.  Callbacks are asked in the order of the run file. */
#include "actors/connectors/callback.h"

#include <stdio.h>
#include <string.h>

#include "actors/connectors/wishes.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
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
#define PL_X(name, text, may, when) [PL_HOOK_##name] = text,
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
    return steps < 0 ? 1 : steps;
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
               || (hosted->every_n_steps
                   && global_step % (uint64_t)hosted->every_n_steps == 0));
}

/* Asks one callback, when the point is its own. */
static int hosted_ask(hosted_t *hosted, pl_hook_t point, const pl_hook_event_t *event,
                      pl_wishes_t *all, pl_error_t *err)
{
    const pl_callback_ops_t *ops = ops_of(hosted);
    pl_wish_t wish = pl_wishes_new(all);
    pl_error_t why = {0};
    if (!is_wanted(hosted, point, event->global_step))
        return PL_OK;
    if (ops->on(hosted->part.self, point, event, &wish, &why) != PL_OK
        || pl_wishes_add(all, ops->name, point, &wish, &why) != PL_OK)
        return callback_fail(hosted, hook_names[point], &why, err);
    return PL_OK;
}

static int callbacks_answer(pl_call_t *call, const pl_wishes_t *all, pl_error_t *err)
{
    const json_t *figures = all->figures.object;
    char *text = figures ? pl_json_write(figures, PL_JSON_COMPACT) : NULL;
    if (figures && !text)
        return pl_no_memory(err);
    const pl_ask_callbacks_reply_t reply = {.stop = all->stop,
                                            .lr_factor = all->lr_factor,
                                            .figures = text ? text : "",
                                            .save = all->wanted.save,
                                            .drop = all->wanted.drop,
                                            .reason = all->reason};
    int code = pl_reply_ask_callbacks(call, &reply);
    pl_free(text);
    return code;
}

static int callbacks_on_hook(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    callbacks_t *callbacks = self;
    const pl_ask_callbacks_t *asked = &body->ask_callbacks;
    pl_wishes_t all;
    int code = PL_OK;
    if (asked->point >= PL_HOOK_COUNT)
        return pl_fail(err, PL_EINVAL, "there is no hook %u", asked->point);
    const pl_hook_event_t event = {.rank = pl_actor_rank(self),
                                   .epoch = asked->epoch,
                                   .global_step = asked->global_step,
                                   .total_steps = asked->total_steps,
                                   .batch = asked->batch,
                                   .batches = asked->batches,
                                   .samples = asked->samples,
                                   .metrics = asked->metrics,
                                   .error = asked->error};
    pl_wishes_begin(&all);
    for (int k = 0; k < callbacks->count && code == PL_OK; k++)
        code = hosted_ask(&callbacks->hosted[k], asked->point, &event, &all, err);
    if (code == PL_OK)
        code = callbacks_answer(call, &all, err);
    pl_wishes_end(&all);
    return code;
}

/* ---- State ---- */

static int hosted_keep(const hosted_t *hosted, json_t *all, pl_error_t *err)
{
    const pl_callback_ops_t *ops = ops_of(hosted);
    pl_error_t why = {0};
    char *text = ops->state ? ops->state(hosted->part.self, &why) : NULL;
    if (ops->state && !text)
        return callback_fail(hosted, "asked for its state", &why, err);
    json_t *entry = json_pack("{s:s, s:s}", "name", ops->name, "state", text ? text : "");
    pl_text_free(text);
    return json_array_append_new(all, entry) == 0 ? PL_OK : pl_no_memory(err);
}

/* Of all, in their order. */
static int callbacks_on_get_state(void *self, pl_call_t *call, const pl_body_t *body,
                                  pl_error_t *err)
{
    (void)body;
    const callbacks_t *callbacks = self;
    json_t *all = json_array();
    int code = all ? PL_OK : pl_no_memory(err);
    for (int k = 0; k < callbacks->count && code == PL_OK; k++)
        code = hosted_keep(&callbacks->hosted[k], all, err);
    char *text = code == PL_OK ? pl_json_write(all, PL_JSON_COMPACT) : NULL;
    json_decref(all);
    if (code == PL_OK && !text)
        return pl_no_memory(err);
    if (code == PL_OK)
        code = pl_reply_get_state(call, &(pl_get_state_reply_t){.state = text});
    pl_text_free(text);
    return code;
}

static int hosted_restore(hosted_t *hosted, const char *state, pl_error_t *err)
{
    pl_error_t why = {0};
    if (!*state || !ops_of(hosted)->restore
        || ops_of(hosted)->restore(hosted->part.self, state, &why) == PL_OK)
        return PL_OK;
    return callback_fail(hosted, "given its state", &why, err);
}

/* The n-th of a name gets what the n-th of that name kept: others may have come or
 * gone. */
static const char *state_of(const callbacks_t *callbacks, int k, const json_t *all)
{
    const char *name = ops_of(&callbacks->hosted[k])->name;
    size_t at;
    json_t *entry;
    int before = 0;
    for (int i = 0; i < k; i++)
        before += !strcmp(ops_of(&callbacks->hosted[i])->name, name);
    json_array_foreach(all, at, entry)
    {
        const char *of = json_string_value(json_object_get(entry, "name"));
        const char *state = json_string_value(json_object_get(entry, "state"));
        if (of && state && !strcmp(of, name) && before-- == 0)
            return state;
    }
    return "";
}

static int callbacks_on_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                                  pl_error_t *err)
{
    callbacks_t *callbacks = self;
    const char *text = body->set_state.state;
    json_t *all = *text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    int code = PL_OK;
    if (*text && !all)
        code = pl_fail(err, PL_EFORMAT, "the state of the callbacks is no JSON");
    for (int k = 0; k < callbacks->count && code == PL_OK; k++)
        code = hosted_restore(&callbacks->hosted[k], state_of(callbacks, k, all), err);
    json_decref(all);
    return code == PL_OK ? pl_reply_set_state(call, &(pl_set_state_reply_t){0}) : code;
}

static const pl_handler_t callbacks_handlers[] = {
    PL_ON(start, callbacks_on_start),         PL_ON(interest, callbacks_on_interest),
    PL_ON(ask_callbacks, callbacks_on_hook),  PL_ON(get_state, callbacks_on_get_state),
    PL_ON(set_state, callbacks_on_set_state), PL_HANDLERS_END,
};

const pl_actor_ops_t pl_callback_connector = {
    .name = "connector.callback",
    .help = "asks the run's callbacks",
    .size = sizeof(callbacks_t),
    .level = PL_LEVEL_CONNECTOR,
    .handlers = callbacks_handlers,
    .release = callbacks_release,
};
