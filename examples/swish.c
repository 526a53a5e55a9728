/* swish.c - a user-defined operator, x sigmoid(slope x), and a module that uses it
 *
 * The table swish describes the operator: the shapes that it accepts (any, by the default
 * rule), its gradient as a graph of other operators, and a kernel for each accelerator.
 * Modules in other files call it by name. */
#include <math.h>
#include <paceline.h>

/* ---- The operator ---- */

typedef struct swish {
    double slope;
} swish_t;

/* A row is an element: see row_axes. */
static void swish_on_cpu(const pl_kernel_call_t *call, int64_t from, int64_t to)
{
    const swish_t *swish = call->self;
    const float *x = call->input[0], slope = (float)swish->slope;
    float *y = call->output;
    for (int64_t i = from; i < to; i++)
        y[i] = x[i] / (1 + expf(-slope * x[i]));
}

/* y = x s with s = sigmoid(slope x): dx = dy (s + slope y (1 - s)) */
static void swish_gradient(pl_graph_t *g, const pl_use_t *use, pl_node_t dy,
                           pl_node_t dx[])
{
    const swish_t *swish = use->self;
    pl_node_t s = pl_sigmoid(g, pl_scale(g, use->input[0], swish->slope));
    pl_node_t rest = pl_sub(g, use->output, pl_mul(g, use->output, s));
    dx[0] = pl_mul(g, dy, pl_add(g, s, pl_scale(g, rest, swish->slope)));
}

/* The kernel for GPUs; doc/modules.md says what its text may use. */
static const char swish_on_gpus[] =
    "struct { double slope; } swish;\n"
    "VALUES(swish);\n"
    "OUT(0, IN0(row) * pl_sigmoidf((real)swish.slope * IN0(row)));\n";

static const pl_kernel_t swish_kernels[] = {
    {.accelerator = "cpu", .run = swish_on_cpu},
    {.accelerator = "gpu", .text = swish_on_gpus},
    PL_KERNELS_END,
};

static const pl_operator_ops_t swish_operator = {
    .name = "swish",
    .help = "x sigmoid(slope x)",
    .size = sizeof(swish_t),
    .inputs = 1,
    .precision = PL_PRECISION_float32,
    .gradient = swish_gradient,
    .kernels = swish_kernels,
};

/* ---- The module ---- */

typedef struct net {
    int64_t hidden, classes;
    double slope;
} net_t;

static const pl_option_t net_options[] = {
    PL_INT(net_t, hidden, "32", "1..", "units of the hidden layer"),
    PL_FLOAT(net_t, slope, "1", "(0..", "slope of the sigmoid in swish"),
    PL_INT(net_t, classes, "\"auto\"", "1..", "number of classes"),
    PL_OPTIONS_END,
};

static void net_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const net_t *net = self;
    const swish_t swish = {.slope = net->slope};
    pl_node_t x = pl_flatten(g, pl_input(g, "x"), 1);       /* [B, features] */
    x = pl_linear(g, "fc1", x, net->hidden);                /* [B, hidden] */
    x = pl_apply(g, "swish", &x, 1, &swish);
    x = pl_linear(g, "fc2", x, net->classes);               /* [B, classes] */
    pl_output(g, "logits", x);
    if (stage == PL_PREDICT)
        return;
    pl_node_t y = pl_input(g, "y");                         /* [B] */
    pl_loss(g, pl_cross_entropy(g, x, y, NULL));
    pl_log(g, "acc", pl_accuracy(g, x, y, NULL), PL_ON_EPOCH);
}

static const pl_module_ops_t net_module = {
    .name = "swish",
    .help = "two layers with the user operator swish in between",
    .size = sizeof(net_t),
    .options = net_options,
    .step = net_step,
};

PL_PLUGIN({"operator", &swish_operator}, {"module", &net_module})
