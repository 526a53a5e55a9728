/* fold_casts.c - casts of a lowered graph that need no kernel of their own
 *
 * A kernel converts the elements that it loads and stores.  So an operation with a kernel
 * of its own can read the input of a cast, or make the output of one, at no cost. */
#include "accelerators/gpu/fold_casts.h"

#include "accelerators/plan/fuse.h"
#include "base/alloc.h"
#include "base/error.h"

typedef struct refining {
    pl_graph_t *g;
    bool library_convolves;
    int32_t *is;                     /* [values] the value that replaces it, or itself */
    int *readers;                    /* [values] operations and fetches */
    int32_t *reader;                 /* [values] the last operation that reads it  [-1] */
} refining_t;

static bool is_product(pl_opcode_t code)
{
    return code == PL_OP_matmul || code == PL_OP_linear || code == PL_OP_conv
           || code == PL_OP_conv_grad_w || code == PL_OP_conv_grad_x;
}

/* Operations whose kernels load and store any floating-point type.  Products are not
 * among them: a library may compute them, which needs operands of one type. */
static bool takes_any(pl_opcode_t code)
{
    switch (code) {
    case PL_OP_layer_norm:
    case PL_OP_layer_norm_grad:
    case PL_OP_batch_norm:
    case PL_OP_batch_norm_with:
    case PL_OP_batch_norm_grad:
    case PL_OP_softmax:
    case PL_OP_softmax_grad:
    case PL_OP_cross_entropy:
    case PL_OP_cross_entropy_grad:
    case PL_OP_correct:
    case PL_OP_sum:
    case PL_OP_cumsum:
    case PL_OP_embedding:
    case PL_OP_embedding_grad:
    case PL_OP_gather:
    case PL_OP_permute:
    case PL_OP_concat:
    case PL_OP_scatter:
    case PL_OP_pad:
    case PL_OP_interpolate:
    case PL_OP_interpolate_grad: return true;
    default: return false;
    }
}

static void count_readers(refining_t *r)
{
    const pl_graph_t *g = r->g;
    for (int32_t v = 0; v < g->value_count; v++)
        r->readers[v] = 0, r->reader[v] = -1;
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count; k++) {
            r->readers[r->is[g->op[i].input[k]]]++;
            r->reader[r->is[g->op[i].input[k]]] = i;
        }
    for (int i = 0; i < g->fetch_count; i++) {
        r->readers[r->is[g->fetch[i].value]] += 2;
        if (g->fetch[i].kind == PL_FETCH_METRIC)
            r->readers[r->is[g->fetch[i].weight]] += 2;
    }
}

/* Whether an operation may read another type as its input; a reshape, if all operations
 * that read its result may. */
static bool takes_input(const pl_graph_t *g, const pl_op_t *op)
{
    if (op->code != PL_OP_reshape)
        return takes_any(op->code);
    const int32_t value = op->output[0];
    for (int i = 0; i < g->fetch_count; i++)
        if (g->fetch[i].value == value
            || (g->fetch[i].kind == PL_FETCH_METRIC && g->fetch[i].weight == value))
            return false;
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count; k++)
            if (g->op[i].input[k] == value && !takes_input(g, &g->op[i]))
                return false;
    return true;
}

static void read_instead(pl_graph_t *g, int32_t value, int32_t other)
{
    for (int i = 0; i < g->op_count; i++) {
        pl_op_t *op = &g->op[i];
        for (int k = 0; k < op->input_count; k++) {
            if (op->input[k] != value || !takes_input(g, op))
                continue;
            op->input[k] = other;
            if (op->code != PL_OP_reshape)
                continue;
            g->value[op->output[0]].dtype = g->value[other].dtype;
            read_instead(g, op->output[0], op->output[0]);
        }
    }
}

/* Whether a value is only assigned to gradients. */
static bool is_gradient(const refining_t *r, int32_t value)
{
    const pl_graph_t *g = r->g;
    if (r->readers[value] != 1 || r->reader[value] < 0)
        return false;
    const pl_op_t *op = &g->op[r->reader[value]];
    if (op->code == PL_OP_reshape)
        return is_gradient(r, op->output[0]);
    return op->code == PL_OP_assign && g->value[op->input[0]].index == PL_REGION_GRADS;
}

/* Whether an operation may make its result in the type of the cast after it. */
static bool takes_over(const refining_t *r, const pl_op_t *maker, const pl_op_t *cast)
{
    const pl_value_t *to = &r->g->value[cast->output[0]],
                     *from = &r->g->value[cast->input[0]];
    if (!pl_is_float(from->dtype) || !pl_is_float(to->dtype))
        return false;
    if (pl_dtype_size(to->dtype) > pl_dtype_size(from->dtype))
        return is_product(maker->code) && is_gradient(r, cast->output[0])
               && !(r->library_convolves && maker->code == PL_OP_conv_grad_w);
    return takes_any(maker->code);
}

/* The cast that is the only reader of a value, after reshapes or directly, or -1. */
static int only_cast(const refining_t *r, int32_t value)
{
    while (r->readers[value] == 1 && r->reader[value] >= 0) {
        const pl_op_t *op = &r->g->op[r->reader[value]];
        if (op->code == PL_OP_cast)
            return r->reader[value];
        if (op->code != PL_OP_reshape)
            return -1;
        value = op->output[0];
    }
    return -1;
}

/* An operation before a cast makes its result in the type of the cast, which is
 * dropped; readers of the cast read that result. */
static void narrow(refining_t *r)
{
    pl_graph_t *g = r->g;
    for (int i = 0; i < g->op_count; i++) {
        if (!takes_any(g->op[i].code) && !is_product(g->op[i].code))
            continue;
        const int cast = only_cast(r, g->op[i].output[0]);
        if (cast < 0 || !takes_over(r, &g->op[i], &g->op[cast]))
            continue;
        const pl_dtype_t dtype = g->value[g->op[cast].output[0]].dtype;
        int32_t last = g->op[i].output[0];
        g->value[last].dtype = dtype;
        while (g->op[r->reader[last]].code == PL_OP_reshape) {
            last = g->op[r->reader[last]].output[0];
            g->value[last].dtype = dtype;
        }
        r->is[g->op[cast].output[0]] = last;
    }
    for (int32_t v = 0; v < g->value_count; v++)
        while (r->is[v] != r->is[r->is[v]])
            r->is[v] = r->is[r->is[v]];
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count; k++)
            g->op[i].input[k] = r->is[g->op[i].input[k]];
    for (int i = 0; i < g->fetch_count; i++) {
        g->fetch[i].value = r->is[g->fetch[i].value];
        if (g->fetch[i].kind == PL_FETCH_METRIC)
            g->fetch[i].weight = r->is[g->fetch[i].weight];
    }
}

/* ---- Sums of gradients ---- */

/* The operation that makes a value, before casts. */
static const pl_op_t *maker_of(const pl_graph_t *g, int32_t value)
{
    while (g->value[value].source == PL_FROM_OP
           && g->op[g->value[value].op].code == PL_OP_cast)
        value = g->op[g->value[value].op].input[0];
    return g->value[value].source == PL_FROM_OP ? &g->op[g->value[value].op] : NULL;
}

/* Whether operations other than `op` read or write the memory of a value. */
static bool is_touched(const pl_graph_t *g, const pl_value_t *target, int op)
{
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count; k++)
            if (i != op && pl_values_overlap(&g->value[g->op[i].input[k]], target))
                return true;
    return false;
}

static void op_move(pl_graph_t *g, int from, int to)
{
    const pl_op_t op = g->op[from];
    for (int i = from; i > to; i--)
        g->op[i] = g->op[i - 1];
    g->op[to] = op;
    for (int i = to; i <= from; i++)
        for (int k = 0; k < g->op[i].output_count; k++)
            g->value[g->op[i].output[k]].op = i;
}

/* The gradient of a table that is the sum of a product and of its rows: the product is
 * assigned when it is made, and the rows are added to it. */
static void split_sums(refining_t *r)
{
    pl_graph_t *g = r->g;
    for (int i = 0; i < g->op_count; i++) {
        pl_op_t *assign = &g->op[i];
        const pl_value_t *sum = &g->value[assign->input[assign->code == PL_OP_assign]];
        if (assign->code != PL_OP_assign || sum->source != PL_FROM_OP
            || g->value[assign->input[0]].index != PL_REGION_GRADS
            || r->readers[assign->input[1]] != 1)
            continue;
        /* The input of the add that a product makes; rows make the other. */
        const int at = sum->op;
        int first = -1;
        for (int k = 1; k >= 0 && g->op[at].code == PL_OP_add; k--) {
            const pl_op_t *a = maker_of(g, g->op[at].input[k]),
                          *b = maker_of(g, g->op[at].input[!k]);
            if (a && b && is_product(a->code) && b->code == PL_OP_embedding_grad)
                first = k;
        }
        if (first < 0 || is_touched(g, &g->value[assign->input[0]], i))
            continue;
        const int32_t product = g->op[at].input[first], rows = g->op[at].input[!first];
        g->op[at] = *assign;
        g->op[at].input[1] = product;
        assign->input[1] = rows;
        assign->attr.accumulate = true;
        const int made = g->value[product].op;
        if (g->op[made].code == PL_OP_cast)
            op_move(g, made, g->value[g->op[made].input[0]].op + 1);
        op_move(g, at, g->value[product].op + 1);
    }
}

int gpu_fold_casts(pl_graph_t *g, bool library_convolves, pl_error_t *err)
{
    for (int i = 0; i < g->op_count;
         i++) {                            /* readers of widened values read the halves */
        const pl_op_t *op = &g->op[i];
        if (op->code == PL_OP_cast && pl_is_float(g->value[op->input[0]].dtype)
            && pl_dtype_size(g->value[op->output[0]].dtype)
                   > pl_dtype_size(g->value[op->input[0]].dtype))
            read_instead(g, op->output[0], op->input[0]);
    }
    pl_graph_prune(g);
    const size_t values = (size_t)g->value_count;
    refining_t r = {.g = g,
                    .library_convolves = library_convolves,
                    .is = pl_alloc_array(values, sizeof *r.is),
                    .readers = pl_alloc_array(values, sizeof *r.readers),
                    .reader = pl_alloc_array(values, sizeof *r.reader)};
    const bool whole = r.is && r.readers && r.reader;
    for (int32_t v = 0; v < g->value_count && whole; v++)
        r.is[v] = v;
    if (whole) {
        count_readers(&r);
        split_sums(&r);
        count_readers(&r);
        narrow(&r);
        pl_graph_prune(g);
    }
    pl_free(r.is);
    pl_free(r.readers);
    pl_free(r.reader);
    return whole ? PL_OK : pl_no_memory(err);
}

/* ---- Parameters as halves ---- */

static bool is_param(const pl_value_t *v)
{
    return v->source == PL_FROM_REGION && v->index == PL_REGION_PARAMS;
}

static void read_all(pl_graph_t *g, int32_t value, int32_t other)
{
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count; k++)
            if (g->op[i].input[k] == value)
                g->op[i].input[k] = other;
    for (int i = 0; i < g->fetch_count; i++)
        if (g->fetch[i].value == value)
            g->fetch[i].value = other;
}

int gpu_fold_param_casts(pl_graph_t *g, pl_dtype_t *low, pl_error_t *err)
{
    bool changes_params = false;
    *low = PL_F32;
    for (int i = 0; i < g->op_count; i++)
        changes_params |= g->op[i].code == PL_OP_assign
                          && is_param(&g->value[g->op[i].input[0]]);
    for (int i = 0; i < g->op_count && !changes_params; i++) {
        const pl_op_t *op = &g->op[i];
        if (op->code != PL_OP_cast || !is_param(&g->value[op->input[0]]))
            continue;
        const pl_dtype_t to = g->value[op->output[0]].dtype;
        if ((to != PL_BF16 && to != PL_F16) || (*low != PL_F32 && *low != to))
            continue;
        if (PL_GROW(g->value, g->value_count, g->value_capacity) != PL_OK)
            return pl_no_memory(err);
        g->value[g->value_count] = g->value[op->input[0]];
        g->value[g->value_count].index = GPU_REGION_LOW;
        g->value[g->value_count].dtype = *low = to;
        read_all(g, op->output[0], g->value_count++);
    }
    pl_graph_prune(g);
    return PL_OK;
}
