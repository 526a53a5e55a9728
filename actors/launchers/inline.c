/* inline.c - ranks as threads of the host's process
 *
 * Nobody can kill a thread: a rank that gives no sign of life is named, its memory is
 * kept, and the run ends with PL_ESTUCK.  Launchers that start processes can do
 * better. */
#include "actors/launchers/launchers.h"

#include <stdio.h>
#include <string.h>

#include "actors/worker.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run.h"
#include "runtime/cargo.h"

typedef struct inline_launcher {
    pl_call_t *run;                                         /* NULL: idle */
    pl_address_t worker;
    uint64_t life;                                    /* of the worker */
    pl_outcome_t *outcome;                            /* of rank zero, once it is there */
    bool has_error;
    pl_error_t error;
    int silence_ms;
} inline_t;

static int inline_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)call, (void)err;
    inline_t *launcher = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    launcher->silence_ms = pl_milliseconds(job->trainer->step_timeout);
    pl_actor_ready(self);
    return PL_OK;
}

/* The result goes up when the rank has ended: then a next run finds everything free. */
static void inline_end(inline_t *launcher)
{
    pl_call_t *call = launcher->run;
    launcher->run = NULL;
    if (!call)
        return;
    if (launcher->outcome && launcher->has_error)        /* the rank did not end well, but
                                                            its run had */
        pl_log_line(PL_LOG_ERROR, 0, pl_actor_name(launcher), "%s", launcher->error.text);
    if (launcher->has_error && !launcher->outcome)
        pl_call_fail(call, &launcher->error);
    else
        pl_reply_run(call, &(pl_run_reply_t){.outcome = &launcher->outcome->object});
}

/* The first error is the run's.  That nothing went on is told by whoever waited; who is
 * stuck, when all shall end. */
static void inline_failed(inline_t *launcher, const pl_error_t *error)
{
    if (launcher->has_error && launcher->error.code == PL_ESTUCK
        && error->code == PL_ESTUCK) {
        size_t length = strlen(launcher->error.text);
        snprintf(launcher->error.text + length, sizeof launcher->error.text - length,
                 ": %s", error->text);
    }
    if (!launcher->has_error)
        launcher->error = *error;
    launcher->has_error = true;
}

static void worker_ended(void *self, const pl_answer_t *answer)
{
    inline_t *launcher = self;
    pl_error_t early;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    if (answer->kind == PL_ANSWER_ERROR)
        inline_failed(launcher, answer->error);
    else if (!launcher->outcome && !launcher->has_error) {
        pl_fail(&early, PL_EPEER, "rank 0 ended before its run did");
        inline_failed(launcher, &early);
    }
    inline_end(launcher);
}

static void worker_answered(void *self, const pl_answer_t *answer)
{
    inline_t *launcher = self;
    pl_error_t err;
    switch (answer->kind) {
    case PL_ANSWER_PROGRESS:
        if (launcher->run)
            pl_progress_run(launcher->run, &answer->body->run_progress);
        return;
    case PL_ANSWER_LATE:
        pl_fail(&err, PL_ESTUCK,
                "rank 0 gives no sign of life for %g s (trainer.step_timeout); its "
                "thread cannot be "
                "ended and its memory is kept",
                launcher->silence_ms / 1e3);
        inline_failed(launcher, &err);
        pl_abandon(launcher, launcher->life);
        inline_end(launcher);
        return;
    case PL_ANSWER_REPLY:
        launcher->outcome = pl_object_ref(answer->body->run_reply.outcome);
        break;
    case PL_ANSWER_ERROR: inline_failed(launcher, answer->error);
    }
    pl_cancel(launcher, launcher->life);
}

static int inline_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    inline_t *launcher = self;
    if (launcher->life)
        return pl_fail(err, PL_ESTATE, "a launcher runs once");
    pl_start_t start = {.options = ""};
    pl_how_t life = {.on_answer = worker_ended},
             how = {.on_answer = worker_answered, .silence_ms = launcher->silence_ms};
    launcher->life = pl_spawn(self, &pl_worker, PL_AS_RANK_0, &start, life,
                              &launcher->worker, err);
    if (!launcher->life)
        return err->code;
    launcher->run = call;
    pl_error_t local = {0};
    if (!pl_call_run(self, launcher->worker, &(pl_run_t){.job = body->run.job}, how,
                     &local)) {
        inline_failed(launcher, &local);
        pl_cancel(self, launcher->life);
    }
    return PL_OK;
}

static int inline_stop(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    inline_t *launcher = self;
    if (launcher->life
        && !pl_call_stop(self, launcher->worker,
                         &(pl_stop_t){.reason = body->stop.reason}, (pl_how_t){0}, err))
        return err->code;
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void inline_release(void *self)
{
    pl_object_unref(((inline_t *)self)->outcome);
}

static const pl_handler_t inline_handlers[] = {
    PL_ON(start, inline_start),
    PL_ON(run, inline_run),
    PL_ON(stop, inline_stop),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_inline_launcher = {
    .name = "inline",
    .help = "ranks are threads of this process",
    .size = sizeof(inline_t),
    .role = "launcher",
    .level = PL_LEVEL_LAUNCHER,
    .handlers = inline_handlers,
    .devices_most = 1,
    .release = inline_release,
};
