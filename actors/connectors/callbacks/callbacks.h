/* callbacks.h - the callbacks that are built in
 *
 * Each is one file with its options and one table, found by name like a user's own. */
#ifndef PL_CALLBACKS_H
#define PL_CALLBACKS_H

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

#endif
