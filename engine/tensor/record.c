/* record.c - makes the calls of a record, for the module "graph" and for programs that
 * write one */
#include "tensor/record.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/suggestion.h"
#include "tensor/graph.h"
#include "tensor/model.h"
#include "tensor/operators.h"

static void init_read(pl_recorded_t *r, const char *rule, const double *a, size_t count,
                      pl_init_rule_t *init);

/* A further result of an earlier call, which asked for it by "results". */
static void call_result(pl_recorded_t *r)
{
    int of = 0, number = 0;
    pl_node_t node;
    const bool is_given = pl_recorded_node(r, "of", true, &node)
                          && pl_recorded_int(r, "of", true, &of)
                          && pl_recorded_int(r, "number", true, &number);
    if (!is_given || !r->g)
        return;
    const pl_recorded_value_t *value = &r->value[of];
    if (number < 1 || number > value->further_count)
        pl_recorded_fail(r, "call %d has %d further results: number %d is none of them",
                         of, value->further_count, number);
    else
        r->result.node = value->further[number - 1];
}

/* A constant of an array: {"dtype": "float32", "shape": [2], "values": [1.5, 2]}, or the
 * elements' bytes as little-endian numbers, "base64": "AADAPwAAAEA=". */
static void call_tensor(pl_recorded_t *r)
{
    static const pl_recorded_word_t dtypes[] = {{"float32", PL_F32},
                                                {"int32", PL_I32},
                                                {"int64", PL_I64},
                                                {NULL, 0}};
    pl_shape_t shape = {0};
    int dtype = PL_F32;
    size_t count = 0;
    pl_recorded_word(r, "dtype", true, dtypes, false, &dtype);
    pl_recorded_shape(r, "shape", true, &shape);
    const size_t width = dtype == PL_I64 ? 8 : 4;
    const void *bytes = pl_recorded_base64(r, "base64", &count), *values = bytes;
    if (bytes && count % width)
        pl_recorded_fail(r, "base64 has %zu bytes, but an element has %zu", count, width);
    count /= width;
    if (!bytes && dtype == PL_F32)
        values = pl_recorded_reals(r, "values", true, &count);
    else if (!bytes && dtype == PL_I32)
        values = pl_recorded_ints(r, "values", true, &count);
    else if (!bytes)
        values = pl_recorded_i64s(r, "values", true, &count);
    int64_t elements = 1;
    for (int k = 0; k < shape.rank && !r->error.code; k++)
        if (shape.dim[k] < 1 || __builtin_mul_overflow(elements, shape.dim[k], &elements))
            pl_recorded_fail(r, "shape takes sizes of at least 1, which fit in memory");
    if (!r->error.code && (int64_t)count != elements)
        pl_recorded_fail(r, "values takes %lld numbers, which shape has, not %zu",
                         (long long)elements, count);
    if (!pl_recorded_is_ready(r))
        return;
    const bool is_list = dtype == PL_F32 && !bytes;         /* of doubles */
    r->result.node = pl_tensor(r->g, is_list ? PL_F64 : (pl_dtype_t)dtype, shape, values);
}

#include "engine/tensor/record_functions.inc"

enum { FUNCTIONS = sizeof recorded_functions / sizeof *recorded_functions };

bool pl_recorded_init(pl_recorded_t *r, const char *name, bool required,
                      pl_init_rule_t *value)
{
    const json_t *given = json_object_get(r->arguments, name);
    void *at = json_object_iter((json_t *)given);
    if (!required && (!given || json_is_null(given)))
        return false;
    if (json_object_size(given) != 1) {
        pl_recorded_fail(r,
                         "%s takes an initialization, such as {\"normal\": [0.02]}, "
                         "which pl.normal(0.02) is in Python",
                         name);
        return false;
    }
    const char *rule = json_object_iter_key(at);
    const json_t *outer = r->arguments;
    size_t count;
    r->arguments = given;
    const double *numbers = pl_recorded_reals(r, rule, true, &count);
    r->arguments = outer;
    if (numbers)
        init_read(r, rule, numbers, count, value);
    return numbers && !r->error.code;
}

/* ---- One call ---- */

static const pl_recorded_function_t *function_find(const char *name)
{
    for (int k = 0; k < FUNCTIONS; k++)
        if (!strcmp(recorded_functions[k].name, name))
            return &recorded_functions[k];
    return NULL;
}

static bool has_argument(const pl_recorded_function_t *function, const char *name)
{
    const char *const *argument = function->argument;
    while (*argument && strcmp(*argument + (**argument == '@'), name))
        argument++;
    return *argument;
}

/* The function of a call with the arguments that it names; NULL: the call is wrong. */
static const pl_recorded_function_t *call_open(pl_recorded_t *r, const json_t *call)
{
    const char *name = json_string_value(json_array_get(call, 0)), *key;
    char known[PL_SUGGESTION_TEXT];
    pl_suggestion_t nearest;
    json_t *value;
    r->function = NULL;
    r->at = json_string_value(json_array_get(call, 2));
    r->arguments = json_array_get(call, 1);
    if (!name || !json_is_object(r->arguments) || json_array_size(call) > 3) {
        pl_recorded_fail(r,
                         "a call is [\"linear\", {\"name\": \"fc1\", …}, \"net.py:3\"]");
        return NULL;
    }
    const pl_recorded_function_t *function = function_find(name);
    pl_suggestion_init(&nearest, name);
    for (int k = 0; k < FUNCTIONS && !function; k++)
        pl_suggestion_offer(&nearest, recorded_functions[k].name);
    if (!function) {
        pl_recorded_fail(r, "there is no graph function \"%.60s\": %s", name,
                         pl_suggestion_text(&nearest, known));
        return NULL;
    }
    r->function = function->name;
    json_object_foreach((json_t *)r->arguments, key, value) {
        if (has_argument(function, key))
            continue;
        pl_suggestion_init(&nearest, key);
        for (int k = 0; function->argument[k]; k++)
            pl_suggestion_offer(&nearest,
                                function->argument[k] + (*function->argument[k] == '@'));
        pl_recorded_fail(r, "it has no argument \"%.60s\": %s", key,
                         pl_suggestion_text(&nearest, known));
        return NULL;
    }
    return function;
}

/* An error of the graph begins with the call. */
static void error_take(pl_recorded_t *r)
{
    if (r->error.code || !r->g || !r->g->error.code)
        return;
    pl_recorded_fail(r, "%s", r->g->error.text);
    r->error.code = r->g->error.code;
}

static bool value_append(pl_recorded_t *r, pl_recorded_value_t value)
{
    if (PL_GROW(r->value, r->value_count, r->value_capacity) != PL_OK) {
        pl_no_memory(&r->error);
        return false;
    }
    r->value[r->value_count++] = value;
    return true;
}

/* -> whether the call is right; its value is appended. */
static bool call_make(pl_recorded_t *r, const json_t *call)
{
    const pl_recorded_function_t *function = call_open(r, call);
    if (!function)
        return false;
    r->result = (pl_recorded_value_t){.kind = function->kind, .node = PL_NO_NODE};
    function->call(r);
    while (r->held_count)
        pl_free(r->held[--r->held_count]);
    error_take(r);
    return !r->error.code && value_append(r, r->result);
}

/* ---- A record ---- */

/* Marks the calls that make what an argument refers to. */
static void references_mark(const json_t *value, int below, bool *is_needed)
{
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t k = 0; k < count; k++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, k) : value;
        const json_int_t number = json_is_integer(one) ? json_integer_value(one) : -1;
        if (number >= 0 && number < below)
            is_needed[number] = true;
    }
}

/* Marks the calls on which outputs depend, from the last to the first. */
static void outputs_mark(const json_t *calls, bool *is_needed)
{
    for (int k = (int)json_array_size(calls) - 1; k >= 0; k--) {
        const json_t *call = json_array_get(calls, (size_t)k);
        const char *name = json_string_value(json_array_get(call, 0));
        const pl_recorded_function_t *function = name ? function_find(name) : NULL;
        if (!function || !strcmp(name, "output") || !strncmp(name, "scope", 5))
            is_needed[k] = true;                            /* the unknown fails there */
        for (int i = 0; is_needed[k] && function && function->argument[i]; i++)
            if (*function->argument[i] == '@')
                references_mark(json_object_get(json_array_get(call, 1),
                                                function->argument[i] + 1),
                                k, is_needed);
    }
}

static void calls_make(pl_recorded_t *r, const json_t *calls, pl_stage_t stage)
{
    const size_t count = json_array_size(calls);
    bool *is_needed = NULL;
    if (count > PL_OPS_MAX) {
        pl_recorded_fail(r, "a record has at most %d calls", PL_OPS_MAX);
        return;
    }
    if (stage == PL_PREDICT && r->g) {
        if (!(is_needed = pl_alloc_array(count, sizeof *is_needed))) {
            pl_no_memory(&r->error);
            return;
        }
        outputs_mark(calls, is_needed);
    }
    bool is_right = true;
    for (size_t k = 0; is_right && k < count; k++)
        is_right = !is_needed || is_needed[k]
                       ? call_make(r, json_array_get(calls, k))
                       : value_append(r, (pl_recorded_value_t){.is_skipped = true});
    pl_free(is_needed);
}

/* The calls of a stage; NULL: the record has another form. */
static const json_t *calls_of(const json_t *record, pl_stage_t stage)
{
    static const char *const names[] = {"train", "validate", "test", "predict"};
    const json_t *calls = json_is_object(record) ? json_object_get(record, names[stage])
                                                 : record;
    return json_is_array(calls) && json_array_size(calls) ? calls : NULL;
}

int pl_record_apply(pl_graph_t *g, const json_t *record, pl_stage_t stage,
                    pl_error_t *err)
{
    pl_recorded_t r = {.g = g};
    const json_t *calls = calls_of(record, stage);
    if (calls)
        calls_make(&r, calls, stage);
    else
        pl_recorded_fail(&r, "a record is a list of calls, or an object with the lists "
                             "\"train\", \"validate\", \"test\" and \"predict\"");
    pl_free(r.value);
    return r.error.code ? pl_fail(err, r.error.code, "%s", r.error.text) : PL_OK;
}

/* ---- The recorder ---- */

/* Graphs for two numbers of samples: a size that differs depends on the batch. */
enum { BATCHES = 2 };
static const int64_t batch_sizes[BATCHES] = {48, 80};

struct pl_recorder {
    pl_model_t *model[BATCHES];
    pl_graph_t *g[BATCHES];
    pl_recorded_t calls[BATCHES];
};

pl_recorder_t *pl_recorder_new(const pl_field_t *fields, int field_count,
                               pl_stage_t stage, pl_error_t *err)
{
    if (!fields || field_count < 0 || stage < PL_TRAIN || stage > PL_PREDICT) {
        pl_fail(err, PL_EINVAL, "a recorder takes the fields of a sample and a stage");
        return NULL;
    }
    pl_recorder_t *recorder = pl_alloc(sizeof *recorder);
    if (!recorder) {
        pl_no_memory(err);
        return NULL;
    }
    for (int k = 0; k < BATCHES; k++) {
        recorder->model[k] = pl_model_new(err);
        recorder->g[k] = recorder->model[k]
                             ? pl_graph_new(recorder->model[k], stage, fields,
                                            field_count, batch_sizes[k], err)
                             : NULL;
        recorder->calls[k].g = recorder->g[k];
        if (!recorder->g[k]) {
            pl_recorder_free(recorder);
            return NULL;
        }
    }
    return recorder;
}

void pl_recorder_free(pl_recorder_t *recorder)
{
    for (int k = 0; recorder && k < BATCHES; k++) {
        pl_free(recorder->calls[k].value);
        pl_graph_free(recorder->g[k]);
        pl_model_free(recorder->model[k]);
    }
    pl_free(recorder);
}

/* The sizes of a node, -1 where they depend on the batch. */
static json_t *sizes_of(pl_recorder_t *recorder, int call)
{
    json_t *sizes = json_array();
    const pl_shape_t a = pl_shape_of(recorder->g[0], recorder->calls[0].value[call].node),
                     b = pl_shape_of(recorder->g[1], recorder->calls[1].value[call].node);
    for (int k = 0; k < a.rank; k++)
        json_array_append_new(sizes, json_integer(a.dim[k] == b.dim[k] ? a.dim[k] : -1));
    return sizes;
}

/* Writes a number of the errors of both graphs, "192 x batch" for 9216 and 15360, and
 * goes behind it; false: it does not follow the batch. */
static bool number_join(const char **a, const char **b, char text[static 32])
{
    char *after[BATCHES];
    const long long n = strtoll(*a, &after[0], 10), m = strtoll(*b, &after[1], 10),
                    factor = n / batch_sizes[0];
    if (n != m && (n != factor * batch_sizes[0] || m != factor * batch_sizes[1]))
        return false;
    if (n == m)
        snprintf(text, 32, "%lld", n);
    else if (factor == 1)
        snprintf(text, 32, "batch");
    else
        snprintf(text, 32, "%lld x batch", factor);
    *a = after[0];
    *b = after[1];
    return true;
}

/* The errors of both graphs as one: sizes in which they differ are those of the batch. */
static void errors_join(const pl_error_t *error, const pl_error_t *other, pl_error_t *err)
{
    const char *a = error->text, *b = other->text;
    char text[PL_ERROR_TEXT] = "", number[32];
    size_t length = 0;
    while (*a && *b && length + sizeof number < sizeof text) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            if (!number_join(&a, &b, number))
                break;
            length += (size_t)snprintf(text + length, sizeof number, "%s", number);
        } else if (*a == *b) {
            text[length++] = *a++;
            b++;
        } else {
            break;
        }
    }
    text[length] = '\0';
    pl_fail(err, error->code, "%s%s", text, a);
}

char *pl_recorder_call(pl_recorder_t *recorder, const char *call, pl_error_t *err)
{
    if (!recorder || !call) {
        pl_fail(err, PL_EINVAL, "a recorder takes a call, not NULL");
        return NULL;
    }
    json_t *parsed = pl_json_value(call, strlen(call), err);
    if (!parsed)
        return NULL;
    bool is_right = true;
    for (int k = 0; k < BATCHES; k++) {
        pl_recorded_t *r = &recorder->calls[k];
        is_right &= !r->error.code && call_make(r, parsed);
        r->at = r->function = NULL;
        r->arguments = NULL;
    }
    json_decref(parsed);
    if (!is_right) {
        const pl_error_t *error = &recorder->calls[0].error,
                         *other = &recorder->calls[1].error;
        errors_join(error->code ? error : other, other, err);
        return NULL;
    }
    const int number = recorder->calls[0].value_count - 1;
    const pl_recorded_value_t *value = &recorder->calls[0].value[number];
    json_t *answer = pl_json_with(json_object(), "value", json_integer(number));
    if (value->kind == PL_RECORDED_METRIC)
        answer = pl_json_with(answer, "kind", json_string("metric"));
    if (value->kind == PL_RECORDED_NODE) {
        const pl_dtype_t dtype = recorder->g[0]->value[value->node.id].dtype;
        answer = pl_json_with(answer, "kind", json_string("node"));
        answer = pl_json_with(answer, "shape", sizes_of(recorder, number));
        answer = pl_json_with(answer, "dtype", json_string(pl_dtype_name(dtype)));
    }
    return pl_json_to_text(answer, err);
}

int pl_recorder_check(const pl_recorder_t *recorder, pl_error_t *err)
{
    if (!recorder)
        return pl_fail(err, PL_EINVAL, "there is no recorder");
    const pl_error_t *error = &recorder->calls[0].error;
    return error->code ? pl_fail(err, error->code, "%s", error->text)
                       : pl_graph_check(recorder->g[0], err);
}

/* ---- The module ---- */

typedef struct graph {
    const char *calls;                                      /* JSON */
} graph_t;

static const pl_option_t graph_options[] = {
    PL_JSON(graph_t, calls,
            "the calls of graph functions, in order, or a list of them for each stage"),
    PL_OPTIONS_END,
};

static const char *graph_check(const void *self, pl_error_t *err)
{
    const graph_t *m = self;
    json_t *record = pl_json_value(m->calls, strlen(m->calls), err);
    bool is_right = record;
    for (int stage = PL_TRAIN; is_right && stage <= PL_PREDICT; stage++)
        is_right = pl_record_apply(NULL, record, (pl_stage_t)stage, err) == PL_OK;
    json_decref(record);
    return is_right ? NULL : "calls";
}

static void graph_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const graph_t *m = self;
    pl_error_t err;
    json_t *record = pl_json_value(m->calls, strlen(m->calls), &err);
    if (!record || pl_record_apply(g, record, stage, &err) != PL_OK)
        pl_fail(&g->error, err.code, "%s", err.text);       /* it has its own place */
    json_decref(record);
}

const pl_module_ops_t pl_graph_module = {
    .name = "graph",
    .help = "a graph that a program in another language has described",
    .size = sizeof(graph_t),
    .options = graph_options,
    .check = graph_check,
    .step = graph_step,
};
