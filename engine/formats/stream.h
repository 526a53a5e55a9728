/* stream.h - a whole file in memory, plain or gzip
 *
 * Compressed files are recognised by their first two bytes, not by their name.  Memory
 * grows with what really arrives, never with what a header promises, and never beyond the
 * caller's limit. */
#ifndef PL_FORMATS_STREAM_H
#define PL_FORMATS_STREAM_H

#include "paceline.h"

/* Bytes and how many; a zero byte follows the last, so that text needs no copy. */
typedef struct pl_file_bytes {
    uint8_t *data;
    size_t size;
} pl_file_bytes_t;

void pl_file_bytes_release(pl_file_bytes_t *bytes);

/* Half of this machine's memory: the limit for files that nobody gave another one. */
size_t pl_file_limit(void);

/* Reads all of a regular file, uncompressed when it is gzip.  PL_ENOTFOUND; PL_EIO, also
 * when the file changes meanwhile; PL_EFORMAT: truncated, damaged, or more than `limit`
 * bytes; each names the file and the offset. */
int pl_file_read(const char *path, size_t limit, pl_file_bytes_t *bytes, pl_error_t *err);

#endif
