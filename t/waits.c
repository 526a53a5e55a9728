/* waits.c - tests of actors/api/waits.c: a program without an event loop */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "actors/api/manual_loop.h"
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
static char run_dir[512];
static int reported, moved;
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
    pl_memory_arrays("waits", &all, NULL);
}

static pl_options_t *options(const char *trainer)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"module\": {\"name\": \"mlp\", \"hidden\": [8], \"classes\": 2}, "
             "\"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1}, \"data\": {\"name\": "
             "\"memory\", \"source\": \"waits\", \"val_split\": 0.25, \"batch_size\": "
             "%d}, \"trainer\": "
             "{\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, %s "
             "\"default_root_dir\": \"%s/runs\"}}",
             BATCH, trainer, tap_folder());
    pl_options_t *made = pl_options_parse(text, "waits", &err);
    if (!made)
        tap_diag("%s", err.text);
    return made;
}

static pl_trainer_t *trainer_new(pl_engine_t *engine, const char *trainer)
{
    pl_options_t *of = options(trainer);
    pl_trainer_t *made = pl_trainer_new(engine, of, &err);
    pl_options_free(of);
    reported = moved = 0;
    err = (pl_error_t){0};
    return made;
}

/* ---- notifications ---- */

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    reported++;
    snprintf(run_dir, sizeof run_dir, "%s", result->run_dir);
    snprintf(user, 32, "%s", result->status);
}

static void on_moved(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    (void)trainer, (void)progress, (void)user;
    moved++;
}

static void on_step(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop, (void)user;
    reported++;
    step = *result;
}

/* ---- runs ---- */

static void a_fit_returns_when_it_has_ended(void)
{
    char status[32] = "";
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": 3,");
    pl_trainer_on_progress(trainer, on_moved, NULL);
    is_int(pl_trainer_fit_wait(trainer, on_done, status, &err), PL_OK, "%s", err.text);
    is_int(reported, 1, "it is told once");
    is_text(status, "ok", "how it ended");
    ok(moved > 0, "and %d times how far it was", moved);
    char of[512];
    memcpy(of, run_dir, sizeof of);
    is_int(pl_trainer_validate_wait(trainer, of, on_done, status, &err), PL_OK,
           "then it validates %s", err.text);
    is_int(pl_trainer_test_wait(trainer, of, NULL, NULL, &err), PL_OK,
           "tests, and nobody asks %s", err.text);
    const pl_prediction_t what = {.checkpoint = of};
    is_int(pl_trainer_predict_wait(trainer, &what, on_done, status, &err), PL_OK,
           "and predicts %s", err.text);
    is_int(pl_trainer_tune_wait(trainer, &(pl_tuning_t){.num_training = 10}, on_done,
                                status, &err),
           PL_OK, "tunes %s", err.text);
    is_int(reported, 4, "each is told once");
    pl_engine_free(engine);
}

static void a_fit_goes_on_where_it_was(void)
{
    char status[32] = "";
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": 1,");
    is_int(pl_trainer_fit_wait(trainer, on_done, status, &err), PL_OK, "%s", err.text);
    char first[512];
    snprintf(first, sizeof first, "%s", run_dir);
    pl_trainer_free(trainer);
    trainer = trainer_new(engine, "\"max_epochs\": 2,");
    is_int(pl_trainer_resume_wait(trainer, first, on_done, status, &err), PL_OK, "%s",
           err.text);
    is_text(run_dir, first, "in the same directory");
    pl_engine_free(engine);
}

static void what_fails_is_the_code(void)
{
    char status[32] = "";
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": 1,");
    is_int(pl_trainer_test_wait(trainer, "/nowhere", on_done, status, &err), PL_ENOTFOUND,
           "weights that are not there");
    like(err.text, "nowhere", "are named");
    ok(reported == 0 || !strcmp(status, "failed"), "and told as such");
    is_int(pl_trainer_tune_wait(trainer, &(pl_tuning_t){.num_training = -1}, on_done,
                                status, &err),
           PL_EINVAL, "what is refused at once: %s", err.text);
    is_int(pl_trainer_fit_wait(NULL, on_done, status, &err), PL_EINVAL, "no trainer");
    is_int(pl_trainer_pause_wait(trainer, NULL, NULL, &err), PL_ESTATE,
           "a command to nothing: %s", err.text);
    is_int(pl_trainer_fit_wait(trainer, on_done, status, &err), PL_OK,
           "and a fit goes well after all that");
    pl_engine_free(engine);
}

/* ---- who may not wait ---- */

static int inside;

static void wait_inside(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)result;
    inside = pl_trainer_fit_wait(trainer, NULL, NULL, user);
}

static void nobody_waits_on_a_loops_thread(void)
{
    struct event_base *base = event_base_new();
    pl_engine_t *engine = pl_engine_new(base, &err);
    pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": 1,");
    is_int(pl_trainer_fit_wait(trainer, NULL, NULL, &err), PL_ESTATE,
           "an engine with an event base");
    like(err.text, "event base", "says why");
    pl_engine_free(engine);
    event_base_free(base);
    engine = pl_engine_new(NULL, &err);
    trainer = trainer_new(engine, "\"max_epochs\": 1,");
    inside = PL_OK;
    is_int(pl_trainer_fit_wait(trainer, wait_inside, &err, NULL), PL_OK, "a fit");
    is_int(inside, PL_ESTATE, "from whose end nobody waits for another");
    like(err.text, "notification", "says why");
    pl_engine_free(engine);
}

static void free_it(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    (void)progress, (void)user;
    pl_trainer_free(trainer);
}

static void close_it(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    (void)trainer, (void)progress;
    pl_engine_close(user, NULL, NULL);
}

static void waiting_ends_with_what_is_waited_for(void)
{
    char status[32] = "";
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": -1,");
    pl_trainer_on_progress(trainer, free_it, NULL);
    is_int(pl_trainer_fit_wait(trainer, on_done, status, &err), PL_ECANCELLED,
           "a trainer that is freed: %s", err.text);
    is_int(reported, 0, "of which nothing is told");
    trainer = trainer_new(engine, "\"max_epochs\": -1,");
    pl_trainer_on_progress(trainer, close_it, engine);
    is_int(pl_trainer_fit_wait(trainer, on_done, status, &err), PL_ECANCELLED,
           "an engine that is closed: %s", err.text);
    is_int(reported, 1, "told once");
    pl_engine_free(engine);
}

/* ---- commands ---- */

static void on_command(pl_trainer_t *trainer, const pl_command_result_t *result,
                       void *user)
{
    (void)trainer;
    snprintf(user, 512, "%s", *result->checkpoint ? result->checkpoint : result->command);
}

static void commands_to_a_fit_are_waited_for(void)
{
    char status[32] = "", received[512] = "";
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_trainer_t *trainer = trainer_new(engine, "\"max_epochs\": -1,");
    pl_trainer_fit(trainer, on_done, status, &err);
    is_int(pl_trainer_pause_wait(trainer, on_command, received, &err), PL_OK, "%s",
           err.text);
    is_text(received, "pause", "it pauses");
    is_int(pl_trainer_continue_wait(trainer, on_command, received, &err), PL_OK, "%s",
           err.text);
    is_int(pl_trainer_set_lr_wait(trainer, 0.05, NULL, on_command, received, &err), PL_OK,
           "%s", err.text);
    is_int(pl_trainer_scale_lr_wait(trainer, 0.5, NULL, on_command, received, &err),
           PL_OK, "%s", err.text);
    is_int(pl_trainer_save_wait(trainer, on_command, received, &err), PL_OK, "%s",
           err.text);
    like(received, "asked-step=", "it saves");
    is_int(pl_trainer_save_as_wait(trainer, "here", on_command, received, &err), PL_OK,
           "%s", err.text);
    like(received, "asked-here", "by a name as well");
    is_int(pl_trainer_save_as_wait(trainer, "../here", on_command, received, &err),
           PL_EINVAL, "%s", err.text);
    is_int(pl_trainer_set_lr_wait(trainer, 0.05, "other", on_command, received, &err),
           PL_EINVAL, "of an optimizer that is not there: %s", err.text);
    is_int(reported, 0, "and trains all the time");
    pl_engine_free(engine);
}

/* ---- a loop of one's own ---- */

static pl_arrays_t batch(int first)
{
    return (pl_arrays_t){.samples = BATCH,
                         .field_count = 2,
                         .field = {fields[0], fields[1]},
                         .data = {x[first], &y[first]}};
}

static void a_loop_is_a_loop(void)
{
    const pl_loop_spec_t spec = {.field_count = 2,
                                 .field = fields,
                                 .targets = 1,
                                 .enable_checkpointing = true};
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_options_t *of = options("");
    reported = 0;
    pl_loop_t *loop = pl_loop_open_wait(engine, of, &spec, &err);
    ok(loop, "it is open %s", err.text);
    for (int k = 0; k < SAMPLES; k += BATCH) {
        const pl_arrays_t samples = batch(k);
        ok(pl_loop_train_wait(loop, &samples, on_step, NULL, &err) == PL_OK
               && step.global_step == (uint64_t)(k / BATCH + 1) && isfinite(step.loss),
           "step %d: %s", k / BATCH + 1, err.text);
    }
    const pl_arrays_t samples = batch(0);
    is_int(pl_loop_evaluate_wait(loop, &samples, on_step, NULL, &err), PL_OK, "%s",
           err.text);
    is_int(pl_loop_predict_wait(loop, &samples, on_step, NULL, &err), PL_OK, "%s",
           err.text);
    is_int(pl_loop_save_wait(loop, "here", on_step, NULL, &err), PL_OK, "%s", err.text);
    is_int(pl_loop_save_wait(loop, "../here", on_step, NULL, &err), PL_EINVAL, "%s",
           err.text);
    is_int(pl_loop_close_wait(loop, on_step, NULL, &err), PL_OK, "%s", err.text);
    is_int(reported, SAMPLES / BATCH + 4, "each is told once");
    pl_options_free(of);
    of = options("\"precision\": \"none\",");
    ok(!of || !pl_loop_open_wait(engine, of, &spec, &err), "one that cannot be opened");
    ok(*err.text, "says why: %s", err.text);
    pl_options_free(of);
    ok(!pl_loop_open_wait(engine, NULL, &spec, &err), "nor without options");
    pl_engine_free(engine);
}

static char order[8];

static void note_closed(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop, (void)result, (void)user;
    strcat(order, "c");
}

static void close_loop(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)result, (void)user;
    strcat(order, "1");
    pl_loop_close(loop, note_closed, NULL);
}

static void note_second(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop, (void)result, (void)user;
    strcat(order, "2");
}

/* The run behind it is over, and the program has not heard of it yet. */
static void a_batch_that_comes_too_late_is_reported_all_the_same(void)
{
    const pl_loop_spec_t spec = {.field_count = 2, .field = fields, .targets = 1};
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_options_t *of = options("");
    pl_loop_t *loop = pl_loop_open_wait(engine, of, &spec, &err);
    const pl_arrays_t samples = batch(0);
    is_int(pl_loop_train(loop, &samples, close_loop, NULL, &err), PL_OK, "a batch %s",
           err.text);
    is_int(pl_trainer_stop(loop->trainer, "somebody else", &err), PL_OK, "then a stop");
    usleep(500000);
    is_int(pl_loop_train_wait(loop, &samples, note_second, NULL, &err), PL_ESTATE,
           "another batch is told: %s", err.text);
    while (!strchr(order, 'c'))
        pl_engine_dispatch(engine);
    is_text(order, "12c", "and the end of the loop last");
    pl_options_free(of);
    pl_engine_free(engine);
}

static void a_loop_that_does_not_get_ready_is_closed(void)
{
    const pl_loop_spec_t spec = {.field_count = 2,
                                 .field = fields,
                                 .targets = 1,
                                 .enable_checkpointing = true,
                                 .resume = "/nowhere"};
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_options_t *of = options("");
    ok(!pl_loop_open_wait(engine, of, &spec, &err), "it is not open");
    like(err.text, "nowhere", "says why");
    pl_options_free(of);
    pl_engine_free(engine);
}

int main(int argc, char **argv)
{
    pl_init(&argc, &argv, mlp_plugin(), NULL);
    data_register();
    run(a_fit_returns_when_it_has_ended);
    run(a_fit_goes_on_where_it_was);
    run(what_fails_is_the_code);
    run(nobody_waits_on_a_loops_thread);
    run(waiting_ends_with_what_is_waited_for);
    run(commands_to_a_fit_are_waited_for);
    run(a_loop_is_a_loop);
    run(a_batch_that_comes_too_late_is_reported_all_the_same);
    run(a_loop_that_does_not_get_ready_is_closed);
    return tap_done();
}
