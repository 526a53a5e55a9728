/* replica_schedule.c - the learning rate of a replica's steps, and what its schedule
 * keeps; the share of its weights in their average */
#include "base/alloc.h"
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

int pl_replica_get_state(pl_replica_t *r, pl_call_t *call, pl_error_t *err)
{
    const pl_scheduler_ops_t *scheduler = r->scheduler.ops;
    if (!scheduler || !scheduler->save)
        return pl_reply_get_state(call, &(pl_get_state_reply_t){.state = ""});
    char *saved = scheduler->save(r->scheduler.self, err);
    if (!saved)
        return err->code;
    int code = pl_reply_get_state(call, &(pl_get_state_reply_t){.state = saved});
    pl_text_free(saved);
    return code;
}

int pl_replica_set_state(pl_replica_t *r, pl_call_t *call, const pl_set_state_t *msg,
                         pl_error_t *err)
{
    const pl_scheduler_ops_t *scheduler = r->scheduler.ops;
    int code = PL_OK;
    if (scheduler && scheduler->restore && *msg->state)
        code = scheduler->restore(r->scheduler.self, msg->state, err);
    return code == PL_OK ? pl_reply_set_state(call, &(pl_set_state_reply_t){0}) : code;
}
