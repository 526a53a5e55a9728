/* describe.c - the description of a step, besides operators: scopes, inputs, parameters,
 * outputs, metrics and the loss */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "tensor/model.h"
#include "tensor/operators.h"

/* ---- Scopes ---- */

void pl_scope(pl_graph_t *g, const char *format, ...)
{
    if (g->error.code)
        return;
    size_t used = strlen(g->scope), capacity = sizeof g->scope - used;
    va_list args;
    va_start(args, format);
    int length = pl_text_print(g->scope + used, capacity, format, args);
    va_end(args);
    if (length < 0 || (size_t)length + 2 > capacity
        || g->scope_depth == sizeof g->scope_mark / sizeof *g->scope_mark) {
        g->scope[used] = '\0';
        pl_op_fail(
            g, "scopes can be at most %d deep, and their path at most %d characters long",
            (int)(sizeof g->scope_mark / sizeof *g->scope_mark),
            (int)sizeof g->scope - 2);
        return;
    }
    if (!pl_utf8_ok(g->scope + used, (size_t)length)) {
        g->scope[used] = '\0';
        pl_op_fail(g, "the name of a scope is not UTF-8");
        return;
    }
    strcat(g->scope, ".");
    g->scope_mark[g->scope_depth++] = (int)used;
}

void pl_scope_end(pl_graph_t *g)
{
    if (g->error.code)
        return;
    if (g->scope_depth == 0)
        pl_graph_fail(g, PL_ESTATE, "pl_scope_end() without pl_scope()");
    else
        g->scope[g->scope_mark[--g->scope_depth]] = '\0';
}

void pl_checkpoint(pl_graph_t *g)
{
    if (g->error.code || g->checkpoint_depth++)
        return;
    g->checkpoints++;
    pl_path(g, g->checkpoint_path);
}

void pl_checkpoint_end(pl_graph_t *g)
{
    if (g->error.code)
        return;
    if (g->checkpoint_depth == 0)
        pl_graph_fail(g, PL_ESTATE, "pl_checkpoint_end() without pl_checkpoint()");
    else
        g->checkpoint_depth--;
}

/* ---- Inputs, parameters and state ---- */

/* Whether a name is given and the graph is valid; else the graph has failed. */
static bool has_name(pl_graph_t *g, const char *name, const char *what)
{
    if (!name && !g->error.code)
        pl_op_fail(g, "%s needs a name, and NULL was given", what);
    return !g->error.code;
}

static int field_find(const pl_graph_t *g, const char *name)
{
    for (int i = 0; i < g->field_count; i++)
        if (!strcmp(g->field[i].name, name))
            return i;
    return -1;
}

bool pl_has_input(pl_graph_t *g, const char *name)
{
    return name && field_find(g, name) >= 0;
}

pl_node_t pl_input(pl_graph_t *g, const char *name)
{
    if (!has_name(g, name, "an input"))
        return PL_NO_NODE;
    int index = field_find(g, name);
    if (index < 0) {
        char names[256] = "no fields";
        int at = 0;
        for (int i = 0; i < g->field_count && at < (int)sizeof names; i++)
            at += snprintf(names + at, sizeof names - (size_t)at, "%s\"%s\"",
                           i ? ", " : "", g->field[i].name);
        return pl_graph_fail(g, PL_ENOTFOUND, "the batch has no field \"%s\"; it has %s",
                             name, names);
    }
    for (int32_t i = 0; i < g->value_count; i++)
        if (g->value[i].source == PL_FROM_INPUT && g->value[i].index == index)
            return pl_cast_field(g, pl_node_of(i));
    const pl_field_t *field = &g->field[index];
    if (field->shape.rank < 0 || field->shape.rank >= PL_DIMS)
        return pl_graph_fail(
            g, PL_EINVAL,
            "field \"%s\" has %d axes; at most %d besides the batch axis are possible",
            name, field->shape.rank, PL_DIMS - 1);
    pl_value_t value = {.source = PL_FROM_INPUT,
                        .dtype = field->dtype,
                        .index = index,
                        .op = -1};
    value.shape.rank = field->shape.rank + 1;
    value.shape.dim[0] = g->batch_size;
    memcpy(value.shape.dim + 1, field->shape.dim,
           (size_t)field->shape.rank * sizeof *value.shape.dim);
    return pl_cast_field(g, pl_value_add(g, &value));
}

/* The tensor of the model at scope + name; created if it does not exist. */
static const pl_tensor_info_t *tensor_get(pl_graph_t *g, const pl_tensor_info_t *wanted,
                                          const char *name)
{
    pl_tensor_info_t full = *wanted;
    if (!g->model) {
        pl_op_fail(g, "%s: a graph without a model has no parameters or state", name);
        return NULL;
    }
    if (snprintf(full.name, sizeof full.name, "%s%s", g->scope, name)
        >= (int)sizeof full.name) {
        pl_op_fail(g, "%s: the path of a parameter can have at most %d characters", name,
                   (int)sizeof full.name - 1);
        return NULL;
    }
    const pl_tensor_info_t *there = pl_model_find(g->model, full.name);
    if (!there) {
        pl_error_t why;
        there = pl_model_add(g->model, &full, &why);
        if (!there)
            pl_graph_fail(g, why.code, "%s", why.text);
        return there;
    }
    if (there->region != wanted->region)
        pl_op_fail(
            g,
            "%s is a parameter in one place and state in another; give one of them "
            "its own name",
            full.name);
    else if (!pl_same_shape(there->shape, wanted->shape))
        pl_op_fail(g, "%s is %s, requested as %s: one path is one tensor with one shape",
                   full.name, PL_TEXT_OF(there->shape), PL_TEXT_OF(wanted->shape));
    return g->error.code ? NULL : there;
}

pl_node_t pl_param(pl_graph_t *g, const char *name, pl_shape_t shape, pl_init_rule_t init)
{
    if (!has_name(g, name, "a parameter"))
        return PL_NO_NODE;
    pl_tensor_info_t wanted = {.shape = shape, .region = PL_REGION_PARAMS, .init = init};
    const pl_tensor_info_t *tensor = tensor_get(g, &wanted, name);
    return tensor ? pl_region_value(g, tensor->region, tensor->offset, shape, true)
                  : PL_NO_NODE;
}

pl_node_t pl_state(pl_graph_t *g, const char *name, pl_shape_t shape, pl_init_rule_t init,
                   pl_agree_t agree)
{
    if (!has_name(g, name, "state"))
        return PL_NO_NODE;
    pl_tensor_info_t wanted = {.shape = shape,
                               .region = PL_REGION_STATE,
                               .init = init,
                               .agree = agree};
    const pl_tensor_info_t *tensor = tensor_get(g, &wanted, name);
    return tensor ? pl_region_value(g, tensor->region, tensor->offset, shape, false)
                  : PL_NO_NODE;
}

/* ---- Outputs and metrics ---- */

static void fetch_add(pl_graph_t *g, const pl_fetch_t *fetch, const char *name, int at)
{
    for (int i = 0; i < g->fetch_count; i++)
        if (!strcmp(g->fetch[i].name, name)) {
            pl_graph_fail(
                g, PL_EEXIST,
                "two outputs or metrics are named \"%s\"; give one of them another name",
                name);
            return;
        }
    if (!pl_utf8_ok(name, strlen(name)) || strpbrk(name, "\t\n")) {
        pl_op_fail(g,
                   "the name of an output or a metric is not UTF-8 or has a line break");
        return;
    }
    if (strlen(name) >= sizeof fetch->name) {
        pl_op_fail(g, "the name \"%s\" is too long: at most %d characters are possible",
                   name, (int)sizeof fetch->name - 1);
        return;
    }
    if (PL_GROW(g->fetch, g->fetch_count, g->fetch_capacity) != PL_OK) {
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
        return;
    }
    memmove(g->fetch + at + 1, g->fetch + at,
            (size_t)(g->fetch_count - at) * sizeof *g->fetch);
    g->fetch[at] = *fetch;
    strcpy(g->fetch[at].name, name);
    g->fetch_count++;
}

void pl_output(pl_graph_t *g, const char *name, pl_node_t x)
{
    pl_shape_of(g, x);
    int outputs = 0;
    for (int i = 0; i < g->fetch_count; i++)
        outputs += g->fetch[i].kind == PL_FETCH_OUTPUT;
    if (!has_name(g, name, "an output"))
        return;
    if (outputs == PL_FIELDS)
        pl_op_fail(g, "output \"%s\" is one too many: a step has at most %d outputs",
                   name, PL_FIELDS);
    else
        fetch_add(g, &(pl_fetch_t){.kind = PL_FETCH_OUTPUT, .value = x.id, .weight = -1},
                  name, g->fetch_count);
}

static void metric_add(pl_graph_t *g, const char *name, const pl_metric_t *metric,
                       int when, int at)
{
    pl_shape_t sum = pl_shape_of(g, metric->sum), weight = pl_shape_of(g, metric->weight);
    if (!has_name(g, name, "a metric"))
        return;
    if (metric->kind < PL_METRIC_R2 && (sum.rank || weight.rank)) {
        pl_op_fail(g,
                   "%s takes a sum [] and a weight [], got %s and %s; pl_sum() over all "
                   "axes makes a scalar",
                   name, PL_TEXT_OF(sum), PL_TEXT_OF(weight));
        return;
    }
    const pl_custom_metric_t *custom = NULL;
    if (metric->kind == PL_METRIC_CUSTOM && !g->error.code) {
        const pl_value_t *which = &g->value[metric->weight.id];
        if (which->source != PL_FROM_CONSTANT || !(which->constant >= 0)
            || which->constant >= g->customs) {
            pl_op_fail(g, "the metric \"%s\" is not from pl_custom_metric()", name);
            return;
        }
        custom = &g->custom[(int)which->constant];
    }
    if (custom && g->stage == PL_TRAIN && !custom->only_sums)
        return;
    const bool has_parameter = metric->kind >= PL_METRIC_R2
                               && metric->weight.id != metric->sum.id
                               && !g->error.code
                               && g->value[metric->weight.id].source == PL_FROM_CONSTANT;
    pl_fetch_t fetch = {.kind = PL_FETCH_METRIC,
                        .value = metric->sum.id,
                        .weight = has_parameter ? metric->sum.id : metric->weight.id,
                        .parameter = custom ? custom->parameter
                                     : has_parameter
                                         ? g->value[metric->weight.id].constant
                                         : 0,
                        .custom = custom ? (int)(custom - g->custom) : 0,
                        .metric = metric->kind,
                        .average = metric->average,
                        .sums = metric->kind >= PL_METRIC_R2 ? pl_elements(sum) : 2,
                        .columns = sum.rank ? sum.dim[sum.rank - 1] : 1,
                        .when = when};
    int64_t sums = fetch.sums;
    for (int i = 0; i < g->fetch_count; i++)
        sums += g->fetch[i].sums;
    if (sums > PL_SUMS_MAX)
        pl_op_fail(g,
                   "with \"%s\" the step has %lld sums to log; at most %d are possible",
                   name, (long long)sums, PL_SUMS_MAX);
    else
        fetch_add(g, &fetch, name, at);
}

void pl_loss(pl_graph_t *g, pl_loss_t loss)
{
    if (loss.kind != PL_METRIC_MEAN)
        pl_op_fail(
            g,
            "the loss cannot be a metric of this kind; it must be a sum and its weight");
    metric_add(g, "loss", &loss, PL_ON_EPOCH | PL_ON_STEP, 0);
}

void pl_log(pl_graph_t *g, const char *name, pl_metric_t metric, pl_log_when_t when)
{
    metric_add(g, name, &metric, when, g->fetch_count);
}
