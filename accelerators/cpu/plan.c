/* plan.c - a graph compiled into a flat list of kernel calls, and its replay
 *
 * Compiling: the graph is rewritten (rewrite.h) and lowered (lower.h), its element-wise
 * operations are grouped (fuse.h), its values are allocated (tensor/memory_plan.h), and
 * each unit becomes a call (exec_op.h).  Replaying is a loop over the calls; addresses of
 * values are computed again only after memory has moved. */
#include "accelerators/cpu/device.h"

#include <string.h>

#include "accelerators/plan/fuse.h"
#include "accelerators/plan/rewrite.h"
#include "accelerators/cpu/exec_op.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

/* Place of a value: `index` is the region, batch field, scalar slot or constant, `offset`
 * in bytes. */
typedef struct value_buffer {
    enum { NOWHERE, IN_ARENA, IN_REGION, IN_INPUT, IN_SCALAR, IN_CONSTANT, IN_TENSOR } in;
    int index;
    size_t offset, bytes;
    pl_constant_tensor_t *tensor;                           /* counted */
} value_buffer_t;

typedef struct fetch {
    bool is_metric;
    int32_t value, weight;
    size_t bytes;
    bool is_pair;                                      /* a metric of value and weight */
    int64_t sums;                                      /* of a metric */
    int ready;                                         /* calls after which it is final */
} fetch_t;

struct pl_plan {
    pl_plan_t *next;
    pl_exec_op_t *exec_op;                                 /* the calls, in their order */
    int exec_ops;
    pl_device_span_t *span;                          /* [exec_ops]  [not measured yet] */
    int forward;                                     /* calls before the first backward */
    value_buffer_t *buffer;                          /* [values] */
    char **at;                                       /* [values] */
    int values;
    float *constant;                                      /* [values] set for constants */
    float scalar[PL_STEP_SCALARS];                        /* of the current replay */
    fetch_t *fetch;
    int fetches;
    /* Calls after which a bucket of the graph, and all before it, are final. */
    int bucket_after[PL_GRAD_BUCKETS_MAX];
    int buckets;
    int run, reported;              /* calls and buckets of a replay that waits */
    size_t arena, scratch;          /* bytes needed */
    pl_float64_plan_t *wide;        /* a plan in float64 has only this  [NULL: float32] */
    unsigned generation;            /* of the memory that at[] points to; 0: none yet */
};

/* ---- Compiling ---- */

typedef struct cpu_compiler {
    pl_cpu_t *cpu;
    pl_plan_t *plan;
    pl_graph_t graph;                                       /* a copy, rewritten */
    pl_lowered_t lowered;
    pl_fusion_t fusion;
    pl_memory_plan_t memory_plan;
} cpu_compiler_t;

static bool may_reuse_buffer(const pl_graph_t *g, int op, int32_t input, void *user)
{
    const pl_fusion_t *fusion = user;
    const pl_op_t *maker = &g->op[op];
    unsigned inputs = 0, overwritten = 0;
    if (pl_is_elementwise(g, maker))
        return pl_unit_in_place(fusion, g, op, input);
    for (int k = 0; k < maker->input_count; k++)
        inputs |= fusion->root[maker->input[k]] == fusion->root[input] ? 1u << k : 0;
    /* A kernel may overwrite these inputs: it writes each element after its last read. */
    switch (maker->code) {
    case PL_OP_softmax:
    case PL_OP_layer_norm:
    case PL_OP_batch_norm:
    case PL_OP_batch_norm_with: overwritten = 1; break;
    case PL_OP_softmax_grad:
    case PL_OP_layer_norm_grad:
    case PL_OP_batch_norm_grad: overwritten = 3; break;
    case PL_OP_cross_entropy_grad: overwritten = 2; break;
    default: break;
    }
    return inputs && !(inputs & ~overwritten);
}

/* ---- Calls ---- */

/* Prepares the call for element-wise operations and reshapes [from, to), or for one other
 * operation. */
static int prepare_unit(const cpu_compiler_t *c, const pl_builder_t *b, pl_exec_op_t *s,
                        int from, int to, pl_error_t *err)
{
    static const pl_prepare_t *const prepares[] = {pl_prepare_axes, pl_prepare_moves,
                                                   pl_prepare_products,
                                                   pl_prepare_reductions,
                                                   pl_prepare_rows, pl_prepare_steps};
    const pl_op_t *op = &c->lowered.graph.op[from];
    char where[128];
    s->op = *op;
    if (pl_is_elementwise(&c->lowered.graph, op))
        return pl_prepare_program(s, b, &c->fusion, from, to, err);
    pl_prepare_t prepare = op->code == PL_OP_apply ? pl_prepare_apply : NULL;
    for (size_t k = 0; !prepare && k < sizeof prepares / sizeof *prepares; k++)
        prepare = prepares[k][op->code];
    if (!prepare)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: the CPU accelerator has no such operator",
                       pl_op_where(op, where));
    int code = prepare(s, b, err);
    if (code != PL_OK && err)
        return pl_error_prefix(err, "%s", pl_op_where(op, where));
    for (int i = from + 1; i < to && code == PL_OK; i++)
        if (c->lowered.graph.op[i].code == PL_OP_concat)
            pl_attention_join(s, b, &c->lowered.graph.op[i]);
    return code;
}

static int calls_make(cpu_compiler_t *c, int *call_of_unit, pl_error_t *err)
{
    pl_plan_t *plan = c->plan;
    const pl_graph_t *g = &c->lowered.graph;
    const pl_builder_t b = {.lowered = &c->lowered,
                            .allocation = c->memory_plan.allocation,
                            .done = c->memory_plan.done,
                            .library = c->cpu->library,
                            .kernels = c->cpu->kernels,
                            .threads = c->cpu->thread_count};
    for (int from = 0, to; from < g->op_count; from = to) {
        const int unit = c->fusion.unit[from];
        for (to = from; to < g->op_count && c->fusion.unit[to] == unit; to++)
            ;
        call_of_unit[unit] = plan->exec_ops;
        if (pl_unit_is_nothing(g, c->memory_plan.done, from, to))
            continue;
        int first = from;                                   /* of backward  [to] */
        while (first < to && !g->op[first].gradient_of)
            first++;
        if (plan->forward == plan->exec_ops && first == to)
            plan->forward++;
        pl_exec_op_t *s = &plan->exec_op[plan->exec_ops++];
        int code = prepare_unit(c, &b, s, pl_unit_first(g, from, to), to, err);
        if (code != PL_OK)
            return code;
        if (s->scratch > plan->scratch)
            plan->scratch = s->scratch;
    }
    return PL_OK;
}

/* ---- Buffers ---- */

static int allocate_value(cpu_compiler_t *c, int32_t value, pl_error_t *err)
{
    const pl_allocation_t *allocation = &c->memory_plan.allocation[value];
    const pl_graph_t *g = &c->lowered.graph;
    const pl_value_t *v = &g->value[value], *root = &g->value[allocation->root];
    const int64_t end = root->offset + pl_elements(root->shape);
    value_buffer_t *buffer = &c->plan->buffer[value];
    buffer->bytes = (size_t)pl_elements(v->shape) * pl_dtype_size(v->dtype);
    if (allocation->kind == PL_ALLOCATION_ARENA) {
        buffer->in = IN_ARENA;
        buffer->offset = (size_t)allocation->offset;
    } else if (allocation->kind == PL_ALLOCATION_TARGET) {
        buffer->in = IN_REGION;
        buffer->index = (int)allocation->region;
        buffer->offset = (size_t)allocation->offset * sizeof(float);
    }
    if (allocation->kind != PL_ALLOCATION_EXTERNAL)
        return PL_OK;
    buffer->index = root->index;
    switch (root->source) {
    case PL_FROM_REGION:
        buffer->in = IN_REGION;
        buffer->offset = (size_t)root->offset * sizeof(float);
        if ((size_t)end <= c->cpu->region_count[root->index])
            return PL_OK;
        return pl_fail(err, PL_ESTATE,
                       "the graph refers to elements %lld to %lld of region %d, which "
                       "has %zu; allocate it before compiling",
                       (long long)root->offset, (long long)end, root->index,
                       c->cpu->region_count[root->index]);
    case PL_FROM_INPUT: buffer->in = IN_INPUT; return PL_OK;
    case PL_FROM_SCALAR: buffer->in = IN_SCALAR; return PL_OK;
    case PL_FROM_CONSTANT:
        buffer->in = IN_CONSTANT;
        buffer->index = allocation->root;
        c->plan->constant[buffer->index] = (float)root->constant;
        return PL_OK;
    case PL_FROM_TENSOR:
        buffer->in = IN_TENSOR;
        buffer->tensor = pl_object_ref(root->tensor);
        return PL_OK;
    default: return pl_fail(err, PL_EBUG, "a value of the graph has no memory");
    }
}

/* Number of calls after which a value is computed. */
static int calls_until(const cpu_compiler_t *c, const int *call_of_unit, int32_t value)
{
    const pl_value_t *v = &c->lowered.graph.value[c->fusion.root[value]];
    return v->source == PL_FROM_OP ? call_of_unit[c->fusion.unit[v->op]] + 1 : 0;
}

/* A bucket is final after the last assign to it.  If nothing is left to do for an assign,
 * its value is computed in place. */
static void schedule_bucket(cpu_compiler_t *c, const int *call_of_unit, int bucket)
{
    const pl_graph_t *g = &c->lowered.graph;
    const int64_t from = c->graph.bucket[bucket + 1], to = c->graph.bucket[bucket];
    const int region = c->graph.bucket_params ? PL_REGION_PARAMS : PL_REGION_GRADS;
    int after = bucket ? c->plan->bucket_after[bucket - 1] : 0;
    for (int i = 0; i < g->op_count; i++) {
        const pl_value_t *target = &g->value[g->op[i].input[0]];
        if (g->op[i].code != PL_OP_assign || target->source != PL_FROM_REGION
            || target->index != region || target->offset >= to
            || target->offset + pl_elements(target->shape) <= from)
            continue;
        const int ready = c->memory_plan.done[i]
                              ? calls_until(c, call_of_unit, g->op[i].input[1])
                              : call_of_unit[c->fusion.unit[i]] + 1;
        after = ready > after ? ready : after;
    }
    c->plan->bucket_after[bucket] = after;
}

static int fill_plan(cpu_compiler_t *c, pl_error_t *err)
{
    pl_plan_t *p = c->plan;
    const pl_graph_t *g = &c->lowered.graph;
    p->values = g->value_count;
    p->arena = c->memory_plan.arena;
    p->exec_op = pl_alloc_array((size_t)c->fusion.units, sizeof *p->exec_op);
    p->buffer = pl_alloc_array((size_t)p->values, sizeof *p->buffer);
    p->at = pl_alloc_array((size_t)p->values, sizeof *p->at);
    p->constant = pl_alloc_array((size_t)p->values, sizeof *p->constant);
    p->fetch = pl_alloc_array((size_t)g->fetch_count, sizeof *p->fetch);
    int *call_of_unit = pl_alloc_array((size_t)c->fusion.units, sizeof *call_of_unit);
    int code = PL_OK;
    if (!p->exec_op || !p->buffer || !p->at || !p->constant || !p->fetch || !call_of_unit)
        code = pl_no_memory(err);
    for (int32_t v = 0; v < p->values && code == PL_OK; v++)
        code = allocate_value(c, v, err);
    if (code == PL_OK)
        code = calls_make(c, call_of_unit, err);
    for (int i = 0; i < g->fetch_count && code == PL_OK; i++) {
        const pl_fetch_t *fetch = &g->fetch[i];
        const bool is_metric = fetch->kind == PL_FETCH_METRIC;
        const int value = calls_until(c, call_of_unit, fetch->value),
                  weight = is_metric ? calls_until(c, call_of_unit, fetch->weight) : 0;
        p->fetch[p->fetches++] = (fetch_t){.is_metric = is_metric,
                                           .value = fetch->value,
                                           .weight = fetch->weight,
                                           .bytes = p->buffer[fetch->value].bytes,
                                           .is_pair = fetch->metric < PL_METRIC_R2,
                                           .sums = fetch->sums,
                                           .ready = value > weight ? value : weight};
    }
    if (code == PL_OK)
        for (p->buckets = 0; p->buckets < c->graph.bucket_count; p->buckets++)
            schedule_bucket(c, call_of_unit, p->buckets);
    pl_free(call_of_unit);
    return code;
}

static int compile(cpu_compiler_t *c, const pl_graph_t *g, pl_error_t *err)
{
    pl_unit_limits_t limits = {.operands = PL_PROGRAM_OPERANDS,
                                            .lines = PL_PROGRAM_LINES,
                                            .dropouts = PL_PROGRAM_DROPOUTS,
                                            .totals = PL_PROGRAM_TOTALS};
    pl_memory_plan_rules_t rules = {.in_place = may_reuse_buffer, .user = &c->fusion};
    int code = pl_graph_copy(&c->graph, g, err);
    if (code == PL_OK)
        code = pl_emulate(&c->graph, err);
    if (code == PL_OK) {
        pl_rewrite(&c->graph);
        code = pl_lower(&c->lowered, &c->graph, err);
    }
    limits.view = c->lowered.view;
    if (code == PL_OK)
        code = pl_fuse(&c->fusion, &c->lowered.graph, &limits, err);
    if (code == PL_OK) {
        rules.time = c->fusion.unit, rules.inside = c->fusion.inside;
        code = pl_memory_plan_build(&c->memory_plan, &c->lowered.graph, &rules, err);
    }
    if (code == PL_OK)
        code = fill_plan(c, err);
    return code;
}

int pl_cpu_compile(void *self, const pl_graph_t *g, pl_plan_t **plan, pl_error_t *err)
{
    pl_cpu_t *cpu = self;
    int code = pl_graph_check(g, err);
    if (code != PL_OK)
        return code;
    cpu_compiler_t c = {.cpu = cpu, .plan = pl_alloc(sizeof *c.plan)};
    if (!c.plan)
        return pl_no_memory(err);
    if (pl_graph_is_float64(g))
        code = (c.plan->wide = pl_float64_plan_new(cpu, g, err)) ? PL_OK
                                                                 : PL_EUNSUPPORTED;
    else
        code = compile(&c, g, err);
    /* The device's memory grows now, so that a replay allocates nothing. */
    const char *arena = cpu->arena.data, *scratch = cpu->scratch.data;
    if (code == PL_OK)
        code = pl_buffer_reserve(&cpu->arena, c.plan->arena, err);
    if (code == PL_OK)
        code = pl_buffer_reserve(&cpu->scratch, c.plan->scratch, err);
    if (cpu->arena.data != arena || cpu->scratch.data != scratch) {
        cpu->generation++;
        cpu->waiting = NULL;
    }
    pl_memory_plan_release(&c.memory_plan);
    pl_fusion_release(&c.fusion);
    pl_lowered_release(&c.lowered);
    pl_graph_copy_release(&c.graph);
    c.plan->next = cpu->plans;
    cpu->plans = c.plan;
    if (code == PL_OK)
        *plan = c.plan;
    else
        pl_cpu_discard(cpu, c.plan);
    return code;
}

void pl_cpu_discard(void *self, pl_plan_t *plan)
{
    pl_cpu_t *cpu = self;
    if (!plan)
        return;
    pl_plan_t **next = &cpu->plans;
    while (*next != plan)
        next = &(*next)->next;
    *next = plan->next;
    if (cpu->waiting == plan)
        cpu->waiting = NULL;
    for (int i = 0; i < plan->exec_ops; i++)
        if (plan->exec_op[i].release)
            plan->exec_op[i].release(&plan->exec_op[i]);
        else
            pl_free(plan->exec_op[i].own);
    pl_float64_plan_free(plan->wide);
    for (int v = 0; v < plan->values && plan->buffer; v++)
        pl_object_unref(plan->buffer[v].tensor);
    pl_free(plan->exec_op);
    pl_free(plan->span);
    pl_free(plan->buffer);
    pl_free(plan->at);
    pl_free(plan->constant);
    pl_free(plan->fetch);
    pl_free(plan);
}

/* ---- Replaying ---- */

/* Sets the addresses of a replay's scalars and inputs, and after memory has moved those
 * that stay the same from replay to replay. */
static int resolve(const pl_cpu_t *cpu, pl_plan_t *plan, const pl_replay_t *replay,
                   pl_error_t *err)
{
    const bool moved = plan->generation != cpu->generation;
    for (int32_t v = 0; moved && v < plan->values; v++) {
        const value_buffer_t *p = &plan->buffer[v];
        if (p->in == IN_REGION
            && p->offset + p->bytes > cpu->region_count[p->index] * sizeof(float))
            return pl_fail(
                err, PL_ESTATE,
                "region %d is now too small for this plan; compile the plan again",
                p->index);
        if (p->in == IN_ARENA)
            plan->at[v] = cpu->arena.data + p->offset;
        if (p->in == IN_REGION)
            plan->at[v] = cpu->region[p->index].data + p->offset;
        if (p->in == IN_CONSTANT)
            plan->at[v] = (char *)&plan->constant[p->index];
        if (p->in == IN_TENSOR)
            plan->at[v] = (char *)p->tensor->data;
    }
    plan->generation = cpu->generation;
    for (int k = 0; k < PL_STEP_SCALARS; k++)
        plan->scalar[k] = (float)replay->scalar[k];
    for (int32_t v = 0; v < plan->values; v++) {
        const value_buffer_t *p = &plan->buffer[v];
        if (p->in == IN_SCALAR)
            plan->at[v] = (char *)&plan->scalar[p->index];
        if (p->in != IN_INPUT)
            continue;
        if (!replay->input[p->index])
            return pl_fail(err, PL_EINVAL, "the replay has no data for batch field %d",
                           p->index);
        plan->at[v] = (char *)replay->input[p->index];
    }
    return PL_OK;
}

/* Stores the fetched values that the first `calls` calls have computed. */
static void store_fetches(const pl_plan_t *plan, pl_replay_t *replay, int calls)
{
    int outputs = 0;
    double *next = replay->metrics;
    for (int i = 0; i < plan->fetches; i++) {
        const fetch_t *f = &plan->fetch[i];
        double *metric = f->is_metric ? next : NULL;
        void *output = f->is_metric ? NULL : replay->output[outputs];
        const float *value = (const float *)plan->at[f->value];
        next += next && f->is_metric ? f->sums : 0;
        outputs += !f->is_metric;
        if (f->ready > calls)
            continue;
        if (output)
            memcpy(output, value, f->bytes);
        if (metric && f->is_pair) {
            metric[0] = (double)*value;
            metric[1] = (double)*(const float *)plan->at[f->weight];
            continue;
        }
        for (int64_t k = 0; metric && k < f->sums; k++)
            metric[k] = (double)value[k];
    }
}

static double seconds_since(int64_t began)
{
    return (double)(pl_now() - began) / PL_SECOND;
}

/* Runs the calls from *next on and reports buckets that are final; the end of the replay
 * reports the last ones.  Returns PL_OK, an error or PL_EXEC_…. */
static int calls_run(pl_plan_t *plan, const pl_exec_context_t *frame, pl_replay_t *replay,
                     int *next, pl_error_t *err)
{
    const int64_t began = pl_now();
    int reported = replay->continues ? plan->reported : 0, i = *next, code = PL_OK;
    double since = 0;
    if (replay->measured && !plan->span)
        plan->span = pl_alloc_array((size_t)plan->exec_ops, sizeof *plan->span);
    for (; i < plan->exec_ops && code == PL_OK; i++) {
        const pl_op_t *op = &plan->exec_op[i].op;
        if (i == plan->forward)
            replay->forward = seconds_since(began);
        code = plan->exec_op[i].run(&plan->exec_op[i], frame, err);
        const double now = replay->measured ? seconds_since(began) : 0;
        if (replay->measured && plan->span)
            plan->span[i] = (pl_device_span_t){.what = pl_op_name(op),
                                               .path = op->path,
                                               .begin = since,
                                               .end = now};
        since = now;
        const int before = reported;
        while (code == PL_OK && reported < plan->buckets
               && plan->bucket_after[reported] <= i + 1)
            reported++;
        if (reported > before && i + 1 < plan->exec_ops && replay->ready)
            replay->ready(replay, reported, NULL);
    }
    if (code == PL_EXEC_YIELD && i <= plan->forward)
        replay->forward = seconds_since(began);
    if (replay->measured && plan->span)
        replay->measured(replay, plan->span + *next, i - *next);
    plan->reported = reported;
    *next = i;
    return code;
}

static int plan_run(pl_cpu_t *cpu, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err)
{
    if (plan->wide)
        return pl_float64_plan_run(cpu, plan->wide, replay, err);
    int code = resolve(cpu, plan, replay, err);
    if (code != PL_OK)
        return code;
    const pl_exec_context_t frame = {.at = plan->at,
                                     .scratch = cpu->scratch.data,
                                     .kernels = cpu->kernels,
                                     .pool = cpu->pool,
                                     .threads = cpu->thread_count,
                                     .replay = replay};
    int calls = replay->continues ? plan->run : 0;
    code = calls_run(plan, &frame, replay, &calls, err);
    replay->skipped = code == PL_EXEC_NON_FINITE;
    plan->run = calls;
    if (code == PL_EXEC_YIELD)
        replay->collective = 1 + plan->exec_op[calls - 1].op.attr.axis;
    else if (code >= 0)
        store_fetches(plan, replay, code > 0 ? calls - 1 : calls);
    return code < 0 ? code : PL_OK;
}

/* done() reports errors of the computation, such as an index out of range. */
int pl_cpu_replay(void *self, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err)
{
    (void)err;
    pl_cpu_t *cpu = self;
    pl_error_t failure = {0};
    int code = PL_OK;
    cpu->skipping &= !replay->restart;
    replay->skipped = replay->fail_fast && cpu->skipping;
    if (!replay->skipped && replay->continues && cpu->waiting != plan)
        code =
            pl_fail(&failure, PL_ESTATE,
                    "the plan does not wait at a collective: another plan was replayed "
                    "or compiled since");
    else if (!replay->skipped)
        code = plan_run(cpu, plan, replay, &failure);
    cpu->waiting = replay->collective ? plan : NULL;
    if (replay->fail_fast && (code != PL_OK || replay->skipped))
        cpu->skipping = true;
    replay->done(replay, code == PL_OK ? NULL : &failure);
    return PL_OK;
}
