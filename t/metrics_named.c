/* metrics_named.c - tests of engine/tensor/metrics_named.c: each name of a run file has
 * the values of libraries */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "rig.h"
#include "tap.h"
#include "tensor/graph.h"

enum { CLASSES = 4, LABELS = 3, SAMPLES = 61, TASKS = 3 };

static json_t *data, *named;                 /* metrics.json, and what is by name there */

static float logits[SAMPLES * CLASSES], label_logits[SAMPLES * LABELS], x[SAMPLES],
    target[SAMPLES];
static int64_t y[SAMPLES], labels[SAMPLES * LABELS];

#define FIELDS \
    {"logits", PL_F32, PL_SHAPE(CLASSES)}, {"label_logits", PL_F32, PL_SHAPE(LABELS)}, \
        {"x", PL_F32, {0}}, {"target", PL_F32, {0}}, {"y", PL_I64, {0}}, \
    { \
        "labels", PL_I64, PL_SHAPE(LABELS) \
    }

static void numbers_fill(const char *name, int count, float *to)
{
    for (int k = 0; k < count; k++)
        to[k] = (float)json_number_value(
            json_array_get(json_object_get(data, name), (size_t)k));
}

static void indices_fill(const char *name, int count, int64_t *to)
{
    for (int k = 0; k < count; k++)
        to[k] =
            json_integer_value(json_array_get(json_object_get(data, name), (size_t)k));
}

static void samples_make(void)
{
    numbers_fill("logits", SAMPLES * CLASSES, logits);
    numbers_fill("label_logits", SAMPLES * LABELS, label_logits);
    numbers_fill("x", SAMPLES, x);
    numbers_fill("target", SAMPLES, target);
    indices_fill("y", SAMPLES, y);
    indices_fill("labels", SAMPLES * LABELS, labels);
    const pl_arrays_t arrays = {.samples = SAMPLES,
                                .field_count = 6,
                                .field = {FIELDS},
                                .data = {logits, label_logits, x, target, y, labels}};
    pl_memory_arrays("named", &arrays, NULL);
}

/* Each task, and what its metrics are computed of. */
static const struct {
    pl_task_t task;
    const char *name, *x, *target;
} tasks[TASKS] = {{PL_TASK_CLASS, "classes", "logits", "y"},
                  {PL_TASK_LABELS, "labels", "label_logits", "labels"},
                  {PL_TASK_VALUE, "values", "x", "target"}};

static void log_named(pl_graph_t *g, int k, const char *names)
{
    const pl_classes_options_t ignored = {.has_ignore = true, .ignore_index = -1};
    pl_node_t of = pl_input(g, tasks[k].x), is = pl_input(g, tasks[k].target);
    if (tasks[k].task == PL_TASK_VALUE) {       /* above 0, as the logarithm needs them */
        of = pl_abs(g, of);
        is = pl_add(g, pl_abs(g, is), pl_scalar(g, 1));
    }
    pl_log_metrics(g, names, tasks[k].task, of, is, &ignored);
}

/* A list of the names that have values for a task, such as ["acc", "acc 2"]. */
static char *names_of(int k)
{
    json_t *list = json_array(), *value;
    const char *name;
    json_object_foreach(json_object_get(named, tasks[k].name), name, value)
        json_array_append_new(list, json_string(name));
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

/* ---- values ---- */

static void logs_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const int k = (int)*(const int64_t *)self;
    const pl_node_t bias = pl_param(g, "bias", PL_SHAPE(1), pl_zeros()),
                    value = pl_input(g, "x");
    char *names = names_of(k);
    pl_loss(g, pl_mse(g, pl_add(g, value, bias), value));
    if (stage == PL_VALIDATE)
        log_named(g, k, names);
    free(names);
}

static const pl_option_t logs_options[] = {
    {"task", PL_OPTION_INT, 0, "0", "0..2", "its number among the tasks"},
    PL_OPTIONS_END,
};

static const pl_module_ops_t logs = {.name = "logs",
                                     .size = sizeof(int64_t),
                                     .options = logs_options,
                                     .step = logs_step};

static void check_value(const json_t *got, const char *name, const json_t *want)
{
    const json_t *value = json_object_get(got, name);
    if (json_is_number(want))
        is_near(value ? json_number_value(value) : NAN, json_number_value(want), 1e-6,
                "%s equals torchmetrics'", name);
    else
        ok(json_equal(value, (json_t *)want), "%s equals torchmetrics'", name);
}

/* The value of a name, or of each class, is logged with _ for a blank. */
static void check_named(const json_t *got, const char *name, const json_t *want)
{
    char full[80];
    json_t *one;
    size_t k;
    snprintf(full, sizeof full, "val_%s", name);
    for (char *blank; (blank = strchr(full, ' '));)
        *blank = '_';
    const size_t length = strlen(full);
    if (!strstr(name, " classes")) {
        check_value(got, full, want);
        return;
    }
    json_array_foreach(want, k, one) {
        snprintf(full + length, sizeof full - length, "_%zu", k);
        check_value(got, full, one);
    }
}

/* 61 samples in batches of 7: the last one is short, and one rank has fewer. */
static void check_task(int k, int ranks)
{
    char module[64], trainer[64];
    const char *name;
    json_t *want;
    snprintf(module, sizeof module, "{\"name\": \"logs\", \"task\": %d}", k);
    snprintf(trainer, sizeof trainer, "\"devices\": %d, \"max_epochs\": 1", ranks);
#define NAMED "{\"name\": \"memory\", \"source\": \"named\"}"
    rig_t *rig = rig_new(.accelerator = "cpu", .module = module, .trainer = trainer,
                         .dataset = "{\"train\": " NAMED ", \"val\": " NAMED
                                    ", \"batch_size\": 7}");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "metrics of %s on %d ranks: %s", tasks[k].name, ranks,
            result->error.text);
    json_t *got = json_loads(result->metrics ? result->metrics : "{}", 0, NULL);
    json_object_foreach(json_object_get(named, tasks[k].name), name, want)
        check_named(got, name, want);
    json_decref(got);
    rig_free(&rig);
}

static void metrics_by_name_equal_those_of_libraries(void)
{
    if (!rig_has("cpu"))
        return;
    for (int k = 0; k < TASKS; k++)
        for (int ranks = 1; ranks <= 2; ranks++)
            check_task(k, ranks);
}

/* ---- names ---- */

/* Whether a name alone, without a number or an average, or with one is among those that
 * have values for a task. */
static bool has_value(int k, const char *name)
{
    const size_t length = strlen(name);
    const char *entry;
    json_t *value;
    json_object_foreach(json_object_get(named, tasks[k].name), entry, value)
        if (!strncmp(entry, name, length) && (!entry[length] || entry[length] == ' '))
            return true;
    return false;
}

/* The error of an unknown name lists all. */
static void each_name_has_a_value_here(void)
{
    const pl_field_t fields[] = {FIELDS};
    for (int k = 0; k < TASKS; k++) {
        pl_error_t err = {0};
        pl_graph_t *g = pl_graph_new(NULL, PL_VALIDATE, fields, 6, 7, NULL);
        int names = 0;
        char *rest = NULL;
        log_named(g, k, "[\"none\"]");
        pl_graph_check(g, &err);
        pl_graph_free(g);
        char *all = strstr(err.text, "there are ");
        for (char *name = all ? strtok_r(all + strlen("there are "), ", ", &rest) : NULL;
             name; name = strtok_r(NULL, ", ", &rest), names++)
            ok(has_value(k, name), "\"%s\" of %s has one", name, tasks[k].name);
        ok(names > 10, "there are %d names for %s", names, tasks[k].name);
    }
}

int main(void)
{
    static const pl_registration_t components[] = {{"module", &logs},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    data = json_load_file(file_of_tests("data/metrics.json"), 0, NULL);
    named = json_object_get(data, "named");
    if (!ok(named != NULL, "t/data/metrics.json can be read"))
        return tap_done();
    samples_make();
    run(metrics_by_name_equal_those_of_libraries);
    run(each_name_has_a_value_here);
    json_decref(data);
    return tap_done();
}
