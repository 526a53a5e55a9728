/* log.h - log lines to the host's hook, and to who else shows them */
#ifndef PL_BASE_LOG_H
#define PL_BASE_LOG_H

#include "paceline.h"

/* One line (printf) of an actor of a rank (-1: none).  Any thread. */
PL_API void pl_log_line(pl_log_level_t level, int rank, const char *actor,
                        const char *format, ...) PL_PRINTF(4, 5);
/* Lines above it reach nobody; -1: none do. */
int pl_log_level(void);

/* Who hears them beside the host, whichever hook that has: the same rules as for it. */
typedef struct pl_log_listener {
    pl_log_hook_t hook;
    pl_log_level_t level;
    void *user;
    struct pl_log_listener *next;                           /* the list's */
} pl_log_listener_t;

void pl_log_listener_add(pl_log_listener_t *ear);
/* It is in no thread any more when this returns; not from its hook. */
void pl_log_listener_remove(pl_log_listener_t *ear);

#endif
