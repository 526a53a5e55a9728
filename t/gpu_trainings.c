/* gpu_trainings.c - tests of trainings on GPUs that are emulated: PyTorch's numbers step
 * by step, and whole runs of the examples beside the processor's */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_training.h"
#include "files.h"
#include "backend_emulated.h"
#include "rig.h"
#include "tap.h"

const pl_registration_t *cnn_plugin(void);

static device_training_off_t train(const char *name, const char *precision,
                                   const json_t *want)
{
    device_training_off_t off = {INFINITY, INFINITY, INFINITY};
    emulated_t device = {.seed = 1};
    pl_device_info_t info = {.ranks = 1};
    device_rig_t rig = {.ops = &emulated_accelerator, .self = &device};
    device_training_t plans = {NULL, NULL};
    training_case_t c = {NULL};
    training_t t;
    for (int i = 0; i < training_case_count; i++)
        if (!strcmp(training_cases[i].name, name))
            c = training_cases[i];
    c.precision = device_precision(precision);
    if (rig.ops->open(&device, &info, &rig.err) == PL_OK
        && training_init(&t, &c, &rig.err) == PL_OK) {
        if (device_training_open(&rig, &t, &plans) == PL_OK)
            off = device_training_run(&rig, &t, &plans, want);
        rig.ops->close(&device);
        training_release(&t);
    }
    if (rig.err.code)
        tap_diag("%s", rig.err.text);
    return off;
}

/* In float64 some of them, all with PACELINE_TEST_LONG. */
static void trainings_equal_torch(void)
{
    const char *name;
    json_t *want, *data = device_training_data("training");
    int number = 0;
    ok(data != NULL, "t/data/training.json can be read");
    json_object_foreach(data, name, want) {
        for (int wide = 0; wide < 2; wide++) {
            const char *precision = wide ? "64-true" : "32-true";
            if (wide && number++ % 4 && !getenv("PACELINE_TEST_LONG"))
                continue;
            const device_training_off_t off = train(name, precision, want);
            ok(off.loss < 1e-5, "%s, %s: losses are PyTorch's within %.1g", name,
               precision, off.loss);
            ok(off.gradients < 1e-4, "gradients of the first step within %.1g",
               off.gradients);
            ok(off.norm < 1e-4, "norms within %.1g", off.norm);
        }
    }
    json_decref(data);
}

static void trainings_in_bfloat16_equal_autocast(void)
{
    const char *name;
    json_t *losses, *data = device_training_data("halves");
    ok(data != NULL, "t/data/halves.json can be read");
    json_object_foreach(json_object_get(data, "trainings"), name, losses) {
        json_t *want = json_pack("{s:O}", "losses", losses);
        const device_training_off_t off = train(name, "bf16-mixed", want);
        ok(off.loss < 5e-3, "%s: losses are PyTorch's within %.1g", name, off.loss);
        json_decref(want);
    }
    json_decref(data);
}

/* ---- Whole runs of examples ---- */

enum { PICTURES = 40, SIDE = 8 };

/* Bars that stand or lie, and noise. */
static void pictures_make(void)
{
    static float x[PICTURES][SIDE][SIDE];
    static int64_t y[PICTURES];
    const pl_arrays_t arrays = {.samples = PICTURES,
                                .field_count = 2,
                                .field = {{"x", PL_F32, {3, {1, SIDE, SIDE}}},
                                          {"y", PL_I64, {0, {0}}}},
                                .data = {x, y},
                                .data_info = "{\"classes\": 2}"};
    for (int k = 0; k < PICTURES; k++) {
        y[k] = k % 2;
        for (int i = 0; i < SIDE * SIDE; i++)
            x[k][i / SIDE][i % SIDE] = (float)((k * 37 + i * 11) % 16) / 32
                                       + (float)((y[k] ? i / SIDE : i % SIDE)
                                                 == k / 2 % SIDE);
    }
    ok(pl_memory_arrays("pictures", &arrays, NULL) == PL_OK, "there are pictures");
}

static const char *text_of(char data[512])
{
    char text[1024] = "";
    for (int k = 0; k < 60; k++)
        strcat(text, "abcd efg.\n");
    snprintf(data, 512,
             "{\"name\": \"text\", \"path\": \"%s\", \"context\": 8, \"batch_size\": 8}",
             file_put_text("text.txt", text));
    return data;
}

static rig_result_t *fit_on(const char *accelerator, const char *module, const char *data)
{
    return rig_train(&(rig_spec_t){.accelerator = accelerator,
                                   .module = module,
                                   .dataset = data,
                                   .optimizer = "{\"name\": \"adamw\", \"lr\": 0.01}",
                                   .trainer = "\"max_steps\": 12"});
}

static void examples_train_as_on_the_processor(void)
{
    char text[512];
    const struct {
        const char *module, *data;
    } examples[] = {
        {"{\"name\": \"cnn\", \"channels\": [4, 6], \"hidden\": 16}",
         "{\"name\": \"memory\", \"source\": \"pictures\", \"batch_size\": 8}"},
        {"{\"name\": \"gpt\", \"layers\": 2, \"heads\": 2, \"width\": 16}",
         text_of(text)}};
    pictures_make();
    for (size_t k = 0; k < sizeof examples / sizeof *examples && rig_has("cpu"); k++) {
        rig_result_t *cpu = fit_on("cpu", examples[k].module, examples[k].data),
                     *gpu = fit_on("emulated", examples[k].module, examples[k].data);
        is_text(gpu->status, "ok", "%s trains: %s", examples[k].module, gpu->error.text);
        is_int((int64_t)gpu->global_step, 12, "for all its steps");
        ok(rig_distance(cpu, gpu) < 1e-3, "to the same weights, but for %g",
           rig_distance(cpu, gpu));
        is_near(rig_metric(gpu, "train_loss"), rig_metric(cpu, "train_loss"), 1e-4,
                "and the same loss");
        rig_result_free(cpu), rig_result_free(gpu);
    }
}

static const pl_registration_t components[] = {{"accelerator", &emulated_accelerator},
                                               PL_REGISTRATIONS_END};

int main(void)
{
    rig_init(components);
    pl_register(cnn_plugin(), NULL);
    run(trainings_equal_torch);
    run(trainings_in_bfloat16_equal_autocast);
    run(examples_train_as_on_the_processor);
    return tap_done();
}
