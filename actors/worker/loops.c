/* loops.c - the worker's upper half: the run's folder, what is to be kept, and the
 * loop */
#include <string.h>

#include "actors/connectors/connectors.h"
#include "actors/connectors/writer.h"
#include "actors/connectors/weights.h"
#include "actors/loops/loops.h"
#include "actors/request.h"
#include "actors/worker/parts.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "base/run.h"

/* ---- the loop runs ---- */

/* What fails before its first step does not become `latest`. */
static void worker_begun(pl_worker_t *w)
{
    if (w->run_dir && !w->begun)
        pl_call_run_begun(w, w->writer, &(pl_run_begun_t){.path = w->run_dir},
                          (pl_how_t){0}, NULL);
    w->begun = true;
}

/* Who sends the loop batches is told where it is. */
static void worker_report(const pl_worker_t *w, pl_run_progress_t report)
{
    if (!strcmp(report.event, "ready"))
        pl_peers_add(&report.peers, "loop", w->loop);
    pl_progress_run(w->run, &report);
}

/* Where it has written; nobody else has seen the outcome yet. */
static void worker_places(const pl_worker_t *w, pl_outcome_t *outcome)
{
    pl_error_t err = {0};
    if (!w->run_dir)
        return;
    outcome->run_dir = pl_strdup(w->run_dir);
    if (!outcome->run_dir)
        pl_no_memory(&err);
    else if (outcome->callbacks && outcome->error.code != PL_ESTUCK)
        pl_run_weights_best(w->run_dir, outcome->callbacks, &outcome->best, &err);
    if (outcome->error.code == PL_OK)
        outcome->error = err;
}

static void worker_ran(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    if (answer->kind == PL_ANSWER_PROGRESS && w->run)
        worker_report(w, answer->body->run_progress);
    if (answer->kind == PL_ANSWER_REPLY
        || (answer->kind == PL_ANSWER_PROGRESS
            && answer->body->run_progress.global_step > 0))
        worker_begun(w);
    if (answer->kind == PL_ANSWER_REPLY || answer->kind == PL_ANSWER_ERROR)
        pl_actor_profile_log(w);
    if (pl_worker_failed(w, answer))
        return;
    pl_outcome_t *outcome = (pl_outcome_t *)answer->body->run_reply.outcome;
    pl_call_t *call = w->run;
    worker_places(w, outcome);
    const bool can_resume = outcome->stopped || outcome->rollback,
               failed = outcome->error.code;
    pl_worker_tell_loggers(w, failed && !outcome->rollback ? "failed"
                              : can_resume                 ? "stopped"
                                                           : "ok");
    pl_worker_stop_note(w, outcome);
    w->run = NULL;
    if (outcome->error.code == PL_ESTUCK)
        pl_worker_suspect(w);
    pl_reply_run(call, &(pl_run_reply_t){.outcome = &outcome->object});
}

static bool spawn_loops(pl_worker_t *w, pl_error_t *err)
{
    pl_start_t start = {.options = "", .context = &w->job->object};
    pl_address_t evaluate, epoch;
    if (!pl_is_nobody(w->data))
        pl_peers_add(&start.peers, "data", w->data);
    pl_peers_add(&start.peers, "strategy", w->strategy);
    if (w->job->prompt) {
        start.options = w->weights->data_info;
        return pl_worker_spawn(w, &pl_generate_loop, PL_SAME_THREAD, &start, &w->loop,
                               err);
    }
    if (!pl_is_nobody(w->hooks.coordinator))
        pl_peers_add(&start.peers, "coordinator", w->strategy);
    const pl_tuning_t *tuning = &w->job->tuning;
    if (tuning->num_training)
        return pl_worker_spawn(w, tuning->batch_size ? &pl_batch_size_finder : &pl_tuner,
                               PL_SAME_THREAD, &start, &w->loop, err);
    if (!pl_is_nobody(w->callback))
        pl_peers_add(&start.peers, "callback", w->callback);
    if (!pl_is_nobody(w->logger))
        pl_peers_add(&start.peers, "logger", w->logger);
    if (w->job->manual_signature) {
        if (!pl_is_nobody(w->checkpoint))
            pl_peers_add(&start.peers, "checkpoint", w->checkpoint);
        return pl_worker_spawn(w, &pl_manual_loop, PL_SAME_THREAD, &start, &w->loop, err);
    }
    if (w->job->stage == PL_PREDICT)
        return pl_worker_spawn(w, &pl_predict_loop, PL_SAME_THREAD, &start, &w->loop,
                               err);
    if (w->validates || w->job->stage != PL_TRAIN) {
        if (!pl_worker_spawn(w, &pl_evaluate_loop, PL_SAME_THREAD, &start, &evaluate,
                             err))
            return false;
        pl_peers_add(&start.peers, "evaluate", evaluate);
    }
    if (w->job->stage != PL_TRAIN) {
        start.options = w->made;
        return pl_worker_spawn(w, &pl_measure_loop, PL_SAME_THREAD, &start, &w->loop,
                               err);
    }
    if (!pl_worker_spawn(w, &pl_epoch_loop, PL_SAME_THREAD, &start, &epoch, err))
        return false;
    pl_peers_add(&start.peers, "epoch", epoch);
    if (!pl_is_nobody(w->checkpoint))
        pl_peers_add(&start.peers, "checkpoint", w->checkpoint);
    return pl_worker_spawn(w, &pl_fit_loop, PL_SAME_THREAD, &start, &w->loop, err);
}

static bool spawn_savers(pl_worker_t *w, pl_error_t *err)
{
    char *options = pl_run_options_text(w->run_dir, w->content, err);
    pl_start_t start = {.options = options, .context = &w->job->object};
    pl_peers_add(&start.peers, "writer", w->writer);
    pl_peers_add(&start.peers, "keeper", w->keeper);
    bool spawned = options
                   && pl_worker_spawn(w, &pl_logger_connector, PL_SAME_THREAD, &start,
                                      &w->logger, err)
                   && (w->job->stage != PL_TRAIN
                       || pl_worker_spawn(w, &pl_checkpoint_connector, PL_SAME_THREAD,
                                          &start, &w->checkpoint, err));
    pl_text_free(options);
    return spawned;
}

static void worker_run_loop(pl_worker_t *w)
{
    pl_error_t err = {0};
    pl_run_t msg = {.job = &w->job->object};
    pl_how_t how = {.on_answer = worker_ran};
    pl_worker_sent(w, pl_call_run(w, w->loop, &msg, how, &err), &err);
    if (w->run)
        pl_worker_commands_begin(w);
    if (w->run && w->stop_reason[0])
        pl_call_stop(w, w->loop, &(pl_stop_t){.reason = w->stop_reason}, (pl_how_t){0},
                     NULL);
}

static void give_state(pl_worker_t *w);

static void state_given(void *self, const pl_answer_t *answer)
{
    if (!pl_worker_failed(self, answer))
        give_state(self);
}

/* Each part gets back what it kept, one after the other; then the run goes on. */
static void give_state(pl_worker_t *w)
{
    enum { COMPONENTS = 4 };
    static const char *const components[COMPONENTS] = {"loggers", "resumed", "callbacks",
                                                       "progress"};
    const pl_address_t at[COMPONENTS] = {w->logger, w->checkpoint, w->callback, w->loop};
    pl_error_t err = {0};
    while (w->given < COMPONENTS && pl_is_nobody(at[w->given]))
        w->given++;
    if (!w->resume.manifest || w->given == COMPONENTS) {
        worker_run_loop(w);
        return;
    }
    char *state = pl_resume_state(&w->resume, components[w->given], &err);
    pl_how_t how = {.on_answer = state_given};
    pl_worker_phase(w, "restoring the state of the run");
    uint64_t call = state
                        ? pl_call_set_state(w, at[w->given],
                                            &(pl_set_state_t){.state = state}, how, &err)
                        : 0;
    w->given++;
    pl_text_free(state);
    pl_worker_sent(w, call, &err);
}

static void worker_go(pl_worker_t *w)
{
    pl_error_t err = {0};
    if (spawn_loops(w, &err))
        give_state(w);
    else
        pl_worker_fail(w, &err);
}

/* ---- the run's folder ---- */

static void checkpoint_finished(void *self, const pl_answer_t *answer)
{
    if (!pl_worker_failed(self, answer))
        worker_go(self);
}

/* Only now that the run is known to go on from it, and nobody else writes there. */
static void finish_checkpoint(pl_worker_t *w)
{
    pl_error_t err = {0};
    const pl_finish_checkpoint_t msg = {.path = w->resume.path,
                                        .run_dir = w->resume.run_dir};
    const pl_how_t how = {.on_answer = checkpoint_finished};
    pl_worker_phase(w, "completing the checkpoint that the run resumes from");
    pl_worker_sent(w, pl_call_finish_checkpoint(w, w->keeper, &msg, how, &err), &err);
}

/* With it what who watches wants to know of the run. */
static void tell_run_dir(const pl_worker_t *w)
{
    char *options = pl_options_text(w->job->options, NULL);
    const pl_trainer_options_t *t = w->job->trainer;
    const bool by_norm = !strcmp(t->gradient_clip_algorithm, "norm");
    const pl_run_progress_t report = {.event = "alive",
                                      .metrics = "",
                                      .run_dir = w->run_dir,
                                      .module = pl_options_choice(w->job->options,
                                                                  "module", ""),
                                      .options = options ? options : "",
                                      .clip = by_norm ? t->gradient_clip_val : 0};
    pl_progress_run(w->run, &report);
    pl_text_free(options);
}

static void run_dir_made(void *self, const pl_answer_t *answer)
{
    pl_worker_t *w = self;
    pl_error_t err = {0};
    if (pl_worker_failed(w, answer))
        return;
    w->run_dir = pl_strdup(answer->body->make_run_dir_reply.path);
    tell_run_dir(w);
    if (!w->run_dir || !spawn_savers(w, &err)) {
        if (!err.code)
            pl_no_memory(&err);
        pl_worker_fail(w, &err);
        return;
    }
    if (w->resume.run_dir)
        finish_checkpoint(w);
    else
        worker_go(w);
}

static void make_run_dir(pl_worker_t *w)
{
    pl_error_t err = {0};
    char *run = pl_options_print(w->job->options, &err),
         *root = run ? pl_request_root(w->job, &err) : NULL;
    pl_make_run_dir_t msg = {.root = root,
                             .name = pl_request_name(w->job),
                             .run = run,
                             .there = w->resume.run_dir ? w->resume.run_dir : "",
                             .aside = (w->job->resumes || w->job->again)
                                      && !w->resume.run_dir
                                      && (!w->resume.elsewhere || w->job->again)};
    pl_how_t how = {.on_answer = run_dir_made};
    pl_worker_phase(w, "making the run directory");
    pl_worker_sent(w, root ? pl_call_make_run_dir(w, w->writer, &msg, how, &err) : 0,
                   &err);
    pl_text_free(root);
    pl_text_free(run);
}

void pl_worker_go_on(pl_worker_t *w)
{
    if (w->does_io && pl_request_writes(w->job))
        make_run_dir(w);
    else
        worker_go(w);
}
