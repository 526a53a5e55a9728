/* host.c - tests of actors/api/host.c: an engine as a program uses it, at any moment */
#include <event2/event.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/api/host.h"
#include "base/clock.h"
#include "fake.h"
#include "files.h"
#include "rig.h"
#include "tap.h"

#define LONG "\"max_epochs\": 100000"
#define EVERY "\"val_split\": 0.2, \"batch_size\": 32"     /* a step, then a validation */
#define SLOW "replay of forward_backward takes 1 ms"

/* ---- Several at once ---- */

static void trainers_of_one_engine_run_side_by_side(void)
{
    rig_t *a = rig_new(.script = SLOW, .trainer = "\"max_epochs\": 5");
    rig_t *b = rig_new(.script = SLOW, .trainer = "\"max_epochs\": 5", .beside = a);
    rig_begin(a), rig_begin(b);
    rig_result_t *first = rig_keep(rig_wait(a));
    const rig_result_t *second = rig_wait(b);
    is_text(first->status, "ok", "one");
    is_text(second->status, "ok", "and the other");
    ok(rig_same_bits(first, second), "give the same bits");
    ok(strcmp(first->run_dir, second->run_dir) != 0, "in directories of their own");
    rig_result_free(first);
    rig_free(&b);
    rig_free(&a);
}

static void engines_do_not_touch_each_other(void)
{
    rig_t *a = rig_new(.trainer = "\"max_epochs\": 5");
    rig_t *b = rig_new(.trainer = LONG, .loop_of = a);
    rig_begin(a), rig_begin(b);
    is_text(rig_wait(a)->status, "ok", "one ends");
    pl_engine_close(rig_engine(b), NULL, NULL);
    is_int(rig_wait(b)->error.code, PL_ECANCELLED, "another is closed");
    is_text(rig_fit(a)->status, "ok", "the first continues");
    rig_free(&b);
    rig_free(&a);
}

/* ---- From inside notifications ---- */

static void begin_again(rig_t *rig, const rig_result_t *result)
{
    (void)result;
    if (rig_begun(rig) < 3)
        ok(rig_begin(rig), "a run begins from inside on_done");
}

static void a_fit_may_begin_from_inside_on_done(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 3", .on_done = begin_again);
    rig_begin(rig);
    is_text(rig_wait(rig)->status, "ok", "the last of them goes well");
    is_int(rig_done(rig), 3, "one on_done for each");
    rig_free(&rig);
}

static void stop_it(rig_t *rig, const pl_progress_t *progress)
{
    if (progress->global_step > 20)
        pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

static void a_run_is_stopped_from_inside_on_progress(void)
{
    rig_t *rig = rig_new(.script = SLOW, .trainer = LONG, .on_progress = stop_it);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "stopped", "it stops");
    ok(result->global_step > 20, "after the step of the stop");
    ok(result->weight_count == 4, "with its weights");
    ok(rig_has_file(result, "model.safetensors"), "saved");
    is_int(rig_done(rig), 1, "and one on_done");
    rig_free(&rig);
}

static void close_it(rig_t *rig, const pl_progress_t *progress)
{
    (void)progress;
    pl_engine_close(rig_engine(rig), NULL, NULL);
}

static void count_closed(pl_engine_t *engine, void *user)
{
    (void)engine;
    ++*(int *)user;
}

static bool is_closed(rig_t *rig)
{
    return *(int *)rig_user(rig) > 0;
}

static void close_and_count(rig_t *rig, const rig_result_t *result)
{
    (void)result;
    pl_engine_close(rig_engine(rig), count_closed, rig_user(rig));
    pl_engine_close(rig_engine(rig), count_closed, rig_user(rig));
}

static void an_engine_is_closed_from_inside_on_progress(void)
{
    rig_t *rig = rig_new(.script = SLOW, .trainer = LONG, .on_progress = close_it);
    const rig_result_t *result = rig_fit(rig);
    is_int(result->error.code, PL_ECANCELLED, "the run ends as cancelled");
    is_int(rig_done(rig), 1, "with one on_done");
    rig_free(&rig);
}

static void an_engine_is_closed_from_inside_on_done(void)
{
    int closed = 0;
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 3", .on_done = close_and_count,
                         .user = &closed);
    is_text(rig_fit(rig)->status, "ok", "a run");
    ok(rig_until(rig, is_closed), "the engine closes");
    is_int(closed, 1, "once");
    ok(!rig_begin(rig), "nothing begins after that");
    is_int(rig_error.code, PL_ESTATE, "and the error says why");
    rig_free(&rig);
}

static void free_it(pl_engine_t *engine, void *user)
{
    pl_engine_free(engine);
    *(bool *)user = true;
}

static void an_engine_is_freed_from_inside_on_closed(void)
{
    pl_error_t err = {0};
    bool freed = false;
    struct event_base *base = event_base_new();
    pl_engine_t *engine = pl_engine_new(base, &err);
    pl_engine_close(engine, free_it, &freed);
    while (!freed)
        event_base_loop(base, EVLOOP_ONCE);
    ok(freed, "all is gone");
    event_base_free(base);
}

static void *free_aside(void *engine)
{
    pl_engine_free(engine);
    return NULL;
}

/* For a loop that cannot wait for what is still to be written. */
static void hand_over(pl_engine_t *engine, void *user)
{
    pthread_create(user, NULL, free_aside, engine);
}

static void a_closed_engine_is_freed_by_another_thread(void)
{
    pl_error_t err = {0};
    char path[4200];
    pthread_t thread = 0;
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    snprintf(path, sizeof path, "%s/journal", tap_folder());
    is_int(pl_engine_journal(engine, path, &err), PL_OK, "an engine with a journal");
    struct pollfd fd = {.fd = pl_engine_fd(engine), .events = POLLIN};
    pl_engine_close(engine, hand_over, &thread);
    while (!thread && poll(&fd, 1, 20000) == 1)
        pl_engine_dispatch(engine);
    ok(thread && pthread_join(thread, NULL) == 0, "is freed there");
    pl_journal_t *journal = pl_journal_open(path, &err);
    ok(journal, "and the journal is whole: %s", err.text);
    pl_journal_close(journal);
}

static void drop_trainer(rig_t *rig, const pl_progress_t *progress)
{
    (void)progress;
    pl_trainer_free(rig_trainer(rig));
    *(bool *)rig_user(rig) = true;
}

static bool is_dropped(rig_t *rig)
{
    return *(bool *)rig_user(rig);
}

static void a_trainer_is_freed_from_inside_on_progress(void)
{
    bool dropped = false;
    rig_t *rig = rig_new(.script = SLOW, .trainer = LONG, .on_progress = drop_trainer,
                         .user = &dropped);
    rig_t *other = rig_new(.trainer = "\"max_epochs\": 2", .beside = rig);
    rig_begin(rig);
    ok(rig_until(rig, is_dropped), "it is freed while it runs");
    is_text(rig_fit(other)->status, "ok", "another of the same engine runs");
    is_int(rig_done(rig), 0, "no notification of the first comes any more");
    rig_free(&other);
    rig_free(&rig);
}

static void drop_in_on_done(rig_t *rig, const rig_result_t *result)
{
    (void)result;
    pl_trainer_free(rig_trainer(rig));
}

static void a_trainer_is_freed_from_inside_on_done(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 3", .on_done = drop_in_on_done);
    rig_t *other = rig_new(.trainer = "\"max_steps\": 3", .beside = rig);
    is_text(rig_fit(rig)->status, "ok", "a run");
    is_text(rig_fit(other)->status, "ok", "and another trainer's");
    rig_free(&other);
    rig_free(&rig);
}

/* ---- At any moment ---- */

/* Begins a run and lets it come so far: as many calls of its device. */
static rig_t *rig_at(int moment)
{
    rig_t *rig = rig_new(.script = SLOW, .trainer = LONG);
    const int before = fake_calls();
    rig_begin(rig);
    ok(fake_wait_calls(before + moment), "a run comes to call %d of its device", moment);
    return rig;
}

/* Before it is opened; while there are plans to make; after that many steps. */
static const int moments[] = {0, 1, 4, 8, 12, 20, 60};
enum { MOMENTS = sizeof moments / sizeof *moments };

static void engines_end_while_runs_continue(void)
{
    for (int k = 0; k < MOMENTS; k++) {
        rig_t *rig = rig_at(moments[k]);
        rig_free(&rig);
        ok(!rig, "and is freed then");
    }
}

static void stops_come_at_any_moment(void)
{
    for (int k = 0; k < MOMENTS; k++) {
        rig_t *rig = rig_at(moments[k]);
        is_int(pl_trainer_stop(rig_trainer(rig), "now", NULL), PL_OK, "a stop is taken");
        const rig_result_t *result = rig_wait(rig);
        is_text(result->status, "stopped", "and obeyed");
        ok(rig_has_file(result, "model.safetensors"), "the weights are saved");
        rig_free(&rig);
    }
}

static void a_stop_leaves_what_a_run_of_that_length_would(void)
{
    static const char *const trainers[] = {LONG ", \"depth\": 4",
                                           LONG ", \"accumulate_grad_batches\": 3"};
    for (int k = 0; k < 2; k++) {
        char again[160];
        rig_t *rig = rig_new(.script = SLOW, .trainer = trainers[k],
                             .on_progress = stop_it, .data = "\"batch_size\": 3");
        const rig_result_t *stopped = rig_fit(rig);
        snprintf(again, sizeof again, "%s, \"max_steps\": %d", trainers[k],
                 (int)stopped->global_step);
        rig_t *other = rig_new(.trainer = again, .data = "\"batch_size\": 3");
        ok(rig_same_bits(stopped, rig_fit(other)), "stopped after %d whole steps",
           (int)stopped->global_step);
        rig_free(&other);
        rig_free(&rig);
    }
}

static void stop_in_validation(rig_t *rig, const pl_progress_t *progress)
{
    if (strcmp(progress->event, "validate") || progress->batch >= progress->batches)
        return;
    *(bool *)rig_user(rig) = true;
    pl_trainer_stop(rig_trainer(rig), NULL, NULL);
}

/* One that would take longer than a rig waits. */
static void a_stop_ends_a_validation(void)
{
    bool asked = false;
    rig_t *rig = rig_new(.script = "replay of forward takes 1 ms", .samples = 100000,
                         .data = "\"val_split\": 0.9, \"batch_size\": 1",
                         .trainer = LONG ", \"val_check_interval\": 1",
                         .on_progress = stop_in_validation, .user = &asked);
    is_text(rig_fit(rig)->status, "stopped", "it stops, also without a reason");
    ok(asked, "when it was asked in the middle of a validation");
    rig_free(&rig);
}

static void nothing_to_stop_is_an_error(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 3");
    is_int(pl_trainer_stop(rig_trainer(rig), "x", &rig_error), PL_ESTATE, "before a run");
    rig_fit(rig);
    is_int(pl_trainer_stop(rig_trainer(rig), "x", &rig_error), PL_ESTATE, "and after it");
    rig_free(&rig);
}

static void a_trainer_runs_one_thing_at_a_time(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 3");
    rig_begin(rig);
    ok(!rig_begin(rig), "a second fit is refused");
    is_int(rig_error.code, PL_ESTATE, "as not possible now");
    is_text(rig_wait(rig)->status, "ok", "the first is not disturbed");
    is_int(rig_done(rig), 1, "and ends once");
    rig_free(&rig);
}

static void a_host_leaves_no_thread_or_descriptor(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 3", .data = "\"workers\": 2");
    rig_fit(rig);
    int descriptors = files_in("/proc/self/fd"), threads = files_in("/proc/self/task");
    for (int k = 0; k < 20; k++)
        rig_fit(rig);
    ok(eventually(files_in("/proc/self/fd") <= descriptors),
       "not one descriptor more for each of 20 more runs");
    is_int(files_in("/proc/self/task"), threads, "and as many threads");
    rig_free(&rig);
}

/* ---- A host that is slow, or has no libevent ---- */

typedef struct reported {
    int times;
    uint64_t newest;
    bool back;
} reported_t;

static void keep_order(rig_t *rig, const pl_progress_t *progress)
{
    reported_t *reported = rig_user(rig);
    reported->back = reported->back || progress->global_step < reported->newest;
    reported->newest = progress->global_step;
    reported->times++;
}

static bool has_saved(const char *run)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/runs/%s/model.safetensors", tap_folder(), run);
    return access(path, F_OK) == 0;
}

/* The run is longer than the limit of a step: so is the stall. */
static void a_host_that_stalls_loses_nothing(void)
{
    reported_t reported = {0};
    rig_t *rig =
        rig_new(.script = "replay of forward_backward takes 20 ms",
                .on_progress = keep_order, .user = &reported,
                .data = "\"val_split\": 0.2, \"batch_size\": 8",
                .trainer =
                    "\"run_name\": \"stalled\", \"max_epochs\": 15, \"step_timeout\": 1");
    rig_begin(rig);
    ok(eventually(has_saved("stalled")),
       "training continues to its end while the host stalls");
    is_int(rig_done(rig), 0, "which gets the notification when it dispatches");
    is_text(rig_wait(rig)->status, "ok", "no deadline has fired");
    ok(reported.times >= 15 && !reported.back, "15 validations are reported, in order");
    rig_free(&rig);
}

static void reports_of_two_trainers_to_a_stalled_host_are_bounded(void)
{
    reported_t reported[2] = {{0}};
    rig_t *a = rig_new(.script = SLOW, .on_progress = keep_order, .user = &reported[0],
                       .samples = 32000, .trainer = "\"max_epochs\": 1");
    rig_t *b = rig_new(.script = SLOW, .on_progress = keep_order, .user = &reported[1],
                       .samples = 32000, .trainer = "\"max_epochs\": 1", .beside = a);
    const int before = fake_calls();
    rig_begin(a), rig_begin(b);
    fake_wait_calls(before + 2800);              /* 700 steps and seven reports of each */
    pl_engine_dispatch(rig_engine(a));
    for (int k = 0; k < 2; k++) {
        ok(reported[k].times <= 2, "the newest report of trainer %d alone: %d", k,
           reported[k].times);
        ok(reported[k].newest > 2, "which is not the first");
    }
    is_text(rig_wait(a)->status, "ok", "one ends");
    is_text(rig_wait(b)->status, "ok", "and the other");
    ok(!reported[0].back && !reported[1].back, "all in order");
    is_int(rig_done(a) + rig_done(b), 2, "one on_done of each");
    rig_free(&b);
    rig_free(&a);
}

static void keep_validations(rig_t *rig, const pl_progress_t *progress)
{
    if (!strcmp(progress->event, "validated"))
        keep_order(rig, progress);
}

static void notifications_for_a_host_are_bounded(void)
{
    reported_t reported[2] = {{0}};
    rig_t *a = rig_new(.on_progress = keep_validations, .user = &reported[0],
                       .data = EVERY,
                       .trainer = "\"max_epochs\": 400, \"run_name\": \"many\"");
    rig_t *b =
        rig_new(.on_progress = keep_validations, .user = &reported[1], .data = EVERY,
                .trainer = "\"max_epochs\": 4, \"run_name\": \"few\"", .beside = a);
    rig_begin(a), rig_begin(b);
    ok(eventually(has_saved("many") && has_saved("few")), "both end while it stalls");
    is_text(rig_wait(a)->status, "ok", "a run with 400 validations");
    is_text(rig_wait(b)->status, "ok", "and one with 4");
    ok(reported[0].times <= 256 && reported[0].times > 60, "of many the newest: %d",
       reported[0].times);
    is_int(reported[0].newest, 400, "up to the last");
    is_int(reported[1].times, 4, "and all of the few");
    ok(!reported[0].back && !reported[1].back, "in order");
    rig_free(&b);
    rig_free(&a);
}

static void note_end(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    snprintf(user, 16, "%s", result->status);
}

static void a_host_without_libevent_polls(void)
{
    char status[16] = "";
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 3");
    pl_error_t err = {0};
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_options_t *options = pl_options_parse(
        "{\"module\": {\"name\": \"mlp\", \"classes\": 3}, \"optimizer\": \"sgd\","
        "\"data\": {\"name\": \"memory\", \"source\": \"polled\"}, \"trainer\":"
        "{\"accelerator\": \"fake\", \"max_steps\": 3}}",
        "text", &err);
    static const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int64_t y[4] = {0, 1, 2, 0};
    pl_arrays_t arrays = {.samples = 4,
                          .field_count = 2,
                          .field = {{"x", PL_F32, pl_shape(1, 2)},
                                    {"y", PL_I64, pl_shape(0)}},
                          .data = {x, y}};
    pl_options_set(options, "trainer.default_root_dir", tap_folder(), &err);
    is_int(pl_memory_arrays("polled", &arrays, &err), PL_OK, "arrays");
    pl_trainer_t *trainer = pl_trainer_new(engine, options, &err);
    is_int(pl_trainer_fit(trainer, note_end, status, &err), PL_OK, "a run begins");
    struct pollfd fd = {.fd = pl_engine_fd(engine), .events = POLLIN};
    while (!status[0] && poll(&fd, 1, 20000) == 1)
        pl_engine_dispatch(engine);
    is_text(status, "ok", "and its end comes by the descriptor");
    pl_options_free(options);
    pl_engine_free(engine);
    pl_memory_data("polled", NULL, NULL);
    rig_free(&rig);
}

/* Commands to a run, each asked for by the answer to one before. */
typedef struct flood {
    pl_engine_t *engine;
    int asked, max, reported;
} flood_t;

static bool something_waits(pl_engine_t *engine)
{
    pthread_mutex_lock(&engine->notifications.lock);
    const bool waits = engine->notifications.waiting > 0;
    pthread_mutex_unlock(&engine->notifications.lock);
    return waits;
}

static void flood_on(pl_trainer_t *trainer, const pl_command_result_t *result,
                     void *user);

static void flood_ask(flood_t *flood, pl_trainer_t *trainer)
{
    flood->asked += pl_trainer_continue(trainer, flood_on, flood, NULL) == PL_OK;
}

/* When it returns another notification waits: a dispatch until none is left never
 * ends. */
static void flood_on(pl_trainer_t *trainer, const pl_command_result_t *result, void *user)
{
    flood_t *flood = user;
    flood->reported += result->error.code == PL_OK;
    if (flood->asked == flood->max)
        return;
    flood_ask(flood, trainer);
    ok(eventually(something_waits(flood->engine)), "answer %d brings another",
       flood->reported);
}

static void a_dispatch_delivers_the_notifications_at_its_begin(void)
{
    rig_t *rig = rig_new(.script = SLOW, .trainer = LONG);
    flood_t flood = {.engine = rig_engine(rig), .max = 40};
    struct pollfd fd = {.fd = pl_engine_fd(flood.engine), .events = POLLIN};
    rig_begin(rig);
    for (int k = 0; k < 8; k++)
        flood_ask(&flood, rig_trainer(rig));
    while (flood.reported < flood.max && poll(&fd, 1, 20000) == 1) {
        const int asked = flood.asked;
        pl_engine_dispatch(flood.engine);
        ok(flood.reported <= asked,
           "one dispatch tells no answer to what it brought: %d, %d", flood.reported,
           asked);
    }
    is_int(flood.asked, flood.max, "the descriptor says that more waits");
    is_int(flood.reported, flood.max, "each time, until all are reported");
    pl_trainer_stop(rig_trainer(rig), NULL, NULL);
    is_text(rig_wait(rig)->status, "stopped", "and nothing is lost");
    is_int(flood.reported, flood.max, "none twice");
    rig_free(&rig);
}

static void count_turn(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    ++*(int *)user;
}

/* A host's own events have their turn between the engine's. */
static void a_flood_leaves_the_loop_to_others(void)
{
    int turns = 0;
    bool fair = true;
    const int64_t limit = pl_now() + 60 * PL_SECOND;
    rig_t *rig = rig_new(.script = SLOW, .trainer = LONG);
    flood_t flood = {.engine = rig_engine(rig), .max = 40};
    struct event *own = event_new(rig_base(rig), -1, EV_PERSIST, count_turn, &turns);
    rig_begin(rig);
    flood_ask(&flood, rig_trainer(rig));
    while (flood.reported < flood.max && fair && pl_now() < limit) {
        const int reported = flood.reported, before = turns;
        event_active(own, EV_TIMEOUT, 1);
        event_base_loop(rig_base(rig), EVLOOP_ONCE);
        fair = flood.reported <= reported + 1 && turns == before + 1;
    }
    ok(fair, "a turn of the loop tells one answer at most, and the host's own event");
    is_int(flood.reported, flood.max, "until all are reported");
    event_free(own);
    rig_free(&rig);
}

int main(void)
{
    rig_init(NULL);
    run(trainers_of_one_engine_run_side_by_side);
    run(engines_do_not_touch_each_other);
    run(a_fit_may_begin_from_inside_on_done);
    run(a_run_is_stopped_from_inside_on_progress);
    run(an_engine_is_closed_from_inside_on_progress);
    run(an_engine_is_closed_from_inside_on_done);
    run(an_engine_is_freed_from_inside_on_closed);
    run(a_closed_engine_is_freed_by_another_thread);
    run(a_trainer_is_freed_from_inside_on_progress);
    run(a_trainer_is_freed_from_inside_on_done);
    run(engines_end_while_runs_continue);
    run(stops_come_at_any_moment);
    run(a_stop_leaves_what_a_run_of_that_length_would);
    run(a_stop_ends_a_validation);
    run(nothing_to_stop_is_an_error);
    run(a_trainer_runs_one_thing_at_a_time);
    run(a_host_leaves_no_thread_or_descriptor);
    run(a_host_that_stalls_loses_nothing);
    run(reports_of_two_trainers_to_a_stalled_host_are_bounded);
    run(notifications_for_a_host_are_bounded);
    run(a_host_without_libevent_polls);
    run(a_dispatch_delivers_the_notifications_at_its_begin);
    run(a_flood_leaves_the_loop_to_others);
    return tap_done();
}
