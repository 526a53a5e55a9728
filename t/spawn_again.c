/* spawn_again.c - tests of runs that are started again after one of their processes died:
 * they end as if nothing had happened */
#include <dirent.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "far.h"
#include "tap.h"

#define TWICE "{\"name\": \"spawn\", \"max_restarts\": 2}"
#define SPLIT "\"val_split\": 0.25"
#define SAVES \
    "[{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 2, " \
    "\"save_top_k\": -1}, {\"name\": \"early_stopping\", \"monitor\": \"val_loss\", " \
    "\"patience\": 50}]"
#define STEPS "\"max_epochs\": 20, \"log_every_n_steps\": 1"

static const char *mark(const char *name)
{
    static char text[400];
    snprintf(text, sizeof text, SPLIT ", \"mark\": \"%s/%s\"", tap_folder(), name);
    return text;
}

static const char *strategy;                                /* ["ddp"] */

/* The record is the rank's that reads it: 60 steps of 2 × 4 samples, all but a quarter of
 * 24, in order.  Rank 0 trains on the first, rank 1 on the fourth. */
static rig_t *run_new(const char *launcher, int record, const char *then,
                      const char *data)
{
    return far_new(.launcher = launcher, .strategy = strategy, .record = record,
                   .then = then, .data = data,
                   .rig = {.accelerator = "cpu", .trainer = STEPS, .callbacks = SAVES});
}

static rig_result_t *whole(void)
{
    rig_t *rig = run_new("\"inline\"", 0, "", SPLIT);
    rig_result_t *result = rig_keep(rig_fit(rig));
    rig_free(&rig);
    return result;
}

static void compare(const rig_result_t *want, const rig_result_t *got)
{
    is_text(got->status, "ok", "it ends well: %s", got->error.text);
    ok(rig_same_bits(want, got), "with the same bits");
    is_int(got->global_step, want->global_step, "after as many steps");
    ok(rig_metric(got, "val_loss") == rig_metric(want, "val_loss"), "the same metrics");
}

/* Each step stands there once. */
static void compare_logs(const rig_result_t *want, const rig_result_t *got)
{
    const rig_series_t a = rig_series(want, "train_loss"),
                       b = rig_series(got, "train_loss");
    bool same = a.count == b.count && a.count > 0;
    for (int k = 0; same && k < a.count; k++)
        same = a.step[k] == b.step[k] && a.value[k] == b.value[k];
    if (!ok(same, "the same log (%d lines, %d)", a.count, b.count))
        for (int k = 0; k < b.count; k++)
            tap_diag("step %g: %.9g", b.step[k], b.value[k]);
}

static int run_directories(void)
{
    char path[400];
    int count = 0;
    snprintf(path, sizeof path, "%s/runs", tap_folder());
    DIR *folder = opendir(path);
    for (const struct dirent *e; folder && (e = readdir(folder));)
        count += e->d_name[0] == '0';
    if (folder)
        closedir(folder);
    return count;
}

/* The step after which a run has resumed  [-1: none has]. */
static int resumed_after;

static void note_step(pl_log_level_t level, int rank, const char *actor, const char *text,
                      void *user)
{
    (void)level, (void)actor, (void)user;
    if (rank == 0)
        sscanf(text, "resuming after step %d", &resumed_after);
}

/* In the first epoch there is no checkpoint yet: it begins afresh, in another folder.
 * Later there is one, of two steps before what is trained; and batches are read ahead. */
static void a_rank_that_dies_once_leaves_no_trace(void)
{
    enum { EPOCH = 16, STEPS_OF_ONE = 3 };
    static const char *const ends[] = {"SIGKILL", "SIGSEGV", "exit 1"};
    rig_result_t *want = whole();
    int in_place = 0, soon = 0;
    pl_log_hook(note_step, PL_LOG_INFO, NULL);
    for (int k = 0; k < 6; k++)
        for (int record = 1; record <= 4; record += 3) {
            char name[40], data[500];
            snprintf(name, sizeof name, "mark %d %d", k, record);
            snprintf(data, sizeof data, "%s, \"epoch\": %d", mark(name),
                     k < 3 ? EPOCH : 0);
            resumed_after = -1;
            const int before = run_directories();
            rig_t *rig = run_new(TWICE, record, ends[k % 3], data);
            const rig_result_t *got = rig_fit(rig);
            compare(want, got);
            compare_logs(want, got);
            in_place += k < 3 && run_directories() - before == 1;
            soon += k < 3 && resumed_after >= (EPOCH - 4) * STEPS_OF_ONE;
            is_int(rig_done(rig), 1, "%s: one on_done", ends[k % 3]);
            is_int(far_children(), 0, "and no process is left");
            rig_free(&rig);
        }
    pl_log_hook(NULL, PL_LOG_ERROR, NULL);
    is_int(in_place, 6, "those that had a checkpoint resumed in their folders");
    is_int(soon, 6, "from one of not long before");
    rig_result_free(want);
}

/* The folder is made before any notification of it. */
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);

int __wrap_mkdir(const char *path, mode_t mode)
{
    const char *once = getenv("DIES_WHERE_ITS_RUN_IS");
    const int code = __real_mkdir(path, mode), length = (int)strlen(path);
    if (code == 0 && once && length > 6 && !strcmp(path + length - 6, "/named")
        && __real_mkdir(once, 0700) == 0)
        kill(getpid(), SIGKILL);
    return code;
}

static void a_rank_that_dies_when_its_folder_is_new_starts_from_the_beginning(void)
{
    char once[300];
    rig_result_t *want = whole();
    snprintf(once, sizeof once, "%s/once", tap_folder());
    setenv("DIES_WHERE_ITS_RUN_IS", once, 1);
    rig_t *rig = far_new(.launcher = TWICE, .data = SPLIT,
                         .rig = {.accelerator = "cpu",
                                 .trainer = STEPS ", \"run_name\": \"named\"",
                                 .callbacks = SAVES});
    const rig_result_t *got = rig_fit(rig);
    unsetenv("DIES_WHERE_ITS_RUN_IS");
    compare(want, got);
    like(got->run_dir, "/named$", "in the folder of its name");
    ok(access(once, F_OK) == 0, "and rank 0 had died");
    rig_free(&rig);
    rig_result_free(want);
}

/* The first is started for the third time then. */
static void a_rank_that_dies_before_it_has_joined_counts_as_another_death(void)
{
    rig_result_t *want = whole();
    char data[500];
    snprintf(data, sizeof data, "%s, \"epoch\": 16", mark("early"));
    setenv("FAR_EARLY_0_2", "exit 1", 1);
    setenv("FAR_EARLY_1_2", "spin", 1);
    rig_t *rig = run_new(TWICE, 4, "SIGKILL", data);
    const rig_result_t *got = rig_fit(rig);
    compare(want, got);
    rig_free(&rig);
    setenv("FAR_EARLY_0_3", "exit 1", 1);
    snprintf(data, sizeof data, "%s, \"epoch\": 16", mark("early again"));
    rig = run_new(TWICE, 4, "SIGKILL", data);
    got = rig_fit(rig);
    is_text(got->error.where, "rank 0", "one that does it again: %s", got->error.text);
    like(got->error.text, "started again 2 times .*exited with status 1 before it joined",
         "ends the run");
    rig_free(&rig);
    unsetenv("FAR_EARLY_0_2");
    unsetenv("FAR_EARLY_1_2");
    unsetenv("FAR_EARLY_0_3");
    rig_result_free(want);
}

/* That may not occur again, but an end of its own would. */
static void a_rank_that_is_killed_before_all_have_joined_leaves_no_trace(void)
{
    rig_result_t *want = whole();
    for (int rank = 0; rank < 2; rank++) {
        setenv(rank ? "FAR_EARLY_1_1" : "FAR_EARLY_0_1", "SIGKILL", 1);
        rig_t *rig = run_new(TWICE, 0, "", SPLIT);
        rig_listen("all ranks are started again");
        const rig_result_t *got = rig_fit(rig);
        compare(want, got);
        is_int(rig_lines_received(), 1, "it is started again");
        rig_listen(NULL);
        rig_free(&rig);
        unsetenv(rank ? "FAR_EARLY_1_1" : "FAR_EARLY_0_1");
    }
    setenv("FAR_EARLY_1_1", "SIGSEGV", 1);
    rig_t *rig = run_new(TWICE, 0, "", SPLIT);
    like(rig_fit(rig)->error.text, "^the process of rank 1 .*SIGSEGV before it joined",
         "a rank that crashes instead fails the run");
    rig_free(&rig);
    unsetenv("FAR_EARLY_1_1");
    rig_result_free(want);
}

static int64_t killed;

static void kill_later(rig_t *rig, const pl_progress_t *progress)
{
    int process = progress->global_step >= 5 && !killed
                      ? far_process(*(int *)rig_user(rig))
                      : 0;
    if (!process)
        return;
    killed = pl_now();
    kill(process, SIGKILL);
}

static void a_rank_that_is_killed_in_a_step_leaves_no_trace(void)
{
    rig_result_t *want = whole();
    for (int rank = 0; rank < 2; rank++) {
        killed = 0;
        rig_t *rig = far_new(.launcher = TWICE, .data = SPLIT,
                             .rig = {.accelerator = "cpu",
                                     .trainer = STEPS,
                                     .callbacks = SAVES,
                                     .user = &rank,
                                     .on_progress = kill_later});
        compare(want, rig_fit(rig));
        rig_free(&rig);
    }
    rig_result_free(want);
}

/* Also of the dead rank's own state. */
static void ranks_of_other_strategies_leave_no_trace(void)
{
    static const char *const others[] = {"\"zero1\"",
                                         "{\"name\": \"local_sgd\", \"sync_every\": 4}"};
    for (int k = 0; k < 2; k++) {
        strategy = others[k];
        rig_result_t *want = whole();
        for (int record = 1; record <= 2; record++) {
            char name[40], data[500];
            snprintf(name, sizeof name, "other %d %d", k, record);
            snprintf(data, sizeof data, "%s, \"epoch\": 16", mark(name));
            rig_t *rig = run_new(TWICE, record, "SIGKILL", data);
            const rig_result_t *got = rig_fit(rig);
            compare(want, got);
            compare_logs(want, got);
            rig_free(&rig);
        }
        rig_result_free(want);
    }
    strategy = NULL;
}

static void a_rank_that_always_dies_ends_the_run_at_the_limit(void)
{
    rig_t *rig = run_new(TWICE, 1, "SIGKILL", SPLIT);
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_EDIED", "%s", result->error.text);
    like(result->error.text,
         "started again 2 times within 10 minutes, and failed after steps 0, 0, 0: the "
         "process of rank 0 .*SIGKILL",
         "it says how often, when and why");
    is_int(rig_done(rig), 1, "one on_done");
    rig_free(&rig);
}

/* Two ranks make 3 steps of an epoch, one makes 5.  The remaining rank reads the
 * record that ended the other, and lives. */
static void a_rank_that_dies_repeatedly_is_left_out(void)
{
    char data[500];
    snprintf(data, sizeof data, "%s, \"epoch\": 16, \"times\": 2", mark("left"));
    rig_t *rig =
        far_new(.launcher = TWICE, .min = 1, .record = 4, .then = "SIGKILL", .data = data,
                .rig = {.accelerator = "cpu", .trainer = STEPS, .callbacks = SAVES});
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "it ends well: %s", result->error.text);
    ok(result->global_step > 60, "with one rank: after %d steps",
       (int)result->global_step);
    rig_free(&rig);
    rig = far_new(.launcher = TWICE, .min = 2, .ranks = 3, .record = 2, .then = "SIGKILL",
                  .data = SPLIT,
                  .rig = {.accelerator = "cpu", .trainer = STEPS, .callbacks = SAVES});
    like(rig_fit(rig)->error.text, "started again [0-9] times", "not below the least");
    rig_free(&rig);
}

/* How many are logged, one after the other. */
static int64_t steps_in_order(const rig_result_t *result)
{
    json_t *line, *lines = rig_log(result);
    size_t k;
    json_int_t newest = 0;
    json_array_foreach(lines, k, line)
        if (json_object_get(line, "train_loss")
            && json_integer_value(json_object_get(line, "global_step")) == newest + 1)
            newest++;
    json_decref(lines);
    return newest;
}

static int left_out, back;                                 /* how often; atomic */
static int64_t left_at, absent[2];                         /* ns; from one to the other */

static void log_look(pl_log_level_t level, int rank, const char *actor, const char *text,
                     void *user)
{
    (void)level, (void)rank, (void)actor, (void)user;
    if (strstr(text, "rank 1 has died again: the run continues with 1 rank")) {
        __atomic_add_fetch(&left_out, 1, __ATOMIC_RELAXED);
        left_at = pl_now();
    }
    if (strstr(text, "rank 1 is started again: the run is saved and continues with 2 "
                     "ranks")) {
        absent[back > 0] = pl_now() - left_at;
        __atomic_add_fetch(&back, 1, __ATOMIC_RELAXED);
    }
}

/* An epoch of two ranks has 3 steps, an epoch of one 5. */
static void stop_with_two(rig_t *rig, const pl_progress_t *progress)
{
    if (__atomic_load_n(&back, __ATOMIC_RELAXED) == 2 && progress->batches == 3)
        pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

/* After its return one death is enough. */
static void a_rank_that_was_left_out_is_tried_again(void)
{
    char data[500];
    snprintf(data, sizeof data, "%s, \"epoch\": 16, \"times\": 3, \"rank\": 1",
             mark("tried"));
    left_out = back = 0;
    rig_t *rig =
        far_new(.launcher =
                    "{\"name\": \"spawn\", \"max_restarts\": 2, \"return_after\": 0.3}",
                .min = 1, .record = 4, .then = "SIGKILL", .data = data,
                .rig = {.accelerator = "cpu",
                        .trainer = "\"max_epochs\": -1, \"log_every_n_steps\": 1",
                        .callbacks = SAVES,
                        .on_progress = stop_with_two});
    pl_log_hook(log_look, PL_LOG_INFO, NULL);
    const rig_result_t *result = rig_fit(rig);
    pl_log_hook(NULL, PL_LOG_ERROR, NULL);
    is_text(result->status, "stopped", "it continues: %s", result->error.text);
    is_text(result->reason, "enough", "until a stop comes");
    is_int(left_out, 2, "left out after it died twice, and once more");
    is_int(back, 2, "and tried again after each");
    ok(absent[0] >= 300 * PL_MILLISECOND && absent[1] >= 600 * PL_MILLISECOND,
       "after twice as long: %.2f s, %.2f s", (double)absent[0] / PL_SECOND,
       (double)absent[1] / PL_SECOND);
    is_int(steps_in_order(result), result->global_step, "each step was logged once");
    is_int(far_children(), 0, "and no process is left");
    rig_free(&rig);
}

/* Between two attempts, or in the middle of one. */
static void stop_when_it_is_back(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    if (__atomic_load_n(&back, __ATOMIC_RELAXED) && !killed)
        killed = !pl_trainer_stop(rig_trainer(user), "enough", NULL);
}

static void a_stop_of_a_run_without_enough_ranks_has_its_own_reason(void)
{
    const struct timeval interval = {0, 1000};
    char data[500];
    snprintf(data, sizeof data, "%s, \"epoch\": 16, \"times\": 2, \"rank\": 1",
             mark("paused"));
    left_out = back = killed = 0;
    rig_t *rig =
        far_new(.launcher =
                    "{\"name\": \"spawn\", \"max_restarts\": 2, \"return_after\": 0.1}",
                .min = 1, .record = 4, .then = "SIGKILL", .data = data,
                .rig = {.accelerator = "cpu",
                        .trainer = "\"max_epochs\": -1, \"log_every_n_steps\": 1",
                        .callbacks = SAVES});
    struct event *look = event_new(rig_base(rig), -1, EV_PERSIST, stop_when_it_is_back,
                                   rig);
    event_add(look, &interval);
    pl_log_hook(log_look, PL_LOG_INFO, NULL);
    const rig_result_t *result = rig_fit(rig);
    pl_log_hook(NULL, PL_LOG_ERROR, NULL);
    is_text(result->status, "stopped", "it ends well: %s", result->error.text);
    is_text(result->reason, "enough", "by the stop");
    event_free(look);
    rig_free(&rig);
}

#define TWO_SHARDS "{\"name\": \"elastic\", \"micro_shards\": 2}"
#define ANY_RANKS \
    "\"deterministic\": \"elastic\", \"max_epochs\": 300, " \
    "\"log_every_n_steps\": 1"

/* Where the bits do not depend on the number of ranks, neither the loss of a rank nor its
 * return shows. */
static void with_elastic_bits_a_missing_rank_leaves_no_trace(void)
{
    char data[500];
    snprintf(data, sizeof data, "%s, \"epoch\": 16, \"times\": 2, \"rank\": 1",
             mark("elastic"));
    rig_t *near =
        far_new(.launcher = "\"inline\"", .strategy = TWO_SHARDS, .data = SPLIT,
                .rig = {.accelerator = "cpu", .trainer = ANY_RANKS, .callbacks = SAVES});
    rig_result_t *want = rig_keep(rig_fit(near));
    rig_free(&near);
    left_out = back = 0;
    rig_t *rig =
        far_new(.launcher =
                    "{\"name\": \"spawn\", \"max_restarts\": 2, \"return_after\": 0.01}",
                .strategy = TWO_SHARDS, .min = 1, .then = "SIGKILL", .data = data,
                .rig = {.accelerator = "cpu", .trainer = ANY_RANKS, .callbacks = SAVES});
    pl_log_hook(log_look, PL_LOG_INFO, NULL);
    const rig_result_t *got = rig_fit(rig);
    pl_log_hook(NULL, PL_LOG_ERROR, NULL);
    compare(want, got);
    is_int(steps_in_order(got), got->global_step, "each step was logged once");
    is_int(left_out, 1, "a rank was left out");
    is_int(back, 1, "and came back");
    rig_result_free(want);
    rig_free(&rig);
}

static void an_error_of_the_program_is_not_tried_again(void)
{
    rig_t *rig = run_new(TWICE, 1, "torn", SPLIT);
    const rig_result_t *result = rig_fit(rig);
    like(result->error.text, "^[^;]*it is torn", "an error of a part: %s",
         result->error.text);
    ok(!strstr(result->error.text, "started again"), "is the run's at once");
    rig_free(&rig);
}

static void a_later_error_has_the_number_of_restarts(void)
{
    char data[500];
    snprintf(data, sizeof data, "%s, \"later\": \"torn\"", mark("torn later"));
    rig_t *rig = run_new(TWICE, 1, "SIGKILL", data);
    const rig_result_t *result = rig_fit(rig);
    like(result->error.text,
         "started again 1 time within 10 minutes, and failed after steps 0, 0: .*it is "
         "torn",
         "%s", result->error.text);
    rig_free(&rig);
}

/* Before it is killed it continues for a moment, and may save: such a checkpoint has
 * an older position in the log, as with a slow logger. */
static void a_stuck_rank_is_replaced(void)
{
    static const char *const names[] = {"stopped 0", "stopped 1"};
    rig_result_t *want = whole();
    for (int rank = 0; rank < 2; rank++) {
        rig_t *rig = far_new(.launcher = TWICE, .record = rank + 1, .then = "SIGSTOP",
                             .data = mark(names[rank]),
                             .rig = {.accelerator = "cpu",
                                     .callbacks = SAVES,
                                     .trainer = STEPS ", \"step_timeout\": 2"});
        const int64_t began = pl_now();
        const rig_result_t *got = rig_fit(rig);
        const double seconds = (double)(pl_now() - began) / 1e9;
        compare(want, got);
        compare_logs(want, got);
        ok(seconds < 20, "within ten times the time of a step: %g s", seconds);
        rig_free(&rig);
    }
    rig_result_free(want);
}

static void a_resumed_run_is_started_again_from_its_checkpoint(void)
{
    char from[600];
    char there[500];
    snprintf(there, sizeof there, "%s/resumed", tap_folder());
    fclose(fopen(there, "w"));                              /* no rank dies yet */
    rig_t *near = run_new("\"inline\"", 1, "SIGKILL", mark("resumed"));
    rig_result_t *want = rig_keep(rig_fit(near));
    rig_free(&near);
    snprintf(from, sizeof from, "%s/checkpoints/epoch=0-step=2", want->run_dir);
    unlink(there);
    rig_t *rig = run_new(TWICE, 1, "SIGKILL", mark("resumed"));
    ok(rig_begin_again(rig, from), "a run resumes: %s", rig_error.text);
    const rig_result_t *result = rig_wait(rig);
    is_text(result->status, "ok", "and, after a death, ends: %s", result->error.text);
    ok(rig_same_bits(want, result), "with the same bits");
    rig_result_free(want);
    rig_free(&rig);
}

static void a_measurement_is_made_again(void)
{
    rig_result_t *want = whole();
    rig_t *rig = run_new(TWICE, 1, "SIGKILL", mark("measured"));
    rig_t *near = run_new("\"inline\"", 0, "", SPLIT);
    const double loss = rig_metric(rig_test(near, want->run_dir), "test_loss");
    const rig_result_t *result = rig_test(rig, want->run_dir);
    is_text(result->status, "ok", "it ends: %s", result->error.text);
    ok(rig_metric(result, "test_loss") == loss, "with the same metric");
    rig_free(&near);
    rig_free(&rig);
    rig_result_free(want);
}

static void stop_now(rig_t *rig, const pl_progress_t *progress)
{
    if (progress->global_step < 3 || killed)
        return;
    killed = 1;
    pl_trainer_stop(rig_trainer(rig), "enough", NULL);
    kill(far_process(1), SIGKILL);
}

/* A request to end gets an end, not another start. */
static void a_run_that_was_asked_to_stop_is_not_started_again(void)
{
    killed = 0;
    rig_t *rig =
        far_new(.launcher = TWICE, .data = SPLIT,
                .rig = {.trainer = "\"max_epochs\": 100000", .on_progress = stop_now});
    const int64_t began = pl_now();
    const rig_result_t *result = rig_fit(rig);
    ok(!strcmp(result->status, "failed") || !strcmp(result->status, "stopped"),
       "it ends: %s", result->error.text);
    ok(pl_now() - began < 20 * PL_SECOND, "soon");
    rig_free(&rig);
}

static void stop_when_it_waits(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    if (rig_lines_received() == 4 && !killed)
        killed = !pl_trainer_stop(rig_trainer(user), "enough", NULL);
}

/* After four deaths a run waits for 6.4 s. */
static void a_stop_before_a_restart_is_a_stop(void)
{
    const struct timeval interval = {0, 1000};
    char data[500];
    killed = 0;
    snprintf(data, sizeof data, "%s, \"epoch\": 2, \"times\": 4", mark("waiting"));
    rig_t *rig = run_new("{\"name\": \"spawn\", \"max_restarts\": 10}", 1, "SIGKILL",
                         data);
    struct event *timer = event_new(rig_base(rig), -1, EV_PERSIST, stop_when_it_waits,
                                    rig);
    event_add(timer, &interval);
    rig_listen("all ranks are started again");
    const rig_result_t *result = rig_fit(rig);
    rig_listen(NULL);
    is_text(result->status, "stopped", "it ends as one that trains: %s",
            result->error.text);
    is_text(result->reason, "enough", "with its reason");
    ok(result->weight_count > 0 && rig_has_file(result, "model.safetensors"),
       "and with all saved");
    is_int(far_children(), 0, "no process is left");
    event_free(timer);
    rig_free(&rig);
}

int main(void)
{
    far_init(NULL);
    if (!rig_has("cpu"))                                    /* the fake one has float64 */
        return tap_done();
    run(a_rank_that_dies_once_leaves_no_trace);
    run(a_rank_that_dies_when_its_folder_is_new_starts_from_the_beginning);
    run(a_rank_that_dies_before_it_has_joined_counts_as_another_death);
    run(a_rank_that_is_killed_before_all_have_joined_leaves_no_trace);
    run(a_rank_that_is_killed_in_a_step_leaves_no_trace);
    run(ranks_of_other_strategies_leave_no_trace);
    run(a_rank_that_always_dies_ends_the_run_at_the_limit);
    run(a_rank_that_dies_repeatedly_is_left_out);
    run(a_rank_that_was_left_out_is_tried_again);
    run(a_stop_of_a_run_without_enough_ranks_has_its_own_reason);
    run(with_elastic_bits_a_missing_rank_leaves_no_trace);
    run(an_error_of_the_program_is_not_tried_again);
    run(a_later_error_has_the_number_of_restarts);
    run(a_stuck_rank_is_replaced);
    run(a_resumed_run_is_started_again_from_its_checkpoint);
    run(a_measurement_is_made_again);
    run(a_run_that_was_asked_to_stop_is_not_started_again);
    run(a_stop_before_a_restart_is_a_stop);
    return tap_done();
}
