/* layers_words.c - a layer or a loss of the module "layers" from its text
 *
 * "conv 32 3 same stride=2": a name, numbers in order, flags, and numbers by name, as a
 * row of layers_table.c describes them. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/suggestion.h"
#include "base/utf8.h"
#include "tensor/layers_module.h"
#include "tensor/operators.h"

enum { LAYERS_MAX = 100000 };

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

static int words_split(pl_layer_builder_t *b, const char *what, const char *text,
                       pl_layer_words_t *words)
{
    words->count = 0;
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (words->count == PL_LAYER_WORDS || length >= PL_LAYER_WORD)
            return pl_layer_fail(b,
                                 "a %s has at most %d words of up to %d characters, not "
                                 "\"%.80s\"",
                                 what, PL_LAYER_WORDS, PL_LAYER_WORD - 1, text);
        memcpy(words->word[words->count], at, length);
        words->word[words->count++][length] = '\0';
        at += length;
    }
    return words->count ? PL_OK : pl_layer_fail(b, "a %s has a name, not \"\"", what);
}

/* ---- A layer from its words ---- */

/* The table's entry for argument `index`: its name in `name`, how it ends in *kind, and
 * its default.  False: there is no such argument. */
static bool argument_at(const pl_layer_rule_t *layer, int index, char name[PL_LAYER_NAME],
                        char *kind, double *fallback)
{
    const char *at = layer->arguments;
    for (; index > 0 && *at; index--)
        at += strcspn(at, " ") + (at[strcspn(at, " ")] == ' ');
    const size_t length = strcspn(at, ":=?$@ ");
    if (!*at)
        return false;
    snprintf(name, PL_LAYER_NAME, "%.*s", (int)length, at);
    *kind = at[length];
    *fallback = *kind == '=' ? strtod(at + length + 1, NULL) : 0;
    return true;
}

/* "linear units [no_bias]": what may be left out is in brackets. */
static const char *form_of(const pl_layer_rule_t *layer, char text[PL_LAYER_FORM])
{
    char name[PL_LAYER_NAME], kind;
    double fallback;
    size_t used = (size_t)snprintf(text, PL_LAYER_FORM, "%s", layer->name);
    for (int k = 0; argument_at(layer, k, name, &kind, &fallback) && used < PL_LAYER_FORM;
         k++)
        used += (size_t)snprintf(text + used, PL_LAYER_FORM - used,
                                 kind == '='   ? " [%s=%g]"
                                 : kind == '?' ? " [%s]"
                                 : kind == '@' ? " [%s=NAME]"
                                               : " %s",
                                 name, fallback);
    return text;
}

bool pl_layer_form(const pl_layer_rule_t *rule, pl_form_t *form)
{
    snprintf(form->name, sizeof form->name, "%s", rule->name);
    form_of(rule, form->form);
    form->help = rule->help;
    return true;
}

bool pl_layer_at(int k, pl_form_t *form)
{
    return k >= 0 && k < pl_layer_count && form
           && pl_layer_form(&pl_layer_table[k], form);
}

static bool is_along_space(const char *name)
{
    return !strcmp(name, "kernel") || !strcmp(name, "stride") || !strcmp(name, "padding")
           || !strcmp(name, "dilation") || !strcmp(name, "output_padding")
           || !strcmp(name, "output");
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

/* All arguments but those that are real numbers. */
static bool is_whole(const char *name)
{
    static const char *const real[] = {"p",         "dropout",    "momentum", "epsilon",
                                       "deviation", "value",      "f",        "h",
                                       "start",     "distance",   "scale",    "delta",
                                       "margin",    "temperature"};
    for (size_t k = 0; k < sizeof real / sizeof *real; k++)
        if (!strcmp(name, real[k]))
            return false;
    return true;
}

static int argument_read(pl_layer_builder_t *b, const pl_layer_rule_t *layer,
                         const char *name, const char *text, double *value,
                         int64_t sizes[PL_SPACE])
{
    char *end;
    *value = strtod(text, &end);
    if (is_along_space(name))
        return sizes_read(b, layer, name, text, sizes);
    if ((!strcmp(name, "units") || !strcmp(name, "rows")) && !strcmp(text, "auto")) {
        *value = 0;
        return PL_OK;
    }
    if (end == text || *end || !isfinite(*value))
        return pl_layer_fail(b, "%s takes a number for %s, not \"%s\"", layer->name, name,
                             text);
    const bool is_size = strchr(layer->arguments, ':') && *value < 1
                         && (!strcmp(name, "units") || !strcmp(name, "channels")
                             || !strcmp(name, "heads") || !strcmp(name, "rows")
                             || !strcmp(name, "width") || !strcmp(name, "groups"));
    if (is_size)
        return pl_layer_fail(b, "%s takes %s of at least 1, not %s", layer->name, name,
                             text);
    if (!strcmp(name, "epsilon") && *value < 0)
        return pl_layer_fail(b, "%s takes an epsilon of at least 0, not %s", layer->name,
                             text);
    if (is_whole(name) && *value != trunc(*value))
        return pl_layer_fail(b, "%s takes a whole number for %s, not %s", layer->name,
                             name, text);
    return !strcmp(name, "axis") && *value == 0 && strcmp(layer->name, "take") != 0
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
    char name[PL_LAYER_NAME], kind;
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
                          const pl_layer_words_t *words, pl_layer_arguments_t *a)
{
    char name[PL_LAYER_NAME], kind, form[PL_LAYER_FORM];
    const char *value;
    int next = 0, code = PL_OK;
    *a = (pl_layer_arguments_t){.value = {0}};
    for (int k = 0; argument_at(layer, k, name, &kind, &a->value[k]); k++)
        ;
    for (int i = 1; i < words->count && code == PL_OK; i++) {
        const char *word = words->word[i];
        double unused;
        int k = argument_named(layer, word, &value);
        if (k < 0 && strchr(word, '='))
            return pl_layer_fail(b, "%s has no argument \"%.*s\": write \"%s\"",
                                 layer->name, (int)strcspn(word, "="), word,
                                 form_of(layer, form));
        if (k < 0) {
            value = word;
            while (argument_at(layer, next, name, &kind, &unused)
                   && (kind == '?' || kind == '@' || a->is_given[next]))
                next++;
            k = next;
        }
        if (!argument_at(layer, k, name, &kind, &unused))
            return pl_layer_fail(b, "%s has no argument \"%s\": write \"%s\"",
                                 layer->name, word, form_of(layer, form));
        if (a->is_given[k])
            return pl_layer_fail(b, "%s has %s twice: remove \"%s\" or the other one",
                                 layer->name, name, word);
        a->is_given[k] = true;
        if (kind == '$' || kind == '@') {
            a->text[k] = value;
            if (!*value || (strcmp(name, "path") != 0 && strlen(value) >= PL_LAYER_NAME))
                code = pl_layer_fail(b, "%s takes 1 to %d characters for %s, not \"%s\"",
                                     layer->name, PL_LAYER_NAME - 1, name, value);
        } else if (kind != '?')
            code = argument_read(b, layer, name, value, &a->value[k], a->sizes[k]);
    }
    for (int k = 0; code == PL_OK && argument_at(layer, k, name, &kind, &(double){0});
         k++)
        if ((kind == ':' || kind == '$') && !a->is_given[k])
            code = pl_layer_fail(b, "%s needs %s: write \"%s\"", layer->name, name,
                                 form_of(layer, form));
    return code;
}

const pl_layer_rule_t *pl_layer_read(pl_layer_builder_t *b, const char *what,
                                     const pl_layer_rule_t *(*at)(int k),
                                     const char *text, pl_layer_words_t *words,
                                     pl_layer_arguments_t *a)
{
    char known[PL_SUGGESTION_TEXT];
    const pl_layer_rule_t *rule = NULL, *same = NULL, *each;
    if (words_split(b, what, text, words) != PL_OK)
        return NULL;
    const char *name = words->word[0];
    pl_suggestion_t nearest;
    pl_suggestion_init(&nearest, name);
    for (int k = 0; !rule && (each = at(k)); k++) {
        rule = strcmp(each->name, name) ? NULL : each;
        pl_suggestion_offer(&nearest, each->name);
        if (pl_is_same_name(each->name, name))
            same = each;
    }
    if (rule)
        return arguments_read(b, rule, words, a) == PL_OK ? rule : NULL;
    const char *here = same ? NULL : pl_compat_layer(name);
    if (same)
        snprintf(known, sizeof known, "did you mean \"%s\"?", same->name);
    else if (here)
        snprintf(known, sizeof known, "it is called \"%s\" here", here);
    else
        pl_suggestion_text(&nearest, known);
    pl_layer_fail(b, "there is no %s \"%s\": %s", what, name, known);
    return NULL;
}

static const pl_layer_rule_t *layer_at(int k)
{
    return k < pl_layer_count ? &pl_layer_table[k] : NULL;
}

/* An operator of the user, "swish" or "blend NAME NAME": of x and what was kept. */
static pl_node_t operator_build(pl_layer_builder_t *b, pl_node_t x,
                                const pl_operator_ops_t *table, const char *text)
{
    pl_layer_words_t words;
    pl_node_t inputs[PL_OPERATOR_INPUTS] = {x};
    if (words_split(b, "layer", text, &words) != PL_OK)
        return PL_NO_NODE;
    if (words.count != table->inputs) {
        pl_layer_fail(b, "the operator %s takes x and %d kept value%s, got %d names",
                      table->name, table->inputs - 1, pl_plural(table->inputs - 1),
                      words.count - 1);
        return PL_NO_NODE;
    }
    for (int k = 1; k < words.count && !b->err; k++)
        inputs[k] = pl_layer_kept(b, words.word[k]);
    return b->err ? PL_NO_NODE : pl_apply(b->g, table->name, inputs, table->inputs, NULL);
}

/* The operator of a user whose name is the first word; NULL: none. */
static const pl_operator_ops_t *operator_of(const char *text)
{
    char name[PL_LAYER_NAME];
    text += strspn(text, " ");
    const size_t length = strcspn(text, " ");
    if (length >= sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    for (int k = 0; k < pl_layer_count; k++)
        if (!strcmp(pl_layer_table[k].name, name))
            return NULL;
    return pl_component_find("operator", name, NULL);
}

pl_node_t pl_layer_build(pl_layer_builder_t *b, pl_node_t x, const char *text)
{
    pl_layer_words_t words;
    pl_layer_arguments_t arguments;
    if (++b->count > LAYERS_MAX) {
        pl_layer_fail(b, "a module has at most %d layers", LAYERS_MAX);
        return PL_NO_NODE;
    }
    const pl_operator_ops_t *own = operator_of(text);
    if (own)
        return operator_build(b, x, own, text);
    const pl_layer_rule_t *layer = pl_layer_read(b, "layer", layer_at, text, &words,
                                                 &arguments);
    if (!layer || b->err)
        return PL_NO_NODE;
    if (layer->is_named)
        return layer->build(b, x, &arguments);
    pl_scope(b->g, "%s", b->path);
    x = layer->build(b, x, &arguments);
    pl_scope_end(b->g);
    return x;
}
