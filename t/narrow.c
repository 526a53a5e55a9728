/* narrow.c - tests of engine/tensor/narrow.c: operations of which a slice is read compute
 * the slice alone, and the step's results stay */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu_step.h"
#include "tap.h"
#include "tensor/precision.h"

enum { BATCH = CPU_STEP_BATCH, TOKENS = 8, WIDTH = CPU_STEP_WIDTH / TOKENS };

/* ---- Models, of whose values a slice is read, or all ---- */

static bool reads_all;

/* A slice of x, which is also read as a whole if reads_all. */
static pl_node_t part(pl_graph_t *g, pl_node_t x, int axis, int64_t from, int64_t to)
{
    static int number;
    char name[16];
    snprintf(name, sizeof name, "all%d", number++ % 1000);
    if (reads_all)
        pl_output(g, name, x);
    return pl_slice(g, x, axis, from, to);
}

static pl_node_t tokens(pl_graph_t *g)
{
    const pl_shape_t shape = PL_SHAPE(BATCH, TOKENS, WIDTH);
    pl_node_t x = pl_reshape(g, pl_input(g, "x"), shape);
    return pl_add(g, x, pl_param(g, "places", PL_SHAPE(TOKENS, WIDTH), pl_normal(1)));
}

static void finish(pl_graph_t *g, pl_node_t x)
{
    pl_loss(g, pl_pair(pl_sum(g, pl_mul(g, x, x), NULL, 0, false), pl_scalar(g, BATCH)));
}

static pl_node_t heads(pl_graph_t *g, pl_node_t x, int k)
{
    x = pl_slice(g, x, 2, k * WIDTH, (k + 1) * WIDTH);
    x = pl_reshape(g, x, PL_SHAPE(BATCH, TOKENS, 2, WIDTH / 2));
    return pl_permute(g, x, (int[]){0, 2, 1, 3});
}

static pl_node_t layer(pl_graph_t *g, const char *name, pl_node_t x,
                       const pl_attention_options_t *options, bool is_marked)
{
    pl_scope(g, "%s", name);
    if (is_marked)
        pl_checkpoint(g);
    const pl_shape_t shape = PL_SHAPE(BATCH, TOKENS, WIDTH);
    pl_node_t qkv = pl_linear(g, "qkv", pl_layer_norm(g, "norm1", x, 1e-5), 3 * WIDTH);
    pl_node_t y = pl_attention(g, heads(g, qkv, 0), heads(g, qkv, 1), heads(g, qkv, 2),
                               options);
    y = pl_reshape(g, pl_permute(g, y, (int[]){0, 2, 1, 3}), shape);
    x = pl_add(g, x, pl_linear(g, "proj", y, WIDTH));
    y = pl_gelu(g, pl_linear(g, "up", pl_layer_norm(g, "norm2", x, 1e-5), 4 * WIDTH));
    x = pl_add(g, x, pl_linear(g, "down", y, WIDTH));
    if (is_marked)
        pl_checkpoint_end(g);
    pl_scope_end(g);
    return x;
}

static void transformer(pl_graph_t *g, const pl_attention_options_t *options, int token,
                        bool is_marked)
{
    pl_node_t x = layer(g, "0", tokens(g), options, is_marked);
    x = part(g, layer(g, "1", x, options, is_marked), 1, token, token + 1);
    x = pl_reshape(g, x, PL_SHAPE(BATCH, WIDTH));
    finish(g, pl_linear(g, "head", x, 3));
}

static void first_token(pl_graph_t *g)
{
    transformer(g, NULL, 0, false);
}

static void with_checkpoints(pl_graph_t *g)
{
    transformer(g, NULL, 0, true);
}

static void with_bias(pl_graph_t *g)
{
    const pl_node_t bias = pl_randn(g, PL_SHAPE(2, TOKENS, TOKENS));
    transformer(g, &(pl_attention_options_t){.bias = &bias}, 3, false);
}

static void with_trained_bias(pl_graph_t *g)
{
    const pl_node_t bias = pl_param(g, "bias", PL_SHAPE(2, TOKENS, TOKENS), pl_normal(1));
    transformer(g, &(pl_attention_options_t){.bias = &bias}, 3, false);
}

static void causal(pl_graph_t *g)
{
    transformer(g, &(pl_attention_options_t){.causal = true}, 3, false);
}

static void causal_and_last(pl_graph_t *g)
{
    transformer(g, &(pl_attention_options_t){.causal = true}, TOKENS - 1, false);
}

/* Two tokens in the middle, through operators that move. */
static void moved(pl_graph_t *g)
{
    pl_node_t x = pl_tanh(g, pl_linear(g, "fc", tokens(g), WIDTH));
    x = pl_concat(g, (pl_node_t[]){x, pl_relu(g, x)}, 2, 2);
    x = pl_softmax(g, pl_permute(g, x, (int[]){1, 0, 2}));
    x = pl_matmul(g, pl_permute(g, x, (int[]){1, 0, 2}),
                  pl_param(g, "w", PL_SHAPE(2 * WIDTH, 3), pl_normal(1)), false, false);
    finish(g, part(g, x, 1, 3, 5));
}

/* The same slice twice, and a value of which two are read. */
static void read_twice(pl_graph_t *g)
{
    pl_node_t x = pl_linear(g, "a", tokens(g), WIDTH), y = pl_linear(g, "b", x, WIDTH);
    y = pl_mul(g, part(g, y, 1, 2, 3), pl_sigmoid(g, part(g, y, 1, 2, 3)));
    finish(g, pl_mul(g, y, pl_add(g, part(g, x, 1, 2, 3), part(g, x, 1, 4, 5))));
}

/* Rows of a table and of one value for all tokens. */
static void table(pl_graph_t *g)
{
    pl_node_t ids = pl_cast(g, pl_greater(g, pl_input(g, "x"), pl_scalar(g, 0)), PL_I32);
    pl_node_t x = pl_embedding(g, "rows", ids, 2, 5, pl_normal(1));
    pl_node_t one = pl_linear(g, "one", pl_input(g, "x"), 5);
    x = pl_mul(g, x, pl_reshape(g, one, PL_SHAPE(BATCH, 1, 5)));
    finish(g, part(g, pl_exp(g, x), 1, 7, 20));
}

/* A slice that no single axis has, and slices along two axes. */
static void across_axes(pl_graph_t *g)
{
    pl_node_t x = pl_tanh(g, pl_linear(g, "fc", tokens(g), 6));
    pl_node_t y = part(g, pl_reshape(g, x, PL_SHAPE(BATCH, TOKENS * 6)), 1, 4, 13);
    pl_node_t z = part(g, part(g, pl_gelu(g, x), 1, 1, 3), 2, 2, 5);
    finish(g, pl_mul(g, pl_sum(g, y, (int[]){1}, 1, false),
                     pl_sum(g, z, (int[]){1, 2}, 2, false)));
}

static void with_dropout(pl_graph_t *g)
{
    pl_node_t x = pl_dropout(g, pl_linear(g, "a", tokens(g), WIDTH), 0.5);
    finish(g, part(g, pl_linear(g, "b", x, WIDTH), 1, 0, 1));
}

/* More than half of the tokens, and steps. */
static void most(pl_graph_t *g)
{
    pl_node_t x = pl_linear(g, "a", tokens(g), WIDTH);
    x = part(g, pl_linear(g, "b", x, WIDTH), 1, 1, TOKENS);
    finish(g, pl_slice_step(g, pl_linear(g, "c", x, WIDTH), 1, 0, 4, 2));
}

/* A constant of several numbers, whose memory is counted. */
static void constant(pl_graph_t *g)
{
    float numbers[TOKENS];
    for (int k = 0; k < TOKENS; k++)
        numbers[k] = (float)k / 4;
    const pl_node_t c = pl_tensor(g, PL_F32, PL_SHAPE(TOKENS, 1), numbers);
    finish(g, part(g, pl_linear(g, "fc", pl_add(g, tokens(g), c), WIDTH), 1, 5, 6));
}

/* State that is read before the step changes it, in a reshape of it and after. */
static void changed_state(pl_graph_t *g)
{
    const pl_node_t s = pl_state(g, "s", PL_SHAPE(TOKENS, WIDTH), pl_constant(0.5),
                                 PL_AGREE_MEAN),
                    x = pl_linear(g, "a", tokens(g), WIDTH), before = pl_scale(g, s, 2),
                    same = pl_reshape(g, s, PL_SHAPE(TOKENS, WIDTH, 1));
    const pl_node_t first = part(g, pl_mul(g, x, before), 1, 0, 2);
    pl_assign(g, s, pl_add(g, s, pl_mean(g, x, (int[]){0}, 1, false)));
    const pl_node_t after = part(g, pl_mul(g, x, pl_scale(g, s, 3)), 1, 0, 2),
                    view = pl_reshape(g, part(g, same, 0, 0, 2), PL_SHAPE(2, WIDTH));
    finish(g, pl_add(g, pl_add(g, first, after), view));
}

/* A slice would copy more than the layer computes. */
static void wide(pl_graph_t *g)
{
    const pl_node_t x = pl_tanh(g, pl_linear(g, "a", tokens(g), 40 * WIDTH));
    const pl_node_t all = pl_mean(g, pl_linear(g, "words", x, WIDTH), (int[]){1, 2}, 2,
                                  false),
                    value = part(g, pl_linear(g, "value", x, 1), 1, 0, TOKENS / 2);
    finish(g, pl_add(g, all, pl_sum(g, value, (int[]){1, 2}, 2, false)));
}

/* Both halves of one value, each by another operator. */
static void halves(pl_graph_t *g)
{
    const pl_node_t x = pl_linear(g, "a", tokens(g), 2 * WIDTH);
    finish(g, pl_mul(g, part(g, pl_sigmoid(g, x), 2, 0, WIDTH),
                     part(g, pl_tanh(g, x), 2, WIDTH, 2 * WIDTH)));
}

/* Elements of the results of forward's linear layers, attentions and embeddings, in
 * thousandths of those that are computed where all is read. */
static const struct {
    const char *what;
    void (*describe)(pl_graph_t *g);
    int share;
} models[] = {{"the first token of a transformer", first_token, 694},
              {"the same, computed again in backward", with_checkpoints, 694},
              {"with a bias of attention", with_bias, 694},
              {"with a bias that is trained", with_trained_bias, 709},
              {"with causal attention", causal, 738},
              {"the last token of causal attention", causal_and_last, 694},
              {"tokens in the middle of moves", moved, 250},
              {"one slice read twice, and two of one value", read_twice, 562},
              {"rows of a table", table, 215},
              {"a slice across axes", across_axes, 1000},
              {"dropout", with_dropout, 562},
              {"a constant", constant, 125},
              {"state that the step changes", changed_state, 1000},
              {"a wide input", wide, 1000},
              {"halves of a value", halves, 1000},
              {"most tokens, and steps", most, 1000}};

/* ---- Tests ---- */

static double work(void (*describe)(pl_graph_t *g), bool all)
{
    pl_error_t err = {0};
    pl_model_t *model = pl_model_new(NULL);
    reads_all = all;
    pl_graph_t *g = cpu_step_graph(model, describe, &pl_precision_32_true, &err);
    double elements = 0;
    for (int i = 0; i < g->op_count; i++)
        if ((g->op[i].code == PL_OP_linear || g->op[i].code == PL_OP_attention
             || g->op[i].code == PL_OP_embedding)
            && !g->op[i].gradient_of)
            elements += (double)pl_elements(g->value[g->op[i].output[0]].shape);
    pl_graph_free(g);
    pl_model_free(model);
    return elements;
}

static double distance(const cpu_step_t *a, const cpu_step_t *b)
{
    double worst = fabs(a->metrics[0] - b->metrics[0]) / fabs(b->metrics[0]), size = 0;
    for (int64_t i = 0; i < b->params; i++)
        size = fmax(size, fabs(b->grads[i]));
    for (int64_t i = 0; i < b->params; i++)
        worst = fmax(worst, fabs(a->grads[i] - b->grads[i]) / size);
    for (int64_t i = 0; i < b->states; i++)
        worst = fmax(worst, fabs(a->state[i] - b->state[i]));
    return a->params == b->params && size > 0 ? worst : INFINITY;
}

static void results_stay(void)
{
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        cpu_step_t narrow, all;
        reads_all = false;
        bool done = cpu_step_run(models[k].describe, &pl_precision_32_true, &narrow);
        reads_all = true;
        done &= cpu_step_run(models[k].describe, &pl_precision_32_true, &all);
        const double apart = done ? distance(&narrow, &all) : INFINITY;
        ok(apart < 1e-5, "%s: loss and gradients, but for %g", models[k].what, apart);
        cpu_step_release(&narrow);
        cpu_step_release(&all);
    }
}

static void what_is_not_read_is_not_computed(void)
{
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        const double all = work(models[k].describe, true),
                     narrow = work(models[k].describe, false);
        is_int((int)(1000 * narrow / all), models[k].share, "%s: %g elements of %g",
               models[k].what, narrow, all);
    }
}

int main(void)
{
    run(results_stay);
    run(what_is_not_read_is_not_computed);
    return tap_done();
}
