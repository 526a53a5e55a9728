/* cuda_layers.c - tests of attention and convolution by cuDNN, over stand-ins for
 * NVIDIA's libraries: results, layers of the core's kernels, plans on disk, and
 * what happens when a call fails */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerators/cuda/cuda.h"
#include "accelerators/cuda/dnn.h"
#include "device_rig.h"
#include "rig.h"
#include "tap.h"

const pl_registration_t *cuda_plugin(void);

static const pl_accelerator_ops_t *accelerator;
static int *executed, *planned, *loaded, *left, *left_of_driver;

typedef struct format {
    const char *precision;
    double tolerance;
} format_t;

static const format_t formats[] = {{"32-true", 1e-5},
                                   {"64-true", 1e-12},
                                   {"bf16-mixed", 3 * 0x1p-8},
                                   {"16-mixed", 3 * 0x1p-11},
                                   {"bf16-true", 3 * 0x1p-8}};
enum { FORMATS = sizeof formats / sizeof *formats };

static pl_error_t failure;                              /* of the case that failed last */

/* The largest error of the cases with the word in their names; `by`: so many layers were
 * computed by cuDNN. */
static double cases_off(cuda_t *device, const char *word, const format_t *format, int *by)
{
    pl_device_info_t info = {.ranks = 1, .device = -1};
    device_rig_t rig = {.ops = accelerator, .self = device};
    const int before = *executed;
    double worst = 0;
    device->recordings = true;
    if (accelerator->open(device, &info, &rig.err) != PL_OK)
        return INFINITY;
    for (int i = 0; i < operator_case_count; i++)
        if (strstr(operator_cases[i].name, word)) {
            const double off = device_case_off(&rig, &operator_cases[i],
                                               format->precision);
            if (!(off < format->tolerance))
                tap_diag("%s, %s: off by %g: %s", operator_cases[i].name,
                         format->precision, off, rig.err.text);
            worst = fmax(worst, off);
        }
    failure = rig.err;
    accelerator->close(device);
    *by = *executed - before;
    return worst;
}

static void layers_of_cudnn_equal_the_reference(void)
{
    int by;
    for (int f = 0; f < FORMATS; f++) {
        const format_t *format = &formats[f];
        const bool half = strstr(format->precision, "16");
        double off = cases_off(&(cuda_t){.cudnn = true}, "conv", format, &by);
        ok(off < format->tolerance && (by > 10) == (f != 1),
           "%s: %d convolutions, off by %g", format->precision, by, off);
        off = cases_off(&(cuda_t){.cudnn = true}, "attention, width", format, &by);
        ok(off < format->tolerance && (by > 5) == half, "%d attentions, off by %g", by,
           off);
    }
    ok(cases_off(&(cuda_t){0}, "conv2d", &formats[0], &by) < formats[0].tolerance
           && by == 0,
       "without the option none is by cuDNN");
    ok(cases_off(&(cuda_t){.cudnn = true, .strict = true}, "conv2d", &formats[0], &by)
               < formats[0].tolerance
           && by == 0,
       "nor with the option \"strict\"");
}

static void float32_is_not_rounded_to_tf32_by_default(void)
{
    int by;
    const double off = cases_off(&(cuda_t){.cudnn = true, .tf32 = true}, "conv2d",
                                 &(format_t){"32-true", 1}, &by);
    ok(off > 1e-5 && off < 1e-2 && by > 0, "with the option off by %g", off);
}

/* As where batches and heads are so many that the workspace would grow with them: parts
 * that need so many bytes at most; *parts: how many there were. */
static double parts_off(const char *word, int64_t max, const format_t *format, int *parts)
{
    const int64_t whole = dnn_part_max;
    int by, all;
    cases_off(&(cuda_t){.cudnn = true}, word, format, &all);
    dnn_part_max = max;
    const double off = cases_off(&(cuda_t){.cudnn = true}, word, format, &by);
    dnn_part_max = whole;
    *parts = by - all + 1;
    return off;
}

static void a_gradient_of_attention_is_computed_in_parts(void)
{
    static const char name[] = "attention, four batches of four heads";
    const int64_t head = 2 * 5 * 5;
    int parts;
    double off = parts_off("attention, width 8", 1, &formats[2], &parts);
    ok(off < formats[2].tolerance, "a batch and a head at a time, off by %g", off);
    is_int(parts, 4, "two batches of two heads in four parts");
    for (int f = 2; f < 4; f++) {
        off = parts_off(name, 2 * head, &formats[f], &parts);
        ok(off < formats[f].tolerance, "%s: two heads of four at a time, off by %g",
           formats[f].precision, off);
        is_int(parts, 8, "four batches of four heads in eight parts");
        off = parts_off(name, 2 * 4 * head, &formats[f], &parts);
        ok(off < formats[f].tolerance, "two batches of four at a time, off by %g", off);
        is_int(parts, 2, "in two parts");
    }
    pl_layer_t layer = {.kind = PL_LAYER_ATTENTION_GRAD,
                        .attention = {.batches = 32, .heads = 12, .tokens = 1024}};
    int64_t batches, heads;
    const dnn_rules_t in_order = {0}, any_order = {.any_order = true};
    pl_layer_t part = dnn_part(&layer, in_order, &batches, &heads);
    ok(part.attention.batches == 8 && batches == 4 && heads == 1,
       "32 batches of GPT-2 are computed 8 at a time");
    layer.attention.tokens = 8192;
    part = dnn_part(&layer, in_order, &batches, &heads);
    ok(part.attention.batches == 1 && part.attention.heads == 2 && batches == 32
           && heads == 6,
       "and of long texts two heads at a time");
    part = dnn_part(&layer, any_order, &batches, &heads);
    ok(part.attention.batches == 32 && batches == 1 && heads == 1,
       "but in any order all at once");
}

/* In memory that has to be zeros. */
static void gradients_of_queries_may_be_added_up_in_any_order(void)
{
    for (int f = 2; f < 4; f++) {
        cuda_t device = {.cudnn = true, .any_order = true};
        int by, once;
        cases_off(&(cuda_t){.cudnn = true}, "attention, width 8", &formats[f], &by);
        setenv("STAND_IN", "any_order", 1);
        double off = cases_off(&device, "attention, width 8", &formats[f], &once);
        ok(off < formats[f].tolerance && once > 1 && once <= by,
           "attention in %s, off by %g", formats[f].precision, off);
        off = cases_off(&device, "conv2d, kernel 1", &formats[f], &once);
        ok(off < formats[f].tolerance && once > 1, "and a convolution, off by %g", off);
        setenv("STAND_IN", "", 1);
        off = cases_off(&device, "conv2d, kernel 1", &formats[f], &once);
        ok(isinf(off), "by an engine that is not used without the option");
    }
}

/* Results of a plan that is replayed so often; how many layers cuDNN was asked
 * for. */
static int replays_of(const char *name, bool recordings, double short_replay, int times,
                      device_results_t *last)
{
    cuda_t device = {.gpu = {.short_replay = short_replay},
                     .cudnn = true,
                     .recordings = recordings};
    pl_device_info_t info = {.ranks = 1, .device = -1};
    device_rig_t rig = {.ops = accelerator, .self = &device};
    operator_case_t c = {0};
    operator_run_t run;
    pl_plan_t *plan = NULL;
    const int before = *executed;
    for (int i = 0; i < operator_case_count; i++)
        if (strcmp(operator_cases[i].name, name) == 0)
            c = operator_cases[i];
    c.precision = device_precision("bf16-mixed");
    ok(accelerator->open(&device, &info, &rig.err) == PL_OK
           && operator_run_init(&run, &c, &rig.err) == PL_OK
           && device_load(&rig, &run) == PL_OK
           && accelerator->compile(&device, run.graph, &plan, &rig.err) == PL_OK,
       "%s is compiled: %s", name, rig.err.text);
    for (int k = 0; k < times && plan; k++) {
        if (k)
            device_results_release(last);
        ok(device_replay(&rig, &run, plan, last) == PL_OK, "and replayed: %s",
           rig.err.text);
    }
    operator_run_release(&run);
    accelerator->close(&device);
    return *executed - before;
}

/* Replays without a batch take turns with two slots of two sets; of each the second is
 * recorded.  Of short replays that is so from the second one on, which has no mark where
 * backward begins. */
static void recorded_layers_give_the_same_bits(void)
{
    static const char *const names[] = {"conv2d, padding",
                                        "attention, width 8, heads cut out"};
    for (int k = 0; k < 2; k++) {
        const double never = 1e-12, always = 60;
        device_results_t once, recorded, joined, launched;
        const int layers = replays_of(names[k], true, never, 1, &once);
        ok(layers >= 2, "%d layers", layers);
        is_int(replays_of(names[k], true, never, 11, &recorded), 8 * layers,
               "of eleven replays eight ask cuDNN");
        is_int(replays_of(names[k], true, always, 11, &joined), 9 * layers,
               "of short ones nine");
        is_int(replays_of(names[k], false, never, 11, &launched), 11 * layers,
               "without recordings all do");
        ok(device_results_same(&once, &recorded) && device_results_same(&once, &launched)
               && device_results_same(&once, &joined),
           "to the same bits");
        device_results_release(&once);
        device_results_release(&recorded);
        device_results_release(&joined);
        device_results_release(&launched);
    }
}

/* ---- What cuDNN does not compute ---- */

/* Lines of the log with a text, when convolutions are computed with a fault. */
static int lines_with(const char *stand_in, const char *text, int *by)
{
    setenv("STAND_IN", stand_in, 1);
    rig_listen(text);
    const double off = cases_off(&(cuda_t){.cudnn = true}, "conv2d, kernel 1",
                                 &formats[0], by);
    const int lines = rig_lines_received();
    rig_listen(NULL);
    setenv("STAND_IN", "", 1);
    ok(off < formats[0].tolerance, "%s: off by %g", stand_in, off);
    return lines;
}

static void layers_refused_by_cudnn_are_computed_by_kernels(void)
{
    static const char *const calls[] = {"dnn_new", "dnn_set", "dnn_finalize"};
    int by, all;
    cases_off(&(cuda_t){.cudnn = true}, "conv2d, kernel 1", &formats[0], &all);
    is_int(lines_with("no_cudnn",
                      "attention and convolution are computed by kernels of Paceline, "
                      "which are slower: ",
                      &by),
           1, "one line reports that it cannot be opened");
    is_int(by, 0, "it computes nothing");
    for (int at = 3; at < 60; at += 11) {
        char fault[32];
        snprintf(fault, sizeof fault, "%s=%d", calls[at % 3], at);
        ok(lines_with(fault, "cuDNN failed to plan convolution", &by) <= 1,
           "at most one line names the layer that fails");
        ok(by > 0 && by <= all, "%d of %d layers are by cuDNN", by, all);
    }
    is_int(lines_with("dnn_set=2:3002", "cuDNN does not compute convolution", &by), 1,
           "one line names the layer that it refuses");
}

/* Each layer is described and planned again; status and message are cuDNN's. */
static void layers_that_cudnn_fails_at_are_computed_by_kernels_with_a_warning(void)
{
    int by;
    is_int(lines_with("dnn_set=2",
                      "slower, compute it: CUDNN_STATUS_INTERNAL_ERROR (4000): call 2 of "
                      "dnn_set fails",
                      &by),
           1, "an error of a description is no error of the run");
    ok(by > 0, "the other layers are by cuDNN");
    for (int at = 30; at < 60; at += 3) {      /* engines are looked at, and plans made */
        char fault[32];
        snprintf(fault, sizeof fault, "dnn_new=%d:4001", at);
        const int warnings = lines_with(fault, "cuDNN failed to plan convolution", &by);
        ok(warnings <= 1 && by > 0, "%s: %d warnings", fault, warnings);
    }
}

static void a_card_that_is_lost_while_plans_are_made_is_the_error(void)
{
    static const char *const faults[] = {"dnn_new=1:700", "dnn_finalize=3:700"};
    for (int k = 0, by; k < 2; k++) {
        setenv("STAND_IN", faults[k], 1);
        rig_listen("cuDNN");
        ok(isinf(
               cases_off(&(cuda_t){.cudnn = true}, "conv2d, kernel 1", &formats[0], &by)),
           "%s: a plan is not compiled: %s", faults[k], failure.text);
        is_int(rig_lines_received(), 0, "no line reports that kernels compute it");
        rig_listen(NULL);
        setenv("STAND_IN", "", 1);
        like(failure.text,
             "cuda:0 .Stand-in 0.: .* failed: an illegal memory access was encountered "
             ".CUDA_ERROR_ILLEGAL_ADDRESS.; this process cannot use the card any more",
             "with the error of the card");
        is_int(by, 0, "nothing is computed");
    }
}

/* The next plan finds memory. */
static void a_host_without_memory_is_the_error(void)
{
    static const char *const faults[] = {"dnn_new=1:4003", "dnn_new=2:4003",
                                         "dnn_finalize=4:4003"};
    for (int k = 0, by, all; k < 3; k++) {
        cases_off(&(cuda_t){.cudnn = true}, "conv2d", &formats[0], &all);
        setenv("STAND_IN", faults[k], 1);
        ok(isinf(cases_off(&(cuda_t){.cudnn = true}, "conv2d", &formats[0], &by)),
           "%s: a plan is not compiled", faults[k]);
        setenv("STAND_IN", "", 1);
        ok(by > all / 2 && by < all, "but the next are: %d of %d layers by cuDNN", by,
           all);
    }
}

static void an_execution_that_fails_is_reported(void)
{
    int by;
    setenv("STAND_IN", "dnn_execute=1", 1);
    ok(isinf(cases_off(&(cuda_t){.cudnn = true}, "conv2d, kernel 1", &formats[0], &by)),
       "a step fails: %s", failure.text);
    setenv("STAND_IN", "", 1);
    like(failure.text,
         "cuda:0 .Stand-in 0.: a convolution: cuDNN failed: "
         "CUDNN_STATUS_EXECUTION_FAILED .5000.",
         "with the error of cuDNN");
}

/* ---- Plans on disk ---- */

/* How many plans are made, and how many are loaded, where they are kept in a folder. */
static void plan_all(const char *folder, int capability, int *made, int *kept)
{
    char fault[32];
    int by;
    cuda_t device = {.cudnn = true, .cache = true, .cache_dir = folder, .cache_mb = 64};
    const int made_before = *planned, kept_before = *loaded;
    snprintf(fault, sizeof fault, "capability=%d", capability);
    setenv("STAND_IN", fault, 1);
    ok(cases_off(&device, "attention, width", &formats[2], &by) < formats[2].tolerance,
       "attention is right");
    setenv("STAND_IN", "", 1);
    *made = *planned - made_before;
    *kept = *loaded - kept_before;
}

static void plans_are_kept_on_disk(void)
{
    char folder[256];
    int made, kept, all;
    snprintf(folder, sizeof folder, "%s/plans", tap_folder());
    plan_all(folder, 90, &all, &kept);
    ok(all > 4 && kept == all, "%d plans are made, and loaded from their texts", all);
    plan_all(folder, 90, &made, &kept);
    ok(made == 0 && kept == all, "and the next time loaded");
    plan_all(folder, 80, &made, &kept);
    ok(made == all && kept == all, "another card has others");
}

static void layers_leave_nothing_on_the_card(void)
{
    is_int(*left, 0, "no handle and no descriptor");
    is_int(*left_of_driver, 0, "and nothing on the card");
}

int main(void)
{
    char text[PATH_MAX];
    const char *top = getenv("top_builddir");
    void *const nvrtc = device_stand_in("libnvrtc.so.13", "nvrtcVersion");
    left_of_driver = device_stand_in("libcuda.so.1", "stand_in_left");
    executed = device_stand_in("libcudnn.so.9", "stand_in_executed");
    planned = device_stand_in("libcudnn.so.9", "stand_in_planned");
    loaded = device_stand_in("libcudnn.so.9", "stand_in_loaded");
    left = device_stand_in("libcudnn.so.9", "stand_in_dnn_left");
    if (!ok(nvrtc && executed && planned && loaded && left && left_of_driver,
            "the stand-ins are there"))
        return tap_done();
    snprintf(text, sizeof text, "%s/t/stand_in/.libs", top ? top : ".");
    setenv("PACELINE_CUDA_PATH", text, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    rig_init(cuda_plugin());
    accelerator = cuda_plugin()->table;
    run(layers_of_cudnn_equal_the_reference);
    run(float32_is_not_rounded_to_tf32_by_default);
    run(a_gradient_of_attention_is_computed_in_parts);
    run(gradients_of_queries_may_be_added_up_in_any_order);
    run(recorded_layers_give_the_same_bits);
    run(layers_refused_by_cudnn_are_computed_by_kernels);
    run(layers_that_cudnn_fails_at_are_computed_by_kernels_with_a_warning);
    run(a_card_that_is_lost_while_plans_are_made_is_the_error);
    run(a_host_without_memory_is_the_error);
    run(an_execution_that_fails_is_reported);
    run(plans_are_kept_on_disk);
    run(layers_leave_nothing_on_the_card);
    return tap_done();
}
