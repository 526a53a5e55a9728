/* layers_module.h - the module "layers": a model as a list of layers in a run file
 *
 * layers_module.c reads the lists, layers_words.c the texts; layers_table.c has the
 * layers. */
#ifndef PL_TENSOR_LAYERS_MODULE_H
#define PL_TENSOR_LAYERS_MODULE_H

#include "tensor/graph.h"

extern const pl_module_ops_t pl_layers_module;

enum {
    PL_LAYER_WORDS = 10,                                    /* of a layer */
    PL_LAYER_WORD = 32,                                     /* bytes of a word */
    PL_LAYER_KEPT = 16,                                     /* values that can be kept */
    PL_LAYER_PATH = 64,
    PL_LAYER_PLACE = 96,
    PL_LAYER_FORM = 128,
};

/* The outputs that answer for a sample: "logits", "labels", "value". */
enum { PL_ANSWER_LOGITS, PL_ANSWER_LABELS, PL_ANSWER_VALUE, PL_ANSWERS };

/* The arguments of a layer in the order of its table.  A size along axes of space, such
 * as a kernel, is a number or one for each axis, "3x5". */
typedef struct pl_layer_arguments {
    double value[PL_LAYER_WORDS];
    int64_t sizes[PL_LAYER_WORDS][PL_SPACE];                /* as in pl_windows_t */
    bool is_given[PL_LAYER_WORDS];
    char text[PL_LAYER_WORD], other[PL_LAYER_WORD];    /* of arguments that are names */
} pl_layer_arguments_t;

typedef struct pl_layer_builder {
    pl_graph_t *g;
    int64_t classes;                                        /* 0: none */
    int64_t outputs;                                        /* 0: as the target has */
    int64_t labels;                                         /* 0: none */
    int64_t vocabulary_size;                                /* 0: the data is no text */
    bool may_classify;                            /* whole targets are classes */
    struct {
        char name[PL_LAYER_WORD];
        pl_node_t node;
    } kept[PL_LAYER_KEPT];
    int kept_count;
    int count;                                    /* layers so far */
    char path[PL_LAYER_PATH];                     /* of the layer, which names its
                                                     parameters: "3.residual.0" */
    char place[PL_LAYER_PLACE];                   /* the same in the run file: a layer
                                                     that is repeated has one place */
    char answers[PL_ANSWERS][PL_LAYER_PLACE];     /* places of outputs with the names of
                                                     answers  ["": none] */
    bool has_place;                               /* the graph's error says which layer */
    pl_error_t *err;                              /* of a check, which builds nothing */
} pl_layer_builder_t;

/* An argument: "units:" is required, "stride=1" has a default, "same?" is a flag, "name$"
 * is a text. */
typedef struct pl_layer_rule {
    const char *name, *arguments, *help;
    pl_node_t (*build)(pl_layer_builder_t *b, pl_node_t x, const pl_layer_arguments_t *a);
    bool is_named;                                /* opens a scope with its path itself */
} pl_layer_rule_t;

extern const pl_layer_rule_t pl_layer_table[];
extern const int pl_layer_count;

/* The layer "conv 32 3 same" of x, under the builder's path; a check builds nothing. */
pl_node_t pl_layer_build(pl_layer_builder_t *b, pl_node_t x, const char *text);

/* The error of a layer; returns PL_EINVAL. */
int pl_layer_fail(pl_layer_builder_t *b, const char *format, ...) PL_PRINTF(2, 3);

#endif
