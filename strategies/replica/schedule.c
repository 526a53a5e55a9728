/* schedule.c - the schedules of a replica: metrics that they monitor, rates that are set
 * in the middle of a run, and their state in checkpoints; step.c asks them for a step's
 * values */
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/run.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica/internal.h"

const pl_schedule_name_t pl_schedule_names[PL_SCHEDULES] = {
    [PL_SCHEDULE_RATE] = {"scheduler", "schedule"},
    [PL_SCHEDULE_MOMENTUM] = {"momentum_scheduler", "momentum_schedule"},
    [PL_SCHEDULE_DECAY] = {"weight_decay_scheduler", "weight_decay_schedule"},
};

/* Visits all schedules, until one fails. */
typedef int schedule_visit_t(const pl_replica_t *r, int objective, int kind,
                             const void *context, pl_error_t *err);
static int schedules_visit(const pl_replica_t *r, schedule_visit_t *visit,
                           const void *context, pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < r->objectives && code == PL_OK; k++)
        for (int kind = 0; kind < PL_SCHEDULES && code == PL_OK; kind++)
            if (r->objective[k].schedule[kind].ops)
                code = visit(r, k, kind, context, err);
    return code;
}

/* Metrics that a callback may log are not known before the first validation. */
static int monitor_check(const pl_replica_t *r, int objective, int kind,
                         const void *context, pl_error_t *err)
{
    const pl_instance_t *component = &r->objective[objective].schedule[kind];
    const pl_scheduler_ops_t *scheduler = component->ops;
    const char *name = scheduler->monitor ? scheduler->monitor(component->self) : "",
               *prefix = pl_stages[PL_VALIDATE].prefix;
    (void)context;
    if (r->signature->stage[PL_VALIDATE].present
        || strncmp(name, prefix, strlen(prefix)) != 0)
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "schedule \"%s\" monitors \"%s\", and the run has no validation data: "
                   "set data.val_split, or %s.monitor to a metric of training such as "
                   "\"train_loss\"",
                   scheduler->name, name, pl_schedule_names[kind].section);
}

int pl_replica_check_monitors(const pl_replica_t *r, pl_error_t *err)
{
    return schedules_visit(r, monitor_check, NULL, err);
}

static int schedule_observe(const pl_replica_t *r, int objective, int kind,
                            const void *metrics, pl_error_t *err)
{
    const pl_instance_t *component = &r->objective[objective].schedule[kind];
    const pl_scheduler_ops_t *scheduler = component->ops;
    return scheduler->observe ? scheduler->observe(component->self, metrics, err) : PL_OK;
}

int pl_replica_observe_metrics(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    const pl_replica_t *r = self;
    const int code = schedules_visit(r, schedule_observe, body->observe_metrics.metrics,
                                     err);
    if (code != PL_OK)
        return code;
    return pl_reply_observe_metrics(call, &(pl_observe_metrics_reply_t){0});
}

/* ---- in checkpoints: the state of a schedule, or an object with the state of each
 * objective ---- */

static int schedule_save(const pl_replica_t *r, int objective, int kind,
                         const void *context, pl_error_t *err)
{
    json_t *into = (json_t *)context;
    const char *key = pl_schedule_names[kind].state;
    const pl_module_objective_t *table = r->objective[objective].table;
    const pl_instance_t *component = &r->objective[objective].schedule[kind];
    const pl_scheduler_ops_t *scheduler = component->ops;
    if (!scheduler->save)
        return PL_OK;
    char *saved = scheduler->save(component->self, err);
    json_t *value = saved ? pl_json_value(saved, strlen(saved), err) : NULL;
    pl_text_free(saved);
    if (!value)
        return err->code;
    if (table && !json_object_get(into, key))
        json_object_set_new(into, key, json_object());
    json_t *in = table ? json_object_get(into, key) : into;
    return json_object_set_new(in, table ? table->name : key, value) == 0
               ? PL_OK
               : pl_no_memory(err);
}

int pl_replica_save_schedule(const pl_replica_t *r, json_t *into, pl_error_t *err)
{
    return schedules_visit(r, schedule_save, into, err);
}

static int schedule_restore(const pl_replica_t *r, int objective, int kind,
                            const void *from, pl_error_t *err)
{
    const json_t *all = json_object_get(from, pl_schedule_names[kind].state);
    const pl_module_objective_t *table = r->objective[objective].table;
    const pl_instance_t *component = &r->objective[objective].schedule[kind];
    const pl_scheduler_ops_t *scheduler = component->ops;
    const json_t *value = table ? json_object_get(all, table->name) : all;
    if (!scheduler->restore)
        return PL_OK;
    if (!value)
        return pl_fail(err, PL_EFORMAT, "the checkpoint has no state of schedule \"%s\"",
                       scheduler->name);
    char *saved = pl_json_write(value, PL_JSON_COMPACT);
    const int code = saved ? scheduler->restore(component->self, saved, err)
                           : pl_no_memory(err);
    pl_text_free(saved);
    return code;
}

int pl_replica_restore_schedule(pl_replica_t *r, const json_t *from, pl_error_t *err)
{
    return schedules_visit(r, schedule_restore, from, err);
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
