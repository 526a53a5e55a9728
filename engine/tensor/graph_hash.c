/* graph_hash.c - a hash of the computation of a graph
 *
 * It covers structure, shapes, types and constants, not names: two graphs with the same
 * hash compute the same results from the same inputs.  Structs are hashed by member,
 * because they have padding. */
#include <string.h>

#include "base/crc32c.h"
#include "tensor/graph.h"

static uint32_t add(uint32_t hash, int64_t number)
{
    return pl_crc32c(hash, &number, sizeof number);
}

static uint32_t add_shape(uint32_t hash, pl_shape_t shape)
{
    hash = add(hash, shape.rank);
    for (int k = 0; k < shape.rank; k++)
        hash = add(hash, shape.dim[k]);
    return hash;
}

uint32_t pl_graph_hash(uint32_t hash, const pl_graph_t *g)
{
    hash = add(add(hash, g->value_count), g->op_count);
    for (int k = 0; k < g->value_count; k++) {
        const pl_value_t *v = &g->value[k];
        const int64_t numbers[] = {v->source, v->dtype, v->op, v->index, v->offset};
        hash = pl_crc32c(hash, numbers, sizeof numbers);
        hash = pl_crc32c(hash, &v->constant, sizeof v->constant);
        hash = add_shape(hash, v->shape);
        if (v->tensor)
            hash = add(hash, v->tensor->hash);
    }
    for (int i = 0; i < g->op_count; i++) {
        const pl_op_t *op = &g->op[i];
        const char *name = pl_op_name(op);
        const pl_attr_t *a = &op->attr;
        const int64_t numbers[] = {a->axis,           a->axes,        a->keep,
                                   a->transpose_a,    a->transpose_b, a->causal,
                                   a->from,           a->to,          a->has_ignore,
                                   a->accumulate,     a->empty,       a->dtype,
                                   a->groups,         a->adaptive,    a->counts_padding,
                                   a->is_rms,         a->linear,      a->of_logs,
                                   (int64_t)a->stream};
        hash = pl_crc32c(hash, name, strlen(name));
        for (int k = 0; k < op->input_count; k++)
            hash = add(hash, op->input[k]);
        for (int k = 0; k < op->output_count; k++)
            hash = add(hash, op->output[k]);
        hash = pl_crc32c(hash, numbers, sizeof numbers);
        hash = pl_crc32c(hash, &a->window, sizeof a->window);
        hash = pl_crc32c(hash, &a->a, sizeof a->a);
        hash = pl_crc32c(hash, &a->b, sizeof a->b);
        for (int k = 0; k < PL_DIMS; k++)
            hash = add(add(add(hash, a->order[k]), a->at[k]), a->step[k]);
        hash = add_shape(hash, a->shape);
    }
    return hash;
}
