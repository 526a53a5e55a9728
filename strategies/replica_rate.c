/* replica_rate.c - learning rates that somebody sets in the middle of a run
 *
 * Each of the module's steps has a factor on what its schedule says.  A rate that is set
 * becomes one when the next step comes whose rate is not 0: that step is made at it, and
 * the schedule goes on from there in proportion. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica_parts.h"

static bool is_meant(const pl_replica_t *r, int step, const char *name)
{
    const pl_module_step_t *table = r->step[step].table;
    return !*name || (table && !strcmp(table->name, name));
}

int pl_replica_set_rate(pl_replica_t *r, pl_call_t *call, const pl_set_rate_t *msg,
                        pl_error_t *err)
{
    int meant = 0;
    for (int k = 0; k < r->steps; k++) {
        pl_replica_rate_t *rate = &r->step[k].rate;
        if (!is_meant(r, k, msg->optimizer))
            continue;
        meant++;
        rate->aims = !msg->is_factor;
        *(msg->is_factor ? &rate->factor : &rate->aim) = msg->value;
    }
    if (meant)
        return pl_reply_set_rate(call, &(pl_set_rate_reply_t){0});
    if (r->steps && !r->step[0].table)
        return pl_fail(
            err, PL_EINVAL,
            "no optimizer \"%s\": the module has only one objective, without a name",
            msg->optimizer);
    return pl_fail(err, PL_EINVAL,
                   "no optimizer \"%s\": the module's first objective is \"%s\"",
                   msg->optimizer, r->steps ? r->step[0].table->name : "");
}

double pl_replica_rate(pl_replica_t *r, int step, const pl_train_batch_t *msg)
{
    pl_replica_rate_t *rate = &r->step[step].rate;
    const pl_optimizer_t *optimizer = r->step[step].optimizer;
    const double scheduled = pl_replica_lr_factor(r, step, msg),
                 factor =
                     rate->aim
                     / (scheduled * pl_optimizer_lr(optimizer, optimizer->group_count));
    const bool is_due = msg->global_step % (uint64_t)r->step[step].every == 0;
    if (rate->aims && is_due && isfinite(factor)) {
        rate->aims = false;
        rate->factor = factor;
    }
    return scheduled * rate->factor;
}

/* ---- in checkpoints: {"rates": [[factor, aim or null], …]}, one for each step ---- */

static bool is_as_scheduled(const pl_replica_t *r)
{
    for (int k = 0; k < r->steps; k++)
        if (r->step[k].rate.aims || r->step[k].rate.factor != 1)
            return false;
    return true;
}

int pl_replica_keep_rates(const pl_replica_t *r, json_t *into, pl_error_t *err)
{
    if (is_as_scheduled(r))
        return PL_OK;
    json_t *rates = json_array();
    int failed = json_object_set_new(into, "rates", rates);
    for (int k = 0; k < r->steps && !failed; k++) {
        const pl_replica_rate_t *rate = &r->step[k].rate;
        json_t *aim = rate->aims ? json_real(rate->aim) : json_null();
        failed = json_array_append_new(rates, json_pack("[f, o]", rate->factor, aim));
    }
    return failed ? pl_no_memory(err) : PL_OK;
}

int pl_replica_restore_rates(pl_replica_t *r, const json_t *from, pl_error_t *err)
{
    const json_t *rates = json_object_get(from, "rates");
    for (int k = 0; rates && k < r->steps; k++) {
        const json_t *kept = json_array_get(rates, (size_t)k),
                     *factor = json_array_get(kept, 0), *aim = json_array_get(kept, 1);
        if (!json_is_number(factor))
            return pl_fail(
                err, PL_EFORMAT,
                "the state of the checkpoint has learning rates that are not numbers");
        r->step[k].rate = (pl_replica_rate_t){.factor = json_number_value(factor),
                                              .aims = json_is_number(aim),
                                              .aim = json_number_value(aim)};
    }
    return PL_OK;
}
