/* spawn.c - tests of actors/launchers/local.c (spawn), proxy.c, rank_process.c,
 * job_serialization.c: ranks that are processes train what ranks that are threads do */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "far.h"
#include "transport/socket.h"
#include "tap.h"

#define SAVES \
    "[{\"name\": \"model_checkpoint\", \"monitor\": \"val_loss\"}, " \
    "{\"name\": \"early_stopping\", \"monitor\": \"val_loss\", \"patience\": 50}]"
#define SPLIT "\"val_split\": 0.25"

/* ---- Parts ---- */

static char last_log[1024];

static void keep_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                     void *user)
{
    (void)level, (void)user;
    if (!strcmp(actor, "stderr"))
        snprintf(last_log, sizeof last_log, "rank %d: %s", rank, text);
}

static int talk(void *self, pl_hook_t point, const pl_hook_event_t *event,
                pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)request, (void)err;
    if (event->global_step == 2)
        fprintf(stderr, "step two\n");
    return PL_OK;
}

static const pl_callback_ops_t talks = {.name = "talks",
                                        .size = 1,
                                        .points = PL_AT(TRAIN_BATCH_END),
                                        .on = talk};
/* Registered where no other process sees it. */
static const pl_callback_ops_t late = {.name = "late",
                                       .size = 1,
                                       .points = PL_AT(TRAIN_BATCH_END),
                                       .on = talk};

/* ---- Tests ---- */

static rig_result_t *fit(const char *launcher, int ranks, const char *trainer)
{
    rig_t *rig = far_new(.launcher = launcher, .ranks = ranks, .data = SPLIT,
                         .rig = {.trainer = trainer, .callbacks = SAVES});
    rig_result_t *result = rig_keep(rig_fit(rig));
    is_text(result->status, "ok", "%s, %d ranks: %s", launcher, ranks,
            result->error.text);
    is_int(rig_done(rig), 1, "one on_done");
    rig_free(&rig);
    return result;
}

static void compare(const rig_result_t *near, const rig_result_t *far)
{
    static const char *const names[] = {"train_loss", "val_loss", "train_acc", "val_acc"};
    ok(rig_same_bits(near, far), "the weights of threads, bit for bit");
    is_int(far->global_step, near->global_step, "as many steps");
    is_int(far->epoch, near->epoch, "and epochs");
    for (int k = 0; k < 4; k++)
        ok(rig_metric(near, names[k]) == rig_metric(far, names[k]), "the same %s",
           names[k]);
    ok(rig_has_file(far, "model.safetensors") && rig_has_file(far, "metrics.jsonl"),
       "a folder with all in it");
    like(far->callbacks, "\"model_checkpoint\".*val_loss.*\"early_stopping\".*best",
         "what callbacks have kept of themselves");
    is_text(far->callbacks, near->callbacks, "the same");
    ok(!strncmp(far->best_checkpoint, far->run_dir, strlen(far->run_dir)),
       "the best checkpoint is in that folder");
    is_text(far->best_checkpoint + strlen(far->run_dir),
            near->best_checkpoint + strlen(near->run_dir), "the same");
    ok(access(far->best_checkpoint, F_OK) == 0, "and is there");
}

static void processes_train_what_threads_do(void)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        rig_result_t *near = fit("\"inline\"", ranks, "\"max_epochs\": 3");
        rig_result_t *far = fit("\"spawn\"", ranks, "\"max_epochs\": 3");
        compare(near, far);
        rig_result_free(near);
        rig_result_free(far);
    }
    is_int(far_children(), 0, "no process is left");
}

static void a_trainer_works_again_and_for_other_stages(void)
{
    rig_t *rig = far_new(.rig = {.trainer = "\"max_epochs\": 2", .callbacks = SAVES},
                         .data = SPLIT);
    rig_t *near = far_new(.launcher = "\"inline\"", .data = SPLIT);
    rig_result_t *first = rig_keep(rig_fit(rig));
    const rig_result_t *second = rig_fit(rig);
    is_text(second->status, "ok", "a second fit: %s", second->error.text);
    ok(rig_same_bits(first, second), "gives the same");
    ok(strcmp(first->run_dir, second->run_dir), "in a folder of its own");
    double loss = rig_metric(rig_validate(near, first->run_dir), "val_loss");
    const rig_result_t *validated = rig_validate(rig, first->run_dir);
    is_text(validated->status, "ok", "it validates: %s", validated->error.text);
    ok(rig_metric(validated, "val_loss") == loss, "as threads do");
    rig_predict(near, first->run_dir);
    const rig_result_t *p = rig_predict(rig, first->run_dir);
    is_text(p->status, "ok", "it predicts: %s", p->error.text);
    is_int(p->output_count, 1, "one output");
    is_int(p->output_count ? p->output[0].shape.dim[0] : 0, 24, "of all samples");
    rig_free(&near);
    rig_result_free(first);
    rig_free(&rig);
}

static void a_run_resumes_from_a_checkpoint(void)
{
    static const char saves[] = "[{\"name\": \"model_checkpoint\", "
                                "\"every_n_train_steps\": 3, \"save_top_k\": -1}]";
    char from[600];
    if (!rig_has("cpu"))                                    /* the fake one has float64 */
        return;
    rig_t *rig = far_new(.data = SPLIT, .rig = {.accelerator = "cpu",
                                                .trainer = "\"max_epochs\": 4",
                                                .callbacks = saves});
    rig_result_t *whole = rig_keep(rig_fit(rig));
    snprintf(from, sizeof from, "%s/checkpoints/epoch=1-step=6", whole->run_dir);
    ok(rig_begin_again(rig, from), "it begins: %s", rig_error.text);
    const rig_result_t *rest = rig_wait(rig);
    is_text(rest->status, "ok", "and ends: %s", rest->error.text);
    ok(rig_same_bits(whole, rest), "with the same bits");
    rig_result_free(whole);
    rig_free(&rig);
}

static void a_path_may_be_any_bytes(void)
{
    rig_t *rig = far_new(.data = SPLIT),
          *near = far_new(.launcher = "\"inline\"", .data = SPLIT,
                          .rig = {.trainer = "\"max_epochs\": 2"});
    char run_dir[600], path[610];
    snprintf(run_dir, sizeof run_dir, "%s", rig_fit(near)->run_dir);
    snprintf(path, sizeof path, "%s-\xff\x80\xc3", run_dir);
    rename(run_dir, path);
    double loss = rig_metric(rig_validate(near, path), "val_loss");
    const rig_result_t *far = rig_validate(rig, path);
    is_text(far->status, "ok", "a checkpoint is found: %s", far->error.text);
    ok(rig_metric(far, "val_loss") == loss, "the same as by threads");
    ok(!rig_begin_again(rig, path), "to resume there is refused");
    like(rig_error.text, "cannot resume from .*-\\?\\?\\?: .*not UTF-8", "for its name");
    rig_free(&near);
    rig_free(&rig);
}

static void two_launchers_work_beside_each_other(void)
{
    const char *trainer = "\"max_epochs\": 20";
    rig_t *far = far_new(.rig = {.trainer = trainer});
    rig_t *near = far_new(.launcher = "\"inline\"",
                          .rig = {.trainer = trainer, .beside = far});
    rig_t *third = far_new(.rig = {.trainer = trainer, .beside = far});
    ok(rig_begin(far) && rig_begin(near) && rig_begin(third), "three runs begin");
    is_text(rig_wait(far)->status, "ok", "processes: %s", rig_wait(far)->error.text);
    is_text(rig_wait(near)->status, "ok", "threads");
    is_text(rig_wait(third)->status, "ok", "other processes");
    ok(rig_same_bits(rig_wait(far), rig_wait(near)), "with the same bits");
    rig_free(&third);
    rig_free(&near);
    rig_free(&far);
}

static void output_of_a_rank_comes_with_its_number(void)
{
    last_log[0] = '\0';
    pl_log_hook(keep_log, PL_LOG_WARNING, NULL);
    rig_t *rig =
        far_new(.rig = {.callbacks = "[\"talks\"]", .trainer = "\"max_steps\": 4"});
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "it runs: %s", result->error.text);
    is_text(last_log, "rank 0: step two", "its standard error is in the log");
    ok(rig_has_file(result, "rank-0.stderr"), "and in the run's folder");
    ok(!rig_has_file(result, "rank-1.stderr"), "a rank without output has no file there");
    rig_free(&rig);
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
}

/* Started threads that write it: calls in the stream. */
static int log_writers_of(json_t *stream)
{
    int count = 0;
    size_t k;
    json_t *message;
    json_array_foreach(stream, k, message)
        count += !strcmp(json_string_value(json_object_get(message, "to")), "log_writer")
                 && !strcmp(json_string_value(json_object_get(message, "name")), "start")
                 && !strcmp(json_string_value(json_object_get(message, "kind")), "call");
    json_decref(stream);
    return count;
}

static void one_thread_writes_the_output_of_all_ranks(void)
{
    rig_t *rig = far_new(.then = "speak", .data = "\"rank\": 1",
                         .rig = {.callbacks = "[\"talks\"]",
                                 .trainer = "\"max_steps\": 4",
                                 .stream = true});
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "it runs: %s", result->error.text);
    ok(rig_has_file(result, "rank-0.stderr") && rig_has_file(result, "rank-1.stderr"),
       "two of them have said something");
    rig_free(&rig);
    is_int(log_writers_of(rig_stream()), 1, "one thread for both");
}

static void stop_soon(rig_t *rig, const pl_progress_t *progress)
{
    if (progress->global_step >= 3)
        pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

static void a_stop_is_for_all(void)
{
    rig_t *rig =
        far_new(.rig = {.trainer = "\"max_epochs\": 100000", .on_progress = stop_soon});
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "stopped", "stopped: %s", result->error.text);
    ok(result->weight_count > 0, "with weights");
    rig_free(&rig);
}

static void an_error_of_a_rank_is_the_error_of_the_run(void)
{
    for (int record = 1; record <= 5; record += 4) {
        rig_t *rig = far_new(.record = record, .then = "torn");
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "the run fails");
        like(result->error.text, "it is torn", "with the error");
        like(result->error.where, record == 1 ? "rank 0" : "rank [01]", "of a rank: %s",
             result->error.where);
        is_int(rig_done(rig), 1, "once");
        rig_free(&rig);
    }
}

static void components_that_other_processes_cannot_find_are_refused(void)
{
    rig_t *rig = far_new(.rig = {.callbacks = "[\"late\"]"});
    ok(!rig_begin(rig), "a callback that was registered late");
    like(rig_error.text, "callback \"late\".*pl_init", "is refused, with what to do: %s",
         rig_error.text);
    is_int(far_children(), 0, "before anything starts");
    rig_free(&rig);
    rig = rig_new(.trainer = "\"launcher\": \"spawn\"");
    ok(!rig_begin(rig), "and so is data in memory");
    like(rig_error.text, "dataset \"memory\"", "with its name: %s", rig_error.text);
    rig_free(&rig);
}

/* -1 and the ranks have numbers of their own, each without a gap. */
static void the_stream_has_the_messages_of_all_processes(void)
{
    json_int_t next[3] = {-1, -1, -1}, count[3] = {0};
    int gaps = 0;
    size_t k;
    json_t *line;
    rig_t *rig = far_new(.rig = {.trainer = "\"max_epochs\": 20", .stream = true});
    is_text(rig_fit(rig)->status, "ok", "a run that is watched");
    rig_free(&rig);
    json_t *stream = rig_stream();
    const char *run =
        json_string_value(json_object_get(json_array_get(stream, 0), "run"));
    bool same_run = run != NULL;
    json_array_foreach(stream, k, line) {
        const json_int_t rank = json_integer_value(json_object_get(line, "rank")) + 1,
                         seq = json_integer_value(json_object_get(line, "seq"));
        const char *of = json_string_value(json_object_get(line, "run"));
        if (rank < 0 || rank > 2)
            continue;
        gaps += next[rank] >= 0 && seq != next[rank];
        next[rank] = seq + 1;
        count[rank]++;
        same_run = same_run && of && !strcmp(of, run);
    }
    ok(count[0] > 10 && count[1] > 100 && count[2] > 100,
       "has %d messages of the program, %d and %d of the ranks", (int)count[0],
       (int)count[1], (int)count[2]);
    is_int(gaps, 0, "no gaps");
    ok(same_run, "and one run");
    json_decref(stream);
}

/* The call or cause of a line, as it is known. */
static const char *key_of(const json_t *line, const char *number)
{
    static char key[64];
    snprintf(key, sizeof key, "%lld:%lld",
             (long long)json_integer_value(json_object_get(line, "process_id")),
             (long long)json_integer_value(json_object_get(line, number)));
    return key;
}

/* Calls of the stream, by process and number; how many of them have the same. */
static int calls_of(const json_t *stream, json_t *calls)
{
    size_t k;
    json_t *line;
    int twice = 0;
    json_array_foreach(stream, k, line) {
        if (strcmp(json_string_value(json_object_get(line, "kind")), "call") != 0)
            continue;
        twice += json_object_get(calls, key_of(line, "call")) != NULL;
        json_object_set_new(calls, key_of(line, "call"), json_true());
    }
    return twice;
}

static void calls_are_distinguished_by_their_process(void)
{
    size_t k;
    json_t *line, *calls = json_object();
    int unknown = 0;
    bool processes[3] = {false};
    rig_t *rig = far_new(.rig = {.trainer = "\"max_epochs\": 5", .stream = true});
    is_text(rig_fit(rig)->status, "ok", "a run of two processes");
    rig_free(&rig);
    json_t *stream = rig_stream();
    is_int(calls_of(stream, calls), 0, "no two calls of one process have a number");
    json_array_foreach(stream, k, line) {
        const json_int_t rank = json_integer_value(json_object_get(line, "rank"));
        if (rank >= 0 && rank < 2)
            processes[rank + 1] |= json_integer_value(json_object_get(line, "process_id"))
                                   > 0;
        else
            processes[0] |= json_integer_value(json_object_get(line, "process_id")) == 0;
        if (json_integer_value(json_object_get(line, "cause")))
            unknown += !json_object_get(calls, key_of(line, "cause"));
    }
    ok(processes[0] && processes[1] && processes[2],
       "this process is 0, the others are not");
    is_int(unknown, 0, "each cause is a call of the same process");
    json_decref(calls);
    json_decref(stream);
}

static pl_socket_t *viewer;
static char line_of_rank_one[2000];

/* Once a line of rank 1 has come the run may end. */
static void watch_later(rig_t *rig, const pl_progress_t *progress)
{
    pl_error_t err = {0};
    if (!viewer && progress->global_step >= 3) {
        is_int(pl_engine_monitor(rig_engine(rig), "tcp://127.0.0.1:*", &err), PL_OK,
               "a run in training is published %s", err.text);
        const pl_socket_spec_t spec = {.type = PL_SOCKET_SUB,
                                       .endpoint =
                                           pl_engine_monitor_endpoint(rig_engine(rig))};
        viewer = pl_socket_open(&spec, NULL, NULL, NULL, &err);
        pl_socket_subscribe(viewer, "1.", true, NULL);
    }
    if (viewer
        && pl_socket_receive(viewer, line_of_rank_one, sizeof line_of_rank_one - 1, 0,
                             NULL)
               > 0)
        pl_trainer_stop(rig_trainer(rig), "seen", NULL);
}

static void a_later_viewer_sees_ranks_as_well(void)
{
    pl_context_acquire(NULL);                         /* so that it outlives the engine */
    rig_t *rig =
        far_new(.rig = {.trainer = "\"max_epochs\": 100000", .on_progress = watch_later});
    is_text(rig_fit(rig)->status, "stopped", "it is watched until rank 1 is seen");
    like(line_of_rank_one, "\"rank\": 1,.*\"name\": \"[a-z_]+\"", "%s", line_of_rank_one);
    pl_socket_close(viewer);
    rig_free(&rig);
    pl_context_release();
}

static void a_search_runs_in_processes(void)
{
    rig_t *rig = far_new(.ranks = 1, .samples = 60);
    rig_t *near = far_new(.ranks = 1, .samples = 60, .launcher = "\"inline\"");
    const pl_tuning_t what = {.num_training = 20};
    const rig_result_t *far = rig_tune(rig, &what);
    is_text(far->status, "ok", "it ends: %s", far->error.text);
    ok(rig_metric(far, "lr") == rig_metric(rig_tune(near, &what), "lr"),
       "with the rate that threads find");
    ok(far->text && strstr(far->text, "trials"), "and tells its trials");
    rig_free(&rig);
    rig = far_new(.ranks = 2, .samples = 60);
    far = rig_tune(rig, &(pl_tuning_t){.batch_size = "power"});
    is_text(far->status, "ok", "so does that for a batch size: %s", far->error.text);
    is_near(rig_metric(far, "batch_size"), 30, 0, "up to all samples of a rank");
    rig_free(&near);
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t components[] = {{"callback", &talks},
                                                   PL_REGISTRATIONS_END};
    static const pl_registration_t others[] = {{"callback", &late}, PL_REGISTRATIONS_END};
    far_init(components);
    pl_register(others, NULL);
    run(processes_train_what_threads_do);
    run(a_trainer_works_again_and_for_other_stages);
    run(a_run_resumes_from_a_checkpoint);
    run(a_path_may_be_any_bytes);
    run(two_launchers_work_beside_each_other);
    run(output_of_a_rank_comes_with_its_number);
    run(one_thread_writes_the_output_of_all_ranks);
    run(a_stop_is_for_all);
    run(an_error_of_a_rank_is_the_error_of_the_run);
    run(components_that_other_processes_cannot_find_are_refused);
    run(the_stream_has_the_messages_of_all_processes);
    run(calls_are_distinguished_by_their_process);
    run(a_later_viewer_sees_ranks_as_well);
    run(a_search_runs_in_processes);
    return tap_done();
}
