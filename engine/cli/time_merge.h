/* time_merge.h - sorts the messages of several ranks by time
 *
 * A message may arrive before the message of another rank that caused it. So each waits
 * for a moment. Messages of one rank keep their order. */
#ifndef CLI_TIME_MERGE_H
#define CLI_TIME_MERGE_H

#include <jansson.h>
#include <stdbool.h>

enum { CLI_TIME_MERGE_MS = 50 };                           /* for which a message waits */

typedef struct cli_held {
    double time, came;                   /* s: clock of the run; clock here, at arrival */
    int rank;
    json_t *message;                                        /* owned, like text */
    char *text;
} cli_held_t;

/* All zero: empty. */
typedef struct cli_time_merge {
    cli_held_t *held;                                       /* in order */
    int count, capacity;
    bool has_several;                                       /* ranks */
} cli_time_merge_t;

/* Adds a message and takes ownership of its members. False: out of memory, and nothing
 * has changed. */
bool cli_time_merge_add(cli_time_merge_t *queue, const cli_held_t *one);
/* The number of messages, from the first on, that are due now; all with `ends`. */
int cli_time_merge_due(const cli_time_merge_t *queue, double now, bool ends);
/* Removes and frees the first `count` messages. */
void cli_time_merge_drop(cli_time_merge_t *queue, int count);

#endif
