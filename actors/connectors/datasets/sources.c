/* sources.c - several data sets as one: mixed by weights, one behind the other, or one
 * sample of each for every step
 *
 * Which sample of which source a sample is, is a function of seed, epoch and index.  So
 * ranks share the samples as those of any data set, and a run that resumes continues with
 * the same ones. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/connectors/datasets/datasets.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/random.h"
#include "formats/array.h"
#include "runtime/payload.h"
#include "tensor/graph.h"

/* The words of the option "mode".  From MIN_SIZE on, a sample has one of each source. */
#define MODES "weighted|sequential|min_size|max_size_cycle|max_size"
typedef enum mode {
    WEIGHTED,
    SEQUENTIAL,
    MIN_SIZE,
    MAX_SIZE_CYCLE,
    MAX_SIZE
} sources_mode_t;

/* The samples among which the sources have their shares. */
#define ROUND 1024

/* The data info of the sources behind the first one. */
#define OTHERS "sources"

typedef struct source {
    const pl_dataset_ops_t *ops;
    void *self;
    bool is_open;
    pl_data_info_t info;
    double until;                          /* its share of the weights and those before */
    int64_t begin;                         /* sequential: its first sample */
    int64_t taken;                         /* weighted: samples of it in an epoch */
    size_t size[PL_FIELDS];                /* of a sample, bytes */
} source_t;

typedef struct sources {
    pl_instances_t of;                                      /* options */
    sources_mode_t mode;
    pl_reals_t weights;
    const char *names;
    int64_t samples;
    bool in_order;
    source_t source[PL_INSTANCES];
    int64_t count;                 /* samples of an epoch */
    int16_t share[ROUND];          /* weighted, in_order: which one of a round an index is
                                      of; the same in each round */
} sources_t;

static const pl_option_t sources_options[] = {
    {"sources", PL_OPTION_COMPONENTS, offsetof(sources_t, of), NULL, "dataset",
     "the data sets, up to 8, each with its options"},
    PL_WORD(sources_t, mode, "\"weighted\"", MODES,
            "weighted: samples of all sources in proportion to weights; sequential: one "
            "source behind the other; min_size, max_size_cycle and max_size: one sample "
            "of each source, up to the end of the shortest, or of the longest, while "
            "others begin again or have zeros"),
    PL_REALS(sources_t, weights, "[]", "[0..",
             "of weighted: how often samples of each source come, in proportion; []: as "
             "many samples as each has"),
    PL_INT(sources_t, samples, "0", "0..",
           "of weighted: samples of an epoch; 0: as many as all sources have"),
    PL_TEXT(sources_t, names, "\"\"", NULL,
            "of the modes with one sample of each source: names before the fields of "
            "each, such as \",other\" for \"x\" and \"other_x\"; \"\": none, source1, "
            "source2 and so on"),
    PL_BOOL(sources_t, in_order, "false",
            "take the samples of each source in its order, for tables that are streamed; "
            "false: in random order"),
    PL_OPTIONS_END,
};

static const char *sources_check(const void *self, pl_error_t *err)
{
    const sources_t *s = self;
    double sum = 0;
    for (int k = 0; k < s->weights.count; k++)
        sum += s->weights.value[k];
    if (s->weights.count && s->weights.count != s->of.count) {
        pl_fail(err, PL_EINVAL, "there are %d weights for %d sources", s->weights.count,
                s->of.count);
        return "weights";
    }
    if (s->weights.count && (!(sum > 0) || !isfinite(sum))) {
        pl_fail(err, PL_EINVAL, "give some of the sources a weight above 0");
        return "weights";
    }
    if ((s->weights.count || s->samples) && s->mode != WEIGHTED) {
        pl_fail(err, PL_EINVAL, "only the mode \"weighted\" has it");
        return s->weights.count ? "weights" : "samples";
    }
    return NULL;
}

/* ---- Which samples ---- */

/* Samples of the sources up to this one in the first rounds. */
static int64_t until(const source_t *source, int64_t rounds)
{
    return (int64_t)floor((double)(rounds * ROUND) * source->until);
}

static int64_t taken_in(const sources_t *s, int k, int64_t rounds)
{
    return until(&s->source[k], rounds) - (k ? until(&s->source[k - 1], rounds) : 0);
}

/* The sample of a source at a place, which may lie behind its last one. */
static int64_t sample_at(const sources_t *s, const pl_read_request_t *request, int k,
                         uint64_t epoch, int64_t place)
{
    const int64_t count = s->source[k].info.samples, at = place % count;
    const uint64_t key =
        pl_mix(pl_mix(request->seed, pl_hash_text("sources.order")),
               pl_mix((uint64_t)k, pl_mix(epoch, (uint64_t)(place / count))));
    return s->in_order || request->stage != PL_TRAIN ? at
                                                     : pl_permute_index(key, count, at);
}

/* in_order: samples of a source before an index of an epoch. */
static int64_t taken_before(const sources_t *s, int k, int64_t index)
{
    const int64_t round = index / ROUND,
                  from = k ? until(&s->source[k - 1], round + 1)
                                 - until(&s->source[k - 1], round)
                           : 0,
                  to = until(&s->source[k], round + 1) - until(&s->source[k], round);
    int64_t taken = taken_in(s, k, round);
    for (int64_t i = 0; i < index % ROUND; i++)
        taken += s->share[i] >= from && s->share[i] < to;
    return taken;
}

/* Finds the source of an index, and its sample.  Each source continues behind the samples
 * of the last epoch. */
static int weighted_at(const sources_t *s, const pl_read_request_t *request,
                       int64_t index, int64_t *sample)
{
    const int64_t round = index / ROUND;
    const uint64_t key = pl_mix(pl_mix(request->seed, pl_hash_text("sources.round")),
                                pl_mix(request->epoch, (uint64_t)round));
    const int64_t slot = s->in_order ? s->share[index % ROUND]
                                     : pl_permute_index(key, ROUND, index % ROUND);
    int64_t first = 0;
    int k = 0;
    for (;; k++) {
        const int64_t own = taken_in(s, k, round + 1) - taken_in(s, k, round);
        if (slot < first + own || k == s->of.count - 1)
            break;
        first += own;
    }
    const int64_t before = s->in_order ? taken_before(s, k, index)
                                       : taken_in(s, k, round) + slot - first,
                  place = (int64_t)request->epoch * s->source[k].taken + before;
    *sample = sample_at(s, request, k, 0, place);
    return k;
}

/* ---- Opening ---- */

/* What a source learnt from its samples may not come from those for validation.  A table
 * has moments and categories, so it is refused; a scale of targets is left out. */
static int learnt_drop(char **data_info_p, pl_error_t *err)
{
    static const char *const scale[] = {PL_TARGET_MEAN, PL_TARGET_FACTOR, PL_TARGET_MEANS,
                                        PL_TARGET_FACTORS};
    const char *text = *data_info_p;
    json_t *info = text ? pl_json_value(text, strlen(text), NULL) : NULL;
    bool has_scale = false;
    int code = PL_OK;
    for (size_t k = 0; k < sizeof scale / sizeof *scale; k++)
        has_scale |= info && json_object_del(info, scale[k]) == 0;
    if (json_object_get(info, "columns"))
        code = pl_fail(err, PL_EINVAL,
                       "its moments and categories would be those of the samples for "
                       "validation, too: give \"data.val\" in place of data.val_split");
    else if (has_scale) {
        pl_text_free(*data_info_p);
        *data_info_p = pl_json_write(info, PL_JSON_COMPACT);
        code = *data_info_p ? PL_OK : pl_no_memory(err);
    }
    json_decref(info);
    return code;
}

static int source_open(sources_t *s, int k, const pl_data_request_t *request,
                       const char *data_info, pl_error_t *err)
{
    source_t *source = &s->source[k];
    pl_data_request_t own = *request;
    pl_error_t why = {0};
    source->ops = s->of.value[k].ops;
    source->self = s->of.value[k].self;
    own.data_info = data_info;
    own.from = own.val_split = 0;
    own.to = 1;
    own.stratify = false;
    source->is_open = true;
    int code = source->ops->open(source->self, &own, &source->info, &why);
    if (code == PL_OK && source->info.samples < 1)
        code = pl_fail(&why, PL_EFORMAT, "it has no samples");
    if (code == PL_OK && !data_info && request->val_split > 0)
        code = learnt_drop(&source->info.data_info, &why);
    for (int f = 0; f < source->info.field_count && code == PL_OK; f++) {
        const pl_field_t *field = &source->info.field[f];
        if (pl_varies(field))
            code = pl_fail(&why, PL_EUNSUPPORTED,
                           "its samples differ in length, so it cannot be one of several "
                           "sources");
        else
            source->size[f] = (size_t)pl_elements(field->shape)
                              * pl_array_width(field->dtype);
    }
    return code == PL_OK ? PL_OK
                         : pl_fail(err, code, "source %d, \"%s\": %s", k,
                                   source->ops->name, why.text);
}

/* The name before the fields of a source; its length. */
static int name_of(const sources_t *s, int k, char name[static 32])
{
    const char *text = s->names;
    if (!*text)
        return k ? snprintf(name, 32, "source%d_", k) : snprintf(name, 32, "%s", "");
    for (int i = 0; i < k && *text; i++)
        text += strcspn(text, ",") + (text[strcspn(text, ",")] != 0);
    const int length = (int)strcspn(text, ",");
    return length ? snprintf(name, 32, "%.*s_", length, text)
                  : snprintf(name, 32, "%s", "");
}

/* Adds the fields of a source, and of max_size whether it has a sample. */
static int fields_add(const sources_t *s, int k, pl_data_info_t *info, pl_error_t *err)
{
    const pl_data_info_t *own = &s->source[k].info;
    char before[32], name[80];
    name_of(s, k, before);
    for (int f = 0; f < own->field_count + (s->mode == MAX_SIZE); f++) {
        const bool is_own = f < own->field_count;
        snprintf(name, sizeof name, "%s%s", before,
                 is_own ? own->field[f].name : "there");
        for (int i = 0; i < info->field_count; i++)
            if (!strcmp(info->field[i].name, name))
                return pl_fail(err, PL_EINVAL,
                               "two sources have a field \"%s\": set \"names\"", name);
        if (info->field_count == PL_FIELDS || strlen(name) >= sizeof own->field->name)
            return pl_fail(err, PL_EINVAL,
                           "field \"%s\" of source %d: all sources together have at most "
                           "%d fields, with names of up to %zu bytes",
                           name, k, PL_FIELDS, sizeof own->field->name - 1);
        pl_dataset_field(info, name, is_own ? own->field[f].dtype : PL_F32,
                         is_own ? own->field[f].shape : (pl_shape_t){0});
    }
    return PL_OK;
}

static int same_fields(const sources_t *s, int k, pl_error_t *err)
{
    const pl_data_info_t *first = &s->source[0].info, *own = &s->source[k].info;
    bool same = first->field_count == own->field_count;
    for (int f = 0; f < own->field_count && same; f++)
        same = !strcmp(first->field[f].name, own->field[f].name)
               && first->field[f].dtype == own->field[f].dtype
               && pl_same_shape(first->field[f].shape, own->field[f].shape);
    return same ? PL_OK
                : pl_fail(err, PL_EINVAL,
                          "source %d has other fields than source 0: names, types and "
                          "shapes must be the same",
                          k);
}

/* Counts the samples of an epoch, and the shares of the sources. */
static void samples_count(sources_t *s)
{
    double weights = 0, sum = 0;
    int64_t all = 0, least = INT64_MAX, most = 0;
    for (int k = 0; k < s->of.count; k++) {
        const int64_t own = s->source[k].info.samples;
        s->source[k].begin = all;
        all += own;
        least = own < least ? own : least;
        most = own > most ? own : most;
        weights += s->weights.count ? s->weights.value[k] : (double)own;
    }
    s->count = s->mode == WEIGHTED     ? s->samples ? s->samples : all
               : s->mode == SEQUENTIAL ? all
               : s->mode == MIN_SIZE   ? least
                                       : most;
    for (int k = 0; k < s->of.count; k++) {
        sum += s->weights.count ? s->weights.value[k] : (double)s->source[k].info.samples;
        s->source[k].until = k == s->of.count - 1 ? 1 : sum / weights;
    }
    for (int k = 0; k < s->of.count; k++)
        s->source[k].taken = s->in_order ? taken_before(s, k, s->count)
                                         : taken_in(s, k, (s->count + ROUND - 1) / ROUND);
}

static int sources_open(void *self, const pl_data_request_t *request,
                        pl_data_info_t *info, pl_error_t *err)
{
    sources_t *s = self;
    pl_data_info_t found = {0};
    const bool each = s->mode >= MIN_SIZE;
    const char *text = request->data_info;
    json_t *known = text ? pl_json_value(text, strlen(text), NULL) : NULL,
           *others = json_array();
    pl_error_t why = {0};
    int code = others ? PL_OK : pl_no_memory(err);
    if (!code && sources_check(s, &why))           /* a program may not have checked it */
        code = pl_fail(err, why.code, "%s", why.text);
    if (!code && request->val_split > 0 && s->mode != SEQUENTIAL)
        code = pl_fail(err, PL_EINVAL,
                       "data.val_split cannot divide sources of the mode that is set: a "
                       "sample would be on both sides; give \"data.val\" a source");
    for (int k = 0; k < s->of.count && !code; k++) {
        char *own = NULL;
        const json_t *of = json_array_get(json_object_get(known, OTHERS), (size_t)k - 1);
        if (k && each && of)
            own = pl_json_write(of, PL_JSON_COMPACT);
        /* Mixed samples mean the same: all are prepared as the first source. */
        code = source_open(s, k, request,
                           k == 0 ? text
                           : each ? own
                           : text ? text
                                  : s->source[0].info.data_info,
                           err);
        pl_text_free(own);
        if (!code && (each || k == 0))
            code = fields_add(s, k, &found, err);
        else if (!code)
            code = same_fields(s, k, err);
        const char *learnt = s->source[k].info.data_info;
        if (!code && k && each)
            others = pl_json_append(others,
                                    learnt ? pl_json_value(learnt, strlen(learnt), NULL)
                                           : json_object());
        found.same_samples |= s->source[k].info.same_samples;
    }
    const char *first = s->source[0].info.data_info;
    char *made = code ? NULL : pl_text("%s", first ? first : "{\"shape\": []}"),
         *more = !code && each ? pl_json_write(others, PL_JSON_COMPACT) : NULL;
    if (!code && each && s->of.count > 1 && !json_object_get(known, OTHERS))
        made = pl_data_info_add(&made, OTHERS, &more);
    pl_text_free(more);
    json_decref(others);
    json_decref(known);
    if (!code && !made)
        code = pl_no_memory(err);
    if (code)
        return code;
    for (int64_t i = 0; i < ROUND; i++)
        s->share[i] = (int16_t)pl_permute_index(pl_mix(request->seed,
                                                       pl_hash_text("sources.in_order")),
                                                ROUND, i);
    samples_count(s);
    found.samples = s->count;
    found.data_info = made;
    *info = found;
    return PL_OK;
}

/* ---- Reading ---- */

/* Reads a sample of a source into the i-th one of fields. */
static int source_read(const sources_t *s, int k, const pl_read_request_t *request,
                       int64_t sample, int i, void *const field[], pl_error_t *err)
{
    const source_t *source = &s->source[k];
    pl_read_request_t one = *request;
    pl_error_t why = {0};
    void *at[PL_FIELDS] = {0};
    one.index = &sample;
    one.count = 1;
    one.seed = k ? pl_mix(request->seed, (uint64_t)k) : request->seed;
    for (int f = 0; f < source->info.field_count; f++)
        at[f] = (char *)field[f] + (size_t)i * source->size[f];
    const int code = source->ops->read(source->self, &one, at, &why);
    return code == PL_OK ? PL_OK
                         : pl_fail(err, code, "source %d, sample %lld: %s", k,
                                   (long long)sample, why.text);
}

static int sources_read(const void *self, const pl_read_request_t *request,
                        void *const field[], pl_error_t *err)
{
    const sources_t *s = self;
    int code = PL_OK;
    for (int i = 0; i < request->count && !code; i++) {
        const int64_t index = request->index[i];
        int64_t sample = index;
        int k = 0;
        if (s->mode == WEIGHTED) {
            k = weighted_at(s, request, index, &sample);
            code = source_read(s, k, request, sample, i, field, err);
        } else if (s->mode == SEQUENTIAL) {
            while (k + 1 < s->of.count && index >= s->source[k + 1].begin)
                k++;
            code = source_read(s, k, request, index - s->source[k].begin, i, field, err);
        }
        for (int f = 0; s->mode >= MIN_SIZE && k < s->of.count && !code; k++) {
            const pl_data_info_t *own = &s->source[k].info;
            const bool is_there = s->mode != MAX_SIZE || index < own->samples;
            sample = sample_at(s, request, k, request->epoch, index);
            if (is_there)
                code = source_read(s, k, request, sample, i, field + f, err);
            for (int j = 0; j < own->field_count && !is_there; j++)
                memset((char *)field[f + j] + (size_t)i * s->source[k].size[j], 0,
                       s->source[k].size[j]);
            f += own->field_count;
            if (s->mode == MAX_SIZE)
                ((float *)field[f++])[i] = is_there;
        }
    }
    return code;
}

static void sources_close(void *self)
{
    sources_t *s = self;
    for (int k = 0; k < s->of.count; k++) {
        source_t *source = &s->source[k];
        if (source->is_open && source->ops->close)
            source->ops->close(source->self);
        pl_text_free(source->info.data_info);
        *source = (source_t){0};
    }
}

const pl_dataset_ops_t pl_sources_dataset = {
    .name = "sources",
    .help = "several data sets as one: mixed by weights, one behind the other, or one "
            "sample of each",
    .size = sizeof(sources_t),
    .options = sources_options,
    .check = sources_check,
    .open = sources_open,
    .read = sources_read,
    .close = sources_close,
};
