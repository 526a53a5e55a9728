/* products.c - which products of a graph the backend's library computes, and which
 * operations become part of them
 *
 * If a backend has a library of products (backend.h), each matmul and linear is offered
 * to it.  The core's kernels compute the products that it refuses (codegen_product.c).
 *
 * Some operations after a product can be computed before its result goes to memory: a
 * gelu_tanh or its slope, the assign that adds a gradient to those of other batches,
 * and the sums of a gradient's rows, which are the gradient of a bias.  A library is
 * asked for the product with all of them, and then with fewer; a kernel of the core
 * takes any function of one element.  A library may skip the rounding in between, and
 * sums of rows add up the elements that the product reads.
 *
 * A library ignores guards: it computes its results also after the replay was stopped.
 * So they lie in the arena, and the unit that assigns them to a region is a kernel,
 * which obeys the guard.  But gradients of weights are large: moving them takes a
 * third of the time of an optimizer's step.  If a replay can be stopped only before it
 * begins, they lie in PL_REGION_GRADS: a skipped replay saves the region's content
 * before its first product and restores it after the last.  That takes as much memory
 * as the region has, so it is done only if that is a small part of the free memory. */
#include "accelerators/gpu/products.h"

#include "accelerators/gpu/layers.h"
#include "base/alloc.h"
#include "base/error.h"

/* The value before all reshapes. */
static int32_t root_of(const pl_graph_t *g, int32_t value)
{
    while (g->value[value].source == PL_FROM_OP
           && g->op[g->value[value].op].code == PL_OP_reshape)
        value = g->op[g->value[value].op].input[0];
    return value;
}

/* Elements from the matrix of one batch to the next; false: the distance varies. */
static bool batches_are_even(pl_shape_t own, pl_shape_t all, int64_t *apart)
{
    const pl_view_t batches = gpu_batches(own, all), merged = pl_view_merged(&batches);
    *apart = merged.shape.rank ? merged.stride[0] : 0;
    return merged.shape.rank <= 1;
}

static bool describe_matmul(const gpu_codegen_t *t, const pl_op_t *op, pl_product_t *p)
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

/* False: it is no product, or one that a library does not compute as the core does. */
static bool describe(const gpu_codegen_t *t, const pl_op_t *op, pl_product_t *p)
{
    *p = (pl_product_t){0};
    if (op->code != PL_OP_matmul && op->code != PL_OP_linear)
        return false;
    p->in = t->g->value[op->input[0]].dtype;
    p->out = t->g->value[op->output[0]].dtype;
    for (int k = 0; k < op->input_count; k++) {
        const pl_value_t *root = &t->g->value[root_of(t->g, op->input[k])];
        if (root->source == PL_FROM_CONSTANT || root->source == PL_FROM_SCALAR
            || root->dtype != (k == 2 ? p->out : p->in))
            return false;
    }
    if (t->wide != (p->in == PL_F64)
        || (op->code == PL_OP_matmul && !describe_matmul(t, op, p)))
        return false;
    if (op->code == PL_OP_linear) {
        const pl_shape_t w = t->g->value[op->input[1]].shape;
        p->transpose_b = true;
        p->n = w.dim[0];
        p->k = w.dim[1];
        p->m = pl_elements(t->g->value[op->output[0]].shape) / p->n;
        p->batches = 1;
        p->has_bias = op->input_count > 2;
    }
    if (p->batches == 1)
        p->batch_a = p->batch_b = p->batch_c = 0;
    p->row_a = p->transpose_a ? p->m : p->k;
    p->row_b = p->transpose_b ? p->k : p->n;
    p->row_c = p->n;
    return true;
}

/* Bytes of PL_REGION_GRADS that a skipped replay has to restore; 0: products must not lie
 * there, because of a guard, a collective, a mirror, or little free memory. */
static size_t bytes_to_back_up(pl_gpu_t *gpu, const pl_graph_t *g)
{
    enum { SHARE = 16 };                                    /* of free memory */
    size_t bytes = 0, left = SIZE_MAX, all;
    if (gpu->memory->region[PL_REGION_GRADS].mirror)
        return 0;
    for (int i = 0; i < g->op_count; i++)
        if (g->op[i].code == PL_OP_guard || g->op[i].code == PL_OP_collective)
            return 0;
    for (int32_t v = 0; v < g->value_count; v++) {
        const pl_value_t *value = &g->value[v];
        if (value->source != PL_FROM_REGION || value->index != PL_REGION_GRADS)
            continue;
        const size_t end = (size_t)(value->offset + pl_elements(value->shape))
                           * pl_dtype_size(value->dtype);
        bytes = end > bytes ? end : bytes;
    }
    if (gpu->backend->memory_left)
        gpu->backend->memory_left(gpu, &left, &all);
    return bytes <= left / SHARE ? bytes : 0;
}

/* ---- Operations after a product ---- */

/* The first operation from `from` on that reads a value, reshaped or not, or -1. */
static int reader_from(const pl_graph_t *g, int32_t value, int from)
{
    const pl_value_t *v = &g->value[value];
    const int made = v->source == PL_FROM_OP ? v->op : -1;  /* its readers are later */
    for (int i = from > made ? from : made + 1; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count && g->op[i].code != PL_OP_reshape; k++)
            if (root_of(g, g->op[i].input[k]) == value)
                return i;
    return -1;
}

/* Whether a value is fetched, or read by another operation than `op`. */
static bool is_read_besides(const pl_graph_t *g, int32_t value, int op)
{
    for (int k = 0; k < g->fetch_count; k++)
        if (root_of(g, g->fetch[k].value) == value
            || (g->fetch[k].kind == PL_FETCH_METRIC
                && root_of(g, g->fetch[k].weight) == value))
            return true;
    const int i = reader_from(g, value, 0);
    return (i >= 0 && i != op) || (i == op && reader_from(g, value, op + 1) >= 0);
}

/* Activation functions and their gradients. */
static bool is_function(pl_opcode_t code)
{
    switch (code) {
    case PL_OP_relu:
    case PL_OP_gelu:
    case PL_OP_gelu_tanh:
    case PL_OP_sigmoid:
    case PL_OP_tanh:
    case PL_OP_relu_grad:
    case PL_OP_gelu_grad:
    case PL_OP_gelu_tanh_grad:
    case PL_OP_sigmoid_grad:
    case PL_OP_tanh_grad: return true;
    default: return false;
    }
}

/* The activation function, or gradient of one, whose first input the value is, or -1. */
static int function_of(const pl_graph_t *g, int32_t value)
{
    for (int i = reader_from(g, value, 0); i >= 0; i = reader_from(g, value, i + 1))
        if (is_function(g->op[i].code) && root_of(g, g->op[i].input[0]) == value
            && (g->op[i].input_count == 1 || root_of(g, g->op[i].input[1]) != value))
            return i;
    return -1;
}

/* The assign that adds a value to a gradient, if no other operation reads it, or -1. */
static int target_of(const pl_graph_t *g, int32_t value)
{
    const int i = reader_from(g, value, 0);
    return i >= 0 && g->op[i].code == PL_OP_assign && g->op[i].attr.accumulate
                   && g->value[g->op[i].input[0]].index == PL_REGION_GRADS
                   && g->value[g->op[i].input[0]].dtype == g->value[value].dtype
                   && !is_read_besides(g, value, i)
               ? i
               : -1;
}

/* The operation that sums the rows of a product's transposed first operand, [m], or of
 * the value that this is rounded from, and that no other product has, or -1: the
 * gradient of a bias, next to the gradient of its weights. */
static int bias_sum_of(const pl_graph_t *g, const pl_plan_t *plan, const pl_op_t *op,
                       int64_t m)
{
    const int32_t a = root_of(g, op->input[0]);
    const pl_value_t *made = &g->value[a];
    const int32_t wider = made->source == PL_FROM_OP && g->op[made->op].code == PL_OP_cast
                              ? root_of(g, g->op[made->op].input[0])
                              : a;
    for (int i = g->value[op->output[0]].op + 1; i < g->op_count; i++) {
        const pl_op_t *sum = &g->op[i];
        if (sum->code != PL_OP_sum)
            continue;
        const int32_t of = root_of(g, sum->input[0]);
        const pl_shape_t x = g->value[sum->input[0]].shape;
        if ((of == a || of == wider) && m > 1 && x.dim[x.rank - 1] == m
            && plan->product[sum->output[0]].front < 0
            && sum->attr.axes == (1u << (x.rank - 1)) - 1
            && g->value[sum->output[0]].dtype == g->value[op->output[0]].dtype)
            return i;
    }
    return -1;
}

/* Fills in an epilogue for a library; false: there is none. */
static bool describe_epilogue(const pl_graph_t *g, const pl_plan_t *plan,
                              const pl_op_t *op, pl_product_t *p, gpu_product_t *made)
{
    const int32_t value = op->output[0];
    const int function = function_of(g, value),
              sum = op->attr.transpose_a ? bias_sum_of(g, plan, op, p->m) : -1;
    const pl_op_t *next = &g->op[function < 0 ? 0 : function];
    if (p->batches > 1)
        return false;
    if (function >= 0 && g->value[next->output[0]].dtype != p->out)
        return false;
    if (function >= 0 && next->code == PL_OP_gelu_tanh) {
        p->epilogue = PL_EPILOGUE_GELU;
        p->has_aux = is_read_besides(g, value, function);
        made->after = next->output[0];
        made->aux = value;
    } else if (function >= 0 && next->code == PL_OP_gelu_tanh_grad) {
        const int32_t aux = root_of(g, next->input[1]);
        if (p->has_bias || is_read_besides(g, value, function)
            || g->value[aux].dtype != p->out || g->value[aux].source != PL_FROM_OP
            || pl_elements(g->value[aux].shape) != p->m * p->n)
            return false;
        p->epilogue = PL_EPILOGUE_GELU_GRAD;
        p->has_aux = true;
        made->after = next->output[0];
        made->aux = aux;
    } else if (sum >= 0 && !p->has_bias) {
        p->epilogue = PL_EPILOGUE_BIAS_GRAD;
        made->after = g->op[sum].output[0];
    }
    return p->epilogue != PL_EPILOGUE_NONE;
}

static const gpu_product_t plain = {NULL, -1, -1, -1, -1};

/* Prepares a product with as many of the operations after it as the library supports;
 * `alone`: with none.  PL_EUNSUPPORTED: it does not compute the product. */
static int library_find(pl_gpu_t *gpu, gpu_codegen_t *t, const pl_plan_t *plan, int i,
                        bool alone, gpu_product_t *made, pl_error_t *err)
{
    const pl_graph_t *g = t->g;
    const pl_op_t *op = &g->op[i];
    const unsigned offered = gpu->backend->epilogues ? gpu->backend->epilogues(gpu) : 0;
    const int target = plan->grads_backup && !alone ? target_of(g, op->output[0]) : -1;
    pl_product_t plainly, p;
    int code = PL_EUNSUPPORTED;
    if (!gpu->backend->product_new || !describe(t, op, &plainly))
        return code;
    for (int adds = target >= 0; adds >= 0 && code == PL_EUNSUPPORTED; adds--)
        for (int more = !alone; more >= 0 && code == PL_EUNSUPPORTED; more--) {
            p = plainly;
            *made = plain;
            p.adds = adds;
            made->target = adds ? g->op[target].input[0] : -1;
            if (more
                && !(describe_epilogue(g, plan, op, &p, made)
                     && offered >> p.epilogue & 1))
                continue;
            size_t workspace = 0;
            code = gpu->backend->product_new(gpu, &p, &made->prepared, &workspace, err);
            if (code == PL_OK && t->scratch < workspace)
                t->scratch = workspace;
        }
    if (code != PL_OK)
        *made = plain;
    return code;
}

static bool is_product(const pl_op_t *op)
{
    return op->code == PL_OP_matmul || op->code == PL_OP_linear;
}

int gpu_products_find(pl_gpu_t *gpu, gpu_codegen_t *t, pl_plan_t *plan, bool buckets,
                      pl_error_t *err)
{
    const pl_graph_t *g = t->g;
    plan->product = pl_alloc_array((size_t)g->value_count, sizeof *plan->product);
    if (!plan->product)
        return pl_no_memory(err);
    plan->products = g->value_count;
    for (int32_t v = 0; v < g->value_count; v++)
        plan->product[v] = plain;
    if (!buckets && (gpu->backend->product_new || gpu->backend->layer_new))
        plan->grads_backup = bytes_to_back_up(gpu, g);
    for (int i = 0; i < g->op_count; i++) {
        if (!is_product(&g->op[i]))
            continue;
        const int32_t value = g->op[i].output[0];
        gpu_product_t *made = &plan->product[value];
        const int code = library_find(gpu, t, plan, i, false, made, err);
        if (code == PL_EUNSUPPORTED) {              /* a kernel of the core computes it */
            const int function = function_of(g, value), target = target_of(g, value);
            made->after = function < 0 ? -1 : g->op[function].output[0];
            made->target = target < 0 ? -1 : g->op[target].input[0];
        } else if (code != PL_OK) {
            return code;
        }
        if (made->after >= 0)
            plan->product[made->after].front = value;
    }
    return PL_OK;
}

int32_t gpu_product_before(const pl_graph_t *g, int i, void *user)
{
    const pl_plan_t *plan = user;
    const pl_op_t *op = &g->op[i];
    if (op->code == PL_OP_assign) {
        const int32_t made = root_of(g, op->input[1]);
        return plan->product[made].target == op->input[0] ? made : -1;
    }
    return op->output_count ? plan->product[op->output[0]].front : -1;
}

/* The number of operations that are part of a product and are in its unit (in), or are
 * not. */
static int count_followers(const gpu_codegen_t *t, pl_plan_t *plan, int32_t value,
                           bool in)
{
    const pl_graph_t *g = t->g;
    const int unit = t->fusion->unit[g->value[value].op];
    int count = 0;
    for (int i = 0; i < g->op_count; i++)
        count += gpu_product_before(g, i, plan) == value
                 && (t->fusion->unit[i] == unit) == in;
    return count;
}

int gpu_products_limit(pl_gpu_t *gpu, gpu_codegen_t *t, pl_plan_t *plan, pl_error_t *err)
{
    const pl_graph_t *g = t->g;
    int code = PL_OK;
    for (int32_t v = 0; v < g->value_count && code == PL_OK; v++) {
        gpu_product_t *made = &plan->product[v];
        if (!made->prepared || !count_followers(t, plan, v, false))
            continue;
        const bool alone = !count_followers(t, plan, v, true);
        if (gpu->backend->product_free)
            gpu->backend->product_free(gpu, made->prepared);
        if (made->after >= 0)
            plan->product[made->after].front = -1;
        *made = plain;
        if (alone)
            code = library_find(gpu, t, plan, g->value[v].op, true, made, err);
        if (code == PL_EUNSUPPORTED)
            code = PL_OK;
    }
    return code;
}

bool gpu_is_by_library(const pl_plan_t *plan, int32_t value)
{
    const int32_t front = plan->product[value].front;
    return plan->product[value].prepared || (front >= 0 && plan->product[front].prepared);
}

void gpu_products_allocated(const gpu_codegen_t *t, pl_plan_t *plan)
{
    bool any = false;
    for (int i = 0; i < t->g->op_count && plan->grads_backup; i++) {
        const pl_op_t *op = &t->g->op[i];
        const bool is_layer = gpu_is_by_layer(t, plan, i);
        for (int k = 0; k < op->output_count; k++)
            any |= (is_layer || gpu_is_by_library(plan, op->output[k]))
                   && (t->allocation[op->output[k]].kind == PL_ALLOCATION_TARGET
                       || plan->product[op->output[k]].target >= 0);
    }
    plan->grads_backup = any ? plan->grads_backup : 0;
}

/* ---- Launches ---- */

static gpu_buffer_t buffer_of(const gpu_codegen_t *t, int32_t value, bool reads,
                              bool writes)
{
    gpu_buffer_t buffer = gpu_buffer_of(t, value);
    buffer.reads = reads;
    buffer.writes = writes;
    buffer.made = writes ? buffer.value : 0;
    return buffer;
}

bool gpu_library_may_use(const pl_plan_t *plan, const gpu_buffer_t *buffer, int count)
{
    for (int k = 0; k < count; k++) {
        const gpu_buffer_t *b = &buffer[k];
        const bool is_backed_up = plan->grads_backup && b->at == GPU_IN_REGION
                                  && b->index == PL_REGION_GRADS;
        if (b->offset % PL_PRODUCT_ALIGNMENT
            || (b->writes && b->at != GPU_IN_ARENA && !is_backed_up))
            return false;
    }
    return true;
}

bool gpu_product_put(gpu_codegen_t *t, const pl_plan_t *plan, int i)
{
    const pl_op_t *op = &t->g->op[i];
    const gpu_product_t *made = &plan->product[op->output_count ? op->output[0] : 0];
    const gpu_buffer_t scratch = {.at = GPU_IN_SCRATCH};
    gpu_buffer_t buffer[PL_PRODUCT_ADDRESSES];
    if (!is_product(op) || !made->prepared)
        return false;
    if (made->after < 0 && made->target < 0 && !gpu_is_allocated(t, op->output[0]))
        return false;
    const bool sums = made->after >= 0
                      && t->g->op[t->g->value[made->after].op].code == PL_OP_sum,
               keeps = made->aux == op->output[0];
    buffer[PL_PRODUCT_A] = buffer_of(t, op->input[0], true, false);
    buffer[PL_PRODUCT_B] = buffer_of(t, op->input[1], true, false);
    buffer[PL_PRODUCT_C] = made->target >= 0 ? buffer_of(t, made->target, true, true)
                           : made->after >= 0 && !sums
                               ? buffer_of(t, made->after, false, true)
                               : buffer_of(t, op->output[0], false, true);
    buffer[PL_PRODUCT_BIAS] = op->input_count > 2
                                  ? buffer_of(t, op->input[2], true, false)
                              : sums ? buffer_of(t, made->after, false, true)
                                     : scratch;
    buffer[PL_PRODUCT_AUX] = made->aux >= 0 && gpu_is_allocated(t, made->aux)
                                 ? buffer_of(t, made->aux, !keeps, keeps)
                                 : scratch;
    buffer[PL_PRODUCT_WORKSPACE] = scratch;
    if (!gpu_library_may_use(plan, buffer, PL_PRODUCT_ADDRESSES))
        return false;
    gpu_kernel_t *kernel = gpu_library_kernel(t, "product", buffer, PL_PRODUCT_ADDRESSES);
    if (kernel)
        kernel->library = made->prepared;
    return true;
}

void gpu_products_free(pl_gpu_t *gpu, pl_plan_t *plan)
{
    for (int k = 0; k < plan->products; k++)
        if (plan->product[k].prepared && gpu->backend->product_free)
            gpu->backend->product_free(gpu, plan->product[k].prepared);
    pl_free(plan->product);
}
