/* metrics.c - sums of metrics: what loops add up over batches, and their names
 *
 * metric_value.c computes the value of each metric from its sums. */
#include "actors/loops/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"

/* ---- sums ---- */

/* A line of names is "name*\tkind average count columns". */
void pl_metrics_name(pl_metrics_t *metrics, const char *prefix, const char *names)
{
    pl_metrics_release(metrics);
    while (*names && metrics->count < PL_METRICS_MAX) {
        pl_logged_metric_t *f = &metrics->metric[metrics->count];
        size_t length = strcspn(names, "\t\n");
        unsigned kind = 0, average = 0;
        int end = 0;
        f->count = 2, f->columns = 1;
        sscanf(names + length, "%u %u %zu %zu %lf%n", &kind, &average, &f->count,
               &f->columns, &f->parameter, &end);
        if (kind < PL_METRIC_KINDS && average <= PL_PER_CLASS) {
            f->kind = kind;
            f->average = average;
            f->from = metrics->size;
            f->on_step = length && names[length - 1] == '*';
            f->is_newest = *names == '=';
            snprintf(f->name, sizeof f->name, "%s%.*s", f->is_newest ? "" : prefix,
                     (int)(length - f->on_step - f->is_newest), names + f->is_newest);
            f->combined = kind == PL_METRIC_CUSTOM ? pl_combined_new(names + length + end)
                                                   : NULL;
            metrics->failed |= kind == PL_METRIC_CUSTOM && !f->combined;
            metrics->size += f->count;
            metrics->count++;
        }
        names += strcspn(names, "\n");
        names += *names == '\n';
    }
}

void pl_metrics_clear(pl_metrics_t *metrics)
{
    if (metrics->sum)
        memset(metrics->sum, 0, metrics->size * sizeof *metrics->sum);
    for (int k = 0; k < metrics->count; k++)
        if (metrics->metric[k].combined)
            pl_combined_clear(metrics->metric[k].combined);
    metrics->failed = false;
}

void pl_metrics_release(pl_metrics_t *metrics)
{
    for (int k = 0; k < metrics->count; k++)
        pl_combined_free(metrics->metric[k].combined);
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

static void range_add(pl_metrics_t *metrics, pl_bytes_t sums, size_t from, size_t count)
{
    const size_t there = sums.size / sizeof(double);
    for (size_t k = from; k < from + count && k < there && k < metrics->size; k++) {
        double one;
        memcpy(&one, (const char *)sums.data + k * sizeof one, sizeof one);
        metrics->sum[k] += one;
    }
}

/* Makes the memory; sums of which only the newest counts are cleared.  false: out of
 * memory. */
static bool add_begin(pl_metrics_t *metrics, pl_bytes_t sums)
{
    if (!pl_metrics_begin(metrics))
        return false;
    for (int k = 0; k < metrics->count; k++) {
        const pl_logged_metric_t *f = &metrics->metric[k];
        double weight = 0;
        if (!f->is_newest || f->from + 2 > sums.size / sizeof weight)
            continue;
        memcpy(&weight, (const char *)sums.data + (f->from + 1) * sizeof weight,
               sizeof weight);
        if (weight != 0)
            memset(metrics->sum + f->from, 0, 2 * sizeof *metrics->sum);
    }
    return true;
}

void pl_metrics_add(pl_metrics_t *metrics, pl_bytes_t sums)
{
    if (add_begin(metrics, sums))
        range_add(metrics, sums, 0, metrics->size);
    for (int k = 0; k < metrics->count; k++) {
        const pl_logged_metric_t *f = &metrics->metric[k];
        const size_t from = f->from * sizeof(double), size = f->count * sizeof(double);
        if (f->combined && from + size <= sums.size)
            pl_combined_add(f->combined,
                            (pl_bytes_t){(const char *)sums.data + from, size});
    }
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

/* Each value of a list of classes has a name with its number. */
int pl_metrics_put(const pl_metrics_t *metrics, pl_metrics_scope_t of, json_t *into,
                   pl_error_t *err)
{
    int code = metrics->failed ? pl_no_memory(err) : PL_OK;
    for (int k = 0; k < metrics->count && code == PL_OK && metrics->sum; k++) {
        const pl_logged_metric_t *f = &metrics->metric[k];
        const pl_metric_sums_t sums = {f->kind,  f->average, metrics->sum + f->from,
                                       f->count, f->columns, f->parameter};
        json_t *value = NULL;
        if (f->is_newest ? of != PL_METRICS_OF_STEPS
                         : !f->on_step && of == PL_METRICS_OF_STEPS)
            continue;
        if (f->kind != PL_METRIC_CUSTOM)
            code = pl_metric_value(&sums, &value, err);
        else
            code = f->combined ? pl_combined_value(f->combined, f, sums.sum, &value, err)
                               : pl_no_memory(err);
        const char *end = f->on_step && of == PL_METRICS_OF_EPOCH ? "_epoch" : "";
        const bool is_list = json_is_array(value) && f->kind != PL_METRIC_CONFUSION;
        const size_t count = is_list ? json_array_size(value) : value != NULL;
        for (size_t i = 0; i < count && code == PL_OK; i++) {
            char name[96];
            if (is_list)
                snprintf(name, sizeof name, "%s_%zu%s", f->name, i, end);
            else
                snprintf(name, sizeof name, "%s%s", f->name, end);
            if (json_object_set(into, name, is_list ? json_array_get(value, i) : value))
                code = pl_no_memory(err);
        }
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
