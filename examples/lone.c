/* lone.c - a user-defined launcher: one rank, on a thread of this process
 *
 *   "trainer": {"launcher": "lone"}
 *
 * A launcher is an actor of the launcher level.  It starts a worker for each rank, sends
 * each the job, and ends when all have ended.  Its reply to `run` is the result of rank
 * 0; every failure is an error of that call.  doc/messages.md describes the messages. */
#include <actors/worker.h>
#include <runtime/payload.h>

typedef struct lone {
    pl_call_t *run;
    pl_address_t worker;
    uint64_t life;
    pl_outcome_t *outcome;
    pl_error_t error;
} lone_t;

static int lone_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    pl_actor_ready(self);
    return PL_OK;
}

static void worker_ended(void *self, const pl_answer_t *answer)
{
    lone_t *lone = self;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    if (answer->kind == PL_ANSWER_ERROR && !lone->error.code)
        lone->error = *answer->error;
    if (lone->outcome)
        pl_reply_run(lone->run, &(pl_run_reply_t){.outcome = &lone->outcome->object});
    else
        pl_call_fail(lone->run, &lone->error);
}

static void worker_answered(void *self, const pl_answer_t *answer)
{
    lone_t *lone = self;
    if (answer->kind == PL_ANSWER_PROGRESS)
        pl_progress_run(lone->run, &answer->body->run_progress);
    if (answer->kind == PL_ANSWER_REPLY)
        lone->outcome = pl_object_ref(answer->body->run_reply.outcome);
    if (answer->kind == PL_ANSWER_ERROR)
        lone->error = *answer->error;
    if (answer->kind == PL_ANSWER_REPLY || answer->kind == PL_ANSWER_ERROR)
        pl_cancel(self, lone->life);
}

static int lone_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    lone_t *lone = self;
    pl_how_t life = {.on_answer = worker_ended}, how = {.on_answer = worker_answered};
    lone->run = call;
    lone->life = pl_spawn(self, &pl_worker, PL_AS_RANK_0, &(pl_start_t){.options = ""},
                          life, &lone->worker, err);
    if (!lone->life)
        return err->code;
    if (!pl_call_run(self, lone->worker, &body->run, how, &lone->error))
        pl_cancel(self, lone->life);
    return PL_OK;
}

static int lone_stop(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    lone_t *lone = self;
    if (lone->life && !pl_call_stop(self, lone->worker, &body->stop, (pl_how_t){0}, err))
        return err->code;
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void lone_release(void *self)
{
    pl_object_unref(((lone_t *)self)->outcome);
}

static const pl_handler_t lone_handlers[] = {
    PL_ON(start, lone_start),
    PL_ON(run, lone_run),
    PL_ON(stop, lone_stop),
    PL_HANDLERS_END,
};

static const pl_actor_ops_t lone_launcher = {
    .name = "lone",
    .help = "one rank, a thread of this process",
    .size = sizeof(lone_t),
    .role = "launcher",
    .level = PL_LEVEL_LAUNCHER,
    .devices_max = 1,
    .in_process = true,
    .handlers = lone_handlers,
    .release = lone_release,
};

PL_PLUGIN({"launcher", &lone_launcher})
