/* weights.c - files of weights, checkpoints and the runs they belong to */
#include "cli/weights.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BESIDE = PATH_MAX + 300 };                   /* bytes: a folder and a name in it */

/* Parses the JSON of a function of paceline.h, which it frees  [NULL: it has failed]. */
static json_t *described(char *text, pl_error_t *err)
{
    json_t *value = text ? json_loads(text, 0, NULL) : NULL;
    if (text && !value)
        pl_fail(err, PL_ENOMEM, "out of memory");
    pl_text_free(text);
    return value;
}

json_t *cli_weights_read(const char *path, pl_error_t *err)
{
    return described(pl_weights_describe(path, err), err);
}

json_t *cli_run_weights(const char *run_dir, pl_error_t *err)
{
    return described(pl_run_describe(run_dir, err), err);
}

json_t *cli_checkpoint_read(const char *path, bool verify, pl_error_t *err)
{
    json_t *manifest = described(pl_checkpoint_describe(path, verify, err), err);
    if (manifest && verify)
        json_object_set_new(manifest, "verified", json_true());
    return manifest;
}

int cli_is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

bool cli_is_checkpoint(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" CLI_MANIFEST, folder);
    return access(path, F_OK) == 0;
}

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

void cli_weights_file(const char *checkpoint, char file[PATH_MAX])
{
    bool of_run = is_folder(checkpoint) && !cli_is_checkpoint(checkpoint);
    json_t *content = of_run ? cli_run_weights(checkpoint, NULL) : NULL;
    const char *path = of_run ? json_string_value(json_object_get(content, "path"))
                              : checkpoint;
    snprintf(file, PATH_MAX, "%s%s", path ? path : "",
             path && is_folder(path) ? "/" CLI_WEIGHTS : "");
    json_decref(content);
}

/* The metadata of the file of weights, a new reference  [NULL: none]. */
static json_t *metadata_of(const char *checkpoint)
{
    char path[PATH_MAX];
    cli_weights_file(checkpoint, path);
    json_t *content = cli_weights_read(path, NULL),
           *metadata = json_incref(json_object_get(content, "metadata"));
    json_decref(content);
    return metadata;
}

json_t *cli_weights_data_info(const char *checkpoint)
{
    json_t *metadata = metadata_of(checkpoint);
    const json_t *value = json_object_get(metadata, "data_info"),
                 *former = json_object_get(metadata, "facts");
    const char *data_info = json_string_value(value ? value : former);
    json_t *parsed = data_info ? json_loads(data_info, JSON_REJECT_DUPLICATES, NULL)
                               : NULL;
    json_decref(metadata);
    return parsed;
}

int cli_weights_module(pl_options_t *options, const char *checkpoint, pl_error_t *err)
{
    json_t *metadata = metadata_of(checkpoint), *value;
    const char *text = json_string_value(json_object_get(metadata, "module")), *key;
    json_t *module = text ? json_loads(text, 0, NULL) : NULL;
    char *name = pl_options_get(options, "module.name");
    const char *theirs = json_string_value(json_object_get(module, "name"));
    const bool is_same = name && theirs && !strcmp(name, theirs);
    int code = PL_OK;
    pl_text_free(name);
    json_object_foreach(is_same ? module : NULL, key, value) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "module.%s", key);
        char *ours = pl_options_get(options, path),
             *given = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        if (code == PL_OK && given && ours && !strcmp(ours, "auto"))
            code = pl_options_set(options, path, given, err);
        pl_text_free(ours);
        free(given);
    }
    json_decref(module);
    json_decref(metadata);
    return code;
}

/* ---- runs without weights ---- */

/* The folder beside `folder` with the newest weights  ["": none]. */
static void newest_beside(const char *folder, char newest[BESIDE])
{
    char root[PATH_MAX], path[BESIDE + 32];
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
        struct stat status;
        snprintf(path, sizeof path, "%s%s/" CLI_WEIGHTS, root, entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &status) != 0)
            continue;
        const struct timespec t = status.st_mtim;
        if (t.tv_sec > time.tv_sec
            || (t.tv_sec == time.tv_sec && t.tv_nsec > time.tv_nsec)) {
            time = t;
            snprintf(newest, BESIDE, "%s%s", root, entry->d_name);
        }
    }
    if (entries)
        closedir(entries);
}

int cli_weights_check(const char *checkpoint, pl_error_t *err)
{
    char newest[BESIDE], weights[PATH_MAX], checkpoints[PATH_MAX];
    snprintf(weights, sizeof weights, "%s/" CLI_WEIGHTS, checkpoint);
    snprintf(checkpoints, sizeof checkpoints, "%s/" CLI_CHECKPOINTS, checkpoint);
    if (!is_folder(checkpoint) || access(weights, F_OK) == 0
        || access(checkpoints, F_OK) == 0)
        return PL_OK;
    newest_beside(checkpoint, newest);
    return pl_fail(err, PL_ENOTFOUND,
                   "%s: this directory has no weights (" CLI_WEIGHTS ")%s%s", checkpoint,
                   *newest ? "; the newest run with weights is " : "", newest);
}
