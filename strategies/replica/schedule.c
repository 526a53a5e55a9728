/* schedule.c - the learning rate of a replica's steps, the state of its schedule, and
 * the share of its weights in their average */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/run.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica/internal.h"

enum { LOOKS_MAX = 1 << 20 };                               /* steps; a few ms */

static pl_moment_t moment_of(const pl_train_batch_t *msg)
{
    return (pl_moment_t){.step = msg->global_step - 1,
                         .total_steps = msg->total_steps,
                         .epoch = msg->epoch,
                         .total_epochs = msg->total_epochs,
                         .epoch_steps = msg->epoch_steps,
                         .epoch_ends = msg->epoch_ends};
}

double pl_replica_lr_factor(const pl_replica_t *r, int objective,
                            const pl_train_batch_t *msg)
{
    const pl_instance_t *component = &r->objective[objective].scheduler;
    const pl_scheduler_ops_t *scheduler = component->ops;
    const pl_averaging_ops_t *averaging = r->averaging.ops;
    const pl_moment_t when = moment_of(msg);
    pl_moment_t start = when;
    const pl_optimizer_t *optimizer = r->objective[objective].optimizer;
    double lr = pl_optimizer_lr(optimizer, optimizer->group_count), at = lr;
    const double way = averaging && averaging->anneal && lr > 0
                           ? averaging->anneal(r->averaging.self, &when, &start, &at)
                           : 0;
    const double scheduled = scheduler->factor(component->self, &start);
    return msg->lr_factor
           * (way > 0 ? scheduled + (at / lr - scheduled) * way : scheduled);
}

double pl_replica_momentum(const pl_replica_t *r, int objective,
                           const pl_train_batch_t *msg)
{
    const pl_instance_t *component = &r->objective[objective].scheduler;
    const pl_scheduler_ops_t *scheduler = component->ops;
    const pl_moment_t when = moment_of(msg);
    return scheduler->momentum ? scheduler->momentum(component->self, &when) : NAN;
}

void pl_replica_check_average(const pl_replica_t *r, const pl_train_batch_t *msg)
{
    const pl_averaging_ops_t *averaging = r->averaging.ops;
    const uint64_t total = msg->total_steps;
    double share = 0;
    if (!averaging || !total || !msg->epoch_steps)
        return;
    /* Whether the run will end with a mean of several states of the weights: searches
     * from its end back to the step where the average is the weights of one step. */
    for (uint64_t k = 1; share == 0 && k <= total && k <= LOOKS_MAX; k++) {
        pl_moment_t when = moment_of(msg);                 /* as the loops will give it */
        when.step = total - k;
        when.epoch = when.step / msg->epoch_steps;
        when.epoch_ends = (when.step + 1) % msg->epoch_steps == 0;
        share = averaging->share(r->averaging.self, &when);
    }
    if (share >= 1)
        pl_log_line(
            PL_LOG_WARNING, pl_actor_rank((void *)r), pl_actor_name((void *)r),
            "\"averaging\": \"%s\" would average fewer than two states of the weights in "
            "a run of %llu epoch%s, %llu step%s: let it begin sooner, or train longer",
            averaging->name, (unsigned long long)msg->total_epochs,
            pl_plural((int64_t)msg->total_epochs), (unsigned long long)msg->total_steps,
            pl_plural((int64_t)msg->total_steps));
}

double pl_replica_average_share(const pl_replica_t *r, const pl_train_batch_t *msg)
{
    const pl_averaging_ops_t *averaging = r->averaging.ops;
    const pl_moment_t when = moment_of(msg);
    return averaging ? averaging->share(r->averaging.self, &when) : 0;
}

/* Metrics that a callback may log are not known before the first validation. */
int pl_replica_check_monitors(const pl_replica_t *r, pl_error_t *err)
{
    const bool validates = r->signature->stage[PL_VALIDATE].present;
    for (int k = 0; k < r->objectives; k++) {
        const pl_instance_t *component = &r->objective[k].scheduler;
        const pl_scheduler_ops_t *scheduler = component->ops;
        const char *name = scheduler->monitor ? scheduler->monitor(component->self) : "";
        if (!validates
            && !strncmp(name, pl_stages[PL_VALIDATE].prefix,
                        strlen(pl_stages[PL_VALIDATE].prefix)))
            return pl_fail(err, PL_EINVAL,
                           "schedule \"%s\" monitors \"%s\", and the run has no "
                           "validation data: set data.val_split, or scheduler.monitor to "
                           "a metric of training such as \"train_loss\"",
                           scheduler->name, name);
    }
    return PL_OK;
}

int pl_replica_observe_metrics(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    pl_replica_t *r = self;
    const pl_observe_metrics_t *msg = &body->observe_metrics;
    int code = PL_OK;
    for (int k = 0; k < r->objectives && code == PL_OK; k++) {
        const pl_scheduler_ops_t *scheduler = r->objective[k].scheduler.ops;
        if (scheduler->observe)
            code = scheduler->observe(r->objective[k].scheduler.self, msg->metrics, err);
    }
    if (code != PL_OK)
        return code;
    return pl_reply_observe_metrics(call, &(pl_observe_metrics_reply_t){0});
}

/* ---- "schedule": its state, or an object with the state of each objective ---- */

static int schedule_save(const pl_instance_t *component, const char *name, json_t *into,
                         pl_error_t *err)
{
    const pl_scheduler_ops_t *scheduler = component->ops;
    if (!scheduler->save)
        return PL_OK;
    char *saved = scheduler->save(component->self, err);
    json_t *value = saved ? pl_json_value(saved, strlen(saved), err) : NULL;
    pl_text_free(saved);
    if (!value)
        return err->code;
    return json_object_set_new(into, name, value) == 0 ? PL_OK : pl_no_memory(err);
}

int pl_replica_save_schedule(const pl_replica_t *r, json_t *into, pl_error_t *err)
{
    if (r->objectives && !r->objective[0].table)
        return schedule_save(&r->objective[0].scheduler, "schedule", into, err);
    json_t *by_objective = json_object();
    int code = by_objective ? PL_OK : pl_no_memory(err);
    for (int k = 0; k < r->objectives && code == PL_OK; k++)
        code = schedule_save(&r->objective[k].scheduler, r->objective[k].table->name,
                             by_objective, err);
    if (code == PL_OK && json_object_size(by_objective)
        && json_object_set(into, "schedule", by_objective) != 0)
        code = pl_no_memory(err);
    json_decref(by_objective);
    return code;
}

int pl_replica_restore_schedule(pl_replica_t *r, const json_t *from, pl_error_t *err)
{
    const json_t *all = json_object_get(from, "schedule");
    int code = PL_OK;
    for (int k = 0; k < r->objectives && code == PL_OK; k++) {
        const pl_module_objective_t *objective = r->objective[k].table;
        const pl_instance_t *component = &r->objective[k].scheduler;
        const pl_scheduler_ops_t *scheduler = component->ops;
        const json_t *value = objective ? json_object_get(all, objective->name) : all;
        if (!scheduler->restore)
            continue;
        if (!value)
            return pl_fail(err, PL_EFORMAT,
                           "the checkpoint has no state of schedule \"%s\"",
                           scheduler->name);
        char *saved = pl_json_write(value, PL_JSON_COMPACT);
        code = saved ? scheduler->restore(component->self, saved, err)
                     : pl_no_memory(err);
        pl_text_free(saved);
    }
    return code;
}

/* ---- rates that are set in the middle of a run ---- */

int pl_replica_set_rate(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    pl_replica_t *r = self;
    const pl_set_rate_t *msg = &body->set_rate;
    int meant = 0;
    for (int k = 0; k < r->objectives; k++) {
        pl_replica_rate_t *rate = &r->objective[k].rate;
        /* Each objective has a factor on the rate of its schedule. A rate that is set
         * becomes a factor at the next step whose rate is not 0: that step has the set
         * rate, and the schedule continues from there in proportion. */
        const pl_module_objective_t *table = r->objective[k].table;
        if (*msg->optimizer && (!table || strcmp(table->name, msg->optimizer)))
            continue;
        meant++;
        rate->aims = !msg->is_factor;
        *(msg->is_factor ? &rate->factor : &rate->aim) = msg->value;
    }
    if (meant)
        return pl_reply_set_rate(call, &(pl_set_rate_reply_t){0});
    if (r->objectives && !r->objective[0].table)
        return pl_fail(
            err, PL_EINVAL,
            "no optimizer \"%s\": the module has only one objective, without a name",
            msg->optimizer);
    return pl_fail(err, PL_EINVAL,
                   "no optimizer \"%s\": the module's first objective is \"%s\"",
                   msg->optimizer, r->objectives ? r->objective[0].table->name : "");
}

double pl_replica_rate(pl_replica_t *r, int objective, const pl_train_batch_t *msg)
{
    pl_replica_rate_t *rate = &r->objective[objective].rate;
    const pl_optimizer_t *optimizer = r->objective[objective].optimizer;
    const double scheduled = pl_replica_lr_factor(r, objective, msg),
                 factor =
                     rate->aim
                     / (scheduled * pl_optimizer_lr(optimizer, optimizer->group_count));
    const bool is_due = msg->global_step % (uint64_t)r->objective[objective].every == 0;
    if (rate->aims && is_due && isfinite(factor)) {
        rate->aims = false;
        rate->factor = factor;
    }
    return scheduled * rate->factor;
}

/* ---- in checkpoints: {"rates": [[factor, aim or null], …]}, one for each objective
 * ---- */

int pl_replica_save_rates(const pl_replica_t *r, json_t *into, pl_error_t *err)
{
    bool is_as_scheduled = true;
    for (int k = 0; k < r->objectives; k++)
        is_as_scheduled &= !r->objective[k].rate.aims && r->objective[k].rate.factor == 1;
    if (is_as_scheduled)
        return PL_OK;
    json_t *rates = json_array();
    int failed = json_object_set_new(into, "rates", rates);
    for (int k = 0; k < r->objectives && !failed; k++) {
        const pl_replica_rate_t *rate = &r->objective[k].rate;
        json_t *aim = rate->aims ? json_real(rate->aim) : json_null();
        failed = json_array_append_new(rates, json_pack("[f, o]", rate->factor, aim));
    }
    return failed ? pl_no_memory(err) : PL_OK;
}

int pl_replica_restore_rates(pl_replica_t *r, const json_t *from, pl_error_t *err)
{
    const json_t *rates = json_object_get(from, "rates");
    for (int k = 0; rates && k < r->objectives; k++) {
        const json_t *kept = json_array_get(rates, (size_t)k),
                     *factor = json_array_get(kept, 0), *aim = json_array_get(kept, 1);
        if (!json_is_number(factor))
            return pl_fail(
                err, PL_EFORMAT,
                "the state of the checkpoint has learning rates that are not numbers");
        r->objective[k].rate = (pl_replica_rate_t){.factor = json_number_value(factor),
                                                   .aims = json_is_number(aim),
                                                   .aim = json_number_value(aim)};
    }
    return PL_OK;
}
