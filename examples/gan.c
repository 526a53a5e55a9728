/* gan.c - a generative adversarial network: two objectives that train against each other
 *
 * The data set "mixture" draws points around a circle of modes, and noise with them.
 * The generator maps noise to points; the discriminator separates them from drawn
 * points (Goodfellow et al., "Generative adversarial nets", 2014, with the
 * non-saturating loss of section 3).  Each objective trains only the parameters of its
 * own network.  Validation measures the number of modes that are hit and the share of
 * points near a mode. */
#include <math.h>
#include <paceline.h>

#define MODES_MAX 8

/* ---- The data: x [2] around a mode, z [noise] normal ---- */

typedef struct mixture {
    int64_t samples, modes, noise;
    double radius, deviation;
} mixture_t;

static const pl_option_t mixture_options[] = {
    PL_INT(mixture_t, samples, "5120", "1..",
           "samples in an epoch, drawn again for each epoch"),
    PL_INT(mixture_t, modes, "8", "1..8", "modes on the circle"),
    PL_INT(mixture_t, noise, "4", "1..",
           "noise values of a sample, the generator's input"),
    PL_FLOAT(mixture_t, radius, "2", "(0..", "radius of the circle"),
    PL_FLOAT(mixture_t, deviation, "0.15", "(0..",
             "standard deviation of the samples of a mode"),
    PL_OPTIONS_END,
};

static int mixture_open(void *self, const pl_data_request_t *request,
                        pl_data_info_t *info, pl_error_t *err)
{
    (void)request;
    const mixture_t *m = self;
    info->samples = m->samples;
    info->field_count = 2;
    info->field[0] = (pl_field_t){"x", PL_F32, PL_SHAPE(2)};
    info->field[1] = (pl_field_t){"z", PL_F32, PL_SHAPE(m->noise)};
    info->data_info = pl_text("{\"modes\": %d, \"radius\": %.17g, \"deviation\": %.17g}",
                              (int)m->modes, m->radius, m->deviation);
    return info->data_info ? PL_OK : pl_fail(err, PL_ENOMEM, "out of memory");
}

/* splitmix64: the n-th number of a stream, from 0 to 1. */
static double uniform(uint64_t stream, uint64_t n)
{
    uint64_t x = stream + (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return ((double)(x >> 11) + 0.5) * 0x1p-53;
}

/* Box and Muller. */
static float normal(uint64_t stream, uint64_t n)
{
    const double angle = 6.283185307179586 * uniform(stream, 2 * n + 1);
    return (float)(sqrt(-2 * log(uniform(stream, 2 * n))) * cos(angle));
}

static int mixture_read(const void *self, const pl_read_request_t *request,
                        void *const field[], pl_error_t *err)
{
    (void)err;
    const mixture_t *m = self;
    for (int k = 0; k < request->count; k++) {
        float *x = (float *)field[0] + 2 * k, *z = (float *)field[1] + m->noise * k;
        const uint64_t key[] = {request->seed, request->epoch,
                                (uint64_t)request->index[k]};
        uint64_t stream = (uint64_t)request->stage;
        for (int i = 0; i < 3; i++)
            stream = (stream ^ key[i]) * UINT64_C(0xd1342543de82ef95) + 1;
        const double turn = floor(uniform(stream, 0) * (double)m->modes)
                            / (double)m->modes,
                     angle = 6.283185307179586 * turn;
        x[0] = (float)(m->radius * cos(angle) + m->deviation * normal(stream, 1));
        x[1] = (float)(m->radius * sin(angle) + m->deviation * normal(stream, 2));
        for (int i = 0; i < m->noise; i++)
            z[i] = normal(stream, 3 + (uint64_t)i);
    }
    return PL_OK;
}

static const pl_dataset_ops_t mixture = {
    .name = "mixture",
    .help = "points around modes on a circle, and noise",
    .size = sizeof(mixture_t),
    .options = mixture_options,
    .open = mixture_open,
    .read = mixture_read,
};

/* ---- The module ---- */

typedef struct gan {
    int64_t hidden, modes, generator_every;
    double radius, deviation;
} gan_t;

static const pl_option_t gan_options[] = {
    PL_INT(gan_t, hidden, "64", "1..",
           "units of each of two hidden layers, on both sides"),
    PL_INT(gan_t, generator_every, "1", "1..",
           "steps of the discriminator per step of the generator"),
    PL_INT(gan_t, modes, "\"auto\"", "1..8", "modes of the data"),
    PL_FLOAT(gan_t, radius, "\"auto\"", "(0..", "radius of the circle of the modes"),
    PL_FLOAT(gan_t, deviation, "\"auto\"", "(0..",
             "standard deviation of the samples of a mode"),
    PL_OPTIONS_END,
};

static pl_node_t perceptron(pl_graph_t *g, const gan_t *m, const char *side, pl_node_t x,
                            int64_t outputs)
{
    pl_scope(g, "%s", side);
    x = pl_relu(g, pl_linear(g, "fc1", x, m->hidden));
    x = pl_relu(g, pl_linear(g, "fc2", x, m->hidden));
    x = pl_linear(g, "fc3", x, outputs);
    pl_scope_end(g);
    return x;
}

static pl_node_t generate(pl_graph_t *g, const gan_t *m)
{
    return perceptron(g, m, "generator", pl_input(g, "z"), 2);  /* [B, 2] */
}

static pl_node_t judge(pl_graph_t *g, const gan_t *m, pl_node_t x)
{
    return perceptron(g, m, "discriminator", x, 1);         /* [B, 1] */
}

/* Sum of ln(1 + e^x), without overflow: max(x, 0) + ln(1 + e^-|x|). */
static pl_node_t softplus(pl_graph_t *g, pl_node_t x)
{
    pl_node_t above = pl_relu(g, x), size = pl_add(g, above, pl_relu(g, pl_neg(g, x)));
    pl_node_t rest = pl_log_of(g, pl_add(g, pl_scalar(g, 1), pl_exp(g, pl_neg(g, size))));
    return pl_sum(g, pl_add(g, above, rest), NULL, 0, false);
}

static pl_node_t samples(pl_graph_t *g)
{
    return pl_scalar(g, (double)pl_dim(g, pl_input(g, "z"), 0));
}

static void discriminator_objective(pl_graph_t *g, const void *self)
{
    pl_node_t real = judge(g, self, pl_input(g, "x"));
    pl_node_t made = judge(g, self, generate(g, self));
    pl_node_t sum = pl_add(g, softplus(g, pl_neg(g, real)), softplus(g, made));
    pl_loss(g, (pl_loss_t){sum, samples(g)});
}

static void generator_objective(pl_graph_t *g, const void *self)
{
    pl_node_t made = judge(g, self, generate(g, self));
    pl_loss(g, (pl_loss_t){softplus(g, pl_neg(g, made)), samples(g)});
}

/* Squared distances from the modes in deviations: [B, modes]. */
static pl_node_t distances(pl_graph_t *g, const gan_t *m, pl_node_t x)
{
    pl_node_t all[MODES_MAX], a = pl_slice(g, x, 1, 0, 1), b = pl_slice(g, x, 1, 1, 2);
    for (int k = 0; k < m->modes; k++) {
        const double angle = 6.283185307179586 * k / (double)m->modes;
        pl_node_t u = pl_sub(g, a, pl_scalar(g, m->radius * cos(angle)));
        pl_node_t v = pl_sub(g, b, pl_scalar(g, m->radius * sin(angle)));
        pl_node_t sum = pl_add(g, pl_mul(g, u, u), pl_mul(g, v, v));
        all[k] = pl_scale(g, sum, 1 / (m->deviation * m->deviation));
    }
    return m->modes == 1 ? all[0] : pl_concat(g, all, (int)m->modes, 1);
}

/* "near": the share of points within three deviations of a mode.  "modes": the number of
 * modes that are hit, e to the entropy of their shares of a batch. */
static void gan_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const gan_t *m = self;
    pl_node_t x = generate(g, m);
    pl_output(g, "x", x);
    if (stage == PL_PREDICT)
        return;
    const int over_batch[] = {0};
    pl_node_t d = pl_neg(g, distances(g, m, x));
    pl_node_t is_near = pl_max(g, pl_sigmoid(g, pl_add(g, d, pl_scalar(g, 9))), 1, false);
    pl_node_t share = pl_mean(g, pl_softmax(g, pl_scale(g, d, 0.5)), over_batch, 1,
                              false);
    pl_node_t log_share = pl_log_of(g, pl_add(g, share, pl_scalar(g, 1e-9)));
    pl_node_t entropy = pl_neg(g, pl_sum(g, pl_mul(g, share, log_share), NULL, 0, false));
    pl_log(g, "near", (pl_loss_t){pl_sum(g, is_near, NULL, 0, false), samples(g)},
           PL_ON_EPOCH);
    pl_log(g, "modes", (pl_loss_t){pl_exp(g, entropy), pl_scalar(g, 1)}, PL_ON_EPOCH);
}

static int64_t generator_every(const void *self)
{
    return ((const gan_t *)self)->generator_every;
}

static const pl_module_objective_t gan_objectives[] = {
    {.name = "discriminator",
     .parameters = "discriminator.*",
     .describe = discriminator_objective},
    {.name = "generator",
     .parameters = "generator.*",
     .describe = generator_objective,
     .every_n_steps = generator_every},
    PL_OBJECTIVES_END,
};

static const pl_module_ops_t gan = {
    .name = "gan",
    .help = "generator and discriminator of points in the plane",
    .size = sizeof(gan_t),
    .options = gan_options,
    .step = gan_step,
    .objectives = gan_objectives,
};

PL_PLUGIN({"module", &gan}, {"dataset", &mixture})
