/* mlp.c - tests of examples/mlp.c: its tasks, what their losses and metrics are, and what
 * is refused; the width of the target also of the module layers */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

enum { SAMPLES = 60, LABELS = 3 };

static float x[SAMPLES][RIG_FEATURES], labels[SAMPLES * LABELS], value[SAMPLES],
    counts[SAMPLES];
static int64_t class[SAMPLES];

/* Samples with a target: the classes, the labels or the value  [NULL: no target]. */
static void put_samples(const float *target, int width, bool weighs)
{
    pl_arrays_t arrays = {.samples = SAMPLES,
                          .field_count = 1,
                          .field = {{"x", PL_F32, {1, {RIG_FEATURES}}}},
                          .data = {x}};
    if (target) {
        arrays.field[arrays.field_count] =
            (pl_field_t){"y", PL_F32, {width ? 1 : 0, {width}}};
        arrays.data[arrays.field_count++] = target;
    }
    if (weighs) {
        arrays.field[arrays.field_count] = (pl_field_t){"weight", PL_F32, {0}};
        arrays.data[arrays.field_count++] = counts;
    }
    pl_memory_arrays("samples", &arrays, NULL);
}

static void put_classes(void)
{
    const pl_arrays_t arrays = {.samples = SAMPLES,
                                .field_count = 2,
                                .field = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                          {"y", PL_I64, {0}}},
                                .data = {x, class}};
    pl_memory_arrays("samples", &arrays, NULL);
}

static void samples_make(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        rig_sample(i, x[i], &class[i]);
        for (int k = 0; k < LABELS; k++)
            labels[LABELS * i + k] = x[i][k] > x[i][k + 1] ? 1 : 0;
        value[i] = x[i][0] - 2 * x[i][1];
        counts[i] = (float)(i % 3);
    }
}

#define DATA "{\"name\": \"memory\", \"source\": \"samples\", \"batch_size\": 20}"

static rig_t *rig_of(const char *module, const char *trainer)
{
    return rig_new(.accelerator = "cpu", .module = module, .dataset = DATA,
                   .optimizer = "{\"name\": \"adam\", \"lr\": 0.03}", .trainer = trainer);
}

/* ---- Tasks ---- */

static void the_target_chooses_the_task_and_predictions_need_none(void)
{
    static const struct {
        const char *module, *output, *metric;
        const float *target;
        int width, rank;
        double from, to;                                    /* of the metric */
    } tasks[] = {
        {"{\"name\": \"mlp\", \"task\": \"labels\", \"hidden\": [8]}", "labels",
         "train_acc", labels, LABELS, 2, 0.95, 1},
        {"{\"name\": \"layers\", \"layers\": [\"linear 8\", \"relu\", \"linear auto\"], "
         "\"loss\": \"bce\"}",
         "labels", "train_acc", labels, LABELS, 2, 0.95, 1},
        {"{\"name\": \"mlp\", \"hidden\": [8]}", "value", "train_r2", value, 0, 1, 0.95,
         1},
        {"{\"name\": \"mlp\", \"hidden\": [8]}", "value", "train_mae", value, 1, 1, 0,
         0.3},
        {"{\"name\": \"mlp\", \"hidden\": [8]}", "value", "train_mae", labels, LABELS, 2,
         0, 0.3},
        {"{\"name\": \"layers\", \"layers\": [\"linear 8\", \"relu\", \"linear auto\"]}",
         "value", "train_mae", labels, LABELS, 2, 0, 0.3},
    };
    for (size_t k = 0; k < sizeof tasks / sizeof *tasks; k++) {
        put_samples(tasks[k].target, tasks[k].width, false);
        rig_t *rig = rig_of(tasks[k].module, "\"max_epochs\": 60");
        const rig_result_t *result = rig_fit(rig);
        const double metric = rig_metric(result, tasks[k].metric);
        ok(metric >= tasks[k].from && metric <= tasks[k].to, "%s is %g %s",
           tasks[k].metric, metric, result->error.text);
        char *run_dir = strdup(result->run_dir);
        put_samples(NULL, 0, false);
        result = rig_predict(rig, run_dir);
        const rig_tensor_t *output = rig_find(result->output, result->output_count,
                                              tasks[k].output);
        if (ok(output != NULL, "without targets there is an output \"%s\" %s",
               tasks[k].output, result->error.text))
            ok(output->shape.rank == tasks[k].rank
                   && (output->shape.rank == 1 || output->shape.dim[1] == LABELS),
               "as wide as the targets were");
        free(run_dir);
        rig_free(&rig);
    }
}

/* ---- Losses and metrics ---- */

/* The outputs of first weights, which a rate of 0 keeps, and the metrics of a step. */
static float *untrained(const char *module, rig_t **rig_p)
{
    *rig_p = rig_new(.accelerator = "cpu", .module = module,
                     .dataset = "{\"name\": \"memory\", \"source\": \"samples\", "
                                "\"batch_size\": 60, \"shuffle\": false}",
                     .optimizer = "{\"name\": \"sgd\", \"lr\": 0}",
                     .trainer = "\"max_steps\": 1");
    char *run_dir = strdup(rig_fit(*rig_p)->run_dir);
    const rig_result_t *result = rig_predict(*rig_p, run_dir);
    float *copy = NULL;
    if (ok(result->output_count == 1, "a prediction %s", result->error.text)) {
        const size_t bytes = result->output[0].count * sizeof *copy;
        copy = malloc(bytes);
        memcpy(copy, result->output[0].data, bytes);
    }
    free(run_dir);
    return copy;
}

static double metric_of(rig_t *rig, const char *name)
{
    return rig_metric(rig_fit(rig), name);
}

static void labels_are_questions_of_their_own(void)
{
    static const double weight[2][LABELS] = {{1, 1, 1}, {2, 0.5, 1}};
    for (int weighs = 0; weighs < 2; weighs++) {
        rig_t *rig;
        put_samples(labels, LABELS, weighs);
        float *found =
            untrained(weighs
                          ? "{\"name\": \"mlp\", \"task\": \"labels\", \"hidden\": [4], "
                            "\"class_weights\": [2, 0.5, 1]}"
                          : "{\"name\": \"mlp\", \"task\": \"labels\", \"hidden\": [4]}",
                      &rig);
        double sum = 0, all = 0, right = 0;
        for (int i = 0; found && i < SAMPLES * LABELS; i++) {
            const double z = log(found[i] / (1.0 - found[i])), t = labels[i],
                         w = weighs ? counts[i / LABELS] : 1;
            sum += w
                   * (weight[weighs][i % LABELS] * t * log1p(exp(-z))
                      + (1 - t) * log1p(exp(z)));
            all += w;
            right += (z > 0) == (t > 0.5);
        }
        is_near(metric_of(rig, "train_loss"), sum / all, 1e-5,
                "the loss is the binary cross entropy, %s",
                weighs ? "weighted" : "plain");
        is_near(metric_of(rig, "train_acc"), right / (SAMPLES * LABELS), 1e-6,
                "the accuracy is the share of right answers");
        free(found);
        rig_free(&rig);
    }
}

static void values_have_a_mean_squared_error_in_their_scale(void)
{
    double mean = 0, variance = 0;
    for (int i = 0; i < SAMPLES; i++)
        mean += value[i] / (double)SAMPLES;
    for (int i = 0; i < SAMPLES; i++)
        variance += (value[i] - mean) * (value[i] - mean) / SAMPLES;
    for (int weighs = 0; weighs < 2; weighs++) {
        rig_t *rig;
        put_samples(value, 0, weighs);
        float *found = untrained("{\"name\": \"mlp\", \"hidden\": [4]}", &rig);
        double sum = 0, all = 0, apart = 0;
        for (int i = 0; found && i < SAMPLES; i++) {
            const double d = (double)found[i] - value[i], w = weighs ? counts[i] : 1;
            sum += w * d * d;
            all += w;
            apart += fabs(d) / SAMPLES;
        }
        is_near(metric_of(rig, "train_loss"), sum / all / variance, 1e-5,
                "the loss, %s, of values with deviation 1",
                weighs ? "weighted" : "plain");
        is_near(metric_of(rig, "train_mae"), apart, 1e-5,
                "and the mean error in their unit");
        free(found);
        rig_free(&rig);
    }
}

/* ---- Layers ---- */

static void hidden_layers_are_normalized(void)
{
    static const struct {
        const char *norm;
        bool has_weight, has_mean;
    } norms[] = {{"none", false, false}, {"layer", true, false}, {"batch", true, true}};
    put_samples(value, 0, false);
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
        char module[128];
        snprintf(module, sizeof module,
                 "{\"name\": \"mlp\", \"hidden\": [8, 8], \"norm\": \"%s\", \"dropout\": "
                 "0.1}",
                 norms[k].norm);
        rig_t *rig = rig_of(module, "\"max_epochs\": 40");
        const rig_result_t *result = rig_fit(rig);
        const double r2 = rig_metric(result, "train_r2");
        ok(r2 > 0.6 && r2 <= 1, "%s: it learns, r2 is %g %s", norms[k].norm, r2,
           result->error.text);
        ok(norms[k].has_weight
               == (rig_find(result->weight, result->weight_count, "norm2.weight")
                   != NULL),
           "a weight of each hidden layer");
        ok(norms[k].has_mean
               == (rig_find(result->weight, result->weight_count, "norm1.running_mean")
                   != NULL),
           "and running statistics");
        rig_free(&rig);
    }
}

/* Of values, labels and classes. */
static void metrics_are_logged_by_name(void)
{
    static const struct {
        const char *module, *logged;
        const float *target;
        int width;
    } all[] = {
        {"{\"name\": \"mlp\", \"metrics\": [\"rmse\", \"pearson\", \"mape\"]}",
         "rmse pearson mape", value, 0},
        {"{\"name\": \"mlp\", \"task\": \"labels\", \"metrics\": [\"f1 micro\", "
         "\"fbeta 2\", \"hamming\", \"auroc 50 classes\", \"mcc\"]}",
         "f1_micro fbeta_2 hamming auroc_50_classes_2 mcc", labels, LABELS},
        {"{\"name\": \"mlp\", \"classes\": 3, \"metrics\": [\"acc 2\", "
         "\"calibration_error\", \"kappa\", \"perplexity\", \"balanced_acc\"]}",
         "acc_2 calibration_error kappa perplexity balanced_acc", NULL, 0},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        char name[64];
        int length;
        if (all[k].target)
            put_samples(all[k].target, all[k].width, false);
        else
            put_classes();
        rig_t *rig = rig_of(all[k].module, "\"max_steps\": 2");
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "ok", "%s %s", all[k].module, result->error.text);
        for (const char *at = all[k].logged; sscanf(at, " %40s%n", name, &length) == 1;
             at += length) {
            char full[80];
            snprintf(full, sizeof full, "train_%s", name);
            ok(isfinite(rig_metric(result, full)), "%s has a value", full);
        }
        ok(!strstr(result->metrics, "train_acc\"")
               && !strstr(result->metrics, "train_mae"),
           "in place of those of the task");
        rig_free(&rig);
    }
}

/* ---- Mistakes ---- */

static void options_that_do_not_suit_the_target_are_refused(void)
{
    static const struct {
        const char *module, *pattern;
        const float *target;
        int width;
    } wrong[] = {
        {"{\"name\": \"mlp\", \"task\": \"class\"}",
         "module.task is class, but the targets are values: number the classes", value,
         0},
        {"{\"name\": \"mlp\", \"class_weights\": [1, 2]}",
         "class_weights are for classes and labels, and the task is value", value, 0},
        {"{\"name\": \"mlp\", \"task\": \"labels\", \"class_weights\": [1, 2]}",
         "length of class_weights is 2, but the number of labels is 3", labels, LABELS},
        {"{\"name\": \"mlp\", \"task\": \"words\"}", "task", value, 0},
        {"{\"name\": \"mlp\", \"metrics\": [\"r2\", \"f1\"]}",
         "\"f1\" is no metric of values; there are mse, rmse, mae", value, 0},
        {"{\"name\": \"mlp\", \"metrics\": [\"f2\"]}",
         "\"f2\" is no metric of .*; there are acc, .*msle", value, 0},
        {"{\"name\": \"mlp\", \"metrics\": [\"r2 often\"]}",
         "\"often\" of the metric \"r2 often\" is neither a number", value, 0},
        {"{\"name\": \"mlp\", \"metrics\": \"r2\"}", "is a list of names", value, 0},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        put_samples(wrong[k].target, wrong[k].width, false);
        rig_t *rig = rig_new(.accelerator = "cpu", .module = wrong[k].module,
                             .dataset = DATA, .trainer = "\"max_steps\": 1");
        like(rig ? rig_fit(rig)->error.text : rig_error.text, wrong[k].pattern, "%s",
             wrong[k].module);
        rig_free(&rig);
    }
}

static void whole_numbers_without_a_count_of_classes_are_refused(void)
{
    put_classes();
    rig_t *rig = rig_of("\"mlp\"", "\"max_steps\": 1");
    like(rig_fit(rig)->error.text,
         "does not say how many classes there are: set module.classes$", "with the key");
    rig_free(&rig);
}

int main(void)
{
    rig_init(NULL);
    if (!rig_has("cpu"))
        return tap_done();
    samples_make();
    run(the_target_chooses_the_task_and_predictions_need_none);
    run(labels_are_questions_of_their_own);
    run(metrics_are_logged_by_name);
    run(values_have_a_mean_squared_error_in_their_scale);
    run(hidden_layers_are_normalized);
    run(options_that_do_not_suit_the_target_are_refused);
    run(whole_numbers_without_a_count_of_classes_are_refused);
    return tap_done();
}
