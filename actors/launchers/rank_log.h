/* rank_log.h - the output of a rank's process: its file in the run directory */
#ifndef PL_LAUNCHERS_RANK_LOG_H
#define PL_LAUNCHERS_RANK_LOG_H

#include "actors/launchers/rank_links.h"
#include "runtime/actor.h"

/* Takes `append_log`. */
extern const pl_actor_ops_t pl_log_writer;

typedef struct pl_rank_log {
    void *self;                                             /* the proxy of the rank */
    pl_rank_links_t *links;                                 /* folder and log writer */
    int rank;
    char *text;                               /* lines that are not written yet  [NULL] */
    size_t size;
    bool is_writing;
} pl_rank_log_t;

void pl_rank_log_append(pl_rank_log_t *log, const char *line);
/* There may be a folder by now. */
void pl_rank_log_flush(pl_rank_log_t *log);
/* No more output comes, and the proxy ends now. */
void pl_rank_log_close(pl_rank_log_t *log);
void pl_rank_log_release(pl_rank_log_t *log);

#endif
