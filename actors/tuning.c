/* tuning.c - what a search for a learning rate or a batch size is told, checked before it
 * begins */
#include "actors/tuning.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"

enum { COUNT_MAX = 1000000 };

static int rates_check(const pl_tuning_t *what, pl_error_t *err)
{
    if (!(what->min_lr > 0 && what->min_lr < what->max_lr && what->max_lr <= 1e6))
        return pl_fail(
            err, PL_EINVAL,
            "the learning rates go from %g to %g: the first must be above 0 and below "
            "the last",
            what->min_lr, what->max_lr);
    if (!(what->early_stop_threshold >= 0))
        return pl_fail(err, PL_EINVAL, "early_stop_threshold is %g: set it to 0 or more",
                       what->early_stop_threshold);
    return PL_OK;
}

static int count_check(const char *name, int64_t count, pl_error_t *err)
{
    if (count >= 1 && count <= COUNT_MAX)
        return PL_OK;
    return pl_fail(err, PL_EINVAL, "%s is %lld: set it to a number from 1 to %d", name,
                   (long long)count, COUNT_MAX);
}

/* The text becomes one that lives as long as the program. */
static int mode_default(const char **mode, pl_error_t *err)
{
    static const char *const modes[] = {"power", "binsearch"};
    for (int k = 0; *mode && k < 2; k++)
        if (!strcmp(*mode, modes[k])) {
            *mode = modes[k];
            return PL_OK;
        }
    return *mode ? pl_fail(err, PL_EINVAL,
                           "the search for a batch size has the modes \"power\" and "
                           "\"binsearch\", not \"%s\"",
                           *mode)
                 : PL_OK;
}

int pl_tuning_defaults(pl_tuning_t *what, pl_error_t *err)
{
    what->min_lr = what->min_lr == 0 ? 1e-8 : what->min_lr;
    what->max_lr = what->max_lr == 0 ? 1 : what->max_lr;
    what->num_training = what->num_training ? what->num_training : 100;
    what->steps_per_trial = what->steps_per_trial ? what->steps_per_trial : 5;
    what->init_val = what->init_val ? what->init_val : 2;
    what->max_trials = what->max_trials ? what->max_trials : 25;
    int code = rates_check(what, err);
    if (code == PL_OK)
        code = count_check("num_training", what->num_training, err);
    if (code == PL_OK)
        code = count_check("steps_per_trial", what->steps_per_trial, err);
    if (code == PL_OK)
        code = count_check("init_val", what->init_val, err);
    if (code == PL_OK)
        code = count_check("max_trials", what->max_trials, err);
    if (code == PL_OK && what->max_memory < 0)
        code = pl_fail(err, PL_EINVAL, "max_memory is %lld: set it to 0 or more",
                       (long long)what->max_memory);
    return code == PL_OK ? mode_default(&what->batch_size, err) : code;
}

/* The run file's own size may be one that does not fit: a search begins without it. */
static int size_begin(pl_options_t *options, const pl_tuning_t *what, pl_error_t *err)
{
    char text[24];
    snprintf(text, sizeof text, "%d", (int)(what->init_val < 2 ? what->init_val : 2));
    return what->batch_size ? pl_options_set(options, "data.batch_size", text, err)
                            : PL_OK;
}

/* A rate of 1 and no schedule: then the factor of a step is its rate. */
pl_job_t *pl_tuning_job(const pl_options_t *given, const pl_tuning_t *what,
                        pl_error_t *err)
{
    pl_options_t *options = pl_options_clone(given, err);
    int code = options ? pl_options_needs(options, "optimizer", "optimizer", err)
                       : PL_ENOMEM;
    if (code == PL_OK)
        code = pl_options_set(options, "optimizer.lr", "1.0", err);
    if (code == PL_OK)
        code = pl_options_set(options, "scheduler", "null", err);
    if (code == PL_OK)
        code = size_begin(options, what, err);
    pl_job_t *job = code == PL_OK ? pl_job_new(options, PL_TRAIN, err) : NULL;
    if (job)
        job->tuning = *what;
    pl_options_free(options);
    return job;
}
