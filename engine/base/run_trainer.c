/* run_trainer.c - trainer options: contradictions between them, and options that stand
 * for several others */
#include "base/run.h"

#include <string.h>

#include "base/bind.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"

/* ---- Contradictions ---- */

static int general_check(const pl_options_t *o, const pl_trainer_options_t *t,
                         pl_error_t *err)
{
    if (t->max_epochs >= 0 && t->min_epochs > t->max_epochs)
        return pl_options_fail(err, PL_EINVAL, o, "trainer.min_epochs",
                               "\"trainer.min_epochs\" is %lld, more than "
                               "\"trainer.max_epochs\", which is %lld: lower it",
                               (long long)t->min_epochs, (long long)t->max_epochs);
    if (t->max_steps >= 0 && t->min_steps > t->max_steps)
        return pl_options_fail(err, PL_EINVAL, o, "trainer.min_steps",
                               "\"trainer.min_steps\" is %lld, more than "
                               "\"trainer.max_steps\", which is %lld: lower it",
                               (long long)t->min_steps, (long long)t->max_steps);
    if (t->check_val_every_n_epoch == 0 && t->val_check_interval.is_share)
        return pl_options_fail(err, PL_EINVAL, o, "trainer.check_val_every_n_epoch",
                               "with \"trainer.check_val_every_n_epoch\" 0 batches are "
                               "counted across epochs: give "
                               "\"trainer.val_check_interval\" as a count or a time");
    if (t->nan_policy == PL_NAN_ROLLBACK && !t->enable_checkpointing)
        return pl_options_fail(err, PL_EINVAL, o, "trainer.nan_policy",
                               "\"trainer.nan_policy\" is \"rollback\", and "
                               "\"trainer.enable_checkpointing\" is false: there is "
                               "no checkpoint to resume");
    if (t->nan_policy == PL_NAN_SKIP && t->detect_anomaly)
        return pl_options_fail(err, PL_EINVAL, o, "trainer.detect_anomaly",
                               "\"trainer.detect_anomaly\" ends the run where "
                               "\"trainer.nan_policy\" \"skip\" would continue: remove "
                               "one");
    return PL_OK;
}

bool pl_trainer_is_elastic(const pl_trainer_options_t *trainer)
{
    return trainer->deterministic == PL_ELASTIC
           || (trainer->strategy.name && !strcmp(trainer->strategy.name, "elastic"));
}

static int time_check(const pl_options_t *o, const pl_trainer_options_t *t,
                      pl_error_t *err)
{
    pl_error_t why = {0};
    int64_t duration;
    if (*t->max_time && pl_duration_read(t->max_time, &duration, &why) != PL_OK)
        return pl_options_fail(err, PL_EINVAL, o, "trainer.max_time",
                               "\"trainer.max_time\": %s", why.text);
    const bool elastic = pl_trainer_is_elastic(t),
               deterministic = elastic || t->deterministic != PL_NOT_DETERMINISTIC;
    const char *kind = elastic ? "elastic" : "true";
    if (deterministic && *t->max_time)
        return pl_options_fail(err, PL_EINVAL, o, "trainer.max_time",
                               "\"trainer.max_time\" ends the run by the clock, and "
                               "\"trainer.deterministic\" is %s: remove one",
                               kind);
    if (deterministic && t->val_check_interval.is_time)
        return pl_options_fail(err, PL_EINVAL, o, "trainer.val_check_interval",
                               "\"trainer.val_check_interval\" is a time, and "
                               "\"trainer.deterministic\" is %s: give batches or a "
                               "share of the epoch",
                               kind);
    return PL_OK;
}

/* "global_batch_size" determines the samples of a micro-shard; "batch_size" may repeat
 * them. */
static int elastic_check(const pl_options_t *o, const pl_trainer_options_t *t,
                         pl_error_t *err)
{
    static const char key[] = "trainer.global_batch_size";
    const json_t *given = pl_options_value(o, "data.batch_size");
    if (t->sync_batchnorm && pl_trainer_is_elastic(t))
        return pl_options_fail(err, PL_EINVAL, o, "trainer.sync_batchnorm",
                               "\"trainer.sync_batchnorm\" normalises by the batches of "
                               "all ranks, and \"trainer.strategy\" is \"elastic\", "
                               "which normalises each micro-shard separately: "
                               "remove one");
    if (!t->global_batch_size)
        return PL_OK;
    if (!pl_trainer_is_elastic(t))
        return pl_options_fail(err, PL_EINVAL, o, key,
                               "\"%s\" is for \"trainer.strategy\" \"elastic\": "
                               "set that, or give each rank's \"data.batch_size\"",
                               key);
    if (t->global_batch_size % t->micro_shards)
        return pl_options_fail(err, PL_EINVAL, o, key,
                               "\"%s\" is %lld, not a multiple of %lld micro-shards: "
                               "set a multiple, or another "
                               "\"trainer.strategy.micro_shards\"",
                               key, (long long)t->global_batch_size,
                               (long long)t->micro_shards);
    const int64_t per_shard = t->global_batch_size / t->micro_shards;
    if (given && json_integer_value(given) != per_shard)
        return pl_options_fail(err, PL_EINVAL, o, "data.batch_size",
                               "\"data.batch_size\", of a micro-shard, is %lld, but %lld "
                               "samples in %lld micro-shards are %lld each: remove one",
                               (long long)json_integer_value(given),
                               (long long)t->global_batch_size,
                               (long long)t->micro_shards, (long long)per_shard);
    return PL_OK;
}

int pl_trainer_check(const pl_options_t *o, pl_error_t *err)
{
    pl_trainer_options_t trainer;
    pl_binding_t *binding = NULL;
    int code = pl_options_trainer(o, &trainer, &binding, err);
    if (code != PL_OK)
        return code;
    code = general_check(o, &trainer, err);
    if (code == PL_OK)
        code = time_check(o, &trainer, err);
    if (code == PL_OK)
        code = elastic_check(o, &trainer, err);
    pl_binding_free(binding);
    return code;
}

/* ---- Options that stand for several others ---- */

void pl_trainer_expand(pl_trainer_options_t *t, pl_data_options_t *data)
{
    if (t->overfit_batches.value > 0) {
        t->limit_train_batches = t->limit_val_batches = t->overfit_batches;
        data->loader.shuffle = false;
    }
    if (data->folds)
        data->val_split = 1 / (double)data->folds;
    if (t->global_batch_size)
        data->batch_size = t->global_batch_size / t->micro_shards;
    if (!t->fast_dev_run)
        return;
    const pl_amount_t few = {.value = (double)t->fast_dev_run};
    t->limit_train_batches = t->limit_val_batches = few;
    t->limit_test_batches = t->limit_predict_batches = few;
    t->val_check_interval = (pl_amount_t){.value = 1, .is_share = true};
    t->check_val_every_n_epoch = t->max_epochs = t->log_every_n_steps = 1;
    t->max_steps = t->fast_dev_run;
    t->min_epochs = t->min_steps = t->num_sanity_val_steps = 0;
}
