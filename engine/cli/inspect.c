/* inspect.c - paceline inspect: what a file of weights or a run directory holds */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/weights.h"

enum { TAIL = 1 << 16 };                                    /* bytes of metrics.jsonl that are looked at */

/* ---- weights ---- */

static const char *dtype_name(const json_t *tensor)
{
    static const char *const names[][2] = {{"F32", "float32"}, {"F64", "float64"}, {"F16", "float16"},
                                           {"BF16", "bfloat16"}, {"I64", "int64"}, {"I32", "int32"}, {"U8", "uint8"}};
    const char *dtype = json_string_value(json_object_get(tensor, "dtype"));
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (!strcmp(names[k][0], dtype))
            return names[k][1];
    return dtype;
}

static const char *shape_text(const json_t *tensor, char text[64])
{
    const json_t *shape = json_object_get(tensor, "shape");
    size_t at = 0;
    text[0] = '\0';
    for (size_t axis = 0; axis < json_array_size(shape) && at < 64; axis++)
        at += (size_t)snprintf(text + at, 64 - at, "%s%lld", axis ? "x" : "",
                               (long long)json_integer_value(json_array_get(shape, axis)));
    return json_array_size(shape) ? text : "scalar";
}

static int longest_name(json_t *header)
{
    const char *name;
    json_t *tensor;
    int longest = 0;
    json_object_foreach(header, name, tensor)
        if (strcmp(name, "__metadata__") && (int)strlen(name) > longest)
            longest = (int)strlen(name);
    return longest;
}

static void show_tensors(const char *path, const cli_weights_t *weights)
{
    const char *name;
    json_t *tensor;
    char bytes[24], shape[64];
    int width = longest_name(weights->header), tensors = 0;
    int64_t elements = 0;
    json_object_foreach(weights->header, name, tensor) {
        if (!strcmp(name, "__metadata__"))
            continue;
        tensors++;
        elements += cli_tensor_elements(tensor);
    }
    cli_print("%s: %d tensors, %lld elements, %s\n", path, tensors, (long long)elements,
              cli_bytes((double)weights->file_bytes, bytes));
    json_object_foreach(weights->header, name, tensor)
        if (strcmp(name, "__metadata__"))
            cli_print("  %-*s  %-8s %-14s %10s\n", width, name, dtype_name(tensor), shape_text(tensor, shape),
                      cli_bytes((double)cli_tensor_bytes(tensor), bytes));
}

/* Texts that would run over the line, such as a vocabulary, are cut on a terminal. */
static void show_metadata(const json_t *header)
{
    const char *name;
    json_t *value;
    int room = cli_columns(stdout) - 14;
    json_object_foreach(json_object_get(header, "__metadata__"), name, value) {
        const char *text = json_string_value(value) ? json_string_value(value) : "";
        bool cut = room > 3 && (int)strlen(text) > room;
        cli_print("  %-10s %.*s%s\n", name, cut ? room - 3 : (int)strlen(text), text, cut ? "..." : "");
    }
}

/* ---- a run directory ---- */

/* The newest figure of each name. */
static json_t *newest_metrics(const char *folder)
{
    char path[4096], *text = malloc(TAIL + 1);
    json_t *newest = json_object();
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    FILE *file = fopen(path, "rbe");
    size_t length = 0;
    if (file && text) {
        fseek(file, 0, SEEK_END);
        long size = ftell(file);
        fseek(file, size > TAIL ? size - TAIL : 0, SEEK_SET);
        length = fread(text, 1, TAIL, file);
        text[length] = '\0';
    }
    for (char *line = length ? text : NULL; line && *line;) {
        char *end = strchr(line, '\n');
        json_t *figures = json_loadb(line, end ? (size_t)(end - line) : strlen(line), 0, NULL);
        json_object_update(newest, figures);
        json_decref(figures);
        line = end ? end + 1 : NULL;
    }
    if (file)
        fclose(file);
    free(text);
    return newest;
}

static void show_metrics(json_t *metrics)
{
    const char *name;
    json_t *value;
    json_object_foreach(metrics, name, value)
        if (json_is_integer(value))
            cli_print("  %-12s %lld\n", name, (long long)json_integer_value(value));
        else if (json_is_real(value) && strcmp(name, "time"))
            cli_print("  %-12s %.6g\n", name, json_real_value(value));
}

/* "module mlp, data idx, …" */
static void show_parts(const json_t *run)
{
    static const char *const sections[] = {"module", "data", "optimizer", "scheduler"};
    cli_print("  ");
    for (int k = 0; k < 4; k++) {
        const json_t *part = json_object_get(run, sections[k]);
        const char *name = json_is_string(part) ? json_string_value(part)
                                                : json_string_value(json_object_get(part, "name"));
        if (name)
            cli_print("%s%s %s", k ? ", " : "", sections[k], name);
    }
    cli_print("\n");
}

/* ---- both ---- */

static json_t *as_json(const char *path, const json_t *run, json_t *metrics, const cli_weights_t *weights)
{
    json_t *json = json_pack("{s:s}", "path", path);
    if (run)
        json_object_set(json, "run", (json_t *)run);
    if (metrics)
        json_object_set(json, "metrics", metrics);
    if (!weights->header)
        return json;
    json_t *tensors = json_copy(weights->header);
    json_t *metadata = json_object_get(tensors, "__metadata__");
    if (metadata)
        json_object_set(json, "metadata", metadata);
    json_object_del(tensors, "__metadata__");
    json_object_set_new(json, "tensors", tensors);
    return json;
}

static int inspect_file(const cli_inspect_t *arguments)
{
    cli_weights_t weights;
    pl_error_t err = {0};
    if (cli_weights_open(&weights, arguments->path, &err) != PL_OK) {
        cli_error("%s", err.text);
        return CLI_WRONG;
    }
    if (arguments->json) {
        cli_print_json(as_json(arguments->path, NULL, NULL, &weights));
    } else {
        show_tensors(arguments->path, &weights);
        show_metadata(weights.header);
    }
    cli_weights_release(&weights);
    return CLI_DONE;
}

static void show_folder(const char *folder, const json_t *run, json_t *metrics, const cli_weights_t *weights)
{
    cli_print("%s\n", folder);
    show_parts(run);
    show_metrics(metrics);
    if (!weights->header)
        return;
    show_tensors("model.safetensors", weights);
    show_metadata(weights->header);
}

static int inspect_folder(const cli_inspect_t *arguments)
{
    char path[4096];
    cli_weights_t weights = {0};
    pl_error_t err = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", arguments->path);
    bool has_weights = access(path, F_OK) == 0;
    if (has_weights && cli_weights_open(&weights, path, &err) != PL_OK) {
        cli_error("%s", err.text);
        return CLI_WRONG;
    }
    snprintf(path, sizeof path, "%s/run.json", arguments->path);
    json_t *run = json_load_file(path, JSON_REJECT_DUPLICATES, NULL), *metrics = newest_metrics(arguments->path);
    int status = run || has_weights ? CLI_DONE : CLI_WRONG;
    if (status == CLI_WRONG)
        cli_error("%s is no run directory: it has neither run.json nor model.safetensors", arguments->path);
    else if (arguments->json)
        cli_print_json(as_json(arguments->path, run, metrics, &weights));
    else
        show_folder(arguments->path, run, metrics, &weights);
    json_decref(run);
    json_decref(metrics);
    cli_weights_release(&weights);
    return status;
}

int cli_inspect(const cli_inspect_t *arguments)
{
    struct stat status;
    if (stat(arguments->path, &status) != 0) {
        cli_error("cannot read %s: %s", arguments->path, strerror(errno));
        return CLI_WRONG;
    }
    return S_ISDIR(status.st_mode) ? inspect_folder(arguments) : inspect_file(arguments);
}
