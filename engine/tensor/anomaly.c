/* anomaly.c - a graph that looks at what each operation gives: trainer.detect_anomaly
 *
 * Behind each operation stands a guard on each of its floating-point results, which ends
 * the replay with an error that names the operation.  A guard keeps everything behind it
 * there, so the first that is told is the first there was.  Where the loss is scaled an
 * overflow of gradients is what lowers the factor, and no fault of the model: backward is
 * looked at only once the factor is at its lowest. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tensor/graph.h"
#include "tensor/model.h"

static bool is_watched(const pl_graph_t *g, const pl_op_t *op, int k)
{
    return op->code != PL_OP_reshape && pl_is_float(g->value[op->output[k]].dtype);
}

/* Backward begins with what the loss came to, for the optimizer. */
static bool begins_backward(const pl_graph_t *g, const pl_op_t *op)
{
    const pl_value_t *target = &g->value[op->input[0]];
    return op->code == PL_OP_assign && target->source == PL_FROM_REGION
           && target->index == PL_REGION_GRADS;
}

static pl_op_t guard_of(const pl_op_t *op, int k, bool backward)
{
    pl_op_t guard = {.code = PL_OP_guard,
                     .input_count = 1,
                     .input = {op->output[k]},
                     .attr = {.watches = op->gradient_of ? op->gradient_of
                                                         : pl_op_name(op),
                              .backward = backward}};
    memcpy(guard.path, op->path, sizeof guard.path);
    return guard;
}

static void look_at_lowest(pl_graph_t *g, pl_op_t *guard)
{
    const pl_node_t factor = pl_region_view(g, PL_REGION_SCALING, PL_SCALING_FACTOR,
                                            pl_shape(0));
    guard->input[guard->input_count++] = factor.id;
    guard->attr.a = pl_scaling_lowest(g->model->scaling);
}

int pl_graph_detect_anomaly(pl_graph_t *g, pl_error_t *err)
{
    const size_t capacity = (size_t)g->op_count * (1 + PL_OP_OUTPUTS);
    const bool scales = g->stage == PL_TRAIN && g->model && g->model->scaling;
    pl_op_t *op = pl_alloc_array(capacity, sizeof *op);
    bool backward = false;
    int count = 0;
    if (!op)
        return pl_no_memory(err);
    for (int i = 0; i < g->op_count; i++) {
        const pl_op_t *own = &g->op[i];
        backward = backward || begins_backward(g, own);
        for (int k = 0; k < own->output_count; k++)
            g->value[own->output[k]].op = count;
        op[count++] = *own;
        for (int k = 0; k < own->output_count; k++) {
            if (!is_watched(g, own, k))
                continue;
            op[count] = guard_of(own, k, backward);
            if (backward && scales)
                look_at_lowest(g, &op[count]);
            count++;
        }
    }
    pl_free(g->op);
    g->op = op;
    g->op_count = count;
    g->op_capacity = (int)capacity;
    return pl_graph_check(g, err);
}

int pl_index_fail(const pl_op_t *op, int64_t index, int64_t below, pl_error_t *err)
{
    const bool table = op->code == PL_OP_embedding || op->code == PL_OP_embedding_grad;
    char where[128];
    return pl_fail(err, PL_EINVAL, "%s got index %lld, outside [0, %lld): %s",
                   pl_op_where(op, where), (long long)index, (long long)below,
                   table ? "check the data, and how many rows the module gives the table"
                         : "check the labels of the data, and module.classes");
}

int pl_guard_fail(const pl_op_t *guard, uint64_t step, pl_error_t *err)
{
    char at[32] = "";
    if (step)
        snprintf(at, sizeof at, "step %llu: ", (unsigned long long)step);
    return pl_fail(err, PL_ENAN,
                   "%s%s%s%s, %s, is the first operator with a result that is not finite "
                   "(trainer.detect_anomaly)",
                   at, guard->path, *guard->path ? ": " : "", guard->attr.watches,
                   guard->attr.backward ? "backward" : "forward");
}
