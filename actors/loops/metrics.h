/* metrics.h - sums of an iteration: what loops add up from batches and report */
#ifndef PL_LOOPS_METRICS_H
#define PL_LOOPS_METRICS_H

#include <jansson.h>

#include "runtime/payload.h"

typedef struct pl_logged_metric {
    char name[64];                       /* with the stage's prefix: "val_loss" */
    bool on_step;                        /* wanted at steps too, not only over an epoch */
    bool is_newest;                      /* what came last counts, not all together */
    pl_metric_kind_t kind;
    pl_average_t average;
    size_t from, count, columns;              /* its place among the sums; see metric.h */
} pl_logged_metric_t;

typedef struct pl_metrics {
    int count;
    pl_logged_metric_t metric[PL_METRICS_MAX];
    size_t size;                                            /* of all metrics, numbers */
    double *sum;                                            /* [size]  [nothing yet] */
    bool failed;                                            /* no memory for them */
} pl_metrics_t;

/* Takes the lines of a metric_names reply, with a prefix ("train_") before each name. */
void pl_metrics_name(pl_metrics_t *metrics, const char *prefix, const char *names);
void pl_metrics_clear(pl_metrics_t *metrics);               /* sums, not names */
void pl_metrics_release(pl_metrics_t *metrics);             /* fine of a zeroed one */
/* Room for the sums, all zero; false: no memory, which metrics tell when they are put. */
bool pl_metrics_begin(pl_metrics_t *metrics);
/* Whether the float64 sums of a batch are all finite. */
bool pl_metrics_are_finite(pl_bytes_t sums);
/* Adds the float64 sums of a batch. */
void pl_metrics_add(pl_metrics_t *metrics, pl_bytes_t sums);
/* Adds only those that PL_METRICS_OF_STEPS puts: a confusion matrix may be large. */
void pl_metrics_add_steps(pl_metrics_t *metrics, pl_bytes_t sums);
/* What sums are of.  A metric that is wanted at steps has the epoch's mean under a name
 * of its own. */
typedef enum pl_metrics_scope {
    PL_METRICS_OF_STEPS,                    /* those wanted at steps only: "train_loss" */
    PL_METRICS_OF_EPOCH,                    /* "train_loss_epoch", "train_acc" */
    PL_METRICS_OF_PASS,                     /* "val_loss" */
} pl_metrics_scope_t;

/* Puts the value of each into a JSON object; those of which nothing was counted are left
 * out.  Values of classes have names of their own: "val_f1_0", "val_f1_1", … */
int pl_metrics_put(const pl_metrics_t *metrics, pl_metrics_scope_t of, json_t *into,
                   pl_error_t *err);
/* Puts one number; what is not finite becomes null. */
int pl_metric_put(json_t *into, const char *name, double value, pl_error_t *err);

/* A JSON object as text, pl_free() frees it; NULL with PL_ENOMEM. */
char *pl_metrics_text(const json_t *metrics, pl_error_t *err);
/* Puts all members of the text's object into another. */
int pl_metrics_merge(json_t *into, const char *text, pl_error_t *err);

#endif
