/* inspect.c - paceline inspect: the contents of weights, checkpoints, run directories
 *
 * graph.c shows run files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/graph.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/weights.h"

enum { TAIL = 1 << 16 };                        /* bytes of metrics.jsonl that are read */
#define RUN_MAX (16 << 20)                      /* bytes of run.json */

/* ---- weights ---- */

/* A line for all tensors together, then one for each. */
static void show_tensors(const char *path, const json_t *weights)
{
    static const char *const dtypes[][2] = {{"F32", "float32"}, {"F64", "float64"},
                                            {"F16", "float16"}, {"BF16", "bfloat16"},
                                            {"I64", "int64"},   {"I32", "int32"},
                                            {"U8", "uint8"}};
    const char *name;
    json_t *tensor, *dim, *tensors = json_object_get(weights, "tensors");
    const size_t count = json_object_size(tensors);
    char text[24];
    size_t k;
    json_int_t all = 0;
    double bytes = 0;
    int width = 0;
    json_object_foreach(tensors, name, tensor) {
        json_int_t elements = 1;
        json_array_foreach(json_object_get(tensor, "shape"), k, dim)
            elements *= json_integer_value(dim);
        all += elements;
        bytes += cli_get_number(tensor, "bytes");
        if ((int)strlen(name) > width)
            width = (int)strlen(name);
    }
    cli_print("%s: %zu tensor%s, %lld element%s, %s\n", path, count, cli_plural(count),
              (long long)all, cli_plural((uint64_t)all), cli_bytes(bytes, text));
    json_object_foreach(tensors, name, tensor) {
        const char *dtype = cli_get_text(tensor, "dtype");
        char shape[128] = "scalar";
        size_t at = 0;
        for (k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
            if (!strcmp(dtypes[k][0], dtype))
                dtype = dtypes[k][1];
        json_array_foreach(json_object_get(tensor, "shape"), k, dim)
            at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%lld", k ? "x" : "",
                                   (long long)json_integer_value(dim));
        cli_print("  %-*s  %-8s %-14s %10s\n", width, name, dtype, shape,
                  cli_bytes(cli_get_number(tensor, "bytes"), text));
    }
}

/* Cuts texts that are longer than a line, such as a vocabulary; --json has all of them.
 * The epochs of a checkpoint are shown with its counts. */
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

/* ---- checkpoints ---- */

static double bytes_of(const json_t *manifest)
{
    const char *name;
    json_t *file;
    double bytes = 0;
    json_object_foreach(json_object_get(manifest, "files"), name, file)
        bytes += json_number_value(json_object_get(file, "bytes"));
    return bytes;
}

/* The counts of each loop; the state of a loop contains the states of the loops it
 * calls. */
static void show_counts(const json_t *progress)
{
    const char *name;
    json_t *member;
    json_object_foreach(json_object_get(progress, "counts"), name, member)
        cli_print("  %-12s %lld ready, %lld started, %lld processed, %lld completed\n",
                  name, cli_get_count(member, "ready"), cli_get_count(member, "started"),
                  cli_get_count(member, "processed"), cli_get_count(member, "completed"));
    json_object_foreach((json_t *)progress, name, member)
        if (json_is_object(member))
            show_counts(member);
}

static void show_checkpoint(const json_t *manifest)
{
    char bytes[24];
    json_t *origin;
    size_t k;
    cli_print("  checkpoint   after step %lld, epochs done %lld, %s%s\n",
              cli_get_count(manifest, "global_step"), cli_get_count(manifest, "epoch"),
              cli_bytes(bytes_of(manifest), bytes),
              json_object_get(manifest, "verified") ? ", every block verified" : "");
    cli_print("  run          %s, seed %lld, arithmetic %s, plans %s\n",
              cli_get_word(manifest, "run_id"), cli_get_count(manifest, "seed"),
              cli_get_word(manifest, "arithmetic"),
              cli_get_word(json_object_get(manifest, "strategy"), "plans"));
    json_array_foreach(json_object_get(manifest, "resumed"), k, origin)
        cli_print("  resumed      from run %s after step %lld\n",
                  cli_get_word(origin, "run_id"), cli_get_count(origin, "global_step"));
    show_counts(json_object_get(manifest, "progress"));
}

/* The checkpoints of a run directory by name: {"step": …, "epoch": …, "bytes": …,
 * "verified": …} or {"refused": "why"}. */
static json_t *list_checkpoints(const char *run_dir, bool verify)
{
    char folder[PATH_MAX], path[PATH_MAX + 260];
    struct dirent **entries = NULL;
    pl_error_t err = {0};
    json_t *list = json_object();
    snprintf(folder, sizeof folder, "%s/" CLI_CHECKPOINTS, run_dir);
    int count = scandir(folder, &entries, cli_is_visible, alphasort);
    for (int k = 0; k < count; k++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[k]->d_name);
        json_t *manifest = cli_checkpoint_read(path, verify, &err);
        json_t *one = manifest
                          ? json_pack("{s:I, s:I, s:f, s:b}", "step",
                                      (json_int_t)cli_get_count(manifest, "global_step"),
                                      "epoch",
                                      (json_int_t)cli_get_count(manifest, "epoch"),
                                      "bytes", bytes_of(manifest), "verified", verify)
                          : json_pack("{s:s}", "refused", err.text);
        json_object_set_new(list, entries[k]->d_name, one);
        json_decref(manifest);
        free(entries[k]);
    }
    free(entries);
    return list;
}

static void show_checkpoints(json_t *list)
{
    const char *name;
    json_t *one;
    char bytes[24];
    json_object_foreach(list, name, one) {
        const char *refused = json_string_value(json_object_get(one, "refused"));
        if (refused)
            cli_print("  refused: %s\n", refused);
        else
            cli_print("  " CLI_CHECKPOINTS "/%s: step %lld, %s%s\n", name,
                      cli_get_count(one, "step"),
                      cli_bytes(json_number_value(json_object_get(one, "bytes")), bytes),
                      json_is_true(json_object_get(one, "verified")) ? ", verified" : "");
    }
}

/* ---- a run directory ---- */

/* Reads the last `max` bytes of a file; *text_p is NULL if there is no file. Never waits:
 * opening a pipe could. */
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

/* Reads the effective run; *run_p is NULL if there is none. */
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

/* People count epochs from 1. The epoch is left out if the weights are of the same step:
 * their epochs done are enough. */
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
    static const char *const sections[] = {"module",
                                           "data",
                                           "optimizer",
                                           "scheduler",
                                           "momentum_scheduler",
                                           "weight_decay_scheduler",
                                           "averaging"};
    cli_print("  ");
    for (size_t k = 0; k < sizeof sections / sizeof *sections; k++) {
        const json_t *component = json_object_get(run, sections[k]);
        const char *name = json_is_string(component)
                               ? json_string_value(component)
                               : json_string_value(json_object_get(component, "name"));
        if (name)
            cli_print("%s%s %s", k ? ", " : "", sections[k], name);
    }
    cli_print("\n");
}

/* ---- the command ---- */

/* What a path contains. */
typedef struct found {
    json_t *run, *metrics, *weights;                        /* [none] */
    json_t *chosen;                                         /* which weights they are */
    json_t *checkpoint, *checkpoints;                       /* the manifest; of a run */
} found_t;

static int read_folder(const char *folder, bool verify, found_t *found, pl_error_t *err)
{
    char path[PATH_MAX];
    if (cli_is_checkpoint(folder)) {
        found->checkpoint = cli_checkpoint_read(folder, verify, err);
        snprintf(path, sizeof path, "%s/" CLI_WEIGHTS, folder);
        return found->checkpoint && (found->weights = cli_weights_read(path, err))
                   ? PL_OK
                   : PL_EFORMAT;
    }
    found->checkpoints = list_checkpoints(folder, verify);
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
        show_checkpoint(found->checkpoint);
        show_metrics(json_object_get(found->checkpoint, "metrics"), found->weights);
    }
    if (found->metrics) {
        cli_print("%s\n", path);
        show_components(found->run);
        show_metrics(found->metrics, found->weights);
        show_checkpoints(found->checkpoints);
        show_chosen(path, found->chosen);
    }
    if (!found->weights)
        return;
    show_tensors(found->metrics || found->checkpoint ? CLI_WEIGHTS : path,
                 found->weights);
    show_metadata(found->weights, found->checkpoint);
}

static json_t *found_json(const char *path, const found_t *found)
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

int cli_inspect(const cli_inspect_t *arguments)
{
    const char *path = arguments->path;
    const char *name;
    json_t *entry;
    struct stat status;
    found_t found = {0};
    pl_error_t err = {0};
    bool is_damaged = false;
    int code = PL_OK;
    if (cli_is_run_file(path))
        return cli_inspect_run(arguments);
    if (arguments->dot || arguments->svg || arguments->set.count)
        code = pl_fail(&err, PL_EINVAL,
                       "--dot, --svg and --set are for run files, and %s is none", path);
    else if (stat(path, &status) != 0)
        code = pl_fail(&err, PL_ENOTFOUND, "cannot read %s: %s", path, strerror(errno));
    else if (S_ISDIR(status.st_mode))
        code = read_folder(path, arguments->verify, &found, &err);
    else if (!(found.weights = cli_weights_read(path, &err)))
        code = err.code;
    if (code != PL_OK)
        cli_failure(&err, arguments->json);
    else if (arguments->json)
        cli_print_json(found_json(path, &found));
    else
        show(path, &found);
    json_object_foreach(found.checkpoints, name, entry)
        is_damaged |= arguments->verify && json_object_get(entry, "refused");
    json_decref(found.run);
    json_decref(found.metrics);
    json_decref(found.weights);
    json_decref(found.chosen);
    json_decref(found.checkpoint);
    json_decref(found.checkpoints);
    return code == PL_OK && !is_damaged ? CLI_DONE : CLI_WRONG;
}
