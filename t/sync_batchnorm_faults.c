/* sync_batchnorm_faults.c - tests of failures where ranks synchronize in the middle of a
 * step, trainer.sync_batchnorm, and one of them does not come, or none should */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "far.h"
#include "tap.h"
#include "tensor/graph.h"
#include "within_step.h"

#define SYNC "\"sync_batchnorm\": true, "

static const char *const devices[] = {"fake", "cpu"};
#define DEVICES 2

/* ---- Modules ---- */

static void loss_of(pl_graph_t *g, pl_node_t x)
{
    x = pl_linear(g, "out", x, 3);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static void normed_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = pl_linear(g, "fc1", pl_input(g, "x"), 8);
    x = pl_relu(g, pl_batch_norm(g, "norm1", x, 0.1, 1e-5));
    x = pl_linear(g, "fc2", x, 5);
    loss_of(g, pl_tanh(g, pl_batch_norm(g, "norm2", x, 0.3, 1e-3)));
}

static const pl_module_ops_t normed = {.name = "normed", .size = 1, .step = normed_step};

/* Its sixth replay is in backward, between two collectives. */
static void trapped_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = pl_linear(g, "fc1", pl_input(g, "x"), 8);
    x = pl_batch_norm(g, "norm1", x, 0.1, 1e-5);
    x = pl_apply(g, "trap", &x, 1, NULL);
    loss_of(g, pl_batch_norm(g, "norm2", x, 0.1, 1e-5));
}

static const pl_module_ops_t trapped = {.name = "trapped",
                                        .size = 1,
                                        .step = trapped_step};

/* ---- Tests ---- */

static void contradictions_are_refused_with_both_names(void)
{
    static const struct {
        const char *trainer, *says;
    } wrong[] = {
        {"\"deterministic\": \"elastic\"", "sync_batchnorm.*strategy.*elastic"},
        {"\"devices\": 2, \"strategy\": \"local_sgd\"", "sync_batchnorm.*local_sgd"},
    };
    for (int k = 0; k < 2; k++) {
        char trainer[160];
        snprintf(trainer, sizeof trainer, SYNC "%s", wrong[k].trainer);
        rig_t *rig = rig_new(.trainer = trainer);
        ok(!rig || !rig_begin(rig), "%s is refused", wrong[k].trainer);
        like(rig_error.text, wrong[k].says, "with both: %s", rig_error.text);
        rig_free(&rig);
    }
}

static void a_rank_that_dies_within_a_step_ends_all(void)
{
    a_rank_in_the_trap_ends_all("\"trapped\"", SYNC "\"max_epochs\": 100");
}

static void a_rank_that_fails_within_a_step_ends_all(void)
{
    static const char *const scripts[] = {"replay 2 of forward_backward fails",
                                          "replay 9 of forward_backward fails",
                                          "replay 14 of forward_backward is refused",
                                          "replay 3 of optimizer_step fails"};
    for (int k = 0; k < 4; k++) {
        rig_t *rig = rig_new(.trainer = SYNC "\"devices\": 3", .script = scripts[k],
                             .module = "\"normed\"", .data = "\"batch_size\": 4");
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "%s", scripts[k]);
        like(result->error.where, "rank [012]", "a rank is named");
        rig_free(&rig);
    }
}

static void a_step_that_is_not_finite_may_be_skipped(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_t *rig = rig_new(.accelerator = devices[k], .module = "\"normed\"",
                             .trainer = SYNC "\"devices\": 3, \"max_epochs\": 2, "
                                             "\"nan_policy\": \"skip\"",
                             .data = "\"batch_size\": 4, \"shuffle\": false", .nan = 14);
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "ok", "a rank's values are all ranks': %s",
                result->error.text);
        ok(rig_metric(result, "skipped_steps") >= 1, "the step is passed over");
        const rig_tensor_t *t = rig_find(result->weight, result->weight_count,
                                         "norm1.running_mean");
        ok(t && isfinite(t->data[0]), "and leaves nothing");
        rig_free(&rig);
    }
}

static void an_anomaly_of_one_rank_ends_all(void)
{
    if (!rig_has("cpu"))
        return;
    rig_t *rig = rig_new(.accelerator = "cpu", .module = "\"normed\"", .nan = 6,
                         .data = "\"batch_size\": 2, \"shuffle\": false",
                         .trainer = SYNC "\"devices\": 3, \"detect_anomaly\": true");
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_ENAN", "it is found: %s",
            result->error.text);
    ok(result->seconds < 20, "at once");
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t components[] = {{"module", &normed},
                                                   {"module", &trapped},
                                                   {"operator", &trap},
                                                   PL_REGISTRATIONS_END};
    far_init(components);
    run(contradictions_are_refused_with_both_names);
    run(a_rank_that_dies_within_a_step_ends_all);
    run(a_rank_that_fails_within_a_step_ends_all);
    run(a_step_that_is_not_finite_may_be_skipped);
    run(an_anomaly_of_one_rank_ends_all);
    return tap_done();
}
