/* rig_runs.c - runs that several tests make */
#include "rig_runs.h"

#include <math.h>
#include <stdio.h>

#include "tap.h"

rig_result_t *rig_ranks_train(int ranks, int batch, const char *trainer,
                              const rig_spec_t *given)
{
    char members[512], data[256];
    rig_spec_t spec = *given;
    snprintf(members, sizeof members,
             "\"num_sanity_val_steps\": 0, \"log_every_n_steps\": 1, \"devices\": %d, %s",
             ranks, trainer);
    snprintf(data, sizeof data, "\"batch_size\": %d%s%s", batch, spec.data ? ", " : "",
             spec.data ? spec.data : "");
    spec.trainer = members;
    spec.data = data;
    return rig_train(&spec);
}

double rig_losses_differ(const rig_result_t *a, const rig_result_t *b)
{
    const rig_series_t x = rig_series(a, "train_loss"), y = rig_series(b, "train_loss");
    double worst = x.count == y.count && x.count ? 0 : INFINITY;
    for (int k = 0; k < x.count && isfinite(worst); k++)
        worst = tap_larger(worst, fabs(x.value[k] - y.value[k]));
    return worst;
}

static void stop_at_the_second(rig_t *rig, const pl_progress_t *progress)
{
    if (progress->global_step == 2)
        pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

rig_t *rig_search_stopped(const char *trainer, const rig_result_t **result)
{
    rig_t *rig = rig_new(.samples = 20000, .trainer = trainer,
                         .on_progress = stop_at_the_second);
    const pl_tuning_t power = {.batch_size = "power",
                               .max_trials = 30,
                               .steps_per_trial = 3};
    *result = rig_tune(rig, &power);
    is_text((*result)->status, "stopped", "it ends early: %s", (*result)->error.text);
    return rig;
}
