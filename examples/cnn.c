/* cnn.c - a small convolutional network: images in, logits of classes out */
#include <paceline.h>
#include <stdio.h>

typedef struct cnn {
    pl_ints_t channels;
    int64_t hidden, classes, ignore_index;
    double dropout;
    pl_reals_t class_weights;
} cnn_t;

static const pl_option_t cnn_options[] = {
    PL_INTS(cnn_t, channels, "[32, 64]", "1..", "channels of each 3x3 convolution"),
    PL_INT(cnn_t, hidden, "128", "1..", "units of the hidden layer"),
    PL_FLOAT(cnn_t, dropout, "0", "[0..1)",
             "probability of a zero after pooling and the hidden layer"),
    PL_INT(cnn_t, classes, "\"auto\"", "1..", "number of classes"),
    PL_REALS(cnn_t, class_weights, "[]", "0..",
             "weight of each class in the loss; []: all 1"),
    PL_INT(cnn_t, ignore_index, "-100", "-2147483648..2147483647",
           "samples with this target are ignored in loss and accuracy"),
    PL_OPTIONS_END,
};

/* Weighted by class_weights and by the field "weight" of the data, if they are given. */
static pl_loss_t loss_of(pl_graph_t *g, const cnn_t *m, pl_node_t logits, pl_node_t y)
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

static void cnn_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const cnn_t *m = self;
    const pl_conv_options_t conv = {.kernel = 3};
    pl_node_t x = pl_input(g, "x");                         /* [B, C, H, W] */
    for (int i = 0; i < m->channels.count; i++) {
        char name[16];
        snprintf(name, sizeof name, "conv%d", i + 1);
        x = pl_relu(g, pl_conv2d(g, name, x, m->channels.value[i], &conv));
    }
    x = pl_dropout(g, pl_max_pool2d(g, x, 2, 2, 0), m->dropout);
    x = pl_relu(g, pl_linear(g, "fc1", pl_flatten(g, x, 1), m->hidden));
    x = pl_linear(g, "fc2", pl_dropout(g, x, m->dropout), m->classes);  /* [B, classes] */
    pl_output(g, "logits", x);
    if (stage == PL_PREDICT)
        return;
    pl_node_t y = pl_input(g, "y");                         /* [B] */
    pl_loss(g, loss_of(g, m, x, y));
    const pl_cross_entropy_options_t ignored = {.has_ignore = true,
                                                .ignore_index = m->ignore_index};
    pl_log(g, "acc", pl_accuracy(g, x, y, &ignored), PL_ON_EPOCH);
}

static const pl_module_ops_t cnn_module = {
    .name = "cnn",
    .help = "small convolutional network",
    .size = sizeof(cnn_t),
    .options = cnn_options,
    .step = cnn_step,
};

PL_PLUGIN({"module", &cnn_module})
