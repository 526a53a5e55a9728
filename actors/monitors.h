/* monitors.h - the metrics that callbacks and schedules follow, by their names */
#ifndef PL_MONITORS_H
#define PL_MONITORS_H

#include "runtime/payload.h"

/* PL_EINVAL when an option "monitor" names the metric of one validation source and the
 * run has several.  Needs options alone. */
int pl_monitors_check(const pl_job_t *job, pl_error_t *err);

/* Before the first step: PL_ENOTFOUND when an option "monitor" names no metric of the
 * run.  Warns instead where a callback could still log that metric, or the option
 * "strict" beside it is false.  Warns also where more of a metric is better and no "mode"
 * is given.  The names are those of metric_names; val [""] of a run without
 * validations. */
int pl_monitors_find(const pl_job_t *job, const char *train, const char *val,
                     pl_error_t *err);

#endif
