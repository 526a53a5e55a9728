/* sample_operator.c - an operator as users write them, for tests: y = factor x w over
 * rows x [..., C] with one w [C] */
#include "sample_operator.h"

static int gate_shape(const void *self, const pl_shape_t input[], pl_shape_t *output,
                      pl_error_t *err)
{
    (void)self;
    const pl_shape_t x = input[0], w = input[1];
    *output = x;
    if (x.rank > 0 && w.rank == 1 && w.dim[0] == x.dim[x.rank - 1])
        return PL_OK;
    return pl_fail(err, PL_EINVAL, "takes x [..., C] and w [C]");
}

static void gate_gradient(pl_graph_t *g, const pl_use_t *use, pl_node_t dy,
                          pl_node_t dx[])
{
    const sample_gate_t *gate = use->self;
    const int rank = pl_shape_of(g, dy).rank;
    int axes[PL_DIMS];
    for (int i = 0; i < rank - 1; i++)
        axes[i] = i;
    pl_node_t both[] = {dy, use->input[1]};
    dx[0] = pl_apply(g, "gate", both, 2, gate);
    dx[1] = pl_scale(g, pl_mul(g, dy, use->input[0]), gate->factor);
    if (rank > 1)
        dx[1] = pl_sum(g, dx[1], axes, rank - 1, false);
}

#define GATE_KERNEL(function, type) \
    static void function(const pl_kernel_call_t *call, int64_t from, int64_t to) \
    { \
        const sample_gate_t *gate = call->self; \
        const int64_t width = call->input_shape[1].dim[0]; \
        const type *x = call->input[0], *w = call->input[1]; \
        type *y = call->output; \
        for (int64_t i = from * width; i < to * width; i++) \
            y[i] = (type)gate->factor * x[i] * w[i % width]; \
    }
GATE_KERNEL(gate_on_cpu, float)
GATE_KERNEL(gate_on_fake, double)

static const char gate_on_gpus[] =
    "struct { double factor; } gate;\n"
    "VALUES(gate);\n"
    "for (int64_t i = 0; i < WIDTH; i++)\n"
    "    OUT(i, (real)gate.factor * IN0(row * WIDTH + i) * IN1(i));\n";

static const pl_kernel_t gate_kernels[] = {{"cpu", gate_on_cpu},
                                           {"reference", gate_on_fake},
                                           PL_KERNELS_END},
                         gate_kernels_with_text[] = {{"cpu", gate_on_cpu},
                                                     {"reference", gate_on_fake},
                                                     {"gpu", .text = gate_on_gpus},
                                                     PL_KERNELS_END};

const pl_operator_ops_t sample_hosted_gate = {
    .name = "hosted gate",
    .size = sizeof(sample_gate_t),
    .inputs = 2,
    .row_axes = 1,
    .shape = gate_shape,
    .gradient = gate_gradient,
    .kernels = gate_kernels,
};

const pl_operator_ops_t sample_gate = {
    .name = "gate",
    .size = sizeof(sample_gate_t),
    .inputs = 2,
    .row_axes = 1,
    .shape = gate_shape,
    .gradient = gate_gradient,
    .kernels = gate_kernels_with_text,
};
