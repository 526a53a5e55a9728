/* spawn_faults.c - tests of what happens when processes of a run die, stop, or never
 * come */
#include <dirent.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "far.h"
#include "tap.h"

#define LONG "\"max_epochs\": 100000"

/* ---- Deaths ---- */

/* Ranks read every other sample of a batch for all: in order, as nothing is shuffled. */
static void a_rank_that_dies_is_named(void)
{
    static const char *const ends[] = {"SIGKILL", "SIGSEGV", "exit 7", "exit 0"};
    static const char *const texts[] = {"was killed by SIGKILL", "was killed by SIGSEGV",
                                        "exited with status 7", "exited with status 0"};
    for (int k = 0; k < 4; k++)
        for (int record = 1; record <= 14; record += 13) {
            rig_t *rig = far_new(.ranks = 3, .record = record, .then = ends[k],
                                 .batch_size = 4, .rig = {.trainer = LONG});
            const rig_result_t *result = rig_fit(rig);
            is_text(result->status, "failed", "%s at record %d", ends[k], record);
            is_text(pl_code_name(result->error.code), "PL_EDIED", "as a death");
            like(result->error.text, texts[k], "which is told: %s", result->error.text);
            like(result->error.text, "the end of rank [0-2]", "with its last words");
            like(result->error.where, "^rank [0-2]$", "and who: %s", result->error.where);
            is_int(rig_done(rig), 1, "once");
            is_int(far_children(), 0, "no process is left");
            rig_free(&rig);
        }
}

static int killed;                                          /* rank, process */
static int64_t killed_at;

static void kill_when_it_steps(rig_t *rig, const pl_progress_t *progress)
{
    int process = progress->global_step >= 5 && !killed_at
                      ? far_process(*(int *)rig_user(rig))
                      : 0;
    if (!process)
        return;
    killed = process;
    killed_at = pl_now();
    kill(process, SIGKILL);
}

static void a_rank_may_be_killed_from_outside(void)
{
    for (int rank = 0; rank < 3; rank++) {
        char where[16];
        killed_at = 0;
        rig_t *rig = far_new(.ranks = 3, .rig = {.trainer = LONG,
                                                 .on_progress = kill_when_it_steps,
                                                 .user = &rank});
        const rig_result_t *result = rig_fit(rig);
        double seconds = (double)(pl_now() - killed_at) / 1e9;
        snprintf(where, sizeof where, "rank %d", rank);
        is_text(result->error.where, where, "it is named: %s", result->error.text);
        like(result->error.text, "killed by SIGKILL after step [1-9]", "with its step");
        ok(seconds < 10, "all have ended after %g s", seconds);
        rig_free(&rig);
    }
}

int main(void)
{
    far_init(NULL);
    run(a_rank_that_dies_is_named);
    run(a_rank_may_be_killed_from_outside);
    return tap_done();
}
