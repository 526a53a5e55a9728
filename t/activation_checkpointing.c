/* activation_checkpointing.c - tests of pl_checkpoint(): a step that computes values
 * again gives the same bits, and needs less memory */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/random.h"
#include "cpu_step.h"
#include "tap.h"
#include "tensor/precision.h"

enum { BATCH = CPU_STEP_BATCH, WIDTH = CPU_STEP_WIDTH };

static const pl_field_t fields[] = {{"x", PL_F32, {1, {WIDTH}}}};

/* ---- Models, with scopes or without ---- */

static bool marks;                                /* the models have their scopes */

static void begin(pl_graph_t *g)
{
    if (marks)
        pl_checkpoint(g);
}

static void end(pl_graph_t *g)
{
    if (marks)
        pl_checkpoint_end(g);
}

static pl_node_t layers(pl_graph_t *g, const char *name, pl_node_t x, int count)
{
    pl_scope(g, "%s", name);
    for (int k = 0; k < count; k++) {
        char layer[16];
        snprintf(layer, sizeof layer, "%d", k);
        x = pl_tanh(g, pl_gelu(g, pl_linear(g, layer, x, WIDTH)));
    }
    pl_scope_end(g);
    return x;
}

static void finish(pl_graph_t *g, pl_node_t x)
{
    pl_loss(g, pl_pair(pl_sum(g, pl_mul(g, x, x), NULL, 0, false), pl_scalar(g, BATCH)));
}

static void deep(pl_graph_t *g)
{
    pl_node_t x = pl_input(g, "x");
    for (int k = 0; k < 6; k++) {
        char name[16];
        snprintf(name, sizeof name, "h%d", k);
        begin(g);
        x = layers(g, name, x, 4);
        end(g);
    }
    finish(g, x);
}

static void with_dropout(pl_graph_t *g)
{
    pl_node_t x = pl_input(g, "x");
    begin(g);
    x = pl_dropout(g, layers(g, "a", x, 1), 0.3);
    x = pl_dropout(g, layers(g, "b", x, 1), 0.5);
    x = pl_mul(g, x, pl_randn(g, PL_SHAPE(BATCH, WIDTH)));
    x = layers(g, "c", x, 1);
    end(g);
    finish(g, x);
}

static void with_batch_norm(pl_graph_t *g)
{
    pl_node_t x = pl_reshape(g, pl_input(g, "x"), PL_SHAPE(BATCH, 1, 8, 8));
    const pl_convolution_options_t same = {.windows.kernel = {3}, .same = true};
    for (int k = 0; k < 2; k++) {
        pl_scope(g, "%d", k);
        begin(g);
        x = pl_conv(g, "conv", x, 6, &same);
        x = pl_relu(g, pl_batch_norm(g, "bn", x, 0.1, 1e-5));
        x = pl_max_pool2d(g, pl_relu(g, pl_conv(g, "conv2", x, 6, &same)), 2, 2, 0);
        end(g);
        pl_scope_end(g);
    }
    finish(g, x);
}

static void with_attention(pl_graph_t *g)
{
    pl_node_t x = pl_reshape(g, pl_input(g, "x"), PL_SHAPE(BATCH, 4, WIDTH / 4));
    for (int k = 0; k < 2; k++) {
        pl_scope(g, "%d", k);
        begin(g);
        pl_node_t y = pl_layer_norm(g, "ln", x, 1e-5);
        pl_node_t qkv = pl_linear(g, "qkv", y, 3 * WIDTH / 4), part[3];
        for (int i = 0; i < 3; i++) {
            part[i] = pl_slice(g, qkv, 2, i * WIDTH / 4, (i + 1) * WIDTH / 4);
            part[i] = pl_reshape(g, part[i], PL_SHAPE(BATCH, 4, 2, WIDTH / 8));
            part[i] = pl_permute(g, part[i], (int[]){0, 2, 1, 3});
        }
        y = pl_attention(g, part[0], part[1], part[2],
                         &(pl_attention_options_t){.causal = true});
        y = pl_permute(g, y, (int[]){0, 2, 1, 3});
        x = pl_add(g, x, pl_reshape(g, y, PL_SHAPE(BATCH, 4, WIDTH / 4)));
        end(g);
        pl_scope_end(g);
    }
    finish(g, x);
}

/* The inner scopes are part of the outer one; the empty ones have no effect. */
static void nested_and_empty(pl_graph_t *g)
{
    pl_node_t x = pl_input(g, "x");
    begin(g);
    end(g);
    begin(g);
    x = layers(g, "a", x, 2);
    begin(g);
    begin(g);
    end(g);
    x = layers(g, "b", x, 2);
    end(g);
    x = layers(g, "c", x, 2);
    end(g);
    begin(g);
    end(g);
    finish(g, x);
}

/* One scope around all of it, the loss and a logged value, too. */
static void whole(pl_graph_t *g)
{
    begin(g);
    pl_node_t x = layers(g, "a", pl_input(g, "x"), 3);
    pl_log(g, "mean", pl_pair(pl_sum(g, x, NULL, 0, false), pl_scalar(g, BATCH)),
           PL_ON_EPOCH);
    finish(g, layers(g, "b", x, 2));
    end(g);
}

/* A value in the middle is read outside, and a parameter twice in one scope. */
static void read_outside(pl_graph_t *g)
{
    pl_node_t x = pl_input(g, "x");
    begin(g);
    pl_node_t y = layers(g, "a", x, 2), z = layers(g, "a", y, 2);
    end(g);
    finish(g, pl_mul(g, pl_sigmoid(g, y), z));
}

/* Gradients read the positions of a pool and not its result, and a row's statistics. */
static void second_results(pl_graph_t *g)
{
    pl_node_t x = pl_tanh(g, pl_reshape(g, pl_input(g, "x"), PL_SHAPE(BATCH, 1, 8, 8)));
    begin(g);
    x = pl_conv2d(g, "conv", x, 3, &(pl_conv_options_t){.kernel = 3, .stride = 1});
    x = pl_max_pool2d(g, x, 2, 2, 0);
    x = pl_max_pool2d(g, pl_add(g, x, x), 2, 1, 0);
    x = pl_layer_norm(g, "ln", pl_flatten(g, x, 1), 1e-5);
    end(g);
    finish(g, pl_exp(g, x));
}

/* State that the step changes after its first reader. */
static void with_changed_state(pl_graph_t *g)
{
    const pl_shape_t shape = PL_SHAPE(WIDTH);
    pl_node_t x = pl_input(g, "x");
    begin(g);
    pl_node_t s = pl_state(g, "s", shape, pl_constant(0.5), PL_AGREE_MEAN);
    x = pl_add(g, layers(g, "a", x, 1), pl_reshape(g, s, PL_SHAPE(1, WIDTH)));
    x = layers(g, "b", x, 1);
    pl_assign(g, s, pl_add(g, s, pl_mean(g, x, (int[]){0}, 1, false)));
    x = pl_add(g, layers(g, "c", x, 1), s);
    end(g);
    finish(g, layers(g, "d", x, 1));
}

static const struct {
    const char *what;
    void (*describe)(pl_graph_t *g);
} models[] = {{"a deep stack", deep},
              {"random operators", with_dropout},
              {"batch norm, convolutions and pools", with_batch_norm},
              {"attention and layer norm", with_attention},
              {"nested and empty scopes", nested_and_empty},
              {"a whole step", whole},
              {"values that are read outside", read_outside},
              {"positions and statistics", second_results},
              {"state that the step changes", with_changed_state}};

/* With the scopes or without. */
static bool run_step(void (*describe)(pl_graph_t *g), bool with,
                     const pl_precision_ops_t *precision, cpu_step_t *to)
{
    marks = with;
    return cpu_step_run(describe, precision, to);
}

static bool is_same(const cpu_step_t *a, const cpu_step_t *b)
{
    return a->params == b->params && a->states == b->states
           && !memcmp(a->grads, b->grads, (size_t)a->params * sizeof(float))
           && !memcmp(a->state, b->state, (size_t)a->states * sizeof(float))
           && !memcmp(a->metrics, b->metrics, sizeof a->metrics);
}

/* ---- Tests ---- */

static void results_are_the_same_bits_in(const pl_precision_ops_t *precision)
{
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        cpu_step_t with, without;
        const bool done = run_step(models[k].describe, false, precision, &without)
                          & run_step(models[k].describe, true, precision, &with);
        ok(done && is_same(&with, &without),
           "%s: loss, gradients and state are the same bits", models[k].what);
        cpu_step_release(&with);
        cpu_step_release(&without);
    }
}

static void results_are_the_same_bits(void)
{
    results_are_the_same_bits_in(&pl_precision_32_true);
}

static void results_are_the_same_bits_in_half_precision(void)
{
    results_are_the_same_bits_in(device_precision("bf16-mixed"));
}

static void a_deep_stack_needs_clearly_less_memory(void)
{
    cpu_step_t with, without;
    run_step(deep, false, &pl_precision_32_true, &without);
    run_step(deep, true, &pl_precision_32_true, &with);
    ok(with.arena && (double)with.arena < 0.5 * (double)without.arena,
       "%zu bytes in place of %zu", with.arena, without.arena);
    cpu_step_release(&with);
    cpu_step_release(&without);
}

static double step_bytes(bool ignores)
{
    double bytes = 0;
    pl_model_t *model = pl_model_new(NULL);
    pl_graph_t *g = pl_graph_new(model, PL_TRAIN, fields, 1, BATCH, NULL);
    marks = true;
    deep(g);
    g->ignores_checkpoints = ignores;
    is_int(pl_graph_step_bytes(g, NULL, &bytes, NULL), PL_OK, "its memory is counted");
    pl_graph_free(g);
    pl_model_free(model);
    return bytes;
}

static void the_memory_without_scopes_can_be_counted(void)
{
    const double with = step_bytes(false), without = step_bytes(true);
    ok(with > 0 && with < 0.5 * without, "%g bytes, and %g when all values are kept",
       with, without);
}

/* Operations of a code in the step: first ones, and repeated ones. */
static void count(void (*describe)(pl_graph_t *g), pl_opcode_t code, int counts[2])
{
    pl_error_t err = {0};
    pl_model_t *model = pl_model_new(NULL);
    marks = true;
    pl_graph_t *g = cpu_step_graph(model, describe, &pl_precision_32_true, &err);
    counts[0] = counts[1] = 0;
    for (int i = 0; i < g->op_count; i++)
        if (g->op[i].code == code)
            counts[g->op[i].is_repeated]++;
    pl_graph_free(g);
    pl_model_free(model);
}

static void operators_are_repeated_and_effects_are_not(void)
{
    int counts[2];
    count(with_batch_norm, PL_OP_batch_norm, counts);
    ok(counts[0] == 2 && counts[1] == 2, "each batch norm is computed twice");
    count(with_batch_norm, PL_OP_assign, counts);
    is_int(counts[1], 0, "and its statistics follow once");
    count(deep, PL_OP_gelu, counts);
    ok(counts[0] == 24 && counts[1] == 18,
       "so is each layer of a stack but the last of a scope, whose result is kept");
}

/* The error of a graph after `describe`. */
static pl_error_t error_of(void (*describe)(pl_graph_t *g))
{
    pl_error_t err = {0};
    pl_model_t *model = pl_model_new(NULL);
    pl_graph_t *g = pl_graph_new(model, PL_TRAIN, fields, 1, BATCH, NULL);
    marks = true;
    describe(g);
    pl_graph_check(g, &err);
    pl_graph_free(g);
    pl_model_free(model);
    return err;
}

static void without_end(pl_graph_t *g)
{
    pl_scope(g, "%s", "body");
    pl_checkpoint(g);
    finish(g, layers(g, "a", pl_input(g, "x"), 1));
    pl_scope_end(g);
}

static void without_begin(pl_graph_t *g)
{
    pl_scope(g, "%s", "head");
    pl_checkpoint_end(g);
}

static void one_without_the_other_is_an_error_with_its_place(void)
{
    pl_error_t err = error_of(without_end);
    ok(err.code == PL_ESTATE, "a scope that does not end");
    is_text(err.text, "body: pl_checkpoint() without pl_checkpoint_end()",
            "by its place");
    err = error_of(without_begin);
    ok(err.code == PL_ESTATE, "and an end without a scope");
    is_text(err.text, "head: pl_checkpoint_end() without pl_checkpoint()", "likewise");
}

int main(void)
{
    run(results_are_the_same_bits);
    run(results_are_the_same_bits_in_half_precision);
    run(a_deep_stack_needs_clearly_less_memory);
    run(the_memory_without_scopes_can_be_counted);
    run(operators_are_repeated_and_effects_are_not);
    run(one_without_the_other_is_an_error_with_its_place);
    return tap_done();
}
