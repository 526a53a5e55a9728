/* sampler.c - the order of samples: splits, shuffles, partitions and buckets of lengths
 *
 * Of a split, only held samples are stored.  The others are found by counting: held[k]
 * - k of them come before the k-th held sample.  Of a split that is too large to be
 * stored, nothing is: a permutation has the held samples in one range of its places. */
#include "actors/connectors/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

static int compare_samples(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* ---- a split that keeps the proportions of classes ---- */

typedef struct member {
    int64_t target, sample;
    uint64_t key;                                           /* the order within a class */
} member_t;

/* The samples of one class. */
typedef struct group {
    int64_t begin, count, take;
    double rest;                                /* of the share, after rounding it down */
} group_t;

static int compare_members(const void *a, const void *b)
{
    const member_t *x = a, *y = b;
    if (x->target != y->target)
        return (x->target > y->target) - (x->target < y->target);
    if (x->key != y->key)
        return (x->key > y->key) - (x->key < y->key);
    return (x->sample > y->sample) - (x->sample < y->sample);
}

static int compare_groups(const void *a, const void *b)
{
    const group_t *x = a, *y = b;
    if (x->rest != y->rest)
        return (x->rest < y->rest) - (x->rest > y->rest);
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Fills held [count]; -> the number of held samples, fewer if classes are too small.  Of
 * each class are held: its share rounded down, then one more of the classes with the
 * largest rests until there are `count`.  At least one sample of each class stays. */
static int64_t split_by_class(const pl_data_split_spec_t *spec, uint64_t key,
                              int64_t count, member_t *member, group_t *group,
                              int64_t *held)
{
    int64_t made = 0, groups = 0;
    for (int64_t k = 0; k < spec->total; k++)
        member[k] = (member_t){spec->target[k], k, pl_random_u64(key, (uint64_t)k)};
    qsort(member, (size_t)spec->total, sizeof *member, compare_members);
    for (int64_t k = 0; k < spec->total; k++) {
        if (k == 0 || member[k].target != member[k - 1].target)
            group[groups++] = (group_t){.begin = k};
        group[groups - 1].count++;
    }
    int64_t taken = 0;
    for (int64_t k = 0; k < groups; k++) {
        const double exact = spec->share * (double)group[k].count;
        group[k].take = (int64_t)floor(exact);
        group[k].rest = exact - (double)group[k].take;
        taken += group[k].take;
    }
    qsort(group, (size_t)groups, sizeof *group, compare_groups);
    for (bool more = true; more && taken < count;) {
        more = false;
        for (int64_t k = 0; k < groups && taken < count; k++)
            if (group[k].take + 1 < group[k].count) {
                group[k].take++;
                taken++;
                more = true;
            }
    }
    for (int64_t k = 0; k < groups; k++)
        for (int64_t i = 0; i < group[k].take && made < count; i++)
            held[made++] = member[group[k].begin + i].sample;
    return made;
}

/* The samples of each class are dealt out to the folds in turn. */
static int64_t split_by_class_folds(const pl_data_split_spec_t *spec, uint64_t key,
                                    member_t *member, int64_t *held)
{
    int64_t made = 0;
    for (int64_t k = 0; k < spec->total; k++)
        member[k] = (member_t){spec->target[k], k, pl_random_u64(key, (uint64_t)k)};
    qsort(member, (size_t)spec->total, sizeof *member, compare_members);
    for (int64_t k = spec->fold; k < spec->total; k += spec->folds)
        held[made++] = member[k].sample;
    return made;
}

/* ---- a split that parts no group ---- */

static int compare_sizes(const void *a, const void *b)
{
    const group_t *x = a, *y = b;
    if (x->count != y->count)
        return (x->count < y->count) - (x->count > y->count);
    if (x->rest != y->rest)
        return (x->rest > y->rest) - (x->rest < y->rest);
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The numbers of classes in parts: each group goes to the part that comes nearest to its
 * share of each class by it. */
typedef struct parts {
    int64_t count, classes;
    const int64_t *value;                                   /* [classes], rising */
    double *total, *own;                                    /* [classes] samples */
    double *filled;                                         /* [count, classes] */
} parts_t;

static double part_cost(const parts_t *parts, int64_t part, double share)
{
    double cost = 0;
    const double *filled = parts->filled + part * parts->classes;
    for (int64_t c = 0; c < parts->classes; c++)
        cost += (2 * filled[c] + parts->own[c]) * parts->own[c]
                / (share * parts->total[c] * parts->total[c]);
    return cost;
}

static int64_t class_of(const parts_t *parts, const int64_t *target, int64_t sample)
{
    const int64_t *found = target ? bsearch(&target[sample], parts->value,
                                            (size_t)parts->classes, sizeof *parts->value,
                                            compare_samples)
                                  : parts->value;
    return found - parts->value;
}

/* Fills held; the samples of group k are member[begin .. begin + count).  Large groups
 * are placed first, groups of one size in random order. */
static int64_t groups_place(const pl_data_split_spec_t *spec, parts_t *parts,
                            const member_t *member, const group_t *group, int64_t groups,
                            int64_t *held)
{
    const int64_t wanted = spec->folds ? spec->fold : 0;
    int64_t made = 0, empty = parts->count;
    bool *used = pl_alloc_array((size_t)parts->count, sizeof *used);
    for (int64_t k = 0; used && k < groups; k++) {
        int64_t best = -1;
        double least = INFINITY;
        for (int64_t c = 0; c < parts->classes; c++)
            parts->own[c] = 0;
        const member_t *of = &member[group[k].begin];
        for (int64_t i = 0; i < group[k].count; i++)
            parts->own[class_of(parts, spec->target, of[i].sample)]++;
        for (int64_t part = 0; part < parts->count; part++) {
            const double share = spec->folds ? 1 / (double)spec->folds
                                 : part == 0 ? spec->share
                                             : 1 - spec->share,
                         cost = part_cost(parts, part, share);
            if (cost >= least || (used[part] && groups - k <= empty))
                continue;
            least = cost;
            best = part;
        }
        empty -= !used[best];
        used[best] = true;
        for (int64_t c = 0; c < parts->classes; c++)
            parts->filled[best * parts->classes + c] += parts->own[c];
        for (int64_t i = 0; i < group[k].count && best == wanted; i++)
            held[made++] = of[i].sample;
    }
    made = used ? made : -1;
    pl_free(used);
    return made;
}

/* -> the number of held samples; -1: out of memory, -2: *groups_p groups are too few. */
static int64_t split_by_group(const pl_data_split_spec_t *spec, uint64_t key,
                              member_t *member, group_t *group, int64_t *held,
                              int64_t *groups_p)
{
    const int64_t total = spec->total;
    int64_t groups = 0, made = -1;
    parts_t parts = {.count = spec->folds ? spec->folds : 2, .classes = 1};
    int64_t *value = pl_alloc_array((size_t)total, sizeof *value);
    if (!value)
        return -1;
    for (int64_t k = 0; k < total; k++) {
        member[k] = (member_t){spec->group[k], k, 0};
        value[k] = spec->target ? spec->target[k] : 0;
    }
    qsort(value, (size_t)total, sizeof *value, compare_samples);
    for (int64_t k = 1; k < total; k++)
        if (value[k] != value[parts.classes - 1])
            value[parts.classes++] = value[k];
    qsort(member, (size_t)total, sizeof *member, compare_members);
    for (int64_t k = 0; k < total; k++) {
        if (k == 0 || member[k].target != member[k - 1].target) {
            group[groups] = (group_t){.begin = k,
                                      .rest = pl_random_uniform(key, (uint64_t)groups)};
            groups++;
        }
        group[groups - 1].count++;
    }
    qsort(group, (size_t)groups, sizeof *group, compare_sizes);
    parts.value = value;
    parts.total = pl_alloc_array((size_t)parts.classes, sizeof *parts.total);
    parts.own = pl_alloc_array((size_t)parts.classes, sizeof *parts.own);
    parts.filled = pl_alloc_array((size_t)(parts.count * parts.classes),
                                  sizeof *parts.filled);
    *groups_p = groups;
    if (parts.total && parts.own && parts.filled) {
        for (int64_t k = 0; k < total; k++)
            parts.total[class_of(&parts, spec->target, k)]++;
        made = groups < parts.count
                   ? -2
                   : groups_place(spec, &parts, member, group, groups, held);
    }
    pl_free(value);
    pl_free(parts.total);
    pl_free(parts.own);
    pl_free(parts.filled);
    return made;
}

/* Of larger parts no sample is stored: 64 MiB. */
#define STORED_MAX (INT64_C(1) << 23)

/* The error of a split that leaves no samples on one side. */
static int split_refuse(const pl_data_split_spec_t *spec, bool holds, pl_error_t *err)
{
    const char *left = holds ? "nothing to train on" : "nothing to validate on";
    return spec->folds
               ? pl_fail(err, PL_EINVAL,
                         "data.folds %lld of %lld samples leaves %s: choose at most %lld",
                         (long long)spec->folds, (long long)spec->total, left,
                         (long long)spec->total)
               : pl_fail(err, PL_EINVAL,
                         "data.val_split %g of %lld samples leaves %s: choose another, "
                         "or none",
                         spec->share, (long long)spec->total, left);
}

int pl_data_split_make(pl_data_split_t *split, const pl_data_split_spec_t *spec,
                       pl_error_t *err)
{
    const int64_t total = spec->total, folds = spec->folds,
                  first = folds ? total * spec->fold / folds : 0;
    int64_t count = folds ? total * (spec->fold + 1) / folds - first
                          : llround(spec->share * (double)total),
            groups = 0;
    if (count < 1 || count >= total || folds > total)
        return split_refuse(spec, count >= total, err);
    uint64_t key = pl_mix(spec->seed, pl_hash_text("data.val_split"));
    if (count > STORED_MAX && !spec->target && !spec->group) {
        *split = (pl_data_split_t){total, count, NULL, key, first};
        return PL_OK;
    }
    int64_t *held = pl_alloc_array((size_t)(spec->group ? total : count + 1),
                                   sizeof *held);
    if (!held)
        return pl_no_memory(err);
    for (int64_t k = 0; k < count && !spec->target && !spec->group; k++)
        held[k] = pl_permute_index(key, total, first + k);
    if (spec->target || spec->group) {
        member_t *member = pl_alloc_array((size_t)total, sizeof *member);
        group_t *group = pl_alloc_array((size_t)total, sizeof *group);
        count = !member || !group ? -1
                : spec->group ? split_by_group(spec, key, member, group, held, &groups)
                : folds       ? split_by_class_folds(spec, key, member, held)
                              : split_by_class(spec, key, count, member, group, held);
        pl_free(member);
        pl_free(group);
    }
    if (count < 1) {
        pl_free(held);
        return count == -1 ? pl_no_memory(err)
               : count == -2
                   ? pl_fail(err, PL_EINVAL,
                             "there are %lld groups of samples, too few for %lld parts%s",
                             (long long)groups, folds ? (long long)folds : 2,
                             groups > 1 ? ": lower data.folds" : ": remove data.groups")
                   : pl_fail(err, PL_EINVAL,
                             "data.stratify: no class has two samples, so there "
                             "is nothing to validate on");
    }
    qsort(held, (size_t)count, sizeof *held, compare_samples);
    *split = (pl_data_split_t){total, count, held, key, first};
    return PL_OK;
}

bool pl_data_split_holds(const pl_data_split_t *split, int64_t sample)
{
    if (split->held_count > 0 && !split->held) {
        const int64_t place = pl_permute_place(split->key, split->total, sample)
                              - split->first;
        return place >= 0 && place < split->held_count;
    }
    /* A binary search without branches: tables ask this for each of their cells. */
    const int64_t *at = split->held;
    int64_t count = split->held_count;
    for (int64_t half; count > 1; count -= half) {
        half = count / 2;
        at += at[half] <= sample ? half : 0;
    }
    return count > 0 && *at == sample;
}

void pl_data_split_release(pl_data_split_t *split)
{
    pl_free(split->held);
    *split = (pl_data_split_t){0};
}

/* ---- how samples are dealt out ---- */

static int64_t between(int64_t min, int64_t value, int64_t max)
{
    return value < min ? min : value < max ? value : max;
}

/* Number of samples of a partition when they are dealt out one by one. */
static int64_t share(const pl_sampler_partition_t *of, uint32_t partition, int64_t count)
{
    const int64_t more = partition < count % of->partitions && !of->even;
    return count / of->partitions + more;
}

/* The first micro-shard of a partition. */
static int64_t micro_shard_first(const pl_sampler_partition_t *of, uint32_t partition)
{
    return (int64_t)of->micro_shards * partition / of->partitions;
}

/* The number of `count` samples that come in batches. */
static int64_t used(const pl_sampler_partition_t *of, int64_t count, int64_t batch_size)
{
    const int64_t batch = (of->micro_shards ? of->micro_shards : of->partitions)
                          * batch_size;
    return of->drop_last ? count - count % batch : count;
}

int64_t pl_sampler_full_batch(const pl_sampler_partition_t *of, int64_t count,
                              int64_t batch_size)
{
    if (of->drop_last)
        return batch_size;
    return between(1, of->micro_shards ? count : share(of, 0, count), batch_size);
}

int64_t pl_sampler_max_batch(const pl_sampler_partition_t *of, int64_t count,
                             int64_t batch_size)
{
    const int64_t full = pl_sampler_full_batch(of, count, batch_size),
                  micro_shards = micro_shard_first(of, of->partition + 1)
                                 - micro_shard_first(of, of->partition);
    return of->micro_shards ? between(1, micro_shards * full, count)
                            : between(1, count, full);
}

int64_t pl_sampler_batches(const pl_sampler_partition_t *of, int64_t count,
                           int64_t batch_size)
{
    count = used(of, count, batch_size);
    const int64_t max = of->micro_shards ? count : share(of, 0, count),
                  all = of->micro_shards ? of->micro_shards * batch_size : batch_size;
    return max / all + (max % all && !(of->micro_shards && of->even));
}

int64_t pl_sampler_batch_count(const pl_sampler_partition_t *of, int64_t count,
                               int64_t batch_size, int64_t batch)
{
    count = used(of, count, batch_size);
    if (!of->micro_shards)
        return between(0, share(of, of->partition, count) - batch * batch_size,
                       batch_size);
    const int64_t from = micro_shard_first(of, of->partition) * batch_size,
                  to = micro_shard_first(of, of->partition + 1) * batch_size;
    return between(0, count - batch * of->micro_shards * batch_size - from, to - from);
}

int64_t pl_sampler_position(const pl_sampler_partition_t *of, int64_t batch_size,
                            int64_t batch, int64_t i)
{
    if (!of->micro_shards)
        return of->partition + (batch * batch_size + i) * of->partitions;
    return (batch * of->micro_shards + micro_shard_first(of, of->partition)) * batch_size
           + i;
}

void pl_sampler_batch_sizes(const pl_sampler_partition_t *of, int64_t count,
                            int64_t batch_size, int64_t size[2])
{
    if (of->drop_last) {
        size[0] = used(of, count, batch_size) ? batch_size : 0;
        size[1] = 0;
        return;
    }
    const int64_t own = of->micro_shards ? count : share(of, of->partition, count);
    size[0] = pl_sampler_full_batch(of, count, batch_size);
    size[1] = of->micro_shards && of->even ? 0 : own % size[0];
}

/* ---- the order ---- */

/* pl_hash_text("data.shuffle"), which compilers do not evaluate: each sample needs it. */
#define SHUFFLE UINT64_C(0x812a0c319e7a061a)

/* Windows come in random order, and the samples of each: so a reader that keeps what it
 * has read needs each part of the file once.  In each epoch windows begin elsewhere. */
static int64_t shuffle_windows(uint64_t key, int64_t count, int64_t window, int64_t place)
{
    const int64_t windows = count / window, whole = windows * window;
    int64_t at = whole, size = count - whole, number = windows;
    if (place < whole) {
        number = pl_permute_index(key, windows, place / window);
        at = number * window;
        size = window;
    }
    at += pl_permute_index(pl_mix(key, (uint64_t)number + 1), size, place % window);
    return (int64_t)(((uint64_t)at + key % (uint64_t)count) % (uint64_t)count);
}

/* The rest are the samples that are not held back, in rising order. */
int64_t pl_sampler_at(const pl_sampler_t *sampler, uint64_t epoch, int64_t place)
{
    if (sampler->order) {
        const pl_sampler_ops_t *ops = sampler->order->instance.ops;
        place = ops->at(sampler->order->instance.self, epoch, place);
        if (place < 0 || place >= sampler->order->of)
            return -1;
    } else if (sampler->shuffle) {
        const uint64_t key = pl_mix(pl_mix(sampler->seed, SHUFFLE), epoch);
        place = sampler->window > 0 && sampler->window < sampler->count
                    ? shuffle_windows(key, sampler->count, sampler->window, place)
                    : pl_permute_index(key, sampler->count, place);
    }
    if (sampler->side == PL_WHOLE)
        return place;
    const pl_data_split_t *split = sampler->split;
    const int64_t *held = split->held;
    if (!held) {
        const bool behind = sampler->side == PL_HELD || place >= split->first;
        const int64_t skipped = sampler->side == PL_HELD ? split->first
                                                         : split->held_count;
        return pl_permute_index(split->key, split->total,
                                behind ? place + skipped : place);
    }
    if (sampler->side == PL_HELD)
        return held[place];
    int64_t low = 0, high = split->held_count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (held[middle] - middle <= place)
            low = middle + 1;
        else
            high = middle;
    }
    return place + low;
}

/* ---- samples of different length ----
 *
 * Padding is computed for nothing, and each padded length needs a plan: so there are a
 * few buckets with about as many samples each.  Within a bucket, and among batches, a
 * pure function shuffles; only the bucket of each sample is stored. */

typedef struct measured {
    int64_t length, place, sample;
} measured_t;

/* The longest samples first; samples of one length in the data's order. */
static int compare_lengths(const void *a, const void *b)
{
    const measured_t *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? 1 : -1;
    return (x->place > y->place) - (x->place < y->place);
}

int pl_buckets_make(pl_buckets_t *buckets, const pl_sampler_t *sampler,
                    const int64_t *length, int64_t max, pl_error_t *err)
{
    const int64_t count = sampler->count;
    pl_sampler_t sorted = *sampler;
    sorted.shuffle = false;
    measured_t *m = pl_alloc_array((size_t)count, sizeof *m);
    int64_t *sample = pl_alloc_array((size_t)count, sizeof *sample);
    if (!m || !sample) {
        pl_free(m);
        pl_free(sample);
        return pl_no_memory(err);
    }
    for (int64_t k = 0; k < count; k++) {
        int64_t at = pl_sampler_at(&sorted, 0, k);
        m[k] = (measured_t){length[at], k, at};
    }
    qsort(m, (size_t)count, sizeof *m, compare_lengths);
    for (int64_t k = 0; k < count; k++)
        sample[k] = m[k].sample;
    *buckets = (pl_buckets_t){.sample = sample};
    if (max > PL_BUCKETS_MAX)
        max = PL_BUCKETS_MAX;
    for (int64_t begin = 0, end = count; begin < count; begin = end, end = count) {
        const int64_t left = max - buckets->count;
        if (left > 1)
            end = begin + (count - begin + left - 1) / left;
        while (end < count && m[end].length == m[end - 1].length)
            end++;                              /* a bucket has all samples of a length */
        buckets->bucket[buckets->count++] = (pl_bucket_t){m[begin].length, begin,
                                                          end - begin};
    }
    pl_free(m);
    return PL_OK;
}

void pl_buckets_release(pl_buckets_t *buckets)
{
    pl_free(buckets->sample);
    *buckets = (pl_buckets_t){0};
}

int64_t pl_buckets_batches(const pl_buckets_t *buckets, int64_t batch_size,
                           const pl_sampler_partition_t *partition)
{
    int64_t batches = 0;
    for (int k = 0; k < buckets->count; k++)
        batches += pl_sampler_batches(partition, buckets->bucket[k].count, batch_size);
    return batches;
}

static uint64_t key_of(const pl_bucket_iter_t *iter, const char *purpose)
{
    return pl_mix(pl_mix(iter->sampler->seed, pl_hash_text(purpose)), iter->epoch);
}

pl_bucket_batch_t pl_bucket_batch_at(const pl_bucket_iter_t *iter, int64_t place)
{
    const pl_buckets_t *buckets = iter->buckets;
    pl_bucket_batch_t batch = {0};
    if (iter->sampler->shuffle)
        place = pl_permute_index(key_of(iter, "data.batches"),
                                 pl_buckets_batches(buckets, iter->batch_size,
                                                    &iter->partition),
                                 place);
    for (int64_t batches; batch.bucket < buckets->count - 1; batch.bucket++) {
        batches = pl_sampler_batches(&iter->partition,
                                     buckets->bucket[batch.bucket].count,
                                     iter->batch_size);
        if (place < batches)
            break;
        place -= batches;
    }
    batch.batch = place;
    batch.count = pl_sampler_batch_count(&iter->partition,
                                         buckets->bucket[batch.bucket].count,
                                         iter->batch_size, place);
    return batch;
}

int64_t pl_bucket_sample_at(const pl_bucket_iter_t *iter, const pl_bucket_batch_t *batch,
                            int64_t i)
{
    const pl_bucket_t *bucket = &iter->buckets->bucket[batch->bucket];
    int64_t place = pl_sampler_position(&iter->partition, iter->batch_size, batch->batch,
                                        i);
    if (iter->sampler->shuffle)
        place = pl_permute_index(pl_mix(key_of(iter, "data.shuffle"),
                                        (uint64_t)batch->bucket + 1),
                                 bucket->count, place);
    return iter->buckets->sample[bucket->begin + place];
}
