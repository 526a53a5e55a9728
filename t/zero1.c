/* zero1.c - tests of strategies/zero1.c: ddp with the optimizer's state shared out, to
 * the same bits */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

#define QUIET "\"num_sanity_val_steps\": 0, \"log_every_n_steps\": 1, "
#define MOMENTUM "{\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9}"
#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.02}"
#define WIDE "{\"name\": \"mlp\", \"hidden\": [70], \"activation\": \"relu\"}"

/* A run on the CPU with 12 samples to a step, which ends with step `until`; `from` a run
 * that it resumes from  [a new run]. */
static rig_result_t *fit(const char *strategy, int ranks, const char *optimizer,
                         const char *more, int until, const char *from)
{
    char trainer[512], data[120];
    snprintf(trainer, sizeof trainer,
             QUIET "\"max_epochs\": 9, \"strategy\": \"%s\", \"devices\": %d, "
                   "\"max_steps\": %d%s",
             strategy, ranks, until, more);
    snprintf(data, sizeof data,
             "{\"name\": \"memory\", \"source\": \"samples\", \"batch_size\": %d}",
             12 / ranks);
    rig_t *rig = rig_new(.accelerator = "cpu", .module = WIDE, .optimizer = optimizer,
                         .trainer = trainer, .dataset = data,
                         .callbacks = "[{\"name\": \"model_checkpoint\", "
                                      "\"every_n_train_steps\": 3, \"save_top_k\": -1}]");
    if (from && !rig_begin_again(rig, from))
        tap_diag("%s", rig_error.text);
    rig_result_t *result = rig_keep(from ? rig_wait(rig) : rig_fit(rig));
    if (!ok(!strcmp(result->status, "ok"), "%s, %d ranks, to step %d", strategy, ranks,
            until))
        tap_diag("%s", result->error.text);
    rig_free(&rig);
    return result;
}

static void zero1_has_the_bits_of_ddp(void)
{
    static const char *const optimizers[] = {MOMENTUM, ADAMW};
    static const char *const clips[] = {
        "", ", \"gradient_clip_val\": 0.3",
        ", \"gradient_clip_val\": 0.02, \"gradient_clip_algorithm\": \"value\"",
        ", \"precision\": \"bf16-mixed\", \"gradient_clip_val\": 0.3"};
    for (int k = 0; k < 8 && rig_has("cpu"); k++)
        for (int ranks = 2; ranks <= 3; ranks++) {
            rig_result_t *ddp = fit("ddp", ranks, optimizers[k % 2], clips[k / 2], 6,
                                    NULL),
                         *zero1 = fit("zero1", ranks, optimizers[k % 2], clips[k / 2], 6,
                                      NULL);
            ok(rig_same_bits(ddp, zero1), "the same bits: %s%s", optimizers[k % 2],
               clips[k / 2]);
            rig_result_free(ddp);
            rig_result_free(zero1);
        }
}

/* 3 steps with 2 ranks, 3 with 3, 3 with one; the weights they come to. */
static rig_result_t *with_other_ranks(const char *strategy, const char *optimizer)
{
    static const int ranks[] = {2, 3, 1};
    rig_result_t *newest = NULL;
    for (int k = 0; k < 3; k++) {
        rig_result_t *next = fit(strategy, ranks[k], optimizer, "", 3 * (k + 1),
                                 newest ? newest->run_dir : NULL);
        rig_result_free(newest);
        newest = next;
    }
    return newest;
}

static void checkpoints_are_whole(void)
{
    static const char *const optimizers[] = {MOMENTUM, ADAMW};
    for (int k = 0; k < 2 && rig_has("cpu"); k++) {
        rig_result_t *ddp = with_other_ranks("ddp", optimizers[k]),
                     *zero1 = with_other_ranks("zero1", optimizers[k]),
                     *whole = fit("zero1", 2, optimizers[k], "", 9, NULL);
        is_int(zero1->global_step, 9, "with 2, 3 and 1 ranks");
        ok(rig_same_bits(ddp, zero1), "to what ddp comes to: %s", optimizers[k]);
        ok(rig_distance(whole, zero1) < 1e-5, "and 2 without a stop (%g)",
           rig_distance(whole, zero1));
        rig_result_free(ddp);
        rig_result_free(zero1);
        rig_result_free(whole);
    }
}

/* ---- Memory ---- */

/* Elements of the slots that a rank allocates. */
static double slots_of(const char *strategy, int rank)
{
    size_t k;
    json_t *message;
    double elements = 0;
    char trainer[160];
    snprintf(trainer, sizeof trainer,
             QUIET "\"strategy\": \"%s\", \"devices\": 4, \"max_steps\": 1", strategy);
    rig_t *rig = rig_new(.stream = true, .module = WIDE, .optimizer = ADAMW,
                         .data = "\"batch_size\": 2", .trainer = trainer);
    is_text(rig_fit(rig)->status, "ok", "%s", strategy);
    rig_free(&rig);
    json_t *stream = rig_stream();
    json_array_foreach(stream, k, message) {
        const json_t *fields = json_object_get(message, "fields");
        const char *name = json_string_value(json_object_get(message, "name")),
                   *kind = json_string_value(json_object_get(message, "kind"));
        const json_int_t region = json_integer_value(json_object_get(fields, "region"));
        if (name && kind && !strcmp(name, "allocate") && !strcmp(kind, "call")
            && json_integer_value(json_object_get(message, "rank")) == rank && region >= 3
            && region < 3 + PL_SLOTS)
            elements += json_number_value(json_object_get(fields, "count"));
    }
    json_decref(stream);
    return elements;
}

static void a_rank_keeps_its_partition_of_the_state(void)
{
    const double all = slots_of("ddp", 0);
    double sum = 0;
    for (int rank = 0; rank < 4; rank++) {
        const double part = slots_of("zero1", rank);
        ok(part <= all / 4 + 2 * 128, "rank %d keeps %g of %g", rank, part, all);
        sum += part;
    }
    is_near(sum, all, 0, "all of it is there once");
}

/* ---- What does not go with it ---- */

static void options_that_it_does_not_support_are_refused(void)
{
    static const struct {
        const char *optimizer, *averaging, *says;
    } wrong[] = {{"{\"name\": \"muon\", \"lr\": 0.01}", NULL, "as a whole"},
                 {ADAMW, "\"ema\"", "averaging needs"}};
    for (size_t k = 0; k < 2; k++) {
        rig_t *rig = rig_new(.optimizer = wrong[k].optimizer,
                             .averaging = wrong[k].averaging,
                             .trainer = QUIET "\"devices\": 2, \"strategy\": \"zero1\"");
        const rig_result_t *result = rig_fit(rig);
        is_text(pl_code_name(result->error.code), "PL_EUNSUPPORTED", "%s", wrong[k].says);
        like(result->error.text, wrong[k].says, "and says why: %s", result->error.text);
        rig_free(&rig);
    }
}

static void a_step_that_is_not_finite_is_skipped_by_all_ranks(void)
{
    rig_t *rig = rig_new(.nan = 6, .optimizer = ADAMW, .data = "\"batch_size\": 4",
                         .trainer = QUIET "\"devices\": 2, \"strategy\": \"zero1\", "
                                          "\"nan_policy\": \"skip\", \"max_epochs\": 2");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "it continues: %s", result->error.text);
    ok(rig_metric(result, "skipped_steps") >= 1, "and reports it");
    rig_free(&rig);
}

int main(void)
{
    rig_init(NULL);
    rig_samples("samples", 48);
    run(zero1_has_the_bits_of_ddp);
    run(checkpoints_are_whole);
    run(a_rank_keeps_its_partition_of_the_state);
    run(options_that_it_does_not_support_are_refused);
    run(a_step_that_is_not_finite_is_skipped_by_all_ranks);
    return tap_done();
}
