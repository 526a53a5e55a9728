/* layers_module.c - the module "layers": a model as a list of layers in a run file
 *
 * A layer is a text such as "conv 32 3 same", which layers_words.c reads, or an object
 * with lists of its own.  Each layer takes the result of the layer before it.  Its place
 * in the list names its parameters: "0.weight", "3.residual.1.bias", as
 * torch.nn.Sequential would.  The check of a run file builds nothing: it reads the texts
 * against the table of layers_table.c. */
#include "tensor/layers_module.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "tensor/model.h"
#include "tensor/operators.h"

typedef struct layers {
    const char *layers, *metrics;                           /* JSON */
    const char *loss;
    int64_t classes, outputs, labels, vocabulary_size, ignore_index;
    double label_smoothing, target_mean, target_factor;
    pl_reals_t target_means, target_factors;
} layers_t;

enum { USUAL_IGNORED = -100, PADDING = -1 };                /* of targets; in texts */

static const pl_option_t layers_options[] = {
    PL_JSON(layers_t, layers, "the layers, in order: \"linear 128\", \"relu\", …"),
    PL_TEXT(layers_t, loss, "\"\"", NULL,
            "loss, such as \"huber delta=0.5\"; \"\" or auto: cross_entropy for classes "
            "and tokens, bce for labels, mse for values"),
    PL_INT(layers_t, classes, "\"auto\"", "0..",
           "number of classes, which \"linear auto\" has; 0: there are none"),
    PL_INT(layers_t, outputs, "\"auto\"", "0..",
           "number of values of a sample, likewise; 0: as the target, or 1"),
    PL_INT(layers_t, labels, "\"auto\"", "0..",
           "number of labels of a sample, each 0 or 1; 0: there are none"),
    PL_INT(layers_t, vocabulary_size, "\"auto\"", "0..",
           "number of different tokens of a text, which \"embedding auto\" and \"linear "
           "auto\" have; 0: the data is no text"),
    PL_INT(layers_t, ignore_index, "-100", "-2147483648..2147483647",
           "class of samples that loss and accuracy leave out; -100: of texts -1, too, "
           "which ends their last sample"),
    PL_FLOAT(layers_t, label_smoothing, "0", "0..1",
             "share of a class that is spread evenly over all classes"),
    PL_FLOAT(layers_t, target_mean, "\"auto\"", "-1e300..1e300",
             "values are learnt as (value - target_mean) * target_factor"),
    PL_FLOAT(layers_t, target_factor, "\"auto\"", "0..",
             "0: values are learnt as they are"),
    PL_REALS(layers_t, target_means, "\"auto\"", "-1e300..1e300",
             "the same for several targets, which may repeat: a number for each"),
    PL_REALS(layers_t, target_factors, "\"auto\"", "0..", "a number for each; []: none"),
    {"metrics", PL_OPTION_JSON, offsetof(layers_t, metrics), "null", NULL,
     "list of metrics to log, such as [\"acc\", \"f1 weighted\"]; []: none; null: acc, "
     "or mae"},
    PL_OPTIONS_END,
};

/* ---- Lists ---- */

static pl_node_t list_build(pl_layer_builder_t *b, pl_node_t x, const json_t *list,
                            const char *under, const char *key);

static bool has_failed(const pl_layer_builder_t *b)
{
    return b->err ? b->err->code : b->g->error.code;
}

/* {"residual": [...]}: x plus the layers' result; with "shortcut" layers for x, too. */
static pl_node_t residual_build(pl_layer_builder_t *b, pl_node_t x, const json_t *object)
{
    const json_t *shortcut = json_object_get(object, "shortcut");
    const pl_node_t y = list_build(b, x, json_object_get(object, "residual"), "residual",
                                   "residual");
    if (shortcut && !has_failed(b))
        x = list_build(b, x, shortcut, "shortcut", "shortcut");
    return b->err || has_failed(b) ? PL_NO_NODE : pl_add(b->g, x, y);
}

/* {"repeat": 4, "layers": [...]}: the layers again and again, with their own
 * parameters. */
static pl_node_t repeat_build(pl_layer_builder_t *b, pl_node_t x, const json_t *object)
{
    const json_int_t times = json_integer_value(json_object_get(object, "repeat"));
    if (times < 1 || times > 1000) {
        pl_layer_fail(b, "repeat takes a number from 1 to 1000");
        return PL_NO_NODE;
    }
    for (json_int_t k = 0; k < (b->err ? 1 : times) && !has_failed(b); k++) {
        char under[32];
        snprintf(under, sizeof under, "%lld", (long long)k);
        x = list_build(b, x, json_object_get(object, "layers"), under, "layers");
    }
    return x;
}

/* {"each": ["a", "b"], "layers": [...]}: the layers for each of these fields or kept
 * values, with the same parameters.  Each result is kept under the name; the first is
 * x.  To predict, the first is enough. */
static pl_node_t each_build(pl_layer_builder_t *b, pl_node_t x, const json_t *object)
{
    const json_t *names = json_object_get(object, "each");
    pl_node_t result[PL_LAYER_KEPT];
    const size_t count = json_array_size(names);
    if (count < 1 || count > PL_LAYER_KEPT) {
        pl_layer_fail(b, "each takes a list of 1 to %d names of fields or kept values",
                      PL_LAYER_KEPT);
        return PL_NO_NODE;
    }
    for (size_t k = 0; k < count && !has_failed(b); k++) {
        const char *name = json_string_value(json_array_get(names, k));
        if (!name || !*name || strlen(name) >= PL_LAYER_NAME) {
            pl_layer_fail(b, "each takes names of 1 to %d characters", PL_LAYER_NAME - 1);
            return PL_NO_NODE;
        }
        result[k] = PL_NO_NODE;
        if (k && !b->err && b->g->stage == PL_PREDICT && !pl_layer_is_kept(b, name)
            && !pl_has_input(b->g, name))
            continue;
        if (!b->err)
            x = pl_layer_is_kept(b, name) ? pl_layer_kept(b, name) : pl_input(b->g, name);
        if (!has_failed(b))
            result[k] = list_build(b, x, json_object_get(object, "layers"), "each",
                                   "layers");
    }
    for (size_t k = 0; k < count && !b->err && !has_failed(b); k++)
        if (result[k].id >= 0)
            pl_layer_keep(b, json_string_value(json_array_get(names, k)), result[k]);
    return b->err || has_failed(b) ? PL_NO_NODE : result[0];
}

/* {"checkpoint": [...]}: the layers, computed again for backward. */
static pl_node_t checkpoint_build(pl_layer_builder_t *b, pl_node_t x,
                                  const json_t *object)
{
    if (!b->err)
        pl_checkpoint(b->g);
    x = list_build(b, x, json_object_get(object, "checkpoint"), "checkpoint",
                   "checkpoint");
    if (!b->err)
        pl_checkpoint_end(b->g);
    return x;
}

/* {"branches": [[...], [...]], "join": "concat", "axis": 1}: each of x, then joined.
 * {"branches": {"left": [...], "right": [...]}}: parameters have these names. */
static pl_node_t branches_build(pl_layer_builder_t *b, pl_node_t x, const json_t *object)
{
    const json_t *branches = json_object_get(object, "branches"),
                 *join = json_object_get(object, "join"),
                 *axis = json_object_get(object, "axis");
    const char *how = join ? json_string_value(join) : "concat";
    const size_t count = json_is_object(branches) ? json_object_size(branches)
                                                  : json_array_size(branches);
    void *named = json_object_iter((json_t *)branches);     /* NULL: a list */
    pl_node_t part[PL_OPERATOR_INPUTS];
    if (count < 1 || count > PL_OPERATOR_INPUTS) {
        pl_layer_fail(b, "branches takes 1 to %d lists of layers, in a list or by name",
                      PL_OPERATOR_INPUTS);
        return PL_NO_NODE;
    }
    if (!how || (strcmp(how, "concat") && strcmp(how, "add") && strcmp(how, "mul"))) {
        pl_layer_fail(b, "join takes concat, add or mul");
        return PL_NO_NODE;
    }
    for (size_t k = 0; k < count && !has_failed(b); k++) {
        char under[PL_LAYER_NAME + 16];
        const char *name = named ? json_object_iter_key(named) : NULL;
        if (name && (!*name || strlen(name) >= PL_LAYER_NAME || strpbrk(name, ". "))) {
            pl_layer_fail(b,
                          "the name of a branch has 1 to %d characters without dots and "
                          "spaces, and \"%.40s\" does not",
                          PL_LAYER_NAME - 1, name);
            return PL_NO_NODE;
        }
        if (name)
            snprintf(under, sizeof under, "branches.%s", name);
        else
            snprintf(under, sizeof under, "branches.%zu", k);
        part[k] = list_build(b, x,
                             named ? json_object_iter_value(named)
                                   : json_array_get(branches, k),
                             under, under);
        named = named ? json_object_iter_next((json_t *)branches, named) : NULL;
    }
    if (b->err || has_failed(b))
        return PL_NO_NODE;
    if (!strcmp(how, "concat"))
        return pl_concat(b->g, part, (int)count,
                         axis ? (int)json_integer_value(axis) : 1);
    x = part[0];
    for (size_t k = 1; k < count; k++)
        x = !strcmp(how, "add") ? pl_add(b->g, x, part[k]) : pl_mul(b->g, x, part[k]);
    return x;
}

static pl_node_t object_build(pl_layer_builder_t *b, pl_node_t x, const json_t *object)
{
    static const struct {
        const char *key[3];                                 /* the others may lack */
        pl_node_t (*build)(pl_layer_builder_t *b, pl_node_t x, const json_t *object);
    } forms[] = {{{"residual", "shortcut"}, residual_build},
                 {{"repeat", "layers"}, repeat_build},
                 {{"each", "layers"}, each_build},
                 {{"checkpoint"}, checkpoint_build},
                 {{"branches", "join", "axis"}, branches_build}};
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        const char *const *key = forms[k].key, *found;
        json_t *value;
        if (!json_object_get(object, key[0]))
            continue;
        json_object_foreach((json_t *)object, found, value) {
            bool is_known = false;
            for (int i = 0; i < 3 && key[i]; i++)
                is_known = is_known || !strcmp(found, key[i]);
            if (is_known)
                continue;
            if (key[1])
                pl_layer_fail(b, "\"%s\" takes no \"%.40s\", but \"%s\"%s%s%s", key[0],
                              found, key[1], key[2] ? " and \"" : "",
                              key[2] ? key[2] : "", key[2] ? "\"" : "");
            else
                pl_layer_fail(b, "\"%s\" takes no \"%.40s\": remove it", key[0], found);
            return PL_NO_NODE;
        }
        return forms[k].build(b, x, object);
    }
    pl_layer_fail(b, "an object among the layers has \"residual\", \"repeat\", \"each\", "
                     "\"checkpoint\" or \"branches\"");
    return PL_NO_NODE;
}

/* The error of a graph begins with the layer in place of its scope.  A layer that is
 * repeated has the names of its parameters, too. */
static void error_place(pl_layer_builder_t *b, const char *layer)
{
    char text[PL_ERROR_TEXT], scope[PL_LAYER_PATH + 4];
    if (b->err || b->has_place)
        return;
    b->has_place = true;
    snprintf(text, sizeof text, "%s", b->g->error.text);
    snprintf(scope, sizeof scope, "%s: ", b->path);
    const size_t length = strlen(scope);
    const char *rest = strncmp(text, scope, length) ? text : text + length;
    const bool repeats = strcmp(b->path, b->place) != 0;
    pl_fail(&b->g->error, b->g->error.code, "\"module.layers.%s\"%s%s%s%s: %s", b->place,
            layer ? ", " : "", layer ? layer : "", repeats ? ", as " : "",
            repeats ? b->path : "", rest);
}

/* The layers of a list, one after the other.  `under` is its place in the path, `key` in
 * the run file  [the module's own list]. */
static pl_node_t list_build(pl_layer_builder_t *b, pl_node_t x, const json_t *list,
                            const char *under, const char *key)
{
    const size_t before = strlen(b->path), at = strlen(b->place);
    if (!json_is_array(list) || json_array_size(list) == 0) {
        pl_layer_fail(b, "%s takes a list of layers, such as [\"linear 128\", \"relu\"]",
                      key ? key : "layers");
        return PL_NO_NODE;
    }
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *entry = json_array_get(list, k);
        char place[48];
        const int length = snprintf(place, sizeof place, "%s%s%s%zu", before ? "." : "",
                                    under ? under : "", under ? "." : "", k);
        const int shown = snprintf(b->place + at, PL_LAYER_PLACE - at, "%s%s%s%zu",
                                   at ? "." : "", key ? key : "", key ? "." : "", k);
        if (before + (size_t)length >= PL_LAYER_PATH
            || at + (size_t)shown >= PL_LAYER_PLACE) {
            b->place[at] = '\0';
            pl_layer_fail(b, "lists of layers are nested too deep");
            return PL_NO_NODE;
        }
        memcpy(b->path + before, place, (size_t)length + 1);
        x = json_is_string(entry) ? pl_layer_build(b, x, json_string_value(entry))
            : json_is_object(entry)
                ? object_build(b, x, entry)
                : (pl_layer_fail(b, "a layer is a text or an object"), PL_NO_NODE);
        if (has_failed(b)) {
            error_place(b, json_string_value(entry));
            return PL_NO_NODE;                              /* the path stays, for err */
        }
        b->path[before] = b->place[at] = '\0';
    }
    return x;
}

/* ---- The module ---- */

static bool is_auto(const layers_t *m)
{
    return !m->loss || !*m->loss || !strcmp(m->loss, "auto");
}

/* The place of a mistake lasts until the thread's next check. */
static const char *layers_check(const void *self, pl_error_t *err)
{
    static _Thread_local char place[PL_LAYER_PLACE + 16];
    const layers_t *m = self;
    pl_error_t why = {0};
    json_t *list = pl_json_value(m->layers, strlen(m->layers), &why);
    pl_layer_builder_t b = {.classes = m->classes, .err = &why};
    if (list)
        list_build(&b, PL_NO_NODE, list, NULL, NULL);
    json_decref(list);
    if (why.code == PL_OK && !is_auto(m)) {
        pl_layer_words_t words;
        pl_layer_arguments_t arguments;
        if (!pl_loss_read(&b, m->loss, &words, &arguments)) {
            pl_fail(err, why.code, "%s", why.text);
            return "loss";
        }
    }
    if (why.code == PL_OK)
        return pl_metrics_check(m->metrics, err) == PL_OK ? NULL : "metrics";
    pl_fail(err, why.code, "%s", why.text);
    snprintf(place, sizeof place, b.place[0] ? "layers.%s" : "layers", b.place);
    return place;
}

/* Class numbers that loss and metrics leave out. */
static int64_t ignored_of(const layers_t *m)
{
    return m->vocabulary_size && m->ignore_index == USUAL_IGNORED ? PADDING
                                                                  : m->ignore_index;
}

/* Values x [..., targets] as they are learnt, or `back` in the unit of the targets. */
static pl_node_t rescale(pl_graph_t *g, const layers_t *m, pl_node_t x, bool back)
{
    const int count = m->target_factors.count;
    const pl_shape_t shape = pl_shape_of(g, x);
    double factor[sizeof m->target_factors.value / sizeof(double)];
    pl_node_t mean, by;
    if (g->error.code)
        return x;
    if (!count && !(m->target_factor > 0))
        return x;
    if (count) {
        if (count != m->target_means.count || shape.rank < 1
            || shape.dim[shape.rank - 1] % count)
            pl_graph_fail(g, PL_EINVAL,
                          "target_means and target_factors need a number for each of the "
                          "%d targets",
                          count);
        for (int k = 0; k < count; k++)
            factor[k] = back ? 1 / m->target_factors.value[k]
                             : m->target_factors.value[k];
        mean = pl_vector(g, m->target_means.value, count);
        by = pl_vector(g, factor, count);
        x = pl_reshape(g, x, PL_SHAPE(-1, count));
    } else {
        mean = pl_scalar(g, m->target_mean);
        by = pl_scalar(g, back ? 1 / m->target_factor : m->target_factor);
    }
    x = back ? pl_add(g, pl_mul(g, x, by), mean) : pl_mul(g, pl_sub(g, x, mean), by);
    return count ? pl_reshape(g, x, shape) : x;
}

/* The error of a graph [none] begins with the option that it comes from. */
PL_PRINTF(2, 3) static void option_place(pl_graph_t *g, const char *format, ...)
{
    char key[48], text[PL_ERROR_TEXT];
    va_list args;
    if (!g->error.code || strstr(g->error.text, "\"module."))
        return;
    va_start(args, format);
    vsnprintf(key, sizeof key, format, args);
    va_end(args);
    snprintf(text, sizeof text, "%s", g->error.text);
    pl_fail(&g->error, g->error.code, "\"module.%s\": %s", key, text);
}

/* The loss that the target y [none: predictions] decides where it is "auto". */
static const char *usual_loss(pl_graph_t *g, const layers_t *m, pl_node_t x, pl_node_t y)
{
    const bool has_target = y.id >= 0,
               has_classes = m->classes > 0 || m->vocabulary_size > 0;
    if (m->labels && pl_shape_of(g, x).rank <= 2)
        return "bce";
    if (has_target ? g->value[y.id].dtype != PL_F32 || pl_is_soft(g, y, m->classes)
                   : has_classes)
        return "cross_entropy";
    return "mse";
}

/* Losses take logits; a last layer that makes probabilities of them would be applied
 * twice. */
static void last_check(pl_graph_t *g, const char *loss, const json_t *layer, size_t last)
{
    const char *text = json_string_value(layer) ? json_string_value(layer) : "";
    const bool of_classes = !strcmp(loss, "cross_entropy") || !strcmp(loss, "ctc"),
               of_labels = !strcmp(loss, "bce"),
               of_logarithms = !strcmp(loss, "nll") || !strcmp(loss, "kl"),
               is_softmax = !strcmp(text, "softmax");
    if ((is_softmax && of_classes)
        || (!strcmp(text, "sigmoid") && (of_classes || of_labels)))
        pl_graph_fail(g, PL_EINVAL,
                      "\"module.layers.%zu\": remove the last layer, %s: the loss %s "
                      "takes logits, and computes it itself",
                      last, text, loss);
    if (is_softmax && of_logarithms)
        pl_graph_fail(g, PL_EINVAL,
                      "\"module.layers.%zu\": write log_softmax in place of softmax: the "
                      "loss %s takes logarithms of probabilities",
                      last, loss);
}

/* The output by which predictions know what x is: "logits" of classes, probabilities of
 * "labels", or "value".  -> what metrics take. */
static pl_node_t answer_put(pl_graph_t *g, const layers_t *m, const pl_layer_builder_t *b,
                            const pl_loss_rule_t *loss, pl_node_t x)
{
    const char *name = pl_answers[loss->answer], *taken = b->answers[loss->answer];
    if (*taken)
        pl_graph_fail(g, PL_EEXIST,
                      "\"module.layers.%s\", output %s: this is the name of the last "
                      "layer's result, which is an output already: remove this one, or "
                      "give it another name",
                      taken, name);
    const pl_node_t value = loss->is_rescaled ? rescale(g, m, x, true) : x;
    pl_output(g, name, loss->answer == PL_ANSWER_LABELS ? pl_sigmoid(g, x) : value);
    return value;
}

/* Losses are weighted by the field "weight" of the data, if there is one, [B]. */
static void loss_put(pl_graph_t *g, const layers_t *m, pl_layer_builder_t *b,
                     const pl_loss_rule_t *loss, const pl_layer_arguments_t *a,
                     pl_node_t x, pl_node_t y)
{
    if (g->error.code)
        return;
    const bool has_weights = pl_has_input(g, "weight");
    const pl_node_t weights = has_weights ? pl_input(g, "weight") : PL_NO_NODE;
    const pl_loss_data_t data = {.y = loss->is_rescaled ? rescale(g, m, y, false) : y,
                                 .weights = has_weights ? &weights : NULL,
                                 .classes = m->classes,
                                 .ignored = ignored_of(m),
                                 .label_smoothing = m->label_smoothing};
    pl_loss(g, pl_loss_of(b, loss, x, &data, a));
}

static void layers_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    static const pl_task_t tasks[PL_ANSWERS] = {PL_TASK_CLASS, PL_TASK_LABELS,
                                                PL_TASK_VALUE};
    const layers_t *m = self;
    const bool has_target = pl_has_input(g, "y");
    pl_layer_words_t words;
    pl_layer_arguments_t arguments;
    pl_layer_builder_t b = {.g = g, .outputs = m->outputs};
    const pl_loss_rule_t *loss = is_auto(m)
                                     ? NULL
                                     : pl_loss_read(&b, m->loss, &words, &arguments);
    b.may_classify = !loss || loss->answer == PL_ANSWER_LOGITS;
    b.classes = b.may_classify ? m->classes : 0;
    b.labels = !loss || loss->answer != PL_ANSWER_LOGITS ? m->labels : 0;
    b.vocabulary_size = m->vocabulary_size;
    json_t *list = pl_json_value(m->layers, strlen(m->layers), NULL);
    if (!list) {
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
        return;
    }
    const char *first = json_string_value(json_array_get(list, 0));
    const json_t *each = json_object_get(json_array_get(list, 0), "each");
    const bool has_x = !each && (!first || strncmp(first, "input ", 6) != 0);
    pl_node_t x = list_build(&b, has_x ? pl_input(g, "x") : PL_NO_NODE, list, NULL, NULL);
    const size_t last = json_array_size(list) - 1;
    pl_node_t y = has_target ? pl_input(g, "y") : PL_NO_NODE;
    if (!loss && !g->error.code)
        loss = pl_loss_read(&b, usual_loss(g, m, x, y), &words, &arguments);
    if (loss)
        last_check(g, loss->form.name, json_array_get(list, last), last);
    json_decref(list);
    if (g->error.code)
        return;
    const pl_shape_t shape = pl_shape_of(g, x);
    if (!strcmp(loss->form.name, "cross_entropy") && shape.rank
        && m->classes > shape.dim[shape.rank - 1])
        pl_graph_fail(
            g, PL_EINVAL,
            "\"module.layers.%zu\": the result has %lld classes, %s, and the data "
            "%lld: write \"linear auto\" or \"linear %lld\"",
            last, (long long)shape.dim[shape.rank - 1], PL_TEXT_OF(shape),
            (long long)m->classes, (long long)m->classes);
    if (loss->is_each && pl_shape_of(g, x).rank == 2 && pl_dim(g, x, 1) == 1
        && (!has_target || pl_shape_of(g, y).rank == 1))
        x = pl_flatten(g, x, 0);                            /* a number for a sample */
    const pl_node_t value = answer_put(g, m, &b, loss, x);
    if (stage == PL_PREDICT)
        return;
    if (has_target && loss->answer != PL_ANSWER_LOGITS && g->value[y.id].dtype != PL_F32)
        y = pl_cast(g, y, PL_F32);
    if (!has_target && !loss->is_without_y)
        pl_input(g, "y");                                   /* whose error names fields */
    loss_put(g, m, &b, loss, &arguments, x, y);
    if (is_auto(m))
        option_place(g, "layers.%zu", last);
    else
        option_place(g, "loss");
    const pl_task_t task = tasks[loss->answer];
    const pl_classes_options_t ignores = {.has_ignore = task == PL_TASK_CLASS,
                                          .ignore_index = ignored_of(m)};
    const bool is_soft = has_target && task == PL_TASK_CLASS
                         && (!strcmp(loss->form.name, "kl")
                             || pl_is_soft(g, y, m->classes));
    pl_log_metrics(g, strcmp(m->metrics, "null") != 0 ? m->metrics : loss->metrics, task,
                   value, is_soft ? pl_argmax(g, y, -1) : y, &ignores);
    option_place(g, "metrics");
}

const pl_module_ops_t pl_layers_module = {
    .name = "layers",
    .help = "a list of layers",
    .size = sizeof(layers_t),
    .options = layers_options,
    .check = layers_check,
    .step = layers_step,
};
