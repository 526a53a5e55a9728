/* gradients.c - reverse mode: appends the computation of gradients to a training step
 *
 * Operations are processed backwards; the contributions to the gradient of a value are
 * summed when the pass comes to the operation that made it.  The gradient of a
 * parameter is assigned as soon as the pass is behind its first reader, so that the
 * end of the parameter list is ready early and its sum over ranks starts while the
 * rest is computed. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/model.h"
#include "tensor/narrow.h"
#include "tensor/operators.h"
#include "tensor/recompute.h"

typedef struct contribution {
    int32_t value;                                 /* one term of d(loss)/d(some value) */
    int next;                                      /* in the order of arrival, -1: last */
} contribution_t;

typedef struct backward {
    pl_graph_t *g;
    int values, ops;                        /* of the forward part */
    int *first, *last;                      /* [values] contributions to each, -1: none */
    int *first_reader;                      /* [values] operation, or ops */
    contribution_t *term;
    int terms, capacity;
    bool *assigned;                             /* [tensors of the model] */
    int *parameter, parameters;                 /* tensors that are one, offsets rising */
    double nominal;
    bool accumulate;
    pl_recompute_t recompute;
    pl_node_t seed, unscale;                  /* d(loss sum); factor of each gradient that
                                                 makes the seed 1/nominal  [PL_NO_NODE:
                                                 1] */
} backward_t;

static void contribute(backward_t *b, int32_t to, pl_node_t term)
{
    pl_graph_t *g = b->g;
    if (term.id < 0 || g->error.code)
        return;
    assert(pl_same_shape(g->value[term.id].shape, g->value[to].shape));
    if (PL_GROW(b->term, b->terms, b->capacity) != PL_OK) {
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
        return;
    }
    b->term[b->terms] = (contribution_t){term.id, -1};
    if (b->last[to] < 0)
        b->first[to] = b->terms;
    else
        b->term[b->last[to]].next = b->terms;
    b->last[to] = b->terms++;
}

/* The term of a value's gradient that is the gradient of a slice of neighbours from
 * `from` on; NULL: none. */
static const pl_op_t *slice_term(const backward_t *b, int32_t value, int64_t from)
{
    for (int i = b->first[value]; i >= 0; i = b->term[i].next) {
        const pl_value_t *term = &b->g->value[b->term[i].value];
        const pl_op_t *op = term->source == PL_FROM_OP ? &b->g->op[term->op] : NULL;
        if (op && op->code == PL_OP_pad && op->attr.from == from && op->attr.to > from)
            return op;
    }
    return NULL;
}

/* d(loss)/d(value), or an invalid node if the loss does not depend on the value.  If the
 * terms are gradients of slices that cut one axis without a gap, their sum is a
 * concatenation: one copy in place of many additions of mostly zeros. */
static pl_node_t total(backward_t *b, int32_t value)
{
    pl_graph_t *g = b->g;
    pl_node_t piece[PL_OP_INPUTS];
    int terms = 0, pieces = 0;
    int64_t end = 0;
    if (b->first[value] < 0)
        return PL_NO_NODE;
    for (int i = b->first[value]; i >= 0; i = b->term[i].next)
        terms++;
    const pl_op_t *slice = terms > 1 && terms <= PL_OP_INPUTS ? slice_term(b, value, 0)
                                                              : NULL;
    const int axis = slice ? slice->attr.axis : 0;
    while (slice && slice->attr.axis == axis && pieces < terms) {
        piece[pieces++] = pl_node_of(slice->input[0]);
        end = slice->attr.to;
        slice = slice_term(b, value, end);
    }
    if (pieces && pieces == terms && end == pl_dim(g, pl_node_of(value), axis))
        return pl_concat(g, piece, terms, axis);
    pl_node_t sum = pl_node_of(b->term[b->first[value]].value);
    for (int i = b->term[b->first[value]].next; i >= 0; i = b->term[i].next)
        sum = pl_add(g, sum, pl_node_of(b->term[i].value));
    return sum;
}

static void backward_through(backward_t *b, const pl_op_t *op)
{
    pl_graph_t *g = b->g;
    if (op->output_count == 0 || !g->value[op->output[0]].grad)
        return;
    pl_node_t dy = total(b, op->output[0]), dx[PL_OP_INPUTS];
    if (dy.id < 0)
        return;
    const pl_rules_t *rules = pl_rules_of(op->code);
    if (!rules->gradient) {
        pl_graph_fail(
            g, PL_EUNSUPPORTED,
            "%s has no gradient; the loss must not depend on a parameter through it",
            pl_op_name(op));
        return;
    }
    for (int k = 0; k < PL_OP_INPUTS; k++)
        dx[k] = PL_NO_NODE;
    pl_op_t now = *op;
    pl_recompute_values(&b->recompute, &now);
    rules->gradient(g, &now, dy, dx);
    for (int k = 0; k < op->input_count; k++)
        if (pl_wants(g, op, k))
            contribute(b, op->input[k], dx[k]);
}

/* ---- Gradients of parameters, in their region ---- */

static void assign_grad(backward_t *b, int64_t offset, pl_node_t value)
{
    pl_node_t target = pl_region_view(b->g, PL_REGION_GRADS, offset,
                                      pl_shape_of(b->g, value));
    pl_emit(b->g, PL_OP_assign, (pl_node_t[]){target, value}, 2,
            &(pl_attr_t){.accumulate = b->accumulate}, NULL);
}

static int tensor_at(const backward_t *b, int64_t offset)
{
    int low = 0, high = b->parameters - 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (b->g->model->tensor[b->parameter[middle]].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return b->parameter[low];
}

static bool is_parameter(const pl_value_t *v)
{
    return v->source == PL_FROM_REGION && v->index == PL_REGION_PARAMS;
}

static void backward_pass(backward_t *b)
{
    pl_graph_t *g = b->g;
    for (int i = b->ops - 1; i >= 0 && !g->error.code; i--) {
        const pl_op_t op = g->op[i];               /* a copy: g->op moves when it grows */
        if (snprintf(g->scope, sizeof g->scope, "%s.", op.path) >= (int)sizeof g->scope
            || !op.path[0])
            g->scope[0] = '\0';
        pl_recompute_before(&b->recompute, g, i);
        const int before = g->op_count;
        backward_through(b, &op);
        for (int k = before; k < g->op_count; k++)
            g->op[k].gradient_of = pl_op_name(&op);
        for (int k = 0; k < op.input_count && !g->error.code; k++) {
            const int32_t input = op.input[k];
            if (!is_parameter(&g->value[input]) || b->first_reader[input] != i)
                continue;
            const int tensor = tensor_at(b, g->value[input].offset);
            pl_node_t sum = b->assigned[tensor] ? PL_NO_NODE : total(b, input);
            if (sum.id < 0)
                continue;
            b->assigned[tensor] = true;
            if (b->unscale.id >= 0)
                sum = pl_mul(g, sum, b->unscale);
            assign_grad(b, g->model->tensor[tensor].offset, sum);
        }
    }
    g->scope[0] = '\0';
}

/* Allocates the lists, and marks the values that depend on a parameter that the objective
 * trains. */
static int backward_init(backward_t *b)
{
    pl_graph_t *g = b->g;
    b->values = g->value_count;
    b->ops = g->op_count;
    b->first = pl_alloc_array((size_t)b->values, sizeof *b->first);
    b->last = pl_alloc_array((size_t)b->values, sizeof *b->last);
    b->first_reader = pl_alloc_array((size_t)b->values, sizeof *b->first_reader);
    b->assigned = pl_alloc_array((size_t)g->model->count, sizeof *b->assigned);
    b->parameter = pl_alloc_array((size_t)g->model->count, sizeof *b->parameter);
    if (!b->first || !b->last || !b->first_reader || !b->assigned || !b->parameter) {
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
        return PL_ENOMEM;
    }
    for (int i = 0; i < g->model->count; i++)
        if (g->model->tensor[i].region == PL_REGION_PARAMS)
            b->parameter[b->parameters++] = i;
    for (int i = 0; i < b->values; i++) {
        b->first[i] = b->last[i] = -1;
        b->first_reader[i] = b->ops;
    }
    for (int i = b->ops - 1; i >= 0; i--)
        for (int k = 0; k < g->op[i].input_count; k++)
            b->first_reader[g->op[i].input[k]] = i;
    for (int i = 0; i < b->values; i++)
        if (is_parameter(&g->value[i]))
            g->value[i].grad =
                pl_is_trained(&g->model->tensor[tensor_at(b, g->value[i].offset)],
                              g->objective);
    for (int i = 0; i < b->ops; i++) {
        const pl_op_t *op = &g->op[i];
        bool grad = false;
        for (int k = 0; k < op->input_count; k++)
            grad |= pl_wants(g, op, k);
        if (op->output_count)
            g->value[op->output[0]].grad &= grad;
    }
    pl_recompute_init(&b->recompute, g);
    return g->error.code;
}

/* A scaled backward starts as GradScaler's does, from factor / (loss weight *
 * micro-batches to a step): float16 gradients then have PyTorch's magnitude.  Float32
 * gradients leave it at once, as gradients of sum/nominal, so that those of batches and
 * ranks with other weights can be added.  Ranks that combine values in backward need one
 * scale for all of them. */
static void backward_scale(backward_t *b)
{
    pl_graph_t *g = b->g;
    b->seed = pl_scalar(g, 1 / b->nominal);
    b->unscale = PL_NO_NODE;
    if (!g->model->scaling)
        return;
    const double micro_batches = g->model->micro_batches ? g->model->micro_batches : 1;
    pl_node_t one = pl_scalar(g, 1), weight = pl_node_of(g->fetch[0].weight),
              factor = pl_region_view(g, PL_REGION_SCALING, PL_SCALING_FACTOR,
                                      pl_shape(0));
    if (g->collectives)
        weight = pl_scalar(g, b->nominal);
    pl_node_t has_weight = pl_emit(g, PL_OP_relu_grad, (pl_node_t[]){one, weight}, 2,
                                   NULL, NULL);
    pl_node_t divisor = pl_add(g, weight, pl_sub(g, one, has_weight));
    b->seed = pl_div(g, factor, pl_scale(g, divisor, micro_batches));
    b->unscale = pl_div(g, pl_scale(g, weight, micro_batches / b->nominal), factor);
}

int pl_graph_gradients(pl_graph_t *g, double nominal, bool accumulate, pl_error_t *err)
{
    int code = pl_graph_check(g, err);
    if (code != PL_OK)
        return code;
    if (g->stage != PL_TRAIN || !g->model)
        return pl_fail(err, PL_ESTATE, "gradients need a training step of a model");
    const pl_fetch_t *loss = g->fetch;
    if (!g->fetch_count || loss->kind != PL_FETCH_METRIC || loss->metric != PL_METRIC_MEAN
        || strcmp(loss->name, "loss"))
        return pl_fail(err, PL_EINVAL,
                       "the training step has no loss; end it with pl_loss()");
    pl_graph_narrow(g);
    if (pl_graph_check(g, err) != PL_OK)
        return g->error.code;
    backward_t b = {.g = g, .nominal = nominal, .accumulate = accumulate};
    if (backward_init(&b) != PL_OK)
        goto done;
    if (!g->value[loss->value].grad) {
        pl_graph_fail(g, PL_EINVAL,
                      "the loss does not depend on any parameter that is to be trained");
        goto done;
    }
    pl_model_freeze(g->model);                    /* the graph has offsets from here on */
    const int64_t sums = g->model->params + 2 * g->objective;
    assign_grad(&b, sums, pl_node_of(loss->value));
    assign_grad(&b, sums + 1, pl_node_of(loss->weight));
    backward_scale(&b);
    contribute(&b, loss->value, b.seed);
    backward_pass(&b);
    /* Parameters that the loss does not reach have zeros, which need not be added. */
    for (int i = 0; i < g->model->count && !accumulate; i++) {
        const pl_tensor_info_t *tensor = &g->model->tensor[i];
        if (pl_is_trained(tensor, g->objective) && !b.assigned[i])
            assign_grad(&b, tensor->offset,
                        pl_broadcast_to(g, pl_scalar(g, 0), tensor->shape));
    }
    pl_recompute_finish(&b.recompute, g);
done:
    pl_free(b.first);
    pl_free(b.last);
    pl_free(b.first_reader);
    pl_free(b.assigned);
    pl_free(b.parameter);
    pl_free(b.term);
    pl_recompute_release(&b.recompute);
    return pl_graph_check(g, err);
}
