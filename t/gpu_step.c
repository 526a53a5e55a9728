/* gpu_step.c - tests of plans on a device that only compiles: how many launches and bytes
 * a step of GPT-2 124M takes, and that errors of a plan are found */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accelerators/gpu/plan.h"
#include "base/alloc.h"
#include "device_rig.h"
#include "tap.h"
#include "tensor/precision.h"
#include "training_cases.h"

const pl_registration_t *gpt_plugin(void);

/* ---- A machine that compiles nothing and has any memory ---- */

typedef struct offline {
    pl_gpu_t gpu;                                           /* first */
    uint64_t next;
    unsigned epilogues;                                     /* of products */
} offline_t;

static int offline_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    (void)self, (void)info, (void)err;
    return PL_OK;
}

static void offline_close(void *self)
{
    (void)self;
}

static int offline_memory_new(void *self, size_t bytes, pl_device_ptr_t *address,
                              pl_error_t *err)
{
    offline_t *offline = self;
    (void)err;
    *address = offline->next += 256;
    offline->next += bytes;
    return PL_OK;
}

static void offline_memory_free(void *self, pl_device_ptr_t address)
{
    (void)self, (void)address;
}

static int offline_zero(void *self, pl_stream_t stream, pl_device_ptr_t to, size_t bytes,
                        pl_error_t *err)
{
    (void)self, (void)stream, (void)to, (void)bytes, (void)err;
    return PL_OK;
}

static int offline_finish(void *self, pl_stream_t stream, pl_error_t *err)
{
    (void)self, (void)stream, (void)err;
    return PL_OK;
}

static int offline_event_new(void *self, pl_event_t **event, pl_error_t *err)
{
    (void)err;
    *event = self;
    return PL_OK;
}

static void offline_event_free(void *self, pl_event_t *event)
{
    (void)self, (void)event;
}

static int offline_descriptor(const void *self)
{
    (void)self;
    return -1;
}

static int offline_code_new(void *self, const char *text, pl_binary_t **code,
                            pl_error_t *err)
{
    (void)text, (void)err;
    *code = self;
    return PL_OK;
}

static void offline_code_free(void *self, pl_binary_t *code)
{
    (void)self, (void)code;
}

static const pl_entry_t *offline_code_entry(void *self, pl_binary_t *code,
                                            const char *name, pl_error_t *err)
{
    (void)code, (void)name, (void)err;
    return self;
}

static int offline_product_new(void *self, const pl_product_t *product,
                               pl_product_plan_t **prepared, size_t *workspace,
                               pl_error_t *err)
{
    (void)product, (void)err;
    *prepared = self;
    *workspace = 0;
    return PL_OK;
}

static void offline_product_free(void *self, pl_product_plan_t *prepared)
{
    (void)self, (void)prepared;
}

static unsigned offline_epilogues(const void *self)
{
    return ((const offline_t *)self)->epilogues;
}

static int offline_layer_new(void *self, const pl_layer_t *layer, pl_layer_plan_t **plan,
                             pl_error_t *err)
{
    (void)layer, (void)err;
    *plan = self;
    return PL_OK;
}

static int offline_layer_build(void *self, pl_layer_plan_t *plan, size_t *workspace,
                               pl_error_t *err)
{
    (void)self, (void)plan, (void)workspace, (void)err;
    return PL_OK;
}

static void offline_layer_free(void *self, pl_layer_plan_t *plan)
{
    (void)self, (void)plan;
}

#define MACHINE \
    .name = "offline", .open = offline_open, .close = offline_close, \
    .memory_new = offline_memory_new, .memory_free = offline_memory_free, \
    .zero = offline_zero, .finish = offline_finish, .event_new = offline_event_new, \
    .event_free = offline_event_free, .code_new = offline_code_new, \
    .code_free = offline_code_free, .code_entry = offline_code_entry, \
    .product_new = offline_product_new, .product_free = offline_product_free, \
    .epilogues = offline_epilogues, .descriptor = offline_descriptor

static const pl_gpu_backend_ops_t backend = {MACHINE},
                                  backend_layers = {MACHINE,
                                                    .layer_new = offline_layer_new,
                                                    .layer_build = offline_layer_build,
                                                    .layer_free = offline_layer_free};

/* ---- Counting ---- */

typedef struct tally {
    int launches;
    double bytes;
} tally_t;

static tally_t count(offline_t *offline, const pl_graph_t *g, const char *what)
{
    pl_plan_t *plan = NULL;
    pl_error_t err = {0};
    tally_t tally = {0, 0};
    if (!ok(pl_gpu_compile(offline, g, &plan, &err) == PL_OK, "%s: %s", what, err.text))
        return tally;
    tally.launches = plan->kernels;
    for (int k = 0; k < plan->kernels; k++) {
        const gpu_kernel_t *kernel = &plan->kernel[k];
        double bytes = 0;
        for (int i = 0; i < kernel->launch[0].count; i++)
            bytes += (double)kernel->buffer[i].bytes
                     * (kernel->buffer[i].reads + kernel->buffer[i].writes);
        tally.bytes += bytes;
        if (getenv("SHOW"))
            tap_diag("%-28s %9.2f MB", kernel->name, bytes / 1e6);
    }
    tap_diag("%s: %d launches, %.2f GB, arena %.2f GB", what, tally.launches,
             tally.bytes / 1e9, (double)plan->arena / 1e9);
    pl_gpu_discard(offline, plan);
    return tally;
}

static void regions_make(offline_t *offline, const pl_model_t *model)
{
    for (int r = 0; r < PL_REGIONS; r++)
        pl_gpu_region(offline, (pl_region_t)r, pl_region_dtype(model->precision, r),
                      (size_t)1 << 34, NULL);
}

#define GPT2 \
    "{\"layers\": 12, \"heads\": 12, \"width\": 768, \"context\": 1024, " \
    "\"vocabulary_size\": 50304, \"bias\": true}"

static training_case_t gpt_of(const char *options, pl_shape_t shape, int64_t classes,
                              const char *precision)
{
    return (
        training_case_t){.name = "gpt2",
                         .plugin = gpt_plugin,
                         .options = options,
                         .optimizer = &pl_adamw_optimizer,
                         .optimizer_options = "{\"lr\": 0.0003, \"weight_decay\": 0.1}",
                         .clip = 1.0,
                         .tokens = true,
                         .shape = shape,
                         .classes = classes,
                         .precision = device_precision(precision)};
}

/* The update where only matrices decay, as in examples/gpt2-124m.json: ranges of both
 * kinds take turns. */
static tally_t count_matrices(offline_t *offline, const training_t *t)
{
    pl_error_t err = {0};
    void *vectors = training_component((const pl_component_t *)&pl_adamw_optimizer,
                                       "{\"lr\": 0.0003, \"weight_decay\": 0}");
    const pl_optimizer_t optimizer = {.ops = &pl_adamw_optimizer,
                                      .self = t->options,
                                      .vectors = vectors};
    pl_graph_t *update = pl_optimizer_graph(&optimizer, t->model, t->nominal, 1, &err);
    tally_t tally = {0, INFINITY};
    if (ok(update != NULL, "a graph of both: %s", err.text))
        tally = count(offline, update, "update where matrices decay");
    pl_graph_free(update);
    pl_free(vectors);
    return tally;
}

/* Forward and backward, and all with the update. */
static void count_step(const pl_gpu_backend_ops_t *on, unsigned epilogues, tally_t *step,
                       tally_t *all, tally_t *matrices)
{
    const training_case_t gpt2 = gpt_of(GPT2, PL_SHAPE(8, 1024), 50304, "bf16-mixed");
    training_t t;
    pl_error_t err = {0};
    offline_t offline = {.gpu.checks = true, .epilogues = epilogues};
    pl_device_info_t info = {.ranks = 1};
    *step = *all = *matrices = (tally_t){0, INFINITY};
    if (!ok(training_init(&t, &gpt2, &err) == PL_OK, "GPT-2 124M: %s", err.text))
        return;
    ok(pl_gpu_open(&offline, on, &info, &err) == PL_OK, "a device: %s", err.text);
    regions_make(&offline, t.model);
    pl_graph_drop_outputs(t.step);
    *step = count(&offline, t.step, "forward and backward");
    const tally_t update = count(&offline, t.update, "update");
    *all = (tally_t){step->launches + update.launches, step->bytes + update.bytes};
    *matrices = count_matrices(&offline, &t);
    pl_gpu_close(&offline);
    training_release(&t);
}

/* With biases, a batch of 8 times 1024 tokens, in bf16-mixed.  AdamW alone moves 4.2 GB:
 * four numbers of each weight, three of which change. */
static void a_step_of_gpt2_moves_little_by_few_launches(void)
{
    tally_t step, all, matrices;
    count_step(&backend, ~0u, &step, &all, &matrices);
    ok(all.launches <= 240, "%d launches", all.launches);
    ok(step.bytes <= 20.25e9, "%.2f GB without the update", step.bytes / 1e9);
    ok(all.bytes <= 24.5e9, "%.2f GB with it", all.bytes / 1e9);
    ok(step.launches + matrices.launches <= 260, "%d launches where matrices decay",
       step.launches + matrices.launches);
    ok(matrices.bytes <= 4.25e9, "which moves no more: %.2f GB", matrices.bytes / 1e9);
    count_step(&backend_layers, ~0u, &step, &all, &matrices);
    ok(all.launches <= 240, "%d where a library computes attention", all.launches);
    ok(all.bytes <= 24.5e9, "%.2f GB", all.bytes / 1e9);
}

static void operations_after_products_are_kernels_without_a_library_for_them(void)
{
    tally_t step, all, matrices;
    count_step(&backend, 0, &step, &all, &matrices);
    ok(all.launches > 300 && all.launches <= 312, "%d launches", all.launches);
    ok(all.bytes <= 28.05e9, "%.2f GB", all.bytes / 1e9);
}

/* ---- Plans that are wrong ---- */

#define SMALL \
    "{\"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 8, " \
    "\"vocabulary_size\": 32, \"bias\": true}"

/* Whether kernel b reads a value of the arena that kernel a makes. */
static bool needs(const gpu_kernel_t *b, const gpu_kernel_t *a)
{
    for (int i = 0; i < a->launch[0].count; i++)
        for (int k = 0; k < b->launch[0].count; k++)
            if (a->buffer[i].at == GPU_IN_ARENA && b->buffer[k].at == GPU_IN_ARENA
                && a->buffer[i].writes && b->buffer[k].reads
                && b->buffer[k].value
                       == (a->buffer[i].made ? a->buffer[i].made : a->buffer[i].value))
                return true;
    return false;
}

static void swap(gpu_kernel_t *kernel, int k)
{
    const gpu_kernel_t first = kernel[k];
    kernel[k] = kernel[k + 1];
    kernel[k + 1] = first;
}

static bool is_refused(const pl_plan_t *plan)
{
    pl_error_t err = {0};
    return gpu_check(plan, &err) == PL_EBUG;
}

/* Kernels that need each other in the wrong order. */
static void swap_all(pl_plan_t *plan)
{
    int swapped = 0, found = 0;
    for (int k = 0; k + 1 < plan->kernels; k++) {
        if (!needs(&plan->kernel[k + 1], &plan->kernel[k]))
            continue;
        swapped++;
        swap(plan->kernel, k);
        found += is_refused(plan);
        swap(plan->kernel, k);
    }
    ok(swapped > 20 && found == swapped, "%d of %d wrong orders are found", found,
       swapped);
}

/* A kernel that makes its result where another value lies that is still read. */
static void overwrite_all(pl_plan_t *plan)
{
    int tried = 0, found = 0;
    for (int k = 1; k + 1 < plan->kernels; k++)
        for (int i = 0; i < plan->kernel[k].launch[0].count; i++) {
            gpu_buffer_t *buffer = &plan->kernel[k].buffer[i];
            const gpu_kernel_t *next = &plan->kernel[k + 1];
            for (int n = 0; n < next->launch[0].count && buffer->at == GPU_IN_ARENA;
                 n++) {
                const gpu_buffer_t *other = &next->buffer[n], before = *buffer;
                if (other->at != GPU_IN_ARENA || !other->reads || !buffer->writes
                    || buffer->reads || other->value == buffer->made)
                    continue;
                buffer->offset = other->offset;
                tried++;
                found += is_refused(plan);
                *buffer = before;
            }
        }
    ok(tried > 20 && found == tried, "%d of %d lost values are found", found, tried);
}

/* A copy to the host of elements that a later kernel changes. */
static void copy_too_early(pl_plan_t *plan)
{
    gpu_host_copy_t early = {PL_REGION_GRADS, 0, plan->needs[PL_REGION_GRADS], -1};
    gpu_piece_t *const piece = plan->piece;
    const gpu_host_copy_t *const out = plan->out;
    const int outs = plan->outs;
    plan->out = &early, plan->outs = 1;
    for (int k = 0; k < plan->pieces; k++)
        piece[k].host_copies = k > 0;
    ok(!is_refused(plan), "a copy at the end is in order");
    for (int k = 0; k < plan->pieces; k++)
        piece[k].host_copies = 1;
    ok(is_refused(plan), "one before the gradients are there is found");
    plan->out = (gpu_host_copy_t *)out, plan->outs = outs;
}

static void errors_of_a_plan_are_found(void)
{
    const training_case_t small = gpt_of(SMALL, PL_SHAPE(2, 8), 32, "bf16-mixed");
    training_t t;
    pl_error_t err = {0};
    offline_t offline = {.gpu.checks = true, .epilogues = ~0u};
    pl_device_info_t info = {.ranks = 1};
    pl_plan_t *plan = NULL;
    ok(training_init(&t, &small, &err) == PL_OK, "a small model: %s", err.text);
    ok(pl_gpu_open(&offline, &backend, &info, &err) == PL_OK, "a device: %s", err.text);
    regions_make(&offline, t.model);
    if (ok(pl_gpu_compile(&offline, t.step, &plan, &err) == PL_OK, "a plan: %s",
           err.text)) {
        ok(!is_refused(plan), "it is right");
        swap_all(plan);
        overwrite_all(plan);
        copy_too_early(plan);
    }
    pl_gpu_close(&offline);
    training_release(&t);
}

int main(void)
{
    run(errors_of_a_plan_are_found);
    run(a_step_of_gpt2_moves_little_by_few_launches);
    run(operations_after_products_are_kernels_without_a_library_for_them);
    return tap_done();
}
