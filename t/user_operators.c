/* user_operators.c - tests of operators that are registered by name, the example's among
 * them */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cpu_rig.h"
#include "rig.h"
#include "sample_operator.h"
#include "tap.h"

const pl_registration_t *swish_plugin(void);

/* ---- The example ---- */

/* p: the slope. */
static pl_node_t build_swish(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = pl_param(g, "a", c->shape[0], pl_zeros());
    return pl_apply(g, "swish", &x, 1, &c->p);
}

static operator_case_t swish_case(pl_shape_t shape)
{
    return (operator_case_t){.name = "swish",
                             .build = build_swish,
                             .params = 1,
                             .shape = {shape},
                             .low = -2,
                             .high = 2,
                             .p = 1.5};
}

static bool compute(operator_run_t *run, int threads, device_results_t *to)
{
    cpu_rig_t rig;
    bool done = cpu_rig_open(&rig, "portable", threads)
                && cpu_run(&rig, run, to) == PL_OK;
    if (!done)
        tap_diag("%s", rig.err.text);
    cpu_rig_close(&rig);
    return done;
}

/* The loss with one parameter moved by h, in float32 as the device computes it. */
static double loss_beside(operator_run_t *run, int64_t i, double h)
{
    device_results_t got = {0};
    run->region[PL_REGION_PARAMS][i] += h;
    double loss = compute(run, 1, &got) ? got.metrics[0][0] : NAN;
    run->region[PL_REGION_PARAMS][i] -= h;
    device_results_release(&got);
    return loss;
}

static void the_example_has_the_gradient_of_finite_differences(void)
{
    const operator_case_t swish = swish_case(PL_SHAPE(3, 5));
    const double h = 0x1p-7;
    operator_run_t run;
    device_results_t got = {0};
    if (!ok(operator_run_init(&run, &swish, NULL) == PL_OK, "it can be described"))
        return;
    ok(compute(&run, 1, &got), "and computed");
    for (int i = 0; i < 15; i++) {
        double slope = (loss_beside(&run, i, h) - loss_beside(&run, i, -h)) / (2 * h);
        is_near(got.region[PL_REGION_GRADS][i], slope, 1e-3, "element %d", i);
    }
    device_results_release(&got);
    operator_run_release(&run);
}

static void the_example_computes_its_formula(void)
{
    const operator_case_t swish = swish_case(PL_SHAPE(40));
    operator_run_t run;
    device_results_t got = {0};
    double worst = 0;
    if (ok(operator_run_init(&run, &swish, NULL) == PL_OK && compute(&run, 1, &got),
           "it is computed"))
        for (int i = 0; i < 40; i++) {
            double x = (double)(float)run.region[PL_REGION_PARAMS][i];
            worst = fmax(worst, fabs(((float *)got.output)[i] - x / (1 + exp(-1.5 * x))));
        }
    ok(worst < 1e-6, "off by %g at most", worst);
    device_results_release(&got);
    operator_run_release(&run);
}

static void any_number_of_threads_gives_the_same_bits(void)
{
    const operator_case_t swish = swish_case(PL_SHAPE(300, 501));
    operator_run_t run;
    device_results_t one = {0}, two = {0}, again = {0};
    if (!ok(operator_run_init(&run, &swish, NULL) == PL_OK, "it can be described"))
        return;
    if (ok(compute(&run, 1, &one) && compute(&run, 3, &two) && compute(&run, 3, &again),
           "one thread, three, three again")) {
        ok(!memcmp(one.output, two.output, one.output_bytes),
           "three give what one gives");
        ok(device_results_same(&two, &again), "and the same again");
    }
    device_results_release(&one);
    device_results_release(&two);
    device_results_release(&again);
    operator_run_release(&run);
}

static void a_module_with_it_trains_and_gives_the_same_bits_twice(void)
{
    rig_result_t *kept[2] = {NULL, NULL};
    for (int k = 0; k < 2; k++) {
        rig_t *rig = rig_new(.accelerator = "cpu", .module = "\"swish\"",
                             .optimizer = "{\"name\": \"adamw\", \"lr\": 0.01}",
                             .trainer = "\"max_epochs\": 15");
        kept[k] = rig ? rig_keep(rig_fit(rig)) : NULL;
        rig_free(&rig);
    }
    if (!ok(kept[0] && kept[1], "two runs"))
        return;
    is_text(kept[0]->status, "ok", "it trains: %s", kept[0]->error.text);
    ok(rig_metric(kept[0], "train_acc") > 0.9, "and learns, to %g",
       rig_metric(kept[0], "train_acc"));
    ok(rig_same_bits(kept[0], kept[1]), "with the same bits");
    rig_result_free(kept[0]);
    rig_result_free(kept[1]);
}

static void an_accelerator_without_its_kernel_says_so(void)
{
    rig_t *rig = rig_new(.accelerator = "fake", .module = "\"swish\"");
    const rig_result_t *result = rig_fit(rig);
    is_int(result->error.code, PL_EUNSUPPORTED, "before anything is trained");
    like(result->error.text,
         "operator \"swish\" has no kernel for the accelerator \"reference\"",
         "by name: %s", result->error.text);
    is_int(result->global_step, 0, "and no step was done");
    rig_free(&rig);
}

/* ---- Mistakes ---- */

static void gradient_of_the_input_only(pl_graph_t *g, const pl_use_t *use, pl_node_t dy,
                                       pl_node_t dx[])
{
    (void)use;
    dx[0] = pl_sum(g, dy, NULL, 0, false);
}

static const pl_kernel_t none[] = {PL_KERNELS_END};
static const pl_operator_ops_t wrong = {.name = "wrong",
                                        .inputs = 1,
                                        .kernels = none,
                                        .gradient = gradient_of_the_input_only},
                               endless = {.name = "endless", .inputs = 1},
                               alike = {.name = "alike", .inputs = 2};

static pl_graph_t *graph_new(pl_model_t **model)
{
    static const pl_field_t field = {.name = "i", .dtype = PL_I64};
    *model = pl_model_new(NULL);
    return pl_graph_new(*model, PL_TRAIN, &field, 1, 4, NULL);
}

/* What describing a loss of the operator applied to parameters of these shapes says. */
static void says(const char *name, int count, pl_shape_t a, pl_shape_t b,
                 const char *pattern)
{
    pl_model_t *model;
    pl_error_t err = {0};
    pl_graph_t *g = graph_new(&model);
    pl_node_t x[2] = {pl_param(g, "a", a, pl_zeros()), pl_param(g, "b", b, pl_zeros())};
    pl_scope(g, "here");
    pl_node_t y = pl_apply(g, name, x, count, NULL);
    pl_scope_end(g);
    pl_loss(g, pl_pair(pl_sum(g, y, NULL, 0, false), pl_scalar(g, 1)));
    ok(pl_graph_gradients(g, 1, false, &err) < 0, "refused");
    like(err.text, pattern, "%s", err.text);
    pl_graph_free(g);
    pl_model_free(model);
}

static void mistakes_in_using_one_are_named(void)
{
    const pl_shape_t s = PL_SHAPE(2, 3), t = PL_SHAPE(4);
    says("swosh", 1, s, t,
         "here: there is no operator \"swosh\": did you mean \"swish\"");
    says("swish", 2, s, t, "here: swish takes 1 inputs, got 2");
    says("gate", 2, s, t, "here: gate: takes x \\[..., C\\] and w \\[C\\]");
    says("alike", 2, s, t,
         "here: alike takes inputs of one shape, got \\[2, 3\\] and "
         "\\[4\\]");
}

static void mistakes_in_writing_one_are_named(void)
{
    const pl_shape_t s = PL_SHAPE(2, 3);
    says("wrong", 1, s, s,
         "here: wrong: the gradient of input 0 is \\[\\], the input "
         "\\[2, 3\\]");
    says("endless", 1, s, s, "here: operator \"endless\" has no gradient");
}

static void indices_are_not_taken(void)
{
    pl_model_t *model;
    pl_error_t err = {0};
    pl_graph_t *g = graph_new(&model);
    pl_node_t x = pl_input(g, "i");
    pl_apply(g, "swish", &x, 1, NULL);
    ok(pl_graph_check(g, &err) < 0, "refused");
    like(err.text, "swish takes float32, got int64 \\[4\\]", "%s", err.text);
    pl_graph_free(g);
    pl_model_free(model);
}

int main(void)
{
    static const pl_registration_t components[] = {{"operator", &sample_gate},
                                                   {"operator", &wrong},
                                                   {"operator", &endless},
                                                   {"operator", &alike},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    pl_register(swish_plugin(), NULL);
    run(the_example_has_the_gradient_of_finite_differences);
    run(the_example_computes_its_formula);
    run(any_number_of_threads_gives_the_same_bits);
    run(a_module_with_it_trains_and_gives_the_same_bits_twice);
    run(an_accelerator_without_its_kernel_says_so);
    run(mistakes_in_using_one_are_named);
    run(mistakes_in_writing_one_are_named);
    run(indices_are_not_taken);
    return tap_done();
}
