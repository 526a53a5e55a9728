/* metric_values.c - values of metrics from the graph on equal those of libraries:
 * engine/tensor/metrics.c and actors/loops/metric_value.c */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/loops/metrics.h"
#include "files.h"
#include "accelerators/reference/reference.h"
#include "rig.h"
#include "tap.h"
#include "tensor/graph.h"

enum { CLASSES = 4, LABELS = 3, SAMPLES = 61, SUMS = 8192 };

static json_t *data; /* t/data/metrics.json */

/* ---- the rig: batches of the data through a graph that logs everything ---- */

static pl_average_t average_of(const char *name)
{
    return !strcmp(name, "macro")      ? PL_MACRO
           : !strcmp(name, "micro")    ? PL_MICRO
           : !strcmp(name, "weighted") ? PL_WEIGHTED
                                       : PL_PER_CLASS;
}

static void log_averages(pl_graph_t *g, pl_node_t logits, pl_node_t scores, pl_node_t y)
{
    static const char *const averages[] = {"macro", "micro", "weighted", "classes"};
    const int64_t bins = json_integer_value(json_object_get(data, "bins"));
    char name[48];
    for (int k = 0; k < 4; k++) {
        const pl_classes_options_t o = {.has_ignore = true,
                                        .ignore_index = -1,
                                        .average = average_of(averages[k])};
        const struct {
            const char *name;
            pl_metric_t metric;
        } all[] = {
            {"precision", pl_precision(g, logits, y, &o)},
            {"recall", pl_recall(g, logits, y, &o)},
            {"f1", pl_f1(g, logits, y, &o)},
            {"fbeta", pl_fbeta(g, logits, y, 2, &o)},
            {"hamming", pl_hamming(g, logits, y, &o)},
            {"jaccard", pl_jaccard(g, logits, y, &o)},
            {"specificity", pl_specificity(g, logits, y, &o)},
            {"auroc", pl_auroc(g, scores, y, bins, &o)},
            {"ap", pl_average_precision(g, scores, y, bins, &o)},
        };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            snprintf(name, sizeof name, "%s_%s", all[i].name, averages[k]);
            pl_log(g, name, all[i].metric, PL_ON_EPOCH);
        }
    }
}

typedef void describe_t(pl_graph_t *g);

/* The loss of a run depends on a parameter. */
static void loss_declare(pl_graph_t *g, pl_loss_t loss)
{
    if (g->model) {
        const pl_node_t bias = pl_param(g, "bias", PL_SHAPE(1), pl_zeros());
        loss.sum = pl_add(g, loss.sum, pl_sum(g, pl_scale(g, bias, 0), NULL, 0, false));
    }
    pl_loss(g, loss);
}

static void describe(pl_graph_t *g)
{
    pl_node_t logits = pl_input(g, "logits"), scores = pl_input(g, "scores"),
              y = pl_input(g, "y"), x = pl_input(g, "x"), target = pl_input(g, "target");
    const pl_cross_entropy_options_t ignore = {.has_ignore = true, .ignore_index = -1};
    const pl_classes_options_t o = {.has_ignore = true, .ignore_index = -1};
    const int64_t bins = json_integer_value(json_object_get(data, "bins"));
    pl_loss_t loss = pl_cross_entropy(g, logits, y, &ignore);
    loss_declare(g, loss);
    pl_log(g, "acc", pl_accuracy(g, logits, y, &ignore), PL_ON_EPOCH | PL_ON_STEP);
    pl_log(g, "acc_top", pl_accuracy_top(g, logits, y, 2, &ignore), PL_ON_EPOCH);
    pl_log(g, "acc_classes", pl_accuracy_of_classes(g, logits, y, &o), PL_ON_EPOCH);
    pl_log(g, "confusion", pl_confusion_matrix(g, logits, y, &o), PL_ON_EPOCH);
    pl_log(g, "mse", pl_mse(g, x, target), PL_ON_EPOCH);
    pl_log(g, "rmse", pl_rmse(g, x, target), PL_ON_EPOCH);
    pl_log(g, "mae", pl_mae(g, x, target), PL_ON_EPOCH);
    pl_log(g, "r2", pl_r2(g, x, target), PL_ON_EPOCH);
    pl_log(g, "explained", pl_explained_variance(g, x, target), PL_ON_EPOCH);
    pl_node_t far = pl_add(g, pl_abs(g, target), pl_scalar(g, 1));
    pl_log(g, "mape", pl_mape(g, x, far), PL_ON_EPOCH);
    pl_log(g, "smape", pl_smape(g, x, target), PL_ON_EPOCH);
    pl_log(g, "msle", pl_msle(g, pl_abs(g, x), pl_abs(g, target)), PL_ON_EPOCH);
    pl_log(g, "mcc", pl_mcc(g, logits, y, &o), PL_ON_EPOCH);
    pl_log(g, "kappa", pl_cohen_kappa(g, logits, y, &o), PL_ON_EPOCH);
    pl_log(g, "perplexity", pl_perplexity(loss), PL_ON_EPOCH);
    pl_log(g, "bits", pl_bits_per_byte(g, loss, 1.25), PL_ON_EPOCH);
    log_averages(g, logits, scores, y);
    pl_node_t two = pl_slice(g, scores, -1, 2, 3);
    pl_log(g, "auroc_binary", pl_auroc(g, two, pl_input(g, "is_two"), bins, &o),
           PL_ON_EPOCH);
    pl_log(g, "ap_binary", pl_average_precision(g, two, pl_input(g, "is_two"), bins, &o),
           PL_ON_EPOCH);
}

static void describe_more(pl_graph_t *g)
{
    const pl_node_t logits = pl_input(g, "logits"), scores = pl_input(g, "scores"),
                    y = pl_input(g, "y"), x = pl_input(g, "x"),
                    target = pl_input(g, "target"), is_two = pl_input(g, "is_two"),
                    two = pl_slice(g, scores, -1, 2, 3);
    const pl_classes_options_t o = {.has_ignore = true, .ignore_index = -1};
    const int64_t bins = json_integer_value(json_object_get(data, "bins"));
    loss_declare(g, pl_mse(g, x, target));
    pl_log(g, "pearson", pl_pearson(g, x, target), PL_ON_EPOCH);
    pl_log(g, "concordance", pl_concordance(g, x, target), PL_ON_EPOCH);
    pl_log(g, "ece", pl_calibration_error(g, pl_softmax(g, logits), y, 0, &o),
           PL_ON_EPOCH);
    pl_log(g, "ece_binary", pl_calibration_error(g, two, is_two, 7, &o), PL_ON_EPOCH);
    pl_log(g, "ece_flat",
           pl_calibration_error(g, pl_flatten(g, two, 0), is_two, 7, &o), PL_ON_EPOCH);
    pl_log(g, "roc", pl_roc(g, scores, y, bins, &o), PL_ON_EPOCH);
    pl_log(g, "pr", pl_pr_curve(g, scores, y, bins, &o), PL_ON_EPOCH);
    pl_log(g, "roc_binary", pl_roc(g, two, is_two, bins, &o), PL_ON_EPOCH);
}

/* Several labels of a sample, and the first of them alone. */
static void describe_labels(pl_graph_t *g)
{
    static const char *const averages[] = {"macro", "micro", "weighted", "classes"};
    const pl_node_t said = pl_input(g, "said"), y = pl_input(g, "labels"),
                    logits = pl_slice(g, said, 1, 0, LABELS),
                    scores = pl_slice(g, said, 1, LABELS, 2 * LABELS),
                    of_one = pl_flatten(g, pl_slice(g, logits, 1, 0, 1), 0),
                    one = pl_flatten(g, pl_slice(g, y, 1, 0, 1), 0);
    const pl_cross_entropy_options_t ignore = {.has_ignore = true, .ignore_index = -1};
    pl_classes_options_t o = {.has_ignore = true, .ignore_index = -1};
    const int64_t bins = json_integer_value(json_object_get(data, "bins"));
    char name[48];
    loss_declare(g, pl_mse(g, logits, logits));
    pl_log(g, "acc", pl_accuracy(g, logits, y, &ignore), PL_ON_EPOCH);
    pl_log(g, "confusion", pl_confusion_matrix(g, logits, y, &o), PL_ON_EPOCH);
    pl_log(g, "mcc", pl_mcc(g, logits, y, &o), PL_ON_EPOCH);
    pl_log(g, "f1_binary", pl_f1(g, of_one, one, &o), PL_ON_EPOCH);
    pl_log(g, "kappa_binary", pl_cohen_kappa(g, of_one, one, &o), PL_ON_EPOCH);
    pl_log(g, "confusion_binary", pl_confusion_matrix(g, of_one, one, &o), PL_ON_EPOCH);
    pl_log(g, "auroc_binary",
           pl_auroc(g, pl_flatten(g, pl_slice(g, scores, 1, 0, 1), 0), one, bins, &o),
           PL_ON_EPOCH);
    for (int k = 0; k < 4; k++) {
        o.average = average_of(averages[k]);
        const struct {
            const char *name;
            pl_metric_t metric;
        } all[] = {
            {"acc", pl_accuracy_of_classes(g, logits, y, &o)},
            {"precision", pl_precision(g, logits, y, &o)},
            {"recall", pl_recall(g, logits, y, &o)},
            {"f1", pl_f1(g, logits, y, &o)},
            {"fbeta", pl_fbeta(g, logits, y, 0.5, &o)},
            {"jaccard", pl_jaccard(g, logits, y, &o)},
            {"specificity", pl_specificity(g, logits, y, &o)},
            {"hamming", pl_hamming(g, logits, y, &o)},
            {"auroc", pl_auroc(g, scores, y, bins, &o)},
            {"ap", pl_average_precision(g, scores, y, bins, &o)},
        };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            snprintf(name, sizeof name, "%s_%s", all[i].name, averages[k]);
            pl_log(g, name, all[i].metric, PL_ON_EPOCH);
        }
    }
    o.average = PL_MICRO;
    pl_log(g, "roc_micro", pl_roc(g, scores, y, bins, &o), PL_ON_EPOCH);
}

#define GRAPH_FIELDS \
    {"logits", PL_F32, PL_SHAPE(CLASSES)}, {"scores", PL_F32, PL_SHAPE(CLASSES)}, \
        {"y", PL_I64, {0}}, {"is_two", PL_I64, {0}}, {"x", PL_F32, {0}}, \
        {"target", PL_F32, {0}}, {"labels", PL_I64, PL_SHAPE(LABELS)}, \
    { \
        "said", PL_F32, PL_SHAPE(2 * LABELS) \
    }
enum { FIELDS = 8 };

static pl_graph_t *graph_of(describe_t *described, int64_t batch)
{
    const pl_field_t fields[] = {GRAPH_FIELDS};
    pl_error_t err = {0};
    pl_graph_t *g = pl_graph_new(NULL, PL_VALIDATE, fields, FIELDS, batch, &err);
    described(g);
    ok(pl_graph_check(g, &err) == PL_OK, "described %s", err.text);
    return g;
}

typedef struct batch {
    float logits[SAMPLES * CLASSES], scores[SAMPLES * CLASSES], x[SAMPLES],
        target[SAMPLES];
    int64_t y[SAMPLES], is_two[SAMPLES];
    int64_t labels[SAMPLES * LABELS];
    float said[SAMPLES * 2 * LABELS]; /* logits, scores */
} batch_t;

static double datum(const char *name, int k)
{
    return json_number_value(json_array_get(json_object_get(data, name), (size_t)k));
}

static void batch_fill(batch_t *b, int from, int count)
{
    for (int k = 0; k < count * CLASSES; k++) {
        b->logits[k] = (float)datum("logits", from * CLASSES + k);
        b->scores[k] = (float)datum("scores", from * CLASSES + k);
    }
    for (int k = 0; k < count; k++) {
        b->x[k] = (float)datum("x", from + k);
        b->target[k] = (float)datum("target", from + k);
        b->y[k] = (int64_t)datum("y", from + k);
        b->is_two[k] = b->y[k] < 0 ? -1 : b->y[k] == 2;
    }
    for (int k = 0; k < count * LABELS; k++) {
        b->labels[k] = (int64_t)datum("labels", from * LABELS + k);
        float *said = b->said + k / LABELS * 2 * LABELS + k % LABELS;
        said[0] = (float)datum("label_logits", from * LABELS + k);
        said[LABELS] = (float)datum("label_scores", from * LABELS + k);
    }
}

/* The lines of metric_names, as a strategy makes them. */
static char *names_of(const pl_graph_t *g)
{
    static char text[8192];
    text[0] = '\0';
    for (int k = 0; k < g->fetch_count; k++) {
        const pl_fetch_t *f = &g->fetch[k];
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%s%s\t%d\t%d\t%lld\t%lld\t%g\n",
                 f->name, f->when & PL_ON_STEP ? "*" : "", f->metric, f->average,
                 (long long)f->sums, (long long)f->columns, f->parameter);
    }
    return text;
}

/* Adds what a batch comes to. */
static void add_batch(pl_metrics_t *metrics, describe_t *described, int from, int count)
{
    static batch_t b;
    static double sums[SUMS];
    pl_graph_t *g = graph_of(described, count);
    pl_error_t err = {0};
    batch_fill(&b, from, count);
    memset(sums, 0, sizeof sums);
    pl_reference_replay_t replay = {.input = {b.logits, b.scores, b.y, b.is_two, b.x,
                                              b.target, b.labels, b.said},
                                    .metrics = (void *)sums};
    if (!metrics->count)
        pl_metrics_name(metrics, "val_", names_of(g));
    is_int(pl_reference_replay(g, &replay, &err), PL_OK, "replayed %s", err.text);
    pl_metrics_add(metrics, (pl_bytes_t){sums, metrics->size * sizeof *sums});
    pl_graph_free(g);
}

/* ---- values ---- */

static void check_value(const json_t *got, const char *name, const json_t *want)
{
    if (json_is_number(want))
        is_near(got ? json_number_value(got) : NAN, json_number_value(want), 1e-6,
                "%s equals the library's", name);
    else
        ok(json_equal(got, (json_t *)want), "%s equals the library's", name);
}

/* Whether got has each of the values that are expected, under names with a prefix. */
static void check_values(const json_t *got, const char *prefix, const char *expected)
{
    json_t *want = json_object_get(data, expected), *value, *one;
    const char *name;
    char full[96];
    size_t k;
    json_object_foreach(want, name, value) {
        snprintf(full, sizeof full, "%s%s", prefix, name);
        if (strstr(name, "_classes") && json_is_array(value)) {
            json_array_foreach(value, k, one) {
                snprintf(full, sizeof full, "%s%s_%zu", prefix, name, k);
                check_value(json_object_get(got, full), full, one);
            }
        } else {
            check_value(json_object_get(got, full), full, value);
        }
    }
}

static void check_all(const pl_metrics_t *metrics, const char *expected)
{
    json_t *got = json_object();
    is_int(pl_metrics_put(metrics, PL_METRICS_OF_PASS, got, NULL), PL_OK, "values made");
    check_values(got, "val_", expected);
    json_decref(got);
}

/* What is logged, and where its values are. */
static const struct {
    describe_t *describe;
    const char *expected;
} logged[] = {{describe, "expected"},
              {describe_more, "more"},
              {describe_labels, "of_labels"}};
enum { LOGGED = sizeof logged / sizeof *logged };

static void values_of_one_batch_equal_those_of_libraries(void)
{
    for (int k = 0; k < LOGGED; k++) {
        pl_metrics_t metrics = {0};
        add_batch(&metrics, logged[k].describe, 0, SAMPLES);
        check_all(&metrics, logged[k].expected);
        pl_metrics_release(&metrics);
    }
}

static void batches_and_ranks_change_nothing(void)
{
    for (int k = 0; k < LOGGED; k++) {
        pl_metrics_t rank[2] = {{0}, {0}};
        add_batch(&rank[0], logged[k].describe, 0, 16);
        add_batch(&rank[1], logged[k].describe, 16, 16);
        add_batch(&rank[0], logged[k].describe, 32, 16);
        add_batch(&rank[1], logged[k].describe, 48, 13);
        pl_metrics_add(&rank[0],
                       (pl_bytes_t){rank[1].sum, rank[1].size * sizeof(double)});
        check_all(&rank[0], logged[k].expected);
        pl_metrics_release(&rank[0]);
        pl_metrics_release(&rank[1]);
    }
}

static void logs_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)stage;
    logged[*(const int64_t *)self].describe(g);
}

static const pl_option_t logs_options[] = {
    {"which", PL_OPTION_INT, 0, "0", "0..", "which of the graphs"},
    PL_OPTIONS_END,
};

static const pl_module_ops_t logs = {.name = "logs",
                                     .size = sizeof(int64_t),
                                     .options = logs_options,
                                     .step = logs_step};

/* 61 samples in batches of 7: the last one is short, and one rank has fewer. */
static void runs_on_two_ranks_have_the_values_of_libraries(void)
{
    static batch_t b;
    if (!rig_has("cpu"))
        return;
    batch_fill(&b, 0, SAMPLES);
    const pl_arrays_t arrays = {.samples = SAMPLES,
                                .field_count = FIELDS,
                                .field = {GRAPH_FIELDS},
                                .data = {b.logits, b.scores, b.y, b.is_two, b.x, b.target,
                                         b.labels, b.said}};
    pl_memory_arrays("all", &arrays, NULL);
    for (int k = 0; k < LOGGED; k++)
        for (int ranks = 1; ranks <= 2; ranks++) {
            char module[64], trainer[64];
            snprintf(module, sizeof module, "{\"name\": \"logs\", \"which\": %d}", k);
            snprintf(trainer, sizeof trainer, "\"devices\": %d, \"max_epochs\": 1",
                     ranks);
            rig_t *rig = rig_new(.accelerator = "cpu", .module = module,
                                 .trainer = trainer,
                                 .dataset = "{\"name\": \"memory\", \"source\": "
                                            "\"all\", \"batch_size\": 7}");
            const rig_result_t *result = rig_fit(rig);
            is_text(result->status, "ok", "%s on %d ranks: %s", logged[k].expected, ranks,
                    result->error.text);
            json_t *got = json_loads(result->metrics ? result->metrics : "{}", 0, NULL);
            json_object_set(got, "train_acc",
                            json_object_get(got, k ? "train_acc" : "train_acc_epoch"));
            check_values(got, "train_", logged[k].expected);
            json_decref(got);
            rig_free(&rig);
        }
}

static void a_metric_without_samples_has_no_value(void)
{
    pl_metrics_t metrics = {0};
    add_batch(&metrics, describe, 0, 16);
    json_t *got = json_object();
    pl_metrics_clear(&metrics);
    pl_metrics_put(&metrics, PL_METRICS_OF_PASS, got, NULL);
    is_int(json_object_size(got), 0, "after it was cleared there is none");
    add_batch(&metrics, describe, 4, 1); /* an ignored one */
    pl_metrics_put(&metrics, PL_METRICS_OF_PASS, got, NULL);
    ok(!json_object_get(got, "val_acc") && !json_object_get(got, "val_f1_macro")
           && json_object_get(got, "val_mse"),
       "nor where all is ignored");
    json_decref(got);
    pl_metrics_release(&metrics);
}

static void steps_and_epochs_have_names_of_their_own(void)
{
    pl_metrics_t metrics = {0};
    json_t *got = json_object();
    add_batch(&metrics, describe, 0, 16);
    pl_metrics_put(&metrics, PL_METRICS_OF_STEPS, got, NULL);
    is_int(json_object_size(got), 2, "at steps those wanted there: loss and accuracy");
    json_object_clear(got);
    pl_metrics_put(&metrics, PL_METRICS_OF_EPOCH, got, NULL);
    ok(json_object_get(got, "val_acc_epoch") && json_object_get(got, "val_mse")
           && json_object_get(got, "val_f1_classes_3"),
       "the epoch's under another name where steps have one");
    json_decref(got);
    pl_metrics_release(&metrics);
}

int main(void)
{
    static const pl_registration_t components[] = {{"module", &logs},
                                                   PL_REGISTRATIONS_END};
    json_error_t why;
    rig_init(components);
    data = json_load_file(file_of_tests("data/metrics.json"), 0, &why);
    if (!ok(data != NULL, "t/data/metrics.json can be read"))
        return tap_done();
    run(values_of_one_batch_equal_those_of_libraries);
    run(batches_and_ranks_change_nothing);
    run(runs_on_two_ranks_have_the_values_of_libraries);
    run(a_metric_without_samples_has_no_value);
    run(steps_and_epochs_have_names_of_their_own);
    json_decref(data);
    return tap_done();
}
