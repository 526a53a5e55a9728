/* compile.c - a graph as kernels in texts, and the order in which a replay runs them
 *
 * The graph is rewritten, lowered and refined, its operations are grouped in units
 * (accelerators/plan/), its values are allocated (tensor/memory_plan.h), and each unit
 * is printed (codegen.h).  A piece of launches ends where a replay has other work
 * (plan.h): backward begins, a bucket of gradients is complete, an in-graph collective
 * waits, or the host computes. */
#include "accelerators/gpu/plan.h"

#include <stdio.h>
#include <string.h>

#include "accelerators/gpu/layers.h"
#include "accelerators/gpu/products.h"
#include "accelerators/gpu/fold_casts.h"
#include "accelerators/plan/lower.h"
#include "accelerators/plan/rewrite.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

typedef struct gpu_compiler {
    pl_gpu_t *gpu;
    pl_plan_t *plan;
    pl_graph_t graph;                                       /* a copy, rewritten */
    pl_lowered_t lowered;
    pl_fusion_t fusion;
    pl_memory_plan_t memory_plan;
    gpu_codegen_t text;
} gpu_compiler_t;

/* ---- Allocation ---- */

/* A result must not take the buffer of an input whose elements have another width.
 * Nor may the result of a core, which reads other elements too, except the gradient of
 * a cross-entropy, which takes the buffer of its logits. */
static bool may_reuse_buffer(const pl_graph_t *g, int op, int32_t input, void *user)
{
    const pl_fusion_t *fusion = &((const gpu_compiler_t *)user)->fusion;
    const pl_op_t *maker = &g->op[op];
    int from = op, to = op + 1;
    if (maker->code == PL_OP_cross_entropy_grad)
        return fusion->root[input] == fusion->root[maker->input[1]]
               && g->value[input].dtype == g->value[maker->output[0]].dtype;
    while (from > 0 && fusion->unit[from - 1] == fusion->unit[op])
        from--;
    while (to < g->op_count && fusion->unit[to] == fusion->unit[op])
        to++;
    return pl_unit_core(g, from, to) < 0
           && pl_dtype_size(g->value[input].dtype)
                  == pl_dtype_size(g->value[maker->output[0]].dtype)
           && pl_unit_in_place(fusion, g, op, input);
}

/* A guard does not stop the results of a library, so they stay in the arena
 * (products.c). */
static bool must_stay(const pl_graph_t *g, int op, const pl_value_t *target, void *user)
{
    const gpu_compiler_t *c = user;
    const pl_plan_t *p = c->plan;
    const bool is_layer = gpu_is_by_layer(&c->text, p, op);
    return (gpu_is_by_library(p, g->op[op].output[0]) || is_layer)
           && !(p->grads_backup && target->index == PL_REGION_GRADS
                && (!is_layer || gpu_layer_may_lie(target)));
}

/* ---- Pieces ---- */

static gpu_piece_t *piece_add(gpu_compiler_t *c)
{
    pl_plan_t *p = c->plan;
    gpu_parts_close(&c->text);
    if (c->text.error.code == PL_OK
        && PL_GROW(p->piece, p->pieces, p->piece_capacity) != PL_OK)
        pl_no_memory(&c->text.error);
    if (c->text.error.code != PL_OK)
        return NULL;
    p->piece[p->pieces] = (gpu_piece_t){.from = p->pieces ? p->piece[p->pieces - 1].to
                                                          : p->refresh + 1,
                                        .to = c->text.kernels,
                                        .host_copies = p->outs};
    return &p->piece[p->pieces++];
}

static int print_on_host(gpu_compiler_t *c, int op, pl_error_t *err)
{
    pl_plan_t *p = c->plan;
    if (PL_GROW(p->host, p->hosts, p->host_capacity) != PL_OK)
        return pl_no_memory(err);
    gpu_host_t *host = &p->host[p->hosts];
    int code = gpu_host_init(host, c->gpu, &c->text, op, err);
    if (code != PL_OK)
        return code;
    int k = 0;                                           /* logs once for each operator */
    while (k < PL_GPU_LOGGED && c->gpu->logged[k] && c->gpu->logged[k] != host->table)
        k++;
    if (k < PL_GPU_LOGGED && !c->gpu->logged[k]) {
        c->gpu->logged[k] = host->table;
        if (c->gpu->logs)
            pl_log_line(PL_LOG_INFO, -1, "accelerator",
                        "operator \"%s\" has no text for \"gpu\": the host computes it",
                        host->table->name);
    }
    p->hosts++;
    gpu_host_print_inputs(host, &c->text, op);
    gpu_piece_t *piece = piece_add(c);
    if (piece)
        piece->host = p->hosts;
    gpu_host_print_output(host, &c->text, op);
    return PL_OK;
}

static int print_unit(gpu_compiler_t *c, int from, int to, pl_error_t *err)
{
    const pl_graph_t *g = &c->lowered.graph;
    char where[128];
    from = pl_unit_first(g, from, to);
    const int core = pl_unit_core(g, from, to);
    const pl_op_t *op = &g->op[core < 0 ? from : core];
    c->text.from = from;
    c->text.to = to;
    c->text.core = core;
    if (core < 0)
        gpu_print_element(&c->text, from, to);
    else if (op->code == PL_OP_guard)
        gpu_print_guard(&c->text, core);
    else if (op->code == PL_OP_apply)
        return gpu_print_user(&c->text, core) ? PL_OK : print_on_host(c, core, err);
    else if (!gpu_product_put(&c->text, c->plan, core)
             && !gpu_layer_put(&c->text, c->plan, core)
             && !gpu_print_reduction(&c->text, core) && !gpu_print_move(&c->text, core)
             && !gpu_print_axis(&c->text, core) && !gpu_print_row(&c->text, core)
             && !gpu_print_product(&c->text, core) && !gpu_print_space(&c->text, core)
             && !gpu_print_attention(&c->text, core)
             && !gpu_print_recurrent(&c->text, core) && !gpu_print_ctc(&c->text, core))
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: the %s accelerator has no such operator",
                       pl_op_where(op, where), c->gpu->backend->name);
    return PL_OK;
}

/* Halves of a mirrored region to or from the float32 copy for the host. */
static void print_floats(gpu_compiler_t *c, const gpu_host_copy_t *p, bool to_host)
{
    const pl_dtype_t dtype = c->gpu->memory->region[p->region].dtype;
    const gpu_buffer_t halves = {.at = GPU_IN_REGION,
                                 .index = p->region,
                                 .offset = p->from * pl_dtype_size(dtype)},
                       floats = {.at = GPU_IN_FLOATS,
                                 .index = p->region,
                                 .offset = p->from * sizeof(float)};
    if (to_host)
        gpu_print_convert(&c->text, &halves, dtype, &floats, PL_F32, p->count);
    else
        gpu_print_convert(&c->text, &floats, PL_F32, &halves, dtype, p->count);
}

static void host_copy_add(gpu_compiler_t *c, int region, size_t from, size_t count)
{
    pl_plan_t *p = c->plan;
    const gpu_region_t *r = &c->gpu->memory->region[region];
    if (!count || !r->mirror)
        return;
    gpu_host_copy_t host_copy = {region, from, count, -1};
    if (gpu_is_half(r->dtype)) {
        host_copy.kernel = c->text.kernels;
        print_floats(c, &host_copy, true);
    }
    if (PL_GROW(p->out, p->outs, p->out_capacity) == PL_OK)
        p->out[p->outs++] = host_copy;
    else if (c->text.error.code == PL_OK)
        pl_no_memory(&c->text.error);
}

static int bucket_region(const gpu_compiler_t *c)
{
    return c->graph.bucket_params ? PL_REGION_PARAMS : PL_REGION_GRADS;
}

/* The last unit that writes elements [from, to) of the buckets' region.  An assign
 * without a copy is written by the unit that makes its value. */
static int bucket_unit(const gpu_compiler_t *c, int64_t from, int64_t to)
{
    const pl_graph_t *g = &c->lowered.graph;
    int last = 0;
    for (int i = 0; i < g->op_count; i++) {
        const pl_value_t *target = &g->value[g->op[i].input[0]];
        if (g->op[i].code != PL_OP_assign || target->source != PL_FROM_REGION
            || target->index != bucket_region(c) || target->offset >= to
            || target->offset + pl_elements(target->shape) <= from)
            continue;
        const pl_value_t *made = &g->value[c->fusion.root[g->op[i].input[1]]];
        const int unit = c->memory_plan.done[i] && made->source == PL_FROM_OP
                             ? c->fusion.unit[made->op]
                             : c->fusion.unit[i];
        last = unit > last ? unit : last;
    }
    return last;
}

/* Ends a piece after unit `unit` if that completes buckets. */
static void cut_buckets(gpu_compiler_t *c, const int *last, int *bucket, int unit)
{
    const int64_t *at = c->graph.bucket;
    const int before = *bucket;
    for (; *bucket < c->graph.bucket_count && last[*bucket] <= unit; ++*bucket)
        if (unit + 1 < c->fusion.units)                   /* the end reports the others */
            host_copy_add(c, bucket_region(c), (size_t)at[*bucket + 1],
                          (size_t)(at[*bucket] - at[*bucket + 1]));
        else
            return;
    gpu_piece_t *piece = *bucket > before ? piece_add(c) : NULL;
    if (piece)
        piece->buckets = *bucket;
}

/* The last piece copies the mirrored regions that the plan changes, except the buckets of
 * gradients that were copied before. */
static void cut_end(gpu_compiler_t *c, int buckets)
{
    const pl_graph_t *g = &c->lowered.graph;
    const pl_plan_t *p = c->plan;
    bool changes[PL_REGIONS] = {false};
    for (int i = 0; i < g->op_count; i++)
        if (g->op[i].code == PL_OP_assign)
            changes[g->value[g->op[i].input[0]].index] = true;
    for (int r = 0; r < PL_REGIONS; r++) {
        if (!changes[r] || (r == PL_REGION_COLLECTIVE && p->collective_result.count))
            continue;
        if (r == bucket_region(c) && buckets) {
            const size_t passed = (size_t)c->graph.bucket[0],
                         left = (size_t)c->graph.bucket[buckets];
            host_copy_add(c, r, 0, left);
            host_copy_add(c, r, passed, p->needs[r] - passed);
        } else {
            host_copy_add(c, r, 0, p->needs[r]);
        }
    }
    piece_add(c);
}

static void print_ins(gpu_compiler_t *c)
{
    pl_plan_t *p = c->plan;
    for (int r = 0; r < PL_REGIONS; r++) {
        const gpu_region_t *region = &c->gpu->memory->region[r];
        if (!region->mirror || !p->needs[r])
            continue;
        gpu_host_copy_t host_copy = {r, 0, p->needs[r], -1};
        if (gpu_is_half(region->dtype)) {
            host_copy.kernel = c->text.kernels;
            print_floats(c, &host_copy, false);
        }
        p->in[p->ins++] = host_copy;
        if (r == PL_REGION_COLLECTIVE)
            p->collective_result = host_copy;
    }
    gpu_piece_t *piece = piece_add(c);
    if (piece && piece->to == piece->from)
        p->pieces--;
}

/* All launches of the plan in their order.  Before the first piece comes the kernel that
 * makes GPU_REGION_LOW; it runs only when parameters have changed. */
static int print_units(gpu_compiler_t *c, pl_error_t *err)
{
    const pl_graph_t *g = &c->lowered.graph;
    const gpu_region_t *region = c->gpu->memory->region;
    const gpu_buffer_t from_params = {.at = GPU_IN_REGION, .index = PL_REGION_PARAMS},
                       to_low = {.at = GPU_IN_REGION, .index = GPU_REGION_LOW};
    int code = PL_OK, bucket = 0;
    bool backward = false;                                  /* it has begun */
    int *last = pl_alloc_array((size_t)c->graph.bucket_count, sizeof *last);
    if (!last)
        return pl_no_memory(err);
    for (int k = 0; k < c->graph.bucket_count; k++) {
        last[k] = bucket_unit(c, c->graph.bucket[k + 1], c->graph.bucket[k]);
        if (k && last[k] < last[k - 1])
            last[k] = last[k - 1];
    }
    c->plan->refresh = c->plan->needs[GPU_REGION_LOW] ? 0 : -1;
    if (c->plan->needs[GPU_REGION_LOW])
        gpu_print_convert(&c->text, &from_params, region[PL_REGION_PARAMS].dtype, &to_low,
                          region[GPU_REGION_LOW].dtype, region[GPU_REGION_LOW].count);
    print_ins(c);
    gpu_print_begin(&c->text);
    if (c->plan->grads_backup)
        gpu_print_grads_backup(&c->text, c->plan->grads_backup, false);
    for (int from = 0, to; from < g->op_count && code == PL_OK; from = to) {
        const int unit = c->fusion.unit[from], kernels = c->text.kernels;
        for (to = from; to < g->op_count && c->fusion.unit[to] == unit; to++)
            ;
        bool begins = false;
        for (int i = from; i < to && !backward; i++)
            begins |= g->op[i].gradient_of != NULL;
        backward |= begins;
        gpu_piece_t *piece = begins ? piece_add(c) : NULL;
        if (piece)
            piece->backward = true;
        if (g->op[from].code == PL_OP_collective) {
            gpu_print_record(&c->text, from);
            host_copy_add(c, PL_REGION_COLLECTIVE, 0, c->plan->collective_result.count);
            piece = piece_add(c);
            if (piece)
                piece->collective = 1 + g->op[from].attr.axis;
        } else if (!pl_unit_is_nothing(g, c->memory_plan.done, from, to))
            code = print_unit(c, from, to, err);
        for (int k = kernels; k < c->text.kernels; k++)
            snprintf(c->text.kernel[k].path, sizeof c->text.kernel[k].path, "%s",
                     g->op[c->text.core < 0 ? from : c->text.core].path);
        c->text.from = c->text.to = 0;
        c->text.core = -1;
        cut_buckets(c, last, &bucket, unit);
    }
    if (c->plan->grads_backup)
        gpu_print_grads_backup(&c->text, c->plan->grads_backup, true);
    gpu_print_record(&c->text, g->op_count);
    cut_end(c, bucket);
    pl_free(last);
    return code;
}

static int maker_of(const gpu_compiler_t *c, int32_t value)
{
    const pl_value_t *v = &c->lowered.graph.value[c->fusion.root[value]];
    return v->source == PL_FROM_OP ? v->op : -1;
}

/* Notes in the plan how much it reads of each region and batch field, whether it changes
 * parameters, and its metrics and outputs.  It can write GPU_REGION_LOW with the
 * parameters if only units of element-wise operations change them. */
static int note_graph(gpu_compiler_t *c, pl_error_t *err)
{
    const pl_graph_t *g = &c->lowered.graph;
    const gpu_region_t *low = &c->gpu->memory->region[GPU_REGION_LOW];
    pl_plan_t *p = c->plan;
    bool is_elementwise = true;
    for (int32_t v = 0; v < g->value_count; v++) {
        const pl_value_t *value = &g->value[v];
        const size_t count = (size_t)pl_elements(value->shape);
        if (value->source == PL_FROM_REGION
            && p->needs[value->index] < (size_t)value->offset + count)
            p->needs[value->index] = (size_t)value->offset + count;
        if (value->source == PL_FROM_INPUT)
            p->input[value->index] = count * pl_dtype_size(value->dtype);
    }
    for (int k = 0; k < PL_FIELDS; k++) {
        p->input_at[k] = p->batch;
        p->batch += gpu_aligned(p->input[k]);
    }
    c->text.input_at = p->input_at;
    for (int i = 0; i < g->op_count; i++) {
        const pl_op_t *op = &g->op[i];
        if (op->code != PL_OP_assign || g->value[op->input[0]].index != PL_REGION_PARAMS)
            continue;
        const int maker = maker_of(c, op->input[1]);
        p->changes_params = true;
        is_elementwise &= !c->memory_plan.done[i]
                          || (maker >= 0 && pl_is_elementwise(g, &g->op[maker]));
    }
    p->keeps_low = p->changes_params && low->count && is_elementwise;
    c->text.low = p->keeps_low ? GPU_REGION_LOW : 0;
    c->text.low_dtype = low->dtype;
    p->metric = pl_alloc_array((size_t)g->fetch_count, sizeof *p->metric);
    if (!p->metric)
        return pl_no_memory(err);
    for (int i = 0; i < g->fetch_count; i++) {
        const pl_fetch_t *f = &g->fetch[i];
        const pl_value_t *value = &g->value[f->value];
        const int made = maker_of(c, f->value);
        if (f->kind == PL_FETCH_METRIC) {
            const int weight = maker_of(c, f->weight);
            p->metric[p->metrics++] = (gpu_sums_t){f->sums,
                                                   made > weight ? made : weight};
            p->sums += f->sums;
        } else {
            p->output[p->outputs++] = (gpu_output_t){gpu_buffer_of(&c->text, f->value),
                                                     (size_t)pl_elements(value->shape)
                                                         * pl_dtype_size(value->dtype),
                                                     made};
        }
    }
    return PL_OK;
}

/* The lowered graph in units, with the memory of its values, and the operations that a
 * library computes. */
static int prepare(gpu_compiler_t *c, const pl_graph_t *g, pl_error_t *err)
{
    pl_unit_limits_t limits = {.operands = PL_LAUNCH_ADDRESSES - 4,
                               .lines = 96,
                               .dropouts = 8,
                               .totals = 4,
                               .cores = true,
                               .front = gpu_product_before,
                               .user = c->plan};
    int code = pl_graph_copy(&c->graph, g, err);
    if (code == PL_OK)
        code = gpu_tensors_put(c->gpu, &c->graph, err);
    if (code == PL_OK) {
        pl_rewrite(&c->graph);
        code = pl_lower(&c->lowered, &c->graph, err);
    }
    pl_dtype_t low = PL_F32;
    if (code == PL_OK)
        code = gpu_fold_param_casts(&c->lowered.graph, &low, err);
    if (code == PL_OK && low != PL_F32)
        code = gpu_reserve_low(c->gpu, low, err);
    if (code == PL_OK)
        code = gpu_fold_casts(&c->lowered.graph, c->gpu->backend->layer_new != NULL, err);
    limits.view = c->lowered.view;
    c->text.g = &c->lowered.graph;
    c->text.view = c->lowered.view;
    c->text.fusion = &c->fusion;
    c->text.wide = pl_graph_is_float64(g);
    c->text.core = -1;
    if (code == PL_OK)
        code = gpu_products_find(c->gpu, &c->text, c->plan, c->graph.bucket_count, err);
    if (code == PL_OK)
        code = pl_fuse(&c->fusion, &c->lowered.graph, &limits, err);
    if (code == PL_OK)
        code = gpu_products_limit(c->gpu, &c->text, c->plan, err);
    if (code == PL_OK)
        code = gpu_layers_find(c->gpu, &c->text, &c->lowered.graph, c->plan, err);
    if (code == PL_OK) {
        const pl_memory_plan_rules_t rules = {.time = c->fusion.unit,
                                              .inside = c->fusion.inside,
                                              .in_place = may_reuse_buffer,
                                              .must_stay = must_stay,
                                              .user = c};
        code = pl_memory_plan_build(&c->memory_plan, &c->lowered.graph, &rules, err);
    }
    return code;
}

int gpu_compile(pl_gpu_t *gpu, pl_plan_t *plan, const pl_graph_t *g, gpu_string_t **text,
                int *texts, pl_error_t *err)
{
    gpu_compiler_t c = {.gpu = gpu, .plan = plan};
    int code = prepare(&c, g, err);
    if (code == PL_OK) {
        c.text.allocation = c.memory_plan.allocation;
        c.text.done = c.memory_plan.done;
        plan->arena = c.memory_plan.arena;
        gpu_products_allocated(&c.text, plan);
        code = note_graph(&c, err);
        c.text.record = (size_t)plan->sums * sizeof(double);
    }
    if (code == PL_OK)
        code = print_units(&c, err);
    if (code == PL_OK && c.text.error.code != PL_OK)
        code = pl_fail(err, c.text.error.code, "%s", c.text.error.text);
    if (code == PL_OK) {           /* the printed text moves to the plan and the caller */
        plan->kernel = c.text.kernel;
        plan->kernels = c.text.kernels;
        plan->scratch = c.text.scratch;
        plan->counters = c.text.counters;
        plan->check = c.text.check;
        *text = c.text.text;
        *texts = c.text.texts;
        c.text.kernel = NULL;
        c.text.check = NULL;
        c.text.text = NULL;
        c.text.texts = 0;
    }
    for (int k = 0; k < plan->kernels; k++) {
        const char *name = plan->kernel[k].name, *number = strrchr(name, '_');
        snprintf(plan->kernel[k].kind, sizeof plan->kernel[k].kind, "%.*s",
                 number ? (int)(number - name) : 23, name);
    }
    gpu_codegen_release(&c.text);
    pl_memory_plan_release(&c.memory_plan);
    pl_fusion_release(&c.fusion);
    pl_lowered_release(&c.lowered);
    pl_graph_copy_release(&c.graph);
    return code;
}
