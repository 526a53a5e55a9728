/* layers_sequence.c - layers of the module "layers" for sequences: attention, recurrent
 * layers, positions */
#include <stdint.h>

#include "tensor/layers_module.h"
#include "tensor/operators.h"

/* A trained vector for each position of [B, T, C] is added. */
pl_node_t pl_layer_positions(pl_layer_builder_t *b, pl_node_t x,
                             const pl_layer_arguments_t *a)
{
    const pl_shape_t shape = pl_shape_of(b->g, x);
    if (!b->g->error.code && shape.rank != 3)
        pl_layer_fail(b, "positions takes x [B, T, C], got %s", PL_TEXT_OF(shape));
    const pl_shape_t all = PL_SHAPE(pl_cache_tokens(b->g, shape.dim[1]), shape.dim[2]);
    const pl_node_t weight = pl_param(b->g, "weight", all, pl_normal(a->value[0]));
    return pl_add(b->g, x, pl_cache_rows(b->g, weight));
}

bool pl_layer_mask(pl_layer_builder_t *b, pl_shape_t shape, pl_node_t *mask)
{
    if (b->g->error.code || shape.rank != 3 || !pl_has_input(b->g, "mask"))
        return false;
    const pl_node_t field = pl_input(b->g, "mask");
    const pl_shape_t of = pl_shape_of(b->g, field);
    const int64_t more = of.rank == 2 ? shape.dim[1] - of.dim[1] : -1;
    if (of.rank != 2 || of.dim[0] != shape.dim[0] || (more && more != b->tokens))
        return false;
    *mask = field;
    if (!more)
        return true;
    const pl_node_t part[] = {pl_broadcast_to(b->g, pl_scalar(b->g, 1),
                                              PL_SHAPE(shape.dim[0], more)),
                              pl_cast(b->g, field, PL_F32)};
    *mask = pl_concat(b->g, part, 2, 1);
    return true;
}

pl_node_t pl_layer_token(pl_layer_builder_t *b, pl_node_t x,
                         const pl_layer_arguments_t *a)
{
    const pl_shape_t shape = pl_shape_of(b->g, x);
    if (!b->g->error.code && shape.rank != 3)
        pl_layer_fail(b, "token takes x [B, T, C], got %s", PL_TEXT_OF(shape));
    if (b->g->error.code)
        return PL_NO_NODE;
    const pl_shape_t one = PL_SHAPE(1, 1, shape.dim[2]),
                     each = PL_SHAPE(shape.dim[0], 1, shape.dim[2]);
    b->tokens++;
    const pl_node_t weight = pl_param(b->g, "weight", one, pl_normal(a->value[0])),
                    rows[] = {pl_broadcast_to(b->g, weight, each), x};
    return pl_concat(b->g, rows, 2, 1);
}

/* Multi-head attention of [B, T, C] to itself, or to what was kept, with its linear
 * layers; keys and values may have fewer heads. */
pl_node_t pl_layer_attention(pl_layer_builder_t *b, pl_node_t x,
                             const pl_layer_arguments_t *a)
{
    pl_graph_t *g = b->g;
    const bool crosses = a->is_given[6];
    const pl_node_t keys = crosses ? pl_layer_kept(b, a->text[6]) : x;
    const pl_shape_t s = pl_shape_of(g, x), of = pl_shape_of(g, keys);
    const int64_t heads = (int64_t)a->value[0],
                  few = a->value[3] > 0 ? (int64_t)a->value[3] : heads;
    if (!g->error.code && heads % few)
        pl_layer_fail(b, "attention takes kv_heads that divide its %lld heads, got %lld",
                      (long long)heads, (long long)few);
    if (!g->error.code && (s.rank != 3 || s.dim[2] % heads))
        pl_layer_fail(
            b, "attention takes x [B, T, C] with C a multiple of its %lld heads, got %s",
            (long long)heads, PL_TEXT_OF(s));
    if (!g->error.code && (of.rank != 3 || of.dim[0] != s.dim[0]))
        pl_layer_fail(b, "attention takes keys [B, S, C] for x %s, got %s", PL_TEXT_OF(s),
                      PL_TEXT_OF(of));
    if (g->error.code)
        return PL_NO_NODE;
    pl_attention_options_t options = {.causal = a->is_given[1],
                                      .dropout = a->value[2],
                                      .window = (int64_t)a->value[4],
                                      .rotary = a->is_given[5],
                                      .scale = a->value[7]};
    pl_node_t mask = PL_NO_NODE, bias = PL_NO_NODE, part[3];
    if (a->is_given[8]) {
        bias = pl_layer_kept(b, a->text[8]);
        options.bias = &bias;
    }
    if (a->is_given[9])
        mask = pl_layer_kept(b, a->text[9]);
    if (a->is_given[9] || (!options.causal && pl_layer_mask(b, of, &mask)))
        options.mask = &mask;
    const int64_t width = s.dim[2] / heads, own = heads * width, other = few * width;
    const pl_node_t queries = crosses ? pl_linear(g, "q", x, own)
                                      : pl_linear(g, "qkv", x, own + 2 * other),
                    rest = crosses ? pl_linear(g, "kv", keys, 2 * other) : queries;
    for (int64_t k = 0, from = 0; k < 3; k++) {
        const int64_t count = k ? few : heads, tokens = k ? of.dim[1] : s.dim[1];
        if (k == 1 && crosses)
            from = 0;
        part[k] = pl_slice(g, k ? rest : queries, 2, from, from + count * width);
        part[k] = pl_reshape(g, part[k], PL_SHAPE(s.dim[0], tokens, count, width));
        part[k] = pl_permute(g, part[k], (int[]){0, 2, 1, 3});
        from += count * width;
    }
    x = pl_attention(g, part[0], part[1], part[2], &options);
    x = pl_reshape(g, pl_permute(g, x, (int[]){0, 2, 1, 3}), s);
    return pl_linear(g, "proj", x, s.dim[2]);
}

/* The steps of [B, T, C], or what is behind the last one: the last layer's state, of both
 * directions.  Samples end where the field "mask" [B, T] of the data does. */
static pl_node_t recurrent_build(pl_layer_builder_t *b, pl_node_t x,
                                 const pl_layer_arguments_t *a, bool is_lstm)
{
    const bool fits = a->value[1] >= 1 && a->value[1] <= INT16_MAX;
    pl_recurrent_options_t options = {.layers = fits ? (int)a->value[1] : -1,
                                      .bidirectional = a->is_given[2],
                                      .dropout = a->value[3],
                                      .no_bias = a->is_given[5]};
    const pl_shape_t shape = pl_shape_of(b->g, x);
    pl_node_t lengths, mask;
    if (pl_layer_mask(b, shape, &mask)) {
        lengths = pl_sum(b->g, mask, (int[]){1}, 1, false);
        lengths = pl_cast(b->g, lengths, PL_I64);
        options.lengths = &lengths;
    }
    const int64_t units = (int64_t)a->value[0];
    pl_node_t last, *const asked = a->is_given[4] ? &last : NULL;
    x = is_lstm ? pl_lstm(b->g, b->path, x, units, &options, asked, NULL)
                : pl_gru(b->g, b->path, x, units, &options, asked);
    if (b->g->error.code || !a->is_given[4])
        return x;
    const int64_t count = pl_dim(b->g, last, 0), own = options.bidirectional ? 2 : 1;
    last = pl_permute(b->g, pl_slice(b->g, last, 0, count - own, count),
                      (int[]){1, 0, 2});
    return pl_reshape(b->g, last, PL_SHAPE(pl_dim(b->g, last, 0), own * units));
}

pl_node_t pl_layer_lstm(pl_layer_builder_t *b, pl_node_t x, const pl_layer_arguments_t *a)
{
    return recurrent_build(b, x, a, true);
}

pl_node_t pl_layer_gru(pl_layer_builder_t *b, pl_node_t x, const pl_layer_arguments_t *a)
{
    return recurrent_build(b, x, a, false);
}
