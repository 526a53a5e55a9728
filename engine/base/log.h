/* log.h - log lines to the host's hook */
#ifndef PL_BASE_LOG_H
#define PL_BASE_LOG_H

#include "paceline.h"

/* One line (printf) of an actor of a rank (-1: none).  Any thread. */
void pl_log_line(pl_log_level_t level, int rank, const char *actor, const char *format,
                 ...) PL_PRINTF(4, 5);
/* Lines above it reach nobody; -1: none do. */
int pl_log_level(void);

#endif
