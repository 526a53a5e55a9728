/* run_until.c - tests of pl_engine_run_until(): a program without an event loop */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "actors/api/host.h"
#include "base/random.h"
#include "paceline.h"
#include "tap.h"

const pl_registration_t *mlp_plugin(void);

enum { SAMPLES = 64, FEATURES = 4, BATCH = 8 };

static float x[SAMPLES][FEATURES];
static int64_t y[SAMPLES];
static const pl_field_t fields[] = {{"x", PL_F32, {1, {FEATURES}}},
                                    {"y", PL_I64, {0, {0}}}};
static pl_error_t err;
static char run_dir[512], status[32];
static int reported, progressed, code;
static pl_loop_result_t step;

static void data_register(void)
{
    for (int k = 0; k < SAMPLES; k++) {
        y[k] = k % 2;
        for (int i = 0; i < FEATURES; i++)
            x[k][i] = (float)(pl_random_uniform(1, (uint64_t)(k * FEATURES + i))
                              + (double)y[k]);
    }
    const pl_arrays_t all = {.samples = SAMPLES,
                             .field_count = 2,
                             .field = {fields[0], fields[1]},
                             .data = {x, y}};
    pl_memory_arrays("run_until", &all, NULL);
}

static pl_options_t *options(const char *trainer)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "{\"module\": {\"name\": \"mlp\", \"hidden\": [8], \"classes\": 2}, "
        "\"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1}, \"data\": {\"name\": "
        "\"memory\", \"source\": \"run_until\", \"val_split\": 0.25, \"batch_size\": "
        "%d}, \"trainer\": "
        "{\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, %s "
        "\"default_root_dir\": \"%s/runs\"}}",
        BATCH, trainer, tap_folder());
    pl_options_t *made = pl_options_parse(text, "run_until", &err);
    if (!made)
        tap_diag("%s", err.text);
    return made;
}

static pl_trainer_t *trainer_new(pl_engine_t *engine, const char *trainer)
{
    pl_options_t *of = options(trainer);
    pl_trainer_t *made = pl_trainer_new(engine, of, &err);
    pl_options_free(of);
    reported = progressed = code = 0;
    err = (pl_error_t){0};
    return made;
}

/* ---- notifications ---- */

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer, (void)user;
    reported++;
    code = result->error.code;
    snprintf(run_dir, sizeof run_dir, "%s", result->run_dir);
    snprintf(status, sizeof status, "%s", result->status);
}

static void on_progress(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    (void)trainer, (void)progress, (void)user;
    progressed++;
}

static void on_step(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop, (void)user;
    reported++;
    code = result->error.code;
    step = *result;
}

static void all_calls_end(pl_engine_t *engine, const char *what)
{
    is_int(pl_engine_run_until(engine, NULL, &err), PL_OK, "%s ends %s", what, err.text);
}

/* ---- runs ---- */

static void a_wait_ends_with_the_run(void)
{
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": 3,");
    pl_trainer_on_progress(trainer, on_progress, NULL);
    pl_trainer_fit(trainer, on_done, NULL, &err);
    all_calls_end(engine, "a fit");
    is_int(reported, 1, "on_done comes once");
    is_text(status, "ok", "with the status");
    ok(progressed > 0, "and progress %d times", progressed);
    char of[512];
    memcpy(of, run_dir, sizeof of);
    pl_trainer_validate(trainer, of, on_done, NULL, &err);
    all_calls_end(engine, "a validation");
    pl_trainer_test(trainer, of, NULL, NULL, &err);
    all_calls_end(engine, "a test without a notification");
    pl_trainer_predict(trainer, &(pl_prediction_t){.checkpoint = of}, on_done, NULL,
                       &err);
    all_calls_end(engine, "a prediction");
    pl_trainer_tune(trainer, &(pl_tuning_t){.num_training = 10}, on_done, NULL, &err);
    all_calls_end(engine, "a search");
    is_int(reported, 4, "each notification comes once");
    pl_trainer_t *other = trainer_new(engine, "\"max_epochs\": 2,");
    pl_trainer_fit(trainer, on_done, NULL, &err);
    pl_trainer_fit(other, on_done, NULL, &err);
    all_calls_end(engine, "two runs");
    is_int(reported, 2, "a wait for all calls ends with the last");
    pl_engine_free(engine);
}

static void a_resumed_run_continues_in_its_directory(void)
{
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": 1,");
    pl_trainer_fit(trainer, on_done, NULL, &err);
    all_calls_end(engine, "a fit");
    char first[512];
    snprintf(first, sizeof first, "%s", run_dir);
    pl_trainer_free(trainer);
    trainer = trainer_new(engine, "\"max_epochs\": 2,");
    pl_trainer_resume(trainer, first, on_done, NULL, &err);
    all_calls_end(engine, "the resumed fit");
    is_text(run_dir, first, "in the same directory");
    pl_engine_free(engine);
}

static void a_failed_run_ends_the_wait(void)
{
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": 1,");
    pl_trainer_test(trainer, "/nowhere", on_done, NULL, &err);
    all_calls_end(engine, "a test without weights");
    is_int(reported, 1, "its notification comes");
    is_int(code, PL_ENOTFOUND, "with the error");
    is_int(pl_trainer_tune(trainer, &(pl_tuning_t){.num_training = -1}, on_done, NULL,
                           &err),
           PL_EINVAL, "a refused call: %s", err.text);
    all_calls_end(engine, "it is not under way, so the wait");
    pl_trainer_fit(trainer, on_done, NULL, &err);
    all_calls_end(engine, "a fit after the failure");
    is_int(code, PL_OK, "it succeeds");
    pl_engine_free(engine);
}

static void a_wait_for_nothing_returns_at_once(void)
{
    const bool yes = true, no = false;
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    all_calls_end(engine, "no call is under way, so the wait");
    is_int(pl_engine_run_until(engine, &yes, &err), PL_OK, "nor a set flag %s", err.text);
    is_int(pl_engine_run_until(engine, &no, &err), PL_ESTATE,
           "a flag that no notification can set: %s", err.text);
    is_int(pl_engine_run_until(NULL, &no, &err), PL_EINVAL, "no engine: %s", err.text);
    pl_engine_free(engine);
}

/* ---- refused waits ---- */

static void wait_inside(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer, (void)result;
    reported++;
    code = pl_engine_run_until(user, NULL, &err);
}

static void an_event_base_and_a_notification_must_not_wait(void)
{
    struct event_base *base = event_base_new();
    pl_engine_t *engine = pl_engine_new(base, &err);
    is_int(pl_engine_run_until(engine, NULL, &err), PL_ESTATE,
           "an engine with an event base");
    like(err.text, "event base", "the error says why");
    pl_engine_free(engine);
    event_base_free(base);
    engine = pl_engine_new(NULL, &err);
    pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": 1,");
    pl_trainer_fit(trainer, wait_inside, engine, &err);
    is_int(pl_engine_run_until(engine, NULL, NULL), PL_OK, "the wait for a fit");
    is_int(reported, 1, "its notification comes");
    is_int(code, PL_ESTATE, "a wait inside of it is refused");
    like(err.text, "notification", "the error says why");
    pl_engine_free(engine);
}

/* ---- what a notification ends ---- */

static void free_trainer(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    (void)progress, (void)user;
    pl_trainer_free(trainer);
}

static void a_wait_ends_when_its_trainer_is_freed(void)
{
    const bool never = false;
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    for (int k = 0; k < 2; k++) {
        pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": -1,");
        pl_trainer_on_progress(trainer, free_trainer, NULL);
        pl_trainer_fit(trainer, on_done, NULL, &err);
        is_int(pl_engine_run_until(engine, k ? &never : NULL, &err),
               k ? PL_ESTATE : PL_OK, "%s %s", k ? "for a flag" : "for all calls",
               err.text);
        is_int(reported, 0, "without on_done");
    }
    pl_engine_free(engine);
}

static void note_closed(pl_engine_t *engine, void *user)
{
    (void)engine;
    *(bool *)user = true;
}

static void free_closed(pl_engine_t *engine, void *user)
{
    *(bool *)user = true;
    pl_engine_free(engine);
}

static pl_engine_t *closing;
static bool is_closed;

static void close_engine(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    (void)trainer, (void)progress;
    pl_engine_close(closing, user ? free_closed : NULL, &is_closed);
}

static void a_wait_is_cancelled_when_its_engine_is_closed(void)
{
    const bool never = false;
    for (int k = 0; k < 3; k++) {
        const bool frees = k == 2;
        closing = pl_engine_new(NULL, &err);
        pl_trainer_t *trainer = trainer_new(closing, "\"max_epochs\": -1,");
        is_closed = false;
        pl_trainer_on_progress(trainer, close_engine, frees ? &is_closed : NULL);
        pl_trainer_fit(trainer, on_done, NULL, &err);
        is_int(pl_engine_run_until(closing, k == 1 ? &never : NULL, &err), PL_ECANCELLED,
               "%s", err.text);
        is_int(reported, 1, "after on_done");
        is_int(code, PL_ECANCELLED, "which has the same code");
        is_int(is_closed, frees, "on_closed frees the engine");
        if (!frees)
            pl_engine_free(closing);
    }
}

static void a_wait_for_the_end_of_an_engine(void)
{
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": -1,");
    pl_trainer_fit(trainer, on_done, NULL, &err);
    is_closed = false;
    pl_engine_close(engine, note_closed, &is_closed);
    all_calls_end(engine, "the engine");
    ok(is_closed, "on_closed has come");
    is_int(code, PL_ECANCELLED, "and the end of the run before it");
    all_calls_end(engine, "a second wait");
    pl_engine_free(engine);
    engine = pl_engine_new(NULL, &err);
    pl_engine_close(engine, free_closed, &is_closed);
    all_calls_end(engine, "an engine that on_closed frees");
}

/* ---- commands ---- */

typedef struct received {
    bool done;
    int code;
    char text[512];                                         /* checkpoint, or command */
} received_t;

static void on_command(pl_trainer_t *trainer, const pl_command_result_t *result,
                       void *user)
{
    (void)trainer;
    received_t *to = user;
    *to = (received_t){.done = true, .code = result->error.code};
    snprintf(to->text, sizeof to->text, "%s",
             *result->checkpoint ? result->checkpoint : result->command);
}

static const char *answer(pl_engine_t *engine, int sent, received_t *to)
{
    is_int(sent, PL_OK, "a command is sent %s", err.text);
    to->done = false;
    is_int(pl_engine_run_until(engine, &to->done, &err), PL_OK, "its answer comes %s",
           err.text);
    is_int(to->code, PL_OK, "it succeeds");
    return to->text;
}

static void a_program_waits_for_one_of_several_calls(void)
{
    received_t to;
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_trainer_t *t = trainer_new(engine, "\"max_epochs\": -1,");
    pl_trainer_fit(t, on_done, NULL, &err);
    is_text(answer(engine, pl_trainer_pause(t, on_command, &to, &err), &to), "pause",
            "pause");
    is_text(answer(engine, pl_trainer_continue(t, on_command, &to, &err), &to),
            "continue", "continue");
    answer(engine, pl_trainer_set_lr(t, 0.05, NULL, on_command, &to, &err), &to);
    answer(engine, pl_trainer_scale_lr(t, 0.5, NULL, on_command, &to, &err), &to);
    like(answer(engine, pl_trainer_save(t, on_command, &to, &err), &to),
         "asked-step=", "save");
    like(answer(engine, pl_trainer_save_as(t, "here", on_command, &to, &err), &to),
         "asked-here", "save by a name");
    is_int(pl_trainer_save_as(t, "../here", on_command, &to, &err), PL_EINVAL, "%s",
           err.text);
    to.done = false;
    is_int(pl_trainer_set_lr(t, 0.05, "other", on_command, &to, &err), PL_OK, "sent");
    is_int(pl_engine_run_until(engine, &to.done, &err), PL_OK, "answered %s", err.text);
    is_int(to.code, PL_EINVAL, "with the error of an unknown optimizer");
    is_int(reported, 0, "the run is under way all the time");
    pl_trainer_stop(t, NULL, &err);
    all_calls_end(engine, "the stopped run");
    is_text(status, "stopped", "its status");
    pl_engine_free(engine);
}

/* ---- a manual loop ---- */

static pl_arrays_t batch(int first)
{
    return (pl_arrays_t){.samples = BATCH,
                         .field_count = 2,
                         .field = {fields[0], fields[1]},
                         .data = {x[first], &y[first]}};
}

static void an_open_loop_is_not_under_way(void)
{
    const pl_loop_spec_t spec = {.field_count = 2,
                                 .field = fields,
                                 .targets = 1,
                                 .enable_checkpointing = true};
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_options_t *of = options("");
    reported = 0;
    pl_loop_t *loop = pl_loop_open(engine, of, &spec, on_step, NULL, &err);
    all_calls_end(engine, "the opening of a loop");
    ok(loop && reported == 1 && code == PL_OK, "it is ready %s", step.error.text);
    for (int k = 0; k < SAMPLES; k += BATCH) {
        const pl_arrays_t samples = batch(k);
        pl_loop_train(loop, &samples, on_step, NULL, &err);
        all_calls_end(engine, "a batch");
        ok(code == PL_OK && step.global_step == (uint64_t)(k / BATCH + 1)
               && isfinite(step.loss),
           "step %d", k / BATCH + 1);
    }
    const pl_arrays_t samples = batch(0);
    pl_loop_evaluate(loop, &samples, on_step, NULL, &err);
    pl_loop_predict(loop, &samples, NULL, NULL, &err);
    pl_loop_save(loop, "here", on_step, NULL, &err);
    all_calls_end(engine, "several requests");
    is_int(reported, 1 + SAMPLES / BATCH + 2, "with their notifications");
    is_int(pl_loop_save(loop, "../here", on_step, NULL, &err), PL_EINVAL, "%s", err.text);
    pl_loop_close(loop, on_step, NULL);
    all_calls_end(engine, "the closing of the loop");
    is_int(reported, 1 + SAMPLES / BATCH + 3, "each notification comes once");
    is_int(code, PL_OK, "without an error");
    pl_options_free(of);
    pl_engine_free(engine);
}

static char order[8], first[] = "1", second[] = "2", closed[] = "c";

static void order_note(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop;
    if (*(const char *)user == '2')
        code = result->error.code;
    strcat(order, user);
}

static void close_loop(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    order_note(loop, result, user);
    pl_loop_close(loop, order_note, closed);
}

/* The result of a run waits for delivery. */
static bool has_result(pl_engine_t *engine)
{
    pl_notifications_t *queue = &engine->notifications;
    bool found = false;
    pthread_mutex_lock(&queue->lock);
    for (pl_notification_t *n = queue->first; n; n = n->next)
        found |= n->kind == PL_NOTIFICATION_DONE;
    pthread_mutex_unlock(&queue->lock);
    return found;
}

/* The run of the loop has ended, and its end waits for delivery. */
static void a_batch_that_comes_too_late_is_answered(void)
{
    const pl_loop_spec_t spec = {.field_count = 2, .field = fields, .targets = 1};
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_options_t *of = options("");
    pl_loop_t *loop = pl_loop_open(engine, of, &spec, on_step, NULL, &err);
    all_calls_end(engine, "the opening of a loop");
    const pl_arrays_t samples = batch(0);
    is_int(pl_loop_train(loop, &samples, close_loop, first, &err), PL_OK, "a batch %s",
           err.text);
    is_int(pl_trainer_stop(engine->trainers, "another", &err), PL_OK, "then a stop");
    ok(eventually(has_result(engine)), "the run ends");
    is_int(pl_loop_train(loop, &samples, order_note, second, &err), PL_OK,
           "then another batch %s", err.text);
    all_calls_end(engine, "the loop");
    is_int(code, PL_ESTATE, "the late batch has an error");
    is_text(order, "12c", "the end of the loop comes last");
    pl_options_free(of);
    pl_engine_free(engine);
}

static void a_loop_that_does_not_get_ready_says_why(void)
{
    const pl_loop_spec_t spec = {.field_count = 2,
                                 .field = fields,
                                 .targets = 1,
                                 .enable_checkpointing = true,
                                 .resume = "/nowhere"};
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_options_t *of = options("");
    reported = 0;
    pl_loop_t *loop = pl_loop_open(engine, of, &spec, on_step, NULL, &err);
    all_calls_end(engine, "the opening of a loop");
    ok(loop && reported == 1 && code == PL_ENOTFOUND, "it fails");
    pl_loop_close(loop, on_step, NULL);
    all_calls_end(engine, "its closing");
    is_int(reported, 2, "each notification comes once");
    pl_options_free(of);
    pl_engine_free(engine);
}

int main(int argc, char **argv)
{
    pl_init(&argc, &argv, mlp_plugin(), NULL);
    data_register();
    run(a_wait_ends_with_the_run);
    run(a_resumed_run_continues_in_its_directory);
    run(a_failed_run_ends_the_wait);
    run(a_wait_for_nothing_returns_at_once);
    run(an_event_base_and_a_notification_must_not_wait);
    run(a_wait_ends_when_its_trainer_is_freed);
    run(a_wait_is_cancelled_when_its_engine_is_closed);
    run(a_wait_for_the_end_of_an_engine);
    run(a_program_waits_for_one_of_several_calls);
    run(an_open_loop_is_not_under_way);
    run(a_batch_that_comes_too_late_is_answered);
    run(a_loop_that_does_not_get_ready_says_why);
    return tap_done();
}
