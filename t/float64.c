/* float64.c - tests of 64-true: gradients of whole models as differences show them, and
 * float32 beside it */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cpu_trainer.h"
#include "rig.h"
#include "tap.h"
#include "tensor/precision.h"

static training_case_t case_named(const char *name, bool wide)
{
    training_case_t c = {0};
    for (int i = 0; i < training_case_count; i++)
        if (!strcmp(training_cases[i].name, name))
            c = training_cases[i];
    for (const pl_registration_t *r = pl_precision_components; wide && r->role; r++)
        if (!strcmp(((const pl_component_t *)r->table)->name, "64-true"))
            c.precision = r->table;
    return c;
}

/* ---- Gradients ---- */

/* The mean loss of the first batch with the parameters as they are. */
static double loss_of(cpu_trainer_t *r)
{
    double metrics[PL_FIELDS][2] = {{NAN}};
    pl_replay_t replay = {.seed = 1,
                          .step = 1,
                          .metrics = metrics[0],
                          .done = cpu_on_done};
    training_batch(&r->t, 0, replay.input);
    pl_cpu_accelerator.replay(&r->rig.cpu, r->step, &replay, &cpu_error);
    return cpu_error.code == PL_OK ? metrics[0][0] / r->t.nominal : NAN;
}

static double loss_at(cpu_trainer_t *r, size_t i, double x)
{
    pl_cpu_accelerator.write(&r->rig.cpu, PL_REGION_PARAMS, i, &x, 1, NULL);
    return loss_of(r);
}

/* Four points: the error is of order h^4, so that h may be large beside rounding. */
static double slope_of(cpu_trainer_t *r, size_t i)
{
    const double h = 2e-4;
    double x;
    pl_cpu_accelerator.read(&r->rig.cpu, PL_REGION_PARAMS, i, &x, 1, NULL);
    const double near = loss_at(r, i, x + h) - loss_at(r, i, x - h),
                 far = loss_at(r, i, x + 2 * h) - loss_at(r, i, x - 2 * h);
    loss_at(r, i, x);
    return (8 * near - far) / (12 * h);
}

static void check_gradients(const char *name)
{
    const training_case_t c = case_named(name, true);
    cpu_trainer_t r;
    if (!ok(cpu_trainer_open(&r, &c, 1) == PL_OK, "%s compiles in float64", name)) {
        tap_diag("%s", r.rig.err.text);
        return;
    }
    const size_t n = (size_t)r.t.model->params, every = n / 150 + 1;
    double *grads = pl_alloc_array(n, sizeof *grads), worst = 0, largest = 0;
    loss_of(&r);
    pl_cpu_accelerator.read(&r.rig.cpu, PL_REGION_GRADS, 0, grads, n, NULL);
    for (size_t i = 0; i < n; i++)
        largest = tap_larger(largest, fabs(grads[i]));
    for (size_t i = 0; i < n; i += every)
        worst = tap_larger(worst, fabs(slope_of(&r, i) - grads[i]));
    ok(largest > 1e-3 && isfinite(largest) && worst < 1e-7 * largest,
       "%s: gradients are what differences show within %.1g", name, worst / largest);
    pl_free(grads);
    cpu_trainer_close(&r);
}

static void gradients_equal_finite_differences(void)
{
    check_gradients("mlp, adamw");
    check_gradients("cnn with batch norm, adamw");
    check_gradients("gpt, adamw");
}

/* ---- Beside float32 ---- */

static void float32_trains_as_float64_does(void)
{
    static const char *const names[] = {"mlp, adamw", "cnn with batch norm, adamw",
                                        "gpt, adamw"};
    for (int k = 0; k < 3; k++) {
        const training_case_t narrow = case_named(names[k], false),
                              wide = case_named(names[k], true);
        cpu_trainer_t a, b;
        double worst = 0;
        bool fine = cpu_trainer_open(&a, &narrow, 2) == PL_OK;
        fine = cpu_trainer_open(&b, &wide, 2) == PL_OK && fine;
        for (int step = 0; step < TRAINING_STEPS && fine; step++) {
            double left[2][2], right[2][2];
            fine = cpu_train(&a, step, left) && cpu_train(&b, step, right);
            worst = tap_larger(worst, fabs(left[0][0] / right[0][0] - 1));
        }
        ok(fine && worst > 0 && worst < 2e-5, "%s: losses agree within %.1g", names[k],
           worst);
        cpu_trainer_close(&a);
        cpu_trainer_close(&b);
    }
}

/* ---- Whole runs ---- */

static rig_t *rig_in(const char *name, int nan)
{
    char trainer[100];
    snprintf(trainer, sizeof trainer, "\"precision\": \"%s\", \"max_epochs\": 3", name);
    return rig_new(.accelerator = "cpu", .nan = nan, .trainer = trainer);
}

static void a_run_in_float64_is_near_one_in_float32(void)
{
    rig_t *wide = rig_in("64-true", 0), *narrow = rig_in("32-true", 0);
    rig_result_t *a = rig_keep(rig_fit(wide)), *b = rig_keep(rig_fit(narrow));
    is_text(a->status, "ok", "it ends well");
    ok(rig_distance(a, b) < 1e-5 && !rig_same_bits(a, b), "the weights are near");
    ok(rig_same_bits(a, rig_fit(wide)), "and twice the same");
    const rig_result_t *predicted = rig_predict(wide, a->run_dir);
    float logits[120] = {0};
    if (ok(predicted->output_count == 1, "they predict"))
        memcpy(logits, predicted->output[0].data, sizeof logits);
    predicted = rig_predict(narrow, a->run_dir);
    double worst = 0;
    for (int i = 0; i < 120 && predicted->output_count == 1; i++)
        worst = tap_larger(worst, fabs((double)logits[i]
                                       - (double)predicted->output[0].data[i]));
    ok(worst < 1e-5, "and float32 predicts the same with them, within %.1g", worst);
    char path[4200];
    snprintf(path, sizeof path, "%s/model.safetensors", a->run_dir);
    char *said = pl_weights_describe(path, NULL);
    ok(said && strstr(said, "\"F64\"") && !strstr(said, "\"F32\""), "files are float64");
    pl_text_free(said);
    rig_result_free(a);
    rig_result_free(b);
    rig_free(&wide);
    rig_free(&narrow);
}

static void a_value_that_is_not_finite_is_named(void)
{
    rig_t *rig = rig_in("64-true", 3);
    const rig_result_t *result = rig_fit(rig);
    is_int(result->error.code, PL_ENAN, "the run fails");
    like(result->error.text, "first bad gradient belongs to \"", "%s",
         result->error.text);
    rig_free(&rig);
}

int main(void)
{
    rig_init(NULL);
    run(gradients_equal_finite_differences);
    run(float32_trains_as_float64_does);
    run(a_run_in_float64_is_near_one_in_float32);
    run(a_value_that_is_not_finite_is_named);
    return tap_done();
}
