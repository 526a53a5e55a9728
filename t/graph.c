/* graph.c - tests of graphs and models: names, layout, errors, gradients, running out
 * of memory */
#include "tensor/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "accelerators/reference/reference.h"
#include "scarce.h"
#include "tap.h"
#include "tensor/memory_plan.h"
#include "tensor/model.h"
#include "training_cases.h"

/* A model and a training graph over x float32 [64, 784] and y int64 [64]. */
typedef struct rig {
    pl_model_t *model;
    pl_graph_t *g;
    pl_error_t err;
} rig_t;

static const pl_field_t fields[] = {{.name = "x", .dtype = PL_F32, .shape = {1, {784}}},
                                    {.name = "y", .dtype = PL_I64}};

static rig_t rig_at(pl_stage_t stage)
{
    rig_t rig = {.model = pl_model_new(NULL)};
    rig.g = pl_graph_new(rig.model, stage, fields, 2, 64, NULL);
    return rig;
}

static rig_t rig_new(void)
{
    return rig_at(PL_TRAIN);
}

static void rig_release(rig_t *rig)
{
    pl_graph_free(rig->g);
    pl_model_free(rig->model);
}

/* A graph once more, over the same model. */
static void rig_again(rig_t *rig, pl_stage_t stage)
{
    pl_graph_free(rig->g);
    rig->g = pl_graph_new(rig->model, stage, fields, 2, 64, NULL);
}

static const char *rig_error(rig_t *rig)
{
    rig->err = (pl_error_t){.text = "no error"};
    pl_graph_check(rig->g, &rig->err);
    return rig->err.text;
}

static pl_node_t param(rig_t *rig, const char *name, pl_shape_t shape)
{
    return pl_param(rig->g, name, shape, pl_zeros());
}

/* ---- Errors ---- */

static void an_error_names_the_path_and_what_would_work(void)
{
    rig_t rig = rig_new();
    pl_linear(rig.g, "fc2", param(&rig, "a", PL_SHAPE(64, 128)), 10);
    rig_again(&rig, PL_TRAIN);
    pl_linear(rig.g, "fc2", pl_param(rig.g, "b", PL_SHAPE(64, 100), pl_zeros()), 10);
    is_text(rig_error(&rig), "fc2: linear takes x [..., 128], got [64, 100]",
            "of a layer");
    rig_again(&rig, PL_TRAIN);
    pl_scope(rig.g, "h.%d", 3);
    pl_add(rig.g, param(&rig, "c", PL_SHAPE(3)), param(&rig, "d", PL_SHAPE(2, 4)));
    like(rig_error(&rig),
         "^h\\.3: add takes shapes that broadcast .*, got \\[3\\] and \\[2, 4\\]",
         "within a scope");
    rig_release(&rig);
}

static void the_first_error_sticks(void)
{
    rig_t rig = rig_new();
    pl_node_t bad = pl_softmax(rig.g, pl_input(rig.g, "z"));
    pl_loss(rig.g, pl_cross_entropy(rig.g, pl_linear(rig.g, "fc", bad, 10),
                                    pl_input(rig.g, "y"), NULL));
    pl_scope(rig.g, "a");
    like(rig_error(&rig), "no field \"z\"; it has \"x\", \"y\"",
         "and later calls do nothing");
    is_int(rig.err.code, PL_ENOTFOUND, "with its code");
    is_int(rig.g->op_count, 0, "and no operation");
    is_int(pl_graph_gradients(rig.g, 1, false, NULL), PL_ENOTFOUND,
           "gradients pass it on");
    rig_release(&rig);
}

typedef pl_node_t (*mistake_t)(rig_t *rig);
#define MISTAKE(name, expression) \
    static pl_node_t name(rig_t *rig) \
    { \
        pl_graph_t *g = rig->g; \
        return g ? (expression) : (pl_node_t){-1}; \
    }

MISTAKE(reshape_wrong, pl_reshape(g, pl_input(g, "x"), PL_SHAPE(64, 100)))
MISTAKE(reshape_unknown, pl_reshape(g, pl_input(g, "x"), PL_SHAPE(-1, 100)))
MISTAKE(reshape_two_unknown, pl_reshape(g, pl_input(g, "x"), PL_SHAPE(-1, -1)))
MISTAKE(permute_twice, pl_permute(g, pl_input(g, "x"), (int[]){0, 0}))
MISTAKE(slice_outside, pl_slice(g, pl_input(g, "x"), 1, 700, 785))
MISTAKE(axis_outside, pl_max(g, pl_input(g, "x"), 2, false))
MISTAKE(sum_outside, pl_sum(g, pl_input(g, "x"), (int[]){-3}, 1, false))
MISTAKE(integers, pl_relu(g, pl_input(g, "y")))
MISTAKE(matmul_depth, pl_matmul(g, pl_input(g, "x"), pl_input(g, "x"), false, false))
MISTAKE(matmul_vector,
        pl_matmul(g, pl_input(g, "x"), param(rig, "v", PL_SHAPE(784)), false, false))
MISTAKE(conv_flat,
        pl_conv2d(g, "c", pl_input(g, "x"), 8, &(pl_conv_options_t){.kernel = 3}))
MISTAKE(conv_large,
        pl_conv2d(g, "c", pl_reshape(g, pl_input(g, "x"), PL_SHAPE(64, 1, 28, 28)), 8,
                  &(pl_conv_options_t){.kernel = 30}))
MISTAKE(pool_padding,
        pl_max_pool2d(g, pl_reshape(g, pl_input(g, "x"), PL_SHAPE(64, 1, 28, 28)), 2, 2,
                      2))
MISTAKE(attention_alike, pl_attention(g, param(rig, "q", PL_SHAPE(1, 1, 4, 8)),
                                      param(rig, "k", PL_SHAPE(1, 1, 4, 8)),
                                      param(rig, "w", PL_SHAPE(1, 1, 5, 8)), NULL))
MISTAKE(attention_rotary_odd,
        pl_attention(g, param(rig, "q", PL_SHAPE(1, 1, 4, 7)),
                     param(rig, "k", PL_SHAPE(1, 1, 4, 7)),
                     param(rig, "w", PL_SHAPE(1, 1, 4, 7)),
                     &(pl_attention_options_t){.rotary = true}))
MISTAKE(attention_rotary_base,
        pl_attention(g, param(rig, "q", PL_SHAPE(1, 1, 4, 8)),
                     param(rig, "k", PL_SHAPE(1, 1, 4, 8)),
                     param(rig, "w", PL_SHAPE(1, 1, 4, 8)),
                     &(pl_attention_options_t){.rotary = true, .rotary_base = -1}))
MISTAKE(lstm_flat, pl_lstm(g, "r", pl_input(g, "x"), 8, NULL, NULL, NULL))
MISTAKE(lstm_lengths,
        pl_lstm(g, "r", param(rig, "s", PL_SHAPE(4, 3, 2)), 8,
                &(pl_recurrent_options_t){.lengths = (pl_node_t[]){pl_input(g, "y")}},
                NULL, NULL))
MISTAKE(lstm_state,
        pl_lstm(g, "r", param(rig, "s", PL_SHAPE(4, 3, 2)), 8,
                &(pl_recurrent_options_t){
                    .layers = 2,
                    .bidirectional = true,
                    .c0 = (pl_node_t[]){param(rig, "c", PL_SHAPE(2, 4, 8))}},
                NULL, NULL))
MISTAKE(gru_units, pl_gru(g, "r", param(rig, "s", PL_SHAPE(4, 3, 2)), 0, NULL, NULL))
MISTAKE(gru_layers, pl_gru(g, "r", param(rig, "s", PL_SHAPE(4, 3, 2)), 8,
                           &(pl_recurrent_options_t){.layers = -1}, NULL))
MISTAKE(gru_cell, pl_gru(g, "r", param(rig, "s", PL_SHAPE(4, 3, 2)), 8,
                         &(pl_recurrent_options_t){.c0 = (pl_node_t[]){pl_input(g, "x")}},
                         NULL))
MISTAKE(dropout_one, pl_dropout(g, pl_input(g, "x"), 1))
MISTAKE(targets, pl_cross_entropy(g, pl_reshape(g, pl_input(g, "x"), PL_SHAPE(128, 392)),
                                  pl_input(g, "y"), NULL)
                     .sum)
MISTAKE(float_targets,
        pl_cross_entropy(g, pl_input(g, "x"), param(rig, "t", PL_SHAPE(64)), NULL).sum)
MISTAKE(ctc_targets, pl_ctc(g, param(rig, "p", PL_SHAPE(64, 9, 5)), pl_input(g, "y"),
                            pl_input(g, "y"), pl_input(g, "y"), NULL)
                         .sum)
MISTAKE(ctc_lengths,
        pl_ctc(g, param(rig, "p", PL_SHAPE(64, 9, 5)),
               pl_reshape(g, pl_input(g, "y"), PL_SHAPE(64, 1)), pl_input(g, "y"),
               pl_reshape(g, pl_input(g, "y"), PL_SHAPE(64, 1)), NULL)
            .sum)
MISTAKE(ctc_blank, pl_ctc(g, param(rig, "p", PL_SHAPE(64, 9, 5)),
                          pl_reshape(g, pl_input(g, "y"), PL_SHAPE(64, 1)),
                          pl_input(g, "y"), pl_input(g, "y"),
                          &(pl_ctc_options_t){.blank = 5})
                       .sum)
MISTAKE(mse_column,
        pl_mse(g, param(rig, "p", PL_SHAPE(64, 1)), param(rig, "t", PL_SHAPE(64))).sum)
MISTAKE(mse_shapes, pl_mse(g, pl_input(g, "x"), param(rig, "t", PL_SHAPE(784))).sum)
MISTAKE(float_indices, pl_embedding(g, "wte", pl_input(g, "x"), 10, 4, pl_zeros()))
MISTAKE(concat_rows,
        pl_concat(g, (pl_node_t[]){pl_input(g, "x"), param(rig, "p", PL_SHAPE(64, 3))}, 2,
                  0))
MISTAKE(concat_none, pl_concat(g, NULL, 0, 0))
MISTAKE(size_zero, param(rig, "z", PL_SHAPE(3, 0)))
MISTAKE(size_huge, param(rig, "z", PL_SHAPE(INT64_MAX / 2, 8)))
MISTAKE(seven_axes, pl_param(g, "z", pl_shape(7, 1, 1, 1, 1, 1, 1, 1), pl_zeros()))
MISTAKE(stranger, pl_relu(g, (pl_node_t){99}))
MISTAKE(reserved, param(rig, "__metadata__", PL_SHAPE(3)))
MISTAKE(no_text, param(rig, "w\xff", PL_SHAPE(3)))
MISTAKE(no_scope, (pl_scope(g, "%s", "h\xe2\x82"), param(rig, "w", PL_SHAPE(3))))
MISTAKE(no_metric,
        (pl_output(g, "\xc0\x80", pl_input(g, "x")), pl_relu(g, pl_input(g, "x"))))
MISTAKE(norm_of_one, pl_batch_norm(g, "bn", param(rig, "z", PL_SHAPE(1, 3)), 0.1, 1e-5))

static void every_mistake_has_its_error(void)
{
    static const struct {
        mistake_t make;
        const char *says;
    } mistakes[] = {
        {reshape_wrong, "reshape keeps the number of elements: \\[64, 784\\] has 50176, "
                        "\\[64, 100\\] has 6400"},
        {reshape_unknown,
         "the 50176 elements of \\[64, 784\\] are not a multiple of 100"},
        {reshape_two_unknown, "one of which may be -1"},
        {permute_twice, "permute takes each axis of \\[64, 784\\] once"},
        {slice_outside, "slice takes a range within 0 to the size along axis 1 of \\[64, "
                        "784\\], got 700 to 785"},
        {axis_outside, "max takes an axis from -2 to 1 of \\[64, 784\\], got 2"},
        {sum_outside, "sum takes an axis from -2 to 1 .* got -3"},
        {integers, "relu takes float32, got int64 \\[64\\], a field of the data: convert "
                   "it to float32"},
        {matmul_depth,
         "matmul multiplies along 784 of \\[64, 784\\] but 64 of \\[64, 784\\]"},
        {matmul_vector,
         "matmul takes at least two axes each, got \\[64, 784\\] and \\[784\\]"},
        {conv_flat, "c: conv2d takes x \\[B, C, H, W\\].*, got \\[64, 784\\]"},
        {conv_large,
         "c: conv: a window of 30x30 does not fit \\[64, 1, 28, 28\\] with padding 0x0"},
        {pool_padding, "max_pool takes a padding of up to half the kernel, got 2 and 2"},
        {attention_alike, "attention takes q .* and k and v .*, got \\[1, 1, 4, 8\\], .* "
                          "and \\[1, 1, 5, 8\\]"},
        {attention_rotary_odd, "attention with rotary takes q and k of an even width and "
                               "a base larger than 0, got \\[1, 1, 4, 7\\] and 10000"},
        {attention_rotary_base, "attention with rotary takes .*, got \\[1, 1, 4, 8\\] "
                                "and -1"},
        {lstm_flat, "r: lstm takes x \\[B, T, C\\] and 1 to 1048576 units, got \\[64, "
                    "784\\] and 8"},
        {lstm_lengths,
         "r: lstm takes lengths int32 or int64 \\[4\\], got int64 \\[64\\]"},
        {lstm_state, "r: lstm takes c0 \\[4, 4, 8\\], got \\[2, 4, 8\\]"},
        {gru_units, "r: gru takes x .*, got \\[4, 3, 2\\] and 0"},
        {gru_layers, "r: gru takes 1 to 64 layers and a dropout .*, got -1 and 0"},
        {gru_cell, "r: gru has no c0: set h0 alone"},
        {dropout_one, "dropout takes a probability from 0 up to but not 1, got 1"},
        {targets, "cross_entropy takes logits \\[..., C\\] and targets \\[...\\], got "
                  "\\[128, 392\\] and \\[64\\]"},
        {float_targets,
         "cross_entropy takes indices int32 or int64 \\[64\\], got float32 \\[64\\]"},
        {ctc_targets, "ctc takes log probabilities \\[B, T, C\\] and targets \\[B, S\\], "
                      "got \\[64, 9, 5\\] and \\[64\\]"},
        {ctc_lengths, "ctc takes indices int32 or int64 \\[64\\], got int32 \\[64, 1\\]"},
        {ctc_blank, "ctc takes a blank from 0 to 4, got 5"},
        {mse_column, "mse takes x and target of one shape, got \\[64, 1\\] and \\[64\\]: "
                     "pl_flatten\\(g, x, 0\\) removes the last axis"},
        {mse_shapes,
         "mse takes x and target of one shape, got \\[64, 784\\] and \\[784\\]"},
        {float_indices,
         "wte: embedding takes indices int32 or int64 \\[64, 784\\], got float32"},
        {concat_rows, "concat takes inputs of one type that differ along axis 0 only, "
                      "got .*\\[64, 784\\].*\\[64, 3\\]"},
        {concat_none, "concat takes 1 or more inputs, got 0"},
        {size_zero, "z cannot have shape \\[3, 0\\]"},
        {size_huge, "z cannot have shape"},
        {seven_axes, "z cannot have shape \\[1, 1, 1, 1, 1, 1, \\.\\.\\.\\]"},
        {reserved, "a tensor cannot be named __metadata__"},
        {no_text, "the name \"w\\?\" is not UTF-8"},
        {no_scope, "the name of a scope is not UTF-8"},
        {no_metric, "the name of an output or a metric is not UTF-8"},
        {stranger, "a node does not belong to this graph"},
        {norm_of_one, "bn: batch_norm needs more than one value for each channel"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        rig_t rig = rig_new();
        is_int(mistakes[i].make(&rig).id, -1, "no node");
        like(rig_error(&rig), mistakes[i].says, "but a sentence");
        rig_release(&rig);
    }
}

static void outputs_have_names_of_their_own(void)
{
    rig_t rig = rig_new();
    pl_output(rig.g, "x", pl_input(rig.g, "x"));
    pl_output(rig.g, "x", pl_input(rig.g, "x"));
    like(rig_error(&rig), "two outputs or metrics are named \"x\"",
         "the second is refused");
    rig_again(&rig, PL_TRAIN);
    for (char name[] = "a"; name[0] < 'k'; name[0]++)
        pl_output(rig.g, name, pl_input(rig.g, "x"));
    like(rig_error(&rig), "output \"i\" is one too many: a step has at most 8",
         "so is the ninth");
    rig_again(&rig, PL_TRAIN);
    pl_log(rig.g, "rate", pl_pair(pl_input(rig.g, "x"), pl_scalar(rig.g, 1)), PL_ON_STEP);
    like(rig_error(&rig),
         "rate takes a sum \\[\\] and a weight \\[\\], got \\[64, 784\\] and \\[\\]",
         "and a metric "
         "that is no scalar");
    rig_release(&rig);
}

/* ---- Scopes and parameters ---- */

static void parameters_are_named_by_their_scopes(void)
{
    rig_t rig = rig_new();
    pl_scope(rig.g, "h.%d", 0);
    pl_scope(rig.g, "attn");
    pl_linear(rig.g, "c_attn", pl_input(rig.g, "x"), 4);
    pl_scope_end(rig.g);
    pl_layer_norm(rig.g, "ln_1", pl_input(rig.g, "x"), 1e-5);
    pl_scope_end(rig.g);
    is_text(rig_error(&rig), "no error", "scopes and ends match");
    static const char *const names[] = {"h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias",
                                        "h.0.ln_1.weight", "h.0.ln_1.bias"};
    for (int i = 0; i < 4; i++)
        is_text(rig.model->tensor[i].name, names[i], "in order of first use");
    is_text(rig.g->op[0].path, "h.0.attn.c_attn", "operations have the path too");
    rig_release(&rig);
}

static void scopes_must_match(void)
{
    rig_t rig = rig_new();
    pl_scope(rig.g, "attn");
    like(rig_error(&rig), "pl_scope\\(\"attn\"\\) without pl_scope_end",
         "one without an end");
    pl_scope_end(rig.g);
    pl_scope_end(rig.g);
    like(rig_error(&rig), "pl_scope_end\\(\\) without pl_scope", "an end too much");
    rig_again(&rig, PL_TRAIN);
    for (int i = 0; i < 9; i++)
        pl_scope(rig.g, "a");
    like(rig_error(&rig), "a\\.a: scopes can be at most 8 deep", "too deep");
    rig_again(&rig, PL_TRAIN);
    pl_scope(rig.g, "%070d", 0);
    like(rig_error(&rig), "62 characters", "too long");
    rig_release(&rig);
}

static void equal_paths_share_one_storage(void)
{
    rig_t rig = rig_new();
    pl_node_t w = param(&rig, "w", PL_SHAPE(3, 5)),
              again = param(&rig, "w", PL_SHAPE(3, 5));
    is_int(again.id, w.id, "the same path twice is the same value");
    param(&rig, "v", PL_SHAPE(2));
    is_int(rig.model->tensor[1].offset, 16, "the next one starts at a multiple of 16");
    is_int(rig.model->params, 32, "and so would another");
    param(&rig, "w", PL_SHAPE(5, 3));
    like(rig_error(&rig), "w is \\[3, 5\\], requested as \\[5, 3\\]",
         "another shape is refused");
    rig_again(&rig, PL_TRAIN);
    pl_state(rig.g, "w", PL_SHAPE(3, 5), pl_zeros(), PL_AGREE_MEAN);
    like(rig_error(&rig), "w is a parameter in one place and state in another",
         "and another kind");
    rig_release(&rig);
}

static void a_frozen_model_grows_no_more(void)
{
    rig_t rig = rig_new();
    param(&rig, "w", PL_SHAPE(3));
    pl_model_freeze(rig.model);
    param(&rig, "w", PL_SHAPE(3));
    is_text(rig_error(&rig), "no error", "what is there can be used");
    param(&rig, "v", PL_SHAPE(3));
    like(rig_error(&rig), "v is not one of the model's tensors",
         "what is not cannot be added");
    rig_release(&rig);
}

static void first_values_are_a_function_of_seed_and_name(void)
{
    rig_t rig = rig_new();
    pl_param(rig.g, "n", PL_SHAPE(100, 100), pl_normal(0.02));
    pl_param(rig.g, "u", PL_SHAPE(10007), pl_uniform(0.5));
    pl_param(rig.g, "c", PL_SHAPE(3), pl_constant(7));
    pl_state(rig.g, "s", PL_SHAPE(4), pl_constant(1), PL_AGREE_RANK0);
    const pl_tensor_info_t *t = rig.model->tensor;
    float *a = malloc((size_t)rig.model->params * sizeof *a),
          *b = malloc((size_t)rig.model->params * sizeof *b);
    float state[16];
    double square = 0, largest = 0, mean = 0;
    pl_model_init(rig.model, PL_REGION_PARAMS, 42, PL_F32, a);
    pl_model_init(rig.model, PL_REGION_STATE, 42, PL_F32, state);
    for (int i = 0; i < 10000; i++) {
        square += a[i] * a[i] / 10000;
        mean += a[t[1].offset + i] / 10000;
        largest = fmax(largest, fabs(a[t[1].offset + i]));
    }
    is_near(sqrt(square), 0.02, 5e-4, "normal numbers have their deviation");
    ok(largest < 0.5 && largest > 0.499 && fabs(mean) < 0.01, "uniform ones their bound");
    ok(a[t[2].offset] == 7 && state[3] == 1 && state[4] == 0,
       "constants are constant, padding is zero");

    rig_t other = rig_new();
    pl_param(other.g, "u", PL_SHAPE(10007), pl_uniform(0.5));
    pl_model_init(other.model, PL_REGION_PARAMS, 42, PL_F32, b);
    ok(!memcmp(b, a + t[1].offset, 10007 * sizeof *b),
       "a tensor is the same in another place");
    pl_model_init(other.model, PL_REGION_PARAMS, 43, PL_F32, b);
    ok(memcmp(b, a + t[1].offset, 10007 * sizeof *b) != 0,
       "and another with another seed");
    free(a);
    free(b);
    rig_release(&rig);
    rig_release(&other);
}

/* ---- Random operators ---- */

static uint64_t stream(const rig_t *rig, int op)
{
    return rig->g->op[op].attr.stream;
}

static void random_operators_have_streams_of_their_own(void)
{
    rig_t rig = rig_new();
    uint64_t first[2];
    for (int round = 0; round < 2; round++) {
        pl_node_t x = pl_dropout(rig.g, pl_input(rig.g, "x"), 0.5);
        pl_dropout(rig.g, x, 0.5);
        first[round] = stream(&rig, 0);
        ok(stream(&rig, 0) != stream(&rig, 1), "two in a step differ");
        is_text(rig.g->op[1].path, "dropout.1", "and are counted");
        rig_again(&rig, PL_TRAIN);
    }
    ok(first[0] == first[1], "described again they are the same");
    rig_release(&rig);
    rig = rig_at(PL_VALIDATE);
    pl_node_t x = pl_input(rig.g, "x");
    is_int(pl_dropout(rig.g, x, 0.5).id, x.id, "when validating there is no dropout");
    rig_release(&rig);
}

/* ---- Gradients ---- */

static int op_find(const pl_graph_t *g, pl_opcode_t code, int from)
{
    while (from < g->op_count && g->op[from].code != code)
        from++;
    return from;
}

static int op_count(const pl_graph_t *g, pl_opcode_t code)
{
    int count = 0;
    for (int i = 0; i < g->op_count; i++)
        count += g->op[i].code == code;
    return count;
}

/* Which operation assigns what starts at `offset` of the gradients. */
static int assign_of(const pl_graph_t *g, int64_t offset)
{
    int i = op_find(g, PL_OP_assign, 0);
    while (i < g->op_count && g->value[g->op[i].input[0]].offset != offset)
        i = op_find(g, PL_OP_assign, i + 1);
    return i;
}

static pl_node_t mean_square(pl_graph_t *g, pl_node_t x)
{
    return pl_mean(g, pl_mul(g, x, x), NULL, 0, false);
}

static void gradients_come_in_reverse_and_early(void)
{
    rig_t rig = rig_new();
    pl_node_t x = pl_relu(rig.g, pl_linear(rig.g, "fc1", pl_input(rig.g, "x"), 16));
    x = pl_relu(rig.g, pl_linear(rig.g, "fc2", x, 16));
    pl_loss(rig.g, pl_cross_entropy(rig.g, pl_linear(rig.g, "fc3", x, 10),
                                    pl_input(rig.g, "y"), NULL));
    is_int(pl_graph_gradients(rig.g, 64, false, NULL), PL_OK, "three layers");
    int at[3];
    for (int i = 0; i < 3; i++)
        at[i] = assign_of(rig.g, rig.model->tensor[2 * i].offset);
    ok(at[2] < at[1] && at[1] < at[0], "the last layer's gradient is assigned first");
    int second = 0;
    for (int i = at[2]; i < rig.g->op_count; i++)
        second += !strcmp(rig.g->op[i].path, "fc2");
    ok(second > 0, "before anything of the layer before is computed");
    ok(assign_of(rig.g, rig.model->params) < rig.g->op_count
           && assign_of(rig.g, rig.model->params + 1) < at[2],
       "loss and weight go to the end of the region");
    ok(rig.model->frozen, "and the model is frozen, for offsets are in the graph");
    rig_release(&rig);
}

static void a_tied_parameter_has_one_gradient(void)
{
    rig_t rig = rig_new();
    pl_node_t w = pl_param(rig.g, "w", PL_SHAPE(784, 784), pl_normal(0.1));
    pl_node_t x = pl_matmul(rig.g, pl_input(rig.g, "x"), w, false, false);
    x = pl_matmul(rig.g, x, pl_param(rig.g, "w", PL_SHAPE(784, 784), pl_normal(0.1)),
                  false, true);
    pl_loss(rig.g, pl_pair(mean_square(rig.g, x), pl_scalar(rig.g, 1)));
    pl_graph_gradients(rig.g, 1, false, NULL);
    is_int(op_count(rig.g, PL_OP_assign), 3, "one assign beside loss and weight");
    int assign = assign_of(rig.g, 0);
    is_int(rig.g->op[rig.g->value[rig.g->op[assign].input[1]].op].code, PL_OP_add,
           "of a sum");
    rig_release(&rig);
}

/* loss = 3 sum(w^2); v is not reached.  Replays twice with what is in the region to
 * begin with. */
static void run_twice(bool accumulate, double *grads)
{
    rig_t rig = rig_new();
    pl_node_t w = param(&rig, "w", PL_SHAPE(2));
    param(&rig, "v", PL_SHAPE(2));
    pl_node_t sum = pl_scale(rig.g, pl_sum(rig.g, pl_mul(rig.g, w, w), NULL, 0, false),
                             3);
    pl_loss(rig.g, pl_pair(sum, pl_scalar(rig.g, 4)));
    pl_graph_gradients(rig.g, 2, accumulate, NULL);
    double params[32] = {1, -2};
    pl_reference_replay_t replay = {
        .region = {[PL_REGION_PARAMS] = params, [PL_REGION_GRADS] = grads}};
    for (int i = 0; i < 2; i++)
        pl_reference_replay(rig.g, &replay, NULL);
    rig_release(&rig);
}

static void gradients_replace_or_add(void)
{
    double grads[34] = {0};
    grads[16] = 5;
    run_twice(false, grads);
    ok(grads[0] == 3 && grads[1] == -6, "d(loss)/d(w) over the nominal weight");
    ok(grads[16] == 0, "what the loss does not reach gets zeros");
    ok(grads[32] == 15 && grads[33] == 4, "loss and weight are there once");
    run_twice(true, grads);
    ok(grads[0] == 9 && grads[1] == -18, "accumulating adds to what is there");
    ok(grads[16] == 0 && grads[32] == 45 && grads[33] == 12, "everywhere");
}

static void gradients_of_slices_join(void)
{
    training_t t;
    training_init(&t, &training_cases[6], NULL);
    is_int(op_count(t.step, PL_OP_pad), 0,
           "q, k and v of a GPT need no padded gradients");
    is_int(op_count(t.step, PL_OP_concat), 2, "but one concat in each block");
    training_release(&t);
}

static void the_first_of_equal_ones_gets_the_gradient(void)
{
    rig_t rig = rig_new();
    pl_node_t w = param(&rig, "w", PL_SHAPE(4));
    pl_loss(rig.g, pl_pair(pl_max(rig.g, w, 0, false), pl_scalar(rig.g, 1)));
    pl_graph_gradients(rig.g, 1, false, NULL);
    double params[16] = {1, 3, 3, 2}, grads[18] = {0};
    pl_reference_replay_t replay = {
        .region = {[PL_REGION_PARAMS] = params, [PL_REGION_GRADS] = grads}};
    pl_reference_replay(rig.g, &replay, NULL);
    ok(grads[0] == 0 && grads[1] == 1 && grads[2] == 0 && grads[3] == 0,
       "and no other error");
    rig_release(&rig);
}

static const char *gradients_error(rig_t *rig)
{
    rig->err = (pl_error_t){.text = "no error"};
    pl_graph_gradients(rig->g, 1, false, &rig->err);
    return rig->err.text;
}

static void steps_without_gradients_say_why(void)
{
    rig_t rig = rig_new();
    like(gradients_error(&rig), "no loss; end it with pl_loss", "without a loss");
    pl_node_t x = pl_mul(rig.g, param(&rig, "v", PL_SHAPE(784)), pl_input(rig.g, "x"));
    pl_log(rig.g, "loss", pl_r2(rig.g, x, x), PL_ON_EPOCH);
    like(gradients_error(&rig), "no loss; end it with pl_loss",
         "with a metric that is called so");
    rig_again(&rig, PL_TRAIN);
    pl_loss(rig.g,
            pl_pair(mean_square(rig.g, pl_input(rig.g, "x")), pl_scalar(rig.g, 1)));
    like(gradients_error(&rig), "does not depend on any parameter", "without parameters");
    rig_again(&rig, PL_TRAIN);
    pl_scope(rig.g, "head");
    pl_node_t w = param(&rig, "w", PL_SHAPE(2));
    w = pl_emit(rig.g, PL_OP_norm, &w, 1, &(pl_attr_t){.a = 1}, NULL);
    pl_scope_end(rig.g);
    pl_loss(rig.g, pl_pair(w, pl_scalar(rig.g, 1)));
    like(gradients_error(&rig), "^head: norm has no gradient",
         "through an operator that has none");
    rig_again(&rig, PL_VALIDATE);
    like(gradients_error(&rig), "need a training step", "when validating");
    rig_release(&rig);
}

static void pruning_keeps_what_is_read_or_has_an_effect(void)
{
    rig_t rig = rig_at(PL_VALIDATE);
    pl_node_t x = pl_input(rig.g, "x");
    pl_exp(rig.g, pl_neg(rig.g, x));
    pl_node_t y = pl_relu(rig.g, x);
    pl_output(rig.g, "y", y);
    pl_assign(rig.g, param(&rig, "w", PL_SHAPE(64)),
              pl_sum(rig.g, x, (int[]){1}, 1, false));
    is_int(rig.g->op_count, 5, "five operations");
    pl_graph_prune(rig.g);
    is_int(rig.g->op_count, 3, "of which three matter");
    is_int(rig.g->value[y.id].op, 0, "and values know their operation");
    is_int(rig.g->value[1].op, -1, "or that it is gone");
    rig_release(&rig);
}

/* ---- Running out of memory ---- */

static int everything(void *user)
{
    const training_case_t *c = user;
    training_t t;
    pl_memory_plan_t plan;
    pl_error_t err;
    int code = training_init(&t, c, &err);
    if (code != PL_OK)
        return err.code;
    code = pl_memory_plan_build(&plan, t.step, NULL, &err);
    if (code == PL_OK)
        pl_memory_plan_release(&plan);
    training_release(&t);
    return code;
}

static void a_graph_has_so_many_operations_and_no_more(void)
{
    rig_t rig = rig_new();
    pl_node_t x = param(&rig, "w", PL_SHAPE(1));
    for (int i = 0; i <= PL_OPS_MAX; i++)
        x = pl_relu(rig.g, x);
    like(rig_error(&rig), "at most 1000000 operations", "one too many is refused");
    is_int(rig.err.code, PL_EUNSUPPORTED, "as not supported");
    rig_release(&rig);
}

static void any_request_for_memory_may_fail(void)
{
    training_case_t c = training_cases[6];
    scarce_try(everything, &c, "a training and its memory plan");
}

int main(void)
{
    scarce_init_own();
    run(an_error_names_the_path_and_what_would_work);
    run(the_first_error_sticks);
    run(every_mistake_has_its_error);
    run(outputs_have_names_of_their_own);
    run(parameters_are_named_by_their_scopes);
    run(scopes_must_match);
    run(equal_paths_share_one_storage);
    run(a_frozen_model_grows_no_more);
    run(first_values_are_a_function_of_seed_and_name);
    run(random_operators_have_streams_of_their_own);
    run(gradients_come_in_reverse_and_early);
    run(a_tied_parameter_has_one_gradient);
    run(gradients_replace_or_add);
    run(gradients_of_slices_join);
    run(the_first_of_equal_ones_gets_the_gradient);
    run(steps_without_gradients_say_why);
    run(pruning_keeps_what_is_read_or_has_an_effect);
    run(a_graph_has_so_many_operations_and_no_more);
    run(any_request_for_memory_may_fail);
    return tap_done();
}
