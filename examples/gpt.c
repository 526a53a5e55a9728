/* gpt.c - a language model: tokens in, logits of the next token out
 *
 * GPT-2 as in nanoGPT, with its parameter names: blocks of attention and a perceptron,
 * each with a residual connection.  The last layer shares the weights of the token
 * embedding.  In comments: B batch, T tokens, C width. */
#include <math.h>
#include <paceline.h>
#include <stdio.h>
#include <string.h>

typedef struct gpt {
    int64_t layers, heads, width, context, vocabulary_size, ignore_index;
    double dropout;
    bool bias;
} gpt_t;

static const pl_option_t gpt_options[] = {
    PL_INT(gpt_t, layers, "4", "1..", "blocks"),
    PL_INT(gpt_t, heads, "4", "1..", "attention heads of each block"),
    PL_INT(gpt_t, width, "128", "1..", "channels; a multiple of heads"),
    PL_INT(gpt_t, context, "\"auto\"", "1..", "maximum number of tokens of a sequence"),
    PL_INT(gpt_t, vocabulary_size, "\"auto\"", "1..", "number of different tokens"),
    PL_FLOAT(gpt_t, dropout, "0", "[0..1)", "probability of a zero"),
    PL_BOOL(gpt_t, bias, "false", "biases in linear layers"),
    PL_INT(gpt_t, ignore_index, "-1", "-2147483648..2147483647",
           "tokens with this target are ignored in the loss"),
    PL_OPTIONS_END,
};

static pl_node_t linear(pl_graph_t *g, const gpt_t *m, const char *name, pl_node_t x,
                        int64_t units, double deviation)
{
    const pl_init_rule_t weight = pl_normal(deviation), bias = pl_zeros();
    const pl_linear_options_t options = {!m->bias, &weight, &bias};
    return pl_linear_with(g, name, x, units, &options);
}

/* The more layers, the smaller the first weights of each layer's output. */
static pl_node_t project(pl_graph_t *g, const gpt_t *m, const char *name, pl_node_t x)
{
    const double deviation = 0.02 / sqrt(2.0 * (double)m->layers);
    return pl_dropout(g, linear(g, m, name, x, m->width, deviation), m->dropout);
}

/* The k-th of q, k and v out of qkv [B, T, 3C], a head at a time: [B, heads, T, d]. */
static pl_node_t heads(pl_graph_t *g, const gpt_t *m, pl_node_t qkv, int k)
{
    const int64_t B = pl_dim(g, qkv, 0), T = pl_dim(g, qkv, 1), C = m->width;
    pl_node_t x = pl_slice(g, qkv, 2, k * C, (k + 1) * C);
    x = pl_reshape(g, x, PL_SHAPE(B, T, m->heads, C / m->heads));
    return pl_permute(g, x, (int[]){0, 2, 1, 3});
}

static pl_node_t attention(pl_graph_t *g, const gpt_t *m, pl_node_t x)
{
    const pl_attention_options_t causal = {.causal = true, .dropout = m->dropout};
    const pl_shape_t shape = pl_shape_of(g, x);             /* [B, T, C] */
    pl_node_t qkv = linear(g, m, "attn.c_attn", x, 3 * m->width, 0.02);
    pl_node_t q = heads(g, m, qkv, 0), k = heads(g, m, qkv, 1), v = heads(g, m, qkv, 2);
    x = pl_permute(g, pl_attention(g, q, k, v, &causal), (int[]){0, 2, 1, 3});
    return project(g, m, "attn.c_proj", pl_reshape(g, x, shape));
}

static pl_node_t perceptron(pl_graph_t *g, const gpt_t *m, pl_node_t x)
{
    x = pl_gelu_tanh(g, linear(g, m, "mlp.c_fc", x, 4 * m->width, 0.02));
    return project(g, m, "mlp.c_proj", x);
}

/* Tokens [B, T] and their positions as vectors [B, T, C]. */
static pl_node_t embed(pl_graph_t *g, const gpt_t *m, pl_node_t tokens)
{
    const pl_init_rule_t small = pl_normal(0.02);
    pl_node_t places = pl_range(g, pl_dim(g, tokens, 1));
    pl_node_t wte = pl_embedding(g, "wte", tokens, m->vocabulary_size, m->width, small);
    pl_node_t wpe = pl_embedding(g, "wpe", places, m->context, m->width, small);
    return pl_dropout(g, pl_add(g, wte, wpe), m->dropout);
}

static void gpt_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const gpt_t *m = self;
    pl_node_t tokens = pl_input(g, "x");
    if (m->width % m->heads)
        pl_graph_fail(g, PL_EINVAL, "width must be a multiple of heads");
    if (pl_dim(g, tokens, 1) > m->context)
        pl_graph_fail(g, PL_EINVAL, "a sequence has more tokens than \"context\"");
    pl_node_t x = embed(g, m, tokens);
    for (int i = 0; i < m->layers; i++) {
        pl_scope(g, "h.%d", i);
        x = pl_add(g, x, attention(g, m, pl_layer_norm(g, "ln_1", x, 1e-5)));
        x = pl_add(g, x, perceptron(g, m, pl_layer_norm(g, "ln_2", x, 1e-5)));
        pl_scope_end(g);
    }
    const pl_linear_options_t tied = {.no_bias = true};
    x = pl_layer_norm(g, "ln_f", x, 1e-5);
    x = pl_linear_with(g, "wte", x, m->vocabulary_size, &tied);
    pl_output(g, "logits", x);                              /* [B, T, vocabulary] */
    if (stage == PL_PREDICT)
        return;
    const pl_cross_entropy_options_t padding = {.has_ignore = true,
                                                .ignore_index = m->ignore_index};
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), &padding));
}

static bool ends(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && !strcmp(name + length - tail, end);
}

/* Hugging Face's GPT-2: the same names, matrices as [in, out], and masks, which this
 * model does not have. */
static bool gpt_import_tensor(const void *self, const char *theirs,
                              pl_imported_tensor_t *ours)
{
    (void)self;
    if (!strncmp(theirs, "transformer.", 12))
        theirs += 12;
    if (!strcmp(theirs, "lm_head.weight") || ends(theirs, ".attn.bias")
        || ends(theirs, ".attn.masked_bias"))
        return false;
    snprintf(ours->name, sizeof ours->name, "%s", theirs);
    ours->transposed = ends(theirs, ".c_attn.weight") || ends(theirs, ".c_proj.weight")
                       || ends(theirs, ".c_fc.weight");
    return true;
}

static const pl_module_ops_t gpt_module = {
    .name = "gpt",
    .help =
        "GPT-2 language model; init_from also accepts Hugging Face's weights of GPT-2",
    .size = sizeof(gpt_t),
    .options = gpt_options,
    .step = gpt_step,
    .import_tensor = gpt_import_tensor,
};

PL_PLUGIN({"module", &gpt_module})
