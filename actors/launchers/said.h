/* said.h - what the process of a rank says, on its way to a file in the run's folder */
#ifndef PL_LAUNCHERS_SAID_H
#define PL_LAUNCHERS_SAID_H

#include "actors/launchers/rank_links.h"
#include "runtime/actor.h"

typedef struct pl_said {
    void *self;                                     /* who stands in for the rank */
    pl_rank_links_t *links;                         /* where folder and scribe are told */
    int rank;
    char *text;                               /* lines that are not written yet  [NULL] */
    size_t size;
    bool is_writing;
} pl_said_t;

void pl_said_line(pl_said_t *said, const char *line);
/* There may be a folder by now. */
void pl_said_write(pl_said_t *said);
/* No more will be said, and who says it ends now. */
void pl_said_end(pl_said_t *said);
void pl_said_release(pl_said_t *said);

#endif
