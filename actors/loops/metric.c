/* metric.c - what the sums of a metric come to
 *
 * The one place where a value is made, whoever's sums they are: of a step, an epoch, one
 * rank or all.  Definitions are those of scikit-learn's metrics, with 0 for a quotient
 * whose parts are both 0. */
#include "actors/loops/metric.h"

#include <math.h>

#include "base/alloc.h"
#include "base/json_path.h"
#include "base/error.h"
#include "base/compensated_sum.h"

/* ---- pairs and numbers ---- */

static double mean_of(const pl_metric_sums_t *m)
{
    return m->sum[0] / m->sum[1];
}

static double root_of(const pl_metric_sums_t *m)
{
    return sqrt(mean_of(m));
}

static double exp_of(const pl_metric_sums_t *m)
{
    return exp(mean_of(m));
}

static double bits_of(const pl_metric_sums_t *m)
{
    return mean_of(m) / M_LN2;
}

/* Sum of (y - c)^2 = sum of y^2 - 2 c y + c^2, with the mean as c.  0 where the parts,
 * 96 bits, do not tell it from 0. */
static double squares_around_mean(double count, const double y[PL_COMPENSATED_PARTS],
                                  const double squares[PL_COMPENSATED_PARTS])
{
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

/* Sums of 1, y, y^2, (x - y)^2: those of y and y^2 in parts. */
static double r2_of(const pl_metric_sums_t *m)
{
    const double *y = m->sum + 1, *squares = y + PL_COMPENSATED_PARTS;
    const double around = squares_around_mean(m->sum[0], y, squares),
                 errors = squares[PL_COMPENSATED_PARTS];
    if (m->sum[0] < 2)
        return NAN;
    return around == 0 ? errors == 0 : 1 - errors / around;
}

/* ---- classes ---- */

/* Of one class, or of several together. */
typedef struct counts {
    double right, taken, there;                /* of the class and taken for it; taken for
                                                  it; of it */
} counts_t;

/* Sums: [classes, classes], rows by what they are, columns by what they are taken for. */
static counts_t class_counts(const pl_metric_sums_t *m, size_t k)
{
    counts_t c = {.right = m->sum[k * m->columns + k]};
    for (size_t i = 0; i < m->columns; i++) {
        c.there += m->sum[k * m->columns + i];
        c.taken += m->sum[i * m->columns + k];
    }
    return c;
}

static double quotient(double a, double b)
{
    return b != 0 ? a / b : 0;
}

static double class_value(pl_metric_kind_t kind, counts_t c)
{
    switch (kind) {
    case PL_METRIC_PRECISION: return quotient(c.right, c.taken);
    case PL_METRIC_F1: return quotient(2 * c.right, c.taken + c.there);
    default: return quotient(c.right, c.there);
    }
}

/* ---- scores ---- */

/* Sums of a class: [2, bins], those it is not before those it is. */
typedef struct bins {
    const double *other, *own;
    size_t count;
    double others, owns;
} bins_t;

static double area(const bins_t *b)
{
    double sum = 0, above = 0;                         /* above: own ones in bins above */
    for (size_t k = b->count; k-- > 0; above += b->own[k])
        sum += b->other[k] * (above + b->own[k] / 2);
    return sum / (b->others * b->owns);
}

static double average_precision(const bins_t *b)
{
    double sum = 0, own = 0, other = 0;
    for (size_t k = b->count; k-- > 0;) {
        own += b->own[k];
        other += b->other[k];
        if (b->own[k] > 0)
            sum += b->own[k] * own / (own + other);
    }
    return sum / b->owns;
}

static bins_t bins_of(const double *sum, size_t columns)
{
    bins_t b = {sum, sum + columns, columns, 0, 0};
    for (size_t k = 0; k < columns; k++) {
        b.others += b.other[k];
        b.owns += b.own[k];
    }
    return b;
}

static double bins_value(pl_metric_kind_t kind, const bins_t *b)
{
    return kind == PL_METRIC_AUROC ? area(b) : average_precision(b);
}

/* ---- of one class and of all ---- */

static bool is_of_scores(const pl_metric_sums_t *m)
{
    return m->kind == PL_METRIC_AUROC || m->kind == PL_METRIC_AVERAGE_PRECISION;
}

static size_t classes_of(const pl_metric_sums_t *m)
{
    return is_of_scores(m) ? m->count / (2 * m->columns) : m->columns;
}

/* The value of a class, and its weight in an average: 0 when there is none. */
static double value_of(const pl_metric_sums_t *m, size_t k, double *weight)
{
    if (is_of_scores(m)) {
        bins_t b = bins_of(m->sum + k * 2 * m->columns, m->columns);
        bool is_there = b.owns > 0 && (b.others > 0 || m->kind != PL_METRIC_AUROC);
        *weight = !is_there ? 0 : m->average == PL_WEIGHTED ? b.owns : 1;
        return is_there ? bins_value(m->kind, &b) : NAN;
    }
    counts_t c = class_counts(m, k);
    *weight = m->average == PL_WEIGHTED ? c.there : c.taken + c.there > 0;
    return class_value(m->kind, c);
}

static double averaged(const pl_metric_sums_t *m)
{
    double sum = 0, weights = 0;
    for (size_t k = 0; k < classes_of(m); k++) {
        double weight, value = value_of(m, k, &weight);
        sum += weight > 0 ? weight * value : 0;
        weights += weight;
    }
    return sum / weights;
}

static double together_counts(const pl_metric_sums_t *m)
{
    counts_t all = {0};
    for (size_t k = 0; k < m->columns; k++) {
        counts_t c = class_counts(m, k);
        all = (counts_t){all.right + c.right, all.taken + c.taken, all.there + c.there};
    }
    return class_value(m->kind, all);
}

static double together(const pl_metric_sums_t *m, double *bins)
{
    for (size_t k = 0; k < m->count; k++)
        bins[k % (2 * m->columns)] += m->sum[k];
    bins_t b = bins_of(bins, m->columns);
    return bins_value(m->kind, &b);
}

/* ---- values ---- */

static int keep(json_t *made, json_t **value, pl_error_t *err)
{
    if (!made)
        return pl_no_memory(err);
    *value = made;
    return PL_OK;
}

static int matrix(const pl_metric_sums_t *m, json_t **value, pl_error_t *err)
{
    json_t *rows = json_array();
    int failed = rows == NULL;
    for (size_t i = 0; i < m->columns && !failed; i++) {
        json_t *row = json_array();
        for (size_t k = 0; k < m->columns && !failed; k++)
            failed = json_array_append_new(row,
                                           json_integer(
                                               (json_int_t)m->sum[i * m->columns + k]));
        failed = json_array_append_new(rows, row) || failed;
    }
    if (failed)
        json_decref(rows);
    return keep(failed ? NULL : rows, value, err);
}

static int list(const pl_metric_sums_t *m, json_t **value, pl_error_t *err)
{
    json_t *values = json_array();
    int failed = values == NULL;
    double weight;
    for (size_t k = 0; k < classes_of(m) && !failed; k++)
        failed = json_array_append_new(values, pl_json_number(value_of(m, k, &weight)));
    if (failed)
        json_decref(values);
    return keep(failed ? NULL : values, value, err);
}

static int of_classes(const pl_metric_sums_t *m, json_t **value, pl_error_t *err)
{
    if (m->kind == PL_METRIC_CONFUSION)
        return matrix(m, value, err);
    if (m->average == PL_PER_CLASS)
        return list(m, value, err);
    if (m->average != PL_MICRO)
        return keep(pl_json_number(averaged(m)), value, err);
    if (!is_of_scores(m))
        return keep(pl_json_number(together_counts(m)), value, err);
    double *bins = pl_alloc_array(2 * m->columns, sizeof *bins);
    if (!bins)
        return pl_no_memory(err);
    int code = keep(pl_json_number(together(m, bins)), value, err);
    pl_free(bins);
    return code;
}

static bool is_empty(const pl_metric_sums_t *m)
{
    if (m->kind < PL_METRIC_R2)
        return m->sum[1] == 0;
    double all = 0;
    for (size_t k = 0; k < m->count; k++)
        all += fabs(m->sum[k]);
    return all == 0;
}

int pl_metric_value(const pl_metric_sums_t *m, json_t **value, pl_error_t *err)
{
    static double (*const of_numbers[PL_METRIC_KINDS])(const pl_metric_sums_t *) = {
        [PL_METRIC_MEAN] = mean_of, [PL_METRIC_ROOT] = root_of, [PL_METRIC_EXP] = exp_of,
        [PL_METRIC_BITS] = bits_of, [PL_METRIC_R2] = r2_of,
    };
    if (is_empty(m))
        return PL_OK;
    return of_numbers[m->kind] ? keep(pl_json_number(of_numbers[m->kind](m)), value, err)
                               : of_classes(m, value, err);
}
