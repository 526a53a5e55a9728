/* narrow.c - operations compute only the slice of their result that is read
 *
 * A classifier that reads the first of many tokens needs no other from its last layer.
 * So where all readers of a value take the same slice of it, the operation that makes it
 * computes the slice, of slices of its inputs, if each index of the result depends on
 * that index of the inputs alone.
 *
 * From the last operation to the first, each value learns what is read of it.  From the
 * first to the last, operations that would not save work are refused; then what is read
 * is found again.  In the end the operations are rewritten in order. */
#include "tensor/narrow.h"

#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/random.h"
#include "tensor/operators.h"

/* Times that operations may be refused: one that is refused reads its inputs whole. */
enum { PASSES = 8 };

/* What is read of a value, as its elements in order [outer, size, inner]: those from
 * `from` on, before `to`, of the middle. */
typedef struct part {
    enum { UNREAD, PART, WHOLE } kind;
    int64_t outer, size, inner, from, to;
} part_t;

/* A part within one axis of a shape, [outer, size, inner] of it. */
typedef struct axis_place {
    int axis;
    int64_t outer, inner;
} axis_place_t;

/* A slice of a value that stays whole. */
typedef struct cut {
    int32_t value, slice;
    part_t part;
} cut_t;

/* What becomes of an operation: nothing reads it, it stays as it is (REFUSED: it could be
 * narrowed), or it computes a part. */
typedef enum fate { UNUSED, KEPT, REFUSED, NARROWED } fate_t;

typedef struct narrowing {
    pl_graph_t *g;
    part_t *part;                              /* [values] */
    pl_shape_t *shape;                         /* [values] before */
    int32_t *same;                             /* [values] what readers of a value read */
    bool *changes;                             /* [values] memory that a step may write */
    fate_t *fate;                              /* [operations] */
    pl_op_t *op;                               /* the new ones */
    int op_count, op_capacity;
    cut_t *cut;
    int cuts, cut_capacity;
    pl_map_t places;                                        /* of cuts: number + 1 */
} narrowing_t;

static const part_t whole = {.kind = WHOLE};

static bool same_part(const part_t *a, const part_t *b)
{
    return a->kind == b->kind && a->outer == b->outer && a->size == b->size
           && a->inner == b->inner && a->from == b->from && a->to == b->to;
}

static int64_t product_of(pl_shape_t shape, int from, int to)
{
    int64_t product = 1;
    for (int i = from; i < to; i++)
        product *= shape.dim[i];
    return product;
}

/* Finds the axis of a shape that the part lies in; false: it goes over several axes. */
static bool place_find(pl_shape_t shape, const part_t *part, axis_place_t *place)
{
    for (int a = 0; a < shape.rank; a++) {
        const int64_t before = product_of(shape, 0, a),
                      after = product_of(shape, a + 1, shape.rank);
        *place = (axis_place_t){a, part->outer / before, part->inner / after};
        if (part->outer % before == 0 && part->inner % after == 0
            && place->outer * part->size * place->inner == shape.dim[a])
            return true;
    }
    return false;
}

/* The part of another shape that has the same place in its axis. */
static part_t part_at(pl_shape_t shape, int axis, const axis_place_t *place,
                      const part_t *part)
{
    part_t it = *part;
    it.outer = product_of(shape, 0, axis) * place->outer;
    it.inner = place->inner * product_of(shape, axis + 1, shape.rank);
    return it;
}

/* ---- What operations read ---- */

/* The part that a slice reads; false: it is no slice of neighbours, or it takes more than
 * half. */
static bool part_of_slice(const narrowing_t *n, const pl_op_t *op, part_t *part)
{
    if (op->code != PL_OP_slice)
        return false;
    const int axis = op->attr.axis;
    const pl_shape_t x = n->shape[op->input[0]];
    *part = (part_t){PART,          product_of(x, 0, axis),
                     x.dim[axis],   product_of(x, axis + 1, x.rank),
                     op->attr.from, op->attr.to};
    return op->attr.step[axis] == 1 && (part->to - part->from) * 2 <= part->size;
}

/* Whether the part is the last query, which attends to all keys also if attention is
 * causal. */
static bool is_last_query(const narrowing_t *n, const pl_op_t *op, const part_t *part)
{
    const pl_shape_t q = n->shape[op->input[0]], k = n->shape[op->input[1]];
    return part->size == q.dim[2] && part->from == part->size - 1 && k.dim[2] <= q.dim[2];
}

/* Sets axis[k] to the axis of input k along which the operation reads only the index that
 * it computes along an axis of its result; -1: it reads all.  False: it mixes indices. */
static bool axes_of_inputs(const narrowing_t *n, const pl_op_t *op, const part_t *part,
                           int of, int axis[PL_OP_INPUTS])
{
    const pl_shape_t y = n->shape[op->output[0]];
    const pl_op_kind_t kind = pl_operators[op->code].kind;
    const bool is_element = kind == PL_KIND_element && op->code != PL_OP_dropout;
    for (int k = 0; k < op->input_count; k++) {
        const pl_shape_t x = n->shape[op->input[k]];
        axis[k] = of - (y.rank - x.rank);                   /* as shapes broadcast */
        if (axis[k] < 0 || (x.dim[axis[k]] == 1 && y.dim[of] > 1))
            axis[k] = -1;
        if (!is_element && k > 0)
            axis[k] = -1;
    }
    if (is_element)
        return true;
    switch (op->code) {
    case PL_OP_convert:
    case PL_OP_broadcast: return true;
    case PL_OP_permute: axis[0] = op->attr.order[of]; return true;
    case PL_OP_slice: return of != op->attr.axis;
    case PL_OP_linear:
    case PL_OP_softmax: return of < y.rank - 1;
    case PL_OP_layer_norm: return of < y.rank - 1 && op->attr.to <= 1;
    case PL_OP_embedding: axis[0] = of; return of < y.rank - 1;
    case PL_OP_matmul:
        axis[0] = op->attr.transpose_a ? -1 : n->shape[op->input[0]].rank - 2;
        return of == y.rank - 2 && axis[0] >= 0;
    case PL_OP_concat:
        for (int k = 0; k < op->input_count; k++)
            axis[k] = of;
        return of != op->attr.axis;
    case PL_OP_attention:                                   /* the axis of queries */
        if (op->input_count > 3 && n->shape[op->input[3]].rank == 4
            && n->shape[op->input[3]].dim[2] > 1)
            axis[3] = 2;
        return of == 2 && !op->attr.to && !op->attr.axis && op->attr.b == 0
               && (!op->attr.causal || is_last_query(n, op, part));
    default: return false;
    }
}

static void read_part(narrowing_t *n, int32_t value, const part_t *part)
{
    part_t *known = &n->part[value];
    if (known->kind == UNREAD)
        *known = *part;
    else if (!same_part(known, part))
        *known = whole;
}

/* The parts of its inputs that an operation reads to compute a part of its result. */
static bool inputs_find(const narrowing_t *n, const pl_op_t *op, const part_t *part,
                        part_t in[PL_OP_INPUTS])
{
    int axis[PL_OP_INPUTS];
    axis_place_t place;
    for (int k = 1; k < op->output_count; k++)
        if (n->part[op->output[k]].kind != UNREAD)
            return false;
    if (part->kind != PART || !place_find(n->shape[op->output[0]], part, &place))
        return false;
    if (op->code != PL_OP_reshape && !axes_of_inputs(n, op, part, place.axis, axis))
        return false;
    for (int k = 0; k < op->input_count; k++) {
        if (op->code == PL_OP_reshape)
            in[k] = *part;
        else if (axis[k] < 0)
            in[k] = whole;
        else
            in[k] = part_at(n->shape[op->input[k]], axis[k], &place, part);
        if (in[k].kind == PART && n->changes[op->input[k]])
            return false;                         /* it is read when the operation runs */
    }
    return true;
}

static void parts_find(narrowing_t *n)
{
    pl_graph_t *g = n->g;
    for (int v = 0; v < g->value_count; v++)
        n->part[v] = (part_t){.kind = UNREAD};
    for (int i = 0; i < g->fetch_count; i++) {
        n->part[g->fetch[i].value] = whole;
        if (g->fetch[i].kind == PL_FETCH_METRIC)
            n->part[g->fetch[i].weight] = whole;
    }
    for (int i = g->op_count - 1; i >= 0; i--) {
        const pl_op_t *op = &g->op[i];
        part_t in[PL_OP_INPUTS], slice;
        bool is_read = pl_operators[op->code].kind == PL_KIND_effect;
        for (int k = 0; k < op->output_count; k++)
            is_read |= n->part[op->output[k]].kind != UNREAD;
        if (!is_read)
            continue;
        const bool is_slice = part_of_slice(n, op, &slice),
                   is_narrow = !is_slice && op->output_count && n->fate[i] != REFUSED
                               && inputs_find(n, op, &n->part[op->output[0]], in);
        if (n->fate[i] != REFUSED)
            n->fate[i] = is_narrow ? NARROWED : KEPT;
        for (int k = 0; k < op->output_count && !is_narrow; k++)
            n->part[op->output[k]] = whole;
        for (int k = 0; k < op->input_count; k++)
            read_part(n, op->input[k], is_narrow ? &in[k] : is_slice ? &slice : &whole);
    }
    for (int v = 0; v < g->value_count; v++)
        if (g->value[v].source != PL_FROM_OP)
            n->part[v] = whole;
}

/* Refuses to narrow operations that save fewer elements than slices of their inputs copy;
 * moves save none.  False: there is none, or all were refused before. */
static bool refuse(narrowing_t *n)
{
    const pl_graph_t *g = n->g;
    bool any = false;
    for (int i = 0; i < g->op_count; i++) {
        const pl_op_t *op = &g->op[i];
        part_t in[PL_OP_INPUTS];
        if (n->fate[i] != NARROWED)
            continue;
        const part_t *part = &n->part[op->output[0]];
        const int64_t count = part->to - part->from;
        int64_t saved = part->outer * (part->size - count) * part->inner, copied = 0;
        if (pl_operators[op->code].kind == PL_KIND_shape)
            saved = 0;
        inputs_find(n, op, part, in);
        for (int k = 0; k < op->input_count; k++)
            if (in[k].kind == PART && !same_part(&n->part[op->input[k]], &in[k]))
                copied += in[k].outer * count * in[k].inner;
        if (copied > saved) {
            n->fate[i] = REFUSED;
            n->part[op->output[0]] = whole;
            any = true;
        }
    }
    return any;
}

/* ---- The new operations ---- */

static void op_append(narrowing_t *n, const pl_op_t *op)
{
    pl_graph_t *g = n->g;
    if (g->error.code)
        return;
    if (n->op_count == PL_OPS_MAX) {
        pl_graph_fail(g, PL_EUNSUPPORTED, "a step has at most %d operations", PL_OPS_MAX);
        return;
    }
    if (PL_GROW(n->op, n->op_count, n->op_capacity) != PL_OK) {
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
        return;
    }
    for (int k = 0; k < op->output_count; k++)
        g->value[op->output[k]].op = n->op_count;
    n->op[n->op_count++] = *op;
}

/* Sets the shapes of the results by the operator's rule. */
static void shapes_renew(narrowing_t *n, const pl_op_t *op)
{
    pl_graph_t *g = n->g;
    pl_value_t out[PL_OP_OUTPUTS];
    for (int k = 0; k < op->output_count; k++) {
        out[k] = g->value[op->output[k]];
        out[k].shape = g->value[op->input[0]].shape;
    }
    if (g->error.code || pl_rules_of(op->code)->shape(g, op, out) != PL_OK)
        return;
    for (int k = 0; k < op->output_count; k++)
        g->value[op->output[k]].shape = out[k].shape;
}

/* Appends a move of a value for the operation `reader`; returns its result. */
static int32_t move(narrowing_t *n, const pl_op_t *reader, pl_opcode_t code, int32_t x,
                    const pl_attr_t *attr)
{
    pl_graph_t *g = n->g;
    pl_op_t op = {.code = code,
                  .input_count = 1,
                  .output_count = 1,
                  .input = {x},
                  .attr = *attr,
                  .checkpoint = reader->checkpoint};
    const pl_value_t y = {.source = PL_FROM_OP,
                          .dtype = g->value[x].dtype,
                          .shape = attr->shape,
                          .grad = g->value[x].grad};
    memcpy(op.path, reader->path, sizeof op.path);
    op.output[0] = pl_value_add(g, &y).id;
    op_append(n, &op);
    return g->error.code ? x : op.output[0];
}

/* A slice of a value along an axis, or within one: [outer, size, inner] of it. */
static int32_t slice_of(narrowing_t *n, const pl_op_t *reader, int32_t x,
                        const part_t *part)
{
    const int64_t count = part->to - part->from;
    pl_shape_t shape = n->g->value[x].shape;
    pl_attr_t attr = {.axis = 1, .from = part->from, .to = part->to};
    axis_place_t place;
    const bool is_placed = place_find(shape, part, &place),
               is_axis = is_placed && place.outer == 1 && place.inner == 1;
    if (is_placed)
        shape.dim[place.axis] = place.outer * count * place.inner;
    else
        shape = PL_SHAPE(part->outer * count * part->inner);  /* the reader reshapes it */
    if (is_axis)
        attr.axis = place.axis;
    else
        x = move(n, reader, PL_OP_reshape, x,
                 &(pl_attr_t){.shape = PL_SHAPE(part->outer, part->size, part->inner)});
    attr.step[attr.axis] = 1;
    attr.shape = is_axis ? shape : PL_SHAPE(part->outer, count, part->inner);
    x = move(n, reader, PL_OP_slice, x, &attr);
    return is_axis ? x : move(n, reader, PL_OP_reshape, x, &(pl_attr_t){.shape = shape});
}

/* The slice of a value that stays whole, made once. */
static int32_t cut(narrowing_t *n, const pl_op_t *reader, int32_t x, const part_t *part)
{
    uint64_t key = pl_mix((uint64_t)x, (uint64_t)part->size);
    key = pl_mix(key, pl_mix((uint64_t)part->from, (uint64_t)part->to));
    key = pl_mix(key, (uint64_t)part->inner) | 1;
    const intptr_t there = (intptr_t)pl_map_get(&n->places, key);
    const cut_t *known = there ? &n->cut[there - 1] : NULL;
    if (known && known->value == x && same_part(&known->part, part))
        return known->slice;
    const int32_t y = slice_of(n, reader, x, part);
    if (PL_GROW(n->cut, n->cuts, n->cut_capacity) != PL_OK
        || pl_map_put(&n->places, key, (void *)(intptr_t)(n->cuts + 1)) != PL_OK)
        pl_graph_fail(n->g, PL_ENOMEM, "out of memory");
    else
        n->cut[n->cuts++] = (cut_t){x, y, *part};
    return y;
}

/* Appends an operation that computes a part of its result. */
static void narrow(narrowing_t *n, pl_op_t op)
{
    const part_t *part = &n->part[op.output[0]];
    part_t in[PL_OP_INPUTS];
    axis_place_t place;
    inputs_find(n, &op, part, in);
    place_find(n->shape[op.output[0]], part, &place);
    if (op.code == PL_OP_reshape || op.code == PL_OP_broadcast)
        op.attr.shape.dim[place.axis] = place.outer * (part->to - part->from)
                                        * place.inner;
    if (op.code == PL_OP_attention)
        op.attr.causal = false;
    for (int k = 0; k < op.input_count; k++)
        op.input[k] = in[k].kind == WHOLE || same_part(&n->part[op.input[k]], &in[k])
                          ? n->same[op.input[k]]
                          : cut(n, &op, n->same[op.input[k]], &in[k]);
    shapes_renew(n, &op);
    op_append(n, &op);
}

static void rewrite(narrowing_t *n)
{
    pl_graph_t *g = n->g;
    const int ops = g->op_count;
    for (int i = 0; i < ops && !g->error.code; i++) {
        pl_op_t op = g->op[i];
        part_t part;
        for (int k = 0; k < op.output_count; k++)
            g->value[op.output[k]].op = -1;
        if (n->fate[i] == NARROWED) {
            narrow(n, op);
        } else if (n->fate[i] != UNUSED && part_of_slice(n, &op, &part)
                   && same_part(&n->part[op.input[0]], &part)) {
            n->same[op.output[0]] = n->same[op.input[0]];
        } else if (n->fate[i] != UNUSED) {
            for (int k = 0; k < op.input_count; k++)
                op.input[k] = n->same[op.input[k]];
            op_append(n, &op);
        }
    }
    for (int i = 0; i < g->fetch_count; i++) {
        pl_fetch_t *fetch = &g->fetch[i];
        fetch->value = n->same[fetch->value];
        if (fetch->kind == PL_FETCH_METRIC)
            fetch->weight = n->same[fetch->weight];
    }
    if (g->error.code)
        return;
    pl_free(g->op);
    g->op = n->op;
    g->op_count = n->op_count;
    g->op_capacity = n->op_capacity;
    n->op = NULL;
}

void pl_graph_narrow(pl_graph_t *g)
{
    narrowing_t n = {.g = g};
    bool has_slice = false;
    for (int i = 0; i < g->op_count; i++)
        has_slice |= g->op[i].code == PL_OP_slice;
    if (!has_slice || g->error.code)
        return;
    const size_t values = (size_t)g->value_count;
    n.part = pl_alloc_array(values, sizeof *n.part);
    n.shape = pl_alloc_array(values, sizeof *n.shape);
    n.same = pl_alloc_array(values, sizeof *n.same);
    n.changes = pl_alloc_array(values, sizeof *n.changes);
    n.fate = pl_alloc_array((size_t)g->op_count, sizeof *n.fate);
    if (n.part && n.shape && n.same && n.changes && n.fate) {
        for (int v = 0; v < g->value_count; v++) {
            n.same[v] = v;
            n.shape[v] = g->value[v].shape;
            n.changes[v] = g->value[v].source == PL_FROM_REGION
                           && g->value[v].index != PL_REGION_PARAMS
                           && g->value[v].index != PL_REGION_AVERAGE;
        }
        for (int i = 0; i < g->op_count; i++)
            if (g->op[i].code == PL_OP_reshape)
                n.changes[g->op[i].output[0]] = n.changes[g->op[i].input[0]];
        parts_find(&n);
        for (int k = 0; k < PASSES && refuse(&n); k++)
            parts_find(&n);
        rewrite(&n);
    }                                          /* otherwise the graph computes the same */
    pl_free(n.part);
    pl_free(n.shape);
    pl_free(n.same);
    pl_free(n.changes);
    pl_free(n.fate);
    pl_free(n.op);
    pl_free(n.cut);
    pl_map_release(&n.places);
}
