/* reference.c - computes a graph by plain loops in float64, to which all kernels are
 * compared
 *
 * Kernels are in elementwise.c, axis.c, shapes.c (with reductions), products.c and
 * rows.c. */
#include "accelerators/reference/reference.h"

#include <math.h>
#include <string.h>

#include "accelerators/reference/kernels.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/half.h"
#include "tensor/operators.h"

typedef struct pl_reference_run interpreter_t;
struct pl_reference_run {
    const pl_graph_t *g;
    pl_reference_replay_t *replay;
    bool waits;                                      /* at each collective */
    int next;                                        /* operation */
    double **value;                                  /* [values] */
    bool *own;                                       /* [values] allocated here */
    const pl_memory_plan_t *plan;                    /* [each value has its own memory] */
    double *arena;
};

void pl_reference_load(pl_dtype_t dtype, const void *from, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++)
        switch (dtype) {
        case PL_F32: to[i] = (double)((const float *)from)[i]; break;
        case PL_F64: to[i] = ((const double *)from)[i]; break;
        case PL_I32: to[i] = ((const int32_t *)from)[i]; break;
        case PL_I64: to[i] = (double)((const int64_t *)from)[i]; break;
        case PL_U8: to[i] = ((const uint8_t *)from)[i]; break;
        case PL_BF16: to[i] = (double)pl_bf16_float(((const uint16_t *)from)[i]); break;
        case PL_F16: to[i] = (double)pl_f16_float(((const uint16_t *)from)[i]); break;
        }
}

void pl_reference_store(pl_dtype_t dtype, const double *from, int64_t n, void *to)
{
    for (int64_t i = 0; i < n; i++)
        switch (dtype) {
        case PL_F32: ((float *)to)[i] = (float)from[i]; break;
        case PL_F64: ((double *)to)[i] = from[i]; break;
        case PL_I32: ((int32_t *)to)[i] = (int32_t)from[i]; break;
        case PL_I64: ((int64_t *)to)[i] = (int64_t)from[i]; break;
        case PL_U8: ((uint8_t *)to)[i] = (uint8_t)from[i]; break;
        case PL_BF16: ((uint16_t *)to)[i] = pl_bf16_bits((float)from[i]); break;
        case PL_F16: ((uint16_t *)to)[i] = pl_f16_bits((float)from[i]); break;
        }
}

int64_t pl_reference_source(pl_shape_t shape, int64_t e, pl_shape_t from)
{
    int64_t index = 0, stride = 1;
    for (int i = 1; i <= from.rank; i++) {
        int64_t size = shape.dim[shape.rank - i], at = e % size;
        e /= size;
        index += from.dim[from.rank - i] == 1 ? 0 : at * stride;
        stride *= from.dim[from.rank - i];
    }
    return index;
}

/* ---- Operations ---- */

/* A user's operator has a kernel for float64. */
static void apply(pl_reference_call_t *c)
{
    pl_kernel_call_t call = {.self = c->attr->self.byte,
                             .output = c->out[0],
                             .output_shape = c->out_shape[0]};
    const pl_kernel_t *kernel = pl_op_kernel(c->op, PL_REFERENCE, c->err);
    if (!kernel) {
        c->code = PL_EUNSUPPORTED;
        return;
    }
    memcpy(call.input, c->in, sizeof call.input);
    memcpy(call.input_shape, c->in_shape, sizeof call.input_shape);
    kernel->run(&call, 0, pl_rows(call.output_shape, c->attr->table->row_axes));
}

static pl_reference_kernel_t kernel_of(pl_opcode_t code)
{
    if (code == PL_OP_apply)
        return apply;
    if (pl_reference_elementwise[code])
        return pl_reference_elementwise[code];
    if (pl_reference_shapes[code])
        return pl_reference_shapes[code];
    if (pl_reference_axis[code])
        return pl_reference_axis[code];
    if (pl_reference_steps[code])
        return pl_reference_steps[code];
    if (pl_reference_products[code])
        return pl_reference_products[code];
    return pl_reference_space[code] ? pl_reference_space[code] : pl_reference_rows[code];
}

/* Memory for a value that call->op makes, zeroed except if it overwrites an input. */
static double *output_new(interpreter_t *in, const pl_reference_call_t *call, int32_t v)
{
    const pl_allocation_t *allocation = in->plan ? &in->plan->allocation[v] : NULL;
    const size_t n = (size_t)pl_elements(in->g->value[v].shape);
    if (!allocation || allocation->kind == PL_ALLOCATION_NONE) {
        in->own[v] = true;
        return in->value[v] = pl_alloc_array(n, sizeof(double));
    }
    double *region = allocation->kind == PL_ALLOCATION_TARGET
                         ? in->replay->region[allocation->region]
                         : NULL;
    in->value[v] = region ? region + allocation->offset : in->arena + allocation->offset;
    for (int k = 0; k < call->op->input_count; k++)
        if (call->in[k] == in->value[v])
            return in->value[v];
    return memset(in->value[v], 0, n * sizeof(double));
}

void pl_reference_round(pl_dtype_t dtype, double *x, int64_t n)
{
    for (int64_t i = 0; i < n && dtype == PL_BF16; i++)
        x[i] = (double)pl_round_bf16((float)x[i]);
    for (int64_t i = 0; i < n && dtype == PL_F16; i++)
        x[i] = (double)pl_round_f16((float)x[i]);
}

static int op_compute(interpreter_t *in, const pl_op_t *op, pl_error_t *err)
{
    pl_reference_call_t call = {.op = op,
                                .attr = &op->attr,
                                .replay = in->replay,
                                .err = err};
    pl_reference_kernel_t kernel = kernel_of(op->code);
    if (!kernel)
        return pl_fail(err, PL_EUNSUPPORTED, "%s: the reference has no %s", op->path,
                       pl_op_name(op));
    for (int k = 0; k < op->input_count; k++) {
        call.in[k] = in->value[op->input[k]];
        call.in_shape[k] = in->g->value[op->input[k]].shape;
        call.in_dtype[k] = in->g->value[op->input[k]].dtype;
    }
    for (int k = 0; k < op->output_count; k++) {
        int32_t v = op->output[k];
        call.out_shape[k] = in->g->value[v].shape;
        call.out[k] = output_new(in, &call, v);
        if (!call.out[k])
            return pl_no_memory(err);
    }
    kernel(&call);
    for (int k = 0; k < op->output_count; k++)
        pl_reference_round(in->g->value[op->output[k]].dtype, call.out[k],
                           pl_elements(call.out_shape[k]));
    return call.code;
}

/* Sets *stops if the operators after the guard must not run. */
static int op_guard(const interpreter_t *in, const pl_op_t *op, bool *stops,
                    pl_error_t *err)
{
    const double *x = in->value[op->input[0]];
    const int64_t n = op->attr.watches ? pl_elements(in->g->value[op->input[0]].shape)
                                       : 0;
    if (op->input_count != 1 && !(in->value[op->input[1]][0] <= op->attr.a))
        return PL_OK;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return pl_guard_fail(op, in->replay->step, err);
    in->replay->skipped = !isfinite(x[0]);
    *stops = in->replay->skipped || (op->attr.empty && x[0] == 0);
    return PL_OK;
}

int pl_reference_check(const pl_graph_t *g, pl_error_t *err)
{
    for (int i = 0; i < g->op_count; i++) {
        const pl_op_t *op = &g->op[i];
        const bool own = op->code == PL_OP_reshape || op->code == PL_OP_across
                         || op->code == PL_OP_assign || op->code == PL_OP_guard
                         || op->code == PL_OP_collective;
        if (op->code == PL_OP_apply && !pl_op_kernel(op, PL_REFERENCE, err))
            return PL_EUNSUPPORTED;
        if (!own && !kernel_of(op->code))
            return pl_fail(err, PL_EUNSUPPORTED, "%s: there is no %s in float64",
                           op->path, pl_op_name(op));
    }
    return PL_OK;
}

/* Stores fetched values; values after a guard that stopped do not exist. */
static void store_fetches(interpreter_t *in)
{
    int64_t metrics = 0;
    int outputs = 0;
    for (int i = 0; i < in->g->fetch_count; i++) {
        const pl_fetch_t *f = &in->g->fetch[i];
        const double *value = in->value[f->value];
        if (f->kind == PL_FETCH_METRIC) {
            double *metric = in->replay->metrics ? in->replay->metrics[0] + metrics
                                                 : NULL;
            if (metric && value && f->metric >= PL_METRIC_R2)
                memcpy(metric, value, (size_t)f->sums * sizeof *metric);
            else if (metric && value && in->value[f->weight]) {
                metric[0] = value[0];
                metric[1] = in->value[f->weight][0];
            }
            metrics += f->sums;
        } else {
            double *to = in->replay->output[outputs++];
            if (to && value)
                memcpy(to, value,
                       (size_t)pl_elements(in->g->value[f->value].shape) * sizeof *to);
        }
    }
}

/* Sets the values that exist before the first operation. */
static int run_init(interpreter_t *in, pl_error_t *err)
{
    const pl_graph_t *g = in->g;
    in->value = pl_alloc_array((size_t)g->value_count, sizeof *in->value);
    in->own = pl_alloc_array((size_t)g->value_count, sizeof *in->own);
    in->arena = pl_alloc_array(in->plan ? in->plan->arena : 0, sizeof *in->arena);
    if (!in->value || !in->own || !in->arena)
        return pl_no_memory(err);
    for (int32_t i = 0; i < g->value_count; i++) {
        const pl_value_t *v = &g->value[i];
        const int64_t n = pl_elements(v->shape);
        if (v->source == PL_FROM_OP)
            continue;
        if (v->source == PL_FROM_REGION) {
            if (!in->replay->region[v->index])
                return pl_fail(err, PL_EINVAL,
                               "the graph needs region %d, which was not given",
                               v->index);
            in->value[i] = in->replay->region[v->index] + v->offset;
            continue;
        }
        in->value[i] = pl_alloc_array((size_t)n, sizeof(double));
        in->own[i] = true;
        if (!in->value[i])
            return pl_no_memory(err);
        if (v->source == PL_FROM_INPUT)
            pl_reference_load(v->dtype, in->replay->input[v->index], n, in->value[i]);
        else if (v->source == PL_FROM_TENSOR)
            pl_reference_load(v->dtype, v->tensor->data, n, in->value[i]);
        else
            in->value[i][0] = v->source == PL_FROM_SCALAR ? in->replay->scalar[v->index]
                                                          : v->constant;
    }
    return PL_OK;
}

static void run_release(interpreter_t *in)
{
    for (int32_t i = 0; i < in->g->value_count && in->value && in->own; i++)
        if (in->own[i])
            pl_free(in->value[i]);
    pl_free(in->value);
    pl_free(in->own);
    pl_free(in->arena);
}

/* Runs operations up to the end or to a collective, which replay->collective names. */
static int run_continue(interpreter_t *in, pl_error_t *err)
{
    pl_reference_replay_t *replay = in->replay;
    bool stops = false;
    int code = PL_OK;
    replay->skipped = false;
    replay->collective = 0;
    while (code == PL_OK && !stops && !replay->collective && in->next < in->g->op_count) {
        const int i = in->next++;
        const pl_op_t *op = &in->g->op[i];
        switch (op->code) {
        case PL_OP_collective:
            replay->collective = in->waits ? 1 + op->attr.axis : 0;
            break;
        case PL_OP_guard: code = op_guard(in, op, &stops, err); break;
        case PL_OP_across:
        case PL_OP_reshape: in->value[op->output[0]] = in->value[op->input[0]]; break;
        case PL_OP_assign:
            if (in->plan && in->plan->done[i])
                break;
            double *target = in->value[op->input[0]];
            const double *value = in->value[op->input[1]];
            const int64_t n = pl_elements(in->g->value[op->input[0]].shape);
            for (int64_t k = 0; k < n; k++)
                target[k] = op->attr.accumulate ? target[k] + value[k] : value[k];
            break;
        default: code = op_compute(in, op, err);
        }
    }
    if (code == PL_OK && !replay->collective)
        store_fetches(in);
    return code;
}

int pl_reference_replay(const pl_graph_t *g, pl_reference_replay_t *replay,
                        pl_error_t *err)
{
    return pl_reference_replay_planned(g, NULL, replay, err);
}

int pl_reference_replay_planned(const pl_graph_t *g, const pl_memory_plan_t *plan,
                                pl_reference_replay_t *replay, pl_error_t *err)
{
    interpreter_t in = {.g = g, .replay = replay, .plan = plan};
    int code = run_init(&in, err);
    if (code == PL_OK)
        code = run_continue(&in, err);
    run_release(&in);
    return code;
}

int pl_reference_replay_part(const pl_graph_t *g, pl_reference_replay_t *replay,
                             pl_reference_run_t **run, pl_error_t *err)
{
    interpreter_t *in = *run ? *run : pl_alloc(sizeof *in);
    int code = in ? PL_OK : pl_no_memory(err);
    if (in && !*run) {
        *in = (interpreter_t){.g = g, .replay = replay, .waits = true};
        code = run_init(in, err);
    }
    *run = NULL;
    if (code == PL_OK) {
        in->replay = replay;
        code = run_continue(in, err);
    }
    if (code == PL_OK && replay->collective)
        *run = in;
    else
        pl_reference_drop(in);
    return code;
}

void pl_reference_drop(pl_reference_run_t *run)
{
    if (run)
        run_release(run);
    pl_free(run);
}
