/* spawn_strategies.c - tests of strategies/zero1.c and local_sgd.c where ranks are
 * processes: they train what threads do, all have the same weights, and others
 * resume them */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "far.h"
#include "tap.h"

#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.02}"
#define LOCAL "{\"name\": \"local_sgd\", \"sync_every\": 2}"
#define SPLIT "\"val_split\": 0.25"

static const char *const strategies[] = {"\"zero1\"", LOCAL, "\"ddp\""};

/* ---- A module that keeps what each rank begins a step with ---- */

enum { UNITS = 20 };

/* What all ranks have on the average is what rank zero has, bit for bit, as long as all
 * have the same. */
static void mirror(pl_graph_t *g, const char *name, pl_shape_t shape, pl_node_t weight,
                   pl_stage_t stage)
{
    char mean[40], own[40];
    snprintf(mean, sizeof mean, "%s.mean", name);
    snprintf(own, sizeof own, "%s.own", name);
    const pl_node_t of_all = pl_state(g, mean, shape, pl_zeros(), PL_AGREE_MEAN),
                    of_one = pl_state(g, own, shape, pl_zeros(), PL_AGREE_NONE);
    if (stage != PL_TRAIN)
        return;
    pl_assign(g, of_all, weight);
    pl_assign(g, of_one, weight);
}

static void mirrors_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    const pl_shape_t first = PL_SHAPE(UNITS, RIG_FEATURES),
                     second = PL_SHAPE(RIG_CLASSES, UNITS);
    const pl_node_t a = pl_param(g, "first", first, pl_normal(0.4)),
                    b = pl_param(g, "second", second, pl_normal(0.4));
    mirror(g, "first", first, a, stage);
    mirror(g, "second", second, b, stage);
    pl_node_t x = pl_matmul(g, pl_input(g, "x"), a, false, true);
    x = pl_matmul(g, pl_relu(g, x), b, false, true);
    pl_output(g, "logits", x);
    if (stage != PL_PREDICT)
        pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static const pl_module_ops_t mirrors = {.name = "mirrors",
                                        .size = 1,
                                        .step = mirrors_step};

/* ---- Tests ---- */

#define kept(from, ...) kept_of(far_new(__VA_ARGS__), from)

/* The result of a run that resumes from another  [a new run]. */
static rig_result_t *kept_of(rig_t *rig, const char *from)
{
    if (from && !rig_begin_again(rig, from))
        tap_diag("%s", rig_error.text);
    rig_result_t *result = rig_keep(from ? rig_wait(rig) : rig_fit(rig));
    is_text(result->status, "ok", "a run: %s", result->error.text);
    rig_free(&rig);
    return result;
}

static void processes_train_as_threads_do(void)
{
    for (int k = 0; k < 2; k++) {
        const rig_spec_t spec = {.accelerator = "cpu",
                                 .optimizer = ADAMW,
                                 .trainer = "\"max_epochs\": 3"};
        rig_result_t *near = kept(NULL, .launcher = "\"inline\"", .data = SPLIT,
                                  .strategy = strategies[k], .rig = spec),
                     *far = kept(NULL, .data = SPLIT, .strategy = strategies[k],
                                 .rig = spec);
        ok(rig_same_bits(near, far), "%s: the weights of threads", strategies[k]);
        is_text(far->metrics, near->metrics, "and their metrics");
        rig_result_free(near);
        rig_result_free(far);
    }
    is_int(far_children(), 0, "no process is left");
}

static bool is_mirrored(const rig_result_t *result, const char *name)
{
    char mean[40], own[40];
    snprintf(mean, sizeof mean, "%s.mean", name);
    snprintf(own, sizeof own, "%s.own", name);
    const rig_tensor_t *x = rig_find(result->weight, result->weight_count, mean),
                       *y = rig_find(result->weight, result->weight_count, own);
    return x && y && x->data[0] != 0
           && !memcmp(x->data, y->data, x->count * sizeof *x->data);
}

/* Five steps, of which the last begins with what the fourth has brought together. */
static void all_ranks_have_the_same_weights(void)
{
    for (int k = 0; k < 3; k++) {
        rig_t *one = far_new(.launcher = "\"inline\"", .ranks = 1, .samples = 80,
                             .data = SPLIT,
                             .rig = {.accelerator = "cpu", .module = "\"mirrors\""});
        rig_result_t *result = kept(NULL, .samples = 80, .data = SPLIT,
                                    .strategy = strategies[k],
                                    .rig = {.accelerator = "cpu",
                                            .module = "\"mirrors\"",
                                            .optimizer = ADAMW,
                                            .trainer = "\"max_steps\": 5"});
        ok(is_mirrored(result, "first") && is_mirrored(result, "second"),
           "%s: the last step begins with the same bits", strategies[k]);
        is_near(rig_metric(rig_validate(one, result->run_dir), "val_loss"),
                rig_metric(result, "val_loss"), 1e-6,
                "and what all measure behind it is what one does");
        rig_result_free(result);
        rig_free(&one);
    }
}

/* Nine steps of 12 samples, in order. */
static rig_result_t *on_from(const char *launcher, int ranks, const char *from)
{
    return kept(from, .launcher = launcher, .strategy = "\"zero1\"", .ranks = ranks,
                .samples = 48, .batch_size = 12 / ranks,
                .rig = {.accelerator = "cpu",
                        .optimizer = ADAMW,
                        .trainer = "\"max_epochs\": 9, \"max_steps\": 9",
                        .callbacks = "[{\"name\": \"model_checkpoint\", "
                                     "\"every_n_train_steps\": 3, \"save_top_k\": -1}]"});
}

static void any_number_of_ranks_resumes_a_checkpoint_of_two(void)
{
    static const int ranks[] = {3, 1, 2};
    const char *spawn = "{\"name\": \"spawn\", \"max_restarts\": 0}";
    char from[600];
    rig_result_t *whole = on_from(spawn, 2, NULL);
    snprintf(from, sizeof from, "%s/checkpoints/epoch=0-step=3", whole->run_dir);
    for (int k = 0; k < 3; k++) {
        rig_result_t *far = on_from(spawn, ranks[k], from),
                     *near = on_from("\"inline\"", ranks[k], from);
        is_int(far->global_step, 9, "%d processes resume", ranks[k]);
        ok(rig_same_bits(far, near), "as threads do");
        ok(rig_distance(far, whole) < (ranks[k] == 2 ? 1e-30 : 1e-5),
           "to what two come to (%g)", rig_distance(far, whole));
        rig_result_free(far);
        rig_result_free(near);
    }
    rig_result_free(whole);
}

int main(void)
{
    static const pl_registration_t components[] = {{"module", &mirrors},
                                                   PL_REGISTRATIONS_END};
    far_init(components);
    if (!rig_has("cpu"))                                    /* the fake one has float64 */
        return tap_done();
    run(processes_train_as_threads_do);
    run(all_ranks_have_the_same_weights);
    run(any_number_of_ranks_resumes_a_checkpoint_of_two);
    return tap_done();
}
