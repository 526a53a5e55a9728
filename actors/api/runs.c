/* runs.c - the kinds of run that a program requests: each becomes a job of its trainer */
#include <stdio.h>
#include <string.h>

#include "actors/api/host.h"
#include "actors/request.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"

enum { TOKENS_MAX = 100000000, TUNING_COUNT_MAX = 1000000 };

static int trainer_is_idle(const pl_trainer_t *trainer, pl_error_t *err)
{
    if (pl_require(trainer, "a trainer", err) != PL_OK)
        return PL_EINVAL;
    if (trainer->is_freed || trainer->engine->is_closing)
        return pl_fail(err, PL_ESTATE, "the engine is closing or the trainer was freed");
    if (trainer->is_running)
        return pl_fail(
            err, PL_ESTATE,
            "this trainer is running: wait for on_done, or use another trainer");
    return PL_OK;
}

/* ---- Training ---- */

/* from: of a run that is resumed  [the newest checkpoint]. */
static int trainer_train(pl_trainer_t *trainer, bool resumes, const char *from,
                         pl_on_done_t on_done, void *user, pl_error_t *err)
{
    int code = trainer_is_idle(trainer, err);
    pl_job_t *job = code == PL_OK ? pl_job_new(trainer->options, PL_TRAIN, err) : NULL;
    if (code != PL_OK || !job)
        return code != PL_OK ? code : PL_ENOMEM;
    job->resumes = resumes;
    job->resume = from ? pl_run_path(from) : NULL;
    if (!from || job->resume)
        return pl_trainer_begin(trainer, job, on_done, user, err);
    pl_object_unref(job);
    return pl_no_memory(err);
}

int pl_trainer_fit(pl_trainer_t *trainer, pl_on_done_t on_done, void *user,
                   pl_error_t *err)
{
    return trainer_train(trainer, false, NULL, on_done, user, err);
}

int pl_trainer_resume(pl_trainer_t *trainer, const char *from, pl_on_done_t on_done,
                      void *user, pl_error_t *err)
{
    return trainer_train(trainer, true, from, on_done, user, err);
}

/* ---- Searches for a learning rate or a batch size ---- */

/* Fills in the defaults. The mode becomes a text that lives as long as the program. */
static int tuning_complete(pl_tuning_t *what, pl_error_t *err)
{
    static const char *const modes[] = {"power", "binsearch"};
    what->min_lr = what->min_lr == 0 ? 1e-8 : what->min_lr;
    what->max_lr = what->max_lr == 0 ? 1 : what->max_lr;
    what->num_training = what->num_training ? what->num_training : 100;
    what->steps_per_trial = what->steps_per_trial ? what->steps_per_trial : 5;
    what->init_val = what->init_val ? what->init_val : 2;
    what->max_trials = what->max_trials ? what->max_trials : 25;
    if (!(what->min_lr > 0 && what->min_lr < what->max_lr && what->max_lr <= 1e6))
        return pl_fail(
            err, PL_EINVAL,
            "the learning rates go from %g to %g: the first must be above 0 and below "
            "the last",
            what->min_lr, what->max_lr);
    if (!(what->early_stop_threshold >= 0))
        return pl_fail(err, PL_EINVAL, "early_stop_threshold is %g: set it to 0 or more",
                       what->early_stop_threshold);
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"num_training", what->num_training},
                  {"steps_per_trial", what->steps_per_trial},
                  {"init_val", what->init_val},
                  {"max_trials", what->max_trials}};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        if (counts[k].value < 1 || counts[k].value > TUNING_COUNT_MAX)
            return pl_fail(err, PL_EINVAL, "%s is %lld: set it to a number from 1 to %d",
                           counts[k].name, (long long)counts[k].value, TUNING_COUNT_MAX);
    if (what->max_memory < 0)
        return pl_fail(err, PL_EINVAL, "max_memory is %lld: set it to 0 or more",
                       (long long)what->max_memory);
    const char *mode = what->batch_size;
    if (!mode)
        return PL_OK;
    what->batch_size = !strcmp(mode, modes[0])   ? modes[0]
                       : !strcmp(mode, modes[1]) ? modes[1]
                                                 : NULL;
    return what->batch_size
               ? PL_OK
               : pl_fail(err, PL_EINVAL,
                         "the search for a batch size has the modes \"power\" and "
                         "\"binsearch\", not \"%s\"",
                         mode);
}

int pl_trainer_tune(pl_trainer_t *trainer, const pl_tuning_t *given, pl_on_done_t on_done,
                    void *user, pl_error_t *err)
{
    pl_tuning_t what = {0};
    pl_error_t why = {0};
    int code = trainer_is_idle(trainer, err);
    if (code == PL_OK)
        code = pl_require(given, "what to tune", err);
    if (code == PL_OK) {
        what = *given;
        code = tuning_complete(&what, err);
    }
    if (code != PL_OK)
        return code;
    /* A rate of 1 and no schedule: then the factor of a step is its rate. A search for a
     * batch size begins without the size of the run file, which may not fit. */
    char size[24];
    snprintf(size, sizeof size, "%d", (int)(what.init_val < 2 ? what.init_val : 2));
    pl_options_t *options = pl_options_clone(trainer->options, &why);
    code = options ? pl_options_needs(options, "optimizer", "optimizer", &why)
                   : PL_ENOMEM;
    if (code == PL_OK)
        code = pl_options_set(options, "optimizer.lr", "1.0", &why);
    if (code == PL_OK)
        code = pl_options_set(options, "scheduler", "null", &why);
    if (code == PL_OK && what.batch_size)
        code = pl_options_set(options, "data.batch_size", size, &why);
    pl_job_t *job = code == PL_OK ? pl_job_new(options, PL_TRAIN, &why) : NULL;
    if (job)
        job->tuning = what;
    pl_options_free(options);
    if (!job)
        return pl_fail(err, why.code, "%s", why.text);
    return pl_trainer_begin(trainer, job, on_done, user, err);
}

/* ---- Other runs ---- */

int pl_trainer_compile(pl_trainer_t *trainer, pl_stage_t stage, pl_on_done_t on_done,
                       void *user, pl_error_t *err)
{
    int code = trainer_is_idle(trainer, err);
    if (code == PL_OK && (stage < PL_TRAIN || stage > PL_PREDICT))
        code = pl_fail(err, PL_EINVAL, "there is no stage %d", (int)stage);
    pl_job_t *job = code == PL_OK ? pl_job_new(trainer->options, stage, err) : NULL;
    if (code != PL_OK || !job)
        return code != PL_OK ? code : PL_ENOMEM;
    job->compiles = true;
    return pl_trainer_begin(trainer, job, on_done, user, err);
}

/* Validates or tests the weights of a checkpoint. */
static int trainer_measure(pl_trainer_t *trainer, pl_stage_t stage,
                           const char *checkpoint, pl_on_done_t on_done, void *user,
                           pl_error_t *err)
{
    int code = trainer_is_idle(trainer, err);
    if (code == PL_OK && !checkpoint)
        code = pl_fail(err, PL_EINVAL,
                       "%s needs weights: a .safetensors file or a run directory",
                       stage == PL_TEST ? "testing" : "validating");
    pl_job_t *job = code == PL_OK ? pl_job_new(trainer->options, stage, err) : NULL;
    if (code != PL_OK || !job)
        return code != PL_OK ? code : PL_ENOMEM;
    job->checkpoint = pl_run_path(checkpoint);
    if (job->checkpoint)
        return pl_trainer_begin(trainer, job, on_done, user, err);
    pl_object_unref(job);
    return pl_no_memory(err);
}

int pl_trainer_validate(pl_trainer_t *trainer, const char *checkpoint,
                        pl_on_done_t on_done, void *user, pl_error_t *err)
{
    return trainer_measure(trainer, PL_VALIDATE, checkpoint, on_done, user, err);
}

int pl_trainer_test(pl_trainer_t *trainer, const char *checkpoint, pl_on_done_t on_done,
                    void *user, pl_error_t *err)
{
    return trainer_measure(trainer, PL_TEST, checkpoint, on_done, user, err);
}

int pl_trainer_predict(pl_trainer_t *trainer, const pl_prediction_t *what,
                       pl_on_done_t on_done, void *user, pl_error_t *err)
{
    int code = trainer_is_idle(trainer, err);
    if (code == PL_OK)
        code = pl_require(what, "what to predict", err);
    if (code == PL_OK && what->prompt && (what->tokens < 0 || what->tokens > TOKENS_MAX))
        code = pl_fail(err, PL_EINVAL, "tokens is %lld: set it to a number from 0 to %d",
                       (long long)what->tokens, TOKENS_MAX);
    if (code == PL_OK && !(what->temperature >= 0 && what->temperature <= 1e6))
        code = pl_fail(err, PL_EINVAL,
                       "temperature is %g: set it to a number from 0 to 1e6",
                       what->temperature);
    if (code == PL_OK && what->top_k < 0)
        code = pl_fail(err, PL_EINVAL,
                       "top_k is %lld: set it to the number of tokens to choose from, "
                       "or to 0 for all",
                       (long long)what->top_k);
    if (code == PL_OK && !what->checkpoint)
        code =
            pl_fail(err, PL_EINVAL,
                    "predicting needs weights: a .safetensors file or a run directory");
    pl_job_t *job = code == PL_OK ? pl_job_new(trainer->options, PL_PREDICT, err) : NULL;
    if (code != PL_OK || !job)
        return code != PL_OK ? code : PL_ENOMEM;
    job->checkpoint = pl_run_path(what->checkpoint);
    job->prompt = what->prompt ? pl_strdup(what->prompt) : NULL;
    job->tokens = what->tokens;
    job->temperature = what->temperature;
    job->top_k = what->top_k;
    job->no_cache = what->no_cache;
    if (job->checkpoint && !job->prompt == !what->prompt)
        return pl_trainer_begin(trainer, job, on_done, user, err);
    pl_object_unref(job);
    return pl_no_memory(err);
}
