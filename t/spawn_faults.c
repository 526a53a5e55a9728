/* spawn_faults.c - tests of runs with processes that die, stop, or never
 * join */
#include <dirent.h>
#include <event2/event.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "far.h"
#include "tap.h"

#define LONG "\"max_epochs\": 100000"

/* ---- Deaths ---- */

/* "the process of rank 1 (4711 on HOST) …" */
static void check_place(const pl_error_t *error)
{
    char host[64] = "", place[96];
    gethostname(host, sizeof host - 1);
    snprintf(place, sizeof place, " on %s) ", host);
    ok(strstr(error->text, place), "and on which host: %s", host);
}

/* Ranks read every other sample of a batch for all: in order, as nothing is shuffled. */
static void a_rank_that_dies_is_named(void)
{
    static const char *const ends[] = {"SIGKILL", "SIGSEGV", "exit 7", "exit 0"};
    static const char *const texts[] = {"was killed by SIGKILL", "was killed by SIGSEGV",
                                        "exited with status 7", "exited with status 0"};
    for (int k = 0; k < 4; k++)
        for (int record = 1; record <= 14; record += 13) {
            rig_t *rig = far_new(.ranks = 3, .record = record, .then = ends[k],
                                 .batch_size = 4, .rig = {.trainer = LONG});
            const rig_result_t *result = rig_fit(rig);
            is_text(result->status, "failed", "%s at record %d", ends[k], record);
            is_text(pl_code_name(result->error.code), "PL_EDIED", "as a death");
            like(result->error.text, texts[k], "which is reported: %s",
                 result->error.text);
            like(result->error.text, "the end of rank [0-2]", "with its last words");
            like(result->error.where, "^rank [0-2]$", "with the rank: %s",
                 result->error.where);
            check_place(&result->error);
            is_int(rig_done(rig), 1, "once");
            is_int(far_children(), 0, "no process is left");
            rig_free(&rig);
        }
}

static int64_t killed_at;

static void kill_when_it_steps(rig_t *rig, const pl_progress_t *progress)
{
    int process = progress->global_step >= 5 && !killed_at
                      ? far_process(*(int *)rig_user(rig))
                      : 0;
    if (!process)
        return;
    killed_at = pl_now();
    kill(process, SIGKILL);
}

static void a_rank_may_be_killed_from_outside(void)
{
    for (int rank = 0; rank < 3; rank++) {
        char where[16];
        killed_at = 0;
        rig_t *rig = far_new(.ranks = 3, .rig = {.trainer = LONG,
                                                 .on_progress = kill_when_it_steps,
                                                 .user = &rank});
        const rig_result_t *result = rig_fit(rig);
        double seconds = (double)(pl_now() - killed_at) / 1e9;
        snprintf(where, sizeof where, "rank %d", rank);
        is_text(result->error.where, where, "it is named: %s", result->error.text);
        check_place(&result->error);
        like(result->error.text, "killed by SIGKILL after step [1-9]", "with its step");
        ok(seconds < 1, "all have ended after %g s", seconds);
        rig_free(&rig);
    }
}

/* ---- At any moment ---- */

typedef struct victim {
    int rank;
    bool was_killed;
    struct event *timer;
} victim_t;

static void kill_now(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    victim_t *victim = user;
    const struct timeval soon = {0, 1000};
    const int process = far_process(victim->rank);
    victim->was_killed = process && kill(process, SIGKILL) == 0;
    if (!process)                                           /* it has not started yet */
        event_add(victim->timer, &soon);
}

/* Nothing but the death fails it, and the error names the death. */
static bool failed_by(const rig_result_t *result, const victim_t *victim)
{
    char where[16];
    snprintf(where, sizeof where, "rank %d", victim->rank);
    return victim->was_killed && !strcmp(result->status, "failed")
           && !strcmp(result->error.where, where)
           && strstr(result->error.text, "was killed by SIGKILL");
}

static void a_run_ends_once_whenever_a_rank_is_killed(void)
{
    enum { RUNS = 24 };
    int succeeded = 0, failed = 0, landed = 0;
    rig_t *plain = far_new(.launcher = "\"inline\"",
                           .rig = {.trainer = "\"max_epochs\": 3"});
    const rig_result_t *whole = rig_fit(plain);

    /* The kills spread over the time that such a run takes on this machine. */
    const int64_t began = pl_now();
    rig_t *timed = far_new(.rig = {.trainer = "\"max_epochs\": 3", .loop_of = plain});
    rig_fit(timed);
    rig_free(&timed);
    const int64_t latest_us = (pl_now() - began) / 1000;
    for (int k = 0; k < RUNS; k++) {
        victim_t victim = {.rank = k % 2};
        const int64_t at_us = k * latest_us / RUNS;
        const struct timeval when = {at_us / 1000000, at_us % 1000000};
        rig_t *rig = far_new(.rig = {.trainer = "\"max_epochs\": 3", .loop_of = plain});
        victim.timer = event_new(rig_base(rig), -1, 0, kill_now, &victim);
        event_add(victim.timer, &when);
        const rig_result_t *result = rig_fit(rig);
        const bool has_succeeded = !strcmp(result->status, "ok")
                                   && rig_same_bits(result, whole);
        const bool has_failed = failed_by(result, &victim);
        if (!has_succeeded && !has_failed)
            tap_diag("after %d us: %s %s %s", (int)at_us, result->status,
                     result->error.where, result->error.text);
        if (rig_done(rig) != 1 || far_children() != 0)
            ok(false, "one end, and no process left");
        succeeded += has_succeeded;
        failed += has_failed;
        landed += victim.was_killed;
        event_free(victim.timer);
        rig_free(&rig);
    }
    is_int(succeeded + failed, RUNS, "%d runs succeeded, %d failed by that death",
           succeeded, failed);
    ok(landed >= RUNS / 4, "%d of %d kills met a rank that was alive", landed, RUNS);
    rig_free(&plain);
}

/* ---- While they start ---- */

/* What is done to a rig once so many ranks have said that they open the data. */
typedef struct starting {
    int ranks, wait_ms;
    void (*act)(rig_t *rig);
    int64_t acted;
    struct event *timer;
} starting_t;

static void starting_look(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    starting_t *s = rig_user(user);
    const struct timeval again = {0, 5000}, later = {0, s->wait_ms * 1000};
    if (s->acted || rig_lines_received() < s->ranks) {
        event_add(s->timer, &again);
    } else if (s->wait_ms) {
        event_add(s->timer, &later);
        s->wait_ms = 0;
    } else {
        s->acted = pl_now();
        s->act(user);
    }
}

/* -> how long it took from the act to the run's end, in seconds. */
static double fit_and_act(rig_t *rig, starting_t *s, const rig_result_t **result)
{
    const struct timeval soon = {0, 5000};
    rig_listen("the end of ");
    s->timer = event_new(rig_base(rig), -1, 0, starting_look, rig);
    event_add(s->timer, &soon);
    *result = rig_fit(rig);
    const double seconds = (double)(pl_now() - s->acted) / PL_SECOND;
    rig_listen(NULL);
    event_free(s->timer);
    return s->acted ? seconds : 1e9;
}

static void kill_rank_1(rig_t *rig)
{
    (void)rig;
    kill(far_process(1), SIGKILL);
}

static void stop_the_run(rig_t *rig)
{
    pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

/* None of the others can end by itself: a file does not open, a device does not
 * answer. */
static void a_death_while_ranks_start_ends_the_run_at_once(void)
{
    static const struct {
        const char *what, *data, *accelerator, *script;
        int wait_ms;
    } cases[] = {
        {"opens its data", "\"opens\": \"spin\"", NULL, NULL, 0},
        {"writes its first weights", "\"opens\": \"say\"", "fake", "write hangs", 300},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const rig_result_t *result;
        starting_t s = {.ranks = 3, .wait_ms = cases[k].wait_ms, .act = kill_rank_1};
        rig_t *rig = far_new(.ranks = 3, .data = cases[k].data,
                             .rig = {.accelerator = cases[k].accelerator,
                                     .script = cases[k].script,
                                     .user = &s});
        const double seconds = fit_and_act(rig, &s, &result);
        is_text(result->error.where, "rank 1", "each rank %s: %s", cases[k].what,
                result->error.text);
        like(result->error.text, "killed by SIGKILL", "the death is the cause");
        ok(seconds < 1, "which is reported after %g s", seconds);
        is_int(rig_done(rig), 1, "once");
        rig_free(&rig);
        is_int(far_children(), 0, "no process is left");
    }
}

static const char blocks[] = "\"opens\": \"spin\", \"rank\": 1";

static void a_wait_for_data_that_do_not_open_has_the_limit_of_a_step(void)
{
    rig_t *rig = far_new(.data = blocks, .rig = {.trainer = "\"step_timeout\": 1"});
    const int64_t began = pl_now();
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_ESTUCK", "the run is stuck");
    like(result->error.text, "^opening the data has not ended for 1 s", "as is said: %s",
         result->error.text);
    like(result->error.where, "^rank 1( worker)?$", "the rank is named");
    ok(pl_now() - began < 20 * PL_SECOND, "soon");
    rig_free(&rig);
    is_int(far_children(), 0, "no process is left");
}

static void a_stop_ends_a_start_up_that_does_not_end(void)
{
    const rig_result_t *result;
    starting_t s = {.ranks = 1, .act = stop_the_run};
    rig_t *rig = far_new(.data = blocks, .rig = {.user = &s});
    const double seconds = fit_and_act(rig, &s, &result);
    is_text(pl_code_name(result->error.code), "PL_ECANCELLED", "the run is over");
    like(result->error.text,
         "^stopped before the first step \\(enough\\), while comparing the data with "
         "rank 0",
         "as is said: %s", result->error.text);
    ok(seconds < 15, "after %g s", seconds);
    rig_free(&rig);
    is_int(far_children(), 0, "no process is left");
}

/* ---- Before they are there ---- */

static void a_worker_that_exits_early_fails_the_launch(void)
{
    static const char *const ends[] = {"exit 0", "exit 1", "exit 127", "SIGSEGV"};
    for (int k = 0; k < 4; k++) {
        setenv("FAR_EARLY", ends[k], 1);
        int64_t began = pl_now();
        rig_t *rig = far_new();
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "%s", ends[k]);
        like(result->error.text, "before it joined; its last words: the end of ",
             "says when, and its last words: %s", result->error.text);
        ok(pl_now() - began < 10 * PL_SECOND, "at once");
        rig_free(&rig);
    }
    unsetenv("FAR_EARLY");
}

static void a_wait_for_a_worker_that_never_joins_has_a_limit(void)
{
    setenv("FAR_EARLY", "spin", 1);
    rig_t *rig = far_new(.launcher = "{\"name\": \"spawn\", \"join_timeout\": 0.5}");
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_ETIMEOUT", "it is late");
    like(result->error.text, "rank 0-1", "and named: %s", result->error.text);
    is_int(far_children(), 0, "and ended");
    rig_free(&rig);
    unsetenv("FAR_EARLY");
}

static void stop(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_trainer_stop(rig_trainer(user), "enough", NULL);
}

static void close_engine(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_engine_close(rig_engine(user), NULL, NULL);
}

/* One is there and the other awaited, or both are. */
static void a_stop_while_ranks_join_ends_the_run_at_once(void)
{
    static const struct {
        const char *launcher, *late;
        event_callback_fn end;
    } cases[] = {
        {"\"spawn\"", "FAR_EARLY", stop},
        {"\"spawn\"", "FAR_EARLY_1_1", stop},
        {"\"script\"", "FAR_EARLY", stop},
        {"\"spawn\"", "FAR_EARLY", close_engine},
        {"\"script\"", "FAR_EARLY", close_engine},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        setenv(cases[k].late, "spin", 1);
        const int64_t began = pl_now();
        rig_t *rig = far_new(.launcher = cases[k].launcher);
        const struct timeval soon = {0, 150000};
        struct event *timer = event_new(rig_base(rig), -1, 0, cases[k].end, rig);
        event_add(timer, &soon);
        const rig_result_t *result = rig_fit(rig);
        is_text(pl_code_name(result->error.code), "PL_ECANCELLED", "%s, %s: %s",
                cases[k].launcher, cases[k].late, result->error.text);
        ok(pl_now() - began < 10 * PL_SECOND, "at once");
        is_int(rig_done(rig), 1, "once");
        event_free(timer);
        rig_free(&rig);
        is_int(far_children(), 0, "no process is left");
        unsetenv(cases[k].late);
    }
}

static void stop_then(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    if (rig_lines_received() && far_children() == 2)
        pl_trainer_stop(rig_trainer(user), "enough", NULL);
}

/* Though all ranks were there before. */
static void a_stop_while_ranks_join_again_ends_the_run_at_once(void)
{
    const struct timeval interval = {0, 20000};
    char data[400];
    snprintf(data, sizeof data, "\"mark\": \"%s/again\"", tap_folder());
    setenv("FAR_EARLY_1_2", "spin", 1);
    rig_t *rig = far_new(.launcher = "{\"name\": \"spawn\", \"max_restarts\": 1}",
                         .record = 14, .then = "SIGKILL", .data = data);
    struct event *timer = event_new(rig_base(rig), -1, EV_PERSIST, stop_then, rig);
    event_add(timer, &interval);
    rig_listen("all ranks are started again");
    const int64_t began = pl_now();
    const rig_result_t *result = rig_fit(rig);
    rig_listen(NULL);
    ok(rig_lines_received() > 0,
       "a run begins again, and one of its ranks does not join");
    is_text(pl_code_name(result->error.code), "PL_ECANCELLED", "it is stopped: %s",
            result->error.text);
    ok(pl_now() - began < 20 * PL_SECOND, "at once");
    event_free(timer);
    rig_free(&rig);
    is_int(far_children(), 0, "no process is left");
    unsetenv("FAR_EARLY_1_2");
}

/* What its program does at its exit may never end. */
static void a_process_that_has_left_and_stays_is_ended(void)
{
    const int64_t began = pl_now();
    setenv("FAR_EARLY_1_1", "linger", 1);
    rig_t *rig = far_new(.rig = {.trainer = "\"max_epochs\": 2"});
    const rig_result_t *result = rig_fit(rig);
    unsetenv("FAR_EARLY_1_1");
    is_text(result->status, "ok", "the run ends well: %s", result->error.text);
    ok(pl_now() - began < 40 * PL_SECOND, "soon");
    is_int(far_children(), 0, "and no process is left");
    rig_free(&rig);
}

/* ---- Alive, and yet not ---- */

/* Whose steps may take a second. */
static const rig_result_t *fit_soon(rig_t *rig)
{
    const int64_t began = pl_now();
    const rig_result_t *result = rig_fit(rig);
    const double seconds = (double)(pl_now() - began) / 1e9;
    ok(seconds < 10, "it has ended after %g s", seconds);
    return result;
}

static bool file_has(const rig_result_t *result, const char *name, const char *text)
{
    char path[4200], line[4096];
    bool found = false;
    snprintf(path, sizeof path, "%s/%s", result->run_dir, name);
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(line, sizeof line, file))
        found = strstr(line, text);
    if (file)
        fclose(file);
    return found;
}

static void a_process_that_is_stopped_is_killed(void)
{
    rig_t *rig = far_new(.record = 14, .then = "SIGSTOP", .data = "\"workers\": 1",
                         .rig = {.trainer = LONG ", \"step_timeout\": 1"});
    const rig_result_t *result = fit_soon(rig);
    is_text(pl_code_name(result->error.code), "PL_ESTUCK", "%s", result->error.text);
    like(result->error.where, "rank [01]", "with its name");
    is_int(far_children(), 0, "no process is left");
    ok(file_has(result, "rank-1.stderr", "thread \""),
       "it has logged the stacks of its threads");
    is_int(rig_done(rig), 1, "one end");
    rig_free(&rig);
}

/* Of all that wait for each other in vain: the one that does not come. */
static void a_thread_that_is_stuck_ends_with_its_process(void)
{
    rig_t *rig;
    for (int record = 13; record <= 15; record++) {
        char last_words[64];
        rig = far_new(.ranks = 3, .record = record, .then = "spin",
                      .rig = {.trainer = LONG ", \"step_timeout\": 1"});
        const rig_result_t *result = fit_soon(rig);
        snprintf(last_words, sizeof last_words, "; its last words: the end of %.6s",
                 result->error.where);
        is_text(pl_code_name(result->error.code), "PL_ESTUCK", "%s", result->error.text);
        like(result->error.text, last_words, "the stuck actor is named: %s",
             result->error.where);
        ok(!strstr(result->error.text, "use a launcher"),
           "with no advice that was taken");
        is_int(far_children(), 0, "no process is left");
        rig_free(&rig);
    }
    rig = far_new(.rig = {.trainer = "\"max_epochs\": 2"});
    is_text(rig_fit(rig)->status, "ok", "and another run works");
    rig_free(&rig);
}

static void terminate(rig_t *rig, const pl_progress_t *progress)
{
    int process = progress->global_step >= 3 ? far_process(*(int *)rig_user(rig)) : 0;
    if (process)
        kill(process, SIGTERM);
}

static void a_rank_that_is_asked_to_end_stops_the_run(void)
{
    for (int rank = 0; rank < 2; rank++) {
        char reason[32];
        rig_t *rig =
            far_new(.rig = {.trainer = LONG, .on_progress = terminate, .user = &rank});
        const rig_result_t *result = rig_fit(rig);
        snprintf(reason, sizeof reason, "rank %d received SIGTERM", rank);
        is_text(result->status, "stopped", "as a whole: %s", result->error.text);
        is_text(result->reason, reason, "and says why");
        ok(result->weight_count > 0 && rig_has_file(result, "model.safetensors"),
           "with all saved");
        rig_free(&rig);
    }
}

/* ---- In the stream ---- */

/* The events of ranks that the trainer got, one after the other: "silent 1, died 1";
 * *last is the newest. */
static const char *events_of(json_t *stream, json_t **last)
{
    static char text[400];
    size_t at, length = 0;
    json_t *line;
    *last = NULL;
    text[0] = '\0';
    json_array_foreach(stream, at, line) {
        json_t *fields = json_object_get(line, "fields");
        const char *name = json_string_value(json_object_get(line, "name")),
                   *to = json_string_value(json_object_get(line, "to")),
                   *event = json_string_value(json_object_get(fields, "event"));
        if (!name || strcmp(name, "watch") || !to || strcmp(to, "trainer") || !event)
            continue;
        *last = fields;
        if (length < sizeof text)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s %d",
                                       length ? ", " : "", event,
                                       (int)json_integer_value(
                                           json_object_get(fields, "rank")));
    }
    return text;
}

static void check_event(const json_t *fields, const char *cause)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    is_text(json_string_value(json_object_get(fields, "host")), host, "where");
    like(json_string_value(json_object_get(fields, "cause")), cause, "how");
    ok(json_integer_value(json_object_get(fields, "process")) > 1, "which process");
    ok(json_number_value(json_object_get(fields, "seconds")) >= 0, "how long ago");
}

/* The rank that waits with it is ended, which is not reported as one more death. */
static void an_early_death_is_one_event(void)
{
    json_t *fields;
    setenv("FAR_EARLY_0_1", "exit 1", 1);
    setenv("FAR_EARLY_1_1", "spin", 1);
    rig_t *rig = far_new(.rig = {.stream = true});
    const rig_result_t *result = rig_fit(rig);
    unsetenv("FAR_EARLY_0_1");
    unsetenv("FAR_EARLY_1_1");
    is_text(pl_code_name(result->error.code), "PL_EDIED", "a death");
    is_text(result->error.where, "rank 0", "of that rank: %s", result->error.text);
    rig_free(&rig);
    json_t *stream = rig_stream();
    is_text(events_of(stream, &fields), "died 0", "no other rank has died");
    json_decref(stream);
}

static void a_death_is_an_event(void)
{
    int rank = 1;
    json_t *fields;
    killed_at = 0;
    rig_t *rig = far_new(.ranks = 3, .rig = {.trainer = LONG,
                                             .stream = true,
                                             .on_progress = kill_when_it_steps,
                                             .user = &rank});
    rig_fit(rig);
    rig_free(&rig);
    json_t *stream = rig_stream();
    is_text(events_of(stream, &fields), "died 1", "one is reported");
    check_event(fields, "^was killed by SIGKILL$");
    const double silent = json_number_value(json_object_get(fields, "seconds"));
    ok(silent < 1, "noticed %g s after its last message", silent);
    ok(json_integer_value(json_object_get(fields, "global_step")) >= 1, "after a step");
    json_decref(stream);
}

static void a_silent_step_loop_is_an_event(void)
{
    static const char *const launchers[] = {NULL, "\"inline\""};
    for (int k = 0; k < 2; k++) {
        json_t *fields;
        rig_t *rig =
            far_new(.launcher = launchers[k], .record = 14, .then = "spin",
                    .rig = {.trainer = LONG ", \"step_timeout\": 1", .stream = true});
        const rig_result_t *result = fit_soon(rig);
        is_text(pl_code_name(result->error.code), "PL_ESTUCK", "%s",
                k ? "a thread is stuck" : "a process is stuck");
        rig_free(&rig);
        json_t *stream = rig_stream();
        like(events_of(stream, &fields),
             k ? "^silent [01]" : "^silent [01].*, died [01]$",
             "the silence is reported first: %s", events_of(stream, &fields));
        check_event(fields, k ? "no progress|not end|is gone" : "SIG|status");
        json_decref(stream);
    }
}

/* ---- The host ---- */

/* A program of its own, which trains until it is killed. */
static int host_main(void)
{
    rig_t *rig = far_new(.rig = {.trainer = LONG});
    rig_begin(rig);
    rig_wait(rig);
    return 0;
}

/* One whose file is gone when it starts its ranks. */
static int removed_main(const char *program)
{
    unlink(program);
    rig_t *rig = far_new(.rig = {.trainer = "\"max_epochs\": 2"});
    const int code = strcmp(rig_fit(rig)->status, "ok") ? 1 : 0;
    rig_free(&rig);
    return code;
}

static pid_t host_start(const char *program, const char *what)
{
    char *argv[] = {(char *)program, (char *)what, NULL};
    pid_t pid = 0;
    posix_spawn(&pid, program, NULL, NULL, argv, environ);
    return pid;
}

/* Numbers of the processes that are ranks of that one. */
static int ranks_of(pid_t host, int rank[2])
{
    int count = 0;
    char path[300], comm[32];
    DIR *tasks;
    snprintf(path, sizeof path, "/proc/%d/task", (int)host);
    tasks = opendir(path);
    for (const struct dirent *e; tasks && (e = readdir(tasks));) {
        int child;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)host, e->d_name);
        FILE *file = fopen(path, "r");
        while (file && count < 2 && fscanf(file, "%d", &child) == 1) {
            snprintf(path, sizeof path, "/proc/%d/comm", child);
            FILE *name = fopen(path, "r");
            if (name && fgets(comm, sizeof comm, name) && !strncmp(comm, "rank ", 5))
                rank[count++] = child;
            if (name)
                fclose(name);
        }
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return count;
}

static int folders_left(void)
{
    const char *own = getenv("TMPDIR");
    int count = 0;
    DIR *folder = opendir(own);
    for (const struct dirent *e; folder && (e = readdir(folder));)
        count += !strncmp(e->d_name, "pl-", 3);
    if (folder)
        closedir(folder);
    return count;
}

/* Its new parent may take its time to wait for it. */
static bool is_gone(int pid)
{
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    bool gone = !file || fscanf(file, "%*d %*[^)]) %c", &state) != 1 || state == 'Z';
    if (file)
        fclose(file);
    return gone;
}

static void ranks_die_with_their_host(void)
{
    int rank[2] = {0, 0}, status;
    pid_t host = host_start("/proc/self/exe", "host");
    const int64_t began = pl_now();
    while (ranks_of(host, rank) < 2 && pl_now() - began < 20 * PL_SECOND)
        usleep(2000);
    ok(rank[0] && rank[1], "two ranks are there");
    is_int(folders_left(), 1, "with the folder of their links");
    kill(host, SIGKILL);
    waitpid(host, &status, 0);
    const int64_t then = pl_now();
    while ((!is_gone(rank[0]) || !is_gone(rank[1])) && pl_now() - then < 10 * PL_SECOND)
        usleep(1000);
    const double seconds = (double)(pl_now() - then) / 1e9;
    ok(seconds < 1, "they are gone after %g s", seconds);
    rig_t *rig = far_new(.rig = {.trainer = "\"max_epochs\": 2"});
    is_text(rig_fit(rig)->status, "ok", "another run works");
    rig_free(&rig);
    is_int(folders_left(), 0, "and leaves nothing behind, neither of the one before");
}

static bool copy_file(const char *from, const char *to)
{
    char bytes[1 << 16];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    bool copied = in && out;
    for (size_t size; copied && (size = fread(bytes, 1, sizeof bytes, in)) > 0;)
        copied = fwrite(bytes, 1, size, out) == size;
    if (in)
        fclose(in);
    return out && fclose(out) == 0 && copied && chmod(to, 0700) == 0;
}

static void a_program_whose_file_is_gone_starts_its_ranks(void)
{
    char program[300];
    int status = -1;
    snprintf(program, sizeof program, "%s/program", tap_folder());
    ok(copy_file("/proc/self/exe", program), "a copy of this program");
    waitpid(host_start(program, "removed"), &status, 0);
    ok(access(program, F_OK) != 0, "removes itself");
    is_int(status, 0, "and trains with ranks that are processes of it");
}

int main(int argc, char **argv)
{
    if (!getenv("FAR_HOST")) {
        setenv("TMPDIR", tap_folder(), 1);
        setenv("FAR_HOST", "", 1);
    }
    far_init(NULL);
    if (argc > 1)
        return strcmp(argv[1], "host") ? removed_main(argv[0]) : host_main();
    run(a_rank_that_dies_is_named);
    run(a_rank_may_be_killed_from_outside);
    run(a_run_ends_once_whenever_a_rank_is_killed);
    run(a_death_while_ranks_start_ends_the_run_at_once);
    run(a_stop_ends_a_start_up_that_does_not_end);
    run(a_wait_for_data_that_do_not_open_has_the_limit_of_a_step);
    run(a_worker_that_exits_early_fails_the_launch);
    run(a_wait_for_a_worker_that_never_joins_has_a_limit);
    run(a_stop_while_ranks_join_ends_the_run_at_once);
    run(a_stop_while_ranks_join_again_ends_the_run_at_once);
    run(a_process_that_has_left_and_stays_is_ended);
    run(a_process_that_is_stopped_is_killed);
    run(a_thread_that_is_stuck_ends_with_its_process);
    run(a_rank_that_is_asked_to_end_stops_the_run);
    run(an_early_death_is_one_event);
    run(a_death_is_an_event);
    run(a_silent_step_loop_is_an_event);
    run(ranks_die_with_their_host);
    run(a_program_whose_file_is_gone_starts_its_ranks);
    return tap_done();
}
