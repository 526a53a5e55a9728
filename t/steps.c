/* steps.c - tests of strategies/replica/train.c: steps that are not finite, or empty */
#include <math.h>
#include <string.h>

#include "rig.h"
#include "strategies/replica/replica.h"
#include "strategies/strategies.h"
#include "tap.h"
#include "tensor/graph.h"

/* ---- A module with state, and one that ignores a class ---- */

static pl_node_t hidden(pl_graph_t *g)
{
    pl_node_t x = pl_linear(g, "fc1", pl_flatten(g, pl_input(g, "x"), 1), 5);
    return pl_relu(g, pl_batch_norm(g, "norm", x, 0.1, 1e-5));
}

static void normed_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t logits = pl_linear(g, "fc2", hidden(g), 3);
    pl_loss(g, pl_cross_entropy(g, logits, pl_input(g, "y"), NULL));
}

static void ignoring_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_cross_entropy_options_t options = {.has_ignore = true, .ignore_index = 1};
    pl_node_t x = pl_linear(g, "fc1", pl_flatten(g, pl_input(g, "x"), 1), 3);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), &options));
}

static const pl_module_ops_t normed = {.name = "normed", .help = "", .step = normed_step};
static const pl_module_ops_t ignoring = {.name = "ignoring",
                                         .help = "",
                                         .step = ignoring_step};

/* ---- A strategy that lets steps be skipped, whatever the loop says ---- */

static int skipping_train(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    pl_body_t skips = *body;
    skips.train_batch.may_skip = true;
    return pl_replica_train(self, call, &skips, err);
}

static const pl_handler_t skipping_handlers[] = {
    PL_ON(train_batch, skipping_train),
    PL_HANDLERS_END,
};

static const pl_actor_ops_t skipping = {.name = "skipping",
                                        .help = "single, whose steps may be skipped",
                                        .size = sizeof(pl_replica_t),
                                        .role = "strategy",
                                        .devices_max = 1,
                                        .level = PL_LEVEL_STRATEGY,
                                        .handlers = skipping_handlers,
                                        .base = &pl_single_strategy};

/* ---- A strategy with a region and plans of its own ---- */

/* Every second step the weights go a part of the way from where they were before (Zhang
 * et al., "Lookahead optimizer", arXiv 1907.08610). */
typedef struct lookahead {
    pl_replica_t replica;                                   /* first: see replica.h */
    pl_sync_hooks_t sync_hooks;
    double way;                                             /* option */
    bool has_begun;
} lookahead_t;

enum { SLOW = PL_REGION_STRATEGY0, BEGIN = 0, LOOK, LOOKAHEAD_GRAPHS };

static int64_t parameters(const pl_replica_t *r)
{
    pl_dtype_t dtype;
    return pl_replica_gradients(r, &dtype) - 2 * r->objectives;
}

static pl_graph_t *lookahead_describe(pl_replica_t *r, int k, pl_error_t *err)
{
    const int64_t params = parameters(r);
    pl_graph_t *g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err);
    if (!g)
        return NULL;
    const pl_node_t weights = pl_region_view(g, PL_REGION_PARAMS, 0, PL_SHAPE(params)),
                    slow = pl_region_view(g, (pl_region_t)SLOW, 0, PL_SHAPE(params));
    if (k == BEGIN) {
        pl_assign(g, slow, weights);
    } else {
        const pl_node_t moved = pl_sub(g, weights, slow),
                        newest = pl_add(g, slow,
                                        pl_scale(g, moved, ((lookahead_t *)r)->way));
        pl_assign(g, weights, newest);
        pl_assign(g, slow, newest);
    }
    if (pl_graph_check(g, err) == PL_OK)
        return g;
    pl_graph_free(g);
    return NULL;
}

static int64_t lookahead_region(const pl_replica_t *r, int k)
{
    return PL_REGION_STRATEGY0 + k == SLOW ? parameters(r) : 0;
}

static void lookahead_replayed(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY)
        pl_replica_reduced(self, NULL, false);
    else if (answer->kind == PL_ANSWER_ERROR)
        pl_replica_reduced(self, answer->error, false);
}

static int lookahead_replay(pl_replica_t *r, bool due, int k, pl_error_t *err)
{
    const pl_how_t how = {.on_answer = lookahead_replayed};
    if (due)
        return pl_replica_replay(r, k, "lookahead", how, err);
    pl_replica_reduced(r, NULL, false);
    return PL_OK;
}

static int lookahead_reduce(pl_replica_t *r, const pl_replica_sums_t *sums,
                            pl_error_t *err)
{
    (void)sums;
    lookahead_t *l = (lookahead_t *)r;
    const bool is_first = !l->has_begun;
    l->has_begun = true;
    return lookahead_replay(r, is_first, BEGIN, err);
}

static int lookahead_stepped(pl_replica_t *r, const pl_replica_sums_t *sums,
                             pl_error_t *err)
{
    return lookahead_replay(r, sums->number % 2 == 0, LOOK, err);
}

static int lookahead_prepare(pl_replica_t *r, pl_error_t *err)
{
    (void)err;
    pl_replica_prepared(r, NULL);
    return PL_OK;
}

static int lookahead_start(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    lookahead_t *l = self;
    l->sync_hooks = (pl_sync_hooks_t){.prepare = lookahead_prepare,
                                      .reduce = lookahead_reduce,
                                      .stepped = lookahead_stepped,
                                      .graphs = LOOKAHEAD_GRAPHS,
                                      .describe = lookahead_describe,
                                      .region = lookahead_region};
    l->replica.sync_hooks = &l->sync_hooks;
    pl_actor_ready(self);
    return PL_OK;
}

static const pl_option_t lookahead_options[] = {
    PL_FLOAT(lookahead_t, way, "0.5", "[0..1]", "how much of the way they go"),
    PL_OPTIONS_END,
};

static const pl_handler_t lookahead_handlers[] = {
    PL_ON(start, lookahead_start),
    PL_HANDLERS_END,
};

static const pl_actor_ops_t lookahead = {.name = "lookahead",
                                         .help = "single, with slow weights",
                                         .size = sizeof(lookahead_t),
                                         .options = lookahead_options,
                                         .role = "strategy",
                                         .devices_max = 1,
                                         .level = PL_LEVEL_STRATEGY,
                                         .handlers = lookahead_handlers,
                                         .base = &pl_single_strategy};

/* ---- Runs ---- */

#define SKIPS "\"strategy\": \"skipping\", \"seed\": 3, "
#define MOMENTUM "{\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9}"

static rig_result_t *fit(const char *device, const char *script, int nan,
                         const char *trainer)
{
    rig_t *rig = rig_new(.accelerator = device, .script = script,
                         .module = "{\"name\": \"normed\"}", .optimizer = MOMENTUM,
                         .data = "\"batch_size\": 8, \"shuffle\": false", .nan = nan,
                         .trainer = trainer);
    rig_result_t *result = rig_keep(rig_fit(rig));
    is_text(result->status, "ok", "it trains: %s", trainer);
    rig_free(&rig);
    return result;
}

#define LOOKAHEAD(way) "\"strategy\": {\"name\": \"lookahead\", \"way\": " way "}, "

static rig_result_t *train(const char *trainer)
{
    return rig_train(&(rig_spec_t){.optimizer = "{\"name\": \"sgd\", \"lr\": 0.1}",
                                   .data = "\"batch_size\": 8",
                                   .trainer = trainer});
}

static void is_same(rig_result_t *a, rig_result_t *b, const char *what)
{
    ok(rig_same_bits(a, b), "%s", what);
    rig_result_free(a);
    rig_result_free(b);
}

static void a_skipped_step_leaves_no_trace(void)
{
    static const char script[] = "step 5 of forward_backward gives nan in fc2.weight";
    is_same(fit("fake", script, 0, SKIPS "\"max_steps\": 5"),
            fit("fake", "", 0, SKIPS "\"max_steps\": 4"),
            "weights and statistics are those of the step before");
    is_same(fit("fake", script, 0,
                SKIPS "\"max_steps\": 5, \"accumulate_grad_batches\": 3"),
            fit("fake", "", 0, SKIPS "\"max_steps\": 4, \"accumulate_grad_batches\": 3"),
            "also when it took several batches");
}

static void a_bad_record_spoils_no_statistics(void)
{
    rig_result_t *result = fit("cpu", NULL, 10, SKIPS "\"max_steps\": 9");
    bool finite = true;
    for (int k = 0; k < result->weight_count; k++)
        for (size_t i = 0; i < result->weight[k].count; i++)
            finite = finite && isfinite(result->weight[k].data[i]);
    ok(finite && result->weight_count, "all is finite after a batch with a NaN");
    is_int((long)result->global_step, 9, "and the step counts");
    rig_result_free(result);
}

static void steps_behind_a_skipped_step_have_the_same_results(void)
{
    static const char script[] = "step 3 of forward_backward gives nan in loss;"
                                 "step 4 of forward_backward gives nan in fc1.bias";
    is_same(fit("fake", script, 0, SKIPS "\"max_steps\": 8, \"depth\": 1"),
            fit("fake", script, 0, SKIPS "\"max_steps\": 8, \"depth\": 6"),
            "bits do not depend on how many steps were under way");
}

static json_t *bad_texts(void)
{
    json_t *stream = rig_stream(), *texts = json_array(), *message;
    size_t k;
    json_array_foreach(stream, k, message) {
        json_t *fields = json_object_get(message, "fields");
        if (json_is_true(json_object_get(fields, "skipped"))
            || json_integer_value(json_object_get(fields, "skipped")))
            json_array_append(texts, json_object_get(fields, "bad"));
    }
    json_decref(stream);
    return texts;
}

static void a_skipped_step_names_the_bad_value(void)
{
    rig_t *rig = rig_new(.module = "{\"name\": \"normed\"}", .stream = true,
                         .data = "\"batch_size\": 8",
                         .script = "step 2 of forward_backward gives nan in norm.bias;"
                                   "step 3 of forward_backward gives nan in loss",
                         .trainer = SKIPS "\"max_steps\": 6, \"depth\": 4");
    is_text(rig_fit(rig)->status, "ok", "the run continues");
    rig_free(&rig);
    json_t *texts = bad_texts();
    is_int((long)json_array_size(texts), 2, "two steps are reported as skipped");
    like(json_string_value(json_array_get(texts, 0)),
         "the gradient is not finite.*\"norm.bias\"", "the first by its tensor");
    like(json_string_value(json_array_get(texts, 1)), "the loss is not finite",
         "the second by its loss");
    json_decref(texts);
}

static void a_failure_is_not_skipped(void)
{
    rig_t *rig = rig_new(.module = "{\"name\": \"normed\"}", .data = "\"batch_size\": 8",
                         .script = "step 2 of forward_backward gives nan in loss;"
                                   "replay 4 of forward_backward fails",
                         .trainer = SKIPS "\"max_steps\": 9, \"depth\": 4");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "the run fails");
    is_int(result->error.code, PL_EIO, "as the device did");
    rig_free(&rig);
}

static void a_step_whose_targets_are_all_ignored_is_an_empty_one(void)
{
    static const char *const devices[] = {"fake", "cpu"};
    for (int k = 0; k < 2; k++) {
        rig_t *rig = rig_new(.accelerator = devices[k],
                             .module = "{\"name\": \"ignoring\"}", .optimizer = MOMENTUM,
                             .data = "\"batch_size\": 1", .trainer = "\"max_epochs\": 2");
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "ok", "%s: it trains", devices[k]);
        is_int((long)result->global_step, 80, "each step counts");
        ok(isfinite(rig_metric(result, "train_loss_epoch")), "the loss is the others'");
        rig_free(&rig);
    }
}

static void a_strategy_has_a_region_and_plans_of_its_own(void)
{
    rig_result_t *begun = rig_train(
                     &(rig_spec_t){.optimizer = "{\"name\": \"sgd\", \"lr\": 0}",
                                   .data = "\"batch_size\": 8",
                                   .trainer = "\"max_steps\": 1"}),
                 *plain = train("\"max_steps\": 4"),
                 *whole = train(LOOKAHEAD("1") "\"max_steps\": 4"),
                 *half = train(LOOKAHEAD("0.5") "\"max_steps\": 2"),
                 *two = train("\"max_steps\": 2");
    ok(rig_distance(plain, begun) > 1e-3, "steps move the weights");
    ok(rig_distance(whole, plain) < 1e-6, "all of the way is where plain steps go");
    ok(fabs(rig_distance(half, begun) - 0.5 * rig_distance(two, begun)) < 1e-6,
       "half of the way is half of it");
    is_same(train(LOOKAHEAD("0") "\"max_steps\": 4"), begun,
            "and none of it leads back to where they began");
    rig_result_free(plain);
    rig_result_free(whole);
    rig_result_free(half);
    rig_result_free(two);
}

int main(void)
{
    const pl_registration_t components[] = {{"module", &normed},
                                            {"module", &ignoring},
                                            {"strategy", &skipping},
                                            {"strategy", &lookahead},
                                            PL_REGISTRATIONS_END};
    rig_init(components);
    run(a_skipped_step_leaves_no_trace);
    run(a_bad_record_spoils_no_statistics);
    run(steps_behind_a_skipped_step_have_the_same_results);
    run(a_skipped_step_names_the_bad_value);
    run(a_failure_is_not_skipped);
    run(a_step_whose_targets_are_all_ignored_is_an_empty_one);
    run(a_strategy_has_a_region_and_plans_of_its_own);
    return tap_done();
}
