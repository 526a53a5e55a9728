/* loggers.c - the loggers that are built in, one for each file */
#include "actors/connectors/loggers/loggers.h"

#include "base/log.h"

void pl_say_lost_lines(const char *path)
{
    pl_log_line(
        PL_LOG_WARNING, 0, "logger",
        "%s: lacks lines of before the checkpoint: it was cut, replaced or removed "
        "since; the run goes on behind those that are left",
        path);
}

const pl_registration_t pl_logger_parts[] = {
    {"logger", &pl_csv_logger},
    {"logger", &pl_jsonl_logger},
    {"logger", &pl_tensorboard_logger},
    PL_REGISTRATIONS_END,
};
