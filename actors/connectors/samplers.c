/* samplers.c - samplers: which samples an epoch has, and in which order
 *
 * weighted and balanced draw with replacement: the sample at a place of an epoch is the
 * one on whose share of all weights a random number falls.  by_length sorts once; what
 * differs by epoch are permutations, which need no memory. */
#include "actors/connectors/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "formats/array.h"

typedef struct weighted {
    int64_t samples;                                        /* options */
    pl_reals_t class_weights;
    const char *path;
    uint64_t key;
    int64_t count;                    /* samples of the data */
    double *until;                    /* [count], the sum of the weights up to a sample */
} weighted_t;

/* ---- drawing ---- */

static int64_t weighted_at(const void *self, uint64_t epoch, int64_t place)
{
    const weighted_t *w = self;
    const double at = pl_random_uniform(pl_mix(w->key, epoch), (uint64_t)place)
                      * w->until[w->count - 1];
    int64_t low = 0, high = w->count - 1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (w->until[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Adds up the weights, which lie in `until`. */
static int weights_add(weighted_t *w, const pl_sampler_data_t *data, int64_t *count,
                       pl_error_t *err)
{
    double sum = 0;
    for (int64_t k = 0; k < w->count; k++) {
        if (!(w->until[k] >= 0) || !isfinite(w->until[k]))
            return pl_fail(err, PL_EINVAL,
                           "the weight of sample %lld is %g: weights are numbers of at "
                           "least 0",
                           (long long)k, w->until[k]);
        w->until[k] = sum += w->until[k];
    }
    if (!(sum > 0) || !isfinite(sum))
        return pl_fail(err, PL_EINVAL,
                       "the sum of all weights is %g: give some of the "
                       "samples a weight above 0",
                       sum);
    *count = w->samples ? w->samples : w->count;
    w->key = pl_mix(data->seed, pl_hash_text("data.sampler"));
    return PL_OK;
}

static int weighted_begin(weighted_t *w, const pl_sampler_data_t *data, pl_error_t *err)
{
    w->count = data->samples;
    w->until = pl_alloc_array((size_t)w->count, sizeof *w->until);
    return w->until ? PL_OK : pl_no_memory(err);
}

static void weighted_close(void *self)
{
    pl_free(((weighted_t *)self)->until);
}

/* ---- weighted ---- */

static int weights_of_file(weighted_t *w, const pl_sampler_data_t *data, pl_error_t *err)
{
    pl_array_t array = {0};
    int code = pl_npy_load(w->path, pl_file_limit(), &array, err);
    if (code != PL_OK)
        return code;
    if (array.count != data->total || array.shape.rank != 1)
        code = pl_fail(err, PL_EINVAL,
                       "%s: it has %lld numbers, and the data has %lld samples: give one "
                       "weight for each",
                       w->path, (long long)array.count, (long long)data->total);
    double *all = code == PL_OK ? pl_alloc_array((size_t)array.count, sizeof *all) : NULL;
    if (code == PL_OK && !all)
        code = pl_no_memory(err);
    for (int64_t k = 0; k < array.count && code == PL_OK; k++)
        all[k] = array.dtype == PL_F64   ? ((const double *)array.data)[k]
                 : array.dtype == PL_F32 ? ((const float *)array.data)[k]
                 : array.dtype == PL_I32 ? ((const int32_t *)array.data)[k]
                 : array.dtype == PL_I64 ? (double)((const int64_t *)array.data)[k]
                                         : ((const uint8_t *)array.data)[k];
    for (int64_t k = 0; k < w->count && code == PL_OK; k++)
        w->until[k] = all[data->number ? data->number[k] : k];
    pl_free(all);
    pl_array_release(&array);
    return code;
}

static const char *weighted_check(const void *self, pl_error_t *err)
{
    const weighted_t *w = self;
    if (!*w->path != !w->class_weights.count)
        return NULL;
    pl_fail(err, PL_EINVAL,
            "give either \"class_weights\", a weight for each class, or \"path\", a file "
            "with one for each sample");
    return "class_weights";
}

static int weighted_open(void *self, const pl_sampler_data_t *data, int64_t *count,
                         pl_error_t *err)
{
    weighted_t *w = self;
    int code = weighted_begin(w, data, err);
    if (code == PL_OK && *w->path)
        code = weights_of_file(w, data, err);
    else if (code == PL_OK && !data->classes)
        code = pl_fail(err, PL_EINVAL,
                       "\"class_weights\" is for samples with classes: a field \"y\" of "
                       "one whole number for each sample");
    for (int64_t k = 0; k < w->count && code == PL_OK && !*w->path; k++) {
        const int64_t of = data->classes[k];
        if (of < 0 || of >= w->class_weights.count)
            return pl_fail(err, PL_EINVAL,
                           "\"class_weights\" is a list of %d, and a sample has class "
                           "%lld: classes are numbered from 0",
                           w->class_weights.count, (long long)of);
        w->until[k] = w->class_weights.value[of];
    }
    return code == PL_OK ? weights_add(w, data, count, err) : code;
}

static const pl_option_t weighted_options[] = {
    PL_INT(weighted_t, samples, "0", "0..",
           "samples of an epoch; 0: as many as there are"),
    PL_REALS(weighted_t, class_weights, "[]", "[0..",
             "how often a sample of each class is drawn, in proportion"),
    PL_TEXT(weighted_t, path, "\"\"", NULL,
            ".npy file with how often each sample of the training data is drawn"),
    PL_OPTIONS_END,
};

static const pl_sampler_ops_t weighted_sampler = {
    .name = "weighted",
    .help = "draws each sample in proportion to its weight, some of them several times",
    .size = sizeof(weighted_t),
    .options = weighted_options,
    .check = weighted_check,
    .open = weighted_open,
    .at = weighted_at,
    .close = weighted_close,
};

/* ---- balanced ---- */

static int compare_classes(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The weight of a sample is one divided by the samples of its class. */
static int balanced_open(void *self, const pl_sampler_data_t *data, int64_t *count,
                         pl_error_t *err)
{
    weighted_t *w = self;
    if (!data->classes)
        return pl_fail(err, PL_EINVAL,
                       "it needs classes: a field \"y\" of one whole number for each "
                       "sample");
    int64_t *sorted = pl_alloc_array((size_t)data->samples, sizeof *sorted);
    int code = sorted ? weighted_begin(w, data, err) : pl_no_memory(err);
    if (code == PL_OK) {
        memcpy(sorted, data->classes, (size_t)w->count * sizeof *sorted);
        qsort(sorted, (size_t)w->count, sizeof *sorted, compare_classes);
    }
    for (int64_t k = 0; k < w->count && code == PL_OK; k++) {
        int64_t end[2];                                     /* of smaller, and of equal */
        for (int i = 0; i < 2; i++) {
            int64_t low = 0, high = w->count;
            while (low < high) {
                const int64_t middle = low + (high - low) / 2;
                if (sorted[middle] < data->classes[k] + i)
                    low = middle + 1;
                else
                    high = middle;
            }
            end[i] = low;
        }
        w->until[k] = 1.0 / (double)(end[1] - end[0]);
    }
    pl_free(sorted);
    return code == PL_OK ? weights_add(w, data, count, err) : code;
}

static const pl_option_t balanced_options[] = {
    PL_INT(weighted_t, samples, "0", "0..",
           "samples of an epoch; 0: as many as there are"),
    PL_OPTIONS_END,
};

static const pl_sampler_ops_t balanced_sampler = {
    .name = "balanced",
    .help = "draws samples of all classes equally often",
    .size = sizeof(weighted_t),
    .options = balanced_options,
    .open = balanced_open,
    .at = weighted_at,
    .close = weighted_close,
};

/* ---- by_length ---- */

typedef struct by_length {
    int64_t window;                                         /* option: batches */
    uint64_t key;
    int64_t count, batch_size;
    int64_t *sample;                              /* [count], the longest first */
} by_length_t;

typedef struct ranked {
    int64_t length, sample;
} ranked_t;

static int compare_lengths(const void *a, const void *b)
{
    const ranked_t *x = a, *y = b;
    if (x->length != y->length)
        return (x->length < y->length) - (x->length > y->length);
    return (x->sample > y->sample) - (x->sample < y->sample);
}

static int by_length_open(void *self, const pl_sampler_data_t *data, int64_t *count,
                          pl_error_t *err)
{
    by_length_t *s = self;
    (void)count;
    if (!data->length)
        return pl_fail(err, PL_EINVAL,
                       "it groups samples that vary in length, and the fields of this "
                       "data have one shape: remove \"data.sampler\"");
    ranked_t *m = pl_alloc_array((size_t)data->samples, sizeof *m);
    s->sample = pl_alloc_array((size_t)data->samples, sizeof *s->sample);
    for (int64_t k = 0; m && s->sample && k < data->samples; k++)
        m[k] = (ranked_t){data->length[k], k};
    if (m && s->sample)
        qsort(m, (size_t)data->samples, sizeof *m, compare_lengths);
    for (int64_t k = 0; m && s->sample && k < data->samples; k++)
        s->sample[k] = m[k].sample;
    const bool is_made = m && s->sample;
    pl_free(m);
    s->count = data->samples;
    s->batch_size = data->batch_size;
    s->key = pl_mix(data->seed, pl_hash_text("data.sampler"));
    return is_made ? PL_OK : pl_no_memory(err);
}

/* Full batches come in a random order; behind them the rest, of the shortest samples.  A
 * batch has samples of one window, in which they are mixed. */
static int64_t by_length_at(const void *self, uint64_t epoch, int64_t place)
{
    const by_length_t *s = self;
    const uint64_t key = pl_mix(s->key, epoch);
    const int64_t size = s->batch_size, batches = s->count / size,
                  quarter = batches < 4 ? 1 : batches / 4,
                  window = s->window < quarter ? s->window : quarter,
                  windows = batches < window ? 1 : batches / window;
    if (place < batches * size)
        place = pl_permute_index(key, batches, place / size) * size + place % size;
    int64_t at = place / (window * size);
    at = at < windows ? at : windows - 1;                   /* the last has the rest */
    const int64_t begin = at * window * size,
                  end = at == windows - 1 ? s->count : begin + window * size;
    return s->sample[begin
                     + pl_permute_index(pl_mix(key, (uint64_t)at + 1), end - begin,
                                        place - begin)];
}

static void by_length_close(void *self)
{
    pl_free(((by_length_t *)self)->sample);
}

static const pl_option_t by_length_options[] = {
    PL_INT(by_length_t, window, "16", "1..",
           "batches of neighbouring lengths whose samples are mixed in each epoch, at "
           "most a quarter of all"),
    PL_OPTIONS_END,
};

static const pl_sampler_ops_t by_length_sampler = {
    .name = "by_length",
    .help = "batches of samples of nearly one length, in another order in each epoch",
    .size = sizeof(by_length_t),
    .options = by_length_options,
    .open = by_length_open,
    .at = by_length_at,
    .close = by_length_close,
};

const pl_registration_t pl_sampler_components[] = {
    {"sampler", &balanced_sampler},
    {"sampler", &by_length_sampler},
    {"sampler", &weighted_sampler},
    {NULL, NULL},
};

/* ---- the order of a run ---- */

void pl_sample_order_close(pl_sample_order_t *order)
{
    const pl_sampler_ops_t *ops = order->instance.ops;
    if (order->is_open && ops->close)
        ops->close(order->instance.self);
    pl_instance_release(&order->instance);
    pl_free(order->number);
    pl_free(order->classes);
    pl_free(order->length);
    *order = (pl_sample_order_t){0};
}

int pl_sample_order_open(pl_sample_order_t *order, const pl_choice_t *choice,
                         const pl_sampler_data_t *data, pl_error_t *err)
{
    pl_error_t why = {0};
    int code = pl_instance_of_choice(&order->instance, "sampler", choice, NULL, err);
    if (code != PL_OK)
        return code;
    const pl_sampler_ops_t *ops = order->instance.ops;
    order->of = order->count = data->samples;
    order->is_open = true;
    if (!ops->open || !ops->at)
        code = pl_fail(&why, PL_EUSER, "its table lacks open or at");
    else
        code = ops->open(order->instance.self, data, &order->count, &why);
    if (code == PL_OK && order->count < 1)
        code = pl_fail(&why, PL_EUSER, "an epoch has %lld samples",
                       (long long)order->count);
    if (code == PL_OK)
        return PL_OK;
    pl_fail(err, code, "sampler \"%s\": %s", ops->name, why.text);
    pl_sample_order_close(order);
    return code;
}
