/* products.c - which products of a graph the machine's library computes
 *
 * Where a machine has a library of products (machine.h), each matmul and linear is
 * offered to it; what it does not take is a kernel of the core's (text_product.c).
 *
 * A library knows nothing of guards: what it computes is there whether or not the replay
 * was stopped before.  So its results lie in the arena, and the unit that assigns them to
 * a region is a kernel, which looks at the guard.  But gradients of weights are large:
 * moving them takes a third of what an optimizer's step does.  Where nothing but its
 * begin can stop a replay, they lie in PL_REGION_GRADS: a replay that is halted keeps the
 * region's content before its first product, and puts it back behind the last.  That
 * takes as much memory as the region has, so it is done only where that is a small part
 * of what is free.
 */
#include "accelerators/gpu/products.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"

static const pl_value_t *root_of(const gpu_text_t *t, int32_t value)
{
    return &t->g->value[t->fusion->root[value]];
}

/* Elements from the matrix of one batch to the next; false: they are not evenly apart. */
static bool batches_are_even(pl_shape_t own, pl_shape_t all, int64_t *apart)
{
    const pl_view_t batches = gpu_batches(own, all), merged = pl_view_merged(&batches);
    *apart = merged.shape.rank ? merged.stride[0] : 0;
    return merged.shape.rank <= 1;
}

static bool describe_matmul(const gpu_text_t *t, const pl_op_t *op, pl_product_t *p)
{
    const pl_shape_t a = t->g->value[op->input[0]].shape,
                     b = t->g->value[op->input[1]].shape,
                     c = t->g->value[op->output[0]].shape;
    p->transpose_a = op->attr.transpose_a;
    p->transpose_b = op->attr.transpose_b;
    p->m = c.dim[c.rank - 2];
    p->n = c.dim[c.rank - 1];
    p->k = a.dim[a.rank - (p->transpose_a ? 2 : 1)];
    p->batches = pl_elements(c) / (p->m * p->n);
    p->batch_c = p->m * p->n;
    if (!batches_are_even(a, c, &p->batch_a) || !batches_are_even(b, c, &p->batch_b))
        return false;
    if (!p->transpose_a && p->batch_a == p->m * p->k && !p->batch_b) {
        p->m *= p->batches;                   /* one b for all: the rows of all batches */
        p->batches = 1;
    }
    return true;
}

static bool describe_linear(const gpu_text_t *t, const pl_op_t *op, pl_product_t *p)
{
    const pl_shape_t w = t->g->value[op->input[1]].shape;
    p->transpose_b = true;
    p->n = w.dim[0];
    p->k = w.dim[1];
    p->m = pl_elements(t->g->value[op->output[0]].shape) / p->n;
    p->batches = 1;
    p->has_bias = op->input_count > 2;
    return true;
}

/* False: it is no product, or one that no library computes as the core does. */
static bool describe(const gpu_text_t *t, const pl_op_t *op, pl_product_t *p)
{
    *p = (pl_product_t){0};
    if (op->code != PL_OP_matmul && op->code != PL_OP_linear)
        return false;
    p->in = t->g->value[op->input[0]].dtype;
    p->out = t->g->value[op->output[0]].dtype;
    for (int k = 0; k < op->input_count; k++) {
        const pl_value_t *root = root_of(t, op->input[k]);
        if (root->source == PL_FROM_CONSTANT || root->source == PL_FROM_SCALAR
            || root->dtype != (k == 2 ? p->out : p->in))
            return false;
    }
    if (t->wide != (p->in == PL_F64)
        || !(op->code == PL_OP_matmul ? describe_matmul(t, op, p)
                                      : describe_linear(t, op, p)))
        return false;
    if (p->batches == 1)
        p->batch_a = p->batch_b = p->batch_c = 0;
    p->row_a = p->transpose_a ? p->m : p->k;
    p->row_b = p->transpose_b ? p->k : p->n;
    p->row_c = p->n;
    return true;
}

/* Bytes of PL_REGION_GRADS that a halted replay has to put back; 0: products must not lie
 * there, because a guard, ranks or the host come between, or memory is scarce. */
static size_t bytes_to_keep(pl_gpu_t *gpu, const pl_graph_t *g)
{
    enum { SHARE = 16 }; /* of free memory */
    size_t bytes = 0, left = SIZE_MAX, all;
    if (gpu->memory->region[PL_REGION_GRADS].mirror)
        return 0;
    for (int i = 0; i < g->op_count; i++)
        if (g->op[i].code == PL_OP_guard || g->op[i].code == PL_OP_exchange)
            return 0;
    for (int32_t v = 0; v < g->value_count; v++) {
        const pl_value_t *value = &g->value[v];
        if (value->source != PL_FROM_REGION || value->index != PL_REGION_GRADS)
            continue;
        const size_t end = (size_t)(value->offset + pl_elements(value->shape))
                           * pl_dtype_size(value->dtype);
        bytes = end > bytes ? end : bytes;
    }
    if (gpu->machine->memory_left)
        gpu->machine->memory_left(gpu, &left, &all);
    return bytes <= left / SHARE ? bytes : 0;
}

int gpu_products_find(pl_gpu_t *gpu, gpu_text_t *t, pl_plan_t *plan, pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
    plan->kept = machine->product_new || machine->layer_new ? bytes_to_keep(gpu, t->g)
                                                             : 0;
    if (!machine->product_new)
        return PL_OK;
    plan->product = pl_alloc_array((size_t)t->g->op_count, sizeof *plan->product);
    if (!plan->product)
        return pl_no_memory(err);
    plan->products = t->g->op_count;
    for (int i = 0; i < t->g->op_count; i++) {
        pl_product_t product;
        size_t workspace = 0;
        if (!describe(t, &t->g->op[i], &product))
            continue;
        const int code = machine->product_new(gpu, &product, &plan->product[i],
                                              &workspace, err);
        if (code == PL_EUNSUPPORTED)
            plan->product[i] = NULL;
        else if (code != PL_OK)
            return code;
        else if (t->scratch < workspace)
            t->scratch = workspace;
    }
    return PL_OK;
}

void gpu_products_placed(const gpu_text_t *t, pl_plan_t *plan)
{
    bool any = false;
    for (int i = 0; i < t->g->op_count && plan->kept; i++) {
        const pl_op_t *op = &t->g->op[i];
        const bool is_made = (plan->product && plan->product[i])
                             || (plan->layer && plan->layer[i]);
        for (int k = 0; k < op->output_count && is_made; k++)
            any |= t->home[op->output[k]].place == PL_PLACE_TARGET;
    }
    plan->kept = any ? plan->kept : 0;
}

bool gpu_product_put(gpu_text_t *t, const pl_plan_t *plan, int i)
{
    const pl_prepared_t *library = plan->product ? plan->product[i] : NULL;
    if (!library || !gpu_is_wanted(t, t->g->op[i].output[0]))
        return false;
    const pl_op_t *op = &t->g->op[i];
    gpu_spot_t spot[PL_PRODUCT_ADDRESSES] = {
        [PL_PRODUCT_A] = gpu_spot_of(t, op->input[0]),
        [PL_PRODUCT_B] = gpu_spot_of(t, op->input[1]),
        [PL_PRODUCT_C] = gpu_spot_of(t, op->output[0]),
        [PL_PRODUCT_WORKSPACE] = {.at = GPU_AT_SCRATCH}};
    spot[PL_PRODUCT_A].reads = spot[PL_PRODUCT_B].reads = true;
    spot[PL_PRODUCT_C].writes = true;
    spot[PL_PRODUCT_C].made = spot[PL_PRODUCT_C].value;
    spot[PL_PRODUCT_BIAS] = spot[PL_PRODUCT_WORKSPACE];
    if (op->input_count > 2) {
        spot[PL_PRODUCT_BIAS] = gpu_spot_of(t, op->input[2]);
        spot[PL_PRODUCT_BIAS].reads = true;
    }
    if (spot[PL_PRODUCT_C].at != GPU_AT_ARENA
        && !(plan->kept && spot[PL_PRODUCT_C].at == GPU_AT_REGION
             && spot[PL_PRODUCT_C].index == PL_REGION_GRADS))
        return false;
    for (int k = 0; k < PL_PRODUCT_ADDRESSES; k++)
        if (spot[k].offset % PL_PRODUCT_ALIGNMENT)
            return false;
    if (t->error.code == PL_OK && PL_GROW(t->kernel, t->kernels, t->room) != PL_OK)
        pl_no_memory(&t->error);
    if (t->error.code != PL_OK)
        return true;
    gpu_kernel_t *kernel = &t->kernel[t->kernels++];
    *kernel = (gpu_kernel_t){.library = library, .launch[0].count = PL_PRODUCT_ADDRESSES};
    snprintf(kernel->name, sizeof kernel->name, "product_%d", t->kernels);
    for (int k = 0; k < PL_PRODUCT_ADDRESSES; k++)
        kernel->spot[k] = spot[k];
    return true;
}

void gpu_products_free(pl_gpu_t *gpu, pl_plan_t *plan)
{
    for (int k = 0; k < plan->products; k++)
        if (plan->product[k])
            gpu->machine->product_free(gpu, plan->product[k]);
    pl_free(plan->product);
}
