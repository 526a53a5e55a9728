/* callbacks.c - the callbacks that are built in, by name */
#include "actors/connectors/callbacks/callbacks.h"

const pl_registration_t pl_callback_parts[] = {
    {"callback", &pl_device_stats_monitor_callback},
    {"callback", &pl_early_stopping_callback},
    {"callback", &pl_lr_monitor_callback},
    {"callback", &pl_model_checkpoint_callback},
    {"callback", &pl_progress_callback},
    {"callback", &pl_throughput_monitor_callback},
    {"callback", &pl_timer_callback},
    PL_REGISTRATIONS_END,
};
