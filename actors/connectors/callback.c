/* callback.c - the callback connector: asks the run's callbacks
 *
 * Hooks are calls: the loop asks, the requests of the callbacks are the answer, and
 * the loop does it.  Callbacks are asked in the order of the run file. */
#include "actors/connectors/connectors.h"

#include <stdio.h>
#include <string.h>

#include "actors/connectors/callback_requests.h"
#include "actors/intervals.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"
#include "runtime/payload.h"

typedef struct hosted {
    pl_instance_t component;                                /* pl_callback_ops_t */
    bool started;                                           /* or tried to */
    int64_t every_n_steps;
} hosted_t;

typedef struct callbacks {
    char *model;                            /* what is trained, JSON  [NULL: not known] */
    double device_flops;                    /* 0: not known */
    pl_device_stats_t device;
    bool has_device;                                        /* it was measured */
    bool validates;                                         /* the run */
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
    return hosted->component.ops;
}

/* ---- The start ---- */

/* The error that a failed function of a callback stands for. */
static int callback_fail(const hosted_t *hosted, const char *where, const pl_error_t *why,
                         pl_error_t *err)
{
    return pl_fail(err, why->code == PL_ENOMEM ? PL_ENOMEM : PL_EUSER,
                   "callback \"%s\", %s: %s", ops_of(hosted)->name, where,
                   why->text[0] ? why->text : "it failed without an error text");
}

static int64_t steps_of(const hosted_t *hosted)
{
    const pl_callback_ops_t *ops = ops_of(hosted);
    int64_t steps = ops->every_n_steps ? ops->every_n_steps(hosted->component.self) : 1;
    return steps < 0 ? 1 : steps;
}

static int hosted_start(hosted_t *hosted, pl_error_t *err)
{
    const pl_callback_ops_t *ops = ops_of(hosted);
    pl_error_t why = {0};
    if (!ops->on)
        return pl_fail(err, PL_EUSER, "callback \"%s\": its table lacks on", ops->name);
    hosted->started = true;
    if (ops->start && ops->start(hosted->component.self, &why) != PL_OK)
        return callback_fail(hosted, "in start()", &why, err);
    hosted->every_n_steps = steps_of(hosted);
    return PL_OK;
}

/* Callbacks that need not be listed: an option of the trainer has them. */
static const struct {
    const char *name, *key;
    size_t option;
} usual[] = {
    {"model_summary", "trainer.enable_model_summary",
     offsetof(pl_trainer_options_t, enable_model_summary)},
    {"model_checkpoint", "trainer.enable_checkpointing",
     offsetof(pl_trainer_options_t, enable_checkpointing)},
};
enum { USUAL = sizeof usual / sizeof *usual };

static bool is_listed(const pl_options_t *options, int listed, const char *name)
{
    char path[32];
    for (int k = 0; k < listed; k++) {
        snprintf(path, sizeof path, "callbacks.%d", k);
        if (!strcmp(pl_options_choice(options, path, ""), name))
            return true;
    }
    return false;
}

/* The next one, given in the run or by its name alone. */
static int hosted_add(callbacks_t *callbacks, const pl_options_t *options,
                      const char *automatic, pl_error_t *err)
{
    char path[32];
    snprintf(path, sizeof path, "callbacks.%d", callbacks->count);
    const pl_component_request_t request = {.role = "callback",
                                            .path = path,
                                            .automatic = automatic};
    int code = pl_options_component(options, &request,
                                    &callbacks->hosted[callbacks->count].component, err);
    callbacks->count += code == PL_OK;
    return code;
}

static int usual_refuse(const pl_options_t *options, int k, pl_error_t *err)
{
    return pl_options_fail(err, PL_EINVAL, options, usual[k].key,
                           "\"%s\" is listed, but \"%s\" is false: remove one of them",
                           usual[k].name, usual[k].key);
}

static int usual_add(callbacks_t *callbacks, const pl_job_t *job, int listed,
                     pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < USUAL && code == PL_OK; k++) {
        bool wanted = *(const bool *)((const char *)job->trainer + usual[k].option);
        bool given = is_listed(job->options, listed, usual[k].name);
        if (given && !wanted)
            code = usual_refuse(job->options, k, err);
        else if (wanted && !given)
            code = hosted_add(callbacks, job->options, usual[k].name, err);
    }
    return code;
}

static int callbacks_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    (void)call;
    callbacks_t *callbacks = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    int listed = pl_options_count(job->options, "callbacks"), code = PL_OK;
    callbacks->hosted = pl_alloc_array((size_t)listed + USUAL, sizeof *callbacks->hosted);
    if (!callbacks->hosted)
        return pl_no_memory(err);
    while (callbacks->count < listed && code == PL_OK)
        code = hosted_add(callbacks, job->options, NULL, err);
    if (code == PL_OK)
        code = usual_add(callbacks, job, listed, err);
    for (int k = 0; k < callbacks->count && code == PL_OK; k++)
        code = hosted_start(&callbacks->hosted[k], err);
    if (code == PL_OK)
        pl_actor_ready(self);
    return code;
}

static void callbacks_release(void *self)
{
    callbacks_t *callbacks = self;
    for (int k = callbacks->count - 1; k >= 0; k--) {
        hosted_t *hosted = &callbacks->hosted[k];
        if (hosted->started && ops_of(hosted)->stop)
            ops_of(hosted)->stop(hosted->component.self);
        pl_instance_release(&hosted->component);
    }
    pl_free(callbacks->hosted);
    pl_free(callbacks->model);
}

static int callbacks_on_show_model(void *self, pl_call_t *call, const pl_body_t *body,
                                   pl_error_t *err)
{
    callbacks_t *callbacks = self;
    pl_free(callbacks->model);
    callbacks->model = pl_strdup(body->show_model.model);
    callbacks->device_flops = body->show_model.device_flops;
    callbacks->validates = body->show_model.validates;
    return callbacks->model ? pl_reply_show_model(call, &(pl_show_model_reply_t){0})
                            : pl_no_memory(err);
}

static int callbacks_on_show_device(void *self, pl_call_t *call, const pl_body_t *body,
                                    pl_error_t *err)
{
    callbacks_t *callbacks = self;
    const pl_show_device_t *shown = &body->show_device;
    (void)err;
    callbacks->has_device = true;
    callbacks->device = (pl_device_stats_t){.memory_used = shown->memory_used,
                                            .memory_total = shown->memory_total,
                                            .utilization = shown->utilization,
                                            .power = shown->power,
                                            .temperature = shown->temperature};
    return pl_reply_show_device(call, &(pl_show_device_reply_t){0});
}

/* ---- Interest ---- */

static bool looks_on(const hosted_t *hosted)
{
    return ops_of(hosted)->requests & PL_LOOKS_ON;
}

static int callbacks_on_interest(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    (void)body, (void)err;
    const callbacks_t *callbacks = self;
    pl_callback_hooks_reply_t reply = {0};
    pl_intervals_t halts = {0}, looks = {0};
    for (int k = 0; k < callbacks->count; k++) {
        const hosted_t *hosted = &callbacks->hosted[k];
        reply.points |= ops_of(hosted)->points;
        reply.requests |= ops_of(hosted)->requests;
        if (ops_of(hosted)->points & PL_AT(TRAIN_BATCH_END))
            pl_intervals_add(looks_on(hosted) ? &looks : &halts,
                             (uint64_t)hosted->every_n_steps);
    }
    reply.halts = pl_intervals_bytes(&halts);
    reply.looks = pl_intervals_bytes(&looks);
    return pl_reply_callback_hooks(call, &reply);
}

/* ---- Hooks ---- */

static bool is_wanted(const hosted_t *hosted, const pl_hook_t point, uint64_t global_step)
{
    return (ops_of(hosted)->points & 1u << point)
           && (point != PL_HOOK_TRAIN_BATCH_END
               || (hosted->every_n_steps
                   && global_step % (uint64_t)hosted->every_n_steps == 0));
}

/* What has to be prepared for comes too late when it is not said at the start. */
static int request_declared(const pl_callback_ops_t *ops,
                            const pl_callback_request_t *request, pl_error_t *err)
{
    if (request->accumulate <= 1 || ops->requests & PL_MAY_ACCUMULATE)
        return PL_OK;
    return pl_fail(err, PL_EUSER,
                   "it requests accumulate, but .requests of its table lacks "
                   "PL_MAY_ACCUMULATE");
}

/* Asks one callback, when the point is its own. */
static int hosted_ask(hosted_t *hosted, pl_hook_t point, const pl_hook_event_t *event,
                      pl_callback_requests_t *all, pl_error_t *err)
{
    const pl_callback_ops_t *ops = ops_of(hosted);
    pl_callback_request_t request = pl_callback_requests_new(all);
    pl_error_t why = {0};
    if (!is_wanted(hosted, point, event->global_step))
        return PL_OK;
    if (ops->on(hosted->component.self, point, event, &request, &why) != PL_OK
        || request_declared(ops, &request, &why) != PL_OK
        || pl_callback_requests_add(all, ops, point, &request, &why) != PL_OK)
        return callback_fail(hosted, hook_names[point], &why, err);
    return PL_OK;
}

static int callbacks_answer(pl_call_t *call, const pl_callback_requests_t *all,
                            pl_error_t *err)
{
    const json_t *metrics = all->metrics.object;
    char *text = metrics ? pl_json_write(metrics, PL_JSON_COMPACT) : NULL;
    if (metrics && !text)
        return pl_no_memory(err);
    const pl_run_hook_reply_t reply = {.stop = all->stop,
                                       .by_clock = all->by_clock,
                                       .skip = all->skip,
                                       .lr_factor = all->lr_factor,
                                       .accumulate = all->accumulate,
                                       .metrics = text ? text : "",
                                       .freeze = all->freeze,
                                       .unfreeze = all->unfreeze,
                                       .save = all->checkpoints.save,
                                       .drop = all->checkpoints.drop,
                                       .reason = all->reason};
    int code = pl_reply_run_hook(call, &reply);
    pl_free(text);
    return code;
}

/* What all are told; tensors is room for the outputs. */
static pl_hook_event_t event_of(const callbacks_t *callbacks, const pl_run_hook_t *asked,
                                pl_result_tensor_t tensors[PL_FIELDS])
{
    const pl_outputs_t *outputs = (const pl_outputs_t *)asked->outputs;
    for (int k = 0; outputs && k < outputs->count; k++)
        tensors[k] = (pl_result_tensor_t){outputs->output[k].name,
                                          outputs->output[k].shape,
                                          outputs->output[k].data};
    return (pl_hook_event_t){.rank = pl_actor_rank((void *)callbacks),
                             .epoch = asked->epoch,
                             .global_step = asked->global_step,
                             .total_steps = asked->total_steps,
                             .batch = asked->batch,
                             .batches = asked->batches,
                             .samples = asked->samples,
                             .extra = asked->extra,
                             .model = callbacks->model ? callbacks->model : "{}",
                             .device_flops = callbacks->device_flops,
                             .validates = callbacks->validates,
                             .metrics = asked->metrics,
                             .error = asked->error,
                             .output_count = outputs ? outputs->count : 0,
                             .output = tensors,
                             .device = callbacks->has_device ? &callbacks->device : NULL};
}

static int callbacks_on_hook(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    callbacks_t *callbacks = self;
    const pl_run_hook_t *asked = &body->run_hook;
    pl_result_tensor_t tensors[PL_FIELDS];
    pl_callback_requests_t all;
    int code = PL_OK;
    if (asked->point >= PL_HOOK_COUNT)
        return pl_fail(err, PL_EINVAL, "there is no hook %u", asked->point);
    const pl_hook_event_t event = event_of(callbacks, asked, tensors);
    pl_callback_requests_init(&all);
    for (int k = 0; k < callbacks->count && code == PL_OK; k++)
        code = hosted_ask(&callbacks->hosted[k], asked->point, &event, &all, err);
    if (code == PL_OK)
        code = callbacks_answer(call, &all, err);
    pl_callback_requests_release(&all);
    return code;
}

/* ---- State ---- */

static int hosted_keep(const hosted_t *hosted, json_t *all, pl_error_t *err)
{
    const pl_callback_ops_t *ops = ops_of(hosted);
    pl_error_t why = {0};
    char *text = ops->state ? ops->state(hosted->component.self, &why) : NULL;
    if (ops->state && !text)
        return callback_fail(hosted, "in state()", &why, err);
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
        || ops_of(hosted)->restore(hosted->component.self, state, &why) == PL_OK)
        return PL_OK;
    return callback_fail(hosted, "in restore()", &why, err);
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
    json_array_foreach(all, at, entry) {
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
        code = pl_fail(err, PL_EFORMAT, "the state of the callbacks is not JSON");
    for (int k = 0; k < callbacks->count && code == PL_OK; k++)
        code = hosted_restore(&callbacks->hosted[k], state_of(callbacks, k, all), err);
    json_decref(all);
    return code == PL_OK ? pl_reply_set_state(call, &(pl_set_state_reply_t){0}) : code;
}

static const pl_handler_t callbacks_handlers[] = {
    PL_ON(start, callbacks_on_start),
    PL_ON(show_model, callbacks_on_show_model),
    PL_ON(show_device, callbacks_on_show_device),
    PL_ON(callback_hooks, callbacks_on_interest),
    PL_ON(run_hook, callbacks_on_hook),
    PL_ON(get_state, callbacks_on_get_state),
    PL_ON(set_state, callbacks_on_set_state),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_callback_connector = {
    .name = "connector.callback",
    .help = "calls the run's callbacks",
    .size = sizeof(callbacks_t),
    .level = PL_LEVEL_CONNECTOR,
    .handlers = callbacks_handlers,
    .release = callbacks_release,
};
