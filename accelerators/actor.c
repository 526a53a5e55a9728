/* actor.c - the accelerator actor: a device on a thread of its own, driven by messages
 *
 * It turns messages into calls of the device's table (accelerator.h) and completions into
 * replies.  A device may complete a replay from inside replay() or later on this thread;
 * replies are sent in the order of completion. */
#include "accelerators/actor_internal.h"

#include <math.h>
#include <string.h>

#include "accelerators/auto_select.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/options.h"
#include "base/run.h"
#include "runtime/payload.h"
#include "tensor/operators.h"

struct running;

/* One of the replays of a call. */
typedef struct call_replay {
    pl_replay_t replay;                      /* first: done() casts it to call_replay_t */
    struct running *of;
    double seconds;                                         /* run time */
} call_replay_t;

/* A call of replay_plan that has not ended, with one replay or two.  Ended ones are
 * kept in a list of spare ones, so that a step allocates nothing. */
typedef struct running {
    call_replay_t first, then;
    pl_device_t *device;
    pl_call_t *call;
    int left;                                               /* replays not yet done */
    pl_error_t failure;                                     /* the first  [code 0] */
    size_t sums, capacity;                                  /* numbers in metrics */
    double *metrics;                                        /* [capacity] */
    json_t *spans;                                          /* measured  [NULL: none] */
    struct running *next;
} running_t;

static void device_collect(void *self)
{
    pl_device_t *device = self;
    device->ops->collect(device->component.self);
}

static int instance_of(const pl_job_t *job, pl_instance_t *component, pl_error_t *err)
{
    const pl_component_request_t request = {.role = "accelerator",
                                            .path = "trainer.accelerator",
                                            .automatic =
                                                pl_accelerator_auto(job->options)};
    return pl_options_component(job->options, &request, component, err);
}

/* The bits of a result depend on the number of threads. Results of elastic training must
 * not depend on the number of ranks, so the number of threads must not either. */
static int threads_of(const pl_job_t *job)
{
    return pl_trainer_is_elastic(job->trainer) ? 1 : 0;
}

static int device_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    pl_device_t *device = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    device->life = call;
    device->job = pl_object_ref(body->start.context);
    int code = instance_of(job, &device->component, err);
    if (code != PL_OK)
        return code;
    device->ops = device->component.ops;
    device->info.ranks = body->start.ranks ? (int)body->start.ranks : 1;
    device->info.threads = threads_of(job);
    device->info.computes = true;
    device->info.compiles = job->compiles;
    device->info.deterministic = job->trainer->deterministic != PL_NOT_DETERMINISTIC
                                 || pl_trainer_is_elastic(job->trainer);
    const pl_precision_ops_t *precision =
        pl_component_find("precision",
                          pl_options_choice(job->options, "trainer.precision", "32-true"),
                          NULL);
    device->low = precision ? precision->low : PL_F32;
    device->times.enabled = job->trainer->profiler == PL_PROFILE_OPERATORS;
    device->info.local_rank = (int)body->start.local_rank;
    device->info.device = pl_options_device(job->options, device->info.local_rank);
    const bool is_numbered = device->info.device >= 0;
    device->staging.ops = device->ops, device->staging.device = device->component.self;
    device->opened = true;           /* so that close() is called after a failed open() */
    code = device->ops->open(device->component.self, &device->info, err);
    if (code == PL_OK && device->ops->collect)
        code = pl_watch(self, device->ops->descriptor(device->component.self),
                        device_collect, err);
    if (code != PL_OK)
        return code;
    pl_log_line(PL_LOG_DEBUG, pl_actor_rank(self), pl_actor_name(self),
                "%s: %s, %d thread%s, %s", device->ops->name, device->info.model,
                device->info.threads, device->info.threads == 1 ? "" : "s",
                device->info.library);
    if (is_numbered && device->info.device < 0 && pl_actor_rank(self) == 0)
        pl_log_line(PL_LOG_INFO, 0, pl_actor_name(self),
                    "devices of accelerator \"%s\" have no numbers: of the list "
                    "\"trainer.devices\" only the number of entries counts",
                    device->ops->name);
    char identity[33];    /* of the device, of which the launcher allows each only once */
    bool is_known = false;
    for (int k = 0; k < 16; k++) {
        is_known |= device->info.uuid[k] != 0;
        snprintf(identity + 2 * k, 3, "%02x", device->info.uuid[k]);
    }
    pl_actor_computes(self);
    pl_actor_ready_at(self, is_known ? identity : "");
    return PL_OK;
}

/* ---- replays ---- */

enum { WATCH_MS = 1000 };

static void device_watch(void *self);

static void watch_later(pl_device_t *device)
{
    const int fraction = pl_milliseconds(device->job->trainer->step_timeout) / 8 + 1;
    device->watches = true;
    pl_after(device, fraction < WATCH_MS ? fraction : WATCH_MS, device_watch, NULL);
}

/* Reports the launches that have ended.  While the actor ends, the device completes what
 * is enqueued: the actor above waits while launches end, for step_timeout each. */
static void device_report_launches(pl_device_t *device)
{
    const double timeout = device->job->trainer->step_timeout;
    uint64_t put = 0, ended = 0;
    device->ops->launches(device->component.self, &put, &ended);
    if (ended != device->ended)
        device->moved = pl_now();
    device->ended = ended;
    pl_pulse_beat(device->job->pulse, put, ended, device->moved);
    if (device->ending && put > ended
        && (double)(pl_now() - device->moved) / 1e9 < timeout)
        pl_progress_start(device->life,
                          &(pl_start_progress_t){.state = PL_START_STATE_ENDING});
}

static void device_watch(void *self)
{
    pl_device_t *device = self;
    device->watches = false;
    if (!device->running)
        return;
    device_report_launches(device);
    watch_later(device);
}

static void running_give(running_t *running)
{
    running->next = running->device->spare;
    running->device->spare = running;
}

static void replay_done(pl_replay_t *replay, const pl_error_t *err)
{
    call_replay_t *call_replay = (call_replay_t *)replay;
    running_t *running = call_replay->of;
    pl_device_t *device = running->device;
    const int64_t since = device->since;
    device->since = pl_now();
    call_replay->seconds = replay->seconds > 0 ? replay->seconds
                                               : (double)(device->since - since) / 1e9;
    if (err && running->failure.code == PL_OK)
        running->failure = *err;
    if (--running->left)
        return;
    device->running--;
    const pl_replay_t *first = &running->first.replay, *then = &running->then.replay;
    const size_t sums = first->collective ? 0 : running->sums;
    char *spans = running->spans ? pl_json_write(running->spans, PL_JSON_COMPACT) : NULL;
    if (running->failure.code != PL_OK)
        pl_call_fail(running->call, &running->failure);
    else
        pl_reply_replay_plan(running->call,
                             &(pl_replay_plan_reply_t){
                                 .skipped = first->skipped || then->skipped,
                                 .collective = (uint32_t)first->collective,
                                 .forward = first->forward,
                                 .seconds = running->first.seconds,
                                 .then = running->then.seconds,
                                 .metrics = {running->metrics, sums * sizeof(double)},
                                 .spans = spans ? spans : ""});
    pl_text_free(spans);
    json_decref(running->spans);
    running_give(running);
    if (device->ending && pl_device_is_idle(device))
        pl_actor_end(device, NULL);
}

static void replay_ready(pl_replay_t *replay, int buckets, pl_fence_t *fence)
{
    pl_progress_replay_plan(((call_replay_t *)replay)->of->call,
                            &(pl_replay_plan_progress_t){.buckets = (uint32_t)buckets,
                                                         .fence = fence ? &fence->object
                                                                        : NULL});
}

static void replay_ordered(pl_replay_t *replay, pl_fence_t *fence)
{
    pl_progress_replay_plan(((call_replay_t *)replay)->of->call,
                            &(pl_replay_plan_progress_t){.fence = &fence->object,
                                                         .ordered = true});
}

static void replay_measured(pl_replay_t *replay, const pl_device_span_t *span, int count)
{
    running_t *running = ((call_replay_t *)replay)->of;
    running->spans = pl_device_times_add(&running->device->times, span, count,
                                         running->spans);
}

static const pl_compiled_t *compiled_find(const pl_device_t *device, uint32_t number,
                                          pl_error_t *err)
{
    if (number < (uint32_t)device->plan_count && device->plan[number].plan)
        return &device->plan[number];
    pl_fail(err, PL_EINVAL, "there is no plan %u", number);
    return NULL;
}

/* Sets up the replays: the first reads the batch and the outputs; the last one reads the
 * scalars. */
static int running_fill(running_t *running, const pl_replay_plan_t *msg,
                        const pl_compiled_t *compiled, const pl_compiled_t *then,
                        pl_error_t *err)
{
    pl_device_t *device = running->device;
    pl_replay_t *replay = &running->first.replay, *second = &running->then.replay;
    const pl_batch_t *batch = (const pl_batch_t *)msg->batch;
    pl_outputs_t *outputs = (pl_outputs_t *)msg->outputs;
    if (msg->scalars.size > sizeof replay->scalar)
        return pl_fail(err, PL_EINVAL, "more than %d scalars were given for a step",
                       PL_STEP_SCALARS);
    if (running->sums)
        memset(running->metrics, 0, running->sums * sizeof(double));
    running->first =
        (call_replay_t){{.metrics = running->metrics,
                         .seed = msg->seed,
                         .step = msg->step,
                         .micro_batch = msg->micro_batch,
                         .fail_fast = msg->fail_fast,
                         .restart = msg->restart,
                         .continues = msg->continues,
                         .ready = compiled->bucket_count ? replay_ready : NULL,
                         .ordered = device->registers ? replay_ordered : NULL,
                         .done = replay_done},
                        running,
                        0};
    running->then = (call_replay_t){{.done = replay_done}, then ? running : NULL, 0};
    running->spans = NULL;
    if (device->times.enabled)
        replay->measured = second->measured = replay_measured;
    if (then) {
        second->metrics = running->metrics + compiled->sums;
        second->seed = msg->seed, second->step = msg->step;
        second->fail_fast = msg->fail_fast;
        replay->next = second;
    }
    memcpy((then ? second : replay)->scalar, msg->scalars.data, msg->scalars.size);
    if (batch && batch->pages && device->ops->pin)
        pl_staging_pin(&device->staging, batch->pages);
    for (int k = 0; batch && k < batch->field_count; k++)
        replay->input[k] = (const char *)batch->field[k]
                           + msg->first * compiled->sample[k];
    if (outputs && outputs->count < compiled->output_count)
        return pl_fail(err, PL_EINVAL, "%d outputs were given for a plan that has %d",
                       outputs->count, compiled->output_count);
    for (int k = 0; outputs && k < compiled->output_count; k++)
        replay->output[k] = (char *)outputs->output[k].data
                            + msg->first * compiled->output[k];
    return PL_OK;
}

static int replay_begin(pl_device_t *device, pl_call_t *call, const pl_replay_plan_t *msg,
                        pl_error_t *err)
{
    const pl_compiled_t *compiled = compiled_find(device, msg->plan, err), *then = NULL;
    if (!compiled || (msg->then && !(then = compiled_find(device, msg->then - 1, err))))
        return err->code;
    const size_t sums = compiled->sums + (then ? then->sums : 0);
    running_t *running = device->spare;
    if (running)
        device->spare = running->next;
    else if (!(running = pl_alloc(sizeof *running)))
        return pl_no_memory(err);
    if (running->capacity < sums) {
        pl_free(running->metrics);
        running->metrics = pl_alloc_array(sums, sizeof *running->metrics);
        running->capacity = running->metrics ? sums : 0;
    }
    if (running->capacity < sums) {
        pl_free(running);
        return pl_no_memory(err);
    }
    running->device = device, running->call = call, running->sums = sums;
    running->left = then ? 2 : 1;
    running->failure.code = PL_OK;
    void *component = device->component.self;
    if (!device->running++)
        device->since = device->moved = pl_now();
    if (device->ops->launches && !device->watches)
        watch_later(device);
    int code = running_fill(running, msg, compiled, then, err);
    if (code == PL_OK)
        code = pl_device_join(device, msg->after, err);
    if (code == PL_OK)
        code = device->ops->replay(component, compiled->plan, &running->first.replay,
                                   err);
    if (code != PL_OK) {
        device->running--;
        running_give(running);
        return code;
    }
    if (then && device->ops->replay(component, then->plan, &running->then.replay, err)) {
        device->skipping |= msg->fail_fast;
        replay_done(&running->then.replay, err);
    }
    return PL_OK;
}

static int device_replay(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    pl_device_t *device = self;
    device->skipping &= !body->replay_plan.restart;
    if (body->replay_plan.fail_fast && device->skipping)
        return pl_reply_replay_plan(call, &(pl_replay_plan_reply_t){.skipped = true});
    int code = replay_begin(device, call, &body->replay_plan, err);
    if (code != PL_OK && body->replay_plan.fail_fast)
        device->skipping = true;
    return code;
}

/* ---- the peak ---- */

static void peak_measured(void *user, double flops, const pl_error_t *err)
{
    pl_device_t *device = user;
    pl_call_t *call = device->measuring;
    device->measuring = NULL;
    device->running--;
    if (err)
        pl_call_fail(call, err);
    else
        pl_reply_measure_peak(call, &(pl_measure_peak_reply_t){.flops = flops});
    if (device->ending && pl_device_is_idle(device))
        pl_actor_end(device, NULL);
}

static int device_measure_peak(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    (void)body;
    pl_device_t *device = self;
    if (device->plan_count)
        return pl_fail(err, PL_ESTATE,
                       "the peak can be measured only before plans are compiled");
    device->measuring = call;
    device->running++;
    int code = pl_device_measure_peak_flops(device->ops, device->component.self,
                                            device->low, peak_measured, device, err);
    device->running -= code != PL_OK;
    return code;
}

/* ---- statistics ---- */

static int device_measure(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    (void)body, (void)err;
    pl_device_t *device = self;
    pl_device_stats_t s = {NAN, NAN, NAN, NAN, NAN};
    if (device->ops->stats)
        device->ops->stats(device->component.self, &s);
    return pl_reply_measure_device(
        call, &(pl_measure_device_reply_t){.memory_used = s.memory_used,
                                           .memory_total = s.memory_total,
                                           .utilization = s.utilization,
                                           .power = s.power,
                                           .temperature = s.temperature});
}

static int device_count_memory(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    (void)body, (void)err;
    const pl_device_t *device = self;
    const size_t held = device->ops->held ? device->ops->held(device->component.self) : 0;
    return pl_reply_count_memory(call, &(pl_count_memory_reply_t){.bytes = held});
}

/* ---- the end ---- */

/* Started replays complete first: they write into memory that others hold. */
static void device_cancel(void *self, pl_call_t *call)
{
    pl_device_t *device = self;
    if (!pl_is_life(self, call))
        return;
    pl_device_times_log(&device->times, pl_actor_rank(self));
    pl_device_compiles_stop(device);
    device->ending = true;
    device->moved = pl_now();
    if (pl_device_is_idle(device))
        pl_actor_end(self, NULL);
    else if (device->running && device->ops->launches)
        device_report_launches(device);
}

static void device_release(void *self)
{
    pl_device_t *device = self;
    pl_staging_release(&device->staging);
    if (device->opened)
        device->ops->close(device->component.self);
    pl_instance_release(&device->component);
    for (int k = 0; k < PL_REGIONS; k++)
        pl_object_unref(device->borrowed[k]);
    pl_device_compiles_drop(device);
    pl_device_times_release(&device->times);
    pl_object_unref(device->job);
    while (device->spare) {
        running_t *next = device->spare->next;
        pl_free(device->spare->metrics);
        pl_free(device->spare);
        device->spare = next;
    }
    pl_free(device->plan);
}

static const pl_handler_t device_handlers[] = {
    PL_ON(start, device_start),
    PL_ON(allocate, pl_device_allocate),
    PL_ON(compile, pl_device_compile),
    PL_ON(discard_plan, pl_device_discard),
    PL_ON(replay_plan, device_replay),
    PL_ON(measure_peak, device_measure_peak),
    PL_ON(write_region, pl_device_write),
    PL_ON(prepare_reads, pl_device_prepare),
    PL_ON(read_region, pl_device_read),
    PL_ON(measure_device, device_measure),
    PL_ON(describe_plans, pl_device_describe),
    PL_ON(count_memory, device_count_memory),
    PL_HANDLERS_END,
};

static const pl_actor_ops_t device_actor = {
    .help = "computes on one device",
    .size = sizeof(pl_device_t),
    .role = "accelerator",
    .level = PL_LEVEL_ACCELERATOR,
    .handlers = device_handlers,
    .on_cancel = device_cancel,
    .release = device_release,
};

const pl_actor_ops_t *pl_accelerator_actor(const char *name, pl_error_t *err)
{
    const pl_component_t *component = pl_component_find("accelerator", name, err);
    return component ? pl_actor_kind(&device_actor, component->name, err) : NULL;
}

int pl_accelerator_describe(const pl_job_t *job, int ranks, int local_rank,
                            pl_device_info_t *info, pl_error_t *err)
{
    pl_instance_t component = {0};
    *info = (pl_device_info_t){.ranks = ranks,
                               .threads = threads_of(job),
                               .local_rank = local_rank,
                               .device = pl_options_device(job->options, local_rank)};
    int code = instance_of(job, &component, err);
    if (code != PL_OK)
        return code;
    const pl_accelerator_ops_t *ops = component.ops;
    code = ops->open(component.self, info, err);
    ops->close(component.self);
    pl_instance_release(&component);
    return code;
}

pl_accelerator_traits_t pl_accelerator_traits(const char *name)
{
    const void *component = pl_component_find("accelerator", name, NULL);
    const pl_accelerator_ops_t *ops = component;
    const pl_option_t *option = ops ? ops->options : NULL;
    while (option && option->name && strcmp(option->name, "cache") != 0)
        option++;
    return (pl_accelerator_traits_t){.memory_kind = ops ? ops->memory_kind : NULL,
                                     .measures = ops && ops->stats,
                                     .describes = ops && ops->describe,
                                     .keeps_kernels = option && option->name};
}
