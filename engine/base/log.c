/* log.c - log lines to the host's hook
 *
 * The lock is held while the hook is called, so that nobody is in one that was taken
 * away; for reading, so that threads do not wait for each other. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;  /* of hook and user */
static pl_log_hook_t log_hook;
static void *log_user;
static int log_limit = -1;                                  /* atomic; -1: no hook */

void pl_log_hook(pl_log_hook_t hook, pl_log_level_t level, void *user)
{
    pthread_rwlock_wrlock(&lock);
    log_hook = hook;
    log_user = user;
    __atomic_store_n(&log_limit, hook ? (int)level : -1, __ATOMIC_RELAXED);
    pthread_rwlock_unlock(&lock);
}

void pl_log_line(pl_log_level_t level, int rank, const char *actor, const char *format,
                 ...)
{
    if ((int)level > pl_log_level())
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_rwlock_rdlock(&lock);
    if (log_hook)
        log_hook(level, rank, actor, text, log_user);
    pthread_rwlock_unlock(&lock);
}

int pl_log_level(void)
{
    return __atomic_load_n(&log_limit, __ATOMIC_RELAXED);
}
