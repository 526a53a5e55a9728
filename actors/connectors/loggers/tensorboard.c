/* tensorboard.c - events.out.tfevents.*: event files for TensorBoard
 *
 * `tensorboard --logdir runs` finds the files by their name.  Each start of a run has
 * a file of its own, because a reader that has the old one open would not notice that
 * it was cut.  The new file instructs readers to drop the events of steps that are
 * trained again. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/connectors/loggers/loggers.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "formats/events.h"

#define PREFIX "events.out.tfevents."

typedef struct tensorboard {
    bool histograms;                                        /* option */
    pl_append_t file;
    char *name;                                             /* of the file */
} tensorboard_t;

static const pl_option_t tensorboard_options[] = {
    PL_BOOL(tensorboard_t, histograms, "false",
            "write histograms of the module's tensors with each checkpoint and at the "
            "end"),
    PL_OPTIONS_END,
};

/* ---- The files of a resumed run ---- */

/* The seconds of "PREFIX SECONDS.HOST.PID"; 0: another file. */
static long long seconds_of(const char *name)
{
    return strncmp(name, PREFIX, strlen(PREFIX)) ? 0 : atoll(name + strlen(PREFIX));
}

/* Removes events from after the checkpoint: cuts its file, and removes newer files. */
static int older_cut(const char *folder, const char *position, long long *newest,
                     pl_error_t *err)
{
    long long keep = 0;
    unsigned sum;
    struct stat what;
    const bool summed = sscanf(position, "%lld %*s %x", &keep, &sum) == 2;
    const char *name = strchr(position, ' ');
    const size_t length = name ? strcspn(++name, " ") : 0;
    const long long kept = name ? seconds_of(name) : 0;
    int code = PL_OK;
    DIR *dir = kept ? opendir(folder) : NULL;
    if (kept && !dir)
        return pl_fail(err, PL_EIO, "cannot list %s: %m", folder);
    for (const struct dirent *entry; code == PL_OK && dir && (entry = readdir(dir));) {
        const long long seconds = seconds_of(entry->d_name);
        const bool is_it = strlen(entry->d_name) == length
                           && !memcmp(entry->d_name, name, length);
        char *path = is_it || seconds > kept ? pl_text("%s/%s", folder, entry->d_name)
                                             : NULL;
        if (seconds > *newest)
            *newest = seconds;
        if (path && is_it && stat(path, &what) == 0 && what.st_size < keep)
            pl_warn_lost_lines(path);
        else if (path && is_it && summed && pl_is_another_file(path, (uint64_t)keep, sum))
            pl_put_log_aside(path);
        else if (path && is_it && truncate(path, keep) != 0)
            code = pl_fail(err, PL_EIO,
                           "cannot truncate %s to the position of the checkpoint: %m",
                           path);
        else if (path && !is_it && unlink(path) != 0)
            code = pl_fail(err, PL_EIO, "cannot remove %s: %m", path);
        pl_text_free(path);
    }
    if (dir)
        closedir(dir);
    return code;
}

/* ---- The run ---- */

/* Writes the run file, as a block of code. */
static int hyperparameters_add(tensorboard_t *t, const pl_event_time_t *now,
                               const char *run, pl_error_t *err)
{
    size_t lines = 1, length = strlen(run), size = 0;
    for (size_t k = 0; k < length; k++)
        lines += run[k] == '\n';
    char *text = pl_alloc(length + 4 * lines + 1);
    if (!text)
        return pl_no_memory(err);
    for (const char *at = run; *at;) {
        size_t line = strcspn(at, "\n");
        memset(text + size, ' ', 4);
        memcpy(text + size + 4, at, line);
        size += line + 4;
        at += line;
        if (*at)
            text[size++] = *at++;
    }
    int code = pl_events_text(&t->file, now, "hyperparameters/text_summary", text, err);
    pl_free(text);
    return code;
}

/* Collects options by path, "optimizer.lr", without those that name the run's directory
 * and without lists of components. */
static int options_flatten(json_t *flat, const char *path, const json_t *object)
{
    static const char *const left_out[] = {"trainer.default_root_dir",
                                           "trainer.run_name"};
    const char *key;
    json_t *value;
    int failed = 0;
    json_object_foreach((json_t *)object, key, value) {
        char *whole = pl_text("%s%s%s", path, *path ? "." : "", key);
        const bool is_left_out =
            whole && (!strcmp(whole, left_out[0]) || !strcmp(whole, left_out[1]));
        char *list = json_is_array(value) ? pl_json_write(value, PL_JSON_COMPACT) : NULL;
        if (!whole)
            failed = 1;
        else if (json_is_object(value))
            failed |= options_flatten(flat, whole, value);
        else if (list && *path)
            failed |= json_object_set_new(flat, whole, json_string(list));
        else if (!json_is_array(value) && !json_is_null(value) && !is_left_out)
            failed |= json_object_set(flat, whole, value);
        pl_text_free(list);
        pl_text_free(whole);
    }
    return failed;
}

static void tensorboard_close(void *self, const char *status)
{
    tensorboard_t *t = self;
    const pl_event_time_t now = {pl_wall_clock(), 0};
    const bool ended = !strcmp(status, "ok"), failed = !strcmp(status, "failed");
    if (t->name && (ended || failed)
        && pl_events_session_end(&t->file, &now, failed, NULL) == PL_OK)
        pl_append_flush(&t->file, NULL);
    pl_append_release(&t->file);
    pl_text_free(t->name);
    t->name = NULL;
}

static int tensorboard_open(void *self, const pl_log_run_t *run, pl_error_t *err)
{
    tensorboard_t *t = self;
    char host[65] = "localhost";
    long long newest = 0, seconds = (long long)pl_wall_clock();
    if (older_cut(run->run_dir, run->position, &newest, err) != PL_OK)
        return PL_EIO;
    if (gethostname(host, sizeof host - 1) != 0)
        strcpy(host, "localhost");
    if (seconds <= newest)
        seconds = newest + 1;
    t->name = pl_text(PREFIX "%010lld.%s.%ld", seconds, host, (long)getpid());
    char *path = t->name ? pl_text("%s/%s", run->run_dir, t->name) : NULL;
    int code = path ? pl_append_open(&t->file, path, -1, err) : pl_no_memory(err);
    pl_text_free(path);
    const bool resumes = *run->position;
    pl_event_time_t now = {pl_wall_clock(), 0};
    if (code == PL_OK)
        code = pl_events_begin(&t->file, &now, false, err);
    if (code == PL_OK && !resumes)
        code = hyperparameters_add(t, &now, run->run, err);
    if (code == PL_OK && !resumes) {
        json_t *root = pl_json_read(run->run, strlen(run->run), "run", err),
               *flat = json_object();
        pl_event_hparam_t *hparam = NULL;
        const char *name;
        json_t *value;
        int count = 0;
        code = !root ? err->code : PL_OK;
        if (root && flat && !options_flatten(flat, "", root))
            hparam = pl_alloc_array(json_object_size(flat) + 1, sizeof *hparam);
        if (code == PL_OK && !hparam)
            code = pl_no_memory(err);
        json_object_foreach(flat, name, value)
            if (hparam)
                hparam[count++] = (pl_event_hparam_t){
                    .name = name,
                    .text = json_string_value(value),
                    .number = json_is_true(value) ? 1 : json_number_value(value),
                    .is_truth = json_is_boolean(value)};
        if (code == PL_OK)
            code = pl_events_session(&t->file, &now, hparam, count, err);
        pl_free(hparam);
        json_decref(flat);
        json_decref(root);
    }
    now.step = (int64_t)run->global_step + 1;
    if (code == PL_OK && resumes)
        code = pl_events_begin(&t->file, &now, true, err);
    if (code == PL_OK)
        code = pl_append_flush(&t->file, err);
    if (code != PL_OK)
        tensorboard_close(t, "");
    return code;
}

/* ---- Metrics ---- */

static int tensorboard_log(void *self, const pl_record_t *record, pl_error_t *err)
{
    tensorboard_t *t = self;
    const pl_event_time_t event = {record->time, (int64_t)record->global_step};
    const char *name;
    json_t *value;
    int count = 0;
    json_t *metrics = pl_json_read(record->metrics, strlen(record->metrics), "metrics",
                                   err);
    if (!metrics)
        return PL_EFORMAT;
    pl_event_scalar_t *scalar = pl_alloc_array(json_object_size(metrics) + 1,
                                               sizeof *scalar);
    if (!scalar) {
        json_decref(metrics);
        return pl_no_memory(err);
    }
    scalar[count++] = (pl_event_scalar_t){"epoch", record->epoch};
    json_object_foreach(metrics, name, value) {
        if (json_is_number(value) || json_is_null(value))
            scalar[count++] = (pl_event_scalar_t){name, json_is_null(value)
                                                            ? NAN
                                                            : json_number_value(value)};
    }
    int code = pl_events_scalars(&t->file, &event, scalar, count, err);
    pl_free(scalar);
    json_decref(metrics);
    return code;
}

static int tensorboard_tensors(void *self, const pl_record_t *record,
                               const pl_result_tensor_t *tensor, int count,
                               pl_error_t *err)
{
    tensorboard_t *t = self;
    const pl_event_time_t event = {record->time, (int64_t)record->global_step};
    int code = PL_OK;
    for (int k = 0; t->histograms && k < count && code == PL_OK; k++) {
        size_t elements = 1;
        for (int axis = 0; axis < tensor[k].shape.rank; axis++)
            elements *= (size_t)tensor[k].shape.dim[axis];
        code = pl_events_histogram(&t->file, &event, tensor[k].name, tensor[k].data,
                                   elements, err);
    }
    return code;
}

static int tensorboard_flush(void *self, pl_error_t *err)
{
    return pl_append_flush(&((tensorboard_t *)self)->file, err);
}

static int tensorboard_sync(void *self, pl_error_t *err)
{
    return pl_append_sync(&((tensorboard_t *)self)->file, err);
}

/* "BYTES NAME CRC32C" of the file. */
static char *tensorboard_position(const void *self)
{
    const tensorboard_t *t = self;
    return pl_text("%llu %s %08x", (unsigned long long)t->file.size, t->name,
                   t->file.sum);
}

const pl_logger_ops_t pl_tensorboard_logger = {
    .name = "tensorboard",
    .help = "writes event files for TensorBoard",
    .size = sizeof(tensorboard_t),
    .options = tensorboard_options,
    .open = tensorboard_open,
    .log = tensorboard_log,
    .tensors = tensorboard_tensors,
    .flush = tensorboard_flush,
    .sync = tensorboard_sync,
    .position = tensorboard_position,
    .close = tensorboard_close,
};
