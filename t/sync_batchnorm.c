/* sync_batchnorm.c - tests of trainer.sync_batchnorm: batch norms of several ranks are
 * those of one with all samples */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "rig.h"
#include "tap.h"

#define QUIET "\"num_sanity_val_steps\": 0, \"log_every_n_steps\": 1"
#define SYNC "\"sync_batchnorm\": true, "

static const char *const devices[] = {"fake", "cpu"};
#define DEVICES 2

/* ---- Modules ---- */

static void loss_of(pl_graph_t *g, pl_node_t x, pl_stage_t stage)
{
    x = pl_linear(g, "out", x, 3);
    pl_output(g, "logits", x);
    if (stage != PL_PREDICT)
        pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static void rows_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    pl_node_t x = pl_batch_norm(g, "norm0", pl_input(g, "x"), 0.1, 1e-5);
    x = pl_linear(g, "fc1", x, 8);
    x = pl_relu(g, pl_batch_norm(g, "norm1", x, 0.1, 1e-5));
    x = pl_linear(g, "fc2", x, 5);
    loss_of(g, pl_tanh(g, pl_batch_norm(g, "norm2", x, 0.3, 1e-3)), stage);
}

static const pl_module_ops_t rows = {.name = "rows", .size = 1, .step = rows_step};

/* Six numbers are a picture of two rows. */
static void pictures_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    const pl_conv_options_t conv = {.kernel = 3, .padding = 1, .no_bias = true};
    pl_node_t x = pl_reshape(g, pl_input(g, "x"), PL_SHAPE(-1, 1, 2, 3));
    x = pl_conv2d(g, "conv1", x, 7, &conv);
    x = pl_relu(g, pl_batch_norm(g, "norm1", x, 0.1, 1e-5));
    x = pl_conv2d(g, "conv2", x, 4, &conv);
    x = pl_tanh(g, pl_batch_norm(g, "norm2", x, 0.1, 1e-5));
    loss_of(g, pl_reshape(g, x, PL_SHAPE(-1, 24)), stage);
}

static const pl_module_ops_t pictures = {.name = "pictures",
                                         .size = 1,
                                         .step = pictures_step};

static const char *const modules[] = {"\"rows\"", "\"pictures\""};
#define MODULES 2

/* ---- Runs of one and of several ranks ---- */

#define fit(ranks, batch, more, ...) \
    fit_with(ranks, batch, more, &(rig_spec_t){__VA_ARGS__})

static rig_result_t *fit_with(int ranks, int batch, const char *more,
                              const rig_spec_t *given)
{
    char trainer[512], data[256];
    rig_spec_t spec = *given;
    snprintf(trainer, sizeof trainer, QUIET ", \"devices\": %d, %s", ranks, more);
    snprintf(data, sizeof data, "\"batch_size\": %d%s%s", batch, spec.data ? ", " : "",
             spec.data ? spec.data : "");
    spec.trainer = trainer;
    spec.data = data;
    return rig_train(&spec);
}

static double losses_differ(const rig_result_t *a, const rig_result_t *b)
{
    const rig_series_t x = rig_series(a, "train_loss"), y = rig_series(b, "train_loss");
    double worst = x.count == y.count && x.count ? 0 : INFINITY;
    for (int k = 0; k < x.count && isfinite(worst); k++)
        worst = fmax(worst, fabs(x.value[k] - y.value[k]));
    return worst;
}

/* Weights are parameters and running statistics. */
static void compare(const rig_result_t *one, const rig_result_t *many, double within,
                    const char *what)
{
    is_int(many->global_step, one->global_step, "%s: as many steps", what);
    ok(losses_differ(one, many) < within, "the losses of one rank: %g",
       losses_differ(one, many));
    ok(rig_distance(one, many) < within, "its weights and statistics: %g",
       rig_distance(one, many));
}

static void ranks_normalise_by_the_batch_of_all(void)
{
    for (int k = 0; k < DEVICES * MODULES; k++) {
        const char *device = devices[k / MODULES], *module = modules[k % MODULES];
        if (!rig_has(device))
            return;
        rig_result_t *one = fit(1, 12, SYNC "\"max_epochs\": 3", .accelerator = device,
                                .module = module, .samples = 48,
                                .data = "\"val_split\": 0.25");
        for (int ranks = 2; ranks <= 3; ranks++) {
            rig_result_t *many = fit(ranks, 12 / ranks, SYNC "\"max_epochs\": 3",
                                     .accelerator = device, .module = module,
                                     .samples = 48, .data = "\"val_split\": 0.25");
            compare(one, many, 1e-5, device);
            is_near(rig_metric(many, "val_loss"), rig_metric(one, "val_loss"), 1e-5,
                    "%s of %d ranks", module, ranks);
            rig_result_free(many);
        }
        rig_result_free(one);
    }
}

int main(void)
{
    static const pl_registration_t parts[] = {{"module", &rows},
                                              {"module", &pictures},
                                              PL_REGISTRATIONS_END};
    rig_init(parts);
    run(ranks_normalise_by_the_batch_of_all);
    return tap_done();
}
