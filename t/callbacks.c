/* callbacks.c - tests of actors/connectors/callback.c and callbacks/progress.c */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/connectors/connectors.h"
#include "actors/connectors/callbacks/callbacks.h"
#include "queen.h"
#include "scarce.h"
#include "tap.h"

static pl_address_t callbacks;
static asked_t life;

/* ---- a callback that notes its calls, and follows its options ---- */

typedef struct watcher {
    const char *tag;
    int64_t every, fail, stop;                              /* points; -1: never */
    double factor;
} watcher_t;

static const pl_option_t watcher_options[] = {
    PL_TEXT(watcher_t, tag, "\"a\"", NULL, "noted with each call"),
    PL_INT(watcher_t, every, "1", NULL, "steps"),
    PL_INT(watcher_t, fail, "-1", NULL, "point at which it fails; 99: its start"),
    PL_INT(watcher_t, stop, "-1", NULL, "point at which it stops the run"),
    PL_FLOAT(watcher_t, factor, "1", NULL, "on the learning rate"),
    PL_OPTIONS_END,
};

static char notes[512], metrics_seen[128];

static void note(const watcher_t *watcher, const char *what)
{
    size_t length = strlen(notes);
    snprintf(notes + length, sizeof notes - length, "%s%s ", watcher->tag, what);
}

static int64_t watcher_every(const void *self)
{
    return ((const watcher_t *)self)->every;
}

static int watcher_start(void *self, pl_error_t *err)
{
    const watcher_t *watcher = self;
    note(watcher, "start");
    return watcher->fail == 99 ? pl_fail(err, PL_EIO, "no glasses") : PL_OK;
}

static int watcher_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                      pl_callback_request_t *request, pl_error_t *err)
{
    const watcher_t *watcher = self;
    char what[64];
    snprintf(what, sizeof what, "%d@%d/%d", (int)point, (int)event->epoch,
             (int)event->global_step);
    note(watcher, what);
    snprintf(metrics_seen, sizeof metrics_seen, "%s", event->metrics);
    if (watcher->fail == (int64_t)point)
        return pl_fail(err, PL_EIO, "lost sight");
    request->stop = watcher->stop == (int64_t)point;
    request->lr_factor = watcher->factor;
    snprintf(request->reason, sizeof request->reason, "seen enough");
    return PL_OK;
}

static void watcher_stop(void *self)
{
    note(self, "stop");
}

static const pl_callback_ops_t watcher = {
    .name = "watcher",
    .size = sizeof(watcher_t),
    .options = watcher_options,
    .points = PL_AT(FIT_START) | PL_AT(TRAIN_BATCH_END) | PL_AT(VALIDATION_END),
    .every_n_steps = watcher_every,
    .start = watcher_start,
    .on = watcher_on,
    .stop = watcher_stop,
};

static int sleeper_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                      pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)event, (void)request, (void)err;
    return 1;
}

static const pl_callback_ops_t sleeper = {.name = "sleeper",
                                          .points = PL_AT(FIT_END),
                                          .on = sleeper_on};

static const pl_callback_ops_t deaf = {.name = "deaf", .points = PL_AT(FIT_END)};

/* ---- asking ---- */

static void start(const char *list)
{
    queen_open();
    notes[0] = '\0';
    pl_job_t *job = queen_job("{\"trainer\": {\"enable_model_summary\": false,"
                              " \"enable_checkpointing\": false},"
                              " \"callbacks\": %s}",
                              list);
    callbacks = queen_spawn(&pl_callback_connector,
                            &(pl_start_t){.options = "", .context = &job->object}, &life);
    pl_object_unref(job);
}

static asked_t *hook(pl_hook_t point, uint64_t step)
{
    const pl_run_hook_t fields = {.point = point,
                                  .epoch = 3,
                                  .global_step = step,
                                  .metrics = "{\"val_loss\": 0.5}"};
    return queen_call(callbacks, PL_MESSAGE_run_hook, &fields);
}

static const pl_callback_hooks_reply_t *interest(void)
{
    return &queen_call(callbacks, PL_MESSAGE_callback_hooks, &(pl_callback_hooks_t){0})
                ->body.callback_hooks_reply;
}

/* ---- tests ---- */

static void callbacks_are_asked_in_order_at_their_points(void)
{
    start("[\"watcher\", {\"name\": \"watcher\", \"tag\": \"b\"}, \"sleeper\"]");
    hook(PL_HOOK_FIT_START, 0);
    hook(PL_HOOK_TRAIN_EPOCH_START, 0);
    hook(PL_HOOK_VALIDATION_END, 8);
    is_text(metrics_seen, "{\"val_loss\": 0.5}", "with the metrics");
    queen_close();
    is_text(notes, "astart bstart a0@3/0 b0@3/0 a4@3/8 b4@3/8 bstop astop ",
            "from their start to their end, where the last comes first");
}

static void interest_covers_all_of_them(void)
{
    start("[]");
    ok(interest()->points == 0 && interest()->halts.size == 0,
       "no callback, no interest");
    is_int(hook(PL_HOOK_FIT_START, 0)->error.code, PL_OK,
           "and a call of no callback succeeds");
    queen_close();
    start("[\"sleeper\"]");
    is_int(interest()->points, PL_AT(FIT_END), "the points of one");
    is_int(interest()->halts.size, 0, "which requests no steps");
    queen_close();
    start("[\"sleeper\", {\"name\": \"watcher\", \"every\": 4}, "
          "{\"name\": \"watcher\", \"tag\": \"b\", \"every\": 6}]");
    is_int(interest()->points, watcher.points | sleeper.points, "the points of all");
    is_text(
        queen_call(callbacks, PL_MESSAGE_callback_hooks, &(pl_callback_hooks_t){0})->text,
        "4 6", "the steps of each");
    notes[0] = '\0';
    for (uint64_t step = 2; step <= 12; step += 2)
        hook(PL_HOOK_TRAIN_BATCH_END, step);
    is_text(notes, "a2@3/4 b2@3/6 a2@3/8 a2@3/12 b2@3/12 ", "each is asked at its own");
    queen_close();
}

static void callback_requests_add_up(void)
{
    start("[{\"name\": \"watcher\", \"factor\": 0.5}, "
          "{\"name\": \"watcher\", \"factor\": 0.1, \"stop\": 4}, "
          "{\"name\": \"watcher\", \"stop\": 4}]");
    asked_t *asked = hook(PL_HOOK_FIT_START, 0);
    is_near(asked->body.run_hook_reply.lr_factor, 0.05, 1e-12, "factors multiply");
    is_int(asked->body.run_hook_reply.stop, 0, "no callback stops the run");
    is_text(asked->text, "", "so there is no reason");
    asked = hook(PL_HOOK_VALIDATION_END, 0);
    is_int(asked->body.run_hook_reply.stop, 1, "one is enough to stop");
    is_text(asked->text, "watcher: seen enough", "with the callback and the reason");
    queen_close();
}

static void errors_name_callback_and_point(void)
{
    start("[{\"name\": \"watcher\", \"fail\": 4}, \"sleeper\"]");
    asked_t *asked = hook(PL_HOOK_VALIDATION_END, 0);
    is_int(asked->error.code, PL_EUSER, "an error of the user's");
    is_text(asked->error.text, "callback \"watcher\", on_validation_end: lost sight",
            "in full");
    like(hook(PL_HOOK_FIT_END, 0)->error.text,
         "\"sleeper\", on_fit_end: it failed without an error text", "or without a text");
    is_int(hook(PL_HOOK_COUNT, 0)->error.code, PL_EINVAL, "a point must be one");
    queen_close();
    start("[{\"name\": \"watcher\", \"factor\": -1}]");
    like(hook(PL_HOOK_FIT_START, 0)->error.text, "learning-rate factor -1",
         "a bad request");
    queen_close();
}

static void a_callback_that_cannot_start_is_named(void)
{
    start("[\"watcher\", {\"name\": \"watcher\", \"tag\": \"b\", \"fail\": 99}]");
    queen_wait(&life);
    is_int(life.error.code, PL_EUSER, "its start fails");
    like(life.error.text, "\"watcher\", in start..: no glasses", "with its text");
    is_text(notes, "astart bstart bstop astop ", "all that started are stopped");
    queen_close();
    start("[\"watchers\"]");
    queen_wait(&life);
    like(life.error.text, "no callback \"watchers\": did you mean \"watcher\"",
         "as unknown");
    queen_close();
    start("[\"deaf\"]");
    queen_wait(&life);
    like(life.error.text, "callback \"deaf\": its table lacks on", "as not whole");
    queen_close();
    start("[{\"name\": \"watcher\", \"tagg\": \"b\"}]");
    queen_wait(&life);
    like(life.error.text, "tagg.*did you mean \"tag\"", "or as misspelt");
    queen_close();
}

static char logged[3][1200];
static int lines, log_rank;

static void on_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    (void)actor, (void)user;
    if (level != PL_LOG_INFO || lines == 3)
        return;
    log_rank = rank;
    snprintf(logged[lines++], sizeof *logged, "%s", text);
}

static void progress_says_a_line_for_each_epoch_and_validation(void)
{
    pl_log_hook(on_log, PL_LOG_INFO, NULL);
    log_rank = -7;
    start("[\"progress\"]");
    is_int(interest()->points, PL_AT(TRAIN_EPOCH_END) | PL_AT(VALIDATION_END),
           "its points");
    hook(PL_HOOK_VALIDATION_END, 938);
    hook(PL_HOOK_TRAIN_EPOCH_END, 939);
    is_int(lines, 2, "two lines");
    is_text(logged[0], "validation in epoch 4, step 938, val_loss 0.5",
            "the validation's");
    is_text(logged[1], "epoch 4, step 939, val_loss 0.5", "the epoch's");
    is_int(log_rank, 0, "of its rank");
    queen_close();
}

static bool asks_twice(int nth)
{
    queen_open();
    pl_job_t *job = queen_job("{\"trainer\": {\"enable_model_summary\": false,"
                              " \"enable_checkpointing\": false},"
                              " \"callbacks\": [\"watcher\", \"progress\"]}");
    scarce_fail(nth);
    callbacks = queen_spawn(&pl_callback_connector,
                            &(pl_start_t){.options = "", .context = &job->object}, &life);
    interest();
    const bool succeeded = hook(PL_HOOK_VALIDATION_END, 1)->error.code == PL_OK;
    scarce_stop();
    pl_object_unref(job);
    queen_close();
    return succeeded;
}

static void every_call_ends_whichever_allocation_fails(void)
{
    queen_lacks_memory(asks_twice, 20);
}

int main(void)
{
    scarce_init();
    static const pl_registration_t components[] = {{"callback", &watcher},
                                                   {"callback", &sleeper},
                                                   {"callback", &deaf},
                                                   {"callback", &pl_progress_callback},
                                                   PL_REGISTRATIONS_END};
    pl_register(components, NULL);
    run(callbacks_are_asked_in_order_at_their_points);
    run(interest_covers_all_of_them);
    run(callback_requests_add_up);
    run(errors_name_callback_and_point);
    run(a_callback_that_cannot_start_is_named);
    run(progress_says_a_line_for_each_epoch_and_validation);
    run(every_call_ends_whichever_allocation_fails);
    return tap_done();
}
