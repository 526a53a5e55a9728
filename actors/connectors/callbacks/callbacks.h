/* callbacks.h - the built-in callbacks, and functions that several of them use
 *
 * Each is one file with its options and one table, and is found by name like a user's. */
#ifndef PL_CALLBACKS_H
#define PL_CALLBACKS_H

#include <jansson.h>

#include "paceline.h"

extern const pl_callback_ops_t pl_device_stats_monitor_callback;
extern const pl_callback_ops_t pl_early_stopping_callback;
extern const pl_callback_ops_t pl_finetuning_callback;
extern const pl_callback_ops_t pl_gradient_accumulation_scheduler_callback;
extern const pl_callback_ops_t pl_lr_monitor_callback;
extern const pl_callback_ops_t pl_model_checkpoint_callback;
extern const pl_callback_ops_t pl_model_summary_callback;
extern const pl_callback_ops_t pl_on_exception_checkpoint_callback;
extern const pl_callback_ops_t pl_prediction_writer_callback;
extern const pl_callback_ops_t pl_progress_callback;
extern const pl_callback_ops_t pl_throughput_monitor_callback;
extern const pl_callback_ops_t pl_timer_callback;

/* All of them, up to PL_REGISTRATIONS_END. */
extern const pl_registration_t pl_callback_components[];

/* The newest value of a metric; NaN if it was not finite.  PL_ENOTFOUND lists the
 * metrics. */
int pl_metric_find(const pl_hook_event_t *event, const char *name, double *value,
                   pl_error_t *err);

/* The text of a state for state(); consumes the object. */
char *pl_state_write(json_t *object, pl_error_t *err);
/* The object of a state for restore(), or NULL: PL_EFORMAT. */
json_t *pl_state_read(const char *state, pl_error_t *err);

/* Checks that option "epochs" ascends and has as many entries as another option. */
int pl_epochs_check(const pl_ints_t *epochs, const char *other, int other_count,
                    pl_error_t *err);

#endif
