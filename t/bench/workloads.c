/* workloads.c - the training steps that are measured beside PyTorch's
 *
 * Models of the examples, models of layers in a text, and those here, which are written
 * as t/bench/torch_peer.py writes them.  In comments: B batch, T tokens, C width. */
#include "t/bench/workloads.h"

#include "tensor/layers_module.h"

const pl_registration_t *mlp_plugin(void);
const pl_registration_t *cnn_plugin(void);
const pl_registration_t *gpt_plugin(void);

static const pl_option_t no_options[] = {PL_OPTIONS_END};

#define MODULE(title) \
    static const pl_registration_t *title##_plugin(void) \
    { \
        static const pl_module_ops_t module = {.name = #title, \
                                               .size = 1, \
                                               .options = no_options, \
                                               .step = title##_step}; \
        static const pl_registration_t components[] = {{"module", &module}, \
                                                       PL_REGISTRATIONS_END}; \
        return components; \
    }

static const pl_registration_t *layers_plugin(void)
{
    static const pl_registration_t layers[] = {{"module", &pl_layers_module},
                                               PL_REGISTRATIONS_END};
    return layers;
}

/* ---- transformers ---- */

typedef struct attention {
    int64_t heads;
    bool is_causal, is_rotary, has_bias;
} attention_t;

static pl_node_t linear(pl_graph_t *g, const char *name, pl_node_t x, int64_t units,
                        bool has_bias)
{
    const pl_init_rule_t weight = pl_normal(0.02), bias = pl_zeros();
    const pl_linear_options_t options = {!has_bias, &weight, &bias};
    return pl_linear_with(g, name, x, units, &options);
}

/* Self-attention of x [B, T, C]. */
static pl_node_t attend(pl_graph_t *g, pl_node_t x, const attention_t *a)
{
    const pl_shape_t shape = pl_shape_of(g, x);
    const int64_t C = shape.dim[2];
    const pl_attention_options_t options = {.causal = a->is_causal,
                                            .rotary = a->is_rotary};
    const pl_node_t qkv = linear(g, "qkv", x, 3 * C, a->has_bias);
    pl_node_t part[3];
    for (int k = 0; k < 3; k++) {                           /* [B, heads, T, C / heads] */
        part[k] = pl_slice(g, qkv, 2, k * C, (k + 1) * C);
        part[k] = pl_reshape(
            g, part[k], PL_SHAPE(shape.dim[0], shape.dim[1], a->heads, C / a->heads));
        part[k] = pl_permute(g, part[k], (int[]){0, 2, 1, 3});
    }
    x = pl_attention(g, part[0], part[1], part[2], &options);
    x = pl_reshape(g, pl_permute(g, x, (int[]){0, 2, 1, 3}), shape);
    return linear(g, "proj", x, C, a->has_bias);
}

/* Dosovitskiy et al., "An image is worth 16 x 16 words", 2020, in the size of Touvron et
 * al., DeiT-Ti, 2020: 12 layers of 3 heads and 192 channels. */
static void vit_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const attention_t a = {.heads = 3, .has_bias = true};
    const pl_convolution_options_t patches = {
        .windows = {.kernel = {16, 16}, .stride = {16, 16}}};
    const pl_node_t images = pl_input(g, "x");
    const int64_t B = pl_dim(g, images, 0), C = 192;
    pl_node_t x = pl_conv(g, "patches", images, C, &patches);
    x = pl_permute(g, pl_reshape(g, x, PL_SHAPE(B, C, -1)), (int[]){0, 2, 1});
    const pl_node_t label = pl_param(g, "label", PL_SHAPE(1, 1, C), pl_normal(0.02)),
                    first = pl_repeat(g, label, (int64_t[]){B, 1, 1}),
                    both[] = {first, x};
    x = pl_concat(g, both, 2, 1);                           /* [B, T, C] */
    x = pl_add(g, x,
               pl_param(g, "places", PL_SHAPE(pl_dim(g, x, 1), C), pl_normal(0.02)));
    for (int k = 0; k < 12; k++) {
        pl_scope(g, "%d", k);
        x = pl_add(g, x, attend(g, pl_layer_norm(g, "norm1", x, 1e-6), &a));
        pl_node_t y = linear(g, "up", pl_layer_norm(g, "norm2", x, 1e-6), 4 * C, true);
        x = pl_add(g, x, linear(g, "down", pl_gelu(g, y), C, true));
        pl_scope_end(g);
    }
    x = pl_reshape(g, pl_slice(g, x, 1, 0, 1), PL_SHAPE(B, C));
    x = linear(g, "head", pl_layer_norm(g, "norm", x, 1e-6), 1000, true);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

/* Touvron et al., "LLaMA", 2023, in the size of the 15 million parameters of llama2.c's
 * stories15M: the last layer has the embedding's weights. */
static void llama_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const attention_t a = {.heads = 6, .is_causal = true, .is_rotary = true};
    const pl_norm_options_t norm = {.epsilon = 1e-5};
    const pl_cross_entropy_options_t ignored = {.has_ignore = true, .ignore_index = -1};
    const int64_t C = 288, hidden = 768, vocabulary = 32000;
    pl_node_t x = pl_embedding(g, "tokens", pl_input(g, "x"), vocabulary, C,
                               pl_normal(0.02));
    for (int k = 0; k < 6; k++) {
        pl_scope(g, "%d", k);
        x = pl_add(g, x, attend(g, pl_rms_norm(g, "norm1", x, &norm), &a));
        const pl_node_t y = pl_rms_norm(g, "norm2", x, &norm),
                        gate = pl_silu(g, linear(g, "gate", y, hidden, false)),
                        up = linear(g, "up", y, hidden, false);
        x = pl_add(g, x, linear(g, "down", pl_mul(g, gate, up), C, false));
        pl_scope_end(g);
    }
    x = pl_rms_norm(g, "norm", x, &norm);
    x = linear(g, "tokens", x, vocabulary, false);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), &ignored));
}

/* ---- a table ---- */

/* Each of 20 columns has 1000 categories and an embedding of its own; the target is yes
 * or no. */
static void table_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    enum { COLUMNS = 20, CATEGORIES = 1000, WIDTH = 16 };
    (void)self, (void)stage;
    const pl_node_t all = pl_input(g, "x");
    const int64_t B = pl_dim(g, all, 0);
    pl_node_t column[COLUMNS];
    for (int k = 0; k < COLUMNS; k++) {
        const pl_node_t c = pl_reshape(g, pl_slice(g, all, 1, k, k + 1), PL_SHAPE(B));
        pl_scope(g, "column%d", k);
        column[k] = pl_embedding(g, "categories", c, CATEGORIES, WIDTH, pl_normal(1));
        pl_scope_end(g);
    }
    pl_node_t x = pl_concat(g, column, COLUMNS, 1);
    x = pl_relu(g, pl_linear(g, "fc1", x, 200));
    x = pl_relu(g, pl_linear(g, "fc2", x, 100));
    x = pl_linear(g, "fc3", x, 1);
    const pl_node_t y = pl_cast(g, pl_slice(g, pl_input(g, "y"), 1, 0, 1), PL_F32);
    const pl_node_t yes = pl_greater(g, y, pl_scalar(g, CATEGORIES / 2));
    pl_loss(g, pl_bce_with_logits(g, x, pl_cast(g, yes, PL_F32), NULL));
}

MODULE(vit)
MODULE(llama)
MODULE(table)

/* ---- He et al., "Deep residual learning", 2015: ResNet-18 ---- */

#define TWO(channels, stride) \
    "\"conv " #channels " 3 stride=" #stride " padding=1 no_bias\", \"batch_norm\", " \
    "\"relu\", \"conv " #channels " 3 padding=1 no_bias\", \"batch_norm\""
#define SAME(channels) "{\"residual\": [" TWO(channels, 1) "]}, \"relu\""
#define HALF(channels) \
    "{\"residual\": [" TWO(channels, 2) "], \"shortcut\": [\"conv " #channels \
    " 1 stride=2 no_bias\", \"batch_norm\"]}, \"relu\""
#define RESNET18 \
    "{\"classes\": 10, \"layers\": [\"conv 64 7 stride=2 padding=3 no_bias\", " \
    "\"batch_norm\", \"relu\", \"pool 3 stride=2 padding=1\", " SAME(64) ", " SAME(64) \
    ", " HALF(128) ", " SAME(128) ", " HALF(256) ", " SAME(256) ", " HALF(512) ", " \
    SAME(512) ", \"global_pool\", \"linear auto\"]}"

#define GPT(layers, heads, width, context, vocabulary, bias) \
    "{\"layers\": " #layers ", \"heads\": " #heads ", \"width\": " #width \
    ", \"context\": " #context ", \"vocabulary_size\": " #vocabulary \
    ", \"bias\": " #bias "}"
#define ADAMW &pl_adamw_optimizer, "{\"lr\": 0.0003, \"weight_decay\": 0.1}", 0

const training_case_t bench_workloads[] = {
    {"mlp", mlp_plugin, "{\"hidden\": [128], \"classes\": 10}", &pl_sgd_optimizer,
     "{\"lr\": 0.01}", 0, false, PL_SHAPE(64, 784), 10},
    {"cnn", cnn_plugin, "{\"classes\": 10}", &pl_adam_optimizer, "{}", 0, false,
     PL_SHAPE(64, 1, 28, 28), 10},
    {"gpt-small", gpt_plugin, GPT(4, 4, 128, 64, 65, false), ADAMW, true,
     PL_SHAPE(12, 64), 65},
    {"gpt-char", gpt_plugin, GPT(6, 6, 384, 256, 65, false), ADAMW, true,
     PL_SHAPE(8, 256), 65},
    {"gpt2", gpt_plugin, GPT(12, 12, 768, 1024, 50257, true), ADAMW, true,
     PL_SHAPE(4, 64), 50257},
    {"resnet18", layers_plugin, RESNET18, &pl_sgd_optimizer,
     "{\"lr\": 0.01, \"momentum\": 0.9}", 0, false, PL_SHAPE(32, 3, 64, 64), 10},
    {"vit-tiny", vit_plugin, "{}", ADAMW, false, PL_SHAPE(8, 3, 224, 224), 1000},
    {"lstm", layers_plugin,
     "{\"layers\": [\"embedding 65 512\", \"lstm 512 layers=2\", \"linear 65\"], "
     "\"classes\": 65, \"ignore_index\": -1}",
     ADAMW, true, PL_SHAPE(32, 64), 65},
    {"llama", llama_plugin, "{}", ADAMW, true, PL_SHAPE(4, 256), 32000},
    {"table", table_plugin, "{}", ADAMW, true, PL_SHAPE(256, 20), 1000, NULL, NULL, 0,
     256},
};
const int bench_workload_count = sizeof bench_workloads / sizeof *bench_workloads;
