/* metrics.h - metrics from sums: what loops add up over batches, and the value of each
 * metric */
#ifndef PL_LOOPS_METRICS_H
#define PL_LOOPS_METRICS_H

#include <jansson.h>

#include "runtime/payload.h"

/* ---- one metric ---- */

/* Sums over all batches and ranks. */
typedef struct pl_metric_sums {
    pl_metric_kind_t kind;
    pl_average_t average;
    const double *sum;                                      /* [count] */
    size_t count, columns;                                  /* columns: the last axis */
    double parameter;                                       /* of the kind: beta  [0] */
} pl_metric_sums_t;

/* A number; per class a list of numbers; of a confusion matrix a list of lists; of a
 * curve an object.  A value that is not finite is null.  *value stays NULL if nothing was
 * counted.  metric_value.c */
int pl_metric_value(const pl_metric_sums_t *sums, json_t **value, pl_error_t *err);

/* ---- all metrics of a stage ---- */

/* Combined states of a custom metric.  metric_combined.c */
typedef struct pl_combined pl_combined_t;

typedef struct pl_logged_metric {
    char name[64];                              /* with the stage's prefix: "val_loss" */
    bool on_step;                               /* reported at steps too */
    bool is_newest;                             /* the newest value counts, not the sum */
    pl_metric_kind_t kind;
    pl_average_t average;
    size_t from, count, columns;          /* its place among the sums; pl_metric_sums_t */
    double parameter;
    pl_combined_t *combined;                                /* [not a custom metric] */
} pl_logged_metric_t;

typedef struct pl_metrics {
    int count;
    pl_logged_metric_t metric[PL_METRICS_MAX];
    size_t size;                                            /* of all metrics, numbers */
    double *sum;                                            /* [size]  [nothing yet] */
    bool failed;                                            /* out of memory */
} pl_metrics_t;

/* Takes the lines of a metric_names reply, with a prefix ("train_") before each name. */
void pl_metrics_name(pl_metrics_t *metrics, const char *prefix, const char *names);
void pl_metrics_clear(pl_metrics_t *metrics);               /* sums, not names */
void pl_metrics_release(pl_metrics_t *metrics);             /* also if all zero */
/* Makes the memory of the sums, all zero; false: out of memory, which pl_metrics_put()
 * reports. */
bool pl_metrics_begin(pl_metrics_t *metrics);
/* Whether the float64 sums of a batch are all finite. */
bool pl_metrics_are_finite(pl_bytes_t sums);
/* Adds the float64 sums of a batch. */
void pl_metrics_add(pl_metrics_t *metrics, pl_bytes_t sums);
/* Adds only the metrics that PL_METRICS_OF_STEPS puts: a confusion matrix may be
 * large. */
void pl_metrics_add_steps(pl_metrics_t *metrics, pl_bytes_t sums);
/* What the sums cover.  A metric that is reported at steps has another name for the mean
 * of the epoch. */
typedef enum pl_metrics_scope {
    PL_METRICS_OF_STEPS,                       /* those reported at steps: "train_loss" */
    PL_METRICS_OF_EPOCH,                       /* "train_loss_epoch", "train_acc" */
    PL_METRICS_OF_PASS,                        /* "val_loss" */
} pl_metrics_scope_t;

/* Puts the value of each metric into a JSON object, except where nothing was counted.
 * Values of classes have names with numbers: "val_f1_0", "val_f1_1", … */
int pl_metrics_put(const pl_metrics_t *metrics, pl_metrics_scope_t of, json_t *into,
                   pl_error_t *err);
/* From the fields of a line of names behind the parameter; NULL: out of memory. */
pl_combined_t *pl_combined_new(const char *text);
void pl_combined_clear(pl_combined_t *combined);
void pl_combined_free(pl_combined_t *combined);             /* NULL is allowed */
/* Adds the slots of a batch; sums: the float64 numbers of the metric. */
void pl_combined_add(pl_combined_t *combined, pl_bytes_t sums);
/* As pl_metric_value(); sum: the metric's sums so far.  Memory that lacked, and more than
 * PL_GATHERED_MAX numbers, are errors here. */
int pl_combined_value(const pl_combined_t *combined, const pl_logged_metric_t *metric,
                      const double *sum, json_t **value, pl_error_t *err);
/* The metrics of the library that gather.  gathered_metrics.c */
extern const pl_registration_t pl_metric_components[];

/* Puts one number; null if it is not finite. */
int pl_metric_put(json_t *into, const char *name, double value, pl_error_t *err);

/* A JSON object as text, pl_free() frees it; NULL with PL_ENOMEM. */
char *pl_metrics_text(const json_t *metrics, pl_error_t *err);
/* Puts all members of the text's object into another. */
int pl_metrics_merge(json_t *into, const char *text, pl_error_t *err);

#endif
