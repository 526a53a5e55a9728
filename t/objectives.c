/* objectives.c - tests of strategies/replica/objectives.c: modules of several
 * objectives */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "tap.h"
#include "two_sides.h"

/* ---- A module of two sides, of which the second looks at the first ---- */

static void second_objective(pl_graph_t *g, const void *self)
{
    two_sides_second_objective(g, self);
    pl_log(g, "acc", pl_accuracy(g, two_sides_second(g), pl_input(g, "y"), NULL),
           PL_ON_EPOCH);
}

static const pl_module_objective_t pair_objectives[] = {
    {.name = "first", .parameters = "a.*", .describe = two_sides_first_objective},
    {.name = "second",
     .parameters = "b.fc.weight b.*.bias",
     .describe = second_objective,
     .every_n_steps = two_sides_every},
    PL_OBJECTIVES_END,
};

static const pl_module_objective_t slip_objectives[] = {
    {.name = "first",
     .parameters = "a.fc.weigth a.*",
     .describe = two_sides_first_objective},
    {.name = "second", .parameters = "b.*", .describe = second_objective},
    PL_OBJECTIVES_END,
};

static const pl_module_objective_t shared_objectives[] = {
    {.name = "first", .parameters = "a.*", .describe = two_sides_first_objective},
    {.name = "second", .parameters = "b.* a.fc.bias", .describe = second_objective},
    PL_OBJECTIVES_END,
};

static const pl_module_objective_t forgetful_objectives[] = {
    {.name = "first", .parameters = "a.*", .describe = two_sides_first_objective},
    {.name = "second", .parameters = "b.*.weight", .describe = second_objective},
    PL_OBJECTIVES_END,
};

#define MODULE(title, table) \
    { \
        .name = title, .help = "", .size = sizeof(two_sides_t), \
        .options = two_sides_options, .step = two_sides_step, .objectives = table \
    }
static const pl_module_ops_t pair = MODULE("pair", pair_objectives),
                             slip = MODULE("slip", slip_objectives),
                             shared = MODULE("shared", shared_objectives),
                             forgetful = MODULE("forgetful", forgetful_objectives);

/* ---- Runs ---- */

#define SGD(lr) "{\"name\": \"sgd\", \"lr\": " lr "}"
#define BOTH(first, second) "{\"first\": " first ", \"second\": " second "}"
#define PAIR "{\"name\": \"pair\"}"

static rig_result_t *fit(const char *module, const char *optimizer, const char *trainer)
{
    rig_t *rig = rig_new(.accelerator = "cpu", .module = module, .optimizer = optimizer,
                         .data = "\"batch_size\": 8", .trainer = trainer);
    rig_result_t *result = rig_keep(rig_fit(rig));
    is_text(result->status, "ok", "it trains: %s %s", optimizer, trainer);
    rig_free(&rig);
    return result;
}

static void a_step_trains_its_own_parameters(void)
{
    rig_result_t *begin = fit(PAIR, BOTH(SGD("0"), SGD("0")), "\"max_steps\": 1");
    rig_result_t *second = fit(PAIR, BOTH(SGD("0"), SGD("0.1")), "\"max_steps\": 4");
    rig_result_t *both = fit(PAIR, BOTH(SGD("0.1"), SGD("0.1")), "\"max_steps\": 4");
    rig_result_t *first = fit(PAIR, BOTH(SGD("0.1"), SGD("0")), "\"max_steps\": 4");
    ok(rig_same_tensor(begin, second, "a.fc.weight")
           && rig_same_tensor(begin, second, "a.fc.bias"),
       "a loss that goes through others' parameters leaves them as they are");
    ok(!rig_same_tensor(begin, second, "b.fc.weight")
           && !rig_same_tensor(begin, second, "b.fc.bias"),
       "and trains its own");
    ok(rig_same_tensor(first, both, "a.fc.weight")
           && !rig_same_tensor(begin, both, "a.fc.weight"),
       "the other's are those of its own objective alone");
    rig_result_free(begin);
    rig_result_free(second);
    rig_result_free(both);
    rig_result_free(first);
}

static void an_objective_has_a_step_at_each_interval(void)
{
    static const char module[] = "{\"name\": \"pair\", \"every\": 3}";
    static const char adam[] = BOTH(SGD("0.1"), "\"adam\"");
    rig_result_t *none = fit(module, adam, "\"max_steps\": 2");
    rig_result_t *once = fit(module, adam, "\"max_steps\": 3");
    rig_result_t *still = fit(module, adam, "\"max_steps\": 5");
    ok(!rig_same_tensor(none, once, "b.fc.weight"), "at the third step");
    ok(rig_same_tensor(once, still, "b.fc.weight"), "not at the next two");
    ok(!rig_same_tensor(once, still, "a.fc.weight"), "while the other continues");
    /* Adam's first step is as long as its rate, whatever the gradient. */
    const rig_tensor_t *from = rig_find(none->weight, none->weight_count, "b.fc.bias"),
                       *to = rig_find(once->weight, once->weight_count, "b.fc.bias");
    is_near(fabs((double)to->data[0] - (double)from->data[0]), 1e-3, 1e-5,
            "its optimizer counts its own steps");
    rig_result_free(none);
    rig_result_free(once);
    rig_result_free(still);
}

static void metrics_have_the_names_of_objectives(void)
{
    rig_t *rig = rig_new(.accelerator = "cpu", .module = PAIR,
                         .optimizer = BOTH("\"adamw\"", SGD("0.25")),
                         .scheduler = "{\"second\": {\"name\": \"linear\"}}",
                         .data = "\"batch_size\": 8, \"val_split\": 0.2",
                         .trainer = "\"max_steps\": 4, \"log_every_n_steps\": 1, "
                                    "\"gradient_clip_val\": 0.5");
    const rig_result_t *result = rig_fit(rig);
    static const char *const names[] = {"train_first_loss", "train_second_loss",
                                        "train_second_acc", "val_loss",
                                        "grad_norm-first",  "grad_norm-second"};
    is_text(result->status, "ok", "it trains");
    for (int k = 0; k < 6; k++)
        ok(rig_metric(result, names[k]) > 0, "%s", names[k]);
    is_near(rig_metric(result, "lr-first"), 1e-3, 1e-12, "a rate each");
    is_near(rig_metric(result, "lr-second"), 0.0625, 1e-12, "with a schedule of its own");
    rig_free(&rig);
}

static void a_skipped_step_has_no_metrics(void)
{
    rig_t *rig =
        rig_new(.accelerator = "cpu", .module = "{\"name\": \"pair\", \"every\": 2}",
                .optimizer = BOTH(SGD("0.1"), SGD("0.5")), .data = "\"batch_size\": 8",
                .trainer = "\"max_steps\": 5, \"depth\": 1, "
                           "\"log_every_n_steps\": 1");
    const rig_result_t *result = rig_fit(rig);
    double sum = 0;
    json_t *lines = rig_log(result);
    for (size_t k = 0; k < 5; k++) {
        const json_t *line = json_array_get(lines, k),
                     *loss = json_object_get(line, "train_second_loss");
        ok(json_object_get(line, "train_first_loss") && !loss == !(k % 2),
           "step %zu reports its time", k + 1);
        sum += json_number_value(loss);
    }
    is_near(rig_metric(result, "train_second_loss_epoch"), sum / 2, 1e-6,
            "and an epoch's mean is of those taken");
    json_decref(lines);
    rig_free(&rig);
}

static void one_optimizer_may_stand_for_all(void)
{
    rig_result_t *one = fit(PAIR, SGD("0.1"), "\"max_steps\": 4");
    rig_result_t *separate = fit(PAIR, BOTH(SGD("0.1"), SGD("0.1")), "\"max_steps\": 4");
    ok(rig_same_bits(one, separate), "the same bits");
    rig_result_free(one);
    rig_result_free(separate);
}

static void steps_accumulate(void)
{
    rig_t *rig = rig_new(.module = PAIR, .optimizer = SGD("0.1"),
                         .data = "\"batch_size\": 4, \"shuffle\": false",
                         .trainer = "\"max_steps\": 5, \"accumulate_grad_batches\": 2");
    rig_result_t *parts = rig_keep(rig_fit(rig));
    rig_free(&rig);
    rig = rig_new(.module = PAIR, .optimizer = SGD("0.1"),
                  .data = "\"batch_size\": 8, \"shuffle\": false",
                  .trainer = "\"max_steps\": 5");
    rig_result_t *whole = rig_keep(rig_fit(rig));
    rig_free(&rig);
    const rig_tensor_t *a = rig_find(parts->weight, parts->weight_count, "a.fc.weight"),
                       *b = rig_find(whole->weight, whole->weight_count, "a.fc.weight");
    double worst = a && b ? 0 : INFINITY;
    for (size_t i = 0; a && b && i < a->count; i++)
        worst = tap_larger(worst, fabs((double)a->data[i] - (double)b->data[i]));
    ok(worst < 1e-6, "the first side's gradient comes in parts: off by %g", worst);
    rig_result_free(parts);
    rig_result_free(whole);
}

static void a_bad_step_is_named(void)
{
    rig_t *rig = rig_new(.module = PAIR, .optimizer = SGD("0.1"),
                         .data = "\"batch_size\": 8",
                         .script = "step 3 of forward_backward gives nan in b.fc.bias",
                         .trainer = "\"max_steps\": 4");
    const rig_result_t *result = rig_fit(rig);
    is_int(result->error.code, PL_ENAN, "the run fails");
    like(result->error.text, "step 3: second: the gradient is not finite.*\"b.fc.bias\"",
         "by objective and tensor");
    rig_free(&rig);
}

/* ---- What is wrong ---- */

static void fails(const char *module, const char *pattern)
{
    char text[64];
    snprintf(text, sizeof text, "{\"name\": \"%s\"}", module);
    rig_t *rig = rig_new(.module = text, .data = "\"batch_size\": 8");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "%s fails", module);
    like(result->error.text, pattern, "and says why");
    rig_free(&rig);
}

static void parameters_belong_to_one_step_each(void)
{
    fails("slip",
          "\"a.fc.weigth\" of objective \"first\" matches no parameter: did you mean "
          "\"a.fc.weight\"");
    fails("shared",
          "\"a.fc.bias\" is trained by two objectives, \"first\" and \"second\"");
    fails("forgetful", "no objective of the module trains parameter \"b.fc.bias\"");
}

static void refused(const char *optimizer, const char *pattern)
{
    char text[512];
    pl_error_t err = {.text = "no error"};
    snprintf(text, sizeof text, "{\"module\": \"pair\",\n \"optimizer\": %s}", optimizer);
    pl_options_t *run = pl_options_parse(text, "run.json", &err);
    if (run)
        pl_options_check(run, &err);
    like(err.text, pattern, "%s", optimizer);
    pl_options_free(run);
}

static void run_files_must_fit_the_objectives(void)
{
    refused("{\"frist\": \"sgd\", \"second\": \"sgd\"}",
            "^run.json:2:16: unknown key \"optimizer.frist\".*did you mean \"first\"");
    refused("{\"first\": \"sgd\"}", "^run.json:2:15: \"optimizer\" needs \"second\"");
    refused("{\"first\": \"sgd\", \"second\": {\"name\": \"sgd\", \"rl\": 1}}",
            "unknown key \"optimizer.second.rl\": did you mean \"lr\"");
    refused("{\"first\": \"sgd\", \"second\": 3}", "\"optimizer.second\" takes a name");
}

static void a_run_is_printed_with_the_defaults_of_each(void)
{
    pl_error_t err = {0};
    pl_options_t *run = pl_options_parse("{\"module\": \"pair\", \"optimizer\": "
                                         "{\"first\": \"sgd\", \"second\": \"adam\"}}",
                                         "run.json", &err);
    ok(pl_options_set(run, "optimizer.second.lr", "0.5", &err) == PL_OK, "one is set");
    char *text = pl_options_print(run, &err);
    json_t *printed = json_loads(text ? text : "null", 0, NULL);
    json_t *second = json_object_get(json_object_get(printed, "optimizer"), "second");
    is_near(json_number_value(json_object_get(second, "lr")), 0.5, 0, "what was set");
    is_near(json_number_value(json_object_get(second, "beta1")), 0.9, 0, "and a default");
    pl_options_t *again = pl_options_parse(text ? text : "", "again.json", &err);
    ok(again && pl_options_check(again, &err) == PL_OK, "it can be read again");
    pl_options_free(again);
    pl_options_free(run);
    json_decref(printed);
    pl_text_free(text);
}

int main(void)
{
    const pl_registration_t components[] = {{"module", &pair},
                                            {"module", &slip},
                                            {"module", &shared},
                                            {"module", &forgetful},
                                            PL_REGISTRATIONS_END};
    rig_init(components);
    run(a_step_trains_its_own_parameters);
    run(an_objective_has_a_step_at_each_interval);
    run(metrics_have_the_names_of_objectives);
    run(a_skipped_step_has_no_metrics);
    run(one_optimizer_may_stand_for_all);
    run(steps_accumulate);
    run(a_bad_step_is_named);
    run(parameters_belong_to_one_step_each);
    run(run_files_must_fit_the_objectives);
    run(a_run_is_printed_with_the_defaults_of_each);
    return tap_done();
}
