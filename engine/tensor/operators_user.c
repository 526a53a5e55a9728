/* operators_user.c - user operators, from the registry
 *
 * The results of their functions are checked here, so that a mistake in them is an error
 * with the operator's name and not a crash of a reader of the graph. */
#include <string.h>

#include "base/error.h"
#include "tensor/operators.h"

const char *pl_op_name(const pl_op_t *op)
{
    return op->code == PL_OP_apply ? op->attr.table->name : pl_operators[op->code].name;
}

const pl_kernel_t *pl_op_kernel(const pl_op_t *op, const char *accelerator,
                                pl_error_t *err)
{
    const pl_operator_ops_t *table = op->attr.table;
    const pl_kernel_t *kernel = table->kernels;
    for (; kernel && kernel->accelerator; kernel++)
        if (!strcmp(kernel->accelerator, accelerator))
            return kernel;
    pl_fail(
        err, PL_EUNSUPPORTED,
        "%s%soperator \"%s\" has no kernel for the accelerator \"%s\": add one to its "
        "table",
        op->path, *op->path ? ": " : "", table->name, accelerator);
    return NULL;
}

pl_node_t pl_apply(pl_graph_t *g, const char *name, const pl_node_t *inputs, int count,
                   const void *self)
{
    pl_error_t why = {0};
    if (g->error.code)
        return PL_NO_NODE;
    pl_attr_t attr = {.table = pl_component_find("operator", name, &why)};
    if (!attr.table)
        return pl_graph_fail(g, why.code, "%s", why.text);
    if (!inputs || count != attr.table->inputs)
        return pl_graph_fail(g, PL_EINVAL, "%s takes %d inputs, got %d", name,
                             attr.table->inputs, count);
    if (self)
        memcpy(attr.self.byte, self, attr.table->size);
    return pl_emit(g, PL_OP_apply, inputs, count, &attr, NULL);
}

static int shape_apply(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_operator_ops_t *table = op->attr.table;
    pl_shape_t input[PL_OP_INPUTS];
    pl_error_t why = {0};
    if (pl_want_float(g, op, op->input_count) != PL_OK)
        return PL_EINVAL;
    for (int k = 0; k < op->input_count; k++) {
        input[k] = pl_input_shape(g, op, k);
        if (!table->shape && !pl_same_shape(input[k], input[0]))
            return pl_op_fail(g, "%s takes inputs of one shape, got %s and %s",
                              pl_op_name(op), PL_TEXT_OF(input[0]), PL_TEXT_OF(input[k]));
    }
    if (!table->shape)
        return PL_OK;
    int code = table->shape(op->attr.self.byte, input, &out->shape, &why);
    return code == PL_OK ? code : pl_op_fail(g, "%s: %s", table->name, why.text);
}

static void gradient_apply(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    const pl_operator_ops_t *table = op->attr.table;
    pl_use_t use = {.self = op->attr.self.byte, .output = pl_node_of(op->output[0])};
    for (int k = 0; k < op->input_count; k++)
        use.input[k] = pl_node_of(op->input[k]);
    if (!table->gradient) {
        pl_graph_fail(g, PL_EUNSUPPORTED, "operator \"%s\" has no gradient", table->name);
        return;
    }
    table->gradient(g, &use, dy, dx);
    for (int k = 0; k < op->input_count && !g->error.code; k++) {
        const pl_shape_t want = pl_input_shape(g, op, k);
        if (dx[k].id < 0)
            continue;
        const pl_shape_t got = pl_shape_of(g, dx[k]);
        if (!g->error.code && !pl_same_shape(got, want))
            pl_op_fail(g, "%s: the gradient of input %d is %s, the input %s", table->name,
                       k, PL_TEXT_OF(got), PL_TEXT_OF(want));
    }
}

const pl_rules_t pl_user_rules[PL_OPCODES] = {
    [PL_OP_apply] = {shape_apply, gradient_apply},
};
