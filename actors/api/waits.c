/* waits.c - twins of the calls that return at once: they wait for what comes of it
 *
 * For programs without an event loop.  Who waits runs the engine's notifications, so that
 * the program hears of the same as it would from its loop. */
#include "actors/api/host.h"
#include "actors/api/manual_loop.h"
#include "base/error.h"

struct pl_wait {
    pl_engine_t *engine;                                    /* [it is closed] */
    const pl_trainer_t *of;                                 /* or a loop's */
    pl_on_done_t on_done;                                   /* one of these is told */
    pl_on_command_t on_command;
    pl_on_loop_t on_loop;
    void *user;
    bool is_over;
    pl_error_t why;                                         /* what came of it */
};

/* ---- waiting ---- */

void pl_waits_end(pl_engine_t *engine, const pl_trainer_t *trainer)
{
    pl_wait_t *wait = engine->wait;
    if (!wait || (trainer && wait->of != trainer))
        return;
    if (!wait->is_over)
        pl_fail(&wait->why, PL_ECANCELLED,
                "freed or closed while a thread waited for it");
    wait->is_over = true;
    if (!trainer) {
        engine->wait = NULL;
        wait->engine = NULL;
    }
}

/* PL_ESTATE: who runs the loop would wait for himself. */
static int wait_begin(pl_wait_t *wait, pl_engine_t *engine, pl_error_t *err)
{
    if (engine->readable)
        return pl_fail(err, PL_ESTATE,
                       "the thread of an engine with an event base must not wait: use "
                       "the call without _wait");
    if (engine->is_reporting)
        return pl_fail(err, PL_ESTATE,
                       "a notification must not wait: use the call without _wait");
    wait->engine = engine;
    engine->wait = wait;
    return PL_OK;
}

/* code: of the call that was to be waited for. */
static int wait_end(pl_wait_t *wait, int code, pl_error_t *err)
{
    while (code == PL_OK && !wait->is_over)
        pl_engine_turn(wait->engine);
    if (wait->engine)
        wait->engine->wait = NULL;
    return code != PL_OK             ? code
           : wait->why.code == PL_OK ? PL_OK
                                     : pl_fail(err, wait->why.code, "%s", wait->why.text);
}

static void wait_reported(pl_wait_t *wait, const pl_error_t *error)
{
    wait->is_over = true;
    wait->why = *error;
}

/* ---- runs ---- */

static void run_reported(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    pl_wait_t *wait = user;
    wait_reported(wait, &result->error);
    if (wait->on_done)
        wait->on_done(trainer, result, wait->user);
}

static int run_begin(pl_wait_t *wait, pl_trainer_t *trainer, pl_error_t *err)
{
    wait->of = trainer;
    return pl_require(trainer, "a trainer", err) == PL_OK
               ? wait_begin(wait, trainer->engine, err)
               : PL_EINVAL;
}

int pl_trainer_fit_wait(pl_trainer_t *trainer, pl_on_done_t on_done, void *user,
                        pl_error_t *err)
{
    pl_wait_t wait = {.on_done = on_done, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_fit(trainer, run_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_trainer_resume_wait(pl_trainer_t *trainer, const char *from, pl_on_done_t on_done,
                           void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_done = on_done, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_resume(trainer, from, run_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_trainer_validate_wait(pl_trainer_t *trainer, const char *checkpoint,
                             pl_on_done_t on_done, void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_done = on_done, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_validate(trainer, checkpoint, run_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_trainer_test_wait(pl_trainer_t *trainer, const char *checkpoint,
                         pl_on_done_t on_done, void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_done = on_done, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_test(trainer, checkpoint, run_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_trainer_predict_wait(pl_trainer_t *trainer, const pl_prediction_t *what,
                            pl_on_done_t on_done, void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_done = on_done, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_predict(trainer, what, run_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_trainer_tune_wait(pl_trainer_t *trainer, const pl_tuning_t *what,
                         pl_on_done_t on_done, void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_done = on_done, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_tune(trainer, what, run_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_trainer_compile_wait(pl_trainer_t *trainer, pl_stage_t stage, pl_on_done_t on_done,
                            void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_done = on_done, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_compile(trainer, stage, run_reported, &wait, err);
    return wait_end(&wait, code, err);
}

/* ---- commands ---- */

static void order_reported(pl_trainer_t *trainer, const pl_command_result_t *result,
                           void *user)
{
    pl_wait_t *wait = user;
    wait_reported(wait, &result->error);
    if (wait->on_command)
        wait->on_command(trainer, result, wait->user);
}

int pl_trainer_pause_wait(pl_trainer_t *trainer, pl_on_command_t on_command, void *user,
                          pl_error_t *err)
{
    pl_wait_t wait = {.on_command = on_command, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_pause(trainer, order_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_trainer_continue_wait(pl_trainer_t *trainer, pl_on_command_t on_command,
                             void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_command = on_command, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_continue(trainer, order_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_trainer_save_wait(pl_trainer_t *trainer, pl_on_command_t on_command, void *user,
                         pl_error_t *err)
{
    return pl_trainer_save_as_wait(trainer, NULL, on_command, user, err);
}

int pl_trainer_save_as_wait(pl_trainer_t *trainer, const char *name,
                            pl_on_command_t on_command, void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_command = on_command, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_save_as(trainer, name, order_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_trainer_set_lr_wait(pl_trainer_t *trainer, double lr, const char *optimizer,
                           pl_on_command_t on_command, void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_command = on_command, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_set_lr(trainer, lr, optimizer, order_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_trainer_scale_lr_wait(pl_trainer_t *trainer, double factor, const char *optimizer,
                             pl_on_command_t on_command, void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_command = on_command, .user = user};
    int code = run_begin(&wait, trainer, err);
    if (code == PL_OK)
        code = pl_trainer_scale_lr(trainer, factor, optimizer, order_reported, &wait,
                                   err);
    return wait_end(&wait, code, err);
}

/* ---- a loop of one's own ---- */

static void loop_reported(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    pl_wait_t *wait = user;
    wait_reported(wait, &result->error);
    if (wait->on_loop)
        wait->on_loop(loop, result, wait->user);
}

static int loop_begin(pl_wait_t *wait, pl_loop_t *loop, pl_error_t *err)
{
    wait->of = loop ? loop->trainer : NULL;
    return pl_require(loop, "a loop", err) == PL_OK
               ? wait_begin(wait, loop->trainer->engine, err)
               : PL_EINVAL;
}

pl_loop_t *pl_loop_open_wait(pl_engine_t *engine, const pl_options_t *options,
                             const pl_loop_spec_t *spec, pl_error_t *err)
{
    pl_wait_t wait = {0};
    pl_loop_t *loop = NULL;
    int code = pl_require(engine, "an engine", err);
    if (code == PL_OK)
        code = wait_begin(&wait, engine, err);
    if (code == PL_OK)
        loop = pl_loop_open(engine, options, spec, loop_reported, &wait, err);
    if (wait_end(&wait, loop ? PL_OK : PL_EINVAL, err) == PL_OK)
        return loop;
    if (loop && wait.engine)
        pl_loop_close_wait(loop, NULL, NULL, NULL);
    return NULL;
}

int pl_loop_train_wait(pl_loop_t *loop, const struct pl_arrays *samples,
                       pl_on_loop_t on_step, void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_loop = on_step, .user = user};
    int code = loop_begin(&wait, loop, err);
    if (code == PL_OK)
        code = pl_loop_train(loop, samples, loop_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_loop_evaluate_wait(pl_loop_t *loop, const struct pl_arrays *samples,
                          pl_on_loop_t on_measured, void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_loop = on_measured, .user = user};
    int code = loop_begin(&wait, loop, err);
    if (code == PL_OK)
        code = pl_loop_evaluate(loop, samples, loop_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_loop_predict_wait(pl_loop_t *loop, const struct pl_arrays *samples,
                         pl_on_loop_t on_predicted, void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_loop = on_predicted, .user = user};
    int code = loop_begin(&wait, loop, err);
    if (code == PL_OK)
        code = pl_loop_predict(loop, samples, loop_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_loop_save_wait(pl_loop_t *loop, const char *name, pl_on_loop_t on_saved,
                      void *user, pl_error_t *err)
{
    pl_wait_t wait = {.on_loop = on_saved, .user = user};
    int code = loop_begin(&wait, loop, err);
    if (code == PL_OK)
        code = pl_loop_save(loop, name, loop_reported, &wait, err);
    return wait_end(&wait, code, err);
}

int pl_loop_close_wait(pl_loop_t *loop, pl_on_loop_t on_closed, void *user,
                       pl_error_t *err)
{
    pl_wait_t wait = {.on_loop = on_closed, .user = user};
    int code = loop_begin(&wait, loop, err);
    if (code != PL_OK)
        return code;
    if (loop->closing)
        code = pl_fail(err, PL_ESTATE, "this loop is already closing");
    else
        pl_loop_close(loop, loop_reported, &wait);
    return wait_end(&wait, code, err);
}
