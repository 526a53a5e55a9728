/* manual_steps.c - tests of actors/api/manual_steps.c, actors/loops/manual_objectives.c
 * and strategies/replica/gradients.c: a program that takes the optimizer steps itself */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "manual_program.h"
#include "tap.h"
#include "two_sides.h"

/* ---- a module of two sides, of which the second looks at the first ---- */

/* Dropout shows the number of a step. */
static void second_objective(pl_graph_t *g, const void *self)
{
    (void)self;
    pl_node_t hidden = pl_dropout(g, two_sides_second(g), 0.25);
    pl_loss(g, pl_cross_entropy(g, hidden, pl_input(g, "y"), NULL));
}

static const pl_module_objective_t pair_objectives[] = {
    {.name = "first", .parameters = "a.*", .describe = two_sides_first_objective},
    {.name = "second",
     .parameters = "b.*",
     .describe = second_objective,
     .every_n_steps = two_sides_every},
    PL_OBJECTIVES_END,
};

static const pl_module_ops_t pair = {.name = "pair",
                                     .help = "",
                                     .size = sizeof(two_sides_t),
                                     .options = two_sides_options,
                                     .step = two_sides_step,
                                     .objectives = pair_objectives};

#define PAIR(every) "{\"name\": \"pair\", \"every\": " every "}"
#define ADAM "{\"name\": \"adamw\", \"lr\": 0.02}"
#define BOTH "{\"first\": " SGD ", \"second\": " ADAM "}"
#define CLIPPED "\"gradient_clip_val\": 0.5, \"max_steps\": 5"

/* ---- tests ---- */

static answer_t automatic(const char *module, const char *optimizer, const char *trainer)
{
    if (program_begin(module, optimizer, trainer))
        for (int k = 0; k < STEPS; k++)
            program_train(k * BATCH, BATCH);
    return program_end();
}

static void steps_of_the_program_give_the_bits_of_automatic_ones(void)
{
    const answer_t whole = automatic(MLP, ADAM, CLIPPED);
    answer_t last = {0};
    if (!program_begin(MLP, ADAM, CLIPPED))
        return;
    for (int k = 0; k < STEPS; k++) {
        const answer_t computed = program_backward(NULL, k * BATCH, BATCH);
        ok(isfinite(computed.loss) && isnan(computed.norm), "a loss, and no step: %s",
           computed.error.text);
        is_int((long)computed.step, k, "gradients are no step");
        last = program_step(NULL);
        ok(last.loss == computed.loss && last.norm > 0, "the step has loss and norm");
        is_int((long)last.step, k + 1, "and counts");
    }
    const answer_t closed = program_end();
    ok(program_same(&whole, &closed), "the weights are those of automatic steps");
}

static void objectives_are_stepped_one_by_one(void)
{
    const answer_t whole = automatic(PAIR("1"), BOTH, CLIPPED);
    if (!program_begin(PAIR("1"), BOTH, CLIPPED))
        return;
    for (int k = 0; k < STEPS; k++) {
        program_backward("first", k * BATCH, BATCH);
        is_int((long)program_step("first").step, k + 1,
               "the first objective begins a step");
        program_backward("second", k * BATCH, BATCH);
        is_int((long)program_step("second").step, k + 1, "the second has the same");
    }
    const answer_t closed = program_end();
    ok(program_same(&whole, &closed), "as in automatic steps, with dropout");
}

static void an_objective_may_be_stepped_less_often(void)
{
    const answer_t whole = automatic(PAIR("2"), BOTH, CLIPPED);
    program_begin(PAIR("2"), BOTH, CLIPPED);
    for (int k = 0; k < STEPS; k++) {
        program_backward("first", k * BATCH, BATCH);
        program_step("first");
        if (k % 2) {
            program_backward("second", k * BATCH, BATCH);
            program_step("second");
        }
    }
    const answer_t closed = program_end();
    ok(program_same(&whole, &closed), "the same as every_n_steps");
}

/* Both objectives' gradients are there at the same time. */
static void objectives_keep_gradients_of_their_own(void)
{
    answer_t apart, together;
    if (!program_begin(PAIR("1"), BOTH, ""))
        return;
    program_backward("second", 0, BATCH);
    program_step("second");
    program_backward("first", 0, BATCH);
    program_step("first");
    apart = program_end();
    program_begin(PAIR("1"), BOTH, "");
    program_backward("first", 0, BATCH);
    program_backward("second", 0, BATCH);
    program_step("second");
    program_step("first");
    together = program_end();
    ok(program_same(&apart, &together),
       "computed first and stepped last, with equal result");
}

static void gradients_of_several_batches_add_up(void)
{
    answer_t whole, halves;
    if (!program_begin(MLP, SGD, ""))
        return;
    program_backward(NULL, 0, BATCH);
    whole = program_gradients(NULL);
    program_step(NULL);
    program_end();
    program_begin(MLP, SGD, "");
    program_backward(NULL, 0, 5);
    is_text(program_backward(NULL, 5, 3).error.text, "",
            "a second batch of another size");
    halves = program_gradients(NULL);
    is_int(halves.count, 4, "gradients of all parameters");
    for (int k = 0; k < halves.count; k++)
        for (int i = 0; i < 6; i++)
            is_near((double)halves.data[k][i], (double)whole.data[k][i], 1e-6,
                    "%s is the mean over all samples", halves.name[k]);
    program_step(NULL);
    is_text(program_backward(NULL, 8, 8).error.text, "", "the next begins from nothing");
    program_step(NULL);
    program_end();
}

/* The gradient of a linear layer's bias is the mean of probability - target. */
static void gradients_are_means_over_samples(void)
{
    if (!program_begin(PAIR("1"), BOTH, ""))
        return;
    program_backward("first", 0, 6);
    const answer_t read = program_gradients("first");
    is_int(read.count, 2, "those of the objective alone");
    double sum = 0, most = 0;
    for (int k = 0; k < read.count; k++)
        for (int i = 0; i < RIG_CLASSES && strstr(read.name[k], "bias"); i++) {
            sum += (double)read.data[k][i];
            most = fmax(most, fabs((double)read.data[k][i]));
        }
    is_near(sum, 0, 1e-6, "probabilities and targets have the same sum");
    ok(most > 1e-3 && most < 1, "and differ: %g", most);
    program_end();
}

static void a_program_replaces_gradients(void)
{
    if (!program_begin(PAIR("1"), "{\"name\": \"sgd\", \"lr\": 0.5}", ""))
        return;
    program_backward("first", 0, 6);
    answer_t read = program_gradients("first");
    const answer_t before = read;
    is_text(program_set("first", &read).error.text, "", "they are set as they were");
    const answer_t again = program_gradients("first");
    for (int k = 0; k < read.count; k++)
        for (int i = 0; i < RIG_CLASSES; i++)
            is_near((double)again.data[k][i], (double)before.data[k][i], 1e-7,
                    "and read again");
    for (int k = 0; k < read.count; k++)
        for (int i = 0; i < ELEMENTS; i++)
            read.data[k][i] = 0;
    read.count = 1;
    char kept[64];
    snprintf(kept, sizeof kept, "%s", read.name[0]);
    program_set("first", &read);
    const answer_t stepped = program_step("first");
    ok(stepped.norm > 0 && stepped.loss > 0, "the other parameter's gradient is left: %g",
       stepped.norm);
    const answer_t zero = program_end();
    program_begin(PAIR("1"), "{\"name\": \"sgd\", \"lr\": 0.5}", "");
    const answer_t first = program_end();
    for (int k = 0; k < zero.count; k++) {
        const bool moved = memcmp(zero.data[k], first.data[k], sizeof zero.data[k]);
        if (!strncmp(zero.name[k], "a.", 2))
            ok(moved == (strcmp(zero.name[k], kept) != 0), "%s %s", zero.name[k],
               moved ? "moves" : "stays");
    }
}

static void calls_in_a_wrong_order_are_refused(void)
{
    answer_t a = {0};
    if (!program_begin(PAIR("1"), BOTH, ""))
        return;
    like(program_step("first").error.text,
         "no gradients for a step: call pl_loop_backward", "a step without gradients");
    like(program_gradients("second").error.text, "has no gradients",
         "and a look at them");
    program_backward("first", 0, BATCH);
    like(program_train(0, BATCH).error.text,
         "gradients of objective 0 .* wait for their step",
         "a whole step would replace them");
    is_text(program_step("first").error.text, "", "the gradients are still there");
    is_text(program_train(0, BATCH).error.text, "", "then a whole step follows");
    like(program_backward("frist", 0, BATCH).error.text,
         "no objective \"frist\": .*first", "an objective that the module lacks");
    like(program_backward(NULL, 0, BATCH).error.text,
         "several objectives: name one of first, "
         "second",
         "or none");
    is_int(pl_loop_backward(loop, "first", NULL, program_take, &a, &err), PL_EINVAL,
           "no samples: %s", err.text);
    like(program_backward("first", 0, BATCH + 1).error.text, "give 1 to 8 samples",
         "too many samples");
    program_backward("first", 0, BATCH);
    answer_t read = program_gradients("first");
    snprintf(read.name[0], sizeof read.name[0], "b.fc.bias");
    like(program_set("first", &read).error.text, "trains no parameter \"b.fc.bias\"",
         "a gradient of the other objective");
    read = program_gradients("first");
    read.shape[1].dim[0]++;
    like(program_set("first", &read).error.text, "has shape .*, but the parameter has",
         "or of another shape");
    const pl_result_tensor_t nameless = {.name = NULL};
    is_int(pl_loop_set_gradients(loop, "first", &nameless, 1, program_take, &a, &err),
           PL_EINVAL, "or without a name: %s", err.text);
    is_int(pl_loop_set_gradients(loop, "first", NULL, -1, program_take, &a, &err),
           PL_EINVAL, "or a negative number of them: %s", err.text);
    is_int(pl_loop_step(NULL, "first", program_take, &a, &err), PL_EINVAL,
           "or no loop: %s", err.text);
    is_text(program_step("first").error.text, "", "after all that a step is possible");
    program_end();
    program_begin(MLP, SGD, "");
    like(program_step("first").error.text,
         "one objective, without a name, and not \"first\"",
         "a module without objectives has no names");
    program_end();
    program_begin(MLP, SGD, "\"accumulate_grad_batches\": 2");
    program_train(0, BATCH);
    like(program_backward(NULL, 0, BATCH).error.text, "1 of 2 batches of a step",
         "in the middle of an automatic step");
    program_end();
}

static void a_step_that_is_not_finite_drops_its_gradients_alone(void)
{
    const float good = x[0][0];
    if (!program_begin(PAIR("1"), BOTH, ""))
        return;
    program_backward("second", BATCH, BATCH);
    x[0][0] = NAN;
    program_backward("first", 0, BATCH);
    x[0][0] = good;
    like(program_step("first").error.text, "step 1: first: the loss is not finite",
         "the step fails");
    like(program_step("first").error.text, "no gradients", "and its gradients are gone");
    const answer_t other = program_step("second");
    is_text(other.error.text, "", "those of the other objective are not");
    is_int((long)other.step, 1, "and make a step");
    program_end();
    program_begin(PAIR("1"), BOTH, "\"nan_policy\": \"skip\"");
    x[0][0] = NAN;
    program_backward("first", 0, BATCH);
    x[0][0] = good;
    is_int((long)program_step("first").step, 1, "a skipped step counts");
    like(program_step("first").error.text, "no gradients",
         "and has used up its gradients");
    program_end();
}

/* Several requests are under way when one of them fails: those behind it are sent
 * again. */
static void requests_behind_a_failed_step_are_made(void)
{
    const pl_arrays_t samples = program_batch(0, BATCH);
    const float good = x[0][0];
    answer_t a[6] = {{0}};
    if (!program_begin(PAIR("1"), BOTH, ""))
        return;
    program_backward("second", BATCH, BATCH);
    x[0][0] = NAN;
    pl_loop_backward(loop, "first", &samples, program_take, &a[0], &err);
    x[0][0] = good;
    pl_loop_step(loop, "first", program_take, &a[1], &err);
    pl_loop_step(loop, "second", program_take, &a[2], &err);
    pl_loop_backward(loop, "first", &samples, program_take, &a[3], &err);
    pl_loop_backward(loop, "first", &samples, program_take, &a[4], &err);
    pl_loop_step(loop, "first", program_take, &a[5], &err);
    program_wait(PL_OK, &a[5]);
    is_int(a[1].error.code, PL_ENAN, "the step fails: %s", a[1].error.text);
    for (int k = 2; k < 6; k++)
        is_text(a[k].error.text, "", "request %d is made", k);
    is_int((long)a[2].step, 1, "the other objective's step is the first");
    is_int((long)a[5].step, 1, "and so is this one's");
    program_end();
}

int main(void)
{
    const pl_registration_t components[] = {{"module", &pair}, PL_REGISTRATIONS_END};
    rig_init(components);
    run(steps_of_the_program_give_the_bits_of_automatic_ones);
    run(objectives_are_stepped_one_by_one);
    run(an_objective_may_be_stepped_less_often);
    run(objectives_keep_gradients_of_their_own);
    run(gradients_of_several_batches_add_up);
    run(gradients_are_means_over_samples);
    run(a_program_replaces_gradients);
    run(calls_in_a_wrong_order_are_refused);
    run(a_step_that_is_not_finite_drops_its_gradients_alone);
    run(requests_behind_a_failed_step_are_made);
    return tap_done();
}
