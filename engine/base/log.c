/* log.c - log lines to the host's hook */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static pl_log_hook_t log_hook;
static pl_log_level_t log_limit = PL_LOG_INFO;
static void *log_user;

void pl_log_hook(pl_log_hook_t hook, pl_log_level_t level, void *user)
{
    log_hook = hook;
    log_limit = level;
    log_user = user;
}

void pl_log_line(pl_log_level_t level, int rank, const char *actor, const char *format,
                 ...)
{
    if (!log_hook || level > log_limit)
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_hook(level, rank, actor, text, log_user);
}

int pl_log_level(void)
{
    return log_hook ? (int)log_limit : -1;
}
