/* sources.c - which data sets a run needs, and which samples each stage takes from them
 *
 * Validation data is a source of its own, a share of the training samples, or, where a
 * cut between samples would let training see what validation is asked (text), a share
 * that the data set itself cuts: then it is opened twice. */
#include "actors/connectors/sources.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"

void pl_sources_drop(pl_sources_t *sources)
{
    for (int k = 0; k < PL_SOURCES; k++) {
        pl_object_unref(sources->dataset[k]);
        sources->dataset[k] = NULL;
    }
    pl_data_split_release(&sources->split);
}

/* ---- Which data sets ---- */

int pl_source_place(pl_stage_t stage, uint32_t loader)
{
    return loader ? PL_STAGES - 1 + (int)loader : (int)stage;
}

uint32_t pl_sources_loaders(const pl_sources_t *sources, pl_stage_t stage)
{
    bool several = stage == PL_VALIDATE || stage == PL_TEST;
    return several ? pl_options_loaders(sources->job->options, stage) : 1;
}

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

bool pl_sources_tests_training(const pl_sources_t *sources)
{
    const pl_options_t *options = sources->job->options;
    if (sources->wanted != PL_TEST || !sources->dataset[PL_TEST]->info.same_samples)
        return false;
    if (!pl_options_has_sources(options))
        return true;
    const json_t *train = pl_options_value(options, "data.train");
    return train && json_equal(train, pl_options_value(options, "data.test"));
}

/* What the data sets of a run are to agree on. */
static const char *facts_for(const pl_sources_t *sources, const char *given)
{
    const pl_dataset_t *train = sources->dataset[PL_TRAIN];
    if (train)
        return train->info.facts;
    return *given ? given : NULL;
}

int pl_sources_prepare(pl_sources_t *sources, pl_stage_t stage, uint32_t loader,
                       const char *facts, pl_error_t *err)
{
    pl_dataset_t **into = &sources->dataset[pl_source_place(stage, loader)];
    pl_data_request_t request = {.stage = stage,
                                 .from = 0,
                                 .to = 1,
                                 .seed = sources->job->trainer->seed,
                                 .facts = facts_for(sources, facts),
                                 .rank = sources->deal.partition};
    pl_stage_t source = stage;
    double rest = 1 - sources->job->data->val_split;
    pl_instance_t component = {0};
    if (stage == PL_TRAIN) {
        request.to = rest;
        request.val_split = sources->job->data->val_split;
        request.stratify = sources->job->data->stratify;
    }
    if (stage == PL_VALIDATE && !has_source(sources, "data.val")) {
        source = PL_TRAIN;
        request.from = rest;
    }
    int code = pl_options_source(sources->job->options, source, loader, &component, err);
    if (code != PL_OK)
        return code;
    *into = pl_dataset_new(&component, &request, err);
    if (*into)
        (*into)->sums = sources->sums;
    return *into ? PL_OK : PL_ENOMEM;
}

/* ---- A file that cannot be read ---- */

/* The option that an error is about: its key, and how well its text fits. */
typedef struct blamed {
    size_t fit;                                             /* 0: none does */
    char key[256];
} blamed_t;

/* How well a text fits the file that an error names: as the end of its path it fits
 * better than as a folder on the way, and the longer the better. */
static size_t text_fit(const char *error, const char *text)
{
    const size_t length = strlen(text);
    size_t fit = 0;
    for (const char *at = error; length && (at = strstr(at, text)); at++) {
        const bool begins = at == error || at[-1] == ' ' || at[-1] == '/';
        if (begins && at[length] == ':')
            return length + PL_ERROR_TEXT;
        if (begins && at[length] == '/')
            fit = length;
    }
    return fit;
}

/* Whether an error that is not of a file names an option: "label" in quotes. */
static bool is_named(const char *name, const pl_error_t *error)
{
    char quoted[80];
    snprintf(quoted, sizeof quoted, "\"%s\" is ", name);
    return strstr(error->text, quoted);
}

/* Finds the option that an error names, or the text option that fits best, in an object
 * of options or one below it. */
static void key_find(const json_t *object, const pl_error_t *error, const char *key,
                     blamed_t *blamed)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) {
        char path[sizeof blamed->key];
        const char *text = json_string_value(value);
        const bool of_file = text && strcmp(name, "name") && error->code != PL_EINVAL;
        const size_t fit = of_file ? text_fit(error->text, text)
                           : error->code == PL_EINVAL && is_named(name, error) ? 1
                                                                               : 0;
        snprintf(path, sizeof path, "%s.%s", key, name);
        key_find(value, error, path, blamed);
        if (fit <= blamed->fit)
            continue;
        blamed->fit = fit;
        memcpy(blamed->key, path, sizeof path);
    }
}

int pl_sources_blame(const pl_sources_t *sources, const pl_dataset_t *dataset,
                     const pl_error_t *error, pl_error_t *err)
{
    const pl_options_t *options = sources->job->options;
    char key[sizeof((blamed_t *)0)->key] = "data";
    blamed_t blamed = {0};
    int place = 0;
    while (place < PL_SOURCES && sources->dataset[place] != dataset)
        place++;
    if (place == PL_SOURCES
        || (error->code != PL_ENOTFOUND && error->code != PL_EIO
            && error->code != PL_EINVAL))
        return pl_fail(err, error->code, "%s", error->text);
    if (pl_options_has_sources(options)) {
        const pl_stage_t stage = dataset->request.stage;
        const char *name = pl_source_name(stage);
        snprintf(key, sizeof key, "data.%s", name);
        if (stage == PL_PREDICT && !pl_options_value(options, key))
            snprintf(key, sizeof key, "data.%s", pl_source_name(PL_TEST));
        if (json_is_array(pl_options_value(options, key)))
            snprintf(key + strlen(key), sizeof key - strlen(key), ".%d",
                     place < PL_STAGES ? 0 : place - PL_STAGES + 1);
    }
    key_find(pl_options_value(options, key), error, key, &blamed);
    if (!blamed.fit)
        return pl_fail(err, error->code, "%s", error->text);
    const char *package = sources->job->data->package;
    const bool is_missing = strstr(error->text, "o such file");
    const bool is_packed =
        is_missing && *package
        && !package[strspn(package, "abcdefghijklmnopqrstuvwxyz0123456789+-.")];
    if (is_packed)
        return pl_options_fail(err, error->code, options, blamed.key,
                               "\"%s\": %s; install it as root: apt-get install %s",
                               blamed.key, error->text, package);
    const char *path = json_string_value(pl_options_value(options, blamed.key));
    const bool is_several = is_missing && path && strpbrk(path, "*?[");
    return pl_options_fail(err, error->code, options, blamed.key, "\"%s\": %s%s",
                           blamed.key, error->text,
                           is_several ? ": a data source is one file: join several with "
                                        "cat"
                                      : "");
}

/* ---- Which samples ---- */

static pl_order_t order_of(const pl_sources_t *sources, int place)
{
    pl_order_t order = {.split = &sources->split,
                        .seed = sources->job->trainer->seed,
                        .count = sources->dataset[place]->info.samples,
                        .shuffle = place == PL_TRAIN && sources->job->data->shuffle};
    if (sources->split.held_count == 0 || place > PL_VALIDATE)
        return order;
    order.side = place == PL_TRAIN ? PL_REST : PL_HELD;
    order.count = place == PL_TRAIN ? sources->split.total - sources->split.held_count
                                    : sources->split.held_count;
    return order;
}

static int split_make(pl_sources_t *sources, pl_error_t *err)
{
    pl_dataset_t *train = sources->dataset[PL_TRAIN];
    if (!train || sources->dataset[PL_VALIDATE] || !(sources->job->data->val_split > 0))
        return PL_OK;
    const pl_data_split_spec_t spec = {.seed = sources->job->trainer->seed,
                                       .total = train->info.samples,
                                       .share = sources->job->data->val_split,
                                       .target = train->target};
    pl_error_t why = {0};
    const int code = pl_data_split_make(&sources->split, &spec, &why);
    if (code != PL_OK)
        return pl_options_fail(err, code, sources->job->options, "data.val_split", "%s",
                               why.text);
    sources->dataset[PL_VALIDATE] = pl_object_ref(train);
    return PL_OK;
}

static void layout_first(pl_layout_t *layout, const pl_feed_t *feed)
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

static int size_add(pl_layout_t *layout, pl_stage_t stage, pl_batch_size_t size,
                    pl_error_t *err)
{
    int count = layout->stage[stage].size_count;
    pl_batch_size_t *there = layout->stage[stage].size;
    for (int k = 0; k < count; k++)
        if (there[k].count == size.count && there[k].length == size.length)
            return PL_OK;
    if (count == PL_SIZES_MOST)
        return pl_fail(err, PL_EINVAL,
                       "the sources of data.%s have batches of more than %d sizes: "
                       "choose data.batch_size so that fewer sources end with a smaller "
                       "batch",
                       pl_source_name(stage), PL_SIZES_MOST);
    there[layout->stage[stage].size_count++] = size;
    return PL_OK;
}

static bool same_fields(const pl_field_t *a, const pl_field_t *b, int count)
{
    bool same = true;
    for (int k = 0; same && k < count; k++)
        same = !strcmp(a[k].name, b[k].name) && a[k].dtype == b[k].dtype
               && pl_same_shape(a[k].shape, b[k].shape);
    return same;
}

/* A stage is one graph: what differs among its sources is how many samples they have. */
static int layout_further(pl_layout_t *layout, const pl_feed_t *feed, pl_error_t *err)
{
    const pl_data_info_t *info = &feed->dataset->info;
    if (info->field_count != layout->stage[feed->stage].field_count
        || !same_fields(info->field, layout->stage[feed->stage].field, info->field_count))
        return pl_fail(err, PL_EINVAL,
                       "data.%s.%u has other fields than data.%s.0: names, types and "
                       "shapes must be the same",
                       pl_source_name(feed->stage), feed->loader,
                       pl_source_name(feed->stage));
    pl_batch_size_t size[PL_SIZES_MOST];
    int count = pl_feed_sizes(feed, size), code = PL_OK;
    for (int k = 0; k < count && code == PL_OK; k++)
        code = size_add(layout, feed->stage, size[k], err);
    return code;
}

static pl_stage_t stage_at(const pl_sources_t *sources, int place)
{
    if (place < PL_STAGES)
        return (pl_stage_t)place;
    return sources->wanted == PL_TEST ? PL_TEST : PL_VALIDATE;
}

/* A batch size that is tried out may be larger than the data. */
static bool drops_last(const pl_sources_t *sources, int place)
{
    return sources->job->data->drop_last && place == PL_TRAIN && !sources->batch_size;
}

/* A search takes as many batches as it needs. */
static pl_amount_t limit_of(const pl_sources_t *sources, int place)
{
    const pl_job_t *job = sources->job;
    return place == PL_TRAIN && !job->tuning.num_training
               ? job->trainer->limit_train_batches
               : (pl_amount_t){0};
}

static int feed_make(pl_sources_t *sources, int place, pl_feed_t *feed,
                     pl_layout_t *layout, pl_error_t *err)
{
    const pl_stage_t stage = stage_at(sources, place);
    const pl_feed_spec_t spec = {
        .dataset = sources->dataset[place],
        .stage = stage,
        .loader = place < PL_STAGES ? 0 : (uint32_t)(place - PL_STAGES + 1),
        .order = order_of(sources, place),
        .deal = {sources->deal.partition, sources->deal.partitions,
                 sources->deal.even && place == PL_TRAIN, sources->deal.micro_shards,
                 drops_last(sources, place)},
        .batch_size = sources->batch_size ? sources->batch_size
                                          : sources->job->data->batch_size,
        .prefetch = sources->job->data->prefetch,
        .buckets = sources->job->data->buckets,
        .limit = limit_of(sources, place),
        .notice = sources->notice};
    if (!spec.loader && !spec.dataset->info.samples)
        return pl_fail(err, PL_EFORMAT, "the first source of data.%s has no samples",
                       pl_source_name(stage));
    pl_batch_size_t size[PL_SIZES_MOST];
    int code = pl_feed_open(feed, &spec, err);
    if (code == PL_OK && spec.deal.drop_last && !pl_feed_sizes(feed, size)) {
        const uint32_t ranks = spec.deal.micro_shards ? spec.deal.micro_shards
                                                      : spec.deal.partitions;
        pl_feed_close(feed);
        return pl_fail(
            err, PL_EINVAL,
            "data.drop_last leaves no batch: the training data has %lld sample%s, and "
            "%u rank%s need%s batches of %lld; lower data.batch_size",
            (long long)spec.order.count, pl_plural(spec.order.count), ranks,
            pl_plural(ranks), ranks == 1 ? "s" : "", (long long)spec.batch_size);
    }
    if (code == PL_OK && spec.loader)
        code = layout_further(layout, feed, err);
    else if (code == PL_OK)
        layout_first(layout, feed);
    return code;
}

static int feeds_make(pl_sources_t *sources, pl_feed_t *feed, pl_layout_t *layout,
                      pl_error_t *err)
{
    int code = split_make(sources, err);
    for (int k = 0; k < PL_SOURCES && code == PL_OK; k++)
        if (sources->dataset[k] && (k != PL_TRAIN || sources->wanted == PL_TRAIN))
            code = feed_make(sources, k, &feed[k], layout, err);
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
    return pl_fail(err, PL_EUSER,
                   "data set \"%s\": its facts are not a JSON object: %.100s",
                   ((const pl_component_t *)dataset->component.ops)->name, text);
}

/* Numbers may differ, such as the classes that are there; a text, such as a vocabulary,
 * says what the numbers of samples mean. */
static int facts_compare(const json_t *train, const json_t *validation, pl_error_t *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)train, key, value) {
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
    json_t *train = NULL;
    int code = PL_OK;
    for (int k = 0; k < PL_SOURCES && code == PL_OK; k++) {
        json_t *facts = NULL;
        if (!sources->dataset[k])
            continue;
        code = facts_read(sources->dataset[k], &facts, err);
        if (code == PL_OK && train && stage_at(sources, k) == PL_VALIDATE)
            code = facts_compare(train, facts, err);
        if (k == PL_TRAIN)
            train = json_incref(facts);
        json_decref(facts);
    }
    json_decref(train);
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
        for (int k = 0; k < PL_SOURCES; k++)
            pl_feed_close(&feed[k]);
        pl_object_unref(layout);
        return code;
    }
    const pl_dataset_t *first = sources->dataset[pl_sources_first(sources)];
    *facts_p = first->info.facts ? first->info.facts : "{}";
    *layout_p = layout;
    return PL_OK;
}

char *pl_sources_content(const pl_sources_t *sources, pl_error_t *err)
{
    json_t *all = json_object();
    int failed = !all;
    for (int k = 0; k < PL_SOURCES && !failed; k++) {
        const pl_dataset_t *dataset = sources->dataset[k];
        if (!dataset || (k != PL_TRAIN && dataset == sources->dataset[PL_TRAIN]))
            continue;
        char name[24], sum[9];
        snprintf(name, sizeof name, k < PL_STAGES ? "%s" : "%s.%d",
                 pl_source_name(stage_at(sources, k)), k - PL_STAGES + 1);
        snprintf(sum, sizeof sum, "%08x", dataset->crc32c);
        failed = json_object_set_new(all, name,
                                     json_pack("{s:I, s:s*}", "samples",
                                               (json_int_t)dataset->info.samples,
                                               "crc32c", dataset->summed ? sum : NULL));
    }
    char *text = failed ? NULL : pl_json_write(all, PL_JSON_COMPACT);
    json_decref(all);
    if (!text)
        pl_no_memory(err);
    return text;
}

int pl_sources_same(const pl_layout_t *was, const char *facts_were, const pl_layout_t *is,
                    const char *facts_are, pl_error_t *err)
{
    for (int stage = 0; stage < PL_STAGES; stage++) {
        const int fields = was->stage[stage].field_count;
        if (was->stage[stage].present != is->stage[stage].present
            || fields != is->stage[stage].field_count
            || !same_fields(was->stage[stage].field, is->stage[stage].field, fields))
            return pl_fail(err, PL_EINVAL,
                           "the data of stage %s have other fields than before: names, "
                           "types and shapes must stay the same",
                           pl_source_name((pl_stage_t)stage));
    }
    json_t *before = pl_json_value(facts_were, strlen(facts_were), NULL),
           *now = pl_json_value(facts_are, strlen(facts_are), NULL);
    const int code = !before || !now           ? pl_no_memory(err)
                     : json_equal(before, now) ? PL_OK
                                               : PL_EINVAL;
    json_decref(before);
    json_decref(now);
    return code == PL_EINVAL
               ? pl_fail(err, code,
                         "the data changed: the module was made for %.200s, but now the "
                         "data is %.200s",
                         facts_were, facts_are)
               : code;
}
