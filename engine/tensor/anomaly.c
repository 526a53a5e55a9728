/* anomaly.c - trainer.detect_anomaly: guards on the results of every operation
 *
 * Behind each operation a guard on each of its floating-point results ends the replay
 * with an error that names the operation.  Operations behind a guard stay behind it,
 * so the first error is the first cause.  Where the loss is scaled, an overflow of
 * gradients lowers the factor and is no fault of the model: guards of backward count
 * only once the factor is at its lowest. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tensor/graph.h"
#include "tensor/model.h"

int pl_graph_detect_anomaly(pl_graph_t *g, pl_error_t *err)
{
    const size_t capacity = (size_t)g->op_count * (1 + PL_OP_OUTPUTS);
    pl_op_t *op = pl_alloc_array(capacity, sizeof *op);
    bool backward = false;
    int count = 0;
    if (!op)
        return pl_no_memory(err);
    for (int i = 0; i < g->op_count; i++) {
        const pl_op_t *own = &g->op[i];
        /* Backward begins with the assignment of the loss to the gradients' region. */
        const pl_value_t *target = &g->value[own->input[0]];
        backward = backward
                   || (own->code == PL_OP_assign && target->source == PL_FROM_REGION
                       && target->index == PL_REGION_GRADS);
        for (int k = 0; k < own->output_count; k++)
            g->value[own->output[k]].op = count;
        op[count++] = *own;
        for (int k = 0; k < own->output_count && own->code != PL_OP_reshape; k++) {
            if (!pl_is_float(g->value[own->output[k]].dtype))
                continue;
            pl_op_t *guard = &op[count++];
            *guard = (pl_op_t){.code = PL_OP_guard,
                               .input_count = 1,
                               .input = {own->output[k]},
                               .attr = {.watches = own->gradient_of ? own->gradient_of
                                                                    : pl_op_name(own),
                                        .backward = backward}};
            memcpy(guard->path, own->path, sizeof guard->path);
            if (!backward || g->stage != PL_TRAIN || !g->model || !g->model->scaling)
                continue;
            guard->input[guard->input_count++] =
                pl_region_view(g, PL_REGION_SCALING, PL_SCALING_FACTOR, pl_shape(0)).id;
            guard->attr.a = pl_scaling_lowest(g->model->scaling);
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
                         : "check the labels of the data, module.classes, and the "
                           "width of the last layer");
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
