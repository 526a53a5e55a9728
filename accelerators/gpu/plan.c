/* plan.c - a graph compiled into launches of kernels, and its replay
 *
 * Compiling: the graph is rewritten, lowered and its element-wise operations are grouped
 * (accelerators/plan/), its values are given places (tensor/lifetimes.h), each unit is
 * printed (text.h), and the machine makes kernels of the text.  A replay writes the step
 * block and the batch, launches the kernels in order, and fetches what is asked for. */
#include "accelerators/gpu/plan.h"

#include <string.h>

#include "accelerators/gpu/memory.h"
#include "accelerators/plan/lower.h"
#include "accelerators/plan/rewrite.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

typedef struct output {
    gpu_spot_t spot;
    size_t bytes;
    bool behind; /* a guard: without value when that stops the replay */
} output_t;

/* What a metric adds to the results. */
typedef struct sums {
    int64_t count;
    bool behind;
} sums_t;

struct pl_plan {
    pl_plan_t *next;
    pl_binary_t *code;
    gpu_kernel_t *kernel;
    int kernels;
    size_t arena, scratch; /* bytes */
    sums_t *metric;        /* [metrics] */
    int metrics;
    int64_t sums; /* of all metrics */
    output_t output[PL_FIELDS];
    int outputs;
    size_t input[PL_FIELDS];  /* bytes of each batch field  [0: not read] */
    size_t needs[PL_REGIONS]; /* elements of each region */
    gpu_check_t *check;
    unsigned generation; /* of the memory that launches point to */
};

typedef struct compiler {
    pl_gpu_t *gpu;
    pl_plan_t *plan;
    pl_graph_t graph; /* a copy, rewritten */
    pl_lowered_t lowered;
    pl_fusion_t fusion;
    pl_lifetimes_t lifetimes;
    gpu_text_t text;
} compiler_t;

/* ---- Compiling ---- */

/* Where elements have another width, element i lies elsewhere. */
static bool may_take_place(const pl_graph_t *g, int op, int32_t input, void *user)
{
    const pl_fusion_t *fusion = user;
    const pl_op_t *maker = &g->op[op];
    if (!pl_is_elementwise(g, maker)
        || pl_dtype_size(g->value[input].dtype)
               != pl_dtype_size(g->value[maker->output[0]].dtype))
        return false;
    return pl_unit_in_place(fusion, g, op, input);
}

static int print_unit(compiler_t *c, int from, int to, pl_error_t *err)
{
    const pl_graph_t *g = &c->lowered.graph;
    char where[128];
    from = pl_unit_first(g, from, to);
    const pl_op_t *op = &g->op[from];
    if (pl_is_elementwise(g, op))
        gpu_print_element(&c->text, from, to);
    else if (op->code == PL_OP_guard)
        gpu_print_guard(&c->text, from);
    else if (!gpu_print_reduction(&c->text, from) && !gpu_print_move(&c->text, from)
             && !gpu_print_row(&c->text, from) && !gpu_print_product(&c->text, from)
             && !gpu_print_attention(&c->text, from))
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: the %s accelerator has no such operator",
                       pl_op_where(op, where), c->gpu->machine->name);
    return PL_OK;
}

static int print_units(compiler_t *c, pl_error_t *err)
{
    const pl_graph_t *g = &c->lowered.graph;
    int code = PL_OK;
    gpu_text_begin(&c->text);
    for (int from = 0, to; from < g->op_count && code == PL_OK; from = to) {
        const int unit = c->fusion.unit[from];
        for (to = from; to < g->op_count && c->fusion.unit[to] == unit; to++)
            ;
        if (!pl_unit_is_nothing(g, c->lifetimes.done, from, to))
            code = print_unit(c, from, to, err);
    }
    if (code == PL_OK)
        gpu_print_results(&c->text);
    return code;
}

static int make_code(compiler_t *c, pl_error_t *err)
{
    pl_gpu_t *gpu = c->gpu;
    pl_plan_t *p = c->plan;
    if (c->text.error.code != PL_OK)
        return pl_fail(err, c->text.error.code, "%s", c->text.error.text);
    p->kernel = c->text.kernel;
    p->kernels = c->text.kernels;
    p->scratch = c->text.scratch;
    p->check = c->text.check;
    c->text.kernel = NULL;
    c->text.check = NULL;
    int code = p->kernels ? gpu->machine->code_new(gpu, c->text.all.text, &p->code, err)
                          : PL_OK;
    for (int k = 0; k < p->kernels && code == PL_OK; k++) {
        p->kernel[k].launch.entry = gpu->machine->code_entry(gpu, p->code,
                                                             p->kernel[k].name, err);
        code = p->kernel[k].launch.entry ? PL_OK : PL_EBUG;
    }
    return code;
}

static void note_needs(compiler_t *c)
{
    const pl_graph_t *g = &c->lowered.graph;
    pl_plan_t *p = c->plan;
    for (int32_t v = 0; v < g->value_count; v++) {
        const pl_value_t *value = &g->value[v];
        const size_t count = (size_t)pl_elements(value->shape);
        if (value->source == PL_FROM_REGION
            && p->needs[value->index] < (size_t)value->offset + count)
            p->needs[value->index] = (size_t)value->offset + count;
        if (value->source == PL_FROM_INPUT)
            p->input[value->index] = count * pl_dtype_size(value->dtype);
    }
}

static bool is_behind(const compiler_t *c, int32_t value, int guard)
{
    const pl_value_t *v = &c->lowered.graph.value[c->fusion.root[value]];
    return v->source == PL_FROM_OP && v->op > guard;
}

static int note_fetches(compiler_t *c, pl_error_t *err)
{
    const pl_graph_t *g = &c->lowered.graph;
    pl_plan_t *p = c->plan;
    int guard = 0;
    while (guard < g->op_count && g->op[guard].code != PL_OP_guard)
        guard++;
    p->metric = pl_alloc_array((size_t)g->fetch_count, sizeof *p->metric);
    if (!p->metric)
        return pl_no_memory(err);
    for (int i = 0; i < g->fetch_count; i++) {
        const pl_fetch_t *f = &g->fetch[i];
        const pl_value_t *value = &g->value[f->value];
        const bool behind = is_behind(c, f->value, guard);
        if (f->kind == PL_FETCH_FIGURE) {
            p->metric[p->metrics++] = (sums_t){f->sums,
                                               behind || is_behind(c, f->weight, guard)};
            p->sums += f->sums;
        } else {
            p->output[p->outputs++] = (output_t){gpu_spot_of(&c->text, f->value),
                                                 (size_t)pl_elements(value->shape)
                                                     * pl_dtype_size(value->dtype),
                                                 behind};
        }
    }
    return PL_OK;
}

static int compile(compiler_t *c, const pl_graph_t *g, pl_error_t *err)
{
    static const pl_unit_limits_t limits = {.operands = PL_LAUNCH_ADDRESSES - 4,
                                            .lines = 96,
                                            .dropouts = 8,
                                            .totals = 4};
    int code = pl_graph_copy(&c->graph, g, err);
    if (code == PL_OK) {
        pl_rewrite(&c->graph);
        code = pl_lower(&c->lowered, &c->graph, err);
    }
    if (code == PL_OK)
        code = pl_fuse(&c->fusion, &c->lowered.graph, &limits, err);
    if (code == PL_OK) {
        const pl_lifetime_rules_t rules = {.time = c->fusion.unit,
                                           .inside = c->fusion.inside,
                                           .in_place = may_take_place,
                                           .user = &c->fusion};
        code = pl_lifetimes_plan(&c->lifetimes, &c->lowered.graph, &rules, err);
    }
    if (code != PL_OK)
        return code;
    c->text.g = &c->lowered.graph;
    c->text.look = c->lowered.look;
    c->text.fusion = &c->fusion;
    c->text.home = c->lifetimes.home;
    c->text.done = c->lifetimes.done;
    c->text.wide = pl_graph_is_wide(g);
    c->plan->arena = c->lifetimes.arena;
    note_needs(c);
    code = note_fetches(c, err);
    if (code == PL_OK)
        code = print_units(c, err);
    return code == PL_OK ? make_code(c, err) : code;
}

static int reserve(pl_gpu_t *gpu, const pl_plan_t *p, pl_error_t *err)
{
    pl_gpu_memory_t *m = gpu->memory;
    int code = gpu_reserve(gpu, &m->arena, p->arena, "arena", err);
    if (code == PL_OK)
        code = gpu_reserve(gpu, &m->scratch, p->scratch, "scratch", err);
    if (code == PL_OK)
        code = gpu_reserve(gpu, &m->results, (size_t)p->sums * sizeof(double), "results",
                           err);
    for (int k = 0; k < PL_FIELDS && code == PL_OK; k++)
        code = gpu_reserve(gpu, &m->input[k], p->input[k], "batch", err);
    return code;
}

int gpu_plan_new(pl_gpu_t *gpu, const pl_graph_t *g, pl_plan_t **plan, pl_error_t *err)
{
    int code = pl_graph_check(g, err);
    if (code != PL_OK)
        return code;
    compiler_t c = {.gpu = gpu, .plan = pl_alloc(sizeof *c.plan)};
    if (!c.plan)
        return pl_no_memory(err);
    code = compile(&c, g, err);
    if (code == PL_OK)
        code = reserve(gpu, c.plan, err);
    gpu_text_release(&c.text);
    pl_lifetimes_release(&c.lifetimes);
    pl_fusion_release(&c.fusion);
    pl_lowered_release(&c.lowered);
    pl_graph_copy_release(&c.graph);
    c.plan->next = gpu->plans;
    gpu->plans = c.plan;
    if (code == PL_OK)
        *plan = c.plan;
    else
        gpu_plan_free(gpu, c.plan);
    return code;
}

void gpu_plan_free(pl_gpu_t *gpu, pl_plan_t *plan)
{
    if (!plan)
        return;
    pl_plan_t **link = &gpu->plans;
    while (*link != plan)
        link = &(*link)->next;
    *link = plan->next;
    if (plan->code)
        gpu->machine->code_free(gpu, plan->code);
    pl_free(plan->kernel);
    pl_free(plan->check);
    pl_free(plan->metric);
    pl_free(plan);
}

/* ---- Replaying ---- */

static int resolve(pl_gpu_t *gpu, pl_plan_t *p, pl_error_t *err)
{
    for (int r = 0; r < PL_REGIONS; r++)
        if (p->needs[r] > gpu->memory->count[r])
            return pl_fail(err, PL_ESTATE,
                           "region %d has %zu elements, and the plan needs %zu: allocate "
                           "it before compiling",
                           r, gpu->memory->count[r], p->needs[r]);
    for (int k = 0; k < p->kernels; k++)
        for (int i = 0; i < p->kernel[k].launch.count; i++)
            p->kernel[k].launch.address[i] = gpu_address(gpu, &p->kernel[k].spot[i]);
    p->generation = gpu->memory->generation;
    return PL_OK;
}

/* The step block, an empty control block, and the batch. */
static int put_inputs(pl_gpu_t *gpu, const pl_plan_t *p, const pl_replay_t *replay,
                      gpu_step_t *step, pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
    const pl_gpu_memory_t *m = gpu->memory;
    const pl_dropout_t d = pl_dropout_init(replay->seed, replay->step, replay->shard, 0,
                                           0);
    *step = (gpu_step_t){.seed = replay->seed, .step = d.step, .shard = d.shard};
    memcpy(step->scalar, replay->scalar, sizeof step->scalar);
    int code = machine->copy_in(gpu, PL_STREAM_MAIN, m->step.address, step, sizeof *step,
                                err);
    if (code == PL_OK)
        code = machine->zero(gpu, PL_STREAM_MAIN, m->control.address,
                             sizeof(gpu_control_t), err);
    for (int k = 0; k < PL_FIELDS && code == PL_OK; k++) {
        if (!p->input[k])
            continue;
        if (!replay->input[k])
            return pl_fail(err, PL_EINVAL, "the replay has no data for batch field %d",
                           k);
        code = machine->copy_in(gpu, PL_STREAM_MAIN, m->input[k].address,
                                replay->input[k], p->input[k], err);
    }
    return code;
}

/* How the replay ended, and the sums of metrics. */
static int fetch_metrics(pl_gpu_t *gpu, const pl_plan_t *p, pl_replay_t *replay,
                         gpu_control_t *control, pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
    const pl_gpu_memory_t *m = gpu->memory;
    const bool wanted = replay->figures && p->sums;
    const size_t bytes = (size_t)p->sums * sizeof(double);
    const double *from = wanted ? gpu_staging(gpu, bytes, err) : NULL;
    double *to = replay->figures;
    if (wanted && !from)
        return PL_ENOMEM;
    int code = machine->copy_out(gpu, PL_STREAM_MAIN, control, m->control.address,
                                 sizeof *control, err);
    if (code == PL_OK && wanted)
        code = machine->copy_out(gpu, PL_STREAM_MAIN, (void *)from, m->results.address,
                                 bytes, err);
    if (code == PL_OK)
        code = machine->finish(gpu, PL_STREAM_MAIN, err);
    for (int k = 0; k < p->metrics && wanted && code == PL_OK; k++) {
        const sums_t *metric = &p->metric[k];
        if (!control->guarded || !metric->behind)
            memcpy(to, from, (size_t)metric->count * sizeof *to);
        to += metric->count;
        from += metric->count;
    }
    return code;
}

static int fetch_outputs(pl_gpu_t *gpu, const pl_plan_t *p, pl_replay_t *replay,
                         bool guarded, pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < p->outputs && code == PL_OK; k++)
        if (replay->output[k] && !(guarded && p->output[k].behind))
            code = gpu->machine->copy_out(gpu, PL_STREAM_MAIN, replay->output[k],
                                          gpu_address(gpu, &p->output[k].spot),
                                          p->output[k].bytes, err);
    return code == PL_OK ? gpu->machine->finish(gpu, PL_STREAM_MAIN, err) : code;
}

/* What a kernel found. */
static int fail_check(const gpu_check_t *check, const gpu_control_t *found, uint64_t step,
                      pl_error_t *err)
{
    if (found->guarded == GPU_NOT_FINITE)
        return pl_guard_fail(&check->op, step, err);
    return pl_index_fail(&check->op, found->index, check->below, err);
}

int gpu_plan_run(pl_gpu_t *gpu, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err)
{
    gpu_step_t step;
    gpu_control_t control = {0};
    int code = plan->generation == gpu->memory->generation ? PL_OK
                                                           : resolve(gpu, plan, err);
    if (code == PL_OK)
        code = put_inputs(gpu, plan, replay, &step, err);
    for (int k = 0; k < plan->kernels && code == PL_OK; k++)
        code = gpu->machine->launch(gpu, PL_STREAM_MAIN, &plan->kernel[k].launch, err);
    if (code == PL_OK)
        code = fetch_metrics(gpu, plan, replay, &control, err);
    if (code == PL_OK)
        code = fetch_outputs(gpu, plan, replay, control.guarded != 0, err);
    replay->guarded = control.guarded == GPU_GUARDED;
    if (code == PL_OK && control.guarded >= GPU_WRONG_INDEX)
        code = fail_check(&plan->check[control.operation], &control, replay->step, err);
    return code;
}
