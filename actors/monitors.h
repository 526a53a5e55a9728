/* monitors.h - the metrics that callbacks and schedules follow, by their names */
#ifndef PL_MONITORS_H
#define PL_MONITORS_H

#include "runtime/payload.h"

/* PL_EINVAL: an option "monitor" names the metric of one validation source, and the run
 * has several.  Reads options only. */
int pl_monitors_check(const pl_job_t *job, pl_error_t *err);

/* Before the first step.  PL_ENOTFOUND: an option "monitor" names no metric of the run;
 * only a warning if a callback could log that metric, or if the option "strict" beside it
 * is false.  Warns also if larger values of a metric are better and no "mode" is given.
 * The names are those of metric_names; val is "" for a run without validations. */
int pl_monitors_find(const pl_job_t *job, const char *train, const char *val,
                     pl_error_t *err);

#endif
