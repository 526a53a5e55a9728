/* monitors.h - the metrics that callbacks and schedules follow, by their names */
#ifndef PL_MONITORS_H
#define PL_MONITORS_H

#include "runtime/cargo.h"

/* PL_EINVAL when an option "monitor" names the metric of one validation source and the
 * run has several.  Needs options alone. */
int pl_monitors_check(const pl_job_t *job, pl_error_t *err);

/* Warns of options "monitor" that name no metric of the module, before the first step.
 * The names are those of metric_names; val [""] of a run without validations.  A callback
 * may still log a metric of that name, so it is no error. */
void pl_monitors_warn(const pl_job_t *job, const char *train, const char *val);

#endif
