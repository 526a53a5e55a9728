/* training.c - tests of whole trainings: the reference interpreter against PyTorch,
 * step by step */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "accelerators/reference/reference.h"
#include "tap.h"
#include "training_cases.h"

static double number(const json_t *list, int i)
{
    return json_number_value(json_array_get(list, (size_t)i));
}

static void regions_new(const training_t *t, double *region[PL_REGIONS])
{
    for (int r = 0; r < PL_REGIONS; r++) {
        int64_t n = r == PL_REGION_STATE ? t->model->state : t->model->params + 2;
        region[r] = pl_alloc_array((size_t)n, sizeof(double));
    }
    training_fill(t, PL_REGION_PARAMS, region[PL_REGION_PARAMS]);
    training_fill(t, PL_REGION_STATE, region[PL_REGION_STATE]);
}

/* One step: metrics are the loss (sum, weight) and the norm before clipping. */
static bool train(training_t *t, int step, double *region[PL_REGIONS],
                  double metrics[2][2])
{
    pl_error_t err;
    pl_reference_replay_t forward = {.seed = 1}, update = {.metrics = metrics};
    memcpy(forward.region, region, sizeof forward.region);
    memcpy(update.region, region, sizeof update.region);
    training_batch(t, step, forward.input);
    training_scalars(t, step, update.scalar);
    bool done = pl_reference_replay(t->step, &forward, &err) == PL_OK
                && pl_reference_replay(t->update, &update, &err) == PL_OK;
    if (!done)
        tap_diag("%s", err.text);
    return done && !update.skipped;
}

static void check(const training_case_t *c, const json_t *want)
{
    training_t t;
    pl_error_t err = {0};
    double *region[PL_REGIONS], metrics[2][2] = {{0}}, loss = 0, norm = 0,
                                gradients = INFINITY;
    if (!ok(training_init(&t, c, &err) == PL_OK, "%s can be described", c->name)) {
        tap_diag("%s", err.text);
        return;
    }
    regions_new(&t, region);
    for (int step = 0; step < TRAINING_STEPS; step++) {
        if (!train(&t, step, region, metrics))
            loss = INFINITY;
        const double *l = metrics[0],
                     wanted = number(json_object_get(want, "losses"), step);
        loss = tap_larger(loss, fabs(l[0] / l[1] - wanted) / wanted);
        double n = number(json_object_get(want, "norms"), step);
        norm = tap_larger(norm, fabs(metrics[1][0] - n) / n);
        if (step == 0)
            gradients = training_distance(&t, PL_REGION_PARAMS, region[PL_REGION_GRADS],
                                          t.nominal / l[1],
                                          json_object_get(want, "gradients"));
    }
    double state = training_distance(&t, PL_REGION_STATE, region[PL_REGION_STATE], 1,
                                     json_object_get(want, "state"));
    ok(loss < 1e-5, "%s: losses over %d steps are PyTorch's within %.1g", c->name,
       TRAINING_STEPS, loss);
    ok(gradients < 1e-4, "%s: gradients of the first step within %.1g", c->name,
       gradients);
    ok(norm < 1e-4, "%s: norms within %.1g", c->name, norm);
    ok(state < 1e-4, "%s: running statistics within %.1g", c->name, state);
    for (int r = 0; r < PL_REGIONS; r++)
        pl_free(region[r]);
    training_release(&t);
}

static void trainings_equal_torch(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/t/data/training.json",
             getenv("top_srcdir") ? getenv("top_srcdir") : "..");
    json_t *data = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!ok(data != NULL, "t/data/training.json can be read"))
        return;
    is_int(training_case_count, json_object_size(data),
           "every training of PyTorch has its case");
    for (int i = 0; i < training_case_count; i++)
        check(&training_cases[i], json_object_get(data, training_cases[i].name));
    json_decref(data);
}

int main(void)
{
    run(trainings_equal_torch);
    return tap_done();
}
