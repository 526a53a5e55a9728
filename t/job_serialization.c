/* job_serialization.c - tests of actors/launchers/job_serialization.c: what came of a
 * run comes whole, or not at all */
#include "actors/launchers/forwarding.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "scarce.h"
#include "tap.h"

static const float weight[3 * 4] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const float bias[3] = {13, 14, 15};

static pl_outcome_t *outcome_make(void)
{
    pl_outcome_t *outcome = pl_outcome_new(NULL);
    outcome->weights = pl_weights_new(NULL);
    outcome->outputs = pl_outputs_new(NULL);
    pl_weights_add(outcome->weights, "fc.weight", pl_shape(2, 3, 4), PL_F32, weight,
                   NULL);
    pl_weights_add(outcome->weights, "fc.bias", pl_shape(1, 3), PL_F32, bias, NULL);
    pl_outputs_add(outcome->outputs, "logits", pl_shape(2, 2, 3), NULL);
    memcpy(outcome->outputs->output[0].data, weight, 6 * sizeof *weight);
    outcome->metrics = pl_strdup("{\"train_loss\": 1}");
    outcome->run_dir = pl_strdup("runs/0001");
    outcome->callbacks = pl_strdup("[{\"name\": \"timer\", \"state\": \"\"}]");
    outcome->best = pl_strdup("runs/0001/checkpoints/best");
    return outcome;
}

static bool is_same(const pl_output_t *got, const pl_output_t *want)
{
    return !strcmp(got->name, want->name) && got->shape.rank == want->shape.rank
           && !memcmp(got->shape.dim, want->shape.dim,
                      (size_t)want->shape.rank * sizeof *want->shape.dim)
           && !memcmp(got->data, want->data,
                      (size_t)pl_elements(want->shape) * sizeof *want->data);
}

static bool is_whole(const pl_outcome_t *got, const pl_outcome_t *want)
{
    return got->weights && got->weights->count == 2 && got->outputs
           && got->outputs->count == 1
           && is_same(&got->weights->tensor[0], &want->weights->tensor[0])
           && is_same(&got->weights->tensor[1], &want->weights->tensor[1])
           && is_same(&got->outputs->output[0], &want->outputs->output[0])
           && !strcmp(got->metrics, want->metrics) && !strcmp(got->run_dir, want->run_dir)
           && !strcmp(got->callbacks, want->callbacks) && !strcmp(got->best, want->best);
}

static int there_and_back(void *user)
{
    const pl_outcome_t *outcome = user;
    pl_error_t err = {0};
    pl_blob_t *blob = pl_outcome_pack(outcome, &err);
    pl_outcome_t *got = blob ? pl_outcome_unpack(blob, &err) : NULL;
    int code = err.code;
    if (got)
        code = is_whole(got, outcome) ? PL_OK : PL_EPROTOCOL;
    pl_object_unref(blob);
    pl_object_unref(got);
    return code;
}

static void an_outcome_comes_whole_or_not_at_all(void)
{
    pl_outcome_t *outcome = outcome_make();
    is_int(there_and_back(outcome), PL_OK, "all tensors come");
    scarce_try(there_and_back, outcome, "without memory");
    pl_object_unref(outcome);
}

static void a_job_keeps_the_places_of_its_run_file(void)
{
    pl_error_t err = {0};
    pl_options_t *options = pl_options_parse("{\n\"trainer\": {\"seed\": 3,\n"
                                             "\"depth\": 1}}",
                                             "run.json", &err);
    pl_options_set(options, "trainer.depth", "2", &err);
    pl_job_t *job = pl_job_new(options, PL_TRAIN, &err);
    pl_blob_t *blob = job ? pl_job_pack(job, &err) : NULL;
    pl_job_t *came = blob ? pl_job_unpack(blob, &err) : NULL;
    if (ok(came, "it comes: %s", err.text)) {
        pl_options_fail(&err, PL_EINVAL, came->options, "trainer.seed", "wrong");
        is_text(err.text, "run.json:2:21: wrong", "with line and column");
        pl_options_fail(&err, PL_EINVAL, came->options, "trainer.depth", "wrong");
        is_text(err.text, "wrong", "unless the value was set");
    }
    pl_object_unref(came);
    pl_object_unref(blob);
    pl_object_unref(job);
    pl_options_free(options);
}

int main(void)
{
    scarce_init();
    run(a_job_keeps_the_places_of_its_run_file);
    run(an_outcome_comes_whole_or_not_at_all);
    return tap_done();
}
