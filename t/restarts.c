/* restarts.c - tests of actors/launchers/restarts.c: what a process that starts later
 * finds of the runs before */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/launchers/forwarding.h"
#include "actors/launchers/restarts.h"
#include "base/alloc.h"
#include "base/error.h"
#include "scarce.h"
#include "tap.h"

static const uint64_t MAX = 1 << 20;
static pl_error_t err;

static const char *file(void)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/run-history", tap_folder());
    return path;
}

static pl_blob_t *outcome_of(uint64_t step)
{
    pl_outcome_t *outcome = pl_outcome_new(NULL);
    outcome->global_step = step;
    outcome->run_dir = pl_strdup("runs/0001");
    pl_blob_t *blob = pl_outcome_pack(outcome, NULL);
    pl_object_unref(outcome);
    return blob;
}

static void three_runs(void)
{
    pl_error_t failed;
    pl_fail(&failed, PL_EDIED, "rank 1 is no more");
    unlink(file());
    for (int k = 0; k < 3; k++) {
        pl_blob_t *blob = k == 1 ? NULL : outcome_of((uint64_t)k + 7);
        is_int(pl_run_history_add(tap_folder(), MAX, blob, &failed, &err), PL_OK,
               "run %d is kept", k);
        pl_object_unref(blob);
    }
}

static void each_state_is_found_as_it_was_kept(void)
{
    three_runs();
    for (int k = 2; k >= 0; k -= 2) {
        pl_outcome_t *outcome = pl_run_history_read(tap_folder(), k, &err);
        ok(outcome && outcome->global_step == (uint64_t)k + 7, "the outcome of run %d",
           k);
        ok(outcome && !strcmp(outcome->run_dir, "runs/0001"), "whole");
        pl_object_unref(outcome);
    }
    ok(!pl_run_history_read(tap_folder(), 1, &err), "one has failed");
    is_int(err.code, PL_EDIED, "%s", err.text);
    is_text(err.text, "rank 1 is no more", "as it had");
}

static void a_missing_state_is_an_error(void)
{
    three_runs();
    ok(!pl_run_history_read(tap_folder(), 3, &err), "a run that was not kept");
    is_int(err.code, PL_EIO, "%s", err.text);
    is_int(truncate(file(), 20), 0, "a file that was cut off");
    ok(!pl_run_history_read(tap_folder(), 0, &err), "does not have the first either");
    is_int(err.code, PL_EIO, "%s", err.text);
    unlink(file());
    ok(!pl_run_history_read(tap_folder(), 0, &err), "nor has one that is gone");
    is_int(pl_run_history_add("/nowhere", MAX, NULL, &err, &err), PL_EIO, "%s", err.text);
}

static void states_are_kept_up_to_a_limit(void)
{
    enum { RUNS = 100 };
    pl_blob_t *blob = outcome_of(7);
    const uint64_t max = 5 * blob->size;
    struct stat all;
    int kept = 0;
    unlink(file());
    while (kept < RUNS
           && pl_run_history_add(tap_folder(), max, blob, NULL, &err) == PL_OK)
        kept++;
    is_int(kept, 4, "as many as there is room for");
    like(err.text, "would take more than [0-9]+ MiB of /",
         "then the error names the limit: %s", err.text);
    ok(stat(file(), &all) != 0, "and what cannot be of use is gone");
    pl_object_unref(blob);
}

static int keep_and_read(void *user)
{
    pl_error_t failed = {0};
    int code = pl_run_history_add(tap_folder(), MAX, NULL, user, &err);
    pl_outcome_t *outcome = code == PL_OK ? pl_run_history_read(tap_folder(), 0, &failed)
                                          : NULL;
    pl_object_unref(outcome);
    return code != PL_OK ? err.code : failed.code == PL_EDIED ? PL_OK : failed.code;
}

static void memory_may_run_out(void)
{
    pl_error_t failed;
    pl_fail(&failed, PL_EDIED, "rank 1 is no more");
    unlink(file());
    scarce_try(keep_and_read, &failed, "keeping and reading");
}

static void the_last_line_of_a_number_counts(void)
{
    char index[200], finished[200], text[PL_ERROR_TEXT] = "";
    snprintf(index, sizeof index, "%s/index", tap_folder());
    snprintf(finished, sizeof finished, "%s/finished", tap_folder());
    setenv("PACELINE_RUN_DIR_INDEX", index, 1);
    setenv("PACELINE_FINISHED_RANKS", finished, 1);
    pl_run_dir_index_add(1, "runs/0001");
    pl_run_dir_index_add(2, "runs/0002");
    pl_run_dir_index_add(1, "runs/0003");
    char *folder = pl_run_dir_index_find(1, &err);
    is_text(folder, "runs/0003", "the newest directory of a run");
    pl_free(folder);
    folder = pl_run_dir_index_find(2, &err);
    is_text(folder, "runs/0002", "and of another");
    pl_free(folder);
    ok(!pl_run_dir_index_find(3, &err), "a run that is not there has none");
    pl_finished_ranks_add(finished, 1, "first");
    pl_finished_ranks_add(finished, 1, "again");
    pl_finished_ranks_add(finished, 0, "another");
    ok(pl_finished_ranks_find(1, text, sizeof text), "a finished rank");
    is_text(text, "again", "has the newest text");
    unsetenv("PACELINE_RUN_DIR_INDEX");
    unsetenv("PACELINE_FINISHED_RANKS");
}

int main(void)
{
    scarce_init_own();
    run(each_state_is_found_as_it_was_kept);
    run(states_are_kept_up_to_a_limit);
    run(a_missing_state_is_an_error);
    run(the_last_line_of_a_number_counts);
    run(memory_may_run_out);
    return tap_done();
}
