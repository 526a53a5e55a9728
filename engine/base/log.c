/* log.c - log lines for the program's hook and for listeners
 *
 * A thread that logs holds the lock, so that no thread is in a hook that was removed.  It
 * holds it for reading, so that threads do not wait for each other. */
#include "base/log.h"
#include "base/utf8.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;  /* of host and listeners */
static pl_log_listener_t host;
static pl_log_listener_t *listeners;
static int log_limit = -1;                                  /* atomic; -1: no hook */

/* With the lock held for writing. */
static void limit_update(void)
{
    int limit = host.hook ? (int)host.level : -1;
    for (const pl_log_listener_t *listener = listeners; listener;
         listener = listener->next)
        limit = (int)listener->level > limit ? (int)listener->level : limit;
    __atomic_store_n(&log_limit, limit, __ATOMIC_RELAXED);
}

void pl_log_hook(pl_log_hook_t hook, pl_log_level_t level, void *user)
{
    pthread_rwlock_wrlock(&lock);
    host = (pl_log_listener_t){.hook = hook, .level = level, .user = user};
    limit_update();
    pthread_rwlock_unlock(&lock);
}

void pl_log_listener_add(pl_log_listener_t *listener)
{
    pthread_rwlock_wrlock(&lock);
    listener->next = listeners;
    listeners = listener;
    limit_update();
    pthread_rwlock_unlock(&lock);
}

void pl_log_listener_remove(pl_log_listener_t *listener)
{
    pthread_rwlock_wrlock(&lock);
    for (pl_log_listener_t **at = &listeners; *at; at = &(*at)->next)
        if (*at == listener) {
            *at = listener->next;
            break;
        }
    limit_update();
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
    pl_text_print(text, sizeof text, format, args);
    va_end(args);
    pthread_rwlock_rdlock(&lock);
    if (host.hook && level <= host.level)
        host.hook(level, rank, actor, text, host.user);
    for (const pl_log_listener_t *listener = listeners; listener;
         listener = listener->next)
        if (level <= listener->level)
            listener->hook(level, rank, actor, text, listener->user);
    pthread_rwlock_unlock(&lock);
}

int pl_log_level(void)
{
    return __atomic_load_n(&log_limit, __ATOMIC_RELAXED);
}
