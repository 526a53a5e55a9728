/* explain.c - tests of engine/telemetry/explain.c: journals whose times are known, and
 * the metrics that follow from them */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "telemetry/journal.h"
#include "tap.h"

/* ---- a journal, record by record ---- */

enum { ACTORS = 10, CALLS_MAX = 64, PROCESSES = 3 };
typedef enum party {
    HOST,
    TRAINER,
    LAUNCHER,
    FIT,
    EPOCH,
    DATA,
    STRATEGY,
    DEVICE,
    COLLECTIVE,
    TUNER
} party_t;

static const struct {
    const char *name;
    int level;
} actors[ACTORS] = {{"host", PL_LEVEL_HOST},
                    {"trainer", PL_LEVEL_TRAINER},
                    {"launcher.spawn", PL_LEVEL_LAUNCHER},
                    {"loop.fit", PL_LEVEL_FIT_LOOP},
                    {"loop.epoch", PL_LEVEL_EPOCH_LOOP},
                    {"connector.data", PL_LEVEL_CONNECTOR},
                    {"strategy.ddp", PL_LEVEL_STRATEGY},
                    {"accelerator.cpu", PL_LEVEL_ACCELERATOR},
                    {"collective.shm", PL_LEVEL_COLLECTIVE},
                    {"loop.tuner", PL_LEVEL_TUNER}};

static char path[256];
static FILE *file;
static pl_error_t err;
static uint32_t process_id, incarnation;      /* of the next message */
static int rank, shift;                       /* shift: actors have other numbers by it */
static struct {
    pl_envelope_t envelope;
} made[PROCESSES][CALLS_MAX];

static void put(pl_journal_type_t type, const void *head, size_t head_size,
                pl_bytes_t body)
{
    static unsigned char bytes[PL_JOURNAL_MAX + 8];
    const size_t size = head_size + body.size;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, head, head_size);
    if (body.size)
        memcpy(bytes + head_size, body.data, body.size);
    pl_journal_record_t r = {(uint32_t)size, pl_crc32c(0, bytes, size), type, 0};
    r.head_sum = pl_crc32c(0, &r, offsetof(pl_journal_record_t, head_sum));
    fwrite(&r, sizeof r, 1, file);
    fwrite(bytes, 1, size + -size % 8, file);
}

static void journal_begins(void)
{
    unsigned number;
    const pl_message_info_t *info;
    json_t *list = json_array();
    for (int k = 0; (info = pl_message_at(k, &number)); k++)
        json_array_append_new(list, json_pack("[I, s, I]", (json_int_t)number, info->name,
                                              (json_int_t)pl_journal_hash(info)));
    json_t *begin = json_pack("{s:s, s:i, s:o}", "paceline", "test", "protocol",
                              PL_PROTOCOL_VERSION, "messages", list);
    char *text = json_dumps(begin, JSON_COMPACT);
    snprintf(path, sizeof path, "%s/made.journal", tap_folder());
    file = fopen(path, "wb");
    fwrite(PL_JOURNAL_MAGIC, 1, 8, file);
    put(PL_JOURNAL_BEGIN, text, strlen(text), (pl_bytes_t){0});
    free(text);
    json_decref(begin);
    for (uint32_t k = 0; k < ACTORS; k++) {
        pl_journal_kind_t kind = {.number = k + 1, .level = actors[k].level};
        snprintf(kind.name, sizeof kind.name, "%s", actors[k].name);
        put(PL_JOURNAL_KIND, &kind, sizeof kind, (pl_bytes_t){0});
    }
    process_id = incarnation = 0;
    rank = shift = 0;
}

static void message(double at, const pl_envelope_t *e, const void *fields)
{
    static uint64_t seq;
    pl_frame_t frame;
    const pl_journal_message_t head = {.seq = ++seq,
                                       .time = llround(at * 1e9),
                                       .rank = rank,
                                       .process_id = process_id};
    if (pl_frame_make(&frame, e, fields, &err) != PL_OK) {
        ok(false, "a frame: %s", err.text);
        return;
    }
    put(PL_JOURNAL_MESSAGE, &head, sizeof head, pl_frame_bytes(&frame));
    pl_frame_release(&frame);
}

static void call(double at, uint64_t number, uint64_t cause, party_t from, party_t to,
                 uint32_t what, const void *fields)
{
    const uint32_t thread = process_id + 1;
    const pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                             .kind = PL_KIND_CALL,
                             .message = (uint16_t)what,
                             .incarnation = incarnation,
                             .run = 7,
                             .call = number,
                             .cause = cause,
                             .remaining = -1,
                             .from_thread = thread,
                             .from_actor = from + 1 + (unsigned)shift,
                             .from_kind = from + 1,
                             .to_thread = thread,
                             .to_actor = to + 1 + (unsigned)shift,
                             .to_kind = to + 1};
    made[process_id][number].envelope = e;
    message(at, &e, fields);
}

static void back(double at, uint64_t number, pl_kind_t kind, const void *fields)
{
    pl_envelope_t e = made[process_id][number].envelope;
    const pl_envelope_t c = e;
    e.kind = (uint8_t)kind;
    e.from_thread = c.to_thread;
    e.from_actor = c.to_actor;
    e.from_kind = c.to_kind;
    e.to_thread = c.from_thread;
    e.to_actor = c.from_actor;
    e.to_kind = c.from_kind;
    message(at, &e, fields);
}

/* A call from a time to a time, for another; all fields are 0. */
static void span(double begin, double end, uint64_t cause, party_t from, party_t to,
                 uint32_t what)
{
    static const pl_body_t nothing;
    call(begin, 63, cause, from, to, what, &nothing);
    back(end, 63, PL_KIND_REPLY, &nothing);
}

/* Of which so many seconds were forward's, and so many those of the plan behind it. */
static void step(double begin, double end, const char *what, double forward, double then)
{
    const pl_replay_plan_t plan = {.what = what};
    const pl_replay_plan_reply_t reply = {.forward = forward, .then = then};
    call(begin, 62, 3, STRATEGY, DEVICE, PL_MESSAGE_replay_plan, &plan);
    back(end, 62, PL_KIND_REPLY, &reply);
}

static void compute(double begin, double end, uint64_t cause, const char *what)
{
    const pl_replay_plan_t plan = {.what = what};
    const pl_replay_plan_reply_t reply = {0};
    call(begin, 62, cause, STRATEGY, DEVICE, PL_MESSAGE_replay_plan, &plan);
    back(end, 62, PL_KIND_REPLY, &reply);
}

static void report(double at, pl_run_event_t event, uint64_t step)
{
    const pl_run_progress_t progress = {.event = event, .global_step = step};
    back(at, 1, PL_KIND_PROGRESS, &progress);
}

/* Call 1 is the run, 2 its part of the rank, 3 its epoch. */
static void run_goes(double at)
{
    static const pl_body_t nothing;
    call(at, 1, 0, HOST, TRAINER, PL_MESSAGE_run, &nothing);
    call(at, 2, 1, TRAINER, FIT, PL_MESSAGE_run, &nothing);
    call(at, 3, 2, FIT, EPOCH, PL_MESSAGE_train_epoch, &nothing);
}

static void run_ends(double at, uint64_t steps)
{
    static const pl_body_t nothing;
    const pl_train_epoch_reply_t reply = {.global_step = steps};
    back(at, 3, PL_KIND_REPLY, &reply);
    back(at, 2, PL_KIND_REPLY, &nothing);
    back(at, 1, PL_KIND_REPLY, &nothing);
}

static void command(double asked, double done, pl_run_command_t word, uint64_t step)
{
    const pl_control_t control = {.command = word};
    const pl_control_reply_t reply = {.global_step = step};
    static uint64_t number = 50;
    number++;
    call(asked, number, 0, HOST, TRAINER, PL_MESSAGE_control, &control);
    back(done, number, PL_KIND_REPLY, &reply);
}

static json_t *explained(uint64_t number)
{
    err = (pl_error_t){0};
    char *text = pl_journal_explain_run(path, number, &err);
    json_t *answer = text ? json_loads(text, 0, NULL) : NULL;
    pl_text_free(text);
    return answer;
}

/* Closes the file, whole or not. */
static json_t *read_back(bool is_whole)
{
    if (is_whole)
        put(PL_JOURNAL_END, "", 0, (pl_bytes_t){0});
    fclose(file);
    json_t *answer = explained(0);
    ok(answer != NULL, "it is explained: %s", err.text);
    return answer;
}

/* ---- what is in an answer ---- */

static json_t *at(json_t *answer, const char *first, const char *second)
{
    return json_object_get(json_object_get(answer, first), second);
}

static double seconds(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "(none)";
}

/* The entry of a list with a text at a key. */
static json_t *entry(json_t *list, const char *key, const char *value, int of_rank)
{
    size_t k;
    json_t *e;
    json_array_foreach(list, k, e)
        if (!strcmp(text(e, key), value) && (int)seconds(e, "rank") == of_rank)
            return e;
    return NULL;
}

/* ---- tests ---- */

static void the_time_of_a_rank_is_the_sum_of_its_stages(void)
{
    journal_begins();
    run_goes(1);
    span(2.0, 2.2, 3, EPOCH, DATA, PL_MESSAGE_fetch_batch);
    compute(2.2, 2.6, 3, "training_step");
    span(2.6, 2.9, 3, STRATEGY, COLLECTIVE, PL_MESSAGE_all_reduce);
    compute(2.9, 3.0, 3, "optimizer_step");
    span(3.0, 3.4, 3, EPOCH, DATA, PL_MESSAGE_fetch_batch);
    compute(3.6, 4.0, 3, "training_step");
    span(4.0, 4.3, 3, STRATEGY, COLLECTIVE, PL_MESSAGE_all_reduce);
    compute(4.5, 4.6, 3, "optimizer_step");
    run_ends(5, 2);
    json_t *answer = read_back(true);
    json_t *r = json_array_get(at(answer, "times", "ranks"), 0);
    is_near(seconds(r, "backward"), 0.8, 1e-9, "backward");
    is_near(seconds(r, "optimizer"), 0.2, 1e-9, "optimizer");
    is_near(seconds(r, "data"), 0.4, 1e-9, "waits for data, a part of the time between");
    is_near(seconds(r, "collective"), 0.6, 1e-9, "waits for a collective");
    is_near(seconds(r, "engine"), 0.4, 1e-9, "and the rest");
    is_near(seconds(r, "in_collectives"), 0.6, 1e-9, "collectives in all");
    is_near(seconds(r, "paused"), 0, 1e-9, "no pause");
    is_int(seconds(json_object_get(answer, "times"), "slowest"), -1,
           "no rank is slowest");
    is_near(seconds(answer, "seconds"), 4, 1e-9, "the run");
    is_text(text(json_object_get(answer, "end"), "status"), "ok", "ended well");
    is_int(seconds(json_object_get(answer, "end"), "global_step"), 2, "after 2 steps");
    json_decref(answer);
}

static void validation_is_no_part_of_the_steps(void)
{
    static const pl_body_t nothing;
    journal_begins();
    run_goes(1);
    compute(2.2, 2.6, 3, "training_step");
    call(2.7, 40, 2, FIT, EPOCH, PL_MESSAGE_evaluate, &nothing);
    span(3.0, 3.4, 40, EPOCH, DATA, PL_MESSAGE_fetch_batch);
    compute(3.4, 4.0, 40, "forward");
    compute(4.0, 4.5, 40, "forward");
    back(4.6, 40, PL_KIND_REPLY, &nothing);
    span(4.6, 4.8, 3, EPOCH, DATA, PL_MESSAGE_fetch_batch);
    compute(5.0, 5.4, 3, "training_step");
    span(5.5, 5.9, 2, FIT, EPOCH, PL_MESSAGE_evaluate);     /* no batch for this rank */
    compute(6.1, 6.2, 3, "training_step");
    compute(6.3, 6.5, 3, "optimizer_step");
    run_ends(7, 3);
    json_t *answer = read_back(true);
    json_t *r = json_array_get(at(answer, "times", "ranks"), 0),
           *e = json_object_get(r, "evaluation");
    is_near(seconds(r, "forward"), 0, 1e-9, "no step has its forward");
    is_near(seconds(r, "backward"), 0.9, 1e-9, "what trains is a step's");
    is_near(seconds(r, "optimizer"), 0.2, 1e-9, "all of it");
    is_near(seconds(r, "data"), 0, 1e-9, "nor do they wait for its data");
    is_near(seconds(r, "engine"), 0.1, 1e-9, "or for its beginning and end");
    is_near(seconds(e, "forward"), 1.1, 1e-9, "it has its forward");
    is_near(seconds(e, "data"), 0.6, 1e-9, "its waits for data");
    is_near(seconds(e, "engine"), 1.4, 1e-9, "and the rest by itself");
    is_near(seconds(e, "backward"), 0, 1e-9, "it does not train");
    json_decref(answer);
}

static void the_time_of_one_call_is_cut(void)
{
    static const struct cut {
        const char *what;
        double forward, then, parts[3];
    } cuts[] = {{"training_step", 0.25, 0.125, {0.25, 0.625, 0.125}},
                {"training_step", 0.25, 0, {0.25, 0.75, 0}},
                {"training_step", 0, 0.125, {0, 0.875, 0.125}},
                {"training_step", 0, 0, {0, 1, 0}},
                {"training_step", 7, 7, {1, 0, 0}},
                {"forward_backward", 0.25, 0, {0.25, 0.75, 0}},
                {"optimizer_step", 0, 0, {0, 0, 1}}};
    for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
        const struct cut *c = &cuts[k];
        journal_begins();
        run_goes(1);
        step(2, 3, c->what, c->forward, c->then);
        run_ends(4, 1);
        json_t *answer = read_back(true),
               *r = json_array_get(at(answer, "times", "ranks"), 0);
        is_near(seconds(r, "forward"), c->parts[0], 1e-9, "forward");
        is_near(seconds(r, "backward"), c->parts[1], 1e-9, "backward");
        is_near(seconds(r, "optimizer"), c->parts[2], 1e-9, "optimizer");
        json_decref(answer);
    }
}

static void a_pause_is_no_work(void)
{
    journal_begins();
    run_goes(1);
    compute(2.0, 3.0, 3, "training_step");
    report(3.0, PL_RUN_EVENT_TRAIN, 1);
    command(3.1, 3.4, PL_RUN_COMMAND_PAUSE, 1);
    command(13.4, 13.6, PL_RUN_COMMAND_CONTINUE, 1);
    span(13.5, 13.6, 3, EPOCH, DATA, PL_MESSAGE_fetch_batch);
    compute(13.7, 14.7, 3, "training_step");
    run_ends(15, 2);
    json_t *answer = read_back(true), *times = json_object_get(answer, "times");
    json_t *r = json_array_get(json_object_get(times, "ranks"), 0);
    is_near(seconds(r, "backward"), 2, 1e-9, "its work");
    is_near(seconds(r, "paused"), 10, 1e-9, "its pause");
    is_near(seconds(r, "data"), 0.1, 1e-9, "data behind it");
    is_near(seconds(r, "engine"), 0.6, 1e-9, "and what the engine took");
    is_near(seconds(times, "paused"), 10, 1e-9, "the run was paused for so long");
    json_t *commands = at(answer, "end", "commands"), *c = json_array_get(commands, 0);
    is_int(json_array_size(commands), 2, "two commands");
    is_text(text(c, "command"), "pause", "the first");
    is_near(seconds(c, "asked"), 3.1, 1e-9, "was asked for then");
    is_near(seconds(c, "done"), 3.4, 1e-9, "and carried out then");
    is_int(seconds(c, "global_step"), 1, "at that step");
    json_t *w = entry(json_object_get(times, "waits"), "call", "train_epoch", 0);
    is_near(seconds(w, "whole"), 4, 1e-9, "a rank that waited did so for the rest alone");
    is_near(seconds(w, "seconds"), 1.9, 1e-9, "less what lay in that wait");
    json_decref(answer);
}

static void time_of_calls_at_once_counts_once(void)
{
    static const pl_body_t nothing;
    journal_begins();
    run_goes(1);
    call(10, 11, 3, EPOCH, STRATEGY, PL_MESSAGE_train_batch, &nothing);
    call(10.5, 12, 11, STRATEGY, DEVICE, PL_MESSAGE_replay_plan, &nothing);
    call(11, 13, 3, EPOCH, STRATEGY, PL_MESSAGE_train_batch, &nothing);
    back(11.5, 12, PL_KIND_REPLY, &nothing);
    back(12, 11, PL_KIND_REPLY, &nothing);
    back(13, 13, PL_KIND_REPLY, &nothing);
    run_ends(20, 2);
    json_t *answer = read_back(true), *actor_list = at(answer, "times", "actors");
    json_t *a = entry(actor_list, "actor", "strategy.ddp", 0);
    is_near(seconds(a, "seconds"), 2.5, 1e-9, "half a second and two");
    is_int(seconds(a, "calls"), 2, "of two calls");
    a = entry(actor_list, "actor", "accelerator.cpu", 0);
    is_near(seconds(a, "seconds"), 1, 1e-9, "its device");
    a = entry(actor_list, "actor", "loop.epoch", 0);
    is_near(seconds(a, "seconds"), 16, 1e-9,
            "an actor without work of its own has the rest");
    json_decref(answer);
}

static void waits_at_once_count_once(void)
{
    static const pl_body_t nothing;
    journal_begins();
    run_goes(1);
    for (uint64_t k = 0; k < 4; k++)
        call(10 + 0.1 * (double)k, 11 + k, 3, STRATEGY, DEVICE, PL_MESSAGE_compile,
             &nothing);
    for (uint64_t k = 0; k < 4; k++)
        back(16 + 0.1 * (double)k, 11 + k, PL_KIND_REPLY, &nothing);
    run_ends(20, 2);
    json_t *answer = read_back(true);
    json_t *w = entry(at(answer, "times", "waits"), "call", "compile", 0);
    is_near(seconds(w, "seconds"), 6.3, 1e-9, "from the first to the last");
    is_near(seconds(w, "longest"), 6, 1e-9, "of which each took so long");
    is_int(seconds(w, "calls"), 4, "all are counted");
    json_decref(answer);
}

static void the_innermost_of_nested_waits_has_the_time(void)
{
    journal_begins();
    run_goes(1);
    compute(4, 14, 3, "forward");
    run_ends(20, 2);
    json_t *answer = read_back(true), *waits = at(answer, "times", "waits"), *w;
    double sum = 0;
    size_t k;
    json_array_foreach(waits, k, w)
        sum += seconds(w, "seconds");
    is_near(sum, 19, 1e-9, "together they are as long as the run");
    w = entry(waits, "call", "replay_plan", 0);
    is_near(seconds(w, "seconds"), 10, 1e-9, "the device was waited for");
    w = entry(waits, "call", "train_epoch", 0);
    is_near(seconds(w, "seconds"), 9, 1e-9, "the epoch for the rest");
    is_near(seconds(w, "whole"), 19, 1e-9, "of all that it took");
    w = entry(waits, "for", "trainer", 0);
    is_near(seconds(w, "seconds"), 0, 1e-9, "the trainer never");
    json_decref(answer);
}

/* The work of a rank's process is a part of the launcher's wait. */
static void a_wait_for_a_remote_rank_is_a_wait_of_its_process(void)
{
    static const pl_body_t nothing;
    const pl_join_t join = {.rank = 1, .world_size = 2};
    journal_begins();
    call(1, 1, 0, HOST, TRAINER, PL_MESSAGE_run, &nothing);
    call(1, 2, 1, LAUNCHER, FIT, PL_MESSAGE_run, &nothing);
    process_id = 2, incarnation = 1, rank = 1;
    call(2, 1, 0, HOST, STRATEGY, PL_MESSAGE_run, &nothing);
    process_id = 0, incarnation = 0, rank = -1;
    call(4, 4, 1, LAUNCHER, FIT, PL_MESSAGE_join, &join);
    back(5, 4, PL_KIND_REPLY, &nothing);
    process_id = 2, incarnation = 1, rank = 1;
    back(10, 1, PL_KIND_REPLY, &nothing);
    process_id = 0, incarnation = 0, rank = -1;
    back(11, 2, PL_KIND_REPLY, &nothing);
    back(11, 1, PL_KIND_REPLY, &nothing);
    json_t *answer = read_back(true), *waits = at(answer, "times", "waits");
    json_t *w = entry(waits, "caller", "launcher.spawn", 1);
    is_near(seconds(w, "whole"), 10, 1e-9, "the launcher waited for the rank");
    is_near(seconds(w, "seconds"), 4, 1e-9,
            "for more than its process when it began, "
            "and at the end");
    w = entry(waits, "for", "strategy.ddp", 1);
    is_near(seconds(w, "seconds"), 8, 1e-9, "else for what is there");
    json_decref(answer);
}

static void a_call_without_an_answer_is_a_wait(void)
{
    static const pl_body_t nothing;
    journal_begins();
    run_goes(1);
    call(4, 11, 3, STRATEGY, DEVICE, PL_MESSAGE_compile, &nothing);
    report(30, PL_RUN_EVENT_ALIVE, 0);
    json_t *answer = read_back(false);
    json_t *w = entry(at(answer, "times", "waits"), "call", "compile", 0);
    is_near(seconds(w, "seconds"), 26, 1e-9, "to the last word");
    is_near(seconds(w, "longest"), 26, 1e-9, "which may be the longest");
    json_decref(answer);
}

static void signs_of_life_are_no_steps(void)
{
    journal_begins();
    run_goes(1);
    report(2, PL_RUN_EVENT_TRAIN, 5908);
    report(3, PL_RUN_EVENT_ALIVE, 0);
    report(4, PL_RUN_EVENT_TEXT, 0);
    json_t *answer = read_back(false);
    is_int(seconds(json_object_get(answer, "end"), "global_step"), 5908, "steps");
    is_text(text(json_object_get(answer, "end"), "status"), "cut off", "it has no end");
    json_decref(answer);
}

static void batch(double begin, double end, uint64_t for_step, bool is_due)
{
    static const pl_body_t nothing;
    const pl_train_batch_t fields = {.global_step = for_step, .step_due = is_due};
    call(begin, 61, 3, EPOCH, STRATEGY, PL_MESSAGE_train_batch, &fields);
    back(end, 61, PL_KIND_REPLY, &nothing);
}

static void steps_without_a_report_are_counted(void)
{
    static const pl_body_t nothing;
    const pl_train_batch_t begun = {.global_step = 44, .step_due = true};
    journal_begins();
    run_goes(1);
    report(2, PL_RUN_EVENT_TRAIN, 40);
    batch(2.1, 2.2, 41, true);
    batch(2.2, 2.3, 42, false);
    batch(2.3, 2.4, 42, true);
    batch(2.4, 2.5, 43, false);
    call(2.5, 61, 3, EPOCH, STRATEGY, PL_MESSAGE_train_batch, &begun);
    call(2.6, 60, 2, TUNER, STRATEGY, PL_MESSAGE_train_batch, &begun);
    back(2.7, 60, PL_KIND_REPLY, &nothing);
    json_t *answer = read_back(false);
    is_int(seconds(json_object_get(answer, "end"), "global_step"), 42,
           "those that have ended and are no trial, of several batches or one");
    json_decref(answer);
}

static void a_run_that_goes_back_counts_from_there(void)
{
    journal_begins();
    run_goes(1);
    batch(2, 2.1, 50, true);
    report(2.2, PL_RUN_EVENT_ROLLBACK, 40);
    batch(2.3, 2.4, 41, true);
    json_t *answer = read_back(false);
    is_int(seconds(json_object_get(answer, "end"), "global_step"), 41, "steps");
    json_decref(answer);
}

/* A stop is answered at once, and carried out later. */
static void a_stop_takes_effect_at_the_last_step(void)
{
    static const pl_body_t nothing;
    const pl_stop_t stop = {.reason = "enough"};
    const pl_run_reply_t reply = {.status = PL_RUN_STATUS_STOPPED,
                                  .reason = "enough",
                                  .global_step = 57};
    journal_begins();
    run_goes(1);
    report(2, PL_RUN_EVENT_TRAIN, 40);
    call(2.1, 50, 0, HOST, TRAINER, PL_MESSAGE_stop, &stop);
    back(2.2, 50, PL_KIND_REPLY, &nothing);
    back(3, 1, PL_KIND_REPLY, &reply);
    json_t *answer = read_back(true), *end = json_object_get(answer, "end");
    is_text(text(end, "status"), "stopped", "a run that was stopped");
    is_int(seconds(end, "global_step"), 57, "has the steps that its answer says");
    json_t *c = json_array_get(json_object_get(end, "commands"), 0);
    is_text(text(c, "command"), "stop", "what stopped it");
    is_int(seconds(c, "global_step"), 57, "was carried out behind the last");
    json_decref(answer);
}

/* What a rank in another process does from a time on; another one there if it is shifted.
 */
static void rank_trains(int which, uint32_t of, double from)
{
    static const pl_body_t nothing;
    process_id = (uint32_t)which + 1;
    rank = which;
    incarnation = of;
    call(from, 1, 0, FIT, EPOCH, PL_MESSAGE_train_epoch, &nothing);
    call(from + 1, 2, 1, EPOCH, STRATEGY, PL_MESSAGE_train_batch, &nothing);
    process_id = 0;
    incarnation = 0;
    rank = 0;
}

static void rank_is(pl_rank_event_t event, double at_time, uint32_t which)
{
    const pl_watch_progress_t reported = {.event = event,
                                          .rank = which,
                                          .cause = "SIGKILL"};
    back(at_time, 5, PL_KIND_PROGRESS, &reported);
}

static void a_death_with_a_restart_is_no_end(void)
{
    static const pl_body_t nothing;
    journal_begins();
    run_goes(1);
    call(1, 5, 1, TRAINER, LAUNCHER, PL_MESSAGE_watch, &nothing);
    rank_trains(0, 1, 2);
    rank_trains(1, 1, 2);
    rank_is(PL_RANK_EVENT_DIED, 327, 1);
    shift = -1;                                /* loop.epoch has the number of loop.fit */
    rank_trains(0, 2, 330);
    rank_trains(1, 2, 330);
    shift = 0;
    report(477, PL_RUN_EVENT_TRAIN, 40);
    json_t *answer = read_back(false), *end = json_object_get(answer, "end");
    is_near(seconds(end, "time"), 477, 1e-9, "the end is the journal's");
    json_t *died = json_array_get(json_object_get(end, "events"), 0);
    is_text(text(died, "event"), "died", "the death is reported");
    is_near(seconds(died, "time"), 327, 1e-9, "with its time");
    ok(json_is_true(json_object_get(died, "recovered")), "and the recovery");
    json_t *then = json_object_get(answer, "then"), *open = json_object_get(then, "open");
    is_near(seconds(then, "time"), 477, 1e-9, "the open calls are those at the end");
    for (int k = 0; k < 2; k++) {
        json_t *batch = entry(open, "call", "train_batch", k);
        is_text(text(batch, "for"), "loop.epoch", "rank %d is there, with its caller", k);
        is_near(seconds(batch, "seconds"), 146, 1e-9, "in its second life");
    }
    json_decref(answer);
}

static void the_time_before_a_restart_is_no_work(void)
{
    journal_begins();
    run_goes(1);
    process_id = 1, incarnation = 1;
    compute(2, 3, 0, "training_step");
    incarnation = 2;
    compute(100, 101, 0, "training_step");
    compute(101.5, 102, 0, "training_step");
    json_t *answer = read_back(false);
    json_t *r = json_array_get(at(answer, "times", "ranks"), 0);
    is_near(seconds(r, "backward"), 2.5, 1e-9, "its work");
    is_near(seconds(r, "engine"), 0.5, 1e-9, "and what it stood still within a life");
    json_decref(answer);
}

/* As above, but without a restart. */
static void a_death_that_ended_the_run_is_explained(void)
{
    static const pl_body_t nothing;
    const pl_error_t peer = {.code = PL_EPEER,
                             .text = "rank 1 died",
                             .where = "launcher"};
    journal_begins();
    run_goes(1);
    call(1, 5, 1, TRAINER, LAUNCHER, PL_MESSAGE_watch, &nothing);
    rank_trains(0, 1, 2);
    rank_trains(1, 1, 2);
    rank_is(PL_RANK_EVENT_DIED, 327, 1);
    back(330, 2, PL_KIND_ERROR, &peer);
    back(331, 1, PL_KIND_ERROR, &peer);
    json_t *answer = read_back(true), *end = json_object_get(answer, "end");
    is_text(text(end, "status"), "failed", "it failed");
    is_near(seconds(end, "time"), 331, 1e-9, "then");
    is_near(seconds(json_object_get(answer, "then"), "time"), 327, 1e-9,
            "and its death is looked at");
    json_t *died = json_array_get(json_object_get(end, "events"), 0);
    ok(json_is_false(json_object_get(died, "recovered")), "which was not mended");
    ok(entry(at(answer, "then", "open"), "call", "train_batch", 0) != NULL,
       "what the other did then");
    json_decref(answer);
}

/* A process that stood still runs for a moment when it is killed for that. */
static void a_last_message_of_a_killed_rank_is_no_recovery(void)
{
    static const pl_body_t nothing;
    const pl_error_t stuck = {.code = PL_ESTUCK, .text = "no sign of life"};
    journal_begins();
    run_goes(1);
    call(1, 5, 1, TRAINER, LAUNCHER, PL_MESSAGE_watch, &nothing);
    rank_is(PL_RANK_EVENT_MUTE, 4, 1);
    rank_is(PL_RANK_EVENT_SILENT, 6, 1);
    rank_is(PL_RANK_EVENT_HEARD, 6.1, 1);
    rank_is(PL_RANK_EVENT_DIED, 7, 1);
    back(8, 1, PL_KIND_ERROR, &stuck);
    json_t *answer = read_back(true), *events = at(answer, "end", "events"), *event;
    size_t k;
    is_int(json_array_size(events), 4, "all are reported");
    json_array_foreach(events, k, event)
        ok(json_is_false(json_object_get(event, "recovered")), "%s: no recovery",
           text(event, "event"));
    is_near(seconds(json_object_get(answer, "then"), "time"), 6, 1e-9,
            "what is looked at is its silence");
    json_decref(answer);
}

static void an_error_is_followed_to_the_rank_that_failed_first(void)
{
    const pl_error_t first = {.code = PL_ENAN,
                              .text = "loss is nan",
                              .where = "strategy"},
                     last = {.code = PL_ENAN,
                             .text = "rank 1: loss is nan",
                             .where = "launcher"},
                     other = {.code = PL_ENAN, .text = "elsewhere", .where = "x"};
    journal_begins();
    run_goes(1);
    rank_trains(0, 1, 2);
    rank_trains(1, 1, 2);
    process_id = 1, incarnation = 1;
    back(3.5, 2, PL_KIND_ERROR, &other);
    process_id = 2, incarnation = 1, rank = 1;
    back(4, 2, PL_KIND_ERROR, &first);
    back(5, 1, PL_KIND_ERROR, &first);
    process_id = 0, incarnation = 0, rank = 0;
    back(6, 2, PL_KIND_ERROR, &last);
    back(6, 1, PL_KIND_ERROR, &last);
    json_t *answer = read_back(true), *chain = at(answer, "end", "chain");
    is_int(json_array_size(chain), 3, "run, its part, and what failed elsewhere");
    ok(json_is_true(json_object_get(json_array_get(chain, 1), "certain")),
       "what call ids tie is certain");
    json_t *far = json_array_get(chain, 2);
    ok(json_is_false(json_object_get(far, "certain")), "what they do not is probable");
    is_int(seconds(far, "rank"), 1, "it is of the rank whose words the error has");
    is_text(text(far, "actor"), "strategy.ddp", "its actor");
    is_text(text(far, "asked_by"), "loop.epoch", "asked by its caller");
    is_near(seconds(far, "time"), 4, 1e-9, "then");
    is_text(text(json_object_get(answer, "end"), "reason"), "loss is nan", "the reason");
    json_decref(answer);
}

/* As one dies before all have joined: the others are ended for it, and reported later. */
static void an_error_is_followed_to_the_call_with_the_same_text(void)
{
    static const pl_body_t nothing;
    const pl_error_t first = {.code = PL_EDIED, .text = "rank 1 was killed"},
                     later = {.code = PL_EDIED, .text = "rank 0 has ended"},
                     last = {.code = PL_EDIED, .text = "launcher: rank 1 was killed"};
    journal_begins();
    run_goes(1);
    call(2, 4, 1, TRAINER, LAUNCHER, PL_MESSAGE_run, &nothing);
    for (uint64_t k = 5; k < 7; k++)
        call(2, k, 4, LAUNCHER, FIT, PL_MESSAGE_run, &nothing);
    back(3, 6, PL_KIND_ERROR, &first);
    back(4, 5, PL_KIND_ERROR, &later);
    back(5, 4, PL_KIND_ERROR, &last);
    back(5, 1, PL_KIND_ERROR, &last);
    json_t *answer = read_back(true), *end = json_object_get(answer, "end");
    is_int(json_array_size(json_object_get(end, "chain")), 3, "run, launcher and a rank");
    is_text(text(end, "reason"), "rank 1 was killed", "the one that failed first");
    json_decref(answer);
}

static void a_cancelled_run_has_its_reason(void)
{
    static const pl_body_t nothing;
    const pl_error_t why = {.code = PL_ECANCELLED, .text = "rank 0 got SIGTERM"},
                     reported = {.code = PL_ECANCELLED,
                                 .text = "launcher: rank 0 got SIGTERM"},
                     rest = {.code = PL_ECANCELLED, .text = "it was to end"};
    journal_begins();
    run_goes(1);
    call(2, 4, 1, TRAINER, LAUNCHER, PL_MESSAGE_run, &nothing);
    call(2, 5, 4, LAUNCHER, FIT, PL_MESSAGE_run, &nothing);
    call(2, 6, 5, FIT, DEVICE, PL_MESSAGE_compile, &nothing);
    back(3, 6, PL_KIND_ERROR, &rest);
    back(3, 5, PL_KIND_ERROR, &rest);
    back(4, 4, PL_KIND_ERROR, &why);
    back(4, 1, PL_KIND_ERROR, &reported);
    json_t *answer = read_back(true), *end = json_object_get(answer, "end");
    is_text(text(end, "status"), "failed", "a run that could not even begin");
    is_text(text(end, "reason"), "rank 0 got SIGTERM", "has the reason of its end");
    is_int(json_array_size(json_object_get(end, "chain")), 2, "and its sender");
    json_decref(answer);
}

/* Ranks that are started again count their calls from 1. */
static void an_error_before_a_restart_explains_nothing(void)
{
    static const pl_body_t nothing;
    const pl_error_t old = {.code = PL_EIO, .text = "old"},
                     new = {.code = PL_ENAN, .text = "loss is nan"};
    journal_begins();
    run_goes(1);
    process_id = 1, incarnation = 1;
    call(2, 7, 4, STRATEGY, DEVICE, PL_MESSAGE_replay_plan, &nothing);
    back(3, 7, PL_KIND_ERROR, &old);
    incarnation = 2;
    call(4, 4, 0, EPOCH, STRATEGY, PL_MESSAGE_train_batch, &nothing);
    back(5, 4, PL_KIND_ERROR, &new);
    process_id = 0, incarnation = 0;
    back(6, 2, PL_KIND_ERROR, &new);
    back(6, 1, PL_KIND_ERROR, &new);
    json_t *answer = read_back(true), *chain = at(answer, "end", "chain");
    is_int(json_array_size(chain), 3, "the chain ends with the new one");
    is_text(text(json_object_get(answer, "end"), "reason"), "loss is nan", "the reason");
    json_decref(answer);
}

static void each_of_several_runs_is_reported(void)
{
    journal_begins();
    for (int k = 0; k < 3; k++) {
        run_goes(1 + 10 * k);
        compute(2 + 10 * k, 3 + 10 * k + k, 3, "training_step");
        run_ends(8 + 10 * k + k, (uint64_t)(10 + k));
    }
    json_t *answer = read_back(true), *list = json_object_get(answer, "list");
    is_int(seconds(answer, "runs"), 3, "three runs");
    is_int(json_array_size(list), 3, "each in the list");
    for (int k = 0; k < 3; k++) {
        json_t *line = json_array_get(list, (size_t)k);
        is_int(seconds(line, "global_step"), 10 + k, "with its steps");
        is_near(seconds(line, "began"), 1 + 10 * k, 1e-9, "its beginning");
        is_near(seconds(line, "time"), 8 + 10 * k + k, 1e-9, "and its end");
    }
    is_int(seconds(answer, "run"), 3, "the last is reported");
    json_decref(answer);
    for (int k = 0; k < 3; k++) {
        answer = explained((uint64_t)k + 1);
        is_near(seconds(answer, "seconds"), 7 + k, 1e-9, "or run %d", k + 1);
        json_t *r = json_array_get(at(answer, "times", "ranks"), 0);
        is_near(seconds(r, "backward"), 1 + k, 1e-9, "with its own times");
        is_int(seconds(json_object_get(answer, "end"), "global_step"), 10 + k, "steps");
        json_decref(answer);
    }
    answer = explained(4);
    ok(!answer && err.code == PL_EINVAL, "a fourth is none: %s", err.text);
}

static void gap(uint64_t count, int of_rank)
{
    const pl_journal_gap_t missing = {.count = count, .rank = of_rank};
    put(PL_JOURNAL_GAP, &missing, sizeof missing, (pl_bytes_t){0});
}

static void missing_messages_are_reported(void)
{
    static const char *const lines[] = {"{\"gap\": 3, \"rank\": 1}", "{\"gap\": 40}"};
    journal_begins();
    run_goes(1);
    gap(3, 1);
    gap(40, PL_JOURNAL_ANY_RANK);
    gap(0, 1);
    put(PL_JOURNAL_GAP, "short", 5, (pl_bytes_t){0});
    run_ends(8, 10);
    json_t *answer = read_back(true);
    is_int(seconds(answer, "missing"), 43, "so many messages");
    json_t *unsure = json_object_get(answer, "unsure");
    is_int(json_array_size(unsure), 1, "and the steps of one rank are unknown");
    is_int(json_integer_value(json_array_get(unsure, 0)), 1, "whose process died");
    json_decref(answer);
    pl_journal_t *journal = pl_journal_open(path, &err);
    const char *line;
    int reported = 0, damaged = 0;
    while ((line = pl_journal_next(journal, &err))) {
        if (strstr(line, "\"gap\"") && reported < 2)
            is_text(line, lines[reported++], "as it was written down");
        damaged += strstr(line, "\"damaged\"") != NULL;
    }
    is_int(reported, 2, "each of the two");
    is_int(damaged, 1, "one that is too short is damage");
    like(err.text, "a record of a gap has a wrong size", "which is said");
    pl_journal_close(journal);
}

int main(void)
{
    run(the_time_of_a_rank_is_the_sum_of_its_stages);
    run(validation_is_no_part_of_the_steps);
    run(the_time_of_one_call_is_cut);
    run(a_pause_is_no_work);
    run(time_of_calls_at_once_counts_once);
    run(waits_at_once_count_once);
    run(the_innermost_of_nested_waits_has_the_time);
    run(a_wait_for_a_remote_rank_is_a_wait_of_its_process);
    run(a_call_without_an_answer_is_a_wait);
    run(signs_of_life_are_no_steps);
    run(steps_without_a_report_are_counted);
    run(a_run_that_goes_back_counts_from_there);
    run(a_stop_takes_effect_at_the_last_step);
    run(a_death_with_a_restart_is_no_end);
    run(the_time_before_a_restart_is_no_work);
    run(a_death_that_ended_the_run_is_explained);
    run(a_last_message_of_a_killed_rank_is_no_recovery);
    run(an_error_is_followed_to_the_rank_that_failed_first);
    run(an_error_is_followed_to_the_call_with_the_same_text);
    run(a_cancelled_run_has_its_reason);
    run(an_error_before_a_restart_explains_nothing);
    run(each_of_several_runs_is_reported);
    run(missing_messages_are_reported);
    return tap_done();
}
