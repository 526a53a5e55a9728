/* scaling.c - tests of the scaled loss: the factor, skipped steps, what runs say */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "cpu_trainer.h"
#include "formula.h"
#include "rig.h"
#include "tap.h"
#include "tensor/precision.h"

/* ---- A training whose gradients a test spoils ---- */

static training_case_t case_new(const pl_loss_scaling_t *scaling)
{
    training_case_t c = training_cases[1];                  /* mlp, adamw: clips */
    for (const pl_registration_t *r = pl_precision_components; r->role; r++)
        if (!strcmp(((const pl_component_t *)r->table)->name, "16-mixed"))
            c.precision = r->table;
    c.scaling = scaling;
    return c;
}

static void read_region(cpu_trainer_t *r, pl_region_t region, float *to, size_t n)
{
    pl_cpu_accelerator.read(&r->rig.cpu, region, 0, to, n, NULL);
}

/* One optimizer step with the current gradients; true if it was not skipped. */
static bool update(cpu_trainer_t *r, double metrics[4][2])
{
    pl_replay_t replay = {.metrics = metrics[0],
                          .fail_fast = true,
                          .restart = true,
                          .done = cpu_on_done};
    training_scalars(&r->t, 0, replay.scalar);
    pl_cpu_accelerator.replay(&r->rig.cpu, r->update, &replay, &cpu_error);
    return cpu_error.code == PL_OK && !replay.skipped;
}

/* Gradients as a micro-batch of 16 leaves them: 1, or one that is not finite. */
static void write_gradients(cpu_trainer_t *r, float last)
{
    float grads[4096] = {0};
    const size_t n = (size_t)r->t.model->params;
    for (size_t i = 0; i < n; i++)
        grads[i] = 1;
    grads[n - 1] = last;
    grads[n] = grads[n + 1] = 16;
    pl_cpu_accelerator.write(&r->rig.cpu, PL_REGION_GRADS, 0, grads, n + 2, NULL);
}

/* What GradScaler.update() does: torch/csrc/…/AmpKernels, _amp_update_scale_. */
static void expect(const pl_loss_scaling_t *s, bool finite, float state[PL_SCALING_COUNT])
{
    const double good = state[PL_SCALING_GOOD] + 1;
    if (!finite) {
        state[PL_SCALING_FACTOR] *= (float)s->backoff_factor;
        state[PL_SCALING_SKIPPED]++;
    } else if (good == (double)s->growth_interval) {
        state[PL_SCALING_FACTOR] *= (float)s->growth_factor;
    }
    state[PL_SCALING_GOOD] = !finite || good == (double)s->growth_interval ? 0
                                                                           : (float)good;
}

static void the_factor_moves_as_gradscaler_moves_it(void)
{
    static const char steps[] = "gggxggxxgggggggxgnggg";
    const pl_loss_scaling_t s = {1024, 2, 0.5, 3, 1};
    const training_case_t c = case_new(&s);
    float want[PL_SCALING_COUNT] = {1024}, got[PL_SCALING_COUNT];
    double metrics[4][2];
    cpu_trainer_t r;
    int wrong = 0;
    ok(cpu_trainer_open(&r, &c, 1) == PL_OK, "a training is ready");
    for (const char *step = steps; *step; step++) {
        write_gradients(&r, *step == 'g' ? 1 : *step == 'x' ? INFINITY : NAN);
        wrong += update(&r, metrics) != (*step == 'g');
        expect(&s, *step == 'g', want);
        read_region(&r, PL_REGION_SCALING, got, PL_SCALING_COUNT);
        wrong += memcmp(got, want, sizeof got) != 0
                 || metrics[2][0] != (double)want[PL_SCALING_FACTOR]
                 || metrics[3][0] != (double)want[PL_SCALING_SKIPPED];
    }
    ok(!wrong, "after each of %zu steps, and the skipped ones end so", strlen(steps));
    cpu_trainer_close(&r);
}

/* 1e30 has a square that float32 does not hold. */
static void a_large_gradient_has_a_finite_norm(void)
{
    const pl_loss_scaling_t s = {1024, 2, 0.5, 2000, 1};
    const training_case_t c = case_new(&s);
    double usual[4][2], large[4][2];
    cpu_trainer_t r;
    cpu_trainer_open(&r, &c, 1);
    write_gradients(&r, 1e10f);
    ok(update(&r, usual), "a step with a gradient of 1e10");
    write_gradients(&r, 1e30f);
    ok(update(&r, large), "a step with one of 1e30 is not skipped");
    is_near(large[1][0] / usual[1][0] / 1e20, 1, 1e-6, "its norm is 1e20 times as large");
    write_gradients(&r, 3.4e38f);
    ok(update(&r, large), "nor is one with the largest number");
    is_near(large[1][0] / usual[1][0] / 3.4e28, 1, 1e-6, "whose norm is right, too");
    cpu_trainer_close(&r);
}

/* What a first step of Muon adds to the parameters when gradients of matrices are
 * `factor` times as large; pl_free(). */
static float *muon_step(double factor, size_t *n)
{
    training_case_t c = {0};
    for (int i = 0; i < training_case_count; i++)
        if (!strcmp(training_cases[i].name, "cnn, muon"))
            c = training_cases[i];
    double metrics[4][2];
    cpu_trainer_t r;
    ok(cpu_trainer_open(&r, &c, 1) == PL_OK, "a training with muon is ready");
    *n = (size_t)r.t.model->params;
    double *wave = pl_alloc_array(*n + 2, sizeof *wave);
    float *grads = pl_alloc_array(*n + 2, sizeof *grads),
          *before = pl_alloc_array(*n, sizeof *before),
          *after = pl_alloc_array(*n, sizeof *after);
    formula_wave((int64_t)*n, 1, -1, 1, wave);
    for (int i = 0; i < r.t.model->count; i++) {
        const pl_tensor_info_t *t = &r.t.model->tensor[i];
        for (int64_t k = t->offset;
             t->region == PL_REGION_PARAMS && k < t->offset + t->count; k++)
            grads[k] = (float)(wave[k] * (t->shape.rank >= 2 ? factor : 1));
    }
    grads[*n] = grads[*n + 1] = 6;
    pl_cpu_accelerator.write(&r.rig.cpu, PL_REGION_GRADS, 0, grads, *n + 2, NULL);
    read_region(&r, PL_REGION_PARAMS, before, *n);
    ok(update(&r, metrics), "a step with gradients of %g is not skipped", factor);
    read_region(&r, PL_REGION_PARAMS, after, *n);
    for (size_t k = 0; k < *n; k++)
        after[k] -= before[k];
    pl_free(wave);
    pl_free(grads);
    pl_free(before);
    cpu_trainer_close(&r);
    return after;
}

static void a_large_gradient_makes_the_same_step_of_muon(void)
{
    size_t n;
    float *usual = muon_step(1, &n), *large = muon_step(0x1p100, &n);
    double worst = 0, moved = 0;
    for (size_t k = 0; k < n; k++) {
        worst = tap_larger(worst, fabs((double)usual[k] - (double)large[k]));
        moved = tap_larger(moved, fabs((double)usual[k]));
    }
    ok(moved > 1e-3 && worst < 1e-5 * moved, "steps of %g are equal within %g", moved,
       worst);
    pl_free(usual);
    pl_free(large);
}

static void a_step_that_overflows_changes_nothing_else(void)
{
    static const pl_region_t regions[] = {PL_REGION_PARAMS, PL_REGION_SLOT0,
                                          PL_REGION_SLOT0 + 1};
    const pl_loss_scaling_t s = {1024, 2, 0.5, 2000, 1};
    const training_case_t c = case_new(&s);
    float before[3][4096] = {{0}}, after[3][4096] = {{0}};
    double metrics[4][2];
    cpu_trainer_t r;
    cpu_trainer_open(&r, &c, 1);
    const size_t n = (size_t)r.t.model->params;
    write_gradients(&r, 1);
    update(&r, metrics);
    for (int k = 0; k < 3; k++)
        read_region(&r, regions[k], before[k], n);
    write_gradients(&r, INFINITY);
    update(&r, metrics);
    for (int k = 0; k < 3; k++)
        read_region(&r, regions[k], after[k], n);
    ok(!memcmp(before, after, sizeof before), "weights and moments are the same");
    ok(isinf(metrics[1][0]), "the norm says why");
    write_gradients(&r, 1);
    update(&r, metrics);
    read_region(&r, PL_REGION_PARAMS, after[0], n);
    ok(memcmp(before[0], after[0], sizeof before[0]), "the next step runs");
    cpu_trainer_close(&r);
}

static void state_that_overflowed_is_restored(void)
{
    const pl_loss_scaling_t s = {1024, 2, 0.5, 2000, 1};
    training_case_t c = case_new(&s);
    for (int i = 0; i < training_case_count; i++)
        if (!strcmp(training_cases[i].name, "cnn with batch norm, adamw")) {
            const training_case_t *of = &training_cases[i];
            c = (training_case_t){.name = of->name,
                                  .plugin = of->plugin,
                                  .options = of->options,
                                  .optimizer = of->optimizer,
                                  .optimizer_options = of->optimizer_options,
                                  .shape = of->shape,
                                  .classes = of->classes,
                                  .precision = c.precision,
                                  .scaling = &s};
        }
    float before[64], after[64];
    double metrics[4][2];
    cpu_trainer_t r;
    cpu_trainer_open(&r, &c, 1);
    const size_t n = (size_t)r.t.model->state;
    ok(cpu_train(&r, 0, metrics), "a step is done");
    read_region(&r, PL_REGION_STATE, before, n);
    memcpy(after, before, sizeof after);
    after[0] = NAN;
    pl_cpu_accelerator.write(&r.rig.cpu, PL_REGION_STATE, 0, after, n, NULL);
    write_gradients(&r, NAN);
    update(&r, metrics);
    read_region(&r, PL_REGION_STATE, after, n);
    ok(!memcmp(before, after, n * sizeof *before), "to what the last good step left");
    cpu_trainer_close(&r);
}

static void at_the_lowest_factor_a_step_fails(void)
{
    const pl_loss_scaling_t s = {4, 2, 0.5, 2000, 1};
    const training_case_t c = case_new(&s);
    double metrics[4][2];
    cpu_trainer_t r;
    cpu_trainer_open(&r, &c, 1);
    for (int step = 0; step < 2; step++) {
        write_gradients(&r, INFINITY);
        ok(!update(&r, metrics) && metrics[2][0] > 0, "step %d is skipped", step + 1);
    }
    write_gradients(&r, INFINITY);
    ok(!update(&r, metrics) && metrics[2][0] == 0, "the third is not the factor's fault");
    cpu_trainer_close(&r);
}

/* ---- What comes out ---- */

static bool train_with(const pl_loss_scaling_t *s, double *loss, double *norm, int *zeros)
{
    const training_case_t c = case_new(s);
    double metrics[4][2] = {{0}};
    float grads[4096];
    cpu_trainer_t r;
    bool done = cpu_trainer_open(&r, &c, 1) == PL_OK && cpu_train(&r, 0, metrics);
    *loss = metrics[0][0] / metrics[0][1];
    *norm = metrics[1][0];
    *zeros = 0;
    read_region(&r, PL_REGION_GRADS, grads, (size_t)r.t.model->params);
    for (int64_t i = 0; done && i < r.t.model->params; i++)
        *zeros += grads[i] == 0;
    cpu_trainer_close(&r);
    return done;
}

static void gradients_are_divided_before_they_are_clipped(void)
{
    const pl_loss_scaling_t s[] = {{64, 2, 0.5, 2000, 1}, {4096, 2, 0.5, 2000, 1}};
    double loss[2], norm[2];
    int zeros[2];
    ok(train_with(&s[0], &loss[0], &norm[0], &zeros[0])
           && train_with(&s[1], &loss[1], &norm[1], &zeros[1]),
       "with two factors");
    ok(loss[0] == loss[1], "the loss is not scaled");
    ok(fabs(norm[0] - norm[1]) < 1e-3 * norm[0], "the norm is %g and %g", norm[0],
       norm[1]);
}

static void small_gradients_survive(void)
{
    const pl_loss_scaling_t s[] = {{0x1p-18, 2, 0.5, 2000, 0x1p-20},
                                   {4096, 2, 0.5, 2000, 1}};
    double loss, norm;
    int zeros[2];
    train_with(&s[0], &loss, &norm, &zeros[0]);
    train_with(&s[1], &loss, &norm, &zeros[1]);
    ok(zeros[0] > 2 * zeros[1] + 100, "%d are zero with a small factor, %d with a large",
       zeros[0], zeros[1]);
}

/* The exponent of the smallest power of 2 at which the first step overflows. */
static int overflow_exponent(const char *name, int micro_batches)
{
    for (int exponent = 10; exponent < 40; exponent++) {
        const pl_loss_scaling_t s = {pow(2, exponent), 2, 0.5, 2000, 1};
        training_case_t c = case_new(&s);
        const pl_precision_ops_t *precision = c.precision;
        double metrics[4][2] = {{0}};
        cpu_trainer_t r;
        for (int i = 0; i < training_case_count; i++)
            if (!strcmp(training_cases[i].name, name))
                c = training_cases[i];
        c.precision = precision;
        c.scaling = &s;
        c.micro_batches = micro_batches;
        c.nominal = (double)c.shape.dim[0];                 /* as runs have it: samples */
        bool done = cpu_trainer_open(&r, &c, 1) == PL_OK && cpu_train(&r, 0, metrics);
        cpu_trainer_close(&r);
        if (!done)
            return exponent;
    }
    return -1;
}

/* From t/data/make_training.py's models and first batch in PyTorch 2.11: the smallest k
 * at which (loss / micro_batches * 2**k).backward() under torch.autocast("cpu",
 * torch.float16) leaves a gradient that is not finite.  The loss of gpt is a mean over
 * tokens.  The sums of a bias's gradient are float32 here, so one doubling more may be
 * finite. */
static void gradients_overflow_as_in_pytorch(void)
{
    static const struct {
        const char *name;
        int micro_batches, exponent;
    } want[] = {{"gpt, adamw", 1, 18}, {"gpt, adamw", 4, 20}, {"gpt, adamw", 64, 24},
                {"mlp, adamw", 1, 20}, {"mlp, adamw", 4, 22}, {"mlp, adamw", 64, 26}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const int exponent = overflow_exponent(want[i].name, want[i].micro_batches);
        ok(exponent == want[i].exponent || exponent == want[i].exponent + 1,
           "%s, %d micro-batches to a step: %d", want[i].name, want[i].micro_batches,
           exponent);
    }
}

/* ---- Whole runs ---- */

static rig_t *rig_with(const char *scale, int nan, const char *more)
{
    char trainer[300];
    snprintf(trainer, sizeof trainer,
             "\"precision\": {\"name\": \"16-mixed\", \"init_scale\": %s}, "
             "\"log_every_n_steps\": 1, %s",
             scale, more);
    return rig_new(.accelerator = "cpu", .nan = nan, .trainer = trainer);
}

static void a_run_that_overflows_continues(void)
{
    rig_t *rig = rig_with("1099511627776", 0, "\"max_epochs\": 50");
    const rig_result_t *result = rig_fit(rig);
    const double skipped = rig_metric(result, "skipped_steps");
    is_text(result->status, "ok", "it ends well");
    is_int(result->global_step, 100, "after all steps");
    ok(skipped >= 5 && skipped < 40, "%g of them skipped", skipped);
    ok(rig_metric(result, "loss_scale") == 0x1p40 * pow(0.5, skipped),
       "each has halved the factor");
    rig_series_t losses = rig_series(result, "train_loss");
    ok(losses.count > 60 && losses.value[losses.count - 1] < 0.8 * losses.value[0],
       "the loss falls: from %g to %g", losses.value[0],
       losses.value[losses.count ? losses.count - 1 : 0]);
    rig_free(&rig);
}

static void a_bad_sample_is_not_skipped_for_ever(void)
{
    rig_t *rig = rig_with("8", 3, "\"max_epochs\": 10");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "the run ends");
    is_int(result->error.code, PL_ENAN, "by what it is");
    like(result->error.text, "step [0-9]+: the loss is not finite", "and says when");
    rig_free(&rig);
}

static void accumulation_keeps_one_factor_for_a_step(void)
{
    rig_t *rig = rig_with("1099511627776", 0,
                          "\"max_epochs\": 80, \"accumulate_grad_batches\": 3");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "it ends well");
    ok(rig_metric(result, "skipped_steps") >= 5, "steps are skipped");
    rig_series_t losses = rig_series(result, "train_loss");
    ok(losses.count && losses.value[losses.count - 1] < losses.value[0],
       "and the loss falls");
    rig_free(&rig);
}

/* torch.amp.GradScaler.step() does not call the optimizer: its step count, of which bias
 * correction, dampening and the decay of the rate are functions, stays.  Each step has
 * the same batch, so skipped ones leave no other trace. */
static void skipped_steps_are_not_steps_of(const char *optimizer, const char *more)
{
    enum { STEPS = 40 };
    char trainer[300], data[] = "\"batch_size\": 40, \"shuffle\": false";
    rig_result_t *result[2];
    double scale = 0x1p36, skipped[2];
    for (int k = 0; k < 2; k++) {
        snprintf(trainer, sizeof trainer,
                 "\"precision\": {\"name\": \"16-mixed\", \"init_scale\": %.0f}, "
                 "\"log_every_n_steps\": 1, \"max_epochs\": %d%s",
                 scale, k ? STEPS - (int)skipped[0] : STEPS, more);
        result[k] = rig_train(&(rig_spec_t){.accelerator = "cpu",
                                            .data = data,
                                            .optimizer = optimizer,
                                            .trainer = trainer});
        scale = rig_metric(result[k], "loss_scale");
        skipped[k] = rig_metric(result[k], "skipped_steps");
    }
    ok(skipped[0] >= 3 && skipped[1] == 0, "%g steps are skipped, then %g", skipped[0],
       skipped[1]);
    ok(rig_same_bits(result[0], result[1]), "%s%s: the same bits as without them",
       optimizer, more);
    rig_result_free(result[0]);
    rig_result_free(result[1]);
}

static void skipped_steps_are_not_steps_of_the_optimizer(void)
{
    static const char adam[] = "{\"name\": \"adam\", \"lr\": 0.01}";
    skipped_steps_are_not_steps_of(adam, "");
    skipped_steps_are_not_steps_of(adam, ", \"depth\": 1");
    skipped_steps_are_not_steps_of(adam, ", \"depth\": 7");
    skipped_steps_are_not_steps_of(adam, ", \"strategy\": \"ddp\", \"devices\": 2");
    skipped_steps_are_not_steps_of("{\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9, "
                                   "\"dampening\": 0.5}",
                                   "");
    skipped_steps_are_not_steps_of(
        "{\"name\": \"adagrad\", \"lr\": 0.1, \"lr_decay\": 0.3}", "");
}

/* The second half of the data has a NaN: of two batches the second is skipped. */
static void steps_that_nan_policy_skips_are_not_steps_of_the_optimizer(void)
{
    static const char *const trainer[] = {
        "\"max_epochs\": 10, \"nan_policy\": \"skip\"",
        "\"max_epochs\": 10, \"limit_train_batches\": 1"};
    rig_result_t *result[2];
    for (int k = 0; k < 2; k++)
        result[k] =
            rig_train(&(rig_spec_t){.accelerator = "cpu",
                                    .nan = 40,
                                    .data = "\"batch_size\": 20, \"shuffle\": false",
                                    .optimizer = "{\"name\": \"adam\", \"lr\": 0.01}",
                                    .trainer = trainer[k]});
    is_int(result[0]->global_step, 20, "they are steps of the run");
    ok(rig_same_bits(result[0], result[1]), "the same bits as without the second batch");
    rig_result_free(result[0]);
    rig_result_free(result[1]);
}

static void the_next_run_begins_with_the_initial_factor(void)
{
    rig_t *rig = rig_with("1099511627776", 0, "\"max_epochs\": 4");
    rig_result_t *first = rig_keep(rig_fit(rig));
    ok(rig_same_bits(first, rig_fit(rig)), "with the same bits");
    rig_result_free(first);
    rig_free(&rig);
}

int main(void)
{
    rig_init(NULL);
    run(the_factor_moves_as_gradscaler_moves_it);
    run(a_large_gradient_has_a_finite_norm);
    run(a_large_gradient_makes_the_same_step_of_muon);
    run(a_step_that_overflows_changes_nothing_else);
    run(state_that_overflowed_is_restored);
    run(at_the_lowest_factor_a_step_fails);
    run(gradients_are_divided_before_they_are_clipped);
    run(small_gradients_survive);
    run(gradients_overflow_as_in_pytorch);
    run(a_run_that_overflows_continues);
    run(a_bad_sample_is_not_skipped_for_ever);
    run(accumulation_keeps_one_factor_for_a_step);
    run(skipped_steps_are_not_steps_of_the_optimizer);
    run(steps_that_nan_policy_skips_are_not_steps_of_the_optimizer);
    run(the_next_run_begins_with_the_initial_factor);
    return tap_done();
}
