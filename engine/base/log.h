/* log.h - log lines for the program's hook and for listeners */
#ifndef PL_BASE_LOG_H
#define PL_BASE_LOG_H

#include "paceline.h"

/* One line (printf) of an actor of a rank (-1: none).  Any thread. */
PL_API void pl_log_line(pl_log_level_t level, int rank, const char *actor,
                        const char *format, ...) PL_PRINTF(4, 5);
/* The highest level that a hook receives; -1: none. */
int pl_log_level(void);

/* A further receiver of log lines, beside the program's hook and under the same rules. */
typedef struct pl_log_listener {
    pl_log_hook_t hook;
    pl_log_level_t level;
    void *user;
    struct pl_log_listener *next;                           /* of the list */
} pl_log_listener_t;

void pl_log_listener_add(pl_log_listener_t *listener);
/* When the call returns, no thread is in its hook; so the hook must not call it. */
void pl_log_listener_remove(pl_log_listener_t *listener);

#endif
