/* replica_schedule.c - the learning rate of a replica's steps, and what its schedule
 * keeps; the share of its weights in their average */
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica_parts.h"

static pl_moment_t moment_of(const pl_train_batch_t *msg)
{
    return (pl_moment_t){.step = msg->global_step - 1,
                         .total_steps = msg->total_steps,
                         .epoch = msg->epoch,
                         .total_epochs = msg->total_epochs,
                         .epoch_ends = msg->epoch_ends};
}

double pl_replica_lr_factor(const pl_replica_t *r, const pl_train_batch_t *msg)
{
    const pl_scheduler_ops_t *scheduler = r->scheduler.ops;
    const pl_moment_t when = moment_of(msg);
    return msg->lr_factor * scheduler->factor(r->scheduler.self, &when);
}

double pl_replica_average_share(const pl_replica_t *r, const pl_train_batch_t *msg)
{
    const pl_averaging_ops_t *averaging = r->averaging.ops;
    const pl_moment_t when = moment_of(msg);
    return averaging ? averaging->share(r->averaging.self, &when) : 0;
}

int pl_replica_observe_figures(pl_replica_t *r, pl_call_t *call,
                               const pl_observe_figures_t *msg, pl_error_t *err)
{
    const pl_scheduler_ops_t *scheduler = r->scheduler.ops;
    int code = scheduler->observe
                   ? scheduler->observe(r->scheduler.self, msg->figures, err)
                   : PL_OK;
    if (code != PL_OK)
        return code;
    return pl_reply_observe_figures(call, &(pl_observe_figures_reply_t){0});
}

int pl_replica_keep_schedule(const pl_replica_t *r, json_t *into, pl_error_t *err)
{
    const pl_scheduler_ops_t *scheduler = r->scheduler.ops;
    if (!scheduler || !scheduler->save)
        return PL_OK;
    char *saved = scheduler->save(r->scheduler.self, err);
    json_t *value = saved ? pl_json_value(saved, strlen(saved), err) : NULL;
    pl_text_free(saved);
    if (!value)
        return err->code;
    return json_object_set_new(into, "schedule", value) == 0 ? PL_OK : pl_no_memory(err);
}

int pl_replica_restore_schedule(pl_replica_t *r, const json_t *from, pl_error_t *err)
{
    const pl_scheduler_ops_t *scheduler = r->scheduler.ops;
    const json_t *value = json_object_get(from, "schedule");
    if (!scheduler || !scheduler->restore)
        return PL_OK;
    if (!value)
        return pl_fail(err, PL_EFORMAT,
                       "the weights come with no state of schedule \"%s\"",
                       scheduler->name);
    char *saved = pl_json_write(value, PL_JSON_COMPACT);
    int code = saved ? scheduler->restore(r->scheduler.self, saved, err)
                     : pl_no_memory(err);
    pl_text_free(saved);
    return code;
}
