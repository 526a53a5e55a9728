/* metrics.c - tests of metrics from the graph to the value: engine/tensor/metrics.c and
 * actors/loops/metrics.c */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/loops/metrics.h"
#include "base/alloc.h"
#include "base/random.h"
#include "files.h"
#include "formula.h"
#include "accelerators/reference/reference.h"
#include "rig.h"
#include "tap.h"
#include "tensor/graph.h"

enum { CLASSES = 4, SAMPLES = 61, SUMS = 4096 };

static json_t *data;                                        /* t/data/metrics.json */

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

static void describe(pl_graph_t *g)
{
    pl_node_t logits = pl_input(g, "logits"), scores = pl_input(g, "scores"),
              y = pl_input(g, "y"), x = pl_input(g, "x"), target = pl_input(g, "target");
    const pl_cross_entropy_options_t ignore = {.has_ignore = true, .ignore_index = -1};
    const pl_classes_options_t o = {.has_ignore = true, .ignore_index = -1};
    const int64_t bins = json_integer_value(json_object_get(data, "bins"));
    pl_loss_t loss = pl_cross_entropy(g, logits, y, &ignore);
    pl_loss(g, loss);
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

static pl_graph_t *graph_of(int64_t batch)
{
    const pl_field_t fields[] = {{"logits", PL_F32, PL_SHAPE(CLASSES)},
                                 {"scores", PL_F32, PL_SHAPE(CLASSES)},
                                 {"y", PL_I64, {0}},
                                 {"is_two", PL_I64, {0}},
                                 {"x", PL_F32, {0}},
                                 {"target", PL_F32, {0}}};
    pl_error_t err = {0};
    pl_graph_t *g = pl_graph_new(NULL, PL_VALIDATE, fields, 6, batch, &err);
    describe(g);
    ok(pl_graph_check(g, &err) == PL_OK, "described %s", err.text);
    return g;
}

typedef struct batch {
    float logits[SAMPLES * CLASSES], scores[SAMPLES * CLASSES], x[SAMPLES],
        target[SAMPLES];
    int64_t y[SAMPLES], is_two[SAMPLES];
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
}

/* The lines of metric_names, as a strategy makes them. */
static char *names_of(const pl_graph_t *g)
{
    static char text[8192];
    text[0] = '\0';
    for (int k = 0; k < g->fetch_count; k++) {
        const pl_fetch_t *f = &g->fetch[k];
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%s%s\t%d\t%d\t%lld\t%lld\n",
                 f->name, f->when & PL_ON_STEP ? "*" : "", f->metric, f->average,
                 (long long)f->sums, (long long)f->columns);
    }
    return text;
}

/* Adds what a batch comes to. */
static void add_batch(pl_metrics_t *metrics, int from, int count)
{
    static batch_t b;
    static double sums[SUMS];
    pl_graph_t *g = graph_of(count);
    pl_error_t err = {0};
    batch_fill(&b, from, count);
    memset(sums, 0, sizeof sums);
    pl_reference_replay_t replay = {.input = {b.logits, b.scores, b.y, b.is_two, b.x,
                                              b.target},
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
    if (!json_is_array(want))
        is_near(got ? json_number_value(got) : NAN, json_number_value(want), 1e-6,
                "%s equals scikit-learn's", name);
    else
        ok(json_equal(got, (json_t *)want), "%s equals scikit-learn's", name);
}

static void check_all(const pl_metrics_t *metrics)
{
    json_t *got = json_object(), *want = json_object_get(data, "expected"), *value, *one;
    const char *name;
    char full[96];
    size_t k;
    is_int(pl_metrics_put(metrics, PL_METRICS_OF_PASS, got, NULL), PL_OK, "values made");
    json_object_foreach(want, name, value) {
        snprintf(full, sizeof full, "val_%s", name);
        if (strstr(name, "_classes") && json_is_array(value)) {
            json_array_foreach(value, k, one) {
                snprintf(full, sizeof full, "val_%s_%zu", name, k);
                check_value(json_object_get(got, full), full, one);
            }
        } else {
            check_value(json_object_get(got, full), full, value);
        }
    }
    json_decref(got);
}

static void values_of_one_batch_equal_scikit_learn(void)
{
    pl_metrics_t metrics = {0};
    add_batch(&metrics, 0, SAMPLES);
    check_all(&metrics);
    pl_metrics_release(&metrics);
}

static void batches_and_ranks_change_nothing(void)
{
    pl_metrics_t rank[2] = {{0}, {0}};
    add_batch(&rank[0], 0, 16);
    add_batch(&rank[1], 16, 16);
    add_batch(&rank[0], 32, 16);
    add_batch(&rank[1], 48, 13);
    pl_metrics_add(&rank[0], (pl_bytes_t){rank[1].sum, rank[1].size * sizeof(double)});
    check_all(&rank[0]);
    pl_metrics_release(&rank[0]);
    pl_metrics_release(&rank[1]);
}

static void a_metric_without_samples_has_no_value(void)
{
    pl_metrics_t metrics = {0};
    add_batch(&metrics, 0, 16);
    json_t *got = json_object();
    pl_metrics_clear(&metrics);
    pl_metrics_put(&metrics, PL_METRICS_OF_PASS, got, NULL);
    is_int(json_object_size(got), 0, "after it was cleared there is none");
    add_batch(&metrics, 4, 1);                              /* an ignored one */
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
    add_batch(&metrics, 0, 16);
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

/* Of three classes: class 1 is predicted and has no samples, class 2 has neither. */
static void classes_without_samples_count_once_they_are_predicted(void)
{
    static const double confusion[9] = {3, 1, 0, 0, 0, 0, 0, 0, 0};
    /* torchmetrics 1.9, multiclass_accuracy and so on of preds 0 0 0 1, target 0 0 0 0 */
    static const struct {
        pl_metric_kind_t kind;
        double want;
    } all[] = {{PL_METRIC_ACCURACY, 0.375}, {PL_METRIC_PRECISION, 0.5},
               {PL_METRIC_RECALL, 0.375},   {PL_METRIC_F1, 3.0 / 7},
               {PL_METRIC_JACCARD, 0.375},  {PL_METRIC_SPECIFICITY, 0.375},
               {PL_METRIC_MCC, 0},          {PL_METRIC_KAPPA, 0}};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        const pl_metric_sums_t sums = {all[k].kind, PL_MACRO, confusion, 9, 3};
        json_t *value = NULL;
        pl_metric_value(&sums, &value, NULL);
        is_near(json_number_value(value), all[k].want, 1e-12,
                "kind %d equals torchmetrics'", (int)all[k].kind);
        json_decref(value);
    }
}

/* ---- r2 of targets far from 0 ---- */

static const struct {
    const char *name;
    double middle, spread, noise;                           /* of targets, x - target */
    double want;
} far[] = {
    /* 1 - Sum (x - y)^2 / Sum (y - mean)^2 of fractions, with the formula's numbers from
       t/data/formula.py in float32; sklearn.metrics.r2_score in float64 gives the same.
       torchmetrics in float64 cancels itself: 0.588889 and 0.709010 for the second and
       the third. */
    {"thousands", 1e4, 1, 0.25, 0.928608003894793},
    {"millions", 1e6, 0.1, 0.05, 0.588589135982501},
    {"negative", -3e6, 2, 1, 0.7091349239826141},
    {"near", 0, 1, 0.5, 0.7145942599888518},
};
enum { FAR = sizeof far / sizeof *far };

static float far_x[FAR][SAMPLES], far_target[FAR][SAMPLES];

static void far_make(void)
{
    double y[SAMPLES], noise[SAMPLES];
    formula_wave(SAMPLES, 1, -1, 1, y);
    formula_wave(SAMPLES, 2, -1, 1, noise);
    for (int k = 0; k < FAR; k++) {
        for (int i = 0; i < SAMPLES; i++) {
            far_target[k][i] = (float)(far[k].middle + far[k].spread * y[i]);
            far_x[k][i] = (float)((double)far_target[k][i] + far[k].noise * noise[i]);
        }
        const pl_arrays_t arrays = {.samples = SAMPLES,
                                    .field_count = 2,
                                    .field = {{"x", PL_F32, PL_SHAPE(1)},
                                              {"target", PL_F32, PL_SHAPE(1)}},
                                    .data = {far_x[k], far_target[k]}};
        pl_memory_arrays(far[k].name, &arrays, NULL);
    }
}

/* Logs r2 of the samples as they are; its loss is about a bias alone. */
static void given_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = pl_input(g, "x"), zeros = pl_scale(g, x, 0);
    pl_loss(g, pl_mse(g, pl_linear(g, "fc", zeros, 1), zeros));
    pl_log(g, "r2", pl_r2(g, x, pl_input(g, "target")), PL_ON_EPOCH);
}

static const pl_module_ops_t given = {.name = "given", .size = 1, .step = given_step};

static void check_r2_of_runs(const char *accelerator, const char *precision, int ranks)
{
    for (int k = 0; k < FAR; k++) {
        char trainer[128], dataset[128];
        snprintf(trainer, sizeof trainer,
                 "\"precision\": \"%s\", \"devices\": %d, \"max_epochs\": 1", precision,
                 ranks);
        snprintf(dataset, sizeof dataset,
                 "{\"name\": \"memory\", \"source\": \"%s\", \"batch_size\": 7}",
                 far[k].name);
        rig_t *rig = rig_new(.accelerator = accelerator, .module = "\"given\"",
                             .trainer = trainer, .dataset = dataset);
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "ok", "%s in %s on %d ranks: %s", far[k].name, precision,
                ranks, result->error.text);
        is_near(rig_metric(result, "train_r2"), far[k].want, 1e-6,
                "r2 equals the exact value");
        rig_free(&rig);
    }
}

static void r2_of_targets_far_from_zero_keeps_its_digits(void)
{
    static const char *const precisions[] = {"32-true", "bf16-mixed", "64-true"};
    if (!rig_has("cpu"))
        return;
    for (int k = 0; k < 3; k++)
        for (int ranks = 1; ranks <= 2; ranks++)
            check_r2_of_runs("cpu", precisions[k], ranks);
}

static double r2_of(const float *x, const float *target, int64_t samples, bool *has_value)
{
    const pl_field_t fields[] = {{"x", PL_F32, {0}}, {"target", PL_F32, {0}}};
    double sums[20] = {0};
    pl_error_t err = {0};
    pl_graph_t *g = pl_graph_new(NULL, PL_VALIDATE, fields, 2, samples, &err);
    pl_node_t node = pl_input(g, "x");
    pl_loss(g, pl_mse(g, node, node));
    pl_log(g, "r2", pl_r2(g, node, pl_input(g, "target")), PL_ON_EPOCH);
    pl_reference_replay_t replay = {.input = {x, target}, .metrics = (void *)sums};
    is_int(pl_reference_replay(g, &replay, &err), PL_OK, "replayed %s", err.text);
    const pl_metric_sums_t made = {PL_METRIC_R2, PL_MACRO, sums + 2, 18, 18};
    json_t *value = NULL;
    pl_metric_value(&made, &value, &err);
    *has_value = json_is_number(value);
    const double r2 = json_number_value(value);
    json_decref(value);
    pl_graph_free(g);
    return r2;
}

/* As sklearn.metrics.r2_score has it. */
static void r2_of_equal_targets_is_one_or_zero(void)
{
    static const float target[] = {0.1f, 0.1f, 0.1f}, other[] = {0.1f, 0.2f, 0.1f};
    bool has_value;
    is_near(r2_of(target, target, 3, &has_value), 1, 0, "1 where x equals them");
    ok(has_value, "which is a value");
    is_near(r2_of(other, target, 3, &has_value), 0, 0, "0 where it does not");
    ok(has_value, "which is a value, too");
    r2_of(other, target, 1, &has_value);
    ok(!has_value, "of one sample it has none");
}

/* ---- areas of scores between the bins ---- */

enum { SCORED = 500 };

static float score[SCORED];
static int64_t is_hit[SCORED];

/* Hits have higher scores, mostly. */
static void scores_make(void)
{
    for (uint64_t k = 0; k < SCORED; k++) {
        score[k] = (float)(pl_random_u64(7, k) >> 40) / 0x1p24f;
        const double noise = (double)(pl_random_u64(8, k) >> 40) / 0x1p24 - 0.5;
        is_hit[k] = (double)score[k] + noise > 0.7;
    }
}

/* The area and the average precision of the scores themselves. */
static void areas_exact(double area[2])
{
    int64_t hits = 0, pairs = 0;
    double won = 0, precisions = 0;
    for (int i = 0; i < SCORED; i++) {
        int64_t above = 0, hits_above = 0;
        hits += is_hit[i];
        for (int j = 0; j < SCORED && is_hit[i]; j++) {
            above += score[j] >= score[i];
            hits_above += score[j] >= score[i] && is_hit[j];
            pairs += !is_hit[j];
            won += is_hit[j] ? 0 : (score[i] > score[j]) + 0.5 * (score[i] == score[j]);
        }
        if (is_hit[i])
            precisions += (double)hits_above / (double)above;
    }
    area[0] = won / (double)pairs;
    area[1] = precisions / (double)hits;
}

/* How far paceline.h says they may be off. */
static void areas_bounds(int64_t bins, double bound[2])
{
    static int64_t hits[4096], others[4096];
    int64_t all_hits = 0, all = 0, above = 0;
    memset(hits, 0, sizeof hits);
    memset(others, 0, sizeof others);
    for (int i = 0; i < SCORED; i++) {
        (is_hit[i] ? hits : others)[(int64_t)(score[i] * (float)(bins - 1))]++;
        all_hits += is_hit[i];
        all++;
    }
    bound[0] = bound[1] = 0;
    for (int64_t b = bins; b-- > 0;) {
        const double in = (double)(hits[b] + others[b]);
        above += hits[b] + others[b];
        bound[0] += 0.5 * (double)hits[b] / (double)all_hits * (double)others[b]
                    / (double)(all - all_hits);
        if (above)
            bound[1] += (double)hits[b] / (double)all_hits * in / (double)above;
    }
}

static void areas_binned(int64_t bins, double area[2])
{
    const pl_field_t fields[] = {{"s", PL_F32, PL_SHAPE(1)}, {"y", PL_I64, {0}}};
    static double sums[4 * 4096];
    pl_metrics_t metrics = {0};
    pl_graph_t *g = pl_graph_new(NULL, PL_VALIDATE, fields, 2, SCORED, NULL);
    pl_node_t s = pl_input(g, "s"), y = pl_input(g, "y");
    json_t *got = json_object();
    pl_log(g, "auroc", pl_auroc(g, s, y, bins, NULL), PL_ON_EPOCH);
    pl_log(g, "ap", pl_average_precision(g, s, y, bins, NULL), PL_ON_EPOCH);
    pl_reference_replay_t replay = {.input = {score, is_hit}, .metrics = (void *)sums};
    memset(sums, 0, sizeof sums);
    pl_metrics_name(&metrics, "", names_of(g));
    pl_reference_replay(g, &replay, NULL);
    pl_metrics_add(&metrics, (pl_bytes_t){sums, metrics.size * sizeof *sums});
    pl_metrics_put(&metrics, PL_METRICS_OF_PASS, got, NULL);
    area[0] = json_number_value(json_object_get(got, "auroc"));
    area[1] = json_number_value(json_object_get(got, "ap"));
    json_decref(got);
    pl_metrics_release(&metrics);
    pl_graph_free(g);
}

static void areas_are_off_by_no_more_than_is_said(void)
{
    static const int64_t bins[] = {4, 20, 0, 4096};
    double exact[2], area[2], bound[2], last = 1;
    scores_make();
    areas_exact(exact);
    for (int k = 0; k < 4; k++) {
        const int64_t used = bins[k] ? bins[k] : 200;
        areas_binned(bins[k], area);
        areas_bounds(used, bound);
        ok(fabs(area[0] - exact[0]) <= bound[0] + 1e-9 && bound[0] < last,
           "%d bins: an AUROC of %.5f is %.5f within %.5f", (int)used, exact[0], area[0],
           bound[0]);
        ok(fabs(area[1] - exact[1]) <= bound[1] + 1e-9,
           "an average precision of %.5f is %.5f within %.5f", exact[1], area[1],
           bound[1]);
        last = bound[0];
    }
    ok(fabs(area[0] - exact[0]) < 2e-4 && fabs(area[1] - exact[1]) < 2e-3,
       "with the most there can be it is hardly anything");
}

/* ---- mistakes ---- */

static const char *mistake(void (*make)(pl_graph_t *g))
{
    static pl_error_t err;
    const pl_field_t fields[] = {{"x", PL_F32, PL_SHAPE(300)}, {"y", PL_I64, {0}}};
    pl_graph_t *g = pl_graph_new(NULL, PL_VALIDATE, fields, 2, 8, NULL);
    err = (pl_error_t){0};
    make(g);
    pl_graph_check(g, &err);
    pl_graph_free(g);
    return err.text;
}

static void too_many_classes(pl_graph_t *g)
{
    pl_log(g, "f1", pl_f1(g, pl_input(g, "x"), pl_input(g, "y"), NULL), PL_ON_EPOCH);
}

static void too_many_bins(pl_graph_t *g)
{
    pl_auroc(g, pl_input(g, "x"), pl_input(g, "y"), 5000, NULL);
}

static void too_many_sums(pl_graph_t *g)
{
    pl_log(g, "auroc", pl_auroc(g, pl_input(g, "x"), pl_input(g, "y"), 4096, NULL),
           PL_ON_EPOCH);
}

static void a_metric_as_loss(pl_graph_t *g)
{
    pl_loss(g, pl_r2(g, pl_input(g, "x"), pl_input(g, "x")));
}

static void mistakes_are_reported(void)
{
    like(mistake(too_many_classes), "300 classes are too many.*256", "classes");
    like(mistake(too_many_bins), "5000 bins; 2 to 4096", "bins");
    like(mistake(too_many_sums), "\"auroc\" the step has 2457600 sums", "sums");
    like(mistake(a_metric_as_loss), "the loss cannot be a metric", "a metric is no loss");
}

int main(void)
{
    static const pl_registration_t components[] = {{"module", &given},
                                                   PL_REGISTRATIONS_END};
    json_error_t why;
    rig_init(components);
    far_make();
    data = json_load_file(file_of_tests("data/metrics.json"), 0, &why);
    if (!ok(data != NULL, "t/data/metrics.json can be read"))
        return tap_done();
    run(values_of_one_batch_equal_scikit_learn);
    run(batches_and_ranks_change_nothing);
    run(a_metric_without_samples_has_no_value);
    run(steps_and_epochs_have_names_of_their_own);
    run(classes_without_samples_count_once_they_are_predicted);
    run(r2_of_targets_far_from_zero_keeps_its_digits);
    run(r2_of_equal_targets_is_one_or_zero);
    run(areas_are_off_by_no_more_than_is_said);
    run(mistakes_are_reported);
    json_decref(data);
    return tap_done();
}
