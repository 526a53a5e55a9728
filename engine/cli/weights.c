/* weights.c - what is stored in a file of weights and beside it */
#include "cli/weights.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/checkpoints.h"

enum { BESIDE = PATH_MAX + 300 };                   /* bytes: a folder and a name in it */

json_t *cli_weights_read(const char *path, pl_error_t *err)
{
    char *text = pl_weights_describe(path, err);
    json_t *said = text ? json_loads(text, 0, NULL) : NULL;
    if (text && !said)
        pl_fail(err, PL_ENOMEM, "out of memory");
    pl_text_free(text);
    return said;
}

json_t *cli_run_weights(const char *run_dir, pl_error_t *err)
{
    char *text = pl_run_describe(run_dir, err);
    json_t *said = text ? json_loads(text, 0, NULL) : NULL;
    if (text && !said)
        pl_fail(err, PL_ENOMEM, "out of memory");
    pl_text_free(text);
    return said;
}

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

void cli_weights_file(const char *checkpoint, char file[PATH_MAX])
{
    bool of_run = is_folder(checkpoint) && !cli_is_checkpoint(checkpoint);
    json_t *said = of_run ? cli_run_weights(checkpoint, NULL) : NULL;
    const char *path = of_run ? json_string_value(json_object_get(said, "path"))
                              : checkpoint;
    snprintf(file, PATH_MAX, "%s%s", path ? path : "",
             path && is_folder(path) ? "/" CLI_WEIGHTS : "");
    json_decref(said);
}

json_t *cli_weights_data_info(const char *checkpoint)
{
    char path[PATH_MAX];
    cli_weights_file(checkpoint, path);
    json_t *said = cli_weights_read(path, NULL);
    const json_t *metadata = json_object_get(said, "metadata");
    const char *data_info = json_string_value(json_object_get(metadata, "facts"));
    json_t *parsed = data_info ? json_loads(data_info, JSON_REJECT_DUPLICATES, NULL)
                               : NULL;
    json_decref(said);
    return parsed;
}

/* ---- runs without weights ---- */

static bool has_weights(const char *folder)
{
    char weights[PATH_MAX], checkpoints[PATH_MAX];
    snprintf(weights, sizeof weights, "%s/" CLI_WEIGHTS, folder);
    snprintf(checkpoints, sizeof checkpoints, "%s/" CLI_CHECKPOINTS, folder);
    return access(weights, F_OK) == 0 || access(checkpoints, F_OK) == 0;
}

/* Whether the folder's weights were written after *newest, which they then set. */
static bool is_newer(const char *folder, struct timespec *newest)
{
    char path[BESIDE + 32];
    struct stat status;
    snprintf(path, sizeof path, "%s/" CLI_WEIGHTS, folder);
    if (stat(path, &status) != 0)
        return false;
    struct timespec time = status.st_mtim;
    bool newer = time.tv_sec > newest->tv_sec
                 || (time.tv_sec == newest->tv_sec && time.tv_nsec > newest->tv_nsec);
    if (newer)
        *newest = time;
    return newer;
}

/* Of the folders that lie where `folder` does, the one whose weights were written last;
 * "" when there is none. */
static void newest_beside(const char *folder, char newest[BESIDE])
{
    char root[PATH_MAX], path[BESIDE];
    struct timespec time = {0};
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    while (length > 0 && folder[length - 1] != '/')
        length--;
    snprintf(root, sizeof root, "%.*s", (int)length, folder);
    newest[0] = '\0';
    DIR *entries = opendir(*root ? root : ".");
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        snprintf(path, sizeof path, "%s%s", root, entry->d_name);
        if (entry->d_name[0] != '.' && is_newer(path, &time))
            strcpy(newest, path);
    }
    if (entries)
        closedir(entries);
}

int cli_weights_check(const char *checkpoint, pl_error_t *err)
{
    char newest[BESIDE];
    if (!is_folder(checkpoint) || has_weights(checkpoint))
        return PL_OK;
    newest_beside(checkpoint, newest);
    return pl_fail(err, PL_ENOTFOUND,
                   "%s: this directory has no weights (" CLI_WEIGHTS ")%s%s", checkpoint,
                   *newest ? "; the newest run with weights is " : "", newest);
}
