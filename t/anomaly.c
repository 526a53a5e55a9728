/* anomaly.c - tests of engine/tensor/anomaly.c: trainer.detect_anomaly */
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

/* ---- A module with one bad place ---- */

typedef struct faulty {
    const char *where;
} faulty_t;

static const pl_option_t faulty_options[] = {
    PL_TEXT(faulty_t, where, "\"none\"", "none|forward|backward", "the bad place"),
    PL_OPTIONS_END,
};

static void faulty_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const faulty_t *faulty = self;
    pl_node_t x = pl_linear(g, "fc1", pl_flatten(g, pl_input(g, "x"), 1), 8);
    (void)stage;
    pl_scope(g, "deep");
    if (!strcmp(faulty->where, "forward"))
        x = pl_log_of(g, pl_neg(g, pl_exp(g, x)));
    if (!strcmp(faulty->where, "backward"))
        x = pl_sqrt(g, pl_scale(g, x, 0));
    pl_scope_end(g);
    x = pl_linear(g, "fc2", x, 3);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static const pl_module_ops_t faulty = {.name = "faulty",
                                       .size = sizeof(faulty_t),
                                       .options = faulty_options,
                                       .step = faulty_step};

static const pl_registration_t components[] = {{"module", &faulty}, PL_REGISTRATIONS_END};

/* ---- Tests ---- */

static const char *const devices[] = {"fake", "cpu"};
static const char *const precisions[] = {"32-true", "64-true", "bf16-mixed"};

static rig_result_t *fit(const char *device, const char *where, const char *more)
{
    char module[64], trainer[192];
    snprintf(module, sizeof module, "{\"name\": \"faulty\", \"where\": \"%s\"}", where);
    snprintf(trainer, sizeof trainer, "\"max_epochs\": 1, \"num_sanity_val_steps\": 0%s",
             more);
    rig_t *rig = rig_new(.accelerator = device, .module = module, .trainer = trainer);
    rig_result_t *result = rig ? rig_keep(rig_fit(rig)) : calloc(1, sizeof *result);
    if (!rig)
        ok(false, "the run is taken: %s", rig_error.text);
    rig_free(&rig);
    return result;
}

static void is_named(const char *where, const char *like_this)
{
    for (int d = 0; d < 2; d++)
        for (int p = 0; p < 3 && rig_has(devices[d]); p++) {
            char more[96];
            snprintf(more, sizeof more,
                     ", \"detect_anomaly\": true, \"precision\": \"%s\"", precisions[p]);
            rig_result_t *result = fit(devices[d], where, more);
            is_int(result->error.code, PL_ENAN, "the run fails on %s in %s", devices[d],
                   precisions[p]);
            like(result->error.text, like_this, "and names the operator");
            rig_result_free(result);
        }
}

static void the_first_bad_operator_of_a_forward_pass_is_named(void)
{
    is_named("forward", "^step 1: deep: log, forward");
}

static void the_first_bad_operator_of_a_backward_pass_is_named(void)
{
    is_named("backward", "^step 1: deep: sqrt, backward");
}

static void looking_changes_no_bit(void)
{
    for (int d = 0; d < 2; d++)
        for (int p = 0; p < 3 && rig_has(devices[d]); p++) {
            char more[96];
            snprintf(more, sizeof more, ", \"precision\": \"%s\"", precisions[p]);
            rig_result_t *plain = fit(devices[d], "none", more);
            strcat(more, ", \"detect_anomaly\": true");
            rig_result_t *watched = fit(devices[d], "none", more);
            is_text(watched->status, "ok", "all goes well on %s in %s: %s", devices[d],
                    precisions[p], watched->error.text);
            ok(rig_same_bits(plain, watched), "and the same");
            rig_result_free(plain);
            rig_result_free(watched);
        }
}

/* ---- A scaled loss ---- */

#define WATCHED ", \"detect_anomaly\": true, \"precision\": {\"name\": \"16-mixed\", "

static void an_overflow_that_the_factor_mends_is_none(void)
{
    for (int d = 0; d < 2 && rig_has(devices[d]); d++) {
        rig_result_t *result = fit(devices[d], "none", WATCHED "\"init_scale\": 1e12}");
        is_text(result->status, "ok", "the run continues on %s: %s", devices[d],
                result->error.text);
        ok(rig_metric(result, "skipped_steps") > 0, "with the next step");
        rig_result_free(result);
    }
}

static void an_overflow_that_the_factor_does_not_mend_is_named(void)
{
    for (int d = 0; d < 2 && rig_has(devices[d]); d++) {
        rig_result_t *result = fit(devices[d], "backward", WATCHED "\"init_scale\": 2}");
        like(result->error.text, "^step 2: deep: sqrt, backward",
             "when the factor is at its lowest, on %s", devices[d]);
        rig_result_free(result);
        result = fit(devices[d], "forward", WATCHED "\"init_scale\": 8}");
        like(result->error.text, "^step 1: deep: log, forward",
             "forward is not scaled, and named at once");
        rig_result_free(result);
    }
}

static void the_error_reports_the_lowest_factor(void)
{
    rig_result_t *result =
        fit(devices[0], "backward",
            ", \"precision\": {\"name\": \"16-mixed\", \"init_scale\": 2}");
    like(result->error.text, "^step 2: .*has reached trainer.precision.min_scale",
         "the factor cannot be lowered any more");
    rig_result_free(result);
    result = fit(devices[0], "backward", "");
    ok(result->error.code == PL_ENAN && !strstr(result->error.text, "min_scale"),
       "without a factor nothing is said of it: %s", result->error.text);
    rig_result_free(result);
}

static void detection_is_off_by_default(void)
{
    rig_result_t *result = fit("fake", "forward", "");
    is_int(result->error.code, PL_ENAN, "the loss is not finite");
    ok(!strstr(result->error.text, "log, forward"), "and no operator is named");
    rig_result_free(result);
}

int main(void)
{
    rig_init(components);
    run(the_first_bad_operator_of_a_forward_pass_is_named);
    run(the_first_bad_operator_of_a_backward_pass_is_named);
    run(looking_changes_no_bit);
    run(an_overflow_that_the_factor_mends_is_none);
    run(an_overflow_that_the_factor_does_not_mend_is_named);
    run(the_error_reports_the_lowest_factor);
    run(detection_is_off_by_default);
    return tap_done();
}
