/* samples.c - tests of what a sample is: several inputs, weights */
#include <math.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

/* ---- Modules ---- */

/* Two inputs, of two shapes. */
static void pair_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    pl_node_t left = pl_linear(g, "left", pl_input(g, "left"), 1);
    pl_node_t right = pl_linear(g, "right", pl_flatten(g, pl_input(g, "right"), 1), 1);
    pl_node_t sum = pl_add(g, left, right);
    pl_output(g, "sum", sum);
    if (stage != PL_PREDICT)
        pl_loss(g, pl_mse(g, pl_reshape(g, sum, PL_SHAPE(-1)), pl_input(g, "target")));
}

static pl_node_t logits_of(pl_graph_t *g)
{
    return pl_linear(g, "fc", pl_input(g, "x"), 3);
}

static void weighing_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    static const double classes[] = {1, 2, 0.5};
    pl_node_t class_weights = pl_vector(g, classes, 3), weights;
    pl_cross_entropy_options_t options = {.class_weights = &class_weights};
    if (pl_has_input(g, "weight")) {
        weights = pl_input(g, "weight");
        options.weights = &weights;
    }
    pl_loss(g, pl_cross_entropy(g, logits_of(g), pl_input(g, "y"), &options));
}

static void valuing_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t y = pl_linear(g, "fc", pl_input(g, "x"), 1), x = pl_input(g, "x");
    pl_node_t target = pl_slice(g, x, 1, 0, 1);
    pl_loss(g, pl_has_input(g, "weight")
                   ? pl_weighted_mse(g, y, target, pl_input(g, "weight"))
                   : pl_mse(g, y, target));
}

static const pl_module_ops_t pair = {.name = "pair", .size = 1, .step = pair_step};
static const pl_module_ops_t weighing = {.name = "weighing",
                                         .size = 1,
                                         .step = weighing_step};
static const pl_module_ops_t valuing = {.name = "valuing",
                                        .size = 1,
                                        .step = valuing_step};

/* ---- Data ---- */

enum { SAMPLES = 10 };

static float left[SAMPLES][2], right[SAMPLES][2][2], target[SAMPLES];

static void put_pairs(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < 2; k++)
            left[i][k] = (float)((i * 7 + k * 3) % 5) - 2;
        for (int k = 0; k < 4; k++)
            right[i][k / 2][k % 2] = (float)((i * 3 + k * k) % 7) / 2 - 1;
        target[i] = left[i][0] - 2 * left[i][1] + right[i][1][0];
    }
    const pl_arrays_t arrays = {.samples = SAMPLES,
                                .field_count = 3,
                                .field = {{"left", PL_F32, PL_SHAPE(2)},
                                          {"right", PL_F32, PL_SHAPE(2, 2)},
                                          {"target", PL_F32, {0}}},
                                .data = {left, right, target}};
    pl_memory_arrays("pairs", &arrays, NULL);
}

static float x[2 * SAMPLES][4], weight[2 * SAMPLES];
static int64_t y[2 * SAMPLES];
static float x_twice[2 * SAMPLES][4];
static int64_t y_twice[2 * SAMPLES];

/* Samples that count once, twice or not at all, as "weighed"; and as "twice" each of them
 * as often as it counts. */
static void put_weighed(void)
{
    int copies = 0;
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < 4; k++)
            x[i][k] = (float)((i * 5 + k * 3) % 11) / 4 - 1;
        y[i] = (i * i) % 3;
        weight[i] = (float)(i % 3);
        for (int k = 0; k < i % 3; k++, copies++) {
            memcpy(x_twice[copies], x[i], sizeof x[i]);
            y_twice[copies] = y[i];
        }
    }
    pl_arrays_t arrays = {.samples = SAMPLES,
                          .field_count = 3,
                          .field = {{"x", PL_F32, PL_SHAPE(4)},
                                    {"y", PL_I64, {0}},
                                    {"weight", PL_F32, {0}}},
                          .data = {x, y, weight}};
    pl_memory_arrays("weighed", &arrays, NULL);
    arrays.samples = copies;
    arrays.field_count = 2;
    arrays.data[0] = x_twice;
    arrays.data[1] = y_twice;
    pl_memory_arrays("twice", &arrays, NULL);
}

/* ---- Tests ---- */

static void a_module_may_have_several_inputs(void)
{
    put_pairs();
    rig_t *rig =
        rig_new(.module = "\"pair\"", .trainer = "\"max_epochs\": 200",
                .optimizer = "{\"name\": \"sgd\", \"lr\": 0.05}",
                .dataset =
                    "{\"name\": \"memory\", \"source\": \"pairs\", \"batch_size\": 3}");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "trained: %s", result->error.text);
    const rig_tensor_t *l = rig_find(result->weight, result->weight_count, "left.weight");
    const rig_tensor_t *r = rig_find(result->weight, result->weight_count,
                                     "right.weight");
    ok(l && r && fabsf(l->data[0] - 1) < 1e-2f && fabsf(l->data[1] + 2) < 1e-2f
           && fabsf(r->data[2] - 1) < 1e-2f && fabsf(r->data[3]) < 1e-2f,
       "each has what the data were made of");
    rig_free(&rig);
}

static const rig_result_t *fit_source(rig_t **rig_p, const char *module,
                                      const char *source, const char *data)
{
    static char dataset[256], name[64];
    snprintf(name, sizeof name, "\"%s\"", module);
    snprintf(dataset, sizeof dataset, "{\"name\": \"memory\", \"source\": \"%s\", %s}",
             source, data);
    *rig_p = rig_new(.module = name, .dataset = dataset,
                     .trainer = "\"max_epochs\": 20, \"gradient_clip_val\": 0.5, "
                                "\"log_every_n_steps\": 1",
                     .optimizer = "{\"name\": \"sgd\", \"lr\": 0.3}");
    return rig_fit(*rig_p);
}

static void a_weight_of_two_counts_as_two_samples(void)
{
    static const char *const modules[] = {"weighing", "valuing"};
    put_weighed();
    for (int k = 0; k < 2; k++) {
        rig_t *a, *b;
        const rig_result_t *weighed = fit_source(&a, modules[k], "weighed",
                                                 "\"batch_size\": 10");
        const rig_result_t *twice = fit_source(&b, modules[k], "twice",
                                               "\"batch_size\": 20");
        is_text(weighed->status, "ok", "trained: %s", weighed->error.text);
        double distance = rig_distance(weighed, twice);
        ok(distance < 1e-5, "%s: the weights differ by %g", modules[k], distance);
        distance =
            fabs(rig_metric(weighed, "train_loss") - rig_metric(twice, "train_loss"));
        ok(distance < 1e-5, "the loss by %g", distance);
        rig_free(&a);
        rig_free(&b);
    }
}

/* Sample 0 weighs nothing; alone in its batch it takes no step. */
static void a_batch_that_counts_nothing_changes_nothing(void)
{
    put_weighed();
    rig_t *a, *b;
    const rig_result_t *alone = fit_source(&a, "weighing", "weighed",
                                           "\"batch_size\": 1, \"shuffle\": false");
    is_text(alone->status, "ok", "batches without weight are no fault: %s",
            alone->error.text);
    ok(isfinite(rig_metric(alone, "train_loss")), "and the loss is that of the others");
    rig_free(&a);
    const rig_result_t *parts = fit_source(&b, "weighing", "weighed",
                                           "\"batch_size\": 3, \"shuffle\": false");
    is_text(parts->status, "ok", "nor are those that are ragged");
    rig_free(&b);
}

int main(void)
{
    static const pl_registration_t parts[] = {{"module", &pair},
                                              {"module", &weighing},
                                              {"module", &valuing},
                                              PL_REGISTRATIONS_END};
    rig_init(parts);
    run(a_module_may_have_several_inputs);
    run(a_weight_of_two_counts_as_two_samples);
    run(a_batch_that_counts_nothing_changes_nothing);
    return tap_done();
}
