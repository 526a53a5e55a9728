/* schedules.c - tests of learning rate schedules against PyTorch */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "strategies/optimizers/optimizer.h"
#include "tap.h"
#include "training_cases.h"

enum { STEPS = 200 };

static json_t *data_load(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/t/data/schedules.json",
             getenv("top_srcdir") ? getenv("top_srcdir") : "..");
    return json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
}

/* The factors of a name: runs of equal ones are pairs; false when there are not
 * STEPS of them. */
static bool unpack(const json_t *data, const char *name, double into[STEPS])
{
    const json_t *packed = json_object_get(data, name);
    size_t done = 0;
    for (size_t k = 0; k < json_array_size(packed); k++) {
        const json_t *item = json_array_get(packed, k);
        const bool pair = json_is_array(item);
        json_int_t times = pair ? json_integer_value(json_array_get(item, 1)) : 1;
        while (times-- > 0 && done < STEPS)
            into[done++] = json_number_value(pair ? json_array_get(item, 0) : item);
    }
    return done == STEPS;
}

/* As a run with these options has it. */
static pl_instance_t schedule_of(const pl_scheduler_ops_t *ops, const char *options)
{
    pl_instance_t made = {0};
    pl_error_t err = {0};
    json_t *value = json_loads(options, JSON_REJECT_DUPLICATES, NULL);
    json_object_set_new(value, "name", json_string(ops->name));
    const pl_instance_request_t request = {.role = "scheduler", .value = value};
    if (pl_instance_make(&made, &request, &err) != PL_OK)
        tap_diag("%s", err.text);
    json_decref(value);
    return made;
}

static void check_schedule(const json_t *data, const char *name,
                           const pl_scheduler_ops_t *ops, const char *options)
{
    pl_instance_t schedule = schedule_of(ops, options);
    const void *self = schedule.self;
    double want[STEPS], worst = self && unpack(data, name, want) ? 0 : INFINITY;
    const bool epochs = strstr(options, "epoch") != NULL;
    for (uint64_t k = 0; k < STEPS && worst < INFINITY; k++) {
        const pl_moment_t when = {.step = epochs ? 7 * k : k,
                                  .total_steps = epochs ? 7 * STEPS : STEPS,
                                  .epoch = epochs ? k : k / 7,
                                  .total_epochs = epochs ? STEPS : STEPS / 7 + 1,
                                  .epoch_steps = 7};
        worst = tap_larger(worst, fabs(ops->factor(self, &when) - want[k]));
    }
    ok(worst < 2e-9, "%s: 200 steps as PyTorch's (%.1g)", name, worst);
    pl_instance_release(&schedule);
}

typedef struct schedule_case {
    const char *name;
    const pl_scheduler_ops_t *ops;
    const char *options;
} schedule_case_t;

static void check_schedules(const schedule_case_t cases[], size_t count)
{
    json_t *d = data_load();
    if (!ok(d != NULL, "t/data/schedules.json can be read"))
        return;
    for (size_t k = 0; k < count; k++)
        check_schedule(d, cases[k].name, cases[k].ops, cases[k].options);
    json_decref(d);
}

static void schedules_over_the_run_equal_torch(void)
{
    static const schedule_case_t cases[] = {
        {"constant", &pl_constant_scheduler, "{\"warmup_steps\": 20}"},
        {"linear", &pl_linear_scheduler, "{\"min_lr_ratio\": 0.1}"},
        {"linear", &pl_linear_scheduler,
         "{\"min_lr_ratio\": 0.1, \"interval\": \"epoch\"}"},
        {"linear, warm-up", &pl_linear_scheduler,
         "{\"warmup_steps\": 30, \"min_lr_ratio\": 1e-9}"},
        {"cosine", &pl_cosine_scheduler, "{}"},
        {"cosine, warm-up", &pl_cosine_scheduler,
         "{\"warmup_steps\": 20, \"min_lr_ratio\": 0.1}"},
        {"polynomial", &pl_polynomial_scheduler, "{\"power\": 2.5}"},
        {"polynomial, warm-up", &pl_polynomial_scheduler, "{\"warmup_steps\": 50}"},
        {"one_cycle", &pl_one_cycle_scheduler, "{}"},
        {"one_cycle, linear", &pl_one_cycle_scheduler,
         "{\"pct_start\": 0.45, \"anneal_strategy\": \"linear\", "
         "\"div_factor\": 10, \"final_div_factor\": 100}"},
        {"one_cycle, three phases", &pl_one_cycle_scheduler, "{\"three_phase\": true}"},
        {"warmup_stable_decay", &pl_warmup_stable_decay_scheduler,
         "{\"warmup_steps\": 20, \"decay_steps\": 50, \"min_lr_ratio\": 0.1}"},
        {"warmup_stable_decay, cosine", &pl_warmup_stable_decay_scheduler,
         "{\"decay_steps\": 0.25, \"decay_shape\": \"cosine\"}"},
        {"warmup_stable_decay, sqrt", &pl_warmup_stable_decay_scheduler,
         "{\"decay_shape\": \"sqrt\"}"},
        {"ramp", &pl_ramp_scheduler,
         "{\"start_factor\": 0.25, \"end_factor\": 0.75, \"length\": 80}"},
        {"ramp", &pl_ramp_scheduler,
         "{\"start_factor\": 0.25, \"end_factor\": 0.75, \"length\": 0.4, "
         "\"interval\": \"epoch\"}"},
        {"ramp, cosine", &pl_ramp_scheduler,
         "{\"start_factor\": 0.5, \"length\": 0.75, "
         "\"shape\": \"cosine\"}"},
    };
    check_schedules(cases, sizeof cases / sizeof *cases);
}

/* Also where they are the optimizer's momentum. */
static void check_momentum(const json_t *data, const char *name,
                           const pl_scheduler_ops_t *ops, const char *options)
{
    pl_instance_t schedule = schedule_of(ops, options);
    const void *self = schedule.self;
    double want[STEPS], worst = self && unpack(data, name, want) ? 0 : INFINITY;
    for (uint64_t k = 0; k < STEPS && worst < INFINITY; k++) {
        const pl_moment_t when = {.step = k, .total_steps = STEPS};
        worst = tap_larger(worst, fabs(ops->momentum(self, &when) - want[k]));
    }
    ok(worst < 2e-9, "%s: 200 steps as PyTorch's (%.1g)", name, worst);
    pl_instance_release(&schedule);
}

static void a_cycle_of_the_momentum_equals_torch(void)
{
    const pl_scheduler_ops_t *cycle = &pl_one_cycle_scheduler;
    json_t *d = data_load();
    check_momentum(d, "one_cycle, momentum", cycle, "{}");
    check_momentum(d, "one_cycle, momentum, linear", cycle,
                   "{\"pct_start\": 0.45, \"anneal_strategy\": \"linear\", "
                   "\"base_momentum\": 0.5, \"max_momentum\": 0.75}");
    check_momentum(d, "one_cycle, momentum, three phases", cycle,
                   "{\"three_phase\": true}");
    void *self = training_component((const pl_component_t *)&pl_one_cycle_scheduler,
                                    "{\"cycle_momentum\": false}");
    const pl_moment_t when = {.step = 3, .total_steps = STEPS};
    ok(isnan(pl_one_cycle_scheduler.momentum(self, &when)), "unless it is not wanted");
    pl_free(self);
    json_decref(d);
}

/* The rate that comes of a schedule and an average; 5 steps are an epoch. */
static void check_annealing(const json_t *data, const char *name,
                            const pl_scheduler_ops_t *before, const char *options)
{
    const bool epochs = strstr(options, "step") == NULL;
    const uint64_t per_index = epochs ? 5 : 1;
    void *swa = training_component((const pl_component_t *)&pl_swa_averaging, options),
         *schedule = training_component((const pl_component_t *)before, "{}");
    double want[STEPS], worst = unpack(data, name, want) ? 0 : INFINITY, lr = 0;
    for (uint64_t k = 0; k < STEPS && worst < INFINITY; k++) {
        const pl_moment_t when = {.step = k * per_index,
                                  .total_steps = STEPS * per_index,
                                  .epoch = k * per_index / 5,
                                  .total_epochs = STEPS * per_index / 5,
                                  .epoch_steps = 5};
        pl_moment_t start = when;
        const double way = pl_swa_averaging.anneal(swa, &when, &start, &lr);
        const double scheduled = before->factor(schedule, &start);
        worst = tap_larger(worst, fabs(scheduled + (lr - scheduled) * way - want[k]));
    }
    ok(worst < 2e-9, "%s: 200 epochs or steps as PyTorch's (%.1g)", name, worst);
    pl_free(swa);
    pl_free(schedule);
}

static void the_rate_of_an_average_equals_torch(void)
{
    json_t *d = data_load();
    const pl_scheduler_ops_t *constant = &pl_constant_scheduler,
                             *cosine = &pl_cosine_scheduler;
    check_annealing(d, "swa", constant, "{\"swa_lrs\": 0.05}");
    check_annealing(d, "swa", constant, "{\"swa_lrs\": 0.05, \"start\": 160}");
    check_annealing(d, "swa, cosine before it", cosine,
                    "{\"swa_lrs\": 0.75, \"start\": 0.5, \"annealing_epochs\": 30}");
    check_annealing(d, "swa, linear", cosine,
                    "{\"swa_lrs\": 0.75, \"start\": 100, \"annealing_epochs\": 30, "
                    "\"annealing_strategy\": \"linear\", \"interval\": \"step\"}");
    check_annealing(d, "swa, at once", constant,
                    "{\"swa_lrs\": 2, \"annealing_epochs\": 0}");
    json_decref(d);
}

static void schedules_that_count_equal_torch(void)
{
    static const schedule_case_t cases[] = {
        {"step", &pl_step_scheduler,
         "{\"step_size\": 30, \"gamma\": 0.5, \"interval\": \"epoch\"}"},
        {"step, warm-up", &pl_step_scheduler,
         "{\"step_size\": 30, \"warmup_steps\": 20, \"interval\": \"step\"}"},
        {"multi_step", &pl_multi_step_scheduler,
         "{\"milestones\": [10, 70, 71, 150], \"gamma\": 0.3, "
         "\"interval\": \"epoch\"}"},
        {"exponential", &pl_exponential_scheduler,
         "{\"gamma\": 0.97, \"interval\": \"step\"}"},
        {"cosine_restarts", &pl_cosine_restarts_scheduler,
         "{\"t_0\": 30, \"min_lr_ratio\": 0.1, \"interval\": \"step\"}"},
        {"cosine_restarts, longer", &pl_cosine_restarts_scheduler,
         "{\"t_0\": 10, \"t_mult\": 2, \"interval\": \"epoch\"}"},
    };
    check_schedules(cases, sizeof cases / sizeof *cases);
}

static double factor_at(const pl_scheduler_ops_t *ops, const void *self, uint64_t step,
                        uint64_t total)
{
    return ops->factor(self, &(pl_moment_t){.step = step, .total_steps = total});
}

static void schedules_are_sensible_at_their_ends(void)
{
    const pl_scheduler_ops_t *cosine = &pl_cosine_scheduler;
    void *self = training_component((const pl_component_t *)cosine,
                                    "{\"warmup_steps\": 3, \"min_lr_ratio\": 0.1}");
    is_near(factor_at(cosine, self, 0, 100), 0.25, 1e-12,
            "the warm-up starts above zero");
    is_near(factor_at(cosine, self, 3, 100), 1, 1e-12, "and ends at one");
    is_near(factor_at(cosine, self, 100, 100), 0.1, 1e-12, "the fall ends at the floor");
    is_near(factor_at(cosine, self, 5000, 100), 0.1, 1e-12, "and stays there");
    is_near(factor_at(cosine, self, 5000, 0), 1, 1e-12,
            "without a known end nothing falls");
    is_near(factor_at(&pl_linear_scheduler, self, 2, 2), 0.75, 1e-12,
            "a warm-up longer than the run is gone through");
    is_near(factor_at(&pl_linear_scheduler, self, 9, 2), 0.1, 1e-12,
            "after which there is only the floor");
    pl_free(self);
    self = training_component((const pl_component_t *)&pl_constant_scheduler,
                              "{\"warmup_steps\": 9223372036854775807}");
    is_near(factor_at(&pl_constant_scheduler, self, 1, 0) * 0x1p62, 1, 1e-12,
            "a warm-up may be as long as numbers go");
    pl_free(self);
}

static void schedules_that_need_an_end_wait_for_one(void)
{
    const pl_scheduler_ops_t *cycle = &pl_one_cycle_scheduler,
                             *stable = &pl_warmup_stable_decay_scheduler,
                             *restarts = &pl_cosine_restarts_scheduler;
    void *self = training_component((const pl_component_t *)cycle, "{}");
    is_near(factor_at(cycle, self, 5000, 0), 1 / 25.0, 1e-12,
            "a cycle of unknown length stays at its start");
    is_near(factor_at(cycle, self, 0, 1), 1 / 25.0 / 1e4, 1e-12,
            "a cycle of one step is at its end");
    is_near(factor_at(cycle, self, 9, 2), 1 / 25.0 / 1e4, 1e-12,
            "and so is what comes after one");
    pl_free(self);
    self = training_component((const pl_component_t *)stable, "{}");
    is_near(factor_at(stable, self, 5000, 0), 1, 1e-12,
            "an end that is not known is not fallen to");
    is_near(factor_at(stable, self, 300, 200), 0, 1e-12, "and stays low after it");
    pl_free(self);
    self = training_component((const pl_component_t *)restarts,
                              "{\"t_0\": 9223372036854775807, \"t_mult\": 9, "
                              "\"interval\": \"step\"}");
    is_near(factor_at(restarts, self, UINT64_MAX, 0), 0.5, 0.5,
            "restarts may be as far apart as numbers go");
    pl_free(self);
}

/* ---- reduce_on_plateau ---- */

static const pl_scheduler_ops_t *const plateau = &pl_reduce_on_plateau_scheduler;

static double plateau_factor(const void *self)
{
    return factor_at(plateau, self, 0, 0);
}

static int show(void *self, double value, pl_error_t *err)
{
    char text[64];
    snprintf(text, sizeof text, "{\"val_loss\": %.17g}", value);
    return plateau->observe(self, text, err);
}

static void check_plateau(const json_t *data, const char *name, double sign,
                          const char *options)
{
    void *self = training_component((const pl_component_t *)plateau, options);
    double metrics[STEPS], want[STEPS], worst = 0;
    bool there = unpack(data, "metrics", metrics) && unpack(data, name, want);
    for (int k = 0; k < STEPS && there; k++) {
        there = show(self, sign * metrics[k], NULL) == PL_OK;
        worst = tap_larger(worst, fabs(plateau_factor(self) - want[k]));
        char *saved = plateau->save(self, NULL);           /* as if it had been resumed */
        void *next = training_component((const pl_component_t *)plateau, options);
        there = there && plateau->restore(next, saved, NULL) == PL_OK;
        pl_text_free(saved);
        pl_free(self);
        self = next;
    }
    ok(there && worst < 2e-9, "%s: 200 validations as PyTorch's (%.1g)", name, worst);
    pl_free(self);
}

static void plateaus_equal_torch_also_when_saved_each_time(void)
{
    json_t *d = data_load();
    check_plateau(d, "reduce_on_plateau", 1, "{\"factor\": 0.5, \"patience\": 5}");
    check_plateau(d, "reduce_on_plateau, more is better", 1,
                  "{\"mode\": \"max\", \"factor\": 0.9, \"patience\": 2}");
    check_plateau(d, "reduce_on_plateau, max", -1,
                  "{\"mode\": \"max\", \"factor\": 0.7, \"patience\": 3, "
                  "\"threshold\": 0.01, \"threshold_mode\": \"abs\", \"cooldown\": 4, "
                  "\"min_lr_ratio\": 0.05}");
    json_decref(d);
}

static void a_value_that_is_not_a_number_is_no_improvement(void)
{
    pl_error_t err = {0};
    void *self = training_component((const pl_component_t *)plateau,
                                    "{\"patience\": 0, \"warmup_steps\": 1}");
    is_near(plateau_factor(self), 0.5, 1e-12, "it has a warm-up as well");
    show(self, 3, NULL);
    plateau->observe(self, "{\"val_loss\": null}", NULL);
    is_near(plateau_factor(self), 0.05, 1e-12, "after a null it is reduced");
    is_int(plateau->observe(self, "{\"val_acc\": 1, \"val_los\": 3}", &err), PL_ENOTFOUND,
           "a metric that is not there");
    like(err.text, "no metric \"val_loss\": did you mean \"val_los\"", "is an error");
    is_near(plateau_factor(self), 0.05, 1e-12, "that changes nothing");
    is_int(plateau->restore(self, "{", &err), PL_EFORMAT,
           "nor does a text that is no state");
    is_near(plateau_factor(self), 0.05, 1e-12, "of a schedule");
    pl_free(self);
}

/* ---- schedules of schedules ---- */

/* A program's own: halves the rate with each metric that it sees. */
typedef struct halves {
    double seen;
} halves_t;

static double halves_factor(const void *self, const pl_moment_t *when)
{
    return pow(0.5, ((const halves_t *)self)->seen) + (double)when->step;
}

static int halves_observe(void *self, const char *metrics, pl_error_t *err)
{
    (void)metrics, (void)err;
    ((halves_t *)self)->seen++;
    return PL_OK;
}

static char *halves_save(const void *self, pl_error_t *err)
{
    (void)err;
    return pl_text("[%g]", ((const halves_t *)self)->seen);
}

static int halves_restore(void *self, const char *saved, pl_error_t *err)
{
    (void)err;
    ((halves_t *)self)->seen = strtod(saved + 1, NULL);
    return PL_OK;
}

static const pl_scheduler_ops_t halves = {.name = "halves",
                                          .size = sizeof(halves_t),
                                          .factor = halves_factor,
                                          .observe = halves_observe,
                                          .save = halves_save,
                                          .restore = halves_restore};

#define STEP_15 "{\"name\": \"step\", \"step_size\": 15, \"gamma\": 0.5, \"interval\": "

static void sequences_equal_torch(void)
{
    static const schedule_case_t cases[] = {
        {"ramp, constant", &pl_sequential_scheduler,
         "{\"schedules\": [{\"name\": \"ramp\", \"start_factor\": 0.3, "
         "\"end_factor\": 0.3}, \"constant\"], \"milestones\": [50]}"},
        {"sequential", &pl_sequential_scheduler,
         "{\"schedules\": [{\"name\": \"constant\", \"warmup_steps\": 30}, "
         "{\"name\": \"cosine\", \"min_lr_ratio\": 0.1}, " STEP_15
         "\"step\"}], \"milestones\": [30, 130]}"},
        {"sequential", &pl_sequential_scheduler,
         "{\"schedules\": [{\"name\": \"ramp\", \"start_factor\": "
         "0.0322580645161, \"interval\": \"epoch\"}, {\"name\": \"cosine\", "
         "\"min_lr_ratio\": 0.1, \"interval\": \"epoch\"}, " STEP_15
         "\"epoch\"}], \"milestones\": [30, 130], \"interval\": \"epoch\"}"},
        {"sequential, nested", &pl_sequential_scheduler,
         "{\"schedules\": [{\"name\": \"exponential\", \"gamma\": 0.95, "
         "\"interval\": \"step\"}, {\"name\": \"sequential\", \"schedules\": "
         "[{\"name\": \"polynomial\", \"power\": 2}, {\"name\": "
         "\"cosine_restarts\", \"t_0\": 10, \"t_mult\": 2, \"interval\": "
         "\"step\"}], \"milestones\": [60]}], \"milestones\": [40]}"},
        {"chained", &pl_chained_scheduler,
         "{\"schedules\": [{\"name\": \"ramp\", \"length\": 40}, {\"name\": "
         "\"exponential\", \"gamma\": 0.98, \"interval\": \"step\"}, {\"name\": "
         "\"step\", \"step_size\": 60, \"gamma\": 0.5, \"interval\": "
         "\"step\"}]}"},
        {"chained, multi_step", &pl_chained_scheduler,
         "{\"schedules\": [{\"name\": \"multi_step\", \"milestones\": [50, 120], "
         "\"gamma\": 0.3, \"interval\": \"step\"}, \"linear\"]}"},
    };
    check_schedules(cases, sizeof cases / sizeof *cases);
}

static void a_sequence_keeps_the_momentum_between_cycles(void)
{
    json_t *d = data_load();
    check_momentum(d, "sequential, momentum", &pl_sequential_scheduler,
                   "{\"schedules\": [{\"name\": \"exponential\", \"gamma\": 0.97, "
                   "\"interval\": \"step\"}, \"one_cycle\", \"constant\"], "
                   "\"milestones\": [50, 150]}");
    check_momentum(d, "one_cycle, momentum", &pl_chained_scheduler,
                   "{\"schedules\": [\"one_cycle\", \"cosine\"]}");
    json_decref(d);
    pl_instance_t none = schedule_of(&pl_sequential_scheduler,
                                     "{\"schedules\": [\"constant\", \"linear\"], "
                                     "\"milestones\": [5]}");
    const pl_moment_t when = {.step = 7, .total_steps = STEPS};
    ok(isnan(pl_sequential_scheduler.momentum(none.self, &when)),
       "without a cycle the option applies");
    pl_instance_release(&none);
}

static void a_sequence_saves_the_state_of_each_schedule(void)
{
    static const char *const options =
        "{\"schedules\": [\"halves\", {\"name\": \"chained\", \"schedules\": "
        "[\"constant\", {\"name\": \"reduce_on_plateau\", \"patience\": 0}]}], "
        "\"milestones\": [10]}";
    const pl_scheduler_ops_t *ops = &pl_sequential_scheduler;
    pl_error_t err = {0};
    pl_instance_t one = schedule_of(ops, options), two = schedule_of(ops, options);
    for (int k = 0; k < 3; k++)
        is_int(ops->observe(one.self, "{\"val_loss\": 1}", &err), PL_OK, "%s",
               k ? "another metric" : "a metric");
    char *saved = ops->save(one.self, &err);
    is_text(ops->monitor(one.self), "val_loss", "which they follow");
    is_int(ops->restore(two.self, saved, &err), PL_OK, "restored from %s", saved);
    pl_text_free(saved);
    is_near(factor_at(ops, two.self, 2, 100), 0.125 + 2, 1e-12, "the first counted on");
    is_near(factor_at(ops, two.self, 10, 100), 0.01, 1e-12, "and so did the second");
    is_int(ops->restore(two.self, "[[1]]", &err), PL_EFORMAT, "fewer states");
    like(err.text, "states of 1 schedules of a sequence, and the run has 2", "%s",
         err.text);
    is_int(ops->restore(two.self, "[[1], [null, null]]", &err), PL_EFORMAT,
           "or one that is missing");
    like(err.text, "no state of schedule \"reduce_on_plateau\"", "%s", err.text);
    pl_instance_release(&one);
    pl_instance_release(&two);
}

static void sequence_is_refused(const char *scheduler, const char *why)
{
    char text[1024];
    pl_error_t err = {0};
    snprintf(text, sizeof text, "{\"scheduler\": %s}", scheduler);
    pl_options_t *o = pl_options_parse(text, "run", &err);
    ok(o && pl_options_check(o, &err) != PL_OK, "%s is refused", scheduler);
    like(err.text, why, "%s", err.text);
    pl_options_free(o);
}

static void impossible_sequences_are_refused(void)
{
#define LIST "{\"name\": \"sequential\", \"schedules\": "
    sequence_is_refused(LIST "[\"constant\", \"linear\"]}",
                        "\"scheduler\" needs \"milestones\"");
    sequence_is_refused(LIST "[\"constant\", \"linear\"], \"milestones\": [1, 2]}",
                        "\"scheduler.milestones\": there are 2, and 2 schedules need 1");
    sequence_is_refused(LIST "[\"constant\", \"linear\", \"cosine\"], "
                             "\"milestones\": [5, 5]}",
                        "\"scheduler.milestones\": they must rise, and 5 comes after 5");
    sequence_is_refused(LIST "[\"constant\", \"linaer\"], \"milestones\": [1]}",
                        "\"scheduler.schedules.1\": .*linear");
    sequence_is_refused(LIST "[\"constant\", {\"name\": \"step\"}], "
                             "\"milestones\": [1]}",
                        "\"scheduler.schedules.1\" needs \"step_size\"");
    sequence_is_refused(LIST "[], \"milestones\": []}", "takes a list of 1 to 8");
    sequence_is_refused("{\"name\": \"chained\", \"schedules\": "
                        "[\"reduce_on_plateau\", {\"name\": \"reduce_on_plateau\", "
                        "\"monitor\": \"val_acc\"}]}",
                        "\"scheduler.schedules.1\": it follows \"val_acc\", and a "
                        "schedule before it \"val_loss\"");
    sequence_is_refused("\"chained\"", "needs \"schedules\": schedules whose factors");
}

int main(void)
{
    static const pl_registration_t own[] = {{"scheduler", &halves}, PL_REGISTRATIONS_END};
    pl_register(pl_optimizer_components, NULL);
    pl_register(own, NULL);
    run(sequences_equal_torch);
    run(a_sequence_keeps_the_momentum_between_cycles);
    run(a_sequence_saves_the_state_of_each_schedule);
    run(impossible_sequences_are_refused);
    run(schedules_over_the_run_equal_torch);
    run(a_cycle_of_the_momentum_equals_torch);
    run(the_rate_of_an_average_equals_torch);
    run(schedules_that_count_equal_torch);
    run(schedules_are_sensible_at_their_ends);
    run(schedules_that_need_an_end_wait_for_one);
    run(plateaus_equal_torch_also_when_saved_each_time);
    run(a_value_that_is_not_a_number_is_no_improvement);
    return tap_done();
}
