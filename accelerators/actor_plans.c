/* actor_plans.c - plans of the accelerator actor: compiles them, at once or in the
 * background, describes and discards them */
#include <stdio.h>

#include "accelerators/actor_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/log.h"
#include "runtime/payload.h"
#include "tensor/operators.h"

static const int64_t LINES_APART = 2 * PL_SECOND;
enum { BEAT_MS = 100 };

/* A compilation in the background. */
typedef struct background_compile {
    pl_compiling_t compiling;         /* first: done() casts it to background_compile_t */
    struct background_compile *next;
    pl_device_t *device;
    pl_call_t *call;
    pl_compiled_t compiled;
    unsigned formats;                             /* of the graph: 1 << pl_dtype_t each */
    int64_t logged;                               /* pl_now() of the last log line */
} background_compile_t;

static unsigned formats_of(const pl_graph_t *g)
{
    unsigned formats = 0;
    for (int32_t v = 0; v < g->value_count; v++)
        formats |= 1u << g->value[v].dtype;
    return formats;
}

/* Adds a plan and answers its call; warns once of each emulated format. */
static int compiled_add(pl_device_t *device, pl_call_t *call,
                        const pl_compiled_t *compiled, unsigned formats, pl_error_t *err)
{
    const unsigned emulated = formats & device->info.emulated & ~device->warned;
    if (PL_GROW(device->plan, device->plan_count, device->plan_capacity) != PL_OK)
        return pl_no_memory(err);
    device->warned |= emulated;
    for (unsigned format = 0; format < 32; format++)
        if (emulated & 1u << format)
            pl_log_line(PL_LOG_WARNING, pl_actor_rank(device), pl_actor_name(device),
                        "%s is emulated on this device: results are correct, but steps "
                        "take longer than with float32",
                        pl_dtype_name((pl_dtype_t)format));
    device->plan[device->plan_count] = *compiled;
    return pl_reply_compile(call, &(pl_compile_reply_t){
                                      .plan = (uint32_t)device->plan_count++});
}

/* ---- in the background ---- */

static void compile_progress(pl_compiling_t *compiling, int done, int all)
{
    background_compile_t *c = (background_compile_t *)compiling;
    const int64_t now = pl_now();
    pl_progress_compile(c->call, &(pl_compile_progress_t){.done = (uint32_t)done,
                                                          .all = (uint32_t)all});
    if (now - c->logged < LINES_APART)
        return;
    c->logged = now;
    char batches[40] = "";
    if (c->compiled.samples)
        snprintf(batches, sizeof batches, ", batches of %lld",
                 (long long)c->compiled.samples);
    if (pl_actor_rank(c->device) == 0)
        pl_log_line(PL_LOG_INFO, 0, pl_actor_name(c->device),
                    "compiling plan %s%s: %d of %d pieces", c->compiled.name, batches,
                    done, all);
}

static void compile_free(background_compile_t *c)
{
    background_compile_t **next = &c->device->compiles;
    while (*next != c)
        next = &(*next)->next;
    *next = c->next;
    pl_free(c);
}

static void compile_done(pl_compiling_t *compiling, const pl_error_t *failure)
{
    background_compile_t *c = (background_compile_t *)compiling;
    pl_error_t err = failure ? *failure : (pl_error_t){0};
    c->compiled.plan = compiling->plan;
    if (failure)
        pl_error_prefix(&err, "plan %s", c->compiled.name);
    else
        compiled_add(c->device, c->call, &c->compiled, c->formats, &err);
    if (err.code != PL_OK)
        pl_call_fail(c->call, &err);
    pl_device_t *device = c->device;
    compile_free(c);
    if (device->ending && pl_device_is_idle(device))
        pl_actor_end(device, NULL);
}

/* A compiler may take seconds for a kernel, and not every compiler can be interrupted. */
static void compiles_wait(void *self)
{
    pl_device_t *device = self;
    if (!device->compiles)
        return;
    pl_progress_start(device->life,
                      &(pl_start_progress_t){.state = PL_START_STATE_ENDING});
    if (!device->reported && pl_now() - device->ending_since > LINES_APART) {
        device->reported = true;
        if (pl_actor_rank(device) == 0)
            pl_log_line(PL_LOG_INFO, 0, pl_actor_name(device),
                        "waiting until the compiler has ended a kernel");
    }
    pl_after(device, BEAT_MS, compiles_wait, NULL);
}

void pl_device_compiles_stop(pl_device_t *device)
{
    if (!device->compiles || !device->ops->compile_stop || device->ending)
        return;
    device->ending_since = pl_now();
    device->ops->compile_stop(device->component.self);
    compiles_wait(device);
}

static int compile_later(pl_device_t *device, pl_call_t *call, const pl_graph_t *g,
                         const pl_compiled_t *compiled, pl_error_t *err)
{
    background_compile_t *c = pl_alloc(sizeof *c);
    if (!c)
        return pl_no_memory(err);
    *c = (background_compile_t){.compiling = {.progress = compile_progress,
                                              .done = compile_done},
                                .next = device->compiles,
                                .device = device,
                                .call = call,
                                .compiled = *compiled,
                                .formats = formats_of(g),
                                .logged = pl_now()};
    device->compiles = c;
    int code = device->ops->compile_later(device->component.self, g, &c->compiling, err);
    if (code == PL_OK)
        return PL_OK;
    compile_free(c);
    return pl_error_prefix(err, "plan %s", compiled->name);
}

int pl_device_compile(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_device_t *device = self;
    const pl_graph_t *g = ((const pl_graph_holder_t *)body->compile.graph)->graph;
    pl_compiled_t compiled = {.bucket_count = g->bucket_count,
                              .samples = g->field_count ? g->batch_size : 0};
    snprintf(compiled.name, sizeof compiled.name, "%s", body->compile.name);
    for (int k = 0; k < g->field_count; k++)
        compiled.sample[k] = (size_t)pl_elements(g->field[k].shape)
                             * pl_dtype_size(g->field[k].dtype);
    for (int k = 0; k < g->fetch_count; k++) {
        const pl_value_t *v = &g->value[g->fetch[k].value];
        if (g->fetch[k].kind == PL_FETCH_METRIC)
            compiled.sums += (size_t)g->fetch[k].sums;
        else if (compiled.output_count++ < PL_FIELDS)
            compiled.output[compiled.output_count - 1] = (size_t)pl_elements(v->shape)
                                                         / (size_t)g->batch_size
                                                         * pl_dtype_size(v->dtype);
    }
    if (compiled.sums > PL_SUMS_MAX || compiled.output_count > PL_FIELDS)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "a plan with %zu sums of metrics and %d outputs: at most %d and "
                       "%d are possible",
                       compiled.sums, compiled.output_count, PL_SUMS_MAX, PL_FIELDS);
    if (device->ops->compile_later)
        return compile_later(device, call, g, &compiled, err);
    int code = device->ops->compile(device->component.self, g, &compiled.plan, err);
    if (code != PL_OK)
        return pl_error_prefix(err, "plan %s", body->compile.name);
    return compiled_add(device, call, &compiled, formats_of(g), err);
}

/* The caller discards a plan after the replies of its replays. */
int pl_device_discard(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_device_t *device = self;
    const uint32_t number = body->discard_plan.plan;
    if (number >= (uint32_t)device->plan_count || !device->plan[number].plan)
        return pl_fail(err, PL_EINVAL, "there is no plan %u", number);
    device->ops->discard(device->component.self, device->plan[number].plan);
    device->plan[number].plan = NULL;
    return pl_reply_discard_plan(call, &(pl_discard_plan_reply_t){0});
}

/* ---- descriptions ---- */

int pl_device_describe(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)body;
    pl_device_t *device = self;
    json_t *plans = json_array();
    for (int k = 0; k < device->plan_count; k++) {
        const pl_compiled_t *compiled = &device->plan[k];
        pl_plan_facts_t facts = {.kinds = 0};
        if (!compiled->plan)
            continue;
        if (device->ops->describe)
            device->ops->describe(device->component.self, compiled->plan, &facts);
        json_t *kinds = json_array();
        int launches = 0;
        double bytes = 0;
        for (int i = 0; i < facts.kinds; i++) {
            kinds = pl_json_append(kinds,
                                   json_pack("{s:s,s:i,s:I}", "name", facts.kind[i].name,
                                             "launches", facts.kind[i].launches, "bytes",
                                             (json_int_t)facts.kind[i].bytes));
            launches += facts.kind[i].launches;
            bytes += facts.kind[i].bytes;
        }
        plans = pl_json_append(
            plans,
            json_pack("{s:s,s:I,s:i,s:I,s:I,s:i,s:i,s:i,s:f,s:o}", "name", compiled->name,
                      "samples", (json_int_t)compiled->samples, "launches", launches,
                      "bytes", (json_int_t)bytes, "arena", (json_int_t)facts.arena,
                      "pieces", facts.pieces, "from_cache", facts.from_cache, "stored",
                      facts.stored, "seconds", facts.seconds, "kinds", kinds));
    }
    char *text = plans ? pl_json_write(plans, PL_JSON_COMPACT) : NULL;
    const char *cache = device->ops->cache ? device->ops->cache(device->component.self)
                                           : NULL;
    json_decref(plans);
    if (!text)
        return pl_no_memory(err);
    const int code = pl_reply_describe_plans(
        call, &(pl_describe_plans_reply_t){.plans = text, .cache = cache ? cache : ""});
    pl_text_free(text);
    return code;
}

void pl_device_compiles_drop(pl_device_t *device)
{
    while (device->compiles)
        compile_free(device->compiles);
}
