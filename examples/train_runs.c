/* train_runs.c - the service's folder of runs, which a restarted service reads
 *
 * ROOT/3.json has the reply of GET /runs/3 and the run file; ROOT/3 is the run directory.
 * A run that was under way or waiting when the service ended is "stopped" after a restart
 * and can be resumed like any other. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train_service.h"

/* Checks for missing keys, which the engine reports only when the run begins. */
static int needs_check(const pl_options_t *options, pl_error_t *err)
{
    static const char *const keys[] = {"module", "data", "optimizer", NULL};
    for (int k = 0; keys[k]; k++) {
        char *value = pl_options_get(options, keys[k]);
        const bool given = value && *value && strcmp(value, "null");
        pl_text_free(value);
        if (!given)
            return pl_fail(err, PL_ENOTFOUND, "run: the run has no %s: set \"%s\"",
                           keys[k], keys[k]);
    }
    return PL_OK;
}

/* Refuses plug-ins, and launchers that start this program again. */
static int kind_check(const pl_options_t *options, pl_error_t *err)
{
    char *plugins = pl_options_get(options, "plugins"),
         *launcher = pl_options_get(options, "trainer.launcher");
    int code = PL_OK;
    if (plugins && strcmp(plugins, "[]"))
        code = pl_fail(err, PL_EINVAL, "\"plugins\": this service loads no plug-ins");
    else if (launcher && strstr(launcher, "script"))
        code = pl_fail(err, PL_EINVAL,
                       "\"launcher\": this service starts no ranks by \"script\": use "
                       "\"inline\" or \"spawn\"");
    pl_text_free(launcher);
    pl_text_free(plugins);
    return code;
}

/* All files of a run are in the service's folder. */
static pl_options_t *options_read(const service_t *service, const char *text, int id,
                                  pl_error_t *err)
{
    char name[32];
    snprintf(name, sizeof name, "\"%d\"", id);
    pl_options_t *options = pl_options_parse(text, "run", err);
    int code = options ? kind_check(options, err) : err->code;
    if (code == PL_OK)
        code = pl_options_set(options, "trainer.default_root_dir", service->root, err);
    if (code == PL_OK)
        code = pl_options_set(options, "trainer.run_name", name, err);
    if (code == PL_OK)
        code = pl_options_check(options, err);
    if (code == PL_OK)
        code = needs_check(options, err);
    if (code == PL_OK)
        return options;
    pl_options_free(options);
    return NULL;
}

/* A run without options is listed, but cannot be resumed. */
static run_t *run_make(service_t *service, int id, pl_options_t *options)
{
    run_t *run = calloc(1, sizeof *run);
    run->service = service;
    run->id = id;
    run->state = "queued";
    run->options = options;
    run->events = service->started;
    run->metrics = json_object();
    snprintf(run->run_dir, sizeof run->run_dir, "%s/%d", service->root, id);
    return run;
}

run_t *run_new(service_t *service, int id, const char *text, pl_error_t *err)
{
    pl_options_t *options = options_read(service, text, id, err);
    return options ? run_make(service, id, options) : NULL;
}

void run_free(run_t *run)
{
    for (int k = 0; k < EVENTS_KEPT; k++)
        free(run->event[k]);
    pl_options_free(run->options);
    json_decref(run->metrics);
    free(run);
}

void run_add(run_t *run)
{
    *run->service->last = run;
    run->service->last = &run->next;
}

/* ---- the folder ---- */

static void record_path(const service_t *service, int id, char path[512])
{
    snprintf(path, 512, "%s/%d.json", service->root, id);
}

int run_keep(const run_t *run)
{
    char path[512], made[520];
    char *file = run->options ? pl_options_print(run->options, NULL) : NULL;
    if (!file)                                            /* the record stays unchanged */
        return 0;
    json_t *record = run_show(run);
    record_path(run->service, run->id, path);
    snprintf(made, sizeof made, "%s.new", path);
    json_object_set_new(record, "run", json_loads(file, 0, NULL));
    errno = 0;
    const bool kept = json_dump_file(record, made, JSON_INDENT(1)) == 0
                      && rename(made, path) == 0;
    const int failed = kept ? 0 : errno ? errno : EIO;
    if (failed)
        unlink(made);
    json_decref(record);
    pl_text_free(file);
    return failed;
}

static const char *state_read(const json_t *record)
{
    static const char *const ends[] = {"ok", "failed"};
    const char *state = json_string_value(json_object_get(record, "state"));
    for (int k = 0; k < 2; k++)
        if (state && !strcmp(state, ends[k]))
            return ends[k];
    return "stopped";
}

static void run_read(service_t *service, int id)
{
    char path[512];
    pl_error_t err = {0};
    record_path(service, id, path);
    json_t *record = json_load_file(path, 0, NULL);
    char *file = json_dumps(json_object_get(record, "run"), 0);
    pl_options_t *options = options_read(service, file ? file : "", id, &err);
    run_t *run = run_make(service, id, options);
    const char *error = json_string_value(json_object_get(record, "error"));
    const json_int_t step = json_integer_value(json_object_get(record, "global_step"));
    run->state = options ? state_read(record) : "failed";
    run->global_step = step > 0 ? (uint64_t)step : 0;
    json_object_update(run->metrics, json_object_get(record, "metrics"));
    if (options)
        snprintf(run->error, sizeof run->error, "%s", error ? error : "");
    else
        snprintf(run->error, sizeof run->error, "%.90s: %.400s", path, err.text);
    run_add(run);
    run_tell(run, "state");
    free(file);
    json_decref(record);
}

/* The number of "3" and "3.json"; 0: another name. */
static int id_of(const char *name)
{
    char *end;
    const long id = *name >= '1' && *name <= '9' ? strtol(name, &end, 10) : 0;
    return id > 0 && id < 100000000 && (!*end || !strcmp(end, ".json")) ? (int)id : 0;
}

/* Opens and locks the folder until the service ends. */
static int root_open(const char *root, pl_error_t *err)
{
    if (mkdir(root, 0777) != 0 && errno != EEXIST)
        return pl_fail(err, PL_EIO, "%s cannot be created: %m", root);
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return pl_fail(err, PL_EIO, "%s cannot be opened: %m", root);
    if (access(root, W_OK | X_OK) != 0) {
        close(fd);
        return pl_fail(err, PL_EIO, "%s cannot be written: %m", root);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return PL_OK;
    close(fd);
    return pl_fail(err, PL_EBUSY, "%s is in use by another service", root);
}

/* Files of other programs with larger numbers only make our numbers jump. */
int runs_open(service_t *service, pl_error_t *err)
{
    struct dirent **entries = NULL;
    if (root_open(service->root, err) != PL_OK)
        return err->code;
    const int count = scandir(service->root, &entries, NULL, versionsort);
    if (count < 0)
        return pl_fail(err, PL_EIO, "%s cannot be read: %m", service->root);
    for (int k = 0; k < count; k++) {
        const int id = id_of(entries[k]->d_name);
        service->ids = id > service->ids ? id : service->ids;
        if (id && strchr(entries[k]->d_name, '.'))
            run_read(service, id);
        free(entries[k]);
    }
    free(entries);
    return PL_OK;
}
