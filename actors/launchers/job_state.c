/* job_state.c - files of a job for its processes that start later
 *
 * Three files in the job's folder.  A process that replaces a dead one executes its
 * program from the start, and reads there what happened before: the directories of
 * runs, the ranks that have ended with status 0, and the results of runs.  None of the
 * files has to outlive the machine. */
#include "actors/launchers/job_state.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/launchers/bootstrap.h"
#include "actors/launchers/job_serialization.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "formats/append.h"

/* ---- Lines "NUMBER TEXT" ---- */

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
