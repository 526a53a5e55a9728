/* time_merge.h - messages of several ranks, each for a moment, in order of their times
 *
 * What comes of something may come here before it, from another rank.  A rank's own keep
 * their order. */
#ifndef CLI_TIME_MERGE_H
#define CLI_TIME_MERGE_H

#include <jansson.h>
#include <stdbool.h>

enum { CLI_TIME_MERGE_MS = 50 };                  /* that a message may wait for others */

typedef struct cli_held {
    double time, came;                            /* s: of the run; of whoever shows it */
    int rank;
    json_t *message;                                        /* owned, as is: */
    char *text;
} cli_held_t;

/* All zero: empty. */
typedef struct cli_time_merge {
    cli_held_t *held;                                       /* in order */
    int count, capacity;
    bool has_several;                                       /* ranks */
} cli_time_merge_t;

/* A message that has come at `came`; its parts are owned from now on.  False: no memory
 * for it, and nothing has changed. */
bool cli_time_merge_add(cli_time_merge_t *queue, const cli_held_t *one);
/* How many, from the first on, are to be shown now; all at the end. */
int cli_time_merge_due(const cli_time_merge_t *queue, double now, bool ends);
/* The first so many have been shown. */
void cli_time_merge_drop(cli_time_merge_t *queue, int count);

#endif
