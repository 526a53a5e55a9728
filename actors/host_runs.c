/* host_runs.c - what a program asks its trainers to run */
#include "actors/host_parts.h"
#include "actors/request.h"
#include "actors/tuning.h"
#include "base/alloc.h"
#include "base/error.h"

enum { TOKENS_MAX = 100000000 };

static int trainer_free_to_run(const pl_trainer_t *trainer, pl_error_t *err)
{
    if (pl_require(trainer, "a trainer", err) != PL_OK)
        return PL_EINVAL;
    if (trainer->freed || trainer->engine->closing)
        return pl_fail(err, PL_ESTATE, "the engine is closing or the trainer was freed");
    if (trainer->running)
        return pl_fail(
            err, PL_ESTATE,
            "this trainer is running: wait for on_done, or use another trainer");
    return PL_OK;
}

int pl_trainer_fit(pl_trainer_t *trainer, pl_on_done_t on_done, void *user,
                   pl_error_t *err)
{
    int code = trainer_free_to_run(trainer, err);
    pl_job_t *job = code == PL_OK ? pl_job_new(trainer->options, PL_TRAIN, err) : NULL;
    if (code != PL_OK || !job)
        return code != PL_OK ? code : PL_ENOMEM;
    return pl_trainer_begin(trainer, job, on_done, user, err);
}

int pl_trainer_resume(pl_trainer_t *trainer, const char *from, pl_on_done_t on_done,
                      void *user, pl_error_t *err)
{
    int code = trainer_free_to_run(trainer, err);
    pl_job_t *job = code == PL_OK ? pl_job_new(trainer->options, PL_TRAIN, err) : NULL;
    if (code != PL_OK || !job)
        return code != PL_OK ? code : PL_ENOMEM;
    job->resumes = true;
    job->resume = from ? pl_run_path(from) : NULL;
    if (!from || job->resume)
        return pl_trainer_begin(trainer, job, on_done, user, err);
    pl_object_unref(job);
    return pl_no_memory(err);
}

int pl_trainer_tune(pl_trainer_t *trainer, const pl_tuning_t *given, pl_on_done_t on_done,
                    void *user, pl_error_t *err)
{
    pl_tuning_t what = {0};
    pl_error_t why = {0};
    int code = trainer_free_to_run(trainer, err);
    if (code == PL_OK)
        code = pl_require(given, "what to tune", err);
    if (code == PL_OK) {
        what = *given;
        code = pl_tuning_defaults(&what, err);
    }
    if (code != PL_OK)
        return code;
    pl_job_t *job = pl_tuning_job(trainer->options, &what, &why);
    if (!job)
        return pl_fail(err, why.code, "%s", why.text);
    return pl_trainer_begin(trainer, job, on_done, user, err);
}

int pl_trainer_compile(pl_trainer_t *trainer, pl_stage_t stage, pl_on_done_t on_done,
                       void *user, pl_error_t *err)
{
    int code = trainer_free_to_run(trainer, err);
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
    int code = trainer_free_to_run(trainer, err);
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
    int code = trainer_free_to_run(trainer, err);
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
    if (job->checkpoint && !job->prompt == !what->prompt)
        return pl_trainer_begin(trainer, job, on_done, user, err);
    pl_object_unref(job);
    return pl_no_memory(err);
}
