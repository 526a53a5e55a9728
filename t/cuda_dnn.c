/* cuda_dnn.c - gives every graph of attention and convolution to cuDNN itself, where it
 * is installed, with descriptions of four cards: which engine it chooses, and with how
 * much workspace */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerators/cuda/dnn.h"
#include "base/alloc.h"
#include "tap.h"

static const cuda_dnn_t *call;
static int version;

#ifdef __SANITIZE_ADDRESS__
/* NVIDIA's libraries lose memory of their own.  What dnn_graph.c allocates is looked for
 * by t/cuda_layers. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}
#endif

/* ---- Cards ---- */

/* By their data sheets, except where cuDNN has described the card itself. */
typedef struct card {
    const char *name;
    int capability, multiprocessors, shared, l2, clock, memory_clock;
    double memory;
} card_t;

static const card_t cards[] = {
    {"NVIDIA H100 80GB HBM3", 900, 132, 232448, 52428800, 1980000, 2619000, 85520809984},
    {"NVIDIA A100-SXM4-80GB", 800, 108, 166912, 41943040, 1410000, 1593000, 85899345920},
    {"NVIDIA L40S", 890, 142, 101376, 100663296, 2520000, 9001000, 47804841984},
    {"NVIDIA B200", 1000, 148, 232448, 132644864, 1965000, 3996000, 191503597568},
};
enum { CARDS = sizeof cards / sizeof *cards };

static cudnnBackendDescriptor_t card_describe(const card_t *card)
{
    char json[1024];
    cu_result_t status;
    snprintf(json, sizeof json,
             "{\"schemaVersion\":1,\"cudnnVersion\":%d,\"deviceName\":\"%s\","
             "\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,"
             "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
             "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"smClockRateKHz\":%d,"
             "\"memClockRateKHz\":%d,\"l2CacheSize\":%d,\"warpSize\":32,"
             "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
             "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
             "\"pciDeviceId\":0,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
             "\"maxThreadsPerSM\":%d,\"supportCoopLaunch\":1,\"isTccDriver\":0,"
             "\"totalGlobalMem\":%.0f}",
             version, card->name, card->capability, card->multiprocessors, card->clock,
             card->memory_clock, card->l2, card->shared,
             card->capability == 890 ? 1536 : 2048, card->memory);
    cudnnBackendDescriptor_t device = dnn_device_new(call, NULL, json, &status);
    ok(device, "%s is described: %s", card->name, call->status_name(status));
    return device;
}

/* ---- Layers ---- */

/* Queries, keys and values lie in one tensor [B, T, 3, heads, d], and so do their
 * gradients. */
static pl_layer_t attention(pl_layer_kind_t kind, pl_dtype_t dtype, int64_t width,
                            int64_t tokens, bool causal, bool has_sums)
{
    enum { BATCHES = 8, HEADS = 12 };
    const int64_t all = HEADS * width;
    pl_layer_t layer = {.kind = kind,
                        .dtype = dtype,
                        .attention = {.batches = BATCHES,
                                      .heads = HEADS,
                                      .tokens = tokens,
                                      .width = width,
                                      .scale = 0.125,
                                      .causal = causal}};
    for (int k = 0; k < PL_LAYER_WORKSPACE; k++) {
        int64_t *stride = layer.attention.stride[k];
        const bool packed = k == PL_ATTENTION_Y || k == PL_ATTENTION_DY;
        if (k == PL_ATTENTION_SUMS && has_sums)
            stride[0] = HEADS * tokens, stride[1] = tokens, stride[2] = 1;
        else if (k != PL_ATTENTION_SUMS
                 && (k <= PL_ATTENTION_Y || kind == PL_LAYER_ATTENTION_GRAD))
            stride[2] = packed ? all : 3 * all, stride[1] = width,
            stride[0] = stride[2] * tokens;
    }
    return layer;
}

static pl_layer_t convolution(pl_layer_kind_t kind, pl_dtype_t dtype, int64_t size,
                              int64_t channels, int64_t filters, int64_t kernel,
                              int64_t stride)
{
    const int64_t padding = kernel / 2, out = (size + 2 * padding - kernel) / stride + 1;
    return (pl_layer_t){.kind = kind,
                        .dtype = dtype,
                        .convolution = {.batches = 64,
                                        .height = size,
                                        .width = size,
                                        .channels = channels,
                                        .down = out,
                                        .across = out,
                                        .filters = filters,
                                        .groups = 1,
                                        .kernel = {kernel, kernel},
                                        .stride = {stride, stride},
                                        .dilation = {1, 1},
                                        .before = {padding, padding},
                                        .behind = {padding, padding},
                                        .has_bias = kind == PL_LAYER_CONVOLUTION}};
}

/* "attention bf16 [8, 12, 1024, 64] causal", without its strides. */
static const char *name_of(const pl_layer_t *layer)
{
    static char text[640];
    dnn_text(layer, text);
    char *end = strstr(text, " scale");
    if (end)
        *end = '\0';
    return text;
}

static FILE *record;                                        /* of chosen engines */
static const dnn_rules_t in_order, any_order = {.any_order = true};

/* The plan of cuDNN for a layer and a card, if it succeeds. */
static bool is_accepted(const card_t *card, cudnnBackendDescriptor_t device,
                        const pl_layer_t *layer, dnn_rules_t rules)
{
    int64_t batches, heads;
    const pl_layer_t part = dnn_part(layer, rules, &batches, &heads);
    dnn_plan_t plan;
    char *text;
    size_t bytes;
    const cu_result_t status = dnn_plan_make(&plan, call, device, &part, rules, &text,
                                             &bytes);
    pl_free(text);
    if (!dnn_fits(layer) || status != DNN_OK) {
        tap_diag("%s: %s: %s", card->name, name_of(layer), call->status_name(status));
        return false;
    }
    fprintf(record, "sm_%d: %s%s: engine %lld, %lld bytes of workspace, %lld times\n",
            card->capability / 10, name_of(layer), rules.any_order ? " in any order" : "",
            (long long)plan.engine, (long long)plan.workspace,
            (long long)(batches * heads));
    dnn_plan_release(&plan);
    return true;
}

static void attention_is_accepted_for_four_cards(void)
{
    static const int64_t widths[] = {64, 72, 128};
    for (int c = 0; c < CARDS; c++) {
        cudnnBackendDescriptor_t device = card_describe(&cards[c]);
        for (int w = 0; w < 3 && device; w++)
            for (int grad = 0; grad < 2; grad++) {
                const pl_layer_t layer = attention(grad ? PL_LAYER_ATTENTION_GRAD
                                                        : PL_LAYER_ATTENTION,
                                                   PL_BF16, widths[w], 1024, true, true);
                ok(is_accepted(&cards[c], device, &layer, in_order), "%s",
                   name_of(&layer));
                ok(!grad || is_accepted(&cards[c], device, &layer, any_order),
                   "and in any order");
            }
        if (device)
            call->descriptor_free(device);
    }
}

/* On the first card: other types, sizes, and without what only training needs. */
static void other_attention_is_accepted(void)
{
    const pl_layer_t layers[] = {
        attention(PL_LAYER_ATTENTION, PL_F16, 64, 1024, false, true),
        attention(PL_LAYER_ATTENTION_GRAD, PL_F16, 64, 1024, false, true),
        attention(PL_LAYER_ATTENTION, PL_BF16, 64, 1024, true, false),
        attention(PL_LAYER_ATTENTION, PL_BF16, 8, 100, true, true),
        attention(PL_LAYER_ATTENTION_GRAD, PL_BF16, 8, 100, true, true),
        attention(PL_LAYER_ATTENTION_GRAD, PL_BF16, 64, 4096, true, true)};
    cudnnBackendDescriptor_t device = card_describe(&cards[0]);
    for (size_t k = 0; k < sizeof layers / sizeof *layers && device; k++)
        ok(is_accepted(&cards[0], device, &layers[k], in_order)
               && is_accepted(&cards[0], device, &layers[k], any_order),
           "%s", name_of(&layers[k]));
    if (device)
        call->descriptor_free(device);
}

/* The convolutions of the examples, and one with a stride. */
static void convolution_is_accepted_for_four_cards(void)
{
    static const int64_t sizes[][5] = {{28, 1, 16, 3, 1},
                                       {14, 16, 32, 3, 1},
                                       {32, 3, 64, 3, 1},
                                       {32, 64, 128, 3, 2}};
    static const pl_dtype_t types[] = {PL_F32, PL_BF16, PL_F16};
    for (int c = 0; c < CARDS; c++) {
        cudnnBackendDescriptor_t device = card_describe(&cards[c]);
        int right = 0, all = 0;
        for (int t = 0; t < 3 && device; t++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int kind = PL_LAYER_CONVOLUTION; kind <= PL_LAYER_CONVOLUTION_GRAD_W;
                     kind++, all++) {
                    const int64_t *of = sizes[s];
                    const pl_layer_t layer = convolution((pl_layer_kind_t)kind, types[t],
                                                         of[0], of[1], of[2], of[3],
                                                         of[4]);
                    right += is_accepted(&cards[c], device, &layer, in_order);
                }
        ok(all == 36 && right == all, "%d of %d convolutions", right, all);
        if (device)
            call->descriptor_free(device);
    }
}

static void a_plan_is_kept_as_text(void)
{
    const pl_layer_t layers[] = {attention(PL_LAYER_ATTENTION, PL_BF16, 64, 1024, true,
                                           true),
                                 convolution(PL_LAYER_CONVOLUTION, PL_F32, 28, 1, 16, 3,
                                             1)};
    cudnnBackendDescriptor_t device = card_describe(&cards[0]),
                             other = card_describe(&cards[1]);
    for (int k = 0; k < 2 && device && other; k++) {
        dnn_plan_t plan, again;
        size_t bytes = 0;
        char *text;
        if (!ok(dnn_plan_make(&plan, call, device, &layers[k], in_order, &text, &bytes)
                    == DNN_OK,
                "a plan is made"))
            continue;
        ok(text && bytes > 100, "it is a text of %zu bytes", bytes);
        const bool loaded = dnn_plan_load(&again, call, device, &layers[k], in_order,
                                          text, bytes)
                            == DNN_OK;
        ok(loaded && again.workspace == plan.workspace, "which is a plan again");
        if (loaded)
            dnn_plan_release(&again);
        ok(dnn_plan_load(&again, call, device, &layers[k], in_order, "{}", 2) != DNN_OK,
           "another is none");
        pl_free(text);
        dnn_plan_release(&plan);
    }
    if (device)
        call->descriptor_free(device);
    if (other)
        call->descriptor_free(other);
}

/* As recorded for this version, where one was. */
static void engines_equal_the_record(void)
{
    char path[PATH_MAX], line[256], wanted[256];
    const char *top = getenv("top_srcdir");
    int lines = 0, wrong = 0;
    snprintf(path, sizeof path, "%s/t/data/cudnn/%d.%d.txt", top ? top : ".",
             version / 10000, version / 100 % 100);
    FILE *before = fopen(path, "re");
    if (!before) {
        tap_skip("no record of cuDNN %d.%d", version / 10000, version / 100 % 100);
        return;
    }
    rewind(record);
    while (fgets(line, sizeof line, record)) {
        lines++;
        if (!fgets(wanted, sizeof wanted, before) || strcmp(line, wanted) != 0) {
            wrong++;
            tap_diag("%.*s", (int)strcspn(line, "\n"), line);
        }
    }
    ok(lines > 100 && !wrong && !fgets(wanted, sizeof wanted, before),
       "%d plans are those that were recorded", lines);
    fclose(before);
}

int main(void)
{
    char path[PATH_MAX];
    pl_error_t err = {0};
    const char *top = getenv("top_builddir"), *keep = getenv("RECORD");
    snprintf(path, sizeof path, "%s/t/stand_in/offline/.libs/libcuda.so.1",
             top ? top : ".");
    if (!ok(dlopen(path, RTLD_NOW | RTLD_GLOBAL), "a driver without a card is there"))
        return tap_done();
    const cuda_dnn_library_t *library = cuda_dnn_open(0, &err);
    record = keep ? fopen(keep, "w+e") : tmpfile();
    if (!library || !record) {
        tap_skip("cuDNN is not installed: %s", err.text);
        return tap_done();
    }
    call = &library->call;
    version = library->version;
    run(attention_is_accepted_for_four_cards);
    run(other_attention_is_accepted);
    run(convolution_is_accepted_for_four_cards);
    run(a_plan_is_kept_as_text);
    run(engines_equal_the_record);
    fclose(record);
    return tap_done();
}
