/* gpu_step.c - test of how much a training step of GPT-2 124M asks of a GPU: launches and
 * bytes, counted on a device that only compiles */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accelerators/gpu/plan.h"
#include "device_rig.h"
#include "tap.h"
#include "tensor/precision.h"
#include "training_cases.h"

const pl_registration_t *gpt_plugin(void);

/* ---- A machine that compiles nothing and has any memory ---- */

typedef struct paper {
    pl_gpu_t gpu; /* first */
    uint64_t next;
} paper_t;

static int paper_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    (void)self, (void)info, (void)err;
    return PL_OK;
}

static void paper_close(void *self)
{
    (void)self;
}

static int paper_memory_new(void *self, size_t bytes, pl_address_t *address,
                            pl_error_t *err)
{
    paper_t *paper = self;
    (void)err;
    *address = paper->next += 256;
    paper->next += bytes;
    return PL_OK;
}

static void paper_memory_free(void *self, pl_address_t address)
{
    (void)self, (void)address;
}

static int paper_zero(void *self, pl_stream_t stream, pl_address_t to, size_t bytes,
                      pl_error_t *err)
{
    (void)self, (void)stream, (void)to, (void)bytes, (void)err;
    return PL_OK;
}

static int paper_finish(void *self, pl_stream_t stream, pl_error_t *err)
{
    (void)self, (void)stream, (void)err;
    return PL_OK;
}

static int paper_event_new(void *self, pl_event_t **event, pl_error_t *err)
{
    (void)err;
    *event = self;
    return PL_OK;
}

static void paper_event_free(void *self, pl_event_t *event)
{
    (void)self, (void)event;
}

static int paper_code_new(void *self, const char *text, pl_binary_t **code,
                          pl_error_t *err)
{
    (void)text, (void)err;
    *code = self;
    return PL_OK;
}

static void paper_code_free(void *self, pl_binary_t *code)
{
    (void)self, (void)code;
}

static const pl_entry_t *paper_code_entry(void *self, pl_binary_t *code, const char *name,
                                          pl_error_t *err)
{
    (void)code, (void)name, (void)err;
    return self;
}

static const pl_machine_ops_t machine = {.name = "paper",
                                         .open = paper_open,
                                         .close = paper_close,
                                         .memory_new = paper_memory_new,
                                         .memory_free = paper_memory_free,
                                         .zero = paper_zero,
                                         .finish = paper_finish,
                                         .event_new = paper_event_new,
                                         .event_free = paper_event_free,
                                         .code_new = paper_code_new,
                                         .code_free = paper_code_free,
                                         .code_entry = paper_code_entry};

/* ---- Counting ---- */

typedef struct tally {
    int launches;
    double bytes;
} tally_t;

static tally_t count(paper_t *paper, const pl_graph_t *g, const char *what)
{
    pl_plan_t *plan = NULL;
    pl_error_t err = {0};
    tally_t tally = {0, 0};
    if (!ok(pl_gpu_compile(paper, g, &plan, &err) == PL_OK, "%s: %s", what, err.text))
        return tally;
    tally.launches = plan->kernels;
    for (int k = 0; k < plan->kernels; k++) {
        const gpu_kernel_t *kernel = &plan->kernel[k];
        double bytes = 0;
        for (int i = 0; i < kernel->launch[0].count; i++)
            bytes += (double)kernel->spot[i].bytes
                     * (kernel->spot[i].reads + kernel->spot[i].writes);
        tally.bytes += bytes;
        if (getenv("SHOW"))
            tap_diag("%-28s %9.2f MB", kernel->name, bytes / 1e6);
    }
    tap_diag("%s: %d launches, %.2f GB, arena %.2f GB", what, tally.launches,
             tally.bytes / 1e9, (double)plan->arena / 1e9);
    pl_gpu_discard(paper, plan);
    return tally;
}

static void regions_make(paper_t *paper, const pl_model_t *model)
{
    for (int r = 0; r < PL_REGIONS; r++)
        pl_gpu_region(paper, (pl_region_t)r, pl_region_dtype(model->precision, r),
                      (size_t)1 << 34, NULL);
}

static tally_t step_of(const char *precision)
{
    const training_case_t gpt2 = {
        .name = "gpt2",
        .plugin = gpt_plugin,
        .options = "{\"layers\": 12, \"heads\": 12, \"width\": 768, \"context\": 1024, "
                   "\"vocabulary_size\": 50304, \"bias\": true}",
        .optimizer = &pl_adamw_optimizer,
        .optimizer_options = "{\"lr\": 0.0003, \"weight_decay\": 0.1}",
        .clip = 1.0,
        .tokens = true,
        .shape = PL_SHAPE(8, 1024),
        .classes = 50304,
        .precision = device_precision(precision)};
    training_t t;
    pl_error_t err = {0};
    paper_t paper = {.next = 0};
    pl_device_info_t info = {.ranks = 1};
    tally_t sum = {0, 0};
    if (!ok(training_init(&t, &gpt2, &err) == PL_OK, "GPT-2 124M, %s: %s", precision,
            err.text))
        return sum;
    ok(pl_gpu_open(&paper, &machine, &info, &err) == PL_OK, "a device: %s", err.text);
    regions_make(&paper, t.model);
    pl_graph_drop_outputs(t.step);
    const tally_t step = count(&paper, t.step, "forward and backward"),
                  update = count(&paper, t.update, "update");
    sum.launches = step.launches + update.launches;
    sum.bytes = step.bytes + update.bytes;
    pl_gpu_close(&paper);
    training_release(&t);
    return sum;
}

/* With biases and a batch of 8 times 1024 tokens. */
static void a_step_of_gpt2_moves_little_by_few_launches(void)
{
    const tally_t sum = step_of("bf16-mixed");
    ok(sum.launches <= 330, "%d launches", sum.launches);
    ok(sum.bytes <= 29.6e9, "%.2f GB", sum.bytes / 1e9);
}

int main(void)
{
    run(a_step_of_gpt2_moves_little_by_few_launches);
    return tap_done();
}
