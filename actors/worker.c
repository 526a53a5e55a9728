/* worker.c - the worker: one rank's actors, and their one address
 *
 * It builds what a run needs from the bottom up and knows the order: data say what
 * they are, the strategy sets the module up for them, weights come in, the run gets
 * its folder, then the loop runs.  What the parts do is theirs. While a run goes on it
 * gives a sign of life of its own: that this thread turns. */
#include "actors/worker.h"

#include <stdio.h>
#include <string.h>

#include "accelerators/actor.h"
#include "actors/connectors/callback.h"
#include "actors/connectors/checkpoint.h"
#include "actors/connectors/checkpoint_io.h"
#include "actors/connectors/data.h"
#include "actors/connectors/logger.h"
#include "actors/connectors/run_options.h"
#include "actors/connectors/writer.h"
#include "actors/first_weights.h"
#include "actors/loops/loops.h"
#include "actors/request.h"
#include "actors/resume.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "runtime/cargo.h"
#include "tensor/graph.h"

enum { BEAT_MS = 500 };                                     /* at most */

typedef struct worker {
    pl_call_t *run;                                         /* NULL: idle */
    pl_job_t *job;                                          /* counted */
    pl_address_t writer, keeper, data, callback, accelerator, strategy, logger,
        checkpoint, loop;
    bool validates, does_io, accumulates, begun;  /* begun: it has made steps */
    double device_flops;                   /* measured  [0: not] */
    pl_weights_t *weights;                 /* to start from, counted  [NULL] */
    char *run_dir, made[64];               /* made: the weights' step, for who measures */
    pl_resume_t resume;
    int given;                               /* parts that have their state again */
    char stop_reason[128];                   /* asked for before there was a loop  [""] */
} worker_t;

static int worker_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    pl_actor_ready(self);
    return PL_OK;
}

/* ---- failing ---- */

static void tell_loggers(worker_t *w, const char *status)
{
    if (!pl_is_nobody(w->logger))
        pl_call_end_log(w, w->logger, &(pl_end_log_t){.status = status}, (pl_how_t){0},
                        NULL);
}

static void worker_fail(worker_t *w, const pl_error_t *error)
{
    pl_call_t *call = w->run;
    w->run = NULL;
    if (call)
        tell_loggers(w, "failed");
    if (error->code == PL_ESTUCK)    /* somebody has waited for step_timeout, or nearly */
        pl_actor_suspect(w, pl_milliseconds(w->job->trainer->step_timeout) / 2);
    if (call)
        pl_call_fail(call, error);
}

static bool worker_failed(worker_t *w, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR)
        worker_fail(w, answer->error);
    return answer->kind != PL_ANSWER_REPLY || !w->run;
}

/* The strategy has not gone on with what it was asked for. */
static void worker_late(worker_t *w, const pl_answer_t *answer, const char *what)
{
    pl_error_t err;
    if (answer->kind != PL_ANSWER_LATE)
        return;
    pl_fail(&err, PL_ESTUCK, "%s has not ended for %g s (trainer.step_timeout)", what,
            w->job->trainer->step_timeout);
    worker_fail(w, &err);
}

static void worker_sent(worker_t *w, uint64_t call, const pl_error_t *err)
{
    if (!call)
        worker_fail(w, err);
}

/* An actor of this rank has ended unasked, or has not taken what it was told. */
static void part_ended(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR)
        worker_fail(self, answer->error);
}

static bool spawn(worker_t *w, const pl_actor_ops_t *ops, pl_where_t where,
                  const pl_start_t *start, pl_address_t *at, pl_error_t *err)
{
    return pl_spawn(w, ops, where, start, (pl_how_t){.on_answer = part_ended}, at, err)
           != 0;
}

static void worker_beat(void *self)
{
    worker_t *w = self;
    if (!w->run)
        return;
    int patience = pl_milliseconds(w->job->trainer->step_timeout) / 4 + 1;
    pl_progress_run(w->run, &(pl_run_progress_t){.event = "alive", .metrics = ""});
    pl_after(w, patience < BEAT_MS ? patience : BEAT_MS, worker_beat, NULL);
}

/* ---- the loop runs ---- */

/* What fails before its first step does not become `latest`. */
static void worker_begun(worker_t *w)
{
    if (w->run_dir && !w->begun)
        pl_call_run_begun(w, w->writer, &(pl_run_begun_t){.path = w->run_dir},
                          (pl_how_t){0}, NULL);
    w->begun = true;
}

static void worker_ran(void *self, const pl_answer_t *answer)
{
    worker_t *w = self;
    if (answer->kind == PL_ANSWER_PROGRESS && w->run)
        pl_progress_run(w->run, &answer->body->run_progress);
    if (answer->kind == PL_ANSWER_REPLY
        || (answer->kind == PL_ANSWER_PROGRESS
            && answer->body->run_progress.global_step > 0))
        worker_begun(w);
    if (answer->kind == PL_ANSWER_REPLY || answer->kind == PL_ANSWER_ERROR)
        pl_actor_profile_log(w);
    if (worker_failed(w, answer))
        return;
    pl_outcome_t *outcome = (pl_outcome_t *)answer->body->run_reply.outcome;
    pl_call_t *call = w->run;
    if (w->run_dir)
        outcome->run_dir = pl_strdup(w->run_dir);        /* nobody else has seen it yet */
    if (w->run_dir && !outcome->run_dir && outcome->error.code == PL_OK)
        pl_no_memory(&outcome->error);
    const bool goes_on = outcome->stopped || outcome->back, failed = outcome->error.code;
    tell_loggers(w, failed && !outcome->back ? "failed" : goes_on ? "stopped" : "ok");
    w->run = NULL;
    pl_reply_run(call, &(pl_run_reply_t){.outcome = &outcome->object});
}

static bool spawn_loops(worker_t *w, pl_error_t *err)
{
    pl_start_t start = {.options = "", .context = &w->job->object};
    pl_address_t evaluate, epoch;
    if (!pl_is_nobody(w->data))
        pl_peers_add(&start.peers, "data", w->data);
    pl_peers_add(&start.peers, "strategy", w->strategy);
    if (w->job->prompt) {
        start.options = w->weights->facts;
        return spawn(w, &pl_generate_loop, PL_SAME_THREAD, &start, &w->loop, err);
    }
    const pl_tuning_t *tuning = &w->job->tuning;
    if (tuning->num_training)
        return spawn(w, tuning->batch_size ? &pl_batch_size_finder : &pl_tuner,
                     PL_SAME_THREAD, &start, &w->loop, err);
    pl_peers_add(&start.peers, "callback", w->callback);
    if (!pl_is_nobody(w->logger))
        pl_peers_add(&start.peers, "logger", w->logger);
    if (w->job->stage == PL_PREDICT)
        return spawn(w, &pl_predict_loop, PL_SAME_THREAD, &start, &w->loop, err);
    if (w->validates || w->job->stage != PL_TRAIN) {
        if (!spawn(w, &pl_evaluate_loop, PL_SAME_THREAD, &start, &evaluate, err))
            return false;
        pl_peers_add(&start.peers, "evaluate", evaluate);
    }
    if (w->job->stage != PL_TRAIN) {
        start.options = w->made;
        return spawn(w, &pl_measure_loop, PL_SAME_THREAD, &start, &w->loop, err);
    }
    if (!spawn(w, &pl_epoch_loop, PL_SAME_THREAD, &start, &epoch, err))
        return false;
    pl_peers_add(&start.peers, "epoch", epoch);
    if (!pl_is_nobody(w->checkpoint))
        pl_peers_add(&start.peers, "checkpoint", w->checkpoint);
    return spawn(w, &pl_fit_loop, PL_SAME_THREAD, &start, &w->loop, err);
}

static bool spawn_savers(worker_t *w, pl_error_t *err)
{
    char *options = pl_run_options_text(w->run_dir, err);
    pl_start_t start = {.options = options, .context = &w->job->object};
    pl_peers_add(&start.peers, "writer", w->writer);
    pl_peers_add(&start.peers, "keeper", w->keeper);
    bool spawned =
        options && spawn(w, &pl_logger_connector, PL_SAME_THREAD, &start, &w->logger, err)
        && (w->job->stage != PL_TRAIN
            || spawn(w, &pl_checkpoint_connector, PL_SAME_THREAD, &start, &w->checkpoint,
                     err));
    pl_text_free(options);
    return spawned;
}

static void worker_run_loop(worker_t *w)
{
    pl_error_t err = {0};
    pl_run_t msg = {.job = &w->job->object};
    pl_how_t how = {.on_answer = worker_ran};
    worker_sent(w, pl_call_run(w, w->loop, &msg, how, &err), &err);
    if (w->run && w->stop_reason[0])
        pl_call_stop(w, w->loop, &(pl_stop_t){.reason = w->stop_reason}, (pl_how_t){0},
                     NULL);
}

static void give_state(worker_t *w);

static void state_given(void *self, const pl_answer_t *answer)
{
    if (!worker_failed(self, answer))
        give_state(self);
}

/* Each part gets back what it kept, one after the other; then the run goes on. */
static void give_state(worker_t *w)
{
    enum { PARTS = 4 };
    static const char *const parts[PARTS] = {"loggers", "resumed", "callbacks",
                                             "progress"};
    const pl_address_t at[PARTS] = {w->logger, w->checkpoint, w->callback, w->loop};
    pl_error_t err = {0};
    while (w->given < PARTS && pl_is_nobody(at[w->given]))
        w->given++;
    if (!w->resume.manifest || w->given == PARTS) {
        worker_run_loop(w);
        return;
    }
    char *state = pl_resume_state(&w->resume, parts[w->given], &err);
    pl_how_t how = {.on_answer = state_given};
    uint64_t call = state
                        ? pl_call_set_state(w, at[w->given],
                                            &(pl_set_state_t){.state = state}, how, &err)
                        : 0;
    w->given++;
    pl_text_free(state);
    worker_sent(w, call, &err);
}

static void worker_go(worker_t *w)
{
    pl_error_t err = {0};
    if (spawn_loops(w, &err))
        give_state(w);
    else
        worker_fail(w, &err);
}

/* ---- the run's folder ---- */

static void checkpoint_finished(void *self, const pl_answer_t *answer)
{
    if (!worker_failed(self, answer))
        worker_go(self);
}

/* Only now that the run is known to go on from it, and nobody else writes there. */
static void finish_checkpoint(worker_t *w)
{
    pl_error_t err = {0};
    const pl_finish_checkpoint_t msg = {.path = w->resume.path,
                                        .run_dir = w->resume.run_dir};
    const pl_how_t how = {.on_answer = checkpoint_finished};
    worker_sent(w, pl_call_finish_checkpoint(w, w->keeper, &msg, how, &err), &err);
}

static void run_dir_made(void *self, const pl_answer_t *answer)
{
    worker_t *w = self;
    pl_error_t err = {0};
    if (worker_failed(w, answer))
        return;
    w->run_dir = pl_strdup(answer->body->make_run_dir_reply.path);
    pl_progress_run(w->run, &(pl_run_progress_t){.event = "alive",
                                                 .metrics = "",
                                                 .run_dir = w->run_dir});
    if (!w->run_dir || !spawn_savers(w, &err)) {
        if (!err.code)
            pl_no_memory(&err);
        worker_fail(w, &err);
        return;
    }
    if (w->resume.run_dir)
        finish_checkpoint(w);
    else
        worker_go(w);
}

static void make_run_dir(worker_t *w)
{
    pl_error_t err = {0};
    char *run = pl_options_print(w->job->options, &err),
         *root = run ? pl_request_root(w->job, &err) : NULL;
    pl_make_run_dir_t msg = {.root = root,
                             .name = pl_request_name(w->job),
                             .run = run,
                             .there = w->resume.run_dir ? w->resume.run_dir : "",
                             .aside = w->job->resumes && !w->resume.run_dir};
    pl_how_t how = {.on_answer = run_dir_made};
    worker_sent(w, root ? pl_call_make_run_dir(w, w->writer, &msg, how, &err) : 0, &err);
    pl_text_free(root);
    pl_text_free(run);
}

/* ---- weights from a file, the strategy, the data ---- */

static void worker_prepared(worker_t *w)
{
    if (w->does_io && pl_request_writes(w->job))
        make_run_dir(w);
    else
        worker_go(w);
}

/* The device has them; what they say besides is asked for by who answers a prompt. */
static void weights_let_go(worker_t *w)
{
    if (w->job->prompt)
        return;
    pl_object_unref(w->weights);
    w->weights = NULL;
}

static void weights_imported(void *self, const pl_answer_t *answer)
{
    worker_t *w = self;
    worker_late(w, answer, "taking over weights");
    if (answer->kind == PL_ANSWER_ERROR) {
        pl_error_t err = *answer->error;
        pl_pass(&err, "%s", pl_first_weights_path(w->job));
        worker_fail(w, &err);
    } else if (answer->kind == PL_ANSWER_REPLY) {
        weights_let_go(w);
        worker_prepared(w);
    }
}

static void strategy_set_up(void *self, const pl_answer_t *answer)
{
    worker_t *w = self;
    pl_error_t err = {0};
    worker_late(w, answer, "compiling the module's steps");
    if (worker_failed(w, answer))
        return;
    w->does_io = answer->body->setup_reply.does_io;
    pl_show_model_t shown = {.model = answer->body->setup_reply.model,
                             .device_flops = w->device_flops,
                             .validates = w->validates};
    if (!pl_call_show_model(w, w->callback, &shown, (pl_how_t){.on_answer = part_ended},
                            &err)) {
        worker_fail(w, &err);
        return;
    }
    if (!w->weights) {
        worker_prepared(w);
        return;
    }
    pl_import_weights_t msg = {.weights = &w->weights->object,
                               .whole = w->resume.manifest != NULL};
    pl_how_t how = {.on_answer = weights_imported,
                    .silence_ms = pl_milliseconds(w->job->trainer->step_timeout)};
    worker_sent(w, pl_call_import_weights(w, w->strategy, &msg, how, &err), &err);
}

static void set_up(worker_t *w, pl_layout_t *layout, const char *facts)
{
    pl_error_t err = {0};
    pl_setup_t msg = {.job = &w->job->object,
                      .facts = facts,
                      .layout = &layout->object,
                      .accumulates = w->accumulates,
                      .imports = w->weights && !pl_first_weights_partly(w->job)};
    pl_how_t how = {.on_answer = strategy_set_up,
                    .silence_ms = pl_milliseconds(w->job->trainer->step_timeout)};
    w->validates = layout->stage[PL_VALIDATE].present;
    worker_sent(w, pl_call_setup(w, w->strategy, &msg, how, &err), &err);
}

static void data_opened(void *self, const pl_answer_t *answer)
{
    worker_t *w = self;
    if (worker_failed(w, answer))
        return;
    const pl_open_data_reply_t *reply = &answer->body->open_data_reply;
    /* What the module was made for goes before, unless it trains on. */
    bool known = w->weights && w->weights->facts && w->job->stage != PL_TRAIN;
    set_up(w, (pl_layout_t *)reply->layout, known ? w->weights->facts : reply->facts);
}

/* What the batches will look like: the data say, or, when text goes on from a prompt,
 * what the weights bring along of the data they were trained on. */
static void find_layout(worker_t *w)
{
    pl_error_t err = {0};
    pl_open_data_t msg = {.stage = w->job->stage,
                          .facts = w->weights && w->weights->facts ? w->weights->facts
                                                                   : ""};
    const pl_how_t how = {.on_answer = data_opened};
    if (!w->job->prompt) {
        worker_sent(w, pl_call_open_data(w, w->data, &msg, how, &err), &err);
        return;
    }
    pl_layout_t *layout = pl_generate_layout(w->weights->facts, &err);
    if (layout)
        set_up(w, layout, w->weights->facts);
    else
        worker_fail(w, &err);
    pl_object_unref(layout);
}

static void weights_read(void *self, const pl_answer_t *answer)
{
    worker_t *w = self;
    pl_error_t err = {0};
    if (worker_failed(w, answer))
        return;
    w->weights = pl_object_ref(answer->body->read_weights_reply.weights);
    pl_first_weights_made(w->weights, w->made);
    if (pl_first_weights_check(w, w->job, w->weights, &err) == PL_OK)
        find_layout(w);
    else
        worker_fail(w, &err);
}

static void begin_afresh(worker_t *w)
{
    pl_error_t err = {0};
    const pl_read_weights_t msg = {.path = pl_first_weights_path(w->job)};
    const pl_how_t how = {.on_answer = weights_read};
    if (msg.path)
        worker_sent(w, pl_call_read_weights(w, w->writer, &msg, how, &err), &err);
    else
        find_layout(w);
}

/* ---- a checkpoint to go on from, if it is to ---- */

static void checkpoint_found(void *self, const pl_answer_t *answer)
{
    worker_t *w = self;
    pl_error_t err = {0};
    if (worker_failed(w, answer))
        return;
    const pl_find_checkpoint_reply_t *found = &answer->body->find_checkpoint_reply;
    if (pl_resume_take(&w->resume, w->job, w, found, &err) != PL_OK) {
        worker_fail(w, &err);
        return;
    }
    w->weights = pl_object_ref(found->weights);
    if (w->weights)
        find_layout(w);
    else
        begin_afresh(w);
}

static void find_checkpoint(worker_t *w)
{
    pl_error_t err = {0};
    if (!w->job->resumes) {
        begin_afresh(w);
        return;
    }
    const pl_find_checkpoint_t msg = {.root = w->job->trainer->default_root_dir,
                                      .run_name = w->job->trainer->run_name,
                                      .from = w->job->resume ? w->job->resume : ""};
    const pl_how_t how = {.on_answer = checkpoint_found};
    worker_sent(w, pl_call_find_checkpoint(w, w->keeper, &msg, how, &err), &err);
}

/* ---- a run ---- */

static int spawn_parts(worker_t *w, pl_error_t *err)
{
    const pl_actor_ops_t *strategy = pl_request_strategy(w->job, err);
    pl_start_t start = {.options = "", .context = &w->job->object};
    const char *device = pl_options_choice(w->job->options, "trainer.accelerator", "cpu");
    const pl_actor_ops_t *accelerator = pl_accelerator_actor(device, err);
    if (!strategy || !accelerator
        || !spawn(w, &pl_io_writer, PL_OWN_THREAD, &start, &w->writer, err)
        || (w->job->stage == PL_TRAIN
            && !spawn(w, &pl_io_checkpoint, PL_OWN_THREAD, &start, &w->keeper, err))
        || !spawn(w, accelerator, PL_OWN_THREAD, &start, &w->accelerator, err))
        return err->code;
    char *options = pl_request_options(w->job, "trainer.strategy", err);
    pl_start_t strategy_start = {.options = options, .context = &w->job->object};
    pl_peers_add(&strategy_start.peers, "accelerator", w->accelerator);
    bool spawned =
        options && spawn(w, strategy, PL_SAME_THREAD, &strategy_start, &w->strategy, err);
    pl_free(options);
    if (!spawned
        || !spawn(w, &pl_callback_connector, PL_SAME_THREAD, &start, &w->callback, err)
        || (!w->job->prompt
            && !spawn(w, &pl_data_connector, PL_SAME_THREAD, &start, &w->data, err)))
        return err->code;
    return PL_OK;
}

static void peak_measured(void *self, const pl_answer_t *answer)
{
    worker_t *w = self;
    worker_late(w, answer, "measuring the device");
    if (worker_failed(w, answer))
        return;
    w->device_flops = answer->body->measure_peak_reply.flops;
    find_checkpoint(w);
}

/* What the callbacks need has to be known before plans are made. */
static void interest_known(void *self, const pl_answer_t *answer)
{
    worker_t *w = self;
    pl_error_t err = {0};
    if (worker_failed(w, answer))
        return;
    uint32_t wishes = answer->body->interest_reply.wishes;
    pl_how_t how = {.on_answer = peak_measured,
                    .silence_ms = pl_milliseconds(w->job->trainer->step_timeout)};
    w->accumulates = wishes & PL_MAY_ACCUMULATE;
    if (wishes & PL_NEEDS_PEAK && w->job->stage == PL_TRAIN)
        worker_sent(w,
                    pl_call_measure_peak(w, w->accelerator, &(pl_measure_peak_t){0}, how,
                                         &err),
                    &err);
    else
        find_checkpoint(w);
}

static int worker_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    worker_t *w = self;
    if (w->job)
        return pl_fail(err, PL_ESTATE, "a worker runs once");
    w->job = pl_object_ref(body->run.job);
    int code = strcmp(w->job->trainer->profiler, "simple") ? PL_OK
                                                           : pl_actor_profile(w, err);
    if (code == PL_OK)
        code = spawn_parts(w, err);
    if (code != PL_OK)
        return code;
    if (!pl_call_interest(w, w->callback, &(pl_interest_t){0},
                          (pl_how_t){.on_answer = interest_known}, err))
        return err->code;
    w->run = call;
    worker_beat(w);
    return PL_OK;
}

static int worker_stop(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    worker_t *w = self;
    snprintf(w->stop_reason, sizeof w->stop_reason, "%s", body->stop.reason);
    if (!pl_is_nobody(w->loop)
        && !pl_call_stop(w, w->loop, &(pl_stop_t){.reason = w->stop_reason},
                         (pl_how_t){0}, err))
        return err->code;
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void worker_release(void *self)
{
    worker_t *w = self;
    pl_free(w->run_dir);
    pl_resume_release(&w->resume);
    pl_object_unref(w->weights);
    pl_object_unref(w->job);
}

static const pl_handler_t worker_handlers[] = {
    PL_ON(start, worker_start),
    PL_ON(run, worker_run),
    PL_ON(stop, worker_stop),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_worker = {
    .name = "worker",
    .help = "one rank's actors",
    .size = sizeof(worker_t),
    .level = PL_LEVEL_WORKER,
    .handlers = worker_handlers,
    .release = worker_release,
};
