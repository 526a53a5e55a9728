/* sources.c - which data sets a run needs, and which samples each stage takes from them
 *
 * Validation data is a source of its own, a share of the training samples, or, where a
 * cut between samples would let training see what validation is asked (text), a share
 * that the data set itself cuts: then it is opened twice. */
#include "actors/connectors/sources.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"

void pl_sources_drop(pl_sources_t *sources)
{
    for (int stage = 0; stage < PL_STAGES; stage++) {
        pl_object_unref(sources->dataset[stage]);
        sources->dataset[stage] = NULL;
    }
    pl_split_release(&sources->split);
}

/* ---- Which data sets ---- */

static bool has_source(const pl_sources_t *sources, const char *key)
{
    return pl_options_has_sources(sources->job->options)
           && pl_options_value(sources->job->options, key);
}

pl_stage_t pl_sources_first(const pl_sources_t *sources)
{
    bool of_training = sources->wanted == PL_VALIDATE && !has_source(sources, "data.val");
    return of_training ? PL_TRAIN : sources->wanted;
}

bool pl_sources_validation_is_apart(const pl_sources_t *sources)
{
    return has_source(sources, "data.val")
           || (sources->job->data->val_split > 0
               && sources->dataset[PL_TRAIN]->info.ordered);
}

/* What the data sets of a run are to agree on. */
static const char *facts_for(const pl_sources_t *sources, const char *given)
{
    const pl_dataset_t *train = sources->dataset[PL_TRAIN];
    if (train)
        return train->info.facts;
    return *given ? given : NULL;
}

int pl_sources_prepare(pl_sources_t *sources, pl_stage_t stage, const char *facts,
                       pl_error_t *err)
{
    pl_data_request_t request = {.stage = stage,
                                 .from = 0,
                                 .to = 1,
                                 .seed = sources->job->trainer->seed,
                                 .facts = facts_for(sources, facts)};
    pl_stage_t source = stage;
    double rest = 1 - sources->job->data->val_split;
    pl_instance_t part = {0};
    if (stage == PL_TRAIN)
        request.to = rest;
    if (stage == PL_VALIDATE && !has_source(sources, "data.val")) {
        source = PL_TRAIN;
        request.from = rest;
    }
    int code = pl_options_source(sources->job->options, source, &part, err);
    if (code != PL_OK)
        return code;
    sources->dataset[stage] = pl_dataset_new(&part, &request, err);
    return sources->dataset[stage] ? PL_OK : PL_ENOMEM;
}

/* ---- Which samples ---- */

static pl_order_t order_of(const pl_sources_t *sources, pl_stage_t stage)
{
    pl_order_t order = {.split = &sources->split,
                        .seed = sources->job->trainer->seed,
                        .count = sources->dataset[stage]->info.samples,
                        .shuffle = stage == PL_TRAIN && sources->job->data->shuffle};
    if (sources->split.held_count == 0 || stage > PL_VALIDATE)
        return order;
    order.part = stage == PL_TRAIN ? PL_REST : PL_HELD;
    order.count = stage == PL_TRAIN ? sources->split.total - sources->split.held_count
                                    : sources->split.held_count;
    return order;
}

static int split_make(pl_sources_t *sources, pl_error_t *err)
{
    pl_dataset_t *train = sources->dataset[PL_TRAIN];
    if (!train || sources->dataset[PL_VALIDATE] || !(sources->job->data->val_split > 0))
        return PL_OK;
    int code = pl_split_make(&sources->split, sources->job->trainer->seed,
                             train->info.samples, sources->job->data->val_split, err);
    if (code == PL_OK)
        sources->dataset[PL_VALIDATE] = pl_object_ref(train);
    return code;
}

static void layout_stage(pl_layout_t *layout, const pl_feed_t *feed)
{
    const pl_data_info_t *info = &feed->dataset->info;
    layout->stage[feed->stage].present = true;
    layout->stage[feed->stage].samples = feed->order.count;
    layout->stage[feed->stage].field_count = info->field_count;
    memcpy(layout->stage[feed->stage].field, info->field, sizeof info->field);
    layout->stage[feed->stage].batch_size = feed->batch_size;
    layout->stage[feed->stage].size_count =
        pl_feed_sizes(feed, layout->stage[feed->stage].size);
}

static int feeds_make(pl_sources_t *sources, pl_feed_t *feed, pl_layout_t *layout,
                      pl_error_t *err)
{
    int code = split_make(sources, err);
    for (int stage = 0; stage < PL_STAGES && code == PL_OK; stage++) {
        if (!sources->dataset[stage]
            || (stage == PL_TRAIN && sources->wanted != PL_TRAIN))
            continue;
        const pl_feed_spec_t spec = {sources->dataset[stage],
                                     (pl_stage_t)stage,
                                     order_of(sources, (pl_stage_t)stage),
                                     sources->job->data->batch_size,
                                     sources->job->data->prefetch,
                                     sources->job->data->buckets};
        code = pl_feed_open(&feed[stage], &spec, err);
        if (code == PL_OK)
            layout_stage(layout, &feed[stage]);
    }
    return code;
}

/* ---- What the data knows ---- */

static int facts_read(const pl_dataset_t *dataset, json_t **facts_p, pl_error_t *err)
{
    const char *text = dataset->info.facts;
    pl_error_t why = {0};
    *facts_p = text ? pl_json_value(text, strlen(text), &why) : json_object();
    if (!*facts_p && (!text || why.code == PL_ENOMEM))
        return pl_no_memory(err);
    if (json_is_object(*facts_p))
        return PL_OK;
    json_decref(*facts_p);
    *facts_p = NULL;
    return pl_fail(err, PL_EUSER, "data set \"%s\": its facts are no JSON object: %.100s",
                   ((const pl_part_t *)dataset->part.ops)->name, text);
}

/* Numbers may differ, such as the classes that are there; a text, such as a vocabulary,
 * says what the numbers of samples mean. */
static int facts_compare(const json_t *train, const json_t *validation, pl_error_t *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)train, key, value)
    {
        const json_t *other = json_object_get(validation, key);
        if (json_is_string(value) && other && !json_equal(value, other))
            return pl_fail(err, PL_EINVAL,
                           "the validation data has another \"%s\" than "
                           "the training data: take both from one source, with "
                           "data.val_split",
                           key);
    }
    return PL_OK;
}

static int facts_check(const pl_sources_t *sources, pl_error_t *err)
{
    json_t *facts[PL_STAGES] = {NULL};
    int code = PL_OK;
    for (int stage = 0; stage < PL_STAGES && code == PL_OK; stage++)
        if (sources->dataset[stage])
            code = facts_read(sources->dataset[stage], &facts[stage], err);
    if (code == PL_OK && facts[PL_TRAIN] && facts[PL_VALIDATE])
        code = facts_compare(facts[PL_TRAIN], facts[PL_VALIDATE], err);
    for (int stage = 0; stage < PL_STAGES; stage++)
        json_decref(facts[stage]);
    return code;
}

int pl_sources_feeds(pl_sources_t *sources, pl_feed_t *feed, pl_layout_t **layout_p,
                     const char **facts_p, pl_error_t *err)
{
    int code = facts_check(sources, err);
    pl_layout_t *layout = code == PL_OK ? pl_layout_new(err) : NULL;
    if (code == PL_OK)
        code = layout ? feeds_make(sources, feed, layout, err) : PL_ENOMEM;
    if (code != PL_OK) {
        for (int stage = 0; stage < PL_STAGES; stage++)
            pl_feed_close(&feed[stage]);
        pl_object_unref(layout);
        return code;
    }
    const pl_dataset_t *first = sources->dataset[pl_sources_first(sources)];
    *facts_p = first->info.facts ? first->info.facts : "{}";
    *layout_p = layout;
    return PL_OK;
}
