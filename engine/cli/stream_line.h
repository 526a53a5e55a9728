/* stream_line.h - one message of the stream as a line for people */
#ifndef CLI_STREAM_LINE_H
#define CLI_STREAM_LINE_H

#include <jansson.h>
#include <stddef.h>

/* Writes time, actors, name and fields of a message of the stream, cut at `columns`
 * [0: not cut]. */
void cli_stream_line(const json_t *message, int columns, char *text, size_t capacity);
/* Prints that `lost` messages of a rank are missing [-1: messages of no rank; lost 0: an
 * unknown number]. */
void cli_stream_gap(long long rank, long long lost);

#endif
