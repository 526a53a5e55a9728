/* worker.c - the worker: one rank's actors, and their one address
 *
 * It builds what a run needs from the bottom up and knows the order: the strategy says
 * which part of the data is this rank's, data say what they are, the strategy sets the
 * module up for them, weights come in, the run gets its folder, then the loop runs.  What
 * the parts do is theirs.  While a run goes on it gives a sign of life of its own: that
 * this thread turns.  That steps are made is the loops'.
 *
 * Each phase of the start-up has trainer.step_timeout to end.  A stop in that time gives
 * the phase a moment more, because a start-up that is nearly done ends in order. */
#include "actors/worker/parts.h"

#include <stdio.h>
#include <string.h>

#include "accelerators/actor.h"
#include "accelerators/auto_select.h"
#include "actors/connectors/connectors.h"
#include "actors/connectors/checkpoint_io.h"
#include "actors/connectors/writer.h"
#include "actors/request.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "runtime/payload.h"
#include "base/timeouts.h"

/* The launcher limits how long ranks may take to start, and each rank its own start. */
static const double UNLIMITED = 1e10;                       /* s */

static int worker_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)call, (void)err;
    ((pl_worker_t *)self)->ranks = body->start.ranks;
    ((pl_worker_t *)self)->local_rank = body->start.local_rank;
    pl_actor_take_share(self, (int)body->start.ranks);
    pl_actor_ready(self);
    return PL_OK;
}

/* ---- failing ---- */

void pl_worker_tell_loggers(pl_worker_t *w, const char *status)
{
    if (!pl_is_nobody(w->logger))
        pl_call_end_log(w, w->logger, &(pl_end_log_t){.status = status}, (pl_how_t){0},
                        NULL);
}

/* A loop has waited for step_timeout, or nearly; after a stop for less. */
void pl_worker_suspect(pl_worker_t *w)
{
    const int timeout = pl_milliseconds(w->job->trainer->step_timeout);
    pl_actor_suspect(w, (*w->stop_reason && timeout > PL_STOP_SAVE_MS ? PL_STOP_SAVE_MS
                                                                      : timeout)
                            / 2);
}

void pl_worker_fail(pl_worker_t *w, const pl_error_t *error)
{
    pl_call_t *call = w->run;
    w->run = NULL;
    pl_held_fail(&w->held, "the run failed before it began");
    if (call)
        pl_worker_tell_loggers(w, "failed");
    if (error->code == PL_ESTUCK)
        pl_worker_suspect(w);
    if (call)
        pl_call_fail(call, error);
}

bool pl_worker_failed(pl_worker_t *w, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR)
        pl_worker_fail(w, answer->error);
    return answer->kind != PL_ANSWER_REPLY || !w->run;
}

/* ---- the start-up has limits ---- */

static bool is_starting(const pl_worker_t *w)
{
    return w->run && !w->loops;
}

static void phase_look(void *self)
{
    pl_worker_t *w = self;
    pl_error_t err;
    if (is_starting(w) && pl_watchdog_has_expired(&w->watchdog, w, &err, "%s", w->phase))
        pl_worker_fail(w, &err);
}

static void phase_begin(pl_worker_t *w, const char *phase, double seconds, const char *is)
{
    w->phase = phase;
    pl_watchdog_begin_custom(&w->watchdog, w, seconds, is, phase_look);
}

void pl_worker_phase(pl_worker_t *w, const char *phase)
{
    phase_begin(w, phase, w->job->trainer->step_timeout, "trainer.step_timeout");
}

void pl_worker_phase_of_all(pl_worker_t *w, const char *phase)
{
    phase_begin(w, phase, w->job->trainer->step_timeout * 1.25,
                "1.25 times trainer.step_timeout");
}

static void stop_is_late(void *self)
{
    pl_worker_t *w = self;
    pl_error_t err;
    if (!is_starting(w))
        return;
    pl_fail(&err, PL_ECANCELLED, "stopped before the first step (%s), while %s",
            w->stop_reason, w->phase);
    pl_actor_suspect(w, PL_STOP_START_MS / 2);
    pl_worker_fail(w, &err);
}

static void stop_limit(pl_worker_t *w)
{
    if (is_starting(w) && *w->stop_reason && strcmp(w->stop_reason, PL_OTHER_RANKS) != 0)
        pl_after(w, w->job->compiles ? 0 : PL_STOP_START_MS, stop_is_late, NULL);
}

void pl_worker_sent(pl_worker_t *w, uint64_t call, const pl_error_t *err)
{
    if (!call)
        pl_worker_fail(w, err);
}

void pl_worker_component_ended(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR)
        pl_worker_fail(self, answer->error);
}

/* Of a part that is ready; NULL: that is not what it says, or it says nothing more. */
static const char *address_of(pl_worker_t *w, const pl_answer_t *answer)
{
    pl_worker_component_ended(w, answer);
    return answer->kind == PL_ANSWER_PROGRESS && w->run
                   && *answer->body->start_progress.address
               ? answer->body->start_progress.address
               : NULL;
}

static void launcher_tell(pl_worker_t *w, const pl_run_progress_t *report)
{
    pl_error_t err;
    if (pl_progress_run(w->run, report) == PL_OK)
        return;
    pl_no_memory(&err);
    pl_worker_fail(w, &err);
}

/* Where the ranks meet is for the launcher, and so is which devices they have. */
static void strategy_reported(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    const char *address = address_of(w, answer);
    if (!address)
        return;
    phase_begin(w, "waiting until all ranks have started", UNLIMITED, "");
    launcher_tell(w, &(pl_run_progress_t){.event = "alive",
                                          .metrics = "",
                                          .address = address});
}

static void accelerator_reported(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    const char *identity = address_of(w, answer);
    if (identity)
        launcher_tell(w, &(pl_run_progress_t){.event = "alive",
                                              .metrics = "",
                                              .device = identity});
}

bool pl_worker_spawn(pl_worker_t *w, const pl_actor_ops_t *ops, pl_where_t where,
                     const pl_start_t *start, pl_address_t *at, pl_error_t *err)
{
    return pl_spawn(w, ops, where, start,
                    (pl_how_t){.on_answer = pl_worker_component_ended}, at, err)
           != 0;
}

static void worker_beat(void *self)
{
    pl_worker_t *w = self;
    if (!w->run)
        return;
    int interval = pl_milliseconds(w->job->trainer->step_timeout) / 4 + 1;
    pl_progress_run(w->run, &(pl_run_progress_t){.event = "alive", .metrics = ""});
    pl_after(w, interval < PL_STEPS_BEAT_MS ? interval : PL_STEPS_BEAT_MS, worker_beat,
             NULL);
}

/* ---- a run ---- */

static int spawn_components(pl_worker_t *w, pl_error_t *err)
{
    const pl_actor_ops_t *strategy = pl_request_strategy(w->job, err);
    pl_start_t start = {.options = "",
                        .context = &w->job->object,
                        .ranks = w->ranks,
                        .local_rank = w->local_rank};
    pl_accelerator_probe(w->job, (int)w->local_rank);
    const char *device = pl_options_choice(w->job->options, "trainer.accelerator",
                                           pl_accelerator_auto(w->job->options));
    const pl_actor_ops_t *accelerator = pl_accelerator_actor(device, err);
    w->measures = pl_accelerator_measures(device);
    w->describes = pl_accelerator_describes(device);
    if (w->job->compiles && !pl_accelerator_keeps_kernels(device))
        return pl_fail(err, PL_EUNSUPPORTED,
                       "accelerator \"%s\" keeps no compiled kernels: there is nothing "
                       "to compile; for a card of another machine: paceline compile "
                       "--card sm_90",
                       device);
    if (!strategy || !accelerator
        || !pl_worker_spawn(w, &pl_io_writer, PL_OWN_THREAD, &start, &w->writer, err)
        || (w->job->stage == PL_TRAIN
            && !pl_worker_spawn(w, &pl_io_checkpoint, PL_OWN_THREAD, &start, &w->keeper,
                                err))
        || !pl_spawn(w, accelerator, PL_OWN_THREAD, &start,
                     (pl_how_t){.on_answer = accelerator_reported}, &w->accelerator, err))
        return err->code;
    char *options = pl_request_options(w->job, "trainer.strategy", err);
    pl_start_t strategy_start = {.options = options,
                                 .context = &w->job->object,
                                 .ranks = w->ranks};
    pl_peers_add(&strategy_start.peers, "accelerator", w->accelerator);
    const pl_how_t how = {.on_answer = strategy_reported};
    bool spawned = options
                   && pl_spawn(w, strategy, PL_SAME_THREAD, &strategy_start, how,
                               &w->strategy, err);
    pl_free(options);
    return spawned ? PL_OK : err->code;
}

/* ---- The device, once a second ---- */

enum { DEVICE_MS = 1000 };

static void device_measure(void *self);

/* Callbacks that have ended have ended the run by themselves. */
static void device_shown(void *self, const pl_answer_t *answer)
{
    (void)self, (void)answer;
}

/* A device that has failed fails the run by another call. */
static void device_measured(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    const pl_measure_device_reply_t *reply = &answer->body->measure_device_reply;
    const pl_show_device_t shown = {.memory_used = reply->memory_used,
                                    .memory_total = reply->memory_total,
                                    .utilization = reply->utilization,
                                    .power = reply->power,
                                    .temperature = reply->temperature};
    if (!pl_is_nobody(w->callback))
        pl_call_show_device(w, w->callback, &shown, (pl_how_t){.on_answer = device_shown},
                            NULL);
    pl_after(w, DEVICE_MS, device_measure, NULL);
}

static void device_measure(void *self)
{
    pl_worker_t *w = self;
    if (!w->run)
        return;
    pl_actor_does(w, w->run);                               /* viewers see of which run */
    pl_call_measure_device(w, w->accelerator, &(pl_measure_device_t){0},
                           (pl_how_t){.on_answer = device_measured}, NULL);
}

/* ---- The parts of a run ---- */

static void peak_measured(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    if (pl_worker_failed(w, answer))
        return;
    w->device_flops = answer->body->measure_peak_reply.flops;
    pl_worker_begin(w);
}

/* What the callbacks need has to be known before plans are made. */
static void interest_known(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    pl_error_t err = {0};
    if (pl_worker_failed(w, answer))
        return;
    uint32_t requests = answer->body->callback_hooks_reply.requests;
    const pl_how_t how = {.on_answer = peak_measured};
    pl_worker_phase(w, "measuring the device");
    w->accumulates = requests & PL_MAY_ACCUMULATE;
    if (requests & PL_NEEDS_PEAK && w->job->stage == PL_TRAIN)
        pl_worker_sent(w,
                       pl_call_measure_peak(w, w->accelerator, &(pl_measure_peak_t){0},
                                            how, &err),
                       &err);
    else
        pl_worker_begin(w);
}

static void data_split(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    pl_error_t err = {0};
    if (pl_worker_failed(w, answer))
        return;
    w->partition = answer->body->process_dataloader_reply.partition;
    w->partitions = answer->body->process_dataloader_reply.partitions;
    w->micro_shards = answer->body->process_dataloader_reply.micro_shards;
    w->even = answer->body->process_dataloader_reply.even;
    pl_worker_sent(w, pl_hooks_query(w, &w->hooks, interest_known, &err), &err);
}

/* The ranks have met: what they agree on can be asked for. */
static void role_known(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    pl_error_t err = {0};
    if (pl_worker_failed(w, answer))
        return;
    const pl_start_t start = {.options = "", .context = &w->job->object};
    const pl_process_dataloader_t msg = {.stage = w->job->stage};
    const bool agrees = answer->body->role_reply.agrees;
    pl_worker_phase(w, "starting callbacks and data readers");
    w->does_io = answer->body->role_reply.does_io;
    bool spawned = (agrees && !w->does_io)                  /* another has callbacks */
                   || pl_worker_spawn(w, &pl_callback_connector, PL_SAME_THREAD, &start,
                                      &w->callback, &err);
    spawned = spawned
              && (w->job->prompt || w->job->manual_signature
                  || pl_worker_spawn(w, &pl_data_connector, PL_SAME_THREAD, &start,
                                     &w->data, &err));
    if (spawned && w->measures)
        device_measure(w);
    w->hooks.callback = w->callback;
    if (agrees)
        w->hooks.coordinator = w->strategy;
    if (spawned)
        pl_worker_sent(w,
                       pl_call_process_dataloader(w, w->strategy, &msg,
                                                  (pl_how_t){.on_answer = data_split},
                                                  &err),
                       &err);
    else
        pl_worker_fail(w, &err);
}

static int worker_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_worker_t *w = self;
    if (w->job)
        return pl_fail(err, PL_ESTATE, "a worker runs once");
    w->job = pl_object_ref(body->run.job);
    pl_worker_phase(w, "starting the strategy");
    int code = strcmp(w->job->trainer->profiler, "simple") ? PL_OK
                                                           : pl_actor_profile(w, err);
    if (code == PL_OK)
        code = spawn_components(w, err);
    if (code != PL_OK)
        return code;
    if (!pl_call_role(w, w->strategy, &(pl_role_t){0},
                      (pl_how_t){.on_answer = role_known}, err))
        return err->code;
    w->run = call;
    stop_limit(w);
    worker_beat(w);
    return PL_OK;
}

static void joined(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY)
        pl_reply_join(answer->context, &(pl_join_reply_t){0});
    if (answer->kind != PL_ANSWER_ERROR)
        return;
    pl_call_fail(answer->context, answer->error);
    pl_worker_fail(self, answer->error);
}

static int worker_join(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    pl_worker_t *w = self;
    const pl_how_t how = {.on_answer = joined, .context = call};
    if (is_starting(w))
        pl_worker_phase_of_all(w, "connecting to the other ranks");
    return pl_call_join(w, w->strategy, &body->join, how, err) ? PL_OK : err->code;
}

static int worker_stop(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    pl_worker_t *w = self;
    snprintf(w->stop_reason, sizeof w->stop_reason, "%s", body->stop.reason);
    if (!pl_is_nobody(w->loop)
        && !pl_call_stop(w, w->loop, &(pl_stop_t){.reason = w->stop_reason},
                         (pl_how_t){0}, err))
        return err->code;
    stop_limit(w);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void worker_release(void *self)
{
    pl_worker_t *w = self;
    pl_worker_commands_release(w);
    pl_free(w->run_dir);
    pl_hooks_release(&w->hooks);
    pl_resume_release(&w->resume);
    pl_object_unref(w->weights);
    pl_object_unref(w->signature);
    pl_free(w->data_info);
    pl_text_free(w->found);
    pl_free(w->content);
    pl_object_unref(w->job);
}

static const pl_handler_t worker_handlers[] = {
    PL_ON(start, worker_start),        PL_ON(run, worker_run),
    PL_ON(join, worker_join),          PL_ON(stop, worker_stop),
    PL_ON(control, pl_worker_control), PL_HANDLERS_END,
};

const pl_actor_ops_t pl_worker = {
    .name = "worker",
    .help = "one rank's actors",
    .size = sizeof(pl_worker_t),
    .level = PL_LEVEL_WORKER,
    .handlers = worker_handlers,
    .release = worker_release,
};
