/* graph_hash.c - a number for what a graph computes
 *
 * Structure, shapes, types and constants, not names: two graphs with the same number
 * compute the same from the same.  Member by member, for structs have holes. */
#include <string.h>

#include "base/crc32c.h"
#include "tensor/graph.h"

static uint32_t add(uint32_t hash, int64_t number)
{
    return pl_crc32c(hash, &number, sizeof number);
}

static uint32_t add_real(uint32_t hash, double real)
{
    return pl_crc32c(hash, &real, sizeof real);
}

static uint32_t add_shape(uint32_t hash, pl_shape_t shape)
{
    hash = add(hash, shape.rank);
    for (int k = 0; k < shape.rank; k++)
        hash = add(hash, shape.dim[k]);
    return hash;
}

static uint32_t add_value(uint32_t hash, const pl_value_t *value)
{
    const int64_t numbers[] = {value->source, value->dtype, value->op, value->index,
                               value->offset};
    hash = pl_crc32c(hash, numbers, sizeof numbers);
    hash = add_real(hash, value->constant);
    return add_shape(hash, value->shape);
}

static uint32_t add_attr(uint32_t hash, const pl_attr_t *attr)
{
    const int64_t numbers[] = {attr->axis,           attr->axes,        attr->keep,
                               attr->transpose_a,    attr->transpose_b, attr->causal,
                               attr->from,           attr->to,          attr->has_ignore,
                               attr->accumulate,     attr->empty,       attr->dtype,
                               attr->kernel,         attr->stride,      attr->padding,
                               (int64_t)attr->stream};
    hash = pl_crc32c(hash, numbers, sizeof numbers);
    hash = add_real(add_real(hash, attr->a), attr->b);
    for (int k = 0; k < PL_DIMS; k++)
        hash = add(hash, attr->order[k]);
    return add_shape(hash, attr->shape);
}

static uint32_t add_op(uint32_t hash, const pl_op_t *op)
{
    const char *name = pl_op_name(op);
    hash = pl_crc32c(hash, name, strlen(name));
    for (int k = 0; k < op->input_count; k++)
        hash = add(hash, op->input[k]);
    for (int k = 0; k < op->output_count; k++)
        hash = add(hash, op->output[k]);
    return add_attr(hash, &op->attr);
}

uint32_t pl_graph_hash(uint32_t hash, const pl_graph_t *g)
{
    hash = add(add(hash, g->value_count), g->op_count);
    for (int k = 0; k < g->value_count; k++)
        hash = add_value(hash, &g->value[k]);
    for (int k = 0; k < g->op_count; k++)
        hash = add_op(hash, &g->op[k]);
    return hash;
}
