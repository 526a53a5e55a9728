/* cuda.c - tests of the accelerator "cuda" over stand-ins for NVIDIA's driver, NVRTC and
 * cuBLASLt: results, refusals, and failures of the card */
#include <dirent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accelerators/cuda/cuda.h"
#include "base/clock.h"
#include "device_rig.h"
#include "rig.h"
#include "tap.h"

const pl_registration_t *cuda_plugin(void);

static const pl_accelerator_ops_t *accelerator;
static int *compiled, *compiling, *called, *left, *multiplied, *followed, *left_of_cublas;

/* ---- Drivers that cannot be used ---- */

static void the_error_of_a_driver_is_one_sentence(void)
{
    static const char *const faults[][2] = {
        {"stub", "libcuda.so.1.* is the stub of NVIDIA's toolkit, not a driver: remove "},
        {"no_device", "finds no GPU .CUDA_VISIBLE_DEVICES is not set"},
        {"old", "too old: it supports CUDA 11.8; install version 525"}};
    for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) {
        pl_error_t err = {0};
        setenv("STAND_IN", faults[k][0], 1);
        ok(accelerator->count(&err) == 0 && err.code == PL_EUNSUPPORTED,
           "%s: there is no device", faults[k][0]);
        like(err.text, faults[k][1], "and why");
    }
    setenv("STAND_IN", "", 1);
    ok(accelerator->count(NULL) == 1, "else there is");
}

/* ---- What the replacement of the driver finds ---- */

/* In a child, which must not live on. */
static bool crashes(const volatile char *at)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        _exit(*at & 0);
    }
    return waitpid(child, &status, 0) == child && status != 0;
}

static void wrong_calls_of_the_driver_are_errors_of_its_replacement(void)
{
    const cuda_driver_t *call = &cuda_library_open(NULL)->call;
    CUcontext context;
    CUstream stream;
    CUevent event;
    CUgraph graph = NULL;
    CUdeviceptr at = 0, other = 0;
    char host[64] = "";
    call->context_use(NULL);
    is_int(call->memory_new(&at, 64), CU_INVALID_CONTEXT, "a call without a context");
    call->context_retain(&context, 0);
    call->context_use(context);
    is_int(call->memory_new(&at, 64), CU_OK, "(with one there is memory)");
    ok(crashes((const char *)(uintptr_t)at), "reading the card's memory is a crash");
    call->stream_new(&stream, CU_STREAM_APART);
    is_int(call->copy_in(at, host, 65, stream), CU_INVALID_VALUE,
           "copying more than was allocated");
    is_int(call->copy_in(at + 1, host, 64, stream), CU_INVALID_VALUE, "or beyond it");
    call->event_new(&event, CU_EVENT_BLOCKING);
    is_int(call->event_record((CUevent)stream, stream), CU_INVALID_HANDLE,
           "a handle of another kind");
    call->capture_begin(stream, CU_CAPTURE_BY_THREAD);
    is_int(call->memory_new(&other, 64), CU_CAPTURE_UNSUPPORTED,
           "allocating while launches are recorded");
    is_int(call->capture_end(stream, &graph), CU_CAPTURE_INVALIDATED,
           "which ends the recording");
    call->capture_begin(stream, CU_CAPTURE_BY_THREAD);
    is_int(call->stream_finish(stream), CU_CAPTURE_UNSUPPORTED, "or waiting");
    call->capture_end(stream, &graph);
    const int before = *left;
    call->context_release(0);
    is_int(*left - before, 3, "the replacement counts leaks: memory, a stream, an event");
    *left = before;
    call->stream_free(stream);
    call->event_free(event);
    call->context_use(NULL);
}

/* ---- Cases of operators ---- */

typedef struct format {
    const char *precision;
    double tolerance;
} format_t;

static const format_t formats[] = {{"32-true", 1e-5},
                                   {"64-true", 1e-12},
                                   {"bf16-mixed", 3 * 0x1p-8},
                                   {"16-mixed", 3 * 0x1p-11}};

/* Every case once in one of the formats; PACELINE_TEST_LONG: in all. */
enum { FORMATS = sizeof formats / sizeof *formats, SHARE = 5 };

static void operators_equal_the_reference(void)
{
    const bool is_long = getenv("PACELINE_TEST_LONG");
    cuda_t device = {.recordings = true};
    pl_device_info_t info = {.ranks = 1, .device = -1};
    device_rig_t rig = {.ops = accelerator, .self = &device};
    int checked = 0, wrong = 0;
    if (!ok(accelerator->open(&device, &info, &rig.err) == PL_OK, "a card is opened: %s",
            rig.err.text))
        return;
    like(info.model, "^Stand-in 0, sm_90$", "its name");
    like(info.library, "^CUDA 13.0, NVRTC 13", "its libraries");
    ok(info.device == 0 && info.memory && info.memory_free && info.uuid[0],
       "and its facts");
    for (int i = 0; i < operator_case_count; i++)
        for (int f = 0; f < FORMATS; f++)
            if (is_long || i % (FORMATS * SHARE) == f * SHARE) {
                checked++;
                wrong += !device_is_right(&rig, &operator_cases[i], formats[f].precision,
                                          formats[f].tolerance);
            }
    ok(checked > 20 && wrong == 0, "of %d cases none is wrong", checked);
    accelerator->close(&device);
}

/* Its kernel for the host is called in the middle of a plan. */
static void operators_of_users_are_computed_by_the_host(void)
{
    cuda_t device = {.recordings = true};
    pl_device_info_t info = {.ranks = 1, .device = -1};
    device_rig_t rig = {.ops = accelerator, .self = &device};
    int checked = 0;
    if (!ok(accelerator->open(&device, &info, &rig.err) == PL_OK, "a card is opened: %s",
            rig.err.text))
        return;
    for (int i = 0; i < operator_case_count; i++)
        if (strstr(operator_cases[i].name, "user's operator")) {
            checked++;
            ok(device_is_right(&rig, &operator_cases[i], formats[0].precision,
                               formats[0].tolerance),
               "%s", operator_cases[i].name);
        }
    ok(checked > 2, "%d cases", checked);
    accelerator->close(&device);
}

/* ---- Products by cuBLASLt ---- */

static bool is_product(const operator_case_t *of)
{
    return strstr(of->name, "matmul") || strstr(of->name, "linear");
}

/* The most that any case of a product is off in a format; `by`: so many were computed by
 * cuBLASLt. */
static double products_off(cuda_t *device, const format_t *format, int *by)
{
    pl_device_info_t info = {.ranks = 1, .device = -1};
    device_rig_t rig = {.ops = accelerator, .self = device};
    const int before = *multiplied;
    double worst = 0;
    device->recordings = true;
    if (accelerator->open(device, &info, &rig.err) != PL_OK)
        return INFINITY;
    for (int i = 0; i < operator_case_count; i++)
        if (is_product(&operator_cases[i]))
            worst = fmax(worst,
                         device_case_off(&rig, &operator_cases[i], format->precision));
    accelerator->close(device);
    *by = *multiplied - before;
    return worst;
}

static void products_of_cublaslt_equal_the_reference(void)
{
    int by;
    for (int f = 0; f < FORMATS; f++) {
        const double off = products_off(&(cuda_t){.cublas = true}, &formats[f], &by);
        ok(off < formats[f].tolerance && by > 30, "%s: %d products, off by %g",
           formats[f].precision, by, off);
    }
    ok(products_off(&(cuda_t){0}, &formats[0], &by) < formats[0].tolerance && by == 0,
       "without the option none is by cuBLASLt");
    ok(products_off(&(cuda_t){.cublas = true, .strict = true}, &formats[0], &by)
               < formats[0].tolerance
           && by == 0,
       "nor with the option \"strict\"");
}

/* It does not round between a product and what follows it; and each option is one. */
static void operations_after_products_are_computed_by_cublaslt(void)
{
    int by, before = *followed;
    for (int f = 0; f < FORMATS; f++) {
        cuda_t device = {.cublas = true,
                         .fuse_bias_grad = true,
                         .fuse_gelu = true,
                         .fuse_gelu_grad = true};
        const double off = products_off(&device, &formats[f], &by);
        ok(off < 2 * formats[f].tolerance, "%s: off by %g", formats[f].precision, off);
    }
    ok(*followed > before, "%d products are followed by something", *followed - before);
    cuda_t devices[] = {{.cublas = true},
                        {.cublas = true, .fuse_bias_grad = true},
                        {.cublas = true, .fuse_gelu = true},
                        {.cublas = true, .fuse_gelu_grad = true}};
    for (int k = 0; k < 4; k++) {
        before = *followed;
        const double off = products_off(&devices[k], &formats[0], &by);
        ok(off < formats[0].tolerance && (*followed > before) == (k > 0),
           "with option %d %d of %d are", k, *followed - before, by);
    }
}

static void a_device_that_computes_names_the_library(void)
{
    cuda_t device = {.cublas = true};
    pl_device_info_t info = {.ranks = 1, .device = -1, .computes = true};
    is_int(accelerator->open(&device, &info, NULL), PL_OK, "a card is opened");
    is_text(info.library, "CUDA 13.0, NVRTC 13.99, cuBLASLt 13.99", "its libraries");
    accelerator->close(&device);
}

static void float32_is_not_rounded_to_tf32_by_default(void)
{
    int by;
    const double off = products_off(&(cuda_t){.cublas = true, .tf32 = true}, &formats[0],
                                    &by);
    ok(off > 1e-4 && off < 1e-2 && by > 0, "with the option off by %g", off);
}

/* Counts lines of the log with the text; products are right anyhow. */
static int lines_without_cublas(const char *stand_in, const char *text, int *by)
{
    setenv("STAND_IN", stand_in, 1);
    rig_listen(text);
    const double off = products_off(&(cuda_t){.cublas = true}, &formats[0], by);
    const int lines = rig_lines_received();
    rig_listen(NULL);
    setenv("STAND_IN", "", 1);
    ok(off < formats[0].tolerance, "%s: off by %g", stand_in, off);
    return lines;
}

static void products_refused_by_cublaslt_are_computed_by_kernels(void)
{
    int by, all;
    products_off(&(cuda_t){.cublas = true}, &formats[0], &all);
    is_int(lines_without_cublas("no_cublas",
                                "products of matrices are computed by "
                                "kernels of Paceline, which are slower: ",
                                &by),
           1, "one line reports that it cannot be opened");
    is_int(by, 0, "it computes nothing");
    is_int(lines_without_cublas("find=3:15", "cuBLASLt does not compute a product of ",
                                &by),
           1, "one line names the product that it refuses");
    is_int(by, all - 1, "and it computes the rest");
    is_int(lines_without_cublas("find=5:14", "cuBLASLt does not compute a product of ",
                                &by),
           1, "an error of its search is no error of the run");
}

/* ---- Runs ---- */

static rig_result_t *fit_on(const char *on, const char *trainer)
{
    return rig_train(
        &(rig_spec_t){.accelerator = on,
                      .module = "{\"name\": \"mlp\", \"hidden\": [8], \"dropout\": 0.1}",
                      .optimizer = "{\"name\": \"adamw\", \"lr\": 0.01}",
                      .data = "\"val_split\": 0.2",
                      .trainer = trainer});
}

static void runs_train_as_on_the_processor_and_recorded_to_the_same_bits(void)
{
    static const char trainer[] = "\"max_epochs\": 3, \"gradient_clip_val\": 1";
    if (!rig_has("cpu"))
        return;
    rig_result_t *cpu = fit_on("cpu", trainer), *recorded = fit_on("cuda", trainer),
                 *launched = fit_on("{\"name\": \"cuda\", \"recordings\": false}",
                                    trainer);
    is_text(recorded->status, "ok", "a run trains: %s", recorded->error.text);
    ok(rig_distance(cpu, recorded) < 1e-4, "to the weights of the processor, but for %g",
       rig_distance(cpu, recorded));
    ok(rig_same_bits(recorded, launched), "with and without recordings to the same bits");
    rig_result_free(cpu), rig_result_free(recorded), rig_result_free(launched);
}

static int calls_of(int steps)
{
    char trainer[96];
    const int before = *called;
    snprintf(trainer, sizeof trainer,
             "\"max_steps\": %d, \"limit_val_batches\": 0, "
             "\"enable_checkpointing\": false",
             steps);
    rig_result_t *result = fit_on("cuda", trainer);
    is_text(result->status, "ok", "%d steps: %s", steps, result->error.text);
    rig_result_free(result);
    return *called - before;
}

/* Two copies to the card, one from it, up to three recordings, and events. */
static void a_step_takes_few_calls_of_the_driver(void)
{
    const int few = calls_of(100), many = calls_of(200);
    ok(many - few <= 100 * 20, "%.1f calls", (many - few) / 100.0);
}

static void short_steps_wake_the_host_together(void)
{
    const int64_t us = PL_MILLISECOND / 1000;
    is_int(cuda_notice_delay(1, us), 0, "the only one is not held back");
    is_int(cuda_notice_delay(32, 1100 * us), 0, "nor steps that take their time");
    is_int(cuda_notice_delay(32, 300 * us), 900 * us, "for a millisecond at most");
    is_int(cuda_notice_delay(7, 10 * us), 30 * us, "and for half of those under way");
    is_int(cuda_notice_delay(32, 0), 0, "however short they are");
}

/* A run that must fail; its error, until the next. */
static const pl_error_t *fails(const char *stand_in, const char *on, const char *trainer)
{
    static pl_error_t err;
    rig_t *rig = NULL;
    setenv("STAND_IN", stand_in, 1);
    rig = rig_new(.accelerator = on, .trainer = trainer);
    const rig_result_t *result = rig ? rig_fit(rig) : NULL;
    err = result ? result->error : rig_error;
    ok(!result || strcmp(result->status, "ok") != 0, "%s: a run fails: %.100s", stand_in,
       err.text);
    rig_free(&rig);
    setenv("STAND_IN", "", 1);
    return &err;
}

static void runs_that_are_to_be_equal_add_up_in_order(void)
{
    static const char *const wants[] = {"\"deterministic\": \"true\"",
                                        "\"strategy\": \"elastic\", "
                                        "\"global_batch_size\": 12"};
    for (int k = 0; k < 2; k++)
        like(fails("", "{\"name\": \"cuda\", \"any_order\": true}", wants[k])->text,
             "any_order.* runs differ in their bits, .*: remove one of them",
             "with any order they are refused");
}

static bool trains(void)
{
    rig_t *rig = rig_new(.accelerator = "cuda", .trainer = "\"max_epochs\": 1");
    const rig_result_t *result = rig ? rig_fit(rig) : NULL;
    const bool is_ok = result && strcmp(result->status, "ok") == 0;
    if (!is_ok)
        tap_diag("%s", result ? result->error.text : rig_error.text);
    rig_free(&rig);
    return is_ok;
}

static void memory_that_runs_out_is_reported_in_numbers(void)
{
    for (int at = 1; at <= 12; at += 1 + at / 4) {
        char fault[32];
        snprintf(fault, sizeof fault, "memory=%d", at);
        const pl_error_t *err = fails(fault, "cuda", "\"max_epochs\": 1");
        is_int(err->code, PL_ENOMEM, "by its code");
        like(err->text,
             "out of memory on cuda:0 .Stand-in 0.: [0-9]+ MiB requested, [0-9]+ of 512 "
             "MiB free",
             "and the card, the requested and the free memory");
    }
    ok(trains(), "the next run trains");
}

/* A device waits at its close for the thread that reads a library. */
static void a_card_in_exclusive_use_is_reported(void)
{
    cuda_t *device = calloc(1, sizeof *device);
    pl_device_info_t info = {.ranks = 1, .device = -1, .computes = true};
    pl_error_t err = {0};
    device->cublas = true;
    setenv("STAND_IN", "cuDevicePrimaryCtxRetain=1:101", 1);
    is_int(accelerator->open(device, &info, &err), PL_EIO, "a card is not opened");
    like(err.text, "cuda:0 .Stand-in 0.: opening the card failed: ", "%s", err.text);
    accelerator->close(device);
    ok(!device->products.is_reading, "then no thread reads a library for it");
    free(device);
    setenv("STAND_IN", "", 1);
    ok(trains(), "the next run trains");
}

/* A run's or its end's, or of no consequence: but never without a word, and nothing is
 * left. */
static void every_call_of_the_driver_may_fail(void)
{
    static const char *const calls[] = {
#define DRIVER(member, symbol, parameters) #symbol,
#include "accelerators/cuda/names.def"
    };
    static const int at[] = {1, 3, 20};
    int failed = 0, silent = 0;
    for (size_t k = 0; k < sizeof calls / sizeof *calls * 3; k++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s=%d:1", calls[k / 3], at[k % 3]);
        setenv("STAND_IN", fault, 1);
        rig_t *rig = rig_new(.accelerator = "cuda", .trainer = "\"max_epochs\": 1");
        const rig_result_t *result = rig ? rig_fit(rig) : NULL;
        const pl_error_t err = result ? result->error : rig_error;
        const bool is_ok = result && !strcmp(result->status, "ok");
        rig_free(&rig);
        failed += !is_ok;
        silent += !is_ok && !*err.text;
        if (getenv("CASE"))
            tap_diag("%s: %s", fault, is_ok ? "trains" : err.text);
        if (*left)
            ok(false, "%s: %d things are left: %s", fault, *left, err.text);
        *left = 0;
    }
    setenv("STAND_IN", "", 1);
    ok(failed > 30 && !silent, "%d runs fail, each with an error", failed);
    ok(trains(), "the next run trains");
}

static void a_launch_that_fails_is_reported_by_the_kernels_name(void)
{
    const pl_error_t *err = fails("launch=2:719", "cuda", "\"max_epochs\": 1");
    like(err->text,
         "cuda:0 .Stand-in 0.: launching kernel [a-z_0-9]+ failed: unspecified launch "
         "failure .CUDA_ERROR_LAUNCH_FAILED.; this process cannot use the card any more",
         "with the error of the driver");
    err = fails("launch=40:701", "{\"name\": \"cuda\", \"recordings\": false}",
                "\"max_epochs\": 3");
    like(err->text, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "in the middle of a run, too");
    for (int k = 12; k <= 40; k += 7) {
        char fault[24];
        snprintf(fault, sizeof fault, "launch=%d:701", k);
        err = fails(fault, "cuda", "\"max_epochs\": 3");
        like(err->text, "launching kernel .*CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
             "or of a recording");
        snprintf(fault, sizeof fault, "launch=%d:719", k);
        err = fails(fault, "cuda", "\"max_epochs\": 3");
        like(err->text, "CUDA_ERROR_LAUNCH_FAILED.; this process cannot use the card",
             "which may lose the card");
        is_int(*left, 0, "and then the recording ends, too, and nothing is left");
    }
    ok(trains(), "the next run trains");
}

static void a_product_that_fails_is_reported(void)
{
    const pl_error_t *err = fails("multiply=5:13", "cuda", "\"max_epochs\": 1");
    like(err->text,
         "cuda:0 .Stand-in 0.: a product of matrices: cuBLASLt failed: "
         "CUBLAS_STATUS_EXECUTION_FAILED .13.",
         "with the error of cuBLASLt");
    ok(trains(), "the next run trains");
}

static void a_card_that_is_lost_ends_the_run(void)
{
    static const char *const when[] = {"run=1:700", "run=9:700", "run=60:214"};
    for (size_t k = 0; k < sizeof when / sizeof *when; k++) {
        const pl_error_t *err = fails(when[k], "cuda", "\"max_epochs\": 4");
        like(err->text,
             "cuda:0 .Stand-in 0.: .* failed: .*; this process cannot use the ",
             "with the reason");
    }
    ok(trains(), "the next run trains");
}

static void cards_are_chosen_by_number(void)
{
    const pl_error_t *err = fails("devices=2", "cuda",
                                  "\"max_epochs\": 1, \"devices\": [2]");
    like(err->text,
         "trainer.devices lists device 2, and this machine has 2 GPUs, numbered from 0",
         "a number that is not there");
    err = fails("devices=1", "cuda", "\"max_epochs\": 1, \"devices\": 2");
    like(err->text,
         "rank 1 of this machine has no GPU: there is 1, and each rank needs one of its "
         "own; set trainer.devices to 1",
         "more ranks than cards");
    cuda_t device = {0};
    pl_error_t why = {0};
    pl_device_info_t info = {.ranks = 1, .device = 1};
    setenv("STAND_IN", "devices=2", 1);
    is_int(accelerator->open(&device, &info, &why), PL_OK, "the second of two is opened");
    ok(info.device == 1 && info.devices == 2, "and reports it");
    accelerator->close(&device);
    setenv("STAND_IN", "capability=70", 1);
    err = fails("capability=70", "cuda", "\"max_epochs\": 1");
    like(err->text,
         "has compute capability 7.0, and NVRTC 13.99 compiles for 7.5 and later",
         "a card that is too old for the compiler");
    setenv("STAND_IN", "capability=120", 1);
    ok(trains(), "for one that is newer, the driver finishes the code");
    setenv("STAND_IN", "", 1);
}

static void ranks_of_two_cards_train(void)
{
    static const char trainer[] = "\"max_epochs\": 1, \"devices\": 2";
    if (!rig_has("cpu"))
        return;
    setenv("STAND_IN", "devices=2", 1);
    rig_result_t *cpu = fit_on("cpu", trainer), *gpu = fit_on("cuda", trainer);
    is_text(gpu->status, "ok", "two ranks on two cards: %s", gpu->error.text);
    ok(rig_distance(cpu, gpu) < 1e-4, "to the weights of the processor, but for %g",
       rig_distance(cpu, gpu));
    rig_result_free(cpu), rig_result_free(gpu);
    setenv("STAND_IN", "", 1);
}

static void a_card_registers_memory_and_joins_fences(void)
{
    enum { N = 64 };
    const cuda_driver_t *call = &cuda_library_open(NULL)->call;
    pl_device_info_t info = {.ranks = 1, .device = 1};
    cuda_t card = {0};
    device_rig_t rig = {.ops = accelerator, .self = &card};
    pl_reg_buffer_t *buffer = NULL;
    pl_fence_t *fence = NULL;
    void *stream = NULL;
    float host[N], got[N] = {0};
    bool passed = false;
    for (int k = 0; k < N; k++)
        host[k] = (float)k;
    setenv("STAND_IN", "devices=2", 1);
    rig.ops->open(rig.self, &info, &rig.err);
    rig.ops->region(rig.self, PL_REGION_GRADS, PL_F32, N, &rig.err);
    is_int(rig.ops->register_region(rig.self, PL_REGION_GRADS, &buffer, &rig.err), PL_OK,
           "it registers a region");
    is_text(buffer->device->kind, accelerator->memory_kind, "memory of its kind");
    is_int(buffer->device->ordinal, 1, "of the card");
    const pl_device_ops_t *ops = buffer->device->ops;
    void *device = buffer->device->device;
    call->context_use(NULL);
    is_int(ops->enter(device, &rig.err), PL_OK, "another thread may use it");
    is_int(ops->stream_new(device, &stream, &rig.err), PL_OK, "on a stream of its own");
    call->copy_in(buffer->device->address, host, sizeof host, stream);
    is_int(ops->fence_new(device, stream, &fence, &rig.err), PL_OK, "makes a fence");
    is_int(rig.ops->join(rig.self, fence, &rig.err), PL_OK, "which the card joins");
    rig.ops->read(rig.self, PL_REGION_GRADS, 0, got, N, &rig.err);
    ok(memcmp(host, got, sizeof host) == 0, "and finds earlier writes");
    ok(fence->ops->passed(fence, &passed, &rig.err) == PL_OK && passed, "it has passed");
    ops->stream_free(device, stream);
    pl_object_unref(fence);
    pl_object_unref(buffer);
    rig.ops->close(rig.self);
    setenv("STAND_IN", "", 1);
}

static void texts_that_cannot_be_compiled_are_reported(void)
{
    setenv("STAND_IN_NVRTC", "fails", 1);
    const pl_error_t *err = fails("", "{\"name\": \"cuda\", \"cache\": false}",
                                  "\"max_epochs\": 1");
    unsetenv("STAND_IN_NVRTC");
    like(err->text,
         "kernels cannot be compiled .--gpu-architecture=sm_90, NVRTC error 6.: "
         "plan.k.12.: error: identifier \"wrong\" is undefined$",
         "with the compiler's words");
}

/* ---- What the card does ---- */

static rig_result_t *fit_watched(const char *stand_in)
{
    setenv("STAND_IN", stand_in, 1);
    rig_result_t *result =
        rig_train(&(rig_spec_t){.accelerator = "cuda",
                                .trainer = "\"max_epochs\": 1",
                                .callbacks = "[{\"name\": \"device_stats_monitor\", "
                                             "\"every_n_steps\": 1}]"});
    setenv("STAND_IN", "", 1);
    is_text(result->status, "ok", "%s: a run trains: %s", stand_in, result->error.text);
    return result;
}

static void measurements_of_the_card_are_logged(void)
{
    rig_result_t *result = fit_watched("hot=70");
    is_near(rig_metric(result, "device_utilization_percent"), 87, 1e-9, "utilization");
    is_near(rig_metric(result, "device_memory_used_mb"), 100, 1e-9, "memory in use");
    is_near(rig_metric(result, "device_memory_free_mb"), 412, 1e-9, "free memory");
    is_near(rig_metric(result, "device_power_watts"), 312.5, 1e-9, "power");
    is_near(rig_metric(result, "device_temperature_celsius"), 70, 1e-9, "temperature");
    rig_result_free(result);
    result = fit_watched("no_power");
    is_int(rig_series(result, "device_power_watts").count, 0,
           "what a card does not measure is not logged");
    ok(rig_series(result, "device_utilization_percent").count > 0, "the rest is");
    rig_result_free(result);
}

/* Before NVML is opened, which is once in a process. */
static void without_nvml_the_driver_reports_the_memory(void)
{
    rig_result_t *result = fit_watched("no_nvml");
    const double used = rig_metric(result, "device_memory_used_mb"),
                 left_there = rig_metric(result, "device_memory_free_mb");
    ok(used >= 0 && used < 100, "memory in use: %g MiB", used);
    is_near(used + left_there, 512, 1e-9, "and the rest");
    is_int(rig_series(result, "device_utilization_percent").count, 0, "no utilization");
    is_int(rig_series(result, "device_power_watts").count, 0, "no power");
    is_int(rig_series(result, "device_temperature_celsius").count, 0, "no temperature");
    rig_result_free(result);
}

/* ---- Compiled kernels on disk ---- */

static const char *on_with_cache(const char *folder)
{
    static char text[512];
    snprintf(text, sizeof text, "{\"name\": \"cuda\", \"cache_dir\": \"%s\"}", folder);
    return text;
}

/* How many texts a run compiles. */
static int compiles(const char *on)
{
    const int before = *compiled;
    rig_result_t *result = fit_on(on, "\"max_epochs\": 1");
    ok(strcmp(result->status, "ok") == 0, "a run trains: %s", result->error.text);
    rig_result_free(result);
    return *compiled - before;
}

/* Changes a byte of every entry, or cuts it there. */
static int spoil(const char *folder, long at, bool cuts)
{
    DIR *of = opendir(folder);
    int count = 0;
    for (struct dirent *found; of && (found = readdir(of));) {
        char path[PATH_MAX];
        struct stat facts;
        snprintf(path, sizeof path, "%s/%s", folder, found->d_name);
        if (stat(path, &facts) != 0 || !S_ISREG(facts.st_mode))
            continue;
        count++;
        FILE *file = fopen(path, "r+");
        if (cuts && truncate(path, facts.st_size - at) != 0)
            tap_diag("%s cannot be cut", path);
        if (!cuts) {
            fseek(file, at < 0 ? facts.st_size + at : at, SEEK_SET);
            const int byte = fgetc(file);
            fseek(file, -1, SEEK_CUR);
            fputc(byte ^ 1, file);
        }
        fclose(file);
    }
    if (of)
        closedir(of);
    return count;
}

static void kernels_are_compiled_once(void)
{
    char folder[256];
    snprintf(folder, sizeof folder, "%s/cache/of/kernels", tap_folder());
    const int all = compiles(on_with_cache(folder));
    ok(all > 0, "the first run compiles %d texts", all);
    is_int(compiles(on_with_cache(folder)), 0, "the second none");
    is_int(compiles("{\"name\": \"cuda\", \"cache\": false}"), all,
           "without a cache all");
    is_int(spoil(folder, -100, false), all, "each has a file; a byte of each is changed");
    is_int(compiles(on_with_cache(folder)), all, "so all are compiled");
    spoil(folder, 50, false);
    is_int(compiles(on_with_cache(folder)), all, "a byte of the key");
    spoil(folder, 3, false);
    is_int(compiles(on_with_cache(folder)), all, "a byte of the head");
    spoil(folder, 10, true);
    is_int(compiles(on_with_cache(folder)), all, "files that are cut");
    is_int(compiles(on_with_cache(folder)), 0, "and then they are there");
}

static void a_cache_that_cannot_be_written_costs_one_line(void)
{
    char folder[256], file[128];
    snprintf(file, sizeof file, "%s/no-folder", tap_folder());
    snprintf(folder, sizeof folder, "%s/below", file);
    fclose(fopen(file, "w"));
    rig_listen("compiled kernels cannot be kept in ");
    ok(compiles(on_with_cache(folder)) > 0, "kernels are compiled");
    is_int(rig_lines_received(), 1, "and one line has the reason why they are not kept");
    rig_listen(NULL);
}

static void the_cache_is_bounded(void)
{
    enum { ENTRY = 300 * 1024, ENTRIES = 8 };
    char folder[256], key[32];
    static char code[ENTRY];
    int count;
    int64_t bytes;
    void *got = NULL;
    size_t size = 0;
    snprintf(folder, sizeof folder, "%s/bounded", tap_folder());
    cuda_cache_t *cache = cuda_cache_new(folder, 1);
    for (int k = 0; k < ENTRIES; k++) {
        snprintf(key, sizeof key, "key %d", k);
        cuda_cache_put(cache, key, code, sizeof code);
        ok(cuda_cache_get(cache, "key 0", &got, &size) == (k < ENTRIES)
               && size == sizeof code,
           "an entry in use stays");
        free(got);
    }
    cuda_cache_count(folder, &count, &bytes);
    ok(bytes <= 1 << 20 && count == 3, "%d entries of %lld bytes", count,
       (long long)bytes);
    ok(!cuda_cache_get(cache, "key 2", &got, &size), "an unused entry is gone");
    ok(!cuda_cache_get(cache, "another key", &got, &size),
       "and a key without an entry has none");
    cuda_cache_free(cache);
}

/* ---- Compilations that are not needed any more ---- */

static bool is_compiling(void)
{
    return __atomic_load_n(compiling, __ATOMIC_RELAXED) > 0;
}

/* Seconds from a stop until all is freed. */
static double stop_while_kernels_compile(const char *nvrtc)
{
    rig_listen("does not end");
    setenv("STAND_IN_NVRTC", nvrtc, 1);
    rig_t *rig = rig_new(.accelerator = "{\"name\": \"cuda\", \"cache\": false}",
                         .trainer = "\"max_epochs\": 1");
    rig_grace(rig, 1000);
    const bool has_begun = rig_begin(rig);
    for (int k = 0; k < 6000 && has_begun && !is_compiling(); k++, usleep(10000))
        event_base_loop(rig_base(rig), EVLOOP_NONBLOCK);
    ok(is_compiling(), "%s: kernels compile %s", nvrtc, rig_error.text);
    const int64_t began = pl_now();
    pl_trainer_stop(rig_trainer(rig), "enough", NULL);
    const rig_result_t *result = rig_wait(rig);
    is_int(result->error.code, PL_ECANCELLED, "a run that is stopped then ends: %s",
           result->error.text);
    rig_free(&rig);
    unsetenv("STAND_IN_NVRTC");
    is_int(rig_lines_received(), 0, "its card is not taken for stuck");
    rig_listen(NULL);
    is_int(*compiling, 0, "no thread compiles any more");
    return (double)(pl_now() - began) / 1e9;
}

/* It is asked for longer than an actor may take to end. */
static void a_run_is_stopped_while_kernels_compile(void)
{
    const double interrupted = stop_while_kernels_compile("slow=120000");
    ok(interrupted < 60, "a compiler that can be interrupted is: %.1f s", interrupted);
    const double waited = stop_while_kernels_compile("deaf=3000");
    ok(waited > 1.5, "another is waited for: %.1f s", waited);
}

/* Runs in another process by an argument of main(): ends while a thread compiles. */
#define EXITS "exits"

static int exit_while_kernels_compile(void)
{
    static cuda_t device;
    static pl_compiling_t to;
    static operator_run_t run;
    pl_device_info_t info = {.ranks = 1, .device = -1};
    device_rig_t rig = {.ops = accelerator, .self = &device};
    setenv("STAND_IN_NVRTC", "deaf=1500", 1);
    if (accelerator->open(&device, &info, NULL) != PL_OK
        || operator_run_init(&run, &operator_cases[0], NULL) != PL_OK
        || device_load(&rig, &run) != PL_OK
        || accelerator->compile_later(&device, run.graph, &to, NULL) != PL_OK)
        return 1;
    while (!is_compiling())
        usleep(1000);
    return 42;
}

static void a_process_ends_when_no_compiler_runs(void)
{
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)                    /* its threads are not stopped to look for leaks */
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    if (child == 0 && freopen("/dev/null", "w", stdout))
        execl("/proc/self/exe", "cuda", EXITS, NULL);
    if (child == 0)
        _exit(1);
    ok(waitpid(child, &status, 0) == child && WIFEXITED(status)
           && WEXITSTATUS(status) == 42,
       "exit() waits for a thread in the compiler: %#x", status);
}

/* ---- A card that is not there ---- */

static void operators_of_users_are_compiled_ahead(void)
{
    cuda_t device = {.compile_for = "sm_90"};
    pl_device_info_t info = {.ranks = 1, .device = -1, .compiles = true};
    device_rig_t rig = {.ops = accelerator, .self = &device};
    int checked = 0;
    is_int(accelerator->open(&device, &info, &rig.err), PL_OK, "an offline card: %s",
           rig.err.text);
    for (int i = 0; i < operator_case_count; i++) {
        operator_run_t run;
        pl_plan_t *plan = NULL;
        if (!strstr(operator_cases[i].name, "user's operator")
            || operator_run_init(&run, &operator_cases[i], &rig.err) != PL_OK)
            continue;
        checked++;
        ok(device_load(&rig, &run) == PL_OK
               && accelerator->compile(&device, run.graph, &plan, &rig.err) == PL_OK,
           "%s: %s", operator_cases[i].name, rig.err.text);
        operator_run_release(&run);
    }
    ok(checked > 2, "%d cases", checked);
    accelerator->close(&device);
}

static void put_new(cuda_cache_t *cache, const char *key, const char *sentence)
{
    static const char code[300 * 1024];
    void *got = NULL;
    size_t size = 0;
    cuda_cache_put(cache, key, code, sizeof code);
    ok(cuda_cache_get(cache, key, &got, &size) && size == sizeof code, "%s", sentence);
    free(got);
}

/* Each entry is of another year, as where a clock was wrong. */
static int dated(const char *folder, int year)
{
    char path[512];
    int count = 0;
    DIR *of = opendir(folder);
    for (struct dirent *found; of && (found = readdir(of)); count++) {
        const struct timespec at[2] = {{(year - 1970) * 31556952L, 0},
                                       {(year - 1970) * 31556952L, 0}};
        snprintf(path, sizeof path, "%s/%s", folder, found->d_name);
        utimensat(AT_FDCWD, path, at, 0);
    }
    if (of)
        closedir(of);
    return count - 2;
}

static void a_cache_folder_can_be_shared(void)
{
    char folder[256], path[512], name[64];
    void *got = NULL;
    size_t size;
    DIR *of;
    snprintf(folder, sizeof folder, "%s/shared", tap_folder());
    cuda_cache_t *cache = cuda_cache_new(folder, 1);
    mkdir(folder, 0700);
    for (int k = 0; k < 300; k++) {       /* names that another process might have used */
        snprintf(path, sizeof path, "%s/%d-%d.part", folder, (int)getpid(), k);
        fclose(fopen(path, "w"));
    }
    put_new(cache, "key", "what others write aside does not matter");
    ok(access(path, F_OK) == 0, "and stays");
    is_int(dated(folder, 2040), 301, "a clock was wrong");
    for (int k = 0; k < 4; k++) {
        snprintf(name, sizeof name, "new %d", k);
        put_new(cache, name, "a new entry stays beside entries of the future");
    }
    ok(!cuda_cache_get(cache, "key", &got, &size), "which go first");
    dated(folder, 2001);
    put_new(cache, "newest", "one more");
    ok(access(path, F_OK) != 0, "a temporary file is removed after a day");
    of = opendir(folder);
    for (struct dirent *found; (found = readdir(of));)
        if (strstr(found->d_name, ".kernels")) {
            snprintf(path, sizeof path, "%s/%s", folder, found->d_name);
            unlink(path);
            mkfifo(path, 0600);
        }
    closedir(of);
    alarm(20);                                              /* instead of waiting */
    ok(!cuda_cache_get(cache, "newest", &got, &size), "a folder or a pipe is no entry");
    alarm(0);
    cuda_cache_free(cache);
}

static void nothing_is_left_on_the_card(void)
{
    is_int(*left, 0, "no memory, stream, event, module or recording");
    is_int(*left_of_cublas, 0, "nothing of cuBLASLt's");
}

int main(int argc, char **argv)
{
    char text[PATH_MAX];
    const char *top = getenv("top_builddir");
    compiled = device_stand_in("libnvrtc.so.13", "stand_in_compiled");
    compiling = device_stand_in("libnvrtc.so.13", "stand_in_compiling");
    left = device_stand_in("libcuda.so.1", "stand_in_left");
    called = device_stand_in("libcuda.so.1", "stand_in_calls");
    multiplied = device_stand_in("libcublasLt.so.13", "stand_in_multiplied");
    followed = device_stand_in("libcublasLt.so.13", "stand_in_followed");
    left_of_cublas = device_stand_in("libcublasLt.so.13", "stand_in_lt_left");
    const bool has_nvml = device_stand_in("libnvidia-ml.so.1", "nvmlInit_v2");
    if (!ok(compiled && compiling && left && called && multiplied && followed
                && left_of_cublas && has_nvml,
            "the stand-ins are there"))
        return tap_done();
    snprintf(text, sizeof text, "%s/t/stand_in/.libs", top ? top : ".");
    setenv("PACELINE_CUDA_PATH", text, 1);
    snprintf(text, sizeof text, "%s/around", tap_folder());
    setenv("XDG_CACHE_HOME", text, 1);
    setenv("TMPDIR", tap_folder(), 1);                  /* what a killed process leaves */
    unsetenv("CUDA_VISIBLE_DEVICES");
    rig_init(cuda_plugin());
    accelerator = cuda_plugin()->table;
    if (argc > 1 && !strcmp(argv[1], EXITS))
        return exit_while_kernels_compile();
    run(a_process_ends_when_no_compiler_runs);
    run(the_error_of_a_driver_is_one_sentence);
    run(wrong_calls_of_the_driver_are_errors_of_its_replacement);
    run(operators_equal_the_reference);
    run(operators_of_users_are_computed_by_the_host);
    run(products_of_cublaslt_equal_the_reference);
    run(operations_after_products_are_computed_by_cublaslt);
    run(a_device_that_computes_names_the_library);
    run(float32_is_not_rounded_to_tf32_by_default);
    run(products_refused_by_cublaslt_are_computed_by_kernels);
    run(without_nvml_the_driver_reports_the_memory);
    run(runs_train_as_on_the_processor_and_recorded_to_the_same_bits);
    run(runs_that_are_to_be_equal_add_up_in_order);
    run(a_step_takes_few_calls_of_the_driver);
    run(short_steps_wake_the_host_together);
    run(memory_that_runs_out_is_reported_in_numbers);
    run(a_card_in_exclusive_use_is_reported);
    run(every_call_of_the_driver_may_fail);
    run(a_launch_that_fails_is_reported_by_the_kernels_name);
    run(a_product_that_fails_is_reported);
    run(a_card_that_is_lost_ends_the_run);
    run(cards_are_chosen_by_number);
    run(ranks_of_two_cards_train);
    run(a_card_registers_memory_and_joins_fences);
    run(texts_that_cannot_be_compiled_are_reported);
    run(measurements_of_the_card_are_logged);
    run(kernels_are_compiled_once);
    run(a_cache_that_cannot_be_written_costs_one_line);
    run(the_cache_is_bounded);
    run(a_run_is_stopped_while_kernels_compile);
    run(operators_of_users_are_compiled_ahead);
    run(a_cache_folder_can_be_shared);
    run(nothing_is_left_on_the_card);
    return tap_done();
}
