/* cache.c - keys and values that causal attention keeps while text is generated
 *
 * The graph of the whole context keeps those of all tokens.  The graph of one more token,
 * at input "position", replaces those of its position and attends to the ones up to it;
 * what counts positions counts from there.  An operator that mixes tokens by other means
 * gives other results in the second graph: its user compares both. */
#include "tensor/graph.h"
#include "tensor/operators.h"

/* The position of the next token: int32 [1]. */
static pl_node_t position(pl_graph_t *g)
{
    return pl_cast(g, pl_input(g, "position"), PL_I32);
}

pl_node_t pl_cache_positions(pl_graph_t *g, int64_t n)
{
    return g->cache.continues && n == 1 ? position(g) : PL_NO_NODE;
}

pl_node_t pl_cache_rows(pl_graph_t *g, pl_node_t rows)
{
    return g->cache.continues ? pl_take(g, rows, 0, position(g)) : rows;
}

int64_t pl_cache_tokens(const pl_graph_t *g, int64_t tokens)
{
    return g->cache.continues && tokens == 1 ? g->cache.context : tokens;
}

/* Keys or values of all tokens, after those of x [1, heads, T, d] have replaced what was
 * kept of them. */
static pl_node_t keep(pl_graph_t *g, pl_node_t x)
{
    const int64_t context = g->cache.context, from = g->cache.elements;
    pl_shape_t all = pl_shape_of(g, x);
    all.dim[2] = context;
    g->cache.elements += (pl_elements(all) + PL_REGION_ALIGN - 1) / PL_REGION_ALIGN
                         * PL_REGION_ALIGN;
    const pl_node_t kept = pl_region_view(g, PL_REGION_CACHE, from, all);
    if (g->cache.continues) {
        const pl_node_t places = pl_reshape(g, pl_range(g, context),
                                            PL_SHAPE(1, 1, context, 1));
        x = pl_where(g, pl_equal(g, places, position(g)), x, kept);
    }
    pl_assign(g, kept, x);
    return x;
}

void pl_cache_attend(pl_graph_t *g, pl_node_t *q, pl_node_t *k, pl_node_t *v,
                     pl_attention_options_t *options, pl_node_t *mask)
{
    const int64_t tokens = g->cache.continues ? 1 : g->cache.context;
    if (g->cache.context && options->rotary)
        pl_attention_turn(g, options, q, k);
    const pl_shape_t queries = pl_shape_of(g, *q), keys = pl_shape_of(g, *k),
                     values = pl_shape_of(g, *v);
    if (g->error.code || !g->cache.context || !options->causal || options->mask
        || options->bias || queries.rank != 4 || keys.rank != 4 || values.rank != 4
        || queries.dim[2] != tokens || keys.dim[2] != tokens || values.dim[2] != tokens)
        return;
    *k = keep(g, *k);
    *v = keep(g, *v);
    if (!g->cache.continues)
        return;
    const pl_node_t here = position(g), places = pl_range(g, g->cache.context);
    *mask = pl_less_equal(g, places, here);
    if (options->window)
        *mask = pl_logical_and(
            g, *mask,
            pl_less(g,
                    pl_sub(g, here,
                           pl_cast(g, pl_scalar(g, (double)options->window), PL_I32)),
                    places));
    *mask = pl_reshape(g, *mask, PL_SHAPE(1, g->cache.context));
    options->mask = mask;
    options->causal = false;
    options->window = 0;
}
