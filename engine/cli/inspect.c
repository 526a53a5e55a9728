/* inspect.c - paceline inspect: what a file of weights or a run directory holds */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/checkpoints.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/weights.h"

enum { TAIL = 1 << 16 };                   /* bytes of metrics.jsonl that are looked at */
#define RUN_MAX (16 << 20)                 /* bytes of run.json */

/* ---- weights ---- */

static const char *dtype_name(const json_t *tensor)
{
    static const char *const names[][2] = {{"F32", "float32"}, {"F64", "float64"},
                                           {"F16", "float16"}, {"BF16", "bfloat16"},
                                           {"I64", "int64"},   {"I32", "int32"},
                                           {"U8", "uint8"}};
    const char *dtype = json_string_value(json_object_get(tensor, "dtype"));
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (!strcmp(names[k][0], dtype))
            return names[k][1];
    return dtype;
}

static const char *shape_text(const json_t *tensor, char text[128])
{
    const json_t *shape = json_object_get(tensor, "shape");
    size_t at = 0;
    for (size_t axis = 0; axis < json_array_size(shape); axis++)
        at +=
            (size_t)snprintf(text + at, 128 - at, "%s%lld", axis ? "x" : "",
                             (long long)json_integer_value(json_array_get(shape, axis)));
    return at ? text : "scalar";
}

static json_int_t elements_of(const json_t *tensor)
{
    const json_t *shape = json_object_get(tensor, "shape");
    json_int_t elements = 1;
    for (size_t axis = 0; axis < json_array_size(shape); axis++)
        elements *= json_integer_value(json_array_get(shape, axis));
    return elements;
}

/* What all tensors have together; *width is that of the longest name. */
static void show_sum(const char *path, json_t *tensors, int *width)
{
    const char *name;
    json_t *tensor;
    char text[24];
    json_int_t elements = 0;
    double bytes = 0;
    *width = 0;
    json_object_foreach(tensors, name, tensor) {
        elements += elements_of(tensor);
        bytes += json_number_value(json_object_get(tensor, "bytes"));
        if ((int)strlen(name) > *width)
            *width = (int)strlen(name);
    }
    const size_t count = json_object_size(tensors);
    cli_print("%s: %zu tensor%s, %lld element%s, %s\n", path, count, cli_plural(count),
              (long long)elements, cli_plural((uint64_t)elements),
              cli_bytes(bytes, text));
}

static void show_tensors(const char *path, const json_t *weights)
{
    const char *name;
    json_t *tensor, *tensors = json_object_get(weights, "tensors");
    char bytes[24], shape[128];
    int width;
    show_sum(path, tensors, &width);
    json_object_foreach(tensors, name, tensor)
        cli_print("  %-*s  %-8s %-14s %10s\n", width, name, dtype_name(tensor),
                  shape_text(tensor, shape),
                  cli_bytes(json_number_value(json_object_get(tensor, "bytes")), bytes));
}

/* Texts that would run over the line, such as a vocabulary, are cut: --json has them. The
 * epochs of a checkpoint are shown with what else it is. */
static void show_metadata(const json_t *weights, bool has_epoch)
{
    const char *name;
    json_t *value;
    int capacity = cli_width() - 15;
    json_object_foreach(json_object_get(weights, "metadata"), name, value) {
        const char *text = json_string_value(value) ? json_string_value(value) : "";
        bool cut = (int)strlen(text) > capacity;
        const bool is_epoch = !strcmp(name, "epoch");
        if (is_epoch && has_epoch)
            continue;
        cli_print("  %-11s %.*s%s\n", is_epoch ? "epochs done" : name,
                  cut ? capacity - 3 : (int)strlen(text), text, cut ? "..." : "");
    }
}

/* ---- a run directory ---- */

/* The last `most` bytes of a file; no text when there is none.  Never waits:
 * opening a pipe would, until somebody writes. */
static int read_tail(const char *path, size_t max, char **text_p, size_t *length_p,
                     pl_error_t *err)
{
    struct stat status;
    *text_p = NULL;
    *length_p = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return PL_OK;
    int code = PL_OK;
    if (fd < 0 || fstat(fd, &status) != 0)
        code = pl_fail(err, PL_EIO, "cannot read %s: %s", path, strerror(errno));
    else if (!S_ISREG(status.st_mode))
        code = pl_fail(err, PL_EFORMAT, "%s is not a file", path);
    else if (!(*text_p = malloc(max)))
        code = pl_fail(err, PL_ENOMEM, "out of memory");
    if (code == PL_OK) {
        off_t from = status.st_size > (off_t)max ? status.st_size - (off_t)max : 0;
        ssize_t got = pread(fd, *text_p, max, from);
        *length_p = got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    return code;
}

/* The newest metric of each name. */
static int newest_metrics(const char *folder, json_t *newest, pl_error_t *err)
{
    char path[PATH_MAX], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    int code = read_tail(path, TAIL, &text, &length, err);
    for (size_t at = 0; code == PL_OK && at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line = end ? (size_t)(end - text) - at : length - at;
        json_t *metrics = json_loadb(text + at, line, 0, NULL);
        json_object_update(newest, metrics);
        json_decref(metrics);
        at += line + 1;
    }
    free(text);
    return code;
}

/* The effective run; *run_p is NULL when there is none. */
static int read_run(const char *folder, json_t **run_p, pl_error_t *err)
{
    char path[PATH_MAX], *text;
    size_t length;
    json_error_t why;
    *run_p = NULL;
    snprintf(path, sizeof path, "%s/run.json", folder);
    int code = read_tail(path, RUN_MAX, &text, &length, err);
    if (code == PL_OK && text) {
        *run_p = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
        if (!json_is_object(*run_p))
            code = pl_fail(err, PL_EFORMAT, "%s is not a run file: line %d", path,
                           *run_p ? 1 : why.line);
    }
    free(text);
    return code;
}

/* For people epochs count from 1.  Where the weights are of the same step, their epochs
 * done are enough. */
static void show_metrics(json_t *metrics, const json_t *weights)
{
    const char *name;
    json_t *value;
    const json_t *metadata = json_object_get(weights, "metadata"),
                 *step = json_object_get(metadata, "global_step");
    const bool is_known =
        json_object_get(metadata, "epoch") && step
        && strtoll(json_string_value(step), NULL, 10)
               == json_integer_value(json_object_get(metrics, "global_step"));
    json_object_foreach(metrics, name, value)
        if (!strcmp(name, "epoch") && !is_known)
            cli_print("  %-12s %lld\n", name, (long long)json_integer_value(value) + 1);
        else if (json_is_integer(value) && strcmp(name, "epoch"))
            cli_print("  %-12s %lld\n", name, (long long)json_integer_value(value));
        else if (json_is_real(value) && strcmp(name, "time"))
            cli_print("  %-12s %.6g\n", name, json_real_value(value));
}

/* "module mlp, data idx, …" */
static void show_components(const json_t *run)
{
    static const char *const sections[] = {"module", "data", "optimizer", "scheduler",
                                           "averaging"};
    cli_print("  ");
    for (int k = 0; k < 5; k++) {
        const json_t *component = json_object_get(run, sections[k]);
        const char *name = json_is_string(component)
                               ? json_string_value(component)
                               : json_string_value(json_object_get(component, "name"));
        if (name)
            cli_print("%s%s %s", k ? ", " : "", sections[k], name);
    }
    cli_print("\n");
}

/* ---- both ---- */

/* What was found of a path; to be released. */
typedef struct found {
    json_t *run, *metrics, *weights;                        /* NULL: there is none */
    json_t *chosen;                                         /* which weights they are */
    json_t *checkpoint, *checkpoints;                       /* what it is; what it has */
} found_t;

static void found_release(found_t *found)
{
    json_decref(found->run);
    json_decref(found->metrics);
    json_decref(found->weights);
    json_decref(found->chosen);
    json_decref(found->checkpoint);
    json_decref(found->checkpoints);
}

static int look_into_folder(const char *folder, bool verify, found_t *found,
                            pl_error_t *err)
{
    char path[PATH_MAX];
    if (cli_is_checkpoint(folder)) {
        found->checkpoint = cli_checkpoint_read(folder, verify, err);
        snprintf(path, sizeof path, "%s/" CLI_WEIGHTS, folder);
        return found->checkpoint && (found->weights = cli_weights_read(path, err))
                   ? PL_OK
                   : PL_EFORMAT;
    }
    found->checkpoints = cli_checkpoints_list(folder, verify);
    found->metrics = json_object();
    int code = read_run(folder, &found->run, err);
    if (code == PL_OK)
        code = newest_metrics(folder, found->metrics, err);
    if (code == PL_OK)
        found->chosen = cli_run_weights(folder, NULL);
    if (found->chosen) {
        cli_weights_file(folder, path);
        if (!(found->weights = cli_weights_read(path, err)))
            return PL_EFORMAT;
    }
    if (code != PL_OK || found->run || found->weights)
        return code;
    snprintf(path, sizeof path, "%s/latest", folder);
    return pl_fail(err, PL_ENOTFOUND,
                   "%s is not a run directory: it has neither run.json nor " CLI_WEIGHTS
                   "%s%s",
                   folder, access(path, F_OK) == 0 ? "; the newest run in it is " : "",
                   access(path, F_OK) == 0 ? path : "");
}

/* "weights      checkpoints/epoch=3-step=40, the best by val_loss" */
static void show_chosen(const char *folder, const json_t *chosen)
{
    const char *path = json_string_value(json_object_get(chosen, "path")),
               *which = json_string_value(json_object_get(chosen, "which")),
               *monitor = json_string_value(json_object_get(chosen, "monitor"));
    size_t length = strlen(folder);
    if (!path)
        return;
    if (!strncmp(path, folder, length) && path[length] == '/')
        path += length + 1;
    if (monitor)
        cli_print("  weights      %s, the best by %s\n", path, monitor);
    else
        cli_print("  weights      %s, %s\n", path,
                  strcmp(which, "final") ? "the newest" : "the final ones of the run");
}

static void show(const char *path, const found_t *found)
{
    if (found->checkpoint) {
        cli_print("%s\n", path);
        show_components(json_object_get(found->checkpoint, "run"));
        cli_checkpoint_show(found->checkpoint);
        show_metrics(json_object_get(found->checkpoint, "metrics"), found->weights);
    }
    if (found->metrics) {
        cli_print("%s\n", path);
        show_components(found->run);
        show_metrics(found->metrics, found->weights);
        cli_checkpoints_show(found->checkpoints);
        show_chosen(path, found->chosen);
    }
    if (!found->weights)
        return;
    show_tensors(found->metrics || found->checkpoint ? CLI_WEIGHTS : path,
                 found->weights);
    show_metadata(found->weights, found->checkpoint);
}

static json_t *as_json(const char *path, const found_t *found)
{
    json_t *json = json_pack("{s:s}", "path", path);
    if (found->run)
        json_object_set(json, "run", found->run);
    if (found->metrics)
        json_object_set(json, "metrics", found->metrics);
    if (found->checkpoint)
        json_object_set(json, "manifest", found->checkpoint);
    if (found->chosen)
        json_object_set(json, "weights", found->chosen);
    if (json_object_size(found->checkpoints))
        json_object_set(json, "checkpoints", found->checkpoints);
    json_object_update(json, found->weights);
    return json;
}

static bool has_damage(const json_t *checkpoints)
{
    const char *name;
    json_t *one;
    json_object_foreach((json_t *)checkpoints, name, one)
        if (json_object_get(one, "refused"))
            return true;
    return false;
}

int cli_inspect(const cli_inspect_t *arguments)
{
    const char *path = arguments->path;
    struct stat status;
    found_t found = {0};
    pl_error_t err = {0};
    int code = PL_OK;
    if (stat(path, &status) != 0)
        code = pl_fail(&err, PL_ENOTFOUND, "cannot read %s: %s", path, strerror(errno));
    else if (S_ISDIR(status.st_mode))
        code = look_into_folder(path, arguments->verify, &found, &err);
    else if (!(found.weights = cli_weights_read(path, &err)))
        code = err.code;
    if (code != PL_OK)
        cli_failure(&err, arguments->json);
    else if (arguments->json)
        cli_print_json(as_json(path, &found));
    else
        show(path, &found);
    const bool damaged = arguments->verify && has_damage(found.checkpoints);
    found_release(&found);
    return code == PL_OK && !damaged ? CLI_DONE : CLI_WRONG;
}
