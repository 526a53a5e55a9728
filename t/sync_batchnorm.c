/* sync_batchnorm.c - tests of trainer.sync_batchnorm: batch norms of several ranks are
 * those of one with all samples */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "far.h"
#include "formula.h"
#include "rig_runs.h"
#include "tap.h"
#include "tensor/graph.h"
#include "within_step.h"

#define SYNC "\"sync_batchnorm\": true, "

static const char *const devices[] = {"fake", "cpu"};
#define DEVICES 2

/* ---- Modules ---- */

static void loss_of(pl_graph_t *g, pl_node_t x, pl_stage_t stage)
{
    x = pl_linear(g, "out", x, 3);
    pl_output(g, "logits", x);
    if (stage != PL_PREDICT)
        pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static void rows_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    pl_node_t x = pl_batch_norm(g, "norm0", pl_input(g, "x"), 0.1, 1e-5);
    x = pl_linear(g, "fc1", x, 8);
    x = pl_relu(g, pl_batch_norm(g, "norm1", x, 0.1, 1e-5));
    x = pl_linear(g, "fc2", x, 5);
    loss_of(g, pl_tanh(g, pl_batch_norm(g, "norm2", x, 0.3, 1e-3)), stage);
}

static const pl_module_ops_t rows = {.name = "rows", .size = 1, .step = rows_step};

/* Six numbers are a picture of two rows. */
static void pictures_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    const pl_conv_options_t conv = {.kernel = 3, .padding = 1, .no_bias = true};
    pl_node_t x = pl_reshape(g, pl_input(g, "x"), PL_SHAPE(-1, 1, 2, 3));
    x = pl_conv2d(g, "conv1", x, 7, &conv);
    x = pl_relu(g, pl_batch_norm(g, "norm1", x, 0.1, 1e-5));
    x = pl_conv2d(g, "conv2", x, 4, &conv);
    x = pl_tanh(g, pl_batch_norm(g, "norm2", x, 0.1, 1e-5));
    loss_of(g, pl_reshape(g, x, PL_SHAPE(-1, 24)), stage);
}

static const pl_module_ops_t pictures = {.name = "pictures",
                                         .size = 1,
                                         .step = pictures_step};

/* With weights by formula, because PyTorch has the same. */
static pl_node_t weighed(pl_graph_t *g, const char *name, pl_node_t x, int64_t units,
                         double seed)
{
    enum { MAX = 64 };
    double values[MAX];
    const pl_shape_t shape = PL_SHAPE(units, pl_dim(g, x, 1));
    formula_wave(pl_elements(shape), seed, -1, 1, values);
    pl_node_t first = pl_vector(g, values, (int)pl_elements(shape));
    return pl_matmul(g, x,
                     pl_add(g, pl_param(g, name, shape, pl_zeros()),
                            pl_reshape(g, first, shape)),
                     false, true);
}

static void known_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = weighed(g, "w1", pl_input(g, "x"), 8, 1);
    x = pl_relu(g, pl_batch_norm(g, "norm1", x, 0.1, 1e-5));
    x = pl_reshape(g, x, PL_SHAPE(-1, 2, 2, 2));
    x = pl_reshape(g, pl_batch_norm(g, "norm2", x, 0.3, 1e-3), PL_SHAPE(-1, 8));
    x = weighed(g, "w2", x, 3, 2);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static const pl_module_ops_t known = {.name = "known", .size = 1, .step = known_step};

/* Values whose squares would lose their differences. */
static void far_off_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    pl_node_t x = pl_add(g, pl_input(g, "x"), pl_scalar(g, 4096));
    loss_of(g, pl_batch_norm(g, "norm", x, 1, 1e-5), stage);
}

static const pl_module_ops_t far_off = {.name = "far_off",
                                        .size = 1,
                                        .step = far_off_step};

static const char *const modules[] = {"\"rows\"", "\"pictures\""};
#define MODULES 2

/* ---- Runs of one and of several ranks ---- */

/* Weights are parameters and running statistics. */
static void ranks_normalise_by_the_batch_of_all(void)
{
    for (int k = 0; k < DEVICES * MODULES; k++) {
        const char *device = devices[k / MODULES], *module = modules[k % MODULES];
        if (!rig_has(device))
            return;
        rig_result_t *one = rig_ranks(1, 12, SYNC "\"max_epochs\": 3",
                                      .accelerator = device, .module = module,
                                      .samples = 48, .data = "\"val_split\": 0.25");
        for (int ranks = 2; ranks <= 3; ranks++) {
            rig_result_t *many = rig_ranks(ranks, 12 / ranks, SYNC "\"max_epochs\": 3",
                                           .accelerator = device, .module = module,
                                           .samples = 48, .data = "\"val_split\": 0.25");
            ranks_differ_by(one, many, 1e-5, device);
            is_near(rig_metric(many, "val_loss"), rig_metric(one, "val_loss"), 1e-5,
                    "%s of %d ranks", module, ranks);
            rig_result_free(many);
        }
        rig_result_free(one);
    }
}

/* ---- Batches that are not even ---- */

/* In float64: of two values a batch norm leaves the signs, and of their gradients
 * nothing but what rounding makes of them. */
#define EXACT SYNC "\"precision\": \"64-true\", "

/* A last batch of two: of three ranks one has nothing. */
static void samples_that_do_not_come_out_even_count_once(void)
{
    static const int samples[] = {38, 14, 27};
    for (int k = 0; k < 3 * MODULES && rig_has("cpu"); k++) {
        const char *module = modules[k % MODULES];
        rig_result_t *one = rig_ranks(1, 12, EXACT "\"max_epochs\": 2",
                                      .accelerator = "cpu", .module = module,
                                      .samples = samples[k / MODULES]);
        for (int ranks = 2; ranks <= 4; ranks++) {
            char what[40];
            rig_result_t *many = rig_ranks(ranks, 12 / ranks, EXACT "\"max_epochs\": 2",
                                           .accelerator = "cpu", .module = module,
                                           .samples = samples[k / MODULES]);
            snprintf(what, sizeof what, "%d samples, %d ranks", samples[k / MODULES],
                     ranks);
            ranks_differ_by(one, many, 1e-6, what);
            rig_result_free(many);
        }
        rig_result_free(one);
    }
}

/* Each has statistics of its own, as one of one rank. */
static void batches_may_come_in_parts(void)
{
    for (int parts = 2; parts <= 3 && rig_has("cpu"); parts++) {
        char more[120];
        snprintf(more, sizeof more,
                 EXACT "\"max_epochs\": 3, \"accumulate_grad_batches\": %d", parts);
        rig_result_t *one = rig_ranks(1, 12, more, .accelerator = "cpu",
                                      .module = "\"rows\"", .samples = 38);
        for (int ranks = 2; ranks <= 3; ranks++) {
            rig_result_t *many = rig_ranks(ranks, 12 / ranks, more, .accelerator = "cpu",
                                           .module = "\"rows\"", .samples = 38);
            ranks_differ_by(one, many, 1e-6, "batches in parts");
            rig_result_free(many);
        }
        rig_result_free(one);
    }
}

static void a_single_value_over_all_ranks_is_refused(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_t *rig = rig_new(.accelerator = devices[k], .module = "\"rows\"",
                             .samples = 13, .data = "\"batch_size\": 4",
                             .trainer = SYNC "\"devices\": 3");
        const rig_result_t *result = rig_fit(rig);
        is_text(pl_code_name(result->error.code), "PL_EINVAL", "%s", devices[k]);
        like(result->error.text, "more than one value.*all ranks together have 1",
             "it says why: %s", result->error.text);
        rig_free(&rig);
        rig_result_t *two = rig_ranks(2, 1, SYNC "\"max_epochs\": 1",
                                      .accelerator = devices[k], .module = "\"rows\"",
                                      .samples = 14);
        is_int(two->global_step, 7, "one of each rank is enough");
        rig_result_free(two);
    }
}

/* ---- Numbers ---- */

static double list_differs(const json_t *want, const float *got, size_t count)
{
    double worst = json_array_size(want) == count ? 0 : INFINITY;
    for (size_t k = 0; k < count && isfinite(worst); k++)
        worst = fmax(worst,
                     fabs(json_number_value(json_array_get(want, k)) - (double)got[k]));
    return worst;
}

static void check_against_torch(const rig_result_t *result, json_t *data)
{
    const char *name;
    json_t *want;
    const rig_series_t loss = rig_series(result, "train_loss");
    json_object_foreach(data, name, want) {
        const rig_tensor_t *t = rig_find(result->weight, result->weight_count, name);
        float got[256];
        for (int k = 0; k < loss.count; k++)
            got[k] = (float)loss.value[k];
        const double off = !strcmp(name, "loss")
                               ? list_differs(want, got, (size_t)loss.count)
                           : t ? list_differs(want, t->data, t->count)
                               : INFINITY;
        ok(off < 2e-5, "%s is what PyTorch has: %g", name, off);
    }
}

static void ranks_train_as_torch_does_with_whole_batches(void)
{
    char path[4096];
    json_error_t why;
    snprintf(path, sizeof path, "%s/t/data/sync_batchnorm.json",
             getenv("top_srcdir") ? getenv("top_srcdir") : "..");
    json_t *data = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    ok(data != NULL, "t/data/sync_batchnorm.json can be read");
    for (int ranks = 1; ranks <= 3 && rig_has("cpu"); ranks++) {
        rig_result_t *result = rig_ranks(ranks, 12 / ranks, SYNC "\"max_epochs\": 2",
                                         .accelerator = "cpu", .module = "\"known\"",
                                         .samples = 38, .data = "\"shuffle\": false",
                                         .optimizer = "{\"name\": \"sgd\", \"lr\": 0.5}");
        check_against_torch(result, data);
        rig_result_free(result);
    }
    json_decref(data);
}

static void other_types_are_normalised_alike(void)
{
    static const struct {
        const char *name;
        double within;
    } precision[] = {
        {"\"bf16-mixed\"", 0.02},
        {"{\"name\": \"16-mixed\", \"init_scale\": 64}", 0.01},
        {"\"bf16-true\"", 0.05},
    };
    for (int k = 0; k < 3; k++) {
        char more[120];
        snprintf(more, sizeof more, SYNC "\"max_epochs\": 1, \"precision\": %s",
                 precision[k].name);
        three_train_as_one(precision[k].within, more, .module = "\"pictures\"");
    }
}

/* What is left is what rounding a mean to float32 makes of it. */
static void means_may_be_large(void)
{
    if (!rig_has("cpu"))
        return;
    rig_result_t *one = rig_ranks(1, 24, SYNC "\"max_steps\": 1", .accelerator = "cpu",
                                  .module = "\"far_off\"", .samples = 24),
                 *three = rig_ranks(3, 8, SYNC "\"max_steps\": 1", .accelerator = "cpu",
                                    .module = "\"far_off\"", .samples = 24);
    const rig_tensor_t *want = rig_find(one->weight, one->weight_count,
                                        "norm.running_var"),
                       *got = rig_find(three->weight, three->weight_count,
                                       "norm.running_var");
    double worst = want && got ? 0 : INFINITY;
    for (int k = 0; k < RIG_FEATURES && isfinite(worst); k++)
        worst = fmax(worst, fabs((double)(want->data[k] - got->data[k])));
    ok(worst < 5e-4 && want->data[0] > 0.1, "variances around 4096 are right: %g", worst);
    rig_result_free(one);
    rig_result_free(three);
}

/* ---- Bits ---- */

static void the_bits_are_the_same_whatever_moves_them(void)
{
    bits_are_the_same_whatever_moves_them(
        "\"pictures\"", SYNC "\"max_epochs\": 3, \"accumulate_grad_batches\": 2");
}

static void processes_train_as_threads_do(void)
{
    processes_have_the_bits_of_threads("\"rows\"", SYNC "\"max_epochs\": 3", 26);
}

static void one_sample_in_all_ranks_has_no_variance(void)
{
    for (int k = 0; k < 2 && rig_has("cpu"); k++) {
        rig_t *rig = far_new(.launcher = k ? "\"spawn\"" : "\"inline\"", .ranks = 2,
                             .samples = 25,
                             .rig = {.accelerator = "cpu",
                                     .module = "\"rows\"",
                                     .trainer = SYNC "\"max_epochs\": 3"});
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "25 samples leave one: %s", result->error.text);
        rig_free(&rig);
    }
}

/* How many replays of a run waited for a collective. */
static int collectives(json_t *stream)
{
    int reported = 0;
    size_t k;
    json_t *message;
    json_array_foreach(stream, k, message)
        reported += json_integer_value(
                        json_object_get(json_object_get(message, "fields"), "collective"))
                    > 0;
    json_decref(stream);
    return reported;
}

static void nothing_changes_without_in_graph_collectives(void)
{
    static const struct {
        const char *module;
        int ranks;
        const char *sync;
        int collectives;                               /* of 2 ranks in each of 4 steps */
    } runs[] = {{NULL, 2, SYNC, 0},
                {"\"rows\"", 1, SYNC, 0},
                {"\"rows\"", 2, "\"sync_batchnorm\": false, ", 0},
                {"\"rows\"", 2, SYNC, 2 * 4 * (3 + 2)}};
    for (int k = 0; k < 4 && rig_has("cpu"); k++) {
        char more[120];
        snprintf(more, sizeof more, "%s\"max_epochs\": 1", runs[k].sync);
        rig_result_t *plain = rig_ranks(runs[k].ranks, 4, "\"max_epochs\": 1",
                                        .accelerator = "cpu", .module = runs[k].module,
                                        .samples = runs[k].ranks * 16);
        rig_result_t *sync = rig_ranks(runs[k].ranks, 4, more, .accelerator = "cpu",
                                       .module = runs[k].module, .stream = true,
                                       .samples = runs[k].ranks * 16);
        is_int(collectives(rig_stream()), runs[k].collectives,
               "so many in-graph collectives");
        ok(rig_same_bits(plain, sync) == !runs[k].collectives, "and weights accordingly");
        rig_result_free(plain);
        rig_result_free(sync);
    }
}

/* Once more of it is trained there are more collectives. */
static void parameters_may_be_frozen_for_a_while(void)
{
    static const char *const ways[] = {
        "", ", \"strategy\": {\"name\": \"ddp\", \"bucket_mb\": 0.000001}"};
    for (int k = 0; k < 2; k++) {
        char trainer[160];
        snprintf(trainer, sizeof trainer, SYNC "\"max_epochs\": 3%s", ways[k]);
        three_train_as_one(1e-5, trainer, .module = "\"rows\"",
                           .callbacks = "[{\"name\": \"finetuning\", "
                                        "\"freeze\": \"norm0.* fc1.* norm1.* fc2.*\", "
                                        "\"epochs\": [1, 2], "
                                        "\"unfreeze\": \"fc2.*; *\"}]");
    }
}

int main(void)
{
    static const pl_registration_t components[] = {{"module", &rows},
                                                   {"module", &pictures},
                                                   {"module", &known},
                                                   {"module", &far_off},
                                                   PL_REGISTRATIONS_END};
    far_init(components);
    run(ranks_normalise_by_the_batch_of_all);
    run(samples_that_do_not_come_out_even_count_once);
    run(batches_may_come_in_parts);
    run(a_single_value_over_all_ranks_is_refused);
    run(ranks_train_as_torch_does_with_whole_batches);
    run(other_types_are_normalised_alike);
    run(means_may_be_large);
    run(the_bits_are_the_same_whatever_moves_them);
    run(processes_train_as_threads_do);
    run(one_sample_in_all_ranks_has_no_variance);
    run(nothing_changes_without_in_graph_collectives);
    run(parameters_may_be_frozen_for_a_while);
    return tap_done();
}
