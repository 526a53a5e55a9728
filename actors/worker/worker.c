/* worker.c - the worker: one rank's actors, and their one address
 *
 * setup.c builds what a run needs, then the loop runs, and the worker adds the paths to
 * its outcome. During a run it sends a sign of life: its thread turns. Only the loops
 * know whether steps are made.
 *
 * Each phase of the setup has trainer.step_timeout to end, or to report progress.  After
 * a stop the phase has a moment more, because a setup that is nearly done ends in
 * order. */
#include "actors/worker/parts.h"

#include <stdio.h>
#include <string.h>

#include "accelerators/actor.h"
#include "accelerators/auto_select.h"
#include "actors/commands.h"
#include "actors/connectors/checkpoint_io.h"
#include "actors/connectors/connectors.h"
#include "actors/connectors/weights.h"
#include "actors/connectors/writer.h"
#include "actors/loops/loops.h"
#include "actors/request.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/options.h"
#include "base/run.h"
#include "base/timeouts.h"
#include "runtime/payload.h"
#include "telemetry/profile.h"

/* The launcher limits how long ranks may take to start, and each rank its own start and
 * the opening of its data. */
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

static void worker_tell_loggers(pl_worker_t *w, pl_run_status_t status)
{
    if (!pl_is_nobody(w->logger))
        pl_call_end_log(w, w->logger, &(pl_end_log_t){.status = status}, (pl_how_t){0},
                        NULL);
}

void pl_worker_suspect(pl_worker_t *w)
{
    const int timeout = pl_milliseconds(w->job->trainer->step_timeout);
    pl_actor_suspect(w, (*w->stop_reason && timeout > PL_STOP_SAVE_MS ? PL_STOP_SAVE_MS
                                                                      : timeout)
                            / 2);
}

void pl_worker_fail(void *self, const pl_error_t *error)
{
    pl_worker_t *w = self;
    pl_call_t *call = w->run;
    w->run = NULL;
    pl_sequence_end(&w->setup);
    pl_worker_commands_fail(w, "the run failed before it began");
    if (call)
        worker_tell_loggers(w, PL_RUN_STATUS_FAILED);
    if (error->code == PL_ESTUCK)
        pl_worker_suspect(w);
    if (call)
        pl_call_fail(call, error);
}

/* ---- limits of the setup ---- */

static bool is_starting(const pl_worker_t *w)
{
    return w->run && w->setup.step;
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

void pl_worker_phase(pl_worker_t *w, const pl_sequence_step_t *step)
{
    const double timeout = w->job->trainer->step_timeout;
    const char *phase = step->what;
    if (step->unlimited)
        phase_begin(w, phase, UNLIMITED, "");
    else if (step->all_ranks)
        phase_begin(w, phase, timeout * 1.25, "1.25 times trainer.step_timeout");
    else
        phase_begin(w, phase, timeout, "trainer.step_timeout");
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
    if (is_starting(w) && *w->stop_reason && w->stop_kind != PL_STOP_KIND_RESTART)
        pl_after(w, w->job->compiles ? 0 : PL_STOP_START_MS, stop_is_late, NULL);
}

void pl_worker_component_ended(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR)
        pl_worker_fail(self, answer->error);
}

/* Reports the address of a component that is ready to the launcher: the strategy's for
 * join, the accelerator's as the identity of the device. The context says which. */
static void component_reported(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    pl_error_t err;
    pl_worker_component_ended(w, answer);
    const char *address = answer->kind == PL_ANSWER_PROGRESS && w->run
                              ? answer->body->start_progress.address
                              : "";
    if (!*address)
        return;
    pl_run_progress_t report = {.event = PL_RUN_EVENT_ALIVE, .metrics = ""};
    if (answer->context == &w->strategy) {
        phase_begin(w, "waiting until all ranks have started", UNLIMITED,
                    "");                                    /* the launcher has a limit */
        report.address = address;
    } else {
        report.device = address;
    }
    if (pl_progress_run(w->run, &report) == PL_OK)
        return;
    pl_no_memory(&err);
    pl_worker_fail(w, &err);
}

/* ---- the actors that a run needs, and the addresses that they get ---- */

bool pl_worker_spawn(pl_worker_t *w, const pl_actor_ops_t *ops, pl_where_t where,
                     const pl_start_t *start, pl_address_t *at, pl_error_t *err)
{
    const pl_how_t how = {.on_answer = pl_worker_component_ended};
    return pl_spawn(w, ops, where, start, how, at, err) != 0;
}

int pl_worker_spawn_components(pl_worker_t *w, pl_error_t *err)
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
    const pl_accelerator_traits_t traits = pl_accelerator_traits(device);
    w->measures = traits.measures;
    w->describes = traits.describes;
    if (w->job->compiles && !traits.keeps_kernels)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "accelerator \"%s\" keeps no compiled kernels: there is nothing "
                       "to compile; for a card of another machine: paceline compile "
                       "RUN.json --card sm_90",
                       device);
    const pl_how_t device_how = {.on_answer = component_reported,
                                 .context = &w->accelerator};
    if (!strategy || !accelerator
        || !pl_worker_spawn(w, &pl_io_writer, PL_OWN_THREAD, &start, &w->writer, err)
        || (w->job->stage == PL_TRAIN
            && !pl_worker_spawn(w, &pl_io_checkpoint, PL_OWN_THREAD, &start,
                                &w->checkpoint_io, err))
        || !pl_spawn(w, accelerator, PL_OWN_THREAD, &start, device_how, &w->accelerator,
                     err))
        return err->code;
    char *options = pl_request_options(w->job, "trainer.strategy", err);
    pl_start_t strategy_start = {.options = options,
                                 .context = &w->job->object,
                                 .ranks = w->ranks};
    pl_peers_add(&strategy_start.peers, "accelerator", w->accelerator);
    const pl_how_t how = {.on_answer = component_reported, .context = &w->strategy};
    bool spawned = options
                   && pl_spawn(w, strategy, PL_SAME_THREAD, &strategy_start, how,
                               &w->strategy, err);
    pl_free(options);
    return spawned ? PL_OK : err->code;
}

bool pl_worker_spawn_savers(pl_worker_t *w, pl_error_t *err)
{
    char *options = pl_run_options_text(w->run_dir, w->content, err);
    pl_start_t start = {.options = options, .context = &w->job->object};
    pl_peers_add(&start.peers, "writer", w->writer);
    pl_peers_add(&start.peers, "checkpoint_io", w->checkpoint_io);
    bool spawned = options
                   && pl_worker_spawn(w, &pl_logger_connector, PL_SAME_THREAD, &start,
                                      &w->logger, err)
                   && (w->job->stage != PL_TRAIN
                       || pl_worker_spawn(w, &pl_checkpoint_connector, PL_SAME_THREAD,
                                          &start, &w->checkpoint, err));
    pl_text_free(options);
    return spawned;
}

static void peer_add(pl_start_t *start, const char *role, pl_address_t at)
{
    if (!pl_is_nobody(at))
        pl_peers_add(&start->peers, role, at);
}

bool pl_worker_spawn_loops(pl_worker_t *w, pl_error_t *err)
{
    pl_start_t start = {.options = "", .context = &w->job->object};
    pl_address_t evaluate, epoch;
    const pl_tuning_t *tuning = &w->job->tuning;
    const pl_actor_ops_t *loop = &pl_fit_loop;
    peer_add(&start, "data", w->data);
    pl_peers_add(&start.peers, "strategy", w->strategy);
    if (w->job->prompt) {
        start.options = w->weights->data_info;
        return pl_worker_spawn(w, &pl_generate_loop, PL_SAME_THREAD, &start, &w->loop,
                               err);
    }
    if (!pl_is_nobody(w->hooks.coordinator))
        pl_peers_add(&start.peers, "coordinator", w->strategy);
    if (tuning->num_training)
        return pl_worker_spawn(w, tuning->batch_size ? &pl_batch_size_finder : &pl_tuner,
                               PL_SAME_THREAD, &start, &w->loop, err);
    peer_add(&start, "callback", w->callback);
    peer_add(&start, "logger", w->logger);
    if (w->job->manual_signature) {
        peer_add(&start, "checkpoint", w->checkpoint);
        loop = &pl_manual_loop;
    } else if (w->job->stage == PL_PREDICT) {
        loop = &pl_predict_loop;
    } else {
        if (w->validates || w->job->stage != PL_TRAIN) {
            if (!pl_worker_spawn(w, &pl_evaluate_loop, PL_SAME_THREAD, &start, &evaluate,
                                 err))
                return false;
            pl_peers_add(&start.peers, "evaluate", evaluate);
        }
        if (w->job->stage != PL_TRAIN) {
            start.options = w->made;
            loop = &pl_measure_loop;
        } else {
            if (!pl_worker_spawn(w, &pl_epoch_loop, PL_SAME_THREAD, &start, &epoch, err))
                return false;
            pl_peers_add(&start.peers, "epoch", epoch);
            peer_add(&start, "checkpoint", w->checkpoint);
        }
    }
    return pl_worker_spawn(w, loop, PL_SAME_THREAD, &start, &w->loop, err);
}

/* ---- signs of life ---- */

static void worker_beat(void *self)
{
    pl_worker_t *w = self;
    if (!w->run)
        return;
    int interval = pl_milliseconds(w->job->trainer->step_timeout) / 4 + 1;
    pl_progress_run(w->run,
                    &(pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE, .metrics = ""});
    pl_after(w, interval < PL_STEPS_BEAT_MS ? interval : PL_STEPS_BEAT_MS, worker_beat,
             NULL);
}

/* ---- the device, once a second ---- */

enum { DEVICE_MS = 1000 };

/* A failed device fails the run through another call. */
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
        pl_call_show_device(w, w->callback, &shown,
                            (pl_how_t){.on_answer = pl_loop_ignore}, NULL);
    pl_after(w, DEVICE_MS, pl_worker_measure_device, NULL);
}

void pl_worker_measure_device(void *self)
{
    pl_worker_t *w = self;
    if (!w->run)
        return;
    pl_actor_does(w, w->run);                               /* viewers see the run */
    pl_call_measure_device(w, w->accelerator, &(pl_measure_device_t){0},
                           (pl_how_t){.on_answer = device_measured}, NULL);
}

/* ---- the end of the loop ---- */

static void worker_report(pl_worker_t *w)
{
    pl_outcome_t *outcome = w->outcome;
    pl_call_t *call = w->run;
    const bool can_resume = outcome->stopped || outcome->rollback,
               failed = outcome->error.code;
    worker_tell_loggers(w, failed && !outcome->rollback ? PL_RUN_STATUS_FAILED
                           : can_resume                 ? PL_RUN_STATUS_STOPPED
                                                        : PL_RUN_STATUS_OK);
    pl_worker_stop_note(w, outcome);
    w->run = NULL;
    w->outcome = NULL;
    if (outcome->error.code == PL_ESTUCK)
        pl_worker_suspect(w);
    pl_reply_run(call, &(pl_run_reply_t){.outcome = &outcome->object});
    pl_object_unref(outcome);
}

/* The last weights stay if the best cannot be read or written. */
static void best_read(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    pl_error_t err = {0};
    if ((answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR) || !w->run)
        return;
    if (answer->kind == PL_ANSWER_ERROR) {
        err = *answer->error;
    } else {
        pl_weights_t *best = (pl_weights_t *)answer->body->read_weights_reply.weights;
        pl_outcome_t *outcome = w->outcome;
        if (best->global_step != outcome->global_step
            && pl_run_weights_restore(w->run_dir, outcome->best, best, &outcome->metrics,
                                      &err)
                   == PL_OK) {
            pl_object_unref(outcome->weights);
            outcome->weights = pl_object_ref(best);
        }
    }
    if (err.code != PL_OK)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(w), pl_actor_name(w),
                    "the final weights are the last ones, not the best: %s", err.text);
    worker_report(w);
}

/* ---- the loop runs ---- */

/* {"files": [path, …]} with the file, the time or the row of each sample that was
 * predicted  [NULL: samples have numbers alone]. */
static char *names_text(const char *data_info)
{
    static const char *const keys[] = {PL_DATA_FILES, PL_DATA_TIMES, PL_DATA_ROWS};
    json_t *info = json_loads(data_info ? data_info : "{}", 0, NULL), *text = NULL;
    for (size_t k = 0; k < sizeof keys / sizeof *keys && !text; k++)
        if (json_object_get(info, keys[k]))
            text = json_pack("{s:O}", keys[k], json_object_get(info, keys[k]));
    char *written = text ? pl_json_write(text, PL_JSON_COMPACT) : NULL;
    json_decref(text);
    json_decref(info);
    return written;
}

static void worker_ran(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    bool has_begun = answer->kind == PL_ANSWER_REPLY;
    if (answer->kind == PL_ANSWER_PROGRESS) {
        pl_run_progress_t report = answer->body->run_progress;
        has_begun = report.global_step > 0;
        if (w->run
            && report.event == PL_RUN_EVENT_READY)     /* for the sender of its batches */
            pl_peers_add(&report.peers, "loop", w->loop);
        if (w->run)
            pl_progress_run(w->run, &report);
    }
    /* A run that fails before its first step does not become `latest`. */
    if (has_begun && w->run_dir && !w->begun)
        pl_call_run_begun(w, w->writer, &(pl_run_begun_t){.path = w->run_dir},
                          (pl_how_t){0}, NULL);
    w->begun |= has_begun;
    if (answer->kind == PL_ANSWER_REPLY || answer->kind == PL_ANSWER_ERROR)
        pl_profile_log(w);
    if (answer->kind == PL_ANSWER_ERROR)
        pl_worker_fail(w, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || !w->run)
        return;
    pl_outcome_t *outcome = (pl_outcome_t *)answer->body->run_reply.outcome;
    pl_error_t err = {0};
    bool restores = false;
    w->outcome = pl_object_ref(outcome);
    if (w->job->stage == PL_PREDICT && !w->job->prompt && !outcome->text)
        outcome->text = names_text(w->data_info);
    if (w->run_dir) {                             /* no other actor has the outcome yet */
        outcome->run_dir = pl_strdup(w->run_dir);
        if (!outcome->run_dir)
            pl_no_memory(&err);
        else if (outcome->callbacks && outcome->error.code != PL_ESTUCK)
            pl_run_weights_best(w->run_dir, outcome->callbacks, &outcome->best, &restores,
                                &err);
        if (outcome->error.code == PL_OK)
            outcome->error = err;
    }
    const pl_read_weights_t best = {.path = outcome->best};
    if (!restores || outcome->error.code != PL_OK || outcome->rollback
        || !pl_call_read_weights(w, w->writer, &best, (pl_how_t){.on_answer = best_read},
                                 NULL))
        worker_report(w);
}

void pl_worker_run_loop(void *self)
{
    pl_worker_t *w = self;
    pl_error_t err = {0};
    const pl_run_t msg = {.job = &w->job->object};
    const pl_how_t how = {.on_answer = worker_ran};
    if (!pl_call_run(w, w->loop, &msg, how, &err)) {
        pl_worker_fail(w, &err);
        return;
    }
    pl_worker_commands_begin(w);
    if (*w->stop_reason)
        pl_call_stop(w, w->loop,
                     &(pl_stop_t){.reason = w->stop_reason, .kind = w->stop_kind},
                     (pl_how_t){0}, NULL);
}

/* ---- calls from the launcher ---- */

static int worker_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_worker_t *w = self;
    if (w->job)
        return pl_fail(err, PL_ESTATE, "a worker runs once");
    w->job = pl_object_ref(body->run.job);
    if (w->job->trainer->profiler == PL_PROFILE_SIMPLE
        && pl_profile_start(w, err) != PL_OK)
        return err->code;
    w->run = call;
    pl_worker_set_up(w);
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
        pl_worker_phase(w, &(pl_sequence_step_t){.what = "connecting to the other ranks",
                                                 .all_ranks = true});
    return pl_call_join(w, w->strategy, &body->join, how, err) ? PL_OK : err->code;
}

static int worker_stop(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    pl_worker_t *w = self;
    snprintf(w->stop_reason, sizeof w->stop_reason, "%s", body->stop.reason);
    w->stop_kind = body->stop.kind;
    stop_limit(w);
    return pl_is_nobody(w->loop)
               ? pl_reply_stop(call, &(pl_stop_reply_t){0})
               : pl_forward(w, call, w->loop, PL_MESSAGE_stop, body, err);
}

static void worker_release(void *self)
{
    pl_worker_t *w = self;
    pl_worker_commands_release(w);
    pl_free(w->run_dir);
    pl_hooks_release(&w->hooks);
    pl_resume_release(&w->resume);
    pl_object_unref(w->weights);
    pl_object_unref(w->outcome);
    pl_object_unref(w->signature);
    pl_free(w->data_info);
    pl_text_free(w->found);
    pl_free(w->content);
    pl_free(w->loader);
    pl_free(w->agreed);
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
