/* metric.h - how a built-in callback reads the newest metrics, and keeps its state */
#ifndef PL_CALLBACKS_METRIC_H
#define PL_CALLBACKS_METRIC_H

#include <jansson.h>

#include "paceline.h"

/* The metric of a name; one that was not finite is NaN.  PL_ENOTFOUND: it says which ones
 * there are. */
int pl_metric_find(const pl_hook_event_t *event, const char *name, double *value,
                   pl_error_t *err);

/* What state() gives: the object, which is consumed, as text. */
char *pl_state_write(json_t *object, pl_error_t *err);
/* What restore() was given, or NULL: PL_EFORMAT. */
json_t *pl_state_read(const char *state, pl_error_t *err);

#endif
