/* layers_losses.c - the losses of the module "layers", one row each
 *
 * x is the result of the last layer, y the target.  Losses of pairs and triples take what
 * was kept for the others. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tensor/layers_module.h"
#include "tensor/operators.h"

const char *const pl_answers[PL_ANSWERS] = {"logits", "labels", "value"};

bool pl_is_soft(pl_graph_t *g, pl_node_t y, int64_t classes)
{
    return classes > 1 && g->value[y.id].dtype == PL_F32 && pl_shape_of(g, y).rank == 2
           && pl_dim(g, y, 1) == classes;
}

static pl_cross_entropy_options_t options_of(const pl_loss_data_t *data)
{
    return (pl_cross_entropy_options_t){.has_ignore = true,
                                        .ignore_index = data->ignored,
                                        .weights = data->weights,
                                        .label_smoothing = data->label_smoothing};
}

static pl_loss_t cross_entropy_of(pl_layer_builder_t *b, pl_node_t x,
                                  const pl_loss_data_t *data,
                                  const pl_layer_arguments_t *a)
{
    pl_graph_t *g = b->g;
    pl_node_t y = data->y;
    const double smoothing = data->label_smoothing;
    const pl_cross_entropy_options_t options = options_of(data);
    (void)a;
    if (!pl_is_soft(g, y, data->classes))
        return pl_cross_entropy(g, x, y, &options);
    if (smoothing > 0)
        y = pl_add(g, pl_scale(g, y, 1 - smoothing),
                   pl_scalar(g, smoothing / (double)data->classes));
    if (!data->weights)
        return pl_soft_cross_entropy(g, x, y);
    const pl_node_t rows = pl_sum(g, pl_mul(g, y, pl_log_softmax(g, x, -1)), (int[]){-1},
                                  1, false);
    return pl_weighted_loss(g, "cross_entropy", pl_neg(g, rows), *data->weights);
}

static pl_loss_t nll_of(pl_layer_builder_t *b, pl_node_t x, const pl_loss_data_t *data,
                        const pl_layer_arguments_t *a)
{
    const pl_cross_entropy_options_t options = options_of(data);
    (void)a;
    return pl_nll(b->g, x, data->y, &options);
}

static pl_loss_t bce_of(pl_layer_builder_t *b, pl_node_t x, const pl_loss_data_t *data,
                        const pl_layer_arguments_t *a)
{
    pl_shape_t shape = {.rank = pl_shape_of(b->g, x).rank, .dim = {-1, 1, 1, 1, 1, 1}};
    (void)a;
    if (!data->weights)
        return pl_bce_with_logits(b->g, x, data->y, NULL);
    const pl_node_t column = pl_reshape(b->g, *data->weights, shape);
    return pl_bce_with_logits(b->g, x, data->y, &(pl_bce_options_t){.weights = &column});
}

static pl_loss_t mse_of(pl_layer_builder_t *b, pl_node_t x, const pl_loss_data_t *data,
                        const pl_layer_arguments_t *a)
{
    (void)a;
    return data->weights ? pl_weighted_mse(b->g, x, data->y, *data->weights)
                         : pl_mse(b->g, x, data->y);
}

static pl_loss_t l1_of(pl_layer_builder_t *b, pl_node_t x, const pl_loss_data_t *data,
                       const pl_layer_arguments_t *a)
{
    pl_graph_t *g = b->g;
    (void)a;
    if (!data->weights)
        return pl_l1(g, x, data->y);
    const pl_node_t each = pl_abs(g, pl_difference(g, "l1", x, data->y, NULL));
    return pl_weighted_loss(g, "l1", each, *data->weights);
}

static pl_loss_t huber_of(pl_layer_builder_t *b, pl_node_t x, const pl_loss_data_t *data,
                          const pl_layer_arguments_t *a)
{
    return data->weights ? pl_weighted_loss(b->g, "huber",
                                            pl_huber_each(b->g, x, data->y, a->value[0]),
                                            *data->weights)
                         : pl_huber(b->g, x, data->y, a->value[0]);
}

static pl_loss_t kl_of(pl_layer_builder_t *b, pl_node_t x, const pl_loss_data_t *data,
                       const pl_layer_arguments_t *a)
{
    (void)a;
    return pl_kl(b->g, x, data->y);
}

/* Targets end at their first number below 0, and steps where the field "mask" does. */
static pl_loss_t ctc_of(pl_layer_builder_t *b, pl_node_t x, const pl_loss_data_t *data,
                        const pl_layer_arguments_t *a)
{
    pl_graph_t *g = b->g;
    const pl_shape_t of = pl_shape_of(g, x), labels = pl_shape_of(g, data->y);
    const pl_ctc_options_t options = {.blank = (int64_t)a->value[0],
                                      .zero_infinity = a->is_given[1]};
    if (!g->error.code
        && (of.rank != 3 || labels.rank != 2 || labels.dim[0] != of.dim[0]))
        pl_op_fail(g, "ctc takes logits [B, T, C] and a target [B, S], got %s and %s",
                   PL_TEXT_OF(of), PL_TEXT_OF(labels));
    if (g->error.code)
        return pl_pair(PL_NO_NODE, PL_NO_NODE);
    pl_node_t mask;
    const pl_node_t number = pl_cast(g, data->y, PL_F32),
                    ended = pl_cumsum(g, pl_less(g, number, pl_scalar(g, 0)), 1),
                    is_label = pl_equal(g, ended, pl_scalar(g, 0)),
                    steps = pl_layer_mask(b, of, &mask)
                                ? pl_sum(g, mask, (int[]){1}, 1, false)
                                : pl_broadcast_to(g, pl_scalar(g, (double)of.dim[1]),
                                                  PL_SHAPE(of.dim[0])),
                    length = pl_sum(g, is_label, (int[]){1}, 1, false),
                    p = pl_log_softmax(g, x, -1), t = pl_cast(g, steps, PL_I64);
    return pl_ctc(g, p, data->y, t, pl_cast(g, length, PL_I64), &options);
}

static pl_loss_t info_nce_of(pl_layer_builder_t *b, pl_node_t x,
                             const pl_loss_data_t *data, const pl_layer_arguments_t *a)
{
    (void)data;
    return pl_info_nce(b->g, x, pl_layer_kept(b, a->text[0]),
                       pl_scalar(b->g, a->value[1]));
}

static pl_loss_t cosine_embedding_of(pl_layer_builder_t *b, pl_node_t x,
                                     const pl_loss_data_t *data,
                                     const pl_layer_arguments_t *a)
{
    return pl_cosine_embedding(b->g, x, pl_layer_kept(b, a->text[0]), data->y,
                               a->value[1]);
}

static pl_loss_t triplet_of(pl_layer_builder_t *b, pl_node_t x,
                            const pl_loss_data_t *data, const pl_layer_arguments_t *a)
{
    (void)data;
    const pl_node_t positive = pl_layer_kept(b, a->text[0]),
                    negative = pl_layer_kept(b, a->text[1]);
    return pl_triplet(b->g, x, positive, negative, a->value[2]);
}

enum { WEIGHTS = 1, SMOOTHING = 2 };                        /* that a loss may take */
#define ACC "[\"acc\"]"
#define MAE "[\"mae\"]"
static const pl_loss_rule_t table[] = {
    {{"cross_entropy", "", "of logits [..., C] and classes, or a probability of each"},
     cross_entropy_of,
     PL_ANSWER_LOGITS,
     .metrics = ACC,
     .takes = WEIGHTS | SMOOTHING},
    {{"nll", "",
      "of logarithms of probabilities, as log_softmax gives them, and classes"},
     nll_of,
     PL_ANSWER_LOGITS,
     .metrics = ACC,
     .takes = WEIGHTS | SMOOTHING},
    {{"kl", "", "divergence of log probabilities from a target's probabilities"},
     kl_of,
     PL_ANSWER_LOGITS,
     .metrics = ACC},
    {{"bce", "", "of logits and labels, each from 0 to 1"},
     bce_of,
     PL_ANSWER_LABELS,
     .is_each = true,
     .metrics = ACC,
     .takes = WEIGHTS},
    {{"mse", "", "mean of squared differences"},
     mse_of,
     PL_ANSWER_VALUE,
     .is_each = true,
     .is_rescaled = true,
     .metrics = MAE,
     .takes = WEIGHTS},
    {{"l1", "", "mean of absolute differences"},
     l1_of,
     PL_ANSWER_VALUE,
     .is_each = true,
     .is_rescaled = true,
     .metrics = MAE,
     .takes = WEIGHTS},
    {{"huber", "delta=1",
      "squares up to delta, absolute differences beyond; delta is in the unit in which "
      "values are learnt, a deviation of the target (target_factor)"},
     huber_of,
     PL_ANSWER_VALUE,
     .is_each = true,
     .is_rescaled = true,
     .metrics = MAE,
     .takes = WEIGHTS},
    {{"ctc", "blank=0 zero_infinity?",
      "of logits [B, T, C] and labels [B, S] without their places; a target ends at its "
      "first number below 0"},
     ctc_of,
     PL_ANSWER_LOGITS,
     .metrics = "[]"},
    {{"info_nce", "name$ temperature=0.07",
      "of rows [B, C] that belong to the rows that were kept, among all of the batch and "
      "of all ranks"},
     info_nce_of,
     PL_ANSWER_VALUE,
     .is_without_y = true,
     .metrics = "[]"},
    {{"cosine_embedding", "name$ margin=0",
      "rows [B, C] near those that were kept where y is 1, apart where it is -1"},
     cosine_embedding_of,
     PL_ANSWER_VALUE,
     .metrics = "[]"},
    {{"triplet", "positive$ negative$ margin=1",
      "rows [B, C] nearer to the first kept rows than to the second"},
     triplet_of,
     PL_ANSWER_VALUE,
     .is_without_y = true,
     .metrics = "[]"},
};
enum { LOSSES = sizeof table / sizeof *table };

static const pl_layer_rule_t *loss_at(int k)
{
    return k < LOSSES ? &table[k].form : NULL;
}

const pl_loss_rule_t *pl_loss_read(pl_layer_builder_t *b, const char *text,
                                   pl_layer_words_t *words, pl_layer_arguments_t *a)
{
    const pl_layer_rule_t *form = pl_layer_read(b, "loss", loss_at, text, words, a);
    for (int k = 0; k < LOSSES && form; k++)
        if (form == &table[k].form)
            return &table[k];
    return NULL;
}

bool pl_loss_at(int k, pl_form_t *form)
{
    return k >= 0 && k < LOSSES && form && pl_layer_form(&table[k].form, form);
}

pl_loss_t pl_loss_of(pl_layer_builder_t *b, const pl_loss_rule_t *rule, pl_node_t x,
                     const pl_loss_data_t *data, const pl_layer_arguments_t *a)
{
    if (data->weights && !(rule->takes & WEIGHTS))
        pl_layer_fail(b,
                      "the loss %s takes no weights of samples, and the data has the "
                      "field \"weight\": name another loss, or leave the field out",
                      rule->form.name);
    if (data->label_smoothing > 0 && !(rule->takes & SMOOTHING))
        pl_layer_fail(b, "\"module.label_smoothing\" is for the losses cross_entropy and "
                         "nll: remove it");
    if (b->g->error.code)
        return pl_pair(PL_NO_NODE, PL_NO_NODE);
    return rule->of(b, x, data, a);
}
