/* stall.c - a program whose loop does not turn for a while: no run is harmed by it
 *
 *   t/stall              each sort of run, for 2 s, where a step may take 1 s; with
 *                        processes for 4 s, more than they may be silent, which a step
 *                        may be as long
 *   t/stall SECONDS      for longer (make check-long) */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake.h"
#include "far.h"
#include "base/timeouts.h"
#include "tap.h"

#define ENDLESS "\"max_epochs\": 1000000"
#define LONG ENDLESS ", \"step_timeout\": 1"
#define SLOW "replay of forward_backward takes 1 ms"
#define EVERY "\"val_split\": 0.2, \"batch_size\": 8"

static int seconds = 2;

typedef struct reported {
    int times;
    uint64_t first, newest, wanted;
    bool back;
} reported_t;

static void keep_order(rig_t *rig, const pl_progress_t *progress)
{
    reported_t *reported = rig_user(rig);
    reported->first = reported->times++ ? reported->first : progress->global_step;
    reported->back = reported->back || progress->global_step < reported->newest;
    reported->newest = progress->global_step;
}

static bool has_been_reported(rig_t *rig)
{
    const reported_t *reported = rig_user(rig);
    return reported->newest > reported->first;
}

static bool has_caught_up(rig_t *rig)
{
    const reported_t *reported = rig_user(rig);
    return reported->newest > reported->wanted;
}

/* As its folder has it: of the newest run. */
static uint64_t newest_step(void)
{
    char path[300], line[4096];
    const char *step;
    uint64_t newest = 0;
    snprintf(path, sizeof path, "%s/runs/latest/metrics.jsonl", tap_folder());
    char *whole = pl_run_path(path);
    FILE *file = fopen(whole, "r");
    pl_text_free(whole);
    while (file && fgets(line, sizeof line, file))
        if ((step = strstr(line, "\"global_step\":")))
            newest = strtoull(step + strlen("\"global_step\":"), NULL, 10);
    if (file)
        fclose(file);
    return newest;
}

/* As a program does that waits for a disk. */
static void stall(int how_long)
{
    sleep((unsigned)how_long);
}

static void continues_after_a_stall(rig_t *rig, reported_t *reported, int how_long)
{
    ok(rig && rig_begin(rig) && rig_until(rig, has_been_reported),
       "a run is under way: %s", rig_error.text);
    reported->wanted = reported->newest + (uint64_t)how_long * 10;
    stall(how_long);
    ok(eventually(newest_step() > reported->wanted), "steps are made during the stall");
    ok(rig_until(rig, has_been_reported), "the program's loop turns again");
    reported->first = reported->newest;
    ok(rig_until(rig, has_been_reported), "and gets further reports");
    ok(rig_until(rig, has_caught_up), "to those that were made and beyond");
    ok(!reported->back, "the reports are in order");
    is_int(pl_trainer_stop(rig_trainer(rig), "enough", NULL), PL_OK, "a stop is taken");
    const rig_result_t *result = rig_wait(rig);
    is_text(result->status, "stopped", "and obeyed: %s", result->error.text);
    is_int(rig_done(rig), 1, "with one on_done");
}

static void a_run_of_one_thread_continues(void)
{
    reported_t reported = {0};
    rig_t *rig = rig_new(.script = SLOW, .trainer = LONG, .data = EVERY,
                         .on_progress = keep_order, .user = &reported);
    continues_after_a_stall(rig, &reported, seconds);
    rig_free(&rig);
}

static void a_published_run_continues(void)
{
    reported_t reported = {0};
    char endpoint[300];
    rig_t *rig = rig_new(.script = SLOW, .trainer = LONG, .data = EVERY,
                         .on_progress = keep_order, .user = &reported);
    snprintf(endpoint, sizeof endpoint, "ipc://%s/monitor", tap_folder());
    ok(pl_engine_monitor(rig_engine(rig), endpoint, &rig_error) == PL_OK
           && pl_engine_dashboard(rig_engine(rig), "0", &rig_error) == PL_OK,
       "it can be seen: %s", rig_error.text);
    continues_after_a_stall(rig, &reported, seconds);
    rig_free(&rig);
}

static void ranks_that_are_threads_continue(void)
{
    reported_t reported = {0};
    rig_t *rig = rig_new(.script = SLOW, .data = EVERY, .on_progress = keep_order,
                         .trainer = LONG ", \"strategy\": \"ddp\", \"devices\": 2",
                         .user = &reported);
    continues_after_a_stall(rig, &reported, seconds);
    rig_free(&rig);
}

/* Processes that compute give way to others: on a busy machine one may stand still for a
 * second. */
static void ranks_that_are_processes_continue(void)
{
    const int silent = PL_SILENCE_MS / 1000 + 1;
    char trainer[80];
    snprintf(trainer, sizeof trainer, ENDLESS ", \"step_timeout\": %d", silent - 1);
    reported_t reported = {0};
    rig_t *rig = far_new(.ranks = 2, .rig = {.script = SLOW,
                                             .trainer = trainer,
                                             .on_progress = keep_order,
                                             .user = &reported});
    continues_after_a_stall(rig, &reported, seconds > silent ? seconds : silent);
    rig_free(&rig);
}

static void a_paused_run_waits(void)
{
    reported_t reported = {0};
    rig_t *rig = rig_new(.script = SLOW, .trainer = LONG, .data = EVERY,
                         .on_progress = keep_order, .user = &reported);
    ok(rig_begin(rig) && rig_until(rig, has_been_reported), "a run is under way");
    pl_trainer_pause(rig_trainer(rig), NULL, NULL, NULL);
    stall(seconds);
    pl_trainer_continue(rig_trainer(rig), NULL, NULL, NULL);
    reported.first = reported.newest + 1;
    ok(rig_until(rig, has_been_reported), "it continues on command");
    pl_trainer_stop(rig_trainer(rig), "enough", NULL);
    is_text(rig_wait(rig)->status, "stopped", "and stops");
    rig_free(&rig);
}

int main(int argc, char **argv)
{
    far_init(NULL);
    seconds = argc > 1 ? atoi(argv[1]) : seconds;
    run(a_run_of_one_thread_continues);
    run(a_published_run_continues);
    run(ranks_that_are_threads_continue);
    run(ranks_that_are_processes_continue);
    run(a_paused_run_waits);
    return tap_done();
}
