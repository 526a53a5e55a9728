/* mlp.c - a multi-layer perceptron: flat samples in; classes, labels or values out
 *
 * mlp_step() is the whole model: it describes the computation of one batch, and Paceline
 * derives training, validation and prediction from it.  Build it as a shared object and
 * name it in a run file: "module": {"name": "mlp"}. */
#include <paceline.h>
#include <stdio.h>
#include <string.h>

enum { TASK_AUTO, TASK_CLASS, TASK_LABELS, TASK_VALUE };
enum { NORM_NONE, NORM_BATCH, NORM_LAYER };

typedef struct mlp {
    int task, norm;
    pl_ints_t hidden;
    const char *activation, *metrics;
    double dropout;
    pl_reals_t class_weights;
    double target_mean, target_factor;
    pl_reals_t target_means, target_factors;
    int64_t classes, outputs, labels, ignore_index, category_values, embedding;
} mlp_t;

static const pl_option_t mlp_options[] = {
    PL_WORD(mlp_t, task, "\"auto\"", "auto|class|labels|value",
            "what is predicted: a class, several labels of a sample, or values; auto: a "
            "class if the target is a whole number, labels if it is several of 0 and 1, "
            "else values"),
    PL_INTS(mlp_t, hidden, "[128]", "1..", "units of each hidden layer"),
    PL_TEXT(mlp_t, activation, "\"relu\"", "relu|gelu|tanh",
            "activation after each hidden layer"),
    PL_WORD(mlp_t, norm, "\"none\"", "none|batch|layer",
            "normalization before each activation"),
    PL_FLOAT(mlp_t, dropout, "0", "[0..1)",
             "probability of a zero after each hidden layer"),
    PL_INT(mlp_t, classes, "\"auto\"", "0..",
           "number of classes; the targets must be their numbers, from 0; 0: none"),
    PL_INT(mlp_t, outputs, "\"auto\"", "0..",
           "number of values of a sample; 0: as the target, or 1"),
    PL_INT(mlp_t, labels, "\"auto\"", "0..",
           "number of labels of a sample; 0: as the target, or \"outputs\""),
    PL_REALS(mlp_t, class_weights, "[]", "0..",
             "weight of each class in the loss, or of each label where it is 1; []: all "
             "1"),
    PL_INT(mlp_t, ignore_index, "-100", "-2147483648..2147483647",
           "samples with this target are ignored in loss and accuracy"),
    PL_FLOAT(mlp_t, target_mean, "\"auto\"", "-1e300..1e300",
             "values are learnt as (value - target_mean) * target_factor"),
    PL_FLOAT(mlp_t, target_factor, "\"auto\"", "0..", "0: values are learnt as they are"),
    PL_REALS(mlp_t, target_means, "\"auto\"", "-1e300..1e300",
             "the same for several targets, which may repeat: a number for each"),
    PL_REALS(mlp_t, target_factors, "\"auto\"", "0..", "a number for each; []: none"),
    PL_INT(mlp_t, category_values, "\"auto\"", "0..",
           "number of different whole numbers in the field c, the categories; 0: none"),
    PL_INT(mlp_t, embedding, "8", "1..", "numbers that stand for a category"),
    {"metrics", PL_OPTION_JSON, offsetof(mlp_t, metrics), "null", NULL,
     "list of metrics to log, such as [\"acc\", \"f1 weighted\"]; []: none; null: acc, "
     "or mae and r2"},
    PL_OPTIONS_END,
};

/* The metrics of the run file, or those of the task. */
static void log_metrics(pl_graph_t *g, const mlp_t *m, pl_task_t task, pl_node_t x,
                        pl_node_t y)
{
    const pl_classes_options_t ignored = {.has_ignore = task == PL_TASK_CLASS,
                                          .ignore_index = m->ignore_index};
    const char *names = task == PL_TASK_VALUE ? "[\"mae\", \"r2\"]" : "[\"acc\"]";
    pl_log_metrics(g, strcmp(m->metrics, "null") != 0 ? m->metrics : names, task, x, y,
                   &ignored);
}

/* class_weights as a node, [count]; false: none are given. */
static bool has_weights(pl_graph_t *g, const mlp_t *m, const char *what, int64_t count,
                        pl_node_t *weights)
{
    if (!m->class_weights.count)
        return false;
    if (m->class_weights.count != count)
        pl_graph_fail(g, PL_EINVAL,
                      "the length of class_weights is %d, but the number of %s is %lld",
                      m->class_weights.count, what, (long long)count);
    *weights = pl_vector(g, m->class_weights.value, m->class_weights.count);
    return true;
}

/* Losses are weighted by the field "weight" of the data, if there is one, [B]. */
static bool has_samples(pl_graph_t *g, pl_node_t *samples)
{
    if (!pl_has_input(g, "weight"))
        return false;
    *samples = pl_input(g, "weight");
    return true;
}

static void classify(pl_graph_t *g, const mlp_t *m, pl_node_t logits, pl_node_t y)
{
    pl_cross_entropy_options_t o = {.has_ignore = true, .ignore_index = m->ignore_index};
    pl_node_t classes, samples;
    if (has_weights(g, m, "classes", m->classes, &classes))
        o.class_weights = &classes;
    if (has_samples(g, &samples))
        o.weights = &samples;
    pl_loss(g, pl_cross_entropy(g, logits, y, &o));
    log_metrics(g, m, PL_TASK_CLASS, logits, y);
}

/* Each label is a question of its own; a logit above 0 answers it with yes.  logits, y
 * [B, labels]. */
static void find_labels(pl_graph_t *g, const mlp_t *m, pl_node_t logits, pl_node_t y)
{
    const pl_shape_t shape = pl_shape_of(g, logits);
    pl_bce_options_t o = {0};
    pl_node_t labels, samples;
    if (has_weights(g, m, "labels", shape.dim[1], &labels))
        o.positive_weights = &labels;
    if (has_samples(g, &samples)) {
        samples = pl_reshape(g, samples, PL_SHAPE(-1, 1));
        o.weights = &samples;
    }
    pl_loss(g, pl_bce_with_logits(g, logits, y, &o));
    log_metrics(g, m, PL_TASK_LABELS, logits, y);
}

/* Values [B, values] of several targets that repeat, in their unit or from it. */
static pl_node_t rescale_each(pl_graph_t *g, const mlp_t *m, pl_node_t x, bool back)
{
    const int count = m->target_factors.count;
    const pl_shape_t shape = pl_shape_of(g, x);
    double factor[sizeof m->target_factors.value / sizeof(double)];
    if (count != m->target_means.count || shape.dim[shape.rank - 1] % count)
        pl_graph_fail(g, PL_EINVAL,
                      "target_means and target_factors need a number for each of the "
                      "%d targets",
                      count);
    for (int k = 0; k < count; k++)
        factor[k] = back ? 1 / m->target_factors.value[k] : m->target_factors.value[k];
    const pl_node_t mean = pl_vector(g, m->target_means.value, count),
                    by = pl_vector(g, factor, count);
    x = pl_reshape(g, x, PL_SHAPE(-1, count));
    x = back ? pl_add(g, pl_mul(g, x, by), mean) : pl_mul(g, pl_sub(g, x, mean), by);
    return pl_reshape(g, x, shape);
}

/* Values in the unit of the targets. */
static pl_node_t unscale(pl_graph_t *g, const mlp_t *m, pl_node_t x)
{
    if (m->target_factors.count)
        return rescale_each(g, m, x, true);
    if (!(m->target_factor > 0))
        return x;
    return pl_add(g, pl_mul(g, x, pl_scalar(g, 1 / m->target_factor)),
                  pl_scalar(g, m->target_mean));
}

/* x, y [B] or [B, values]; x is scaled, y is not. */
static void fit_values(pl_graph_t *g, const mlp_t *m, pl_node_t x, pl_node_t y)
{
    const pl_node_t value = unscale(g, m, x);
    pl_node_t samples, scaled = y;
    if (m->target_factors.count)
        scaled = rescale_each(g, m, y, false);
    else if (m->target_factor > 0)
        scaled = pl_mul(g, pl_sub(g, y, pl_scalar(g, m->target_mean)),
                        pl_scalar(g, m->target_factor));
    if (m->class_weights.count)
        pl_graph_fail(g, PL_EINVAL,
                      "class_weights are for classes and labels, and the "
                      "task is value: remove them");
    pl_loss(g, has_samples(g, &samples) ? pl_weighted_mse(g, x, scaled, samples)
                                        : pl_mse(g, x, scaled));
    log_metrics(g, m, PL_TASK_VALUE, value, y);
}

static pl_node_t hidden_layer(pl_graph_t *g, const mlp_t *m, pl_node_t x, int number)
{
    char name[16];
    snprintf(name, sizeof name, "fc%d", number);
    x = pl_linear(g, name, x, m->hidden.value[number - 1]);  /* [B, hidden] */
    snprintf(name, sizeof name, "norm%d", number);
    if (m->norm == NORM_BATCH)
        x = pl_batch_norm(g, name, x, 0.1, 1e-5);
    else if (m->norm == NORM_LAYER)
        x = pl_layer_norm(g, name, x, 1e-5);
    if (!strcmp(m->activation, "relu"))
        x = pl_relu(g, x);
    else
        x = !strcmp(m->activation, "gelu") ? pl_gelu(g, x) : pl_tanh(g, x);
    return pl_dropout(g, x, m->dropout);
}

/* What the data knows decides: it counts classes where the targets are whole numbers. */
static int task_of(pl_graph_t *g, const mlp_t *m, bool has_target)
{
    const int task = m->task != TASK_AUTO ? m->task
                     : m->labels          ? TASK_LABELS
                     : m->classes         ? TASK_CLASS
                                          : TASK_VALUE;
    const bool is_value = m->classes == 0 && has_target
                          && pl_dtype_of(g, pl_input(g, "y")) == PL_F32;
    if (m->classes == 0 && task != TASK_LABELS
        && (task == TASK_CLASS || (m->task == TASK_AUTO && has_target && !is_value)))
        pl_graph_fail(g, PL_EINVAL,
                      is_value ? "module.task is class, but the targets are values: "
                                 "number the classes from 0, as whole numbers"
                               : "the data does not say how many classes there are: set "
                                 "module.classes");
    return task;
}

/* Where predictions have no target, the training data's width of it is in outputs. */
static void mlp_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const mlp_t *m = self;
    const bool has_target = pl_has_input(g, "y");
    const int task = task_of(g, m, has_target);
    int64_t outputs = task == TASK_CLASS                 ? m->classes
                      : task == TASK_LABELS && m->labels ? m->labels
                      : m->outputs                       ? m->outputs
                                                         : 1;
    char name[16];
    pl_node_t x = pl_flatten(g, pl_input(g, "x"), 1);       /* [B, features] */
    if (m->category_values && pl_has_input(g, "c")) {
        const pl_node_t c = pl_embedding(g, "categories", pl_input(g, "c"),
                                         m->category_values, m->embedding,
                                         pl_normal(0.5));
        const pl_node_t both[] = {x, pl_flatten(g, c, 1)};  /* [B, columns embedding] */
        x = pl_concat(g, both, 2, 1);
    }
    if (task != TASK_CLASS && has_target) {                 /* [B], or [B, ...] */
        const pl_shape_t y = pl_shape_of(g, pl_input(g, "y"));
        outputs = 1;
        for (int axis = 1; axis < y.rank; axis++)
            outputs *= y.dim[axis];
    }
    for (int k = 1; k <= m->hidden.count; k++)
        x = hidden_layer(g, m, x, k);
    snprintf(name, sizeof name, "fc%d", m->hidden.count + 1);
    x = pl_linear(g, name, x, outputs);                     /* [B, outputs] */
    if (task == TASK_VALUE && outputs == 1)
        x = pl_flatten(g, x, 0);                            /* [B] */
    if (task == TASK_CLASS)
        pl_output(g, "logits", x);
    else if (task == TASK_LABELS)
        pl_output(g, "labels", pl_sigmoid(g, x));           /* the probability of each */
    else
        pl_output(g, "value", unscale(g, m, x));
    if (stage == PL_PREDICT)
        return;
    const pl_node_t y = pl_input(g, "y");
    if (task == TASK_CLASS)
        classify(g, m, x, y);
    else if (task == TASK_LABELS)
        find_labels(g, m, x, pl_reshape(g, pl_cast(g, y, PL_F32), pl_shape_of(g, x)));
    else
        fit_values(g, m, x, pl_reshape(g, y, pl_shape_of(g, x)));
}

static const char *mlp_check(const void *self, pl_error_t *err)
{
    const mlp_t *m = self;
    return pl_metrics_check(m->metrics, err) == PL_OK ? NULL : "metrics";
}

static const pl_module_ops_t mlp_module = {
    .name = "mlp",
    .help = "multi-layer perceptron for classes, labels or values",
    .size = sizeof(mlp_t),
    .options = mlp_options,
    .check = mlp_check,
    .step = mlp_step,
};

PL_PLUGIN({"module", &mlp_module})
