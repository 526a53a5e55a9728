/* info_nce.c - tests of values of all ranks within a step: pl_all_gather(),
 * pl_all_reduce(), and pl_info_nce() across ranks */
#include <stdio.h>
#include <string.h>

#include "far.h"
#include "rig_runs.h"
#include "tap.h"
#include "tensor/graph.h"
#include "within_step.h"

#define EXACT "\"precision\": \"64-true\", "

static const char *const devices[] = {"fake", "cpu"};
#define DEVICES 2

/* ---- Modules ---- */

/* Two towers, whose temperature is trained too. */
static void towers_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_node_t x = pl_input(g, "x"),
                    scale = pl_param(g, "scale", pl_shape(0), pl_constant(-1));
    const pl_node_t a = pl_linear(g, "a", x, 5),
                    b = pl_linear(g, "b2", pl_tanh(g, pl_linear(g, "b1", x, 6)), 5);
    pl_loss(g, pl_info_nce(g, a, b, pl_exp(g, scale)));
}

static const pl_module_ops_t towers = {.name = "towers", .size = 1, .step = towers_step};

/* Distances from the mean of all rows, and from a mean of ranks. What a rank without
 * samples gives to a mean of ranks is 0, so samples have to come out even. */
static void middle_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_node_t x = pl_tanh(g, pl_linear(g, "fc", pl_input(g, "x"), 3));
    const pl_node_t all = pl_all_gather(g, x);
    const pl_node_t rows = pl_mean(g, all, (int[]){0}, 1, false),
                    mean = pl_all_reduce(g, pl_mean(g, x, (int[]){0}, 1, false),
                                         PL_LOOP_MEAN);
    const pl_node_t away = pl_sub(g, x, pl_add(g, rows, pl_scale(g, mean, 0.5)));
    pl_loss(g, pl_mse(g, away, pl_scale(g, x, 0.1)));
}

static const pl_module_ops_t middle = {.name = "middle", .size = 1, .step = middle_step};

/* Rows that are no samples, and every other sample. */
static void odd_rows_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_node_t x = pl_tanh(g, pl_linear(g, "fc", pl_input(g, "x"), 3)),
                    own = pl_param(g, "own", PL_SHAPE(8, 3), pl_constant(0.5)),
                    half = pl_slice_step(g, x, 0, 0, pl_shape_of(g, x).dim[0], 2),
                    all = pl_all_gather(g, own), others = pl_all_gather(g, half);
    const double count = (double)pl_shape_of(g, others).dim[0];
    const pl_node_t rows = pl_mean(g, all, (int[]){0}, 1, false);
    pl_loss(g, pl_mse(g, pl_sub(g, x, rows), pl_scale(g, x, 0.1)));
    pl_log(g, "rows", pl_pair(pl_scalar(g, count), pl_scalar(g, 1)), PL_ON_EPOCH);
}

static const pl_module_ops_t odd_rows = {.name = "odd_rows",
                                         .size = 1,
                                         .step = odd_rows_step};

/* Which has more rows in a smaller batch. */
static void growing_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_node_t x = pl_linear(g, "fc", pl_input(g, "x"), 3),
                    rows = pl_param(g, "rows", PL_SHAPE(64, 3), pl_constant(1));
    const int64_t many = 64 / pl_shape_of(g, x).dim[0];
    const pl_node_t all = pl_all_gather(g, pl_slice(g, rows, 0, 0, many));
    pl_loss(g, pl_mse(g, pl_sub(g, x, pl_mean(g, all, (int[]){0}, 1, false)), x));
}

static const pl_module_ops_t growing = {.name = "growing",
                                        .size = 1,
                                        .step = growing_step};

/* Which is one thing for a full batch and another for a smaller one. */
static void unsteady_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_node_t x = pl_linear(g, "fc", pl_input(g, "x"), 3);
    pl_loss(g, pl_mse(g, pl_all_reduce(g, x, PL_LOOP_SUM), x));
}

static const pl_module_ops_t unsteady = {.name = "unsteady",
                                         .size = 1,
                                         .step = unsteady_step};

/* Another one on each rank. */
static void differing_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = pl_linear(g, "fc", pl_input(g, "x"), 3);
    if (pl_graph_rank(g) == 1)
        x = pl_add(g, x, pl_all_reduce(g, pl_scalar(g, 1), PL_LOOP_SUM));
    pl_loss(g, pl_mse(g, x, pl_sub(g, x, pl_scalar(g, 1))));
}

static const pl_module_ops_t differing = {.name = "differing",
                                          .size = 1,
                                          .step = differing_step};

/* The sixth call is before the rows of the second step are gathered. */
static void trapped_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t a = pl_linear(g, "a", pl_input(g, "x"), 3);
    const pl_node_t b = pl_linear(g, "b", pl_input(g, "x"), 3);
    a = pl_apply(g, "trap", &a, 1, NULL);
    a = pl_apply(g, "trap", &a, 1, NULL);
    pl_loss(g, pl_info_nce(g, a, b, pl_scalar(g, 0.5)));
}

static const pl_module_ops_t trapped = {.name = "trapped",
                                        .size = 1,
                                        .step = trapped_step};

/* Each row is zero. */
static void still_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_node_t x = pl_linear(g, "fc", pl_input(g, "x"), 3);
    pl_loss(g,
            pl_cosine_embedding(g, pl_scale(g, x, 0), x,
                                pl_sum(g, pl_scale(g, x, 0), (int[]){1}, 1, false), 0));
}

static const pl_module_ops_t still = {.name = "still", .size = 1, .step = still_step};

/* ---- Runs of one and of several ranks ---- */

static void ranks_train_as_one_with_the_whole_batch(void)
{
    static const char *const modules[] = {"\"towers\"", "\"middle\""};
    for (int k = 0; k < 2 * DEVICES; k++) {
        const char *device = devices[k / 2], *module = modules[k % 2];
        if (!rig_has(device))
            return;
        rig_result_t *one = rig_ranks(1, 12, "\"max_epochs\": 3", .accelerator = device,
                                      .module = module, .samples = 48,
                                      .data = "\"val_split\": 0.25");
        for (int ranks = 2; ranks <= 3; ranks++) {
            rig_result_t *many = rig_ranks(ranks, 12 / ranks, "\"max_epochs\": 3",
                                           .accelerator = device, .module = module,
                                           .samples = 48, .data = "\"val_split\": 0.25");
            ranks_differ_by(one, many, 1e-5, device);
            is_near(rig_metric(many, "val_loss"), rig_metric(one, "val_loss"), 1e-5,
                    "%s of %d ranks: val_loss", module, ranks);
            rig_result_free(many);
        }
        rig_result_free(one);
    }
}

/* A last batch of two: of three ranks one has nothing, also of the validation's. */
static void samples_that_do_not_come_out_even_count_once(void)
{
    static const int samples[] = {38, 52, 27};
    for (int k = 0; k < 3 && rig_has("cpu"); k++) {
        rig_result_t *one = rig_ranks(1, 12, EXACT "\"max_epochs\": 2",
                                      .accelerator = "cpu", .module = "\"towers\"",
                                      .samples = samples[k],
                                      .data = "\"val_split\": 0.5");
        for (int ranks = 2; ranks <= 4; ranks++) {
            char what[40];
            rig_result_t *many = rig_ranks(ranks, 12 / ranks, EXACT "\"max_epochs\": 2",
                                           .accelerator = "cpu", .module = "\"towers\"",
                                           .samples = samples[k],
                                           .data = "\"val_split\": 0.5");
            snprintf(what, sizeof what, "%d samples, %d ranks", samples[k], ranks);
            ranks_differ_by(one, many, 1e-6, what);
            is_near(rig_metric(many, "val_loss"), rig_metric(one, "val_loss"), 1e-6,
                    "val_loss");
            rig_result_free(many);
        }
        rig_result_free(one);
    }
}

/* Of 13 samples the last batch of a rank has one, or none. */
static void rows_need_not_be_samples(void)
{
    if (!rig_has("cpu"))
        return;
    rig_result_t *one = rig_ranks(1, 8, EXACT "\"max_epochs\": 2", .accelerator = "cpu",
                                  .module = "\"odd_rows\"", .samples = 13),
                 *two = rig_ranks(2, 4, EXACT "\"max_epochs\": 2", .accelerator = "cpu",
                                  .module = "\"odd_rows\"", .samples = 13);
    ranks_differ_by(one, two, 1e-6, "rows of a parameter");
    is_near(rig_metric(two, "train_rows"), 4, 1e-9, "half of each rank's samples: %g",
            rig_metric(two, "train_rows"));
    rig_result_free(one);
    rig_result_free(two);
}

/* Each is a batch by itself, as one of one rank. */
static void batches_may_come_in_parts(void)
{
    static const char more[] = EXACT "\"max_epochs\": 3, \"accumulate_grad_batches\": 2";
    if (!rig_has("cpu"))
        return;
    rig_result_t *one = rig_ranks(1, 12, more, .accelerator = "cpu",
                                  .module = "\"towers\"", .samples = 62),
                 *three = rig_ranks(3, 4, more, .accelerator = "cpu",
                                    .module = "\"towers\"", .samples = 62);
    ranks_differ_by(one, three, 1e-6, "batches in parts");
    rig_result_free(one);
    rig_result_free(three);
}

static void the_bits_are_the_same_whatever_moves_them(void)
{
    bits_are_the_same_whatever_moves_them("\"towers\"", "\"max_epochs\": 3");
}

static void processes_train_as_threads_do(void)
{
    processes_have_the_bits_of_threads("\"towers\"", "\"max_epochs\": 3", 25);
}

static void half_precision_and_scaled_losses_train_alike(void)
{
    three_train_as_one(0.03, "\"max_epochs\": 2, \"precision\": \"bf16-mixed\"",
                       .module = "\"towers\"");
    three_train_as_one(
        0.01,
        "\"max_epochs\": 2, \"precision\": {\"name\": \"16-mixed\", \"init_scale\": 64}",
        .module = "\"towers\"");
}

static void towers_may_be_frozen_for_a_while(void)
{
    three_train_as_one(1e-5, "\"max_epochs\": 3", .module = "\"towers\"",
                       .callbacks =
                           "[{\"name\": \"finetuning\", \"freeze\": \"a.* scale\", "
                           "\"epochs\": [1], \"unfreeze\": \"*\"}]");
}

static void a_row_of_zeros_has_a_gradient(void)
{
    rig_t *rig = rig_new(.module = "\"still\"", .trainer = "\"max_steps\": 2");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "similarity to zeros: %s", result->error.text);
    rig_free(&rig);
}

/* ---- What cannot be ---- */

static void what_cannot_be_is_refused_in_words(void)
{
    static const struct {
        const char *module, *trainer, *code, *says;
    } wrong[] = {
        {"\"towers\"", "\"deterministic\": \"elastic\"", "PL_EUNSUPPORTED",
         "all_gather.*trainer.strategy.*\"ddp\""},
        {"\"towers\"", "\"devices\": 2, \"strategy\": \"local_sgd\"", "PL_EUNSUPPORTED",
         "all_gather.*trainer.strategy.*\"ddp\""},
        {"\"unsteady\"", "\"devices\": 2", "PL_EUNSUPPORTED",
         "all_reduce.*the same for all sizes"},
        {"\"growing\"", "\"devices\": 2", "PL_EINVAL",
         "all_gather 1 has [0-9]+ rows here, but 16 with a full batch: describe"},
    };
    for (int k = 0; k < 4; k++) {
        rig_t *rig = rig_new(.trainer = wrong[k].trainer, .module = wrong[k].module,
                             .samples = 26, .data = "\"batch_size\": 4");
        const rig_result_t *result = rig_fit(rig);
        is_text(pl_code_name(result->error.code), wrong[k].code, "%s", wrong[k].trainer);
        like(result->error.text, wrong[k].says, "it says why: %s", result->error.text);
        rig_free(&rig);
    }
}

static void ranks_that_describe_something_else_do_not_hang(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_t *rig = rig_new(.accelerator = devices[k], .module = "\"differing\"",
                             .trainer = "\"devices\": 2", .data = "\"batch_size\": 4");
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "the run fails: %s", result->error.text);
        ok(result->seconds < 20, "at once: %g s", result->seconds);
        rig_free(&rig);
    }
}

static void a_rank_that_dies_while_others_wait_for_its_rows_ends_all(void)
{
    a_rank_in_the_trap_ends_all("\"trapped\"", "\"max_epochs\": 100");
}

/* In training and when a batch is evaluated. */
static void a_rank_that_fails_within_a_step_ends_all(void)
{
    static const char *const scripts[] = {"replay 2 of forward_backward fails",
                                          "replay 7 of forward_backward fails",
                                          "replay 1 of forward fails",
                                          "replay 2 of forward fails",
                                          "replay 2 of forward is refused"};
    for (size_t k = 0; k < sizeof scripts / sizeof *scripts; k++) {
        rig_t *rig = rig_new(.trainer = "\"devices\": 3", .script = scripts[k],
                             .module = "\"towers\"",
                             .data = "\"batch_size\": 4, \"val_split\": 0.25");
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "%s: %s", scripts[k], result->error.text);
        like(result->error.where, "rank [012]", "a rank is named");
        rig_free(&rig);
    }
}

int main(void)
{
    static const pl_registration_t components[] = {
        {"module", &towers},    {"module", &middle},  {"module", &unsteady},
        {"module", &differing}, {"module", &trapped}, {"module", &still},
        {"module", &odd_rows},  {"module", &growing}, {"operator", &trap},
        PL_REGISTRATIONS_END};
    far_init(components);
    run(ranks_train_as_one_with_the_whole_batch);
    run(samples_that_do_not_come_out_even_count_once);
    run(rows_need_not_be_samples);
    run(batches_may_come_in_parts);
    run(the_bits_are_the_same_whatever_moves_them);
    run(processes_train_as_threads_do);
    run(half_precision_and_scaled_losses_train_alike);
    run(towers_may_be_frozen_for_a_while);
    run(a_row_of_zeros_has_a_gradient);
    run(what_cannot_be_is_refused_in_words);
    run(ranks_that_describe_something_else_do_not_hang);
    run(a_rank_that_dies_while_others_wait_for_its_rows_ends_all);
    run(a_rank_that_fails_within_a_step_ends_all);
    return tap_done();
}
