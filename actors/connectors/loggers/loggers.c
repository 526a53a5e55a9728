/* loggers.c - the built-in loggers, and how their files continue in a resumed run */
#include "actors/connectors/loggers/loggers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "formats/append.h"

void pl_warn_lost_lines(const char *path)
{
    pl_log_line(
        PL_LOG_WARNING, 0, "logger",
        "%s: lines from before the checkpoint are missing, because the file was cut, "
        "replaced or removed; the run appends to the lines that are left",
        path);
}

bool pl_is_another_file(const char *path, uint64_t size, uint32_t sum)
{
    uint32_t found = sum;
    return pl_append_sum(path, size, &found, NULL) == PL_OK && found != sum;
}

bool pl_put_log_aside(const char *path)
{
    char *other = NULL;
    for (int n = 1; n == 1 || (other && n < 10000 && access(other, F_OK) == 0); n++) {
        pl_text_free(other);
        other = pl_text("%s.%d", path, n);
    }
    bool renamed = other && rename(path, other) == 0;
    pl_log_line(PL_LOG_WARNING, 0, "logger",
                "%s is not the file that the checkpoint refers to: %s%s", path,
                renamed ? "it is renamed, and a new file is begun: "
                        : "it is left unchanged: ",
                renamed ? other : strerrordesc_np(other ? errno : ENOMEM));
    pl_text_free(other);
    return renamed;
}

const pl_registration_t pl_logger_components[] = {
    {"logger", &pl_csv_logger},
    {"logger", &pl_jsonl_logger},
    {"logger", &pl_tensorboard_logger},
    PL_REGISTRATIONS_END,
};
