/* stream_line.h - messages of the stream for people: one as a line (stream_line.c), those
 * of several ranks in the order of their times (time_merge.c) */
#ifndef CLI_STREAM_LINE_H
#define CLI_STREAM_LINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Writes time, actors, name and fields of a message of the stream, cut at `columns`
 * [0: not cut]. */
void cli_stream_line(const json_t *message, int columns, char *text, size_t capacity);
/* Prints that `lost` messages of a rank are missing [-1: messages of no rank; lost 0: an
 * unknown number]. */
void cli_stream_gap(long long rank, long long lost);

/* ---- time_merge.c: a message may arrive before the message of another rank that caused
 * it, so each waits for a moment; messages of one rank keep their order ---- */

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
