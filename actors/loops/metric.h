/* metric.h - what the sums of a metric come to */
#ifndef PL_LOOPS_METRIC_H
#define PL_LOOPS_METRIC_H

#include <jansson.h>

#include "paceline.h"

/* Sums over all batches and ranks, and what they are of. */
typedef struct pl_metric_sums {
    pl_metric_kind_t kind;
    pl_average_t average;
    const double *sum;                                      /* [count] */
    size_t count, columns;                                  /* columns: the last axis */
} pl_metric_sums_t;

/* A number, of classes one by one a list of them, of a confusion matrix a list of lists;
 * what is not finite is null.  *value stays NULL when nothing was counted. */
int pl_metric_value(const pl_metric_sums_t *sums, json_t **value, pl_error_t *err);

#endif
