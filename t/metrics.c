/* metrics.c - tests of metrics: how exact they are, classes without samples, mistakes
 *
 * metric_values.c compares their values with those of libraries. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/loops/metrics.h"
#include "accelerators/reference/reference.h"
#include "base/random.h"
#include "formula.h"
#include "rig.h"
#include "tap.h"
#include "tensor/graph.h"

enum { SAMPLES = 61 };

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
               {PL_METRIC_MCC, 0},          {PL_METRIC_KAPPA, 0},
               {PL_METRIC_HAMMING, 0.625},  {PL_METRIC_FBETA, 3.0 / 7}};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        const pl_metric_sums_t sums = {all[k].kind, PL_MACRO, confusion, 9, 3, 1};
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
    double middle, spread, noise; /* of targets, x - target */
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
    const pl_metric_sums_t made = {PL_METRIC_R2, PL_MACRO, sums + 2, 18, 18, 0};
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
    pl_graph_t *g = pl_graph_new(NULL, PL_VALIDATE, fields, 2, SCORED, NULL);
    pl_node_t s = pl_input(g, "s"), y = pl_input(g, "y");
    pl_log(g, "auroc", pl_auroc(g, s, y, bins, NULL), PL_ON_EPOCH);
    pl_log(g, "ap", pl_average_precision(g, s, y, bins, NULL), PL_ON_EPOCH);
    pl_reference_replay_t replay = {.input = {score, is_hit}, .metrics = (void *)sums};
    memset(sums, 0, sizeof sums);
    pl_reference_replay(g, &replay, NULL);
    for (int k = 0, from = 0; k < 2; from += (int)g->fetch[k++].sums) {
        const pl_metric_sums_t made = {
            g->fetch[k].metric,          PL_MACRO, sums + from, (size_t)g->fetch[k].sums,
            (size_t)g->fetch[k].columns, 0};
        json_t *value = NULL;
        pl_metric_value(&made, &value, NULL);
        area[k] = json_number_value(value);
        json_decref(value);
    }
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

static void too_many_curves(pl_graph_t *g)
{
    pl_roc(g, pl_input(g, "x"), pl_input(g, "y"), 0, NULL);
}

static void a_beta_of_zero(pl_graph_t *g)
{
    pl_fbeta(g, pl_input(g, "x"), pl_input(g, "y"), 0, NULL);
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
    like(mistake(too_many_curves), "300 curves are too many.*32.*PL_MICRO", "curves");
    like(mistake(a_beta_of_zero), "beta above 0, got 0", "beta");
    like(mistake(a_metric_as_loss), "the loss cannot be a metric", "a metric is no loss");
}

int main(void)
{
    static const pl_registration_t components[] = {{"module", &given},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    far_make();
    run(classes_without_samples_count_once_they_are_predicted);
    run(r2_of_targets_far_from_zero_keeps_its_digits);
    run(r2_of_equal_targets_is_one_or_zero);
    run(areas_are_off_by_no_more_than_is_said);
    run(mistakes_are_reported);
    return tap_done();
}
