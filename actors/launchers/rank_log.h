/* rank_log.h - the output of a rank's process: its file in the run directory, and its
 * last lines behind an error */
#ifndef PL_LAUNCHERS_RANK_LOG_H
#define PL_LAUNCHERS_RANK_LOG_H

#include "actors/launchers/rank_links.h"
#include "runtime/actor.h"
#include "runtime/process.h"

/* Whole lines, as there is room; of one whose lines are shown as they come the last
 * alone. */
void pl_last_words(pl_process_t *process, bool is_shown, pl_error_t *error);

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
