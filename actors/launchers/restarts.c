/* restarts.c - how often something may be started again, a run that is, and what its
 * processes find of the job
 *
 * The cause of a death may not occur again, so the run is started again; but only so many
 * times within a window, each after a longer wait. */
#include "actors/launchers/restarts.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/launchers/forwarding.h"
#include "actors/launchers/rank_links.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run.h"
#include "formats/append.h"

/* ---- How often a process may be started again ---- */

enum { FIRST_WAIT_MS = 100, LATER_WAITS = 4, WAIT_MAX_MS = 30000, WINDOW_MINUTES = 10 };

static void old_forget(pl_restart_policy_t *r)
{
    int old = 0;
    while (old < r->count
           && pl_now() - r->one[old].when > WINDOW_MINUTES * 60 * PL_SECOND)
        old++;
    r->count -= old;
    memmove(r->one, r->one + old, (size_t)r->count * sizeof *r->one);
}

int pl_restart_policy_add(pl_restart_policy_t *r, uint64_t global_step, int rank)
{
    int wait = FIRST_WAIT_MS;
    old_forget(r);
    if (r->count >= r->max || r->count >= PL_TRIES_MAX)
        return -1;
    for (int k = 0; k < r->count && wait < WAIT_MAX_MS; k++)
        wait *= LATER_WAITS;
    r->one[r->count++] = (pl_restart_t){pl_now(), global_step, rank};
    return wait < WAIT_MAX_MS ? wait : WAIT_MAX_MS;
}

void pl_restart_policy_report(const pl_restart_policy_t *r, const uint64_t *global_step,
                              pl_error_t *error)
{
    char steps[160] = "";
    size_t length = 0;
    for (int k = 0; global_step && k < r->count && length < sizeof steps - 48; k++)
        length += (size_t)snprintf(steps + length, sizeof steps - length, "%" PRIu64 ", ",
                                   r->one[k].global_step);
    if (global_step)
        snprintf(steps + length, sizeof steps - length, "%" PRIu64, *global_step);
    if (r->count)
        pl_error_prefix(error, "started again %d time%s within %d minutes%s%s", r->count,
                        r->count == 1 ? "" : "s", WINDOW_MINUTES,
                        global_step ? ", and failed after steps " : "", steps);
}

/* ---- A run that is started again ---- */

enum { LOOK_MS = 200 };                      /* between looks at whether the run trains */

/* Pauses the run, if it trains, for the ranks that were left out.  A rank may die
 * before the run has paused: so the looks continue until all ranks are back. */
static void restarts_look(void *launcher)
{
    pl_ranks_t *ranks = launcher;
    if (!ranks->run || ranks->broadcasts || ranks->stop_requested
        || ranks->count == ranks->max)
        return;
    if (ranks->global_step && !ranks->halts_to_restart && !ranks->answered
        && !ranks->ended && ranks->error.code == PL_OK)
        pl_ranks_pause(ranks);
    pl_after(ranks, LOOK_MS, restarts_look, NULL);
}

/* A rank that dies again as soon as it was started again is likely to do so for a while.
 * It returns if the run can pause: searches are short, and without checkpoints a pause
 * would lose steps. */
static bool rank_leave_out(pl_ranks_t *ranks)
{
    pl_restarts_t *r = ranks->restarts;
    const pl_job_t *job = ranks->job;
    old_forget(&r->policy);
    if (ranks->count <= ranks->min || ranks->failed < 0 || !r->policy.count
        || r->policy.one[r->policy.count - 1].rank != ranks->failed)
        return false;
    ranks->count--;
    r->policy.count = 0;
    r->left_out = ranks->failed;
    if (r->return_after > 0 && pl_job_is_training(job)
        && job->trainer->enable_checkpointing
        && pl_after(ranks, pl_milliseconds(r->return_after), restarts_look, NULL)
               == PL_OK)
        r->return_after *= 2;
    return true;
}

/* wait: ms  [below 0: no restart] */
static bool begin_after(pl_ranks_t *ranks, int wait)
{
    pl_restarts_t *r = ranks->restarts;
    void (*begin)(void *) = r->begin ? r->begin : pl_restarts_begin;
    r->waits = wait >= 0 && pl_after(ranks, wait, begin, NULL) == PL_OK;
    if (r->waits)
        ranks->global_step = 0;
    return r->waits;
}

/* A process died after all ranks were there, or was killed: that may not occur again.  An
 * error that the program reports would, and so would the end of a process that could not
 * even join.  The step is the one that the error names: others may have come
 * further.  With fewer ranks, restarts are counted from 0. */
bool pl_restarts_try(pl_ranks_t *ranks)
{
    pl_restarts_t *r = ranks->restarts;
    const int code = ranks->error.code;
    const uint64_t step = ranks->failed < 0 ? ranks->global_step
                                            : ranks->rank[ranks->failed].global_step;
    char with[48] = "";
    r->policy.max = r->max;
    if (pl_ranks_have_paused(ranks)) {
        r->policy.count = 0;          /* the rank left out counts as the last that died */
        const uint64_t paused = ranks->global_step;
        if (!begin_after(ranks, pl_restart_policy_add(&r->policy, paused, r->left_out)))
            return false;
        pl_log_line(PL_LOG_INFO, -1, pl_actor_name(ranks),
                    "rank %d is started again: the run is saved and continues with %d "
                    "ranks",
                    r->left_out, ranks->max);
        ranks->count = ranks->max;
        return true;
    }
    const bool may_pass = (code == PL_EDIED || code == PL_ESTUCK)
                          && (ranks->links->were_all_there || ranks->links->was_killed);
    const bool leaves = may_pass && rank_leave_out(ranks);
    const int wait = may_pass ? pl_restart_policy_add(&r->policy, step,
                                                      leaves ? -1 : ranks->failed)
                              : -1;
    if (wait < 0 && code != PL_OK)
        pl_restart_policy_report(&r->policy, &step, &ranks->error);
    if (!begin_after(ranks, wait))
        return false;
    const char *plural = ranks->count == 1 ? "" : "s";
    if (ranks->count < ranks->max)
        snprintf(with, sizeof with, " with %d rank%s", ranks->count, plural);
    pl_log_line(PL_LOG_WARNING, -1, pl_actor_name(ranks),
                "%s; all ranks are started again, from the newest checkpoint "
                "(%d of %d%s)",
                ranks->error.text, r->policy.count, (int)r->max, with);
    if (leaves)
        pl_log_line(PL_LOG_WARNING, -1, pl_actor_name(ranks),
                    "rank %d has died again: the run continues with %d rank%s",
                    r->left_out, ranks->count, plural);
    return true;
}

void pl_restarts_begin(void *launcher)
{
    pl_ranks_t *ranks = launcher;
    pl_restarts_t *r = ranks->restarts;
    pl_error_t err = {0};
    if (!r->waits)
        return;
    r->waits = false;
    if (ranks->stop_requested && pl_ranks_outcome(ranks)) {  /* it has paused */
        pl_ranks_answer(ranks);
        return;
    }
    pl_job_t *job = pl_job_again(ranks->job, pl_rank_links_run_dir(ranks->links),
                                 ranks->count, 1, &err);
    if (!job || pl_rank_links_renew(ranks->links, ranks->count, &err) != PL_OK
        || pl_ranks_begin(ranks, job, &err) != PL_OK) {
        pl_object_unref(ranks->outcome);                    /* of a pause: not the end */
        ranks->outcome = NULL;
        ranks->error = err;
        pl_ranks_answer(ranks);
    }
    pl_object_unref(job);
}

/* ---- Files for processes that start later ----
 *
 * A process that replaces a dead one executes its program from the start, and reads in
 * the job's folder what happened before: the directories of runs, the ranks that have
 * ended with status 0, and the results of runs.  None of the files has to outlive the
 * machine. */

enum { LINE = (PATH_MAX > PL_ERROR_TEXT ? PATH_MAX : PL_ERROR_TEXT) + 16 };

/* The file that an environment variable names; NULL: none. */
static const char *file_of(const char *variable)
{
    const char *name = getenv(variable);
    return name && *name ? name : NULL;
}

/* Text of the last line with that number; "": there is none. */
static void line_find(const char *name, int number, char text[LINE])
{
    FILE *file = name ? fopen(name, "re") : NULL;
    char line[LINE];
    int found, at;
    text[0] = '\0';
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%d %n", &found, &at) == 1 && found == number)
            memcpy(text, line + at, strlen(line + at) + 1);
    }
    if (file)
        fclose(file);
}

static bool line_add(const char *name, int number, const char *text)
{
    char line[LINE];
    const int length = snprintf(line, sizeof line, "%d %s\n", number, text);
    const bool fits = length < LINE && !strchr(text, '\n');
    errno = fits ? pl_append_once(name, 0600, line, (size_t)length) : EINVAL;
    return errno == 0;
}

/* ---- Run directories: the last line of a run counts ---- */

char *pl_run_dir_index_find(int run, pl_error_t *err)
{
    char found[LINE];
    line_find(file_of("PACELINE_RUN_DIR_INDEX"), run, found);
    char *folder = *found ? pl_strdup(found) : NULL;
    if (*found && !folder)
        pl_no_memory(err);
    return folder;
}

void pl_run_dir_index_add(int run, const char *folder)
{
    const char *name = file_of("PACELINE_RUN_DIR_INDEX");
    if (name && !line_add(name, run, folder))
        pl_log_line(PL_LOG_WARNING, 0, "launcher.external",
                    "%s: %s: if the job is started again, it begins without a "
                    "checkpoint",
                    name, strerror(errno));
}

/* ---- Finished ranks ---- */

bool pl_finished_ranks_are_reported(void)
{
    return file_of("PACELINE_FINISHED_RANKS") != NULL;
}

void pl_finished_ranks_add(const char *file, int rank, const char *text)
{
    line_add(file, rank, text);
}

bool pl_finished_ranks_find(int rank, char *text, size_t capacity)
{
    char found[LINE];
    line_find(file_of("PACELINE_FINISHED_RANKS"), rank, found);
    if (*found)
        snprintf(text, capacity, "%s", found);
    return *found;
}

/* ---- Results: a head and a packed outcome for each run, one after the other ---- */

typedef struct outcome_header {
    uint64_t bytes, has_failed;
} outcome_header_t;

int pl_run_history_add(const char *folder, uint64_t max, const pl_blob_t *outcome,
                       const pl_error_t *failed, pl_error_t *err)
{
    char path[PL_FOLDER_PATH];
    const char *name = pl_folder_path(folder, PL_FOLDER_RUN_HISTORY, path)
                       + strlen("ipc://");
    struct stat all = {0};
    const uint64_t there = stat(name, &all) == 0 ? (uint64_t)all.st_size : 0;
    pl_outcome_t *failure = outcome ? NULL : pl_outcome_new(err);
    if (failure)
        failure->error = *failed;
    pl_blob_t *packed = failure ? pl_outcome_pack(failure, err) : NULL;
    const pl_blob_t *blob = outcome ? outcome : packed;
    pl_object_unref(failure);
    if (!blob)
        return err->code;
    const outcome_header_t head = {blob->size, !outcome};
    const uint64_t bytes = blob->size + sizeof head;
    int code = PL_OK;
    if (bytes > max || there > max - bytes) {
        unlink(name);
        code = pl_fail(err, PL_EBUSY,
                       "the results of all runs would take more than %.0f MiB of %s",
                       (double)max / (1 << 20), folder);
    } else {
        FILE *file = fopen(name, "ae");
        bool whole = file && fwrite(&head, sizeof head, 1, file) == 1
                     && fwrite(blob->data, blob->size, 1, file) == 1;
        if (file)
            whole = fclose(file) == 0 && whole;
        if (!whole)
            code = pl_fail(err, PL_EIO, "%s: %s", folder, strerror(errno));
    }
    pl_object_unref(packed);
    return code;
}

pl_outcome_t *pl_run_history_read(const char *folder, int run, pl_error_t *failed)
{
    char path[PL_FOLDER_PATH];
    FILE *file =
        fopen(pl_folder_path(folder, PL_FOLDER_RUN_HISTORY, path) + strlen("ipc://"),
              "re");
    struct stat all;
    outcome_header_t head = {0};
    bool is_there = file && fstat(fileno(file), &all) == 0;
    for (int k = 0; k <= run && is_there; k++)           /* no head may exceed the file */
        is_there = (k == 0 || fseeko(file, (off_t)head.bytes, SEEK_CUR) == 0)
                   && fread(&head, sizeof head, 1, file) == 1
                   && head.bytes <= (uint64_t)(all.st_size - ftello(file));
    pl_blob_t *blob = is_there ? pl_blob_new(head.bytes, failed) : NULL;
    const bool is_read = blob && fread(blob->data, blob->size, 1, file) == 1;
    if (!is_read && (blob || !is_there))
        pl_fail(failed, PL_EIO,
                "cannot read the result of run %d of the program, which ended before "
                "this process started",
                run + 1);
    pl_outcome_t *outcome = is_read ? pl_outcome_unpack(blob, failed) : NULL;
    if (file)
        fclose(file);
    pl_object_unref(blob);
    if (!outcome || !head.has_failed)
        return outcome;
    *failed = outcome->error;
    pl_object_unref(outcome);
    return NULL;
}
