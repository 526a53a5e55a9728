/* mlp.c - a multi-layer perceptron: flat samples in, logits of classes out
 *
 * mlp_step() is the whole model: it describes the computation of one batch, and Paceline
 * derives training, validation and prediction from it.  Build it as a shared object and
 * name it in a run file: "module": {"name": "mlp"}. */
#include <paceline.h>
#include <stdio.h>
#include <string.h>

typedef struct mlp {
    pl_ints_t hidden;
    const char *activation;
    double dropout;
    pl_reals_t class_weights;
    int64_t classes, ignore_index;
} mlp_t;

static const pl_option_t mlp_options[] = {
    PL_INTS(mlp_t, hidden, "[128]", "1..", "units of each hidden layer"),
    PL_TEXT(mlp_t, activation, "\"relu\"", "relu|gelu|tanh",
            "activation after each hidden layer"),
    PL_FLOAT(mlp_t, dropout, "0", "[0..1)",
             "probability of a zero after each hidden layer"),
    PL_INT(mlp_t, classes, "\"auto\"", "1..",
           "number of classes; the targets must be their numbers, from 0"),
    PL_REALS(mlp_t, class_weights, "[]", "0..",
             "weight of each class in the loss; []: all 1"),
    PL_INT(mlp_t, ignore_index, "-100", "-2147483648..2147483647",
           "samples with this target are ignored in loss and accuracy"),
    PL_OPTIONS_END,
};

/* Weighted by class_weights and by the field "weight" of the data, if they are given. */
static pl_loss_t loss_of(pl_graph_t *g, const mlp_t *m, pl_node_t logits, pl_node_t y)
{
    pl_cross_entropy_options_t o = {.has_ignore = true, .ignore_index = m->ignore_index};
    pl_node_t classes, samples;
    if (m->class_weights.count && m->class_weights.count != m->classes)
        pl_graph_fail(g, PL_EINVAL,
                      "the length of class_weights is %d, but the number of classes is "
                      "%lld",
                      m->class_weights.count, (long long)m->classes);
    if (m->class_weights.count) {
        classes = pl_vector(g, m->class_weights.value, m->class_weights.count);
        o.class_weights = &classes;
    }
    if (pl_has_input(g, "weight")) {
        samples = pl_input(g, "weight");                    /* [B] */
        o.weights = &samples;
    }
    return pl_cross_entropy(g, logits, y, &o);
}

static pl_node_t activate(pl_graph_t *g, const mlp_t *m, pl_node_t x)
{
    if (!strcmp(m->activation, "relu"))
        return pl_relu(g, x);
    return !strcmp(m->activation, "gelu") ? pl_gelu(g, x) : pl_tanh(g, x);
}

static void mlp_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const mlp_t *m = self;
    char name[16] = "fc1";
    pl_node_t x = pl_flatten(g, pl_input(g, "x"), 1);       /* [B, features] */
    for (int i = 0; i < m->hidden.count; i++) {
        x = activate(g, m, pl_linear(g, name, x, m->hidden.value[i]));  /* [B, hidden] */
        x = pl_dropout(g, x, m->dropout);
        snprintf(name, sizeof name, "fc%d", i + 2);
    }
    x = pl_linear(g, name, x, m->classes);                  /* [B, classes] */
    pl_output(g, "logits", x);
    if (stage == PL_PREDICT)
        return;
    pl_node_t y = pl_input(g, "y");                         /* [B] */
    pl_loss(g, loss_of(g, m, x, y));
    const pl_cross_entropy_options_t ignored = {.has_ignore = true,
                                                .ignore_index = m->ignore_index};
    pl_log(g, "acc", pl_accuracy(g, x, y, &ignored), PL_ON_EPOCH);
}

static const pl_module_ops_t mlp_module = {
    .name = "mlp",
    .help = "multi-layer perceptron, a classifier",
    .size = sizeof(mlp_t),
    .options = mlp_options,
    .step = mlp_step,
};

PL_PLUGIN({"module", &mlp_module})
