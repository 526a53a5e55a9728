/* local_sgd.c - tests of strategies/local_sgd.c: ranks that train by themselves and come
 * together now and then
 *
 * What they come to is held against the same computed here, in doubles, for a module of
 * one layer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

#define QUIET "\"num_sanity_val_steps\": 0, \"log_every_n_steps\": 1, "
#define ONCE "\"num_sanity_val_steps\": 0, \"log_every_n_steps\": 1000, "
#define SGD "{\"name\": \"sgd\", \"lr\": 0.5}"
#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.02}"
#define LOCAL(more) "\"strategy\": {\"name\": \"local_sgd\", " more "}, "

#define fit(...) rig_train(&(rig_spec_t){__VA_ARGS__})

/* ---- A module that can be computed by hand ---- */

static void plane_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    pl_node_t x = pl_linear(g, "fc", pl_input(g, "x"), RIG_CLASSES);
    pl_output(g, "logits", x);
    if (stage != PL_PREDICT)
        pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static const pl_module_ops_t plane = {.name = "plane", .size = 1, .step = plane_step};

enum { WEIGHTS = RIG_CLASSES * RIG_FEATURES, ALL = WEIGHTS + RIG_CLASSES };
enum { RANKS = 2, BATCH = 4, SAMPLES = 40 };

static void weights_of(const rig_result_t *result, double w[ALL])
{
    const rig_tensor_t *weight = rig_find(result->weight, result->weight_count,
                                          "fc.weight"),
                       *bias = rig_find(result->weight, result->weight_count, "fc.bias");
    for (int i = 0; i < ALL; i++)
        w[i] = !weight || !bias ? NAN
               : i < WEIGHTS    ? weight->data[i]
                                : bias->data[i - WEIGHTS];
}

/* Of the mean loss over a rank's batch of a step. */
static void gradient(const double w[ALL], int rank, int step, double to[ALL])
{
    memset(to, 0, ALL * sizeof *to);
    for (int i = 0; i < BATCH; i++) {
        float x[RIG_FEATURES];
        int64_t y;
        double p[RIG_CLASSES], sum = 0;
        rig_sample((step * BATCH + i) * RANKS + rank, x, &y);
        for (int c = 0; c < RIG_CLASSES; c++) {
            p[c] = w[WEIGHTS + c];
            for (int k = 0; k < RIG_FEATURES; k++)
                p[c] += w[c * RIG_FEATURES + k] * x[k];
            sum += p[c] = exp(p[c]);
        }
        for (int c = 0; c < RIG_CLASSES; c++) {
            const double d = (p[c] / sum - (c == y)) / BATCH;
            for (int k = 0; k < RIG_FEATURES; k++)
                to[c * RIG_FEATURES + k] += d * x[k];
            to[WEIGHTS + c] += d;
        }
    }
}

typedef struct outer {
    int every, steps;
    double lr, momentum;
} outer_t;

/* DiLoCo, algorithm 1, with SGD inside. */
static void by_hand(double w[ALL], outer_t o)
{
    double own[RANKS][ALL], velocity[ALL] = {0}, g[ALL];
    for (int step = 0; step < o.steps; step++) {
        for (int rank = 0; rank < RANKS; rank++) {
            if (step % o.every == 0)
                memcpy(own[rank], w, sizeof own[rank]);
            gradient(own[rank], rank, step, g);
            for (int i = 0; i < ALL; i++)
                own[rank][i] -= 0.5 * g[i];
        }
        for (int i = 0; i < ALL && (step + 1 == o.steps || (step + 1) % o.every == 0);
             i++) {
            double way = 0;
            for (int rank = 0; rank < RANKS; rank++)
                way += (w[i] - own[rank][i]) / RANKS;
            velocity[i] = o.momentum * velocity[i] + way;
            w[i] -= o.lr * (o.momentum > 0 ? way + o.momentum * velocity[i] : way);
        }
    }
}

static void sums_are_those_computed_by_hand(void)
{
    static const outer_t outer[] = {
        {1, 4, 1, 0}, {2, 4, 1, 0}, {2, 5, 0.7, 0.9}, {3, 5, 0.7, 0.9}, {9, 4, 0.8, 0}};
    rig_result_t *begun = fit(.module = "\"plane\"", .trainer = QUIET "\"max_steps\": 1",
                              .optimizer = "{\"name\": \"sgd\", \"lr\": 0}");
    for (size_t k = 0; k < sizeof outer / sizeof *outer; k++) {
        const outer_t o = outer[k];
        char trainer[256];
        double want[ALL], got[ALL], worst = 0;
        snprintf(trainer, sizeof trainer,
                 QUIET LOCAL("\"sync_every\": %d, \"outer_lr\": %g, "
                             "\"outer_momentum\": %g") "\"devices\": 2, \"max_steps\": "
                                                       "%d",
                 o.every, o.lr, o.momentum, o.steps);
        rig_result_t *run = fit(.module = "\"plane\"", .optimizer = SGD,
                                .trainer = trainer, .samples = SAMPLES,
                                .data = "\"batch_size\": 4, \"shuffle\": false");
        weights_of(begun, want);
        weights_of(run, got);
        by_hand(want, o);
        for (int i = 0; i < ALL; i++)
            worst = fmax(worst, isfinite(got[i]) ? fabs(got[i] - want[i]) : INFINITY);
        ok(worst < 2e-6, "every %d of %d steps, %g and %g (%g)", o.every, o.steps, o.lr,
           o.momentum, worst);
        rig_result_free(run);
    }
    rig_result_free(begun);
}

/* Also where an epoch's last step has 4, 3 and 3 samples, or 1, none and none. */
static void synchronizing_at_each_step_equals_ddp(void)
{
    static const int samples[] = {48, 46, 49};
    for (int k = 0; k < 3; k++) {
        rig_result_t *ddp = fit(.data = "\"batch_size\": 4", .samples = samples[k],
                                .trainer = QUIET "\"devices\": 3, \"max_epochs\": 2"),
                     *local = fit(.data = "\"batch_size\": 4", .samples = samples[k],
                                  .trainer = QUIET LOCAL(
                                      "\"sync_every\": 1, \"outer_lr\": 1,"
                                      " \"outer_momentum\": 0") "\"devices\": 3, "
                                                                "\"max_epochs\": 2");
        ok(rig_distance(ddp, local) < 1e-5, "with SGD and %d samples (%g)", samples[k],
           rig_distance(ddp, local));
        is_near(rig_metric(local, "train_loss"), rig_metric(ddp, "train_loss"), 1e-5,
                "the same losses");
        rig_result_free(ddp);
        rig_result_free(local);
    }
}

/* ---- Metrics ---- */

static void each_sample_counts_once(void)
{
    static const char *const names[] = {"train_loss", "train_acc", "val_loss"};
    static const char still[] = "{\"name\": \"sgd\", \"lr\": 0}";
    rig_result_t *ddp = fit(.data = "\"batch_size\": 3, \"val_split\": 0.2",
                            .samples = 37, .optimizer = still,
                            .trainer = ONCE "\"devices\": 2, \"max_epochs\": 2"),
                 *local =
                     fit(.data = "\"batch_size\": 3, \"val_split\": 0.2", .samples = 37,
                         .optimizer = still,
                         .trainer = ONCE LOCAL(
                             "\"sync_every\": 4") "\"devices\": 2, \"max_epochs\": 2");
    for (int k = 0; k < 3; k++)
        is_near(rig_metric(local, names[k]), rig_metric(ddp, names[k]), 1e-5, "%s",
                names[k]);
    rig_result_free(ddp);
    rig_result_free(local);
}

/* ---- Resuming ---- */

static void a_resumed_run_ends_with_the_same_bits(void)
{
    static const char *const optimizers[] = {
        ADAMW, "{\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9}"};
    for (int k = 0; k < 2 && rig_has("cpu"); k++) {
        rig_spec_t spec = {
            .accelerator = "cpu",
            .optimizer = optimizers[k],
            .data = "\"batch_size\": 3, \"val_split\": 0.2",
            .callbacks = "[{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 5, "
                         "\"save_top_k\": -1}]",
            .trainer = QUIET LOCAL("\"sync_every\": 3") "\"devices\": 3, \"max_epochs\": "
                                                        "4"};
        rig_t *rig = rig_make(&spec);
        rig_result_t *whole = rig_keep(rig_fit(rig));
        char from[512];
        is_text(whole->status, "ok", "a run: %s", whole->error.text);
        snprintf(from, sizeof from, "%s/checkpoints/epoch=1-step=5", whole->run_dir);
        ok(rig_begin_again(rig, from), "resumes: %s", rig_error.text);
        const rig_result_t *rest = rig_wait(rig);
        is_text(rest->status, "ok", "%s", rest->error.text);
        is_int(rest->global_step, whole->global_step, "as many steps");
        ok(rig_same_bits(whole, rest), "and the same weights");
        rig_result_free(whole);
        rig_free(&rig);
    }
}

/* ---- What is not finite ---- */

static void a_step_that_is_not_finite_concerns_one_rank(void)
{
    for (int record = 13; record <= 14; record++) {         /* of rank 0, of rank 1 */
        char where[24];
        snprintf(where, sizeof where, "rank %d ", record - 13);
        rig_t *rig =
            rig_new(.data = "\"batch_size\": 4, \"shuffle\": false", .nan = record,
                    .trainer = QUIET LOCAL("\"sync_every\": 2") "\"devices\": 2");
        const rig_result_t *result = rig_fit(rig);
        is_text(pl_code_name(result->error.code), "PL_ENAN", "it fails");
        like(result->error.where, where, "by name: %s", result->error.text);
        rig_free(&rig);
        for (int every = 1; every <= 3; every++) {
            char trainer[256];
            snprintf(trainer, sizeof trainer,
                     QUIET LOCAL("\"sync_every\": %d") "\"devices\": 2, \"max_epochs\": "
                                                       "2, \"nan_policy\": \"skip\"",
                     every);
            rig_result_t *skips = fit(.data = "\"batch_size\": 4, \"shuffle\": false",
                                      .nan = record, .trainer = trainer);
            ok(isfinite(rig_metric(skips, "train_loss"))
                   && isfinite(rig_distance(skips, skips)),
               "or is passed over");
            rig_result_free(skips);
        }
    }
}

/* ---- Traffic ---- */

static double sent_by_rank_0(const char *trainer)
{
    size_t k;
    json_t *message;
    double bytes = 0;
    rig_t *rig = rig_new(.stream = true, .data = "\"batch_size\": 2", .trainer = trainer);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "%s", result->error.text);
    rig_free(&rig);
    json_t *stream = rig_stream();
    json_array_foreach(stream, k, message) {
        const char *name = json_string_value(json_object_get(message, "name")),
                   *kind = json_string_value(json_object_get(message, "kind"));
        const json_t *fields = json_object_get(message, "fields");
        if (name && kind && !strcmp(name, "all_reduce") && !strcmp(kind, "call")
            && json_integer_value(json_object_get(message, "rank")) == 0)
            bytes += 4 * json_number_value(json_object_get(fields, "count"));
    }
    json_decref(stream);
    return bytes;
}

static void much_less_is_sent(void)
{
    const double ddp = sent_by_rank_0(QUIET "\"devices\": 2, \"max_steps\": 40, "
                                            "\"max_epochs\": 4"),
                 local = sent_by_rank_0(QUIET LOCAL(
                     "\"sync_every\": 10") "\"devices\": 2, \"max_steps\": 40, "
                                           "\"max_epochs\": 4");
    tap_diag("bytes a step: ddp %.0f, local_sgd %.0f", ddp / 40, local / 40);
    ok(local > 0 && local <= ddp / 9, "a tenth, when every tenth step is together");
}

/* ---- What does not go with it ---- */

static void options_that_it_does_not_support_are_refused(void)
{
    static const struct {
        const char *trainer, *averaging, *says;
    } wrong[] = {{"\"nan_policy\": \"rollback\"", NULL, "nan_policy to skip or stop"},
                 {"\"max_epochs\": 1", "\"ema\"", "averaging needs one history"}};
    for (size_t k = 0; k < 2; k++) {
        char trainer[256];
        snprintf(trainer, sizeof trainer,
                 QUIET LOCAL("\"sync_every\": 2") "\"devices\": 2, %s", wrong[k].trainer);
        rig_t *rig = rig_new(.trainer = trainer, .averaging = wrong[k].averaging);
        const rig_result_t *result = rig_fit(rig);
        is_text(pl_code_name(result->error.code), "PL_EUNSUPPORTED", "%s",
                wrong[k].trainer);
        like(result->error.text, wrong[k].says, "and says why");
        rig_free(&rig);
    }
}

int main(void)
{
    static const pl_registration_t components[] = {{"module", &plane},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    run(sums_are_those_computed_by_hand);
    run(synchronizing_at_each_step_equals_ddp);
    run(each_sample_counts_once);
    run(a_resumed_run_ends_with_the_same_bits);
    run(a_step_that_is_not_finite_concerns_one_rank);
    run(much_less_is_sent);
    run(options_that_it_does_not_support_are_refused);
    return tap_done();
}
