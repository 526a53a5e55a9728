/* straggler.c - tests that a rank is named which is stopped again and again, whatever it
 * is at then */
#include <event2/event.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "far.h"
#include "tap.h"

/* ---- rank zero takes its time, so that rank one always waits ---- */

static bool is_rank_zero(void)
{
    char name[32] = "";
    FILE *file = fopen("/proc/self/comm", "r");
    if (file && !fgets(name, sizeof name, file))
        name[0] = '\0';
    if (file)
        fclose(file);
    return !strcmp(name, "rank 0\n");
}

static int drag_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                   pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)event, (void)request, (void)err;
    if (is_rank_zero())
        nanosleep(&(struct timespec){.tv_nsec = 10 * PL_MILLISECOND}, NULL);
    return PL_OK;
}

static const pl_callback_ops_t drag = {.name = "drag",
                                       .size = 1,
                                       .points = PL_AT(TRAIN_BATCH_END),
                                       .on = drag_on};

/* ---- pulses ---- */

enum { STOPPED_MS = 300, AWAKE_MS = 100 };

typedef struct scene {
    bool pulses;
    int process;                                            /* of rank 1; 0: not yet */
    bool is_stopped;
    int reported, named;                      /* reports, and those that name rank 1 */
    double absent;                            /* of rank 1 when it was named; ms a step */
} scene_t;

static void wait_for(rig_t *rig, int milliseconds);

static void turn(evutil_socket_t fd, short what, void *user)
{
    rig_t *rig = user;
    scene_t *scene = rig_user(rig);
    (void)fd, (void)what;
    scene->process = scene->process ? scene->process : far_process(1);
    scene->is_stopped = scene->pulses && scene->process && !scene->is_stopped;
    if (scene->process)
        kill(scene->process, scene->is_stopped ? SIGSTOP : SIGCONT);
    wait_for(rig, scene->is_stopped ? STOPPED_MS : AWAKE_MS / 2 + rand() % AWAKE_MS);
}

static void wait_for(rig_t *rig, int milliseconds)
{
    const struct timeval time = {.tv_usec = milliseconds * 1000};
    event_base_once(rig_base(rig), -1, EV_TIMEOUT, turn, rig, &time);
}

static void look_at_ranks(rig_t *rig, const pl_progress_t *progress)
{
    scene_t *scene = rig_user(rig);
    json_t *metrics = json_loads(progress->metrics, 0, NULL),
           *ranks = json_object_get(metrics, "ranks"),
           *absent = json_object_get(ranks, "absent");
    const int slowest = json_integer_value(json_object_get(ranks, "slowest")) == 1;
    if (ranks && json_number_value(json_object_get(ranks, "spread")) > 0.2) {
        scene->named += slowest;
        if (slowest && json_integer_value(json_object_get(absent, "slowest")) == 1)
            scene->absent += json_number_value(json_object_get(absent, "max"));
    }
    scene->reported += ranks != NULL;
    json_decref(metrics);
}

static bool has_seen_enough(rig_t *rig)
{
    const scene_t *scene = rig_user(rig);
    return (scene->named >= 3 && scene->absent > 1) || rig_done(rig) > 0;
}

static void stopped_rank_is_named(int samples)
{
    scene_t scene = {.pulses = true};
    rig_t *rig = far_new(.samples = samples,
                         .rig = {.trainer = "\"max_epochs\": 100000, "
                                            "\"log_every_n_steps\": 1",
                                 .callbacks = "[\"drag\"]",
                                 .user = &scene,
                                 .on_progress = look_at_ranks});
    rig_begin(rig);
    wait_for(rig, AWAKE_MS);
    const bool is_seen = rig_until(rig, has_seen_enough);
    ok(is_seen, "it is named, in %d of %d", scene.named, scene.reported);
    ok(scene.absent > 1, "as absent");
    scene.pulses = false;
    if (scene.process)
        kill(scene.process, SIGCONT);
    pl_trainer_stop(rig_trainer(rig), "seen", NULL);
    const rig_result_t *result = rig_wait(rig);
    is_text(result->status, "stopped", "and the run ends: %s", result->error.text);
    rig_free(&rig);
}

/* Behind each batch, where rank zero asks its callback. */
static void a_rank_that_is_stopped_while_it_waits_is_named(void)
{
    stopped_rank_is_named(100000);
}

static void a_rank_that_is_stopped_between_short_epochs_is_named(void)
{
    stopped_rank_is_named(24);
}

int main(void)
{
    static const pl_registration_t components[] = {{"callback", &drag},
                                                   PL_REGISTRATIONS_END};
    far_init(components);
    run(a_rank_that_is_stopped_while_it_waits_is_named);
    run(a_rank_that_is_stopped_between_short_epochs_is_named);
    return tap_done();
}
