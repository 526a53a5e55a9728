/* callback.c - the callback connector: calls the run's callbacks
 *
 * Hooks are calls: the loop calls, the reply contains the combined requests of the
 * callbacks, and the loop executes them.  Callbacks are called in the order of the run
 * file. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/checkpoint_requests.h"
#include "actors/connectors/connectors.h"
#include "actors/intervals.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/options.h"
#include "base/utf8.h"
#include "runtime/payload.h"

typedef struct hosted {
    pl_instance_t component;                                /* pl_callback_ops_t */
    bool started;                                           /* start() was called */
    int64_t every_n_steps;
} hosted_t;

typedef struct callbacks {
    char *model;                                            /* JSON  [NULL: not known] */
    double device_flops;                                    /* 0: not known */
    pl_device_stats_t device;
    bool has_device;                                        /* device was measured */
    bool validates;                                         /* the run does */
    hosted_t *hosted;
    int count;
} callbacks_t;

/* Metrics that callbacks log: a pl_callback_request_t points to them during its hook. */
struct pl_callback_metrics {
    json_t *object;                                         /* [NULL: none so far] */
};

/* The combined requests of all callbacks at one hook. */
typedef struct requests {
    bool stop, skip;
    bool by_clock;                          /* all requests to stop depend on the clock */
    double lr_factor;
    uint64_t accumulate;
    char freeze[1024], unfreeze[1024];                  /* patterns with spaces between */
    struct pl_callback_metrics metrics;
    pl_checkpoint_requests_t checkpoints;
    char reason[sizeof((pl_callback_request_t *)0)->reason + 64];  /* "NAME: reason" */
} requests_t;

static const char *const hook_names[] = {
#define PL_X(name, text, may, when) [PL_HOOK_##name] = text,
    PL_HOOKS(PL_X)
#undef PL_X
};

/* PL_MAY bits that are allowed at each hook. */
static const int allowed[] = {
#define PL_X(name, text, may, when) [PL_HOOK_##name] = may,
    PL_HOOKS(PL_X)
#undef PL_X
};

static const char *const request_names[] = {
#define PL_X(name, text) text,
    PL_CALLBACK_REQUESTS(PL_X)
#undef PL_X
};

static const pl_callback_ops_t *ops_of(const hosted_t *hosted)
{
    return hosted->component.ops;
}

/* ---- The start ---- */

/* The error for a failed function of a callback. */
static int callback_fail(const hosted_t *hosted, const char *where, const pl_error_t *why,
                         pl_error_t *err)
{
    return pl_fail(err, why->code == PL_ENOMEM ? PL_ENOMEM : PL_EUSER,
                   "callback \"%s\", %s: %s", ops_of(hosted)->name, where,
                   why->text[0] ? why->text : "it failed without an error text");
}

/* Callbacks that an option of the trainer adds unless they are listed. */
static const struct {
    const char *name, *key;
    size_t option;
} automatic[] = {
    {"model_summary", "trainer.enable_model_summary",
     offsetof(pl_trainer_options_t, enable_model_summary)},
    {"model_checkpoint", "trainer.enable_checkpointing",
     offsetof(pl_trainer_options_t, enable_checkpointing)},
};
enum { AUTOMATIC = sizeof automatic / sizeof *automatic };

bool pl_callback_is_listed(const pl_options_t *options, const char *name)
{
    char path[32];
    const int count = pl_options_count(options, "callbacks");
    for (int k = 0; k < count; k++) {
        snprintf(path, sizeof path, "callbacks.%d", k);
        if (!strcmp(pl_options_choice(options, path, ""), name))
            return true;
    }
    return false;
}

/* Adds the next callback of the run file, or one by its name  [NULL]. */
static int hosted_add(callbacks_t *callbacks, const pl_options_t *options,
                      const char *name, pl_error_t *err)
{
    char path[32];
    snprintf(path, sizeof path, "callbacks.%d", callbacks->count);
    const pl_component_request_t request = {.role = "callback",
                                            .path = path,
                                            .automatic = name};
    int code = pl_options_component(options, &request,
                                    &callbacks->hosted[callbacks->count].component, err);
    callbacks->count += code == PL_OK;
    return code;
}

/* A manual loop has steps, but no epochs, validations or tests. */
static int manual_check(const pl_job_t *job, const hosted_t *hosted, int listed,
                        pl_error_t *err)
{
    const pl_callback_ops_t *ops = ops_of(hosted);
    const bool steps = ops->points & PL_AT(TRAIN_BATCH_END) && hosted->every_n_steps;
    char path[32];
    snprintf(path, sizeof path, "callbacks.%d", listed);
    for (int k = 0; k < PL_HOOK_COUNT && !steps; k++)
        if (ops->points >> k & 1 && k != PL_HOOK_FIT_START && k != PL_HOOK_FIT_END
            && k != PL_HOOK_TRAIN_BATCH_END)
            return pl_options_fail(err, PL_EINVAL, job->options, path,
                                   "callback \"%s\" acts at the hook %s, and a manual "
                                   "loop has steps alone: set its interval in steps, or "
                                   "do its work in the program",
                                   ops->name, hook_names[k]);
    if (ops->requests & PL_MAY_SAVE && !job->enable_checkpointing)
        return pl_options_fail(err, PL_EINVAL, job->options, path,
                               "callback \"%s\" saves checkpoints, and this loop has no "
                               "run directory: open it with `enable_checkpointing` set",
                               ops->name);
    return PL_OK;
}

static int callbacks_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    (void)call;
    callbacks_t *callbacks = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    int listed = pl_options_count(job->options, "callbacks"), code = PL_OK;
    callbacks->hosted = pl_alloc_array((size_t)listed + AUTOMATIC,
                                       sizeof *callbacks->hosted);
    if (!callbacks->hosted)
        return pl_no_memory(err);
    while (callbacks->count < listed && code == PL_OK)
        code = hosted_add(callbacks, job->options, NULL, err);
    for (int k = 0; k < AUTOMATIC && code == PL_OK; k++) {
        const char *name = automatic[k].name, *key = automatic[k].key;
        bool is_on = *(const bool *)((const char *)job->trainer + automatic[k].option);
        bool is_listed = pl_callback_is_listed(job->options, name);
        if (is_listed && !is_on)
            code = pl_options_fail(err, PL_EINVAL, job->options, key,
                                   "\"%s\" is listed, but \"%s\" is false: remove one "
                                   "of them",
                                   name, key);
        else if (is_on && !is_listed)
            code = hosted_add(callbacks, job->options, name, err);
    }
    if (code != PL_OK)
        return code;
    for (int k = 0; k < callbacks->count; k++) {
        hosted_t *hosted = &callbacks->hosted[k];
        const pl_callback_ops_t *ops = ops_of(hosted);
        void *callback = hosted->component.self;
        pl_error_t why = {0};
        if (!ops->on)
            return pl_fail(err, PL_EUSER, "callback \"%s\": its table lacks on",
                           ops->name);
        hosted->started = true;
        if (ops->start && ops->start(callback, &why) != PL_OK)
            return callback_fail(hosted, "in start()", &why, err);
        const int64_t steps = ops->every_n_steps ? ops->every_n_steps(callback) : 1;
        hosted->every_n_steps = steps < 0 ? 1 : steps;
        if (job->manual_signature && k < listed
            && manual_check(job, hosted, k, err) != PL_OK)
            return err->code;
    }
    pl_actor_ready(self);
    return PL_OK;
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

/* ---- When hooks are called ---- */

static int callbacks_on_interest(void *self, pl_call_t *call, const pl_body_t *body,
                                 pl_error_t *err)
{
    (void)body, (void)err;
    const callbacks_t *callbacks = self;
    pl_callback_hooks_reply_t reply = {0};
    pl_intervals_t halts = {0}, looks = {0};
    for (int k = 0; k < callbacks->count; k++) {
        const pl_callback_ops_t *ops = ops_of(&callbacks->hosted[k]);
        reply.points |= ops->points;
        reply.requests |= ops->requests;
        if (ops->points & PL_AT(TRAIN_BATCH_END))
            pl_intervals_add(ops->requests & PL_LOOKS_ON ? &looks : &halts,
                             (uint64_t)callbacks->hosted[k].every_n_steps);
    }
    reply.halts = pl_intervals_bytes(&halts);
    reply.looks = pl_intervals_bytes(&looks);
    return pl_reply_callback_hooks(call, &reply);
}

/* ---- Requests ---- */

/* An impossible request is an error: ignored, it would give no hint to its author. */
static int request_check(const pl_callback_ops_t *ops, pl_hook_t point,
                         const pl_callback_request_t *request, bool has_metrics,
                         pl_error_t *err)
{
    /* A callback with PL_LOOKS_ON is called while training continues. */
    const bool looks_on = ops->requests & PL_LOOKS_ON && point == PL_HOOK_TRAIN_BATCH_END;
    const int possible = looks_on ? PL_MAY_LOG | PL_MAY_STOP : allowed[point],
              requested =
                  (request->stop ? PL_MAY_STOP : 0) | (request->skip ? PL_MAY_SKIP : 0)
                  | (request->lr_factor != 1 ? PL_MAY_RATE : 0)
                  | (has_metrics ? PL_MAY_LOG : 0)
                  | (request->accumulate ? PL_MAY_ACCUMULATE : 0)
                  | (request->freeze[0] || request->unfreeze[0] ? PL_MAY_FREEZE : 0)
                  | (request->save[0] ? PL_MAY_SAVE : 0);
    /* The run prepares for accumulation at its start. */
    if (request->accumulate > 1 && !(ops->requests & PL_MAY_ACCUMULATE))
        return pl_fail(err, PL_EUSER,
                       "it requests accumulate, but .requests of its table lacks "
                       "PL_MAY_ACCUMULATE");
    for (int k = 0, rest = requested & ~possible; rest; k++, rest >>= 1)
        if (rest & 1)
            return pl_fail(err, PL_EUSER, "a callback cannot request %s at this hook",
                           request_names[k]);
    if (!isfinite(request->lr_factor) || request->lr_factor < 0)
        return pl_fail(err, PL_EUSER,
                       "it requests the learning-rate factor %g: the factor must be 0 "
                       "or more",
                       request->lr_factor);
    if (request->accumulate < 0)
        return pl_fail(err, PL_EUSER,
                       "it requests %lld batches for a step: the number must be 1 or "
                       "more",
                       (long long)request->accumulate);
    return PL_OK;
}

static int patterns_add(char all[1024], const char *patterns, pl_error_t *err)
{
    const size_t used = strlen(all), length = strlen(patterns);
    if (used + length + 2 > 1024)
        return pl_fail(
            err, PL_EUSER,
            "the patterns of parameters that callbacks request at one hook are longer "
            "than 1000 characters");
    snprintf(all + used, 1024 - used, "%s%s", used && length ? " " : "", patterns);
    return PL_OK;
}

/* Adds the request of one callback.  The first request to stop gives the reason; one that
 * is in the state of the run has priority over one by the clock. */
static int requests_add(requests_t *all, const pl_callback_ops_t *ops, pl_hook_t point,
                        const pl_callback_request_t *request, pl_error_t *err)
{
    const bool by_clock = ops->requests & PL_BY_CLOCK;
    int code = request_check(ops, point, request, all->metrics.object != NULL, err);
    if (code != PL_OK)
        return code;
    if (patterns_add(all->freeze, request->freeze, err) != PL_OK
        || patterns_add(all->unfreeze, request->unfreeze, err) != PL_OK)
        return PL_EUSER;
    all->lr_factor *= request->lr_factor;
    if (request->accumulate)
        all->accumulate = (uint64_t)request->accumulate;
    if (request->stop && (!all->stop || (all->by_clock && !by_clock))) {
        snprintf(all->reason, sizeof all->reason, "%.60s%s%.*s", ops->name,
                 request->reason[0] ? ": " : "", (int)sizeof request->reason - 1,
                 request->reason);
        all->by_clock = by_clock;
    }
    all->stop |= request->stop;
    all->skip |= request->skip;
    return pl_checkpoint_requests_add(&all->checkpoints, request->save, request->drop,
                                      err);
}

int pl_callback_log(pl_callback_request_t *request, const char *name, double value,
                    pl_error_t *err)
{
    if (!request || !request->metrics)
        return pl_fail(err, PL_EINVAL,
                       "a callback can log a metric only inside on(), with the request "
                       "that on() received");
    if (!name || !*name || !pl_utf8_ok(name, strlen(name)))
        return pl_fail(err, PL_EINVAL, "a metric needs a name in UTF-8");
    if (!request->metrics->object)
        request->metrics->object = json_object();
    json_t *number = pl_json_number(value);
    return json_object_set_new(request->metrics->object, name, number) == 0
               ? PL_OK
               : pl_no_memory(err);
}

/* ---- Hooks ---- */

/* Calls one callback if it has the hook. */
static int hosted_call(hosted_t *hosted, pl_hook_t point, const pl_hook_event_t *event,
                       requests_t *all, pl_error_t *err)
{
    const pl_callback_ops_t *ops = ops_of(hosted);
    const uint64_t every = (uint64_t)hosted->every_n_steps;
    pl_callback_request_t request = {.lr_factor = 1, .metrics = &all->metrics};
    pl_error_t why = {0};
    if (!(ops->points & 1u << point))
        return PL_OK;
    if (point == PL_HOOK_TRAIN_BATCH_END && (!every || event->global_step % every))
        return PL_OK;
    if (ops->on(hosted->component.self, point, event, &request, &why) != PL_OK
        || requests_add(all, ops, point, &request, &why) != PL_OK)
        return callback_fail(hosted, hook_names[point], &why, err);
    return PL_OK;
}

static int callbacks_on_hook(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    callbacks_t *callbacks = self;
    const pl_run_hook_t *asked = &body->run_hook;
    pl_result_tensor_t tensors[PL_FIELDS];
    requests_t all = {.lr_factor = 1};
    int code = PL_OK;
    if (asked->point >= PL_HOOK_COUNT)
        return pl_fail(err, PL_EINVAL, "there is no hook %u", asked->point);
    const pl_outputs_t *outputs = (const pl_outputs_t *)asked->outputs;
    for (int k = 0; outputs && k < outputs->count; k++)
        tensors[k] = (pl_result_tensor_t){outputs->output[k].name,
                                          outputs->output[k].shape,
                                          outputs->output[k].data};
    const pl_hook_event_t event = {.rank = pl_actor_rank(callbacks),
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
                                   .device = callbacks->has_device ? &callbacks->device
                                                                   : NULL};
    for (int k = 0; k < callbacks->count && code == PL_OK; k++)
        code = hosted_call(&callbacks->hosted[k], asked->point, &event, &all, err);
    const json_t *metrics = all.metrics.object;
    char *text = metrics && code == PL_OK ? pl_json_write(metrics, PL_JSON_COMPACT)
                                          : NULL;
    if (metrics && !text && code == PL_OK)
        code = pl_no_memory(err);
    const pl_run_hook_reply_t reply = {.stop = all.stop,
                                       .by_clock = all.by_clock,
                                       .skip = all.skip,
                                       .lr_factor = all.lr_factor,
                                       .accumulate = all.accumulate,
                                       .metrics = text ? text : "",
                                       .freeze = all.freeze,
                                       .unfreeze = all.unfreeze,
                                       .save = all.checkpoints.save,
                                       .drop = all.checkpoints.drop,
                                       .reason = all.reason};
    if (code == PL_OK)
        code = pl_reply_run_hook(call, &reply);
    pl_free(text);
    json_decref(all.metrics.object);
    return code;
}

/* ---- State ---- */

/* The states of all callbacks, in their order. */
static int callbacks_on_get_state(void *self, pl_call_t *call, const pl_body_t *body,
                                  pl_error_t *err)
{
    (void)body;
    const callbacks_t *callbacks = self;
    json_t *all = json_array();
    int code = all ? PL_OK : pl_no_memory(err);
    for (int k = 0; k < callbacks->count && code == PL_OK; k++) {
        const hosted_t *hosted = &callbacks->hosted[k];
        const pl_callback_ops_t *ops = ops_of(hosted);
        pl_error_t why = {0};
        char *state = ops->state ? ops->state(hosted->component.self, &why) : NULL;
        json_t *entry = json_pack("{s:s, s:s}", "name", ops->name, "state",
                                  state ? state : "");
        if (ops->state && !state)
            code = callback_fail(hosted, "in state()", &why, err);
        if (json_array_append_new(all, entry) != 0 && code == PL_OK)
            code = pl_no_memory(err);
        pl_text_free(state);
    }
    char *text = code == PL_OK ? pl_json_write(all, PL_JSON_COMPACT) : NULL;
    json_decref(all);
    if (code == PL_OK && !text)
        return pl_no_memory(err);
    if (code == PL_OK)
        code = pl_reply_get_state(call, &(pl_get_state_reply_t){.state = text});
    pl_text_free(text);
    return code;
}

/* The n-th callback of a name gets the state of the n-th one of that name: the list of
 * callbacks may have changed. */
static int callbacks_on_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                                  pl_error_t *err)
{
    callbacks_t *callbacks = self;
    const char *text = body->set_state.state;
    json_t *all = *text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    int code = PL_OK;
    if (*text && !all)
        code = pl_fail(err, PL_EFORMAT, "the state of the callbacks is not JSON");
    for (int k = 0; k < callbacks->count && code == PL_OK; k++) {
        const hosted_t *hosted = &callbacks->hosted[k];
        const char *name = ops_of(hosted)->name, *state = "";
        pl_error_t why = {0};
        size_t at;
        json_t *entry;
        int before = 0;
        for (int i = 0; i < k; i++)
            before += !strcmp(ops_of(&callbacks->hosted[i])->name, name);
        json_array_foreach(all, at, entry) {
            const char *of = json_string_value(json_object_get(entry, "name")),
                       *kept = json_string_value(json_object_get(entry, "state"));
            if (of && kept && !strcmp(of, name) && before-- == 0)
                state = kept;
        }
        if (*state && ops_of(hosted)->restore
            && ops_of(hosted)->restore(hosted->component.self, state, &why) != PL_OK)
            code = callback_fail(hosted, "in restore()", &why, err);
    }
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
