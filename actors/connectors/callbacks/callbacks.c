/* callbacks.c - the callbacks that are built in, by name */
#include "actors/connectors/callbacks/callbacks.h"

const pl_registration_t pl_callback_components[] = {
    {"callback", &pl_device_stats_monitor_callback},
    {"callback", &pl_early_stopping_callback},
    {"callback", &pl_finetuning_callback},
    {"callback", &pl_gradient_accumulation_scheduler_callback},
    {"callback", &pl_lr_monitor_callback},
    {"callback", &pl_model_checkpoint_callback},
    {"callback", &pl_model_summary_callback},
    {"callback", &pl_on_exception_checkpoint_callback},
    {"callback", &pl_prediction_writer_callback},
    {"callback", &pl_progress_callback},
    {"callback", &pl_throughput_monitor_callback},
    {"callback", &pl_timer_callback},
    PL_REGISTRATIONS_END,
};
