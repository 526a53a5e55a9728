/* metrics.c - metrics from sums: what loops add up over batches, and the value of each
 * metric
 *
 * All values are made here, from the sums of a step, an epoch, one rank or all ranks.
 * Definitions are those of scikit-learn's metrics, with 0 for a quotient of 0 and 0. */
#include "actors/loops/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compensated_sum.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"

/* ---- the value of a metric ---- */

/* The sum of (y - mean)^2 from sums of y and y^2 in parts: the sum of y^2 - 2 c y + c^2
 * with the mean as c.  It counts as 0 where the parts, 96 bits, cannot tell it from 0. */
static double squares_around_mean(double count, const double *y)
{
    const double *squares = y + PL_COMPENSATED_PARTS;
    pl_compensated_sum_t sum = {0}, around = {0}, square = {0};
    for (int k = 0; k < PL_COMPENSATED_PARTS; k++)
        pl_compensated_add(&sum, y[k]);
    const double mean = pl_compensated_value(sum) / count;
    for (int k = 0; k < PL_COMPENSATED_PARTS; k++) {
        pl_compensated_add(&around, squares[k]);
        pl_compensated_add_product(&around, -2 * mean, y[k]);
    }
    pl_compensated_add_product(&square, mean, mean);
    pl_compensated_add_product(&around, count, square.sum);
    pl_compensated_add_product(&around, count, square.rest);
    const double value = pl_compensated_value(around);
    return value <= 0x1p-90 * squares[0] ? 0 : value;
}

/* Sums of 1, y, y^2 and of (x - y)^2, or of x - y and its square in parts. */
static double explained_of(const pl_metric_sums_t *m)
{
    const double count = m->sum[0], *y = m->sum + 1,
                 *errors = y + 2 * (size_t)PL_COMPENSATED_PARTS;
    if (count < 2)
        return NAN;
    const double left = m->kind == PL_METRIC_R2 ? *errors
                                                : squares_around_mean(count, errors),
                 all = squares_around_mean(count, y);
    return all == 0 ? left == 0 : 1 - left / all;
}

/* Of one class, or of several together. */
typedef struct counts {
    double right;                                   /* of the class and predicted as it */
    double predicted, there;                        /* predicted as it; of the class */
    double all;
} counts_t;

/* Sums: [classes, classes], rows by the true class, columns by the predicted class. */
static counts_t class_counts(const pl_metric_sums_t *m, size_t k)
{
    counts_t c = {.right = m->sum[k * m->columns + k]};
    for (size_t i = 0; i < m->count; i++)
        c.all += m->sum[i];
    for (size_t i = 0; i < m->columns; i++) {
        c.there += m->sum[k * m->columns + i];
        c.predicted += m->sum[i * m->columns + k];
    }
    return c;
}

static double quotient(double a, double b)
{
    return b != 0 ? a / b : 0;
}

static double counts_value(pl_metric_kind_t kind, counts_t c)
{
    switch (kind) {
    case PL_METRIC_PRECISION: return quotient(c.right, c.predicted);
    case PL_METRIC_F1: return quotient(2 * c.right, c.predicted + c.there);
    case PL_METRIC_JACCARD: return quotient(c.right, c.predicted + c.there - c.right);
    case PL_METRIC_SPECIFICITY:
        return quotient(c.all - c.predicted - c.there + c.right, c.all - c.there);
    default: return quotient(c.right, c.there);
    }
}

static bool is_of_scores(const pl_metric_sums_t *m)
{
    return m->kind == PL_METRIC_AUROC || m->kind == PL_METRIC_AVERAGE_PRECISION;
}

/* The area under a curve of a class, NaN where it has none.  sum: [2, bins], samples of
 * other classes before those of the class; *owns: how many of the latter. */
static double scores_value(const pl_metric_sums_t *m, const double *sum, double *owns)
{
    const double *others = sum, *own = sum + m->columns;
    double other_count = 0, value = 0, own_above = 0, other_above = 0;
    *owns = 0;
    for (size_t k = 0; k < m->columns; k++) {
        other_count += others[k];
        *owns += own[k];
    }
    if (*owns <= 0 || (m->kind == PL_METRIC_AUROC && other_count <= 0))
        return NAN;
    for (size_t k = m->columns; k-- > 0;) {                 /* above: in higher bins */
        if (m->kind == PL_METRIC_AUROC)
            value += others[k] * (own_above + own[k] / 2);
        own_above += own[k];
        other_above += others[k];
        if (m->kind != PL_METRIC_AUROC && own[k] > 0)
            value += own[k] * own_above / (own_above + other_above);
    }
    return value / (m->kind == PL_METRIC_AUROC ? other_count * *owns : *owns);
}

/* The value of a class, and its weight in an average; weight 0: it has no value. */
static double class_value(const pl_metric_sums_t *m, size_t k, double *weight)
{
    double owns;
    if (is_of_scores(m)) {
        const double value = scores_value(m, m->sum + k * 2 * m->columns, &owns);
        *weight = isnan(value) ? 0 : m->average == PL_WEIGHTED ? owns : 1;
        return value;
    }
    const counts_t c = class_counts(m, k);
    *weight = m->average == PL_WEIGHTED ? c.there : c.predicted + c.there > 0;
    return counts_value(m->kind, c);
}

/* Of classes and predictions as two sequences: how far they agree beyond chance. */
static double agreement_of(const pl_metric_sums_t *m)
{
    double right = 0, both = 0, predicted = 0, there = 0, all = 0;
    for (size_t k = 0; k < m->columns; k++) {
        const counts_t c = class_counts(m, k);
        right += c.right;
        both += c.predicted * c.there;
        predicted += c.predicted * c.predicted;
        there += c.there * c.there;
        all = c.all;
    }
    return m->kind == PL_METRIC_KAPPA
               ? quotient(right * all - both, all * all - both)
               : quotient(right * all - both,
                          sqrt(all * all - predicted) * sqrt(all * all - there));
}

/* All classes counted together; NULL: out of memory. */
static json_t *micro_average(const pl_metric_sums_t *m)
{
    double owns;
    counts_t all = {0};
    if (!is_of_scores(m)) {
        for (size_t k = 0; k < m->columns; k++) {
            const counts_t c = class_counts(m, k);
            all.right += c.right;
            all.predicted += c.predicted;
            all.there += c.there;
            all.all += c.all;
        }
        return pl_json_number(counts_value(m->kind, all));
    }
    double *bins = pl_alloc_array(2 * m->columns, sizeof *bins);
    if (!bins)
        return NULL;
    for (size_t k = 0; k < m->count; k++)
        bins[k % (2 * m->columns)] += m->sum[k];
    json_t *value = pl_json_number(scores_value(m, bins, &owns));
    pl_free(bins);
    return value;
}

int pl_metric_value(const pl_metric_sums_t *m, json_t **value, pl_error_t *err)
{
    const double *count = m->sum;
    double all = 0, sum = 0, weights = 0;
    for (size_t k = 0; k < m->count; k++)
        all += fabs(m->sum[k]);
    if (m->kind < PL_METRIC_R2 ? m->sum[1] == 0 : all == 0)
        return PL_OK;                                       /* nothing was counted */
    const double mean = m->kind < PL_METRIC_R2 ? m->sum[0] / m->sum[1] : 0;
    switch (m->kind) {
    case PL_METRIC_MEAN: *value = pl_json_number(mean); break;
    case PL_METRIC_ROOT: *value = pl_json_number(sqrt(mean)); break;
    case PL_METRIC_EXP: *value = pl_json_number(exp(mean)); break;
    case PL_METRIC_BITS: *value = pl_json_number(mean / M_LN2); break;
    case PL_METRIC_R2:
    case PL_METRIC_EXPLAINED_VARIANCE: *value = pl_json_number(explained_of(m)); break;
    case PL_METRIC_MCC:
    case PL_METRIC_KAPPA: *value = pl_json_number(agreement_of(m)); break;
    case PL_METRIC_CONFUSION:
        *value = json_array();
        for (size_t i = 0; i < m->columns; i++) {
            json_t *row = json_array();
            for (size_t k = 0; k < m->columns; k++)
                row = pl_json_append(row, json_integer((json_int_t)*count++));
            *value = pl_json_append(*value, row);
        }
        break;
    default:
        if (m->average == PL_MICRO) {
            *value = micro_average(m);
            break;
        }
        *value = m->average == PL_PER_CLASS ? json_array() : NULL;
        const size_t classes = is_of_scores(m) ? m->count / (2 * m->columns) : m->columns;
        for (size_t k = 0; k < classes; k++) {
            double weight;
            const double of_class = class_value(m, k, &weight);
            sum += weight > 0 ? weight * of_class : 0;
            weights += weight;
            if (*value)
                *value = pl_json_append(*value, pl_json_number(of_class));
        }
        if (m->average != PL_PER_CLASS)
            *value = pl_json_number(sum / weights);
    }
    return *value ? PL_OK : pl_no_memory(err);
}

/* ---- sums ---- */

/* A line of names is "name*\tkind average count columns". */
void pl_metrics_name(pl_metrics_t *metrics, const char *prefix, const char *names)
{
    pl_metrics_release(metrics);
    while (*names && metrics->count < PL_METRICS_MAX) {
        pl_logged_metric_t *f = &metrics->metric[metrics->count];
        size_t length = strcspn(names, "\t\n");
        unsigned kind = 0, average = 0;
        f->count = 2, f->columns = 1;
        sscanf(names + length, "%u %u %zu %zu", &kind, &average, &f->count, &f->columns);
        if (kind < PL_METRIC_KINDS && average <= PL_PER_CLASS) {
            f->kind = kind;
            f->average = average;
            f->from = metrics->size;
            f->on_step = length && names[length - 1] == '*';
            f->is_newest = *names == '=';
            snprintf(f->name, sizeof f->name, "%s%.*s", f->is_newest ? "" : prefix,
                     (int)(length - f->on_step - f->is_newest), names + f->is_newest);
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
        const pl_metric_sums_t sums = {f->kind, f->average, metrics->sum + f->from,
                                       f->count, f->columns};
        json_t *value = NULL;
        if (f->is_newest ? of != PL_METRICS_OF_STEPS
                         : !f->on_step && of == PL_METRICS_OF_STEPS)
            continue;
        code = pl_metric_value(&sums, &value, err);
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
