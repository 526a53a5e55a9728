/* own_plans.c - plans for the batches that a program sends, of whatever size and for
 * whatever stage
 *
 * Which sizes come is not known before, so the strategy is told of one when the first of
 * it is there.  Stages are added so as well: a module that cannot predict trains all the
 * same. */
#include <string.h>

#include "actors/loops/own_parts.h"
#include "base/error.h"
#include "base/stages.h"

bool pl_own_has_plan(const pl_own_t *o, const pl_own_item_t *item)
{
    const pl_layout_t *layout = o->layout;
    if (!layout->stage[item->stage].present || !o->named[item->stage])
        return false;
    for (int k = 0; k < layout->stage[item->stage].size_count; k++)
        if (layout->stage[item->stage].size[k].count == item->batch->count)
            return true;
    return false;
}

static void names_answered(void *self, const pl_answer_t *answer)
{
    pl_own_t *o = self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_own_fail(o, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || !o->run)
        return;
    pl_figures_name(&o->figures[o->asks], pl_stages[o->asks].prefix,
                    answer->body->metric_names_reply.names);
    o->named[o->asks] = true;
    if (o->asks == PL_TRAIN) {
        pl_figures_name(&o->since_report, pl_stages[PL_TRAIN].prefix,
                        answer->body->metric_names_reply.names);
        pl_own_ready(o);
    }
    pl_own_idle(o);
}

uint64_t pl_own_ask_names(pl_own_t *o, pl_stage_t stage, pl_error_t *err)
{
    const pl_metric_names_t msg = {.stage = stage};
    o->asks = stage;
    return pl_call_metric_names(o, o->strategy, &msg,
                                (pl_how_t){.on_answer = names_answered}, err);
}

/* A size takes the place of the oldest but the first, which a step's scale is of. */
static void size_add(pl_layout_t *layout, pl_stage_t stage, int64_t count)
{
    pl_batch_size_t *size = layout->stage[stage].size;
    int *there = &layout->stage[stage].size_count;
    if (*there == PL_SIZES_MOST) {
        memmove(size + 1, size + 2, (PL_SIZES_MOST - 2) * sizeof *size);
        --*there;
    }
    size[(*there)++] = (pl_batch_size_t){.count = count};
}

/* With what an item needs and lacks. */
static pl_layout_t *layout_with(const pl_own_t *o, const pl_own_item_t *item,
                                pl_error_t *err)
{
    pl_layout_t *layout = pl_layout_new(err);
    if (!layout)
        return NULL;
    memcpy(layout->stage, o->layout->stage, sizeof layout->stage);
    if (!layout->stage[item->stage].present) {
        layout->stage[item->stage].present = true;
        layout->stage[item->stage].size_count = 0;
    }
    size_add(layout, item->stage, item->batch->count);
    return layout;
}

static void layout_answered(void *self, const pl_answer_t *answer);

static void layout_send(pl_own_t *o, pl_layout_t *layout)
{
    const pl_take_layout_t msg = {.layout = &layout->object};
    const pl_how_t how = {.on_answer = layout_answered};
    pl_error_t err = {0};
    if (!pl_call_take_layout(o, o->strategy, &msg, how, &err))
        pl_own_fail(o, &err);
}

/* As it was before, the strategy is as it was before. */
static void layout_refused(pl_own_t *o, const pl_error_t *error)
{
    if (!o->wanted) {
        pl_own_fail(o, error);
        return;
    }
    pl_object_unref(o->wanted);
    o->wanted = NULL;
    pl_own_drop_first(o, error);
    layout_send(o, o->layout);
}

static void layout_taken(pl_own_t *o)
{
    const pl_own_item_t *item = o->waiting.first;
    pl_error_t err = {0};
    if (o->wanted) {
        pl_object_unref(o->layout);
        o->layout = o->wanted;
        o->wanted = NULL;
    }
    if (!item || item->name || o->named[item->stage])
        pl_own_idle(o);
    else if (!pl_own_ask_names(o, item->stage, &err))
        pl_own_fail(o, &err);
}

static void layout_answered(void *self, const pl_answer_t *answer)
{
    pl_own_t *o = self;
    if (!o->run)
        return;
    if (answer->kind == PL_ANSWER_ERROR)
        layout_refused(o, answer->error);
    else if (answer->kind == PL_ANSWER_REPLY)
        layout_taken(o);
}

void pl_own_take_layout(pl_own_t *o, const pl_own_item_t *item)
{
    pl_error_t err = {0};
    o->busy = true;
    o->wanted = item ? layout_with(o, item, &err) : NULL;
    if (item && !o->wanted) {
        pl_own_drop_first(o, &err);
        pl_own_idle(o);
        return;
    }
    layout_send(o, item ? o->wanted : o->layout);
}
