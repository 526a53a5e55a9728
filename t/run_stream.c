/* run_stream.c - tests of the stream of whole runs: every message of them keeps to the
 * rules of levels and calls */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"
#include "tap.h"

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

static json_int_t number_of(const json_t *line, const char *key)
{
    return json_integer_value(json_object_get(line, key));
}

static bool is_kind(const json_t *line, const char *kind)
{
    return !strcmp(text_of(line, "kind"), kind);
}

static void show(const json_t *line, const char *why)
{
    char *text = json_dumps(line, JSON_COMPACT);
    tap_diag("%s: %.300s", why, text ? text : "nothing");
    free(text);
}

/* ---- What is known of calls ---- */

typedef struct calls {
    json_t *ends;                            /* by number: how many ends a call has had */
    int wrong;
} calls_t;

static void call_key(const json_t *line, const char *field, char key[static 32])
{
    snprintf(key, 32, "%lld", (long long)number_of(line, field));
}

static void complain(calls_t *calls, const json_t *line, const char *why)
{
    if (calls->wrong++ < 5)
        show(line, why);
}

static void check_call(calls_t *calls, const json_t *line)
{
    char key[32];
    if (number_of(line, "from_level") <= number_of(line, "to_level"))
        complain(calls, line, "a call that goes up or sideways");
    call_key(line, "cause", key);
    if (number_of(line, "cause") == 0 && strcmp(text_of(line, "from"), "host"))
        complain(calls, line, "a call without a cause");
    if (number_of(line, "cause") != 0 && !json_object_get(calls->ends, key))
        complain(calls, line, "a cause that was never called");
    call_key(line, "call", key);
    if (json_object_get(calls->ends, key))
        complain(calls, line, "a number that was called before");
    json_object_set_new(calls->ends, key, json_integer(0));
}

static void check_answer(calls_t *calls, const json_t *line, bool is_end)
{
    char key[32];
    call_key(line, "call", key);
    json_t *ends = json_object_get(calls->ends, key);
    if (!ends)
        complain(calls, line, "an answer to no call");
    else if (json_integer_value(ends))
        complain(calls, line, "an answer after the end");
    else if (is_end)
        json_integer_set(ends, 1);
    if (number_of(line, "from_level") >= number_of(line, "to_level"))
        complain(calls, line, "an answer that goes down");
}

static int by_seq(const void *a, const void *b)
{
    json_int_t x = number_of(*(json_t *const *)a, "seq");
    json_int_t y = number_of(*(json_t *const *)b, "seq");
    return (x > y) - (x < y);
}

/* Even of a run that fails at once. */
enum { LINES_MIN = 10 };

/* Holes in the numbers of one rank, which begin with 0; fewer lines than there must be
 * are holes, too. */
static int gaps_of(const json_t *stream, int rank)
{
    size_t k, count = 0;
    json_int_t next = 0;
    int gaps = 0;
    json_t *line, **lines = calloc(json_array_size(stream) + 1, sizeof(json_t *));
    json_array_foreach(stream, k, line)
        if (number_of(line, "rank") == rank)
            lines[count++] = line;
    qsort(lines, count, sizeof *lines, by_seq);
    for (k = 0; k < count; k++) {
        gaps += number_of(lines[k], "seq") != next;
        next = number_of(lines[k], "seq") + 1;
    }
    free(lines);
    return count < LINES_MIN ? LINES_MIN : gaps;
}

static void check(const json_t *stream, const char *what)
{
    calls_t calls = {.ends = json_object()};
    size_t k;
    json_t *line, *ends;
    const char *key;
    int open = 0;
    json_array_foreach(stream, k, line)
        if (is_kind(line, "call"))
            check_call(&calls, line);
        else if (!is_kind(line, "cancel"))
            check_answer(&calls, line, !is_kind(line, "progress"));
    json_object_foreach(calls.ends, key, ends)
        if (!json_integer_value(ends) && open++ < 5)
            tap_diag("call %s has no end", key);
    is_int(calls.wrong, 0, "%s: %zu messages keep to the levels", what,
           json_array_size(stream));
    is_int(open, 0, "%s: each of %zu calls has one end", what,
           json_object_size(calls.ends));
    is_int(gaps_of(stream, -1) + gaps_of(stream, 0), 0, "%s: no number is missing", what);
    json_decref(calls.ends);
}

static int count_of(const json_t *stream, const char *kind, const char *name)
{
    size_t k;
    json_t *line;
    int count = 0;
    json_array_foreach(stream, k, line)
        count += is_kind(line, kind) && !strcmp(text_of(line, "name"), name);
    return count;
}

/* ---- Runs ---- */

#define DATA "\"batch_size\": 8, \"val_split\": 0.2, \"workers\": 2"

static void a_fit_and_a_prediction_keep_the_rules(void)
{
    rig_t *rig = rig_new(.stream = true, .data = DATA, .trainer = "\"max_epochs\": 3");
    rig_result_t *fitted = rig_keep(rig_fit(rig));
    is_text(fitted->status, "ok", "a fit");
    is_text(rig_predict(rig, fitted->run_dir)->status, "ok", "and a prediction");
    rig_result_free(fitted);
    rig_free(&rig);
    json_t *stream = rig_stream();
    check(stream, "a fit and a prediction");
    is_int(count_of(stream, "call", "train_batch"), 12, "4 batches in each of 3 epochs");
    is_int(count_of(stream, "reply", "train_batch"), 12, "and as many replies");
    is_int(count_of(stream, "call", "evaluate_batch"), 3 + 5, "validated and predicted");
    is_int(count_of(stream, "error", "train_batch"), 0, "no errors");
    json_decref(stream);
}

static void a_run_that_fails_keeps_the_rules(void)
{
    static const char *const scripts[] = {
        "open fails",
        "compile 2 fails",
        "replay 3 of forward_backward fails",
        "replay 2 of optimizer_step is refused",
        "replay 1 of forward fails",
        "step 2 of forward_backward gives nan in fc1.weight",
        "read 1 fails"};
    for (size_t k = 0; k < sizeof scripts / sizeof *scripts; k++) {
        rig_t *rig = rig_new(.stream = true, .data = DATA, .script = scripts[k],
                             .trainer = "\"max_epochs\": 2, \"depth\": 4");
        is_text(rig_fit(rig)->status, "failed", "a run fails");
        rig_free(&rig);
        json_t *stream = rig_stream();
        check(stream, scripts[k]);
        json_decref(stream);
    }
}

/* The most calls of that name that were under way at once. */
static int max_open(const json_t *stream, const char *name)
{
    size_t k;
    json_t *line;
    int open = 0, max = 0;
    json_array_foreach(stream, k, line) {
        if (strcmp(text_of(line, "name"), name))
            continue;
        open += is_kind(line, "call");
        open -= is_kind(line, "reply") || is_kind(line, "error");
        max = open > max ? open : max;
    }
    return max;
}

/* Batches under way at once of a fit of a hundred, each of which takes so long. */
static int max_batches_open(int depth, int ms)
{
    char trainer[64], script[64];
    snprintf(trainer, sizeof trainer, "\"max_epochs\": 1, \"depth\": %d", depth);
    snprintf(script, sizeof script, "replay of forward_backward takes %d ms", ms);
    rig_t *rig = rig_new(.stream = true, .samples = 400, .data = "\"batch_size\": 4",
                         .trainer = trainer, .script = script);
    is_text(rig_fit(rig)->status, "ok", "a fit with a depth of %d", depth);
    rig_free(&rig);
    json_t *stream = rig_stream();
    is_int(count_of(stream, "call", "train_batch"), 100, "trains with a hundred batches");
    const int max = max_open(stream, "train_batch");
    json_decref(stream);
    return max;
}

static void a_fit_has_as_many_batches_under_way_as_it_may(void)
{
    is_int(max_batches_open(1, 2), 1, "one at a time");
    is_int(max_batches_open(3, 2), 3, "three");
    int max = max_batches_open(0, 2);
    ok(max >= 2 && max <= 32, "%d: by itself it has several of slow batches", max);
    max = max_batches_open(0, 0);
    ok(max >= 2 && max <= 32, "%d: and of quick ones, but 32 at most", max);
}

static void stop_it(rig_t *rig, const pl_progress_t *progress)
{
    if (progress->global_step > 5)
        pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

static void a_run_that_is_stopped_keeps_the_rules(void)
{
    rig_t *rig = rig_new(.stream = true, .data = DATA, .trainer = "\"max_epochs\": -1",
                         .script = "replay of forward_backward takes 2 ms",
                         .on_progress = stop_it);
    is_text(rig_fit(rig)->status, "stopped", "a run is stopped");
    rig_free(&rig);
    json_t *stream = rig_stream();
    check(stream, "stopped");
    json_decref(stream);
}

static void count_reported(rig_t *rig, const pl_progress_t *progress)
{
    (void)progress;
    ++*(int *)rig_user(rig);
}

static bool is_reported(rig_t *rig)
{
    return *(int *)rig_user(rig) > 1;
}

static void an_engine_that_ends_keeps_the_rules(void)
{
    int reported = 0;
    rig_t *rig = rig_new(.stream = true, .data = DATA, .trainer = "\"max_epochs\": -1",
                         .script = "replay of forward_backward takes 2 ms",
                         .on_progress = count_reported, .user = &reported);
    rig_begin(rig);
    ok(rig_until(rig, is_reported), "a run trains");
    rig_free(&rig);
    json_t *stream = rig_stream();
    check(stream, "an engine freed while a run trains");
    json_decref(stream);
}

int main(void)
{
    rig_init(NULL);
    run(a_fit_and_a_prediction_keep_the_rules);
    run(a_fit_has_as_many_batches_under_way_as_it_may);
    run(a_run_that_fails_keeps_the_rules);
    run(a_run_that_is_stopped_keeps_the_rules);
    run(an_engine_that_ends_keeps_the_rules);
    return tap_done();
}
