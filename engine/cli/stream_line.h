/* stream_line.h - one message of the stream as a line for people */
#ifndef CLI_STREAM_LINE_H
#define CLI_STREAM_LINE_H

#include <jansson.h>
#include <stddef.h>

/* Writes time, from, to, name and fields of a stream object, in columns; cut at
 * `columns` [0: whole]. */
void cli_stream_line(const json_t *message, int columns, char *text, size_t capacity);
/* Prints that messages are missing; rank: whose, -1: of those of none. */
void cli_stream_gap(long long rank, long long lost);

#endif
