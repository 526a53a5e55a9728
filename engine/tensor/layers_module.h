/* layers_module.h - the module "layers": a model as a list of layers in a run file
 *
 * layers_module.c reads the lists, layers_words.c the texts; layers_table.c has the
 * layers, of which layers_sequence.c builds those of sequences; layers_losses.c has the
 * losses. */
#ifndef PL_TENSOR_LAYERS_MODULE_H
#define PL_TENSOR_LAYERS_MODULE_H

#include "tensor/graph.h"

extern const pl_module_ops_t pl_layers_module;

enum {
    PL_LAYER_WORDS = 12,                                    /* of a layer */
    PL_LAYER_WORD = 256,                                    /* bytes of a word */
    PL_LAYER_NAME = 32,                                     /* bytes of a name */
    PL_LAYER_KEPT = 16,                                     /* values that can be kept */
    PL_LAYER_PATH = 64,
    PL_LAYER_PLACE = 96,
    PL_LAYER_FORM = 128,
};

/* The outputs that answer for a sample: "logits", "labels", "value". */
enum { PL_ANSWER_LOGITS, PL_ANSWER_LABELS, PL_ANSWER_VALUE, PL_ANSWERS };
extern const char *const pl_answers[PL_ANSWERS];

/* The arguments of a layer in the order of its table.  A size along axes of space, such
 * as a kernel, is a number or one for each axis, "3x5". */
typedef struct pl_layer_arguments {
    double value[PL_LAYER_WORDS];
    int64_t sizes[PL_LAYER_WORDS][PL_SPACE];                /* as in pl_windows_t */
    bool is_given[PL_LAYER_WORDS];
    const char *text[PL_LAYER_WORDS];             /* of names and files; borrowed from the
                                                     words */
} pl_layer_arguments_t;

typedef struct pl_layer_words {
    char word[PL_LAYER_WORDS][PL_LAYER_WORD];
    int count;
} pl_layer_words_t;

typedef struct pl_layer_builder {
    pl_graph_t *g;
    int64_t classes;                                       /* 0: none */
    int64_t outputs;                                       /* 0: as the target has */
    int64_t labels;                                        /* 0: none */
    int64_t vocabulary_size;                               /* 0: the data is no text */
    bool may_classify;                                     /* whole targets are classes */
    struct {
        char name[PL_LAYER_NAME];
        pl_node_t node;
    } kept[PL_LAYER_KEPT];
    int kept_count;
    int tokens;                                   /* in front of sequences */
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
 * is a text, "keys@" one that may be left out, as "keys=NAME". */
typedef struct pl_layer_rule {
    const char *name, *arguments, *help;
    pl_node_t (*build)(pl_layer_builder_t *b, pl_node_t x, const pl_layer_arguments_t *a);
    bool is_named;                                /* opens a scope with its path itself */
} pl_layer_rule_t;

extern const pl_layer_rule_t pl_layer_table[];
extern const int pl_layer_count;

/* ---- layers_words.c ---- */

/* How a rule is written, for help; true. */
bool pl_layer_form(const pl_layer_rule_t *rule, pl_form_t *form);
/* The layer "conv 32 3 same" of x, under the builder's path; a check builds nothing. */
pl_node_t pl_layer_build(pl_layer_builder_t *b, pl_node_t x, const char *text);
/* The rule of a text and its arguments, which live as long as the words; NULL: the
 * builder has the error. at(k): the k-th rule, NULL after the last; `what` they are. */
const pl_layer_rule_t *pl_layer_read(pl_layer_builder_t *b, const char *what,
                                     const pl_layer_rule_t *(*at)(int k),
                                     const char *text, pl_layer_words_t *words,
                                     pl_layer_arguments_t *a);
/* The error of a layer; returns PL_EINVAL. */
int pl_layer_fail(pl_layer_builder_t *b, const char *format, ...) PL_PRINTF(2, 3);

/* ---- layers_table.c ---- */

/* The newest result that was kept under the name. */
pl_node_t pl_layer_kept(pl_layer_builder_t *b, const char *name);
bool pl_layer_is_kept(const pl_layer_builder_t *b, const char *name);
/* Keeps a result; false: there are too many. */
bool pl_layer_keep(pl_layer_builder_t *b, const char *name, pl_node_t x);

/* ---- layers_sequence.c ---- */

pl_node_t pl_layer_positions(pl_layer_builder_t *b, pl_node_t x,
                             const pl_layer_arguments_t *a);
pl_node_t pl_layer_token(pl_layer_builder_t *b, pl_node_t x,
                         const pl_layer_arguments_t *a);
pl_node_t pl_layer_attention(pl_layer_builder_t *b, pl_node_t x,
                             const pl_layer_arguments_t *a);
pl_node_t pl_layer_lstm(pl_layer_builder_t *b, pl_node_t x,
                        const pl_layer_arguments_t *a);
pl_node_t pl_layer_gru(pl_layer_builder_t *b, pl_node_t x, const pl_layer_arguments_t *a);
/* The field "mask" of the data, which says which of x [B, T, ...] are values: 1 or 0;
 * tokens in front are values.  False: there is none of this size. */
bool pl_layer_mask(pl_layer_builder_t *b, pl_shape_t shape, pl_node_t *mask);

/* ---- layers_losses.c ---- */

/* What a loss of x takes from the data. */
typedef struct pl_loss_data {
    pl_node_t y;                                            /* [PL_NO_NODE: none] */
    const pl_node_t *weights;                               /* of samples  [none] */
    int64_t classes, ignored;
    double label_smoothing;
} pl_loss_data_t;

typedef struct pl_loss_rule {
    pl_layer_rule_t form;                                   /* which builds nothing */
    pl_loss_t (*of)(pl_layer_builder_t *b, pl_node_t x, const pl_loss_data_t *data,
                    const pl_layer_arguments_t *a);
    int answer;                                             /* PL_ANSWER_... that x is */
    bool is_without_y;
    bool is_each;                                          /* of each number of x and y */
    bool is_rescaled;                                      /* y in units of its own */
    const char *metrics;                                   /* that are logged: a list */
    int takes;                                             /* flags of layers_losses.c */
} pl_loss_rule_t;

/* The rule of "huber delta=0.5"  [NULL: "auto", or the builder has the error]. */
const pl_loss_rule_t *pl_loss_read(pl_layer_builder_t *b, const char *text,
                                   pl_layer_words_t *words, pl_layer_arguments_t *a);
/* The loss of x by the data. */
pl_loss_t pl_loss_of(pl_layer_builder_t *b, const pl_loss_rule_t *rule, pl_node_t x,
                     const pl_loss_data_t *data, const pl_layer_arguments_t *a);
/* Whether y has a probability of each class, as mixed samples have. */
bool pl_is_soft(pl_graph_t *g, pl_node_t y, int64_t classes);

#endif
