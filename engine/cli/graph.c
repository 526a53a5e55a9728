/* graph.c - paceline inspect RUN.json: the graph of a run file, as text or for Graphviz
 *
 * The engine describes the graph as JSON (pl_run_graph()); here it becomes lines, or
 * boxes and arrows. */
#include "cli/graph.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cli/json.h"
#include "cli/output.h"
#include "cli/session.h"

enum { WORD = 128 };

bool cli_is_run_file(const char *path)
{
    char begin[8] = "";
    struct stat status;
    if (!strcmp(path, "-"))
        return true;
    const char *end = strrchr(path, '.');
    if ((end && !strcmp(end, ".safetensors")) || stat(path, &status) != 0
        || !S_ISREG(status.st_mode))
        return false;
    FILE *file = fopen(path, "re");
    const size_t length = file ? fread(begin, 1, sizeof begin, file) : 0;
    if (file)
        fclose(file);
    /* A file of weights begins with the length of its header in eight bytes. */
    return length && !memchr(begin, '\0', length);
}

/* ---- Lines ---- */

/* "[20, 4]" */
static const char *shape_text(const json_t *one, char text[WORD])
{
    const json_t *shape = json_object_get(one, "shape");
    json_t *dim;
    size_t k, at = (size_t)snprintf(text, WORD, "[");
    json_array_foreach(shape, k, dim)
        at += (size_t)snprintf(text + at, WORD - at, "%s%lld", k ? ", " : "",
                               (long long)json_integer_value(dim));
    snprintf(text + at, WORD - at, "]");
    return text;
}

static const json_t *named(const json_t *list, const char *name)
{
    json_t *one;
    size_t k;
    json_array_foreach(list, k, one)
        if (!strcmp(cli_get_text(one, "name"), name))
            return one;
    return NULL;
}

/* "fc1.weight [128, 784]" */
static void show_inputs(const json_t *graph, const json_t *operator)
{
    json_t *input;
    size_t k;
    char shape[WORD];
    json_array_foreach(json_object_get(operator, "inputs"), k, input) {
        const char *name = json_string_value(input);
        const json_t *tensor = named(json_object_get(graph, "tensors"), name);
        cli_print("%s%s%s%s", k ? ", " : "", name, tensor ? " " : "",
                  tensor ? shape_text(tensor, shape) : "");
    }
}

static void show_graph(const char *title, const json_t *graph)
{
    const json_t *tensors = json_object_get(graph, "tensors"),
                 *operators = json_object_get(graph, "operators");
    json_t *one;
    char shape[WORD], with[24], without[24];
    long long parameters = 0, state = 0;
    int layer = 0, name = 0;
    size_t k;
    json_array_foreach(tensors, k, one)
        *(json_is_true(json_object_get(one, "trained")) ? &parameters : &state) +=
            cli_get_count(one, "elements");
    json_array_foreach(operators, k, one) {
        const int words[] = {(int)strlen(cli_get_text(one, "layer")),
                             (int)strlen(cli_get_text(one, "operator"))};
        layer = words[0] > layer ? words[0] : layer;
        name = words[1] > name ? words[1] : name;
    }
    cli_print("%s: %zu operators, %lld parameters", title, json_array_size(operators),
              parameters);
    if (state)
        cli_print(", %lld elements of state", state);
    cli_print("\n");
    if (json_object_get(graph, "step_bytes"))
        cli_print("  memory  %s for the values of a training step, %s without "
                  "checkpoints\n",
                  cli_bytes(cli_get_number(graph, "step_bytes"), with),
                  cli_bytes(cli_get_number(graph, "step_bytes_kept"), without));
    json_array_foreach(json_object_get(graph, "fields"), k, one)
        cli_print("  field  %s %s %s\n", cli_get_text(one, "name"),
                  shape_text(one, shape), cli_get_text(one, "dtype"));
    json_array_foreach(operators, k, one) {
        char number[24];
        snprintf(number, sizeof number, "%%%zu", k);
        cli_print("  %-5s  %-*s  %-*s  ", number, layer, cli_get_text(one, "layer"), name,
                  cli_get_text(one, "operator"));
        show_inputs(graph, one);
        if (json_object_get(one, "shape"))
            cli_print(" -> %s", shape_text(one, shape));
        cli_print("\n");
    }
    json_array_foreach(json_object_get(graph, "results"), k, one)
        cli_print("  %-6s  %s = %s\n", cli_get_text(one, "kind"),
                  cli_get_text(one, "name"), cli_get_text(one, "value"));
}

/* ---- Boxes and arrows ---- */

static void dot_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
}

/* An arrow to a node from where a value comes; a tensor and a number have no node. */
static void dot_arrow(FILE *out, const json_t *graph, const char *value,
                      const char *to_kind, size_t to)
{
    const json_t *fields = json_object_get(graph, "fields");
    json_t *one;
    size_t k;
    if (*value == '%')
        fprintf(out, "  o%d -> %s%zu;\n", atoi(value + 1), to_kind, to);
    else
        json_array_foreach(fields, k, one)
            if (!strcmp(cli_get_text(one, "name"), value))
                fprintf(out, "  f%zu -> %s%zu;\n", k, to_kind, to);
}

static void dot_operator(FILE *out, const json_t *graph, const json_t *operator, size_t k)
{
    const json_t *tensors = json_object_get(graph, "tensors");
    json_t *input;
    size_t i;
    char shape[WORD];
    long long parameters = 0;
    fprintf(out, "  o%zu [label=\"", k);
    dot_text(out, cli_get_text(operator, "operator"));
    if (*cli_get_text(operator, "layer")) {
        fputs("\\n", out);
        dot_text(out, cli_get_text(operator, "layer"));
    }
    if (json_object_get(operator, "shape"))
        fprintf(out, "\\n%s", shape_text(operator, shape));
    json_array_foreach(json_object_get(operator, "inputs"), i, input)
        parameters += cli_get_count(named(tensors, json_string_value(input)), "elements");
    if (parameters)
        fprintf(out, "\\n%lld parameters", parameters);
    fputs("\"];\n", out);
    json_array_foreach(json_object_get(operator, "inputs"), i, input)
        dot_arrow(out, graph, json_string_value(input), "o", k);
}

/* A graph for each objective, one below the other. */
static void write_dot(FILE *out, const char *title, const json_t *graph)
{
    json_t *one;
    size_t k;
    char shape[WORD];
    fputs("digraph \"", out);
    dot_text(out, title);
    fputs("\" {\n  node [shape=box, fontname=\"sans-serif\", fontsize=11];\n", out);
    json_array_foreach(json_object_get(graph, "fields"), k, one) {
        fprintf(out, "  f%zu [shape=ellipse, label=\"", k);
        dot_text(out, cli_get_text(one, "name"));
        fprintf(out, "\\n%s\"];\n", shape_text(one, shape));
    }
    json_array_foreach(json_object_get(graph, "operators"), k, one)
        dot_operator(out, graph, one, k);
    json_array_foreach(json_object_get(graph, "results"), k, one) {
        fprintf(out, "  r%zu [shape=ellipse, style=bold, label=\"", k);
        dot_text(out, cli_get_text(one, "name"));
        fputs("\"];\n", out);
        dot_arrow(out, graph, cli_get_text(one, "value"), "r", k);
    }
    fputs("}\n", out);
}

static int write_svg(const char *title, const json_t *graph, pl_error_t *err)
{
    fflush(stdout);
    FILE *dot = popen("command -v dot >/dev/null || exit 127; exec dot -Tsvg", "we");
    if (!dot)
        return pl_fail(err, PL_EIO, "cannot start dot");
    write_dot(dot, title, graph);
    const int status = pclose(dot);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return pl_fail(err, PL_ENOTFOUND,
                       "--svg needs dot of Graphviz (apt-get install graphviz); --dot "
                       "prints its input");
    return status ? pl_fail(err, PL_EIO, "dot failed with status %d", status) : PL_OK;
}

/* ---- The command ---- */

int cli_inspect_run(const cli_inspect_t *arguments)
{
    const cli_run_t run = {.file = arguments->path,
                           .set = arguments->set,
                           .plugins = arguments->plugin};
    const char *name;
    json_t *graph;
    pl_error_t err = {0};
    pl_options_t *options = cli_run_load(&run, &err);
    char *text = options ? pl_run_graph(options, &err) : NULL;
    json_t *graphs = text ? json_loads(text, 0, NULL) : NULL;
    int code = graphs ? PL_OK : PL_EINVAL;
    if (code == PL_OK && arguments->json)
        cli_print_json(
            json_pack("{s:s, s:O}", "path", arguments->path, "graphs", graphs));
    json_object_foreach(arguments->json ? NULL : graphs, name, graph) {
        char title[PATH_MAX + WORD];
        snprintf(title, sizeof title, "%s%s%s", arguments->path, *name ? ", " : "", name);
        if (arguments->dot)
            write_dot(stdout, title, graph);
        else if (!arguments->svg)
            show_graph(title, graph);
        else if (code == PL_OK)
            code = write_svg(title, graph, &err);
    }
    if (code != PL_OK)
        cli_failure(&err, arguments->json);
    json_decref(graphs);
    pl_text_free(text);
    pl_options_free(options);
    return code == PL_OK ? CLI_DONE : CLI_WRONG;
}
