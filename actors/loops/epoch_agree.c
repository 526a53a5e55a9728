/* epoch_agree.c - what follows from no step, on all ranks alike
 *
 * A stop, or a time that has passed, is heard by one rank at some moment.  It announces
 * that; all ranks halt at the same batch, and do there what rank zero has heard.  The
 * only rank does it at once. */
#include <stdio.h>
#include <string.h>

#include "actors/loops/epoch_parts.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "base/log.h"

void pl_epoch_wish_stop(pl_epoch_t *e, const char *reason)
{
    bool first = !*e->wish;
    if (e->stopping)
        return;
    if (first)
        snprintf(e->wish, sizeof e->wish, "%s", *reason ? reason : "a callback");
    e->stopping = e->pass.done && pl_due_may_stop(&e->due, e->pass.done - 1);
    if (e->stopping)
        snprintf(e->reason, sizeof e->reason, "%s", e->wish);
    else if (first)
        pl_log_line(PL_LOG_INFO, pl_actor_rank(e), pl_actor_name(e),
                    "%s: training continues until trainer.min_epochs and min_steps are "
                    "reached",
                    e->wish);
}

void pl_epoch_told(pl_epoch_t *e, const char *reason)
{
    if (!e->stopping)
        snprintf(e->reason, sizeof e->reason, "%s", reason);
    e->stopping = e->told = true;
}

static void obey(pl_epoch_t *e, const pl_heard_t *heard)
{
    e->halts |= heard->halt;
    e->validates_now |= heard->validate && pl_due_validates_now(&e->due);
    if (heard->over) {
        e->out_of_time |= !*e->wish;
        pl_epoch_wish_stop(e, "trainer.max_time has passed");
    }
    if (heard->told)
        pl_epoch_told(e, heard->reason);
}

void pl_epoch_hear(pl_epoch_t *e)
{
    if (pl_is_nobody(e->pass.agreement))
        obey(e, &e->heard);
    else
        pl_pass_announce(&e->pass);
}

void pl_epoch_hear_halt(pl_epoch_t *e)
{
    if (!e->heard.halt)
        return;
    if (pl_is_nobody(e->pass.agreement)) {
        e->halts = true;
        e->heard.halt = false;
    } else if (e->pass.call && !e->pass.halted) {
        pl_pass_announce(&e->pass);
    }
}

void pl_epoch_look_at_clock(pl_epoch_t *e)
{
    const pl_amount_t every = e->pass.options->val_check_interval;
    const int64_t now = pl_now();
    const bool over = e->deadline && now >= e->deadline,
               validate = every.is_time && pl_due_validates_now(&e->due)
                          && now - e->validated_at >= (int64_t)(every.value * 1e9);
    if (over == e->heard.over && validate == e->heard.validate)
        return;
    e->heard.over = over;
    e->heard.validate = validate;
    pl_epoch_hear(e);
}

static char *heard_text(const pl_heard_t *heard, pl_error_t *err)
{
    json_t *object = json_pack("{s:b, s:b, s:b, s:b, s:s}", "told", (int)heard->told,
                               "over", (int)heard->over, "validate", (int)heard->validate,
                               "halt", (int)heard->halt, "reason", heard->reason);
    char *text = object ? pl_metrics_text(object, err) : NULL;
    if (!object)
        pl_fail(err, PL_ENOMEM, "out of memory");
    json_decref(object);
    return text;
}

bool pl_epoch_agree(pl_epoch_t *e, pl_on_answer_t then, pl_error_t *err)
{
    char *text = heard_text(&e->heard, err);
    const pl_decide_t msg = {.text = text, .announced = true};
    bool sent = text
                && pl_call_decide(e, e->pass.agreement, &msg,
                                  (pl_how_t){.on_answer = then}, err);
    e->heard.validate = e->heard.halt = false;
    pl_free(text);
    return sent;
}

void pl_epoch_agreed(pl_epoch_t *e, const char *text)
{
    pl_heard_t heard = {0};
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *reason = json_string_value(json_object_get(object, "reason"));
    heard.told = json_is_true(json_object_get(object, "told"));
    heard.over = json_is_true(json_object_get(object, "over"));
    heard.validate = json_is_true(json_object_get(object, "validate"));
    heard.halt = json_is_true(json_object_get(object, "halt"));
    snprintf(heard.reason, sizeof heard.reason, "%s", reason ? reason : "");
    obey(e, &heard);
    json_decref(object);
}

/* ---- ranks that train by themselves ---- */

bool pl_epoch_synchronize(pl_epoch_t *e, pl_on_answer_t then)
{
    return !pl_is_nobody(e->pass.agreement) && e->synchronized != e->pass.done
           && pl_call_synchronize(e, e->pass.strategy, &(pl_synchronize_t){0},
                                  (pl_how_t){.on_answer = then}, &e->pass.failure);
}

/* Those figures belong to steps before. */
void pl_epoch_synchronized(pl_epoch_t *e, const pl_synchronize_reply_t *reply)
{
    e->synchronized = e->pass.done;
    pl_figures_add(&e->sums, reply->metrics);
    pl_figures_add(&e->since_log, reply->metrics);
    pl_figures_add_steps(&e->since_report, reply->metrics);
}
