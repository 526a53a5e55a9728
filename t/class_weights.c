/* class_weights.c - tests of the modules mlp and cnn where classes and samples count
 * differently: whole runs against PyTorch, step by step */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "formula.h"
#include "rig.h"
#include "tap.h"

const pl_registration_t *cnn_plugin(void);

enum { SAMPLES = 13, SIDE = 6 };

/* ---- the data of make_class_weights.py ---- */

static float x[SAMPLES * SIDE * SIDE], counts[SAMPLES];
static int64_t y[SAMPLES];

static void put_samples(bool flat, bool weighs)
{
    const pl_shape_t shape = flat ? pl_shape(1, SIDE) : pl_shape(3, 1, SIDE, SIDE);
    double wave[SAMPLES * SIDE * SIDE];
    const int64_t elements = SAMPLES * (flat ? SIDE : SIDE * SIDE);
    formula_wave(elements, 7, -1, 1, wave);
    for (int64_t i = 0; i < elements; i++)
        x[i] = (float)wave[i];
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = (i * i + i / 3) % 3;
        counts[i] = (float)(i % 4) / 2;
    }
    const pl_arrays_t arrays = {.samples = SAMPLES,
                                .field_count = weighs ? 3 : 2,
                                .field = {{"x", PL_F32, shape},
                                          {"y", PL_I64, {0}},
                                          {"weight", PL_F32, {0}}},
                                .data = {x, y, counts},
                                .data_info = "{\"classes\": 3}"};
    pl_memory_arrays("samples", &arrays, NULL);
}

static const rig_result_t *fit_as(rig_t **rig_p, const json_t *want)
{
    const char *name = json_string_value(json_object_get(want, "module"));
    const bool flat = !strcmp(name, "mlp");
    char file[64], module[4400],
        *classes = json_dumps(json_object_get(want, "class_weights"), 0);
    put_samples(flat, json_is_true(json_object_get(want, "weighs")));
    snprintf(file, sizeof file, "data/%s.safetensors", name);
    snprintf(module, sizeof module,
             "{\"name\": \"%s\", %s, \"class_weights\": %s, \"init_from\": \"%s\"}", name,
             flat ? "\"hidden\": [4]" : "\"hidden\": 4, \"channels\": [2]", classes,
             file_of_tests(file));
    *rig_p = rig_new(.module = module,
                     .dataset = "{\"name\": \"memory\", \"source\": \"samples\", "
                                "\"batch_size\": 5, \"shuffle\": false}",
                     .optimizer = "{\"name\": \"sgd\", \"lr\": 0.5}",
                     .trainer = "\"max_epochs\": 3, \"log_every_n_steps\": 1");
    free(classes);
    return rig_fit(*rig_p);
}

/* ---- comparing ---- */

static double worst_of(const json_t *want, size_t count, const double *got)
{
    double worst = json_array_size(want) == count ? 0 : INFINITY;
    for (size_t k = 0; k < count && isfinite(worst); k++)
        worst = tap_larger(worst,
                           fabs(got[k] - json_number_value(json_array_get(want, k))));
    return worst;
}

static double worst_metric(const rig_result_t *result, const char *name,
                           const json_t *want)
{
    const rig_series_t series = rig_series(result, name);
    return worst_of(want, (size_t)series.count, series.value);
}

static double worst_weight(const rig_result_t *result, json_t *want)
{
    const char *name;
    json_t *values;
    double worst = result->weight_count == (int)json_object_size(want) ? 0 : INFINITY;
    json_object_foreach(want, name, values) {
        const rig_tensor_t *t = rig_find(result->weight, result->weight_count, name);
        double got[64];
        if (!t || t->count > 64)
            return INFINITY;
        for (size_t k = 0; k < t->count; k++)
            got[k] = t->data[k];
        worst = tap_larger(worst, worst_of(values, t->count, got));
    }
    return worst;
}

static void trains_as_pytorch(const json_t *want)
{
    rig_t *rig;
    const rig_result_t *result = fit_as(&rig, want);
    double steps = worst_metric(result, "train_loss", json_object_get(want, "steps")),
           epochs = worst_metric(result, "train_loss_epoch",
                                 json_object_get(want, "epochs")),
           weights = worst_weight(result, json_object_get(want, "weights"));
    char *classes = json_dumps(json_object_get(want, "class_weights"), 0);
    ok(steps < 1e-5 && epochs < 1e-5 && weights < 1e-5,
       "%s, classes %s, samples %s: losses of steps differ by %g, of epochs by %g, "
       "weights by %g %s",
       json_string_value(json_object_get(want, "module")), classes,
       json_is_true(json_object_get(want, "weighs")) ? "weighed" : "alike", steps, epochs,
       weights, result->error.text);
    free(classes);
    rig_free(&rig);
}

/* ---- Tests ---- */

static void classes_and_samples_count_as_in_pytorch(void)
{
    json_t *all = json_load_file(file_of_tests("data/class_weights.json"), 0, NULL),
           *want;
    size_t k;
    is_int(json_array_size(all), 12,
           "two modules, three ways to count classes, and two "
           "to count samples");
    json_array_foreach(all, k, want)
        trains_as_pytorch(want);
    json_decref(all);
}

static void there_is_a_weight_for_each_class(void)
{
    static const char *const modules[] = {"mlp", "cnn"};
    for (int k = 0; k < 2; k++) {
        rig_t *rig;
        json_t *two = json_pack("{s:s, s:[i, i]}", "module", modules[k], "class_weights",
                                1, 2);
        const rig_result_t *result = fit_as(&rig, two);
        like(result->error.text,
             "length of class_weights is 2, but the number of classes is 3", "of an %s",
             modules[k]);
        rig_free(&rig);
        json_decref(two);
    }
}

static void weights_of_samples_are_numbers_from_0(void)
{
    static float sample[20][RIG_FEATURES], weight[20];
    static int64_t label[20];
    static const struct {
        float bad;
        const char *text;
    } wrong[] = {{-0.5F, "record 13 .from 0.: field \"weight\" is -0.5;"},
                 {NAN, "record 13 .from 0.: field \"weight\" is -?nan;"},
                 {INFINITY, "record 13 .from 0.: field \"weight\" is inf;"},
                 {0, NULL}};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        for (int i = 0; i < 20; i++) {
            rig_sample(i, sample[i], &label[i]);
            weight[i] = i == 13 ? wrong[k].bad : 1;
        }
        const pl_arrays_t arrays = {.samples = 20,
                                    .field_count = 3,
                                    .field = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                              {"y", PL_I64, {0, {0}}},
                                              {"weight", PL_F32, {0, {0}}}},
                                    .data = {sample, label, weight},
                                    .data_info = "{\"classes\": 3}"};
        pl_memory_arrays("weighed", &arrays, NULL);
        rig_t *rig = rig_new(.accelerator = "cpu", .trainer = "\"max_epochs\": 1",
                             .dataset = "{\"name\": \"memory\", \"source\": \"weighed\", "
                                        "\"batch_size\": 4}");
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, wrong[k].text ? "failed" : "ok", "a weight of %g: %s",
                (double)wrong[k].bad, result->error.text);
        if (wrong[k].text)
            like(result->error.text, wrong[k].text, "is named");
        rig_free(&rig);
    }
}

int main(void)
{
    rig_init(cnn_plugin());
    run(classes_and_samples_count_as_in_pytorch);
    run(there_is_a_weight_for_each_class);
    run(weights_of_samples_are_numbers_from_0);
    return tap_done();
}
