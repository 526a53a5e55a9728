/* ddp.c - tests of strategies/ddp*.c and of how loops agree: several ranks, as threads,
 * train what one does */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "rig_runs.h"
#include "strategies/ddp/ddp.h"
#include "tap.h"

#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.02}"

static const char *const devices[] = {"fake", "cpu"};
#define DEVICES 2

/* ---- ddp with regions that do not lie beside its control buffer ---- */

static atomic_int separated;                            /* steps with regions elsewhere */

static void separate_take(pl_ddp_t *ddp, const pl_replica_sums_t *sums,
                          const pl_error_t *failure, bool halt)
{
    (void)sums;
    separated += ddp->replica.bulk[PL_REGION_GRADS].memory != ddp->control;
    pl_replica_reduced(&ddp->replica, failure, halt);
}

static int separate_start(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    static const pl_ddp_reduce_hooks_t hooks = {.separates = true, .take = separate_take};
    ((pl_ddp_t *)self)->reduce_hooks = &hooks;
    return pl_ddp_start(self, call, body, err);
}

static const pl_option_t separate_options[] = {PL_DDP_BUCKETS, PL_DDP_OPTIONS,
                                               PL_OPTIONS_END};
static const pl_handler_t separate_handlers[] = {PL_ON(start, separate_start),
                                                 PL_HANDLERS_END};
static const pl_actor_ops_t separate = {.name = "separate",
                                        .help = "ddp with memory of its own for regions",
                                        .size = sizeof(pl_ddp_t),
                                        .options = separate_options,
                                        .role = "strategy",
                                        .level = PL_LEVEL_STRATEGY,
                                        .handlers = separate_handlers,
                                        .base = &pl_ddp_strategy};

/* ---- Runs of one and of several ranks ---- */

static bool metrics_agree(const rig_result_t *a, const rig_result_t *b)
{
    static const char *const names[] = {"train_loss", "train_acc", "val_loss", "val_acc"};
    bool same = true;
    for (int k = 0; k < 4; k++) {
        const double x = rig_metric(a, names[k]), y = rig_metric(b, names[k]);
        if (!(fabs(x - y) < 1e-5)) {
            tap_diag("%s: %g and %g", names[k], x, y);
            same = false;
        }
    }
    return same;
}

static void compare(const rig_result_t *one, const rig_result_t *many, const char *what)
{
    is_int(many->global_step, one->global_step, "%s: as many steps", what);
    ok(rig_losses_differ(one, many) < 1e-5, "the losses of one rank");
    ok(rig_distance(one, many) < 1e-5, "its weights (%g)", rig_distance(one, many));
}

static void ranks_train_as_one_rank_does(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_result_t *one = rig_ranks(1, 12, "\"max_epochs\": 3",
                                      .accelerator = devices[k], .samples = 48,
                                      .optimizer = ADAMW, .data = "\"val_split\": 0.25");
        for (int ranks = 2; ranks <= 4; ranks++) {
            rig_result_t *many = rig_ranks(ranks, 12 / ranks, "\"max_epochs\": 3",
                                           .accelerator = devices[k], .samples = 48,
                                           .optimizer = ADAMW,
                                           .data = "\"val_split\": 0.25");
            compare(one, many, devices[k]);
            ok(metrics_agree(one, many), "and its metrics");
            rig_result_free(many);
        }
        rig_result_free(one);
    }
}

static void samples_of_an_uneven_split_count_once(void)
{
    static const int samples[] = {37, 13, 3, 1};
    for (int k = 0; k < 4; k++) {
        rig_result_t *one = rig_ranks(1, 12, "\"max_epochs\": 2", .samples = samples[k]);
        for (int ranks = 3; ranks <= 4; ranks++) {
            rig_result_t *many = rig_ranks(ranks, 12 / ranks, "\"max_epochs\": 2",
                                           .samples = samples[k]);
            char what[40];
            snprintf(what, sizeof what, "%d samples, %d ranks", samples[k], ranks);
            compare(one, many, what);
            rig_result_free(many);
        }
        rig_result_free(one);
    }
}

static void batches_may_be_accumulated(void)
{
    rig_result_t *one = rig_ranks(1, 12, "\"max_epochs\": 3", .samples = 40);
    rig_result_t *many = rig_ranks(2, 2,
                                   "\"max_epochs\": 3, \"accumulate_grad_batches\": 3",
                                   .samples = 40);
    compare(one, many, "3 batches of 2 to a step");
    rig_result_free(one);
    rig_result_free(many);
}

static void bits_do_not_depend_on_where_regions_lie(void)
{
    static const char *const options[] = {"", ", \"bucket_mb\": 0.000001"};
    for (int k = 0; k < 2 * DEVICES && rig_has(devices[k / 2]); k++) {
        rig_result_t *result[2];
        for (int i = 0; i < 2; i++) {
            char trainer[160];
            snprintf(trainer, sizeof trainer,
                     "\"max_epochs\": 2, \"sync_batchnorm\": true, "
                     "\"strategy\": {\"name\": \"%s\"%s}",
                     i ? "separate" : "ddp", options[k % 2]);
            result[i] = rig_ranks(3, 4, trainer, .module = "{\"name\": \"normed\"}",
                                  .accelerator = devices[k / 2], .samples = 40,
                                  .optimizer = ADAMW, .data = "\"val_split\": 0.25");
        }
        is_int(atomic_exchange(&separated, 0), 3 * result[1]->global_step,
               "the gradients lie in other memory than what the host reads");
        ok(rig_same_bits(result[0], result[1]), "%s%s: weights and state", devices[k / 2],
           options[k % 2]);
        ok(rig_metric(result[0], "val_loss") == rig_metric(result[1], "val_loss"),
           "and metrics");
        rig_result_free(result[0]);
        rig_result_free(result[1]);
    }
}

/* ---- A module that keeps what it has seen, in each of the ways ---- */

static void seen_keep(pl_graph_t *g, const char *name, pl_agree_t agree, pl_node_t value)
{
    pl_assign(g, pl_state(g, name, PL_SHAPE(6), pl_zeros(), agree), value);
}

static void watcher_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    const int batch = 0;
    pl_node_t x = pl_input(g, "x");
    if (stage == PL_TRAIN) {
        const pl_node_t mean = pl_mean(g, x, &batch, 1, false);
        seen_keep(g, "mean", PL_AGREE_MEAN, mean);
        seen_keep(g, "rank0", PL_AGREE_RANK0, mean);
        seen_keep(g, "none", PL_AGREE_NONE, mean);
    }
    x = pl_linear(g, "fc", x, 3);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static const pl_module_ops_t watcher = {.name = "watcher",
                                        .size = 1,
                                        .step = watcher_step};

static bool state_is(const rig_result_t *a, const char *name, const rig_result_t *b)
{
    const rig_tensor_t *x = rig_find(a->weight, a->weight_count, name),
                       *y = rig_find(b->weight, b->weight_count, name);
    bool same = x && y && x->count == 6 && x->data[0] != 0;
    for (int k = 0; k < 6 && same; k++)
        same = fabsf(x->data[k] - y->data[k]) < 1e-6f;
    return same;
}

static void state_follows_what_its_tensors_declare(void)
{
    rig_result_t *all = rig_ranks(1, 24, "\"max_steps\": 1", .module = "\"watcher\"",
                                  .samples = 24, .data = "\"shuffle\": false");
    rig_result_t *many = rig_ranks(3, 8, "\"max_steps\": 1", .module = "\"watcher\"",
                                   .samples = 24, .data = "\"shuffle\": false");
    ok(state_is(many, "mean", all), "the mean of the ranks is the mean of all samples");
    ok(!state_is(many, "rank0", all), "state of rank zero has only its samples");
    ok(state_is(many, "none", many), "and so has state that each rank keeps for itself");
    rig_result_free(all);
    rig_result_free(many);
}

/* Each normalises by its own batch. */
static void running_means_are_the_means_of_all_samples(void)
{
    rig_result_t *one = rig_ranks(1, 24, "\"max_steps\": 1", .module = "\"normed\"",
                                  .samples = 24);
    rig_result_t *many = rig_ranks(3, 8, "\"max_steps\": 1", .module = "\"normed\"",
                                   .samples = 24);
    const char *name = "norm.running_mean";
    const rig_tensor_t *want = rig_find(one->weight, one->weight_count, name),
                       *got = rig_find(many->weight, many->weight_count, name);
    bool same = want && got && got->count == 8 && got->data[0] != 0;
    for (int k = 0; k < 8 && same; k++)
        same = fabsf(want->data[k] - got->data[k]) < 1e-6f;
    ok(same, "the mean of equal partitions' means is the mean of all");
    rig_result_free(one);
    rig_result_free(many);
}

/* A rank without samples has seen nothing; in the second step it has what all agreed on
 * in the first, which must not be added again. */
static void a_rank_without_samples_leaves_state_alone(void)
{
    rig_result_t *one = rig_ranks(1, 4, "\"max_steps\": 2", .module = "\"watcher\"",
                                  .samples = 2, .data = "\"shuffle\": false");
    rig_result_t *many = rig_ranks(4, 1, "\"max_steps\": 2", .module = "\"watcher\"",
                                   .samples = 2, .data = "\"shuffle\": false");
    is_int(many->global_step, 2, "two steps");
    ok(state_is(many, "mean", one),
       "two samples, four ranks: the mean of those with one");
    rig_result_free(one);
    rig_result_free(many);
}

static void the_same_run_twice_gives_the_same_bits(void)
{
    static const char *const modules[] = {
        "\"normed\"", "{\"name\": \"mlp\", \"hidden\": [8, 5], \"dropout\": 0.25}"};
    for (int k = 0; k < 2; k++) {
        rig_result_t *a = rig_ranks(3, 4, "\"max_epochs\": 2", .module = modules[k],
                                    .accelerator = "cpu", .samples = 36,
                                    .optimizer = ADAMW);
        rig_result_t *b = rig_ranks(3, 4, "\"max_epochs\": 2, \"depth\": 1",
                                    .module = modules[k], .accelerator = "cpu",
                                    .samples = 36, .optimizer = ADAMW);
        ok(rig_same_bits(a, b), "also at another depth");
        rig_result_free(a);
        rig_result_free(b);
    }
}

/* ---- Predictions ---- */

static void predictions_are_complete_and_in_order(void)
{
    rig_result_t *one = rig_ranks(1, 12, "\"max_epochs\": 1", .samples = 37);
    rig_t *rig = rig_new(.trainer = "\"devices\": 3", .data = "\"batch_size\": 4",
                         .samples = 37);
    rig_t *alone = rig_new(.data = "\"batch_size\": 5", .samples = 37);
    char path[600];
    snprintf(path, sizeof path, "%s/model.safetensors", one->run_dir);
    const rig_result_t *want = rig_predict(alone, path);
    const rig_result_t *got = rig_predict(rig, path);
    is_text(got->status, "ok", "three ranks predict: %s", got->error.text);
    is_text(want->status, "ok", "one does: %s", want->error.text);
    is_int(got->output_count, want->output_count, "as many outputs");
    bool same = got->output_count == 1 && want->output_count == 1
                && got->output[0].count == want->output[0].count;
    for (size_t k = 0; same && k < want->output[0].count; k++)
        same = fabsf(got->output[0].data[k] - want->output[0].data[k]) < 1e-5f;
    ok(same && want->output[0].shape.dim[0] == 37, "what one predicts, in its order");
    const double loss = rig_metric(rig_test(alone, path), "test_loss");
    ok(fabs(rig_metric(rig_test(rig, path), "test_loss") - loss) < 1e-6,
       "and measure what one measures");
    rig_free(&rig);
    rig_free(&alone);
    rig_result_free(one);
}

/* ---- What moves the bytes ---- */

static char taken[80];

static void on_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    (void)level, (void)rank, (void)user;
    if (!strcmp(actor, "collective.best"))
        snprintf(taken, sizeof taken, "%s", text);
}

static void the_best_collective_is_chosen_and_reported(void)
{
    pl_log_hook(on_log, PL_LOG_INFO, NULL);
    rig_result_free(rig_ranks(2, 4, "\"max_steps\": 1", .samples = 8));
    pl_log_hook(NULL, PL_LOG_INFO, NULL);
    like(taken, "shm moves the data of the 2 ranks", "of one machine: \"%s\"", taken);
}

/* ---- Ends that follow from no step ---- */

static void stop_soon(rig_t *rig, const pl_progress_t *progress)
{
    if (progress->global_step >= 5)
        pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

static void a_stop_ends_all_ranks(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_t *rig = rig_new(.accelerator = devices[k],
                             .trainer = "\"devices\": 3, \"max_epochs\": 100000",
                             .data = "\"batch_size\": 4, \"val_split\": 0.2",
                             .on_progress = stop_soon);
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "stopped", "%s: stopped: %s", devices[k],
                result->error.text);
        ok(result->weight_count > 0, "with weights");
        is_text(rig_fit(rig)->status, "stopped", "and so is a second fit");
        rig_free(&rig);
    }
}

static void a_time_limit_ends_all_ranks(void)
{
    rig_t *rig = rig_new(.trainer = "\"devices\": 2, \"max_epochs\": -1, "
                                    "\"max_time\": \"00:00:00:01\"",
                         .data = "\"batch_size\": 4, \"val_split\": 0.2");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "stopped", "max_time: %s", result->error.text);
    rig_free(&rig);
}

static void callbacks_of_rank_0_decide_for_all(void)
{
    rig_t *rig = rig_new(.trainer = "\"devices\": 3, \"max_epochs\": 50",
                         .data = "\"batch_size\": 4, \"val_split\": 0.2",
                         .optimizer = "{\"name\": \"sgd\", \"lr\": 0.000001}",
                         .callbacks = "[{\"name\": \"early_stopping\", \"patience\": 2, "
                                      "\"monitor\": \"val_loss\", \"min_delta\": 0.1}]");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "stopped", "early stopping: %s", result->error.text);
    ok(result->epoch < 10, "after %u epochs", result->epoch);
    rig_free(&rig);
}

/* ---- Checkpoints ---- */

#define SAVES \
    "[{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 3, " \
    "\"save_top_k\": -1}]"

static void a_resumed_run_ends_with_the_same_bits(void)
{
    char from[600];
    if (!rig_has("cpu"))                                    /* the fake one has float64 */
        return;
    rig_t *rig =
        rig_new(.accelerator = "cpu", .module = "\"normed\"", .samples = 32,
                .optimizer = ADAMW, .trainer = "\"devices\": 3, \"max_epochs\": 3",
                .callbacks = SAVES, .data = "\"batch_size\": 4, \"val_split\": 0.25");
    rig_result_t *whole = rig_keep(rig_fit(rig));
    snprintf(from, sizeof from, "%s/checkpoints/epoch=1-step=3", whole->run_dir);
    ok(rig_begin_again(rig, from), "a run resumes: %s", rig_error.text);
    const rig_result_t *rest = rig_wait(rig);
    is_text(rest->status, "ok", "%s: %s", from, rest->error.text);
    is_int(rest->global_step, whole->global_step, "as many steps");
    ok(rig_same_bits(whole, rest), "and the same weights");
    rig_result_free(whole);
    rig_free(&rig);
}

/* ---- Failures ---- */

/* Each rank, which is a thread, begins with weights of its own. */
static double own_weight(void)
{
    static int ranks;
    static _Thread_local int own;
    if (!own)
        own = __atomic_add_fetch(&ranks, 1, __ATOMIC_RELAXED);
    return own;
}

static void stubborn_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t own = pl_param(g, "own", PL_SHAPE(3), pl_constant(own_weight()));
    pl_node_t x = pl_mul(g, pl_linear(g, "fc", pl_input(g, "x"), 3), own);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static const pl_module_ops_t stubborn = {.name = "stubborn",
                                         .size = 1,
                                         .step = stubborn_step};

static void a_rank_that_begins_with_other_weights_is_refused(void)
{
    rig_t *rig = rig_new(.trainer = "\"devices\": 3", .module = "\"stubborn\"",
                         .data = "\"batch_size\": 4");
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_EPEER", "the ranks do not train");
    like(result->error.text, "rank 1 began with other weights than rank 0", "%s",
         result->error.text);
    rig_free(&rig);
}

static int watch(void *self, pl_hook_t point, const pl_hook_event_t *event,
                 pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)request;
    return event->global_step == 4 ? pl_fail(err, PL_EIO, "it looks away") : PL_OK;
}

static const pl_callback_ops_t faints = {.name = "faints",
                                         .size = 1,
                                         .points = PL_AT(TRAIN_BATCH_END),
                                         .on = watch};

static void a_callback_that_fails_ends_all(void)
{
    rig_t *rig = rig_new(.trainer = "\"devices\": 3", .data = "\"batch_size\": 4",
                         .callbacks = "[\"faints\"]");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "a run whose callback fails");
    like(result->error.text, "it looks away", "says why");
    rig_free(&rig);
}

static void a_device_that_fails_ends_all(void)
{
    static const char *const scripts[] = {"replay 3 of optimizer_step fails",
                                          "replay 2 of forward_backward fails",
                                          "replay 1 of forward fails",
                                          "replay 4 of optimizer_step is refused"};
    for (int k = 0; k < 4; k++) {
        rig_t *rig = rig_new(.trainer = "\"devices\": 3", .script = scripts[k],
                             .data = "\"batch_size\": 1, \"val_split\": 0.4");
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "%s", scripts[k]);
        like(result->error.where, "rank [012]", "a rank is named");
        rig_free(&rig);
    }
}

static void a_rank_that_fails_ends_all_with_its_name(void)
{
    for (int record = 0; record < 3; record++) {
        char where[24];
        snprintf(where, sizeof where, "rank %d ", record);
        rig_t *rig = rig_new(.trainer = "\"devices\": 3",
                             .data = "\"batch_size\": 4, \"shuffle\": false",
                             .torn = 12 + record + 1);
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "the run fails");
        like(result->error.text, "it is torn", "with the rank's error");
        like(result->error.where, where, "which is named");
        is_int(rig_done(rig), 1, "once");
        rig_free(&rig);
    }
}

static void a_value_that_is_not_finite_is_reported_with_its_rank(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_t *rig = rig_new(.accelerator = devices[k], .trainer = "\"devices\": 3",
                             .data = "\"batch_size\": 4, \"shuffle\": false",
                             .nan = 12 + 1 + 1);
        const rig_result_t *result = rig_fit(rig);
        is_text(pl_code_name(result->error.code), "PL_ENAN", "%s", devices[k]);
        like(result->error.text, "step 2: rank 1: the loss is not finite",
             "the step and the rank");
        rig_free(&rig);
        rig = rig_new(.accelerator = devices[k],
                      .trainer =
                          "\"devices\": 3, \"nan_policy\": \"skip\", \"max_epochs\": 2",
                      .data = "\"batch_size\": 4, \"shuffle\": false", .nan = 12 + 1 + 1);
        result = rig_fit(rig);
        is_text(result->status, "ok", "all may pass over it: %s", result->error.text);
        ok(rig_metric(result, "skipped_steps") >= 1, "and tell");
        rig_free(&rig);
    }
}

int main(void)
{
    static const pl_registration_t components[] = {
        {"module", &rig_normed}, {"module", &watcher},    {"module", &stubborn},
        {"callback", &faints},   {"strategy", &separate}, PL_REGISTRATIONS_END};
    rig_init(components);
    run(ranks_train_as_one_rank_does);
    run(samples_of_an_uneven_split_count_once);
    run(batches_may_be_accumulated);
    run(bits_do_not_depend_on_where_regions_lie);
    run(state_follows_what_its_tensors_declare);
    run(running_means_are_the_means_of_all_samples);
    run(a_rank_without_samples_leaves_state_alone);
    run(the_same_run_twice_gives_the_same_bits);
    run(predictions_are_complete_and_in_order);
    run(the_best_collective_is_chosen_and_reported);
    run(a_stop_ends_all_ranks);
    run(a_time_limit_ends_all_ranks);
    run(callbacks_of_rank_0_decide_for_all);
    run(a_resumed_run_ends_with_the_same_bits);
    run(a_rank_that_begins_with_other_weights_is_refused);
    run(a_callback_that_fails_ends_all);
    run(a_device_that_fails_ends_all);
    run(a_rank_that_fails_ends_all_with_its_name);
    run(a_value_that_is_not_finite_is_reported_with_its_rank);
    return tap_done();
}
