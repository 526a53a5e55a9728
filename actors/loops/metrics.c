/* metrics.c - sums of an iteration: what loops add up from batches and report */
#include "actors/loops/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/loops/metric.h"
#include "base/alloc.h"
#include "base/json_path.h"
#include "base/error.h"
#include "base/json_text.h"

static void metric_name(pl_metrics_t *metrics, const char *prefix, const char *line)
{
    pl_logged_metric_t *f = &metrics->metric[metrics->count];
    size_t length = strcspn(line, "\t\n");
    unsigned kind = 0, average = 0;
    f->count = 2, f->columns = 1;
    sscanf(line + length, "%u %u %zu %zu", &kind, &average, &f->count, &f->columns);
    if (kind >= PL_METRIC_KINDS || average > PL_PER_CLASS)
        return;
    f->kind = kind;
    f->average = average;
    f->from = metrics->size;
    f->on_step = length && line[length - 1] == '*';
    f->is_newest = *line == '=';
    snprintf(f->name, sizeof f->name, "%s%.*s", f->is_newest ? "" : prefix,
             (int)(length - f->on_step - f->is_newest), line + f->is_newest);
    metrics->size += f->count;
    metrics->count++;
}

void pl_metrics_name(pl_metrics_t *metrics, const char *prefix, const char *names)
{
    pl_metrics_release(metrics);
    while (*names && metrics->count < PL_METRICS_MAX) {
        metric_name(metrics, prefix, names);
        names += strcspn(names, "\n");
        names += *names == '\n';
    }
}

void pl_metrics_clear(pl_metrics_t *metrics)
{
    if (metrics->sum)
        memset(metrics->sum, 0, metrics->size * sizeof *metrics->sum);
    metrics->failed = false;
}

void pl_metrics_release(pl_metrics_t *metrics)
{
    pl_free(metrics->sum);
    *metrics = (pl_metrics_t){0};
}

bool pl_metrics_begin(pl_metrics_t *metrics)
{
    if (!metrics->sum)
        metrics->sum = pl_alloc_array(metrics->size, sizeof *metrics->sum);
    metrics->failed |= !metrics->sum;
    return metrics->sum;
}

bool pl_metrics_are_finite(pl_bytes_t sums)
{
    const char *from = sums.data;
    for (size_t k = 0; k < sums.size / sizeof(double); k++) {
        double one;
        memcpy(&one, from + k * sizeof one, sizeof one);
        if (!isfinite(one))
            return false;
    }
    return true;
}

/* What comes now takes the place of what came before. */
static void newest_clear(pl_metrics_t *metrics, const char *sums, size_t count)
{
    for (int k = 0; k < metrics->count; k++) {
        const pl_logged_metric_t *f = &metrics->metric[k];
        double weight = 0;
        if (!f->is_newest || f->from + 2 > count)
            continue;
        memcpy(&weight, sums + (f->from + 1) * sizeof weight, sizeof weight);
        if (weight != 0)
            memset(metrics->sum + f->from, 0, 2 * sizeof *metrics->sum);
    }
}

static void range_add(pl_metrics_t *metrics, pl_bytes_t sums, size_t from, size_t count)
{
    const size_t there = sums.size / sizeof(double);
    for (size_t k = from; k < from + count && k < there && k < metrics->size; k++) {
        double one;
        memcpy(&one, (const char *)sums.data + k * sizeof one, sizeof one);
        metrics->sum[k] += one;
    }
}

static bool add_begin(pl_metrics_t *metrics, pl_bytes_t sums)
{
    if (!pl_metrics_begin(metrics))
        return false;
    newest_clear(metrics, sums.data, sums.size / sizeof(double));
    return true;
}

void pl_metrics_add(pl_metrics_t *metrics, pl_bytes_t sums)
{
    if (add_begin(metrics, sums))
        range_add(metrics, sums, 0, metrics->size);
}

void pl_metrics_add_steps(pl_metrics_t *metrics, pl_bytes_t sums)
{
    const bool begun = add_begin(metrics, sums);
    for (int k = 0; begun && k < metrics->count; k++) {
        const pl_logged_metric_t *f = &metrics->metric[k];
        if (f->on_step || f->is_newest)
            range_add(metrics, sums, f->from, f->count);
    }
}

int pl_metric_put(json_t *into, const char *name, double value, pl_error_t *err)
{
    json_t *number = pl_json_number(value);
    return json_object_set_new(into, name, number) == 0 ? PL_OK : pl_no_memory(err);
}

/* Values of classes one by one, each under its number. */
static int put_list(json_t *into, const char *name, const char *behind,
                    const json_t *values, pl_error_t *err)
{
    for (size_t k = 0; k < json_array_size(values); k++) {
        char numbered[96];
        snprintf(numbered, sizeof numbered, "%s_%zu%s", name, k, behind);
        if (json_object_set(into, numbered, json_array_get(values, k)) != 0)
            return pl_no_memory(err);
    }
    return PL_OK;
}

static int put_value(json_t *into, const pl_logged_metric_t *f, const char *behind,
                     json_t *value, pl_error_t *err)
{
    char name[96];
    if (json_is_array(value) && f->kind != PL_METRIC_CONFUSION)
        return put_list(into, f->name, behind, value, err);
    snprintf(name, sizeof name, "%s%s", f->name, behind);
    return json_object_set(into, name, value) == 0 ? PL_OK : pl_no_memory(err);
}

int pl_metrics_put(const pl_metrics_t *metrics, pl_metrics_scope_t of, json_t *into,
                   pl_error_t *err)
{
    int code = metrics->failed ? pl_no_memory(err) : PL_OK;
    for (int k = 0; k < metrics->count && code == PL_OK && metrics->sum; k++) {
        const pl_logged_metric_t *f = &metrics->metric[k];
        const pl_metric_sums_t sums = {f->kind, f->average, metrics->sum + f->from,
                                       f->count, f->columns};
        json_t *value = NULL;
        if (f->is_newest ? of != PL_METRICS_OF_STEPS
                         : !f->on_step && of == PL_METRICS_OF_STEPS)
            continue;
        code = pl_metric_value(&sums, &value, err);
        if (value)
            code = put_value(into, f,
                             f->on_step && of == PL_METRICS_OF_EPOCH ? "_epoch" : "",
                             value, err);
        json_decref(value);
    }
    return code;
}

char *pl_metrics_text(const json_t *metrics, pl_error_t *err)
{
    char *text = pl_json_write(metrics, PL_JSON_COMPACT);
    if (!text)
        pl_no_memory(err);
    return text;
}

int pl_metrics_merge(json_t *into, const char *text, pl_error_t *err)
{
    json_t *from = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!from)
        return *text ? pl_fail(err, PL_EPROTOCOL, "the metrics are not a JSON object")
                     : PL_OK;
    int failed = json_object_update(into, from);
    json_decref(from);
    return failed ? pl_no_memory(err) : PL_OK;
}
