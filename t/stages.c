/* stages.c - tests of the times of the stages of a step, of a single rank */
#include <event2/event.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "actors/api/host.h"
#include "base/clock.h"
#include "rig.h"
#include "runtime/tap.h"
#include "tap.h"

/* The records of a tap; they are read after the end of the stream. */
typedef struct received {
    int tellings;
    double all;                                        /* s: of all stages together */
    bool misfits;                                      /* of another size, or no number */
    double spent[PL_TIMINGS];                          /* s, together */
} received_t;

static void received_record(void *self, const pl_tap_record_t *record)
{
    received_t *received = self;
    pl_body_t body;
    pl_error_t error;
    double spent[PL_TIMINGS];
    if (record->envelope.kind != PL_KIND_REPLY
        || record->envelope.message != PL_MESSAGE_train_batch
        || pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK
        || !body.train_batch_reply.timings.size)
        return;
    received->tellings++;
    received->misfits |= body.train_batch_reply.timings.size != sizeof spent;
    if (received->misfits)
        return;
    memcpy(spent, body.train_batch_reply.timings.data, sizeof spent);
    for (int k = 0; k < PL_TIMINGS; k++) {
        received->misfits |= !isfinite(spent[k]) || spent[k] < 0;
        received->spent[k] += spent[k];
        received->all += spent[k];
    }
}

static void received_close(void *self)
{
    (void)self;
}

/* A run that is listened to; it must go well. */
static received_t listen_to(const rig_spec_t *spec, int steps)
{
    static const pl_tap_ops_t ops = {.record = received_record, .close = received_close};
    received_t received = {0};
    pl_error_t err;
    const int64_t began = pl_now();
    rig_t *rig = rig_make(spec);
    is_int(pl_tap_add(&rig_engine(rig)->runtime, &ops, &received, &err), PL_OK, "a tap");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "it ends: %s", result->error.text);
    is_int((long long)result->global_step, steps, "with all its steps");
    rig_free(&rig);
    is_int(received.tellings, steps, "each of which says what it took");
    ok(!received.misfits, "in seconds");
    const double seconds = (double)(pl_now() - began) / PL_SECOND;
    ok(received.all < seconds, "%g of %g", received.all, seconds);
    is_int(received.spent[PL_TIMING_COLLECTIVE] + received.spent[PL_TIMING_ABSENT] > 0, 0,
           "none of them with others");
    return received;
}

static void stages_are_those_of_the_device(void)
{
    if (!rig_has("cpu"))
        return;
    const received_t received = listen_to(&(rig_spec_t){.accelerator = "cpu",
                                                        .data = "\"batch_size\": 4",
                                                        .trainer = "\"max_steps\": 50"},
                                          50);
    ok(received.spent[PL_TIMING_FORWARD] > 0 && received.spent[PL_TIMING_BACKWARD] > 0
           && received.spent[PL_TIMING_OPTIMIZER] > 0,
       "%g s, %g s, %g s", received.spent[PL_TIMING_FORWARD],
       received.spent[PL_TIMING_BACKWARD], received.spent[PL_TIMING_OPTIMIZER]);
}

static void a_step_of_two_batches_has_its_times_once(void)
{
    listen_to(&(rig_spec_t){.data = "\"batch_size\": 4",
                            .trainer = "\"max_steps\": 20, "
                                       "\"accumulate_grad_batches\": 2"},
              20);
}

static void a_wait_for_data_is_a_stage(void)
{
    const received_t received = listen_to(&(rig_spec_t){.data = "\"batch_size\": 4",
                                                        .reading_ms = 10,
                                                        .trainer = "\"max_steps\": 20"},
                                          20);
    ok(received.spent[PL_TIMING_DATA] > 0.02, "%g s of some 0.2",
       received.spent[PL_TIMING_DATA]);
}

static void a_step_that_is_skipped_has_taken_time(void)
{
    listen_to(&(rig_spec_t){.data = "\"batch_size\": 4",
                            .script = "replay 3 of forward_backward gives nan in "
                                      "fc1.weight",
                            .trainer = "\"max_steps\": 20, "
                                       "\"nan_policy\": \"skip\""},
              20);
}

/* ---- what is no wait for data ---- */

static int brake_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                    pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)event, (void)request, (void)err;
    nanosleep(&(struct timespec){.tv_nsec = 50 * PL_MILLISECOND}, NULL);
    return PL_OK;
}

static const pl_callback_ops_t brake = {.name = "brake",
                                        .size = 1,
                                        .points = PL_AT(TRAIN_BATCH_END)
                                                  | PL_AT(VALIDATION_END),
                                        .on = brake_on};

static const pl_callback_ops_t onlooker = {.name = "onlooker",
                                           .size = 1,
                                           .points = PL_AT(TRAIN_BATCH_END),
                                           .requests = PL_LOOKS_ON,
                                           .on = brake_on};

static void continue_run(evutil_socket_t fd, short what, void *rig)
{
    (void)fd, (void)what;
    pl_trainer_continue(rig_trainer(rig), NULL, NULL, NULL);
}

static void pause_once(rig_t *rig, const pl_progress_t *progress)
{
    const struct timeval second = {.tv_sec = 1};
    bool *has_paused = rig_user(rig);
    if (*has_paused || progress->global_step < 3)
        return;
    *has_paused = true;
    ok(pl_trainer_pause(rig_trainer(rig), NULL, NULL, &rig_error) == PL_OK, "a pause");
    event_base_once(rig_base(rig), -1, EV_TIMEOUT, continue_run, rig, &second);
}

static void neither_a_callback_nor_a_pause_is_a_wait_for_data(void)
{
    bool has_paused = false;
    const received_t received = listen_to(&(rig_spec_t){.data = "\"batch_size\": 4",
                                                        .callbacks = "[\"brake\"]",
                                                        .trainer = "\"max_steps\": 40",
                                                        .on_progress = pause_once,
                                                        .user = &has_paused},
                                          40);
    ok(has_paused, "it was paused for a second, and held up for two");
    ok(received.spent[PL_TIMING_DATA] < 0.5, "%g s are waits",
       received.spent[PL_TIMING_DATA]);
}

static void an_observer_is_no_wait_for_data(void)
{
    const received_t received = listen_to(&(rig_spec_t){.data = "\"batch_size\": 4",
                                                        .callbacks = "[\"onlooker\"]",
                                                        .trainer = "\"max_steps\": 40"},
                                          40);
    ok(received.spent[PL_TIMING_DATA] < 0.5, "%g s of 2 are waits",
       received.spent[PL_TIMING_DATA]);
}

int main(void)
{
    static const pl_registration_t components[] = {{"callback", &brake},
                                                   {"callback", &onlooker},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    run(stages_are_those_of_the_device);
    run(a_step_of_two_batches_has_its_times_once);
    run(a_wait_for_data_is_a_stage);
    run(a_step_that_is_skipped_has_taken_time);
    run(neither_a_callback_nor_a_pause_is_a_wait_for_data);
    run(an_observer_is_no_wait_for_data);
    return tap_done();
}
