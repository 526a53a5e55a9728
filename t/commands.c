/* commands.c - commands to a fit under way, at any moment, of threads and of processes */
#include <dirent.h>
#include <event2/event.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "far.h"
#include "files.h"
#include "runtime/message.h"
#include "tap.h"

#define SLOW "replay of forward_backward takes 1 ms"
#define SHORT "\"max_steps\": 40"
#define LONG "\"max_epochs\": 100000"

/* The command to a test's run, its step, and the answers. */
typedef struct reported {
    char command[16];
    pl_error_t error;
    uint64_t global_step;
    char checkpoint[512];
} reported_t;

typedef struct scene {
    bool computes;                          /* in float32, as files have it: on the cpu */
    uint64_t at;                            /* step at which act() is called once */
    void (*act)(rig_t *rig);
    bool acted;
    int answers;
    reported_t reported[8];
    int wanted;
    uint64_t seen;                                          /* the newest reported step */
} scene_t;

static void on_command(pl_trainer_t *trainer, const pl_command_result_t *result,
                       void *user)
{
    scene_t *scene = user;
    (void)trainer;
    if (scene->answers == 8)
        return;
    reported_t *reported = &scene->reported[scene->answers++];
    snprintf(reported->command, sizeof reported->command, "%s", result->command);
    snprintf(reported->checkpoint, sizeof reported->checkpoint, "%s", result->checkpoint);
    reported->error = result->error;
    reported->global_step = result->global_step;
}

static void on_progress(rig_t *rig, const pl_progress_t *progress)
{
    scene_t *scene = rig_user(rig);
    scene->seen = progress->global_step;
    if (scene->acted || !scene->act || progress->global_step < scene->at)
        return;
    scene->acted = true;
    scene->act(rig);
}

static bool all_answered(rig_t *rig)
{
    const scene_t *scene = rig_user(rig);
    return scene->answers >= scene->wanted;
}

static bool answered(rig_t *rig, int wanted)
{
    ((scene_t *)rig_user(rig))->wanted = wanted;
    return rig_until(rig, all_answered);
}

static int send_pause(rig_t *rig)
{
    return pl_trainer_pause(rig_trainer(rig), on_command, rig_user(rig), &rig_error);
}

static int send_continue(rig_t *rig)
{
    return pl_trainer_continue(rig_trainer(rig), on_command, rig_user(rig), &rig_error);
}

static int send_save(rig_t *rig)
{
    return pl_trainer_save(rig_trainer(rig), on_command, rig_user(rig), &rig_error);
}

static int send_lr(rig_t *rig, double lr)
{
    return pl_trainer_set_lr(rig_trainer(rig), lr, NULL, on_command, rig_user(rig),
                             &rig_error);
}

/* What the script is to the fake accelerator. */
static int brake_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                    pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)event, (void)request, (void)err;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return PL_OK;
}

static const pl_callback_ops_t brake = {.name = "brake",
                                        .size = 1,
                                        .points = PL_AT(TRAIN_BATCH_END),
                                        .on = brake_on};

/* ---- where ranks are ---- */

typedef struct where {
    const char *what;
    int ranks;
    bool far;                                               /* processes */
} where_t;

static const where_t everywhere[] = {{"one thread", 1, false},
                                     {"two threads", 2, false},
                                     {"one process", 1, true},
                                     {"two processes", 2, true}};
enum { EVERYWHERE = sizeof everywhere / sizeof *everywhere };

static rig_t *run_of(const where_t *where, scene_t *scene, const char *more)
{
    char trainer[256];
    snprintf(trainer, sizeof trainer, "%s", more);
    if (!where->far && where->ranks > 1)
        snprintf(trainer, sizeof trainer, "\"devices\": %d, %s", where->ranks, more);
    rig_spec_t spec = {.accelerator = scene->computes ? "cpu" : NULL,
                       .script = SLOW,
                       .callbacks = scene->computes ? "[\"brake\"]" : NULL,
                       .trainer = trainer,
                       .user = scene,
                       .on_progress = on_progress};
    if (where->far)
        return far_new(.ranks = where->ranks,
                       .strategy = where->ranks > 1 ? NULL : "\"auto\"", .rig = spec);
    spec.data = "\"batch_size\": 4";
    return rig_make(&spec);
}

static void is_answered_ok(const scene_t *scene, int k, const char *command)
{
    const reported_t *reported = &scene->reported[k];
    is_text(reported->command, command, "the answer is that to %s", command);
    is_int(reported->error.code, PL_OK, "which was carried out %s", reported->error.text);
}

static double processor_time(void)
{
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    return (double)own.ru_utime.tv_sec + (double)own.ru_stime.tv_sec
           + (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) * 1e-6;
}

/* ---- pause ---- */

static void pause_it(rig_t *rig)
{
    ok(send_pause(rig) == PL_OK, "a pause is taken, from inside a notification");
}

static void over(evutil_socket_t fd, short what, void *is_over)
{
    (void)fd, (void)what;
    *(bool *)is_over = true;
}

/* The program's loop turns in the pause. */
static void nothing_is_done_for_a_while(rig_t *rig)
{
    const struct timeval half = {.tv_usec = 500000};
    const scene_t *scene = rig_user(rig);
    const double before = processor_time();
    bool is_over = false;
    event_base_once(rig_base(rig), -1, EV_TIMEOUT, over, &is_over, &half);
    while (!is_over)
        event_base_loop(rig_base(rig), EVLOOP_ONCE);
    const double spent = processor_time() - before;
    ok(spent < 0.25, "nothing computes in a pause (%.3f s of 0.5)", spent);
    ok(scene->seen <= scene->reported[0].global_step && rig_done(rig) == 0,
       "no step is made after step %d", (int)scene->reported[0].global_step);
}

static void a_pause_holds_the_run_between_two_steps(void)
{
    for (int k = 0; k < EVERYWHERE; k++) {
        scene_t scene = {.at = 3, .act = pause_it}, none = {0};
        rig_t *rig = run_of(&everywhere[k], &scene, SHORT),
              *other = run_of(&everywhere[k], &none, SHORT);
        rig_begin(rig);
        ok(answered(rig, 1), "it pauses: %s", everywhere[k].what);
        is_answered_ok(&scene, 0, "pause");
        nothing_is_done_for_a_while(rig);
        ok(send_continue(rig) == PL_OK, "a continue is taken");
        const rig_result_t *result = rig_wait(rig);
        is_text(result->status, "ok", "it ends: %s", result->error.text);
        is_int(result->global_step, 40, "with all its steps");
        is_int(scene.answers, 2, "both are answered");
        is_answered_ok(&scene, 1, "continue");
        is_int(scene.reported[1].global_step, scene.reported[0].global_step,
               "at the same step");
        ok(rig_same_bits(result, rig_fit(other)),
           "the bits equal those of a run without a pause");
        rig_free(&rig);
        rig_free(&other);
    }
}

static void a_pause_is_no_time_of_the_runs(void)
{
    scene_t scene = {.at = 3, .act = pause_it};
    rig_t *rig = run_of(&everywhere[0], &scene, SHORT);
    const int64_t before = pl_now();
    rig_begin(rig);
    answered(rig, 1);
    nothing_is_done_for_a_while(rig);
    send_continue(rig);
    const rig_result_t *result = rig_wait(rig);
    const double all = (double)(pl_now() - before) / PL_SECOND;
    ok(result->seconds < all - 0.49, "%.3f s of %.3f", result->seconds, all);
    rig_free(&rig);
}

static void pause_and_continue_may_be_sent_twice(void)
{
    scene_t scene = {.at = 3, .act = pause_it};
    rig_t *rig = run_of(&everywhere[0], &scene, SHORT);
    rig_begin(rig);
    answered(rig, 1);
    send_pause(rig);
    ok(answered(rig, 2), "a second pause is answered");
    is_answered_ok(&scene, 1, "pause");
    send_continue(rig);
    send_continue(rig);
    is_text(rig_wait(rig)->status, "ok", "the run ends");
    is_int(scene.answers, 4, "all are answered");
    is_answered_ok(&scene, 2, "continue");
    rig_free(&rig);
}

static void a_run_may_be_paused_before_its_first_step(void)
{
    for (int k = 0; k < EVERYWHERE; k++) {
        scene_t scene = {0};
        rig_t *rig = run_of(&everywhere[k], &scene, "\"max_steps\": 10");
        rig_begin(rig);
        is_int(send_pause(rig), PL_OK, "a pause is taken while it starts: %s",
               everywhere[k].what);
        ok(answered(rig, 1), "and answered");
        is_answered_ok(&scene, 0, "pause");
        is_int(scene.reported[0].global_step, 0, "before the first step");
        send_continue(rig);
        is_int(rig_wait(rig)->global_step, 10, "then it is trained");
        rig_free(&rig);
    }
}

static void a_paused_run_can_be_stopped(void)
{
    for (int k = 0; k < EVERYWHERE; k++) {
        scene_t scene = {.at = 3, .act = pause_it};
        rig_t *rig = run_of(&everywhere[k], &scene, LONG);
        rig_begin(rig);
        answered(rig, 1);
        is_int(pl_trainer_stop(rig_trainer(rig), "enough", NULL), PL_OK, "a stop: %s",
               everywhere[k].what);
        const rig_result_t *result = rig_wait(rig);
        is_text(result->status, "stopped", "ends it: %s", result->error.text);
        is_text(result->reason, "enough", "with the reason");
        is_int(result->global_step, scene.reported[0].global_step, "where it was");
        rig_free(&rig);
    }
}

/* ---- save ---- */

static void save_it(rig_t *rig)
{
    is_int(send_save(rig), PL_OK, "a save is taken");
}

static void pause_and_save(rig_t *rig)
{
    send_pause(rig);
    send_save(rig);
}

static void a_paused_run_is_saved_where_it_is(void)
{
    for (int k = 0; k < EVERYWHERE; k++) {
        scene_t scene = {.at = 3, .act = pause_and_save};
        rig_t *rig = run_of(&everywhere[k], &scene, SHORT);
        rig_begin(rig);
        ok(answered(rig, 2), "both are answered: %s", everywhere[k].what);
        send_save(rig);
        ok(answered(rig, 3), "and another save");
        is_answered_ok(&scene, 2, "save");
        is_int(scene.reported[2].global_step, scene.reported[0].global_step,
               "of the same step");
        is_text(scene.reported[1].checkpoint, scene.reported[2].checkpoint,
                "by the same name");
        send_continue(rig);
        is_text(rig_wait(rig)->status, "ok", "it continues to its end");
        rig_free(&rig);
    }
}

static void reported_as(rig_t *rig, const char *name)
{
    is_int(pl_trainer_save_as(rig_trainer(rig), name, on_command, rig_user(rig),
                              &rig_error),
           PL_OK, "to be saved as \"%s\"", name);
}

static void save_as_newest(rig_t *rig)
{
    reported_as(rig, "newest");
    reported_as(rig, "other.1_-");
}

/* Whether the run has so many checkpoints that begin so. */
static int called(const rig_result_t *result, const char *prefix)
{
    char path[400];
    int count = 0;
    snprintf(path, sizeof path, "%s/checkpoints", result->run_dir);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += !strncmp(entry->d_name, prefix, strlen(prefix));
    if (folder)
        closedir(folder);
    return count;
}

static void a_named_checkpoint_replaces_the_one_of_that_name(void)
{
    for (int k = 0; k < EVERYWHERE; k++) {
        scene_t scene = {.at = 3, .act = save_as_newest};
        rig_t *rig = run_of(&everywhere[k], &scene, SHORT);
        rig_begin(rig);
        ok(answered(rig, 2), "both are answered: %s", everywhere[k].what);
        is_answered_ok(&scene, 0, "save");
        like(scene.reported[0].checkpoint, "/checkpoints/asked-newest$", "by its name");
        like(scene.reported[1].checkpoint, "/checkpoints/asked-other.1_-$", "each");
        send_pause(rig);
        ok(answered(rig, 3), "later");
        reported_as(rig, "newest");
        ok(answered(rig, 4), "it is saved so again");
        is_text(scene.reported[3].checkpoint, scene.reported[0].checkpoint,
                "at the same place");
        ok(scene.reported[3].global_step >= scene.reported[0].global_step,
           "as it is by then");
        char manifest[560];
        snprintf(manifest, sizeof manifest, "%s/manifest.json",
                 scene.reported[3].checkpoint);
        json_t *saved = json_load_file(manifest, 0, NULL);
        is_int(json_integer_value(json_object_get(saved, "global_step")),
               scene.reported[3].global_step, "which is what lies there");
        json_decref(saved);
        send_continue(rig);
        const rig_result_t *result = rig_wait(rig);
        is_text(result->status, "ok", "it continues to its end");
        is_int(called(result, "asked-"), 2, "with one checkpoint of each name");
        rig_free(&rig);
    }
}

static void save_by_no_name(rig_t *rig)
{
    static const char *const no_names[] = {"",    "a/b",  "../up", "step=3",
                                           "a b", "\xff", "a\nb"};
    char long_name[66];
    memset(long_name, 'n', 65);
    long_name[65] = '\0';
    for (size_t k = 0; k <= sizeof no_names / sizeof *no_names; k++) {
        const char *name = k ? no_names[k - 1] : long_name;
        is_int(pl_trainer_save_as(rig_trainer(rig), name, on_command, rig_user(rig),
                                  &rig_error),
               PL_EINVAL, "no name: %d", (int)k);
        like(rig_error.text, "cannot be the name of a checkpoint: use 1 to 64 letters",
             "and the error says what is");
    }
    reported_as(rig, long_name + 1);
}

static void a_name_is_the_name_of_a_folder(void)
{
    scene_t scene = {.at = 3, .act = save_by_no_name};
    rig_t *rig = run_of(&everywhere[0], &scene, SHORT);
    is_text(rig_fit(rig)->status, "ok", "a run that was to be saved by no name");
    is_answered_ok(&scene, 0, "save");
    rig_free(&rig);
}

static void a_run_without_checkpoints_refuses_a_save(void)
{
    scene_t scene = {.at = 3, .act = save_it};
    rig_t *rig = run_of(&everywhere[0], &scene,
                        SHORT ", \"enable_checkpointing\": false");
    is_text(rig_fit(rig)->status, "ok", "a run without");
    is_int(scene.reported[0].error.code, PL_ESTATE, "refuses to save");
    like(scene.reported[0].error.text, "enable_checkpointing", "and says why");
    rig_free(&rig);
}

/* ---- the learning rate ---- */

#define LOGGED "\"max_steps\": 30, \"log_every_n_steps\": 1"
#define HALVES "{\"name\": \"exponential\", \"gamma\": 0.5}"

static void rate_it(rig_t *rig)
{
    is_int(send_lr(rig, 0.25), PL_OK, "a rate is taken");
}

/* The rate of the step behind a step. */
static double rate_after(const rig_result_t *result, uint64_t step)
{
    const rig_series_t rates = rig_series(result, "lr-sgd");
    for (int k = 0; k < rates.count; k++)
        if (rates.step[k] == (double)step + 1)
            return rates.value[k];
    return NAN;
}

static void the_next_step_is_made_at_the_rate_that_is_set(void)
{
    for (int k = 0; k < EVERYWHERE; k++) {
        scene_t scene = {.at = 3, .act = rate_it};
        rig_t *rig = run_of(&everywhere[k], &scene, LOGGED);
        const rig_result_t *result = rig_fit(rig);
        is_answered_ok(&scene, 0, "set_lr");
        const uint64_t step = scene.reported[0].global_step;
        is_near(rate_after(result, step - 1), 0.1, 1e-12, "as it was up to step %d: %s",
                (int)step, everywhere[k].what);
        is_near(rate_after(result, step), 0.25, 1e-12, "then as it was set");
        rig_free(&rig);
    }
}

static void scale_twice(rig_t *rig)
{
    pl_trainer_scale_lr(rig_trainer(rig), 3, NULL, on_command, rig_user(rig), NULL);
    pl_trainer_scale_lr(rig_trainer(rig), 0.5, NULL, on_command, rig_user(rig), NULL);
}

static void a_factor_takes_the_place_of_the_one_before(void)
{
    scene_t scene = {.at = 3, .act = scale_twice};
    rig_t *rig = run_of(&everywhere[0], &scene, LOGGED);
    const rig_result_t *result = rig_fit(rig);
    is_int(scene.answers, 2, "both are carried out");
    is_near(rate_after(result, scene.reported[1].global_step), 0.05, 1e-12,
            "the last counts");
    rig_free(&rig);
}

static void a_schedule_continues_in_proportion(void)
{
    scene_t scene = {.at = 3, .act = rate_it};
    rig_t *rig = rig_new(.script = SLOW, .trainer = LOGGED, .user = &scene,
                         .scheduler = HALVES, .on_progress = on_progress);
    const rig_result_t *result = rig_fit(rig);
    const uint64_t step = scene.reported[0].global_step;
    is_near(rate_after(result, step), 0.25, 1e-12, "the rate is as it was set");
    const double last = rig_series(result, "lr-sgd").value[29];
    ok(last < 0.25 && last > 0, "and falls on: %g", last);
    is_near(fmod(log2(0.25 / last), 1), 0, 1e-9, "by halves");
    rig_free(&rig);
}

static void rate_and_save(rig_t *rig)
{
    send_lr(rig, 0.25);
    send_save(rig);
}

static void a_checkpoint_is_made_on_request_and_has_the_rate_that_was_set(void)
{
    for (int k = 0; k < EVERYWHERE; k++) {
        scene_t scene = {.computes = true, .at = 3, .act = rate_and_save};
        rig_t *rig = run_of(&everywhere[k], &scene, SHORT);
        rig_result_t *whole = rig_keep(rig_fit(rig));
        is_text(whole->status, "ok", "the run ends: %s", everywhere[k].what);
        is_int(scene.answers, 2, "both are answered");
        is_answered_ok(&scene, 1, "save");
        like(scene.reported[1].checkpoint, "/checkpoints/asked-step=[0-9]+$",
             "with its place");
        ok(rig_begin_again(rig, scene.reported[1].checkpoint), "from there: %s",
           rig_error.text);
        const rig_result_t *rest = rig_wait(rig);
        is_text(rest->status, "ok", "a run resumes: %s", rest->error.text);
        ok(rig_same_bits(whole, rest), "and comes to the same bits");
        rig_result_free(whole);
        rig_free(&rig);
    }
}

static void set_lr_of_unknown_optimizer(rig_t *rig)
{
    pl_trainer_set_lr(rig_trainer(rig), 0.25, "unknown", on_command, rig_user(rig), NULL);
}

static void rates_that_are_no_positive_number_are_refused(void)
{
    rig_listen("the learning rate");
    scene_t scene = {.at = 3, .act = set_lr_of_unknown_optimizer};
    rig_t *rig = run_of(&everywhere[0], &scene, SHORT);
    rig_begin(rig);
    is_int(send_lr(rig, -1), PL_EINVAL, "a negative one");
    is_int(send_lr(rig, NAN), PL_EINVAL, "no number");
    is_int(send_lr(rig, INFINITY), PL_EINVAL, "no finite one");
    is_text(rig_wait(rig)->status, "ok", "the run ends");
    is_int(scene.reported[0].error.code, PL_EINVAL, "an optimizer that is not there");
    like(scene.reported[0].error.text, "unknown", "is named");
    is_int(rig_lines_received(), 0, "and the log does not say that it was set");
    rig_listen(NULL);
    rig_free(&rig);
}

/* ---- at the wrong time ---- */

static void commands_without_a_fit_are_refused(void)
{
    scene_t scene = {0};
    rig_t *rig = run_of(&everywhere[0], &scene, "\"max_steps\": 4");
    is_int(send_pause(rig), PL_ESTATE, "before a run");
    rig_fit(rig);
    is_int(send_pause(rig), PL_ESTATE, "and after it");
    is_int(send_save(rig), PL_ESTATE, "a save, too");
    is_int(send_lr(rig, 0.1), PL_ESTATE, "and a rate");
    is_int(scene.answers, 0, "no notification comes");
    rig_free(&rig);
}

/* Whenever it comes. */
static void each_command_is_answered_once(void)
{
    for (int k = 0; k < 12; k++) {
        scene_t scene = {0};
        rig_t *rig = run_of(&everywhere[k % EVERYWHERE], &scene, "\"max_steps\": 6");
        rig_begin(rig);
        for (int turns = 0; turns < 3 * k; turns++)
            pl_engine_dispatch(rig_engine(rig));
        int taken = (send_save(rig) == PL_OK) + (send_lr(rig, 0.2) == PL_OK);
        is_text(rig_wait(rig)->status, "ok", "the run ends");
        ok(answered(rig, taken), "%d taken", taken);
        is_int(scene.answers, taken, "as many answers");
        rig_free(&rig);
    }
}

static void close_it(rig_t *rig)
{
    send_pause(rig);
    send_save(rig);
    pl_engine_close(rig_engine(rig), NULL, NULL);
}

static void closing_answers_open_commands(void)
{
    for (int k = 0; k < EVERYWHERE; k++) {
        scene_t scene = {.at = 3, .act = close_it};
        rig_t *rig = run_of(&everywhere[k], &scene, LONG);
        const rig_result_t *result = rig_fit(rig);
        is_int(result->error.code, PL_ECANCELLED, "the run is cancelled: %s %s",
               everywhere[k].what, result->error.text);
        is_int(scene.answers, 2, "both are answered");
        rig_free(&rig);
    }
}

static void a_free_ends_a_paused_run(void)
{
    scene_t scene = {.at = 3, .act = pause_it};
    rig_t *rig = run_of(&everywhere[1], &scene, LONG);
    rig_begin(rig);
    ok(answered(rig, 1), "it is paused");
    rig_free(&rig);
    is_int(pl_flight_count(), 0, "nothing is left of it");
}

/* ---- the record ---- */

static void all_commands_are_written_to_commands_jsonl(void)
{
    scene_t scene = {.at = 3, .act = rate_and_save};
    rig_t *rig = run_of(&everywhere[0], &scene, SHORT);
    const rig_result_t *result = rig_fit(rig);
    char path[600];
    size_t size;
    snprintf(path, sizeof path, "%s/commands.jsonl", result->run_dir);
    char *text = (char *)file_get(path, &size);
    ok(text != NULL, "the run has a commands.jsonl");
    like(text ? text : "",
         "^\\{\"time\": ?[0-9.]+, ?\"global_step\": ?[0-9]+, "
         "?\"command\": ?\"set_lr\", ?\"lr\": ?0.25\\}\n",
         "with the rate");
    like(text ? text : "",
         "\"command\": ?\"save\", ?\"checkpoint\": ?\"asked-step=", "and the save");
    free(text);
    rig_free(&rig);
}

static void stop_it(rig_t *rig)
{
    pl_trainer_stop(rig_trainer(rig), "enough of it", NULL);
}

static void is_paused_and_stopped(rig_t *rig)
{
    send_pause(rig);
    stop_it(rig);
}

/* Whether commands.jsonl ends with the stop, and where. */
static void stop_is_written(const rig_result_t *result, const char *reason)
{
    char path[600], wanted[200];
    size_t size = 0;
    snprintf(path, sizeof path, "%s/commands.jsonl", result->run_dir);
    snprintf(wanted, sizeof wanted,
             "\"global_step\": ?%llu, ?\"command\": ?\"stop\", ?\"reason\": "
             "?\"%s\"\\}\n$",
             (unsigned long long)result->global_step, reason);
    char *text = (char *)file_get(path, &size);
    like(text ? text : "", wanted, "its commands.jsonl says so");
    free(text);
}

static void ask_much_and_stop(rig_t *rig)
{
    for (int k = 0; k < 200; k++)
        send_lr(rig, 1e-3);
    stop_it(rig);
}

static void a_stop_behind_many_commands_stops_the_run(void)
{
    for (int k = 0; k < 3 * EVERYWHERE; k++) {
        scene_t scene = {.at = 3, .act = ask_much_and_stop};
        rig_t *rig = run_of(&everywhere[k % EVERYWHERE], &scene, LONG);
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "stopped", "a run with many commands is stopped: %s",
                everywhere[k % EVERYWHERE].what);
        rig_free(&rig);
    }
}

static void a_stop_is_recorded_with_its_reason(void)
{
    for (int k = 0; k < 2 * EVERYWHERE; k++) {
        const where_t *where = &everywhere[k % EVERYWHERE];
        scene_t scene = {.at = 3,
                         .act = k < EVERYWHERE ? stop_it : is_paused_and_stopped};
        rig_t *rig = run_of(where, &scene, LONG);
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "stopped", "%s: it stops", where->what);
        stop_is_written(result, "enough of it");
        rig_free(&rig);
    }
}

static void a_stop_without_a_reason_before_the_first_step_is_recorded(void)
{
    scene_t scene = {0};
    rig_t *rig = run_of(&everywhere[0], &scene, LONG);
    rig_begin(rig);
    pl_trainer_stop(rig_trainer(rig), NULL, NULL);
    stop_is_written(rig_wait(rig), "[^\"]+");
    rig_free(&rig);
}

static void a_run_that_ends_by_itself_was_not_stopped(void)
{
    scene_t scene = {0};
    rig_t *rig = run_of(&everywhere[0], &scene, "\"max_steps\": 4");
    const rig_result_t *result = rig_fit(rig);
    char path[600];
    snprintf(path, sizeof path, "%s/commands.jsonl", result->run_dir);
    ok(access(path, F_OK) != 0, "no commands.jsonl");
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t components[] = {{"callback", &brake},
                                                   PL_REGISTRATIONS_END};
    far_init(components);
    run(a_pause_holds_the_run_between_two_steps);
    run(a_pause_is_no_time_of_the_runs);
    run(pause_and_continue_may_be_sent_twice);
    run(a_run_may_be_paused_before_its_first_step);
    run(a_paused_run_can_be_stopped);
    run(a_paused_run_is_saved_where_it_is);
    run(a_named_checkpoint_replaces_the_one_of_that_name);
    run(a_name_is_the_name_of_a_folder);
    run(a_run_without_checkpoints_refuses_a_save);
    run(the_next_step_is_made_at_the_rate_that_is_set);
    run(a_factor_takes_the_place_of_the_one_before);
    run(a_schedule_continues_in_proportion);
    run(a_checkpoint_is_made_on_request_and_has_the_rate_that_was_set);
    run(rates_that_are_no_positive_number_are_refused);
    run(commands_without_a_fit_are_refused);
    run(each_command_is_answered_once);
    run(closing_answers_open_commands);
    run(a_free_ends_a_paused_run);
    run(all_commands_are_written_to_commands_jsonl);
    run(a_stop_behind_many_commands_stops_the_run);
    run(a_stop_is_recorded_with_its_reason);
    run(a_stop_without_a_reason_before_the_first_step_is_recorded);
    run(a_run_that_ends_by_itself_was_not_stopped);
    return tap_done();
}
