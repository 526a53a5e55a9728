/* trainer.c - the trainer: a run, its state and its result
 *
 * It chooses the launcher, gives it the job and waits for the one answer.  It does not
 * know which ranks exist, and where. */
#include "actors/trainer.h"

#include <stdio.h>

#include "actors/commands.h"
#include "actors/request.h"
#include "base/alloc.h"
#include "base/error.h"
#include "runtime/payload.h"

typedef enum trainer_state {
    TRAINER_IDLE,
    TRAINER_RUNNING,
    TRAINER_STOPPING,                             /* the launcher will answer */
    TRAINER_ENDING,                               /* with the answer; the launcher ends */
} trainer_state_t;

typedef struct trainer {
    trainer_state_t state;
    pl_call_t *run;
    pl_address_t launcher;
    uint64_t life, launched;                       /* calls of the launcher: start, run */
    pl_job_t *job;                                 /* of the run, counted  [none] */
    char stop_reason[128];                         /* [no stop was requested] */
    pl_outcome_t *outcome;                         /* [an error] */
    pl_error_t error;
} trainer_t;

static void trainer_keep_error(trainer_t *trainer, const pl_error_t *error)
{
    if (trainer->error.code == PL_OK)
        trainer->error = *error;
}

static void launcher_ended(void *self, const pl_answer_t *answer);

static void launcher_answered(void *self, const pl_answer_t *answer)
{
    trainer_t *trainer = self;
    if (answer->call != trainer->launched)             /* the launcher has ended before */
        return;
    if (answer->kind == PL_ANSWER_PROGRESS)
        pl_progress_run(trainer->run, &answer->body->run_progress);
    if (answer->kind == PL_ANSWER_REPLY)
        trainer->outcome = pl_object_ref(answer->body->run_reply.outcome);
    if (answer->kind == PL_ANSWER_ERROR)
        trainer_keep_error(trainer, answer->error);
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    trainer->state = TRAINER_ENDING;
    pl_cancel(trainer, trainer->life);
}

/* The call is for viewers of the stream; a launcher may refuse it. */
static void watch_answered(void *self, const pl_answer_t *answer)
{
    (void)self, (void)answer;
}

/* Consumes the job, also on failure. */
static int trainer_launch(trainer_t *trainer, pl_job_t *job, pl_error_t *err)
{
    pl_object_unref(trainer->job);
    trainer->job = job;
    const pl_actor_ops_t *launcher = pl_request_launcher(job, err);
    char *options = launcher ? pl_request_options(job, "trainer.launcher", err) : NULL;
    if (!options)
        return err->code;
    pl_start_t start = {.options = options, .context = &job->object};
    pl_how_t life = {.on_answer = launcher_ended}, how = {.on_answer = launcher_answered};
    trainer->life = pl_spawn(trainer, launcher, PL_SAME_THREAD, &start, life,
                             &trainer->launcher, err);
    pl_free(options);
    if (!trainer->life)
        return err->code;
    pl_error_t local = {0};
    trainer->state = TRAINER_RUNNING;
    trainer->launched = pl_call_run(trainer, trainer->launcher,
                                    &(pl_run_t){.job = &job->object}, how, &local);
    if (!trainer->launched) {
        trainer_keep_error(trainer, &local);
        trainer->state = TRAINER_ENDING;
        pl_cancel(trainer, trainer->life);
        return PL_OK;
    }
    how.on_answer = watch_answered;
    pl_call_watch(trainer, trainer->launcher, &(pl_watch_t){0}, how, NULL);
    return PL_OK;
}

/* Launches the same job again, to resume the newest checkpoint of its directory. */
static int trainer_roll_back(trainer_t *trainer, pl_error_t *err)
{
    pl_outcome_t *outcome = trainer->outcome;
    pl_job_t *job = pl_job_new(trainer->job->options, trainer->job->stage, err);
    if (!job)
        return err->code;
    job->resumes = true;
    job->resume = outcome->run_dir ? pl_strdup(outcome->run_dir) : NULL;
    job->rollback = pl_strdup(outcome->rollback);
    if (!job->resume || !job->rollback) {
        pl_object_unref(job);
        return pl_no_memory(err);
    }
    pl_object_unref(outcome);
    trainer->outcome = NULL;
    const int code = trainer_launch(trainer, job, err);
    if (code == PL_OK && trainer->state == TRAINER_RUNNING && *trainer->stop_reason)
        pl_call_stop(trainer, trainer->launcher,
                     &(pl_stop_t){.reason = trainer->stop_reason}, (pl_how_t){0}, NULL);
    return code;
}

/* A rollback that is not possible is the error of the run. */
static void launcher_ended(void *self, const pl_answer_t *answer)
{
    trainer_t *trainer = self;
    pl_error_t early, err = {0};
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    pl_fail(&early, PL_EPEER, "the launcher ended before the run ended");
    if (answer->kind == PL_ANSWER_ERROR)
        trainer_keep_error(trainer, answer->error);
    else if (!trainer->outcome)
        trainer_keep_error(trainer, &early);
    const bool is_rollback = trainer->run && trainer->outcome
                             && trainer->outcome->rollback;
    if (is_rollback && trainer_roll_back(trainer, &err) == PL_OK)
        return;
    if (is_rollback) {
        trainer->error = err;
        pl_object_unref(trainer->outcome);
        trainer->outcome = NULL;
    }
    /* Status and reason are for viewers of the stream, which do not have the outcome. */
    pl_call_t *call = trainer->run;
    pl_outcome_t *outcome = trainer->outcome;
    trainer->state = TRAINER_IDLE;
    trainer->run = NULL;
    trainer->outcome = NULL;
    trainer->life = trainer->launched = 0;
    pl_object_unref(trainer->job);
    trainer->job = NULL;
    if (call && outcome) {
        const bool failed = outcome->error.code != PL_OK;
        pl_reply_run(call, &(pl_run_reply_t){.outcome = &outcome->object,
                                             .status = pl_outcome_status(outcome),
                                             .reason = failed ? outcome->error.text
                                                              : outcome->reason,
                                             .global_step = outcome->global_step,
                                             .epochs = outcome->epoch});
    } else if (call) {
        pl_call_fail(call, &trainer->error);
    }
    pl_object_unref(outcome);
}

static int trainer_run(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    trainer_t *trainer = self;
    if (trainer->state != TRAINER_IDLE)
        return pl_fail(err, PL_ESTATE,
                       "this trainer is already running: wait for its result, or use "
                       "another trainer");
    if (pl_actor_sees_stuck(self))
        return pl_fail(err, PL_ESTUCK,
                       "an earlier run of this engine is stuck and still holds its "
                       "memory: use a new engine");
    trainer->error.code = PL_OK;
    *trainer->stop_reason = '\0';
    int code = trainer_launch(trainer, pl_object_ref(body->run.job), err);
    if (code == PL_OK)
        trainer->run = call;
    return code;
}

static int trainer_stop(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    trainer_t *trainer = self;
    snprintf(trainer->stop_reason, sizeof trainer->stop_reason, "%s", body->stop.reason);
    if (trainer->state != TRAINER_RUNNING)
        return pl_reply_stop(call, &(pl_stop_reply_t){0});
    trainer->state = TRAINER_STOPPING;
    return pl_forward(self, call, trainer->launcher, PL_MESSAGE_stop, body, err);
}

static int trainer_control(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    const trainer_t *trainer = self;
    if (trainer->state != TRAINER_RUNNING)
        return pl_fail(err, PL_ESTATE,
                       trainer->state == TRAINER_STOPPING ? "the run is stopping"
                                                          : "the run has ended");
    return pl_forward(self, call, trainer->launcher, PL_MESSAGE_control, body, err);
}

static void trainer_release(void *self)
{
    pl_object_unref(((trainer_t *)self)->outcome);
    pl_object_unref(((trainer_t *)self)->job);
}

static const pl_handler_t trainer_handlers[] = {
    PL_ON(run, trainer_run),
    PL_ON(stop, trainer_stop),
    PL_ON(control, trainer_control),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_trainer_actor = {
    .name = "trainer",
    .help = "a run and its result",
    .size = sizeof(trainer_t),
    .level = PL_LEVEL_TRAINER,
    .handlers = trainer_handlers,
    .release = trainer_release,
};
