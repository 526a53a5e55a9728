/* metric_value.c - the value of each metric, from its sums
 *
 * All values are made here, from the sums of a step, an epoch, one rank or all ranks.
 * Definitions are those of scikit-learn's metrics, with 0 for a quotient of 0 and 0.
 * Metrics of classes have a confusion matrix [classes, classes], those of labels four
 * counts of each label, in one column: found, predicted, there, all. */
#include <jansson.h>
#include <math.h>

#include "actors/loops/metrics.h"
#include "base/alloc.h"
#include "base/compensated_sum.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"

/* ---- of numbers ---- */

/* The sum of y from its parts, which power sums begin with. */
static double mean_of_parts(double count, const double *y)
{
    pl_compensated_sum_t sum = {0};
    for (int k = 0; k < PL_COMPENSATED_PARTS; k++)
        pl_compensated_add(&sum, y[k]);
    return pl_compensated_value(sum) / count;
}

/* The sum of (y - mean)^2 from sums of y and y^2 in parts: the sum of y^2 - 2 c y + c^2
 * with the mean as c.  It counts as 0 where the parts, 96 bits, cannot tell it from 0. */
static double squares_around_mean(double count, const double *y)
{
    const double *squares = y + PL_COMPENSATED_PARTS, mean = mean_of_parts(count, y);
    pl_compensated_sum_t around = {0}, square = {0};
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

/* Sums of 1, then of y, x - y and x and their squares in parts. */
static double correlation_of(const pl_metric_sums_t *m)
{
    const size_t parts = 2 * (size_t)PL_COMPENSATED_PARTS;
    const double count = m->sum[0], *y = m->sum + 1, *d = y + parts, *x = d + parts;
    if (count < 2)
        return NAN;
    const double of_x = squares_around_mean(count, x),
                 of_y = squares_around_mean(count, y),
                 both = (of_x + of_y - squares_around_mean(count, d)) / 2,
                 apart = mean_of_parts(count, d);
    if (of_x <= 0 || of_y <= 0)
        return NAN;
    if (m->kind == PL_METRIC_PEARSON)
        return fmax(-1, fmin(1, both / sqrt(of_x) / sqrt(of_y)));
    return 2 * both / (of_x + of_y + (count - 1) * apart * apart);
}

/* ---- of classes ---- */

/* Of one class or label, or of several together. */
typedef struct counts {
    double right;            /* of the class and predicted as it */
    double predicted, there; /* predicted as it; of the class */
    double all;
} counts_t;

static bool is_of_labels(const pl_metric_sums_t *m)
{
    return m->columns == 1 && m->count >= 4;
}

/* Sums of classes: rows by the true class, columns by the predicted class. */
static counts_t class_counts(const pl_metric_sums_t *m, size_t k)
{
    const double *label = m->sum + 4 * k;
    if (is_of_labels(m))
        return (counts_t){label[0], label[1], label[2], label[3]};
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

/* The other answer of a label. */
static counts_t counts_of_rest(counts_t c)
{
    return (counts_t){.right = c.all - c.predicted - c.there + c.right,
                      .predicted = c.all - c.predicted,
                      .there = c.all - c.there,
                      .all = c.all};
}

static double counts_value(const pl_metric_sums_t *m, counts_t c)
{
    const counts_t rest = counts_of_rest(c);
    const double share = is_of_labels(m) ? quotient(c.right + rest.right, c.all)
                                         : quotient(c.right, c.there),
                 beta2 = m->parameter * m->parameter;
    switch (m->kind) {
    case PL_METRIC_ACCURACY: return share;
    case PL_METRIC_HAMMING: return 1 - share;
    case PL_METRIC_PRECISION: return quotient(c.right, c.predicted);
    case PL_METRIC_F1: return quotient(2 * c.right, c.predicted + c.there);
    case PL_METRIC_FBETA:
        return quotient((1 + beta2) * c.right, c.predicted + beta2 * c.there);
    case PL_METRIC_JACCARD: return quotient(c.right, c.predicted + c.there - c.right);
    case PL_METRIC_SPECIFICITY: return quotient(rest.right, rest.there);
    default: return quotient(c.right, c.there);
    }
}

static bool is_of_scores(const pl_metric_sums_t *m)
{
    return m->kind == PL_METRIC_AUROC || m->kind == PL_METRIC_AVERAGE_PRECISION
           || m->kind == PL_METRIC_ROC || m->kind == PL_METRIC_PR_CURVE;
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
    for (size_t k = m->columns; k-- > 0;) { /* above: in higher bins */
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
    *weight = m->average == PL_WEIGHTED ? c.there
                                        : is_of_labels(m) || c.predicted + c.there > 0;
    return counts_value(m, c);
}

static size_t class_count(const pl_metric_sums_t *m)
{
    return is_of_scores(m)   ? m->count / (2 * m->columns)
           : is_of_labels(m) ? m->count / 4
                             : m->columns;
}

/* All classes counted together. */
static counts_t counts_of_all(const pl_metric_sums_t *m)
{
    counts_t all = {0};
    for (size_t k = 0; k < class_count(m); k++) {
        const counts_t c = class_counts(m, k);
        all.right += c.right;
        all.predicted += c.predicted;
        all.there += c.there;
        all.all += c.all;
    }
    return all;
}

/* Of classes and predictions as two sequences: how far they agree beyond chance.  All
 * labels together are two classes. */
static double agreement_of(const pl_metric_sums_t *m)
{
    const counts_t labels = counts_of_all(m);
    const size_t classes = is_of_labels(m) ? 2 : m->columns;
    double right = 0, both = 0, predicted = 0, there = 0, all = 0;
    for (size_t k = 0; k < classes; k++) {
        const counts_t c = !is_of_labels(m) ? class_counts(m, k)
                           : k              ? labels
                                            : counts_of_rest(labels);
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

static json_t *row_of(double a, double b)
{
    return json_pack("[I, I]", (json_int_t)a, (json_int_t)b);
}

/* Rows by the true class; of several labels a matrix of each. */
static json_t *confusion_of(const pl_metric_sums_t *m)
{
    const double *count = m->sum;
    json_t *all = json_array();
    for (size_t k = 0; k < class_count(m); k++) {
        json_t *row = json_array();
        for (size_t i = 0; i < m->columns && !is_of_labels(m); i++)
            row = pl_json_append(row, json_integer((json_int_t)*count++));
        if (is_of_labels(m)) {
            const counts_t c = class_counts(m, k);
            row = pl_json_append(row,
                                 row_of(counts_of_rest(c).right, c.predicted - c.right));
            row = pl_json_append(row, row_of(c.there - c.right, c.right));
        }
        all = pl_json_append(all, row);
    }
    if (!is_of_labels(m) || class_count(m) > 1)
        return all;
    json_t *only = json_incref(json_array_get(all, 0));
    json_decref(all);
    return only;
}

/* ---- of scores ---- */

/* The bins of all classes together, [2, bins]; NULL: out of memory. */
static double *bins_of_all(const pl_metric_sums_t *m)
{
    double *bins = pl_alloc_array(2 * m->columns, sizeof *bins);
    for (size_t k = 0; bins && k < m->count; k++)
        bins[k % (2 * m->columns)] += m->sum[k];
    return bins;
}

/* The value of all classes counted together; NULL: out of memory. */
static json_t *micro_average(const pl_metric_sums_t *m)
{
    double owns;
    if (!is_of_scores(m))
        return pl_json_number(counts_value(m, counts_of_all(m)));
    double *bins = bins_of_all(m);
    if (!bins)
        return NULL;
    json_t *value = pl_json_number(scores_value(m, bins, &owns));
    pl_free(bins);
    return value;
}

/* Six digits are enough for a curve, and many classes have many points. */
static json_t *coordinate(double value)
{
    return json_real(round(value * 1e6) / 1e6);
}

/* The points of one class, from the highest threshold: [x, y, lowest score].  sum: as of
 * scores_value(). */
static json_t *points_of(const pl_metric_sums_t *m, const double *sum)
{
    const double *others = sum, *own = sum + m->columns;
    const bool is_roc = m->kind == PL_METRIC_ROC;
    double other_count = 0, own_count = 0, own_above = 0, other_above = 0;
    for (size_t k = 0; k < m->columns; k++) {
        other_count += others[k];
        own_count += own[k];
    }
    json_t *all = pl_json_append(json_array(),
                                 json_pack("[f, f, f]", 0.0, is_roc ? 0.0 : 1.0, 1.0));
    for (size_t k = m->columns; k-- > 0;) {
        own_above += own[k];
        other_above += others[k];
        if (own[k] == 0 && others[k] == 0)
            continue;
        const double hits = quotient(own_above, own_count),
                     x = is_roc ? quotient(other_above, other_count) : hits,
                     y = is_roc ? hits : quotient(own_above, own_above + other_above);
        all = pl_json_append(all,
                             json_pack("[o, o, o]", coordinate(x), coordinate(y),
                                       coordinate((double)k / (double)(m->columns - 1))));
    }
    return all;
}

static json_t *curve_of(const pl_metric_sums_t *m)
{
    const bool is_roc = m->kind == PL_METRIC_ROC, is_one = m->average == PL_MICRO;
    double *bins = is_one ? bins_of_all(m) : NULL;
    if (is_one && !bins)
        return NULL;
    json_t *points = json_array();
    for (size_t k = 0; k < (is_one ? 1 : class_count(m)); k++)
        points =
            pl_json_append(points,
                           points_of(m, is_one ? bins : m->sum + k * 2 * m->columns));
    pl_free(bins);
    return points
               ? json_pack("{s:s, s:s, s:s, s:o}", "curve", is_roc ? "roc" : "pr", "x",
                           is_roc ? "false positive rate" : "recall", "y",
                           is_roc ? "true positive rate" : "precision", "points", points)
               : NULL;
}

/* Sums [3, bins]: predictions, their confidences, and how many are right. */
static double calibration_of(const pl_metric_sums_t *m)
{
    double apart = 0, all = 0;
    for (size_t k = 0; k < m->columns; k++) {
        apart += fabs(m->sum[2 * m->columns + k] - m->sum[m->columns + k]);
        all += m->sum[k];
    }
    return apart / all;
}

/* ---- a metric ---- */

int pl_metric_value(const pl_metric_sums_t *m, json_t **value, pl_error_t *err)
{
    double all = 0, sum = 0, weights = 0;
    for (size_t k = 0; k < m->count; k++)
        all += fabs(m->sum[k]);
    if (m->kind < PL_METRIC_R2 ? m->sum[1] == 0 : all == 0)
        return PL_OK; /* nothing was counted */
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
    case PL_METRIC_PEARSON:
    case PL_METRIC_CONCORDANCE: *value = pl_json_number(correlation_of(m)); break;
    case PL_METRIC_CALIBRATION: *value = pl_json_number(calibration_of(m)); break;
    case PL_METRIC_CONFUSION: *value = confusion_of(m); break;
    case PL_METRIC_ROC:
    case PL_METRIC_PR_CURVE: *value = curve_of(m); break;
    default:
        if (m->average == PL_MICRO) {
            *value = micro_average(m);
            break;
        }
        *value = m->average == PL_PER_CLASS ? json_array() : NULL;
        for (size_t k = 0; k < class_count(m); k++) {
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
