/* optimizers.c - tests of optimizers and the optimizer step against PyTorch */
#include "strategies/optimizers/optimizer.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "base/alloc.h"
#include "formula.h"
#include "accelerators/reference/reference.h"
#include "tap.h"
#include "training_cases.h"

enum { TENSORS = 5, STEPS = 200 };

/* A model of matrices and vectors, its regions, and an optimizer's step. */
typedef struct rig {
    pl_optimizer_t *optimizer;
    double factor;                                          /* of the rate  [0: 1] */
    double average_share;
    pl_model_t *model;
    pl_graph_t *graph;
    double *region[PL_REGIONS];
    double metrics[2][2];                                   /* loss, grad_norm */
    bool skipped;
} rig_t;

#define NOMINAL 8.0

static pl_error_t failure;

/* As a run with these options has it. */
static pl_optimizer_t *optimizer_of(const char *name, const char *options)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"optimizer\": {\"name\": \"%s\"%s%s}", name,
             options[1] == '}' ? "" : ", ", options + 1);
    pl_options_t *o = pl_options_parse(text, "run", &failure);
    pl_optimizer_t *made = o && pl_options_check(o, &failure) == PL_OK
                               ? pl_optimizer_new(o, "optimizer", &failure)
                               : NULL;
    pl_options_free(o);
    return made;
}

static rig_t rig_of(pl_optimizer_t *optimizer, double clip)
{
    static const pl_shape_t shape[] = {PL_SHAPE(3, 4), PL_SHAPE(5), PL_SHAPE(2),
                                       PL_SHAPE(2, 3, 2), PL_SHAPE(6, 2, 1, 2)};
    static const char *const name[] = {"w1", "b1", "b2", "w2", "w3"};
    rig_t rig = {.optimizer = optimizer, .model = pl_model_new(NULL)};
    pl_graph_t *g = pl_graph_new(rig.model, PL_TRAIN, NULL, 0, 1, NULL);
    for (int i = 0; i < TENSORS; i++)
        pl_param(g, name[i], shape[i], pl_zeros());
    pl_graph_free(g);
    for (int r = 0; r < PL_REGIONS; r++)
        rig.region[r] = pl_alloc_array((size_t)rig.model->params + 2, sizeof(double));
    for (int i = 0; i < TENSORS; i++)
        formula_wave(rig.model->tensor[i].count, i, -1, 1,
                     rig.region[PL_REGION_PARAMS] + rig.model->tensor[i].offset);
    if (rig.optimizer)
        rig.graph = pl_optimizer_graph(rig.optimizer, rig.model, NOMINAL, clip, &failure);
    return rig;
}

static rig_t rig_new(const pl_optimizer_ops_t *ops, const char *options, double clip)
{
    return rig_of(optimizer_of(ops->name, options), clip);
}

static void rig_release(rig_t *rig)
{
    for (int r = 0; r < PL_REGIONS; r++)
        pl_free(rig->region[r]);
    pl_graph_free(rig->graph);
    pl_model_free(rig->model);
    pl_optimizer_free(rig->optimizer);
}

/* A loss of `sum` over `weight` samples, whose mean has the gradient of a bowl, shaken by
 * the formula. */
static void rig_gradients(rig_t *rig, int step, double sum, double weight)
{
    double *grads = rig->region[PL_REGION_GRADS];
    for (int i = 0; i < TENSORS; i++) {
        const pl_tensor_info_t *t = &rig->model->tensor[i];
        formula_wave(t->count, 10 * step + i, -1, 1, grads + t->offset);
        for (int64_t k = t->offset; k < t->offset + t->count; k++)
            grads[k] = (grads[k] / 8 + rig->region[PL_REGION_PARAMS][k] / 4) * weight
                       / NOMINAL;
    }
    grads[rig->model->params] = sum;
    grads[rig->model->params + 1] = weight;
}

static bool rig_step(rig_t *rig, int step)
{
    pl_reference_replay_t replay = {.metrics = rig->metrics};
    memcpy(replay.region, rig->region, sizeof replay.region);
    pl_optimizer_scalars(rig->optimizer, rig->factor ? rig->factor : 1,
                         (uint64_t)step + 1, replay.scalar);
    replay.scalar[PL_SCALAR_AVERAGE] = rig->average_share;
    pl_error_t err;
    if (!rig->graph || pl_reference_replay(rig->graph, &replay, &err) != PL_OK)
        return false;
    rig->skipped = replay.skipped;
    return true;
}

/* ---- What PyTorch computes ---- */

static json_t *data_load(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/t/data/%s",
             getenv("top_srcdir") ? getenv("top_srcdir") : "..", name);
    return json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
}

/* The largest distance of a tensor to its digest, in a region. */
static double rig_distance(const rig_t *rig, pl_region_t region, const json_t *want)
{
    double worst = json_array_size(want) == TENSORS ? 0 : INFINITY;
    for (int i = 0; i < TENSORS; i++) {
        const pl_tensor_info_t *t = &rig->model->tensor[i];
        const json_t *w = json_array_get(want, (size_t)i);
        digest_t digest = {json_number_value(json_array_get(w, 0)),
                           json_number_value(json_array_get(w, 1)),
                           json_number_value(json_array_get(w, 2))};
        digest_t got = digest_of(rig->region[region] + t->offset, t->count);
        worst = tap_larger(worst, digest_distance(got, digest, 1e-3));
    }
    return worst;
}

static void check_steps(const json_t *want, const char *name,
                        const pl_optimizer_ops_t *ops, const char *options, double clip)
{
    rig_t rig = rig_new(ops, options, clip);
    double worst = rig.graph && json_array_size(json_object_get(want, name)) == TENSORS
                       ? 0
                       : INFINITY;
    for (int step = 0; step < STEPS; step++) {
        rig_gradients(&rig, step, 3, 4 + step % 7);
        if (!rig_step(&rig, step) || rig.skipped)
            worst = INFINITY;
    }
    worst = tap_larger(worst,
                       rig_distance(&rig, PL_REGION_PARAMS, json_object_get(want, name)));
    ok(worst < 1e-8, "%s: %d steps end where PyTorch's do (%.1g)", name, STEPS, worst);
    rig_release(&rig);
}

static void two_hundred_steps_equal_torch(void)
{
    json_t *d = data_load("optimizers.json");
    if (!ok(d != NULL, "t/data/optimizers.json can be read"))
        return;
    check_steps(d, "sgd", &pl_sgd_optimizer, "{\"lr\": 0.1}", 0);
    check_steps(d, "sgd, momentum", &pl_sgd_optimizer, "{\"lr\": 0.1, \"momentum\": 0.9}",
                0);
    check_steps(d, "sgd, dampening", &pl_sgd_optimizer,
                "{\"lr\": 0.1, \"momentum\": 0.9, \"dampening\": 0.25}", 0);
    check_steps(
        d, "sgd, nesterov, decay", &pl_sgd_optimizer,
        "{\"lr\": 0.1, \"momentum\": 0.8, \"nesterov\": true, \"weight_decay\": 0.1}", 0);
    check_steps(d, "sgd, decay of matrices only", &pl_sgd_optimizer,
                "{\"lr\": 0.1, \"weight_decay\": 0.1, \"decay\": \"matrices\"}", 0);
    check_steps(d, "sgd, clipped", &pl_sgd_optimizer, "{\"lr\": 0.1}", 0.125);
    check_steps(d, "adam", &pl_adam_optimizer, "{\"lr\": 0.01}", 0);
    check_steps(d, "adam, decay", &pl_adam_optimizer,
                "{\"lr\": 0.01, \"beta1\": 0.8, \"beta2\": 0.95, \"eps\": 1e-4, "
                "\"weight_decay\": 0.1}",
                0);
    check_steps(d, "adam, amsgrad", &pl_adam_optimizer,
                "{\"lr\": 0.01, \"beta1\": 0.8, \"beta2\": 0.9, \"amsgrad\": true}", 0);
    check_steps(d, "adamw", &pl_adamw_optimizer, "{\"lr\": 0.01, \"weight_decay\": 0.1}",
                0);
    check_steps(d, "adamw, decay of matrices only", &pl_adamw_optimizer,
                "{\"lr\": 0.01, \"beta2\": 0.99, \"weight_decay\": 0.1, "
                "\"decay\": \"matrices\"}",
                0);
    check_steps(d, "adamw, amsgrad", &pl_adamw_optimizer,
                "{\"lr\": 0.01, \"beta2\": 0.9, \"amsgrad\": true, "
                "\"weight_decay\": 0.01}",
                0);
    json_decref(d);
}

/* What float32 cannot square, float64 can: the norm is the same. */
static void a_large_gradient_has_its_norm_in_float64(void)
{
    rig_t rig = rig_new(&pl_sgd_optimizer, "{\"lr\": 0.1}", 0.125);
    double norm = 0;
    rig_gradients(&rig, 0, 3, NOMINAL);
    for (int64_t k = 0; k < rig.model->params; k++) {
        rig.region[PL_REGION_GRADS][k] *= 1e30;
        norm += rig.region[PL_REGION_GRADS][k] * rig.region[PL_REGION_GRADS][k];
    }
    ok(rig_step(&rig, 0) && !rig.skipped, "a step with gradients of 1e30");
    is_near(rig.metrics[1][0] / sqrt(norm), 1, 1e-12, "the norm is theirs");
    rig_release(&rig);
}

static void other_optimizers_equal_torch(void)
{
    json_t *d = data_load("optimizers.json");
    check_steps(d, "adagrad", &pl_adagrad_optimizer, "{\"lr\": 0.1}", 0);
    check_steps(d, "adagrad, all", &pl_adagrad_optimizer,
                "{\"lr\": 0.1, \"lr_decay\": 0.01, \"weight_decay\": 0.1, "
                "\"initial_accumulator_value\": 0.5, \"eps\": 1e-6}",
                0);
    check_steps(d, "rmsprop", &pl_rmsprop_optimizer, "{\"lr\": 0.01}", 0);
    check_steps(d, "rmsprop, momentum", &pl_rmsprop_optimizer,
                "{\"lr\": 0.01, \"alpha\": 0.9, \"momentum\": 0.8, "
                "\"weight_decay\": 0.1}",
                0);
    check_steps(d, "rmsprop, centered", &pl_rmsprop_optimizer,
                "{\"lr\": 0.01, \"alpha\": 0.9, \"eps\": 1e-3, \"centered\": true}", 0);
    check_steps(d, "rmsprop, centered, momentum", &pl_rmsprop_optimizer,
                "{\"lr\": 0.01, \"momentum\": 0.8, \"eps\": 1e-2, \"centered\": true}",
                0);
    check_steps(d, "radam", &pl_radam_optimizer, "{\"lr\": 0.01}", 0);
    check_steps(d, "radam, decay", &pl_radam_optimizer,
                "{\"lr\": 0.01, \"beta1\": 0.8, \"beta2\": 0.95, \"eps\": 1e-4, "
                "\"weight_decay\": 0.1}",
                0);
    check_steps(d, "radam, decoupled", &pl_radam_optimizer,
                "{\"lr\": 0.01, \"beta2\": 0.99, \"weight_decay\": 0.1, "
                "\"decoupled_weight_decay\": true}",
                0);
    check_steps(d, "nadam", &pl_nadam_optimizer, "{\"lr\": 0.01}", 0);
    check_steps(d, "nadam, decay", &pl_nadam_optimizer,
                "{\"lr\": 0.01, \"beta1\": 0.8, \"beta2\": 0.95, \"eps\": 1e-4, "
                "\"weight_decay\": 0.1, \"momentum_decay\": 0.01}",
                0);
    check_steps(d, "nadam, decoupled", &pl_nadam_optimizer,
                "{\"lr\": 0.01, \"weight_decay\": 0.1, "
                "\"decoupled_weight_decay\": true}",
                0);
    check_steps(d, "adamax", &pl_adamax_optimizer, "{\"lr\": 0.01}", 0);
    check_steps(d, "adamax, decay", &pl_adamax_optimizer,
                "{\"lr\": 0.01, \"beta1\": 0.8, \"beta2\": 0.95, \"eps\": 1e-4, "
                "\"weight_decay\": 0.1}",
                0);
    check_steps(d, "adafactor", &pl_adafactor_optimizer, "{\"lr\": 0.01}", 0);
    check_steps(d, "adafactor, all", &pl_adafactor_optimizer,
                "{\"lr\": 0.1, \"beta2_decay\": -0.5, \"eps1\": 0.015625, "
                "\"eps2\": 0.5, \"d\": 2, \"weight_decay\": 0.1}",
                0);
    check_steps(d, "lion", &pl_lion_optimizer, "{\"lr\": 0.0078125}", 0);
    check_steps(d, "lion, decay", &pl_lion_optimizer,
                "{\"lr\": 0.0078125, \"beta1\": 0.8, \"beta2\": 0.95, "
                "\"weight_decay\": 0.1}",
                0);
    check_steps(d, "muon", &pl_muon_optimizer, "{\"lr\": 0.015625}", 0);
    check_steps(d, "muon, all", &pl_muon_optimizer,
                "{\"lr\": 0.03125, \"momentum\": 0.9, \"nesterov\": false, "
                "\"ns_steps\": 3, \"weight_decay\": 0.1, \"adam_lr\": 0.01}",
                0);
    check_steps(d, "muon, as adam", &pl_muon_optimizer,
                "{\"orthogonal\": false, \"adam_lr\": 0.01}", 0);
    json_decref(d);
}

static int cycle_to(pl_optimizer_t *optimizer, double momentum)
{
    const pl_scheduled_t scheduled = {.lr = 1,
                                      .momentum = momentum,
                                      .factor = {NAN, NAN}};
    return pl_optimizer_schedule(optimizer, &scheduled, &failure);
}

static void check_cycle(const json_t *want, const char *name,
                        const pl_optimizer_ops_t *ops, const char *options,
                        const char *cycle)
{
    const pl_scheduler_ops_t *schedule = &pl_one_cycle_scheduler;
    void *self = training_component((const pl_component_t *)schedule, cycle);
    pl_optimizer_t *optimizer = optimizer_of(ops->name, options);
    pl_moment_t when = {.total_steps = STEPS};
    bool fine = optimizer
                && cycle_to(optimizer, schedule->momentum(self, &when)) == PL_OK;
    rig_t rig = rig_of(optimizer, 0);
    for (; when.step < STEPS && fine; when.step++) {
        rig.factor = schedule->factor(self, &when);
        cycle_to(optimizer, schedule->momentum(self, &when));
        rig_gradients(&rig, (int)when.step, 3, 4);
        fine = rig_step(&rig, (int)when.step) && !rig.skipped;
    }
    double worst = rig_distance(&rig, PL_REGION_PARAMS, json_object_get(want, name));
    ok(fine && worst < 1e-8, "%s: %d steps end where PyTorch's do (%.1g)", name, STEPS,
       worst);
    rig_release(&rig);
    pl_free(self);
}

static void a_schedule_may_cycle_the_momentum(void)
{
    json_t *d = data_load("optimizers.json");
    check_cycle(d, "sgd, one_cycle", &pl_sgd_optimizer, "{\"lr\": 0.1}", "{}");
    check_cycle(d, "adam, one_cycle", &pl_adam_optimizer, "{\"lr\": 0.01}", "{}");
    check_cycle(d, "adamw, one_cycle", &pl_adamw_optimizer,
                "{\"lr\": 0.01, \"weight_decay\": 0.1}", "{}");
    check_cycle(d, "adamax, one_cycle", &pl_adamax_optimizer, "{\"lr\": 0.01}", "{}");
    check_cycle(d, "radam, one_cycle", &pl_radam_optimizer, "{\"lr\": 0.01}", "{}");
    check_cycle(d, "rmsprop, one_cycle", &pl_rmsprop_optimizer, "{\"lr\": 0.01}",
                "{\"three_phase\": true, \"base_momentum\": 0.5}");
    json_decref(d);
    pl_optimizer_t *adagrad = optimizer_of("adagrad", "{}");
    is_int(cycle_to(adagrad, 0.9), PL_EINVAL, "not one it has not");
    like(failure.text, "\"adagrad\" has none: set scheduler.cycle_momentum to false",
         "and that is said");
    pl_optimizer_free(adagrad);
}

/* Momentum and weight decay that follow ramps: from a quarter to all of it in 100 steps,
 * and from twice to half of it in 150. */
static pl_scheduled_t ramps_at(int step, bool momentum, bool decay)
{
    return (pl_scheduled_t){
        .lr = 1,
        .momentum = NAN,
        .factor = {[PL_STEPPED_MOMENTUM] = momentum ? 0.25 + 0.75 * fmin(step / 100.0, 1)
                                                    : NAN,
                   [PL_STEPPED_DECAY] = decay ? 2 - 1.5 * fmin(step / 150.0, 1) : NAN}};
}

static void check_ramps(const json_t *want, const char *name,
                        const pl_optimizer_ops_t *ops, const char *options, bool momentum,
                        bool decay)
{
    pl_optimizer_t *optimizer = optimizer_of(ops->name, options);
    pl_scheduled_t now = ramps_at(0, momentum, decay);
    bool fine = optimizer && pl_optimizer_schedule(optimizer, &now, &failure) == PL_OK;
    rig_t rig = rig_of(optimizer, 0);
    for (int k = 0; k < STEPS && fine; k++) {
        now = ramps_at(k, momentum, decay);
        fine = pl_optimizer_schedule(optimizer, &now, &failure) == PL_OK;
        rig_gradients(&rig, k, 3, 4);
        fine = fine && rig_step(&rig, k) && !rig.skipped;
    }
    double worst = rig_distance(&rig, PL_REGION_PARAMS, json_object_get(want, name));
    ok(fine && worst < 1e-8, "%s: %d steps end where PyTorch's do (%.1g)", name, STEPS,
       worst);
    rig_release(&rig);
}

static void momentum_and_weight_decay_may_follow_schedules(void)
{
    json_t *d = data_load("optimizers.json");
    check_ramps(d, "sgd, scheduled", &pl_sgd_optimizer,
                "{\"lr\": 0.1, \"momentum\": 0.9, \"weight_decay\": 0.1}", true, true);
    check_ramps(d, "sgd, nesterov, scheduled", &pl_sgd_optimizer,
                "{\"lr\": 0.1, \"momentum\": 0.8, \"nesterov\": true}", true, false);
    check_ramps(d, "sgd, groups, scheduled", &pl_sgd_optimizer,
                "{\"lr\": 0.1, \"momentum\": 0.5, \"groups\": [{\"match\": \"w*\", "
                "\"momentum\": 0.9}, {\"match\": \"b1\", \"weight_decay\": 0.2}]}",
                true, true);
    check_ramps(d, "adam, scheduled", &pl_adam_optimizer,
                "{\"lr\": 0.01, \"weight_decay\": 0.1}", true, true);
    check_ramps(d, "adamw, scheduled", &pl_adamw_optimizer,
                "{\"lr\": 0.01, \"weight_decay\": 0.1}", true, true);
    check_ramps(d, "adamw, matrices, scheduled", &pl_adamw_optimizer,
                "{\"lr\": 0.01, \"weight_decay\": 0.1, \"decay\": \"matrices\"}", false,
                true);
    check_ramps(d, "adamax, scheduled", &pl_adamax_optimizer,
                "{\"lr\": 0.01, \"weight_decay\": 0.1}", true, true);
    check_ramps(d, "radam, scheduled", &pl_radam_optimizer,
                "{\"lr\": 0.01, \"weight_decay\": 0.1, "
                "\"decoupled_weight_decay\": true}",
                true, true);
    check_ramps(d, "rmsprop, scheduled", &pl_rmsprop_optimizer,
                "{\"lr\": 0.01, \"momentum\": 0.8, \"weight_decay\": 0.1}", true, true);
    check_ramps(d, "lion, scheduled", &pl_lion_optimizer,
                "{\"lr\": 0.0078125, \"weight_decay\": 0.1}", true, true);
    check_ramps(d, "adagrad, scheduled", &pl_adagrad_optimizer,
                "{\"lr\": 0.1, \"weight_decay\": 0.1}", false, true);
    check_ramps(d, "nadam, scheduled", &pl_nadam_optimizer,
                "{\"lr\": 0.01, \"weight_decay\": 0.1}", false, true);
    check_ramps(d, "adafactor, scheduled", &pl_adafactor_optimizer,
                "{\"lr\": 0.01, \"weight_decay\": 0.1}", false, true);
    check_ramps(d, "muon, scheduled", &pl_muon_optimizer,
                "{\"lr\": 0.015625, \"weight_decay\": 0.1, \"adam_lr\": 0.0003}", true,
                true);
    json_decref(d);
}

static void schedule_is_refused(const char *name, const char *options, double momentum,
                                double decay, const char *why)
{
    pl_optimizer_t *optimizer = optimizer_of(name, options);
    const pl_scheduled_t scheduled = {.lr = 1, .momentum = NAN, {momentum, decay}};
    is_int(pl_optimizer_schedule(optimizer, &scheduled, &failure), PL_EINVAL,
           "%s %s: %g, %g", name, options, momentum, decay);
    like(failure.text, why, "%s", failure.text);
    pl_optimizer_free(optimizer);
}

static void schedules_of_values_that_an_optimizer_has_not_are_refused(void)
{
    schedule_is_refused("adagrad", "{}", 1, NAN,
                        "\"adagrad\" has no momentum .*remove \"momentum_scheduler\"");
    schedule_is_refused("sgd", "{}", 1, NAN,
                        "multiplies \"momentum\" of optimizer \"sgd\", which is 0");
    schedule_is_refused("adam", "{}", NAN, 1,
                        "\"weight_decay_scheduler\" multiplies \"weight_decay\"");
    schedule_is_refused("adam", "{}", 1.2, NAN,
                        "\"beta1\" of .* to 1.08, and it must be from 0 to below 1");
    schedule_is_refused("adamw", "{}", NAN, -1, "it must be 0 or more: the factor is -1");
    schedule_is_refused("adamw", "{}", NAN, INFINITY, "\"weight_decay\" .* to inf");
    pl_optimizer_t *sgd = optimizer_of("sgd", "{\"momentum\": 0.9}");
    const pl_scheduled_t both = {.lr = 1, .momentum = 0.9, {1, NAN}};
    is_int(pl_optimizer_schedule(sgd, &both, &failure), PL_EINVAL, "two of one value");
    like(failure.text, "cycles the momentum, which \"momentum_scheduler\" sets too", "%s",
         failure.text);
    pl_optimizer_free(sgd);
}

/* 20 steps are an epoch. */
static void check_average(const json_t *want, const char *name,
                          const pl_averaging_ops_t *ops, const char *options)
{
    void *self = training_component((const pl_component_t *)ops, options);
    pl_optimizer_t *sgd = optimizer_of("sgd", "{\"lr\": 0.1}");
    sgd->averages = true;
    rig_t rig = rig_of(sgd, 0);
    bool fine = true;
    for (int step = 0; step < STEPS; step++) {
        const pl_moment_t when = {.step = (uint64_t)step,
                                  .total_steps = STEPS,
                                  .epoch = (uint64_t)step / 20,
                                  .total_epochs = STEPS / 20,
                                  .epoch_ends = step % 20 == 19};
        rig.average_share = ops->share(self, &when);
        rig_gradients(&rig, step, 3, 4);
        fine = rig_step(&rig, step) && !rig.skipped && fine;
    }
    double worst = rig_distance(&rig, PL_REGION_AVERAGE, json_object_get(want, name));
    ok(fine && worst < 1e-6, "%s: the average of %d steps equals PyTorch's (%.1g)", name,
       STEPS, worst);
    worst = rig_distance(&rig, PL_REGION_PARAMS, json_object_get(want, "sgd"));
    ok(worst < 1e-6, "%s: and the steps are as without it", name);
    rig_release(&rig);
    pl_free(self);
}

static void averages_equal_torch(void)
{
    json_t *d = data_load("optimizers.json");
    check_average(d, "sgd, ema", &pl_ema_averaging, "{\"decay\": 0.96875}");
    check_average(d, "sgd, ema, warm-up", &pl_ema_averaging,
                  "{\"decay\": 0.96875, \"warmup\": true, \"start_step\": 20, "
                  "\"every_n_steps\": 4}");
    check_average(d, "sgd, swa", &pl_swa_averaging, "{\"start\": 0.5}");
    check_average(d, "sgd, swa", &pl_swa_averaging, "{\"start\": 5}");
    check_average(d, "sgd, swa", &pl_swa_averaging,
                  "{\"start\": 119, \"interval\": \"step\", \"every\": 20}");
    json_decref(d);
}

static void an_average_equals_the_weights_before_it_begins(void)
{
    void *ema = training_component((const pl_component_t *)&pl_ema_averaging,
                                   "{\"start_step\": 7}"),
         *swa = training_component((const pl_component_t *)&pl_swa_averaging, "{}");
    ok(pl_ema_averaging.share(ema, &(pl_moment_t){.step = 7}) == 1, "at its start");
    ok(pl_ema_averaging.share(ema, &(pl_moment_t){.step = 8}) < 0.01, "not behind it");
    ok(pl_swa_averaging.share(swa, &(pl_moment_t){.step = 999, .epoch = 99}) == 1,
       "in a run whose end is not known");
    pl_moment_t when = {.epoch = 8, .total_epochs = 10, .epoch_ends = true};
    ok(pl_swa_averaging.share(swa, &when) == 1, "up to the first end");
    when.epoch = 9;
    ok(pl_swa_averaging.share(swa, &when) == 0.5, "which counts as much as the second");
    pl_free(ema);
    pl_free(swa);
}

/* ---- The step around the update ---- */

static void the_norm_and_the_loss_come_back(void)
{
    rig_t rig = rig_new(&pl_sgd_optimizer, "{}", 0);
    rig_gradients(&rig, 0, 7, 5);
    double square = 0;
    for (int64_t i = 0; i < rig.model->params; i++)
        square += pow(rig.region[PL_REGION_GRADS][i] * NOMINAL / 5, 2);
    rig_step(&rig, 0);
    ok(!strcmp(rig.graph->fetch[0].name, "loss")
           && !strcmp(rig.graph->fetch[1].name, "grad_norm"),
       "by their names");
    ok(rig.metrics[0][0] == 7 && rig.metrics[0][1] == 5, "loss and weight as they are");
    is_near(rig.metrics[1][0], sqrt(square), 1e-12, "the norm is of the mean loss");
    rig_release(&rig);
}

/* A new graph of a step. */
static void rig_by_blocks(rig_t *rig, int64_t block, int64_t norms)
{
    rig->optimizer->block = block;
    rig->optimizer->norms = norms;
    pl_graph_free(rig->graph);
    rig->graph = pl_optimizer_graph(rig->optimizer, rig->model, NOMINAL, 0, &failure);
}

/* Adds the norms of the blocks in some pieces to those that there are. */
static void norms_add(rig_t *rig, const pl_piece_t *piece, int pieces)
{
    double *sum = rig->region[PL_REGION_NORMS], own[64];
    pl_reference_replay_t replay = {0};
    pl_optimizer_t *o = rig->optimizer;
    o->pieces = pieces;
    memcpy(o->piece, piece, (size_t)pieces * sizeof *piece);
    memcpy(replay.region, rig->region, sizeof replay.region);
    replay.region[PL_REGION_NORMS] = own;
    for (int k = 0; k < 64; k++)
        own[k] = NAN;
    pl_graph_t *g = pl_optimizer_norms(o, rig->model, &failure);
    if (!ok(g && pl_reference_replay(g, &replay, &failure) == PL_OK, "norms of %d pieces",
            pieces))
        return;
    for (int64_t k = 0; k < o->norms; k++)
        sum[k] += own[k];
    o->pieces = 0;
    pl_graph_free(g);
}

static void the_norm_of_blocks_is_the_norm_of_all(void)
{
    rig_t rig = rig_new(&pl_sgd_optimizer, "{}", 0);
    rig_gradients(&rig, 0, 7, 5);
    double square = 0;
    for (int i = 0; i < TENSORS; i++)
        for (int64_t k = 0; i != 1 && i != 3 && k < rig.model->tensor[i].count; k++)
            square += pow(rig.region[PL_REGION_GRADS][rig.model->tensor[i].offset + k]
                              * NOMINAL / 5,
                          2);
    rig.model->tensor[1].frozen = true;
    rig.model->tensor[3].objective = 1;
    rig_by_blocks(&rig, 16, 0);
    rig_step(&rig, 0);
    const double whole = rig.metrics[1][0];
    is_near(whole, sqrt(square), 1e-12, "on a rank that has all gradients");
    const int64_t norms = pl_norm_count(rig.model, 0, 16);
    is_int(norms, 4, "there are norms of four blocks");
    rig_by_blocks(&rig, 16, norms);
    norms_add(&rig, (pl_piece_t[]){{80, 16, 0}, {0, 16, 16}}, 2);
    norms_add(&rig, (pl_piece_t[]){{16, 32, 0}}, 1);
    norms_add(&rig, (pl_piece_t[]){{64, 16, 0}, {48, 0, 16}}, 2);
    rig_step(&rig, 0);
    ok(rig.metrics[1][0] == whole, "ranks that have pieces come to the same bits");
    rig_release(&rig);
    rig_t behind = rig_new(&pl_sgd_optimizer, "{}", 0);
    rig_gradients(&behind, 0, 7, 5);
    behind.model->tensor[0].objective = 1;
    rig_by_blocks(&behind, 32, 0);
    rig_step(&behind, 0);
    const double other = behind.metrics[1][0];
    rig_by_blocks(&behind, 32, pl_norm_count(behind.model, 0, 32));
    norms_add(&behind, (pl_piece_t[]){{16, 32, 0}}, 1);
    norms_add(&behind, (pl_piece_t[]){{48, 48, 0}}, 1);
    rig_step(&behind, 0);
    ok(behind.metrics[1][0] == other && other != whole,
       "blocks are counted from a step's first parameter");
    rig_release(&behind);
    is_int(pl_norm_block(&(pl_model_t){.params = 1000}), 16, "a small model's blocks");
    is_int(pl_norm_block(&(pl_model_t){.params = 124439808}), 4096, "those of GPT-2");
}

/* Whether a step with this in the gradients leaves everything as it was, and ends skipped
 * or not. */
static bool nothing_happens(int64_t at, double value, bool skipped)
{
    rig_t rig = rig_new(&pl_adamw_optimizer, "{}", 1);
    rig_gradients(&rig, 0, 7, 5);
    rig.region[PL_REGION_GRADS][at < 0 ? rig.model->params - 1 - at : at] = value;
    double before[128];
    const size_t n = (size_t)rig.model->params;
    memcpy(before, rig.region[PL_REGION_PARAMS], n * sizeof(double));
    rig_step(&rig, 0);
    bool same = !memcmp(before, rig.region[PL_REGION_PARAMS], n * sizeof(double))
                && rig.skipped == skipped;
    for (size_t i = 0; i < n; i++)
        same = same && rig.region[PL_REGION_SLOT0][i] == 0
               && rig.region[PL_REGION_SLOT0 + 1][i] == 0;
    rig_release(&rig);
    return same;
}

static void a_step_that_is_not_finite_changes_nothing(void)
{
    ok(nothing_happens(0, NAN, true), "a gradient that is no number");
    ok(nothing_happens(17, INFINITY, true), "an infinite gradient");
    ok(nothing_happens(-1, NAN, true), "a loss that is no number");
    ok(nothing_happens(-1, -INFINITY, true), "an infinite loss");
    ok(nothing_happens(-2, NAN, true), "a weight that is no number");
    ok(!nothing_happens(0, 0.5, false), "while a finite one does");
}

static void a_step_without_samples_is_no_fault(void)
{
    ok(nothing_happens(-2, 0, false), "a weight of zero changes nothing");
    rig_t rig = rig_new(&pl_sgd_optimizer, "{}", 0);
    rig_gradients(&rig, 0, 0, 0);
    rig_step(&rig, 0);
    ok(rig.metrics[1][0] == 0, "and has no norm");
    rig_release(&rig);
}

static void padding_stays_zero(void)
{
    rig_t rig = rig_new(&pl_adamw_optimizer, "{\"lr\": 0.1, \"weight_decay\": 0.1}", 1);
    for (int step = 0; step < 3; step++) {
        rig_gradients(&rig, step, 1, 8);
        rig_step(&rig, step);
    }
    bool zero = true;
    for (int64_t k = 12; k < 16; k++)
        zero = zero && rig.region[PL_REGION_PARAMS][k] == 0
               && rig.region[PL_REGION_SLOT0][k] == 0;
    ok(zero, "between tensors there are zeros after three steps");
    rig_release(&rig);
}

static int assigns_to_parameters(const pl_graph_t *g)
{
    int count = 0;
    for (int i = 0; i < g->op_count; i++)
        count += g->op[i].code == PL_OP_assign
                 && g->value[g->op[i].input[0]].index == PL_REGION_PARAMS;
    return count;
}

static void neighbours_with_equal_options_are_one_range(void)
{
    rig_t one = rig_new(&pl_sgd_optimizer, "{\"weight_decay\": 0.1}", 0);
    rig_t three = rig_new(&pl_sgd_optimizer,
                          "{\"weight_decay\": 0.1, \"decay\": \"matrices\"}", 0);
    is_int(assigns_to_parameters(one.graph), 1, "all tensors are one range");
    is_int(assigns_to_parameters(three.graph), 3,
           "matrix, two vectors, matrix are three");
    rig_release(&one);
    rig_release(&three);
}

/* ---- Groups ---- */

/* Whether steps of a rig with these groups end where those of PyTorch do, under a name of
 * t/data/optimizers.json. */
static void groups_equal_torch(void)
{
    json_t *d = data_load("optimizers.json");
    check_steps(d, "sgd, decay of matrices only", &pl_sgd_optimizer,
                "{\"lr\": 0.1, \"weight_decay\": 0.1, "
                "\"groups\": [{\"match\": \"b?\", \"weight_decay\": 0}]}",
                0);
    check_steps(d, "adamw, groups", &pl_adamw_optimizer,
                "{\"lr\": 0.01, \"weight_decay\": 0.1, \"decay\": \"matrices\", "
                "\"groups\": [{\"match\": \"w1\", \"lr\": 0.02, \"beta1\": 0.5}, "
                "{\"match\": \"[wb]2\", \"weight_decay\": 0.2, \"beta2\": 0.9}]}",
                0);
    check_steps(d, "sgd, groups", &pl_sgd_optimizer,
                "{\"lr\": 0.1, \"groups\": [{\"match\": \"w*\", \"momentum\": 0.9}, "
                "{\"match\": \"b2\", \"lr\": 0}]}",
                0);
    json_decref(d);
}

static void each_group_is_a_range_of_its_own(void)
{
    rig_t rig = rig_new(&pl_sgd_optimizer,
                        "{\"groups\": [{\"match\": \"w[23]\", \"lr\": 1}]}", 0);
    is_int(assigns_to_parameters(rig.graph), 2, "but for neighbours in it");
    rig_release(&rig);
}

static void is_refused(const char *name, const char *options, const char *why)
{
    pl_model_t *model = pl_model_new(NULL);
    pl_graph_t *g = pl_graph_new(model, PL_TRAIN, NULL, 0, 1, NULL);
    pl_param(g, "fc1.weight", PL_SHAPE(3, 2), pl_zeros());
    pl_param(g, "fc1.bias", PL_SHAPE(3), pl_zeros());
    pl_optimizer_t *optimizer = optimizer_of(name, options);
    pl_graph_t *made = optimizer ? pl_optimizer_graph(optimizer, model, 1, 0, &failure)
                                 : NULL;
    ok(!made, "%s %s", name, options);
    like(failure.text, why, "is refused by name");
    pl_optimizer_free(optimizer);
    pl_graph_free(made);
    pl_graph_free(g);
    pl_model_free(model);
}

static void impossible_optimizers_are_refused(void)
{
    is_refused("sgd", "{\"nesterov\": true}",
               "sgd: nesterov needs a momentum above 0 and a dampening of 0");
    is_refused("sgd", "{\"groups\": [{\"match\": \"fc1.biass\", \"lr\": 1}]}",
               "groups.0: \"fc1.biass\" matches no parameter: did you mean \"fc1.bias\"");
    is_refused("sgd", "{\"groups\": [{\"match\": \"*\"}, {\"match\": \"*.bias\"}]}",
               "groups.1: earlier groups match everything that \"\\*.bias\" matches");
    is_refused("sgd", "{\"groups\": [{\"lr\": 1}]}",
               "optimizer.groups.0\" needs \"match\"");
    is_refused("sgd", "{\"groups\": [{\"match\": \"*\", \"momentun\": 1}]}",
               "unknown key \"optimizer.groups.0.momentun\": did you mean \"momentum\"");
    is_refused("sgd", "{\"groups\": [{\"match\": \"*\", \"momentum\": 1}]}",
               "\"optimizer.groups.0.momentum\" takes a number");
    is_refused("sgd", "{\"groups\": {\"match\": \"*\"}}", "takes a list of objects");
    is_refused("sgd", "{\"groups\": [1]}", "takes a list of objects");
}

static void a_model_without_parameters_is_refused(void)
{
    pl_model_t *model = pl_model_new(NULL);
    pl_optimizer_t *sgd = optimizer_of("sgd", "{}");
    ok(!pl_optimizer_graph(sgd, model, 1, 0, &failure), "there is nothing to do");
    like(failure.text, "no parameters", "and that is said");
    pl_optimizer_free(sgd);
    pl_model_free(model);
}

int main(void)
{
    pl_register(pl_optimizer_components, NULL);
    run(two_hundred_steps_equal_torch);
    run(a_large_gradient_has_its_norm_in_float64);
    run(other_optimizers_equal_torch);
    run(a_schedule_may_cycle_the_momentum);
    run(momentum_and_weight_decay_may_follow_schedules);
    run(schedules_of_values_that_an_optimizer_has_not_are_refused);
    run(the_norm_and_the_loss_come_back);
    run(the_norm_of_blocks_is_the_norm_of_all);
    run(a_step_that_is_not_finite_changes_nothing);
    run(a_step_without_samples_is_no_fault);
    run(padding_stays_zero);
    run(neighbours_with_equal_options_are_one_range);
    run(averages_equal_torch);
    run(an_average_equals_the_weights_before_it_begins);
    run(groups_equal_torch);
    run(each_group_is_a_range_of_its_own);
    run(impossible_optimizers_are_refused);
    run(a_model_without_parameters_is_refused);
    return tap_done();
}
