/* run_view.c - tests of engine/telemetry/run_view.c: the runs, ranks and metrics that
 * it makes of a stream */
#include "telemetry/run_view.h"

#include <jansson.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "runtime/payload.h"
#include "tap.h"

/* Numbers of kinds, here. */
static uint32_t host, trainer, launcher, loop, strategy;

static void kinds_enter(void)
{
    host = pl_kind_enter("host", PL_LEVEL_HOST, NULL);
    trainer = pl_kind_enter("trainer", PL_LEVEL_TRAINER, NULL);
    launcher = pl_kind_enter("launcher.spawn", PL_LEVEL_LAUNCHER, NULL);
    loop = pl_kind_enter("loop.epoch", PL_LEVEL_EPOCH_LOOP, NULL);
    strategy = pl_kind_enter("strategy.ddp", PL_LEVEL_STRATEGY, NULL);
}

/* A message, and what process it is of. */
typedef struct said {
    pl_kind_t kind;
    pl_message_t message;
    uint32_t from, to;
    uint32_t actor;                                         /* the trainer's number */
    uint64_t call, cause, under;
    uint32_t process_id;
    int rank;
    int64_t time;                                           /* [now] */
    bool was_kept;
    const void *fields;
} said_t;

static void say(pl_run_view_t *view, said_t said)
{
    static uint64_t seq;
    pl_frame_t frame;
    const pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                             .kind = (uint8_t)said.kind,
                             .message = (uint16_t)said.message,
                             .call = said.call,
                             .cause = said.cause,
                             .remaining = -1,
                             .from_kind = said.from,
                             .from_actor = said.from == trainer ? said.actor : 0,
                             .to_kind = said.to,
                             .to_actor = said.to == trainer ? said.actor : 0};
    pl_frame_make(&frame, &e, said.fields, NULL);
    const pl_tap_record_t record = {.stamp = {.seq = seq++,
                                              .rank = said.rank,
                                              .time = said.time ? said.time : pl_now()},
                                    .process_id = said.process_id,
                                    .under = said.under,
                                    .envelope = e,
                                    .frame = pl_frame_bytes(&frame),
                                    .was_kept = said.was_kept};
    pl_run_view_record(view, &record);
    pl_frame_release(&frame);
}

/* A call, and its reply with these fields. */
static void answered(pl_run_view_t *view, said_t said, const void *fields)
{
    const uint32_t caller = said.from;
    say(view, said);
    said.kind = PL_KIND_REPLY;
    said.from = said.to;
    said.to = caller;
    said.fields = fields;
    say(view, said);
}

/* A run that the program asks for, and the launcher that is started for it. */
static void begin_run(pl_run_view_t *view, uint64_t call)
{
    say(view, (said_t){.message = PL_MESSAGE_run,
                       .from = host,
                       .to = trainer,
                       .call = call,
                       .fields = &(pl_run_t){0}});
    say(view, (said_t){.message = PL_MESSAGE_start,
                       .from = trainer,
                       .to = launcher,
                       .call = call + 1,
                       .cause = call,
                       .fields = &(pl_start_t){.options = ""}});
}

/* The trainer tells the program. */
static void report(pl_run_view_t *view, uint64_t call, pl_run_progress_t reported)
{
    reported.metrics = reported.metrics ? reported.metrics : "";
    say(view, (said_t){.kind = PL_KIND_PROGRESS,
                       .message = PL_MESSAGE_run,
                       .from = trainer,
                       .to = host,
                       .call = call,
                       .fields = &reported});
}

/* Samples that a rank of a run got from its data. */
static void rank_fetch(pl_run_view_t *view, int rank, uint32_t process_id, uint64_t under,
                       uint32_t samples)
{
    const uint32_t data = pl_kind_enter("connector.data", PL_LEVEL_CONNECTOR, NULL);
    answered(view,
             (said_t){.message = PL_MESSAGE_fetch_batch,
                      .from = loop,
                      .to = data,
                      .call = 3,
                      .process_id = process_id,
                      .rank = rank,
                      .under = under,
                      .fields = &(pl_fetch_batch_t){0}},
             &(pl_fetch_batch_reply_t){.samples = samples});
}

static void fetch(pl_run_view_t *view, uint32_t process_id, uint64_t under,
                  uint32_t samples)
{
    rank_fetch(view, 0, process_id, under, samples);
}

static json_t *reported_by(pl_run_view_t *view)
{
    char *text = pl_run_view_state(view);
    json_t *all = json_loads(text, 0, NULL);
    pl_text_free(text);
    return all;
}

static json_t *run_of(const json_t *all, size_t number)
{
    size_t k;
    json_t *run;
    json_array_foreach(json_object_get(all, "runs"), k, run)
        if (json_integer_value(json_object_get(run, "number")) == (json_int_t)number)
            return run;
    return NULL;
}

static long long integer(const json_t *of, const char *name)
{
    return json_integer_value(json_object_get(of, name));
}

static double newest_of(const json_t *run, const char *name)
{
    size_t k;
    const json_t *column;
    json_array_foreach(json_object_get(run, "columns"), k, column)
        if (!strcmp(json_string_value(json_object_get(column, "name")), name))
            return json_number_value(json_object_get(column, "newest"));
    return -1;
}

static void messages_of_remote_ranks_belong_to_their_run(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    begin_run(view, 200);
    fetch(view, pl_stream_process(0, 0), 101, 20);
    fetch(view, pl_stream_process(1, 0), 201, 7);
    fetch(view, pl_stream_process(0, 1), 101, 20);
    fetch(view, pl_stream_process(2, 0), 301, 9);
    json_t *all = reported_by(view);
    is_int(integer(run_of(all, 1), "samples"), 40, "the first has those of both ranks");
    is_int(integer(run_of(all, 2), "samples"), 7, "the newest has only its own");
    json_decref(all);
    pl_run_view_gap(view, 5);
    fetch(view, pl_stream_process(2, 0), 301, 9);
    all = reported_by(view);
    is_int(integer(run_of(all, 2), "samples"), 16,
           "what may have lost its beginning is taken for the newest run's");
    json_decref(all);
    pl_run_view_free(view);
}

static void end_run(pl_run_view_t *view, uint64_t call)
{
    say(view,
        (said_t){.kind = PL_KIND_REPLY,
                 .message = PL_MESSAGE_run,
                 .from = trainer,
                 .to = host,
                 .call = call,
                 .fields = &(pl_run_reply_t){.status = PL_RUN_STATUS_OK, .reason = ""}});
}

static void runs_beyond_the_limit_are_counted(void)
{
    enum { PLACES = 16, RUNS = PLACES + 4 };
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    for (uint64_t k = 1; k <= RUNS; k++)
        begin_run(view, 100 * k);
    json_t *all = reported_by(view);
    is_int(json_array_size(json_object_get(all, "runs")), PLACES, "so many are shown");
    ok(run_of(all, PLACES) && !run_of(all, PLACES + 1), "those that began first");
    json_decref(all);
    for (uint64_t k = 1; k <= RUNS; k++)
        end_run(view, 100 * k);
    begin_run(view, 100 * (RUNS + 1));
    all = reported_by(view);
    ok(run_of(all, RUNS + 1) && !run_of(all, 1), "then a newer one has a place");
    json_decref(all);
    char *metrics = pl_run_view_metrics(view);
    like(metrics, "paceline_runs_started_total 21\n", "all are counted when they begin");
    like(metrics, "paceline_runs_ended_total\\{status=\"ok\"\\} 20\n", "and as they end");
    pl_text_free(metrics);
    pl_run_view_free(view);
}

static void a_run_is_described_by_its_first_report(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    report(view, 100,
           (pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE,
                               .run_dir = "runs/0007",
                               .module = "mlp",
                               .clip = 0.5});
    report(view, 100, (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN, .global_step = 3});
    json_t *all = reported_by(view), *run = run_of(all, 1);
    is_text(json_string_value(json_object_get(run, "name")), "0007", "its folder");
    is_text(json_string_value(json_object_get(run, "module")), "mlp", "its module");
    ok(json_number_value(json_object_get(run, "clip")) == 0.5, "where it clips");
    char *metrics = pl_run_view_metrics(view);
    like(metrics, "paceline_gradient_clip.run=\"1\". 0.5\n", "which is a metric too");
    pl_text_free(metrics);
    json_decref(all);
    pl_run_view_free(view);
}

static void a_run_known_from_before_continues(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    report(view, 100,
           (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN, .global_step = 30});
    fetch(view, pl_stream_process(0, 0), 101, 20);
    json_t *all = reported_by(view);
    is_int(integer(run_of(all, 1), "step"), 30, "by what it reports");
    is_int(integer(run_of(all, 1), "samples"), 20, "and what its ranks say is its own");
    json_decref(all);
    pl_run_view_free(view);
}

static void a_view_that_opens_later_has_the_active_runs(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now() - 10 * PL_SECOND, NULL);
    pl_run_view_begin(view, 90);
    pl_run_view_end(view, 90);
    pl_run_view_begin(view, 100);
    pl_run_view_report(view, 100,
                       &(pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE,
                                            .metrics = "",
                                            .run_dir = "runs/late",
                                            .module = "mlp",
                                            .options = "{\"optimizer\": {\"lr\": 0.5}}",
                                            .clip = 0.5});
    pl_run_view_report(view, 100,
                       &(pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN,
                                            .global_step = 30,
                                            .total_steps = 90,
                                            .metrics = "{\"train_loss\": 0.5,"
                                                       " \"ranks\": {\"slow\": 1},"
                                                       " \"sizes\": [1, 2],"
                                                       " \"counts\": [[1, 2], [3, 4]]}",
                                            .run_dir = "",
                                            .module = "",
                                            .options = ""});
    pl_run_view_pause(view, 100, true, 33);
    pl_run_view_begin(view, 110);
    pl_run_view_end(view, 110);
    pl_run_view_open(view);
    begin_run(view, 100);                                   /* the call arrives late */
    json_t *all = reported_by(view), *run = run_of(all, 1);
    ok(!run, "a run that has ended is absent");
    run = run_of(all, 2);
    is_text(json_string_value(json_object_get(run, "name")), "late", "its folder");
    is_text(json_string_value(json_object_get(run, "module")), "mlp", "its module");
    ok(json_is_object(json_object_get(json_object_get(run, "options"), "optimizer")),
       "its options");
    is_text(json_string_value(json_object_get(run, "doing")), "paused", "it is paused");
    is_int(integer(run, "step"), 33, "after which step");
    is_int(integer(run, "total_steps"), 90, "of how many");
    ok(newest_of(run, "train_loss") == 0.5, "its newest metrics");
    is_int((long long)json_array_size(json_object_get(run, "drawings")), 1,
           "of those that are no numbers, the matrix alone");
    ok(json_number_value(json_object_get(run, "clip")) == 0.5, "its clipping");
    ok(json_number_value(json_object_get(run, "began")) > 9, "when it began");
    is_int((long long)json_array_size(json_object_get(run, "points")), 0, "no points");
    ok(json_array_size(json_object_get(all, "runs")) == 1, "it is there once");
    json_decref(all);
    report(view, 100,
           (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN, .global_step = 34});
    pl_run_view_report(view, 100,
                       &(pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN,
                                            .global_step = 34,
                                            .metrics = "",
                                            .run_dir = ""});
    all = reported_by(view);
    is_int(integer(run_of(all, 2), "step"), 34, "it continues");
    is_int((long long)json_array_size(json_object_get(run_of(all, 2), "points")), 1,
           "with one point for each report of the stream");
    json_decref(all);
    begin_run(view, 120);
    all = reported_by(view);
    ok(run_of(all, 4) != NULL,
       "the number of the next run follows those of all earlier ones");
    json_decref(all);
    pl_run_view_free(view);
}

static void a_view_that_closes_keeps_only_the_active_runs(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    pl_run_view_open(view);
    pl_run_view_open(view);
    begin_run(view, 100);
    pl_run_view_begin(view, 100);
    begin_run(view, 200);
    begin_run(view, 300);
    for (uint64_t call = 200; call <= 300; call += 100)
        pl_run_view_begin(view, call);
    report(view, 100, (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN, .global_step = 5});
    fetch(view, 0, 0, 20);
    end_run(view, 200);
    pl_run_view_end(view, 300);                          /* the stream has lost its end */
    pl_run_view_close(view);
    json_t *all = reported_by(view);
    is_int((long long)json_array_size(json_object_get(all, "runs")), 3,
           "what another one shows stays");
    json_decref(all);
    pl_run_view_close(view);
    pl_run_view_report(view, 100,
                       &(pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN,
                                            .global_step = 8,
                                            .metrics = "",
                                            .run_dir = ""});
    pl_run_view_open(view);
    all = reported_by(view);
    is_int((long long)json_array_size(json_object_get(all, "runs")), 1,
           "then those that have ended are gone");
    const json_t *run = run_of(all, 1);
    is_int(integer(run, "step"), 8, "the active one has its newest step");
    is_int((long long)json_array_size(json_object_get(run, "points")), 0,
           "and no points of before");
    is_int(integer(all, "messages"), 0, "messages are counted from the start");
    json_decref(all);
    fetch(view, 0, 100, 20);
    all = reported_by(view);
    is_int(integer(run_of(all, 1), "samples"), 20, "it continues with the stream");
    json_decref(all);
    pl_run_view_free(view);
}

static const char *doing(pl_run_view_t *view, long long step, const char *what)
{
    static char text[32];
    json_t *all = reported_by(view), *run = run_of(all, 1);
    snprintf(text, sizeof text, "%s", json_string_value(json_object_get(run, "doing")));
    is_int(integer(run, "step"), step, "the step %s", what);
    json_decref(all);
    return text;
}

static void a_pause_ends_with_the_next_step(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    report(view, 100,
           (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN, .global_step = 10});
    answered(view,
             (said_t){.message = PL_MESSAGE_control,
                      .from = host,
                      .to = trainer,
                      .call = 200,
                      .cause = 100,
                      .fields = &(pl_control_t){.command = PL_RUN_COMMAND_PAUSE,
                                                .optimizer = ""}},
             &(pl_control_reply_t){.global_step = 12, .checkpoint = ""});
    is_text(doing(view, 12, "of the pause"), "paused", "it pauses");
    report(view, 100, (pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE});
    is_text(doing(view, 12, "stays"), "paused", "while it only lives");
    report(view, 100,
           (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN, .global_step = 11});
    is_text(doing(view, 11, "of ranks that were started again"), "train", "and trains");
    pl_run_view_free(view);
}

/* The program pauses or continues the run, which it does at `second`. */
static void command(pl_run_view_t *view, pl_run_command_t what, int64_t second)
{
    answered(view,
             (said_t){.message = PL_MESSAGE_control,
                      .from = host,
                      .to = trainer,
                      .call = 200 + (uint64_t)second,
                      .cause = 100,
                      .time = second * PL_SECOND,
                      .fields = &(pl_control_t){.command = what, .optimizer = ""}},
             &(pl_control_reply_t){.global_step = 12, .checkpoint = ""});
}

static double seconds_of(pl_run_view_t *view)
{
    json_t *all = reported_by(view);
    const double seconds = json_number_value(json_object_get(run_of(all, 1), "seconds"));
    json_decref(all);
    return seconds;
}

static void a_pause_is_no_time_of_the_run(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now() - 1000 * PL_SECOND, NULL);
    said_t said = {.message = PL_MESSAGE_run,
                   .from = host,
                   .to = trainer,
                   .call = 100,
                   .time = 10 * PL_SECOND,
                   .fields = &(pl_run_t){0}};
    say(view, said);
    command(view, PL_RUN_COMMAND_PAUSE, 20);
    command(view, PL_RUN_COMMAND_PAUSE, 30);
    const double then = seconds_of(view);
    ok(then > 9.9 && then < 10.1, "it stands still while it is paused: %g s", then);
    command(view, PL_RUN_COMMAND_CONTINUE, 60);
    const double since = seconds_of(view);
    ok(since >= 950 && since < 1050, "the time of the run excludes the pause: %g s",
       since);
    command(view, PL_RUN_COMMAND_CONTINUE, 70);
    command(view, PL_RUN_COMMAND_PAUSE, 80);
    said.kind = PL_KIND_REPLY;
    said.from = trainer;
    said.to = host;
    said.time = 100 * PL_SECOND;
    said.fields = &(pl_run_reply_t){.status = PL_RUN_STATUS_STOPPED};
    say(view, said);
    const double all = seconds_of(view);
    ok(all > 29.9 && all < 30.1, "and ends without the one that it was stopped in: %g s",
       all);
    pl_run_view_free(view);
}

static void a_command_is_for_the_run_of_its_trainer(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    for (uint32_t k = 1; k <= 2; k++)
        say(view, (said_t){.message = PL_MESSAGE_run,
                           .from = host,
                           .to = trainer,
                           .actor = k,
                           .call = 100 * k,
                           .fields = &(pl_run_t){0}});
    answered(view,
             (said_t){.message = PL_MESSAGE_control,
                      .from = host,
                      .to = trainer,
                      .actor = 1,
                      .call = 300,
                      .fields = &(pl_control_t){.command = PL_RUN_COMMAND_PAUSE,
                                                .optimizer = ""}},
             &(pl_control_reply_t){.global_step = 12, .checkpoint = ""});
    json_t *all = reported_by(view);
    is_text(json_string_value(json_object_get(run_of(all, 1), "doing")), "paused",
            "the first run is paused");
    is_text(json_string_value(json_object_get(run_of(all, 2), "doing")), "start",
            "the newest is not");
    json_decref(all);
    pl_run_view_free(view);
}

/* The trainer's end of a run, of which a report of step 10 was the last. */
static json_t *ended_by(pl_run_event_t event, pl_run_reply_t reply)
{
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    report(
        view, 100,
        (pl_run_progress_t){.event = event, .global_step = 10, .batch = 2, .batches = 8});
    say(view, (said_t){.kind = PL_KIND_REPLY,
                       .message = PL_MESSAGE_run,
                       .from = trainer,
                       .to = host,
                       .call = 100,
                       .fields = &reply});
    json_t *all = reported_by(view);
    pl_run_view_free(view);
    return all;
}

static void the_end_of_a_run_is_what_it_replied(void)
{
    json_t *all = ended_by(PL_RUN_EVENT_TRAIN,
                           (pl_run_reply_t){.status = PL_RUN_STATUS_STOPPED,
                                            .reason = "enough",
                                            .global_step = 14,
                                            .epochs = 1}),
           *run = run_of(all, 1);
    is_int(integer(run, "step"), 14, "the last step, of which no report was");
    is_int(integer(run, "epochs"), 1, "and the epochs that are done");
    is_text(json_string_value(json_object_get(run, "reason")), "enough", "why");
    is_text(json_string_value(json_object_get(run, "error")), "", "which is no error");
    json_decref(all);
    all = ended_by(PL_RUN_EVENT_TRAIN, (pl_run_reply_t){.status = PL_RUN_STATUS_FAILED,
                                                        .reason = "the disk is full",
                                                        .global_step = 14});
    run = run_of(all, 1);
    is_text(json_string_value(json_object_get(run, "error")), "the disk is full",
            "what failed behind the last step");
    is_text(json_string_value(json_object_get(run, "reason")), "", "which is no reason");
    json_decref(all);
    all = ended_by(PL_RUN_EVENT_TEST,
                   (pl_run_reply_t){.status = PL_RUN_STATUS_OK, .global_step = 14});
    run = run_of(all, 1);
    ok(json_is_null(json_object_get(run, "epochs")), "a run without training has none");
    json_decref(all);
}

/* A step ends, with the times of its stages. */
static void step(pl_run_view_t *view, int64_t time, pl_bytes_t spent)
{
    answered(view,
             (said_t){.message = PL_MESSAGE_train_batch,
                      .from = loop,
                      .to = strategy,
                      .call = 9,
                      .cause = 100,
                      .time = time,
                      .fields = &(pl_train_batch_t){.step_due = 1}},
             &(pl_train_batch_reply_t){.timings = spent});
}

static void short_steps_that_are_reported_together_share_their_time(void)
{
    enum { TOGETHER = 8 };
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    for (int k = 1; k <= 20; k++)
        for (int i = 0; i < TOGETHER; i++)
            step(view, 2 * k * PL_MILLISECOND + 1000 * i, (pl_bytes_t){0});
    json_t *all = reported_by(view), *run = run_of(all, 1);
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "run_p95" : "run_p50";
        const double reported = json_real_value(json_object_get(run, name));
        ok(reported > 2e-3 / TOGETHER * 0.9 && reported < 2e-3 / TOGETHER * 1.1,
           "%s: an eighth of 2 ms, not %g s", name, reported);
    }
    json_decref(all);
    pl_run_view_free(view);
}

static void epochs_of_few_steps_have_rates_too(void)
{
    enum { EPOCHS = 3, STEPS = 4 };
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    for (int k = 0; k < EPOCHS; k++) {
        for (int i = 0; i < STEPS; i++)
            step(view, 2 * (1 + k * STEPS + i) * PL_MILLISECOND, (pl_bytes_t){0});
        report(view, 100,
               (pl_run_progress_t){.event = PL_RUN_EVENT_EPOCH,
                                   .global_step = (uint64_t)(k + 1) * STEPS});
    }
    json_t *all = reported_by(view);
    const json_t *points = json_object_get(run_of(all, 1), "points");
    is_int((long long)json_array_size(points), EPOCHS, "a point each");
    for (size_t k = 0; k < EPOCHS; k++) {
        const double rate =
            json_number_value(json_array_get(json_array_get(points, k), 4));
        ok(rate > 499 && rate < 501, "with steps of 2 ms: %g a second", rate);
    }
    json_decref(all);
    pl_run_view_free(view);
}

/* What the launcher tells the trainer of a rank. */
static void watched(pl_run_view_t *view, pl_rank_event_t event, int rank, int64_t time)
{
    said_t said = {.message = PL_MESSAGE_watch,
                   .from = trainer,
                   .to = launcher,
                   .call = 102,
                   .cause = 100,
                   .time = time,
                   .fields = &(pl_watch_t){0}};
    say(view, said);
    said.kind = PL_KIND_PROGRESS;
    said.from = launcher;
    said.to = trainer;
    said.fields = &(pl_watch_progress_t){.event = event,
                                         .rank = (uint32_t)rank,
                                         .host = "here",
                                         .process = 77,
                                         .cause = "no data for 3 s",
                                         .seconds = 3};
    say(view, said);
}

static void a_rank_that_holds_the_others_up_is_reported(void)
{
    const double spent[2 * PL_TIMINGS] = {0.001, 0, 0, 0, 0.001};
    pl_run_view_t *view = pl_run_view_new(pl_now() - 10 * PL_SECOND, NULL);
    begin_run(view, 100);
    for (int k = 1; k <= 4; k++)
        step(view, k * PL_SECOND, (pl_bytes_t){spent, sizeof spent});
    json_t *all = reported_by(view), *run = run_of(all, 1);
    const double stalled = json_number_value(json_object_get(run, "stalled"));
    ok(stalled >= 6 && stalled < 60, "no step since the one of second 4: %g s", stalled);
    is_int((long long)json_array_size(json_object_get(run, "absent")), 0,
           "no rank is silent");
    json_decref(all);
    watched(view, PL_RANK_EVENT_MUTE, 1, 8 * PL_SECOND);
    all = reported_by(view);
    const json_t *absent = json_array_get(json_object_get(run_of(all, 1), "absent"), 0);
    is_int(integer(absent, "rank"), 1, "then one is not");
    const double silent = json_number_value(json_object_get(absent, "seconds"));
    ok(silent >= 5 && silent < 60, "since 3 s before: %g s", silent);
    is_text(json_string_value(json_object_get(absent, "text")), "process 77 on here",
            "which is said");
    json_decref(all);
    char *metrics = pl_run_view_metrics(view);
    like(metrics, "rank_up.run=\"1\",rank=\"0\". 1\n", "a rank is up");
    like(metrics, "rank_up.run=\"1\",rank=\"1\". 0\n", "the other is not");
    like(metrics, "stalled_seconds.run=\"1\". [1-9]", "and the run stands still");
    pl_text_free(metrics);
    watched(view, PL_RANK_EVENT_HEARD, 1, 9 * PL_SECOND);
    step(view, 10 * PL_SECOND, (pl_bytes_t){spent, sizeof spent});
    all = reported_by(view);
    run = run_of(all, 1);
    is_int((long long)json_array_size(json_object_get(run, "absent")), 0, "until it is");
    ok(json_number_value(json_object_get(run, "stalled")) == 0, "and steps continue");
    json_decref(all);
    pl_run_view_free(view);
}

/* An epoch or validation of rank 0: its call, or with ends its reply. */
static void epoch(pl_run_view_t *view, bool ends, int64_t time)
{
    say(view, (said_t){.kind = ends ? PL_KIND_REPLY : PL_KIND_CALL,
                       .message = PL_MESSAGE_train_epoch,
                       .from = ends ? loop : trainer,
                       .to = ends ? trainer : loop,
                       .call = 300,
                       .cause = 100,
                       .time = time,
                       .fields = ends ? (const void *)&(pl_train_epoch_reply_t){0}
                                      : &(pl_train_epoch_t){0}});
}

static double stalled_of(pl_run_view_t *view)
{
    json_t *all = reported_by(view);
    const double stalled = json_number_value(json_object_get(run_of(all, 1), "stalled"));
    json_decref(all);
    return stalled;
}

static void a_state_without_steps_is_no_stall(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now() - 30 * PL_SECOND, NULL);
    begin_run(view, 100);
    epoch(view, false, PL_SECOND);
    ok(stalled_of(view) == 0, "a first step may take half a minute");
    step(view, 2 * PL_SECOND, (pl_bytes_t){0});
    step(view, 3 * PL_SECOND, (pl_bytes_t){0});
    ok(stalled_of(view) > 20, "a later one may not");
    watched(view, PL_RANK_EVENT_MUTE, 1, 4 * PL_SECOND);
    watched(view, PL_RANK_EVENT_DIED, 2, 4 * PL_SECOND);
    epoch(view, true, 5 * PL_SECOND);
    ok(stalled_of(view) == 0, "behind an epoch it may be long until the next");
    epoch(view, false, 6 * PL_SECOND);
    json_t *all = reported_by(view);
    const json_t *absent = json_object_get(run_of(all, 1), "absent");
    is_int((long long)json_array_size(absent), 1,
           "where a dead rank is back or left out");
    is_int(integer(json_array_get(absent, 0), "rank"), 1,
           "the silent one is still silent");
    json_decref(all);
    pl_run_view_free(view);
}

static void a_replayed_stream_has_the_time_of_its_messages(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now() - 1000 * PL_SECOND, NULL);
    say(view, (said_t){.message = PL_MESSAGE_run,
                       .from = host,
                       .to = trainer,
                       .call = 100,
                       .time = 2 * PL_SECOND,
                       .was_kept = true,
                       .fields = &(pl_run_t){0}});
    say(view, (said_t){.message = PL_MESSAGE_control,
                       .from = host,
                       .to = trainer,
                       .call = 200,
                       .cause = 100,
                       .time = 4 * PL_SECOND,
                       .was_kept = true,
                       .fields = &(pl_control_t){.command = PL_RUN_COMMAND_SAVE,
                                                 .optimizer = ""}});
    ok(seconds_of(view) == 2, "however long ago it began to be shown");
    pl_run_view_free(view);
}

static bool is_close(double value, double to)
{
    return value > 0.95 * to && value < 1.05 * to;
}

static void times_of_the_newest_report_and_of_the_run_have_separate_names(void)
{
    int64_t time = PL_SECOND;
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    for (int k = 0; k < 40; k++)
        step(view, time += k < 30 ? 20 * PL_MILLISECOND : 5 * PL_MILLISECOND,
             (pl_bytes_t){0});
    report(view, 100,
           (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN, .global_step = 40});
    for (int k = 0; k < 5; k++)
        step(view, time += 5 * PL_MILLISECOND, (pl_bytes_t){0});
    report(view, 100,
           (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN, .global_step = 45});
    json_t *all = reported_by(view), *run = run_of(all, 1);
    ok(is_close(newest_of(run, "step_seconds_p50"), 5e-3), "5 ms in the newest report");
    ok(is_close(newest_of(run, "step_seconds_p95"), 5e-3), "and no longer");
    ok(is_close(json_number_value(json_object_get(run, "run_p50")), 20e-3),
       "20 ms over the run");
    ok(!json_object_get(run, "p50") && !json_object_get(run, "p95"),
       "nothing has a name without its window");
    json_decref(all);
    pl_run_view_free(view);
}

static void each_rank_has_its_stages(void)
{
    double spent[2][PL_TIMINGS] = {{0, 1e-3, 2e-3, 4e-3, 5e-4}, {0, 1e-3, 4e-3, 2e-3, 0}};
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    for (int k = 1; k <= 3; k++)
        step(view, k * PL_SECOND, (pl_bytes_t){spent, sizeof spent});
    json_t *all = reported_by(view), *run = run_of(all, 1);
    const json_t *stages = json_object_get(run, "stages"),
                 *own = json_array_get(json_array_get(json_object_get(run, "strip"), 0),
                                       1);
    is_int((long long)json_array_size(stages), 2, "of two ranks");
    const double backward =
        json_real_value(json_array_get(json_array_get(stages, 1), PL_TIMING_BACKWARD));
    ok(backward > 3.99e-3 && backward < 4.01e-3, "the mean of a stage");
    const double first = json_real_value(json_array_get(own, 0));
    ok(first > 3.49e-3 && first < 3.51e-3, "and by itself all but the collective");
    json_decref(all);
    pl_run_view_free(view);
}

/* A checkpoint is written, and older ones go. */
static void save(pl_run_view_t *view, const char *path, const char *removed)
{
    const uint32_t checkpoint = pl_kind_enter("connector.checkpoint", PL_LEVEL_CONNECTOR,
                                              NULL),
                   io = pl_kind_enter("checkpoint.io", PL_LEVEL_IO, NULL);
    say(view, (said_t){.message = PL_MESSAGE_write_checkpoint,
                       .from = checkpoint,
                       .to = io,
                       .call = 11,
                       .cause = 100,
                       .fields = &(pl_write_checkpoint_t){0}});
    say(view, (said_t){.kind = PL_KIND_PROGRESS,
                       .message = PL_MESSAGE_write_checkpoint,
                       .from = io,
                       .to = checkpoint,
                       .call = 11,
                       .fields = &(pl_write_checkpoint_progress_t){.path = path}});
    say(view, (said_t){.kind = PL_KIND_REPLY,
                       .message = PL_MESSAGE_write_checkpoint,
                       .from = io,
                       .to = checkpoint,
                       .call = 11,
                       .fields = &(pl_write_checkpoint_reply_t){.removed = removed}});
}

/* The names of the run's drawings that a reader gets, in text. */
static void drawings_after(pl_run_view_t *view, uint64_t since, uint64_t *until,
                          char text[static 200])
{
    char *json = pl_run_view_json(view, since, until, NULL);
    json_t *all = json_loads(json, 0, NULL), *one;
    size_t k;
    text[0] = '\0';
    json_array_foreach(json_object_get(run_of(all, 1), "drawings"), k, one) {
        char *value = json_dumps(json_object_get(one, "value"), JSON_COMPACT);
        snprintf(text + strlen(text), 200 - strlen(text), "%s=%s ",
                 json_string_value(json_object_get(one, "name")), value);
        free(value);
    }
    json_decref(all);
    pl_text_free(json);
}

static void a_matrix_is_sent_when_it_changes(void)
{
    char text[200];
    uint64_t until;
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    pl_run_progress_t of = {.event = PL_RUN_EVENT_VALIDATED, .global_step = 1};
    begin_run(view, 100);
    of.metrics = "{\"val_acc\": 1, \"val_confusion\": [[2, 0], [0, 1]]}";
    report(view, 100, of);
    drawings_after(view, 0, &until, text);
    is_text(text, "val_confusion=[[2,0],[0,1]] ", "first as it is");
    report(view, 100, of);
    drawings_after(view, until, &until, text);
    is_text(text, "", "not again");
    of.metrics = "{\"val_confusion\": [[1, 1], [0, 1]], \"val_roc\": {\"points\": []}}";
    report(view, 100, of);
    drawings_after(view, until, &until, text);
    is_text(text, "val_confusion=[[1,1],[0,1]] val_roc={\"points\":[]} ",
            "once it is another, and so a curve");
    pl_run_view_free(view);
}

static void removed_checkpoints_are_marked(void)
{
    uint64_t until;
    size_t k;
    json_t *one;
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    save(view, "runs/1/checkpoints/step=10", "");
    save(view, "runs/1/checkpoints/step=1", "");
    save(view, "runs/1/checkpoints/step=20", "");
    pl_text_free(pl_run_view_json(view, 0, &until, NULL));
    save(view, "runs/1/checkpoints/step=30", "step=1\nstep=20");
    char *text = pl_run_view_json(view, until, &until, NULL);
    json_t *all = json_loads(text, 0, NULL);
    const json_t *saves = json_object_get(run_of(all, 1), "saves");
    is_int((long long)json_array_size(saves), 4, "all, as some have changed");
    json_array_foreach(saves, k, one)
        is_int(json_is_true(json_object_get(one, "removed")), k == 1 || k == 2,
               "number %lld", integer(one, "number"));
    json_decref(all);
    pl_text_free(text);
    text = pl_run_view_json(view, until, &until, NULL);
    all = json_loads(text, 0, NULL);
    is_int((long long)json_array_size(json_object_get(run_of(all, 1), "saves")), 0,
           "none, as nothing has changed since");
    json_decref(all);
    pl_text_free(text);
    pl_run_view_free(view);
}

/* The paths of the run's checkpoints in the state, with a comma behind each. */
static void paths_of(pl_run_view_t *view, char *paths, size_t capacity)
{
    uint64_t until;
    size_t k;
    json_t *one;
    char *text = pl_run_view_json(view, 0, &until, NULL);
    json_t *all = json_loads(text, 0, NULL);
    *paths = '\0';
    json_array_foreach(json_object_get(run_of(all, 1), "saves"), k, one)
        snprintf(paths + strlen(paths), capacity - strlen(paths), "%s,",
                 json_string_value(json_object_get(one, "text")));
    json_decref(all);
    pl_text_free(text);
}

static void removed_checkpoints_make_room_for_new_ones(void)
{
    enum { MANY = 60 };
    char path[32], removed[32] = "", paths[4096];
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    save(view, "c/asked", "");
    for (int k = 0; k < MANY; k++) {
        snprintf(path, sizeof path, "c/last=%d", k);
        save(view, path, removed);
        snprintf(removed, sizeof removed, "last=%d", k);
    }
    paths_of(view, paths, sizeof paths);
    like(paths, "^c/asked,c/last=37,.*,c/last=59,$",
         "existing ones come first, then the newest of the removed");
    for (int k = 0; k < MANY; k++) {
        snprintf(path, sizeof path, "c/kept=%d", k);
        save(view, path, "");
    }
    paths_of(view, paths, sizeof paths);
    like(paths, "^c/kept=36,.*,c/kept=59,$", "of more than there is room for the newest");
    pl_run_view_free(view);
}

/* Losses of steps, of epochs and of validations take turns. */
/* Eight batches are read ahead, and a second rank has batches of its own. */
static void samples_belong_to_the_steps_that_they_are_trained_on_in(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    for (int k = 0; k < 8; k++) {
        rank_fetch(view, 0, pl_stream_process(0, 0), 101, 64);
        rank_fetch(view, 1, pl_stream_process(0, 1), 101, 32);
    }
    for (int k = 1; k <= 3; k++)
        step(view, 5 * k * PL_MILLISECOND, (pl_bytes_t){0});
    report(view, 100, (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN, .global_step = 3});
    json_t *all = reported_by(view);
    const json_t *run = run_of(all, 1);
    ok(is_close(newest_of(run, "samples_per_second") / newest_of(run, "steps_per_second"),
                96),
       "96 samples a step, not %g",
       newest_of(run, "samples_per_second") / newest_of(run, "steps_per_second"));
    json_decref(all);
    pl_run_view_free(view);
}

static void a_long_run_keeps_points_of_every_metric(void)
{
    enum { EPOCHS = 2500 };
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    for (uint64_t k = 1; k <= EPOCHS; k++) {
        char metrics[3][64];
        static const pl_run_event_t events[] = {PL_RUN_EVENT_TRAIN,
                                                PL_RUN_EVENT_VALIDATED,
                                                PL_RUN_EVENT_EPOCH};
        static const char *const names[] = {"train_loss", "val_loss", "train_acc_epoch"};
        for (int e = 0; e < 3; e++) {
            snprintf(metrics[e], sizeof metrics[e], "{\"%s\": %d}", names[e], (int)k);
            report(view, 100,
                   (pl_run_progress_t){.event = events[e],
                                       .global_step = k,
                                       .metrics = metrics[e]});
        }
    }
    say(view, (said_t){.kind = PL_KIND_REPLY,
                       .message = PL_MESSAGE_run,
                       .from = trainer,
                       .to = host,
                       .call = 100,
                       .fields = &(pl_run_reply_t){.status = PL_RUN_STATUS_STOPPED}});
    json_t *all = reported_by(view), *run = run_of(all, 1), *point;
    const json_t *points = json_object_get(run, "points"),
                 *columns = json_object_get(run, "columns");
    is_text(json_string_value(json_object_get(run, "doing")), "stopped",
            "how it ended is in its end");
    size_t k;
    int reported[32] = {0};
    json_array_foreach(points, k, point)
        for (size_t c = 0; c < json_array_size(columns); c++)
            reported[c] += json_is_number(json_array_get(point, c + 3));
    ok(json_array_size(points) >= 500 && json_array_size(points) <= 1000,
       "%zu points are kept", json_array_size(points));
    for (size_t c = 4; c < json_array_size(columns); c++)
        ok(reported[c] >= (int)json_array_size(points) - 1, "%s has %d of them",
           json_string_value(json_object_get(json_array_get(columns, c), "name")),
           reported[c]);
    point = json_array_get(points, json_array_size(points) - 1);
    is_int(json_integer_value(json_array_get(point, 1)), EPOCHS, "the last is there");
    json_decref(all);
    pl_run_view_free(view);
}

/* What a page has after all events: how many points of a run, and whether each is behind
 * the one before. */
typedef struct reader {
    uint64_t since;
    int events, max, points, restarts;
    long long step;
    double epoch;
    bool ascends;
} reader_t;

static void read_events(pl_run_view_t *view, reader_t *reader)
{
    bool more = true;
    while (more) {
        char *text = pl_run_view_json(view, reader->since, &reader->since, &more);
        json_t *all = json_loads(text, 0, NULL), *run = run_of(all, 1), *point;
        const json_t *points = json_object_get(run, "points");
        size_t k;
        if (json_is_true(json_object_get(run, "whole"))) {
            reader->points = 0;
            reader->step = 0;
            reader->restarts++;
        }
        json_array_foreach(points, k, point) {
            const long long step = json_integer_value(json_array_get(point, 1));
            reader->ascends &= step > reader->step;
            reader->step = step;
            reader->epoch = json_number_value(json_array_get(point, 2));
        }
        reader->points += (int)json_array_size(points);
        if (reader->max < (int)json_array_size(points))
            reader->max = (int)json_array_size(points);
        reader->events++;
        json_decref(all);
        pl_text_free(text);
    }
}

static void report_steps(pl_run_view_t *view, uint64_t from, uint64_t to)
{
    for (uint64_t k = from; k <= to; k++)
        report(view, 100,
               (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN,
                                   .global_step = k,
                                   .epoch = 2,
                                   .batch = (uint32_t)(k % 4),
                                   .batches = 4,
                                   .metrics = "{\"train_loss\": 0.5}"});
}

static void a_hundred_thousand_points_are_handed_out_in_parts(void)
{
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    reader_t reader = {.ascends = true};
    begin_run(view, 100);
    report_steps(view, 1, 100001);
    read_events(view, &reader);
    is_int(reader.points, 100001, "all points are there");
    ok(reader.ascends, "each once and in order");
    ok(reader.max <= 4096 && reader.events >= 25, "in %d events of %d points at most",
       reader.events, reader.max);
    ok(reader.epoch == 2.25, "a point has the epochs done then: %g", reader.epoch);
    report_steps(view, 100002, 100002);
    reader.events = 0;
    read_events(view, &reader);
    is_int(reader.events, 1, "the next event has what is new");
    is_int(reader.points, 100002, "which is one point");
    json_t *all = reported_by(view);
    ok(json_array_size(json_object_get(run_of(all, 1), "points")) <= 1000,
       "the state has a thousand points at most");
    json_decref(all);
    pl_run_view_free(view);
}

static void a_run_beyond_the_bound_keeps_half_of_its_points_over_its_whole_length(void)
{
    enum { BOUND = 1 << 17 };
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    reader_t reader = {.ascends = true};
    begin_run(view, 100);
    report_steps(view, 1, BOUND);
    read_events(view, &reader);
    is_int(reader.points, BOUND, "up to the bound each report is a point");
    report_steps(view, BOUND + 1, BOUND + 11);
    reader.restarts = 0;
    read_events(view, &reader);
    is_int(reader.points, BOUND / 2 + 6, "behind it a point stands for two reports");
    ok(reader.restarts > 0 && reader.ascends, "a page takes the points of the run again");
    is_int(reader.step, BOUND + 11, "up to the newest");
    pl_run_view_free(view);
}

static void the_options_of_a_run_are_reported_once(void)
{
    bool more;
    uint64_t until;
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    begin_run(view, 100);
    report(view, 100,
           (pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE,
                               .run_dir = "runs/0001",
                               .module = "mlp",
                               .options = "{\"optimizer\": {\"lr\": 0.001}}"});
    for (int k = 0; k < 2; k++) {
        char *text = pl_run_view_json(view, k ? until : 0, &until, &more);
        json_t *all = json_loads(text, 0, NULL);
        const json_t *options = json_object_get(run_of(all, 1), "options"),
                     *lr = json_object_get(json_object_get(options, "optimizer"), "lr");
        ok(k ? json_is_null(options) : json_number_value(lr) == 0.001,
           k ? "later events do not have them" : "the first event has the options");
        json_decref(all);
        pl_text_free(text);
    }
    pl_run_view_free(view);
}

/* ---- text from outside ---- */

#define HOSTILE \
    "</script><img src=x onerror=alert(1)>\"\\\n\r\t\033[2J\177\xff\xc3'&amp;" \
    "data: 1\n\nevent: x"

/* Many times the same, after a start of its own. */
static const char *very_long(const char *start)
{
    static char text[4][20000];
    static int next;
    char *one = text[next++ % 4];
    size_t length = (size_t)snprintf(one, sizeof text[0], "%s", start);
    while (length + sizeof HOSTILE < sizeof text[0])
        length += (size_t)snprintf(one + length, sizeof text[0] - length, HOSTILE);
    return one;
}

/* A run whose folder, module, metrics, checkpoint and log are `text`, as is the
 * error that it ends with. */
static pl_run_view_t *hostile_run_view(const char *text, bool ends)
{
    char *path = pl_text("/runs/%s", text);
    json_t *metrics = json_pack("{s:f, s:f, s:f}", "<b>\n\"x\\", 0.5, "<b>\t\"x\\", 0.25,
                                "\"} 1\nup{a=\"", 2.0);
    char *text_of_metrics = json_dumps(metrics, 0);
    pl_run_view_t *view = pl_run_view_new(pl_now(), NULL);
    pl_error_t error = {.code = PL_EIO};
    begin_run(view, 100);
    report(view, 100,
           (pl_run_progress_t){.event = PL_RUN_EVENT_ALIVE,
                               .run_dir = path,
                               .module = text});
    report(view, 100,
           (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN,
                               .global_step = 1,
                               .metrics = text_of_metrics});
    save(view, path, "");
    pl_run_view_log(view, PL_LOG_ERROR, 0, text, text);
    snprintf(error.text, sizeof error.text, "%s", text);
    snprintf(error.where, sizeof error.where, "%s", text);
    if (ends)
        say(view, (said_t){.kind = PL_KIND_ERROR,
                           .message = PL_MESSAGE_run,
                           .from = trainer,
                           .to = host,
                           .call = 100,
                           .fields = &error});
    pl_text_free(path);
    free(text_of_metrics);
    json_decref(metrics);
    return view;
}

/* Of a text that is shown: no controls but line feeds, UTF-8. */
static bool is_plain(const char *text, bool has_lines)
{
    for (const char *c = text; *c; c++)
        if (((unsigned char)*c < 0x20 && !(has_lines && *c == '\n')) || *c == 0x7f)
            return false;
    return pl_utf8_ok(text, strlen(text));
}

/* Strings in it, with their names, and how many of them are not plain or too long. */
static int strings_of(const json_t *value, int *bad)
{
    int count = 0;
    size_t k;
    const char *name;
    json_t *one;
    if (json_is_string(value)) {
        const char *text = json_string_value(value);
        *bad += !is_plain(text, false) || strlen(text) > 640;
        return 1;
    }
    json_array_foreach(value, k, one)
        count += strings_of(one, bad);
    json_object_foreach((json_t *)value, name, one)
        count += strings_of(one, bad);
    return count;
}

static void hostile_text_is_data_for_the_page(void)
{
    const char *const texts[] = {HOSTILE, very_long(""), very_long("\xe2\x80")};
    for (int k = 0; k < 3; k++) {
        uint64_t until;
        int bad = 0;
        pl_run_view_t *view = hostile_run_view(texts[k], true);
        char *text = pl_run_view_json(view, 0, &until, NULL);
        ok(text && is_plain(text, false), "an event is one line without controls");
        ok(text && strlen(text) < 20000, "of %zu bytes", text ? strlen(text) : 0);
        json_t *all = json_loads(text, 0, NULL), *run = run_of(all, 1);
        ok(all && strings_of(all, &bad) > 20, "it is JSON");
        is_int(bad, 0, "whose strings are plain and have an end");
        like(json_string_value(json_object_get(run, "dir")), "^/runs/", "the folder");
        like(json_string_value(json_object_get(run, "error")), "script>", "the error");
        is_int(json_array_size(json_object_get(all, "log")), 1, "the log line is there");
        is_int(json_array_size(json_object_get(run, "saves")), 1, "so is the checkpoint");
        json_decref(all);
        pl_text_free(text);
        pl_run_view_free(view);
    }
}

/* How many lines of Prometheus' text format a text has that are none, or there twice. */
static int wrong_lines(char *text)
{
#define LABEL "[a-z_]+=\"([^\"\\\\]|\\\\[\"\\\\n])*\""
    const char *const forms =
        "^(# (HELP|TYPE) paceline_[a-z_]+ .*|paceline_[a-z_]+(\\{" LABEL "(," LABEL
        ")*\\})? (NaN|[+-]Inf|[-+0-9.e]+))$";
    regex_t form;
    char *line[2000];
    int lines = 0, wrong = regcomp(&form, forms, REG_EXTENDED | REG_NOSUB) != 0;
    for (char *one; (one = strsep(&text, "\n")) && *one && lines < 2000; lines++) {
        line[lines] = one;
        wrong += regexec(&form, one, 0, NULL, 0) != 0;
        for (int k = 0; k < lines; k++)
            wrong += !strncmp(line[k], one, strcspn(one, " ")) && *one != '#'
                     && strrchr(line[k], ' ') - line[k] == strrchr(one, ' ') - one
                     && !strncmp(line[k], one, (size_t)(strrchr(one, ' ') - one));
    }
    regfree(&form);
    return lines > 20 ? wrong : -1;
}

static void hostile_text_is_a_label_of_the_metrics(void)
{
    const char *const texts[] = {HOSTILE, very_long(""), very_long("\xe2\x80")};
    for (int k = 0; k < 6; k++) {
        pl_run_view_t *view = hostile_run_view(texts[k / 2], k % 2);
        char *text = pl_run_view_metrics(view);
        ok(text && is_plain(text, true), "metrics have no controls");
        like(text, "\npaceline_run_info.run=\"1\",run_dir=\"/runs/", "the run is there");
        like(text, "\npaceline_metric.run=\"1\",name=\"<b>.{1,3}.\"x", "and a metric");
        is_int(wrong_lines(text), 0, "all lines are of the format, and none is twice");
        pl_text_free(text);
        pl_run_view_free(view);
    }
}

/* ---- threads ---- */

enum { ROUNDS = 300, ROUND_RUNS = 20 };

static pl_run_view_t *shared;
static bool is_hub_done;

static void *hub_works(void *unused)
{
    for (uint64_t k = 1; k <= ROUNDS; k++) {
        const uint64_t call = 1 + k % ROUND_RUNS;
        begin_run(shared, 1000 * call);
        step(shared, pl_now(), (pl_bytes_t){0});
        report(shared, 1000 * call,
               (pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN,
                                   .global_step = k,
                                   .metrics = "{\"train_loss\": 0.5}"});
        if (k % 5 == 0)
            end_run(shared, 1000 * call);
        if (k % 50 == 0)
            pl_run_view_gap(shared, 1);
    }
    __atomic_store_n(&is_hub_done, true, __ATOMIC_RELEASE);
    return unused;
}

static void *engine_works(void *unused)
{
    for (uint64_t k = 1; !__atomic_load_n(&is_hub_done, __ATOMIC_ACQUIRE); k++) {
        const uint64_t call = 1000 * (1 + k % ROUND_RUNS);
        pl_run_view_begin(shared, call);
        pl_run_view_report(shared, call,
                           &(pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN,
                                                .global_step = k,
                                                .metrics = "{\"train_loss\": 0.5}",
                                                .run_dir = "runs/1",
                                                .module = "mlp",
                                                .options = "{}"});
        pl_run_view_pause(shared, call, k % 2, k);
        pl_run_view_end(shared, call);
    }
    return unused;
}

static void the_hub_the_engine_and_pages_share_a_view(void)
{
    pthread_t hub, engine;
    uint64_t until = 0;
    int objects = 0, looks = 0;
    shared = pl_run_view_new(pl_now(), NULL);
    pthread_create(&hub, NULL, hub_works, NULL);
    pthread_create(&engine, NULL, engine_works, NULL);
    while (!__atomic_load_n(&is_hub_done, __ATOMIC_ACQUIRE) || !looks) {
        pl_run_view_open(shared);
        char *text = pl_run_view_json(shared, until, &until, NULL),
             *metrics = pl_run_view_metrics(shared);
        json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        objects += json_is_object(all) && metrics;
        looks++;
        json_decref(all);
        pl_text_free(text);
        pl_text_free(metrics);
        pl_run_view_close(shared);
    }
    pthread_join(hub, NULL);
    pthread_join(engine, NULL);
    is_int(objects, looks, "each of %d looks at it is JSON, and metrics", looks);
    pl_run_view_free(shared);
}

int main(void)
{
    kinds_enter();
    run(messages_of_remote_ranks_belong_to_their_run);
    run(runs_beyond_the_limit_are_counted);
    run(a_run_is_described_by_its_first_report);
    run(a_run_known_from_before_continues);
    run(a_view_that_opens_later_has_the_active_runs);
    run(a_view_that_closes_keeps_only_the_active_runs);
    run(a_pause_ends_with_the_next_step);
    run(a_command_is_for_the_run_of_its_trainer);
    run(a_pause_is_no_time_of_the_run);
    run(the_end_of_a_run_is_what_it_replied);
    run(short_steps_that_are_reported_together_share_their_time);
    run(epochs_of_few_steps_have_rates_too);
    run(a_rank_that_holds_the_others_up_is_reported);
    run(a_state_without_steps_is_no_stall);
    run(a_replayed_stream_has_the_time_of_its_messages);
    run(times_of_the_newest_report_and_of_the_run_have_separate_names);
    run(each_rank_has_its_stages);
    run(a_matrix_is_sent_when_it_changes);
    run(removed_checkpoints_are_marked);
    run(removed_checkpoints_make_room_for_new_ones);
    run(samples_belong_to_the_steps_that_they_are_trained_on_in);
    run(a_long_run_keeps_points_of_every_metric);
    run(a_hundred_thousand_points_are_handed_out_in_parts);
    run(a_run_beyond_the_bound_keeps_half_of_its_points_over_its_whole_length);
    run(the_options_of_a_run_are_reported_once);
    run(hostile_text_is_data_for_the_page);
    run(hostile_text_is_a_label_of_the_metrics);
    run(the_hub_the_engine_and_pages_share_a_view);
    return tap_done();
}
