/* samples.c - tests of the parts of a sample: several inputs, weights, lengths */
#include <math.h>
#include <stdlib.h>
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
 * as many times as it counts. */
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

/* Sentences of 2 to 9 words as "spoken"; as "padded" all of them in 9, with a mask
 * for the module. */
enum { SENTENCES = 37, WORDS = 9 };

static int64_t spoken[SENTENCES * WORDS], offset[SENTENCES + 1], said[SENTENCES * WORDS];
static int64_t padded[SENTENCES][WORDS], padded_said[SENTENCES][WORDS];
static float there[SENTENCES][WORDS];

static void put_sentences(void)
{
    for (int i = 0; i < SENTENCES; i++) {
        int length = 2 + (i * 5) % (WORDS - 1);
        offset[i + 1] = offset[i] + length;
        for (int t = 0; t < WORDS; t++) {
            padded[i][t] = t < length ? (i * 3 + t * t) % 5 : 0;
            padded_said[i][t] = t < length ? (padded[i][t] + length) % 5 : -1;
            there[i][t] = t < length;
            if (t < length) {
                spoken[offset[i] + t] = padded[i][t];
                said[offset[i] + t] = padded_said[i][t];
            }
        }
    }
    const pl_arrays_t vary = {.samples = SENTENCES,
                              .field_count = 2,
                              .field = {{"x", PL_I64, PL_SHAPE(PL_VARIES)},
                                        {"y", PL_I64, PL_SHAPE(PL_VARIES)}},
                              .data = {spoken, said},
                              .offset = offset,
                              .padding = {0, -1}};
    const pl_arrays_t fixed = {.samples = SENTENCES,
                               .field_count = 3,
                               .field = {{"x", PL_I64, PL_SHAPE(WORDS)},
                                         {"y", PL_I64, PL_SHAPE(WORDS)},
                                         {"mask", PL_F32, PL_SHAPE(WORDS)}},
                               .data = {padded, padded_said, there}};
    pl_memory_arrays("spoken", &vary, NULL);
    pl_memory_arrays("padded", &fixed, NULL);
}

/* Each word sees all that are there, or all before it. */
typedef struct listening {
    bool causal, masked;
} listening_t;

static const pl_option_t listening_options[] = {
    PL_BOOL(listening_t, causal, "false", "words see those before them"),
    PL_BOOL(listening_t, masked, "true", "words see no padding, by the mask"),
    PL_OPTIONS_END,
};

static void listening_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const listening_t *listening = self;
    pl_node_t words = pl_embedding(g, "words", pl_input(g, "x"), 5, 8, pl_normal(0.5));
    pl_node_t mask = pl_input(g, "mask");                   /* [B, T] */
    int64_t B = pl_dim(g, words, 0), T = pl_dim(g, words, 1);
    const pl_attention_options_t seen = {.causal = listening->causal,
                                         .mask = listening->masked ? &mask : NULL};
    pl_node_t heads = pl_permute(g, pl_reshape(g, words, PL_SHAPE(B, T, 2, 4)),
                                 (int[]){0, 2, 1, 3});
    pl_node_t received = pl_attention(g, heads, heads, heads, &seen);
    received = pl_reshape(g, pl_permute(g, received, (int[]){0, 2, 1, 3}),
                          PL_SHAPE(B, T, 8));
    pl_node_t logits = pl_linear(g, "say", pl_add(g, words, received), 5);
    pl_output(g, "logits", logits);
    const pl_cross_entropy_options_t ignored = {.has_ignore = true, .ignore_index = -1};
    if (stage != PL_PREDICT)
        pl_loss(g, pl_cross_entropy(g, logits, pl_input(g, "y"), &ignored));
}

static const pl_module_ops_t listening = {.name = "listening",
                                          .size = sizeof(listening_t),
                                          .options = listening_options,
                                          .step = listening_step};

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
    ok(isfinite(rig_metric(alone, "train_loss")), "and the loss is the others'");
    rig_free(&a);
    const rig_result_t *parts = fit_source(&b, "weighing", "weighed",
                                           "\"batch_size\": 3, \"shuffle\": false");
    is_text(parts->status, "ok", "nor are those that are ragged");
    rig_free(&b);
}

/* What is padded counts nothing: neither in the loss nor in what others attend to. */
static void padded_samples_train_as_unpadded_ones(void)
{
    put_sentences();
    for (int buckets = 1; buckets <= 8; buckets += 7) {
        char data[64];
        rig_t *a, *b;
        snprintf(data, sizeof data, "\"batch_size\": 64, \"buckets\": %d", buckets);
        const rig_result_t *vary = fit_source(&a, "listening", "spoken", data);
        const rig_result_t *fixed = fit_source(&b, "listening", "padded",
                                               "\"batch_size\": 64");
        is_text(vary->status, "ok", "%d buckets: %s", buckets, vary->error.text);
        ok(buckets == 1 ? vary->global_step == 20
                        : vary->global_step > 60 && vary->global_step <= 160,
           "%d steps: one for each bucket in an epoch", (int)vary->global_step);
        double distance = fabs(rig_metric(vary, "train_loss_epoch")
                               - rig_metric(fixed, "train_loss_epoch"));
        if (buckets == 1)
            ok(distance < 1e-6 && rig_distance(vary, fixed) < 1e-6,
               "the loss differs by %g, the weights by %g", distance,
               rig_distance(vary, fixed));
        rig_free(&a);
        rig_free(&b);
    }
}

/* In one step, however many batches its samples come in; the last has no padding at
 * all. */
static void check_buckets(const char *module)
{
    static const char *const data[] = {"\"buckets\": 1, \"batch_size\": 64",
                                       "\"buckets\": 4, \"batch_size\": 64",
                                       "\"buckets\": 8, \"batch_size\": 4"};
    double loss[3];
    for (int k = 0; k < 3; k++) {
        static char dataset[256];
        snprintf(dataset, sizeof dataset,
                 "{\"name\": \"memory\", \"source\": \"spoken\", %s}", data[k]);
        rig_t *rig = rig_new(.module = module, .dataset = dataset,
                             .optimizer = "{\"name\": \"sgd\", \"lr\": 0.5}",
                             .trainer = "\"max_epochs\": 3, "
                                        "\"accumulate_grad_batches\": 100");
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "ok", "%s: %s", data[k], result->error.text);
        loss[k] = rig_metric(result, "train_loss");
        rig_free(&rig);
    }
    ok(fabs(loss[0] - loss[1]) < 1e-6 && fabs(loss[0] - loss[2]) < 1e-6,
       "%s: %g, %g and %g", module, loss[0], loss[1], loss[2]);
}

static void buckets_change_no_loss(void)
{
    put_sentences();
    check_buckets("\"listening\"");
    check_buckets("{\"name\": \"listening\", \"causal\": true}");
    check_buckets("{\"name\": \"listening\", \"causal\": true, \"masked\": false}");
}

static void the_order_of_buckets_depends_on_the_seed_alone(void)
{
    static const char data[] = "\"buckets\": 4, \"batch_size\": 5, \"workers\": 3, "
                               "\"prefetch\": 9",
                      other[] = "\"buckets\": 4, \"batch_size\": 5, \"prefetch\": 1";
    rig_t *a, *b;
    put_sentences();
    const rig_result_t *one = fit_source(&a, "listening", "spoken", data);
    const rig_result_t *two = fit_source(&b, "listening", "spoken", other);
    is_text(one->status, "ok", "trained: %s", one->error.text);
    ok(rig_same_bits(one, two), "readers and how far they read ahead change no bit");
    rig_free(&a);
    rig_free(&b);
}

static void samples_that_vary_are_predicted_in_their_order(void)
{
    put_sentences();
    rig_t *rig = rig_new(.module = "\"listening\"",
                         .dataset = "{\"name\": \"memory\", \"source\": \"spoken\", "
                                    "\"batch_size\": 8}",
                         .trainer = "\"max_epochs\": 1");
    char *weights = strdup(rig_fit(rig)->run_dir);
    const rig_result_t *vary = rig_predict(rig, weights);
    size_t count = vary->output_count ? vary->output[0].count : 0;
    float *logits = malloc(count * sizeof *logits + 1);
    if (count)
        memcpy(logits, vary->output[0].data, count * sizeof *logits);
    rig_free(&rig);
    rig = rig_new(.module = "\"listening\"",
                  .dataset = "{\"name\": \"memory\", \"source\": \"padded\", "
                             "\"batch_size\": 8}");
    const rig_result_t *fixed = rig_predict(rig, weights);
    bool same = count > 0 && fixed->output_count == 1 && fixed->output[0].count == count;
    for (size_t i = 0; same && i < count; i++)
        same = logits[i] == fixed->output[0].data[i];
    ok(same, "all padded to the longest: %s", fixed->error.text);
    free(logits);
    rig_free(&rig);
    free(weights);
}

int main(void)
{
    static const pl_registration_t components[] = {{"module", &pair},
                                                   {"module", &weighing},
                                                   {"module", &valuing},
                                                   {"module", &listening},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    run(a_module_may_have_several_inputs);
    run(a_weight_of_two_counts_as_two_samples);
    run(a_batch_that_counts_nothing_changes_nothing);
    run(padded_samples_train_as_unpadded_ones);
    run(buckets_change_no_loss);
    run(the_order_of_buckets_depends_on_the_seed_alone);
    run(samples_that_vary_are_predicted_in_their_order);
    return tap_done();
}
