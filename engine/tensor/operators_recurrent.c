/* operators_recurrent.c - layers over steps of time: LSTM and GRU
 *
 * The product of the inputs with their weights is one for all steps; an operator does the
 * rest of a layer in one direction, all steps at once, because a graph has no loops.  Its
 * first result has the states on both sides of each step: the results of a layer, the
 * last state, and what the gradient of the recurrent weight multiplies are parts of
 * it. */
#include <math.h>
#include <stdio.h>

#include "tensor/operators.h"

enum { LAYERS_MAX = 64, HIDDEN_MAX = 1 << 20 };

typedef struct cell {
    const char *name;
    pl_opcode_t code, grad;
    int gates, states;                             /* states: h, and c of an LSTM */
} cell_t;

static const cell_t lstm = {"lstm", PL_OP_lstm, PL_OP_lstm_grad, 4, 2},
                    gru = {"gru", PL_OP_gru, PL_OP_gru_grad, 3, 1};

static const cell_t *cell_of(const pl_op_t *op)
{
    return op->code == PL_OP_lstm || op->code == PL_OP_lstm_grad ? &lstm : &gru;
}

/* ---- The operators ---- */

static int shape_recurrent(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const cell_t *cell = cell_of(op);
    const pl_shape_t x = pl_input_shape(g, op, 0), w = pl_input_shape(g, op, 1),
                     b = pl_input_shape(g, op, 2), first = pl_input_shape(g, op, 3);
    if (pl_want_float(g, op, 4) != PL_OK)
        return PL_EINVAL;
    const int64_t hidden = w.rank == 2 ? w.dim[1] : 0, wide = cell->gates * hidden;
    if (x.rank != 3 || hidden < 1 || w.dim[0] != wide || x.dim[2] != wide
        || !pl_same_shape(b, PL_SHAPE(wide))
        || !pl_same_shape(first, PL_SHAPE(cell->states, x.dim[0], hidden)))
        return pl_op_fail(g,
                          "%s takes gates [B, T, %d H], a weight [%d H, H], a bias "
                          "[%d H] and a first state [%d, B, H], got %s, %s, %s and %s",
                          cell->name, cell->gates, cell->gates, cell->gates, cell->states,
                          PL_TEXT_OF(x), PL_TEXT_OF(w), PL_TEXT_OF(b), PL_TEXT_OF(first));
    if (op->input_count == 5) {
        const pl_value_t *lengths = pl_input_of(g, op, 4);
        if ((lengths->dtype != PL_I32 && lengths->dtype != PL_I64)
            || !pl_same_shape(lengths->shape, PL_SHAPE(x.dim[0])))
            return pl_op_fail(g, "%s takes lengths int32 or int64 [%lld], got %s %s",
                              cell->name, (long long)x.dim[0],
                              pl_dtype_name(lengths->dtype), PL_TEXT_OF(lengths->shape));
    }
    out[0].shape = PL_SHAPE(cell->states, x.dim[0], x.dim[1] + 1, hidden);
    out[1].shape = PL_SHAPE(x.dim[0], x.dim[1], 4 * hidden);
    return PL_OK;
}

static int shape_recurrent_grad(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_shape_t states = pl_input_shape(g, op, 2), w = pl_input_shape(g, op, 1);
    out[0].shape = PL_SHAPE(states.dim[1], states.dim[2] - 1, w.dim[0]);
    out[1].shape = PL_SHAPE(states.dim[0], states.dim[1], states.dim[3]);
    if (op->output_count == 3)
        out[2].shape = out[0].shape;
    return pl_want_float(g, op, 4);
}

/* h on one side of each step, of states [..., B, T + 1, H]. */
static pl_node_t h_of_steps(pl_graph_t *g, pl_node_t states, bool behind)
{
    const pl_shape_t s = pl_shape_of(g, states);
    pl_node_t h = pl_slice(g, states, 0, 0, 1);
    h = pl_slice(g, h, 2, behind, s.dim[2] - !behind);
    return pl_reshape(g, h, PL_SHAPE(s.dim[1], s.dim[2] - 1, s.dim[3]));
}

/* The weight multiplies the states before the steps; so its gradient is one product of
 * all of them. */
static void gradient_recurrent(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                               pl_node_t *dx)
{
    const cell_t *cell = cell_of(op);
    const pl_node_t states = pl_node_of(op->output[0]);
    pl_node_t inputs[5] = {dy, pl_node_of(op->input[1]), states,
                           pl_node_of(op->output[1])},
              more[2];
    if (op->input_count == 5)
        inputs[4] = pl_node_of(op->input[4]);
    dx[0] = pl_emit(g, cell->grad, inputs, op->input_count, &op->attr, more);
    if (g->error.code)
        return;
    dx[3] = more[0];
    const pl_node_t products = cell == &gru ? more[1] : dx[0];
    const int64_t wide = pl_dim(g, products, 2), hidden = wide / cell->gates;
    if (pl_wants(g, op, 1))
        dx[1] = pl_matmul(g, pl_reshape(g, products, PL_SHAPE(-1, wide)),
                          pl_reshape(g, h_of_steps(g, states, op->attr.keep),
                                     PL_SHAPE(-1, hidden)),
                          true, false);
    if (pl_wants(g, op, 2))
        dx[2] = pl_sum(g, products, (int[]){0, 1}, 2, false);
}

const pl_rules_t pl_steps_rules[PL_OPCODES] = {
    [PL_OP_gru] = {shape_recurrent, gradient_recurrent},
    [PL_OP_gru_grad] = {shape_recurrent_grad, NULL},
    [PL_OP_lstm] = {shape_recurrent, gradient_recurrent},
    [PL_OP_lstm_grad] = {shape_recurrent_grad, NULL},
};

/* ---- The layers ---- */

typedef struct recurrent {
    pl_graph_t *g;
    const cell_t *cell;
    pl_recurrent_options_t o;
    int64_t batch, steps, hidden;
    pl_node_t lengths;
    pl_node_t last[2][2 * LAYERS_MAX];             /* h and c behind the last step, */
    bool asks[2];                                  /* if they are asked for */
    int count;                                     /* layers and directions so far */
} recurrent_t;

/* A parameter of the current layer and direction. */
static pl_node_t layer_param(const recurrent_t *r, const char *what, pl_shape_t shape,
                             int layer, bool back)
{
    char name[48];
    snprintf(name, sizeof name, "%s_l%d%s", what, layer, back ? "_reverse" : "");
    return pl_param(r->g, name, shape, pl_uniform(1 / sqrt((double)r->hidden)));
}

/* h, or h and c, before the first step. */
static pl_node_t first_state(const recurrent_t *r)
{
    const pl_node_t *const given[] = {r->o.h0, r->o.c0};
    pl_node_t part[2];
    for (int k = 0; k < r->cell->states; k++)
        part[k] = given[k] ? pl_slice(r->g, *given[k], 0, r->count, r->count + 1)
                           : pl_broadcast_to(r->g, pl_scalar(r->g, 0),
                                             PL_SHAPE(1, r->batch, r->hidden));
    return r->cell->states == 1 ? part[0] : pl_concat(r->g, part, 2, 0);
}

/* States [B, T + 1, H] behind the last step of each row, [1, B, H]. */
static pl_node_t last_state(const recurrent_t *r, pl_node_t states, bool back)
{
    pl_graph_t *g = r->g;
    pl_node_t last;
    if (back || !r->o.lengths)
        last = pl_slice(g, states, 1, back ? 0 : r->steps, back ? 1 : r->steps + 1);
    else
        last = pl_emit2(g, PL_OP_gather, states,
                        pl_reshape(g, r->lengths, PL_SHAPE(-1, 1, 1)));
    return pl_reshape(g, last, PL_SHAPE(1, r->batch, r->hidden));
}

/* One layer in one direction: x [B, T, in] -> [B, T, hidden]. */
static pl_node_t run_direction(recurrent_t *r, pl_node_t x, int layer, bool back)
{
    pl_graph_t *g = r->g;
    const int64_t in = pl_dim(g, x, 2), wide = r->cell->gates * r->hidden;
    const pl_shape_t row = PL_SHAPE(wide);
    pl_node_t product[3] = {
        pl_reshape(g, x, PL_SHAPE(-1, in)),
        layer_param(r, "weight_ih", PL_SHAPE(wide, in), layer, back)};
    pl_node_t inputs[5] = {
        [1] = layer_param(r, "weight_hh", PL_SHAPE(wide, r->hidden), layer, back)};
    if (r->o.no_bias) {
        inputs[2] = pl_broadcast_to(g, pl_scalar(g, 0), row);
    } else {
        product[2] = layer_param(r, "bias_ih", row, layer, back);
        inputs[2] = layer_param(r, "bias_hh", row, layer, back);
    }
    inputs[0] = pl_emit(g, PL_OP_linear, product, r->o.no_bias ? 2 : 3, NULL, NULL);
    inputs[0] = pl_reshape(g, inputs[0], PL_SHAPE(r->batch, r->steps, wide));
    inputs[3] = first_state(r);
    inputs[4] = r->lengths;
    const pl_node_t states = pl_emit(g, r->cell->code, inputs, r->o.lengths ? 5 : 4,
                                     &(pl_attr_t){.keep = back}, NULL);
    for (int k = 0; k < 2 && !g->error.code; k++) {
        if (!r->asks[k])
            continue;
        const pl_node_t own = pl_reshape(g, pl_slice(g, states, 0, k, k + 1),
                                         PL_SHAPE(r->batch, r->steps + 1, r->hidden));
        r->last[k][r->count] = last_state(r, own, back);
    }
    r->count++;
    if (g->error.code)
        return PL_NO_NODE;
    const pl_node_t y = h_of_steps(g, states, !back);
    if (!back || !r->o.lengths || !r->o.h0)
        return y;
    /* A first state that is given lies where the steps of a row end. */
    const pl_node_t ends = pl_reshape(g, r->lengths, PL_SHAPE(-1, 1)),
                    is_step = pl_greater(g, ends, pl_range(g, r->steps));
    return pl_where(g, pl_reshape(g, is_step, PL_SHAPE(r->batch, r->steps, 1)), y,
                    pl_scalar(g, 0));
}

static int options_check(const recurrent_t *r, pl_node_t x)
{
    pl_graph_t *g = r->g;
    const pl_shape_t shape = pl_shape_of(g, x);
    const int64_t count = (int64_t)r->o.layers * (r->o.bidirectional ? 2 : 1);
    if (g->error.code)
        return PL_EINVAL;
    if (shape.rank != 3 || r->hidden < 1 || r->hidden > HIDDEN_MAX)
        return pl_op_fail(g, "%s takes x [B, T, C] and 1 to %d units, got %s and %lld",
                          r->cell->name, HIDDEN_MAX, PL_TEXT_OF(shape),
                          (long long)r->hidden);
    if (r->o.layers < 1 || r->o.layers > LAYERS_MAX
        || !(r->o.dropout >= 0 && r->o.dropout < 1))
        return pl_op_fail(g,
                          "%s takes 1 to %d layers and a dropout from 0 up to but not 1, "
                          "got %d and %g",
                          r->cell->name, LAYERS_MAX, r->o.layers, r->o.dropout);
    const pl_node_t *const given[] = {r->o.h0, r->o.c0};
    const pl_shape_t state = PL_SHAPE(count, shape.dim[0], r->hidden);
    for (int k = 0; k < 2; k++) {
        if (given[k] && k >= r->cell->states)
            return pl_op_fail(g, "%s has no c0: set h0 alone", r->cell->name);
        if (given[k] && !pl_same_shape(pl_shape_of(g, *given[k]), state))
            return pl_op_fail(g, "%s takes %s %s, got %s", r->cell->name,
                              k ? "c0" : "h0", PL_TEXT_OF(state),
                              PL_TEXT_OF(pl_shape_of(g, *given[k])));
    }
    return PL_OK;
}

static pl_node_t run_layers(pl_graph_t *g, const cell_t *cell, const char *name,
                            pl_node_t x, int64_t hidden,
                            const pl_recurrent_options_t *options, pl_node_t *last[2])
{
    recurrent_t r = {
        .g = g, .cell = cell, .hidden = hidden, .asks = {last[0], last[1]}};
    r.o = options ? *options : (pl_recurrent_options_t){0};
    r.o.layers = r.o.layers ? r.o.layers : 1;
    if (!name)
        pl_op_fail(g, "a layer needs a name, and NULL was given");
    pl_scope(g, "%s", name ? name : "");
    if (options_check(&r, x) != PL_OK)
        return PL_NO_NODE;
    r.batch = pl_dim(g, x, 0);
    r.steps = pl_dim(g, x, 1);
    r.lengths = r.o.lengths ? pl_as_indices(g, *r.o.lengths) : PL_NO_NODE;
    for (int k = 0; k < r.o.layers && !g->error.code; k++) {
        if (k)
            x = pl_dropout(g, x, r.o.dropout);
        pl_node_t part[2];
        for (int back = 0; back <= r.o.bidirectional && !g->error.code; back++)
            part[back] = run_direction(&r, x, k, back);
        x = g->error.code      ? PL_NO_NODE
            : r.o.bidirectional ? pl_concat(g, part, 2, 2)
                                : part[0];
    }
    for (int k = 0; k < 2 && !g->error.code; k++)
        if (r.asks[k])
            *last[k] = pl_concat(g, r.last[k], r.count, 0);
    pl_scope_end(g);
    return x;
}

pl_node_t pl_lstm(pl_graph_t *g, const char *name, pl_node_t x, int64_t hidden,
                  const pl_recurrent_options_t *options, pl_node_t *h_n, pl_node_t *c_n)
{
    return run_layers(g, &lstm, name, x, hidden, options, (pl_node_t *[]){h_n, c_n});
}

pl_node_t pl_gru(pl_graph_t *g, const char *name, pl_node_t x, int64_t hidden,
                 const pl_recurrent_options_t *options, pl_node_t *h_n)
{
    return run_layers(g, &gru, name, x, hidden, options, (pl_node_t *[]){h_n, NULL});
}
