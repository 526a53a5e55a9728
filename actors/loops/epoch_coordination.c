/* epoch_coordination.c - decisions that follow from no step, made on all ranks alike
 *
 * A stop, or a time that has passed, is heard by one rank at some moment.  It announces
 * that; all ranks halt at the same batch, and do there what rank zero has heard.  The
 * only rank does it at once. */
#include <stdio.h>
#include <string.h>

#include "actors/loops/epoch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "base/log.h"

void pl_epoch_request_stop(pl_epoch_t *e, const char *reason)
{
    bool first = !*e->stop_request;
    if (e->stopping)
        return;
    if (first)
        snprintf(e->stop_request, sizeof e->stop_request, "%s",
                 *reason ? reason : "a callback");
    e->stopping = e->iter.done
                  && pl_batch_schedule_may_stop(&e->schedule, e->iter.done - 1);
    if (e->stopping)
        snprintf(e->reason, sizeof e->reason, "%s", e->stop_request);
    else if (first)
        pl_log_line(PL_LOG_INFO, pl_actor_rank(e), pl_actor_name(e),
                    "%s: training continues until trainer.min_epochs and min_steps are "
                    "reached",
                    e->stop_request);
}

void pl_epoch_stop(pl_epoch_t *e, const char *reason)
{
    if (!e->stopping)
        snprintf(e->reason, sizeof e->reason, "%s", reason);
    e->stopping = e->told = true;
}

static void obey(pl_epoch_t *e, const pl_epoch_pending_t *pending)
{
    e->halts |= pending->halt;
    e->validates_now |= pending->validate
                        && pl_batch_schedule_allows_timed_validation(&e->schedule);
    if (pending->timeout) {
        e->out_of_time |= !*e->stop_request;
        pl_epoch_request_stop(e, "trainer.max_time has passed");
    }
    if (pending->stop)
        pl_epoch_stop(e, pending->reason);
}

void pl_epoch_request_sync(pl_epoch_t *e)
{
    if (pl_is_nobody(e->iter.coordinator))
        obey(e, &e->pending);
    else
        pl_batch_iter_request_sync(&e->iter);
}

void pl_epoch_request_halt(pl_epoch_t *e)
{
    if (!e->pending.halt)
        return;
    if (pl_is_nobody(e->iter.coordinator)) {
        e->halts = true;
        e->pending.halt = false;
    } else if (e->iter.call && !e->iter.halted) {
        pl_batch_iter_request_sync(&e->iter);
    }
}

void pl_epoch_check_time(pl_epoch_t *e)
{
    const pl_amount_t every = e->iter.options->val_check_interval;
    const int64_t now = pl_now();
    const bool over = e->deadline && now >= e->deadline,
               validate = every.is_time
                          && pl_batch_schedule_allows_timed_validation(&e->schedule)
                          && now - e->validated_at >= (int64_t)(every.value * 1e9);
    if (over == e->pending.timeout && validate == e->pending.validate)
        return;
    e->pending.timeout = over;
    e->pending.validate = validate;
    pl_epoch_request_sync(e);
}

static char *pending_text(const pl_epoch_pending_t *pending, pl_error_t *err)
{
    json_t *object = json_pack("{s:b, s:b, s:b, s:b, s:s}", "stop", (int)pending->stop,
                               "timeout", (int)pending->timeout, "validate",
                               (int)pending->validate, "halt", (int)pending->halt,
                               "reason", pending->reason);
    char *text = object ? pl_metrics_text(object, err) : NULL;
    if (!object)
        pl_fail(err, PL_ENOMEM, "out of memory");
    json_decref(object);
    return text;
}

bool pl_epoch_coordinate(pl_epoch_t *e, pl_on_answer_t then, pl_error_t *err)
{
    char *text = pending_text(&e->pending, err);
    const pl_decide_t msg = {.text = text, .announced = true};
    bool sent = text
                && pl_call_decide(e, e->iter.coordinator, &msg,
                                  (pl_how_t){.on_answer = then}, err);
    e->pending.validate = e->pending.halt = false;
    pl_free(text);
    return sent;
}

void pl_epoch_coordinated(pl_epoch_t *e, const char *text)
{
    pl_epoch_pending_t pending = {0};
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *reason = json_string_value(json_object_get(object, "reason"));
    pending.stop = json_is_true(json_object_get(object, "stop"));
    pending.timeout = json_is_true(json_object_get(object, "timeout"));
    pending.validate = json_is_true(json_object_get(object, "validate"));
    pending.halt = json_is_true(json_object_get(object, "halt"));
    snprintf(pending.reason, sizeof pending.reason, "%s", reason ? reason : "");
    obey(e, &pending);
    json_decref(object);
}

/* ---- ranks that train by themselves ---- */

bool pl_epoch_synchronize(pl_epoch_t *e, pl_on_answer_t then)
{
    return !pl_is_nobody(e->iter.coordinator) && e->synchronized != e->iter.done
           && pl_call_synchronize(e, e->iter.strategy, &(pl_synchronize_t){0},
                                  (pl_how_t){.on_answer = then}, &e->iter.failure);
}

/* Those metrics belong to steps before. */
void pl_epoch_synchronized(pl_epoch_t *e, const pl_synchronize_reply_t *reply)
{
    e->synchronized = e->iter.done;
    pl_metrics_add(&e->sums, reply->metrics);
    pl_metrics_add(&e->since_log, reply->metrics);
    pl_metrics_add_steps(&e->since_report, reply->metrics);
}
