/* opencl.c - tests of the accelerator "opencl" on a device of this machine, such as PoCL:
 * operators, trainings, and errors
 *
 * Without a driver of OpenCL they are skipped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerators/opencl/opencl.h"
#include "base/alloc.h"
#include "device_rig.h"
#include "rig.h"
#include "sample_operator.h"
#include "tap.h"

const pl_registration_t *opencl_plugin(void);
const pl_registration_t *opencl_none_plugin(void);         /* of a build without OpenCL */

static const pl_accelerator_ops_t *accelerator;

typedef struct device {
    device_rig_t rig;
    pl_device_info_t info;
} device_t;

static bool device_open(device_t *d, int number, const char *platform)
{
    opencl_options_t *self = pl_alloc(accelerator->size);
    self->platform = platform;
    *d = (device_t){.rig = {.ops = accelerator, .self = self},
                    .info = {.ranks = 1, .device = number, .computes = true}};
    return accelerator->open(d->rig.self, &d->info, &d->rig.err) == PL_OK;
}

static void device_close(device_t *d)
{
    accelerator->close(d->rig.self);
    pl_free(d->rig.self);
}

static void operators_equal_the_reference(void)
{
    const int every = getenv("PACELINE_TEST_LONG") ? 1 : 24;
    device_t d;
    if (!ok(device_open(&d, -1, ""), "a device is opened: %s", d.rig.err.text))
        return;
    device_check(&d.rig, "32-true", 1e-5, NULL, every > 1 ? 3 : 1);
    device_check(&d.rig, "64-true", 1e-12, NULL, every);
    device_check(&d.rig, "bf16-mixed", 3 * 0x1p-8, NULL, every);
    device_check(&d.rig, "16-true", 3 * 0x1p-11, NULL, every);
    d.rig.evaluates = true;
    device_check(&d.rig, "32-true", 1e-5, NULL, every);
    device_close(&d);
}

static pl_node_t build_hosted(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t both[] = {pl_param(g, "a", c->shape[0], pl_zeros()),
                        pl_param(g, "b", c->shape[1], pl_zeros())};
    return pl_apply(g, "hosted gate", both, 2, &(sample_gate_t){c->p});
}

static void an_operator_without_a_text_runs_on_the_host(void)
{
    const operator_case_t c = {.name = "hosted gate",
                               .build = build_hosted,
                               .params = 2,
                               .shape = {PL_SHAPE(7, 5), PL_SHAPE(5)},
                               .p = 1.5};
    device_t d;
    if (!ok(device_open(&d, -1, ""), "a device is opened: %s", d.rig.err.text))
        return;
    rig_listen("operator \"hosted gate\" has no text for \"gpu\": the host computes it");
    ok(device_is_right(&d.rig, &c, "32-true", 1e-5), "with the reference's numbers: %s",
       d.rig.err.text);
    ok(device_is_right(&d.rig, &c, "64-true", 1e-12), "and in float64");
    ok(device_is_right(&d.rig, &c, "bf16-mixed", 3 * 0x1p-8), "and in bf16");
    is_int(rig_lines_received(), 1, "and a line of the log reports it");
    rig_listen(NULL);
    device_close(&d);
}

static rig_result_t *fit_on(const char *name, int devices)
{
    char trainer[96];
    snprintf(trainer, sizeof trainer,
             "\"max_epochs\": 2, \"gradient_clip_val\": 1, \"devices\": %d", devices);
    return rig_train(
        &(rig_spec_t){.accelerator = name,
                      .module = "{\"name\": \"mlp\", \"hidden\": [8], \"dropout\": 0.1}",
                      .optimizer = "{\"name\": \"adamw\", \"lr\": 0.01}",
                      .data = "\"val_split\": 0.2",
                      .trainer = trainer});
}

static void runs_train_as_on_the_processor(void)
{
    for (int ranks = 1; ranks <= 2 && rig_has("cpu"); ranks++) {
        rig_result_t *cpu = fit_on("cpu", ranks), *cl = fit_on("opencl", ranks),
                     *again = fit_on("opencl", ranks);
        is_text(cl->status, "ok", "%d of them train: %s", ranks, cl->error.text);
        ok(rig_distance(cpu, cl) < 1e-4, "to the same weights, but for %g",
           rig_distance(cpu, cl));
        is_near(rig_metric(cl, "val_loss"), rig_metric(cpu, "val_loss"), 1e-4,
                "and the same loss");
        ok(rig_same_bits(cl, again), "and once more to the same bits");
        rig_result_free(cpu), rig_result_free(cl), rig_result_free(again);
    }
}

static void devices_are_chosen_by_number(void)
{
    device_t d;
    ok(!device_open(&d, 1000, ""), "there are not so many devices");
    like(d.rig.err.text,
         "^trainer.devices lists device 1000, and OpenCL has [0-9]+ devices? here, "
         "numbered from 0$",
         "which is an error");
    device_close(&d);
}

static void platforms_are_chosen_by_name(void)
{
    device_t d;
    ok(!device_open(&d, -1, "Nowhere"), "none has this in its name");
    like(d.rig.err.text,
         "^no platform of OpenCL with \"Nowhere\" in its name has a device",
         "which is an error");
    device_close(&d);
}

/* Bytes that one block of an open device may have. */
static unsigned long long block_max(const device_t *d)
{
#ifdef HAVE_OPENCL
    return ((const opencl_t *)d->rig.self)->device.block;
#else
    (void)d;                                                /* no device opens */
    return 0;
#endif
}

/* Before the device's memory is full. */
static void a_block_that_is_too_large_is_reported_with_the_limit(void)
{
    device_t d;
    char limit[200];
    if (!ok(device_open(&d, -1, ""), "a device is opened: %s", d.rig.err.text))
        return;
    const unsigned long long max = block_max(&d);
    is_int(accelerator->region(d.rig.self, PL_REGION_PARAMS, PL_F32,
                               (int64_t)(max / 4 + 1), &d.rig.err),
           PL_ENOMEM, "a region of more bytes than one block may have is refused");
    snprintf(limit, sizeof limit,
             "^one block of [0-9]+ bytes was requested on opencl:0 .*, whose driver "
             "allocates at most %llu bytes in one .CL_DEVICE_MAX_MEM_ALLOC_SIZE.",
             max);
    like(d.rig.err.text, limit, "with the limit");
    like(d.rig.err.text,
         "for parameters: use a smaller batch_size .*, or a smaller model$",
         "and what to change");
    device_close(&d);
}

static char fact[512];                                      /* of the first device */

static void keep_fact(void *user, const char *name, const char *text)
{
    (void)user;
    if (name && strcmp(name, "OpenCL device 0") == 0)
        snprintf(fact, sizeof fact, "%s", text);
}

static void devices_are_reported(void)
{
    accelerator->report(keep_fact, NULL);
    like(fact,
         "^.+ \\((processor|GPU)\\), [0-9]+ units, ([0-9]+ MiB|memory of the host), "
         "OpenCL [0-9.]+[^,]*$",
         "by the doctor: %s", fact);
}

static void tell_missing(void *user, const char *name, const char *text)
{
    (void)user;
    is_text(name, "OpenCL", "it is a fact, and no warning");
    like(text, "^Paceline was built without OpenCL: apt-get install ocl-icd-opencl-dev",
         "with commands that install it");
}

static void a_build_without_opencl_names_the_package(void)
{
    const pl_accelerator_ops_t *none = opencl_none_plugin()->table;
    opencl_options_t *self = pl_alloc(none->size);
    pl_device_info_t info = {.ranks = 1};
    pl_error_t err = {0};
    none->report(tell_missing, NULL);
    is_int(none->open(self, &info, &err), PL_EUNSUPPORTED, "it opens nothing");
    like(err.text, "apt-get install ocl-icd-opencl-dev", "and has the same command");
    pl_free(self);
}

static const pl_registration_t operators[] = {{"operator", &sample_gate},
                                              {"operator", &sample_hosted_gate},
                                              PL_REGISTRATIONS_END};

int main(void)
{
    device_t d;
    setenv("POCL_CACHE_DIR", tap_folder(), 1);
    rig_init(opencl_plugin());
    pl_register(operators, NULL);
    accelerator = opencl_plugin()->table;
    run(a_build_without_opencl_names_the_package);
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    tap_skip("a driver of OpenCL is not built for sanitizers");
    return tap_done();
#endif
    const bool opens = device_open(&d, -1, "");
    device_close(&d);
    if (!opens) {
        tap_skip("%s", d.rig.err.text);
        return tap_done();
    }
    run(operators_equal_the_reference);
    run(an_operator_without_a_text_runs_on_the_host);
    run(runs_train_as_on_the_processor);
    run(devices_are_chosen_by_number);
    run(platforms_are_chosen_by_name);
    run(a_block_that_is_too_large_is_reported_with_the_limit);
    run(devices_are_reported);
    return tap_done();
}
