/* layers_module.c - the module "layers": a model as a list of layers in a run file
 *
 * A layer is a text such as "conv 32 3 same", or an object with lists of its own.
 * Each layer takes the result of the layer before it.  Its place in the list names its
 * parameters: "0.weight", "3.residual.1.bias", as torch.nn.Sequential would.  The
 * check of a run file builds nothing: it reads the texts against the table of
 * layers_table.c. */
#include "tensor/layers_module.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/suggestion.h"
#include "base/utf8.h"
#include "tensor/model.h"
#include "tensor/operators.h"

enum { LOSS_AUTO, LOSS_CROSS_ENTROPY, LOSS_BCE, LOSS_MSE, LOSS_L1, LOSS_HUBER };

typedef struct layers {
    const char *layers, *metrics;                           /* JSON */
    int loss;
    int64_t classes, outputs, ignore_index;
} layers_t;

static const pl_option_t layers_options[] = {
    PL_JSON(layers_t, layers, "the layers, in order: \"linear 128\", \"relu\", …"),
    PL_WORD(layers_t, loss, "\"auto\"", "auto|cross_entropy|bce|mse|l1|huber",
            "loss; auto: cross_entropy for classes, mse for values"),
    PL_INT(layers_t, classes, "\"auto\"", "0..",
           "number of classes, which \"linear auto\" has; 0: there are none"),
    PL_INT(layers_t, outputs, "\"auto\"", "0..",
           "number of values of a sample, likewise; 0: as the target, or 1"),
    PL_INT(layers_t, ignore_index, "-100", "-2147483648..2147483647",
           "class of samples that loss and accuracy leave out"),
    {"metrics", PL_OPTION_JSON, offsetof(layers_t, metrics), "[]", NULL,
     "list of metrics to log, such as [\"acc\", \"f1 weighted\"]; []: acc, or mae"},
    PL_OPTIONS_END,
};

/* ---- The words of a layer ---- */

/* "conv 32 3 same stride=2": a name, numbers in order, flags, and numbers by name. */
typedef struct words {
    char word[PL_LAYER_WORDS][PL_LAYER_WORD];
    int count;
} words_t;

int pl_layer_fail(pl_layer_builder_t *b, const char *format, ...)
{
    char text[PL_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    pl_text_print(text, sizeof text, format, args);
    va_end(args);
    if (b->err)
        return pl_fail(b->err, PL_EINVAL, "%s", text);
    pl_graph_fail(b->g, PL_EINVAL, "%s", text);
    return PL_EINVAL;
}

static int words_split(pl_layer_builder_t *b, const char *text, words_t *words)
{
    *words = (words_t){.count = 0};
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (words->count == PL_LAYER_WORDS || length >= PL_LAYER_WORD)
            return pl_layer_fail(
                b,
                "a layer has at most %d words of up to %d characters, not "
                "\"%.80s\"",
                PL_LAYER_WORDS, PL_LAYER_WORD - 1, text);
        memcpy(words->word[words->count++], at, length);
        at += length;
    }
    return words->count ? PL_OK : pl_layer_fail(b, "a layer has a name, not \"\"");
}

/* ---- A layer from its words ---- */

/* The table's entry for argument `index`: its name in `name`, how it ends in *kind, and
 * its default.  False: there is no such argument. */
static bool argument_at(const pl_layer_rule_t *layer, int index, char name[PL_LAYER_WORD],
                        char *kind, double *fallback)
{
    const char *at = layer->arguments;
    for (; index > 0 && *at; index--)
        at += strcspn(at, " ") + (at[strcspn(at, " ")] == ' ');
    const size_t length = strcspn(at, ":=?$ ");
    if (!*at)
        return false;
    snprintf(name, PL_LAYER_WORD, "%.*s", (int)length, at);
    *kind = at[length];
    *fallback = *kind == '=' ? strtod(at + length + 1, NULL) : 0;
    return true;
}

/* "linear units [no_bias]": what may be left out is in brackets. */
static const char *form_of(const pl_layer_rule_t *layer, char text[PL_LAYER_FORM])
{
    char name[PL_LAYER_WORD], kind;
    double fallback;
    size_t used = (size_t)snprintf(text, PL_LAYER_FORM, "%s", layer->name);
    for (int k = 0; argument_at(layer, k, name, &kind, &fallback) && used < PL_LAYER_FORM;
         k++)
        used += (size_t)snprintf(text + used, PL_LAYER_FORM - used,
                                 kind == '='   ? " [%s=%g]"
                                 : kind == '?' ? " [%s]"
                                               : " %s",
                                 name, fallback);
    return text;
}

bool pl_layer_at(int k, pl_form_t *form)
{
    if (k < 0 || k >= pl_layer_count || !form)
        return false;
    snprintf(form->name, sizeof form->name, "%s", pl_layer_table[k].name);
    form_of(&pl_layer_table[k], form->form);
    form->help = pl_layer_table[k].help;
    return true;
}

/* Reads "3x5" into sizes; "3" is the same along all axes, a padding of 0 is PL_UNPADDED,
 * and a stride of 0 the usual one. */
static int sizes_read(pl_layer_builder_t *b, const pl_layer_rule_t *layer,
                      const char *name, const char *text, int64_t sizes[PL_SPACE])
{
    const bool is_padding = strstr(name, "padding");
    const long least = !is_padding && strcmp(name, "stride");
    const char *at = text;
    for (int k = 0; k < PL_SPACE; k++, at++) {
        char *end;
        const long number = isdigit((unsigned char)*at) ? strtol(at, &end, 10) : -1;
        if (number < least || number > INT32_MAX
            || (*end && (*end != 'x' || k + 1 == PL_SPACE)))
            return pl_layer_fail(
                b,
                "%s takes a number of at least %ld for %s, as \"3\" or \"3x5\", not "
                "\"%s\"",
                layer->name, least, name, text);
        sizes[k] = number || !is_padding ? number : PL_UNPADDED;
        at = end;
        if (!*at)
            break;
    }
    return PL_OK;
}

static int argument_read(pl_layer_builder_t *b, const pl_layer_rule_t *layer,
                         const char *name, const char *text, double *value,
                         int64_t sizes[PL_SPACE])
{
    char *end;
    *value = strtod(text, &end);
    if (pl_layer_is_along_space(name))
        return sizes_read(b, layer, name, text, sizes);
    if (!strcmp(name, "units") && !strcmp(text, "auto")) {
        *value = 0;
        return PL_OK;
    }
    if (end == text || *end)
        return pl_layer_fail(b, "%s takes a number for %s, not \"%s\"", layer->name, name,
                             text);
    const bool is_size = strchr(layer->arguments, ':') && *value < 1
                         && (!strcmp(name, "units") || !strcmp(name, "channels")
                             || !strcmp(name, "heads") || !strcmp(name, "rows")
                             || !strcmp(name, "width") || !strcmp(name, "groups"));
    if (is_size)
        return pl_layer_fail(b, "%s takes %s of at least 1, not %s", layer->name, name,
                             text);
    if (pl_layer_is_whole(name) && *value != trunc(*value))
        return pl_layer_fail(b, "%s takes a whole number for %s, not %s", layer->name,
                             name, text);
    return !strcmp(name, "axis") && *value == 0
               ? pl_layer_fail(b,
                               "%s takes no axis 0, along which the samples of a batch "
                               "are: their first axis is 1",
                               layer->name)
               : PL_OK;
}

/* Where a word belongs: a flag, or NAME=VALUE; -1: it is the next number in order. */
static int argument_named(const pl_layer_rule_t *layer, const char *word,
                          const char **value)
{
    char name[PL_LAYER_WORD], kind;
    double fallback;
    for (int k = 0; argument_at(layer, k, name, &kind, &fallback); k++) {
        const size_t length = strlen(name);
        *value = word + length + 1;
        if (kind == '?' ? !strcmp(word, name)
                        : !strncmp(word, name, length) && word[length] == '=')
            return k;
    }
    return -1;
}

static int arguments_read(pl_layer_builder_t *b, const pl_layer_rule_t *layer,
                          const words_t *words, pl_layer_arguments_t *a)
{
    char name[PL_LAYER_WORD], kind, form[PL_LAYER_FORM];
    const char *value;
    int next = 0, code = PL_OK;
    *a = (pl_layer_arguments_t){.text = ""};
    for (int k = 0; argument_at(layer, k, name, &kind, &a->value[k]); k++)
        ;
    for (int i = 1; i < words->count && code == PL_OK; i++) {
        const char *word = words->word[i];
        double unused;
        int k = argument_named(layer, word, &value);
        if (k < 0) {
            value = word;
            while (argument_at(layer, next, name, &kind, &unused)
                   && (kind == '?' || a->is_given[next]))
                next++;
            k = next;
        }
        if (!argument_at(layer, k, name, &kind, &unused))
            return pl_layer_fail(b, "%s has no argument \"%s\": write \"%s\"",
                                 layer->name, word, form_of(layer, form));
        a->is_given[k] = true;
        if (kind == '$')
            snprintf(a->text, PL_LAYER_WORD, "%s", value);
        else if (kind != '?')
            code = argument_read(b, layer, name, value, &a->value[k], a->sizes[k]);
    }
    for (int k = 0; code == PL_OK && argument_at(layer, k, name, &kind, &(double){0});
         k++)
        if ((kind == ':' || kind == '$') && !a->is_given[k])
            code = pl_layer_fail(b, "%s needs %s: write \"%s\"", layer->name, name,
                                 form_of(layer, form));
    return code;
}

static pl_node_t text_build(pl_layer_builder_t *b, pl_node_t x, const char *text)
{
    words_t words;
    pl_layer_arguments_t arguments;
    char known[PL_SUGGESTION_TEXT];
    const pl_layer_rule_t *layer = NULL;
    if (words_split(b, text, &words) != PL_OK)
        return PL_NO_NODE;
    pl_suggestion_t nearest;
    pl_suggestion_init(&nearest, words.word[0]);
    for (int k = 0; k < pl_layer_count && !layer; k++) {
        layer = strcmp(pl_layer_table[k].name, words.word[0]) ? NULL : &pl_layer_table[k];
        pl_suggestion_offer(&nearest, pl_layer_table[k].name);
    }
    if (!layer) {
        pl_layer_fail(b, "there is no layer \"%s\": %s", words.word[0],
                      pl_suggestion_text(&nearest, known));
        return PL_NO_NODE;
    }
    if (arguments_read(b, layer, &words, &arguments) != PL_OK || b->err)
        return PL_NO_NODE;
    if (layer->is_named)
        return layer->build(b, x, &arguments);
    pl_scope(b->g, "%s", b->path);
    x = layer->build(b, x, &arguments);
    pl_scope_end(b->g);
    return x;
}

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
        char under[PL_LAYER_WORD + 16];
        const char *name = named ? json_object_iter_key(named) : NULL;
        if (name && (!*name || strlen(name) >= PL_LAYER_WORD || strpbrk(name, ". "))) {
            pl_layer_fail(b,
                          "the name of a branch has 1 to %d characters without dots and "
                          "spaces, and \"%.40s\" does not",
                          PL_LAYER_WORD - 1, name);
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
        const char *format, *key[3];
        pl_node_t (*build)(pl_layer_builder_t *b, pl_node_t x, const json_t *object);
    } forms[] = {{"{s:o, s?o!}", {"residual", "shortcut"}, residual_build},
                 {"{s:o, s?o!}", {"repeat", "layers"}, repeat_build},
                 {"{s:o!}", {"checkpoint"}, checkpoint_build},
                 {"{s:o, s?o, s?o!}", {"branches", "join", "axis"}, branches_build}};
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        const char *const *key = forms[k].key;
        json_error_t why;
        if (!json_object_get(object, key[0]))
            continue;
        if (!json_unpack_ex((json_t *)object, &why, JSON_VALIDATE_ONLY, forms[k].format,
                            key[0], key[1], key[2]))
            return forms[k].build(b, x, object);
        pl_layer_fail(b, "\"%s\": %s", key[0], why.text);
        return PL_NO_NODE;
    }
    pl_layer_fail(b, "an object among the layers has \"residual\", \"repeat\", "
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
        x = json_is_string(entry) ? text_build(b, x, json_string_value(entry))
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
    if (why.code == PL_OK)
        return pl_metrics_check(m->metrics, err) == PL_OK ? NULL : "metrics";
    pl_fail(err, why.code, "%s", why.text);
    snprintf(place, sizeof place, b.place[0] ? "layers.%s" : "layers", b.place);
    return place;
}

/* The target has a probability of each class, as mixed samples have. */
static bool is_soft(const layers_t *m, pl_graph_t *g, pl_node_t y)
{
    return m->classes > 1 && g->value[y.id].dtype == PL_F32 && pl_shape_of(g, y).rank == 2
           && pl_dim(g, y, 1) == m->classes;
}

static pl_loss_t loss_of(pl_graph_t *g, const layers_t *m, int loss, pl_node_t x,
                         pl_node_t y)
{
    switch (loss) {
    case LOSS_CROSS_ENTROPY: {
        pl_cross_entropy_options_t options = {.has_ignore = true,
                                              .ignore_index = m->ignore_index};
        if (is_soft(m, g, y))
            return pl_soft_cross_entropy(g, x, y);
        pl_node_t weights;
        if (pl_has_input(g, "weight")) {
            weights = pl_input(g, "weight");
            options.weights = &weights;
        }
        return pl_cross_entropy(g, x, y, &options);
    }
    case LOSS_BCE: return pl_bce_with_logits(g, x, y, NULL);
    case LOSS_L1: return pl_l1(g, x, y);
    case LOSS_HUBER: return pl_huber(g, x, y, 1);
    default: return pl_mse(g, x, y);
    }
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

static void layers_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const layers_t *m = self;
    pl_layer_builder_t b = {.g = g, .classes = m->classes, .outputs = m->outputs};
    json_t *list = pl_json_value(m->layers, strlen(m->layers), NULL);
    if (!list) {
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
        return;
    }
    const char *first = json_string_value(json_array_get(list, 0));
    const bool has_x = !first || strncmp(first, "input ", 6) != 0;
    pl_node_t x = list_build(&b, has_x ? pl_input(g, "x") : PL_NO_NODE, list, NULL, NULL);
    const size_t last = json_array_size(list) - 1;
    json_decref(list);
    if (g->error.code)
        return;
    const bool has_target = pl_has_input(g, "y");
    const pl_node_t y = has_target ? pl_input(g, "y") : PL_NO_NODE;
    const bool is_class = !has_target
                              ? m->classes > 0
                              : g->value[y.id].dtype != PL_F32 || is_soft(m, g, y);
    const int loss = m->loss != LOSS_AUTO ? m->loss
                     : is_class           ? LOSS_CROSS_ENTROPY
                                          : LOSS_MSE;
    if (loss != LOSS_CROSS_ENTROPY && pl_shape_of(g, x).rank == 2 && pl_dim(g, x, 1) == 1
        && (!has_target || pl_shape_of(g, y).rank == 1))
        x = pl_flatten(g, x, 0);                            /* a number for a sample */
    const bool has_logits = loss == LOSS_CROSS_ENTROPY || loss == LOSS_BCE;
    const char *name = has_logits ? "logits" : "value",
               *taken = has_logits ? b.logits : b.value;
    if (*taken) {
        pl_graph_fail(g, PL_EEXIST,
                      "\"module.layers.%s\", output %s: this is the name of the last "
                      "layer's result, which is an output already: remove this one, or "
                      "give it another name",
                      taken, name);
        return;
    }
    pl_output(g, name, x);
    if (stage == PL_PREDICT)
        return;
    pl_loss(g, loss_of(g, m, loss, x, y));
    if (m->loss != LOSS_AUTO)
        option_place(g, "loss");
    else
        option_place(g, "layers.%zu", last);
    const pl_task_t task = loss == LOSS_CROSS_ENTROPY ? PL_TASK_CLASS
                           : loss == LOSS_BCE         ? PL_TASK_LABELS
                                                      : PL_TASK_VALUE;
    const pl_classes_options_t ignores = {.has_ignore = task == PL_TASK_CLASS,
                                          .ignore_index = m->ignore_index};
    const char *names = task == PL_TASK_VALUE ? "[\"mae\"]" : "[\"acc\"]";
    pl_log_metrics(g, strcmp(m->metrics, "[]") != 0 ? m->metrics : names, task, x,
                   task == PL_TASK_CLASS && is_soft(m, g, y) ? pl_argmax(g, y, 1) : y,
                   &ignores);
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
