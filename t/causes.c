/* causes.c - tests of the cause of a message: an open call to its sender */
#include <stdio.h>
#include <string.h>

#include "actors/api/host.h"
#include "base/map.h"
#include "base/random.h"
#include "far.h"
#include "runtime/tap.h"
#include "tap.h"

/* Counts of a tap; they are read after the end of the stream. */
typedef struct received {
    pl_map_t open;                           /* calls, and the receiver of each */
    pl_map_t trained;                        /* batches that a replay was for */
    pl_map_t first;                          /* of each thread, the number of its first */
    int calls, astray, strangers, batches;
    char text[160];                                         /* the first that is wrong */
} received_t;

static uint64_t key_of(const pl_tap_record_t *record, uint64_t call)
{
    return pl_mix(call, record->process_id) | 1;
}

static void *actor_at(uint32_t thread, uint32_t actor)
{
    return (void *)(uintptr_t)((uint64_t)thread << 32 | actor);
}

/* What is fetched ahead, and lines that are written together, are for nothing that still
 * waits. */
static bool is_ahead(uint32_t message)
{
    return message == PL_MESSAGE_read_batch || message == PL_MESSAGE_write_records;
}

static void wrong(received_t *received, int *count, const pl_envelope_t *e,
                  const char *what)
{
    if (!received->text[0])
        snprintf(received->text, sizeof received->text, "%s of %s to %s: %s",
                 pl_message_info(e->message)->name, pl_kind_name(e->from_kind),
                 pl_kind_name(e->to_kind), what);
    ++*count;
}

/* Calls are numbered by the thread that makes them (the upper bits), in its order. */
static uint64_t thread_key(const pl_tap_record_t *record, uint64_t call)
{
    return pl_mix(call >> 40, record->process_id) | 1;
}

/* Calls that began before the tap was open in their process are unknown to it. */
static bool is_older(received_t *received, const pl_tap_record_t *record)
{
    const pl_envelope_t *e = &record->envelope;
    const uint64_t own = thread_key(record, e->call);
    if (!pl_map_get(&received->first, own))
        pl_map_put(&received->first, own, (void *)(uintptr_t)e->call);
    const void *first = pl_map_get(&received->first, thread_key(record, e->cause));
    return !first || e->cause < (uintptr_t)first;
}

static void received_call(received_t *received, const pl_tap_record_t *record)
{
    const pl_envelope_t *e = &record->envelope;
    const bool older = is_older(received, record);
    const uint64_t cause = key_of(record, e->cause);
    const void *by = pl_map_get(&received->open, cause);
    received->calls++;
    if (e->cause && !by && !older && !is_ahead(e->message))
        wrong(received, &received->astray, e, "its cause has ended");
    if (by && by != actor_at(e->from_thread, e->from_actor))
        wrong(received, &received->strangers, e, "its cause is a call to another actor");
    if (e->message == PL_MESSAGE_train_batch)
        received->batches++;
    if (e->message == PL_MESSAGE_replay_plan)
        pl_map_put(&received->trained, cause, received);
    pl_map_put(&received->open, key_of(record, e->call),
               actor_at(e->to_thread, e->to_actor));
}

static void received_record(void *self, const pl_tap_record_t *record)
{
    received_t *received = self;
    const uint32_t kind = record->envelope.kind;
    const uint64_t key = key_of(record, record->envelope.call);
    if (kind == PL_KIND_CALL)
        received_call(received, record);
    else if (kind == PL_KIND_REPLY || kind == PL_KIND_ERROR)
        pl_map_take(&received->open, key);
}

static void received_close(void *self)
{
    (void)self;
}

static const pl_tap_ops_t listener = {.record = received_record, .close = received_close};

static void listen_to(rig_t *rig, received_t *received)
{
    pl_error_t err;
    is_int(pl_tap_add(&rig_engine(rig)->runtime, &listener, received, &err), PL_OK,
           "a tap");
}

/* Frees the rig. */
static void causes_are_open(rig_t *rig, received_t *received)
{
    const rig_result_t *result = rig_wait(rig);
    is_text(result->status, "ok", "the run ends: %s", result->error.text);
    rig_free(&rig);
    ok(received->calls > 100, "the tap has many calls");
    is_int(received->astray, 0, "their causes are open  %s", received->text);
    is_int(received->strangers, 0, "and calls to their senders  %s", received->text);
    ok(received->batches >= 10 && (int)received->trained.count >= received->batches,
       "a replay is for each batch (%d, %d)", (int)received->trained.count,
       received->batches);
    pl_map_release(&received->open);
    pl_map_release(&received->trained);
    pl_map_release(&received->first);
}

/* ---- of one rank, and of several ---- */

static void a_step_is_the_cause_of_its_calls(void)
{
    static const struct {
        const char *strategy, *more;
        int ranks;
    } all[] = {{"single", "", 1},
               {"ddp", "", 2},
               {"zero1", "", 2},
               {"local_sgd", "", 2},
               {"elastic", ", \"deterministic\": \"elastic\"", 2},
               {"ddp", ", \"accumulate_grad_batches\": 2", 2}};
    if (!rig_has("cpu"))
        return;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        received_t received = {0};
        char trainer[200];
        snprintf(trainer, sizeof trainer,
                 "\"max_epochs\": 5, \"devices\": %d, \"strategy\": \"%s\"%s",
                 all[k].ranks, all[k].strategy, all[k].more);
        rig_t *rig = rig_new(.accelerator = "cpu", .trainer = trainer,
                             .data = "\"batch_size\": 4, \"val_split\": 0.2");
        listen_to(rig, &received);
        ok(rig_begin(rig), "%s%s: %s", all[k].strategy, all[k].more, rig_error.text);
        causes_are_open(rig, &received);
    }
}

static void a_step_is_the_cause_in_other_processes_too(void)
{
    received_t received = {0};
    rig_t *rig = far_new(.ranks = 2, .samples = 40,
                         .rig = {.accelerator = "cpu", .trainer = "\"max_epochs\": 5"});
    listen_to(rig, &received);
    ok(rig_begin(rig), "ranks that are processes: %s", rig_error.text);
    causes_are_open(rig, &received);
}

/* ---- after a command ---- */

static void on_command(pl_trainer_t *trainer, const pl_command_result_t *result,
                       void *user)
{
    (void)user;
    is_int(result->error.code, PL_OK, "%s: %s", result->command, result->error.text);
    if (!strcmp(result->command, "pause"))
        pl_trainer_save(trainer, on_command, NULL, NULL);
    if (!strcmp(result->command, "save"))
        pl_trainer_continue(trainer, on_command, NULL, NULL);
}

static void pause_once(rig_t *rig, const pl_progress_t *progress)
{
    bool *paused = rig_user(rig);
    if (!*paused && progress->global_step >= 3)
        pl_trainer_pause(rig_trainer(rig), on_command, NULL, NULL);
    *paused |= progress->global_step >= 3;
}

static void a_command_is_no_cause_of_later_steps(void)
{
    for (int ranks = 1; ranks <= 2; ranks++) {
        received_t received = {0};
        bool paused = false;
        char trainer[80];
        snprintf(trainer, sizeof trainer,
                 "\"max_epochs\": 8, \"log_every_n_steps\": 1, \"devices\": %d", ranks);
        rig_t *rig = rig_new(.trainer = trainer, .data = "\"batch_size\": 4",
                             .script = "replay of forward_backward takes 1 ms",
                             .on_progress = pause_once, .user = &paused);
        listen_to(rig, &received);
        ok(rig_begin(rig), "%d: %s", ranks, rig_error.text);
        causes_are_open(rig, &received);
    }
}

int main(void)
{
    far_init(NULL);
    run(a_step_is_the_cause_of_its_calls);
    run(a_step_is_the_cause_in_other_processes_too);
    run(a_command_is_no_cause_of_later_steps);
    return tap_done();
}
