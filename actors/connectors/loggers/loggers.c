/* loggers.c - the loggers that are built in, one for each file */
#include "actors/connectors/loggers/loggers.h"

const pl_registration_t pl_logger_parts[] = {
    {"logger", &pl_csv_logger},
    {"logger", &pl_jsonl_logger},
    {"logger", &pl_tensorboard_logger},
    PL_REGISTRATIONS_END,
};
