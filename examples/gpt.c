/* gpt.c - a language model: tokens in, logits of the next token out
 *
 * GPT-2 as in nanoGPT, whose names the parameters have: a tower of blocks, each attention and then a perceptron, each
 * added to what came in.  The last layer is the token embedding once more. */
#include <math.h>
#include <paceline.h>

typedef struct gpt {
    int64_t layers, heads, width, context, vocabulary_size;
    double dropout;
    bool bias;
} gpt_t;

static const pl_option_t gpt_options[] = {
    PL_INT(gpt_t, layers, "4", "1..", "blocks"),
    PL_INT(gpt_t, heads, "4", "1..", "attention heads of each block"),
    PL_INT(gpt_t, width, "128", "1..", "channels; a multiple of heads"),
    PL_INT(gpt_t, context, "\"auto\"", "1..", "most tokens that are seen at once"),
    PL_INT(gpt_t, vocabulary_size, "\"auto\"", "1..", "different tokens"),
    PL_FLOAT(gpt_t, dropout, "0", "[0..1)", "probability of a zero"),
    PL_BOOL(gpt_t, bias, "false", "biases in linear layers"),
    PL_OPTIONS_END,
};

/* A linear layer that starts small; `depth` is how many of its kind are added up on the way through the model. */
static pl_node_t linear(pl_graph_t *g, const gpt_t *m, const char *name, pl_node_t x, int64_t units, int64_t depth)
{
    const pl_init_rule_t weight = pl_normal(0.02 / sqrt((double)depth)), bias = pl_zeros();
    const pl_linear_options_t options = {.no_bias = !m->bias, .weight = &weight, .bias = &bias};
    return pl_linear_with(g, name, x, units, &options);
}

/* The k-th of q, k and v out of qkv [B, T, 3 width], a head at a time: [B, heads, T, width / heads]. */
static pl_node_t heads(pl_graph_t *g, const gpt_t *m, pl_node_t qkv, int k)
{
    pl_node_t x = pl_slice(g, qkv, 2, k * m->width, (k + 1) * m->width);
    x = pl_reshape(g, x, PL_SHAPE(pl_dim(g, x, 0), pl_dim(g, x, 1), m->heads, m->width / m->heads));
    return pl_permute(g, x, (int[]){0, 2, 1, 3});
}

static pl_node_t attention(pl_graph_t *g, const gpt_t *m, pl_node_t x)
{
    const pl_attention_options_t options = {.causal = true, .dropout = m->dropout};
    const pl_shape_t shape = pl_shape_of(g, x);                         /* [B, T, width] */
    pl_node_t qkv = linear(g, m, "attn.c_attn", x, 3 * m->width, 1);
    x = pl_attention(g, heads(g, m, qkv, 0), heads(g, m, qkv, 1), heads(g, m, qkv, 2), &options);
    x = pl_reshape(g, pl_permute(g, x, (int[]){0, 2, 1, 3}), shape);
    return pl_dropout(g, linear(g, m, "attn.c_proj", x, m->width, 2 * m->layers), m->dropout);
}

static pl_node_t perceptron(pl_graph_t *g, const gpt_t *m, pl_node_t x)
{
    x = pl_gelu_tanh(g, linear(g, m, "mlp.c_fc", x, 4 * m->width, 1));
    return pl_dropout(g, linear(g, m, "mlp.c_proj", x, m->width, 2 * m->layers), m->dropout);
}

static pl_node_t block(pl_graph_t *g, const gpt_t *m, pl_node_t x)
{
    x = pl_add(g, x, attention(g, m, pl_layer_norm(g, "ln_1", x, 1e-5)));
    return pl_add(g, x, perceptron(g, m, pl_layer_norm(g, "ln_2", x, 1e-5)));
}

static void gpt_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const gpt_t *m = self;
    pl_node_t tokens = pl_input(g, "x");                                /* [B, T] */
    const int64_t T = pl_dim(g, tokens, -1);
    if (m->width % m->heads)
        pl_graph_fail(g, PL_EINVAL, "width must be a multiple of heads");
    if (T > m->context)
        pl_graph_fail(g, PL_EINVAL, "%lld tokens do not fit a context of %lld", (long long)T, (long long)m->context);
    pl_node_t x = pl_embedding(g, "wte", tokens, m->vocabulary_size, m->width, pl_normal(0.02));
    x = pl_add(g, x, pl_embedding(g, "wpe", pl_range(g, T), m->context, m->width, pl_normal(0.02)));
    x = pl_dropout(g, x, m->dropout);                                   /* [B, T, width] */
    for (int i = 0; i < m->layers; i++) {
        pl_scope(g, "h.%d", i);
        x = block(g, m, x);
        pl_scope_end(g);
    }
    x = pl_layer_norm(g, "ln_f", x, 1e-5);
    x = pl_linear_with(g, "wte", x, m->vocabulary_size, &(pl_linear_options_t){.no_bias = true});
    pl_output(g, "logits", x);                                          /* [B, T, vocabulary_size] */
    if (stage == PL_PREDICT)
        return;
    const pl_cross_entropy_options_t padding = {.has_ignore = true, .ignore_index = -1};
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), &padding));
}

static const pl_module_ops_t gpt_module = {
    .name = "gpt",
    .help = "GPT-2 language model",
    .size = sizeof(gpt_t),
    .options = gpt_options,
    .step = gpt_step,
};

PL_PLUGIN({"module", &gpt_module})
