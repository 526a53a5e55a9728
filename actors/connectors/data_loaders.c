/* data_loaders.c - the data sets of a run, and which samples each stage takes from them
 *
 * Validation data is a separate source or a share of the training samples.  If the
 * order of samples matters (text), a cut between samples would put validation data
 * into training samples: then the data set itself cuts the share and is opened twice. */
#include "actors/connectors/data_loaders.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"

void pl_data_loaders_release(pl_data_loaders_t *loaders)
{
    for (int k = 0; k < PL_DATA_LOADERS; k++) {
        pl_object_unref(loaders->dataset[k]);
        loaders->dataset[k] = NULL;
    }
    pl_data_split_release(&loaders->split);
    pl_sample_order_close(&loaders->order);
}

/* ---- How training data is loaded ---- */

static json_t *loader_json(const pl_job_t *job)
{
    const pl_loader_options_t *loader = &job->data->loader;
    const pl_choice_t *sampler = &loader->sampler;
    json_t *named = sampler->name ? json_loads(sampler->options, 0, NULL) : json_null();
    if (sampler->name && json_object_set_new(named, "name", json_string(sampler->name))) {
        json_decref(named);
        return NULL;
    }
    return json_pack("{s:o, s:b, s:b, s:I}", "sampler", named, "shuffle", loader->shuffle,
                     "drop_last", loader->drop_last, "buckets",
                     (json_int_t)loader->buckets);
}

char *pl_loader_text(const pl_job_t *job, pl_error_t *err)
{
    return pl_json_to_text(loader_json(job), err);
}

int pl_loader_bind(const pl_job_t *job, const char *changes, pl_loader_options_t *loader,
                   pl_binding_t **binding, pl_error_t *err)
{
    json_t *all = loader_json(job),
           *other = *changes ? pl_json_read(changes, strlen(changes),
                                            "the loader that the strategy sets", err)
                             : NULL;
    int code = !all ? pl_no_memory(err) : *changes && !other ? err->code : PL_OK;
    if (code == PL_OK && other && json_object_update(all, other) != 0)
        code = pl_no_memory(err);
    if (code == PL_OK
        && pl_bind(pl_loader_table, all, NULL, loader, binding, err) != PL_OK) {
        *binding = NULL;
        code = pl_error_prefix(err, "the loader that the strategy sets");
    }
    json_decref(all);
    json_decref(other);
    return code;
}

/* ---- Which data sets ---- */

int pl_data_loader_index(pl_stage_t stage, uint32_t loader)
{
    return loader ? PL_STAGES - 1 + (int)loader : (int)stage;
}

uint32_t pl_data_loaders_count(const pl_data_loaders_t *loaders, pl_stage_t stage)
{
    bool several = stage == PL_VALIDATE || stage == PL_TEST;
    return several ? pl_options_loaders(loaders->job->options, stage) : 1;
}

static bool has_source(const pl_data_loaders_t *loaders, const char *key)
{
    return pl_options_has_sources(loaders->job->options)
           && pl_options_value(loaders->job->options, key);
}

pl_stage_t pl_data_loaders_first(const pl_data_loaders_t *loaders)
{
    bool of_training = loaders->stage == PL_VALIDATE && !has_source(loaders, "data.val");
    return of_training ? PL_TRAIN : loaders->stage;
}

bool pl_data_loaders_validation_is_separate(const pl_data_loaders_t *loaders)
{
    return has_source(loaders, "data.val")
           || (loaders->job->data->val_split > 0
               && loaders->dataset[PL_TRAIN]->info.ordered);
}

bool pl_data_loaders_tests_training(const pl_data_loaders_t *loaders)
{
    const pl_options_t *options = loaders->job->options;
    if (loaders->stage != PL_TEST || !loaders->dataset[PL_TEST]->info.same_samples)
        return false;
    if (!pl_options_has_sources(options))
        return true;
    const json_t *train = pl_options_value(options, "data.train");
    return train && json_equal(train, pl_options_value(options, "data.test"));
}

/* A sampler draws the training samples. */
static bool draws(const pl_data_loaders_t *loaders, pl_stage_t stage)
{
    return stage == PL_TRAIN && loaders->stage == PL_TRAIN && loaders->loader
           && loaders->loader->sampler.name;
}

int pl_data_loaders_prepare(pl_data_loaders_t *loaders, pl_stage_t stage, uint32_t loader,
                            const char *data_info, pl_error_t *err)
{
    pl_dataset_t **into = &loaders->dataset[pl_data_loader_index(stage, loader)];
    const pl_dataset_t *train = loaders->dataset[PL_TRAIN];
    pl_data_request_t request = {.stage = stage,
                                 .from = 0,
                                 .to = 1,
                                 .seed = loaders->job->trainer->seed,
                                 .data_info = train        ? train->info.data_info
                                              : *data_info ? data_info
                                                           : NULL,
                                 .rank = loaders->partition.partition};
    pl_stage_t source = stage;
    const pl_data_options_t *data = loaders->job->data;
    double rest = 1 - data->val_split;
    pl_instance_t component = {0};
    int code = PL_OK;
    if (stage == PL_TRAIN) {
        request.to = rest;
        request.val_split = data->val_split;
        request.stratify = data->stratify;
        request.folds = data->folds;
        request.fold = data->fold;
        if (data->folds && (data->fold < 0 || data->fold >= data->folds))
            code = pl_options_fail(err, PL_EINVAL, loaders->job->options, "data.folds",
                                   "\"data.folds\" is %lld: set \"data.fold\" to the "
                                   "part for validation, 0 to %lld; paceline fit trains "
                                   "with each in turn",
                                   (long long)data->folds, (long long)data->folds - 1);
    }
    if (stage == PL_VALIDATE && !has_source(loaders, "data.val")) {
        source = PL_TRAIN;
        request.from = rest;
        if (data->folds)
            code = pl_options_fail(err, PL_EINVAL, loaders->job->options, "data.folds",
                                   "the order of the samples matters, so they have no "
                                   "folds: set \"data.val_split\" in place of "
                                   "\"data.folds\"");
    }
    if (code == PL_OK)
        code = pl_options_source(loaders->job->options, source, loader, &component, err);
    if (code != PL_OK)
        return code;
    *into = pl_dataset_new(&component, &request, err);
    if (*into)
        (*into)->sums = loaders->sums, (*into)->is_drawn = draws(loaders, stage);
    return *into ? PL_OK : PL_ENOMEM;
}

/* ---- A file that cannot be read ---- */

/* The option that an error refers to: its key, and how well its text fits. */
typedef struct blamed {
    size_t fit;                                             /* 0: none does */
    char key[256];
} blamed_t;

/* How well a text matches the file that an error names: the end of its path matches
 * better than a folder on the way, and a longer text better than a shorter one. */
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

/* Finds the option that an error names, or the text option that fits best, in an object
 * of options or one below it. */
static void key_find(const json_t *object, const pl_error_t *error, const char *key,
                     blamed_t *blamed)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) {
        char path[sizeof blamed->key], quoted[80];
        const char *text = json_string_value(value);
        /* An error that refers to no file names an option in quotes: "label" is … */
        snprintf(quoted, sizeof quoted, "\"%s\" is ", name);
        const bool of_file = text && strcmp(name, "name") && error->code != PL_EINVAL;
        const size_t fit = of_file ? text_fit(error->text, text)
                           : error->code == PL_EINVAL && strstr(error->text, quoted) ? 1
                                                                                     : 0;
        snprintf(path, sizeof path, "%s.%s", key, name);
        key_find(value, error, path, blamed);
        if (fit <= blamed->fit)
            continue;
        blamed->fit = fit;
        memcpy(blamed->key, path, sizeof path);
    }
}

int pl_data_loaders_error(const pl_data_loaders_t *loaders, const pl_dataset_t *dataset,
                          const pl_error_t *error, pl_error_t *err)
{
    const pl_options_t *options = loaders->job->options;
    char key[sizeof((blamed_t *)0)->key] = "data";
    blamed_t blamed = {0};
    int place = 0;
    while (place < PL_DATA_LOADERS && loaders->dataset[place] != dataset)
        place++;
    if (place == PL_DATA_LOADERS
        || (error->code != PL_ENOTFOUND && error->code != PL_EIO
            && error->code != PL_EINVAL))
        return pl_fail(err, error->code, "%s", error->text);
    if (pl_options_has_sources(options)) {
        const pl_stage_t stage = dataset->request.stage;
        const char *name = pl_stages[stage].source;
        snprintf(key, sizeof key, "data.%s", name);
        if (stage == PL_PREDICT && !pl_options_value(options, key))
            snprintf(key, sizeof key, "data.%s", pl_stages[PL_TEST].source);
        if (json_is_array(pl_options_value(options, key)))
            snprintf(key + strlen(key), sizeof key - strlen(key), ".%d",
                     place < PL_STAGES ? 0 : place - PL_STAGES + 1);
    }
    key_find(pl_options_value(options, key), error, key, &blamed);
    if (!blamed.fit)
        return pl_fail(err, error->code, "%s", error->text);
    const char *package = loaders->job->data->package;
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

static int split_make(pl_data_loaders_t *loaders, pl_error_t *err)
{
    pl_dataset_t *train = loaders->dataset[PL_TRAIN];
    if (!train || loaders->dataset[PL_VALIDATE] || !(loaders->job->data->val_split > 0))
        return PL_OK;
    const pl_data_split_spec_t spec = {.seed = loaders->job->trainer->seed,
                                       .total = train->info.samples,
                                       .share = loaders->job->data->val_split,
                                       .folds = loaders->job->data->folds,
                                       .fold = loaders->job->data->fold,
                                       .target = train->target,
                                       .group = train->info.group};
    pl_error_t why = {0};
    const int code = pl_data_split_make(&loaders->split, &spec, &why);
    if (code != PL_OK)
        return pl_options_fail(err, code, loaders->job->options,
                               spec.folds ? "data.folds" : "data.val_split", "%s",
                               why.text);
    loaders->dataset[PL_VALIDATE] = pl_object_ref(train);
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

/* Adds a source to the signature of its stage.  A stage is one graph: its sources may
 * differ only in their numbers of samples. */
static int signature_add(pl_batch_signature_t *signature, const pl_prefetch_t *queue,
                         pl_error_t *err)
{
    const pl_data_info_t *info = &queue->dataset->info;
    const char *source = pl_stages[queue->stage].source;
    int *field_count = &signature->stage[queue->stage].field_count,
        *size_count = &signature->stage[queue->stage].size_count;
    pl_field_t *field = signature->stage[queue->stage].field;
    pl_batch_size_t *size = signature->stage[queue->stage].size, more[PL_SIZES_MAX];
    if (!queue->loader) {
        signature->stage[queue->stage].present = true;
        signature->stage[queue->stage].samples = queue->sampler.count;
        signature->stage[queue->stage].batch_size = queue->batch_size;
        *field_count = info->field_count;
        memcpy(field, info->field, sizeof info->field);
        *size_count = pl_prefetch_sizes(queue, size);
        return PL_OK;
    }
    if (info->field_count != *field_count
        || !same_fields(info->field, field, info->field_count))
        return pl_fail(err, PL_EINVAL,
                       "data.%s.%u has other fields than data.%s.0: names, types and "
                       "shapes must be the same",
                       source, queue->loader, source);
    const int count = pl_prefetch_sizes(queue, more);
    for (int k = 0; k < count; k++) {
        int at = 0;
        while (at < *size_count
               && (size[at].count != more[k].count || size[at].length != more[k].length))
            at++;
        if (at == PL_SIZES_MAX)
            return pl_fail(err, PL_EINVAL,
                           "the sources of data.%s have batches of more than %d sizes: "
                           "choose data.batch_size so that fewer sources end with a "
                           "smaller batch",
                           source, PL_SIZES_MAX);
        if (at == *size_count)
            size[(*size_count)++] = more[k];
    }
    return PL_OK;
}

static pl_stage_t stage_at(const pl_data_loaders_t *loaders, int place)
{
    if (place < PL_STAGES)
        return (pl_stage_t)place;
    return loaders->stage == PL_TEST ? PL_TEST : PL_VALIDATE;
}

/* The samples that are drawn are those that the split leaves for training. */
static int order_make(pl_data_loaders_t *loaders, pl_prefetch_spec_t *spec,
                      pl_error_t *err)
{
    const pl_dataset_t *dataset = spec->dataset;
    const pl_sampler_partition_t *of = &spec->partition;
    pl_sampler_t *sampler = &spec->sampler;
    pl_sample_order_t *order = &loaders->order;
    const size_t count = (size_t)sampler->count;
    pl_sampler_data_t data = {
        .samples = sampler->count,
        .total = dataset->info.samples,
        .seed = sampler->seed,
        .batch_size = pl_sampler_full_batch(of, sampler->count, spec->batch_size)
                      * (of->micro_shards ? of->micro_shards : of->partitions)};
    pl_sampler_t plain = *sampler;
    pl_error_t why = {0};
    if (dataset->info.ordered)
        return pl_options_fail(err, PL_EINVAL, loaders->job->options, "data.sampler",
                               "data set \"%s\" has samples in an order that matters: "
                               "remove \"data.sampler\"",
                               ((const pl_component_t *)dataset->component.ops)->name);
    plain.shuffle = false;
    order->number = pl_alloc_array(count, sizeof *order->number);
    order->classes = dataset->target ? pl_alloc_array(count, sizeof *order->classes)
                                     : NULL;
    order->length = dataset->length ? pl_alloc_array(count, sizeof *order->length) : NULL;
    if (!order->number || (dataset->target && !order->classes)
        || (dataset->length && !order->length))
        return pl_no_memory(err);
    for (size_t k = 0; k < count; k++) {
        order->number[k] = pl_sampler_at(&plain, 0, (int64_t)k);
        if (order->classes)
            order->classes[k] = dataset->target[order->number[k]];
        if (order->length)
            order->length[k] = dataset->length[order->number[k]];
    }
    data.number = order->number;
    data.classes = order->classes;
    data.length = order->length;
    int code = pl_sample_order_open(order, &loaders->loader->sampler, &data, &why);
    const char *own = loaders->job->data->loader.sampler.name,
               *set = loaders->loader->sampler.name;
    if (code != PL_OK && (!own || strcmp(own, set)))
        return pl_fail(err, code, "the loader that the strategy sets: %s", why.text);
    if (code != PL_OK)
        return pl_options_fail(err, code, loaders->job->options, "data.sampler", "%s",
                               why.text);
    sampler->order = order;
    sampler->count = order->count;
    return PL_OK;
}

static int queue_make(pl_data_loaders_t *loaders, int place, pl_prefetch_t *queue,
                      pl_batch_signature_t *signature, pl_error_t *err)
{
    const pl_job_t *job = loaders->job;
    const pl_data_split_t *split = &loaders->split;
    const bool trains = place == PL_TRAIN;
    pl_prefetch_spec_t spec = {
        .dataset = loaders->dataset[place],
        .stage = stage_at(loaders, place),
        .loader = place < PL_STAGES ? 0 : (uint32_t)(place - PL_STAGES + 1),
        .sampler = {.split = split,
                    .seed = job->trainer->seed,
                    .count = loaders->dataset[place]->info.samples,
                    .shuffle = trains && loaders->loader->shuffle,
                    .window = job->data->shuffle_window},
        .partition = loaders->partition,
        .batch_size = loaders->batch_size ? loaders->batch_size : job->data->batch_size,
        .prefetch = job->data->prefetch,
        .buckets = (trains ? loaders->loader : &job->data->loader)->buckets,
        .notice = loaders->notice};
    if (split->held_count > 0 && place <= PL_VALIDATE) {
        spec.sampler.side = trains ? PL_REST : PL_HELD;
        spec.sampler.count = trains ? split->total - split->held_count
                                    : split->held_count;
    }
    spec.partition.even &= trains;
    /* A batch size that the tuner tries may be larger than the data. */
    spec.partition.drop_last = trains && loaders->loader->drop_last
                               && !loaders->batch_size;
    /* The tuner takes as many batches as it needs. */
    if (trains && !job->tuning.num_training)
        spec.limit = job->trainer->limit_train_batches;
    if (trains && draws(loaders, PL_TRAIN) && order_make(loaders, &spec, err) != PL_OK)
        return err->code;
    if (!spec.loader && !spec.dataset->info.samples)
        return pl_fail(err, PL_EFORMAT, "the first source of data.%s has no samples",
                       pl_stages[spec.stage].source);
    pl_batch_size_t size[PL_SIZES_MAX];
    int code = pl_prefetch_open(queue, &spec, err);
    if (code == PL_OK && spec.partition.drop_last && !pl_prefetch_sizes(queue, size)) {
        const uint32_t ranks = spec.partition.micro_shards ? spec.partition.micro_shards
                                                           : spec.partition.partitions;
        pl_prefetch_close(queue);
        return pl_fail(
            err, PL_EINVAL,
            "data.drop_last leaves no batch: the training data has %lld sample%s, and "
            "%u rank%s need%s batches of %lld; lower data.batch_size",
            (long long)spec.sampler.count, pl_plural(spec.sampler.count), ranks,
            pl_plural(ranks), ranks == 1 ? "s" : "", (long long)spec.batch_size);
    }
    return code == PL_OK ? signature_add(signature, queue, err) : code;
}

/* ---- Data info ---- */

/* Of the data info of training and of validation, numbers may differ, such as the
 * number of classes that occur; a text, such as a vocabulary, defines the meaning of
 * the samples. */
int pl_data_loaders_open_queues(pl_data_loaders_t *loaders, pl_prefetch_t *queue,
                                pl_batch_signature_t **signature_p,
                                const char **data_info_p, pl_error_t *err)
{
    json_t *train = NULL, *value;
    const char *key;
    int code = PL_OK;
    for (int k = 0; k < PL_DATA_LOADERS && code == PL_OK; k++) {
        const pl_dataset_t *dataset = loaders->dataset[k];
        const char *text = dataset ? dataset->info.data_info : NULL;
        pl_error_t why = {0};
        if (!dataset)
            continue;
        json_t *data_info = text ? pl_json_value(text, strlen(text), &why)
                                 : json_object();
        if (!data_info && (!text || why.code == PL_ENOMEM))
            code = pl_no_memory(err);
        else if (!json_is_object(data_info))
            code = pl_fail(err, PL_EUSER,
                           "data set \"%s\": its data info is not a JSON object: %.100s",
                           ((const pl_component_t *)dataset->component.ops)->name, text);
        const bool validates = stage_at(loaders, k) == PL_VALIDATE;
        json_object_foreach(validates ? train : NULL, key, value) {
            const json_t *other = json_object_get(data_info, key);
            if (code == PL_OK && json_is_string(value) && other
                && !json_equal(value, other))
                code = pl_fail(err, PL_EINVAL,
                               "the validation data has another \"%s\" than "
                               "the training data: take both from one source, with "
                               "data.val_split",
                               key);
        }
        if (k == PL_TRAIN)
            train = json_incref(data_info);
        json_decref(data_info);
    }
    json_decref(train);
    pl_batch_signature_t *signature = code == PL_OK ? pl_batch_signature_new(err) : NULL;
    if (code == PL_OK)
        code = signature ? split_make(loaders, err) : PL_ENOMEM;
    for (int k = 0; k < PL_DATA_LOADERS && code == PL_OK; k++)
        if (loaders->dataset[k] && (k != PL_TRAIN || loaders->stage == PL_TRAIN))
            code = queue_make(loaders, k, &queue[k], signature, err);
    if (code != PL_OK) {
        for (int k = 0; k < PL_DATA_LOADERS; k++)
            pl_prefetch_close(&queue[k]);
        pl_object_unref(signature);
        return code;
    }
    const pl_dataset_t *first = loaders->dataset[pl_data_loaders_first(loaders)];
    *data_info_p = first->info.data_info ? first->info.data_info : "{}";
    *signature_p = signature;
    return PL_OK;
}

char *pl_data_loaders_content(const pl_data_loaders_t *loaders, pl_error_t *err)
{
    json_t *all = json_object();
    int failed = !all;
    for (int k = 0; k < PL_DATA_LOADERS && !failed; k++) {
        const pl_dataset_t *dataset = loaders->dataset[k];
        if (!dataset || (k != PL_TRAIN && dataset == loaders->dataset[PL_TRAIN]))
            continue;
        char name[24], sum[9];
        snprintf(name, sizeof name, k < PL_STAGES ? "%s" : "%s.%d",
                 pl_stages[stage_at(loaders, k)].source, k - PL_STAGES + 1);
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

int pl_data_loaders_check_same(const pl_batch_signature_t *was, const char *old_data_info,
                               const pl_batch_signature_t *is, const char *new_data_info,
                               pl_error_t *err)
{
    for (int stage = 0; stage < PL_STAGES; stage++) {
        const int fields = was->stage[stage].field_count;
        if (was->stage[stage].present != is->stage[stage].present
            || fields != is->stage[stage].field_count
            || !same_fields(was->stage[stage].field, is->stage[stage].field, fields))
            return pl_fail(err, PL_EINVAL,
                           "the data of stage %s have other fields than before: names, "
                           "types and shapes must stay the same",
                           pl_stages[(pl_stage_t)stage].source);
    }
    json_t *before = pl_json_value(old_data_info, strlen(old_data_info), NULL),
           *now = pl_json_value(new_data_info, strlen(new_data_info), NULL);
    const int code = !before || !now           ? pl_no_memory(err)
                     : json_equal(before, now) ? PL_OK
                                               : PL_EINVAL;
    json_decref(before);
    json_decref(now);
    return code == PL_EINVAL
               ? pl_fail(err, code,
                         "the data changed: the module was made for %.200s, but now the "
                         "data is %.200s",
                         old_data_info, new_data_info)
               : code;
}
