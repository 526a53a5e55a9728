/* gpu_operators.c - tests of the operators of the GPU core, on the emulator: every
 * operator case in six precisions against the reference in float64, and those of products
 * and layers by a library */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerators/reference/reference.h"
#include "device_rig.h"
#include "backend_emulated.h"
#include "rig.h"
#include "sample_operator.h"
#include "tap.h"

const pl_registration_t *swish_plugin(void);

typedef struct format {
    const char *precision;
    double tolerance;
} format_t;

/* The last two only with PACELINE_TEST_LONG. */
static const format_t formats[] = {{"32-true", 1e-5},          {"64-true", 1e-12},
                                   {"bf16-mixed", 3 * 0x1p-8}, {"16-mixed", 3 * 0x1p-11},
                                   {"bf16-true", 3 * 0x1p-8},  {"16-true", 3 * 0x1p-11}};
enum { FORMATS_USUAL = 4 };

/* Cases whose names have the word [all], on a device that is open. */
static void check_cases(device_rig_t *rig, const format_t *format, const char *word,
                        bool accumulate)
{
    rig->accumulates = accumulate;
    device_check(rig, format->precision, format->tolerance, word, 1);
}

static void every_case_equals_the_reference(void)
{
    emulated_t device = {.seed = 1};
    pl_device_info_t info = {.ranks = 1};
    device_rig_t rig = {.ops = &emulated_accelerator, .self = &device};
    if (!ok(rig.ops->open(&device, &info, &rig.err) == PL_OK, "the emulator is opened"))
        return;
    const size_t count = sizeof formats / sizeof *formats;
    for (size_t f = 0; f < (getenv("PACELINE_TEST_LONG") ? count : FORMATS_USUAL); f++)
        check_cases(&rig, &formats[f], NULL, false);
    rig.ops->close(&device);
}

static void check_products(device_rig_t *rig, size_t usual)
{
    for (size_t f = 0; f < usual; f++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            check_cases(rig, &formats[f], "matmul", accumulate);
            check_cases(rig, &formats[f], "linear", accumulate);
        }
}

static void gradients_are_added_to_those_of_other_batches(void)
{
    emulated_t device = {.seed = 1};
    pl_device_info_t info = {.ranks = 1};
    device_rig_t rig = {.ops = &emulated_accelerator, .self = &device};
    if (!ok(rig.ops->open(&device, &info, &rig.err) == PL_OK, "the emulator is opened"))
        return;
    check_cases(&rig, &formats[0], NULL, true);
    check_cases(&rig, &formats[2], "linear", true);
    rig.ops->close(&device);
}

/* What a gradient would read has no memory then. */
static void cases_without_gradients_equal_the_reference(void)
{
    emulated_t device = {.seed = 1};
    pl_device_info_t info = {.ranks = 1};
    device_rig_t rig = {.ops = &emulated_accelerator, .self = &device, .evaluates = true};
    if (!ok(rig.ops->open(&device, &info, &rig.err) == PL_OK, "the emulator is opened"))
        return;
    check_cases(&rig, &formats[0], NULL, false);
    rig.ops->close(&device);
}

static void products_of_a_library_equal_the_reference(void)
{
    emulated_t device = {.seed = 1};
    pl_device_info_t info = {.ranks = 1};
    device_rig_t rig = {.ops = &emulated_library_accelerator, .self = &device};
    if (!ok(rig.ops->open(&device, &info, &rig.err) == PL_OK, "the emulator is opened"))
        return;
    check_products(&rig, FORMATS_USUAL);
    ok(device.multiplied > 0, "the library computed %d products", device.multiplied);
    ok(device.followed > 0, "%d of them with what follows them", device.followed);
    ok(device.added > 0, "%d added to earlier values", device.added);
    device.without = ~0u;
    device.followed = 0;
    check_products(&rig, 1);
    is_int(device.followed, 0, "with none where that is not wanted");
    is_int(device.products, 0, "no product is left behind");
    rig.ops->close(&device);
}

static void layers_of_a_library_equal_the_reference(void)
{
    emulated_t device = {.seed = 1};
    pl_device_info_t info = {.ranks = 1};
    device_rig_t rig = {.ops = &emulated_library_accelerator, .self = &device};
    if (!ok(rig.ops->open(&device, &info, &rig.err) == PL_OK, "the emulator is opened"))
        return;
    for (size_t f = 0; f < FORMATS_USUAL; f++) {
        check_cases(&rig, &formats[f], "attention", false);
        check_cases(&rig, &formats[f], "conv", false);
    }
    ok(device.layered > 50, "the library computed %d layers", device.layered);
    is_int(device.refused, 2, "an attention that it does not compute is refused once");
    is_int(device.products, 0, "none of them is left behind");
    rig.ops->close(&device);
}

static const operator_case_t *case_named(const char *name)
{
    int i = 0;
    while (strcmp(operator_cases[i].name, name) != 0)
        i++;
    return &operator_cases[i];
}

static int compiled;                                  /* times that a plan was reported */

static void on_compiled(pl_compiling_t *c, const pl_error_t *err)
{
    (void)c;
    compiled++;
    ok(!err, "a plan is compiled: %s", err ? err->text : "");
}

/* The graph is compiled again, with kernels in place of the layer. */
static void a_layer_that_is_refused_late_is_compiled_in_the_background(void)
{
    emulated_t device = {.seed = 1};
    pl_device_info_t info = {.ranks = 1};
    device_rig_t rig = {.ops = &emulated_library_accelerator, .self = &device};
    pl_compiling_t compiling = {.done = on_compiled};
    operator_run_t run;
    device_results_t got = {0};
    if (!ok(rig.ops->open(&device, &info, &rig.err) == PL_OK, "the emulator is opened")
        || operator_run_init(&run, case_named("attention, width 24"), &rig.err) != PL_OK
        || device_load(&rig, &run) != PL_OK)
        return;
    int code = rig.ops->compile_later(&device, run.graph, &compiling, &rig.err);
    for (compiled = 0; code == PL_OK && !compiled;) {
        struct pollfd news = {.fd = rig.ops->descriptor(&device), .events = POLLIN};
        if (poll(&news, 1, 60000) != 1)
            code = PL_EBUG;
        rig.ops->collect(&device);
    }
    is_int(compiled, 1, "once");
    is_int(device.refused, 2, "two layers were refused");
    ok(compiling.plan && device_replay(&rig, &run, compiling.plan, &got) == PL_OK
           && device_difference(&run, &got) < 1e-5,
       "the plan computes what the reference does");
    is_int(device.layered, 0, "without the library");
    device_results_release(&got);
    operator_run_release(&run);
    rig.ops->close(&device);
}

/* Behind a replay that failed. */
static void changes_nothing(device_rig_t *rig, const char *name)
{
    operator_run_t run;
    device_results_t halted;
    int changed = 0;
    if (!ok(operator_run_init(&run, case_named(name), &rig->err) == PL_OK
                && device_run(rig, &run, &halted) == PL_OK,
            "%s is replayed: %s", name, rig->err.text))
        return;
    ok(halted.skipped, "and did not happen");
    for (size_t i = 0; i < run.size[PL_REGION_GRADS]; i++)
        changed += halted.region[PL_REGION_GRADS][i]
                   != (float)run.region[PL_REGION_GRADS][i];
    is_int(changed, 0, "no gradient has changed");
    device_results_release(&halted);
    operator_run_release(&run);
}

/* A library does not look at guards. */
static void a_library_changes_nothing_after_a_failure(void)
{
    emulated_t device = {.seed = 1};
    pl_device_info_t info = {.ranks = 1};
    device_rig_t rig = {.ops = &emulated_library_accelerator,
                        .self = &device,
                        .fail_fast = true};
    operator_run_t wrong;
    device_results_t failed;
    if (!ok(rig.ops->open(&device, &info, &rig.err) == PL_OK, "the emulator is opened")
        || operator_run_init(&wrong, case_named("embedding"), &rig.err) != PL_OK)
        return;
    *(int64_t *)wrong.index = 1000000;
    ok(device_run(&rig, &wrong, &failed) != PL_OK, "a replay fails: %s", rig.err.text);
    changes_nothing(&rig, "matmul");
    is_int(device.multiplied, 3, "forward and both gradients are by the library");
    changes_nothing(&rig, "conv2d, padding");
    changes_nothing(&rig, "attention, width 16");
    changes_nothing(&rig, "attention, width 8, heads cut out");
    is_int(device.layered, 7, "layers and their gradients, too");
    device_results_release(&failed);
    operator_run_release(&wrong);
    rig.ops->close(&device);
}

static rig_result_t *fit_on(const char *accelerator, const char *module,
                            const char *trainer)
{
    return rig_train(&(rig_spec_t){.accelerator = accelerator,
                                   .module = module,
                                   .optimizer = "{\"name\": \"adamw\", \"lr\": 0.01}",
                                   .data = "\"val_split\": 0.2",
                                   .trainer = trainer});
}

static void runs_train_as_on_the_processor(void)
{
    static const char *const modules[] = {
        "{\"name\": \"mlp\", \"hidden\": [8], \"dropout\": 0.1}", "{\"name\": \"mlp\"}",
        "{\"name\": \"swish\", \"slope\": 1.5}"};
    static const char trainer[] = "\"max_epochs\": 2, \"gradient_clip_val\": 1";
    for (int k = 0; k < 3 && rig_has("cpu"); k++) {
        rig_result_t *cpu = fit_on("cpu", modules[k], trainer),
                     *gpu = fit_on("emulated", modules[k], trainer),
                     *again = fit_on("emulated", modules[k], trainer);
        is_text(gpu->status, "ok", "%s trains: %s", modules[k], gpu->error.text);
        ok(rig_distance(cpu, gpu) < 1e-4, "to the same weights, but for %g",
           rig_distance(cpu, gpu));
        is_near(rig_metric(gpu, "val_loss"), rig_metric(cpu, "val_loss"), 1e-4,
                "and the same loss");
        ok(rig_same_bits(gpu, again), "in another order of threads to the same bits");
        rig_result_free(cpu), rig_result_free(gpu), rig_result_free(again);
    }
}

/* A record has a NaN: its step changes nothing, and neither do the steps after it. */
static void a_step_that_is_not_finite_is_skipped(void)
{
    rig_result_t *result[2] = {NULL};
    for (int k = 0; k < 2 && rig_has("cpu"); k++)
        result[k] = rig_train(&(rig_spec_t){
            .accelerator = k ? "emulated" : "cpu",
            .nan = 9,
            .trainer = "\"max_epochs\": 2, \"nan_policy\": \"skip\", \"depth\": 3"});
    if (!rig_has("cpu"))
        return;
    is_near(rig_metric(result[1], "skipped_steps"),
            rig_metric(result[0], "skipped_steps"), 0, "as many as on the processor");
    ok(rig_metric(result[1], "skipped_steps") > 0, "at least one");
    ok(rig_distance(result[0], result[1]) < 1e-5, "to the same weights, but for %g",
       rig_distance(result[0], result[1]));
    is_near(rig_metric(result[1], "train_loss"), rig_metric(result[0], "train_loss"),
            1e-5, "and the same loss");
    rig_result_free(result[0]), rig_result_free(result[1]);
}

/* The gradients are searched when later steps, whose gradients are finite, are on the
 * device already. */
static void the_bad_gradient_that_is_named_is_of_the_step_that_failed(void)
{
    char text[2][PL_ERROR_TEXT];
    if (!rig_has("cpu"))
        return;
    for (int k = 0; k < 2; k++) {
        rig_t *rig = rig_new(.accelerator = k ? "emulated" : "cpu", .nan = 9,
                             .trainer = "\"max_epochs\": 2, \"depth\": 4");
        snprintf(text[k], sizeof text[k], "%s",
                 rig ? rig_fit(rig)->error.text : rig_error.text);
        rig_free(&rig);
    }
    like(text[1], "the first bad gradient belongs to \"", "one is named");
    is_text(text[1], text[0], "as on the processor");
}

/* ---- Operators of users ---- */

static const char not_c[] = "OUT(0, IN0(row));\nOUT(0, nothing);\n",
                  other_values[] = "float slope;\nVALUES(slope);\nOUT(0, slope);\n";
static const pl_kernel_t bad_kernels[][2] = {{{"gpu", NULL, not_c}, PL_KERNELS_END},
                                             {{"gpu", NULL, other_values},
                                              PL_KERNELS_END}};
static const pl_operator_ops_t bad[] = {
    {.name = "not c", .inputs = 1, .size = 8, .kernels = bad_kernels[0]},
    {.name = "other values", .inputs = 1, .size = 8, .kernels = bad_kernels[1]},
    {.name = "no kernels", .inputs = 1}};
enum { BAD = sizeof bad / sizeof *bad };

static pl_node_t build_bad(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = pl_param(g, "a", c->shape[0], pl_zeros());
    return pl_apply(g, bad[(int)c->p].name, &x, 1, NULL);
}

static void an_operator_that_cannot_be_compiled_is_named(void)
{
    static const char *const errors[] = {"operator not.c:2:.*nothing",
                                         "VALUES_of_another_size",
                                         "\"no kernels\" has neither a text for \"gpu\" "
                                         "nor a kernel for \"cpu\": add one"};
    emulated_t device = {.seed = 1};
    pl_device_info_t info = {.ranks = 1};
    device_rig_t rig = {.ops = &emulated_accelerator, .self = &device};
    if (!ok(rig.ops->open(&device, &info, &rig.err) == PL_OK, "the emulator is opened"))
        return;
    for (int k = 0; k < BAD; k++) {
        const operator_case_t c = {.name = bad[k].name,
                                   .build = build_bad,
                                   .params = 1,
                                   .shape = {PL_SHAPE(4)},
                                   .forward_only = true,
                                   .p = k};
        operator_run_t run;
        device_results_t got = {0};
        operator_run_init(&run, &c, &rig.err);
        ok(device_run(&rig, &run, &got) < 0, "%s is refused", c.name);
        like(rig.err.text, errors[k], "and named: %s", rig.err.text);
        device_results_release(&got);
        operator_run_release(&run);
    }
    rig.ops->close(&device);
}

static pl_node_t build_hosted(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = pl_param(g, "a", c->shape[0], pl_zeros()),
              w = pl_param(g, "b", c->shape[1], pl_zeros());
    x = pl_apply(g, "hosted gate", (pl_node_t[]){pl_tanh(g, x), w}, 2,
                 &(sample_gate_t){c->p});
    return pl_apply(g, "hosted gate", (pl_node_t[]){pl_exp(g, x), w}, 2,
                    &(sample_gate_t){-1});
}

static void an_operator_without_a_text_runs_on_the_host(void)
{
    const operator_case_t c = {.name = "hosted gate",
                               .build = build_hosted,
                               .params = 2,
                               .shape = {PL_SHAPE(7, 5), PL_SHAPE(5)},
                               .p = 1.5};
    emulated_t device = {.seed = 1};
    pl_device_info_t info = {.ranks = 1};
    device_rig_t rig = {.ops = &emulated_accelerator, .self = &device};
    if (!ok(rig.ops->open(&device, &info, &rig.err) == PL_OK, "the emulator is opened"))
        return;
    rig_listen("operator \"hosted gate\" has no text for \"gpu\": the host computes it");
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        ok(device_is_right(&rig, &c, formats[f].precision, formats[f].tolerance),
           "with the numbers of the reference in %s", formats[f].precision);
    is_int(rig_lines_received(), 1, "and a line of the log reports it");
    rig_listen(NULL);
    rig.ops->close(&device);
}

static const pl_registration_t components[] = {{"accelerator", &emulated_accelerator},
                                               {"operator", &bad[0]},
                                               {"operator", &bad[1]},
                                               {"operator", &bad[2]},
                                               {"operator", &sample_gate},
                                               {"operator", &sample_hosted_gate},
                                               PL_REGISTRATIONS_END};

int main(void)
{
    rig_init(components);
    pl_register(swish_plugin(), NULL);
    run(every_case_equals_the_reference);
    if (getenv("KERNELS_ALONE"))
        return tap_done();
    run(an_operator_without_a_text_runs_on_the_host);
    run(an_operator_that_cannot_be_compiled_is_named);
    run(gradients_are_added_to_those_of_other_batches);
    run(cases_without_gradients_equal_the_reference);
    run(products_of_a_library_equal_the_reference);
    run(layers_of_a_library_equal_the_reference);
    run(a_layer_that_is_refused_late_is_compiled_in_the_background);
    run(a_library_changes_nothing_after_a_failure);
    run(runs_train_as_on_the_processor);
    run(a_step_that_is_not_finite_is_skipped);
    run(the_bad_gradient_that_is_named_is_of_the_step_that_failed);
    return tap_done();
}
