/* operators_ranks.c - values of all ranks within a step
 *
 * The ranks synchronize on a piece of PL_REGION_COLLECTIVE.  A rank's value is assigned
 * to it, a collective follows, and the operator `across` reads the result.  For its
 * gradient the ranks sum theirs, because the loss of each rank depends on the values of
 * all. */
#include "base/alloc.h"
#include "tensor/operators.h"

static int shape_across(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    (void)out;
    return pl_want_float(g, op, 2);
}

static void gradient_across(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    const pl_shape_t all = pl_input_shape(g, op, 0);
    const int64_t from = pl_graph_collective_reserve(g, pl_elements(all));
    pl_assign(g, pl_region_view(g, PL_REGION_COLLECTIVE, from, all), dy);
    pl_graph_collective(g, PL_GRAPH_COLLECTIVE_SUM, from, pl_elements(all), NULL);
    dx[1] = pl_region_view(g, PL_REGION_COLLECTIVE, from + op->attr.to,
                           pl_input_shape(g, op, 1));
}

const pl_rules_t pl_ranks_rules[PL_OPCODES] = {
    [PL_OP_across] = {shape_across, gradient_across},
};

static bool ranks_are_known(pl_graph_t *g, const char *name)
{
    if (!g->ranks)
        pl_graph_fail(g, PL_EUNSUPPORTED,
                      "%s needs all ranks in the middle of a step, which this "
                      "\"trainer.strategy\" does not support: use another, such as "
                      "\"ddp\"",
                      name);
    return !g->error.code;
}

/* Whether ranks can synchronize on x: float32 with at least `axes` axes. */
static bool is_possible(pl_graph_t *g, const char *name, pl_node_t x, int axes)
{
    const pl_shape_t shape = pl_shape_of(g, x);
    if (g->error.code)
        return false;
    if (shape.rank < axes || g->value[x.id].dtype != PL_F32)
        pl_op_fail(g, "%s takes a float32 x %s, got %s %s", name,
                   axes ? "[rows, ...]" : "of any shape",
                   pl_dtype_name(g->value[x.id].dtype), PL_TEXT_OF(shape));
    return ranks_are_known(g, name);
}

int pl_graph_rank(pl_graph_t *g)
{
    return ranks_are_known(g, "graph_rank") ? g->rank : 0;
}

int pl_graph_world_size(pl_graph_t *g)
{
    return ranks_are_known(g, "graph_world_size") ? g->ranks : 1;
}

/* The rows of this x in the graph of the largest batch; 0: the graph has an error. */
static int64_t rows_with_full_batch(pl_graph_t *g, int64_t rows)
{
    const pl_graph_t *largest = g->largest ? g->largest : g;
    if (PL_GROW(g->gathered, g->gathers, g->gather_capacity) != PL_OK) {
        pl_graph_fail(g, PL_ENOMEM, "all_gather: out of memory");
        return 0;
    }
    g->gathered[g->gathers++] = rows;
    if (largest->gathers < g->gathers || largest->gathered[g->gathers - 1] < rows)
        pl_op_fail(g,
                   "all_gather %d has %lld rows here, but %lld with a full batch: "
                   "describe the same operators, with at most as many rows, for each "
                   "size of a batch",
                   g->gathers, (long long)rows,
                   largest->gathers < g->gathers
                       ? 0LL
                       : (long long)largest->gathered[g->gathers - 1]);
    return g->error.code ? 0 : largest->gathered[g->gathers - 1];
}

/* A rank that has fewer rows gives zeros behind them: so the piece has one size for all
 * batches, and a rank without samples can take part. */
pl_node_t pl_all_gather(pl_graph_t *g, pl_node_t x)
{
    if (!is_possible(g, "all_gather", x, 1) || g->ranks == 1)
        return g->error.code ? PL_NO_NODE : x;
    pl_shape_t shape = pl_shape_of(g, x);
    const int64_t rows = shape.dim[0], most = rows_with_full_batch(g, rows);
    if (!most)
        return PL_NO_NODE;
    const int64_t width = pl_elements(shape) / rows,
                  part = (most * width + PL_REGION_ALIGN - 1) / PL_REGION_ALIGN
                         * PL_REGION_ALIGN,
                  from = pl_graph_collective_reserve(g, part * g->ranks),
                  own = g->rank * part, none[2] = {0}, behind[] = {most - rows, 0};
    pl_node_t gives = pl_reshape(g, x, PL_SHAPE(rows, width));
    const pl_node_t flat = gives;
    if (most > rows)
        gives = pl_pad(g, gives, none, behind, 0);
    pl_assign(g,
              pl_region_view(g, PL_REGION_COLLECTIVE, from + own, PL_SHAPE(most, width)),
              gives);
    pl_graph_collective(g, PL_GRAPH_COLLECTIVE_GATHER, from, part * g->ranks, NULL);
    const pl_node_t inputs[] = {pl_region_view(g, PL_REGION_COLLECTIVE, from,
                                               PL_SHAPE(g->ranks, part)),
                                flat};
    pl_node_t all = pl_emit(g, PL_OP_across, inputs, 2, &(pl_attr_t){.to = own}, NULL);
    if (part > most * width)
        all = pl_slice(g, all, 1, 0, most * width);
    shape.dim[0] = g->ranks * most;
    return pl_reshape(g, all, shape);
}

pl_node_t pl_all_reduce(pl_graph_t *g, pl_node_t x, pl_loop_reduction_t reduction)
{
    if (reduction != PL_LOOP_SUM && reduction != PL_LOOP_MEAN)
        pl_op_fail(g, "all_reduce takes PL_LOOP_SUM or PL_LOOP_MEAN, got %d",
                   (int)reduction);
    if (!is_possible(g, "all_reduce", x, 0) || g->ranks == 1)
        return g->error.code ? PL_NO_NODE : x;
    const pl_shape_t shape = pl_shape_of(g, x);
    const int64_t count = pl_elements(shape),
                  from = pl_graph_collective_reserve(g, count);
    const pl_node_t inputs[] = {pl_region_view(g, PL_REGION_COLLECTIVE, from, shape), x};
    pl_assign(g, inputs[0], x);
    pl_graph_collective(g, PL_GRAPH_COLLECTIVE_SUM, from, count, NULL);
    const pl_node_t sum = pl_emit(g, PL_OP_across, inputs, 2, NULL, NULL);
    return reduction == PL_LOOP_SUM ? sum : pl_scale(g, sum, 1.0 / g->ranks);
}
