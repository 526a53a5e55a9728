/* metrics_custom.c - metrics of states that are added, compared or gathered
 *
 * Sums add up over ranks by themselves.  What is compared or gathered has a slot for each
 * rank: a rank writes its own and zeros into the others, so the sum over ranks has the
 * values of all.  A slot begins with the number of its rows, which a short batch, or a
 * rank without samples, needs.  actors/loops/metrics.c combines the slots. */
#include <string.h>

#include "tensor/operators.h"

/* What a value of this batch has, and what one of the largest batch has: all plans of a
 * stage have one layout. */
static pl_state_layout_t layout_of(pl_graph_t *g, const pl_metric_state_t *state, int k,
                                   pl_state_layout_t *own)
{
    const pl_shape_t shape = pl_shape_of(g, state->value);
    const bool gathers = state->combine == PL_COMBINE_GATHER;
    *own = (pl_state_layout_t){.combine = state->combine,
                               .rows = gathers && shape.rank ? shape.dim[0] : 1};
    own->columns = own->rows ? pl_elements(shape) / own->rows : 0;
    const pl_state_layout_t most = g->largest ? g->largest->custom[g->customs].state[k]
                                              : *own;
    if (most.combine != own->combine || most.rows < own->rows
        || most.columns < own->columns)
        pl_op_fail(g,
                   "state %d of a metric is larger, or another one, in a smaller batch",
                   k);
    return most;
}

/* [1 + rows columns] of each slot: the number of rows, then the values, with padding
 * behind. */
static pl_node_t slots_of(pl_graph_t *g, pl_node_t value, const pl_state_layout_t *own,
                          const pl_state_layout_t *layout, double padding)
{
    const int slots = g->slots > 1 ? g->slots : 1;
    const int64_t before[2] = {0},
                  after[] = {layout->rows - own->rows, layout->columns - own->columns};
    value = pl_reshape(g, value, PL_SHAPE(own->rows, own->columns));
    if (after[0] || after[1])
        value = pl_pad(g, value, before, after, padding);
    const pl_node_t count = pl_reshape(g, pl_scalar(g, (double)own->rows), PL_SHAPE(1)),
                    both[] = {count, pl_reshape(g, value, PL_SHAPE(-1))};
    pl_node_t slot = pl_concat(g, both, 2, 0);
    if (slots == 1)
        return slot;
    const pl_node_t is_own = pl_equal(g, pl_arange(g, 0, 1, slots),
                                      pl_step_scalar(g, PL_SCALAR_SLOT));
    slot = pl_where(g, pl_reshape(g, is_own, PL_SHAPE(slots, 1)),
                    pl_reshape(g, slot, PL_SHAPE(1, -1)), pl_scalar(g, 0));
    return pl_reshape(g, slot, PL_SHAPE(-1));
}

/* padding: behind shorter rows. */
static pl_metric_t padded(pl_graph_t *g, const char *name, double parameter,
                          double padding, const pl_metric_state_t *states, int count)
{
    const pl_metric_t none = {.sum = PL_NO_NODE, .weight = PL_NO_NODE};
    pl_custom_metric_t *custom = &g->custom[g->customs];
    pl_node_t part[PL_METRIC_STATES];
    pl_error_t err = {0};
    if (g->error.code)
        return none;
    if (count < 1 || count > PL_METRIC_STATES || g->customs == PL_CUSTOM_METRICS) {
        pl_op_fail(g,
                   "the metric \"%s\" has %d states, and there are %d such metrics; a "
                   "metric has 1 to %d, and a step at most %d metrics",
                   name ? name : "", count, g->customs, PL_METRIC_STATES,
                   PL_CUSTOM_METRICS);
        return none;
    }
    const void *ops = name ? pl_component_find("metric", name, &err) : NULL;
    if (!ops || strlen(name) >= sizeof custom->name) {
        pl_graph_fail(g, PL_EINVAL, "%s",
                      err.code ? err.text : "a metric has a name of at most 31 bytes");
        return none;
    }
    *custom = (pl_custom_metric_t){.ops = ops,
                                   .parameter = parameter,
                                   .states = count,
                                   .slots = g->slots > 1 ? g->slots : 1};
    strcpy(custom->name, name);
    for (int k = 0; k < count && !g->error.code; k++) {
        pl_state_layout_t own;
        const pl_node_t value = pl_as_float(g, states[k].value);
        custom->state[k] = layout_of(g, &states[k], k, &own);
        custom->only_sums = (!k || custom->only_sums)
                            && states[k].combine == PL_COMBINE_SUM;
        part[k] = states[k].combine == PL_COMBINE_SUM
                      ? pl_reshape(g, value, PL_SHAPE(-1))
                      : slots_of(g, value, &own, &custom->state[k], padding);
    }
    if (g->error.code)
        return none;
    return (pl_metric_t){.sum = count == 1 ? part[0] : pl_concat(g, part, count, 0),
                         .weight = pl_scalar(g, g->customs++),
                         .kind = PL_METRIC_CUSTOM};
}

pl_metric_t pl_custom_metric(pl_graph_t *g, const char *name, double parameter,
                             const pl_metric_state_t *states, int count)
{
    return padded(g, name, parameter, 0, states, count);
}

/* ---- those of the library ---- */

static pl_metric_t gathered(pl_graph_t *g, const char *name, double parameter,
                            double padding, const pl_node_t *value, int count)
{
    pl_metric_state_t state[PL_METRIC_STATES];
    for (int k = 0; k < count; k++)
        state[k] = (pl_metric_state_t){value[k], PL_COMBINE_GATHER};
    return padded(g, name, parameter, padding, state, count);
}

pl_metric_t pl_spearman(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    pl_difference(g, "spearman", x, target, NULL);
    const pl_node_t values[] = {pl_reshape(g, x, PL_SHAPE(-1)),
                                pl_reshape(g, target, PL_SHAPE(-1))};
    return gathered(g, "spearman", 0, 0, values, 2);
}

static pl_metric_t retrieval(pl_graph_t *g, const char *name, pl_node_t scores,
                             pl_node_t relevance, pl_node_t queries, int64_t k)
{
    const pl_shape_t a = pl_shape_of(g, scores), b = pl_shape_of(g, relevance),
                     c = pl_shape_of(g, queries);
    const pl_node_t values[] = {queries, scores, relevance};
    if (!g->error.code
        && (a.rank != 1 || k < 0 || !pl_same_shape(a, b) || !pl_same_shape(a, c)))
        pl_op_fail(g,
                   "%s takes scores, relevance and queries [B] and a k of 0 or more, got "
                   "%s, %s, %s and %lld",
                   name, PL_TEXT_OF(a), PL_TEXT_OF(b), PL_TEXT_OF(c), (long long)k);
    return gathered(g, name, (double)k, 0, values, 3);
}

#define RETRIEVAL(called) \
    pl_metric_t pl_##called(pl_graph_t *g, pl_node_t scores, pl_node_t relevance, \
                            pl_node_t queries, int64_t k) \
    { \
        return retrieval(g, #called, scores, relevance, queries, k); \
    }
RETRIEVAL(retrieval_precision)
RETRIEVAL(retrieval_recall)
RETRIEVAL(retrieval_mrr)
RETRIEVAL(retrieval_map)
RETRIEVAL(retrieval_ndcg)

static pl_metric_t texts(pl_graph_t *g, const char *name, pl_node_t predicted,
                         pl_node_t reference, int64_t padding)
{
    const pl_shape_t a = pl_shape_of(g, predicted), b = pl_shape_of(g, reference);
    const pl_node_t values[] = {predicted, reference};
    if (!g->error.code && (a.rank != 2 || b.rank != 2 || a.dim[0] != b.dim[0]))
        pl_op_fail(g, "%s takes tokens [B, T] and a reference [B, S], got %s and %s",
                   name, PL_TEXT_OF(a), PL_TEXT_OF(b));
    return gathered(g, name, (double)padding, (double)padding, values, 2);
}

#define TEXTS(called) \
    pl_metric_t pl_##called(pl_graph_t *g, pl_node_t predicted, pl_node_t reference, \
                            int64_t padding) \
    { \
        return texts(g, #called, predicted, reference, padding); \
    }
TEXTS(bleu)
TEXTS(rouge_1)
TEXTS(rouge_2)
TEXTS(rouge_l)
TEXTS(word_error_rate)
