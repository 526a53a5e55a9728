/* manual_plans.c - plans for the batches of a manual loop, of any size and stage
 *
 * Which sizes come is not known before, so the strategy is told of one when the first of
 * it is there.  Stages are added so as well: a module that cannot predict trains all the
 * same. */
#include <string.h>

#include "actors/loops/manual.h"
#include "base/error.h"
#include "base/run.h"

bool pl_manual_has_plan(const pl_manual_t *o, const pl_manual_item_t *item)
{
    const pl_batch_signature_t *signature = o->signature;
    if (!signature->stage[item->stage].present || !o->named[item->stage])
        return false;
    for (int k = 0; k < signature->stage[item->stage].size_count; k++)
        if (signature->stage[item->stage].size[k].count == item->batch->count)
            return true;
    return false;
}

static void names_answered(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_manual_fail(o, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || !o->run)
        return;
    pl_metrics_name(&o->metrics[o->asks], pl_stages[o->asks].prefix,
                    answer->body->metric_names_reply.names);
    o->named[o->asks] = true;
    if (o->asks == PL_TRAIN) {
        pl_metrics_name(&o->since_report, pl_stages[PL_TRAIN].prefix,
                        answer->body->metric_names_reply.names);
        pl_manual_ready(o);
    }
    pl_manual_idle(o);
}

uint64_t pl_manual_query_names(pl_manual_t *o, pl_stage_t stage, pl_error_t *err)
{
    const pl_metric_names_t msg = {.stage = stage};
    o->asks = stage;
    return pl_call_metric_names(o, o->strategy, &msg,
                                (pl_how_t){.on_answer = names_answered}, err);
}

/* A size takes the place of the oldest but the first, which a step's scale is of. */
static void size_add(pl_batch_signature_t *signature, pl_stage_t stage, int64_t count)
{
    pl_batch_size_t *size = signature->stage[stage].size;
    int *there = &signature->stage[stage].size_count;
    if (*there == PL_SIZES_MAX) {
        memmove(size + 1, size + 2, (PL_SIZES_MAX - 2) * sizeof *size);
        --*there;
    }
    size[(*there)++] = (pl_batch_size_t){.count = count};
}

/* With what an item needs and lacks. */
static pl_batch_signature_t *signature_with(const pl_manual_t *o,
                                            const pl_manual_item_t *item, pl_error_t *err)
{
    pl_batch_signature_t *signature = pl_batch_signature_new(err);
    if (!signature)
        return NULL;
    memcpy(signature->stage, o->signature->stage, sizeof signature->stage);
    if (!signature->stage[item->stage].present) {
        signature->stage[item->stage].present = true;
        signature->stage[item->stage].size_count = 0;
    }
    size_add(signature, item->stage, item->batch->count);
    return signature;
}

static void signature_answered(void *self, const pl_answer_t *answer);

static void signature_send(pl_manual_t *o, pl_batch_signature_t *signature)
{
    const pl_set_signature_t msg = {.signature = &signature->object};
    const pl_how_t how = {.on_answer = signature_answered};
    pl_error_t err = {0};
    if (!pl_call_set_signature(o, o->strategy, &msg, how, &err))
        pl_manual_fail(o, &err);
}

/* As it was before, the strategy is as it was before. */
static void signature_refused(pl_manual_t *o, const pl_error_t *error)
{
    if (!o->next_signature) {
        pl_manual_fail(o, error);
        return;
    }
    pl_object_unref(o->next_signature);
    o->next_signature = NULL;
    pl_manual_drop_first(o, error);
    signature_send(o, o->signature);
}

static void signature_set(pl_manual_t *o)
{
    const pl_manual_item_t *item = o->waiting.first;
    pl_error_t err = {0};
    if (o->next_signature) {
        pl_object_unref(o->signature);
        o->signature = o->next_signature;
        o->next_signature = NULL;
    }
    if (!item || item->name || o->named[item->stage])
        pl_manual_idle(o);
    else if (!pl_manual_query_names(o, item->stage, &err))
        pl_manual_fail(o, &err);
}

static void signature_answered(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    if (!o->run)
        return;
    if (answer->kind == PL_ANSWER_ERROR)
        signature_refused(o, answer->error);
    else if (answer->kind == PL_ANSWER_REPLY)
        signature_set(o);
}

void pl_manual_set_signature(pl_manual_t *o, const pl_manual_item_t *item)
{
    pl_error_t err = {0};
    o->busy = true;
    o->next_signature = item ? signature_with(o, item, &err) : NULL;
    if (item && !o->next_signature) {
        pl_manual_drop_first(o, &err);
        pl_manual_idle(o);
        return;
    }
    signature_send(o, item ? o->next_signature : o->signature);
}
